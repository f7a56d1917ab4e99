/* form.h - functions that exports and imports share: they translate element types, shapes and
 * strides between DLPack and Heddle.
 *
 * Threads: any. Locks: none. Blocking: none.
 * Always: the pointers in a tensor of another library must be good, but all other fields may
 * contain anything. So these functions check the fields before Heddle uses them.
 */
#ifndef HDI_DLPACK_FORM_H
#define HDI_DLPACK_FORM_H

#include <heddle/dlpack.h>
#include "dlpack/layout.h"

/* Writes type, shape and strides of a tensor that passed hdi_tensor_check. `as_bool`: elements of
 * type u8 are bool. `shape` and `strides` can hold HD_TENSOR_DIMS numbers. Errors: ARGUMENT (a
 * stride is no multiple of the element's size, no u8 for bool, a dimension of 2^63 or more). */
hd_status hdi_dlpack_write_form(const hd_tensor *t, bool as_bool, int64_t *shape, int64_t *strides,
                                hdi_dlpack_tensor *out);

/* Reads type, shape and strides; the strides in *out count bytes. Leaves buffer and offset
 * unchanged. If the tensor contains no strides, they become row-major. *elements: the number of
 * elements.
 * Errors: ARGUMENT (null, negative, too large), UNSUPPORTED (a type or a number of dimensions that
 * no hd_tensor can have). */
hd_status hdi_dlpack_read_form(const hdi_dlpack_tensor *from, hd_tensor *out, uint64_t *elements);

/* Checks the stream of an export or import. `is_of_gpu`: the CPU cannot use the memory. Errors:
 * ARGUMENT. */
hd_status hdi_dlpack_check_stream(int64_t stream, bool is_of_gpu);

/* Checks the options, which may be NULL, and fills in the missing ones. `known`: the flags that the
 * call accepts. Errors: ARGUMENT. */
hd_status hdi_dlpack_take_options(const hd_dlpack_options *options, unsigned known, hd_dlpack_options *out);

#endif
