/* stream.c - gives one lane's commands to the driver, and follows the lane's progress.
 * stream_waits.c makes a lane wait for other lanes.
 *
 * The lane's completion flag, which the device writes, and the status of the CUDA stream show how
 * far the lane is. A *signal* is a command behind the lane's work that makes the device write the
 * position into the flag. A signal is one of two kinds:
 * - A fill, behind kernels and behind small copies to the device. The device runs a fill right
 *   after a kernel. The driver sends the bytes of a small copy along with its commands, so the
 *   device runs the fill right after that copy, too.
 * - A written value, behind other copies. A fill would need another hardware engine of the device
 *   than the copy.
 *
 * Threads: the thread that runs the device's engine, with the device's context current. In the
 * placement inline, this is the holder of `running`; otherwise the engine has a thread of its own.
 * Locks: none. Other engines read the positions of events here, and everything else in the shared
 * channel.
 * Always:
 * - No call blocks: if a lane cannot go on, the engine visits the lane again later.
 * - A lane's commands are issued in order. The failure of a command is recorded before `issued`
 *   passes the command.
 * - A result that an operation reads from another lane is a dependency until the result's outcome
 *   is recorded. `done` passes an operation only after the results that it reads from other lanes
 *   are done.
 */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/stream.h"

/* The kind of a lane's last work, which decides how its end is signalled (hdi_stream.tail). */
enum {
    TAIL_KERNEL, /* work of kernels, by which the driver also fills, and copies inside the device */
    TAIL_COPY,   /* work of a copy engine */
};
/* The end of a copy to the device of at most this many bytes is signalled like the end of a
 * kernel. */
#define SENT_ALONG_MOST ((uint64_t)16 << 10)

/* The most commands that one visit issues, while other lanes wait. */
#define COMMANDS_PER_VISIT HDI_CHAIN_MOST
/* the most commands of a visit while lanes with few commands have work */
#define COMMANDS_IN_COMPANY (HDI_CHAIN_MOST / 2)

/* The length of a visit. A driver call takes one to ten microseconds; a chain of 32 takes as long
 * as a visit. */
#define VISIT_NS 8000
#define VISIT_NS_IN_COMPANY 4000
#define EVENTS_PER_VISIT (HDI_EVENTS_PER_LANE / 2)
#define LINGER_NS 10000 /* an empty lane gets a signal after so long, sooner if a thread waits */
/* After this time without progress, the engine queries the stream's status, since only the status
 * shows errors. */
#define LOOK_NS 1000000
/* After this many successive failed status queries, the device counts as unusable. */
#define BAD_LOOKS_MAX 8

/* ---- failure ---- */

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
        /* pairs with the load in the submit path, which refuses; a late store is fine, as the
         * engine skips later commands */
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
    /* An engine in another process may write anything into its log, so this excludes such lanes. */
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
    /* Only for messages. */
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
        hdi_record_done(engine, stream, before);
    }
}

/* If the lane read a result that failed in another lane, this lane fails, too, from behind the wait
 * on. False: the other lane's outcome is not readable yet. */
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
    /* The operation that reads may not be issued yet. Then the engine must skip it later. */
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

/* Moves `done` towards the position that the device passed, at least to `until`. It stops where
 * this lane read from another lane that is not done. If the other lane is on the same device, it
 * moves that lane first. After that, every level of the recursion loads its lane's state again. If
 * lanes read from each other in turn, the recursion visits a lane several times. */
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
        if (reach == stream->passed || timed < reach) {
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

/* Handles signals that the device passed. Their work takes no room in the driver's queue any more.
 * They also show how long kernels took, and which kernels ended. */
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
        /* At most one signal is left, with the same count. */
        stream->entries_done = stream->entries;
    }
    if (passed) {
        hdi_kernel_time_pass(&stream->timing, &first, &last, others, hdi_clock_ns());
    }
    if (stream->n_new) {
        hdi_chain_learn(engine, stream);
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

/* Requests signals in the lanes that this lane read since its last signal, since this lane is not
 * done before they are. It does not request them earlier, since every signal delays the other lane
 * a little. */
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
    if (stream->tail != TAIL_KERNEL && driver->cuStreamWriteValue32) {
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

/* Queries the stream's status. Only that shows errors of running work, and completion if the flag
 * could not be written. */
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
    /* The position is beyond `signalled` only if something else wrote there. */
    return position > stream->done && position <= stream->signalled && stream_passed(engine, stream, position);
}

void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    /* Progress of another lane may have shown that the device passed these signals. */
    stream_pass_signals(engine, stream);
    if (stream->passed > stream->done && stream_passed(engine, stream, stream->passed)) {
        /* the results that the lane read from another lane are done by now */
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
        /* A library for products makes several calls, and so may the program. So work of an earlier
         * one of these calls may be the cause. */
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

/* ---- issuing ---- */

/* The kind of the lane's last work after this command. */
static uint8_t stream_tail_of(const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    if ((c->op != HDI_OP_COPY && c->op != HDI_OP_COPY_BOX) || kind == HDI_COPY_ON_DEVICE) {
        return TAIL_KERNEL;
    }
    if (kind == HDI_COPY_TO_DEVICE && c->op == HDI_OP_COPY && c->copy.bytes <= SENT_ALONG_MOST) {
        return TAIL_KERNEL;
    }
    return TAIL_COPY;
}

/* How many entries of the driver's queue an operation takes. */
static uint64_t stream_entries_of(const hdi_command *c)
{
    static const uint8_t entries_of_op[HDI_OPS] = {
#define ENTRIES(op, call, name, entries, rank) [HDI_OP_##op] = (entries),
        HDI_OP_MAP(ENTRIES)
#undef ENTRIES
    };
    /* `volatile`: loaded once, since it is used twice */
    uint8_t op = *(const volatile uint8_t *)&c->op;
    return hdi_op_is_work(op) ? entries_of_op[op] : 1;
}

/* Issues one command. False: the lane cannot go on yet. */
static bool stream_issue(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* After a failure the lane still makes its waits: later operations, and uses of the same
     * buffers in other lanes, rely on them. */
    if (stream->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT && c->op != HDI_OP_CLAIMED) {
        hdi_stream_record_failure(engine, stream, stream->issued + 1, stream->issued + c->slots);
        stream->refused = true;
        if (hdi_op_is_work(c->op) && !stream->sticky_failure) {
            stream->failed = false; /* only dependents of the failed result fail */
        }
        return true;
    }
    /* this copy of the command does not change if something writes into the ring */
    hdi_command own;
    switch (c->op) {
    case HDI_OP_WAIT:
        own = *c;
        return hdi_stream_wait(engine, stream, &own);
    case HDI_OP_RESUME:
        stream->failed = false;
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].failed, 0, memory_order_release);
        return true;
    case HDI_OP_SKIP:
        return true;
    case HDI_OP_CLAIMED:
        return hdi_stream_end_claim(engine, stream, c);
    case HDI_OP_SOURCES:
        own = *c;
        return hdi_stream_sources(engine, stream, &own);
    default:
        /* If this process ends in the call, or before `issued` passes the command, its work may
         * have begun. */
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, stream->issued + c->slots,
                              memory_order_release);
        if (c->op == HDI_OP_CALL) {
            hdi_stream_cut(engine, stream, true);
        }
        r = c->op == HDI_OP_CALL ? hdi_stream_call(engine, stream, c) : hdi_issue(engine, stream, c);
        break;
    }
    stream->tail = stream_tail_of(c);
    stream->entries += stream_entries_of(c);
    hdi_engine_count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        hdi_stream_command_failed(engine, stream, c, stream->issued, r);
        if (!stream->sticky_failure) {
            stream->failed = false; /* only this command fails */
        }
    }
    return true;
}

/* Skips a command of a former worker, whose failure is recorded. But it handles waits, since later
 * work relies on them, and claims, since the program relies on them. False: the lane cannot go on
 * yet. */
static bool stream_pass_lost(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    const hdi_command own = *c;
    uint32_t self = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
    if (own.op == HDI_OP_CLAIMED) { /* pairs with hdi_claim_end_lane */
        return atomic_load_explicit(&shared->ended, memory_order_acquire) >= stream->issued + own.slots;
    }
    if (own.op != HDI_OP_WAIT || own.wait.lane == self || !hdi_stream_lane_exists(engine, own.wait.lane)) {
        return true;
    }
    hdi_lane_shared *other = hdi_lane_shared_of(engine->device->runtime, own.wait.lane);
    return atomic_load_explicit(&other->done, memory_order_acquire) >= own.wait.position ||
           hdi_stream_wait_host(engine, other, own.wait.lane, own.wait.position);
}

/* Drains a lane of a lost device: its work ends without success, up to its first wait for other
 * work. True if something moved. A worker process never calls this, since it ends at a loss. */
static bool stream_drain(hdi_engine *engine, hdi_stream *stream)
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

/* Signals the end of the last work to other lanes by an event. If lanes of other devices are in
 * other processes, it also makes a completion write. */
static void stream_signal_end(hdi_engine *engine, hdi_stream *stream)
{
    hdi_stream_record_event(engine, stream);
    if (engine->device->runtime->is_process) {
        hdi_stream_signal(engine, stream);
    }
}

/* Makes the events and signals that are due right behind a command, or behind a chain that ends
 * with it. */
static void stream_follow_up(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                             bool signalled)
{
    /* The watchdog needs the end of every operation. */
    uint64_t signal_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool ask = signalled || (c->op == HDI_OP_COPY && c->copy.signalled) ||
               (c->op == HDI_OP_CLAIM && c->kind != HDI_CLAIM_ON_STREAM && stream->signalled != stream->issued);
    bool awaited = (c->op == HDI_OP_COPY || c->op == HDI_OP_COPY_BOX) && (c->kind & HDI_COPY_AWAITED);
    /* relaxed: the next visit sees a wish that this one misses */
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    unsigned asked = hdi_take_requests(&engine->device->channel, stream->number, stream->issued);
    if (__builtin_expect(awaited, 0)) {
        stream_signal_end(engine, stream);
    } else if (__builtin_expect(
                   (wanted > stream->event_last && wanted <= stream->issued) || (asked & HDI_REQUEST_EVENT), 0)) {
        hdi_stream_record_event(engine, stream);
    }
    ask |= (asked & HDI_REQUEST_FLAG) && stream->signalled != stream->issued;
    if (__builtin_expect(ask || stream->issued - stream->signalled >= signal_every ||
                             stream->entries - stream->entries_signalled >= engine->entries_most / 4,
                         0)) {
        hdi_stream_signal(engine, stream);
    }
}

/* Issues one launch by itself. Puts a kernel between two signals (*signalled) if it was never seen
 * to end, or ran long the last time. If the kernel does not end, the signals show that, and that
 * the work in front of it ended. */
static bool stream_issue_launch(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, bool *signalled)
{
    uint32_t kernel = c->kernel;
    uint64_t end = stream->issued + c->slots;
    *signalled = !stream->failed && hdi_chain_is_apart(engine, kernel);
    if (*signalled) {
        hdi_stream_cut(engine, stream, true);
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    bool issued = stream_issue(engine, stream, c);
    if (*signalled && atomic_load_explicit(&shared->failure_changes, memory_order_relaxed) == changes) {
        hdi_chain_note(stream, kernel, end - c->slots, end);
    }
    return issued;
}

/* Issues the next command, or several launches together. *end: the end of what it issued. Returns
 * the number of commands; 0: the lane cannot go on yet. */
static uint32_t stream_issue_next(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end,
                                  bool *signalled)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
    if (c->op == HDI_OP_CLAIM) {
        hdi_stream_begin_claim(engine, stream);
        *end = stream->issued + 1;
        return 1;
    }
    if (__builtin_expect(stream->issued < stream->lost_to, 0)) {
        return stream_pass_lost(engine, stream, c);
    }
    if (c->op != HDI_OP_LAUNCH) {
        return stream_issue(engine, stream, c);
    }
    bool alone = stream->failed || hdi_times_are_kept(&engine->device->channel.lanes[stream->number]) ||
                 engine->recording.detail == HDI_RECORD_DETAIL_FULL;
    uint32_t n = alone ? 0 : hdi_chain_issue(engine, stream, head, most, end);
    if (n == 0) {
        return hdi_device_lost(engine->device) ? 1 : stream_issue_launch(engine, stream, c, signalled);
    }
    stream->tail = TAIL_KERNEL;
    stream->entries++;
    hdi_engine_count_some(&engine->shared->operations, n);
    return n;
}

/* Called when the lane cannot go on. Notes whether the lane stands at an open claim: then a look at
 * the device is useless. */
static void stream_note_claimed(hdi_stream *stream, const hdi_lane_shared *shared, const hdi_command *c, uint64_t end)
{
    bool open = c->op == HDI_OP_CLAIMED && atomic_load_explicit(&shared->ended, memory_order_relaxed) < end;
    atomic_store_explicit(&stream->claimed_to, open ? end : 0, memory_order_relaxed);
}

/* True if a ticket may name the end of this command. */
static bool stream_command_is_named(const hdi_command *c)
{
    /* hd_lane_get_ticket may find it as the last one. */
    return hdi_op_is_work(c->op) || c->op == HDI_OP_RESUME;
}

/* Handles a command that cannot be issued now. It ends at `end`. */
static void stream_block(hdi_engine *engine, hdi_stream *stream, const hdi_lane_shared *shared, const hdi_command *c,
                         uint64_t end, bool records)
{
    atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
    stream_note_claimed(stream, shared, c, end);
    if (records) {
        hdi_span_cut(engine, stream);
    }
}

/* Notes that the commands from `c` up to `end` are issued. `rests`: none of them is on the
 * device. */
static void stream_pass_issued(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                               uint64_t end, bool rests, bool lost)
{
    stream->issued = end;
    if (__builtin_expect(hdi_times_are_kept(shared), 0) && stream_command_is_named(c) && !lost) {
        hdi_times_record(engine, stream, end);
    }
    if (rests) {
        hdi_stream_rest(engine, stream, end);
    }
    /* pairs with the acquire load in hdi_stream_wait of other engines */
    atomic_store_explicit(&shared->issued, end, memory_order_release);
    engine->now = hdi_clock_ns();
}

/* Puts a signal behind `n` launches if the timing of kernels needs one. */
static void stream_time_launches(hdi_engine *engine, hdi_stream *stream, uint32_t n)
{
    if (hdi_kernel_time_wants_signal(&stream->timing, n, engine->chain_most, engine->now) &&
        stream->signalled != stream->issued) {
        hdi_stream_signal(engine, stream);
    }
}

/* Issues as many commands as a visit and the driver's queue allow. True if something was issued. */
static bool stream_issue_some(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, uint64_t head)
{
    bool any = false;
    atomic_store_explicit(&stream->blocked, false, memory_order_relaxed);
    atomic_store_explicit(&stream->claimed_to, 0, memory_order_relaxed);
    /* A visit records at most as many events as a lane has. So a lane that waits for the first
     * event gets a visit before the engine records this event again. */
    uint64_t events = 0;
    engine->now = hdi_clock_ns();
    int64_t until = engine->now + (engine->has_company ? VISIT_NS_IN_COMPANY : VISIT_NS);
    for (uint32_t left = engine->has_company ? COMMANDS_IN_COMPANY : COMMANDS_PER_VISIT;
         left > 0 && stream->issued != head && events < EVENTS_PER_VISIT;) {
        if (stream->entries - stream->entries_done >= engine->entries_most) {
            atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
            break; /* one more call might wait for the device, and block all lanes */
        }
        uint64_t event_before = stream->event_last;
        const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        /* The command's count of slots is 0, or larger than the slots that were submitted. */
        if (__builtin_expect(slots - 1 >= head - stream->issued, 0)) {
            hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
            return true;
        }
        uint64_t end = stream->issued + slots;
        bool signalled = false, launches = c->op == HDI_OP_LAUNCH;
        bool at_rest = stream->passed == stream->issued;
        uint64_t entries = stream->entries, from = stream->issued;
        bool lost = stream->issued < stream->lost_to;
        bool records = __builtin_expect(engine->recording.detail != 0, 0) && !lost;
        if (records) {
            hdi_span_before(engine, stream, c);
        }
        int64_t before = engine->now;
        uint32_t n = stream_issue_next(engine, stream, head, left, &end, &signalled);
        if (n == 0) {
            stream_block(engine, stream, shared, c, end, records);
            break;
        }
        if (hdi_device_lost(engine->device)) {
            return true;
        }
        left -= n;
        any = true;
        stream_pass_issued(engine, stream, shared, c, end, at_rest && stream->entries == entries, lost);
        int64_t behind = engine->now;
        records = records && hdi_span_behind(engine, stream, c);
        hdi_kernel_time_give(&stream->timing, launches ? n : 0, before, behind);
        stream_follow_up(engine, stream, shared, c, signalled);
        if (records) {
            /* This comes after the signal, since a thread may wait for the signal. */
            hdi_record_issue(engine, stream, from, n, before, behind);
        }
        if (launches) {
            stream_time_launches(engine, stream, n);
        }
        events += stream->event_last != event_before;
        if (engine->now >= until) {
            break;
        }
    }
    return any;
}

/* ---- a visit ---- */

/* The watchdog: if an operation is at the front of its lane for too long, this loses the device. */
static void stream_watch(hdi_engine *engine, hdi_stream *stream, const hdi_pass *pass)
{
    int64_t now = pass->now - engine->unwatched;
    if (stream->issued == stream->done || stream->front != stream->done || !stream->front_since) {
        stream->front = stream->done;
        stream->front_since = stream->issued == stream->done ? 0 : now;
    } else if (now - stream->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, stream->number, stream->done, stream->issued)) {
            stream->front_since = now;
        } else {
            atomic_store_explicit(&engine->shared->overdue, stream->number + 1, memory_order_release);
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* Checks the invariants of a stream between two visits. */
static void stream_check(hdi_engine *engine, const hdi_stream *stream, uint64_t head)
{
    assert(stream->done <= stream->passed && stream->passed <= stream->issued && stream->issued <= head);
    assert(stream->signalled <= stream->issued && stream->event_last <= stream->issued);
    assert(head - stream->done <= engine->device->channel.slots);
    assert(stream->first_dependency <= stream->n_dependencies && stream->n_dependencies <= stream->dependencies_room);
    for (uint32_t i = stream->first_dependency + 1; i < stream->n_dependencies; i++) {
        assert(stream->dependencies[i - 1].position <= stream->dependencies[i].position);
    }
}
#endif

/* Records the event that another lane wants. The other lane may want one only after the command was
 * issued. */
static void stream_grant_events(hdi_engine *engine, hdi_stream *stream, const hdi_lane_shared *shared)
{
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    bool late = wanted > stream->event_last && wanted <= stream->issued && wanted > stream->done;
    uint64_t wanted_now = atomic_load_explicit(&shared->wanted_now, memory_order_relaxed);
    if (late || (wanted_now > stream->event_last && wanted_now <= stream->issued)) {
        hdi_stream_record_event(engine, stream);
    }
}

bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        /* `made` is always true here. The load pairs with the release store in hdi_stream_make,
         * which precedes the lane's first command. */
        return false;
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* pairs with the submitters' store: commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    hdi_stream_catch_up(engine, stream, head);
    if (__builtin_expect(head - stream->done > engine->device->channel.slots || head < stream->issued, 0)) {
        /* `head` shows more commands than fit into the ring, or fewer than before. */
        hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
    }
    if (!hdi_device_lost(engine->device)) {
        if (stream->issued != head) {
            if (stream->issued == stream->done) {
                stream->checked = pass->now;
                if (!atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
                    /* Only for messages. */
                    atomic_store_explicit(&shared->moved, pass->now, memory_order_relaxed);
                }
            }
            if (stream_issue_some(engine, stream, shared, head)) {
                stream->idle_since = 0;
                pass->progress = true;
            }
        }
        stream_grant_events(engine, stream, shared);
        if (stream->issued != stream->signalled) {
            uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
            bool stands = stream->issued == head || atomic_load_explicit(&stream->blocked, memory_order_relaxed);
            if (__builtin_expect(engine->recording.detail != 0, 0) && stands) {
                hdi_span_stand(engine, stream, pass->now);
            }
            if (stands && !stream->idle_since) {
                stream->idle_since = pass->now;
            }
            if ((host > stream->signalled && (host <= stream->issued || stands)) ||
                (stands && pass->now - stream->idle_since > LINGER_NS)) {
                hdi_stream_signal(engine, stream);
            }
        }
        hdi_stream_reap(engine, stream, pass);
        if (__builtin_expect(engine->watchdog_ns != 0, 0)) {
            stream_watch(engine, stream, pass);
        }
    }
    if (hdi_device_lost(engine->device)) {
        pass->progress |= stream_drain(engine, stream);
    }
#ifdef HDI_DEBUG
    if (!hdi_device_lost(engine->device)) {
        stream_check(engine, stream, head);
    }
#endif
    bool stands = atomic_load_explicit(&stream->claimed_to, memory_order_relaxed) && stream->done == stream->issued;
    pass->in_flight |= stream->done != head && !stands;
    return stream->issued != head && !atomic_load_explicit(&stream->blocked, memory_order_relaxed);
}
