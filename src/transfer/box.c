/* box.c - boxes: reduces a box to numbers, walks through it, and copies it between the program's
 * memory and a buffer.
 *
 * hd_write_box and hd_read_box copy through chunks of pinned memory. Processors copy the program's
 * rows into a chunk (gather), or a chunk into the program's rows (scatter). A device copies between
 * the chunk and the buffer's rows.
 *
 * Threads: any; the threads of copy_pool.h share the rows of a chunk.
 * Locks: this file has no lock.
 * Blocking: hd_write_box waits for pinned chunks in use. hd_read_box waits until the bytes have
 * arrived. For a pinned buffer, both calls wait for the work on the buffer.
 * Always: a thread gives a chunk back with the point of the last operation that uses the chunk,
 * also on failure. In a destination, only the rows of the box change.
 */
#include <heddle/copy.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/buffer.h"
#include "buffer/recorded.h"
#include "transfer/copy_pool.h"
#include "transfer/transfer.h"

/* ---- numbers and walks ---- */

/* Merges two neighbouring dimensions if their bytes follow each other without a gap, in the source
 * and in the destination. The function begins with the lowest dimensions, so a merged dimension may
 * also merge with the next one. */
static void box_join_dims(hdi_box *b)
{
    int kept = 0;
    for (int i = 0; i < b->dims; i++) {
        if (kept == 0 && b->dst[i] == b->row && b->src[i] == b->row) {
            b->row *= b->count[i];
        } else if (kept > 0 && b->dst[i] == b->count[kept - 1] * b->dst[kept - 1] &&
                   b->src[i] == b->count[kept - 1] * b->src[kept - 1]) {
            b->count[kept - 1] *= b->count[i];
        } else {
            b->count[kept] = b->count[i];
            b->dst[kept] = b->dst[i];
            b->src[kept] = b->src[i];
            kept++;
        }
    }
    b->dims = kept;
}

/* Widens *span to `count` spans that lie `stride` bytes apart. False: the number of bytes
 * overflows. */
static bool box_widen_span(uint64_t *span, uint64_t count, uint64_t stride)
{
    uint64_t more;
    return !__builtin_mul_overflow(count - 1, stride, &more) && !__builtin_add_overflow(*span, more, span) &&
           *span <= INT64_MAX;
}

hd_status hdi_box_make(const hd_box *box, hdi_box *out)
{
    if (!box) {
        return hdi_fail(HD_ERROR_ARGUMENT, "box is null");
    }
    hd_box room;
    box = HDI_SIZED_IN(hd_box, box, &room);
    if (!box) {
        return HD_ERROR_ARGUMENT;
    }
    if (box->dims < 0 || box->dims > HD_BOX_DIMS) {
        return hdi_fail(HD_ERROR_ARGUMENT, "box.dims is %d, not 0 to %d", box->dims, HD_BOX_DIMS);
    }
    hdi_box b = hdi_box_of_bytes(box->row);
    bool empty = box->row == 0;
    for (int i = 0; i < box->dims; i++) {
        empty |= box->count[i] == 0;
    }
    if (empty) {
        *out = (hdi_box){0};
        return HD_OK;
    }
    bool fits = b.row <= INT64_MAX;
    for (int i = 0; i < box->dims && fits; i++) {
        if (box->count[i] == 1) {
            continue;
        }
        if (box->dst_stride[i] < b.dst_span) {
            return hdi_fail(
                HD_ERROR_ARGUMENT,
                "the box writes bytes twice: dst_stride[%d] is %zu, less than the %llu bytes that it repeats", i,
                box->dst_stride[i], (unsigned long long)b.dst_span);
        }
        b.count[b.dims] = box->count[i];
        b.dst[b.dims] = box->dst_stride[i];
        b.src[b.dims++] = box->src_stride[i];
        fits = box_widen_span(&b.dst_span, box->count[i], box->dst_stride[i]) &&
               box_widen_span(&b.src_span, box->count[i], box->src_stride[i]);
        /* the product cannot overflow: the destination's span is at least as large, and did not
         * overflow */
        b.bytes *= box->count[i];
    }
    if (!fits) {
        return hdi_fail(HD_ERROR_RANGE, "the box spans more bytes than can be addressed");
    }
    box_join_dims(&b);
    *out = b;
    return HD_OK;
}

/* Compares the rows in the lowest `dims` dimensions. True if a row of the source and a row of the
 * destination share bytes. `apart`: the distance in bytes between the first byte of the source and
 * of the destination in these dimensions. The stride of each dimension is at least the span of all
 * lower dimensions. So in each dimension at most two differences of the rows' indices can make the
 * rows meet. */
static bool box_rows_meet(const hdi_box *b, int dims, int64_t apart)
{
    if (dims == 0) {
        return apart < (int64_t)b->row && -apart < (int64_t)b->row;
    }
    int64_t stride = (int64_t)b->dst[dims - 1], most = (int64_t)b->count[dims - 1] - 1;
    int64_t steps = apart / stride - (apart % stride < 0);
    for (int i = 0; i < 2; i++, steps++) {
        if (steps >= -most && steps <= most && box_rows_meet(b, dims - 1, apart - steps * stride)) {
            return true;
        }
    }
    return false;
}

bool hdi_box_overlaps(const hdi_box *b, uint64_t dst_offset, uint64_t src_offset)
{
    if (b->bytes == 0 || dst_offset >= src_offset + b->src_span || src_offset >= dst_offset + b->dst_span) {
        return false;
    }
    for (int i = 0; i < b->dims; i++) {
        if (b->dst[i] != b->src[i]) {
            return true;
        }
    }
    return box_rows_meet(b, b->dims, (int64_t)src_offset - (int64_t)dst_offset);
}

/* ---- walks ---- */

static bool box_is_pitch(const hdi_box *b, uint64_t stride)
{
    return stride >= b->row && stride <= HDI_PITCH_MAX;
}

hdi_walk hdi_walk_begin(const hdi_box *b, uint64_t piece, unsigned sides)
{
    hdi_walk w = {.box = *b, .piece = piece, .pitch = b->row, .across = -1};
    for (int i = 0; i < b->dims; i++) {
        bool possible = (!(sides & HDI_WALK_DST) || box_is_pitch(b, b->dst[i])) &&
                        (!(sides & HDI_WALK_SRC) || box_is_pitch(b, b->src[i]));
        if (possible && (w.across < 0 || b->count[i] > b->count[w.across])) {
            w.across = i;
        }
    }
    if ((sides & HDI_WALK_GAPS) && w.across >= 0 && b->row < HDI_TINY_ROW && b->src[w.across] <= 2 * b->row) {
        w.pitch = b->src[w.across];
    }
    return w;
}

/* Moves the walk by `rows` rows, to the row behind the part. */
static void box_walk_step(hdi_walk *w, uint64_t rows)
{
    const hdi_box *b = &w->box;
    w->at = 0;
    if (w->across >= 0) {
        w->index[w->across] += rows;
        if (w->index[w->across] < b->count[w->across]) {
            return;
        }
        w->index[w->across] = 0;
    }
    for (int i = 0; i < b->dims; i++) {
        if (i == w->across) {
            continue;
        }
        if (++w->index[i] < b->count[i]) {
            return;
        }
        w->index[i] = 0;
    }
    w->ended = true;
}

bool hdi_walk_next(hdi_walk *w, uint64_t room, hdi_part *out)
{
    const hdi_box *b = &w->box;
    uint64_t row = b->row - w->at;
    row = row < w->piece ? row : w->piece;
    room = room < w->piece ? room : w->piece;
    if (w->ended || row > room) {
        return false;
    }
    hdi_part part = {.dst = w->at, .src = w->at, .row = row, .rows = 1, .pitch = w->pitch};
    for (int i = 0; i < b->dims; i++) {
        part.dst += w->index[i] * b->dst[i];
        part.src += w->index[i] * b->src[i];
    }
    if (row < b->row) {
        part.pitch = row;
        w->at += row;
        if (w->at == b->row) {
            box_walk_step(w, 1);
        }
    } else {
        if (w->across >= 0) {
            uint64_t left = b->count[w->across] - w->index[w->across];
            uint64_t fit = 1 + (room - row) / w->pitch;
            part.rows = left < fit ? left : fit;
            part.dst_pitch = b->dst[w->across];
            part.src_pitch = b->src[w->across];
        }
        box_walk_step(w, part.rows);
    }
    *out = part;
    return true;
}

/* ---- between the program's memory and buffers ---- */

/* the device fills up to this many chunks while processors scatter one */
#define READ_AHEAD 3
#define ITEM ((uint64_t)256 << 10) /* bytes that one thread copies at a time */
/* Rows of at least this many bytes are copied by hdi_copy_through. */
#define LONG_ROW ((uint64_t)4 << 10)

/* ---- rows, by processors ---- */

/* Rows to copy: each of the two sides has its own pitch. */
typedef struct rows {
    unsigned char *to;
    const unsigned char *from;
    uint64_t to_pitch, from_pitch;
} rows;

/* One job for the copy pool: the parts of a load, divided by their places in its chunk. */
typedef struct gathering {
    const hdi_load *load;
    rows part[HDI_LOAD_PARTS];
} gathering;

#define COPY_ROWS_OF(bytes)                                                                                            \
    case bytes:                                                                                                        \
        for (uint64_t i = 0; i < n; i++, to += r->to_pitch, from += r->from_pitch) {                                   \
            memcpy(to, from, bytes);                                                                                   \
        }                                                                                                              \
        break

/* Copies the rows first to first + n of a part. */
static void box_copy_rows(const rows *r, uint64_t row, uint64_t first, uint64_t n)
{
    unsigned char *to = r->to + first * r->to_pitch;
    const unsigned char *from = r->from + first * r->from_pitch;
    switch (row) {
        COPY_ROWS_OF(1); /* with a constant size, the compiler needs no call of memcpy */
        COPY_ROWS_OF(2);
        COPY_ROWS_OF(4);
        COPY_ROWS_OF(8);
        COPY_ROWS_OF(16);
    default:
        for (uint64_t i = 0; i < n; i++, to += r->to_pitch, from += r->from_pitch) {
            if (row < LONG_ROW) {
                memcpy(to, from, row);
            } else {
                hdi_copy_through(to, from, row);
            }
        }
    }
}

/* Copies the bytes from item * ITEM to (item + 1) * ITEM of a load. If a part consists of several
 * rows, copies the rows that begin in this range. */
static void box_gather_item(void *context, size_t item)
{
    const gathering *g = context;
    uint64_t low = item * ITEM, high = low + ITEM;
    for (int i = 0; i < g->load->n; i++) {
        const hdi_part *part = &g->load->part[i];
        uint64_t at = g->load->at[i], end = at + hdi_part_room(part);
        uint64_t from = low > at ? low - at : 0, to = (high < end ? high : end) - at;
        if (high <= at || low >= end) {
            continue;
        }
        if (part->rows == 1) {
            hdi_copy_through(g->part[i].to + from, g->part[i].from + from, to - from);
            continue;
        }
        uint64_t first = (from + part->pitch - 1) / part->pitch, last = (to + part->pitch - 1) / part->pitch;
        last = last < part->rows ? last : part->rows;
        if (first < last) {
            box_copy_rows(&g->part[i], part->row, first, last - first);
        }
    }
}

/* The layout of the rows of a load: as in the destination, as in the source, or as in the chunk. */
typedef enum lie { LIE_AS_DST, LIE_AS_SRC, LIE_IN_CHUNK } lie;

static uint64_t box_part_offset(const hdi_load *load, int i, lie how, uint64_t *pitch)
{
    const hdi_part *part = &load->part[i];
    *pitch = how == LIE_AS_DST ? part->dst_pitch : how == LIE_AS_SRC ? part->src_pitch : part->pitch;
    return how == LIE_AS_DST ? part->dst : how == LIE_AS_SRC ? part->src : load->at[i];
}

static void box_gather(hd_runtime *rt, int device, const hdi_load *load, unsigned char *to, lie to_lies,
                       const unsigned char *from, lie from_lies)
{
    gathering g = {.load = load};
    for (int i = 0; i < load->n; i++) {
        rows *r = &g.part[i];
        r->to = to + box_part_offset(load, i, to_lies, &r->to_pitch);
        r->from = from + box_part_offset(load, i, from_lies, &r->from_pitch);
    }
    uint64_t items = (load->bytes + ITEM - 1) / ITEM;
    if (items == 1) {
        box_gather_item(&g, 0);
    } else {
        hdi_copy_pool_run(rt, device, items, box_gather_item, &g);
    }
}

/* Copies a whole box between two sides that processors can access. */
static void box_gather_all(hd_runtime *rt, const hdi_box *box, unsigned char *to, const unsigned char *from)
{
    hdi_walk walk = hdi_walk_begin(box, HDI_STAGING_LARGE, 0);
    for (hdi_load load; hdi_load_next(&load, &walk, HDI_STAGING_LARGE);) {
        box_gather(rt, hdi_any_device(rt)->index, &load, to, LIE_AS_DST, from, LIE_AS_SRC);
    }
}

/* ---- the calls ---- */

/* Checks both sides of a box: the buffer's side, which spans `span` bytes, and the program's
 * memory. */
static hd_status box_check_sides(hd_buffer *handle, size_t offset, uint64_t span, const void *memory,
                                 uint64_t memory_span, struct hd_buffer **out)
{
    hd_status status = hdi_buffer_check(handle, offset, span, out);
    if (!status && memory_span && !memory) {
        status = hdi_fail(HD_ERROR_ARGUMENT, "the program's memory is null");
    }
    if (!status && memory_span > UINTPTR_MAX - (uintptr_t)memory) {
        status = hdi_fail(HD_ERROR_RANGE, "the box spans %llu bytes of the program's memory, past its end",
                          (unsigned long long)memory_span);
    }
    return status;
}

/* Fails if the two sides share a byte. The program's memory may lie inside the buffer. Then its
 * rows may lie between the buffer's rows, as in hd_copy_box. */
static hd_status box_check_apart(const hdi_box *box, const void *dst, const void *src)
{
    return hdi_box_overlaps(box, (uintptr_t)dst, (uintptr_t)src)
               ? hdi_fail(HD_ERROR_ARGUMENT, "the program's rows overlap those of the buffer")
               : HD_OK;
}

/* Chooses the pool whose chunks a box goes through. *room: the number of the box's bytes that fit
 * into one chunk. */
static hd_status box_choose_pool(hdi_device *device, bool to_device, const hdi_box *box, hdi_staging **pool,
                                 uint64_t *room)
{
    hd_status status = hdi_copy_alive(device->lane_in);
    if (status) {
        return status;
    }
    *pool = hdi_staging_of(device, to_device, false);
    if (!*pool) {
        return HD_ERROR_HOST_MEMORY;
    }
    status = box->bytes <= (*pool)->bytes ? HD_OK : hdi_staging_choose(device, to_device, pool);
    *room = status ? 0 : hdi_chunk_bytes(box->bytes, (*pool)->bytes);
    return status;
}

/* Waits until operations on the box would no longer wait for work of the program. The thread holds
 * no chunk during this wait. */
static hd_status box_await_roots(const hdi_transfer *t, hdi_staging *pool, bool writes, int64_t deadline)
{
    uint64_t low = writes ? t->dst_offset : t->src_offset;
    const hdi_place *place = writes ? &t->to : &t->from;
    const hdi_use use = {.buffer = place->buffer,
                         .losses = place->losses,
                         .word = place->word,
                         .low = low,
                         .high = low + (writes ? t->box->dst_span : t->box->src_span),
                         .read = !writes,
                         .write = writes};
    return hdi_staging_await_roots(hdi_staging_lane(pool), &use, 1, deadline);
}

static hd_status box_write_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, const void *src,
                                  const hdi_box *box, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    bool gaps = box->dst_span != box->bytes;
    unsigned access = gaps ? HD_READ_WRITE : HD_WRITE | HDI_ACCESS_REPLACES;
    hd_status status = box_check_apart(box, b->host + offset, src);
    status = status ? status : hdi_buffer_settle(b, NULL, offset, offset + box->dst_span, access, deadline);
    if (!status) {
        box_gather_all(b->runtime, box, b->host + offset, src);
    }
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, box->bytes, began);
    hdi_hold_end(b);
    return status;
}

hd_status hd_write_box(hd_buffer *handle, size_t offset, const void *src, const hd_box *shape)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    hdi_box box;
    struct hd_buffer *b = NULL;
    hd_status status = hdi_box_make(shape, &box);
    status = status ? status : box_check_sides(handle, offset, box.dst_span, src, box.src_span, &b);
    if (status || box.bytes == 0) {
        return status;
    }
    hd_runtime *rt = b->runtime;
    int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
    /* The owner is read once. If another buffer takes over the structure, the submission notices
     * this. */
    int owner = b->owner;
    if (owner == HDI_OWNER_HOST) {
        return box_write_pinned(b, handle, offset, src, &box, deadline);
    }
    const hdi_transfer t = {.to = hdi_place_of_handle(b, handle), .dst_offset = offset, .box = &box};
    hdi_staging *pool;
    uint64_t room;
    status = box_choose_pool(rt->devices[owner], true, &box, &pool, &room);
    if (status) {
        return status;
    }
    int64_t began = hdi_record_began(&rt->recorder);
    hdi_walk walk = hdi_walk_begin(&box, room, HDI_WALK_DST);
    hdi_point after = {0, 0};
    for (hdi_load load; !status && hdi_load_next(&load, &walk, room);) {
        hdi_chunk *chunk;
        status = hdi_staging_is_short(pool) ? box_await_roots(&t, pool, true, deadline) : HD_OK;
        status = status ? status : hdi_staging_await(pool, HDI_STAGING_WAIT, deadline, &chunk);
        if (status) {
            break;
        }
        box_gather(rt, owner, &load, chunk->buffer->host, LIE_IN_CHUNK, src, LIE_AS_SRC);
        hd_ticket last = {NULL, 0};
        status = hdi_load_submit(hdi_staging_lane(pool), false, &t, &load, chunk->buffer, &after, &last);
        hdi_staging_give(pool, chunk, hdi_ticket_point(last), false);
    }
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_WRITE, b, box.bytes, began);
    return status;
}

/* A chunk on its way to the host. */
typedef struct incoming {
    hdi_chunk *chunk;
    hdi_load load;
    hd_ticket last;
} incoming;

/* Takes a chunk, and submits the copies of the next parts into the chunk. in->chunk is NULL after a
 * failure. If `waits` is false, in->chunk is also NULL if no chunk is free. */
static hd_status box_read_send(const hdi_transfer *t, hdi_staging *pool, bool waits, int64_t deadline, hdi_point *after,
                               incoming *in)
{
    hd_status status = waits ? hdi_staging_await(pool, HDI_STAGING_WAIT, deadline, &in->chunk)
                             : hdi_staging_take(pool, HDI_STAGING_NOW, 0, &in->chunk);
    if (status || !in->chunk) {
        in->chunk = NULL;
        return status;
    }
    in->last = (hd_ticket){NULL, 0};
    status = hdi_load_submit(hdi_staging_lane(pool), true, t, &in->load, in->chunk->buffer, after, &in->last);
    if (status) {
        hdi_staging_give(pool, in->chunk, hdi_ticket_point(in->last), false);
        in->chunk = NULL;
    }
    return status;
}

static hd_status box_read_await(hd_runtime *rt, const incoming *in, int64_t deadline)
{
    hdi_point point = hdi_ticket_point(in->last);
    return hdi_wait_position(rt, point.lane, point.position, deadline)
               ? hdi_position_status(rt, point.lane, point.position)
               : hdi_not_done(rt, point.lane, point.position, "the bytes are not there yet (option transfer_timeout)");
}

static hd_status box_read_from_device(const hdi_transfer *t, hdi_device *device, unsigned char *dst, int64_t deadline)
{
    hd_runtime *rt = device->runtime;
    hdi_staging *pool;
    uint64_t room;
    hd_status status = box_choose_pool(device, false, t->box, &pool, &room);
    status = status ? status : box_await_roots(t, pool, false, deadline);
    if (status) {
        return status;
    }
    hdi_walk walk = hdi_walk_begin(t->box, room, HDI_WALK_SRC | HDI_WALK_GAPS);
    hdi_point after = {0, 0};
    incoming queue[READ_AHEAD];
    size_t first = 0, pending = 0;
    hdi_load ahead;
    bool more = hdi_load_next(&ahead, &walk, room);
    while (pending || (more && !status)) {
        while (!status && more && pending < READ_AHEAD) {
            incoming *in = &queue[(first + pending) % READ_AHEAD];
            in->load = ahead;
            /* This thread does not wait for a chunk while it holds other chunks: two threads that
             * did so could wait for each other. */
            status = box_read_send(t, pool, !pending, deadline, &after, in);
            if (status || !in->chunk) {
                break;
            }
            pending++;
            more = hdi_load_next(&ahead, &walk, room);
        }
        if (pending) {
            const incoming *in = &queue[first];
            status = status ? status : box_read_await(rt, in, deadline);
            if (!status) {
                box_gather(rt, device->index, &in->load, dst, LIE_AS_DST, in->chunk->buffer->host, LIE_IN_CHUNK);
            }
            hdi_staging_give(pool, in->chunk, hdi_ticket_point(in->last), false);
            first = (first + 1) % READ_AHEAD;
            pending--;
        }
    }
    return status;
}

static hd_status box_read_pinned(struct hd_buffer *b, const hd_buffer *handle, size_t offset, void *dst,
                                 const hdi_box *box, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    int64_t began = hdi_record_began(&b->runtime->recorder);
    hd_status status = box_check_apart(box, dst, b->host + offset);
    status = status ? status : hdi_buffer_settle(b, NULL, offset, offset + box->src_span, HD_READ, deadline);
    if (!status) {
        box_gather_all(b->runtime, box, dst, b->host + offset);
    }
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_READ, b, box->bytes, began);
    hdi_hold_end(b);
    return status;
}

hd_status hd_read_box(hd_buffer *handle, size_t offset, void *dst, const hd_box *shape)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    hdi_box box;
    struct hd_buffer *b = NULL;
    hd_status status = hdi_box_make(shape, &box);
    status = status ? status : box_check_sides(handle, offset, box.src_span, dst, box.dst_span, &b);
    if (status || box.bytes == 0) {
        return status;
    }
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    int owner = b->owner; /* as in hd_write_box */
    if (owner == HDI_OWNER_HOST) {
        return box_read_pinned(b, handle, offset, dst, &box, deadline);
    }
    const hdi_transfer t = {.from = hdi_place_of_handle(b, handle), .src_offset = offset, .box = &box};
    int64_t began = hdi_record_began(&b->runtime->recorder);
    status = box_read_from_device(&t, b->runtime->devices[owner], dst, deadline);
    hdi_buffer_record_own_transfer(status, HDI_RECORD_WAY_READ, b, box.bytes, began);
    return status;
}
