/* heddle/copy.h - moving and filling bytes.
 *
 * Copies run in lanes of their own on each device, so they overlap kernels and each other. Only the
 * use records of buffers order them against other work. Sizes, offsets and strides are in bytes. A
 * copy of zero bytes does nothing and succeeds. The option transfer_timeout limits the wait for
 * earlier work (TIMEOUT). The option submit_timeout limits the wait for room in a full lane.
 *
 * All of these refuse a unified buffer that the program has mapped for writing (ACCESS,
 * heddle/unified.h).
 *
 * Heddle chooses the route:
 *   - on the device;
 *   - from device to device if a test of that pair has moved bytes (heddle/peer.h), else through
 *     pinned memory;
 *   - between the program's memory and a device through pinned chunks, which a few threads fill and
 *     drain (option copy_threads).
 *
 * Copies never pin the program's own memory. Large copies go in pieces. So other copies, the other
 * direction, and kernels that need a part of the bytes do not wait for all of them.
 *
 * Threads: any.
 * Blocking: hd_write, hd_read, hd_write_box and hd_read_box, for work (option transfer_timeout).
 * hd_copy, hd_copy_box and hd_fill do not wait for their bytes. They wait for room in a full lane
 * (option submit_timeout). Through pinned memory they may wait for a chunk, too (option
 * transfer_timeout).
 */
#ifndef HEDDLE_COPY_H
#define HEDDLE_COPY_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Copies the program's memory into a buffer. `src` may be reused on return. Returns once the bytes
 * are in pinned memory, before they are on the device. Large writes go in chunks, and so wait for
 * earlier ones. For pinned host memory this waits until the bytes may be overwritten, and copies at
 * once.
 * Errors: ARGUMENT (null; `src` overlaps the destination, of pinned memory), HANDLE, RANGE, ACCESS,
 * TIMEOUT, HOST_MEMORY, FAILED, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_write(hd_buffer *buffer, size_t offset, const void *src, size_t bytes);

/* Copies a buffer's content, after all submitted writes to it, into the program's memory. `dst` is
 * filled on return.
 * Errors: as hd_write; FAILED when the write that made the content failed. `dst` may be partly
 * written on failure. */
HD_API hd_status hd_read(hd_buffer *buffer, size_t offset, void *dst, size_t bytes);

/* Copies between any two buffers of a runtime, on devices or in pinned host memory. From device to
 * device it goes directly with peer access, and through pinned memory without. The first copy
 * between two devices starts the test of that pair (heddle/peer.h), and does not wait for it. Until
 * there is a verdict, copies go through pinned memory.
 *
 * Asynchronous. *out (may be NULL) is the ticket of the last part. It is done when all parts are,
 * and fails when one does. A large copy is several operations. Operations of another thread may
 * come in between. On failure `dst` may be partly written.
 * Errors: ARGUMENT (the ranges overlap in one buffer), HANDLE, RANGE, ACCESS, TIMEOUT, FAILED (the
 * source's content was made by a failed operation), DEVICE_LOST, HOST_MEMORY, DRIVER, SYSTEM. */
HD_API hd_status hd_copy(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, size_t bytes,
                         hd_ticket *out);

/* Fills with a repeated 32-bit pattern; offset and bytes must be multiples of 4. Asynchronous; *out
 * may be NULL.
 * Errors: ARGUMENT, HANDLE, RANGE, ACCESS, TIMEOUT, DEVICE_LOST, HOST_MEMORY. */
HD_API hd_status hd_fill(hd_buffer *buffer, size_t offset, uint32_t pattern, size_t bytes, hd_ticket *out);

/* ---- boxes: rows of bytes at equal distances, in up to seven dimensions ---- */

#define HD_BOX_DIMS 7 /* most dimensions of a box */

/* `row` bytes lie next to each other on both sides. There are count[0] such rows, dst_stride[0] and
 * src_stride[0] bytes apart. There are count[1] such planes, dst_stride[1] and src_stride[1] apart,
 * and so on for `dims` dimensions (0: one row). No byte may be written twice. So dst_stride[0] >=
 * row, and each further dst_stride is at least the span of the dimensions before it. A source may
 * overlap itself, and be repeated (src_stride 0).
 *
 * A box is ordered as if it used all bytes between its first and its last one. */
typedef struct hd_box {
    size_t size; /* sizeof(hd_box) */
    size_t row;  /* bytes */
    int dims;    /* 0 to HD_BOX_DIMS */
    size_t count[HD_BOX_DIMS];
    size_t dst_stride[HD_BOX_DIMS], src_stride[HD_BOX_DIMS]; /* bytes */
} hd_box;

/* hd_copy of a box; the offsets are those of its first bytes. Source and destination may interleave
 * within one buffer if they share no byte and have equal strides.
 * Errors: as hd_copy. Also FAILED if a failed operation wrote bytes between the destination's rows,
 * and ARGUMENT for a box that writes a byte twice. */
HD_API hd_status hd_copy_box(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, const hd_box *box,
                             hd_ticket *out);

/* hd_write of a box: `src` points to its first bytes. Errors: as hd_write, and ARGUMENT. */
HD_API hd_status hd_write_box(hd_buffer *dst, size_t dst_offset, const void *src, const hd_box *box);

/* hd_read of a box: `dst` points to the place of its first bytes; bytes between its rows are left
 * alone. Errors: as hd_read, and ARGUMENT. */
HD_API hd_status hd_read_box(hd_buffer *src, size_t src_offset, void *dst, const hd_box *box);

HD_END_DECLS
#endif
