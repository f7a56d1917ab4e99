/* causes.h - each cause of the doctor: the facts that exclude it for a pair of devices, and the
 * causes that remain.
 *
 * A test of the pair, the path between the devices, or facts about the cause itself can exclude a
 * cause. If the bytes of a pair arrive, this excludes every cause of lost bytes for the pair,
 * whatever else is true of the machine.
 *
 * Threads: one at a time. Locks: none.
 * Always: to examine a cause adds no evidence to the case. The case notes the first fact that is
 * missing.
 */
#ifndef CLI_DOCTOR_CAUSES_H
#define CLI_DOCTOR_CAUSES_H

#include "cli/doctor/rules.h"

/* The result of the facts for a cause. */
typedef enum doctor_leave {
    DOCTOR_EXCLUDED,
    DOCTOR_POSSIBLE, /* a fact is missing, or the facts do not decide */
    DOCTOR_FOUND
} doctor_leave;

/* Examines the cause for the pair in which a uses memory of b. *by: the fact that excludes the
 * cause; NULL: the cause is not excluded, or does not concern the pair. */
doctor_leave doctor_leaves(doctor_case *c, doctor_cause cause, int a, int b, const doctor_fact **by);

/* True if the cause is found for the case's subject: for its pair, for its device with any peer, or
 * for any pair. Always true on a machine without pairs. */
bool doctor_is_blamed(doctor_case *c, doctor_cause cause);

const char *doctor_cause_id(doctor_cause cause);   /* "iommu" */
const char *doctor_cause_name(doctor_cause cause); /* "the IOMMU" */
const char *doctor_cause_fix(doctor_cause cause);

/* The combined test results of all pairs, read once for all cases. */
struct doctor_pairs {
    int bad, good; /* pairs that lose bytes, and pairs that work */
    /* verdict of a working pair over PCIe; NULL: none */
    const doctor_fact *works;
    /* verdict of a working pair over PCIe with this owner; NULL: none */
    const doctor_fact *works_to[DOCTOR_GPUS_MAX];
    /* a verdict which shows that the device is not what the bad pairs share */
    const doctor_fact *clears[DOCTOR_GPUS_MAX];
};
void doctor_pairs_read(const doctor_snapshot *s, doctor_pairs *out);

/* ---- also for rules: these add the facts that they read as evidence ---- */

/* True if NVML or CUDA reports that access is given. If neither reports anything, the result is
 * false, and the case is unanswered. */
bool doctor_is_given(doctor_case *c, int a, int b);

/* True if both devices are on an NVSwitch or in its fabric, or if NVLink connects them. */
bool doctor_is_nvlink(doctor_case *c, int a, int b);

/* True if an IOMMU group of this type translates addresses. `type` NULL: the result is false. */
bool doctor_translates(const char *type);

/* True if bridges above a, but not above b, redirect traffic. */
bool doctor_redirects(doctor_case *c, int a, int b);

/* True if the device is in each pair that loses bytes and in none that works, and another pair
 * works. */
bool doctor_is_culprit(const doctor_case *c, int device);

/* True if a display or a graphics program uses the device. */
bool doctor_has_display(doctor_case *c, int device);

/* True if the driver's keys map the whole memory into the window. */
bool doctor_maps_all(const char *keys);

#endif
