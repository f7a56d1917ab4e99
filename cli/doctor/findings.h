/* findings.h - each finding of the doctor: what the rules find in a snapshot, with their devices or pairs and the facts that they come from.
 *
 * Threads: one at a time. Locks: none.
 * Always: a rule has one finding at most, with all its devices or pairs. Errors come first, then warnings, then notes, in the order of
 * the tables. The same snapshot has the same findings.
 */
#ifndef CLI_DOCTOR_FINDINGS_H
#define CLI_DOCTOR_FINDINGS_H

#include "cli/doctor/rules.h"

enum { DOCTOR_RULES_MAX = 96 };

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

typedef struct doctor_findings {
    doctor_finding list[DOCTOR_RULES_MAX];
    int n;
    const doctor_rule *asked[DOCTOR_RULES_MAX]; /* rules that had facts to go by */
    int n_asked;
    const doctor_rule *root[DOCTOR_RULES_MAX]; /* rules that lacked a fact which root can read, and found nothing */
    int n_root;
} doctor_findings;

/* Asks all rules. The snapshot must stay as long as the findings. */
void doctor_judge(const doctor_snapshot *s, doctor_findings *out);
void doctor_findings_release(doctor_findings *f);

/* The exit status: 0, 1 for warnings, 2 for errors. */
int doctor_status(const doctor_findings *f);

const char *doctor_severity_text(doctor_severity severity);

#endif
