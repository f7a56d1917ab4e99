/* test_loss.c - a device's channel after a loss:
 *   - a half-written failure record holds up no thread
 *   - a lane with nothing unfinished keeps no record
 *   - unfinished operations stay lost
 *   - a reactivated lane has waited for no thread
 *
 * Threads: one. One case uses a second thread, which reads records under the order lock. No engine
 * runs: the cases write to the channel instead.
 *
 * Promise: After a loss unfinished operations stay lost; half-written records hold up no reader.
 */
#include "lost_device.h"

#include <pthread.h>
#include <time.h>

/* Submits `count` operations of one slot, and marks the first `finished` of all as finished. */
static void submit(hd_lane *lane, uint64_t count, uint64_t finished)
{
    for (uint64_t i = 0; i < count; i++) {
        hdi_lane_push(lane, &(hdi_command){.op = HDI_OP_FILL, .slots = 1});
    }
    uint64_t done = lane->head - count + finished;
    atomic_store(&lane->shared->issued, done);
    atomic_store(&lane->shared->done, done);
}

/* ---- a half-written record ---- */

typedef struct reader {
    pthread_t thread;
    hd_lane *lane;
    atomic_uint rounds;
    atomic_bool stop;
} reader;

static void *reads_under_the_lock(void *argument)
{
    reader *r = argument;
    while (!atomic_load(&r->stop)) {
        hdi_failure failure;
        hdi_lock_take(&r->lane->device->order);
        hdi_failure_find(r->lane->device->runtime, r->lane->global, 1, &failure);
        hdi_lock_release(&r->lane->device->order);
        atomic_fetch_add(&r->rounds, 1);
    }
    return NULL;
}

static void short_sleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Waits until the reader stops: then it holds the lock and will not release it. */
static void settle(reader *r)
{
    unsigned before = atomic_load(&r->rounds);
    for (int quiet = 0; quiet < 20;) {
        short_sleep();
        unsigned now = atomic_load(&r->rounds);
        quiet = now == before ? quiet + 1 : 0;
        before = now;
    }
}

static void a_half_written_record_does_not_hold_up_a_loss(void **state)
{
    fixture *f = *state;
    hd_lane *lane = &f->lanes[0][1];
    submit(lane, 4, 2);
    hdi_failure earlier = {.from = 2, .to = 2, .position = 2, .driver_code = 2, .op = HDI_OP_FILL};
    hdi_failure_add(&lane->device->channel, lane->number, &earlier);
    reader r = {.lane = lane};
    assert_int_equal(pthread_create(&r.thread, NULL, reads_under_the_lock, &r), 0);
    while (atomic_load(&r.rounds) == 0) {
        short_sleep();
    }
    atomic_fetch_add(&lane->shared->failure_changes, 1); /* as if the worker was killed here */
    settle(&r);
    hdi_device_lose(&f->devices[0], HDI_GONE_SIGNAL - 9);
    atomic_store(&r.stop, true);
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    assert_true(hdi_device_lost(&f->devices[0]));
    assert_status(status_of(f, lane, 1), HD_OK);
    assert_int_not_equal(status_of(f, lane, 2), HD_OK);
    assert_status(status_of(f, lane, 3), HD_ERROR_DEVICE_LOST);
    assert_status(status_of(f, lane, 4), HD_ERROR_DEVICE_LOST);
}

/* ---- losses and records ---- */

enum { MANY = HDI_FAILURES_LEAST + 10 };

static uint64_t records(const hd_lane *lane)
{
    return atomic_load(&lane->shared->failures_end) - atomic_load(&lane->shared->failures_first);
}

static void an_idle_lane_keeps_no_record_of_losses(void **state)
{
    fixture *f = *state;
    hd_lane *lane = &f->lanes[0][0];
    submit(lane, 3, 3);
    for (int i = 0; i < MANY; i++) {
        hdi_device_lose(&f->devices[0], HDI_GONE_CLOSED);
        assert_status(status_of(f, lane, 4), HD_ERROR_DEVICE_LOST);
        bring_back(&f->devices[0]);
        assert_false(hdi_device_lost(&f->devices[0]));
        assert_int_equal(records(lane), 0);
        assert_int_equal(atomic_load(&lane->shared->failed), 0);
    }
    for (uint64_t position = 1; position <= 4; position++) {
        assert_ok(status_of(f, lane, position));
    }
    assert_int_equal(atomic_load(&f->devices[0].losses), MANY);
}

static void what_a_loss_left_unfinished_stays_lost(void **state)
{
    fixture *f = *state;
    hd_lane *lane = &f->lanes[0][0];
    for (int i = 0; i < 10; i++) { /* operations 5 i + 4 and 5 i + 5 are lost */
        submit(lane, 5, 3);
        hdi_device_lose(&f->devices[0], HDI_GONE_CLOSED);
        assert_int_equal(atomic_load(&lane->shared->done), lane->head);
        bring_back(&f->devices[0]);
        assert_int_equal(records(lane), i + 1);
    }
    for (uint64_t position = 1; position <= 50; position++) {
        assert_status(status_of(f, lane, position), (position - 1) % 5 < 3 ? HD_OK : HD_ERROR_DEVICE_LOST);
    }
    assert_ok(status_of(f, lane, 51));
    assert_int_equal(records(&f->lanes[0][1]), 0);
    assert_int_equal(records(&f->lanes[1][0]), 0);
}

/* ---- waiting for other lanes ---- */

static void a_reactivated_lane_has_waited_for_nobody(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < ALL_LANES; i++) {
        for (int d = 0; d < DEVICES; d++) {
            f->lanes[d][0].seen[i] = f->lanes[d][1].seen[i] = 7;
            f->lanes[d][0].seen_source[i] = f->lanes[d][1].seen_source[i] = 6;
        }
    }
    hdi_device_lose(&f->devices[0], HDI_GONE_CLOSED);
    bring_back(&f->devices[0]);
    for (int i = 0; i < ALL_LANES; i++) {
        for (int j = 0; j < LANES; j++) {
            assert_int_equal(f->lanes[0][j].seen[i], 0);
            assert_int_equal(f->lanes[0][j].seen_source[i], 0);
            assert_int_equal(f->lanes[1][j].seen[i], 7);
            assert_int_equal(f->lanes[1][j].seen_source[i], 6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_half_written_record_does_not_hold_up_a_loss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_idle_lane_keeps_no_record_of_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_loss_left_unfinished_stays_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reactivated_lane_has_waited_for_nobody, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
