/* stream_wait.c - makes a lane wait for a position of another one.
 *
 * It waits by an event of the driver. Where the other lane's engine is in another process, it waits until the position
 * is done.
 *
 * Threads, Locks: as stream.c.
 * Always:
 * - No call blocks: the lane is visited again.
 * - A wait is made also where the operation behind it fails at once, since later ones rely on it.
 * - What is read from another lane is a dependency until its outcome is recorded.
 */
#include "engine/stream.h"

#include <stdlib.h>
#include <string.h>
#include "base/wait.h"

#define DEPENDENCIES_LOCAL 8

/* The event with the lowest position that stands at or behind `position`. NULL: there is none. */
static hdcu_event find_event(const hdi_stream *other, uint64_t position)
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
        hdi_want(&other->wanted_host, target);
        hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    }
    return atomic_load_explicit(&other->done, memory_order_seq_cst) >= target;
}

/* Makes the lane's CUDA stream wait for the other lane. False: not possible now. */
static bool wait_for_event(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t source)
{
    hd_runtime *rt = engine->device->runtime;
    uint32_t lane = c->wait.lane;
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    hdcu_event event = find_event(&owner->engine->streams[lane % HDI_LANES_MAX], c->wait.position);
    if (!event) {
        if (atomic_load_explicit(&other->wanted_now, memory_order_relaxed) < c->wait.position) {
            hdi_want(&other->wanted_now, c->wait.position);
            hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        }
        return false;
    }
    if (source && !room_for_dependency(stream)) {
        hdi_want(&other->wanted_host, c->wait.position);
        return false; /* no memory now: the lane goes on when the other one is done */
    }
    hdcu_result r = rt->driver->cuStreamWaitEvent(stream->handle, event, 0);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
        return true;
    }
    if (r != HDCU_SUCCESS) {
        /* The driver refuses the wait: this lane goes on when the other one is done. */
        hdi_want(&other->wanted_host, c->wait.position);
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

bool hdi_stream_wait(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
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
        hdi_stream_inherit(engine, stream, &failure, stream->issued + 1, stream->issued + c->slots);
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

bool hdi_stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
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
            hdi_stream_inherit(engine, stream, &failure, stream->issued + 1, behind);
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
