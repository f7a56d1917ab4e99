/* graphs.h - the world of test_graphs.c: devices, lanes, buffers with their models, a log of all
 * steps, and random choices.
 *
 * Threads: those that submit, with the world's lock.
 * Locks: the lock of the world, which the caller holds.
 */
#ifndef CONFORMANCE_GRAPHS_H
#define CONFORMANCE_GRAPHS_H

#include <pthread.h>
#include "conformance.h"

enum { most_buffers = 14, most_lanes = 6, most_threads = 3, most_devices = 16, log_rows = 4096 };

CONF_UNUSED static const float exact_limit = 8388608.0f; /* 2^23 */

typedef struct item {
    hd_buffer *buffer;
    int device; /* -1: pinned */
    size_t bytes;
    bool floats; /* the content is whole numbers, as floats */
    uint8_t *model;
} item;

typedef struct log_row {
    int buffer; /* -1: nothing */
    size_t from, to;
    char text[120];
} log_row;

typedef struct world {
    pthread_mutex_t lock;
    hd_runtime *runtime;
    bool host, is_process;
    int devices;
    uint64_t peers[most_devices];
    conf_kernels k;
    hd_buffer *zeros[most_devices]; /* input of work that takes long */
    item items[most_buffers];
    int n_items;
    hd_lane *lanes[most_lanes];
    int n_lanes;
    hd_lane *burst;   /* the only lane in use now; NULL: all are */
    uint64_t chains;  /* the most launches in one chain */
    uint64_t longest; /* the longest chain that was seen */
    bool perturbed;
    int graphs, graphs_perturbed; /* so far */
    uint64_t seed;
    int graph, operations;
    log_row log[log_rows];
    int logged;
    uint64_t done_by_kind[24];
} world;

CONF_UNUSED static world w = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { zeros = CONF_TSAN ? 1 << 15 : 1 << 18 };

/* ---- the log ---- */

__attribute__((format(printf, 4, 5))) static void note(int buffer, size_t from, size_t to, const char *format, ...)
{
    if (w.logged == log_rows) {
        return;
    }
    log_row *row = &w.log[w.logged++];
    row->buffer = buffer, row->from = from, row->to = to;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(row->text, sizeof row->text, format, arguments);
    va_end(arguments);
}

CONF_UNUSED static void print_history(int buffer, size_t at)
{
    int n = 0;
    for (int i = 0; i < w.logged; i++) {
        n += w.log[i].buffer == buffer && w.log[i].from <= at && at < w.log[i].to;
    }
    for (int i = 0; i < w.logged; i++) {
        if (w.log[i].buffer == buffer && w.log[i].from <= at && at < w.log[i].to && n-- <= 25) {
            fprintf(stderr, "    %4d  [%zu, %zu)  %s\n", i, w.log[i].from, w.log[i].to, w.log[i].text);
        }
    }
}

CONF_UNUSED static void differs(int buffer, size_t at, unsigned got, unsigned wanted, const char *when)
{
    item *x = &w.items[buffer];
    fprintf(stderr,
            "buffer %d (device %d, %zu bytes), byte %zu is %02x, not %02x, %s; operations on it, the last 25:\n",
            buffer, x->device, x->bytes, at, got, wanted, when);
    print_history(buffer, at);
    conf_fail_at(__FILE__, __LINE__, "wrong result: HEDDLE_SEED=%llu, graph %d", (unsigned long long)w.seed, w.graph);
}

CONF_UNUSED static void compare(int buffer, size_t offset, const uint8_t *got, size_t bytes, const char *when)
{
    size_t i = conf_difference(got, w.items[buffer].model + offset, bytes);
    if (i < bytes) {
        differs(buffer, offset + i, got[i], w.items[buffer].model[offset + i], when);
    }
}

/* ---- choices at random ---- */

typedef struct range {
    size_t offset, bytes;
} range;

/* A range in multiples of `unit`, not empty if the buffer contains one unit. */
CONF_UNUSED static range some_range(conf_random *r, const item *x, size_t unit)
{
    size_t units = x->bytes / unit;
    range a = {0, units * unit};
    if (units <= 1 || conf_chance(r, 25)) {
        return a;
    }
    size_t length = conf_chance(r, 50) ? 1 + conf_below(r, units) : 1 + conf_below(r, units < 64 ? units : 64);
    a.bytes = length * unit;
    a.offset = conf_below(r, units - length + 1) * unit;
    return a;
}

CONF_UNUSED static bool reaches(int device, const item *x)
{
    return x->device < 0 || x->device == device || (w.peers[device] >> x->device & 1) != 0;
}

CONF_UNUSED static bool overlap(int a, range x, int b, range y)
{
    return a == b && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
}

CONF_UNUSED static int some_item(conf_random *r)
{
    return (int)conf_below(r, (uint64_t)w.n_items);
}

CONF_UNUSED static hd_lane *some_lane(conf_random *r)
{
    int i = (int)conf_below(r, (uint64_t)w.n_lanes + 1);
    if (w.burst != NULL) {
        return w.burst;
    }
    if (i < w.n_lanes) {
        return w.lanes[i];
    }
    hd_lane *lane = conf_default_lane(w.runtime, (int)conf_below(r, (uint64_t)w.devices));
    CONF_TRUE(lane != NULL);
    return lane;
}

CONF_UNUSED static float small_number(conf_random *r)
{
    return (float)((int)conf_below(r, 101) - 50);
}

CONF_UNUSED static void invent(conf_random *r, const item *x, uint8_t *data, size_t bytes)
{
    if (x->floats) {
        for (size_t i = 0; i < bytes / 4; i++) {
            float v = small_number(r);
            memcpy(data + 4 * i, &v, 4);
        }
    } else {
        conf_pattern(data, bytes, conf_next(r));
    }
}

CONF_UNUSED static void fill_model(int at, range a, uint32_t word)
{
    for (size_t i = 0; i < a.bytes; i += 4) {
        memcpy(w.items[at].model + a.offset + i, &word, 4);
    }
}

CONF_UNUSED static uint32_t some_word(conf_random *r, const item *x)
{
    return x->floats ? conf_bits(small_number(r)) : (uint32_t)conf_next(r);
}

CONF_UNUSED static float *numbers(int at, range a)
{
    /* models are aligned, and so are the ranges of floats */
    return (float *)(void *)(w.items[at].model + a.offset);
}

#endif
