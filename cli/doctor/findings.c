/* findings.c - asks the rules about the machine, each device and each pair, and collects the
 * findings.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/findings.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

/* ---- reading facts ---- */

static const char *doctor_finding_look_up(doctor_case *c, bool needed, const char *format, va_list arguments)
{
    char key[DOCTOR_KEY_BYTES];
    vsnprintf(key, sizeof(key), format, arguments);
    const doctor_fact *f = doctor_find(c->s, key);
    if (f && f->value) {
        if (c->n < DOCTOR_CASE_FACTS) {
            c->read[c->n++] = f;
        }
        return f->value;
    }
    if (needed && !c->missing[0] && !(f && strcmp(f->reason, DOCTOR_UNSUPPORTED) == 0)) {
        memcpy(c->missing, key, sizeof(key));
    }
    return NULL;
}

const char *doctor_look(doctor_case *c, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = doctor_finding_look_up(c, true, key, arguments);
    va_end(arguments);
    return value;
}

const char *doctor_maybe(doctor_case *c, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = doctor_finding_look_up(c, false, key, arguments);
    va_end(arguments);
    return value;
}

bool doctor_is(doctor_case *c, const char *value, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *is = doctor_finding_look_up(c, true, key, arguments);
    va_end(arguments);
    return is && strcmp(is, value) == 0;
}

bool doctor_is_not(doctor_case *c, const char *value, const char *key, ...)
{
    int before = c->n;
    va_list arguments;
    va_start(arguments, key);
    const char *is = doctor_finding_look_up(c, false, key, arguments);
    va_end(arguments);
    doctor_drop(c, before);
    return !is || strcmp(is, value) != 0;
}

static long long doctor_finding_number(const char *value, long long otherwise)
{
    char *end = NULL;
    long long number = value ? strtoll(value, &end, 10) : 0;
    return end && end > value ? number : otherwise;
}

long long doctor_number(doctor_case *c, long long otherwise, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = doctor_finding_look_up(c, true, key, arguments);
    va_end(arguments);
    return doctor_finding_number(value, otherwise);
}

long long doctor_number_maybe(doctor_case *c, long long otherwise, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = doctor_finding_look_up(c, false, key, arguments);
    va_end(arguments);
    return doctor_finding_number(value, otherwise);
}

void doctor_drop(doctor_case *c, int position)
{
    c->n = c->n < position ? c->n : position;
}

/* ---- findings ---- */

static void *doctor_list_grow(void *list, size_t n, size_t *room, size_t each)
{
    if (n < *room) {
        return list;
    }
    size_t more = *room ? 2 * *room : 8;
    void *longer = cli_allocate(more * each);
    if (n) {
        memcpy(longer, list, n * each);
    }
    free(list);
    *room = more;
    return longer;
}

static void doctor_finding_add_evidence(doctor_finding *f, const doctor_fact *fact)
{
    for (size_t i = 0; i < f->n_evidence; i++) {
        if (f->evidence[i] == fact) {
            return;
        }
    }
    f->evidence = doctor_list_grow(f->evidence, f->n_evidence, &f->room_evidence, sizeof(*f->evidence));
    f->evidence[f->n_evidence++] = fact;
}

static void doctor_finding_add_case(doctor_finding *f, const doctor_case *c)
{
    f->subjects = doctor_list_grow(f->subjects, f->n_subjects, &f->room_subjects, sizeof(*f->subjects));
    f->subjects[f->n_subjects++] = (doctor_subject){c->a, c->b};
    for (int i = 0; i < c->n; i++) {
        doctor_finding_add_evidence(f, c->read[i]);
    }
}

static void doctor_finding_add_leaves(doctor_finding *f, doctor_case *c)
{
    for (doctor_cause cause = 0; cause < DOCTOR_CAUSES; cause++) {
        if (f->rule->suspects & DOCTOR_BIT(cause)) {
            const doctor_fact *by;
            doctor_leave leave = doctor_leaves(c, cause, c->a, c->b, &by);
            f->leaves[cause] = leave > f->leaves[cause] ? leave : f->leaves[cause];
            f->by[cause] = f->by[cause] ? f->by[cause] : by;
        }
    }
}

/* Adds a gap. If the rule already has an entry with the same kind of fact and the same reason, that
 * entry counts one more case. */
static void doctor_finding_add_gap(const doctor_snapshot *s, const doctor_rule *rule, const char *key,
                                   doctor_findings *out)
{
    doctor_gap gap = {.rule = rule, .cases = 1};
    char pattern[DOCTOR_KEY_BYTES], other[DOCTOR_KEY_BYTES];
    snprintf(gap.key, sizeof(gap.key), "%s", key);
    gap.root = doctor_gap_reason(s, key, gap.reason);
    doctor_gap_pattern(key, pattern);
    for (size_t i = out->n_gaps; i > 0 && out->gaps[i - 1].rule == rule; i--) {
        doctor_gap *before = &out->gaps[i - 1];
        doctor_gap_pattern(before->key, other);
        if (strcmp(pattern, other) == 0 && strcmp(gap.reason, before->reason) == 0) {
            memcpy(before->key, pattern, sizeof(pattern));
            before->cases++;
            return;
        }
    }
    out->gaps = doctor_list_grow(out->gaps, out->n_gaps, &out->room_gaps, sizeof(*out->gaps));
    out->gaps[out->n_gaps++] = gap;
}

typedef struct question {
    const doctor_snapshot *s;
    const doctor_pairs *pairs;
    const doctor_rule *rule;
    doctor_finding finding;
    doctor_findings *out;
    bool answered; /* all facts of the rule are present for some device or pair */
} question;

static void doctor_finding_ask_rule(question *q, int a, int b)
{
    doctor_case c = {.s = q->s, .pairs = q->pairs, .a = a, .b = b};
    doctor_cause cause = q->rule->blames;
    bool found = q->rule->judge(&c) && (cause == DOCTOR_NO_CAUSE || doctor_is_blamed(&c, cause));
    if (found) {
        doctor_finding_add_case(&q->finding, &c);
        doctor_finding_add_leaves(&q->finding, &c);
    }
    if (c.unasked && !found) {
        return;
    }
    if (found || !c.missing[0]) {
        q->answered = true;
    } else {
        doctor_finding_add_gap(q->s, q->rule, c.missing, q->out);
    }
}

static void doctor_finding_ask_everywhere(question *q)
{
    int n = doctor_gpus(q->s);
    const doctor_fact *bus = doctor_find(q->s, "system.bus"), *number = doctor_find(q->s, "gpus");
    if (q->rule->scope == DOCTOR_MACHINE) {
        doctor_finding_ask_rule(q, -1, -1);
        return;
    }
    if (n == 0 && bus && bus->reason) { /* no device is known, but devices may exist */
        doctor_finding_add_gap(q->s, q->rule, "system.bus", q->out);
    } else if (!number || !number->value) {
        doctor_finding_add_gap(q->s, q->rule, "gpus", q->out);
    }
    for (int a = 0; a < n; a++) {
        if (q->rule->scope == DOCTOR_GPU) {
            doctor_finding_ask_rule(q, a, -1);
        }
        for (int b = 0; b < n && q->rule->scope == DOCTOR_PAIR; b++) {
            if (a != b) {
                doctor_finding_ask_rule(q, a, b);
            }
        }
    }
}

static const doctor_rule *const tables[] = {doctor_rules_driver, doctor_rules_health, doctor_rules_peers,
                                            doctor_rules_links, doctor_rules_process};

void doctor_judge(const doctor_snapshot *s, doctor_findings *out)
{
    doctor_pairs pairs;
    memset(out, 0, sizeof(*out));
    doctor_pairs_read(s, &pairs);
    for (int severity = DOCTOR_ERROR; severity >= DOCTOR_NOTE; severity--) {
        for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
            for (const doctor_rule *rule = tables[t]; rule->id && out->n < DOCTOR_RULES_MAX; rule++) {
                if ((int)rule->severity != severity) {
                    continue;
                }
                question q = {.s = s, .pairs = &pairs, .rule = rule, .finding = {.rule = rule}, .out = out};
                doctor_finding_ask_everywhere(&q);
                if (q.finding.n_subjects) {
                    out->list[out->n++] = q.finding;
                }
                if (q.answered && out->n_answered < DOCTOR_RULES_MAX) {
                    out->answered[out->n_answered++] = rule;
                }
            }
        }
    }
}

void doctor_findings_release(doctor_findings *f)
{
    for (int i = 0; i < f->n; i++) {
        free(f->list[i].subjects);
        free(f->list[i].evidence);
    }
    free(f->gaps);
    memset(f, 0, sizeof(*f));
}

int doctor_status(const doctor_findings *f)
{
    return f->n && f->list[0].rule->severity == DOCTOR_ERROR ? 2 : f->n && f->list[0].rule->severity == DOCTOR_WARNING;
}

const char *doctor_severity_text(doctor_severity severity)
{
    static const char *const texts[] = {"note", "warning", "error"};
    return texts[severity];
}
