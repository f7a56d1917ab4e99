/* test_quick_clock.c - the quick clock compared with the clock: with threads, and with relations
 * that are replaced, old, or of a counter that jumped.
 *
 * Promise: The quick clock is within 1 us of the clock, and equals it without a good relation.
 * Threads: the main one, which relates, and four that look.
 * Always: each look is between two looks at the clock, so an interrupted thread never fails the
 * test.
 */
#include "support/check.h"

#include <pthread.h>
#include <signal.h>
#include "base/quick_clock.h"

enum { THREADS = 4, RELATIONS = 60, STOPS = 1000, NEAR = 1000, MS = 1000000 };

static hdi_quick_clock clock_of_all;
static _Atomic bool ends;
static _Atomic int looking, wrong;

static void wait_until(int64_t time)
{
    while (hdi_clock_ns() < time) {
        hdi_cpu_relax();
    }
}

/* True if the quick clock is at most `near` away from the clock. */
static bool is_near(const hdi_quick_clock *clock, int64_t near, int64_t *look)
{
    int64_t before = hdi_clock_ns();
    *look = hdi_quick_ns(clock);
    int64_t behind = hdi_clock_ns();
    return before - near <= *look && *look <= behind + near;
}

static bool is_the_clock(const hdi_quick_clock *clock)
{
    int64_t look;
    return is_near(clock, 0, &look);
}

static void *look_on(void *unused)
{
    int64_t last = 0, look;
    atomic_fetch_add(&looking, 1);
    while (!atomic_load(&ends)) {
        if (!is_near(&clock_of_all, NEAR, &look) || look < last - NEAR) {
            atomic_fetch_add(&wrong, 1);
        }
        last = look;
    }
    return unused;
}

/* n threads look at the clock while `relate` runs; it gets the first of them. */
static void under_threads(int n, void (*relate)(pthread_t thread))
{
    pthread_t threads[THREADS];
    atomic_store(&ends, false);
    atomic_store(&looking, 0);
    atomic_store(&wrong, 0);
    hdi_quick_begin(&clock_of_all);
    for (int i = 0; i < n; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, look_on, NULL), 0);
    }
    while (atomic_load(&looking) < n) {
        hdi_cpu_relax();
    }
    relate(threads[0]);
    atomic_store(&ends, true);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
}

static void now_and_then(pthread_t unused)
{
    (void)unused;
    for (int i = 0; i < RELATIONS; i++) {
        wait_until(hdi_clock_ns() + 2 * MS);
        hdi_quick_relate(&clock_of_all);
    }
}

static void threads_look_while_one_relates(void **unused)
{
    (void)unused;
    under_threads(THREADS, now_and_then);
    assert_true(!clock_of_all.usable || atomic_load(&clock_of_all.turn) >= RELATIONS);
}

/* Stops a thread in the middle of a look; the thread continues once its relation is replaced. */
static _Atomic int stopped, go_on;

static void stop_here(int unused)
{
    (void)unused;
    int number = atomic_fetch_add(&stopped, 1) + 1;
    while (atomic_load(&go_on) < number) {
        hdi_cpu_relax();
    }
}

static void while_it_is_stopped(pthread_t thread)
{
    wait_until(hdi_clock_ns() + 20 * MS);
    hdi_quick_relate(&clock_of_all);
    for (int i = 1; i <= STOPS; i++) {
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        while (atomic_load(&stopped) < i) {
            hdi_cpu_relax();
        }
        for (int k = 0; k < HDI_QUICK_RELATIONS; k++) {
            wait_until(hdi_clock_ns() + 4 * NEAR);
            hdi_quick_relate(&clock_of_all);
        }
        atomic_store(&go_on, i);
    }
}

static void a_relation_is_replaced_meanwhile(void **unused)
{
    (void)unused;
    struct sigaction stops = {.sa_handler = stop_here};
    assert_int_equal(sigaction(SIGUSR1, &stops, NULL), 0);
    under_threads(1, while_it_is_stopped);
    assert_true(!clock_of_all.usable || atomic_load(&clock_of_all.turn) >= HDI_QUICK_RELATIONS * STOPS);
}

static void without_a_counter_it_is_the_clock(void **unused)
{
    (void)unused;
    hdi_quick_clock zeros = {0}, none = {0};
    assert_true(is_the_clock(&zeros));
    hdi_quick_begin(&none);
    assert_true(is_the_clock(&none)); /* no relation yet */
    none.usable = false;
    wait_until(hdi_clock_ns() + 2 * MS);
    hdi_quick_relate(&none);
    assert_int_equal(atomic_load(&none.turn), 0);
    assert_true(is_the_clock(&none));
}

/* The relation's rate was measured over about two milliseconds, and is one percent too high. */
static void begin_with_a_bad_rate(hdi_quick_clock *clock)
{
    int64_t began = hdi_clock_ns();
    hdi_quick_begin(clock);
    wait_until(began + 2 * MS);
    clock->from.ns -= (hdi_clock_ns() - began) / 100;
    hdi_quick_relate(clock);
}

static void an_old_relation_is_not_used(void **unused)
{
    (void)unused;
    hdi_quick_clock clock = {0};
    begin_with_a_bad_rate(&clock);
    int64_t measured_in = hdi_clock_ns() - clock.from.ns;
    wait_until(hdi_clock_ns() + 3 * measured_in);
    for (int i = 0; i < 100; i++) {
        assert_true(is_the_clock(&clock));
    }
}

static void a_counter_that_jumps_is_measured_anew(void **unused)
{
    (void)unused;
    hdi_quick_clock clock = {0};
    for (int backwards = 0; backwards < 2; backwards++) {
        int64_t look;
        hdi_quick_begin(&clock);
        wait_until(hdi_clock_ns() + 2 * MS);
        hdi_quick_relate(&clock);
        int64_t since = hdi_ticks() - clock.from.ticks;
        /* as if the counter had jumped since then */
        clock.from.ticks += backwards ? 1000 * since : -since / 2;
        hdi_quick_relate(&clock);
        assert_true(is_the_clock(&clock)); /* the relation contains no rate */
        for (int i = 0; i < 20; i++) {
            wait_until(hdi_clock_ns() + 2 * MS);
            hdi_quick_relate(&clock);
            assert_true(is_near(&clock, NEAR, &look));
        }
        assert_true(!clock.usable || clock.rate > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_look_while_one_relates),        cmocka_unit_test(a_relation_is_replaced_meanwhile),
        cmocka_unit_test(without_a_counter_it_is_the_clock),     cmocka_unit_test(an_old_relation_is_not_used),
        cmocka_unit_test(a_counter_that_jumps_is_measured_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
