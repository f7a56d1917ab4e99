/* staged.c - copies from one device to another through pinned chunks, and how parts share a chunk.
 *
 * The first half of a part goes out of the source into a chunk, in a lane of the source's device.
 * The second half goes out of the chunk into the destination, in a lane of the destination's device.
 * All is submitted at once. In its lane, a second half waits for its first half, and a first half for the earlier use of its chunk.
 * So the copy is asynchronous however few chunks there are.
 *
 * Threads: any.
 * Locks: none of its own.
 * Blocking: for a chunk, see staging.h.
 * Always: a chunk is given back with the point of the last operation that uses it, also on failure. An operation uses its chunk as a whole, so
 * one segment of its use record is enough.
 */
#include "base/error.h"
#include "transfer/transfer.h"

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
        hdi_side outside = to_host ? hdi_transfer_from(t, part) : hdi_transfer_to(t, part);
        /* Where the chunk has the same pitch as the source, one row has all, with the bytes between the rows. */
        bool at_once = to_host && part->pitch == part->src_pitch;
        uint64_t row = at_once ? hdi_part_room(part) : part->row;
        uint64_t rows = at_once ? 1 : part->rows;
        /* The other half, and the next use of the chunk, wait for the last operation. */
        uint16_t kind = (to_host ? HDI_COPY_TO_HOST : HDI_COPY_TO_DEVICE) | (i == load->n - 1 ? HDI_COPY_AWAITED : 0);
        status = hdi_rows_submit(lane, kind, to_host ? &inside : &outside, to_host ? &outside : &inside, row, rows,
                                 after, last);
    }
    return status;
}

hd_status hdi_transfer_staged(const hdi_transfer *t, const hdi_route *route, hd_ticket *out)
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
    while (!status && !walk.ended) {
        hdi_chunk *chunk;
        hdi_staging *pool = hdi_staging_between(rt, src, dst, now.chunk);
        status = pool ? hdi_staging_await(pool, HDI_STAGING_IN_USE, deadline, &chunk) : HD_ERROR_HOST_MEMORY;
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
        hdi_staging_give(pool, chunk, use.position ? use : chunk->last, false);
        *out = last;
    }
    return hdi_attempt_result(&attempt, status);
}
