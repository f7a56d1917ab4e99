/* words.c - the words for operations, ways, causes and lanes of a trace. See model.h.
 *
 * Threads, Locks: see model.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "cli/trace/parts.h"

/* Rounds to at most one decimal of the unit. */
static uint64_t trace_words_round_to(uint64_t value, uint64_t unit)
{
    uint64_t whole = value / unit, tenths = (value % unit * 10 + unit / 2) / unit;
    return whole * unit + (tenths * unit + 9) / 10; /* rounds up, because the text is truncated */
}

const char *trace_time_text(int64_t ns, char out[HDI_AMOUNT_BYTES])
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0, unit = 1;
    while (unit < 1000000000 && value / unit >= 1000) {
        unit *= 1000;
    }
    return hdi_duration_text(trace_words_round_to(value, unit), out);
}

const char *trace_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES])
{
    int bits = 0;
    while (bits < 40 && bytes >> bits >= 1024) {
        bits += 10;
    }
    bool fits = bytes < UINT64_MAX - (UINT64_C(1) << bits);
    return hdi_bytes_text(fits ? trace_words_round_to(bytes, UINT64_C(1) << bits) : bytes, out);
}

int trace_finding_number(const char *id)
{
    static const char *const ids[TRACE_FINDING_IDS] = {
        "idle-nothing-submitted", "host-wait",          "launch-overhead", "slow-function",  "code-loading",
        "idle-for-device",        "serialized-devices", "idle-for-copy",   "program-memory", "slow-path",
        "small-transfers",        "staged-peer",        "idle-for-claim",  "ring-full",      "memory-pauses",
        "memory-near-limit",      "memory-fragmented",  "missing-waits",   "imbalance",      "losses",
        "failed-operations"};
    int number = 0;
    while (number < TRACE_FINDING_IDS && strcmp(id, ids[number]) != 0) {
        number++;
    }
    return number < TRACE_FINDING_IDS ? number : TRACE_NONE;
}

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
