/* findings.h - each finding of the doctor: what the rules find in a snapshot, with their devices or pairs and the facts that they come from.
 *
 * Threads: one at a time. Locks: none.
 * Always: a rule has one finding at most, with all its devices or pairs. Errors come first, then warnings, then notes, in the order of
 * the tables. The same snapshot has the same findings.
 */
#ifndef CLI_DOCTOR_FINDINGS_H
#define CLI_DOCTOR_FINDINGS_H

#include "cli/doctor/rules.h"

enum { DOCTOR_RULES_MAX = 96, DOCTOR_REASON_BYTES = 256 };

typedef struct doctor_subject {
    int a, b; /* -1: none */
} doctor_subject;

typedef struct doctor_finding {
    const doctor_rule *rule;
    doctor_subject *subjects;
    size_t n_subjects, room_subjects;
    const doctor_fact **evidence; /* each once */
    size_t n_evidence, room_evidence;
} doctor_finding;

/* A fact for which a rule was not answered, for one device or pair or for several. */
typedef struct doctor_gap {
    const doctor_rule *rule;
    char key[DOCTOR_KEY_BYTES]; /* "gpu.N.mig" where several devices lack it */
    char reason[DOCTOR_REASON_BYTES];
    int cases;
    bool root; /* root can read it */
} doctor_gap;

typedef struct doctor_findings {
    doctor_finding list[DOCTOR_RULES_MAX];
    int n;
    const doctor_rule *answered[DOCTOR_RULES_MAX]; /* rules that had all facts, for one device or pair at least */
    int n_answered;
    doctor_gap *gaps;
    size_t n_gaps, room_gaps;
} doctor_findings;

/* Asks all rules. The snapshot must stay as long as the findings. */
void doctor_judge(const doctor_snapshot *s, doctor_findings *out);
void doctor_findings_release(doctor_findings *f);

/* The exit status: 0, 1 for warnings, 2 for errors. */
int doctor_status(const doctor_findings *f);

const char *doctor_severity_text(doctor_severity severity);

/* gaps.c: why the snapshot lacks a fact, and what provides it. True: root can read it. */
bool doctor_gap_reason(const doctor_snapshot *s, const char *key, char out[DOCTOR_REASON_BYTES]);

/* gaps.c: "gpu.N.mig" for "gpu.3.mig". */
void doctor_gap_pattern(const char *key, char out[DOCTOR_KEY_BYTES]);

#endif
