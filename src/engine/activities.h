/* activities.h - what CUPTI reports of a device (driver/cupti.h), on its way into the records of its engine.
 *
 * Threads: begin and end on any, one at a time; take and release on the thread that runs the engine, release once it has stopped.
 * Locks, blocking: as driver/cupti.h has them; take waits for nothing.
 * Always: only the engine writes its ring. What has no room there counts as dropped.
 */
#ifndef HDI_ENGINE_ACTIVITIES_H
#define HDI_ENGINE_ACTIVITIES_H

#include "engine/engine.h"

/* False: `why` has the reason. */
bool hdi_engine_activities_begin(hdi_engine *engine, char why[HDI_ACTIVITIES_WHY_BYTES]);
void hdi_engine_activities_end(hdi_engine *engine);

/* Records what was reported. */
void hdi_engine_activities_take(hdi_engine *engine);
/* Ends them, and frees all. */
void hdi_engine_activities_release(hdi_engine *engine, bool driver_usable);

#endif
