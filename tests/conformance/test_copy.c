/* test_copy.c - hd_copy between any two places, against a model in the program's memory.
 *
 * Promise: hd_copy moves exactly the bytes asked for between any two places, and never blocks.
 *
 * - sizes at the edges of pieces and pinned chunks, with all peers, with some and with none
 * - a copy never blocks its caller, waits for its own buffers alone, works in many threads at once,
 *   and refuses bad arguments
 *
 * test_copy_trouble.c tests copies that fail.
 *
 * Threads: up to 6 that copy.
 * Locks: none.
 */
#include "places.h"

#include <pthread.h>
#include <stdatomic.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- every pair of places ---- */

/* Copies `bytes` between two filled buffers, and compares the whole destination. */
static void copy_and_compare(hd_buffer *dst, size_t dst_offset, hd_buffer *src, size_t src_offset, size_t bytes,
                             size_t all, const uint8_t *from, uint8_t *model, const char *what)
{
    hd_ticket ticket = {NULL, 0};
    CONF_OK(hd_write(dst, 0, model, all));
    CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(hd_copy(dst, dst_offset, src, src_offset, bytes, &ticket));
    memcpy(model + dst_offset, from + src_offset, bytes);
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_TRUE(hd_done(ticket));
    /* The ticket covers the whole copy. */
    CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 0));
    uint8_t *got = conf_memory(all);
    CONF_OK(hd_read(dst, 0, got, all));
    size_t i = conf_difference(got, model, all);
    free(got);
    if (i < all) {
        conf_fail_at(__FILE__, __LINE__, "%s: %zu bytes from %zu to %zu: byte %zu is wrong", what, bytes, src_offset,
                     dst_offset, i);
    }
}

static void copies_arrive_between_all_places(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,       64 * KIB - 1, 64 * KIB,    64 * KIB + 1, 1 * MIB - 1,
                                   1 * MIB, 1 * MIB + 1,  4 * MIB + 1, 8 * MIB + 1,  13 * MIB + 77};
    size_t n = sizeof sizes / sizeof *sizes - (CONF_SLOWNESS > 1 ? 2 : 0);
    size_t all = sizes[n - 1] + 4096;
    uint8_t *from = conf_memory(all), *model = conf_memory(all);
    conf_pattern(from, all, 1);
    for (int s = 0; s < PLACE_SETTINGS; s++) {
        hd_runtime *runtime = conf_open(place_settings[s]);
        for (place a = 0; a < PLACES; a++) {
            hd_buffer *src = place_alloc(runtime, a, all);
            CONF_OK(hd_write(src, 0, from, all));
            for (place b = 0; b < PLACES; b++) {
                if (CONF_TSAN && (a + b + s) % PLACE_SETTINGS != 0) {
                    /* too slow: test each pair with one setting, and each setting with some of all
                     * places */
                    continue;
                }
                hd_buffer *dst = place_alloc(runtime, b, all);
                conf_pattern(model, all, 2 + b);
                char what[100];
                snprintf(what, sizeof what, "%s, %s to %s", place_settings[s], place_names[a], place_names[b]);
                for (size_t i = 0; i < n; i++) {
                    copy_and_compare(dst, i * 5, src, i * 3 % 7, sizes[i], sizes[i] + 4096, from, model, what);
                }
                hd_free(dst);
            }
            hd_free(src);
        }
        conf_close(runtime);
    }
    free(from);
    free(model);
}

/* To and from pinned memory: more than a piece. Between two devices: more than all pinned
 * chunks. */
static void the_largest_copies_arrive(void **state)
{
    (void)state;
    size_t bytes = (CONF_TSAN ? 36 : 65) * MIB + 3, all = bytes + 64;
    static const struct {
        place src, dst;
    } pairs[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_DEVICE, PLACE_OTHER},
                 {PLACE_DEVICE, PLACE_DEVICE}, {PLACE_PINNED, PLACE_PINNED}, {PLACE_OTHER, PLACE_THIRD}};
    uint8_t *from = conf_memory(all), *model = conf_memory(all);
    conf_pattern(from, all, 1);
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open(place_settings[s]);
        for (size_t i = CONF_TSAN ? (size_t)s : 0; i < sizeof pairs / sizeof *pairs; i += CONF_TSAN ? 2 : 1) {
            hd_buffer *src = place_alloc(runtime, pairs[i].src, all), *dst = place_alloc(runtime, pairs[i].dst, all);
            memset(model, (int)i, all);
            CONF_OK(hd_write(src, 0, from, all));
            copy_and_compare(dst, 5, src, 3, bytes, all, from, model, place_settings[s]);
            hd_free(src);
            hd_free(dst);
        }
        conf_close(runtime);
    }
    free(from);
    free(model);
}

/* In one piece and in several, inside one buffer. */
static void parts_of_one_buffer_are_copied(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    for (place a = 0; a < PLACES; a++) {
        enum { part = 100000, all = 5 * part };
        hd_buffer *x = place_alloc(runtime, a, all);
        uint8_t *model = conf_memory(all);
        conf_pattern(model, all, a);
        CONF_OK(hd_write(x, 0, model, all));
        for (int i = 0; i < 20; i++) {
            size_t from = (size_t)(i * 2 % 5) * part, to = (size_t)((i * 2 + 1) % 5) * part;
            CONF_OK(hd_copy(x, to, x, from, part, NULL));
            memcpy(model + to, model + from, part);
        }
        CONF_HOLDS(x, 0, model, all);
        free(model);
        hd_free(x);
    }
    conf_close(runtime);
}

/* ---- random copies ---- */

enum { n_buffers = 14, model_bytes = 3 << 20 };

static void random_copies_do_what_a_model_does(void **state)
{
    (void)state;
    conf_random r = {conf_number_from("HEDDLE_SEED", 5)};
    int rounds = CONF_SLOWNESS > 1 || conf_on_gpus ? 2 : 4;
    for (int round = 0; round < rounds; round++) {
        for (int s = 0; s < PLACE_SETTINGS; s++) {
            /* small rings, so that submissions wait for room, too */
            hd_runtime *runtime = conf_open_with("%s host_schedule=%d lane_slots=%d", place_settings[s], round + 1,
                                                 round % 2 ? 64 : 1024);
            hd_buffer *buffer[n_buffers];
            uint8_t *model[n_buffers];
            size_t bytes[n_buffers];
            for (int i = 0; i < n_buffers; i++) {
                bytes[i] = i < PLACES ? model_bytes : 1 + conf_below(&r, 200000);
                buffer[i] = place_alloc(runtime, (place)(i % PLACES), bytes[i]);
                model[i] = conf_memory(bytes[i]);
                conf_pattern(model[i], bytes[i], conf_next(&r));
                CONF_OK(hd_write(buffer[i], 0, model[i], bytes[i]));
            }
            for (int step = 0; step < 150; step++) {
                size_t d = conf_below(&r, n_buffers), f = conf_below(&r, n_buffers);
                size_t most = bytes[d] < bytes[f] ? bytes[d] : bytes[f];
                size_t n = 1 + conf_below(&r, conf_chance(&r, 70) ? most < 70000 ? most : 70000 : most);
                size_t to = conf_below(&r, bytes[d] - n + 1), from = conf_below(&r, bytes[f] - n + 1);
                hd_status status = hd_copy(buffer[d], to, buffer[f], from, n, NULL);
                if (d == f && to < from + n && from < to + n) {
                    CONF_FAILS(status, HD_ERROR_ARGUMENT);
                    continue;
                }
                CONF_OK(status);
                memmove(model[d] + to, model[f] + from, n);
                if (conf_chance(&r, 5)) {
                    CONF_HOLDS(buffer[d], 0, model[d], bytes[d]);
                }
            }
            for (int i = 0; i < n_buffers; i++) {
                CONF_HOLDS(buffer[i], 0, model[i], bytes[i]);
                free(model[i]);
                hd_free(buffer[i]);
            }
            conf_close(runtime);
        }
    }
}

/* ---- dependencies ---- */

/* Work on a device that lasts until the test checked the effects of a copy, if the work is long
 * enough. */
typedef struct held {
    hd_runtime *runtime;
    conf_slow slow;
    conf_kernels kernels;
    hd_lane *lane;
} held;

static held held_open(const char *settings)
{
    held h = {.runtime = conf_open(settings)};
    conf_slow_make(&h.slow, h.runtime, 0);
    h.kernels = conf_builtins(h.runtime);
    CONF_OK(hd_lane_create(h.runtime, 0, &h.lane));
    return h;
}

static void held_close(held *h)
{
    CONF_OK(hd_lane_wait(h->lane, 60 * CONF_SECOND));
    conf_slow_free(&h->slow);
    conf_close(h->runtime);
}

/* Writes `value` to the first words of `x`, after `ms` milliseconds of other work. */
static hd_ticket write_late(held *h, hd_buffer *x, uint32_t value, double ms)
{
    hd_ticket ticket;
    conf_slow_run(&h->slow, h->lane, NULL, 0, ms, NULL);
    CONF_OK(conf_fill(h->lane, h->kernels, x, 0, 1024, value, &ticket));
    return ticket;
}

/* Later work of the lane waits until the test ends the claim. */
static hd_claim *close_gate(held *h)
{
    hd_claim *gate = NULL;
    hd_ticket ticket;
    CONF_OK(hd_claim_begin(h->runtime, NULL, 0, &gate));
    CONF_OK(hd_claim_get_ticket(gate, &ticket));
    CONF_OK(hd_lane_add_dependency(h->lane, ticket, NULL));
    return gate;
}

/* A copy larger than all chunks is submitted at once through pinned memory, while work still writes
 * its source. */
static void copies_never_block_the_caller(void **state)
{
    (void)state;
    held h = held_open("host_peers=none peers=off");
    CONF_NEED_DEVICES(h.runtime, 2);
    size_t bytes = (CONF_TSAN ? 12 : 48) * MIB;
    hd_buffer *x = place_alloc(h.runtime, PLACE_DEVICE, bytes), *y = place_alloc(h.runtime, PLACE_OTHER, bytes);
    hd_buffer *small = place_alloc(h.runtime, PLACE_OTHER, 4096);
    CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL)); /* makes chunks and lanes */
    CONF_OK(hd_copy(small, 0, x, 0, 4096, NULL));
    CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
    bool seen = false;
    uint32_t value = 2;
    for (double ms = 100; !seen && ms <= 12800; ms *= 2, value++) {
        hd_ticket first = write_late(&h, x, value, ms), last, last_small;
        CONF_OK(hd_copy(y, 0, x, 0, bytes, &last));
        for (int i = 0; i < 20; i++) { /* more than there are small chunks, too */
            CONF_OK(hd_copy(small, 0, x, 0, 4096, &last_small));
        }
        seen = !hd_done(first);
        CONF_OK(hd_wait(last, 60 * CONF_SECOND));
        CONF_OK(hd_wait(last_small, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(first));
    }
    CONF_TRUE(seen);
    CONF_FILLED(y, 0, value - 1, 4096);
    CONF_FILLED(small, 0, value - 1, 4096);
    CONF_FILLED(y, 4096, 1, bytes - 4096);
    hd_free(x);
    hd_free(y);
    hd_free(small);
    held_close(&h);
}

typedef struct errand {
    hd_buffer *dst, *src;
    size_t bytes;
} errand;

/* A thread that copies, and waits for its copy. */
static void *runs_errand(void *argument)
{
    const errand *e = argument;
    hd_ticket ticket;
    CONF_OK(hd_copy(e->dst, 0, e->src, 0, e->bytes, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    return NULL;
}

/* While one copy waits for its source, copies of other threads continue. The same thread's small
 * copies beside a large one continue, too. */
static void copies_wait_for_their_own_buffers_alone(void **state)
{
    (void)state;
    static const struct {
        place src, dst;
        size_t bytes;
        bool by_thread;
    } table[] = {
        {PLACE_DEVICE, PLACE_PINNED, 5 * MIB, false},  {PLACE_DEVICE, PLACE_PINNED, 4096, true},
        {PLACE_PINNED, PLACE_DEVICE, 5 * MIB, false},  {PLACE_PINNED, PLACE_DEVICE, 4096, true},
        {PLACE_DEVICE, PLACE_DEVICE, 33 * MIB, false}, {PLACE_DEVICE, PLACE_DEVICE, 4096, true},
        {PLACE_DEVICE, PLACE_OTHER, 2 * MIB, false},   {PLACE_DEVICE, PLACE_OTHER, 4096, true},
    };
    held h = held_open("host_peers=none peers=off");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].dst == PLACE_OTHER && hd_device_count(h.runtime) < 2) {
            continue;
        }
        size_t bytes = table[i].bytes;
        hd_buffer *x = place_alloc(h.runtime, table[i].src, bytes), *y = place_alloc(h.runtime, table[i].dst, bytes);
        hd_buffer *u = place_alloc(h.runtime, table[i].src, 4096), *v = place_alloc(h.runtime, table[i].dst, 4096);
        CONF_OK(hd_fill(x, 0, 3, bytes, NULL));
        CONF_OK(hd_fill(u, 0, 4, 4096, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        bool seen = false;
        for (double ms = 100; !seen && ms <= 12800; ms *= 2) {
            CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
            CONF_OK(hd_fill(v, 0, 0, 4096, NULL));
            CONF_OK(hd_buffer_wait(v, HD_READ_WRITE, 60 * CONF_SECOND));
            hd_ticket first = write_late(&h, x, 5, ms), last;
            CONF_OK(hd_copy(y, 0, x, 0, bytes, &last));
            errand e = {v, u, 4096};
            pthread_t thread;
            if (table[i].by_thread) {
                CONF_EQUAL(pthread_create(&thread, NULL, runs_errand, &e), 0);
                pthread_join(thread, NULL);
            } else {
                runs_errand(&e);
            }
            seen = !hd_done(first);
            CONF_OK(hd_wait(last, 60 * CONF_SECOND));
            CONF_FILLED(v, 0, 4, 4096);
            CONF_FILLED(y, 0, 5, 4096);
        }
        if (!seen) {
            conf_fail_at(__FILE__, __LINE__, "a copy from %s to %s waited for the one before (case %zu)",
                         place_names[table[i].src], place_names[table[i].dst], i);
        }
        hd_free(x);
        hd_free(y);
        hd_free(u);
        hd_free(v);
    }
    held_close(&h);
}

/* The pieces of a copy move one after the other. A reader of the first bytes gets them before the
 * last ones are copied. */
static void a_reader_of_the_beginning_needs_not_the_end(void **state)
{
    (void)state;
    static const struct {
        place src, dst;
        size_t bytes;
    } table[] = {{PLACE_DEVICE, PLACE_OTHER, 12 * MIB},
                 {PLACE_DEVICE, PLACE_OTHER, 40 * MIB},
                 {PLACE_PINNED, PLACE_DEVICE, 64 * MIB + 8192},
                 {PLACE_DEVICE, PLACE_PINNED, 64 * MIB + 8192},
                 {PLACE_PINNED, PLACE_PINNED, 64 * MIB + 8192}};
    held h = held_open("host_peers=none peers=off");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        bool between = table[i].dst == PLACE_OTHER;
        if ((between && hd_device_count(h.runtime) < 2) || (CONF_TSAN && table[i].bytes > 20 * MIB)) {
            continue;
        }
        size_t bytes = table[i].bytes;
        hd_buffer *x = place_alloc(h.runtime, table[i].src, bytes), *y = place_alloc(h.runtime, table[i].dst, bytes);
        hd_buffer *part = place_alloc(h.runtime, table[i].dst, 4096);
        CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        CONF_OK(hd_fill(x, 0, 2, bytes, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
        hd_ticket end, early, last;
        hd_claim *gate = close_gate(&h);
        CONF_OK(conf_fill(h.lane, h.kernels, x, bytes - 4096, 1024, 1000, &end));
        CONF_OK(hd_copy(y, 0, x, 0, bytes, &last));
        CONF_OK(hd_copy(part, 0, y, 0, 4096, &early));
        hd_status status = hd_wait(early, 60 * CONF_SECOND);
        if (status != HD_OK) {
            conf_fail_at(__FILE__, __LINE__, "the first bytes of %zu from %s to %s need the last: %s", bytes,
                         place_names[table[i].src], place_names[table[i].dst], hd_message());
        }
        CONF_TRUE(!hd_done(end) && !hd_done(last));
        CONF_OK(hd_claim_end(gate, HD_OK));
        CONF_OK(hd_wait(last, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(end));
        CONF_FILLED(part, 0, 2, 4096);
        CONF_FILLED(y, bytes - 8192, 2, 4096);
        CONF_FILLED(y, bytes - 4096, 1000, 4096);
        hd_free(x);
        hd_free(y);
        hd_free(part);
    }
    held_close(&h);
}

/* Copies are submitted in one go, each with a kernel that needs it. The first kernel does not wait
 * for the last copy. */
static void a_kernel_waits_for_its_copy_alone(void **state)
{
    (void)state;
    enum { n = 8, words = 1024, bytes = 4 * words };
    /* copies to the device of the kernels, or from it to another one */
    for (int placed = 0; placed < 2; placed++) {
        held h = held_open("host_peers=none peers=off");
        if (placed && hd_device_count(h.runtime) < 2) {
            held_close(&h);
            continue;
        }
        hd_lane *lane = NULL, *own = NULL;
        CONF_OK(hd_lane_create(h.runtime, placed, &lane));
        CONF_OK(hd_lane_create(h.runtime, placed, &own));
        hd_buffer *x[n], *y[n], *z[n];
        for (int i = 0; i < n; i++) {
            x[i] = place_alloc(h.runtime, placed ? PLACE_DEVICE : PLACE_PINNED, bytes);
            CONF_OK(hd_alloc(lane, bytes, &y[i]));
            CONF_OK(hd_alloc(lane, bytes, &z[i]));
            CONF_OK(hd_fill(x[i], 0, (uint32_t)i, bytes, NULL));
            CONF_OK(hd_copy(y[i], 0, x[i], 0, bytes, NULL));
        }
        bool seen = false;
        for (double ms = 100; !seen && ms <= 12800; ms *= 2) {
            for (int i = 0; i < n; i++) {
                CONF_OK(hd_buffer_wait(y[i], HD_READ_WRITE, 60 * CONF_SECOND));
                CONF_OK(hd_buffer_wait(z[i], HD_READ_WRITE, 60 * CONF_SECOND));
            }
            hd_ticket end = write_late(&h, x[n - 1], 77, ms), first, last = {NULL, 0};
            conf_sleep_ms(20); /* the engines have no other work, and sleep */
            for (int i = 0; i < n; i++) {
                CONF_OK(hd_copy(y[i], 0, x[i], 0, bytes, NULL));
                CONF_OK(conf_copy(i == 0 ? own : lane, h.kernels, z[i], 0, y[i], 0, words, i == 0 ? &first : &last));
            }
            CONF_OK(hd_wait(first, 60 * CONF_SECOND));
            seen = !hd_done(end);
            CONF_OK(hd_wait(last, 60 * CONF_SECOND));
            CONF_TRUE(hd_done(end));
            CONF_FILLED(z[0], 0, 0, bytes);
            CONF_FILLED(z[n - 1], 0, 77, bytes);
        }
        if (!seen) {
            conf_fail_at(__FILE__, __LINE__, "the first of several kernels waited for the last copy (placed %d)",
                         placed);
        }
        held_close(&h);
    }
}

/* ---- many at once ---- */

typedef struct ferry {
    hd_runtime *runtime;
    pthread_barrier_t *begin;
    int src, dst;
    uint64_t seed;
    size_t bytes;
    int rounds;
} ferry;

static void *ferries(void *argument)
{
    const ferry *f = argument;
    hd_lane *there = conf_default_lane(f->runtime, f->src), *here = conf_default_lane(f->runtime, f->dst);
    hd_buffer *x[2] = {NULL}, *y[2] = {NULL};
    uint8_t *data = conf_memory(f->bytes), *got = conf_memory(f->bytes);
    conf_random r = {f->seed};
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_alloc(there, f->bytes, &x[i]));
        CONF_OK(hd_alloc(here, f->bytes, &y[i]));
    }
    pthread_barrier_wait(f->begin);
    for (int i = 0; i < f->rounds; i++) {
        size_t n = 1 + conf_below(&r, f->bytes);
        conf_pattern(data, n, f->seed + (uint64_t)i);
        CONF_OK(hd_write(x[i % 2], 0, data, n));
        CONF_OK(hd_copy(y[i % 2], 0, x[i % 2], 0, n, NULL));
        CONF_OK(hd_copy(x[i % 2], 0, y[i % 2], 0, n, NULL)); /* and back */
        CONF_OK(hd_fill(y[i % 2], 0, 0, f->bytes / 4 * 4, NULL));
        CONF_OK(hd_copy(y[i % 2], 0, x[i % 2], 0, n, NULL));
        CONF_OK(hd_read(y[i % 2], 0, got, n));
        CONF_SAME(got, data, n);
    }
    for (int i = 0; i < 2; i++) {
        hd_free(x[i]);
        hd_free(y[i]);
    }
    free(data);
    free(got);
    return NULL;
}

/* Three pairs of devices, each in both directions, with and without pinned memory in between. */
static void pairs_copy_at_the_same_time(void **state)
{
    (void)state;
    for (int s = 0; s < PLACE_SETTINGS; s++) {
        hd_runtime *runtime = conf_open_with("%s lane_slots=128", place_settings[s]);
        int devices = hd_device_count(runtime);
        pthread_barrier_t begin;
        pthread_t threads[6];
        ferry ferry_of[6];
        CONF_EQUAL(pthread_barrier_init(&begin, NULL, 6), 0);
        for (int i = 0; i < 6; i++) {
            int a = i % 3, b = (a + 1) % 3;
            ferry_of[i] = (ferry){.runtime = runtime,
                                  .begin = &begin,
                                  .src = (i < 3 ? a : b) % devices,
                                  .dst = (i < 3 ? b : a) % devices,
                                  .seed = (uint64_t)(100 * s + i),
                                  .bytes = (i % 2 ? 3 * MIB : 300 * KIB) + (size_t)i,
                                  .rounds = CONF_SLOWNESS > 1 ? 6 : 25};
            CONF_EQUAL(pthread_create(&threads[i], NULL, ferries, &ferry_of[i]), 0);
        }
        for (int i = 0; i < 6; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&begin);
        conf_close(runtime);
    }
}

/* ---- refusals ---- */

static void bad_copies_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *foreign = conf_open(NULL);
    enum { bytes = 1 << 16 };
    for (place a = 0; a < PLACES; a++) {
        hd_buffer *x = place_alloc(runtime, a, bytes), *y = place_alloc(runtime, PLACE_OTHER, bytes),
                  *alien = place_alloc(foreign, a, bytes), *freed = place_alloc(runtime, a, bytes);
        uint8_t *model = conf_memory(bytes);
        conf_pattern(model, bytes, a);
        CONF_OK(hd_write(x, 0, model, bytes));
        CONF_OK(hd_write(y, 0, model, bytes));
        hd_free(freed);
        hd_ticket ticket = {NULL, 77};
        CONF_FAILS_WITH(hd_copy(NULL, 0, x, 0, 4, &ticket), HD_ERROR_HANDLE, "dst");
        CONF_FAILS_WITH(hd_copy(x, 0, NULL, 0, 4, &ticket), HD_ERROR_HANDLE, "src");
        CONF_FAILS_WITH(hd_copy(freed, 0, x, 0, 4, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy(x, 0, freed, 0, 4, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy(alien, 0, x, 0, 4, &ticket), HD_ERROR_HANDLE, "runtimes");
        CONF_FAILS_WITH(hd_copy(y, 0, x, 1, bytes, &ticket), HD_ERROR_RANGE, "65536 bytes at offset 1");
        CONF_FAILS_WITH(hd_copy(y, 1, x, 0, bytes, &ticket), HD_ERROR_RANGE, "dst");
        CONF_FAILS(hd_copy(y, 0, x, SIZE_MAX, 4, &ticket), HD_ERROR_RANGE);
        CONF_FAILS(hd_copy(y, 4, x, 4, SIZE_MAX, &ticket), HD_ERROR_RANGE);
        CONF_FAILS(hd_copy(y, SIZE_MAX - 3, x, 0, 4, &ticket), HD_ERROR_RANGE);
        CONF_FAILS_WITH(hd_copy(x, 0, x, 0, 4, &ticket), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_copy(x, 100, x, 0, 101, &ticket), HD_ERROR_ARGUMENT, "0..101 and 100..201");
        CONF_FAILS(hd_copy(x, 0, x, 100, 101, &ticket), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_copy(x, 0, x, bytes / 2 - 1, bytes / 2, &ticket), HD_ERROR_ARGUMENT);
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);
        CONF_HOLDS(x, 0, model, bytes);
        CONF_HOLDS(y, 0, model, bytes);
        /* copies of no bytes, and bytes that only touch */
        CONF_OK(hd_copy(x, 0, x, 0, 0, NULL));
        CONF_OK(hd_copy(y, bytes, x, bytes, 0, NULL));
        CONF_OK(hd_copy(x, 100, x, 0, 100, NULL));
        memcpy(model + 100, model, 100);
        CONF_HOLDS(x, 0, model, bytes);
        free(model);
        hd_free(x);
        hd_free(y);
    }
    conf_close(foreign);
    conf_close(runtime);
}

/* The program's side of a transfer lies inside the pinned buffer itself. */
static void the_buffers_own_bytes_are_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {16, 100000, 3 << 20}; /* threads share the last one */
    hd_runtime *runtime = conf_open(NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        hd_buffer *x = place_alloc(runtime, PLACE_PINNED, 3 * n);
        uint8_t *model = conf_memory(3 * n), *bytes = NULL;
        conf_pattern(model, 3 * n, i);
        CONF_OK(hd_write(x, 0, model, 3 * n));
        CONF_OK(hd_map(x, HD_READ_WRITE, (void **)&bytes));
        CONF_FAILS_WITH(hd_write(x, 0, bytes + 1, n), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_write(x, 1, bytes, n), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_write(x, n, bytes + 2 * n - 1, n), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_read(x, 0, bytes + 1, n), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_read(x, 1, bytes, n), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_read(x, n, bytes + n, n), HD_ERROR_ARGUMENT, "overlap");
        const hd_box box = {
            .size = sizeof box, .row = n / 8, .dims = 1, .count = {4}, .dst_stride = {n / 4}, .src_stride = {n / 4}};
        CONF_FAILS_WITH(hd_write_box(x, 0, bytes + 1, &box), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_read_box(x, 1, bytes, &box), HD_ERROR_ARGUMENT, "overlap");
        CONF_SAME(bytes, model, 3 * n);
        CONF_OK(hd_write(x, n, bytes, n)); /* they touch */
        memcpy(model + n, model, n);
        CONF_OK(hd_read(x, 0, bytes + 2 * n, n));
        memcpy(model + 2 * n, model, n);
        CONF_OK(hd_write_box(x, n / 8, bytes, &box)); /* rows between the others */
        for (size_t k = 0; k < 4; k++) {
            memcpy(model + k * (n / 4) + n / 8, model + k * (n / 4), n / 8);
        }
        CONF_SAME(bytes, model, 3 * n);
        free(model);
        hd_free(x);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_copy");
    const struct CMUnitTest tests[] = {
        CONF_CASE(copies_arrive_between_all_places),
        CONF_CASE(the_largest_copies_arrive),
        CONF_CASE(parts_of_one_buffer_are_copied),
        CONF_CASE(random_copies_do_what_a_model_does),
        CONF_CASE(copies_never_block_the_caller),
        CONF_CASE(copies_wait_for_their_own_buffers_alone),
        CONF_CASE(a_reader_of_the_beginning_needs_not_the_end),
        CONF_CASE(a_kernel_waits_for_its_copy_alone),
        CONF_CASE(pairs_copy_at_the_same_time),
        CONF_CASE(bad_copies_are_refused),
        CONF_CASE(the_buffers_own_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
