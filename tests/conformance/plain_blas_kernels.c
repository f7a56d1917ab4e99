/* plain_blas_kernels.c - a BLAS for the tests: the four products that a host device calls, in plain
 * loops.
 *
 * The owner of a machine decides if it has a BLAS. With this one, the tests of products by a
 * library are the same everywhere. It is part of the shared object that HD_TEST_KERNELS names, for
 * the option `blas`.
 * Threads: any.
 * Locks: none.
 */
#include <complex.h>
#include <stddef.h>

#define SHOWN __attribute__((visibility("default")))

/* c = alpha op(a) op(b) + beta c, by columns. It does not read c if beta is 0, nor a and b if alpha
 * is 0. */
#define GEMM(name, type)                                                                                               \
    SHOWN void name(const char *op_a, const char *op_b, const int *m, const int *n, const int *k, const type *alpha,   \
                    const type *a, const int *lda, const type *b, const int *ldb, const type *beta, type *c,           \
                    const int *ldc, size_t length_a, size_t length_b);                                                 \
    void name(const char *op_a, const char *op_b, const int *m, const int *n, const int *k, const type *alpha,         \
              const type *a, const int *lda, const type *b, const int *ldb, const type *beta, type *c, const int *ldc, \
              size_t length_a, size_t length_b)                                                                        \
    {                                                                                                                  \
        const ptrdiff_t a_row = *op_a == 'N' ? 1 : *lda, a_column = *op_a == 'N' ? *lda : 1;                           \
        const ptrdiff_t b_row = *op_b == 'N' ? 1 : *ldb, b_column = *op_b == 'N' ? *ldb : 1;                           \
        (void)length_a;                                                                                                \
        (void)length_b;                                                                                                \
        for (ptrdiff_t j = 0; j < *n; j++) {                                                                           \
            for (ptrdiff_t i = 0; i < *m; i++) {                                                                       \
                type sum = 0, *to = &c[i + j * *ldc];                                                                  \
                for (ptrdiff_t l = 0; *alpha != 0 && l < *k; l++) {                                                    \
                    sum += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];                                  \
                }                                                                                                      \
                *to = (type)(*alpha != 0 ? *alpha * sum : 0) + (type)(*beta != 0 ? *beta * *to : 0);                   \
            }                                                                                                          \
        }                                                                                                              \
    }

GEMM(sgemm_, float)
GEMM(dgemm_, double)
GEMM(cgemm_, float complex)
GEMM(zgemm_, double complex)
