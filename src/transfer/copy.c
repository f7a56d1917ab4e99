/* copy.c - hd_copy, hd_copy_box and hd_fill: bytes along the planned route.
 *
 * A staged copy goes from one device to another through pinned chunks.
 * The first half of a part goes out of the source into a chunk, in a lane of the source's device.
 * The second half goes out of the chunk into the destination, in a lane of the destination's device.
 * All is submitted at once. In its lane, a second half waits for its first half, and a first half for the earlier use of its chunk.
 * So the copy is asynchronous however few chunks there are.
 *
 * Threads: any.
 * Locks: none of its own; submitting takes order locks.
 * Blocking: as hdi_submit; a staged copy also waits for chunks (staging.h).
 * Always: every part is an operation of its own in a copy lane. The buffers' use records alone order it against other work.
 * A part also comes after the part before it, and fails with it. So the last part's ticket stands for the whole transfer.
 * A chunk is given back with the point of the last operation that uses it, also on failure. An operation uses its chunk as a whole, so
 * one segment of its use record is enough.
 */
#include <heddle/copy.h>
#include "base/error.h"
#include "buffer/recorded.h"
#include "buffer/parked.h"
#include "transfer/transfer.h"

hd_status hdi_copy_alive(hd_lane *lane)
{
    bool lost = hdi_device_lost(lane->device);
    return lost ? hdi_lane_refuses(lane) : HD_OK;
}

/* ---- one operation ---- */

/* hdi_submit_linked for the operation that copies `rows` rows. *after becomes its point. `kind`: HDI_COPY_*, with flags. Errors: as
 * hdi_submit. */
static hd_status submit_rows(hd_lane *lane, uint16_t kind, const hdi_side *to, const hdi_side *from, uint64_t row,
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
    hd_status status = submit_rows(lane, kind, &dst, &src, bytes, 1, &after, &ticket);
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

/* ---- all parts ---- */

/* The sides of a part. A part of a box of neighbouring bytes counts as use of its own bytes, any other part as use of the whole box. */
static hdi_side side_to(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->to, .at = t->dst_offset + part->dst, .pitch = part->dst_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->dst_offset;
    side.high = one_row ? side.at + part->row : t->dst_offset + t->box->dst_span;
    side.keeps = t->box->dst_span != t->box->bytes;
    return side;
}

static hdi_side side_from(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->from, .at = t->src_offset + part->src, .pitch = part->src_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->src_offset;
    side.high = one_row ? side.at + part->row : t->src_offset + t->box->src_span;
    return side;
}

static inline __attribute__((always_inline)) hd_status run_straight(const hdi_transfer *t, const hdi_route *route,
                                                                    hd_ticket *out)
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
        hdi_side to = side_to(t, &part), from = side_from(t, &part);
        status = submit_rows(lane, kind, &to, &from, part.row, part.rows, &after, out);
    }
    return status;
}

bool hdi_load_next(hdi_load *load, hdi_walk *walk, uint64_t room)
{
    load->n = 0;
    load->bytes = 0;
    while (load->n < HDI_LOAD_PARTS && hdi_walk_next(walk, room - load->bytes, &load->part[load->n])) {
        load->at[load->n] = load->bytes;
        load->bytes += hdi_part_room(&load->part[load->n++]);
    }
    return load->n != 0;
}

hd_status hdi_load_submit(hd_lane *lane, bool to_host, const hdi_transfer *t, const hdi_load *load,
                          struct hd_buffer *chunk, hdi_point *after, hd_ticket *last)
{
    hd_status status = HD_OK;
    for (int i = 0; i < load->n && !status; i++) {
        const hdi_part *part = &load->part[i];
        const hdi_side inside = {.place = hdi_place_of(chunk),
                                 .at = load->at[i],
                                 .pitch = part->pitch,
                                 .high = chunk->bytes,
                                 .ours = !to_host};
        hdi_side outside = to_host ? side_from(t, part) : side_to(t, part);
        /* Where the chunk has the same pitch as the source, one row has all, with the bytes between the rows. */
        bool at_once = to_host && part->pitch == part->src_pitch;
        uint64_t row = at_once ? hdi_part_room(part) : part->row;
        uint64_t rows = at_once ? 1 : part->rows;
        /* The other half, and the next use of the chunk, wait for the last operation. */
        uint16_t kind = (to_host ? HDI_COPY_TO_HOST : HDI_COPY_TO_DEVICE) | (i == load->n - 1 ? HDI_COPY_AWAITED : 0);
        status =
            submit_rows(lane, kind, to_host ? &inside : &outside, to_host ? &outside : &inside, row, rows, after, last);
    }
    return status;
}

/* Whether a part that uses all of the box would be parked on one of its sides. */
static hd_status is_parked(const hdi_transfer *t, hd_lane *lane_out, hd_lane *lane_in, bool *parked)
{
    const hdi_use uses[2] = {
        {.buffer = t->from.buffer,
         .losses = t->from.losses,
         .word = t->from.word,
         .low = t->src_offset,
         .high = t->src_offset + t->box->src_span,
         .read = true},
        {.buffer = t->to.buffer,
         .losses = t->to.losses,
         .word = t->to.word,
         .low = t->dst_offset,
         .high = t->dst_offset + t->box->dst_span,
         .write = true},
    };
    hdi_point claim;
    hd_status status = hdi_submit_probe(lane_out, &uses[0], 1, &claim);
    *parked = claim.position != 0;
    if (!status && !*parked) {
        status = hdi_submit_probe(lane_in, &uses[1], 1, &claim);
        *parked = claim.position != 0;
    }
    return status;
}

/* A chunk for a part of the box. Where claims have set apart as many as may be, a part that would be parked, too, takes one of those. So it waits for
 * other claims, and leaves the rest of the pool alone. */
static hd_status take_chunk(const hdi_transfer *t, hdi_staging *pool, hd_lane *lane_out, hd_lane *lane_in,
                            int64_t deadline, hdi_chunk **chunk)
{
    bool parked = false;
    hd_status status =
        __builtin_expect(hdi_staging_is_short(pool), 0) ? is_parked(t, lane_out, lane_in, &parked) : HD_OK;
    *chunk = parked ? hdi_staging_take_parked(pool) : NULL;
    return status || *chunk ? status : hdi_staging_await(pool, HDI_STAGING_IN_USE, deadline, chunk);
}

/* The route STAGED. */
static hd_status __attribute__((noinline)) run_staged(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
{
    hd_runtime *rt = t->to.buffer->runtime;
    int src = route->device, dst = route->second; /* as planned: the buffers may be freed meanwhile */
    hd_status status = hdi_copy_alive(rt->devices[src]->lane_out);
    status = status ? status : hdi_copy_alive(rt->devices[dst]->lane_in);
    if (status) {
        return status;
    }
    bool own = route->lanes == HDI_LANES_PAIR;
    hd_lane *lane_out =
        own ? hdi_pair_lane_out(rt, src, dst) : hdi_copy_lane(rt->devices[src], HDI_WAY_OUT, HDI_LANES_QUICK);
    hd_lane *lane_in =
        own ? hdi_pair_lane_in(rt, src, dst) : hdi_copy_lane(rt->devices[dst], HDI_WAY_IN, HDI_LANES_QUICK);
    int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
    hdi_route now = *route;
    hdi_attempt attempt; /* with chunks of this size, before smaller ones */
    hdi_attempt_begin(&attempt);
    hdi_walk walk = hdi_walk_begin(t->box, now.piece, HDI_WALK_BOTH | HDI_WALK_GAPS);
    hdi_point after_out = {0, 0}, after_in = t->after;
    hdi_chunk *chunk = NULL; /* a transfer that is parked goes through one chunk */
    hdi_staging *pool = NULL;
    while (!status && !walk.ended) {
        if (!chunk) {
            pool = hdi_staging_between(rt, src, dst, now.chunk);
            status = pool ? take_chunk(t, pool, lane_out, lane_in, deadline, &chunk) : HD_ERROR_HOST_MEMORY;
        }
        if (status == HD_ERROR_HOST_MEMORY && now.chunk > HDI_STAGED_SMALL) { /* smaller chunks may still fit */
            bool large = now.chunk > HDI_STAGED_MEDIUM;
            now.chunk = now.piece = walk.piece = large ? HDI_STAGED_MEDIUM : HDI_STAGED_SMALL;
            status = HD_OK;
            continue;
        }
        if (status) {
            break;
        }
        hdi_load load;
        hdi_load_next(&load, &walk, now.piece);
        hd_ticket last = {NULL, 0};
        status = hdi_load_submit(lane_out, true, t, &load, chunk->buffer, &after_out, &last);
        status = status ? status : hdi_load_submit(lane_in, false, t, &load, chunk->buffer, &after_in, &last);
        hdi_point use = hdi_ticket_point(last);
        chunk->last = use.position ? use : chunk->last;
        *out = last;
        if (status || walk.ended || !hdi_point_is_parked(rt, chunk->last)) {
            hdi_staging_give(pool, chunk, chunk->last, false);
            chunk = NULL;
        }
    }
    return hdi_attempt_result(&attempt, status);
}

/* Inlined twice, since a tail call costs a copy without a trace 20 instructions less than a status to look at. */
static inline __attribute__((always_inline)) hd_status run(const hdi_transfer *t, const hdi_route *route,
                                                           hd_ticket *out)
{
    if (__builtin_expect(route->kind != HDI_ROUTE_STAGED, 1)) {
        return run_straight(t, route, out);
    }
    return run_staged(t, route, out);
}

static hd_status __attribute__((noinline, cold))
run_recorded(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
{
    static const uint8_t ways[] = {
        [HDI_ROUTE_TO_DEVICE] = HDI_RECORD_WAY_TO_DEVICE, [HDI_ROUTE_TO_HOST] = HDI_RECORD_WAY_TO_HOST,
        [HDI_ROUTE_ON_DEVICE] = HDI_RECORD_WAY_ON_DEVICE, [HDI_ROUTE_PEER] = HDI_RECORD_WAY_PEER,
        [HDI_ROUTE_STAGED] = HDI_RECORD_WAY_STAGED,       [HDI_ROUTE_HOST] = HDI_RECORD_WAY_HOST,
    };
    int64_t began = hdi_record_now(&t->to.buffer->runtime->recorder);
    hd_status status = run(t, route, out);
    if (!status) {
        hdi_record_transfer(ways[route->kind], t->from.buffer, t->to.buffer, t->box->bytes, began, *out);
    }
    return status;
}

hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out)
{
    /* Read once: another buffer may take over a structure, which submitting detects. */
    hdi_route_facts facts = {.src = t->from.buffer->owner, .dst = t->to.buffer->owner, .bytes = t->box->bytes};
    if (facts.src >= 0 && facts.dst >= 0 && facts.src != facts.dst) {
        int by = hdi_buffers_access_between(t->from.buffer, facts.src, t->to.buffer, facts.dst);
        facts.src_to_dst = by == facts.src ? HDI_LINK_GOOD : HDI_LINK_NONE;
        facts.dst_to_src = by == facts.dst ? HDI_LINK_GOOD : HDI_LINK_NONE;
    }
    hdi_route route = hdi_route_plan(&facts);
    if (hdi_records(&t->to.buffer->runtime->recorder)) {
        return run_recorded(t, &route, out);
    }
    return run(t, &route, out);
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
