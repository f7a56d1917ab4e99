/* heddle/driver.h - the driver's own entry points, for benchmarks and for programs that also call
 * the driver themselves.
 *
 * The entry points are functions of the CUDA driver API. For host devices, Heddle provides
 * functions with the same signatures. Heddle works in the primary contexts of the devices. If a
 * program calls these functions itself, Heddle does not order the work of these calls.
 *
 * Threads: any.
 * Blocking: the first call of hd_driver_entry loads the driver and may start it, which can take a
 * second.
 */
#ifndef HEDDLE_DRIVER_H
#define HEDDLE_DRIVER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* Returns the entry point whose name is `symbol`: "cuMemAlloc", never "cuMemAlloc_v2". `driver`
 * selects the driver: "nvidia", "host", or NULL for nvidia if it works, else host. The result is
 * valid as long as the process lives. The program needs no open runtime.
 * Errors: ARGUMENT, NO_DRIVER, OPTION, HOST_MEMORY, NOT_FOUND (Heddle uses no such entry point). */
HD_API hd_status hd_driver_entry(const char *driver, const char *symbol, void (**out)(void));

HD_END_DECLS
#endif
