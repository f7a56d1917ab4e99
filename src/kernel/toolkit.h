/* toolkit.h - NVRTC, which compiles CUDA C++, and nvJitLink, which links device code: libraries of
 * the CUDA toolkit, opened at run time.
 *
 * Threads: any. Locks: none of this file. Blocking: hdi_nvrtc_open and hdi_link read a library from
 * disk; to compile and to link takes long.
 * Always: an opened library stays open, since it may run its own threads and handlers.
 */
#ifndef HDI_KERNEL_TOOLKIT_H
#define HDI_KERNEL_TOOLKIT_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/module.h>
#include "kernel/describe_image.h"

/* The code that a library made, and the symbols of the requested names. */
typedef struct hdi_made_code {
    char *bytes; /* owned; a zero follows */
    size_t size;
    hdi_alias *aliases; /* owned, with their texts */
    size_t n_aliases;
} hdi_made_code;

void hdi_made_code_release(hdi_made_code *made);

/* Opens a library. `option`: "auto" for the first of `names` that is installed, "" for none, or the
 * name of the library. `why` (sizeof hdi_blas_facts.why) gets the reasons why libraries were not
 * opened. NULL: no library was opened. */
void *hdi_toolkit_open(const char *option, const char *const *names, char *why);

/* ---- NVRTC ---- */

typedef struct hdi_nvrtc {
    struct hdi_nvrtc_entries *entries; /* owned */
    int major, minor;                  /* of the library */
    /* The size of the library's file, since an update may keep the version. 0: the file was not
     * found. */
    uint64_t file_bytes;
    int64_t file_time; /* ns, last modified */
} hdi_nvrtc;

/* Opens NVRTC. `option`: the option of that name. The caller releases *out. Errors: UNSUPPORTED
 * (none is installed, or it is too old), HOST_MEMORY. */
hd_status hdi_nvrtc_open(const char *option, hdi_nvrtc *out);
void hdi_nvrtc_release(hdi_nvrtc *nvrtc);

/* Chooses the compiler's option for the devices' compute capability; `lowest` is 10 * major + minor
 * of the lowest one. `all_alike`: all devices have the same capability, so the library makes
 * machine code if it can. Otherwise it makes PTX.
 * Errors: UNSUPPORTED. */
hd_status hdi_nvrtc_choose(const hdi_nvrtc *nvrtc, int lowest, bool all_alike, char out[32]);

/* Compiles a source. All fields of `options` are set. Errors: IMAGE (the message gives the first
 * error of the log), ARGUMENT (an option), HOST_MEMORY, UNSUPPORTED. */
hd_status hdi_nvrtc_compile(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options,
                            const char *arch, hdi_made_code *out);

/* The text of heddle/kernel.h, which sources may include. A zero follows. */
extern const char hdi_kernel_header[], hdi_kernel_header_end[];

/* ---- nvJitLink ---- */

/* Links parts for a compute capability, 10 * major + minor.
 * Errors: UNSUPPORTED (no library is installed), ARGUMENT (a part is no device code), IMAGE (the
 * message gives the log's first error), HOST_MEMORY. */
hd_status hdi_link(const char *option, const hd_code_part *parts, size_t n, int compute, hdi_made_code *out);

#endif
