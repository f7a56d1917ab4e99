/* test_thread.c - tells threads of the library, threads that use it, and threads inside a call
 * apart.
 *
 * Promise: Threads of the library, threads that use it and threads inside a call stay apart.
 * Threads: the main one, and a few that stay. Locks: none.
 */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/presence.h"
#include "base/thread.h"
#include "support/check.h"
#include "support/sanitizers.h"

static sem_t there, go;
static const int a_runtime;

/* Makes a call if the argument is set, then stays alive until `go`. */
static void *stays(void *calls)
{
    if (calls) {
        HDI_INSIDE_STILL(&a_runtime);
    }
    sem_post(&there);
    sem_wait(&go);
    return hdi_thread_is_own() ? &there : NULL;
}

static bool was_own(pthread_t thread)
{
    void *own = NULL;
    sem_post(&go);
    pthread_join(thread, &own);
    return own != NULL;
}

static pthread_t begin(bool own, bool calls)
{
    pthread_t thread;
    void *argument = calls ? &go : NULL;
    assert_int_equal(own ? hdi_thread_start(&thread, stays, argument) : pthread_create(&thread, NULL, stays, argument),
                     0);
    sem_wait(&there);
    return thread;
}

static void only_the_program_s_threads_that_call_count(void **unused)
{
    (void)unused;
    assert_false(hdi_thread_is_own());
    assert_false(hdi_presence_has_others());
    { /* the calling thread does not count as another one */
        HDI_INSIDE_STILL(&a_runtime);
        assert_false(hdi_presence_has_others());
    }
    pthread_t thread = begin(true, true);
    assert_false(hdi_presence_has_others());
    assert_true(was_own(thread));
    thread = begin(false, false);
    assert_false(hdi_presence_has_others());
    assert_false(was_own(thread));
    thread = begin(false, true);
    assert_true(hdi_presence_has_others());
    assert_false(was_own(thread));
    assert_false(hdi_presence_has_others());
    thread = begin(true, true); /* reuses the record of the previous thread */
    assert_false(hdi_presence_has_others());
    assert_true(was_own(thread));
}

/* A call within a call, with a stale handle. */
static bool is_inside_within(bool stays)
{
    HDI_INSIDE_STILL(NULL);
    if (stays) {
        sem_post(&there);
        sem_wait(&go);
    }
    return hdi_presence_is_inside(&a_runtime);
}

static void *stays_within(void *unused)
{
    (void)unused;
    HDI_INSIDE_STILL(&a_runtime);
    is_inside_within(true);
    sem_post(&there);
    sem_wait(&go);
    return NULL;
}

static void a_call_within_a_call_is_still_awaited(void **unused)
{
    (void)unused;
    {
        HDI_INSIDE_STILL(&a_runtime);
        assert_true(is_inside_within(false));
        assert_true(hdi_presence_is_inside(&a_runtime));
    }
    assert_false(hdi_presence_is_inside(&a_runtime));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stays_within, NULL), 0);
    for (int stage = 0; stage < 2; stage++) { /* inside the inner call, and after it */
        sem_wait(&there);
        assert_false(hdi_presence_await(&a_runtime, 0));
        sem_post(&go);
    }
    pthread_join(thread, NULL);
    assert_true(hdi_presence_await(&a_runtime, 0));
}

/* A forked child starts with one thread, however many its parent had. */
static void forks_begin_anew(void **unused)
{
    (void)unused;
    if (TEST_TSAN) {
        skip(); /* it does not support threads in the child of a process with threads */
    }
    pthread_t thread = begin(false, true);
    assert_true(hdi_presence_has_others());
    pid_t child = fork();
    if (child == 0) {
        bool good = !hdi_presence_has_others();
        pthread_t other = begin(false, true);
        good = good && hdi_presence_has_others() && !was_own(other);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    was_own(thread);
}

int main(void)
{
    sem_init(&there, 0, 0);
    sem_init(&go, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_program_s_threads_that_call_count),
        cmocka_unit_test(a_call_within_a_call_is_still_awaited),
        cmocka_unit_test(forks_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
