/* heddle/lane.h - lanes and tickets.
 *
 * A lane is an in-order queue of work on one device. Calls that submit work to a lane return at
 * once. The device's engine, a part of the library, passes the work to the driver. Work in one lane
 * runs in submission order. Heddle orders two operations in different lanes only if both use the
 * same bytes and at least one writes them (heddle/buffer.h). All other work may run concurrently.
 *
 * With the option placement=inline, the engine has no thread: work advances only inside calls that
 * submit or wait. With this placement, a loop that only calls hd_done never ends.
 *
 * A lane holds a limited number of commands (option lane_slots). A call that submits work to a full
 * lane blocks until the device has finished enough commands. hd_device_get_stats returns how often
 * calls blocked.
 *
 * Threads: any.
 * Blocking: hd_lane_wait, hd_lane_reset and hd_wait wait for work. If hd_lane_get_default or
 * hd_lane_create makes a new lane, the call waits for the driver or the worker process. All other
 * calls return at once.
 */
#ifndef HEDDLE_LANE_H
#define HEDDLE_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* A lane: an in-order queue of work on one device. */
typedef struct hd_lane hd_lane;

/* A position in a lane. A ticket is a plain value: copy it freely, and use it as long as the
 * runtime is open. A zeroed ticket, {NULL, 0}, counts as done. */
typedef struct hd_ticket {
    hd_lane *lane;
    uint64_t sequence;
} hd_ticket;

#define HD_FOREVER (-1) /* a time limit that never passes */

/* Returns the calling thread's default lane on a device. The first call makes the lane. The lane
 * belongs to the runtime. The runtime takes the lane back when the thread ends, but submitted work
 * still runs.
 *
 * If all lanes of the device are in use, a further thread shares the default lane that the fewest
 * threads use. The runtime takes a shared lane back when the last of its threads ends. The work of
 * all these threads runs in one order. After a failure, the lane refuses the work of all of them
 * until one calls hd_lane_reset. If all lanes are in use and none is a default lane,
 * hd_lane_get_default fails with LIMIT.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
HD_API hd_status hd_lane_get_default(hd_runtime *runtime, int device, hd_lane **out);

/* Makes a lane. The caller owns it and gives it back with hd_lane_destroy. The call reuses a lane
 * that was given back, or else calls the driver, which may take some tens of microseconds. A device
 * has 256 lanes for the program and for some uses of the library. Copies take three of these lanes
 * from the start. To keep copies from waiting for one another, the library makes more: at most 28,
 * plus two per further device. Claims take up to 160 (heddle/claim.h), and the option memory_debug
 * takes one. Besides the 256 lanes, the library makes up to 256 others for copies that wait for
 * work of the program.
 *
 * On NVIDIA GPUs, the first hd_open makes the driver's streams for 128 lanes of each device. These
 * streams take 3 ms and 70 MiB of the device's memory, and all runtimes of the process share them.
 * To make a lane beyond these 128, hd_lane_create may wait for kernels that run on the device.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT (all lanes are in use), MEMORY, HOST_MEMORY, DRIVER,
 * DEVICE_LOST. */
HD_API hd_status hd_lane_create(hd_runtime *runtime, int device, hd_lane **out);

/* Gives a lane back. Submitted work in the lane still runs, its tickets stay valid, and its
 * failures do not affect the lane's next owner. The call does not block. Later calls with the lane
 * fail with HANDLE. If `lane` is NULL, nothing happens.
 * Errors: HANDLE (the lane was destroyed before), ARGUMENT (a default lane, which ends with its
 * thread). */
HD_API hd_status hd_lane_destroy(hd_lane *lane);

/* Return the device of a lane, and the lane's number on that device; -1 for a bad handle. */
HD_API int hd_lane_device(const hd_lane *lane);
HD_API int hd_lane_number(const hd_lane *lane);

/* Returns a ticket for everything submitted to the lane so far. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_lane_get_ticket(hd_lane *lane, hd_ticket *out);

/* Blocks until everything submitted to the lane so far is finished, at most timeout_ns nanoseconds
 * (0: only checks; HD_FOREVER: no limit).
 * Errors: HANDLE, TIMEOUT, FAILED or DEVICE_LOST (an operation in the lane failed). */
HD_API hd_status hd_lane_wait(hd_lane *lane, int64_t timeout_ns);

/* Lets a lane accept work again after a failure. When an operation in a lane fails, the lane
 * refuses new work (LANE_FAILED), which might use results that do not exist. The call waits until
 * the lane is empty, at most timeout_ns nanoseconds (HD_FOREVER: no limit). Tickets of failed
 * operations stay failed.
 * Errors: HANDLE, TIMEOUT, DEVICE_LOST. */
HD_API hd_status hd_lane_reset(hd_lane *lane, int64_t timeout_ns);

/* True if the operation is finished, with or without success. The call never blocks and never calls
 * the driver. The call takes a few loads and stores, no lock and no system call. (A thread's first
 * call of Heddle registers the thread, which takes a lock.) If operation B read the result of
 * operation A and B is done, A is done, too. Without such a relation, hd_done may show the ends of
 * operations in different lanes in another order than they happened. The result is true for a bad
 * handle. */
HD_API bool hd_done(hd_ticket ticket);

/* Blocks until the operation is finished, at most timeout_ns nanoseconds (0: only checks;
 * HD_FOREVER: no limit), and returns its outcome. The thread spins for a moment, then sleeps. Many
 * threads may wait for one ticket. A signal handler does not interrupt the wait.
 * Errors: HANDLE (not a ticket of this process); TIMEOUT (hd_last_error describes the unfinished
 * work that the operation waits for, unless timeout_ns is 0); FAILED or DEVICE_LOST (hd_last_error
 * gives kernel, lane, ticket, device and the driver's code). */
HD_API hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns);

/* Makes a lane keep the end times of its operations, by the clock of the lane's device. If `on` is
 * false, the lane stops keeping times. An operation gets an end time if the lane keeps times from
 * its submission until it is done. A new lane keeps no times. Each end time costs an event of the
 * driver, and a driver call to read it. In a lane that keeps times, launches go to the driver one
 * by one.
 * Errors: HANDLE, ARGUMENT (a lane of the library, such as the lane of a copy's ticket). */
HD_API hd_status hd_lane_keep_times(hd_lane *lane, bool on);

/* Returns the time from the end of one operation to the end of another one, in nanoseconds. The
 * device's clock measures the time, as exactly as the driver's events do. The time is negative if
 * `to` ended first. Both operations must be done. Their lanes must be lanes of one device and keep
 * times. Both operations may be in the same lane.
 *
 * To measure a launch, first call hd_lane_add_dependency with {NULL, 0}, then submit the launch.
 * Measure from the ticket that hd_lane_add_dependency returned to the ticket of the launch. A copy
 * itself gets no time, since it runs in a lane of the library. To measure a copy, call
 * hd_lane_add_dependency with the copy's ticket. That call returns the ticket of an operation that
 * ends right after the copy.
 *
 * A lane keeps as many times as it has slots (option lane_slots). Later times replace the oldest.
 * hd_ticket_get_elapsed never calls the driver, and never blocks.
 * Errors: ARGUMENT (null, a ticket that was never given out, tickets of two runtimes), HANDLE (not
 * a ticket of this process), UNSUPPORTED (tickets of two devices), TIMEOUT (an operation is not
 * done), FAILED or DEVICE_LOST (an operation failed), NOT_FOUND (the lane did not keep a time, or a
 * later one replaced it), DRIVER (the driver gave no time). */
HD_API hd_status hd_ticket_get_elapsed(hd_ticket from, hd_ticket to, int64_t *out);

HD_END_DECLS
#endif
