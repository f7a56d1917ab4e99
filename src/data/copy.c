/* copy.c - hd_write, hd_read, hd_copy, hd_fill: bytes in chunks along the planned route.
 *
 * Threads: any. Locks: none of its own. Blocking: hd_write for pinned chunks in use, hd_read until the bytes are there.
 * Always: every chunk is an operation of its own in a copy lane, ordered by the buffers' use records alone; a pinned chunk is
 * given back with the mark of the last operation that uses it, also on failure.
 */
#include <heddle/copy.h>

#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "data/route.h"
#include "data/staging.h"
#include "data/submit.h"
#include "engine/engine.h"

#define READ_AHEAD 3 /* chunks on their way while one is copied out */

/* How many bytes go in one operation: all of a small transfer; of one between a quarter and a whole large chunk half,
 * so that its two halves overlap on the link; a large chunk otherwise. */
static size_t chunk_bytes(size_t bytes)
{
    if (bytes >= HDI_STAGING_LARGE) {
        return HDI_STAGING_LARGE;
    }
    return bytes > HDI_STAGING_LARGE / 4 ? (bytes / 2 + 255) / 256 * 256 : bytes;
}

static hdi_mark mark_of(hd_ticket ticket)
{
    hd_lane *lane = hdi_lane_any(ticket.lane);
    return lane ? (hdi_mark){lane->global, ticket.sequence} : (hdi_mark){0, 0};
}

/* Refuses a lost device before anything is pinned or copied for it. */
static hd_status check_alive(hd_lane *lane, const char *who)
{
    bool lost = hdi_device_lost(lane->device) != 0;
    return lost ? hdi_lane_refuses(lane, who) : HD_OK;
}

/* A buffer as it was when its handle was checked: all parts of a transfer go to the same memory, or fail. */
typedef struct place {
    struct hd_buffer *buffer;
    uint64_t losses;
    uint64_t word; /* of the program's handle; 0: our own buffer */
} place;

static place place_of(struct hd_buffer *buffer)
{
    return (place){buffer, hdi_buffer_losses(buffer), 0};
}

static place place_of_handle(struct hd_buffer *buffer, const hd_buffer *handle)
{
    return (place){buffer, hdi_buffer_losses(buffer), hdi_self_word(handle)};
}

/* One copy command in `lane` from bytes of one tracked buffer to bytes of another. */
static hd_status submit_copy(hd_lane *lane, uint8_t kind, place to, uint64_t dst_offset, place from,
                             uint64_t src_offset, uint64_t bytes, const char *who, hd_ticket *out)
{
    struct hd_buffer *dst = to.buffer, *src = from.buffer;
    hdi_use uses[2] = {
        {.buffer = src,
         .losses = from.losses,
         .word = from.word,
         .low = src_offset,
         .high = src_offset + bytes,
         .read = true},
        {.buffer = dst,
         .losses = to.losses,
         .word = to.word,
         .low = dst_offset,
         .high = dst_offset + bytes,
         .write = true},
    };
    if (to.losses == HDI_LOST || from.losses == HDI_LOST) {
        struct hd_buffer *lost = to.losses == HDI_LOST ? dst : src;
        return hdi_loss_fail(lost->runtime, lost->owner, who, "a buffer's content was lost meanwhile");
    }
    hdi_command command = {.op = HDI_OP_COPY, .kind = kind, .slots = 1};
    /* Pinned memory by the address that the engine knows it under, not by the program's. */
    command.copy.src = src->address + src_offset;
    command.copy.dst = dst->address + dst_offset;
    command.copy.bytes = bytes;
    return hdi_submit(lane, uses, 2, &command, who, out);
}

hd_status hdi_copy_in(struct hd_buffer *dst, struct hd_buffer *src, hd_ticket *out)
{
    return submit_copy(dst->runtime->devices[dst->owner]->lane_in, HDI_COPY_TO_DEVICE, place_of(dst), 0, place_of(src),
                       0, dst->bytes, "hd_device_restart", out);
}

hd_status hdi_copy_out(struct hd_buffer *dst, struct hd_buffer *src, hd_ticket *out)
{
    return submit_copy(src->runtime->devices[src->owner]->lane_out, HDI_COPY_TO_HOST, place_of(dst), 0, place_of(src),
                       0, src->bytes, "hd_buffer_save", out);
}

hd_status hd_write(hd_buffer *handle, size_t offset, const void *src, size_t bytes)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, "hd_write", &b);
    if (status || bytes == 0) {
        return status;
    }
    if (!src) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_write: src is null");
    }
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    if (b->owner == HDI_OWNER_HOST) {
        status = hdi_buffer_settle(b, offset, offset + bytes, HD_WRITE, deadline, "hd_write");
        if (!status) {
            memcpy(b->host + offset, src, bytes);
            hdi_buffer_host_wrote(b, offset, offset + bytes);
        }
        return status;
    }
    hd_runtime *rt = b->runtime;
    place to = place_of_handle(b, handle);
    size_t step = chunk_bytes(bytes);
    status = check_alive(rt->devices[b->owner]->lane_in, "hd_write");
    for (size_t at = 0; at < bytes && !status; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        hdi_chunk *chunk;
        status = hdi_staging_take(rt, n, deadline, "hd_write", &chunk);
        if (status) {
            break;
        }
        memcpy(chunk->buffer->host, (const unsigned char *)src + at, n);
        hd_ticket ticket = {NULL, 0};
        status = submit_copy(rt->devices[b->owner]->lane_in, HDI_COPY_TO_DEVICE, to, offset + at,
                             place_of(chunk->buffer), 0, n, "hd_write", &ticket);
        hdi_staging_give(rt, chunk, mark_of(ticket));
    }
    return status;
}

/* A chunk on its way to the host. */
typedef struct incoming {
    hdi_chunk *chunk;
    hd_ticket ticket;
    size_t at, bytes;
} incoming;

hd_status hd_read(hd_buffer *handle, size_t offset, void *dst, size_t bytes)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, "hd_read", &b);
    if (status || bytes == 0) {
        return status;
    }
    if (!dst) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_read: dst is null");
    }
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    if (b->owner == HDI_OWNER_HOST) {
        status = hdi_buffer_settle(b, offset, offset + bytes, HD_READ, deadline, "hd_read");
        if (!status) {
            memcpy(dst, b->host + offset, bytes);
        }
        return status;
    }
    hd_runtime *rt = b->runtime;
    place from = place_of_handle(b, handle);
    incoming queue[READ_AHEAD];
    status = check_alive(rt->devices[b->owner]->lane_out, "hd_read");
    size_t first = 0, pending = 0;
    size_t step = chunk_bytes(bytes);
    size_t at = 0;
    while ((!status && at < bytes) || pending) {
        while (!status && at < bytes && pending < READ_AHEAD) {
            incoming *in = &queue[(first + pending) % READ_AHEAD];
            in->at = at;
            in->bytes = bytes - at < step ? bytes - at : step;
            /* Never waits for a chunk while holding some: readers that do so wait for each other. */
            status = hdi_staging_take(rt, in->bytes, pending == 0 ? deadline : HDI_STAGING_NOW, "hd_read", &in->chunk);
            if (!status && !in->chunk) {
                break;
            }
            if (!status) {
                status = submit_copy(rt->devices[b->owner]->lane_out, HDI_COPY_TO_HOST, place_of(in->chunk->buffer), 0,
                                     from, offset + at, in->bytes, "hd_read", &in->ticket);
                if (status) {
                    hdi_staging_give(rt, in->chunk, (hdi_mark){0, 0});
                } else {
                    pending++;
                    at += in->bytes;
                }
            }
        }
        if (pending) {
            incoming *in = &queue[first];
            if (!status) {
                hdi_mark mark = mark_of(in->ticket);
                status =
                    hdi_wait_position(rt, mark.lane, mark.position, deadline)
                        ? hdi_position_status(rt, mark.lane, mark.position, "hd_read")
                        : hdi_fail(HD_ERROR_TIMEOUT, "hd_read: the bytes are not there yet (option transfer_timeout)");
            }
            if (!status) {
                memcpy((unsigned char *)dst + in->at, in->chunk->buffer->host, in->bytes);
            }
            hdi_staging_give(rt, in->chunk, mark_of(in->ticket));
            first = (first + 1) % READ_AHEAD;
            pending--;
        }
    }
    return status;
}

static hd_status copy_staged(hd_runtime *rt, place to, size_t dst_offset, place from, size_t src_offset, size_t bytes,
                             hd_ticket *out)
{
    const struct hd_buffer *dst = to.buffer, *src = from.buffer;
    size_t step = chunk_bytes(bytes);
    int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
    hd_status status = check_alive(rt->devices[src->owner]->lane_out, "hd_copy");
    status = status ? status : check_alive(rt->devices[dst->owner]->lane_in, "hd_copy");
    for (size_t at = 0; at < bytes && !status; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        hdi_chunk *chunk;
        status = hdi_staging_take(rt, n, deadline, "hd_copy", &chunk);
        if (status) {
            break;
        }
        hd_ticket ticket = {NULL, 0};
        status = submit_copy(rt->devices[src->owner]->lane_out, HDI_COPY_TO_HOST, place_of(chunk->buffer), 0, from,
                             src_offset + at, n, "hd_copy", &ticket);
        if (!status) {
            status = submit_copy(rt->devices[dst->owner]->lane_in, HDI_COPY_TO_DEVICE, to, dst_offset + at,
                                 place_of(chunk->buffer), 0, n, "hd_copy", &ticket);
        }
        hdi_staging_give(rt, chunk, mark_of(ticket));
        *out = ticket;
    }
    return status;
}

hd_status hd_copy(hd_buffer *dst_handle, size_t dst_offset, hd_buffer *src_handle, size_t src_offset, size_t bytes,
                  hd_ticket *out)
{
    struct hd_buffer *dst = NULL, *src = NULL;
    hd_status status = hdi_buffer_check(dst_handle, dst_offset, bytes, "hd_copy: dst", &dst);
    if (!status) {
        status = hdi_buffer_check(src_handle, src_offset, bytes, "hd_copy: src", &src);
    }
    if (status) {
        return status;
    }
    if (dst->runtime != src->runtime) {
        return hdi_fail(HD_ERROR_HANDLE, "hd_copy: the buffers belong to different runtimes");
    }
    if (dst == src && dst_offset < src_offset + bytes && src_offset < dst_offset + bytes && bytes) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_copy: bytes %zu..%zu and %zu..%zu of one buffer overlap", src_offset,
                        src_offset + bytes, dst_offset, dst_offset + bytes);
    }
    hd_ticket ticket = {NULL, 0};
    if (bytes) {
        hd_runtime *rt = dst->runtime;
        place to = place_of_handle(dst, dst_handle), from = place_of_handle(src, src_handle);
        hdi_route_facts facts = {.src = src->owner, .dst = dst->owner};
        if (src->owner >= 0 && dst->owner >= 0 && src->owner != dst->owner) {
            facts.src_reaches_dst = hdi_reach(rt, src->owner, dst->owner);
            facts.dst_reaches_src = !facts.src_reaches_dst && hdi_reach(rt, dst->owner, src->owner);
        }
        hdi_route route = hdi_route_plan(&facts);
        hdi_device *device = rt->devices[route.device];
        switch (route.kind) {
        case HDI_ROUTE_TO_DEVICE:
            status = submit_copy(device->lane_in, HDI_COPY_TO_DEVICE, to, dst_offset, from, src_offset, bytes,
                                 "hd_copy", &ticket);
            break;
        case HDI_ROUTE_TO_HOST:
            status = submit_copy(device->lane_out, HDI_COPY_TO_HOST, to, dst_offset, from, src_offset, bytes, "hd_copy",
                                 &ticket);
            break;
        case HDI_ROUTE_ON_DEVICE:
        case HDI_ROUTE_PEER:
            status = submit_copy(device->lane_on, HDI_COPY_ON_DEVICE, to, dst_offset, from, src_offset, bytes,
                                 "hd_copy", &ticket);
            break;
        case HDI_ROUTE_HOST:
            status = submit_copy(hdi_any_device(rt)->lane_on, HDI_COPY_HOST, to, dst_offset, from, src_offset, bytes,
                                 "hd_copy", &ticket);
            break;
        case HDI_ROUTE_STAGED:
            status = copy_staged(rt, to, dst_offset, from, src_offset, bytes, &ticket);
            break;
        }
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_fill(hd_buffer *handle, size_t offset, uint32_t pattern, size_t bytes, hd_ticket *out)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, "hd_fill", &b);
    if (status) {
        return status;
    }
    if (offset % 4 || bytes % 4) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_fill: offset %zu and bytes %zu must be multiples of 4", offset, bytes);
    }
    hd_ticket ticket = {NULL, 0};
    if (bytes) {
        hdi_device *device = b->owner == HDI_OWNER_HOST ? hdi_any_device(b->runtime) : b->runtime->devices[b->owner];
        hdi_use use = {.buffer = b,
                       .losses = hdi_buffer_losses(b),
                       .word = hdi_self_word(handle),
                       .low = offset,
                       .high = offset + bytes,
                       .write = true};
        if (use.losses == HDI_LOST) {
            return hdi_buffer_refused(handle, "hd_fill");
        }
        hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
        command.fill.dst = b->address + offset;
        command.fill.words = bytes / 4;
        command.fill.pattern = pattern;
        status = hdi_submit(device->lane_on, &use, 1, &command, "hd_fill", &ticket);
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}
