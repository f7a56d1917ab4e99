/* tensor.h - what the parts of the tensor layer share: looking at a tensor before anything is done with it.
 *
 * Threads: any. Locks: none. A tensor is the program's own value and may hold anything: nothing in it is relied on before one of the
 * calls below has said that it is sound.
 */
#ifndef HDI_TENSOR_TENSOR_H
#define HDI_TENSOR_TENSOR_H

#include <heddle/tensor.h>
#include "data/buffer.h"

/* Where a tensor lies: its buffer, and the bytes [low, high) that hold elements. No elements: low == high. */
typedef struct hdi_extent {
    struct hd_buffer *buffer;
    uint64_t low, high;
    uint64_t elements;
} hdi_extent;

/* Type, dimensions, number of elements (less than 2^63). Says nothing of the buffer. Errors: ARGUMENT. */
hd_status hdi_tensor_check_form(const hd_tensor *t, const char *who, const char *which, uint64_t *elements);

/* The same, and that the buffer is live and holds all elements; `which`: "dst" and the like, for messages. A null `t` is an ARGUMENT.
 * Errors: ARGUMENT, HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_tensor_check(const hd_tensor *t, const char *who, const char *which, hdi_extent *out);

/* "f32 [3, 4, 5]", for messages. */
#define HDI_TENSOR_TEXT_BYTES 224
const char *hdi_tensor_text(const hd_tensor *t, char out[HDI_TENSOR_TEXT_BYTES]);

/* The bytes of a row-major tensor of this form; the form is sound. False: 2^63 or more. */
bool hdi_tensor_bytes(const hd_tensor *t, uint64_t *bytes);

/* The same form in row-major order from a buffer's beginning on; its bytes are fewer than 2^63. */
hd_tensor hdi_tensor_row_major(const hd_tensor *like, hd_buffer *buffer);

/* How far a stride leads, in either direction. */
static inline uint64_t hdi_stride_size(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

/* What hd_tensor_broadcast does, for a form that is sound, without a message. False: the shapes do not fit. */
bool hdi_tensor_broadcast_to(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);

#endif
