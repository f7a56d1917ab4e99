/* ladder.c - what is tried before an allocation of device memory fails.
 *
 * The arena has tried what is mapped, idle granules and fresh memory up to the limit (hdi_arena_alloc). Behind it come, each
 * followed by another try: the magazines of all threads; the work that is in flight now, which is waited for; the
 * program's callback, as long as it frees something; and other threads, which are waited for as long as they free something, or work
 * is finished, every so often (option memory_patience). So a producer that outruns its consumer is slowed down.
 *
 * Threads: whoever allocates. Locks: none of its own. Blocking: as above, in all no longer than HDI_PATIENCE_TIMES the patience.
 */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "data/buffer.h"
#include "data/counts.h"
#include "data/reclaim.h"
#include "data/report.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/share.h"

#define NAP_NS 50000
#define CALLS_MOST 1000 /* of the callback, for one allocation: even one that always says yes comes to an end */

typedef struct climb {
    hdi_device *device;
    hd_lane *lane;
    size_t bytes;
    hdcu_deviceptr *out;
    hdi_marks *inherited;
} climb;

static hd_status try_again(const climb *c)
{
    return hdi_arena_alloc(c->device->arena, c->lane->global, c->bytes, c->out, c->inherited);
}

/* A number that changes when work is finished, on any device since all may use this one's memory, or anything is freed. */
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

/* Where all lanes are now, into heads[n_devices * HDI_LANES_MAX]; 0 for those that do not exist. */
static void note_heads(hd_runtime *rt, uint64_t *heads)
{
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            heads[d * HDI_LANES_MAX + (int)i] =
                atomic_load_explicit(&rt->devices[d]->channel.lanes[i].head, memory_order_acquire);
        }
    }
}

/* Whether work in front of `heads` is unfinished. Asks its lanes to say when it is; inline, drives them on. */
static bool press(hd_runtime *rt, const uint64_t *heads)
{
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]);
    }
    bool unfinished = false;
    for (uint32_t i = 0; i < (uint32_t)rt->n_devices * HDI_LANES_MAX; i++) {
        if (heads[i] != 0 && !hdi_mark_done(rt, (hdi_mark){i, heads[i]})) {
            hdi_want(&hdi_lane_shared_of(rt, i)->wanted_host, heads[i]);
            hdi_engine_notify(hdi_lane_owner(rt, i)->channel.engine, i % HDI_LANES_MAX);
            unfinished = true;
        }
    }
    return unfinished;
}

/* Waits for what is in flight, or for others, and tries again whenever anything was freed or finished. */
static hd_status wait_for(const climb *c, bool others)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t *heads = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *heads);
    if (!heads) {
        return HD_ERROR_MEMORY; /* said */
    }
    uint64_t before = look(c);
    note_heads(rt, heads);
    /* Nobody else may be there to free anything: then a while is enough. */
    bool alone = hdi_caches_count(rt) < 2 && atomic_load_explicit(&rt->threads, memory_order_relaxed) < 2;
    int64_t patience = rt->options.memory_patience * 1000000 / (others && alone ? 10 : 1);
    int64_t begin = hdi_clock_ns(), moved = begin;
    int64_t end = begin + HDI_PATIENCE_TIMES * rt->options.memory_patience * 1000000;
    hd_status status = HD_ERROR_MEMORY;
    bool waited = false;
    for (;;) {
        bool unfinished = press(rt, heads);
        int64_t now = hdi_clock_ns();
        uint64_t seen = look(c);
        if (seen != before) {
            before = seen;
            moved = now;
            status = try_again(c);
        }
        if (status != HD_ERROR_MEMORY || hdi_device_lost(c->device) || now >= end ||
            (others ? now - moved >= patience : !unfinished)) {
            break;
        }
        waited = true;
        hdi_nap(NAP_NS);
        if (hdi_caches_cached(rt, c->device->index)) {
            hdi_caches_drain(rt, c->device->index); /* where another thread's hd_free usually ends */
        }
    }
    free(heads);
    if (status == HD_ERROR_MEMORY && !hdi_device_lost(c->device)) {
        status = try_again(c); /* for what ended between the try before this wait and its first look */
    }
    if (waited) {
        hdi_counts_add(&c->device->memory->waits, 1);
        hdi_counts_add(&c->device->memory->wait_ns, (uint64_t)(hdi_clock_ns() - begin));
    }
    return status;
}

/* The arena's message, and who holds the memory. */
static hd_status fail_full(const climb *c)
{
    hd_error error;
    hdi_error_save(&error);
    size_t length = strlen(error.message);
    static const char before[] = "; holders: ";
    size_t with = length + sizeof before - 1;
    if (with < sizeof error.message) {
        memcpy(error.message + length, before, sizeof before);
        hdi_report_holders(c->device->runtime, c->device->index, error.message + with, sizeof error.message - with);
    }
    return hdi_fail_error(&error);
}

static hd_status drain_and_try(const climb *c)
{
    hd_runtime *rt = c->device->runtime;
    hdi_counts_add(&c->device->memory->drains, 1);
    hdi_caches_drain(rt, c->device->index);
    if (rt->is_process) {
        hdi_shares_reap(rt); /* a peer may have let go of memory that this device had before it was restarted */
    }
    return try_again(c);
}

hd_status hdi_ladder_climb(hdi_device *device, hd_lane *lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited)
{
    climb c = {device, lane, bytes, out, inherited};
    hd_status status = drain_and_try(&c);
    bool possible = bytes <= hdi_arena_limit(device->arena);
    if (status == HD_ERROR_MEMORY && possible) {
        status = wait_for(&c, false);
    }
    for (unsigned attempt = 0; status == HD_ERROR_MEMORY && attempt < CALLS_MOST; attempt++) {
        if (!hdi_reclaim_at_limit(device->runtime, device, bytes, attempt)) {
            break;
        }
        status = drain_and_try(&c);
        if (status == HD_ERROR_MEMORY && possible) {
            status = wait_for(&c, false); /* what was freed may still be in use */
        }
    }
    if (status == HD_ERROR_MEMORY && possible) {
        status = wait_for(&c, true);
    }
    return status == HD_ERROR_MEMORY ? fail_full(&c) : status;
}
