/* heddle/driver.h - the driver's own entry points, for programs that use them beside Heddle, and for benchmarks.
 *
 * The functions are those of the CUDA driver API; with host devices they are the host provider's, with the same
 * signatures. The contexts are the devices' primary contexts. What is done through them is not tracked by Heddle.
 */
#ifndef HEDDLE_DRIVER_H
#define HEDDLE_DRIVER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* The entry point `symbol` (such as "cuLaunchKernel", without version suffix) of the provider `driver` ("nvidia" or "host";
 * NULL: nvidia where it works, else host). Valid as long as the process lives. Works without a runtime.
 * Errors: ARGUMENT, NO_DRIVER, OPTION, HOST_MEMORY, NOT_FOUND (not among the entry points that Heddle uses). */
HD_API hd_status hd_driver_entry(const char *driver, const char *symbol, void (**out)(void));

HD_END_DECLS
#endif
