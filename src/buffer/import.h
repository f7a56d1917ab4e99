/* import.h - imports of the program's memory, for callers that are inside a call of the runtime.
 *
 * Threads: any. Locks: no lock is held during driver calls. Blocking: an import waits for driver
 * calls.
 */
#ifndef HDI_BUFFER_IMPORT_H
#define HDI_BUFFER_IMPORT_H

#include <heddle/import.h>
#include "buffer/buffer.h"

/* These functions do the work of hd_import and hd_import_host. Errors: as for these calls. */
hd_status hdi_import(hd_runtime *rt, int device, uint64_t address, size_t bytes, const hd_import_options *options,
                     const void *call_site, hd_buffer **out);
hd_status hdi_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options,
                          const void *call_site, hd_buffer **out);

#endif
