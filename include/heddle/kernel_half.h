/* kernel_half.h - kernel source: numbers of 16 bits, hd_f16 and hd_bf16. heddle/kernel.h includes
 * it.
 *
 * hd_f16 is IEEE binary16, with 11 bits of precision and numbers up to 65504. hd_bf16 is the upper
 * half of a float, with 8 bits of precision and a float's range. In a buffer, a number of either
 * type takes 2 bytes. T stands for f16 and bf16:
 *
 *     hd_T_from_f32(x), hd_T_from_f64(x), hd_T_from_i32(x)
 *     hd_T_to_f32(h), hd_T_to_f64(h)                      exact
 *     hd_T_to_i32(h)                                      rounds towards zero; returns INT32_MIN or
 *                                                         INT32_MAX if `h` does not fit, and 0 for
 *                                                         a NaN
 *     hd_T_add(a, b), _sub, _mul, _div, hd_T_fma(a, b, c) a * b + c, rounded once
 *     hd_T_neg(a), hd_T_abs(a)
 *     hd_T_min(a, b), hd_T_max(a, b)                      a number wins over a NaN; -0 is less than
 *                                                         +0
 *     hd_T_eq(a, b), _ne, _lt, _le, _gt, _ge              as the operators of C
 *     hd_T_isnan(a), hd_T_isinf(a)
 *     hd_f16x2_add(a, b), _sub, _mul, hd_f16x2_fma(a, b, c)
 *                                                         two numbers at once, with one instruction
 *                                                         of a GPU
 *
 * Every function rounds its result once, to the nearest number (ties to even), and does not replace
 * subnormal numbers by 0. Therefore GPUs and host devices return the same bits, except for the bits
 * of a NaN.
 */
#include <heddle/kernel.h> /* first: it includes this file, too */

#ifndef HEDDLE_KERNEL_HALF_H
#define HEDDLE_KERNEL_HALF_H

/* A number of 16 bits: IEEE binary16. */
typedef struct hd_f16 {
    uint16_t bits;
} hd_f16;

/* A number of 16 bits: the upper half of a float. */
typedef struct hd_bf16 {
    uint16_t bits;
} hd_bf16;

/* Two hd_f16 in 4 bytes. */
typedef struct __attribute__((aligned(4))) hd_f16x2 {
    hd_f16 x, y;
} hd_f16x2;

#if HD_KERNEL_GPU || !defined(__cplusplus)

/* ---- bits ---- */

HD_DEVICE float hd_half_f32_of(uint32_t bits)
{
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}
HD_DEVICE uint32_t hd_half_bits_of(float f)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Returns a float that the caller can round once more, to fewer bits. If no float is exact, the
 * result is the neighbouring float with an odd last bit. */
HD_DEVICE float hd_half_odd_of_f64(double x)
{
    float f = (float)x;
    uint32_t bits = hd_half_bits_of(f);
    double back = (double)f;
    if (back == x || x != x || (bits & 1) != 0) {
        return f;
    }
    return hd_half_f32_of(__builtin_fabs(back) < __builtin_fabs(x) ? bits + 1 : bits - 1);
}
HD_DEVICE float hd_half_odd_of_i32(int32_t x)
{
    uint32_t size = x < 0 ? 0 - (uint32_t)x : (uint32_t)x;
    /* Merges the last 8 bits into the bit above them, so that the float is exact. */
    if (size >= (uint32_t)1 << 24) {
        size = (size & ~(uint32_t)0xff) | ((size & 0xff) != 0 ? 0x100 : 0);
    }
    return x < 0 ? -(float)size : (float)size;
}
HD_DEVICE int32_t hd_half_i32_of(float x)
{
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t)x;
}
/* Maps numbers of both types to integers in the same order, -0 before +0. */
HD_DEVICE int hd_half_key(uint16_t bits)
{
    return (bits & 0x8000) != 0 ? -1 - (bits & 0x7fff) : bits;
}

/* ---- bf16 ---- */

HD_DEVICE float hd_bf16_to_f32(hd_bf16 h)
{
    return hd_half_f32_of((uint32_t)h.bits << 16);
}
HD_DEVICE hd_bf16 hd_bf16_from_f32(float f)
{
    uint32_t bits = hd_half_bits_of(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40;
    hd_bf16 h = {(uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded)};
    return h;
}

/* ---- f16 ---- */

#if HD_KERNEL_GPU

HD_DEVICE float hd_f16_to_f32(hd_f16 h)
{
    float f;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
    return f;
}
HD_DEVICE hd_f16 hd_f16_from_f32(float f)
{
    hd_f16 h;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}
#define HD_HALF_2(name, instruction)                                                                                   \
    HD_DEVICE hd_f16 hd_f16_##name(hd_f16 a, hd_f16 b)                                                                 \
    {                                                                                                                  \
        hd_f16 h;                                                                                                      \
        __asm__(instruction ".f16 %0, %1, %2;" : "=h"(h.bits) : "h"(a.bits), "h"(b.bits));                             \
        return h;                                                                                                      \
    }                                                                                                                  \
    HD_DEVICE hd_f16x2 hd_f16x2_##name(hd_f16x2 a, hd_f16x2 b)                                                         \
    {                                                                                                                  \
        uint32_t x, y, z;                                                                                              \
        __builtin_memcpy(&x, &a, sizeof x);                                                                            \
        __builtin_memcpy(&y, &b, sizeof y);                                                                            \
        __asm__(instruction ".f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));                                          \
        __builtin_memcpy(&a, &z, sizeof a);                                                                            \
        return a;                                                                                                      \
    }
/* With ".rn" the assembler fuses no product with a sum. */
HD_HALF_2(add, "add.rn")
HD_HALF_2(sub, "sub.rn")
HD_HALF_2(mul, "mul.rn")
#undef HD_HALF_2
HD_DEVICE hd_f16 hd_f16_fma(hd_f16 a, hd_f16 b, hd_f16 c)
{
    hd_f16 h;
    __asm__("fma.rn.f16 %0, %1, %2, %3;" : "=h"(h.bits) : "h"(a.bits), "h"(b.bits), "h"(c.bits));
    return h;
}
HD_DEVICE hd_f16x2 hd_f16x2_fma(hd_f16x2 a, hd_f16x2 b, hd_f16x2 c)
{
    uint32_t x, y, z;
    __builtin_memcpy(&x, &a, sizeof x);
    __builtin_memcpy(&y, &b, sizeof y);
    __builtin_memcpy(&z, &c, sizeof z);
    __asm__("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(x), "r"(y), "r"(z));
    __builtin_memcpy(&a, &x, sizeof a);
    return a;
}
/* Returns a * b + c as a float that the caller can round once more. If the sum is no float,
 * rounding down and rounding up give different floats. */
HD_DEVICE float hd_half_odd_fma(float a, float b, float c)
{
    float low, high, zero, near;
    __asm__("fma.rn.f32 %0, %1, %2, %3;" : "=f"(near) : "f"(a), "f"(b), "f"(c));
    __asm__("fma.rm.f32 %0, %1, %2, %3;" : "=f"(low) : "f"(a), "f"(b), "f"(c));
    __asm__("fma.rp.f32 %0, %1, %2, %3;" : "=f"(high) : "f"(a), "f"(b), "f"(c));
    __asm__("fma.rz.f32 %0, %1, %2, %3;" : "=f"(zero) : "f"(a), "f"(b), "f"(c));
    return low < high ? hd_half_f32_of(hd_half_bits_of(zero) | 1) : near;
}
HD_DEVICE float hd_half_quotient(float a, float b)
{
    float q;
    __asm__("div.rn.f32 %0, %1, %2;" : "=f"(q) : "f"(a), "f"(b));
    return q;
}
#define HD_HALF_F32_2(name, instruction)                                                                               \
    HD_DEVICE float hd_half_##name(float a, float b)                                                                   \
    {                                                                                                                  \
        float f;                                                                                                       \
        __asm__(instruction ".rn.f32 %0, %1, %2;" : "=f"(f) : "f"(a), "f"(b));                                         \
        return f;                                                                                                      \
    }
HD_HALF_F32_2(sum, "add")
HD_HALF_F32_2(difference, "sub")
HD_HALF_F32_2(product, "mul")
#undef HD_HALF_F32_2

#else

HD_DEVICE float hd_f16_to_f32(hd_f16 h)
{
    uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, fraction = h.bits & 0x3ff;
    float tiny =
        /* A subnormal f16 is a normal float here, so that flushing of subnormal floats does not
         * matter. */
        (float)fraction * 0x1p-24f;
    uint32_t normal = (exponent + 112) << 23 | fraction << 13;
    uint32_t special = 0x7f800000 | fraction << 13;
    uint32_t bits = exponent == 0 ? hd_half_bits_of(tiny) : exponent == 31 ? special : normal;
    return hd_half_f32_of(sign | bits);
}
HD_DEVICE uint16_t hd_half_f16_bits(float f)
{
    uint32_t bits = hd_half_bits_of(f), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x47800000) { /* 65536 and more, infinite, or not a number */
        return (uint16_t)(sign | (size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00));
    }
    if (size < 0x38800000) {     /* below 2^-14: subnormal */
        if (size < 0x33000000) { /* below half of the smallest subnormal number */
            return (uint16_t)sign;
        }
        uint32_t shift = 126 - (size >> 23), fraction = (size & 0x7fffff) | 0x800000;
        uint32_t half = (uint32_t)1 << (shift - 1), kept = fraction >> shift, rest = fraction & (2 * half - 1);
        return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
    }
    uint32_t rounded = size - 0x38000000 + 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}
HD_DEVICE hd_f16 hd_f16_from_f32(float f)
{
    hd_f16 h = {hd_half_f16_bits(f)};
    return h;
}
HD_DEVICE float hd_half_sum(float a, float b)
{
    return a + b;
}
HD_DEVICE float hd_half_difference(float a, float b)
{
    return a - b;
}
HD_DEVICE float hd_half_product(float a, float b)
{
    return a * b;
}
HD_DEVICE float hd_half_quotient(float a, float b)
{
    return a / b;
}
/* Returns a * b + c as a float that the caller can round once more. The product is exact as a
 * double; `rest` is the part that the rounded sum lacks. Therefore the result is the same if the
 * compiler fuses the product with the sum. */
HD_DEVICE float hd_half_odd_fma(float a, float b, float c)
{
    double wide = (double)c, p = (double)a * (double)b, s = p + wide, other = s - p;
    double rest = (p - (s - other)) + (wide - other);
    uint64_t bits;
    if (s - s == 0 && rest != 0) {
        __builtin_memcpy(&bits, &s, sizeof bits);
        if ((bits & 1) == 0) {
            bits = (rest > 0) == (s > 0) ? bits + 1 : bits - 1;
        }
        __builtin_memcpy(&s, &bits, sizeof s);
    }
    return hd_half_odd_of_f64(s);
}
/* A float has more than twice as many bits of precision as these types. So the final result does
 * not change if a sum or a product is first rounded to a float. */
HD_DEVICE hd_f16 hd_f16_add(hd_f16 a, hd_f16 b)
{
    return hd_f16_from_f32(hd_half_sum(hd_f16_to_f32(a), hd_f16_to_f32(b)));
}
HD_DEVICE hd_f16 hd_f16_sub(hd_f16 a, hd_f16 b)
{
    return hd_f16_from_f32(hd_half_difference(hd_f16_to_f32(a), hd_f16_to_f32(b)));
}
HD_DEVICE hd_f16 hd_f16_mul(hd_f16 a, hd_f16 b)
{
    return hd_f16_from_f32(hd_half_product(hd_f16_to_f32(a), hd_f16_to_f32(b)));
}
HD_DEVICE hd_f16 hd_f16_fma(hd_f16 a, hd_f16 b, hd_f16 c)
{
    return hd_f16_from_f32(hd_half_odd_fma(hd_f16_to_f32(a), hd_f16_to_f32(b), hd_f16_to_f32(c)));
}
#define HD_HALF_2(name)                                                                                                \
    HD_DEVICE hd_f16x2 hd_f16x2_##name(hd_f16x2 a, hd_f16x2 b)                                                         \
    {                                                                                                                  \
        hd_f16x2 h = {hd_f16_##name(a.x, b.x), hd_f16_##name(a.y, b.y)};                                               \
        return h;                                                                                                      \
    }
HD_HALF_2(add)
HD_HALF_2(sub)
HD_HALF_2(mul)
#undef HD_HALF_2
HD_DEVICE hd_f16x2 hd_f16x2_fma(hd_f16x2 a, hd_f16x2 b, hd_f16x2 c)
{
    hd_f16x2 h = {hd_f16_fma(a.x, b.x, c.x), hd_f16_fma(a.y, b.y, c.y)};
    return h;
}

#endif

/* ---- GPU and CPU: the same for both types ---- */

#define HD_HALF_BOTH(T, infinity)                                                                                      \
    HD_DEVICE hd_##T hd_##T##_from_f64(double x)                                                                       \
    {                                                                                                                  \
        return hd_##T##_from_f32(hd_half_odd_of_f64(x));                                                               \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_from_i32(int32_t x)                                                                      \
    {                                                                                                                  \
        return hd_##T##_from_f32(hd_half_odd_of_i32(x));                                                               \
    }                                                                                                                  \
    HD_DEVICE double hd_##T##_to_f64(hd_##T h)                                                                         \
    {                                                                                                                  \
        return (double)hd_##T##_to_f32(h);                                                                             \
    }                                                                                                                  \
    HD_DEVICE int32_t hd_##T##_to_i32(hd_##T h)                                                                        \
    {                                                                                                                  \
        return hd_half_i32_of(hd_##T##_to_f32(h));                                                                     \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_div(hd_##T a, hd_##T b)                                                                  \
    {                                                                                                                  \
        return hd_##T##_from_f32(hd_half_quotient(hd_##T##_to_f32(a), hd_##T##_to_f32(b)));                            \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_neg(hd_##T a)                                                                            \
    {                                                                                                                  \
        a.bits ^= 0x8000;                                                                                              \
        return a;                                                                                                      \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_abs(hd_##T a)                                                                            \
    {                                                                                                                  \
        a.bits &= 0x7fff;                                                                                              \
        return a;                                                                                                      \
    }                                                                                                                  \
    HD_DEVICE int hd_##T##_isnan(hd_##T a)                                                                             \
    {                                                                                                                  \
        return (a.bits & 0x7fff) > (infinity);                                                                         \
    }                                                                                                                  \
    HD_DEVICE int hd_##T##_isinf(hd_##T a)                                                                             \
    {                                                                                                                  \
        return (a.bits & 0x7fff) == (infinity);                                                                        \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_min(hd_##T a, hd_##T b)                                                                  \
    {                                                                                                                  \
        return hd_##T##_isnan(a) || (!hd_##T##_isnan(b) && hd_half_key(b.bits) < hd_half_key(a.bits)) ? b : a;         \
    }                                                                                                                  \
    HD_DEVICE hd_##T hd_##T##_max(hd_##T a, hd_##T b)                                                                  \
    {                                                                                                                  \
        return hd_##T##_isnan(a) || (!hd_##T##_isnan(b) && hd_half_key(b.bits) > hd_half_key(a.bits)) ? b : a;         \
    }
#define HD_HALF_COMPARE(T, name, sign)                                                                                 \
    HD_DEVICE int hd_##T##_##name(hd_##T a, hd_##T b)                                                                  \
    {                                                                                                                  \
        return hd_##T##_to_f32(a) sign hd_##T##_to_f32(b);                                                             \
    }
HD_HALF_BOTH(f16, 0x7c00)
HD_HALF_BOTH(bf16, 0x7f80)
HD_HALF_COMPARE(f16, eq, ==)
HD_HALF_COMPARE(f16, ne, !=)
HD_HALF_COMPARE(f16, lt, <)
HD_HALF_COMPARE(f16, le, <=)
HD_HALF_COMPARE(f16, gt, >)
HD_HALF_COMPARE(f16, ge, >=)
HD_HALF_COMPARE(bf16, eq, ==)
HD_HALF_COMPARE(bf16, ne, !=)
HD_HALF_COMPARE(bf16, lt, <)
HD_HALF_COMPARE(bf16, le, <=)
HD_HALF_COMPARE(bf16, gt, >)
HD_HALF_COMPARE(bf16, ge, >=)
#undef HD_HALF_BOTH
#undef HD_HALF_COMPARE

/* GPUs support arithmetic of bf16 only from sm_90 on, and fma from sm_80 on. These functions use
 * floats instead, with the same results. */
HD_DEVICE hd_bf16 hd_bf16_add(hd_bf16 a, hd_bf16 b)
{
    return hd_bf16_from_f32(hd_half_sum(hd_bf16_to_f32(a), hd_bf16_to_f32(b)));
}
HD_DEVICE hd_bf16 hd_bf16_sub(hd_bf16 a, hd_bf16 b)
{
    return hd_bf16_from_f32(hd_half_difference(hd_bf16_to_f32(a), hd_bf16_to_f32(b)));
}
HD_DEVICE hd_bf16 hd_bf16_mul(hd_bf16 a, hd_bf16 b)
{
    return hd_bf16_from_f32(hd_half_product(hd_bf16_to_f32(a), hd_bf16_to_f32(b)));
}
HD_DEVICE hd_bf16 hd_bf16_fma(hd_bf16 a, hd_bf16 b, hd_bf16 c)
{
    return hd_bf16_from_f32(hd_half_odd_fma(hd_bf16_to_f32(a), hd_bf16_to_f32(b), hd_bf16_to_f32(c)));
}

#endif

#endif
