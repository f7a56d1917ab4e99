/* heddle/lane.h - lanes and tickets.
 *
 * A lane is an in-order queue of work on one device. Submitting to a lane returns at once; the
 * device's engine passes the work to the driver. Work in one lane runs in submission order. Work in
 * different lanes is ordered only if it uses the same bytes and one of the uses writes
 * (heddle/buffer.h). All other work runs concurrently.
 *
 * With the option placement=inline no engine thread exists: work advances only inside calls that
 * submit or wait. A loop that only polls hd_done never ends there.
 *
 * A lane holds a bounded number of commands (option `lane_slots`). Submitting to a full lane blocks
 * until the device has finished enough of it. hd_device_get_stats returns how often that happened.
 *
 * Threads: any.
 * Blocking: hd_lane_wait, hd_lane_reset and hd_wait, for work. hd_lane_get_default and
 * hd_lane_create, for the driver or the worker process if they make a lane. All other calls return
 * at once.
 */
#ifndef HEDDLE_LANE_H
#define HEDDLE_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* A lane: an in-order queue of work on one device. */
typedef struct hd_lane hd_lane;

/* A position in a lane. A plain value: copy it freely, keep it as long as the runtime is open. A
 * zeroed ticket, {NULL, 0}, counts as done. */
typedef struct hd_ticket {
    hd_lane *lane;
    uint64_t sequence;
} hd_ticket;

#define HD_FOREVER (-1) /* a time limit that never passes */

/* Returns the calling thread's own lane on a device. It is made on first use and returned to the
 * runtime when the thread ends (its work still runs). If all lanes of the device are in use,
 * further threads share the default lanes of other threads. Each gets the lane that the fewest
 * threads use. A shared lane goes back when its last thread ends. Its work waits behind the work of
 * all its threads, and a failure stops all of them until one calls hd_lane_reset. LIMIT: all lanes
 * are taken, and none of them is a default lane to share.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
HD_API hd_status hd_lane_get_default(hd_runtime *runtime, int device, hd_lane **out);

/* Makes a lane. The caller owns it and gives it back with hd_lane_destroy. Calls the driver unless
 * it can reuse a lane that was given back, and may take some tens of microseconds. Of the 256 lanes
 * of a device, the library uses some for copies: three from the start. It makes more to keep copies
 * from waiting for one another: at most 28, plus two per further device. Claims take up to 160
 * (heddle/claim.h), and the option memory_debug takes one.
 *
 * On NVIDIA GPUs, a runtime that is opened while no other one is open makes the driver's streams
 * for 128 lanes of each device. That takes 3 ms and 70 MiB of the device's memory. Making a lane
 * beyond these 128 may wait for kernels that run on the device.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT (all lanes are in use), MEMORY, HOST_MEMORY, DRIVER,
 * DEVICE_LOST. */
HD_API hd_status hd_lane_create(hd_runtime *runtime, int device, hd_lane **out);

/* Gives a lane back. Its submitted work still runs, its tickets stay valid, and its failures do not
 * affect the lane's next owner. Does not block. New work in it is refused afterwards (HANDLE).
 * NULL: nothing happens.
 * Errors: HANDLE (it was destroyed before), ARGUMENT (a default lane, which ends with its
 * thread). */
HD_API hd_status hd_lane_destroy(hd_lane *lane);

/* Return the device of a lane, and the lane's number there; -1 for a bad handle. */
HD_API int hd_lane_device(const hd_lane *lane);
HD_API int hd_lane_number(const hd_lane *lane);

/* Returns a ticket for everything submitted to the lane so far. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_lane_get_ticket(hd_lane *lane, hd_ticket *out);

/* Blocks until everything submitted to the lane so far is finished, at most timeout_ns nanoseconds
 * (0: only checks; HD_FOREVER: no limit).
 * Errors: HANDLE, TIMEOUT, FAILED or DEVICE_LOST (some operation in the lane failed). */
HD_API hd_status hd_lane_wait(hd_lane *lane, int64_t timeout_ns);

/* After an operation in a lane failed, the lane refuses work (LANE_FAILED), so that nothing builds
 * on a result that does not exist. This call waits until the lane is empty, at most timeout_ns
 * nanoseconds (HD_FOREVER: no limit). Then the lane accepts work again. Tickets of failed
 * operations stay failed.
 * Errors: HANDLE, TIMEOUT, DEVICE_LOST. */
HD_API hd_status hd_lane_reset(hd_lane *lane, int64_t timeout_ns);

/* True if the operation is finished, with or without success. One load; never calls the driver,
 * never blocks. If B read A's result and B is done, A is done. Otherwise completion may become
 * visible at different times in different lanes. True for a bad handle. */
HD_API bool hd_done(hd_ticket ticket);

/* Blocks until the operation is finished, at most timeout_ns nanoseconds (0: only checks,
 * HD_FOREVER: no limit), and returns its outcome. Spins for a moment, then sleeps. Many threads may
 * wait for one ticket. A signal handler does not interrupt the wait.
 * Errors: HANDLE (not a ticket of this process); TIMEOUT (unless timeout_ns is 0, hd_last_error
 * describes the unfinished work that this waits for); FAILED or DEVICE_LOST (hd_last_error gives
 * kernel, lane, ticket, device and the driver's code). */
HD_API hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns);

/* Starts keeping the end times of the lane's operations, by the clock of their device; `on` false:
 * stops. An operation has a time if this was on from before its submission until it was done. New
 * lanes keep no times. Keeping times costs each operation an event and a driver call to read it,
 * and launches then go to the driver one by one.
 * Errors: HANDLE, ARGUMENT (a lane of the library, such as the lane of a copy's ticket). */
HD_API hd_status hd_lane_keep_times(hd_lane *lane, bool on);

/* Returns the time from the end of one operation to the end of another, in nanoseconds. It is
 * measured by the clock of their device, as exactly as the driver's events are. It is negative if
 * `to` ended first. Both operations must be done, in lanes of one device that keep times; the two
 * lanes may be the same.
 *
 * To time a launch, call hd_lane_add_dependency with {NULL, 0} in front of it, and measure from the
 * ticket that it returns. A copy itself gets no time, since it runs in a lane of the library.
 * hd_lane_add_dependency with the copy's ticket returns a ticket that ends right behind the copy.
 *
 * A lane keeps one time per slot (option lane_slots): later operations replace the oldest. Never
 * calls the driver, never blocks.
 * Errors: ARGUMENT (null, a ticket that was never given out, tickets of two runtimes), HANDLE (not
 * a ticket of this process), UNSUPPORTED (tickets of two devices), TIMEOUT (one is not done),
 * FAILED or DEVICE_LOST (one has failed), NOT_FOUND (its time was not kept, or was dropped), DRIVER
 * (the driver gave no time). */
HD_API hd_status hd_ticket_get_elapsed(hd_ticket from, hd_ticket to, int64_t *out);

HD_END_DECLS
#endif
