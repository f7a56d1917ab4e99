/* runtime_internal.h - what the files of hd_open and hd_close share. */
#ifndef HDI_RUNTIME_INTERNAL_H
#define HDI_RUNTIME_INTERNAL_H

#include "engine/engine.h"

/* device.c. Create leaves what it made in *slot even when it fails, for hdi_device_destroy. */
hd_status hdi_device_create(hd_runtime *rt, int index, int ordinal, hdi_device **slot);
/* Gives everything of a device back. The engine has stopped. `hung`: work never ended; the driver is not called and what the
 * device may still write to stays mapped. */
void hdi_device_destroy(hdi_device *device, bool hung);

#endif
