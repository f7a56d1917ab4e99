/* staging.c - pools of pinned chunks. See staging.h for threads, locks and guarantees.
 *
 * Limits: a pool holds at most `most` chunks. Without the first chunk of each pool, the pools of
 * devices together hold at most a quarter of the memory that the option pinned_limit allows.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/parked.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"
#include "memory/part.h"
#include "transfer/copy_pool.h"
#include "transfer/part.h"
#include "transfer/route.h"
#include "transfer/staging.h"

static void staging_wake_all(hd_runtime *rt);

#define SMALL_MOST 32
#define LARGE_PER_THREAD 2 /* one chunk is filled while the other is under way */
#define LARGE_MORE 4
#define LARGE_MOST (HDI_STAGING_MOST - 8) /* this leaves places for chunks that are set apart */
/* The places for each chunk that transfers of a pair use at the same time. */
#define PAIR_PLACES 4
#define LEAST ((size_t)4096)
#define SHARE 4 /* the pools may hold this part of the pinned memory that the program may hold */
#define AGAIN_NS ((int64_t)1000000000)
/* The time between two attempts to get memory, while all chunks of a pool wait for the program. */
#define APART_NS ((int64_t)5000000)
#define WORD_TIMEOUT_NS ((int64_t)500000)

enum { TO_DEVICE = 1, LARGE = 2, OF_DEVICE = 4 }; /* a device's pools */
enum { PAIR_SMALL, PAIR_MEDIUM, PAIR_LARGE, OF_PAIR };
enum { PAIRS = HDI_DEVICES_MAX * HDI_DEVICES_MAX };

struct hdi_stagings {
    _Atomic(hdi_staging *) of_device[HDI_DEVICES_MAX * OF_DEVICE]; /* NULL: never used */
    _Atomic(hdi_staging *) of_pair[PAIRS * OF_PAIR];
    _Atomic(hdi_staging *) pools; /* all pools that were used; the newest first */
    _Atomic uint64_t bytes;       /* the bytes of all chunks of devices */
    _Atomic uint32_t filled;      /* chunks with memory */
    hdi_shrinker shrinker;
};

/* Calls `each` for every pool that was used. */
static void staging_visit(const hd_runtime *rt, void (*each)(hdi_staging *pool, void *context), void *context)
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
    free(pool);
}

static void staging_release(hd_runtime *rt)
{
    if (hdi_transfer_of(rt)->stagings) {
        staging_visit(rt, staging_free_pool, NULL);
        free(hdi_transfer_of(rt)->stagings);
        hdi_transfer_of(rt)->stagings = NULL;
    }
}

/* ---- pools ---- */

static uint64_t staging_pinned_limit(hd_runtime *rt)
{
    hdi_host_pool_info info;
    hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &info);
    return info.limit_bytes;
}

/* The largest power of two up to `most`, and no more than `limit`. */
static size_t staging_power_of_two(size_t most, uint64_t limit)
{
    while (most > LEAST && most > limit) {
        most /= 2;
    }
    return most;
}

/* Puts a pool into its slot unless another thread does so first. `like`: `bytes`, `most`, and the
 * other fields in which pools differ. NULL: no memory. */
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
    uint32_t places = (like->shares ? 2 : PAIR_PLACES) * like->most;
    made->n_places = places < HDI_STAGING_MOST ? places : HDI_STAGING_MOST;
    made->shares = like->shares;
    made->waits = like->waits;
    atomic_init(&made->lane, atomic_load_explicit(&like->lane, memory_order_relaxed));
    hdi_lock_init(&made->lock, HDI_RANKED(HDI_RANK_STAGING, 0));
    for (uint32_t i = made->n_places; i-- > 0;) {
        made->places[i].next = made->unmade;
        made->unmade = &made->places[i];
    }
    /* The pool is in the list before any thread can wait for its chunks. A pool that comes second
     * stays in the list, unused. */
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
    hdi_staging like = {.shares = true, .waits = true};
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

/* Large chunks use a separate lane, which is made with the first large transfer. */
static void staging_choose_lane(hdi_staging *pool, hdi_device *device, bool to_device)
{
    hd_lane *none = NULL, *lane = hdi_program_lane(device, to_device ? HDI_WAY_IN : HDI_WAY_OUT);
    atomic_compare_exchange_strong_explicit(&pool->lane, &none, lane, memory_order_release, memory_order_relaxed);
}

hdi_staging *hdi_staging_of(hdi_device *device, bool to_device, bool large)
{
    _Atomic(hdi_staging *) *slot =
        &hdi_transfer_of(device->runtime)
             ->stagings->of_device[device->index * OF_DEVICE + (to_device ? TO_DEVICE : 0) + (large ? LARGE : 0)];
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
    static const uint32_t most[OF_PAIR] = {HDI_STAGED_SMALL_CHUNKS, HDI_STAGED_MEDIUM_CHUNKS, HDI_STAGED_LARGE_CHUNKS};
    int size = chunk == HDI_STAGED_SMALL ? PAIR_SMALL : chunk == HDI_STAGED_MEDIUM ? PAIR_MEDIUM : PAIR_LARGE;
    _Atomic(hdi_staging *) *slot =
        &hdi_transfer_of(rt)->stagings->of_pair[(src * HDI_DEVICES_MAX + dst) * OF_PAIR + size];
    hdi_staging *pool = atomic_load_explicit(slot, memory_order_acquire);
    if (pool) {
        return pool;
    }
    /* The caller does not wait for memory for a large chunk, but tries smaller ones. */
    const hdi_staging like = {.bytes = chunk, .most = most[size], .waits = size != PAIR_LARGE};
    return staging_make_pool(rt, slot, &like);
}

/* ---- the queue; the caller holds the lock ---- */

static void staging_push(hdi_staging *pool, hdi_chunk *chunk)
{
    pool->queue[(pool->first + pool->count++) % HDI_STAGING_MOST] = chunk;
}

static void staging_push_front(hdi_staging *pool, hdi_chunk *chunk)
{
    pool->first = (pool->first + HDI_STAGING_MOST - 1) % HDI_STAGING_MOST;
    pool->queue[pool->first] = chunk;
    pool->count++;
}

static hdi_chunk *staging_pop_any(hdi_staging *pool)
{
    hdi_chunk *chunk = pool->count ? pool->queue[pool->first] : NULL;
    pool->first = chunk ? (pool->first + 1) % HDI_STAGING_MOST : pool->first;
    pool->count -= chunk != NULL;
    return chunk;
}

static uint32_t staging_count_parked(const hdi_staging *pool)
{
    return atomic_load_explicit(&pool->n_parked, memory_order_relaxed);
}

static void staging_set_apart(hdi_staging *pool, hdi_chunk *chunk)
{
    chunk->next = pool->parked;
    pool->parked = chunk;
    atomic_store_explicit(&pool->n_parked, staging_count_parked(pool) + 1, memory_order_relaxed);
}

/* Moves chunks whose wait for the program is over to the front of the queue. */
static void __attribute__((noinline)) staging_put_back(hdi_staging *pool)
{
    for (hdi_chunk **link = &pool->parked; *link;) {
        hdi_chunk *chunk = *link;
        if (hdi_point_is_parked(pool->runtime, chunk->last)) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        atomic_store_explicit(&pool->n_parked, staging_count_parked(pool) - 1, memory_order_relaxed);
        staging_push_front(pool, chunk);
    }
}

static bool staging_first_is_free(const hdi_staging *pool)
{
    const hdi_chunk *chunk = pool->count ? pool->queue[pool->first] : NULL;
    return chunk && (!chunk->last.position || hdi_point_done(pool->runtime, chunk->last));
}

/* Takes the first chunk, if no operation uses it. Otherwise *busy_until is the use to wait for; it
 * is empty if threads hold all chunks. */
static hdi_chunk *staging_pop_free(hdi_staging *pool, hdi_awaited *busy_until)
{
    *busy_until = (hdi_awaited){.flagged = 0};
    bool is_free = staging_first_is_free(pool);
    if (__builtin_expect(!is_free && pool->parked, 0)) {
        staging_put_back(pool);
        is_free = staging_first_is_free(pool);
    }
    if (pool->count == 0 && pool->parked && staging_count_parked(pool) == pool->made) {
        hdi_awaited_add(busy_until, pool->parked->last, false);
        return NULL;
    }
    if (pool->count && !is_free) {
        for (uint32_t i = 0; i < pool->count; i++) {
            const hdi_chunk *next = pool->queue[(pool->first + i) % HDI_STAGING_MOST];
            hdi_awaited_add(busy_until, next->last, next->signalled);
        }
        return NULL;
    }
    return staging_pop_any(pool);
}

static bool staging_wait_for(const hdi_awaited *a, hd_runtime *rt, int64_t deadline)
{
    int64_t soon = a->flagged > a->last.position ? hdi_clock_ns() + WORD_TIMEOUT_NS : 0;
    if (soon && hdi_wait_position_unrecorded(rt, a->last.lane, a->flagged, soon < deadline ? soon : deadline)) {
        return true;
    }
    return hdi_wait_position_unrecorded(rt, a->last.lane, a->last.position, deadline);
}

bool hdi_awaited_wait(const hdi_awaited *a, hd_runtime *rt, int64_t deadline, bool recorded)
{
    int64_t began = recorded && !hdi_point_done(rt, a->last) ? hdi_record_began(&rt->recorder) : 0;
    bool in_time = staging_wait_for(a, rt, deadline);
    hdi_pause_end(&rt->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_WAIT,
                              .device = (uint8_t)(a->last.lane / HDI_LANES_MAX),
                              .lane = a->last.lane,
                              .position = a->last.position});
    return in_time;
}

/* ---- memory ---- */

static void staging_count_bytes(const hdi_staging *pool, bool more)
{
    if (pool->shares) {
        uint64_t bytes = more ? pool->bytes : -(uint64_t)pool->bytes;
        atomic_fetch_add_explicit(&hdi_transfer_of(pool->runtime)->stagings->bytes, bytes, memory_order_relaxed);
    }
}

/* Wakes a waiting thread, which may find a chunk or memory now. */
static void staging_wake_one(hdi_staging *pool)
{
    atomic_fetch_add_explicit(&pool->given, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&pool->waiting, memory_order_seq_cst) != 0, 0)) {
        hdi_futex_wake(&pool->given, 1);
    }
}

/* Gives back the place of a chunk that lost its memory, or got none. */
static void staging_give_place(hdi_staging *pool, hdi_chunk *chunk)
{
    if (chunk->buffer) {
        atomic_fetch_sub_explicit(&hdi_transfer_of(pool->runtime)->stagings->filled, 1, memory_order_relaxed);
    }
    hdi_lock_take(&pool->lock);
    chunk->buffer = NULL;
    chunk->last = (hdi_point){0, 0};
    chunk->next = pool->unmade;
    pool->unmade = chunk;
    pool->made--;
    hdi_lock_release(&pool->lock);
    staging_count_bytes(pool, false);
    staging_wake_one(pool);
}

static bool staging_may_grow(hdi_staging *pool)
{
    const struct hdi_stagings *all = hdi_transfer_of(pool->runtime)->stagings;
    int64_t again = atomic_load_explicit(&pool->again, memory_order_relaxed);
    return (!again || hdi_clock_ns() >= again) &&
           (!pool->shares || atomic_load_explicit(&all->bytes, memory_order_relaxed) + pool->bytes <=
                                 staging_pinned_limit(pool->runtime) / SHARE);
}

/* The other chunks of a pool, without the new one. */
typedef enum others {
    OTHERS_NONE,
    OTHERS_APART, /* all other chunks wait for work of the program */
    OTHERS_COME   /* some other chunks come back without the program */
} others;

/* Takes a place for one more chunk, if the pool may grow. */
static hdi_chunk *staging_take_place(hdi_staging *pool, others *beside)
{
    bool more = staging_may_grow(pool);
    hdi_lock_take(&pool->lock);
    hdi_chunk *chunk = pool->unmade;
    uint32_t come = pool->made - staging_count_parked(pool);
    *beside = come ? OTHERS_COME : pool->made ? OTHERS_APART : OTHERS_NONE;
    if (chunk && come < pool->most && (come == 0 || more)) {
        pool->unmade = chunk->next;
        pool->made++;
    } else {
        chunk = NULL;
    }
    hdi_lock_release(&pool->lock);
    if (chunk) {
        staging_count_bytes(pool, true);
    }
    return chunk;
}

/* A device that was lost in this process may still write there: the memory is left alone until
 * hd_close. A worker process ends before its device counts as lost. */
static bool staging_is_spoilt(const hdi_staging *pool, const hdi_chunk *chunk)
{
    hdi_failure failure;
    return chunk->last.position && !pool->runtime->is_process &&
           hdi_failure_find(pool->runtime, chunk->last.lane, chunk->last.position, &failure) && failure.lost;
}

/* Takes an existing chunk that is free. */
static hdi_chunk *staging_take_idle(hdi_staging *pool, hdi_awaited *busy_until)
{
    for (;;) {
        hdi_lock_take(&pool->lock);
        hdi_chunk *chunk = staging_pop_free(pool, busy_until);
        hdi_lock_release(&pool->lock);
        if (!chunk || __builtin_expect(!staging_is_spoilt(pool, chunk), 1)) {
            return chunk;
        }
        staging_give_place(pool, chunk);
    }
}

static hdi_chunk *staging_take_in_use(hdi_staging *pool)
{
    hdi_lock_take(&pool->lock);
    hdi_chunk *chunk = staging_pop_any(pool);
    hdi_lock_release(&pool->lock);
    return chunk;
}

/* Makes the memory for a chunk that lost its memory, or never got any. `only`: the pool has no
 * other chunk. */
static hd_status staging_fill_place(hdi_staging *pool, hdi_chunk *chunk, bool only)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    struct hd_buffer *buffer = NULL;
    hd_status status = hdi_buffer_make_host(pool->runtime, pool->bytes, only && pool->waits, &buffer);
    if (status) {
        atomic_store_explicit(&pool->again, hdi_clock_ns() + AGAIN_NS, memory_order_relaxed);
        staging_give_place(pool, chunk);
    } else {
        hdi_lock_take(&pool->lock);
        chunk->buffer = buffer;
        hdi_lock_release(&pool->lock);
        atomic_fetch_add_explicit(&hdi_transfer_of(pool->runtime)->stagings->filled, 1, memory_order_relaxed);
    }
    /* without `only`, the caller can use another chunk, so this is no failure */
    hdi_attempt_result(&attempt, only ? status : HD_OK);
    return status;
}

/* ---- shrinking ---- */

static void staging_shrink_pool(hdi_staging *pool, void *context)
{
    bool *any = context;
    hdi_awaited busy_until;
    for (hdi_chunk *chunk; (chunk = staging_take_idle(pool, &busy_until));) {
        /* The memory goes back with the points that its record still names. */
        hdi_free(hdi_buffer_handle(chunk->buffer));
        staging_give_place(pool, chunk);
        *any = true;
    }
}

static bool staging_shrink(hd_runtime *rt)
{
    bool any = false;
    staging_visit(rt, staging_shrink_pool, &any);
    return any;
}

static bool staging_in_use(const hd_runtime *rt)
{
    return atomic_load_explicit(&hdi_transfer_of(rt)->stagings->filled, memory_order_relaxed) != 0;
}

static hd_status staging_create(hd_runtime *rt)
{
    struct hdi_stagings *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    all->shrinker = (hdi_shrinker){.shrink = staging_shrink, .in_use = staging_in_use};
    hdi_transfer_of(rt)->stagings = all;
    rt->on_closing = staging_wake_all;
    hdi_shrinker_register(rt, &all->shrinker);
    return HD_OK;
}

const hdi_lifetime hdi_staging_lifetime = {.create = staging_create, .release = staging_release};

/* ---- taking and giving ---- */

/* Waits until a chunk may be free. False: the deadline passed. `given`: its value before the caller
 * looked at the pool. */
static bool staging_wait_for_one(hdi_staging *pool, const hdi_awaited *busy_until, uint32_t given, int64_t deadline)
{
    int64_t began = hdi_record_began(&pool->runtime->recorder);
    bool in_time;
    if (busy_until->last.position) {
        in_time = staging_wait_for(busy_until, pool->runtime, deadline);
    } else {
        HDI_CALLER_WAITS();
        in_time = hdi_futex_wait(&pool->given, given, deadline);
    }
    hdi_pause_end(&pool->runtime->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_CHUNK,
                              .device = (uint8_t)(pool->lane ? pool->lane->device->index : HDI_RECORD_NO_DEVICE),
                              .lane = busy_until->last.lane,
                              .position = busy_until->last.position,
                              .bytes = pool->bytes});
    return in_time;
}

static hd_status staging_take_slow(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out)
{
    uint32_t waits = wish >= HDI_STAGING_WAIT;
    /* Sequentially consistent with the giver, which changes `given` and then reads `waiting`. */
    atomic_fetch_add_explicit(&pool->waiting, waits, memory_order_seq_cst);
    hd_status status = HD_OK;
    hdi_chunk *chunk;
    for (bool in_time = true;;) {
        hdi_awaited busy_until;
        uint32_t given = atomic_load_explicit(&pool->given, memory_order_seq_cst);
        chunk = staging_take_idle(pool, &busy_until);
        if (chunk) {
            break;
        }
        others beside;
        chunk = staging_take_place(pool, &beside);
        if (chunk) {
            status = staging_fill_place(pool, chunk, beside == OTHERS_NONE);
            if (!status) {
                break;
            }
            chunk = NULL;
            if (beside == OTHERS_NONE) {
                break;
            }
            status = HD_OK;
            if (beside == OTHERS_COME) {
                continue; /* one of them comes back */
            }
        }
        if (wish == HDI_STAGING_IN_USE && (chunk = staging_take_in_use(pool))) {
            break;
        }
        if (!waits || !in_time || hdi_is_closing(pool->runtime)) {
            break;
        }
        if (wish == HDI_STAGING_IN_USE) {
            busy_until = (hdi_awaited){.flagged = 0}; /* another thread took that one meanwhile */
        }
        /* After APART_NS, this thread looks for memory again. */
        int64_t until = beside == OTHERS_APART ? hdi_deadline(APART_NS) : deadline;
        in_time = staging_wait_for_one(pool, &busy_until, given, until < deadline ? until : deadline) ||
                  (until < deadline && hdi_clock_ns() < deadline);
    }
    atomic_fetch_sub_explicit(&pool->waiting, waits, memory_order_seq_cst);
    if (waits && !chunk) {
        staging_wake_one(pool); /* this thread may have been woken instead of another one */
    }
    *out = chunk;
    return status;
}

hd_status hdi_staging_take(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out)
{
    hdi_awaited busy_until;
    *out = staging_take_idle(pool, &busy_until);
    return *out || wish == HDI_STAGING_IDLE ? HD_OK : staging_take_slow(pool, wish, deadline, out);
}

hd_status hdi_staging_not_given(hdi_staging *pool)
{
    hd_lane *lane = hdi_staging_lane(pool);
    hdi_lock_take(&pool->lock);
    const hdi_chunk *first = pool->count ? pool->queue[pool->first] : pool->parked;
    hdi_point use = first ? first->last : (hdi_point){0, 0};
    struct hd_buffer *buffers[HDI_STAGING_MOST];
    uint32_t n_places = pool->n_places;
    for (uint32_t i = 0; i < n_places; i++) {
        buffers[i] = pool->places[i].buffer;
    }
    hdi_lock_release(&pool->lock);
    /* Buffer records are never freed. If a record now belongs to another owner, it names another
     * use, which does no harm. */
    for (uint32_t i = 0; !use.position && i < n_places; i++) {
        use = buffers[i] ? hdi_buffer_awaited(buffers[i]) : use;
    }
    if (!use.position && lane) {
        /* Threads hold all chunks, and wait for work of this lane, since no other lane uses the
         * chunks. */
        use = (hdi_point){lane->global, atomic_load_explicit(&lane->submitted, memory_order_acquire)};
    }
    return hdi_not_done(pool->runtime, use.lane, use.position,
                        "all pinned chunks are in use (option transfer_timeout)");
}

hd_status hdi_staging_await(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out)
{
    hd_status status = hdi_staging_take(pool, wish, deadline, out);
    return status || *out ? status : hdi_staging_not_given(pool);
}

hd_status hdi_staging_choose(hdi_device *device, bool to_device, hdi_staging **out)
{
    hdi_chunk *chunk = NULL;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    *out = hdi_staging_of(device, to_device, true);
    hd_status status = *out ? hdi_staging_take(*out, HDI_STAGING_NOW, 0, &chunk) : HD_ERROR_HOST_MEMORY;
    if (chunk) {
        hdi_staging_give(*out, chunk, (hdi_point){0, 0}, false);
    }
    if (*out && status == HD_ERROR_HOST_MEMORY) {
        *out = hdi_staging_of(device, to_device, false);
        status = *out ? HD_OK : status;
    }
    return hdi_attempt_result(&attempt, status);
}

void hdi_staging_give(hdi_staging *pool, hdi_chunk *chunk, hdi_point last, bool signalled)
{
    hdi_lock_take(&pool->lock);
    chunk->last = last;
    chunk->signalled = signalled;
    if (__builtin_expect(hdi_point_is_parked(pool->runtime, last), 0)) {
        staging_set_apart(pool, chunk);
    } else if (last.position) {
        staging_push(pool, chunk);
    } else {
        staging_push_front(pool, chunk);
    }
    hdi_lock_release(&pool->lock);
    staging_wake_one(pool);
}

bool hdi_staging_stays_short(hdi_staging *pool)
{
    hdi_lock_take(&pool->lock);
    staging_put_back(pool);
    bool is_short = staging_count_parked(pool) >= pool->n_places - pool->most;
    hdi_lock_release(&pool->lock);
    return is_short;
}

bool hdi_staging_is_ample(hdi_staging *pool)
{
    hdi_lock_take(&pool->lock);
    /* `made` without `count`: chunks that are set apart, or that threads hold. */
    bool ample = 2 * (pool->made - pool->count) <= pool->most;
    hdi_lock_release(&pool->lock);
    return ample;
}

hd_status hdi_staging_await_roots(hd_lane *lane, const hdi_use *uses, size_t n_uses, int64_t deadline)
{
    hd_runtime *rt = lane->runtime;
    for (hdi_point root;;) {
        hd_status status = hdi_submit_probe(lane, uses, n_uses, &root);
        if (status || !root.position) {
            return status;
        }
        if (!hdi_wait_position(rt, root.lane, root.position, deadline)) {
            return hdi_not_done(rt, root.lane, root.position,
                                "earlier work on the bytes has not ended (option transfer_timeout)");
        }
    }
}

static void staging_wake_pool(hdi_staging *pool, void *context)
{
    (void)context;
    /* A thread looks at `given` before it looks at `closing`. */
    atomic_fetch_add_explicit(&pool->given, 1, memory_order_seq_cst);
    hdi_futex_wake(&pool->given, INT32_MAX);
}

/* Called when hd_close begins, so that all threads that wait for chunks notice it. */
static void staging_wake_all(hd_runtime *rt)
{
    staging_visit(rt, staging_wake_pool, NULL);
}
