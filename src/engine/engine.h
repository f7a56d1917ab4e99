/* engine.h - the interface between the application's side and the engines.
 *
 * Threads: any, unless a comment names others.
 * Locks: the caller holds none, unless a comment names one.
 * Always: a failure is recorded before `done` passes its position, so a thread that sees the position done finds the
 * outcome.
 */
#ifndef HDI_ENGINE_ENGINE_H
#define HDI_ENGINE_ENGINE_H

#include "base/presence.h"
#include "driver/current.h"
#include "engine/device_state.h"
#include "engine/runtime.h"

/* engine.c: placements, sleeping, the loop. */
hd_status hdi_engine_create(hdi_device *device); /* hd_open: the thread runs when this returns (placement thread) */
/* Ends the thread. Nothing is issued afterwards. False: at the deadline the thread is still inside a driver call. It is
 * detached then, and everything that it can reach must stay. */
bool hdi_engine_stop(hdi_device *device, int64_t deadline);
/* Whether the driver reports unfinished work in streams of the device. The engine has stopped. */
bool hdi_engine_is_busy(hdi_device *device);
void hdi_engine_destroy(hdi_device *device, bool driver_usable);
void hdi_engine_ring(hdi_engine_shared *engine); /* wakes it; call only after `asleep` was seen set */
/* Placement inline: runs the engine on the caller until there is no progress, unless another thread runs it. Whether there was some. */
bool hdi_engine_run_inline(hdi_device *device);
/* How long a thread that looks for progress of the device's work sleeps, after so long without any. */
int64_t hdi_engine_sleep_after(int64_t quiet);

/* Stores `head` of a lane, or `ended`, before hdi_engine_notify; pairs with the engine's acquire load. A seq_cst store is an exchange, which
 * would wait for the cache line where the engine has it. So it is a plain one where the engine fences (HDI_FENCES_ENGINE). */
static inline void hdi_engine_publish(const hdi_engine_shared *engine, _Atomic uint64_t *word, uint64_t position)
{
    if (__builtin_expect(atomic_load_explicit(&engine->fences, memory_order_relaxed) != HDI_FENCES_ENGINE, 0)) {
        atomic_store_explicit(word, position, memory_order_seq_cst);
    } else {
        atomic_store_explicit(word, position, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst); /* keeps the compiler from moving later loads in front */
    }
}

/* Notifies the engine of new commands or new wishes in a lane. Call after hdi_engine_publish, or after a sequentially consistent store of the
 * wish. */
static inline void hdi_engine_notify(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    /* Sequentially consistent with the engine, which clears the bit and then loads `head`: one of the two sees the
     * other's store. After a plain store of `head` the engine's fence provides that (HDI_FENCES_ENGINE). */
    if (__builtin_expect(!(atomic_load_explicit(&engine->active[lane / 64], memory_order_seq_cst) & bit), 0)) {
        atomic_fetch_or_explicit(&engine->active[lane / 64], bit, memory_order_seq_cst);
    }
    /* Likewise with the engine's store of `asleep` followed by its last look for work. */
    if (__builtin_expect(atomic_load_explicit(&engine->asleep, memory_order_seq_cst) != 0, 0)) {
        hdi_engine_ring(engine);
    }
}

/* Likewise, for a thread that begins to wait for the lane (wanted_host). A lane that has much to do gets its turn
 * sooner then. */
static inline void hdi_engine_hurry(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    if (!(atomic_load_explicit(&engine->awaited[lane / 64], memory_order_relaxed) & bit)) {
        /* Sequentially consistent with the engine, which clears the bit and then loads the wish. */
        atomic_fetch_or_explicit(&engine->awaited[lane / 64], bit, memory_order_seq_cst);
    }
    hdi_engine_notify(engine, lane);
}

/* Sets in the channel which side may fence. Called by hd_open and hd_device_restart, before the device's engine
 * starts. */
void hdi_engine_offer_fences(hdi_device *device);

/* device.c: devices that the driver of this process drives. */
hd_status hdi_attach_driver(hd_runtime *rt, const int *ordinals, int n); /* fills in rt->handles */
hd_status hdi_device_attach(hdi_device *device); /* context, completion flags, port; the channel exists */
/* Undoes hdi_device_attach, and destroys the engine, which has stopped. `hung`: work never ended, so the driver is not
 * called. */
void hdi_device_detach(hdi_device *device, bool hung);

/* loss.c: lost devices, and which operations of a device may be under way: the possible causes of a loss.
 *
 * A GPU reports that something went wrong, but not what. Recorded is which operations were given to the driver and have
 * not been seen to end. Kernels are looked for first, since what copies and fills touch was checked before. Of several
 * kernels any may be the cause. Those that others wait for come first. */
#define HDI_SUSPECTS_NAMED 6

/* One operation, or several of one lane that are alike. */
typedef struct hdi_suspect {
    uint64_t position, last; /* tickets of the first and of the last one */
    uint32_t lane;           /* global number */
    uint32_t kernel;         /* of a launch: number in the runtime's table */
    uint32_t count;          /* 0: there is none */
    uint8_t op;
} hdi_suspect;

typedef struct hdi_suspects {
    hdi_suspect named[HDI_SUSPECTS_NAMED];
    uint32_t n_named;
    uint64_t count; /* operations in all, also those that have no room in `named` */
    bool begun;     /* false: nothing was under way, and these are what came next */
    bool certain;   /* there is one, and it is certainly the cause */
} hdi_suspects;

/* Finds what the work up to a position of a lane waits for in the end, through WAITs into other lanes and devices. *out
 * has the unfinished operations of the first device that has some. *own is the operation at that position itself (count
 * 0: not known). False: nothing is unfinished. Takes order locks, one at a time. */
bool hdi_suspects_awaited(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_suspects *out, hdi_suspect *own);
hd_status hdi_losses_create(hd_runtime *rt);
void hdi_losses_release(hd_runtime *rt);
/* The first operation of a lane in [position, limit), and where it ends; NULL: there is none. */
const hdi_command *hdi_lane_operation(const hdi_channel *channel, uint32_t lane, uint64_t position, uint64_t limit,
                                      uint64_t *end);
/* Whether a lane waits for another one that is not there yet: by a WAIT in [from, to), in front of the first operation
 * there. */
bool hdi_lane_waits(const hdi_device *device, uint32_t number, uint64_t from, uint64_t to);
/* Determines which operations may have cost the device. Called once per loss, before the lanes' failures are recorded,
 * by the thread that runs the engine, or when no thread runs it any more. */
void hdi_loss_suspect(hdi_device *device, int code);
/* The suspects of the device's latest loss. Returns the number of that loss, counted from 1. */
uint64_t hdi_loss_suspects(hd_runtime *rt, int device, hdi_suspects *out);
/* Records that everything of a lane that is not done fails, now and later. Same threads as hdi_loss_suspect. */
void hdi_lane_lose(hdi_device *device, uint32_t number, int code);
/* The device's worker process is gone: fails everything that is not finished, and ends all waits. Work that waits for
 * other devices ends as soon as what it waits for is finished (hdi_device_drain). Any thread. */
void hdi_device_lose(hdi_device *device, int code);
/* How far the lane of a lost device is finished: up to the first WAIT for a lane that is not there yet. */
uint64_t hdi_lane_reach(const hdi_device *device, uint32_t number, uint64_t from, uint64_t head);
/* Drains a device whose worker is gone: ends its work as far as that does not wait for living lanes. To be called until
 * it returns false, since the device is not DRAINING any more. Any thread. */
bool hdi_device_drain(hdi_device *device);
/* Whether nothing is unfinished in any lane. Any thread. */
bool hdi_device_is_drained(const hdi_device *device);
/* A RESTORING device is UP from here on: lanes accept work again. No thread submits before. */
void hdi_device_reactivate(hdi_device *device);
/* Reports through hd_loss_next that a DRAINING device is lost. */
void hdi_loss_note(hdi_device *device, int code);
/* Fails with DEVICE_LOST: "WHAT: " and how the device was lost the last time. Device -1: it is not
 * recorded which one was lost. */
hd_status hdi_loss_fail(hd_runtime *rt, int device, const char *what);
/* Fails with another status: WHAT, and how the device was lost if it was. */
hd_status hdi_loss_refuse(hd_runtime *rt, int device, hd_status status, const char *what);
/* Fails with DEVICE_LOST. Also where so far only a driver call of this thread (`entry_point`) has returned `code`. No
 * order lock is held. */
hd_status hdi_loss_fail_call(hdi_device *device, int code, const char *entry_point);
/* Wakes the engines in other processes that wait for this lane's `done`. After `done` was moved. */
void hdi_lane_ring_watchers(hd_runtime *rt, hdi_lane_shared *lane);

/* ticket.c: waiting for positions, and whether those that a worker process reports can be. */
/* Whether all that is reported of a device's lanes is possible. The watcher asks now and then, while a worker drives the
 * device. */
bool hdi_device_report_can_be(hdi_device *device, int64_t now);
/* Before work is submitted that may wait for other work of the program's, which nothing shows. Engines see it with the work. */
static inline void hdi_runtime_note_calls(hd_runtime *rt)
{
    if (!atomic_load_explicit(&rt->has_calls, memory_order_relaxed)) {
        atomic_store_explicit(&rt->has_calls, true, memory_order_relaxed);
    }
}
/* Raises a wish, or `done`, to at least `position`. */
void hdi_raise(_Atomic uint64_t *word, uint64_t position);
/* `done` of a lane has moved: wakes the threads that sleep for what it passed. */
void hdi_lane_wake(hdi_lane_shared *lane, uint64_t before, uint64_t done);
/* Wakes all threads that wait for a lane, or for anything else of the runtime, so that they see `closing`. */
void hdi_wake_sleepers(hdi_device *device);
/* The status of a call whose wait hd_close has ended. */
hd_status hdi_closed_meanwhile(void);
/* Waits until `position` of the lane is done, or the deadline (hdi_clock_ns time) passes. False: the deadline
 * passed. A trace has it as a pause of the thread. */
bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* The same for a caller that records the wait in its own way, and for looks of threads that only tidy up. */
bool hdi_wait_position_unrecorded(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* The same for waits of the program's own. Before it sleeps, it uses the time for hd_runtime.on_block. No lock is
 * held. */
bool hdi_wait_position_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);

/* describe.c: failures as statuses with a message. */
/* "the launch of kernel 'x'", "a copy" */
void hdi_operation_text(hd_runtime *rt, uint8_t op, uint32_t kernel, char *out, size_t bytes);
/* The failure that covers a finished position as a status with message, HD_OK if there is none. */
hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position);
/* The message of a loss: cause, and the operations that may be to blame. The failure names the likeliest of
 * them. */
void hdi_loss_describe(hd_runtime *rt, const hdi_failure *failure, const hdi_suspects *suspects, hd_error *out);
/* The status of a call whose wait came to nothing: that the runtime is being closed, or TIMEOUT with the text. A
 * TIMEOUT also names what the position of the lane waits for in the end, and since when nothing has ended there. The
 * error's fields name the same operation. Position 0: only the text. No order lock is held. */
hd_status hdi_not_done(hd_runtime *rt, uint32_t lane, uint64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What is wrong with a lane or device that refuses work. */
hd_status hdi_lane_refuses(hd_lane *lane);

/* lane.c */
/* The lane of a handle, also one that was destroyed since, as tickets name it. NULL: not a lane. */
static inline hd_lane *hdi_lane_any(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_head_is(&lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

/* The point of a ticket that the calling function got by submitting. {NULL, 0} has none. The lane is there even when
 * hd_close has ended all handles meanwhile. Its handle fits no more then, but its work is still under way. */
static inline hdi_point hdi_ticket_point(hd_ticket ticket)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(ticket.lane);
    return lane ? (hdi_point){lane->global, ticket.sequence} : (hdi_point){0, 0};
}

/* For HDI_INSIDE, before the handle is checked: only to be compared. */
static inline const void *hdi_lane_runtime(const hd_lane *handle)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(handle);
    return lane ? lane->runtime : NULL;
}

/* The handle word that the lane of a good handle has. */
static inline uint64_t hdi_lane_word(const hd_lane *handle)
{
    return hdi_handle_word(HDI_LANE_MAGIC, hdi_handle_generation(handle), HDI_HANDLE_LIVE);
}

/* NULL: not a live lane. */
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

/* Whether the lane has gone on in another structure. Order lock held. */
static inline bool hdi_lane_is_past(const hd_lane *lane)
{
    return lane->device->lanes[lane->number] != lane;
}

hd_status hdi_lane_make(hdi_device *device, bool is_default, bool sticky_failure, hd_lane **out);
/* For hd_close. The first ends all handles and tickets, the second frees the application's memory of lanes. */
void hdi_lanes_close(hdi_device *device);
void hdi_lane_release_all(hdi_device *device);
/* The scratch of a lane's submissions. False: no memory; release it all the same. */
bool hdi_waits_make(hdi_waits *waits, size_t n_lanes);
void hdi_waits_release(hdi_waits *waits);
void hdi_lane_push(hd_lane *lane, const hdi_command *command); /* a one-slot command; order lock held, space checked */

/* registry.c: which runtimes are open. */
static inline hd_status hdi_runtime_refused(const hd_runtime *rt)
{
    return hdi_handle_refused(rt, "runtime", "it was closed");
}
/* Takes no lock. The calling thread is inside a call on the runtime, and what it finds open stays until it leaves. */
bool hdi_runtime_is_open(const hd_runtime *rt);
hd_status hdi_runtime_add(hd_runtime *rt);
/* From here on only the program's functions on threads of the library find it open. False: it is not open, or another thread closes it. */
bool hdi_runtime_begin_close(hd_runtime *rt);
/* Waits for visitors (hdi_runtime_with). False: the runtime is not open. Of several calls at once one returns true. */
bool hdi_runtime_remove(hd_runtime *rt);
/* Runs `visit` on the open runtime with this id. The runtime is not removed meanwhile. False: there is none. No lock is
 * held. */
bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context);

/* Makes the device's context current on this thread for a few driver calls, and restores the former one. */
typedef struct hdi_scope {
    hdi_current current;
    bool entered;
} hdi_scope;
hd_status hdi_scope_enter(hdi_device *device, hdi_scope *scope);
void hdi_scope_leave(hdi_scope *scope);

/* Returns why the worker is gone, after a request was answered with a code below 0. The reason is recorded a moment
 * after the worker's sockets have closed. Blocks for that, at most a second. */
int hdi_device_await_loss(hdi_device *device, int code);
/* Fails with the status and message of an answer other than success, for the caller of a cold call. */
hd_status hdi_answer_failed(hdi_device *device, hdi_answer answer);
/* The same for a driver code. */
hd_status hdi_driver_failed(hdi_device *device, int driver_code, const char *entry_point);

#endif
