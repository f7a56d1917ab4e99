/* describe_image.h - recognises an image, selects the part that a driver can load, and finds its kernels' parameters.
 *
 * Threads: any. An hdi_image belongs to its module and is read-only once opened.
 * Locks: none.
 * Blocking: none.
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
    HDI_IMAGE_BINARY /* a cubin or fatbin: only the driver can read it */
} hdi_image_kind;

typedef struct hdi_image {
    hdi_image_kind kind;
    unsigned char *bytes; /* owned: a copy of the image, with a zero behind it */
    size_t size;
} hdi_image;

/* Recognises an image and copies it.
 * *code, *code_bytes: what cuModuleLoadData takes. For `host` that is the CPU code of a kernel file. Else it is the
 * kernel file's PTX, or the image itself. *code stays valid as long as `out` does.
 * Errors: IMAGE, HOST_MEMORY. */
hd_status hdi_image_open(const void *image, size_t size, bool host, hdi_image *out, const void **code,
                         size_t *code_bytes);
void hdi_image_release(hdi_image *image);

/* How hd_launch packs the usual argument of a parameter (hdi_param.usual). */
enum {
    HDI_PARAM_ODD = 0,
    HDI_PARAM_BUFFER, /* a buffer whose access is known */
    HDI_PARAM_4,      /* a number of 4 bytes */
    HDI_PARAM_8
};

/* One parameter. With kind HD_ARG_NONE only the size is known. */
typedef struct hdi_param {
    uint32_t kind;   /* begins as hd_arg does: kind, then access */
    uint32_t access; /* hd_access bits; 0: unknown */
    uint32_t offset, size;
    uint32_t usual; /* HDI_PARAM_* */
    char name[64];
} hdi_param;

/* The parameters of a kernel. The caller frees `params` with free. */
typedef struct hdi_signature {
    bool described; /* the fields below are known */
    uint32_t n_params, argument_bytes;
    hdi_param *params;
} hdi_signature;

/* Fills in the parameters of a kernel when the image describes them. Leaves *out as it is for a cubin or fatbin.
 * Errors:
 * - NOT_FOUND: no such kernel; the message lists the kernels
 * - LIMIT: more bytes of parameters than a launch has room for
 * - IMAGE, HOST_MEMORY */
hd_status hdi_image_describe(const hdi_image *image, const char *name, hdi_signature *out);

/* The same from the driver's facts, for a cubin or fatbin. Leaves *out as it is where the driver does not report the
 * parameters.
 * Errors: LIMIT (likewise), HOST_MEMORY. */
hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, const char *name, hdi_signature *out);

/* The names of the kernels as "a, b, c", cut to `bytes`. "" for a cubin or fatbin. */
void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes);

#endif
