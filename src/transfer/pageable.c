/* pageable.c - hd_write and hd_read: between the program's own memory and buffers, and all of it that can be tuned.
 *
 * A small transfer to or from a device takes one chunk (staging.h). Pinned buffers are copied to and from directly.
 * A large transfer is cut into parts. Each is an operation of its own through a chunk. The calling thread and the copy threads
 * (copy_pool.h) fill or empty the chunks. Parts are small at the beginning and at the end, where the link and the threads wait for each
 * other, and large in between.
 *
 * A large write is filled in by all threads that take a turn at it. For a large read the device fills chunks ahead. A thread that takes a turn
 * empties the chunk at the front of the queue, and sends it off again for the next part.
 *
 * Threads: any. A transfer belongs to the thread that calls; copy threads take turns at it. Only the caller takes chunks from the pool for a read.
 * It waits for one only while the transfer has none. So readers never wait for each other in a circle, however few chunks there are.
 * A copy thread waits for the front without claiming it.
 * Locks: one per large transfer, for tens of nanoseconds, with nothing below it.
 * Blocking: hd_write for chunks in use, while the thread holds none; hd_read until the bytes are there.
 * Always: a chunk is given back with the position of the operation that uses it, also on failure. The first failure ends the transfer, and
 * nothing begins behind it. A chunk of a large read is in its queue, or in the hands of the one thread that empties it.
 */
#include <heddle/copy.h>
#include "base/error.h"
#include "base/wait.h"
#include "buffer/recorded.h"
#include "buffer/buffer.h"
#include "transfer/copy_pool.h"
#include "transfer/staging.h"
#include "transfer/transfer.h"

/* Sizes of parts: bytes, multiples of PART_STEP. */
#define PART_STEP ((size_t)64 << 10)
#define PART_LEAST ((size_t)256 << 10)
#define PART_MOST HDI_STAGING_LARGE

#define SHARED_LEAST ((size_t)1 << 20)   /* transfers from this size on are shared with the copy threads */
#define THROUGH_LEAST ((size_t)32 << 20) /* ... and their bytes go past the caches, which have no room for them: */
#define FILL_THROUGH true                /* on the way into chunks */
#define EMPTY_THROUGH true               /* on the way out of them */
#define PARTS_PER_FLAG                                                                                                 \
    2 /* so many parts of equal size are seen finished together: each completion write holds up the link */
#define HELPER_TIMEOUT_NS 1000000 /* a copy thread waits for a device no longer */

typedef struct pageable_part {
    size_t at, bytes;   /* of the transfer */
    size_t page_offset; /* where in the chunk: as far from a page's begin as on the device */
    bool signalled;     /* a completion write follows it */
} pageable_part;

typedef struct pageable {
    hd_runtime *rt;
    hdi_device *device;
    bool to_device;
    hdi_staging *pool;
    hd_lane *lane;         /* the pool's */
    hdi_place place;       /* on the device */
    uint64_t offset;       /* there */
    unsigned char *memory; /* the program's; only read by a write */
    size_t bytes;
    size_t threads; /* that may take part */
    int64_t deadline;
    _Atomic int status; /* hd_status of the first failure */
    /* ---- under the lock ---- */
    hdi_lock lock;
    _Atomic size_t next; /* the first byte that is in no part yet; looked at without the lock, too */
    size_t parts;        /* begun so far */
    size_t unsignalled;  /* bytes since the last part with `signalled` */
    hd_error *error;     /* of `status`, once that is not HD_OK; NULL for small transfers */
} pageable;

/* The copy between a part's chunk and the program's memory. */
static inline void pageable_copy(const pageable *t, void *dst, const void *src, size_t bytes)
{
    if (t->bytes >= THROUGH_LEAST && (t->to_device ? FILL_THROUGH : EMPTY_THROUGH)) {
        hdi_copy_through(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
}

static inline bool pageable_failed(const pageable *t)
{
    return atomic_load_explicit(&t->status, memory_order_relaxed) != HD_OK;
}

/* Whether there may be parts to begin. */
static inline bool pageable_goes_on(const pageable *t)
{
    return !pageable_failed(t) && atomic_load_explicit(&t->next, memory_order_relaxed) < t->bytes;
}

/* Until when a turn waits for the device. */
static inline int64_t pageable_timeout(const pageable *t, bool caller)
{
    int64_t soon = caller ? t->deadline : hdi_clock_ns() + HELPER_TIMEOUT_NS;
    return soon < t->deadline ? soon : t->deadline;
}

#define PAGE 4096
#define CHUNKS_PER_FLAG 8 /* of a stream of small writes so many chunks come free together */

/* ---- pinned buffers ---- */

typedef struct blocks {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
} blocks;

static void copy_block(void *context, size_t item)
{
    const blocks *b = context;
    size_t at = item * SHARED_LEAST, left = b->bytes - at;
    size_t bytes = left < SHARED_LEAST ? left : SHARED_LEAST;
    if (b->bytes >= THROUGH_LEAST) {
        hdi_copy_through(b->dst + at, b->src + at, bytes);
    } else {
        memcpy(b->dst + at, b->src + at, bytes);
    }
}

static void copy_on_host(hd_runtime *rt, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    blocks all = {dst, src, bytes};
    hdi_copy_pool_run(rt, -1, (bytes + SHARED_LEAST - 1) / SHARED_LEAST, copy_block, &all);
}

/* The program's memory may be a part of the buffer. */
static hd_status check_apart(const unsigned char *dst, const unsigned char *src, size_t bytes)
{
    const hdi_box box = hdi_box_of_bytes(bytes);
    return hdi_box_overlaps(&box, (uintptr_t)dst, (uintptr_t)src)
               ? hdi_fail(HD_ERROR_ARGUMENT, "the program's %zu bytes overlap those of the buffer", bytes)
               : HD_OK;
}

static hd_status write_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, const unsigned char *src,
                              size_t bytes, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    hd_status status = check_apart(b->host + offset, src, bytes);
    status =
        status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_WRITE | HDI_ACCESS_REPLACES, deadline);
    if (!status) {
        copy_on_host(b->runtime, b->host + offset, src, bytes);
    }
    hdi_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, bytes, began);
    hdi_hold_end(b);
    return status;
}

static hd_status read_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, unsigned char *dst,
                             size_t bytes, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    hd_status status = check_apart(dst, b->host + offset, bytes);
    status = status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_READ, deadline);
    if (!status) {
        copy_on_host(b->runtime, dst, b->host + offset, bytes);
    }
    hdi_record_own_transfer(status, HDI_RECORD_WAY_READ, b, bytes, began);
    hdi_hold_end(b);
    return status;
}

/* ---- parts of large transfers ---- */

/* Chooses a pool that has chunks, and how many threads take part. `t` has rt, device, to_device, place, offset, memory, bytes and deadline.
 * Errors: those of hdi_staging_choose, DEVICE_LOST. */
static hd_status pageable_begin(pageable *t)
{
    if (t->place.losses == HDI_LOST) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    size_t helpers = t->bytes >= SHARED_LEAST ? hdi_copy_pool_count(t->rt) : 0;
    size_t useful = t->bytes / PART_LEAST;
    t->threads = helpers < useful ? helpers + 1 : useful + 1;
    hd_status status = hdi_staging_choose(t->device, t->to_device, &t->pool);
    t->lane = status ? NULL : hdi_staging_lane(t->pool);
    return status;
}

/* How large the next part should be: each thread gets several, the first ones soon, and the last ones end at about the same time. */
static size_t part_bytes(const pageable *t, size_t left)
{
    size_t most = PART_LEAST << (t->parts / t->threads < 8 ? t->parts / t->threads : 8);
    most = most < PART_MOST ? most : PART_MOST;
    size_t bytes = (left / (2 * t->threads) + PART_STEP - 1) / PART_STEP * PART_STEP;
    bytes = bytes < PART_LEAST ? PART_LEAST : bytes;
    return bytes < most ? bytes : most;
}

/* Begins the next part, which fits into `room` bytes of a chunk. False: there is none, or the transfer has failed. */
static bool pageable_next(pageable *t, size_t room, pageable_part *out)
{
    hdi_lock_take(&t->lock);
    size_t at = atomic_load_explicit(&t->next, memory_order_relaxed), left = t->bytes - at;
    bool found = left && !pageable_failed(t);
    if (found) {
        /* All parts but the first begin where pages of the device begin, so that only the first has an offset in its page. */
        size_t page_offset = (size_t)((t->place.buffer->address + t->offset + at) % PAGE);
        size_t bytes = part_bytes(t, left);
        bytes = (bytes < room ? bytes : room) - page_offset;
        bool rest = left <= bytes || (left - bytes < PART_STEP && left <= room - page_offset);
        bytes = rest ? left : bytes;
        t->unsignalled += bytes;
        bool signalled = at + bytes == t->bytes || t->unsignalled >= PARTS_PER_FLAG * bytes;
        t->unsignalled = signalled ? 0 : t->unsignalled;
        t->parts++;
        atomic_store_explicit(&t->next, at + bytes, memory_order_relaxed);
        *out = (pageable_part){.at = at, .bytes = bytes, .page_offset = page_offset, .signalled = signalled};
    }
    hdi_lock_release(&t->lock);
    return found;
}

/* The operation that moves a part between its chunk and the device. *last: its end. `parked`: as in hdi_linked. */
static hd_status pageable_submit(pageable *t, struct hd_buffer *chunk, const pageable_part *part, hdi_point *parked,
                                 hdi_point *last)
{
    bool in = t->to_device;
    uint64_t low = t->offset + part->at, there = t->place.buffer->address + low,
             here = chunk->address + part->page_offset;
    const hdi_use uses[2] = {
        /* All of the chunk, so that its record stays in one part. */
        {.buffer = chunk, .low = 0, .high = chunk->bytes, .read = in, .write = !in, .whole = true},
        {.buffer = t->place.buffer,
         .losses = t->place.losses,
         .word = t->place.word,
         .low = low,
         .high = low + part->bytes,
         .read = !in,
         .write = in,
         .whole = part->bytes == t->place.buffer->bytes},
    };
    hdi_command command = {.op = HDI_OP_COPY, .kind = in ? HDI_COPY_TO_DEVICE : HDI_COPY_TO_HOST, .slots = 1};
    command.copy.src = in ? here : there;
    command.copy.dst = in ? there : here;
    command.copy.bytes = part->bytes;
    command.copy.signalled = part->signalled;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdi_submit_linked(t->lane, uses, 2, &command, (hdi_linked){.parked = parked}, &ticket);
    *last = hdi_ticket_point(ticket);
    return status;
}

/* Waits, without a chunk, until no claim keeps a transfer of these bytes of it waiting. */
static hd_status pageable_await_claims(pageable *t, size_t at, size_t bytes)
{
    const hdi_use use = {.buffer = t->place.buffer,
                         .losses = t->place.losses,
                         .word = t->place.word,
                         .low = t->offset + at,
                         .high = t->offset + at + bytes,
                         .read = !t->to_device,
                         .write = t->to_device,
                         .whole = bytes == t->place.buffer->bytes};
    return hdi_staging_await_claims(t->pool, &use, 1, t->deadline);
}

/* Ends the transfer with this thread's last failure, unless it has failed already. */
static void pageable_fail(pageable *t, hd_status status)
{
    hd_error error;
    hdi_error_get(&error);
    hdi_lock_take(&t->lock);
    if (!pageable_failed(t)) {
        *t->error = error;
        atomic_store_explicit(&t->status, status, memory_order_relaxed);
    }
    hdi_lock_release(&t->lock);
}

/* The status, with the calling thread's message made that of the failure. All copy threads have left. */
static hd_status pageable_result(pageable *t)
{
    hd_status status = atomic_load_explicit(&t->status, memory_order_relaxed);
    if (status) {
        hdi_fail_error(t->error);
    }
    return status;
}

/* ---- large writes ---- */

/* A turn: fills a chunk with the next part, and submits its copy. */
static hdi_turn fill(void *context, bool caller)
{
    pageable *t = context;
    if (!pageable_goes_on(t)) {
        return HDI_TURN_OVER;
    }
    hdi_chunk *chunk = NULL;
    hd_status status = HD_OK;
    if (__builtin_expect(hdi_staging_is_short(t->pool), 0)) {
        if (!caller) {
            return HDI_TURN_WAITS;
        }
        size_t at = atomic_load_explicit(&t->next, memory_order_relaxed);
        status = pageable_await_claims(t, at, t->bytes - at);
    }
    status = status ? status : hdi_staging_take(t->pool, HDI_STAGING_WAIT, pageable_timeout(t, caller), &chunk);
    if (!status && !chunk && !caller) {
        return HDI_TURN_WAITS;
    }
    if (!status && !chunk) {
        status = hdi_staging_not_given(t->pool);
    }
    if (status) {
        pageable_fail(t, status);
        return HDI_TURN_OVER;
    }
    pageable_part part;
    hdi_point last = {0, 0};
    bool found = pageable_next(t, t->pool->bytes, &part);
    if (found) {
        pageable_copy(t, chunk->buffer->host + part.page_offset, t->memory + part.at, part.bytes);
        status = pageable_submit(t, chunk->buffer, &part, NULL, &last);
    }
    hdi_staging_give(t->pool, chunk, last, found && part.signalled);
    if (status) {
        pageable_fail(t, status);
    }
    return found && !status ? HDI_TURN_DID : HDI_TURN_OVER;
}

static hd_status pageable_write(pageable *t)
{
    hd_error error;
    t->error = &error;
    hd_status status = pageable_begin(t);
    if (!status) {
        hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, fill, t);
        status = pageable_result(t);
    }
    return status;
}

/* ---- large reads ---- */

/* A chunk on its way. */
typedef struct flight {
    hdi_chunk *chunk;
    pageable_part part;
    hdi_point last; /* it is there when this is done */
} flight;

typedef struct reading {
    pageable t;
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
    pageable *t = &r->t;
    flight f = {.chunk = chunk};
    bool sent = pageable_next(t, t->pool->bytes, &f.part);
    hd_status status = sent ? pageable_submit(t, chunk->buffer, &f.part, NULL, &f.last) : HD_OK;
    if (status) {
        pageable_fail(t, status);
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
    pageable *t = &r->t;
    hdi_chunk *chunk;
    if (!pageable_goes_on(t)) {
        return false;
    }
    hd_status status = hdi_staging_take(t->pool, wish, deadline, &chunk);
    if (!status && !chunk && wish == HDI_STAGING_WAIT) {
        status = hdi_staging_not_given(t->pool);
    }
    if (status) {
        pageable_fail(t, status);
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
    pageable *t = &r->t;
    hd_status status = hdi_position_status(t->rt, f->last.lane, f->last.position);
    if (status) {
        pageable_fail(t, status);
        hdi_staging_give(t->pool, f->chunk, f->last, f->part.signalled);
        let_go(r, NULL);
        return;
    }
    pageable_copy(t, t->memory + f->part.at, f->chunk->buffer->host + f->part.page_offset, f->part.bytes);
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
    pageable *t = &r->t;
    front found;
    hdi_lock_take(&t->lock);
    if (pageable_failed(t)) {
        found = FRONT_OVER;
    } else if (r->count == 0) {
        /* What is in a thread's hands may be on its way back into the queue, also for the last part. */
        bool all = atomic_load_explicit(&t->next, memory_order_relaxed) == t->bytes;
        found = r->hands ? FRONT_IN_HANDS : all ? FRONT_OVER : FRONT_NONE;
    } else {
        *f = r->queue[r->first];
        /* pairs with the engine's store of `done`: the bytes are there */
        bool there = hdi_point_done(t->rt, f->last);
        found = there ? FRONT_TAKEN : FRONT_UNDER_WAY;
        *until = (hdi_awaited){.flagged = 0};
        for (uint32_t i = 0; !there && i < r->count; i++) {
            const flight *next = &r->queue[(r->first + i) % HDI_STAGING_MOST];
            hdi_awaited_add(until, next->last, next->part.signalled);
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
    pageable *t = &r->t;
    if (hdi_awaited_wait(until, t->rt, pageable_timeout(t, caller), caller)) {
        return HDI_TURN_DID;
    }
    if (!caller) {
        return HDI_TURN_WAITS;
    }
    pageable_fail(t, hdi_not_done(t->rt, until->last.lane, until->last.position,
                                  "the bytes are not there yet (option transfer_timeout)"));
    return HDI_TURN_OVER;
}

static hdi_turn turn(void *context, bool caller)
{
    reading *r = context;
    pageable *t = &r->t;
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

static hd_status pageable_read(pageable *t)
{
    hd_error error;
    t->error = &error;
    hd_status status = pageable_begin(t);
    status = status ? status : pageable_await_claims(t, 0, t->bytes);
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
        hdi_staging_give(t->pool, f->chunk, f->last, f->part.signalled);
        r.first = (r.first + 1) % HDI_STAGING_MOST;
    }
    return pageable_result(&r.t);
}

/* ---- small transfers ---- */

/* A chunk for all of it; `t` is complete as for pageable_begin. */
static hd_status begin_small(pageable *t, hdi_chunk **chunk)
{
    if (__builtin_expect(t->place.losses == HDI_LOST, 0)) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    return hdi_staging_await(t->pool, HDI_STAGING_WAIT, t->deadline, chunk);
}

static hd_status write_small(pageable *t)
{
    hdi_chunk *chunk;
    bool is_short = hdi_staging_is_short(t->pool);
    hd_status status = __builtin_expect(is_short, 0) ? pageable_await_claims(t, 0, t->bytes) : HD_OK;
    status = status ? status : begin_small(t, &chunk);
    if (status) {
        return status;
    }
    memcpy(chunk->buffer->host, t->memory, t->bytes);
    bool signalled = (chunk - t->pool->places) % CHUNKS_PER_FLAG == CHUNKS_PER_FLAG - 1;
    pageable_part part = {.bytes = t->bytes, .signalled = signalled};
    hdi_point last;
    status = pageable_submit(t, chunk->buffer, &part, NULL, &last);
    hdi_staging_give(t->pool, chunk, last, part.signalled);
    return status;
}

/* *parked: as in hdi_linked. */
static hd_status try_read_small(pageable *t, hdi_point *parked)
{
    hdi_chunk *chunk;
    hd_status status = begin_small(t, &chunk);
    if (status) {
        return status;
    }
    pageable_part part = {.bytes = t->bytes, .signalled = true};
    hdi_point last;
    status = pageable_submit(t, chunk->buffer, &part, parked, &last);
    if (!status && !hdi_wait_position(t->rt, last.lane, last.position, t->deadline)) {
        status = hdi_not_done(t->rt, last.lane, last.position, "the bytes are not there yet (option transfer_timeout)");
    } else if (!status) {
        status = hdi_position_status(t->rt, last.lane, last.position);
        if (!status) {
            memcpy(t->memory, chunk->buffer->host, t->bytes);
            last.position = 0;
        }
    }
    hdi_staging_give(t->pool, chunk, last, part.signalled);
    return status;
}

static hd_status read_small(pageable *t)
{
    hdi_point parked = {0, 0};
    hd_status status = try_read_small(t, &parked);
    while (__builtin_expect(parked.position != 0, 0)) {
        status = pageable_await_claims(t, 0, t->bytes);
        parked.position = 0;
        status = status ? status : try_read_small(t, &parked);
    }
    return status;
}

/* ---- the calls ---- */

static pageable make_transfer(struct hd_buffer *b, const hd_buffer *handle, hdi_device *device, size_t offset,
                              const void *memory, size_t bytes, int64_t deadline)
{
    return (pageable){
        .rt = b->runtime,
        .device = device,
        .place = hdi_place_of_handle(b, handle),
        .offset = offset,
        .memory = (unsigned char *)(uintptr_t)memory,
        .bytes = bytes,
        .deadline = deadline,
        .lock = HDI_LOCK_INIT(PAGEABLE),
    };
}

/* With the pool of small chunks. */
static hd_status begin(pageable *t)
{
    hd_status status = hdi_copy_alive(t->device->lane_in);
    t->pool = status ? NULL : hdi_staging_of(t->device, t->to_device, false);
    if (!t->pool) {
        return status ? status : HD_ERROR_HOST_MEMORY;
    }
    t->lane = hdi_staging_lane(t->pool);
    return HD_OK;
}

hd_status hd_write(hd_buffer *handle, size_t offset, const void *src, size_t bytes)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, &b);
    if (status || bytes == 0) {
        return status;
    }
    if (!src) {
        return hdi_fail(HD_ERROR_ARGUMENT, "src is null");
    }
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    int owner = b->owner; /* once: the structure may change hands, which submitting finds out */
    if (owner == HDI_OWNER_HOST) {
        return write_pinned(b, handle, offset, src, bytes, deadline);
    }
    pageable t = make_transfer(b, handle, b->runtime->devices[owner], offset, src, bytes, deadline);
    t.to_device = true;
    status = begin(&t);
    if (status) {
        return status;
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    status = bytes <= t.pool->bytes ? write_small(&t) : pageable_write(&t);
    hdi_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, bytes, began);
    return status;
}

hd_status hd_read(hd_buffer *handle, size_t offset, void *dst, size_t bytes)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, &b);
    if (status || bytes == 0) {
        return status;
    }
    if (!dst) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dst is null");
    }
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    int owner = b->owner; /* as in hd_write */
    if (owner == HDI_OWNER_HOST) {
        return read_pinned(b, handle, offset, dst, bytes, deadline);
    }
    pageable t = make_transfer(b, handle, b->runtime->devices[owner], offset, dst, bytes, deadline);
    status = begin(&t);
    if (status) {
        return status;
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    status = bytes <= t.pool->bytes ? read_small(&t) : pageable_read(&t);
    hdi_record_own_transfer(status, HDI_RECORD_WAY_READ, b, bytes, began);
    return status;
}
