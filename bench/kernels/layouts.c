/* layouts.c - the plain kernels for comparison in `heddle bench tensor`, and those that fill and
 * check, for GPU and CPU.
 *
 * They use one thread for each element and nothing else, as in a first version.
 *
 * tools/make-builtin-ptx makes generated/layouts.ptx from this file. The result is committed; run
 * it after every change here. Only the tool contains these kernels, not the library.
 */
#include "layouts.h"
#include <heddle/kernel.h>

typedef struct wide {
    uint64_t low, high;
} wide;

/* The word `n` words from the start of a filled buffer. It differs from its neighbours and
 * depends on all bits of n. */
HD_DEVICE uint32_t word_at(uint64_t n)
{
    uint64_t h = (n + 1) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

HD_KERNEL_BOUNDS(hd_layouts_fill, LAYOUT_THREADS, HD_OUT(uint32_t, y), HD_VALUE(uint64_t, words))
{
    uint64_t i = hd_global_x();
    if (i < words) {
        y[i] = word_at(i);
    }
}

/* The byte offsets of element `n` in both buffers. */
HD_DEVICE void place(const bench_layout *l, uint64_t n, int64_t *dst, int64_t *src)
{
    uint32_t left = (uint32_t)n; /* layouts have fewer than 2^32 elements */
    *dst = l->dst_offset;
    *src = l->src_offset;
    for (int d = (int)l->dims - 1; d >= 0; d--) {
        uint32_t next = left / l->shape[d], index = left - next * l->shape[d];
        *dst += index * l->dst_stride[d];
        *src += index * l->src_stride[d];
        left = next;
    }
}

/* Counts the elements of dst that differ from a filled source. */
HD_KERNEL_BOUNDS(hd_layouts_check, LAYOUT_THREADS, HD_INOUT(uint64_t, wrong), HD_IN(uint8_t, y),
                 HD_VALUE(bench_layout, layout))
{
    uint64_t n = hd_global_x();
    if (n >= layout.elements) {
        return;
    }
    int64_t to, from;
    int bad = 0;
    place(&layout, n, &to, &from);
    for (uint32_t b = 0; b < layout.element; b++) {
        uint64_t at = (uint64_t)from + b;
        bad |= y[to + b] != (uint8_t)(word_at(at / 4) >> 8 * (at % 4));
    }
    if (bad) {
        hd_atomic_add_u64(wrong, 1);
    }
}

/* The plain copies: a thread reads one element and writes it. In 2-D transposes neighbouring
 * threads read neighbouring elements, and write elements that lie far apart. In other moves they
 * write neighbouring elements. `rows` and `columns` are those of x; the grid covers columns by
 * rows. */
#define PLAIN_KERNELS(name, type)                                                                                      \
    HD_KERNEL_BOUNDS(hd_layouts_transpose_##name, LAYOUT_THREADS, HD_OUT(type, y), HD_IN(type, x),                     \
                     HD_VALUE(uint32_t, rows), HD_VALUE(uint32_t, columns))                                            \
    {                                                                                                                  \
        uint64_t i = (uint64_t)hd_block_y() * hd_block_dim_y() + hd_thread_y();                                        \
        uint64_t j = (uint64_t)hd_block_x() * hd_block_dim_x() + hd_thread_x();                                        \
        if (i < rows && j < columns) {                                                                                 \
            y[j * rows + i] = x[i * columns + j];                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    HD_KERNEL_BOUNDS(hd_layouts_copy_##name, LAYOUT_THREADS, HD_INOUT(uint8_t, y), HD_IN(uint8_t, x),                  \
                     HD_VALUE(bench_layout, layout))                                                                   \
    {                                                                                                                  \
        uint64_t n = hd_global_x();                                                                                    \
        if (n < layout.elements) {                                                                                     \
            int64_t to, from;                                                                                          \
            place(&layout, n, &to, &from);                                                                             \
            *(type *)(y + to) = *(const type *)(x + from);                                                             \
        }                                                                                                              \
    }

PLAIN_KERNELS(1, uint8_t)
PLAIN_KERNELS(2, uint16_t)
PLAIN_KERNELS(4, uint32_t)
PLAIN_KERNELS(8, uint64_t)
PLAIN_KERNELS(16, wide)
