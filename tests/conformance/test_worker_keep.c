/* test_worker_keep.c - buffers that keep a copy: hd_alloc_with, hd_buffer_save, and the content
 * after a restart.
 *
 * Promise: A restart returns a checkpointed buffer to its last finished save; others stay failed.
 *
 * Threads: the main one, and some that save at the same time.
 * Locks: none.
 * Always: after a restart a buffer contains exactly the bytes of the last save that finished before
 * the loss. A buffer that was never saved, or keeps no copy, stays failed.
 */
#include "workers.h"

static const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};

static void save_now(hd_buffer *buffer)
{
    hd_ticket ticket = {NULL, 0};
    CONF_OK(hd_buffer_save(buffer, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_TRUE(hd_done(ticket));
}

static void refuses_bad_arguments(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *const untouched = (hd_buffer *)(uintptr_t)0x1234;
    hd_buffer *buffer = untouched, *plain = NULL, *pinned = NULL, *kept = NULL;
    hd_alloc_options options = keep;
    options.size = 0;
    CONF_FAILS(hd_alloc_with(lane, 64, &options, &buffer), HD_ERROR_ARGUMENT);
    options.size = sizeof options - 1;
    CONF_FAILS(hd_alloc_with(lane, 64, &options, &buffer), HD_ERROR_ARGUMENT);
    options = keep;
    options.flags = 1u << 30;
    CONF_FAILS(hd_alloc_with(lane, 64, &options, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_with(lane, 0, &keep, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_with(lane, 64, &keep, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_with(NULL, 64, &keep, &buffer), HD_ERROR_HANDLE);
    hd_status status = hd_alloc_with(lane, (size_t)1 << 60, &keep, &buffer);
    CONF_TRUE(status == HD_ERROR_MEMORY || status == HD_ERROR_HOST_MEMORY);
    status = hd_alloc_with(lane, SIZE_MAX - 4096, &keep, &buffer);
    CONF_TRUE(status == HD_ERROR_MEMORY || status == HD_ERROR_HOST_MEMORY);
    CONF_TRUE(buffer == untouched);

    hd_ticket ticket = {NULL, 77};
    options.flags = 0;
    CONF_OK(hd_alloc_with(lane, 64, NULL, &plain));
    CONF_FAILS(hd_buffer_save(plain, &ticket), HD_ERROR_ARGUMENT);
    hd_free(plain);
    CONF_OK(hd_alloc_with(lane, 64, &options, &plain));
    CONF_FAILS(hd_buffer_save(plain, &ticket), HD_ERROR_ARGUMENT);
    CONF_OK(hd_alloc_host(runtime, 64, &pinned));
    CONF_FAILS(hd_buffer_save(pinned, &ticket), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_buffer_save(NULL, &ticket), HD_ERROR_HANDLE);
    CONF_OK(hd_alloc_with(lane, 64, &keep, &kept));
    CONF_EQUAL(hd_buffer_size(kept), 64);
    CONF_EQUAL(hd_buffer_device(kept), 0);
    hd_free(kept);
    CONF_FAILS(hd_buffer_save(kept, &ticket), HD_ERROR_HANDLE);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);
    conf_close(runtime);
}

/* A buffer with a copy works like any other, and saving disturbs nothing. */
static void works_like_any_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL;
    enum { words = 10000 };
    CONF_OK(hd_alloc_with(lane, words * 4, &keep, &x));
    CONF_OK(hd_alloc(lane, words * 4, &y));
    for (uint32_t i = 0; i < 50; i++) {
        CONF_OK(conf_fill(lane, k, x, 0, words, i, NULL));
        CONF_OK(hd_buffer_save(x, NULL));
        CONF_OK(conf_copy(lane, k, y, 0, x, 0, words, NULL));
        CONF_FILLED(y, 0, i, words * 4);
        CONF_FILLED(x, 0, i, words * 4);
    }
    hd_device_stats stats = {.size = sizeof stats};
    CONF_OK(hd_device_get_stats(runtime, 0, &stats));
    CONF_EQUAL(stats.buffers_live, 2);
    CONF_EQUAL(stats.bytes_live, 2 * words * 4);
    hd_free(x);
    hd_free(y);
    CONF_OK(hd_device_get_stats(runtime, 0, &stats));
    CONF_EQUAL(stats.buffers_live, 0);
    wk_no_loss(runtime);
    conf_close(runtime);
}

static void sizes_come_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 3, 4, 255, 256, 257, 4096, 4097, 65536, (3 << 20) + 5, 20 << 20};
    enum { n = sizeof sizes / sizeof *sizes };
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, lost);
    uint8_t *data = conf_memory(sizes[n - 1]);
    hd_buffer *kept[n], *between[n], *never = NULL, *plain = NULL;
    CONF_OK(hd_alloc_with(lane, 5000, &keep, &never));
    CONF_OK(hd_alloc(lane, 5000, &plain));
    CONF_OK(hd_fill(never, 0, 1, 5000, NULL));
    CONF_OK(hd_fill(plain, 0, 1, 5000, NULL));
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc_with(lane, sizes[i], &keep, &kept[i]));
        CONF_OK(hd_alloc(lane, sizes[i], &between[i])); /* so that they are not all in a row */
        conf_pattern(data, sizes[i], (uint64_t)i + 100);
        CONF_OK(hd_write(kept[i], 0, data, sizes[i]));
        hd_ticket ticket;
        CONF_OK(hd_buffer_save(kept[i], &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        conf_pattern(data, sizes[i], (uint64_t)i + 500); /* written after it, so lost */
        CONF_OK(hd_write(kept[i], 0, data, sizes[i]));
    }
    for (int round = 0; round < 3; round++) {
        wk_lose_now(runtime, lost);
        for (int i = 0; i < n; i++) {
            CONF_FAILS(hd_read(kept[i], 0, data, 1), HD_ERROR_DEVICE_LOST);
        }
        CONF_FAILS(hd_buffer_save(kept[0], NULL), HD_ERROR_DEVICE_LOST);
        CONF_OK(hd_device_restart(runtime, lost));
        for (int i = 0; i < n; i++) {
            conf_pattern(data, sizes[i], (uint64_t)i + 100 + (uint64_t)round);
            CONF_HOLDS(kept[i], 0, data, sizes[i]);
            CONF_FAILS(hd_read(between[i], 0, data, 1), HD_ERROR_DEVICE_LOST);
            CONF_EQUAL(hd_buffer_size(kept[i]), sizes[i]);
            CONF_EQUAL(hd_buffer_device(kept[i]), lost);
            CONF_TRUE(hd_buffer_address(kept[i]) != 0);
        }
        CONF_FAILS(hd_read(never, 0, data, 1), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_write(never, 0, data, 1), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_buffer_save(never, NULL), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_read(plain, 0, data, 1), HD_ERROR_DEVICE_LOST);
        /* the next save, for the next loss */
        for (int i = 0; i < n; i++) {
            conf_pattern(data, sizes[i], (uint64_t)i + 100 + (uint64_t)round + 1);
            CONF_OK(hd_write(kept[i], 0, data, sizes[i]));
            save_now(kept[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        hd_free(kept[i]);
        hd_free(between[i]);
    }
    hd_free(never);
    hd_free(plain);
    hd_device_stats stats = {.size = sizeof stats};
    CONF_OK(hd_device_get_stats(runtime, lost, &stats));
    CONF_EQUAL(stats.buffers_live, 0);
    CONF_EQUAL(stats.bytes_live, 0);
    free(data);
    conf_close(runtime);
}

/* Lost again and again without a new save: the same content each time. */
static void one_save_lasts(void **state)
{
    (void)state;
    enum { size = 100000 };
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    static uint8_t data[size];
    conf_pattern(data, size, 5);
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, 0), size, &keep, &x));
    CONF_OK(hd_write(x, 0, data, size));
    save_now(x);
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_fill(x, 0, (uint32_t)i, size, NULL));
        wk_lose_now(runtime, 0);
        CONF_OK(hd_device_restart(runtime, 0));
        CONF_HOLDS(x, 0, data, size);
    }
    conf_close(runtime);
}

/* A save that waits for a kernel when the device is lost does not count, and damages nothing. */
static void a_save_under_way_does_not_count(void **state)
{
    (void)state;
    enum { size = 1 << 20 };
    hd_runtime *runtime = conf_open(NULL);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    int lost = hd_device_count(runtime) - 1;
    for (int saved_before = 0; saved_before < 4; saved_before++) {
        hd_lane *lane = NULL;
        hd_buffer *x = NULL;
        CONF_OK(hd_lane_create(runtime, lost, &lane));
        CONF_OK(hd_alloc_with(lane, size, &keep, &x));
        for (int i = 0; i < saved_before; i++) {
            CONF_OK(hd_fill(x, 0, 0x40u + (uint32_t)i, size, NULL));
            save_now(x);
        }
        CONF_OK(hd_fill(x, 0, 0, size, NULL));
        hd_ticket ticket;
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_OK(wk_launch_one(lane, k.spin, x, NULL)); /* never ends, and the save waits for it */
        CONF_OK(hd_buffer_save(x, &ticket));
        CONF_FAILS(hd_wait(ticket, 30 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        wk_lose_now(runtime, lost);
        CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        CONF_OK(hd_device_restart(runtime, lost));
        CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        if (saved_before == 0) {
            CONF_FAILS(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
        } else {
            CONF_FILLED(x, 0, 0x40u + (uint32_t)saved_before - 1, size);
            CONF_OK(hd_fill(x, 0, 0x99, size, NULL)); /* and saves still work */
            save_now(x);
            wk_lose_now(runtime, lost);
            CONF_OK(hd_device_restart(runtime, lost));
            CONF_FILLED(x, 0, 0x99, size);
        }
        hd_free(x);
        hd_lane_destroy(lane);
    }
    conf_close(runtime);
}

/* The worker is killed at any moment of a save. If the save's ticket is done, the content is that
 * of this save, otherwise that of the one before. */
static void killed_at_any_moment_of_a_save(void **state)
{
    (void)state;
    enum { size = 32 << 20, rounds = 12 };
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1, finished = 0;
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, lost), size, &keep, &x));
    uint32_t saved = 0x1000;
    CONF_OK(hd_fill(x, 0, saved, size, NULL));
    save_now(x);
    conf_random r = {conf_number_from("HEDDLE_SEED", 1)};
    for (uint32_t i = 0; i < rounds; i++) {
        hd_ticket ticket;
        pid_t pid = wk_pid(runtime, lost);
        CONF_OK(hd_fill(x, 0, 0x2000 + i, size, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_OK(hd_buffer_save(x, &ticket));
        struct timespec moment = {0, (long)conf_below(&r, 30000000)};
        nanosleep(&moment, NULL);
        CONF_EQUAL(kill(pid, SIGKILL), 0);
        wk_only_loss(runtime, lost);
        CONF_TRUE(hd_done(ticket));
        hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
        if (status == HD_OK) {
            saved = 0x2000 + i;
            finished++;
        } else {
            CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
        }
        CONF_OK(hd_device_restart(runtime, lost));
        CONF_EQUAL(hd_wait(ticket, 0), status); /* it stays with that */
        CONF_FILLED(x, 0, saved, size);
    }
    fprintf(stderr, "  %d of %d saves were finished\n", finished, rounds);
    conf_close(runtime);
}

/* Saves one after the other, without waiting: the last finished one counts. */
static void saves_in_a_row(void **state)
{
    (void)state;
    enum { size = 1 << 20, n = 20 };
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    hd_ticket tickets[n];
    CONF_OK(hd_alloc_with(lane, size, &keep, &x));
    for (uint32_t i = 0; i < n; i++) {
        CONF_OK(conf_fill(lane, k, x, 0, size / 4, i, NULL));
        CONF_OK(hd_buffer_save(x, &tickets[i]));
    }
    CONF_OK(hd_wait(tickets[n / 2], 60 * CONF_SECOND));
    CONF_EQUAL(kill(wk_pid(runtime, 0), SIGKILL), 0);
    wk_only_loss(runtime, 0);
    uint32_t last = n / 2;
    for (uint32_t i = 0; i < n; i++) {
        hd_status status = hd_wait(tickets[i], 60 * CONF_SECOND);
        CONF_TRUE(status == HD_OK || (i > n / 2 && status == HD_ERROR_DEVICE_LOST));
        last = status == HD_OK && i > last ? i : last;
    }
    CONF_OK(hd_device_restart(runtime, 0));
    CONF_FILLED(x, 0, last, size);
    conf_close(runtime);
}

typedef struct saver {
    hd_buffer *buffer;
    pthread_t thread;
} saver;

static void *saves(void *argument)
{
    saver *s = argument;
    for (int i = 0; i < 30; i++) {
        hd_ticket ticket;
        CONF_OK(hd_buffer_save(s->buffer, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    }
    return NULL;
}

static void several_threads_save(void **state)
{
    (void)state;
    enum { size = 100000, n = 4 };
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    saver threads[n];
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, 0), size, &keep, &x));
    CONF_OK(hd_fill(x, 0, 0x77, size, NULL));
    for (int i = 0; i < n; i++) {
        threads[i].buffer = x;
        CONF_EQUAL(pthread_create(&threads[i].thread, NULL, saves, &threads[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    wk_lose_now(runtime, 0);
    CONF_OK(hd_device_restart(runtime, 0));
    CONF_FILLED(x, 0, 0x77, size);
    conf_close(runtime);
}

/* Buffers freed while the device is lost, or while a save is under way, do not come back and change
 * nothing else. */
static void freed_meanwhile(void **state)
{
    (void)state;
    enum { size = 1 << 20, n = 8 };
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x[n];
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc_with(lane, size, &keep, &x[i]));
        CONF_OK(hd_fill(x[i], 0, (uint32_t)i, size, NULL));
        save_now(x[i]);
    }
    CONF_OK(hd_buffer_save(x[0], NULL));
    hd_free(x[0]);
    wk_lose_now(runtime, 0);
    hd_free(x[1]);
    CONF_FAILS(hd_buffer_save(x[1], NULL), HD_ERROR_HANDLE);
    CONF_OK(hd_device_restart(runtime, 0));
    hd_free(x[2]);
    for (int i = 3; i < n; i++) {
        CONF_FILLED(x[i], 0, (uint32_t)i, size);
    }
    hd_device_stats stats = {.size = sizeof stats};
    CONF_OK(hd_device_get_stats(runtime, 0, &stats));
    CONF_EQUAL(stats.buffers_live, n - 3);
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_keep");
    const struct CMUnitTest tests[] = {
        CONF_CASE(refuses_bad_arguments),
        CONF_CASE(works_like_any_other),
        CONF_CASE(sizes_come_back),
        CONF_CASE(one_save_lasts),
        CONF_CASE(a_save_under_way_does_not_count),
        CONF_CASE(killed_at_any_moment_of_a_save),
        CONF_CASE(saves_in_a_row),
        CONF_CASE(several_threads_save),
        CONF_CASE(freed_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
