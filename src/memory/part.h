/* part.h - the memory layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_MEMORY_PART_H
#define HDI_MEMORY_PART_H

#include "engine/rest.h"
#include "worker/part.h"

typedef struct hdi_memory_part {
    hdi_worker_part below;     /* first, since all parts share the runtime's address */
    struct hdi_shares *shares; /* placement process */
    struct hdi_pinned_pool *pinned;
    struct hdi_thread_caches *caches;
    struct hdi_host_pool *host_pool; /* blocks of pinned memory */
    hdi_rest rest;                   /* for the pool, which unpins its memory */
} hdi_memory_part;

static inline hdi_memory_part *hdi_memory_of(hd_runtime *rt)
{
    return (hdi_memory_part *)rt;
}

#endif
