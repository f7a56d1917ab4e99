/* part.h - the part of the layer of traces in each runtime, behind the parts of the layers that it
 * builds on.
 *
 * hd_open allocates the structure of the last layer, which contains all others. So every part of an
 * hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it builds
 * on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part starts at the address of its runtime. It is all zeros until hd_open fills it.
 */
#ifndef HDI_TRACE_PART_H
#define HDI_TRACE_PART_H

#include "tensor/part.h"

typedef struct hdi_trace_part {
    hdi_tensor_part below;     /* first, since all parts share the runtime's address */
    struct hdi_tracer *tracer; /* trace.c */
} hdi_trace_part;

/* A const runtime does not change itself; objects that it points to may. */
static inline hdi_trace_part *hdi_trace_of(const hd_runtime *rt)
{
    return (hdi_trace_part *)rt;
}

#endif
