/* simulator.h - the parts of the simulator that the other layers use: its provider record, its
 * table of entry points and its settings.
 *
 * README.md in this folder describes the simulator, how it works and what it leaves out.
 * Threads: any. Locks: the functions take the host lock. Blocking: none.
 * Always: no layer above the simulator refers to it, and engine/providers.c alone chooses between
 * it and another provider.
 */
#ifndef HDI_SIMULATOR_SIMULATOR_H
#define HDI_SIMULATOR_SIMULATOR_H

#include "driver/driver.h"

extern const hdi_provider hdi_provider_host; /* state.c */

/* Returns the table without the fault wrapper. The process makes one table, and never closes it.
 * Does not fail. */
hd_status hdi_driver_host(const hdi_driver **out);

/* Sets the host provider's settings, which are the same for the whole process.
 * hdi_providers_open_driver calls this function before cuInit. The first runtime that opens decides
 * the settings; they stay as long as any runtime is open.
 * Errors: OPTION (a runtime with other settings is open, or host_corrupt is set to a wrong
 * value). */
hd_status hdi_host_configure(const hdi_options *options);

#endif
