/* copy.c - hd_copy, hd_copy_box and hd_fill: bytes along the planned route.
 *
 * Threads: any.
 * Locks: none of its own; submitting takes order locks.
 * Blocking: as hdi_submit; a staged copy also waits for chunks (ring.h).
 * Always: every part is an operation of its own in a copy lane. The buffers' use records alone order it against other work.
 * A part also comes after the part before it, and fails with it. So the last part's ticket stands for the whole transfer.
 */
#include <heddle/copy.h>

#include "base/error.h"
#include "transfer/route.h"
#include "transfer/transfer.h"

hd_status hdi_copy_alive(hd_lane *lane)
{
    bool lost = hdi_device_lost(lane->device);
    return lost ? hdi_lane_refuses(lane) : HD_OK;
}

/* ---- one operation ---- */

hd_status hdi_rows_submit(hd_lane *lane, uint16_t kind, const hdi_side *to, const hdi_side *from, uint64_t row,
                          uint64_t rows, hdi_point *after, hd_ticket *out)
{
    struct hd_buffer *dst = to->place.buffer, *src = from->place.buffer;
    if (to->pitch == row && from->pitch == row) {
        row *= rows;
        rows = 1;
    }
    hdi_use uses[2] = {
        {.buffer = src,
         .losses = from->place.losses,
         .word = from->place.word,
         .low = from->low,
         .high = from->high,
         .read = true,
         .whole = from->high - from->low == src->bytes},
        {.buffer = dst,
         .losses = to->place.losses,
         .word = to->place.word,
         .low = to->low,
         .high = to->high,
         .read = to->keeps,
         .write = true,
         .whole = to->high - to->low == dst->bytes},
    };
    if (to->place.losses == HDI_LOST || from->place.losses == HDI_LOST) {
        struct hd_buffer *lost = to->place.losses == HDI_LOST ? dst : src;
        return hdi_loss_fail(lost->runtime, lost->owner, "a buffer's content was lost meanwhile");
    }
    hdi_command command = {.op = rows == 1 ? HDI_OP_COPY : HDI_OP_COPY_BOX, .kind = kind, .slots = 1};
    /* Pinned memory has the address that the engine uses, which is not the program's. */
    if (rows == 1) {
        command.copy.src = src->address + from->at;
        command.copy.dst = dst->address + to->at;
        command.copy.bytes = row;
    } else {
        command.box.src = src->address + from->at;
        command.box.dst = dst->address + to->at;
        command.box.src_pitch = from->pitch;
        command.box.dst_pitch = to->pitch;
        command.box.row = row;
        command.box.rows = rows;
    }
    /* From the second part on the call does not fail with an earlier part's failure: content and ticket have it. */
    unsigned ours = after->position ? 3 : (unsigned)from->ours;
    hd_status status = hdi_submit_linked(lane, uses, 2, &command, (hdi_linked){.after = *after, .ours = ours}, out);
    if (!status) {
        *after = hdi_ticket_point(*out);
    }
    return status;
}

hd_status hdi_copy_submit(hd_lane *lane, uint8_t kind, hdi_place to, uint64_t dst_offset, hdi_place from,
                          uint64_t src_offset, uint64_t bytes, hd_ticket *out)
{
    const hdi_side dst = {.place = to, .at = dst_offset, .low = dst_offset, .high = dst_offset + bytes};
    const hdi_side src = {.place = from, .at = src_offset, .low = src_offset, .high = src_offset + bytes};
    hdi_point after = {0, 0};
    hd_ticket ticket;
    hd_status status = hdi_rows_submit(lane, kind, &dst, &src, bytes, 1, &after, &ticket);
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

/* ---- all parts ---- */

hdi_side hdi_transfer_to(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->to, .at = t->dst_offset + part->dst, .pitch = part->dst_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->dst_offset;
    side.high = one_row ? side.at + part->row : t->dst_offset + t->box->dst_span;
    side.keeps = t->box->dst_span != t->box->bytes;
    return side;
}

hdi_side hdi_transfer_from(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->from, .at = t->src_offset + part->src, .pitch = part->src_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->src_offset;
    side.high = one_row ? side.at + part->row : t->src_offset + t->box->src_span;
    return side;
}

static hd_status run_straight(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
{
    hd_runtime *rt = t->to.buffer->runtime;
    hdi_device *device = route->kind == HDI_ROUTE_HOST ? hdi_any_device(rt) : rt->devices[route->device];
    hdi_way way = route->kind == HDI_ROUTE_TO_DEVICE ? HDI_WAY_IN
                  : route->kind == HDI_ROUTE_TO_HOST ? HDI_WAY_OUT
                  : route->kind == HDI_ROUTE_PEER    ? HDI_WAY_PEER
                                                     : HDI_WAY_ON;
    uint16_t kind = route->kind == HDI_ROUTE_TO_DEVICE ? HDI_COPY_TO_DEVICE
                    : route->kind == HDI_ROUTE_TO_HOST ? HDI_COPY_TO_HOST
                    : route->kind == HDI_ROUTE_HOST    ? HDI_COPY_HOST
                    : route->kind == HDI_ROUTE_PEER    ? HDI_COPY_PEER
                                                       : HDI_COPY_ON_DEVICE;
    hd_lane *lane = hdi_copy_lane(device, way, route->lanes);
    hdi_walk walk = hdi_walk_begin(t->box, route->piece, HDI_WALK_BOTH);
    if (t->box->dims == 0 && t->box->bytes > route->piece) {
        kind |= HDI_COPY_AWAITED; /* other operations may wait for a single part */
    }
    hdi_point after = t->after;
    hd_status status = HD_OK;
    for (hdi_part part; !status && hdi_walk_next(&walk, route->piece, &part);) {
        hdi_side to = hdi_transfer_to(t, &part), from = hdi_transfer_from(t, &part);
        status = hdi_rows_submit(lane, kind, &to, &from, part.row, part.rows, &after, out);
    }
    return status;
}

hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out)
{
    hd_runtime *rt = t->to.buffer->runtime;
    /* Read once: another buffer may take over a structure, which submitting detects. */
    hdi_route_facts facts = {.src = t->from.buffer->owner, .dst = t->to.buffer->owner, .bytes = t->box->bytes};
    if (facts.src >= 0 && facts.dst >= 0 && facts.src != facts.dst) {
        int by = hdi_peer_access_between(rt, facts.src, facts.dst);
        facts.src_to_dst = by == facts.src ? HDI_LINK_GOOD : HDI_LINK_NONE;
        facts.dst_to_src = by == facts.dst ? HDI_LINK_GOOD : HDI_LINK_NONE;
    }
    hdi_route route = hdi_route_plan(&facts);
    return route.kind == HDI_ROUTE_STAGED ? hdi_transfer_staged(t, &route, out) : run_straight(t, &route, out);
}

/* ---- the program's calls ---- */

/* Checks both handles, and the range of bytes in either buffer. */
static inline __attribute__((always_inline)) hd_status check_both(hd_buffer *dst_handle, size_t dst_offset,
                                                                  size_t dst_bytes, hd_buffer *src_handle,
                                                                  size_t src_offset, size_t src_bytes, hdi_transfer *t)
{
    struct hd_buffer *dst = NULL, *src = NULL;
    hd_status status = hdi_buffer_check(dst_handle, dst_offset, dst_bytes, &dst);
    if (status) {
        return hdi_fail_about(status, "dst");
    }
    status = hdi_buffer_check(src_handle, src_offset, src_bytes, &src);
    if (status) {
        return hdi_fail_about(status, "src");
    }
    if (dst->runtime != src->runtime) {
        return hdi_fail(HD_ERROR_HANDLE, "the buffers belong to different runtimes");
    }
    t->to = hdi_place_of_handle(dst, dst_handle);
    t->from = hdi_place_of_handle(src, src_handle);
    t->dst_offset = dst_offset;
    t->src_offset = src_offset;
    return HD_OK;
}

hd_status hd_copy(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, size_t bytes, hd_ticket *out)
{
    HDI_INSIDE_BRIEFLY(hdi_buffer_runtime(dst));
    hdi_box box = hdi_box_of_bytes(bytes);
    hdi_transfer t = {.box = &box};
    hd_status status = check_both(dst, dst_offset, bytes, src, src_offset, bytes, &t);
    if (status) {
        return status;
    }
    if (t.to.buffer == t.from.buffer && hdi_box_overlaps(&box, dst_offset, src_offset)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "bytes %zu..%zu and %zu..%zu of one buffer overlap", src_offset,
                        src_offset + bytes, dst_offset, dst_offset + bytes);
    }
    hd_ticket ticket = {NULL, 0};
    status = bytes ? hdi_transfer_run(&t, &ticket) : HD_OK;
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_copy_box(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, const hd_box *shape,
                      hd_ticket *out)
{
    HDI_INSIDE_BRIEFLY(hdi_buffer_runtime(dst));
    hdi_box box;
    hdi_transfer t = {.box = &box};
    hd_status status = hdi_box_make(shape, &box);
    status = status ? status : check_both(dst, dst_offset, box.dst_span, src, src_offset, box.src_span, &t);
    if (status) {
        return status;
    }
    if (t.to.buffer == t.from.buffer && hdi_box_overlaps(&box, dst_offset, src_offset)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "rows in bytes %zu..%zu and %zu..%zu of one buffer overlap", src_offset,
                        src_offset + (size_t)box.src_span, dst_offset, dst_offset + (size_t)box.dst_span);
    }
    hd_ticket ticket = {NULL, 0};
    status = box.bytes ? hdi_transfer_run(&t, &ticket) : HD_OK;
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_fill(hd_buffer *handle, size_t offset, uint32_t pattern, size_t bytes, hd_ticket *out)
{
    HDI_INSIDE_BRIEFLY(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, &b);
    if (status) {
        return status;
    }
    if (offset % 4 || bytes % 4) {
        return hdi_fail(HD_ERROR_ARGUMENT, "offset %zu and bytes %zu must be multiples of 4", offset, bytes);
    }
    hd_ticket ticket = {NULL, 0};
    if (bytes) {
        int owner = b->owner; /* read once: another buffer may take over the structure, which submitting detects */
        hdi_device *device = owner == HDI_OWNER_HOST ? hdi_any_device(b->runtime) : b->runtime->devices[owner];
        hdi_use use = {.buffer = b,
                       .losses = hdi_buffer_losses(b),
                       .word = hdi_self_word(handle),
                       .low = offset,
                       .high = offset + bytes,
                       .write = true,
                       .whole = bytes == b->bytes};
        if (use.losses == HDI_LOST) {
            return hdi_buffer_refused(handle);
        }
        hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
        command.fill.dst = b->address + offset;
        command.fill.words = bytes / 4;
        command.fill.pattern = pattern;
        hdi_route_lanes lanes = bytes <= HDI_QUICK_MEMORY ? HDI_LANES_QUICK : HDI_LANES_BULK;
        status = hdi_submit(hdi_copy_lane(device, HDI_WAY_ON, lanes), &use, 1, &command, &ticket);
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}
