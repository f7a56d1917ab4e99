/* heddle/copy.h - moving and filling bytes.
 *
 * Copies run in lanes of the library on each device, so they can run at the same time as kernels
 * and other copies. Heddle orders a copy only against work that uses the same bytes
 * (heddle/buffer.h). Sizes, offsets and strides are in bytes. A copy of zero bytes does nothing and
 * succeeds. If a call waits for earlier work longer than the option transfer_timeout, the call
 * fails with TIMEOUT. The option submit_timeout limits waits for room in a full lane in the same
 * way.
 *
 * While a unified buffer is mapped for writing, all calls of this header refuse the buffer
 * (ACCESS). While a unified buffer is mapped for reading, the calls refuse only to write the buffer
 * (heddle/unified.h).
 *
 * Heddle chooses the route of the bytes:
 *   - within one device, that device moves the bytes;
 *   - from device to device, the bytes go directly if a test found that direct copies work
 *     (heddle/peer.h), else through pinned memory;
 *   - between the program's memory and a device, the bytes go through chunks of pinned memory,
 *     which a few threads fill and empty (option copy_threads).
 *
 * Copies never pin the program's own memory. Heddle splits large copies into parts. Therefore an
 * operation that needs only some of the bytes does not wait for the whole copy.
 *
 * Threads: any.
 * Blocking: hd_write, hd_read, hd_write_box and hd_read_box wait for work (option
 * transfer_timeout). hd_copy, hd_copy_box and hd_fill do not wait for their bytes. These three may
 * wait for room in a full lane (option submit_timeout). This also holds for lanes of the library:
 * thousands of copies that wait for one claim or kernel fill them. Then a further copy that must
 * wait blocks until some of that work ends. If the bytes go through pinned memory, hd_copy and
 * hd_copy_box may also wait for a free chunk (option transfer_timeout). A copy through pinned
 * memory keeps a chunk while it waits for work of the program. Copies that wait for the same work
 * share chunks. If such chunks already take a quarter of pinned_limit, hd_copy and hd_copy_box wait
 * until work of the program ends (option transfer_timeout). If work of the program still uses the
 * destination, hd_write and hd_write_box return while their bytes wait in pinned memory. For
 * example, 32 small writes (64 KiB and less) to a device may wait in this way. A further write
 * blocks until one of them is done.
 */
#ifndef HEDDLE_COPY_H
#define HEDDLE_COPY_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Copies bytes of the program's memory at `src` into a buffer. `bytes` is their number, and
 * `offset` is their place in the buffer. The call returns once the bytes are in pinned memory. The
 * program may then reuse `src`, although the bytes may not be on the device yet. If a write is
 * larger than the free pinned memory of the library, the call waits until earlier bytes leave this
 * memory. If the buffer is pinned host memory, the call waits until earlier work no longer uses the
 * buffer's bytes, and then copies the bytes itself.
 * Errors: ARGUMENT (null; the buffer is pinned memory that `src` overlaps), HANDLE, RANGE, ACCESS,
 * TIMEOUT, HOST_MEMORY, FAILED, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_write(hd_buffer *buffer, size_t offset, const void *src, size_t bytes);

/* Copies bytes of a buffer into the program's memory at `dst`. The bytes begin at `offset` in the
 * buffer, and `bytes` is their number. The call waits for all submitted writes to these bytes, and
 * returns when `dst` contains them.
 * Errors: as hd_write; FAILED if the operation that wrote the bytes failed. On failure `dst` may be
 * partly written. */
HD_API hd_status hd_read(hd_buffer *buffer, size_t offset, void *dst, size_t bytes);

/* Copies bytes between any two buffers of a runtime, on devices or in pinned host memory. `bytes`
 * is their number. With peer access, the bytes go directly from device to device. Without peer
 * access, they go through pinned memory. The first copy between two devices starts a test of their
 * peer access, whose result is a verdict (heddle/peer.h). The copy does not wait for this test.
 * Until the verdict is known, the bytes go through pinned memory.
 *
 * The call is asynchronous. A large copy consists of several operations, and operations of another
 * thread may come between them. *out (may be NULL) is the ticket of the last operation. The ticket
 * is done when all operations of the copy are done, and fails if one of them fails. On failure
 * `dst` may be partly written.
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

/* The shape of a box, and its strides in the source and in the destination. A row is `row` bytes
 * next to each other. A plane is count[0] rows, which begin dst_stride[0] bytes apart in the
 * destination and src_stride[0] bytes apart in the source. Likewise, count[1] planes begin
 * dst_stride[1] bytes apart in the destination and src_stride[1] bytes apart in the source. The
 * pattern continues for `dims` dimensions; if `dims` is 0, the box is one row. A copy must not
 * write a byte twice. Therefore dst_stride[0] must be at least `row`, and each further dst_stride
 * must be at least the span of the dimensions before it. Rows of the source may overlap, or be the
 * same row (src_stride 0).
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

/* Copies a box as hd_copy does. dst_offset and src_offset are the places of the first byte of the
 * box. Within one buffer, rows of the source may lie between rows of the destination if source and
 * destination share no byte and have equal strides. The call is asynchronous. *out (may be NULL) is
 * the ticket of the copy.
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
