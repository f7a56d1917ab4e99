/* lock.h - a lock for sections of some tens of nanoseconds.
 *
 * One locked instruction to take, a plain store to release. A thread that finds it taken spins for a moment, then yields. Then it queues up
 * and sleeps for a while, so no thread spins against a holder that lost its processor. The first thread to come takes an open lock, except
 * while the first of the queue asks for it. Then all others let that one go first. So no thread waits for longer than those before it in the queue.
 *
 * Threads: any. Not recursive. Zero-initialised is open. Never hold one across a driver call, and across a system call or an allocation only on
 * a path that is rare.
 */
#ifndef HDI_BASE_LOCK_H
#define HDI_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include "base/rank.h"

typedef struct hdi_lock {
    atomic_int taken;
    atomic_int urgent;     /* the first of the queue is awake and asks for the lock: no other thread takes it */
    atomic_uint last_turn; /* turns that were given out to the queue */
    atomic_uint turn;      /* turns that are over */
#ifdef HDI_DEBUG
    uint32_t rank;
#endif
} hdi_lock;

#ifdef HDI_DEBUG
#define HDI_LOCK_INIT(name)                                                                                            \
    {                                                                                                                  \
        .rank = HDI_RANKED(HDI_RANK_##name, 0)                                                                         \
    }
#define HDI_LOCK_RANK(lock) ((lock)->rank)
#else
#define HDI_LOCK_INIT(name)                                                                                            \
    {                                                                                                                  \
        0                                                                                                              \
    }
#define HDI_LOCK_RANK(lock) 0
#endif

/* Of a lock that is all zeros. `ranked`: HDI_RANKED. */
static inline void hdi_lock_init(hdi_lock *lock, uint32_t ranked)
{
#ifdef HDI_DEBUG
    lock->rank = ranked;
#else
    (void)lock;
    (void)ranked;
#endif
}

void hdi_lock_take_slow(hdi_lock *lock);

/* Without a record of it (rank.h). */
static inline bool hdi_lock_take_open(hdi_lock *lock)
{
    /* Relaxed: a thread that sees it late overtakes once. */
    if (__builtin_expect(atomic_load_explicit(&lock->urgent, memory_order_relaxed) != 0, 0)) {
        return false;
    }
    /* pairs with the release store in hdi_lock_release; seq_cst for threads that look whether a lock is taken (hdi_lock_is_taken) */
    return atomic_exchange_explicit(&lock->taken, 1, memory_order_seq_cst) == 0;
}

/* For a thread that has just changed something which holders of the lock look at. False means: every thread that takes the lock from now
 * on sees the change, and every thread that had it before has released it. Both sides are sequentially consistent. */
static inline bool hdi_lock_is_taken(const hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_seq_cst) != 0;
}

static inline void hdi_lock_take(hdi_lock *lock)
{
    hdi_rank_check(lock, HDI_LOCK_RANK(lock));
    if (__builtin_expect(!hdi_lock_take_open(lock), 0)) {
        hdi_lock_take_slow(lock);
    }
    hdi_rank_taken(lock, HDI_LOCK_RANK(lock));
}

/* False: another thread has it, or is to have it next. */
static inline bool hdi_lock_try(hdi_lock *lock)
{
    bool taken = hdi_lock_take_open(lock);
    if (taken) {
        hdi_rank_taken(lock, HDI_LOCK_RANK(lock));
    }
    return taken;
}

static inline void hdi_lock_release(hdi_lock *lock)
{
    hdi_rank_released(lock);
    /* pairs with the acquire exchange in hdi_lock_take_open */
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

#endif
