/* part.h - what the layer of traces has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_TRACE_PART_H
#define HDI_TRACE_PART_H

#include "tensor/part.h"

typedef struct hdi_trace_part {
    hdi_tensor_part below;     /* first: the runtime's address is that of each part */
    struct hdi_tracer *tracer; /* trace.c */
} hdi_trace_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_trace_part *hdi_trace_of(const hd_runtime *rt)
{
    return (hdi_trace_part *)rt;
}

#endif
