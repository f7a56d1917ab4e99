/* engine.h - what the application's side asks of the engines.
 *
 * Threads: any, unless said otherwise.
 */
#ifndef HDI_ENGINE_ENGINE_H
#define HDI_ENGINE_ENGINE_H

#include "base/presence.h"
#include "driver/current.h"
#include "engine/runtime.h"
#include "engine/suspects.h"

/* engine.c: placements, sleeping, the loop. */
hd_status hdi_engine_create(hdi_device *device); /* hd_open: the thread runs when this returns (placement thread) */
/* Ends the thread; nothing is issued afterwards. False: the thread is still inside a driver call at the deadline and was let go;
 * everything that it can reach must stay. */
bool hdi_engine_stop(hdi_device *device, int64_t deadline);
/* Whether the driver says that streams of the device have unfinished work. The engine has stopped. */
bool hdi_engine_is_busy(hdi_device *device);
void hdi_engine_destroy(hdi_device *device, bool driver_usable);
void hdi_engine_ring(hdi_engine_shared *engine); /* wakes it; call only when `asleep` was seen set */
void hdi_engine_run_inline(
    hdi_device *device); /* placement inline: one pass on the caller, unless another thread is at it */

/* Tells the engine that a lane has new commands or new wishes. Call after `head` (or a wish) was stored with a sequentially
 * consistent operation. */
static inline void hdi_engine_notify(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    /* Sequentially consistent with the engine's clear of the bit followed by its look at `head`: one of the two sees the other. Behind a plain store
     * of `head` the engine cares for that (HDI_FENCES_ENGINE). */
    if (__builtin_expect(!(atomic_load_explicit(&engine->active[lane / 64], memory_order_seq_cst) & bit), 0)) {
        atomic_fetch_or_explicit(&engine->active[lane / 64], bit, memory_order_seq_cst);
    }
    /* Likewise with the engine's store of `asleep` followed by its last look around. */
    if (__builtin_expect(atomic_load_explicit(&engine->asleep, memory_order_seq_cst) != 0, 0)) {
        hdi_engine_ring(engine);
    }
}

/* Likewise, and somebody begins to wait for the lane (wanted_host): a lane that has much to do comes sooner then. */
static inline void hdi_engine_hurry(hdi_engine_shared *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    if (!(atomic_load_explicit(&engine->awaited[lane / 64], memory_order_relaxed) & bit)) {
        /* Sequentially consistent with the engine's clear of the bit followed by its look at the wish. */
        atomic_fetch_or_explicit(&engine->awaited[lane / 64], bit, memory_order_seq_cst);
    }
    hdi_engine_notify(engine, lane);
}

/* What submitters stored into `head` before they could see what the calling engine stored last is seen from here on. Some microseconds, and an
 * interrupt on each processor that runs the application. */
void hdi_engine_see_heads(hdi_engine *engine);
/* hd_open and hd_device_restart, before the device's engine starts: says what the application's side can do. */
void hdi_engine_offer_fences(hdi_device *device);

/* stream.c: one lane's commands into the driver. Only whoever runs the engine. */
typedef struct hdi_pass {
    int64_t now;
    bool progress;  /* something was issued or seen finished */
    bool in_flight; /* some lane has unfinished work */
} hdi_pass;

/* Issues some of what there is, and sees what is finished. True: the lane is full, there is more that could be issued now. */
bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);
/* turns.c: one round over the lanes that have anything. */
hdi_pass hdi_engine_pass(hdi_engine *engine);
void hdi_engine_lose(hdi_engine *engine,
                     int driver_code); /* the device is dead: fails everything that is not finished */

static inline void hdi_engine_count_some(_Atomic uint64_t *counter, uint64_t n)
{
    /* one writer; relaxed: a statistic */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void hdi_engine_count(_Atomic uint64_t *counter)
{
    hdi_engine_count_some(counter, 1);
}

/* issue.c: a launch as the driver takes it, with pointers into itself and into the command. */
typedef struct hdi_launch {
    hdcu_kernel_node_params params;
    const hdi_command *command;
    size_t bytes;
    void *extra[5];
} hdi_launch;

/* False: there is no such kernel, somebody wrote over the command. */
bool hdi_launch_fill(hdi_device *device, const hdi_command *c, hdi_launch *out);

/* issue.c: the driver's or the library's call that an operation (hdi_op_is_work) stands for, on the stream's stream. */
hdcu_result hdi_issue(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c);

/* Makes the engine's side of a lane, which goes on from where the channel says that it is done. Any thread, once per lane, before
 * its first command. */
hdi_answer hdi_stream_make(hdi_engine *engine, uint32_t number, bool sticky_failure);

/* attach.c: a device through the driver of this process. */
hd_status hdi_attach_driver(hd_runtime *rt, const int *ordinals, int n); /* fills in rt->handles */
hd_status hdi_device_attach(hdi_device *device); /* context, completion flags, port; the channel exists */
/* With the engine, which has stopped. `hung`: work never ended; the driver is not called. */
void hdi_device_detach(hdi_device *device, bool hung);

/* verify.c: what a worker process reports. */
/* It has written what cannot be: it is killed soon. Not for engines in this process. */
void hdi_device_set_corrupted(hdi_device *device);
/* Whether a lane is said to be done no farther than it was filled. */
bool hdi_lane_report_can_be(const hdi_device *device, uint32_t number);
/* Whether the application has ended the lane of a lost device up to `position`, whatever its channel says. */
bool hdi_lane_has_ended(const hdi_device *device, uint32_t number, uint64_t position);
/* The watcher, now and then, while a worker drives the device: sets it corrupted where something cannot be. */
void hdi_device_check(hdi_device *device, int64_t now);

/* loss.c: devices that are lost. */
hd_status hdi_losses_create(hd_runtime *rt);
void hdi_losses_release(hd_runtime *rt);
/* The first operation of a lane in [position, limit), and where it ends; NULL: there is none. */
const hdi_command *hdi_lane_operation(const hdi_channel *channel, uint32_t lane, uint64_t position, uint64_t limit,
                                      uint64_t *end);
/* Whether a WAIT in [from, to) of a lane, in front of its first operation there, is for another lane that is not there yet. */
bool hdi_lane_waits(const hdi_device *device, uint32_t number, uint64_t from, uint64_t to);
/* Whoever runs the engine, or may be sure that nobody does: finds out which operations may have cost the device, once per loss, before the lanes'
 * failures are recorded. */
void hdi_loss_suspect(hdi_device *device, int code);
/* Those of the device's latest loss, and which one that is, counted from 1. */
uint64_t hdi_loss_suspects(hd_runtime *rt, int device, hdi_suspects *out);
/* The same: records that everything of a lane that is not done fails, now and later. */
void hdi_lane_lose(hdi_device *device, uint32_t number, int code);
/* The device's worker process is gone: fails everything that is not finished, and lets all waits go, those for work that waits for other
 * devices as soon as that is finished (hdi_device_end). Any thread. */
void hdi_device_lose(hdi_device *device, int code);
/* How far the lane of a lost device is finished: to the first WAIT for a lane that is not there yet. */
uint64_t hdi_lane_reach(const hdi_device *device, uint32_t number, uint64_t from, uint64_t head);
/* A device of a worker that is gone: lets go what no longer waits for living lanes; to be called until it says that all is. One thread
 * at a time. */
bool hdi_device_end(hdi_device *device);
bool hdi_device_ended(const hdi_device *device); /* any thread */
/* A fresh engine is there: lanes accept work again. Nobody submits meanwhile, since the device counts as lost until the end. */
void hdi_device_reactivate(hdi_device *device);
/* Tells whoever wants to know (hd_loss_next) that a device is lost; after its `lost` was set. */
void hdi_loss_note(hdi_device *device, int code);
/* Fails with DEVICE_LOST: "WHO: WHAT: " and how the device was lost the last time. -1: which one is not known any more. */
hd_status hdi_loss_fail(hd_runtime *rt, int device, const char *who, const char *what);
/* Fails with another status: "WHO: WHAT", and how the device was lost where it was. */
hd_status hdi_loss_refuse(hd_runtime *rt, int device, hd_status status, const char *who, const char *what);
/* Fails with DEVICE_LOST, also where only a driver call of this thread (`entry_point`) has said so yet, by `code`. No order lock is held. */
hd_status hdi_loss_tell(hdi_device *device, int code, const char *entry_point, const char *who);
/* Wakes the engines in other processes that wait for this lane's `done`. After it was moved. */
void hdi_lane_ring_watchers(hd_runtime *rt, hdi_lane_shared *lane);

/* ticket.c: waiting for positions. */
/* Raises a wish to at least `position`. */
void hdi_want(_Atomic uint64_t *wish, uint64_t position);
/* Wakes all that wait for a lane, or for anything of the runtime's, so that they see `closing`. */
void hdi_wake_sleepers(hdi_device *device);
/* The status of a call that hd_close does not let wait any longer. */
hd_status hdi_closed_meanwhile(const char *who);
/* Until `position` of the lane is done, or the deadline (hdi_clock_ns time). False: the deadline passed. */
bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* The same for waits that the program asks for: before it sleeps, the time is used (hd_runtime.on_block). No lock is held. */
bool hdi_wait_position_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);

/* describe.c: failures as statuses with a message. */
/* "the launch of kernel 'x'", "a copy" */
void hdi_operation_text(hd_runtime *rt, uint8_t op, uint32_t kernel, char *out, size_t bytes);
/* The failure that covers a finished position as a status with message, HD_OK if there is none. */
hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position, const char *who);
/* The line that says how a device was lost: `who`, cause, the operations that may be to blame, of which the failure names the likeliest. */
void hdi_loss_describe(hd_runtime *rt, const hdi_failure *failure, const hdi_suspects *suspects, const char *who,
                       hd_error *out);
/* The status of a call whose wait came to nothing: that the runtime is being closed, or TIMEOUT with the text, and what the position of the lane
 * comes to wait for, which the fields name (0: only the text), and since when nothing has ended there. No order lock is held. */
hd_status hdi_not_done(hd_runtime *rt, uint32_t lane, uint64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What is wrong with a lane or device that refuses work. */
hd_status hdi_lane_refuses(hd_lane *lane, const char *who);

/* lane.c */
/* Also a lane that was destroyed since, as tickets name it; NULL: not a lane. */
static inline hd_lane *hdi_lane_any(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_head_is(&lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

/* Of a ticket that the calling function got by submitting; {NULL, 0}: of none. Its lane is there, also where hd_close has ended all handles
 * meanwhile: then its handle fits no more, but work is still under way. */
static inline hdi_point hdi_ticket_point(hd_ticket ticket)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(ticket.lane);
    return lane ? (hdi_point){lane->global, ticket.sequence} : (hdi_point){0, 0};
}

/* For HDI_INSIDE, before anybody looks whether it is a lane: only to be compared. */
static inline const void *hdi_lane_runtime(const hd_lane *handle)
{
    const hd_lane *lane = (const hd_lane *)hdi_handle_object(handle);
    return lane ? lane->runtime : NULL;
}

/* What the word of a good handle's lane is. */
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

static inline hd_status hdi_lane_refused(const hd_lane *handle, const char *who)
{
    return hdi_handle_refused(handle, who, "lane", "it was destroyed, or its runtime closed");
}

static inline hd_lane *hdi_lane_handle(hd_lane *lane)
{
    return (hd_lane *)hdi_handle_make(lane, hdi_handle_head_generation(&lane->handle));
}

/* The lane has gone on in another structure. Order lock held. */
static inline bool hdi_lane_is_past(const hd_lane *lane)
{
    return lane->device->lanes[lane->number] != lane;
}

hd_status hdi_lane_make(hdi_device *device, bool is_default, bool sticky_failure, const char *who, hd_lane **out);
/* hd_close: no handle and no ticket fits any more; and application-side memory of lanes. */
void hdi_lanes_close(hdi_device *device);
void hdi_lane_release_all(hdi_device *device);
/* The scratch of a lane's submissions. False: no memory; to be released all the same. */
bool hdi_waits_make(hdi_waits *waits, size_t n_lanes);
void hdi_waits_release(hdi_waits *waits);
void hdi_lane_push(hd_lane *lane, const hdi_command *command); /* a one-slot command; order lock held, space checked */

/* registry.c: which runtimes are open. */
static inline hd_status hdi_runtime_refused(const hd_runtime *rt, const char *who)
{
    return hdi_handle_refused(rt, who, "runtime", "it was closed");
}
bool hdi_runtime_is_open(const hd_runtime *rt);
hd_status hdi_runtime_add(hd_runtime *rt);
/* Waits for visitors (hdi_runtime_with). False: it is not open; of several calls at once one returns true. */
bool hdi_runtime_remove(hd_runtime *rt);
/* Runs `visit` on the open runtime with this id, which is not removed meanwhile; false when there is none. No lock is held. */
bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context);

/* The device's context current on this thread for the length of a few driver calls, and what was current before. */
typedef struct hdi_scope {
    hdi_current current;
    bool entered;
} hdi_scope;
hd_status hdi_scope_enter(hdi_device *device, const char *who, hdi_scope *scope);
void hdi_scope_leave(hdi_scope *scope);

/* A request was answered with a code below 0: why the worker is gone. That is known a moment after its sockets have closed, which this
 * waits for, at most a second. */
int hdi_device_gone(hdi_device *device, int code);
/* The status that an answer other than success means to the caller of a cold call, with a message. */
hd_status hdi_answer_failed(hdi_device *device, hdi_answer answer, const char *who);
/* The same for a driver code. */
hd_status hdi_driver_failed(hdi_device *device, int driver_code, const char *entry_point, const char *who);

#endif
