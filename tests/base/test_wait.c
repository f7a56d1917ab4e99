/* test_wait.c - futexes: values, deadlines, wake-ups, also from another process; condition
 * variables with deadlines.
 *
 * Promise: A wait returns on its wake-up or after its deadline, not before, also across processes.
 * Threads: the main one, and one that sets and wakes; in one case another process.
 */
#include "support/check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/wait.h"

enum { MS = 1000000 };

static void returns_when_the_value_differs(void **unused)
{
    (void)unused;
    _Atomic uint32_t word = 1;
    assert_true(hdi_futex_wait(&word, 0, INT64_MAX));
    hdi_futex_wake(&word, INT32_MAX); /* no thread waits there */
}

static void gives_up_at_the_deadline(void **unused)
{
    (void)unused;
    _Atomic uint32_t word = 0;
    int64_t start = hdi_clock_ns();
    bool woken = true;
    while (woken) { /* a spurious wake-up is allowed */
        woken = hdi_futex_wait(&word, 0, start + 20 * MS);
    }
    assert_true(hdi_clock_ns() - start >= 20 * MS);
    assert_false(hdi_futex_wait(&word, 0, start));
    assert_false(hdi_futex_wait(&word, 0, 0));
    assert_false(hdi_futex_wait(&word, 0, -5));
}

static void *set_and_wake(void *argument)
{
    _Atomic uint32_t *word = argument;
    hdi_sleep_for(5 * MS);
    atomic_store(word, 1);
    hdi_futex_wake(word, INT32_MAX);
    return NULL;
}

static void is_woken_by_a_thread(void **unused)
{
    (void)unused;
    _Atomic uint32_t word = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_and_wake, &word), 0);
    int64_t deadline = hdi_deadline((int64_t)30000 * MS);
    while (atomic_load(&word) == 0) {
        assert_true(hdi_futex_wait(&word, 0, deadline));
    }
    pthread_join(thread, NULL);
}

static void is_woken_by_another_process(void **unused)
{
    (void)unused;
    _Atomic uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(word != MAP_FAILED);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        set_and_wake(word);
        _exit(0);
    }
    int64_t deadline = hdi_deadline((int64_t)30000 * MS);
    while (atomic_load(word) == 0) {
        assert_true(hdi_futex_wait(word, 0, deadline));
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap((void *)word, 4096);
}

static void knows_the_processors(void **unused)
{
    (void)unused;
    assert_true(hdi_cpu_count() >= 1);
    assert_int_equal(hdi_cpu_count(), hdi_cpu_count());
    assert_int_equal(hdi_spin_ns(0), 0);
    assert_int_equal(hdi_spin_ns(7), 7000);
    assert_int_equal(hdi_spin_ns(INT64_MAX), INT64_MAX);
    assert_int_equal(hdi_spin_ns(-1), hdi_cpu_count() >= 4 ? 200000 : 100000);
}

static void deadlines_do_not_overflow(void **unused)
{
    (void)unused;
    assert_int_equal(hdi_deadline(-1), INT64_MAX);
    assert_int_equal(hdi_deadline(INT64_MAX), INT64_MAX);
    int64_t now = hdi_clock_ns();
    assert_true(hdi_deadline(0) >= now);
    hdi_sleep_for(-1);
    hdi_sleep_for(0);
    hdi_sleep_for(1000);
    assert_true(hdi_clock_ns() > now);
}

typedef struct signalled {
    hdi_mutex lock;
    pthread_cond_t cond;
    bool set;
} signalled;

static void *set_and_signal(void *argument)
{
    signalled *s = argument;
    hdi_sleep_for(5 * MS);
    hdi_mutex_lock(&s->lock);
    s->set = true;
    pthread_cond_broadcast(&s->cond);
    hdi_mutex_unlock(&s->lock);
    return NULL;
}

static void conditions_have_deadlines(void **unused)
{
    (void)unused;
    signalled s = {.lock = HDI_MUTEX_INIT(COLD)};
    hdi_cond_init(&s.cond);
    hdi_mutex_lock(&s.lock);
    int64_t start = hdi_clock_ns();
    while (hdi_cond_wait(&s.cond, &s.lock, start + 20 * MS)) { /* a spurious wake-up is allowed */
    }
    assert_true(hdi_clock_ns() - start >= 20 * MS);
    assert_false(hdi_cond_wait(&s.cond, &s.lock, 0));
    assert_false(hdi_cond_wait(&s.cond, &s.lock, INT64_MIN));
    for (int i = 0; i < 2; i++) {
        int64_t deadline = i ? INT64_MAX : hdi_deadline((int64_t)30000 * MS);
        pthread_t thread;
        s.set = false;
        assert_int_equal(pthread_create(&thread, NULL, set_and_signal, &s), 0);
        while (!s.set) {
            assert_true(hdi_cond_wait(&s.cond, &s.lock, deadline));
        }
        hdi_mutex_unlock(&s.lock);
        pthread_join(thread, NULL);
        hdi_mutex_lock(&s.lock);
    }
    hdi_mutex_unlock(&s.lock);
    pthread_cond_destroy(&s.cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_when_the_value_differs), cmocka_unit_test(gives_up_at_the_deadline),
        cmocka_unit_test(is_woken_by_a_thread),           cmocka_unit_test(is_woken_by_another_process),
        cmocka_unit_test(conditions_have_deadlines),      cmocka_unit_test(knows_the_processors),
        cmocka_unit_test(deadlines_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
