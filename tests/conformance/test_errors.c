/* test_errors.c - the effects of a failed operation on its ticket, its lane, its buffers and its
 * dependents. All other work continues. test_device_lost.c tests failures that cost a device.
 *
 * Promise: A failed operation fails its lane and the readers of its result, and nothing else.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a failure names kernel, lane, ticket, device and driver code, and spoils only its
 * dependents.
 */
#include "failed.h"

/* ---- one launch fails, by a fault ---- */

typedef struct failing {
    hd_runtime *runtime;
    conf_kernels k;
    hd_lane *lane, *other;
    hd_buffer *spoilt, *good, *dependent; /* spoilt: the output of the failed launch */
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
    /* the runtime may have launched kernels of its own before */
    while (status == HD_OK && tries++ < 20) {
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
    for (int i = 0; i < 3; i++) { /* it stays so, and reports the same each time */
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
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(f.runtime, 0, &info));
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
    CONF_TRUE(strstr(hd_message(), "hd_lane_reset") != NULL); /* the remedy */
    /* other lanes and buffers work */
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
    /* the failure of that write */
    check_address(status, "hd_fill_u32", 0, hd_lane_number(f.lane), f.ticket, 1);
    CONF_FAILS(hd_read(f.spoilt, bytes - 4, got, 4), HD_ERROR_FAILED);
    CONF_FAILS(hd_copy(pinned, 0, f.spoilt, 0, bytes, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(hd_copy(f.good, 0, f.spoilt, 0, bytes, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(conf_copy(f.other, f.k, f.dependent, 0, f.spoilt, 0, words, &ticket), HD_ERROR_FAILED);
    CONF_FAILS(conf_axpy(f.other, f.k, f.spoilt, 0, f.good, 0, 1, words, &ticket), HD_ERROR_FAILED);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    CONF_FAILS(hd_buffer_wait(f.spoilt, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);

    /* half of it written again: a read of that half succeeds, a read of the other half fails */
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
    hd_free(f.spoilt); /* freeing heals too: a new allocation there is valid */
    hd_buffer *fresh = NULL;
    CONF_OK(hd_alloc(f.other, bytes, &fresh));
    CONF_OK(conf_fill(f.other, f.k, fresh, 0, words, 3, NULL));
    CONF_FILLED(fresh, 0, 3, bytes);
    conf_close(f.runtime);
}

/* The same for pinned memory, which the program writes without a copy in a lane. */
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

/* Work was submitted before the failure was noticed. Operations that depend on the failed one fail
 * as well, and all others continue. */
static void what_depends_on_a_failure_fails(void **state)
{
    (void)state;
    int seen_at_submit = 0, seen_at_wait = 0;
    for (int round = 0; round < 10; round++) {
        /* among the first launches of the lane with long work; launches of the long work count
         * too */
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
            /* the failure of y reaches z */
            status = conf_copy(lanes[2], k, z, 0, y, 0, words, &in_z);
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
            CONF_FILLED(y, 0, 1, bytes); /* the launch was refused: as before */
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

/* Copies and fills fail in lanes of the library: the next ones must work again. */
static void failed_copies_do_not_stop_copies(void **state)
{
    (void)state;
    static const char *const faults[] = {"fault=cuMemcpyHtoDAsync:2=1", "fault=cuMemcpyDtoHAsync:2=1",
                                         "fault=cuLaunchHostFunc:2=1",  "fault=cuMemcpyDtoDAsync:2=1",
                                         "fault=cuMemsetD32Async:2=1",  "fault=cuMemcpyPeerAsync:2=1"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        hd_runtime *runtime = conf_open(faults[i]);
        hd_lane *lane = conf_default_lane(runtime, 0);
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
                /* one call failed: at most its own round and one that it spoilt */
                CONF_TRUE(failures <= 2);
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
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *buffers[60];
    int n = 0;
    hd_status status = HD_OK;
    while (n < 60 && (status = hd_alloc(lane, 4 << 20, &buffers[n])) == HD_OK) {
        CONF_OK(hd_fill(buffers[n], 0, (uint32_t)n, 4 << 20, NULL));
        n++;
    }
    CONF_TRUE(n < 60);
    CONF_FAILS(status, HD_ERROR_MEMORY);
    for (int i = 0; i < n; i++) { /* existing objects still work */
        CONF_FILLED(buffers[i], 0, (uint32_t)i, 4096);
        hd_free(buffers[i]);
    }
    conf_close(runtime);
    runtime = conf_open("fault=cuMemHostAlloc:1=2");
    hd_buffer *pinned = NULL;
    status = hd_alloc_host(runtime, 1 << 20, &pinned);
    if (status != HD_OK) { /* otherwise a call of the library itself failed */
        CONF_FAILS(status, HD_ERROR_HOST_MEMORY);
        CONF_OK(hd_alloc_host(runtime, 1 << 20, &pinned));
    }
    conf_close(runtime);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
