/* device.c - one device of a runtime: its context, limits, channel, arena, engine and copy lanes.
 *
 * Threads: hd_open and hd_close. Locks: none. Always: whatever create made before it failed, destroy gives back.
 */
#include <stdlib.h>
#include "base/error.h"
#include "memory/arena.h"
#include "runtime/runtime_internal.h"

static bool mark_finished(void *context, hdi_mark mark)
{
    return hdi_mark_done(context, mark);
}

static hd_status read_limits(hdi_device *device)
{
    hdi_limits *l = &device->limits;
    int shared = 0, shared_max = 0, threads = 0, block[3] = {0}, grid[3] = {0};
    struct {
        int attribute;
        int *value;
    } wanted[] = {
        {HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &block[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &block[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &block[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &grid[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &grid[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &grid[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &shared},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_max},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        hdcu_result r =
            device->runtime->driver->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, device->handle);
        if (r != HDCU_SUCCESS) {
            return hdi_driver_failed(device, r, "cuDeviceGetAttribute", "hd_open");
        }
    }
    l->threads_per_block = (uint32_t)threads;
    for (int i = 0; i < 3; i++) {
        l->block[i] = (uint32_t)block[i];
        /* As much as a command can say; no device allows more. */
        l->grid[i] = i > 0 && grid[i] > UINT16_MAX ? UINT16_MAX : (uint32_t)grid[i];
    }
    l->shared_default = (size_t)shared;
    l->shared_max = (size_t)(shared_max > shared ? shared_max : shared);
    return HD_OK;
}

/* The device writes completion words into the channel. */
static hd_status register_words(hdi_device *device)
{
    hdi_scope scope;
    hd_status status = hdi_scope_enter(device, "hd_open", &scope);
    if (!status) {
        hdcu_result r =
            device->runtime->driver->cuMemHostRegister(device->channel.words, device->channel.words_bytes,
                                                       HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
        if (r != HDCU_SUCCESS) {
            status = hdi_driver_failed(device, r, "cuMemHostRegister", "hd_open");
        }
        device->words_registered = !status;
        hdcu_deviceptr address = 0;
        if (!status) {
            r = device->runtime->driver->cuMemHostGetDevicePointer(&address, device->channel.words, 0);
            if (r != HDCU_SUCCESS) {
                status = hdi_driver_failed(device, r, "cuMemHostGetDevicePointer", "hd_open");
            }
        }
        device->words_address = address;
        hdi_scope_leave(&scope);
    }
    return status;
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
    const hdi_driver *driver = rt->driver;
    hdcu_result r = driver->cuDeviceGet(&device->handle, ordinal);
    if (r != HDCU_SUCCESS) {
        return hdi_driver_failed(device, r, "cuDeviceGet", "hd_open");
    }
    hd_status status = read_limits(device);
    if (status) {
        return status;
    }
    r = driver->cuDevicePrimaryCtxRetain(&device->context, device->handle);
    if (r != HDCU_SUCCESS) {
        device->context = NULL;
        return hdi_driver_failed(device, r, "cuDevicePrimaryCtxRetain", "hd_open");
    }
    status = hdi_channel_create((uint32_t)rt->options.lane_slots, &device->channel);
    if (!status) {
        status = register_words(device);
    }
    if (!status) {
        hdi_arena_config config = {
            .driver = driver,
            .device = device->handle,
            .context = device->context,
            .index = index,
            .finished = mark_finished,
            .finished_context = rt,
        };
        status = hdi_arena_create(&config, &device->arena);
    }
    return status ? status : hdi_engine_create(device);
}

void hdi_device_destroy(hdi_device *device, bool hung)
{
    if (!device) {
        return;
    }
    const hdi_driver *driver = device->runtime->driver;
    hdi_arena_destroy(device->arena, hung);
    hdi_scope scope = {.entered = false};
    if (device->context && !hung && hdi_scope_enter(device, "hd_close", &scope) == HD_OK && device->words_registered) {
        driver->cuMemHostUnregister(device->channel.words);
    }
    hdi_engine_destroy(device, !hung);
    hdi_scope_leave(&scope);
    if (device->context && !hung) {
        driver->cuDevicePrimaryCtxRelease(device->handle);
    }
    hdi_lane_release_all(device);
    if (!hung) {
        hdi_channel_release(&device->channel);
    }
    pthread_mutex_destroy(&device->lanes_lock);
    free(device);
}
