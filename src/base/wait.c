/* wait.c - futexes that work across processes, condition variables with deadlines, timed sleeps,
 * and the time to spin.
 *
 * Threads: any; no locks. Always: a futex wait returns at its deadline at the latest, whatever
 * happens to the waker.
 */
#include "base/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PROCESSORS_TO_SPIN 4

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "the kernel sees an atomic word as a plain one");

static int cpus_count_usable(void)
{
    /* the system refuses a mask that is shorter than its own, so the mask grows until the system
     * accepts it */
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 4) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        if (mask == NULL) {
            break;
        }
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, mask) == 0 ? CPU_COUNT_S(bytes, mask) : 0;
        CPU_FREE(mask);
        if (count > 0) {
            return count;
        }
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= INT_MAX ? (int)online : 1;
}

int hdi_cpu_count(void)
{
    /* relaxed: the first callers may all count, with the same result; nothing else depends on it */
    static atomic_int known;
    int count = atomic_load_explicit(&known, memory_order_relaxed);
    if (count == 0) {
        count = cpus_count_usable();
        atomic_store_explicit(&known, count, memory_order_relaxed);
    }
    return count;
}

bool hdi_futex_wait_bits(_Atomic uint32_t *word, uint32_t expected, uint32_t bits, int64_t deadline_ns)
{
    struct timespec limit;
    struct timespec *limit_or_none = NULL;
    if (deadline_ns != INT64_MAX) {
        int64_t at = deadline_ns > 0 ? deadline_ns : 0;
        limit.tv_sec = (time_t)(at / 1000000000);
        limit.tv_nsec = (long)(at % 1000000000);
        limit_or_none = &limit;
    }
    /* FUTEX_WAIT_BITSET, because its limit is a point in time of CLOCK_MONOTONIC; not private,
     * because the word may be in shared memory */
    long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, limit_or_none, NULL, bits);
    return !(result == -1 && errno == ETIMEDOUT);
}

bool hdi_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns)
{
    return hdi_futex_wait_bits(word, expected, FUTEX_BITSET_MATCH_ANY, deadline_ns);
}

void hdi_futex_wake_bits(_Atomic uint32_t *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

void hdi_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

void hdi_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool hdi_cond_wait(pthread_cond_t *cond, hdi_mutex *mutex, int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) {
        hdi_mutex_wait(mutex, cond);
        return true;
    }
    int64_t at = deadline_ns > 0 ? deadline_ns : 0;
    struct timespec limit = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
    HDI_UNCANCELLED;
    hdi_rank_released(mutex);
    bool signalled = pthread_cond_timedwait(cond, &mutex->mutex, &limit) != ETIMEDOUT;
    hdi_rank_taken(mutex, mutex->rank);
    return signalled;
}

void hdi_sleep_for(int64_t ns)
{
    if (ns <= 0) {
        return;
    }
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    HDI_UNCANCELLED;
    nanosleep(&t, NULL);
}

void hdi_spin_turn(void)
{
    if (hdi_cpu_count() < PROCESSORS_TO_SPIN) {
        sched_yield();
    } else {
        hdi_cpu_relax();
    }
}

int64_t hdi_spin_ns(int64_t spin_us_option)
{
    if (spin_us_option >= 0) {
        return spin_us_option > INT64_MAX / 1000 ? INT64_MAX : spin_us_option * 1000;
    }
    return hdi_cpu_count() >= PROCESSORS_TO_SPIN ? 200000 : 100000;
}
