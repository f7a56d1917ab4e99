/* overlap.h - whether elements share bytes: the elements of one tensor, or those of two tensors in one buffer. The
 * tensors have passed hdi_tensor_check and have elements.
 *
 * Threads: any; pure functions.
 * Locks: none.
 * Blocking: none.
 */
#ifndef HDI_TENSOR_OVERLAP_H
#define HDI_TENSOR_OVERLAP_H

#include "tensor/tensor.h"

/* Whether elements of the tensor may share bytes. Sorts the strides by size. If each stride is at least the span of the
 * smaller ones, the result is false. That holds for all slices, permutations and reshapes of a contiguous tensor. All
 * other strides count as overlapping, even if no elements do (2 and 3 bytes with two indices each). */
bool hdi_tensor_repeats(const hd_tensor *t);

/* Whether a quick test shows that no element of `a` shares bytes with one of `b` in the same buffer. There are two such
 * tests:
 * - the ranges from first to last element are apart
 * - the elements are side by side in each period of a common pitch, as the left and the right half of a matrix are */
bool hdi_tensors_apart(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b, const hdi_extent *b_extent);

/* Whether an element of `a` may share bytes with one of `b`. `a` does not repeat itself. `b` has the same shape and
 * lies in the same buffer.
 * The result is exact in three cases; otherwise it is true:
 * - hdi_tensors_apart returns true
 * - the strides are the same (shifted views)
 * - a common divisor of all strides keeps the elements apart (even and odd columns, real and imaginary parts) */
bool hdi_tensors_overlap(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b,
                         const hdi_extent *b_extent);

#endif
