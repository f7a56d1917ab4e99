/* code_cache.h - compiled code in the user's cache folder, for later calls and processes.
 *
 * A file has all that its code was made of, its key, and is used only where that is the same. Keys do not have the contents of other
 * files, so sources that include any are left out (hdi_code_cache_allows).
 *
 * Threads: any, also of other processes. Locks: none.
 * Blocking: files are read and written.
 * Always:
 * - a file has its name only once it is whole, and a damaged one counts as none
 * - files of other users are not read
 * - after each write the folder has 256 MiB of code at most, and the oldest is deleted first
 */
#ifndef HDI_KERNEL_CODE_CACHE_H
#define HDI_KERNEL_CODE_CACHE_H

#include <stdbool.h>
#include "kernel/toolkit.h"

/* What code is made of. */
typedef struct hdi_code_key {
    char *bytes; /* owned */
    size_t size;
} hdi_code_key;

/* Whether the result depends on source and options only: no file is named in them. */
bool hdi_code_cache_allows(const char *source, const hd_compile_options *options);

/* False: no memory. */
bool hdi_code_key_make(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options, const char *arch,
                       hdi_code_key *out);
void hdi_code_key_release(hdi_code_key *key);

/* `folder` exists. False: there is none, or no memory. */
bool hdi_code_cache_load(const char *folder, const hdi_code_key *key, hdi_made_code *out);
/* A failure is no failure of the caller: nothing is kept. */
void hdi_code_cache_save(const char *folder, const hdi_code_key *key, const hdi_made_code *made);

#endif
