/* test_pageable.c - hd_write and hd_read of all sizes.
 *
 * Promise: hd_write and hd_read move exactly the bytes asked for, with any pinned memory.
 *
 * - around every edge of chunks and parts, and from odd places
 * - by many threads at once, and beside kernels
 * - with little pinned memory, with none, and with time limits
 *
 * test_pageable_trouble.c tests them during failures.
 *
 * Threads: the main one, and those of a case.
 * Locks: none.
 * Always: a read returns the bytes written, nothing beside them changes, and after any failure
 * everything works as before.
 */
#include "transfers.h"

static const char *const pools[] = {"copy_threads=0", "copy_threads=1", "copy_threads=8"};
enum { POOLS = sizeof pools / sizeof *pools };

/* ---- sizes and places ---- */

static void try_edges(hd_buffer *buffer, size_t size, bool all)
{
    static const size_t edges[] = {0,         1,       4096,    64 * KIB,     128 * KIB, 256 * KIB,
                                   512 * KIB, 1 * MIB, 2 * MIB, 3 * MIB + 77, 4 * MIB,   9 * MIB};
    static const size_t offsets[] = {0, 1, 63, 4095, 4096, 65537, 2 * MIB - 1};
    uint8_t *model = conf_memory(size), *data = conf_memory(size + 64);
    conf_pattern(model, size, 1);
    CONF_OK(hd_write(buffer, 0, model, size));
    uint64_t seed = 2;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        for (int around = -1; around <= 1; around++) {
            size_t bytes = edges[i] + (size_t)around, offset = offsets[seed % 7];
            if ((!all && around == 0) || bytes > size - offset) { /* also for -1, a huge number */
                continue;
            }
            uint8_t *source = data + seed % 61;
            conf_pattern(source, bytes, ++seed);
            CONF_OK(hd_write(buffer, offset, source, bytes));
            memcpy(model + offset, source, bytes);
            memset(source, 0xdd, bytes); /* the call returned, so the program may reuse it */
            size_t before = offset < 100 ? offset : 100,
                   after = size - offset - bytes < 100 ? size - offset - bytes : 100;
            holds(buffer, offset - before, model + offset - before, before + bytes + after, seed);
        }
    }
    holds(buffer, 0, model, size, 0);
    free(model), free(data);
}

static void all_sizes_from_all_places(void **state)
{
    (void)state;
    for (int p = 0; p < POOLS; p++) {
        hd_runtime *runtime = conf_open(pools[p]);
        hd_buffer *device = make(runtime, 0, 9 * MIB + 70000);
        try_edges(device, 9 * MIB + 70000, !CONF_TSAN);
        hd_free(device);
        conf_close(runtime);
    }
}

static void pinned_and_unified_buffers(void **state)
{
    (void)state;
    for (int p = 0; p < POOLS; p++) {
        hd_runtime *runtime = conf_open(pools[p]);
        hd_buffer *pinned = NULL, *unified = NULL;
        CONF_OK(hd_alloc_host(runtime, 6 * MIB + 5, &pinned));
        try_edges(pinned, 6 * MIB + 5, false);
        hd_free(pinned);
        CONF_OK(hd_alloc_unified(conf_default_lane(runtime, 0), 6 * MIB + 5, &unified));
        try_edges(unified, 6 * MIB + 5, false);
        uint8_t *p0 = NULL;
        CONF_OK(hd_map(unified, HD_READ_WRITE, (void **)&p0)); /* newer on the host from here on */
        memset(p0, 0x3c, 6 * MIB + 5);
        hd_unmap(unified);
        CONF_FILLED(unified, 0, 0x3c3c3c3cu, 6 * MIB);
        hd_free(unified);
        conf_close(runtime);
    }
}

/* ---- many threads ---- */

typedef struct mover {
    hd_runtime *runtime;
    hd_buffer *shared; /* it uses a part of that */
    size_t part, bytes;
    int number, rounds;
} mover;

static void *move_about(void *argument)
{
    const mover *m = argument;
    conf_random r = {(uint64_t)m->number + 1};
    hd_buffer *own = make(m->runtime, m->number % hd_device_count(m->runtime), m->bytes);
    uint8_t *data = conf_memory(m->bytes), *got = conf_memory(m->bytes);
    for (int i = 0; i < m->rounds; i++) {
        size_t bytes = 1 + conf_below(&r, i % 4 == 0 ? m->bytes : m->bytes / 16);
        size_t offset = conf_below(&r, m->bytes - bytes + 1);
        hd_buffer *buffer = i % 3 ? own : m->shared;
        size_t base = i % 3 ? 0 : m->part;
        conf_pattern(data, bytes, conf_next(&r));
        CONF_OK(hd_write(buffer, base + offset, data, bytes));
        memset(got, 0, bytes);
        CONF_OK(hd_read(buffer, base + offset, got, bytes));
        CONF_SAME(got, data, bytes);
    }
    free(data), free(got);
    hd_free(own);
    return NULL;
}

/* All threads move parts of one buffer of each device, and their own buffer. */
static void move_at_once(const char *settings, int threads, size_t bytes, int rounds)
{
    hd_runtime *runtime = conf_open(settings);
    int devices = hd_device_count(runtime);
    hd_buffer *shared[64];
    mover *movers = calloc((size_t)threads, sizeof *movers);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    CONF_TRUE(movers != NULL && ids != NULL && devices <= 64);
    for (int d = 0; d < devices; d++) {
        shared[d] = make(runtime, d, bytes * (size_t)threads);
    }
    conf_failure_ends_program = true;
    for (int i = 0; i < threads; i++) {
        movers[i] = (mover){runtime, shared[(i + 1) % devices], (size_t)i * bytes, bytes, i, rounds};
        CONF_EQUAL(pthread_create(&ids[i], NULL, move_about, &movers[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    conf_failure_ends_program = false;
    free(movers), free(ids);
    conf_close(runtime);
}

static void many_threads_at_once(void **state)
{
    (void)state;
    for (int p = 0; p < POOLS; p++) {
        move_at_once(pools[p], 12, CONF_TSAN ? 2 * MIB : 5 * MIB, CONF_TSAN ? 4 : 10);
    }
}

/* Far more threads than there are chunks, which are small then. No two threads may wait for each
 * other. */
static void hundreds_of_threads_and_few_chunks(void **state)
{
    (void)state;
    move_at_once("pinned_limit=2M copy_threads=4 host_devices=2", CONF_TSAN ? 40 : 200, MIB, 3);
    move_at_once("pinned_limit=2M copy_threads=0 host_devices=1", CONF_TSAN ? 20 : 100, MIB, 3);
}

/* ---- pinned memory ---- */

static void pinned_memory_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        size_t most;
    } limits[] = {{"pinned_limit=2M", 2 * MIB}, {"pinned_limit=9M", 9 * MIB}, {"pinned_limit=64M", 64 * MIB}};
    enum { size = 24 * 1024 * 1024 + 100 };
    uint8_t *data = conf_memory(size);
    conf_pattern(data, size, 7);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        hd_runtime *runtime = conf_open_with("%s copy_threads=8", limits[i].settings);
        /* chunks go to the devices that need them */
        for (int d = 0; d < hd_device_count(runtime); d++) {
            hd_buffer *buffer = make(runtime, d, size);
            CONF_OK(hd_write(buffer, 0, data, size));
            holds(buffer, 0, data, size, 0);
            CONF_OK(hd_write(buffer, 17, data, 1000));
            holds(buffer, 17, data, 1000, 3);
            CONF_OK(hd_buffer_wait(buffer, HD_READ_WRITE, 60 * CONF_SECOND));
            hd_free(buffer);
        }
        hd_memory_stats stats = pinned_stats(runtime);
        CONF_TRUE(stats.reserved_peak_bytes <= limits[i].most);
        CONF_EQUAL(stats.live_count, 0); /* the chunks do not belong to the program, */
        hd_buffer *mine = NULL;          /* and they make room for its buffers */
        CONF_OK(hd_alloc_host(runtime, i == 0 ? 2 * MIB : limits[i].most / 2, &mine));
        conf_close(runtime);
    }
    free(data);
}

/* The program took all pinned memory. A transfer fails, moves nothing, and works again once there
 * is some. */
static void without_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("pinned_limit=2M copy_threads=2");
    enum { size = 3 * 1024 * 1024 };
    hd_buffer *buffer = make(runtime, 0, size), *all = NULL;
    uint8_t *data = conf_memory(size), *got = conf_memory(size);
    conf_pattern(data, size, 3);
    CONF_OK(hd_fill(buffer, 0, 0x11111111u, size, NULL));
    CONF_OK(hd_alloc_host(runtime, 2 * MIB, &all));
    static const size_t sizes[] = {4, 64 * KIB, 65 * KIB, 1 * MIB, size};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(got, 0x77, size);
        CONF_FAILS_WITH(hd_write(buffer, 0, data, sizes[i]), HD_ERROR_HOST_MEMORY, "hd_write");
        CONF_FAILS_WITH(hd_read(buffer, 0, got, sizes[i]), HD_ERROR_HOST_MEMORY, "hd_read");
        for (size_t k = 0; k < size; k++) {
            CONF_EQUAL(got[k], 0x77);
        }
    }
    hd_free(all);
    CONF_FILLED(buffer, 0, 0x11111111u, size);
    CONF_OK(hd_write(buffer, 0, data, size));
    holds(buffer, 0, data, size, 1);
    /* the chunks keep little, and the program leaves enough for the existing chunks */
    CONF_OK(hd_alloc_host(runtime, MIB, &all));
    CONF_OK(hd_write(buffer, 1, data, size - 1));
    holds(buffer, 1, data, size - 1, 1);
    free(data), free(got);
    conf_close(runtime);
}

/* A transfer that needs pinned memory waits for chunks that are under way. */
static void chunks_under_way_are_waited_for(void **state)
{
    (void)state;
    enum { size = 2 * 1024 * 1024 };
    hd_runtime *runtime = conf_open("pinned_limit=3M memory_timeout=60000");
    hd_buffer *buffer = make(runtime, 0, size), *all = NULL;
    uint8_t *data = conf_memory(size);
    conf_pattern(data, size, 2);
    for (int i = 0; i < 20; i++) {
        CONF_OK(hd_write(buffer, 0, data, i % 2 ? size : 1000));
        CONF_OK(hd_alloc_host(runtime, 3 * MIB, &all));
        hd_free(all);
    }
    holds(buffer, 0, data, size, 0);
    free(data);
    conf_close(runtime);
}

/* With room for small chunks only, boxes use these, and so do copies between devices through pinned
 * memory. */
static void little_pinned_memory_is_enough(void **state)
{
    (void)state;
    enum { size = 3 * 1024 * 1024, rows = 2000, row = 1000, there = 1100, here = 1300 };
    hd_runtime *runtime = conf_open("pinned_limit=2M copy_threads=2 peers=off memory_timeout=60000");
    int last = hd_device_count(runtime) - 1;
    hd_buffer *buffer = make(runtime, 0, size), *other = make(runtime, last, size), *most = NULL;
    CONF_OK(hd_alloc_host(runtime, 2 * MIB - 512 * KIB, &most));
    uint8_t *data = conf_memory(size), *got = conf_memory(size);
    conf_pattern(data, size, 5);
    memset(got, 0x77, size);
    const hd_box in = {sizeof in, row, 1, {rows}, {there}, {here}}, out = {sizeof out, row, 1, {rows}, {here}, {there}};
    CONF_OK(hd_fill(buffer, 0, 0x11111111u, size, NULL));
    CONF_OK(hd_write_box(buffer, 3, data, &in));
    CONF_OK(hd_copy(other, 0, buffer, 0, size, NULL));
    CONF_OK(hd_read_box(other, 3, got, &out));
    for (size_t i = 0; i < (rows - 1) * here + row; i++) {
        CONF_EQUAL(got[i], i % here < row ? data[i] : 0x77);
    }
    CONF_OK(hd_read(other, 0, got, size));
    for (size_t i = 0; i < size; i++) {
        size_t at = i - 3;
        bool within = i >= 3 && at < (rows - 1) * there + row && at % there < row;
        CONF_EQUAL(got[i], within ? data[at / there * here + at % there] : 0x11);
    }
    free(data), free(got);
    conf_close(runtime);
}

/* ---- time limits ---- */

/* Moves all of it in steps, and tries each until it succeeds within the time limit. */
static void move_in_steps(hd_buffer *buffer, uint8_t *memory, size_t bytes, bool reads)
{
    const size_t step = 512 * KIB;
    for (size_t at = 0; at < bytes; at += step) {
        hd_status status = HD_ERROR_TIMEOUT;
        for (int i = 0; i < 10000 && status == HD_ERROR_TIMEOUT; i++) {
            status = reads ? hd_read(buffer, at, memory + at, step) : hd_write(buffer, at, memory + at, step);
        }
        CONF_OK(status);
    }
}

/* Behind a kernel that runs until its flag ends it, a read gives up. A write that needs more chunks
 * than there are gives up, too. The case repeats this until a chunk lost each time would be missed.
 * Then everything works as before. */
static void time_limits(void **state)
{
    (void)state;
    static const char *const settings[] = {"copy_threads=0", "copy_threads=3"};
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open_with("%s transfer_timeout=20 pinned_limit=32M", settings[s]);
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        enum { size = 24 * 1024 * 1024, rounds = 6 };
        conf_kernels builtin = conf_builtins(runtime);
        hd_buffer *held = make(runtime, 0, size), *ready = make(runtime, 0, size);
        uint8_t *data = conf_memory(size), *got = conf_memory(size);
        conf_pattern(data, size, 4);
        CONF_OK(hd_fill(held, 0, 0, size, NULL));
        CONF_OK(hd_fill(ready, 0, 5, size, NULL));
        CONF_OK(hd_buffer_wait(held, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_OK(hd_buffer_wait(ready, HD_READ_WRITE, 60 * CONF_SECOND));
        hd_lane *lane = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        hd_ticket filled;
        /* loaded before the gate is shut */
        CONF_OK(conf_fill(lane, builtin, held, 0, size / 4, 0, &filled));
        CONF_OK(hd_wait(filled, 60 * CONF_SECOND));
        wk_gate gate;
        wk_gate_shut(&gate, runtime, lane, k);
        CONF_OK(conf_fill(lane, builtin, held, 0, size / 4, 0x07070707u, NULL));
        CONF_OK(conf_fill(lane, builtin, held, 0, size / 4, 0x08080808u, &filled));
        for (int i = 0; i < rounds; i++) {
            CONF_FAILS_WITH(hd_read(held, 0, got, size), HD_ERROR_TIMEOUT, "transfer_timeout");
            CONF_FAILS_WITH(hd_read(held, 3, got, 1000), HD_ERROR_TIMEOUT, "transfer_timeout");
        }
        hd_buffer *full[32] = {NULL};
        for (int i = 0; i < rounds; i++) {
            CONF_FAILS_WITH(hd_write(held, 0, data, size), HD_ERROR_TIMEOUT, "transfer_timeout");
            for (int n = 0; i == 0 && n < 32 && hd_alloc_host(runtime, 1024 * KIB, &full[n]) == HD_OK; n++) {
            } /* all pinned memory: its own chunks come back only behind the kernel */
        }
        for (int n = 0; n < 32; n++) {
            hd_free(full[n]);
        }
        CONF_TRUE(!hd_done(filled));
        wk_gate_open(&gate);
        CONF_OK(hd_wait(filled, 60 * CONF_SECOND));
        /* parts of the writes that gave up, too */
        CONF_OK(hd_buffer_wait(held, HD_READ_WRITE, 60 * CONF_SECOND));
        move_in_steps(held, data, size, false);
        move_in_steps(held, got, size, true);
        CONF_SAME(got, data, size);
        free(data), free(got);
        conf_close(runtime);
    }
}

/* Large transfers are held up, with all their chunks waiting. They hold up no transfers of other
 * devices, no small ones of the same device, and no copy threads. */
typedef struct blocked {
    hd_buffer *buffer;
    uint8_t *data;
    size_t bytes;
    bool reads;
} blocked;

static void *be_blocked(void *argument)
{
    const blocked *b = argument;
    CONF_OK(b->reads ? hd_read(b->buffer, 0, b->data, b->bytes) : hd_write(b->buffer, 0, b->data, b->bytes));
    return NULL;
}

static void a_device_that_is_held_up_holds_up_no_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("copy_threads=2 pinned_limit=64M");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    enum { size = 40 * 1024 * 1024, threads = 4 };
    conf_kernels builtin = conf_builtins(runtime);
    hd_buffer *held = make(runtime, 0, size), *other = make(runtime, 1, size), *small = make(runtime, 0, 64 * KIB);
    uint8_t *data = conf_memory(size);
    conf_pattern(data, size, 9);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    wk_warm(runtime, 0, k);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, lane, k);
    hd_ticket filled;
    CONF_OK(conf_fill(lane, builtin, held, 0, size / 4, 0x07070707u, &filled));
    conf_failure_ends_program = true;
    pthread_t ids[threads];
    blocked each[threads];
    for (int i = 0; i < threads; i++) {
        each[i] = (blocked){held, conf_memory(size), size, i % 2 == 0};
        memcpy(each[i].data, data, size);
        CONF_EQUAL(pthread_create(&ids[i], NULL, be_blocked, &each[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_write(other, 0, data, size));
        holds(other, 0, data, size, 0);
        CONF_OK(hd_write(small, 0, data + i, 64 * KIB));
        holds(small, 0, data + i, 64 * KIB, 5);
    }
    CONF_TRUE(!hd_done(filled));
    wk_gate_open(&gate);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        free(each[i].data);
    }
    conf_failure_ends_program = false;
    holds(held, 0, data, size, 0); /* both writes wrote the same, behind the fill */
    free(data);
    conf_close(runtime);
}

/* ---- order ---- */

/* A kernel changes a part of the buffer between a write and a read, and between a read and a
 * write. */
static void transfers_and_kernels_take_turns(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("copy_threads=3");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    enum { words = 2 * 1024 * 1024, size = words * 4 };
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_buffer *buffer = make(runtime, 0, size), *far = make(runtime, hd_device_count(runtime) - 1, size);
    uint32_t *model = conf_memory(size), *got = conf_memory(size);
    conf_random r = {3};
    conf_pattern(model, size, 8);
    CONF_OK(hd_write(buffer, 0, model, size));
    for (uint32_t round = 0; round < (CONF_TSAN ? 6 : 20); round++) {
        size_t from = conf_below(&r, words - 1), n = 1 + conf_below(&r, words - from);
        CONF_OK(conf_fill(lane, k, buffer, from * 4, n, round * 77, NULL));
        for (size_t i = from; i < from + n; i++) {
            model[i] = round * 77;
        }
        CONF_OK(hd_read(buffer, 0, got, size));
        CONF_SAME(got, model, size);
        from = conf_below(&r, words - 1), n = 1 + conf_below(&r, words - from);
        conf_pattern(model + from, n * 4, round);
        /* before the write: overwritten */
        CONF_OK(conf_fill(lane, k, buffer, from * 4, n, 1, NULL));
        CONF_OK(hd_write(buffer, from * 4, model + from, n * 4));
        CONF_OK(hd_copy(far, 0, buffer, 0, size, NULL));
        CONF_OK(conf_fill(lane, k, buffer, 0, words, 2, NULL)); /* behind the copy */
        CONF_OK(hd_read(far, 0, got, size));
        CONF_SAME(got, model, size);
        CONF_OK(hd_write(buffer, 0, model, size));
    }
    free(model), free(got);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_pageable");
    const struct CMUnitTest tests[] = {
        CONF_CASE(all_sizes_from_all_places),
        CONF_CASE(pinned_and_unified_buffers),
        CONF_CASE(many_threads_at_once),
        CONF_CASE(hundreds_of_threads_and_few_chunks),
        CONF_CASE(pinned_memory_is_bounded),
        CONF_CASE(without_pinned_memory),
        CONF_CASE(chunks_under_way_are_waited_for),
        CONF_CASE(little_pinned_memory_is_enough),
        CONF_CASE(time_limits),
        CONF_CASE(a_device_that_is_held_up_holds_up_no_other),
        CONF_CASE(transfers_and_kernels_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
