/* describe_image.h - recognises an image, selects the part that a driver can load, and finds the
 * image's variables and the parameters of its kernels.
 *
 * Threads: any. An hdi_image belongs to its module. After hdi_image_open, no thread changes it.
 * Locks: none.
 * Blocking: as in listing.h and names.h.
 */
#ifndef HDI_KERNEL_DESCRIBE_IMAGE_H
#define HDI_KERNEL_DESCRIBE_IMAGE_H

#include <heddle/status.h>
#include <stdbool.h>
#include <stddef.h>
#include "engine/port.h"
#include "kernel/listing.h"

typedef enum hdi_image_kind {
    HDI_IMAGE_NONE = 0,
    HDI_IMAGE_KERNEL_FILE,
    HDI_IMAGE_PTX,
    HDI_IMAGE_BINARY /* a cubin or fatbin */
} hdi_image_kind;

/* A kernel's name in the program, such as "scale<float>", and the symbol that the compiler made for
 * it. */
typedef struct hdi_alias {
    char *name, *symbol;
} hdi_alias;

typedef struct hdi_image {
    hdi_image_kind kind;
    unsigned char *bytes; /* owned: a copy of the image, with a zero behind it */
    size_t size;
    hdi_listing listing; /* of PTX, cubins and fatbins */
    hdi_alias *aliases;  /* owned, with their texts */
    size_t n_aliases;
} hdi_image;

/* Recognises an image and copies it.
 * *code, *code_bytes: the code for cuModuleLoadData. For `host` that is the CPU code of a kernel
 * file. For other drivers it is the kernel file's PTX, or the image itself. *code is valid as long
 * as `out`.
 * Errors:
 * - IMAGE: the image is of no known kind, contains a texture reference, or lacks a function
 * - HOST_MEMORY */
hd_status hdi_image_open(const void *content, size_t size, bool host, hdi_image *out, const void **code,
                         size_t *code_bytes);
void hdi_image_release(hdi_image *image);

/* Adds an alias. Both texts are copied. Errors: HOST_MEMORY. */
hd_status hdi_image_add_alias(hdi_image *image, const char *name, const char *symbol);

/* Finds the kernel that a program means by `wanted`. *symbol points into the image, or is `wanted`
 * itself. If a part of the image could not be read, the call succeeds even if it found no kernel,
 * and *symbol is then `wanted`. `shown` is the kernel's name for messages.
 * Errors:
 * - NOT_FOUND: no such kernel, or several; the message lists them
 * - HOST_MEMORY */
hd_status hdi_image_find(const hdi_image *image, const char *wanted, const char **symbol,
                         char shown[HDI_KERNEL_NAME_BYTES]);

/* A variable that a program means. */
typedef struct hdi_image_global {
    const char *symbol; /* owned by the image, or the requested text */
    bool constant;      /* no kernel writes it */
} hdi_image_global;

/* Finds the variable that a program means. If a part of the image could not be read, the call
 * succeeds even if it found no variable, and the symbol is then `wanted`.
 * Errors:
 * - NOT_FOUND: no such variable, or several; the message lists them
 * - HOST_MEMORY, IMAGE */
hd_status hdi_image_find_global(const hdi_image *image, const char *wanted, hdi_image_global *out);

/* How hd_launch packs the usual kind of argument for a parameter (hdi_param.usual). */
enum {
    HDI_PARAM_ODD = 0,
    HDI_PARAM_BUFFER, /* a buffer whose access is known */
    HDI_PARAM_4,      /* a number of 4 bytes */
    HDI_PARAM_8
};

/* One parameter. If `kind` is HD_ARG_NONE, only the size is known. */
typedef struct hdi_param {
    uint32_t kind;   /* the first two members are laid out as in hd_arg: kind, then access */
    uint32_t access; /* hd_access bits; 0: unknown */
    uint32_t offset, size;
    uint32_t usual; /* HDI_PARAM_* */
    /* For a buffer: the type of its elements, as in the `access` of an hd_arg; 0: unknown. */
    uint32_t element;
    char name[64];
} hdi_param;

/* The parameters of a kernel. The caller frees `params` with free. */
typedef struct hdi_signature {
    bool described; /* the fields below are known */
    uint32_t n_params, argument_bytes;
    hdi_param *params;
} hdi_signature;

/* Fills in the parameters of the kernel with this symbol. If the image does not describe them, *out
 * stays unchanged.
 * Errors:
 * - NOT_FOUND: no such kernel; the message lists the kernels
 * - LIMIT: more bytes of parameters than a launch has room for
 * - IMAGE, HOST_MEMORY */
hd_status hdi_image_describe(const hdi_image *image, const char *symbol, hdi_signature *out);

/* Fills in the parameters from the driver's facts, for an image that was not read. Leaves *out
 * unchanged if the driver does not report the parameters.
 * Errors: LIMIT (as for hdi_image_describe), HOST_MEMORY. */
hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, const char *name, hdi_signature *out);

/* The names of the kernels, or of the variables, as "a, b, c", cut to `bytes`. */
void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes);
void hdi_image_global_names(const hdi_image *image, char *out, size_t bytes);

#endif
