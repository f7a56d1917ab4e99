/* test_unified_model.c - a random run with unified buffers, plain ones and pinned memory, against
 * plain arrays. HEDDLE_SEED=N: the seed.
 *
 * Promise: Random use of unified buffers gives the bytes of the same operations on plain arrays.
 *
 * Threads: a few, each with its own buffers and lanes.
 * Locks: none.
 * Always: a buffer equals its array, however it is read.
 */
#include "unified.h"

enum { BUFFERS = 7, RUNNERS = 3, STEPS = CONF_TSAN ? 250 : 1200, WORDS_MOST = 1600003 };

typedef struct modelled {
    hd_buffer *buffer;
    uint32_t *model;
    size_t words;
    int device; /* -1: pinned */
    bool unified;
} modelled;

typedef struct runner {
    hd_runtime *runtime;
    conf_kernels kernels;
    conf_random random;
    modelled buffers[BUFFERS];
    hd_lane *lanes[4];
    int lane_device[4], n_lanes;
    int number;
} runner;

static void renew(runner *r, modelled *m)
{
    static const size_t sizes[] = {1, 1000, 16384, 16387, 100000, 300001};
    uint64_t choice = conf_below(&r->random, 32);
    size_t words = choice == 0 ? WORDS_MOST : sizes[choice % 6];
    hd_free(m->buffer);
    free(m->model);
    *m = (modelled){.words = words, .model = conf_memory(4 * words)};
    int device = (int)conf_below(&r->random, (uint64_t)hd_device_count(r->runtime));
    hd_lane *lane = conf_default_lane(r->runtime, device);
    uint64_t kind = conf_below(&r->random, 5);
    m->device = kind == 0 ? -1 : device;
    m->unified = kind > 1;
    if (kind == 0) {
        CONF_OK(hd_alloc_host(r->runtime, 4 * words, &m->buffer));
    } else if (kind == 1) {
        CONF_OK(hd_alloc(lane, 4 * words, &m->buffer));
    } else {
        CONF_OK(hd_alloc_unified(lane, 4 * words, &m->buffer));
    }
    uint32_t value = (uint32_t)conf_next(&r->random);
    if (kind != 1 && conf_chance(&r->random, 50)) {
        uint32_t *p = NULL;
        CONF_OK(hd_map(m->buffer, HD_WRITE, (void **)&p));
        for (size_t i = 0; i < words; i++) {
            p[i] = value;
        }
        hd_unmap(m->buffer);
    } else {
        CONF_OK(hd_fill(m->buffer, 0, value, 4 * words, NULL));
    }
    for (size_t i = 0; i < words; i++) {
        m->model[i] = value;
    }
}

/* Returns a lane whose device reaches both; NULL if none is found. */
static hd_lane *lane_for(runner *r, const modelled *a, const modelled *b)
{
    int i = (int)conf_below(&r->random, (uint64_t)r->n_lanes);
    bool reaches = conf_reaches(r->runtime, r->lane_device[i], a->device) &&
                   conf_reaches(r->runtime, r->lane_device[i], b->device);
    return reaches ? r->lanes[i] : NULL;
}

static void expect(const runner *r, const modelled *m, size_t at, uint32_t got, const char *how, int step)
{
    if (got != m->model[at]) {
        conf_fail_at(__FILE__, __LINE__,
                     "runner %d, step %d, %s: word %zu of %zu of a %s buffer of device %d is %08x, not %08x", r->number,
                     step, how, at, m->words, m->unified ? "unified" : "plain", m->device, got, m->model[at]);
    }
}

static void set_all(modelled *m, size_t low, size_t n, uint32_t value)
{
    for (size_t i = 0; i < n; i++) {
        m->model[low + i] = value;
    }
}

static void step_operation(runner *r, modelled *m, modelled *other, size_t low, size_t n)
{
    uint32_t value = (uint32_t)conf_next(&r->random);
    size_t from = conf_below(&r->random, other->words);
    size_t both = n < other->words - from ? n : other->words - from;
    hd_lane *lane = lane_for(r, m, other);
    switch (conf_below(&r->random, 4)) {
    case 0:
        if (lane != NULL) {
            CONF_OK(conf_fill(lane, r->kernels, m->buffer, 4 * low, n, value, NULL));
            set_all(m, low, n, value);
        }
        break;
    case 1:
        if (lane != NULL && m != other) {
            CONF_OK(conf_copy(lane, r->kernels, m->buffer, 4 * low, other->buffer, 4 * from, both, NULL));
            memcpy(m->model + low, other->model + from, 4 * both);
        }
        break;
    case 2:
        CONF_OK(hd_fill(m->buffer, 4 * low, value, 4 * n, NULL));
        set_all(m, low, n, value);
        break;
    default:
        if (m != other) {
            CONF_OK(hd_copy(m->buffer, 4 * low, other->buffer, 4 * from, 4 * both, NULL));
            memcpy(m->model + low, other->model + from, 4 * both);
        }
        break;
    }
}

static void step_transfer(runner *r, modelled *m, size_t low, size_t n, int step)
{
    uint32_t *data = conf_memory(4 * n);
    if (conf_chance(&r->random, 50)) {
        conf_pattern(data, 4 * n, conf_next(&r->random));
        CONF_OK(hd_write(m->buffer, 4 * low, data, 4 * n));
        memcpy(m->model + low, data, 4 * n);
    } else {
        CONF_OK(hd_read(m->buffer, 4 * low, data, 4 * n));
        for (size_t i = 0; i < n; i++) {
            expect(r, m, low + i, data[i], "hd_read", step);
        }
    }
    free(data);
}

static void step_map(runner *r, modelled *m, size_t low, size_t n, int step)
{
    hd_access access = (hd_access)(1 + conf_below(&r->random, 3));
    uint32_t *p = NULL;
    CONF_OK(hd_map(m->buffer, access, (void **)&p));
    for (size_t i = 0; access != HD_WRITE && i < m->words; i++) {
        expect(r, m, i, p[i], "hd_map", step);
    }
    for (size_t i = 0; (access & HD_WRITE) && i < n; i++) {
        p[low + i] = m->model[low + i] = (uint32_t)(low + i) * 3;
    }
    hd_unmap(m->buffer);
}

static void step_elements(runner *r, modelled *m, size_t low, size_t n, int step)
{
    n = n < 20 ? n : 20;
    for (size_t i = low; i < low + n; i++) {
        if (conf_chance(&r->random, 60)) {
            expect(r, m, i, word_of(m->buffer, i), "hd_get_u32", step);
        } else {
            put_word(m->buffer, i, m->model[i] = (uint32_t)conf_next(&r->random));
        }
    }
}

static void *run(void *argument)
{
    runner *r = argument;
    for (int i = 0; i < BUFFERS; i++) {
        renew(r, &r->buffers[i]);
    }
    for (int step = 0; step < STEPS; step++) {
        modelled *m = &r->buffers[conf_below(&r->random, BUFFERS)];
        modelled *other = &r->buffers[conf_below(&r->random, BUFFERS)];
        size_t low = conf_below(&r->random, m->words);
        size_t n = 1 + conf_below(&r->random, m->words - low);
        if (conf_chance(&r->random, 20)) { /* all of it */
            low = 0;
            n = m->words;
        }
        bool host = m->unified || m->device < 0;
        uint64_t what = conf_below(&r->random, 100);
        if (what < 45) {
            step_operation(r, m, other, low, n);
        } else if (what < 60) {
            step_transfer(r, m, low, n, step);
        } else if (what < 68 && host) {
            step_map(r, m, low, n, step);
        } else if (what < 97 && host) {
            step_elements(r, m, low, n, step);
        } else if (what >= 97) {
            renew(r, m);
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        modelled *m = &r->buffers[i];
        CONF_HOLDS(m->buffer, 0, m->model, 4 * m->words);
        hd_free(m->buffer);
        free(m->model);
    }
    return NULL;
}

static void agrees_with_plain_arrays(void **state)
{
    (void)state;
    static const char *const settings[] = {"host_schedule=0", "host_schedule=12345",
                                           "host_peers=none host_schedule=77"};
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    conf_failure_ends_program = true;
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        hd_runtime *runtime = conf_open(settings[s]);
        static runner runners[RUNNERS];
        pthread_t threads[RUNNERS];
        for (int i = 0; i < RUNNERS; i++) {
            runners[i] = (runner){.runtime = runtime,
                                  .kernels = conf_builtins(runtime),
                                  .random = {seed * 1000 + s * 10 + (uint64_t)i},
                                  .n_lanes = 4,
                                  .number = i};
            for (int l = 0; l < 4; l++) {
                runners[i].lane_device[l] = l % hd_device_count(runtime);
                CONF_OK(hd_lane_create(runtime, runners[i].lane_device[l], &runners[i].lanes[l]));
            }
            CONF_EQUAL(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
        }
        for (int i = 0; i < RUNNERS; i++) {
            pthread_join(threads[i], NULL);
        }
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
        conf_close(runtime);
    }
    conf_failure_ends_program = false;
}

int main(void)
{
    conf_begin("test_unified_model");
    const struct CMUnitTest tests[] = {
        CONF_CASE(agrees_with_plain_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
