/* functions.h - the functions of heddle/kernel_math.h, with the error bounds of CUDA's tables, for
 * the sources that test them.
 *
 * A bound is the largest distance in ULP from the correctly rounded result. The bounds come from
 * the CUDA C++ Programming Guide: Mathematical Functions, Standard Functions, both tables, as of
 * CUDA 13. Older releases state others, such as 4 for asinf. The guide states none for fmin and
 * fmax, which are exact. Its bounds of lgamma and lgammaf exclude the interval of their negative
 * zeros.
 *
 * tests/gpu/math_sweep.c also compares with these bounds, and with nvcc's functions on the same
 * GPU.
 */
#ifndef TESTS_KERNEL_MATH_FUNCTIONS_H
#define TESTS_KERNEL_MATH_FUNCTIONS_H

/* F(name, function of MPFR, bound for float, bound for double): functions of one argument */
#define MATH_1(F)                                                                                                      \
    F(exp, mpfr_exp, 2, 1)                                                                                             \
    F(exp2, mpfr_exp2, 2, 1)                                                                                           \
    F(exp10, mpfr_exp10, 2, 1)                                                                                         \
    F(expm1, mpfr_expm1, 1, 1)                                                                                         \
    F(log, mpfr_log, 1, 1)                                                                                             \
    F(log2, mpfr_log2, 1, 1)                                                                                           \
    F(log10, mpfr_log10, 2, 1)                                                                                         \
    F(log1p, mpfr_log1p, 1, 1)                                                                                         \
    F(sqrt, mpfr_sqrt, 0, 0)                                                                                           \
    F(rsqrt, mpfr_rec_sqrt, 2, 1)                                                                                      \
    F(cbrt, mpfr_cbrt, 1, 1)                                                                                           \
    F(sin, mpfr_sin, 2, 2)                                                                                             \
    F(cos, mpfr_cos, 2, 2)                                                                                             \
    F(tan, mpfr_tan, 4, 2)                                                                                             \
    F(sinpi, wide_sinpi, 1, 2)                                                                                         \
    F(cospi, wide_cospi, 1, 2)                                                                                         \
    F(asin, mpfr_asin, 2, 2)                                                                                           \
    F(acos, mpfr_acos, 2, 2)                                                                                           \
    F(atan, mpfr_atan, 2, 2)                                                                                           \
    F(sinh, mpfr_sinh, 3, 2)                                                                                           \
    F(cosh, mpfr_cosh, 2, 1)                                                                                           \
    F(tanh, mpfr_tanh, 2, 1)                                                                                           \
    F(asinh, mpfr_asinh, 3, 3)                                                                                         \
    F(acosh, mpfr_acosh, 4, 3)                                                                                         \
    F(atanh, mpfr_atanh, 3, 2)                                                                                         \
    F(erf, mpfr_erf, 2, 2)                                                                                             \
    F(erfc, mpfr_erfc, 4, 5)                                                                                           \
    F(tgamma, mpfr_gamma, 5, 10)                                                                                       \
    F(lgamma, wide_lgamma, 6, 4)                                                                                       \
    F(floor, mpfr_rint_floor, 0, 0)                                                                                    \
    F(ceil, mpfr_rint_ceil, 0, 0)                                                                                      \
    F(trunc, mpfr_rint_trunc, 0, 0)                                                                                    \
    F(round, mpfr_rint_round, 0, 0)                                                                                    \
    F(rint, mpfr_rint_roundeven, 0, 0)                                                                                 \
    F(nearbyint, mpfr_rint_roundeven, 0, 0)

/* The same for two arguments. */
#define MATH_2(F)                                                                                                      \
    F(pow, mpfr_pow, 4, 2)                                                                                             \
    F(atan2, mpfr_atan2, 3, 2)                                                                                         \
    F(hypot, mpfr_hypot, 3, 2)                                                                                         \
    F(fmod, mpfr_fmod, 0, 0)                                                                                           \
    F(remainder, mpfr_remainder, 0, 0)                                                                                 \
    F(fmin, mpfr_min, 0, 0)                                                                                            \
    F(fmax, mpfr_max, 0, 0)                                                                                            \
    F(fdim, mpfr_dim, 0, 0)

/* F(name, expression for double, expression for float) of x and y, with exact results: equal
 * everywhere. */
#define MATH_EXACT(F)                                                                                                  \
    F(fabs, fabs(x), fabsf(x))                                                                                         \
    F(copysign, copysign(x, y), copysignf(x, y))                                                                       \
    F(nextafter, nextafter(x, y), nextafterf(x, y))                                                                    \
    F(fma, fma(x, y, x), fmaf(x, y, x))                                                                                \
    F(logb, logb(x), logbf(x))                                                                                         \
    F(ilogb, x == x ? (double)ilogb(x) : 0, x == x ? (float)ilogbf(x) : 0)                                             \
    F(ldexp, ldexp(x, whole(y)), ldexpf(x, whole(y)))                                                                  \
    F(scalbn, scalbn(x, whole(y)), scalbnf(x, whole(y)))                                                               \
    F(scalbln, scalbln(x, whole(y) * 1000000000L), scalblnf(x, whole(y) * 1000000000L))                                \
    F(frexp, frexp(x, &n), frexpf(x, &n))                                                                              \
    F(frexp_exponent, (n = 0, (void)frexp(number(x), &n), (double)n), (n = 0, (void)frexpf(number(x), &n), (float)n))  \
    F(modf, modf(x, &d), modff(x, &f))                                                                                 \
    F(modf_whole, ((void)modf(x, &d), d), ((void)modff(x, &f), f))                                                     \
    F(remquo, remquo(x, y, &n), remquof(x, y, &n))                                                                     \
    F(remquo_quotient, last_bits(x, y), last_bits_f(x, y))                                                             \
    F(lrint, (double)lrint(whole(x) + 0.5), (float)lrintf(whole(x) + 0.5f))                                            \
    F(llrint, (double)llrint(whole(x) - 0.25), (float)llrintf(whole(x) - 0.25f))                                       \
    F(lround, (double)lround(whole(x) + 0.5), (float)lroundf(whole(x) + 0.5f))                                         \
    F(llround, (double)llround(whole(x) - 0.5), (float)llroundf(whole(x) - 0.5f))                                      \
    F(sincos_sine, (sincos(x, &d, &e), d == sin(x)), (sincosf(x, &f, &g), f == sinf(x)))                               \
    F(sincos_cosine, (sincos(x, &d, &e), e == cos(x)), (sincosf(x, &f, &g), g == cosf(x)))                             \
    F(classes,                                                                                                         \
      (isnan(x) != 0) + 2 * (isinf(x) != 0) + 4 * (isfinite(x) != 0) + 8 * (isnormal(x) != 0) +                        \
          16 * (signbit(y) != 0),                                                                                      \
      (isnan(x) != 0) + 2 * (isinf(x) != 0) + 4 * (isfinite(x) != 0) + 8 * (isnormal(x) != 0) +                        \
          16 * (signbit(y) != 0))                                                                                      \
    F(comparisons, isless(x, y) + 2 * isgreaterequal(x, y) + 4 * isunordered(x, y) + 8 * (fpclassify(x) == FP_ZERO),   \
      isless(x, y) + 2 * isgreaterequal(x, y) + 4 * isunordered(x, y) + 8 * (fpclassify(x) == FP_SUBNORMAL))

/* Helpers for the expressions. */
HD_DEVICE double number(double x)
{
    return x - x == 0 ? x : 1;
}
HD_DEVICE int whole(double x)
{
    return x > -2200 && x < 2200 ? (int)x : 7;
}
/* The last three bits of the quotient, with its sign; 0 if there is no quotient. */
HD_DEVICE double last_bits(double x, double y)
{
    int n = 0;
    if (x - x != 0 || y != y || y == 0) {
        return 0;
    }
    (void)remquo(x, y, &n);
    return n % 8;
}
HD_DEVICE float last_bits_f(float x, float y)
{
    int n = 0;
    if (x - x != 0 || y != y || y == 0) {
        return 0;
    }
    (void)remquof(x, y, &n);
    return (float)(n % 8);
}

#endif
