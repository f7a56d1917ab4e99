/* transforms.c - the expected results of the kernels of transforms.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <complex.h>
#include <math.h>

/* Returns element i after a step: the sum over the parts of the input, each rotated as i's part and
 * place in the output require. */
static double complex fft_element(pairs_type type, const void *x, int n, int radix, int p, int i)
{
    int k = i % p, part = i / p % radix, from = i / p / radix * p + k;
    double complex sum = 0;
    for (int m = 0; m < radix; m++) {
        size_t at = (size_t)from + (size_t)(m * (n / radix));
        double complex value = CMPLX(pairs_get(type, x, 2 * at), pairs_get(type, x, 2 * at + 1));
        double angle = -2 * acos(-1) * (m * (part * p + k) % (radix * p)) / (radix * p);
        sum += value * CMPLX(cos(angle), sin(angle));
    }
    return sum;
}

static void fft(pairs_launch *l, pairs_type type, int n, int radix, int p)
{
    double *y = pairs_out(l, type, 2 * (size_t)n);
    void *x = pairs_in(l, type, 2 * (size_t)n);
    pairs_value(l, hd_i32(n));
    pairs_value(l, hd_i32(p));
    l->grid.x = (uint32_t)(n / radix + 63) / 64;
    l->block.x = 64;
    for (size_t i = 0; i < 2 * (size_t)n; i++) {
        pairs_set(type, x, i, (double)pairs_random_f32(l, -1, 1));
    }
    for (int i = 0; i < n; i++) {
        double complex sum = fft_element(type, x, n, radix, p, i);
        y[2 * i] = creal(sum);
        y[2 * i + 1] = cimag(sum);
    }
}

static void fft_radix2(pairs_launch *l)
{
    fft(l, PAIRS_F32, 1024, 2, 64);
}

static void fft_radix4(pairs_launch *l)
{
    fft(l, PAIRS_F64, 1024, 4, 16);
}

static void bitonic_step(pairs_launch *l)
{
    enum { N = 2048, J = 32, K = 256 };
    void *before;
    double *x = pairs_inout(l, PAIRS_U32, N, &before);
    pairs_value(l, hd_u32(J));
    pairs_value(l, hd_u32(K));
    l->grid.x = N / 128;
    l->block.x = 128;
    for (int i = 0; i < N; i++) {
        ((uint32_t *)before)[i] = pairs_bits(l) % 5000;
    }
    for (int i = 0; i < N; i++) {
        double a = ((uint32_t *)before)[i], b = ((uint32_t *)before)[i ^ J];
        bool lesser = ((i & J) == 0) == ((i & K) == 0);
        x[i] = lesser ? fmin(a, b) : fmax(a, b);
    }
}

static void bitonic_block(pairs_launch *l)
{
    enum { N = 512, BLOCKS = 3 };
    void *before, *values;
    double *key = pairs_inout(l, PAIRS_F32, N * BLOCKS, &before),
           *value = pairs_inout(l, PAIRS_I32, N * BLOCKS, &values);
    const float *x = before;
    l->grid.x = BLOCKS;
    l->block.x = N / 2;
    for (int i = 0; i < N * BLOCKS; i++) { /* different keys */
        ((float *)before)[i] = (float)(int)(pairs_bits(l) % 1000) * 512 - (float)(i % N);
        ((int *)values)[i] = i;
    }
    for (int i = 0; i < N * BLOCKS; i++) {
        int place = i / N * N;
        for (int j = i / N * N; j < (i / N + 1) * N; j++) {
            place += x[j] < x[i];
        }
        key[place] = (double)x[i];
        value[place] = i;
    }
}

static void transpose(pairs_launch *l, pairs_type type, int width, int height, int tile, int rows)
{
    double *y = pairs_out(l, type, (size_t)(width * height));
    void *x = pairs_in(l, type, (size_t)(width * height));
    pairs_value(l, hd_i32(width));
    pairs_value(l, hd_i32(height));
    l->grid = (hd_dims){(uint32_t)((width + tile - 1) / tile), (uint32_t)((height + tile - 1) / tile), 1};
    l->block = (hd_dims){(uint32_t)tile, (uint32_t)rows, 1};
    for (int i = 0; i < width * height; i++) {
        double value = (double)pairs_random_f32(l, -1, 1);
        pairs_set(type, x, (size_t)i, value);
        y[i % width * height + i / width] = value;
    }
}

static void transpose_f32(pairs_launch *l)
{
    transpose(l, PAIRS_F32, 75, 101, 32, 8);
}

static void transpose_f64(pairs_launch *l)
{
    transpose(l, PAIRS_F64, 50, 33, 16, 4);
}

static void walsh_hadamard(pairs_launch *l)
{
    enum { N = 256, BLOCKS = 4 };
    void *before;
    double *x = pairs_inout(l, PAIRS_I32, N * BLOCKS, &before);
    pairs_value(l, hd_i32(N));
    l->grid.x = BLOCKS;
    l->block.x = 64;
    l->shared = N * sizeof(int);
    for (int i = 0; i < N * BLOCKS; i++) {
        ((int *)before)[i] = (int)(pairs_bits(l) % 2001) - 1000;
    }
    for (int i = 0; i < N * BLOCKS; i++) {
        for (int j = 0; j < N; j++) {
            int value = ((int *)before)[i / N * N + j];
            x[i] += __builtin_parity((unsigned)(i % N & j)) ? -value : value;
        }
    }
}

static void bit_reverse(pairs_launch *l)
{
    enum { BITS = 11, N = 1 << BITS };
    double *y = pairs_out(l, PAIRS_U32, N);
    uint32_t *x = pairs_in(l, PAIRS_U32, N);
    pairs_value(l, hd_i32(BITS));
    l->grid.x = N / 256 + 1;
    l->block.x = 256;
    for (unsigned i = 0; i < N; i++) {
        unsigned reversed = 0;
        /* reverses the bits; the highest bit ends the loop */
        for (unsigned rest = i + N; rest > 1; rest /= 2) {
            reversed = 2 * reversed + rest % 2;
        }
        x[i] = pairs_bits(l);
        y[reversed] = x[i];
    }
}

const pairs_row pairs_transforms[] = {
    {"transforms", "fft_radix2", "fft_radix2(float2*, float2 const*, int, int)", fft_radix2, 2e-6, 0,
     "the angle is up to 3.2 and rounded three times; three more operations on numbers up to 2.5"},
    {"transforms", "fft_radix4", NULL, fft_radix4, 6e-15, 0,
     "four terms up to 1.4, for which the expected angles, up to 6.3, are 9e-16 off"},
    {"transforms", "bitonic_step", NULL, bitonic_step, 0, 0, "it is exact"},
    {"transforms", "bitonic_block", "bitonic_block<float, 512>", bitonic_block, 0, 0, "it is exact"},
    {"transforms", "transpose_f32", "transpose<float, 32, 8>(float*, float const*, int, int)", transpose_f32, 0, 0,
     "it is exact"},
    {"transforms", "transpose_f64", "transpose<double,16,4>", transpose_f64, 0, 0, "it is exact"},
    {"transforms", "walsh_hadamard", NULL, walsh_hadamard, 0, 0, "it is exact"},
    {"transforms", "bit_reverse", NULL, bit_reverse, 0, 0, "it is exact"},
    {0},
};
