/* program.c - the program's own work in a lane: claims, which it ends itself, and calls of its
 * functions.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none. Blocking: a CALL blocks for as long as the program's function takes, and all lanes
 * of the device wait meanwhile.
 * Always:
 * - A claim fails if a result that it reads failed. Even a failed claim ends only when the program
 *   ends it.
 * - A worker process calls no function of the program. So a ring that was overwritten cannot make
 *   it jump anywhere.
 */
#include "base/presence.h"
#include "engine/claims.h"
#include "engine/stream.h"

void hdi_stream_catch_up(hdi_engine *engine, hdi_stream *stream, uint64_t head)
{
    if (stream->issued != stream->done) {
        return;
    }
    uint64_t done = atomic_load_explicit(&engine->device->channel.lanes[stream->number].done, memory_order_acquire);
    done = done < head ? done : head; /* `done` moves before `head` */
    if (__builtin_expect(done > stream->done, 0)) {
        stream->issued = stream->done = done;
        hdi_stream_rest(engine, stream, done);
    }
}

void hdi_stream_begin_claim(hdi_engine *engine, hdi_stream *stream)
{
    stream->has_claims = true;
    if (stream->failed) {
        hdi_stream_record_failure(engine, stream, stream->issued + 1, stream->issued + HDI_CLAIM_SLOTS);
        stream->failed = stream->sticky_failure;
    }
    hdi_engine_count(&engine->shared->operations);
}

/* Records that the command up to `end` failed, as the program decided. */
static void program_fail_as(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t from, uint64_t end,
                            uint32_t outcome)
{
    hdi_stream_blame(engine, stream, c, end, HDCU_SUCCESS, &stream->cause);
    stream->cause.op = c->op == HDI_OP_CLAIMED ? HDI_OP_CLAIM : c->op;
    stream->cause.kernel = outcome;
    hdi_stream_record_failure(engine, stream, from, end);
    stream->refused = true;
    stream->failed = stream->sticky_failure;
}

/* The event at the end of a claim. If the program ended the claim during a capture of the claim's
 * stream, the end is a late end. This function then makes the event once the capture is over.
 * *wait: the capture is not over yet. *code: the driver's code if the event cannot be recorded. In
 * that case this function waits until the device finished all its work. */
static hdcu_event program_end_event(hdi_engine *engine, hd_lane *lane, uint64_t end, bool *wait, hdcu_result *code)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_stream late = hdi_claim_late_stream(lane, end);
    if (!late) {
        return hdi_claim_end_event(lane, end);
    }
    int capturing = HDCU_STREAM_CAPTURE_STATUS_NONE;
    hdcu_result r = driver->cuStreamIsCapturing(late, &capturing);
    *wait = hdi_driver_code_is_capture(r) || (r == HDCU_SUCCESS && capturing != HDCU_STREAM_CAPTURE_STATUS_NONE);
    if (*wait) {
        return NULL;
    }
    hdcu_event event = atomic_load_explicit(&lane->claim_event, memory_order_relaxed);
    r = r == HDCU_SUCCESS ? driver->cuEventRecord(event, late) : r;
    if (r != HDCU_SUCCESS) {
        driver->cuCtxSynchronize();
    }
    *code = r;
    hdi_claim_end_late(lane, end, r == HDCU_SUCCESS);
    return r == HDCU_SUCCESS ? event : NULL;
}

bool hdi_stream_end_claim(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t end = stream->issued + c->slots;
    /* pairs with hdi_claim_end_lane: its earlier writes are visible */
    if (atomic_load_explicit(&shared->ended, memory_order_acquire) < end) {
        return false;
    }
    bool wait = false;
    hdcu_result r = HDCU_SUCCESS;
    /* NULL in a worker process, whose claims have no such events. */
    hd_lane *lane = hdi_lane_at(engine->device, stream->number);
    hdcu_event event = lane ? program_end_event(engine, lane, end, &wait, &r) : NULL;
    if (wait) {
        return false;
    }
    if (atomic_load_explicit(&shared->failed_at, memory_order_relaxed) == end) {
        program_fail_as(engine, stream, c, end, end, atomic_load_explicit(&shared->failed_as, memory_order_relaxed));
    }
    if (event) {
        r = engine->device->runtime->driver->cuStreamWaitEvent(stream->handle, event, 0);
        stream->entries++;
    }
    if (r != HDCU_SUCCESS) {
        hdi_stream_command_failed(engine, stream, c, stream->issued, r);
        stream->failed = stream->sticky_failure;
    }
    return true;
}

hdcu_result hdi_stream_call(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hd_runtime *rt = engine->device->runtime;
    if (rt->end_process) {
        return HDCU_ERROR_NOT_SUPPORTED;
    }
    hdi_lane_function *function = (hdi_lane_function *)(uintptr_t)c->call.function;
    hdi_apart apart = hdi_presence_apart_in_lane();
    /* relaxed: only a message names the function */
    atomic_store_explicit(&engine->in_function, c->call.function, memory_order_relaxed);
    hd_status status = function(stream->handle, (void *)(uintptr_t)c->call.context);
    atomic_store_explicit(&engine->in_function, 0, memory_order_relaxed);
    hdi_presence_together(apart);
    /* The function may have changed the current context. */
    hdcu_result r = rt->driver->cuCtxSetCurrent(engine->device->context);
    if (status && r == HDCU_SUCCESS) {
        program_fail_as(engine, stream, c, stream->issued + 1, stream->issued + c->slots,
                        hdi_outcome_of_call(rt, function, status));
    }
    return r;
}
