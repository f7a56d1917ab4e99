/* isolate.c - runs a source of facts in a child process, because libraries of the driver may hang
 * or crash.
 *
 * The child and its descendants share a new process group. This process kills the group before it
 * reaps the child, so that the group's number cannot belong to another group yet.
 *
 * Threads: one. Locks: none. Blocking: up to the limit, and until a killed child ends.
 * Always: on return the child and its group ended or were killed. The one exception is a child that
 * the kernel cannot kill. If this process ends, its child is killed.
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
#include "process/spawn.h"

enum {
    PATIENCE = 10, /* a wait that takes longer than a tenth of the limit is announced */
    LOOK_MS = 10,  /* the time between two checks whether the child ended */
    LOOKS = 200    /* the number of checks of a child that is about to end */
};

/* A child that runs a source, and its output. */
typedef struct asked {
    pid_t child;
    int pipe;
    char *text;
    size_t length;
} asked;

/* Hides the output of libraries. */
static void doctor_isolate_silence_output(void)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && nowhere >= 0; fd++) {
        dup2(nowhere, fd);
    }
}

static void doctor_isolate_run_child(doctor_source source, void *context, int out)
{
    doctor_snapshot s = {0};
    char *text = NULL;
    size_t length = 0;
    doctor_isolate_silence_output();
    source(context, &s);
    FILE *file = open_memstream(&text, &length);
    if (!file) {
        _exit(1);
    }
    doctor_write(&s, file);
    bool good = fclose(file) == 0 && hdi_write_quietly(out, text, length, INT64_MAX);
    _exit(good ? 0 : 1);
}

/* True if the child ended. Does not reap it. */
static bool doctor_isolate_child_has_ended(pid_t child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

/* Reads until the child closes its end of the pipe, or ends: another process may keep the pipe
 * open. False: the time is up. */
static bool doctor_isolate_read_all(asked *a, int64_t deadline)
{
    for (;;) {
        /* check this before the pipe, so that all output of the child is read */
        bool ended = doctor_isolate_child_has_ended(a->child);
        int64_t left = (deadline - hdi_clock_ns()) / 1000000;
        struct pollfd p = {.fd = a->pipe, .events = POLLIN};
        if (left <= 0 && !ended) {
            return false;
        }
        if (poll(&p, 1, ended ? 0 : left < LOOK_MS ? (int)left : LOOK_MS) <= 0) {
            if (ended) {
                return true;
            }
            continue;
        }
        ssize_t got = read(a->pipe, a->text + a->length, DOCTOR_FILE_MAX - a->length);
        if (got <= 0) {
            return true;
        }
        a->length += (size_t)got;
    }
}

/* Waits for the child, which should end soon. Then kills the rest of its group, and reaps the
 * child.
 * False: the child does not end. */
static bool doctor_isolate_reap_child(pid_t child, int *status)
{
    for (int i = 0; i < LOOKS; i++) {
        if (doctor_isolate_child_has_ended(child)) {
            kill(-child, SIGKILL);
            return waitpid(child, status, 0) == child;
        }
        hdi_sleep_for((int64_t)LOOK_MS * 1000000);
    }
    return false;
}

static void doctor_isolate_take_facts(const char *name, const char *text, size_t length, int status, doctor_snapshot *s)
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

/* Forks the child. False: the fork failed, and a fact gives the reason. */
static bool doctor_isolate_fork_child(const char *name, doctor_source source, void *context, asked *a,
                                      doctor_snapshot *s)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        doctor_miss(s, "no pipe could be made", "%s.end", name);
        return false;
    }
    fflush(NULL);
    a->child = fork();
    if (a->child == 0) {
        setpgid(0, 0);
        hdi_program_begin();
        close(ends[0]);
        doctor_isolate_run_child(source, context, ends[1]);
    }
    close(ends[1]);
    if (a->child < 0) {
        doctor_miss(s, "no process could be started", "%s.end", name);
        close(ends[0]);
        return false;
    }
    /* parent and child both call setpgid, because either may run first */
    setpgid(a->child, a->child);
    a->pipe = ends[0];
    return true;
}

void doctor_isolate(const char *name, doctor_source source, void *context, int limit_s, doctor_snapshot *s)
{
    asked a = {0};
    int status = 0;
    if (!doctor_isolate_fork_child(name, source, context, &a, s)) {
        return;
    }
    a.text = cli_allocate(DOCTOR_FILE_MAX);
    int64_t start = hdi_clock_ns(), limit = (int64_t)limit_s * 1000000000;
    bool in_time = doctor_isolate_read_all(&a, start + limit / PATIENCE);
    if (!in_time) {
        fflush(stdout);
        fprintf(stderr, "heddle doctor: %s does not answer; waiting for at most %d s\n", name, limit_s);
        in_time = doctor_isolate_read_all(&a, start + limit);
    }
    if (!in_time) {
        kill(-a.child, SIGKILL);
    }
    bool ended = doctor_isolate_reap_child(a.child, &status);
    if (in_time && ended) {
        doctor_isolate_take_facts(name, a.text, a.length, status, s);
    } else {
        char end[64];
        if (!ended) {
            kill(-a.child, SIGKILL);
        }
        snprintf(end, sizeof(end), "no answer within %d s%s", limit_s, ended ? "" : ", and it cannot be killed");
        doctor_put(s, end, "%s.end", name);
    }
    free(a.text);
    close(a.pipe);
}
