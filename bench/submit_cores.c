/* submit_cores.c - what a cache line needs from one processor to another. A submit is counted in it, since a command has to cross to the
 * engine.
 *
 * Threads: the conductor's and one more, each on a processor of its own while they measure. Locks: none.
 * Always: the conductor's thread may run afterwards where it could before.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "bench/submit_parts.h"

enum { PAIRS = 9, WARM = 1000, TURNS = 20000 };

typedef struct ball {
    _Alignas(64) _Atomic uint32_t turn; /* even: the conductor's */
    _Alignas(64) int processor;
} ball;

static bool stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

/* Every second turn from this one on, up to `end`. */
static void play(ball *b, uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i += 2) {
        while (atomic_load_explicit(&b->turn, memory_order_acquire) != i) {
        }
        atomic_store_explicit(&b->turn, i + 1, memory_order_release);
    }
}

static void *other_side(void *argument)
{
    ball *b = argument;
    stay_on(b->processor);
    play(b, 1, WARM + TURNS);
    return NULL;
}

/* In nanoseconds; not a number: it could not be measured. */
static double one_way(int here, int there)
{
    ball b = {.processor = there};
    pthread_t thread;
    if (!stay_on(here) || pthread_create(&thread, NULL, other_side, &b) != 0) {
        return NAN;
    }
    play(&b, 0, WARM);
    uint64_t begin = stats_monotonic();
    play(&b, WARM, WARM + TURNS);
    double ns = (double)(stats_monotonic() - begin);
    pthread_join(thread, NULL);
    return ns / TURNS;
}

void submit_cores_measure(submit_experiment *x)
{
    cpu_set_t before;
    int processors[CPU_SETSIZE], n = 0, pairs = 0;
    double ns[PAIRS];
    x->one_way_ns = x->one_way_least_ns = x->one_way_most_ns = NAN;
    if (sched_getaffinity(0, sizeof(before), &before) != 0) {
        return;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &before)) {
            processors[n++] = i;
        }
    }
    /* the first one with others that lie near and far, also beyond what shares a core with it */
    for (int i = 1; i <= PAIRS && n > 1; i++) {
        int other = n - 1 < PAIRS ? i : 1 + (i - 1) * (n - 2) / (PAIRS - 1);
        double measured = other < n ? one_way(processors[0], processors[other]) : NAN;
        if (!isnan(measured)) {
            ns[pairs++] = measured;
        }
    }
    sched_setaffinity(0, sizeof(before), &before);
    if (pairs) {
        stats_spread s = stats_spread_of(ns, pairs);
        x->one_way_ns = s.median;
        x->one_way_least_ns = s.min;
        x->one_way_most_ns = s.max;
    }
    x->one_way_pairs = pairs;
}
