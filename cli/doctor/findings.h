/* findings.h - makes each finding of the doctor from a snapshot, with its devices or pairs and the
 * facts behind it.
 *
 * Threads: one at a time. Locks: none.
 * Always: a rule makes at most one finding, which names all devices or pairs concerned. Errors come
 * first, then warnings, then notes; within each group, findings are in the order of the tables of
 * rules. Equal snapshots give equal findings.
 */
#ifndef CLI_DOCTOR_FINDINGS_H
#define CLI_DOCTOR_FINDINGS_H

#include "cli/doctor/causes.h"

enum { DOCTOR_RULES_MAX = 128, DOCTOR_REASON_BYTES = 256 };

typedef struct doctor_subject {
    int a, b; /* -1: none */
} doctor_subject;

typedef struct doctor_finding {
    const doctor_rule *rule;
    doctor_subject *subjects;
    size_t n_subjects, room_subjects;
    const doctor_fact **evidence; /* without duplicates */
    size_t n_evidence, room_evidence;
    /* for each suspect of the rule: the worst result among the subjects, and the first fact that
     * excludes the suspect */
    doctor_leave leaves[DOCTOR_CAUSES];
    const doctor_fact *by[DOCTOR_CAUSES];
} doctor_finding;

/* A missing fact because of which a rule was not answered, for one or several devices or pairs. */
typedef struct doctor_gap {
    const doctor_rule *rule;
    char key[DOCTOR_KEY_BYTES]; /* "gpu.N.mig" if several devices lack the fact */
    char reason[DOCTOR_REASON_BYTES];
    int cases;
    bool root; /* root can read the fact */
} doctor_gap;

typedef struct doctor_findings {
    doctor_finding list[DOCTOR_RULES_MAX];
    int n;
    /* rules that found all their facts, for at least one device or pair */
    const doctor_rule *answered[DOCTOR_RULES_MAX];
    int n_answered;
    doctor_gap *gaps;
    size_t n_gaps, room_gaps;
} doctor_findings;

/* Asks all rules. The findings point into the snapshot, which must live as long as they do. */
void doctor_judge(const doctor_snapshot *s, doctor_findings *out);
void doctor_findings_release(doctor_findings *f);

/* Returns the exit status: 0, 1 for warnings, 2 for errors. */
int doctor_status(const doctor_findings *f);

const char *doctor_severity_text(doctor_severity severity);

/* gaps.c: why a fact is missing from the snapshot, and who provides it. True: root can read it. */
bool doctor_gap_reason(const doctor_snapshot *s, const char *key, char out[DOCTOR_REASON_BYTES]);

/* gaps.c: "gpu.N.mig" for "gpu.3.mig". */
void doctor_gap_pattern(const char *key, char out[DOCTOR_KEY_BYTES]);

#endif
