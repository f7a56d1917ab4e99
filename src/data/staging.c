/* staging.c - the pool of pinned chunks. See staging.h.
 *
 * Always: a chunk is either taken by one thread, or free with the point of its last use; chunks are made when first needed, and kept
 * until pinned memory gets scarce.
 */
#include "data/staging.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "data/pageable_crates.h"
#include "data/ring.h"
#include "engine/engine.h"

struct hdi_staging {
    hdi_mutex lock;
    pthread_cond_t given;
    hdi_chunk small[HDI_STAGING_SMALL_CHUNKS];
    hdi_chunk large[HDI_STAGING_LARGE_CHUNKS];
};

hd_status hdi_staging_create(hd_runtime *rt)
{
    struct hdi_staging *pool = calloc(1, sizeof *pool);
    if (!pool) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&pool->lock, HDI_RANK_STAGING);
    hdi_cond_init(&pool->given);
    rt->staging = pool;
    return HD_OK;
}

void hdi_staging_release(hd_runtime *rt)
{
    struct hdi_staging *pool = rt->staging;
    if (pool) {
        /* The chunks' buffers go with all other buffers of the runtime. */
        pthread_cond_destroy(&pool->given);
        hdi_mutex_destroy(&pool->lock);
        free(pool);
        rt->staging = NULL;
    }
}

static bool is_idle(hd_runtime *rt, const hdi_chunk *c)
{
    return !c->last.position || hdi_point_done(rt, c->last);
}

/* Lock held. Who has taken a chunk may be changing `made`. */
static bool is_there(const hdi_chunk *c)
{
    return c->taken ? !c->making : c->made;
}

/* Lock held. Whether there are chunks, taken or not. */
static bool has_chunk(const hdi_chunk *chunks, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        any |= is_there(&chunks[i]);
    }
    return any;
}

/* Lock held. What a chunk that somebody has taken is used for; position 0: nothing is under way with any. */
static hdi_point any_use(const hdi_chunk *chunks, size_t n)
{
    hdi_point use = {0, 0};
    for (size_t i = 0; i < n && !use.position; i++) {
        if (is_there(&chunks[i]) && chunks[i].buffer) {
            use = hdi_buffer_awaited(chunks[i].buffer);
        }
    }
    return use;
}

/* The best chunk that is not taken: one that is made and idle, else one not made yet (`may_make`), else the first whose use will end. */
static hdi_chunk *pick(hd_runtime *rt, hdi_chunk *chunks, size_t n, bool may_make)
{
    hdi_chunk *unmade = NULL;
    hdi_chunk *busy = NULL;
    for (size_t i = 0; i < n; i++) {
        hdi_chunk *c = &chunks[i];
        if (c->taken) {
            continue;
        }
        if (!c->made) {
            unmade = unmade ? unmade : c;
        } else if (is_idle(rt, c)) {
            return c;
        } else if (!busy || (c->last.lane == busy->last.lane && c->last.position < busy->last.position)) {
            busy = c;
        }
    }
    return unmade && may_make ? unmade : busy;
}

/* Waits until nobody uses a chunk any more. *free_now false: that would mean waiting, and the caller does not want to. */
static hd_status make_free(hd_runtime *rt, hdi_chunk *c, int64_t deadline, bool *free_now)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    /* By its use record, not by `last` alone: a lost device is done with it at once, while a healthy one may still be at the first half
     * of a copy between the two. */
    hd_status status = hdi_buffer_settle(c->buffer, NULL, 0, c->buffer->bytes, HD_WRITE | HDI_ACCESS_REPLACES,
                                         deadline == HDI_STAGING_NOW ? 0 : deadline);
    hdi_attempt_end(&attempt);
    *free_now = !status;
    if (status && deadline == HDI_STAGING_NOW) {
        return HD_OK;
    }
    if (status) {
        return hdi_not_done(c->buffer->runtime, c->last.lane, c->last.position, HDI_CHUNKS_IN_USE);
    }
    hdi_failure failure;
    if (hdi_failure_find(rt, c->last.lane, c->last.position, &failure) && failure.lost) {
        /* A device that is lost may not have stopped writing: this memory is left alone until hd_close. A worker process has ended
         * before its device counts as lost. */
        c->made = rt->is_process;
    }
    return HD_OK;
}

/* Makes a chunk that was picked and, but for the call of the driver, has the lock held. */
static hd_status make(hd_runtime *rt, hdi_chunk *c, size_t bytes, bool wait)
{
    c->making = true;
    hdi_mutex_unlock(&rt->staging->lock);
    struct hd_buffer *buffer = NULL;
    hd_status status = hdi_buffer_make_host(rt, bytes, wait, &buffer);
    hdi_mutex_lock(&rt->staging->lock);
    c->making = false;
    c->buffer = buffer;
    c->made = !status;
    c->last = (hdi_point){0, 0};
    return status;
}

hd_status hdi_staging_take(hd_runtime *rt, size_t bytes, int64_t deadline, hdi_chunk **out)
{
    struct hdi_staging *pool = rt->staging;
    bool small = bytes <= HDI_STAGING_SMALL, now = deadline == HDI_STAGING_NOW, may_make = true;
    hdi_chunk *chunks = small ? pool->small : pool->large;
    size_t n = small ? HDI_STAGING_SMALL_CHUNKS : HDI_STAGING_LARGE_CHUNKS;
    hd_status status = HD_OK;
    hdi_chunk *c = NULL;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&pool->lock);
    while (!status && !c) {
        c = pick(rt, chunks, n, may_make || !has_chunk(chunks, n));
        if (now && (!c || (c->made && !is_idle(rt, c)))) {
            c = NULL;
            break;
        }
        if (!c) {
            bool goes_on = !hdi_is_closing(rt) && hdi_cond_wait(&pool->given, &pool->lock, deadline);
            hdi_point use = goes_on ? (hdi_point){0, 0} : any_use(chunks, n);
            status = goes_on ? HD_OK : hdi_not_done(rt, use.lane, use.position, HDI_CHUNKS_IN_USE);
            continue;
        }
        bool first = !has_chunk(chunks, n);
        c->taken = true;
        if (c->made) {
            break;
        }
        status = make(rt, c, small ? HDI_STAGING_SMALL : HDI_STAGING_LARGE, first && !now);
        if (status) {
            c->taken = false;
            pthread_cond_broadcast(&pool->given); /* some wait for large ones, some for small ones */
        }
        if (status && (now || !first)) { /* fewer do as well */
            status = HD_OK;
            may_make = false;
            c = NULL;
            if (now) {
                break;
            }
        }
    }
    hdi_mutex_unlock(&pool->lock);
    hdi_attempt_result(&attempt, status);
    if (c && !status && c->last.position) {
        bool free_now = false;
        status = make_free(rt, c, deadline, &free_now);
        if (status || !free_now) {
            hdi_staging_give(rt, c, c->last);
            c = NULL;
        } else if (!c->made) { /* left alone from now on */
            hdi_staging_give(rt, c, (hdi_point){0, 0});
            return hdi_staging_take(rt, bytes, deadline, out);
        }
    }
    if (status) {
        return status;
    }
    if (c) {
        c->last = (hdi_point){0, 0};
    }
    *out = c;
    return HD_OK;
}

void hdi_staging_give(hd_runtime *rt, hdi_chunk *chunk, hdi_point last)
{
    struct hdi_staging *pool = rt->staging;
    hdi_mutex_lock(&pool->lock);
    chunk->last = last;
    chunk->taken = false;
    pthread_cond_broadcast(&pool->given); /* some wait for large ones, some for small ones */
    hdi_mutex_unlock(&pool->lock);
}

void hdi_staging_wake(hd_runtime *rt)
{
    struct hdi_staging *pool = rt->staging;
    hdi_mutex_lock(&pool->lock); /* who has looked at `closing` sleeps by now */
    pthread_cond_broadcast(&pool->given);
    hdi_mutex_unlock(&pool->lock);
    hdi_rings_wake(rt);
    hdi_crates_wake(rt);
}

/* One chunk that nobody uses, taken out of the pool; NULL: there is none. *in_use: there are others. Lock held. */
static struct hd_buffer *take_idle(hd_runtime *rt, hdi_chunk *chunks, size_t n, bool *in_use)
{
    for (size_t i = 0; i < n; i++) {
        hdi_chunk *c = &chunks[i];
        *in_use |= is_there(c);
        if (!c->taken && c->made && is_idle(rt, c)) {
            c->made = false;
            c->last = (hdi_point){0, 0};
            return c->buffer;
        }
    }
    return NULL;
}

bool hdi_staging_trim(hd_runtime *rt)
{
    struct hdi_staging *pool = rt->staging;
    struct hd_buffer *buffer;
    bool in_use;
    do {
        in_use = false;
        hdi_mutex_lock(&pool->lock);
        buffer = take_idle(rt, pool->large, HDI_STAGING_LARGE_CHUNKS, &in_use);
        buffer = buffer ? buffer : take_idle(rt, pool->small, HDI_STAGING_SMALL_CHUNKS, &in_use);
        hdi_mutex_unlock(&pool->lock);
        if (buffer) {
            /* With the points of what its record still names: what a lost device may go on writing is not given out again. */
            hdi_free(hdi_buffer_handle(buffer));
        }
    } while (buffer);
    return hdi_rings_trim(rt) || in_use;
}
