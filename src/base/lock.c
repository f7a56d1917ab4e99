/* lock.c - the slow path of hdi_lock: what a thread does that found the lock taken.
 *
 * Threads: any. Always: returns holding the lock. The order is: look again for about as long as a section lasts, then let
 * others of this processor run, then sleep, so that a holder without a processor gets one.
 */
#include "base/lock.h"

#include <sched.h>
#include <stdint.h>
#include "base/wait.h"

enum { PAUSES = 100, YIELDS = 8, NAP_FIRST_NS = 5000, NAP_LAST_NS = 50000 };

/* Looks before it tries, so that waiting threads share the cache line instead of pulling it from the holder. */
static bool try_when_open(hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 && hdi_lock_try(lock);
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
    int64_t nap = NAP_FIRST_NS;
    while (!try_when_open(lock)) {
        hdi_nap(nap);
        nap = nap * 2 < NAP_LAST_NS ? nap * 2 : NAP_LAST_NS;
    }
}
