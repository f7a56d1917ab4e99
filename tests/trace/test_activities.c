/* test_activities.c - the activities that CUPTI reported, in the analysis.
 *
 * Promise: Operations get the times that CUPTI reported for them; the rest is work of its device.
 * Threads: one.
 */
#include "trace/scene.h"

static trace t;

#define US 1000

#define CUPTI                                                                                                          \
    "trace devices=1 detail=cupti\n"                                                                                   \
    "lane 0.1 kind=program\n"                                                                                          \
    "lane 0.2 kind=in\n"                                                                                               \
    "lane 0.5 kind=program\n"                                                                                          \
    "name kernel 1 axpy\n"                                                                                             \
    "name kernel 2 reduce\n"                                                                                           \
    "name activity 1 axpy\n"                                                                                           \
    "name activity 2 reduce\n"                                                                                         \
    "name activity 3 other\n"                                                                                          \
    "clock 0 at=0 own=0\n"

/* Three launches and a copy in lanes of their own; the signal behind the launches does not
 * count. */
static void test_parted(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=62\n"
                     "op 0.1:2 launch at=1 issue=5-6 kernel=2 done=62\n"
                     "op 0.1:3 launch at=2 issue=5-6 done=62\n"
                     "span 0.1:3 from=0 span=9-61\n"
                     "op 0.2:1 copy at=0 issue=70-71 done=100 way=1 dst=0 bytes=5000\n"
                     "span 0.2:1 from=0 span=72-99 op=2\n"
                     "activity kernel at=10-20 name=1 stream=13\n"
                     "activity kernel at=25-40 name=2 stream=13\n"
                     "activity kernel at=45-60 name=1 stream=13\n"
                     "activity fill at=60-61 bytes=4 stream=13\n"
                     "activity copy at=75-98 bytes=5000 stream=14\n"
                     "end at=120\n",
               &t);
    assert_int_equal(t.n_reported, 4);
    assert_int_equal(t.n_stretches, 4);
    assert_int_equal(t.ops[1].began, 25 * US);
    assert_int_equal(t.ops[1].ended, 40 * US);
    assert_true(t.ops[0].measured && t.ops[1].measured && t.ops[2].measured && t.ops[3].measured);
    assert_int_equal(t.devices[0].compute, 40 * US);
    assert_int_equal(t.devices[0].transfer, 23 * US);
    for (size_t i = 0; i < t.n_stretches; i++) {
        assert_true(t.stretches[i].one);
        assert_int_equal(t.ops[t.stretches[i].first_op].stretch, i);
    }
    for (size_t i = 0; i < t.n_launches; i++) {
        bool axpy = strcmp(trace_name(&t, t.launches[i].kernel), "axpy") == 0;
        assert_int_equal(t.launches[i].measured, axpy ? 2 : 1);
        assert_int_equal(t.launches[i].total, axpy ? 25 * US : 15 * US);
    }
    scene_check_split(&t);
    trace_release(&t);
}

/* A product consists of two unnamed kernels, which are found between the launches beside them. */
static void test_product(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=82\n"
                     "op 0.1:2 matmul at=1 issue=5-6 done=82\n"
                     "op 0.1:3 launch at=2 issue=5-6 kernel=2 done=82\n"
                     "span 0.1:3 from=0 span=9-81\n"
                     "activity kernel at=10-20 name=1\n"
                     "activity kernel at=25-40 name=3\n"
                     "activity kernel at=41-60 name=3\n"
                     "activity kernel at=65-80 name=2\n"
                     "end at=120\n",
               &t);
    assert_int_equal(t.n_reported, 4);
    assert_int_equal(t.ops[1].began, 25 * US);
    assert_int_equal(t.ops[1].ended, 60 * US);
    assert_int_equal(t.ops[2].began, 65 * US);
    assert_int_equal(t.devices[0].compute, 60 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Two products in a row consist of two kernels each; a third one with other kernels stands
 * alone. */
static void test_products(void **state)
{
    (void)state;
    scene_read(CUPTI "name activity 4 another\n"
                     "op 0.1:1 matmul at=0 issue=5-6 done=102\n"
                     "op 0.1:2 matmul at=1 issue=5-6 done=102\n"
                     "op 0.1:3 launch at=2 issue=5-6 kernel=2 done=102\n"
                     "op 0.1:4 matmul at=3 issue=5-6 done=102\n"
                     "span 0.1:4 from=0 span=9-101\n"
                     "activity kernel at=10-20 name=3\n"
                     "activity kernel at=21-25 name=4\n"
                     "activity kernel at=30-40 name=3\n"
                     "activity kernel at=41-45 name=4\n"
                     "activity kernel at=50-60 name=2\n"
                     "activity kernel at=65-70 name=4\n"
                     "activity kernel at=71-80 name=4\n"
                     "activity kernel at=81-100 name=3\n"
                     "end at=120\n",
               &t);
    assert_int_equal(t.n_reported, 8);
    assert_int_equal(t.ops[0].began, 10 * US);
    assert_int_equal(t.ops[0].ended, 25 * US);
    assert_int_equal(t.ops[1].began, 30 * US);
    assert_int_equal(t.ops[1].ended, 45 * US);
    assert_int_equal(t.ops[3].began, 65 * US);
    assert_int_equal(t.ops[3].ended, 100 * US);
    assert_int_equal(t.n_stretches, 4);
    scene_check_split(&t);
    trace_release(&t);
}

/* Three kernels of two products: either product may have two of them. */
static void test_products_apart(void **state)
{
    (void)state;
    scene_read(CUPTI "name activity 4 another\n"
                     "op 0.1:1 matmul at=0 issue=5-6 done=102\n"
                     "op 0.1:2 matmul at=1 issue=5-6 done=102\n"
                     "op 0.1:3 launch at=2 issue=5-6 kernel=2 done=102\n"
                     "op 0.1:4 matmul at=3 issue=5-6 done=102\n"
                     "op 0.1:5 matmul at=3 issue=5-6 done=102\n"
                     "span 0.1:5 from=0 span=9-101\n"
                     "activity kernel at=10-20 name=3\n"
                     "activity kernel at=21-25 name=4\n"
                     "activity kernel at=30-40 name=3\n"
                     "activity kernel at=50-60 name=2\n"
                     "activity kernel at=65-70 name=3\n"
                     "activity kernel at=71-80 name=4\n"
                     "activity kernel at=81-85 name=4\n"
                     "activity kernel at=86-100 name=3\n"
                     "end at=120\n",
               &t);
    assert_int_equal(t.n_reported, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(t.ops[i].measured, i == 2);
    }
    scene_check_split(&t);
    trace_release(&t);
}

/* CUPTI or the engine ran out of room: reports of a product that had begun before may be
 * missing. */
static void test_dropped(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=82\n"
                     "op 0.1:2 matmul at=1 issue=5-6 done=82\n"
                     "op 0.1:3 launch at=2 issue=5-6 kernel=2 done=82\n"
                     "span 0.1:3 from=0 span=9-81\n"
                     "activity kernel at=10-20 name=1\n"
                     "activity kernel at=25-40 name=3\n"
                     "activity kernel at=65-80 name=2\n"
                     "dropped 1 kind=1 at=200 device=0\n"
                     "op 0.1:4 matmul at=300 issue=305-306 done=382\n"
                     "op 0.1:5 launch at=300 issue=305-306 kernel=2 done=382\n"
                     "span 0.1:5 from=3 span=309-381\n"
                     "activity kernel at=310-320 name=3\n"
                     "activity kernel at=321-330 name=3\n"
                     "activity kernel at=340-370 name=2\n"
                     "end at=400\n",
               &t);
    assert_true(t.ops[0].measured && t.ops[2].measured);
    assert_false(t.ops[1].measured);
    assert_int_equal(t.activities[1].op, TRACE_NONE);
    assert_int_equal(t.ops[3].began, 310 * US);
    assert_int_equal(t.ops[3].ended, 330 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* The launch's report is missing, so the product's reports match the number of operations. */
static void test_same_number(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 matmul at=0 issue=5-6 done=62\n"
                     "op 0.1:2 launch at=1 issue=5-6 kernel=2 done=62\n"
                     "span 0.1:2 from=0 span=9-61\n"
                     "activity kernel at=10-20 name=3\n"
                     "activity kernel at=25-40 name=3\n"
                     "op 0.1:3 launch at=70 issue=75-76 kernel=2 done=99\n"
                     "span 0.1:3 from=2 span=77-98\n"
                     "activity kernel at=80-98 name=2\n"
                     "end at=120\n",
               &t);
    assert_false(t.ops[0].measured);
    assert_false(t.ops[1].measured);
    assert_true(t.ops[2].measured);
    scene_check_split(&t);
    trace_release(&t);
}

/* The first launch's report is missing, and another launch uses the same kernel. Sometimes either
 * of two launches may own a report. */
static void test_same_kernel(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=62\n"
                     "op 0.1:2 launch at=1 issue=5-6 kernel=2 done=62\n"
                     "op 0.1:3 launch at=2 issue=5-6 done=62\n"
                     "span 0.1:3 from=0 span=9-61\n"
                     "activity kernel at=25-40 name=2\n"
                     "activity kernel at=45-60 name=1\n"
                     "op 0.1:4 launch at=70 issue=75-76 done=112\n"
                     "op 0.1:5 launch at=70 issue=75-76 done=112\n"
                     "span 0.1:5 from=3 span=77-111\n"
                     "activity kernel at=95-110 name=1\n"
                     "end at=120\n",
               &t);
    assert_false(t.ops[0].measured);
    assert_int_equal(t.ops[1].began, 25 * US);
    assert_int_equal(t.ops[2].began, 45 * US);
    assert_int_equal(t.ops[2].ended, 60 * US);
    assert_false(t.ops[3].measured);
    assert_false(t.ops[4].measured);
    scene_check_split(&t);
    trace_release(&t);
}

/* The second of two such launches reached the driver after the only report began. */
static void test_issued_later(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=1062\n"
                     "op 0.1:2 launch at=1 issue=500-501 done=1062\n"
                     "span 0.1:2 from=0 span=9-1061\n"
                     "activity kernel at=10-40 name=1\n"
                     "end at=1200\n",
               &t);
    assert_int_equal(t.ops[0].ended, 40 * US);
    assert_false(t.ops[1].measured);
    trace_release(&t);
}

/* One report is missing: the other launch is found by its name, and the stretch stays one. */
static void test_missing(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=5-6 done=62\n"
                     "op 0.1:2 launch at=1 issue=5-6 kernel=2 done=62\n"
                     "span 0.1:2 from=0 span=10-61\n"
                     "activity kernel at=25-40 name=2\n"
                     "end at=120\n",
               &t);
    assert_int_equal(t.n_reported, 1);
    assert_int_equal(t.n_stretches, 1);
    assert_false(t.ops[0].measured);
    assert_true(t.ops[1].measured);
    assert_int_equal(t.ops[1].began, 25 * US);
    assert_int_equal(t.devices[0].compute, 51 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Two lanes at once, each with a stream; a third stream belongs to another library, inside the
 * window and after it. */
static void test_other_library(void **state)
{
    (void)state;
    scene_read(CUPTI "op 0.1:1 launch at=0 issue=1-2 done=31\n"
                     "span 0.1:1 from=0 span=3-30\n"
                     "op 0.5:1 launch at=0 issue=1-2 kernel=2 done=26\n"
                     "span 0.5:1 from=0 span=3-25\n"
                     "op 0.1:2 launch at=0 issue=88-89 done=101\n"
                     "span 0.1:2 from=1 span=90-100\n"
                     "activity kernel at=4-30 name=1 stream=20\n"
                     "activity kernel at=5-25 name=2 stream=21\n"
                     "activity kernel at=90-100 name=1 stream=20\n"
                     "activity kernel at=40-60 name=3 stream=22\n"
                     "activity copy at=70-75 stream=22 bytes=100\n"
                     "activity kernel at=110-150 name=3 stream=22\n"
                     "end at=200\n",
               &t);
    assert_int_equal(t.n_reported, 3);
    assert_int_equal(t.devices[0].end - t.devices[0].begin, 100 * US);
    assert_int_equal(t.devices[0].compute, 56 * US);
    assert_int_equal(t.devices[0].transfer, 5 * US);
    for (size_t i = 0; i < t.n_activities; i++) {
        assert_int_equal(t.activities[i].op == TRACE_NONE, t.activities[i].stream == 22);
    }
    scene_check_split(&t);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parted),         cmocka_unit_test(test_product),      cmocka_unit_test(test_products),
        cmocka_unit_test(test_products_apart), cmocka_unit_test(test_dropped),      cmocka_unit_test(test_same_number),
        cmocka_unit_test(test_same_kernel),    cmocka_unit_test(test_issued_later), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_other_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
