/* wake.c - wakes the threads and engines that sleep until a position of a lane moves, or until
 * there are commands.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: none.
 * Always:
 * - Before a thread or an engine sleeps, it registers in the channel, and then checks once more
 *   whether it may go on. The functions in this file run after the store for which the sleeper
 *   waits. So either the sleeper sees the store, or these functions see the sleeper.
 * - If nobody sleeps, hdi_lane_wake and hdi_lane_ring_watchers cost one load each.
 */
#include "base/wait.h"
#include "engine/engine.h"

void hdi_engine_ring(hdi_engine_shared *engine)
{
    atomic_fetch_add_explicit(&engine->doorbell, 1, memory_order_seq_cst);
    hdi_futex_wake(&engine->doorbell, 1);
}

void hdi_lane_wake(hdi_lane_shared *lane, uint64_t before, uint64_t done)
{
    if (atomic_load_explicit(&lane->sleepers, memory_order_seq_cst) == 0) {
        return;
    }
    uint32_t bits = hdi_awaited_bits(before, done);
    if (atomic_load_explicit(&lane->awaited, memory_order_seq_cst) & bits) {
        /* If a thread sleeps for another position with the same bit, it wakes up, too, and sets the
         * bit again. */
        atomic_fetch_and_explicit(&lane->awaited, ~bits, memory_order_seq_cst);
        atomic_fetch_add_explicit(&lane->wake, 1, memory_order_release);
        hdi_futex_wake_bits(&lane->wake, bits);
    }
}

void hdi_lane_ring_watchers(hd_runtime *rt, hdi_lane_shared *lane)
{
    /* Sequentially consistent, after the store of `done`: see hdi_stream_wait_host. */
    if (__builtin_expect(atomic_load_explicit(&lane->watchers, memory_order_seq_cst) == 0, 1)) {
        return;
    }
    uint32_t devices = atomic_exchange_explicit(&lane->watchers, 0, memory_order_seq_cst);
    for (int i = 0; i < rt->n_devices; i++) {
        if (devices >> i & 1 && rt->devices[i]) {
            hdi_engine_ring(rt->devices[i]->channel.engine);
        }
    }
}

void hdi_wake_sleepers(hdi_device *device)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_lane_shared *shared = &device->channel.lanes[i];
        atomic_fetch_add_explicit(&shared->wake, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&shared->sleepers, memory_order_seq_cst) != 0) {
            hdi_futex_wake(&shared->wake, INT32_MAX);
        }
    }
    if (device->runtime->on_closing) {
        device->runtime->on_closing(device->runtime);
    }
}
