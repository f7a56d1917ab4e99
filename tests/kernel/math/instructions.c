/* instructions.c - GPU instructions as C functions, which let the CPU run the libraries' functions.
 * The script test_math.sh renames LLVM's intrinsics to these. Results that GPUs approximate are
 * rounded here. */
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INSTRUCTION(type, name, parameters, expression)                                                                \
    type gpu_##name parameters;                                                                                        \
    type gpu_##name parameters                                                                                         \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
/* The sum or product with another rounding mode. */
#define ROUNDED(type, name, parameters, mode, expression)                                                              \
    type gpu_##name parameters;                                                                                        \
    type gpu_##name parameters                                                                                         \
    {                                                                                                                  \
        fesetround(mode);                                                                                              \
        volatile type result = expression;                                                                             \
        fesetround(FE_TONEAREST);                                                                                      \
        return result;                                                                                                 \
    }
/* Instructions for float. The ftz forms keep subnormal numbers, since the libraries do not use that
 * path. */
#define FLOAT_1(name, expression)                                                                                      \
    INSTRUCTION(float, name##_f, (float x), expression)                                                                \
    INSTRUCTION(float, name##_ftz_f, (float x), expression)
#define FLOAT_2(name, expression)                                                                                      \
    INSTRUCTION(float, name##_f, (float x, float y), expression)                                                       \
    INSTRUCTION(float, name##_ftz_f, (float x, float y), expression)

static double without_low(double x) /* the instruction writes only the upper half */
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~(uint64_t)0xffffffff;
    memcpy(&x, &bits, sizeof bits);
    return x;
}
static int half_of(double x, int shift)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(uint32_t)(bits >> shift);
}
static double joined(int low, int high)
{
    uint64_t bits = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static int to_int(double x, int of_nan) /* GPUs return the nearest int if x is out of range */
{
    return x != x ? of_nan : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int)x;
}

static int bits_of(float x)
{
    int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float float_of(int bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FLOAT_1(rsqrt_approx, (float)(1 / sqrt((double)x)))
FLOAT_1(ex2_approx, (float)exp2((double)x))
FLOAT_1(lg2_approx, (float)log2((double)x))
FLOAT_1(rcp_approx, 1 / x)
FLOAT_1(sqrt_rn, sqrtf(x))
FLOAT_1(sqrt_approx, sqrtf(x))
FLOAT_1(fabs, fabsf(x))
FLOAT_1(floor, floorf(x))
FLOAT_1(trunc, truncf(x))
FLOAT_1(saturate, x > 0 ? fminf(x, 1) : 0)
FLOAT_2(div_approx, x / y)
FLOAT_2(div_rn, x / y)
FLOAT_2(mul_rn, x *y)
FLOAT_2(add_rn, x + y)
FLOAT_2(sub_rn, x - y)
INSTRUCTION(float, fma_rn_f, (float x, float y, float z), fmaf(x, y, z))
INSTRUCTION(float, fma_rn_ftz_f, (float x, float y, float z), fmaf(x, y, z))
ROUNDED(float, fma_rm_f, (float x, float y, float z), FE_DOWNWARD, fmaf(x, y, z))
ROUNDED(float, fma_rm_ftz_f, (float x, float y, float z), FE_DOWNWARD, fmaf(x, y, z))
ROUNDED(float, fma_rz_f, (float x, float y, float z), FE_TOWARDZERO, fmaf(x, y, z))
ROUNDED(float, fma_rz_ftz_f, (float x, float y, float z), FE_TOWARDZERO, fmaf(x, y, z))
ROUNDED(float, add_rz_f, (float x, float y), FE_TOWARDZERO, x + y)
ROUNDED(float, add_rz_ftz_f, (float x, float y), FE_TOWARDZERO, x + y)
ROUNDED(double, add_rz_d, (double x, double y), FE_TOWARDZERO, x + y)
INSTRUCTION(int, f2i_rn, (float x), to_int(rintf(x), 0))
INSTRUCTION(int, f2i_rn_ftz, (float x), to_int(rintf(x), 0))
INSTRUCTION(int, f2i_rz, (float x), to_int(truncf(x), 0))
INSTRUCTION(int, f2i_rz_ftz, (float x), to_int(truncf(x), 0))
INSTRUCTION(int, d2i_rn, (double x), to_int(rint(x), INT32_MIN))
INSTRUCTION(int, d2i_rz, (double x), to_int(trunc(x), INT32_MIN))
INSTRUCTION(int, d2i_hi, (double x), half_of(x, 32))
INSTRUCTION(int, d2i_lo, (double x), half_of(x, 0))
INSTRUCTION(int, bitcast_f2i, (float x), bits_of(x))
INSTRUCTION(float, bitcast_i2f, (int bits), float_of(bits))
INSTRUCTION(double, lohi_i2d, (int low, int high), joined(low, high))
INSTRUCTION(double, rsqrt_approx_d, (double x), (double)(1 / sqrtl((long double)x)))
INSTRUCTION(double, rsqrt_approx_ftz_d, (double x), without_low(1 / sqrt(x)))
INSTRUCTION(double, rcp_approx_ftz_d, (double x), without_low(1 / x))
INSTRUCTION(double, sqrt_rn_d, (double x), sqrt(x))
INSTRUCTION(double, fabs_d, (double x), fabs(x))
INSTRUCTION(double, floor_d, (double x), floor(x))
INSTRUCTION(double, trunc_d, (double x), trunc(x))
INSTRUCTION(double, mul_rn_d, (double x, double y), x *y)
INSTRUCTION(double, add_rn_d, (double x, double y), x + y)
INSTRUCTION(double, fmin_d, (double x, double y), fmin(x, y))
INSTRUCTION(double, fma_rn_d, (double x, double y, double z), fma(x, y, z))

INSTRUCTION(float, copysign_f32, (float sign, float x), copysignf(x, sign))
INSTRUCTION(double, copysign_f64, (double sign, double x), copysign(x, sign))
INSTRUCTION(double, choose_d, (double x, double y, double equal, double other),
            x == y || x != x || y != y ? equal : other)

INSTRUCTION(uint32_t, shl_i32, (uint32_t x, uint32_t count), count < 32 ? x << count : 0)
INSTRUCTION(uint32_t, lshr_i32, (uint32_t x, uint32_t count), count < 32 ? x >> count : 0)
INSTRUCTION(uint64_t, shl_i64, (uint64_t x, uint64_t count), count < 64 ? x << count : 0)
INSTRUCTION(uint64_t, lshr_i64, (uint64_t x, uint64_t count), count < 64 ? x >> count : 0)

/* Numbers of two words: registers hold both, whatever their size. */
typedef struct words {
    uint64_t low, high;
} words;
typedef unsigned __int128 wide;
static wide wide_of(uint64_t low, uint64_t high)
{
    return (wide)high << 64 | low;
}
static words words_of(wide x)
{
    return (words){(uint64_t)x, (uint64_t)(x >> 64)};
}
static words halves_of(uint64_t x)
{
    return (words){(uint32_t)x, x >> 32};
}
INSTRUCTION(words, wide_fma_i32, (uint32_t x, uint32_t y, uint32_t z), halves_of((uint64_t)x *y + z))
INSTRUCTION(words, wide_fma_i64, (uint64_t x, uint64_t y, uint64_t z), words_of((wide)x *y + z))
INSTRUCTION(words, wide_mul_i64, (uint64_t x, uint64_t y), words_of((wide)x *y))
INSTRUCTION(words, wide_add_i64, (uint64_t a, uint64_t b, uint64_t c, uint64_t d),
            words_of(wide_of(a, b) + wide_of(c, d)))
INSTRUCTION(words, wide_sub_i64, (uint64_t a, uint64_t b, uint64_t c, uint64_t d),
            words_of(wide_of(a, b) - wide_of(c, d)))

/* A launch of one thread. */
INSTRUCTION(int, read_ptx_sreg_tid_x, (void), 0)
INSTRUCTION(int, read_ptx_sreg_ctaid_x, (void), 0)
INSTRUCTION(int, read_ptx_sreg_ntid_x, (void), 1)
INSTRUCTION(int, read_ptx_sreg_nctaid_x, (void), 1)
