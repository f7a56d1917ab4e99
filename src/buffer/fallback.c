/* fallback.c - the out-of-memory fallback: what is tried before an allocation of device memory fails.
 *
 * The arena has tried what is mapped, idle granules and fresh memory up to the limit (hdi_arena_alloc).
 * The fallback tries these in order, with another allocation after each:
 *   - the magazines of all threads
 *   - waiting for the work that is in flight now
 *   - the program's callback, as long as it frees something
 *   - waiting for other threads, as long as they free something or work is finished (memory_wait.h)
 *
 * So a producer that is faster than its consumer is slowed down.
 *
 * Threads: the one that allocates.
 * Locks: none of its own.
 * Blocking: as above. Each of the two waits has the limit of memory_wait.h.
 * Always: the program's callback is called at most CALLS_MOST times for one allocation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/text.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/counts.h"
#include "buffer/memory_wait.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/share.h"

#define CALLS_MOST 1000 /* of the callback, for one allocation: the limit for a callback that always returns true */

typedef struct climb {
    hdi_device *device;
    hd_lane *lane;
    size_t bytes;
    hdcu_deviceptr *out;
    hdi_points *inherited;
    bool possible;        /* no more bytes than the limit */
    hdi_memory_wait wait; /* of the wait for other threads; empty before that */
} climb;

static hd_status try_again(const climb *c)
{
    return hdi_arena_alloc(c->device->arena, c->lane->global, c->bytes, c->out, c->inherited);
}

/* A number that changes when work is finished or anything is freed. It covers all devices, since all may use this one's memory. */
static uint64_t look(const climb *c)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t sum = hdi_arena_freed(c->device->arena);
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            sum += atomic_load_explicit(&rt->devices[d]->channel.lanes[i].done, memory_order_acquire);
        }
    }
    return sum;
}

/* Stores the last submitted position of each lane in heads[n_devices * HDI_LANES_MAX]; 0 for lanes that do not exist. */
static void note_heads(hd_runtime *rt, uint64_t *heads)
{
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            heads[d * HDI_LANES_MAX + (int)i] = hdi_lane_submitted(rt->devices[d], i);
        }
    }
}

/* Whether work up to `heads` is unfinished. Requests completion from the lanes of such work. Inline, it runs the engines. */
static bool press(hd_runtime *rt, const uint64_t *heads)
{
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]);
    }
    bool unfinished = false;
    for (uint32_t i = 0; i < (uint32_t)rt->n_devices * HDI_LANES_MAX; i++) {
        if (heads[i] != 0 && !hdi_point_done(rt, (hdi_point){i, heads[i]})) {
            hdi_want(&hdi_lane_shared_of(rt, i)->wanted_host, heads[i]);
            hdi_engine_notify(hdi_lane_owner(rt, i)->channel.engine, i % HDI_LANES_MAX);
            unfinished = true;
        }
    }
    return unfinished;
}

static hd_status drain_and_try(const climb *c)
{
    hd_runtime *rt = c->device->runtime;
    hdi_counts_add(&c->device->memory->drains, 1);
    hdi_thread_caches_drain(rt, c->device->index);
    if (rt->is_process) {
        hdi_shares_reap(rt); /* a peer may have released memory that this device had before it was restarted */
    }
    return try_again(c);
}

/* Waits for the work in flight, or also for other threads, and tries again whenever anything was freed or finished. */
static hd_status wait_for(climb *c, bool others)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t *heads = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *heads);
    if (!heads) {
        return HD_ERROR_MEMORY; /* the message is set */
    }
    uint64_t before = look(c);
    note_heads(rt, heads);
    hdi_memory_wait p = hdi_memory_wait_begin(rt);
    hd_status status = HD_ERROR_MEMORY;
    bool waited = false;
    for (;;) {
        bool unfinished = press(rt, heads);
        uint64_t seen = look(c);
        if (seen != before) {
            before = seen;
            hdi_memory_wait_moved(&p);
            status = try_again(c);
        }
        if (status != HD_ERROR_MEMORY || hdi_device_lost(c->device) ||
            (others ? hdi_memory_wait_over(&p, !unfinished) : !unfinished || hdi_memory_wait_too_long(&p))) {
            break;
        }
        waited = true;
        hdi_memory_wait_sleep(&p);
        if (hdi_thread_caches_cached(rt, c->device->index)) {
            hdi_thread_caches_drain(rt, c->device->index); /* another thread's hd_free usually puts a buffer there */
        }
    }
    free(heads);
    if (status == HD_ERROR_MEMORY && !hdi_device_lost(c->device)) {
        status = drain_and_try(c); /* for what was freed after the last try of this wait */
    }
    if (waited) {
        hdi_counts_add(&c->device->memory->waits, 1);
        hdi_counts_add(&c->device->memory->wait_ns, (uint64_t)(hdi_clock_ns() - p.begin));
    }
    c->wait = p;
    return status;
}

/* ---- the message ---- */

/* Writes what the program can do, or the reason why it can do nothing. */
static void advise(const climb *c, char *out, size_t room)
{
    hd_runtime *rt = c->device->runtime;
    hdi_arena *arena = c->device->arena;
    hdi_thread_cache_sums sums;
    hdi_thread_caches_sum(rt, c->device->index, &sums);
    size_t limit = hdi_arena_limit(arena);
    bool is_device = limit >= c->device->facts.memory_bytes;
    bool refused = c->possible && hdi_arena_mapped_bytes(arena) + c->bytes <= limit; /* by the driver */
    bool frees = c->possible && sums.allocated_bytes > sums.freed_bytes;
    bool raises = !is_device && !refused;
    bool waited = c->wait.end == HDI_MEMORY_WAIT_STILL && frees;
    char raise[HDI_AMOUNT_BYTES + 40] = "";
    if (raises) {
        snprintf(raise, sizeof raise, "raise memory_limit (%s)", HDI_BYTES(limit));
    }
    const char *first = frees     ? "free buffers"
                        : raises  ? raise
                        : refused ? "others hold the rest of the device"
                                  : "the device has no more";
    snprintf(out, room, "; %s%s%s%s", first, frees && raises ? " or " : "", frees ? raise : "",
             waited ? "; a consumer that takes longer needs a longer memory_timeout" : "");
}

/* Fails with the arena's message, the reason why the wait ended, what to do, and the largest holders. */
static hd_status fail_full(const climb *c)
{
    hd_error error;
    hdi_error_get(&error);
    char why[HDI_MEMORY_WAIT_TEXT], advice[320], text[sizeof error.message * 2];
    hdi_memory_wait_text(&c->wait, why);
    advise(c, advice, sizeof advice);
    int length = snprintf(text, sizeof text, "%s%s%s%s", error.message, why[0] ? "; " : "", why, advice);
    if (length > 0 && (size_t)length < sizeof error.message) {
        memcpy(error.message, text, (size_t)length + 1);
        c->device->runtime->on_full(c->device->runtime, c->device->index, error.message + length,
                                    sizeof error.message - (size_t)length);
    }
    return hdi_fail_error(&error);
}

hd_status hdi_fallback_alloc(hdi_device *device, hd_lane *lane, size_t bytes, hdcu_deviceptr *out,
                             hdi_points *inherited)
{
    climb c = {.device = device, .lane = lane, .bytes = bytes, .out = out, .inherited = inherited};
    hd_status status = drain_and_try(&c);
    c.possible = bytes <= hdi_arena_limit(device->arena);
    if (status == HD_ERROR_MEMORY && c.possible) {
        status = wait_for(&c, false);
    }
    for (unsigned attempt = 0; status == HD_ERROR_MEMORY && attempt < CALLS_MOST && !hdi_is_closing(device->runtime);
         attempt++) {
        if (!hdi_reclaim_at_limit(device->runtime, device, bytes, attempt)) {
            break;
        }
        status = drain_and_try(&c);
        if (status == HD_ERROR_MEMORY && c.possible) {
            status = wait_for(&c, false); /* what was freed may still be in use */
        }
    }
    if (status == HD_ERROR_MEMORY && c.possible) {
        status = wait_for(&c, true);
    }
    if (status == HD_ERROR_MEMORY && hdi_is_closing(device->runtime)) {
        return hdi_closed_meanwhile();
    }
    return status == HD_ERROR_MEMORY ? fail_full(&c) : status;
}
