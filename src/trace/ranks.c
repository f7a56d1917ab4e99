/* ranks.c - the traces of a program of several ranks: its place, its clock and its messages.
 *
 * Threads: any. Locks: the tracer's mutex, for the place.
 * Blocking: hd_trace_set_rank waits while a trace begins or ends.
 * Always: without a trace, no message is looked at closely.
 */
#include <heddle/trace.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "engine/engine.h"
#include "trace/part.h"

_Static_assert((int)HD_TRACE_SEND == HDI_RECORD_MESSAGE_SEND && (int)HD_TRACE_BCAST == HDI_RECORD_MESSAGE_BCAST &&
                   (int)HD_TRACE_BARRIER == HDI_RECORD_MESSAGE_BARRIER &&
                   HDI_RECORD_MESSAGES == HDI_RECORD_MESSAGE_BARRIER + 1,
               "the kinds of messages in a file are those of the header");

bool hd_trace_active(const hd_runtime *rt)
{
    HDI_INSIDE_QUERY(rt);
    return hdi_runtime_is_open(rt) && hdi_records(&rt->recorder);
}

hd_status hd_trace_set_rank(hd_runtime *rt, const hd_trace_rank *rank)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_trace_rank room;
    if (!rank) {
        return hdi_fail(HD_ERROR_ARGUMENT, "rank is null; give the place of the runtime");
    }
    if (!(rank = HDI_SIZED_IN(hd_trace_rank, rank, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    if (rank->rank < 0 || rank->rank >= rank->ranks || rank->within_ns < 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "rank %d of %d with an error of %lld ns; %s", rank->rank, rank->ranks,
                        (long long)rank->within_ns,
                        rank->within_ns < 0 ? "the error must not be negative"
                                            : "the rank must be between 0 and the number of ranks");
    }
    hdi_record record = {.rank = {.run = rank->run,
                                  .offset = rank->offset_ns,
                                  .within = rank->within_ns,
                                  .rank = (uint32_t)rank->rank,
                                  .ranks = (uint32_t)rank->ranks}};
    record.type = HDI_RECORD_RANK;
    record.time = hdi_clock_ns();
    hdi_tracer *tracer = &hdi_trace_of(rt)->tracer;
    hdi_mutex_lock(&tracer->lock);
    tracer->rank = record;
    if (tracer->writer) {
        hdi_record_put(&rt->recorder, &record);
    }
    hdi_mutex_unlock(&tracer->lock);
    return HD_OK;
}

hd_status hd_trace_add_message(hd_runtime *rt, const hd_trace_message *message)
{
    HDI_INSIDE_OFTEN(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_trace_message room;
    if (!message) {
        return hdi_fail(HD_ERROR_ARGUMENT, "message is null; give a message that ended");
    }
    if (!(message = HDI_SIZED_IN(hd_trace_message, message, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    if (message->kind < HD_TRACE_SEND || message->kind > HD_TRACE_BARRIER) {
        return hdi_fail(HD_ERROR_ARGUMENT, "kind is %d; give a value of hd_trace_message_kind", (int)message->kind);
    }
    if (message->ready_ns > message->posted_ns || message->posted_ns > message->ended_ns) {
        return hdi_fail(HD_ERROR_ARGUMENT, "ready at %lld ns, posted at %lld, ended at %lld; give them in this order",
                        (long long)message->ready_ns, (long long)message->posted_ns, (long long)message->ended_ns);
    }
    if (!hdi_records(&rt->recorder)) {
        return HD_OK;
    }
    const hd_lane *lane = hdi_lane_any(message->ticket.lane);
    const hdi_point claim =
        lane && lane->runtime == rt ? hdi_ticket_point(message->ticket) : (hdi_point){.position = 0};
    hdi_record record = {.message = {.time = message->posted_ns,
                                     .op = claim.position | (uint64_t)claim.lane << HDI_RECORD_MESSAGE_POSITION_BITS,
                                     .peer = message->peer,
                                     .tag = message->tag,
                                     .communicator = message->communicator,
                                     .order = message->order,
                                     .bytes = message->bytes,
                                     .ready = message->ready_ns,
                                     .ended = message->ended_ns}};
    record.type = HDI_RECORD_MESSAGE;
    record.kind = (uint8_t)((unsigned)message->kind | (message->failed ? HDI_RECORD_MESSAGE_FAILED : 0u));
    record.device = (uint8_t)(claim.lane / HDI_LANES_MAX);
    hdi_record_put(&rt->recorder, &record);
    return HD_OK;
}
