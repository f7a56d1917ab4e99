/* parked.h - operations that wait for an open claim, and the lanes of the library in which they stand.
 *
 * An operation is parked where it cannot begin before the program ends a claim.
 * It waits for the claim itself, or for a position of a lane at or behind an operation that is parked.
 * A lane of the application is in order, and the program sees it. A copy lane serves transfers that have nothing to do with each other.
 * If one of them were parked there, others would wait for the same claim. The thread that has to end it could be among those that wait.
 * So what would be parked in a copy lane goes to a parking lane of the device instead.
 * All that is parked in front of it there waits for claims that it waits for itself.
 *
 * Each lane has a list of the open claims that its work waits for, with the first position that does.
 * Where a claim was ended, or the lane is done with the position, the entry does not count any more.
 *
 * Threads: those that submit.
 * Locks: the order lock of a lane's device where its list changes. Another one of the runtime for all lists, since submissions to other devices read them.
 * Blocking: making a parking lane calls the driver, or waits for a worker.
 * Always: without an open claim that something waits for, no list is looked at. A list names all open claims that the lane's work waits for, and each once.
 */
#ifndef HDI_BUFFER_PARKED_H
#define HDI_BUFFER_PARKED_H

#include "buffer/part.h"
#include "engine/runtime.h"

#define HDI_PARKED_NO_MEMORY UINT32_MAX

/* Whether the program has not ended the claim that ends at the point, or had not a moment ago. False for a point of another lane. */
static inline bool hdi_claim_is_awaited(const hd_lane *other, uint64_t position)
{
    return atomic_load_explicit(&other->claim, memory_order_relaxed) != NULL &&
           atomic_load_explicit(&other->claim_ended, memory_order_acquire) < position;
}

/* Whether an operation of the lane may be a claim, or parked. */
static inline bool hdi_parked_may_be(const hd_lane *other)
{
    /* Relaxed: what parks the operation was noted before its position could be seen. */
    return atomic_load_explicit(&other->claims, memory_order_relaxed);
}

/* Finds the open claims that the collected waits are for. Returns how many; they stand behind the lane's list until the next call. The order lock is
 * held. */
uint32_t hdi_parked_find(hd_lane *lane);

/* Adds those `found` to the list, for an operation that ends at the position. The order lock has been held since they were found. */
void hdi_parked_note(hd_lane *lane, uint32_t found, uint64_t position);

/* Whether what is submitted to the lane goes to a parking lane where it would be parked. */
static inline bool hdi_parked_moves(const hd_lane *lane)
{
    return lane->is_copy && !lane->parks && !atomic_load_explicit(&lane->claim, memory_order_relaxed);
}

/* The parking lane for an operation that waits for the claims `found` in the lane. NULL: none. `any`: one in which it may wait for other claims, too.
 * The order lock is held. */
hd_lane *hdi_parking_choose(hd_lane *lane, uint32_t found, bool any);

/* Makes one more. False: it cannot be made, or there are enough. The thread's message stays as it was. No lock is held. */
bool hdi_parking_make(hdi_device *device);

/* Whether the operation of a point may still be parked in a parking lane. */
static inline bool hdi_point_is_parked(hd_runtime *rt, hdi_point point)
{
    return point.position && hdi_lane_at(hdi_lane_owner(rt, point.lane), point.lane % HDI_LANES_MAX)->parks &&
           !hdi_point_done(rt, point);
}

#endif
