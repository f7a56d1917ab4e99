/* host.c - products on host devices by an installed BLAS, in a stream like any other work.
 *
 * This file calls the Fortran entries (sgemm_ and the like), since every BLAS provides them. These
 * entries take sizes by address. So on little-endian machines, one call serves libraries with
 * 32-bit and with 64-bit sizes, if the sizes fit into 32 bits. Only worker processes set the number
 * of the library's threads. In the program's own process, the program may also use the library.
 * Threads: any thread opens a library; a product runs on its stream's own thread.
 * Locks: `opening` guards the list of libraries. `at_work` is held during a product that the BLAS
 * spreads over threads of its own. So such products run one after the other, and do not compete for
 * the processors. A product releases the simulator's host lock.
 * Blocking: to open a library reads it from disk; a product may wait for `at_work`.
 * Always: an open library stays in the process. When a product runs, this file first checks that
 * the device may access all the product's memory. The product runs without the guard against
 * faults: a jump out of the BLAS would leave the library's locks held.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/wait.h"
#include "blas/blas.h"
#include "simulator/host.h"

#define BIT(type) ((uint32_t)1 << (type))
/* from this value of m n or m n k on, a library may use threads of its own */
#define ALONE_FLOPS (1 << 18)

typedef void fortran_gemm(const char *op_a, const char *op_b, const int64_t *m, const int64_t *n, const int64_t *k,
                          const void *alpha, const void *a, const int64_t *lda, const void *b, const int64_t *ldb,
                          const void *beta, void *c, const int64_t *ldc, size_t length_a, size_t length_b);

/* A library that is open; never freed. */
struct hdi_host_blas {
    struct hdi_host_blas *next;
    void *library;
    fortran_gemm *sgemm, *dgemm, *cgemm, *zgemm;
    char name[64];
    bool optimized;
};

typedef struct host_blas {
    hdi_blas blas; /* first */
    const struct hdi_host_blas *library;
    hdcu_stream stream;
} host_blas;

static hdi_mutex opening = HDI_MUTEX_INIT(HOST_BLAS);
static struct hdi_host_blas *libraries; /* under `opening` */
static hdi_mutex at_work = HDI_MUTEX_INIT(HOST_PRODUCT);

#if defined(__SANITIZE_THREAD__)
/* The thread sanitizer does not see how a library's own threads wait for each other, but it sees
 * their writes through the C library. This list keeps it from reporting these writes. A program may
 * define its own list instead. */
extern const char *__tsan_default_suppressions(void);
__attribute__((weak, visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "race:libopenblas\nrace:libblis\nrace:libmkl\n";
}
#endif

/* ---- a product, on the stream's thread ---- */

/* The first byte and the length of the range that one operand's matrices cover. */
static void host_blas_cover(uint64_t at, uint64_t length, uint64_t columns, uint64_t pitch, int64_t step,
                            uint64_t count, uint64_t size, uintptr_t *low, size_t *bytes)
{
    uint64_t reach = (count - 1) * (uint64_t)(step < 0 ? -step : step);
    *low = (uintptr_t)(at - (step < 0 ? reach * size : 0));
    *bytes = (size_t)((reach + (columns - 1) * pitch + length) * size);
}

static bool host_blas_reaches(int device, const hdi_product *p, uint64_t size)
{
    uint64_t a_length = p->transpose_a ? p->k : p->m, a_columns = p->transpose_a ? p->m : p->k;
    uint64_t b_length = p->transpose_b ? p->n : p->k, b_columns = p->transpose_b ? p->k : p->n;
    uintptr_t low;
    size_t bytes;
    host_blas_cover(p->a, a_length, a_columns, p->pitch_a, p->step_a, p->count, size, &low, &bytes);
    bool yes = hdi_host_reach_of(device, low, bytes) == HDI_HOST_REACHABLE;
    host_blas_cover(p->b, b_length, b_columns, p->pitch_b, p->step_b, p->count, size, &low, &bytes);
    yes = yes && hdi_host_reach_of(device, low, bytes) == HDI_HOST_REACHABLE;
    host_blas_cover(p->c, p->m, p->n, p->pitch_c, p->step_c, p->count, size, &low, &bytes);
    return yes && hdi_host_reach_of(device, low, bytes) == HDI_HOST_REACHABLE;
}

static void host_blas_run(const struct hdi_host_blas *library, const hdi_product *p, uint64_t size,
                          const volatile int *cancel)
{
    fortran_gemm *gemm = p->type == HD_TYPE_F32   ? library->sgemm
                         : p->type == HD_TYPE_F64 ? library->dgemm
                         : p->type == HD_TYPE_C64 ? library->cgemm
                                                  : library->zgemm;
    bool wide = p->type == HD_TYPE_F64 || p->type == HD_TYPE_C128;
    const double alpha64[2] = {p->alpha, 0}, beta64[2] = {p->beta, 0};
    const float alpha32[2] = {(float)p->alpha, 0}, beta32[2] = {(float)p->beta, 0};
    const void *alpha = wide ? (const void *)alpha64 : alpha32, *beta = wide ? (const void *)beta64 : beta32;
    const int64_t m = (int64_t)p->m, n = (int64_t)p->n, k = (int64_t)p->k;
    const int64_t lda = (int64_t)p->pitch_a, ldb = (int64_t)p->pitch_b, ldc = (int64_t)p->pitch_c;
    const char *op_a = p->transpose_a ? "T" : "N", *op_b = p->transpose_b ? "T" : "N";
    for (uint64_t i = 0; i < p->count && !__atomic_load_n(cancel, __ATOMIC_RELAXED); i++) {
        uint64_t a = p->a + i * (uint64_t)p->step_a * size, b = p->b + i * (uint64_t)p->step_b * size;
        uint64_t c = p->c + i * (uint64_t)p->step_c * size;
        gemm(op_a, op_b, &m, &n, &k, alpha, (const void *)(uintptr_t)a, &lda, (const void *)(uintptr_t)b, &ldb, beta,
             (void *)(uintptr_t)c, &ldc, 1, 1);
    }
}

/* Implements hdi_host_product_fn. */
static hdcu_result host_blas_run_product(int device, const hdi_host_op *op)
{
    const hdi_product *p = hdi_host_op_data_of(op);
    const struct hdi_host_blas *library = op->u.product.library;
    uint64_t size = hdi_product_size(p->type);
    if (!host_blas_reaches(device, p, size)) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    hdi_host_unlock();
    /* No product overflows: sizes are below 2^31, and the code multiplies by k only if m n is
     * small. */
    bool alone = !library->optimized || (p->m * p->n < ALONE_FLOPS && p->m * p->n * p->k < ALONE_FLOPS);
    if (!alone) {
        hdi_mutex_lock(&at_work);
    }
    host_blas_run(library, p, size, &hdi_host.devices[device].cancel);
    if (!alone) {
        hdi_mutex_unlock(&at_work);
    }
    hdi_host_lock();
    return HDCU_SUCCESS;
}

/* ---- putting it into the stream ---- */

static hdcu_result host_blas_submit(const host_blas *h, const hdi_product *p)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(h->stream, &stream);
    if (r == HDCU_SUCCESS) {
        hdi_host_op op = {.kind = HDI_HOST_OP_PRODUCT, .u.product = {host_blas_run_product, h->library}};
        void *data = hdi_host_op_data(&op, sizeof *p);
        r = data != NULL ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
        if (r == HDCU_SUCCESS) {
            memcpy(data, p, sizeof *p);
            r = hdi_host_submit(stream, &op);
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result host_blas_product(hdi_blas *blas, const hdi_product *p)
{
    hdcu_result r = hdi_blas_fault(blas->driver, HDI_BLAS_PRODUCT);
    return r == HDCU_SUCCESS ? host_blas_submit((const host_blas *)blas, p) : r;
}

static void host_blas_close(hdi_blas *blas, bool driver_usable)
{
    (void)driver_usable;
    free(blas);
}

static const hdi_blas_calls calls = {.product = host_blas_product, .close = host_blas_close};

/* ---- opening ---- */

/* Finds the name and version that the library reports. A library that reports a name counts as
 * optimized. */
static void host_blas_identify(struct hdi_host_blas *l)
{
    const char *(*openblas)(void);
    const char *(*blis)(void);
    void (*mkl)(char *, int);
    char text[128] = "";
    l->optimized = true;
    if (hdi_blas_entry(l->library, "openblas_get_config", &openblas)) {
        const char *config = openblas(); /* "OpenBLAS 0.3.21 NO_AFFINITY ..." */
        int first = 0, second = 0, third = 0;
        if (config != NULL && sscanf(config, "OpenBLAS %d.%d.%d", &first, &second, &third) == 3) {
            snprintf(l->name, sizeof l->name, "openblas %d.%d.%d", first, second, third);
        } else {
            snprintf(l->name, sizeof l->name, "openblas");
        }
    } else if (hdi_blas_entry(l->library, "bli_info_get_version_str", &blis)) {
        snprintf(l->name, sizeof l->name, "blis %.40s", blis());
    } else if (hdi_blas_entry(l->library, "MKL_Get_Version_String", &mkl)) {
        mkl(text, (int)sizeof text - 1);
        snprintf(l->name, sizeof l->name, "mkl");
    } else {
        snprintf(l->name, sizeof l->name, "blas");
        l->optimized = false;
    }
}

/* Gives the library of a worker process its share of the processors. */
static void host_blas_limit_threads(const struct hdi_host_blas *l, int share)
{
    int threads = hdi_cpu_count() / share;
    void (*set)(int);
    if (hdi_blas_entry(l->library, "openblas_set_num_threads", &set) ||
        hdi_blas_entry(l->library, "MKL_Set_Num_Threads", &set)) {
        set(threads > 1 ? threads : 1);
    }
}

static bool host_blas_find_entries(struct hdi_host_blas *l)
{
    return hdi_blas_entry(l->library, "sgemm_", &l->sgemm) && hdi_blas_entry(l->library, "dgemm_", &l->dgemm) &&
           hdi_blas_entry(l->library, "cgemm_", &l->cgemm) && hdi_blas_entry(l->library, "zgemm_", &l->zgemm);
}

/* Finds or opens the library, under `opening`. NULL: no library opens, and `why` gives the reason,
 * or *r is the failure. */
static const struct hdi_host_blas *host_blas_find_library(const char *name, char *why, hdcu_result *r)
{
    void *library = hdi_blas_load(name, why);
    if (library == NULL) {
        return NULL;
    }
    for (struct hdi_host_blas *l = libraries; l != NULL; l = l->next) {
        if (l->library == library) {
            dlclose(library); /* end this dlopen: the library was already open */
            return l;
        }
    }
    struct hdi_host_blas *l = calloc(1, sizeof *l);
    *r = l != NULL ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
    if (l != NULL) {
        l->library = library;
        if (host_blas_find_entries(l)) {
            host_blas_identify(l);
            l->next = libraries;
            libraries = l;
            return l;
        }
        hdi_blas_say(why, "%s does not have all of sgemm_, dgemm_, cgemm_ and zgemm_: it is not a BLAS", name);
        free(l);
    }
    dlclose(library);
    return NULL;
}

static hdcu_result host_blas_open(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why,
                                  const char **call)
{
    hdcu_result r = HDCU_SUCCESS;
    *call = "calloc";
    hdi_mutex_lock(&opening);
    const struct hdi_host_blas *library = host_blas_find_library(name, why, &r);
    hdi_mutex_unlock(&opening);
    if (library == NULL) {
        return r;
    }
    if (!library->optimized && strcmp(config->library, "auto") == 0) {
        hdi_blas_say(why, "%s is not an optimized library; blas=%s uses it all the same", name, name);
        return HDCU_SUCCESS;
    }
    host_blas *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (config->share > 0) {
        host_blas_limit_threads(library, config->share);
    }
    h->blas.calls = &calls;
    h->blas.driver = config->driver;
    h->library = library;
    h->stream = config->stream;
    hdi_blas_facts *f = &h->blas.facts;
    f->types = BIT(HD_TYPE_F32) | BIT(HD_TYPE_F64) | BIT(HD_TYPE_C64) | BIT(HD_TYPE_C128);
    f->most = INT32_MAX;
    f->most_count = INT64_MAX;
    memcpy(f->name, library->name, sizeof f->name);
    snprintf(f->why, sizeof f->why, "the built-in kernel makes products of f16 and bf16: a BLAS has no such types");
    *out = &h->blas;
    return HDCU_SUCCESS;
}

/* The names, in the order of the attempts. */
static const char *const names[] = {"libopenblas.so.0", "libmkl_rt.so.2", "libmkl_rt.so.1",
                                    "libblis.so.4",     "libblas.so.3",   NULL};

const hdi_blas_source hdi_blas_host = {.names = names, .open = host_blas_open};
