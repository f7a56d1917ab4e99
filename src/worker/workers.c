/* workers.c - starts worker processes, shakes hands with them, keeps some in reserve, and watches
 * and ends them. See workers.h.
 *
 * A spare is a worker in reserve: a process that started the driver, the slowest step, and drives
 * no device yet. The handshake is the first messages between the application and a fresh worker
 * process, until the device's port takes over.
 *
 * Threads: the watcher of the workers runs all functions named watch_*, and starts the spares.
 * hd_open and hd_device_restart run the handshake, one at a time per device. The calling thread
 * runs all other functions.
 * Locks: the workers' mutex, around their states. The watcher releases it before it declares a
 * device lost.
 * Blocking: a handshake, up to the option worker_timeout per message.
 * Always:
 * - Only the watcher reaps a process. So a process number is not used after its process is gone, as
 *   long as the application itself does not wait for the process.
 * - After a failure in the worker, the process is being killed and its sockets are closed. After a
 *   failure in the application, the caller shuts the process down.
 * - A spare is never essential. A spare that ends is replaced, until a few end in a row. If a spare
 *   turns out useless when it is taken, a fresh process replaces it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "engine/providers.h"
#include "process/spawn.h"
#include "process/wire.h"
#include "simulator/simulator.h"
#include "worker/message.h"
#include "worker/part.h"
#include "worker/remote.h"
#include "worker/workers.h"

#define TICK_MS 100 /* the time between two looks at the workers' signs of life */
/* a longer time between two looks means that the watcher itself did not run */
#define GAP_NS 1000000000
/* an engine without a sign of life is rung after a quarter of the limit */
#define RINGS 4
#define DRAINING_MS 1      /* the tick while work of a lost device waits for other devices */
#define KILL_NS 5000000000 /* a killed process gets this long to end */
#define QUIT_NS 2000000000 /* a process that was asked to end gets this long, before it is killed */
/* for an engine whose driver call may wait for running work, the limit is this many times
 * worker_timeout */
#define BEHIND_WORK 10
#define IN_FLIGHT_MANY 256 /* with this many operations in flight, the driver call may wait */
#define DRIVER_CODES 1000  /* the driver's own codes are below this number */

#define MEMORY_MOST ((uint64_t)1 << 48)
#define GRANULE_LEAST 4096
#define THREADS_MOST 65536

#define END_NS 5000000000 /* how long a start waits for the end of the previous process */
/* the delay of spares after hd_open or a restart, because a starting spare must not share the
 * driver with the first work */
#define LATER_NS 2000000000
#define GONE_MOST 3 /* after this many spares in a row ended, another one would not help */

#define LINGERING_MAX 64
#define SPARES_MAX 8
/* the workers by device, and the spares behind them */
#define CHILDREN (HDI_DEVICES_MAX + SPARES_MAX)

/* The states of the process. device_state.h lists the states of its device. */
typedef enum child_state {
    CHILD_NONE,
    CHILD_WANTED,  /* the watcher must start it */
    CHILD_FRESH,   /* the process runs, but its end would not be a loss of its device yet */
    CHILD_DRIVING, /* the end of the process is the device's loss */
    CHILD_GONE     /* ended; its device is being declared lost */
} child_state;

/* The workers' mutex guards all fields except `ours` and `asked`. Only the thread that starts the
 * worker uses these two, until the port takes them over or the thread closes them. (If the worker
 * ends meanwhile, the other ends of the sockets are closed.) */
typedef struct child {
    child_state state;
    hdi_process process;    /* pid 0: none */
    int ours[2], theirs[2]; /* ends of the memory and the code line, -1 once passed on */
    /* a DISCOVER was sent, and its answer was not taken yet; belongs to `ours` */
    bool asked;
    int spawn_error; /* errno */
    int code;        /* why the last process ended: an HDI_GONE_*, or the driver's code */
    int killed;      /* the reason why it was killed; 0: not killed */
    int64_t killed_at;
    uint64_t connection; /* the connection of its port; 0: it never drove a device */
    uint64_t heartbeat;  /* the heartbeat of its engine; it has not moved since `heartbeat_at` */
    int64_t heartbeat_at;
    int64_t stopped_at; /* 0: it is not stopped */
} child;

struct hdi_workers {
    hd_runtime *rt;
    char program[PATH_MAX];
    pthread_t thread;
    hdi_mutex lock;
    pthread_cond_t changed; /* some child's state */
    int doorbell;           /* eventfd that wakes the watcher */
    bool closing;
    int64_t closing_at;
    child of[CHILDREN];
    /* the request to spares; NULL: no spares. Constant once it is set */
    hdi_message *spare_request;
    bool spares_held;               /* no spare starts now, because a restart needs the machine */
    int64_t spares_from;            /* clock: no spare starts before this time */
    int spares_gone;                /* spares that ended by themselves since the last useful one */
    pid_t lingering[LINGERING_MAX]; /* processes that were killed, but did not end in time */
    int n_lingering;
};

/* True if the process was started, and was not taken over or given up yet. Only the thread that
 * starts it may call this. */
static bool child_is_begun(const child *c)
{
    return c->ours[0] >= 0;
}

/* Wakes the watcher. */
static void workers_wake_watcher(hdi_workers *workers)
{
    uint64_t one = 1;
    ssize_t n = write(workers->doorbell, &one, sizeof one);
    (void)n; /* the write fails only if the watcher will wake up anyway */
}

/* ---- starting ---- */

static int child_spawn_program(const char *program, int index, const int sockets[2], hdi_process *out)
{
    char device[32] = "spare";
    if (index < HDI_DEVICES_MAX) {
        snprintf(device, sizeof device, "device=%d", index);
    }
    char name[] = "heddle-worker";
    char *arguments[] = {name, device, NULL};
    return hdi_spawn(program, arguments, sockets, 2, true, out);
}

/* For the watcher: starts the process. The mutex is held. */
static void child_spawn(hdi_workers *workers, int index)
{
    child *c = &workers->of[index];
    int e = child_spawn_program(workers->program, index, c->theirs, &c->process);
    hdi_wire_close(c->theirs, 2);
    c->theirs[0] = c->theirs[1] = -1;
    c->spawn_error = e;
    if (e) {
        c->state = CHILD_NONE;
        c->process.pid = 0;
    } else {
        c->state = CHILD_FRESH; /* without a pidfd, the tick notices when the process ends */
        c->killed = 0;
        c->killed_at = 0;
        c->stopped_at = 0;
        c->connection = 0;
    }
    pthread_cond_broadcast(&workers->changed);
}

/* Closes the sockets in `ours` that are still open. */
static void child_disconnect(child *c)
{
    hdi_wire_close(c->ours, 2);
    c->ours[0] = c->ours[1] = -1;
}

/* Makes the ends of its sockets. Errors: SYSTEM. */
static hd_status child_make_sockets(child *c)
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
            child_disconnect(c);
            hdi_wire_close(c->theirs, 2);
            c->theirs[0] = c->theirs[1] = -1;
            return status;
        }
    }
    return HD_OK;
}

/* Waits until the child's process is gone, at most until the deadline. The mutex is held. */
static bool child_await_none(hdi_workers *workers, child *c, int64_t deadline)
{
    while (c->state != CHILD_NONE && hdi_cond_wait(&workers->changed, &workers->lock, deadline)) {
    }
    return c->state == CHILD_NONE;
}

hd_status hdi_worker_spawn(hd_runtime *rt, int index)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    child *c = &workers->of[index];
    hdi_mutex_lock(&workers->lock);
    /* The previous process may still be ending. A restart may begin before the loss of its device
     * is fully settled, since waits for work return earlier. */
    hd_status status = child_await_none(workers, c, hdi_deadline(2 * KILL_NS))
                           ? child_make_sockets(c)
                           : hdi_fail(HD_ERROR_SYSTEM, "the worker process of device %d does not end", index);
    if (!status) {
        c->state = CHILD_WANTED;
        workers_wake_watcher(workers);
        while (c->state == CHILD_WANTED) {
            hdi_mutex_wait(&workers->lock, &workers->changed);
        }
        if (c->spawn_error) {
            status = hdi_fail(HD_ERROR_SYSTEM, "the worker program %s cannot be started: %s", workers->program,
                              strerror(c->spawn_error));
            child_disconnect(c);
        }
    }
    hdi_mutex_unlock(&workers->lock);
    return status;
}

/* ---- ending ---- */

static void child_kill(hdi_workers *workers, int index, int code)
{
    child *c = &workers->of[index];
    if (c->process.pid > 0 && !c->killed) {
        if (c->state == CHILD_DRIVING) {
            hdi_device_give_up(workers->rt->devices[index]);
        }
        c->killed = code;
        c->killed_at = hdi_clock_ns();
        hdi_process_kill(&c->process);
    }
}

void hdi_worker_kill(hd_runtime *rt, int index, uint64_t connection, int code)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    hdi_mutex_lock(&workers->lock);
    if (!connection || workers->of[index].connection == connection) {
        child_kill(workers, index, code);
    }
    hdi_mutex_unlock(&workers->lock);
}

void hdi_workers_drain(hd_runtime *rt)
{
    workers_wake_watcher(hdi_worker_of(rt)->workers);
}

void hdi_worker_drop(hd_runtime *rt, int index)
{
    hdi_worker_kill(rt, index, 0, HDI_GONE_CLOSED);
    child_disconnect(&hdi_worker_of(rt)->workers->of[index]);
}

bool hdi_worker_is_begun(hd_runtime *rt, int index)
{
    return child_is_begun(&hdi_worker_of(rt)->workers->of[index]);
}

bool hdi_worker_drives(hd_runtime *rt, int index)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    hdi_mutex_lock(&workers->lock);
    bool drives = workers->of[index].state == CHILD_DRIVING;
    hdi_mutex_unlock(&workers->lock);
    return drives;
}

const char *hdi_worker_program(const hd_runtime *rt)
{
    const hdi_workers *workers = ((const hdi_worker_part *)rt)->workers;
    return workers ? workers->program : "";
}

int hdi_worker_pid(hd_runtime *rt, int index)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    hdi_mutex_lock(&workers->lock);
    int pid = (int)workers->of[index].process.pid;
    hdi_mutex_unlock(&workers->lock);
    return pid;
}

/* The code because of which a worker ended itself. 0: it did not end itself, or a stray write
 * changed the code. */
static int child_cause_of_end(const hdi_device *device, const siginfo_t *info)
{
    bool left = info->si_pid == 0 || (info->si_code == CLD_EXITED && info->si_status == HDI_WORKER_EXIT_LOST);
    int code = atomic_load_explicit(&device->channel.engine->lost_by, memory_order_acquire);
    bool can_be = code > 0 ? code < DRIVER_CODES : code == HDI_GONE_WATCHDOG || code == HDI_GONE_CORRUPTED;
    return left && can_be ? code : 0;
}

/* The reason why a process is gone. */
static int child_code_of_end(hdi_workers *workers, int index, const child *c, const siginfo_t *info)
{
    int cause = c->state == CHILD_DRIVING ? child_cause_of_end(workers->rt->devices[index], info) : 0;
    if (c->killed || cause) {
        return c->killed ? c->killed : cause;
    }
    if (info->si_pid == 0) {
        return HDI_GONE_CLOSED; /* the application itself waited for the process */
    }
    return info->si_code == CLD_EXITED ? HDI_GONE_EXIT - info->si_status : HDI_GONE_SIGNAL - info->si_status;
}

/* Handles a process that ended. The mutex is held, but released while the device is declared
 * lost. */
static void workers_watch_gone(hdi_workers *workers, int index, const siginfo_t *info)
{
    child *c = &workers->of[index];
    bool drove = c->state == CHILD_DRIVING;
    c->code = child_code_of_end(workers, index, c, info);
    if (c->process.pidfd >= 0) {
        close(c->process.pidfd);
        c->process.pidfd = -1;
    }
    c->process.pid = 0;
    c->state = CHILD_GONE;
    if (drove && !workers->closing) {
        int code = c->code;
        hdi_device *device = workers->rt->devices[index];
        hdi_mutex_unlock(&workers->lock);
        hdi_remote_port_disconnect(device->port);
        hdi_device_lose(device, code);
        hdi_mutex_lock(&workers->lock);
    }
    c->state = CHILD_NONE;
    pthread_cond_broadcast(&workers->changed);
}

/* ---- the handshake ---- */

static int64_t workers_deadline_of(hd_runtime *rt)
{
    return hdi_option_deadline(rt->options.worker_timeout);
}

/* Waits until an ending process is gone, and returns the code of its end. */
static int child_wait_gone(hd_runtime *rt, int index)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    hdi_mutex_lock(&workers->lock);
    child *c = &workers->of[index];
    child_await_none(workers, c, workers_deadline_of(rt));
    int code = c->code;
    hdi_mutex_unlock(&workers->lock);
    return code;
}

void hdi_worker_shut_down(hd_runtime *rt, int index)
{
    hdi_worker_kill(rt, index, 0, HDI_GONE_CLOSED);
    child_disconnect(&hdi_worker_of(rt)->workers->of[index]);
    child_wait_gone(rt, index);
}

/* Reports a start that failed, with the `result` of a send or a receive. */
static hd_status workers_start_failed(hd_runtime *rt, int index, hdi_wire_result result)
{
    if (result != HDI_WIRE_CLOSED) {
        hdi_worker_kill(rt, index, 0, HDI_GONE_UNANSWERED);
    }
    child_disconnect(&hdi_worker_of(rt)->workers->of[index]);
    int code = child_wait_gone(rt, index);
    if (result == HDI_WIRE_CLOSED) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program %s for device %d did not start its work: %s",
                        hdi_worker_of(rt)->workers->program, index, hdi_driver_code_name(code));
    }
    return hdi_fail(HD_ERROR_SYSTEM, "the worker program %s for device %d %s", hdi_worker_of(rt)->workers->program,
                    index,
                    result == HDI_WIRE_TIMEOUT ? "did not answer within the option worker_timeout"
                                               : "sent something that is not of this version of Heddle");
}

static hd_status workers_send(hd_runtime *rt, int index, hdi_message *m, const int *descriptors, int n)
{
    child *c = &hdi_worker_of(rt)->workers->of[index];
    size_t bytes = hdi_message_bytes(m->header.kind);
    hdi_wire_result result = hdi_wire_send(c->ours[0], m, bytes, descriptors, n, workers_deadline_of(rt));
    return result == HDI_WIRE_OK ? HD_OK : workers_start_failed(rt, index, result);
}

/* Receives the reply to a DISCOVER or a HELLO. A failure in the worker becomes a failure here. */
static hd_status workers_receive(hd_runtime *rt, int index, uint32_t kind, hdi_message *m)
{
    child *c = &hdi_worker_of(rt)->workers->of[index];
    size_t bytes = 0;
    int n = 0;
    hdi_wire_result result = hdi_wire_receive(c->ours[0], m, sizeof *m, &bytes, NULL, 0, &n, workers_deadline_of(rt));
    if (result == HDI_WIRE_OK &&
        (hdi_message_check(m, bytes, n) != HDI_MESSAGE_GOOD || m->header.kind != (kind | HDI_MESSAGE_REPLY))) {
        result = HDI_WIRE_BROKEN;
    }
    if (result != HDI_WIRE_OK) {
        return workers_start_failed(rt, index, result);
    }
    const hdi_message_welcome *w = &m->payload.welcome;
    if (w->status == HD_OK) {
        return HD_OK;
    }
    hdi_worker_shut_down(rt, index);
    hd_error error = hdi_error_blank((hd_status)w->status);
    error.driver_code = m->header.code;
    error.device = index;
    memcpy(error.operation, m->header.call, sizeof m->header.call);
    error.operation[sizeof m->header.call - 1] = 0;
    if (kind == HDI_MESSAGE_DISCOVER && rt->devices[index]) {
        snprintf(error.message, sizeof error.message, "the worker process of device %d: %.440s", index, w->text);
    } else {
        snprintf(error.message, sizeof error.message, "%s", w->text);
    }
    return hdi_fail_error(&error);
}

static hd_status workers_settings_of(hd_runtime *rt, const char *provider, char *out, size_t bytes)
{
    if (!hdi_options_format(&rt->options, out, bytes)) {
        return hdi_fail(HD_ERROR_OPTION, "placement=process: the options are too long, or one holds quotes");
    }
    size_t used = strlen(out);
    int n = snprintf(out + used, bytes - used, "driver=%s", provider);
    return n > 0 && (size_t)n < bytes - used ? HD_OK
                                             : hdi_fail(HD_ERROR_OPTION, "placement=process: the options are too long");
}

/* The request that makes a process start the driver; the caller frees it. */
static hd_status workers_make_request(hd_runtime *rt, const char *provider, hdi_message **out)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_message_begin(m, HDI_MESSAGE_DISCOVER, 1);
    m->payload.discover.protocol = HDI_MESSAGE_PROTOCOL;
    hd_status status =
        workers_settings_of(rt, provider, m->payload.discover.settings, sizeof m->payload.discover.settings);
    if (status) {
        free(m);
        return status;
    }
    *out = m;
    return HD_OK;
}

hd_status hdi_worker_ask(hd_runtime *rt, int index)
{
    hdi_message *m = NULL;
    hd_status status = workers_make_request(rt, HDI_OPTION_TEXT(&rt->options, driver), &m);
    status = status ? status : workers_send(rt, index, m, NULL, 0);
    hdi_worker_of(rt)->workers->of[index].asked = !status;
    free(m);
    return status;
}

hd_status hdi_worker_discover(hd_runtime *rt, int index, hdi_discovery *out)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_worker_of(rt)->workers->of[index].asked = false;
    hd_status status = workers_receive(rt, index, HDI_MESSAGE_DISCOVER, m);
    if (!status) {
        const hdi_message_welcome *w = &m->payload.welcome;
        const hdi_provider *provider = hdi_provider_named(w->provider);
        *out = (hdi_discovery){
            .provider = provider ? provider : &hdi_provider_host,
            .driver_version = w->driver_version,
            .device_count = w->device_count,
        };
    }
    free(m);
    return status;
}

hd_status hdi_worker_handshake(hd_runtime *rt, int index)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_message_begin(m, HDI_MESSAGE_HELLO, 2);
    hdi_message_hello *h = &m->payload.hello;
    int descriptors[HDI_DEVICES_MAX];
    h->protocol = HDI_MESSAGE_PROTOCOL;
    h->index = (uint32_t)index;
    h->n_devices = (uint32_t)rt->n_devices;
    h->lane_slots = (uint32_t)rt->options.lane_slots;
    for (int i = 0; i < rt->n_devices; i++) {
        h->ordinals[i] = rt->devices[i]->ordinal;
        h->channel_bytes[i] = rt->devices[i]->channel.memory.bytes;
        descriptors[i] = rt->devices[i]->channel.memory.descriptor;
    }
    snprintf(h->version, sizeof h->version, "%s", hd_version());
    hd_status status = workers_settings_of(rt, rt->provider->name, h->settings, sizeof h->settings);
    status = status ? status : workers_send(rt, index, m, descriptors, rt->n_devices);
    free(m);
    return status;
}

static bool workers_is_within(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

/* Checks facts that enter computations: impossible sizes and limits would be divided by, or
 * overflow. */
static bool workers_facts_can_be(const hdi_facts *f)
{
    const hdi_limits *l = &f->limits;
    bool good = workers_is_within(f->memory_bytes, 1, MEMORY_MOST) &&
                workers_is_within(l->threads_per_block, 1, THREADS_MOST) && l->shared_default <= l->shared_max &&
                l->shared_max <= UINT32_MAX && f->multiprocessors > 0 && f->compute_major >= 0 && f->compute_minor >= 0;
    for (int i = 0; i < 3; i++) {
        good &= l->block[i] > 0 && l->grid[i] > 0;
    }
    bool granule = (f->granule & (f->granule - 1)) == 0 && workers_is_within(f->granule, GRANULE_LEAST, MEMORY_MOST);
    return good && (granule || !f->virtual_memory);
}

hd_status hdi_worker_await(hd_runtime *rt, int index)
{
    hdi_discovery unused;
    if (hdi_worker_of(rt)->workers->of[index].asked) {
        hd_status status = hdi_worker_discover(rt, index, &unused);
        if (status) {
            return status;
        }
    }
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = workers_receive(rt, index, HDI_MESSAGE_HELLO, m);
    if (!status && !workers_facts_can_be(&m->payload.welcome.facts)) {
        status = workers_start_failed(rt, index, HDI_WIRE_BROKEN);
    }
    if (!status) {
        hdi_device *device = rt->devices[index];
        child *c = &hdi_worker_of(rt)->workers->of[index];
        if (!device->facts.memory_bytes) {
            /* the facts do not change, so they are read without a lock */
            device->facts = m->payload.welcome.facts;
        }
        hdi_mutex_lock(&hdi_worker_of(rt)->workers->lock);
        int memory = c->ours[0], code = c->ours[1];
        c->ours[0] = c->ours[1] = -1;
        bool alive = c->state == CHILD_FRESH;
        if (alive) {
            /* The port is connected under the mutex, so if the process ends now, the port is
             * disconnected later. */
            c->connection = hdi_remote_port_connect(device->port, memory, code);
            c->state = CHILD_DRIVING;
            c->heartbeat_at = 0;
        } else {
            hdi_wire_close((int[]){memory, code}, 2);
        }
        hdi_mutex_unlock(&hdi_worker_of(rt)->workers->lock);
        status = alive ? HD_OK : workers_start_failed(rt, index, HDI_WIRE_CLOSED);
    }
    free(m);
    return status;
}

/* ---- spares ---- */

static child *workers_spare_at(hdi_workers *workers, int i)
{
    return &workers->of[HDI_DEVICES_MAX + i];
}

hd_status hdi_spares_want(hd_runtime *rt)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    hdi_message *request = NULL;
    if (!workers || rt->options.spare_workers == 0) {
        return HD_OK;
    }
    hdi_mutex_lock(&workers->lock);
    bool known = workers->spare_request != NULL;
    hdi_mutex_unlock(&workers->lock);
    hd_status status = known ? HD_OK : workers_make_request(rt, rt->provider->name, &request);
    hdi_mutex_lock(&workers->lock);
    workers->spare_request = known ? workers->spare_request : request;
    workers->spares_held = false;
    workers->spares_gone = 0;
    workers->spares_from = hdi_clock_ns() + LATER_NS;
    workers_wake_watcher(workers);
    hdi_mutex_unlock(&workers->lock);
    return status;
}

void hdi_spares_hold(hd_runtime *rt)
{
    hdi_mutex_lock(&hdi_worker_of(rt)->workers->lock);
    hdi_worker_of(rt)->workers->spares_held = true;
    hdi_mutex_unlock(&hdi_worker_of(rt)->workers->lock);
}

/* Starts a spare. After any failure there is no spare, and no error is reported. */
static void workers_start_spare(hdi_workers *workers, int index)
{
    child *c = &workers->of[index];
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool started = child_make_sockets(c) == HD_OK;
    hdi_attempt_end(&attempt);
    if (!started) {
        workers->spares_gone = GONE_MOST;
        return;
    }
    child_spawn(workers, index);
    /* in any other state, the watcher notices its end, and reports nothing */
    if (c->state == CHILD_FRESH) {
        size_t bytes = hdi_message_bytes(HDI_MESSAGE_DISCOVER);
        hdi_wire_send(c->ours[0], workers->spare_request, bytes, NULL, 0, hdi_clock_ns());
        c->asked = true;
    }
}

/* Starts missing spares, and notices those that are gone. The mutex is held. */
static void workers_watch_spares(hdi_workers *workers)
{
    if (!workers->spare_request || workers->closing) {
        return;
    }
    bool now = !workers->spares_held && hdi_clock_ns() >= workers->spares_from;
    for (int i = 0; i < workers->rt->options.spare_workers; i++) {
        child *c = workers_spare_at(workers, i);
        if (c->state == CHILD_NONE && child_is_begun(c)) {
            child_disconnect(c);
            workers->spares_gone++;
        }
        if (c->state == CHILD_NONE && now && workers->spares_gone < GONE_MOST) {
            workers_start_spare(workers, HDI_DEVICES_MAX + i);
        }
    }
}

bool hdi_spare_take(hd_runtime *rt, int index)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    child *into = &workers->of[index];
    bool taken = false;
    hdi_mutex_lock(&workers->lock);
    /* if the previous process does not end, the caller uses hdi_worker_spawn, which fails with a
     * message */
    bool room = workers->spare_request && child_await_none(workers, into, hdi_deadline(END_NS));
    for (int i = 0; i < SPARES_MAX && !taken && room; i++) {
        child *c = workers_spare_at(workers, i);
        if (c->state == CHILD_FRESH && !c->killed && !c->stopped_at) {
            *into = *c;
            *c = (child){.process = {.pidfd = -1}, .ours = {-1, -1}, .theirs = {-1, -1}};
            taken = true;
        }
    }
    if (taken) {
        workers_wake_watcher(workers); /* the watcher must watch the process in its new place */
    }
    hdi_mutex_unlock(&workers->lock);
    return taken;
}

/* ---- watching ---- */

/* True if the process ended; reaps it. A killed process that does not end in time counts as
 * gone. */
static bool workers_watch_ended(hdi_workers *workers, child *c, siginfo_t *info)
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
        if (workers->n_lingering < LINGERING_MAX) {
            workers->lingering[workers->n_lingering++] = c->process.pid;
        }
        return true;
    }
    return false;
}

static void workers_watch_lingering(hdi_workers *workers)
{
    for (int i = workers->n_lingering - 1; i >= 0; i--) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)workers->lingering[i], &info, WEXITED | WNOHANG) != 0 || info.si_pid != 0) {
            workers->lingering[i] = workers->lingering[--workers->n_lingering];
        }
    }
}

/* True if so much work is in flight that the driver may take no more. */
static bool workers_device_has_much_in_flight(const hdi_device *device)
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

/* Finds a worker that is stopped for too long, or whose engine has work and makes no step. If all
 * remaining work waits for the program, an engine may sleep without limit. The watcher rings such
 * an engine, whose next pass is its sign of life. */
static void workers_watch_steps(hdi_workers *workers, int index, int64_t now)
{
    child *c = &workers->of[index];
    hdi_device *device = workers->rt->devices[index];
    hdi_engine_shared *engine = device->channel.engine;
    uint64_t heartbeat = atomic_load_explicit(&engine->heartbeat, memory_order_relaxed);
    bool busy = !hdi_device_is_drained(device);
    int64_t limit = workers->rt->options.worker_timeout * 1000000;
    /* The driver takes about a thousand launches ahead of the running one. The next launch then
     * waits inside the driver. */
    int64_t step_limit = workers_device_has_much_in_flight(device) ? BEHIND_WORK * limit : limit;
    if (!busy || heartbeat != c->heartbeat || c->heartbeat_at == 0) {
        c->heartbeat = heartbeat;
        c->heartbeat_at = now;
    }
    if (busy && now - c->heartbeat_at > limit / RINGS) {
        hdi_engine_ring(engine);
    }
    if (!hdi_device_report_can_be(device, now) || hdi_device_state_of(device) == HDI_DEVICE_FAILING) {
        child_kill(workers, index, HDI_GONE_CORRUPTED);
    }
    if (now - c->heartbeat_at > step_limit || (c->stopped_at && now - c->stopped_at > limit)) {
        child_kill(workers, index, HDI_GONE_STUCK);
    }
}

static void workers_watch_child(hdi_workers *workers, int index, int64_t now)
{
    child *c = &workers->of[index];
    if (c->state == CHILD_WANTED) {
        child_spawn(workers, index);
    }
    siginfo_t info;
    if (c->process.pid > 0 && workers_watch_ended(workers, c, &info)) {
        workers_watch_gone(workers, index, &info);
    } else if (c->state == CHILD_DRIVING && !workers->closing) {
        workers_watch_steps(workers, index, now);
    }
    if (workers->closing && c->process.pid > 0 && now - workers->closing_at > QUIT_NS) {
        child_kill(workers, index, HDI_GONE_CLOSED);
    }
}

/* Drains lost devices with work that waited for other devices. True: some are left. */
static bool workers_watch_draining(hdi_workers *workers)
{
    bool any = false;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        const child *c = &workers->of[i];
        if (c->state == CHILD_NONE && c->connection) {
            any |= hdi_device_drain(workers->rt->devices[i]);
        }
    }
    return any;
}

static void workers_watch_sleep(hdi_workers *workers, bool draining)
{
    struct pollfd polled[1 + CHILDREN] = {{.fd = workers->doorbell, .events = POLLIN}};
    nfds_t n = 1;
    bool any = false;
    for (int i = 0; i < CHILDREN; i++) {
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

static bool workers_watch_all_gone(const hdi_workers *workers)
{
    for (int i = 0; i < CHILDREN; i++) {
        if (workers->of[i].state != CHILD_NONE) {
            return false;
        }
    }
    return true;
}

/* Called if the watcher itself did not run for a while. The program was stopped then, for example
 * by Ctrl-Z, and its workers with it. So no worker is to blame. */
static void workers_watch_gap(hdi_workers *workers, int64_t gap)
{
    for (int i = 0; i < CHILDREN; i++) {
        child *c = &workers->of[i];
        c->heartbeat_at += c->heartbeat_at ? gap : 0;
        c->stopped_at += c->stopped_at ? gap : 0;
    }
}

static void *workers_watch(void *argument)
{
    hdi_workers *workers = argument;
    int64_t looked_at = 0;
    hdi_mutex_lock(&workers->lock);
    while (!workers->closing || !workers_watch_all_gone(workers)) {
        int64_t now = hdi_clock_ns();
        if (looked_at && now - looked_at > GAP_NS) {
            workers_watch_gap(workers, now - looked_at);
        }
        looked_at = now;
        for (int i = 0; i < CHILDREN; i++) {
            workers_watch_child(workers, i, now);
        }
        workers_watch_spares(workers);
        workers_watch_lingering(workers);
        bool draining = workers_watch_draining(workers);
        if (!workers->closing || !workers_watch_all_gone(workers)) {
            workers_watch_sleep(workers, draining);
        }
    }
    hdi_mutex_unlock(&workers->lock);
    return NULL;
}

/* ---- the whole ---- */

static hd_status workers_start_watcher(hdi_workers *workers)
{
    int error = hdi_thread_start(&workers->thread, workers_watch, workers);
    return error ? hdi_fail(HD_ERROR_SYSTEM, "no thread to watch workers: %s", strerror(error)) : HD_OK;
}

hd_status hdi_workers_create(hd_runtime *rt)
{
    hdi_workers *workers = calloc(1, sizeof *workers);
    if (!workers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    workers->rt = rt;
    for (int i = 0; i < CHILDREN; i++) {
        workers->of[i] = (child){.process = {.pidfd = -1}, .ours = {-1, -1}, .theirs = {-1, -1}};
    }
    hd_status status = hdi_program_find("heddle-worker", "worker", rt->options.worker, "placement=process",
                                        workers->program, sizeof workers->program);
    workers->doorbell = status ? -1 : hdi_descriptor_event(EFD_NONBLOCK);
    if (!status && workers->doorbell < 0) {
        status = hdi_fail(HD_ERROR_SYSTEM, "eventfd: %s", strerror(errno));
    }
    hdi_mutex_init(&workers->lock, HDI_RANK_WORKERS);
    hdi_cond_init(&workers->changed);
    status = status ? status : workers_start_watcher(workers);
    if (status) {
        if (workers->doorbell >= 0) {
            close(workers->doorbell);
        }
        pthread_cond_destroy(&workers->changed);
        hdi_mutex_destroy(&workers->lock);
        free(workers);
        return status;
    }
    hdi_worker_of(rt)->workers = workers;
    return HD_OK;
}

void hdi_workers_release(hd_runtime *rt)
{
    hdi_workers *workers = hdi_worker_of(rt)->workers;
    if (!workers) {
        return;
    }
    hdi_mutex_lock(&workers->lock);
    workers->closing = true;
    workers->closing_at = hdi_clock_ns();
    for (int i = 0; i < CHILDREN; i++) {
        child_disconnect(&workers->of[i]);
        if (workers->of[i].state == CHILD_FRESH) {
            /* the process may not be a worker at all, and may ignore the sockets */
            child_kill(workers, i, HDI_GONE_CLOSED);
        }
    }
    workers_wake_watcher(workers);
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
    hdi_worker_of(rt)->workers = NULL;
}
