/* pageable_crates.h - crates: the pinned chunks that hd_write fills and hd_read empties.
 *
 * Every device has its own rings of crates, for each direction and for small and large crates. So a delayed device delays no transfers of others.
 * The crates of a ring are used in one lane only. So the crate that was given back first is free first, and taking one is one look at it.
 * A crate is made when the first in the ring is still in use, so there are no more than are needed.
 * Crates are kept until hd_close, or until pinned memory gets short.
 *
 * Threads: any.
 * Locks: one per ring, for tens of nanoseconds, with nothing below it. Blocking: where the comment of a call states it.
 * Always: a crate is in its ring, with the position of its last use, or taken by one thread.
 * A thread gives its crate back without waiting for another one, so no circle of waits arises.
 */
#ifndef HDI_DATA_PAGEABLE_CRATES_H
#define HDI_DATA_PAGEABLE_CRATES_H

#include "data/buffer.h"

#define HDI_CRATE_SMALL ((size_t)64 << 10) /* bytes; less where pinned_limit is small */
#define HDI_CRATE_LARGE ((size_t)4 << 20)
#define HDI_CRATES_MOST 64 /* in a ring */

typedef struct hdi_crate {
    struct hd_buffer *buffer; /* NULL: not made */
    uint64_t last;            /* position in the ring's lane behind its last use, 0: it is not in use */
    bool signalled;           /* a completion write follows it at once (hdi_command) */
    struct hdi_crate *next;
} hdi_crate;

typedef struct hdi_crates {
    hd_runtime *runtime;
    _Atomic(hd_lane *) lane; /* constant as soon as hdi_crates_of has returned the ring */
    size_t bytes;            /* of each crate: whole pages */
    uint32_t most;           /* crates */
    /* ---- under the lock ---- */
    hdi_lock lock;
    uint32_t made;         /* or being made */
    uint32_t first, count; /* of `queue`, by the time at which they will be free */
    hdi_crate *queue[HDI_CRATES_MOST];
    hdi_crate *unmade; /* places without memory */
    hdi_crate places[HDI_CRATES_MOST];
    /* ---- */
    _Atomic int64_t again;    /* clock when there may be memory for more again; 0: none was refused */
    _Atomic uint32_t given;   /* futex word: moves when a crate is given back */
    _Atomic uint32_t waiting; /* threads that want a crate and have none */
} hdi_crates;

/* hd_open and hd_close; the pinned memory goes with all other. Errors: HOST_MEMORY. */
hd_status hdi_crates_create(hd_runtime *rt);
void hdi_crates_release(hd_runtime *rt);

/* A device's ring. NULL: no host memory for it, reported. */
hdi_crates *hdi_crates_of(hdi_device *device, bool to_device, bool large);

/* The lane that its crates are used in: small transfers do not queue up behind large ones. */
static inline hd_lane *hdi_crates_lane(const hdi_crates *ring)
{
    /* pairs with the release store in hdi_crates_of */
    return atomic_load_explicit(&ring->lane, memory_order_acquire);
}

typedef enum hdi_crate_wish {
    HDI_CRATE_IDLE, /* one that is there and free */
    HDI_CRATE_NOW,  /* or one that is made now */
    HDI_CRATE_WAIT  /* or the next one to be free, until the deadline: for a thread that has none in this ring */
} hdi_crate_wish;

/* *out: a crate that the caller may use at once; NULL, with HD_OK, where there is none (WAIT: until the deadline). Errors, where there is
 * no crate in the ring and none can be made: HOST_MEMORY, DRIVER and the others of hd_alloc_host. */
hd_status hdi_crate_take(hdi_crates *ring, hdi_crate_wish wish, int64_t deadline, hdi_crate **out);

/* Gives it back; the device uses it until `last` (0: not at all), which is `signalled` or not. */
void hdi_crate_give(hdi_crates *ring, hdi_crate *crate, uint64_t last, bool signalled);

/* hd_close has begun: all that wait for crates see that. */
void hdi_crates_wake(hd_runtime *rt);

/* Fails with what the ring's crates are used for. */
hd_status hdi_crates_not_given(hdi_crates *ring);

/* Pinned memory is short: gives that of idle crates back, of all rings. False: there was none. */
bool hdi_crates_relieve(hd_runtime *rt);
/* Whether crates have memory: after hdi_crates_relieve those in use. */
bool hdi_crates_in_use(const hd_runtime *rt);

/* The use of a crate that is waited for, and the completion write that will show its end, if one is submitted already. Another one would
 * delay the link. But the work in front of that write may take much longer, so the wait for it is short. */
typedef struct hdi_awaited {
    uint64_t last;    /* 0: nothing */
    uint64_t flagged; /* 0: none */
} hdi_awaited;

/* In the order of the queue; the first one is what is waited for. */
static inline void hdi_awaited_add(hdi_awaited *a, uint64_t last, bool signalled)
{
    a->last = a->last ? a->last : last;
    a->flagged = a->flagged == 0 && signalled && last >= a->last ? last : a->flagged;
}

/* False: the deadline passed. */
bool hdi_awaited_wait(const hdi_awaited *a, hd_lane *lane, int64_t deadline);

/* Whether a thread waits for a crate of the ring. A hint. */
static inline bool hdi_crates_wanted(const hdi_crates *ring)
{
    return atomic_load_explicit(&ring->waiting, memory_order_relaxed) != 0;
}

#endif
