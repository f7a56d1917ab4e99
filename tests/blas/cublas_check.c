/* cublas_check.c - compares cublas.h with the real cublas_v2.h, at compile time. Compiles to
 * nothing without that header, or with one older than cuBLAS 12, which lacks the calls for 64-bit
 * sizes.
 *
 * It checks every number, and that the real functions take as many arguments as ours, with pointers
 * for our pointers, and return a status.
 */
#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#define HAVE_CUBLAS_H 1
#endif
#endif

#ifdef HAVE_CUBLAS_H
#include <cublas_v2.h>
#endif

#if defined(CUBLAS_VERSION) && CUBLAS_VERSION >= 120000

#include "blas/cublas.h"

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)

#define CHECK_STATUS(name, value) SAME(HDCUBLAS_STATUS_##name, CUBLAS_STATUS_##name);
HDI_CUBLAS_STATUS_MAP(CHECK_STATUS)

SAME(HDCUBLAS_OP_N, CUBLAS_OP_N);
SAME(HDCUBLAS_OP_T, CUBLAS_OP_T);
SAME(HDCUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_HOST);
SAME(HDCUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT);
SAME(HDCUBLAS_DEFAULT_MATH, CUBLAS_DEFAULT_MATH);
SAME(HDCUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(HDCUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(HDCUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F);
SAME(HDCUBLAS_R_32F, CUDA_R_32F);
SAME(HDCUBLAS_R_64F, CUDA_R_64F);
SAME(HDCUBLAS_R_16F, CUDA_R_16F);
SAME(HDCUBLAS_C_32F, CUDA_C_32F);
SAME(HDCUBLAS_C_64F, CUDA_C_64F);
SAME(HDCUBLAS_R_16BF, CUDA_R_16BF);
SAME(sizeof(hdcublas_status), sizeof(cublasStatus_t));
SAME(sizeof(hdcublas_handle), sizeof(cublasHandle_t));
SAME(sizeof(int), sizeof(cublasOperation_t));
SAME(sizeof(int), sizeof(cudaDataType));
SAME(sizeof(int), sizeof(cublasComputeType_t));
SAME(sizeof(int), sizeof(cublasGemmAlgo_t));

/* A call of the real function with our arguments, which never runs. Pointers to our own types
 * differ in name only. */
#pragma GCC diagnostic ignored "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wint-conversion"
#define CHECK_ENTRY(name, need, parameters, arguments)                                                                 \
    static inline __attribute__((unused)) size_t check_##name parameters                                               \
    {                                                                                                                  \
        _Static_assert(_Generic(name arguments, cublasStatus_t : 1, default : 0), #name);                              \
        return sizeof(name arguments);                                                                                 \
    }
HDI_CUBLAS_ENTRIES(CHECK_ENTRY)

#endif

/* An empty translation unit is not valid C. */
typedef int cublas_check_done;
