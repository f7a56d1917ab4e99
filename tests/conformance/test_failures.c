/* test_failures.c - a failed operation fails everything that reads its result, however late the
 * engine notices the failure.
 *
 * Promise: All readers of a failed result fail, however late, and the order of other work holds.
 *
 * The cases also cover hangs and breaks of several failures at once. Failures come from the options
 * `fault` and `delay`.
 *
 * Threads: the main one, and several in the case of many readers.
 * Locks: none.
 */
#include "conformance.h"

#include <pthread.h>

enum { words = 4096, bytes = 4 * words };

/* Each failed copy is reported, however many fail. */
static void no_failure_is_forgotten(void **state)
{
    (void)state;
    enum { n = 40 };
    hd_runtime *runtime = conf_open("fault=cuMemcpyHtoDAsync:1+=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x[n];
    static const uint8_t data[bytes];
    uint8_t got[64];
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lane, bytes, &x[i]));
        CONF_OK(hd_write(x[i], 0, data, bytes));
    }
    for (int i = 0; i < n; i++) {
        CONF_FAILS(hd_read(x[i], 0, got, sizeof got), HD_ERROR_FAILED);
    }
    conf_close(runtime);
}

/* The driver refuses a wait between lanes; the order holds nevertheless. */
static void a_refused_wait_keeps_the_order(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuStreamWaitEvent:1+=1");
    conf_kernels k = conf_builtins(runtime);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *a = NULL, *b = NULL;
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &a));
    CONF_OK(hd_lane_create(runtime, 0, &b));
    CONF_OK(hd_alloc(a, bytes, &x));
    CONF_OK(hd_alloc(a, bytes, &y));
    CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
    CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
    conf_slow_run(&slow, a, NULL, 0, 100, NULL);
    CONF_OK(conf_copy(a, k, y, 0, x, 0, words, NULL)); /* reads x late */
    CONF_OK(conf_fill(b, k, x, 0, words, 2, NULL));    /* must wait for that */
    CONF_OK(hd_fill(x, 0, 3, bytes, NULL));
    CONF_FILLED(y, 0, 1, bytes);
    CONF_FILLED(x, 0, 3, bytes);
    conf_slow_free(&slow);
    conf_close(runtime);
}

/* Lane b waits for lane a's latest operation for order only. Then it reads bytes that an earlier,
 * failed operation should have written. */
static void a_wait_for_order_hides_no_failure(void **state)
{
    (void)state;
    /* the delayed first launch keeps the engine busy while the others are submitted */
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:2=1 delay=cuLaunchKernel:1=200000");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *busy = NULL, *a = NULL, *b = NULL;
    hd_buffer *z = NULL, *x = NULL, *y = NULL, *out = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &busy));
    CONF_OK(hd_lane_create(runtime, 0, &a));
    CONF_OK(hd_lane_create(runtime, 0, &b));
    CONF_OK(hd_alloc(a, bytes, &z));
    CONF_OK(hd_alloc(a, bytes, &x));
    CONF_OK(hd_alloc(a, bytes, &y));
    CONF_OK(hd_alloc(b, bytes, &out));
    CONF_OK(hd_fill(y, 0, 0, bytes, NULL));
    CONF_OK(hd_fill(out, 0, 9, bytes, NULL));
    CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(out, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(conf_fill(busy, k, z, 0, words, 1, NULL));
    CONF_OK(conf_fill(a, k, x, 0, words, 7, NULL)); /* fails */
    hd_status reader = conf_copy(a, k, z, 0, y, 0, words, NULL);
    CONF_TRUE(reader == HD_OK || reader == HD_ERROR_LANE_FAILED);
    CONF_OK(conf_fill(b, k, y, 0, words, 3, NULL)); /* after a's reader */
    hd_ticket ticket = {NULL, 0};
    hd_status status = conf_copy(b, k, out, 0, x, 0, words, &ticket);
    status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status;
    CONF_FAILS(status, HD_ERROR_FAILED);
    uint32_t got[4];
    status = hd_read(out, 0, got, sizeof got);
    CONF_TRUE(status == HD_ERROR_FAILED || (status == HD_OK && got[0] == 9));
    conf_close(runtime);
}

/* Copies share lanes that do not keep failures. There each copy fails by its source, and one that
 * replaces failed bytes succeeds. */
static void a_copy_fails_by_what_it_reads(void **state)
{
    (void)state;
    /* the delayed first launch keeps the engine busy while the others are submitted */
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:2=1 delay=cuLaunchKernel:1=200000");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *busy = NULL, *a = NULL;
    hd_buffer *x[4] = {NULL};
    CONF_OK(hd_lane_create(runtime, 0, &busy));
    CONF_OK(hd_lane_create(runtime, 0, &a));
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_alloc(a, bytes, &x[i]));
    }
    CONF_OK(conf_fill(busy, k, x[3], 0, words, 1, NULL));
    CONF_OK(conf_fill(a, k, x[0], 0, words, 7, NULL)); /* fails */
    hd_ticket first = {NULL, 0}, second = {NULL, 0}, third = {NULL, 0};
    hd_status status = hd_copy(x[1], 0, x[0], 0, bytes, &first);
    hd_status of_copy = hd_copy(x[2], 0, x[1], 0, bytes, &second);
    hd_status replaced = hd_fill(x[1], 0, 5, bytes, &third);
    CONF_FAILS(status ? status : hd_wait(first, 60 * CONF_SECOND), HD_ERROR_FAILED);
    /* if the first copy was refused at once, nothing wrote the buffer */
    CONF_TRUE(status || (of_copy ? of_copy : hd_wait(second, 60 * CONF_SECOND)) == HD_ERROR_FAILED);
    CONF_OK(replaced);
    CONF_OK(hd_wait(third, 60 * CONF_SECOND));
    CONF_FILLED(x[1], 0, 5, bytes);
    CONF_OK(hd_copy(x[2], 0, x[1], 0, bytes, &third));
    CONF_OK(hd_wait(third, 60 * CONF_SECOND));
    CONF_FILLED(x[2], 0, 5, bytes);
    conf_close(runtime);
}

/* The driver refuses to write completion flags: a waiter still wakes when work on two devices is
 * done. */
static void completion_without_words(void **state)
{
    (void)state;
    enum { many = 1 << 20 };
    hd_runtime *runtime = conf_open("fault=cuMemsetD32Async:1+=1"); /* so no hd_fill here */
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *a = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(a, 4 * many, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 1), 4 * many, &y));
    for (uint32_t i = 0; i < 10; i++) {
        hd_ticket ticket;
        CONF_OK(conf_fill(a, k, x, 0, many, i, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, 4 * many, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_FILLED(y, 0, i, 4 * many);
    }
    conf_close(runtime);
}

enum { n_readers = 8, large = 24 << 20 };

static void *reads_large(void *argument)
{
    uint8_t *got = malloc(large);
    hd_status status = got ? hd_read(argument, 0, got, large) : HD_ERROR_HOST_MEMORY;
    for (size_t i = 0; status == HD_OK && i < large; i++) {
        status = got[i] == 0x55 ? HD_OK : HD_ERROR_FAILED;
    }
    free(got);
    return status == HD_OK ? argument : NULL;
}

/* Readers share the pinned chunks, and never wait for each other in a circle. */
static void many_threads_read_much(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), large, &x));
    CONF_OK(hd_fill(x, 0, 0x55555555u, large, NULL));
    pthread_t threads[n_readers];
    for (int i = 0; i < n_readers; i++) {
        CONF_EQUAL(pthread_create(&threads[i], NULL, reads_large, x), 0);
    }
    int good = 0;
    for (int i = 0; i < n_readers; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        good += result != NULL;
    }
    CONF_EQUAL(good, n_readers);
    conf_close(runtime);
}

static void *uses_two_runtimes(void *argument)
{
    hd_runtime *a = NULL, *b = NULL;
    const hd_options options = {sizeof options, argument};
    bool good = hd_open(&options, &a) == HD_OK && hd_open(&options, &b) == HD_OK && conf_default_lane(a, 0) &&
                conf_default_lane(b, 0);
    hd_close(b);
    good = good && conf_default_lane(a, 0) != NULL;
    hd_close(a);
    return good ? argument : NULL;
}

/* A thread that used lanes of a closed runtime ends cleanly. */
static void a_thread_ends_after_its_runtime(void **state)
{
    (void)state;
    char none[] = "";
    pthread_t thread;
    void *result = NULL;
    CONF_EQUAL(pthread_create(&thread, NULL, uses_two_runtimes, none), 0);
    pthread_join(thread, &result);
    CONF_TRUE(result != NULL);
}

/* A freed handle stays refused, however often its structure is reused. */
static void stale_handles_stay_stale(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *first = NULL, *x = NULL;
    CONF_OK(hd_alloc(lane, 64, &first));
    hd_free(first);
    for (int i = 0; i < 70000; i++) {
        CONF_OK(hd_alloc(lane, 64, &x));
        CONF_TRUE(x != first);
        hd_free(first); /* ignored */
        CONF_EQUAL(hd_buffer_size(x), 64);
        hd_free(x);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_failures");
    const struct CMUnitTest tests[] = {
        CONF_CASE(no_failure_is_forgotten),           CONF_CASE(a_refused_wait_keeps_the_order),
        CONF_CASE(a_wait_for_order_hides_no_failure), CONF_CASE(a_copy_fails_by_what_it_reads),
        CONF_CASE(completion_without_words),          CONF_CASE(many_threads_read_much),
        CONF_CASE(a_thread_ends_after_its_runtime),   CONF_CASE(stale_handles_stay_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
