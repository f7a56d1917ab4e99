/* lost_device.h - devices without engines; tests of losses write their channels as an engine would.
 *
 * Threads: one, unless a test has more. Locks: none.
 */
#ifndef TEST_ENGINE_LOST_DEVICE_H
#define TEST_ENGINE_LOST_DEVICE_H

#include "support/check.h"

#include <stdatomic.h>
#include <unistd.h>
#include "engine/engine.h"

enum { DEVICES = 2, LANES = 2, ALL_LANES = DEVICES * HDI_LANES_MAX };

typedef struct fixture {
    hdi_device devices[DEVICES];
    hd_runtime runtime;
    hd_lane lanes[DEVICES][LANES];
    uint64_t seen[DEVICES][LANES][2][ALL_LANES];
} fixture;

static int set_up(void **state)
{
    fixture *f = aligned_alloc(_Alignof(fixture), sizeof *f);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    f->runtime.n_devices = DEVICES;
    f->runtime.is_process = true;
    assert_ok(hdi_losses_create(&f->runtime));
    for (int d = 0; d < DEVICES; d++) {
        hdi_device *device = &f->devices[d];
        device->runtime = &f->runtime;
        device->index = d;
        f->runtime.devices[d] = device;
        hdi_lock_init(&device->order, HDI_RANKED(HDI_RANK_ORDER, d));
        assert_ok(hdi_channel_create(64, &device->channel));
        for (uint32_t i = 0; i < LANES; i++) {
            hd_lane *lane = &f->lanes[d][i];
            lane->number = i;
            lane->global = (uint32_t)d * HDI_LANES_MAX + i;
            lane->device = device;
            lane->shared = &device->channel.lanes[i];
            lane->ring = &device->channel.rings[(size_t)i * device->channel.slots];
            lane->mask = device->channel.slots - 1;
            lane->sticky_failure = true;
            lane->seen = f->seen[d][i][0];
            lane->seen_source = f->seen[d][i][1];
            device->lanes[i] = lane;
        }
        atomic_store(&device->lanes_made, LANES);
    }
    alarm(100); /* ends a case that hangs */
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    alarm(0);
    for (int d = 0; d < DEVICES; d++) {
        hdi_channel_release(&f->devices[d].channel);
    }
    hdi_losses_release(&f->runtime);
    free(f);
    return 0;
}

/* Brings a lost device back, as hd_device_restart does. */
static inline void bring_back(hdi_device *device)
{
    assert_true(hdi_device_change(device, HDI_DEVICE_LOST, HDI_DEVICE_STARTING));
    assert_true(hdi_device_change(device, HDI_DEVICE_STARTING, HDI_DEVICE_RESTORING));
    hdi_device_reactivate(device);
}

static inline hd_status status_of(fixture *f, const hd_lane *lane, uint64_t position)
{
    return hdi_position_status(&f->runtime, lane->global, position);
}

#endif
