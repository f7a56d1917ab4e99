/* heddle/lane.h - lanes and tickets.
 *
 * A lane is an in-order queue of work on one device. Submitting to a lane returns at once; the device's engine feeds
 * the work to the driver. Work in one lane runs in submission order. Work in different lanes is ordered exactly where
 * their uses of buffers overlap (see heddle/buffer.h) and runs concurrently otherwise.
 *
 * With the option placement=inline there is no engine thread: work advances only inside calls that submit or wait.
 * So polling with hd_done alone never ends there.
 *
 * A lane holds a bounded number of commands (option `lane_slots`). Submitting to a full lane blocks until the device
 * has finished enough of it. hd_device_get_stats counts how often.
 */
#ifndef HEDDLE_LANE_H
#define HEDDLE_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

typedef struct hd_lane hd_lane;

/* A position in a lane. A plain value: copy it freely, keep it as long as the runtime is open. {NULL, 0} (what a
 * zeroed ticket is) counts as done. */
typedef struct hd_ticket {
    hd_lane *lane;
    uint64_t sequence;
} hd_ticket;

#define HD_FOREVER (-1) /* a time limit that never passes */

/* The calling thread's own lane on a device, made on first use and returned to the runtime when the thread ends (its
 * work still runs). Threads that come when all lanes of the device are in use share default lanes, until the last of these threads ends.
 * Each gets the lane that the fewest threads have. Then work of one waits behind work of another.
 * A failure stops all of them until hd_lane_reset.
 * LIMIT only where no thread has a default lane, since hd_lane_create took all.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
HD_API hd_status hd_lane_get_default(hd_runtime *runtime, int device, hd_lane **out);

/* Makes a lane, owned by the caller: hd_lane_destroy. Calls the driver unless a lane that was given back is there,
 * and may take some tens of microseconds. Some of the 256 lanes of a device are the library's own, for copies: three from the start.
 * There are more when copies would wait for each other, at most 28 and two for each other device.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT (all lanes are in use), MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
HD_API hd_status hd_lane_create(hd_runtime *runtime, int device, hd_lane **out);

/* Gives a lane back. Its submitted work still runs, its tickets stay valid, and its failures do not
 * concern the lane's next owner. Does not block. The lane must not be used for new work afterwards: HANDLE. NULL: nothing happens.
 * Errors: HANDLE (it was destroyed before), ARGUMENT (a default lane, which ends with its thread). */
HD_API hd_status hd_lane_destroy(hd_lane *lane);

/* The device a lane belongs to, and its number there; -1 for a bad handle. */
HD_API int hd_lane_device(const hd_lane *lane);
HD_API int hd_lane_number(const hd_lane *lane);

/* Everything submitted to the lane so far. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_lane_get_ticket(hd_lane *lane, hd_ticket *out);

/* Blocks until everything submitted to the lane so far is finished, at most timeout_ns nanoseconds (0: only looks;
 * HD_FOREVER: no limit). Errors: HANDLE, TIMEOUT, FAILED or DEVICE_LOST (some operation in the lane failed). */
HD_API hd_status hd_lane_wait(hd_lane *lane, int64_t timeout_ns);

/* After an operation in a lane failed, the lane refuses work (LANE_FAILED) so that nothing builds on a result that
 * does not exist. This waits until the lane is drained and accepts work again; tickets of failed operations stay
 * failed. Errors: HANDLE, TIMEOUT, DEVICE_LOST. */
HD_API hd_status hd_lane_reset(hd_lane *lane, int64_t timeout_ns);

/* Whether the operation is finished, with or without success. One load; never calls the driver, never blocks.
 * If B read A's result and B is done, A is done. Otherwise completion may become visible at different times in different lanes. */
HD_API bool hd_done(hd_ticket ticket);

/* Blocks until the operation is finished, at most timeout_ns nanoseconds (0: only checks, HD_FOREVER: no limit), and
 * returns its outcome. Spins for a moment, then sleeps. May be called for one ticket from many threads.
 * Errors: HANDLE (not a ticket of this process); TIMEOUT (unless timeout_ns is 0, hd_last_error has what is unfinished that this waits for);
 * FAILED or DEVICE_LOST (hd_last_error has kernel, lane, ticket, device and the driver's code). */
HD_API hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns);

/* From now on the times at which operations of the lane end are kept, by the clock of their device; `on` false: not any more.
 * An operation has one if this was on from before it was submitted until it was done. A lane begins without.
 * It costs each operation an event and a call of the driver to read it. Launches go to the driver one by one.
 * Errors: HANDLE, ARGUMENT (a lane of the library's own: that of a copy's ticket). */
HD_API hd_status hd_lane_keep_times(hd_lane *lane, bool on);

/* The time from the end of one operation to the end of another one, in nanoseconds. It is by the clock of their device, and as exact as the
 * driver's events. Below 0 where `to` ended first. Both are done, in lanes of one device that keep times. They may be in one lane.
 * hd_lane_after with {NULL, 0} in front of a launch gives the ticket to time it from. With a copy's ticket it ends right behind the copy, which
 * has no time itself, since it is in a lane of the library's.
 * A lane has the times of as many slots as it has (option lane_slots), the last ones. Never calls the driver, never blocks.
 * Errors: ARGUMENT (null, a ticket that was never given out, tickets of two runtimes), HANDLE (not a ticket of this process), UNSUPPORTED
 * (tickets of two devices), TIMEOUT (one is not done), FAILED or DEVICE_LOST (one has failed), NOT_FOUND (its time was not kept, or was dropped),
 * DRIVER (the driver gave no time). */
HD_API hd_status hd_ticket_get_elapsed(hd_ticket from, hd_ticket to, int64_t *out);

HD_END_DECLS
#endif
