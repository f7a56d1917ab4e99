/* faults.h - the wrapper that fails or delays driver calls on purpose; used by open.c. */
#ifndef HDI_DRIVER_FAULTS_H
#define HDI_DRIVER_FAULTS_H

#include "driver/driver.h"

/* Wraps `inner` as the options `fault` and `delay` say. Errors: OPTION (grammar; or another wrapped table with other
 * settings is open). */
hd_status hdi_faults_wrap(const hdi_driver *inner, const hdi_options *options, const hdi_driver **out);

/* True, and one user less, if `driver` is the wrapped table. */
bool hdi_faults_unwrap(const hdi_driver *driver);

#endif
