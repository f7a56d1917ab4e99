/* pageable.c - hd_write and hd_read, which copy between the program's own memory and buffers. All
 * their tuning is here.
 *
 * A small transfer to or from a device takes one chunk (staging.h). A transfer to or from a pinned
 * buffer uses no chunk: the bytes are copied directly. A large transfer is cut into parts. Each
 * part is an operation of its own through a chunk. The calling thread and the copy threads
 * (copy_pool.h) fill or empty the chunks. At the beginning, the link waits for the first part, and
 * at the end, the threads wait for the last one. So the first and the last parts are small, and
 * those in between are large.
 *
 * The threads take turns at a large transfer. In a turn at a write, a thread fills a chunk and
 * submits its copy. For a read, the device fills several chunks in advance, and these stand in a
 * queue. In a turn at a read, a thread empties the chunk at the front of the queue. Then the thread
 * submits the chunk again for the next part.
 *
 * Threads: any. A transfer belongs to the thread that calls; copy threads take turns at the
 * transfer. For a read, only the calling thread takes chunks from the pool. The calling thread
 * waits for a chunk only while the transfer holds none. So readers never wait for each other in a
 * circle, even with few chunks. While a copy thread waits for the chunk at the front, the chunk
 * stays in the queue.
 * Locks: one per large transfer, held for tens of nanoseconds; a holder takes no other lock.
 * Blocking: hd_write waits for a chunk that is in use, but only while its thread holds no chunk.
 * hd_read waits until the bytes arrived.
 * Always: a thread gives a chunk back with the position of the operation that uses the chunk, even
 * on failure. After the first failure of a transfer, no further part begins. Each chunk of a large
 * read is in the read's queue, or one thread holds it.
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

/* Copy threads take turns only at transfers of at least this size. */
#define SHARED_LEAST ((size_t)1 << 20)
/* If a transfer has at least this size, its copies bypass the processor's caches, which are
 * smaller: */
#define THROUGH_LEAST ((size_t)32 << 20)
#define FILL_THROUGH true  /* when threads fill chunks */
#define EMPTY_THROUGH true /* when threads empty chunks */
/* This many parts of equal size share one completion write, since each completion write delays the
 * link. */
#define PARTS_PER_FLAG 2
#define HELPER_TIMEOUT_NS 1000000 /* a copy thread waits at most this long for a device */

typedef struct pageable_part {
    /* the offset of the part's first byte in the transfer, and the number of its bytes */
    size_t at, bytes;
    /* the offset of the part in the chunk, which equals the offset of the part in a page of the
     * device */
    size_t page_offset;
    bool signalled; /* a completion write follows the part */
} pageable_part;

typedef struct pageable {
    hd_runtime *rt;
    hdi_device *device;
    bool to_device;
    hdi_staging *pool;
    hd_lane *lane; /* the lane of the pool */
    /* the buffer that the transfer uses, with the state when its handle was checked */
    hdi_place place;
    uint64_t offset;       /* the offset of the transfer's first byte in the buffer */
    unsigned char *memory; /* the program's memory; a write only reads it */
    size_t bytes;
    size_t threads; /* the most threads that take part, with the calling thread */
    int64_t deadline;
    _Atomic int status; /* hd_status of the first failure */
    /* ---- under the lock ---- */
    hdi_lock lock;
    _Atomic size_t next; /* the first byte that no part contains yet; also read without the lock */
    size_t parts;        /* the number of parts that began so far */
    size_t unsignalled;  /* the bytes of the parts since the last part with `signalled` set */
    /* the error, once `status` is not HD_OK; NULL for small transfers */
    hd_error *error;
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

/* True if some bytes of the transfer are in no part yet, and nothing failed. */
static inline bool pageable_goes_on(const pageable *t)
{
    return !pageable_failed(t) && atomic_load_explicit(&t->next, memory_order_relaxed) < t->bytes;
}

/* The time limit of a turn's wait for the device. */
static inline int64_t pageable_timeout(const pageable *t, bool caller)
{
    int64_t soon = caller ? t->deadline : hdi_clock_ns() + HELPER_TIMEOUT_NS;
    return soon < t->deadline ? soon : t->deadline;
}

#define PAGE 4096
/* if small writes follow each other, this many chunks share one completion write */
#define CHUNKS_PER_FLAG 8

/* ---- pinned buffers ---- */

typedef struct blocks {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
} blocks;

static void pageable_copy_block(void *context, size_t item)
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

static void pageable_copy_on_host(hd_runtime *rt, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    blocks all = {dst, src, bytes};
    hdi_copy_pool_run(rt, -1, (bytes + SHARED_LEAST - 1) / SHARED_LEAST, pageable_copy_block, &all);
}

/* Fails if the ranges overlap: the program's memory may be a part of the buffer. */
static hd_status pageable_check_apart(const unsigned char *dst, const unsigned char *src, size_t bytes)
{
    const hdi_box box = hdi_box_of_bytes(bytes);
    return hdi_box_overlaps(&box, (uintptr_t)dst, (uintptr_t)src)
               ? hdi_fail(HD_ERROR_ARGUMENT, "the program's %zu bytes overlap those of the buffer", bytes)
               : HD_OK;
}

static hd_status pageable_write_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset,
                                       const unsigned char *src, size_t bytes, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    hd_status status = pageable_check_apart(b->host + offset, src, bytes);
    status =
        status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_WRITE | HDI_ACCESS_REPLACES, deadline);
    if (!status) {
        pageable_copy_on_host(b->runtime, b->host + offset, src, bytes);
    }
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, bytes, began);
    hdi_hold_end(b);
    return status;
}

static hd_status pageable_read_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, unsigned char *dst,
                                      size_t bytes, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    hd_status status = pageable_check_apart(dst, b->host + offset, bytes);
    status = status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_READ, deadline);
    if (!status) {
        pageable_copy_on_host(b->runtime, dst, b->host + offset, bytes);
    }
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_READ, b, bytes, began);
    hdi_hold_end(b);
    return status;
}

/* ---- parts of large transfers ---- */

/* Chooses a pool of chunks, and the number of threads that take part. Before this call, the caller
 * sets rt, device, to_device, place, offset, memory, bytes and deadline in `t`.
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

/* The size of the next part. Each thread gets several parts. The first parts are small, so that the
 * link soon gets work. The last parts are small, so that all threads end at about the same time. */
static size_t pageable_part_bytes(const pageable *t, size_t left)
{
    size_t most = PART_LEAST << (t->parts / t->threads < 8 ? t->parts / t->threads : 8);
    most = most < PART_MOST ? most : PART_MOST;
    size_t bytes = (left / (2 * t->threads) + PART_STEP - 1) / PART_STEP * PART_STEP;
    bytes = bytes < PART_LEAST ? PART_LEAST : bytes;
    return bytes < most ? bytes : most;
}

/* Begins the next part, which fits into `room` bytes of a chunk. False: none is left, or the
 * transfer failed. */
static bool pageable_next(pageable *t, size_t room, pageable_part *out)
{
    hdi_lock_take(&t->lock);
    size_t at = atomic_load_explicit(&t->next, memory_order_relaxed), left = t->bytes - at;
    bool found = left && !pageable_failed(t);
    if (found) {
        /* All parts but the first begin at the start of a page of the device. Only the first part
         * has an offset in its page. */
        size_t page_offset = (size_t)((t->place.buffer->address + t->offset + at) % PAGE);
        size_t bytes = pageable_part_bytes(t, left);
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

/* Submits the operation that moves a part between its chunk and the device. *last: the end of the
 * operation. `parked`: as in hdi_linked. */
static hd_status pageable_submit(pageable *t, struct hd_buffer *chunk, const pageable_part *part, hdi_probe *parked,
                                 hdi_point *last)
{
    bool in = t->to_device;
    uint64_t low = t->offset + part->at, there = t->place.buffer->address + low,
             here = chunk->address + part->page_offset;
    const hdi_use uses[2] = {
        /* Each operation uses the whole chunk, so that the chunk's record stays one segment. */
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
    uint16_t kind = (in ? HDI_COPY_TO_DEVICE : HDI_COPY_TO_HOST) | (part->signalled ? HDI_COPY_FLAG : 0);
    hdi_command command = {.op = HDI_OP_COPY, .kind = kind, .slots = 1};
    command.copy.src = in ? here : there;
    command.copy.dst = in ? there : here;
    command.copy.bytes = part->bytes;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdi_submit_linked(t->lane, uses, 2, &command, (hdi_linked){.parked = parked}, &ticket);
    *last = hdi_ticket_point(ticket);
    return status;
}

/* Waits until a transfer of these bytes would no longer wait for work of the program. The thread
 * holds no chunk during this wait. */
static hd_status pageable_await_roots(pageable *t, size_t at, size_t bytes)
{
    const hdi_use use = {.buffer = t->place.buffer,
                         .losses = t->place.losses,
                         .word = t->place.word,
                         .low = t->offset + at,
                         .high = t->offset + at + bytes,
                         .read = !t->to_device,
                         .write = t->to_device,
                         .whole = bytes == t->place.buffer->bytes};
    return hdi_staging_await_roots(t->lane, &use, 1, t->deadline);
}

/* Ends the transfer with this thread's last failure, unless the transfer already failed. */
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

/* The status of the transfer. Its message becomes the calling thread's message. No copy thread
 * works on the transfer any more. */
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
static hdi_turn pageable_write_turn(void *context, bool caller)
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
        status = pageable_await_roots(t, at, t->bytes - at);
    }
    status = status ? status : hdi_staging_take(t->pool, HDI_STAGING_WAIT, pageable_timeout(t, caller), &chunk);
    if (!status && !chunk && !caller) {
        return HDI_TURN_WAITS;
    }
    if (!status && !chunk) {
        status = hdi_fail_pass(hdi_staging_not_given(t->pool));
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
        hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, pageable_write_turn, t);
        status = pageable_result(t);
    }
    t->error = NULL;
    return status;
}

/* ---- large reads ---- */

/* A chunk on its way. */
typedef struct flight {
    hdi_chunk *chunk;
    pageable_part part;
    hdi_point last; /* the end of the copy into the chunk */
} flight;

typedef struct reading {
    pageable t;
    flight queue[HDI_STAGING_MOST]; /* under the transfer's lock, like the next three fields */
    uint32_t first, count;
    uint32_t hands; /* chunks that threads hold */
    /* futex word that changes when a thread puts a chunk into the queue, or gives it back */
    _Atomic uint32_t changed;
    _Atomic bool caller_waits; /* the caller waits for a change of `changed` */
} reading;

/* Puts a chunk of this thread into the queue, or gives it back to the pool. */
static void pageable_read_let_go(reading *r, const flight *sent)
{
    hdi_lock_take(&r->t.lock);
    if (sent) {
        r->queue[(r->first + r->count++) % HDI_STAGING_MOST] = *sent;
    }
    r->hands--;
    hdi_lock_release(&r->t.lock);
    /* Sequentially consistent with the caller, which first sets `caller_waits` and then reads
     * `changed`. */
    atomic_fetch_add_explicit(&r->changed, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&r->caller_waits, memory_order_seq_cst)) {
        hdi_futex_wake(&r->changed, 1);
    }
}

/* Submits this thread's chunk for the next part, or gives it back if no part is left. */
static void pageable_read_send(reading *r, hdi_chunk *chunk)
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
    pageable_read_let_go(r, sent ? &f : NULL);
}

static void pageable_read_take_into_hands(reading *r)
{
    hdi_lock_take(&r->t.lock);
    r->hands++;
    hdi_lock_release(&r->t.lock);
}

/* Takes one more chunk from the pool, and submits it for the next part. Only the thread that owns
 * the transfer calls this. False: no chunk was available (see `wish`), or the transfer failed. */
static bool pageable_read_send_another(reading *r, hdi_staging_wish wish, int64_t deadline)
{
    pageable *t = &r->t;
    hdi_chunk *chunk;
    if (!pageable_goes_on(t)) {
        return false;
    }
    hd_status status = hdi_staging_take(t->pool, wish, deadline, &chunk);
    if (!status && !chunk && wish == HDI_STAGING_WAIT) {
        status = hdi_fail_pass(hdi_staging_not_given(t->pool));
    }
    if (status) {
        pageable_fail(t, status);
        return false;
    }
    if (chunk) {
        pageable_read_take_into_hands(r);
        pageable_read_send(r, chunk);
    }
    return chunk != NULL;
}

/* Copies the bytes of this thread's chunk to their destination. Then submits the chunk again,
 * unless another thread waits for a chunk. */
static void pageable_read_empty(reading *r, const flight *f)
{
    pageable *t = &r->t;
    hd_status status = hdi_position_status(t->rt, f->last.lane, f->last.position);
    if (status) {
        pageable_fail(t, status);
        hdi_staging_give(t->pool, f->chunk, f->last, f->part.signalled);
        pageable_read_let_go(r, NULL);
        return;
    }
    pageable_copy(t, t->memory + f->part.at, f->chunk->buffer->host + f->part.page_offset, f->part.bytes);
    hdi_lock_take(&t->lock);
    bool share = hdi_staging_wanted(t->pool) && r->count + r->hands > 1;
    hdi_lock_release(&t->lock);
    if (share) {
        hdi_staging_give(t->pool, f->chunk, (hdi_point){0, 0}, false);
        pageable_read_let_go(r, NULL);
    } else {
        pageable_read_send(r, f->chunk);
    }
}

typedef enum front {
    FRONT_TAKEN,
    FRONT_UNDER_WAY, /* the device still copies into the chunk at the front */
    FRONT_IN_HANDS,  /* the queue is empty, but threads hold chunks, and may submit them again */
    FRONT_NONE,      /* the transfer has no chunk, but there is more to read */
    FRONT_OVER
} front;

/* Takes the chunk at the front of the queue, if its bytes arrived. If the device still copies
 * into that chunk, *until is the use to wait for. */
static front pageable_read_claim_front(reading *r, flight *f, hdi_awaited *until)
{
    pageable *t = &r->t;
    front found;
    hdi_lock_take(&t->lock);
    if (pageable_failed(t)) {
        found = FRONT_OVER;
    } else if (r->count == 0) {
        /* While threads hold chunks, one of these threads may put its chunk back into the queue,
         * even for the last part. */
        bool all = atomic_load_explicit(&t->next, memory_order_relaxed) == t->bytes;
        found = r->hands ? FRONT_IN_HANDS : all ? FRONT_OVER : FRONT_NONE;
    } else {
        *f = r->queue[r->first];
        /* Pairs with the engine's store of `done`: the bytes are there. */
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

/* Called when the calling thread has nothing to do until another thread submits a chunk, or empties
 * the last one. */
static void pageable_read_wait_for_hands(reading *r)
{
    atomic_store_explicit(&r->caller_waits, true, memory_order_seq_cst);
    uint32_t changed = atomic_load_explicit(&r->changed, memory_order_seq_cst);
    hdi_lock_take(&r->t.lock);
    bool in_hands = r->count == 0 && r->hands;
    hdi_lock_release(&r->t.lock);
    if (in_hands) {
        /* this wait needs no deadline, since the other threads only copy bytes */
        hdi_futex_wait(&r->changed, changed, INT64_MAX);
    }
    atomic_store_explicit(&r->caller_waits, false, memory_order_seq_cst);
}

static hdi_turn pageable_read_wait_for_front(reading *r, const hdi_awaited *until, bool caller)
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

static hdi_turn pageable_read_turn(void *context, bool caller)
{
    reading *r = context;
    pageable *t = &r->t;
    flight f;
    while (caller && !hdi_staging_wanted(t->pool) && pageable_read_send_another(r, HDI_STAGING_IDLE, 0)) {
    }
    hdi_awaited until;
    switch (pageable_read_claim_front(r, &f, &until)) {
    case FRONT_TAKEN:
        pageable_read_empty(r, &f);
        return HDI_TURN_DID;
    case FRONT_UNDER_WAY:
        return caller && pageable_read_send_another(r, HDI_STAGING_NOW, 0)
                   ? HDI_TURN_DID
                   : pageable_read_wait_for_front(r, &until, caller);
    case FRONT_IN_HANDS:
        if (caller) {
            pageable_read_wait_for_hands(r);
        }
        return HDI_TURN_WAITS;
    case FRONT_NONE:
        if (caller) {
            pageable_read_send_another(r, HDI_STAGING_WAIT, t->deadline);
        }
        return caller ? HDI_TURN_DID : HDI_TURN_WAITS;
    case FRONT_OVER:
        break;
    }
    return HDI_TURN_OVER;
}

static hd_status pageable_read(pageable *t)
{
    hd_status status = pageable_begin(t);
    status = status ? status : pageable_await_roots(t, 0, t->bytes);
    if (status) {
        return status;
    }
    hd_error error;
    reading r; /* the queue is not initialised here, since it takes several pages */
    r.t = *t;
    r.t.error = &error;
    r.first = r.count = r.hands = 0;
    atomic_init(&r.changed, 0);
    atomic_init(&r.caller_waits, false);
    hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, pageable_read_turn, &r);
    /* a failed transfer gives back chunks into which the device may still copy */
    for (; r.count; r.count--) {
        const flight *f = &r.queue[r.first];
        hdi_staging_give(t->pool, f->chunk, f->last, f->part.signalled);
        r.first = (r.first + 1) % HDI_STAGING_MOST;
    }
    return pageable_result(&r.t);
}

/* ---- small transfers ---- */

/* Takes a chunk for the whole transfer; `t` is complete as for pageable_begin. */
static hd_status pageable_begin_small(pageable *t, hdi_chunk **chunk)
{
    if (__builtin_expect(t->place.losses == HDI_LOST, 0)) {
        return hdi_fail_pass(hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)"));
    }
    return hdi_staging_await(t->pool, HDI_STAGING_WAIT, t->deadline, chunk);
}

static hd_status pageable_write_small(pageable *t)
{
    hdi_chunk *chunk;
    bool is_short = hdi_staging_is_short(t->pool);
    hd_status status = __builtin_expect(is_short, 0) ? pageable_await_roots(t, 0, t->bytes) : HD_OK;
    status = status ? status : pageable_begin_small(t, &chunk);
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

/* Submits the copy into the chunk. If the copy would wait for work of the program, it is submitted
 * only if enough chunks are left for other threads. Otherwise nothing is submitted, and probe->root
 * is a part of the work to wait for. */
static hd_status pageable_submit_small_read(pageable *t, struct hd_buffer *chunk, hdi_probe *probe, hdi_point *last)
{
    const pageable_part part = {.bytes = t->bytes, .signalled = true};
    hd_status status = pageable_submit(t, chunk, &part, probe, last);
    if (__builtin_expect(probe->root.position != 0, 0) && hdi_staging_is_ample(t->pool)) {
        probe->root.position = 0;
        status = pageable_submit(t, chunk, &part, NULL, last);
    }
    return status;
}

/* Makes one attempt at a small read. probe->root: work of the program to wait for before the next
 * attempt; position 0: none. */
static hd_status pageable_try_read_small(pageable *t, hdi_probe *probe)
{
    hdi_chunk *chunk;
    hd_status status = pageable_begin_small(t, &chunk);
    if (status) {
        return status;
    }
    hdi_point last = {0, 0};
    status = pageable_submit_small_read(t, chunk->buffer, probe, &last);
    if (!status && !hdi_wait_position(t->rt, last.lane, last.position, t->deadline)) {
        status = hdi_not_done(t->rt, last.lane, last.position, "the bytes are not there yet (option transfer_timeout)");
    } else if (!status) {
        status = hdi_position_status(t->rt, last.lane, last.position);
        if (!status) {
            memcpy(t->memory, chunk->buffer->host, t->bytes);
            last.position = 0;
        }
    }
    hdi_staging_give(t->pool, chunk, last, true);
    return status;
}

static hd_status pageable_read_small(pageable *t)
{
    hdi_probe probe = {.root = {0, 0}};
    hd_status status = pageable_try_read_small(t, &probe);
    while (__builtin_expect(probe.root.position != 0, 0)) {
        status = pageable_await_roots(t, 0, t->bytes);
        probe.root.position = 0;
        status = status ? status : pageable_try_read_small(t, &probe);
    }
    return status;
}

/* ---- the calls ---- */

static pageable pageable_make(struct hd_buffer *b, const hd_buffer *handle, hdi_device *device, size_t offset,
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

/* Chooses a pool: the pool of small chunks if possible. */
static hd_status pageable_choose_pool(pageable *t)
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
    /* the owner is read only once; if another buffer gets the structure, the submission notices
     * this */
    int owner = b->owner;
    if (owner == HDI_OWNER_HOST) {
        return pageable_write_pinned(b, handle, offset, src, bytes, deadline);
    }
    pageable t = pageable_make(b, handle, b->runtime->devices[owner], offset, src, bytes, deadline);
    t.to_device = true;
    status = pageable_choose_pool(&t);
    if (status) {
        return status;
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    status = bytes <= t.pool->bytes ? pageable_write_small(&t) : pageable_write(&t);
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, bytes, began);
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
        return pageable_read_pinned(b, handle, offset, dst, bytes, deadline);
    }
    pageable t = pageable_make(b, handle, b->runtime->devices[owner], offset, dst, bytes, deadline);
    status = pageable_choose_pool(&t);
    if (status) {
        return status;
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    status = bytes <= t.pool->bytes ? pageable_read_small(&t) : pageable_read(&t);
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_READ, b, bytes, began);
    return status;
}
