/* test_peer_meanwhile.c - verified peer access: other work during tests of pairs, and later
 * changes.
 *
 * Promise: Peer tests hold up no other work; a later verdict applies only to new operations.
 *
 * Threads: the main one, and several that check pairs at once.
 * Locks: none.
 */
#include "peers.h"

/* ---- several at a time ---- */

typedef struct asker {
    pthread_t thread;
    hd_runtime *runtime;
    int device, owner, how;
    hd_peer_info info;
} asker;

static void *ask_somehow(void *argument)
{
    asker *a = argument;
    if (a->how == 0) {
        copies_are_right(a->runtime, a->device, a->owner);
    } else if (a->how == 1) {
        kernels_are_right(a->runtime, a->device, a->owner);
    }
    a->info = ask(a->runtime, a->device, a->owner);
    return NULL;
}

static void threads_wait_for_one_test(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    hd_runtime *runtime = open_with_script("host_devices=3");
    write_text("wait", "");
    asker askers[9];
    for (int i = 0; i < 9; i++) {
        askers[i] =
            (asker){.runtime = runtime, .device = i < 6 ? i % 2 : 2, .owner = i < 6 ? (i + 1) % 2 : 0, .how = i % 3};
        CONF_EQUAL(pthread_create(&askers[i].thread, NULL, ask_somehow, &askers[i]), 0);
    }
    while (!exists("waiting")) {
        conf_sleep_ms(5);
    }
    remove_file("wait");
    for (int i = 0; i < 9; i++) {
        CONF_EQUAL(pthread_join(askers[i].thread, NULL), 0);
        CONF_TRUE(is_good(askers[i].info.verdict));
    }
    CONF_EQUAL(count_runs(), 2); /* one for the devices 0 and 1, one for 2 and 0 */
    CONF_TRUE(askers[0].info.direct_bytes_per_s == askers[2].info.direct_bytes_per_s);
    conf_close(runtime);
    /* another runtime waits, too, and so does another process: it uses the result without a test of
     * its own */
    runtime = open_with_script("host_devices=3");
    CONF_TRUE(ask(runtime, 0, 1).remembered);
    CONF_EQUAL(count_runs(), 2);
    conf_close(runtime);
}

static void two_runtimes_test_in_turn(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    write_text("wait", "");
    asker askers[2];
    for (int i = 0; i < 2; i++) {
        askers[i] = (asker){.runtime = open_with_script("host_devices=2"), .device = 0, .owner = 1, .how = 2};
        CONF_EQUAL(pthread_create(&askers[i].thread, NULL, ask_somehow, &askers[i]), 0);
    }
    while (!exists("waiting")) {
        conf_sleep_ms(5);
    }
    remove_file("wait");
    int remembered = 0;
    for (int i = 0; i < 2; i++) {
        CONF_EQUAL(pthread_join(askers[i].thread, NULL), 0);
        CONF_TRUE(is_good(askers[i].info.verdict));
        remembered += askers[i].info.remembered;
        conf_close(askers[i].runtime);
    }
    CONF_EQUAL(remembered, 1);
    CONF_EQUAL(count_runs(), 1);
}

/* While a test does not end: work, memory, modules, and known pairs. */
static void nothing_else_waits_for_a_test(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    hd_runtime *runtime = open_with_script("host_devices=3");
    kernels_are_right(runtime, 1, 2);
    kernels_are_right(runtime, 2, 1);
    write_text("wait", "");
    asker a = {.runtime = runtime, .device = 0, .owner = 1, .how = 1};
    CONF_EQUAL(pthread_create(&a.thread, NULL, ask_somehow, &a), 0);
    while (!exists("waiting")) {
        conf_sleep_ms(5);
    }
    for (int d = 0; d < 3; d++) {
        kernels_are_right(runtime, d, d);
        hd_buffer *large = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, d), (size_t)40 << 20, &large));
        CONF_OK(hd_fill(large, 0, 1, (size_t)40 << 20, NULL));
        CONF_FILLED(large, (size_t)39 << 20, 1, 4096);
        hd_free(large);
        CONF_OK(hd_memory_trim(runtime, d, 0, NULL));
    }
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_lane_destroy(lane);
    kernels_are_right(runtime, 1, 2);
    copies_are_right(runtime, 2, 1);
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 1 << 20, &pinned));
    hd_free(pinned);
    CONF_TRUE(exists("wait") && count_runs() == 2); /* and it is not over yet */
    remove_file("wait");
    CONF_EQUAL(pthread_join(a.thread, NULL), 0);
    CONF_TRUE(is_good(a.info.verdict));
    conf_close(runtime);
}

static void ask_meanwhile(void *context, int device, int owner, const hd_peer_info *info, int done, int total)
{
    seen *s = context;
    note(s, device, owner, info, done, total);
    CONF_FAILS_WITH(hd_peers_check(s->runtime, 0, NULL, NULL), HD_ERROR_ARGUMENT, "progress");
    hd_peer_info now = ask(s->runtime, device, owner);
    CONF_EQUAL(now.verdict, info->verdict);
    for (int i = 0; i < 3; i++) { /* also about pairs that are not tested yet */
        hd_peer_info other = {.size = sizeof other};
        CONF_OK(hd_peer_check(s->runtime, i, (i + 1) % 3, &other));
        copies_are_right(s->runtime, i, (i + 1) % 3);
    }
    if (info->verdict == HD_PEER_USABLE) {
        kernels_are_right(s->runtime, device, owner);
    }
}

static void progress_may_use_the_runtime(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    hd_runtime *runtime = conf_open_with("host_devices=3 host_corrupt=0>2 cache=%s/cache", folder);
    for (unsigned flags = 0; flags <= HD_PEERS_AGAIN; flags++) {
        memset(&first, 0, sizeof first);
        first.runtime = runtime;
        CONF_OK(hd_peers_check(runtime, flags, ask_meanwhile, &first));
        CONF_EQUAL(first.done, 6);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++) {
                if (i != j) {
                    bool corrupt = i == 0 && j == 2;
                    CONF_TRUE(corrupt ? first.of[i][j].verdict == HD_PEER_CORRUPT : is_good(first.of[i][j].verdict));
                }
            }
        }
    }
    conf_close(runtime);
}

/* ---- later results ---- */

/* A requested test finds a pair in use corrupt, and the pair is no longer used. It is used again
 * once a test finds it good. Earlier work is right. */
static void a_later_finding_counts(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    hd_runtime *runtime = open_with_script("host_devices=2");
    conf_kernels k = conf_builtins(runtime);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_buffer *x[2];
    make_buffers(runtime, x, 2);
    kernels_are_right(runtime, 0, 1);
    hd_ticket ticket;
    conf_slow_run(&slow, conf_default_lane(runtime, 0), NULL, 0, 50, NULL);
    CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x[1], 0, words, 60, &ticket));
    write_text("extra", "host_corrupt=0>1");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_EQUAL(first.of[0][1].verdict, HD_PEER_CORRUPT);
    CONF_TRUE(is_good(first.of[1][0].verdict));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(x[1], 0, 60, bytes);
    kernels_are_refused(runtime, 0, 1, "did not arrive");
    kernels_are_right(runtime, 1, 0);
    copies_are_right(runtime, 0, 1);
    /* which an inconclusive test does not undo */
    write_text("extra", "devices=77");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_EQUAL(first.of[0][1].verdict, HD_PEER_INCONCLUSIVE);
    hd_peer_info info = ask(runtime, 0, 1);
    CONF_TRUE(info.verdict == HD_PEER_CORRUPT && !info.remembered);
    kernels_are_refused(runtime, 0, 1, "did not arrive");
    /* slow: only for kernels */
    write_text("extra", "host_corrupt=0>1:slow");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_EQUAL(first.of[0][1].verdict, HD_PEER_SLOW);
    copies_are_right(runtime, 0, 1);
    kernels_are_right(runtime, 0, 1);
    /* an inconclusive test changes nothing */
    write_text("extra", "devices=77");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_EQUAL(first.of[0][1].verdict, HD_PEER_INCONCLUSIVE);
    expect(runtime, 0, 1, HD_PEER_SLOW);
    kernels_are_right(runtime, 0, 1);
    remove_file("extra");
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_TRUE(is_good(first.of[0][1].verdict));
    kernels_are_right(runtime, 0, 1);
    copies_are_right(runtime, 0, 1);
    conf_slow_free(&slow);
    conf_close(runtime);
}

/* Results outlive a device's loss, mappings do not. */
static void findings_outlive_a_restart(void **state)
{
    (void)state;
    make_script();
    hd_runtime *runtime = open_with_script("host_corrupt=\"\"");
    CONF_NEED_DEVICES(runtime, 2);
    if (!conf_is_process(runtime) || !conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    if (ask(runtime, 0, 1).verdict != HD_PEER_USABLE || ask(runtime, 1, 0).verdict != HD_PEER_USABLE) {
        conf_close(runtime);
        skip();
    }
    for (int lost = 0; lost < 2; lost++) {
        kernels_are_right(runtime, 0, 1);
        kernels_are_right(runtime, 1, 0);
        int runs = count_runs();
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(runtime, lost, &info));
        CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
        while (!info.lost) {
            CONF_OK(hd_device_get_info(runtime, lost, &info));
            conf_sleep_ms(2);
        }
        expect_good(runtime, 0, 1);
        CONF_OK(hd_device_restart(runtime, lost));
        kernels_are_right(runtime, 0, 1);
        kernels_are_right(runtime, 1, 0);
        copies_are_right(runtime, 0, 1);
        expect_good(runtime, 0, 1);
        CONF_EQUAL(count_runs(), runs);
    }
    conf_close(runtime);
}

/* ---- processes ---- */

/* The program that is killed: this one, started again with the case's folder. */
static int be_a_victim(const char *where)
{
    char settings[512];
    snprintf(settings, sizeof settings, "placement=process probe=%s/probe cache=none host_devices=2", where);
    hd_options options = {.size = sizeof options, .settings = settings};
    hd_runtime *runtime = NULL;
    hd_peer_info info = {.size = sizeof info};
    return hd_open(&options, &runtime) == HD_OK && hd_peer_check(runtime, 0, 1, &info) == HD_OK ? 0 : 1;
}

/* A test ends with the process that waits for it. */
static void a_test_ends_with_its_program(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    write_text("extra", "host_corrupt=0>1:hang");
    char program[] = "test_peer_meanwhile", *arguments[] = {program, folder, NULL};
    pid_t child = 0;
    CONF_EQUAL(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    while (count_runs() == 0) {
        conf_sleep_ms(5);
    }
    conf_sleep_ms(300); /* it probably began; if not, it ends nevertheless */
    CONF_EQUAL(kill(child, SIGKILL), 0);
    CONF_TRUE(waitpid(child, NULL, 0) == child);
    /* every process ends that runs from the case's folder, or got its settings */
    for (int tries = 0;; tries++) {
        int left = 0;
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
            char path[300], line[2048];
            snprintf(path, sizeof path, "/proc/%s/cwd", entry->d_name);
            ssize_t n = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? readlink(path, line, sizeof line - 1) : -1;
            line[n < 0 ? 0 : n] = '\0';
            left += strcmp(line, folder) == 0; /* the script changed to that folder */
        }
        closedir(proc);
        if (left == 0) {
            break;
        }
        CONF_TRUE(tries < 3000 * CONF_SLOWNESS);
        conf_sleep_ms(10);
    }
}

static void children_have_nothing_of_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    pid_t child = fork();
    CONF_TRUE(child >= 0);
    if (child == 0) {
        hd_peer_info info = {.size = sizeof info};
        _exit(hd_peer_check(runtime, 0, 0, &info) == HD_ERROR_HANDLE &&
                      hd_peers_check(runtime, 0, NULL, NULL) == HD_ERROR_HANDLE
                  ? 0
                  : 1);
    }
    int status = 0;
    CONF_TRUE(waitpid(child, &status, 0) == child);
    CONF_EQUAL(status, 0);
    conf_close(runtime);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        return be_a_victim(argv[1]);
    }
    conf_begin("test_peer_meanwhile");
    const struct CMUnitTest tests[] = {
        PEER_CASE(threads_wait_for_one_test),     PEER_CASE(two_runtimes_test_in_turn),
        PEER_CASE(nothing_else_waits_for_a_test), PEER_CASE(progress_may_use_the_runtime),
        PEER_CASE(a_later_finding_counts),        PEER_CASE(findings_outlive_a_restart),
        PEER_CASE(a_test_ends_with_its_program),  PEER_CASE(children_have_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
