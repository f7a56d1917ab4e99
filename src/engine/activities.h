/* activities.h - CUPTI's reports about a device (driver/cupti.h), on their way into the records of
 * its engine.
 *
 * Threads: hdi_engine_activities_begin and _end run on any thread, one at a time.
 * hdi_engine_activities_take runs on the thread that runs the engine. hdi_engine_activities_release
 * runs once the engine stopped. Locks, blocking: as in driver/cupti.h; hdi_engine_activities_take
 * waits for nothing.
 * Always: only the engine writes the ring of its records. A record that does not fit into the ring
 * counts as dropped.
 */
#ifndef HDI_ENGINE_ACTIVITIES_H
#define HDI_ENGINE_ACTIVITIES_H

#include "engine/engine.h"

/* Begins the reports. False: they did not begin, and `why` gets the reason. */
bool hdi_engine_activities_begin(hdi_engine *engine, char why[HDI_ACTIVITIES_WHY_BYTES]);
void hdi_engine_activities_end(hdi_engine *engine);

/* Records all new reports. */
void hdi_engine_activities_take(hdi_engine *engine);
/* Ends the reports, and frees everything. */
void hdi_engine_activities_release(hdi_engine *engine, bool driver_usable);

#endif
