/* rules.h - defines the rules of `heddle doctor`, and the functions by which they read facts. Each
 * of the files rules_*.c contains a table of rules.
 *
 * A rule is a question about the machine, about each device, or about each ordered pair of devices.
 * A rule answers its question from facts alone. The facts that it reads are the evidence of its
 * finding. If a fact is missing, the rule returns false, counts as unanswered, and notes the fact.
 * So a rule first reads the facts that are seldom missing.
 *
 * A rule that blames a cause finds nothing if facts exclude that cause (causes.h). So no rule needs
 * exceptions for tested pairs, or for devices that NVLink connects.
 *
 * Threads: one at a time. Locks: none.
 * Always: a rule reads only the snapshot, and changes nothing.
 */
#ifndef CLI_DOCTOR_RULES_H
#define CLI_DOCTOR_RULES_H

#include <stdbool.h>
#include "cli/doctor/snapshot.h"

typedef enum doctor_severity { DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_ERROR } doctor_severity;
typedef enum doctor_scope { DOCTOR_MACHINE, DOCTOR_GPU, DOCTOR_PAIR } doctor_scope;

/* Possible causes for a pair that loses bytes, is slow or is refused. */
typedef enum doctor_cause {
    DOCTOR_NO_CAUSE,
    DOCTOR_IOMMU,      /* the IOMMU translates addresses, and bytes get lost */
    DOCTOR_IOMMU_SLOW, /* the IOMMU translates addresses, and copies are slow */
    DOCTOR_ACS,        /* bridges redirect traffic between peers upwards */
    DOCTOR_GUEST,      /* this is a virtual machine */
    DOCTOR_WINDOW,     /* the owner's memory window (BAR1) is smaller than its memory */
    DOCTOR_STATIC,     /* the driver does not map the whole memory into that window */
    DOCTOR_KEYS,       /* registry keys of the driver force some kind of peer access */
    DOCTOR_DISPLAY,    /* all bad pairs share a device with a display */
    DOCTOR_DEVICE,     /* all bad pairs share a device for another reason */
    DOCTOR_NVLINK,     /* NVLink connects the devices but does not work */
    DOCTOR_ROUTE,      /* the driver refuses peer access over PCIe */
    DOCTOR_REFUSAL,    /* the driver refuses access for any reason */
    DOCTOR_CAUSES
} doctor_cause;

#define DOCTOR_BIT(cause) (1u << (cause))

enum { DOCTOR_CASE_FACTS = 16 };

/* Stands, in a fix about devices, for the bus id of one device that the rule found. So a command in
 * the fix changes no other device. */
#define DOCTOR_BUS "{BUS}"

/* Stands, in a fix with suspects, for the fixes of the causes that facts do not exclude. */
#define DOCTOR_LEFT "{CAUSES}"

typedef struct doctor_pairs doctor_pairs; /* causes.h */

/* One question: a rule about the machine, a device or a pair. */
typedef struct doctor_case {
    const doctor_snapshot *s;
    const doctor_pairs *pairs;
    int a, b; /* the device, or the pair in which a uses memory of b; -1: none */
    const doctor_fact *read[DOCTOR_CASE_FACTS];
    int n; /* number of facts in evidence */
    /* the first needed fact that is missing from the snapshot; "": none */
    char missing[DOCTOR_KEY_BYTES];
    /* the question does not apply here, so it is neither answered nor open */
    bool unasked;
} doctor_case;

typedef struct doctor_rule {
    const char *id; /* NULL ends the table */
    doctor_severity severity;
    doctor_scope scope;
    /* fix: the remedy; "": none exists. In the remedy, DOCTOR_BUS stands for a device */
    const char *area, *title, *why, *fix;
    bool fix_needs_root;
    bool (*judge)(doctor_case *c);
    doctor_cause blames; /* if facts exclude this cause, the rule finds nothing */
    unsigned suspects;   /* DOCTOR_BIT of each cause that can contribute to the fix */
} doctor_rule;

/* The tables, in an order in which causes come before their effects. */
extern const doctor_rule doctor_rules_driver[], doctor_rules_health[], doctor_rules_peers[], doctor_rules_links[],
    doctor_rules_process[];

/* The value of a fact that the answer needs; NULL: the fact is missing. */
const char *doctor_look(doctor_case *c, const char *key, ...) __attribute__((format(printf, 2, 3)));

/* The value of an optional fact; NULL: the fact is missing. */
const char *doctor_maybe(doctor_case *c, const char *key, ...) __attribute__((format(printf, 2, 3)));

/* True if the fact exists and equals the text. */
bool doctor_is(doctor_case *c, const char *value, const char *key, ...) __attribute__((format(printf, 3, 4)));

/* True if the fact is missing or differs. It adds no evidence. */
bool doctor_is_not(doctor_case *c, const char *value, const char *key, ...) __attribute__((format(printf, 3, 4)));

/* The whole number at the start of a fact, or `otherwise`. */
long long doctor_number(doctor_case *c, long long otherwise, const char *key, ...)
    __attribute__((format(printf, 3, 4)));
long long doctor_number_maybe(doctor_case *c, long long otherwise, const char *key, ...)
    __attribute__((format(printf, 3, 4)));

/* True if CUDA_VISIBLE_DEVICES alone hides all devices from CUDA. The facts that it reads are
 * evidence. */
bool doctor_hides_all(doctor_case *c);

/* Removes all facts from this position on from the evidence. */
void doctor_drop(doctor_case *c, int position);

#endif
