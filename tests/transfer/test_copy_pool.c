/* test_copy_pool.c - the pool of copying threads: every item is copied once, by any number of
 * threads. Workers are sent away, distributed, fail to start, and end with the pool. Also copies
 * past the caches.
 *
 * Promise: Every item given to the copying threads is done once, however many threads there are.
 *
 * Threads: those of the pool, and those that share work at once. Locks: none. No driver runs: the
 * runtime contains only the fields that the pool reads.
 */
#include "transfer/part.h"
#include "support/check.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "transfer/copy_pool.h"

enum { DEVICES = 2 };

static hd_runtime *open_pool(int64_t copy_threads)
{
    hdi_transfer_part *part = aligned_alloc(HDI_LINE, (sizeof *part + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    hd_runtime *rt = (hd_runtime *)part;
    assert_non_null(rt);
    memset(part, 0, sizeof *part);
    *rt = (hd_runtime){.n_devices = DEVICES, .spin_ns = 100000};
    rt->options.copy_threads = copy_threads;
    for (int i = 0; i < DEVICES; i++) {
        rt->devices[i] = aligned_alloc(HDI_LINE, (sizeof(hdi_device) + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
        assert_non_null(rt->devices[i]);
        *rt->devices[i] = (hdi_device){.runtime = rt, .index = i};
        snprintf(rt->devices[i]->facts.bus_id, sizeof rt->devices[i]->facts.bus_id, "host:%d", i);
    }
    assert_ok(hdi_copy_pool_lifetime.create(rt));
    return rt;
}

static void close_pool(hd_runtime *rt)
{
    hdi_copy_pool_lifetime.stop(rt);
    assert_null(hdi_transfer_of(rt)->copy_pool);
    for (int i = 0; i < DEVICES; i++) {
        free(rt->devices[i]);
    }
    free(rt);
}

/* Counts the threads of this process. A joined one may stay in the list for a moment. */
static int threads_now(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        n += entry->d_name[0] != '.';
    }
    if (tasks) {
        closedir(tasks);
    }
    return n;
}

static void short_sleep(void)
{
    struct timespec t = {0, 200000};
    nanosleep(&t, NULL);
}

static void threads_become(int wanted)
{
    while (threads_now() != wanted) { /* the alarm ends an endless wait */
        short_sleep();
    }
}

/* ---- items ---- */

typedef struct tally {
    size_t items;
    _Atomic unsigned *times; /* per item */
    _Atomic unsigned inside;
} tally;

static void count_item(void *context, size_t item)
{
    tally *t = context;
    atomic_fetch_add(&t->inside, 1);
    assert_true(item < t->items);
    atomic_fetch_add(&t->times[item], 1);
    if (item % 7 == 0) {
        short_sleep(); /* so that others get some */
    }
    atomic_fetch_sub(&t->inside, 1);
}

static void run_items(hd_runtime *rt, int device, size_t items)
{
    tally t = {.items = items, .times = calloc(items + 1, sizeof *t.times)};
    assert_non_null(t.times);
    hdi_copy_pool_run(rt, device, items, count_item, &t);
    assert_int_equal(atomic_load(&t.inside), 0);
    for (size_t i = 0; i < items; i++) {
        assert_int_equal(atomic_load(&t.times[i]), 1);
    }
    free(t.times);
}

static void every_item_runs_once(void **state)
{
    (void)state;
    static const int64_t threads[] = {-1, 0, 1, 2, 8, 64};
    static const size_t items[] = {0, 1, 2, 3, 7, 64, 500};
    int before = threads_now();
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        hd_runtime *rt = open_pool(threads[i]);
        for (size_t j = 0; j < sizeof items / sizeof *items; j++) {
            run_items(rt, (int)(j % 3) - 1, items[j]);
            assert_true(threads_now() <= before + (int)hdi_copy_pool_count(rt));
        }
        close_pool(rt);
        threads_become(before);
    }
}

static void a_pool_that_is_not_needed_starts_no_thread(void **state)
{
    (void)state;
    int before = threads_now();
    hd_runtime *rt = open_pool(8);
    run_items(rt, 0, 0);
    run_items(rt, 0, 1);
    assert_int_equal(threads_now(), before);
    close_pool(rt);
    rt = open_pool(0);
    run_items(rt, 0, 100);
    assert_int_equal(hdi_copy_pool_count(rt), 0);
    assert_int_equal(threads_now(), before);
    close_pool(rt);
    rt = open_pool(8);
    rt->is_inline = true;
    run_items(rt, 0, 100);
    assert_int_equal(hdi_copy_pool_count(rt), 0);
    assert_int_equal(threads_now(), before);
    close_pool(rt);
}

typedef struct crowd {
    hd_runtime *rt;
    int number;
} crowd;

static void *share_often(void *argument)
{
    const crowd *c = argument;
    for (size_t i = 0; i < 40; i++) {
        run_items(c->rt, c->number % DEVICES, (i * 13 + (size_t)c->number) % 50);
    }
    return NULL;
}

static void many_threads_share_at_once(void **state)
{
    (void)state;
    enum { n = 12 };
    for (int64_t workers = 0; workers <= 4; workers += 2) {
        hd_runtime *rt = open_pool(workers);
        pthread_t threads[n];
        crowd each[n];
        for (int i = 0; i < n; i++) {
            each[i] = (crowd){rt, i};
            assert_int_equal(pthread_create(&threads[i], NULL, share_often, &each[i]), 0);
        }
        for (int i = 0; i < n; i++) {
            pthread_join(threads[i], NULL);
        }
        close_pool(rt);
    }
}

/* ---- placement ---- */

static void each_node_has_its_share_of_workers(void **state)
{
    (void)state;
    static const struct {
        size_t groups, wanted, limit;
        size_t workers[3]; /* if all start for that node */
    } table[] = {
        {1, 0, 8, {8}},    {1, 1, 8, {8}},    {2, 0, 1, {1, 0}},     {2, 0, 8, {4, 4}},
        {2, 1, 7, {3, 4}}, {2, 2, 8, {4, 4}}, {3, 1, 11, {4, 4, 3}}, {3, 2, 4, {1, 1, 2}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t workers[3] = {0};
        for (size_t k = 0; k < table[i].limit; k++) {
            size_t next = hdi_copy_pool_next_group(workers, table[i].groups, table[i].wanted, table[i].limit);
            assert_true(next < table[i].groups);
            if (table[i].wanted < table[i].groups && k < (table[i].limit + table[i].groups - 1) / table[i].groups) {
                assert_int_equal(next, table[i].wanted); /* these come first */
            }
            workers[next]++;
        }
        assert_memory_equal(workers, table[i].workers, table[i].groups * sizeof *workers);
    }
}

/* ---- turns ---- */

typedef struct shared {
    _Atomic int callers, helpers, inside; /* calls */
    _Atomic bool over;
    int wanted;
} shared;

/* Helpers find nothing to do; the caller continues until enough of them came. */
static hdi_turn away(void *context, bool caller)
{
    shared *s = context;
    assert_false(atomic_load(&s->over));
    if (!caller) {
        atomic_fetch_add(&s->helpers, 1);
        return HDI_TURN_WAITS;
    }
    atomic_fetch_add(&s->callers, 1);
    short_sleep();
    return atomic_load(&s->helpers) < s->wanted ? HDI_TURN_DID : HDI_TURN_OVER;
}

static void workers_that_are_sent_away_come_back_when_called(void **state)
{
    (void)state;
    hd_runtime *rt = open_pool(3);
    for (int i = 0; i < 5; i++) {
        shared s = {.wanted = 30};
        hdi_copy_pool_share(rt, 0, 3, away, &s);
        atomic_store(&s.over, true);
        /* all of them once, then again for each call */
        assert_true(atomic_load(&s.helpers) <= 3 * (atomic_load(&s.callers) + 1));
    }
    close_pool(rt);
}

/* A helper ends the work while the caller still continues for a while. */
static hdi_turn ended_by_helper(void *context, bool caller)
{
    shared *s = context;
    atomic_fetch_add(&s->inside, 1);
    short_sleep();
    atomic_fetch_sub(&s->inside, 1);
    if (!caller) {
        atomic_fetch_add(&s->helpers, 1);
        return HDI_TURN_OVER;
    }
    return atomic_load(&s->helpers) == 0 ? HDI_TURN_DID : HDI_TURN_OVER;
}

static void nobody_is_at_it_when_it_is_over(void **state)
{
    (void)state;
    hd_runtime *rt = open_pool(4);
    for (int i = 0; i < 200; i++) {
        shared s = {.wanted = 1};
        hdi_copy_pool_share(rt, i % DEVICES, 1 + (size_t)i % 5, ended_by_helper, &s);
        assert_int_equal(atomic_load(&s.inside), 0);
        int helpers = atomic_load(&s.helpers);
        assert_true(helpers >= 1 && helpers <= 4);
    }
    close_pool(rt);
}

/* Two transfers and four workers: all workers serve the first one when the second begins. */
typedef struct fair {
    _Atomic int at[2];
    _Atomic bool second, even;
} fair;

typedef struct fair_side {
    fair *both;
    int side;
    hd_runtime *rt;
} fair_side;

static hdi_turn even_out(void *context, bool caller)
{
    const fair_side *mine = context;
    fair *f = mine->both;
    if (caller) {
        if (mine->side == 1) {
            atomic_store(&f->second, true); /* not before its job is in the list */
        }
        short_sleep();
        return atomic_load(&f->even) ? HDI_TURN_OVER : HDI_TURN_DID;
    }
    bool second = atomic_load(&f->second);
    atomic_fetch_add(&f->at[mine->side], 1);
    while (!atomic_load(&f->even) && second == atomic_load(&f->second)) {
        if (atomic_load(&f->at[0]) == 2 && atomic_load(&f->at[1]) == 2) {
            atomic_store(&f->even, true);
        }
        short_sleep();
    }
    atomic_fetch_sub(&f->at[mine->side], 1);
    return HDI_TURN_DID;
}

static void *share_fair(void *argument)
{
    fair_side *mine = argument;
    hdi_copy_pool_share(mine->rt, 0, 4, even_out, mine);
    return NULL;
}

static void workers_are_shared_out_evenly(void **state)
{
    (void)state;
    hd_runtime *rt = open_pool(4);
    fair f = {.even = false};
    fair_side sides[2] = {{&f, 0, rt}, {&f, 1, rt}};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, share_fair, &sides[0]), 0);
    while (atomic_load(&f.at[0]) < 4) {
        short_sleep();
    }
    assert_int_equal(pthread_create(&threads[1], NULL, share_fair, &sides[1]), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_true(atomic_load(&f.even));
    close_pool(rt);
}

/* ---- threads that do not start ---- */

static void without_threads_the_caller_does_it_all(void **state)
{
    (void)state;
    pthread_attr_t usual, huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    /* larger than the address space */
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    int before = threads_now();
    hd_runtime *rt = open_pool(4);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    for (size_t items = 0; items < 40; items += 13) {
        run_items(rt, 0, items);
    }
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(threads_now(), before);
    /* later calls get workers again */
    shared s = {.wanted = 1};
    hdi_copy_pool_share(rt, 0, 4, away, &s);
    assert_true(atomic_load(&s.helpers) >= 1);
    close_pool(rt);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
}

static void pools_come_and_go(void **state)
{
    (void)state;
    int before = threads_now();
    for (int i = 0; i < 60; i++) {
        hd_runtime *rt = open_pool(1 + i % 5);
        if (i % 3) {
            run_items(rt, 0, 20);
        }
        if (i % 3 == 2) {
            short_sleep(); /* asleep, or about to be */
        }
        close_pool(rt);
    }
    threads_become(before);
    hd_runtime *rt = open_pool(3);
    hdi_copy_pool_lifetime.stop(rt);
    hdi_copy_pool_lifetime.stop(rt); /* of a runtime that is only half made: does nothing */
    assert_ok(hdi_copy_pool_lifetime.create(rt));
    close_pool(rt);
}

/* ---- copies past the caches ---- */

static void copies_through_are_copies(void **state)
{
    (void)state;
    enum { most = 300000, around = 200 };
    unsigned char *from = malloc(most + 2 * around), *to = malloc(most + 2 * around);
    assert_non_null(from);
    assert_non_null(to);
    uint32_t random = 1;
    for (size_t i = 0; i < most + 2 * around; i++) {
        random = random * 1664525 + 1013904223;
        from[i] = (unsigned char)(random >> 24);
    }
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 65535, 65536, 65537, 65599, 131072, 200001, most};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t shift = 0; shift < 130; shift += shift < 66 ? 1 : 7) {
            size_t bytes = sizes[i], source = around - shift / 2;
            memset(to, 0xa5, most + 2 * around);
            hdi_copy_through(to + shift, from + source, bytes);
            assert_memory_equal(to + shift, from + source, bytes);
            for (size_t k = 0; k < around; k++) {
                assert_true(k >= shift || to[k] == 0xa5);
                assert_int_equal(to[shift + bytes + k], 0xa5);
            }
        }
    }
    free(from);
    free(to);
}

static void *do_nothing(void *argument)
{
    return argument;
}

int main(void)
{
    alarm(250);      /* ends a case that hangs */
    pthread_t first; /* a sanitizer starts a thread of its own with the program's first one */
    if (pthread_create(&first, NULL, do_nothing, NULL) == 0) {
        pthread_join(first, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(a_pool_that_is_not_needed_starts_no_thread),
        cmocka_unit_test(many_threads_share_at_once),
        cmocka_unit_test(each_node_has_its_share_of_workers),
        cmocka_unit_test(workers_that_are_sent_away_come_back_when_called),
        cmocka_unit_test(nobody_is_at_it_when_it_is_over),
        cmocka_unit_test(workers_are_shared_out_evenly),
        cmocka_unit_test(without_threads_the_caller_does_it_all),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(copies_through_are_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
