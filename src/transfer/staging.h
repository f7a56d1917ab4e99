/* staging.h - staging pools: pools of pinned chunks. Bytes go through a chunk on their way between
 * the program's memory and a device. They also do so between devices that cannot access each
 * other's memory.
 *
 * Each device uses four pools: for each direction, one pool of small chunks and one of large
 * chunks. So a delayed device does not delay transfers of other devices. Each ordered pair of
 * devices uses three pools, one for each of three sizes. So different pairs and directions do not
 * wait for each other, and small copies do not wait for large ones. A pool makes a new chunk only
 * if its first chunk is still in use. So a pool makes no more chunks than it needs. A pool keeps
 * its chunks until hd_close, or until pinned memory is short (reclaim.h).
 *
 * A chunk is a tracked buffer. So the next operations on a chunk wait in their lanes for the
 * operations that were submitted before.
 *
 * Threads: any.
 * Locks: one per pool, held for tens of nanoseconds. A thread that holds such a lock takes only the
 * lock of a lane's list of roots (src/buffer/parked.h).
 * Blocking: see each call's comment.
 * Always: a chunk is in its pool, with the point of its last use, or one thread holds it.
 * The last use of a chunk may wait for work of the program (src/buffer/parked.h). Such a chunk is
 * *set apart*, and the pool may make another chunk instead. So up to `most` chunks are left for
 * other transfers. The pool is *short* for transfers that must wait for work of the program in
 * these cases:
 * - The number of chunks that are set apart reached its limit.
 * - All chunks are set apart, and no memory is left for another one.
 * - In a pool for two devices: one more chunk that is set apart would exceed the share of such
 *   pools. This share is a quarter of the memory that the option pinned_limit allows.
 * - In a pool for two devices: there is no memory for the runtime's spare chunk. A pool whose
 *   chunks are all set apart gets the spare chunk if pinned memory is full. So copies that wait
 *   always leave a chunk of 64 KiB for other transfers. Only a race can take this last chunk: two
 *   threads find the pool not short, and a claim begins before both submit.
 * For a short pool, this rule holds:
 * - A transfer between devices shares a chunk that is set apart. The transfer must wait for all
 *   work of the program that the chunk's last use waits for. If there is none, the transfer takes a
 *   smaller chunk, or an extra chunk. An extra chunk has no place among the `n_places` of the pool,
 *   and counts as set apart.
 * - Any other transfer first waits until the work of the program is over, and then takes a chunk.
 *   The same holds for a transfer between devices if no chunk is left for it.
 * A thread gives its chunk back without waiting for another chunk. So no circle of waits arises.
 */
#ifndef HDI_TRANSFER_STAGING_H
#define HDI_TRANSFER_STAGING_H

#include "buffer/buffer.h"
#include "buffer/submit.h"
#include "transfer/route.h"

/* The sizes of the chunks of a device's pools, in bytes. If pinned_limit is small, the chunks are
 * smaller. */
#define HDI_STAGING_SMALL ((size_t)64 << 10)
#define HDI_STAGING_LARGE ((size_t)4 << 20)
#define HDI_STAGING_MOST 64 /* the most chunks in a pool */

typedef struct hdi_chunk {
    struct hd_buffer *buffer; /* NULL: not made */
    /* the end of the chunk's last use; position 0: there is no use to wait for */
    hdi_point last;
    bool signalled; /* a completion write stands right behind `last` (hdi_command) */
    bool apart;     /* the chunk counts in n_parked */
    bool extra;     /* an extra chunk, which has no place in `places` */
    bool counted;   /* the bytes count among those of waiting copies (hdi_staging_count) */
    struct hdi_chunk *next;
} hdi_chunk;

typedef struct hdi_staging {
    hd_runtime *runtime;
    /* In a device's pool: the only lane that uses the chunks. Constant once hdi_staging_of returned
     * the pool. */
    _Atomic(hd_lane *) lane;
    size_t bytes; /* of each chunk */
    /* the most chunks that are not set apart; n_places - most chunks may be set apart */
    uint32_t most;
    bool of_device; /* false: the pool of a pair of devices */
    /* true: if pinned memory is at its limit, the allocation of the first chunk waits for memory */
    bool waits;
    bool grows; /* the pool may make extra chunks */
    /* the most bytes for all pools of devices, and for all pools of pairs */
    uint64_t share;
    struct hdi_staging *next; /* the next one in the list of all pools of the runtime */
    /* ---- under the lock ---- */
    hdi_lock lock;
    /* the number of chunks that exist, or that a thread makes now; extra chunks do not count */
    uint32_t made;
    /* the ring `queue` contains `count` chunks, beginning at index `first`, in the order in which
     * they become free */
    uint32_t first, count;
    hdi_chunk *queue[HDI_STAGING_MOST];
    hdi_chunk *unmade; /* places without memory */
    /* clock time of the next attempt to make a chunk, while all other chunks are set apart */
    int64_t apart_again;
    hdi_chunk *parked; /* chunks that are set apart and that no thread holds */
    /* extra chunks that no thread holds; their last use may wait for work of the program */
    hdi_chunk *extras;
    uint32_t n_places;
    /* the number of chunks that are set apart: those in `parked`, and those that threads share now;
     * also read without the lock */
    _Atomic uint32_t n_parked;
    /* true: the pool may be short, so a transfer must look; also read without the lock */
    _Atomic bool look;
    hdi_chunk places[HDI_STAGING_MOST];
    /* ---- */
    _Atomic int64_t again;    /* clock time of the next attempt to make a chunk; 0: now */
    _Atomic uint32_t given;   /* futex word that changes when a chunk is given back */
    _Atomic uint32_t waiting; /* the number of threads that wait for a chunk and hold none */
} hdi_staging;

/* hd_close frees the chunks together with the runtime's other pinned memory. Errors:
 * HOST_MEMORY. */
extern const hdi_lifetime hdi_staging_lifetime;

/* The pool of a device for bytes to the device (`to_device`) or from it. NULL: no host memory for
 * the pool. Then the failure is recorded. */
hdi_staging *hdi_staging_of(hdi_device *device, bool to_device, bool large);

/* Like hdi_staging_of for large chunks. If pinned memory has no room for a large chunk, like
 * hdi_staging_of for small chunks.
 * Blocking: a call waits while a chunk is made. Errors: those of hdi_staging_take. */
hd_status hdi_staging_choose(hdi_device *device, bool to_device, hdi_staging **out);

/* The pool of an ordered pair of devices, for chunks of one of the sizes HDI_STAGED_*. NULL: as for
 * hdi_staging_of. */
hdi_staging *hdi_staging_between(hd_runtime *rt, int src, int dst, uint64_t chunk);

/* The only lane that uses the chunks of a device's pool. Small and large chunks use different
 * lanes, so small transfers do not wait behind large ones. */
static inline hd_lane *hdi_staging_lane(const hdi_staging *pool)
{
    /* Pairs with the release store in hdi_staging_of. */
    return atomic_load_explicit(&pool->lane, memory_order_acquire);
}

typedef enum hdi_staging_wish {
    HDI_STAGING_IDLE, /* take an existing chunk that is free */
    HDI_STAGING_NOW,  /* else make a chunk now */
    /* else wait, until the deadline, for a chunk to become free; only for a thread that holds no
     * chunk of this pool */
    HDI_STAGING_WAIT,
    /* else take the chunk that becomes free first, although work still uses it; the caller's
     * operation then waits in its lane. The call itself waits only while threads hold all
     * chunks. */
    HDI_STAGING_IN_USE
} hdi_staging_wish;

/* *out: a chunk for the caller. With IN_USE, earlier work may still use the chunk. *out NULL, with
 * HD_OK: no chunk is available. With WAIT and IN_USE, this means that no chunk became available
 * before the deadline. Errors, if the pool has no other chunk and none can be made: HOST_MEMORY,
 * DRIVER and the others of hd_alloc_host. For a pair of devices, a pool of medium or large chunks
 * also fails if all its chunks are set apart. The failure is then HOST_MEMORY without a message. */
hd_status hdi_staging_take(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Fails with a message that names a use that the pool's chunks wait for. Errors: TIMEOUT; HANDLE at
 * hd_close. */
hd_status hdi_staging_not_given(hdi_staging *pool);

/* Calls hdi_staging_take. If that call gets no chunk, fails like hdi_staging_not_given. `wish`:
 * WAIT or IN_USE. */
hd_status hdi_staging_await(hdi_staging *pool, hdi_staging_wish wish, int64_t deadline, hdi_chunk **out);

/* Gives a chunk back. `last`: the end of the chunk's last use by a device (position 0: no device
 * used the chunk). `signalled`: a completion write stands right behind `last`. */
void hdi_staging_give(hdi_staging *pool, hdi_chunk *chunk, hdi_point last, bool signalled);

/* The use of a chunk that a thread waits for. A completion write that will show the end of this use
 * may already be submitted: `flagged` is the position of that write. One more write just for this
 * use would delay the link. But other work between the use and the submitted write may take long.
 * So a thread first waits briefly for the submitted write. Then it requests a write just for this
 * use. */
typedef struct hdi_awaited {
    hdi_point last;   /* position 0: nothing */
    uint64_t flagged; /* the position of that write in the same lane; 0: none */
} hdi_awaited;

/* Call this function for each use, in the order of the queue. The thread waits for the first
 * use. */
static inline void hdi_awaited_add(hdi_awaited *a, hdi_point use, bool signalled)
{
    a->last = a->last.position ? a->last : use;
    bool shows = signalled && use.lane == a->last.lane && use.position >= a->last.position;
    a->flagged = a->flagged == 0 && shows ? use.position : a->flagged;
}

/* Waits for the use. False: the deadline passed. `recorded`: a trace records the wait as a
 * pause. */
bool hdi_awaited_wait(const hdi_awaited *a, hd_runtime *rt, int64_t deadline, bool recorded);

/* Checks again whether the chunks that are set apart still wait for work of the program. If there
 * is no other chunk, makes one. True if the pool is short after that. */
bool hdi_staging_stays_short(hdi_staging *pool);

/* True if the pool is short. Then a transfer that waits for work of the program must not take a
 * free chunk. */
static inline bool hdi_staging_is_short(hdi_staging *pool)
{
    return __builtin_expect(atomic_load_explicit(&pool->look, memory_order_relaxed), 0) &&
           hdi_staging_stays_short(pool);
}

/* Counts the bytes of one more chunk that may be set apart. False: the chunks that are set apart
 * already take their share of pinned memory. */
bool hdi_staging_count(hdi_staging *pool);

/* Ends what hdi_staging_count began. `chunk` is the chunk that the caller took, which counts until
 * the caller gives it back, or until it is no longer set apart. NULL: the caller took none. */
void hdi_staging_count_chunk(hdi_staging *pool, hdi_chunk *chunk);

/* Takes a chunk from a short pool for an operation with these uses: a chunk that the operation may
 * share, or an extra chunk. If there is none, waits until the deadline for the work of the program
 * that the operation waits for, or for such a chunk. `lane`: a lane of the library, on a device
 * that could run the operation. *counted: hdi_staging_count succeeded, which may become true during
 * the call. *out NULL, with HD_OK: the operation waits for no such work, or the pool is no longer
 * short, so the operation may take any chunk.
 * Errors: those of hdi_submit_probe; TIMEOUT; HOST_MEMORY without a message (this pool has no such
 * chunk, but perhaps a pool of smaller chunks has one). */
hd_status hdi_staging_await_apart(hdi_staging *pool, hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                  int64_t deadline, bool *counted, hdi_chunk **out);

/* True if the chunks that are set apart or held by threads are at most half of `most`. Then a
 * thread may keep a chunk while it waits for work of the program. */
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
