/* test_launches.c - the time that launches take to the device, the number of queued ones, and the
 * sorting for both.
 *
 * Promise: Delays count if both ends are traced, queues hold unfinished work, and sorts are stable.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdlib.h>
#include "cli/trace/parts.h"

static trace t;

#define US 1000

/* Only the first operation of a stretch of two has its own begin. */
static void test_delays(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=4-5 span=10-20 done=21\n"
                           "op 0.1:2 launch at=10 issue=18-19 done=41\n"
                           "op 0.1:3 launch at=11 issue=19-20 done=41\n"
                           "span 0.1:3 from=1 span=30-40\n"
                           "op 0.1:4 launch at=50 issue=51-52 done=80\n"
                           "op 0.2:1 copy at=0 issue=40-41 span=45-60 done=61 way=1 dst=0\n"
                           "op 1.1:1 launch at=60 span=62-80 kernel=2 done=81\n"
                           "end at=100\n",
               &t);
    const trace_delays *d = &t.devices[0].delays;
    assert_int_equal(d->issued, 4); /* the copy is no launch */
    assert_int_equal(d->issue_p50, 8 * US);
    assert_int_equal(d->issue_p99, 8 * US);
    assert_int_equal(d->begun, 2);
    assert_int_equal(d->begin_p50, 12 * US);
    assert_int_equal(t.devices[1].delays.issued, 0);
    assert_int_equal(t.devices[1].delays.begun, 0);
    for (size_t i = 0; i < t.n_launches; i++) {
        bool axpy = strcmp(trace_name(&t, t.launches[i].kernel), "axpy") == 0;
        assert_int_equal(t.launches[i].delays.issued, axpy ? 4 : 0);
        assert_int_equal(t.launches[i].count, axpy ? 4 : 1);
    }
    trace_release(&t);
}

/* Marks and claims are no work for the device. */
static void test_queue(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=10-20 done=21\n"
                           "op 0.2:1 copy at=10 span=15-40 done=41 way=1 dst=0\n"
                           "op 0.1:2 launch at=20 span=30-50 done=51\n"
                           "op 0.1:3 mark at=20 done=51\n"
                           "op 0.4:2 claim at=20 claimed=21 done=51\n"
                           "op 0.1:4 launch at=90 span=95-100 done=101\n"
                           "end at=110\n",
               &t);
    /* the first launch ends as the second one is submitted */
    assert_int_equal(t.devices[0].queue_most, 2);
    /* 20 + 30 + 30 + 10 us of 100 */
    assert_int_equal((int)(t.devices[0].queue_mean * 100 + 0.5), 90);
    assert_int_equal(t.devices[1].queue_most, 0);
    trace_release(&t);
}

typedef struct item {
    int key, number;
} item;

static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Rows of many lengths, from fully sorted to unsorted. */
static void test_sort(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static item items[MOST];
    static int64_t times[MOST], same[MOST], spare[MOST];
    uint64_t dice = 88172645463325252;
    for (int round = 0; round < 400; round++) {
        int n = round < 40 ? round : (int)(dice % MOST), row = 1 + round % 90;
        for (int i = 0; i < n; i++) {
            dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
            items[i] = (item){i % row != 0 ? items[i - 1].key + (int)(dice % 3) : (int)(dice % 500), i};
            times[i] = same[i] = (int64_t)dice >> round % 64;
        }
        trace_sort(items, (size_t)n, sizeof items[0], compare_items);
        trace_sort_times(times, (size_t)n, spare);
        qsort(same, (size_t)n, sizeof same[0], compare_times);
        for (int i = 1; i < n; i++) {
            assert_true(items[i - 1].key < items[i].key ||
                        (items[i - 1].key == items[i].key && items[i - 1].number < items[i].number));
        }
        assert_memory_equal(times, same, (size_t)n * sizeof times[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delays), cmocka_unit_test(test_queue),
                                       cmocka_unit_test(test_sort)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
