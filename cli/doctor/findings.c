/* findings.c - asks the rules about the machine, each device and each pair, and collects what they find.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/findings.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

/* ---- what rules read with ---- */

static const char *look(doctor_case *c, const char *format, va_list arguments)
{
    char key[DOCTOR_KEY_BYTES];
    vsnprintf(key, sizeof(key), format, arguments);
    const doctor_fact *f = doctor_find(c->s, key);
    if (f && f->value) {
        c->present++;
        if (c->n < DOCTOR_CASE_FACTS) {
            c->read[c->n++] = f;
        }
        return f->value;
    }
    c->lacked = true;
    c->root |= f && strcmp(f->reason, DOCTOR_ROOT) == 0;
    return NULL;
}

const char *doctor_look(doctor_case *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *value = look(c, format, arguments);
    va_end(arguments);
    return value;
}

bool doctor_is(doctor_case *c, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *is = look(c, format, arguments);
    va_end(arguments);
    return is && strcmp(is, value) == 0;
}

bool doctor_is_not(doctor_case *c, const char *value, const char *format, ...)
{
    doctor_case before = *c;
    va_list arguments;
    va_start(arguments, format);
    const char *is = look(c, format, arguments);
    va_end(arguments);
    bool other = !is || strcmp(is, value) != 0;
    *c = before;
    return other;
}

long long doctor_number(doctor_case *c, long long otherwise, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *value = look(c, format, arguments);
    va_end(arguments);
    char *end = NULL;
    long long number = value ? strtoll(value, &end, 10) : 0;
    return end && end > value ? number : otherwise;
}

void doctor_drop(doctor_case *c, int position)
{
    c->n = c->n < position ? c->n : position;
}

/* ---- findings ---- */

static void *grown(void *list, size_t n, size_t *room, size_t each)
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

static void add_evidence(doctor_finding *f, const doctor_fact *fact)
{
    for (size_t i = 0; i < f->n_evidence; i++) {
        if (f->evidence[i] == fact) {
            return;
        }
    }
    f->evidence = grown(f->evidence, f->n_evidence, &f->room_evidence, sizeof(*f->evidence));
    f->evidence[f->n_evidence++] = fact;
}

static void add_case(doctor_finding *f, const doctor_case *c)
{
    f->subjects = grown(f->subjects, f->n_subjects, &f->room_subjects, sizeof(*f->subjects));
    f->subjects[f->n_subjects++] = (doctor_subject){c->a, c->b};
    for (int i = 0; i < c->n; i++) {
        add_evidence(f, c->read[i]);
    }
}

typedef struct answers {
    bool known, root;
} answers;

static void ask(const doctor_snapshot *s, const doctor_rule *rule, int a, int b, doctor_finding *f, answers *all)
{
    doctor_case c = {.s = s, .a = a, .b = b};
    bool found = rule->judge(&c);
    all->known |= found || (c.present > 0 && !c.lacked);
    all->root |= c.root;
    if (found) {
        add_case(f, &c);
    }
}

static void ask_everywhere(const doctor_snapshot *s, const doctor_rule *rule, doctor_finding *f, answers *all)
{
    int n = doctor_gpus(s);
    if (rule->scope == DOCTOR_MACHINE) {
        ask(s, rule, -1, -1, f, all);
        return;
    }
    for (int a = 0; a < n; a++) {
        if (rule->scope == DOCTOR_GPU) {
            ask(s, rule, a, -1, f, all);
        }
        for (int b = 0; b < n && rule->scope == DOCTOR_PAIR; b++) {
            if (a != b) {
                ask(s, rule, a, b, f, all);
            }
        }
    }
}

static const doctor_rule *const tables[] = {doctor_rules_driver, doctor_rules_health, doctor_rules_peers,
                                            doctor_rules_links, doctor_rules_process};

void doctor_judge(const doctor_snapshot *s, doctor_findings *out)
{
    memset(out, 0, sizeof(*out));
    for (int severity = DOCTOR_ERROR; severity >= DOCTOR_NOTE; severity--) {
        for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
            for (const doctor_rule *rule = tables[t]; rule->id && out->n < DOCTOR_RULES_MAX; rule++) {
                if ((int)rule->severity != severity) {
                    continue;
                }
                answers all = {false, false};
                doctor_finding f = {.rule = rule};
                ask_everywhere(s, rule, &f, &all);
                if (f.n_subjects) {
                    out->list[out->n++] = f;
                } else if (all.root && out->n_root < DOCTOR_RULES_MAX) {
                    out->root[out->n_root++] = rule;
                }
                if (all.known && out->n_asked < DOCTOR_RULES_MAX) {
                    out->asked[out->n_asked++] = rule;
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
