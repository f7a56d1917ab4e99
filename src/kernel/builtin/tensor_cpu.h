/* tensor_cpu.h - the kernels of tensor.h as CPUs run them: a block is one thread, which moves as
 * many bytes as fit into its caches.
 *
 * Units: a block copies some rows of the fastest digit, one after another.
 * Tiles: a block reads a rectangle along the source's rows and transposes squares of 16 bytes in
 * registers. The block gathers the result in its own buffer, in the destination's order, and writes
 * whole rows from there. So it uses only a few rows at once, however far apart they lie. The
 * distances of rows are often powers of two, so that many rows would need the same few cache lines.
 *
 * Threads: one per block, no barriers. Always: any address is allowed. Bytes outside the tensors
 * are neither written nor read.
 */
#ifndef HD_BUILTIN_TENSOR_CPU_H
#define HD_BUILTIN_TENSOR_CPU_H

#include "tensor.h"

#define HD_INLINE HD_DEVICE __attribute__((always_inline))

typedef uint8_t hd_v1 __attribute__((vector_size(16)));
typedef uint16_t hd_v2 __attribute__((vector_size(16)));
typedef uint32_t hd_v4 __attribute__((vector_size(16)));
typedef uint64_t hd_v8 __attribute__((vector_size(16)));
typedef struct hd_v16 {
    uint64_t half[2];
} hd_v16;

/* ---- units ---- */

#define HD_UNITS_KERNEL(bytes, type)                                                                                   \
    HD_DEVICE void hd_row_##bytes(unsigned char *dst, const unsigned char *src, uint64_t n, int64_t dst_step,          \
                                  int64_t src_step)                                                                    \
    {                                                                                                                  \
        type v;                                                                                                        \
        if (dst_step == bytes && src_step == bytes) {                                                                  \
            __builtin_memcpy(dst, src, n *bytes);                                                                      \
        } else if (dst_step == bytes && src_step == 0) {                                                               \
            __builtin_memcpy(&v, src, bytes);                                                                          \
            for (uint64_t i = 0; i < n; i++) {                                                                         \
                __builtin_memcpy(dst + i * bytes, &v, bytes);                                                          \
            }                                                                                                          \
        } else if (dst_step == bytes) {                                                                                \
            for (uint64_t i = 0; i < n; i++) {                                                                         \
                __builtin_memcpy(&v, src, bytes);                                                                      \
                __builtin_memcpy(dst + i * bytes, &v, bytes);                                                          \
                src += src_step;                                                                                       \
            }                                                                                                          \
        } else {                                                                                                       \
            for (uint64_t i = 0; i < n; i++) {                                                                         \
                __builtin_memcpy(&v, src, bytes);                                                                      \
                __builtin_memcpy(dst, &v, bytes);                                                                      \
                src += src_step, dst += dst_step;                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    HD_KERNEL(hd_tensor_units_##bytes, HD_OUT(unsigned char, dst), HD_IN(unsigned char, src),                          \
              HD_VALUE(hd_tensor_units, p))                                                                            \
    {                                                                                                                  \
        hd_units(hd_self, dst, src, &p, hd_row_##bytes);                                                               \
    }

typedef void hd_row_copy(unsigned char *dst, const unsigned char *src, uint64_t n, int64_t dst_step, int64_t src_step);

HD_INLINE void hd_units(HD_SELF, unsigned char *dst, const unsigned char *src, const hd_tensor_units *p,
                        hd_row_copy *copy)
{
    uint64_t rows = 1;
    for (uint32_t k = 1; k < p->digits; k++) {
        rows *= p->digit[k].by.n;
    }
    uint64_t first = (uint64_t)hd_block_x() * p->piece;
    uint64_t last = rows - first < p->piece ? rows : first + p->piece;
    uint32_t index[HD_TENSOR_DIGITS] = {0};
    uint32_t low[2] = {0, 0};
    uint64_t at = first;
    for (uint32_t k = 1; k < p->digits; k++) {
        index[k] = (uint32_t)(at % p->digit[k].by.n);
        at /= p->digit[k].by.n;
        dst += index[k] * p->digit[k].dst;
        src += index[k] * p->digit[k].src;
        low[0] += index[k] * p->digit[k].weight[0];
        low[1] += index[k] * p->digit[k].weight[1];
    }
    for (uint64_t row = first; row < last; row++) {
        if (low[0] < p->limit[0] && low[1] < p->limit[1]) {
            uint64_t n = p->digit[0].by.n;
            for (int e = 0; e < 2; e++) {
                uint32_t weight = p->digit[0].weight[e];
                uint64_t most = weight ? (p->limit[e] - low[e] + weight - 1) / weight : n;
                n = n < most ? n : most;
            }
            copy(dst, src, n, p->digit[0].dst, p->digit[0].src);
        }
        for (uint32_t k = 1; k < p->digits; k++) {
            const hd_tensor_digit *digit = &p->digit[k];
            /* the step leads to the next value, or from the last one back to the first */
            uint32_t steps = index[k] + 1 < digit->by.n ? 1 : 0 - index[k];
            int64_t way = steps == 1 ? 1 : -(int64_t)index[k];
            index[k] += steps;
            dst += way * digit->dst;
            src += way * digit->src;
            low[0] += steps * digit->weight[0];
            low[1] += steps * digit->weight[1];
            if (steps == 1) {
                break;
            }
        }
    }
}

HD_UNITS_KERNEL(1, uint8_t)
HD_UNITS_KERNEL(2, uint16_t)
HD_UNITS_KERNEL(4, uint32_t)
HD_UNITS_KERNEL(8, uint64_t)
HD_UNITS_KERNEL(16, hd_v16)

/* ---- tiles ---- */

#ifdef __clang__
#define HD_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define HD_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define HD_LOW_1(a, b) HD_SHUFFLE(hd_v1, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HD_HIGH_1(a, b) HD_SHUFFLE(hd_v1, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define HD_LOW_2(a, b) HD_SHUFFLE(hd_v2, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HD_HIGH_2(a, b) HD_SHUFFLE(hd_v2, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define HD_LOW_4(a, b) HD_SHUFFLE(hd_v4, a, b, 0, 4, 1, 5)
#define HD_HIGH_4(a, b) HD_SHUFFLE(hd_v4, a, b, 2, 6, 3, 7)
#define HD_LOW_8(a, b) HD_SHUFFLE(hd_v8, a, b, 0, 2)
#define HD_HIGH_8(a, b) HD_SHUFFLE(hd_v8, a, b, 1, 3)

/* Transposes a square of elements: row k, of 16 bytes, begins at rows[k]; the columns go to `out`,
 * `pitch` bytes apart. Each stage interleaves the first half of the vectors with the second half,
 * as one shuffles a deck of cards. */
#define HD_TURN(bytes, type, each, stages)                                                                             \
    HD_INLINE void hd_turn_##bytes(unsigned char *out, uint32_t pitch, const unsigned char *src, const int64_t *rows)  \
    {                                                                                                                  \
        type v[each], w[each];                                                                                         \
        for (int k = 0; k < each; k++) {                                                                               \
            __builtin_memcpy(&v[k], src + rows[k], 16);                                                                \
        }                                                                                                              \
        for (int stage = 0; stage < stages; stage++) {                                                                 \
            for (int k = 0; k < each / 2; k++) {                                                                       \
                w[2 * k] = HD_LOW_##bytes(v[k], v[k + each / 2]);                                                      \
                w[2 * k + 1] = HD_HIGH_##bytes(v[k], v[k + each / 2]);                                                 \
            }                                                                                                          \
            for (int k = 0; k < each; k++) {                                                                           \
                v[k] = w[k];                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        for (int k = 0; k < each; k++) {                                                                               \
            __builtin_memcpy(out + (uint32_t)k * pitch, &v[k], 16);                                                    \
        }                                                                                                              \
    }
HD_TURN(1, hd_v1, 16, 4)
HD_TURN(2, hd_v2, 8, 3)
HD_TURN(4, hd_v4, 4, 2)
HD_TURN(8, hd_v8, 2, 1)

HD_INLINE void hd_turn_16(unsigned char *out, uint32_t pitch, const unsigned char *src, const int64_t *rows)
{
    (void)pitch;
    __builtin_memcpy(out, src + rows[0], 16);
}

#define HD_TILE_MOST 128    /* elements along i, and along j */
#define HD_TILE_BYTES 32768 /* most bytes of a tile */
#define HD_TILE_PAD 64      /* bytes between the buffer's rows */
/* Rows of the source that are fetched ahead. */
#define HD_TILE_AHEAD(each) ((each) < 8 ? 8 : (each))
#define HD_TILE_BUFFER (HD_TILE_BYTES + HD_TILE_MOST * HD_TILE_PAD)

/* The offsets of rows first, first + 1, ... */
HD_DEVICE void hd_row_offsets(int64_t *out, uint32_t first, uint32_t n, const hd_tensor_row_digit *digit,
                              uint32_t digits)
{
    uint32_t index[HD_TENSOR_ROW_DIGITS] = {0};
    int64_t at = 0;
    for (uint32_t k = 0; k < digits; k++) {
        index[k] = first % digit[k].by.n;
        first /= digit[k].by.n;
        at += (int64_t)index[k] * digit[k].step;
    }
    for (uint32_t x = 0; x < n; x++) {
        out[x] = at;
        at += digit[0].step;
        for (uint32_t k = 0; ++index[k] == digit[k].by.n && k + 1 < digits; k++) {
            at += digit[k + 1].step - (int64_t)index[k] * digit[k].step;
            index[k] = 0;
        }
    }
}

/* Writes `bytes` bytes that will not be read soon, past the caches if possible. */
HD_INLINE void hd_write_row(unsigned char *dst, const unsigned char *src, uint32_t bytes, int stream)
{
#ifdef __SSE2__
    typedef long long hd_stream __attribute__((vector_size(16)));
    if (stream && ((uintptr_t)dst & 15) == 0) {
        while (bytes >= 16) {
            hd_stream v;
            __builtin_memcpy(&v, src, 16);
#ifdef __clang__
            __builtin_nontemporal_store(v, (hd_stream *)dst);
#else
            __builtin_ia32_movntdq((hd_stream *)dst, v);
#endif
            dst += 16, src += 16, bytes -= 16;
        }
    }
#else
    (void)stream;
#endif
    __builtin_memcpy(dst, src, bytes);
}

typedef void hd_turn_square(unsigned char *out, uint32_t pitch, const unsigned char *src, const int64_t *rows);

HD_INLINE void hd_tile(HD_SELF, unsigned char *dst, const unsigned char *src, const hd_tensor_tile *p,
                       const uint32_t element, hd_turn_square *turn)
{
    const uint32_t each = 16 / element;
    uint64_t matrix = hd_block_x() / p->matrix.n;
    uint32_t tile = hd_block_x() % p->matrix.n;
    uint32_t strip = tile / p->strip.n;
    tile %= p->strip.n;
    uint32_t group = p->tiles_j - strip * p->group < p->group ? p->tiles_j - strip * p->group : p->group;
    uint32_t i0 = tile / group * p->size_i, j0 = (strip * p->group + tile % group) * p->size_j;
    uint32_t ni = p->ni - i0 < p->size_i ? p->ni - i0 : p->size_i;
    uint32_t nj = p->nj - j0 < p->size_j ? p->nj - j0 : p->size_j;
    for (uint32_t k = 0; k < p->batch_digits; k++) {
        uint64_t index = matrix % p->batch[k].by.n;
        matrix /= p->batch[k].by.n;
        dst += (int64_t)index * p->batch[k].dst;
        src += (int64_t)index * p->batch[k].src;
    }
    src += i0 * p->src_step;
    dst += j0 * p->dst_step;

    int64_t src_row[HD_TILE_MOST], dst_row[HD_TILE_MOST];
    hd_row_offsets(src_row, j0, nj, p->j_row, p->j_digits);
    hd_row_offsets(dst_row, i0, ni, p->i_row, p->i_digits);

    HD_SHARED _Alignas(64) unsigned char cells[HD_TILE_BUFFER];
    const uint32_t pitch = p->size_j * element + HD_TILE_PAD;
    uint32_t i_square = p->flags & HD_TENSOR_WIDE_LOADS ? ni / each * each : 0;
    uint32_t j_square = i_square ? nj / each * each : 0;
    /* Only whole cache lines are written past the caches; for parts of lines, this would take more
     * time than it saves. */
    int streams =
        (p->flags & HD_TENSOR_STREAM) && ((uintptr_t)(dst + dst_row[0]) & 15) == 0 && (p->i_row[0].step & 15) == 0;
    for (uint32_t j = 0; j < j_square; j += each) {
        /* Fetches rows ahead, because the processor does not predict where short rows continue. */
        for (uint32_t k = j + HD_TILE_AHEAD(each); k < j + HD_TILE_AHEAD(each) + each && k < j_square; k++) {
            for (uint32_t at = 0; at < i_square * element; at += 64) {
                __builtin_prefetch(src + src_row[k] + at);
            }
        }
        for (uint32_t i = 0; i < i_square; i += each) {
            turn(cells + i * pitch + j * element, pitch, src + i * element, src_row + j);
        }
    }
    /* The elements outside whole squares: to the right of the squares, and below. */
    for (uint32_t j = 0; j < nj; j++) {
        for (uint32_t i = j < j_square ? i_square : 0; i < ni; i++) {
            __builtin_memcpy(cells + i * pitch + j * element, src + src_row[j] + i * p->src_step, element);
        }
    }
    for (uint32_t i = 0; i < ni; i++) {
        if (p->flags & HD_TENSOR_WIDE_STORES) {
            hd_write_row(dst + dst_row[i], cells + i * pitch, nj * element, streams);
        } else {
            for (uint32_t j = 0; j < nj; j++) {
                __builtin_memcpy(dst + dst_row[i] + j * p->dst_step, cells + i * pitch + j * element, element);
            }
        }
    }
#ifdef __SSE2__
    __builtin_ia32_sfence();
#endif
}

#define HD_TILE_KERNEL(name, element, size_i, size_j, threads, blocks, kind)                                           \
    HD_KERNEL(hd_tensor_tile_##name, HD_OUT(unsigned char, dst), HD_IN(unsigned char, src),                            \
              HD_VALUE(hd_tensor_tile, p))                                                                             \
    {                                                                                                                  \
        hd_tile_##element(hd_self, dst, src, &p);                                                                      \
    }
#define HD_TILE_OF(element)                                                                                            \
    __attribute__((noinline)) static void hd_tile_##element(HD_SELF, unsigned char *dst, const unsigned char *src,     \
                                                            const hd_tensor_tile *p)                                   \
    {                                                                                                                  \
        hd_tile(hd_self, dst, src, p, element, hd_turn_##element);                                                     \
    }
HD_TILE_OF(1)
HD_TILE_OF(2)
HD_TILE_OF(4)
HD_TILE_OF(8)
HD_TILE_OF(16)
HD_TENSOR_TILES(HD_TILE_KERNEL)

#endif
