/* tensors.h - for the tests of tensors: random layouts, and a model that moves their elements one
 * by one in the program's memory.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_TENSORS_H
#define CONFORMANCE_TENSORS_H

#include "conformance.h"

static const hd_type tensor_types[] = {HD_TYPE_I8,  HD_TYPE_U8,  HD_TYPE_I16, HD_TYPE_U16, HD_TYPE_I32,
                                       HD_TYPE_U32, HD_TYPE_I64, HD_TYPE_U64, HD_TYPE_F16, HD_TYPE_BF16,
                                       HD_TYPE_F32, HD_TYPE_F64, HD_TYPE_C64, HD_TYPE_C128};
#define TENSOR_TYPES (sizeof tensor_types / sizeof tensor_types[0])

/* A layout without a buffer: `offset` and strides as in hd_tensor, and the bytes that its buffer
 * needs. */
typedef struct tensor_layout {
    hd_type type;
    int dims;
    uint64_t shape[HD_TENSOR_DIMS];
    int64_t stride[HD_TENSOR_DIMS];
    size_t offset, bytes;
} tensor_layout;

/* Makes a shape of up to about `elements` elements. Many sizes are those of tiles, and many are
 * odd. */
CONF_UNUSED static void tensor_shape(conf_random *r, uint64_t elements, tensor_layout *l)
{
    memset(l, 0, sizeof *l);
    l->type = tensor_types[conf_below(r, TENSOR_TYPES)];
    l->dims = (int)conf_below(r, HD_TENSOR_DIMS + 1);
    uint64_t left = 1 + conf_below(r, elements);
    for (int i = 0; i < l->dims; i++) {
        uint64_t n = conf_chance(r, 30)   ? (uint64_t)1 << conf_below(r, 9)
                     : conf_chance(r, 15) ? left
                                          : 1 + conf_below(r, 100);
        l->shape[i] = n < left ? n : left;
        left /= l->shape[i];
    }
}

/* Makes strides for the shape: the dimensions in any order, with gaps, backwards, and from an odd
 * byte on unless `plain` is set. */
CONF_UNUSED static void tensor_strides(conf_random *r, bool plain, tensor_layout *l)
{
    int order[HD_TENSOR_DIMS] = {0};
    for (int i = 0; i < l->dims; i++) {
        int at = (int)conf_below(r, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    if (conf_chance(r, 25)) { /* as in C */
        for (int i = 0; i < l->dims; i++) {
            order[i] = l->dims - 1 - i;
        }
    }
    size_t element = hd_type_size(l->type), span = element, before = 0;
    bool even = plain || conf_chance(r, 60);
    for (int i = 0; i < l->dims; i++) {
        size_t step = span;
        if (!plain && conf_chance(r, 30)) {
            step += conf_below(r, 20) * (even ? element : 1);
        }
        l->stride[order[i]] = (int64_t)step;
        span = step * l->shape[order[i]];
        if (!plain && conf_chance(r, 15)) {
            l->stride[order[i]] = -(int64_t)step;
            before += step * (l->shape[order[i]] - 1);
        }
    }
    size_t start = conf_below(r, 20) * (even ? element : 1);
    l->offset = start + before;
    l->bytes = start + span + conf_below(r, 40);
}

CONF_UNUSED static hd_tensor tensor_over(hd_buffer *buffer, const tensor_layout *l)
{
    hd_tensor t;
    CONF_OK(hd_tensor_make_strided(buffer, l->offset, l->type, l->dims, l->shape, l->stride, &t));
    return t;
}

/* Moves to the next index in row-major order; false behind the last one. */
static inline bool tensor_step(const uint64_t *shape, int dims, uint64_t *index)
{
    int i = dims - 1;
    while (i >= 0 && ++index[i] == shape[i]) {
        index[i--] = 0;
    }
    return i >= 0;
}

static inline size_t tensor_at(size_t offset, const int64_t *stride, int dims, const uint64_t *index)
{
    for (int i = 0; i < dims; i++) {
        offset += index[i] * (uint64_t)stride[i];
    }
    return offset;
}

/* dst = src, on copies of the buffers' bytes. Both shapes are the same; strides of src may be 0. */
CONF_UNUSED static void tensor_move(const hd_tensor *dst, uint8_t *to, const hd_tensor *src, const uint8_t *from)
{
    uint64_t index[HD_TENSOR_DIMS] = {0};
    size_t element = hd_type_size(dst->type);
    if (hd_tensor_elements(dst) == 0) {
        return;
    }
    do {
        memcpy(to + tensor_at(dst->offset, dst->stride, dst->dims, index),
               from + tensor_at(src->offset, src->stride, src->dims, index), element);
    } while (tensor_step(dst->shape, dst->dims, index));
}

/* ---- places ---- */

typedef enum tensor_place { PLACE_FIRST, PLACE_LAST, PLACE_PINNED, PLACE_UNIFIED, PLACES } tensor_place;

/* Makes a buffer there, with `content`. */
CONF_UNUSED static hd_buffer *tensor_buffer(hd_runtime *runtime, tensor_place place, const void *content, size_t bytes)
{
    hd_buffer *b = NULL;
    int last = hd_device_count(runtime) - 1;
    switch (place) {
    case PLACE_FIRST:
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &b));
        break;
    case PLACE_LAST:
        CONF_OK(hd_alloc(conf_default_lane(runtime, last), bytes, &b));
        break;
    case PLACE_PINNED:
        CONF_OK(hd_alloc_host(runtime, bytes, &b));
        break;
    default:
        CONF_OK(hd_alloc_unified(conf_default_lane(runtime, last), bytes, &b));
        break;
    }
    CONF_OK(hd_write(b, 0, content, bytes));
    return b;
}

#endif
