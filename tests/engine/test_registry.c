/* test_registry.c - a visitor of a runtime does not delay calls on other runtimes, and hd_close
 * waits for it.
 *
 * Promise: Visiting a runtime delays no other, hd_close waits for it; asking if open takes no lock.
 * Threads: two.
 */
#include "support/check.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "engine/engine.h"

typedef struct visit {
    hd_runtime *runtime, *seen;
    sem_t inside, go;
    atomic_bool left;
    bool found;
    pthread_t thread;
} visit;

static void stay(hd_runtime *rt, void *context)
{
    visit *v = context;
    v->seen = rt;
    sem_post(&v->inside);
    while (sem_wait(&v->go) != 0) {
    }
    atomic_store(&v->left, true);
}

static void *visits(void *context)
{
    visit *v = context;
    v->found = hdi_runtime_with(v->runtime->id, stay, v);
    return NULL;
}

static hd_runtime *opened(void)
{
    hd_runtime *rt = aligned_alloc(_Alignof(hd_runtime), sizeof *rt);
    assert_non_null(rt);
    memset(rt, 0, sizeof *rt);
    assert_int_equal(hdi_runtime_add(rt), HD_OK);
    return rt;
}

/* Returns once the visitor is inside. */
static void begin(visit *v, hd_runtime *rt)
{
    v->runtime = rt;
    v->found = false;
    atomic_init(&v->left, false);
    sem_init(&v->inside, 0, 0);
    sem_init(&v->go, 0, 0);
    assert_int_equal(pthread_create(&v->thread, NULL, visits, v), 0);
    while (sem_wait(&v->inside) != 0) {
    }
}

static void end(visit *v)
{
    assert_int_equal(pthread_join(v->thread, NULL), 0);
    assert_true(v->found);
    assert_ptr_equal(v->seen, v->runtime);
    sem_destroy(&v->inside);
    sem_destroy(&v->go);
}

static void a_visit_holds_nobody_up(void **state)
{
    (void)state;
    hd_runtime *visited = opened(), *other = opened();
    visit v;
    begin(&v, visited);
    assert_true(hdi_runtime_is_open(other));
    assert_true(hdi_runtime_is_open(visited));
    assert_true(hdi_runtime_remove(other));
    assert_false(hdi_runtime_is_open(other));
    sem_post(&v.go);
    end(&v);
    assert_true(hdi_runtime_remove(visited));
    free(visited);
    free(other);
}

static void nothing(hd_runtime *rt, void *context)
{
    (void)rt;
    (void)context;
}

/* Lets the visitor go once the runtime is out of the registry. */
static void *lets_go(void *context)
{
    visit *v = context;
    while (hdi_runtime_with(v->runtime->id, nothing, NULL)) {
        sched_yield();
    }
    sem_post(&v->go);
    return NULL;
}

static void removing_waits_for_visitors(void **state)
{
    (void)state;
    hd_runtime *rt = opened();
    visit v;
    begin(&v, rt);
    pthread_t helper;
    assert_int_equal(pthread_create(&helper, NULL, lets_go, &v), 0);
    assert_true(hdi_runtime_remove(rt));
    assert_true(atomic_load(&v.left));
    assert_false(hdi_runtime_remove(rt));
    pthread_join(helper, NULL);
    end(&v);
    free(rt);
}

/* ---- a thread that asks while the registry is locked: the library's fork handler locks it before
 * this program's handler runs ---- */

typedef struct question {
    hd_runtime *open, *closed;
    sem_t asked, answered;
    bool found[3];
} question;

static question *at_fork; /* NULL: ask nothing */

static void *answers(void *context)
{
    question *q = context;
    while (sem_wait(&q->asked) != 0) {
    }
    q->found[0] = hdi_runtime_is_open(q->open);
    q->found[1] = hdi_runtime_is_open(q->closed);
    q->found[2] = hdi_runtime_is_open(NULL);
    sem_post(&q->answered);
    return NULL;
}

static bool has_answer;

static void before_fork(void)
{
    if (!at_fork) {
        return;
    }
    sem_post(&at_fork->asked);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60; /* reached only without an answer */
    has_answer = sem_timedwait(&at_fork->answered, &limit) == 0;
}

static void asking_takes_no_lock(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* it stops all other threads during a fork */
#endif
    question q = {.open = opened(), .closed = opened()};
    assert_true(hdi_runtime_remove(q.closed));
    sem_init(&q.asked, 0, 0);
    sem_init(&q.answered, 0, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answers, &q), 0);
    at_fork = &q;
    pid_t child = fork();
    if (child == 0) {
        _exit(hdi_runtime_is_open(q.open) ? 1 : 0);
    }
    at_fork = NULL;
    assert_int_equal(pthread_join(thread, NULL), 0);
    int ended = -1;
    assert_true(waitpid(child, &ended, 0) == child && ended == 0);
    assert_true(has_answer);
    assert_true(q.found[0] && !q.found[1] && !q.found[2]);
    assert_true(hdi_runtime_remove(q.open));
    sem_destroy(&q.asked);
    sem_destroy(&q.answered);
    free(q.open);
    free(q.closed);
}

int main(void)
{
    /* registered before the library's handler, so it runs after that */
    pthread_atfork(before_fork, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_visit_holds_nobody_up),
        cmocka_unit_test(removing_waits_for_visitors),
        cmocka_unit_test(asking_takes_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
