/* words.c - the words for what a trace has: operations, ways, causes, lanes. See model.h.
 *
 * Threads, Locks: see model.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include "cli/trace/parts.h"

const char *trace_cause_id(trace_cause cause)
{
    static const char *const ids[TRACE_CAUSES] = {"loss",   "device",   "copy",    "claim",  "ring",
                                                  "memory", "overhead", "nothing", "unknown"};
    return cause >= 0 && cause < TRACE_CAUSES ? ids[cause] : "";
}

const char *trace_cause_text(trace_cause cause)
{
    static const char *const texts[TRACE_CAUSES] = {
        "the device was lost",       "waited for another device", "waited for a transfer",
        "waited for a claim",        "a lane's ring was full",    "memory was being made",
        "work was on its way there", "nothing was submitted",     "the trace does not have all waits",
    };
    return cause >= 0 && cause < TRACE_CAUSES ? texts[cause] : "";
}

const char *trace_along_text(trace_along along)
{
    static const char *const texts[TRACE_ALONG] = {
        "compute", "transfer", "claims", "on its way to the device", "not submitted yet", "waits that are missing"};
    return along >= 0 && along < TRACE_ALONG ? texts[along] : "";
}

const char *trace_op_text(uint8_t kind)
{
    static const char *const texts[HDI_RECORD_OPS] = {"operation", "launch", "copy", "fill",
                                                      "matmul",    "call",   "mark", "claim"};
    return kind < HDI_RECORD_OPS ? texts[kind] : texts[0];
}

const char *trace_way_text(uint8_t way)
{
    static const char *const texts[HDI_RECORD_WAYS] = {
        "copy",   "to device",           "to host",           "on device", "peer", "on the host",
        "staged", "from program memory", "to program memory",
    };
    return way < HDI_RECORD_WAYS ? texts[way] : texts[0];
}

const char *trace_op_name(const trace *t, int32_t op, char out[TRACE_TEXT])
{
    if (op < 0 || (size_t)op >= t->n_ops) {
        snprintf(out, TRACE_TEXT, "an operation that the trace does not have");
        return out;
    }
    const trace_op *o = &t->ops[op];
    const char *name = trace_name(t, o->kernel);
    snprintf(out, TRACE_TEXT, "%" PRIu32 ".%" PRIu32 ":%" PRIu64 " %.100s", o->lane / HDI_RECORD_LANES,
             o->lane % HDI_RECORD_LANES, o->position & ((UINT64_C(1) << TRACE_POSITION_BITS) - 1),
             o->kind == HDI_RECORD_OP_COPY ? trace_way_text(o->way)
             : name[0]                     ? name
                                           : trace_op_text(o->kind));
    return out;
}
