/* copy.c - hd_copy, hd_copy_box and hd_fill, which move bytes along the planned route.
 *
 * A staged copy goes from one device to another through pinned chunks.
 * Each part of the copy takes two operations. The first one copies from the source into a chunk, in
 * a lane of the source's device. The second one copies from the chunk to the destination, in a lane
 * of the destination's device. The call submits the operations of all parts without waiting for
 * earlier parts to finish. The first operation of a part waits for the earlier use of its chunk,
 * and the second operation waits for the first one. Both operations wait in their lanes, so the
 * call does not wait even with few chunks.
 *
 * Threads: any.
 * Locks: this file has no lock; a submission takes order locks.
 * Blocking: a call waits as hdi_submit does. A staged copy also waits for chunks (staging.h).
 * Always: a part is one operation in a lane of the library, or two if the copy is staged. The order
 * between a part and other work follows only from the use records of the buffers. Each part runs
 * after the part before it, and fails if that part fails. So the ticket of the last part stands for
 * the whole transfer.
 * When a thread gives a chunk back, even after a failure, it records the last operation that uses
 * the chunk. Each operation counts as a use of the whole chunk, so that the chunk's use record
 * stays one segment.
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

/* Submits an operation that copies `rows` rows (hdi_submit_linked). The operation runs after the
 * operation *after. On success, *after becomes the point of the new operation. `kind`: HDI_COPY_*,
 * with flags.
 * Errors: as hdi_submit. */
static hd_status copy_submit_rows(hd_lane *lane, uint16_t kind, const hdi_side *to, const hdi_side *from, uint64_t row,
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
    /* The command gets `address`, the address as devices see it. For pinned memory the program's
     * address may differ. */
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
    /* If an earlier part failed, this call still succeeds, but the destination's content and the
     * ticket fail. */
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
    hd_status status = copy_submit_rows(lane, kind, &dst, &src, bytes, 1, &after, &ticket);
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

/* The flags for a copy whose end other lanes wait for. They ask the engine for an event behind the
 * copy. Engines in other processes cannot use the event, but wait for the lane's `done`. So with
 * worker processes the copy also gets HDI_COPY_FLAG, which publishes `done`. */
static uint16_t copy_awaited(const hd_runtime *rt)
{
    return rt->is_process ? HDI_COPY_EVENT | HDI_COPY_FLAG : HDI_COPY_EVENT;
}

/* ---- all parts ---- */

/* The sides of a part. If the box is one run of bytes, a part counts as a use of its own bytes
 * only. Otherwise each part counts as a use of the whole box. */
static hdi_side transfer_side_to(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->to, .at = t->dst_offset + part->dst, .pitch = part->dst_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->dst_offset;
    side.high = one_row ? side.at + part->row : t->dst_offset + t->box->dst_span;
    side.keeps = t->box->dst_span != t->box->bytes;
    return side;
}

static hdi_side transfer_side_from(const hdi_transfer *t, const hdi_part *part)
{
    hdi_side side = {.place = t->from, .at = t->src_offset + part->src, .pitch = part->src_pitch};
    bool one_row = t->box->dims == 0;
    side.low = one_row ? side.at : t->src_offset;
    side.high = one_row ? side.at + part->row : t->src_offset + t->box->src_span;
    return side;
}

static inline __attribute__((always_inline)) hd_status transfer_run_straight(const hdi_transfer *t,
                                                                             const hdi_route *route, hd_ticket *out)
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
        kind |= copy_awaited(rt); /* a later operation may depend on only one of the parts */
    }
    hdi_point after = t->after;
    hd_status status = HD_OK;
    for (hdi_part part; !status && hdi_walk_next(&walk, route->piece, &part);) {
        hdi_side to = transfer_side_to(t, &part), from = transfer_side_from(t, &part);
        status = copy_submit_rows(lane, kind, &to, &from, part.row, part.rows, &after, out);
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
        hdi_side outside = to_host ? transfer_side_from(t, part) : transfer_side_to(t, part);
        /* If the rows have the same pitch in the chunk and in the source, the whole part is copied
         * as one row. That row includes the bytes between the rows. */
        bool at_once = to_host && part->pitch == part->src_pitch;
        uint64_t row = at_once ? hdi_part_room(part) : part->row;
        uint64_t rows = at_once ? 1 : part->rows;
        /* The other half of the copy waits for the last operation of this half. The next use of the
         * chunk waits for the same operation. */
        uint16_t kind = (to_host ? HDI_COPY_TO_HOST : HDI_COPY_TO_DEVICE) |
                        (i == load->n - 1 ? copy_awaited(lane->device->runtime) : 0);
        status = copy_submit_rows(lane, kind, to_host ? &inside : &outside, to_host ? &outside : &inside, row, rows,
                                  after, last);
    }
    return status;
}

/* A transfer through pinned chunks. If its copies wait for work of the program, the transfer keeps
 * up to STAGED_OWN chunks, and uses them in turn. So the parts overlap in time, and other transfers
 * can use the rest of the pool. */
#define STAGED_OWN 3

typedef struct staged {
    const hdi_transfer *t;
    hd_runtime *rt;
    /* the owners that the plan used; stored here, since another thread may free the buffers */
    int src, dst;
    hd_lane *lane_out, *lane_in;
    int64_t deadline;
    hdi_staging *pool;
    uint64_t bytes; /* of a chunk */
    hdi_chunk *own[STAGED_OWN];
    unsigned n_own, turn;
} staged;

/* Gets a chunk for a transfer that waits for work of the program, although the pool is short.
 * *counted, *chunk and errors: as hdi_staging_await_apart. */
static hd_status staged_take_apart(const staged *s, bool *counted, hdi_chunk **chunk)
{
    const hdi_transfer *t = s->t;
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
    return hdi_staging_await_apart(s->pool, s->lane_out, uses, 2, s->deadline, counted, chunk);
}

/* Gets a chunk for the next part. A transfer that keeps chunks does not wait for further chunks, so
 * no two transfers wait for each other. */
static hd_status staged_take(staged *s, hdi_chunk **chunk)
{
    *chunk = NULL;
    s->pool = s->n_own ? s->pool : hdi_staging_between(s->rt, s->src, s->dst, s->bytes);
    if (!s->pool) {
        return HD_ERROR_HOST_MEMORY;
    }
    bool counted = hdi_staging_count(s->pool);
    bool is_short = !counted || hdi_staging_is_short(s->pool);
    hd_status status = HD_OK;
    if (s->n_own) {
        if (!is_short && s->n_own < STAGED_OWN) {
            hdi_staging_take(s->pool, HDI_STAGING_NOW, 0, chunk);
        }
        *chunk = *chunk ? *chunk : s->own[s->turn++ % s->n_own];
    } else {
        status = is_short ? staged_take_apart(s, &counted, chunk) : HD_OK;
        status = status || *chunk ? status : hdi_staging_await(s->pool, HDI_STAGING_IN_USE, s->deadline, chunk);
    }
    if (counted) {
        hdi_staging_count_chunk(s->pool, status ? NULL : *chunk);
    }
    return status;
}

static bool staged_owns(const staged *s, const hdi_chunk *chunk)
{
    bool found = false;
    for (unsigned i = 0; i < s->n_own && !found; i++) {
        found = s->own[i] == chunk;
    }
    return found;
}

/* Gives a chunk back, or keeps it for a later part. Call it after the submission of the part that
 * uses the chunk, even if the submission failed. */
static void staged_give(staged *s, hdi_chunk *chunk, hdi_point use, bool more)
{
    chunk->last = use.position ? use : chunk->last;
    if (staged_owns(s, chunk)) {
        return;
    }
    if (more && s->n_own < STAGED_OWN && hdi_point_is_parked(s->rt, chunk->last)) {
        s->own[s->n_own++] = chunk;
    } else {
        hdi_staging_give(s->pool, chunk, chunk->last, false);
    }
}

static void staged_end(staged *s)
{
    for (unsigned i = 0; i < s->n_own; i++) {
        hdi_staging_give(s->pool, s->own[i], s->own[i]->last, false);
    }
}

/* Chooses the lanes of both halves. Errors: as hdi_copy_alive. */
static hd_status staged_begin(staged *s, const hdi_route *route)
{
    hd_status status = hdi_copy_alive(s->rt->devices[s->src]->lane_out);
    status = status ? status : hdi_copy_alive(s->rt->devices[s->dst]->lane_in);
    if (status) {
        return status;
    }
    bool own = route->lanes == HDI_LANES_PAIR;
    s->lane_out = own ? hdi_pair_lane_out(s->rt, s->src, s->dst)
                      : hdi_copy_lane(s->rt->devices[s->src], HDI_WAY_OUT, HDI_LANES_QUICK);
    s->lane_in = own ? hdi_pair_lane_in(s->rt, s->src, s->dst)
                     : hdi_copy_lane(s->rt->devices[s->dst], HDI_WAY_IN, HDI_LANES_QUICK);
    s->deadline = hdi_option_deadline(s->rt->options.transfer_timeout);
    s->bytes = route->chunk;
    return HD_OK;
}

/* Copies along the route STAGED. */
static hd_status __attribute__((noinline))
transfer_run_staged(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
{
    staged s = {.t = t, .rt = t->to.buffer->runtime, .src = route->device, .dst = route->second};
    hd_status status = staged_begin(&s, route);
    if (status) {
        return status;
    }
    hdi_attempt attempt; /* drops the error message for large chunks if smaller chunks succeed */
    hdi_attempt_begin(&attempt);
    uint64_t piece = route->piece;
    hdi_walk walk = hdi_walk_begin(t->box, piece, HDI_WALK_BOTH | HDI_WALK_GAPS);
    hdi_point after_out = {0, 0}, after_in = t->after;
    while (!status && !walk.ended) {
        hdi_chunk *chunk;
        status = staged_take(&s, &chunk);
        /* If there is no memory for large chunks, there may still be memory for smaller ones. */
        if (status == HD_ERROR_HOST_MEMORY && s.bytes > HDI_STAGED_SMALL) {
            bool large = s.bytes > HDI_STAGED_MEDIUM;
            s.bytes = piece = walk.piece = large ? HDI_STAGED_MEDIUM : HDI_STAGED_SMALL;
            status = HD_OK;
            continue;
        }
        if (status) {
            break;
        }
        hdi_load load;
        hdi_load_next(&load, &walk, piece);
        hd_ticket last = {NULL, 0};
        status = hdi_load_submit(s.lane_out, true, t, &load, chunk->buffer, &after_out, &last);
        status = status ? status : hdi_load_submit(s.lane_in, false, t, &load, chunk->buffer, &after_in, &last);
        staged_give(&s, chunk, hdi_ticket_point(last), !status && !walk.ended);
        *out = last;
    }
    staged_end(&s);
    return hdi_attempt_result(&attempt, status);
}

/* Both callers inline this function. So without a trace, a copy ends in a tail call, which saves 20
 * instructions that would check the status. */
static inline __attribute__((always_inline)) hd_status transfer_run_route(const hdi_transfer *t, const hdi_route *route,
                                                                          hd_ticket *out)
{
    if (__builtin_expect(route->kind != HDI_ROUTE_STAGED, 1)) {
        return transfer_run_straight(t, route, out);
    }
    return transfer_run_staged(t, route, out);
}

static hd_status __attribute__((noinline, cold))
transfer_run_recorded(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
{
    static const uint8_t ways[] = {
        [HDI_ROUTE_TO_DEVICE] = HDI_RECORD_WAY_TO_DEVICE, [HDI_ROUTE_TO_HOST] = HDI_RECORD_WAY_TO_HOST,
        [HDI_ROUTE_ON_DEVICE] = HDI_RECORD_WAY_ON_DEVICE, [HDI_ROUTE_PEER] = HDI_RECORD_WAY_PEER,
        [HDI_ROUTE_STAGED] = HDI_RECORD_WAY_STAGED,       [HDI_ROUTE_HOST] = HDI_RECORD_WAY_HOST,
    };
    int64_t began = hdi_record_now(&t->to.buffer->runtime->recorder);
    hd_status status = transfer_run_route(t, route, out);
    if (!status) {
        hdi_buffer_record_transfer(ways[route->kind], t->from.buffer, t->to.buffer, t->box->bytes, began, *out);
    }
    return status;
}

hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out)
{
    /* The owners are read only once. If another thread frees a buffer, another buffer may get its
     * structure. The submission notices this. */
    hdi_route_facts facts = {.src = t->from.buffer->owner, .dst = t->to.buffer->owner, .bytes = t->box->bytes};
    if (facts.src >= 0 && facts.dst >= 0 && facts.src != facts.dst) {
        int by = hdi_buffers_access_between(t->from.buffer, facts.src, t->to.buffer, facts.dst);
        facts.src_to_dst = by == facts.src ? HDI_LINK_GOOD : HDI_LINK_NONE;
        facts.dst_to_src = by == facts.dst ? HDI_LINK_GOOD : HDI_LINK_NONE;
    }
    hdi_route route = hdi_route_plan(&facts);
    if (hdi_records(&t->to.buffer->runtime->recorder)) {
        return transfer_run_recorded(t, &route, out);
    }
    return transfer_run_route(t, &route, out);
}

/* ---- the program's calls ---- */

/* Checks both handles, and the range of bytes in either buffer. */
static inline __attribute__((always_inline)) hd_status transfer_check_both(hd_buffer *dst_handle, size_t dst_offset,
                                                                           size_t dst_bytes, hd_buffer *src_handle,
                                                                           size_t src_offset, size_t src_bytes,
                                                                           hdi_transfer *t)
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
    hd_status status = transfer_check_both(dst, dst_offset, bytes, src, src_offset, bytes, &t);
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
    status = status ? status : transfer_check_both(dst, dst_offset, box.dst_span, src, src_offset, box.src_span, &t);
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
        /* The owner is read only once. If another thread frees the buffer, another buffer may get
         * its structure. The submission notices this. */
        int owner = b->owner;
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
