/* plan.h - how elements get from one layout to another: pure functions of the layouts, tested as a table and by running what they say.
 *
 * Threads: any. Locks: none. No call looks at memory or at a device.
 *
 * For benchmarks: a *wish* says which of several kernels for the same copy is taken, and in which order it walks the tiles, so that one
 * program can measure all of them in one run:
 *
 *     hdi_plan_wish wish = {.kernel = "4b", .group = 8};
 *     hdi_tensor_copy_as(&dst, &src, &wish, &ticket);
 *     for (int i = 0; hdi_tile_kind_at(i); i++) { ... hdi_tile_kind_at(i)->name ... }
 *
 * A kernel that cannot do a copy (another element size, for example) is not taken: hdi_tensor_copy_as then fails with UNSUPPORTED.
 */
#ifndef HDI_TENSOR_PLAN_H
#define HDI_TENSOR_PLAN_H

#include <heddle/tensor.h>
#include "kernel/builtin/tensor.h"

#define HDI_LAYOUT_DIMS (HD_TENSOR_DIMS + 2) /* a dimension may be cut in two, elements may be taken apart */

/* The same elements on two sides. The addresses are those of the element with all indices 0; what is in front of it is reached by strides
 * below 0. */
typedef struct hdi_layout {
    uint32_t element; /* bytes: 1, 2, 4, 8 or 16 */
    int dims;
    uint64_t shape[HDI_LAYOUT_DIMS];
    int64_t dst_stride[HDI_LAYOUT_DIMS], src_stride[HDI_LAYOUT_DIMS];
    uint64_t dst, src;
} hdi_layout;

/* Says the same with as few dimensions as possible: none of one element; the destination's strides above 0, falling; neighbours that follow
 * each other on both sides are one. The layout has elements, and none twice in the destination. */
void hdi_layout_canonicalize(hdi_layout *layout);

/* Of a canonical layout: whether it is one run of bytes on both sides. */
bool hdi_layout_is_run(const hdi_layout *layout);

/* What executes it. */
typedef struct hdi_plan_device {
    bool is_gpu;
    uint32_t multiprocessors; /* of a GPU */
} hdi_plan_device;

typedef struct hdi_plan_wish {
    const char *kernel; /* name in HD_TENSOR_TILES, "units", or NULL: the planner's choice */
    /* Tiles of a strip. With "units", bytes that neighbouring rows make before others come. 0: the planner's choice. */
    uint32_t group;
} hdi_plan_wish;

typedef enum hdi_plan_kind {
    HDI_PLAN_UNITS,
    HDI_PLAN_TILES,
    HDI_PLAN_CUT, /* too large for one launch: plan both halves, cut at `cut_at` in dimension `cut_dim` of the layout */
    HDI_PLAN_NONE /* a wish that cannot be granted */
} hdi_plan_kind;

typedef struct hdi_plan {
    hdi_plan_kind kind;
    const char *kernel; /* the kernel's name; static */
    int number;         /* of the kernel, from 0 to HDI_PLAN_KERNELS - 1 */
    uint64_t dst, src;  /* addresses for it */
    uint32_t grid, block;
    int cut_dim;
    uint64_t cut_at;
    union {
        hd_tensor_units units;
        hd_tensor_tile tile;
    };
} hdi_plan;

#define HDI_PLAN_COUNT(...) +1
#define HDI_PLAN_KERNELS (0 HD_TENSOR_UNITS(HDI_PLAN_COUNT) HD_TENSOR_TILES(HDI_PLAN_COUNT))

/* `layout` is canonical. `wish` may be NULL. */
void hdi_plan_make(const hdi_layout *layout, const hdi_plan_device *device, const hdi_plan_wish *wish, hdi_plan *out);

/* The upper part of a layout that is cut; *layout becomes the lower one. */
void hdi_layout_cut(hdi_layout *layout, int dim, uint64_t at, hdi_layout *upper);

typedef struct hdi_tile_kind {
    const char *name; /* in HD_TENSOR_TILES */
    uint32_t element, size_i, size_j, threads;
    int kind;
} hdi_tile_kind;

/* Row `index` of HD_TENSOR_TILES, NULL past the end. */
const hdi_tile_kind *hdi_tile_kind_at(int index);

/* copy.c: hd_tensor_copy with a wish, for benchmarks and tests. Errors: as hd_tensor_copy; UNSUPPORTED: the wish cannot be granted. */
hd_status hdi_tensor_copy_as(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out);

#endif
