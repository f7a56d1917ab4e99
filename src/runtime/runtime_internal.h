/* runtime_internal.h - shared by the files of hd_open and hd_device_restart.
 *
 * Threads: those of the calls that use it. Each file names its own.
 * Locks: none.
 * Always: nothing is kept between two calls.
 */
#ifndef HDI_RUNTIME_INTERNAL_H
#define HDI_RUNTIME_INTERNAL_H

#include "base/error.h"
#include "engine/engine.h"

/* open_close.c: reads the ordinals of the option `devices`, out of `count`; at most
 * HDI_DEVICES_MAX. The list is "all", or numbers such as "0,2,3" (also separated by ':' or ' ').
 * Errors: OPTION, NO_DEVICE. */
hd_status hdi_devices_choose(const char *list, int count, int *ordinals, int *n);

/* open_close.c: chooses the range of the device's memory, at another place after each loss. 0:
 * anywhere. */
uint64_t hdi_device_place_range(hdi_device *device);

#endif
