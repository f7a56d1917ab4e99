/* stream.c - gives one lane's commands to the driver, makes it wait for other lanes, and follows how far it is.
 *
 * A lane waits for another one by an event of the driver. Where the other lane's engine is in another process, it waits
 * until the position is done.
 *
 * How far it is shows in the completion flag, which the device writes, and in the stream's status. A *signal* behind
 * the lane's work makes the device write the position into the flag. There are two kinds:
 * - A fill, behind kernels and behind small copies to the device. It follows kernels at once. The driver sends the
 *   bytes of small copies along with its commands, so the fill follows them at once, too.
 * - A written value, behind other copies. A fill would be work for another engine of the device than the copy was.
 *
 * Threads: the thread that runs the device's engine. That is its own thread or, in the placement inline, the holder of
 * `running`. The device's context is current.
 * Locks: none. Other engines read event positions, and find everything else in the shared channel.
 * Always:
 * - No call blocks: a lane that cannot go on is visited again.
 * - A lane's commands are issued in order. A failed command is recorded before `issued` passes it.
 * - Every wait is for an event that is already recorded, so waits for events close no circle (event.c).
 * - A wait is made also where the operation behind it fails at once, since later ones rely on it.
 * - What is read from another lane is a dependency until its outcome is recorded. `done` never passes a position before
 *   the results that it reads from other lanes are done.
 */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/stream.h"

/* What a lane's work ends in, which decides how its end is signalled (hdi_stream.tail). */
enum {
    TAIL_KERNEL, /* also what the driver does by kernels: fills, copies inside the device */
    TAIL_COPY,   /* by a copy engine */
};
#define SENT_ALONG_MOST ((uint64_t)16 << 10) /* bytes: copies to the device up to this size end like kernels */

/* The most that a visit issues, and so what another lane waits for at most. */
#define COMMANDS_PER_VISIT HDI_CHAIN_MOST
#define COMMANDS_IN_COMPANY (HDI_CHAIN_MOST / 2) /* beside lanes with little to do */

#define VISIT_NS 8000 /* of a visit: a call takes one to ten microseconds; a chain of 32 takes as long as a visit */
#define VISIT_NS_IN_COMPANY 4000
#define EVENTS_PER_VISIT (HDI_EVENTS_PER_LANE / 2)
#define LINGER_NS 10000 /* an empty lane is signalled this long after it ran empty, sooner if a thread waits */
#define DEPENDENCIES_LOCAL 8
#define LOOK_NS 1000000 /* no progress for this long: query the stream's status, since an error shows only there */
#define BAD_LOOKS_MAX 8 /* the status query failing this often in a row means that the device cannot be used */

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
        /* pairs with the load in the submit path, which refuses; late is fine, as the engine passes over later
         * commands */
        atomic_store_explicit(&shared->failed, 1, memory_order_release);
    }
}

/* Fails positions `from` to `to` of this lane, since they read a result that another lane's failure left missing. */
static void stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to)
{
    stream->cause = *other;
    stream->cause.inherited = 1;
    hdi_stream_record_failure(engine, stream, from, to);
}

/* ---- waits for other lanes ---- */

static bool room_for_dependency(hdi_stream *stream)
{
    if (stream->n_dependencies == stream->dependencies_room && stream->first_dependency > 0) {
        stream->n_dependencies -= stream->first_dependency;
        memmove(stream->dependencies, stream->dependencies + stream->first_dependency,
                stream->n_dependencies * sizeof *stream->dependencies);
        stream->first_dependency = 0;
    }
    if (stream->n_dependencies == stream->dependencies_room) {
        uint32_t room = stream->dependencies_room ? stream->dependencies_room * 2 : DEPENDENCIES_LOCAL;
        hdi_dependency *more = realloc(stream->dependencies, room * sizeof *more);
        if (!more) {
            return false;
        }
        stream->dependencies = more;
        stream->dependencies_room = room;
    }
    return true;
}

/* The other lane's engine is in another process, whose events have no meaning here. This lane goes on when that one is
 * done. The other side moves `done` and rings this engine's doorbell also when its device is lost. */
static bool wait_for_host(hdi_engine *engine, hdi_lane_shared *other, uint32_t lane, uint64_t target)
{
    hd_runtime *rt = engine->device->runtime;
    /* Sequentially consistent with the other engine's store of `done` followed by its look at `watchers`. */
    atomic_fetch_or_explicit(&other->watchers, (uint32_t)1 << engine->device->index, memory_order_seq_cst);
    if (atomic_load_explicit(&other->wanted_host, memory_order_relaxed) < target) {
        hdi_raise(&other->wanted_host, target);
        hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    }
    return atomic_load_explicit(&other->done, memory_order_seq_cst) >= target;
}

/* For a trace: the lane waits for the other one's event at a position. */
static void record_behind(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t position)
{
    if (position > c->wait.position) {
        hdi_record_behind(engine, stream, stream->issued + c->slots, c->wait.lane, position);
    }
}

/* Makes the lane's CUDA stream wait for the other lane. False: not possible now. */
static bool wait_for_event(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t source)
{
    hd_runtime *rt = engine->device->runtime;
    uint32_t lane = c->wait.lane;
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    hdi_stream *other_stream = &owner->engine->streams[lane % HDI_LANES_MAX];
    int held;
    hdcu_event event = hdi_stream_hold_event(other_stream, c->wait.position, &held);
    if (!event) {
        if (hdi_stream_is_cut_behind(other_stream, c->wait.position)) {
            wait_for_host(engine, other, lane, c->wait.position);
            return false;
        }
        if (atomic_load_explicit(&other->wanted_now, memory_order_relaxed) < c->wait.position) {
            hdi_raise(&other->wanted_now, c->wait.position);
            hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        }
        return false;
    }
    if (source && !room_for_dependency(stream)) {
        hdi_stream_release_event(other_stream, held);
        hdi_raise(&other->wanted_host, c->wait.position);
        return false; /* no memory now: the lane goes on when the other one is done */
    }
    if (atomic_load_explicit(&rt->has_calls, memory_order_relaxed)) {
        hdi_stream_cut(engine, stream);
    }
    if (__builtin_expect(engine->recording.detail != 0, 0)) {
        hdi_span_cut(engine, stream);
        record_behind(engine, stream, c,
                      atomic_load_explicit(&other_stream->event_position[held], memory_order_relaxed));
    }
    hdcu_result r = rt->driver->cuStreamWaitEvent(stream->handle, event, 0);
    hdi_stream_release_event(other_stream, held);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
        return true;
    }
    if (r != HDCU_SUCCESS) {
        /* The driver refuses the wait: this lane goes on when the other one is done. */
        hdi_raise(&other->wanted_host, c->wait.position);
        hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        return false;
    }
    hdi_engine_count(&engine->shared->waits);
    stream->entries++;
    if (source) {
        stream->dependencies[stream->n_dependencies++] = (hdi_dependency){stream->issued + c->slots, source, lane};
    }
    return true;
}

/* Whether there is such a lane. If not, the command was overwritten, and the device is lost. */
static bool lane_exists(hdi_engine *engine, uint32_t lane)
{
    if (__builtin_expect(lane >= (uint32_t)engine->device->runtime->n_devices * HDI_LANES_MAX, 0)) {
        hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
        return false;
    }
    return true;
}

/* Handles a WAIT. True when the lane may go on behind it. */
static bool stream_wait(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hd_runtime *rt = engine->device->runtime;
    uint32_t lane = c->wait.lane;
    if (!lane_exists(engine, lane)) {
        return true;
    }
    uint64_t target = c->wait.position;
    uint64_t source = stream->failed ? 0 : c->wait.source; /* a failed lane needs no second failure */
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    bool self = owner == engine->device && lane % HDI_LANES_MAX == stream->number;

    bool done = atomic_load_explicit(&other->done, memory_order_acquire) >= target;
    if (!done && !owner->engine) {
        done = wait_for_host(engine, other, lane, target);
        if (!done) {
            return false;
        }
        hdi_engine_count(&engine->shared->waits);
    }
    /* pairs with the release store of `issued`: failures found while issuing are recorded before it */
    if (!done && !self && atomic_load_explicit(&other->issued, memory_order_acquire) < target) {
        return false;
    }
    hdi_failure failure;
    hdi_logged logged =
        source ? hdi_failure_logged(&owner->channel, lane % HDI_LANES_MAX, source, &failure) : HDI_LOGGED_NO;
    if (logged == HDI_LOGGED_UNSURE) {
        return false;
    }
    if (logged == HDI_LOGGED_YES) {
        stream_inherit(engine, stream, &failure, stream->issued + 1, stream->issued + c->slots);
        source = 0; /* the order stays: the operations behind the one that fails rely on it */
    }
    if (self && source && !done) {
        /* One lane has its order anyway. But the earlier operation may turn out to have failed. */
        if (!room_for_dependency(stream)) {
            return false;
        }
        stream->dependencies[stream->n_dependencies++] = (hdi_dependency){stream->issued + c->slots, source, lane};
    }
    return done || self || wait_for_event(engine, stream, c, source);
}

/* Handles a SOURCES: further results that the operation behind it reads. True when the lane may go on behind it. */
static bool stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    uint32_t lane = c->sources.lane;
    if (!lane_exists(engine, lane)) {
        return true;
    }
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, lane);
    const hdi_lane_shared *other = &owner->channel.lanes[lane % HDI_LANES_MAX];
    uint64_t behind = stream->issued + c->slots;
    for (uint32_t i = 0; i < HDI_SOURCES_MOST && !stream->failed; i++) {
        if (i > 0 && c->sources.behind[i - 1] == 0) {
            break;
        }
        uint64_t source = c->sources.position + (i > 0 ? c->sources.behind[i - 1] : 0);
        /* `done` before the failures: a failure is recorded before `done` passes it */
        bool done = atomic_load_explicit(&other->done, memory_order_acquire) >= source;
        hdi_failure failure;
        hdi_logged logged = hdi_failure_logged(&owner->channel, lane % HDI_LANES_MAX, source, &failure);
        if (logged == HDI_LOGGED_UNSURE) {
            return false;
        }
        if (logged == HDI_LOGGED_YES) {
            stream_inherit(engine, stream, &failure, stream->issued + 1, behind);
        } else if (!done) {
            /* Without memory the whole command is handled again later. A dependency that is noted twice is settled
             * twice. */
            if (!room_for_dependency(stream)) {
                return false;
            }
            stream->dependencies[stream->n_dependencies++] = (hdi_dependency){behind, source, lane};
        }
    }
    return true;
}

/* ---- how far the lane is ---- */

#ifdef HDI_DEBUG
static bool failed_there(const hdi_engine *engine, uint32_t lane, uint64_t position)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, lane);
    /* The log of an engine in another process may hold anything. */
    return position && owner->engine &&
           hdi_failure_logged(&owner->channel, lane % HDI_LANES_MAX, position, &failure) == HDI_LOGGED_YES;
}

static bool a_source_failed(const hdi_engine *engine, const hdi_command *c)
{
    if (c->op == HDI_OP_WAIT) {
        return failed_there(engine, c->wait.lane, c->wait.source);
    }
    bool failed = c->op == HDI_OP_SOURCES && failed_there(engine, c->sources.lane, c->sources.position);
    for (int i = 0; c->op == HDI_OP_SOURCES && i < HDI_SOURCES_MOST - 1 && c->sources.behind[i]; i++) {
        failed |= failed_there(engine, c->sources.lane, c->sources.position + c->sources.behind[i]);
    }
    return failed;
}

/* Checks that no operation that reads a failed one's result is done without having failed. */
static void check_outcomes(const hdi_engine *engine, const hdi_stream *stream, uint64_t to)
{
    uint32_t own = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
    bool must_fail = false;
    for (uint64_t at = stream->done; at < to;) {
        const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, at);
        at += c->slots ? c->slots : 1;
        must_fail |= a_source_failed(engine, c);
        if (hdi_op_is_work(c->op) && at <= to) {
            assert(!must_fail || failed_there(engine, own, at));
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
    check_outcomes(engine, stream, position);
#endif
    uint64_t before = stream->done;
    stream->done = position;
    atomic_store_explicit(&shared->moved, engine->now, memory_order_relaxed); /* only for messages */
    /* Releases what the device wrote to threads that load `done`. Sequentially consistent with the sleeper, which
     * registers and then loads `done` once more. */
    if (__builtin_expect(stream->has_claims, 0)) {
        hdi_raise(&shared->done,
                  position); /* while a lost device is drained, a claim may be ended (hdi_claim_end_lane) */
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

/* Where the lane read the result of a lane that failed, it fails, too, from behind the wait on. False: the other lane's
 * outcome cannot be read yet. */
static bool settle_failure(hdi_engine *engine, hdi_stream *stream, const hdi_dependency *d)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, d->lane);
    hdi_logged logged = hdi_failure_logged(&owner->channel, d->lane % HDI_LANES_MAX, d->target, &failure);
    if (logged != HDI_LOGGED_YES) {
        return logged == HDI_LOGGED_NO;
    }
    bool failed = stream->failed;
    uint64_t end = stream->issued;
    /* The operation that reads may not have been issued yet. Then it still has to be passed over. */
    bool issued =
        hdi_lane_operation(&engine->device->channel, stream->number, d->position, stream->issued, &end) != NULL;
    end = stream->sticky_failure ? stream->issued : end;
    stream_inherit(engine, stream, &failure, d->position + 1, end);
    stream->failed = failed || stream->sticky_failure || !issued;
    return true;
}

static bool same_dependency(const hdi_dependency *a, const hdi_dependency *b)
{
    return a->position == b->position && a->lane == b->lane && a->target == b->target;
}

/* Moves `done` towards what the device has passed, at least to `until`. It stops where a lane that this one read from
 * is not done. A lane of the same device is moved first where needed. After that, every level loads its lane's state
 * again, since lanes that read from each other in turn come by several times. */
static void finish(hdi_engine *engine, hdi_stream *stream, uint64_t until, int depth)
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
            /* The work behind the wait has finished, so on the same device the other lane has passed the target,
             * too. */
            if (hdi_lane_owner(rt, d.lane) == engine->device && depth < HDI_LANES_MAX) {
                hdi_stream *other_stream = &engine->streams[d.lane % HDI_LANES_MAX];
                other_stream->passed = other_stream->passed > d.target ? other_stream->passed : d.target;
                finish(engine, other_stream, d.target, depth + 1);
                hdi_span_passed(engine, other_stream);
            }
            if (atomic_load_explicit(&other->done, memory_order_acquire) < d.target) {
                return;
            }
        }
        if (stream->first_dependency < stream->n_dependencies &&
            same_dependency(&stream->dependencies[stream->first_dependency], &d)) {
            if (!settle_failure(engine, stream, &d)) {
                return;
            }
            stream->first_dependency++;
            if (stream->first_dependency == stream->n_dependencies) {
                stream->first_dependency = stream->n_dependencies = 0;
            }
        }
    }
}

/* Handles signals that the device has passed. Their work takes no room in the driver's queue any more. They give the
 * kernels' times, and show which kernels end. */
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
        stream->entries_done = stream->entries; /* at most one signal is left, which has the same count */
    }
    if (passed) {
        hdi_kernel_time_pass(&stream->timing, &first, &last, others, hdi_clock_ns());
    }
    if (stream->n_new) {
        hdi_chain_learn(engine, stream);
    }
}

/* Notes a signal behind what was issued. */
static void add_signal(hdi_stream *stream)
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

/* The device has passed `position`. True when `done` moved. */
static bool passed(hdi_engine *engine, hdi_stream *stream, uint64_t position)
{
    uint64_t before = stream->done;
    if (position > stream->passed) {
        stream->passed = position;
    }
    stream_pass_signals(engine, stream);
    finish(engine, stream, stream->passed, 0);
    hdi_span_passed(engine, stream);
    return stream->done > before;
}

/* Requests signals from the lanes that this lane has read since its last signal. Until those are done, this lane is
 * not. Not sooner, since every signal delays the other lane a little. */
static void want_sources(hdi_engine *engine, const hdi_stream *stream)
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
    want_sources(engine, stream);
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
        add_signal(stream);
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

/* Queries the stream's status. Only that shows errors of running work, and completion where the flag could not be
 * written. */
static void look_at_stream(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    uint64_t issued = stream->issued;
    stream->checked = pass->now;
    hdcu_result r = engine->device->runtime->driver->cuStreamQuery(stream->handle);
    engine->now = hdi_clock_ns();
    if (r == HDCU_SUCCESS) {
        stream->bad_looks = 0;
        stream->flag_missing = false;
        pass->progress |= passed(engine, stream, issued);
    } else if (r == HDCU_ERROR_NOT_READY ||
               hdi_driver_code_is_capture(r)) { /* a capture has no bearing on this stream */
        stream->bad_looks = 0;
    } else if (hdi_driver_code_is_fatal(r) || ++stream->bad_looks >= BAD_LOOKS_MAX) {
        hdi_engine_lose(engine, r);
    }
}

/* Reads the completion flag. True when `done` moved. */
static bool stream_read_flag(hdi_engine *engine, hdi_stream *stream)
{
    if (stream->signalled <= stream->done) {
        return false;
    }
    /* Pairs with the device's write, which is ordered behind the lane's work. The flag holds the low half of a position
     * between `passed` and `signalled`, which are far less than 2^32 apart. */
    uint32_t low = atomic_load_explicit(&engine->device->channel.flags[stream->number].position, memory_order_acquire);
    uint64_t position = stream->signalled - (uint32_t)((uint32_t)stream->signalled - low);
    /* It is beyond `signalled` only where something else wrote there. */
    return position > stream->done && position <= stream->signalled && passed(engine, stream, position);
}

void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    stream_pass_signals(engine, stream); /* another lane may have shown that the device has passed them */
    if (stream->passed > stream->done && passed(engine, stream, stream->passed)) {
        pass->progress = true; /* the results that it read from another lane are done by now */
    }
    if (stream_read_flag(engine, stream)) {
        stream->checked = pass->now;
        pass->progress = true;
    }
    if (stream->issued > stream->done && stream->passed < stream->issued &&
        (stream->flag_missing || pass->now - stream->checked > LOOK_NS)) {
        look_at_stream(engine, stream, pass);
    }
}

/* ---- loss of the device ---- */

/* Records, once, that everything of the lane that is not done fails, now and later. */
static void record_loss(hdi_engine *engine, hdi_stream *stream, int code)
{
    if (!stream->loss_recorded) {
        stream->loss_recorded = true;
        stream->failed = true;
        hdi_lane_lose(engine->device, stream->number, code);
    }
}

/* Takes in what the device has written so far. A signal that it has not passed stands in front of what came later, so
 * that had not begun. */
static void settle(hdi_engine *engine, hdi_stream *stream)
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
            settle(engine, &engine->streams[i]);
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
            record_loss(engine, stream, code);
        }
    }
    atomic_store_explicit(&engine->device->lost_by, code, memory_order_relaxed);
    hdi_device_change(engine->device, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    hdi_loss_note(engine->device, code);
}

void hdi_stream_command_failed(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t begin, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        /* A library for products makes several calls, as the program may, so some of its work may be the cause. */
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

/* The kind of work that the lane ends in behind this command. */
static uint8_t tail_of(const hdi_command *c)
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
static uint64_t entries_of(const hdi_command *c)
{
    static const uint8_t entries_of_op[HDI_OPS] = {
#define ENTRIES(op, call, name, entries, rank) [HDI_OP_##op] = (entries),
        HDI_OP_MAP(ENTRIES)
#undef ENTRIES
    };
    uint8_t op = *(const volatile uint8_t *)&c->op; /* loaded once, since it is used twice */
    return hdi_op_is_work(op) ? entries_of_op[op] : 1;
}

/* Issues one command. False: the lane cannot go on yet. */
static bool issue(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* Waits are made after a failure, too: later operations, and uses of the same buffers elsewhere, rely on them. */
    if (stream->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT && c->op != HDI_OP_CLAIMED) {
        hdi_stream_record_failure(engine, stream, stream->issued + 1, stream->issued + c->slots);
        stream->refused = true;
        if (hdi_op_is_work(c->op) && !stream->sticky_failure) {
            stream->failed = false; /* only what depended on the failed result fails */
        }
        return true;
    }
    hdi_command own; /* a copy stays the same, whatever is written into the ring meanwhile */
    switch (c->op) {
    case HDI_OP_WAIT:
        own = *c;
        return stream_wait(engine, stream, &own);
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
        return stream_sources(engine, stream, &own);
    default:
        /* If this process ends in the call, or before `issued` passes the command, its work may have begun. */
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, stream->issued + c->slots,
                              memory_order_release);
        if (c->op == HDI_OP_CALL) {
            hdi_stream_cut(engine, stream);
        }
        r = c->op == HDI_OP_CALL ? hdi_stream_call(engine, stream, c) : hdi_issue(engine, stream, c);
        break;
    }
    stream->tail = tail_of(c);
    stream->entries += entries_of(c);
    hdi_engine_count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        hdi_stream_command_failed(engine, stream, c, stream->issued, r);
        if (!stream->sticky_failure) {
            stream->failed = false; /* only this command fails */
        }
    }
    return true;
}

/* Drains a lane of a lost device: its work ends without success, up to its first wait for others. True when something
 * moved. Not in a worker process, which ends instead. */
static bool drain(hdi_engine *engine, hdi_stream *stream)
{
    uint64_t head = hdi_lane_submitted(engine->device, stream->number);
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* The lane may have been made while the device was being lost. */
    record_loss(engine, stream, hdi_device_lost_by(engine->device));
    const hd_lane *lane = hdi_lane_at(engine->device, stream->number);
    stream->has_claims |= lane && lane->claim;
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

/* Signals the end of what was issued last, for other lanes. By an event and, where other devices' lanes are in other
 * processes, by a completion write, too. */
static void signal_end(hdi_engine *engine, hdi_stream *stream)
{
    hdi_stream_record_event(engine, stream);
    if (engine->device->runtime->is_process) {
        hdi_stream_signal(engine, stream);
    }
}

/* Records events and signals that are due right behind a command, or behind a chain that ends with it. */
static void follow_up(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                      bool signalled)
{
    /* The watchdog needs the end of every operation. */
    uint64_t signal_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool ask = signalled || (c->op == HDI_OP_COPY && c->copy.signalled) ||
               (c->op == HDI_OP_CLAIM && c->kind != HDI_CLAIM_ON_STREAM && stream->signalled != stream->issued);
    bool awaited = (c->op == HDI_OP_COPY || c->op == HDI_OP_COPY_BOX) && (c->kind & HDI_COPY_AWAITED);
    /* relaxed: a wish seen late is seen at the next visit */
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    unsigned asked = hdi_take_requests(&engine->device->channel, stream->number, stream->issued);
    if (__builtin_expect(awaited, 0)) {
        signal_end(engine, stream);
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

/* Issues one launch by itself. A kernel that was never seen to end is put between two signals (*signalled). If it never
 * ends, the signals show that it was this one. */
static bool issue_launch(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, bool *signalled)
{
    uint32_t kernel = c->kernel;
    uint64_t end = stream->issued + c->slots;
    *signalled = engine->chain_most && !stream->failed && hdi_chain_is_new(engine, kernel);
    if (*signalled && stream->issued != stream->signalled && stream->issued != stream->passed) {
        hdi_stream_signal(engine, stream);
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    bool issued = issue(engine, stream, c);
    if (*signalled && atomic_load_explicit(&shared->failure_changes, memory_order_relaxed) == changes) {
        hdi_chain_note(engine, stream, kernel, end);
    }
    return issued;
}

/* Issues the next command, or several launches together. *end: where they end. Returns how many; 0: the lane cannot go
 * on yet. */
static uint32_t issue_next(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end,
                           bool *signalled)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
    if (c->op == HDI_OP_CLAIM) {
        hdi_stream_begin_claim(engine, stream);
        *end = stream->issued + 1;
        return 1;
    }
    if (c->op != HDI_OP_LAUNCH) {
        return issue(engine, stream, c);
    }
    bool alone = stream->failed || hdi_times_are_kept(&engine->device->channel.lanes[stream->number]) ||
                 engine->recording.detail == HDI_RECORD_DETAIL_FULL;
    uint32_t n = alone ? 0 : hdi_chain_issue(engine, stream, head, most, end);
    if (n == 0) {
        return hdi_device_lost(engine->device) ? 1 : issue_launch(engine, stream, c, signalled);
    }
    stream->tail = TAIL_KERNEL;
    stream->entries++;
    hdi_engine_count_some(&engine->shared->operations, n);
    return n;
}

/* The lane cannot go on. Where it stands at a claim of the program's, no look at the device will change that. */
static void stand(hdi_stream *stream, const hdi_command *c, uint64_t end)
{
    atomic_store_explicit(&stream->claimed_to, c->op == HDI_OP_CLAIMED ? end : 0, memory_order_relaxed);
}

/* Whether a ticket may name the end of this command. */
static bool is_named(const hdi_command *c)
{
    return hdi_op_is_work(c->op) || c->op == HDI_OP_RESUME; /* which hd_lane_get_ticket may find as the last one */
}

/* Gives the driver what it can take. True when something was issued. */
static bool issue_some(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, uint64_t head)
{
    bool any = false;
    atomic_store_explicit(&stream->blocked, false, memory_order_relaxed);
    atomic_store_explicit(&stream->claimed_to, 0, memory_order_relaxed);
    /* Not all in one visit: a lane that waits for the first of them is visited before that event is recorded again. */
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
        if (__builtin_expect(slots - 1 >= head - stream->issued, 0)) { /* none, or more than there are */
            hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
            return true;
        }
        uint64_t end = stream->issued + slots;
        bool signalled = false, launches = c->op == HDI_OP_LAUNCH;
        bool at_rest = stream->passed == stream->issued;
        uint64_t entries = stream->entries, from = stream->issued;
        bool records = __builtin_expect(engine->recording.detail != 0, 0);
        if (records) {
            hdi_span_before(engine, stream, c);
        }
        int64_t before = engine->now;
        uint32_t n = issue_next(engine, stream, head, left, &end, &signalled);
        if (n == 0) {
            atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
            stand(stream, c, end);
            if (records) {
                hdi_span_cut(engine, stream);
            }
            break;
        }
        if (hdi_device_lost(engine->device)) {
            return true;
        }
        left -= n;
        stream->issued = end;
        any = true;
        if (__builtin_expect(hdi_times_are_kept(shared), 0) && is_named(c)) {
            hdi_times_record(engine, stream, end);
        }
        if (at_rest && stream->entries == entries) {
            hdi_stream_rest(engine, stream, end);
        }
        /* pairs with the acquire load in stream_wait of other engines */
        atomic_store_explicit(&shared->issued, stream->issued, memory_order_release);
        engine->now = hdi_clock_ns();
        int64_t behind = engine->now;
        records = records && hdi_span_behind(engine, stream, c);
        hdi_kernel_time_give(&stream->timing, launches ? n : 0, before, behind);
        follow_up(engine, stream, shared, c, signalled);
        if (records) {
            hdi_record_issue(engine, stream, from, n, before, behind); /* a thread may wait for the signal */
        }
        if (launches && hdi_kernel_time_wants_signal(&stream->timing, n, engine->chain_most, engine->now) &&
            stream->signalled != stream->issued) {
            hdi_stream_signal(engine, stream);
        }
        events += stream->event_last != event_before;
        if (engine->now >= until) {
            break;
        }
    }
    return any;
}

/* ---- a visit ---- */

/* Applies the watchdog: an operation has been at the front of its lane for too long, so its device is lost. */
static void watch(hdi_engine *engine, hdi_stream *stream, const hdi_pass *pass)
{
    if (stream->issued == stream->done || stream->front != stream->done || !stream->front_since) {
        stream->front = stream->done;
        stream->front_since = stream->issued == stream->done ? 0 : pass->now;
    } else if (pass->now - stream->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, stream->number, stream->done, stream->issued)) {
            stream->front_since = pass->now;
        } else {
            atomic_store_explicit(&engine->shared->overdue, stream->number + 1, memory_order_release);
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* Checks what always holds of a stream between two visits. */
static void check_stream(hdi_engine *engine, const hdi_stream *stream, uint64_t head)
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

bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        /* Never false: pairs with the release store in hdi_stream_make, which precedes the lane's first command. */
        return false;
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* pairs with the submitters' store: the commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    hdi_stream_catch_up(engine, stream, head);
    if (__builtin_expect(head - stream->done > engine->device->channel.slots || head < stream->issued, 0)) {
        hdi_engine_lose(engine, HDI_GONE_CORRUPTED); /* more than the ring holds, or less than before */
    }
    if (!hdi_device_lost(engine->device)) {
        if (stream->issued != head) {
            if (stream->issued == stream->done) {
                stream->checked = pass->now;
                if (!atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
                    atomic_store_explicit(&shared->moved, pass->now, memory_order_relaxed); /* only for messages */
                }
            }
            if (issue_some(engine, stream, shared, head)) {
                stream->idle_since = 0;
                pass->progress = true;
            }
        }
        uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
        bool late = wanted > stream->event_last && wanted <= stream->issued && wanted > stream->done;
        uint64_t wanted_now = atomic_load_explicit(&shared->wanted_now, memory_order_relaxed);
        if (late || (wanted_now > stream->event_last && wanted_now <= stream->issued)) {
            hdi_stream_record_event(engine, stream); /* the wish came after the command had been issued */
        }
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
            watch(engine, stream, pass);
        }
    }
    if (hdi_device_lost(engine->device)) {
        pass->progress |= drain(engine, stream);
    }
#ifdef HDI_DEBUG
    if (!hdi_device_lost(engine->device)) {
        check_stream(engine, stream, head);
    }
#endif
    bool stands = atomic_load_explicit(&stream->claimed_to, memory_order_relaxed) && stream->done == stream->issued;
    pass->in_flight |= stream->done != head && !stands;
    return stream->issued != head && !atomic_load_explicit(&stream->blocked, memory_order_relaxed);
}
