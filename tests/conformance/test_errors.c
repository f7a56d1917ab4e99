/* test_errors.c - what happens after an operation fails: its ticket, its lane, its buffers, what depends on them, its
 * device, and everything else, which must go on.
 *
 * Threads: the main one, and one that submits to another device meanwhile. Locks: none.
 * Always: a failure has an address (kernel, lane, ticket, device, the driver's code), and spoils only what depends on
 * it.
 * The cases that kill a device run on host devices and with workers, and otherwise on GPUs only with HEDDLE_TEST_FAULTS=1,
 * since a GPU that faults takes the driver of the whole process with it.
 */
#include "conformance.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { words = 1000, bytes = words * 4 };

/* The facts of a failed launch are complete. */
static void check_address(hd_status status, const char *kernel, int device, int lane, hd_ticket ticket, int code)
{
    CONF_FAILS(status, status);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    if (strcmp(error.kernel, kernel) != 0 || error.device != device || error.lane != lane ||
        error.ticket != ticket.sequence || (code != 0 && error.driver_code != code) || error.driver_code == 0) {
        conf_fail_at(
            __FILE__, __LINE__,
            "failure of kernel '%s' device %d lane %d ticket %llu code %d, not '%s' %d %d %llu %d; message: %s",
            error.kernel, error.device, error.lane, (unsigned long long)error.ticket, error.driver_code, kernel, device,
            lane, (unsigned long long)ticket.sequence, code, error.message);
    }
    CONF_TRUE(error.operation[0] != '\0');
    CONF_TRUE(strstr(error.message, kernel) != NULL);
}

/* ----------------------------------------------------------------------------------------- one launch fails, by a
 * fault */

typedef struct failing {
    hd_runtime *runtime;
    conf_kernels k;
    hd_lane *lane, *other;
    hd_buffer *spoilt, *good, *dependent; /* spoilt: what the failed launch writes */
    hd_ticket ticket;                     /* of the failed launch */
    int code;
} failing;

/* Opens a runtime in which one launch fails, and makes it fail: a fill of `spoilt` in `lane`. */
static void make_failing(failing *f, const char *settings, int code)
{
    f->runtime = conf_open(settings);
    f->code = code;
    f->k = conf_builtins(f->runtime);
    CONF_OK(hd_lane_create(f->runtime, 0, &f->lane));
    CONF_OK(hd_lane_create(f->runtime, 0, &f->other));
    hd_buffer **all[] = {&f->spoilt, &f->good, &f->dependent};
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_alloc(f->lane, bytes, all[i]));
        CONF_OK(hd_fill(*all[i], 0, (uint32_t)i, bytes, NULL));
    }
    hd_status status = HD_OK;
    int tries = 0;
    while (status == HD_OK && tries++ < 20) { /* the runtime may have made launches of its own before */
        CONF_OK(conf_fill(f->lane, f->k, f->spoilt, 0, words, 7, &f->ticket));
        status = hd_wait(f->ticket, 60 * CONF_SECOND);
    }
    check_address(status, "hd_fill_u32", 0, hd_lane_number(f->lane), f->ticket, code);
    CONF_EQUAL(status, HD_ERROR_FAILED);
}

static void a_failed_launch_has_an_address(void **state)
{
    (void)state;
    failing f;
    make_failing(&f, "fault=cuLaunchKernel:3=1", 1);
    CONF_TRUE(hd_done(f.ticket)); /* finished, without success */
    for (int i = 0; i < 3; i++) { /* it stays so, and says the same each time */
        CONF_FAILS(hd_open(NULL, NULL), HD_ERROR_ARGUMENT);
        hd_status status = hd_wait(f.ticket, 0);
        CONF_EQUAL(status, HD_ERROR_FAILED);
        check_address(status, "hd_fill_u32", 0, hd_lane_number(f.lane), f.ticket, 1);
    }
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_TRUE(strstr(error.operation, "launch") != NULL || strcmp(error.operation, "cuLaunchKernel") == 0);
    hd_status status = hd_lane_wait(f.lane, 60 * CONF_SECOND);
    CONF_FAILS(status, HD_ERROR_FAILED);
    hd_device_info_t info = {.size = sizeof info};
    CONF_OK(hd_device_info(f.runtime, 0, &info));
    CONF_TRUE(!info.lost);
    conf_close(f.runtime);
}

static void a_failed_lane_refuses_work_until_reset(void **state)
{
    (void)state;
    failing f;
    make_failing(&f, "fault=cuLaunchKernel:2=701", 701);
    hd_ticket ticket = {NULL, 9};
    CONF_FAILS(conf_fill(f.lane, f.k, f.good, 0, words, 5, &ticket), HD_ERROR_LANE_FAILED);
    CONF_FAILS(conf_fill(f.lane, f.k, f.spoilt, 0, words, 5, &ticket), HD_ERROR_LANE_FAILED);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    CONF_TRUE(strstr(hd_message(), "hd_lane_reset") != NULL); /* what to do */
    /* other lanes and buffers are not concerned */
    CONF_OK(conf_fill(f.other, f.k, f.good, 0, words, 5, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(f.good, 0, 5, bytes);
    CONF_FILLED(f.dependent, 0, 2, bytes);

    CONF_OK(hd_lane_reset(f.lane, 60 * CONF_SECOND));
    CONF_OK(conf_fill(f.lane, f.k, f.good, 0, words, 6, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(f.good, 0, 6, bytes);
    CONF_OK(hd_lane_wait(f.lane, 60 * CONF_SECOND));
    hd_status status = hd_wait(f.ticket, 0); /* the old ticket stays failed */
    CONF_FAILS(status, HD_ERROR_FAILED);
    conf_close(f.runtime);
}

static void a_spoilt_buffer_cannot_be_read_until_it_is_written(void **state)
{
    (void)state;
    failing f;
    make_failing(&f, "fault=cuLaunchKernel:1=1", 1);
    uint32_t got[words];
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(f.runtime, bytes, &pinned));
    hd_ticket ticket = {NULL, 9};
    hd_status status = hd_read(f.spoilt, 0, got, bytes);
    CONF_FAILS(status, HD_ERROR_FAILED);
    check_address(status, "hd_fill_u32", 0, hd_lane_number(f.lane), f.ticket, 1); /* the failure of that write */
    CONF_FAILS(hd_read(f.spoilt, bytes - 4, got, 4), HD_ERROR_FAILED);
    CONF_FAILS(hd_copy(pinned, 0, f.spoilt, 0, bytes, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(hd_copy(f.good, 0, f.spoilt, 0, bytes, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(conf_copy(f.other, f.k, f.dependent, 0, f.spoilt, 0, words, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(conf_axpy(f.other, f.k, f.spoilt, 0, f.good, 0, 1, words, &ticket), HD_ERROR_FAILED);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    CONF_FAILS(hd_buffer_wait(f.spoilt, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);

    /* half of it written again: that half may be read, the other not */
    CONF_OK(conf_fill(f.other, f.k, f.spoilt, 0, words / 2, 11, NULL));
    CONF_FILLED(f.spoilt, 0, 11, bytes / 2);
    CONF_FAILS(hd_read(f.spoilt, 0, got, bytes / 2 + 4), HD_ERROR_FAILED);
    CONF_FAILS(hd_read(f.spoilt, bytes / 2, got, 4), HD_ERROR_FAILED);
    CONF_OK(hd_fill(f.spoilt, bytes / 2, 12, bytes / 2, NULL));
    CONF_FILLED(f.spoilt, 0, 11, bytes / 2);
    CONF_FILLED(f.spoilt, bytes / 2, 12, bytes / 2);
    CONF_OK(hd_buffer_wait(f.spoilt, HD_READ, 60 * CONF_SECOND));
    CONF_OK(conf_copy(f.other, f.k, f.dependent, 0, f.spoilt, 0, words, NULL));
    CONF_FILLED(f.dependent, 0, 11, bytes / 2);
    conf_close(f.runtime);
}

static void writing_from_the_program_heals_too(void **state)
{
    (void)state;
    failing f;
    make_failing(&f, "fault=cuLaunchKernel:1=1", 1);
    uint32_t data[words];
    conf_pattern(data, bytes, 1);
    CONF_OK(hd_write(f.spoilt, 0, data, bytes));
    CONF_HOLDS(f.spoilt, 0, data, bytes);
    hd_free(f.spoilt); /* and so does freeing: what is allocated there is new */
    hd_buffer *fresh = NULL;
    CONF_OK(hd_alloc(f.other, bytes, &fresh));
    CONF_OK(conf_fill(f.other, f.k, fresh, 0, words, 3, NULL));
    CONF_FILLED(fresh, 0, 3, bytes);
    conf_close(f.runtime);
}

/* The same for pinned memory, which the program writes without any copy in a lane. */
static void writing_heals_pinned_memory_too(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1=1");
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = NULL;
        hd_buffer *pinned = NULL;
        hd_ticket ticket;
        uint32_t data[words];
        conf_pattern(data, bytes, 1);
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
        CONF_OK(conf_fill(lane, k, pinned, 0, words, 5, &ticket));
        CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
        CONF_FAILS(hd_read(pinned, 0, data, bytes), HD_ERROR_FAILED);
        void *p = NULL;
        CONF_FAILS(hd_map(pinned, HD_READ, &p), HD_ERROR_FAILED);
        CONF_TRUE(p == NULL);
        switch (how) {
        case 0:
            CONF_OK(hd_write(pinned, 0, data, bytes));
            CONF_HOLDS(pinned, 0, data, bytes);
            break;
        case 1:
            CONF_OK(hd_fill(pinned, 0, 9, bytes, NULL));
            CONF_FILLED(pinned, 0, 9, bytes);
            break;
        default:
            CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
            CONF_OK(conf_fill(lane, k, pinned, 0, words, 8, NULL));
            CONF_FILLED(pinned, 0, 8, bytes);
            break;
        }
        CONF_OK(hd_map(pinned, HD_READ, &p));
        conf_close(runtime);
    }
}

/* Work that was submitted before the failure was known: what depends on it fails as well, what does not goes on. */
static void what_depends_on_a_failure_fails(void **state)
{
    (void)state;
    int seen_at_submit = 0, seen_at_wait = 0;
    for (int round = 0; round < 10; round++) {
        /* among the first launches of a long one's lane; launches of the long work count too */
        hd_runtime *runtime = conf_open("fault=cuLaunchKernel:12=1");
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lanes[3];
        hd_buffer *x = NULL, *y = NULL, *z = NULL, *apart = NULL;
        for (int i = 0; i < 3; i++) {
            CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
        }
        CONF_OK(hd_alloc(lanes[0], bytes, &x));
        CONF_OK(hd_alloc(lanes[0], bytes, &y));
        CONF_OK(hd_alloc(lanes[0], bytes, &z));
        CONF_OK(hd_alloc(lanes[0], bytes, &apart));
        CONF_OK(hd_fill(y, 0, 1, bytes, NULL));
        CONF_OK(hd_fill(z, 0, 1, bytes, NULL));
        hd_ticket writes[20], in_y = {NULL, 0}, in_z = {NULL, 0}, aside;
        int n = 0, failed = -1;
        hd_status status = HD_OK;
        while (n < 20 && status == HD_OK) {
            status = conf_fill(lanes[0], k, x, 0, words, 5, &writes[n]);
            n += status == HD_OK;
        }
        CONF_TRUE(status == HD_OK || status == HD_ERROR_LANE_FAILED);
        status = conf_copy(lanes[1], k, y, 0, x, 0, words, &in_y);
        if (status == HD_OK) {
            status = conf_copy(lanes[2], k, z, 0, y, 0, words, &in_z); /* y's failure goes on to z */
            if (status != HD_OK) {
                CONF_FAILS(status, HD_ERROR_FAILED);
            }
        } else {
            CONF_FAILS(status, HD_ERROR_FAILED);
            seen_at_submit++;
        }
        CONF_OK(hd_fill(apart, 0, 9, bytes, &aside));
        for (int i = 0; i < n; i++) {
            if (hd_wait(writes[i], 60 * CONF_SECOND) != HD_OK && failed < 0) {
                failed = i;
            }
        }
        CONF_TRUE(failed >= 0);
        for (int i = failed; i < n; i++) { /* the failed one and all behind it in the lane */
            CONF_FAILS(hd_wait(writes[i], 0), HD_ERROR_FAILED);
        }
        uint32_t word;
        CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_FAILED);
        if (in_y.lane != NULL) {
            status = hd_wait(in_y, 60 * CONF_SECOND);
            CONF_FAILS(status, HD_ERROR_FAILED);
            CONF_FAILS(hd_read(y, 0, &word, 4), HD_ERROR_FAILED);
            seen_at_wait++;
        } else {
            CONF_FILLED(y, 0, 1, bytes); /* was refused: as before */
        }
        if (in_z.lane != NULL) {
            status = hd_wait(in_z, 60 * CONF_SECOND);
            CONF_FAILS(status, HD_ERROR_FAILED);
            CONF_FAILS(hd_read(z, 0, &word, 4), HD_ERROR_FAILED);
        }
        CONF_OK(hd_wait(aside, 60 * CONF_SECOND));
        CONF_FILLED(apart, 0, 9, bytes);
        for (int i = 0; i < 3; i++) {
            CONF_OK(hd_lane_reset(lanes[i], 60 * CONF_SECOND));
            CONF_OK(conf_fill(lanes[i], k, i == 0 ? x : i == 1 ? y : z, 0, words, 3, NULL));
        }
        CONF_FILLED(x, 0, 3, bytes);
        CONF_FILLED(y, 0, 3, bytes);
        CONF_FILLED(z, 0, 3, bytes);
        conf_close(runtime);
    }
    CONF_EQUAL(seen_at_submit + seen_at_wait, 10);
}

/* Copies and fills fail in lanes of the library's own: the next ones must work again. */
static void failed_copies_do_not_stop_copies(void **state)
{
    (void)state;
    static const char *const faults[] = {"fault=cuMemcpyHtoDAsync:2=1", "fault=cuMemcpyDtoHAsync:2=1",
                                         "fault=cuMemcpyAsync:2=1",     "fault=cuMemcpyDtoDAsync:2=1",
                                         "fault=cuMemsetD32Async:2=1",  "fault=cuMemcpyPeerAsync:2=1"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        hd_runtime *runtime = conf_open(faults[i]);
        hd_lane *lane = hd_default_lane(runtime, 0);
        hd_buffer *x = NULL, *y = NULL;
        uint32_t data[words], got[words];
        conf_pattern(data, bytes, i);
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_alloc(lane, bytes, &y));
        int failures = 0, good_rounds = 0;
        for (int round = 0; round < 12; round++) {
            hd_ticket ticket = {NULL, 0}, filled = {NULL, 0};
            bool good = hd_write(x, 0, data, bytes) == HD_OK;
            good = good && hd_fill(y, 0, 5, bytes, &filled) == HD_OK;
            good = good && hd_copy(y, 0, x, 0, bytes, &ticket) == HD_OK;
            good = good && hd_wait(filled, 60 * CONF_SECOND) == HD_OK;
            good = good && hd_wait(ticket, 60 * CONF_SECOND) == HD_OK;
            good = good && hd_read(y, 0, got, bytes) == HD_OK;
            if (good) {
                CONF_SAME(got, data, bytes);
                good_rounds++;
            } else {
                hd_error error = {.size = sizeof error};
                hd_last_error(&error);
                if (!(error.status == HD_ERROR_FAILED || error.status == HD_ERROR_DRIVER ||
                      error.status == HD_ERROR_LANE_FAILED) ||
                    error.operation[0] == '\0') {
                    conf_fail_at(__FILE__, __LINE__, "%s, round %d: %s, operation '%s': %s", faults[i], round,
                                 hd_status_name(error.status), error.operation, error.message);
                }
                failures++;
                CONF_TRUE(failures <= 2); /* one call failed: at most its own round and one that it spoilt */
            }
        }
        CONF_TRUE(good_rounds >= 10);
        conf_close(runtime);
    }
}

static void failing_allocations_say_why(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemCreate:3+=2 host_memory=256M");
    hd_lane *lane = hd_default_lane(runtime, 0);
    hd_buffer *buffers[60];
    int n = 0;
    hd_status status = HD_OK;
    while (n < 60 && (status = hd_alloc(lane, 4 << 20, &buffers[n])) == HD_OK) {
        CONF_OK(hd_fill(buffers[n], 0, (uint32_t)n, 4 << 20, NULL));
        n++;
    }
    CONF_TRUE(n < 60);
    CONF_FAILS(status, HD_ERROR_MEMORY);
    for (int i = 0; i < n; i++) { /* what there is goes on working */
        CONF_FILLED(buffers[i], 0, (uint32_t)i, 4096);
        hd_free(buffers[i]);
    }
    conf_close(runtime);
    runtime = conf_open("fault=cuMemHostAlloc:1=2");
    hd_buffer *pinned = NULL;
    status = hd_alloc_host(runtime, 1 << 20, &pinned);
    if (status != HD_OK) { /* else it went to a call of the library's own */
        CONF_FAILS(status, HD_ERROR_HOST_MEMORY);
        CONF_OK(hd_alloc_host(runtime, 1 << 20, &pinned));
    }
    conf_close(runtime);
}

/* ------------------------------------------------------------------------------------------------------- a device is
 * lost */

#define NEED_LOSABLE(runtime)                                                                                          \
    do {                                                                                                               \
        if (!conf_isolates(runtime) && getenv("HEDDLE_TEST_FAULTS") == NULL) {                                         \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Reads far past the end of everything that is mapped: an illegal address, and nobody's memory is changed. */
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
    hd_lane *lane = hd_default_lane(b->runtime, b->device);
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
    hd_device_info_t info = {.size = sizeof info};
    CONF_OK(hd_device_info(runtime, lost, &info));
    CONF_TRUE(info.lost);
    CONF_EQUAL(info.losses, 1);
    CONF_EQUAL(info.worker_pid, 0);
    CONF_EQUAL(info.memory_free_bytes, 0);
    CONF_TRUE(info.name[0] != '\0' && info.memory_bytes > 0);

    /* later work on it is refused, in every way */
    uint32_t word = 0;
    hd_lane *fresh = NULL;
    hd_buffer *y = NULL;
    CONF_FAILS(conf_fill(other, k, x, 0, words, 3, NULL), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_fill(x, 0, 3, bytes, NULL), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_write(x, 0, &word, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_copy(pinned, 0, x, 0, 4, NULL), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_copy(x, 0, pinned, 0, 4, NULL), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_lane_create(runtime, lost, &fresh), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_alloc(other, 64 << 20, &y), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_lane_wait(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_lane_reset(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    CONF_TRUE(fresh == NULL && y == NULL);

    /* the others lose nothing */
    if (isolated && count > 1) {
        atomic_store(&by.stop, true);
        pthread_join(thread, NULL);
        CONF_TRUE(by.rounds >= 10);
        CONF_FILLED(pinned, 0, 6, bytes);
        for (int d = 0; d < count - 1; d++) {
            CONF_OK(hd_device_info(runtime, d, &info));
            CONF_TRUE(!info.lost);
            hd_lane *good = hd_default_lane(runtime, d);
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

    if (isolated) { /* a new runtime has all of them again */
        runtime = conf_open(NULL);
        CONF_EQUAL(hd_device_count(runtime), count);
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(hd_default_lane(runtime, lost), bytes, &b));
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
    hd_lane *lane = hd_default_lane(runtime, lost);
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
        CONF_OK(hd_alloc(hd_default_lane(runtime, 0), bytes, &b));
        CONF_OK(conf_fill(hd_default_lane(runtime, 0), k, b, 0, words, 5, NULL));
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
        hd_lane *lane = hd_default_lane(runtime, d);
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

/* A code that says that the device is gone, from a driver call. */
static void a_fatal_code_is_a_lost_device(void **state)
{
    (void)state;
    static const char *const faults[] = {"fault=cuLaunchKernel:1+=700", "fault=cuLaunchKernel:1+=719",
                                         "fault=cuLaunchKernel:1+=214"};
    static const int codes[] = {700, 719, 214};
    for (int i = 0; i < 3; i++) {
        hd_runtime *runtime = conf_open(faults[i]);
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = hd_default_lane(runtime, 0);
        hd_buffer *x = NULL;
        hd_ticket ticket;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(conf_fill(lane, k, x, 0, words, 3, &ticket));
        hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
        CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
        check_address(status, "hd_fill_u32", 0, hd_lane_number(lane), ticket, codes[i]);
        CONF_FAILS(conf_fill(lane, k, x, 0, words, 3, &ticket), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
        /* and it is told, once */
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

/* A device counts as lost while its hardware still works: what it was told to write before must not end up in what the
 * others do now, through pinned memory that is taken for free. */
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
        conf_nap_ms(5);
        /* device 0: longer work that all that is written below waits for */
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
        if (status == HD_OK) { /* on a busy machine the launch that fails may be one of device 0: try again */
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
    conf_begin("test_errors");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_launch_has_an_address),
        CONF_CASE(a_failed_lane_refuses_work_until_reset),
        CONF_CASE(a_spoilt_buffer_cannot_be_read_until_it_is_written),
        CONF_CASE(writing_from_the_program_heals_too),
        CONF_CASE(writing_heals_pinned_memory_too),
        CONF_CASE(what_depends_on_a_failure_fails),
        CONF_CASE(failed_copies_do_not_stop_copies),
        CONF_CASE(failing_allocations_say_why),
        CONF_CASE(a_fatal_code_is_a_lost_device),
        CONF_CASE(an_illegal_address_costs_one_device),
        CONF_CASE(a_stray_write_costs_one_device),
        CONF_CASE(all_devices_are_lost),
        CONF_CASE(late_work_of_a_lost_device_spoils_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
