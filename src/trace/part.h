/* part.h - the trace layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part starts at the address of its runtime. It is all zeros until hd_open fills it.
 */
#ifndef HDI_TRACE_PART_H
#define HDI_TRACE_PART_H

#include "record/format.h"
#include "tensor/part.h"

typedef struct hdi_tracer {
    hdi_mutex lock;
    struct hdi_writer *writer; /* NULL: no trace */
    uint32_t detail;           /* of that trace */
    hdi_record rank;           /* as hd_trace_set_rank told it last; type 0: never */
} hdi_tracer;

typedef struct hdi_trace_part {
    hdi_tensor_part below; /* first, since all parts share the runtime's address */
    hdi_tracer tracer;
} hdi_trace_part;

static inline hdi_trace_part *hdi_trace_of(hd_runtime *rt)
{
    return (hdi_trace_part *)rt;
}

#endif
