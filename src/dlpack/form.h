/* form.h - functions that exports and imports share: element types, shapes and strides, in both
 * forms.
 *
 * Threads: any. Locks: none. Blocking: nothing.
 * Always: a tensor of another library may contain anything but bad pointers. So its fields are used
 * only after these checks.
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

/* Reads type, shape and strides, in bytes; leaves buffer and offset unchanged. Without strides they
 * are row-major. *elements: their number.
 * Errors: ARGUMENT (null, negative, too large), UNSUPPORTED (a type or a number of dimensions that
 * no hd_tensor can have). */
hd_status hdi_dlpack_read_form(const hdi_dlpack_tensor *from, hd_tensor *out, uint64_t *elements);

/* Checks the stream of an export or import. `is_of_gpu`: the CPU cannot use the memory. Errors:
 * ARGUMENT. */
hd_status hdi_dlpack_check_stream(int64_t stream, bool is_of_gpu);

/* Checks options, which may be NULL, and fills in missing ones. `known`: flags that the call
 * accepts. Errors: ARGUMENT. */
hd_status hdi_dlpack_take_options(const hd_dlpack_options *options, unsigned known, hd_dlpack_options *out);

#endif
