/* staging.c - the pool of pinned chunks. See staging.h.
 *
 * Always: a chunk is either taken by one thread, or free with the mark of its last use; chunks are made when first needed and kept
 * until hd_close.
 */
#include "data/staging.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "base/error.h"
#include "engine/engine.h"

struct hdi_staging {
    pthread_mutex_t lock;
    pthread_cond_t given;
    hdi_chunk small[HDI_STAGING_SMALL_CHUNKS];
    hdi_chunk large[HDI_STAGING_LARGE_CHUNKS];
};

hd_status hdi_staging_create(hd_runtime *rt)
{
    struct hdi_staging *pool = calloc(1, sizeof *pool);
    if (!pool) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->given, &attributes);
    pthread_condattr_destroy(&attributes);
    rt->staging = pool;
    return HD_OK;
}

void hdi_staging_release(hd_runtime *rt)
{
    struct hdi_staging *pool = rt->staging;
    if (pool) {
        /* The chunks' buffers go with all other buffers of the runtime. */
        pthread_cond_destroy(&pool->given);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
        rt->staging = NULL;
    }
}

/* The best chunk that is not taken: one that is made and idle, else one not made yet, else the first whose use will end. */
static hdi_chunk *pick(hd_runtime *rt, hdi_chunk *chunks, size_t n)
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
        } else if (!c->last.position || hdi_mark_done(rt, c->last)) {
            return c;
        } else if (!busy || (c->last.lane == busy->last.lane && c->last.position < busy->last.position)) {
            busy = c;
        }
    }
    return unmade ? unmade : busy;
}

/* Waits until nobody uses a chunk any more. *free_now false: that would mean waiting, and the caller does not want to. */
static hd_status make_free(hd_runtime *rt, hdi_chunk *c, int64_t deadline, const char *who, bool *free_now)
{
    hd_error before;
    hdi_error_save(&before);
    /* By its use record, not by `last` alone: a lost device is done with it at once, while a healthy one may still be at the first half
     * of a copy between the two. */
    hd_status status =
        hdi_buffer_settle(c->buffer, 0, c->buffer->bytes, HD_WRITE, deadline == HDI_STAGING_NOW ? 0 : deadline, who);
    *free_now = !status;
    if (status && deadline == HDI_STAGING_NOW) {
        hdi_error_restore(&before);
        return HD_OK;
    }
    if (status) {
        return hdi_fail(HD_ERROR_TIMEOUT, "%s: all pinned chunks are in use (option transfer_timeout)", who);
    }
    hdi_failure failure;
    if (hdi_failure_find(hdi_lane_shared_of(rt, c->last.lane), c->last.position, &failure) && failure.lost) {
        /* A device that is lost may not have stopped writing: this memory is left alone until hd_close. A worker process has ended
         * before its device counts as lost. */
        c->made = rt->is_process;
    }
    return HD_OK;
}

hd_status hdi_staging_take(hd_runtime *rt, size_t bytes, int64_t deadline, const char *who, hdi_chunk **out)
{
    struct hdi_staging *pool = rt->staging;
    bool small = bytes <= HDI_STAGING_SMALL;
    hdi_chunk *chunks = small ? pool->small : pool->large;
    size_t n = small ? HDI_STAGING_SMALL_CHUNKS : HDI_STAGING_LARGE_CHUNKS;
    hdi_chunk *c;
    pthread_mutex_lock(&pool->lock);
    while (!(c = pick(rt, chunks, n)) && deadline != HDI_STAGING_NOW) {
        struct timespec limit = {.tv_sec = (time_t)(deadline / 1000000000), .tv_nsec = (long)(deadline % 1000000000)};
        if (deadline == INT64_MAX) {
            pthread_cond_wait(&pool->given, &pool->lock);
        } else if (pthread_cond_timedwait(&pool->given, &pool->lock, &limit) == ETIMEDOUT) {
            pthread_mutex_unlock(&pool->lock);
            return hdi_fail(HD_ERROR_TIMEOUT, "%s: all pinned chunks are in use (option transfer_timeout)", who);
        }
    }
    bool busy = c && c->made && c->last.position && !hdi_mark_done(rt, c->last);
    if (deadline == HDI_STAGING_NOW && (!c || busy)) {
        pthread_mutex_unlock(&pool->lock);
        *out = NULL;
        return HD_OK;
    }
    c->taken = true;
    pthread_mutex_unlock(&pool->lock);
    hd_status status = HD_OK;
    if (c->made && c->last.position) {
        bool free_now = false;
        status = make_free(rt, c, deadline, who, &free_now);
        if (status || !free_now) {
            hdi_staging_give(rt, c, c->last);
            *out = status ? *out : NULL;
            return status;
        }
    }
    if (!c->made) {
        status = hdi_buffer_make_host(rt, small ? HDI_STAGING_SMALL : HDI_STAGING_LARGE, who, &c->buffer);
        c->made = !status;
    }
    c->last = (hdi_mark){0, 0};
    if (!status) {
        hdi_buffer_host_wrote(c->buffer, 0,
                              c->buffer->bytes); /* what is in it, or failed to get into it, does not matter any more */
    }
    if (status) {
        hdi_staging_give(rt, c, c->last);
        return status;
    }
    *out = c;
    return HD_OK;
}

void hdi_staging_give(hd_runtime *rt, hdi_chunk *chunk, hdi_mark last)
{
    struct hdi_staging *pool = rt->staging;
    pthread_mutex_lock(&pool->lock);
    chunk->last = last;
    chunk->taken = false;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
}
