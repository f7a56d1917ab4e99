/* test_device_lost.c - operations that cost their device, and all other work, which must continue.
 *
 * Promise: A fault costs only its own device, and names kernel, lane, ticket and driver code.
 *
 * The faults are illegal addresses, stray writes and fatal codes of the driver.
 *
 * Threads: the main one, one that works on another device meanwhile, and some that read.
 * Locks: none.
 * Always: a failure names kernel, lane, ticket, device and driver code, and costs that device and
 * no other.
 *
 * The cases that kill a device run on host devices and with workers. On GPUs without workers they
 * run only with HEDDLE_TEST_FAULTS=1, since a GPU that faults takes down the driver of the whole
 * process.
 */
#include "failed.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define NEED_LOSABLE(runtime)                                                                                          \
    do {                                                                                                               \
        if (!conf_isolates(runtime) && getenv("HEDDLE_TEST_FAULTS") == NULL) {                                         \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* A call that is refused after a loss does not count as an operation that was under way. */
#define LOST(call)                                                                                                     \
    do {                                                                                                               \
        CONF_FAILS(call, HD_ERROR_DEVICE_LOST);                                                                        \
        CONF_TRUE(strstr(hd_message(), "this operation") == NULL);                                                     \
    } while (0)

/* Reads far past the end of all mapped memory: an illegal address, which changes no memory. */
static hd_status run_away(hd_lane *lane, conf_kernels k, hd_buffer *total, hd_buffer *x, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(total, 0, 4), hd_in(x), hd_u64(UINT64_C(1) << 38)};
    return hd_launch(lane, k.sum, conf_dims(2, 1, 1), conf_dims(256, 1, 1), 0, args, 3, out);
}

typedef struct bystander {
    hd_runtime *runtime;
    int device;
    atomic_bool stop;
    int rounds;
} bystander;

/* Works on another device while one is lost. */
static void *goes_on(void *argument)
{
    bystander *b = argument;
    hd_lane *lane = conf_default_lane(b->runtime, b->device);
    conf_kernels k = conf_builtins(b->runtime);
    hd_buffer *x = NULL;
    uint32_t got[words];
    CONF_OK(hd_alloc(lane, bytes, &x));
    while (!atomic_load(&b->stop) || b->rounds < 10) {
        uint32_t value = (uint32_t)b->rounds++;
        CONF_OK(conf_fill(lane, k, x, 0, words, value, NULL));
        CONF_OK(hd_read(x, 0, got, bytes));
        CONF_EQUAL(got[0], value);
        CONF_EQUAL(got[words - 1], value);
    }
    hd_free(x);
    return NULL;
}

static void an_illegal_address_costs_one_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    NEED_LOSABLE(runtime);
    bool isolated = conf_isolates(runtime);
    int count = hd_device_count(runtime), lost = count - 1;
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL, *other = NULL;
    hd_buffer *x = NULL, *total = NULL, *pinned = NULL;
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    CONF_OK(hd_lane_create(runtime, lost, &other));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc(lane, 64, &total));
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    CONF_OK(hd_fill(total, 0, 0, 64, NULL));
    CONF_OK(hd_fill(pinned, 0, 6, bytes, NULL));
    CONF_FILLED(pinned, 0, 6, bytes);
    bystander by = {.runtime = runtime, .device = 0};
    pthread_t thread;
    if (isolated && count > 1) {
        CONF_EQUAL(pthread_create(&thread, NULL, goes_on, &by), 0);
    }
    int number = hd_lane_number(lane);
    hd_ticket bad, behind = {NULL, 0};
    CONF_OK(run_away(lane, k, total, x, &bad));
    hd_status after = conf_fill(lane, k, x, 0, words, 3, &behind); /* may already be refused */
    hd_status status = hd_wait(bad, 60 * CONF_SECOND);
    CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED);
    check_address(status, "hd_sum_f32", lost, number, bad, 0);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_TRUE(error.driver_code == 700 || error.driver_code == 719 || !conf_is_host(runtime));
    CONF_TRUE(hd_done(bad));
    if (after == HD_OK) {
        status = hd_wait(behind, 60 * CONF_SECOND);
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED);
    }
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, lost, &info));
    CONF_TRUE(info.lost);
    CONF_EQUAL(info.losses, 1);
    CONF_EQUAL(info.worker_pid, 0);
    CONF_EQUAL(info.memory_free_bytes, 0);
    CONF_TRUE(info.name[0] != '\0' && info.memory_bytes > 0);

    /* the device refuses all later work */
    uint32_t word = 0;
    hd_lane *fresh = NULL;
    hd_buffer *y = NULL;
    LOST(conf_fill(other, k, x, 0, words, 3, NULL));
    LOST(hd_fill(x, 0, 3, bytes, NULL));
    LOST(hd_write(x, 0, &word, 4));
    LOST(hd_read(x, 0, &word, 4));
    LOST(hd_copy(pinned, 0, x, 0, 4, NULL));
    LOST(hd_copy(x, 0, pinned, 0, 4, NULL));
    LOST(hd_lane_create(runtime, lost, &fresh));
    LOST(hd_alloc(other, 64 << 20, &y));
    CONF_FAILS(hd_lane_wait(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    LOST(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_TRUE(fresh == NULL && y == NULL);

    /* the others lose nothing */
    if (isolated && count > 1) {
        atomic_store(&by.stop, true);
        pthread_join(thread, NULL);
        CONF_TRUE(by.rounds >= 10);
        CONF_FILLED(pinned, 0, 6, bytes);
        for (int d = 0; d < count - 1; d++) {
            CONF_OK(hd_device_get_info(runtime, d, &info));
            CONF_TRUE(!info.lost);
            hd_lane *good = conf_default_lane(runtime, d);
            hd_buffer *b = NULL;
            CONF_OK(hd_alloc(good, bytes, &b));
            CONF_OK(conf_fill(good, k, b, 0, words, 40 + (uint32_t)d, NULL));
            CONF_FILLED(b, 0, 40 + (uint32_t)d, bytes);
            CONF_OK(hd_copy(pinned, 0, b, 0, bytes, NULL));
            CONF_FILLED(pinned, 0, 40 + (uint32_t)d, bytes);
            hd_status cross = hd_copy(b, 0, x, 0, bytes, NULL); /* from the lost one */
            CONF_TRUE(cross == HD_ERROR_DEVICE_LOST || cross == HD_ERROR_FAILED);
        }
    }
    hd_free(x);
    hd_free(total);
    hd_lane_destroy(lane);
    conf_close(runtime);

    if (isolated) { /* a new runtime opens all of them again */
        runtime = conf_open(NULL);
        CONF_EQUAL(hd_device_count(runtime), count);
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, lost), bytes, &b));
        CONF_OK(hd_fill(b, 0, 8, bytes, NULL));
        CONF_FILLED(b, 0, 8, bytes);
        conf_close(runtime);
    }
}

/* A kernel that writes past everything. */
static void a_stray_write_costs_one_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    NEED_LOSABLE(runtime);
    int lost = hd_device_count(runtime) - 1;
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, lost);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    hd_arg args[] = {hd_out(x), hd_u64(UINT64_C(1) << 38), hd_u32(0)};
    hd_ticket ticket;
    CONF_OK(hd_launch(lane, k.fill, conf_dims(1 << 28, 1, 1), conf_dims(256, 1, 1), 0, args, 3, &ticket));
    hd_status status = hd_wait(ticket, 100 * CONF_SECOND);
    CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED);
    check_address(status, "hd_fill_u32", lost, hd_lane_number(lane), ticket, 0);
    CONF_FAILS(hd_fill(x, 0, 3, bytes, NULL), HD_ERROR_DEVICE_LOST);
    if (lost > 0 && conf_isolates(runtime)) {
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &b));
        CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, b, 0, words, 5, NULL));
        CONF_FILLED(b, 0, 5, bytes);
    }
    conf_close(runtime);
}

/* All devices are lost one after the other, with work in flight on each; closing is clean. */
static void all_devices_are_lost(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    NEED_LOSABLE(runtime);
    if (!conf_isolates(runtime)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    int count = hd_device_count(runtime);
    hd_ticket bad[64];
    for (int d = 0; d < count; d++) {
        hd_lane *lane = conf_default_lane(runtime, d);
        hd_buffer *x = NULL, *total = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_alloc(lane, 64, &total));
        CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
        CONF_OK(hd_fill(total, 0, 0, 64, NULL));
        CONF_OK(run_away(lane, k, total, x, &bad[d]));
    }
    for (int d = 0; d < count; d++) {
        hd_status status = hd_wait(bad[d], 60 * CONF_SECOND);
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED);
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        CONF_EQUAL(error.device, d);
    }
    conf_close(runtime);
}

/* A driver call returns a code that means that the device is gone. */
static void a_fatal_code_is_a_lost_device(void **state)
{
    (void)state;
    static const char *const faults[] = {"fault=cuLaunchKernel:1+=700", "fault=cuLaunchKernel:1+=719",
                                         "fault=cuLaunchKernel:1+=214"};
    static const int codes[] = {700, 719, 214};
    for (int i = 0; i < 3; i++) {
        hd_runtime *runtime = conf_open(faults[i]);
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *x = NULL;
        hd_ticket ticket;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, k, x, 0, words, 3, &ticket));
        hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
        CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
        check_address(status, "hd_fill_u32", 0, hd_lane_number(lane), ticket, codes[i]);
        CONF_FAILS(conf_fill(lane, k, x, 0, words, 3, &ticket), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
        /* and the loss is reported, once */
        int descriptor = -1;
        CONF_OK(hd_loss_descriptor(runtime, &descriptor));
        struct pollfd p = {.fd = descriptor, .events = POLLIN};
        CONF_EQUAL(poll(&p, 1, 60000), 1);
        hd_device_loss loss = {.size = sizeof loss};
        CONF_OK(hd_loss_next(runtime, &loss));
        CONF_EQUAL(loss.device, 0);
        CONF_EQUAL(loss.cause, HD_LOSS_DRIVER);
        CONF_EQUAL(loss.driver_code, codes[i]);
        CONF_EQUAL(loss.signal, 0);
        CONF_EQUAL(loss.losses, 1);
        CONF_TRUE(loss.message[0] != '\0' && strchr(loss.message, '\n') == NULL);
        CONF_FAILS(hd_loss_next(runtime, &loss), HD_ERROR_NOT_FOUND);
        CONF_EQUAL(poll(&p, 1, 0), 0);
        conf_close(runtime);
    }
}

/* ---- allocations that wait for memory ---- */

enum { waits_plain, waits_dedicated, waits_kept, waits_unified, waits_tensor, wait_kinds, mib = 1 << 20 };

typedef struct allocation {
    hd_lane *lane;
    int kind;
    hd_status status;
    char message[512];
} allocation;

static void *allocates(void *argument)
{
    allocation *a = argument;
    hd_buffer *b = NULL;
    hd_tensor t;
    const uint64_t shape[] = {8 * mib};
    hd_alloc_options options = {.size = sizeof options,
                                .flags = a->kind == waits_kept        ? HD_ALLOC_KEEP
                                         : a->kind == waits_dedicated ? HD_ALLOC_DEDICATED
                                                                      : 0};
    a->status = a->kind == waits_unified  ? hd_alloc_unified(a->lane, 8 * mib, &b)
                : a->kind == waits_tensor ? hd_tensor_alloc(a->lane, HD_TYPE_U8, 1, shape, &t)
                                          : hd_alloc_with(a->lane, 8 * mib, &options, &b);
    snprintf(a->message, sizeof a->message, "%s", hd_message());
    return NULL;
}

static uint64_t drains(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, 0, &stats));
    return stats.drains;
}

/* The memory that they wait for does not come any more. */
static void allocations_that_wait_are_told_of_the_loss(void **state)
{
    (void)state;
    for (int kind = 0; kind < wait_kinds; kind++) {
        hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1+=700 memory_limit=16M memory_timeout=600000");
        hd_buffer *held = NULL;
        allocation a = {.lane = conf_default_lane(runtime, 0), .kind = kind};
        pthread_t thread;
        hd_ticket ticket;
        CONF_OK(hd_alloc(a.lane, 12 * mib, &held));
        conf_failure_ends_program = true;
        CONF_EQUAL(pthread_create(&thread, NULL, allocates, &a), 0);
        while (drains(runtime) < 2) { /* the watchdog ends a case that waits for ever */
            conf_sleep_ms(1);
        }
        hd_status status = conf_fill(a.lane, conf_builtins(runtime), held, 0, words, 3, &ticket);
        CONF_FAILS(status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status, HD_ERROR_DEVICE_LOST);
        pthread_join(thread, NULL);
        conf_failure_ends_program = false;
        if (a.status != HD_ERROR_DEVICE_LOST || strstr(a.message, "device 0") == NULL ||
            strstr(a.message, "lost") == NULL || strstr(a.message, "ILLEGAL_ADDRESS") == NULL) {
            conf_fail_at(__FILE__, __LINE__, "kind %d: %s: %s", kind, hd_status_name(a.status), a.message);
        }
        conf_close(runtime);
    }
}

/* ---- what a lost device still writes ---- */

typedef struct reader {
    hd_buffer *buffer;
    hd_status status;
    uint32_t got[words];
} reader;

static void *reads(void *argument)
{
    reader *r = argument;
    r->status = hd_read(r->buffer, 0, r->got, bytes);
    return NULL;
}

/* A device counts as lost while its hardware still works. Its late writes must not reach the work
 * of others through pinned memory that counts as free. */
static void late_work_of_a_lost_device_spoils_nothing(void **state)
{
    (void)state;
    enum { n_readers = 4, n_writes = 40 };
    int lost = 0;
    for (int round = 0; round < 16 && lost < 4; round++) {
        hd_runtime *runtime = conf_open("fault=cuLaunchKernel:900=700");
        CONF_NEED_DEVICES(runtime, 2);
        conf_slow slow[2];
        hd_lane *lanes[2], *trigger = NULL;
        hd_buffer *x[n_readers], *y[n_writes], *z = NULL, *gate = NULL;
        for (int d = 0; d < 2; d++) {
            conf_slow_make(&slow[d], runtime, d);
            CONF_OK(hd_lane_create(runtime, d, &lanes[d]));
        }
        CONF_OK(hd_lane_create(runtime, 1, &trigger));
        CONF_OK(hd_alloc(trigger, bytes, &z));
        CONF_OK(hd_alloc(lanes[0], 64, &gate));
        CONF_OK(hd_fill(gate, 0, 0, 64, NULL));
        for (int i = 0; i < n_writes; i++) {
            CONF_OK(hd_alloc(lanes[0], bytes, &y[i]));
            CONF_OK(hd_fill(y[i], 0, 0, bytes, NULL));
        }
        for (int i = 0; i < n_readers; i++) {
            CONF_OK(hd_alloc(lanes[1], bytes, &x[i]));
            CONF_OK(hd_fill(x[i], 0, 0x66666666u, bytes, NULL));
        }
        for (int i = 0; i < n_readers; i++) {
            CONF_OK(hd_buffer_wait(x[i], HD_READ_WRITE, 60 * CONF_SECOND));
        }

        /* device 1: long work, then copies to the program that wait for it, each in a thread */
        conf_slow_run(&slow[1], lanes[1], NULL, 0, 60, NULL);
        pthread_t threads[n_readers];
        static reader readers[n_readers];
        for (int i = 0; i < n_readers; i++) {
            CONF_OK(conf_fill(lanes[1], slow[1].kernels, x[i], 0, words, 0x77777777u, NULL));
            readers[i] = (reader){.buffer = x[i], .status = HD_OK};
            CONF_EQUAL(pthread_create(&threads[i], NULL, reads, &readers[i]), 0);
        }
        conf_sleep_ms(5);
        /* device 0: longer work, in front of all that is written below */
        conf_slow_run(&slow[0], lanes[0], NULL, 0, 120, NULL);
        for (int i = 0; i < n_writes; i++) {
            CONF_OK(conf_fill(lanes[0], slow[0].kernels, y[i], 0, words, 1, NULL));
        }
        hd_status status = HD_OK;
        hd_ticket ticket;
        for (int i = 0; i < 1000 && status == HD_OK; i++) { /* until device 1 is lost */
            status = conf_fill(trigger, slow[1].kernels, z, 0, words, 5, &ticket);
        }
        status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status;
        for (int i = 0; i < n_readers; i++) {
            pthread_join(threads[i], NULL);
        }
        /* on a busy machine the launch that fails may be on device 0: try again */
        if (status == HD_OK) {
            conf_close(runtime);
            continue;
        }
        CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
        lost++;
        uint32_t data[words];
        for (int i = 0; i < n_writes; i++) {
            conf_pattern(data, bytes, (uint64_t)i);
            CONF_OK(hd_write(y[i], 0, data, bytes));
        }
        for (int i = 0; i < n_writes; i++) {
            conf_pattern(data, bytes, (uint64_t)i);
            CONF_HOLDS(y[i], 0, data, bytes);
        }
        conf_close(runtime);
    }
    CONF_TRUE(lost > 0);
}

int main(void)
{
    conf_begin("test_device_lost");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_fatal_code_is_a_lost_device),
        CONF_CASE(an_illegal_address_costs_one_device),
        CONF_CASE(a_stray_write_costs_one_device),
        CONF_CASE(all_devices_are_lost),
        CONF_CASE(allocations_that_wait_are_told_of_the_loss),
        CONF_CASE(late_work_of_a_lost_device_spoils_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
