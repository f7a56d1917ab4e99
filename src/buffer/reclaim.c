/* reclaim.c - the program's reclaim callback.
 *
 * The rule for early calls is that of CUDA.jl (CUDACore/src/memory.jl, maybe_collect).
 * They begin at a pressure of 0.75, or 0.50 where the thread is about to block.
 * They get a share of time that grows with the pressure, and when the last call freed much.
 * Here the share is measured per device. The limit follows what other programs leave free.
 *
 * Threads: any; one early call per device at a time.
 * Locks: the hook's; one per device for its figures. None is held during a call.
 * Blocking: for the callback.
 * Always: the callback does not run inside of itself on one thread.
 */
#include "buffer/reclaim.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "buffer/counts.h"
#include "buffer/hook.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/thread_cache.h"

#define PRESSURE_LEAST 0.75
#define PRESSURE_LEAST_BLOCKING 0.50
#define PRESSURE_HIGH 0.90
#define PRESSURE_VERY_HIGH 0.95
#define SHARE_MOST 0.80
#define WORTHWHILE 0.10  /* share of the most that may be held: a call that frees more was worth its time */
#define COST_MEMORY 0.75 /* weight of the calls before when the cost of a new call is averaged in */

/* The record of a device's early calls. */
typedef struct history {
    hdi_mutex lock;
    bool running;
    bool worthwhile;             /* the last call */
    double cost_ns;              /* average of a call */
    int64_t last_end;            /* clock; 0: none yet */
    _Atomic uint64_t free_bytes; /* free memory as the driver last reported it; UINT64_MAX: it was not requested yet */
} history;

struct hdi_reclaim {
    hdi_hook hook;
    history devices[HDI_DEVICES_MAX];
};

static _Thread_local bool inside;

static void before_blocking(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_reclaim_early_now(rt, rt->devices[i], 0, true);
    }
}

/* For the hook: a callback was installed, or removed. */
static void changed(void *owner, bool there)
{
    hd_runtime *rt = owner;
    atomic_store_explicit(&rt->on_block, there ? before_blocking : NULL, memory_order_relaxed);
}

hd_status hdi_reclaim_create(hd_runtime *rt)
{
    struct hdi_reclaim *r = calloc(1, sizeof *r);
    if (!r) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_hook_init(&r->hook, changed, rt);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&r->devices[i].lock, HDI_RANK_RECLAIM);
        atomic_init(&r->devices[i].free_bytes, UINT64_MAX);
    }
    rt->reclaim = r;
    return HD_OK;
}

void hdi_reclaim_release(hd_runtime *rt)
{
    struct hdi_reclaim *r = rt->reclaim;
    if (r) {
        for (int i = 0; i < HDI_DEVICES_MAX; i++) {
            hdi_mutex_destroy(&r->devices[i].lock);
        }
        hdi_hook_destroy(&r->hook);
        free(r);
        rt->reclaim = NULL;
    }
}

uint64_t hdi_reclaim_budget(hd_runtime *rt, hdi_device *device)
{
    uint64_t limit = hdi_arena_limit(device->arena);
    uint64_t free_bytes = atomic_load_explicit(&rt->reclaim->devices[device->index].free_bytes, memory_order_relaxed);
    uint64_t mapped = hdi_arena_mapped_bytes(device->arena);
    return free_bytes < limit && mapped + free_bytes < limit ? mapped + free_bytes : limit;
}

void hdi_reclaim_set_free(hd_runtime *rt, hdi_device *device, uint64_t bytes)
{
    atomic_store_explicit(&rt->reclaim->devices[device->index].free_bytes, bytes, memory_order_relaxed);
}

bool hdi_reclaim_possible(hd_runtime *rt)
{
    return !inside && atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL;
}

/* Bytes in blocks that are not freed. Magazines have taken theirs from the arena, but no buffer of the program uses them. */
static uint64_t live_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t taken = hdi_arena_taken_bytes(device->arena);
    uint64_t cached = hdi_thread_caches_cached(rt, device->index);
    return taken > cached ? taken - cached : 0;
}

/* Calls the callback, if there still is one. */
static bool call(hd_runtime *rt, hdi_device *device, hd_reclaim_reason reason, size_t wanted, unsigned attempt)
{
    struct hdi_reclaim *r = rt->reclaim;
    HDI_SIZED_TOLD(hd_reclaim)
    what = {.known = {.size = sizeof what.known,
                      .device = device->index,
                      .reason = reason,
                      .attempt = attempt,
                      .wanted = wanted,
                      .live_bytes = live_of(rt, device),
                      .reserved_bytes = hdi_arena_mapped_bytes(device->arena),
                      .limit_bytes = hdi_reclaim_budget(rt, device)}};
    bool freed = false;
    hdi_attempt calls; /* failures of the callback's own calls are not the allocation's */
    hdi_attempt_begin(&calls);
    hdi_installed *now = hdi_hook_enter(&r->hook);
    if (now) {
        inside = true;
        hdi_apart apart = hdi_presence_apart();
        freed = ((hd_reclaim_callback)now->function)(now->context, &what.known);
        hdi_presence_together(apart);
        inside = false;
        hdi_hook_leave(&r->hook, now);
    }
    hdi_attempt_end(&calls);
    return freed;
}

void hdi_reclaim_forbid(bool forbid)
{
    inside = forbid;
}

static double pressure_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t budget = hdi_reclaim_budget(rt, device);
    return budget ? (double)live_of(rt, device) / (double)budget : 1;
}

/* Whether the cost of the last calls leaves time for another one. */
static bool has_time(const hd_runtime *rt, const history *h, double pressure, bool about_to_block, int64_t now)
{
    double share = (double)rt->options.memory_reclaim / 100;
    share *= h->worthwhile ? 2 : 1;
    share *= about_to_block ? 2 : 1;
    share *= pressure > PRESSURE_HIGH ? 2 : 1;
    share *= pressure > PRESSURE_VERY_HIGH ? 2 : 1;
    share = share < SHARE_MOST ? share : SHARE_MOST;
    return h->last_end == 0 || h->cost_ns <= share * (double)(now - h->last_end);
}

void hdi_reclaim_early_now(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block)
{
    if (rt->options.memory_reclaim == 0 || !hdi_reclaim_possible(rt)) {
        return;
    }
    double pressure = pressure_of(rt, device);
    if (pressure < (about_to_block ? PRESSURE_LEAST_BLOCKING : PRESSURE_LEAST)) {
        return;
    }
    history *h = &rt->reclaim->devices[device->index];
    int64_t begin = hdi_clock_ns();
    hdi_mutex_lock(&h->lock);
    bool go = !h->running && has_time(rt, h, pressure, about_to_block, begin);
    h->running = h->running || go;
    hdi_mutex_unlock(&h->lock);
    if (!go) {
        return;
    }
    uint64_t before = live_of(rt, device);
    call(rt, device, HD_RECLAIM_EARLY, wanted, 0);
    uint64_t after = live_of(rt, device);
    int64_t end = hdi_clock_ns();
    double cost = (double)(end - begin);
    hdi_mutex_lock(&h->lock);
    h->cost_ns = h->last_end ? COST_MEMORY * h->cost_ns + (1 - COST_MEMORY) * cost : cost;
    h->worthwhile = before > after && (double)(before - after) > WORTHWHILE * (double)hdi_reclaim_budget(rt, device);
    h->last_end = end;
    h->running = false;
    hdi_mutex_unlock(&h->lock);
    hdi_counts_add(&device->memory->early_reclaims, 1);
    hdi_counts_add(&device->memory->early_reclaim_ns, (uint64_t)(end - begin));
}

bool hdi_reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt)
{
    if (!hdi_reclaim_possible(rt)) {
        return false;
    }
    int64_t begin = hdi_clock_ns();
    bool freed = call(rt, device, HD_RECLAIM_LIMIT, wanted, attempt);
    hdi_counts_add(&device->memory->limit_reclaims, 1);
    hdi_counts_add(&device->memory->limit_reclaim_ns, (uint64_t)(hdi_clock_ns() - begin));
    return freed;
}

hd_status hd_memory_on_reclaim(hd_runtime *rt, hd_reclaim_callback callback, void *context)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (inside) {
        return hdi_fail(HD_ERROR_ARGUMENT, "called from the callback itself");
    }
    return hdi_hook_install(&rt->reclaim->hook, (hdi_hooked)callback, context)
               ? HD_OK
               : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}
