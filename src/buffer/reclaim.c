/* reclaim.c - steps when memory is scarce: the program's reclaim callback, the out-of-memory
 * fallback, and the maintenance thread ahead of need.
 *
 * The arena first tries mapped memory, idle granules and fresh memory up to the limit
 * (hdi_arena_alloc).
 * The fallback then tries these in order, with another allocation after each:
 *   - the magazines of all threads
 *   - waiting for the work in flight, and for freed pieces to come back (piece.c)
 *   - the program's callback, as long as it frees something
 *   - waiting for other threads, as long as they free something or work finishes (reclaim.h)
 *
 * This slows down a producer that is faster than its consumer.
 *
 * The rule for early calls of the callback comes from CUDA.jl (CUDACore/src/memory.jl,
 * maybe_collect).
 * They begin at a pressure of 0.75, or 0.50 if the thread is about to block.
 * Their share of time grows with the pressure, and after a call that freed much.
 * Here the share is measured per device. The limit follows the memory that other programs leave
 * free.
 *
 * The maintenance thread does three things:
 *   - It maps more memory for a growing device whose free memory gets scarce, so that the program
 *     does not wait for it.
 *   - It gives back the idle granules of a device that has not grown for a while (option
 *     memory_idle). If nothing was allocated in that time either, magazines go first. Pinned memory
 *     goes back in the same way.
 *   - It publishes figures for other processes. If there is a reclaim callback, it asks the driver
 *     for its free memory.
 *
 * Threads: any; one early call per device at a time. Each runtime uses one maintenance thread,
 * which starts with the first allocation. It looks around four times a second, or less often if
 * nothing changes.
 * With placement=inline there is none: allocating threads publish figures, and the program does the
 * rest.
 * Locks: the lock of the hook; one per device for its figures. A mutex for the tasks of the
 * maintenance thread. None is held during a call or a request.
 * Blocking: for the callback, and in the fallback as above: each of its two waits obeys the limit
 * of reclaim.h.
 * Stopping the maintenance thread waits until it has ended; hd_memory_trim waits for the driver.
 * Always: the callback does not run inside itself on one thread. One allocation calls it at most
 * CALLS_MOST times.
 * After its stop the maintenance thread makes no request.
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

/* ---- waits at a limit ---- */

#define SLEEP_LEAST_NS 50000
#define SLEEP_MOST_NS 1000000
#define SLEEP_SHARE 64        /* of the time since the last move */
#define ASK_AGAIN_NS 10000000 /* looking at all threads takes a lock */

hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt)
{
    int64_t now = hdi_clock_ns(), allowed = rt->options.memory_timeout * 1000000;
    return (hdi_memory_wait){
        .runtime = rt, .allowed = allowed, .begin = now, .moved = now, .asked = now - ASK_AGAIN_NS};
}

void hdi_memory_wait_moved(hdi_memory_wait *p)
{
    p->moved = hdi_clock_ns();
}

/* True if the wait used up its time in all, or the runtime is being closed. */
static bool memory_wait_is_too_long(const hdi_memory_wait *p)
{
    return hdi_is_closing(p->runtime) || hdi_clock_ns() - p->begin >= HDI_MEMORY_WAIT_TIMES * p->allowed;
}

/* True if something moved within the time of the option. */
static bool memory_wait_moves(const hdi_memory_wait *p)
{
    return hdi_clock_ns() - p->moved < p->allowed;
}

bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet)
{
    int64_t now = hdi_clock_ns();
    if (hdi_is_closing(p->runtime)) {
        p->end = HDI_MEMORY_WAIT_CLOSED;
    } else if (now - p->moved >= p->allowed) {
        p->end = HDI_MEMORY_WAIT_STILL;
    } else if (memory_wait_is_too_long(p)) {
        p->end = HDI_MEMORY_WAIT_LONG;
    } else if (quiet && now - p->asked >= ASK_AGAIN_NS) {
        p->asked = now;
        p->end = hdi_presence_has_others() ? HDI_MEMORY_WAIT_NONE : HDI_MEMORY_WAIT_ALONE;
    }
    return p->end != HDI_MEMORY_WAIT_NONE;
}

void hdi_memory_wait_sleep(const hdi_memory_wait *p)
{
    HDI_CALLER_WAITS();
    int64_t sleep_ns = (hdi_clock_ns() - p->moved) / SLEEP_SHARE;
    hdi_sleep_for(sleep_ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep_ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : sleep_ns);
}

const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT])
{
    char amount[HDI_AMOUNT_BYTES];
    uint64_t allowed = (uint64_t)p->allowed;
    out[0] = 0;
    switch (p->end) {
    case HDI_MEMORY_WAIT_NONE:
    case HDI_MEMORY_WAIT_CLOSED: /* the call's own text reports that */
        break;
    case HDI_MEMORY_WAIT_STILL:
        if (allowed == 0) {
            snprintf(out, HDI_MEMORY_WAIT_TEXT, "other threads were not waited for (option memory_timeout is 0)");
        } else {
            snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing was freed or finished for %s (option memory_timeout)",
                     hdi_duration_text(allowed, amount));
        }
        break;
    case HDI_MEMORY_WAIT_LONG:
        snprintf(out, HDI_MEMORY_WAIT_TEXT,
                 "others freed or finished something, but made no room in %s (%d times the option "
                 "memory_timeout)",
                 hdi_duration_text(HDI_MEMORY_WAIT_TIMES * allowed, amount), HDI_MEMORY_WAIT_TIMES);
        break;
    case HDI_MEMORY_WAIT_ALONE:
        snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing is unfinished, and no other thread uses the library");
        break;
    }
    return out;
}

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
    hook->current = next; /* from here on no thread enters the earlier one */
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
/* a call that freed more than this share of the maximum was worth its time */
#define WORTHWHILE 0.10
#define COST_MEMORY 0.75 /* weight of earlier calls in the average cost */

/* The record of a device's early calls. */
typedef struct history {
    hdi_mutex lock;
    bool running;
    bool worthwhile;  /* the last call */
    double cost_ns;   /* average of a call */
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

/* For the hook: a callback was installed, or removed. */
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

/* The most physical memory that a device's pool can hold now: its limit, or the sum of its own
 * memory and the driver's free memory. The latter is the maintenance thread's last figure; this
 * never asks the driver. */
static uint64_t reclaim_budget_of(hd_runtime *rt, hdi_device *device)
{
    uint64_t limit = hdi_arena_limit(device->arena);
    uint64_t free_bytes =
        atomic_load_explicit(&hdi_buffer_of(rt)->reclaim->devices[device->index].free_bytes, memory_order_relaxed);
    uint64_t mapped = hdi_arena_mapped_bytes(device->arena);
    return free_bytes < limit && mapped + free_bytes < limit ? mapped + free_bytes : limit;
}

/* For the maintenance thread: sets the driver's free memory on the device, without the pool's
 * own. */
static void reclaim_set_free(hd_runtime *rt, hdi_device *device, uint64_t bytes)
{
    atomic_store_explicit(&hdi_buffer_of(rt)->reclaim->devices[device->index].free_bytes, bytes, memory_order_relaxed);
}

/* True if a callback exists and this thread is not inside one. One load if none exists. */
static bool reclaim_is_possible(hd_runtime *rt)
{
    return !inside && atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL;
}

/* Bytes in blocks that are not freed. Excludes magazines, which took theirs from the arena without
 * a buffer of the program. */
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
    hdi_attempt calls; /* failures inside the callback are not failures of the allocation */
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

/* Runs the callback because an allocation fails otherwise. False: there is none, or it freed
 * nothing. */
static bool reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt)
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

/* ---- the out-of-memory fallback ---- */
/* most calls for one allocation, in case the callback always returns true */

#define CALLS_MOST 1000

typedef struct climb {
    hdi_device *device;
    size_t bytes;
    hdi_take take;
    void *context;        /* of `take` */
    bool possible;        /* no more bytes than the limit */
    bool hopeless;        /* the driver refused, and even all memory of the device is too little */
    hdi_memory_wait wait; /* of the wait for other threads; empty before that */
} climb;

static hd_status fallback_try_again(const climb *c)
{
    return c->take(c->device, c->bytes, c->context);
}

/* A number that changes when work finishes or memory is freed. It covers all devices, since all may
 * use this device's memory. */
static uint64_t fallback_look(const climb *c)
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

/* Stores the last submitted position of each lane in heads[n_devices * HDI_LANES_MAX]; 0 for lanes
 * that do not exist. */
static void fallback_note_heads(hd_runtime *rt, uint64_t *heads)
{
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            heads[d * HDI_LANES_MAX + (int)i] = hdi_lane_submitted(rt->devices[d], i);
        }
    }
}

/* True if work up to `heads` is unfinished. Requests completion from the lanes of such work. With
 * placement inline it runs the engines. */
static bool fallback_press(hd_runtime *rt, const uint64_t *heads)
{
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]);
    }
    bool unfinished = false;
    for (uint32_t i = 0; i < (uint32_t)rt->n_devices * HDI_LANES_MAX; i++) {
        if (heads[i] != 0 && !hdi_point_done(rt, (hdi_point){i, heads[i]})) {
            hdi_raise(&hdi_lane_shared_of(rt, i)->wanted_host, heads[i]);
            hdi_engine_notify(hdi_lane_owner(rt, i)->channel.engine, i % HDI_LANES_MAX);
            unfinished = true;
        }
    }
    return unfinished;
}

static hd_status fallback_drain_and_try(const climb *c)
{
    hd_runtime *rt = c->device->runtime;
    hdi_counts_add(&c->device->memory->drains, 1);
    hdi_thread_caches_drain(rt, c->device->index);
    hdi_record_add_rung(&rt->recorder, HDI_RECORD_RUNG_CACHES);
    if (rt->is_process) {
        /* a peer may have released memory that this device held before its restart */
        hdi_shares_reap(rt);
    }
    return fallback_try_again(c);
}

/* True if freed memory of the device will come back once its work is done. Acquire: pairs with the
 * release of hdi_memory_left, so the next look finds memory that came back. */
static bool fallback_memory_leaves(const climb *c)
{
    return atomic_load_explicit(&c->device->memory->leaving, memory_order_acquire) != 0;
}

/* True if no finished work and no hd_free can make room: the driver refused the last attempt, and
 * the device holds less than is wanted. */
static bool fallback_is_hopeless(const climb *c)
{
    hd_error error;
    hdi_arena_info info;
    hdi_error_get(&error);
    hdi_arena_get_info(c->device->arena, &info);
    return error.driver_code == HDCU_ERROR_OUT_OF_MEMORY && c->bytes > info.mapped_bytes;
}

/* Waits for the work in flight and for memory that leaves, or also for other threads. Tries again
 * whenever anything was freed or finished. */
static hd_status fallback_wait_for(climb *c, bool others)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t *heads = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *heads);
    if (!heads) {
        return HD_ERROR_MEMORY; /* the message is set */
    }
    uint64_t before = fallback_look(c);
    fallback_note_heads(rt, heads);
    hdi_memory_wait p = hdi_memory_wait_begin(rt);
    hd_status status = HD_ERROR_MEMORY;
    bool waited = false;
    for (;;) {
        bool working = fallback_press(rt, heads), leaving = fallback_memory_leaves(c);
        uint64_t seen = fallback_look(c);
        if (seen != before) {
            before = seen;
            hdi_memory_wait_moved(&p);
            status = fallback_try_again(c);
        }
        if (status != HD_ERROR_MEMORY || hdi_device_lost(c->device) ||
            (others ? hdi_memory_wait_over(&p, !working && !leaving)
                    : !(working || (leaving && memory_wait_moves(&p))) || memory_wait_is_too_long(&p))) {
            break;
        }
        waited = true;
        hdi_memory_wait_sleep(&p);
        if (hdi_thread_caches_cached(rt, c->device->index)) {
            /* another thread's hd_free usually puts a buffer there */
            hdi_thread_caches_drain(rt, c->device->index);
        }
    }
    free(heads);
    if (status == HD_ERROR_MEMORY && !hdi_device_lost(c->device)) {
        status = fallback_drain_and_try(c); /* for memory freed after the last try of this wait */
    }
    if (waited) {
        hdi_record_add_rung(&rt->recorder, HDI_RECORD_RUNG_WAITED);
        hdi_counts_add(&c->device->memory->waits, 1);
        hdi_counts_add(&c->device->memory->wait_ns, (uint64_t)(hdi_clock_ns() - p.begin));
    }
    c->wait = p;
    return status;
}

/* ---- the fallback's message ---- */

/* Writes a remedy for the program, or the reason why there is none. */
static void fallback_advise(const climb *c, char *out, size_t room)
{
    hd_runtime *rt = c->device->runtime;
    hdi_arena *arena = c->device->arena;
    hdi_thread_cache_sums sums;
    hdi_thread_caches_sum(rt, c->device->index, &sums);
    size_t limit = hdi_arena_limit(arena);
    bool is_device = limit >= c->device->facts.memory_bytes;
    /* by the driver */
    bool refused = c->possible && hdi_arena_mapped_bytes(arena) + c->bytes <= limit;
    bool frees = c->possible && !c->hopeless && sums.allocated_bytes > sums.freed_bytes;
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

/* Fails with the arena's message, the reason why the wait ended, a remedy, and the largest
 * holders. */
static hd_status fallback_fail_full(const climb *c)
{
    hd_error error;
    hdi_error_get(&error);
    char why[HDI_MEMORY_WAIT_TEXT], advice[320], text[sizeof error.message * 2];
    hdi_memory_wait_text(&c->wait, why);
    fallback_advise(c, advice, sizeof advice);
    int length = snprintf(text, sizeof text, "%s%s%s%s", error.message, why[0] ? "; " : "", why, advice);
    if (length > 0 && (size_t)length < sizeof error.message) {
        memcpy(error.message, text, (size_t)length + 1);
        hdi_buffer_of(c->device->runtime)
            ->on_full(c->device->runtime, c->device->index, error.message + length,
                      sizeof error.message - (size_t)length);
    }
    return hdi_fail_error(&error);
}

static hd_status fallback_climb(hdi_device *device, size_t bytes, hdi_take take, void *context)
{
    climb c = {.device = device, .bytes = bytes, .take = take, .context = context};
    hd_status status = fallback_drain_and_try(&c);
    c.possible = bytes <= hdi_arena_limit(device->arena);
    c.hopeless = status == HD_ERROR_MEMORY && fallback_is_hopeless(&c);
    if (status == HD_ERROR_MEMORY && c.possible && !c.hopeless) {
        status = fallback_wait_for(&c, false);
    }
    for (unsigned attempt = 0; status == HD_ERROR_MEMORY && attempt < CALLS_MOST && !hdi_is_closing(device->runtime);
         attempt++) {
        if (!reclaim_at_limit(device->runtime, device, bytes, attempt)) {
            break;
        }
        status = fallback_drain_and_try(&c);
        c.hopeless = status == HD_ERROR_MEMORY && fallback_is_hopeless(&c);
        if (status == HD_ERROR_MEMORY && c.possible && !c.hopeless) {
            status = fallback_wait_for(&c, false); /* freed memory may still be in use */
        }
    }
    if (status == HD_ERROR_MEMORY && c.possible && !c.hopeless) {
        status = fallback_wait_for(&c, true);
    }
    if (status == HD_ERROR_MEMORY && hdi_is_closing(device->runtime)) {
        return hdi_closed_meanwhile();
    }
    return status == HD_ERROR_MEMORY ? fallback_fail_full(&c) : status;
}

hd_status hdi_fallback(hdi_device *device, size_t bytes, hdi_take take, void *context)
{
    int64_t began = hdi_record_began(&device->runtime->recorder);
    hd_status status = fallback_climb(device, bytes, take, context);
    hdi_pause_end(&device->runtime->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_MEMORY, .device = (uint8_t)device->index, .bytes = bytes});
    return status;
}

/* ---- the maintenance thread ---- */

#define TICK_NS ((int64_t)250000000)
/* if nothing changed: magazines do not wake it, nor does freed pinned memory */
#define SLEEP_NS ((int64_t)2000000000)
#define ASK_DRIVER_NS ((int64_t)1000000000)
#define REFUSED_NS ((int64_t)2000000000)
#define RETURN_AT_ONCE ((size_t)256 << 20) /* bytes given back between two checks for new growth */

typedef struct watched {
    _Atomic bool wanted; /* growth is wanted */
    uint64_t mapped_total, allocations;
    int64_t grew, allocated; /* clock of the last change of these */
    int64_t asked;           /* clock of the last request to the driver for its free memory */
} watched;

struct hdi_maintenance {
    hdi_service thread;
    _Atomic int64_t published; /* clock of the last time; only with placement inline */
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
        /* The program gets the failure itself if it needs the memory. More requests now would only
         * delay it. */
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

/* The same for pinned memory. Chunks of transfers stay: they are few, and pinning them again would
 * delay a transfer. */
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

/* One round over the devices. True: look again soon. */
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
    bool wanted[HDI_DEVICES_MAX];
    for (int i = 0; i < rt->n_devices; i++) {
        /* Relaxed: the service's lock orders it after the request that woke the thread. */
        wanted[i] = atomic_exchange_explicit(&k->devices[i].wanted, false, memory_order_relaxed);
    }
    bool busy = maintenance_look_around(rt, wanted);
    atomic_store_explicit(asleep, !busy, memory_order_relaxed);
    return hdi_clock_ns() + (busy ? TICK_NS : SLEEP_NS);
}

/* With placement inline: on the thread that allocates. */
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

/* False: the thread cannot be started, so nothing happens ahead of need. */
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
        maintenance_publish(rt); /* inline, no thread may be started */
        return;
    }
    _Atomic bool *wanted = &k->devices[device->index].wanted;
    /* Relaxed: the service's lock publishes it. */
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
        return hdi_fail(HD_ERROR_NO_DEVICE, "device %d of %d", device, rt->n_devices);
    }
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]); /* no other thread notices finished work */
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
