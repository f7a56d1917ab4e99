/* heddle/unified.h - buffers that the CPU and the GPU both use.
 *
 * A unified buffer uses memory on its device and pinned memory in the program. Heddle moves newer
 * bytes to the place that needs them. It moves them to a device ahead of the operation that uses
 * them, in a lane of Heddle. It moves them to the host at hd_map and element access. So kernels run
 * at the speed of device memory, and the CPU reads at the speed of its own memory, in every
 * placement. Heddle moves only chunks that are used and are newer elsewhere. A buffer has at most
 * 64 chunks, of 64 KiB or a larger power of two. Heddle does not move bytes that an operation
 * overwrites completely.
 *
 * hd_map brings all of the buffer, whatever the access: HD_WRITE keeps bytes that the program does
 * not overwrite. From a hd_map for writing until the last hd_unmap no operation may use the buffer:
 * ACCESS. While it is mapped for reading, operations may read it.
 *
 * A copy that fails is repeated at the next use that needs it. Bytes that a failed operation should
 * have written are bad for the host and for devices, with the rest of their chunk. They are good
 * again once hd_write, hd_fill, hd_copy or a kernel writes them. hd_buffer_address returns the
 * address of the device memory. Work outside Heddle that uses it does not see newer bytes of the
 * host. A unified buffer of a lost device is lost, like any other.
 *
 * Threads: any.
 * Blocking: hd_alloc_unified, as hd_alloc and hd_alloc_host. hd_element and the functions for
 * single elements wait for work and for their bytes (option transfer_timeout).
 */
#ifndef HEDDLE_UNIFIED_H
#define HEDDLE_UNIFIED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Allocates a unified buffer whose device memory is on the lane's device, owned by the caller:
 * hd_free. The content is undefined. Every call that takes a buffer takes it. Errors: as hd_alloc
 * and hd_alloc_host. */
HD_API hd_status hd_alloc_unified(hd_lane *lane, size_t bytes, hd_buffer **out);

/* Returns a host pointer to `bytes` bytes at `offset` of a unified or pinned buffer, for one access
 * by this thread, now. For reading (HD_READ), submitted writers are finished then and their bytes
 * are here. For writing, readers are finished, too. Costs a few loads if nothing is pending; else
 * waits (option transfer_timeout). The pointer is valid until the next operation that uses the
 * buffer is submitted. NULL on failure: hd_last_error gives the status.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS (device memory: use hd_read or hd_alloc_unified),
 * TIMEOUT, FAILED, DEVICE_LOST, HOST_MEMORY. */
HD_API void *hd_element(hd_buffer *buffer, size_t offset, size_t bytes, hd_access access);

/* One element, by its index. These return a bool and no status: true is success, unlike the 0 of
 * HD_OK. On failure they return false, with hd_message set, and change nothing. */
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
