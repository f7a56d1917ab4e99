/* attach.c - connects a device through the driver of this process: context, completion flags, local port.
 *
 * Threads: hd_open and hd_close, or the start of a worker process.
 * Locks: none.
 * Always: what attach made before it failed, detach gives back.
 */
#include "base/error.h"
#include "engine/engine.h"

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

/* Registers the completion flags in the channel, which the device writes. */
static hd_status register_words(hdi_device *device)
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
    hd_status status = register_words(device);
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
    if (device->context && !hung && hdi_scope_enter(device, &scope) == HD_OK && device->flags_registered) {
        driver->cuMemHostUnregister(device->channel.flags);
    }
    hdi_engine_destroy(device, !hung);
    hdi_scope_leave(&scope);
    if (device->context && !hung) {
        driver->cuDevicePrimaryCtxRelease(device->handle);
    }
    hdi_local_port_destroy(device->port);
    device->port = NULL;
}
