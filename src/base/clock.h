/* clock.h - the one clock: CLOCK_MONOTONIC in nanoseconds. Threads: any. Locks: none. It cannot fail. */
#ifndef HDI_BASE_CLOCK_H
#define HDI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t hdi_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time at which a limit of timeout_ns from now passes; INT64_MAX for a negative limit (never). */
static inline int64_t hdi_deadline(int64_t timeout_ns)
{
    if (timeout_ns < 0) {
        return INT64_MAX;
    }
    int64_t now = hdi_clock_ns();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

#endif
