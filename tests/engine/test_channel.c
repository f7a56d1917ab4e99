/* test_channel.c - failure records in the shared mapping: found by position, widened, never forgotten, read while written. Two
 * threads in one case. */
#include "support/check.h"

#include <pthread.h>
#include <unistd.h>
#include "engine/channel.h"

static hdi_failure failure(uint64_t from, uint64_t to, int code)
{
    return (hdi_failure){.from = from, .to = to, .position = to, .driver_code = code, .op = HDI_OP_LAUNCH};
}

static void a_position_finds_its_failure(void **state)
{
    (void)state;
    hdi_channel channel;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    hdi_lane_shared *lane = &channel.lanes[3];
    hdi_failure found;
    assert_false(hdi_failure_find(lane, 1, &found));
    hdi_failure a = failure(5, 6, 700), b = failure(10, 10, 2);
    hdi_failure_add(lane, &a);
    hdi_failure_add(lane, &b);
    assert_false(hdi_failure_find(lane, 4, &found));
    assert_true(hdi_failure_find(lane, 5, &found));
    assert_int_equal(found.driver_code, 700);
    assert_false(hdi_failure_find(lane, 7, &found));
    assert_true(hdi_failure_find(lane, 10, &found));
    assert_int_equal(found.driver_code, 2);
    hdi_failure_extend(lane, 14);
    assert_true(hdi_failure_find(lane, 14, &found));
    assert_int_equal(found.from, 10);
    assert_false(hdi_failure_find(lane, 15, &found));
    hdi_channel_release(&channel);
}

static void no_failure_is_forgotten(void **state)
{
    (void)state;
    hdi_channel channel;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    hdi_lane_shared *lane = &channel.lanes[0];
    hdi_failure found;
    for (uint64_t i = 1; i <= HDI_FAILURES_MAX + 30; i++) {
        hdi_failure f = failure(10 * i, 10 * i + 1, (int)i);
        hdi_failure_add(lane, &f);
    }
    for (uint64_t i = 1; i <= HDI_FAILURES_MAX + 30; i++) {
        assert_true(hdi_failure_find(lane, 10 * i, &found));
        assert_true(hdi_failure_find(lane, 10 * i + 1, &found));
        assert_int_equal(found.driver_code, i < 31 ? 31 : i); /* the oldest ones have become one */
    }
    assert_true(hdi_failure_find(lane, 15, &found));
    assert_false(hdi_failure_find(lane, 325, &found));
    assert_int_equal(hdi_failure_end(lane), 10 * (HDI_FAILURES_MAX + 30) + 1);
    assert_false(hdi_failure_find(lane, 10 * (HDI_FAILURES_MAX + 30) + 2, &found));
    hdi_channel_release(&channel);
}

static void a_record_without_end_is_closed(void **state)
{
    (void)state;
    hdi_channel channel;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    hdi_lane_shared *lane = &channel.lanes[3];
    hdi_failure found;
    hdi_failure_close(lane, 5); /* there is none */
    hdi_failure f = failure(3, UINT64_MAX, 1);
    hdi_failure_add(lane, &f);
    assert_true(hdi_failure_find(lane, UINT64_MAX, &found));
    hdi_failure_close(lane, 7);
    assert_true(hdi_failure_find(lane, 3, &found));
    assert_true(hdi_failure_find(lane, 7, &found));
    assert_false(hdi_failure_find(lane, 8, &found));
    assert_false(hdi_failure_find(lane, UINT64_MAX, &found));
    hdi_failure_close(lane, 9); /* it has an end already */
    assert_false(hdi_failure_find(lane, 9, &found));
    /* nothing was unfinished: it covers nothing, and so not what comes next */
    f = failure(20, UINT64_MAX, 2);
    hdi_failure_add(lane, &f);
    hdi_failure_close(lane, 19);
    assert_false(hdi_failure_find(lane, 19, &found));
    assert_false(hdi_failure_find(lane, 20, &found));
    hdi_channel_release(&channel);
}

static void another_mapping_shows_the_same(void **state)
{
    (void)state;
    hdi_channel channel, other;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    assert_int_equal(hdi_channel_map(dup(channel.memory.descriptor), 128, &other), HD_OK);
    assert_ptr_not_equal(channel.engine, other.engine);
    atomic_store(&channel.engine->lost, 700);
    atomic_store(&channel.lanes[255].head, 77);
    hdi_command_at(&channel, 255, 130)->op = HDI_OP_FILL;
    assert_int_equal(atomic_load(&other.engine->lost), 700);
    assert_int_equal(atomic_load(&other.lanes[255].head), 77);
    assert_int_equal(hdi_command_at(&other, 255, 2)->op, HDI_OP_FILL);
    hdi_channel_release(&other);
    /* one of another size is not taken, and its descriptor is closed */
    int descriptor = dup(channel.memory.descriptor);
    assert_int_equal(hdi_channel_map(descriptor, 256, &other), HD_ERROR_SYSTEM);
    assert_int_equal(close(descriptor), -1);
    hdi_channel_release(&channel);
}

#define WRITES 1000

static void *write_records(void *argument)
{
    for (uint64_t i = 1; i <= WRITES; i++) {
        hdi_failure f = failure(i, UINT64_MAX, (int)i);
        hdi_failure_add(argument, &f);
        for (volatile int pause = 0; pause < 500; pause++) {
        }
    }
    return NULL;
}

static void a_reader_never_sees_half_a_record(void **state)
{
    (void)state;
    hdi_channel channel;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    hdi_lane_shared *lane = &channel.lanes[0];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_records, lane), 0);
    int last = 0;
    while (last < WRITES) {
        hdi_failure found;
        if (hdi_failure_find(lane, UINT64_MAX, &found)) {
            assert_int_equal(found.from, found.driver_code);
            assert_true(found.driver_code >= last);
            last = found.driver_code;
        }
    }
    pthread_join(thread, NULL);
    hdi_channel_release(&channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_position_finds_its_failure),      cmocka_unit_test(no_failure_is_forgotten),
        cmocka_unit_test(a_record_without_end_is_closed),    cmocka_unit_test(another_mapping_shows_the_same),
        cmocka_unit_test(a_reader_never_sees_half_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
