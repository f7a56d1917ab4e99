/* test_worker_races.c - a device is lost in the middle of another operation. test_worker_returns.c
 * tests operations in the middle of a restart.
 *
 * Promise: An operation checked before a loss and submitted after it fails.
 *
 * The operation was checked and waits for room, or it is a copy, a lane that is being given out, or
 * a free.
 *
 * Threads: the main one, and those of side.h.
 * Locks: none.
 * Always: a check made before a loss does not count after it.
 */
#include "side.h"

/* ---- operations checked before a loss ---- */

static void reads_x_until_it_is_refused(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_copy(s->lane, s->k, s->y, 0, s->x, 0, words, NULL);
    }
}

static void writes_x_until_it_is_refused(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_fill(s->lane, s->k, s->x, 0, words, 77, NULL);
    }
}

/* A launch on a healthy device waits for room in its lane. Meanwhile the owner of a buffer that it
 * uses is lost and restarts, so the checks of the launch no longer hold. */
static void a_blocked_launch_is_refused(void (*function)(side *s), bool kept)
{
    hd_runtime *runtime = conf_open_with("lane_slots=64");
    CONF_NEED_DEVICES(runtime, 2);
    int owner = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, 0, owner)) {
        conf_close(runtime);
        return;
    }
    side s = {.function = function, .runtime = runtime, .k = conf_builtins(runtime)};
    CONF_OK(hd_lane_create(runtime, 0, &s.lane));
    s.x = filled(conf_default_lane(runtime, owner), kept ? HD_ALLOC_KEEP : 0, 5);
    s.y = filled(s.lane, 0, 6);
    CONF_OK(conf_copy(s.lane, s.k, s.y, 0, s.x, 0, words, NULL));
    CONF_OK(hd_lane_wait(s.lane, 60 * CONF_SECOND));
    if (kept) {
        save(s.x);
    }
    pid_t worker = wk_pid(runtime, 0);
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    side_start(&s);
    side_settle(&s);
    int before = atomic_load(&s.begun);
    CONF_TRUE(!atomic_load(&s.ended));
    wk_lose_now(runtime, owner);
    restart_works(runtime, owner, 1);
    atomic_store(&s.stop, true);
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    side_join(&s);
    CONF_EQUAL(s.status, HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(atomic_load(&s.begun), before + 1); /* that one, not the next */
    CONF_OK(hd_lane_wait(s.lane, 60 * CONF_SECOND));
    if (kept) {
        CONF_FILLED(s.x, 0, 5, bytes);
        CONF_OK(conf_fill(s.lane, s.k, s.x, 0, words, 9, NULL));
        CONF_FILLED(s.x, 0, 9, bytes);
    } else {
        CONF_FAILS(hd_read(s.x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
    }
    wk_others_work(runtime, owner);
    wk_works(runtime, owner);
    conf_close(runtime);
}

static void an_operation_checked_before_a_loss_is_refused(void **state)
{
    (void)state;
    a_blocked_launch_is_refused(reads_x_until_it_is_refused, false);
    a_blocked_launch_is_refused(writes_x_until_it_is_refused, false);
}

static void an_operation_checked_before_a_restore_is_refused(void **state)
{
    (void)state;
    a_blocked_launch_is_refused(reads_x_until_it_is_refused, true);
    a_blocked_launch_is_refused(writes_x_until_it_is_refused, true);
}

enum { many_bytes = 64 << 20 }; /* more than all the pinned chunks for copies */

/* A staged copy is submitted as a whole, while the destination's worker takes none of it. The
 * source is lost before any byte arrived, and restarts. Neither its old memory nor its new one may
 * count as copied. */
static void a_staged_copy_of_a_buffer_lost_meanwhile_fails(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("host_peers=none");
    CONF_NEED_DEVICES(runtime, 2);
    int owner = hd_device_count(runtime) - 1;
    if (conf_reaches(runtime, 0, owner) || conf_reaches(runtime, owner, 0)) {
        conf_close(runtime);
        skip();
    }
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, owner), many_bytes, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), many_bytes, &y));
    CONF_OK(hd_fill(x, 0, 1, many_bytes, NULL));
    CONF_OK(hd_fill(y, 0, 2, many_bytes, NULL));
    /* so that the chunks are pinned: a stopped worker pins none */
    CONF_OK(hd_copy(y, 0, x, 0, many_bytes, NULL));
    CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
    pid_t worker = wk_pid(runtime, 0);
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    hd_ticket ticket;
    CONF_OK(hd_copy(y, 0, x, 0, many_bytes, &ticket)); /* does not wait for any thread */
    CONF_TRUE(!hd_done(ticket));
    wk_lose_now(runtime, owner);
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    restart_works(runtime, owner, 1);
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_read(y, many_bytes - 4, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_copy(y, 0, x, 0, many_bytes, NULL), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_fill(y, 0, 3, many_bytes, NULL));
    CONF_FILLED(y, 0, 3, bytes);
    wk_others_work(runtime, owner);
    wk_works(runtime, owner);
    conf_close(runtime);
}

/* ---- lanes ---- */

static void creates_a_lane(side *s)
{
    s->status = hd_lane_create(s->runtime, s->device, &s->lane);
}

/* One thread waits for the worker, which is stopped, another for the first. Then the device is
 * lost, and a lane becomes free to give out. */
static void a_lane_is_not_given_out_by_a_lost_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    pid_t worker = wk_pid(runtime, lost); /* to be read before it is stopped */
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    side first = {.function = creates_a_lane, .runtime = runtime, .device = lost}, second = first;
    side_start(&first);
    side_settle(&first);
    side_start(&second);
    side_settle(&second);
    hd_lane_destroy(lane);
    CONF_EQUAL(kill(worker, SIGKILL), 0);
    side_join(&first);
    side_join(&second);
    CONF_EQUAL(first.status, HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(second.status, HD_ERROR_DEVICE_LOST);
    wk_only_loss(runtime, lost);
    restart_works(runtime, lost, 1);
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    wk_works(runtime, lost);
    conf_close(runtime);
}

/* ---- memory ---- */

static bool overlap(hd_buffer *a, hd_buffer *b)
{
    uint64_t x = hd_buffer_address(a), y = hd_buffer_address(b);
    return x < y + hd_buffer_size(b) && y < x + hd_buffer_size(a);
}

/* Addresses come again after some losses: a free must not free the block that uses the address
 * now. */
static void freeing_what_a_worker_took_along_frees_nothing_else(void **state)
{
    (void)state;
    enum { n = 17 };
    int rounds = conf_on_gpus ? 3 : n;
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=64M");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, device);
    hd_buffer *old[n], *live[2] = {NULL, NULL};
    for (int i = 0; i < rounds; i++) {
        CONF_OK(hd_alloc(lane, 1 << 20, &old[i]));
        wk_lose_now(runtime, device);
        restart_works(runtime, device, (uint64_t)i + 1);
    }
    CONF_OK(hd_alloc(lane, 1 << 20, &live[0]));
    CONF_OK(hd_fill(live[0], 0, 7, 1 << 20, NULL));
    for (int i = 0; i < rounds; i++) {
        hd_free(old[i]);
    }
    CONF_OK(hd_alloc(lane, 1 << 20, &live[1]));
    CONF_TRUE(!overlap(live[0], live[1]));
    CONF_OK(hd_fill(live[1], 0, 8, 1 << 20, NULL));
    CONF_FILLED(live[0], 0, 7, 1 << 20);
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_races");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_operation_checked_before_a_loss_is_refused),
        CONF_CASE(an_operation_checked_before_a_restore_is_refused),
        CONF_CASE(a_staged_copy_of_a_buffer_lost_meanwhile_fails),
        CONF_CASE(a_lane_is_not_given_out_by_a_lost_device),
        CONF_CASE(freeing_what_a_worker_took_along_frees_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
