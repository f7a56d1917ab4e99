/* runtime_internal.h - what the files of hd_open, hd_close and hd_device_restart share.
 *
 * Threads: those of the calls that use it. Each file names its own.
 * Locks: none.
 * Always: what a step made before it failed, hdi_device_destroy and the failing hd_open give back.
 */
#ifndef HDI_RUNTIME_INTERNAL_H
#define HDI_RUNTIME_INTERNAL_H

#include "base/error.h"
#include "engine/engine.h"

/* open_close.c: the ordinals of the option `devices`, of `count` that there are; at most HDI_DEVICES_MAX. The list is "all",
 * or numbers such as "0,2,3" (also separated by ':' or ' '). Errors: OPTION, NO_DEVICE. */
hd_status hdi_devices_choose(const char *list, int count, int *ordinals, int *n);

/* device.c. A device is made in three steps:
 * - create: itself and its channel
 * - make_local or make_remote: its port. hdi_worker_await connects a remote one and fills in the facts
 * - equip: arena and engine
 *
 * Create leaves what it made in *slot even when a step fails, for hdi_device_destroy. */
hd_status hdi_device_create(hd_runtime *rt, int index, int ordinal, hdi_device **slot);
hd_status hdi_device_make_local(hdi_device *device);
hd_status hdi_device_make_remote(hdi_device *device);
hd_status hdi_device_equip(hdi_device *device);
/* Chooses where the device's memory lies, in another place after each loss. 0: anywhere. */
uint64_t hdi_device_place_range(hdi_device *device);
/* Gives everything of a device back. The engine has stopped, or its worker is gone. `hung`: work never ended. Then the
 * driver is not called, and what the device may still write to stays mapped. */
void hdi_device_destroy(hdi_device *device, bool hung);

/* Runs a step on all devices at the same time. A step may use what belongs to its device, and of other devices
 * only what no such step changes. NULL devices are left out. Returns the failure of the first device that has one.
 * After a failure, the step may not have begun on some devices. */
typedef hd_status (*hdi_device_step)(hdi_device *device, void *context);
hd_status hdi_on_each(hd_runtime *rt, hdi_device_step step, void *context);

#endif
