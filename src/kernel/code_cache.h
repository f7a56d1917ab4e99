/* code_cache.h - compiled code in the user's cache folder, for later calls and processes.
 *
 * The key of code consists of all inputs from which the code was made. A file contains the code and
 * its key, and serves only a request with the same key. A key does not contain the contents of
 * files that the source includes. So the code of such a source is not cached
 * (hdi_code_cache_allows).
 *
 * Threads: any, also of other processes. Locks: none.
 * Blocking: files are read and written.
 * Always:
 * - a file gets its name only once it is complete, and a damaged file is ignored
 * - files of other users are not read
 * - after each write the folder contains at most 256 MiB of code; the files whose last use is
 *   longest ago are deleted first
 */
#ifndef HDI_KERNEL_CODE_CACHE_H
#define HDI_KERNEL_CODE_CACHE_H

#include <stdbool.h>
#include "kernel/toolkit.h"

/* The inputs from which code was made. */
typedef struct hdi_code_key {
    char *bytes; /* owned */
    size_t size;
} hdi_code_key;

/* True if the code depends only on the source and the options, since neither names a file. */
bool hdi_code_cache_allows(const char *source, const hd_compile_options *options);

/* False: no memory. */
bool hdi_code_key_make(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options, const char *arch,
                       hdi_code_key *out);
void hdi_code_key_release(hdi_code_key *key);

/* Loads code; `folder` exists. False: the code is not in the cache, or there is no memory. */
bool hdi_code_cache_load(const char *folder, const hdi_code_key *key, hdi_made_code *out);
/* Saves code. If this fails, the code is not kept, and the caller gets no error. */
void hdi_code_cache_save(const char *folder, const hdi_code_key *key, const hdi_made_code *made);

#endif
