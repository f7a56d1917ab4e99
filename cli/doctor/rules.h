/* rules.h - what a rule of `heddle doctor` is, and how it reads facts: a table of each part, in files rules_*.c.
 *
 * A rule is a question about the machine, about each device, or about each ordered pair of devices. It answers from facts alone. What it
 * has read is the evidence of its finding. A rule for which a fact is missing answers false, and is not answered: the fact is noted. So a rule
 * asks last for what is missing most often.
 *
 * Threads: one at a time. Locks: none.
 * Always: a rule reads nothing but the snapshot, and changes nothing.
 */
#ifndef CLI_DOCTOR_RULES_H
#define CLI_DOCTOR_RULES_H

#include <stdbool.h>
#include "cli/doctor/snapshot.h"

typedef enum doctor_severity { DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_ERROR } doctor_severity;
typedef enum doctor_scope { DOCTOR_MACHINE, DOCTOR_GPU, DOCTOR_PAIR } doctor_scope;

enum { DOCTOR_CASE_FACTS = 16 };

/* In the fix of a rule about devices: the bus id of one that was found, so that a command changes no other device. */
#define DOCTOR_BUS "{BUS}"

/* One question: a rule for one machine, device or pair. */
typedef struct doctor_case {
    const doctor_snapshot *s;
    int a, b; /* the device, or the pair: a uses memory of b; -1: none */
    const doctor_fact *read[DOCTOR_CASE_FACTS];
    int n;                          /* facts that are evidence */
    char missing[DOCTOR_KEY_BYTES]; /* the first one that the answer needs and the snapshot lacks; "": none */
} doctor_case;

typedef struct doctor_rule {
    const char *id; /* NULL: the end of the table */
    doctor_severity severity;
    doctor_scope scope;
    const char *area, *title, *why, *fix; /* fix "": nothing can be done; DOCTOR_BUS in it stands for a device */
    bool fix_needs_root;
    bool (*judge)(doctor_case *c);
} doctor_rule;

/* Causes come before what they lead to. */
extern const doctor_rule doctor_rules_driver[], doctor_rules_health[], doctor_rules_peers[], doctor_rules_links[],
    doctor_rules_process[];

/* The value of a fact that the answer needs; NULL: it is missing. */
const char *doctor_look(doctor_case *c, const char *key, ...) __attribute__((format(printf, 2, 3)));

/* The value of a fact without which the rule is answered, too; NULL: it is missing. */
const char *doctor_maybe(doctor_case *c, const char *key, ...) __attribute__((format(printf, 2, 3)));

/* Whether the fact is there and is this text. */
bool doctor_is(doctor_case *c, const char *value, const char *key, ...) __attribute__((format(printf, 3, 4)));

/* Whether the fact is missing, or another text. It is no evidence. */
bool doctor_is_not(doctor_case *c, const char *value, const char *key, ...) __attribute__((format(printf, 3, 4)));

/* The whole number that a fact begins with; `otherwise` where it is missing or has none. */
long long doctor_number(doctor_case *c, long long otherwise, const char *key, ...)
    __attribute__((format(printf, 3, 4)));
long long doctor_number_maybe(doctor_case *c, long long otherwise, const char *key, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether CUDA_VISIBLE_DEVICES alone is why CUDA shows no device. What it has read is evidence. */
bool doctor_hides_all(doctor_case *c);

/* Takes back what was read from the position on: it is no evidence. */
void doctor_drop(doctor_case *c, int position);

#endif
