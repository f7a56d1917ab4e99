/* heddle/copy.h - moving and filling bytes.
 *
 * Copies run in lanes of the library on each device, and therefore overlap kernels and each other.
 * Heddle orders a copy only against work that uses the same bytes (heddle/buffer.h). Sizes, offsets
 * and strides are in bytes. A copy of zero bytes does nothing and succeeds. The option
 * transfer_timeout limits waits for earlier work, and the option submit_timeout limits waits for
 * room in a full lane (TIMEOUT).
 *
 * All calls of this header refuse a unified buffer that the program has mapped for writing. While a
 * unified buffer is mapped for reading, the calls refuse to write it (ACCESS, heddle/unified.h).
 *
 * Heddle chooses the route of the bytes:
 *   - within one device, that device moves the bytes;
 *   - from device to device, the bytes go directly if a test found that direct copies work
 *     (heddle/peer.h), else through pinned memory;
 *   - between the program's memory and a device, the bytes go through chunks of pinned memory,
 *     which a few threads fill and empty (option copy_threads).
 *
 * Copies never pin the program's own memory. Heddle splits large copies into pieces. Other copies,
 * and kernels that need only some of the bytes, therefore do not wait for the whole copy.
 *
 * Threads: any.
 * Blocking: hd_write, hd_read, hd_write_box and hd_read_box wait for work (option
 * transfer_timeout). hd_copy, hd_copy_box and hd_fill do not wait for their bytes. These three may
 * wait for room in a full lane (option submit_timeout). If the bytes go through pinned memory,
 * hd_copy and hd_copy_box may also wait for a free chunk (option transfer_timeout).
 */
#ifndef HEDDLE_COPY_H
#define HEDDLE_COPY_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Copies bytes of the program's memory at `src` into a buffer. `bytes` is their number, and
 * `offset` is their place in the buffer. The call returns once the bytes are in pinned memory. The
 * program may then reuse `src`, although the bytes may not be on the device yet. A large write goes
 * in chunks, and waits until earlier chunks are free again. If the buffer is pinned host memory,
 * the call waits until the buffer's bytes may be overwritten. Then the call copies the bytes
 * itself.
 * Errors: ARGUMENT (null; the buffer is pinned memory that `src` overlaps), HANDLE, RANGE, ACCESS,
 * TIMEOUT, HOST_MEMORY, FAILED, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_write(hd_buffer *buffer, size_t offset, const void *src, size_t bytes);

/* Copies bytes of a buffer into the program's memory at `dst`. The bytes begin at `offset` in the
 * buffer, and `bytes` is their number. The call waits for all submitted writes to these bytes, and
 * until `dst` is filled.
 * Errors: as hd_write; FAILED when the operation that wrote the bytes failed. On failure `dst` may
 * be partly written. */
HD_API hd_status hd_read(hd_buffer *buffer, size_t offset, void *dst, size_t bytes);

/* Copies bytes between any two buffers of a runtime, on devices or in pinned host memory. `bytes`
 * is their number. With peer access, the bytes go directly from device to device. Without peer
 * access, they go through pinned memory. The first copy between two devices starts a test of their
 * peer access, and does not wait for the verdict (heddle/peer.h). Until there is a verdict, the
 * bytes go through pinned memory.
 *
 * The call is asynchronous. A large copy consists of several operations, and operations of another
 * thread may come between them. *out (may be NULL) is the ticket of the last one. The ticket is
 * done when all of them are done, and fails when one of them fails. On failure `dst` may be partly
 * written.
 * Errors: ARGUMENT (the ranges overlap in one buffer), HANDLE, RANGE, ACCESS, TIMEOUT, FAILED (a
 * failed operation wrote the source's bytes), DEVICE_LOST, HOST_MEMORY, DRIVER, SYSTEM. */
HD_API hd_status hd_copy(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, size_t bytes,
                         hd_ticket *out);

/* Fills a part of a buffer with a repeated 32-bit pattern. The part begins at `offset`, and `bytes`
 * is its size. Both must be multiples of 4. The call is asynchronous. *out (may be NULL) is the
 * ticket of the fill.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS, TIMEOUT, DEVICE_LOST, HOST_MEMORY. */
HD_API hd_status hd_fill(hd_buffer *buffer, size_t offset, uint32_t pattern, size_t bytes, hd_ticket *out);

/* ---- boxes: rows of bytes at equal distances, in up to seven dimensions ---- */

#define HD_BOX_DIMS 7 /* most dimensions of a box */

/* The shape of a box, and its places on both sides of a copy. A row is `row` bytes next to each
 * other. A plane is count[0] rows, which begin dst_stride[0] bytes apart in the destination and
 * src_stride[0] bytes apart in the source. Likewise, count[1] planes begin dst_stride[1] bytes
 * apart in the destination and src_stride[1] bytes apart in the source. The pattern continues for
 * `dims` dimensions (0: the box is one row). A copy may write no byte twice. Therefore
 * dst_stride[0] must be at least `row`. Each further dst_stride must be at least the span of the
 * dimensions before it. Rows of the source may overlap, or be the same row (src_stride 0).
 *
 * Heddle orders the copy of a box as if the copy used all bytes from the first to the last byte of
 * the box. */
typedef struct hd_box {
    size_t size; /* sizeof(hd_box) */
    size_t row;  /* bytes of a row */
    int dims;    /* 0 to HD_BOX_DIMS */
    size_t count[HD_BOX_DIMS];
    size_t dst_stride[HD_BOX_DIMS], src_stride[HD_BOX_DIMS]; /* bytes */
} hd_box;

/* Copies a box as hd_copy does. The offsets are those of the first byte of the box on either side.
 * Within one buffer, source and destination may interleave if they share no byte and have equal
 * strides. The call is asynchronous. *out (may be NULL) is the ticket of the copy.
 * Errors: as hd_copy. Also FAILED if a failed operation wrote bytes between the destination's rows,
 * and ARGUMENT for a box that writes a byte twice. */
HD_API hd_status hd_copy_box(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, const hd_box *box,
                             hd_ticket *out);

/* Writes a box as hd_write does. `src` points to the first byte of the box. Errors: as hd_write,
 * and ARGUMENT for a bad box. */
HD_API hd_status hd_write_box(hd_buffer *dst, size_t dst_offset, const void *src, const hd_box *box);

/* Reads a box as hd_read does. `dst` points to the place of the first byte of the box. The call
 * does not change the bytes between the rows. Errors: as hd_read, and ARGUMENT for a bad box. */
HD_API hd_status hd_read_box(hd_buffer *src, size_t src_offset, void *dst, const hd_box *box);

HD_END_DECLS
#endif
