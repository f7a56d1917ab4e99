/* races.h - for tests in which threads use one object at the same moment, again and again.
 *
 * The main thread prepares a round, and all threads meet. Each waits a moment of its own and acts.
 * Then all meet again.
 *
 * Threads: the main one and those that pool_start began.
 * Locks: none.
 * Blocking: at each meeting.
 * Always: between two rounds only the main thread acts.
 */
#ifndef CONFORMANCE_RACES_H
#define CONFORMANCE_RACES_H

#include "pool.h"

typedef struct race_rounds {
    pthread_barrier_t barrier;
    atomic_bool over;
    int64_t begin;
    int done;
} race_rounds;

CONF_UNUSED static void race_make(race_rounds *r, unsigned threads)
{
    *r = (race_rounds){.begin = conf_now()};
    CONF_EQUAL(pthread_barrier_init(&r->barrier, NULL, threads), 0);
}

/* True if another round follows: at least 200 rounds, then as long as there is time, up to
 * `most`. */
CONF_UNUSED static bool race_next(race_rounds *r, int most, int64_t nanoseconds)
{
    int done = r->done++;
    return done < 200 || (done < most && conf_now() < r->begin + nanoseconds);
}

/* Waits a short moment, or not at all. */
CONF_UNUSED static void race_moment(conf_random *random)
{
    volatile uint64_t turns = conf_below(random, 2000);
    while (turns > 0) {
        turns = turns - 1;
    }
}

/* Begins a round, with its moment. Returns false if no round is left. */
CONF_UNUSED static bool race_meet(race_rounds *r, conf_random *random)
{
    pthread_barrier_wait(&r->barrier);
    if (atomic_load(&r->over)) {
        return false;
    }
    race_moment(random);
    return true;
}

/* Ends a round. */
CONF_UNUSED static void race_part(race_rounds *r)
{
    pthread_barrier_wait(&r->barrier);
}

/* Called by the main thread: makes the others return, and joins them. */
CONF_UNUSED static void race_end(race_rounds *r, pool_thread *others, int count)
{
    atomic_store(&r->over, true);
    pthread_barrier_wait(&r->barrier);
    pool_join(others, count);
    pthread_barrier_destroy(&r->barrier);
}

/* Checks that new allocations of that size do not overlap. If memory had been given back twice, two
 * of them would share it. */
CONF_UNUSED static void race_none_twice(hd_lane *lane, size_t bytes)
{
    enum { n = 6 };
    hd_buffer *y[n];
    for (uint32_t i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lane, bytes, &y[i]));
        CONF_OK(hd_fill(y[i], 0, i, 4, NULL));
        for (uint32_t j = 0; j < i; j++) {
            CONF_TRUE(y[i] != y[j] && hd_buffer_address(y[i]) != hd_buffer_address(y[j]));
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        CONF_FILLED(y[i], 0, i, 4);
        hd_free(y[i]);
    }
}

#endif
