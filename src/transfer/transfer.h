/* transfer.h - what all transfers share: a buffer as it was when its handle was checked, one copy command, sizes of pieces.
 *
 * Threads: any.
 * Locks: none of its own; submitting takes order locks.
 * Blocking: as hdi_submit. The route STAGED also waits for chunks.
 * Always: the parts of a transfer are linked. The last operation's ticket stands for all.
 */
#ifndef HDI_TRANSFER_TRANSFER_H
#define HDI_TRANSFER_TRANSFER_H

#include "transfer/box.h"
#include "transfer/copy_lanes.h"
#include "transfer/staging.h"
#include "buffer/submit.h"
#include "engine/engine.h"

/* One side's memory. All parts of a transfer go to the same memory, or fail. */
typedef struct hdi_place {
    struct hd_buffer *buffer;
    uint64_t losses;
    uint64_t word; /* of the program's handle; 0: a buffer of the library */
} hdi_place;

static inline hdi_place hdi_place_of(struct hd_buffer *buffer)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), 0};
}

static inline hdi_place hdi_place_of_handle(struct hd_buffer *buffer, const hd_buffer *handle)
{
    return (hdi_place){buffer, hdi_buffer_losses(buffer), hdi_self_word(handle)};
}

/* The bytes that go through one pinned chunk. A small transfer goes through one as a whole. One between a quarter of a large chunk and a whole
 * one goes in halves, which overlap on the link. Others fill a large chunk each time. */
static inline size_t hdi_chunk_bytes(size_t bytes, size_t most)
{
    if (bytes >= most) {
        return most;
    }
    return bytes > most / 4 && most > HDI_STAGING_SMALL ? (bytes / 2 + 255) / 256 * 256 : bytes;
}

/* Fails for a lost device, before anything is pinned or copied for it. Errors: DEVICE_LOST. */
hd_status hdi_copy_alive(hd_lane *lane);

/* One copy command in `lane` from bytes of one tracked buffer to bytes of another. Errors: as hdi_submit. */
hd_status hdi_copy_submit(hd_lane *lane, uint8_t kind, hdi_place to, uint64_t dst_offset, hdi_place from,
                          uint64_t src_offset, uint64_t bytes, hd_ticket *out);

/* ---- transfers of boxes, in parts ---- */

/* One side of an operation that copies rows. */
typedef struct hdi_side {
    hdi_place place;
    uint64_t at;        /* of the first row in the buffer */
    uint64_t pitch;     /* from row to row */
    uint64_t low, high; /* the bytes that count as used: all rows, and perhaps more */
    bool keeps;         /* of a destination: bytes between the rows stay, so its content counts as read */
    bool ours;          /* of a source: as in hdi_linked */
} hdi_side;

/* hdi_submit_linked for the operation that copies `rows` rows. *after becomes its point. `kind`: HDI_COPY_*, with flags. Errors: as
 * hdi_submit. */
hd_status hdi_rows_submit(hd_lane *lane, uint16_t kind, const hdi_side *to, const hdi_side *from, uint64_t row,
                          uint64_t rows, hdi_point *after, hd_ticket *out);

/* A box between two buffers. */
typedef struct hdi_transfer {
    hdi_place to, from;
    uint64_t dst_offset, src_offset; /* of the box's first bytes */
    const hdi_box *box;
    hdi_point
        after; /* an operation linked with these: they come after it, and fail with it; position 0: there is none */
} hdi_transfer;

/* The sides of a part. A part of a box of neighbouring bytes counts as use of its own bytes, any other part as use of the whole box. */
hdi_side hdi_transfer_to(const hdi_transfer *t, const hdi_part *part);
hdi_side hdi_transfer_from(const hdi_transfer *t, const hdi_part *part);

/* Copies along the planned route. *out: the ticket of the last operation, which is done when all are, and fails when one has. Errors: as
 * hd_copy. */
hd_status hdi_transfer_run(const hdi_transfer *t, hd_ticket *out);

/* The parts that share a pinned chunk. */
#define HDI_LOAD_PARTS 64
typedef struct hdi_load {
    uint64_t bytes; /* the bytes that the parts take in the chunk */
    int n;
    hdi_part part[HDI_LOAD_PARTS];
    uint64_t at[HDI_LOAD_PARTS]; /* in the chunk */
} hdi_load;

/* The next parts of a walk that `room` bytes hold. False: there are none. */
bool hdi_load_next(hdi_load *load, hdi_walk *walk, uint64_t room);

/* Submits one operation for each part between a chunk and the device: out of the device (`to_host`), or into it.
 * *after: as in hdi_rows_submit. *last: the ticket of the last one. */
hd_status hdi_load_submit(hd_lane *lane, bool to_host, const hdi_transfer *t, const hdi_load *load,
                          struct hd_buffer *chunk, hdi_point *after, hd_ticket *last);

/* staged.c: the route STAGED. */
hd_status hdi_transfer_staged(const hdi_transfer *t, const hdi_route *route, hd_ticket *out);

#endif
