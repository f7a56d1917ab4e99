/* layouts.h - two layouts of the same elements, for the kernels in layouts.c. bench/tensor_sides.c
 * fills in the structure.
 */
#ifndef BENCH_KERNELS_LAYOUTS_H
#define BENCH_KERNELS_LAYOUTS_H

#include <stdint.h>

#define LAYOUT_DIMS 8
#define LAYOUT_THREADS 256 /* in a block */

/* Elements in row-major order of `shape`; the last dimension is the fastest. Offsets and strides
 * are bytes. */
typedef struct bench_layout {
    uint32_t dims, element;
    uint64_t elements;
    uint32_t shape[LAYOUT_DIMS];
    int64_t dst_stride[LAYOUT_DIMS], src_stride[LAYOUT_DIMS];
    int64_t dst_offset, src_offset;
} bench_layout;

#endif
