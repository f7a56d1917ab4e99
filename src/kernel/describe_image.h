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

struct hd_kernel;

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

/* Fills in the parameters of the kernel when the image describes them (k->described). Errors: NOT_FOUND (the message lists the
 * kernels), HOST_MEMORY. */
hd_status hdi_image_describe(const hdi_image *image, const char *name, struct hd_kernel *k);

/* The same from what the driver says, for a cubin or fatbin; leaves k->described false where it does not tell. Errors: HOST_MEMORY. */
hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, struct hd_kernel *k);

/* "a, b, c", cut to `bytes`; "" when the image does not say. */
void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes);

#endif
