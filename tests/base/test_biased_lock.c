/* test_biased_lock.c - the biased lock: owner and visitors exclude each other, with membarrier and
 * with a fence, also in a forked child.
 *
 * Promise: At most one thread is inside the biased lock, also in a forked child.
 *
 * Threads: an owner and three visitors. The lock guards plain memory, so the thread sanitizer
 * reports accesses that the lock does not order.
 */
#include "support/check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/lock.h"
#include "base/wait.h"
#include "support/sanitizers.h"

enum { VISITORS = 3, VISITS = TEST_TSAN ? 1000 : 20000 };

typedef struct shared {
    hdi_biased_lock lock;
    /* Guarded by the lock. The owner changes them in turn, so a thread that enters too early sees
     * them differ. */
    long first, second, third;
    long visits;
    _Atomic long entries; /* entries of the owner so far; a visitor sees that this stops */
    _Atomic int torn;     /* how often they differed; threads must not fail a test themselves */
    _Atomic bool stop;
} shared;

/* fenced: the lock uses its fence, as it does without membarrier, even if this processor supports
 * it. */
static shared *make(bool fenced)
{
    shared *s = calloc(1, sizeof *s);
    assert_non_null(s);
    hdi_biased_init(&s->lock);
    s->lock.fenced = s->lock.fenced || fenced;
    return s;
}

static void drop(shared *s)
{
    hdi_biased_destroy(&s->lock);
    free(s);
}

static void step(shared *s)
{
    if (s->first != s->second || s->second != s->third) {
        /* only if they differ: an atomic instruction in each step would act as the lock's missing
         * fence */
        s->torn++;
    }
    s->first++;
    /* keeps the compiler from joining the three stores */
    atomic_signal_fence(memory_order_seq_cst);
    s->second++;
    atomic_signal_fence(memory_order_seq_cst);
    s->third++;
}

/* Runs until `stop`, as long as there are visitors. */
static void *owner(void *argument)
{
    shared *s = argument;
    long entries = 0;
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        hdi_biased_enter(&s->lock);
        step(s);
        hdi_biased_leave(&s->lock);
        atomic_store_explicit(&s->entries, ++entries, memory_order_relaxed);
    }
    return NULL;
}

static void *visitor(void *argument)
{
    shared *s = argument;
    for (int i = 0; i < VISITS; i++) {
        hdi_biased_visit(&s->lock);
        step(s);
        if (i % 16 == 0) {
            sched_yield(); /* for any length of time */
        }
        step(s);
        s->visits++;
        hdi_biased_end_visit(&s->lock);
        if (i % 4 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void excludes(bool fenced)
{
    shared *s = make(fenced);
    pthread_t threads[VISITORS + 1];
    assert_int_equal(pthread_create(&threads[0], NULL, owner, s), 0);
    for (int i = 1; i <= VISITORS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, visitor, s), 0);
    }
    for (int i = VISITORS; i >= 0; i--) {
        s->stop = i == 0;
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(s->torn, 0);
    assert_true(s->entries > 0);
    assert_int_equal(s->visits, (long)VISITORS * VISITS);
    assert_int_equal(s->first, s->entries + 2L * VISITORS * VISITS);
    assert_int_equal(s->second, s->first);
    assert_int_equal(s->third, s->first);
    drop(s);
}

static void excludes_with_the_processors_help(void **unused)
{
    (void)unused;
    excludes(false);
}

static void excludes_with_a_fence(void **unused)
{
    (void)unused;
    excludes(true);
}

/* The owner stops while a visitor is inside, however long that takes, and then continues. */
static void keeps_the_owner_out(void **unused)
{
    (void)unused;
    for (int fenced = 0; fenced < 2; fenced++) {
        shared *s = make(fenced != 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, owner, s), 0);
        for (int i = 0; i < 5; i++) {
            long before = s->entries;
            while (s->entries < before + 100) {
                sched_yield();
            }
            hdi_biased_visit(&s->lock);
            before = s->first;
            hdi_sleep_for(5000000);
            s->torn += s->first != before;
            hdi_biased_end_visit(&s->lock);
        }
        s->stop = true;
        pthread_join(thread, NULL);
        assert_int_equal(s->torn, 0);
        drop(s);
    }
}

static void *visits_once(void *argument)
{
    shared *s = argument;
    hdi_biased_visit(&s->lock);
    s->visits++;
    s->stop = true;
    hdi_biased_end_visit(&s->lock);
    return NULL;
}

static void waits_for_the_owner_to_leave(void **unused)
{
    (void)unused;
    for (int fenced = 0; fenced < 2; fenced++) {
        shared *s = make(fenced != 0);
        pthread_t threads[VISITORS];
        hdi_biased_enter(&s->lock);
        for (int i = 0; i < VISITORS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, visits_once, s), 0);
        }
        hdi_sleep_for(20000000);
        assert_int_equal(s->visits, 0);
        assert_false(s->stop);
        hdi_biased_leave(&s->lock);
        for (int i = 0; i < VISITORS; i++) {
            pthread_join(threads[i], NULL);
        }
        assert_int_equal(s->visits, VISITORS);
        hdi_biased_enter(&s->lock); /* all visitors are gone */
        hdi_biased_leave(&s->lock);
        drop(s);
    }
}

static void the_owner_may_visit(void **unused)
{
    (void)unused;
    shared *s = make(false);
    for (int i = 0; i < 100; i++) {
        hdi_biased_enter(&s->lock);
        step(s);
        hdi_biased_leave(&s->lock);
        hdi_biased_visit(&s->lock);
        step(s);
        hdi_biased_end_visit(&s->lock);
    }
    assert_int_equal(s->third, 200);
    assert_int_equal(s->torn, 0);
    drop(s);
}

/* A child process inherits its parent's membarrier registration, or must notice that it did not. */
static void works_in_a_forked_child(void **unused)
{
    (void)unused;
    if (TEST_TSAN) {
        skip(); /* the thread sanitizer does not support threads in forked children */
    }
    drop(make(false));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        shared *s = make(false);
        pthread_t threads[2];
        bool good =
            pthread_create(&threads[0], NULL, owner, s) == 0 && pthread_create(&threads[1], NULL, visitor, s) == 0;
        for (int i = 1; good && i >= 0; i--) {
            s->stop = i == 0;
            pthread_join(threads[i], NULL);
        }
        _exit(good && s->torn == 0 && s->first == s->entries + 2L * VISITS && s->third == s->first ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(excludes_with_the_processors_help),
        cmocka_unit_test(excludes_with_a_fence),
        cmocka_unit_test(keeps_the_owner_out),
        cmocka_unit_test(waits_for_the_owner_to_leave),
        cmocka_unit_test(the_owner_may_visit),
        cmocka_unit_test(works_in_a_forked_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
