/* activities.h - CUPTI's reports about a device (driver/cupti.h), on their way into the records of
 * its engine.
 *
 * Threads: begin and end run on any thread, one at a time. The function _take runs on the thread
 * that runs the engine, and _release once the engine stopped.
 * Locks, blocking: as in driver/cupti.h; take waits for nothing.
 * Always: only the engine writes its ring. Records without room there count as dropped.
 */
#ifndef HDI_ENGINE_ACTIVITIES_H
#define HDI_ENGINE_ACTIVITIES_H

#include "engine/engine.h"

/* False: it failed, and `why` gets the reason. */
bool hdi_engine_activities_begin(hdi_engine *engine, char why[HDI_ACTIVITIES_WHY_BYTES]);
void hdi_engine_activities_end(hdi_engine *engine);

/* Records all new reports. */
void hdi_engine_activities_take(hdi_engine *engine);
/* Ends the reports, and frees everything. */
void hdi_engine_activities_release(hdi_engine *engine, bool driver_usable);

#endif
