/* test_runtimes.c - several runtimes in one trace file, each with its own lanes, positions and
 * numbers.
 *
 * Promise: Records refer only to operations, buffers, names, ranges, streams of their own runtime.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdio.h>

static trace t;

#define US 1000
/* The same process and the same device, later. */
#define SECOND "trace devices=1 detail=full run=2 at=2000\n"

static const char *const first_run = "trace devices=1 detail=full\n"
                                     "lane 0.1 kind=program\n"
                                     "lane 0.2 kind=in\n"
                                     "name kernel 1 axpy\n"
                                     "name label 7 weights\n"
                                     "name range 3 load\n"
                                     "clock 0 at=0 own=0\n";

static void read_both(const char *first, const char *head, const char *second)
{
    static char text[8192];
    int n = snprintf(text, sizeof text, "%s%s%s%send at=9000\n", first_run, first, head, second);
    assert_in_range(n, 1, sizeof text - 1);
    scene_read(text, &t);
    assert_int_equal(t.runs, 2);
    assert_int_equal(t.ignored, 0);
    scene_check_split(&t);
}

/* The file lacks the operation that the second runtime waits for. The first runtime's operation at
 * this position does not count. */
static void test_wait(void **state)
{
    (void)state;
    read_both("op 0.2:4 copy at=1 span=2-3 done=4\n"
              "op 0.1:4 launch at=1 span=2-3 done=4\n",
              SECOND,
              "clock 0 at=2001 own=2001\n"
              "op 0.1:4 launch at=2010 wait=0.2:3 span=2020-2030 done=2031\n");
    assert_int_equal(t.n_ops, 3);
    assert_int_equal(t.n_waits, 1);
    assert_int_equal(t.waits[0].op, 1);
    assert_int_equal(t.waits[0].other, TRACE_NONE);
    assert_int_equal(t.unknown_ops, 1);
    trace_release(&t);
}

/* The first runtime's last operation never ended. The second runtime's operation does not stand
 * behind it. */
static void test_order_of_a_lane(void **state)
{
    (void)state;
    read_both("op 0.1:4 launch at=1 issue=2-3\n", SECOND, "op 0.1:4 launch at=2010\n");
    assert_int_equal(t.n_ops, 2);
    assert_int_equal(t.ops[1].before, TRACE_NONE);
    assert_int_equal(t.ops[1].holder, TRACE_NONE);
    trace_release(&t);
}

/* Work in flight at a program's kill does not run during the next program. */
static void test_work_in_flight(void **state)
{
    (void)state;
    scene_read("trace devices=1 detail=full\n"
               "clock 0 at=0 own=0\n"
               "op 0.1:4 launch at=1 issue=2-3\n"
               "trace devices=1 detail=full run=2 at=2000\n"
               "clock 0 at=2001 own=2001\n"
               "op 0.1:4 launch at=2010 span=2020-2030 done=2031\n",
               &t);
    assert_int_equal(t.ops[0].began, TRACE_UNSEEN);
    assert_int_equal(t.ops[1].began, 2020 * US);
    assert_int_equal(t.devices[0].compute, 10 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Processes use the same numbers for their runtimes. */
static void test_another_process(void **state)
{
    (void)state;
    read_both("op 0.1:4 launch at=1 span=2-3 done=4\n", "trace devices=1 detail=full run=1 process=4712 at=2000\n",
              "clock 0 at=2001 own=2001\n"
              "op 0.1:4 launch at=2010 span=2020-2030 done=2031\n");
    assert_int_equal(t.n_ops, 2);
    assert_int_equal(t.ops[1].began, 2020 * US);
    trace_release(&t);
}

/* Kernels of two runtimes use the same numbers. */
static void test_names(void **state)
{
    (void)state;
    read_both("op 0.1:4 launch at=1 kernel=1 span=2-3 done=4\n", SECOND,
              "clock 0 at=2001 own=2001\n"
              "name kernel 1 reduce\n"
              "op 0.1:4 launch at=2010 kernel=1 span=2020-2030 done=2031\n"
              "op 0.1:5 launch at=2011 kernel=2 span=2040-2050 done=2051\n");
    assert_string_equal(trace_name(&t, t.ops[0].kernel), "axpy");
    assert_string_equal(trace_name(&t, t.ops[1].kernel), "reduce");
    assert_int_equal(t.ops[2].kernel, TRACE_NONE);
    trace_release(&t);
}

/* The second runtime frees a buffer older than its trace. The first runtime never freed its buffer
 * of that number. */
static void test_buffers(void **state)
{
    (void)state;
    read_both("alloc 100 at=5 bytes=64 label=7\n", SECOND,
              "name label 7 halo\n"
              "free 100 at=2010 bytes=16 label=7\n");
    assert_int_equal(t.n_memory, 2);
    assert_int_equal(t.memory[0].other, TRACE_NONE);
    assert_int_equal(t.memory[1].other, TRACE_NONE);
    assert_false(t.memory[1].counts);
    assert_string_equal(trace_name(&t, t.memory[1].label), "halo");
    trace_release(&t);
}

/* A range that is open at the end of a runtime is separate from the next runtime's ranges. */
static void test_ranges(void **state)
{
    (void)state;
    read_both("push 3 at=10\n", SECOND,
              "name range 3 store\n"
              "push 3 at=2010\n"
              "pop 3 at=2020\n"
              "pop 3 at=2030\n");
    assert_int_equal(t.n_ranges, 2);
    assert_int_equal(t.ranges[0].begin, 10 * US);
    assert_int_equal(t.ranges[0].end, 2000 * US);
    assert_int_equal(t.ranges[1].depth, 0);
    assert_int_equal(t.ranges[1].end, 2020 * US);
    assert_string_equal(trace_name(&t, t.ranges[1].name), "store");
    trace_release(&t);
}

/* The first runtime's device never came back. */
static void test_losses(void **state)
{
    (void)state;
    read_both("loss 0 at=10 it fell off\n", SECOND, "restart 0 at=2010-2020\n");
    assert_int_equal(t.n_losses, 1);
    assert_int_equal(t.losses[0].ended, TRACE_UNSEEN);
    trace_release(&t);
}

/* In the first runtime, the thread waited for a position that is not in the file. The second
 * runtime uses that position. */
static void test_path(void **state)
{
    (void)state;
    read_both("op 0.2:4 copy at=1 span=2-3 done=4\n", SECOND,
              "clock 0 at=2001 own=2001\n"
              "pause wait at=2 lane=0.2 position=3\n"
              "op 0.1:4 launch at=2010 span=2020-2030 done=2031\n");
    assert_int_equal(t.n_critical, 1);
    trace_release(&t);
}

/* Streams of two runtimes with the same number belong to different lanes. */
static void test_streams(void **state)
{
    (void)state;
    read_both("op 0.1:1 launch at=1 done=41\n"
              "op 0.1:2 launch at=1 done=41\n"
              "op 0.1:3 launch at=1 done=41\n"
              "span 0.1:3 from=0 at=9 span=10-40\n"
              "activity kernel at=10-12 stream=7\n"
              "activity kernel at=20-22 stream=7\n"
              "activity kernel at=30-40 stream=7\n",
              SECOND,
              "clock 0 at=2001 own=2001\n"
              "op 0.2:1 launch at=2001 done=2041\n"
              "span 0.2:1 from=0 at=2009 span=2010-2040\n"
              "activity kernel at=2012-2038 stream=7\n");
    assert_int_equal(t.n_reported, 4);
    assert_int_equal(t.ops[3].began, 2012 * US);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait),           cmocka_unit_test(test_order_of_a_lane),
        cmocka_unit_test(test_work_in_flight), cmocka_unit_test(test_another_process),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_ranges),         cmocka_unit_test(test_losses),
        cmocka_unit_test(test_path),           cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
