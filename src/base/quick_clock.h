/* quick_clock.h - the one clock (wait.h) for threads that read it at every submission: exact to 200
 * ns, at about half of the clock's cost.
 *
 * The processor's time-stamp counter gives ticks, and one thread relates them to the clock now and
 * then. If the counter differs between processors, or no relation is fresh, a read uses the clock
 * itself.
 *
 * Threads: any thread calls hdi_quick_ns; only one thread at a time calls the other functions.
 * Locks: none. Always: if a relation is replaced while a thread reads it, the thread does not use
 * it. A relation expires before its rate becomes inexact, even if the relating thread is held up.
 * After a jump of the counter, for example because the machine slept, its rate is measured anew.
 */
#ifndef HDI_BASE_QUICK_CLOCK_H
#define HDI_BASE_QUICK_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/wait.h"

#define HDI_QUICK_RELATIONS 4 /* a power of two */
#define HDI_QUICK_SHIFT 32

typedef struct hdi_quick_relation {
    _Atomic int64_t ticks, ns; /* the counter and the clock at the same moment */
    _Atomic int64_t rate;      /* nanoseconds in 2^32 ticks */
    _Atomic uint64_t good;     /* the number of ticks for which the relation is good */
} hdi_quick_relation;

typedef struct hdi_quick_moment {
    int64_t ticks, ns;
} hdi_quick_moment;

/* All zeros: every read uses the clock. */
typedef struct hdi_quick_clock {
    _Atomic uint32_t turn; /* the number of the relation in force; 0: none */
    hdi_quick_relation relations[HDI_QUICK_RELATIONS];
    /* the counter is usable; only for the relating thread */
    bool usable;
    /* the rate is measured from `from` on; later `next` replaces `from` */
    hdi_quick_moment from, next;
    double rate; /* the last rate, in nanoseconds per tick; 0: none */
} hdi_quick_clock;

/* Begins again, without a relation. No thread reads the clock meanwhile. */
void hdi_quick_begin(hdi_quick_clock *clock);
/* Relates the ticks to the clock, the first time a millisecond after the beginning. Call it often:
 * a relation is valid for twice the time over which its rate was measured, which is up to two
 * seconds. */
void hdi_quick_relate(hdi_quick_clock *clock);

static inline int64_t hdi_ticks(void)
{
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

static inline int64_t hdi_quick_ns(const hdi_quick_clock *clock)
{
    uint32_t turn = atomic_load_explicit(&clock->turn, memory_order_acquire);
    if (__builtin_expect(turn != 0, 1)) {
        const hdi_quick_relation *r = &clock->relations[turn % HDI_QUICK_RELATIONS];
        /* acquire: the relation is read before the turn is read again */
        int64_t since = hdi_ticks() - atomic_load_explicit(&r->ticks, memory_order_acquire);
        __int128 ns = (__int128)since * atomic_load_explicit(&r->rate, memory_order_acquire);
        int64_t now = atomic_load_explicit(&r->ns, memory_order_acquire) + (int64_t)(ns >> HDI_QUICK_SHIFT);
        bool fresh = (uint64_t)since <= atomic_load_explicit(&r->good, memory_order_acquire);
        uint32_t replaced = atomic_load_explicit(&clock->turn, memory_order_relaxed) - turn;
        if (__builtin_expect(fresh && replaced < HDI_QUICK_RELATIONS - 1, 1)) {
            return now;
        }
    }
    return hdi_clock_ns();
}

#endif
