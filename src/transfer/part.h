/* part.h - the transfer layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_TRANSFER_PART_H
#define HDI_TRANSFER_PART_H

#include "buffer/part.h"

typedef struct hdi_transfer_part {
    hdi_buffer_part below; /* first, since all parts share the runtime's address */
    struct hdi_stagings *stagings;
    struct hdi_copy_pool *copy_pool;
} hdi_transfer_part;

static inline hdi_transfer_part *hdi_transfer_of(hd_runtime *rt)
{
    return (hdi_transfer_part *)rt;
}

#endif
