/* stream_waits.c - makes a lane wait for other lanes, and notes the lanes whose results it reads.
 *
 * A lane waits for another lane by means of a driver event. If the engine of the other lane is in
 * another process, this engine cannot use its events. Then the waiting lane issues no command until
 * the awaited position is done.
 *
 * Threads, Locks: see stream.c.
 * Always:
 * - Every wait is for an event that is already recorded, so waits for events form no cycle
 *   (event.c).
 * - The lane makes a wait even if the operation behind the wait fails at once, since later
 *   operations rely on the wait.
 * - A result that an operation reads from another lane is a dependency until the result's outcome
 *   is recorded.
 */
#include <stdlib.h>
#include <string.h>
#include "engine/stream.h"

#define DEPENDENCIES_LOCAL 8

static bool stream_room_for_dependency(hdi_stream *stream)
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

bool hdi_stream_wait_host(hdi_engine *engine, hdi_lane_shared *other, uint32_t lane, uint64_t target)
{
    hd_runtime *rt = engine->device->runtime;
    /* Sequentially consistent with the other engine's store of `done` followed by its look at
     * `watchers`. */
    atomic_fetch_or_explicit(&other->watchers, (uint32_t)1 << engine->device->index, memory_order_seq_cst);
    if (atomic_load_explicit(&other->wanted_host, memory_order_relaxed) < target) {
        hdi_raise(&other->wanted_host, target);
        hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    }
    return atomic_load_explicit(&other->done, memory_order_seq_cst) >= target;
}

/* Records for a trace that the lane waits for the other lane's event at a position. */
static void stream_record_behind(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t position)
{
    if (position > c->wait.position) {
        hdi_span_record_behind(engine, stream, stream->issued + c->slots, c->wait.lane, position);
    }
}

/* Makes the lane's CUDA stream wait for the other lane. False: impossible now. */
static bool stream_wait_event(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t source)
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
            hdi_stream_wait_host(engine, other, lane, c->wait.position);
            return false;
        }
        if (atomic_load_explicit(&other->wanted_now, memory_order_relaxed) < c->wait.position) {
            hdi_raise(&other->wanted_now, c->wait.position);
            hdi_engine_notify(owner->channel.engine, lane % HDI_LANES_MAX);
        }
        return false;
    }
    /* If an allocation failed, or too many streams wait inside the driver, the lane goes on when
     * the other lane is done. */
    if ((source && !stream_room_for_dependency(stream)) || !hdi_blocked_add(engine, stream, c)) {
        hdi_stream_release_event(other_stream, held);
        hdi_stream_wait_host(engine, other, lane, c->wait.position);
        return false;
    }
    /* Without the cut, the work in front of the wait would seem unfinished until the other lane's
     * work ends. */
    hdi_stream_cut(engine, stream, atomic_load_explicit(&rt->has_calls, memory_order_relaxed));
    if (__builtin_expect(engine->recording.detail != 0, 0)) {
        hdi_span_cut(engine, stream);
        stream_record_behind(engine, stream, c,
                             atomic_load_explicit(&other_stream->event_position[held], memory_order_relaxed));
    }
    hdcu_result r = rt->driver->cuStreamWaitEvent(stream->handle, event, 0);
    hdi_stream_release_event(other_stream, held);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
        return true;
    }
    if (r != HDCU_SUCCESS) {
        /* The driver refuses the wait, so this lane goes on when the other one is done. */
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

bool hdi_stream_lane_exists(hdi_engine *engine, uint32_t lane)
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
    if (!hdi_stream_lane_exists(engine, lane)) {
        return true;
    }
    uint64_t target = c->wait.position;
    /* A failed lane needs no second failure, so it drops the source. */
    uint64_t source = stream->failed ? 0 : c->wait.source;
    hdi_lane_shared *other = hdi_lane_shared_of(rt, lane);
    hdi_device *owner = hdi_lane_owner(rt, lane);
    bool self = owner == engine->device && lane % HDI_LANES_MAX == stream->number;

    bool done = atomic_load_explicit(&other->done, memory_order_acquire) >= target;
    if (!done && !owner->engine) {
        done = hdi_stream_wait_host(engine, other, lane, target);
        if (!done) {
            return false;
        }
        hdi_engine_count(&engine->shared->waits);
    }
    /* pairs with the release store of `issued`: failures found while issuing were recorded before
     * it */
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
        /* only the result is dropped, but the wait stays, since operations behind the failing one
         * rely on the wait */
        source = 0;
    }
    if (self && source && !done) {
        /* Work in one lane is in order anyway. But the engine may notice later that the earlier
         * operation failed. */
        if (!stream_room_for_dependency(stream)) {
            return false;
        }
        stream->dependencies[stream->n_dependencies++] = (hdi_dependency){stream->issued + c->slots, source, lane};
    }
    return done || self || stream_wait_event(engine, stream, c, source);
}

bool hdi_stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    uint32_t lane = c->sources.lane;
    if (!hdi_stream_lane_exists(engine, lane)) {
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
        /* `done` is loaded before the failures: a failure is recorded before `done` passes it */
        bool done = atomic_load_explicit(&other->done, memory_order_acquire) >= source;
        hdi_failure failure;
        hdi_logged logged = hdi_failure_logged(&owner->channel, lane % HDI_LANES_MAX, source, &failure);
        if (logged == HDI_LOGGED_UNSURE) {
            return false;
        }
        if (logged == HDI_LOGGED_YES) {
            hdi_stream_inherit(engine, stream, &failure, stream->issued + 1, behind);
        } else if (!done) {
            /* If an allocation failed, the whole command is handled again later. A dependency noted
             * twice is settled twice. */
            if (!stream_room_for_dependency(stream)) {
                return false;
            }
            stream->dependencies[stream->n_dependencies++] = (hdi_dependency){behind, source, lane};
        }
    }
    return true;
}
