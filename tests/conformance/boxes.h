/* boxes.h - for the tests of boxes: makes boxes, and copies them in the program's memory.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_BOXES_H
#define CONFORMANCE_BOXES_H

#include "places.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Calls `row(context, offset in the destination, offset in the source)` for every row of a box. */
CONF_UNUSED static void each_row(const hd_box *box, void (*row)(void *context, size_t dst, size_t src), void *context)
{
    size_t index[HD_BOX_DIMS] = {0};
    bool any = box->row != 0;
    for (int k = 0; k < box->dims; k++) {
        any = any && box->count[k] != 0;
    }
    while (any) {
        size_t dst = 0, src = 0;
        for (int k = 0; k < box->dims; k++) {
            dst += index[k] * box->dst_stride[k];
            src += index[k] * box->src_stride[k];
        }
        row(context, dst, src);
        int k = 0;
        while (k < box->dims && ++index[k] == box->count[k]) {
            index[k++] = 0;
        }
        any = k < box->dims;
    }
}

typedef struct model {
    uint8_t *dst;
    const uint8_t *src;
    size_t row;
    size_t dst_end, src_end;
} model;

CONF_UNUSED static void copy_row(void *context, size_t dst, size_t src)
{
    const model *m = context;
    memcpy(m->dst + dst, m->src + src, m->row);
}

/* Copies the box as its definition demands. The copy must not change `src`. */
CONF_UNUSED static void model_copy(const hd_box *box, uint8_t *dst, const uint8_t *src)
{
    model m = {.dst = dst, .src = src, .row = box->row};
    each_row(box, copy_row, &m);
}

CONF_UNUSED static void widen(void *context, size_t dst, size_t src)
{
    model *m = context;
    m->dst_end = dst + m->row > m->dst_end ? dst + m->row : m->dst_end;
    m->src_end = src + m->row > m->src_end ? src + m->row : m->src_end;
}

/* Bytes from the first to behind the last one on both sides. */
CONF_UNUSED static void spans(const hd_box *box, size_t *dst, size_t *src)
{
    model m = {.row = box->row};
    each_row(box, widen, &m);
    *dst = m.dst_end;
    *src = m.src_end;
}

CONF_UNUSED static void mark_dst(void *context, size_t dst, size_t src)
{
    const model *m = context;
    (void)src;
    memset(m->dst + dst, 1, m->row);
}

CONF_UNUSED static void meet_src(void *context, size_t dst, size_t src)
{
    model *m = context;
    (void)dst;
    for (size_t i = 0; i < m->row; i++) {
        m->dst_end |= m->src[src + i];
    }
}

/* True if source and destination in one buffer share a byte. */
CONF_UNUSED static bool sides_meet(const hd_box *box, size_t dst_offset, size_t src_offset, size_t all)
{
    uint8_t *map = conf_memory(all);
    memset(map, 0, all);
    model m = {.dst = map + dst_offset, .src = map + src_offset, .row = box->row};
    each_row(box, mark_dst, &m);
    each_row(box, meet_src, &m);
    free(map);
    return m.dst_end != 0;
}

CONF_UNUSED static hd_box box_of(size_t row, int dims, const size_t *count, const size_t *dst, const size_t *src)
{
    hd_box box = {.size = sizeof box, .row = row, .dims = dims};
    for (int k = 0; k < dims; k++) {
        box.count[k] = count[k];
        box.dst_stride[k] = dst[k];
        box.src_stride[k] = src[k];
    }
    return box;
}

/* Returns the box of a matrix's rows with these pitches. */
CONF_UNUSED static hd_box matrix(size_t row, size_t rows, size_t dst_pitch, size_t src_pitch)
{
    return box_of(row, 1, &rows, &dst_pitch, &src_pitch);
}

#endif
