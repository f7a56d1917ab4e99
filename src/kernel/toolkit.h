/* toolkit.h - NVRTC, which compiles CUDA C++, and nvJitLink, which links device code: libraries of the CUDA toolkit, opened at run
 * time.
 *
 * Threads: any. Locks: none of our own. Blocking: opening reads a library from disk; compiling and linking take long.
 * Always: a library that was opened stays open, since it may have threads and handlers of its own.
 */
#ifndef HDI_KERNEL_TOOLKIT_H
#define HDI_KERNEL_TOOLKIT_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/module.h>
#include "kernel/describe_image.h"

/* Code that was made, and the symbols of the names that were asked for. */
typedef struct hdi_made_code {
    char *bytes; /* owned; a zero follows */
    size_t size;
    hdi_alias *aliases; /* owned, with their texts */
    size_t n_aliases;
} hdi_made_code;

void hdi_made_code_release(hdi_made_code *made);

/* Opens the first of `names` that is there, or what `option` names instead. `why` (sizeof hdi_blas_facts.why) gets the reasons
 * for which others were not taken. NULL: none is there. */
void *hdi_toolkit_open(const char *option, const char *const *names, char *why);

/* ---- NVRTC ---- */

typedef struct hdi_nvrtc {
    struct hdi_nvrtc_entries *entries; /* owned */
    int major, minor;                  /* of the library */
} hdi_nvrtc;

/* `option`: of that name. To be released. Errors: UNSUPPORTED (there is none, or it is too old), HOST_MEMORY. */
hd_status hdi_nvrtc_open(const char *option, hdi_nvrtc *out);
void hdi_nvrtc_release(hdi_nvrtc *nvrtc);

/* The option for the devices' compute capability, 10 * major + minor of the lowest. `all_alike`: all devices have it, so that
 * machine code is made where the library can. Else it is PTX.
 * Errors: UNSUPPORTED. */
hd_status hdi_nvrtc_choose(const hdi_nvrtc *nvrtc, int lowest, bool all_alike, char out[32]);

/* Compiles a source. `options` has all its fields. Errors: IMAGE (the message has the first error of the log), ARGUMENT (an option),
 * HOST_MEMORY, UNSUPPORTED. */
hd_status hdi_nvrtc_compile(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options,
                            const char *arch, hdi_made_code *out);

/* heddle/kernel.h, which sources may include. A zero follows. */
extern const char hdi_kernel_header[], hdi_kernel_header_end[];

/* ---- nvJitLink ---- */

/* Links parts for a compute capability, 10 * major + minor.
 * Errors: UNSUPPORTED (there is no library), ARGUMENT (a part is no device code), IMAGE (the message has the log's first error),
 * HOST_MEMORY. */
hd_status hdi_link(const char *option, const hd_code_part *parts, size_t n, int compute, hdi_made_code *out);

#endif
