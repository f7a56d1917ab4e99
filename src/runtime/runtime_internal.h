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

/* open_close.c: reads the option `devices`. Writes the ordinals that it chooses among `count`
 * devices, at most HDI_DEVICES_MAX of them. The list is "all", or numbers such as "0,2,3" (also
 * separated by ':' or ' ').
 * Errors: OPTION, NO_DEVICE. */
hd_status hdi_devices_choose(const char *list, int count, int *ordinals, int *n);

/* open_close.c: chooses the address of the device's memory range. After each loss the range gets
 * another address. 0: anywhere. */
uint64_t hdi_device_place_range(hdi_device *device);

/* ---- open_close.c: the steps of hd_close ---- */

/* Waits for functions and claims of the program, until the deadline `close_by`. Meanwhile the
 * program's handles are valid. Then waits until no other call is inside the runtime. False: a call
 * does not return, and everything that it can reach must stay. */
bool hdi_runtime_await_calls(hd_runtime *rt, hd_error *left);

/* Stops everything that hd_open started. `left` is NULL for a half-made runtime. *left: a report
 * for hd_close about everything that is left. Its status is HD_OK if there is nothing to report.
 * False: an engine is stuck. Everything stays, since the engine would use it if it ever
 * returned. */
bool hdi_runtime_stop(hd_runtime *rt, hd_error *left);

/* Gives back everything that hd_open made, in reverse order. The driver may wait for all kernels of
 * the process. */
void hdi_runtime_give_back(hd_runtime *rt);

/* Reports something that may never return. `device` -1: none. */
void hdi_runtime_report_stuck(const char *what, int device, hd_error *left);

/* closer.c: gives back a runtime of an hd_open that failed. The runtime is stopped. If other
 * runtimes have work that the driver would wait for, a thread gives it back later. */
void hdi_runtime_give_back_half_made(hd_runtime *rt);

#endif
