/* parked.h - the lanes for operations of the library that wait for work of the program.
 *
 * Work of the program is launches, products, calls and claims. It stands in lanes of the program;
 * each claim has a lane of its own. The program decides how long such work lasts. A *root* of an
 * operation is unfinished work of the program that the operation waits for, directly or through
 * operations of the library.
 *
 * The program sees its own lanes and their order. It does not see the library's lanes, which serve
 * unrelated transfers. Therefore an operation enters a library lane only if it shares all roots of
 * that lane.
 * Then it never waits for anything but its own dependencies. An operation without roots never
 * stands behind one with roots.
 * If an operation may not enter the lane chosen for it, it goes to a parking lane of the device.
 * One parking lane takes only operations without roots, so these always find a lane. If no lane is
 * left for an operation with roots, its submission waits for one of its roots.
 *
 * Each library lane lists the roots of its unfinished work. A root is stored as a lane of the
 * program and a position in it. A later position includes the earlier ones, since work in a lane of
 * the program runs in order.
 *
 * Threads: those that submit work.
 * Locks: a lane's list changes under the order lock of its device. The list's own lock guards it,
 * too, since submissions to other devices read it.
 * Blocking: making a parking lane calls the driver, or waits for a worker.
 * Always: a submission adds its roots to the list before its position becomes visible. One load
 * shows that a list is empty.
 */
#ifndef HDI_BUFFER_PARKED_H
#define HDI_BUFFER_PARKED_H

#include "buffer/buffer.h"
#include "buffer/part.h"
#include "engine/runtime.h"

/* True if operations in the lane belong to the library, so that they may be parked. */
static inline bool hdi_parked_may_be_in(const hd_lane *lane)
{
    return lane->is_copy && !atomic_load_explicit(&lane->claim, memory_order_relaxed);
}

/* True if operations in a library lane have roots, or had some a moment ago. */
static inline bool hdi_parked_any(const hd_lane *lane)
{
    /* Relaxed: the caller holds the order lock, or saw a position that makes this visible. */
    return atomic_load_explicit(&lane->has_roots, memory_order_relaxed);
}

/* Finds the roots that the lane's collected waits lead to. They stay in the device's `roots` while
 * the order lock is held. */
void hdi_parked_find(hd_lane *lane);

/* True if an operation with the roots found last may stand in the lane. If the lane has roots, half
 * of its ring must be free. The order lock is held. */
bool hdi_parked_fits(hd_lane *lane);

/* Makes room in the lane's list for the roots found, so that noting them cannot fail. False: no
 * memory. */
bool hdi_parked_reserve(hd_lane *lane);

/* Adds the roots found to the list, for an operation that ends at the position. Hold the order lock
 * from finding them until here. */
void hdi_parked_note(hd_lane *lane, uint64_t position);

/* A parking lane for an operation with the roots found. NULL: none fits. `made`: no more lanes can
 * be made. The order lock is held. */
hd_lane *hdi_parking_choose(hdi_device *device, bool made);

/* The parking lane for operations without roots only. */
static inline hd_lane *hdi_parking_without_roots(const hdi_device *device)
{
    return device->parking[0];
}

/* Makes one more parking lane. False: this failed, or there are enough. Leaves the thread's message
 * alone. No lock is held. */
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
