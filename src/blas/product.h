/* product.h - one call for matrix products, as a BLAS library has it.
 *
 * Plain data, which stands in a lane's command ring and is sent between processes.
 * For each i below `count`: C_i = alpha op(A_i) op(B_i) + beta C_i. C_i has m rows and n columns, op(A_i) is m x k, and
 * op(B_i) is k x n. Matrices are stored by columns: element (row, column) of C_i lies at `c + (i * step_c + row + column *
 * pitch_c) * size`. op() transposes where transpose_a or transpose_b is set.
 * Threads: any. Locks: none.
 */
#ifndef HDI_BLAS_PRODUCT_H
#define HDI_BLAS_PRODUCT_H

#include <heddle/tensor.h>

typedef struct hdi_product {
    uint32_t first; /* the first word of its command (engine/channel.h) */
    uint8_t type;   /* hd_type: f16, bf16, f32, f64, c64, c128 */
    uint8_t transpose_a, transpose_b;
    uint8_t unused;
    uint64_t a, b, c;
    uint64_t m, n, k;                   /* none is 0 */
    uint64_t pitch_a, pitch_b, pitch_c; /* elements from one stored column to the next, at least a column's length */
    int64_t step_a, step_b, step_c;     /* elements from one matrix to the next; those of a and b may be 0 */
    uint64_t count;
    double alpha, beta;
} hdi_product;

_Static_assert(sizeof(hdi_product) == 128, "two slots of a ring");

/* Bytes of an element of `type`, which is one of the types above. */
static inline uint64_t hdi_product_size(unsigned type)
{
    return type == HD_TYPE_C128 ? 16 : type == HD_TYPE_C64 || type == HD_TYPE_F64 ? 8 : type == HD_TYPE_F32 ? 4 : 2;
}

#endif
