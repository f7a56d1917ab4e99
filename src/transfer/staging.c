/* staging.c - pools of pinned chunks. See staging.h for threads, locks and guarantees.
 *
 * Limits: staging.h describes chunks that are set apart. Of all other chunks, a pool contains at
 * most `most`. The pools of devices together take at most a quarter of the option pinned_limit, and
 * so do the pools of pairs of devices. A pool exceeds this limit by one chunk if all its other
 * chunks are set apart.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/parked.h"
#include "engine/engine.h"
#include "transfer/staging_internal.h"

#define AGAIN_NS ((int64_t)1000000000)
/* While all chunks of a pool are set apart, threads try again after this time to get memory for a
 * new chunk. The same holds for the spare chunk. */
#define APART_NS ((int64_t)5000000)
#define WORD_TIMEOUT_NS ((int64_t)500000)

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

/* Call this function after each change of `made` or `n_parked`. Relaxed loads and stores: a thread
 * that sees an old value of `look` meets the race that staging.h describes. */
static void staging_note(hdi_staging *pool)
{
    const struct hdi_stagings *all = hdi_transfer_of(pool->runtime)->stagings;
    uint32_t apart = staging_count_parked(pool), come = pool->made - apart;
    bool spare = pool->of_device ? !atomic_load_explicit(&all->spare_gone, memory_order_relaxed)
                                 : atomic_load_explicit(&all->spare, memory_order_relaxed) != NULL;
    bool look = come == 0 || (come == 1 && !spare) || apart >= pool->n_places - pool->most;
    atomic_store_explicit(&pool->look, look, memory_order_relaxed);
}

static void staging_add_apart_bytes(const hdi_staging *pool, bool more)
{
    uint64_t bytes = more ? pool->bytes : -(uint64_t)pool->bytes;
    atomic_fetch_add_explicit(&hdi_transfer_of(pool->runtime)->stagings->apart_bytes, bytes, memory_order_relaxed);
}

/* Makes the bytes of the chunk count among those of waiting copies, or no longer count. */
static void staging_count_in(const hdi_staging *pool, hdi_chunk *chunk, bool counted)
{
    if (!pool->of_device && chunk->counted != counted) {
        staging_add_apart_bytes(pool, counted);
        chunk->counted = counted;
    }
}

/* Makes n_parked count the chunk (`apart` true), or no longer count it. */
static void staging_count_apart(hdi_staging *pool, hdi_chunk *chunk, bool apart)
{
    uint32_t n = staging_count_parked(pool) + (uint32_t)apart - (uint32_t)chunk->apart;
    atomic_store_explicit(&pool->n_parked, n, memory_order_relaxed);
    chunk->apart = apart;
    staging_count_in(pool, chunk, apart);
    staging_note(pool);
}

static void staging_set_apart(hdi_staging *pool, hdi_chunk *chunk)
{
    chunk->next = pool->parked;
    pool->parked = chunk;
    staging_count_apart(pool, chunk, true);
}

/* Finds the chunks that are set apart, and whose last use no longer waits for work of the program.
 * Moves these chunks to the front of the queue. */
static void __attribute__((noinline)) staging_put_back(hdi_staging *pool)
{
    for (hdi_chunk **link = &pool->parked; *link;) {
        hdi_chunk *chunk = *link;
        if (hdi_point_is_parked(pool->runtime, chunk->last)) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        staging_count_apart(pool, chunk, false);
        staging_push_front(pool, chunk);
    }
}

static bool staging_first_is_free(const hdi_staging *pool)
{
    const hdi_chunk *chunk = pool->count ? pool->queue[pool->first] : NULL;
    return chunk && (!chunk->last.position || hdi_point_done(pool->runtime, chunk->last));
}

/* Takes the first chunk of the queue, if no operation uses it. NULL: *busy_until is the use to wait
 * for. If threads hold all chunks, *busy_until is empty. */
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

/* The bytes of all chunks of the pool's kind. */
static _Atomic uint64_t *staging_bytes(const hdi_staging *pool)
{
    struct hdi_stagings *all = hdi_transfer_of(pool->runtime)->stagings;
    return pool->of_device ? &all->bytes : &all->pair_bytes;
}

static void staging_count_bytes(const hdi_staging *pool, bool more)
{
    uint64_t bytes = more ? pool->bytes : -(uint64_t)pool->bytes;
    atomic_fetch_add_explicit(staging_bytes(pool), bytes, memory_order_relaxed);
}

/* Wakes one waiting thread, since it may find a chunk or memory now. */
static void staging_wake_one(hdi_staging *pool)
{
    atomic_fetch_add_explicit(&pool->given, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&pool->waiting, memory_order_seq_cst) != 0, 0)) {
        hdi_futex_wake(&pool->given, 1);
    }
}

/* Makes the place of a chunk free again. The chunk gave its memory back, never got memory, or is
 * spoilt (staging_is_spoilt). */
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
    staging_note(pool);
    hdi_lock_release(&pool->lock);
    staging_count_bytes(pool, false);
    staging_wake_one(pool);
}

static bool staging_may_grow(hdi_staging *pool)
{
    int64_t again = atomic_load_explicit(&pool->again, memory_order_relaxed);
    return (!again || hdi_clock_ns() >= again) &&
           atomic_load_explicit(staging_bytes(pool), memory_order_relaxed) + pool->bytes <= pool->share;
}

/* The state of a pool's chunks, without the new one. */
typedef enum others {
    OTHERS_NONE,
    OTHERS_APART, /* all other chunks are set apart */
    /* some other chunk is not set apart, so it becomes free without an action of the program */
    OTHERS_COME
} others;

/* Takes a place for one more chunk, if the pool may grow. NULL: it may not, or the last attempt to
 * get memory failed a moment ago. *beside: the state of the other chunks. */
static hdi_chunk *staging_take_place(hdi_staging *pool, others *beside)
{
    bool more = staging_may_grow(pool);
    hdi_lock_take(&pool->lock);
    hdi_chunk *chunk = pool->unmade;
    uint32_t come = pool->made - staging_count_parked(pool);
    *beside = come ? OTHERS_COME : pool->made ? OTHERS_APART : OTHERS_NONE;
    bool soon = pool->made && hdi_clock_ns() < pool->apart_again;
    if (chunk && come < pool->most && (come == 0 ? !soon : more)) {
        pool->unmade = chunk->next;
        pool->made++;
        staging_note(pool);
    } else {
        chunk = NULL;
    }
    hdi_lock_release(&pool->lock);
    if (chunk) {
        staging_count_bytes(pool, true);
    }
    return chunk;
}

/* True if a lost device may still write into the chunk. Then no thread uses the chunk's memory
 * again before hd_close. With worker processes this cannot happen, since a worker ends before its
 * device counts as lost. */
static bool staging_is_spoilt(const hdi_staging *pool, const hdi_chunk *chunk)
{
    hdi_failure failure;
    return chunk->last.position && !pool->runtime->is_process &&
           hdi_failure_find(pool->runtime, chunk->last.lane, chunk->last.position, &failure) && failure.lost;
}

/* Takes the first chunk of the queue, if it is free. *busy_until: as for staging_pop_free. */
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

static void staging_note_pool(hdi_staging *pool, void *context)
{
    (void)context;
    hdi_lock_take(&pool->lock);
    staging_note(pool);
    hdi_lock_release(&pool->lock);
}

/* Makes the spare chunk's memory, unless it exists. False: there is no memory. */
static bool staging_make_spare(hd_runtime *rt)
{
    struct hdi_stagings *all = hdi_transfer_of(rt)->stagings;
    struct hd_buffer *buffer = NULL, *none = NULL;
    if (atomic_load_explicit(&all->spare, memory_order_relaxed)) {
        return true;
    }
    if (hdi_clock_ns() < atomic_load_explicit(&all->spare_again, memory_order_relaxed)) {
        return false;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_buffer_make_host(rt, HDI_STAGING_SMALL, false, &buffer);
    hdi_attempt_end(&attempt);
    if (status) {
        atomic_store_explicit(&all->spare_again, hdi_clock_ns() + APART_NS, memory_order_relaxed);
        return false;
    }
    if (!atomic_compare_exchange_strong(&all->spare, &none, buffer)) {
        hdi_free(hdi_buffer_handle(buffer));
    }
    atomic_store_explicit(&all->spare_gone, false, memory_order_relaxed);
    hdi_staging_visit(rt, staging_note_pool, NULL);
    return true;
}

/* Takes the spare chunk's memory. `gone`: a pool gets it. NULL: there is none. */
static struct hd_buffer *staging_take_spare_memory(hd_runtime *rt, bool gone)
{
    struct hdi_stagings *all = hdi_transfer_of(rt)->stagings;
    struct hd_buffer *buffer = atomic_exchange(&all->spare, NULL);
    if (buffer) {
        atomic_store_explicit(&all->spare_gone, gone, memory_order_relaxed);
        hdi_staging_visit(rt, staging_note_pool, NULL);
    }
    return buffer;
}

/* Allocates memory for the chunk of a place. If pinned memory is full, takes the spare chunk's
 * memory. If the pool has no other chunk, the allocation may wait then. */
static hd_status staging_get_memory(hdi_staging *pool, others beside, struct hd_buffer **out)
{
    hd_status status = hdi_buffer_make_host(pool->runtime, pool->bytes, false, out);
    if (status == HD_ERROR_HOST_MEMORY && beside != OTHERS_COME && pool->bytes <= HDI_STAGING_SMALL) {
        *out = staging_take_spare_memory(pool->runtime, true);
        status = *out ? HD_OK : status;
    }
    if (status == HD_ERROR_HOST_MEMORY && beside == OTHERS_NONE && pool->waits) {
        status = hdi_buffer_make_host(pool->runtime, pool->bytes, true, out);
    }
    return status;
}

/* Gets memory for the chunk of a place. `ahead`: no thread waits for the chunk, so the call neither
 * waits nor takes the spare chunk's memory. */
static hd_status staging_fill_place(hdi_staging *pool, hdi_chunk *chunk, others beside, bool ahead)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    struct hd_buffer *buffer = NULL;
    hd_status status = ahead ? hdi_buffer_make_host(pool->runtime, pool->bytes, false, &buffer)
                             : staging_get_memory(pool, beside, &buffer);
    if (status) {
        int64_t now = hdi_clock_ns();
        atomic_store_explicit(&pool->again, now + AGAIN_NS, memory_order_relaxed);
        hdi_lock_take(&pool->lock);
        pool->apart_again = now + APART_NS;
        hdi_lock_release(&pool->lock);
        staging_give_place(pool, chunk);
    } else {
        hdi_lock_take(&pool->lock);
        chunk->buffer = buffer;
        hdi_lock_release(&pool->lock);
        atomic_fetch_add_explicit(&hdi_transfer_of(pool->runtime)->stagings->filled, 1, memory_order_relaxed);
    }
    /* if the pool has other chunks, the caller can wait for one of them, so the failure leaves no
     * message */
    hdi_attempt_result(&attempt, beside == OTHERS_NONE && !ahead ? status : HD_OK);
    return status;
}

/* Makes a chunk ahead of need, if all chunks of the pool are set apart, or if there are none. */
static void staging_prepare(hdi_staging *pool)
{
    others beside;
    hdi_chunk *chunk = staging_take_place(pool, &beside);
    if (chunk && beside == OTHERS_COME) {
        staging_give_place(pool, chunk);
    } else if (chunk && !staging_fill_place(pool, chunk, beside, true)) {
        hdi_lock_take(&pool->lock);
        staging_push_front(pool, chunk);
        hdi_lock_release(&pool->lock);
        staging_wake_one(pool);
    }
}

/* ---- chunks of a short pool ---- */

#define ENDS 32 /* the most uses of chunks that one probe compares */

/* Writes the last uses of chunks to `ends`. The chunks are those that are set apart, and then the
 * extra chunks. Skips the first `from` chunks. Returns the number of uses in `ends`. */
static uint32_t staging_list_apart(hdi_staging *pool, uint32_t from, hdi_point ends[ENDS])
{
    uint32_t at = 0, n = 0;
    hdi_lock_take(&pool->lock);
    const hdi_chunk *const lists[] = {pool->parked, pool->extras};
    for (int i = 0; i < 2; i++) {
        for (const hdi_chunk *chunk = lists[i]; chunk && n < ENDS; chunk = chunk->next) {
            ends[n] = chunk->last;
            n += at++ >= from;
        }
    }
    hdi_lock_release(&pool->lock);
    return n;
}

/* Removes the chunk whose last use is `last` from a list. NULL: no such chunk is in the list. The
 * caller holds the lock. */
static hdi_chunk *staging_unlink(hdi_chunk **list, hdi_point last)
{
    for (hdi_chunk **link = list; *link; link = &(*link)->next) {
        hdi_chunk *chunk = *link;
        if (chunk->last.lane == last.lane && chunk->last.position == last.position) {
            *link = chunk->next;
            return chunk;
        }
    }
    return NULL;
}

static hdi_chunk *staging_take_shared(hdi_staging *pool, hdi_point last)
{
    hdi_lock_take(&pool->lock);
    hdi_chunk *chunk = staging_unlink(&pool->parked, last);
    chunk = chunk ? chunk : staging_unlink(&pool->extras, last);
    hdi_lock_release(&pool->lock);
    return chunk;
}

/* Takes an extra chunk. `over` true: only a chunk whose last use is over. `over` false: a chunk
 * whose last use does not wait for work of the program. */
static hdi_chunk *staging_take_spare(hdi_staging *pool, bool over)
{
    hd_runtime *rt = pool->runtime;
    hdi_lock_take(&pool->lock);
    hdi_chunk **link = &pool->extras;
    while (*link && !(over ? hdi_point_done(rt, (*link)->last) : !hdi_point_is_parked(rt, (*link)->last))) {
        link = &(*link)->next;
    }
    hdi_chunk *chunk = *link;
    if (chunk) {
        *link = chunk->next;
    }
    hdi_lock_release(&pool->lock);
    return chunk;
}

/* Frees the extra chunks whose last use is over. */
static bool staging_shrink_extras(hdi_staging *pool)
{
    bool any = false;
    for (hdi_chunk *chunk; (chunk = staging_take_spare(pool, true));) {
        if (!staging_is_spoilt(pool, chunk)) {
            hdi_free(hdi_buffer_handle(chunk->buffer));
            atomic_fetch_sub_explicit(&hdi_transfer_of(pool->runtime)->stagings->filled, 1, memory_order_relaxed);
            staging_count_in(pool, chunk, false);
            staging_count_bytes(pool, false);
            any = true;
        }
        free(chunk);
    }
    return any;
}

static void staging_shrink_extras_of(hdi_staging *pool, void *context)
{
    *(bool *)context |= staging_shrink_extras(pool);
}

bool hdi_staging_count(hdi_staging *pool)
{
    const struct hdi_stagings *all = hdi_transfer_of(pool->runtime)->stagings;
    for (bool freed = true; freed;) {
        staging_add_apart_bytes(pool, true);
        if (atomic_load_explicit(&all->apart_bytes, memory_order_relaxed) <= pool->share) {
            return true;
        }
        staging_add_apart_bytes(pool, false);
        freed = false;
        hdi_staging_visit(pool->runtime, staging_shrink_extras_of, &freed);
    }
    return false;
}

void hdi_staging_count_chunk(hdi_staging *pool, hdi_chunk *chunk)
{
    if (!chunk || chunk->counted) {
        staging_add_apart_bytes(pool, false);
    } else {
        chunk->counted = true;
    }
}

/* Makes an extra chunk. NULL: the limits do not allow it, or there is no memory. */
static hdi_chunk *staging_make_extra(hdi_staging *pool)
{
    int64_t again = atomic_load_explicit(&pool->again, memory_order_relaxed);
    if (!pool->grows || (again && hdi_clock_ns() < again) || !staging_make_spare(pool->runtime) ||
        !hdi_staging_count(pool)) {
        return NULL;
    }
    hdi_chunk *chunk = calloc(1, sizeof *chunk);
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    if (chunk && hdi_buffer_make_host(pool->runtime, pool->bytes, false, &chunk->buffer)) {
        atomic_store_explicit(&pool->again, hdi_clock_ns() + AGAIN_NS, memory_order_relaxed);
        free(chunk);
        chunk = NULL;
    }
    hdi_attempt_end(&attempt);
    if (chunk) {
        chunk->extra = true;
        staging_count_bytes(pool, true);
        atomic_fetch_add_explicit(&hdi_transfer_of(pool->runtime)->stagings->filled, 1, memory_order_relaxed);
    }
    hdi_staging_count_chunk(pool, chunk);
    return chunk;
}

static hdi_chunk *staging_take_extra(hdi_staging *pool)
{
    for (;;) {
        hdi_chunk *chunk = staging_take_spare(pool, false);
        if (!chunk) {
            return staging_make_extra(pool);
        }
        if (!staging_is_spoilt(pool, chunk)) {
            return chunk;
        }
        free(chunk); /* its memory is left alone */
    }
}

/* Takes a chunk for an operation that waits for work of the program. `uses`: the uses of the
 * operation. *root: a part of that work; position 0: the operation waits for no such work. *out
 * NULL: the operation waits for no such work, or no chunk is left for it. Errors: those of
 * hdi_submit_probe. */
static hd_status staging_take_apart(hdi_staging *pool, hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                    hdi_point *root, hdi_chunk **out)
{
    hdi_point ends[ENDS];
    hdi_probe probe = {.ends = ends};
    hd_status status;
    uint32_t from = 0;
    *out = NULL;
    do {
        probe.n_ends = staging_list_apart(pool, from, ends);
        from += ENDS;
        status = hdi_submit_probe(lane, uses, n_uses, &probe);
        bool any = !status && probe.root.position && probe.covered < probe.n_ends;
        *out = any ? staging_take_shared(pool, ends[probe.covered]) : NULL;
    } while (!status && probe.root.position && !*out && probe.n_ends == ENDS);
    *root = probe.root;
    if (!status && probe.root.position && !*out) {
        *out = staging_take_extra(pool);
    }
    return status;
}

/* ---- shrinking ---- */

static void staging_shrink_pool(hdi_staging *pool, void *context)
{
    bool *any = context;
    hdi_awaited busy_until;
    for (hdi_chunk *chunk; (chunk = staging_take_idle(pool, &busy_until));) {
        /* any unfinished uses in the chunk's record pass to the next owner of the memory */
        hdi_free(hdi_buffer_handle(chunk->buffer));
        staging_give_place(pool, chunk);
        *any = true;
    }
    *any |= staging_shrink_extras(pool);
}

static bool staging_shrink(hd_runtime *rt)
{
    bool any = false;
    hdi_staging_visit(rt, staging_shrink_pool, &any);
    /* while copies wait for work of the program, other transfers may need the spare chunk */
    bool waits = atomic_load_explicit(&hdi_transfer_of(rt)->stagings->apart_bytes, memory_order_relaxed) != 0;
    struct hd_buffer *spare = waits ? NULL : staging_take_spare_memory(rt, false);
    if (spare) {
        hdi_free(hdi_buffer_handle(spare));
        any = true;
    }
    return any;
}

static bool staging_in_use(hd_runtime *rt)
{
    return atomic_load_explicit(&hdi_transfer_of(rt)->stagings->filled, memory_order_relaxed) != 0;
}

static void staging_wake_pool(hdi_staging *pool, void *context)
{
    (void)context;
    /* A waiting thread reads `given` before it reads `closing`. */
    atomic_fetch_add_explicit(&pool->given, 1, memory_order_seq_cst);
    hdi_futex_wake(&pool->given, INT32_MAX);
}

/* Called when hd_close begins, so that all threads that wait for chunks return. */
static void staging_wake_all(hd_runtime *rt)
{
    hdi_staging_visit(rt, staging_wake_pool, NULL);
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

const hdi_lifetime hdi_staging_lifetime = {.create = staging_create, .release = hdi_stagings_release};

/* ---- taking and giving ---- */

/* Waits until a chunk may have become free: until the use *busy_until is over. If *busy_until is
 * empty, waits until a thread gives a chunk back. `given`: the value of pool->given before the
 * caller looked at the pool. Also returns at the deadline. */
static void staging_wait_for_one(hdi_staging *pool, const hdi_awaited *busy_until, uint32_t given, int64_t deadline)
{
    int64_t began = hdi_record_began(&pool->runtime->recorder);
    if (busy_until->last.position) {
        staging_wait_for(busy_until, pool->runtime, deadline);
    } else {
        HDI_CALLER_WAITS();
        hdi_futex_wait(&pool->given, given, deadline);
    }
    hdi_pause_end(&pool->runtime->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_CHUNK,
                              .device = (uint8_t)(pool->lane ? pool->lane->device->index : HDI_RECORD_NO_DEVICE),
                              .lane = busy_until->last.lane,
                              .position = busy_until->last.position,
                              .bytes = pool->bytes});
}

/* Makes one more chunk, if the pool may grow. *out NULL: it may not, or there is no memory. Fails
 * only if the caller should not wait for another chunk of the pool. *beside: the state of the other
 * chunks. */
static hd_status staging_take_new(hdi_staging *pool, others *beside, hdi_chunk **out)
{
    *out = staging_take_place(pool, beside);
    hd_status status = *out ? staging_fill_place(pool, *out, *beside, false) : HD_OK;
    if (status) {
        *out = NULL;
    }
    /* a transfer between devices goes on with smaller chunks */
    bool smaller = !pool->of_device && !pool->grows;
    return *beside == OTHERS_NONE || (*beside == OTHERS_APART && smaller) ? status : HD_OK;
}

static hd_status staging_take_slow(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out)
{
    uint32_t waits = wish >= HDI_STAGING_WAIT;
    /* Sequentially consistent with the giver, which changes `given` and then reads `waiting`. */
    atomic_fetch_add_explicit(&pool->waiting, waits, memory_order_seq_cst);
    hd_status status = HD_OK;
    hdi_chunk *chunk;
    for (bool in_time = true;; in_time = hdi_clock_ns() < deadline) {
        hdi_awaited busy_until;
        others beside;
        uint32_t given = atomic_load_explicit(&pool->given, memory_order_seq_cst);
        chunk = staging_take_idle(pool, &busy_until);
        if (chunk) {
            break;
        }
        status = staging_take_new(pool, &beside, &chunk);
        if (status || chunk) {
            break;
        }
        if (wish == HDI_STAGING_IN_USE && (chunk = staging_take_in_use(pool))) {
            break;
        }
        if (!waits || !in_time || hdi_is_closing(pool->runtime)) {
            break;
        }
        if (wish == HDI_STAGING_IN_USE) {
            /* the queue is empty now, so the chunk of busy_until is in the hands of another
             * thread */
            busy_until = (hdi_awaited){.flagged = 0};
        }
        /* If no other chunk comes, this thread tries to get memory again after APART_NS. */
        int64_t until = beside == OTHERS_COME ? deadline : hdi_deadline(APART_NS);
        staging_wait_for_one(pool, &busy_until, given, until < deadline ? until : deadline);
    }
    atomic_fetch_sub_explicit(&pool->waiting, waits, memory_order_seq_cst);
    if (waits && !chunk) {
        /* this thread may have got the wake-up that another waiting thread needs */
        staging_wake_one(pool);
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
    /* The structures of buffers are never freed. If another owner uses a structure by now, the
     * message names that owner's use, which does no harm. */
    for (uint32_t i = 0; !use.position && i < n_places; i++) {
        use = buffers[i] ? hdi_buffer_awaited(buffers[i]) : use;
    }
    if (!use.position && lane) {
        /* Threads hold all chunks. These threads wait for work of this lane, since no other lane
         * uses the chunks. */
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

/* True if all chunks of the pool are set apart. */
static bool staging_has_none_to_come(hdi_staging *pool)
{
    hdi_lock_take(&pool->lock);
    bool none = pool->made == staging_count_parked(pool);
    hdi_lock_release(&pool->lock);
    return none;
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
    bool none_comes = *out && !status && !chunk && staging_has_none_to_come(*out);
    if (*out && (status == HD_ERROR_HOST_MEMORY || none_comes)) {
        *out = hdi_staging_of(device, to_device, false);
        status = *out ? HD_OK : status;
    }
    return hdi_attempt_result(&attempt, status);
}

/* Gives back an extra chunk, or a chunk that is set apart and that a transfer shared. The caller
 * holds the lock. */
static void staging_give_special(hdi_staging *pool, hdi_chunk *chunk)
{
    if (chunk->extra) {
        chunk->next = pool->extras;
        pool->extras = chunk;
    } else {
        /* if the chunk no longer waits for work of the program, staging_put_back later moves it
         * into the queue */
        staging_set_apart(pool, chunk);
    }
}

void hdi_staging_give(hdi_staging *pool, hdi_chunk *chunk, hdi_point last, bool signalled)
{
    hdi_lock_take(&pool->lock);
    chunk->last = last;
    chunk->signalled = signalled;
    if (__builtin_expect(chunk->apart | chunk->extra, 0)) {
        staging_give_special(pool, chunk);
    } else if (__builtin_expect(hdi_point_is_parked(pool->runtime, last), 0)) {
        staging_set_apart(pool, chunk);
    } else {
        staging_count_in(pool, chunk, false);
        if (last.position) {
            staging_push(pool, chunk);
        } else {
            staging_push_front(pool, chunk);
        }
    }
    hdi_lock_release(&pool->lock);
    staging_wake_one(pool);
}

bool hdi_staging_stays_short(hdi_staging *pool)
{
    const struct hdi_stagings *all = hdi_transfer_of(pool->runtime)->stagings;
    if (!pool->of_device || atomic_load_explicit(&all->spare_gone, memory_order_relaxed)) {
        staging_make_spare(pool->runtime);
    }
    hdi_lock_take(&pool->lock);
    staging_put_back(pool);
    bool any = pool->made != staging_count_parked(pool);
    hdi_lock_release(&pool->lock);
    if (!any) {
        staging_prepare(pool);
    }
    hdi_lock_take(&pool->lock);
    staging_note(pool);
    bool is_short = atomic_load_explicit(&pool->look, memory_order_relaxed);
    hdi_lock_release(&pool->lock);
    return is_short;
}

bool hdi_staging_is_ample(hdi_staging *pool)
{
    hdi_lock_take(&pool->lock);
    /* If a chunk is not in the queue, it is set apart, or a thread holds it. */
    bool ample = 2 * (pool->made - pool->count) <= pool->most;
    hdi_lock_release(&pool->lock);
    return ample;
}

hd_status hdi_staging_await_roots(hd_lane *lane, const hdi_use *uses, size_t n_uses, int64_t deadline)
{
    hd_runtime *rt = lane->runtime;
    for (hdi_probe probe = {.n_ends = 0};;) {
        hd_status status = hdi_submit_probe(lane, uses, n_uses, &probe);
        hdi_point root = probe.root;
        if (status || !root.position) {
            return status;
        }
        if (!hdi_wait_position(rt, root.lane, root.position, deadline)) {
            return hdi_not_done(rt, root.lane, root.position,
                                "earlier work on the bytes has not ended (option transfer_timeout)");
        }
    }
}

/* Finds a use that a chunk of the pool waits for, and that waits for work of the program. */
static void staging_find_holder(hdi_staging *pool, void *context)
{
    hdi_point *holder = context;
    hdi_lock_take(&pool->lock);
    const hdi_chunk *first = pool->parked ? pool->parked : pool->extras;
    if (!pool->of_device && !holder->position && first && hdi_point_is_parked(pool->runtime, first->last)) {
        *holder = first->last;
    }
    hdi_lock_release(&pool->lock);
}

/* Fails for an operation that waits for `root`, and that gets no chunk. */
static hd_status staging_not_apart(hd_runtime *rt, hdi_point root)
{
    hdi_point holder = {0, 0};
    hdi_staging_visit(rt, staging_find_holder, &holder);
    if (holder.position) {
        return hdi_not_done(rt, holder.lane, holder.position,
                            "copies that wait for work of the program hold all chunks that they may (option "
                            "pinned_limit); end the claim or the work");
    }
    return hdi_not_done(rt, root.lane, root.position,
                        "no pinned memory is left for a copy that waits (option pinned_limit); free pinned buffers, or "
                        "end the claim or the work");
}

hd_status hdi_staging_await_apart(hdi_staging *pool, hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                  int64_t deadline, bool *counted, hdi_chunk **out)
{
    hd_runtime *rt = lane->runtime;
    for (hdi_point root;;) {
        hd_status status = staging_take_apart(pool, lane, uses, n_uses, &root, out);
        if (status || *out || !root.position) {
            return status;
        }
        if (!pool->grows) {
            return HD_ERROR_HOST_MEMORY;
        }
        int64_t until = hdi_deadline(APART_NS);
        if (hdi_clock_ns() >= deadline || hdi_is_closing(rt)) {
            return staging_not_apart(rt, root);
        }
        hdi_wait_position(rt, root.lane, root.position, until < deadline ? until : deadline);
        *counted = *counted || hdi_staging_count(pool);
        if (*counted && !hdi_staging_stays_short(pool)) {
            return HD_OK;
        }
    }
}
