/* half.h - numbers of 16 bits in kernels: f16 and bf16 to and from f32, rounded to the nearest, ties to even. Any thread; no locks. */
#ifndef HDI_KERNEL_BUILTIN_HALF_H
#define HDI_KERNEL_BUILTIN_HALF_H

#include <heddle/kernel.h>

HD_DEVICE float hdk_float_of_bits(uint32_t bits)
{
    float f;
    __builtin_memcpy(&f, &bits, 4);
    return f;
}

HD_DEVICE uint32_t hdk_bits_of_float(float f)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &f, 4);
    return bits;
}

HD_DEVICE float hdk_float_of_bf16(uint16_t h)
{
    return hdk_float_of_bits((uint32_t)h << 16);
}

HD_DEVICE uint16_t hdk_bf16_of_float(float f)
{
    uint32_t bits = hdk_bits_of_float(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

#if HD_KERNEL_GPU

HD_DEVICE float hdk_float_of_f16(uint16_t h)
{
    float f;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

HD_DEVICE uint16_t hdk_f16_of_float(float f)
{
    uint16_t h;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

#else

HD_DEVICE float hdk_float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    float tiny =
        (float)fraction * 0x1p-24f; /* of a number without a leading one: no flushing of such floats gets in the way */
    uint32_t normal = (exponent + 112) << 23 | fraction << 13;
    uint32_t special = 0x7f800000 | fraction << 13;
    uint32_t bits = exponent == 0 ? hdk_bits_of_float(tiny) : exponent == 31 ? special : normal;
    return hdk_float_of_bits(sign | bits);
}

HD_DEVICE uint16_t hdk_f16_of_float(float f)
{
    uint32_t bits = hdk_bits_of_float(f), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x47800000) { /* 65536 and more, infinite, or no number */
        return (uint16_t)(sign | (size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00));
    }
    if (size < 0x38800000) {     /* below 2^-14: without a leading one */
        if (size < 0x33000000) { /* below half of the least */
            return (uint16_t)sign;
        }
        uint32_t shift = 126 - (size >> 23), fraction = (size & 0x7fffff) | 0x800000;
        uint32_t half = (uint32_t)1 << (shift - 1), kept = fraction >> shift, rest = fraction & (2 * half - 1);
        return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
    }
    uint32_t rounded = size - 0x38000000 + 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

#endif
#endif
