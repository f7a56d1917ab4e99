/* faults.h - the fault wrapper fails or delays driver calls on purpose; used by open.c. */
#ifndef HDI_DRIVER_FAULTS_H
#define HDI_DRIVER_FAULTS_H

#include "driver/driver.h"

/* Wraps `inner` as the options `fault` and `delay` say. Errors: OPTION (grammar; or another wrapped table with other
 * settings is open). */
hd_status hdi_faults_wrap(const hdi_driver *inner, const hdi_options *options, const hdi_driver **out);

/* True, and one user less, if `driver` is the wrapped table. */
bool hdi_faults_unwrap(const hdi_driver *driver);

/* Calls into a library, which no table can wrap: whoever makes one asks first. SUCCESS, or the code to fail with; `driver` is the table in use. */
enum { HDI_FAULT_BLAS_OPEN, HDI_FAULT_BLAS_PRODUCT, HDI_FAULT_LIBRARY_CALLS };
#define HDI_FAULT_LIBRARY_NAMES "blasOpen", "blasProduct"
hdcu_result hdi_faults_library(const hdi_driver *driver, int which);

#endif
