/* import.h - memory that the library did not make, as buffers: the list of it, and the end of its use.
 *
 * Threads: any; the keeper is one of the library's own, which starts when it is first needed.
 * Locks: one for the list, not held while the driver or the program is called.
 * Blocking: an import, for calls of the driver. The stop of the keeper, for a function of the program that it is in.
 * Always: imports that are not freed do not overlap. `released` of each is called once, or never where work did not end.
 */
#ifndef HDI_BUFFER_IMPORT_H
#define HDI_BUFFER_IMPORT_H

#include <heddle/import.h>
#include "buffer/buffer.h"

/* What is imported of a device's memory, or of the host's (HDI_OWNER_HOST). */
typedef struct hdi_import_info {
    uint64_t bytes, count; /* in buffers that are not freed, or in use after that */
    uint64_t pinned_bytes; /* of the host's: that the library pinned for it, in whole pages */
} hdi_import_info;

/* Stop ends the keeper. Release ends every import that is left. */
extern const hdi_lifetime hdi_imports_lifetime;

/* hd_import and hd_import_host for callers inside a call on the runtime. Errors: theirs. */
hd_status hdi_import(hd_runtime *rt, int device, uint64_t address, size_t bytes, const hd_import_options *options,
                     const void *call_site, hd_buffer **out);
hd_status hdi_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options,
                          const void *call_site, hd_buffer **out);

void hdi_imports_get_info(hd_runtime *rt, int owner, hdi_import_info *out);

/* Whether the driver lets the device `from` use the memory of an import of another device, where the pair's test was good. The first time
 * it asks the driver, and lets the pair's contexts use each other's memory. Then it is one load. */
bool hdi_import_reach_now(struct hd_buffer *b, int from);
static inline bool hdi_import_is_reached(struct hd_buffer *b, int from)
{
    /* Relaxed: a bit publishes no memory. */
    return (atomic_load_explicit(&b->reach, memory_order_relaxed) >> from & 1) || hdi_import_reach_now(b, from);
}

#endif
