/* overlap.h - whether elements share bytes: of one tensor with each other, of two in one buffer. Pure functions of sound tensors that have
 * elements; any thread. */
#ifndef HDI_TENSOR_OVERLAP_H
#define HDI_TENSOR_OVERLAP_H

#include "tensor/tensor.h"

/* Whether the tensor may hold an element twice, or elements that share bytes. No: sorted by size, each stride is at least what the
 * smaller ones span, which is so for everything that slices, permutes and reshapes of a contiguous tensor make. Other strides, of which some
 * (2 and 3 bytes with two indices each, say) would do, count as overlapping. */
bool hdi_tensor_repeats(const hd_tensor *t);

/* Whether no element of `a` shares bytes with one of `b` in the same buffer for a reason that needs no look at each: the bytes from first to last
 * element are apart, or, like the halves of a matrix's columns, the elements lie side by side in each period of a common pitch. */
bool hdi_tensors_apart(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b, const hdi_extent *b_extent);

/* Whether an element of `a`, which does not repeat itself, may share bytes with one of `b`, which has the same shape and lies in the same
 * buffer. Exact where they are apart as above, where the strides are the same (shifted views), and where all strides have a common divisor that
 * keeps the elements apart (even and odd columns, real and imaginary parts). Else: yes. */
bool hdi_tensors_overlap(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b,
                         const hdi_extent *b_extent);

#endif
