/* lock.h - the locks of the library: one for short sections, one that may sleep, and one that costs
 * its owner hardly anything.
 *
 * hdi_lock is for sections of some tens of nanoseconds: one locked instruction to take, a plain
 * store to release. hdi_mutex is a pthread_mutex_t with a rank, for sections that may call the
 * driver, allocate or sleep. hdi_biased_lock is for data that one thread uses all the time and
 * other threads hardly ever: the owner pays two plain stores.
 *
 * Threads: any. Locks: themselves, none of them recursive; rank.h lists their order. Always: a
 * debug build asserts the order of rank.h.
 */
#ifndef HDI_BASE_LOCK_H
#define HDI_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include "base/cancel.h"
#include "base/rank.h"

/* ---- for short sections ----
 *
 * A thread that finds the lock taken spins for a moment, then yields. After that it queues up and
 * sleeps for a while, so no thread spins against a holder that lost its processor. Any thread may
 * take an open lock, except while the first of the queue asks for it. In that case all others let
 * the first one go before them. So every thread in the queue gets its turn.
 *
 * A lock of zeros is open. Never hold an hdi_lock across a driver call. Hold it across a system
 * call or an allocation only on a rare path. */

typedef struct hdi_lock {
    atomic_int taken;
    /* the first of the queue is awake and asks for the lock: no other thread takes it */
    atomic_int urgent;
    atomic_uint last_turn; /* how many turns were given out to the queue */
    atomic_uint turn;      /* how many turns are over */
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

/* The lock is all zeros. `ranked`: HDI_RANKED. */
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

/* Takes the lock if it is open, without the record of rank.h. */
static inline bool hdi_lock_take_open(hdi_lock *lock)
{
    /* Relaxed: a thread that sees `urgent` late overtakes once. */
    if (__builtin_expect(atomic_load_explicit(&lock->urgent, memory_order_relaxed) != 0, 0)) {
        return false;
    }
    /* pairs with the release store in hdi_lock_release; seq_cst for threads that check if a lock is
     * taken (hdi_lock_is_taken) */
    return atomic_exchange_explicit(&lock->taken, 1, memory_order_seq_cst) == 0;
}

/* Call it after a change of something that holders of the lock read. False: every thread that takes
 * the lock from now on sees the change, and every earlier holder released the lock. Both sides
 * are sequentially consistent. */
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

/* False: another thread holds the lock, or gets it next. */
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

/* ---- for sections that may sleep ---- */

typedef struct hdi_mutex {
    pthread_mutex_t mutex;
    uint32_t rank;
} hdi_mutex;

#define HDI_MUTEX_INIT(name)                                                                                           \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, HDI_RANKED(HDI_RANK_##name, 0)                                                      \
    }

static inline void hdi_mutex_init(hdi_mutex *mutex, hdi_rank rank)
{
    pthread_mutex_init(&mutex->mutex, NULL);
    mutex->rank = HDI_RANKED(rank, 0);
}

static inline void hdi_mutex_destroy(hdi_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

static inline void hdi_mutex_lock(hdi_mutex *mutex)
{
    hdi_rank_check(mutex, mutex->rank);
    pthread_mutex_lock(&mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

/* Locks without the check of the order, for handlers of fork(), which run in the order of their
 * installation. Outside of these handlers, no thread takes one of these locks while it holds
 * another one, so no two threads wait for each other. */
static inline void hdi_mutex_lock_at_fork(hdi_mutex *mutex)
{
    pthread_mutex_lock(&mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

/* False: another thread holds the mutex. */
static inline bool hdi_mutex_try(hdi_mutex *mutex)
{
    bool taken = pthread_mutex_trylock(&mutex->mutex) == 0;
    if (taken) {
        hdi_rank_taken(mutex, mutex->rank);
    }
    return taken;
}

static inline void hdi_mutex_unlock(hdi_mutex *mutex)
{
    hdi_rank_released(mutex);
    pthread_mutex_unlock(&mutex->mutex);
}

/* False: another thread held the mutex until the deadline, in the time of hdi_clock_ns (INT64_MAX:
 * none). */
static inline bool hdi_mutex_lock_until(hdi_mutex *mutex, int64_t deadline)
{
    if (deadline == INT64_MAX) {
        hdi_mutex_lock(mutex);
        return true;
    }
    const struct timespec limit = {.tv_sec = (time_t)(deadline / 1000000000), .tv_nsec = (long)(deadline % 1000000000)};
    hdi_rank_check(mutex, mutex->rank);
    bool taken = pthread_mutex_clocklock(&mutex->mutex, CLOCK_MONOTONIC, &limit) == 0;
    if (taken) {
        hdi_rank_taken(mutex, mutex->rank);
    }
    return taken;
}

/* Waits for `cond` without a deadline; the calling thread holds the mutex. hdi_cond_wait (wait.h)
 * takes a deadline. */
static inline void hdi_mutex_wait(hdi_mutex *mutex, pthread_cond_t *cond)
{
    HDI_UNCANCELLED;
    hdi_rank_released(mutex);
    pthread_cond_wait(cond, &mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

/* ---- for one owner ----
 *
 * The owner enters and leaves without a locked instruction. A visitor announces itself, and makes
 * every processor that runs this process see the announcement (membarrier). Then it waits until the
 * owner is outside. If membarrier is missing, the owner pays for a fence instead. The same is true
 * under the thread sanitizer, which does not model membarrier.
 *
 * Without this lock, a pair of hd_alloc and hd_free would take two more locked exchanges; `heddle
 * bench alloc` measures the pair. Such locks are known as biased locks, see also membarrier(2).
 *
 * Without a lock, the barrier serves presence.h, and engines that are about to sleep (engine.h).
 *
 * One owner, any number of visitors. The owner leaves soon, usually within some tens of
 * nanoseconds; visitors may stay as long as they like. */

typedef struct hdi_biased_lock {
    _Atomic bool busy;   /* the owner is inside; only the owner writes it */
    _Atomic bool wanted; /* a visitor is inside or coming; written under `visit` */
    bool fenced;         /* the owner fences */
    hdi_mutex visit;
} hdi_biased_lock;

/* True if owners fence in this process. Decided at the first call. */
extern _Atomic int hdi_biased_how; /* 0: undecided, 1: membarrier, 2: fences */
int hdi_biased_look(void);
static inline bool hdi_biased_fenced(void)
{
    int how = atomic_load_explicit(&hdi_biased_how, memory_order_relaxed);
    return __builtin_expect(how != 1, 0) && (how ? how : hdi_biased_look()) == 2;
}
/* Makes every processor that runs this process see this thread's earlier stores. If owners fence,
 * the function is only a fence. */
void hdi_biased_barrier(void);

/* hdi_biased_barrier_everywhere is the same barrier for all processes that joined. hdi_biased_join
 * joins the calling process. False: this system lacks such a barrier. */
bool hdi_biased_join(void);
bool hdi_biased_barrier_everywhere(void);

void hdi_biased_init(hdi_biased_lock *lock);
void hdi_biased_destroy(hdi_biased_lock *lock);

void hdi_biased_enter_slow(hdi_biased_lock *lock);

static inline void hdi_biased_enter(hdi_biased_lock *lock)
{
    hdi_rank_check(lock, lock->visit.rank);
    hdi_rank_taken(lock, lock->visit.rank);
    if (__builtin_expect(lock->fenced, 0)) {
        /* seq_cst with the visitor's store of `wanted` and load of `busy`: one of the two sees the
         * other */
        atomic_store_explicit(&lock->busy, true, memory_order_seq_cst);
        if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_seq_cst), 0)) {
            hdi_biased_enter_slow(lock);
        }
        return;
    }
    atomic_store_explicit(&lock->busy, true, memory_order_relaxed);
    atomic_signal_fence(
        /* the compiler must keep this order; the visitor's membarrier makes the processor keep
         * it */
        memory_order_seq_cst);
    /* acquire: pairs with the release store at the end of a visit */
    if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_acquire), 0)) {
        hdi_biased_enter_slow(lock);
    }
}

static inline void hdi_biased_leave(hdi_biased_lock *lock)
{
    hdi_rank_released(lock);
    /* pairs with the visitor's acquire load: the visitor sees the owner's stores */
    atomic_store_explicit(&lock->busy, false, memory_order_release);
}

/* Keeps the owner out until hdi_biased_end_visit. The owner itself may visit, too, while it is
 * outside. */
void hdi_biased_visit(hdi_biased_lock *lock);
void hdi_biased_end_visit(hdi_biased_lock *lock);

#endif
