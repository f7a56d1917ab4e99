/* code_cache.h - compiled code in the user's cache folder, for later calls and processes.
 *
 * A file stores its key, which is everything that its code was made of, and is used only if the key
 * is the same. Keys do not include the contents of other files, so sources that include any are not
 * cached (hdi_code_cache_allows).
 *
 * Threads: any, also of other processes. Locks: none.
 * Blocking: files are read and written.
 * Always:
 * - a file gets its name only once it is complete, and a damaged file is ignored
 * - files of other users are not read
 * - after each write the folder holds at most 256 MiB of code; the oldest files are deleted first
 */
#ifndef HDI_KERNEL_CODE_CACHE_H
#define HDI_KERNEL_CODE_CACHE_H

#include <stdbool.h>
#include "kernel/toolkit.h"

/* The inputs that code is made of. */
typedef struct hdi_code_key {
    char *bytes; /* owned */
    size_t size;
} hdi_code_key;

/* True if the code depends on source and options only, because they name no file. */
bool hdi_code_cache_allows(const char *source, const hd_compile_options *options);

/* False: no memory. */
bool hdi_code_key_make(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options, const char *arch,
                       hdi_code_key *out);
void hdi_code_key_release(hdi_code_key *key);

/* Loads code; `folder` exists. False: the code is not in the cache, or there is no memory. */
bool hdi_code_cache_load(const char *folder, const hdi_code_key *key, hdi_made_code *out);
/* Saves code. A failure does not fail the caller: the code is then not kept. */
void hdi_code_cache_save(const char *folder, const hdi_code_key *key, const hdi_made_code *made);

#endif
