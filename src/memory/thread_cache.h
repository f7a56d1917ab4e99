/* thread_cache.h - caches of threads: magazines of freed buffers, per lane and size class.
 *
 * An item is a freed buffer with its block of device memory. The cache's own thread takes and puts
 * items with a few plain loads and stores. Every thread has one cache per runtime. A cache is
 * drained under memory pressure, when a device is lost, and when its thread ends. The buffer layer
 * defines items, and gives the memory of drained items back to the arena (`release`).
 *
 * Threads: only the cache's own thread calls the functions that take from and put into one cache.
 * Any thread may call the other functions.
 * Locks: the lock of the list of caches, then the biased lock of one cache. Neither is held during
 * `release`. A thread is "inside" its cache between hdi_thread_cache_enter and
 * hdi_thread_cache_leave.
 * Blocking: hdi_thread_cache_enter waits while another thread visits the cache, for example to
 * drain it. A visit waits until the cache's thread is outside.
 * Always:
 * - Every item is in at most one magazine.
 * - A cache contains at most HDI_THREAD_CACHE_BYTES in small blocks, and HDI_LARGE_BYTES in large
 *   blocks.
 * - A magazine contains at most HDI_MAGAZINE_ITEMS blocks, and at most HDI_MAGAZINE_BYTES or two
 *   blocks.
 * - Before the arena maps memory for an allocation, it takes the large blocks of all caches back
 *   (hdi_arena_config.relieve). So cached large blocks never make the arena map more memory.
 */
#ifndef HDI_MEMORY_THREAD_CACHE_H
#define HDI_MEMORY_THREAD_CACHE_H

#include <pthread.h>
#include "base/lock.h"
#include "engine/runtime.h"
#include "memory/part.h"

/* ---- size classes of small device blocks ----------------------------------------------------- */

/* The classes are multiples of 256 bytes up to 2 KiB, then eight per doubling up to 1 MiB: 80
 * classes. A block is larger than its request by at most 255 bytes or an eighth of the request. */
#define HDI_CLASSES 80
#define HDI_CLASS_LARGE HDI_CLASSES /* marks a block that is too large for all classes */

/* The class of 1 <= bytes <= HDI_SMALL_BYTES (arena.h). */
static inline uint32_t hdi_class_of(size_t bytes)
{
    size_t last = bytes - 1;
    if (last < 2048) {
        return (uint32_t)(last >> 8);
    }
    uint32_t row = 63u - (uint32_t)__builtin_clzll(last); /* 11 from 2 KiB on, at most 19 */
    return (row - 10) * 8 + (uint32_t)(last >> (row - 3) & 7);
}

/* The block size of a class. */
static inline size_t hdi_class_bytes(uint32_t class)
{
    if (class < 8) {
        return (size_t)(class + 1) << 8;
    }
    uint32_t row = class / 8 + 10;
    return ((size_t)8 + class % 8 + 1) << (row - 3);
}

/* ---- caches and their magazines -------------------------------------------------------------- */

#define HDI_THREAD_CACHE_BYTES ((size_t)64 << 20)
#define HDI_MAGAZINE_BYTES ((size_t)1 << 20)
#define HDI_MAGAZINE_ITEMS 64
/* The most bytes in the large blocks of one cache. A single block takes at most a quarter of these
 * bytes. */
#define HDI_LARGE_BYTES ((size_t)1 << 30)
#define HDI_LEAVING_ITEMS 32

typedef struct hdi_item {
    struct hdi_item *next;
    uint32_t lane; /* the global number of the lane whose magazine contains this item */
    uint32_t class;
    size_t bytes; /* of its block */
} hdi_item;

typedef struct hdi_magazine {
    hdi_item *top;
    /* the number of items, and the most items; `most` is set when the magazines of the lane are
     * made */
    uint32_t count, most;
} hdi_magazine;

typedef struct hdi_lane_cache {
    hdi_magazine magazines[HDI_CLASSES];
    /* One large block of any size, for pairs of hd_alloc and hd_free. More large blocks per lane
     * would withhold memory from allocations that need a part of a block. With eight large blocks
     * per lane, the programs of bench/logs move up to three times as much memory. */
    hdi_item *large;
} hdi_lane_cache;

/* Counts of one thread and device. Only the thread writes them; any thread reads them. */
typedef struct hdi_thread_cache_counts {
    _Atomic uint64_t allocations, frees, from_magazine, frees_elsewhere;
    _Atomic uint64_t allocated_bytes, freed_bytes; /* the sizes that the program requested */
    _Atomic uint64_t cached_bytes;                 /* includes large_bytes */
    _Atomic uint64_t large_bytes;
} hdi_thread_cache_counts;

typedef struct hdi_thread_cache {
    hdi_biased_lock lock;
    uint64_t runtime_id;
    struct hdi_thread_cache *next_own; /* the next cache of this thread, for another runtime */
    struct hdi_thread_cache *next;     /* the next cache in the runtime's list */
    uint32_t number;                   /* the thread's number in the runtime, never 0 */
    /* the number of owners, see thread_cache.c: the thread, and the list of the runtime */
    _Atomic int owners;
    uint32_t n_lanes;
    int n_devices;
    size_t cached_bytes; /* bytes in small blocks of all devices */
    size_t large_bytes;  /* in large blocks */
    /* Large blocks that another block replaced. hd_free does not give them back to the arena, since
     * that would take time. The thread's next allocation from the arena gives them back. */
    hdi_item *leaving;
    uint32_t n_leaving;
    hdi_lane_cache **lanes;          /* by global number; NULL: never used, or closed */
    hdi_thread_cache_counts *counts; /* by device */
    uint64_t closed;                 /* bit per device (hdi_thread_caches_close) */
} hdi_thread_cache;

typedef struct hdi_thread_caches_config {
    /* Takes back a list of items of one device, linked by `next`. Called without locks. */
    void (*release)(void *context, int device, hdi_item *items);
    void *context;
} hdi_thread_caches_config;

/* Sets hdi_memory_of(rt)->caches.
 * Errors: HOST_MEMORY. */
hd_status hdi_thread_caches_create(hd_runtime *rt, const hdi_thread_caches_config *config);
/* Drops all items. Each thread later frees its own cache, when it finds the runtime closed or when
 * it ends. No thread may be inside its cache. Does nothing if hdi_memory_of(rt)->caches is NULL. */
void hdi_thread_caches_destroy(hd_runtime *rt);

extern _Thread_local hdi_thread_cache *hdi_thread_cache_own_first;

/* Finds or makes the calling thread's cache. NULL: no host memory (no message). */
hdi_thread_cache *hdi_thread_cache_find(hd_runtime *rt);

/* The calling thread's cache. */
static inline hdi_thread_cache *hdi_thread_cache_own(hd_runtime *rt)
{
    hdi_thread_cache *cache = hdi_thread_cache_own_first;
    return __builtin_expect(cache != NULL && cache->runtime_id == rt->id, 1) ? cache : hdi_thread_cache_find(rt);
}

static inline void hdi_thread_cache_enter(hdi_thread_cache *cache)
{
    hdi_biased_enter(&cache->lock);
}

static inline void hdi_thread_cache_leave(hdi_thread_cache *cache)
{
    hdi_biased_leave(&cache->lock);
}

/* Adds to a counter that only one thread at a time writes, so no locked instruction is needed. */
static inline void hdi_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}

/* Takes an item that `lane` freed; NULL: there is none. Call it inside. */
static inline hdi_item *hdi_thread_cache_take(hdi_thread_cache *cache, uint32_t lane, uint32_t class)
{
    hdi_lane_cache *of_lane = cache->lanes[lane];
    if (__builtin_expect(of_lane == NULL, 0)) {
        return NULL;
    }
    hdi_magazine *m = &of_lane->magazines[class];
    hdi_item *item = m->top;
    if (__builtin_expect(item != NULL, 1)) {
        m->top = item->next;
        m->count--;
        size_t bytes = hdi_class_bytes(class);
        cache->cached_bytes -= bytes;
        hdi_count(&cache->counts[lane / HDI_LANES_MAX].cached_bytes, -(uint64_t)bytes);
    }
    return item;
}

/* Makes the magazines of a lane. False: no host memory, or the lane's device is closed. Call it
 * inside. */
bool hdi_thread_cache_add_lane(hdi_thread_cache *cache, uint32_t lane);

/* Puts an item into its magazine. False: no room; the caller keeps the item. Call it inside. */
static inline bool hdi_thread_cache_put(hdi_thread_cache *cache, hdi_item *item)
{
    hdi_lane_cache *of_lane = cache->lanes[item->lane];
    if (__builtin_expect(of_lane == NULL, 0)) {
        if (!hdi_thread_cache_add_lane(cache, item->lane)) {
            return false;
        }
        of_lane = cache->lanes[item->lane];
    }
    hdi_magazine *m = &of_lane->magazines[item->class];
    size_t bytes = hdi_class_bytes(item->class);
    if (__builtin_expect((m->count >= m->most) | (cache->cached_bytes + bytes > HDI_THREAD_CACHE_BYTES), 0)) {
        return false;
    }
    item->next = m->top;
    m->top = item;
    m->count++;
    cache->cached_bytes += bytes;
    hdi_count(&cache->counts[item->lane / HDI_LANES_MAX].cached_bytes, bytes);
    return true;
}

/* Takes the large block that `lane` freed last, if its size is exactly `bytes`; else returns NULL.
 * Call it inside. */
static inline hdi_item *hdi_thread_cache_take_large(hdi_thread_cache *cache, uint32_t lane, size_t bytes)
{
    hdi_lane_cache *of_lane = cache->lanes[lane];
    hdi_item *item = of_lane != NULL ? of_lane->large : NULL;
    if (item == NULL || item->bytes != bytes) {
        return NULL;
    }
    of_lane->large = NULL;
    cache->large_bytes -= bytes;
    hdi_count(&cache->counts[lane / HDI_LANES_MAX].cached_bytes, -(uint64_t)bytes);
    hdi_count(&cache->counts[lane / HDI_LANES_MAX].large_bytes, -(uint64_t)bytes);
    return item;
}

/* Keeps a large block for its lane. The block that the lane kept before moves to `leaving`. False:
 * no room; the caller keeps the item. Call it inside. */
bool hdi_thread_cache_put_large(hdi_thread_cache *cache, hdi_item *item);

/* Takes all items of `leaving`, linked by `next`. Call it inside. */
hdi_item *hdi_thread_cache_take_leaving(hdi_thread_cache *cache);

/* Takes the older half of the items out of a magazine, linked by `next`. Call it inside. */
hdi_item *hdi_thread_cache_take_half(hdi_thread_cache *cache, uint32_t lane, uint32_t class);

/* hdi_thread_caches_drain gives back all items of a device in all caches.
 * hdi_thread_caches_drain_large gives back only large blocks, and returns true if it found a large
 * block. Both block until each thread is outside of its cache. */
void hdi_thread_caches_drain(hd_runtime *rt, int device);
bool hdi_thread_caches_drain_large(hd_runtime *rt, int device);

/* Closes the caches for a device: gives all items back, and from then on no cache takes a block of
 * the device. So each hd_free gives its block to the arena. Every close needs one call of
 * hdi_thread_caches_open, and the last such call opens the device again. A closed device has no
 * magazines, so the usual path needs no check of its own. Both functions block as
 * hdi_thread_caches_drain does. */
void hdi_thread_caches_close(hd_runtime *rt, int device);
void hdi_thread_caches_open(hd_runtime *rt, int device);

/* Keeps all threads outside of their caches until hdi_thread_caches_thaw. Meanwhile the caller must
 * not allocate or free. Blocks until each thread is outside of its cache. */
void hdi_thread_caches_freeze(hd_runtime *rt);
void hdi_thread_caches_thaw(hd_runtime *rt);

/* Sums over all threads, including ended threads. */
typedef struct hdi_thread_cache_sums {
    uint64_t allocations, frees, from_magazine, frees_elsewhere, allocated_bytes, freed_bytes, cached_bytes;
} hdi_thread_cache_sums;
void hdi_thread_caches_sum(hd_runtime *rt, int device, hdi_thread_cache_sums *out);

/* Bytes in the caches of all threads, large blocks included. */
uint64_t hdi_thread_caches_cached(hd_runtime *rt, int device);

/* Writes the cached bytes and items of each lane of a device into `bytes` and `items`, both of
 * HDI_LANES_MAX elements. Visits every cache, so it blocks as hdi_thread_caches_freeze does. */
void hdi_thread_caches_lanes(hd_runtime *rt, int device, uint64_t *bytes, uint64_t *items);

/* The number of threads with a cache. */
int hdi_thread_caches_count(hd_runtime *rt);

/* Counts an allocation or a free by a thread without a cache. */
void hdi_thread_caches_count_apart(hd_runtime *rt, int device, uint64_t bytes, bool is_allocation);

#endif
