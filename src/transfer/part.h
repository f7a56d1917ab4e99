/* part.h - the transfer layer's part of each runtime, behind the parts of the layers below.
 *
 * hd_open allocates the last layer's structure, which includes all others. So every part of an
 * hd_runtime lies at a constant place, and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. It is all zeros until hd_open fills it in.
 */
#ifndef HDI_TRANSFER_PART_H
#define HDI_TRANSFER_PART_H

#include "buffer/part.h"

typedef struct hdi_transfer_part {
    hdi_buffer_part below; /* first: the runtime's address is that of each part */
    struct hdi_stagings *stagings;
    struct hdi_copy_pool *copy_pool;
} hdi_transfer_part;

/* A const runtime does not change itself; the objects it points to may. */
static inline hdi_transfer_part *hdi_transfer_of(const hd_runtime *rt)
{
    return (hdi_transfer_part *)rt;
}

#endif
