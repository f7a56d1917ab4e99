/* test_order.c - the ordering rules, across lanes, devices, copies and pinned memory.
 *
 * Promise: A use waits for the last writer, a write for readers; disjoint bytes wait for nothing.
 *
 * Readers never wait for each other.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a long kernel in front of work makes order visible, and so does the operation that
 * finishes first. Times never show it.
 */
#include "conformance.h"

typedef struct world {
    hd_runtime *runtime;
    conf_slow slow;
    conf_kernels k;
    hd_lane *a, *b, *c; /* three lanes of device 0 */
} world;

static void world_make(world *w, const char *settings)
{
    w->runtime = conf_open(settings);
    conf_slow_make(&w->slow, w->runtime, 0);
    w->k = w->slow.kernels;
    CONF_OK(hd_lane_create(w->runtime, 0, &w->a));
    CONF_OK(hd_lane_create(w->runtime, 0, &w->b));
    CONF_OK(hd_lane_create(w->runtime, 0, &w->c));
}

static hd_buffer *device_buffer(world *w, size_t bytes, uint32_t word)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(w->a, bytes, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, bytes, NULL));
    return buffer;
}

enum { words = 3000, bytes = words * 4 };

/* The writer is late: a long kernel is in front of it in its lane. */
static void late_write(world *w, hd_lane *lane, hd_buffer *y, uint32_t value, hd_ticket *out)
{
    conf_slow_run(&w->slow, lane, NULL, 64, 4, NULL);
    CONF_OK(conf_fill(lane, w->k, y, 0, words, value, out));
}

static void a_read_waits_for_the_write(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *x = device_buffer(&w, bytes, 1), *y = device_buffer(&w, bytes, 2), *pinned = NULL;
    CONF_OK(hd_alloc_host(w.runtime, bytes, &pinned));
    for (uint32_t i = 10; i < 20; i++) {
        hd_ticket write, read;
        late_write(&w, w.a, x, i, &write);
        CONF_OK(conf_copy(w.b, w.k, y, 0, x, 0, words, &read)); /* by a kernel in another lane */
        CONF_OK(hd_wait(read, 60 * CONF_SECOND));
        CONF_OK(hd_wait(write, CONF_SECOND)); /* known a moment later at most */
        CONF_FILLED(y, 0, i, bytes);
        late_write(&w, w.b, x, i + 100, NULL);
        CONF_OK(hd_copy(pinned, 0, x, 0, bytes, NULL)); /* by a copy */
        CONF_FILLED(pinned, 0, i + 100, bytes);
        late_write(&w, w.c, x, i + 200, NULL);
        CONF_FILLED(x, 0, i + 200, bytes); /* by the program */
        late_write(&w, w.a, x, i + 300, NULL);
        CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        /* through a copy and a kernel */
        CONF_OK(conf_copy(w.c, w.k, pinned, 0, y, 0, words, NULL));
        uint32_t *p = NULL;
        CONF_OK(hd_map(pinned, HD_READ, (void **)&p));
        CONF_EQUAL(p[0], i + 300);
        CONF_EQUAL(p[words - 1], i + 300);
        hd_unmap(pinned);
    }
    conf_close(w.runtime);
}

/* A long reader adds up ones while other operations wait to overwrite them. */
static void a_write_waits_for_the_readers(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    enum { ones = CONF_TSAN ? 50000 : 500000 };
    hd_buffer *x = device_buffer(&w, ones * 4, conf_bits(1)), *totals = device_buffer(&w, 64, 0);
    float *twos = conf_memory(ones * 4);
    for (int i = 0; i < ones; i++) {
        twos[i] = 2;
    }
    for (int how = 0; how < 5; how++) {
        hd_ticket reads[2], write = {NULL, 0};
        CONF_OK(hd_fill(x, 0, conf_bits(1), ones * 4, NULL));
        CONF_OK(hd_fill(totals, 0, 0, 64, NULL));
        conf_slow_run(&w.slow, w.a, NULL, 64, 2, NULL);
        CONF_OK(conf_sum(w.a, w.k, totals, 0, x, 0, ones, 1, &reads[0]));
        CONF_OK(conf_sum(w.b, w.k, totals, 32, x, 0, ones, 1, &reads[1]));
        switch (how) {
        case 0:
            CONF_OK(conf_fill(w.c, w.k, x, 0, ones, conf_bits(2), &write));
            break;
        case 1:
            CONF_OK(hd_fill(x, 0, conf_bits(2), ones * 4, &write));
            break;
        case 2:
            CONF_OK(hd_write(x, 0, twos, ones * 4));
            break;
        case 3: {
            hd_buffer *pinned = NULL;
            CONF_OK(hd_alloc_host(w.runtime, ones * 4, &pinned));
            CONF_OK(hd_write(pinned, 0, twos, ones * 4));
            CONF_OK(hd_copy(x, 0, pinned, 0, ones * 4, &write));
            hd_free(pinned);
            break;
        }
        default:
            CONF_OK(conf_axpy(w.c, w.k, x, 0, x, 0, 1.0f, ones, &write)); /* doubles it, in place */
            break;
        }
        if (write.lane != NULL) {
            CONF_OK(hd_wait(write, 60 * CONF_SECOND));
            CONF_OK(hd_wait(reads[0], CONF_SECOND));
            CONF_OK(hd_wait(reads[1], CONF_SECOND));
        }
        CONF_FILLED(x, 0, conf_bits(2), ones * 4);
        CONF_FILLED(totals, 0, conf_bits(ones), 4);
        CONF_FILLED(totals, 32, conf_bits(ones), 4);
    }
    free(twos);
    conf_close(w.runtime);
}

static void a_write_waits_for_the_write(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *x = device_buffer(&w, bytes, 0);
    uint32_t data[words];
    for (uint32_t i = 0; i < 20; i++) {
        hd_ticket first, second = {NULL, 0};
        late_write(&w, w.a, x, 1000 + i, &first);
        switch (i % 3) {
        case 0:
            CONF_OK(conf_fill(w.b, w.k, x, 0, words, i, &second));
            break;
        case 1:
            CONF_OK(hd_fill(x, 0, i, bytes, &second));
            break;
        default:
            for (int j = 0; j < words; j++) {
                data[j] = i;
            }
            CONF_OK(hd_write(x, 0, data, bytes));
            break;
        }
        if (second.lane != NULL) {
            CONF_OK(hd_wait(second, 60 * CONF_SECOND));
            CONF_OK(hd_wait(first, CONF_SECOND));
        }
        CONF_FILLED(x, 0, i, bytes);
    }
    conf_close(w.runtime);
}

/* A chain over lanes, copies and pinned memory; each step needs the one before. */
static void chains_over_everything(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *x = device_buffer(&w, bytes, conf_bits(0)), *y = device_buffer(&w, bytes, conf_bits(0)), *one, *pinned;
    one = device_buffer(&w, bytes, conf_bits(1));
    CONF_OK(hd_alloc_host(w.runtime, bytes, &pinned));
    hd_lane *lanes[] = {w.a, w.b, w.c};
    enum { steps = CONF_TSAN ? 60 : 300 };
    for (int i = 0; i < steps; i++) {
        if (i % 20 == 0) {
            conf_slow_run(&w.slow, lanes[i % 3], x, 0, 1, NULL);
        }
        CONF_OK(conf_axpy(lanes[i % 3], w.k, x, 0, one, 0, 1.0f, words, NULL)); /* x = i + 1 */
        CONF_OK(hd_copy(pinned, 0, x, 0, bytes, NULL));
        CONF_OK(hd_fill(x, 0, 0xffffffffu, bytes, NULL));
        CONF_OK(hd_copy(y, 0, pinned, 0, bytes, NULL));
        CONF_OK(hd_fill(pinned, 0, 0xffffffffu, bytes, NULL));
        CONF_OK(conf_copy(lanes[(i + 1) % 3], w.k, x, 0, y, 0, words, NULL));
        CONF_OK(conf_fill(lanes[(i + 2) % 3], w.k, y, 0, words, 0xffffffffu, NULL));
    }
    CONF_FILLED(x, 0, conf_bits(steps), bytes);
    conf_close(w.runtime);
}

/* Short work on other bytes ends although long work, submitted before it, runs on. The long work
 * must also run for a while after that. One look is not enough: the end of a lane's work is noticed
 * a moment later. */
static void disjoint_ranges_do_not_wait(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *x = device_buffer(&w, bytes, 0);
    CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
    bool seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) {
        hd_ticket slow, small;
        conf_slow_run(&w.slow, w.a, x, 0, ms, &slow);
        CONF_OK(conf_fill(w.b, w.k, x, 4, 100, 7, &small));
        CONF_OK(hd_wait(small, 60 * CONF_SECOND));
        seen = hd_wait(slow, 10 * CONF_MILLISECOND) == HD_ERROR_TIMEOUT;
        CONF_OK(hd_wait(slow, 60 * CONF_SECOND));
    }
    CONF_TRUE(seen);
    CONF_FILLED(x, 0, 0, 4);
    CONF_FILLED(x, 4, 7, 400);
    seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) { /* a fill and a read of other bytes */
        hd_ticket slow, small;
        conf_slow_run(&w.slow, w.a, x, 0, ms, &slow);
        CONF_OK(hd_fill(x, 404, 8, 400, &small));
        CONF_OK(hd_wait(small, 60 * CONF_SECOND));
        uint32_t word = 0;
        CONF_OK(hd_read(x, 800, &word, 4));
        CONF_EQUAL(word, 8);
        seen = hd_wait(slow, 10 * CONF_MILLISECOND) == HD_ERROR_TIMEOUT;
        CONF_OK(hd_wait(slow, 60 * CONF_SECOND));
    }
    CONF_TRUE(seen);
    conf_close(w.runtime);
}

static void readers_do_not_wait_for_readers(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *y = device_buffer(&w, bytes, 1);
    CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
    bool seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) {
        hd_ticket slow, small;
        conf_slow_run(&w.slow, w.a, NULL, 64, ms, &slow); /* reads the zeros */
        CONF_OK(conf_copy(w.b, w.k, y, 0, w.slow.zeros, 0, words, &small));
        CONF_OK(hd_wait(small, 60 * CONF_SECOND));
        float zero = 1;
        CONF_OK(hd_read(w.slow.zeros, 4, &zero, 4));
        CONF_TRUE(zero == 0);
        seen = hd_wait(slow, 10 * CONF_MILLISECOND) == HD_ERROR_TIMEOUT;
        CONF_OK(hd_wait(slow, 60 * CONF_SECOND));
    }
    CONF_TRUE(seen);
    CONF_FILLED(y, 0, 0, bytes);
    conf_close(w.runtime);
}

/* Unrelated work overtakes, and running work does not hold up a fresh allocation. */
static void lanes_are_independent(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    hd_buffer *warm = device_buffer(&w, bytes, 0);
    hd_free(warm);
    bool seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) {
        hd_ticket slow;
        conf_slow_run(&w.slow, w.a, NULL, 64, ms, &slow);
        hd_buffer *fresh = NULL;
        CONF_OK(hd_alloc(w.b, bytes, &fresh));
        uint32_t data[words];
        conf_pattern(data, bytes, 3);
        CONF_OK(hd_write(fresh, 0, data, bytes));
        CONF_OK(conf_copy(w.b, w.k, fresh, 0, fresh, bytes / 2, words / 2, NULL));
        CONF_HOLDS(fresh, 0, data + words / 2, bytes / 2);
        hd_free(fresh);
        seen = hd_wait(slow, 10 * CONF_MILLISECOND) == HD_ERROR_TIMEOUT;
        CONF_OK(hd_wait(slow, 60 * CONF_SECOND));
    }
    CONF_TRUE(seen);
    conf_close(w.runtime);
}

/* Many small ranges of one buffer, written and read in random lanes: each range keeps its own
 * history. */
static void overlapping_ranges(void **state)
{
    (void)state;
    world w;
    world_make(&w, NULL);
    enum { size = 4096, rounds = CONF_TSAN ? 300 : 1500 };
    hd_buffer *x = device_buffer(&w, size * 4, 0), *y = device_buffer(&w, size * 4, 0);
    hd_lane *lanes[] = {w.a, w.b, w.c};
    static uint32_t model_x[size], model_y[size];
    memset(model_x, 0, sizeof model_x);
    memset(model_y, 0, sizeof model_y);
    conf_random r = {77};
    for (uint32_t i = 1; i <= rounds; i++) {
        size_t n = 1 + conf_below(&r, i % 7 == 0 ? size / 2 : 100);
        size_t at = conf_below(&r, size - n + 1), from = conf_below(&r, size - n + 1);
        hd_lane *lane = lanes[conf_below(&r, 3)];
        switch (conf_below(&r, 4)) {
        case 0:
            CONF_OK(conf_fill(lane, w.k, x, at * 4, n, i, NULL));
            for (size_t j = 0; j < n; j++) {
                model_x[at + j] = i;
            }
            break;
        case 1:
            CONF_OK(conf_copy(lane, w.k, y, at * 4, x, from * 4, n, NULL));
            memcpy(model_y + at, model_x + from, n * 4);
            break;
        case 2:
            CONF_OK(hd_copy(x, at * 4, y, from * 4, n * 4, NULL));
            memcpy(model_x + at, model_y + from, n * 4);
            break;
        default:
            CONF_OK(hd_fill(y, at * 4, ~i, n * 4, NULL));
            for (size_t j = 0; j < n; j++) {
                model_y[at + j] = ~i;
            }
            break;
        }
        if (i % 50 == 0) {
            conf_slow_run(&w.slow, lane, NULL, 64, 1, NULL);
        }
        if (i % 300 == 0) {
            CONF_HOLDS(x, at * 4, model_x + at, n * 4);
        }
    }
    CONF_HOLDS(x, 0, model_x, sizeof model_x);
    CONF_HOLDS(y, 0, model_y, sizeof model_y);
    conf_close(w.runtime);
}

/* ---- several devices ---- */

/* Copies between all pairs, of several sizes, in both directions at once, after late writes. */
static void copies_between_devices(const char *settings)
{
    hd_runtime *runtime = conf_open(settings);
    CONF_NEED_DEVICES(runtime, 2);
    int count = hd_device_count(runtime) > 4 ? 4 : hd_device_count(runtime);
    static const size_t sizes[] = {1, 5, 4096, 300001, ((CONF_TSAN ? 3 : 9) << 20) + 3};
    conf_slow slow[4];
    for (int d = 0; d < count; d++) {
        conf_slow_make(&slow[d], runtime, d);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s];
        uint8_t *data = conf_memory(size), *other = conf_memory(size);
        hd_buffer *from[4], *to[4];
        for (int d = 0; d < count; d++) {
            CONF_OK(hd_alloc(conf_default_lane(runtime, d), size, &from[d]));
            CONF_OK(hd_alloc(conf_default_lane(runtime, d), size, &to[d]));
        }
        for (int d = 0; d < count; d++) {
            for (int e = 0; e < count; e++) {
                conf_pattern(data, size, s * 100 + (size_t)d * 10 + (size_t)e);
                conf_pattern(other, size, 7777 + s * 100 + (size_t)d * 10 + (size_t)e);
                CONF_OK(hd_write(from[d], 0, data, size));
                hd_ticket ticket;
                CONF_OK(hd_copy(to[e], 0, from[d], 0, size, &ticket));
                CONF_OK(hd_write(from[d], 0, other, size)); /* must wait for the copy's read */
                CONF_HOLDS(to[e], 0, data, size);
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                if (size > 8) { /* a part of it, at odd places */
                    CONF_OK(hd_copy(to[e], 3, from[d], 1, size - 5, NULL));
                    CONF_HOLDS(to[e], 3, other + 1, size - 5);
                    CONF_HOLDS(to[e], 0, data, 3);
                    CONF_HOLDS(to[e], size - 2, data + size - 2, 2);
                }
            }
        }
        /* all around a ring at once, behind long kernels */
        if (size >= 4096) {
            size_t n = size / 4;
            for (int d = 0; d < count; d++) {
                hd_lane *lane = conf_default_lane(runtime, d);
                conf_slow_run(&slow[d], lane, NULL, 64, 3, NULL);
                CONF_OK(conf_fill(lane, slow[d].kernels, from[d], 0, n, 0x100u + (uint32_t)d, NULL));
            }
            for (int step = 0; step < count; step++) {
                for (int d = 0; d < count; d++) {
                    CONF_OK(hd_copy(to[(d + 1) % count], 0, from[d], 0, n * 4, NULL));
                }
                for (int d = 0; d < count; d++) {
                    CONF_OK(conf_copy(conf_default_lane(runtime, d), slow[d].kernels, from[d], 0, to[d], 0, n, NULL));
                }
            }
            for (int d = 0; d < count; d++) { /* once around: back in its first place */
                CONF_FILLED(from[d], 0, 0x100u + (uint32_t)d, n * 4);
            }
        }
        for (int d = 0; d < count; d++) {
            hd_free(from[d]);
            hd_free(to[d]);
        }
        free(data), free(other);
    }
    conf_close(runtime);
}

static void copies_between_devices_as_they_are(void **state)
{
    (void)state;
    copies_between_devices(NULL);
}

static void copies_between_devices_without_peers(void **state)
{
    (void)state;
    copies_between_devices("host_peers=none");
}

static void copies_between_devices_in_a_ring(void **state)
{
    (void)state;
    copies_between_devices("host_peers=ring");
}

/* Kernels on one device with the memory of another. If they reach it, they work, in order.
 * Otherwise the launch is refused before anything runs. */
static void kernels_with_memory_elsewhere(const char *settings, int *unreachable)
{
    hd_runtime *runtime = conf_open(settings);
    CONF_NEED_DEVICES(runtime, 2);
    int count = hd_device_count(runtime) > 4 ? 4 : hd_device_count(runtime);
    for (int owner = 0; owner < count; owner++) {
        conf_slow slow;
        conf_slow_make(&slow, runtime, owner);
        hd_lane *at_home = conf_default_lane(runtime, owner);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(at_home, bytes, &x));
        for (int d = 0; d < count; d++) {
            if (d == owner) {
                continue;
            }
            hd_lane *lane = conf_default_lane(runtime, d);
            hd_buffer *y = NULL;
            CONF_OK(hd_alloc(lane, bytes, &y));
            CONF_OK(hd_fill(y, 0, 3, bytes, NULL));
            CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
            hd_ticket ticket = {NULL, 5};
            hd_status status = conf_copy(lane, slow.kernels, y, 0, x, 0, words, &ticket);
            if (status == HD_ERROR_UNREACHABLE) {
                /* the message names both devices, and nothing was submitted */
                CONF_FAILS(status, HD_ERROR_UNREACHABLE);
                char digit[2][16];
                snprintf(digit[0], sizeof digit[0], "%d", d);
                snprintf(digit[1], sizeof digit[1], "%d", owner);
                CONF_TRUE(strstr(hd_message(), digit[0]) != NULL && strstr(hd_message(), digit[1]) != NULL);
                CONF_TRUE(ticket.lane == NULL && ticket.sequence == 5);
                CONF_FAILS(conf_fill(lane, slow.kernels, x, 0, words, 9, NULL), HD_ERROR_UNREACHABLE);
                CONF_FILLED(x, 0, 1, bytes);
                CONF_FILLED(y, 0, 3, bytes);
                /* the lane still works */
                CONF_OK(conf_fill(lane, slow.kernels, y, 0, words, 4, NULL));
                CONF_FILLED(y, 0, 4, bytes);
                ++*unreachable;
                if (conf_is_host(runtime)) {
                    CONF_TRUE(!conf_reaches(runtime, d, owner));
                }
            } else {
                CONF_OK(status);
                CONF_TRUE(conf_reaches(runtime, d, owner));
                CONF_FILLED(y, 0, 1, bytes);
                for (uint32_t i = 10; i < 14; i++) { /* back and forth */
                    conf_slow_run(&slow, at_home, NULL, 64, 2, NULL);
                    CONF_OK(conf_fill(at_home, slow.kernels, x, 0, words, i, NULL));
                    CONF_OK(conf_copy(lane, slow.kernels, y, 0, x, 0, words, NULL));
                    CONF_OK(conf_fill(lane, slow.kernels, x, 4, words - 2, i + 50, NULL));
                    CONF_OK(conf_copy(at_home, slow.kernels, x, 0, x, 8, 1, NULL));
                    CONF_FILLED(y, 0, i, bytes);
                    CONF_FILLED(x, 0, i + 50, bytes - 4);
                    CONF_FILLED(x, bytes - 4, i, 4);
                }
            }
            hd_free(y);
        }
        hd_free(x);
        conf_slow_free(&slow);
    }
    conf_close(runtime);
}

static void kernels_with_peer_memory(void **state)
{
    (void)state;
    int unreachable = 0;
    kernels_with_memory_elsewhere("host_peers=all", &unreachable);
}

static void kernels_without_peers_are_refused(void **state)
{
    (void)state;
    int unreachable = 0;
    kernels_with_memory_elsewhere("host_peers=none", &unreachable);
    hd_runtime *runtime = conf_open("host_peers=none");
    if (conf_is_host(runtime)) {
        CONF_TRUE(unreachable > 0);
        hd_error error = {.size = sizeof error};
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &x));
        conf_kernels k = conf_builtins(runtime);
        CONF_FAILS(conf_fill(conf_default_lane(runtime, 1), k, x, 0, 16, 1, NULL), HD_ERROR_UNREACHABLE);
        hd_last_error(&error);
        CONF_EQUAL(error.device, 1); /* the one that cannot reach it */
    }
    conf_close(runtime);
}

static void kernels_with_a_ring_of_peers(void **state)
{
    (void)state;
    int unreachable = 0;
    kernels_with_memory_elsewhere("host_peers=ring", &unreachable);
    hd_runtime *runtime = conf_open("host_peers=ring");
    if (conf_is_host(runtime) && hd_device_count(runtime) >= 4) {
        CONF_TRUE(unreachable > 0);
    }
    conf_close(runtime);
}

/* Every device reaches pinned memory, and its uses are ordered between them. */
static void pinned_memory_between_devices(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=none");
    CONF_NEED_DEVICES(runtime, 2);
    int count = hd_device_count(runtime);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *pinned = NULL, *one = NULL;
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_alloc_host(runtime, bytes, &one));
    CONF_OK(hd_fill(pinned, 0, conf_bits(0), bytes, NULL));
    CONF_OK(hd_fill(one, 0, conf_bits(1), bytes, NULL));
    enum { rounds = 50 };
    for (int i = 0; i < rounds; i++) {
        CONF_OK(conf_axpy(conf_default_lane(runtime, i % count), k, pinned, 0, one, 0, 1.0f, words, NULL));
    }
    CONF_FILLED(pinned, 0, conf_bits(rounds), bytes);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_order");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_read_waits_for_the_write),
        CONF_CASE(a_write_waits_for_the_readers),
        CONF_CASE(a_write_waits_for_the_write),
        CONF_CASE(chains_over_everything),
        CONF_CASE(disjoint_ranges_do_not_wait),
        CONF_CASE(readers_do_not_wait_for_readers),
        CONF_CASE(lanes_are_independent),
        CONF_CASE(overlapping_ranges),
        CONF_CASE(copies_between_devices_as_they_are),
        CONF_CASE(copies_between_devices_without_peers),
        CONF_CASE(copies_between_devices_in_a_ring),
        CONF_CASE(kernels_with_peer_memory),
        CONF_CASE(kernels_without_peers_are_refused),
        CONF_CASE(kernels_with_a_ring_of_peers),
        CONF_CASE(pinned_memory_between_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
