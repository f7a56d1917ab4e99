/* staging.h - staging pool: a pool of pinned chunks. Bytes pass through a chunk between the
 * program's memory and a device, and between devices that cannot access each other's memory.
 *
 * Each device uses four pools: one of small and one of large chunks for each direction. So a
 * delayed device does not delay transfers of other devices. Each ordered pair of devices uses three
 * pools, one for each of three sizes. So different pairs and directions do not wait for each other,
 * and small copies do not wait for large ones. A new chunk is made only while the first chunk of
 * its pool is still in use, so there are no more chunks than needed. Chunks are kept until
 * hd_close, or until pinned memory is short (reclaim.h).
 *
 * A chunk is a tracked buffer. By the chunk's use record, the next operations on the chunk wait in
 * their lanes for the operations submitted before.
 *
 * Threads: any.
 * Locks: one per pool, held for tens of nanoseconds. A thread that holds such a lock takes only the
 * lock of a lane's list of roots (src/buffer/parked.h).
 * Blocking: see each call's comment.
 * Always: a chunk is in its pool, with the point of its last use, or one thread has taken it.
 * A chunk whose last use waits for work of the program (src/buffer/parked.h) is set apart, and
 * another chunk may be made in its place. So `most` chunks are left for other transfers. If no more
 * chunks may be set apart, a transfer that must wait for work of the program takes a chunk only
 * after that work. A thread gives its chunk back without waiting for another chunk. So no circle of
 * waits arises.
 */
#ifndef HDI_TRANSFER_STAGING_H
#define HDI_TRANSFER_STAGING_H

#include "buffer/buffer.h"
#include "buffer/submit.h"
#include "transfer/route.h"

/* The bytes of a device's chunks; fewer if pinned_limit is small. */
#define HDI_STAGING_SMALL ((size_t)64 << 10)
#define HDI_STAGING_LARGE ((size_t)4 << 20)
#define HDI_STAGING_MOST 64 /* the most chunks in a pool */

typedef struct hdi_chunk {
    struct hd_buffer *buffer; /* NULL: not made */
    hdi_point last;           /* the last use of the chunk; position 0: not in use */
    bool signalled;           /* a completion write follows `last` at once (hdi_command) */
    struct hdi_chunk *next;
} hdi_chunk;

typedef struct hdi_staging {
    hd_runtime *runtime;
    /* In a device's pool: the one lane that uses the chunks, constant from the moment
     * hdi_staging_of returns the pool. */
    _Atomic(hd_lane *) lane;
    size_t bytes;  /* of each chunk */
    uint32_t most; /* the most chunks that are not set apart; n_places - most may be set apart */
    /* True: all chunks but the first count against the pools' share of pinned memory. */
    bool shares;
    /* true: at the limit of pinned memory, the first chunk waits for memory */
    bool waits;
    struct hdi_staging *next; /* the next one in the list of all pools of the runtime */
    /* ---- under the lock ---- */
    hdi_lock lock;
    uint32_t made; /* chunks that exist or that a thread makes now */
    /* the first place and the count of `queue`, in the order in which chunks become free */
    uint32_t first, count;
    hdi_chunk *queue[HDI_STAGING_MOST];
    hdi_chunk *unmade; /* places without memory */
    hdi_chunk *parked; /* set apart */
    uint32_t n_places;
    _Atomic uint32_t n_parked; /* also read without the lock */
    hdi_chunk places[HDI_STAGING_MOST];
    /* ---- */
    _Atomic int64_t again;    /* clock time of the next attempt to make a chunk; 0: now */
    _Atomic uint32_t given;   /* futex word that changes when a chunk is given back */
    _Atomic uint32_t waiting; /* threads that want a chunk and hold none */
} hdi_staging;

/* hd_close frees the chunks together with the runtime's other pinned memory. Errors:
 * HOST_MEMORY. */
extern const hdi_lifetime hdi_staging_lifetime;

/* The pool of a device for bytes to the device or from it. NULL: no host memory for the pool; the
 * failure is recorded. */
hdi_staging *hdi_staging_of(hdi_device *device, bool to_device, bool large);

/* As hdi_staging_of for large chunks, or for small chunks if pinned memory has no room for a large
 * one.
 * Blocking: a call waits while a chunk is made. Errors: those of hdi_staging_take. */
hd_status hdi_staging_choose(hdi_device *device, bool to_device, hdi_staging **out);

/* The pool of an ordered pair of devices, for chunks of one of the sizes HDI_STAGED_*. NULL: as for
 * hdi_staging_of. */
hdi_staging *hdi_staging_between(hd_runtime *rt, int src, int dst, uint64_t chunk);

/* The one lane that uses the chunks of a device's pool. So small transfers do not wait behind large
 * ones. */
static inline hd_lane *hdi_staging_lane(const hdi_staging *pool)
{
    /* Pairs with the release store in hdi_staging_of. */
    return atomic_load_explicit(&pool->lane, memory_order_acquire);
}

typedef enum hdi_staging_wish {
    HDI_STAGING_IDLE, /* take an existing chunk that is free */
    HDI_STAGING_NOW,  /* or a chunk that is made now */
    /* or wait, until the deadline, for the next free chunk. For a thread that holds no chunk of
     * this pool. */
    HDI_STAGING_WAIT,
    /* or take the chunk that will be free first, whose next use then waits in the lanes. A call
     * waits only while threads hold all chunks. */
    HDI_STAGING_IN_USE
} hdi_staging_wish;

/* *out: a chunk that the caller may use; with IN_USE earlier work may still use it. NULL, with
 * HD_OK: no chunk is available, or, with WAIT and IN_USE, none became available before the
 * deadline. Errors, if the pool is empty and no chunk can be made: HOST_MEMORY, DRIVER and the
 * others of hd_alloc_host. */
hd_status hdi_staging_take(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Fails with a message about the uses of the pool's chunks. Errors: TIMEOUT; HANDLE at hd_close. */
hd_status hdi_staging_not_given(hdi_staging *pool);

/* Calls hdi_staging_take with WAIT or IN_USE, and then hdi_staging_not_given if it got no chunk. */
hd_status hdi_staging_await(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Gives a chunk back. `last`: the end of the last use by a device (position 0: there was no use).
 * `signalled`: a completion write follows `last`. */
void hdi_staging_give(hdi_staging *pool, hdi_chunk *chunk, hdi_point last, bool signalled);

/* The use of a chunk to wait for, and, if already submitted, the completion write that will show
 * the end of this use. Another write would delay the link. But the work in front of the submitted
 * write may take much longer than the use. So a thread waits only briefly for the submitted
 * write. */
typedef struct hdi_awaited {
    hdi_point last;   /* position 0: nothing */
    uint64_t flagged; /* the position of that write in the same lane; 0: none */
} hdi_awaited;

/* Call this for each use, in the order of the queue. The first one is the use to wait for. */
static inline void hdi_awaited_add(hdi_awaited *a, hdi_point use, bool signalled)
{
    a->last = a->last.position ? a->last : use;
    bool shows = signalled && use.lane == a->last.lane && use.position >= a->last.position;
    a->flagged = a->flagged == 0 && shows ? use.position : a->flagged;
}

/* Waits for the use. False: the deadline passed. `recorded`: a trace records the wait as a
 * pause. */
bool hdi_awaited_wait(const hdi_awaited *a, hd_runtime *rt, int64_t deadline, bool recorded);

/* Looks at the chunks again. True if still as many chunks are set apart as allowed. */
bool hdi_staging_stays_short(hdi_staging *pool);

/* True if as many chunks are set apart as allowed. Then a transfer that waits for work of the
 * program takes no chunk. */
static inline bool hdi_staging_is_short(hdi_staging *pool)
{
    uint32_t apart = atomic_load_explicit(&pool->n_parked, memory_order_relaxed);
    return __builtin_expect(apart >= pool->n_places - pool->most, 0) && hdi_staging_stays_short(pool);
}

/* True if at most half of the pool's chunks are set apart or in the hands of threads. Then a thread
 * may keep a chunk while it waits for work of the program. */
bool hdi_staging_is_ample(hdi_staging *pool);

/* Waits until an operation with these uses would not wait for work of the program. `lane`: a lane
 * of the library, on a device that could run the operation. Errors: TIMEOUT (the message names the
 * awaited work), and those of hdi_submit_probe. */
hd_status hdi_staging_await_roots(hd_lane *lane, const hdi_use *uses, size_t n_uses, int64_t deadline);

/* True if a thread waits for a chunk of the pool; this is only a hint. */
static inline bool hdi_staging_wanted(const hdi_staging *pool)
{
    return atomic_load_explicit(&pool->waiting, memory_order_relaxed) != 0;
}

#endif
