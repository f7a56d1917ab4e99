/* reclaim.c - steps against scarce memory: early calls of the program's reclaim callback, and the
 * maintenance thread. limit.c describes the out-of-memory fallback.
 *
 * The rule for early calls of the callback comes from CUDA.jl (CUDACore/src/memory.jl,
 * maybe_collect).
 * Early calls begin at a pressure of 0.75, or of 0.50 if the thread is about to block. The pressure
 * is the device's memory in live blocks, divided by the most memory that the device can hold now.
 * The calls may take a certain share of all time. This share grows with the pressure, and after a
 * call that freed much. Unlike CUDA.jl, Heddle measures this share per device. Heddle also takes
 * into account the memory that other programs use.
 *
 * The maintenance thread does three things:
 * - It maps more memory for a growing device whose free memory gets scarce, so that the program
 *   does not wait for the driver.
 * - It gives back the idle granules of a device that did not grow for a while (option memory_idle).
 *   If there were also no allocations on the device during that time, the thread first empties the
 *   magazines. The thread also unpins idle pinned memory.
 * - It publishes figures for other processes. If a reclaim callback is set, it asks the driver how
 *   much memory is free.
 *
 * Threads: any; one early call per device runs at a time. Each runtime runs one maintenance thread,
 * which starts with the first allocation. The thread checks the memory four times a second, or less
 * often if nothing changes. With placement=inline there is no maintenance thread: allocating
 * threads publish the figures, and the program does the other tasks.
 * Locks: the lock of the hook (the callback's entry), one per device for its figures, and a mutex
 * for the tasks of the maintenance thread. No lock is held during a callback or a request.
 * Blocking: an early call waits for the callback.
 * Stopping the maintenance thread waits until it ends; hd_memory_trim waits for the driver.
 * Always: the callback never runs on a thread that is already inside it. After its stop the
 * maintenance thread makes no request.
 */
#include <heddle/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/presence.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/service.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/part.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"
#include "memory/host_pool.h"
#include "memory/part.h"
#include "memory/share.h"
#include "memory/thread_cache.h"

/* ---- callbacks of the program ---- */

void hdi_hook_init(hdi_hook *hook, void (*changed)(void *owner, bool there), void *owner)
{
    hdi_mutex_init(&hook->lock, HDI_RANK_HOOK);
    pthread_cond_init(&hook->ended, NULL);
    hook->current = NULL;
    hook->changed = changed;
    hook->owner = owner;
}

void hdi_hook_destroy(hdi_hook *hook)
{
    free(hook->current);
    pthread_cond_destroy(&hook->ended);
    hdi_mutex_destroy(&hook->lock);
}

bool hdi_hook_install(hdi_hook *hook, hdi_hooked function, void *context)
{
    hdi_installed *next = function ? malloc(sizeof *next) : NULL;
    if (function && !next) {
        return false;
    }
    if (next) {
        *next = (hdi_installed){function, context, 0};
    }
    hdi_mutex_lock(&hook->lock);
    hdi_installed *before = hook->current;
    hook->current = next; /* from here on no thread enters the earlier callback */
    if (hook->changed) {
        hook->changed(hook->owner, function != NULL);
    }
    while (before && before->calls != 0) {
        hdi_mutex_wait(&hook->lock, &hook->ended);
    }
    hdi_mutex_unlock(&hook->lock);
    free(before);
    return true;
}

hdi_installed *hdi_hook_enter(hdi_hook *hook)
{
    hdi_mutex_lock(&hook->lock);
    hdi_installed *now = hook->current;
    if (now) {
        now->calls++;
    }
    hdi_mutex_unlock(&hook->lock);
    return now;
}

void hdi_hook_leave(hdi_hook *hook, hdi_installed *called)
{
    hdi_mutex_lock(&hook->lock);
    if (--called->calls == 0 && called != hook->current) {
        pthread_cond_broadcast(&hook->ended);
    }
    hdi_mutex_unlock(&hook->lock);
}

/* ---- the reclaim callback ---- */

#define PRESSURE_LEAST 0.75
#define PRESSURE_LEAST_BLOCKING 0.50
#define PRESSURE_HIGH 0.90
#define PRESSURE_VERY_HIGH 0.95
#define SHARE_MOST 0.80
/* a call was worth its time if it freed more than this fraction of the most memory that the device
 * can hold */
#define WORTHWHILE 0.10
/* the weight of all earlier calls in the average cost; the latest call has the remaining weight */
#define COST_MEMORY 0.75

/* The history of the early calls for a device. */
typedef struct history {
    hdi_mutex lock;
    bool running;
    bool worthwhile;  /* the last call was worth its time */
    double cost_ns;   /* average cost of a call */
    int64_t last_end; /* clock; 0: none yet */
    /* free memory in the driver's last report; UINT64_MAX: no report yet */
    _Atomic uint64_t free_bytes;
} history;

struct hdi_reclaim {
    hdi_hook hook;
    history devices[HDI_DEVICES_MAX];
};

static _Thread_local bool inside;

static void reclaim_before_blocking(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_reclaim_early_now(rt, rt->devices[i], 0, true);
    }
}

/* Called by the hook when a callback was installed or removed. */
static void reclaim_hook_changed(void *owner, bool there)
{
    hd_runtime *rt = owner;
    atomic_store_explicit(&rt->on_block, there ? reclaim_before_blocking : NULL, memory_order_relaxed);
}

static hd_status reclaim_create(hd_runtime *rt)
{
    struct hdi_reclaim *r = calloc(1, sizeof *r);
    if (!r) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_hook_init(&r->hook, reclaim_hook_changed, rt);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&r->devices[i].lock, HDI_RANK_RECLAIM);
        atomic_init(&r->devices[i].free_bytes, UINT64_MAX);
    }
    hdi_buffer_of(rt)->reclaim = r;
    return HD_OK;
}

static void reclaim_release(hd_runtime *rt)
{
    struct hdi_reclaim *r = hdi_buffer_of(rt)->reclaim;
    if (r) {
        for (int i = 0; i < HDI_DEVICES_MAX; i++) {
            hdi_mutex_destroy(&r->devices[i].lock);
        }
        hdi_hook_destroy(&r->hook);
        free(r);
        hdi_buffer_of(rt)->reclaim = NULL;
    }
}

const hdi_lifetime hdi_reclaim_lifetime = {.create = reclaim_create, .release = reclaim_release};

/* The most physical memory that a device's arena can hold now. This is the arena's limit, or the
 * sum of its mapped memory and the driver's free memory if that sum is lower. The driver's free
 * memory is the last figure of the maintenance thread; this function never asks the driver. */
static uint64_t reclaim_budget_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t limit = hdi_arena_limit(device->arena);
    uint64_t free_bytes =
        atomic_load_explicit(&hdi_buffer_of(rt)->reclaim->devices[device->index].free_bytes, memory_order_relaxed);
    uint64_t mapped = hdi_arena_mapped_bytes(device->arena);
    return free_bytes < limit && mapped + free_bytes < limit ? mapped + free_bytes : limit;
}

/* For the maintenance thread: sets the figure for the driver's free memory of the device. */
static void reclaim_set_free(hd_runtime *rt, hdi_device *device, uint64_t bytes)
{
    atomic_store_explicit(&hdi_buffer_of(rt)->reclaim->devices[device->index].free_bytes, bytes, memory_order_relaxed);
}

/* True if a callback exists and this thread is not inside one. Without a callback, the function
 * costs one load. */
static bool reclaim_is_possible(hd_runtime *rt)
{
    return !inside && atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL;
}

/* The bytes in blocks that are not freed. Blocks in magazines do not count, since no buffer of the
 * program owns them. */
static uint64_t reclaim_live_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t taken = hdi_arena_taken_bytes(device->arena);
    uint64_t cached = hdi_thread_caches_cached(rt, device->index);
    return taken > cached ? taken - cached : 0;
}

/* Calls the callback, if it still exists. */
static bool reclaim_call(hd_runtime *rt, hdi_device *device, hd_reclaim_reason reason, size_t wanted, unsigned attempt)
{
    struct hdi_reclaim *r = hdi_buffer_of(rt)->reclaim;
    HDI_SIZED_TOLD(hd_reclaim)
    what = {.known = {.size = sizeof what.known,
                      .device = device->index,
                      .reason = reason,
                      .attempt = attempt,
                      .wanted = wanted,
                      .live_bytes = reclaim_live_of(rt, device),
                      .reserved_bytes = hdi_arena_mapped_bytes(device->arena),
                      .limit_bytes = reclaim_budget_of(rt, device)}};
    bool freed = false;
    /* failures inside the callback must not replace the message of the allocation */
    hdi_attempt calls;
    hdi_attempt_begin(&calls);
    hdi_installed *now = hdi_hook_enter(&r->hook);
    if (now) {
        int64_t began = hdi_record_began(&rt->recorder);
        inside = true;
        hdi_apart apart = hdi_presence_apart();
        freed = ((hd_reclaim_callback)now->function)(now->context, &what.known);
        hdi_presence_together(apart);
        inside = false;
        hdi_pause_end(
            &rt->recorder, began,
            (hdi_pause){.kind = HDI_RECORD_PAUSE_CALLBACK, .device = (uint8_t)device->index, .bytes = wanted});
        hdi_hook_leave(&r->hook, now);
    }
    hdi_attempt_end(&calls);
    return freed;
}

void hdi_reclaim_forbid(bool forbid)
{
    inside = forbid;
}

bool hdi_reclaim_is_inside(void)
{
    return inside;
}

static double reclaim_pressure_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t budget = reclaim_budget_of(rt, device);
    return budget ? (double)reclaim_live_of(rt, device) / (double)budget : 1;
}

/* True if the cost of the last calls leaves time for another one. */
static bool reclaim_has_time(const hd_runtime *rt, const history *h, double pressure, bool about_to_block, int64_t now)
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
    if (rt->options.memory_reclaim == 0 || !reclaim_is_possible(rt)) {
        return;
    }
    double pressure = reclaim_pressure_of(rt, device);
    if (wanted > hdi_arena_limit(device->arena)) {
        return; /* the allocation fails, whatever the callback frees */
    }
    if (pressure < (about_to_block ? PRESSURE_LEAST_BLOCKING : PRESSURE_LEAST)) {
        return;
    }
    history *h = &hdi_buffer_of(rt)->reclaim->devices[device->index];
    int64_t begin = hdi_clock_ns();
    hdi_mutex_lock(&h->lock);
    bool go = !h->running && reclaim_has_time(rt, h, pressure, about_to_block, begin);
    h->running = h->running || go;
    hdi_mutex_unlock(&h->lock);
    if (!go) {
        return;
    }
    uint64_t before = reclaim_live_of(rt, device);
    reclaim_call(rt, device, HD_RECLAIM_EARLY, wanted, 0);
    uint64_t after = reclaim_live_of(rt, device);
    int64_t end = hdi_clock_ns();
    double cost = (double)(end - begin);
    hdi_mutex_lock(&h->lock);
    h->cost_ns = h->last_end ? COST_MEMORY * h->cost_ns + (1 - COST_MEMORY) * cost : cost;
    h->worthwhile = before > after && (double)(before - after) > WORTHWHILE * (double)reclaim_budget_of(rt, device);
    h->last_end = end;
    h->running = false;
    hdi_mutex_unlock(&h->lock);
    hdi_counts_add(&device->memory->early_reclaims, 1);
    hdi_counts_add(&device->memory->early_reclaim_ns, (uint64_t)(end - begin));
}

bool hdi_reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt)
{
    if (!reclaim_is_possible(rt)) {
        return false;
    }
    int64_t begin = hdi_clock_ns();
    bool freed = reclaim_call(rt, device, HD_RECLAIM_LIMIT, wanted, attempt);
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
    return hdi_hook_install(&hdi_buffer_of(rt)->reclaim->hook, (hdi_hooked)callback, context)
               ? HD_OK
               : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}

/* ---- the maintenance thread ---- */

#define TICK_NS ((int64_t)250000000)
/* the longest sleep if nothing changed; frees into magazines, and frees of pinned memory, do not
 * wake the thread */
#define SLEEP_NS ((int64_t)2000000000)
#define ASK_DRIVER_NS ((int64_t)1000000000)
#define REFUSED_NS ((int64_t)2000000000)
/* between two checks whether the device grows again, at most this many bytes are given back */
#define RETURN_AT_ONCE ((size_t)256 << 20)

typedef struct watched {
    _Atomic bool wanted; /* growth is wanted */
    uint64_t mapped_total, allocations;
    /* clock of the last change of the mapped total, and of the number of allocations */
    int64_t grew, allocated;
    int64_t asked; /* clock of the last request to the driver for its free memory */
} watched;

struct hdi_maintenance {
    hdi_service thread;
    _Atomic int64_t published; /* clock time of the last publication; only with placement inline */
    watched devices[HDI_DEVICES_MAX];
    watched pinned;
};

static int64_t maintenance_run(void *context);

static hd_status maintenance_create(hd_runtime *rt)
{
    struct hdi_maintenance *k = calloc(1, sizeof *k);
    if (!k) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_service_init(&k->thread, maintenance_run, rt);
    atomic_store_explicit(&hdi_buffer_of(rt)->maintenance_asleep, true, memory_order_relaxed);
    hdi_buffer_of(rt)->maintenance = k;
    return HD_OK;
}

static void maintenance_stop(hd_runtime *rt)
{
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    if (k) {
        hdi_service_stop(&k->thread);
    }
}

static void maintenance_release(hd_runtime *rt)
{
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    if (k) {
        hdi_service_destroy(&k->thread);
        free(k);
        hdi_buffer_of(rt)->maintenance = NULL;
    }
}

const hdi_lifetime hdi_maintenance_lifetime = {
    .create = maintenance_create, .stop = maintenance_stop, .release = maintenance_release};

/* ---- the thread ---- */

static void maintenance_grow(hdi_device *device)
{
    size_t mapped = hdi_arena_mapped_bytes(device->arena);
    size_t want = mapped >= HDI_MAINTENANCE_FROM ? hdi_maintenance_headroom(mapped) : 0;
    size_t have = hdi_arena_free_bytes(device->arena);
    if (have < want && atomic_load_explicit(&device->ahead_again, memory_order_relaxed) == 0 &&
        hdi_arena_grow_ahead(device->arena, want - have, NULL)) {
        /* This failure is not reported: if the program needs the memory, its own allocation fails.
         * The thread does not ask again for some time, since more requests would only delay the
         * program. */
        atomic_store_explicit(&device->ahead_again, hdi_clock_ns() + REFUSED_NS, memory_order_relaxed);
    }
}

static void maintenance_forget_refusal(hdi_device *device, int64_t now)
{
    int64_t again = atomic_load_explicit(&device->ahead_again, memory_order_relaxed);
    if (again != 0 && now >= again) {
        atomic_store_explicit(&device->ahead_again, 0, memory_order_relaxed);
    }
}

/* Notes the mapped total and the number of allocations of a kind of memory. */
static void maintenance_note(watched *w, uint64_t mapped_total, uint64_t allocations, int64_t now)
{
    if (mapped_total != w->mapped_total || w->grew == 0) {
        w->mapped_total = mapped_total;
        w->grew = now;
    }
    if (allocations != w->allocations || w->allocated == 0) {
        w->allocations = allocations;
        w->allocated = now;
    }
}

/* Gives idle memory back. False: nothing changed for so long that the thread may sleep longer. */
static bool maintenance_watch(hd_runtime *rt, hdi_device *device, watched *w, int64_t now)
{
    hdi_thread_cache_sums sums;
    hdi_thread_caches_sum(rt, device->index, &sums);
    maintenance_note(w, hdi_arena_mapped_total(device->arena), sums.allocations, now);
    int64_t idle = rt->options.memory_idle * 1000000;
    bool returning = idle != 0 && hdi_arena_mapped_bytes(device->arena) != 0;
    if (returning && now - w->grew >= idle) {
        if (now - w->allocated >= idle) {
            hdi_thread_caches_drain(rt, device->index);
        }
        size_t keep = now - w->allocated >= idle ? 0 : hdi_maintenance_headroom(hdi_arena_mapped_bytes(device->arena));
        size_t returned = 0;
        hdi_arena_trim(device->arena, keep, RETURN_AT_ONCE, &returned);
        return returned != 0 || now - w->allocated < idle;
    }
    return returning || now - w->allocated < TICK_NS;
}

/* Gives idle pinned memory back at a time when unpinning holds up no work. Does not unpin the
 * chunks of transfers: they are few, and pinning them again would delay a transfer. */
static bool maintenance_watch_pinned(hd_runtime *rt, watched *w, int64_t now)
{
    hdi_host_pool *pool = hdi_memory_of(rt)->host_pool;
    hdi_host_pool_info info;
    int64_t idle = rt->options.memory_idle * 1000000;
    if (pool == NULL) {
        return false; /* hd_open still runs */
    }
    hdi_host_pool_get_info(pool, &info);
    maintenance_note(w, info.pinned_bytes, info.allocations, now);
    if (idle == 0 || info.reserved_bytes == 0 || now - w->grew < idle) {
        return idle != 0 && info.reserved_bytes != 0;
    }
    uint64_t keep = now - w->allocated >= idle ? 0 : hdi_maintenance_headroom(info.reserved_bytes);
    uint64_t most = info.idle_bytes > RETURN_AT_ONCE ? info.idle_bytes - RETURN_AT_ONCE : 0, returned = 0;
    if (info.idle_bytes > keep) {
        hdi_host_pool_trim(pool, keep > most ? keep : most, &returned);
        if (returned == 0) {
            return true; /* try again later, when unpinning holds up no work */
        }
    }
    return returned != 0 || now - w->allocated < idle;
}

static void maintenance_ask_driver(hd_runtime *rt, hdi_device *device, watched *w, int64_t now)
{
    if (reclaim_is_possible(rt) && now - w->asked >= ASK_DRIVER_NS) {
        uint64_t free_bytes = 0;
        w->asked = now;
        if (hdi_answered(device->port->calls->memory_free(device->port, &free_bytes))) {
            reclaim_set_free(rt, device, free_bytes);
        }
    }
}

/* One round over the devices. True: the thread should check again soon. */
static bool maintenance_look_around(hd_runtime *rt, const bool *wanted)
{
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    int64_t now = hdi_clock_ns();
    bool busy = false;
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_device *device = rt->devices[i];
        if (hdi_device_lost(device)) {
            continue;
        }
        maintenance_forget_refusal(device, now);
        if (wanted[i]) {
            maintenance_grow(device);
        }
        maintenance_ask_driver(rt, device, &k->devices[i], now);
        busy |= maintenance_watch(rt, device, &k->devices[i], now);
    }
    busy |= maintenance_watch_pinned(rt, &k->pinned, now);
    return !hdi_buffer_of(rt)->on_tick(rt) || busy;
}

static int64_t maintenance_run(void *context)
{
    hd_runtime *rt = context;
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    _Atomic bool *asleep = &hdi_buffer_of(rt)->maintenance_asleep;
    atomic_store_explicit(asleep, false, memory_order_relaxed);
    bool wanted[HDI_DEVICES_MAX] = {false};
    for (int i = 0; i < rt->n_devices; i++) {
        /* Relaxed: the service's lock orders this exchange after the request that woke the
         * thread. */
        wanted[i] = atomic_exchange_explicit(&k->devices[i].wanted, false, memory_order_relaxed);
    }
    bool busy = maintenance_look_around(rt, wanted);
    atomic_store_explicit(asleep, !busy, memory_order_relaxed);
    return hdi_clock_ns() + (busy ? TICK_NS : SLEEP_NS);
}

/* Publishes figures on the thread that allocates, with placement inline. */
static void maintenance_publish(hd_runtime *rt)
{
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    int64_t now = hdi_clock_ns();
    int64_t last = atomic_load_explicit(&k->published, memory_order_relaxed);
    if (now - last >= TICK_NS && atomic_compare_exchange_strong_explicit(&k->published, &last, now,
                                                                         memory_order_relaxed, memory_order_relaxed)) {
        hdi_buffer_of(rt)->on_tick(rt);
    }
}

/* False: the thread cannot be started, so no memory is managed ahead of need. */
static bool maintenance_wake_thread(struct hdi_maintenance *k)
{
    bool runs = hdi_service_start(&k->thread);
    if (runs) {
        hdi_service_wake(&k->thread);
    }
    return runs;
}

void hdi_maintenance_wake(hd_runtime *rt, hdi_device *device)
{
    struct hdi_maintenance *k = hdi_buffer_of(rt)->maintenance;
    if (rt->is_inline) {
        maintenance_publish(rt); /* with placement inline no thread may be started */
        return;
    }
    _Atomic bool *wanted = &k->devices[device->index].wanted;
    /* Relaxed: the service's lock publishes the request. */
    if (!atomic_exchange_explicit(wanted, true, memory_order_relaxed) && !maintenance_wake_thread(k)) {
        /* the next request tries again */
        atomic_store_explicit(wanted, false, memory_order_relaxed);
    }
}

void hdi_maintenance_look_at_pinned(hd_runtime *rt)
{
    _Atomic bool *asleep = &hdi_buffer_of(rt)->maintenance_asleep;
    if (!rt->is_inline && atomic_exchange_explicit(asleep, false, memory_order_relaxed)) {
        maintenance_wake_thread(hdi_buffer_of(rt)->maintenance);
    }
}

/* ---- hd_memory_trim ---- */

hd_status hd_memory_trim(hd_runtime *rt, int device, size_t keep_bytes, size_t *freed)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (device < HD_DEVICE_HOST || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        /* with placement inline no other thread notices finished work */
        hdi_engine_run_inline(rt->devices[i]);
    }
    size_t returned = 0;
    hd_status status = HD_OK;
    if (device == HD_DEVICE_HOST) {
        hdi_shrink(rt);
        status = hdi_host_pool_trim(hdi_memory_of(rt)->host_pool, keep_bytes, &returned);
    } else {
        hdi_thread_caches_drain(rt, device);
        status = hdi_arena_trim(rt->devices[device]->arena, keep_bytes, SIZE_MAX, &returned);
    }
    if (freed) {
        *freed = returned;
    }
    return status;
}
