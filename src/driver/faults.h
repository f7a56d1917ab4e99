/* faults.h - the fault wrapper, which fails or delays driver calls on purpose. engine/providers.c uses it.
 *
 * Threads: any. Locks: a mutex of faults.c, around wrapping and unwrapping. Blocking: a delayed call sleeps.
 */
#ifndef HDI_DRIVER_FAULTS_H
#define HDI_DRIVER_FAULTS_H

#include "driver/driver.h"

/* Wraps `inner` as the options `fault` and `delay` ask.
 * Errors: OPTION (a wrong value, or a wrapped table with other settings is open), HOST_MEMORY. */
hd_status hdi_faults_wrap(const hdi_driver *inner, const hdi_options *options, const hdi_driver **out);

/* Closes the wrapped table once. False: `driver` is another table. */
bool hdi_faults_unwrap(const hdi_driver *driver);

/* Counts a call of a library, which no table can wrap. The caller makes the call only where this returns SUCCESS; any
 * other code is the failure.
 * `driver` is the table in use. The options fault and delay apply as to an entry point. */
enum { HDI_FAULT_BLAS_OPEN, HDI_FAULT_BLAS_PRODUCT, HDI_FAULT_LIBRARY_CALLS };
#define HDI_FAULT_LIBRARY_NAMES "blasOpen", "blasProduct"
hdcu_result hdi_faults_library(const hdi_driver *driver, int which);

#endif
