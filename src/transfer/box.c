/* box.c - see box.h. */
#include "transfer/box.h"

#include "base/error.h"
#include "base/sized.h"
#include "transfer/route.h"

/* Makes neighbours one where they follow each other on both sides. Lower dimensions come first, so what was joined may be joined again. */
static void join(hdi_box *b)
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

/* Behind the last byte of `count` times `span` bytes, `stride` apart. False: there is no such number of bytes. */
static bool widen(uint64_t *span, uint64_t count, uint64_t stride)
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
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "the box writes bytes twice: dst_stride[%d] is %zu, and what it repeats spans %llu bytes",
                            i, box->dst_stride[i], (unsigned long long)b.dst_span);
        }
        b.count[b.dims] = box->count[i];
        b.dst[b.dims] = box->dst_stride[i];
        b.src[b.dims++] = box->src_stride[i];
        fits = widen(&b.dst_span, box->count[i], box->dst_stride[i]) &&
               widen(&b.src_span, box->count[i], box->src_stride[i]);
        b.bytes *= box->count[i]; /* no more than the destination spans */
    }
    if (!fits) {
        return hdi_fail(HD_ERROR_RANGE, "the box spans more bytes than can be addressed");
    }
    join(&b);
    *out = b;
    return HD_OK;
}

/* Whether some rows of the lowest `dims` dimensions, one on each side, whose first bytes are `apart` bytes apart without them, meet. Each
 * stride is at least what the dimensions below span: so for each dimension at most two differences of indices come near enough. */
static bool rows_meet(const hdi_box *b, int dims, int64_t apart)
{
    if (dims == 0) {
        return apart < (int64_t)b->row && -apart < (int64_t)b->row;
    }
    int64_t stride = (int64_t)b->dst[dims - 1], most = (int64_t)b->count[dims - 1] - 1;
    int64_t steps = apart / stride - (apart % stride < 0);
    for (int i = 0; i < 2; i++, steps++) {
        if (steps >= -most && steps <= most && rows_meet(b, dims - 1, apart - steps * stride)) {
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
    return rows_meet(b, b->dims, (int64_t)src_offset - (int64_t)dst_offset);
}

/* ---- walks ---- */

static bool is_pitch(const hdi_box *b, uint64_t stride)
{
    return stride >= b->row && stride <= HDI_PITCH_MAX;
}

hdi_walk hdi_walk_begin(const hdi_box *b, uint64_t piece, unsigned sides)
{
    hdi_walk w = {.box = *b, .piece = piece, .pitch = b->row, .across = -1};
    for (int i = 0; i < b->dims; i++) {
        bool possible =
            (!(sides & HDI_WALK_DST) || is_pitch(b, b->dst[i])) && (!(sides & HDI_WALK_SRC) || is_pitch(b, b->src[i]));
        if (possible && (w.across < 0 || b->count[i] > b->count[w.across])) {
            w.across = i;
        }
    }
    if ((sides & HDI_WALK_GAPS) && w.across >= 0 && b->row < HDI_TINY_ROW && b->src[w.across] <= 2 * b->row) {
        w.pitch = b->src[w.across];
    }
    return w;
}

/* On to the row behind the last one of a part. */
static void step(hdi_walk *w, uint64_t rows)
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
            step(w, 1);
        }
    } else {
        if (w->across >= 0) {
            uint64_t left = b->count[w->across] - w->index[w->across];
            uint64_t fit = 1 + (room - row) / w->pitch;
            part.rows = left < fit ? left : fit;
            part.dst_pitch = b->dst[w->across];
            part.src_pitch = b->src[w->across];
        }
        step(w, part.rows);
    }
    *out = part;
    return true;
}
