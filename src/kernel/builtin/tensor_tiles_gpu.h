/* tensor_tiles_gpu.h - the kernels for tiles as GPUs run them.
 *
 * A block of a tile's kernel reads a rectangle of size_i by size_j elements along the source's rows
 * and writes it along the destination's rows. In between the rectangle lies in shared memory, in
 * *chunks* of 16 bytes. A chunk holds elements that are neighbours in the destination. Each thread
 * makes chunks in its registers, from as many rows as a chunk has elements. So it accesses shared
 * memory only 16 bytes at a time.
 *
 * Chunk c of row i of the destination lies at i * (chunks of a row) + (i >> skew) + c. This spreads
 * the eight lanes of an access over all banks. If threads read the source 16 bytes at a time, the
 * rows i of neighbouring lanes that store differ by a chunk's number of elements. Then the skew is
 * log2 of that number. If threads read the source by elements, the rows i of neighbouring lanes are
 * adjacent, and the skew is 0. Lanes that load share one row i, and their chunks c are adjacent.
 *
 * With *shifted windows* the tile of each destination row begins at a multiple of 32 bytes, at most
 * 32 bytes in front of the rectangle. The rectangle is wider by this margin. So neighbouring blocks
 * read a few rows of the source twice, at about the same time. But no two blocks write parts of the
 * same sector of the destination. Rows of the source may also begin anywhere. Then a thread loads
 * two aligned chunks and realigns 16 bytes in registers.
 *
 * The code of a block is compiled twice: for rectangles entirely inside the tensor, which need no
 * check of bounds, and for all others.
 *
 * Threads and guarantees: as tensor_gpu.h.
 */
#ifndef HD_BUILTIN_TENSOR_TILES_GPU_H
#define HD_BUILTIN_TENSOR_TILES_GPU_H

#include "tensor_gpu.h"

/* Transposes a square of elements: row[k] holds elements i = 0, 1, ... of row j = k; column[i] gets
 * j = 0, 1, ... */
HD_INLINE void hd_turn(const hd_chunk *row, hd_chunk *column, const uint32_t element)
{
    if (element == 16) {
        column[0] = row[0];
    } else if (element == 8) {
        hd_chunk a = {row[0][0], row[0][1], row[1][0], row[1][1]};
        hd_chunk b = {row[0][2], row[0][3], row[1][2], row[1][3]};
        column[0] = a, column[1] = b;
    } else if (element == 4) {
        HD_UNROLL
        for (int i = 0; i < 4; i++) {
            hd_chunk a = {row[0][i], row[1][i], row[2][i], row[3][i]};
            column[i] = a;
        }
    } else if (element == 2) {
#define PAIR(k, which) HD_BYTES(row[2 * (k)][w], row[2 * (k) + 1][w], which)
#define FOUR(which) {PAIR(0, which), PAIR(1, which), PAIR(2, which), PAIR(3, which)}
        HD_UNROLL
        for (int w = 0; w < 4; w++) {
            hd_chunk a = FOUR(0x5410), b = FOUR(0x7632);
            column[2 * w] = a, column[2 * w + 1] = b;
        }
#undef FOUR
#undef PAIR
    } else {
#define PAIR(k, which) HD_BYTES(row[k][w], row[(k) + 1][w], which)
#define QUAD(k, first, then) HD_BYTES(PAIR(4 * (k), first), PAIR(4 * (k) + 2, first), then)
#define FOUR(first, then) {QUAD(0, first, then), QUAD(1, first, then), QUAD(2, first, then), QUAD(3, first, then)}
        HD_UNROLL
        for (int w = 0; w < 4; w++) {
            hd_chunk a = FOUR(0x5140, 0x5410), b = FOUR(0x5140, 0x7632);
            hd_chunk c = FOUR(0x7362, 0x5410), d = FOUR(0x7362, 0x7632);
            column[4 * w] = a, column[4 * w + 1] = b, column[4 * w + 2] = c, column[4 * w + 3] = d;
        }
#undef FOUR
#undef QUAD
#undef PAIR
    }
}

/* Chooses between values. A choice between variables would become an address, and move the
 * variables from registers to memory. */
HD_INLINE uint32_t hd_either(uint32_t which, uint32_t a, uint32_t b)
{
    return which ? a : b;
}

/* 16 bytes out of the 32 of two chunks that follow each other, from byte n on; n is below 16 and a
 * multiple of the element's size. */
HD_INLINE hd_chunk hd_realign(hd_chunk low, hd_chunk high, uint32_t n, const uint32_t element)
{
    uint32_t w[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
    HD_UNROLL
    for (int k = 0; k < 6 && element <= 8; k++) {
        w[k] = hd_either(n & 8, w[k + 2], w[k]);
    }
    HD_UNROLL
    for (int k = 0; k < 5 && element <= 4; k++) {
        w[k] = hd_either(n & 4, w[k + 1], w[k]);
    }
    HD_UNROLL
    for (int k = 0; k < 4 && element <= 2; k++) {
        w[k] = HD_BYTES(w[k], w[k + 1], 0x3210 + (n & 3) * 0x1111);
    }
    hd_chunk v = {w[0], w[1], w[2], w[3]};
    return v;
}

/* The offset of row `at`. */
HD_INLINE int64_t hd_row_offset(uint32_t at, const hd_tensor_row_digit *digit, uint32_t digits)
{
    int64_t offset = 0;
    for (uint32_t k = 0; k < digits; k++) {
        uint32_t rest = hd_tensor_divide(at, &digit[k].by);
        offset += (int64_t)(at - rest * digit[k].by.n) * digit[k].step;
        at = rest;
    }
    return offset;
}

/* A kernel's properties; all of them are known when it is compiled. */
typedef struct hd_tile_form {
    uint32_t element, size_i, size_j, threads;
    int shifted;
    /* A table in shared memory lists the start of each row; otherwise row x begins at x * src_row
     * or x * dst_row. */
    int listed;
    uint32_t each;   /* elements of a chunk */
    uint32_t margin; /* elements */
    uint32_t width;  /* chunks of a row in shared memory, without padding */
    uint32_t log;    /* the logarithm of `each` to base 2 */
} hd_tile_form;

/* The tile of a block. Rows and columns are counted from the tile's first ones on: j is below 0 in
 * the margin. */
typedef struct hd_tile_place {
    unsigned char *dst;       /* element 0, 0; without the row's offset if a table lists the rows */
    const unsigned char *src; /* element 0, 0, like dst */
    uint32_t i0, j0;
    /* Rows and columns of the tensor from the tile's first ones on; left_j may be below 1. */
    int32_t left_i, left_j;
    int64_t src_step, dst_row; /* bytes */
    int64_t src_row, dst_step;
    const int64_t *rows_src, *rows_dst; /* the start of each listed row */
} hd_tile_place;

HD_INLINE int64_t hd_src_row(const hd_tile_form f, const hd_tile_place *at, int32_t j)
{
    return f.listed ? at->rows_src[j] : j * at->src_row;
}

HD_INLINE int64_t hd_dst_row(const hd_tile_form f, const hd_tile_place *at, uint32_t i)
{
    return f.listed ? at->rows_dst[i] : i * at->dst_row;
}

/* Copies from a source whose rows have no gaps to shared memory, 16 bytes at a time. `full`: the
 * whole rectangle is inside the tensor. Rows of shifted tiles may begin anywhere, so each chunk
 * takes loads of the two aligned chunks around it. In place of chunks and rows outside the tensor,
 * threads read the tensor's last ones again, so that no branch separates the loads. */
HD_INLINE void hd_stage_chunks(HD_SELF, const hd_tile_form f, const hd_tile_place *at, hd_chunk *cells, const int full)
{
    const uint32_t across = f.size_i / f.each, squares = across * f.width / f.threads, apart = f.threads / across;
    uint32_t x = hd_thread_x() % across, y = hd_thread_x() / across;
    /* Bytes of the thread's chunk, in a row or, if no row is cut, from `origin` on. */
    uint32_t first = 0, last = 15;
    const unsigned char *origin = at->src;
    if (full) {
        origin += x * 16;
    } else {
        first = x * 16, last = x * 16 + 15;
        uint32_t most = (at->left_i < (int32_t)f.size_i ? (uint32_t)at->left_i : f.size_i) * f.element - 1;
        first = first < most ? first : most;
        last = last < most ? last : most;
        first = f.shifted ? first : first & ~15u;
    }
    int32_t j = (int32_t)(y * f.each) - (int32_t)f.margin;
    const unsigned char *line = origin + hd_src_row(f, at, full || !f.listed ? j : 0);
    hd_chunk low[16], high[16], column[16];
    uint32_t odd[16];
    HD_UNROLL
    for (uint32_t b = 0; b < squares; b++) {
        HD_UNROLL
        for (uint32_t k = 0; k < f.each; k++) {
            const uint32_t n = b * f.each + k;
            if (!full || f.listed) {
                int32_t row = j + (int32_t)(b * apart * f.each + k);
                if (!full) {
                    row = row < at->left_j ? row : at->left_j - 1;
                    row = row > -(int32_t)at->j0 ? row : -(int32_t)at->j0;
                }
                line = origin + hd_src_row(f, at, row);
            }
            if (f.shifted) {
                uintptr_t here = (uintptr_t)line;
                odd[n] = (uint32_t)here & 15;
                low[n] = hd_load_16((const unsigned char *)((here + first) & ~(uintptr_t)15));
                high[n] = hd_load_16((const unsigned char *)((here + last) & ~(uintptr_t)15));
            } else {
                low[n] = hd_load_16(line + first);
            }
            line += at->src_row;
        }
        line += (int64_t)((apart - 1) * f.each) * at->src_row;
    }
    HD_UNROLL
    for (uint32_t b = 0; b < squares; b++) {
        HD_UNROLL
        for (uint32_t k = 0; k < f.each && f.shifted; k++) {
            const uint32_t n = b * f.each + k;
            /* As many rows as a chunk has elements make a multiple of 16 bytes: row k of every
             * square begins alike, for all threads. */
            uint32_t alike = ((uint32_t)(uintptr_t)at->src + k * (uint32_t)at->src_row) & 15;
            low[n] = hd_realign(low[n], high[n], full && !f.listed ? alike : odd[n], f.element);
        }
        hd_turn(low + b * f.each, column, f.element);
        HD_UNROLL
        for (uint32_t k = 0; k < f.each; k++) {
            cells[(x * f.each + k) * f.width + x + y + b * apart] = column[k];
        }
    }
}

/* Does the same for any source, by elements. */
HD_INLINE void hd_stage_elements(HD_SELF, const hd_tile_form f, const hd_tile_place *at, hd_chunk *cells)
{
    /* Each thread takes as many chunks at a time as keep about 36 elements under way, always the
     * same number. */
    const uint32_t chunks = f.size_i * f.width, share = (chunks + f.threads - 1) / f.threads;
    const uint32_t times = (share * f.each + 39) / 40, together = (share + times - 1) / times;
    for (uint32_t q = hd_thread_x(); q < chunks; q += f.threads * together) {
        hd_chunk made[10];
        HD_UNROLL
        for (uint32_t b = 0; b < together; b++) {
            uint32_t x = (q + b * f.threads) % f.size_i, y = (q + b * f.threads) / f.size_i;
            hd_chunk none = {0, 0, 0, 0};
            made[b] = none;
            if ((int32_t)x < at->left_i && (chunks % (f.threads * together) == 0 || y < f.width)) {
                const unsigned char *from = at->src + x * at->src_step;
                HD_UNROLL
                for (uint32_t k = 0; k < f.each; k++) {
                    int32_t j = (int32_t)(y * f.each + k) - (int32_t)f.margin;
                    if ((j < at->left_j) & (j >= -(int32_t)at->j0)) {
                        hd_load_into(&made[b], k, from + hd_src_row(f, at, j), f.element);
                    }
                }
            }
        }
        HD_UNROLL
        for (uint32_t b = 0; b < together; b++) {
            uint32_t x = (q + b * f.threads) % f.size_i, y = (q + b * f.threads) / f.size_i;
            if (chunks % (f.threads * together) == 0 || y < f.width) {
                cells[x * (f.width + 1) + y] = made[b];
            }
        }
    }
}

/* Writes from shared memory to rows that begin at multiples of 16 bytes. */
HD_INLINE void hd_write_chunks(HD_SELF, const hd_tile_form f, const hd_tile_place *at, const hd_chunk *cells,
                               uint32_t skew, const int full)
{
    const uint32_t apart = f.threads / f.width, share = f.size_i / apart;
    const uint32_t together = share % 4 == 0 ? 4 : share % 2 == 0 ? 2 : 1;
    uint32_t x = hd_thread_x() / f.width, y = hd_thread_x() % f.width;
    unsigned char *line = at->dst + y * 16 + (f.listed ? 0 : hd_dst_row(f, at, x));
    for (uint32_t b = 0; b < share; b += together) {
        hd_chunk v[4];
        HD_UNROLL
        for (uint32_t n = 0; n < together; n++) {
            uint32_t i = x + (b + n) * apart;
            v[n] = cells[i * f.width + (i >> skew) + y];
        }
        HD_UNROLL
        for (uint32_t n = 0; n < together; n++) {
            uint32_t i = x + (b + n) * apart;
            if (full || ((int32_t)i < at->left_i && (int32_t)(y * f.each) < at->left_j)) {
                hd_store_16(f.listed ? line + hd_dst_row(f, at, i) : line, v[n]);
            }
            line += f.listed ? 0 : apart * at->dst_row;
        }
    }
}

/* Writes to rows without gaps that begin anywhere, from multiples of 32 bytes on. */
HD_INLINE void hd_write_windows(HD_SELF, const hd_tile_form f, const hd_tile_place *at, const hd_chunk *cells,
                                uint32_t skew, const int full)
{
    /* The number of threads for a row of the window is a power of two, and some of them get no part
     * of the row. So no access to shared memory touches two rows whose banks may be the same. */
    const uint32_t apart = f.threads / f.width, share = f.size_i / apart, together = share % 2 == 0 ? 2 : 1;
    uint32_t x = hd_thread_x() / f.width, y = hd_thread_x() % f.width;
    if (y >= f.size_j / f.each) {
        return;
    }
    unsigned char *line = at->dst + (f.listed ? 0 : hd_dst_row(f, at, x));
    /* If the distance of a thread's rows is always a multiple of 32 bytes, all of its rows begin
     * alike. */
    const int alike = !f.listed && apart * f.element % 32 == 0;
    uint32_t early = (uint32_t)(uintptr_t)line & 31; /* bytes by which the window begins earlier */
    uint32_t cell = x * f.width + (x >> skew) + (32 - early) / 16 + y;
    for (uint32_t b = 0; b < share; b += together) {
        HD_UNROLL
        for (uint32_t n = 0; n < together; n++) {
            uint32_t i = x + (b + n) * apart;
            if (full || (int32_t)i < at->left_i) {
                unsigned char *to = f.listed ? line + hd_dst_row(f, at, i) : line;
                if (!alike) {
                    early = (uint32_t)(uintptr_t)to & 31;
                    cell = i * f.width + (i >> skew) + (32 - early) / 16 + y;
                }
                hd_chunk v = hd_realign(cells[cell], cells[cell + (early & 15 ? 1 : 0)], -early & 15, f.element);
                int32_t j = (int32_t)(y * f.each) - (int32_t)(early / f.element);
                to += (int64_t)y * 16 - early;
                if (full || (j + (int32_t)at->j0 >= 0 && j + (int32_t)f.each <= at->left_j)) {
                    hd_store_16(to, v);
                } else {
                    HD_UNROLL
                    for (uint32_t k = 0; k < f.each; k++) {
                        if ((j + (int32_t)k >= -(int32_t)at->j0) & (j + (int32_t)k < at->left_j)) {
                            hd_store_element(to + k * f.element, hd_element_of(v, k, f.element), f.element);
                        }
                    }
                }
            }
            line += f.listed ? 0 : apart * at->dst_row;
            cell += apart * f.width + (apart >> skew);
        }
    }
}

/* Writes to any destination, by elements. */
HD_INLINE void hd_write_elements(HD_SELF, const hd_tile_form f, const hd_tile_place *at, const hd_chunk *cells,
                                 uint32_t skew)
{
    const unsigned char *bytes = (const unsigned char *)cells;
    const uint32_t share = f.size_i * f.size_j / f.threads, together = share % 8 == 0 ? 8 : share % 4 == 0 ? 4 : 1;
    for (uint32_t b = 0; b < share; b += together) {
        hd_chunk v[8];
        HD_UNROLL
        for (uint32_t n = 0; n < together; n++) {
            uint32_t q = hd_thread_x() + (b + n) * f.threads, x = q / f.size_j, y = q % f.size_j;
            v[n] = hd_element_at(bytes + (x * f.width + (x >> skew)) * 16 + y * f.element, f.element);
        }
        HD_UNROLL
        for (uint32_t n = 0; n < together; n++) {
            uint32_t q = hd_thread_x() + (b + n) * f.threads, x = q / f.size_j, y = q % f.size_j;
            if (((int32_t)x < at->left_i) & ((int32_t)y < at->left_j)) {
                hd_store_element(at->dst + hd_dst_row(f, at, x) + y * at->dst_step, v[n], f.element);
            }
        }
    }
}

/* Finds a block's tile. */
HD_INLINE void hd_find_tile(HD_SELF, const hd_tile_form f, unsigned char *dst, const unsigned char *src,
                            const hd_tensor_tile *p, hd_tile_place *at)
{
    uint32_t matrix = hd_tensor_divide(hd_block_x(), &p->matrix);
    uint32_t tile = hd_block_x() - matrix * p->matrix.n;
    uint32_t strip = hd_tensor_divide(tile, &p->strip);
    tile -= strip * p->strip.n;
    const hd_tensor_divisor *across = &p->across[p->tiles_j - strip * p->group <= p->group];
    uint32_t tile_i = hd_tensor_divide(tile, across);
    at->i0 = tile_i * f.size_i;
    at->j0 = (strip * p->group + (tile - tile_i * across->n)) * f.size_j;
    at->left_i = (int32_t)(p->ni - at->i0);
    at->left_j = (int32_t)(p->nj - at->j0);
    for (uint32_t k = 0; k < p->batch_digits; k++) {
        uint32_t rest = hd_tensor_divide(matrix, &p->batch[k].by);
        uint32_t index = matrix - rest * p->batch[k].by.n;
        matrix = rest;
        dst += index * p->batch[k].dst;
        src += index * p->batch[k].src;
    }
    at->src_step = p->src_step, at->dst_step = p->dst_step;
    at->src_row = p->j_row[0].step, at->dst_row = p->i_row[0].step;
    at->src = src + at->i0 * p->src_step;
    at->dst = dst + at->j0 * p->dst_step;
}

/* Lists the start of each row that several digits count: of the source by j, from the margin on,
 * then of the destination by i. */
HD_INLINE void hd_list_rows(HD_SELF, const hd_tile_form f, const hd_tensor_tile *p, hd_tile_place *at, int64_t *rows)
{
    const uint32_t window = f.size_j + f.margin;
    for (uint32_t x = hd_thread_x(); x < window + f.size_i; x += f.threads) {
        uint32_t j = at->j0 + x - f.margin, i = at->i0 + x - window;
        if (x < window) {
            rows[x] = j < p->nj ? hd_row_offset(j, p->j_row, p->j_digits) : 0;
        } else {
            rows[x] = i < p->ni ? hd_row_offset(i, p->i_row, p->i_digits) : 0;
        }
    }
    hd_barrier();
    at->rows_src = rows + f.margin, at->rows_dst = rows + window;
}

/* Moves a tile whose rows are known. */
HD_INLINE void hd_move_tile(HD_SELF, const hd_tile_form f, const hd_tile_place *at, const uint32_t flags,
                            hd_chunk *cells)
{
    /* Moves 16 bytes at a time if the part of a row in the tile is a multiple of 16 bytes, or if
     * rows may begin anywhere. */
    int whole = (at->left_i >= (int32_t)f.size_i) & (at->left_j >= (int32_t)f.size_j) & (at->j0 >= f.margin);
    int wide_in = (flags & HD_TENSOR_WIDE_LOADS) &&
                  (f.shifted || at->left_i >= (int32_t)f.size_i || (uint32_t)at->left_i % f.each == 0);
    int wide_out = (flags & HD_TENSOR_WIDE_STORES) &&
                   (f.shifted || at->left_j >= (int32_t)f.size_j || (uint32_t)at->left_j % f.each == 0);
    uint32_t skew = 0;
    if (whole & wide_in & wide_out) {
        hd_stage_chunks(hd_self, f, at, cells, 1);
        hd_barrier();
        if (f.shifted) {
            hd_write_windows(hd_self, f, at, cells, f.log, 1);
        } else {
            hd_write_chunks(hd_self, f, at, cells, f.log, 1);
        }
        return;
    }
    if (wide_in) {
        hd_stage_chunks(hd_self, f, at, cells, 0);
        skew = f.log;
    } else {
        hd_stage_elements(hd_self, f, at, cells);
    }
    hd_barrier();
    if (f.shifted) {
        hd_write_windows(hd_self, f, at, cells, skew, 0);
    } else if (wide_out) {
        hd_write_chunks(hd_self, f, at, cells, skew, 0);
    } else {
        hd_write_elements(hd_self, f, at, cells, skew);
    }
}

HD_INLINE void hd_tile(HD_SELF, unsigned char *dst, const unsigned char *src, const hd_tensor_tile *p, hd_chunk *cells,
                       int64_t *rows, const uint32_t element, const uint32_t size_i, const uint32_t size_j,
                       const uint32_t threads, const int kind)
{
    hd_tile_form f = {
        element,
        size_i,
        size_j,
        threads,
        kind == HD_TENSOR_TILE_SHIFTED,
        0,
        16 / element,
        HD_TILE_MARGIN(element, kind),
        HD_TILE_ROW_CHUNKS(element, size_j, kind),
        element == 1   ? 4u
        : element == 2 ? 3u
        : element == 4 ? 2u
        : element == 8 ? 1u
                       : 0u,
    };
    hd_tile_place at;
    hd_find_tile(hd_self, f, dst, src, p, &at);
    if (kind == HD_TENSOR_TILE_DIGITS || (kind == HD_TENSOR_TILE_SHIFTED && p->i_digits + p->j_digits > 2)) {
        f.listed = 1;
        hd_list_rows(hd_self, f, p, &at, rows);
        hd_move_tile(hd_self, f, &at, p->flags, cells);
    } else {
        at.src += at.j0 * at.src_row;
        at.dst += at.i0 * at.dst_row;
        hd_move_tile(hd_self, f, &at, p->flags, cells);
    }
}

#define HD_TILE_KERNEL(name, element, size_i, size_j, threads, blocks, kind)                                           \
    HD_TENSOR_KERNEL(hd_tensor_tile_##name, threads, blocks, HD_OUT(unsigned char, dst), HD_IN(unsigned char, src),    \
                     HD_VALUE(hd_tensor_tile, p))                                                                      \
    {                                                                                                                  \
        HD_SHARED hd_chunk cells[HD_TILE_CELLS(element, size_i, size_j, kind)];                                        \
        HD_SHARED int64_t rows[HD_TILE_ROWS(element, size_i, size_j, kind)];                                           \
        hd_tile(hd_self, dst, src, &p, cells, rows, element, size_i, size_j, threads, kind);                           \
    }
HD_TENSOR_TILES(HD_TILE_KERNEL)

#endif
