/* engine.h - what the application's side asks of the engines.
 *
 * Threads: any, unless said otherwise.
 */
#ifndef HDI_ENGINE_ENGINE_H
#define HDI_ENGINE_ENGINE_H

#include "driver/current.h"
#include "engine/runtime.h"

/* engine.c: placements, sleeping, the loop. */
hd_status hdi_engine_create(hdi_device *device); /* hd_open: the thread runs when this returns (placement thread) */
/* Ends the thread; nothing is issued afterwards. False: the thread is still inside a driver call at the deadline and was let go;
 * everything that it can reach must stay. */
bool hdi_engine_stop(hdi_device *device, int64_t deadline);
void hdi_engine_destroy(hdi_device *device, bool driver_usable);
void hdi_engine_ring(hdi_engine *engine); /* wakes it; call only when `asleep` was seen set */
void hdi_engine_run_inline(
    hdi_device *device); /* placement inline: one pass on the caller, unless another thread is at it */

/* Tells the engine that a lane has new commands or new wishes. Call after `head` (or a wish) was stored with a sequentially
 * consistent operation. */
static inline void hdi_engine_notify(hdi_engine *engine, uint32_t lane)
{
    uint64_t bit = (uint64_t)1 << (lane % 64);
    /* Sequentially consistent with the engine's clear of the bit followed by its look at `head`: one of the two sees the other. */
    if (__builtin_expect(!(atomic_load_explicit(&engine->active[lane / 64], memory_order_seq_cst) & bit), 0)) {
        atomic_fetch_or_explicit(&engine->active[lane / 64], bit, memory_order_seq_cst);
    }
    /* Likewise with the engine's store of `asleep` followed by its last look around. */
    if (__builtin_expect(atomic_load_explicit(&engine->asleep, memory_order_seq_cst) != 0, 0)) {
        hdi_engine_ring(engine);
    }
}

/* feed.c: one lane's commands into the driver. Only whoever runs the engine. */
typedef struct hdi_pass {
    int64_t now;
    bool progress;  /* something was issued or seen finished */
    bool in_flight; /* some lane has unfinished work */
} hdi_pass;

void hdi_feed_visit(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass);
void hdi_engine_lose(hdi_engine *engine,
                     int driver_code); /* the device is dead: fails everything that is not finished */

/* ticket.c: waiting for positions. */
/* Raises a wish to at least `position`. */
void hdi_want(_Atomic uint64_t *wish, uint64_t position);
/* Until `position` of the lane is done, or the deadline (hdi_clock_ns time). False: the deadline passed. */
bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
/* The failure that covers a finished position as a status with message, HD_OK if there is none. */
hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position, const char *who);
/* What is wrong with a lane or device that refuses work. */
hd_status hdi_lane_refuses(hd_lane *lane, const char *who);

/* lane.c */
/* Also a lane that was destroyed since, as tickets name it; NULL: not a lane. */
static inline hd_lane *hdi_lane_any(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_head_is(&lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

/* NULL: not a live lane. */
static inline hd_lane *hdi_lane_from_handle(const hd_lane *handle)
{
    hd_lane *lane = (hd_lane *)hdi_handle_object(handle);
    return lane && hdi_handle_fits(handle, &lane->handle, HDI_LANE_MAGIC) ? lane : NULL;
}

static inline hd_lane *hdi_lane_handle(hd_lane *lane)
{
    return (hd_lane *)hdi_handle_make(lane, hdi_handle_head_generation(&lane->handle));
}

hd_status hdi_lane_make(hdi_device *device, bool is_default, bool keeps_failure, const char *who, hd_lane **out);
void hdi_lane_release_all(hdi_device *device);                 /* hd_close: application-side memory of lanes */
void hdi_lane_push(hd_lane *lane, const hdi_command *command); /* a one-slot command; order lock held, space checked */

/* registry.c: which runtimes are open. */
bool hdi_runtime_is_open(const hd_runtime *rt);
hd_status hdi_runtime_add(hd_runtime *rt);
void hdi_runtime_remove(hd_runtime *rt);
/* Runs `visit` on the open runtime with this id, under the registry's lock; false when there is none. */
bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context);

/* The device's context current on this thread for the length of a few driver calls, and what was current before. */
typedef struct hdi_scope {
    hdi_current current;
    bool entered;
} hdi_scope;
hd_status hdi_scope_enter(hdi_device *device, const char *who, hdi_scope *scope);
void hdi_scope_leave(hdi_scope *scope);

/* The status that a driver code means to the caller of a cold call, with a message. */
hd_status hdi_driver_failed(hdi_device *device, int driver_code, const char *entry_point, const char *who);

#endif
