/* heddle/tensor.h - shapes and strides over buffers.
 *
 * A tensor is a plain value: a buffer, the offset of its first element, an element type, a shape
 * and strides. A stride is the distance in bytes from one element to the next in a dimension.
 * Slicing, permuting, transposing and broadcasting make another value over the same bytes and touch
 * none of them; nothing needs to be freed. A tensor does not own its buffer: the code that
 * allocated it frees it. Dimension 0 is the slowest in a tensor made without strides (row-major, as
 * in C). Strides may be 0 (broadcast) or negative.
 *
 * Functions that make a tensor from another check everything and call no driver. Those that move
 * elements are asynchronous. They are ordered like every operation on the buffers
 * (heddle/buffer.h), as users of all bytes between their first and last element.
 *
 * Threads: any.
 * Blocking: hd_tensor_alloc, as hd_alloc; hd_tensor_write and hd_tensor_read, as hd_write and
 * hd_read. hd_tensor_copy and hd_tensor_matmul do not wait for their elements. They may wait for
 * room in a full lane, for temporary memory, and until kernels or a library are loaded.
 * hd_matmul_get_info waits for the library. All other calls return at once.
 */
#ifndef HEDDLE_TENSOR_H
#define HEDDLE_TENSOR_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

#define HD_TENSOR_DIMS 8 /* most dimensions of a tensor */

/* The type of an element. */
typedef enum hd_type {
    HD_TYPE_I8 = 1,
    HD_TYPE_U8,
    HD_TYPE_I16,
    HD_TYPE_U16,
    HD_TYPE_I32,
    HD_TYPE_U32,
    HD_TYPE_I64,
    HD_TYPE_U64,
    HD_TYPE_F16,
    HD_TYPE_BF16,
    HD_TYPE_F32,
    HD_TYPE_F64,
    HD_TYPE_C64, /* complex: two f32 */
    HD_TYPE_C128 /* complex: two f64 */
} hd_type;

/* Returns the bytes of an element; 0 for an invalid type. */
HD_API size_t hd_type_size(hd_type type);
/* Returns "f32" and the like, "?" for an invalid type; a static string. */
HD_API const char *hd_type_name(hd_type type);

/* A tensor: a view of elements in a buffer. */
typedef struct hd_tensor {
    hd_buffer *buffer; /* not owned */
    size_t offset;     /* bytes, to the element with all indices 0 */
    hd_type type;
    int dims; /* 0 (one element) to HD_TENSOR_DIMS */
    uint64_t shape[HD_TENSOR_DIMS];
    int64_t stride[HD_TENSOR_DIMS]; /* bytes */
} hd_tensor;

/* Makes a row-major tensor over `buffer`, from `offset` on. A shape with a 0 in it has no elements.
 * Errors: ARGUMENT (type, dims, overflow), HANDLE, DEVICE_LOST, RANGE (the buffer is too small). */
HD_API hd_status hd_tensor_make(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                                hd_tensor *out);

/* hd_tensor_make with strides in bytes. Offsets and strides need not be multiples of the element's
 * size, but kernels that use the elements as numbers (hd_tensor_matmul) require that. Errors: as
 * hd_tensor_make. */
HD_API hd_status hd_tensor_make_strided(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                                        const int64_t *stride, hd_tensor *out);

/* Makes a row-major tensor in a buffer of its own, on the lane's device: hd_free(out->buffer).
 * Errors: as hd_tensor_make and hd_alloc. */
HD_API hd_status hd_tensor_alloc(hd_lane *lane, hd_type type, int dims, const uint64_t *shape, hd_tensor *out);

/* ---- other views of the same elements; `out` may be `t` ---- */

/* Selects `count` elements first, first + step, ... of dimension `dim`; step may be negative.
 * Errors: ARGUMENT, RANGE. */
HD_API hd_status hd_tensor_slice(const hd_tensor *t, int dim, uint64_t first, uint64_t count, int64_t step,
                                 hd_tensor *out);
/* Reorders dimensions: dimension i of the result is dimension order[i]. `order` contains each
 * dimension once. Errors: ARGUMENT. */
HD_API hd_status hd_tensor_permute(const hd_tensor *t, const int *order, hd_tensor *out);
/* Swaps two dimensions. Errors: ARGUMENT. */
HD_API hd_status hd_tensor_transpose(const hd_tensor *t, int a, int b, hd_tensor *out);
/* Repeats elements: adds dimensions in front, and grows dimensions of size 1 to `shape`. Errors:
 * ARGUMENT. */
HD_API hd_status hd_tensor_broadcast(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);
/* Views the same elements in row-major order with another shape, if the strides allow it without
 * moving any.
 * Errors: ARGUMENT (other number of elements, or the elements would have to be moved). */
HD_API hd_status hd_tensor_reshape(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);

/* Returns the number of elements; 0 for an invalid tensor. */
HD_API uint64_t hd_tensor_elements(const hd_tensor *t);
/* True if the elements lie next to each other in row-major order. False for an invalid tensor. */
HD_API bool hd_tensor_is_contiguous(const hd_tensor *t);

/* ---- moving elements ---- */

/* Copies the elements of src to dst, whatever the layouts and wherever they are. Types must be
 * equal. The shape of src must be that of dst, or broadcast to it. No two elements of dst may share
 * bytes (stride 0, or overlapping strides). dst must not overlap src. Asynchronous, in copy lanes;
 * *out (may be NULL) is the ticket of the last part. Takes temporary device memory if the devices
 * cannot reach each other's memory and a layout must change.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS (a unified buffer is mapped for writing), FAILED,
 * DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT, SYSTEM, IMAGE (the driver does not take the
 * built-in kernels). */
HD_API hd_status hd_tensor_copy(const hd_tensor *dst, const hd_tensor *src, hd_ticket *out);

/* Writes src, row-major elements in the program's memory, to a tensor, and reads one into the
 * program's memory, like hd_write and hd_read.
 * Errors: as hd_tensor_copy; ARGUMENT (also: the memory is a part of the tensor's own bytes, of
 * pinned memory). */
HD_API hd_status hd_tensor_write(const hd_tensor *dst, const void *src);
HD_API hd_status hd_tensor_read(const hd_tensor *src, void *dst);

/* Computes c = alpha a b + beta c for each matrix of the batch. The last two dimensions are rows
 * and columns. Those before them are the batch, for which a and b may be broadcast. Transposed
 * operands are given by their strides.
 *   - Types f16, bf16, f32, f64, c64, c128, the same for all three. Sums of f16 and bf16 are made
 *     in f32. alpha and beta are real.
 *   - With beta 0 the content of c does not matter. With alpha 0 the content of a and b does not
 *     matter.
 *   - Runs in `lane`. The lane's device must reach all buffers.
 *   - cuBLAS or an installed CPU library computes it if one can be opened (option blas), a built-in
 *     kernel otherwise.
 *   - Large operands whose strides a library does not take are first copied to temporary device
 *     memory, in copy lanes. A large c of that kind is copied from there afterwards, in copy lanes,
 *     too. Then *out is the ticket of that copy.
 *   - Asynchronous. The first product in a lane opens the library there, which takes long.
 * Errors: ARGUMENT (shapes, types, strides that are no multiple of the element's size, c overlaps a
 * or b), HANDLE, RANGE, ACCESS, UNREACHABLE, OPTION (blas names a library that does not open),
 * LANE_FAILED, FAILED, DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT, SYSTEM, IMAGE. */
HD_API hd_status hd_tensor_matmul(hd_lane *lane, const hd_tensor *c, const hd_tensor *a, const hd_tensor *b,
                                  double alpha, double beta, hd_ticket *out);

/* The library that computes matrix products: hd_matmul_get_info. */
typedef struct hd_matmul_info {
    size_t size;      /* set by the caller to sizeof(hd_matmul_info) */
    char library[64]; /* "cublas 13.0", "openblas", "built-in" */
    char reason[448]; /* why it is no other one; "" without a reason */
} hd_matmul_info;

/* Names the library that computes the matrix products of this lane. Opens it if that was not done,
 * which takes long.
 * Errors: ARGUMENT, HANDLE, OPTION, DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER. */
HD_API hd_status hd_matmul_get_info(hd_lane *lane, hd_matmul_info *out);

HD_END_DECLS
#endif
