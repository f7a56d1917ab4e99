/* matmul.h - the parameters and the sizes of tiles of the built-in matrix product. Its kernels
 * (matmul.c) use them, and the code that launches the kernels (src/tensor). The file contains only
 * plain data, so neither threads nor locks matter.
 *
 * A block makes one tile of c after the other. It begins with the tile of the block's own number,
 * and steps by the number of blocks. So a grid of any size works.
 */
#ifndef HDI_KERNEL_BUILTIN_MATMUL_H
#define HDI_KERNEL_BUILTIN_MATMUL_H

#include <heddle/kernel.h>

#define HDI_MATMUL_BATCH 6 /* dimensions */

/* Offsets and strides count elements. */
typedef struct hdi_matmul_shape {
    uint64_t m, n, k;
    /* The distance from the pointer's target to the element with all indices 0. */
    int64_t first_a, first_b, first_c;
    int64_t row_a, row_b, row_c; /* from one row to the next */
    int64_t column_a, column_b, column_c;
    double alpha, beta;
    uint64_t count;      /* number of matrices: the product of `batch` */
    uint32_t batch_dims; /* the last one is the fastest */
    uint32_t unused;
    uint64_t batch[HDI_MATMUL_BATCH];
    int64_t step_a[HDI_MATMUL_BATCH], step_b[HDI_MATMUL_BATCH], step_c[HDI_MATMUL_BATCH];
} hdi_matmul_shape;

/* On a GPU, HDI_MATMUL_THREADS threads hold a tile of TILE x TILE in registers, in pieces of PIECE
 * x PIECE. They load slices of DEPTH columns of a and DEPTH rows of b. With 8 x 8 floats, a thread
 * makes 8 + 8 loads from shared memory for 64 multiplications. */
#define HDI_MATMUL_THREADS 256
#define HDI_MATMUL_GPU_TILE_SMALL 128 /* for elements of 4 bytes and less */
#define HDI_MATMUL_GPU_PIECE_SMALL 8
#define HDI_MATMUL_GPU_TILE 64 /* for elements of 8 and 16 bytes */
#define HDI_MATMUL_GPU_PIECE 4
#define HDI_MATMUL_GPU_DEPTH 8

/* On the CPU, one thread packs ROWS x DEPTH elements of a and DEPTH x COLUMNS of b into its own
 * memory. This memory fits into the caches. */
#define HDI_MATMUL_CPU_ROWS 96
#define HDI_MATMUL_CPU_COLUMNS 128      /* for elements of up to 8 bytes */
#define HDI_MATMUL_CPU_COLUMNS_LARGE 64 /* of 16 */
#define HDI_MATMUL_CPU_DEPTH_BYTES 1024

/* The number of tiles of a product with elements of `size` bytes. For f16 and bf16, `size` is 4,
 * since the kernel computes with numbers of 4 bytes. */
static inline uint64_t hdi_matmul_tiles(int gpu, uint64_t size, uint64_t m, uint64_t n, uint64_t count)
{
    uint64_t rows = !gpu ? HDI_MATMUL_CPU_ROWS : size <= 4 ? HDI_MATMUL_GPU_TILE_SMALL : HDI_MATMUL_GPU_TILE;
    uint64_t columns = gpu ? rows : size <= 8 ? HDI_MATMUL_CPU_COLUMNS : HDI_MATMUL_CPU_COLUMNS_LARGE;
    return ((m + rows - 1) / rows) * ((n + columns - 1) / columns) * count;
}

#endif
