/* staging_pools.c - makes the pools of pinned chunks. See staging.h for threads, locks and
 * guarantees.
 *
 * Always: a pool is in the list of all pools before a thread can wait for its chunks.
 */
#include <stdlib.h>
#include "base/error.h"
#include "engine/engine.h"
#include "memory/part.h"
#include "transfer/copy_pool.h"
#include "transfer/route.h"
#include "transfer/staging_internal.h"

#define SMALL_MOST 32
#define LARGE_PER_THREAD 2 /* a thread fills one chunk while a device reads the other */
#define LARGE_MORE 4
/* the pool's other places are for chunks that are set apart */
#define LARGE_MOST (HDI_STAGING_MOST - 8)
/* In the pool of a pair of devices, n_places is PAIR_PLACES * most. */
#define PAIR_PLACES 4
#define LEAST ((size_t)4096)
#define SHARE 4 /* hdi_staging.share is 1/SHARE of pinned_limit */

enum { TO_DEVICE = 1, LARGE = 2 }; /* a device's pools */
enum { PAIR_SMALL, PAIR_MEDIUM, PAIR_LARGE };

void hdi_staging_visit(hd_runtime *rt, void (*each)(hdi_staging *pool, void *context), void *context)
{
    /* Pairs with the release of staging_make_pool. */
    hdi_staging *next, *pool = atomic_load_explicit(&hdi_transfer_of(rt)->stagings->pools, memory_order_acquire);
    for (; pool; pool = next) {
        next = pool->next;
        each(pool, context);
    }
}

static void staging_free_pool(hdi_staging *pool, void *context)
{
    (void)context;
    for (hdi_chunk *chunk; (chunk = pool->extras);) {
        pool->extras = chunk->next;
        free(chunk);
    }
    free(pool);
}

void hdi_stagings_release(hd_runtime *rt)
{
    if (hdi_transfer_of(rt)->stagings) {
        hdi_staging_visit(rt, staging_free_pool, NULL);
        free(hdi_transfer_of(rt)->stagings);
        hdi_transfer_of(rt)->stagings = NULL;
    }
}

static uint64_t staging_pinned_limit(hd_runtime *rt)
{
    hdi_host_pool_info info;
    hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &info);
    return info.limit_bytes;
}

/* The largest power of two that exceeds neither `most` nor `limit`. */
static size_t staging_power_of_two(size_t most, uint64_t limit)
{
    while (most > LEAST && most > limit) {
        most /= 2;
    }
    return most;
}

/* Makes a pool, and puts it into its slot. If another thread was faster, returns that thread's
 * pool. `like` gives `bytes`, `most`, and the other fields that differ between pools. NULL: no
 * memory. */
static hdi_staging *staging_make_pool(hd_runtime *rt, _Atomic(hdi_staging *) *slot, const hdi_staging *like)
{
    hdi_staging *made = calloc(1, sizeof *made), *before = NULL;
    if (!made) {
        hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
        return NULL;
    }
    made->runtime = rt;
    made->bytes = like->bytes;
    made->most = like->most;
    uint32_t places = (like->of_device ? 2 : PAIR_PLACES) * like->most;
    made->n_places = places < HDI_STAGING_MOST ? places : HDI_STAGING_MOST;
    made->of_device = like->of_device;
    made->waits = like->waits;
    made->grows = like->grows;
    made->share = staging_pinned_limit(rt) / SHARE;
    atomic_init(&made->look, true);
    atomic_init(&made->lane, atomic_load_explicit(&like->lane, memory_order_relaxed));
    hdi_lock_init(&made->lock, HDI_RANKED(HDI_RANK_STAGING, 0));
    for (uint32_t i = made->n_places; i-- > 0;) {
        made->places[i].next = made->unmade;
        made->unmade = &made->places[i];
    }
    /* The pool is in the list before any thread can wait for its chunks. If another thread was
     * first, this thread's pool stays in the list without use. */
    _Atomic(hdi_staging *) *pools = &hdi_transfer_of(rt)->stagings->pools;
    made->next = atomic_load_explicit(pools, memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak_explicit(pools, &made->next, made, memory_order_release, memory_order_relaxed)) {
    }
    /* Pairs with the acquire loads of hdi_staging_of and hdi_staging_between. */
    bool first =
        atomic_compare_exchange_strong_explicit(slot, &before, made, memory_order_acq_rel, memory_order_acquire);
    return first ? made : before;
}

static hdi_staging *staging_make_of_device(hdi_device *device, bool to_device, bool large, _Atomic(hdi_staging *) *slot)
{
    hd_runtime *rt = device->runtime;
    uint64_t limit = staging_pinned_limit(rt);
    hdi_staging like = {.of_device = true, .waits = true};
    if (large) {
        size_t most = LARGE_PER_THREAD * (hdi_copy_pool_count(rt) + 1) + LARGE_MORE;
        like.bytes = staging_power_of_two(HDI_STAGING_LARGE, limit / 16);
        like.most = most < LARGE_MOST ? (uint32_t)most : LARGE_MOST;
    } else {
        like.bytes = staging_power_of_two(HDI_STAGING_SMALL, limit / 32);
        like.most = SMALL_MOST;
        atomic_init(&like.lane, to_device ? device->lane_in : device->lane_out);
    }
    return staging_make_pool(rt, slot, &like);
}

/* Chooses the lane of a device's pool. Large chunks use a separate lane, which the first large
 * transfer makes. */
static void staging_choose_lane(hdi_staging *pool, hdi_device *device, bool to_device)
{
    hd_lane *none = NULL, *lane = hdi_program_lane(device, to_device ? HDI_WAY_IN : HDI_WAY_OUT);
    atomic_compare_exchange_strong_explicit(&pool->lane, &none, lane, memory_order_release, memory_order_relaxed);
}

hdi_staging *hdi_staging_of(hdi_device *device, bool to_device, bool large)
{
    _Atomic(hdi_staging *) *slot =
        &hdi_transfer_of(device->runtime)
             ->stagings
             ->of_device[device->index * HDI_STAGING_OF_DEVICE + (to_device ? TO_DEVICE : 0) + (large ? LARGE : 0)];
    hdi_staging *pool = atomic_load_explicit(slot, memory_order_acquire);
    if (__builtin_expect(!pool, 0)) {
        pool = staging_make_of_device(device, to_device, large, slot);
    }
    if (__builtin_expect(pool && !hdi_staging_lane(pool), 0)) {
        staging_choose_lane(pool, device, to_device);
    }
    return pool;
}

hdi_staging *hdi_staging_between(hd_runtime *rt, int src, int dst, uint64_t chunk)
{
    static const uint32_t most[HDI_STAGING_OF_PAIR] = {HDI_STAGED_SMALL_CHUNKS, HDI_STAGED_MEDIUM_CHUNKS,
                                                       HDI_STAGED_LARGE_CHUNKS};
    int size = chunk == HDI_STAGED_SMALL ? PAIR_SMALL : chunk == HDI_STAGED_MEDIUM ? PAIR_MEDIUM : PAIR_LARGE;
    _Atomic(hdi_staging *) *slot =
        &hdi_transfer_of(rt)->stagings->of_pair[(src * HDI_DEVICES_MAX + dst) * HDI_STAGING_OF_PAIR + size];
    hdi_staging *pool = atomic_load_explicit(slot, memory_order_acquire);
    if (pool) {
        return pool;
    }
    /* If there is no memory for a chunk, the caller does not wait for it, but tries smaller
     * chunks. */
    const hdi_staging like = {
        .bytes = chunk, .most = most[size], .waits = size == PAIR_SMALL, .grows = size == PAIR_SMALL};
    return staging_make_pool(rt, slot, &like);
}
