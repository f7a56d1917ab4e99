/* pageable.c - hd_write and hd_read: between the program's own memory and buffers.
 *
 * Small transfers to and from devices take one crate (pageable_crates.h) each, and nothing else; large ones are in pageable_write.c and
 * pageable_read.c. Pinned buffers are copied to and from directly.
 *
 * Threads: any. Locks: none of its own. Blocking: hd_write for crates in use, hd_read until the bytes are there.
 * Always: a crate is given back with the position of the operation that uses it, also on failure.
 */
#include <heddle/copy.h>

#include "base/error.h"
#include "data/hold.h"
#include "data/pageable.h"

#define CRATES_PER_FLAG 8 /* of a stream of small writes so many crates come free together */

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

/* ---- small transfers ---- */

/* A crate for all of it; `t` is complete as for hdi_pageable_begin. */
static hd_status begin_small(hdi_pageable *t, hdi_crate **crate)
{
    if (__builtin_expect(t->place.losses == HDI_LOST, 0)) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    hd_status status = hdi_crate_take(t->ring, HDI_CRATE_WAIT, t->deadline, crate);
    if (!status && !*crate) {
        status = hdi_crates_not_given(t->ring);
    }
    return status;
}

static hd_status write_small(hdi_pageable *t)
{
    hdi_crate *crate;
    hd_status status = begin_small(t, &crate);
    if (status) {
        return status;
    }
    memcpy(crate->buffer->host, t->memory, t->bytes);
    bool signalled = (crate - t->ring->places) % CRATES_PER_FLAG == CRATES_PER_FLAG - 1;
    hdi_pageable_part part = {.bytes = t->bytes, .signalled = signalled};
    uint64_t last;
    status = hdi_pageable_submit(t, crate->buffer, &part, &last);
    hdi_crate_give(t->ring, crate, last, part.signalled);
    return status;
}

static hd_status read_small(hdi_pageable *t)
{
    hdi_crate *crate;
    hd_status status = begin_small(t, &crate);
    if (status) {
        return status;
    }
    hdi_pageable_part part = {.bytes = t->bytes, .signalled = true};
    uint64_t last;
    status = hdi_pageable_submit(t, crate->buffer, &part, &last);
    if (!status && !hdi_wait_position(t->rt, t->lane->global, last, t->deadline)) {
        status = hdi_not_done(t->rt, t->lane->global, last, "the bytes are not there yet (option transfer_timeout)");
    } else if (!status) {
        status = hdi_position_status(t->rt, t->lane->global, last);
        if (!status) {
            memcpy(t->memory, crate->buffer->host, t->bytes);
            last = 0;
        }
    }
    hdi_crate_give(t->ring, crate, last, part.signalled);
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

/* With the ring for small transfers. */
static hd_status begin(hdi_pageable *t)
{
    hd_status status = hdi_copy_alive(t->device->lane_in);
    t->ring = status ? NULL : hdi_crates_of(t->device, t->to_device, false);
    if (!t->ring) {
        return status ? status : HD_ERROR_HOST_MEMORY;
    }
    t->lane = hdi_crates_lane(t->ring);
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
    return bytes <= t.ring->bytes ? write_small(&t) : hdi_pageable_write(&t);
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
    return bytes <= t.ring->bytes ? read_small(&t) : hdi_pageable_read(&t);
}
