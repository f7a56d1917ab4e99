/* kernel_print.h - kernel source: hd_printf and hd_assert. heddle/kernel.h includes it.
 *
 *     hd_printf(format, ...)       writes to standard output, as printf of C does; at most 32
 *                                  numbers and strings
 *     hd_assert(condition)         if the condition is false, ends the kernel, and the device is
 *                                  lost; does nothing if NDEBUG is defined
 *
 * In source that `heddle cc` compiles, `printf` and `assert` are other names of these two.
 *
 * On a host device, a call writes its whole text, up to 4095 bytes, to the program's standard
 * output without a break. When a launch has ended, all of its text is written. On a GPU, the driver
 * keeps the text in a buffer, of 1 MiB by default. If the buffer is full, new text replaces the
 * oldest text. The driver decides when it writes the text, at hd_close at the latest.
 *
 * On a host device a failed assertion reports this line:
 *     kernel 'k', block (3, 0, 0), thread (17, 0, 0): assertion 'i < n' failed at file.c:12
 *
 * On a GPU, the driver writes these facts to standard error, and the message of the failed launch
 * names the kernel.
 */
#include <heddle/kernel.h> /* first: it includes this file, too */

#ifndef HEDDLE_KERNEL_PRINT_H
#define HEDDLE_KERNEL_PRINT_H

#if HD_KERNEL_GPU && (defined(__clang__) || defined(__CUDACC_RTC__))
/* The driver provides this function. */
extern "C" __attribute__((device, noreturn)) void __assertfail(const char *assertion, const char *file, unsigned line,
                                                               const char *function, size_t character_bytes);
#define HD_ASSERT_FAIL(text) __assertfail(text, __FILE__, __LINE__, __func__, 1)
#endif

#if HD_KERNEL_GPU && defined(__clang__)

/* The driver also provides this function. It takes the values in one block of memory, each promoted
 * as in C and aligned to its size. */
extern "C" __attribute__((device)) int vprintf(const char *format, const char *values);

template <typename T> struct hd_print_promoted {
    typedef decltype(+T()) type;
};
template <> struct hd_print_promoted<float> {
    typedef double type;
};
HD_DEVICE size_t hd_print_values(char *, size_t at)
{
    return at;
}
template <typename T, typename... More> HD_DEVICE size_t hd_print_values(char *values, size_t at, T first, More... more)
{
    typename hd_print_promoted<T>::type value = first;
    at = (at + sizeof value - 1) / sizeof value * sizeof value;
    __builtin_memcpy(values + at, &value, sizeof value);
    return hd_print_values(values, at + sizeof value, more...);
}
template <typename... Values> HD_DEVICE int hd_print(const char *format, Values... all)
{
    static_assert(sizeof...(all) <= 32, "hd_printf: more than 32 numbers and strings; write them in two calls");
    __attribute__((aligned(8))) char values[8 * sizeof...(all) + 8];
    hd_print_values(values, 0, all...);
    return vprintf(format, values);
}
#define hd_printf(...) hd_print(__VA_ARGS__)
#define printf(...) hd_print(__VA_ARGS__)

#elif defined(__CUDACC_RTC__)

#define hd_printf(...) printf(__VA_ARGS__)

#elif HD_KERNEL_GPU

#include <assert.h>
#include <stdio.h>
#define hd_printf(...) printf(__VA_ARGS__)
#define HD_ASSERT_FAIL(text) __assert_fail(text, __FILE__, __LINE__, __func__)

#elif !defined(__cplusplus)

#define hd_printf(...) (hd_self->services->print(hd_self, __VA_ARGS__))
#define HD_ASSERT_FAIL(text) (hd_self->services->failed(hd_self, text, __FILE__, __LINE__), __builtin_unreachable())
#ifdef HD_CPU_MODULE
#undef printf
#define printf(...) hd_printf(__VA_ARGS__)
#endif

#endif

#if HD_KERNEL_GPU || !defined(__cplusplus)
/* Both macros use the text of the condition. If one macro called the other one, this text would
 * contain expanded macros. */
#ifdef NDEBUG
#define hd_assert(condition) ((void)0)
#else
#define hd_assert(condition) ((condition) ? (void)0 : HD_ASSERT_FAIL(#condition))
#endif
#if (HD_KERNEL_GPU && defined(__clang__)) || defined(HD_CPU_MODULE)
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : HD_ASSERT_FAIL(#condition))
#endif
#endif
#endif

#endif
