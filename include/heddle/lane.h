/* heddle/lane.h - lanes and tickets.
 *
 * A lane is an in-order queue of work on one device. Calls that submit work to a lane do not wait
 * for this work. The device's engine, a part of the library, passes the work to the driver. Work in
 * one lane runs in submission order. Heddle orders two operations in different lanes if both use
 * the same bytes and at least one writes them (heddle/buffer.h). The program can order any other
 * two operations (hd_lane_add_dependency). All other work may run concurrently.
 *
 * With the option placement=inline, the engine has no thread: work advances only inside calls that
 * submit or wait. With placement=inline, a loop that only calls hd_done may therefore never end.
 *
 * A lane holds a limited number of commands (option lane_slots). A call that submits work to a full
 * lane blocks until the device finishes enough commands. hd_device_get_stats returns how often
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
 * runtime is open. A zeroed ticket, {NULL, 0}, counts as done.
 *
 * Heddle keeps the outcomes of operations as long as the failures of all lanes take at most 64 MiB
 * of host memory. That is enough for some ten million failures at irregular positions of their
 * lanes. If failures come at regular positions, such as every third operation, all of them together
 * take only the memory of one. Once the 64 MiB are full, a lane in which further operations fail
 * forgets its oldest outcomes. The lane always keeps its last 65536 failures, and all outcomes
 * after the oldest of these failures. hd_wait with a ticket of a forgotten outcome returns
 * NOT_FOUND. Forgetting changes neither the contents of buffers nor which work fails. */
typedef struct hd_ticket {
    hd_lane *lane;
    uint64_t sequence;
} hd_ticket;

/* A time limit that never passes. Other limits below 0 are errors: a call that would have to wait
 * fails with ARGUMENT instead. */
#define HD_FOREVER (-1)

/* Returns the calling thread's default lane on a device. A thread's first call makes the lane. The
 * lane belongs to the runtime, which takes the lane back when the thread ends. Submitted work in
 * the lane still runs.
 *
 * If all lanes of the device are in use, a further thread shares the default lane that the fewest
 * threads use. The work of all threads that share a lane runs in one order. After a failure, the
 * lane refuses the work of all these threads until one of them calls hd_lane_reset. The runtime
 * takes the lane back when the last of these threads ends. If all lanes are in use and none of them
 * is a default lane, hd_lane_get_default fails with LIMIT.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, LIMIT, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
HD_API hd_status hd_lane_get_default(hd_runtime *runtime, int device, hd_lane **out);

/* Makes a lane. The caller owns the lane, and gives it back with hd_lane_destroy. If a lane was
 * given back before, the call reuses this lane. Otherwise the call waits for the driver, which may
 * take some tens of microseconds.
 *
 * A device has 256 lanes, which the program shares with the library. The library takes lanes for
 * three purposes. Copies begin with three lanes. In all, they take at most 28, plus two for each
 * other device, so that copies need not wait for each other. Claims take up to 160 lanes
 * (heddle/claim.h). The option memory_debug takes one lane. Besides the 256 lanes, the library
 * makes up to 256 others for copies that wait for work of the program.
 *
 * On NVIDIA GPUs, the first hd_open of a process makes the driver's streams for 128 lanes of each
 * device. For each device, this takes 3 ms and 70 MiB of the device's memory. All runtimes of the
 * process share these streams. To make a further lane, hd_lane_create may wait for kernels that run
 * on the device.
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
 * Errors: HANDLE, ARGUMENT (a bad limit), TIMEOUT, FAILED or DEVICE_LOST (an operation in the lane
 * failed). */
HD_API hd_status hd_lane_wait(hd_lane *lane, int64_t timeout_ns);

/* Lets a lane accept work again after a failure. When an operation in a lane fails, the lane
 * refuses new work (LANE_FAILED), because this work might use a missing result. The call waits
 * until all work in the lane is finished, at most timeout_ns nanoseconds (HD_FOREVER: no limit).
 * Tickets of failed operations stay failed.
 * Errors: HANDLE, ARGUMENT (a bad limit), TIMEOUT, DEVICE_LOST. */
HD_API hd_status hd_lane_reset(hd_lane *lane, int64_t timeout_ns);

/* True if the operation is finished, with or without success. The call never blocks, and never
 * calls the driver. It takes a few loads and stores, no lock and no system call. (Only a thread's
 * first call of Heddle takes a lock, to register the thread.) If operation B read bytes that
 * operation A wrote, and hd_done returns true for B, then hd_done also returns true for A. For
 * other operations in different lanes, hd_done may report the ends in the wrong order. The result
 * is true for a bad handle. For a ticket that no call returned, the result means nothing. */
HD_API bool hd_done(hd_ticket ticket);

/* Blocks until the operation is finished, at most timeout_ns nanoseconds (0: only checks;
 * HD_FOREVER: no limit), and returns the outcome of the operation. The thread spins for a moment,
 * then sleeps. Many threads may wait for one ticket. A signal does not end the wait.
 *
 * Heddle may give launches of a lane to the driver together, up to about 50 us of kernel time. Then
 * it sees all their ends when the last one ends. So there is one exception to the above. A later
 * kernel in the lane that was quick until now may suddenly take long, for example because it waits
 * for a flag. Then the wait for an earlier launch ends only with that kernel. If the time passes,
 * the message names that kernel, too.
 * Errors: HANDLE (not a ticket of this process); ARGUMENT (a bad limit, or a ticket that no call
 * returned); TIMEOUT (hd_last_error describes the unfinished work that the operation waits for,
 * unless timeout_ns is 0); FAILED or DEVICE_LOST (hd_last_error gives kernel, lane, ticket, device
 * and the driver's code); NOT_FOUND (the outcome is forgotten, see hd_ticket). */
HD_API hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns);

/* Makes a lane keep the end times of its operations, by the clock of the lane's device. If `on` is
 * false, the lane stops keeping times. An operation gets an end time only if the lane keeps times
 * from the operation's submission until its end. A new lane keeps no times. Each end time costs an
 * event of the driver, and a driver call to read this event. In a lane that keeps times, launches
 * go to the driver one by one.
 * Errors: HANDLE, ARGUMENT (a lane of the library, such as the lane of a copy's ticket). */
HD_API hd_status hd_lane_keep_times(hd_lane *lane, bool on);

/* Returns the time from the end of operation `from` to the end of operation `to`, in nanoseconds.
 * The device's clock measures the time, as exactly as the driver's events do. The time is negative
 * if `to` ended first. Both operations must be done. Their lanes must belong to one device and keep
 * times. Both operations may be in the same lane.
 *
 * To measure a launch, first call hd_lane_add_dependency with {NULL, 0}, then submit the launch.
 * Measure from the ticket that hd_lane_add_dependency returned to the ticket of the launch. A copy
 * itself gets no time, because it runs in a lane of the library. To measure a copy, call
 * hd_lane_add_dependency with the copy's ticket. This call returns the ticket of an operation that
 * ends right after the copy.
 *
 * A lane keeps one time for each of its slots (option lane_slots). A new time replaces the oldest
 * one. hd_ticket_get_elapsed never calls the driver, and never blocks.
 * Errors: ARGUMENT (null, a ticket that was never given out, tickets of two runtimes), HANDLE (not
 * a ticket of this process), UNSUPPORTED (tickets of two devices), TIMEOUT (an operation is not
 * done), FAILED or DEVICE_LOST (an operation failed), NOT_FOUND (the lane did not keep a time, a
 * later one replaced it, or the outcome is forgotten, see hd_ticket), DRIVER (the driver gave no
 * time). */
HD_API hd_status hd_ticket_get_elapsed(hd_ticket from, hd_ticket to, int64_t *out);

HD_END_DECLS
#endif
