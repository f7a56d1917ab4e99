/* describe_image.h - what an image is, which part of it a driver can load, and what is known of its kernels' parameters.
 *
 * Threads: any; an hdi_image belongs to its module and is read-only once opened. Locks: none.
 */
#ifndef HDI_KERNEL_DESCRIBE_IMAGE_H
#define HDI_KERNEL_DESCRIBE_IMAGE_H

#include "engine/port.h"
#include <heddle/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum hdi_image_kind {
    HDI_IMAGE_NONE = 0,
    HDI_IMAGE_KERNEL_FILE,
    HDI_IMAGE_PTX,
    HDI_IMAGE_BINARY /* cubin or fatbin: only the driver knows what is in it */
} hdi_image_kind;

typedef struct hdi_image {
    hdi_image_kind kind;
    unsigned char *bytes; /* a copy of a kernel file, or of PTX with a terminating zero; owned */
    size_t size;
} hdi_image;

/* Recognises an image; *code (*code_bytes long) is what cuModuleLoadData takes: for `host` the CPU code of a kernel file, else its PTX, or the
 * image itself. *code stays valid with `image` and `out`. Errors: IMAGE, HOST_MEMORY. */
hd_status hdi_image_open(const void *image, size_t size, bool host, hdi_image *out, const void **code,
                         size_t *code_bytes);
void hdi_image_release(hdi_image *image);

/* Parameters whose usual arguments a launch takes by a few instructions. */
enum {
    HDI_PARAM_ODD = 0,
    HDI_PARAM_BUFFER, /* and it is known what the kernel does with it */
    HDI_PARAM_4,      /* a number of so many bytes */
    HDI_PARAM_8
};

/* One parameter. kind HD_ARG_NONE: only the size is known. */
typedef struct hdi_param {
    uint32_t kind;   /* the first two as in hd_arg */
    uint32_t access; /* hd_access bits; 0: not known */
    uint32_t offset, size;
    uint32_t usual; /* HDI_PARAM_* */
    char name[64];
} hdi_param;

/* The parameters of a kernel, to be freed with free(params). */
typedef struct hdi_signature {
    bool described; /* they are known at all */
    uint32_t n_params, argument_bytes;
    hdi_param *params;
} hdi_signature;

/* Fills in the parameters of a kernel when the image describes them. Errors: NOT_FOUND (the message lists the kernels), LIMIT
 * (more bytes of parameters than a launch has room for), HOST_MEMORY. */
hd_status hdi_image_describe(const hdi_image *image, const char *name, hdi_signature *out);

/* The same from what the driver says, for a cubin or fatbin; leaves it as it is where it does not tell. Errors: LIMIT (likewise),
 * HOST_MEMORY. */
hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, const char *name, hdi_signature *out);

/* "a, b, c", cut to `bytes`; "" when the image does not say. */
void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes);

#endif
