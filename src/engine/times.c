/* times.c - the functions of times.h, and the calls hd_lane_keep_times and hd_ticket_get_elapsed.
 *
 * Threads: times.h states them for the engine's part. Any thread makes the calls.
 * Locks: none.
 * Always: each event is in one place: it is behind one operation of a stream, or it is the anchor,
 * or it is spare.
 */
#include "engine/times.h"
#include <stdlib.h>
#include "base/error.h"
#include "engine/stream.h"

/* if an event is farther from the anchor than this, it becomes the new anchor; 2^-24 of this time
 * is 3 ns */
#define ANCHOR_NS 50000000

/* ---- events ---- */

static bool times_give_spare(hdi_times *times, hdcu_event event)
{
    if (times->n_spare == times->room) {
        uint32_t room = times->room ? 2 * times->room : 64;
        hdcu_event *more = realloc(times->spare, room * sizeof *more);
        if (!more) {
            return false;
        }
        times->spare = more;
        times->room = room;
    }
    times->spare[times->n_spare++] = event;
    return true;
}

void hdi_times_give(hdi_engine *engine, hdcu_event event)
{
    if (event && !times_give_spare(&engine->times, event)) {
        engine->device->runtime->driver->cuEventDestroy(event);
    }
}

hdcu_result hdi_times_take(hdi_engine *engine, hdcu_event *out)
{
    if (engine->times.n_spare) {
        *out = engine->times.spare[--engine->times.n_spare];
        return HDCU_SUCCESS;
    }
    *out = NULL;
    return engine->device->runtime->driver->cuEventCreate(out, HDCU_EVENT_DEFAULT);
}

/* ---- the table ---- */

/* The release stores pair with the loads in times_find: a reader that sees the new time also sees
 * that the old position is gone. */
static void times_store(hdi_engine *engine, const hdi_stream *stream, uint64_t position, int64_t ns)
{
    hdi_time *time = hdi_time_at(&engine->device->channel, stream->number, position);
    atomic_store_explicit(&time->position, 0, memory_order_relaxed);
    atomic_store_explicit(&time->ns, ns, memory_order_release);
    atomic_store_explicit(&time->position, position, memory_order_release);
}

/* Finds the time of the operation that ends at `position`. False: none. */
static bool times_find(const hd_lane *lane, uint64_t position, int64_t *ns)
{
    const hdi_time *time = hdi_time_at(&lane->device->channel, lane->number, position);
    if (atomic_load_explicit(&time->position, memory_order_acquire) != position) {
        return false;
    }
    *ns = atomic_load_explicit(&time->ns, memory_order_acquire);
    return atomic_load_explicit(&time->position, memory_order_relaxed) == position &&
           position > atomic_load_explicit(&lane->shared->times_after, memory_order_acquire);
}

/* ---- the engine's part ---- */

hdcu_result hdi_times_record(hdi_engine *engine, hdi_stream *stream, uint64_t end)
{
    uint64_t slots = engine->device->channel.slots;
    if (!stream->timed) {
        stream->timed = calloc(slots, sizeof *stream->timed);
    }
    hdcu_event event = NULL;
    hdcu_result r = stream->timed ? hdi_times_take(engine, &event) : HDCU_ERROR_OUT_OF_MEMORY;
    if (r == HDCU_SUCCESS) {
        r = engine->device->runtime->driver->cuEventRecord(event, stream->handle);
    }
    if (r == HDCU_SUCCESS) {
        stream->timed[(end - 1) & (slots - 1)] = event;
        stream->entries++;
    } else {
        hdi_times_give(engine, event);
        times_store(engine, stream, end, HDI_TIME_REFUSED);
    }
    return r;
}

/* True if the driver may know the time later. If the program captures a stream, the driver refuses
 * the question, but the event is good. */
static bool times_is_not_yet(hdcu_result r)
{
    return r == HDCU_ERROR_NOT_READY || hdi_driver_code_is_capture(r);
}

hdi_time_read hdi_times_read(hdi_engine *engine, hdcu_event event, int64_t *ns)
{
    hdi_times *times = &engine->times;
    float milliseconds = 0;
    hdcu_result r = engine->device->runtime->driver->cuEventElapsedTime(&milliseconds,
                                                                        times->anchor ? times->anchor : event, event);
    if (times_is_not_yet(r)) {
        return HDI_TIME_NOT_YET;
    }
    /* the engine finds a fatal error when it next checks the device */
    if (r != HDCU_SUCCESS) {
        hdi_times_give(engine, event);
        return HDI_TIME_NEVER;
    }
    int64_t since = (int64_t)((double)milliseconds * 1e6 + (milliseconds < 0 ? -0.5 : 0.5));
    *ns = times->anchor_ns + since;
    if (!times->anchor || since > ANCHOR_NS || since < -ANCHOR_NS) {
        hdi_times_give(engine, times->anchor);
        times->anchor = event;
        times->anchor_ns = *ns;
    } else {
        hdi_times_give(engine, event);
    }
    return HDI_TIME_READ;
}

/* Stores the time of an event that the device passed, and makes the event unused or the anchor.
 * False: the driver does not know the time yet, so the event stays in place. */
static bool times_settle_one(hdi_engine *engine, const hdi_stream *stream, hdcu_event event, uint64_t position)
{
    int64_t ns;
    hdi_time_read found = hdi_times_read(engine, event, &ns);
    if (found != HDI_TIME_NOT_YET) {
        times_store(engine, stream, position, found == HDI_TIME_READ ? ns : HDI_TIME_REFUSED);
    }
    return found != HDI_TIME_NOT_YET;
}

uint64_t hdi_times_settle(hdi_engine *engine, hdi_stream *stream, uint64_t end)
{
    uint64_t slots = engine->device->channel.slots;
    for (uint64_t position = stream->done + 1; position <= end; position++) {
        hdcu_event *event = &stream->timed[(position - 1) & (slots - 1)];
        if (*event && !times_settle_one(engine, stream, *event, position)) {
            return position - 1;
        }
        *event = NULL;
    }
    return end;
}

void hdi_times_end(hdi_engine *engine, bool driver_usable)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdi_times *times = &engine->times;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdcu_event *timed = engine->streams[i].timed;
        for (uint64_t s = 0; timed && driver_usable && s < engine->device->channel.slots; s++) {
            if (timed[s]) {
                driver->cuEventDestroy(timed[s]);
            }
        }
        free(timed);
    }
    for (uint32_t i = 0; driver_usable && i < times->n_spare; i++) {
        driver->cuEventDestroy(times->spare[i]);
    }
    if (driver_usable && times->anchor) {
        driver->cuEventDestroy(times->anchor);
    }
    free(times->spare);
    *times = (hdi_times){.anchor = NULL};
}

/* ---- the calls ---- */

hd_status hd_lane_keep_times(hd_lane *handle, bool on)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    /* The ticket of a copy names a lane of the library. Other copies use the same lane, so the
     * program must not change it. */
    if (!lane->sticky_failure) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "lane %u of device %d is the library's own; put hd_lane_add_dependency into a lane of yours",
                        lane->number, lane->device->index);
    }
    hdi_lock_take(&lane->device->order);
    /* Checked again: the lane may have been given back and given out again. */
    bool there = hdi_lane_from_handle(handle) == lane;
    if (there) {
        /* relaxed: the submission that follows publishes it with `head` */
        atomic_store_explicit(&lane->shared->keeps_times, on, memory_order_relaxed);
    }
    hdi_lock_release(&lane->device->order);
    return there ? HD_OK : hdi_lane_refused(handle);
}

/* Fails with the reason why the ticket of a successful operation lacks a time. */
static hd_status times_explain_none(const hd_lane *lane, hd_ticket ticket)
{
    unsigned long long sequence = ticket.sequence;
    int device = lane->device->index;
    if (ticket.sequence <= atomic_load_explicit(&lane->shared->times_after, memory_order_acquire)) {
        return hdi_fail(
            HD_ERROR_NOT_FOUND,
            "ticket %llu of lane %u on device %d is from before the device was restarted, which dropped its "
            "time",
            sequence, lane->number, device);
    }
    if (atomic_load_explicit(&lane->submitted, memory_order_acquire) - ticket.sequence > lane->mask) {
        return hdi_fail(
            HD_ERROR_NOT_FOUND,
            "the time of ticket %llu of lane %u on device %d was dropped: a lane has those of its last %llu "
            "slots (option lane_slots)",
            sequence, lane->number, device, (unsigned long long)lane->mask + 1);
    }
    return hdi_fail(HD_ERROR_NOT_FOUND,
                    "ticket %llu of lane %u on device %d has no time; call hd_lane_keep_times before the operation is "
                    "submitted",
                    sequence, lane->number, device);
}

/* Gets the time when the operation of a ticket ended, in the time of its device. */
static hd_status times_of_ticket(hd_ticket ticket, const hd_lane *lane, int64_t *ns)
{
    hd_runtime *rt = lane->runtime;
    if (ticket.sequence > atomic_load_explicit(&lane->submitted, memory_order_acquire)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "ticket %llu was never given out by lane %u of device %d",
                        (unsigned long long)ticket.sequence, lane->number, lane->device->index);
    }
    if (!hdi_point_done(rt, (hdi_point){lane->global, ticket.sequence})) {
        return hdi_not_done(rt, lane->global, 0, "ticket %llu of lane %u on device %d is not done; wait for it first",
                            (unsigned long long)ticket.sequence, lane->number, lane->device->index);
    }
    hd_status status = hdi_ticket_status(rt, lane->global, ticket.sequence);
    if (status) {
        return status;
    }
    if (ticket.sequence == 0 || !times_find(lane, ticket.sequence, ns)) {
        return times_explain_none(lane, ticket);
    }
    return *ns != HDI_TIME_REFUSED
               ? HD_OK
               : hdi_fail(HD_ERROR_DRIVER, "the driver gave no time for ticket %llu of lane %u on device %d",
                          (unsigned long long)ticket.sequence, lane->number, lane->device->index);
}

/* Finds the lane of a ticket. Refuses a ticket without a lane, which names no operation. */
static hd_status times_lane_of(hd_ticket ticket, const char *which, const hd_lane **out)
{
    if (!ticket.lane) {
        return hdi_fail(HD_ERROR_ARGUMENT, "`%s` is a ticket without a lane, which has no time", which);
    }
    *out = hdi_lane_any(ticket.lane);
    return *out ? HD_OK : hdi_handle_refused(ticket.lane, "ticket", "its runtime was closed");
}

hd_status hd_ticket_get_elapsed(hd_ticket from, hd_ticket to, int64_t *out)
{
    HDI_INSIDE(hdi_lane_runtime(from.lane));
    const hd_lane *first, *second;
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = times_lane_of(from, "from", &first);
    status = status ? status : times_lane_of(to, "to", &second);
    if (status) {
        return status;
    }
    if (first->runtime != second->runtime) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the tickets are of two runtimes");
    }
    hdi_device *device = first->device;
    if (device != second->device) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "the tickets are of devices %d and %d, each of which has a clock of its own", device->index,
                        second->device->index);
    }
    uint64_t restarts = atomic_load_explicit(&device->restarts, memory_order_acquire);
    int64_t began = 0, ended = 0;
    status = times_of_ticket(from, first, &began);
    status = status ? status : times_of_ticket(to, second, &ended);
    if (status) {
        return status;
    }
    /* Both times are from the same start of the engine, since each position is greater than
     * times_after of its lane. Only a restart of the device in between would change that. */
    if (atomic_load_explicit(&device->restarts, memory_order_acquire) != restarts) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "device %d was restarted meanwhile, which dropped its times",
                        device->index);
    }
    *out = ended - began;
    return HD_OK;
}
