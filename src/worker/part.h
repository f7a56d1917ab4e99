/* part.h - the worker layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. Before hd_open creates its contents, it is all
 * zeros.
 */
#ifndef HDI_WORKER_PART_H
#define HDI_WORKER_PART_H

#include "engine/runtime.h"

typedef struct hdi_worker_part {
    hd_runtime below;            /* first, since all parts share the runtime's address */
    struct hdi_workers *workers; /* placement process */
} hdi_worker_part;

static inline hdi_worker_part *hdi_worker_of(hd_runtime *rt)
{
    return (hdi_worker_part *)rt;
}

#endif
