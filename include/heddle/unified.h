/* heddle/unified.h - buffers that the CPU and the GPU both use.
 *
 * A unified buffer has memory on its device and pinned memory in the program, and Heddle moves what is newer to where it is needed.
 * For a device that is ahead of the operation that uses it, in that operation's lane. For the host it is at hd_map and element access.
 * So kernels run at the speed of device memory, the CPU reads at the speed of its own, and it works in every placement.
 * Heddle moves chunks, and only those that are used and are newer elsewhere.
 * A buffer has at most 64 of them, of 64 KiB or a larger power of two. What an operation overwrites completely is not moved for it.
 *
 * hd_map brings all of the buffer, whatever the access: HD_WRITE keeps what the program does not overwrite. From a hd_map for
 * writing until the last hd_unmap no operation may use the buffer: ACCESS. Mapped for reading, operations may read it.
 *
 * A copy that fails is made again at the next use that needs it.
 * Bytes that a failed operation should have written are bad for the host as they are for devices, with the rest of their chunk.
 * They are good again once hd_write, hd_fill, hd_copy or a kernel writes them.
 * hd_buffer_address is that of the device memory; work outside Heddle that uses it does not see what is newer on the host.
 * A unified buffer of a lost device is lost, as any.
 */
#ifndef HEDDLE_UNIFIED_H
#define HEDDLE_UNIFIED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Allocates a unified buffer whose device memory is on the lane's device, owned by the caller: hd_free. The content is
 * undefined. Everything that takes a buffer takes it. Errors: as hd_alloc, and those of hd_alloc_host. */
HD_API hd_status hd_alloc_unified(hd_lane *lane, size_t bytes, hd_buffer **out);

/* A host pointer to `bytes` bytes at `offset` of a unified or pinned buffer, for one access by this thread, now.
 * For reading (HD_READ), submitted writers are finished then and their bytes are here. For writing, readers are finished, too. Costs a few
 * loads once nothing is pending; else waits (option transfer_timeout). NULL on failure, with hd_message set: ARGUMENT,
 * HANDLE, RANGE, ACCESS (device memory: use hd_read or hd_alloc_unified), TIMEOUT, FAILED, DEVICE_LOST, HOST_MEMORY.
 * The pointer is good until the next operation that uses the buffer is submitted. */
HD_API void *hd_element(hd_buffer *buffer, size_t offset, size_t bytes, hd_access access);

/* One element, by its index: false on failure, with hd_message set. */
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
