/* heddle/tensor.h - shapes and strides over buffers.
 *
 * A tensor is a plain value: a buffer, the offset of its first element, an element type, a shape
 * and strides. A stride is the distance in bytes from one element to the next in a dimension.
 * Slicing, permuting, transposing and broadcasting make another value over the same bytes. These
 * calls move no bytes, and the program need not free the new value. A tensor does not own its
 * buffer: the code that allocated the buffer frees the buffer. A tensor made without strides is
 * row-major, as in C: neighbours in the last dimension lie next to each other. Strides may be 0
 * (broadcast) or negative.
 *
 * Functions that make a tensor from another one check their arguments, and do not call the driver.
 * hd_tensor_copy and hd_tensor_matmul submit work. Heddle orders this work like every operation
 * (heddle/buffer.h), as if it used all bytes from a tensor's first element to its last element.
 *
 * Threads: any.
 * Blocking: hd_tensor_alloc waits as hd_alloc does, hd_tensor_write as hd_write, and hd_tensor_read
 * as hd_read. hd_tensor_copy and hd_tensor_matmul do not wait for their elements. These two calls
 * may wait for room in a full lane, for temporary memory, and until kernels or a library are
 * loaded. hd_matmul_get_info waits until the library is loaded. All other calls return at once.
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
/* Returns the name of a type, such as "f32"; "?" for an invalid type. The string is static. */
HD_API const char *hd_type_name(hd_type type);

/* A tensor: a view of elements in a buffer. */
typedef struct hd_tensor {
    hd_buffer *buffer; /* not owned */
    size_t offset;     /* in bytes, of the element with all indices 0 */
    hd_type type;
    int dims; /* 0 (one element) to HD_TENSOR_DIMS */
    uint64_t shape[HD_TENSOR_DIMS];
    int64_t stride[HD_TENSOR_DIMS]; /* bytes */
} hd_tensor;

/* Makes a row-major tensor over `buffer`. The tensor's first element is at byte `offset`. `shape`
 * contains the extents of `dims` dimensions. If an extent is 0, the tensor contains no elements.
 * Errors: ARGUMENT (type, dims, overflow), HANDLE, DEVICE_LOST, RANGE (the buffer is too small). */
HD_API hd_status hd_tensor_make(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                                hd_tensor *out);

/* Makes a tensor as hd_tensor_make does, with `dims` strides in bytes. Offset and strides may be
 * any numbers of bytes. But kernels that compute with the elements, such as those of
 * hd_tensor_matmul, need multiples of the element's size. Errors: as hd_tensor_make. */
HD_API hd_status hd_tensor_make_strided(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                                        const int64_t *stride, hd_tensor *out);

/* Makes a row-major tensor in a new buffer on the lane's device. The caller owns the buffer, and
 * frees it with hd_free(out->buffer).
 * Errors: as hd_tensor_make and hd_alloc. */
HD_API hd_status hd_tensor_alloc(hd_lane *lane, hd_type type, int dims, const uint64_t *shape, hd_tensor *out);

/* ---- other views of the same elements; `out` may be `t` ---- */

/* Selects `count` indices of dimension `dim`: `first`, first + step and so on. `step` may be
 * negative.
 * Errors: ARGUMENT, RANGE. */
HD_API hd_status hd_tensor_slice(const hd_tensor *t, int dim, uint64_t first, uint64_t count, int64_t step,
                                 hd_tensor *out);
/* Reorders dimensions: dimension i of the result is dimension order[i]. `order` contains each
 * dimension once. Errors: ARGUMENT. */
HD_API hd_status hd_tensor_permute(const hd_tensor *t, const int *order, hd_tensor *out);
/* Swaps two dimensions. Errors: ARGUMENT. */
HD_API hd_status hd_tensor_transpose(const hd_tensor *t, int a, int b, hd_tensor *out);
/* Repeats elements until the shape is `shape`. The call adds dimensions in front, and repeats
 * dimensions of extent 1. Errors: ARGUMENT. */
HD_API hd_status hd_tensor_broadcast(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);
/* Gives the elements another shape, and keeps their row-major order. The call succeeds only if no
 * element must move.
 * Errors: ARGUMENT (other number of elements, or the elements would have to be moved). */
HD_API hd_status hd_tensor_reshape(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out);

/* Returns the number of elements; 0 for an invalid tensor. */
HD_API uint64_t hd_tensor_elements(const hd_tensor *t);
/* True if the elements lie next to each other in row-major order. False for an invalid tensor. */
HD_API bool hd_tensor_is_contiguous(const hd_tensor *t);

/* ---- moving elements ---- */

/* Copies the elements of `src` to `dst`. Both tensors may have any shape and strides, and be on any
 * devices or in pinned memory. Their types must be equal. The shape of `src` must equal the shape
 * of `dst`, or broadcast to it. No two elements of `dst` may share bytes, and `dst` must not
 * overlap `src`. The call is asynchronous. The copy runs in lanes of the library, and *out (may be
 * NULL) is the ticket of its last part. If the devices cannot reach each other's memory, and the
 * order of elements in memory must change, the call takes temporary device memory.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS (a unified buffer is mapped, see heddle/unified.h),
 * FAILED, DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT, SYSTEM, IMAGE (the driver refuses
 * Heddle's own kernels). */
HD_API hd_status hd_tensor_copy(const hd_tensor *dst, const hd_tensor *src, hd_ticket *out);

/* Copy the elements of a tensor from or to the program's memory, in row-major order.
 * hd_tensor_write works like hd_write, and hd_tensor_read like hd_read.
 * Errors: as hd_tensor_copy; ARGUMENT (also: the tensor is pinned memory, and the program's memory
 * overlaps its bytes). */
HD_API hd_status hd_tensor_write(const hd_tensor *dst, const void *src);
HD_API hd_status hd_tensor_read(const hd_tensor *src, void *dst);

/* Computes c = alpha a b + beta c for each matrix of a batch. The last two dimensions of each
 * tensor are rows and columns. The dimensions before them are the batch. The batch dimensions of
 * `a` and `b` may broadcast to those of `c`. To transpose an operand, pass the result of
 * hd_tensor_transpose.
 *   - All three tensors have the same type: f16, bf16, f32, f64, c64 or c128. For f16 and bf16,
 *     Heddle computes the sums in f32. alpha and beta are real numbers.
 *   - If beta is 0, the earlier content of c does not affect the result. If alpha is 0, the content
 *     of a and b does not affect the result.
 *   - The product runs in `lane`. The lane's device must reach all buffers.
 *   - cuBLAS or an installed CPU library computes the product (option blas). If neither can be
 *     opened, a kernel of Heddle computes the product.
 *   - If the library does not take the strides of an operand, and the product has at least 64 rows,
 *     columns and terms in each sum, the call first copies the operand. The copy goes to temporary
 *     device memory, in lanes of Heddle. If the operand is `c`, a second copy moves the result to
 *     `c`, and *out is the ticket of this second copy. If the product is smaller, a kernel of
 *     Heddle computes it without such copies.
 *   - The call is asynchronous. *out (may be NULL) is the ticket of the product. The first product
 *     in a lane opens the library for that lane, which takes long.
 * Errors: ARGUMENT (shapes, types, strides that are no multiple of the element's size, c overlaps a
 * or b), HANDLE, RANGE, ACCESS, UNREACHABLE, OPTION (blas names a library that does not open),
 * LANE_FAILED, FAILED, DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT, SYSTEM, IMAGE. */
HD_API hd_status hd_tensor_matmul(hd_lane *lane, const hd_tensor *c, const hd_tensor *a, const hd_tensor *b,
                                  double alpha, double beta, hd_ticket *out);

/* The library that computes matrix products: hd_matmul_get_info. */
typedef struct hd_matmul_info {
    size_t size;      /* set by the caller to sizeof(hd_matmul_info) */
    char library[64]; /* "cublas 13.0", "openblas", "built-in" */
    char reason[448]; /* why the lane uses this library; "": no reason */
} hd_matmul_info;

/* Names the library that computes the matrix products of a lane. If the library is not open for
 * this lane, this call opens it, which takes long.
 * Errors: ARGUMENT, HANDLE, OPTION, DEVICE_LOST, MEMORY, HOST_MEMORY, DRIVER. */
HD_API hd_status hd_matmul_get_info(hd_lane *lane, hd_matmul_info *out);

HD_END_DECLS
#endif
