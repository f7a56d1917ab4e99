/* test_wake.c - an engine falls asleep, or drops a lane from its active ones, just as work is
 * submitted. It still does the work, although no thread waits and notifies it again.
 *
 * Promise: Work submitted while its engine falls asleep is done without a further call.
 *
 * The test simulates a processor whose store becomes visible late: a submitter's store to `head`
 * appears after the engine's barrier.
 *
 * Threads: the main one, a submitter, the device's engine. Locks: order locks.
 * Always: nothing is timed.
 */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include "conformance/work.h"
#include "base/lock.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "support/lanes.h"
#include "support/sanitizers.h"

enum { ROUNDS = TEST_TSAN ? 1000 : 5000, PAUSES = 64 };

#define TIMEOUT_NS ((int64_t)20000000000)

/* its ring contains a command that is invisible before the barrier */
static _Atomic(hd_lane *) unseen;
static _Atomic uint64_t unseen_head;

void __real_hdi_biased_barrier(void);
void __wrap_hdi_biased_barrier(void);
void __wrap_hdi_biased_barrier(void)
{
    hd_lane *lane = atomic_exchange(&unseen, NULL);
    if (lane) {
        atomic_store(&lane->shared->head, atomic_load(&unseen_head));
    }
    __real_hdi_biased_barrier();
}

typedef struct submitter {
    hd_lane *lane, *inside; /* the handle, and the lane behind it */
    hd_buffer *y;
    const conf_kernels *kernels;
    uint32_t seed;
    int lost; /* launches that did not finish in time */
    int refused;
} submitter;

/* Pauses up to some microseconds: about as long as the engine needs to fall asleep. */
static void pause_a_little(submitter *s)
{
    s->seed = s->seed * 1664525 + 1013904223;
    for (volatile uint32_t i = 0; i < (s->seed >> 16) % PAUSES * 32; i++) {
    }
}

static void *submit(void *argument)
{
    submitter *s = argument;
    for (int i = 0; i < ROUNDS && !s->lost; i++) {
        hd_ticket ticket;
        hd_arg args[] = {hd_out(s->y), hd_u64(16), hd_u32((uint32_t)i)};
        if (hd_launch(s->lane, s->kernels->fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 3, &ticket)) {
            s->refused++;
            return NULL;
        }
        int64_t end = hdi_clock_ns() + TIMEOUT_NS;
        /* only looks, since hd_wait would notify the engine */
        while (atomic_load_explicit(&s->inside->shared->done, memory_order_acquire) < ticket.sequence) {
            hdi_spin_turn();
            if (hdi_clock_ns() > end) {
                s->lost++;
                break;
            }
        }
        pause_a_little(s);
    }
    return NULL;
}

static void run(const char *settings, bool engine_fences)
{
    hd_runtime *rt;
    pthread_t thread;
    hd_options options = {sizeof options, settings};
    assert_ok(hd_open(&options, &rt));
    conf_kernels kernels = conf_builtins(rt);
    hdi_device *device = rt->devices[0];
    bool taken = atomic_load(&device->channel.engine->fences) == HDI_FENCES_ENGINE;
    assert_int_equal(taken, rt->is_process ? hdi_biased_join() : !hdi_biased_fenced());
    if (!engine_fences) {
        atomic_store(&device->channel.engine->fences, HDI_FENCES_SUBMITTER);
    }
    submitter s = {.kernels = &kernels, .seed = 1};
    assert_ok(hd_lane_create(rt, 0, &s.lane));
    s.inside = hdi_lane_from_handle(s.lane);
    assert_ok(hd_alloc(s.lane, 64, &s.y));
    assert_int_equal(pthread_create(&thread, NULL, submit, &s), 0);
    pthread_join(thread, NULL);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.lost, 0);
    hd_close(rt);
}

/* Puts a command into the lane's ring that other threads cannot see yet. The engine may have
 * dropped the lane from its active ones, because this thread got no processor for long. Then this
 * activates the lane again, as every submitter does. */
static void submit_unseen(hd_lane *lane)
{
    hdi_engine_shared *engine = lane->device->channel.engine;
    uint64_t bit = (uint64_t)1 << (lane->number % 64);
    hdi_lock_take(&lane->device->order);
    lane->ring[lane->head & lane->mask] = (hdi_command){.op = HDI_OP_SKIP, .slots = 1};
    lane->head++;
    atomic_store(&lane->submitted, lane->head);
    atomic_store(&unseen_head, lane->head);
    atomic_store(&unseen, lane); /* visible from here on, after a barrier */
    if (!(atomic_load(&engine->active[lane->number / 64]) & bit)) {
        hdi_engine_notify(engine, lane->number);
    }
    hdi_lock_release(&lane->device->order);
}

/* The submitter found the lane active and the engine awake, so it does not notify the engine. */
static void becomes_visible(const char *settings, bool rings)
{
    hd_runtime *rt;
    hd_options options = {sizeof options, settings};
    assert_ok(hd_open(&options, &rt));
    conf_kernels kernels = conf_builtins(rt);
    hd_lane *lane = conf_default_lane(rt, 0), *inside = hdi_lane_from_handle(lane);
    hd_buffer *y;
    assert_ok(hd_alloc(lane, 64, &y));
    for (int i = 0; i < 20; i++) {
        /* This makes the lane active. */
        hd_arg args[] = {hd_out(y), hd_u64(16), hd_u32(1)};
        assert_ok(hd_launch(lane, kernels.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 3, NULL));
        assert_ok(hd_lane_wait(lane, HD_FOREVER));
        submit_unseen(inside);
        if (rings) {
            /* wakes an engine that already slept, so that it falls asleep again */
            hdi_engine_ring(inside->device->channel.engine);
        }
        int64_t end = hdi_clock_ns() + TIMEOUT_NS;
        while (atomic_load(&inside->shared->done) < inside->head) {
            assert_true(hdi_clock_ns() < end);
            conf_sleep_ms(1);
        }
    }
    hd_close(rt);
}

static void what_is_seen_at_the_barrier_is_done(void **state)
{
    (void)state;
    if (hdi_biased_fenced()) {
        skip(); /* submitters fence here, so there is no barrier */
    }
    becomes_visible("driver=host placement=thread host_devices=1 chains=0 spin_us=0", true);
}

/* The engine stays awake. */
static void what_is_seen_when_a_lane_is_taken_off_is_done(void **state)
{
    (void)state;
    if (hdi_biased_fenced()) {
        skip();
    }
    becomes_visible("driver=host placement=thread host_devices=1 chains=0 spin_us=1000000", false);
}

static void submitters_do_not_fence(void **state)
{
    (void)state;
    run("driver=host placement=thread host_devices=1 spin_us=0 chains=0", true);
}

static void submitters_fence(void **state)
{
    (void)state;
    run("driver=host placement=thread host_devices=1 spin_us=0 chains=0", false);
}

static void a_worker_has_the_application_fence(void **state)
{
    (void)state;
    run("driver=host placement=process host_devices=1 spin_us=0 chains=0", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_seen_at_the_barrier_is_done),
        cmocka_unit_test(what_is_seen_when_a_lane_is_taken_off_is_done),
        cmocka_unit_test(submitters_do_not_fence),
        cmocka_unit_test(submitters_fence),
        cmocka_unit_test(a_worker_has_the_application_fence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
