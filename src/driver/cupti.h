/* cupti.h - CUPTI's reports about the devices of this process, for a trace that asks for them:
 * libcupti is opened at run time.
 *
 *    hdi_activities   activities of one device, reported and not yet taken
 *
 * CUPTI accepts one client in a process. So the first device that begins its reports attaches to
 * CUPTI, and the last device that ends them detaches it completely. The library itself stays open,
 * since its threads cannot be removed.
 *
 * Threads: any thread may begin and end reports; the thread that runs the device's engine takes
 * activities.
 * Locks: a thread that begins or ends reports holds a mutex. A leaf lock guards reported
 * activities. CUPTI's threads, and threads inside driver calls, hold it for some instructions, and
 * call no other function of the library under it.
 * Blocking: to begin and to end reports takes some hundred milliseconds. hdi_activities_end waits
 * until CUPTI delivered its last records.
 * Always: every report is checked. It must lie in its buffer, and its times must lie in this
 * session. Reports that fail the check, or for which no room is left, are counted.
 */
#ifndef HDI_DRIVER_CUPTI_H
#define HDI_DRIVER_CUPTI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "driver/driver.h"
#include "record/format.h"

#define HDI_ACTIVITIES_WHY_BYTES 448

/* A kernel's name; it lives as long as the process. */
typedef struct hdi_activity_name {
    struct hdi_activity_name *next;
    uint64_t number; /* hdi_record_number */
    uint32_t index;  /* the number of names before this one */
    char text[];
} hdi_activity_name;

/* A record of the type ACTIVITY. Its src and dst are ordinals of devices in the driver, or
 * HDI_ACTIVITY_HOST for the host's memory. */
#define HDI_ACTIVITY_HOST UINT32_MAX
typedef struct hdi_activity {
    hdi_record record;
    const hdi_activity_name *name; /* NULL: none */
} hdi_activity;

typedef struct hdi_activities {
    int ordinal;                 /* the number of the device in the driver */
    struct hdi_activities *next; /* under the leaf lock, like the rest */
    bool attached;
    hdi_activity *at;
    _Atomic uint32_t n; /* also loaded without the lock, as a hint */
    uint32_t room;
    _Atomic uint64_t dropped; /* also loaded without the lock */
    uint64_t session;         /* the number of times that reports began */
} hdi_activities;

/* Begins to report the device's activities. `option`: the option cupti. False: `why` lists the
 * attempts and the reasons why they failed. */
bool hdi_activities_begin(hdi_activities *activities, const hdi_driver *driver, const char *option,
                          char why[HDI_ACTIVITIES_WHY_BYTES]);
/* Ends the reports. Afterwards the last activities of the device can be taken. Does nothing if the
 * reports did not begin. */
void hdi_activities_end(hdi_activities *activities, const hdi_driver *driver);
/* Ends the reports if the driver cannot be used any more: makes no call of CUPTI. Frees the
 * activities that were not taken. */
void hdi_activities_forget(hdi_activities *activities);

/* The activities reported since the last call. The caller frees `at`. */
typedef struct hdi_activities_batch {
    hdi_activity *at;
    uint32_t n;
    uint64_t dropped, session;
} hdi_activities_batch;
hdi_activities_batch hdi_activities_take(hdi_activities *activities);

/* True if there may be activities to take. */
static inline bool hdi_activities_any(const hdi_activities *activities)
{
    return atomic_load_explicit(&activities->n, memory_order_relaxed) ||
           atomic_load_explicit(&activities->dropped, memory_order_relaxed);
}

#endif
