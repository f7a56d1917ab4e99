/* thread_cache.c - the cache of each thread: its creation, look-up, drain and end. The usual path
 * is inline in thread_cache.h.
 *
 * A cache belongs to two owners: its thread, and the list of the runtime. The thread drops its
 * cache when the thread ends, or when it finds the runtime closed. The list drops the cache when
 * the thread ends, or when the runtime is closed. The owner that drops the cache last frees it.
 *
 * Threads, locks, blocking, and guarantees: see thread_cache.h.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "memory/part.h"
#include "memory/thread_cache.h"

struct hdi_thread_caches {
    hdi_thread_caches_config config;
    hdi_mutex lock;
    hdi_thread_cache *first;
    uint32_t made;
    int count;
    /* calls of hdi_thread_caches_close, less those of hdi_thread_caches_open */
    uint32_t closings[HDI_DEVICES_MAX];
    /* Counts of threads that ended, and of threads without a cache. */
    hdi_thread_cache_counts ended[HDI_DEVICES_MAX];
};

_Thread_local hdi_thread_cache *hdi_thread_cache_own_first;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static int own_error;

/* ---- one cache ---- */

bool hdi_thread_cache_add_lane(hdi_thread_cache *cache, uint32_t lane)
{
    bool closed = cache->closed >> (lane / HDI_LANES_MAX) & 1;
    hdi_lane_cache *of_lane = closed ? NULL : calloc(1, sizeof *of_lane);
    if (!of_lane) {
        return false;
    }
    for (uint32_t size_class = 0; size_class < HDI_CLASSES; size_class++) {
        size_t fit = HDI_MAGAZINE_BYTES / hdi_class_bytes(size_class);
        fit = fit < 2 ? 2 : fit;
        of_lane->magazines[size_class].most = (uint32_t)(fit < HDI_MAGAZINE_ITEMS ? fit : HDI_MAGAZINE_ITEMS);
    }
    cache->lanes[lane] = of_lane;
    return true;
}

hdi_item *hdi_thread_cache_take_half(hdi_thread_cache *cache, uint32_t lane, uint32_t size_class)
{
    hdi_lane_cache *of_lane = cache->lanes[lane];
    hdi_magazine *m = of_lane ? &of_lane->magazines[size_class] : NULL;
    if (!m || m->count == 0) {
        return NULL;
    }
    uint32_t keep = m->count / 2;
    hdi_item **link = &m->top;
    for (uint32_t i = 0; i < keep; i++) {
        link = &(*link)->next;
    }
    hdi_item *half = *link;
    *link = NULL;
    size_t bytes = (m->count - keep) * hdi_class_bytes(size_class);
    m->count = keep;
    cache->cached_bytes -= bytes;
    hdi_count(&cache->counts[lane / HDI_LANES_MAX].cached_bytes, -(uint64_t)bytes);
    return half;
}

static void thread_cache_count_large(hdi_thread_cache *cache, const hdi_item *item, size_t bytes)
{
    cache->large_bytes += bytes;
    hdi_count(&cache->counts[item->lane / HDI_LANES_MAX].cached_bytes, bytes);
    hdi_count(&cache->counts[item->lane / HDI_LANES_MAX].large_bytes, bytes);
}

bool hdi_thread_cache_put_large(hdi_thread_cache *cache, hdi_item *item)
{
    if (item->bytes > HDI_LARGE_BYTES / 4 || cache->large_bytes + item->bytes > HDI_LARGE_BYTES ||
        cache->n_leaving == HDI_LEAVING_ITEMS ||
        (!cache->lanes[item->lane] && !hdi_thread_cache_add_lane(cache, item->lane))) {
        return false;
    }
    hdi_lane_cache *of_lane = cache->lanes[item->lane];
    if (of_lane->large) {
        of_lane->large->next = cache->leaving;
        cache->leaving = of_lane->large;
        cache->n_leaving++;
    }
    of_lane->large = item;
    thread_cache_count_large(cache, item, item->bytes);
    return true;
}

hdi_item *hdi_thread_cache_take_leaving(hdi_thread_cache *cache)
{
    hdi_item *all = cache->leaving;
    for (hdi_item *item = all; item; item = item->next) {
        thread_cache_count_large(cache, item, -item->bytes);
    }
    cache->leaving = NULL;
    cache->n_leaving = 0;
    return all;
}

/* Takes the items of one device out of `leaving`, in front of `list`. */
static hdi_item *thread_cache_take_leaving_of(hdi_thread_cache *cache, int device, hdi_item *list)
{
    for (hdi_item **link = &cache->leaving; *link;) {
        hdi_item *item = *link;
        if (item->lane / HDI_LANES_MAX == (uint32_t)device) {
            *link = item->next;
            cache->n_leaving--;
            thread_cache_count_large(cache, item, -item->bytes);
            item->next = list;
            list = item;
        } else {
            link = &item->next;
        }
    }
    return list;
}

/* Takes all items of a device out of a cache, or only the large blocks. Called inside, or on a
 * visit. */
static hdi_item *thread_cache_take_all(hdi_thread_cache *cache, int device, bool only_large)
{
    hdi_item *all = thread_cache_take_leaving_of(cache, device, NULL);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_lane_cache *of_lane = cache->lanes[(uint32_t)device * HDI_LANES_MAX + i];
        if (of_lane && of_lane->large) {
            hdi_item *item =
                hdi_thread_cache_take_large(cache, (uint32_t)device * HDI_LANES_MAX + i, of_lane->large->bytes);
            item->next = all;
            all = item;
        }
        for (uint32_t size_class = 0; of_lane && !only_large && size_class < HDI_CLASSES; size_class++) {
            hdi_magazine *m = &of_lane->magazines[size_class];
            while (m->top) {
                hdi_item *item = m->top;
                m->top = item->next;
                item->next = all;
                all = item;
                cache->cached_bytes -= hdi_class_bytes(size_class);
            }
            m->count = 0;
        }
    }
    if (!only_large) {
        atomic_store_explicit(&cache->counts[device].cached_bytes, 0, memory_order_relaxed);
    }
    return all;
}

/* Removes one owner of a cache. If this was the last owner, frees the cache. */
static void thread_cache_drop(hdi_thread_cache *cache)
{
    /* acq_rel: the thread that frees the cache sees all that the other owner did with the cache. */
    if (atomic_fetch_sub_explicit(&cache->owners, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < cache->n_lanes; i++) {
        free(cache->lanes[i]);
    }
    hdi_biased_destroy(&cache->lock);
    free(cache->lanes);
    free(cache->counts);
    free(cache);
}

static hdi_thread_cache *thread_cache_new(hd_runtime *rt)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    uint32_t n_lanes = (uint32_t)rt->n_devices * HDI_LANES_MAX;
    hdi_thread_cache *cache = calloc(1, sizeof *cache);
    hdi_lane_cache **lanes = calloc(n_lanes, sizeof *lanes);
    hdi_thread_cache_counts *counts = calloc((size_t)rt->n_devices, sizeof *counts);
    if (!cache || !lanes || !counts) {
        free(cache);
        free(lanes);
        free(counts);
        return NULL;
    }
    hdi_biased_init(&cache->lock);
    atomic_init(&cache->owners, 2);
    cache->runtime_id = rt->id;
    cache->n_lanes = n_lanes;
    cache->n_devices = rt->n_devices;
    cache->lanes = lanes;
    cache->counts = counts;
    hdi_mutex_lock(&caches->lock);
    cache->number = ++caches->made;
    for (int d = 0; d < rt->n_devices; d++) {
        cache->closed |= (uint64_t)(caches->closings[d] != 0) << d;
    }
    cache->next = caches->first;
    caches->first = cache;
    caches->count++;
    hdi_mutex_unlock(&caches->lock);
    return cache;
}

/* ---- the calling thread's caches ---- */

static void thread_cache_add_counts(hdi_thread_cache_counts *to, const hdi_thread_cache_counts *from)
{
    /* The caller holds the list's lock, so no other thread writes `to`. */
    hdi_count(&to->allocations, atomic_load_explicit(&from->allocations, memory_order_relaxed));
    hdi_count(&to->frees, atomic_load_explicit(&from->frees, memory_order_relaxed));
    hdi_count(&to->from_magazine, atomic_load_explicit(&from->from_magazine, memory_order_relaxed));
    hdi_count(&to->frees_elsewhere, atomic_load_explicit(&from->frees_elsewhere, memory_order_relaxed));
    hdi_count(&to->allocated_bytes, atomic_load_explicit(&from->allocated_bytes, memory_order_relaxed));
    hdi_count(&to->freed_bytes, atomic_load_explicit(&from->freed_bytes, memory_order_relaxed));
}

/* Called at a thread's end: adds its counts to those of ended threads, and gives its items back. */
static void thread_cache_leave_runtime(hd_runtime *rt, void *context)
{
    hdi_thread_cache *cache = context;
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    hdi_mutex_lock(&caches->lock);
    for (hdi_thread_cache **link = &caches->first; *link; link = &(*link)->next) {
        if (*link == cache) {
            *link = cache->next;
            caches->count--;
            break;
        }
    }
    for (int d = 0; d < cache->n_devices; d++) {
        thread_cache_add_counts(&caches->ended[d], &cache->counts[d]);
    }
    hdi_mutex_unlock(&caches->lock);
    /* No other thread can reach the cache any more. */
    for (int d = 0; d < cache->n_devices; d++) {
        hdi_item *items = thread_cache_take_all(cache, d, false);
        if (items) {
            caches->config.release(caches->config.context, d, items);
        }
    }
    thread_cache_drop(cache); /* on behalf of the list */
}

static void thread_cache_thread_ends(void *first)
{
    /* The pointer is cleared first, so that items released below do not go back into a cache that
     * ends. */
    hdi_thread_cache_own_first = NULL;
    for (hdi_thread_cache *cache = first, *next; cache; cache = next) {
        next = cache->next_own;
        hdi_runtime_with(cache->runtime_id, thread_cache_leave_runtime, cache);
        thread_cache_drop(cache);
    }
}

static void thread_cache_make_key(void)
{
    own_error = hdi_thread_key(&own_key, thread_cache_thread_ends);
}

static void thread_cache_do_nothing(hd_runtime *rt, void *context)
{
    (void)rt;
    (void)context;
}

hdi_thread_cache *hdi_thread_cache_find(hd_runtime *rt)
{
    pthread_once(&own_once, thread_cache_make_key);
    if (own_error) {
        return NULL;
    }
    hdi_thread_cache *found = NULL;
    for (hdi_thread_cache **link = &hdi_thread_cache_own_first; *link;) {
        hdi_thread_cache *cache = *link;
        if (cache->runtime_id == rt->id) {
            *link = cache->next_own;
            found = cache;
        } else if (hdi_runtime_with(cache->runtime_id, thread_cache_do_nothing, NULL)) {
            link = &cache->next_own;
        } else {
            *link = cache->next_own; /* the runtime of this cache is closed */
            thread_cache_drop(cache);
        }
    }
    if (!found) {
        found = thread_cache_new(rt);
    }
    if (found) {
        found->next_own = hdi_thread_cache_own_first;
        hdi_thread_cache_own_first = found;
    }
    pthread_setspecific(own_key, hdi_thread_cache_own_first);
    return found;
}

/* ---- all caches of a runtime ---- */

hd_status hdi_thread_caches_create(hd_runtime *rt, const hdi_thread_caches_config *config)
{
    struct hdi_thread_caches *caches = calloc(1, sizeof *caches);
    if (!caches) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    caches->config = *config;
    hdi_mutex_init(&caches->lock, HDI_RANK_CACHES);
    hdi_memory_of(rt)->caches = caches;
    return HD_OK;
}

void hdi_thread_caches_destroy(hd_runtime *rt)
{
    if (!hdi_memory_of(rt)->caches) {
        return;
    }
    for (hdi_thread_cache *cache = hdi_memory_of(rt)->caches->first, *next; cache; cache = next) {
        next = cache->next;
        thread_cache_drop(cache);
    }
    hdi_mutex_destroy(&hdi_memory_of(rt)->caches->lock);
    free(hdi_memory_of(rt)->caches);
    hdi_memory_of(rt)->caches = NULL;
}

/* Puts a list of items in front of another list. */
static hdi_item *thread_cache_join_items(hdi_item *items, hdi_item *all)
{
    while (items) {
        hdi_item *next = items->next;
        items->next = all;
        all = items;
        items = next;
    }
    return all;
}

/* Gives back all items of a device in all caches, or only the large blocks. Returns true if it
 * found an item. */
static bool thread_cache_drain(hd_runtime *rt, int device, bool only_large)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    hdi_item *all = NULL;
    if (!caches) {
        return false;
    }
    hdi_mutex_lock(&caches->lock);
    for (hdi_thread_cache *cache = caches->first; cache; cache = cache->next) {
        if (only_large && atomic_load_explicit(&cache->counts[device].large_bytes, memory_order_relaxed) == 0) {
            /* the cache contains no large block; a block that its thread puts there at this moment
             * may stay */
            continue;
        }
        hdi_biased_visit(&cache->lock);
        hdi_item *items = thread_cache_take_all(cache, device, only_large);
        hdi_biased_end_visit(&cache->lock);
        all = thread_cache_join_items(items, all);
    }
    hdi_mutex_unlock(&caches->lock);
    if (all) {
        caches->config.release(caches->config.context, device, all);
    }
    return all != NULL;
}

void hdi_thread_caches_drain(hd_runtime *rt, int device)
{
    thread_cache_drain(rt, device, false);
}

bool hdi_thread_caches_drain_large(hd_runtime *rt, int device)
{
    return thread_cache_drain(rt, device, true);
}

/* Removes the magazines of a device, which are empty. The next hdi_thread_cache_put then asks for
 * new magazines, and is refused. Called on a visit. */
static void thread_cache_close(hdi_thread_cache *cache, int device)
{
    cache->closed |= (uint64_t)1 << device;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_lane_cache **of_lane = &cache->lanes[(uint32_t)device * HDI_LANES_MAX + i];
        free(*of_lane);
        *of_lane = NULL;
    }
}

void hdi_thread_caches_close(hd_runtime *rt, int device)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    hdi_item *all = NULL;
    hdi_mutex_lock(&caches->lock);
    bool first = caches->closings[device]++ == 0;
    for (hdi_thread_cache *cache = caches->first; first && cache; cache = cache->next) {
        hdi_biased_visit(&cache->lock);
        hdi_item *items = thread_cache_take_all(cache, device, false);
        thread_cache_close(cache, device);
        hdi_biased_end_visit(&cache->lock);
        all = thread_cache_join_items(items, all);
    }
    hdi_mutex_unlock(&caches->lock);
    if (all) {
        caches->config.release(caches->config.context, device, all);
    }
}

void hdi_thread_caches_open(hd_runtime *rt, int device)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    hdi_mutex_lock(&caches->lock);
    bool last = --caches->closings[device] == 0;
    for (hdi_thread_cache *cache = caches->first; last && cache; cache = cache->next) {
        hdi_biased_visit(&cache->lock);
        cache->closed &= ~((uint64_t)1 << device);
        hdi_biased_end_visit(&cache->lock);
    }
    hdi_mutex_unlock(&caches->lock);
}

void hdi_thread_caches_freeze(hd_runtime *rt)
{
    hdi_mutex_lock(&hdi_memory_of(rt)->caches->lock);
    for (hdi_thread_cache *cache = hdi_memory_of(rt)->caches->first; cache; cache = cache->next) {
        hdi_biased_visit(&cache->lock);
    }
}

void hdi_thread_caches_thaw(hd_runtime *rt)
{
    for (hdi_thread_cache *cache = hdi_memory_of(rt)->caches->first; cache; cache = cache->next) {
        hdi_biased_end_visit(&cache->lock);
    }
    hdi_mutex_unlock(&hdi_memory_of(rt)->caches->lock);
}

static void thread_cache_add_sums(hdi_thread_cache_sums *sums, const hdi_thread_cache_counts *c)
{
    sums->allocations += atomic_load_explicit(&c->allocations, memory_order_relaxed);
    sums->frees += atomic_load_explicit(&c->frees, memory_order_relaxed);
    sums->from_magazine += atomic_load_explicit(&c->from_magazine, memory_order_relaxed);
    sums->frees_elsewhere += atomic_load_explicit(&c->frees_elsewhere, memory_order_relaxed);
    sums->allocated_bytes += atomic_load_explicit(&c->allocated_bytes, memory_order_relaxed);
    sums->freed_bytes += atomic_load_explicit(&c->freed_bytes, memory_order_relaxed);
    sums->cached_bytes += atomic_load_explicit(&c->cached_bytes, memory_order_relaxed);
}

void hdi_thread_caches_sum(hd_runtime *rt, int device, hdi_thread_cache_sums *out)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    *out = (hdi_thread_cache_sums){0};
    hdi_mutex_lock(&caches->lock);
    thread_cache_add_sums(out, &caches->ended[device]);
    for (hdi_thread_cache *cache = caches->first; cache; cache = cache->next) {
        thread_cache_add_sums(out, &cache->counts[device]);
    }
    hdi_mutex_unlock(&caches->lock);
}

uint64_t hdi_thread_caches_cached(hd_runtime *rt, int device)
{
    uint64_t bytes = 0;
    hdi_mutex_lock(&hdi_memory_of(rt)->caches->lock);
    for (hdi_thread_cache *cache = hdi_memory_of(rt)->caches->first; cache; cache = cache->next) {
        bytes += atomic_load_explicit(&cache->counts[device].cached_bytes, memory_order_relaxed);
    }
    hdi_mutex_unlock(&hdi_memory_of(rt)->caches->lock);
    return bytes;
}

static void thread_cache_add_leaving(const hdi_thread_cache *cache, int device, uint64_t *bytes, uint64_t *items)
{
    for (const hdi_item *item = cache->leaving; item; item = item->next) {
        if (item->lane / HDI_LANES_MAX == (uint32_t)device) {
            items[item->lane % HDI_LANES_MAX]++;
            bytes[item->lane % HDI_LANES_MAX] += item->bytes;
        }
    }
}

void hdi_thread_caches_lanes(hd_runtime *rt, int device, uint64_t *bytes, uint64_t *items)
{
    memset(bytes, 0, HDI_LANES_MAX * sizeof *bytes);
    memset(items, 0, HDI_LANES_MAX * sizeof *items);
    hdi_thread_caches_freeze(rt);
    for (hdi_thread_cache *cache = hdi_memory_of(rt)->caches->first; cache; cache = cache->next) {
        thread_cache_add_leaving(cache, device, bytes, items);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            const hdi_lane_cache *of_lane = cache->lanes[(uint32_t)device * HDI_LANES_MAX + i];
            if (of_lane && of_lane->large) {
                items[i]++;
                bytes[i] += of_lane->large->bytes;
            }
            for (uint32_t size_class = 0; of_lane && size_class < HDI_CLASSES; size_class++) {
                items[i] += of_lane->magazines[size_class].count;
                bytes[i] += of_lane->magazines[size_class].count * hdi_class_bytes(size_class);
            }
        }
    }
    hdi_thread_caches_thaw(rt);
}

int hdi_thread_caches_count(hd_runtime *rt)
{
    hdi_mutex_lock(&hdi_memory_of(rt)->caches->lock);
    int count = hdi_memory_of(rt)->caches->count;
    hdi_mutex_unlock(&hdi_memory_of(rt)->caches->lock);
    return count;
}

void hdi_thread_caches_count_apart(hd_runtime *rt, int device, uint64_t bytes, bool is_allocation)
{
    struct hdi_thread_caches *caches = hdi_memory_of(rt)->caches;
    hdi_mutex_lock(&caches->lock);
    hdi_thread_cache_counts *ended = &caches->ended[device];
    hdi_count(is_allocation ? &ended->allocations : &ended->frees, 1);
    hdi_count(is_allocation ? &ended->allocated_bytes : &ended->freed_bytes, bytes);
    hdi_mutex_unlock(&caches->lock);
}
