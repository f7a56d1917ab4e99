/* kernel_bits.h - kernel source: the bits of numbers. heddle/kernel.h includes it.
 *
 * T is u32 or u64, and W is f32 or f64:
 *
 *     hd_bits_count_T(x)                  how many bits are 1
 *     hd_bits_leading_T(x)                how many bits above the highest 1 are 0; all if x is 0
 *     hd_bits_trailing_T(x)               how many bits below the lowest 1 are 0; all if x is 0
 *     hd_bits_reverse_T(x)                the bits in the opposite order
 *     hd_bits_from_W(x), hd_bits_to_W(bits)
 *                                         the bits of a floating-point number, and the number with
 *                                         these bits
 *
 * On a GPU, each of these functions takes one or two instructions.
 */
#include <heddle/kernel.h> /* first: it includes this file, too */

#ifndef HEDDLE_KERNEL_BITS_H
#define HEDDLE_KERNEL_BITS_H

#if HD_KERNEL_GPU

/* ---- GPU: clang or nvcc ---- */

#define HD_BITS_1(name, result, type, instruction, out, in)                                                            \
    HD_DEVICE result hd_bits_##name(type x)                                                                            \
    {                                                                                                                  \
        result y;                                                                                                      \
        __asm__(instruction " %0, %1;" : out(y) : in(x));                                                              \
        return y;                                                                                                      \
    }
HD_BITS_1(count_u32, uint32_t, uint32_t, "popc.b32", "=r", "r")
HD_BITS_1(count_u64, uint32_t, uint64_t, "popc.b64", "=r", "l")
HD_BITS_1(leading_u32, uint32_t, uint32_t, "clz.b32", "=r", "r")
HD_BITS_1(leading_u64, uint32_t, uint64_t, "clz.b64", "=r", "l")
HD_BITS_1(reverse_u32, uint32_t, uint32_t, "brev.b32", "=r", "r")
HD_BITS_1(reverse_u64, uint64_t, uint64_t, "brev.b64", "=l", "l")
#undef HD_BITS_1

HD_DEVICE uint32_t hd_bits_trailing_u32(uint32_t x)
{
    return hd_bits_leading_u32(hd_bits_reverse_u32(x));
}
HD_DEVICE uint32_t hd_bits_trailing_u64(uint64_t x)
{
    return hd_bits_leading_u64(hd_bits_reverse_u64(x));
}

#elif !defined(__cplusplus)

/* ---- CPU: gcc or clang ---- */

HD_DEVICE uint32_t hd_bits_count_u32(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}
HD_DEVICE uint32_t hd_bits_count_u64(uint64_t x)
{
    return (uint32_t)__builtin_popcountll(x);
}
HD_DEVICE uint32_t hd_bits_leading_u32(uint32_t x)
{
    return x == 0 ? 32 : (uint32_t)__builtin_clz(x);
}
HD_DEVICE uint32_t hd_bits_leading_u64(uint64_t x)
{
    return x == 0 ? 64 : (uint32_t)__builtin_clzll(x);
}
HD_DEVICE uint32_t hd_bits_trailing_u32(uint32_t x)
{
    return x == 0 ? 32 : (uint32_t)__builtin_ctz(x);
}
HD_DEVICE uint32_t hd_bits_trailing_u64(uint64_t x)
{
    return x == 0 ? 64 : (uint32_t)__builtin_ctzll(x);
}
/* Swaps neighbours: bits, then groups of two and of four, and then bytes. */
HD_DEVICE uint32_t hd_bits_reverse_u32(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
HD_DEVICE uint64_t hd_bits_reverse_u64(uint64_t x)
{
    return (uint64_t)hd_bits_reverse_u32((uint32_t)x) << 32 | hd_bits_reverse_u32((uint32_t)(x >> 32));
}

#endif

#if HD_KERNEL_GPU || !defined(__cplusplus)

/* ---- both ---- */

HD_DEVICE uint32_t hd_bits_from_f32(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
HD_DEVICE uint64_t hd_bits_from_f64(double x)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
HD_DEVICE float hd_bits_to_f32(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
HD_DEVICE double hd_bits_to_f64(uint64_t bits)
{
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

#endif

#endif
