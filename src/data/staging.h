/* staging.h - pinned chunks that bytes pass through on their way between the program's pageable memory, devices, and devices
 * that cannot reach each other.
 *
 * Threads: any. Locks: the pool's mutex, never held across a wait or a driver call. Blocking: hdi_staging_take waits for the chunk
 * whose last use is oldest when all are in use.
 */
#ifndef HDI_DATA_STAGING_H
#define HDI_DATA_STAGING_H

#include "data/buffer.h"

#define HDI_STAGING_SMALL ((size_t)64 << 10)
#define HDI_STAGING_LARGE ((size_t)4 << 20)
#define HDI_STAGING_SMALL_CHUNKS 32
#define HDI_STAGING_LARGE_CHUNKS 8

typedef struct hdi_chunk {
    struct hd_buffer *buffer; /* tracked like any other: operations on it are ordered by its use record */
    hdi_point last;           /* its last use by a device */
    bool taken, making;       /* under the pool's lock; the rest by whoever has taken it, or under the lock */
    bool made;
} hdi_chunk;

hd_status hdi_staging_create(hd_runtime *rt);
void hdi_staging_release(hd_runtime *rt);

/* A deadline of hdi_staging_take: do not wait. */
#define HDI_STAGING_NOW INT64_MIN

/* A chunk that the caller may fill at once: SMALL where that holds `bytes`, else LARGE. With HDI_STAGING_NOW *out is NULL when
 * that would mean waiting; a caller that holds a chunk already must ask so. Errors: HOST_MEMORY, DRIVER, SYSTEM, TIMEOUT. */
hd_status hdi_staging_take(hd_runtime *rt, size_t bytes, int64_t deadline, hdi_chunk **out);

/* Gives a chunk back; devices use it until `last` ({0, 0}: not at all). */
void hdi_staging_give(hd_runtime *rt, hdi_chunk *chunk, hdi_point last);

/* hd_close has begun: all that wait for chunks see that, also those of ring.h and pageable_crates.h. */
void hdi_staging_wake(hd_runtime *rt);

/* Pinned memory is scarce: gives up the chunks that nobody uses, those of ring.h included. Whether there are some that are in use. */
bool hdi_staging_trim(hd_runtime *rt);

#endif
