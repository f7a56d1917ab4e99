/* pageable_parts.c - what large writes and reads share: how they are cut, the operation of a part, how a failure ends them. Threads, locks:
 * see pageable.h.
 */
#include "data/pageable.h"

#include "base/error.h"

#define PAGE 4096

hd_status hdi_pageable_begin(hdi_pageable *t)
{
    if (t->place.losses == HDI_LOST) {
        return hdi_loss_fail(t->rt, t->device->index, "the buffer's content was lost (hd_free it)");
    }
    size_t helpers = t->bytes >= HDI_SHARED_LEAST ? hdi_copy_pool_count(t->rt) : 0;
    size_t useful = t->bytes / HDI_PART_LEAST;
    t->threads = helpers < useful ? helpers + 1 : useful + 1;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    t->ring = hdi_crates_of(t->device, t->to_device, true);
    hdi_crate *crate = NULL;
    hd_status status = t->ring ? hdi_crate_take(t->ring, HDI_CRATE_NOW, 0, &crate) : HD_ERROR_HOST_MEMORY;
    if (crate) {
        hdi_crate_give(t->ring, crate, 0, false);
    }
    if (status == HD_ERROR_HOST_MEMORY &&
        t->ring) { /* then through small ones; if those cannot be had, taking one will say so */
        t->ring = hdi_crates_of(t->device, t->to_device, false);
        status = t->ring ? HD_OK : HD_ERROR_HOST_MEMORY;
    }
    t->lane = t->ring ? hdi_crates_lane(t->ring) : NULL;
    return hdi_attempt_result(&attempt, status);
}

/* How large the next part should be: all threads get several, the first ones soon, and the last ones end at about the same time. */
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

hd_status hdi_pageable_submit(hdi_pageable *t, struct hd_buffer *crate, const hdi_pageable_part *part, uint64_t *last)
{
    bool in = t->to_device;
    uint64_t low = t->offset + part->at, there = t->place.buffer->address + low,
             here = crate->address + part->page_offset;
    const hdi_use uses[2] = {
        /* All of the crate, so that its record stays in one part. */
        {.buffer = crate, .low = 0, .high = crate->bytes, .read = in, .write = !in, .whole = true},
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
