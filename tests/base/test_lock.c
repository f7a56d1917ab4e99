/* test_lock.c - the short lock: exclusion under contention, a holder that keeps it long, and one
 * that takes it repeatedly.
 *
 * Promise: At most one thread holds the lock, and every waiting thread gets it in the end.
 * Threads: the main one, and those that compete for the lock.
 */
#include "support/check.h"

#include <pthread.h>
#include "base/lock.h"
#include "base/wait.h"

enum { THREADS = 4, ROUNDS = 20000 };

static hdi_lock lock = HDI_LOCK_INIT(ORDER);
static long counter; /* guarded by lock */

static void *add(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        hdi_lock_take(&lock);
        counter++;
        hdi_lock_release(&lock);
    }
    return NULL;
}

static void excludes(void **unused)
{
    (void)unused;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(counter, THREADS * ROUNDS);
}

static void waits_for_a_slow_holder(void **unused)
{
    (void)unused;
    counter = 0;
    hdi_lock_take(&lock);
    assert_false(hdi_lock_try(&lock));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, add, NULL), 0);
    hdi_sleep_for(20000000);
    assert_int_equal(counter, 0);
    hdi_lock_release(&lock);
    pthread_join(thread, NULL);
    assert_int_equal(counter, ROUNDS);
    assert_true(hdi_lock_try(&lock));
    hdi_lock_release(&lock);
}

enum { TURNS = 10, HOGGED_MOST = 4000, PAUSES_HELD = 10000 };

static _Atomic int turns_left;

static void *take_in_turns(void *unused)
{
    (void)unused;
    for (int i = 0; i < TURNS; i++) {
        hdi_lock_take(&lock);
        atomic_fetch_sub(&turns_left, 1);
        hdi_lock_release(&lock);
    }
    return NULL;
}

/* One thread releases the lock, takes it again at once, and holds it far longer than other threads
 * need to look at it. They still get the lock. */
static void is_fair_to_those_who_wait(void **unused)
{
    (void)unused;
    atomic_store(&turns_left, 2 * TURNS);
    hdi_lock_take(&lock);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_in_turns, NULL), 0);
    }
    int hogged = 0;
    for (; hogged < HOGGED_MOST && atomic_load(&turns_left) > 0; hogged++) {
        for (int i = 0; i < PAUSES_HELD; i++) {
            hdi_cpu_relax();
        }
        hdi_lock_release(&lock);
        hdi_lock_take(&lock);
    }
    int left = atomic_load(&turns_left);
    hdi_lock_release(&lock);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(left, 0);
    assert_true(hdi_lock_try(&lock));
    hdi_lock_release(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(excludes),
        cmocka_unit_test(waits_for_a_slow_holder),
        cmocka_unit_test(is_fair_to_those_who_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
