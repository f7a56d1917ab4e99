/* blas.h - matrix products by a library found at run time: cuBLAS for nvidia, an installed BLAS for
 * host devices.
 *
 * Heddle is linked with no such library. dlopen opens one when the first product in a lane needs
 * it. The library then stays in the process, since its threads and exit functions cannot be
 * removed.
 * Threads: any thread opens and closes. The thread that runs the lane's engine makes products.
 * Locks: see cublas.c and host.c.
 * Blocking: opening takes long, since it reads hundreds of megabytes and cuBLAS allocates device
 * memory. Closing may wait for the device. A product is put into the stream and not waited for.
 * Always: the caller makes the device's context current before each call.
 */
#ifndef HDI_BLAS_BLAS_H
#define HDI_BLAS_BLAS_H

#include <stdarg.h>
#include <heddle/tensor.h>
#include "driver/driver.h"

/* One call for matrix products, in the form of a BLAS library. Plain data, which lies in a lane's
 * command ring and is sent between processes.
 * For each i below `count`: C_i = alpha op(A_i) op(B_i) + beta C_i. C_i has m rows and n columns,
 * op(A_i) is m x k, and op(B_i) is k x n. Matrices are stored by columns: element (row, column) of
 * C_i lies at `c + (i * step_c + row + column * pitch_c) * size`. op() transposes if transpose_a or
 * transpose_b is set. */
typedef struct hdi_product {
    uint32_t first; /* the first word of its command (engine/channel.h) */
    uint8_t type;   /* hd_type: f16, bf16, f32, f64, c64, c128 */
    uint8_t transpose_a, transpose_b;
    uint8_t unused;
    uint64_t a, b, c;
    uint64_t m, n, k; /* none is 0 */
    /* Elements from one stored column to the next, at least a column's length. */
    uint64_t pitch_a, pitch_b, pitch_c;
    /* Elements from one matrix to the next; those of a and b may be 0. */
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

/* The abilities of a library. This is plain data, which is sent between processes. */
typedef struct hdi_blas_facts {
    /* Bit t: makes products of hd_type t. 0: no library, and `why` gives the reason. */
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
    hdcu_deviceptr workspace; /* device memory for products in that stream alone; 0: none */
    uint64_t workspace_bytes;
    /* 0: the program sets the number of the library's threads. Otherwise this is a worker process,
     * and `share` worker processes share the processors. */
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
 * Returns SUCCESS with *out NULL if no library works; facts->why then lists the attempts.
 * Errors: the driver has no memory, or does no more work. *call names the call that failed, and
 * another try may succeed. `facts` is written on success only. */
hdcu_result hdi_blas_open(const hdi_blas_config *config, hdi_blas **out, hdi_blas_facts *facts, const char **call);

/* Puts one product into the stream. On failure nothing was put there. */
static inline hdcu_result hdi_blas_product(hdi_blas *blas, const hdi_product *product)
{
    return blas->calls->product(blas, product);
}

/* Closes a library. All products of `blas` must have ended before, unless driver_usable is false.
 * Ignores NULL. */
void hdi_blas_close(hdi_blas *blas, bool driver_usable);

/* Bytes of device memory that this provider's library gets for each stream, on a device of this
 * compute capability. 0: none. */
uint64_t hdi_blas_workspace(const hdi_provider *provider, int compute_major);

/* One kind of libraries (hdi_provider.blas). */
typedef struct hdi_blas_source {
    /* Libraries, in the order in which blas=auto tries them; NULL ends the list. */
    const char *const *names;
    /* Opens the library of that name, as hdi_blas_open does. Without a library, *out is unchanged
     * and `why` gets the reason. */
    hdcu_result (*open)(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why, const char **call);
    /* for hdi_blas_workspace; NULL: it needs no device memory */
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
 * lacks it. */
bool hdi_blas_entry(void *library, const char *name, void *function);
/* Counts a call of the library for the options fault and delay. Returns SUCCESS, or the code to
 * fail with. */
enum { HDI_BLAS_OPEN, HDI_BLAS_PRODUCT };
hdcu_result hdi_blas_fault(const hdi_driver *driver, int which);

/* In cublas.c and host.c: their kinds of libraries. */
extern const hdi_blas_source hdi_blas_cublas, hdi_blas_host;

#endif
