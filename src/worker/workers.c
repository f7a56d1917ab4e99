/* workers.c - starts, watches and ends worker processes. See workers.h.
 *
 * Threads: the watcher runs everything named watch_*; the rest runs on callers. Locks: the workers' mutex, around their states; the
 * watcher lets go of it before it declares a device lost.
 * Always: a process is waited for (reaped) by the watcher alone, so a process number is not used after its process is
 * gone (as long as the application does not wait for it itself).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "worker/children.h"

#define TICK_MS 100        /* between two looks at the workers' signs of life */
#define ENDING_MS 1        /* the same while work of a lost device waits for other devices */
#define KILL_NS 5000000000 /* a killed process gets this long to end */
#define QUIT_NS 2000000000 /* one that was asked to end, before it is killed */
#define PATIENCE 10        /* times worker_timeout, for an engine whose driver call may be waiting for running work */
#define IN_FLIGHT_MANY 256 /* operations, from which on that may be */
#define DESCRIPTOR_LEAST (HDI_WORKER_CODE_SOCKET + 1) /* descriptors for a child lie above all that it shall see */

extern char **environ;

static void wake(hdi_workers *workers)
{
    uint64_t one = 1;
    ssize_t n = write(workers->bell, &one, sizeof one);
    (void)n; /* it fails only when the watcher is to wake up already */
}

/* ---- starting ---- */

static int set_up_child(posix_spawn_file_actions_t *actions, const int sockets[2])
{
    int e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    e = e ? e : posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    e = e ? e : posix_spawn_file_actions_adddup2(actions, sockets[0], HDI_WORKER_MEMORY_SOCKET);
    e = e ? e : posix_spawn_file_actions_adddup2(actions, sockets[1], HDI_WORKER_CODE_SOCKET);
    /* whatever else the application has open without close-on-exec is not the worker's business */
    return e ? e : posix_spawn_file_actions_addclosefrom_np(actions, HDI_WORKER_CODE_SOCKET + 1);
}

/* A process group of its own keeps the terminal's signals away; no signal is blocked or ignored. */
static int set_up_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int e =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    e = e ? e : posix_spawnattr_setpgroup(attributes, 0);
    e = e ? e : posix_spawnattr_setsigmask(attributes, &none);
    return e ? e : posix_spawnattr_setsigdefault(attributes, &all);
}

static int spawn(const char *program, int index, const int sockets[2], pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char device[32];
    snprintf(device, sizeof device, "device=%d", index);
    char name[] = "heddle-worker";
    char *arguments[] = {name, device, NULL};
    int e = posix_spawn_file_actions_init(&actions);
    if (e) {
        return e;
    }
    e = posix_spawnattr_init(&attributes);
    if (!e) {
        e = set_up_child(&actions, sockets);
        e = e ? e : set_up_attributes(&attributes);
        e = e ? e : posix_spawn(pid, program, &actions, &attributes, arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return e;
}

/* The watcher's: one worker that was asked for. The mutex is held. */
static void watch_spawn(hdi_workers *workers, int index)
{
    hdi_child *c = &workers->of[index];
    int e = spawn(workers->program, index, c->theirs, &c->pid);
    hdi_wire_close(c->theirs, 2);
    c->theirs[0] = c->theirs[1] = -1;
    c->spawn_error = e;
    if (e) {
        c->state = HDI_CHILD_NONE;
        c->pid = 0;
    } else {
        c->state = HDI_CHILD_FRESH;
        /* -1 on kernels without it: then the tick notices that the process ended */
        c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
        c->condemned = 0;
        c->condemned_at = 0;
        c->stopped_at = 0;
        c->connection = 0;
        c->ending = false; /* a restart begins only when all of that is over */
    }
    pthread_cond_broadcast(&workers->changed);
}

/* Moves a descriptor above those that the child starts with, so that putting one in its place never meets another. */
static bool lift(int *descriptor)
{
    int high = fcntl(*descriptor, F_DUPFD_CLOEXEC, DESCRIPTOR_LEAST);
    if (high >= 0) {
        close(*descriptor);
        *descriptor = high;
    }
    return high >= 0;
}

void hdi_child_hang_up(hdi_child *c)
{
    hdi_wire_close(c->ours, 2);
    c->ours[0] = c->ours[1] = -1;
}

static hd_status make_sockets(hdi_child *c)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        hd_status status = hdi_wire_pair(ends);
        if (!status) {
            c->ours[i] = ends[0];
            c->theirs[i] = ends[1];
            if (!lift(&c->theirs[i])) {
                status = hdi_fail(HD_ERROR_SYSTEM, "placement=process: no descriptor is left: %s", strerror(errno));
            }
        }
        if (status) {
            hdi_child_hang_up(c);
            hdi_wire_close(c->theirs, 2);
            c->theirs[0] = c->theirs[1] = -1;
            return status;
        }
    }
    return HD_OK;
}

bool hdi_child_await_none(hdi_workers *workers, hdi_child *c, int64_t deadline)
{
    struct timespec limit = {.tv_sec = (time_t)(deadline / 1000000000), .tv_nsec = (long)(deadline % 1000000000)};
    while (c->state != HDI_CHILD_NONE &&
           pthread_cond_timedwait(&workers->changed, &workers->lock, &limit) != ETIMEDOUT) {
    }
    return c->state == HDI_CHILD_NONE;
}

hd_status hdi_worker_spawn(hd_runtime *rt, int index, const char *who)
{
    hdi_workers *workers = rt->workers;
    hdi_child *c = &workers->of[index];
    pthread_mutex_lock(&workers->lock);
    /* The one before may still be on its way out: waits return before its device's loss is settled in all its parts. */
    hd_status status = hdi_child_await_none(workers, c, hdi_deadline(2 * KILL_NS))
                           ? make_sockets(c)
                           : hdi_fail(HD_ERROR_SYSTEM, "%s: the worker process of device %d does not end", who, index);
    if (!status) {
        c->state = HDI_CHILD_WANTED;
        wake(workers);
        while (c->state == HDI_CHILD_WANTED) {
            pthread_cond_wait(&workers->changed, &workers->lock);
        }
        if (c->spawn_error) {
            status = hdi_fail(HD_ERROR_SYSTEM, "%s: the worker program %s cannot be started: %s", who, workers->program,
                              strerror(c->spawn_error));
            hdi_child_hang_up(c);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    return status;
}

/* ---- ending ---- */

static void condemn(hdi_child *c, int code)
{
    if (c->pid > 0 && !c->condemned) {
        c->condemned = code;
        c->condemned_at = hdi_clock_ns();
        /* Not by its number where that may be somebody else's by now: the application may have waited for it itself. */
        if (c->pidfd < 0 || syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0) != 0) {
            if (c->pidfd < 0 || errno == ENOSYS) {
                kill(c->pid, SIGKILL);
            }
        }
    }
}

void hdi_worker_condemn(hd_runtime *rt, int index, uint64_t connection, int code)
{
    hdi_workers *workers = rt->workers;
    pthread_mutex_lock(&workers->lock);
    if (!connection || workers->of[index].connection == connection) {
        condemn(&workers->of[index], code);
    }
    pthread_mutex_unlock(&workers->lock);
}

void hdi_worker_end_device(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    pthread_mutex_lock(&workers->lock);
    workers->of[index].ending = true;
    wake(workers);
    pthread_mutex_unlock(&workers->lock);
}

bool hdi_worker_drives(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    pthread_mutex_lock(&workers->lock);
    bool drives = workers->of[index].state == HDI_CHILD_DRIVING;
    pthread_mutex_unlock(&workers->lock);
    return drives;
}

int hdi_worker_pid(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    pthread_mutex_lock(&workers->lock);
    int pid = (int)workers->of[index].pid;
    pthread_mutex_unlock(&workers->lock);
    return pid;
}

/* Why a process that is gone is gone. */
static int code_of(hdi_workers *workers, int index, const hdi_child *c, const siginfo_t *info)
{
    int ending = 0;
    if (c->state == HDI_CHILD_DRIVING) {
        ending = atomic_load_explicit(&workers->rt->devices[index]->channel.engine->ending, memory_order_acquire);
    }
    if (c->condemned || ending) {
        return c->condemned ? c->condemned : ending;
    }
    if (info->si_pid == 0) {
        return HDI_GONE_CLOSED; /* the application has waited for it itself */
    }
    return info->si_code == CLD_EXITED ? HDI_GONE_EXIT - info->si_status : HDI_GONE_SIGNAL - info->si_status;
}

/* The mutex is held, and let go of while the device is declared lost. */
static void watch_gone(hdi_workers *workers, int index, const siginfo_t *info)
{
    hdi_child *c = &workers->of[index];
    bool drove = c->state == HDI_CHILD_DRIVING;
    c->code = code_of(workers, index, c, info);
    if (c->pidfd >= 0) {
        close(c->pidfd);
        c->pidfd = -1;
    }
    c->pid = 0;
    c->state = HDI_CHILD_GONE;
    if (drove && !workers->closing) {
        int code = c->code;
        hdi_device *device = workers->rt->devices[index];
        pthread_mutex_unlock(&workers->lock);
        hdi_remote_port_cut(device->port);
        hdi_device_lose(device, code);
        pthread_mutex_lock(&workers->lock);
        c->ending = !hdi_device_ended(device);
    }
    c->state = HDI_CHILD_NONE;
    pthread_cond_broadcast(&workers->changed);
}

/* ---- watching ---- */

/* Whether the process has ended; reaps it. A condemned one that does not end in time counts as gone. */
static bool watch_ended(hdi_workers *workers, hdi_child *c, siginfo_t *info)
{
    memset(info, 0, sizeof *info);
    int options = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
    int r = c->pidfd >= 0 ? waitid(P_PIDFD, (id_t)c->pidfd, info, options) : -1;
    if (c->pidfd < 0 || (r != 0 && errno == EINVAL)) {
        r = waitid(P_PID, (id_t)c->pid, info, options);
    }
    if (r == 0 && info->si_pid == c->pid) {
        if (info->si_code != CLD_STOPPED && info->si_code != CLD_CONTINUED && info->si_code != CLD_TRAPPED) {
            return true;
        }
        c->stopped_at = info->si_code == CLD_CONTINUED ? 0 : hdi_clock_ns();
    } else if (r != 0 && errno == ECHILD) {
        return true;
    }
    if (c->condemned && hdi_clock_ns() - c->condemned_at > KILL_NS) {
        if (workers->n_lingering < HDI_LINGERING_MAX) {
            workers->lingering[workers->n_lingering++] = c->pid;
        }
        return true;
    }
    return false;
}

static void watch_lingering(hdi_workers *workers)
{
    for (int i = workers->n_lingering - 1; i >= 0; i--) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)workers->lingering[i], &info, WEXITED | WNOHANG) != 0 || info.si_pid != 0) {
            workers->lingering[i] = workers->lingering[--workers->n_lingering];
        }
    }
}

/* Whether some lane has so much work in flight that the driver may not take more. */
static bool waits_for_device(const hdi_device *device)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < made; i++) {
        const hdi_lane_shared *lane = &device->channel.lanes[i];
        uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
        uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
        in_flight += issued > done ? issued - done : 0;
    }
    return in_flight >= IN_FLIGHT_MANY;
}

/* A worker that is stopped, or whose engine has work and makes no step, for too long. */
static void watch_steps(hdi_workers *workers, int index, int64_t now)
{
    hdi_child *c = &workers->of[index];
    hdi_engine_shared *engine = workers->rt->devices[index]->channel.engine;
    uint64_t beat = atomic_load_explicit(&engine->beat, memory_order_relaxed);
    bool busy = false;
    for (int i = 0; i < HDI_LANES_MAX / 64; i++) {
        busy |= atomic_load_explicit(&engine->active[i], memory_order_relaxed) != 0;
    }
    int64_t limit = workers->rt->options.worker_timeout * 1000000;
    /* The driver takes about a thousand launches ahead of the one that runs; then the next one waits for it inside the driver. */
    int64_t step_limit = waits_for_device(workers->rt->devices[index]) ? PATIENCE * limit : limit;
    if (!busy || beat != c->beat || c->beat_at == 0) {
        c->beat = beat;
        c->beat_at = now;
    }
    if (now - c->beat_at > step_limit || (c->stopped_at && now - c->stopped_at > limit)) {
        condemn(c, HDI_GONE_STUCK);
    }
}

static void watch_child(hdi_workers *workers, int index, int64_t now)
{
    hdi_child *c = &workers->of[index];
    if (c->state == HDI_CHILD_WANTED) {
        watch_spawn(workers, index);
    }
    siginfo_t info;
    if (c->pid > 0 && watch_ended(workers, c, &info)) {
        watch_gone(workers, index, &info);
    } else if (c->state == HDI_CHILD_DRIVING && !workers->closing) {
        watch_steps(workers, index, now);
    }
    if (workers->closing && c->pid > 0 && now - workers->closing_at > QUIT_NS) {
        condemn(c, HDI_GONE_CLOSED);
    }
}

/* Lost devices some of whose work waited for others. True: there still are some. */
static bool watch_ends(hdi_workers *workers)
{
    bool any = false;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_child *c = &workers->of[i];
        if (c->ending && c->state == HDI_CHILD_NONE) {
            c->ending = !hdi_device_end(workers->rt->devices[i]);
        }
        any |= c->ending;
    }
    return any;
}

static void watch_sleep(hdi_workers *workers, bool ending)
{
    struct pollfd polled[1 + HDI_DEVICES_MAX] = {{.fd = workers->bell, .events = POLLIN}};
    nfds_t n = 1;
    bool any = false;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        if (workers->of[i].pid > 0) {
            any = true;
            if (workers->of[i].pidfd >= 0) {
                polled[n++] = (struct pollfd){.fd = workers->of[i].pidfd, .events = POLLIN};
            }
        }
    }
    pthread_mutex_unlock(&workers->lock);
    poll(polled, n, ending ? ENDING_MS : any || workers->n_lingering ? TICK_MS : -1);
    pthread_mutex_lock(&workers->lock);
    if (polled[0].revents) {
        uint64_t count;
        ssize_t r = read(workers->bell, &count, sizeof count);
        (void)r;
    }
}

static bool watch_all_gone(const hdi_workers *workers)
{
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        if (workers->of[i].state != HDI_CHILD_NONE) {
            return false;
        }
    }
    return true;
}

static void *watch(void *argument)
{
    hdi_workers *workers = argument;
    pthread_mutex_lock(&workers->lock);
    while (!workers->closing || !watch_all_gone(workers)) {
        int64_t now = hdi_clock_ns();
        for (int i = 0; i < HDI_DEVICES_MAX; i++) {
            watch_child(workers, i, now);
        }
        watch_lingering(workers);
        bool ending = watch_ends(workers);
        if (!workers->closing || !watch_all_gone(workers)) {
            watch_sleep(workers, ending);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

/* ---- the whole ---- */

static hd_status start_watcher(hdi_workers *workers)
{
    int error = hdi_thread_start(&workers->thread, watch, workers);
    return error ? hdi_fail(HD_ERROR_SYSTEM, "hd_open: no thread to watch workers: %s", strerror(error)) : HD_OK;
}

hd_status hdi_workers_create(hd_runtime *rt)
{
    hdi_workers *workers = calloc(1, sizeof *workers);
    if (!workers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory");
    }
    workers->rt = rt;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        workers->of[i] = (hdi_child){.pidfd = -1, .ours = {-1, -1}, .theirs = {-1, -1}};
    }
    hd_status status = hdi_worker_find(rt->options.worker, workers->program, sizeof workers->program);
    workers->bell = status ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!status && workers->bell < 0) {
        status = hdi_fail(HD_ERROR_SYSTEM, "hd_open: eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&workers->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&workers->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    status = status ? status : start_watcher(workers);
    if (status) {
        if (workers->bell >= 0) {
            close(workers->bell);
        }
        pthread_cond_destroy(&workers->changed);
        pthread_mutex_destroy(&workers->lock);
        free(workers);
        return status;
    }
    rt->workers = workers;
    return HD_OK;
}

void hdi_workers_release(hd_runtime *rt)
{
    hdi_workers *workers = rt->workers;
    if (!workers) {
        return;
    }
    pthread_mutex_lock(&workers->lock);
    workers->closing = true;
    workers->closing_at = hdi_clock_ns();
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_child_hang_up(&workers->of[i]);
    }
    wake(workers);
    pthread_mutex_unlock(&workers->lock);
    /* A worker ends when its sockets close. */
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i] && rt->devices[i]->port) {
            hdi_remote_port_cut(rt->devices[i]->port);
        }
    }
    pthread_join(workers->thread, NULL);
    close(workers->bell);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
    rt->workers = NULL;
}
