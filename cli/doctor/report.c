/* report.c - prints the findings: a block each, then the areas without one, what was not checked and why, and what root would add.
 *
 * Threads: one at a time. Locks: none.
 * Always: the text shows a few pairs and facts of each finding, and counts the rest; the JSON has all.
 */
#include "cli/doctor/report.h"

#include <string.h>
#include "base/json.h"

enum { LINE = 110, SHOWN_SUBJECTS = 8, SHOWN_FACTS = 6, SHOWN_GAPS = 4, SHOWN_RULES = 12, FIX_BYTES = 1024 };

/* ---- text ---- */

static bool has_subject(const doctor_finding *f, int a, int b)
{
    for (size_t i = 0; i < f->n_subjects; i++) {
        if (f->subjects[i].a == a && f->subjects[i].b == b) {
            return true;
        }
    }
    return false;
}

/* A pair that is there both ways is shown once. */
static void put_pairs(const doctor_finding *f, FILE *out)
{
    int shown = 0;
    size_t left = f->n_subjects;
    for (size_t i = 0; i < f->n_subjects && shown < SHOWN_SUBJECTS; i++) {
        doctor_subject p = f->subjects[i];
        bool both = has_subject(f, p.b, p.a);
        if (!both || p.a < p.b) {
            fprintf(out, "%s%d %s %d", shown++ ? ", " : "", p.a, both ? "<->" : "->", p.b);
            left -= both ? 2 : 1;
        }
    }
    if (left) {
        fprintf(out, " and %zu more", left);
    }
}

/* NULL: it is not in the snapshot. */
static const char *bus_of(const doctor_snapshot *s, int device)
{
    char key[DOCTOR_KEY_BYTES];
    snprintf(key, sizeof(key), "gpu.%d.bus", device);
    const doctor_fact *bus = doctor_find(s, key);
    return bus ? bus->value : NULL;
}

static void put_devices(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    for (size_t i = 0; i < f->n_subjects && i < SHOWN_SUBJECTS; i++) {
        const char *bus = bus_of(s, f->subjects[i].a);
        fprintf(out, "%s%d", i ? ", " : "", f->subjects[i].a);
        if (bus) {
            fprintf(out, " (%s)", bus);
        }
    }
    if (f->n_subjects > SHOWN_SUBJECTS) {
        fprintf(out, " and %zu more", f->n_subjects - SHOWN_SUBJECTS);
    }
}

static void put_subjects(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    size_t n = (size_t)doctor_gpus(s);
    bool pairs = f->rule->scope == DOCTOR_PAIR;
    size_t all = pairs ? n * (n - 1) : n;
    const char *word = pairs ? "pair" : "device";
    if (f->rule->scope == DOCTOR_MACHINE) {
        return;
    }
    if (f->n_subjects == all && all > 2) {
        fprintf(out, "  all %zu %ss\n", all, word);
        return;
    }
    fprintf(out, "  %s%s ", word, f->n_subjects == 1 ? "" : "s");
    if (pairs) {
        put_pairs(f, out);
    } else {
        put_devices(s, f, out);
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

static bool is_alike(const doctor_fact *a, const doctor_fact *b)
{
    char pattern[DOCTOR_KEY_BYTES], other[DOCTOR_KEY_BYTES];
    doctor_gap_pattern(a->key, pattern);
    doctor_gap_pattern(b->key, other);
    return strcmp(a->value, b->value) == 0 && strcmp(pattern, other) == 0;
}

/* Facts that are alike on several devices are one line. */
static void put_evidence(const doctor_finding *f, FILE *out)
{
    const doctor_fact *shown[SHOWN_FACTS];
    size_t n = 0, left = f->n_evidence;
    for (size_t i = 0; i < f->n_evidence && n < SHOWN_FACTS; i++) {
        const doctor_fact *fact = f->evidence[i];
        size_t before = 0, alike = 0;
        while (before < n && !is_alike(shown[before], fact)) {
            before++;
        }
        if (before < n) {
            continue;
        }
        for (size_t k = i; k < f->n_evidence; k++) {
            alike += is_alike(fact, f->evidence[k]);
        }
        char pattern[DOCTOR_KEY_BYTES];
        doctor_gap_pattern(fact->key, pattern);
        fprintf(out, "  %-5s %s = %s", n ? "" : "found", alike > 1 ? pattern : fact->key, fact->value);
        if (alike > 1) {
            fprintf(out, " (%zu times)", alike);
        }
        fputc('\n', out);
        shown[n++] = fact;
        left -= alike;
    }
    if (left) {
        fprintf(out, "  %-5s and %zu more facts (--json has all)\n", "", left);
    }
}

/* The fix, with the bus id of the first device of the finding in the place of DOCTOR_BUS. */
static void make_fix(const doctor_snapshot *s, const doctor_finding *f, char out[FIX_BYTES])
{
    const char *from = f->rule->fix, *mark;
    bool of_device = f->rule->scope == DOCTOR_GPU && strstr(from, DOCTOR_BUS);
    const char *bus = of_device ? bus_of(s, f->subjects[0].a) : NULL;
    size_t used = 0;
    while ((mark = strstr(from, DOCTOR_BUS)) && used < FIX_BYTES) {
        used += (size_t)snprintf(out + used, FIX_BYTES - used, "%.*s%s", (int)(mark - from), from, bus ? bus : "BUS");
        from = mark + strlen(DOCTOR_BUS);
    }
    if (used < FIX_BYTES) {
        used += (size_t)snprintf(out + used, FIX_BYTES - used, "%s", from);
    }
    if (bus && f->n_subjects > 1 && used < FIX_BYTES) {
        snprintf(out + used, FIX_BYTES - used, " (this is for device %d; so for each)", f->subjects[0].a);
    }
}

static void put_finding(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    char fix[FIX_BYTES];
    fprintf(out, "%s [%s] %s\n", doctor_severity_text(f->rule->severity), f->rule->id, f->rule->title);
    put_subjects(s, f, out);
    put_evidence(f, out);
    put_wrapped("why  ", f->rule->why, out);
    if (f->rule->fix[0]) {
        make_fix(s, f, fix);
        put_wrapped(f->rule->fix_needs_root ? "fix   (as root)" : "fix  ", fix, out);
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

typedef struct area {
    int answered, open; /* rules: with all facts for some device or pair, and with none */
    bool partly;        /* a fact is missing for one of them */
} area;

static area look_at_area(const doctor_findings *f, const char *name)
{
    area a = {0, 0, false};
    for (int i = 0; i < f->n_answered; i++) {
        a.answered += strcmp(f->answered[i]->area, name) == 0;
    }
    for (size_t i = 0; i < f->n_gaps; i++) {
        bool answered = false, again = i > 0 && f->gaps[i - 1].rule == f->gaps[i].rule;
        for (int k = 0; k < f->n_answered; k++) {
            answered |= f->answered[k] == f->gaps[i].rule;
        }
        if (!again && strcmp(f->gaps[i].rule->area, name) == 0) {
            a.open += !answered;
            a.partly = true;
        }
    }
    return a;
}

static const char *const areas[] = {"driver", "devices", "clocks", "peers", "links", "NUMA", "limits", "environment"};
enum { AREAS = sizeof(areas) / sizeof(areas[0]) };

static void put_areas(const doctor_findings *f, FILE *out)
{
    for (int i = 0; i < AREAS; i++) {
        area a = look_at_area(f, areas[i]);
        if (has_finding(f, areas[i])) {
            continue;
        }
        fprintf(out, "%-12s ", areas[i]);
        if (a.answered && a.open) {
            fprintf(out, "nothing wrong in %d of %d checks\n", a.answered, a.answered + a.open);
        } else {
            fprintf(out, "%s\n", a.answered ? "nothing wrong" : a.open ? "not checked" : "nothing to check");
        }
    }
}

static bool is_group(const doctor_findings *f, size_t first, size_t i)
{
    return !f->gaps[i].root && strcmp(f->gaps[i].reason, f->gaps[first].reason) == 0;
}

/* The facts of a group of gaps in parentheses, a few of them, each once. */
static void put_facts(const doctor_findings *f, size_t first, char *line, size_t bytes)
{
    const char *shown[SHOWN_GAPS];
    int n = 0, more = 0;
    size_t used = (size_t)snprintf(line, bytes, "%s (", f->gaps[first].reason);
    for (size_t i = first; i < f->n_gaps; i++) {
        int before = 0;
        while (before < n && strcmp(shown[before], f->gaps[i].key) != 0) {
            before++;
        }
        if (!is_group(f, first, i) || before < n) {
            continue;
        }
        if (n == SHOWN_GAPS) {
            more++;
            continue;
        }
        shown[n] = f->gaps[i].key;
        used += (size_t)snprintf(line + used, bytes - used, "%s%s", n++ ? ", " : "", f->gaps[i].key);
    }
    snprintf(line + used, bytes - used, "%s)", more ? ", ..." : "");
}

static void put_rules(const doctor_findings *f, size_t first, FILE *out)
{
    char line[1024] = "";
    size_t used = 0;
    int n = 0;
    const doctor_rule *last = NULL;
    for (size_t i = first; i < f->n_gaps; i++) {
        if (!is_group(f, first, i) || f->gaps[i].rule == last) {
            continue;
        }
        last = f->gaps[i].rule;
        if (n++ < SHOWN_RULES) {
            used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s", n > 1 ? ", " : "", last->id);
        }
    }
    if (n > SHOWN_RULES) {
        snprintf(line + used, sizeof(line) - used, " and %d more (--json has all)", n - SHOWN_RULES);
    }
    put_wrapped("   ", line, out);
}

/* What could not be checked, by the reason; what root would see comes at the end. */
static void put_gaps(const doctor_findings *f, FILE *out)
{
    int groups = 0;
    for (size_t first = 0; first < f->n_gaps; first++) {
        char line[1024];
        size_t before = 0;
        while (before < first && !is_group(f, first, before)) {
            before++;
        }
        if (f->gaps[first].root || before < first) {
            continue;
        }
        put_facts(f, first, line, sizeof(line));
        fprintf(out, "%s", groups++ ? "" : "\nNot checked, since facts are missing:\n");
        put_wrapped("", line, out);
        put_rules(f, first, out);
    }
}

/* What lacks a fact that root can read, each once. */
static void put_root(const doctor_findings *f, FILE *out)
{
    const doctor_rule *last = NULL;
    for (size_t i = 0; i < f->n_gaps; i++) {
        if (f->gaps[i].root && f->gaps[i].rule != last) {
            fprintf(out, "%s%s", last ? "; " : "\nAs root, this would also be checked: ", f->gaps[i].rule->title);
            last = f->gaps[i].rule;
        }
    }
    fprintf(out, "%s", last ? "\n" : "");
}

/* The last line where there is no device and no finding. */
static void put_none(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    const doctor_fact *bus = doctor_find(s, "system.bus"), *devices = doctor_find(s, "gpus");
    if (bus && bus->reason) {
        fprintf(out, "\nno device was found: %s\n", bus->reason);
    } else if (!devices || !devices->value) {
        fprintf(out, "\nno device was looked at: the snapshot does not have their number (gpus)\n");
    } else {
        fprintf(out, "\nno device was found: the bus has none (lspci -d 10de: lists NVIDIA's); nothing is wrong%s\n",
                f->n_gaps ? " in what was checked" : "");
    }
}

void doctor_print_text(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    int count[3] = {0, 0, 0};
    for (int i = 0; i < f->n; i++) {
        put_finding(s, &f->list[i], out);
        count[f->list[i].rule->severity]++;
    }
    put_areas(f, out);
    put_gaps(f, out);
    put_root(f, out);
    if (f->n == 0 && doctor_gpus(s) == 0) {
        put_none(s, f, out);
    } else if (f->n == 0) {
        fprintf(out, "\n%d device%s: nothing wrong%s\n", doctor_gpus(s), doctor_gpus(s) == 1 ? "" : "s",
                f->n_gaps ? " in what was checked" : "");
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

/* In the order of "devices"; "": not known. */
static void put_buses_json(const doctor_snapshot *s, const doctor_finding *f, hdi_json *j)
{
    hdi_json_key(j, "buses");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_subjects; i++) {
        const char *bus = bus_of(s, f->subjects[i].a);
        hdi_json_string(j, bus ? bus : "");
    }
    hdi_json_array_end(j);
}

static void put_finding_json(const doctor_snapshot *s, const doctor_finding *f, hdi_json *j)
{
    char fix[FIX_BYTES];
    make_fix(s, f, fix);
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
    if (f->rule->scope == DOCTOR_GPU) {
        put_buses_json(s, f, j);
    }
    hdi_json_key(j, "evidence");
    hdi_json_object(j);
    for (size_t i = 0; i < f->n_evidence; i++) {
        put_string(j, f->evidence[i]->key, f->evidence[i]->value);
    }
    hdi_json_object_end(j);
    put_string(j, "why", f->rule->why);
    put_string(j, "fix", fix);
    hdi_json_key(j, "fix_needs_root");
    hdi_json_bool(j, f->rule->fix_needs_root);
    hdi_json_object_end(j);
}

static void put_areas_json(const doctor_findings *f, hdi_json *j)
{
    hdi_json_key(j, "areas");
    hdi_json_object(j);
    for (int i = 0; i < AREAS; i++) {
        area a = look_at_area(f, areas[i]);
        put_string(j, areas[i],
                   has_finding(f, areas[i]) ? "findings"
                   : a.answered && a.partly ? "nothing wrong, partly checked"
                   : a.answered             ? "nothing wrong"
                   : a.open                 ? "not checked"
                                            : "nothing to check");
    }
    hdi_json_object_end(j);
}

/* Rules that lack facts, once for each reason. */
static void put_gaps_json(const doctor_findings *f, hdi_json *j)
{
    hdi_json_key(j, "not_checked");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_gaps; i++) {
        const doctor_gap *g = &f->gaps[i];
        hdi_json_object(j);
        put_string(j, "id", g->rule->id);
        put_string(j, "area", g->rule->area);
        put_string(j, "fact", g->key);
        put_string(j, "reason", g->reason);
        hdi_json_key(j, "cases");
        hdi_json_integer(j, g->cases);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* Rules that lack a fact which root can read. */
static void put_root_json(const doctor_findings *f, hdi_json *j)
{
    const doctor_rule *last = NULL;
    hdi_json_key(j, "as_root");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_gaps; i++) {
        if (f->gaps[i].root && f->gaps[i].rule != last) {
            hdi_json_string(j, f->gaps[i].rule->id);
            last = f->gaps[i].rule;
        }
    }
    hdi_json_array_end(j);
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
        put_finding_json(s, &f->list[i], &j);
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
    put_gaps_json(f, &j);
    put_root_json(f, &j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
