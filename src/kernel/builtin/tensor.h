/* tensor.h - the parameters of the kernels that move tensors, for the kernels and for
 * src/tensor/plan.c, which fills them in.
 *
 * The kernels form two families.
 * Kernels for *units* go through the destination in some order and copy one unit (1 to 16 bytes) at
 * a time. They serve layouts whose fastest dimension is the same in source and destination, and all
 * layouts that tiles do not serve. Kernels for *tiles* serve layouts whose fastest dimensions
 * differ. `i` counts elements that are adjacent in the source, `j` elements that are adjacent in
 * the destination. A block moves a rectangle of `i` and `j`, so that it can access each side along
 * that side's rows. `i` and `j` may each count several dimensions of the tensor, one after another.
 *
 * A kernel splits a position into the indices of several dimensions, like a number into digits.
 * Each index is a *digit* with a fixed number of values. GPUs count in 32 bits, so a digit and the
 * split position are below 2^31. Distances in bytes use 64 bits.
 */
#ifndef HD_BUILTIN_TENSOR_H
#define HD_BUILTIN_TENSOR_H

#include <heddle/kernel.h>

#define HD_TENSOR_DIGITS 12      /* of units */
#define HD_TENSOR_ROW_DIGITS 4   /* digits of i, and of j */
#define HD_TENSOR_BATCH_DIGITS 9 /* digits of all other dimensions */
#define HD_TENSOR_COUNT_MAX 0x7fffffffu

/* The numbers to compute x / n for x and n below 2^31 as (high half of x * multiplier + x) >>
 * shift. */
typedef struct hd_tensor_divisor {
    uint32_t n, multiplier, shift;
} hd_tensor_divisor;

typedef struct hd_tensor_digit {
    hd_tensor_divisor by;
    /* If a dimension is cut into a low and a high digit: the amount that this digit adds to the
     * dimension's index; see hd_tensor_units.limit. */
    uint32_t weight[2];
    int64_t dst, src; /* bytes from one value to the next */
} hd_tensor_digit;

enum {
    HD_TENSOR_CUTS = 1, /* a dimension is cut: check the limits */
    /* GPU: a unit is 16 bytes of the destination; in the source, its elements are collect_step
     * apart */
    HD_TENSOR_GATHER = 2
};

/* Parameters of hd_tensor_units_*. Pieces are cut from the first `inner` digits, fastest first. On
 * a GPU, a block does `piece` of their `count` positions. On a CPU, it does `piece` rows of the
 * first digit's values. The other digits are constant in a block. */
typedef struct hd_tensor_units {
    uint32_t digits, inner;
    uint32_t count, piece;
    hd_tensor_divisor pieces; /* blocks for each position of the outer digits */
    /* GPU. `common`: the number of first digits that are the same for all units of a thread. The
     * product of their numbers of values divides HD_TENSOR_UNITS_THREADS. `apart`: the amount by
     * which the position in the other digits grows from unit to unit. */
    uint32_t common, apart;
    uint32_t limit[2]; /* limits of the sums of weights; a sum that is not below its limit is outside the tensor */
    uint32_t flags;
    int64_t collect_step; /* bytes */
    hd_tensor_digit digit[HD_TENSOR_DIGITS];
} hd_tensor_units;

typedef struct hd_tensor_row_digit {
    hd_tensor_divisor by;
    uint32_t reserved;
    int64_t step; /* bytes */
} hd_tensor_row_digit;

enum {
    /* The source's rows have no gaps and, for GPUs, begin at multiples of 16 bytes. */
    HD_TENSOR_WIDE_LOADS = 1,
    /* The same for the destination's rows. With shifted windows they only have no gaps. */
    HD_TENSOR_WIDE_STORES = 2,
    HD_TENSOR_STREAM = 4 /* CPU: the output is so large that it leaves the caches anyway */
};

/* Parameters of hd_tensor_tile_*. */
typedef struct hd_tensor_tile {
    uint32_t ni, nj;
    uint32_t size_i, size_j; /* size of a tile; GPU kernels know their own sizes */
    uint32_t tiles_i, tiles_j;
    /* The order of tiles: strips of `group` tiles along j. In a strip the order is first along j,
     * then along i. */
    uint32_t group;
    uint32_t flags;
    hd_tensor_divisor across[2]; /* tiles along j of a whole strip, and of the last one */
    hd_tensor_divisor strip;     /* tiles of a whole strip */
    hd_tensor_divisor matrix;    /* tiles of one matrix */
    uint32_t i_digits, j_digits, batch_digits;
    int64_t src_step;                                /* bytes of the source from i to i + 1 */
    int64_t dst_step;                                /* bytes of the destination from j to j + 1 */
    hd_tensor_row_digit i_row[HD_TENSOR_ROW_DIGITS]; /* where the destination's rows begin */
    hd_tensor_row_digit j_row[HD_TENSOR_ROW_DIGITS]; /* where the source's rows begin */
    hd_tensor_digit batch[HD_TENSOR_BATCH_DIGITS];
} hd_tensor_tile;

/* ---- the kernels ---- */

#define HD_TENSOR_UNITS_THREADS 256
#define HD_TENSOR_UNITS_EACH 4 /* units of a thread */

/* How a tile's kernel works (`kind` below). */
#define HD_TENSOR_TILE_PLAIN 0  /* i and j are one dimension each */
#define HD_TENSOR_TILE_DIGITS 1 /* or several */
/* Any i and j. Each row of the destination is written from a multiple of 32 bytes on, and rows may
 * begin anywhere. */
#define HD_TENSOR_TILE_SHIFTED 2

/* The kernels for tiles: X(name, element, size_i, size_j, threads, blocks, kind);
 * hd_tensor_tile_NAME.
 * - size_i * element and size_j * element are multiples of 16.
 * - The squares of 16 x 16 bytes' worth of elements, with the margin of shifted windows, are a
 *   multiple of the threads. The threads are a multiple of the squares along i and of a row's
 *   chunks (asserted in src/tensor/plan.c).
 * - `blocks` of them fit into a multiprocessor's registers.
 * On the CPU all kernels for an element are the same. */
#define HD_TENSOR_TILES(X)                                                                                             \
    X(1a, 1, 128, 128, 64, 8, HD_TENSOR_TILE_PLAIN)                                                                    \
    X(1d, 1, 128, 128, 64, 8, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(1s, 1, 128, 224, 128, 3, HD_TENSOR_TILE_SHIFTED)                                                                 \
    X(1n, 1, 16, 1024, 64, 8, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(1w, 1, 1024, 16, 64, 8, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(2a, 2, 128, 128, 256, 3, HD_TENSOR_TILE_PLAIN)                                                                   \
    X(2d, 2, 128, 128, 256, 3, HD_TENSOR_TILE_DIGITS)                                                                  \
    X(2s, 2, 128, 112, 256, 3, HD_TENSOR_TILE_SHIFTED)                                                                 \
    X(2n, 2, 16, 512, 128, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(2w, 2, 512, 16, 128, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(4a, 4, 64, 64, 256, 4, HD_TENSOR_TILE_PLAIN)                                                                     \
    X(4d, 4, 64, 64, 256, 4, HD_TENSOR_TILE_DIGITS)                                                                    \
    X(4s, 4, 128, 56, 256, 3, HD_TENSOR_TILE_SHIFTED)                                                                  \
    X(4n, 4, 16, 256, 256, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(4w, 4, 256, 16, 256, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(8d, 8, 64, 32, 256, 4, HD_TENSOR_TILE_DIGITS)                                                                    \
    X(8s, 8, 64, 60, 256, 3, HD_TENSOR_TILE_SHIFTED)                                                                   \
    X(8n, 8, 16, 128, 256, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(8w, 8, 128, 16, 256, 6, HD_TENSOR_TILE_DIGITS)                                                                   \
    X(16a, 16, 32, 32, 256, 6, HD_TENSOR_TILE_PLAIN)                                                                   \
    X(16d, 16, 32, 32, 256, 6, HD_TENSOR_TILE_DIGITS)

/* The shared memory of a tile's kernel for GPUs holds chunks of 16 bytes, and the start of each
 * row. */
/* Elements. */
#define HD_TILE_MARGIN(element, kind) ((kind) == HD_TENSOR_TILE_SHIFTED ? 32 / (element) : 0)
/* The chunks of a row, without those that keep the banks apart. */
#define HD_TILE_ROW_CHUNKS(element, size_j, kind) (((size_j) + HD_TILE_MARGIN(element, kind)) * (element) / 16)
#define HD_TILE_CELLS(element, size_i, size_j, kind) ((size_i) * (HD_TILE_ROW_CHUNKS(element, size_j, kind) + 1) + 1)
#define HD_TILE_ROWS(element, size_i, size_j, kind)                                                                    \
    ((kind) == HD_TENSOR_TILE_PLAIN ? 1 : (size_i) + (size_j) + HD_TILE_MARGIN(element, kind))

/* The kernels for units: X(bytes); hd_tensor_units_BYTES. */
#define HD_TENSOR_UNITS(X) X(1) X(2) X(4) X(8) X(16)

HD_DEVICE uint32_t hd_tensor_divide(uint32_t x, const hd_tensor_divisor *by)
{
    return ((uint32_t)(((uint64_t)x * by->multiplier) >> 32) + x) >> by->shift;
}

#endif
