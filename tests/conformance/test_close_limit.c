/* test_close_limit.c - hd_close returns within its limit, and lists all that it had to leave
 * behind.
 *
 * Promise: hd_close returns within its limit and lists what it left behind.
 *
 * Threads: one that closes beside the main one.
 * Locks: none.
 * Always: the watchdog ends a case that hangs. A kernel that was left behind ends with its case.
 * Its flag lies in memory that was left behind, too.
 */
#include "workers.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/wait.h"

enum { bytes = 4096, watchdog_ms = 300 };

/* Closing a case leaves objects behind, which are no leak to report. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static void says(const char *word)
{
    if (strstr(hd_message(), word) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "hd_close reports \"%s\", not \"%s\"", hd_message(), word);
    }
}

/* The watchdog gives up a kernel without end, which continues in the driver of this process. */
static void what_was_given_up_is_left(bool by_read)
{
    hd_runtime *runtime = conf_open_with("watchdog=%d close_timeout=300", watchdog_ms);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    if (!conf_is_process(runtime) && conf_on_gpus) {
        conf_close(runtime);
        skip();
    }
    bool is_process = conf_is_process(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    wk_gate gate;
    uint32_t word = 0;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    wk_gate_shut(&gate, runtime, lane, k);
    hd_arg args[] = {hd_inout(x)};
    CONF_OK(hd_launch(lane, k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL));
    if (by_read) {
        CONF_FAILS(hd_read(x, 0, &word, sizeof word), HD_ERROR_DEVICE_LOST);
    } else {
        CONF_FAILS(hd_lane_wait(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    }
    conf_close(runtime);
    if (!is_process) {
        says("hd_close: work did not end on the lost device");
        says("left as they are");
        wk_gate_open(&gate);
    }
}

static void after_a_read_that_was_given_up(void **state)
{
    (void)state;
    what_was_given_up_is_left(true);
}

static void after_a_wait_that_was_given_up(void **state)
{
    (void)state;
    what_was_given_up_is_left(false);
}

/* Without a watchdog: the message names the operation, the lane and the option. */
static void work_without_end_is_named(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("close_timeout=100");
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    bool is_process = conf_is_process(runtime);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, conf_default_lane(runtime, 0), k);
    conf_close(runtime);
    says("the launch of kernel 'spin'");
    says("close_timeout=100");
    says(is_process ? "its worker process was ended" : "left as they are");
    if (!is_process) {
        wk_gate_open(&gate);
    }
}

/* The claim waits for the kernel, which is the cause, so both are named. */
static void a_claim_behind_work_without_end_is_named_with_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("close_timeout=100");
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    bool is_process = conf_is_process(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    hd_claim *claim = NULL;
    wk_gate gate;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    wk_gate_shut(&gate, runtime, lane, k);
    hd_arg use = hd_inout(x);
    CONF_OK(hd_launch(lane, k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, &use, 1, NULL));
    hd_claim_options options = {.size = sizeof options, .label = "behind"};
    CONF_OK(hd_claim_begin_with(runtime, &use, 1, &options, &claim));
    conf_close(runtime);
    says("the launch of kernel 'spin'");
    says("claim 'behind' of ");
    if (!is_process) {
        wk_gate_open(&gate);
    }
}

/* Submits copies, fills and launches in any lane that depend on the kernel by their reads or
 * writes. `last` is the last buffer written. */
static void submit_behind(hd_runtime *runtime, wk_kernels k, hd_buffer *all[], int n, conf_random *r)
{
    int last = 0;
    for (uint64_t left = 1 + conf_below(r, 12); left > 0; left--) {
        int next = (int)conf_below(r, (uint64_t)n);
        hd_arg args[] = {hd_inout(all[last])};
        hd_lane *lane = conf_default_lane(runtime, 0);
        switch (conf_below(r, 3)) {
        case 0:
            CONF_OK(hd_fill(all[last], 0, 1, bytes, NULL));
            break;
        case 1:
            CONF_OK(hd_launch(lane, k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL));
            break;
        default:
            if (next != last) {
                CONF_OK(hd_copy(all[next], 0, all[last], 0, bytes, NULL));
            }
            last = next;
            break;
        }
    }
}

/* The message names the kernel without end, for any work behind it, in any lane. */
static void work_behind_work_without_end_is_not_blamed(void **state)
{
    (void)state;
    for (int round = 0; round < conf_rounds(12); round++) {
        hd_runtime *runtime = conf_open("close_timeout=50");
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        conf_random r = {(uint64_t)round};
        hd_buffer *all[6];
        int devices = hd_device_count(runtime) < 2 ? 1 : 2;
        for (int i = 0; i < 6; i++) { /* the first two on device 0: a launch there reads them */
            CONF_OK(hd_alloc(conf_default_lane(runtime, i < 2 ? 0 : i % devices), bytes, &all[i]));
            CONF_OK(hd_fill(all[i], 0, 0, bytes, NULL));
            CONF_OK(hd_buffer_wait(all[i], HD_READ_WRITE, 60 * CONF_SECOND));
        }
        hd_lane *lane = NULL;
        wk_gate gate;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        wk_gate_shut(&gate, runtime, lane, k);
        hd_arg args[] = {hd_inout(all[0])};
        CONF_OK(hd_launch(lane, k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL));
        submit_behind(runtime, k, all, devices == 2 && conf_reaches(runtime, 0, 1) ? 6 : 2, &r);
        bool is_process = conf_is_process(runtime);
        conf_close(runtime);
        says("the launch of kernel 'spin' (device 0");
        if (!is_process) {
            wk_gate_open(&gate);
        }
    }
}

static sem_t goes_on;
static _Atomic int64_t limit_end;    /* clock at which close_timeout is over; 0: no case asks */
static _Atomic int64_t longest_more; /* of the waits that began after it */

/* Called in place of the library's function. */
bool __wrap_hdi_cond_wait(pthread_cond_t *cond, hdi_mutex *mutex, int64_t deadline_ns);
bool __real_hdi_cond_wait(pthread_cond_t *cond, hdi_mutex *mutex, int64_t deadline_ns);
bool __wrap_hdi_cond_wait(pthread_cond_t *cond, hdi_mutex *mutex, int64_t deadline_ns)
{
    int64_t now = hdi_clock_ns(), end = atomic_load(&limit_end);
    if (end != 0 && now >= end && deadline_ns - now > atomic_load(&longest_more)) {
        atomic_store(&longest_more, deadline_ns - now);
    }
    return __real_hdi_cond_wait(cond, mutex, deadline_ns);
}

static hd_status stays_out(void *const *pointers, void *context)
{
    (void)pointers;
    while (sem_wait(&goes_on) != 0) {
    }
    atomic_store((atomic_bool *)context, true);
    return HD_OK;
}

/* A function of the program that does not return is named by the call that submitted it. */
static void a_function_without_end_is_named(void **state)
{
    (void)state;
    static atomic_bool over;
    hd_runtime *runtime = conf_open("close_timeout=100");
    if (conf_is_process(runtime)) {
        conf_close(runtime);
        skip(); /* its workers stay until the program ends */
    }
    CONF_EQUAL(sem_init(&goes_on, 0, 0), 0);
    CONF_OK(hd_launch_host(runtime, stays_out, &over, NULL, 0, NULL));
    conf_track(runtime, NULL);
    CONF_FAILS_WITH(hd_close(runtime), HD_ERROR_TIMEOUT, "of hd_launch_host, does not return");
    CONF_EQUAL(sem_post(&goes_on), 0);
    while (!atomic_load(&over)) {
        conf_sleep_ms(1);
    }
}

static hd_status lane_stays_out(void *stream, void *context)
{
    (void)stream;
    return stays_out(NULL, context);
}

/* The engine runs a function of a lane, and the message names the function, not the engine. */
static void a_function_of_a_lane_without_end_is_named(void **state)
{
    (void)state;
    static atomic_bool over;
    hd_runtime *runtime = conf_open("close_timeout=100");
    if (conf_is_process(runtime) || conf_is_inline(runtime)) {
        conf_close(runtime);
        skip(); /* no function, or it runs on the thread that calls */
    }
    CONF_EQUAL(sem_init(&goes_on, 0, 0), 0);
    CONF_OK(hd_lane_run_native(conf_default_lane(runtime, 0), lane_stays_out, &over, NULL, 0, NULL));
    conf_track(runtime, NULL);
    CONF_FAILS_WITH(hd_close(runtime), HD_ERROR_TIMEOUT, "of hd_lane_run_native, does not return");
    CONF_TRUE(strstr(hd_message(), "engine") == NULL);
    CONF_EQUAL(sem_post(&goes_on), 0);
    while (!atomic_load(&over)) {
        conf_sleep_ms(1);
    }
}

/* A function that used the whole time gets no second wait of that length. */
static void a_function_without_end_is_awaited_once(void **state)
{
    (void)state;
    static atomic_bool over;
    hd_runtime *runtime = conf_open("close_timeout=1000");
    if (conf_is_process(runtime)) {
        conf_close(runtime);
        skip(); /* its workers stay until the program ends */
    }
    CONF_EQUAL(sem_init(&goes_on, 0, 0), 0);
    CONF_OK(hd_launch_host(runtime, stays_out, &over, NULL, 0, NULL));
    conf_track(runtime, NULL);
    atomic_store(&limit_end, conf_now() + CONF_SECOND);
    CONF_FAILS_WITH(hd_close(runtime), HD_ERROR_TIMEOUT, "of hd_launch_host, does not return");
    atomic_store(&limit_end, 0);
    CONF_TRUE(atomic_load(&longest_more) <= CONF_SECOND / 4);
    CONF_EQUAL(sem_post(&goes_on), 0);
    while (!atomic_load(&over)) {
        conf_sleep_ms(1);
    }
}

/* A driver call that gives an object back does not return. */
static void a_driver_that_does_not_return(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("close_timeout=0 delay=cuMemUnmap:1=3000000000");
    if (conf_is_process(runtime)) {
        conf_close(runtime);
        skip(); /* hd_close ends its worker instead */
    }
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    CONF_OK(hd_buffer_wait(x, HD_WRITE, 60 * CONF_SECOND));
    conf_close(runtime);
    says("does not return from the driver");
}

static void *closes(void *runtime)
{
    hd_close(runtime);
    return strstr(hd_message(), "it was closed") != NULL ? runtime : NULL;
}

/* Two threads close at once: one closes, the other is refused. */
static void by_two_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        hd_runtime *runtime = NULL;
        hd_options options = {.size = sizeof options};
        CONF_OK(hd_open(&options, &runtime));
        pthread_t threads[2];
        int refused = 0;
        for (int i = 0; i < 2; i++) {
            CONF_EQUAL(pthread_create(&threads[i], NULL, closes, runtime), 0);
        }
        for (int i = 0; i < 2; i++) {
            void *result = NULL;
            pthread_join(threads[i], &result);
            refused += result != NULL;
        }
        CONF_EQUAL(refused, 1);
    }
}

int main(void)
{
    conf_begin("test_close_limit");
    const struct CMUnitTest tests[] = {
        CONF_CASE(after_a_read_that_was_given_up),
        CONF_CASE(after_a_wait_that_was_given_up),
        CONF_CASE(work_without_end_is_named),
        CONF_CASE(a_claim_behind_work_without_end_is_named_with_it),
        CONF_CASE(work_behind_work_without_end_is_not_blamed),
        CONF_CASE(a_function_without_end_is_named),
        CONF_CASE(a_function_of_a_lane_without_end_is_named),
        CONF_CASE(a_function_without_end_is_awaited_once),
        CONF_CASE(a_driver_that_does_not_return),
        CONF_CASE(by_two_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
