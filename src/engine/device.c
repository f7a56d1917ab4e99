/* device.c - one device as an engine needs it: its shared mapping, its context, and its port to the
 * driver of this process.
 *
 * Threads: hd_open, hd_close and the start of a worker process.
 * Locks: none.
 * Always:
 * - Each area of the channel begins on its own page, so that each can have its own protection.
 * - If hdi_device_attach fails, hdi_device_detach gives back everything that hdi_device_attach
 *   made.
 */
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/number.h"
#include "engine/engine.h"

/* ---- the shared mapping ---- */

typedef struct layout {
    size_t lanes, flags, flags_bytes, requests, rings, failures, times, records, bytes;
    uint32_t failures_room;
} layout;

static layout channel_layout(uint32_t slots)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    layout l;
    l.lanes = hdi_round_up(sizeof(hdi_engine_shared), page);
    l.flags = l.lanes + hdi_round_up(sizeof(hdi_lane_shared) * HDI_LANES_MAX, page);
    l.flags_bytes = hdi_round_up(sizeof(hdi_completion_flag) * HDI_LANES_MAX, page);
    l.requests = l.flags + l.flags_bytes;
    l.rings = l.requests + hdi_round_up((size_t)slots * HDI_LANES_MAX / HDI_REQUESTS_PER_WORD * sizeof(uint64_t), page);
    l.failures = l.rings + hdi_round_up((size_t)slots * HDI_SLOT_BYTES * HDI_LANES_MAX, page);
    l.failures_room = slots > HDI_FAILURES_LEAST / 2 ? 2 * slots : HDI_FAILURES_LEAST;
    l.times = l.failures + hdi_round_up((size_t)l.failures_room * sizeof(hdi_failure) * HDI_LANES_MAX, page);
    l.records = l.times + hdi_round_up((size_t)slots * sizeof(hdi_time) * HDI_LANES_MAX, page);
    l.bytes = l.records + hdi_round_up(sizeof(hdi_record_ring), page);
    return l;
}

static void channel_place(hdi_channel *channel, uint32_t slots, const layout *l)
{
    unsigned char *base = channel->memory.base;
    channel->engine = (hdi_engine_shared *)base;
    channel->lanes = (hdi_lane_shared *)(base + l->lanes);
    channel->flags = (hdi_completion_flag *)(base + l->flags);
    channel->flags_bytes = l->flags_bytes;
    channel->requests = (_Atomic uint64_t *)(base + l->requests);
    channel->rings = (hdi_command *)(base + l->rings);
    channel->slots = slots;
    channel->failures = (_Atomic uint64_t *)(base + l->failures);
    channel->failures_room = l->failures_room;
    channel->times = (hdi_time *)(base + l->times);
    channel->records = (hdi_record_ring *)(base + l->records);
}

hd_status hdi_channel_create(uint32_t slots, hdi_channel *out)
{
    layout l = channel_layout(slots);
    hdi_channel channel;
    memset(&channel, 0, sizeof channel);
    hd_status status = hdi_shm_create("heddle-channel", l.bytes, &channel.memory);
    if (!status) {
        channel_place(&channel, slots, &l);
        *out = channel;
    }
    return status;
}

hd_status hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out)
{
    layout l = channel_layout(slots);
    hdi_channel channel;
    memset(&channel, 0, sizeof channel);
    hd_status status = hdi_shm_map(descriptor, l.bytes, &channel.memory);
    if (status) {
        return status;
    }
    status = hdi_shm_only_read(&channel.memory, peer ? l.flags : l.rings, peer ? l.bytes : l.failures);
    if (status) {
        hdi_shm_release(&channel.memory);
        return status;
    }
    channel_place(&channel, slots, &l);
    *out = channel;
    return HD_OK;
}

void hdi_channel_release(hdi_channel *channel)
{
    hdi_shm_release(&channel->memory);
    memset(channel, 0, sizeof *channel);
}

/* ---- devices that the driver of this process drives ---- */

hd_status hdi_attach_driver(hd_runtime *rt, const int *ordinals, int n)
{
    for (int i = 0; i < n; i++) {
        hdcu_result r = rt->driver->cuDeviceGet(&rt->handles[i], ordinals[i]);
        if (r != HDCU_SUCCESS) {
            return hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGet", i, "device %d: %s", ordinals[i],
                                   hdi_driver_code_name(r));
        }
    }
    return HD_OK;
}

/* Registers the channel's completion flags with the driver, since the device writes them. */
static hd_status channel_register_words(hdi_device *device)
{
    hdi_scope scope;
    hd_status status = hdi_scope_enter(device, &scope);
    if (status) {
        return status;
    }
    const hdi_driver *driver = device->runtime->driver;
    hdcu_result r = driver->cuMemHostRegister(device->channel.flags, device->channel.flags_bytes,
                                              HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
    if (r != HDCU_SUCCESS) {
        status = hdi_driver_failed(device, r, "cuMemHostRegister");
    }
    device->flags_registered = !status;
    hdcu_deviceptr address = 0;
    if (!status) {
        r = driver->cuMemHostGetDevicePointer(&address, device->channel.flags, 0);
        if (r != HDCU_SUCCESS) {
            status = hdi_driver_failed(device, r, "cuMemHostGetDevicePointer");
        }
    }
    device->flags_address = address;
    hdi_scope_leave(&scope);
    return status;
}

hd_status hdi_device_attach(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    device->handle = rt->handles[device->index];
    hdcu_result r = rt->driver->cuDevicePrimaryCtxRetain(&device->context, device->handle);
    if (r != HDCU_SUCCESS) {
        device->context = NULL;
        return hdi_driver_failed(device, r, "cuDevicePrimaryCtxRetain");
    }
    hd_status status = channel_register_words(device);
    if (status) {
        return status;
    }
    hdi_local_port_config config = {
        .driver = rt->driver,
        .device = device->handle,
        .context = device->context,
        .index = device->index,
        .n_devices = rt->n_devices,
        .devices = rt->handles,
        .runtime = rt,
    };
    device->port = hdi_local_port_create(&config);
    return device->port ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the port of device %d", device->index);
}

void hdi_device_detach(hdi_device *device, bool hung)
{
    const hdi_driver *driver = device->runtime->driver;
    hdi_scope scope = {.entered = false};
    bool usable = !hung || device->runtime->quiet;
    if (device->context && usable && hdi_scope_enter(device, &scope) == HD_OK && !hung && device->flags_registered) {
        driver->cuMemHostUnregister(device->channel.flags);
    }
    hdi_engine_destroy(device, usable);
    hdi_scope_leave(&scope);
    if (device->context && !hung) {
        driver->cuDevicePrimaryCtxRelease(device->handle);
    }
    hdi_local_port_destroy(device->port);
    device->port = NULL;
}
