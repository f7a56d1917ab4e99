/* transfer.h - declarations for all transfers: boxes as numbers, places in buffers, copy commands,
 * sizes of parts.
 *
 * hdi_box_make checks a box, and reduces it to the fewest dimensions. Then copies of rows are cut
 * from the box.
 * A walk visits a box in parts. One operation copies a part: rows at equal distances on both sides,
 * or a piece of one row.
 *
 * Threads: any.
 * Locks: these files have no lock; a submission takes order locks.
 * Blocking: a submission waits as hdi_submit does. A copy by the route STAGED also waits for
 * chunks. Functions that only use boxes are pure, and never block.
 * Always: the parts of a transfer are linked (hdi_linked). So the ticket of the last operation
 * stands for all parts.
 */
#ifndef HDI_TRANSFER_TRANSFER_H
#define HDI_TRANSFER_TRANSFER_H

#include <heddle/copy.h>
#include <stdbool.h>
#include <stdint.h>
#include "buffer/submit.h"
#include "engine/engine.h"
#include "transfer/route.h"
#include "transfer/staging.h"

/* ---- boxes ---- */

/* The most bytes from one row to the next in a copy of rows. The driver's attribute MAX_PITCH has
 * this value for all devices. */
#define HDI_PITCH_MAX ((uint64_t)INT32_MAX)

/* Describes the bytes of a box: count[0] rows of `row` bytes, at the distances dst[0] and src[0].
 * This group of rows occurs count[1] times, at the distances dst[1] and src[1], and so on. All
 * counts are at least 2, and no two dimensions can be merged. A box without dimensions is one
 * row. */
typedef struct hdi_box {
    uint64_t row;
    int dims;
    uint64_t count[HD_BOX_DIMS], dst[HD_BOX_DIMS], src[HD_BOX_DIMS];
    uint64_t bytes;              /* the bytes of all rows; 0: nothing to do */
    uint64_t dst_span, src_span; /* the bytes from the first byte to the last one */
} hdi_box;

/* Errors: ARGUMENT (null, size, dims, a byte is written twice), RANGE (the box spans more bytes
 * than can be addressed). */
hd_status hdi_box_make(const hd_box *box, hdi_box *out);

static inline hdi_box hdi_box_of_bytes(uint64_t bytes)
{
    return (hdi_box){.row = bytes, .bytes = bytes, .dst_span = bytes, .src_span = bytes};
}

/* True if source and destination, which lie in one buffer, may share a byte. If both sides have the
 * same strides, the answer is exact. Otherwise the function only compares the spans of both
 * sides. */
bool hdi_box_overlaps(const hdi_box *box, uint64_t dst_offset, uint64_t src_offset);

/* `rows` rows of `row` bytes; offsets count from the box's first bytes. */
typedef struct hdi_part {
    uint64_t dst, src;
    uint64_t row, rows;
    /* the distance from one row to the next, if the part consists of several rows */
    uint64_t dst_pitch, src_pitch;
    /* the distance from one row to the next in the chunk between source and destination */
    uint64_t pitch;
} hdi_part;

/* The bytes that a part takes in a chunk. */
static inline uint64_t hdi_part_room(const hdi_part *part)
{
    return (part->rows - 1) * part->pitch + part->row;
}

typedef struct hdi_walk {
    hdi_box box;
    uint64_t piece;
    uint64_t pitch;              /* the pitch of rows in chunks */
    int across;                  /* the dimension that one operation copies along; -1: none */
    uint64_t index[HD_BOX_DIMS]; /* the indices of the next row */
    uint64_t at;                 /* the position in the next row */
    bool ended;
} hdi_walk;

/* The sides that a device accesses. One operation must be able to copy a part on these sides.
 * Processors copy the other side, which may have any layout. */
enum {
    HDI_WALK_DST = 1,
    HDI_WALK_SRC = 2,
    HDI_WALK_BOTH = 3,
    HDI_WALK_GAPS = 4 /* an operation may copy tiny rows together with the bytes between them */
};

/* `box` is not empty. A part takes at most `piece` bytes of a chunk. */
hdi_walk hdi_walk_begin(const hdi_box *box, uint64_t piece, unsigned sides);

/* Gets the next part, of at most `room` bytes. A row is cut only if it is longer than a piece.
 * False: the walk is over, or the next row does not fit. If `room` is at least a piece, the next
 * row always fits. */
bool hdi_walk_next(hdi_walk *walk, uint64_t room, hdi_part *out);

/* ---- copies ---- */

/* One side of a transfer: a buffer in the state in which its handle was checked. Each part of the
 * transfer uses this memory, or fails. */
typedef struct hdi_place {
    struct hd_buffer *buffer;
    uint64_t losses;
    uint64_t word; /* the word of the program's handle; 0: a buffer of the library */
} hdi_place;

static inline hdi_place hdi_place_of(struct hd_buffer *buffer)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), 0};
}

static inline hdi_place hdi_place_of_handle(struct hd_buffer *buffer, const hd_buffer *handle)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), hdi_self_word(handle)};
}

/* The number of a transfer's bytes that go through one pinned chunk. A small transfer goes through
 * one chunk. A transfer that is larger than a quarter of a large chunk, but fits into one, goes in
 * two halves, which overlap on the link. Each part of a larger transfer fills a large chunk. */
static inline size_t hdi_chunk_bytes(size_t bytes, size_t most)
{
    if (bytes >= most) {
        return most;
    }
    return bytes > most / 4 && most > HDI_STAGING_SMALL ? (bytes / 2 + 255) / 256 * 256 : bytes;
}

/* Fails for a lost device, so that no memory is pinned or copied for it. Errors: DEVICE_LOST. */
hd_status hdi_copy_alive(hd_lane *lane);

/* Submits one copy command in `lane` from bytes of one tracked buffer to bytes of another. Errors:
 * as hdi_submit. */
hd_status hdi_copy_submit(hd_lane *lane, uint8_t kind, hdi_place to, uint64_t dst_offset, hdi_place from,
                          uint64_t src_offset, uint64_t bytes, hd_ticket *out);

/* ---- transfers of boxes, in parts ---- */

/* One side of an operation that copies rows. */
typedef struct hdi_side {
    hdi_place place;
    uint64_t at;        /* the offset of the first row in the buffer */
    uint64_t pitch;     /* from row to row */
    uint64_t low, high; /* the bytes that count as used: those of all rows, and perhaps more */
    /* For a destination: the bytes between the rows must keep their content, so the operation also
     * counts as a reader. */
    bool keeps;
    bool ours; /* for a source: as `ours` in hdi_linked */
} hdi_side;

/* A box between two buffers. */
typedef struct hdi_transfer {
    hdi_place to, from;
    uint64_t dst_offset, src_offset; /* the offsets of the box's first bytes */
    const hdi_box *box;
    /* The parts run after this operation, and fail if this operation fails; position 0: there is no
     * such operation. */
    hdi_point after;
} hdi_transfer;

/* Copies along the planned route. *out: the ticket of the last operation, which ends after all
 * others, and fails if one of them failed. Errors: as hd_copy. */
hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out);

/* The most parts that share a pinned chunk. */
#define HDI_LOAD_PARTS 64
typedef struct hdi_load {
    uint64_t bytes; /* the bytes that the parts take in the chunk */
    int n;
    hdi_part part[HDI_LOAD_PARTS];
    uint64_t at[HDI_LOAD_PARTS]; /* in the chunk */
} hdi_load;

/* Gets the next parts of a walk that fit into `room` bytes. False: none are left. */
bool hdi_load_next(hdi_load *load, hdi_walk *walk, uint64_t room);

/* Submits one operation for each part. `to_host`: the operations copy from the device into a chunk.
 * Otherwise they copy from the chunk to the device. *after becomes the point of the last operation,
 * and *last its ticket. */
hd_status hdi_load_submit(hd_lane *lane, bool to_host, const hdi_transfer *t, const hdi_load *load,
                          struct hd_buffer *chunk, hdi_point *after, hd_ticket *last);

#endif
