/* program.c - what the program does itself in a lane: claims, whose end it decides, and calls of its functions.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none. Blocking: for as long as the program's function takes; all lanes of the device wait meanwhile.
 * Always:
 * - A claim fails with what it reads, and ends only where the program has ended it, whether it failed or not.
 * - No function of the program is called in a worker process: a ring that was overwritten cannot make it jump anywhere.
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
static void fail_as(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t from, uint64_t end,
                    uint32_t outcome)
{
    hdi_stream_blame(engine, stream, c, end, HDCU_SUCCESS, &stream->cause);
    stream->cause.op = c->op == HDI_OP_CLAIMED ? HDI_OP_CLAIM : c->op;
    stream->cause.kernel = outcome;
    hdi_stream_record_failure(engine, stream, from, end);
    stream->refused = true;
    stream->failed = stream->sticky_failure;
}

bool hdi_stream_end_claim(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t end = stream->issued + c->slots;
    /* pairs with hdi_claim_end_lane: what it wrote before is seen */
    if (atomic_load_explicit(&shared->ended, memory_order_acquire) < end) {
        return false;
    }
    if (atomic_load_explicit(&shared->failed_at, memory_order_relaxed) == end) {
        fail_as(engine, stream, c, end, end, atomic_load_explicit(&shared->failed_as, memory_order_relaxed));
    }
    const hd_lane *lane = hdi_lane_at(engine->device, stream->number); /* NULL in a worker process: no such events */
    hdcu_event event = lane ? hdi_claim_end_event(lane, end) : NULL;
    if (event) {
        hdcu_result r = engine->device->runtime->driver->cuStreamWaitEvent(stream->handle, event, 0);
        if (r != HDCU_SUCCESS) {
            hdi_stream_command_failed(engine, stream, c, stream->issued, r);
            stream->failed = stream->sticky_failure;
        }
        stream->entries++;
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
    hd_status status = function(stream->handle, (void *)(uintptr_t)c->call.context);
    hdi_presence_together(apart);
    hdcu_result r = rt->driver->cuCtxSetCurrent(engine->device->context); /* the function may have changed it */
    if (status && r == HDCU_SUCCESS) {
        fail_as(engine, stream, c, stream->issued + 1, stream->issued + c->slots,
                hdi_outcome_of_call(rt, function, status));
    }
    return r;
}
