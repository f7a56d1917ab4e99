/* progress.c - how far a lane is: what the device writes about it, what the driver says, and `done`.
 *
 * A *signal* behind the lane's work makes the device write the position into the lane's completion flag. Behind kernels it is a fill, which follows them
 * at once, as it does small copies to the device, whose bytes the driver sends along with its commands; behind other copies a written value,
 * since a fill is work for another engine of the device than the copy was.
 *
 * Threads: whoever runs the device's engine. The device's context is current. Locks: none.
 * Always: `done` never passes a position before the results it reads from other lanes are done.
 */
#include "engine/feed.h"

#include <assert.h>
#include <limits.h>
#include "base/clock.h"
#include "base/wait.h"

#define LOOK_NS 1000000 /* no progress for this long: look at the stream's status, an error shows only there */
#define BAD_LOOKS_MAX 8 /* the status call failing this often in a row means that the device cannot be used */

#ifdef HDI_DEBUG
static bool failed_there(const hdi_engine *engine, uint32_t lane, uint64_t position)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, lane);
    /* What an engine in another process has logged may be anything. */
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

/* No operation that reads a failed one's result is done without having failed. */
static void check_outcomes(const hdi_engine *engine, const hdi_feed *feed, uint64_t to)
{
    uint32_t own = (uint32_t)engine->device->index * HDI_LANES_MAX + feed->number;
    bool must_fail = false;
    for (uint64_t at = feed->done; at < to;) {
        const hdi_command *c = hdi_command_at(&engine->device->channel, feed->number, at);
        at += c->slots ? c->slots : 1;
        must_fail |= a_source_failed(engine, c);
        if (hdi_op_is_work(c->op) && at <= to) {
            assert(!must_fail || failed_there(engine, own, at));
            must_fail = false;
        }
    }
}
#endif

void hdi_feed_store_done(hdi_engine *engine, hdi_feed *feed, uint64_t position)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
#ifdef HDI_DEBUG
    check_outcomes(engine, feed, position);
#endif
    uint64_t before = feed->done;
    feed->done = position;
    atomic_store_explicit(&shared->moved, engine->now, memory_order_relaxed); /* only to be told */
    /* Releases what the device wrote to whoever loads `done`; and is sequentially consistent with the sleeper's
     * registration followed by its last look at `done`. */
    atomic_store_explicit(&shared->done, position, memory_order_seq_cst);
    if (atomic_load_explicit(&shared->sleepers, memory_order_seq_cst) != 0) {
        uint32_t bits = hdi_awaited_bits(before, position);
        if (atomic_load_explicit(&shared->awaited, memory_order_seq_cst) & bits) {
            /* Who is woken for another position with the same bit sets it again. */
            atomic_fetch_and_explicit(&shared->awaited, ~bits, memory_order_seq_cst);
            atomic_fetch_add_explicit(&shared->wake, 1, memory_order_release);
            hdi_futex_wake_bits(&shared->wake, bits);
        }
    }
    hdi_lane_ring_watchers(engine->device->runtime, shared);
}

/* Where the lane read the result of a lane that failed, so has it, from behind the wait on. False: that cannot be said yet. */
static bool settle_failure(hdi_engine *engine, hdi_feed *feed, const hdi_dependency *d)
{
    hdi_failure failure;
    const hdi_device *owner = hdi_lane_owner(engine->device->runtime, d->lane);
    hdi_logged logged = hdi_failure_logged(&owner->channel, d->lane % HDI_LANES_MAX, d->target, &failure);
    if (logged != HDI_LOGGED_YES) {
        return logged == HDI_LOGGED_NO;
    }
    bool failed = feed->failed;
    uint64_t end = feed->issued;
    /* The operation that reads may not have been issued yet: then it is still to be passed over. */
    bool issued = hdi_lane_operation(&engine->device->channel, feed->number, d->position, feed->issued, &end) != NULL;
    end = feed->keeps_failure ? feed->issued : end;
    hdi_feed_inherit(engine, feed, &failure, d->position + 1, end);
    feed->failed = failed || feed->keeps_failure || !issued;
    return true;
}

static bool same_dependency(const hdi_dependency *a, const hdi_dependency *b)
{
    return a->position == b->position && a->lane == b->lane && a->target == b->target;
}

/* Moves `done` towards what the device has passed, at least to `until`, as far as the lanes that this one read from are done as
 * well. A lane of the same device is moved first where needed; every level looks at its lane afresh after that, since lanes
 * that read from each other in turn come by several times. */
static void finish(hdi_engine *engine, hdi_feed *feed, uint64_t until, int depth)
{
    while (feed->done < until) {
        const hdi_dependency *front =
            feed->first_dependency < feed->n_dependencies ? &feed->dependencies[feed->first_dependency] : NULL;
        uint64_t reach = front && front->position < feed->passed ? front->position : feed->passed;
        if (reach > feed->done) {
            hdi_feed_store_done(engine, feed, reach);
        }
        if (reach == feed->passed) {
            return;
        }
        hdi_dependency d = *front;
        hd_runtime *rt = engine->device->runtime;
        hdi_lane_shared *other = hdi_lane_shared_of(rt, d.lane);
        if (atomic_load_explicit(&other->done, memory_order_acquire) < d.target) {
            /* Work behind the wait has finished, so on the same device the other lane has passed the target, too. */
            if (hdi_lane_owner(rt, d.lane) == engine->device && depth < HDI_LANES_MAX) {
                hdi_feed *other_feed = &engine->feeds[d.lane % HDI_LANES_MAX];
                other_feed->passed = other_feed->passed > d.target ? other_feed->passed : d.target;
                finish(engine, other_feed, d.target, depth + 1);
            }
            if (atomic_load_explicit(&other->done, memory_order_acquire) < d.target) {
                return;
            }
        }
        if (feed->first_dependency < feed->n_dependencies &&
            same_dependency(&feed->dependencies[feed->first_dependency], &d)) {
            if (!settle_failure(engine, feed, &d)) {
                return;
            }
            feed->first_dependency++;
            if (feed->first_dependency == feed->n_dependencies) {
                feed->first_dependency = feed->n_dependencies = 0;
            }
        }
    }
}

void hdi_feed_pass_signals(hdi_engine *engine, hdi_feed *feed)
{
    hdi_pace_signal first, last;
    uint32_t passed = 0;
    bool others = false;
    while (feed->n_signals && feed->signals[feed->first_signal].position <= feed->passed) {
        last = feed->signals[feed->first_signal].pace;
        first = passed++ == 0 ? last : first;
        others |= last.others;
        feed->entries_done = feed->signals[feed->first_signal].entries;
        feed->first_signal = (feed->first_signal + 1) % HDI_FEED_SIGNALS;
        feed->n_signals--;
    }
    if (feed->passed == feed->issued) {
        feed->entries_done = feed->entries; /* at most a signal is left, which says the same again */
    }
    if (passed) {
        hdi_pace_pass(&feed->pace, &first, &last, others, hdi_clock_ns());
    }
    if (feed->n_new) {
        hdi_chain_learn(engine, feed);
    }
}

/* A signal stands behind what was issued. */
static void add_signal(hdi_feed *feed)
{
    bool joined = feed->n_signals == HDI_FEED_SIGNALS;
    feed->n_signals += !joined;
    uint32_t last = (feed->first_signal + feed->n_signals - 1) % HDI_FEED_SIGNALS;
    feed->signals[last].position = feed->issued;
    feed->signals[last].entries = feed->entries;
    hdi_pace_put_signal(&feed->pace, &feed->signals[last].pace);
    feed->signals[last].pace.others |= joined;
    feed->entries_signalled = feed->entries;
}

/* The device has passed `position`. True when `done` moved. */
static bool passed(hdi_engine *engine, hdi_feed *feed, uint64_t position)
{
    uint64_t before = feed->done;
    if (position > feed->passed) {
        feed->passed = position;
    }
    hdi_feed_pass_signals(engine, feed);
    finish(engine, feed, feed->passed, 0);
    return feed->done > before;
}

/* What this lane has read since it was signalled last: until that is known to be done, this lane is not. Not sooner, since every signal holds
 * up the other lane a little. */
static void want_sources(hdi_engine *engine, const hdi_feed *feed)
{
    hd_runtime *rt = engine->device->runtime;
    for (uint32_t i = feed->n_dependencies; i > feed->first_dependency; i--) {
        const hdi_dependency *d = &feed->dependencies[i - 1];
        if (d->position <= feed->signalled) {
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

void hdi_feed_signal(hdi_engine *engine, hdi_feed *feed)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr flag = engine->device->flags_address + feed->number * sizeof(hdi_completion_flag);
    unsigned position = (unsigned)feed->issued;
    hdcu_result r = HDCU_ERROR_NOT_SUPPORTED;
    want_sources(engine, feed);
    if (feed->tail != HDI_TAIL_KERNEL && driver->cuStreamWriteValue32) {
        r = driver->cuStreamWriteValue32(feed->stream, flag, position, HDCU_STREAM_WRITE_VALUE_DEFAULT);
    }
    if (r != HDCU_SUCCESS && !hdi_driver_code_is_fatal(r)) {
        r = driver->cuMemsetD32Async(flag, position, 1, feed->stream);
    }
    feed->signalled = feed->issued;
    feed->entries++;
    if (r == HDCU_SUCCESS) {
        add_signal(feed);
        hdi_engine_count(&engine->shared->signals);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        feed->flag_missing = true;
        feed->entries_signalled = feed->entries;
    }
}

/* Asks the driver about the stream: the way in which errors of running work come to light, and completion where the flag could not be written. */
static void look_at_stream(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    uint64_t issued = feed->issued;
    feed->checked = pass->now;
    hdcu_result r = engine->device->runtime->driver->cuStreamQuery(feed->stream);
    if (r == HDCU_SUCCESS) {
        feed->bad_looks = 0;
        feed->flag_missing = false;
        pass->progress |= passed(engine, feed, issued);
    } else if (r == HDCU_ERROR_NOT_READY ||
               hdi_driver_code_is_capture(r)) { /* a capture says nothing about this stream */
        feed->bad_looks = 0;
    } else if (hdi_driver_code_is_fatal(r) || ++feed->bad_looks >= BAD_LOOKS_MAX) {
        hdi_engine_lose(engine, r);
    }
}

bool hdi_feed_read_flag(hdi_engine *engine, hdi_feed *feed)
{
    if (feed->signalled <= feed->done) {
        return false;
    }
    /* Pairs with the device's write, ordered behind the lane's work. The flag holds the low half of a position that
     * lies between `passed` and `signalled`, far less than 2^32 apart. */
    uint32_t low = atomic_load_explicit(&engine->device->channel.flags[feed->number].position, memory_order_acquire);
    uint64_t position = feed->signalled - (uint32_t)((uint32_t)feed->signalled - low);
    /* Beyond what was signalled only where something else wrote there. */
    return position > feed->done && position <= feed->signalled && passed(engine, feed, position);
}

void hdi_feed_reap(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    hdi_feed_pass_signals(engine, feed); /* another lane may have shown that the device has passed them */
    if (feed->passed > feed->done && passed(engine, feed, feed->passed)) {
        pass->progress = true; /* what it had read from another lane is done by now */
    }
    if (hdi_feed_read_flag(engine, feed)) {
        feed->checked = pass->now;
        pass->progress = true;
    }
    if (feed->issued > feed->done && feed->passed < feed->issued &&
        (feed->flag_missing || pass->now - feed->checked > LOOK_NS)) {
        look_at_stream(engine, feed, pass);
    }
}
