/* builtin.c - Heddle's own kernels, for GPU and CPU; include/heddle/module.h lists them.
 *
 * The script tools/make-builtin-ptx makes generated/builtin.ptx from this file. The repository
 * contains the result; run the script after every change here.
 */
#include <heddle/kernel.h>

HD_KERNEL(hd_fill_u32, HD_OUT(uint32_t, y), HD_VALUE(uint64_t, n), HD_VALUE(uint32_t, value))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] = value;
    }
}

HD_KERNEL(hd_copy_u32, HD_OUT(uint32_t, y), HD_IN(uint32_t, x), HD_VALUE(uint64_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] = x[i];
    }
}

HD_KERNEL(hd_axpy_f32, HD_INOUT(float, y), HD_IN(float, x), HD_VALUE(float, a), HD_VALUE(uint64_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] += a * x[i];
    }
}

#define TILE 32

/* One thread computes one element of c. Tiles of a and b pass through shared memory. The parts of
 * tiles outside the matrices are zero. */
HD_KERNEL_BOUNDS(hd_matmul_f32, TILE *TILE, HD_OUT(float, c), HD_IN(float, a), HD_IN(float, b), HD_VALUE(uint32_t, m),
                 HD_VALUE(uint32_t, n), HD_VALUE(uint32_t, k))
{
    HD_SHARED float tile_a[TILE][TILE];
    HD_SHARED float tile_b[TILE][TILE];
    uint32_t tx = hd_thread_x(), ty = hd_thread_y();
    uint64_t column = (uint64_t)hd_block_x() * TILE + tx;
    uint64_t row = (uint64_t)hd_block_y() * TILE + ty;
    float sum = 0;
    for (uint32_t first = 0; first < k; first += TILE) {
        tile_a[ty][tx] = row < m && tx < k - first ? a[row * k + first + tx] : 0.0f;
        tile_b[ty][tx] = column < n && ty < k - first ? b[((uint64_t)first + ty) * n + column] : 0.0f;
        hd_barrier();
#pragma GCC unroll 32
        for (uint32_t i = 0; i < TILE; i++) {
            sum += tile_a[ty][i] * tile_b[i][tx];
        }
        hd_barrier();
        if (k - first <= TILE) {
            break; /* first + TILE may not fit into 32 bits */
        }
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}

#define SUM_THREADS 256

/* Runs in any grid of blocks of 256 threads. The elements that a thread adds are as far apart as
 * the grid contains threads. Each block adds its sum to *total. */
HD_KERNEL_BOUNDS(hd_sum_f32, SUM_THREADS, HD_INOUT(float, total), HD_IN(float, x), HD_VALUE(uint64_t, n))
{
    HD_SHARED float partial[SUM_THREADS];
    uint32_t t = hd_thread_x();
    uint64_t step = (uint64_t)hd_grid_dim_x() * SUM_THREADS;
    float sum = 0;
    for (uint64_t i = (uint64_t)hd_block_x() * SUM_THREADS + t; i < n; i += step) {
        sum += x[i];
    }
    partial[t] = sum;
    hd_barrier();
    for (uint32_t half = SUM_THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            partial[t] += partial[t + half];
        }
        hd_barrier();
    }
    if (t == 0) {
        hd_atomic_add_f32(total, partial[0]);
    }
}

/* hd_combine_TYPE: y[i] becomes y[i] OP x[i]; one thread per element. `op` is a number of this
 * list. Types of floating point know only the first four. */
enum { SUM, PRODUCT, LEAST, GREATEST, BIT_AND, BIT_OR, BIT_XOR, LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR };

#define COMBINE(suffix, type, result)                                                                                  \
    HD_KERNEL(hd_combine_##suffix, HD_INOUT(type, y), HD_IN(type, x), HD_VALUE(uint64_t, n), HD_VALUE(uint32_t, op))   \
    {                                                                                                                  \
        uint64_t i = hd_global_x();                                                                                    \
        if (i < n) {                                                                                                   \
            type a = y[i], b = x[i];                                                                                   \
            y[i] = (type)(result);                                                                                     \
        }                                                                                                              \
    }

#define COMBINED_FLOATS (op == SUM ? a + b : op == PRODUCT ? a * b : op == LEAST ? (b < a ? b : a) : b > a ? b : a)
/* Sums and products wrap around, since `wide` is an unsigned type. */
#define COMBINED_INTEGERS(wide)                                                                                        \
    (op == SUM           ? (wide)a + (wide)b                                                                           \
     : op == PRODUCT     ? (wide)a * (wide)b                                                                           \
     : op == LEAST       ? (wide)(b < a ? b : a)                                                                       \
     : op == GREATEST    ? (wide)(b > a ? b : a)                                                                       \
     : op == BIT_AND     ? (wide)(a & b)                                                                               \
     : op == BIT_OR      ? (wide)(a | b)                                                                               \
     : op == BIT_XOR     ? (wide)(a ^ b)                                                                               \
     : op == LOGICAL_AND ? (wide)(a && b)                                                                              \
     : op == LOGICAL_OR  ? (wide)(a || b)                                                                              \
                         : (wide)(!a != !b))

COMBINE(i8, int8_t, COMBINED_INTEGERS(uint32_t))
COMBINE(u8, uint8_t, COMBINED_INTEGERS(uint32_t))
COMBINE(i16, int16_t, COMBINED_INTEGERS(uint32_t))
COMBINE(u16, uint16_t, COMBINED_INTEGERS(uint32_t))
COMBINE(i32, int32_t, COMBINED_INTEGERS(uint32_t))
COMBINE(u32, uint32_t, COMBINED_INTEGERS(uint32_t))
COMBINE(i64, int64_t, COMBINED_INTEGERS(uint64_t))
COMBINE(u64, uint64_t, COMBINED_INTEGERS(uint64_t))
COMBINE(f32, float, COMBINED_FLOATS)
COMBINE(f64, double, COMBINED_FLOATS)
