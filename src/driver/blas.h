/* blas.h - matrix products by a library that is found at run time: cuBLAS for nvidia, an installed BLAS for host devices.
 *
 * Nothing is linked: libraries are opened with dlopen when the first product in a lane asks for them, and stay in the process, as their
 * threads and exit functions cannot be taken back.
 *
 * Threads: opening and closing any; a product is made by whoever runs the lane's engine. Blocking: opening takes long (it reads hundreds of
 * megabytes, and cuBLAS allocates device memory); a product is put into the stream and not waited for.
 * Locks: see the two files. Always: the device's context is current at every call.
 */
#ifndef HDI_DRIVER_BLAS_H
#define HDI_DRIVER_BLAS_H

#include <stdarg.h>
#include "driver/driver.h"
#include "driver/product.h"

/* What is known of a library. Plain data: it travels between processes. */
typedef struct hdi_blas_facts {
    uint32_t types; /* bit t: makes products of hd_type t. 0: there is no library, and `why` says so */
    uint32_t unused;
    uint64_t most;       /* m, n, k and pitches at most */
    uint64_t most_count; /* matrices in one call */
    char name[64];       /* "cublas 13.0" */
    char why[448];       /* why there is no library, or what else there is to say; one line, "": nothing */
} hdi_blas_facts;

typedef struct hdi_blas_config {
    const hdi_driver *driver;
    const char *library; /* the option blas */
    hdcu_stream stream;
    hdcu_deviceptr workspace; /* for products in that stream alone; 0: none */
    uint64_t workspace_bytes;
    int share; /* 0: the library's threads are the program's business; else one of so many processes that use it side by side, of which this one
                  is ours alone */
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

/* SUCCESS with *out NULL: there is no library that works here, facts->why says what was tried. Other codes: the driver has no memory, or does
 * no more work; *call names what said so, and another try may go better. `facts` is written on success only. */
hdcu_result hdi_blas_open(const hdi_blas_config *config, hdi_blas **out, hdi_blas_facts *facts, const char **call);

/* Puts one call into the stream. A code other than SUCCESS: nothing was put there. */
static inline hdcu_result hdi_blas_product(hdi_blas *blas, const hdi_product *product)
{
    return blas->calls->product(blas, product);
}

/* Nothing of it is under way, or driver_usable is false. NULL is ignored. */
void hdi_blas_close(hdi_blas *blas, bool driver_usable);

/* Device memory that a library of this provider wants for each stream, for a device of this compute capability; 0: none. */
uint64_t hdi_blas_workspace(const hdi_provider *provider, int compute_major);

/* What a provider has for matrix products (hdi_provider.blas). */
typedef struct hdi_blas_source {
    const char *const *names; /* libraries, in the order in which blas=auto tries them; NULL ends the list */
    /* Opens the library of that name, as hdi_blas_open does. */
    hdcu_result (*open)(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why, const char **call);
    uint64_t (*workspace)(int compute_major); /* for hdi_blas_workspace; NULL: no device memory */
} hdi_blas_source;

extern const hdi_blas_source hdi_blas_cublas, hdi_blas_host;

/* ---- between blas.c and the providers' files ---- */

/* Opens the library NAME; on failure adds why to `why` (of a hdi_blas_facts) and returns NULL. */
void *hdi_blas_load(const char *name, char *why);
/* Adds a sentence to the line. */
void hdi_blas_say(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The entry of that name into *function, a pointer to function. False: there is none. */
bool hdi_blas_entry(void *library, const char *name, void *function);
/* What the option fault has for a call of the library: SUCCESS, or the code to fail with. */
enum { HDI_BLAS_OPEN, HDI_BLAS_PRODUCT };
hdcu_result hdi_blas_fault(const hdi_driver *driver, int which);

/* blas_cublas.c, host/blas.c: hdi_blas_open for the library of that name, which is called `library` in messages. */
hdcu_result hdi_blas_open_cublas(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why,
                                 const char **call);
hdcu_result hdi_blas_open_host(const hdi_blas_config *config, const char *name, hdi_blas **out, char *why,
                               const char **call);

#endif
