/* test_thread.c - whether the calling thread is the process's only one beside the library's. Threads of the system's own (ThreadSanitizer has one)
 * make that uncertain, so the test does not run there. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/thread.h"
#include "base/wait.h"
#include "support/check.h"
#include "support/sanitizers.h"

static sem_t go;

static void *stays(void *unused)
{
    sem_wait(&go);
    return unused;
}

/* A thread that was joined may be the system's for a moment more. */
static bool is_alone_soon(void)
{
    bool alone = hdi_thread_is_alone();
    while (!alone) { /* else the test's time limit ends it */
        hdi_nap(1000000);
        alone = hdi_thread_is_alone();
    }
    return alone;
}

static void end(pthread_t thread)
{
    sem_post(&go);
    pthread_join(thread, NULL);
}

static void only_the_library_s_threads_do_not_count(void **unused)
{
    (void)unused;
    if (TEST_TSAN) {
        skip();
    }
    pthread_t own, others;
    assert_true(hdi_thread_is_alone());
    assert_int_equal(hdi_thread_start(&own, stays, NULL), 0);
    assert_true(is_alone_soon());
    assert_int_equal(pthread_create(&others, NULL, stays, NULL), 0);
    assert_false(hdi_thread_is_alone());
    sem_post(&go); /* either may take it, so both end */
    end(own);
    pthread_join(others, NULL);
    assert_true(is_alone_soon());
}

/* In a child there is one thread, whatever the parent had. */
static void forks_begin_anew(void **unused)
{
    (void)unused;
    if (TEST_TSAN) {
        skip();
    }
    pthread_t own;
    assert_int_equal(hdi_thread_start(&own, stays, NULL), 0);
    assert_true(is_alone_soon());
    pid_t child = fork();
    if (child == 0) {
        pthread_t others;
        bool good = hdi_thread_is_alone() && pthread_create(&others, NULL, stays, NULL) == 0 && !hdi_thread_is_alone();
        _exit(good ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    end(own);
}

int main(void)
{
    sem_init(&go, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_library_s_threads_do_not_count),
        cmocka_unit_test(forks_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
