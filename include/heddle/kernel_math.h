/* heddle/kernel_math.h - the functions of C's <math.h> for kernel source. heddle/kernel.h includes
 * this header.
 *
 * The functions are those of <math.h>, as NAME for double and NAMEf for float, for GPUs and for the
 * CPU:
 *     sqrt cbrt hypot pow exp exp2 expm1 log log2 log10 log1p, sin cos tan asin acos atan atan2,
 *     sinh cosh tanh asinh acosh atanh, erf erfc tgamma lgamma,
 *     fabs fma fmin fmax fdim fmod remainder remquo copysign,
 *     floor ceil trunc round rint nearbyint lrint llrint lround llround,
 *     frexp ldexp scalbn scalbln ilogb logb modf nextafter
 *
 * The header also defines the macros of <math.h> (INFINITY, NAN, isnan, signbit and the like), M_PI
 * and the other constants. It adds these functions of CUDA:
 *     rsqrt exp10 sinpi cospi, and sincos(x, &sin, &cos)
 *
 * Functions whose names begin with hd_fast_ are for float. On GPUs most of them use approximate
 * instructions, which are faster and less exact. On the CPU they are the functions of the C
 * library.
 *
 * On GPUs, square root, division, fma, and rounding to whole numbers use instructions of the GPU,
 * and their results are correctly rounded. Most other functions come from LLVM bitcode that `heddle
 * cc` adds: libdevice of a CUDA toolkit, or libclc. nvcc contains its own versions of these
 * functions. On the CPU, most functions come from libm. If this header itself defines the algorithm
 * of a function, a comment describes the algorithm or names its source. DLMF is NIST's Digital
 * Library of Mathematical Functions.
 *
 * The errors of all functions except hd_fast_ are within the bounds of the chapter "Mathematical
 * Functions" of the CUDA C++ Programming Guide. The exceptions are some functions for double of
 * glibc 2.36, on the CPU (docs/kernels.md). tests/kernel/math/functions.h lists the bounds.
 * docs/benchmarks.md lists the measured errors.
 *
 * `heddle cc` defines HD_MATH_LIBDEVICE or HD_MATH_LIBCLC, by the library that it adds. If neither
 * macro is defined, the code calls external functions whose symbols begin with hd_math_.
 */
#ifndef HEDDLE_KERNEL_MATH_H
#define HEDDLE_KERNEL_MATH_H

#include <heddle/kernel.h>

#if HD_KERNEL_GPU && defined(__clang__)

/* ---- GPU: names of the library ---- */

/* `mangled` is the libclc symbol without its parameter types: libclc mangles names as C++ does. */
#ifdef HD_MATH_LIBDEVICE
#define HD_MATH_SYMBOL(name, mangled, types) "__nv_" name
#elif defined(HD_MATH_LIBCLC)
#define HD_MATH_SYMBOL(name, mangled, types) mangled types
#else
#define HD_MATH_SYMBOL(name, mangled, types) "hd_math_" name
#endif
#define HD_MATH_EXTERN(result, function, symbol, ...)                                                                  \
    extern "C" __attribute__((device)) result function(__VA_ARGS__) __asm__(symbol);

#define HD_MATH_1(name, mangled)                                                                                       \
    HD_MATH_EXTERN(double, hd_math_##name, HD_MATH_SYMBOL(#name, mangled, "d"), double)                                \
    HD_MATH_EXTERN(float, hd_math_##name##f, HD_MATH_SYMBOL(#name "f", mangled, "f"), float)
#define HD_MATH_2(name, mangled)                                                                                       \
    HD_MATH_EXTERN(double, hd_math_##name, HD_MATH_SYMBOL(#name, mangled, "dd"), double, double)                       \
    HD_MATH_EXTERN(float, hd_math_##name##f, HD_MATH_SYMBOL(#name "f", mangled, "ff"), float, float)

/* The wrappers around the library's functions are always inlined, as in nvcc. */
#define HD_MATH_HERE HD_DEVICE __attribute__((always_inline))
#define HD_MATH_F64_1(name)                                                                                            \
    HD_MATH_HERE double name(double x)                                                                                 \
    {                                                                                                                  \
        return hd_math_##name(x);                                                                                      \
    }
#define HD_MATH_F32_1(name)                                                                                            \
    HD_MATH_HERE float name##f(float x)                                                                                \
    {                                                                                                                  \
        return hd_math_##name##f(x);                                                                                   \
    }
/* Some float functions of libclc miss CUDA's bound: they lose subnormal results, or their error is
 * larger. In their place, this header uses the libclc functions for double and rounds the
 * result. */
#ifdef HD_MATH_LIBCLC
#define HD_MATH_F32_WIDE_1(name)                                                                                       \
    HD_DEVICE float name##f(float x)                                                                                   \
    {                                                                                                                  \
        return (float)name((double)x);                                                                                 \
    }
#else
#define HD_MATH_F32_WIDE_1(name) HD_MATH_F32_1(name)
#endif

/* C functions that come from the library, for double and float. */
#define HD_MATH_IS_1(name, mangled) HD_MATH_1(name, mangled) HD_MATH_F64_1(name) HD_MATH_F32_1(name)
#define HD_MATH_IS_WIDE_1(name, mangled) HD_MATH_1(name, mangled) HD_MATH_F64_1(name) HD_MATH_F32_WIDE_1(name)
#define HD_MATH_IS_2(name, mangled)                                                                                    \
    HD_MATH_2(name, mangled)                                                                                           \
    HD_MATH_HERE double name(double x, double y)                                                                       \
    {                                                                                                                  \
        return hd_math_##name(x, y);                                                                                   \
    }                                                                                                                  \
    HD_MATH_HERE float name##f(float x, float y)                                                                       \
    {                                                                                                                  \
        return hd_math_##name##f(x, y);                                                                                \
    }

HD_MATH_IS_1(expm1, "_Z5expm1")
HD_MATH_1(exp, "_Z3exp")
HD_MATH_1(exp2, "_Z4exp2")
HD_MATH_F64_1(exp)
HD_MATH_F64_1(exp2)
#ifdef HD_MATH_LIBCLC
/* The libclc functions return no subnormal results, and take many instructions. One instruction of
 * the GPU returns subnormal results, too, within 2 ULP, which is the bound of expf and exp2f. The
 * reduction is that of Cody and Waite (Software Manual for the Elementary Functions, 1980): a
 * constant in two parts. If the power of 2 is no normal number, `sum` is clamped, and the rest of
 * the exponent goes to the instruction. */
HD_DEVICE float exp2f(float x)
{
    return __nvvm_ex2_approx_f(x);
}
HD_DEVICE float expf(float x)
{
    /* adding this rounds to a whole number, which is then in the low bits of the sum */
    const float last = 0x1.8p23f;
    float sum = __nvvm_fma_rn_f(x, 1.44269504f, last);
    sum = __builtin_fminf(__builtin_fmaxf(sum, last - 126), last + 127);
    float rest = __nvvm_fma_rn_f(x, 0x1.4ae0cp-26f, __nvvm_fma_rn_f(x, 0x1.715476p+0f, last - sum));
    unsigned power = ((unsigned)__nvvm_bitcast_f2i(sum) << 23) + (127u << 23);
    return __nvvm_ex2_approx_ftz_f(rest) * __nvvm_bitcast_i2f((int)power);
}
#else
HD_MATH_F32_1(exp)
HD_MATH_F32_1(exp2)
#endif
HD_MATH_IS_1(exp10, "_Z5exp10")
HD_MATH_IS_1(log, "_Z3log")
HD_MATH_IS_1(log2, "_Z4log2")
HD_MATH_IS_1(log10, "_Z5log10")
HD_MATH_IS_1(log1p, "_Z5log1p")
HD_MATH_IS_1(cbrt, "_Z4cbrt")
HD_MATH_IS_1(sin, "_Z3sin")
HD_MATH_IS_1(cos, "_Z3cos")
HD_MATH_IS_1(tan, "_Z3tan")
HD_MATH_IS_WIDE_1(sinpi, "_Z5sinpi")
HD_MATH_IS_WIDE_1(cospi, "_Z5cospi")
HD_MATH_IS_1(asin, "_Z4asin")
HD_MATH_IS_1(acos, "_Z4acos")
HD_MATH_IS_1(atan, "_Z4atan")
HD_MATH_IS_1(sinh, "_Z4sinh")
HD_MATH_IS_1(cosh, "_Z4cosh")
HD_MATH_IS_1(tanh, "_Z4tanh")
HD_MATH_IS_1(asinh, "_Z5asinh")
HD_MATH_IS_1(acosh, "_Z5acosh")
HD_MATH_IS_1(atanh, "_Z5atanh")
HD_MATH_IS_1(erf, "_Z3erf")
HD_MATH_IS_WIDE_1(erfc, "_Z4erfc")
HD_MATH_IS_1(logb, "_Z4logb")
HD_MATH_IS_2(pow, "_Z3pow")
HD_MATH_IS_2(atan2, "_Z5atan2")
HD_MATH_IS_2(hypot, "_Z5hypot")
HD_MATH_IS_2(nextafter, "_Z9nextafter")

HD_MATH_EXTERN(double, hd_math_frexp, HD_MATH_SYMBOL("frexp", "_Z5frexp", "dPi"), double, int *)
HD_MATH_EXTERN(float, hd_math_frexpf, HD_MATH_SYMBOL("frexpf", "_Z5frexp", "fPi"), float, int *)
HD_MATH_EXTERN(int, hd_math_ilogb, HD_MATH_SYMBOL("ilogb", "_Z5ilogb", "d"), double)
HD_MATH_EXTERN(int, hd_math_ilogbf, HD_MATH_SYMBOL("ilogbf", "_Z5ilogb", "f"), float)
HD_MATH_EXTERN(double, hd_math_modf, HD_MATH_SYMBOL("modf", "_Z4modf", "dPd"), double, double *)
HD_MATH_EXTERN(float, hd_math_modff, HD_MATH_SYMBOL("modff", "_Z4modf", "fPf"), float, float *)
HD_MATH_EXTERN(double, hd_math_remquo, HD_MATH_SYMBOL("remquo", "_Z6remquo", "ddPi"), double, double, int *)
HD_MATH_EXTERN(float, hd_math_remquof, HD_MATH_SYMBOL("remquof", "_Z6remquo", "ffPi"), float, float, int *)

#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN (-2147483647 - 1)

HD_DEVICE double frexp(double x, int *exponent)
{
    return hd_math_frexp(x, exponent);
}
HD_DEVICE float frexpf(float x, int *exponent)
{
    return hd_math_frexpf(x, exponent);
}
#ifdef HD_MATH_LIBCLC
/* The libclc function returns infinities for NANs, and zeros for some subnormal numbers. This
 * function multiplies by powers of 2. All products but the last are exact, or the result is 0 or
 * infinity. */
HD_DEVICE double ldexp(double x, int exponent)
{
    for (int i = 0; i < 3 && exponent > 1023; i++) {
        x *= 0x1p1023;
        exponent -= 1023;
    }
    for (int i = 0; i < 3 && exponent < -1022; i++) {
        /* keeps the number normal with all 53 bits, so only the last product rounds */
        x *= 0x1p-969;
        exponent += 969;
    }
    exponent = exponent > 1023 ? 1023 : exponent < -1022 ? -1022 : exponent;
    return x * __nvvm_lohi_i2d(0, (1023 + exponent) << 20);
}
HD_DEVICE float ldexpf(float x, int exponent)
{
    return (float)ldexp((double)x, exponent > 400 ? 400 : exponent < -400 ? -400 : exponent);
}
#else
HD_MATH_EXTERN(double, hd_math_ldexp, HD_MATH_SYMBOL("ldexp", "", ""), double, int)
HD_MATH_EXTERN(float, hd_math_ldexpf, HD_MATH_SYMBOL("ldexpf", "", ""), float, int)
HD_DEVICE double ldexp(double x, int exponent)
{
    return hd_math_ldexp(x, exponent);
}
HD_DEVICE float ldexpf(float x, int exponent)
{
    return hd_math_ldexpf(x, exponent);
}
#endif
HD_DEVICE double scalbn(double x, int exponent)
{
    return ldexp(x, exponent);
}
HD_DEVICE float scalbnf(float x, int exponent)
{
    return ldexpf(x, exponent);
}
/* An exponent past +-5000 turns every number into an infinity or a zero. */
HD_DEVICE double scalbln(double x, long exponent)
{
    return ldexp(x, (int)(exponent > 5000 ? 5000 : exponent < -5000 ? -5000 : exponent));
}
HD_DEVICE float scalblnf(float x, long exponent)
{
    return ldexpf(x, (int)(exponent > 5000 ? 5000 : exponent < -5000 ? -5000 : exponent));
}
HD_DEVICE int ilogb(double x)
{
    return x != x ? FP_ILOGBNAN : hd_math_ilogb(x);
}
HD_DEVICE int ilogbf(float x)
{
    return x != x ? FP_ILOGBNAN : hd_math_ilogbf(x);
}
HD_DEVICE double modf(double x, double *whole)
{
    return hd_math_modf(x, whole);
}
HD_DEVICE float modff(float x, float *whole)
{
    return hd_math_modff(x, whole);
}
#ifdef HD_MATH_LIBCLC
HD_MATH_1(tgamma, "_Z6tgamma")
HD_MATH_1(lgamma, "_Z6lgamma")
HD_MATH_2(fmod, "_Z4fmod")
HD_MATH_2(remainder, "_Z9remainder")

/* The gamma function of x >= 16 by Stirling's series (DLMF 5.11.1), as two factors: each is in
 * range even if their product is not. */
HD_DEVICE double hd_math_stirling(double x, double *other)
{
    double y = 1 / x, z = y * y;
    double series =
        y *
        (1.0 / 12 +
         z * (-1.0 / 360 + z * (1.0 / 1260 + z * (-1.0 / 1680 + z * (1.0 / 1188 + z * (-691.0 / 360360 + z / 156))))));
    double half = pow(x, 0.5 * x - 0.25); /* the exponent is exact */
    *other = half * 2.50662827463100050242;
    return half * exp(-x) * (1 + expm1(series));
}
/* The libclc function is exp(lgamma(x)), which is thousands of ULP off for large x, but accurate
 * from 1 to 3. Elsewhere this function uses the recurrence (DLMF 5.5.1), the series or the
 * reflection (DLMF 5.5.3). */
HD_DEVICE double tgamma(double x)
{
    double t = __builtin_fabs(x), a, b = 1;
    if (x < 0 && x == __builtin_floor(x)) {
        return __builtin_nan("");
    }
    if (!(t < 190)) {
        return x > 0 ? __builtin_inf() : 0 * sinpi(x);
    }
    if (t < 1e-300) {
        return 1 / x;
    }
    if (t >= 16) {
        a = hd_math_stirling(t, &b);
    } else {
        double from = t, product = 1;
        while (from >= 3) {
            from -= 1; /* exact */
            product *= from;
        }
        a = from >= 1 ? product * hd_math_tgamma(from) : hd_math_tgamma(1 + from) / from;
    }
    return x > 0 ? a * b : 3.14159265358979323846 / sinpi(x) / (t * a) / b;
}
/* The libclc function returns -infinity for -infinity. */
HD_DEVICE double lgamma(double x)
{
    return __builtin_isinf(x) ? __builtin_inf() : hd_math_lgamma(x);
}
/* An intermediate step of the libclc functions overflows if x is near the largest number. For such
 * an x, this function reduces half of x first. All further steps are exact. */
HD_DEVICE double fmod(double x, double y)
{
    if (!(__builtin_fabs(x) > 0x1p1022) || __builtin_isinf(x)) {
        return hd_math_fmod(x, y);
    }
    double rest = 2 * hd_math_fmod(x / 2, y);
    return __builtin_fabs(rest) < __builtin_fabs(y) || y != y
               ? rest
               : __builtin_copysign(__builtin_fabs(rest) - __builtin_fabs(y), x);
}
HD_DEVICE double remquo(double x, double y, int *quotient)
{
    if (__builtin_fabs(x) > 0x1p1000 && !__builtin_isinf(x)) {
        if (__builtin_fabs(y) < 0x1p1000) {
            /* this keeps the quotient's last three bits */
            return hd_math_remquo(fmod(x, 8 * y), y, quotient);
        }
        return hd_math_remquo(x * 0x1p-60, y * 0x1p-60, quotient) * 0x1p60;
    }
    return hd_math_remquo(x, y, quotient);
}
HD_DEVICE double remainder(double x, double y)
{
    int quotient;
    return remquo(x, y, &quotient);
}
HD_DEVICE float fmodf(float x, float y)
{
    return (float)hd_math_fmod(x, y);
}
HD_DEVICE float remainderf(float x, float y)
{
    return (float)hd_math_remainder(x, y);
}
HD_DEVICE float remquof(float x, float y, int *quotient)
{
    return (float)hd_math_remquo(x, y, quotient);
}
#else
HD_MATH_1(tgamma, "_Z6tgamma")
HD_MATH_1(lgamma, "_Z6lgamma")
HD_MATH_F64_1(tgamma)
HD_MATH_F64_1(lgamma)
HD_MATH_IS_2(fmod, "_Z4fmod")
HD_MATH_IS_2(remainder, "_Z9remainder")
HD_DEVICE double remquo(double x, double y, int *quotient)
{
    return hd_math_remquo(x, y, quotient);
}
HD_DEVICE float remquof(float x, float y, int *quotient)
{
    return hd_math_remquof(x, y, quotient);
}
#endif
HD_MATH_F32_WIDE_1(tgamma)
HD_MATH_F32_WIDE_1(lgamma)
#undef HD_MATH_HERE
#undef HD_MATH_F64_1
#undef HD_MATH_F32_1
#undef HD_MATH_F32_WIDE_1
#undef HD_MATH_IS_1
#undef HD_MATH_IS_WIDE_1
#undef HD_MATH_IS_2
#undef HD_MATH_EXTERN
#undef HD_MATH_SYMBOL
#undef HD_MATH_1
#undef HD_MATH_2

HD_DEVICE void sincos(double x, double *sine, double *cosine)
{
    *sine = sin(x);
    *cosine = cos(x);
}
HD_DEVICE void sincosf(float x, float *sine, float *cosine)
{
    *sine = sinf(x);
    *cosine = cosf(x);
}

/* ---- GPU: instructions ---- */

#define HD_MATH_BUILTIN_1(name)                                                                                        \
    HD_DEVICE double name(double x)                                                                                    \
    {                                                                                                                  \
        return __builtin_##name(x);                                                                                    \
    }                                                                                                                  \
    HD_DEVICE float name##f(float x)                                                                                   \
    {                                                                                                                  \
        return __builtin_##name##f(x);                                                                                 \
    }
#define HD_MATH_BUILTIN_2(name)                                                                                        \
    HD_DEVICE double name(double x, double y)                                                                          \
    {                                                                                                                  \
        return __builtin_##name(x, y);                                                                                 \
    }                                                                                                                  \
    HD_DEVICE float name##f(float x, float y)                                                                          \
    {                                                                                                                  \
        return __builtin_##name##f(x, y);                                                                              \
    }
HD_MATH_BUILTIN_1(fabs)
HD_MATH_BUILTIN_1(floor)
HD_MATH_BUILTIN_1(ceil)
HD_MATH_BUILTIN_1(trunc)
HD_MATH_BUILTIN_1(rint)
HD_MATH_BUILTIN_1(nearbyint)
HD_MATH_BUILTIN_2(fmin)
HD_MATH_BUILTIN_2(fmax)
#undef HD_MATH_BUILTIN_1
#undef HD_MATH_BUILTIN_2

/* copysign is one instruction, but clang 14 does not use it for __builtin_copysign. */
HD_DEVICE double copysign(double x, double y)
{
    double result;
    __asm__("copysign.f64 %0, %1, %2;" : "=d"(result) : "d"(y), "d"(x));
    return result;
}
HD_DEVICE float copysignf(float x, float y)
{
    float result;
    __asm__("copysign.f32 %0, %1, %2;" : "=f"(result) : "f"(y), "f"(x));
    return result;
}
/* Rounds the sum toward 0, so that no number below a half becomes 1. */
HD_DEVICE double round(double x)
{
    return __builtin_trunc(__nvvm_add_rz_d(x, copysign(0.5, x)));
}
HD_DEVICE float roundf(float x)
{
    return __builtin_truncf(__nvvm_add_rz_f(x, copysignf(0.5f, x)));
}

HD_DEVICE double sqrt(double x)
{
    return __nvvm_sqrt_rn_d(x);
}
HD_DEVICE float sqrtf(float x)
{
    return __nvvm_sqrt_rn_f(x);
}
HD_DEVICE double fma(double x, double y, double z)
{
    return __nvvm_fma_rn_d(x, y, z);
}
HD_DEVICE float fmaf(float x, float y, float z)
{
    return __nvvm_fma_rn_f(x, y, z);
}
HD_DEVICE double fdim(double x, double y)
{
    return x <= y ? 0 : x - y;
}
HD_DEVICE float fdimf(float x, float y)
{
    return x <= y ? 0 : x - y;
}
HD_DEVICE long lrint(double x)
{
    return (long)rint(x);
}
HD_DEVICE long lrintf(float x)
{
    return (long)rintf(x);
}
HD_DEVICE long long llrint(double x)
{
    return (long long)rint(x);
}
HD_DEVICE long long llrintf(float x)
{
    return (long long)rintf(x);
}
HD_DEVICE long lround(double x)
{
    return (long)round(x);
}
HD_DEVICE long lroundf(float x)
{
    return (long)roundf(x);
}
HD_DEVICE long long llround(double x)
{
    return (long long)round(x);
}
HD_DEVICE long long llroundf(float x)
{
    return (long long)roundf(x);
}
HD_DEVICE double rsqrt(double x)
{
    return __nvvm_rsqrt_approx_d(x);
}
HD_DEVICE float rsqrtf(float x)
{
    return __nvvm_rsqrt_approx_f(x);
}

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_inf()
#define HUGE_VALF __builtin_inff()
#define FP_NAN 0
#define FP_INFINITE 1
#define FP_ZERO 2
#define FP_SUBNORMAL 3
#define FP_NORMAL 4
#define fpclassify(x) __builtin_fpclassify(FP_NAN, FP_INFINITE, FP_NORMAL, FP_SUBNORMAL, FP_ZERO, x)
#define isfinite(x) __builtin_isfinite(x)
#define isinf(x) __builtin_isinf(x)
#define isnan(x) __builtin_isnan(x)
#define isnormal(x) __builtin_isnormal(x)
#define signbit(x) (__builtin_signbit(x) != 0)
#define isgreater(x, y) __builtin_isgreater(x, y)
#define isgreaterequal(x, y) __builtin_isgreaterequal(x, y)
#define isless(x, y) __builtin_isless(x, y)
#define islessequal(x, y) __builtin_islessequal(x, y)
#define islessgreater(x, y) __builtin_islessgreater(x, y)
#define isunordered(x, y) __builtin_isunordered(x, y)

#elif !HD_KERNEL_GPU && !defined(__cplusplus)

/* ---- CPU: libm, and the functions it lacks ---- */

#include <math.h>

/* C libraries contain these functions, but declare them only on request. */
extern double exp10(double x);
extern float exp10f(float x);
extern void sincos(double x, double *sine, double *cosine);
extern void sincosf(float x, float *sine, float *cosine);

/* Newer C libraries declare functions of these names. The macros change calls only. Other uses of a
 * name stay as they are, such as a kernel named rsqrt. */
#define sinpi(x) hd_math_sinpi(x)
#define sinpif(x) hd_math_sinpif(x)
#define cospi(x) hd_math_cospi(x)
#define cospif(x) hd_math_cospif(x)
#define rsqrt(x) hd_math_rsqrt(x)
#define rsqrtf(x) hd_math_rsqrtf(x)

/* pi x, and the rounding error of that product. */
HD_DEVICE double hd_math_times_pi(double x, double *rest)
{
    /* `less`: the exact pi minus the constant `pi` */
    const double pi = 3.14159265358979323846, less = 1.2246467991473515e-16;
    *rest = fma(pi, x, -(pi * x)) + less * x;
    return pi * x;
}
/* sin(pi x) of x in [-1/4, 1/4]. The first derivative of the sine accounts for the rounding
 * error. */
HD_DEVICE double hd_math_sinpi_near(double x)
{
    double rest, y = hd_math_times_pi(x, &rest);
    return sin(y) + rest * cos(y);
}
HD_DEVICE double hd_math_cospi_near(double x)
{
    double rest, y = hd_math_times_pi(x, &rest);
    return cos(y) - rest * sin(y);
}
/* cos(pi x) and sin(pi x) have the period 2. Their symmetries reduce x to [-1/4, 1/4]. */
HD_DEVICE double hd_math_cospi(double x)
{
    double a = fabs(fmod(x, 2)); /* exact, as are the differences below */
    if (!(a <= 2)) {
        return x - x; /* not a number */
    }
    a = a > 1 ? 2 - a : a;
    return a <= 0.25 ? hd_math_cospi_near(a) : a >= 0.75 ? -hd_math_cospi_near(1 - a) : hd_math_sinpi_near(0.5 - a);
}
HD_DEVICE double hd_math_sinpi(double x)
{
    double a = fabs(fmod(x, 2));
    if (!(a <= 2)) {
        return x - x;
    }
    if (a == 0 || a == 1) {
        return copysign(0, x);
    }
    double sign = (a > 1) == (x < 0) ? 1 : -1;
    a = a > 1 ? a - 1 : a;
    return sign * (a <= 0.25   ? hd_math_sinpi_near(a)
                   : a >= 0.75 ? hd_math_sinpi_near(1 - a)
                               : hd_math_cospi_near(0.5 - a));
}
HD_DEVICE float hd_math_sinpif(float x)
{
    return (float)hd_math_sinpi((double)x);
}
HD_DEVICE float hd_math_cospif(float x)
{
    return (float)hd_math_cospi((double)x);
}
/* Divides 1 by the square root, and makes one Newton step. The residual of that step is exact up to
 * its last bit. */
HD_DEVICE double hd_math_rsqrt(double x)
{
    double y = 1 / sqrt(x), root = x * y, rest = fma(x, y, -root);
    double residual = fma(-root, y, 1) - rest * y;
    return x > 0 && x < HUGE_VAL ? fma(0.5 * y, residual, y) : y;
}
HD_DEVICE float hd_math_rsqrtf(float x)
{
    return (float)(1 / sqrt((double)x));
}

#endif

#if HD_KERNEL_GPU ? defined(__clang__) : !defined(__cplusplus)

/* ---- GPU and CPU: constants ---- */

#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#endif

/* ---- fast functions ---- */

#if HD_KERNEL_GPU || !defined(__cplusplus)

#if HD_KERNEL_GPU && defined(__clang__)
#define HD_MATH_FAST(clang_name, nvcc_name, cpu) clang_name
#elif HD_KERNEL_GPU
#define HD_MATH_FAST(clang_name, nvcc_name, cpu) nvcc_name
#else
#define HD_MATH_FAST(clang_name, nvcc_name, cpu) cpu
#endif

HD_DEVICE float hd_fast_exp2(float x)
{
    return HD_MATH_FAST(__nvvm_ex2_approx_f(x), exp2f(x), exp2f(x));
}
HD_DEVICE float hd_fast_exp(float x)
{
    return HD_MATH_FAST(__nvvm_ex2_approx_f(x * 1.44269504f), __expf(x), expf(x));
}
HD_DEVICE float hd_fast_exp10(float x)
{
    return HD_MATH_FAST(__nvvm_ex2_approx_f(x * 3.32192809f), __exp10f(x), exp10f(x));
}
HD_DEVICE float hd_fast_log2(float x)
{
    return HD_MATH_FAST(__nvvm_lg2_approx_f(x), __log2f(x), log2f(x));
}
HD_DEVICE float hd_fast_log(float x)
{
    return HD_MATH_FAST(__nvvm_lg2_approx_f(x) * 0.69314718f, __logf(x), logf(x));
}
HD_DEVICE float hd_fast_log10(float x)
{
    return HD_MATH_FAST(__nvvm_lg2_approx_f(x) * 0.30103f, __log10f(x), log10f(x));
}
HD_DEVICE float hd_fast_sin(float x)
{
    return HD_MATH_FAST(__nvvm_sin_approx_f(x), __sinf(x), sinf(x));
}
HD_DEVICE float hd_fast_cos(float x)
{
    return HD_MATH_FAST(__nvvm_cos_approx_f(x), __cosf(x), cosf(x));
}
HD_DEVICE float hd_fast_div(float x, float y)
{
    return HD_MATH_FAST(__nvvm_div_approx_f(x, y), __fdividef(x, y), x / y);
}
HD_DEVICE float hd_fast_tan(float x)
{
    return HD_MATH_FAST(hd_fast_div(hd_fast_sin(x), hd_fast_cos(x)), __tanf(x), tanf(x));
}
HD_DEVICE float hd_fast_pow(float x, float y)
{
    return HD_MATH_FAST(hd_fast_exp2(y * hd_fast_log2(x)), __powf(x, y), powf(x, y));
}
HD_DEVICE float hd_fast_sqrt(float x)
{
    return HD_MATH_FAST(__nvvm_sqrt_approx_f(x), __fsqrt_rn(x), sqrtf(x));
}
HD_DEVICE float hd_fast_rsqrt(float x)
{
    return HD_MATH_FAST(__nvvm_rsqrt_approx_f(x), rsqrtf(x), rsqrtf(x));
}
/* On GPUs, tanh x is 1 - 2 / (exp(2 x) + 1). Only its absolute error is bounded: near 0 the
 * relative error is large. */
HD_DEVICE float hd_math_fast_tanh(float x)
{
    float y = 1 - hd_fast_div(2, hd_fast_exp(2 * fabsf(x)) + 1);
    return copysignf(y, x);
}
HD_DEVICE float hd_fast_tanh(float x)
{
    return HD_MATH_FAST(hd_math_fast_tanh(x), hd_math_fast_tanh(x), tanhf(x));
}
#undef HD_MATH_FAST
#endif

/* nvcc also declares the overloads of C++, and selects one by the type of the argument. It would
 * take the overload for float for a float argument, but in C sqrt(2.0f) is a double. These macros
 * therefore convert the argument. `heddle cc` defines HD_KERNEL_SOURCE for kernel source. */
#if defined(HD_KERNEL_SOURCE) && defined(__CUDACC__) && !defined(__clang__)
#include <math.h>
#include <stdlib.h>
#define sqrt(x) (sqrt)((double)(x))
#define cbrt(x) (cbrt)((double)(x))
#define exp(x) (exp)((double)(x))
#define exp2(x) (exp2)((double)(x))
#define expm1(x) (expm1)((double)(x))
#define log(x) (log)((double)(x))
#define log2(x) (log2)((double)(x))
#define log10(x) (log10)((double)(x))
#define log1p(x) (log1p)((double)(x))
#define sin(x) (sin)((double)(x))
#define cos(x) (cos)((double)(x))
#define tan(x) (tan)((double)(x))
#define asin(x) (asin)((double)(x))
#define acos(x) (acos)((double)(x))
#define atan(x) (atan)((double)(x))
#define sinh(x) (sinh)((double)(x))
#define cosh(x) (cosh)((double)(x))
#define tanh(x) (tanh)((double)(x))
#define asinh(x) (asinh)((double)(x))
#define acosh(x) (acosh)((double)(x))
#define atanh(x) (atanh)((double)(x))
#define erf(x) (erf)((double)(x))
#define erfc(x) (erfc)((double)(x))
#define tgamma(x) (tgamma)((double)(x))
#define lgamma(x) (lgamma)((double)(x))
#define fabs(x) (fabs)((double)(x))
#define floor(x) (floor)((double)(x))
#define ceil(x) (ceil)((double)(x))
#define trunc(x) (trunc)((double)(x))
#define round(x) (round)((double)(x))
#define rint(x) (rint)((double)(x))
#define nearbyint(x) (nearbyint)((double)(x))
#define lrint(x) (lrint)((double)(x))
#define llrint(x) (llrint)((double)(x))
#define lround(x) (lround)((double)(x))
#define llround(x) (llround)((double)(x))
#define ilogb(x) (ilogb)((double)(x))
#define logb(x) (logb)((double)(x))
#define rsqrt(x) (rsqrt)((double)(x))
#define exp10(x) (exp10)((double)(x))
#define sinpi(x) (sinpi)((double)(x))
#define cospi(x) (cospi)((double)(x))
#define hypot(x, y) (hypot)((double)(x), (double)(y))
#define pow(x, y) (pow)((double)(x), (double)(y))
#define atan2(x, y) (atan2)((double)(x), (double)(y))
#define fmin(x, y) (fmin)((double)(x), (double)(y))
#define fmax(x, y) (fmax)((double)(x), (double)(y))
#define fdim(x, y) (fdim)((double)(x), (double)(y))
#define fmod(x, y) (fmod)((double)(x), (double)(y))
#define remainder(x, y) (remainder)((double)(x), (double)(y))
#define copysign(x, y) (copysign)((double)(x), (double)(y))
#define nextafter(x, y) (nextafter)((double)(x), (double)(y))
#define fma(x, y, z) (fma)((double)(x), (double)(y), (double)(z))
#define remquo(x, y, quotient) (remquo)((double)(x), (double)(y), quotient)
#define frexp(x, power) (frexp)((double)(x), power)
#define ldexp(x, power) (ldexp)((double)(x), (int)(power))
#define scalbn(x, power) (scalbn)((double)(x), (int)(power))
#define scalbln(x, power) (scalbln)((double)(x), (long)(power))
#define modf(x, whole) (modf)((double)(x), whole)
#define abs(x) (abs)((int)(x))
#define labs(x) (labs)((long)(x))
#define llabs(x) (llabs)((long long)(x))
#endif

#endif
