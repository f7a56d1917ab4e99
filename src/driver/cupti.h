/* cupti.h - what CUPTI reports of the devices of this process, for a trace that asks for it: libcupti is opened at run time.
 *
 *    hdi_activities   what was reported of one device and is not taken yet
 *
 * CUPTI has one client in a process. So the first device that begins attaches to it, and with the last one that ends nothing of CUPTI
 * stays attached. The library itself stays open, since its threads cannot be removed.
 *
 * Threads: begin and end on any; take on the thread that runs the device's engine.
 * Locks: a mutex while one begins or ends. A leaf lock for what was reported; CUPTI's threads, and threads inside driver calls, take it
 * for some instructions, and call nothing of the library.
 * Blocking: begin and end for some hundred milliseconds, and end until CUPTI has given what it has.
 * Always: what is reported is checked: it lies in its buffer, and its times are of this session. What is not, or has no room, is counted.
 */
#ifndef HDI_DRIVER_CUPTI_H
#define HDI_DRIVER_CUPTI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "driver/driver.h"
#include "record/format.h"

#define HDI_ACTIVITIES_WHY_BYTES 448

/* A kernel's name; it stays as long as the process. */
typedef struct hdi_activity_name {
    struct hdi_activity_name *next;
    uint64_t number; /* hdi_record_number */
    uint32_t index;  /* counts them */
    char text[];
} hdi_activity_name;

/* ACTIVITY; src and dst are ordinals of devices in the driver, HDI_ACTIVITY_HOST for the host's memory. */
#define HDI_ACTIVITY_HOST UINT32_MAX
typedef struct hdi_activity {
    hdi_record record;
    const hdi_activity_name *name; /* NULL: none */
} hdi_activity;

typedef struct hdi_activities {
    int ordinal;                 /* of the device, in the driver */
    struct hdi_activities *next; /* under the leaf lock, like the rest */
    bool attached;
    hdi_activity *at;
    _Atomic uint32_t n; /* also loaded without the lock, as a hint */
    uint32_t room;
    _Atomic uint64_t dropped; /* likewise */
    uint64_t session;         /* counts the begins */
} hdi_activities;

/* Begins: what the device does from now on is reported. `option`: the option cupti. False: `why` has what was tried, and why it did not work. */
bool hdi_activities_begin(hdi_activities *activities, const hdi_driver *driver, const char *option,
                          char why[HDI_ACTIVITIES_WHY_BYTES]);
/* Ends: what CUPTI has of the device is there to be taken. Nothing where it has not begun. */
void hdi_activities_end(hdi_activities *activities, const hdi_driver *driver);
/* The driver cannot be used any more: nothing is reported, and nothing of CUPTI is called. Frees what was not taken. */
void hdi_activities_forget(hdi_activities *activities);

/* What was reported since the last call; `at` is to be freed. */
typedef struct hdi_activities_batch {
    hdi_activity *at;
    uint32_t n;
    uint64_t dropped, session;
} hdi_activities_batch;
hdi_activities_batch hdi_activities_take(hdi_activities *activities);

/* Whether there may be something to take. */
static inline bool hdi_activities_any(const hdi_activities *activities)
{
    return atomic_load_explicit(&activities->n, memory_order_relaxed) ||
           atomic_load_explicit(&activities->dropped, memory_order_relaxed);
}

#endif
