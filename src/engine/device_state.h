/* device_state.h - the state of a device: one state machine, one function that changes it, and all
 * questions about it.
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
 *       what happens                              thread                      lock
 *    1  the device is given up: see FAILING       the first that notices      none
 *    2  failures are recorded: it counts as lost  engine; watcher or restart  none; order lock
 *    3  all work ended, also work that waited,    watcher, or the one of 2    losses' mutex
 *       or a restart takes over waiting work      hd_device_restart           losses' mutex
 *    4  hd_device_restart begins                  hd_device_restart           `restarting`,
 *                                                                             losses' mutex
 *    5  a fresh worker drives the device          hd_device_restart           `restarting`
 *    6  the worker is filled like the old one     hd_device_restart           `refilling`,
 *                                                                             order lock
 *    7  the restart failed                        hd_device_restart           `restarting`
 *
 * A device is UP when hd_open returns. hd_close ends a device in any state. An engine in this
 * process (placements inline and thread) makes transitions 1 and 2 only: it drains the lanes
 * itself, and no restart follows. A worker process keeps a state of its own for its device. This
 * state is always UP, since the worker process ends itself at a loss. The process that drives the
 * device is a state machine, too (child_state in src/worker/workers.c).
 *
 * The state is in the application's own memory. A worker's reports about its device may be wrong
 * (ticket.c), and can lead to FAILING only. In addition to the state, a device stores the code of
 * its latest loss, and counts of its losses and restarts.
 *
 * Threads: any; the table names those that change the state.
 * Locks: as in the table.
 * Blocking: none.
 * Always: only one thread at a time makes one of the transitions 2 to 7. With workers, a device
 * does not become lost while a thread holds its order lock.
 */
#ifndef HDI_ENGINE_DEVICE_STATE_H
#define HDI_ENGINE_DEVICE_STATE_H

#include "engine/runtime.h"

typedef enum hdi_device_state {
    /* The engine takes commands. This is 0, so that a new device is UP. */
    HDI_DEVICE_UP,
    /* The device will be lost, but does not count as lost yet. Its engine records failures, or its
     * worker process ended or will be killed. Submitting is still possible, but the work may
     * fail. */
    HDI_DEVICE_FAILING,
    /* From here to RESTORING the device counts as lost. The failures of all unfinished work are
     * recorded. A thread that holds the order lock submits nothing any more. Work that waits for
     * other devices goes on. */
    HDI_DEVICE_DRAINING,
    /* The device counts as lost. All its work ended, or a failed restart left some work unfinished.
     * The loss is reported (hd_loss_next). No worker serves the device. */
    HDI_DEVICE_LOST,
    /* The device counts as lost. hd_device_restart owns the channel. Perhaps a worker is starting,
     * which answers no requests yet. */
    HDI_DEVICE_STARTING,
    /* The device still counts as lost for threads that submit. The port leads to a fresh worker,
     * which hd_device_restart fills. */
    HDI_DEVICE_RESTORING,
} hdi_device_state;

#define HDI_DEVICE_STATES 6

/* True if a transition leads from one state to the other. */
bool hdi_device_may_change(hdi_device_state from, hdi_device_state to);

/* Makes a transition. No other function changes a device's state. A debug build asserts that the
 * transition exists, and that the device is in `from`. Only transition 1 may find another state,
 * since several threads notice the same failure. False: nothing changed. A thread that sees the new
 * state also sees everything that the caller wrote before the call. */
bool hdi_device_change(hdi_device *device, hdi_device_state from, hdi_device_state to);

static inline hdi_device_state hdi_device_state_of(const hdi_device *device)
{
    /* pairs with the exchange in hdi_device_change */
    return (hdi_device_state)atomic_load_explicit(&device->state, memory_order_acquire);
}

/* True if the device counts as lost: it refuses submissions, and its unfinished work failed. One
 * load. */
static inline bool hdi_device_lost(const hdi_device *device)
{
    return hdi_device_state_of(device) >= HDI_DEVICE_DRAINING;
}

/* True if the device counts as lost, or was lost since its count of losses was `losses`. After such
 * a loss, a restart may have made the device UP again. */
static inline bool hdi_device_lost_since(const hdi_device *device, uint64_t losses)
{
    /* The state is loaded first: a thread that sees a restarted device also sees that the loss was
     * counted. */
    return hdi_device_lost(device) || atomic_load_explicit(&device->losses, memory_order_acquire) != losses;
}

/* The code that ended a lost device: a driver code, or HDI_GONE_*. 0: it is not lost. */
static inline int hdi_device_lost_by(const hdi_device *device)
{
    /* relaxed: the code is written before the device counts as lost */
    return hdi_device_lost(device) ? atomic_load_explicit(&device->lost_by, memory_order_relaxed) : 0;
}

/* True if the device was given up, or is lost. */
static inline bool hdi_device_given_up(const hdi_device *device)
{
    return hdi_device_state_of(device) != HDI_DEVICE_UP;
}

/* True if the device's port leads to a driver, as far as this process knows. */
static inline bool hdi_device_has_driver(const hdi_device *device)
{
    hdi_device_state state = hdi_device_state_of(device);
    return state < HDI_DEVICE_DRAINING || state == HDI_DEVICE_RESTORING;
}

/* Gives a device up because its worker process is being killed, or will be (transition 1). No
 * effect in states other than UP, or for engines in this process. */
void hdi_device_give_up(hdi_device *device);

#endif
