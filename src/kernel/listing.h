/* listing.h - the contents of an image of CUDA code: kernels with their parameters, variables,
 * texture references, missing functions.
 *
 * An image is PTX text, a cubin or a fatbin, and can be damaged. A part of it can be unreadable,
 * for example because a later toolkit wrote it. Then `unread` gives the reason, and the driver
 * decides whether it can load the part.
 *
 * Threads: any; the only state is a decompressor's library, which is opened once.
 * Locks: none.
 * Blocking: the first compressed part opens a library.
 * Always:
 * - a byte is read only after a check that it is inside the image
 * - every kernel and every variable is listed once, and a kernel's parameters lie inside its
 *   argument bytes
 * - the time is proportional to the size of the image and of its unpacked contents
 */
#ifndef HDI_KERNEL_LISTING_H
#define HDI_KERNEL_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

/* One parameter: its kind (hd_arg_kind) and its place in the argument block. HD_ARG_NONE: only the
 * size is known. */
typedef struct hdi_listed_param {
    uint32_t kind, offset, size;
} hdi_listed_param;

/* A kernel, or a variable in memory of the device. */
typedef struct hdi_listed {
    char *symbol;   /* the symbol as in the image */
    char *readable; /* demangled; NULL: the symbol is not mangled, or no demangler is installed */
    bool constant;  /* a variable: in constant memory, so no kernel writes it */
    bool described; /* a kernel: the fields below are known */
    uint32_t n_params, argument_bytes;
    hdi_listed_param *params;
} hdi_listed;

typedef struct hdi_listed_names {
    hdi_listed *of;
    uint32_t n, n_places;
    /* a hash table by symbol: each entry is 1 + an index in `of`, or 0; at most half is in use */
    uint32_t *places;
} hdi_listed_names;

enum { HDI_LISTED_PARAMS_MAX = 4096, HDI_LISTED_NAME_BYTES = 128 };

typedef struct hdi_listing {
    hdi_listed_names kernels, variables;
    /* The name of a texture, surface or sampler reference; "": none. */
    char texture[HDI_LISTED_NAME_BYTES];
    /* the name of a function that must still be linked in; "": none is known */
    char missing[HDI_LISTED_NAME_BYTES];
    bool intermediate; /* the image contains code that a link compiles */
    /* the image contains device code that still needs a link */
    bool relocatable;
    /* The reason why a part of the image was not read, so that the listing may lack kernels. "":
     * the whole image was read. */
    char unread[HDI_LISTED_NAME_BYTES];
} hdi_listing;

/* Lists a cubin, a fatbin, or PTX text, which ends at `bytes` or at a zero before that. The caller
 * calls hdi_listing_release, even after a failure.
 * Errors: IMAGE (PTX with an error; the message names the line), HOST_MEMORY. */
hd_status hdi_listing_read(const void *image, size_t bytes, hdi_listing *out);
void hdi_listing_release(hdi_listing *listing);

/* ---- parts, each of which adds to the listing ---- */

/* cubin.c: an ELF file of GPU code. Errors: HOST_MEMORY. */
hd_status hdi_listing_add_cubin(hdi_listing *listing, const void *image, size_t bytes);

/* fatbin.c: PTX and cubins for several GPUs, each perhaps compressed. Errors: HOST_MEMORY. */
hd_status hdi_listing_add_fatbin(hdi_listing *listing, const void *image, size_t bytes);
bool hdi_fatbin_detect(const void *image, size_t bytes);

/* listing.c: functions for the files that add parts */
hd_status hdi_listing_add_ptx(hdi_listing *listing, const char *text, size_t bytes);
void hdi_listing_unread(hdi_listing *listing, const char *why);

/* Adds a kernel, or finds it if another part contains the same symbol. NULL: no memory. */
hdi_listed *hdi_listing_kernel(hdi_listing *listing, const char *symbol, size_t length);

/* Adds a variable of the source, or finds it. Variables that a compiler made for itself, such as
 * texts, are left out. Errors: HOST_MEMORY. */
hd_status hdi_listing_variable(hdi_listing *listing, const char *symbol, size_t length, bool constant);

/* Sets the kernel's parameters. The listing takes over `params`, and frees them later. If the
 * kernel is already described, this function frees `params` at once. */
void hdi_listing_describe(hdi_listed *kernel, hdi_listed_param *params, uint32_t n);

/* Copies a name that may contain anything. Unprintable characters become "?". */
void hdi_listing_name(char out[HDI_LISTED_NAME_BYTES], const char *name, size_t length);

#endif
