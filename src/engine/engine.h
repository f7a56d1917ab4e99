/* engine.h - the interface between the application's side and the engines.
 *
 * Threads: any, unless a comment names others.
 * Locks: the caller holds none, unless a comment names one.
 * Always: a failure is recorded before `done` passes the failed operation. So a thread that sees
 * the operation done finds its outcome.
 */
#ifndef HDI_ENGINE_ENGINE_H
#define HDI_ENGINE_ENGINE_H

#include "base/presence.h"
#include "driver/current.h"
#include "engine/device_state.h"
#include "engine/runtime.h"
#include "engine/suspects.h"

/* ---- engine.c: placements, sleeping, the loop ---- */
/* For hd_open: makes the engine. With placement thread, the engine's thread runs when this
 * returns. */
hd_status hdi_engine_create(hdi_device *device);
/* Ends the engine's thread, so that the engine issues nothing afterwards. False: at the deadline
 * the thread is still inside a driver call. Then this function detaches the thread, and the caller
 * must keep all memory that the thread can use. */
bool hdi_engine_stop(hdi_device *device, int64_t deadline);
/* The program's function (hd_lane_run_native) that the engine runs now; 0: none. */
uint64_t hdi_engine_function(const hdi_device *device);
/* True if the driver reports unfinished work in streams of the device. The engine must be
 * stopped. */
bool hdi_engine_is_busy(hdi_device *device);
void hdi_engine_destroy(hdi_device *device, bool driver_usable);
/* Placement inline: runs the engine on the calling thread until the engine makes no progress. Does
 * nothing if another thread runs the engine. True if the engine made progress on this thread. */
bool hdi_engine_run_inline(hdi_device *device);
/* Sets `fences` in the channel: which side may fence (HDI_FENCES_*). hd_open and hd_device_restart
 * call it before the device's engine starts. */
void hdi_engine_offer_fences(hdi_device *device);
/* How long a thread that polls the device's work should sleep, after `quiet` nanoseconds without
 * progress. */
int64_t hdi_engine_sleep_after(int64_t quiet);

/* ---- wake.c: wakes sleeping threads and engines ---- */

/* Wakes the engine. A submitter calls this only if it saw `asleep` set. */
void hdi_engine_ring(hdi_engine_shared *engine);
/* Call this after `done` of a lane moved from `before`. Wakes the threads that sleep until a
 * position that `done` has now reached. */
void hdi_lane_wake(hdi_lane_shared *lane, uint64_t before, uint64_t done);
/* Wakes the engines in other processes that wait for this lane's `done`. Call this after `done`
 * moved. */
void hdi_lane_ring_watchers(hd_runtime *rt, hdi_lane_shared *lane);
/* Wakes all threads that wait for a lane, or for anything else of the runtime, so that they see
 * `closing`. */
void hdi_wake_sleepers(hdi_device *device);

/* Stores a lane's `head` or `ended`. Call hdi_engine_notify afterwards. Pairs with the engine's
 * acquire load. A seq_cst store is an exchange, which waits while the engine owns the cache line.
 * So the store is plain if the engine fences (HDI_FENCES_ENGINE). */
static inline void hdi_engine_publish(const hdi_engine_shared *engine, _Atomic uint64_t *word, uint64_t position)
{
    if (__builtin_expect(atomic_load_explicit(&engine->fences, memory_order_relaxed) != HDI_FENCES_ENGINE, 0)) {
        atomic_store_explicit(word, position, memory_order_seq_cst);
    } else {
        atomic_store_explicit(word, position, memory_order_release);
        /* the compiler must move no later load in front of the store */
        atomic_signal_fence(memory_order_seq_cst);
    }
}

/* Notifies the engine of new commands or wishes in a lane. Call this after hdi_engine_publish, or
 * after a sequentially consistent store of the wish. */
static inline void hdi_engine_notify(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    /* Sequentially consistent with the engine, which clears the bit and then loads `head`: one of
     * the two sees the other's store. After a plain store of `head` the engine's fence provides
     * that (HDI_FENCES_ENGINE). */
    if (__builtin_expect(!(atomic_load_explicit(&engine->active[lane / 64], memory_order_seq_cst) & bit), 0)) {
        atomic_fetch_or_explicit(&engine->active[lane / 64], bit, memory_order_seq_cst);
    }
    /* Also sequentially consistent with the engine, which stores `asleep` and then looks for work
     * once more. */
    if (__builtin_expect(atomic_load_explicit(&engine->asleep, memory_order_seq_cst) != 0, 0)) {
        hdi_engine_ring(engine);
    }
}

/* If the lane has many commands, it gets an earlier turn, since a thread waits for it
 * (wanted_host). */
static inline void hdi_engine_prefer(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    if (!(atomic_load_explicit(&engine->awaited[lane / 64], memory_order_relaxed) & bit)) {
        /* Sequentially consistent with the engine, which clears the bit and then loads the wish. */
        atomic_fetch_or_explicit(&engine->awaited[lane / 64], bit, memory_order_seq_cst);
    }
}

/* Tells the engine that a thread begins to wait for the lane, and wakes it. */
static inline void hdi_engine_hurry(hdi_engine_shared *engine, uint32_t lane)
{
    hdi_engine_prefer(engine, lane);
    hdi_engine_notify(engine, lane);
}

/* ---- device.c: devices that the driver of this process drives ---- */

hd_status hdi_attach_driver(hd_runtime *rt, const int *ordinals, int n); /* fills in rt->handles */
/* Makes the device's context, completion flags and port. The channel exists already. */
hd_status hdi_device_attach(hdi_device *device);
/* Undoes hdi_device_attach, and destroys the engine, which is stopped. `hung`: some work never
 * ended, so this function does not call the driver. */
void hdi_device_detach(hdi_device *device, bool hung);

/* ---- loss.c: lost devices ---- */

hd_status hdi_losses_create(hd_runtime *rt);
void hdi_losses_release(hd_runtime *rt);
/* True if the lane stands at an unmet WAIT or an open claim, in front of the first operation in
 * [from, to). */
bool hdi_lane_waits(const hdi_device *device, uint32_t number, uint64_t from, uint64_t to);
/* Determines which operations may have caused the loss. Called once per loss, before the failures
 * of the lanes are recorded. The caller runs the engine, or no thread runs it any more. */
void hdi_loss_suspect(hdi_device *device, int code);
/* Gets the suspects of the device's latest loss. Returns the number of that loss, counted from
 * 1. */
uint64_t hdi_loss_suspects(hd_runtime *rt, int device, hdi_suspects *out);
/* Records that all unfinished work of a lane fails, and that all later work fails. Only the threads
 * that may call hdi_loss_suspect call this function. */
void hdi_lane_lose(hdi_device *device, uint32_t number, int code);
/* Call this when the device's worker process is gone. Fails all unfinished work of the device. Work
 * that waits for other devices ends once its wait is over (hdi_device_drain). Any thread. */
void hdi_device_lose(hdi_device *device, int code);
/* Returns how far the lane of a lost device counts as finished: up to its first unmet WAIT or open
 * claim, else up to `head`. */
uint64_t hdi_lane_reach(const hdi_device *device, uint32_t number, uint64_t from, uint64_t head);
/* Drains a device whose worker is gone: ends the work of each lane, up to the lane's first unmet
 * WAIT or open claim. Call this function until it returns false. Then no work is left, or a restart
 * took over the work that is left. Any thread. */
bool hdi_device_drain(hdi_device *device);
/* For a restart: takes over work that still waits, and makes the device STARTING. After this call,
 * no other thread moves the device's lanes. The call waits for the thread that reports the loss,
 * and for nothing else. */
void hdi_device_end_draining(hdi_device *device);
/* True if no work is unfinished in any lane. Any thread. */
bool hdi_device_is_drained(const hdi_device *device);
/* Changes a RESTORING device to UP: lanes accept work again. No thread submits before this. */
void hdi_device_reactivate(hdi_device *device);
/* Reports through hd_loss_next that a DRAINING device is lost. */
void hdi_loss_note(hdi_device *device, int code);
/* Fails with DEVICE_LOST. The message is "WHAT: ", followed by the device's latest loss. `device`
 * -1: the lost device is not recorded. */
hd_status hdi_loss_fail(hd_runtime *rt, int device, const char *what);
/* Fails with the given status. The message is WHAT, followed by the device's loss if the device is
 * lost. */
hd_status hdi_loss_refuse(hd_runtime *rt, int device, hd_status status, const char *what);
/* Fails with DEVICE_LOST. The engine may not know of the loss yet: perhaps only this thread's
 * driver call `entry_point` returned `code`. The caller holds no order lock. */
hd_status hdi_loss_fail_call(hdi_device *device, int code, const char *entry_point);

/* ---- ticket.c: waits for positions, checks of the positions that a worker process reports ---- */

/* True if the worker's reports about all lanes of a device are possible. The watcher calls this
 * function now and then, while a worker drives the device. */
bool hdi_device_report_can_be(hdi_device *device, int64_t now);
/* Call this before you submit work of the program that may wait for other work in ways that Heddle
 * cannot see. An engine that sees this work also sees `has_calls` set. */
static inline void hdi_runtime_note_calls(hd_runtime *rt)
{
    if (!atomic_load_explicit(&rt->has_calls, memory_order_relaxed)) {
        atomic_store_explicit(&rt->has_calls, true, memory_order_relaxed);
    }
}
/* Waits until `position` of the lane is done, or the deadline (hdi_clock_ns time) passes. False:
 * the deadline passed. A trace shows the wait as a pause of the thread. */
bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* Like hdi_wait_position, for a caller that records the wait itself, and for threads that only tidy
 * up. */
bool hdi_wait_position_unrecorded(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* Like hdi_wait_position, for waits of the program itself. Calls hd_runtime.on_block before the
 * thread sleeps. The caller holds no lock. */
bool hdi_wait_position_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);

/* ---- describe.c: describes operations, losses and waits without success ---- */

/* "the launch of kernel 'x'", "a copy" */
void hdi_operation_text(hd_runtime *rt, uint8_t op, uint32_t kernel, char *out, size_t bytes);
/* An error without message, whose fields name the operation to blame. */
hd_error hdi_failure_error(hd_runtime *rt, const hdi_failure *failure);
/* Writes the message of a loss: its cause, and the operations that may be to blame. `failure` names
 * the likeliest of these operations. */
void hdi_loss_describe(hd_runtime *rt, const hdi_failure *failure, const hdi_suspects *suspects, hd_error *out);
/* Fails with ARGUMENT. No call ever returned this ticket. */
hd_status hdi_ticket_refused(hd_ticket ticket);

/* The deadline of a limit that the program gave. If the program may not give this limit, the
 * deadline is over: the call does not block, and fails with hdi_limit_refused instead of TIMEOUT.
 * So a call that need not wait does not check its limit. */
static inline int64_t hdi_limit_deadline(int64_t timeout_ns)
{
    return timeout_ns < HD_FOREVER ? 0 : hdi_deadline(timeout_ns);
}

/* Fails with ARGUMENT. The limit is negative, but not HD_FOREVER. */
hd_status hdi_limit_refused(int64_t timeout_ns);

/* The status of a wait without success. If the runtime is being closed, the message reports that.
 * Otherwise the status is TIMEOUT with the text. A TIMEOUT also names the unfinished operation that
 * the position finally waits for, and how long nothing ended in the lane of that operation. The
 * error's fields name the same operation. Position 0: the message is only the text. The caller
 * holds no order lock. */
hd_status hdi_not_done(hd_runtime *rt, uint32_t lane, uint64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The status of a call whose wait hd_close ended. */
hd_status hdi_closed_meanwhile(void);

/* ---- status.c: the status of a position, and of a lane that refuses work ---- */

/* Returns the failure that covers a finished position, as a status with a message. HD_OK: no
 * failure covers it. */
hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position);
/* hdi_position_status for a ticket of the program. Further errors: NOT_FOUND (the outcome is
 * forgotten, see failures.h). */
hd_status hdi_ticket_status(hd_runtime *rt, uint32_t lane, uint64_t position);
/* The error of a lane or device that refuses work. */
hd_status hdi_lane_refuses(hd_lane *lane);

/* ---- lane.c ---- */

/* The lane of a handle. Also accepts the handle of a lane that was destroyed, because tickets still
 * name such a lane. NULL: the value is no handle of a lane. */
static inline hd_lane *hdi_lane_any(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_head_is(&lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

/* The point of a ticket that the calling function got from its own submission. For {NULL, 0} the
 * result is no point. Even if hd_close ended all handles meanwhile, the lane still exists: its
 * handle is stale, but its work may be under way. */
static inline hdi_point hdi_ticket_point(hd_ticket ticket)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(ticket.lane);
    return lane ? (hdi_point){lane->global, ticket.sequence} : (hdi_point){0, 0};
}

/* The lane's runtime, for HDI_INSIDE. The handle is not checked yet, so the caller must only
 * compare the pointer. */
static inline const void *hdi_lane_runtime(const hd_lane *handle)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(handle);
    return lane ? lane->runtime : NULL;
}

/* The handle word of the lane, if the handle is valid. */
static inline uint64_t hdi_lane_word(const hd_lane *handle)
{
    return hdi_handle_word(HDI_LANE_MAGIC, hdi_handle_generation(handle), HDI_HANDLE_LIVE);
}

/* The lane of a valid handle; NULL: the handle is not valid. */
static inline hd_lane *hdi_lane_from_handle(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_fits(handle, &lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

static inline hd_status hdi_lane_refused(const hd_lane *handle)
{
    return hdi_handle_refused(handle, "lane", "it was destroyed, or its runtime closed");
}

static inline hd_lane *hdi_lane_handle(hd_lane *lane)
{
    return (hd_lane *)hdi_handle_make(lane, hdi_handle_head_generation(&lane->handle));
}

/* True if the lane uses another structure now, so that this structure is out of use. Order lock
 * held. */
static inline bool hdi_lane_is_past(const hd_lane *lane)
{
    return lane->device->lanes[lane->number] != lane;
}

hd_status hdi_lane_make(hdi_device *device, bool is_default, bool sticky_failure, hd_lane **out);
/* A parking lane (src/buffer/parked.h). LIMIT: the device has as many parking lanes as it can
 * have. */
hd_status hdi_lane_make_parking(hdi_device *device, hd_lane **out);
/* For hd_close. The first function ends all handles and tickets, the second one frees the
 * application's memory of lanes. */
void hdi_lanes_close(hdi_device *device);
void hdi_lane_release_all(hdi_device *device);
/* Makes the scratch memory of a lane's submissions. False: no memory; even then the caller calls
 * hdi_waits_release. */
bool hdi_waits_make(hdi_waits *waits, size_t n_lanes);
void hdi_waits_release(hdi_waits *waits);
/* Pushes a one-slot command; order lock held, space checked. */
void hdi_lane_push(hd_lane *lane, const hdi_command *command);

/* ---- registry.c: which runtimes are open ---- */

static inline hd_status hdi_runtime_refused(const hd_runtime *rt)
{
    return hdi_handle_refused(rt, "runtime", "it was closed");
}
/* Refuses the number of a device that the runtime does not have. Returns NO_DEVICE. */
hd_status hdi_device_refused(const hd_runtime *rt, int device);
/* Takes no lock. The calling thread is inside a call on the runtime. A runtime that is open stays
 * until the thread leaves. */
bool hdi_runtime_is_open(const hd_runtime *rt);
hd_status hdi_runtime_add(hd_runtime *rt);
/* True if a runtime other than `rt` is open in this process. */
bool hdi_runtimes_are_open_beside(const hd_runtime *rt);
/* Begins to close the runtime. From here on, only functions of the program on threads of the
 * library can still call it. False: the runtime is not open, or another thread closes it. */
bool hdi_runtime_begin_close(hd_runtime *rt);
/* Waits for the runtime's visitors (hdi_runtime_with), and then removes the runtime. False: the
 * runtime is not open. */
bool hdi_runtime_remove(hd_runtime *rt);
/* Runs `visit` on the open runtime with this id. The runtime stays meanwhile. False: no such
 * runtime. The caller holds no lock. */
bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context);

#define HDI_RUNTIMES_MAX 256
/* Runs `visit` on each open runtime except `rt`, one after the other, until `visit` returns false.
 * Each runtime stays meanwhile. `place`: a number below HDI_RUNTIMES_MAX, which differs for all
 * open runtimes. The caller may hold locks, so `visit` must not wait. False: `visit` returned
 * false. */
bool hdi_runtimes_all_beside(const hd_runtime *rt, bool (*visit)(hd_runtime *, uint32_t place, void *), void *context);
/* Adds `more` to the number of closed runtimes that a thread still gives back. */
void hdi_runtimes_count_lingering(int more);
/* Waits until no such runtime is left, or until the deadline. */
void hdi_runtimes_await_lingering(int64_t deadline);

/* ---- driver_call.c: driver calls on threads that run no engine ---- */

/* Makes the device's context current on this thread for a few driver calls, and restores the former
 * one. */
typedef struct hdi_scope {
    hdi_current current;
    bool entered;
} hdi_scope;
hd_status hdi_scope_enter(hdi_device *device, hdi_scope *scope);
void hdi_scope_leave(hdi_scope *scope);

/* Call this after a request failed with a code below 0. Returns the reason why the worker is gone.
 * The reason is recorded a moment after the worker's sockets close. The call blocks until then, but
 * at most a second. */
int hdi_device_await_loss(hdi_device *device, int code);
/* Fails with the status and message of a port's failed answer (port.h). */
hd_status hdi_answer_failed(hdi_device *device, hdi_answer answer);
/* Fails with the status and message of a driver code. */
hd_status hdi_driver_failed(hdi_device *device, int driver_code, const char *entry_point);

#endif
