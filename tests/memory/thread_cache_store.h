/* thread_cache_store.h - shared by the tests of magazines: a store that stands for the arena. It
 * records the place of each item, so it detects items that get lost or come back twice. Runtimes
 * are fakes: a registry number and the caches.
 *
 * Threads: the helpers work in every one. Locks: the store's lock.
 * Always: an item is in one place; any other state counts as wrong.
 */
#ifndef TEST_MEMORY_CACHE_STORE_H
#define TEST_MEMORY_CACHE_STORE_H

#include "support/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "engine/engine.h"
#include "memory/thread_cache.h"
#include "support/sanitizers.h"

enum { DEVICES = 3, ITEMS = 4096 };
enum { STORED, OWNED, CACHED }; /* places of an item */

typedef struct thing {
    hdi_item item; /* first */
    _Atomic int where;
} thing;

typedef struct store {
    hd_runtime *rt;
    pthread_mutex_t lock;
    hdi_item *items; /* linked by `next` */
    int count;
    uint64_t released[DEVICES];
    _Atomic int wrong; /* items in an unexpected place; threads must not fail a test themselves */
    thing things[ITEMS];
} store;

static inline void store_put(store *s, hdi_item *item)
{
    pthread_mutex_lock(&s->lock);
    item->next = s->items;
    s->items = item;
    s->count++;
    pthread_mutex_unlock(&s->lock);
}

static inline void moves(store *s, hdi_item *item, int from, int to)
{
    if (atomic_exchange(&((thing *)(void *)item)->where, to) != from) {
        s->wrong++;
    }
}

static inline void take_back(void *context, int device, hdi_item *items)
{
    store *s = context;
    for (hdi_item *item = items, *next; item != NULL; item = next) {
        next = item->next;
        if (device < 0 || device >= DEVICES || item->lane / HDI_LANES_MAX != (uint32_t)device) {
            s->wrong++;
            continue;
        }
        moves(s, item, CACHED, STORED);
        pthread_mutex_lock(&s->lock);
        s->released[device]++;
        pthread_mutex_unlock(&s->lock);
        store_put(s, item);
    }
}

static inline store *open_store(void)
{
    store *s = calloc(1, sizeof *s);
    assert_non_null(s);
    pthread_mutex_init(&s->lock, NULL);
    s->rt = calloc(1, sizeof(hdi_memory_part));
    assert_non_null(s->rt);
    s->rt->n_devices = DEVICES;
    assert_ok(hdi_runtime_add(s->rt));
    hdi_thread_caches_config config = {.release = take_back, .context = s};
    assert_ok(hdi_thread_caches_create(s->rt, &config));
    for (int i = 0; i < ITEMS; i++) {
        store_put(s, &s->things[i].item);
    }
    return s;
}

static inline void close_store(store *s)
{
    hdi_runtime_remove(s->rt);
    hdi_thread_caches_destroy(s->rt);
    assert_int_equal(s->wrong, 0);
    pthread_mutex_destroy(&s->lock);
    free(s->rt);
    free(s);
}

/* Takes an item from the store for a lane and class; NULL if the store is empty. */
static inline hdi_item *fresh(store *s, uint32_t lane, uint32_t class)
{
    pthread_mutex_lock(&s->lock);
    hdi_item *item = s->items;
    if (item != NULL) {
        s->items = item->next;
        s->count--;
    }
    pthread_mutex_unlock(&s->lock);
    if (item != NULL) {
        moves(s, item, STORED, OWNED);
        item->lane = lane;
        item->class = class;
        item->bytes = class < HDI_CLASSES ? hdi_class_bytes(class) : 0;
    }
    return item;
}

static inline hdi_item *fresh_large(store *s, uint32_t lane, size_t bytes)
{
    hdi_item *item = fresh(s, lane, HDI_CLASS_LARGE);
    if (item != NULL) {
        item->bytes = bytes;
    }
    return item;
}

/* Takes an item from the calling thread's magazine; `bytes` is the size of a large item. */
static inline hdi_item *cached_of(store *s, uint32_t lane, uint32_t class, size_t bytes)
{
    bool large = class == HDI_CLASS_LARGE;
    hdi_thread_cache *cache = hdi_thread_cache_own(s->rt);
    if (cache == NULL) {
        s->wrong++;
        return NULL;
    }
    hdi_thread_cache_enter(cache);
    hdi_item *item =
        large ? hdi_thread_cache_take_large(cache, lane, bytes) : hdi_thread_cache_take(cache, lane, class);
    hdi_thread_cache_leave(cache);
    if (item != NULL) {
        s->wrong += item->lane != lane || item->class != class || (large && item->bytes != bytes);
        moves(s, item, CACHED, OWNED);
    }
    return item;
}

static inline hdi_item *cached(store *s, uint32_t lane, uint32_t class)
{
    return cached_of(s, lane, class, 0);
}

static inline hdi_item *cached_large(store *s, uint32_t lane, size_t bytes)
{
    return cached_of(s, lane, HDI_CLASS_LARGE, bytes);
}

/* Moves replaced items back to the store. Returns their number. */
static inline int let_leave(store *s)
{
    hdi_thread_cache *cache = hdi_thread_cache_own(s->rt);
    int n = 0;
    hdi_thread_cache_enter(cache);
    hdi_item *items = hdi_thread_cache_take_leaving(cache);
    hdi_thread_cache_leave(cache);
    for (hdi_item *item = items, *next; item != NULL; item = next, n++) {
        next = item->next;
        moves(s, item, CACHED, STORED);
        store_put(s, item);
    }
    return n;
}

/* Puts an item into the cache. False: there was no room, and it went back to the store. */
static inline bool give(store *s, hdi_item *item)
{
    hdi_thread_cache *cache = hdi_thread_cache_own(s->rt);
    if (cache == NULL) {
        s->wrong++;
        return false;
    }
    moves(s, item, OWNED, CACHED);
    hdi_thread_cache_enter(cache);
    bool kept =
        item->class == HDI_CLASS_LARGE ? hdi_thread_cache_put_large(cache, item) : hdi_thread_cache_put(cache, item);
    hdi_thread_cache_leave(cache);
    if (!kept) {
        moves(s, item, CACHED, STORED);
        store_put(s, item);
    }
    return kept;
}

static inline hdi_thread_cache_sums sums(store *s, int device)
{
    hdi_thread_cache_sums out = {0};
    hdi_thread_caches_sum(s->rt, device, &out);
    return out;
}

static inline uint32_t lane_of(int device, uint32_t number)
{
    return (uint32_t)device * HDI_LANES_MAX + number;
}

#endif
