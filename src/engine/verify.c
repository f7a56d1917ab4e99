/* verify.c - compares what a worker process reports about its lanes with the application's own records.
 *
 * A worker shares memory with the application, and may write anything there. The cause may be a stray write, of a
 * kernel on the CPU or of its driver. Or the process is not the worker that it should be. A device with an impossible
 * report is given up (hdi_device_give_up). The thread that watches the workers sees that and kills the process. Then
 * the device is lost like any other whose worker has ended.
 *
 * Threads: hdi_device_report_can_be runs on the thread that watches the workers, the rest on any.
 * Locks: none.
 * Always: a worker without fault is never given up, however slow it is: a count is loaded before the one that
 * limits it. A worker that falsely reports possible positions or failures cannot be detected.
 */
#include "engine/engine.h"

/* No live writer takes so long for a record of the log. Both limits apply, since the application may have been stopped
 * for a while. */
#define UNSETTLED_NS 1000000000
#define UNSETTLED_LOOKS 8

bool hdi_lane_report_can_be(const hdi_device *device, uint32_t number)
{
    uint64_t done = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    return done <= hdi_lane_submitted(device, number);
}

bool hdi_lane_is_drained_to(const hdi_device *device, uint32_t number, uint64_t position)
{
    /* pairs with the release store where it is ended */
    return hdi_device_lost(device) && device->lanes[number] &&
           atomic_load_explicit(&device->lanes[number]->done_least, memory_order_acquire) >= position;
}

/* `done`, `issued`, `submitted` in this order: each is never behind the one before it. */
static bool positions_can_be(hd_lane *lane)
{
    uint64_t least = atomic_load_explicit(&lane->done_least, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    uint64_t submitted = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    if (done < least || issued < done || submitted < issued) {
        return false;
    }
    atomic_store_explicit(&lane->done_least, done, memory_order_relaxed);
    return true;
}

/* The log's counts never go back, and it is not half written for long. */
static bool log_can_be(hd_lane *lane, int64_t now)
{
    uint64_t least = atomic_load_explicit(&lane->changes_least, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    if (changes < least) {
        return false;
    }
    if (changes % 2 == 0 || changes != least) {
        lane->unsettled_since = now;
        lane->unsettled_looks = 0;
    }
    atomic_store_explicit(&lane->changes_least, changes, memory_order_relaxed);
    return ++lane->unsettled_looks < UNSETTLED_LOOKS || now - lane->unsettled_since < UNSETTLED_NS;
}

bool hdi_device_report_can_be(hdi_device *device, int64_t now)
{
    bool can_be = true;
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    for (uint32_t i = 0; i < made; i++) {
        hd_lane *lane = device->lanes[i];
        /* A lane that has gone on in another structure meanwhile does not count. */
        if ((!positions_can_be(lane) || !log_can_be(lane, now)) && !hdi_lane_is_past(lane)) {
            can_be = false;
        }
    }
    return can_be;
}
