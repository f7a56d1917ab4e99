/* test_program.c - running heddle-probe: the verdicts of pairs if the program does anything except
 * its duty.
 *
 * Promise: Any misbehaving test program leaves its pairs a documented verdict, in limited time.
 * Threads: one. The program is a process of its own.
 *
 * The program is this one, started again with a role in its environment: it writes records as a
 * probe would, and then misbehaves.
 */
#include "support/check.h"

#include <fcntl.h>
#include <limits.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/wait.h"
#include "peer/test.h"
#include "process/spawn.h"

#define ROLE "HD_TEST_PROBE_ROLE"
#define LONG_MS 100000 /* for programs that do not hang */
#define SHORT_MS 1000  /* the first limit for programs that hang */

/* ---- the program's side ---- */

static void put(hdi_probe_record_kind kind, hdi_step step, int device, int owner)
{
    hdi_probe_record r;
    memset(&r, 0, sizeof r);
    r.magic = HDI_PROBE_MAGIC;
    r.version = HDI_PROBE_VERSION;
    r.kind = (uint32_t)kind;
    r.step = (uint32_t)step;
    r.bytes = 4096;
    r.device = device;
    r.owner = owner;
    r.found = 1;
    r.direct = 2e9;
    r.staged = 1e9;
    if (kind == HDI_PROBE_RECORD_FAILED) {
        r.status = HD_ERROR_NO_DEVICE;
        snprintf(r.text, sizeof r.text, "hd_open: no such device");
    }
    if (write(HDI_PROGRAM_DESCRIPTOR, &r, sizeof r) != (ssize_t)sizeof r) {
        _exit(9);
    }
}

static void put_steps(hdi_step last)
{
    for (hdi_step step = HDI_STEP_PREPARE; step <= last; step++) {
        put(HDI_PROBE_RECORD_STEP, step, 0, 0);
    }
}

static void hang(void)
{
    for (;;) {
        pause();
    }
}

static bool role_is(const char *role)
{
    return strcmp(getenv(ROLE), role) == 0;
}

/* Returns the number of earlier runs, which is the length of a file. */
static long count_run(void)
{
    int fd = open(getenv("HD_TEST_PROBE_COUNT"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    long before = lseek(fd, 0, SEEK_END);
    if (write(fd, "x", 1) != 1) {
        _exit(9);
    }
    close(fd);
    return before;
}

/* Misbehaves in the middle of the first pair of a run. */
static void misbehave(void)
{
    if (role_is("hang")) {
        hang();
    } else if (role_is("abort")) {
        signal(SIGABRT, SIG_DFL);
        raise(SIGABRT);
    } else if (role_is("exit")) {
        _exit(7);
    } else if (role_is("close")) {
        close(HDI_PROGRAM_DESCRIPTOR);
        hang();
    } else if (role_is("stop")) {
        raise(SIGSTOP);
        hang();
    } else if (role_is("noise")) {
        char noise[777];
        memset(noise, 0x5a, sizeof noise);
        ssize_t n = write(HDI_PROGRAM_DESCRIPTOR, noise, sizeof noise);
        (void)n;
        hang();
    } else if (role_is("part")) {
        hdi_probe_record r = {
            .magic = HDI_PROBE_MAGIC, .version = HDI_PROBE_VERSION, .kind = HDI_PROBE_RECORD_PAIR_END};
        ssize_t n = write(HDI_PROGRAM_DESCRIPTOR, &r, 100);
        (void)n;
        _exit(0);
    } else if (role_is("chatter")) {
        for (;;) {
            put(HDI_PROBE_RECORD_STEP, HDI_STEP_STORE, 0, 0); /* valid records without an end */
        }
    } else if (role_is("orphan")) {
        if (fork() == 0) {
            close(STDERR_FILENO);
            sleep(10); /* keeps the pipe open, too, much longer than a caller may wait */
            _exit(0);
        }
        signal(SIGABRT, SIG_DFL);
        raise(SIGABRT);
    } else if (role_is("killed")) {
        raise(SIGKILL);
    } else if (role_is("meanwhile")) {
        kill(getppid(), SIGSTOP); /* longer than the limit */
        hdi_sleep_for((int64_t)(SHORT_MS + 1500) * 1000000);
        kill(getppid(), SIGCONT);
    }
}

static int be_probe(const char *settings, const char *pairs)
{
    /* only the given descriptor is open */
    for (int fd = HDI_PROGRAM_DESCRIPTOR + 1; fd < 64; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            return 8;
        }
    }
    long before = count_run();
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    if (!strstr(settings, "one=1") || sigismember(&mask, SIGTERM) == 1 || getpgrp() != getpid()) {
        return 8;
    }
    if (role_is("silent")) {
        hang();
    } else if (role_is("nothing")) {
        return 0;
    }
    put(HDI_PROBE_RECORD_STEP, HDI_STEP_OPEN, 0, 0);
    if (role_is("closed") ||
        (role_is("crowded") && strchr(strstr(settings, "devices="), ':') != strrchr(settings, ':'))) {
        put(HDI_PROBE_RECORD_FAILED, 0, 0, 0);
        return 1;
    }
    int device, owner, length;
    for (const char *p = pairs; sscanf(p, "%d>%d%n", &device, &owner, &length) == 2;) {
        p += length + (p[length] == ',');
        put(HDI_PROBE_RECORD_PAIR, 0, device, owner);
        put_steps(HDI_STEP_STORE);
        if (before == 0 || role_is("chatter")) {
            misbehave();
        }
        if (role_is("wrong") && device > owner) {
            put(HDI_PROBE_RECORD_WRONG, 0, 0, 0);
        } else {
            put(HDI_PROBE_RECORD_STEP, HDI_STEP_COPY_FROM, 0, 0);
            put(HDI_PROBE_RECORD_STEP, HDI_STEP_LOAD, 0, 0);
            put(HDI_PROBE_RECORD_RATES, 0, 0, 0);
        }
        put(HDI_PROBE_RECORD_PAIR_END, 0, 0, 0);
        if (role_is("once")) {
            raise(SIGKILL); /* between pairs */
        }
    }
    put(HDI_PROBE_RECORD_END, 0, 0, 0);
    if (role_is("linger")) {
        hang();
    }
    return 0;
}

/* ---- this side ---- */

#define DEVICES 12

static char program[PATH_MAX], count_file[64];
static int64_t limit_ms = LONG_MS;
static hd_peer_info found[DEVICES][DEVICES];
static int n_found[DEVICES][DEVICES], n_settled, n_fleeting;

static void settled(void *context, const hdi_pair *pair, const hd_peer_info *info, bool fleeting)
{
    n_fleeting += fleeting;
    assert_ptr_equal(context, &n_settled);
    found[pair->device][pair->owner] = *info;
    hdi_peer_name_devices(&found[pair->device][pair->owner], pair->device, pair->owner);
    n_found[pair->device][pair->owner]++;
    n_settled++;
}

/* Tests all ordered pairs of the first `devices` devices. Returns the number of runs. */
static long test_all(const char *role, const char *path, int devices)
{
    static const uint8_t uuids[DEVICES][16];
    static const int ordinals[DEVICES] = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    const hdi_test test = {.program = path,
                           .settings = "one=1",
                           .ordinals = ordinals,
                           .uuids = uuids,
                           .limit_ms = limit_ms,
                           .slow_margin = 1.25,
                           .settled = settled,
                           .context = &n_settled};
    hdi_pair pairs[DEVICES * DEVICES];
    int n = 0;
    for (int i = 0; i < devices; i++) {
        for (int j = 0; j < devices; j++) {
            if (i != j) {
                pairs[n++] = (hdi_pair){.device = i, .owner = j};
            }
        }
    }
    memset(found, 0, sizeof found);
    memset(n_found, 0, sizeof n_found);
    n_settled = n_fleeting = 0;
    unlink(count_file);
    setenv(ROLE, role, 1);
    setenv("HD_TEST_PROBE_COUNT", count_file, 1);
    hdi_test_pairs(&test, pairs, n);
    assert_int_equal(n_settled, n);
    for (int i = 0; i < devices; i++) {
        for (int j = 0; j < devices; j++) {
            assert_int_equal(n_found[i][j], i != j);
        }
    }
    int fd = open(count_file, O_RDONLY);
    long runs = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    close(fd);
    unsetenv(ROLE);
    return runs;
}

static void check(int device, int owner, hd_peer_verdict verdict, const char *reason)
{
    assert_string_equal(hd_peer_verdict_text(found[device][owner].verdict), hd_peer_verdict_text(verdict));
    assert_contains(found[device][owner].reason, reason);
}

/* The same for a program that hangs. Raises the limit until the program gets as far as how_far on
 * this machine. */
static long test_hanging(const char *role, int devices, const char *how_far, char *hung)
{
    long runs = 0;
    for (limit_ms = SHORT_MS; limit_ms <= 64 * SHORT_MS; limit_ms *= 2) {
        runs = test_all(role, program, devices);
        bool all = true;
        for (int i = 0; i < devices; i++) {
            for (int j = 0; j < devices; j++) {
                const char *reason = found[i][j].reason;
                all &= i == j || !strstr(reason, "hung") || strstr(reason, how_far);
            }
        }
        if (all) {
            break;
        }
    }
    snprintf(hung, 64, "the test hung (for %lld ms)", (long long)limit_ms);
    limit_ms = LONG_MS;
    return runs;
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void a_good_program_is_heard(void **state)
{
    (void)state;
    assert_int_equal(test_all("good", program, 2), 1);
    check(0, 1, HD_PEER_USABLE, "");
    check(1, 0, HD_PEER_USABLE, "");
    assert_true(found[0][1].direct_bytes_per_s == 2e9);
    assert_int_equal(test_all("wrong", program, 3), 1);
    check(0, 1, HD_PEER_USABLE, "");
    check(2, 1, HD_PEER_CORRUPT, "by device 2 into memory of device 1 did not arrive");
}

/* One process tests at most eight devices, and each pair once. */
static void many_devices_take_turns(void **state)
{
    (void)state;
    assert_int_equal(test_all("good", program, 8), 1);
    assert_in_range(test_all("good", program, 12), 3, 12);
    for (int i = 0; i < 12; i++) {
        for (int j = 0; j < 12; j++) {
            if (i != j) {
                check(i, j, HD_PEER_USABLE, "");
            }
        }
    }
}

/* The first pair gets the verdict; a second process tests the others. */
static void is_the_first_pairs(long runs, hd_peer_verdict verdict, const char *reason)
{
    assert_int_equal(runs, 2);
    check(0, 1, verdict, reason);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            if (i != j && (i != 0 || j != 1)) {
                check(i, j, HD_PEER_USABLE, "");
            }
        }
    }
}

static const char while_storing[] = "while a kernel of device 0 stored 4096 bytes into memory of device 1";

static void accidents_are_findings(void **state)
{
    (void)state;
    static const struct {
        const char *role, *how;
    } ways[] = {
        {"abort", "the test was killed by signal 6"},      {"orphan", "the test was killed by signal 6"},
        {"exit", "the test ended with status 7"},          {"part", "the test ended with status 0"},
        {"close", "the test ended, it is not known how,"},
    };
    int before = open_descriptors();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char reason[200];
        snprintf(reason, sizeof reason, "%s %s", ways[i].how, while_storing);
        is_the_first_pairs(test_all(ways[i].role, program, 3), HD_PEER_CORRUPT, reason);
    }
    assert_int_equal(open_descriptors(), before);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left, alive or as a zombie */
}

/* A kill says nothing about the pair. */
static void being_killed_is_inconclusive(void **state)
{
    (void)state;
    char reason[200];
    snprintf(reason, sizeof reason, "the test was killed by signal 9 %s", while_storing);
    is_the_first_pairs(test_all("killed", program, 3), HD_PEER_INCONCLUSIVE, reason);
}

/* This process is stopped, as in a debugger, while the program continues. The program does not
 * count as silent for that time. */
static void who_was_stopped_listens_on(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork(); /* so that no other process notices the stop */
    assert_true(child >= 0);
    if (child == 0) {
        limit_ms = SHORT_MS;
        long runs = test_all("meanwhile", program, 2);
        _exit(runs == 1 && found[0][1].verdict == HD_PEER_USABLE && found[1][0].verdict == HD_PEER_USABLE ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void silence_is_a_finding(void **state)
{
    (void)state;
    static const char *const roles[] = {"hang", "stop"};
    int before = open_descriptors();
    for (size_t i = 0; i < 2; i++) {
        char hung[64], reason[200];
        long runs = test_hanging(roles[i], 3, while_storing, hung);
        snprintf(reason, sizeof reason, "%s %s", hung, while_storing);
        is_the_first_pairs(runs, HD_PEER_CORRUPT, reason);
    }
    assert_int_equal(open_descriptors(), before);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0);
}

static void nonsense_is_inconclusive(void **state)
{
    (void)state;
    is_the_first_pairs(test_all("noise", program, 3), HD_PEER_INCONCLUSIVE,
                       "sent what is not of this version of Heddle");
}

static void chatter_ends_in_time(void **state)
{
    (void)state;
    char hung[64];
    assert_int_equal(test_hanging("chatter", 2, "stored", hung), 2);
    check(0, 1, HD_PEER_CORRUPT, hung);
    check(1, 0, HD_PEER_CORRUPT, hung);
}

static void what_ends_between_pairs_is_started_again(void **state)
{
    (void)state;
    assert_int_equal(test_all("once", program, 2), 2);
    check(0, 1, HD_PEER_USABLE, "");
    check(1, 0, HD_PEER_USABLE, "");
}

static void what_never_begins_is_inconclusive(void **state)
{
    (void)state;
    char hung[64];
    test_hanging("silent", 2, "opened", hung);
    check(0, 1, HD_PEER_INCONCLUSIVE, hung);
    check(1, 0, HD_PEER_INCONCLUSIVE, "while the devices were opened");
    assert_int_equal(test_all("nothing", program, 2), 1);
    check(0, 1, HD_PEER_INCONCLUSIVE, "the test ended with status 0 while the devices were opened");
    assert_int_equal(test_all("closed", program, 2), 1);
    check(1, 0, HD_PEER_INCONCLUSIVE, "the test failed while the devices were opened: hd_open: no such device");
}

/* A device that cannot be opened only affects its own pairs. */
static void devices_are_opened_two_at_a_time_where_many_fail(void **state)
{
    (void)state;
    assert_int_equal(test_all("crowded", program, 3), 4);
    check(0, 1, HD_PEER_USABLE, "");
    check(2, 1, HD_PEER_USABLE, "");
}

static void what_does_not_end_by_itself_is_ended(void **state)
{
    (void)state;
    assert_int_equal(test_all("linger", program, 2), 1);
    check(0, 1, HD_PEER_USABLE, "");
    assert_true(waitpid(-1, NULL, WNOHANG) < 0);
}

static void programs_that_cannot_be_started(void **state)
{
    (void)state;
    static const char *const paths[] = {"/nonexistent/heddle-probe", "/tmp", "/dev/null"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(test_all("good", paths[i], 2), 0);
        assert_int_equal(n_fleeting, 0);
        check(0, 1, HD_PEER_INCONCLUSIVE, "heddle-probe");
        check(1, 0, HD_PEER_INCONCLUSIVE, "heddle-probe");
    }
}

static void want_of_descriptors_is_fleeting(void **state)
{
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    long runs = test_all("good", program, 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(runs, 0);
    assert_int_equal(n_fleeting, 2);
    check(0, 1, HD_PEER_INCONCLUSIVE, strerror(EMFILE));
    assert_int_equal(test_all("good", program, 2), 1);
    assert_int_equal(n_fleeting, 0);
    check(0, 1, HD_PEER_USABLE, "");
}

/* If other code waits for the program's children, their exit statuses are unknown. */
static void children_may_be_ignored(void **state)
{
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(test_all("good", program, 2), 1);
    check(0, 1, HD_PEER_USABLE, "");
    assert_int_equal(test_all("abort", program, 2), 2);
    signal(SIGCHLD, SIG_DFL);
    check(0, 1, HD_PEER_CORRUPT, "while a kernel of device 0 stored");
    check(1, 0, HD_PEER_USABLE, "");
}

/* The program does not inherit the application's signals. */
static void signals_are_not_inherited(void **state)
{
    (void)state;
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    signal(SIGUSR1, SIG_IGN);
    assert_int_equal(test_all("good", program, 2), 1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
    check(0, 1, HD_PEER_USABLE, "");
}

int main(int argc, char **argv)
{
    if (getenv(ROLE) && argc == 4) {
        _exit(be_probe(argv[1], argv[2]));
    }
    if (!realpath("/proc/self/exe", program)) {
        return 1;
    }
    snprintf(count_file, sizeof count_file, "/tmp/heddle-probe-runs-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_program_is_heard),
        cmocka_unit_test(many_devices_take_turns),
        cmocka_unit_test(accidents_are_findings),
        cmocka_unit_test(being_killed_is_inconclusive),
        cmocka_unit_test(who_was_stopped_listens_on),
        cmocka_unit_test(silence_is_a_finding),
        cmocka_unit_test(nonsense_is_inconclusive),
        cmocka_unit_test(chatter_ends_in_time),
        cmocka_unit_test(what_ends_between_pairs_is_started_again),
        cmocka_unit_test(what_never_begins_is_inconclusive),
        cmocka_unit_test(devices_are_opened_two_at_a_time_where_many_fail),
        cmocka_unit_test(what_does_not_end_by_itself_is_ended),
        cmocka_unit_test(programs_that_cannot_be_started),
        cmocka_unit_test(want_of_descriptors_is_fleeting),
        cmocka_unit_test(children_may_be_ignored),
        cmocka_unit_test(signals_are_not_inherited),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(count_file);
    return failed;
}
