/* test_lock.c - the short lock: exclusion under contention, and a holder that keeps it for long. */
#include "support/check.h"

#include <pthread.h>
#include "base/lock.h"
#include "base/wait.h"

enum { THREADS = 4, ROUNDS = 20000 };

static hdi_lock lock;
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
    hdi_nap(20000000);
    assert_int_equal(counter, 0);
    hdi_lock_release(&lock);
    pthread_join(thread, NULL);
    assert_int_equal(counter, ROUNDS);
    assert_true(hdi_lock_try(&lock));
    hdi_lock_release(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(excludes),
        cmocka_unit_test(waits_for_a_slow_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
