/* workers.c - starts, watches and ends worker processes. See workers.h.
 *
 * Threads: the watcher runs everything named watch_*; the rest runs on callers. Locks: the workers' mutex, around their states; the
 * watcher lets go of it before it declares a device lost.
 * Always: only the watcher waits for a process (reaps it). So a process number is not used after its process is
 * gone, as long as the application does not wait for it itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/wait.h"
#include "base/error.h"
#include "base/thread.h"
#include "worker/children.h"

#define TICK_MS 100        /* between two looks at the workers' signs of life */
#define DRAINING_MS 1      /* the same while work of a lost device waits for other devices */
#define KILL_NS 5000000000 /* a killed process gets this long to end */
#define QUIT_NS 2000000000 /* one that was asked to end, before it is killed */
#define BEHIND_WORK 10     /* times worker_timeout, for an engine whose driver call may be waiting for running work */
#define IN_FLIGHT_MANY 256 /* operations, from which on that may be */
#define DRIVER_CODES 1000  /* the driver's own are below */

void hdi_watcher_wake(hdi_workers *workers)
{
    uint64_t one = 1;
    ssize_t n = write(workers->doorbell, &one, sizeof one);
    (void)n; /* it fails only when the watcher is to wake up already */
}

/* ---- starting ---- */

static int spawn(const char *program, int index, const int sockets[2], hdi_process *out)
{
    char device[32] = "spare";
    if (index < HDI_DEVICES_MAX) {
        snprintf(device, sizeof device, "device=%d", index);
    }
    char name[] = "heddle-worker";
    char *arguments[] = {name, device, NULL};
    return hdi_spawn(program, arguments, sockets, 2, out);
}

void hdi_child_spawn(hdi_workers *workers, int index)
{
    hdi_child *c = &workers->of[index];
    int e = spawn(workers->program, index, c->theirs, &c->process);
    hdi_wire_close(c->theirs, 2);
    c->theirs[0] = c->theirs[1] = -1;
    c->spawn_error = e;
    if (e) {
        c->state = HDI_CHILD_NONE;
        c->process.pid = 0;
    } else {
        c->state = HDI_CHILD_FRESH; /* without a pidfd the tick notices that the process ended */
        c->killed = 0;
        c->killed_at = 0;
        c->stopped_at = 0;
        c->connection = 0;
    }
    pthread_cond_broadcast(&workers->changed);
}

void hdi_child_disconnect(hdi_child *c)
{
    hdi_wire_close(c->ours, 2);
    c->ours[0] = c->ours[1] = -1;
}

hd_status hdi_child_make_sockets(hdi_child *c)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        hd_status status = hdi_wire_pair(ends);
        if (!status) {
            c->ours[i] = ends[0];
            c->theirs[i] = ends[1];
            c->asked = false;
            if (!hdi_spawn_lift(&c->theirs[i])) {
                status = hdi_fail(HD_ERROR_SYSTEM, "placement=process: no descriptor is left: %s", strerror(errno));
            }
        }
        if (status) {
            hdi_child_disconnect(c);
            hdi_wire_close(c->theirs, 2);
            c->theirs[0] = c->theirs[1] = -1;
            return status;
        }
    }
    return HD_OK;
}

bool hdi_child_await_none(hdi_workers *workers, hdi_child *c, int64_t deadline)
{
    while (c->state != HDI_CHILD_NONE && hdi_cond_wait(&workers->changed, &workers->lock, deadline)) {
    }
    return c->state == HDI_CHILD_NONE;
}

hd_status hdi_worker_spawn(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    hdi_child *c = &workers->of[index];
    hdi_mutex_lock(&workers->lock);
    /* The one before may still be on its way out: waits return before its device's loss is settled in all its parts. */
    hd_status status = hdi_child_await_none(workers, c, hdi_deadline(2 * KILL_NS))
                           ? hdi_child_make_sockets(c)
                           : hdi_fail(HD_ERROR_SYSTEM, "the worker process of device %d does not end", index);
    if (!status) {
        c->state = HDI_CHILD_WANTED;
        hdi_watcher_wake(workers);
        while (c->state == HDI_CHILD_WANTED) {
            hdi_mutex_wait(&workers->lock, &workers->changed);
        }
        if (c->spawn_error) {
            status = hdi_fail(HD_ERROR_SYSTEM, "the worker program %s cannot be started: %s", workers->program,
                              strerror(c->spawn_error));
            hdi_child_disconnect(c);
        }
    }
    hdi_mutex_unlock(&workers->lock);
    return status;
}

/* ---- ending ---- */

static void kill_child(hdi_workers *workers, int index, int code)
{
    hdi_child *c = &workers->of[index];
    if (c->process.pid > 0 && !c->killed) {
        if (c->state == HDI_CHILD_DRIVING) {
            hdi_device_give_up(workers->rt->devices[index]);
        }
        c->killed = code;
        c->killed_at = hdi_clock_ns();
        hdi_process_kill(&c->process);
    }
}

void hdi_worker_kill(hd_runtime *rt, int index, uint64_t connection, int code)
{
    hdi_workers *workers = rt->workers;
    hdi_mutex_lock(&workers->lock);
    if (!connection || workers->of[index].connection == connection) {
        kill_child(workers, index, code);
    }
    hdi_mutex_unlock(&workers->lock);
}

void hdi_workers_drain(hd_runtime *rt)
{
    hdi_watcher_wake(rt->workers);
}

void hdi_worker_drop(hd_runtime *rt, int index)
{
    hdi_worker_kill(rt, index, 0, HDI_GONE_CLOSED);
    hdi_child_disconnect(&rt->workers->of[index]);
}

bool hdi_worker_is_begun(const hd_runtime *rt, int index)
{
    return hdi_child_is_begun(&rt->workers->of[index]);
}

bool hdi_worker_drives(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    hdi_mutex_lock(&workers->lock);
    bool drives = workers->of[index].state == HDI_CHILD_DRIVING;
    hdi_mutex_unlock(&workers->lock);
    return drives;
}

const char *hdi_worker_program(const hd_runtime *rt)
{
    return rt->workers->program;
}

int hdi_worker_pid(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    hdi_mutex_lock(&workers->lock);
    int pid = (int)workers->of[index].process.pid;
    hdi_mutex_unlock(&workers->lock);
    return pid;
}

/* The code for which a worker has ended itself; 0: it did not, or a stray write made it look so. */
static int cause_of_end(const hdi_device *device, const siginfo_t *info)
{
    bool left = info->si_pid == 0 || (info->si_code == CLD_EXITED && info->si_status == HDI_WORKER_EXIT_LOST);
    int code = atomic_load_explicit(&device->channel.engine->lost_by, memory_order_acquire);
    bool can_be = code > 0 ? code < DRIVER_CODES : code == HDI_GONE_WATCHDOG || code == HDI_GONE_CORRUPTED;
    return left && can_be ? code : 0;
}

/* Why a process that is gone is gone. */
static int code_of(hdi_workers *workers, int index, const hdi_child *c, const siginfo_t *info)
{
    int cause = c->state == HDI_CHILD_DRIVING ? cause_of_end(workers->rt->devices[index], info) : 0;
    if (c->killed || cause) {
        return c->killed ? c->killed : cause;
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
    if (c->process.pidfd >= 0) {
        close(c->process.pidfd);
        c->process.pidfd = -1;
    }
    c->process.pid = 0;
    c->state = HDI_CHILD_GONE;
    if (drove && !workers->closing) {
        int code = c->code;
        hdi_device *device = workers->rt->devices[index];
        hdi_mutex_unlock(&workers->lock);
        hdi_remote_port_disconnect(device->port);
        hdi_device_lose(device, code);
        hdi_mutex_lock(&workers->lock);
    }
    c->state = HDI_CHILD_NONE;
    pthread_cond_broadcast(&workers->changed);
}

/* ---- watching ---- */

/* Whether the process has ended; reaps it. A killed one that does not end in time counts as gone. */
static bool watch_ended(hdi_workers *workers, hdi_child *c, siginfo_t *info)
{
    if (!hdi_process_look(&c->process, info)) {
        return true;
    }
    if (info->si_pid == c->process.pid) {
        if (info->si_code != CLD_STOPPED && info->si_code != CLD_CONTINUED && info->si_code != CLD_TRAPPED) {
            return true;
        }
        c->stopped_at = info->si_code == CLD_CONTINUED ? 0 : hdi_clock_ns();
    }
    if (c->killed && hdi_clock_ns() - c->killed_at > KILL_NS) {
        if (workers->n_lingering < HDI_LINGERING_MAX) {
            workers->lingering[workers->n_lingering++] = c->process.pid;
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
    hdi_device *device = workers->rt->devices[index];
    hdi_engine_shared *engine = device->channel.engine;
    uint64_t heartbeat = atomic_load_explicit(&engine->heartbeat, memory_order_relaxed);
    bool busy = !hdi_device_is_drained(device);
    int64_t limit = workers->rt->options.worker_timeout * 1000000;
    /* The driver takes about a thousand launches ahead of the one that runs; then the next one waits for it inside the driver. */
    int64_t step_limit = waits_for_device(device) ? BEHIND_WORK * limit : limit;
    if (!busy || heartbeat != c->heartbeat || c->heartbeat_at == 0) {
        c->heartbeat = heartbeat;
        c->heartbeat_at = now;
    }
    if (!hdi_device_report_can_be(device, now) || hdi_device_state_of(device) == HDI_DEVICE_FAILING) {
        kill_child(workers, index, HDI_GONE_CORRUPTED);
    }
    if (now - c->heartbeat_at > step_limit || (c->stopped_at && now - c->stopped_at > limit)) {
        kill_child(workers, index, HDI_GONE_STUCK);
    }
}

static void watch_child(hdi_workers *workers, int index, int64_t now)
{
    hdi_child *c = &workers->of[index];
    if (c->state == HDI_CHILD_WANTED) {
        hdi_child_spawn(workers, index);
    }
    siginfo_t info;
    if (c->process.pid > 0 && watch_ended(workers, c, &info)) {
        watch_gone(workers, index, &info);
    } else if (c->state == HDI_CHILD_DRIVING && !workers->closing) {
        watch_steps(workers, index, now);
    }
    if (workers->closing && c->process.pid > 0 && now - workers->closing_at > QUIT_NS) {
        kill_child(workers, index, HDI_GONE_CLOSED);
    }
}

/* Lost devices some of whose work waited for others. True: there still are some. */
static bool watch_draining(hdi_workers *workers)
{
    bool any = false;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        const hdi_child *c = &workers->of[i];
        if (c->state == HDI_CHILD_NONE && c->connection) {
            any |= hdi_device_drain(workers->rt->devices[i]);
        }
    }
    return any;
}

static void watch_sleep(hdi_workers *workers, bool draining)
{
    struct pollfd polled[1 + HDI_CHILDREN] = {{.fd = workers->doorbell, .events = POLLIN}};
    nfds_t n = 1;
    bool any = false;
    for (int i = 0; i < HDI_CHILDREN; i++) {
        if (workers->of[i].process.pid > 0) {
            any = true;
            if (workers->of[i].process.pidfd >= 0) {
                polled[n++] = (struct pollfd){.fd = workers->of[i].process.pidfd, .events = POLLIN};
            }
        }
    }
    bool ticks = any || workers->n_lingering || workers->spare_request;
    hdi_mutex_unlock(&workers->lock);
    poll(polled, n, draining ? DRAINING_MS : ticks ? TICK_MS : -1);
    hdi_mutex_lock(&workers->lock);
    if (polled[0].revents) {
        uint64_t count;
        ssize_t r = read(workers->doorbell, &count, sizeof count);
        (void)r;
    }
}

static bool watch_all_gone(const hdi_workers *workers)
{
    for (int i = 0; i < HDI_CHILDREN; i++) {
        if (workers->of[i].state != HDI_CHILD_NONE) {
            return false;
        }
    }
    return true;
}

static void *watch(void *argument)
{
    hdi_workers *workers = argument;
    hdi_mutex_lock(&workers->lock);
    while (!workers->closing || !watch_all_gone(workers)) {
        int64_t now = hdi_clock_ns();
        for (int i = 0; i < HDI_CHILDREN; i++) {
            watch_child(workers, i, now);
        }
        hdi_spares_watch(workers);
        watch_lingering(workers);
        bool draining = watch_draining(workers);
        if (!workers->closing || !watch_all_gone(workers)) {
            watch_sleep(workers, draining);
        }
    }
    hdi_mutex_unlock(&workers->lock);
    return NULL;
}

/* ---- the whole ---- */

static hd_status start_watcher(hdi_workers *workers)
{
    int error = hdi_thread_start(&workers->thread, watch, workers);
    return error ? hdi_fail(HD_ERROR_SYSTEM, "no thread to watch workers: %s", strerror(error)) : HD_OK;
}

hd_status hdi_workers_create(hd_runtime *rt)
{
    hdi_workers *workers = calloc(1, sizeof *workers);
    if (!workers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    workers->rt = rt;
    for (int i = 0; i < HDI_CHILDREN; i++) {
        workers->of[i] = (hdi_child){.process = {.pidfd = -1}, .ours = {-1, -1}, .theirs = {-1, -1}};
    }
    hd_status status = hdi_program_find("heddle-worker", "worker", rt->options.worker, "placement=process",
                                        workers->program, sizeof workers->program);
    workers->doorbell = status ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!status && workers->doorbell < 0) {
        status = hdi_fail(HD_ERROR_SYSTEM, "eventfd: %s", strerror(errno));
    }
    hdi_mutex_init(&workers->lock, HDI_RANK_WORKERS);
    hdi_cond_init(&workers->changed);
    status = status ? status : start_watcher(workers);
    if (status) {
        if (workers->doorbell >= 0) {
            close(workers->doorbell);
        }
        pthread_cond_destroy(&workers->changed);
        hdi_mutex_destroy(&workers->lock);
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
    hdi_mutex_lock(&workers->lock);
    workers->closing = true;
    workers->closing_at = hdi_clock_ns();
    for (int i = 0; i < HDI_CHILDREN; i++) {
        hdi_child_disconnect(&workers->of[i]);
        if (workers->of[i].state == HDI_CHILD_FRESH) {
            kill_child(workers, i, HDI_GONE_CLOSED); /* it may not be a worker at all, and then would not care */
        }
    }
    hdi_watcher_wake(workers);
    hdi_mutex_unlock(&workers->lock);
    /* A worker ends when its sockets close. */
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i] && rt->devices[i]->port) {
            hdi_remote_port_disconnect(rt->devices[i]->port);
        }
    }
    pthread_join(workers->thread, NULL);
    close(workers->doorbell);
    pthread_cond_destroy(&workers->changed);
    hdi_mutex_destroy(&workers->lock);
    free(workers->spare_request);
    free(workers);
    rt->workers = NULL;
}
