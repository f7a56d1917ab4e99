/* matmul_tile.h - the part of the result that a tile covers, and the start of its matrices; for
 * matmul.c. */
#ifndef HDI_KERNEL_BUILTIN_MATMUL_TILE_H
#define HDI_KERNEL_BUILTIN_MATMUL_TILE_H

#include "matmul.h"

/* The rows of tiles that blocks process together, so that adjacent blocks read the same data. */
#define GROUP 8

typedef struct hdk_tile {
    uint64_t row, column;
    int64_t a, b, c; /* offsets of the batch's matrices */
} hdk_tile;

/* Tiles with consecutive numbers lie in groups of GROUP rows, column by column. */
HD_DEVICE hdk_tile hdk_tile_at(const hdi_matmul_shape *s, uint64_t number, uint32_t rows, uint32_t columns)
{
    uint64_t down = (s->m + rows - 1) / rows, across = (s->n + columns - 1) / columns;
    uint64_t inside = number % (down * across), matrix = number / (down * across);
    uint64_t group = inside / (GROUP * across), rest = inside % (GROUP * across);
    uint64_t high = down - group * GROUP < GROUP ? down - group * GROUP : GROUP;
    hdk_tile t;
    t.row = (group * GROUP + rest % high) * rows;
    t.column = rest / high * columns;
    t.a = s->first_a;
    t.b = s->first_b;
    t.c = s->first_c;
#if HD_KERNEL_GPU
#pragma unroll
#endif
    /* The loop visits all dimensions, also unused ones: a loop of constant length keeps the
     * arguments out of local memory. */
    for (int d = HDI_MATMUL_BATCH - 1; d >= 0; d--) {
        if (d < (int)s->batch_dims) {
            int64_t index = (int64_t)(matrix % s->batch[d]);
            matrix /= s->batch[d];
            t.a += index * s->step_a[d];
            t.b += index * s->step_b[d];
            t.c += index * s->step_c[d];
        }
    }
    return t;
}

HD_DEVICE uint64_t hdk_tile_count(const hdi_matmul_shape *s, uint32_t rows, uint32_t columns)
{
    return ((s->m + rows - 1) / rows) * ((s->n + columns - 1) / columns) * s->count;
}

#endif
