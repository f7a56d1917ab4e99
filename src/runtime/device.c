/* device.c - one device of a runtime: its channel, its way to the driver (here or in a worker process), facts, arena,
 * engine. And steps of hd_open or hd_close on all devices at the same time.
 *
 * The driver takes long in such steps: making a context takes a hundred milliseconds, and giving it back takes tens. It
 * does much of that for several devices at once.
 *
 * Threads: hd_open and hd_close. In a step on all devices the calling one handles the first device. Each other device
 * has a thread for the length of the step. With placement=inline, and where no thread can be started, the calling one
 * handles them one after the other.
 * Locks: none.
 * Always: what create made before it failed, destroy gives back. All steps have returned when hdi_on_each does.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "buffer/buffer.h"
#include "buffer/counts.h"
#include "memory/addresses.h"
#include "memory/arena.h"
#include "memory/share.h"
#include "runtime/runtime_internal.h"
#include "transfer/copy_lanes.h"
#include "worker/remote.h"
#include "worker/workers.h"

static bool point_finished(void *context, hdi_point point)
{
    return hdi_point_done(context, point);
}

static void take_limits(hdi_device *device)
{
    device->limits = device->facts.limits;
    for (int i = 1; i < 3; i++) {
        /* As much as a command can hold. No device allows more. */
        if (device->limits.grid[i] > UINT16_MAX) {
            device->limits.grid[i] = UINT16_MAX;
        }
    }
    device->depths[0] = device->limits.grid[2];
    device->depths[1] = device->limits.block[2];
}

hd_status hdi_device_create(hd_runtime *rt, int index, int ordinal, hdi_device **slot)
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

/* A request on one of the worker's connections failed, or its driver can no longer be used. */
static void line_broken(void *context, uint64_t connection, int code)
{
    hdi_device *device = context;
    if (code != HDI_GONE_CLOSED) { /* closed by a worker that is ending already */
        hdi_worker_kill(device->runtime, device->index, connection, code);
    }
}

hd_status hdi_device_make_remote(hdi_device *device)
{
    int64_t limit = device->runtime->options.worker_timeout * 1000000;
    device->port = hdi_remote_port_create(limit, line_broken, device);
    return device->port ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the port of device %d", device->index);
}

hd_status hdi_device_make_local(hdi_device *device)
{
    hd_status status = hdi_device_attach(device);
    if (!status) {
        hdi_answer answer = device->port->calls->facts(device->port, &device->facts);
        status = hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
    }
    return status;
}

#define RANGE_TIMES 4 /* as much address space as memory, so that no pattern of allocations runs out of it */

uint64_t hdi_device_place_range(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    uint64_t granule = device->facts.granule ? device->facts.granule : 1;
    uint64_t restarts = atomic_load_explicit(&device->losses, memory_order_relaxed);
    /* Of the largest device. All have the same range, or else the places that are computed for them would overlap. */
    uint64_t memory = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        uint64_t bytes = (rt->devices[i]->facts.memory_bytes + granule - 1) / granule * granule;
        memory = bytes > memory ? bytes : memory;
    }
    /* In one process the driver has addresses enough. Between processes the library's address plan may run out of them.
     * So the range is halved until the last device has room for it after its last restart. That suits all devices, and
     * stays. */
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
static uint64_t memory_limit(const hdi_device *device)
{
    const hdi_option_AMOUNT *limit = &device->runtime->options.memory_limit;
    uint64_t bytes =
        limit->share != 0 ? (uint64_t)(limit->share * (double)device->facts.memory_bytes) : (uint64_t)limit->bytes;
    return bytes != 0 ? bytes : 1; /* 0 means no limit to the arena */
}

hd_status hdi_device_equip(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    take_limits(device);
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
        .limit_bytes = memory_limit(device),
        .range_bytes = device->range_bytes,
        .address = address,
        .fixed = rt->is_process,
        .share = rt->is_process ? hdi_share : NULL,
        .unshare = rt->is_process ? hdi_unshare : NULL,
        .share_context = device,
        .relieve = hdi_buffers_relieve,
        .relieve_context = device,
        .finished = point_finished,
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

void hdi_device_destroy(hdi_device *device, bool hung)
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

typedef struct job {
    hdi_device *device;
    hdi_device_step step;
    void *context;
    const char *call;
    pthread_t thread;
    bool started;
    hd_status status;
    hd_error error; /* the error of the job's own thread */
} job;

static void *run(void *argument)
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

static hd_status one_after_the_other(hd_runtime *rt, hdi_device_step step, void *context)
{
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = rt->devices[i] ? step(rt->devices[i], context) : HD_OK;
    }
    return status;
}

hd_status hdi_on_each(hd_runtime *rt, hdi_device_step step, void *context)
{
    int n = rt->n_devices;
    job *jobs = n > 1 && !rt->is_inline ? calloc((size_t)n, sizeof *jobs) : NULL;
    if (!jobs) {
        return one_after_the_other(rt, step, context);
    }
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        *j = (job){.device = rt->devices[i], .step = step, .context = context, .call = hdi_call_name()};
        j->started = j->device && hdi_thread_start(&j->thread, run, j) == 0;
    }
    hd_status status = rt->devices[0] ? step(rt->devices[0], context) : HD_OK;
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        if (j->started) {
            pthread_join(j->thread, NULL);
            if (j->status && !status) { /* the first device's failure is returned */
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
