/* staging.h - staging pools: their staging buffers are pinned chunks. Bytes pass through them between the program's memory and a device, and between
 * devices that do not reach each other.
 *
 * Each device has pools of its own for each direction, for small and for large chunks, so a delayed device delays no transfers of others.
 * Each ordered pair of devices has pools for three sizes. So pairs, directions, and small copies beside large ones do not wait for each other.
 * A chunk is made when the first one of its pool is still in use, so there are no more than are needed. Chunks are kept until hd_close, or
 * until pinned memory is short (reclaim.h).
 *
 * A chunk is a tracked buffer. The next operations on it wait in their lanes, by its use record, for those that were submitted before.
 *
 * Threads: any.
 * Locks: one per pool, for tens of nanoseconds, with nothing below it. Blocking: where the comment of a call states it.
 * Always: a chunk is in its pool, with the point of its last use, or taken by one thread.
 * A chunk whose last use is parked (src/buffer/parked.h) is set apart, and another one may be made for it. So claims leave the pool its `most` chunks
 * for other transfers, as long as no more than that are set apart.
 * A thread gives its chunk back without waiting for another one, so no circle of waits arises.
 */
#ifndef HDI_TRANSFER_STAGING_H
#define HDI_TRANSFER_STAGING_H

#include "buffer/buffer.h"
#include "buffer/submit.h"
#include "transfer/route.h"

#define HDI_STAGING_SMALL ((size_t)64 << 10) /* bytes of a device's chunks; less where pinned_limit is small */
#define HDI_STAGING_LARGE ((size_t)4 << 20)
#define HDI_STAGING_MOST 64 /* chunks in a pool */

typedef struct hdi_chunk {
    struct hd_buffer *buffer; /* NULL: not made */
    hdi_point last;           /* its last use; position 0: it is not in use */
    bool signalled;           /* a completion write follows it at once (hdi_command) */
    struct hdi_chunk *next;
} hdi_chunk;

typedef struct hdi_staging {
    hd_runtime *runtime;
    _Atomic(hd_lane *)
        lane; /* of a device: the one lane that uses the chunks, constant as soon as hdi_staging_of has returned the pool */
    size_t bytes;             /* of each chunk */
    uint32_t most;            /* chunks that are not set apart; and of those at most as many */
    bool shares;              /* all chunks but the first come out of the pools' share of pinned memory */
    bool waits;               /* at the limit of pinned memory the first chunk waits for some */
    struct hdi_staging *next; /* of all pools of the runtime */
    /* ---- under the lock ---- */
    hdi_lock lock;
    uint32_t made;         /* or being made */
    uint32_t first, count; /* of `queue`, by the time at which they will be free */
    hdi_chunk *queue[HDI_STAGING_MOST];
    hdi_chunk *unmade; /* places without memory */
    hdi_chunk *parked; /* set apart */
    uint32_t n_places;
    _Atomic uint32_t n_parked; /* also looked at without the lock */
    hdi_chunk places[HDI_STAGING_MOST];
    /* ---- */
    _Atomic int64_t again;    /* clock when there may be memory for more again; 0: none was refused */
    _Atomic uint32_t given;   /* futex word: moves when a chunk is given back */
    _Atomic uint32_t waiting; /* threads that want a chunk and have none */
} hdi_staging;

/* The pinned memory goes with all other. Errors: HOST_MEMORY. */
extern const hdi_lifetime hdi_staging_lifetime;

/* A device's pool for bytes to it or from it. NULL: no host memory for the pool, which is a recorded failure. */
hdi_staging *hdi_staging_of(hdi_device *device, bool to_device, bool large);

/* The same, of large chunks; of small ones where there is no pinned memory for a large one. Blocking: while a chunk is made. Errors: those of
 * hdi_staging_take. */
hd_status hdi_staging_choose(hdi_device *device, bool to_device, hdi_staging **out);

/* The pool of an ordered pair of devices, for chunks of one of the sizes HDI_STAGED_*. NULL: as above. */
hdi_staging *hdi_staging_between(hd_runtime *rt, int src, int dst, uint64_t chunk);

/* The lane that a device's chunks are used in: small transfers do not queue up behind large ones. */
static inline hd_lane *hdi_staging_lane(const hdi_staging *pool)
{
    /* pairs with the release store in hdi_staging_of */
    return atomic_load_explicit(&pool->lane, memory_order_acquire);
}

typedef enum hdi_staging_wish {
    HDI_STAGING_IDLE, /* a chunk that is there and free */
    HDI_STAGING_NOW,  /* or one that is made now */
    HDI_STAGING_WAIT, /* or the next one to be free, until the deadline: for a thread that has none in this pool */
    HDI_STAGING_IN_USE /* or the one that will be free first, since its next use waits in the lanes. Waits while threads have all */
} hdi_staging_wish;

/* *out: a chunk that the caller may use, at once but for IN_USE; NULL, with HD_OK, where there is none (WAIT, IN_USE: until the deadline).
 * Errors, where the pool has no chunk and none can be made: HOST_MEMORY, DRIVER and the others of hd_alloc_host. */
hd_status hdi_staging_take(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Fails with what the pool's chunks are used for. Errors: TIMEOUT; HANDLE at hd_close. */
hd_status hdi_staging_not_given(hdi_staging *pool);

/* hdi_staging_take with WAIT or IN_USE, then hdi_staging_not_given where there was no chunk. */
hd_status hdi_staging_await(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Gives it back; devices use it until `last` (position 0: not at all), which is `signalled` or not. */
void hdi_staging_give(hdi_staging *pool, hdi_chunk *chunk, hdi_point last, bool signalled);

/* The use of a chunk that is waited for, and the completion write that will show its end, if one is submitted already. Another one would
 * delay the link. But the work in front of that write may take much longer, so the wait for it is short. */
typedef struct hdi_awaited {
    hdi_point last;   /* position 0: nothing */
    uint64_t flagged; /* a position in the same lane; 0: none */
} hdi_awaited;

/* In the order of the queue; the first one is what is waited for. */
static inline void hdi_awaited_add(hdi_awaited *a, hdi_point use, bool signalled)
{
    a->last = a->last.position ? a->last : use;
    bool shows = signalled && use.lane == a->last.lane && use.position >= a->last.position;
    a->flagged = a->flagged == 0 && shows ? use.position : a->flagged;
}

/* False: the deadline passed. `recorded`: a trace has it as a pause. */
bool hdi_awaited_wait(const hdi_awaited *a, hd_runtime *rt, int64_t deadline, bool recorded);

/* Whether as many chunks are set apart as may be: what would be parked takes none of the others. */
static inline bool hdi_staging_is_short(const hdi_staging *pool)
{
    return atomic_load_explicit(&pool->n_parked, memory_order_relaxed) >= pool->n_places - pool->most;
}

/* A chunk that is set apart, for an operation that would be parked. NULL: there is none any more. */
hdi_chunk *hdi_staging_take_parked(hdi_staging *pool);

/* Waits until no operation with these uses would be parked. Errors: TIMEOUT, with the claim that it waits for; those of hdi_submit_probe. */
hd_status hdi_staging_await_claims(hdi_staging *pool, const hdi_use *uses, size_t n_uses, int64_t deadline);

/* Whether a thread waits for a chunk of the pool. A hint. */
static inline bool hdi_staging_wanted(const hdi_staging *pool)
{
    return atomic_load_explicit(&pool->waiting, memory_order_relaxed) != 0;
}

#endif
