/* pageable_crates.c - rings of pinned chunks. See pageable_crates.h.
 *
 * How much: a ring has at most `most` crates; all rings together have at most a quarter of what the option pinned_limit allows, apart from
 * the first crate of each. Where pinned memory is short, idle crates give theirs back (hdi_crates_relieve).
 */
#include "data/pageable_crates.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/wait.h"
#include "data/copy_pool.h"
#include "data/copy_lanes.h"
#include "engine/engine.h"

#define SMALL_MOST 32
#define LARGE_PER_THREAD 2 /* one being filled, one under way */
#define LARGE_MORE 4
#define LEAST ((size_t)4096)
#define SHARE 4 /* of the pinned memory that the program may hold */
#define AGAIN_NS ((int64_t)1000000000)
#define WORD_TIMEOUT_NS ((int64_t)500000)

enum { TO_DEVICE = 1, LARGE = 2, RINGS = 4 };

typedef struct device_crates {
    hdi_crates rings[RINGS];
} device_crates;

struct hdi_all_crates {
    _Atomic(device_crates *) devices[HDI_DEVICES_MAX];
    _Atomic uint64_t bytes;  /* of all crates that are made */
    _Atomic uint32_t filled; /* so many of them have their memory */
    _Atomic uint64_t most;   /* of them, where a ring has one already */
};

hd_status hdi_crates_create(hd_runtime *rt)
{
    rt->crates = calloc(1, sizeof *rt->crates);
    return rt->crates ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}

void hdi_crates_release(hd_runtime *rt)
{
    for (int i = 0; rt->crates && i < HDI_DEVICES_MAX; i++) {
        free(atomic_load_explicit(&rt->crates->devices[i], memory_order_relaxed));
    }
    free(rt->crates);
    rt->crates = NULL;
}

/* ---- rings ---- */

static uint64_t pinned_limit(hd_runtime *rt)
{
    hdi_host_pool_info info;
    hdi_host_pool_get_info(rt->host_pool, &info);
    return info.limit_bytes;
}

/* The largest power of two up to `most`, and no more than `limit`. */
static size_t power_of_two(size_t most, uint64_t limit)
{
    while (most > LEAST && most > limit) {
        most /= 2;
    }
    return most;
}

static void init_ring(hdi_crates *ring, hdi_device *device, int which, uint64_t limit)
{
    hd_runtime *rt = device->runtime;
    ring->runtime = rt;
    hdi_lock_init(&ring->lock, HDI_RANKED(HDI_RANK_PAGEABLE_RING, 0));
    if (which & LARGE) {
        size_t most = LARGE_PER_THREAD * (hdi_copy_pool_count(rt) + 1) + LARGE_MORE;
        ring->bytes = power_of_two(HDI_CRATE_LARGE, limit / 16);
        ring->most = most < HDI_CRATES_MOST ? (uint32_t)most : HDI_CRATES_MOST;
    } else {
        ring->bytes = power_of_two(HDI_CRATE_SMALL, limit / 32);
        ring->most = SMALL_MOST;
        atomic_init(&ring->lane, which & TO_DEVICE ? device->lane_in : device->lane_out);
    }
    for (uint32_t i = 0; i < ring->most; i++) {
        ring->places[i].next = ring->unmade;
        ring->unmade = &ring->places[i];
    }
}

static device_crates *make_device(hdi_device *device)
{
    _Atomic(device_crates *) *slot = &device->runtime->crates->devices[device->index];
    device_crates *made = calloc(1, sizeof *made), *before = NULL;
    if (!made) {
        hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
        return NULL;
    }
    uint64_t limit = pinned_limit(device->runtime);
    for (int i = 0; i < RINGS; i++) {
        init_ring(&made->rings[i], device, i, limit);
    }
    atomic_store_explicit(&device->runtime->crates->most, limit / SHARE, memory_order_relaxed); /* always the same */
    /* pairs with the acquire load of hdi_crates_of */
    if (!atomic_compare_exchange_strong_explicit(slot, &before, made, memory_order_acq_rel, memory_order_acquire)) {
        free(made);
        made = before;
    }
    return made;
}

/* Large crates have a lane of their own, which is made with the first large transfer. */
static void choose_lane(hdi_crates *ring, hdi_device *device, bool to_device)
{
    hd_lane *none = NULL, *lane = hdi_program_lane(device, to_device ? HDI_WAY_IN : HDI_WAY_OUT);
    atomic_compare_exchange_strong_explicit(&ring->lane, &none, lane, memory_order_release, memory_order_relaxed);
}

hdi_crates *hdi_crates_of(hdi_device *device, bool to_device, bool large)
{
    _Atomic(device_crates *) *slot = &device->runtime->crates->devices[device->index];
    device_crates *all = atomic_load_explicit(slot, memory_order_acquire);
    if (__builtin_expect(!all, 0)) {
        all = make_device(device);
    }
    if (!all) {
        return NULL;
    }
    hdi_crates *ring = &all->rings[(to_device ? TO_DEVICE : 0) | (large ? LARGE : 0)];
    if (__builtin_expect(!hdi_crates_lane(ring), 0)) {
        choose_lane(ring, device, to_device);
    }
    return ring;
}

/* ---- the queue; the lock is held ---- */

static void push(hdi_crates *ring, hdi_crate *crate)
{
    ring->queue[(ring->first + ring->count++) % HDI_CRATES_MOST] = crate;
}

static void push_front(hdi_crates *ring, hdi_crate *crate)
{
    ring->first = (ring->first + HDI_CRATES_MOST - 1) % HDI_CRATES_MOST;
    ring->queue[ring->first] = crate;
    ring->count++;
}

/* The first crate, if nobody uses it any more. *busy_until: else what has to be waited for, {0, 0} where the ring is empty. */
static hdi_crate *pop(hdi_crates *ring, hdi_awaited *busy_until)
{
    *busy_until = (hdi_awaited){0, 0};
    if (ring->count == 0) {
        return NULL;
    }
    hdi_crate *crate = ring->queue[ring->first];
    /* pairs with the engine's store of `done`: the device is done with the memory */
    if (crate->last && atomic_load_explicit(&hdi_crates_lane(ring)->shared->done, memory_order_acquire) < crate->last) {
        hdi_awaited_add(busy_until, crate->last, crate->signalled);
        for (uint32_t i = 1; i < ring->count; i++) {
            const hdi_crate *next = ring->queue[(ring->first + i) % HDI_CRATES_MOST];
            hdi_awaited_add(busy_until, next->last, next->signalled);
        }
        return NULL;
    }
    ring->first = (ring->first + 1) % HDI_CRATES_MOST;
    ring->count--;
    return crate;
}

bool hdi_awaited_wait(const hdi_awaited *a, hd_lane *lane, int64_t deadline)
{
    hd_runtime *rt = lane->device->runtime;
    int64_t soon = a->flagged > a->last ? hdi_clock_ns() + WORD_TIMEOUT_NS : 0;
    if (soon && hdi_wait_position(rt, lane->global, a->flagged, soon < deadline ? soon : deadline)) {
        return true;
    }
    return hdi_wait_position(rt, lane->global, a->last, deadline);
}

/* ---- memory ---- */

static void count_bytes(const hdi_crates *ring, bool more)
{
    uint64_t bytes = more ? ring->bytes : -(uint64_t)ring->bytes;
    atomic_fetch_add_explicit(&ring->runtime->crates->bytes, bytes, memory_order_relaxed);
}

/* Somebody may find something now. */
static void call_one(hdi_crates *ring)
{
    atomic_fetch_add_explicit(&ring->given, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&ring->waiting, memory_order_seq_cst) != 0, 0)) {
        hdi_futex_wake(&ring->given, 1);
    }
}

/* A place that has no memory any more, or got none. */
static void give_place(hdi_crates *ring, hdi_crate *crate)
{
    if (crate->buffer) {
        atomic_fetch_sub_explicit(&ring->runtime->crates->filled, 1, memory_order_relaxed);
    }
    crate->buffer = NULL;
    crate->last = 0;
    hdi_lock_take(&ring->lock);
    crate->next = ring->unmade;
    ring->unmade = crate;
    ring->made--;
    hdi_lock_release(&ring->lock);
    count_bytes(ring, false);
    call_one(ring);
}

static bool may_grow(hdi_crates *ring)
{
    const struct hdi_all_crates *all = ring->runtime->crates;
    int64_t again = atomic_load_explicit(&ring->again, memory_order_relaxed);
    return (!again || hdi_clock_ns() >= again) &&
           atomic_load_explicit(&all->bytes, memory_order_relaxed) + ring->bytes <=
               atomic_load_explicit(&all->most, memory_order_relaxed);
}

/* A place for one more, if there may be one. *only: the ring has no crate yet. */
static hdi_crate *take_place(hdi_crates *ring, bool *only)
{
    bool more = may_grow(ring);
    hdi_lock_take(&ring->lock);
    hdi_crate *crate = ring->unmade;
    *only = ring->made == 0;
    if (crate && (*only || more)) {
        ring->unmade = crate->next;
        ring->made++;
    } else {
        crate = NULL;
    }
    hdi_lock_release(&ring->lock);
    if (crate) {
        count_bytes(ring, true);
    }
    return crate;
}

/* A device that was lost in this process may not have stopped writing there: the memory is left alone until hd_close. A worker process has
 * ended before its device counts as lost. */
static bool is_spoilt(const hdi_crates *ring, const hdi_crate *crate)
{
    hdi_failure failure;
    return crate->last && !ring->runtime->is_process &&
           hdi_failure_find(ring->runtime, hdi_crates_lane(ring)->global, crate->last, &failure) && failure.lost;
}

/* One that is there and free. */
static hdi_crate *take_idle(hdi_crates *ring, hdi_awaited *busy_until)
{
    for (;;) {
        hdi_lock_take(&ring->lock);
        hdi_crate *crate = pop(ring, busy_until);
        hdi_lock_release(&ring->lock);
        if (!crate || __builtin_expect(!is_spoilt(ring, crate), 1)) {
            return crate;
        }
        give_place(ring, crate);
    }
}

bool hdi_crates_relieve(hd_runtime *rt)
{
    bool any = false;
    for (int i = 0; i < rt->n_devices * RINGS; i++) {
        device_crates *all = atomic_load_explicit(&rt->crates->devices[i / RINGS], memory_order_acquire);
        hdi_crates *ring = all ? &all->rings[i % RINGS] : NULL;
        hdi_awaited busy_until;
        for (hdi_crate *crate; ring && (crate = take_idle(ring, &busy_until));) {
            hdi_free(hdi_buffer_handle(crate->buffer));
            give_place(ring, crate);
            any = true;
        }
    }
    return any;
}

hd_status hdi_crates_not_given(hdi_crates *ring)
{
    hd_lane *lane = hdi_crates_lane(ring);
    hdi_lock_take(&ring->lock);
    uint64_t last = ring->count ? ring->queue[ring->first]->last : 0;
    hdi_lock_release(&ring->lock);
    /* Where all are in some thread's hands: it waits for something of this lane, since crates are used in no other. */
    last = last ? last : atomic_load_explicit(&lane->submitted, memory_order_acquire);
    return hdi_not_done(ring->runtime, lane->global, last, HDI_CHUNKS_IN_USE);
}

void hdi_crates_wake(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices * RINGS; i++) {
        device_crates *all = atomic_load_explicit(&rt->crates->devices[i / RINGS], memory_order_acquire);
        if (all) { /* who has looked at `closing` has looked at `given` before */
            atomic_fetch_add_explicit(&all->rings[i % RINGS].given, 1, memory_order_seq_cst);
            hdi_futex_wake(&all->rings[i % RINGS].given, INT32_MAX);
        }
    }
}

bool hdi_crates_in_use(const hd_runtime *rt)
{
    return atomic_load_explicit(&rt->crates->filled, memory_order_relaxed) != 0;
}

/* Memory for a crate that has none. */
static hd_status fill_place(hdi_crates *ring, hdi_crate *crate, bool only)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_buffer_make_host(ring->runtime, ring->bytes, only, &crate->buffer);
    if (status) {
        atomic_store_explicit(&ring->again, hdi_clock_ns() + AGAIN_NS, memory_order_relaxed);
        give_place(ring, crate);
    } else {
        atomic_fetch_add_explicit(&ring->runtime->crates->filled, 1, memory_order_relaxed);
    }
    hdi_attempt_result(&attempt, only ? status : HD_OK); /* else there are others */
    return status;
}

/* ---- taking and giving ---- */

/* Until a crate may be there. False: the deadline passed. `given`: as it was before the ring was looked at. */
static bool wait_for_one(hdi_crates *ring, const hdi_awaited *busy_until, uint32_t given, int64_t deadline)
{
    if (busy_until->last) {
        return hdi_awaited_wait(busy_until, hdi_crates_lane(ring), deadline);
    }
    return hdi_futex_wait(&ring->given, given, deadline);
}

static hd_status take_slow(hdi_crates *ring, hdi_crate_wish wish, int64_t deadline, hdi_crate **out)
{
    uint32_t waits = wish == HDI_CRATE_WAIT;
    /* Sequentially consistent with the giver's move of `given` and its look at `waiting` behind it. */
    atomic_fetch_add_explicit(&ring->waiting, waits, memory_order_seq_cst);
    hd_status status = HD_OK;
    hdi_crate *crate;
    for (bool in_time = true;;) {
        hdi_awaited busy_until;
        uint32_t given = atomic_load_explicit(&ring->given, memory_order_seq_cst);
        crate = take_idle(ring, &busy_until);
        if (crate) {
            break;
        }
        bool only = false;
        crate = take_place(ring, &only);
        if (crate) {
            status = fill_place(ring, crate, only);
            if (!status) {
                break;
            }
            crate = NULL;
            if (only) {
                break;
            }
            status = HD_OK; /* one of the others comes back */
            continue;
        }
        if (!waits || !in_time || hdi_is_closing(ring->runtime)) {
            break;
        }
        in_time = wait_for_one(ring, &busy_until, given, deadline);
    }
    atomic_fetch_sub_explicit(&ring->waiting, waits, memory_order_seq_cst);
    if (waits && !crate) {
        call_one(ring); /* the call that this thread may have had is for somebody else */
    }
    *out = crate;
    return status;
}

hd_status hdi_crate_take(hdi_crates *ring, hdi_crate_wish wish, int64_t deadline, hdi_crate **out)
{
    hdi_awaited busy_until;
    *out = take_idle(ring, &busy_until);
    return *out || wish == HDI_CRATE_IDLE ? HD_OK : take_slow(ring, wish, deadline, out);
}

void hdi_crate_give(hdi_crates *ring, hdi_crate *crate, uint64_t last, bool signalled)
{
    crate->last = last;
    crate->signalled = signalled;
    hdi_lock_take(&ring->lock);
    if (last) {
        push(ring, crate);
    } else {
        push_front(ring, crate);
    }
    hdi_lock_release(&ring->lock);
    call_one(ring);
}
