/* cublas.h - the types, numbers and entry points of cuBLAS that the library uses, declared here so
 * that Heddle needs no header of cuBLAS. The names are those of cuBLAS with the prefix `hdcublas_`
 * or `HDCUBLAS_`. So a program can include both headers, as tests/blas/cublas_check.c does.
 */
#ifndef HDI_BLAS_CUBLAS_H
#define HDI_BLAS_CUBLAS_H

#include <stddef.h>
#include <stdint.h>
#include "driver/abi.h"

typedef int hdcublas_status;
typedef struct hdcublas_context *hdcublas_handle;

#define HDI_CUBLAS_STATUS_MAP(X)                                                                                       \
    X(SUCCESS, 0)                                                                                                      \
    X(NOT_INITIALIZED, 1)                                                                                              \
    X(ALLOC_FAILED, 3)                                                                                                 \
    X(INVALID_VALUE, 7)                                                                                                \
    X(ARCH_MISMATCH, 8)                                                                                                \
    X(MAPPING_ERROR, 11)                                                                                               \
    X(EXECUTION_FAILED, 13)                                                                                            \
    X(INTERNAL_ERROR, 14)                                                                                              \
    X(NOT_SUPPORTED, 15)                                                                                               \
    X(LICENSE_ERROR, 16)

enum {
#define HDI_CUBLAS_STATUS_ENUM(name, value) HDCUBLAS_STATUS_##name = value,
    HDI_CUBLAS_STATUS_MAP(HDI_CUBLAS_STATUS_ENUM)
#undef HDI_CUBLAS_STATUS_ENUM
};

enum {
    HDCUBLAS_OP_N = 0,
    HDCUBLAS_OP_T = 1,
    HDCUBLAS_POINTER_MODE_HOST = 0,
    HDCUBLAS_GEMM_DEFAULT = -1,
    HDCUBLAS_DEFAULT_MATH = 0,
    HDCUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
    HDCUBLAS_COMPUTE_32F = 68,
    HDCUBLAS_COMPUTE_64F = 70,
    /* cudaDataType */
    HDCUBLAS_R_32F = 0,
    HDCUBLAS_R_64F = 1,
    HDCUBLAS_R_16F = 2,
    HDCUBLAS_C_32F = 4,
    HDCUBLAS_C_64F = 5,
    HDCUBLAS_R_16BF = 14
};

/* X(name, needed, (parameters), (arguments)). Entries for sizes beyond 32 bits came with cuBLAS
 * 12. */
/* clang-format off */
#define HDI_CUBLAS_ENTRIES(X) \
    X(cublasCreate_v2, 1, (hdcublas_handle *handle), (handle)) \
    X(cublasDestroy_v2, 1, (hdcublas_handle handle), (handle)) \
    X(cublasGetVersion_v2, 1, (hdcublas_handle handle, int *version), (handle, version)) \
    X(cublasSetStream_v2, 1, (hdcublas_handle handle, hdcu_stream stream), (handle, stream)) \
    X(cublasSetWorkspace_v2, 1, (hdcublas_handle handle, void *workspace, size_t bytes), (handle, workspace, bytes)) \
    X(cublasSetPointerMode_v2, 1, (hdcublas_handle handle, int mode), (handle, mode)) \
    X(cublasSetMathMode, 1, (hdcublas_handle handle, int mode), (handle, mode)) \
    X(cublasGemmEx, 1, (hdcublas_handle handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm), (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algorithm)) \
    X(cublasGemmEx_64, 0, (hdcublas_handle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a, int64_t lda, const void *b, int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc, int compute, int algorithm), (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algorithm)) \
    X(cublasGemmStridedBatchedEx, 1, (hdcublas_handle handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, long long step_a, const void *b, int type_b, int ldb, long long step_b, const void *beta, void *c, int type_c, int ldc, long long step_c, int count, int compute, int algorithm), (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, step_a, b, type_b, ldb, step_b, beta, c, type_c, ldc, step_c, count, compute, algorithm)) \
    X(cublasGemmStridedBatchedEx_64, 0, (hdcublas_handle handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a, int64_t lda, long long step_a, const void *b, int type_b, int64_t ldb, long long step_b, const void *beta, void *c, int type_c, int64_t ldc, long long step_c, int64_t count, int compute, int algorithm), (handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, step_a, b, type_b, ldb, step_b, beta, c, type_c, ldc, step_c, count, compute, algorithm))
/* clang-format on */

#endif
