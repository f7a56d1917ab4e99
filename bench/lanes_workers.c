/* lanes_workers.c - the process-per-device rows: worker processes that make plain driver calls, and
 * one process that disturbs them.
 *
 * A worker is a new process of this program (posix_spawn of /proc/self/exe, never fork alone). It
 * inherits two descriptors: a socket and a memory file. The socket carries commands and answers.
 * The file holds the run's facts, and a slot for each worker's results. Between commands the worker
 * sleeps in read(). It ends when the socket closes, and at the latest with its parent.
 *
 * Threads: the parent's side runs on the conductor's thread; a worker has one thread. Locks: none.
 * Always: a slot belongs to its worker from the command to the answer, and to the parent otherwise.
 * `stop` is atomic.
 */
#include "bench/lanes_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SOCKET_FD = 3, /* in the worker */
    MEMORY_FD = 4,
    TIMEOUT_MS = (int)(LANES_TIMEOUT_NS / 1000000),
    END_TIMEOUT_NS = 2 * 1000 * 1000,
    END_TRIES = 2500,
    BEGIN_DELAY_NS = 2 * 1000 * 1000
};

typedef struct slot {
    lanes_result result;
    lanes_disturbance disturbance;
    double tiny_us;
    char error[PLAIN_ERROR];
    float c[LANES_M * LANES_N];
} slot;

/* The memory file. Slot i belongs to device i's worker, and the last slot to the disturber. */
typedef struct shared {
    char provider[16];
    int count;
    uint8_t uuid[LANES_DEVICES_MAX][16];
    lanes_disturb_size disturb_size;
    _Atomic uint32_t stop; /* tells the disturber to end */
    slot slots[];
} shared;

typedef enum command_kind {
    COMMAND_PREPARE = 1,
    COMMAND_RUN,
    COMMAND_DISTURB,
    COMMAND_FLOW,
    COMMAND_TRIPS
} command_kind;

typedef struct command {
    uint32_t kind;
    uint32_t warm;  /* launches */
    uint64_t count; /* number of tiny launches or trips */
    lanes_when when;
} command;

typedef struct answer {
    uint32_t ok; /* false: see the slot's error */
} answer;

/* ---- the parent's side ---- */

struct lanes_workers {
    shared *shared;
    size_t bytes;
    int memory_fd;
    int count; /* number of devices; one more worker disturbs */
    pid_t pids[LANES_DEVICES_MAX + 1];
    int sockets[LANES_DEVICES_MAX + 1];
};

static bool bench_system_failed(const char *what, int code, char *error)
{
    snprintf(error, PLAIN_ERROR, "%s: %s", what, strerror(code));
    return false;
}

/* Moves the descriptor above the numbers that the workers use. */
static int bench_move_up(int fd)
{
    int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
    if (fd >= 0) {
        close(fd);
    }
    return moved;
}

static bool bench_spawn_one(lanes_workers *w, int index, char *error)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return bench_system_failed("socketpair", errno, error);
    }
    pair[0] = bench_move_up(pair[0]);
    pair[1] = bench_move_up(pair[1]);
    w->sockets[index] = pair[0];
    char number[16], parent[16];
    snprintf(number, sizeof(number), "%d", index);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    char *arguments[] = {"heddle-bench", "lanes", LANES_WORKER, number, parent, NULL};
    posix_spawn_file_actions_t actions;
    int failed = pair[0] < 0 || pair[1] < 0 ? EMFILE : posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&actions, pair[1], SOCKET_FD);
        failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, w->memory_fd, MEMORY_FD);
        failed = failed ? failed : posix_spawn(&w->pids[index], "/proc/self/exe", &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (pair[1] >= 0) {
        close(pair[1]);
    }
    if (failed) {
        w->pids[index] = 0;
        return bench_system_failed("starting a worker process", failed, error);
    }
    return true;
}

static bool bench_send_command(lanes_workers *w, int index, const command *c, char *error)
{
    if (send(w->sockets[index], c, sizeof(*c), MSG_NOSIGNAL) != (ssize_t)sizeof(*c)) {
        return bench_system_failed("sending to a worker process", errno, error);
    }
    return true;
}

static bool bench_receive_answer(lanes_workers *w, int index, char *error)
{
    struct pollfd p = {.fd = w->sockets[index], .events = POLLIN};
    int ready;
    do {
        ready = poll(&p, 1, TIMEOUT_MS);
    } while (ready < 0 && errno == EINTR);
    answer a = {0};
    if (ready <= 0) {
        snprintf(error, PLAIN_ERROR, "worker process %d does not answer", index);
        return false;
    }
    if (recv(w->sockets[index], &a, sizeof(a), 0) != (ssize_t)sizeof(a)) {
        snprintf(error, PLAIN_ERROR, "worker process %d ended before its work was done", index);
        return false;
    }
    if (!a.ok) {
        snprintf(error, PLAIN_ERROR, "worker process %d: %.400s", index, w->shared->slots[index].error);
        return false;
    }
    return true;
}

/* Waits for every answer, even after a bad one, so that no worker still writes to its slot. */
static bool bench_receive_answers(lanes_workers *w, int count, char *error)
{
    bool ok = true;
    char later[PLAIN_ERROR];
    for (int i = 0; i < count; i++) {
        ok = bench_receive_answer(w, i, ok ? error : later) && ok;
    }
    return ok;
}

static bool bench_map_shared(lanes_workers *w, char *error)
{
    w->bytes = sizeof(shared) + (size_t)(w->count + 1) * sizeof(slot);
    w->memory_fd = bench_move_up(memfd_create("heddle-bench-lanes", MFD_CLOEXEC));
    if (w->memory_fd < 0 || ftruncate(w->memory_fd, (off_t)w->bytes) != 0) {
        return bench_system_failed("memfd_create", errno, error);
    }
    void *base = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->memory_fd, 0);
    if (base == MAP_FAILED) {
        return bench_system_failed("mmap", errno, error);
    }
    w->shared = base;
    return true;
}

bool bench_lanes_workers_start(const char *provider, const hd_device_info *devices, int count,
                               const lanes_disturb_size *size, lanes_workers **out, char *error)
{
    lanes_workers *w = calloc(1, sizeof(*w));
    if (!w) {
        return bench_system_failed("worker processes", ENOMEM, error);
    }
    w->count = count;
    w->memory_fd = -1;
    memset(w->sockets, -1, sizeof(w->sockets));
    bool ok = bench_map_shared(w, error);
    if (ok) {
        snprintf(w->shared->provider, sizeof(w->shared->provider), "%s", provider);
        w->shared->count = count;
        w->shared->disturb_size = *size;
        for (int i = 0; i < count; i++) {
            memcpy(w->shared->uuid[i], devices[i].uuid, 16);
        }
    }
    for (int i = 0; i <= count && ok; i++) {
        ok = bench_spawn_one(w, i, error);
    }
    ok = ok && bench_receive_answers(w, count + 1, error);
    if (!ok) {
        bench_lanes_workers_stop(w);
        return false;
    }
    *out = w;
    return true;
}

bool bench_lanes_workers_segment(lanes_workers *w, uint64_t duration_ns, int batch, int warm, bool disturbed,
                                 const lanes_result **results, const float **c, lanes_disturbance *disturbance,
                                 char *error)
{
    command go = {.kind = COMMAND_PREPARE, .warm = (uint32_t)warm};
    bool ok = true;
    for (int i = 0; i < w->count && ok; i++) {
        ok = bench_send_command(w, i, &go, error);
    }
    if (!ok || !bench_receive_answers(w, w->count, error)) {
        return false;
    }
    go.when.begin = cli_stats_monotonic() + BEGIN_DELAY_NS;
    go.when.end = go.when.begin + duration_ns;
    go.when.batch = batch;
    atomic_store(&w->shared->stop, 0);
    if (disturbed) {
        go.kind = COMMAND_DISTURB;
        ok = bench_send_command(w, w->count, &go, error);
    }
    go.kind = COMMAND_RUN;
    for (int i = 0; i < w->count && ok; i++) {
        ok = bench_send_command(w, i, &go, error);
    }
    ok = ok && bench_receive_answers(w, w->count, error);
    atomic_store(&w->shared->stop, 1);
    if (!ok || (disturbed && !bench_receive_answer(w, w->count, error))) {
        return false;
    }
    for (int i = 0; i < w->count; i++) {
        results[i] = &w->shared->slots[i].result;
        c[i] = w->shared->slots[i].c;
    }
    if (disturbed) {
        *disturbance = w->shared->slots[w->count].disturbance;
    }
    return true;
}

bool bench_lanes_workers_tiny(lanes_workers *w, bool trips, uint64_t count, double *us, char *error)
{
    command go = {.kind = trips ? COMMAND_TRIPS : COMMAND_FLOW, .count = count};
    if (!bench_send_command(w, 0, &go, error) || !bench_receive_answer(w, 0, error)) {
        return false;
    }
    *us = w->shared->slots[0].tiny_us;
    return true;
}

/* Ends a worker, whose socket is already closed, and kills it if it does not end by itself. */
static void bench_reap(pid_t pid)
{
    for (int i = 0; i < END_TRIES; i++) {
        pid_t ended = waitpid(pid, NULL, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) {
            return;
        }
        bench_lanes_sleep_until(cli_stats_monotonic() + END_TIMEOUT_NS);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void bench_lanes_workers_stop(lanes_workers *w)
{
    if (!w) {
        return;
    }
    if (w->shared) {
        atomic_store(&w->shared->stop, 1);
    }
    for (int i = 0; i <= w->count; i++) {
        if (w->sockets[i] >= 0) {
            close(w->sockets[i]);
        }
    }
    for (int i = 0; i <= w->count; i++) {
        if (w->pids[i] > 0) {
            bench_reap(w->pids[i]);
        }
    }
    if (w->shared) {
        munmap(w->shared, w->bytes);
    }
    if (w->memory_fd >= 0) {
        close(w->memory_fd);
    }
    free(w);
}

/* ---- the worker's side ---- */

typedef struct worker {
    shared *shared;
    slot *slot;
    int first, count; /* the worker's devices: one, or all for the disturber */
    plain_driver driver;
    plain_image image;
    plain_device devices[LANES_DEVICES_MAX];
} worker;

static bool bench_worker_open(worker *w)
{
    char *error = w->slot->error;
    if (!cli_plain_open(w->shared->provider, &w->driver, error) ||
        !cli_plain_builtin(w->shared->provider, &w->image, error)) {
        return false;
    }
    for (int i = 0; i < w->count; i++) {
        lanes_problem problem;
        if (!bench_lanes_problem_make(w->first + i, false, &problem, error)) {
            return false;
        }
        bool ok = cli_plain_device_open(&w->driver, w->shared->uuid[w->first + i], &w->image, LANES_M, LANES_N, LANES_K,
                                        problem.a, problem.b, &w->devices[i], error);
        bench_lanes_problem_release(&problem);
        if (!ok) {
            return false;
        }
    }
    return true;
}

static bool bench_worker_do(worker *w, const command *c)
{
    char *error = w->slot->error;
    switch (c->kind) {
    case COMMAND_PREPARE:
        return PLAIN_TRY(&w->driver, error, cuCtxSetCurrent, (w->devices[0].context)) &&
               cli_plain_poison(&w->driver, &w->devices[0], error) &&
               bench_lanes_driver_warm(&w->driver, &w->devices[0], (int)c->warm, error);
    case COMMAND_RUN:
        memset(&w->slot->result, 0, sizeof(w->slot->result));
        return bench_lanes_driver_loop(&w->driver, &w->devices[0], &c->when, &w->slot->result, error) &&
               cli_plain_result(&w->driver, &w->devices[0], w->slot->c, error);
    case COMMAND_DISTURB:
        memset(&w->slot->disturbance, 0, sizeof(w->slot->disturbance));
        return bench_lanes_driver_disturb(&w->driver, w->devices, w->count, &w->image, &w->shared->disturb_size,
                                          &w->shared->stop, &w->slot->disturbance, error);
    case COMMAND_FLOW:
    case COMMAND_TRIPS:
        return PLAIN_TRY(&w->driver, error, cuCtxSetCurrent, (w->devices[0].context)) &&
               (c->kind == COMMAND_FLOW ? bench_lanes_driver_flow : bench_lanes_driver_trips)(
                   &w->driver, &w->devices[0], c->count, &w->slot->tiny_us, error);
    default:
        snprintf(error, PLAIN_ERROR, "unknown command %u", c->kind);
        return false;
    }
}

static shared *bench_worker_map(size_t *bytes)
{
    off_t end = lseek(MEMORY_FD, 0, SEEK_END);
    if (end < (off_t)sizeof(shared)) {
        return NULL;
    }
    *bytes = (size_t)end;
    void *base = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY_FD, 0);
    return base == MAP_FAILED ? NULL : base;
}

int bench_lanes_worker(int count, char *const *arguments)
{
    if (count != 2) {
        return 2;
    }
    int index = atoi(arguments[0]);
    pid_t parent = (pid_t)atoi(arguments[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* the parent ended before prctl took effect */
        return 1;
    }
    fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
    fcntl(MEMORY_FD, F_SETFD, FD_CLOEXEC);
    size_t bytes = 0;
    shared *s = bench_worker_map(&bytes);
    if (!s || index < 0 || index > s->count || s->count > LANES_DEVICES_MAX ||
        bytes < sizeof(shared) + (size_t)(s->count + 1) * sizeof(slot)) {
        return 2;
    }
    static worker w; /* zeroed; parameters of a plain_device point into it */
    bool disturbs = index == s->count;
    w.shared = s;
    w.slot = &s->slots[index];
    w.first = disturbs ? 0 : index;
    w.count = disturbs ? s->count : 1;
    cli_stats_clock_start();
    answer a = {.ok = bench_worker_open(&w)};
    command c;
    while (send(SOCKET_FD, &a, sizeof(a), MSG_NOSIGNAL) == (ssize_t)sizeof(a)) {
        ssize_t got;
        do {
            got = recv(SOCKET_FD, &c, sizeof(c), 0);
        } while (got < 0 && errno == EINTR);
        if (got != (ssize_t)sizeof(c)) {
            break; /* the parent closed the socket or is gone */
        }
        a.ok = bench_worker_do(&w, &c);
    }
    for (int i = 0; i < w.count; i++) {
        cli_plain_device_close(&w.driver, &w.devices[i]);
    }
    return 0;
}
