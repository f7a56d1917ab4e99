/* freed.h - freed memory that claims of the program, or unfinished work, still use.
 *
 * Threads: any.
 * Locks: the locks of the arena, of the pool and of the list of regions, one at a time.
 * Blocking: a call waits for these locks.
 * Always: some claims belong to a call of a function of the program, and a library thread ends
 * them. Such claims count as work.
 */
#ifndef HDI_BUFFER_FREED_H
#define HDI_BUFFER_FREED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/memory.h>
#include "engine/runtime.h"

/* About the freed memory of a device, or about freed pinned memory (HD_DEVICE_HOST). */
typedef struct hdi_freed {
    uint64_t of_claims;         /* bytes that claims of the program use */
    uint64_t of_work;           /* bytes that only work uses */
    uint64_t pieces;            /* pieces among of_claims */
    hdi_point claim;            /* one of these claims; position 0: none */
    bool several;               /* other claims use freed memory, too */
    char label[HD_LABEL_BYTES]; /* of a freed buffer among of_claims; "": unknown */
} hdi_freed;

void hdi_freed_get(hd_runtime *rt, int device, hdi_freed *out);

/* For a message: "; 64 MiB 'frames' were freed, but claim 'display' of main+0x1f uses them until it
 * ends". "" if no claim and no work uses freed memory. */
#define HDI_FREED_TEXT 260
const char *hdi_freed_text(hd_runtime *rt, int device, char out[HDI_FREED_TEXT]);

#endif
