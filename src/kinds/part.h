/* part.h - what the layer of special kinds of buffers has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_KINDS_PART_H
#define HDI_KINDS_PART_H

#include "transfer/part.h"

typedef struct hdi_kinds_part {
    hdi_transfer_part below;       /* first: the runtime's address is that of each part */
    struct hdi_findings *findings; /* what the option memory_debug found; NULL: it is off */
    struct hdi_checker *checker;   /* likewise: freed buffers with guards that are still to be checked */
} hdi_kinds_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_kinds_part *hdi_kinds_of(const hd_runtime *rt)
{
    return (hdi_kinds_part *)rt;
}

#endif
