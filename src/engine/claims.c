/* claims.c - ends claims, and notifies their engines. See claims.h. outcomes.c names claims in
 * messages.
 */
#include "engine/claims.h"
#include "engine/engine.h"

/* Publishes the commands up to `end`, unless they are published already. */
static void lane_claim_publish(hd_lane *lane, uint64_t end)
{
    if (atomic_load_explicit(&lane->shared->head, memory_order_relaxed) != end) {
        hdi_engine_publish(lane->device->channel.engine, &lane->shared->head, end);
    }
}

static void lane_claim_look(hd_lane *lane)
{
    hdi_device *device = lane->device;
    hdi_engine_notify(device->channel.engine, lane->number);
    if (device->runtime->is_inline) {
        hdi_engine_run_inline(device);
    } else if (hdi_device_lost(device)) {
        hdi_device_drain(device);
    }
}

void hdi_claim_notify(hd_lane *lane, uint64_t end)
{
    lane_claim_publish(lane, end);
    lane_claim_look(lane);
}

bool hdi_claims_are_open(const hd_runtime *rt)
{
    bool any = false;
    for (int d = 0; d < rt->n_devices && !any; d++) {
        uint32_t made = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < made && !any; i++) {
            any = hdi_claim_has_open(hdi_lane_at(rt->devices[d], i));
        }
    }
    return any;
}

bool hdi_point_is_left_to_program(hd_runtime *rt, hdi_point point)
{
    const hdi_device *device = hdi_lane_owner(rt, point.lane);
    uint32_t number = point.lane % HDI_LANES_MAX;
    if (number >= atomic_load_explicit(&device->lanes_made, memory_order_acquire)) {
        return false;
    }
    const hd_lane *lane = hdi_lane_at(device, number);
    return point.position > atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) &&
           hdi_claim_is_left_to_program(lane);
}

/* True if a lane or a thread may wait for the claim that ends at a position. A waiter first stores
 * its wish, and then notifies or runs the engine. */
static bool lane_claim_is_wanted(const hdi_lane_shared *lane, uint64_t end)
{
    uint64_t first = end - HDI_CLAIM_SLOTS + 1;
    return atomic_load_explicit(&lane->wanted_host, memory_order_seq_cst) >= first ||
           atomic_load_explicit(&lane->wanted_event, memory_order_seq_cst) >= first ||
           atomic_load_explicit(&lane->wanted_now, memory_order_seq_cst) >= first;
}

/* True if no engine saw the claim: the claim was not published, and all work in front of it is
 * done. False after a loss, since another thread may drain the lane at the same time. */
static bool lane_claim_is_unseen(const hd_lane *lane, uint64_t end)
{
    uint64_t head = atomic_load_explicit(&lane->shared->head, memory_order_relaxed);
    return head != end && atomic_load_explicit(&lane->shared->done, memory_order_acquire) == head &&
           !hdi_device_lost(lane->device);
}

/* Records the claim's end for a trace. The engine does not record it, since no engine saw the
 * claim. */
static void lane_claim_record_end(hd_lane *lane, uint64_t end)
{
    hdi_record record = {.done = {.time = hdi_record_now(&lane->runtime->recorder),
                                  .lane = lane->global,
                                  .before = end - 1,
                                  .position = end}};
    record.type = HDI_RECORD_DONE;
    record.device = (uint8_t)lane->device->index;
    hdi_record_put(&lane->runtime->recorder, &record);
}

/* Ends a claim that no engine saw. When a later command comes, the engine catches up with the lane
 * in its next visit (hdi_stream_visit). Until then, no other processor fetches the cache lines of
 * the claim. Stores `issued` first, then `done`, then `head`. After the store of `head`, another
 * claim may get the lane. */
static void lane_claim_end_unseen(hd_lane *lane, uint64_t end)
{
    hdi_lane_shared *shared = lane->shared;
    hdi_device *device = lane->device;
    uint64_t before = atomic_load_explicit(&shared->head, memory_order_relaxed);
    if (hdi_records(&device->runtime->recorder)) {
        lane_claim_record_end(lane, end);
    }
    atomic_store_explicit(&shared->issued, end, memory_order_relaxed);
    /* Sequentially consistent with threads and lanes that store their wish and then load `done`.
     * Releases the program's writes. */
    hdi_raise(&shared->done, end);
    atomic_store_explicit(&shared->head, end, memory_order_release);
    atomic_store_explicit(&lane->claim_over, end, memory_order_release);
    hdi_lane_wake(shared, before, end);
    hdi_lane_ring_watchers(device->runtime, shared);
    hdi_claim_ring(device->channel.engine);
    /* A thread that drains the lost device may have stopped at the claim. */
    if (lane_claim_is_wanted(shared, end) || hdi_device_lost(device)) {
        lane_claim_look(lane);
    }
}

bool hdi_claim_end_unseen(hd_lane *lane, uint64_t end)
{
    bool unseen = lane_claim_is_unseen(lane, end);
    if (unseen) {
        atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
        lane_claim_end_unseen(lane, end);
    }
    return unseen;
}

void hdi_claim_end_lane(hd_lane *lane, uint64_t end, const hdi_claim_ending *how)
{
    bool at_once = how->ready && !how->event && !how->outcome && !how->late;
    if (at_once && hdi_claim_end_unseen(lane, end)) {
        return;
    }
    if (how->event) {
        atomic_store_explicit(&lane->claim_event, how->event, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_in_stream, how->late ? 0 : end, memory_order_relaxed);
    }
    if (how->outcome) {
        atomic_store_explicit(&lane->shared->failed_as, how->outcome, memory_order_relaxed);
        atomic_store_explicit(&lane->shared->failed_at, end, memory_order_relaxed);
    }
    if (how->late) {
        atomic_store_explicit(&lane->claim_late, how->late, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_late_end, end, memory_order_release);
    } else {
        atomic_store_explicit(&lane->claim_late_end, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
    }
    lane_claim_publish(lane, end);
    /* This store also publishes the claim's event and outcome. */
    hdi_engine_publish(lane->device->channel.engine, &lane->shared->ended, end);
    if (at_once) { /* last, since another claim may get the lane after this store */
        atomic_store_explicit(&lane->claim_over, end, memory_order_release);
    }
    if (at_once && lane->device->runtime->is_inline && !lane_claim_is_wanted(lane->shared, end)) {
        /* In the placement inline, the next call that submits or waits runs the engine. */
        hdi_engine_notify(lane->device->channel.engine, lane->number);
    } else {
        lane_claim_look(lane);
    }
}
