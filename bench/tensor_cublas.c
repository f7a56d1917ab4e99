/* tensor_cublas.c - cuBLAS for `heddle bench tensor`: opened at run time and called directly, as in
 * its manual.
 *
 * Threads: the conductor. Locks: none. Nothing here goes through Heddle.
 * Always: products run in the plain side's stream. As cuBLAS does by default, f32 products are
 * computed in f32 (no TF32), and f16 products in f32. These settings allow cuBLAS to round parts of
 * a sum to f16, which Heddle never does. Names and numbers come from cublas_api.h and
 * library_types.h.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "bench/tensor_parts.h"

enum {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    GEMM_DEFAULT = -1,
    OP_N = 0
};

typedef struct cublas_context *cublas_handle;

/* X(name, parameters) */
#define CUBLAS_MAP(X)                                                                                                  \
    X(cublasCreate_v2, (cublas_handle * handle))                                                                       \
    X(cublasDestroy_v2, (cublas_handle handle))                                                                        \
    X(cublasGetVersion_v2, (cublas_handle handle, int *version))                                                       \
    X(cublasSetStream_v2, (cublas_handle handle, hdcu_stream stream))                                                  \
    X(cublasGemmEx, (cublas_handle handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,  \
                     int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c,   \
                     int ldc, int compute, int algorithm))

struct tensor_cublas {
    void *library;
    cublas_handle handle;
#define CUBLAS_MEMBER(name, parameters) int(*name) parameters;
    CUBLAS_MAP(CUBLAS_MEMBER)
#undef CUBLAS_MEMBER
};

/* Opens the library by the names that Heddle tries, in the same order. The first name comes from
 * HEDDLE_BLAS, if that is a path. */
static void *bench_open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    static const char *const places[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
    const char *wish = secure_getenv("HEDDLE_BLAS");
    void *library = wish && strchr(wish, '/') ? dlopen(wish, RTLD_LAZY | RTLD_LOCAL) : NULL;
    for (size_t n = 0; !library && n < sizeof(names) / sizeof(names[0]); n++) {
        for (size_t p = 0; !library && p < sizeof(places) / sizeof(places[0]); p++) {
            char path[128];
            snprintf(path, sizeof(path), "%s%s", places[p], names[n]);
            library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        }
    }
    return library;
}

static const char *bench_find_entries(tensor_cublas *blas)
{
    const char *missing = NULL;
#define CUBLAS_FIND(name, parameters)                                                                                  \
    {                                                                                                                  \
        void *entry = dlsym(blas->library, #name);                                                                     \
        memcpy(&blas->name, &entry, sizeof(entry));                                                                    \
        missing = entry ? missing : #name;                                                                             \
    }
    CUBLAS_MAP(CUBLAS_FIND)
#undef CUBLAS_FIND
    return missing;
}

tensor_cublas *bench_tensor_cublas_open(tensor_experiment *x, char name[64], char *why, size_t why_bytes)
{
    tensor_cublas *blas = calloc(1, sizeof(*blas));
    int version = 0, status = 0;
    const char *missing = NULL;
    snprintf(why, why_bytes, "cuBLAS cannot be opened");
    if (!blas) {
        return NULL;
    }
    blas->library = bench_open_library();
    if (blas->library && (missing = bench_find_entries(blas))) {
        snprintf(why, why_bytes, "cuBLAS has no %s", missing);
    } else if (blas->library) {
        status = blas->cublasCreate_v2(&blas->handle);
        if (status == 0) {
            status = blas->cublasSetStream_v2(blas->handle, x->plain.stream);
        }
        if (status == 0 && blas->cublasGetVersion_v2(blas->handle, &version) == 0) {
            snprintf(name, 64, "cublas %d.%d", version / 10000, version / 100 % 100);
            return blas;
        }
        snprintf(why, why_bytes, "cuBLAS does not work here: status %d", status);
    }
    bench_tensor_cublas_close(blas);
    return NULL;
}

void bench_tensor_cublas_close(tensor_cublas *blas)
{
    if (blas) {
        if (blas->handle) {
            blas->cublasDestroy_v2(blas->handle);
        }
        free(blas); /* the library stays loaded: its threads and exit functions cannot be removed */
    }
}

bool bench_tensor_cublas_product(tensor_cublas *blas, hd_type type, uint64_t edge, hdcu_deviceptr a, hdcu_deviceptr b,
                                 hdcu_deviceptr c, char *error)
{
    static const float one_f32 = 1, zero_f32 = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    bool wide = type == HD_TYPE_F64;
    int data = wide ? CUDA_R_64F : type == HD_TYPE_F16 ? CUDA_R_16F : CUDA_R_32F, n = (int)edge;
    const void *one = wide ? (const void *)&one_f64 : &one_f32, *zero = wide ? (const void *)&zero_f64 : &zero_f32;
    /* row-major c = a b is column-major c' = b' a' of the same bytes */
    int status = blas->cublasGemmEx(blas->handle, OP_N, OP_N, n, n, n, one, (const void *)(uintptr_t)b, data, n,
                                    (const void *)(uintptr_t)a, data, n, zero, (void *)(uintptr_t)c, data, n,
                                    wide ? COMPUTE_64F : COMPUTE_32F, GEMM_DEFAULT);
    if (status != 0) {
        snprintf(error, PLAIN_ERROR, "cublasGemmEx: status %d", status);
    }
    return status == 0;
}
