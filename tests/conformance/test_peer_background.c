/* test_peer_background.c - copies between two devices while a test of their pair runs.
 *
 * Promise: During a test of a pair, copies go through pinned memory, and kernels wait.
 *
 * Kernels wait for the verdict. After it, copies take the direct route. hd_close ends a test.
 *
 * The devices that work on a copy show its route. A direct copy is an operation of one device, one
 * through pinned memory of both.
 *
 * Threads: the main one, and those of a case.
 * Locks: none.
 */
#include "workers.h"

#include "peers.h" /* whose names are short */

#include <stdatomic.h>

static uint64_t operations(hd_runtime *runtime, int device)
{
    hd_device_stats stats = {.size = sizeof stats};
    CONF_OK(hd_device_get_stats(runtime, device, &stats));
    return stats.operations;
}

enum { BY_SOURCE = 1, BY_DESTINATION = 2, STAGED = BY_SOURCE | BY_DESTINATION };

/* Copies a small buffer to the other device, and waits. Returns which of the devices worked on
 * it. */
static int copy_once(hd_runtime *runtime, hd_buffer *dst, int dst_device, hd_buffer *src, int src_device)
{
    CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 60 * CONF_SECOND)); /* only the copy counts */
    CONF_OK(hd_buffer_wait(src, HD_READ_WRITE, 60 * CONF_SECOND));
    uint64_t at_dst = operations(runtime, dst_device), at_src = operations(runtime, src_device);
    hd_ticket ticket;
    CONF_OK(hd_copy(dst, 0, src, 0, 4096, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    int by = operations(runtime, src_device) > at_src ? BY_SOURCE : 0;
    return by | (operations(runtime, dst_device) > at_dst ? BY_DESTINATION : 0);
}

/* Opens a runtime of two devices whose test does not end while "wait" exists. Skips the case if no
 * thread tests pairs beside the program. */
static hd_runtime *open_waiting(const char *more)
{
    if (!on_host()) {
        skip();
    }
    make_script();
    write_text("wait", "");
    char settings[200];
    snprintf(settings, sizeof settings, "host_devices=2 %s", more);
    hd_runtime *runtime = open_with_script(settings);
    if (conf_is_inline(runtime)) {
        conf_close(runtime);
        skip();
    }
    return runtime;
}

static void await_test(void)
{
    while (!exists("waiting")) {
        conf_sleep_ms(2);
    }
}

/* Returns the route of copies from device 0 to device 1, whose tests find no fault. On a busy
 * machine a test may find either direction of access slow. */
static int good_way(hd_runtime *runtime)
{
    hd_peer_info by_source = ask(runtime, 0, 1);
    CONF_TRUE(is_good(by_source.verdict));
    if (by_source.verdict == HD_PEER_USABLE) {
        return BY_SOURCE;
    }
    hd_peer_info by_destination = ask(runtime, 1, 0);
    CONF_TRUE(is_good(by_destination.verdict));
    return by_destination.verdict == HD_PEER_USABLE ? BY_DESTINATION : STAGED;
}

/* Copies until the copies take that route: the verdict applies a moment after it is known. */
static void await_way(hd_runtime *runtime, hd_buffer *dst, int dst_device, hd_buffer *src, int src_device, int way)
{
    while (copy_once(runtime, dst, dst_device, src, src_device) != way) {
        conf_sleep_ms(2);
    }
}

static void copies_go_on_while_their_pair_is_tested(void **state)
{
    (void)state;
    hd_runtime *runtime = open_waiting("");
    hd_buffer *x[2];
    make_buffers(runtime, x, 2);
    for (int i = 0; i < 5; i++) {
        CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
        CONF_EQUAL(copy_once(runtime, x[0], 0, x[1], 1), STAGED);
        copies_are_right(runtime, 0, 1);
    }
    await_test(); /* it began, and did not end */
    CONF_FILLED(x[1], 0, 1000, 4096);
    CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
    remove_file("wait");
    await_way(runtime, x[1], 1, x[0], 0, good_way(runtime));
    copies_are_right(runtime, 0, 1);
    kernels_are_right(runtime, 0, 1);
    CONF_EQUAL(count_runs(), 1);
    conf_close(runtime);
    /* a copy does not wait for the content of a file, either */
    runtime = open_with_script("host_devices=2");
    make_buffers(runtime, x, 2);
    int taken = copy_once(runtime, x[1], 1, x[0], 0), good = good_way(runtime);
    CONF_TRUE(taken == STAGED || taken == good);
    await_way(runtime, x[1], 1, x[0], 0, good);
    CONF_TRUE(ask(runtime, 0, 1).remembered);
    conf_close(runtime);
    /* after a check of the pair copies take that route at once */
    runtime = open_with_script("host_devices=2");
    make_buffers(runtime, x, 2);
    int way = good_way(runtime);
    CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), way);
    CONF_EQUAL(count_runs(), 1);
    conf_close(runtime);
}

/* One copy by each route, with work before, between and behind them, all of it in flight. */
static void either_route_keeps_the_order(void **state)
{
    (void)state;
    hd_runtime *runtime = open_waiting("");
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_buffer *x[2], *y[2];
    make_buffers(runtime, x, 2);
    make_buffers(runtime, y, 2);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    wk_gate gate;
    wk_gate_shut(&gate, runtime, lane, k);
    /* behind the gate, like all of the rest */
    CONF_OK(conf_fill(lane, conf_builtins(runtime), x[0], 0, words, 1, NULL));
    CONF_OK(hd_copy(x[1], 0, x[0], 0, bytes, NULL));
    await_test();
    CONF_OK(wk_add_one(conf_default_lane(runtime, 1), k, x[1], words, NULL));
    remove_file("wait");
    CONF_OK(conf_fill(conf_default_lane(runtime, 0), conf_builtins(runtime), y[1], 0, words, 5,
                      NULL)); /* the verdict is known by now */
    hd_ticket ticket;
    CONF_OK(hd_copy(x[0], 4, x[1], 0, bytes - 4,
                    &ticket)); /* reads the destination of the first copy, and writes its source */
    CONF_OK(hd_copy(x[1], 4, x[0], 0, bytes - 4, &ticket));
    CONF_OK(wk_add_one(conf_default_lane(runtime, 0), k, x[0], words, NULL));
    CONF_TRUE(!hd_done(ticket));
    wk_gate_open(&gate);
    uint32_t *got = conf_memory(bytes);
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_read(x[i], 0, got, bytes));
        for (uint32_t w = 0; w < words; w++) {
            uint32_t wanted = i == 0 ? (w == 0 ? 2 : 3) : w == 1 ? 1 : 2;
            if (got[w] != wanted) {
                conf_fail_at(__FILE__, __LINE__, "buffer %d, word %u is %u, not %u", i, w, got[w], wanted);
            }
        }
    }
    free(got);
    conf_close(runtime);
}

/* Copies that began before the verdict wait for a claim. Later copies take the direct route, even
 * if they wait for the same claim. */
static void a_copy_that_waits_keeps_no_other_staged(void **state)
{
    (void)state;
    hd_runtime *runtime = open_waiting("");
    hd_buffer *x[2], *y[2];
    make_buffers(runtime, x, 2);
    make_buffers(runtime, y, 2);
    hd_claim *claim = NULL;
    const hd_arg use = hd_inout(y[0]);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
    hd_ticket staged[40], direct;
    for (int i = 0; i < 40; i++) {
        CONF_OK(hd_copy(y[1], 0, y[0], 0, 4096, &staged[i]));
    }
    await_test();
    CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
    remove_file("wait");
    int way = good_way(runtime);
    await_way(runtime, x[1], 1, x[0], 0, way);
    uint64_t before = operations(runtime, 0) + operations(runtime, 1);
    CONF_OK(hd_copy(y[1], 4096, y[0], 4096, 4096, &direct));
    CONF_TRUE(!hd_done(staged[0]) && !hd_done(direct));
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_OK(hd_wait(direct, 60 * CONF_SECOND));
    CONF_OK(hd_wait(staged[39], 60 * CONF_SECOND));
    /* each staged copy is two operations, and so is a direct one that is slow */
    uint64_t after = operations(runtime, 0) + operations(runtime, 1);
    CONF_EQUAL(after - before, 2 * 40 + (way == STAGED ? 2 : 1));
    copies_are_right(runtime, 0, 1);
    conf_close(runtime);
}

/* Corrupt pairs stay with pinned memory, or are used in the other direction. */
static void a_bad_verdict_keeps_copies_away(void **state)
{
    (void)state;
    static const struct {
        const char *corrupt;
        int way;
    } cases[] = {{"0>1", BY_DESTINATION}, {"\"0>1:fault 1>0:crash\"", STAGED}, {"\"0>1:copies 1>0:stores\"", STAGED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char settings[100];
        snprintf(settings, sizeof settings, "host_corrupt=%s", cases[i].corrupt);
        remove_file("waiting");
        hd_runtime *runtime = open_waiting(settings);
        hd_buffer *x[2];
        make_buffers(runtime, x, 2);
        CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
        await_test();
        copies_are_right(runtime, 0, 1);
        remove_file("wait");
        expect(runtime, 0, 1, HD_PEER_CORRUPT);
        await_way(runtime, x[1], 1, x[0], 0, cases[i].way);
        copies_are_right(runtime, 0, 1);
        kernels_are_refused(runtime, 0, 1, "corrupt");
        conf_close(runtime);
    }
}

typedef struct asker {
    pthread_t thread;
    hd_runtime *runtime;
    hd_buffer *far;
    hd_kernel *fill;
    int how;
    hd_status status;
    atomic_bool about_to, done;
} asker;

static void *needs_a_verdict(void *argument)
{
    asker *a = argument;
    hd_peer_info info = {.size = sizeof info};
    hd_arg args[] = {hd_out(a->far), hd_u64(words), hd_u32(7)};
    hd_lane *lane = conf_default_lane(a->runtime, 0);
    atomic_store(&a->about_to, true);
    a->status = a->how == 0   ? hd_launch(lane, a->fill, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 3, NULL)
                : a->how == 1 ? hd_peer_check(a->runtime, 0, 1, &info)
                              : hd_peers_check(a->runtime, 0, NULL, NULL);
    atomic_store(&a->done, true);
    return NULL;
}

static void begin_askers(asker *askers, hd_runtime *runtime, hd_buffer *far)
{
    for (int i = 0; i < 3; i++) {
        askers[i] = (asker){.runtime = runtime, .far = far, .fill = conf_builtins(runtime).fill, .how = i};
        CONF_EQUAL(pthread_create(&askers[i].thread, NULL, needs_a_verdict, &askers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        while (!atomic_load(&askers[i].about_to)) {
            conf_sleep_ms(1);
        }
    }
}

static void kernels_wait_for_the_verdict(void **state)
{
    (void)state;
    hd_runtime *runtime = open_waiting("");
    hd_buffer *x[2];
    make_buffers(runtime, x, 2);
    CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
    await_test();
    asker askers[3];
    begin_askers(askers, runtime, x[1]);
    for (int i = 0; i < 10; i++) {
        CONF_EQUAL(copy_once(runtime, x[0], 0, x[1], 1), STAGED);
        CONF_TRUE(!atomic_load(&askers[0].done) && !atomic_load(&askers[1].done) && !atomic_load(&askers[2].done));
    }
    remove_file("wait");
    for (int i = 0; i < 3; i++) {
        CONF_EQUAL(pthread_join(askers[i].thread, NULL), 0);
        CONF_EQUAL(askers[i].status, HD_OK);
    }
    CONF_FILLED(x[1], 0, 7, bytes);
    CONF_EQUAL(count_runs(), 1);
    conf_close(runtime);
}

/* Counts the processes that run in the case's folder, as the script does. */
static int count_tests(void)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        char path[300], where[256];
        snprintf(path, sizeof path, "/proc/%s/cwd", entry->d_name);
        ssize_t length = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? readlink(path, where, 255) : -1;
        where[length < 0 ? 0 : length] = '\0';
        n += strcmp(where, folder) == 0;
    }
    closedir(proc);
    return n;
}

/* Nothing is left of a test that would not end, and a call that waited for it returns. */
static void hd_close_ends_a_test(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        remove_file("waiting");
        hd_runtime *runtime = open_waiting("peer_timeout=86400000");
        hd_buffer *x[2];
        make_buffers(runtime, x, 2);
        if (round < 2) {
            CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
            await_test();
        }
        asker askers[3];
        if (round > 0) {
            /* in the last round they begin the test themselves */
            begin_askers(askers, runtime, x[1]);
            await_test();
        }
        hd_error none = {.size = sizeof none}, left = {.size = sizeof left};
        hd_last_error(&none);
        conf_close(runtime);
        hd_last_error(&left);
        CONF_TRUE(strcmp(none.message, left.message) == 0); /* hd_close left no message */
        for (int i = 0; i < 3 && round > 0; i++) {
            CONF_EQUAL(pthread_join(askers[i].thread, NULL), 0);
            CONF_EQUAL(askers[i].status, HD_ERROR_HANDLE);
        }
        CONF_TRUE(exists("wait") && conf_children_become(0));
        while (count_tests() != 0) { /* the script sleeps */
            conf_sleep_ms(2);
        }
    }
}

/* A later copy repeats a test that could not run, and no copy fails. */
static void what_could_not_be_tested_stays_staged(void **state)
{
    (void)state;
    hd_runtime *runtime = open_waiting("");
    hd_buffer *x[2];
    make_buffers(runtime, x, 2);
    write_text("extra", "devices=77");
    remove_file("wait");
    for (int i = 0; i < 5; i++) {
        CONF_EQUAL(copy_once(runtime, x[1], 1, x[0], 0), STAGED);
    }
    CONF_EQUAL(ask(runtime, 0, 1).verdict, HD_PEER_INCONCLUSIVE);
    copies_are_right(runtime, 0, 1);
    remove_file("extra");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    await_way(runtime, x[1], 1, x[0], 0, good_way(runtime));
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_peer_background");
    const struct CMUnitTest tests[] = {
        PEER_CASE(copies_go_on_while_their_pair_is_tested),
        PEER_CASE(either_route_keeps_the_order),
        PEER_CASE(a_copy_that_waits_keeps_no_other_staged),
        PEER_CASE(a_bad_verdict_keeps_copies_away),
        PEER_CASE(kernels_wait_for_the_verdict),
        PEER_CASE(hd_close_ends_a_test),
        PEER_CASE(what_could_not_be_tested_stays_staged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
