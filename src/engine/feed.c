/* feed.c - one lane's commands into the driver, and its finished work back out.
 *
 * Threads: whoever runs the device's engine; its thread, or in the placement inline the holder of `running`. The device's context is
 * current. Locks: none; other engines read event positions, everything else they need is in the shared channel.
 * Always:
 *   - a lane's commands are issued in order; a failed command is recorded before `issued` passes it;
 *   - `done` never passes a position before the results it reads from other lanes are done;
 *   - every event position stands for an event already recorded behind that position, so waiting for an event can
 *     not close a circle.
 */
#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/wait.h"

#define COMMANDS_PER_VISIT 64
#define LINGER_NS 10000 /* an empty lane is published this long after it ran empty, sooner if somebody waits */
#define LOOK_NS 1000000 /* no progress for this long: look at the stream's status, an error shows only there */
#define BAD_LOOKS_MAX 8 /* the status call failing this often in a row means that the device cannot be used */
#define DEPENDENCIES_LOCAL 8

static void count(_Atomic uint64_t *counter)
{
    /* one writer; relaxed: a statistic */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* ---- failure ---- */

static void blame(hdi_engine *engine, const hdi_feed *feed, const hdi_command *c, uint64_t end, int code,
                  hdi_failure *cause)
{
    *cause = (hdi_failure){
        .position = end,
        .lane = (uint32_t)engine->device->index * HDI_LANES_MAX + feed->number,
        .driver_code = code,
        .kernel = c && c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .op = c ? c->op : 0,
    };
}

/* Records that positions from..to failed because of feed->cause. */
static void record_failure(hdi_engine *engine, hdi_feed *feed, uint64_t from, uint64_t to)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    feed->cause.from = from;
    feed->cause.to = to;
    hdi_failure_add(shared, &feed->cause);
    feed->failed = true;
    if (feed->keeps_failure) {
        /* pairs with the load in the submit path, which refuses; late is fine, the engine passes over what still comes */
        atomic_store_explicit(&shared->failed, 1, memory_order_release);
    }
}

/* Everything of the lane that is not done fails, now and later, once. */
static void record_loss(hdi_engine *engine, hdi_feed *feed, int code)
{
    if (!feed->loss_recorded) {
        feed->loss_recorded = true;
        feed->failed = true;
        hdi_lane_lose(engine->device, feed->number, code);
    }
}

void hdi_engine_lose(hdi_engine *engine, int code)
{
    if (engine->device->runtime->end_process) {
        engine->device->runtime->end_process(engine->device, code);
        return;
    }
    if (atomic_load_explicit(&engine->shared->lost, memory_order_relaxed)) {
        return;
    }
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_feed *feed = &engine->feeds[i];
        if (atomic_load_explicit(&feed->made, memory_order_acquire)) {
            record_loss(engine, feed, code);
        }
    }
    /* pairs with the acquire load in hdi_device_lost */
    atomic_store_explicit(&engine->shared->lost, code, memory_order_release);
    hdi_loss_note(engine->device, code);
}

/* A driver call for this lane failed without killing the device: the command ending at `end` did not happen. */
static void command_failed(hdi_engine *engine, hdi_feed *feed, const hdi_command *c, uint64_t begin, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        hdi_engine_lose(engine, code);
        return;
    }
    uint64_t end = begin + c->slots;
    blame(engine, feed, c, end, code, &feed->cause);
    record_failure(engine, feed, begin + 1, end);
}

/* The result at `position` of another lane, which this lane reads, does not exist. `from`..`to`: what fails here. */
static void inherit_failure(hdi_engine *engine, hdi_feed *feed, const hdi_failure *other, uint64_t from, uint64_t to)
{
    feed->cause = *other;
    feed->cause.inherited = 1;
    record_failure(engine, feed, from, to);
}

/* ---- finishing ---- */

static void store_done(hdi_engine *engine, hdi_feed *feed, uint64_t position)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    feed->done = position;
    /* Releases what the device wrote to whoever loads `done`; and is sequentially consistent with the sleeper's
     * registration followed by its last look at `done`. */
    atomic_store_explicit(&shared->done, position, memory_order_seq_cst);
    if (atomic_load_explicit(&shared->sleepers, memory_order_seq_cst) != 0) {
        atomic_fetch_add_explicit(&shared->wake, 1, memory_order_release);
        hdi_futex_wake(&shared->wake, INT32_MAX);
    }
    hdi_lane_ring_watchers(engine->device->runtime, shared);
}

/* The lane read the result of a lane that failed: so has it, from behind the wait on. */
static void settle_failure(hdi_engine *engine, hdi_feed *feed, const hdi_dependency *d)
{
    hdi_failure failure;
    if (!hdi_failure_find(hdi_lane_shared_of(engine->device->runtime, d->lane), d->target, &failure)) {
        return;
    }
    bool failed = feed->failed;
    uint64_t end = feed->issued;
    /* The operation that reads may not have been issued yet: then it is still to be passed over. */
    bool issued = hdi_lane_operation(&engine->device->channel, feed->number, d->position, feed->issued, &end) != NULL;
    end = feed->keeps_failure ? feed->issued : end;
    inherit_failure(engine, feed, &failure, d->position + 1, end);
    feed->failed = failed || feed->keeps_failure || !issued;
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
            store_done(engine, feed, reach);
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
            settle_failure(engine, feed, &d);
            feed->first_dependency++;
            if (feed->first_dependency == feed->n_dependencies) {
                feed->first_dependency = feed->n_dependencies = 0;
            }
        }
    }
}

/* The device has passed `position`. True when `done` moved. */
static bool passed(hdi_engine *engine, hdi_feed *feed, uint64_t position)
{
    uint64_t before = feed->done;
    if (position > feed->passed) {
        feed->passed = position;
    }
    finish(engine, feed, feed->passed, 0);
    return feed->done > before;
}

static void publish(hdi_engine *engine, hdi_feed *feed)
{
    hdi_device *device = engine->device;
    hdcu_deviceptr word = device->words_address + feed->number * sizeof(hdi_word);
    hdcu_result r = device->runtime->driver->cuMemsetD32Async(word, (unsigned)feed->issued, 1, feed->stream);
    feed->published = feed->issued;
    if (r == HDCU_SUCCESS) {
        count(&engine->shared->publishes);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        feed->word_missing = true;
    }
}

/* Asks the driver about the stream: the way in which errors of running work come to light, and completion where the word failed. */
static void look_at_stream(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    uint64_t issued = feed->issued;
    feed->checked = pass->now;
    hdcu_result r = engine->device->runtime->driver->cuStreamQuery(feed->stream);
    if (r == HDCU_SUCCESS) {
        feed->bad_looks = 0;
        feed->word_missing = false;
        pass->progress |= passed(engine, feed, issued);
    } else if (r == HDCU_ERROR_NOT_READY) {
        feed->bad_looks = 0;
    } else if (hdi_driver_code_is_fatal(r) || ++feed->bad_looks >= BAD_LOOKS_MAX) {
        hdi_engine_lose(engine, r);
    }
}

static void reap(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    hdi_device *device = engine->device;
    if (feed->passed > feed->done && passed(engine, feed, feed->passed)) {
        pass->progress = true; /* what it had read from another lane is done by now */
    }
    if (feed->published > feed->done) {
        /* Pairs with the device's write, ordered behind the lane's work. The word holds the low half of a position that
         * lies between `passed` and `published`, far less than 2^32 apart. */
        uint32_t low = atomic_load_explicit(&device->channel.words[feed->number].position, memory_order_acquire);
        uint64_t position = feed->published - (uint32_t)((uint32_t)feed->published - low);
        if (position > feed->done && passed(engine, feed, position)) {
            feed->checked = pass->now;
            pass->progress = true;
        }
    }
    if (feed->issued > feed->done && feed->passed < feed->issued &&
        (feed->word_missing || pass->now - feed->checked > LOOK_NS)) {
        look_at_stream(engine, feed, pass);
    }
}

/* ---- issuing ---- */

/* Puts an event behind everything issued so far, for other lanes to wait for. */
static void record_event(hdi_engine *engine, hdi_feed *feed)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    uint32_t i = feed->event_next;
    /* Other engines that still use the old position get the new, later record: more than they need, never less. */
    hdcu_result r = HDCU_SUCCESS;
    if (!feed->event[i]) {
        r = driver->cuEventCreate(&feed->event[i], HDCU_EVENT_DISABLE_TIMING);
    }
    if (r == HDCU_SUCCESS) {
        r = driver->cuEventRecord(feed->event[i], feed->stream);
    }
    feed->event_last = feed->issued;
    if (r == HDCU_SUCCESS) {
        /* pairs with the acquire load in find_event: the event is recorded before its position is seen */
        atomic_store_explicit(&feed->event_position[i], feed->issued, memory_order_release);
        feed->event_next = (i + 1) % HDI_EVENTS_PER_LANE;
        count(&engine->shared->events);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        /* Without an event the waiting lane goes on when this one is done: see issue_wait. */
        hdi_want(&engine->device->channel.lanes[feed->number].wanted_host, feed->issued);
    }
}

/* The event with the lowest position that stands at or behind `position`, NULL if there is none. */
static hdcu_event find_event(const hdi_feed *other, uint64_t position)
{
    hdcu_event best = NULL;
    uint64_t best_position = UINT64_MAX;
    for (int i = 0; i < HDI_EVENTS_PER_LANE; i++) {
        /* pairs with the release store in record_event */
        uint64_t p = atomic_load_explicit(&other->event_position[i], memory_order_acquire);
        if (p >= position && p < best_position) {
            best = other->event[i];
            best_position = p;
        }
    }
    return best;
}

static bool room_for_dependency(hdi_feed *feed)
{
    if (feed->n_dependencies == feed->dependencies_room && feed->first_dependency > 0) {
        feed->n_dependencies -= feed->first_dependency;
        memmove(feed->dependencies, feed->dependencies + feed->first_dependency,
                feed->n_dependencies * sizeof *feed->dependencies);
        feed->first_dependency = 0;
    }
    if (feed->n_dependencies == feed->dependencies_room) {
        uint32_t room = feed->dependencies_room ? feed->dependencies_room * 2 : DEPENDENCIES_LOCAL;
        hdi_dependency *more = realloc(feed->dependencies, room * sizeof *more);
        if (!more) {
            return false;
        }
        feed->dependencies = more;
        feed->dependencies_room = room;
    }
    return true;
}

/* The other lane's engine is in another process, whose events mean nothing here: this lane goes on when that one is done. Its
 * `done` moves and rings our bell also when its device is lost. */
static bool wait_for_host(hdi_engine *engine, hdi_lane_shared *other, uint32_t lane, uint64_t target)
{
    hd_runtime *rt = engine->device->runtime;
    /* Sequentially consistent with the other engine's store of `done` followed by its look at `watchers`. */
    atomic_fetch_or_explicit(&other->watchers, (uint32_t)1 << engine->device->index, memory_order_seq_cst);
    if (atomic_load_explicit(&other->wanted_host, memory_order_relaxed) < target) {
        hdi_want(&other->wanted_host, target);
        hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    }
    return atomic_load_explicit(&other->done, memory_order_seq_cst) >= target;
}

/* The driver makes the lane's stream wait for the other lane. False: it does not take the wait now. */
static bool wait_for_event(hdi_engine *engine, hdi_feed *feed, const hdi_command *c, uint64_t source)
{
    hd_runtime *rt = engine->device->runtime;
    uint32_t lane = c->wait.lane;
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    hdcu_event event = find_event(&owner->engine->feeds[lane % HDI_LANES_MAX], c->wait.position);
    if (!event) {
        return false;
    }
    if (source && !room_for_dependency(feed)) {
        hdi_want(&other->wanted_host, c->wait.position);
        return false; /* no memory just now: the lane goes on when the other one is done */
    }
    hdcu_result r = rt->driver->cuStreamWaitEvent(feed->stream, event, 0);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
        return true;
    }
    if (r != HDCU_SUCCESS) {
        /* The driver does not take the wait: then this lane goes on when the other one is done. */
        hdi_want(&other->wanted_host, c->wait.position);
        hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        return false;
    }
    count(&engine->shared->waits);
    if (source) {
        feed->dependencies[feed->n_dependencies++] = (hdi_dependency){feed->issued + c->slots, source, lane};
        if (owner->engine != engine) {
            hdi_want(&other->wanted_host, source);
            hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        }
    }
    return true;
}

/* True when the lane may go on behind the wait. */
static bool issue_wait(hdi_engine *engine, hdi_feed *feed, const hdi_command *c)
{
    hd_runtime *rt = engine->device->runtime;
    uint32_t lane = c->wait.lane;
    uint64_t target = c->wait.position;
    uint64_t source = feed->failed ? 0 : c->wait.source; /* what has failed need not hear of another failure */
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    bool self = owner == engine->device && lane % HDI_LANES_MAX == feed->number;

    bool done = atomic_load_explicit(&other->done, memory_order_acquire) >= target;
    if (!done && !owner->engine) {
        done = wait_for_host(engine, other, lane, target);
        if (!done) {
            return false;
        }
        count(&engine->shared->waits);
    }
    /* pairs with the release store of `issued`: failures found while issuing are recorded before it */
    if (!done && !self && atomic_load_explicit(&other->issued, memory_order_acquire) < target) {
        return false;
    }
    hdi_failure failure;
    if (source && hdi_failure_find(other, source, &failure)) {
        inherit_failure(engine, feed, &failure, feed->issued + 1, feed->issued + c->slots);
        return true;
    }
    if (self && source && !done) {
        /* Order is given; but the earlier operation may turn out to have failed. */
        if (!room_for_dependency(feed)) {
            return false;
        }
        feed->dependencies[feed->n_dependencies++] = (hdi_dependency){feed->issued + c->slots, source, lane};
    }
    return done || self || wait_for_event(engine, feed, c, source);
}

static hdcu_result issue_launch(hdi_engine *engine, hdi_feed *feed, const hdi_command *c)
{
    hdi_device *device = engine->device;
    /* pairs with the release store of the port, which in a worker process is on another thread */
    hdcu_function function =
        atomic_load_explicit(&hdi_kernel_at(device->runtime, c->kernel)->function[device->index], memory_order_acquire);
    size_t bytes = c->launch.argument_bytes;
    void *extra[] = {HDCU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)c->launch.arguments,
                     HDCU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HDCU_LAUNCH_PARAM_END};
    return device->runtime->driver->cuLaunchKernel(
        function, c->launch.grid_x, c->launch.grid_y, c->launch.grid_z, hdi_block_x(c->launch.block),
        hdi_block_y(c->launch.block), hdi_block_z(c->launch.block), c->launch.shared_units * HDI_SHARED_UNIT,
        feed->stream, NULL, bytes ? extra : NULL);
}

static hdcu_result issue_copy(hdi_engine *engine, hdi_feed *feed, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr dst = c->copy.dst;
    hdcu_deviceptr src = c->copy.src;
    switch (c->kind) {
    case HDI_COPY_TO_DEVICE:
        return driver->cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, c->copy.bytes, feed->stream);
    case HDI_COPY_TO_HOST:
        return driver->cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, c->copy.bytes, feed->stream);
    case HDI_COPY_ON_DEVICE:
        return driver->cuMemcpyDtoDAsync(dst, src, c->copy.bytes, feed->stream);
    default:
        return driver->cuMemcpyAsync(dst, src, c->copy.bytes, feed->stream);
    }
}

/* One command. False: the lane cannot go on yet. */
static bool issue(hdi_engine *engine, hdi_feed *feed, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* Waits are made all the same: later operations, and uses of the same buffers elsewhere, count on them. */
    if (feed->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT) {
        bool operation = c->op != HDI_OP_SKIP;
        hdi_failure_extend(&engine->device->channel.lanes[feed->number], feed->issued + c->slots);
        if (operation && !feed->keeps_failure) {
            feed->failed = false; /* only what depended on the failed result */
        }
        return true;
    }
    switch (c->op) {
    case HDI_OP_WAIT:
        return issue_wait(engine, feed, c);
    case HDI_OP_LAUNCH:
        r = issue_launch(engine, feed, c);
        break;
    case HDI_OP_COPY:
        r = issue_copy(engine, feed, c);
        break;
    case HDI_OP_FILL:
        r = engine->device->runtime->driver->cuMemsetD32Async(c->fill.dst, c->fill.pattern, c->fill.words,
                                                              feed->stream);
        break;
    case HDI_OP_RESUME:
        feed->failed = false;
        atomic_store_explicit(&engine->device->channel.lanes[feed->number].failed, 0, memory_order_release);
        return true;
    default:
        return true;
    }
    count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        command_failed(engine, feed, c, feed->issued, r);
        if (!feed->keeps_failure) {
            feed->failed = false; /* this command alone */
        }
    }
    return true;
}

/* A lost device: everything is finished, without success, as far as it does not wait for others. True when something moved. */
static bool drop(hdi_engine *engine, hdi_feed *feed, uint64_t head)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    /* A lane that was made while the device was being lost. */
    record_loss(engine, feed, atomic_load_explicit(&engine->shared->lost, memory_order_relaxed));
    bool moved = feed->issued != head;
    feed->issued = feed->passed = feed->published = head;
    feed->first_dependency = feed->n_dependencies = 0;
    atomic_store_explicit(&shared->issued, head, memory_order_release);
    uint64_t reach = hdi_lane_reach(engine->device, feed->number, feed->done, head);
    if (feed->done < reach) {
        store_done(engine, feed, reach);
        moved = true;
    }
    return moved;
}

/* Gives the driver what it can take. True when something was issued. */
static bool issue_some(hdi_engine *engine, hdi_feed *feed, hdi_lane_shared *shared, uint64_t head)
{
    /* The watchdog has to see every operation end. */
    uint64_t publish_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool any = false;
    atomic_store_explicit(&feed->blocked, false, memory_order_relaxed);
    for (int i = 0; i < COMMANDS_PER_VISIT && feed->issued != head; i++) {
        const hdi_command *c = hdi_command_at(&engine->device->channel, feed->number, feed->issued);
        if (!issue(engine, feed, c)) {
            atomic_store_explicit(&feed->blocked, true, memory_order_relaxed);
            break;
        }
        if (atomic_load_explicit(&engine->shared->lost, memory_order_relaxed)) {
            return true;
        }
        feed->issued += c->slots;
        any = true;
        /* pairs with the acquire load in issue_wait of other engines */
        atomic_store_explicit(&shared->issued, feed->issued, memory_order_release);
        /* relaxed: a wish seen late is seen at the next visit */
        uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
        if (__builtin_expect(wanted > feed->event_last && wanted <= feed->issued, 0)) {
            record_event(engine, feed);
        }
        if (__builtin_expect(feed->issued - feed->published >= publish_every, 0)) {
            publish(engine, feed);
        }
    }
    return any;
}

/* An operation that has been at the front of its lane for too long: its device is of no more use. */
static void watch(hdi_engine *engine, hdi_feed *feed, const hdi_pass *pass)
{
    if (feed->issued == feed->done || feed->front != feed->done || !feed->front_since) {
        feed->front = feed->done;
        feed->front_since = feed->issued == feed->done ? 0 : pass->now;
    } else if (pass->now - feed->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, feed->number, feed->done, feed->issued)) {
            feed->front_since = pass->now;
        } else {
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* What always holds of a feed between two visits. */
static void check_feed(hdi_engine *engine, const hdi_feed *feed, uint64_t head)
{
    assert(feed->done <= feed->passed && feed->passed <= feed->issued && feed->issued <= head);
    assert(feed->published <= feed->issued && feed->event_last <= feed->issued);
    assert(head - feed->done <= engine->device->channel.slots);
    assert(feed->first_dependency <= feed->n_dependencies && feed->n_dependencies <= feed->dependencies_room);
    for (uint32_t i = feed->first_dependency + 1; i < feed->n_dependencies; i++) {
        assert(feed->dependencies[i - 1].position <= feed->dependencies[i].position);
    }
}
#endif

void hdi_feed_visit(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    if (!atomic_load_explicit(&feed->made, memory_order_acquire)) {
        return; /* never: pairs with the release store in hdi_feed_make, which is before the lane's first command */
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    /* pairs with the submitters' store: the commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    if (!atomic_load_explicit(&engine->shared->lost, memory_order_relaxed)) {
        if (feed->issued != head) {
            if (feed->issued == feed->done) {
                feed->checked = pass->now;
            }
            if (issue_some(engine, feed, shared, head)) {
                feed->idle_since = 0;
                pass->progress = true;
            }
        }
        uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
        if (wanted > feed->event_last && wanted <= feed->issued && wanted > feed->done) {
            record_event(engine, feed); /* the wish came after the command had been issued */
        }
        if (feed->issued != feed->published) {
            uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
            bool stands = feed->issued == head || atomic_load_explicit(&feed->blocked, memory_order_relaxed);
            if (stands && !feed->idle_since) {
                feed->idle_since = pass->now;
            }
            if ((host > feed->published && (host <= feed->issued || stands)) ||
                (stands && pass->now - feed->idle_since > LINGER_NS)) {
                publish(engine, feed);
            }
        }
        reap(engine, feed, pass);
        if (__builtin_expect(engine->watchdog_ns != 0, 0)) {
            watch(engine, feed, pass);
        }
    }
    if (atomic_load_explicit(&engine->shared->lost, memory_order_relaxed)) {
        pass->progress |= drop(engine, feed, head);
    }
#ifdef HDI_DEBUG
    check_feed(engine, feed, head);
#endif
    if (feed->done == head) {
        /* Nothing left. Cleared before the last look at `head`, see hdi_engine_notify. */
        uint64_t bit = (uint64_t)1 << (feed->number % 64);
        atomic_fetch_and_explicit(&engine->shared->active[feed->number / 64], ~bit, memory_order_seq_cst);
        if (atomic_load_explicit(&shared->head, memory_order_seq_cst) != head) {
            atomic_fetch_or_explicit(&engine->shared->active[feed->number / 64], bit, memory_order_seq_cst);
            pass->progress = true;
        }
    } else {
        pass->in_flight = true;
    }
}

hdi_answer hdi_feed_make(hdi_engine *engine, uint32_t number, bool keeps_failure)
{
    hdi_device *device = engine->device;
    hdi_feed *feed = &engine->feeds[number];
    hdi_current current;
    hdi_answer answer = {.call = ""};
    answer.code = hdi_current_enter(device->runtime->driver, device->context, &current, &answer.call);
    if (!hdi_answered(answer)) {
        return answer;
    }
    if (!feed->stream) {
        answer.call = "cuStreamCreate";
        answer.code = device->runtime->driver->cuStreamCreate(&feed->stream, HDCU_STREAM_NON_BLOCKING);
    }
    hdi_current_leave(&current);
    if (!hdi_answered(answer)) {
        feed->stream = NULL;
        return answer;
    }
    /* Not 0 where an engine before this one was lost. */
    uint64_t position = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    feed->number = number;
    feed->issued = feed->done = feed->passed = feed->published = feed->event_last = position;
    atomic_store_explicit(&device->channel.words[number].position, (uint32_t)position, memory_order_relaxed);
    feed->keeps_failure = keeps_failure;
    /* pairs with the acquire load in hdi_engine_lose, and precedes the first command of the lane */
    atomic_store_explicit(&feed->made, true, memory_order_release);
    return answer;
}
