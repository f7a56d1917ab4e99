/* part.h - what the layer of statistics has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_STATS_PART_H
#define HDI_STATS_PART_H

#include "claim/part.h"

typedef struct hdi_stats_part {
    hdi_claim_part below;                /* first: the runtime's address is that of each part */
    struct hdi_holders_memo *holders;    /* holders of memory, for messages */
    struct hdi_memory_page *memory_page; /* figures that other processes may read */
} hdi_stats_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_stats_part *hdi_stats_of(const hd_runtime *rt)
{
    return (hdi_stats_part *)rt;
}

#endif
