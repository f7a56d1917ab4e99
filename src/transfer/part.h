/* part.h - what the layer of transfers has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_TRANSFER_PART_H
#define HDI_TRANSFER_PART_H

#include "buffer/part.h"

typedef struct hdi_transfer_part {
    hdi_buffer_part below; /* first: the runtime's address is that of each part */
    struct hdi_stagings *stagings;
    struct hdi_copy_pool *copy_pool;
    struct hdi_peer_tester *peer_tester; /* the thread that tests pairs of devices for copies */
} hdi_transfer_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_transfer_part *hdi_transfer_of(const hd_runtime *rt)
{
    return (hdi_transfer_part *)rt;
}

#endif
