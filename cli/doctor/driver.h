/* driver.h - facts from the driver, without a context on any device, and the verdicts of earlier
 * tests of pairs.
 *
 * Threads: one at a time. Locks: those of the driver.
 * Blocking: calls of the driver may wait without a limit; see isolate.c.
 */
#ifndef CLI_DOCTOR_DRIVER_H
#define CLI_DOCTOR_DRIVER_H

#include "cli/doctor/collect.h"

/* Reads all facts from the driver that the options select: NVIDIA's driver, or host devices if
 * HEDDLE_DRIVER asks for them. Adds devices that are not in *buses. */
void doctor_driver_read(doctor_buses *buses, doctor_snapshot *s);

#endif
