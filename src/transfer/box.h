/* box.h - boxes as numbers: checked, reduced to their fewest dimensions, and cut into copies of rows.
 *
 * A walk goes through a box in parts. A part is what one operation can copy: rows at equal distances on both sides, or a piece of one row.
 *
 * Threads: any; all functions are pure. Locks: none. Blocking: never.
 */
#ifndef HDI_TRANSFER_BOX_H
#define HDI_TRANSFER_BOX_H

#include <heddle/copy.h>
#include <stdbool.h>
#include <stdint.h>

/* The most bytes from one row to the next in a copy of rows: the attribute MAX_PITCH, the same for all devices. */
#define HDI_PITCH_MAX ((uint64_t)INT32_MAX)

/* `row` bytes, count[0] times at the distances dst[0] and src[0], that count[1] times, and so on. Counts are at least 2, and no two dimensions
 * could be one. Without dimensions the bytes lie next to each other on both sides. */
typedef struct hdi_box {
    uint64_t row;
    int dims;
    uint64_t count[HD_BOX_DIMS], dst[HD_BOX_DIMS], src[HD_BOX_DIMS];
    uint64_t bytes;              /* in all; 0: nothing to do */
    uint64_t dst_span, src_span; /* from the first byte to behind the last one */
} hdi_box;

/* Errors: ARGUMENT (null, size, dims, a byte is written twice), RANGE (it spans more than can be addressed). */
hd_status hdi_box_make(const hd_box *box, hdi_box *out);

static inline hdi_box hdi_box_of_bytes(uint64_t bytes)
{
    return (hdi_box){.row = bytes, .bytes = bytes, .dst_span = bytes, .src_span = bytes};
}

/* Whether source and destination, in one buffer, may have a byte in common. Exact where both sides have the same strides. Else their spans are
 * compared. */
bool hdi_box_overlaps(const hdi_box *box, uint64_t dst_offset, uint64_t src_offset);

/* `rows` rows of `row` bytes; offsets count from the box's first bytes. */
typedef struct hdi_part {
    uint64_t dst, src;
    uint64_t row, rows;
    uint64_t dst_pitch, src_pitch; /* of several rows */
    uint64_t pitch;                /* from row to row in a chunk between them */
} hdi_part;

/* Bytes that a part takes in a chunk. */
static inline uint64_t hdi_part_room(const hdi_part *part)
{
    return (part->rows - 1) * part->pitch + part->row;
}

typedef struct hdi_walk {
    hdi_box box;
    uint64_t piece;
    uint64_t pitch;              /* of rows in chunks */
    int across;                  /* the dimension that one operation copies along; -1: there is none */
    uint64_t index[HD_BOX_DIMS]; /* of the next row */
    uint64_t at;                 /* in that row */
    bool ended;
} hdi_walk;

/* The sides on which a device has to be able to copy a part at once. Processors copy the other side, which may have any layout. */
enum {
    HDI_WALK_DST = 1,
    HDI_WALK_SRC = 2,
    HDI_WALK_BOTH = 3,
    HDI_WALK_GAPS = 4 /* tiny rows may be fetched with the bytes between them */
};

/* `box` has bytes. A part takes at most `piece` bytes of a chunk. */
hdi_walk hdi_walk_begin(const hdi_box *box, uint64_t piece, unsigned sides);

/* The next part that takes at most `room` bytes. A row is cut only if it is longer than a piece.
 * False: the walk has ended, or a row does not fit, which never happens with the room of a piece. */
bool hdi_walk_next(hdi_walk *walk, uint64_t room, hdi_part *out);

#endif
