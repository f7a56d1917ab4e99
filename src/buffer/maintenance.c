/* maintenance.c - looks after memory ahead of need, on a thread of its own.
 *
 *   - It maps more memory for a growing device whose free memory gets scarce, so that the program does not wait for it.
 *   - It gives back the idle granules of a device that has not grown for a while (option memory_idle). Magazines go first if nothing was
 *     allocated in that time either.
 *   - It publishes figures for other processes. It asks the driver for its free memory where there is a reclaim callback.
 *
 * Threads: one per runtime, started when memory is first allocated. It looks around four times a second, less often when nothing changes.
 * With placement=inline there is none: allocating threads publish figures, and the program does the rest.
 * Locks: a mutex for what is wanted, never held during a request.
 * Blocking: hdi_maintenance_stop, until the thread has ended; hd_memory_trim, for the driver.
 * Always: after hdi_maintenance_stop the thread makes no request.
 */
#include "buffer/maintenance.h"

#include <stdlib.h>
#include <time.h>
#include <heddle/memory.h>
#include "base/wait.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "buffer/reclaim.h"
#include "buffer/shrinker.h"
#include "engine/engine.h"
#include "memory/thread_cache.h"
#include "memory/host_pool.h"

#define TICK_NS ((int64_t)250000000)
#define SLEEP_NS ((int64_t)2000000000) /* when nothing has changed: magazines and pinned memory do not wake it */
#define ASK_DRIVER_NS ((int64_t)1000000000)
#define REFUSED_NS ((int64_t)2000000000)
#define RETURN_AT_ONCE                                                                                                 \
    ((size_t)256 << 20) /* so much is given back between two checks whether the program grows again */

typedef struct watched {
    bool wanted; /* growth is wanted; under the lock */
    uint64_t mapped_total, allocations;
    int64_t grew, allocated; /* clock of the last change of these */
    int64_t asked;           /* clock of the last request to the driver for its free memory */
} watched;

struct hdi_maintenance {
    hdi_mutex lock;
    pthread_cond_t wish;
    bool started, stop, woken;
    pthread_t thread;
    _Atomic int64_t published; /* clock of the last time; only with placement inline */
    watched devices[HDI_DEVICES_MAX];
};

hd_status hdi_maintenance_create(hd_runtime *rt)
{
    struct hdi_maintenance *k = calloc(1, sizeof *k);
    if (!k) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&k->lock, HDI_RANK_MAINTENANCE);
    hdi_cond_init(&k->wish);
    atomic_store_explicit(&rt->maintenance_asleep, true, memory_order_relaxed);
    rt->maintenance = k;
    return HD_OK;
}

void hdi_maintenance_stop(hd_runtime *rt)
{
    struct hdi_maintenance *k = rt->maintenance;
    if (!k) {
        return;
    }
    hdi_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->wish);
    bool join = k->started;
    k->started = false;
    hdi_mutex_unlock(&k->lock);
    if (join) {
        pthread_join(k->thread, NULL);
    }
}

void hdi_maintenance_release(hd_runtime *rt)
{
    struct hdi_maintenance *k = rt->maintenance;
    if (k) {
        pthread_cond_destroy(&k->wish);
        hdi_mutex_destroy(&k->lock);
        free(k);
        rt->maintenance = NULL;
    }
}

/* ---- the thread ---- */

static void grow(hdi_device *device)
{
    size_t mapped = hdi_arena_mapped_bytes(device->arena);
    size_t want = mapped >= HDI_MAINTENANCE_FROM ? hdi_maintenance_headroom(mapped) : 0;
    size_t have = hdi_arena_free_bytes(device->arena);
    if (have < want && atomic_load_explicit(&device->ahead_again, memory_order_relaxed) == 0 &&
        hdi_arena_grow_ahead(device->arena, want - have, NULL)) {
        /* The program gets the failure itself if it needs the memory. More requests now would only delay it. */
        atomic_store_explicit(&device->ahead_again, hdi_clock_ns() + REFUSED_NS, memory_order_relaxed);
    }
}

static void forget_refusal(hdi_device *device, int64_t now)
{
    int64_t again = atomic_load_explicit(&device->ahead_again, memory_order_relaxed);
    if (again != 0 && now >= again) {
        atomic_store_explicit(&device->ahead_again, 0, memory_order_relaxed);
    }
}

/* Gives back what is idle. False: nothing has changed for so long that the thread may sleep longer. */
static bool watch(hd_runtime *rt, hdi_device *device, watched *w, int64_t now)
{
    hdi_thread_cache_sums sums;
    hdi_thread_caches_sum(rt, device->index, &sums);
    uint64_t total = hdi_arena_mapped_total(device->arena);
    if (total != w->mapped_total || w->grew == 0) {
        w->mapped_total = total;
        w->grew = now;
    }
    if (sums.allocations != w->allocations || w->allocated == 0) {
        w->allocations = sums.allocations;
        w->allocated = now;
    }
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

static void ask_driver(hd_runtime *rt, hdi_device *device, watched *w, int64_t now)
{
    if (hdi_reclaim_possible(rt) && now - w->asked >= ASK_DRIVER_NS) {
        uint64_t free_bytes = 0;
        w->asked = now;
        if (hdi_answered(device->port->calls->memory_free(device->port, &free_bytes))) {
            hdi_reclaim_set_free(rt, device, free_bytes);
        }
    }
}

/* One round over the devices. Whether there is something to look at again soon. */
static bool look_around(hd_runtime *rt, const bool *wanted)
{
    struct hdi_maintenance *k = rt->maintenance;
    int64_t now = hdi_clock_ns();
    bool busy = false;
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_device *device = rt->devices[i];
        if (hdi_device_lost(device)) {
            continue;
        }
        forget_refusal(device, now);
        if (wanted[i]) {
            grow(device);
        }
        ask_driver(rt, device, &k->devices[i], now);
        busy |= watch(rt, device, &k->devices[i], now);
    }
    return !rt->on_tick(rt) || busy;
}

static void *run(void *context)
{
    hd_runtime *rt = context;
    struct hdi_maintenance *k = rt->maintenance;
    bool busy = true;
    hdi_mutex_lock(&k->lock);
    while (!k->stop) {
        bool wanted[HDI_DEVICES_MAX];
        for (int i = 0; i < rt->n_devices; i++) {
            wanted[i] = k->devices[i].wanted;
            k->devices[i].wanted = false;
        }
        k->woken = false;
        hdi_mutex_unlock(&k->lock);
        busy = look_around(rt, wanted);
        hdi_mutex_lock(&k->lock);
        if (k->woken || k->stop) {
            continue;
        }
        atomic_store_explicit(&rt->maintenance_asleep, !busy, memory_order_relaxed);
        int64_t until = hdi_clock_ns() + (busy ? TICK_NS : SLEEP_NS);
        hdi_cond_wait(&k->wish, &k->lock, until);
        atomic_store_explicit(&rt->maintenance_asleep, false, memory_order_relaxed);
    }
    hdi_mutex_unlock(&k->lock);
    return NULL;
}

/* With placement inline: on the thread that allocates. */
static void publish_at_times(hd_runtime *rt)
{
    struct hdi_maintenance *k = rt->maintenance;
    int64_t now = hdi_clock_ns();
    int64_t last = atomic_load_explicit(&k->published, memory_order_relaxed);
    if (now - last >= TICK_NS && atomic_compare_exchange_strong_explicit(&k->published, &last, now,
                                                                         memory_order_relaxed, memory_order_relaxed)) {
        rt->on_tick(rt);
    }
}

void hdi_maintenance_wake(hd_runtime *rt, hdi_device *device)
{
    struct hdi_maintenance *k = rt->maintenance;
    if (rt->is_inline) {
        publish_at_times(rt); /* no thread may be started */
        return;
    }
    hdi_mutex_lock(&k->lock);
    if (!k->devices[device->index].wanted || !k->woken) {
        k->devices[device->index].wanted = true;
        k->woken = true;
        if (!k->started && !k->stop) {
            k->started = hdi_thread_start(&k->thread, run, rt) == 0; /* else nothing is done ahead of need */
        }
        pthread_cond_signal(&k->wish);
    }
    hdi_mutex_unlock(&k->lock);
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
        hdi_engine_run_inline(rt->devices[i]); /* no other thread notices what is finished */
    }
    size_t returned = 0;
    hd_status status = HD_OK;
    if (device == HD_DEVICE_HOST) {
        hdi_shrink(rt);
        status = hdi_host_pool_trim(rt->host_pool, keep_bytes, &returned);
    } else {
        hdi_thread_caches_drain(rt, device);
        status = hdi_arena_trim(rt->devices[device]->arena, keep_bytes, SIZE_MAX, &returned);
    }
    if (freed) {
        *freed = returned;
    }
    return status;
}
