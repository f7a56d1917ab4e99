/* ring.c - see ring.h. */
#include "data/ring.h"

#include <stdlib.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "engine/engine.h"

#define CHUNKS_MOST 8
#define REFUSED_NS 1000000000 /* a ring that was refused memory for one more chunk asks again after so long */

_Static_assert(HDI_STAGED_SMALL_CHUNKS <= CHUNKS_MOST && HDI_STAGED_MEDIUM_CHUNKS <= CHUNKS_MOST &&
                   HDI_STAGED_LARGE_CHUNKS <= CHUNKS_MOST,
               "a ring has room for its chunks");

typedef struct ring {
    hdi_ring_chunk chunk[CHUNKS_MOST];
    uint64_t order;
    int64_t refused; /* clock: when pinned memory for a chunk was refused; 0: never */
} ring;

enum { SMALL, MEDIUM, LARGE, SIZES };

typedef struct pair {
    ring of[SIZES];
} pair;

struct hdi_rings {
    hdi_mutex lock;
    pthread_cond_t given;
    pair *pairs[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* by source and destination; NULL: never used */
};

hd_status hdi_rings_create(hd_runtime *rt)
{
    struct hdi_rings *rings = calloc(1, sizeof *rings);
    if (!rings) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&rings->lock, HDI_RANK_RINGS);
    hdi_cond_init(&rings->given);
    rt->rings = rings;
    return HD_OK;
}

void hdi_rings_release(hd_runtime *rt)
{
    struct hdi_rings *rings = rt->rings;
    if (!rings) {
        return;
    }
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        for (int j = 0; j < HDI_DEVICES_MAX; j++) {
            free(rings->pairs[i][j]);
        }
    }
    pthread_cond_destroy(&rings->given);
    hdi_mutex_destroy(&rings->lock);
    free(rings);
    rt->rings = NULL;
}

static bool is_idle(hd_runtime *rt, const hdi_ring_chunk *c)
{
    return !c->last.position || hdi_point_done(rt, c->last);
}

/* Lock held. Of those that are not taken: one that is made and idle, else one that is not made (`may_make`), else the one whose use began
 * first. */
static hdi_ring_chunk *pick(hd_runtime *rt, ring *r, unsigned chunks, bool may_make)
{
    hdi_ring_chunk *oldest = NULL, *unmade = NULL;
    for (unsigned i = 0; i < chunks; i++) {
        hdi_ring_chunk *c = &r->chunk[i];
        if (c->taken) {
            continue;
        }
        if (!c->buffer) {
            unmade = unmade ? unmade : c;
        } else if (is_idle(rt, c)) {
            return c;
        } else if (!oldest || c->order < oldest->order) {
            oldest = c;
        }
    }
    return unmade && may_make ? unmade : oldest;
}

static bool has_chunk(const ring *r, unsigned chunks)
{
    bool any = false;
    for (unsigned i = 0; i < chunks; i++) {
        any |= r->chunk[i].buffer != NULL;
    }
    return any;
}

/* What a chunk that somebody has taken is used for; position 0: nothing is under way with any. Lock held. */
static hdi_point any_use(const ring *r, unsigned chunks)
{
    hdi_point use = {0, 0};
    for (unsigned i = 0; i < chunks && !use.position; i++) {
        use = r->chunk[i].buffer ? hdi_buffer_awaited(r->chunk[i].buffer) : use;
    }
    return use;
}

/* The pair's ring for chunks of this size; NULL: no memory. Lock held. */
static ring *ring_of(struct hdi_rings *rings, int src, int dst, uint64_t chunk)
{
    pair **p = &rings->pairs[src][dst];
    *p = *p ? *p : calloc(1, sizeof **p);
    return *p ? &(*p)->of[chunk == HDI_STAGED_SMALL ? SMALL : chunk == HDI_STAGED_MEDIUM ? MEDIUM : LARGE] : NULL;
}

hd_status hdi_ring_take(hd_runtime *rt, int src, int dst, const hdi_route *route, int64_t deadline,
                        hdi_ring_chunk **out)
{
    struct hdi_rings *rings = rt->rings;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&rings->lock);
    ring *r = ring_of(rings, src, dst, route->chunk);
    hd_status status = r ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for pinned chunks");
    hdi_ring_chunk *c = NULL;
    while (!status) {
        bool may_make = !r->refused || hdi_clock_ns() - r->refused > REFUSED_NS;
        c = pick(rt, r, route->chunks, may_make || !has_chunk(r, route->chunks));
        if (!c) {
            if (hdi_is_closing(rt) || !hdi_cond_wait(&rings->given, &rings->lock, deadline)) {
                hdi_point use = any_use(r, route->chunks);
                status = hdi_not_done(rt, use.lane, use.position, HDI_CHUNKS_IN_USE);
            }
            continue;
        }
        c->taken = true;
        c->order = ++r->order;
        if (c->buffer) {
            break;
        }
        bool first = !has_chunk(r, route->chunks); /* else fewer do as well */
        hdi_mutex_unlock(&rings->lock);
        struct hd_buffer *buffer = NULL;
        /* Instead of waiting for memory the caller tries smaller chunks. */
        bool wait = first && route->chunk <= HDI_STAGED_MEDIUM;
        status = hdi_buffer_make_host(rt, route->chunk, wait, &buffer);
        hdi_mutex_lock(&rings->lock);
        c->buffer = buffer;
        c->last = (hdi_point){0, 0};
        r->refused = status ? hdi_clock_ns() : 0;
        if (!status) {
            break;
        }
        c->taken = false;
        pthread_cond_broadcast(&rings->given);
        if (!first) {
            status = HD_OK;
        }
    }
    hdi_mutex_unlock(&rings->lock);
    *out = status ? *out : c;
    return hdi_attempt_result(&attempt, status);
}

void hdi_ring_give(hd_runtime *rt, hdi_ring_chunk *chunk, hdi_point last)
{
    struct hdi_rings *rings = rt->rings;
    hdi_mutex_lock(&rings->lock);
    chunk->last = last.position ? last : chunk->last;
    chunk->taken = false;
    pthread_cond_broadcast(&rings->given);
    hdi_mutex_unlock(&rings->lock);
}

void hdi_rings_wake(hd_runtime *rt)
{
    struct hdi_rings *rings = rt->rings;
    hdi_mutex_lock(&rings->lock); /* who has looked at `closing` sleeps by now */
    pthread_cond_broadcast(&rings->given);
    hdi_mutex_unlock(&rings->lock);
}

/* One chunk that nothing uses, taken out of its ring; NULL: there is none. *in_use: there are others. Lock held. */
static struct hd_buffer *take_idle(hd_runtime *rt, pair *p, bool *in_use)
{
    for (int size = 0; p && size < SIZES; size++) {
        for (int i = 0; i < CHUNKS_MOST; i++) {
            hdi_ring_chunk *c = &p->of[size].chunk[i];
            *in_use |= c->buffer != NULL;
            if (c->buffer && !c->taken && is_idle(rt, c)) {
                struct hd_buffer *buffer = c->buffer;
                c->buffer = NULL;
                return buffer;
            }
        }
    }
    return NULL;
}

bool hdi_rings_trim(hd_runtime *rt)
{
    struct hdi_rings *rings = rt->rings;
    bool in_use = false;
    for (int i = 0; i < rt->n_devices; i++) {
        for (int j = 0; j < rt->n_devices; j++) {
            struct hd_buffer *buffer;
            bool left;
            do {
                left = false;
                hdi_mutex_lock(&rings->lock);
                buffer = take_idle(rt, rings->pairs[i][j], &left);
                hdi_mutex_unlock(&rings->lock);
                if (buffer) {
                    hdi_free(hdi_buffer_handle(buffer)); /* with the points of what its record still names */
                }
            } while (buffer);
            in_use |= left;
        }
    }
    return in_use;
}
