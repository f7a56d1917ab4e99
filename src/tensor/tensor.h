/* tensor.h - checks of tensors, and small functions that the files of the tensor layer share.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: none.
 * Always: a tensor is the program's own value and may contain anything. So its fields are used only after one of the
 * checks below.
 */
#ifndef HDI_TENSOR_TENSOR_H
#define HDI_TENSOR_TENSOR_H

#include <heddle/tensor.h>
#include "buffer/buffer.h"

/* Where a tensor lies: its buffer, and the bytes [low, high) that hold its elements. low == high without elements. */
typedef struct hdi_extent {
    struct hd_buffer *buffer;
    uint64_t low, high;
    uint64_t elements;
} hdi_extent;

/* Checks type, dimensions and the number of elements, which is less than 2^63. Does not check the buffer. Errors:
 * ARGUMENT. */
hd_status hdi_tensor_check_form(const hd_tensor *t, const char *which, uint64_t *elements);

/* Checks the form, and that the buffer is live and holds all elements. `which` names the tensor in messages ("dst").
 * Errors: ARGUMENT (also for a null `t`), HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_tensor_check(const hd_tensor *t, const char *which, hdi_extent *out);

/* Writes "f32 [3, 4, 5]" for messages, and returns `out`. */
#define HDI_TENSOR_TEXT_BYTES 224
const char *hdi_tensor_text(const hd_tensor *t, char out[HDI_TENSOR_TEXT_BYTES]);

/* The bytes of a row-major tensor of this form, which has been checked. False: 2^63 or more. */
bool hdi_tensor_bytes(const hd_tensor *t, uint64_t *bytes);

/* A row-major tensor of the same form at the beginning of a buffer. It has fewer than 2^63 bytes. */
hd_tensor hdi_tensor_row_major(const hd_tensor *like, hd_buffer *buffer);

/* The absolute value of a stride. */
static inline uint64_t hdi_stride_size(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

/* hd_tensor_broadcast without messages, for a form that has been checked. False: the shapes do not fit. */
bool hdi_tensor_broadcast_to(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);

#endif
