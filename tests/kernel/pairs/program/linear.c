/* linear.c - the expected results of the kernels of linear.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <heddle/kernel.h>
#include <math.h>

/* y, x and a are numbers of `type`. */
static void axpy(pairs_launch *l, pairs_type type, double a)
{
    enum { N = 1777 };
    void *before;
    double *y = pairs_inout(l, type, N, &before);
    void *x = pairs_in(l, type, N);
    unsigned char bytes[8];
    pairs_set(type, bytes, 0, a);
    if (type == PAIRS_F32) {
        pairs_value(l, hd_f32((float)a));
    } else if (type == PAIRS_F64) {
        pairs_value(l, hd_f64(a));
    } else if (type == PAIRS_I32) {
        pairs_value(l, hd_i32((int)a));
    } else {
        pairs_structure(l, bytes, 2);
    }
    pairs_value(l, hd_u64(N));
    l->grid.x = (N + 255) / 256;
    l->block.x = 256;
    for (size_t i = 0; i < N; i++) {
        pairs_set(type, x, i, (double)pairs_random_f32(l, -100, 100));
        pairs_set(type, before, i, (double)pairs_random_f32(l, -100, 100));
        y[i] = pairs_get(type, bytes, 0) * pairs_get(type, x, i) + pairs_get(type, before, i);
    }
}

static void axpy_f32(pairs_launch *l)
{
    axpy(l, PAIRS_F32, 1.7);
}

static void axpy_f64(pairs_launch *l)
{
    axpy(l, PAIRS_F64, 1.7);
}

static void axpy_i32(pairs_launch *l)
{
    axpy(l, PAIRS_I32, -1234);
}

static void axpy_f16(pairs_launch *l)
{
    axpy(l, PAIRS_F16, 1.7);
}

static void axpy_bf16(pairs_launch *l)
{
    axpy(l, PAIRS_BF16, 1.7);
}

static void dot(pairs_launch *l)
{
    enum { N = 10007 };
    double *result = pairs_inout(l, PAIRS_F64, 1, NULL);
    double *x = pairs_in(l, PAIRS_F64, N), *y = pairs_in(l, PAIRS_F64, N);
    pairs_value(l, hd_u64(N));
    l->grid.x = 9;
    l->block.x = 128;
    for (int i = 0; i < N; i++) { /* their products and sums are exact in any order */
        x[i] = (double)(pairs_bits(l) >> 14) - 100000;
        y[i] = (double)(pairs_bits(l) >> 14) - 100000;
        *result += x[i] * y[i];
    }
}

static void matvec(pairs_launch *l)
{
    enum { ROWS = 61, COLUMNS = 130 };
    double *y = pairs_out(l, PAIRS_F32, ROWS);
    const float *a = pairs_in_f32(l, ROWS * COLUMNS, -1, 1), *x = pairs_in_f32(l, COLUMNS, -1, 1);
    pairs_value(l, hd_i32(ROWS));
    pairs_value(l, hd_i32(COLUMNS));
    l->grid.x = (ROWS + 3) / 4;
    l->block.x = 128;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        y[i / COLUMNS] += (double)a[i] * (double)x[i % COLUMNS];
    }
}

static void matmul_tiled(pairs_launch *l)
{
    enum { M = 45, N = 37, K = 53 };
    double *c = pairs_out(l, PAIRS_F32, M * N);
    const float *a = pairs_in_f32(l, M * K, -1, 1), *b = pairs_in_f32(l, K * N, -1, 1);
    pairs_value(l, hd_i32(M));
    pairs_value(l, hd_i32(N));
    pairs_value(l, hd_i32(K));
    l->grid = (hd_dims){(N + 15) / 16, (M + 15) / 16, 1};
    l->block = (hd_dims){16, 16, 1};
    for (int i = 0; i < M * N; i++) {
        for (int k = 0; k < K; k++) {
            c[i] += (double)a[i / N * K + k] * (double)b[k * N + i % N];
        }
    }
}

static void spmv_csr(pairs_launch *l)
{
    enum { ROWS = 700, COLUMNS = 300, MOST = 12 };
    double *y = pairs_out(l, PAIRS_F64, ROWS);
    int *begin = pairs_in(l, PAIRS_I32, ROWS + 1);
    for (int r = 0; r < ROWS; r++) {
        begin[r + 1] = begin[r] + (int)(pairs_bits(l) % (MOST + 1));
    }
    size_t n = (size_t)begin[ROWS];
    int *column = pairs_in(l, PAIRS_I32, n);
    double *value = pairs_in(l, PAIRS_F64, n), *x = pairs_in(l, PAIRS_F64, COLUMNS);
    pairs_value(l, hd_i32(ROWS));
    l->grid.x = 3;
    l->block.x = 64;
    for (int i = 0; i < COLUMNS; i++) {
        /* their products and sums are exact in any order */
        x[i] = (double)(pairs_bits(l) >> 12) - 500000;
    }
    for (int r = 0; r < ROWS; r++) {
        for (int i = begin[r]; i < begin[r + 1]; i++) {
            column[i] = (int)(pairs_bits(l) % COLUMNS);
            value[i] = (double)(pairs_bits(l) >> 12) - 500000;
            y[r] += value[i] * x[column[i]];
        }
    }
}

static void jacobi(pairs_launch *l)
{
    enum { N = 90 };
    double *next = pairs_out(l, PAIRS_F32, N), *change = pairs_inout(l, PAIRS_U32, 1, NULL);
    float *a = pairs_in_f32(l, N * N, -1, 1);
    const float *b = pairs_in_f32(l, N, -1, 1), *x = pairs_in_f32(l, N, -1, 1);
    pairs_value(l, hd_i32(N));
    l->grid.x = 3;
    l->block.x = 32;
    *change = 0x3f800000; /* the bits of 1: some elements change by more than a half */
    for (int r = 0; r < N; r++) {
        double sum = (double)b[r];
        a[r * N + r] = 50;
        for (int c = 0; c < N; c++) {
            sum -= c == r ? 0 : (double)a[r * N + c] * (double)x[c];
        }
        next[r] = sum / 50;
    }
}

static void n_body(pairs_launch *l)
{
    enum { N = 210, BLOCK = 64 };
    double *acceleration = pairs_out(l, PAIRS_F32, 3 * N);
    const float *body = pairs_in_f32(l, 4 * N, 0.125, 1);
    pairs_value(l, hd_i32(N));
    pairs_value(l, hd_f32(0.01f));
    l->grid.x = (N + BLOCK - 1) / BLOCK;
    l->block.x = BLOCK;
    l->shared = BLOCK * 4 * sizeof(float);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            double d[3], square = (double)0.01f;
            for (int k = 0; k < 3; k++) {
                d[k] = (double)body[4 * j + k] - (double)body[4 * i + k];
                square += d[k] * d[k];
            }
            for (int k = 0; k < 3; k++) {
                acceleration[3 * i + k] += (double)body[4 * j + 3] * d[k] / pow(square, 1.5);
            }
        }
    }
}

const pairs_row pairs_linear[] = {
    {"linear", "axpy_f32", "axpy<float>(float*, float const*, float, unsigned long)", axpy_f32, 3e-5, 0,
     "a product up to 170 and a sum are rounded"},
    {"linear", "axpy_f64", "axpy<double>(double*, double const*, double, unsigned long)", axpy_f64, 1.2e-13, 0,
     "a product up to 170 and a sum up to 271 are rounded, and so is the expected one: two ULP of the sum"},
    {"linear", "axpy_i32", "_Z4axpyIiEvPT_PKS0_S0_m", axpy_i32, 0, 0, "it is exact"},
    {"linear", "axpy_f16", "axpy<__half>", axpy_f16, 0.25, 0,
     "a product up to 170 and a sum up to 271 may be rounded one by one: by 1/16 and 1/8"},
    {"linear", "axpy_bf16", "axpy<__nv_bfloat16>", axpy_bf16, 2, 0,
     "a product up to 170 and a sum up to 271 may be rounded one by one: by 1/2 and 1"},
    {"linear", "dot", "dot(double*, double const*, double const*, unsigned long)", dot, 0, 0, "it is exact"},
    {"linear", "matvec", NULL, matvec, 4e-6, 0, "five products and ten sums of numbers up to 20"},
    {"linear", "matmul_tiled", "matmul_tiled<float, 16>", matmul_tiled, 1e-5, 0, "53 products and sums up to 10"},
    {"linear", "spmv_csr", NULL, spmv_csr, 0, 0, "it is exact"},
    {"linear", "jacobi", NULL, jacobi, 5e-7, 0, "89 products and sums up to 20, divided by 50"},
    {"linear", "n_body", "n_body(float3*, float4 const*, int, float)", n_body, 2e-3, 2e-6,
     "210 forces up to 500; sums up to 2000 whose terms are 1e-6 off"},
    {0},
};
