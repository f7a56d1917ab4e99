/* half.c - the expected results of the kernels of half. It rounds to 16 bits with ldexp and rint.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <math.h>

/* Rounds to a number of significant bits: to the nearest, ties to even. */
static double rounded(double x, int bits, int least_exponent)
{
    int exponent;
    frexp(x, &exponent);
    int unit = (exponent < least_exponent ? least_exponent : exponent) - bits;
    return ldexp(rint(ldexp(x, -unit)), unit);
}
static double half_of(double x)
{
    return rounded(x, 11, -13);
}

static void *add_halves(pairs_launch *l, pairs_type type, size_t n, double low, double high)
{
    void *x = pairs_in(l, type, n);
    for (size_t i = 0; i < n; i++) {
        pairs_set(type, x, i, (double)pairs_random_f32(l, low, high));
    }
    return x;
}

static void over(pairs_launch *l, uint32_t n, uint32_t block)
{
    pairs_value(l, hd_i32((int)n));
    l->grid.x = (n + block - 1) / block;
    l->block.x = block;
}

static void dot_half(pairs_launch *l)
{
    enum { N = 5001 };
    double *result = pairs_inout(l, PAIRS_F32, 1, NULL);
    const void *x = add_halves(l, PAIRS_F16, N, 0, 2), *y = add_halves(l, PAIRS_F16, N, 0, 2);
    over(l, N, 128);
    l->grid.x = 3;
    for (size_t i = 0; i < N; i++) {
        *result += pairs_get(PAIRS_F16, x, i) * pairs_get(PAIRS_F16, y, i);
    }
}

static void polynomial_half2(pairs_launch *l)
{
    enum { N = 900 };
    static const float factors[3] = {0.375f, -1.25f, 0.3f};
    double *y = pairs_out(l, PAIRS_F16, 2 * N);
    const void *x = add_halves(l, PAIRS_F16, 2 * N, -3, 3);
    double factor[3];
    for (int i = 0; i < 3; i++) {
        uint16_t both[2];
        pairs_set(PAIRS_F16, both, 0, (double)factors[i]);
        pairs_set(PAIRS_F16, both, 1, (double)factors[i]);
        pairs_structure(l, both, sizeof both);
        factor[i] = half_of((double)factors[i]);
    }
    over(l, N, 128);
    for (size_t i = 0; i < 2 * N; i++) {
        double v = pairs_get(PAIRS_F16, x, i);
        y[i] = half_of(half_of(factor[0] * v + factor[1]) * v + factor[2]);
    }
}

static void relu_half(pairs_launch *l)
{
    enum { N = 1003 };
    void *before;
    double *x = pairs_inout(l, PAIRS_F16, N, &before);
    over(l, N, 64);
    for (size_t i = 0; i < N; i++) {
        pairs_set(PAIRS_F16, before, i,
                  i % 50    ? (double)pairs_random_f32(l, -1, 1)
                  : i % 100 ? (double)NAN
                            : -HUGE_VAL);
        double v = pairs_get(PAIRS_F16, before, i);
        x[i] = v < 0 ? 0 : v;
    }
}

static void to_bf16(pairs_launch *l)
{
    enum { N = 2000 };
    double *y = pairs_out(l, PAIRS_BF16, N);
    const float *x = pairs_in_f32(l, N, -1000, 1000);
    over(l, N, 256);
    for (int i = 0; i < N; i++) {
        y[i] = rounded((double)x[i], 8, -125);
    }
}

static void from_half(pairs_launch *l)
{
    enum { N = 65536 - 1024 * 2 }; /* all numbers except infinities and NaNs */
    double *y = pairs_out(l, PAIRS_F32, N);
    uint16_t *x = pairs_in(l, PAIRS_F16, N);
    over(l, N, 256);
    for (int i = 0; i < N; i++) {
        int size = i % (N / 2), exponent = size / 1024, fraction = size % 1024;
        x[i] = (uint16_t)(size | (i >= N / 2 ? 0x8000 : 0));
        y[i] = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        y[i] = i >= N / 2 ? -y[i] : y[i];
    }
}

static void max_bf16(pairs_launch *l)
{
    enum { N = 1000, BLOCK = 64, BLOCKS = (N + BLOCK - 1) / BLOCK };
    double *most = pairs_out(l, PAIRS_BF16, BLOCKS);
    const void *x = add_halves(l, PAIRS_BF16, N, -10, 1);
    over(l, N, BLOCK);
    for (size_t i = 0; i < N; i++) {
        double v = pairs_get(PAIRS_BF16, x, i);
        most[i / BLOCK] = i % BLOCK == 0 ? v : fmax(most[i / BLOCK], v);
    }
}

static void count_half(pairs_launch *l)
{
    enum { N = 3000, BINS = 20 };
    double *bins = pairs_inout(l, PAIRS_F16, BINS, NULL);
    uint8_t *x = pairs_in(l, PAIRS_U8, N);
    over(l, N, 128);
    for (int i = 0; i < N; i++) {
        x[i] = (uint8_t)(pairs_bits(l) % BINS);
        bins[x[i]]++;
    }
}

const pairs_row pairs_half[] = {
    {"half", "dot_half", "dot_half(float*, __half const*, __half const*, int)", dot_half, 0, 4e-6,
     "positive numbers: 14 + 5 + 12 additions follow each other, each within 6e-8 of the sum"},
    {"half", "polynomial_half2", NULL, polynomial_half2, 0, 0, "it is exact: each step is rounded once"},
    {"half", "relu_half", NULL, relu_half, 0, 0, "it is exact"},
    {"half", "to_bf16", "convert<__nv_bfloat16, float>", to_bf16, 0, 0, "it is exact: rounded once"},
    {"half", "from_half", "convert<float, __half>", from_half, 0, 0, "it is exact"},
    {"half", "max_bf16", NULL, max_bf16, 0, 0, "it is exact"},
    {"half", "count_half", NULL, count_half, 0, 0, "it is exact"},
    {0},
};
