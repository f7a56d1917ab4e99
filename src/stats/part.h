/* part.h - the part of the layer of statistics in each runtime, behind the parts of the layers that
 * it builds on.
 *
 * hd_open allocates the structure of the last layer, which contains all others. So every part of an
 * hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it builds
 * on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part starts at the address of its runtime. It is all zeros until hd_open fills it.
 */
#ifndef HDI_STATS_PART_H
#define HDI_STATS_PART_H

#include "claim/part.h"

typedef struct hdi_stats_part {
    hdi_claim_part below;                /* first, since all parts share the runtime's address */
    struct hdi_holders_memo *holders;    /* holders of memory, for messages */
    struct hdi_memory_page *memory_page; /* figures that other processes may read */
} hdi_stats_part;

/* A const runtime does not change itself; objects that it points to may. */
static inline hdi_stats_part *hdi_stats_of(const hd_runtime *rt)
{
    return (hdi_stats_part *)rt;
}

#endif
