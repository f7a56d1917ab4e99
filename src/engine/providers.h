/* providers.h - the providers of this library, and the driver of the one that a runtime's options
 * choose.
 *
 * Threads: any. Locks: none of its own. Blocking: opening loads a library and calls cuInit.
 * Always: no other file names more than one provider. So src/driver does not refer to
 * src/simulator.
 */
#ifndef HDI_ENGINE_PROVIDERS_H
#define HDI_ENGINE_PROVIDERS_H

#include "driver/driver.h"

/* The provider of that name; NULL: none. */
const hdi_provider *hdi_provider_named(const char *name);

/* Opens the provider that the options name, wraps it if the option `fault` or `delay` is set, and
 * calls cuInit. `auto` takes nvidia if libcuda opens and shows a device, otherwise host. The table
 * lives until hdi_providers_close_driver.
 * Errors: NO_DRIVER (the message lists the attempts and the result), OPTION, HOST_MEMORY,
 * UNSUPPORTED (this process was forked from one that uses the driver). */
hd_status hdi_providers_open_driver(const hdi_options *options, const hdi_driver **out);
void hdi_providers_close_driver(const hdi_driver *driver); /* NULL is ignored */

#endif
