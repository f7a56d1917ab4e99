/* stats.h - functions that measure and sum up: a tick counter for single calls, a histogram of
 * fixed size, medians.
 *
 * If the processor's time-stamp counter is invariant (x86-64), ticks come from it; else they are
 * nanoseconds of CLOCK_MONOTONIC. A measured duration also contains the time of its two readings.
 * cli_stats_clock_start measures this time with an empty pair of readings. Code that reports a
 * duration subtracts it.
 *
 * Threads: call cli_stats_clock_start once, before any other thread measures; afterwards the
 * clock's data does not change. A histogram belongs to one thread at a time. Zeroes initialise a
 * histogram, so it may lie in shared memory.
 * Locks: none.
 */
#ifndef CLI_COMMON_STATS_H
#define CLI_COMMON_STATS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef struct stats_clock {
    bool tsc; /* ticks come from the time-stamp counter */
    double ns_per_tick;
    double empty_ns; /* median duration of an empty pair of readings */
} stats_clock;

extern stats_clock stats_the_clock;

/* Selects the tick source, calibrates it for about 50 ms, and measures an empty pair. */
void cli_stats_clock_start(void);

static inline uint64_t cli_stats_monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The fences keep the measured code between the two readings. */
static inline uint64_t cli_stats_tick_begin(void)
{
#if defined(__x86_64__)
    if (stats_the_clock.tsc) {
        _mm_lfence();
        uint64_t ticks = __rdtsc();
        _mm_lfence();
        return ticks;
    }
#endif
    return cli_stats_monotonic();
}

static inline uint64_t cli_stats_tick_end(void)
{
#if defined(__x86_64__)
    if (stats_the_clock.tsc) {
        unsigned processor;
        uint64_t ticks = __rdtscp(&processor);
        _mm_lfence();
        return ticks;
    }
#endif
    return cli_stats_monotonic();
}

/* A log-linear histogram of tick counts: exact below 128, then 64 steps for every doubling
 * (within 1.6 %). */
enum { STATS_STEP_BITS = 6, STATS_OCTAVES = 42, STATS_BUCKETS = (STATS_OCTAVES + 1) << STATS_STEP_BITS };

typedef struct stats_histogram {
    uint64_t count;
    uint64_t max;
    uint64_t buckets[STATS_BUCKETS];
} stats_histogram;

static inline void cli_stats_record(stats_histogram *h, uint64_t ticks)
{
    unsigned index = (unsigned)ticks;
    if (ticks >= (2u << STATS_STEP_BITS)) {
        unsigned shift = 63u - STATS_STEP_BITS - (unsigned)__builtin_clzll(ticks);
        index = shift < STATS_OCTAVES ? (shift << STATS_STEP_BITS) + (unsigned)(ticks >> shift) : STATS_BUCKETS - 1;
    }
    h->buckets[index]++;
    h->count++;
    if (ticks > h->max) {
        h->max = ticks;
    }
}

void cli_stats_merge(stats_histogram *into, const stats_histogram *from);

/* Returns the smallest duration, in ticks, that is at least as long as the share `q` of the
 * recorded durations; 0 for an empty histogram. */
double cli_stats_quantile(const stats_histogram *h, double q);

/* Durations of calls in nanoseconds, minus the duration of an empty pair of readings; never
 * negative. */
typedef struct stats_calls {
    uint64_t count;
    double median_ns, p99_ns, max_ns;
} stats_calls;

stats_calls cli_stats_summarise(const stats_histogram *h);

/* Median, smallest and largest of n values; zeroes for n == 0. */
typedef struct stats_spread {
    double median, min, max;
} stats_spread;

stats_spread cli_stats_spread_of(const double *values, int n);

#endif
