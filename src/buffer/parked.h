/* parked.h - the lanes for operations of the library that wait for work of the program.
 *
 * Launches, matrix products, host calls and claims are work of the program. This work is in program
 * lanes; each claim takes a lane of its own. The program decides how long its work lasts. A *root*
 * of an operation is unfinished work of the program that the operation waits for, directly or
 * through operations of the library.
 *
 * The program sees its own lanes and their order. It does not see the library's lanes, in which
 * unrelated transfers follow each other. Therefore an operation enters a library lane only if all
 * roots of that lane are also roots of the operation. So an operation never waits for a root that
 * is not its own, and an operation without roots never stands behind an operation with roots. An
 * operation that may not enter the lane chosen for it goes to a parking lane of the device. One
 * parking lane takes only operations without roots, so these always find a lane. If no lane is left
 * for an operation with roots, its submission waits until one of its roots is done.
 *
 * Each library lane lists the roots of its unfinished work. A root is stored as a program lane and
 * a position in this lane. Work in a program lane runs in order, so only the latest position in
 * each program lane matters.
 *
 * Threads: the threads that submit work.
 * Locks: a thread that changes a lane's list holds the order lock of the lane's device, and the
 * list's own lock. Submissions to other devices read the list under its own lock.
 * Blocking: a thread that makes a parking lane calls the driver, or waits for a worker.
 * Always: a submission adds its roots to the list before its position becomes visible. A single
 * load shows whether a list is empty.
 */
#ifndef HDI_BUFFER_PARKED_H
#define HDI_BUFFER_PARKED_H

#include "buffer/buffer.h"
#include "buffer/part.h"
#include "buffer/submit.h"
#include "engine/runtime.h"

/* True if operations in the lane belong to the library, so that they may be parked. */
static inline bool hdi_parked_may_be_in(const hd_lane *lane)
{
    return lane->is_copy && !atomic_load_explicit(&lane->claim, memory_order_relaxed);
}

/* True if operations in a library lane have roots, or had roots a moment ago. */
static inline bool hdi_parked_any(const hd_lane *lane)
{
    /* Relaxed: the caller holds the order lock, or saw a position that was published after this
     * flag was set. */
    return atomic_load_explicit(&lane->has_roots, memory_order_relaxed);
}

/* Finds the roots of the collected waits of the lane's next operation. The roots stay in the
 * device's `roots` while the caller holds the order lock. */
void hdi_parked_find(hd_lane *lane);

/* Fills in the answers of a probe from the roots that were found last. The order lock is held. */
void hdi_parked_answer(const hd_lane *lane, hdi_probe *probe);

/* True if an operation with the roots that were found last may stand in the lane. If the lane
 * contains roots, half of its ring must also be free. The order lock is held. */
bool hdi_parked_fits(hd_lane *lane);

/* Makes room in the lane's list for the roots that were found, so that hdi_parked_note cannot fail.
 * False: no host memory. */
bool hdi_parked_reserve(hd_lane *lane);

/* Adds the roots that were found to the list, for an operation that ends at the position. Hold the
 * order lock from hdi_parked_find until this call. */
void hdi_parked_note(hd_lane *lane, uint64_t position);

/* Returns a parking lane for an operation with the roots that were found. NULL: no lane fits.
 * `made`: no more parking lanes can be made. In that case an operation without roots always gets a
 * lane, if need be hdi_parking_without_roots. The caller holds the order lock. */
hd_lane *hdi_parking_choose(hdi_device *device, bool made);

/* The parking lane that takes only operations without roots. */
static inline hd_lane *hdi_parking_without_roots(const hdi_device *device)
{
    return device->parking[0];
}

/* Makes one more parking lane. False: no lane could be made, or the device has HDI_PARKING_LANES
 * already. Leaves the thread's message alone. No lock is held. */
bool hdi_parking_make(hdi_device *device);

/* For hd_open: makes the parking lane for operations without roots. Errors: as hdi_lane_make. */
hd_status hdi_parking_open(hdi_device *device);
void hdi_parking_release(hdi_device *device);

/* True if the operation of a point may still wait for work of the program. */
bool hdi_parked_has_root(hd_runtime *rt, hdi_point point);

/* True if the next use of a buffer may wait for work of the program. Takes the record's lock. */
bool hdi_buffer_has_root(struct hd_buffer *b);

static inline bool hdi_point_is_parked(hd_runtime *rt, hdi_point point)
{
    return point.position && hdi_parked_any(hdi_lane_at(hdi_lane_owner(rt, point.lane), point.lane % HDI_LANES_MAX)) &&
           hdi_parked_has_root(rt, point);
}

#endif
