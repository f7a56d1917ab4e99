/* pageable.h - large transfers between the program's memory and a device: what writing and reading share, and all that can be tuned.
 *
 * A transfer is cut into parts. Each is an operation of its own through a chunk (staging.h). The calling thread and the copy threads
 * (copy_pool.h) fill or empty the chunks. Parts are small at the beginning and at the end, where the link and the threads wait for each
 * other, and large in between.
 *
 * Threads: a transfer belongs to the thread that calls; copy threads take turns at it. Locks: one per transfer, for tens of nanoseconds, with
 * nothing below it. Always: the first failure ends the transfer, and nothing begins behind it; every chunk is given back.
 */
#ifndef HDI_TRANSFER_PAGEABLE_H
#define HDI_TRANSFER_PAGEABLE_H

#include "transfer/copy_pool.h"
#include "transfer/staging.h"
#include "transfer/transfer.h"

/* Sizes of parts: bytes, multiples of HDI_PART_STEP. */
#define HDI_PART_STEP ((size_t)64 << 10)
#define HDI_PART_LEAST ((size_t)256 << 10)
#define HDI_PART_MOST HDI_STAGING_LARGE

#define HDI_SHARED_LEAST ((size_t)1 << 20)   /* transfers from this size on are shared with the copy threads */
#define HDI_THROUGH_LEAST ((size_t)32 << 20) /* ... and their bytes go past the caches, which have no room for them: */
#define HDI_FILL_THROUGH true                /* on the way into chunks */
#define HDI_EMPTY_THROUGH true               /* on the way out of them */
#define HDI_PARTS_PER_FLAG                                                                                             \
    2 /* so many parts of equal size are seen finished together: each completion write holds up the link */
#define HDI_HELPER_TIMEOUT_NS 1000000 /* a copy thread waits for a device no longer */

typedef struct hdi_pageable_part {
    size_t at, bytes;   /* of the transfer */
    size_t page_offset; /* where in the chunk: as far from a page's begin as on the device */
    bool signalled;     /* a completion write follows it */
} hdi_pageable_part;

typedef struct hdi_pageable {
    hd_runtime *rt;
    hdi_device *device;
    bool to_device;
    hdi_staging *pool;
    hd_lane *lane;         /* the pool's */
    hdi_place place;       /* on the device */
    uint64_t offset;       /* there */
    unsigned char *memory; /* the program's; only read by a write */
    size_t bytes;
    size_t threads; /* that may take part */
    int64_t deadline;
    _Atomic int status; /* hd_status of the first failure */
    /* ---- under the lock ---- */
    hdi_lock lock;
    _Atomic size_t next; /* the first byte that is in no part yet; looked at without the lock, too */
    size_t parts;        /* begun so far */
    size_t unsignalled;  /* bytes since the last part with `signalled` */
    hd_error *error;     /* of `status`, once that is not HD_OK; NULL for small transfers */
} hdi_pageable;

/* What hd_write and hd_read do with large transfers. */
hd_status hdi_pageable_write(hdi_pageable *t);
hd_status hdi_pageable_read(hdi_pageable *t);

/* Chooses a pool that has chunks, and how many threads take part. `t` has rt, device, to_device, place, offset, memory, bytes and deadline.
 * Errors: those of hdi_staging_choose, DEVICE_LOST. */
hd_status hdi_pageable_begin(hdi_pageable *t);

/* Begins the next part, which fits into `room` bytes of a chunk. False: there is none, or the transfer has failed. */
bool hdi_pageable_next(hdi_pageable *t, size_t room, hdi_pageable_part *out);

/* The operation that moves a part between its chunk and the device. *last: position of its end in the transfer's lane. */
hd_status hdi_pageable_submit(hdi_pageable *t, struct hd_buffer *chunk, const hdi_pageable_part *part, uint64_t *last);

/* The copy between a part's chunk and the program's memory. */
static inline void hdi_pageable_copy(const hdi_pageable *t, void *dst, const void *src, size_t bytes)
{
    if (t->bytes >= HDI_THROUGH_LEAST && (t->to_device ? HDI_FILL_THROUGH : HDI_EMPTY_THROUGH)) {
        hdi_copy_through(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
}

/* The point of a position in the transfer's lane; 0: none. */
static inline hdi_point hdi_pageable_point(const hdi_pageable *t, uint64_t position)
{
    return position ? (hdi_point){t->lane->global, position} : (hdi_point){0, 0};
}

/* Ends the transfer with this thread's last failure, unless it has failed already. */
void hdi_pageable_fail(hdi_pageable *t, hd_status status);

static inline bool hdi_pageable_failed(const hdi_pageable *t)
{
    return atomic_load_explicit(&t->status, memory_order_relaxed) != HD_OK;
}

/* Whether there may be parts to begin. */
static inline bool hdi_pageable_goes_on(const hdi_pageable *t)
{
    return !hdi_pageable_failed(t) && atomic_load_explicit(&t->next, memory_order_relaxed) < t->bytes;
}

/* The status, with the calling thread's message made that of the failure. All copy threads have left. */
hd_status hdi_pageable_result(hdi_pageable *t);

/* Until when a turn waits for the device. */
static inline int64_t hdi_pageable_timeout(const hdi_pageable *t, bool caller)
{
    int64_t soon = caller ? t->deadline : hdi_clock_ns() + HDI_HELPER_TIMEOUT_NS;
    return soon < t->deadline ? soon : t->deadline;
}

#endif
