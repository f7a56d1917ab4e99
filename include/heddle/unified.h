/* heddle/unified.h - buffers that the CPU and the GPU both use.
 *
 * A unified buffer consists of memory on its device and as much pinned memory of the host. Heddle
 * moves newer bytes to the side that needs them. Before an operation on the device, Heddle moves
 * newer bytes from the host to the device, in a lane of the library. If the program calls hd_map or
 * accesses an element, Heddle moves newer bytes from the device to the host. In every placement,
 * kernels therefore run at the speed of device memory, and the CPU reads at the speed of its own
 * memory.
 *
 * Heddle moves whole chunks of a buffer. The size of a chunk is a power of two of at least 64 KiB,
 * and a buffer consists of at most 64 chunks. Heddle moves a chunk only if one side needs the chunk
 * and its bytes are newer on the other side. If an operation overwrites a chunk completely, Heddle
 * does not move the chunk.
 *
 * hd_map moves the whole buffer to the host, even for writing, so bytes that the program does not
 * overwrite stay as they were. From an hd_map for writing until the last hd_unmap, every operation
 * that uses the buffer fails with ACCESS. While the buffer is mapped only for reading, operations
 * may read it, but operations that write it fail with ACCESS.
 *
 * If a move of bytes fails, Heddle repeats the move at the next use of these bytes. If an operation
 * that writes the buffer fails, later reads of the written chunks also fail, on the host and on
 * devices. The program can read bytes again after hd_write, hd_fill, hd_copy or a kernel wrote
 * these bytes.
 *
 * hd_buffer_address returns the address of the device memory. If work outside of Heddle uses this
 * address, this work does not see newer bytes of the host. A unified buffer of a lost device is
 * lost, like any other buffer.
 *
 * Threads: any.
 * Blocking: hd_alloc_unified waits as hd_alloc and hd_alloc_host do. hd_element and the functions
 * for single elements wait for work, and until their bytes are on the host (option
 * transfer_timeout).
 */
#ifndef HEDDLE_UNIFIED_H
#define HEDDLE_UNIFIED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Allocates a unified buffer whose device memory is on the lane's device. The caller owns the
 * buffer and frees it with hd_free. `bytes` is the buffer's size. Its content is undefined. Every
 * call that takes a buffer also takes a unified buffer. Errors: as hd_alloc and hd_alloc_host. */
HD_API hd_status hd_alloc_unified(hd_lane *lane, size_t bytes, hd_buffer **out);

/* Returns a host pointer to bytes of a unified or pinned buffer, for one access by the calling
 * thread. The bytes begin at `offset`, and `bytes` is their number. The pointer is valid until a
 * thread submits the next operation that uses the buffer. The call waits for the submitted work
 * that writes the bytes. If the bytes are newer on the device, the call moves them to the host. If
 * `access` includes HD_WRITE, the call also waits for the submitted work that reads the bytes. If
 * there is nothing to wait for or to move, the call costs a few loads. The option transfer_timeout
 * limits the waits. On failure the call returns NULL, and hd_last_error gives the status.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS (device memory: use hd_read or hd_alloc_unified),
 * TIMEOUT, FAILED, DEVICE_LOST, HOST_MEMORY. */
HD_API void *hd_element(hd_buffer *buffer, size_t offset, size_t bytes, hd_access access);

/* Read an element by its index (hd_get_f32 and so on), or write it (hd_put_f32 and so on). Like
 * hd_element, whose pointer is NULL on failure, these functions return no status: they return true
 * on success, whereas HD_OK is 0. On failure they return false, set hd_message, and change nothing;
 * hd_last_error gives the status. */
#define HD_ELEMENT_FUNCTIONS(NAME, TYPE)                                                                               \
    static inline bool hd_get_##NAME(hd_buffer *buffer, size_t index, TYPE *out)                                       \
    {                                                                                                                  \
        const void *at = index <= SIZE_MAX / sizeof(TYPE)                                                              \
                             ? hd_element(buffer, index * sizeof(TYPE), sizeof(TYPE), HD_READ)                         \
                             : hd_element(buffer, SIZE_MAX, 1, HD_READ);                                               \
        if (at) {                                                                                                      \
            memcpy(out, at, sizeof(TYPE));                                                                             \
        }                                                                                                              \
        return at != NULL;                                                                                             \
    }                                                                                                                  \
    static inline bool hd_put_##NAME(hd_buffer *buffer, size_t index, TYPE value)                                      \
    {                                                                                                                  \
        void *at = index <= SIZE_MAX / sizeof(TYPE)                                                                    \
                       ? hd_element(buffer, index * sizeof(TYPE), sizeof(TYPE), HD_READ_WRITE)                         \
                       : hd_element(buffer, SIZE_MAX, 1, HD_READ_WRITE);                                               \
        if (at) {                                                                                                      \
            memcpy(at, &value, sizeof(TYPE));                                                                          \
        }                                                                                                              \
        return at != NULL;                                                                                             \
    }
HD_ELEMENT_FUNCTIONS(f32, float)
HD_ELEMENT_FUNCTIONS(f64, double)
HD_ELEMENT_FUNCTIONS(i32, int32_t)
HD_ELEMENT_FUNCTIONS(u32, uint32_t)
HD_ELEMENT_FUNCTIONS(i64, int64_t)
HD_ELEMENT_FUNCTIONS(u64, uint64_t)
HD_ELEMENT_FUNCTIONS(i8, int8_t)
HD_ELEMENT_FUNCTIONS(u8, uint8_t)
#undef HD_ELEMENT_FUNCTIONS

HD_END_DECLS
#endif
