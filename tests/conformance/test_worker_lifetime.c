/* test_worker_lifetime.c - workers end with the application, however that ends, and with nothing
 * else.
 *
 * Promise: Workers end with their application, however that ends, and with nothing else.
 *
 * They do not end with the thread that opened the runtime, nor with another runtime or another
 * program.
 *
 * Threads: short ones.
 * Locks: none.
 * Processes: the applications that die are this program again. They write the pids of their workers
 * to a pipe.
 * Always: within a second of the application's end (more under a sanitizer) its workers are gone.
 */
#include "workers.h"

#include <sys/resource.h>

enum { words = 5000, bytes = words * 4, most = 64 };

/* ---- the application that dies ---- */

static void keeps_busy(hd_runtime *runtime)
{
    conf_kernels k = conf_builtins(runtime);
    int count = hd_device_count(runtime);
    for (int d = 0; d < count; d++) {
        hd_lane *lane = conf_default_lane(runtime, d);
        hd_buffer *x = NULL, *y = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_alloc(conf_default_lane(runtime, (d + 1) % count), bytes, &y));
        for (uint32_t i = 0; i < 20; i++) {
            CONF_OK(conf_fill(lane, k, x, 0, words, i, NULL));
            CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        }
    }
}

static void *opens(void *argument)
{
    CONF_OK(hd_open(NULL, argument));
    keeps_busy(*(hd_runtime **)argument);
    return NULL;
}

/* Opens a runtime, keeps it busy, writes the workers' pids to `out`, and dies in the way of
 * `how`. */
static int dying_application(const char *how, int out)
{
    hd_runtime *runtime = NULL;
    conf_failure_ends_program = true;
    fcntl(out, F_SETFD, FD_CLOEXEC);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (strcmp(how, "opening") == 0) { /* killed from outside, somewhere in here */
        for (;;) {
            CONF_OK(hd_open(NULL, &runtime));
            hd_close(runtime);
        }
    }
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, opens, &runtime), 0);
        pthread_join(thread, NULL);
    } else {
        opens(&runtime);
    }
    if (strcmp(how, "forked") == 0) { /* a child lives on, with copies of all descriptors */
        pid_t child = fork();
        if (child == 0) {
            close(out);
            conf_sleep_ms(8000);
            _exit(0);
        }
        CONF_TRUE(write(out, &child, sizeof child) == sizeof child);
    }
    for (int d = 0; d < hd_device_count(runtime); d++) {
        pid_t pid = wk_pid(runtime, d);
        CONF_TRUE(write(out, &pid, sizeof pid) == sizeof pid);
    }
    close(out);
    if (strcmp(how, "stopped") == 0) {
        for (int d = 0; d < hd_device_count(runtime); d++) {
            kill(wk_pid(runtime, d), SIGSTOP);
        }
    }
    if (strcmp(how, "abort") == 0) {
        signal(SIGABRT, SIG_DFL);
        abort();
    } else if (strcmp(how, "exit") == 0) {
        exit(0); /* with the runtime open */
    } else if (strcmp(how, "_exit") == 0 || strcmp(how, "thread") == 0) {
        _exit(0);
    } else if (strcmp(how, "SIGSEGV") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    } else if (strcmp(how, "SIGTERM") == 0) {
        raise(SIGTERM);
    } else if (strcmp(how, "exec") == 0) {
        execl("/bin/sleep", "sleep", "5", (char *)NULL); /* another program in the same process */
    } else {
        raise(SIGKILL);
    }
    return 9;
}

/* Starts the application; *out gets the reading end of its pipe. */
static pid_t starts(const char *how, int *out)
{
    int ends[2];
    char program[] = "/proc/self/exe", option[] = "--dies", name[32], number[16];
    CONF_EQUAL(pipe2(ends, O_CLOEXEC), 0);
    snprintf(name, sizeof name, "%s", how);
    snprintf(number, sizeof number, "%d", ends[1]);
    char *arguments[] = {program, option, name, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], ends[1]); /* takes close-on-exec away */
    pid_t child = 0;
    CONF_EQUAL(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *out = ends[0];
    return child;
}

/* Reads the pids that the application writes, until it closes the pipe. */
static int hears(int in, pid_t *out)
{
    int n = 0;
    pid_t pid;
    while (n < most && read(in, &pid, sizeof pid) == sizeof pid) {
        out[n++] = pid;
    }
    close(in);
    return n;
}

static void workers_end_with_the_application(void **state)
{
    (void)state;
    static const char *const ways[] = {"SIGKILL", "abort",   "exit",   "_exit", "SIGSEGV",
                                       "SIGTERM", "stopped", "thread", "forked"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t workers[most], other = 0;
        int in, status = 0;
        pid_t child = starts(ways[i], &in);
        int n = hears(in, workers), first = 0;
        if (strcmp(ways[i], "forked") == 0 && n > 0) {
            other = workers[0];
            first = 1;
        }
        CONF_TRUE(waitpid(child, &status, 0) == child);
        for (int j = first; j < n; j++) {
            if (!wk_goes(workers[j], wk_gone_ms())) {
                char letter = wk_state(workers[j]);
                for (int l = first; l < n; l++) { /* nothing is left, even if the test fails */
                    kill(workers[l], SIGKILL);
                }
                kill(other > 0 ? other : workers[j], SIGKILL);
                conf_fail_at(__FILE__, __LINE__,
                             "the application ended with %s; worker %d of %d is still there, in state %c", ways[i],
                             j - first, n - first, letter);
            }
        }
        if (other != 0) {
            CONF_TRUE(!wk_gone(other)); /* the forked child lived all the time */
            kill(other, SIGKILL);
        }
        CONF_TRUE(n > first);
    }
}

/* Another program replaces the application in its process. */
static void workers_end_with_exec(void **state)
{
    (void)state;
    pid_t workers[most];
    int in, status = 0;
    pid_t child = starts("exec", &in);
    int n = hears(in, workers);
    CONF_TRUE(n > 0);
    bool gone = true;
    for (int j = 0; j < n; j++) {
        if (!wk_goes(workers[j], wk_gone_ms())) {
            gone = false;
            kill(workers[j], SIGKILL);
        }
    }
    kill(child, SIGKILL);
    CONF_TRUE(waitpid(child, &status, 0) == child);
    CONF_TRUE(gone);
}

/* True if a process runs a program of that name. */
static bool runs(pid_t pid, const char *path)
{
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n <= 0) {
        return false;
    }
    name[n] = '\0';
    return strncmp(name, path, strlen(path)) == 0;
}

static int running(const char *path)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        n += pid > 0 && runs(pid, path) && !wk_gone(pid);
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return n;
}

/* The application is killed at any moment of hd_open and hd_close. A worker program with its own
 * name shows remaining workers. */
static void killed_while_opening(void **state)
{
    (void)state;
    const char *worker = getenv("HEDDLE_WORKER");
    char folder[] = "/tmp/heddle-test-XXXXXX", path[128], resolved[4096];
    if (worker == NULL || worker[0] == '\0' || realpath(worker, resolved) == NULL) {
        skip();
    }
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/heddle-worker", folder);
    wk_copy_file(resolved, path);
    CONF_EQUAL(setenv("HEDDLE_WORKER", path, 1), 0);
    conf_random r = {conf_number_from("HEDDLE_SEED", 1)};
    int rounds = CONF_SLOWNESS > 1 ? 10 : 30, left = 0;
    for (int i = 0; i < rounds && left == 0; i++) {
        int in, status = 0;
        pid_t child = starts("opening", &in);
        struct timespec moment = {0, (long)conf_below(&r, 300000000)};
        nanosleep(&moment, NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        close(in);
        int64_t limit = conf_now() + wk_gone_ms() * CONF_MILLISECOND * (CONF_SLOWNESS > 1 ? 4 : 1);
        while ((left = running(path)) != 0 && conf_now() < limit) {
            conf_sleep_ms(5);
        }
    }
    CONF_EQUAL(setenv("HEDDLE_WORKER", resolved, 1), 0);
    unlink(path);
    rmdir(folder);
    CONF_EQUAL(left, 0);
}

/* ---- and with nothing else ---- */

/* The thread that opened the runtime, or restarted a device, ends: the workers stay. */
static void workers_stay_when_a_thread_ends(void **state)
{
    (void)state;
    hd_runtime *runtime = NULL;
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, opens, &runtime), 0);
    pthread_join(thread, NULL);
    conf_track(NULL, runtime);
    conf_sleep_ms(300);
    wk_no_loss(runtime);
    wk_others_work(runtime, -1);
    conf_close(runtime);
}

static void *restarts(void *argument)
{
    CONF_OK(hd_device_restart(argument, 0));
    return NULL;
}

static void workers_stay_when_a_restarting_thread_ends(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    pthread_t thread;
    wk_lose_now(runtime, 0);
    CONF_EQUAL(pthread_create(&thread, NULL, restarts, runtime), 0);
    pthread_join(thread, NULL);
    conf_sleep_ms(300);
    wk_no_loss(runtime);
    wk_works(runtime, 0);
    conf_close(runtime);
}

/* hd_close leaves neither running nor ended workers behind. */
static void closing_ends_them(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        hd_runtime *runtime = conf_open(NULL);
        pid_t pids[most];
        int n = hd_device_count(runtime);
        n = n > most ? most : n;
        if (i % 2 == 0) {
            keeps_busy(runtime);
        }
        for (int d = 0; d < n; d++) {
            pids[d] = wk_pid(runtime, d);
        }
        conf_close(runtime);
        CONF_EQUAL(conf_children(), 0);
        for (int d = 0; d < n; d++) {
            CONF_TRUE(wk_gone(pids[d]));
        }
    }
}

static void two_runtimes_do_not_meet(void **state)
{
    (void)state;
    hd_runtime *a = conf_open(NULL), *b = conf_open(NULL);
    int count = hd_device_count(a);
    for (int d = 0; d < count; d++) {
        for (int e = 0; e < count; e++) {
            CONF_TRUE(wk_pid(a, d) != wk_pid(b, e));
        }
    }
    CONF_TRUE(wk_descriptor(a) != wk_descriptor(b));
    keeps_busy(b);
    for (int d = 0; d < count; d++) {
        wk_lose_now(a, d);
    }
    wk_no_loss(b);
    wk_others_work(b, -1);
    CONF_OK(hd_device_restart(a, 0));
    CONF_OK(hd_device_restart(b, 0)); /* not lost there */
    CONF_EQUAL(wk_info(b, 0).restarts, 0);
    keeps_busy(b);
    wk_works(a, 0);
    conf_close(a);
    wk_others_work(b, -1);
    wk_no_loss(b);
    conf_close(b);
}

static void two_programs_do_not_meet(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    static const char *const ways[] = {"SIGKILL", "stopped", "exit"};
    for (int i = 0; i < 3; i++) {
        pid_t workers[most];
        int in, status;
        pid_t child = starts(ways[i], &in);
        keeps_busy(runtime);
        int n = hears(in, workers);
        CONF_TRUE(waitpid(child, &status, 0) == child && n > 0);
        bool gone = true;
        for (int j = 0; j < n; j++) {
            if (!wk_goes(workers[j], wk_gone_ms())) {
                gone = false;
                kill(workers[j], SIGKILL);
            }
        }
        CONF_TRUE(gone);
        wk_no_loss(runtime);
        wk_others_work(runtime, -1);
    }
    conf_close(runtime);
}

/* ---- applications that wait for children themselves ---- */

static void *reaps_everything(void *argument)
{
    atomic_bool *stop = argument;
    while (!atomic_load(stop)) {
        int status;
        if (waitpid(-1, &status, WNOHANG) <= 0) {
            conf_sleep_ms(1);
        }
    }
    return NULL;
}

/* A thread of the application waits for all children, or the system discards their ends. The loss
 * is noticed nevertheless. */
static void somebody_else_reaps(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        atomic_bool stop = false;
        pthread_t thread;
        if (how == 0) {
            CONF_EQUAL(pthread_create(&thread, NULL, reaps_everything, &stop), 0);
        } else {
            signal(SIGCHLD, SIG_IGN);
        }
        hd_runtime *runtime = conf_open(NULL);
        int lost = hd_device_count(runtime) - 1;
        for (int i = 0; i < 5; i++) {
            CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
            hd_device_loss loss = wk_only_loss(runtime, lost);
            CONF_EQUAL(loss.cause, HD_LOSS_WORKER_ENDED); /* its exit status may be unknown */
            CONF_OK(hd_device_restart(runtime, lost));
            wk_others_work(runtime, lost);
            wk_works(runtime, lost);
        }
        conf_close(runtime);
        if (how == 0) {
            atomic_store(&stop, true);
            pthread_join(thread, NULL);
        } else {
            signal(SIGCHLD, SIG_DFL);
        }
    }
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* The terminal sends a signal to all processes of the group. The application handles it and
 * continues, and no worker is lost. */
static void a_signal_of_the_terminal_is_the_applications(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    pid_t group = getpgrp();
    if (setpgid(0, 0) != 0 && getpgrp() != getpid()) {
        skip();
    }
    sigaction(SIGINT, &action, &before);
    hd_runtime *runtime = conf_open(NULL);
    for (int i = 0; i < 3; i++) {
        interrupted = 0;
        CONF_EQUAL(kill(0, SIGINT), 0);
        CONF_TRUE(interrupted);
        conf_sleep_ms(50);
        wk_no_loss(runtime);
        wk_others_work(runtime, -1);
    }
    conf_close(runtime);
    sigaction(SIGINT, &before, NULL);
    setpgid(0, group);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--dies") == 0) {
        return dying_application(argv[2], atoi(argv[3]));
    }
    wk_begin("test_worker_lifetime");
    const struct CMUnitTest tests[] = {
        CONF_CASE(workers_end_with_the_application),
        CONF_CASE(workers_end_with_exec),
        CONF_CASE(killed_while_opening),
        CONF_CASE(workers_stay_when_a_thread_ends),
        CONF_CASE(workers_stay_when_a_restarting_thread_ends),
        CONF_CASE(closing_ends_them),
        CONF_CASE(two_runtimes_do_not_meet),
        CONF_CASE(two_programs_do_not_meet),
        CONF_CASE(somebody_else_reaps),
        CONF_CASE(a_signal_of_the_terminal_is_the_applications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
