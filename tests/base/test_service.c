/* test_service.c - background threads: they start when they are first needed, run when woken or at
 * a time, and end.
 *
 * Promise: After each wake a service's function begins once more, and never after the stop.
 * Threads: the main one, four that wake, and the service's own.
 */
#include "support/check.h"

#include <pthread.h>
#include "base/service.h"
#include "base/wait.h"

enum { WAKERS = 4, WAKES = 2000, MS = 1000000 };

typedef struct work {
    _Atomic unsigned wanted, done; /* `done`: the latest value of `wanted` that the function saw */
    _Atomic unsigned runs;
    _Atomic bool inside;
    int64_t again; /* nanoseconds until the next run; 0: only when woken */
} work;

static int64_t work_run(void *context)
{
    work *w = context;
    assert_false(atomic_exchange(&w->inside, true)); /* one run at a time */
    atomic_store(&w->done, atomic_load(&w->wanted));
    atomic_fetch_add(&w->runs, 1);
    atomic_store(&w->inside, false);
    return w->again ? hdi_deadline(w->again) : INT64_MAX;
}

typedef struct waker {
    hdi_service *service;
    work *w;
} waker;

static void *wake_often(void *context)
{
    waker *me = context;
    for (int i = 0; i < WAKES; i++) {
        unsigned mine = atomic_fetch_add(&me->w->wanted, 1) + 1;
        hdi_service_wake(me->service);
        while (i % 16 == 0 && (int)(atomic_load(&me->w->done) - mine) < 0) {
            hdi_sleep_for(MS / 10); /* ends, because no wake is lost */
        }
    }
    return NULL;
}

static void no_wake_is_lost(void **unused)
{
    (void)unused;
    work w = {.again = 0};
    hdi_service service;
    hdi_service_init(&service, work_run, &w);
    assert_true(hdi_service_start(&service));
    assert_true(hdi_service_start(&service)); /* it runs already */
    waker me = {&service, &w};
    pthread_t threads[WAKERS];
    for (int i = 0; i < WAKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wake_often, &me), 0);
    }
    for (int i = 0; i < WAKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    while (atomic_load(&w.done) != WAKERS * WAKES) {
        hdi_sleep_for(MS / 10);
    }
    hdi_service_stop(&service);
    hdi_service_destroy(&service);
}

static void it_runs_again_at_its_time(void **unused)
{
    (void)unused;
    work w = {.again = MS};
    hdi_service service;
    hdi_service_init(&service, work_run, &w);
    int64_t start = hdi_clock_ns();
    assert_true(hdi_service_start(&service));
    while (atomic_load(&w.runs) < 10) { /* nobody wakes it */
        hdi_sleep_for(MS);
    }
    assert_true(hdi_clock_ns() - start >= 9 * MS);
    hdi_service_stop(&service);
    hdi_service_destroy(&service);
}

static void nothing_runs_after_the_stop(void **unused)
{
    (void)unused;
    work w = {.again = 0};
    hdi_service service;
    hdi_service_init(&service, work_run, &w);
    hdi_service_wake(&service); /* before the start: this wake causes the first run */
    assert_int_equal(atomic_load(&w.runs), 0);
    assert_true(hdi_service_start(&service));
    while (atomic_load(&w.runs) == 0) {
        hdi_sleep_for(MS / 10);
    }
    hdi_service_stop(&service);
    unsigned runs = atomic_load(&w.runs);
    assert_true(hdi_service_is_stopped(&service));
    assert_true(hdi_service_start(&service)); /* the owner does the remaining work */
    hdi_service_wake(&service);
    hdi_service_stop(&service); /* a second stop changes nothing */
    assert_int_equal(atomic_load(&w.runs), runs);
    hdi_service_destroy(&service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(it_runs_again_at_its_time),
        cmocka_unit_test(nothing_runs_after_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
