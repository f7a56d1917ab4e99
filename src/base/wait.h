/* wait.h - the one clock, and waiting: futexes that work across processes, condition variables, and
 * the pause of a spin loop.
 *
 * Threads: any. Locks: none. A futex word may be in memory that processes share.
 */
#ifndef HDI_BASE_WAIT_H
#define HDI_BASE_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "base/lock.h"

/* ---- the one clock: CLOCK_MONOTONIC in nanoseconds. It cannot fail. ---- */

static inline int64_t hdi_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time at which a limit of timeout_ns from now passes; INT64_MAX for a negative limit
 * (never). */
static inline int64_t hdi_deadline(int64_t timeout_ns)
{
    if (timeout_ns < 0) {
        return INT64_MAX;
    }
    int64_t now = hdi_clock_ns();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

/* ---- waiting ---- */

/* Marks a spin loop for the processor. */
static inline void hdi_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

/* Number of processors this process may run on (its affinity mask), at least 1. */
int hdi_cpu_count(void);

/* Sleeps while *word == expected, until hdi_futex_wake, a spurious wake-up, or the deadline
 * (hdi_clock_ns time; INT64_MAX: none). Returns false after the deadline. */
bool hdi_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns);

/* Wakes up to `count` sleepers (INT32_MAX: all). */
void hdi_futex_wake(_Atomic uint32_t *word, int count);

/* Futexes for sleepers with bits, at least one of them set: a wake-up wakes all sleepers that share
 * a bit with its `bits`. */
bool hdi_futex_wait_bits(_Atomic uint32_t *word, uint32_t expected, uint32_t bits, int64_t deadline_ns);
void hdi_futex_wake_bits(_Atomic uint32_t *word, uint32_t bits);

/* Prepares a condition variable with deadlines of hdi_clock_ns. */
void hdi_cond_init(pthread_cond_t *cond);

/* pthread_cond_wait until the deadline (INT64_MAX: none). Returns false after the deadline. */
bool hdi_cond_wait(pthread_cond_t *cond, hdi_mutex *mutex, int64_t deadline_ns);

/* Sleeps for about `ns` nanoseconds. */
void hdi_sleep_for(int64_t ns);

/* One turn of a spin loop. With few processors (fewer than 4) it yields the processor, because the
 * awaited work may need it. With more processors it only pauses. */
void hdi_spin_turn(void);

/* The time that a wait spins before it sleeps, in nanoseconds, from the option spin_us (-1: 200 us
 * with at least 4 processors, else 100 us). */
int64_t hdi_spin_ns(int64_t spin_us_option);

#endif
