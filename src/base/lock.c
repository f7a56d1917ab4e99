/* lock.c - the slow path of hdi_lock, for a thread that found the lock taken.
 *
 * Threads: any. Always: returns holding the lock; threads of the queue get it in the order in which they queued up.
 * A waiting thread first looks again for about as long as a section lasts. Then it yields, so that a holder without a processor gets one.
 * Then it queues up. The first of the queue stays awake and keeps newcomers out until it has the lock. The others sleep for a while each, and
 * meanwhile the lock is open to all. So a sleep leaves no open lock unused, and no thread waits for ever.
 */
#include "base/lock.h"

#include <sched.h>
#include <stdint.h>
#include "base/wait.h"

enum { PAUSES = 100, YIELDS = 8, SLEEP_FIRST_NS = 5000, SLEEP_LAST_NS = 50000 };

/* Looks before it tries, so that waiting threads share the cache line instead of pulling it from the holder. */
static bool try_when_open(hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 && hdi_lock_take_open(lock);
}

/* The same for the first of the queue, which no thread precedes. */
static bool try_first(hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&lock->taken, 1, memory_order_seq_cst) == 0; /* as in hdi_lock_take_open */
}

static void take_in_turn(hdi_lock *lock)
{
    unsigned mine = atomic_fetch_add_explicit(&lock->last_turn, 1, memory_order_relaxed);
    int64_t sleep_ns = SLEEP_FIRST_NS;
    /* pairs with the release store below: the thread before has taken back `urgent` */
    while (atomic_load_explicit(&lock->turn, memory_order_acquire) != mine) {
        hdi_sleep_for(sleep_ns);
        sleep_ns = sleep_ns * 2 < SLEEP_LAST_NS ? sleep_ns * 2 : SLEEP_LAST_NS;
    }
    atomic_store_explicit(&lock->urgent, 1, memory_order_relaxed);
    for (int looks = 1; !try_first(lock); looks++) {
        if (looks % PAUSES == 0) {
            sched_yield();
        } else {
            hdi_cpu_relax();
        }
    }
    atomic_store_explicit(&lock->urgent, 0, memory_order_relaxed);
    atomic_store_explicit(&lock->turn, mine + 1, memory_order_release);
}

void hdi_lock_take_slow(hdi_lock *lock)
{
    for (int i = 0; i < PAUSES; i++) {
        if (try_when_open(lock)) {
            return;
        }
        hdi_cpu_relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (try_when_open(lock)) {
            return;
        }
        sched_yield();
    }
    take_in_turn(lock);
}
