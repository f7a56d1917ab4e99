/* open_close.c - hd_open, and the steps of hd_close (closer.c): make a runtime with its devices,
 * and give it back.
 *
 * The driver takes long for a device: making a context takes a hundred milliseconds, and giving it
 * back takes tens. The driver can do much of this work for several devices in parallel. So some
 * steps of hd_open and hd_close run on all devices at the same time.
 *
 * Threads: hd_open on any, the steps of hd_close on the closer. In a step on all devices, the
 * calling thread handles the first device. Each other device has a thread of its own. With
 * placement=inline, or if no thread can be started, the calling thread handles all devices one
 * after the other.
 * Locks: none.
 * Always:
 * - An hd_open that fails leaves nothing behind.
 * - runtime_device_destroy gives back everything that runtime_device_create made before a step
 *   failed. When runtime_step_at_once returns, its steps on all devices returned.
 * - Memory that unended work may still use is neither freed nor unmapped.
 * - Nothing is freed during a call on the runtime (presence.h). After all handles were ended, no
 *   handle becomes valid (hdi_handles_ended).
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/part.h"
#include "buffer/line.h"
#include "buffer/reclaim.h"
#include "buffer/region.h"
#include "claim/claim.h"
#include "engine/claims.h"
#include "engine/providers.h"
#include "kernel/module.h"
#include "kinds/kinds.h"
#include "memory/arena.h"
#include "memory/part.h"
#include "memory/pinned.h"
#include "memory/share.h"
#include "peer/access.h"
#include "peer/part.h"
#include "peer/peers.h"
#include "runtime/runtime_internal.h"
#include "stats/page.h"
#include "stats/report.h"
#include "tensor/matmul.h"
#include "trace/part.h"
#include "trace/trace.h"
#include "transfer/copy_pool.h"
#include "transfer/route.h"
#include "transfer/staging.h"
#include "worker/part.h"
#include "worker/remote.h"
#include "worker/workers.h"

/* an engine that is about to return from a driver call gets at least this long */
#define STOP_LEAST_NS 1000000000
#define LOOK_SLEEP_NS 1000000

/* A device's range of addresses is this many times its memory, so that no pattern of allocations
 * runs out of addresses. */
#define RANGE_TIMES 16

/* ---- the parts of a runtime ---- */

/* The parts of all layers in a runtime: created in this order; closed, stopped and released in
 * reverse order. So a part is released before the parts that it uses. */
static const hdi_lifetime *const lifetimes[] = {
    &hdi_lines_lifetime,      &hdi_shares_lifetime,        &hdi_host_lifetime,      &hdi_page_lifetime,
    &hdi_findings_lifetime,   &hdi_checkpoint_lifetime,    &hdi_copy_pool_lifetime, &hdi_maintenance_lifetime,
    &hdi_reclaim_lifetime,    &hdi_thread_caches_lifetime, &hdi_peers_lifetime,     &hdi_peer_tester_lifetime,
    &hdi_copy_lanes_lifetime, &hdi_staging_lifetime,       &hdi_buffers_lifetime,   &hdi_holders_lifetime,
    &hdi_holds_lifetime,      &hdi_guard_checker_lifetime, &hdi_pins_lifetime,      &hdi_regions_lifetime,
    &hdi_products_lifetime,   &hdi_modules_lifetime,       &hdi_claims_lifetime,    &hdi_callers_lifetime,
    &hdi_trace_lifetime,
};
#define LIFETIMES (sizeof lifetimes / sizeof lifetimes[0])

/* ---- one device ---- */

/* Makes a device in three steps:
 * - runtime_device_create: the structure and the channel
 * - runtime_device_make_local or runtime_device_make_remote: its port. hdi_worker_await connects a
 *   remote port and fills in the facts
 * - runtime_device_equip: arena and engine
 */

static bool runtime_point_finished(void *context, hdi_point point)
{
    return hdi_point_done(context, point);
}

static void runtime_device_take_limits(hdi_device *device)
{
    device->limits = device->facts.limits;
    for (int i = 1; i < 3; i++) {
        /* A command cannot contain a larger number. No device allows larger numbers. */
        if (device->limits.grid[i] > UINT16_MAX) {
            device->limits.grid[i] = UINT16_MAX;
        }
    }
    device->depths[0] = device->limits.grid[2];
    device->depths[1] = device->limits.block[2];
}

/* If this function fails, the parts that it made stay in *slot, for runtime_device_destroy. */
static hd_status runtime_device_create(hd_runtime *rt, int index, int ordinal, hdi_device **slot)
{
    hdi_device *device = aligned_alloc(HDI_LINE, (sizeof *device + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!device) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for device %d", index);
    }
    *device = (hdi_device){.runtime = rt, .index = index, .ordinal = ordinal};
    device->memory = calloc(1, sizeof *device->memory);
    if (!device->memory) {
        free(device);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for device %d", index);
    }
    hdi_lock_init(&device->order, HDI_RANKED(HDI_RANK_ORDER, device->index));
    hdi_mutex_init(&device->lanes_lock, HDI_RANK_LANES);
    *slot = device;
    hd_status status = hdi_channel_create((uint32_t)rt->options.lane_slots, &device->channel);
    if (!status) {
        hdi_engine_offer_fences(device);
    }
    return status;
}

/* Called if a request on one of the worker's connections failed, or its driver can no longer be
 * used. */
static void runtime_device_line_broken(void *context, uint64_t connection, int code)
{
    hdi_device *device = context;
    /* HDI_GONE_CLOSED: the worker is already ending, and closed the connection */
    if (code != HDI_GONE_CLOSED) {
        hdi_worker_kill(device->runtime, device->index, connection, code);
    }
}

static hd_status runtime_device_make_remote(hdi_device *device)
{
    int64_t limit = device->runtime->options.worker_timeout * 1000000;
    device->port = hdi_remote_port_create(limit, runtime_device_line_broken, device);
    return device->port ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the port of device %d", device->index);
}

static hd_status runtime_device_make_local(hdi_device *device, void *unused)
{
    (void)unused;
    hd_status status = hdi_device_attach(device);
    if (!status) {
        hdi_answer answer = device->port->calls->facts(device->port, &device->facts);
        status = hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
    }
    return status;
}

uint64_t hdi_device_place_range(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    uint64_t granule = device->facts.granule ? device->facts.granule : 1;
    uint64_t restarts = atomic_load_explicit(&device->losses, memory_order_relaxed);
    /* The memory of the largest device. All devices use ranges of the same size; with different
     * sizes, their computed places would overlap. */
    uint64_t memory = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        uint64_t bytes = (rt->devices[i]->facts.memory_bytes + granule - 1) / granule * granule;
        memory = bytes > memory ? bytes : memory;
    }
    /* Within one process the driver offers enough addresses. With worker processes, the library
     * itself plans the addresses, and there may be too few. So the range is halved until even the
     * last device finds room for all its restarts. The result suits all devices, and never
     * changes. */
    uint64_t times = RANGE_TIMES;
    while (rt->is_process && times > 1 &&
           hdi_device_range(rt->n_devices - 1, HDI_RANGE_EPOCHS - 1, times * memory, rt->n_devices) == 0) {
        times /= 2;
    }
    device->range_bytes = times * memory;
    if (rt->is_process) {
        device->range_at = hdi_device_range(device->index, (unsigned)restarts, device->range_bytes, rt->n_devices);
    }
    return device->range_at;
}

/* The physical memory that the option memory_limit allows on a device. */
static uint64_t runtime_device_memory_limit(const hdi_device *device)
{
    const hdi_option_AMOUNT *limit = &device->runtime->options.memory_limit;
    uint64_t bytes =
        limit->share != 0 ? (uint64_t)(limit->share * (double)device->facts.memory_bytes) : (uint64_t)limit->bytes;
    return bytes != 0 ? bytes : 1; /* to the arena, 0 means no limit */
}

static hd_status runtime_device_equip(hdi_device *device, void *unused)
{
    (void)unused;
    hd_runtime *rt = device->runtime;
    runtime_device_take_limits(device);
    if (!device->facts.virtual_memory) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "device %d has no virtual memory management, which Heddle needs",
                        device->index);
    }
    uint64_t address = hdi_device_place_range(device);
    hdi_arena_config config = {
        .port = device->port,
        .index = device->index,
        .total_bytes = device->facts.memory_bytes,
        .granule = device->facts.granule,
        .limit_bytes = runtime_device_memory_limit(device),
        .range_bytes = device->range_bytes,
        .address = address,
        .fixed = rt->is_process,
        .share = rt->is_process ? hdi_share : NULL,
        .unshare = rt->is_process ? hdi_unshare : NULL,
        .share_context = device,
        .relieve = hdi_buffers_relieve,
        .relieve_context = device,
        .finished = runtime_point_finished,
        .finished_context = rt,
    };
    hd_status status = hdi_arena_create(&config, &device->arena);
    if (!status && !rt->is_process) {
        status = hdi_engine_create(device);
        if (!status) {
            hdi_local_port_set_engine(device->port, device->engine);
        }
    }
    return status;
}

/* Gives everything of a device back. The engine stopped, or its worker is gone. `hung`: some work
 * never ended. Then this function does not call the driver, and memory that the device may still
 * write to stays mapped. */
static void runtime_device_destroy(hdi_device *device, bool hung)
{
    if (!device) {
        return;
    }
    bool remote = device->runtime->is_process;
    hdi_arena_destroy(device->arena, hung || remote);
    if (remote) {
        hdi_remote_port_destroy(device->port);
    } else {
        hdi_device_detach(device, hung);
    }
    hdi_copy_lanes_release(device);
    hdi_lane_release_all(device);
    if (!hung || remote) {
        hdi_channel_release(&device->channel);
    }
    hdi_mutex_destroy(&device->lanes_lock);
    free(device->memory);
    free(device);
}

/* ---- a step on all devices ---- */

typedef hd_status (*device_step)(hdi_device *device, void *context);

typedef struct job {
    hdi_device *device;
    device_step step;
    void *context;
    const char *call;
    pthread_t thread;
    bool started;
    hd_status status;
    hd_error error; /* the error of the job's own thread */
} job;

static void *runtime_step_run(void *argument)
{
    job *j = argument;
    const hdi_driver *driver = j->device->runtime->driver;
    hdi_call_continue(j->call);
    if (driver) {
        hdi_captures_ignore(driver);
    }
    j->status = j->step(j->device, j->context);
    if (j->status) {
        hdi_error_get(&j->error);
    }
    return NULL;
}

static hd_status runtime_step_in_turn(hd_runtime *rt, device_step step, void *context)
{
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = rt->devices[i] ? step(rt->devices[i], context) : HD_OK;
    }
    return status;
}

/* Runs a step on all devices at the same time. A step may use resources of its own device. It may
 * use a resource of another device only if the step does not change that resource. Skips devices
 * that are NULL. Returns the failure with the lowest device index. After a failure, perhaps the
 * step did not begin on some devices. */
static hd_status runtime_step_at_once(hd_runtime *rt, device_step step, void *context)
{
    int n = rt->n_devices;
    job *jobs = n > 1 && !rt->is_inline ? calloc((size_t)n, sizeof *jobs) : NULL;
    if (!jobs) {
        return runtime_step_in_turn(rt, step, context);
    }
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        *j = (job){.device = rt->devices[i], .step = step, .context = context, .call = hdi_call_name()};
        j->started = j->device && hdi_thread_start(&j->thread, runtime_step_run, j) == 0;
    }
    hd_status status = rt->devices[0] ? step(rt->devices[0], context) : HD_OK;
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        if (j->started) {
            pthread_join(j->thread, NULL);
            if (j->status && !status) { /* return the failure of the lowest device */
                status = j->status;
                hdi_fail_error(&j->error);
            }
        } else if (j->device && !status) {
            status = step(j->device, context);
        }
    }
    free(jobs);
    return status;
}

static void runtime_release_kernels(hd_runtime *rt)
{
    for (int i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        free(atomic_load_explicit(&rt->kernels[i], memory_order_relaxed));
    }
}

/* ---- giving back: leftovers ---- */

static const char *runtime_leftover_text(const hd_runtime *rt)
{
    return rt->is_process ? "its worker process was ended"
                          : "memory and devices are left as they are until the program ends";
}

/* Finds the unfinished operation that the lane finally waits for, as hd_wait does for its message.
 * If there is none, finds the first unfinished operation of the lane itself. */
static hdi_suspect runtime_unfinished_of(hd_lane *lane)
{
    hd_runtime *rt = lane->device->runtime;
    hdi_suspects awaited;
    hdi_suspect own;
    if (hdi_suspects_awaited(rt, lane->global, lane->head, &awaited, &own)) {
        return awaited.named[0];
    }
    uint64_t end = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    const hdi_command *c = hdi_lane_operation(&lane->device->channel, lane->number, end, lane->head, &end);
    return (hdi_suspect){.position = end,
                         .lane = lane->global,
                         .kernel = c && c->op == HDI_OP_LAUNCH ? c->kernel : 0,
                         .op = c ? c->op : 0};
}

/* Reports the unfinished operation that a lane with unended work waits for. */
static void runtime_report_unfinished(hd_lane *lane, hd_error *left)
{
    hd_runtime *rt = lane->device->runtime;
    hd_error error = hdi_error_blank(HD_ERROR_TIMEOUT);
    hdi_suspect s = runtime_unfinished_of(lane);
    char what[HDI_CLAIM_TEXT];
    if (s.op == HDI_OP_CLAIM || s.op == HDI_OP_CLAIMED) {
        hdi_outcome_claim_text(rt, s.lane, s.position, what);
    } else {
        hdi_operation_text(rt, s.op, s.kernel, what, sizeof what);
    }
    error.device = (int)(s.lane / HDI_LANES_MAX);
    error.lane = (int)(s.lane % HDI_LANES_MAX);
    error.ticket = s.position;
    snprintf(error.message, sizeof error.message,
             "%s (device %d, lane %d, ticket %" PRIu64 ") did not end within close_timeout=%" PRId64 " ms; %s", what,
             error.device, error.lane, error.ticket, rt->options.close_timeout, runtime_leftover_text(rt));
    *left = error;
}

/* Reports a device that is lost but still runs. */
static void runtime_report_running(hdi_device *device, hd_error *left)
{
    hd_runtime *rt = device->runtime;
    hdi_loss_fail(rt, device->index, "work did not end on the lost device");
    hdi_error_get(left);
    left->status = HD_ERROR_TIMEOUT;
    size_t length = strlen(left->message);
    snprintf(left->message + length, sizeof left->message - length, "; %s", runtime_leftover_text(rt));
}

void hdi_runtime_report_stuck(const char *what, int device, hd_error *left)
{
    *left = hdi_error_blank(HD_ERROR_TIMEOUT);
    left->device = device;
    snprintf(left->message, sizeof left->message, "%s; what it may still use is left until it does", what);
}

static void runtime_report_engine(const hdi_device *device, hd_error *left)
{
    uint64_t function = hdi_engine_function(device);
    char where[HDI_SITE_BYTES], text[HDI_SITE_BYTES + 80] = "the engine does not return from the driver";
    if (function) {
        hdi_site_text((const void *)(uintptr_t)function, where);
        snprintf(text, sizeof text, "the function %s, of hd_lane_run_native, does not return", where);
    }
    hdi_runtime_report_stuck(text, device->index, left);
}

/* ---- giving back: work in flight ---- */

/* Waits for the work of a device. True if all of it ended. Work of a lost device ends by
 * failing. */
static bool runtime_device_drain(hdi_device *device, int64_t deadline, hd_error *left)
{
    bool drained = true;
    bool has_engine = device->engine || hdi_worker_of(device->runtime)->workers;
    for (uint32_t i = 0; has_engine && i < HDI_LANES_MAX; i++) {
        hd_lane *lane = device->lanes[i];
        if (lane && !hdi_wait_position(device->runtime, lane->global, lane->head, deadline)) {
            if (drained && left && left->status == HD_OK) {
                runtime_report_unfinished(lane, left);
            }
            drained = false;
        }
    }
    return drained;
}

/* Waits for work of a lost device in this process. The work may still run, and driver calls would
 * wait for it without a limit. True: the work ended. */
static bool runtime_device_await_lost(hdi_device *device, int64_t deadline, hd_error *left)
{
    while (device->engine && hdi_device_lost(device) && hdi_engine_is_busy(device)) {
        if (hdi_clock_ns() >= deadline) {
            if (left && left->status == HD_OK) {
                runtime_report_running(device, left);
            }
            return false;
        }
        hdi_sleep_for(LOOK_SLEEP_NS);
    }
    return true;
}

/* Waits for all work, then stops the engines. False: an engine is stuck in a driver call. *hung:
 * work of some device did not end. */
static bool runtime_stop_engines(hd_runtime *rt, bool *hung, hd_error *left)
{
    const char *stuck = hdi_callers_stuck(rt);
    if (stuck) {
        if (left) {
            hdi_runtime_report_stuck(stuck, -1, left);
        }
        return false;
    }
    rt->claimed = hdi_claims_abandon(rt, left);
    rt->claimed |= hdi_holds_abandon(rt, left);
    bool works = false;
    int64_t deadline = hdi_close_deadline(rt);
    for (int i = 0; i < rt->n_devices; i++) {
        works |= rt->devices[i] && !runtime_device_drain(rt->devices[i], deadline, left);
    }
    hdi_trace_close(rt, left);
    bool stopped = true;
    for (int i = 0; i < rt->n_devices; i++) {
        /* each engine gets some time, even if an engine before it used up the common time */
        int64_t least = hdi_deadline(stopped ? STOP_LEAST_NS : STOP_LEAST_NS / 10);
        if (rt->devices[i] && !hdi_engine_stop(rt->devices[i], deadline > least ? deadline : least)) {
            if (left && stopped) { /* only the first stuck engine is reported */
                runtime_report_engine(rt->devices[i], left);
            }
            stopped = false;
        }
    }
    for (int i = 0; stopped && i < rt->n_devices; i++) {
        works |= rt->devices[i] && !runtime_device_await_lost(rt->devices[i], deadline, left);
    }
    *hung |= works || rt->claimed;
    rt->quiet = stopped && !works;
    return stopped;
}

/* ---- giving everything back ---- */

static hd_status runtime_device_destroy_step(hdi_device *device, void *unused)
{
    (void)unused;
    runtime_device_destroy(device, device && device->runtime->hung);
    return HD_OK;
}

bool hdi_runtime_stop(hd_runtime *rt, hd_error *left)
{
    hd_error report = {.status = HD_OK};
    for (size_t i = LIFETIMES; i-- > 0;) {
        if (lifetimes[i]->stop) {
            lifetimes[i]->stop(rt);
        }
    }
    bool stopped = runtime_stop_engines(rt, &rt->hung, left);
    if (left) {
        hdi_report_at_close(rt, &report);
        *left = left->status ? *left : report;
    }
    return stopped;
}

void hdi_runtime_give_back(hd_runtime *rt)
{
    /* With worker processes nothing hangs: their resources end with them. */
    hdi_workers_release(rt);
    rt->hung = rt->hung && !rt->is_process;
    for (size_t i = LIFETIMES; i-- > 0;) {
        if (lifetimes[i]->release) {
            lifetimes[i]->release(rt);
        }
    }
    /* The devices come last, because resources of one device may use resources of others. */
    runtime_step_at_once(rt, runtime_device_destroy_step, NULL);
    runtime_release_kernels(rt);
    if (hdi_driver_is_usable(rt)) {
        hdi_providers_close_driver(rt->driver);
    }
    hdi_losses_release(rt);
    hdi_outcomes_release(rt);
    hdi_mutex_destroy(&rt->restarting);
    hdi_mutex_destroy(&rt->refilling);
    hdi_mutex_destroy(&rt->cold);
    hdi_mutex_destroy(&hdi_peer_of(rt)->linking);
    hdi_options_release(&rt->options);
    hdi_stable_clear(rt->stable); /* also clears the runtime's own structure */
}

/* ---- hd_open: the devices ---- */

hd_status hdi_devices_choose(const char *list, int count, int *ordinals, int *n)
{
    *n = 0;
    if (strcmp(list, "all") == 0) {
        for (int i = 0; i < count && i < HDI_DEVICES_MAX; i++) {
            ordinals[(*n)++] = i;
        }
        return HD_OK;
    }
    bool taken[1024] = {false};
    for (const char *p = list; *p;) {
        char *end;
        long ordinal = strtol(p, &end, 10);
        if (end == p || (*end && !strchr(",: ", *end))) {
            return hdi_fail(HD_ERROR_OPTION, "devices=%s: expected all, or numbers such as 0,2,3", list);
        }
        if (ordinal < 0 || ordinal >= count || ordinal >= 1024) {
            return hdi_fail(HD_ERROR_NO_DEVICE, "devices=%s: the driver has no device %ld; its devices are 0 to %d",
                            list, ordinal, count - 1);
        }
        if (taken[ordinal] || *n == HDI_DEVICES_MAX) {
            return hdi_fail(HD_ERROR_OPTION, "devices=%s: %s", list,
                            taken[ordinal] ? "a device is named twice" : "too many devices");
        }
        taken[ordinal] = true;
        ordinals[(*n)++] = (int)ordinal;
        p = *end ? end + 1 : end;
    }
    return *n ? HD_OK : hdi_fail(HD_ERROR_OPTION, "devices names no device; write all, or numbers such as 0,2,3");
}

/* Opens the driver in this process. */
static hd_status runtime_start_local(hd_runtime *rt, int *count)
{
    hd_status status = hdi_providers_open_driver(&rt->options, &rt->driver);
    if (status) {
        return status;
    }
    rt->captures_before = hdi_captures_ignore(rt->driver); /* until hd_open returns */
    rt->provider = rt->driver->provider;
    rt->driver_version = rt->driver->version;
    hdcu_result r = rt->driver->cuDeviceGetCount(count);
    return r == HDCU_SUCCESS ? HD_OK
                             : hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGetCount", -1, "the driver failed: %s",
                                               hdi_driver_code_name(r));
}

static int runtime_count_entries(const char *folder)
{
    int n = 0;
    DIR *entries = hdi_descriptor_folder(folder);
    for (struct dirent *e; entries && (e = readdir(entries));) {
        n += e->d_name[0] != '.';
    }
    if (entries) {
        closedir(entries);
    }
    return n;
}

static int runtime_count_parts(const char *list)
{
    int n = *list != 0;
    for (const char *p = list; *p; p++) {
        n += strchr(",: ", *p) != NULL;
    }
    return n;
}

/* A guess at the number of devices, without a call of the driver; at least 1. If the guess is too
 * low, hd_open takes longer. If it is too high, hd_open starts processes that it then ends. */
static int runtime_expected_devices(const hd_runtime *rt)
{
    bool host = rt->options.driver == HDI_DRIVER_HOST;
    int n = host ? 0 : runtime_count_entries("/proc/driver/nvidia/gpus");
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    if (n > 0 && visible && runtime_count_parts(visible) < n) {
        n = runtime_count_parts(visible);
    }
    if (n == 0 && rt->options.driver != HDI_DRIVER_NVIDIA) {
        n = (int)rt->options.host_devices;
    }
    if (strcmp(rt->options.devices, "all") != 0 && runtime_count_parts(rt->options.devices) < n) {
        n = runtime_count_parts(rt->options.devices);
    }
    return n < 1 ? 1 : n > HDI_DEVICES_MAX ? HDI_DEVICES_MAX : n;
}

/* Starts one worker for each device that is expected. Each worker starts the driver, which takes
 * long. Failures of workers other than the first count only if their devices turn out to be
 * wanted. */
static hd_status runtime_begin_workers(hd_runtime *rt)
{
    int n = runtime_expected_devices(rt);
    for (int i = 0; i < n; i++) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_status status = hdi_worker_spawn(rt, i);
        status = status ? status : hdi_worker_ask(rt, i);
        hdi_attempt_result(&attempt, i > 0 ? HD_OK : status);
        if (status) {
            return i > 0 ? HD_OK : status;
        }
    }
    return HD_OK;
}

/* Opens the driver in worker processes. The first worker reports the devices, and later drives
 * device 0. */
static hd_status runtime_start_remote(hd_runtime *rt, int *count)
{
    hd_status status = hdi_workers_create(rt);
    status = status ? status : runtime_begin_workers(rt);
    hdi_discovery probe;
    status = status ? status : hdi_worker_discover(rt, 0, &probe);
    if (!status) {
        rt->provider = probe.provider;
        rt->driver_version = probe.driver_version;
        *count = probe.device_count;
    }
    return status;
}

/* Makes the devices' workers ready. All start at the same time. */
static hd_status runtime_make_remote(hd_runtime *rt)
{
    hd_status status = HD_OK;
    for (int i = rt->n_devices; i < HDI_DEVICES_MAX; i++) {
        if (hdi_worker_is_begun(rt, i)) {
            hdi_worker_drop(rt, i);
        }
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = runtime_device_make_remote(rt->devices[i]);
    }
    for (int i = 1; i < rt->n_devices && !status; i++) {
        status = hdi_worker_is_begun(rt, i) ? HD_OK : hdi_worker_spawn(rt, i);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_handshake(rt, i);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_await(rt, i);
    }
    return status;
}

static hd_status runtime_make_local(hd_runtime *rt, const int *ordinals)
{
    hd_status status = hdi_attach_driver(rt, ordinals, rt->n_devices);
    return status ? status : runtime_step_at_once(rt, runtime_device_make_local, NULL);
}

static hd_status runtime_create_devices(hd_runtime *rt, int count)
{
    if (count <= 0) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "the driver %s has no device", rt->provider->name);
    }
    int ordinals[HDI_DEVICES_MAX] = {0};
    int n = 0;
    hd_status status = hdi_devices_choose(rt->options.devices, count, ordinals, &n);
    /* `n_devices` first: it determines the number of lanes. */
    rt->n_devices = status ? 0 : n;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = runtime_device_create(rt, i, ordinals[i], &rt->devices[i]);
    }
    if (!status) {
        status = rt->is_process ? runtime_make_remote(rt) : runtime_make_local(rt, ordinals);
    }
    return status ? status : runtime_step_at_once(rt, runtime_device_equip, NULL);
}

static hd_status runtime_device_create_parts(hdi_device *device, void *unused)
{
    (void)unused;
    hd_status status = HD_OK;
    for (size_t i = 0; i < LIFETIMES && !status; i++) {
        status = lifetimes[i]->create_in ? lifetimes[i]->create_in(device) : HD_OK;
    }
    return status;
}

static hd_status runtime_build(hd_runtime *rt)
{
    rt->is_inline = rt->options.placement == HDI_PLACEMENT_INLINE;
    rt->is_process = rt->options.placement == HDI_PLACEMENT_PROCESS;
    rt->spin_ns = hdi_spin_ns(rt->options.spin_us);
    int count = 0;
    hd_status status = hdi_losses_create(rt);
    hdi_lock_init(&rt->outcomes_lock, HDI_RANKED(HDI_RANK_OUTCOMES, 0));
    if (!status) {
        status = rt->is_process ? runtime_start_remote(rt, &count) : runtime_start_local(rt, &count);
    }
    for (size_t i = 0; i < LIFETIMES && !status; i++) {
        status = lifetimes[i]->create ? lifetimes[i]->create(rt) : HD_OK;
    }
    status = status ? status : runtime_create_devices(rt, count);
    status = status ? status : runtime_step_at_once(rt, runtime_device_create_parts, NULL);
    for (size_t i = 0; i < LIFETIMES && !status; i++) {
        status = lifetimes[i]->ready ? lifetimes[i]->ready(rt) : HD_OK;
    }
    status = status ? status : hdi_spares_want(rt);
    return status ? status : hdi_runtime_add(rt);
}

/* Initializes everything whose initialization cannot fail. So if a later step fails, the runtime
 * can be given back. */
static void runtime_init_locks(hd_runtime *rt)
{
    hdi_mutex_init(&rt->cold, HDI_RANK_COLD);
    for (int i = 0; i < HDI_HOST_LOCKS; i++) {
        hdi_lock_init(&hdi_buffer_of(rt)->host_order[i], HDI_RANKED(HDI_RANK_ORDER, HDI_DEVICES_MAX + i));
    }
    hdi_mutex_init(&hdi_peer_of(rt)->linking, HDI_RANK_LINKING);
    hdi_mutex_init(&rt->restarting, HDI_RANK_RESTARTING);
    hdi_mutex_init(&rt->refilling, HDI_RANK_REFILLING);
    for (size_t i = 0; i < LIFETIMES; i++) {
        if (lifetimes[i]->init) {
            lifetimes[i]->init(rt);
        }
    }
}

hd_status hd_open(const hd_options *options, hd_runtime **out)
{
    HDI_UNCANCELLED;
    HDI_CALL();
    HDI_REFUSE_IN_LANE(__func__)
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_options room;
    if (options && !(options = HDI_SIZED_IN(hd_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    hdi_stable *stable = hdi_stable_create();
    hd_runtime *rt = stable ? hdi_stable_take(stable, sizeof(hdi_trace_part)) : NULL;
    if (!rt) {
        hdi_stable_clear(stable);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    rt->stable = stable;
    hdi_recorder_init(&rt->recorder, stable);
    hd_status status = hdi_options_parse(options ? options->settings : NULL, &rt->options);
    if (status) {
        hdi_stable_clear(stable);
        return status;
    }
    /* the first hd_open keeps the library loaded, since a runtime may exist for longer than the
     * program uses the library */
    hdi_keep_loaded();
    if (rt->options.environment_check == HDI_ENVIRONMENT_CHECK_ON) {
        hdi_option_check_environment();
    }
    hdi_handle_guard_forks();
    runtime_init_locks(rt);
    bool held = hdi_descriptors_hold(); /* the driver opens descriptors itself */
    status = runtime_build(rt);
    hdi_descriptors_release(held);
    const hdi_driver *driver = rt->driver;
    int captures = rt->captures_before;
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        if (hdi_runtime_stop(rt, NULL)) {
            hdi_runtime_give_back_half_made(rt);
        }
        hdi_attempt_end(&attempt);
    } else {
        /* from now on this thread counts as a user of the library, whatever it calls next */
        HDI_INSIDE(rt);
        *out = rt;
    }
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
    return status;
}

/* ---- hd_close: handles ---- */

/* Ends all handles: from here on every call on an object of the runtime is refused. */
static void runtime_end_handles(hd_runtime *rt)
{
    /* relaxed: the locks of the lists provide the order */
    atomic_store_explicit(&rt->ended, true, memory_order_relaxed);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_lanes_close(rt->devices[i]);
    }
    for (size_t i = LIFETIMES; i-- > 0;) {
        if (lifetimes[i]->close) {
            lifetimes[i]->close(rt);
        }
    }
}

bool hdi_runtime_await_calls(hd_runtime *rt, hd_error *left)
{
    hdi_callers_settle(rt, rt->close_by);
    hdi_runtime_remove(rt);
    runtime_end_handles(rt);
    atomic_store_explicit(&rt->closing, true, memory_order_seq_cst);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_wake_sleepers(rt->devices[i]);
    }
    hdi_peers_end(rt); /* threads that wait for a test return, too */
    bool out = hdi_presence_await(rt, hdi_close_deadline(rt));
    if (out) {
        /* Later the closing thread waits for work in flight. Because of `closing`, its waits would
         * return at once. */
        atomic_store_explicit(&rt->closing, false, memory_order_relaxed);
    } else { /* the store makes calls that still wait return with a failure */
        *left = hdi_error_blank(HD_ERROR_TIMEOUT);
        snprintf(left->message, sizeof left->message,
                 "a call of another thread did not come back within close_timeout=%" PRId64
                 " ms; everything is left as it is",
                 rt->options.close_timeout);
    }
    return out;
}
