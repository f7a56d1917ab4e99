/* math_sweep_kernels.c - the kernels of math_sweep.c: for heddle cc with libdevice or libclc, and
 * for nvcc.
 *
 * Kernels sweep_NAME find the largest distance between the float function and the rounded double
 * function, over a range of bit patterns. Kernels f32_NAME and f64_NAME call the function `repeats`
 * times for each element: memory bounds a single call, the processor bounds many.
 */
#include <heddle/kernel.h>
#include "tests/kernel/math/functions.h"

HD_DEVICE float float_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } either;
    either.bits = bits;
    return either.value;
}
HD_DEVICE int64_t place_of(float x)
{
    union {
        float value;
        int32_t bits;
    } either;
    either.value = x;
    return either.bits < 0 ? -(int64_t)(either.bits & 0x7fffffff) : either.bits;
}
/* `worst` contains the distance in the upper half, and the bits of the argument in the lower
 * half. */
HD_DEVICE void record(uint64_t *worst, float got, float expected, uint32_t bits)
{
    int64_t d = place_of(got) - place_of(expected);
    uint64_t distance = (uint64_t)(d < 0 ? -d : d);
    if (got != got || expected != expected) {
        distance = (got != got) == (expected != expected) ? 0 : 0xffffffffu;
    }
    distance = distance > 0xffffffffu ? 0xffffffffu : distance;
    uint64_t before = *(volatile uint64_t *)worst;
    while (distance > before >> 32) {
        uint64_t found = hd_atomic_cas_u64(worst, before, distance << 32 | bits);
        if (found == before) {
            return;
        }
        before = found;
    }
}

#define SWEEP(name)                                                                                                    \
    HD_KERNEL(sweep_##name, HD_INOUT(uint64_t, worst), HD_VALUE(uint64_t, from), HD_VALUE(uint64_t, count))            \
    {                                                                                                                  \
        for (uint64_t i = hd_global_x(); i < count; i += (uint64_t)hd_grid_dim_x() * hd_block_dim_x()) {               \
            float x = float_of((uint32_t)(from + i));                                                                  \
            record(worst, name##f(x), (float)name((double)x), (uint32_t)(from + i));                                   \
        }                                                                                                              \
    }
/* Only the function must count, not how a compiler unrolls the loop around it or counts its turns.
 * So the loop stays a loop, and an empty statement without instructions hides its count from both
 * compilers. Results are joined as bits, so that no compiler fuses a last product with a sum of
 * results. */
#ifdef __clang__
#define NOT_UNROLLED _Pragma("nounroll")
#else
#define NOT_UNROLLED _Pragma("unroll 1")
#endif
#define OPAQUE(count) __asm__ volatile("" : "+r"(count))
HD_DEVICE uint64_t bits_of_float(float x)
{
    union {
        float value;
        uint32_t bits;
    } either;
    either.value = x;
    return either.bits;
}
HD_DEVICE uint64_t bits_of_double(double x)
{
    union {
        double value;
        uint64_t bits;
    } either;
    either.value = x;
    return either.bits;
}
/* A thread handles one element, as in most kernels, and calls the function at least once. */
#define TIME(type, kernel, call)                                                                                       \
    HD_KERNEL(kernel, HD_IN(type, xs), HD_OUT(type, ys), HD_VALUE(uint64_t, count), HD_VALUE(uint32_t, repeats))       \
    {                                                                                                                  \
        uint64_t i = hd_global_x();                                                                                    \
        if (i < count) {                                                                                               \
            type x = xs[i];                                                                                            \
            uint64_t sum = 0;                                                                                          \
            uint32_t turn = 0;                                                                                         \
            NOT_UNROLLED                                                                                               \
            do {                                                                                                       \
                sum ^= bits_of_##type(call);                                                                           \
                x += (type)0.001;                                                                                      \
                turn++;                                                                                                \
                OPAQUE(turn);                                                                                          \
            } while (turn < repeats);                                                                                  \
            ys[i] = (type)sum;                                                                                         \
        }                                                                                                              \
    }
#define KERNELS_1(name, mpfr, bound_f32, bound_f64)                                                                    \
    SWEEP(name) TIME(float, f32_##name, name##f(x)) TIME(double, f64_##name, name(x))
#define KERNELS_2(name, mpfr, bound_f32, bound_f64)                                                                    \
    TIME(float, f32_##name, name##f(x, 1.5f)) TIME(double, f64_##name, name(x, 1.5))

MATH_1(KERNELS_1)
MATH_2(KERNELS_2)
