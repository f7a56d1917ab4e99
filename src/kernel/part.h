/* part.h - the module layer's part of each runtime, behind the parts of the layers that it builds
 * on.
 *
 * hd_open allocates the last layer's structure, which includes all others. So every part of an
 * hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it builds
 * on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. It is all zeros until hd_open fills it in.
 */
#ifndef HDI_KERNEL_PART_H
#define HDI_KERNEL_PART_H

#include "stats/part.h"

typedef struct hdi_kernel_part {
    hdi_stats_part below; /* first, since all parts share the runtime's address */
    struct hdi_modules *modules;
} hdi_kernel_part;

/* A const runtime does not change itself; the objects it points to may. */
static inline hdi_kernel_part *hdi_kernel_of(const hd_runtime *rt)
{
    return (hdi_kernel_part *)rt;
}

#endif
