/* tensor.h - checks of tensors, and small functions that the files of the tensor layer share.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: none, except hdi_tensor_scratch (as hd_alloc).
 * Always: a tensor is the program's own value and may contain anything. So its fields are used only
 * after one of the checks below.
 */
#ifndef HDI_TENSOR_TENSOR_H
#define HDI_TENSOR_TENSOR_H

#include <heddle/tensor.h>
#include "base/number.h"
#include "buffer/buffer.h"

/* The place of a tensor: its buffer, and the bytes [low, high) that hold its elements. If the
 * tensor contains no elements, low == high. */
typedef struct hdi_extent {
    struct hd_buffer *buffer;
    uint64_t low, high;
    uint64_t elements;
} hdi_extent;

/* Checks the form of a tensor, and that its buffer is live and contains all elements. `which` names
 * the tensor in messages ("dst").
 * Errors: ARGUMENT (also for a null `t`), HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_tensor_check(const hd_tensor *t, const char *which, hdi_extent *out);

/* Checks type, dimensions and the number of elements, which is less than 2^63. Does not check the
 * buffer. Errors: ARGUMENT. */
hd_status hdi_tensor_check_form(const hd_tensor *t, const char *which, uint64_t *elements);

/* Gets the bytes that elements take in front of the element with all indices 0, and from this
 * element on. The form is not empty. False: a number does not fit into 64 bits. */
bool hdi_tensor_reach(const hd_tensor *t, uint64_t *before, uint64_t *behind);

/* Sets row-major strides. A dimension of size 0 counts as one element here, so that an empty tensor
 * also gets strides. False: a stride overflows. */
bool hdi_tensor_set_row_major(hd_tensor *t);

/* Writes "f32 [3, 4, 5]" for messages, and returns `out`. */
#define HDI_TENSOR_TEXT_BYTES 224
const char *hdi_tensor_text(const hd_tensor *t, char out[HDI_TENSOR_TEXT_BYTES]);

/* Gets the bytes of a row-major tensor of this form, which was checked. False: 2^63 or more. */
bool hdi_tensor_bytes(const hd_tensor *t, uint64_t *bytes);

/* A row-major tensor of the same form at the beginning of a buffer. It takes fewer than 2^63
 * bytes. */
hd_tensor hdi_tensor_row_major(const hd_tensor *like, hd_buffer *buffer);

/* hd_tensor_broadcast without messages, for a form that was checked. False: the shapes do not
 * fit. */
bool hdi_tensor_broadcast_to(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);

/* ---- elements that share bytes: the tensors passed hdi_tensor_check and are not empty ---- */

/* True if elements of the tensor may share bytes. Sorts the strides by size. If each stride is at
 * least the span of the smaller ones, the result is false. This is the case for all slices,
 * permutations and reshapes of a contiguous tensor. With all other strides the result is true, even
 * if no elements share bytes (for example strides of 2 and 3 bytes with two indices each). */
bool hdi_tensor_repeats(const hd_tensor *t);

/* True if one of two quick tests shows that no element of `a` shares bytes with an element of `b`
 * in the same buffer:
 * - the ranges from first to last element are apart
 * - the elements are side by side in each period of a common pitch, as the left and the right half
 *   of a matrix are */
bool hdi_tensors_apart(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b, const hdi_extent *b_extent);

/* True if an element of `a` may share bytes with an element of `b`. No elements of `a` share bytes
 * with each other. `b` has the shape of `a` and lies in the same buffer.
 * The result is exact in three cases; in all other cases it is true:
 * - hdi_tensors_apart returns true
 * - the strides are the same (shifted views)
 * - a common divisor of all strides keeps the elements apart (even and odd columns, real and
 *   imaginary parts) */
bool hdi_tensors_overlap(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b,
                         const hdi_extent *b_extent);

/* ---- copy.c ---- */

/* Allocates temporary device memory for elements. Errors: as hd_alloc. */
hd_status hdi_tensor_scratch(hdi_device *device, uint64_t bytes, hd_buffer **out);

#endif
