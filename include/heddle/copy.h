/* heddle/copy.h - moving and filling bytes.
 *
 * Copies run in lanes of their own on each device, so they overlap kernels and each other; they are ordered against
 * other work by the buffers' use records alone. Sizes and offsets are in bytes. A copy of zero bytes does nothing and
 * succeeds. Where a call waits for earlier work, the option transfer_timeout limits it (TIMEOUT), and the option
 * submit_timeout limits the wait for room in a full lane.
 */
#ifndef HEDDLE_COPY_H
#define HEDDLE_COPY_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Copies the program's memory into a buffer. `src` may be reused on return. Returns once the bytes are in pinned memory,
 * before they are on the device; large writes go in chunks and so wait for earlier ones. For pinned host memory this
 * waits until the bytes may be overwritten and copies at once.
 * Errors: ARGUMENT, HANDLE, RANGE, TIMEOUT, HOST_MEMORY, FAILED, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_write(hd_buffer *buffer, size_t offset, const void *src, size_t bytes);

/* Copies a buffer's content, after all submitted writes to it, into the program's memory. `dst` is filled on return.
 * Errors: as hd_write; FAILED when the write that made the content failed. `dst` may be partly written on failure. */
HD_API hd_status hd_read(hd_buffer *buffer, size_t offset, void *dst, size_t bytes);

/* Copies between any two buffers of a runtime, wherever they are: on the device, from device to device (directly with peer
 * access, through pinned memory without), and to and from pinned host memory. Asynchronous; *out (may be NULL) is
 * the ticket of the last part. Without peer access a large copy blocks while its pinned chunks are in use.
 * Errors: ARGUMENT (the ranges overlap in one buffer), HANDLE, RANGE, TIMEOUT, FAILED (the source's content was made
 * by a failed operation), DEVICE_LOST, HOST_MEMORY, DRIVER, SYSTEM. */
HD_API hd_status hd_copy(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, size_t bytes,
                         hd_ticket *out);

/* Fills with a repeated 32-bit pattern; offset and bytes must be multiples of 4. Asynchronous; *out may be NULL.
 * Errors: ARGUMENT, HANDLE, RANGE, TIMEOUT, DEVICE_LOST, HOST_MEMORY. */
HD_API hd_status hd_fill(hd_buffer *buffer, size_t offset, uint32_t pattern, size_t bytes, hd_ticket *out);

HD_END_DECLS
#endif
