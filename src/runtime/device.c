/* device.c - one device of a runtime: its channel, its way to the driver (here or in a worker process), facts, arena, engine.
 *
 * Threads: hd_open and hd_close. Locks: none. Always: whatever create made before it failed, destroy gives back.
 */
#include <stdlib.h>
#include "base/error.h"
#include "memory/addresses.h"
#include "memory/arena.h"
#include "memory/share.h"
#include "runtime/runtime_internal.h"
#include "worker/remote.h"
#include "worker/workers.h"

static bool mark_finished(void *context, hdi_mark mark)
{
    return hdi_mark_done(context, mark);
}

static void take_limits(hdi_device *device)
{
    device->limits = device->facts.limits;
    for (int i = 1; i < 3; i++) {
        /* As much as a command can say; no device allows more. */
        if (device->limits.grid[i] > UINT16_MAX) {
            device->limits.grid[i] = UINT16_MAX;
        }
    }
}

hd_status hdi_device_create(hd_runtime *rt, int index, int ordinal, hdi_device **slot)
{
    hdi_device *device = aligned_alloc(HDI_LINE, (sizeof *device + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!device) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory for device %d", index);
    }
    *device = (hdi_device){.runtime = rt, .index = index, .ordinal = ordinal};
    pthread_mutex_init(&device->lanes_lock, NULL);
    *slot = device;
    return hdi_channel_create((uint32_t)rt->options.lane_slots, &device->channel);
}

/* A request on one of the worker's lines went wrong, or the driver over there is of no more use. */
static void line_broken(void *context, uint64_t connection, int code)
{
    hdi_device *device = context;
    if (code != HDI_GONE_CLOSED) { /* whose worker is on its way out already */
        hdi_worker_condemn(device->runtime, device->index, connection, code);
    }
}

hd_status hdi_device_make_remote(hdi_device *device)
{
    int64_t limit = device->runtime->options.worker_timeout * 1000000;
    device->port = hdi_remote_port_create(limit, line_broken, device);
    return device->port ? HD_OK
                        : hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory for the port of device %d", device->index);
}

hd_status hdi_device_make_local(hdi_device *device)
{
    hd_status status = hdi_device_attach(device);
    if (!status) {
        hdi_answer answer = device->port->calls->facts(device->port, &device->facts);
        status = hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer, "hd_open");
    }
    return status;
}

uint64_t hdi_device_place_range(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    if (rt->is_process) {
        uint64_t granule = device->facts.granule ? device->facts.granule : 1;
        uint64_t restarts = atomic_load_explicit(&device->losses, memory_order_relaxed);
        device->range_bytes = (device->facts.memory_bytes + granule - 1) / granule * granule;
        device->range_at = hdi_device_range(device->index, (unsigned)restarts, device->range_bytes, rt->n_devices);
    }
    return device->range_at;
}

hd_status hdi_device_equip(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    take_limits(device);
    if (!device->facts.virtual_memory) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "hd_open: device %d has no virtual memory management, which Heddle needs",
                        device->index);
    }
    hdi_arena_config config = {
        .port = device->port,
        .index = device->index,
        .total_bytes = device->facts.memory_bytes,
        .granule = device->facts.granule,
        .address = hdi_device_place_range(device),
        .fixed = rt->is_process,
        .share = rt->is_process ? hdi_share : NULL,
        .unshare = rt->is_process ? hdi_unshare : NULL,
        .share_context = device,
        .finished = mark_finished,
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
    hdi_lane_release_all(device);
    if (!hung || remote) {
        hdi_channel_release(&device->channel);
    }
    pthread_mutex_destroy(&device->lanes_lock);
    free(device);
}
