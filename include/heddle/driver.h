/* heddle/driver.h - the driver's own entry points, for programs that use them beside Heddle, and
 * for benchmarks.
 *
 * The functions are those of the CUDA driver API. Host devices provide functions with the same
 * signatures. The contexts are the devices' primary contexts. Heddle does not track calls through
 * them.
 *
 * Threads: any.
 * Blocking: the first call loads the driver, and may start it, which can take a second.
 */
#ifndef HEDDLE_DRIVER_H
#define HEDDLE_DRIVER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* Returns the entry point `symbol` (such as "cuLaunchKernel", without version suffix) of the
 * provider `driver` ("nvidia" or "host"; NULL: nvidia if it works, else host). Valid as long as the
 * process lives. Works without a runtime.
 * Errors: ARGUMENT, NO_DRIVER, OPTION, HOST_MEMORY, NOT_FOUND (not among the entry points that
 * Heddle uses). */
HD_API hd_status hd_driver_entry(const char *driver, const char *symbol, void (**out)(void));

HD_END_DECLS
#endif
