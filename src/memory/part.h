/* part.h - what the layer of memory has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_MEMORY_PART_H
#define HDI_MEMORY_PART_H

#include "worker/part.h"

typedef struct hdi_memory_part {
    hdi_worker_part below;     /* first: the runtime's address is that of each part */
    struct hdi_shares *shares; /* placement process */
    struct hdi_pinned_pool *pinned;
    struct hdi_thread_caches *caches;
    struct hdi_host_pool *host_pool; /* blocks of pinned memory */
} hdi_memory_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_memory_part *hdi_memory_of(const hd_runtime *rt)
{
    return (hdi_memory_part *)rt;
}

#endif
