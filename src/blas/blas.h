/* blas.h - matrix products by a library found at run time: cuBLAS for nvidia, an installed BLAS for
 * host devices.
 *
 * Heddle is not linked with such a library. dlopen opens one when the first product in a lane needs
 * it. The library then stays in the process, since its threads and exit functions cannot be
 * removed.
 * Threads: any thread opens and closes libraries. The thread that runs the lane's engine makes
 * products.
 * Locks: see cublas.c and host.c.
 * Blocking: to open a library takes long, since the loader reads hundreds of megabytes, and cuBLAS
 * allocates device memory. To close a library may wait for the device. A call for a product only
 * puts it into the stream, and does not wait.
 * Always: the caller makes the device's context current before each call.
 */
#ifndef HDI_BLAS_BLAS_H
#define HDI_BLAS_BLAS_H

#include <stdarg.h>
#include <heddle/tensor.h>
#include "driver/driver.h"

/* One call for matrix products, in the form of a BLAS library. The structure is plain data: it lies
 * in a lane's command ring, and Heddle sends it between processes.
 * For each i below `count`: C_i = alpha op(A_i) op(B_i) + beta C_i. C_i has m rows and n columns,
 * op(A_i) is m x k, and op(B_i) is k x n. Matrices are stored by columns. Element (row, column) of
 * C_i lies at `c + (i * step_c + row + column * pitch_c) * size`. op() transposes A_i if
 * transpose_a is set, and B_i if transpose_b is set. */
typedef struct hdi_product {
    uint32_t first; /* the first word of its command (engine/channel.h) */
    uint8_t type;   /* hd_type: f16, bf16, f32, f64, c64, c128 */
    uint8_t transpose_a, transpose_b;
    uint8_t unused;
    uint64_t a, b, c;
    uint64_t m, n, k; /* none is 0 */
    /* The elements from one stored column to the next: at least a column's length. */
    uint64_t pitch_a, pitch_b, pitch_c;
    /* The elements from one matrix to the next; step_a and step_b may be 0. */
    int64_t step_a, step_b, step_c;
    uint64_t count;
    double alpha, beta;
} hdi_product;

_Static_assert(sizeof(hdi_product) == 128, "two slots of a ring");

/* Bytes of an element of `type`, which is one of the types above. */
static inline uint64_t hdi_product_size(unsigned type)
{
    return type == HD_TYPE_C128 ? 16 : type == HD_TYPE_C64 || type == HD_TYPE_F64 ? 8 : type == HD_TYPE_F32 ? 4 : 2;
}

/* The abilities of a library. The structure is plain data, which Heddle sends between processes. */
typedef struct hdi_blas_facts {
    /* Bit t: the library makes products of hd_type t. 0: there is no library, and `why` gives the
     * reason. */
    uint32_t types;
    uint32_t unused;
    uint64_t most;       /* the largest m, n, k and pitch */
    uint64_t most_count; /* the most matrices in one call */
    char name[64];       /* "cublas 13.0" */
    /* One line: the reason why no library is used, or a remark about the library; "": there is
     * nothing to say. */
    char why[448];
} hdi_blas_facts;

typedef struct hdi_blas_config {
    const hdi_driver *driver;
    const char *library; /* the option blas */
    hdcu_stream stream;
    hdcu_deviceptr workspace; /* device memory that only products in that stream use; 0: none */
    uint64_t workspace_bytes;
    /* 0: the program sets the number of the library's threads. Otherwise this process is a worker,
     * and `share` workers divide the processors among them. */
    int share;
} hdi_blas_config;

/* A library ready for one stream. */
typedef struct hdi_blas hdi_blas;
typedef struct hdi_blas_calls {
    hdcu_result (*product)(hdi_blas *blas, const hdi_product *product);
    void (*close)(hdi_blas *blas, bool driver_usable);
} hdi_blas_calls;

struct hdi_blas {
    const hdi_blas_calls *calls;
    const hdi_driver *driver;
    hdi_blas_facts facts;
};

/* Opens a library for one stream. *out is the library, and *facts its abilities.
 * Returns SUCCESS with *out NULL if no library works; then facts->why lists the attempts.
 * Errors: the driver lacks memory, or does no more work. *call names the call that failed, and
 * another try may succeed. The function writes *facts only on success. */
hdcu_result hdi_blas_open(const hdi_blas_config *config, hdi_blas **out, hdi_blas_facts *facts, const char **call);

/* Puts one product into the stream. On failure nothing was put there. */
static inline hdcu_result hdi_blas_product(hdi_blas *blas, const hdi_product *product)
{
    return blas->calls->product(blas, product);
}

/* Closes a library. All products of `blas` must have ended before, unless driver_usable is false.
 * Ignores NULL. */
void hdi_blas_close(hdi_blas *blas, bool driver_usable);

/* The bytes of device memory that this provider's library gets for each stream, on a device of this
 * compute capability. 0: the library gets no memory. */
uint64_t hdi_blas_workspace(const hdi_provider *provider, int compute_major);

/* One kind of libraries (hdi_provider.blas). */
typedef struct hdi_blas_source {
    /* The names of libraries, in the order in which blas=auto tries them; NULL ends the list. */
    const char *const *names;
    /* Opens the library of that name, as hdi_blas_open does. If the library does not open, *out is
     * unchanged, and `why` gets the reason. */
    hdcu_result (*open)(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why, const char **call);
    /* for hdi_blas_workspace; NULL: the library needs no device memory */
    uint64_t (*workspace)(int compute_major);
} hdi_blas_source;

/* ---- between blas.c and the files of libraries ---- */

/* Opens the library `name`. On failure it returns NULL and adds the reason to `why` (of a
 * hdi_blas_facts). */
void *hdi_blas_load(const char *name, char *why);
/* Adds a text to the line `why`, after "; " if the line is not empty. Text that does not fit is cut
 * off. */
void hdi_blas_say(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Stores the address of the entry `name` in *function, a pointer to a function. False: the library
 * lacks the entry. */
bool hdi_blas_entry(void *library, const char *name, void *function);
/* Counts a call of the library for the options fault and delay. Returns SUCCESS, or the code to
 * fail with. */
enum { HDI_BLAS_OPEN, HDI_BLAS_PRODUCT };
hdcu_result hdi_blas_fault(const hdi_driver *driver, int which);

/* In cublas.c and host.c: their kinds of libraries. */
extern const hdi_blas_source hdi_blas_cublas, hdi_blas_host;

#endif
