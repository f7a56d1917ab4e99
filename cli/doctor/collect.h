/* collect.h - finds out the facts of this machine: from /proc and /sys, from NVML, and from the driver.
 *
 * NVML and the driver are asked in child processes with a time limit. A device that no longer answers stops such a child, or crashes it.
 * That is a fact, too ("nvml.end", "driver.end").
 *
 * Threads: one at a time, and no other thread may run, since children are forked. Locks: none.
 * Blocking: for DOCTOR_LIMIT_S at most for NVML, and as long for the driver.
 * Always: each source can be missing, and then costs its own facts alone. Nothing needs privileges, and nothing is changed. No context is
 * made on a device.
 */
#ifndef CLI_DOCTOR_COLLECT_H
#define CLI_DOCTOR_COLLECT_H

#include "cli/common/system.h"
#include "cli/doctor/snapshot.h"

enum { DOCTOR_LIMIT_S = 60 };

/* The devices by their bus ids; what a source adds comes behind the others. */
typedef struct doctor_buses {
    char id[DOCTOR_GPUS_MAX][SYSTEM_BUS_ID];
    int n;
} doctor_buses;

/* The number of a device, which is added where it is missing; -1: there are too many. */
int doctor_bus_number(doctor_buses *buses, const char *bus_id);

/* All facts of this machine. */
void doctor_collect(doctor_snapshot *s);

/* ---- the sources; `root` is put before /sys, /proc and /dev: "" but for tests ---- */

/* process.c: the system, limits, and by environment.c the environment. */
void doctor_read_system(const char *root, doctor_snapshot *s);
void doctor_read_environment(doctor_snapshot *s);

/* bus.c: devices and bridges; the bus ids that were found go into *buses. */
void doctor_read_bus(const char *root, doctor_buses *buses, doctor_snapshot *s);

/* ---- isolate.c ---- */

typedef void (*doctor_source)(void *context, doctor_snapshot *s);

/* Runs a source in a child process, and takes over what it has found. A long wait is announced on stderr. What the source has started
 * is killed when it ends, but for what has left its process group. Sets the fact "NAME.end": "ordinary", or what went wrong. */
void doctor_isolate(const char *name, doctor_source source, void *context, int limit_s, doctor_snapshot *s);

#endif
