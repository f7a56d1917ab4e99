/* test_close.c - closing at any moment, and many times: with work in flight,
 * copies pending, objects that nobody gave back, and threads that live on.
 *
 * Promise: hd_close returns at any moment, uses nothing afterwards, and the next runtime works.
 *
 * Threads: some that use default lanes and outlive the runtime.
 * Locks: none. The threads wait at barriers.
 * Always: hd_close returns, nothing touches the runtime afterwards, and the next runtime works.
 */
#include "conformance.h"

#include <dirent.h>
#include <pthread.h>

enum { words = 5000, bytes = words * 4 };

/* One case closes before the work ends. As documented, hd_close abandons the device and its thread,
 * which is no leak to report. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

static void works(hd_runtime *runtime)
{
    conf_kernels k = conf_builtins(runtime);
    for (int d = 0; d < hd_device_count(runtime); d++) {
        hd_lane *lane = conf_default_lane(runtime, d);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, k, x, 0, words, 0x700u + (uint32_t)d, NULL));
        CONF_FILLED(x, 0, 0x700u + (uint32_t)d, bytes);
        hd_free(x);
    }
}

static void opens_and_works(void)
{
    hd_runtime *runtime = conf_open(NULL);
    works(runtime);
    conf_close(runtime);
}

static void with_long_kernels_in_flight(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        hd_runtime *runtime = conf_open(NULL);
        int count = hd_device_count(runtime) < 3 ? hd_device_count(runtime) : 3;
        for (int d = 0; d < count; d++) {
            conf_slow slow;
            conf_slow_make(&slow, runtime, d);
            for (int i = 0; i < 8; i++) {
                hd_lane *lane = NULL;
                CONF_OK(hd_lane_create(runtime, d, &lane));
                conf_slow_run(&slow, lane, NULL, (size_t)i * 4, 5, NULL);
            }
        }
        conf_close(runtime);
    }
    opens_and_works();
}

static void with_lanes_that_wait_for_each_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_buffer *x = NULL;
    hd_lane *lanes[4];
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
    }
    CONF_OK(hd_alloc(lanes[0], bytes, &x));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    for (int i = 0; i < 200; i++) {
        if (i % 50 == 0) {
            conf_slow_run(&slow, lanes[i % 4], x, 0, 5, NULL);
        }
        CONF_OK(conf_axpy(lanes[i % 4], slow.kernels, x, 4, x, 0, 1.0f, 1, NULL));
    }
    conf_close(runtime);
    opens_and_works();
}

/* hd_close abandons work that does not end within close_timeout; the program continues. */
static void sooner_than_the_work_ends(void **state)
{
    (void)state;
    static const char *const settings[] = {"close_timeout=0", "close_timeout=5"};
    for (int i = 0; i < 2; i++) {
        hd_runtime *runtime = conf_open(settings[i]);
        conf_slow slow;
        conf_slow_make(&slow, runtime, 0);
        for (size_t j = 0; j < 4; j++) {
            hd_lane *lane = NULL;
            CONF_OK(hd_lane_create(runtime, 0, &lane));
            conf_slow_run(&slow, lane, NULL, j * 4, 150, NULL);
        }
        conf_close(runtime);
        opens_and_works();
    }
}

static void with_copies_pending(void **state)
{
    (void)state;
    enum { large = 24 << 20 };
    uint8_t *data = conf_memory(large);
    memset(data, 3, large);
    for (int round = 0; round < 4; round++) {
        hd_runtime *runtime = conf_open(round % 2 == 0 ? "host_peers=none" : "host_peers=all");
        int last = hd_device_count(runtime) - 1;
        hd_buffer *x = NULL, *y = NULL, *pinned = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), large, &x));
        CONF_OK(hd_alloc(conf_default_lane(runtime, last), large, &y));
        CONF_OK(hd_alloc_host(runtime, large, &pinned));
        CONF_OK(hd_write(x, 0, data, large));
        CONF_OK(hd_copy(y, 0, x, 0, large, NULL));
        CONF_OK(hd_copy(pinned, 0, y, 0, large, NULL));
        CONF_OK(hd_fill(x, 0, 9, large, NULL));
        CONF_OK(hd_copy(y, 0, pinned, 0, large, NULL));
        if (round == 3) {
            hd_free(x);
            hd_free(pinned);
        }
        conf_close(runtime);
    }
    free(data);
    opens_and_works();
}

static void with_everything_alive(void **state)
{
    (void)state;
    for (int round = 0; round < conf_rounds(5); round++) {
        hd_runtime *runtime = conf_open(NULL);
        hd_module *module = NULL;
        CONF_OK(hd_module_get_builtin(runtime, &module));
        conf_kernels k = conf_builtins(runtime);
        for (int d = 0; d < hd_device_count(runtime); d++) {
            for (int i = 0; i < 20; i++) {
                hd_lane *lane = NULL;
                hd_buffer *buffer = NULL;
                CONF_OK(hd_lane_create(runtime, d, &lane));
                CONF_OK(hd_alloc(lane, (size_t)1000 << i % 12, &buffer));
                CONF_OK(conf_fill(lane, k, buffer, 0, 250, 5, NULL));
            }
        }
        for (int i = 0; i < 5; i++) {
            hd_buffer *pinned = NULL;
            void *p = NULL;
            CONF_OK(hd_alloc_host(runtime, 10000, &pinned));
            CONF_OK(hd_map(pinned, HD_WRITE, &p));
            memset(p, 1, 10000);
        }
        conf_close(runtime);
    }
    opens_and_works();
}

static void right_after_submitting(void **state)
{
    (void)state;
    for (int round = 0; round < conf_rounds(40); round++) {
        hd_runtime *runtime = conf_open(NULL);
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = conf_default_lane(runtime, round % hd_device_count(runtime));
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        switch (round % 4) {
        case 0:
            CONF_OK(conf_fill(lane, k, x, 0, words, 1, NULL));
            break;
        case 1:
            CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
            break;
        case 2:
            CONF_OK(conf_fill(lane, k, x, 0, words, 1, NULL));
            hd_free(x);
            break;
        default:
            CONF_OK(conf_fill(lane, k, x, 0, words, 1, NULL));
            hd_lane *other = NULL;
            CONF_OK(hd_lane_create(runtime, round % hd_device_count(runtime), &other));
            CONF_OK(conf_fill(other, k, x, 0, words, 2, NULL));
            hd_lane_destroy(other);
            break;
        }
        conf_close(runtime);
    }
}

static int entries_of(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

static int mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int n = 0, c;
    while (file != NULL && (c = fgetc(file)) != EOF) {
        n += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

/* Threads, descriptors and mappings do not pile up. */
static void a_hundred_times(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int rounds = conf_is_host(runtime) ? 100 : 12,
        early = conf_is_host(runtime) ? 10 : 6; /* opening a GPU takes a second */
    conf_close(runtime);
    int threads = 0, descriptors = 0, maps = 0;
    for (int i = 0; i < rounds; i++) {
        runtime = conf_open(NULL);
        if (i % 10 == 0) {
            works(runtime);
        } else if (i % 2 == 0) {
            hd_buffer *x = NULL;
            CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
            CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
        }
        conf_close(runtime);
        if (i == early) {
            threads = entries_of("/proc/self/task"), descriptors = entries_of("/proc/self/fd"), maps = mappings();
        }
    }
    CONF_TRUE(entries_of("/proc/self/task") <= threads + 2);
    CONF_TRUE(entries_of("/proc/self/fd") <= descriptors + 2);
    if (CONF_SLOWNESS == 1 && mappings() > maps + 30) {
        conf_fail_at(__FILE__, __LINE__, "mappings grew from %d to %d", maps, mappings());
    }
}

/* ---- threads that live longer ---- */

typedef struct survivor {
    hd_runtime *first, *second;
    pthread_barrier_t barrier;
    int number;
} survivor;

static survivor shared;

static void *lives_longer(void *argument)
{
    uint32_t value = (uint32_t)(uintptr_t)argument;
    for (int stage = 0; stage < 2; stage++) {
        hd_runtime *runtime = stage == 0 ? shared.first : shared.second;
        int device = (int)value % hd_device_count(runtime);
        hd_lane *lane = conf_default_lane(runtime, device);
        CONF_TRUE(lane != NULL);
        CONF_EQUAL(hd_lane_device(lane), device);
        conf_kernels k = conf_builtins(runtime);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, k, x, 0, words, value, NULL));
        if (stage == 1) {
            CONF_FILLED(x, 0, value, bytes);
        }
        /* the main thread closes it now, with work in this thread's lane */
        pthread_barrier_wait(&shared.barrier);
        pthread_barrier_wait(&shared.barrier); /* the main thread opened the next one */
    }
    return NULL; /* ends after its runtimes closed */
}

static void threads_outlive_runtimes(void **state)
{
    (void)state;
    enum { n = 4 };
    for (int round = 0; round < conf_rounds(5); round++) {
        pthread_barrier_init(&shared.barrier, NULL, n + 1);
        shared.first = conf_open(NULL);
        shared.second = NULL;
        pthread_t threads[n];
        for (int i = 0; i < n; i++) {
            CONF_EQUAL(pthread_create(&threads[i], NULL, lives_longer, (void *)(uintptr_t)(i + 1)), 0);
        }
        pthread_barrier_wait(&shared.barrier);
        conf_close(shared.first);
        shared.second = conf_open(NULL); /* may get the same address */
        pthread_barrier_wait(&shared.barrier);
        pthread_barrier_wait(&shared.barrier);
        conf_close(shared.second);
        pthread_barrier_wait(&shared.barrier);
        for (int i = 0; i < n; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&shared.barrier);
    }
    opens_and_works();
}

static void *opens_and_closes(void *argument)
{
    (void)argument;
    for (int i = 0; i < conf_rounds(CONF_TSAN ? 4 : 10); i++) {
        hd_runtime *runtime = conf_open(NULL);
        works(runtime);
        conf_close(runtime);
    }
    return NULL;
}

static void several_threads_open_and_close(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        CONF_EQUAL(pthread_create(&threads[i], NULL, opens_and_closes, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void *closes(void *argument)
{
    conf_close(argument);
    return NULL;
}

static void by_another_thread(void **state)
{
    (void)state;
    for (int round = 0; round < conf_rounds(5); round++) {
        hd_runtime *runtime = conf_open(NULL);
        works(runtime);
        conf_slow slow;
        conf_slow_make(&slow, runtime, 0);
        conf_slow_run(&slow, conf_default_lane(runtime, 0), NULL, 0, 5, NULL);
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, closes, runtime), 0);
        pthread_join(thread, NULL);
    }
    opens_and_works();
}

int main(void)
{
    conf_begin("test_close");
    const struct CMUnitTest tests[] = {
        CONF_CASE(with_long_kernels_in_flight), CONF_CASE(with_lanes_that_wait_for_each_other),
        CONF_CASE(with_copies_pending),         CONF_CASE(with_everything_alive),
        CONF_CASE(right_after_submitting),      CONF_CASE(a_hundred_times),
        CONF_CASE(threads_outlive_runtimes),    CONF_CASE(several_threads_open_and_close),
        CONF_CASE(by_another_thread),           CONF_CASE(sooner_than_the_work_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
