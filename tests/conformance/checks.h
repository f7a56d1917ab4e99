/* checks.h - checks for every conformance program.
 *
 * - checks of statuses, messages and conditions
 * - a watchdog
 * - the list of open runtimes, so that a failed case leaves nothing behind
 * - child processes
 *
 * Threads: the checks work in every thread. A failed check in the main thread ends the case, in
 * another thread the program.
 * Locks: the lock of the list of open runtimes.
 * Always: a watchdog ends a case that hangs, and prints which one it was.
 */
#ifndef CONFORMANCE_CHECKS_H
#define CONFORMANCE_CHECKS_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <heddle.h>
#include "support/sanitizers.h"
#include "support/without.h"

#define CONF_TSAN TEST_TSAN
#define CONF_ASAN TEST_ASAN
/* roughly how much slower sanitizers make it */
#define CONF_SLOWNESS (CONF_TSAN ? 10 : CONF_ASAN ? 4 : 1)
#define CONF_SECOND INT64_C(1000000000)
#define CONF_MILLISECOND INT64_C(1000000)
#define CONF_UNUSED __attribute__((unused))

/* ---- checks ---- */

static inline bool conf_on_main(void)
{
    return (long)getpid() == syscall(SYS_gettid);
}

/* Set if a failed check must end the program, because the case would leave locks or threads
 * behind. */
CONF_UNUSED static bool conf_failure_ends_program;

CONF_UNUSED __attribute__((format(printf, 3, 4))) static void conf_fail_at(const char *file, int line,
                                                                           const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (conf_on_main() && !conf_failure_ends_program) {
        print_error("%s\n", text);
        _fail(file, line);
    }
    fprintf(stderr, "%s:%d: failed, which ends the program: %s\n", file, line, text);
    _Exit(1);
}

CONF_UNUSED static void conf_ok_at(hd_status status, const char *what, const char *file, int line)
{
    if (status != HD_OK) {
        conf_fail_at(file, line, "%s: %s: %s", what, hd_status_name(status), hd_message());
    }
}

/* Checks a failure: one line of text, and the same facts in fields. The text must contain `word`,
 * which may be NULL. */
CONF_UNUSED static void conf_fails_at(hd_status status, hd_status expected, const char *word, const char *what,
                                      const char *file, int line)
{
    if (status != expected) {
        conf_fail_at(file, line, "%s: %s, not %s; message: %s", what, hd_status_name(status), hd_status_name(expected),
                     hd_message());
    }
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    const char *message = hd_message();
    if (error.status != expected) {
        conf_fail_at(file, line, "%s: hd_last_error has %s, not %s", what, hd_status_name(error.status),
                     hd_status_name(expected));
    }
    if (message == NULL || message[0] == '\0' || strchr(message, '\n') != NULL) {
        conf_fail_at(file, line, "%s: the message is not one line: '%s'", what, message == NULL ? "(null)" : message);
    }
    if (strcmp(message, error.message) != 0) {
        conf_fail_at(file, line, "%s: hd_message '%s', hd_last_error '%s'", what, message, error.message);
    }
    if (word != NULL && strstr(message, word) == NULL) {
        conf_fail_at(file, line, "%s: '%s' is not in the message '%s'", what, word, message);
    }
}

#define CONF_OK(call) conf_ok_at((call), #call, __FILE__, __LINE__)
#define CONF_FAILS(call, status) conf_fails_at((call), (status), NULL, #call, __FILE__, __LINE__)
#define CONF_FAILS_WITH(call, status, word) conf_fails_at((call), (status), (word), #call, __FILE__, __LINE__)
#define CONF_TRUE(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            conf_fail_at(__FILE__, __LINE__, "not true: %s; last message: %s", #condition, hd_message());              \
        }                                                                                                              \
    } while (0)
#define CONF_EQUAL(a, b)                                                                                               \
    do {                                                                                                               \
        long long conf_a_ = (long long)(a), conf_b_ = (long long)(b);                                                  \
        if (conf_a_ != conf_b_) {                                                                                      \
            conf_fail_at(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #a, conf_a_, #b, conf_b_);                   \
        }                                                                                                              \
    } while (0)

/* ---- watchdog ---- */

static char conf_watched[256];
static volatile double conf_watch_left; /* seconds of an idle processor */
static volatile unsigned conf_watch_step;

/* Returns the tasks per processor over the last minute, at least 1. A signal handler calls it, so
 * no call here takes a lock. */
CONF_UNUSED static double conf_machine_load(void)
{
    char text[64] = "";
    int descriptor = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? 0 : read(descriptor, text, sizeof text - 1);
    if (descriptor >= 0) {
        close(descriptor);
    }
    double load = 0, place = 1;
    bool fraction = false;
    for (ssize_t i = 0; i < got && text[i] != ' '; i++) {
        if (text[i] == '.') {
            fraction = true;
        } else {
            place /= fraction ? 10 : 1;
            load = fraction ? load + (text[i] - '0') * place : load * 10 + (text[i] - '0');
        }
    }
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    load /= processors > 0 ? (double)processors : 1;
    return load > 1 ? load : 1;
}

/* If four programs share each processor, each takes four times as long. So a second counts by the
 * share that the machine can give one program. The watchdog ends a hanging program at its limit on
 * an idle machine, and later on a busy one. */
CONF_UNUSED static void conf_watchdog_barks(int number)
{
    (void)number;
    conf_watch_left -= conf_watch_step / conf_machine_load();
    if (conf_watch_left > 0.5) {
        alarm(conf_watch_step);
        return;
    }
    static const char before[] = "watchdog: took too long, probably hangs: ";
    ssize_t ignored = write(2, before, sizeof before - 1);
    ignored += write(2, conf_watched, strlen(conf_watched));
    ignored += write(2, "\n", 1);
    (void)ignored;
    if (getenv("HEDDLE_TEST_ABORT") != NULL) {
        abort(); /* a core, or a stop in a debugger */
    }
    _Exit(98);
}

/* Ends the program if `what` takes more than `seconds` of an idle machine (many more under a
 * sanitizer). 0 seconds turn the watchdog off. */
CONF_UNUSED static void conf_watch(const char *what, unsigned seconds)
{
    snprintf(conf_watched, sizeof conf_watched, "%s", what);
    signal(SIGALRM, conf_watchdog_barks);
    unsigned limit = seconds * CONF_SLOWNESS, step = limit / 4;
    conf_watch_left = limit;
    conf_watch_step = step > 0 ? step : 1;
    alarm(limit > 0 ? conf_watch_step : 0);
}

CONF_UNUSED static int conf_case_begins(void **state)
{
    (void)state;
    conf_watch("a case (the last one named above, and after it)", 120);
    return 0;
}

/* The open runtimes, so that a failed case leaves nothing behind for the next. */
static hd_runtime *conf_opened[64];
static pthread_mutex_t conf_opened_lock = PTHREAD_MUTEX_INITIALIZER;

/* Replaces `before` by `now` in the list of open runtimes (NULL: a free place). */
CONF_UNUSED static void conf_track(hd_runtime *before, hd_runtime *now)
{
    pthread_mutex_lock(&conf_opened_lock);
    for (int i = 0; i < 64; i++) {
        if (conf_opened[i] == before) {
            conf_opened[i] = now;
            break;
        }
    }
    pthread_mutex_unlock(&conf_opened_lock);
}

CONF_UNUSED static void conf_close(hd_runtime *runtime)
{
    if (runtime != NULL) {
        conf_track(runtime, NULL);
    }
    hd_close(runtime);
}

static inline int64_t conf_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * CONF_SECOND + t.tv_nsec;
}

static inline void conf_sleep_ms(int milliseconds)
{
    struct timespec t = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

/* Counts the child processes, zombies included. */
CONF_UNUSED static int conf_children(void)
{
    DIR *proc = opendir("/proc");
    int n = 0;
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        char path[300], line[512];
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (file == NULL) {
            continue;
        }
        size_t got = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        line[got] = '\0';
        const char *rest = strrchr(line, ')'); /* "pid (name) state parent ..." */
        int parent = 0;
        n += rest != NULL && sscanf(rest, ") %*c %d", &parent) == 1 && parent == (int)getpid();
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return n;
}

/* Waits for n child processes; false if it waits too long. A child that ended or tests a pair of
 * devices may still exist for a moment. */
CONF_UNUSED static bool conf_children_become(int n)
{
    for (int i = 0; i < 1000 * CONF_SLOWNESS; i++) {
        if (conf_children() == n) {
            return true;
        }
        conf_sleep_ms(5);
    }
    return false;
}

CONF_UNUSED static int conf_case_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        if (conf_opened[i] != NULL) {
            conf_watch("closing what a failed case has left", 60);
            conf_close(conf_opened[i]);
        }
    }
    if (!conf_children_become(0)) { /* hd_close leaves no worker behind */
        print_error("%d child processes are left when everything is closed\n", conf_children());
        return -1;
    }
    alarm(0);
    return 0;
}

#define CONF_CASE(function) cmocka_unit_test_setup_teardown(function, conf_case_begins, conf_case_ends)

#endif
