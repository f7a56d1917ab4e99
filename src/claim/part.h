/* part.h - the claim layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_CLAIM_PART_H
#define HDI_CLAIM_PART_H

#include "kinds/part.h"

typedef struct hdi_claim_part {
    hdi_kinds_part below;        /* first, since all parts share the runtime's address */
    struct hdi_claims *claims;   /* claim.c */
    struct hdi_callers *callers; /* host_call.c */
} hdi_claim_part;

static inline hdi_claim_part *hdi_claim_of(hd_runtime *rt)
{
    return (hdi_claim_part *)rt;
}

#endif
