/* device_state.c - see device_state.h: the transitions that exist, and the function that makes
 * them.
 *
 * Threads, Locks: the table in device_state.h states them.
 * Blocking: none.
 * Always: a transition that the table lacks changes nothing.
 */
#include "engine/device_state.h"
#include <assert.h>

#define TO(state) (1U << HDI_DEVICE_##state)

static const uint8_t transitions[HDI_DEVICE_STATES] = {
    [HDI_DEVICE_UP] = TO(FAILING),
    [HDI_DEVICE_FAILING] = TO(DRAINING),
    [HDI_DEVICE_DRAINING] = TO(LOST),
    [HDI_DEVICE_LOST] = TO(STARTING),
    [HDI_DEVICE_STARTING] = TO(RESTORING) | TO(LOST),
    [HDI_DEVICE_RESTORING] = TO(UP) | TO(LOST),
};

bool hdi_device_may_change(hdi_device_state from, hdi_device_state to)
{
    return from < HDI_DEVICE_STATES && to < HDI_DEVICE_STATES && (transitions[from] >> to & 1) != 0;
}

bool hdi_device_change(hdi_device *device, hdi_device_state from, hdi_device_state to)
{
    bool possible = hdi_device_may_change(from, to);
    assert(possible && "no transition of a device's state");
    uint32_t expected = from;
    /* pairs with the load in hdi_device_state_of */
    bool changed = possible && atomic_compare_exchange_strong_explicit(&device->state, &expected, to,
                                                                       memory_order_acq_rel, memory_order_acquire);
    assert((changed || from == HDI_DEVICE_UP) && "the device is in another state");
    return changed;
}

void hdi_device_give_up(hdi_device *device)
{
    if (device->runtime->is_process) {
        hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING);
    }
}
