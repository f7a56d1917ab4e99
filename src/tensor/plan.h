/* plan.h - plans for a move of elements from one layout to another. A plan depends only on the
 * layouts, the device and a wish. So tests check plans by a table; other tests also run them.
 *
 * Threads: any; pure functions, except hdi_tensor_copy_as.
 * Locks: none.
 * Blocking: none, except hdi_tensor_copy_as. No function reads memory of a tensor or calls a
 * device.
 *
 * For benchmarks, a *wish* selects one of several kernels for a copy, and the order in which the
 * kernel visits the tiles. So one program can measure all kernels in one run:
 *
 *     hdi_plan_wish wish = {.kernel = "4b", .group = 8};
 *     hdi_tensor_copy_as(&dst, &src, &wish, &ticket);
 *     for (int i = 0; hdi_tile_kind_at(i); i++) { ... hdi_tile_kind_at(i)->name ... }
 *
 * If the kernel cannot do the copy, for example since it is for another element size,
 * hdi_tensor_copy_as fails with UNSUPPORTED.
 */
#ifndef HDI_TENSOR_PLAN_H
#define HDI_TENSOR_PLAN_H

#include <heddle/tensor.h>
#include "kernel/builtin/tensor.h"

/* Two more than a tensor's dimensions, since one dimension may be cut in two, and elements may be
 * split. */
#define HDI_LAYOUT_DIMS (HD_TENSOR_DIMS + 2)

/* The places of the same elements on two sides. The addresses are those of the element with all
 * indices 0. Negative strides lead to elements in front of that element. */
typedef struct hdi_layout {
    uint32_t element; /* bytes: 1, 2, 4, 8 or 16 */
    int dims;
    uint64_t shape[HDI_LAYOUT_DIMS];
    int64_t dst_stride[HDI_LAYOUT_DIMS], src_stride[HDI_LAYOUT_DIMS];
    uint64_t dst, src;
} hdi_layout;

/* Describes the same elements with as few dimensions as possible. The layout must not be empty, and
 * no two elements may share a place in the destination. Afterwards:
 * - no dimension has only one element
 * - the destination's strides are positive and fall from dimension to dimension
 * - neighbouring dimensions that continue each other on both sides are joined */
void hdi_layout_canonicalize(hdi_layout *layout);

/* True if a canonical layout is one run of bytes on both sides. */
bool hdi_layout_is_run(const hdi_layout *layout);

/* The device that executes a plan. */
typedef struct hdi_plan_device {
    bool is_gpu;
    uint32_t multiprocessors; /* of a GPU */
} hdi_plan_device;

typedef struct hdi_plan_wish {
    const char *kernel; /* name in HD_TENSOR_TILES, or "units"; NULL: the planner chooses */
    /* The number of tiles in a strip. With "units": the bytes of neighbouring rows that are copied
     * before other rows. 0: the planner chooses. */
    uint32_t group;
} hdi_plan_wish;

typedef enum hdi_plan_kind {
    HDI_PLAN_UNITS,
    HDI_PLAN_TILES,
    /* The layout is too large for one launch: cut dimension `cut_dim` at `cut_at`, and plan both
     * parts. */
    HDI_PLAN_CUT,
    HDI_PLAN_NONE /* the wish cannot be granted */
} hdi_plan_kind;

typedef struct hdi_plan {
    hdi_plan_kind kind;
    const char *kernel; /* the kernel's name; static */
    int number;         /* the number of the kernel, from 0 to HDI_PLAN_KERNELS - 1 */
    uint64_t dst, src;  /* addresses for the kernel */
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

/* Plans a canonical layout. `wish` may be NULL. */
void hdi_plan_make(const hdi_layout *layout, const hdi_plan_device *device, const hdi_plan_wish *wish, hdi_plan *out);

/* Cuts a layout. *layout becomes the lower part, and *upper the upper part. */
void hdi_layout_cut(hdi_layout *layout, int dim, uint64_t at, hdi_layout *upper);

typedef struct hdi_tile_kind {
    const char *name; /* as in HD_TENSOR_TILES */
    uint32_t element, size_i, size_j, threads;
    int kind;
} hdi_tile_kind;

/* Row `index` of HD_TENSOR_TILES. NULL past the end. */
const hdi_tile_kind *hdi_tile_kind_at(int index);

/* copy.c: hd_tensor_copy with a wish (NULL: none), for this layer, benchmarks and tests.
 * Blocking: as hd_tensor_copy.
 * Errors: as hd_tensor_copy; UNSUPPORTED: the wish cannot be granted. */
hd_status hdi_tensor_copy_as(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out);

#endif
