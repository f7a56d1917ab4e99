/* collect.h - collects the facts of this machine: from /proc and /sys, from NVML, and from the
 * driver.
 *
 * Child processes with a time limit ask NVML and the driver. A device that no longer answers makes
 * such a child hang or crash. This is also recorded as a fact ("nvml.end", "driver.end").
 *
 * Threads: no other thread may run, because this code forks. Locks: none.
 * Blocking: at most DOCTOR_LIMIT_S for NVML, and as long for the driver.
 * Always: a missing source affects only its own facts. This code needs no privileges, changes
 * nothing on the machine, and makes no context on a device.
 */
#ifndef CLI_DOCTOR_COLLECT_H
#define CLI_DOCTOR_COLLECT_H

#include "cli/common/system.h"
#include "cli/doctor/snapshot.h"

enum { DOCTOR_LIMIT_S = 60 };

/* The devices by bus id; a source appends new ones. */
typedef struct doctor_buses {
    char id[DOCTOR_GPUS_MAX][SYSTEM_BUS_ID];
    int n;
} doctor_buses;

/* Returns the number of a device. A device that is not in the list is appended. -1: there are too
 * many devices. */
int doctor_bus_number(doctor_buses *buses, const char *bus_id);

/* Collects all facts of this machine. */
void doctor_collect(doctor_snapshot *s);

/* ---- the sources, which put `root` ("" outside of tests) before /sys, /proc and /dev ---- */

/* process.c reads the system and its limits, and environment.c the environment. */
void doctor_read_system(const char *root, doctor_snapshot *s);
void doctor_read_environment(doctor_snapshot *s);

/* cgroup.c: limits of this process's control groups. */
void doctor_read_cgroup(const char *root, doctor_snapshot *s);

/* bus.c: devices and bridges; puts their bus ids into *buses. */
void doctor_read_bus(const char *root, doctor_buses *buses, doctor_snapshot *s);

/* log.c: the kernel log of these devices and the bridges above them. */
void doctor_read_log(const char *root, const doctor_buses *buses, const system_chain *chains, doctor_snapshot *s);

/* bus.c: the reason why this user may not read a file. */
const char *doctor_unreadable(void);

/* ---- isolate.c ---- */

typedef void (*doctor_source)(void *context, doctor_snapshot *s);

/* Runs a source in a child process, and takes over the facts that the source found. Announces a
 * long wait on stderr. When the source ends, the processes that it started are killed, unless they
 * left its process group. Sets the fact "NAME.end" to "ordinary" or to the error. */
void doctor_isolate(const char *name, doctor_source source, void *context, int limit_s, doctor_snapshot *s);

#endif
