/* transfer.h - what all transfers share: a buffer as it was when its handle was checked, one copy command, sizes of pieces.
 *
 * Threads: any. Locks: none of its own.
 */
#ifndef HDI_DATA_TRANSFER_H
#define HDI_DATA_TRANSFER_H

#include "data/box.h"
#include "data/copy_lanes.h"
#include "data/staging.h"
#include "data/submit.h"
#include "engine/engine.h"

/* All parts of a transfer go to the same memory, or fail. */
typedef struct hdi_place {
    struct hd_buffer *buffer;
    uint64_t losses;
    uint64_t word; /* of the program's handle; 0: our own buffer */
} hdi_place;

static inline hdi_place hdi_place_of(struct hd_buffer *buffer)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), 0};
}

static inline hdi_place hdi_place_of_handle(struct hd_buffer *buffer, const hd_buffer *handle)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), hdi_self_word(handle)};
}

/* How many bytes go through one pinned chunk: all of a small transfer; of one between a quarter and a whole large chunk half,
 * so that its two halves overlap on the link; a large chunk otherwise. */
static inline size_t hdi_chunk_bytes(size_t bytes)
{
    if (bytes >= HDI_STAGING_LARGE) {
        return HDI_STAGING_LARGE;
    }
    return bytes > HDI_STAGING_LARGE / 4 ? (bytes / 2 + 255) / 256 * 256 : bytes;
}

/* Refuses a lost device before anything is pinned or copied for it. */
hd_status hdi_copy_alive(hd_lane *lane, const char *who);

/* One copy command in `lane` from bytes of one tracked buffer to bytes of another. Errors: as hdi_submit. */
hd_status hdi_copy_submit(hd_lane *lane, uint8_t kind, hdi_place to, uint64_t dst_offset, hdi_place from,
                          uint64_t src_offset, uint64_t bytes, const char *who, hd_ticket *out);

/* ---- transfers of boxes, in parts ---- */

/* One side of an operation that copies rows. */
typedef struct hdi_side {
    hdi_place place;
    uint64_t at;        /* of the first row, in the buffer */
    uint64_t pitch;     /* from row to row */
    uint64_t low, high; /* what it counts as using: all rows, and perhaps more */
    bool keeps;         /* of a destination: bytes between the rows stay, so what is there counts as read */
    bool ours;          /* of a source: as in hdi_linked */
} hdi_side;

/* hdi_submit_linked of the operation that copies `rows` rows; *after becomes its point. `kind`: HDI_COPY_*, with flags. Errors: as hdi_submit. */
hd_status hdi_rows_submit(hd_lane *lane, uint16_t kind, const hdi_side *to, const hdi_side *from, uint64_t row,
                          uint64_t rows, const char *who, hdi_point *after, hd_ticket *out);

/* A box between two buffers. */
typedef struct hdi_transfer {
    hdi_place to, from;
    uint64_t dst_offset, src_offset; /* of the box's first bytes */
    const hdi_box *box;
    const char *who;
    hdi_point
        after; /* another operation of what is one to the program: this comes after it, and fails with it; position 0: there is none */
} hdi_transfer;

/* The sides of a part. The bytes that it counts as using are its own where the box is of neighbouring bytes, else all of the box. */
hdi_side hdi_transfer_to(const hdi_transfer *t, const hdi_part *part);
hdi_side hdi_transfer_from(const hdi_transfer *t, const hdi_part *part);

/* Copies along the planned route. *out: the ticket of the last operation, which is done when all are and fails when one has. Errors: as hd_copy. */
hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out);

/* The parts that share a pinned chunk on their way between a buffer and somewhere else. */
#define HDI_LOAD_PARTS 64
typedef struct hdi_load {
    uint64_t bytes; /* of the chunk */
    int n;
    hdi_part part[HDI_LOAD_PARTS];
    uint64_t at[HDI_LOAD_PARTS]; /* in the chunk */
} hdi_load;

/* The next parts of a walk, as far as `room` bytes hold them; false: there are none. */
bool hdi_load_next(hdi_load *load, hdi_walk *walk, uint64_t room);

/* Submits the operations between a chunk and the device, out of it (`to_host`) or into it: one for each part. *after: as in
 * hdi_rows_submit; *last: the ticket of the last one. */
hd_status hdi_load_submit(hd_lane *lane, bool to_host, const hdi_transfer *t, const hdi_load *load,
                          struct hd_buffer *chunk, hdi_point *after, hd_ticket *last);

/* staged.c: the route STAGED. */
hd_status hdi_transfer_staged(const hdi_transfer *t, const hdi_route *route, hd_ticket *out);

#endif
