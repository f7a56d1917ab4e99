/* fake_cublas_kernels.c - a library that imitates cuBLAS and records the calls that it gets. It is
 * compiled into the shared object that test_blas.c opens; the object's name makes it cuBLAS.
 * Threads: one. Locks: none.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

/* The recorded calls, and the answers to give; test_blas.c declares the same structure. */
typedef struct fake_cublas {
    char calls[512]; /* their names, in order, each with a blank after it */
    int status;      /* returned by the function that `fails` names */
    char fails[64];
    int version;
    void *stream, *workspace;
    size_t workspace_bytes;
    int pointer_mode, math_mode, handles;
    int64_t numbers[12]; /* m n k lda step_a ldb step_b ldc step_c count, op_a, op_b */
    int type, compute, algorithm;
    unsigned char alpha[16], beta[16];
    const void *a, *b, *c;
} fake_cublas;

SHOWN extern fake_cublas fake_cublas_state;
fake_cublas fake_cublas_state = {.version = 130100};

static int asked(const char *name)
{
    fake_cublas *f = &fake_cublas_state;
    if (strlen(f->calls) + strlen(name) + 2 < sizeof f->calls) {
        strcat(strcat(f->calls, name), " ");
    }
    return strcmp(f->fails, name) == 0 ? f->status : 0;
}

SHOWN int cublasCreate_v2(void **handle);
SHOWN int cublasDestroy_v2(void *handle);
SHOWN int cublasGetVersion_v2(void *handle, int *version);
SHOWN int cublasSetStream_v2(void *handle, void *stream);
SHOWN int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes);
SHOWN int cublasSetPointerMode_v2(void *handle, int mode);
SHOWN int cublasSetMathMode(void *handle, int mode);

int cublasCreate_v2(void **handle)
{
    int status = asked("Create");
    if (status == 0) {
        *handle = &fake_cublas_state;
        fake_cublas_state.handles++;
    }
    return status;
}

int cublasDestroy_v2(void *handle)
{
    (void)handle;
    fake_cublas_state.handles--;
    return asked("Destroy");
}

int cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    *version = fake_cublas_state.version;
    return asked("GetVersion");
}

int cublasSetStream_v2(void *handle, void *stream)
{
    (void)handle;
    fake_cublas_state.stream = stream;
    fake_cublas_state.workspace = NULL; /* as cuBLAS does */
    return asked("SetStream");
}

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes)
{
    (void)handle;
    fake_cublas_state.workspace = workspace;
    fake_cublas_state.workspace_bytes = bytes;
    return asked("SetWorkspace");
}

int cublasSetPointerMode_v2(void *handle, int mode)
{
    (void)handle;
    fake_cublas_state.pointer_mode = mode;
    return asked("SetPointerMode");
}

int cublasSetMathMode(void *handle, int mode)
{
    (void)handle;
    fake_cublas_state.math_mode = mode;
    return asked("SetMathMode");
}

static int product(const char *name, int op_a, int op_b, const int64_t *numbers, const void *alpha, const void *a,
                   int type_a, const void *b, int type_b, const void *beta, void *c, int type_c, int compute,
                   int algorithm)
{
    fake_cublas *f = &fake_cublas_state;
    memcpy(f->numbers, numbers, 10 * sizeof numbers[0]);
    f->numbers[10] = op_a;
    f->numbers[11] = op_b;
    f->type = type_a == type_b && type_b == type_c ? type_a : -1;
    f->compute = compute;
    f->algorithm = algorithm;
    /* size of a number of the compute type */
    size_t bytes = type_a == 5 ? 16 : type_a == 1 || type_a == 4 ? 8 : 4;
    memcpy(f->alpha, alpha, bytes);
    memcpy(f->beta, beta, bytes);
    f->a = a;
    f->b = b;
    f->c = c;
    return asked(name);
}

#define GEMM(name, integer)                                                                                            \
    SHOWN int cublas##name(void *handle, int op_a, int op_b, integer m, integer n, integer k, const void *alpha,       \
                           const void *a, int type_a, integer lda, const void *b, int type_b, integer ldb,             \
                           const void *beta, void *c, int type_c, integer ldc, int compute, int algorithm);            \
    int cublas##name(void *handle, int op_a, int op_b, integer m, integer n, integer k, const void *alpha,             \
                     const void *a, int type_a, integer lda, const void *b, int type_b, integer ldb, const void *beta, \
                     void *c, int type_c, integer ldc, int compute, int algorithm)                                     \
    {                                                                                                                  \
        (void)handle;                                                                                                  \
        const int64_t numbers[10] = {m, n, k, lda, 0, ldb, 0, ldc, 0, 1};                                              \
        return product(#name, op_a, op_b, numbers, alpha, a, type_a, b, type_b, beta, c, type_c, compute, algorithm);  \
    }
GEMM(GemmEx, int)
GEMM(GemmEx_64, int64_t)

#define BATCHED(name, integer)                                                                                         \
    SHOWN int cublas##name(void *handle, int op_a, int op_b, integer m, integer n, integer k, const void *alpha,       \
                           const void *a, int type_a, integer lda, long long step_a, const void *b, int type_b,        \
                           integer ldb, long long step_b, const void *beta, void *c, int type_c, integer ldc,          \
                           long long step_c, integer count, int compute, int algorithm);                               \
    int cublas##name(void *handle, int op_a, int op_b, integer m, integer n, integer k, const void *alpha,             \
                     const void *a, int type_a, integer lda, long long step_a, const void *b, int type_b, integer ldb, \
                     long long step_b, const void *beta, void *c, int type_c, integer ldc, long long step_c,           \
                     integer count, int compute, int algorithm)                                                        \
    {                                                                                                                  \
        (void)handle;                                                                                                  \
        const int64_t numbers[10] = {m, n, k, lda, step_a, ldb, step_b, ldc, step_c, count};                           \
        return product(#name, op_a, op_b, numbers, alpha, a, type_a, b, type_b, beta, c, type_c, compute, algorithm);  \
    }
BATCHED(GemmStridedBatchedEx, int)
BATCHED(GemmStridedBatchedEx_64, int64_t)
