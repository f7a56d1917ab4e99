/* device_state.h - the state of a device: one machine, one function that changes it, and all questions about it.
 *
 *              hd_open
 *                 |
 *                 v          1              2                3
 *    .--------->  UP  ---> FAILING  ---> DRAINING  ---> LOST <---------------.
 *    |                                                    | 4                | 7
 *    |                 6                        5         v                  |
 *    '--------------------------  RESTORING  <--------  STARTING             |
 *                                     |                    |                 |
 *                                     '--------------------'-----------------'
 *
 *       what happens                                   thread                          lock
 *    1  the device is given up: see FAILING            any that notices; the first     none
 *    2  failures are recorded: it counts as lost       engine's; watcher or restart    none; order lock
 *    3  all work has ended, also what waited           watcher, or the one of 2        the losses' mutex
 *    4  hd_device_restart begins                       hd_device_restart               `restarting`
 *    5  a fresh worker drives the device               hd_device_restart               `restarting`
 *    6  the worker has what the former one had         hd_device_restart               `restarting`, order lock
 *    7  the restart has failed                         hd_device_restart               `restarting`
 *
 * A device leaves hd_open UP, and hd_close ends it in any state. An engine in this process (placements inline and
 * thread) makes transitions 1 and 2 only: it drains the lanes itself, and no restart follows. A worker process has
 * states of its own, which stay UP, since it ends at a loss. The process that drives the device has a state, too
 * (child_state in src/worker/workers.c).
 *
 * The state is in memory of the application's own. What a worker reports of its device may be wrong (ticket.c), and can
 * lead to FAILING only. Beside the state are data: the code of the latest loss, and the counts of losses and restarts.
 *
 * Threads: any; the table names those that change the state.
 * Locks: as in the table.
 * Blocking: none.
 * Always: each of transitions 2 to 7 has one thread at a time. With workers, a device does not become lost while a
 * thread holds its order lock.
 */
#ifndef HDI_ENGINE_DEVICE_STATE_H
#define HDI_ENGINE_DEVICE_STATE_H

#include "engine/runtime.h"

typedef enum hdi_device_state {
    /* The engine takes commands. Zero, so that a new device is UP. */
    HDI_DEVICE_UP,
    /* The device will be lost, and does not count as lost yet. Its engine records failures, or its worker process is to
     * be killed or has ended. Submitting is still possible, but need not come to anything. */
    HDI_DEVICE_FAILING,
    /* From here to RESTORING the device counts as lost. The failures of all that was unfinished are recorded. A thread
     * that has the order lock submits nothing any more. Work that waits for other devices is not ended yet. */
    HDI_DEVICE_DRAINING,
    /* Likewise, and all work has ended. The loss is reported (hd_loss_next). No worker serves the device. */
    HDI_DEVICE_LOST,
    /* Likewise. The channel belongs to hd_device_restart. A worker may be starting, and answers no requests yet. */
    HDI_DEVICE_STARTING,
    /* Still lost to threads that submit. The port leads to a fresh worker, and is used to fill it. */
    HDI_DEVICE_RESTORING,
} hdi_device_state;

#define HDI_DEVICE_STATES 6

/* Whether a transition leads from one state to the other. */
bool hdi_device_may_change(hdi_device_state from, hdi_device_state to);

/* Makes a transition. The only function that changes a device's state. A debug build asserts that there is such a
 * transition, and that the device is in `from`. Only transition 1 may find it elsewhere, since several threads notice
 * the same thing. False: nothing was changed. What the thread wrote before is visible to threads that see the new
 * state. */
bool hdi_device_change(hdi_device *device, hdi_device_state from, hdi_device_state to);

static inline hdi_device_state hdi_device_state_of(const hdi_device *device)
{
    /* pairs with the exchange in hdi_device_change */
    return (hdi_device_state)atomic_load_explicit(&device->state, memory_order_acquire);
}

/* Whether the device counts as lost: what is submitted is refused, and what was unfinished has failed. One load. */
static inline bool hdi_device_lost(const hdi_device *device)
{
    return hdi_device_state_of(device) >= HDI_DEVICE_DRAINING;
}

/* The code that ended a lost device: the driver's, or HDI_GONE_*. 0: it is not lost. */
static inline int hdi_device_lost_by(const hdi_device *device)
{
    /* relaxed: written before the device counts as lost */
    return hdi_device_lost(device) ? atomic_load_explicit(&device->lost_by, memory_order_relaxed) : 0;
}

/* Whether the device was given up, or is lost. */
static inline bool hdi_device_given_up(const hdi_device *device)
{
    return hdi_device_state_of(device) != HDI_DEVICE_UP;
}

/* Whether its port leads to a driver, as far as that is determined. */
static inline bool hdi_device_has_driver(const hdi_device *device)
{
    hdi_device_state state = hdi_device_state_of(device);
    return state < HDI_DEVICE_DRAINING || state == HDI_DEVICE_RESTORING;
}

/* Gives a device up whose worker process is to be killed, or is being killed (transition 1). In another state than UP
 * it has no effect. Nor has it one for engines in this process. */
void hdi_device_give_up(hdi_device *device);

#endif
