/* layouts.h - random layouts over host memory, for tests: every dimension order, gaps, negative
 * strides, repeated sources, odd starts. */
#ifndef TEST_TENSOR_LAYOUTS_H
#define TEST_TENSOR_LAYOUTS_H

#include <stdbool.h>
#include "tensor/plan.h"

typedef struct layouts_random {
    uint64_t state;
} layouts_random;

static inline uint64_t layouts_next(layouts_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a number from 0 to below - 1. */
static inline uint64_t layouts_below(layouts_random *r, uint64_t below)
{
    return layouts_next(r) % below;
}

/* Draws the strides of one side, and the bytes that it reaches in front of and behind the first
 * element. `gaps`: percent of the dimensions that end with unused bytes. */
static inline void layouts_strides(layouts_random *r, const hdi_layout *l, int64_t *stride, unsigned gaps,
                                   unsigned back, bool whole_elements, uint64_t *before, uint64_t *behind)
{
    int order[HDI_LAYOUT_DIMS] = {0};
    for (int i = 0; i < l->dims; i++) {
        int at = (int)layouts_below(r, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    if (layouts_below(r, 4) == 0) { /* as in C, often enough */
        for (int i = 0; i < l->dims; i++) {
            order[i] = l->dims - 1 - i;
        }
    }
    uint64_t span = l->element;
    *before = 0;
    *behind = 0;
    for (int i = 0; i < l->dims; i++) {
        uint64_t step = span;
        if (layouts_below(r, 100) < gaps) {
            step += layouts_below(r, 40) * (whole_elements ? l->element : 1);
        }
        uint64_t way = step * (l->shape[order[i]] - 1);
        if (layouts_below(r, 100) < back) {
            stride[order[i]] = -(int64_t)step;
            *before += way;
        } else {
            stride[order[i]] = (int64_t)step;
            *behind += way;
        }
        span = step * l->shape[order[i]];
    }
    *behind += l->element;
}

/* Draws element size, shape and strides, for at most about `elements` elements. Addresses are
 * offsets into memory of *dst_bytes and *src_bytes bytes. */
static inline void layouts_make(layouts_random *r, uint64_t elements, hdi_layout *l, uint64_t *dst_bytes,
                                uint64_t *src_bytes)
{
    static const uint32_t sizes[] = {1, 2, 4, 8, 16};
    l->element = sizes[layouts_below(r, 5)];
    l->dims = (int)layouts_below(r, 7);
    uint64_t left = 1 + layouts_below(r, elements);
    for (int i = 0; i < HDI_LAYOUT_DIMS; i++) {
        l->shape[i] = 1;
        l->dst_stride[i] = l->src_stride[i] = 0;
    }
    for (int i = 0; i < l->dims; i++) {
        static const uint64_t usual[] = {1, 2, 3, 4, 8, 16, 32, 64, 128, 256};
        uint64_t n = layouts_below(r, 2) ? usual[layouts_below(r, 10)] : 1 + layouts_below(r, 150);
        n = layouts_below(r, 8) == 0 ? left : n;
        l->shape[i] = n <= left ? n : left;
        left /= l->shape[i];
    }
    bool plain = layouts_below(r, 2) == 0, whole = plain || layouts_below(r, 2) == 0;
    uint64_t before, behind;
    layouts_strides(r, l, l->dst_stride, plain ? 0 : 30, plain ? 0 : 15, whole, &before, &behind);
    uint64_t start = plain ? layouts_below(r, 2) * 32 : layouts_below(r, 40) * (whole ? l->element : 1);
    l->dst = start + before;
    *dst_bytes = l->dst + behind + layouts_below(r, 64);
    layouts_strides(r, l, l->src_stride, plain ? 0 : 30, plain ? 0 : 15, whole, &before, &behind);
    start = plain ? layouts_below(r, 2) * 32 : layouts_below(r, 40) * (whole ? l->element : 1);
    l->src = start + before;
    *src_bytes = l->src + behind + layouts_below(r, 64);
    if (layouts_below(r, 6) == 0 && l->dims > 0) {
        l->src_stride[layouts_below(r, (uint64_t)l->dims)] = 0;
    }
}

#endif
