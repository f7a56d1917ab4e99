/* progress.c - how far the device is in a lane: signals, the lane's `done`, failures, and the loss
 * of the device.
 *
 * Two things show how far the lane is: its completion flag, which the device writes, and the status
 * of its CUDA stream. A *signal* is a command behind the lane's work that makes the device write
 * the position into the flag. A signal is one of two kinds:
 * - A fill, behind kernels and behind small copies to the device. The device runs a fill right
 *   after a kernel. The driver sends the bytes of a small copy along with its commands, so the
 *   device runs the fill right after that copy, too.
 * - A written value, behind other copies. A fill would run on another hardware engine of the device
 *   than the copy.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none.
 * Blocking: none.
 * Always:
 * - A failure is recorded before `done` passes the failed command.
 * - A result that an operation reads from another lane is a dependency until the result's outcome
 *   is recorded. `done` passes an operation only after the results that the operation reads from
 *   other lanes are done.
 * - When the device is lost, the engine first reads all completion flags of its lanes. Then it
 *   collects the suspects, and fails all unfinished work.
 */
#include <assert.h>
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/stream.h"

/* After this time without progress, the engine queries the status of the CUDA stream, since only
 * the status shows errors. */
#define LOOK_NS 1000000
/* After this many successive failed status queries, the device counts as unusable. */
#define BAD_LOOKS_MAX 8

/* ---- failures ---- */

void hdi_stream_blame(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t end, int code,
                      hdi_failure *cause)
{
    *cause = (hdi_failure){
        .position = end,
        .lane = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number,
        .driver_code = code,
        .kernel = c && c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .op = c ? c->op : 0,
    };
}

void hdi_stream_record_failure(hdi_engine *engine, hdi_stream *stream, uint64_t from, uint64_t to)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    stream->cause.from = from;
    stream->cause.to = to;
    hdi_failure_add(&engine->device->channel, stream->number, &stream->cause);
    stream->failed = true;
    if (stream->sticky_failure) {
        /* pairs with the load in the submit path, which refuses; a late store does no harm, since
         * the engine skips later commands */
        atomic_store_explicit(&shared->failed, 1, memory_order_release);
    }
}

void hdi_stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to)
{
    stream->cause = *other;
    stream->cause.inherited = 1;
    hdi_stream_record_failure(engine, stream, from, to);
}

/* ---- the lane's progress ---- */

#ifdef HDI_DEBUG
static bool stream_failed_there(const hdi_engine *engine, uint32_t lane, uint64_t position)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, lane);
    /* An engine in another process may write anything into its log, so this check excludes such
     * lanes. */
    return position && owner->engine &&
           hdi_failure_logged(&owner->channel, lane % HDI_LANES_MAX, position, &failure) == HDI_LOGGED_YES;
}

static bool stream_source_failed(const hdi_engine *engine, const hdi_command *c)
{
    if (c->op == HDI_OP_WAIT) {
        return stream_failed_there(engine, c->wait.lane, c->wait.source);
    }
    bool failed = c->op == HDI_OP_SOURCES && stream_failed_there(engine, c->sources.lane, c->sources.position);
    for (int i = 0; c->op == HDI_OP_SOURCES && i < HDI_SOURCES_MOST - 1 && c->sources.behind[i]; i++) {
        failed |= stream_failed_there(engine, c->sources.lane, c->sources.position + c->sources.behind[i]);
    }
    return failed;
}

/* Checks that every done operation failed if it read the result of a failed one. */
static void stream_check_outcomes(const hdi_engine *engine, const hdi_stream *stream, uint64_t to)
{
    uint32_t own = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
    bool must_fail = false;
    for (uint64_t at = stream->done; at < to;) {
        const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, at);
        at += c->slots ? c->slots : 1;
        must_fail |= stream_source_failed(engine, c);
        if (hdi_op_is_work(c->op) && at <= to) {
            assert(!must_fail || stream_failed_there(engine, own, at));
            must_fail = false;
        }
    }
}
#endif

/* Sets `done` to `position`, and wakes threads that wait for it. */
static void stream_store_done(hdi_engine *engine, hdi_stream *stream, uint64_t position)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
#ifdef HDI_DEBUG
    stream_check_outcomes(engine, stream, position);
#endif
    uint64_t before = stream->done;
    stream->done = position;
    /* only messages use this field */
    atomic_store_explicit(&shared->moved, engine->now, memory_order_relaxed);
    /* Releases the device's writes to threads that load `done`. Sequentially consistent with the
     * sleeper, which registers and then loads `done` once more. */
    if (__builtin_expect(stream->has_claims, 0)) {
        /* While a lost device is drained, the program may end a claim (hdi_claim_end_lane). */
        hdi_raise(&shared->done, position);
        hdi_claim_ring(engine->shared);
    } else {
        atomic_store_explicit(&shared->done, position, memory_order_seq_cst);
    }
    hdi_lane_wake(shared, before, position);
    hdi_lane_ring_watchers(engine->device->runtime, shared);
    if (__builtin_expect(engine->recording.detail != 0, 0)) {
        hdi_span_record_done(engine, stream, before);
    }
}

/* If a result that this lane read from another lane failed, this lane fails, too, from behind the
 * wait on. False: the outcome in the other lane cannot be read yet. */
static bool stream_settle_failure(hdi_engine *engine, hdi_stream *stream, const hdi_dependency *d)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, d->lane);
    hdi_logged logged = hdi_failure_logged(&owner->channel, d->lane % HDI_LANES_MAX, d->target, &failure);
    if (logged != HDI_LOGGED_YES) {
        return logged == HDI_LOGGED_NO;
    }
    bool failed = stream->failed;
    uint64_t end = stream->issued;
    /* Perhaps the operation that reads the result is not issued yet. Then the engine must skip it
     * later. */
    bool issued =
        hdi_lane_operation(&engine->device->channel, stream->number, d->position, stream->issued, &end) != NULL;
    end = stream->sticky_failure ? stream->issued : end;
    hdi_stream_inherit(engine, stream, &failure, d->position + 1, end);
    stream->failed = failed || stream->sticky_failure || !issued;
    return true;
}

static bool stream_same_dependency(const hdi_dependency *a, const hdi_dependency *b)
{
    return a->position == b->position && a->lane == b->lane && a->target == b->target;
}

/* Moves `done` towards the position that the device passed, until `done` reaches `until`. `done`
 * stops where this lane reads a result of another lane that is not done. If the other lane is on
 * the same device, this function first moves the `done` of that lane. After the recursive call,
 * this function loads its lane's state again. If lanes read from each other in turn, the recursion
 * visits a lane several times. */
static void stream_finish(hdi_engine *engine, hdi_stream *stream, uint64_t until, int depth)
{
    while (stream->done < until) {
        const hdi_dependency *front =
            stream->first_dependency < stream->n_dependencies ? &stream->dependencies[stream->first_dependency] : NULL;
        uint64_t reach = front && front->position < stream->passed ? front->position : stream->passed;
        uint64_t timed = stream->timed ? hdi_times_settle(engine, stream, reach) : reach;
        if (timed > stream->done) {
            stream_store_done(engine, stream, timed);
        }
        if (!front || reach == stream->passed || timed < reach) {
            return;
        }
        hdi_dependency d = *front;
        hd_runtime *rt = engine->device->runtime;
        hdi_lane_shared *other = hdi_lane_shared_of(rt, d.lane);
        if (atomic_load_explicit(&other->done, memory_order_acquire) < d.target) {
            /* The work behind the wait finished. So the device also passed the target in the other
             * lane, if that lane is on the same device. */
            if (hdi_lane_owner(rt, d.lane) == engine->device && depth < HDI_LANES_MAX) {
                hdi_stream *other_stream = &engine->streams[d.lane % HDI_LANES_MAX];
                other_stream->passed = other_stream->passed > d.target ? other_stream->passed : d.target;
                stream_finish(engine, other_stream, d.target, depth + 1);
                hdi_span_passed(engine, other_stream);
            }
            if (atomic_load_explicit(&other->done, memory_order_acquire) < d.target) {
                return;
            }
        }
        if (stream->first_dependency < stream->n_dependencies &&
            stream_same_dependency(&stream->dependencies[stream->first_dependency], &d)) {
            if (!stream_settle_failure(engine, stream, &d)) {
                return;
            }
            stream->first_dependency++;
            if (stream->first_dependency == stream->n_dependencies) {
                stream->first_dependency = stream->n_dependencies = 0;
            }
        }
    }
}

/* Handles signals that the device passed. The work in front of these signals takes no room in the
 * driver's queue any more. The signals also show how long kernels ran, and which kernels ended. */
static void stream_pass_signals(hdi_engine *engine, hdi_stream *stream)
{
    hdi_kernel_time_signal first, last;
    uint32_t passed = 0;
    bool others = false;
    while (stream->n_signals && stream->signals[stream->first_signal].position <= stream->passed) {
        last = stream->signals[stream->first_signal].timing;
        first = passed++ == 0 ? last : first;
        others |= last.others;
        stream->entries_done = stream->signals[stream->first_signal].entries;
        stream->first_signal = (stream->first_signal + 1) % HDI_STREAM_SIGNALS;
        stream->n_signals--;
    }
    if (stream->passed == stream->issued) {
        /* All signals in front are gone. If one is left, it has the same count of entries. */
        stream->entries_done = stream->entries;
    }
    if (passed) {
        hdi_kernel_time_pass(&stream->timing, &first, &last, others, hdi_clock_ns());
    }
    if (stream->n_new) {
        hdi_kernel_time_learn(engine, stream);
    }
}

/* Notes a signal behind all issued work. */
static void stream_add_signal(hdi_stream *stream)
{
    bool joined = stream->n_signals == HDI_STREAM_SIGNALS;
    stream->n_signals += !joined;
    uint32_t last = (stream->first_signal + stream->n_signals - 1) % HDI_STREAM_SIGNALS;
    stream->signals[last].position = stream->issued;
    stream->signals[last].entries = stream->entries;
    hdi_kernel_time_put_signal(&stream->timing, &stream->signals[last].timing);
    stream->signals[last].timing.others |= joined;
    stream->entries_signalled = stream->entries;
}

/* The device passed `position`. True if `done` moved. */
static bool stream_passed(hdi_engine *engine, hdi_stream *stream, uint64_t position)
{
    uint64_t before = stream->done;
    if (position > stream->passed) {
        stream->passed = position;
    }
    stream_pass_signals(engine, stream);
    stream_finish(engine, stream, stream->passed, 0);
    hdi_span_passed(engine, stream);
    return stream->done > before;
}

/* This lane is done only after the results that it read from other lanes. So this function requests
 * signals behind the results that the lane read since its own last signal, in lanes of other
 * engines. The requests come no earlier than this lane's signal, since every signal delays the
 * other lane a little. */
static void stream_want_sources(hdi_engine *engine, const hdi_stream *stream)
{
    hd_runtime *rt = engine->device->runtime;
    for (uint32_t i = stream->n_dependencies; i > stream->first_dependency; i--) {
        const hdi_dependency *d = &stream->dependencies[i - 1];
        if (d->position <= stream->signalled) {
            return;
        }
        hdi_device *owner = hdi_lane_owner(rt, d->lane);
        hdi_lane_shared *other = hdi_lane_shared_of(rt, d->lane);
        if (owner->engine != engine && atomic_load_explicit(&other->wanted_host, memory_order_relaxed) < d->target) {
            hdi_raise(&other->wanted_host, d->target);
            hdi_engine_notify(owner->channel.engine, d->lane % HDI_LANES_MAX);
        }
    }
}

void hdi_stream_signal(hdi_engine *engine, hdi_stream *stream)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr flag = engine->device->flags_address + stream->number * sizeof(hdi_completion_flag);
    unsigned position = (unsigned)stream->issued;
    hdcu_result r = HDCU_ERROR_NOT_SUPPORTED;
    stream_want_sources(engine, stream);
    if (__builtin_expect(engine->recording.detail == HDI_RECORD_DETAIL_FULL, 0)) {
        hdi_span_signal(engine, stream);
    }
    if (stream->tail != HDI_TAIL_KERNEL && driver->cuStreamWriteValue32) {
        r = driver->cuStreamWriteValue32(stream->handle, flag, position, HDCU_STREAM_WRITE_VALUE_DEFAULT);
    }
    if (r != HDCU_SUCCESS && !hdi_driver_code_is_fatal(r)) {
        r = driver->cuMemsetD32Async(flag, position, 1, stream->handle);
    }
    stream->signalled = stream->issued;
    stream->entries++;
    if (r == HDCU_SUCCESS) {
        stream_add_signal(stream);
        hdi_engine_count(&engine->shared->signals);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        stream->flag_missing = true;
        stream->entries_signalled = stream->entries;
    }
    if (__builtin_expect(engine->recording.detail != 0, 0)) {
        engine->now = hdi_clock_ns();
        hdi_span_signal(engine, stream);
    }
}

/* Queries the status of the CUDA stream. Only the status shows errors of running work. It also
 * shows completion if the device could not write the flag. */
static void stream_look(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    uint64_t issued = stream->issued;
    stream->checked = pass->now;
    hdcu_result r = engine->device->runtime->driver->cuStreamQuery(stream->handle);
    engine->now = hdi_clock_ns();
    if (r == HDCU_SUCCESS) {
        stream->bad_looks = 0;
        stream->flag_missing = false;
        pass->progress |= stream_passed(engine, stream, issued);
    } else if (r == HDCU_ERROR_NOT_READY || hdi_driver_code_is_capture(r)) {
        /* The driver refused because of a capture, which does not affect this stream. */
        stream->bad_looks = 0;
    } else if (hdi_driver_code_is_fatal(r) || ++stream->bad_looks >= BAD_LOOKS_MAX) {
        hdi_engine_lose(engine, r);
    }
}

/* Reads the completion flag. True if `done` moved. */
static bool stream_read_flag(hdi_engine *engine, hdi_stream *stream)
{
    if (stream->signalled <= stream->done) {
        return false;
    }
    /* Pairs with the device's write, which is ordered behind the lane's work. The flag holds the
     * low half of a position between `passed` and `signalled`. These two are far less than 2^32
     * apart. */
    uint32_t low = atomic_load_explicit(&engine->device->channel.flags[stream->number].position, memory_order_acquire);
    uint64_t position = stream->signalled - (uint32_t)((uint32_t)stream->signalled - low);
    /* The position is greater than `signalled` only if something else wrote into the flag. */
    return position > stream->done && position <= stream->signalled && stream_passed(engine, stream, position);
}

void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    /* Progress of another lane may have shown that the device passed these signals. */
    stream_pass_signals(engine, stream);
    if (stream->passed > stream->done && stream_passed(engine, stream, stream->passed)) {
        /* the results that the lane read from other lanes are done by now */
        pass->progress = true;
    }
    if (stream_read_flag(engine, stream)) {
        stream->checked = pass->now;
        pass->progress = true;
    }
    if (stream->issued > stream->done && stream->passed < stream->issued &&
        (stream->flag_missing || pass->now - stream->checked > LOOK_NS)) {
        stream_look(engine, stream, pass);
    }
}

/* ---- loss of the device ---- */

/* Records, once, that all unfinished work of the lane fails, and all later work. */
static void stream_record_loss(hdi_engine *engine, hdi_stream *stream, int code)
{
    if (!stream->loss_recorded) {
        stream->loss_recorded = true;
        stream->failed = true;
        hdi_lane_lose(engine->device, stream->number, code);
    }
}

/* Takes in the device's writes so far. Work behind a signal that the device did not pass had not
 * begun. */
static void stream_settle(hdi_engine *engine, hdi_stream *stream)
{
    stream_read_flag(engine, stream);
    stream_pass_signals(engine, stream);
    uint64_t begun =
        stream->n_signals ? stream->signals[stream->first_signal].position : stream->issued + stream->in_call;
    atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, begun, memory_order_release);
}

void hdi_engine_lose(hdi_engine *engine, int code)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX && !hdi_device_lost(engine->device); i++) {
        if (atomic_load_explicit(&engine->streams[i].made, memory_order_acquire)) {
            stream_settle(engine, &engine->streams[i]);
        }
    }
    if (engine->device->runtime->end_process) {
        engine->device->runtime->end_process(engine->device, code);
        return;
    }
    if (hdi_device_lost(engine->device)) {
        return;
    }
    hdi_device_change(engine->device, HDI_DEVICE_UP, HDI_DEVICE_FAILING);
    hdi_loss_suspect(engine->device, code);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (atomic_load_explicit(&stream->made, memory_order_acquire)) {
            stream_record_loss(engine, stream, code);
        }
    }
    atomic_store_explicit(&engine->device->lost_by, code, memory_order_relaxed);
    hdi_device_change(engine->device, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    hdi_loss_note(engine->device, code);
}

void hdi_stream_command_failed(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t begin, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        /* For one command, a library for products makes several calls, and the program can do the
         * same. So work of an earlier one of these calls may be the cause. */
        stream->in_call = c->op == HDI_OP_MATMUL || c->op == HDI_OP_CALL ? c->slots : 0;
        hdi_engine_lose(engine, code);
        stream->in_call = 0;
        return;
    }
    uint64_t end = begin + c->slots;
    hdi_stream_blame(engine, stream, c, end, code, &stream->cause);
    hdi_stream_record_failure(engine, stream, begin + 1, end);
    stream->refused = true;
}

bool hdi_stream_drain(hdi_engine *engine, hdi_stream *stream)
{
    uint64_t head = hdi_lane_submitted(engine->device, stream->number);
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* The lane may have been made while the device was being lost. */
    stream_record_loss(engine, stream, hdi_device_lost_by(engine->device));
    hd_lane *lane = hdi_lane_at(engine->device, stream->number);
    stream->has_claims |= lane && lane->claim;
    uint64_t late = lane ? atomic_load_explicit(&lane->claim_late_end, memory_order_acquire) : 0;
    if (late) {
        hdi_claim_end_late(lane, late, false); /* on a lost device the capture does not matter */
    }
    bool moved = stream->issued != head;
    stream->issued = stream->passed = stream->signalled = head;
    stream->first_dependency = stream->n_dependencies = 0;
    atomic_store_explicit(&shared->issued, head, memory_order_release);
    uint64_t reach = hdi_lane_reach(engine->device, stream->number, stream->done, head);
    if (stream->done < reach) {
        stream_store_done(engine, stream, reach);
        moved = true;
    }
    return moved;
}
