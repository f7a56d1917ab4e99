/* test_stress_threads.c - many threads submit launches and copies, allocate and free, on all
 * devices at once.
 *
 * Promise: Eight threads that use all devices at once find every byte as written.
 * Tier: stress.
 *
 * Threads: 8, for HEDDLE_STRESS_SECONDS (3).
 * Locks: none of the test itself, so that the library sees all threads at once.
 * Always: each thread checks its own buffers and its own part of the shared ones (each is one
 * repeated word). The buffers to which all threads add are right in the end.
 */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>

enum { n_threads = 8, n_own = 6, part = 16384, most_devices = 16, counter_words = 64 };

typedef struct own {
    hd_buffer *buffer;
    int device;
    size_t bytes;
    uint32_t word;
} own;

typedef struct stress {
    hd_runtime *runtime;
    conf_kernels k;
    int devices;
    uint64_t peers[most_devices];
    hd_buffer *shared[most_devices + 1]; /* a part for each thread; the last one pinned */
    hd_buffer *counters[most_devices];   /* all threads add ones */
    hd_buffer *ones[most_devices];
    atomic_uint added[most_devices];
    hd_lane *common[most_devices]; /* a lane to which all threads submit */
    atomic_bool stop;
    atomic_uint operations;
} stress;

static stress s;

typedef struct worker {
    int number;
    conf_random random;
    own owned[n_own];
    uint32_t shared_words[most_devices + 1];
    uint32_t next_word;
} worker;

static hd_lane *any_lane(worker *w, int device)
{
    return conf_chance(&w->random, 40) ? s.common[device] : conf_default_lane(s.runtime, device);
}

static void look(hd_buffer *buffer, size_t offset, size_t bytes, uint32_t word, const char *what, int number)
{
    static _Thread_local uint32_t got[65536];
    bytes = bytes > sizeof got ? sizeof got : bytes;
    CONF_OK(hd_read(buffer, offset, got, bytes));
    for (size_t i = 0; i < bytes / 4; i++) {
        if (got[i] != word) {
            conf_fail_at(__FILE__, __LINE__, "thread %d: %s: word %zu is %08x, not %08x", number, what, i, got[i],
                         word);
        }
    }
}

static void renew(worker *w, own *o)
{
    hd_free(o->buffer);
    o->buffer = NULL;
    static const size_t sizes[] = {256, 4096, 10000, 65536, 262144};
    o->bytes = sizes[conf_below(&w->random, 5)];
    o->device = (int)conf_below(&w->random, (uint64_t)s.devices);
    o->word = w->next_word++;
    hd_lane *lane = any_lane(w, o->device);
    CONF_TRUE(lane != NULL);
    CONF_OK(hd_alloc(lane, o->bytes, &o->buffer));
    if (conf_chance(&w->random, 50)) {
        CONF_OK(conf_fill(any_lane(w, o->device), s.k, o->buffer, 0, o->bytes / 4, o->word, NULL));
    } else {
        CONF_OK(hd_fill(o->buffer, 0, o->word, o->bytes, NULL));
    }
}

static void one_operation(worker *w)
{
    conf_random *r = &w->random;
    own *x = &w->owned[conf_below(r, n_own)], *y = &w->owned[conf_below(r, n_own)];
    int d = (int)conf_below(r, (uint64_t)s.devices), e = (int)conf_below(r, (uint64_t)s.devices + 1);
    size_t mine = (size_t)w->number * part;
    switch (conf_below(r, 12)) {
    case 0:
        renew(w, x);
        break;
    case 1:
        x->word = w->next_word++;
        CONF_OK(conf_fill(any_lane(w, x->device), s.k, x->buffer, 0, x->bytes / 4, x->word, NULL));
        break;
    case 2:
        if (x != y && x->bytes <= y->bytes) {
            CONF_OK(hd_copy(x->buffer, 0, y->buffer, 0, x->bytes, NULL));
            x->word = y->word;
        }
        break;
    case 3:
        if (x != y && x->bytes <= y->bytes && x->device == y->device) {
            CONF_OK(conf_copy(any_lane(w, x->device), s.k, x->buffer, 0, y->buffer, 0, x->bytes / 4, NULL));
            x->word = y->word;
        }
        break;
    case 4:
        look(x->buffer, 0, x->bytes, x->word, "a buffer of its own", w->number);
        break;
    case 5: /* its part of a shared one */
        w->shared_words[e] = w->next_word++;
        if (e < s.devices && conf_chance(r, 60)) {
            CONF_OK(conf_fill(any_lane(w, e), s.k, s.shared[e], mine, part / 4, w->shared_words[e], NULL));
        } else {
            CONF_OK(hd_fill(s.shared[e], mine, w->shared_words[e], part, NULL));
        }
        break;
    case 6:
        if (d != e) { /* between the shared ones */
            CONF_OK(hd_copy(s.shared[e], mine, s.shared[d], mine, part, NULL));
            w->shared_words[e] = w->shared_words[d];
        }
        break;
    case 7:
        look(s.shared[e], mine, part, w->shared_words[e], "its part of a shared buffer", w->number);
        break;
    case 8:
        atomic_fetch_add(&s.added[d], 1);
        CONF_OK(conf_axpy(any_lane(w, d), s.k, s.counters[d], 0, s.ones[d], 0, 1.0f, counter_words, NULL));
        break;
    case 9: {
        hd_ticket ticket = {NULL, 0};
        if (x->bytes >= part) {
            CONF_OK(hd_copy(s.shared[e], mine, x->buffer, 0, part, &ticket));
            w->shared_words[e] = x->word;
            if (conf_chance(r, 20)) {
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                CONF_TRUE(hd_done(ticket));
            }
        }
        break;
    }
    case 10:
        if (conf_chance(r, 20)) { /* a lane for a moment */
            hd_lane *lane = NULL;
            CONF_OK(hd_lane_create(s.runtime, x->device, &lane));
            x->word = w->next_word++;
            CONF_OK(conf_fill(lane, s.k, x->buffer, 0, x->bytes / 4, x->word, NULL));
            hd_lane_destroy(lane);
        } else if (conf_chance(r, 10)) {
            hd_device_stats stats = {.size = sizeof stats};
            hd_device_info info = {.size = sizeof info};
            CONF_OK(hd_device_get_stats(s.runtime, d, &stats));
            CONF_OK(hd_device_get_info(s.runtime, d, &info));
            CONF_TRUE(!info.lost);
        }
        break;
    default:
        if (e < s.devices && (e == x->device || (s.peers[e] >> x->device & 1) != 0) && x->bytes >= part) {
            /* a kernel on one device reads the memory of another */
            hd_status status = conf_copy(any_lane(w, e), s.k, s.shared[e], mine, x->buffer, 0, part / 4, NULL);
            if (status == HD_OK) {
                w->shared_words[e] = x->word;
            } else {
                CONF_FAILS(status, HD_ERROR_UNREACHABLE); /* a link that does not deliver */
            }
        }
        break;
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < n_own; i++) {
        renew(w, &w->owned[i]);
    }
    while (!atomic_load(&s.stop)) {
        one_operation(w);
        atomic_fetch_add(&s.operations, 1);
    }
    for (int i = 0; i < n_own; i++) {
        look(w->owned[i].buffer, 0, w->owned[i].bytes, w->owned[i].word, "a buffer of its own, at the end", w->number);
        hd_free(w->owned[i].buffer);
    }
    return NULL;
}

static void run(const char *settings)
{
    memset(&s, 0, sizeof s);
    s.runtime = conf_open(settings);
    s.k = conf_builtins(s.runtime);
    s.devices = hd_device_count(s.runtime) < most_devices ? hd_device_count(s.runtime) : most_devices;
    for (int d = 0; d <= s.devices; d++) {
        if (d == s.devices) {
            CONF_OK(hd_alloc_host(s.runtime, n_threads * part, &s.shared[d]));
        } else {
            hd_device_info info = {.size = sizeof info};
            CONF_OK(hd_device_get_info(s.runtime, d, &info));
            s.peers[d] = info.peers;
            CONF_OK(hd_lane_create(s.runtime, d, &s.common[d]));
            CONF_OK(hd_alloc(s.common[d], n_threads * part, &s.shared[d]));
            CONF_OK(hd_alloc(s.common[d], counter_words * 4, &s.counters[d]));
            CONF_OK(hd_alloc(s.common[d], counter_words * 4, &s.ones[d]));
            CONF_OK(hd_fill(s.counters[d], 0, conf_bits(0), counter_words * 4, NULL));
            CONF_OK(hd_fill(s.ones[d], 0, conf_bits(1), counter_words * 4, NULL));
        }
        CONF_OK(hd_fill(s.shared[d], 0, 0, n_threads * part, NULL));
    }
    pthread_t threads[n_threads];
    static worker workers[n_threads];
    for (int i = 0; i < n_threads; i++) {
        workers[i] = (worker){.number = i,
                              .random = {conf_number_from("HEDDLE_SEED", 1) * 100 + (uint64_t)i},
                              .next_word = (uint32_t)(i + 1) << 24};
        CONF_EQUAL(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    conf_sleep_ms((int)conf_number_from("HEDDLE_STRESS_SECONDS", 3) * 1000);
    atomic_store(&s.stop, true);
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int d = 0; d <= s.devices; d++) {
        for (int i = 0; i < n_threads; i++) {
            look(s.shared[d], (size_t)i * part, part, workers[i].shared_words[d], "a shared buffer at the end", i);
        }
        if (d < s.devices) {
            look(s.counters[d], 0, counter_words * 4, conf_bits((float)atomic_load(&s.added[d])),
                 "what all threads add to", -1);
            hd_device_stats stats = {.size = sizeof stats};
            CONF_OK(hd_device_get_stats(s.runtime, d, &stats));
            CONF_EQUAL(stats.buffers_live, 3);
            CONF_OK(hd_lane_wait(s.common[d], 60 * CONF_SECOND));
        }
    }
    fprintf(stderr, "  %s: %u operations\n", settings, atomic_load(&s.operations));
    conf_close(s.runtime);
}

static void with_peers(void **state)
{
    (void)state;
    run("host_peers=all");
}

static void without_peers_in_small_rings(void **state)
{
    (void)state;
    run("host_peers=none lane_slots=128");
}

static void in_a_perturbed_schedule(void **state)
{
    (void)state;
    run("host_peers=ring host_schedule=4711");
}

int main(void)
{
    conf_begin("test_stress_threads");
    conf_failure_ends_program = true; /* the threads would continue */
    const struct CMUnitTest tests[] = {
        CONF_CASE(with_peers),
        CONF_CASE(without_peers_in_small_rings),
        CONF_CASE(in_a_perturbed_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
