/* part.h - the statistics layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part starts at the address of its runtime. It is all zeros until hd_open fills it.
 */
#ifndef HDI_STATS_PART_H
#define HDI_STATS_PART_H

#include "claim/part.h"

/* The list of holders for messages (holders.c). */
typedef struct hdi_holders_memo {
    hdi_mutex lock; /* taken before the lock of the list of buffers */
    struct hdi_holder *list;
    size_t n;
    uint64_t buffers;
    int64_t made, cost; /* clock; 0: never */
} hdi_holders_memo;

typedef struct hdi_stats_part {
    hdi_claim_part below; /* first, since all parts share the runtime's address */
    hdi_holders_memo holders;
    struct hdi_memory_page *memory_page; /* figures that other processes may read */
} hdi_stats_part;

static inline hdi_stats_part *hdi_stats_of(hd_runtime *rt)
{
    return (hdi_stats_part *)rt;
}

#endif
