/* biased_lock.h - a lock that costs its owner two plain stores, for what one thread uses all the time and others hardly ever.
 *
 * The owner enters and leaves without a locked instruction. A visitor announces itself, makes every processor that runs this process
 * see that (membarrier), and waits until the owner is outside. Where membarrier is missing, and under the thread
 * sanitizer, which does not model it, the owner pays for a fence instead.
 *
 * Without it a pair of hd_alloc and hd_free would take two locked exchanges more; `heddle bench alloc` measures what the pair costs. The idea
 * is that of biased locks, see also membarrier(2).
 *
 * The barrier alone serves presence.h, and engines that are about to sleep (engine.h).
 *
 * Threads: one owner, any number of visitors. Not recursive. The owner leaves soon, usually within some tens of nanoseconds; visitors may stay
 * as long as they like.
 */
#ifndef HDI_BASE_BIASED_LOCK_H
#define HDI_BASE_BIASED_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include "base/mutex.h"

typedef struct hdi_biased_lock {
    _Atomic bool busy;   /* the owner is inside; written by it alone */
    _Atomic bool wanted; /* a visitor is inside or coming; written under `visit` */
    bool fenced;         /* the owner fences */
    hdi_mutex visit;
} hdi_biased_lock;

/* Whether owners fence, in this process: since the first look. */
extern _Atomic int hdi_biased_how; /* 0: not looked at yet, 1: membarrier, 2: fences */
int hdi_biased_look(void);
static inline bool hdi_biased_fenced(void)
{
    int how = atomic_load_explicit(&hdi_biased_how, memory_order_relaxed);
    return __builtin_expect(how != 1, 0) && (how ? how : hdi_biased_look()) == 2;
}
/* Every processor that runs this process sees what this thread did before. A fence, where owners fence. */
void hdi_biased_barrier(void);

/* The same from another process, for one that has joined. False: that is not possible here. */
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
        /* seq_cst with the visitor's store of `wanted` and load of `busy`: one of the two sees the other */
        atomic_store_explicit(&lock->busy, true, memory_order_seq_cst);
        if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_seq_cst), 0)) {
            hdi_biased_enter_slow(lock);
        }
        return;
    }
    atomic_store_explicit(&lock->busy, true, memory_order_relaxed);
    atomic_signal_fence(
        memory_order_seq_cst); /* the compiler keeps the order, the visitor's membarrier makes the processor */
    /* acquire: pairs with the release store at the end of a visit */
    if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_acquire), 0)) {
        hdi_biased_enter_slow(lock);
    }
}

static inline void hdi_biased_leave(hdi_biased_lock *lock)
{
    hdi_rank_released(lock);
    /* pairs with the visitor's acquire load: it sees what the owner did */
    atomic_store_explicit(&lock->busy, false, memory_order_release);
}

/* Keeps the owner out until hdi_biased_end_visit. The owner itself may visit, too, while it is outside. */
void hdi_biased_visit(hdi_biased_lock *lock);
void hdi_biased_end_visit(hdi_biased_lock *lock);

#endif
