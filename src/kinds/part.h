/* part.h - the part of each runtime for special kinds of buffers, on top of the parts of the layers
 * below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_KINDS_PART_H
#define HDI_KINDS_PART_H

#include "transfer/part.h"

typedef struct hdi_kinds_part {
    hdi_transfer_part below;       /* first, since all parts share the runtime's address */
    struct hdi_findings *findings; /* of the option memory_debug; NULL: it is off */
    /* with the option memory_debug: freed buffers whose guards are not checked yet */
    struct hdi_checker *checker;
} hdi_kinds_part;

static inline hdi_kinds_part *hdi_kinds_of(hd_runtime *rt)
{
    return (hdi_kinds_part *)rt;
}

#endif
