/* test_worker_faults.c - every way to lose a device, with work, peer copies and staged copies under
 * way on all devices.
 *
 * Promise: If a worker ends, only its device is lost; the loss is reported once, with its cause.
 * Tier: full.
 *
 * The report also names the work under way.
 *
 * Threads: those of traffic.h.
 * Locks: none.
 * Always: only the affected device is lost. The others' results are exact, and they miss no ticket.
 * No call hangs.
 */
#include "traffic.h"

enum { words = 5000, bytes = words * 4 };

/* ---- with work on all ---- */

static void lose_in_traffic(int way, const char *peers, size_t size)
{
    if (conf_on_gpus && strcmp(peers, "all") != 0) {
        return; /* the links of GPUs are fixed */
    }
    hd_runtime *runtime = conf_open_with("host_peers=%s %s", peers, wk_settings(way));
    wk_kernels k = wk_load(runtime);
    int count = hd_device_count(runtime), lost = count - 1;
    if (!wk_can(runtime, way, k)) {
        conf_close(runtime);
        return;
    }
    hd_lane *lane = NULL;
    hd_buffer *x = NULL;
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    wk_no_loss(runtime);
    static traffic all;
    traffic_start(&all, runtime, lost, !wk_ways[way].counts_launches, size, true);
    if (!wk_ways[way].counts_launches) {
        traffic_goes_on(&all, 2);
    }
    wk_lose(runtime, lost, way, k, lane, x);
    wk_told(runtime, lost, way, 1);
    traffic_notices(&all);
    traffic_goes_on(&all, 3);
    traffic_stop(&all);

    uint32_t word = 0;
    hd_ticket ticket = {NULL, 9};
    CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_write(x, 0, &word, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_fill(x, 0, 1, 4, &ticket), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(conf_fill(lane, conf_builtins(runtime), x, 0, 4, 1, &ticket), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_lane_wait(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    wk_others_work(runtime, lost);
    wk_no_loss(runtime);
    conf_close(runtime);
}

static void lose_with_all_peers(int way)
{
    static const struct {
        const char *peers;
        size_t size;
    } table[] = {{"all", CONF_TSAN ? 1 << 18 : 1 << 20}, {"none", CONF_TSAN ? 1 << 18 : 1 << 20}, {"ring", 16384}};
    for (int i = 0; i < 3; i++) {
        /* with sanitizers one for each way, in turn */
        if (CONF_SLOWNESS == 1 || conf_on_gpus || i == way % 3) {
            lose_in_traffic(way, table[i].peers, table[i].size);
        }
    }
}

#define IN_TRAFFIC(function, way)                                                                                      \
    static void function(void **state)                                                                                 \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        lose_with_all_peers(way);                                                                                      \
    }
IN_TRAFFIC(killed_in_traffic, WK_KILL)
IN_TRAFFIC(stopped_in_traffic, WK_STOP)
IN_TRAFFIC(an_illegal_address_in_traffic, WK_STRAY)
IN_TRAFFIC(a_kernel_aborts_in_traffic, WK_CRASH)
IN_TRAFFIC(a_kernel_leaves_in_traffic, WK_LEAVE)
IN_TRAFFIC(a_kernel_never_ends_in_traffic, WK_SPIN)
IN_TRAFFIC(a_driver_call_hangs_in_traffic, WK_HANG)

/* Large copies, so that one is under way for sure. */
static void killed_in_large_copies(void **state)
{
    (void)state;
    size_t size = (CONF_TSAN ? 1 : 24) << 20;
    lose_in_traffic(WK_KILL, "all", size);
    lose_in_traffic(WK_STOP, "none", size);
}

/* Every device, one after the other and all at once. */
static void all_are_killed(void **state)
{
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        hd_runtime *runtime = conf_open(NULL);
        conf_kernels k = conf_builtins(runtime);
        int count = hd_device_count(runtime);
        count = count > 16 ? 16 : count;
        hd_ticket tickets[16];
        pid_t pids[16];
        bool told[16] = {false};
        for (int d = 0; d < count; d++) {
            hd_buffer *x = NULL;
            hd_lane *lane = conf_default_lane(runtime, d);
            CONF_OK(hd_alloc(lane, bytes, &x));
            for (int i = 0; i < 50; i++) {
                CONF_OK(conf_fill(lane, k, x, 0, words, 1, &tickets[d]));
            }
            pids[d] = wk_pid(runtime, d);
        }
        for (int d = 0; d < count; d++) {
            CONF_EQUAL(kill(pids[d], SIGKILL), 0);
            if (!at_once) {
                hd_device_loss loss = wk_only_loss(runtime, d);
                CONF_EQUAL(loss.cause, HD_LOSS_WORKER_ENDED);
                CONF_TRUE(wk_goes(pids[d], wk_gone_ms()));
            }
        }
        for (int i = 0; at_once && i < count; i++) {
            hd_device_loss loss = wk_next_loss(runtime);
            CONF_TRUE(loss.device >= 0 && loss.device < count && !told[loss.device]);
            CONF_EQUAL(loss.losses, 1);
            told[loss.device] = true;
        }
        wk_no_loss(runtime);
        for (int d = 0; d < count; d++) {
            hd_status status = hd_wait(tickets[d], 60 * CONF_SECOND);
            CONF_TRUE(status == HD_OK || status == HD_ERROR_DEVICE_LOST);
            CONF_TRUE(hd_done(tickets[d]));
        }
        hd_buffer *pinned = NULL; /* no device can pin it: refused or not, nothing breaks */
        hd_status status = hd_alloc_host(runtime, bytes, &pinned);
        CONF_TRUE(status == HD_OK || status == HD_ERROR_DEVICE_LOST);
        conf_close(runtime);
    }
}

/* ---- the report of a loss ---- */

/* The report names the running operation and those behind it, each with its own address. */
static void the_operation_under_way_is_named(void **state)
{
    (void)state;
    static const int ways[] = {WK_KILL, WK_STOP, WK_SPIN};
    for (int i = 0; i < 3; i++) {
        const wk_way *w = &wk_ways[ways[i]];
        hd_runtime *runtime = conf_open_with("%s", wk_settings(ways[i]));
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        int lost = hd_device_count(runtime) - 1;
        hd_lane *lane = NULL;
        hd_buffer *x = NULL;
        CONF_OK(hd_lane_create(runtime, lost, &lane));
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        wk_gate gate;
        hd_ticket behind, filled;
        wk_warm(runtime, lost, k);
        wk_gate_shut(&gate, runtime, lane, k);
        CONF_OK(wk_add_one(lane, k, x, words, &behind));
        CONF_OK(hd_fill(x, 0, 3, bytes, &filled)); /* in another lane, behind it */
        if (ways[i] != WK_SPIN) {
            wk_lose(runtime, lost, ways[i], k, lane, x);
        }
        hd_error error = {.size = sizeof error};
        CONF_FAILS_WITH(hd_wait(gate.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, w->word);
        hd_last_error(&error);
        assert_string_equal(error.kernel, "spin");
        CONF_EQUAL(error.device, lost);
        CONF_EQUAL(error.lane, hd_lane_number(lane));
        CONF_EQUAL(error.ticket, gate.ticket.sequence);
        CONF_EQUAL(error.driver_code, 0); /* the driver reported nothing */
        CONF_TRUE(strstr(error.message, "spin") != NULL && error.operation[0] != '\0');
        CONF_FAILS_WITH(hd_wait(behind, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, w->word);
        hd_last_error(&error);
        CONF_EQUAL(error.device, lost);
        CONF_FAILS_WITH(hd_wait(filled, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, w->word);
        hd_device_loss loss = wk_told(runtime, lost, ways[i], 1);
        if (strstr(loss.message, "spin") == NULL) {
            conf_fail_at(__FILE__, __LINE__, "'spin' is not in '%s'", loss.message);
        }
        CONF_FAILS_WITH(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST, w->word);
        CONF_FAILS_WITH(hd_lane_wait(lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, w->word);
        hd_buffer *fresh = NULL;
        CONF_FAILS_WITH(hd_alloc(lane, 64 << 20, &fresh), HD_ERROR_DEVICE_LOST, w->word);
        CONF_FAILS_WITH(hd_lane_create(runtime, lost, &lane), HD_ERROR_DEVICE_LOST, w->word);
        hd_unmap(gate.pinned);
        conf_close(runtime);
    }
}

/* Results of the functions about losses for bad arguments. */
static void losses_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int descriptor = 4711;
    CONF_FAILS(hd_loss_descriptor(NULL, &descriptor), HD_ERROR_HANDLE);
    CONF_FAILS(hd_loss_descriptor(runtime, NULL), HD_ERROR_ARGUMENT);
    CONF_EQUAL(descriptor, 4711);
    hd_device_loss loss = {.size = sizeof loss, .device = 4711};
    CONF_FAILS(hd_loss_next(NULL, &loss), HD_ERROR_HANDLE);
    CONF_FAILS(hd_loss_next(runtime, NULL), HD_ERROR_ARGUMENT);
    loss.size = 0;
    CONF_FAILS(hd_loss_next(runtime, &loss), HD_ERROR_ARGUMENT);
    loss.size = 5;
    CONF_FAILS(hd_loss_next(runtime, &loss), HD_ERROR_ARGUMENT);
    CONF_EQUAL(loss.device, 4711);
    wk_no_loss(runtime);
    CONF_OK(hd_loss_descriptor(runtime, &descriptor));
    CONF_EQUAL(descriptor, wk_descriptor(runtime)); /* the same each time */
    conf_close(runtime);
}

/* The loss is reported although no thread makes a call. */
static void an_idle_worker_is_missed(void **state)
{
    (void)state;
    static const int ways[] = {WK_KILL, WK_STOP};
    for (int i = 0; i < 2; i++) {
        hd_runtime *runtime = conf_open_with("%s", wk_settings(ways[i]));
        int lost = hd_device_count(runtime) - 1;
        pid_t pid = wk_pid(runtime, lost);
        wk_lose(runtime, lost, ways[i], (wk_kernels){0}, NULL, NULL);
        CONF_TRUE(wk_readable(wk_descriptor(runtime), 60000));
        CONF_TRUE(wk_goes(pid, 5000));
        wk_told(runtime, lost, ways[i], 1);
        wk_others_work(runtime, lost);
        conf_close(runtime);
    }
}

/* A stop shorter than the limit only delays. */
static void a_short_stop_costs_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    int last = hd_device_count(runtime) - 1;
    pid_t pid = wk_pid(runtime, last);
    hd_lane *lane = conf_default_lane(runtime, last);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, bytes, &x));
    /* The first launch on a device loads the kernel's code there, with a request to the worker. */
    CONF_OK(conf_fill(lane, k, x, 0, words, 5, NULL));
    for (int i = 0; i < 3; i++) {
        CONF_EQUAL(kill(pid, SIGSTOP), 0);
        while (wk_state(pid) != 'T') {
            conf_sleep_ms(1);
        }
        CONF_OK(conf_fill(lane, k, x, 0, words, 5, &ticket));
        CONF_FAILS(hd_wait(ticket, 50 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        CONF_TRUE(!hd_done(ticket));
        CONF_EQUAL(kill(pid, SIGCONT), 0);
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_FILLED(x, 0, 5, bytes);
    }
    wk_no_loss(runtime);
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_faults");
    const struct CMUnitTest tests[] = {
        CONF_CASE(losses_take_nulls),
        CONF_CASE(killed_in_traffic),
        CONF_CASE(stopped_in_traffic),
        CONF_CASE(an_illegal_address_in_traffic),
        CONF_CASE(a_kernel_aborts_in_traffic),
        CONF_CASE(a_kernel_leaves_in_traffic),
        CONF_CASE(a_kernel_never_ends_in_traffic),
        CONF_CASE(a_driver_call_hangs_in_traffic),
        CONF_CASE(killed_in_large_copies),
        CONF_CASE(all_are_killed),
        CONF_CASE(the_operation_under_way_is_named),
        CONF_CASE(an_idle_worker_is_missed),
        CONF_CASE(a_short_stop_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
