/* stats.c - calibrates the tick counter, and sums up histograms and rounds.
 *
 * Threads, Locks: see stats.h.
 * Always: the buckets of a histogram add up to its count. A reported duration is never negative,
 * even if an empty pair of readings took longer than the measured code.
 */
#include "cli/common/stats.h"

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { CALIBRATION_NS = 50 * 1000 * 1000, EMPTY_PAIRS = 20001 };

stats_clock stats_the_clock = {.tsc = false, .ns_per_tick = 1.0, .empty_ns = 0.0};

static bool cli_stats_tsc_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(d & (1u << 27))) { /* rdtscp */
        return false;
    }
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
#else
    return false;
#endif
}

void cli_stats_clock_start(void)
{
    stats_the_clock = (stats_clock){.tsc = cli_stats_tsc_is_invariant(), .ns_per_tick = 1.0, .empty_ns = 0.0};
    if (stats_the_clock.tsc) {
        uint64_t ns = cli_stats_monotonic(), ticks = cli_stats_tick_begin(), now;
        do {
            now = cli_stats_monotonic();
        } while (now - ns < CALIBRATION_NS);
        stats_the_clock.ns_per_tick = (double)(now - ns) / (double)(cli_stats_tick_end() - ticks);
    }
    stats_histogram *empty = calloc(1, sizeof(*empty));
    if (!empty) {
        return;
    }
    for (int i = 0; i < EMPTY_PAIRS; i++) {
        uint64_t begin = cli_stats_tick_begin();
        cli_stats_record(empty, cli_stats_tick_end() - begin);
    }
    stats_the_clock.empty_ns = cli_stats_quantile(empty, 0.5) * stats_the_clock.ns_per_tick;
    free(empty);
}

void cli_stats_merge(stats_histogram *into, const stats_histogram *from)
{
    into->count += from->count;
    into->max = from->max > into->max ? from->max : into->max;
    for (int i = 0; i < STATS_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

/* The middle of a bucket. */
static double cli_stats_bucket_value(unsigned index)
{
    if (index < (2u << STATS_STEP_BITS)) {
        return (double)index;
    }
    unsigned shift = (index >> STATS_STEP_BITS) - 1;
    uint64_t low = (uint64_t)(index - (shift << STATS_STEP_BITS)) << shift;
    return (double)low + (double)((uint64_t)1 << shift) / 2;
}

double cli_stats_quantile(const stats_histogram *h, double q)
{
    if (h->count == 0) {
        return 0;
    }
    uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;
    if (rank >= h->count) {
        return (double)h->max;
    }
    for (unsigned i = 0; i < STATS_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > rank) {
            double value = cli_stats_bucket_value(i);
            return value < (double)h->max ? value : (double)h->max;
        }
    }
    return (double)h->max;
}

static double cli_stats_cost_ns(double ticks)
{
    double ns = ticks * stats_the_clock.ns_per_tick - stats_the_clock.empty_ns;
    return ns > 0 ? ns : 0;
}

stats_calls cli_stats_summarise(const stats_histogram *h)
{
    return (stats_calls){.count = h->count,
                         .median_ns = cli_stats_cost_ns(cli_stats_quantile(h, 0.5)),
                         .p99_ns = cli_stats_cost_ns(cli_stats_quantile(h, 0.99)),
                         .max_ns = cli_stats_cost_ns((double)h->max)};
}

static int cli_stats_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

stats_spread cli_stats_spread_of(const double *values, int n)
{
    stats_spread spread = {0, 0, 0};
    double *sorted = n > 0 ? malloc((size_t)n * sizeof(*sorted)) : NULL;
    if (!sorted) {
        return spread;
    }
    memcpy(sorted, values, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), cli_stats_compare_doubles);
    spread.min = sorted[0];
    spread.max = sorted[n - 1];
    spread.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return spread;
}
