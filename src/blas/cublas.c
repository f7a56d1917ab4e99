/* cublas.c - matrix products by cuBLAS, whose ABI cublas.h declares.
 *
 * If cublas_v2.h is installed, tests/blas/cublas_check.c compares cublas.h with it.
 * Threads: any; one thread at a time uses a handle. Locks: none. Blocking: to open cuBLAS takes
 * long, as in blas.h; to close it waits for the device.
 * Always: a handle gets its stream first and its workspace afterwards, since setting the stream
 * takes the workspace away. Since the handle gets a workspace, no product allocates memory or
 * waits.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "blas/blas.h"
#include "blas/cublas.h"

#define BIT(type) ((uint32_t)1 << (type))

#define WORKSPACE_BYTES ((uint64_t)4 << 20)
/* the default of cuBLAS itself from compute capability 9.0 on */
#define WORKSPACE_BYTES_HOPPER ((uint64_t)32 << 20)

typedef struct cublas {
    hdi_blas blas; /* first */
    hdcu_stream stream;
    hdcublas_handle handle;
#define MEMBER(name, need, parameters, arguments) hdcublas_status(*name) parameters;
    HDI_CUBLAS_ENTRIES(MEMBER)
#undef MEMBER
} cublas;

/* "CUBLAS_STATUS_ALLOC_FAILED"; static. */
static const char *cublas_status_name(hdcublas_status status)
{
    switch (status) {
#define STATUS_CASE(name, value)                                                                                       \
    case value:                                                                                                        \
        return "CUBLAS_STATUS_" #name;
        HDI_CUBLAS_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    default:
        return "an unknown status of cuBLAS";
    }
}

/* The driver's code for a status of cuBLAS. After a failure of the device, the stream's own code is
 * more exact, so the function returns that. */
static hdcu_result cublas_code_of(const cublas *c, hdcublas_status status)
{
    switch (status) {
    case HDCUBLAS_STATUS_SUCCESS:
        return HDCU_SUCCESS;
    case HDCUBLAS_STATUS_NOT_INITIALIZED:
        return HDCU_ERROR_NOT_INITIALIZED;
    case HDCUBLAS_STATUS_ALLOC_FAILED:
        return HDCU_ERROR_OUT_OF_MEMORY;
    case HDCUBLAS_STATUS_INVALID_VALUE:
        return HDCU_ERROR_INVALID_VALUE;
    case HDCUBLAS_STATUS_ARCH_MISMATCH:
    case HDCUBLAS_STATUS_NOT_SUPPORTED:
        return HDCU_ERROR_NOT_SUPPORTED;
    case HDCUBLAS_STATUS_LICENSE_ERROR:
        return HDCU_ERROR_NOT_PERMITTED;
    default: {
        hdcu_result r = c->blas.driver->cuStreamQuery(c->stream);
        return hdi_driver_code_is_fatal(r) ? r : HDCU_ERROR_UNKNOWN;
    }
    }
}

/* ---- a product ---- */

typedef union scalar {
    double f64[2]; /* [1]: the imaginary part */
    float f32[2];
} scalar;

static scalar cublas_scalar_of(hd_type type, double value)
{
    scalar s = {{0, 0}};
    if (type == HD_TYPE_F64 || type == HD_TYPE_C128) {
        s.f64[0] = value;
    } else {
        s.f32[0] = (float)value;
        s.f32[1] = 0;
    }
    return s;
}

static int cublas_data_type_of(hd_type type)
{
    switch (type) {
    case HD_TYPE_F16:
        return HDCUBLAS_R_16F;
    case HD_TYPE_BF16:
        return HDCUBLAS_R_16BF;
    case HD_TYPE_F64:
        return HDCUBLAS_R_64F;
    case HD_TYPE_C64:
        return HDCUBLAS_C_32F;
    case HD_TYPE_C128:
        return HDCUBLAS_C_64F;
    default:
        return HDCUBLAS_R_32F;
    }
}

static hdcublas_status cublas_call_wide(cublas *c, const hdi_product *p, const scalar *alpha, const scalar *beta,
                                        int type, int compute)
{
    const void *a = (const void *)(uintptr_t)p->a, *b = (const void *)(uintptr_t)p->b;
    void *out = (void *)(uintptr_t)p->c;
    int op_a = p->transpose_a, op_b = p->transpose_b; /* HDCUBLAS_OP_N, _T */
    if (p->count == 1) {
        return c->cublasGemmEx_64(c->handle, op_a, op_b, (int64_t)p->m, (int64_t)p->n, (int64_t)p->k, alpha, a, type,
                                  (int64_t)p->pitch_a, b, type, (int64_t)p->pitch_b, beta, out, type,
                                  (int64_t)p->pitch_c, compute, HDCUBLAS_GEMM_DEFAULT);
    }
    return c->cublasGemmStridedBatchedEx_64(c->handle, op_a, op_b, (int64_t)p->m, (int64_t)p->n, (int64_t)p->k, alpha,
                                            a, type, (int64_t)p->pitch_a, p->step_a, b, type, (int64_t)p->pitch_b,
                                            p->step_b, beta, out, type, (int64_t)p->pitch_c, p->step_c,
                                            (int64_t)p->count, compute, HDCUBLAS_GEMM_DEFAULT);
}

static hdcublas_status cublas_call_narrow(cublas *c, const hdi_product *p, const scalar *alpha, const scalar *beta,
                                          int type, int compute)
{
    const void *a = (const void *)(uintptr_t)p->a, *b = (const void *)(uintptr_t)p->b;
    void *out = (void *)(uintptr_t)p->c;
    int op_a = p->transpose_a, op_b = p->transpose_b;
    if (p->count == 1) {
        return c->cublasGemmEx(c->handle, op_a, op_b, (int)p->m, (int)p->n, (int)p->k, alpha, a, type, (int)p->pitch_a,
                               b, type, (int)p->pitch_b, beta, out, type, (int)p->pitch_c, compute,
                               HDCUBLAS_GEMM_DEFAULT);
    }
    return c->cublasGemmStridedBatchedEx(c->handle, op_a, op_b, (int)p->m, (int)p->n, (int)p->k, alpha, a, type,
                                         (int)p->pitch_a, p->step_a, b, type, (int)p->pitch_b, p->step_b, beta, out,
                                         type, (int)p->pitch_c, p->step_c, (int)p->count, compute,
                                         HDCUBLAS_GEMM_DEFAULT);
}

static bool cublas_is_narrow(const hdi_product *p)
{
    const uint64_t sizes[] = {p->m, p->n, p->k, p->pitch_a, p->pitch_b, p->pitch_c, p->count};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] > INT32_MAX) {
            return false;
        }
    }
    return true;
}

static hdcu_result cublas_product(hdi_blas *blas, const hdi_product *p)
{
    cublas *c = (cublas *)blas;
    hdcu_result r = hdi_blas_fault(blas->driver, HDI_BLAS_PRODUCT);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    scalar alpha = cublas_scalar_of(p->type, p->alpha), beta = cublas_scalar_of(p->type, p->beta);
    bool wide = p->type == HD_TYPE_F64 || p->type == HD_TYPE_C128;
    int compute = wide ? HDCUBLAS_COMPUTE_64F : HDCUBLAS_COMPUTE_32F;
    int type = cublas_data_type_of(p->type);
    if (!cublas_is_narrow(p) && blas->facts.most == INT32_MAX) {
        /* not reached, since plans contain no calls of another type */
        return HDCU_ERROR_NOT_SUPPORTED;
    }
    return cublas_code_of(c, cublas_is_narrow(p) ? cublas_call_narrow(c, p, &alpha, &beta, type, compute)
                                                 : cublas_call_wide(c, p, &alpha, &beta, type, compute));
}

/* ---- opening and closing ---- */

static void cublas_close(hdi_blas *blas, bool driver_usable)
{
    cublas *c = (cublas *)blas;
    if (driver_usable && c->handle != NULL) {
        c->cublasDestroy_v2(c->handle); /* waits for the device */
    }
    free(c);
}

static const hdi_blas_calls calls = {.product = cublas_product, .close = cublas_close};

/* Searches the loader's places, then the usual folders of the toolkit. On success, removes the
 * reasons of failed attempts from `why`. */
static void *cublas_load(const char *name, char *why)
{
    size_t said = strlen(why);
    void *library = hdi_blas_load(name, why);
    static const char *const places[] = {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
    for (size_t i = 0; library == NULL && strchr(name, '/') == NULL && i < sizeof places / sizeof places[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", places[i], name);
        /* libcublasLt is found in the same folder */
        library = hdi_descriptor_library(path, RTLD_LAZY | RTLD_LOCAL);
    }
    if (library != NULL) {
        why[said] = '\0';
    }
    return library;
}

/* The name of a required entry that the library lacks; NULL: it lacks none. */
static const char *cublas_find_entries(cublas *c, void *library)
{
    const char *missing = NULL;
#define FIND(name, need, parameters, arguments)                                                                        \
    if (!hdi_blas_entry(library, #name, &c->name) && (need)) {                                                         \
        missing = #name;                                                                                               \
    }
    HDI_CUBLAS_ENTRIES(FIND)
#undef FIND
    return missing;
}

/* Makes the handle and sets it up. *call names the last step; if the function fails, this step
 * failed. */
static hdcublas_status cublas_prepare(cublas *c, const hdi_blas_config *config, int *version, const char **call)
{
    *call = "cublasCreate_v2";
    hdcublas_status status = c->cublasCreate_v2(&c->handle);
    if (status != HDCUBLAS_STATUS_SUCCESS) {
        c->handle = NULL;
        return status;
    }
    *call = "cublasGetVersion_v2";
    status = c->cublasGetVersion_v2(c->handle, version);
    if (status == HDCUBLAS_STATUS_SUCCESS) {
        *call = "cublasSetStream_v2";
        status = c->cublasSetStream_v2(c->handle, config->stream);
    }
    if (status == HDCUBLAS_STATUS_SUCCESS && config->workspace_bytes > 0) {
        *call = "cublasSetWorkspace_v2";
        status = c->cublasSetWorkspace_v2(c->handle, (void *)(uintptr_t)config->workspace, config->workspace_bytes);
    }
    if (status == HDCUBLAS_STATUS_SUCCESS) {
        *call = "cublasSetPointerMode_v2";
        status = c->cublasSetPointerMode_v2(c->handle, HDCUBLAS_POINTER_MODE_HOST);
    }
    if (status == HDCUBLAS_STATUS_SUCCESS) {
        /* Products of f32 are computed in f32 (no TF32). Sums of f16 and bf16 stay in f32 to the
         * end. */
        *call = "cublasSetMathMode";
        status =
            c->cublasSetMathMode(c->handle, HDCUBLAS_DEFAULT_MATH | HDCUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    }
    return status;
}

static void cublas_describe(cublas *c, int version)
{
    hdi_blas_facts *f = &c->blas.facts;
    f->types = BIT(HD_TYPE_F16) | BIT(HD_TYPE_BF16) | BIT(HD_TYPE_F32) | BIT(HD_TYPE_F64) | BIT(HD_TYPE_C64) |
               BIT(HD_TYPE_C128);
    bool wide = c->cublasGemmEx_64 != NULL && c->cublasGemmStridedBatchedEx_64 != NULL;
    f->most = wide ? INT64_MAX : INT32_MAX;
    f->most_count = f->most;
    snprintf(f->name, sizeof f->name, "cublas %d.%d", version / 10000, version / 100 % 100);
}

static hdcu_result cublas_open(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why,
                               const char **call)
{
    void *library = cublas_load(name, why);
    if (library == NULL) {
        return HDCU_SUCCESS;
    }
    cublas *c = calloc(1, sizeof *c);
    if (c == NULL) {
        *call = "calloc";
        dlclose(library);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    c->blas.calls = &calls;
    c->blas.driver = config->driver;
    c->stream = config->stream;
    const char *missing = cublas_find_entries(c, library);
    if (missing != NULL) {
        hdi_blas_say(why, "%s has no %s: it is not cuBLAS 11 or later", name, missing);
        free(c);
        dlclose(library);
        return HDCU_SUCCESS;
    }
    int version = 0;
    hdcublas_status status = cublas_prepare(c, config, &version, call);
    if (status == HDCUBLAS_STATUS_SUCCESS) {
        cublas_describe(c, version);
        *out = &c->blas;
        return HDCU_SUCCESS;
    }
    hdcu_result r = cublas_code_of(c, status);
    cublas_close(&c->blas, !hdi_driver_code_is_fatal(r));
    if (r == HDCU_ERROR_OUT_OF_MEMORY || hdi_driver_code_is_fatal(r)) {
        return r;
    }
    hdi_blas_say(why, "%s: %s: %s", name, *call, cublas_status_name(status));
    return HDCU_SUCCESS;
}

static uint64_t cublas_workspace_bytes(int compute_major)
{
    return compute_major >= 9 ? WORKSPACE_BYTES_HOPPER : WORKSPACE_BYTES;
}

/* The names, in the order of the attempts. If a cuBLAS is too new for the driver, cublasCreate_v2
 * fails, and Heddle tries the next name. */
static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", NULL};

const hdi_blas_source hdi_blas_cublas = {.names = names, .open = cublas_open, .workspace = cublas_workspace_bytes};
