/* pageable_read.c - large hd_reads: the device fills chunks ahead. A thread that takes a turn empties the chunk at the front of the queue, and
 * sends it off again for the next part.
 *
 * Threads: the caller and copy threads, see pageable.h. Only the caller takes chunks from the pool. It waits for one only while the transfer
 * has none. So readers never wait for each other in a circle, however few chunks there are. A copy thread waits for the front without
 * claiming it.
 * Always: a chunk of the transfer is in its queue, or in the hands of the one thread that empties it.
 */
#include "base/error.h"
#include "base/wait.h"
#include "transfer/pageable.h"

/* A chunk on its way. */
typedef struct flight {
    hdi_chunk *chunk;
    hdi_pageable_part part;
    uint64_t last; /* it is there when the lane is done with this position */
} flight;

typedef struct reading {
    hdi_pageable t;
    flight queue[HDI_STAGING_MOST]; /* under the transfer's lock, like the next three */
    uint32_t first, count;
    uint32_t hands;            /* chunks that threads hold */
    _Atomic uint32_t changed;  /* futex word: moves when a thread lets go of a chunk */
    _Atomic bool caller_waits; /* for that */
} reading;

/* A thread has let go of a chunk: into the queue, or back to the ring. */
static void let_go(reading *r, const flight *sent)
{
    hdi_lock_take(&r->t.lock);
    if (sent) {
        r->queue[(r->first + r->count++) % HDI_STAGING_MOST] = *sent;
    }
    r->hands--;
    hdi_lock_release(&r->t.lock);
    /* Sequentially consistent with the caller's note that it waits, and its look at `changed` behind that. */
    atomic_fetch_add_explicit(&r->changed, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&r->caller_waits, memory_order_seq_cst)) {
        hdi_futex_wake(&r->changed, 1);
    }
}

/* Sends a chunk in this thread's hands for the next part, or gives it back where there is none. */
static void send(reading *r, hdi_chunk *chunk)
{
    hdi_pageable *t = &r->t;
    flight f = {.chunk = chunk};
    bool sent = hdi_pageable_next(t, t->pool->bytes, &f.part);
    hd_status status = sent ? hdi_pageable_submit(t, chunk->buffer, &f.part, &f.last) : HD_OK;
    if (status) {
        hdi_pageable_fail(t, status);
        sent = false;
    }
    if (!sent) {
        hdi_staging_give(t->pool, chunk, (hdi_point){0, 0}, false);
    }
    let_go(r, sent ? &f : NULL);
}

static void take_into_hands(reading *r)
{
    hdi_lock_take(&r->t.lock);
    r->hands++;
    hdi_lock_release(&r->t.lock);
}

/* The caller alone: one more chunk from the ring. False: there was none as wished, or the transfer failed for want of one. */
static bool send_another(reading *r, hdi_staging_wish wish, int64_t deadline)
{
    hdi_pageable *t = &r->t;
    hdi_chunk *chunk;
    if (!hdi_pageable_goes_on(t)) {
        return false;
    }
    hd_status status = hdi_staging_take(t->pool, wish, deadline, &chunk);
    if (!status && !chunk && wish == HDI_STAGING_WAIT) {
        status = hdi_staging_not_given(t->pool);
    }
    if (status) {
        hdi_pageable_fail(t, status);
        return false;
    }
    if (chunk) {
        take_into_hands(r);
        send(r, chunk);
    }
    return chunk != NULL;
}

/* Copies the bytes of a chunk in this thread's hands to where they belong. Sends the chunk off again, unless another thread waits for one. */
static void empty(reading *r, const flight *f)
{
    hdi_pageable *t = &r->t;
    hd_status status = hdi_position_status(t->rt, t->lane->global, f->last);
    if (status) {
        hdi_pageable_fail(t, status);
        hdi_staging_give(t->pool, f->chunk, hdi_pageable_point(t, f->last), f->part.signalled);
        let_go(r, NULL);
        return;
    }
    hdi_pageable_copy(t, t->memory + f->part.at, f->chunk->buffer->host + f->part.page_offset, f->part.bytes);
    hdi_lock_take(&t->lock);
    bool share = hdi_staging_wanted(t->pool) && r->count + r->hands > 1;
    hdi_lock_release(&t->lock);
    if (share) {
        hdi_staging_give(t->pool, f->chunk, (hdi_point){0, 0}, false);
        let_go(r, NULL);
    } else {
        send(r, f->chunk);
    }
}

typedef enum front {
    FRONT_TAKEN,
    FRONT_UNDER_WAY, /* not there yet */
    FRONT_IN_HANDS,  /* nothing is under way, but a thread may send something */
    FRONT_NONE,      /* no chunk at all, but more to read */
    FRONT_OVER
} front;

/* The flight at the front, if its bytes are there: into this thread's hands. *until: else what to wait for. */
static front claim(reading *r, flight *f, hdi_awaited *until)
{
    hdi_pageable *t = &r->t;
    front found;
    hdi_lock_take(&t->lock);
    if (hdi_pageable_failed(t)) {
        found = FRONT_OVER;
    } else if (r->count == 0) {
        /* What is in a thread's hands may be on its way back into the queue, also for the last part. */
        bool all = atomic_load_explicit(&t->next, memory_order_relaxed) == t->bytes;
        found = r->hands ? FRONT_IN_HANDS : all ? FRONT_OVER : FRONT_NONE;
    } else {
        *f = r->queue[r->first];
        /* pairs with the engine's store of `done`: the bytes are there */
        bool there = atomic_load_explicit(&t->lane->shared->done, memory_order_acquire) >= f->last;
        found = there ? FRONT_TAKEN : FRONT_UNDER_WAY;
        *until = (hdi_awaited){.flagged = 0};
        for (uint32_t i = 0; !there && i < r->count; i++) {
            const flight *next = &r->queue[(r->first + i) % HDI_STAGING_MOST];
            hdi_awaited_add(until, hdi_pageable_point(t, next->last), next->part.signalled);
        }
        if (there) {
            r->first = (r->first + 1) % HDI_STAGING_MOST;
            r->count--;
            r->hands++;
        }
    }
    hdi_lock_release(&t->lock);
    return found;
}

/* The caller has nothing to do before another thread sends a chunk, or has emptied its last one. */
static void wait_for_hands(reading *r)
{
    atomic_store_explicit(&r->caller_waits, true, memory_order_seq_cst);
    uint32_t changed = atomic_load_explicit(&r->changed, memory_order_seq_cst);
    hdi_lock_take(&r->t.lock);
    bool in_hands = r->count == 0 && r->hands;
    hdi_lock_release(&r->t.lock);
    if (in_hands) {
        hdi_futex_wait(&r->changed, changed, INT64_MAX); /* copying does not take long */
    }
    atomic_store_explicit(&r->caller_waits, false, memory_order_seq_cst);
}

static hdi_turn wait_for_front(reading *r, const hdi_awaited *until, bool caller)
{
    hdi_pageable *t = &r->t;
    if (hdi_awaited_wait(until, t->rt, hdi_pageable_timeout(t, caller))) {
        return HDI_TURN_DID;
    }
    if (!caller) {
        return HDI_TURN_WAITS;
    }
    hdi_pageable_fail(t, hdi_not_done(t->rt, t->lane->global, until->last.position,
                                      "the bytes are not there yet (option transfer_timeout)"));
    return HDI_TURN_OVER;
}

static hdi_turn turn(void *context, bool caller)
{
    reading *r = context;
    hdi_pageable *t = &r->t;
    flight f;
    while (caller && !hdi_staging_wanted(t->pool) && send_another(r, HDI_STAGING_IDLE, 0)) {
    }
    hdi_awaited until;
    switch (claim(r, &f, &until)) {
    case FRONT_TAKEN:
        empty(r, &f);
        return HDI_TURN_DID;
    case FRONT_UNDER_WAY:
        return caller && send_another(r, HDI_STAGING_NOW, 0) ? HDI_TURN_DID : wait_for_front(r, &until, caller);
    case FRONT_IN_HANDS:
        if (caller) {
            wait_for_hands(r);
        }
        return HDI_TURN_WAITS;
    case FRONT_NONE:
        if (caller) {
            send_another(r, HDI_STAGING_WAIT, t->deadline);
        }
        return caller ? HDI_TURN_DID : HDI_TURN_WAITS;
    case FRONT_OVER:
        break;
    }
    return HDI_TURN_OVER;
}

hd_status hdi_pageable_read(hdi_pageable *t)
{
    hd_error error;
    t->error = &error;
    hd_status status = hdi_pageable_begin(t);
    if (status) {
        return status;
    }
    reading r; /* without the queue's content, which is several pages */
    r.t = *t;
    r.first = r.count = r.hands = 0;
    atomic_init(&r.changed, 0);
    atomic_init(&r.caller_waits, false);
    hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, turn, &r);
    for (; r.count; r.count--) { /* of a failed transfer: the device goes on with them */
        const flight *f = &r.queue[r.first];
        hdi_staging_give(t->pool, f->chunk, hdi_pageable_point(t, f->last), f->part.signalled);
        r.first = (r.first + 1) % HDI_STAGING_MOST;
    }
    return hdi_pageable_result(&r.t);
}
