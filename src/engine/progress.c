/* progress.c - how far a lane is: the completion flag that the device writes, the stream's status, and `done`.
 *
 * A *signal* behind the lane's work makes the device write the position into the lane's completion flag. There are two
 * kinds:
 * - A fill, behind kernels and behind small copies to the device. It follows kernels at once. The driver sends the
 *   bytes of small copies along with its commands, so the fill follows them at once, too.
 * - A written value, behind other copies. A fill would be work for another engine of the device than the copy was.
 *
 * Threads: the thread that runs the device's engine. The device's context is current.
 * Locks: none.
 * Always: `done` never passes a position before the results that it reads from other lanes are done.
 */
#include "engine/stream.h"

#include <assert.h>
#include <limits.h>
#include "base/wait.h"

#define LOOK_NS 1000000 /* no progress for this long: query the stream's status, since an error shows only there */
#define BAD_LOOKS_MAX 8 /* the status query failing this often in a row means that the device cannot be used */

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

void hdi_stream_store_done(hdi_engine *engine, hdi_stream *stream, uint64_t position)
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
    atomic_store_explicit(&shared->done, position, memory_order_seq_cst);
    if (atomic_load_explicit(&shared->sleepers, memory_order_seq_cst) != 0) {
        uint32_t bits = hdi_awaited_bits(before, position);
        if (atomic_load_explicit(&shared->awaited, memory_order_seq_cst) & bits) {
            /* A thread that is woken for another position with the same bit sets it again. */
            atomic_fetch_and_explicit(&shared->awaited, ~bits, memory_order_seq_cst);
            atomic_fetch_add_explicit(&shared->wake, 1, memory_order_release);
            hdi_futex_wake_bits(&shared->wake, bits);
        }
    }
    hdi_lane_ring_watchers(engine->device->runtime, shared);
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
    hdi_stream_inherit(engine, stream, &failure, d->position + 1, end);
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
        if (reach > stream->done) {
            hdi_stream_store_done(engine, stream, reach);
        }
        if (reach == stream->passed) {
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

void hdi_stream_pass_signals(hdi_engine *engine, hdi_stream *stream)
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
    hdi_stream_pass_signals(engine, stream);
    finish(engine, stream, stream->passed, 0);
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
            hdi_want(&other->wanted_host, d->target);
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
    if (stream->tail != HDI_TAIL_KERNEL && driver->cuStreamWriteValue32) {
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
}

/* Queries the stream's status. Only that shows errors of running work, and completion where the flag could not be
 * written. */
static void look_at_stream(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    uint64_t issued = stream->issued;
    stream->checked = pass->now;
    hdcu_result r = engine->device->runtime->driver->cuStreamQuery(stream->handle);
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

bool hdi_stream_read_flag(hdi_engine *engine, hdi_stream *stream)
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
    hdi_stream_pass_signals(engine, stream); /* another lane may have shown that the device has passed them */
    if (stream->passed > stream->done && passed(engine, stream, stream->passed)) {
        pass->progress = true; /* the results that it read from another lane are done by now */
    }
    if (hdi_stream_read_flag(engine, stream)) {
        stream->checked = pass->now;
        pass->progress = true;
    }
    if (stream->issued > stream->done && stream->passed < stream->issued &&
        (stream->flag_missing || pass->now - stream->checked > LOOK_NS)) {
        look_at_stream(engine, stream, pass);
    }
}
