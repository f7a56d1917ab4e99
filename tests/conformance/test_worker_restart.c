/* test_worker_restart.c - hd_device_restart: some objects work again by themselves (lanes, modules,
 * kernels, pinned memory, peers), others stay failed (tickets, buffers).
 *
 * Promise: A restart revives lanes, modules and peers; old tickets and buffers stay failed.
 *
 * Threads: the main one, and some with default lanes.
 * Locks: none.
 * Always: after HD_OK the device works, in every way.
 */
#include "workers.h"

enum { words = 5000, bytes = words * 4 };

static void refuses_bad_arguments(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_FAILS(hd_device_restart(NULL, 0), HD_ERROR_HANDLE);
    CONF_FAILS(hd_device_restart(runtime, -1), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_device_restart(runtime, hd_device_count(runtime)), HD_ERROR_NO_DEVICE);
    conf_close(runtime);
}

static void a_device_that_is_not_lost_is_left_alone(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    pid_t pid = wk_pid(runtime, 0);
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_fill(x, 0, 4, bytes, NULL));
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_device_restart(runtime, 0));
    }
    CONF_FILLED(x, 0, 4, bytes);
    CONF_EQUAL(wk_pid(runtime, 0), pid);
    wk_check_facts(runtime, 0, 0, 0);
    wk_no_loss(runtime);
    conf_close(runtime);
}

/* Without workers a lost device cannot be restarted. */
static void only_with_workers(void **state)
{
    (void)state;
    static const char *const placements[] = {"inline", "thread"};
    for (int i = 0; i < 2; i++) {
        hd_runtime *runtime = conf_open_with("placement=%s fault=cuLaunchKernel:1+=700", placements[i]);
        if (!conf_is_host(runtime)) { /* this process must not start the driver: not here */
            conf_close(runtime);
            skip();
        }
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *x = NULL;
        hd_ticket ticket;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, conf_builtins(runtime), x, 0, words, 3, &ticket));
        CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        CONF_TRUE(wk_info(runtime, 0).lost);
        CONF_FAILS(hd_device_restart(runtime, 0), HD_ERROR_UNSUPPORTED);
        CONF_TRUE(wk_info(runtime, 0).lost);
        CONF_EQUAL(wk_info(runtime, 0).restarts, 0);
        conf_close(runtime);
    }
}

/* ---- lanes and tickets ---- */

static void lanes_accept_work_again(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1;
    enum { n = 6 };
    hd_lane *lanes[n], *mine = conf_default_lane(runtime, lost), *gone = NULL;
    hd_buffer *x[n + 1];
    hd_ticket good[n + 1], bad[n + 1];
    for (int i = 0; i <= n; i++) {
        hd_lane *lane = mine;
        if (i < n) {
            CONF_OK(hd_lane_create(runtime, lost, &lanes[i]));
            lane = lanes[i];
        }
        CONF_OK(hd_alloc(lane, bytes, &x[i]));
        CONF_OK(conf_fill(lane, k, x[i], 0, words, 1, &good[i]));
        CONF_OK(hd_wait(good[i], 60 * CONF_SECOND));
    }
    CONF_OK(hd_lane_create(runtime, lost, &gone));
    for (int round = 0; round < 3; round++) {
        pid_t pid = wk_pid(runtime, lost);
        CONF_EQUAL(kill(pid, SIGSTOP), 0);
        while (wk_state(pid) != 'T') {
            conf_sleep_ms(1);
        }
        for (int i = 0; i <= n; i++) { /* in flight for sure */
            CONF_OK(conf_fill(i < n ? lanes[i] : mine, k, x[i], 0, words, 1, &bad[i]));
        }
        if (round == 1) {
            /* given back while the device is stopped, and not used any more */
            hd_lane_destroy(gone);
        }
        CONF_EQUAL(kill(pid, SIGKILL), 0);
        wk_only_loss(runtime, lost);
        CONF_FAILS(conf_fill(lanes[0], k, x[0], 0, words, 2, NULL), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_lane_reset(lanes[1], 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        CONF_OK(hd_device_restart(runtime, lost));
        wk_check_facts(runtime, lost, (uint64_t)round + 1, (uint64_t)round + 1);
        CONF_TRUE(conf_default_lane(runtime, lost) == mine);
        for (int i = 0; i <= n; i++) {
            hd_lane *lane = i < n ? lanes[i] : mine;
            /* old tickets: good ones stay good, the others failed */
            CONF_TRUE(hd_done(good[i]) && hd_done(bad[i]));
            CONF_OK(hd_wait(good[i], 0));
            CONF_FAILS(hd_wait(bad[i], 0), HD_ERROR_DEVICE_LOST);
            /* old buffers: lost, in every way */
            uint32_t word = 0;
            CONF_FAILS(conf_fill(lane, k, x[i], 0, words, 2, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_fill(x[i], 0, 2, bytes, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_write(x[i], 0, &word, 4), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_read(x[i], 0, &word, 4), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_copy(x[i], 0, x[(i + 1) % n], 0, 4, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_buffer_wait(x[i], HD_READ, 0), HD_ERROR_DEVICE_LOST);
            CONF_EQUAL(hd_buffer_size(x[i]), bytes);
            CONF_EQUAL(hd_buffer_device(x[i]), lost);
            hd_free(x[i]);
            CONF_EQUAL(hd_buffer_size(x[i]), 0);
            /* new buffers work, in the old lane */
            CONF_EQUAL(hd_lane_device(lane), lost);
            CONF_OK(hd_alloc(lane, bytes, &x[i]));
            for (uint32_t j = 0; j < 10; j++) {
                CONF_OK(conf_fill(lane, k, x[i], 0, words, 100 + j, &good[i]));
            }
            CONF_OK(hd_wait(good[i], 60 * CONF_SECOND));
            CONF_FILLED(x[i], 0, 109, bytes);
            CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
            CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
            CONF_FAILS(hd_wait(bad[i], 0), HD_ERROR_DEVICE_LOST); /* still */
        }
    }
    hd_lane *fresh = NULL; /* probably the one that was given back */
    CONF_OK(hd_lane_create(runtime, lost, &fresh));
    CONF_OK(conf_fill(fresh, k, x[0], 0, words, 5, NULL));
    CONF_FILLED(x[0], 0, 5, bytes);
    conf_close(runtime);
}

typedef struct sleeper {
    hd_runtime *runtime;
    int device;
    pthread_barrier_t barrier;
} sleeper;

/* Uses its default lane before the loss, while the device is lost, and after the restart. */
static void *lives_through_it(void *argument)
{
    sleeper *s = argument;
    conf_kernels k = conf_builtins(s->runtime);
    hd_lane *before = conf_default_lane(s->runtime, s->device);
    CONF_TRUE(before != NULL);
    pthread_barrier_wait(&s->barrier); /* now it is lost */
    pthread_barrier_wait(&s->barrier);
    hd_buffer *x = NULL;
    CONF_FAILS(hd_alloc(before, bytes, &x), HD_ERROR_DEVICE_LOST);
    pthread_barrier_wait(&s->barrier); /* and now it is back */
    pthread_barrier_wait(&s->barrier);
    CONF_TRUE(conf_default_lane(s->runtime, s->device) == before);
    CONF_OK(hd_alloc(before, bytes, &x));
    CONF_OK(conf_fill(before, k, x, 0, words, 3, NULL));
    CONF_FILLED(x, 0, 3, bytes);
    hd_free(x);
    return NULL;
}

static void default_lanes_of_other_threads(void **state)
{
    (void)state;
    enum { n = 4 };
    sleeper s = {.runtime = conf_open(NULL)};
    s.device = hd_device_count(s.runtime) - 1;
    pthread_t threads[n];
    pthread_barrier_init(&s.barrier, NULL, n + 1);
    conf_failure_ends_program = true;
    for (int i = 0; i < n; i++) {
        CONF_EQUAL(pthread_create(&threads[i], NULL, lives_through_it, &s), 0);
    }
    pthread_barrier_wait(&s.barrier);
    wk_lose_now(s.runtime, s.device);
    /* this thread's first: refused, or valid later */
    hd_lane *mine = conf_default_lane(s.runtime, s.device);
    CONF_TRUE(mine == NULL || hd_lane_device(mine) == s.device);
    pthread_barrier_wait(&s.barrier);
    pthread_barrier_wait(&s.barrier);
    CONF_OK(hd_device_restart(s.runtime, s.device));
    pthread_barrier_wait(&s.barrier);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    conf_failure_ends_program = false;
    pthread_barrier_destroy(&s.barrier);
    wk_works(s.runtime, s.device);
    conf_close(s.runtime);
}

/* ---- code and memory ---- */

static void check_kernels(hd_runtime *runtime, int device, wk_kernels k)
{
    hd_lane *lane = conf_default_lane(runtime, device);
    conf_kernels builtin = conf_builtins(runtime);
    hd_buffer *x = NULL, *y = NULL, *total = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc(lane, bytes, &y));
    CONF_OK(hd_alloc(lane, 256, &total));
    CONF_OK(conf_fill(lane, builtin, x, 0, words, 41, NULL));
    CONF_OK(wk_add_one(lane, k, x, words, NULL));
    CONF_OK(conf_copy(lane, builtin, y, 0, x, 0, words, NULL));
    CONF_FILLED(y, 0, 42, bytes);
    CONF_OK(conf_fill(lane, builtin, x, 0, words, conf_bits(1), NULL));
    CONF_OK(conf_fill(lane, builtin, total, 0, 64, conf_bits(0), NULL));
    CONF_OK(conf_axpy(lane, builtin, x, 0, x, 0, 1.0f, words, NULL));
    CONF_OK(conf_sum(lane, builtin, total, 0, x, 0, words, 3, NULL));
    CONF_FILLED(total, 0, conf_bits(2.0f * words), 4);
    /* with shared memory */
    hd_arg args[] = {hd_out(y), hd_in(x), hd_in(x), hd_u32(8), hd_u32(8), hd_u32(8)};
    CONF_OK(hd_launch(lane, builtin.matmul, conf_dims(1, 1, 1), conf_dims(32, 32, 1), 0, args, 6, NULL));
    CONF_FILLED(y, 0, conf_bits(32), 8 * 8 * 4);
    hd_free(x);
    hd_free(y);
    hd_free(total);
}

/* Modules loaded before the loss, or while the device was lost, exist after the restart. An unload
 * works at any time. */
static void modules_are_loaded_again(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    wk_kernels before = wk_load(runtime), unloaded = before;
    WK_NEED_KERNELS(runtime, before);
    int lost = hd_device_count(runtime) - 1;
    unloaded = wk_load(runtime);
    hd_lane *old = conf_default_lane(runtime, lost);
    CONF_TRUE(old != NULL);
    for (int round = 0; round < 2; round++) {
        wk_lose_now(runtime, lost);
        size_t size = 0;
        const void *image = wk_image(runtime, &size);
        wk_kernels during = {0};
        if (lost > 0) { /* on a single device there is nothing to load on */
            during = wk_load(runtime);
            check_kernels(runtime, 0, during);
            hd_buffer *y = NULL;
            CONF_OK(hd_alloc_host(runtime, bytes, &y));
            CONF_FAILS(wk_launch_one(old, during.hello, y, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(wk_launch_one(old, before.hello, y, NULL), HD_ERROR_DEVICE_LOST);
            hd_free(y);
        }
        if (round == 0) {
            hd_module_unload(unloaded.module);
        }
        hd_kernel *first = NULL; /* looked up for the first time while it is lost */
        if (lost > 0) {
            CONF_OK(hd_kernel_get(before.module, "bye", &first));
        }
        CONF_OK(hd_device_restart(runtime, lost));
        check_kernels(runtime, lost, before);
        if (first != NULL) {
            hd_buffer *y = NULL;
            CONF_OK(hd_alloc(conf_default_lane(runtime, lost), bytes, &y));
            CONF_OK(wk_launch_one(conf_default_lane(runtime, lost), first, y, NULL));
            CONF_FILLED(y, 0, 0x4712, 4);
            hd_free(y);
        }
        if (during.module != NULL) {
            check_kernels(runtime, lost, during);
            hd_module_unload(during.module);
        }
        hd_lane *lane = conf_default_lane(runtime, lost);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_FAILS(wk_add_one(lane, unloaded, x, words, NULL), HD_ERROR_HANDLE);
        hd_module *after = NULL;
        hd_kernel *add = NULL;
        CONF_OK(hd_module_load(runtime, image, size, &after));
        CONF_OK(hd_kernel_get(after, "add_one", &add));
        wk_kernels later = {.module = after, .add_one = add};
        check_kernels(runtime, lost, later);
        check_kernels(runtime, 0, before);
        hd_module_unload(after);
        hd_free(x);
    }
    conf_close(runtime);
}

/* Pinned memory from before the loss, and from the time between loss and restart. */
static void pinned_memory_is_known_again(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1;
    hd_buffer *before = NULL, *during = NULL, *untouched = NULL, *large = NULL;
    enum { much = 9 << 20 };
    uint8_t *data = conf_memory(much);
    conf_pattern(data, much, 3);
    CONF_OK(hd_alloc_host(runtime, bytes, &before));
    CONF_OK(hd_alloc_host(runtime, bytes, &untouched));
    CONF_OK(hd_alloc_host(runtime, much, &large));
    CONF_OK(hd_write(large, 0, data, much));
    CONF_OK(hd_fill(untouched, 0, 0x1111, bytes, NULL));
    CONF_FILLED(untouched, 0, 0x1111, bytes);
    hd_lane *lane = conf_default_lane(runtime, lost);
    void *p = NULL;
    CONF_OK(hd_map(before, HD_READ_WRITE, &p));
    for (int round = 0; round < 3; round++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, k, before, 0, words, 5, NULL));
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        wk_lose_now(runtime, lost);
        CONF_FILLED(untouched, 0, 0x1111, bytes);
        if (lost > 0) {
            CONF_OK(hd_alloc_host(runtime, bytes, &during));
            CONF_OK(hd_fill(during, 0, 0x2222, bytes, NULL));
        }
        CONF_OK(hd_device_restart(runtime, lost));
        hd_free(x);
        CONF_OK(hd_alloc(lane, bytes, &x));
        hd_buffer *pinned[] = {before, untouched, during};
        for (int i = 0; i < 3; i++) {
            if (pinned[i] == NULL) {
                continue;
            }
            /* kernels write it */
            CONF_OK(conf_fill(lane, k, pinned[i], 0, words, 0x77u + (uint32_t)i, NULL));
            CONF_OK(conf_copy(lane, k, x, 0, pinned[i], 0, words, NULL)); /* and read it */
            CONF_FILLED(x, 0, 0x77u + (uint32_t)i, bytes);
            CONF_OK(hd_fill(x, 0, 0x88, bytes, NULL));
            CONF_OK(hd_copy(pinned[i], 0, x, 0, bytes, NULL)); /* copies in both directions */
            CONF_FILLED(pinned[i], 0, 0x88, bytes);
            CONF_OK(hd_fill(pinned[i], 0, 0x99, bytes, NULL));
            CONF_OK(hd_copy(x, 0, pinned[i], 0, bytes, NULL));
            CONF_FILLED(x, 0, 0x99, bytes);
        }
        CONF_EQUAL(((uint32_t *)p)[words - 1], 0x99); /* still mapped at the same place */
        hd_buffer *there = NULL;
        CONF_OK(hd_alloc(lane, much, &there));
        CONF_OK(hd_copy(there, 0, large, 0, much, NULL));
        CONF_HOLDS(there, 0, data, much);
        CONF_HOLDS(large, 0, data, much);
        CONF_OK(hd_fill(untouched, 0, 0x1111, bytes, NULL));
        CONF_OK(hd_buffer_wait(untouched, HD_READ_WRITE, 60 * CONF_SECOND));
        hd_free(there);
        hd_free(during);
        hd_free(x);
        during = NULL;
    }
    free(data);
    conf_close(runtime);
}

/* Kernels and copies between the device and the others, in both directions, over peers or
 * staged. */
static void peers_meet_again(void **state)
{
    (void)state;
    static const char *const peers[] = {"all", "none", "ring"};
    for (int i = 0; i < 3; i++) {
        hd_runtime *runtime = conf_open_with("host_peers=%s", peers[i]);
        CONF_NEED_DEVICES(runtime, 2);
        conf_kernels k = conf_builtins(runtime);
        int count = hd_device_count(runtime), lost = count - 1;
        for (int round = 0; round < (CONF_TSAN ? 2 : 3); round++) {
            for (int d = 0; d < count - 1; d++) {
                enum { large = CONF_TSAN ? 2 << 20 : 5 << 20 };
                hd_lane *here = conf_default_lane(runtime, d), *there = conf_default_lane(runtime, lost);
                hd_buffer *x = NULL, *y = NULL;
                uint32_t word = (uint32_t)(round * 100 + d);
                CONF_OK(hd_alloc(here, large, &x));
                CONF_OK(hd_alloc(there, large, &y));
                CONF_OK(hd_fill(x, 0, word, large, NULL));
                CONF_OK(hd_copy(y, 0, x, 0, large, NULL));
                CONF_FILLED(y, 0, word, large);
                CONF_OK(conf_fill(there, k, y, 0, large / 4, word + 1, NULL));
                CONF_OK(hd_copy(x, 0, y, 0, large, NULL));
                CONF_FILLED(x, 0, word + 1, large);
                if (conf_reaches(runtime, d, lost)) {
                    CONF_OK(conf_fill(here, k, y, 0, words, word + 2, NULL));
                    CONF_FILLED(y, 0, word + 2, bytes);
                    CONF_FILLED(y, bytes, word + 1, large - bytes);
                    CONF_OK(conf_copy(here, k, x, 0, y, 0, words, NULL));
                    CONF_FILLED(x, 0, word + 2, bytes);
                }
                if (conf_reaches(runtime, lost, d)) {
                    CONF_OK(conf_fill(there, k, x, 0, words, word + 3, NULL));
                    CONF_FILLED(x, 0, word + 3, bytes);
                    CONF_OK(conf_copy(there, k, y, 0, x, 0, words, NULL));
                    CONF_FILLED(y, 0, word + 3, bytes);
                }
                hd_free(x);
                if (d % 2 == 0) { /* the others stay, for the loss */
                    hd_free(y);
                }
            }
            wk_lose_now(runtime, lost);
            CONF_OK(hd_device_restart(runtime, lost));
        }
        conf_close(runtime);
    }
}

/* Healthy devices map the lost device's memory. Their mappings do not block its new memory, at the
 * same addresses. */
static void old_mappings_do_not_linger(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=all");
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1;
    enum { n = 8, size = 3 << 20 };
    hd_lane *here = conf_default_lane(runtime, 0), *there = conf_default_lane(runtime, lost);
    hd_buffer *mine = NULL;
    CONF_OK(hd_alloc(here, size, &mine));
    for (uint32_t round = 0; round < 6; round++) {
        hd_buffer *x[n];
        for (uint32_t i = 0; i < n; i++) {
            uint32_t word = round * 1000 + i;
            CONF_OK(hd_alloc(there, size, &x[i]));
            CONF_OK(conf_fill(there, k, x[i], 0, size / 4, word, NULL));
            if (conf_reaches(runtime, 0, lost)) {
                /* reads it through its own mapping */
                CONF_OK(conf_copy(here, k, mine, 0, x[i], 0, size / 4, NULL));
            } else {
                CONF_OK(hd_copy(mine, 0, x[i], 0, size, NULL));
            }
            CONF_FILLED(mine, 0, word, size);
        }
        wk_lose_now(runtime, lost);
        for (int i = 0; i < n; i += 2) { /* freed before, and after */
            CONF_FAILS(hd_copy(mine, 0, x[i], 0, 4, NULL), HD_ERROR_DEVICE_LOST);
            hd_free(x[i]);
        }
        CONF_OK(hd_device_restart(runtime, lost));
        for (int i = 1; i < n; i += 2) {
            CONF_FAILS(hd_copy(mine, 0, x[i], 0, 4, NULL), HD_ERROR_DEVICE_LOST);
            hd_free(x[i]);
        }
        hd_device_stats stats = {.size = sizeof stats};
        CONF_OK(hd_device_get_stats(runtime, lost, &stats));
        CONF_EQUAL(stats.buffers_live, 0);
        CONF_EQUAL(stats.bytes_live, 0);
    }
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_restart");
    const struct CMUnitTest tests[] = {
        CONF_CASE(refuses_bad_arguments),    CONF_CASE(a_device_that_is_not_lost_is_left_alone),
        CONF_CASE(lanes_accept_work_again),  CONF_CASE(default_lanes_of_other_threads),
        CONF_CASE(modules_are_loaded_again), CONF_CASE(pinned_memory_is_known_again),
        CONF_CASE(peers_meet_again),         CONF_CASE(old_mappings_do_not_linger),
        CONF_CASE(only_with_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
