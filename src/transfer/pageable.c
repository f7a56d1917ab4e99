/* pageable.c - hd_write and hd_read: between the program's own memory and buffers.
 *
 * A small transfer to or from a device takes one chunk (staging.h). A large write is filled in here by all threads that take a turn at it.
 * Large reads are in pageable_read.c. Pinned buffers are copied to and from directly.
 *
 * Threads: any; copy threads take turns at large transfers. Locks: see pageable.h.
 * Blocking: hd_write for chunks in use, while the thread holds none; hd_read until the bytes are there.
 * Always: a chunk is given back with the position of the operation that uses it, also on failure.
 */
#include <heddle/copy.h>

#include "base/error.h"
#include "buffer/hold.h"
#include "transfer/pageable.h"

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
    size_t at = item * HDI_SHARED_LEAST, left = b->bytes - at;
    size_t bytes = left < HDI_SHARED_LEAST ? left : HDI_SHARED_LEAST;
    if (b->bytes >= HDI_THROUGH_LEAST) {
        hdi_copy_through(b->dst + at, b->src + at, bytes);
    } else {
        memcpy(b->dst + at, b->src + at, bytes);
    }
}

static void copy_on_host(hd_runtime *rt, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    blocks all = {dst, src, bytes};
    hdi_copy_pool_run(rt, -1, (bytes + HDI_SHARED_LEAST - 1) / HDI_SHARED_LEAST, copy_block, &all);
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
    hd_status status = check_apart(b->host + offset, src, bytes);
    status =
        status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_WRITE | HDI_ACCESS_REPLACES, deadline);
    if (!status) {
        copy_on_host(b->runtime, b->host + offset, src, bytes);
    }
    hdi_hold_end(b);
    return status;
}

static hd_status read_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, unsigned char *dst,
                             size_t bytes, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    hd_status status = check_apart(dst, b->host + offset, bytes);
    status = status ? status : hdi_buffer_settle(b, NULL, offset, offset + bytes, HD_READ, deadline);
    if (!status) {
        copy_on_host(b->runtime, dst, b->host + offset, bytes);
    }
    hdi_hold_end(b);
    return status;
}

/* ---- parts of large transfers ---- */

hd_status hdi_pageable_begin(hdi_pageable *t)
{
    if (t->place.losses == HDI_LOST) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    size_t helpers = t->bytes >= HDI_SHARED_LEAST ? hdi_copy_pool_count(t->rt) : 0;
    size_t useful = t->bytes / HDI_PART_LEAST;
    t->threads = helpers < useful ? helpers + 1 : useful + 1;
    hd_status status = hdi_staging_choose(t->device, t->to_device, &t->pool);
    t->lane = status ? NULL : hdi_staging_lane(t->pool);
    return status;
}

/* How large the next part should be: each thread gets several, the first ones soon, and the last ones end at about the same time. */
static size_t part_bytes(const hdi_pageable *t, size_t left)
{
    size_t most = HDI_PART_LEAST << (t->parts / t->threads < 8 ? t->parts / t->threads : 8);
    most = most < HDI_PART_MOST ? most : HDI_PART_MOST;
    size_t bytes = (left / (2 * t->threads) + HDI_PART_STEP - 1) / HDI_PART_STEP * HDI_PART_STEP;
    bytes = bytes < HDI_PART_LEAST ? HDI_PART_LEAST : bytes;
    return bytes < most ? bytes : most;
}

bool hdi_pageable_next(hdi_pageable *t, size_t room, hdi_pageable_part *out)
{
    hdi_lock_take(&t->lock);
    size_t at = atomic_load_explicit(&t->next, memory_order_relaxed), left = t->bytes - at;
    bool found = left && !hdi_pageable_failed(t);
    if (found) {
        /* All parts but the first begin where pages of the device begin, so that only the first has an offset in its page. */
        size_t page_offset = (size_t)((t->place.buffer->address + t->offset + at) % PAGE);
        size_t bytes = part_bytes(t, left);
        bytes = (bytes < room ? bytes : room) - page_offset;
        bool rest = left <= bytes || (left - bytes < HDI_PART_STEP && left <= room - page_offset);
        bytes = rest ? left : bytes;
        t->unsignalled += bytes;
        bool signalled = at + bytes == t->bytes || t->unsignalled >= HDI_PARTS_PER_FLAG * bytes;
        t->unsignalled = signalled ? 0 : t->unsignalled;
        t->parts++;
        atomic_store_explicit(&t->next, at + bytes, memory_order_relaxed);
        *out = (hdi_pageable_part){.at = at, .bytes = bytes, .page_offset = page_offset, .signalled = signalled};
    }
    hdi_lock_release(&t->lock);
    return found;
}

hd_status hdi_pageable_submit(hdi_pageable *t, struct hd_buffer *chunk, const hdi_pageable_part *part, uint64_t *last)
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
    hd_status status = hdi_submit(t->lane, uses, 2, &command, &ticket);
    *last = status ? 0 : ticket.sequence;
    return status;
}

void hdi_pageable_fail(hdi_pageable *t, hd_status status)
{
    hd_error error;
    hdi_error_get(&error);
    hdi_lock_take(&t->lock);
    if (!hdi_pageable_failed(t)) {
        *t->error = error;
        atomic_store_explicit(&t->status, status, memory_order_relaxed);
    }
    hdi_lock_release(&t->lock);
}

hd_status hdi_pageable_result(hdi_pageable *t)
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
    hdi_pageable *t = context;
    if (!hdi_pageable_goes_on(t)) {
        return HDI_TURN_OVER;
    }
    hdi_chunk *chunk;
    hd_status status = hdi_staging_take(t->pool, HDI_STAGING_WAIT, hdi_pageable_timeout(t, caller), &chunk);
    if (!status && !chunk && !caller) {
        return HDI_TURN_WAITS;
    }
    if (!status && !chunk) {
        status = hdi_staging_not_given(t->pool);
    }
    if (status) {
        hdi_pageable_fail(t, status);
        return HDI_TURN_OVER;
    }
    hdi_pageable_part part;
    uint64_t last = 0;
    bool found = hdi_pageable_next(t, t->pool->bytes, &part);
    if (found) {
        hdi_pageable_copy(t, chunk->buffer->host + part.page_offset, t->memory + part.at, part.bytes);
        status = hdi_pageable_submit(t, chunk->buffer, &part, &last);
    }
    hdi_staging_give(t->pool, chunk, hdi_pageable_point(t, last), found && part.signalled);
    if (status) {
        hdi_pageable_fail(t, status);
    }
    return found && !status ? HDI_TURN_DID : HDI_TURN_OVER;
}

hd_status hdi_pageable_write(hdi_pageable *t)
{
    hd_error error;
    t->error = &error;
    hd_status status = hdi_pageable_begin(t);
    if (!status) {
        hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, fill, t);
        status = hdi_pageable_result(t);
    }
    return status;
}

/* ---- small transfers ---- */

/* A chunk for all of it; `t` is complete as for hdi_pageable_begin. */
static hd_status begin_small(hdi_pageable *t, hdi_chunk **chunk)
{
    if (__builtin_expect(t->place.losses == HDI_LOST, 0)) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    return hdi_staging_await(t->pool, HDI_STAGING_WAIT, t->deadline, chunk);
}

static hd_status write_small(hdi_pageable *t)
{
    hdi_chunk *chunk;
    hd_status status = begin_small(t, &chunk);
    if (status) {
        return status;
    }
    memcpy(chunk->buffer->host, t->memory, t->bytes);
    bool signalled = (chunk - t->pool->places) % CHUNKS_PER_FLAG == CHUNKS_PER_FLAG - 1;
    hdi_pageable_part part = {.bytes = t->bytes, .signalled = signalled};
    uint64_t last;
    status = hdi_pageable_submit(t, chunk->buffer, &part, &last);
    hdi_staging_give(t->pool, chunk, hdi_pageable_point(t, last), part.signalled);
    return status;
}

static hd_status read_small(hdi_pageable *t)
{
    hdi_chunk *chunk;
    hd_status status = begin_small(t, &chunk);
    if (status) {
        return status;
    }
    hdi_pageable_part part = {.bytes = t->bytes, .signalled = true};
    uint64_t last;
    status = hdi_pageable_submit(t, chunk->buffer, &part, &last);
    if (!status && !hdi_wait_position(t->rt, t->lane->global, last, t->deadline)) {
        status = hdi_not_done(t->rt, t->lane->global, last, "the bytes are not there yet (option transfer_timeout)");
    } else if (!status) {
        status = hdi_position_status(t->rt, t->lane->global, last);
        if (!status) {
            memcpy(t->memory, chunk->buffer->host, t->bytes);
            last = 0;
        }
    }
    hdi_staging_give(t->pool, chunk, hdi_pageable_point(t, last), part.signalled);
    return status;
}

/* ---- the calls ---- */

static hdi_pageable make_transfer(struct hd_buffer *b, const hd_buffer *handle, hdi_device *device, size_t offset,
                                  const void *memory, size_t bytes, int64_t deadline)
{
    return (hdi_pageable){
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
static hd_status begin(hdi_pageable *t)
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
    hdi_pageable t = make_transfer(b, handle, b->runtime->devices[owner], offset, src, bytes, deadline);
    t.to_device = true;
    status = begin(&t);
    if (status) {
        return status;
    }
    return bytes <= t.pool->bytes ? write_small(&t) : hdi_pageable_write(&t);
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
    hdi_pageable t = make_transfer(b, handle, b->runtime->devices[owner], offset, dst, bytes, deadline);
    status = begin(&t);
    if (status) {
        return status;
    }
    return bytes <= t.pool->bytes ? read_small(&t) : hdi_pageable_read(&t);
}
