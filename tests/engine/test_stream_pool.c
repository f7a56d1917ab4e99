/* test_stream_pool.c - runtimes of one process share the streams of their lanes.
 *
 * Promise: A lane takes a stream that another runtime no longer needs; the last runtime frees all.
 *
 * Threads: the main one, and those of the runtimes. Locks: none.
 * Always: the counts are those of the driver's calls.
 */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include "conformance/conformance.h"
#include "driver/driver.h"
#include "support/changed_driver.h"

enum { RUNTIMES = 4, LANES = 8, STEPS = 60 };

static _Atomic uint64_t made, ended;

static hdcu_result make_stream(hdcu_stream *stream, unsigned flags)
{
    atomic_fetch_add(&made, 1);
    return real->cuStreamCreate(stream, flags);
}

static hdcu_result end_stream(hdcu_stream stream)
{
    atomic_fetch_add(&ended, 1);
    return real->cuStreamDestroy(stream);
}

static void change_table(hdi_driver *table)
{
    table->cuStreamCreate = make_stream;
    table->cuStreamDestroy = end_stream;
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

static hd_runtime *open_with_lanes(int lanes)
{
    hd_runtime *rt;
    hd_options options = {sizeof options, "driver=host placement=thread host_devices=1"};
    assert_ok(hd_open(&options, &rt));
    for (int i = 0; i < lanes; i++) {
        hd_lane *lane;
        hd_buffer *buffer;
        uint32_t got = 0;
        assert_ok(hd_lane_create(rt, 0, &lane));
        assert_ok(hd_alloc(lane, sizeof got, &buffer));
        assert_ok(hd_fill(buffer, 0, 7 + (unsigned)i, sizeof got, NULL));
        assert_ok(hd_read(buffer, 0, &got, sizeof got));
        assert_int_equal(got, 7 + i);
    }
    return rt;
}

static void a_lane_takes_what_another_runtime_left(void **state)
{
    (void)state;
    hd_runtime *first = open_with_lanes(LANES), *second = open_with_lanes(0);
    uint64_t before = atomic_load(&made);
    hd_close(first);
    assert_int_equal(atomic_load(&ended), 0);
    hd_runtime *third = open_with_lanes(LANES);
    assert_int_equal(atomic_load(&made), before);
    hd_close(second);
    hd_close(third);
    assert_int_equal(atomic_load(&ended), before);
}

/* Runtimes come and go in random order. */
static void none_is_lost_and_none_serves_two(void **state)
{
    (void)state;
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    hd_runtime *open[RUNTIMES] = {NULL};
    for (int i = 0; i < STEPS; i++) {
        hd_runtime **one = &open[conf_below(&random, RUNTIMES)];
        if (*one) {
            hd_close(*one);
            *one = NULL;
        } else {
            *one = open_with_lanes((int)conf_below(&random, LANES));
        }
    }
    for (int i = 0; i < RUNTIMES; i++) {
        if (open[i]) {
            hd_close(open[i]);
        }
    }
    assert_int_equal(atomic_load(&made), atomic_load(&ended));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_takes_what_another_runtime_left),
        cmocka_unit_test(none_is_lost_and_none_serves_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
