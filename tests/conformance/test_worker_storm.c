/* test_worker_storm.c - everything at once: threads that allocate, launch, copy, save, load modules
 * and make lanes on all devices.
 *
 * Promise: Under random losses calls succeed or report a loss, and everything works at the end.
 * Tier: stress.
 *
 * Meanwhile devices are lost and restarted at random, several at a time.
 *
 * Threads: 6 that work, 2 that lose and restart devices, for HEDDLE_STRESS_SECONDS (3).
 * Locks: none of the test itself.
 * Always: a call returns HD_OK, or a failure that a loss explains. A read with HD_OK is exact. In
 * the end, with all devices restarted, everything works and nothing is left over.
 */
#include "workers.h"

enum { n_workers = 6, n_breakers = 2, words = 5000, bytes = words * 4 };

typedef struct storm {
    hd_runtime *runtime;
    conf_kernels k;
    wk_kernels wk;
    int devices;
    const void *image;
    size_t image_size;
    atomic_bool stop;
    atomic_uint good, lost, restarts, kept; /* counts */
} storm;

static storm s;

typedef struct worker {
    int number;
    conf_random random;
    uint32_t word;
    pthread_t thread;
} worker;

/* HD_OK, or a status to which a loss may lead. */
static bool went_well(hd_status status, const char *what)
{
    if (status == HD_OK) {
        atomic_fetch_add(&s.good, 1);
        return true;
    }
    if (status != HD_ERROR_DEVICE_LOST && status != HD_ERROR_FAILED && status != HD_ERROR_LANE_FAILED) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s: %s", what, hd_status_name(status), hd_message());
    }
    atomic_fetch_add(&s.lost, 1);
    return false;
}
#define WELL(call) went_well((call), #call)

static hd_lane *my_lane(int device)
{
    hd_lane *lane = conf_default_lane(s.runtime, device);
    if (lane == NULL) {
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        went_well(error.status, "hd_lane_get_default");
        return NULL;
    }
    /* a failure in the lane, read from a lost device, would refuse new work */
    if (hd_lane_wait(lane, 0) == HD_ERROR_FAILED) {
        WELL(hd_lane_reset(lane, 60 * CONF_SECOND));
    }
    return lane;
}

static bool exact(hd_buffer *buffer, uint32_t word, const char *what)
{
    static _Thread_local uint32_t got[words];
    memset(got, 0, sizeof got);
    if (!WELL(hd_read(buffer, 0, got, bytes))) {
        return false;
    }
    for (int i = 0; i < words; i++) {
        if (got[i] != word) {
            conf_fail_at(__FILE__, __LINE__, "%s: word %d is %08x, not %08x", what, i, got[i], word);
        }
    }
    return true;
}

/* Memory, kernels and copies of one device and between two. */
static void computes(worker *w, int d, int e)
{
    hd_lane *here = my_lane(d), *there = my_lane(e);
    hd_buffer *x = NULL, *y = NULL;
    uint32_t word = w->word++;
    if (here != NULL && there != NULL && WELL(hd_alloc(here, bytes, &x)) && WELL(hd_alloc(there, bytes, &y)) &&
        WELL(conf_fill(here, s.k, x, 0, words, word, NULL)) && WELL(wk_add_one(here, s.wk, x, words, NULL)) &&
        WELL(hd_copy(y, 0, x, 0, bytes, NULL)) && exact(y, word + 1, "a copy between devices")) {
        if (conf_chance(&w->random, 50) && WELL(hd_fill(x, 0, word + 2, bytes, NULL))) {
            exact(x, word + 2, "a fill");
        }
    }
    hd_free(x);
    hd_free(y);
    w->word += 2;
}

static void uses_pinned_memory(worker *w, int d)
{
    hd_lane *lane = my_lane(d);
    hd_buffer *pinned = NULL;
    uint32_t word = w->word++;
    if (lane != NULL && WELL(hd_alloc_host(s.runtime, bytes, &pinned)) &&
        WELL(conf_fill(lane, s.k, pinned, 0, words, word, NULL))) {
        exact(pinned, word, "pinned memory");
    }
    hd_free(pinned);
}

static void loads_a_module(int d)
{
    hd_module *module = NULL;
    hd_kernel *add = NULL;
    hd_buffer *x = NULL;
    hd_lane *lane = my_lane(d);
    if (lane != NULL && WELL(hd_module_load(s.runtime, s.image, s.image_size, &module)) &&
        WELL(hd_kernel_get(module, "add_one", &add))) {
        wk_kernels k = {.module = module, .add_one = add};
        if (WELL(hd_alloc(lane, bytes, &x)) && WELL(hd_fill(x, 0, 41, bytes, NULL)) &&
            WELL(wk_add_one(lane, k, x, words, NULL))) {
            exact(x, 42, "a kernel of a module of its own");
        }
    }
    hd_free(x);
    hd_module_unload(module);
}

static void makes_a_lane(worker *w, int d)
{
    hd_lane *lane = NULL;
    hd_buffer *x = NULL;
    hd_ticket ticket;
    uint32_t word = w->word++;
    if (WELL(hd_lane_create(s.runtime, d, &lane))) {
        if (WELL(hd_alloc(lane, bytes, &x)) && WELL(conf_fill(lane, s.k, x, 0, words, word, &ticket)) &&
            WELL(hd_wait(ticket, 60 * CONF_SECOND * CONF_SLOWNESS))) {
            exact(x, word, "in a lane of its own");
        }
        hd_free(x);
        hd_lane_destroy(lane);
    }
}

/* A buffer is saved, then written again: it contains the one or the other, as a whole. */
static void keeps_a_copy(worker *w, int d)
{
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    hd_lane *lane = my_lane(d);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    uint32_t word = w->word, got[words];
    w->word += 2;
    if (lane != NULL && WELL(hd_alloc_with(lane, bytes, &keep, &x)) && WELL(hd_fill(x, 0, word, bytes, NULL)) &&
        WELL(hd_buffer_save(x, &ticket)) && WELL(hd_wait(ticket, 60 * CONF_SECOND * CONF_SLOWNESS))) {
        hd_fill(x, 0, word + 1, bytes, NULL);
        for (int i = 0; i < 5; i++) {
            if (WELL(hd_read(x, 0, got, bytes))) {
                if ((got[0] != word && got[0] != word + 1) || got[words - 1] != got[0] || got[words / 2] != got[0]) {
                    conf_fail_at(__FILE__, __LINE__, "a checkpointed buffer has %08x %08x %08x, not %08x or one more",
                                 got[0], got[words / 2], got[words - 1], word);
                }
                atomic_fetch_add(&s.kept, 1);
            }
            conf_sleep_ms(1);
        }
    }
    hd_free(x);
}

static void *works_in_it(void *argument)
{
    worker *w = argument;
    while (!atomic_load(&s.stop)) {
        int d = (int)conf_below(&w->random, (uint64_t)s.devices), e = (int)conf_below(&w->random, (uint64_t)s.devices);
        hd_device_info info = {.size = sizeof info};
        switch (conf_below(&w->random, 10)) {
        case 0:
            uses_pinned_memory(w, d);
            break;
        case 1:
            loads_a_module(d);
            break;
        case 2:
            makes_a_lane(w, d);
            break;
        case 3:
            keeps_a_copy(w, d);
            break;
        case 4:
            WELL(hd_device_get_info(s.runtime, d, &info));
            break;
        default:
            computes(w, d, e);
            break;
        }
    }
    return NULL;
}

static void *breaks_it(void *argument)
{
    worker *w = argument;
    while (!atomic_load(&s.stop)) {
        int d = (int)conf_below(&w->random, (uint64_t)s.devices);
        hd_device_info info = {.size = sizeof info};
        conf_sleep_ms((int)conf_below(&w->random, 40));
        if (hd_device_get_info(s.runtime, d, &info) == HD_OK && !info.lost && info.worker_pid > 0) {
            kill(info.worker_pid, SIGKILL);
        }
        conf_sleep_ms((int)conf_below(&w->random, 10));
        d = conf_chance(&w->random, 70) ? d : (int)conf_below(&w->random, (uint64_t)s.devices);
        hd_status status = hd_device_restart(s.runtime, d);
        if (status == HD_OK) {
            atomic_fetch_add(&s.restarts, 1);
        } else if (status != HD_ERROR_SYSTEM && status != HD_ERROR_DEVICE_LOST) {
            /* killed meanwhile */
            conf_fail_at(__FILE__, __LINE__, "hd_device_restart: %s: %s", hd_status_name(status), hd_message());
        }
    }
    return NULL;
}

static void blow(const char *settings)
{
    memset(&s, 0, sizeof s);
    s.runtime = conf_open(settings);
    s.k = conf_builtins(s.runtime);
    s.wk = wk_load(s.runtime);
    WK_NEED_KERNELS(s.runtime, s.wk);
    s.image = wk_image(s.runtime, &s.image_size);
    s.devices = hd_device_count(s.runtime);
    static worker workers[n_workers + n_breakers];
    for (int i = 0; i < n_workers + n_breakers; i++) {
        workers[i] = (worker){.number = i,
                              .random = {conf_number_from("HEDDLE_SEED", 1) * 100 + (uint64_t)i},
                              .word = (uint32_t)(i + 1) << 24};
        CONF_EQUAL(pthread_create(&workers[i].thread, NULL, i < n_workers ? works_in_it : breaks_it, &workers[i]), 0);
    }
    conf_sleep_ms((int)conf_number_from("HEDDLE_STRESS_SECONDS", 3) * 1000);
    atomic_store(&s.stop, true);
    for (int i = 0; i < n_workers + n_breakers; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    fprintf(stderr, "  %s: %u calls went well, %u failed; %u restarts, %u looks at checkpointed buffers\n", settings,
            atomic_load(&s.good), atomic_load(&s.lost), atomic_load(&s.restarts), atomic_load(&s.kept));
    CONF_TRUE(atomic_load(&s.good) > 100 && atomic_load(&s.restarts) > 0);

    /* the calm after the storm */
    hd_device_loss loss = {.size = sizeof loss};
    conf_sleep_ms(200); /* by then the last kill is noticed, or by the calls below */
    for (int d = 0; d < s.devices; d++) {
        hd_status status = HD_OK;
        for (int i = 0; i < 50; i++) {
            status = hd_device_restart(s.runtime, d);
            conf_sleep_ms(2);
        }
        CONF_OK(status);
    }
    while (hd_loss_next(s.runtime, &loss) == HD_OK) {
        CONF_TRUE(loss.device >= 0 && loss.device < s.devices);
    }
    for (int d = 0; d < s.devices; d++) {
        wk_works(s.runtime, d);
        hd_device_stats stats = {.size = sizeof stats};
        CONF_OK(hd_device_get_stats(s.runtime, d, &stats));
        CONF_EQUAL(stats.buffers_live, 0);
        CONF_EQUAL(stats.bytes_live, 0);
    }
    CONF_TRUE(conf_children_become(s.devices));
    conf_close(s.runtime);
}

static void with_peers(void **state)
{
    (void)state;
    blow("host_peers=all");
}

static void without_peers(void **state)
{
    (void)state;
    blow("host_peers=none");
}

static void in_small_rings(void **state)
{
    (void)state;
    blow("host_peers=ring lane_slots=64 host_devices=3");
}

int main(void)
{
    wk_begin("test_worker_storm");
    conf_failure_ends_program = true; /* the threads would continue */
    const struct CMUnitTest tests[] = {
        CONF_CASE(with_peers),
        CONF_CASE(without_peers),
        CONF_CASE(in_small_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
