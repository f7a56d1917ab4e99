/* event.c - the events of a lane, which other lanes and streams of the program wait for.
 *
 * A lane records sixteen events in turn. An event may cover more work than a waiter needs. Then the
 * waiter also waits for this additional work, which is safe if all of it ends by itself. Work of
 * the program may not end by itself. For example, kernels of NCCL in several lanes wait for each
 * other, which Heddle cannot see, and a kernel may wait for a flag. So the engine *cuts* a lane in
 * front of each call of a function of the program, and of each kernel that may run long. It also
 * cuts in front of each wait of the lane, because the lane may wait for such work of the program.
 * The engine puts a signal at each cut. A waiter for work in front of a cut uses no event behind
 * that cut. So the engine sees the end of the work in front of the cut, whatever is behind the cut.
 * The engine also records an event at a cut, if a waiter may need this event. At a cut for a wait,
 * it records one only once the program's own work may be in lanes (has_calls).
 *
 * Threads: the thread that runs the device's engine records and cuts. Any thread may hold an event.
 * Locks: none. A waiter holds an event for the length of one driver call. Meanwhile the engine does
 * not record this event again.
 * Always: if the position of an event is visible, the event is recorded, and covers only work up to
 * that position.
 */
#include "engine/stream.h"

/* The next event in turn that no waiter holds. Its position becomes invisible. -1: none. */
static int event_take(hdi_stream *stream)
{
    for (uint32_t n = 0; n < HDI_EVENTS_PER_LANE; n++) {
        uint32_t i = stream->event_next;
        stream->event_next = (i + 1) % HDI_EVENTS_PER_LANE;
        uint64_t position = atomic_load_explicit(&stream->event_position[i], memory_order_relaxed);
        /* Sequentially consistent with hdi_stream_hold_event, which counts itself and then loads
         * the position. */
        atomic_store_explicit(&stream->event_position[i], 0, memory_order_seq_cst);
        if (atomic_load_explicit(&stream->event_holders[i], memory_order_seq_cst) == 0) {
            return (int)i;
        }
        atomic_store_explicit(&stream->event_position[i], position, memory_order_release);
    }
    return -1;
}

void hdi_stream_record_event(hdi_engine *engine, hdi_stream *stream)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    int i = event_take(stream);
    hdcu_result r = i < 0 ? HDCU_ERROR_NOT_READY : HDCU_SUCCESS;
    if (i >= 0 && !stream->event[i]) {
        r = driver->cuEventCreate(&stream->event[i], HDCU_EVENT_DISABLE_TIMING);
    }
    if (r == HDCU_SUCCESS) {
        r = driver->cuEventRecord(stream->event[i], stream->handle);
    }
    stream->event_last = stream->issued;
    if (__builtin_expect(engine->recording.detail != 0, 0)) {
        /* the call took some time, and the rest of this pass needs the present time */
        engine->now = hdi_clock_ns();
    }
    if (r == HDCU_SUCCESS) {
        atomic_store_explicit(&stream->event_cut[i], atomic_load_explicit(&stream->cut, memory_order_relaxed),
                              memory_order_relaxed);
        /* pairs with the acquire load in hdi_stream_hold_event: the event is recorded before its
         * position is visible */
        atomic_store_explicit(&stream->event_position[i], stream->issued, memory_order_release);
        hdi_engine_count(&engine->shared->events);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        /* Without an event, the waiting lane goes on when this lane is done: see stream_wait_event
         * in stream_waits.c. */
        hdi_raise(&engine->device->channel.lanes[stream->number].wanted_host, stream->issued);
    }
}

void hdi_stream_cut(hdi_engine *engine, hdi_stream *stream, bool event)
{
    if (stream->passed != stream->issued) {
        if (event && stream->event_last != stream->issued) {
            hdi_stream_record_event(engine, stream);
        }
        if (stream->signalled != stream->issued && !hdi_device_lost(engine->device)) {
            hdi_stream_signal(engine, stream);
        }
    }
    /* pairs with hdi_stream_is_cut_behind */
    atomic_store_explicit(&stream->cut, stream->issued, memory_order_release);
}

/* True if an event serves a waiter for `position`: no cut lies between the position and the
 * event. */
static bool event_serves(const hdi_stream *other, int i, uint64_t position)
{
    return atomic_load_explicit(&other->event_cut[i], memory_order_relaxed) < position;
}

/* Among the events that serve the waiter, returns the one with the lowest position. -1: there is
 * none. */
static int event_find(const hdi_stream *other, uint64_t position)
{
    int best = -1;
    uint64_t best_position = UINT64_MAX;
    for (int i = 0; i < HDI_EVENTS_PER_LANE; i++) {
        /* pairs with the release store in hdi_stream_record_event */
        uint64_t p = atomic_load_explicit(&other->event_position[i], memory_order_acquire);
        if (p >= position && p < best_position && event_serves(other, i, position)) {
            best = i;
            best_position = p;
        }
    }
    return best;
}

hdcu_event hdi_stream_hold_event(hdi_stream *other, uint64_t position, int *held)
{
    for (int i; (i = event_find(other, position)) >= 0;) {
        atomic_fetch_add_explicit(&other->event_holders[i], 1, memory_order_seq_cst);
        if (atomic_load_explicit(&other->event_position[i], memory_order_seq_cst) >= position &&
            event_serves(other, i, position)) {
            *held = i;
            return other->event[i];
        }
        /* The engine is recording the event again, so the event cannot serve any more. */
        atomic_fetch_sub_explicit(&other->event_holders[i], 1, memory_order_release);
    }
    return NULL;
}

void hdi_stream_release_event(hdi_stream *other, int held)
{
    atomic_fetch_sub_explicit(&other->event_holders[held], 1, memory_order_release);
}
