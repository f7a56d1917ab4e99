/* driver.h - the facts that the driver has, without a context on any device, and the verdicts that earlier tests of pairs have left.
 *
 * Threads: one at a time. Locks: the driver's. Blocking: the driver's calls, without a limit; see isolate.c.
 */
#ifndef CLI_DOCTOR_DRIVER_H
#define CLI_DOCTOR_DRIVER_H

#include "cli/doctor/collect.h"

/* Reads all that the driver of the options has: NVIDIA's, or host devices where HEDDLE_DRIVER asks for them. Devices that are not in
 * *buses are added. */
void doctor_driver_read(doctor_buses *buses, doctor_snapshot *s);

#endif
