/* test_registry.c - a visitor of a runtime does not hold up calls on another runtime, and hd_close waits for it.
 *
 * Promise: Visiting a runtime delays no other runtime, and hd_close waits for the visitor.
 * Threads: two.
 */
#include "support/check.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
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

/* Returns when the visitor is inside. */
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

/* Lets the visitor go once the runtime can no longer be found. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_visit_holds_nobody_up),
        cmocka_unit_test(removing_waits_for_visitors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
