/* test_pageable_trouble.c - hd_write and hd_read while buffers are freed, while a device is lost,
 * in a child process, and while driver calls fail.
 *
 * Promise: A read without an error is right despite frees, losses and failing driver calls.
 *
 * Threads: the main one, and those of a case.
 * Locks: none.
 * Always: a read without an error returns the bytes written, and after any failure everything works
 * as before.
 */
#include "sweep.h"
#include "transfers.h"

/* ---- buffers that are freed ---- */

typedef struct target {
    _Atomic(hd_buffer *) buffer;
    _Atomic bool stop;
    size_t bytes;
} target;

static void *write_and_read_on(void *argument)
{
    target *t = argument;
    uint8_t *data = conf_memory(t->bytes);
    conf_pattern(data, t->bytes, 1);
    for (int i = 0; !atomic_load(&t->stop); i++) {
        hd_buffer *buffer = atomic_load(&t->buffer);
        hd_status status = i % 2 ? hd_read(buffer, 0, data, t->bytes) : hd_write(buffer, 0, data, t->bytes);
        CONF_TRUE(status == HD_OK || status == HD_ERROR_HANDLE);
    }
    free(data);
    return NULL;
}

static void buffers_are_freed_meanwhile(void **state)
{
    (void)state;
    if (CONF_TSAN) {
        /* a structure is read while its next owner changes it; the value counts only if the handle
         * is still valid then */
        skip();
    }
    hd_runtime *runtime = conf_open("copy_threads=2");
    enum { threads = 3 };
    target t = {.bytes = 3 * MIB};
    atomic_store(&t.buffer, make(runtime, 0, t.bytes));
    pthread_t ids[threads];
    conf_failure_ends_program = true;
    for (int i = 0; i < threads; i++) {
        CONF_EQUAL(pthread_create(&ids[i], NULL, write_and_read_on, &t), 0);
    }
    for (int i = 0; i < 60; i++) {
        hd_buffer *next = make(runtime, i % hd_device_count(runtime), t.bytes);
        hd_free(atomic_exchange(&t.buffer, next));
        conf_sleep_ms(1);
    }
    atomic_store(&t.stop, true);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    conf_failure_ends_program = false;
    hd_buffer *buffer = make(runtime, 0, t.bytes);
    uint8_t *data = conf_memory(t.bytes);
    conf_pattern(data, t.bytes, 5);
    CONF_OK(hd_write(buffer, 0, data, t.bytes));
    holds(buffer, 0, data, t.bytes, 0);
    free(data);
    conf_close(runtime);
}

/* ---- losses and forks ---- */

typedef struct victim {
    hd_runtime *runtime;
    hd_buffer *buffer;
    size_t bytes;
    bool reads, lost;
    _Atomic int *moved;
} victim;

static void *transfer_until_lost(void *argument)
{
    victim *v = argument;
    uint8_t *data = conf_memory(v->bytes);
    conf_pattern(data, v->bytes, 2);
    while (!v->lost) {
        hd_status status = v->reads ? hd_read(v->buffer, 0, data, v->bytes) : hd_write(v->buffer, 0, data, v->bytes);
        if (status != HD_OK) {
            CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
            v->lost = true;
        }
        atomic_fetch_add(v->moved, 1);
    }
    CONF_FAILS(hd_write(v->buffer, 0, data, v->bytes), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_write(v->buffer, 0, data, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_read(v->buffer, 0, data, v->bytes), HD_ERROR_DEVICE_LOST);
    free(data);
    return NULL;
}

static void the_device_is_lost_in_the_middle(void **state)
{
    (void)state;
    const char *placement = getenv("HEDDLE_PLACEMENT");
    if (placement == NULL || strcmp(placement, "process") != 0) {
        skip();
    }
    hd_runtime *runtime = conf_open("copy_threads=3 pinned_limit=64M host_devices=2");
    CONF_NEED_DEVICES(runtime, 2);
    enum { threads = 6, rounds = 4 };
    hd_buffer *other = make(runtime, 1, 9 * MIB);
    uint8_t *data = conf_memory(9 * MIB);
    conf_pattern(data, 9 * MIB, 6);
    for (int round = 0; round < rounds; round++) {
        pthread_t ids[threads];
        victim victims[threads];
        _Atomic int moved = 0;
        conf_failure_ends_program = true;
        for (int i = 0; i < threads; i++) {
            size_t bytes = i < 4 ? 9 * MIB : 1000;
            victims[i] = (victim){runtime, make(runtime, 0, bytes), bytes, i % 2 == 0, false, &moved};
            CONF_OK(hd_fill(victims[i].buffer, 0, 1, bytes / 4 * 4, NULL));
            CONF_EQUAL(pthread_create(&ids[i], NULL, transfer_until_lost, &victims[i]), 0);
        }
        while (atomic_load(&moved) < 4 * round) {
            conf_sleep_ms(1);
        }
        CONF_EQUAL(kill(wk_pid(runtime, 0), SIGKILL), 0);
        CONF_OK(hd_write(other, 0, data, 9 * MIB));
        holds(other, 0, data, 9 * MIB, 0);
        for (int i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
            hd_free(victims[i].buffer);
        }
        conf_failure_ends_program = false;
        wk_only_loss(runtime, 0);
        CONF_OK(hd_device_restart(runtime, 0));
        hd_buffer *fresh = make(runtime, 0, 9 * MIB);
        CONF_OK(hd_write(fresh, 0, data, 9 * MIB));
        holds(fresh, 0, data, 9 * MIB, 0);
        hd_free(fresh);
    }
    CONF_TRUE(pinned_stats(runtime).reserved_peak_bytes <= 64 * MIB);
    free(data);
    conf_close(runtime);
}

static void a_child_process_cannot_transfer(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("copy_threads=2");
    enum { size = 5 * 1024 * 1024 };
    hd_buffer *buffer = make(runtime, 0, size);
    uint8_t *data = conf_memory(size);
    conf_pattern(data, size, 6);
    CONF_OK(hd_write(buffer, 0, data, size)); /* starts the copying threads */
    pid_t child = fork();
    CONF_TRUE(child >= 0);
    if (child == 0) {
        bool refused =
            hd_write(buffer, 0, data, size) == HD_ERROR_HANDLE && hd_read(buffer, 0, data, size) == HD_ERROR_HANDLE;
        hd_close(runtime);
        _Exit(refused ? 0 : 1);
    }
    int status = -1;
    CONF_TRUE(waitpid(child, &status, 0) == child);
    CONF_EQUAL(status, 0);
    holds(buffer, 0, data, size, 0);
    free(data);
    conf_close(runtime);
}

/* ---- driver calls that fail ---- */

static bool told(const char *settings, hd_status status, const char *call)
{
    if (status != HD_OK && (hd_message()[0] == '\0' || status == HD_ERROR_HANDLE || status == HD_ERROR_ARGUMENT ||
                            status == HD_ERROR_TIMEOUT || status == HD_ERROR_RANGE)) {
        violation(settings, "%s: %s: '%s'", call, hd_status_name(status), hd_message());
    }
    return status == HD_OK;
}

/* Writes and reads while a driver call fails: a read without an error is right. False: nothing
 * failed. */
static bool transfer_with(const char *settings, const uint8_t *data, uint8_t *got, size_t bytes)
{
    hd_runtime *runtime = NULL;
    hd_buffer *buffer = NULL;
    bool failed = !told(settings, conf_try_open(settings, &runtime), "hd_open");
    hd_lane *lane = failed ? NULL : conf_default_lane(runtime, 0);
    failed = lane == NULL || !told(settings, hd_alloc(lane, bytes, &buffer), "hd_alloc");
    for (int i = 0; buffer != NULL && i < 3; i++) {
        size_t at = (size_t)i * 1001;
        bool written = told(settings, hd_write(buffer, at, data, bytes - at), "hd_write");
        memset(got, 0, bytes);
        bool read = told(settings, hd_read(buffer, at, got, bytes - at), "hd_read");
        if (written && read && memcmp(got, data, bytes - at) != 0) {
            violation(settings, "round %d: read without an error, but not what was written", i);
        }
        written = told(settings, hd_write(buffer, at, data + 5, 100), "a small hd_write");
        bool small = told(settings, hd_read(buffer, at, got, 100), "a small hd_read");
        if (written && small && memcmp(got, data + 5, 100) != 0) {
            violation(settings, "round %d: a small read without an error, but not what was written", i);
        }
        failed |= !written || !read || !small;
    }
    hd_free(buffer);
    conf_close(runtime);
    return failed;
}

static void driver_calls_that_fail(void **state)
{
    (void)state;
    static const struct {
        const char *plus;
        int code;
    } ways[] = {{"", 2}, {"", 999}, {"+", 2}, {"+", 700}};
    enum { size = 5 * 1024 * 1024 + 7 };
    uint8_t *data = conf_memory(size), *got = conf_memory(size);
    conf_pattern(data, size, 2);
    violations = 0;
    double seconds = conf_sweep_seconds(12) / 4;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
#if CONF_TSAN
        if (*ways[w].plus && !conf_on_gpus && strcmp(getenv("HEDDLE_PLACEMENT"), "process") != 0) {
            /* a device with a simulated loss still works, and writes to memory that was given
             * back */
            continue;
        }
#endif
        conf_random r = {conf_number_from("HEDDLE_SEED", 1) + w};
        int64_t start = conf_now();
        int runs = 0, hits = 0, clean = 0;
        for (int n = 1; n < 5000 && clean < 12; runs++) {
            char settings[160];
            snprintf(settings, sizeof settings, "fault=%d%s=%d host_devices=1 host_memory=64M copy_threads=3", n,
                     ways[w].plus, ways[w].code);
            conf_watch(settings, 60);
            bool failed = transfer_with(settings, data, got, size);
            hits += failed;
            clean = failed ? 0 : clean + 1;
            /* as many of the calls as the time allows */
            double spent = (double)(conf_now() - start) / 1e9;
            int most = runs < 8 || spent < seconds / 2 ? 8 : spent < seconds ? 40 : 400;
            n += 1 + (int)conf_below(&r, (uint64_t)most);
        }
        CONF_TRUE(hits > 3);
        CONF_EQUAL(transfer_with("fault=1000000 host_devices=1 host_memory=64M copy_threads=3", data, got, size),
                   false);
        fprintf(stderr, "  fault=N%s=%d: %d runs, %d with failures\n", ways[w].plus, ways[w].code, runs, hits);
    }
    CONF_EQUAL(violations, 0);
    free(data), free(got);
}

int main(void)
{
    conf_begin("test_pageable_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(buffers_are_freed_meanwhile),
        CONF_CASE(the_device_is_lost_in_the_middle),
        CONF_CASE(a_child_process_cannot_transfer),
        CONF_CASE(driver_calls_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
