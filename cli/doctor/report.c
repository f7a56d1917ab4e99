/* report.c - prints the findings: a block each, then the areas without one, what is missing, and what root would add.
 *
 * Threads: one at a time. Locks: none.
 * Always: the text shows a few pairs and facts of each finding, and counts the rest; the JSON has all.
 */
#include "cli/doctor/report.h"

#include <string.h>
#include "base/json.h"

enum { LINE = 110, SHOWN_SUBJECTS = 8, SHOWN_FACTS = 6, SHOWN_REASONS = 12 };

/* ---- text ---- */

static void put_subject(const doctor_snapshot *s, doctor_subject subject, FILE *out)
{
    char key[DOCTOR_KEY_BYTES];
    if (subject.b >= 0) {
        fprintf(out, "%d -> %d", subject.a, subject.b);
        return;
    }
    snprintf(key, sizeof(key), "gpu.%d.bus", subject.a);
    const doctor_fact *bus = doctor_find(s, key);
    fprintf(out, "%d%s%s%s", subject.a, bus && bus->value ? " (" : "", bus && bus->value ? bus->value : "",
            bus && bus->value ? ")" : "");
}

static void put_subjects(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    if (f->rule->scope == DOCTOR_MACHINE) {
        return;
    }
    fprintf(out, "  %s%s ", f->rule->scope == DOCTOR_PAIR ? "pair" : "device", f->n_subjects == 1 ? "" : "s");
    for (size_t i = 0; i < f->n_subjects && i < SHOWN_SUBJECTS; i++) {
        fprintf(out, "%s", i ? ", " : "");
        put_subject(s, f->subjects[i], out);
    }
    if (f->n_subjects > SHOWN_SUBJECTS) {
        fprintf(out, " and %zu more", f->n_subjects - SHOWN_SUBJECTS);
    }
    fputc('\n', out);
}

/* "LABEL text", with further lines under the text. */
static void put_wrapped(const char *label, const char *text, FILE *out)
{
    int column = fprintf(out, "  %s", label);
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column + 1 + word > LINE && column > 8) {
            fprintf(out, "\n%*s", 7, "");
            column = 7;
        }
        column += fprintf(out, " %.*s", word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void put_finding(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    fprintf(out, "%s [%s] %s\n", doctor_severity_text(f->rule->severity), f->rule->id, f->rule->title);
    put_subjects(s, f, out);
    for (size_t i = 0; i < f->n_evidence && i < SHOWN_FACTS; i++) {
        fprintf(out, "  %-5s %s = %s\n", i ? "" : "found", f->evidence[i]->key, f->evidence[i]->value);
    }
    if (f->n_evidence > SHOWN_FACTS) {
        fprintf(out, "  %-5s and %zu more facts (--json has all)\n", "", f->n_evidence - SHOWN_FACTS);
    }
    put_wrapped("why  ", f->rule->why, out);
    if (f->rule->fix[0]) {
        put_wrapped(f->rule->fix_needs_root ? "fix   (as root)" : "fix  ", f->rule->fix, out);
    }
    fputc('\n', out);
}

static bool has_finding(const doctor_findings *f, const char *area)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->list[i].rule->area, area) == 0) {
            return true;
        }
    }
    return false;
}

static int count_asked(const doctor_findings *f, const char *area)
{
    int n = 0;
    for (int i = 0; i < f->n_asked; i++) {
        n += strcmp(f->asked[i]->area, area) == 0;
    }
    return n;
}

static const char *const areas[] = {"driver", "devices", "clocks", "peers", "links", "NUMA", "limits", "environment"};
enum { AREAS = sizeof(areas) / sizeof(areas[0]) };

static void put_areas(const doctor_findings *f, FILE *out)
{
    for (int i = 0; i < AREAS; i++) {
        int asked = count_asked(f, areas[i]);
        if (!has_finding(f, areas[i])) {
            fprintf(out, "%-12s %s\n", areas[i], asked ? "nothing wrong" : "not checked: no facts");
        }
    }
}

/* Facts that are missing, but for those that root would see. */
static void put_missing(const doctor_snapshot *s, FILE *out)
{
    int shown = 0;
    for (size_t i = 0; i < s->n; i++) {
        const doctor_fact *m = &s->list[i];
        if (!m->value && strcmp(m->reason, DOCTOR_ROOT) != 0 && shown++ < SHOWN_REASONS) {
            fprintf(out, "%snot found out: %s: %s\n", shown == 1 ? "\n" : "", m->key, m->reason);
        }
    }
    if (shown > SHOWN_REASONS) {
        fprintf(out, "and %d more (--json has all)\n", shown - SHOWN_REASONS);
    }
}

static void put_root(const doctor_findings *f, FILE *out)
{
    for (int i = 0; i < f->n_root; i++) {
        fprintf(out, "%s%s", i ? "; " : "\nAs root, this would also be checked: ", f->root[i]->title);
    }
    fprintf(out, "%s", f->n_root ? "\n" : "");
}

void doctor_print_text(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    int count[3] = {0, 0, 0};
    for (int i = 0; i < f->n; i++) {
        put_finding(s, &f->list[i], out);
        count[f->list[i].rule->severity]++;
    }
    put_areas(f, out);
    put_missing(s, out);
    put_root(f, out);
    if (f->n == 0 && doctor_gpus(s) == 0) {
        fprintf(out, "\nno device was found, and nothing wrong\n");
    } else if (f->n == 0) {
        fprintf(out, "\n%d device%s: nothing wrong\n", doctor_gpus(s), doctor_gpus(s) == 1 ? "" : "s");
    } else {
        fprintf(out, "\n%d device%s: %d error%s, %d warning%s, %d note%s\n", doctor_gpus(s),
                doctor_gpus(s) == 1 ? "" : "s", count[DOCTOR_ERROR], count[DOCTOR_ERROR] == 1 ? "" : "s",
                count[DOCTOR_WARNING], count[DOCTOR_WARNING] == 1 ? "" : "s", count[DOCTOR_NOTE],
                count[DOCTOR_NOTE] == 1 ? "" : "s");
    }
}

/* ---- JSON ---- */

static void put_string(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

static void put_finding_json(const doctor_finding *f, hdi_json *j)
{
    hdi_json_object(j);
    put_string(j, "id", f->rule->id);
    put_string(j, "severity", doctor_severity_text(f->rule->severity));
    put_string(j, "area", f->rule->area);
    put_string(j, "title", f->rule->title);
    hdi_json_key(j, f->rule->scope == DOCTOR_PAIR ? "pairs" : "devices");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_subjects && f->rule->scope != DOCTOR_MACHINE; i++) {
        if (f->rule->scope == DOCTOR_PAIR) {
            hdi_json_array(j);
            hdi_json_integer(j, f->subjects[i].a);
            hdi_json_integer(j, f->subjects[i].b);
            hdi_json_array_end(j);
        } else {
            hdi_json_integer(j, f->subjects[i].a);
        }
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "evidence");
    hdi_json_object(j);
    for (size_t i = 0; i < f->n_evidence; i++) {
        put_string(j, f->evidence[i]->key, f->evidence[i]->value);
    }
    hdi_json_object_end(j);
    put_string(j, "why", f->rule->why);
    put_string(j, "fix", f->rule->fix);
    hdi_json_key(j, "fix_needs_root");
    hdi_json_bool(j, f->rule->fix_needs_root);
    hdi_json_object_end(j);
}

static void put_areas_json(const doctor_findings *f, hdi_json *j)
{
    hdi_json_key(j, "areas");
    hdi_json_object(j);
    for (int i = 0; i < AREAS; i++) {
        put_string(j, areas[i],
                   has_finding(f, areas[i])   ? "findings"
                   : count_asked(f, areas[i]) ? "nothing wrong"
                                              : "not checked");
    }
    hdi_json_object_end(j);
}

void doctor_print_json(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    hdi_json_key(&j, "status");
    hdi_json_integer(&j, doctor_status(f));
    hdi_json_key(&j, "devices");
    hdi_json_integer(&j, doctor_gpus(s));
    hdi_json_key(&j, "findings");
    hdi_json_array(&j);
    for (int i = 0; i < f->n; i++) {
        put_finding_json(&f->list[i], &j);
    }
    hdi_json_array_end(&j);
    put_areas_json(f, &j);
    hdi_json_key(&j, "missing");
    hdi_json_object(&j);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->list[i].value) {
            put_string(&j, s->list[i].key, s->list[i].reason);
        }
    }
    hdi_json_object_end(&j);
    hdi_json_key(&j, "as_root");
    hdi_json_array(&j);
    for (int i = 0; i < f->n_root; i++) {
        hdi_json_string(&j, f->root[i]->id);
    }
    hdi_json_array_end(&j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
