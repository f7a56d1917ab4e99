/* isolate.c - runs a source of facts in a child process, because libraries of the driver may hang or crash.
 *
 * Threads: one. Locks: none. Blocking: up to the limit.
 * Always: the child has ended, or was killed, when the call returns. One that the kernel does not let die is left behind.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/wait.h"
#include "cli/doctor/collect.h"
#include "cli/process.h"

enum { PATIENCE = 10 }; /* a wait of more than this part of the limit is announced */

/* What libraries print is not this program's output. */
static void silence(void)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && nowhere >= 0; fd++) {
        dup2(nowhere, fd);
    }
}

static void run_child(doctor_source source, void *context, int out)
{
    doctor_snapshot s = {0};
    char *text = NULL;
    size_t length = 0;
    silence();
    source(context, &s);
    FILE *file = open_memstream(&text, &length);
    if (!file) {
        _exit(1);
    }
    doctor_write(&s, file);
    bool good = fclose(file) == 0 && hdi_write_quietly(out, text, length, INT64_MAX);
    _exit(good ? 0 : 1);
}

/* Reads all, until the child closes its end. False: the time is over. */
static bool read_all(int fd, int64_t deadline, char *text, size_t *length)
{
    for (;;) {
        int64_t left = (deadline - hdi_clock_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left + 1) == 0) {
            return false;
        }
        ssize_t got = read(fd, text + *length, DOCTOR_FILE_MAX - *length);
        if (got <= 0) {
            return true;
        }
        *length += (size_t)got;
    }
}

/* Waits for a child that is about to end. False: it does not. */
static bool reap(pid_t child, int *status)
{
    for (int i = 0; i < 200; i++) {
        if (waitpid(child, status, WNOHANG) == child) {
            return true;
        }
        hdi_sleep_for(10000000);
    }
    return false;
}

static void take(const char *name, const char *text, size_t length, int status, doctor_snapshot *s)
{
    char error[DOCTOR_ERROR_BYTES], end[64];
    doctor_snapshot found = {0};
    if (WIFSIGNALED(status)) {
        snprintf(end, sizeof(end), "crashed with signal %d", WTERMSIG(status));
    } else if (!doctor_read(&found, text, length, error)) {
        snprintf(end, sizeof(end), "ended with status %d", WEXITSTATUS(status));
    } else {
        snprintf(end, sizeof(end), "ordinary");
    }
    doctor_put(s, end, "%s.end", name);
    doctor_add_all(s, &found);
    doctor_release(&found);
}

void doctor_isolate(const char *name, doctor_source source, void *context, int limit_s, doctor_snapshot *s)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        doctor_miss(s, "no pipe could be made", "%s.end", name);
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(source, context, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        doctor_miss(s, "no process could be started", "%s.end", name);
        close(ends[0]);
        return;
    }
    char *text = cli_allocate(DOCTOR_FILE_MAX);
    size_t length = 0;
    int64_t start = hdi_clock_ns(), limit = (int64_t)limit_s * 1000000000;
    bool in_time = read_all(ends[0], start + limit / PATIENCE, text, &length);
    if (!in_time) {
        fprintf(stderr, "heddle doctor: %s does not answer; it is asked for %d s at most\n", name, limit_s);
        in_time = read_all(ends[0], start + limit, text, &length);
    }
    if (!in_time) {
        kill(child, SIGKILL);
    }
    bool ended = reap(child, &status);
    if (in_time && ended) {
        take(name, text, length, status, s);
    } else {
        char end[64];
        kill(child, SIGKILL);
        snprintf(end, sizeof(end), "no answer within %d s%s", limit_s, ended ? "" : ", and it cannot be killed");
        doctor_put(s, end, "%s.end", name);
    }
    free(text);
    close(ends[0]);
}
