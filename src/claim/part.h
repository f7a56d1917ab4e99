/* part.h - what the layer of claims has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_CLAIM_PART_H
#define HDI_CLAIM_PART_H

#include "kinds/part.h"

typedef struct hdi_claim_part {
    hdi_kinds_part below;        /* first: the runtime's address is that of each part */
    struct hdi_claims *claims;   /* claim.c */
    struct hdi_callers *callers; /* host_call.c */
    struct hdi_late_ends *late;  /* late.c */
} hdi_claim_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_claim_part *hdi_claim_of(const hd_runtime *rt)
{
    return (hdi_claim_part *)rt;
}

#endif
