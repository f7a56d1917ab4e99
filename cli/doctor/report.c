/* report.c - prints each finding, the areas without a finding, the skipped checks with reasons, and
 * the checks that root could make.
 *
 * Threads: one at a time. Locks: none.
 * Always: the text shows a few pairs and facts of each finding, and counts the rest; the JSON lists
 * all of them.
 */
#include "cli/doctor/report.h"

#include <stdarg.h>
#include <string.h>
#include "base/json.h"
#include "cli/common/words.h"

enum { INDENT = 8, SHOWN_SUBJECTS = 8, SHOWN_FACTS = 6, SHOWN_GAPS = 4, SHOWN_RULES = 12, FIX_BYTES = 4096 };

/* ---- text ---- */

static bool doctor_report_has_subject(const doctor_finding *f, int a, int b)
{
    for (size_t i = 0; i < f->n_subjects; i++) {
        if (f->subjects[i].a == a && f->subjects[i].b == b) {
            return true;
        }
    }
    return false;
}

/* Shows a pair once if both directions are present. */
static void doctor_report_put_pairs(const doctor_finding *f, FILE *out)
{
    int shown = 0;
    size_t left = f->n_subjects;
    for (size_t i = 0; i < f->n_subjects && shown < SHOWN_SUBJECTS; i++) {
        doctor_subject p = f->subjects[i];
        bool both = doctor_report_has_subject(f, p.b, p.a);
        if (!both || p.a < p.b) {
            fprintf(out, "%s%d %s %d", shown++ ? ", " : "", p.a, both ? "<->" : "->", p.b);
            left -= both ? 2 : 1;
        }
    }
    if (left) {
        fprintf(out, " and %zu more", left);
    }
}

/* Returns the bus id of a device. NULL: the snapshot does not contain it. */
static const char *doctor_report_bus_of(const doctor_snapshot *s, int device)
{
    char key[DOCTOR_KEY_BYTES];
    snprintf(key, sizeof(key), "gpu.%d.bus", device);
    const doctor_fact *bus = doctor_find(s, key);
    return bus ? bus->value : NULL;
}

static void doctor_report_put_devices(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    for (size_t i = 0; i < f->n_subjects && i < SHOWN_SUBJECTS; i++) {
        const char *bus = doctor_report_bus_of(s, f->subjects[i].a);
        fprintf(out, "%s%d", i ? ", " : "", f->subjects[i].a);
        if (bus) {
            fprintf(out, " (%s)", bus);
        }
    }
    if (f->n_subjects > SHOWN_SUBJECTS) {
        fprintf(out, " and %zu more", f->n_subjects - SHOWN_SUBJECTS);
    }
}

static void doctor_report_put_subjects(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
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
        doctor_report_put_pairs(f, out);
    } else {
        doctor_report_put_devices(s, f, out);
    }
    fputc('\n', out);
}

/* Prints "LABEL text", with further lines indented below the text. */
static void doctor_report_put_wrapped(const char *label, const char *text, FILE *out)
{
    int column = fprintf(out, "  %s ", label);
    cli_words_put(out, text, column, INDENT);
}

static bool doctor_report_is_alike(const doctor_fact *a, const doctor_fact *b)
{
    char pattern[DOCTOR_KEY_BYTES], other[DOCTOR_KEY_BYTES];
    doctor_gap_pattern(a->key, pattern);
    doctor_gap_pattern(b->key, other);
    return strcmp(a->value, b->value) == 0 && strcmp(pattern, other) == 0;
}

/* Prints equal facts of several devices as one line. */
static void doctor_report_put_evidence(const doctor_finding *f, FILE *out)
{
    const doctor_fact *shown[SHOWN_FACTS];
    size_t n = 0, left = f->n_evidence;
    for (size_t i = 0; i < f->n_evidence && n < SHOWN_FACTS; i++) {
        const doctor_fact *fact = f->evidence[i];
        size_t before = 0, alike = 0;
        while (before < n && !doctor_report_is_alike(shown[before], fact)) {
            before++;
        }
        if (before < n) {
            continue;
        }
        for (size_t k = i; k < f->n_evidence; k++) {
            alike += doctor_report_is_alike(fact, f->evidence[k]);
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

typedef struct words {
    char *out;
    size_t used, room; /* text that does not fit is dropped */
} words;

static void doctor_report_add_words(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void doctor_report_add_words(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->out + w->used, w->room - w->used, format, arguments);
    va_end(arguments);
    w->used += n < 0 ? 0 : (size_t)n < w->room - w->used ? (size_t)n : w->room - w->used - 1;
}

/* Adds the fix, or only the name, of each suspect with the given result. Returns their number. */
static int doctor_report_add_causes(words *w, const doctor_finding *f, doctor_leave leave, const char *before,
                                    bool fixes)
{
    int n = 0;
    for (doctor_cause cause = 0; cause < DOCTOR_CAUSES; cause++) {
        if (f->rule->suspects & DOCTOR_BIT(cause) && f->leaves[cause] == leave) {
            doctor_report_add_words(w, "%s%s", n++ ? "; " : before,
                                    fixes ? doctor_cause_fix(cause) : doctor_cause_name(cause));
            if (fixes && leave == DOCTOR_POSSIBLE) {
                doctor_report_add_words(w, " (for %s)", doctor_cause_name(cause));
            }
        }
    }
    return n;
}

/* Adds the fixes of the causes that were found, and then the names of those that facts do not
 * exclude. If no cause was found, adds the fixes of those that facts do not exclude. If facts
 * exclude all causes, adds a sentence that states this. */
static void doctor_report_add_left(words *w, const doctor_finding *f)
{
    if (doctor_report_add_causes(w, f, DOCTOR_FOUND, "", true)) {
        doctor_report_add_causes(w, f, DOCTOR_POSSIBLE, "; also possible: ", false);
    } else if (!doctor_report_add_causes(w, f, DOCTOR_POSSIBLE, "try in turn, until one helps: ", true)) {
        doctor_report_add_words(w, "facts exclude all of the usual causes");
    }
}

/* Makes the fix. The bus id of the finding's first device replaces DOCTOR_BUS, and the remaining
 * suspects replace DOCTOR_LEFT. */
static void doctor_report_make_fix(const doctor_snapshot *s, const doctor_finding *f, char out[FIX_BYTES])
{
    const char *from = f->rule->fix;
    bool of_device = f->rule->scope == DOCTOR_GPU && strstr(from, DOCTOR_BUS);
    const char *bus = of_device ? doctor_report_bus_of(s, f->subjects[0].a) : NULL;
    words w = {out, 0, FIX_BYTES};
    out[0] = 0;
    for (const char *mark; (mark = strchr(from, '{'));) {
        doctor_report_add_words(&w, "%.*s", (int)(mark - from), from);
        if (strncmp(mark, DOCTOR_BUS, strlen(DOCTOR_BUS)) == 0) {
            doctor_report_add_words(&w, "%s", bus ? bus : "BUS");
            from = mark + strlen(DOCTOR_BUS);
        } else {
            doctor_report_add_left(&w, f);
            from = mark + strlen(DOCTOR_LEFT);
        }
    }
    doctor_report_add_words(&w, "%s", from);
    if (bus && f->n_subjects > 1) {
        doctor_report_add_words(&w, " (this is for device %d; do the same for each)", f->subjects[0].a);
    }
}

/* Prints each excluded cause with its fact. */
static void doctor_report_put_excluded(const doctor_finding *f, FILE *out)
{
    char line[FIX_BYTES] = "";
    words w = {line, 0, sizeof(line)};
    for (doctor_cause cause = 0; cause < DOCTOR_CAUSES; cause++) {
        if (f->rule->suspects & DOCTOR_BIT(cause) && f->leaves[cause] == DOCTOR_EXCLUDED && f->by[cause]) {
            doctor_report_add_words(&w, "%s%s (%s = %s)", w.used ? ", " : "", doctor_cause_name(cause),
                                    f->by[cause]->key, f->by[cause]->value);
        }
    }
    if (w.used) {
        doctor_report_put_wrapped("not  ", line, out);
    }
}

static void doctor_report_put_finding(const doctor_snapshot *s, const doctor_finding *f, FILE *out)
{
    char fix[FIX_BYTES];
    fprintf(out, "%s [%s] %s\n", doctor_severity_text(f->rule->severity), f->rule->id, f->rule->title);
    doctor_report_put_subjects(s, f, out);
    doctor_report_put_evidence(f, out);
    doctor_report_put_wrapped("why  ", f->rule->why, out);
    doctor_report_put_excluded(f, out);
    if (f->rule->fix[0]) {
        doctor_report_make_fix(s, f, fix);
        doctor_report_put_wrapped(f->rule->fix_needs_root ? "fix   (as root)" : "fix  ", fix, out);
    }
    fputc('\n', out);
}

static bool doctor_report_has_finding(const doctor_findings *f, const char *area)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->list[i].rule->area, area) == 0) {
            return true;
        }
    }
    return false;
}

typedef struct area {
    /* the rules that found all their facts for some device or pair, and the rules that found them
     * for none */
    int answered, open;
    bool partly; /* a fact is missing for one device or pair */
} area;

static area doctor_report_area_of(const doctor_findings *f, const char *name)
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

static const struct {
    const char *name;
    int devices; /* the area needs at least this many devices */
} areas[] = {{"driver", 0}, {"devices", 1}, {"clocks", 1}, {"peers", 2},
             {"links", 1},  {"NUMA", 1},    {"limits", 0}, {"environment", 0}};
enum { AREAS = sizeof(areas) / sizeof(areas[0]) };

/* True if the machine contains too few devices for the area: no device, or only one. */
static bool doctor_report_area_is_void(const doctor_snapshot *s, int i)
{
    return doctor_gpus(s) < areas[i].devices;
}

static void doctor_report_put_areas(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    for (int i = 0; i < AREAS; i++) {
        area a = doctor_report_area_of(f, areas[i].name);
        if (doctor_report_has_finding(f, areas[i].name)) {
            continue;
        }
        fprintf(out, "%-12s ", areas[i].name);
        if (doctor_report_area_is_void(s, i)) {
            fprintf(out, "%s\n", a.open ? "not checked" : "nothing to check");
        } else if (a.answered && a.open) {
            fprintf(out, "nothing wrong in %d of %d checks\n", a.answered, a.answered + a.open);
        } else {
            fprintf(out, "%s\n", a.answered ? "nothing wrong" : a.open ? "not checked" : "nothing to check");
        }
    }
}

static bool doctor_report_is_same_group(const doctor_findings *f, size_t first, size_t i)
{
    return !f->gaps[i].root && strcmp(f->gaps[i].reason, f->gaps[first].reason) == 0;
}

/* Makes a line with the reason of a group of gaps, and with a few of its facts in parentheses, each
 * once. */
static void doctor_report_put_facts(const doctor_findings *f, size_t first, char *line, size_t bytes)
{
    const char *shown[SHOWN_GAPS];
    int n = 0, more = 0;
    size_t used = (size_t)snprintf(line, bytes, "%s (", f->gaps[first].reason);
    for (size_t i = first; i < f->n_gaps; i++) {
        int before = 0;
        while (before < n && strcmp(shown[before], f->gaps[i].key) != 0) {
            before++;
        }
        if (!doctor_report_is_same_group(f, first, i) || before < n) {
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

static void doctor_report_put_rules(const doctor_findings *f, size_t first, FILE *out)
{
    char line[1024] = "";
    size_t used = 0;
    int n = 0;
    const doctor_rule *last = NULL;
    for (size_t i = first; i < f->n_gaps; i++) {
        if (!doctor_report_is_same_group(f, first, i) || f->gaps[i].rule == last) {
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
    doctor_report_put_wrapped("   ", line, out);
}

/* Prints the checks that could not be made, by reason, without the checks that root could make. */
static void doctor_report_put_gaps(const doctor_findings *f, FILE *out)
{
    int groups = 0;
    for (size_t first = 0; first < f->n_gaps; first++) {
        char line[1024];
        size_t before = 0;
        while (before < first && !doctor_report_is_same_group(f, first, before)) {
            before++;
        }
        if (f->gaps[first].root || before < first) {
            continue;
        }
        doctor_report_put_facts(f, first, line, sizeof(line));
        fprintf(out, "%s", groups++ ? "" : "\nNot checked, since facts are missing:\n");
        doctor_report_put_wrapped("", line, out);
        doctor_report_put_rules(f, first, out);
    }
}

/* Prints the rules that lack a fact which root can read, each once. */
static void doctor_report_put_root(const doctor_findings *f, FILE *out)
{
    const doctor_rule *last = NULL;
    char line[FIX_BYTES] = "";
    words w = {line, 0, sizeof(line)};
    for (size_t i = 0; i < f->n_gaps; i++) {
        if (f->gaps[i].root && f->gaps[i].rule != last) {
            doctor_report_add_words(&w, "%s%s",
                                    last ? "; " : "As root, this would also be checked: ", f->gaps[i].rule->title);
            last = f->gaps[i].rule;
        }
    }
    if (last) {
        fputc('\n', out);
        cli_words_put(out, line, 0, 2);
    }
}

/* Prints a line if there is no device. Returns true if devices were counted. */
static bool doctor_report_put_none(const doctor_snapshot *s, FILE *out)
{
    const doctor_fact *bus = doctor_find(s, "system.bus"), *devices = doctor_find(s, "gpus");
    char line[DOCTOR_VALUE_BYTES + 64];
    if (bus && bus->reason) {
        snprintf(line, sizeof(line), "no device was found: %s", bus->reason);
    } else if (!devices || !devices->value) {
        snprintf(line, sizeof(line), "no device was checked: the snapshot lacks the number of devices (gpus)");
    } else {
        snprintf(line, sizeof(line), "no device was found: the bus has none (lspci -d 10de: lists NVIDIA devices)");
    }
    fputc('\n', out);
    cli_words_put(out, line, 0, 0);
    return devices && devices->value;
}

static const char *doctor_report_plural_s(int n)
{
    return n == 1 ? "" : "s";
}

void doctor_print_text(const doctor_snapshot *s, const doctor_findings *f, FILE *out)
{
    int count[3] = {0, 0, 0}, n = doctor_gpus(s);
    for (int i = 0; i < f->n; i++) {
        doctor_report_put_finding(s, &f->list[i], out);
        count[f->list[i].rule->severity]++;
    }
    doctor_report_put_areas(s, f, out);
    doctor_report_put_gaps(f, out);
    doctor_report_put_root(f, out);
    if (n == 0 && !doctor_report_put_none(s, out) && f->n == 0) {
        return;
    }
    fprintf(out, "\n%d device%s: ", n, doctor_report_plural_s(n));
    if (f->n == 0) {
        fprintf(out, "nothing wrong%s\n", f->n_gaps ? " in what was checked" : "");
    } else {
        fprintf(out, "%d error%s, %d warning%s, %d note%s\n", count[DOCTOR_ERROR],
                doctor_report_plural_s(count[DOCTOR_ERROR]), count[DOCTOR_WARNING],
                doctor_report_plural_s(count[DOCTOR_WARNING]), count[DOCTOR_NOTE],
                doctor_report_plural_s(count[DOCTOR_NOTE]));
    }
}

/* ---- JSON ---- */

static void doctor_report_put_string(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

/* Writes the bus ids in the order of "devices". "": unknown. */
static void doctor_report_put_buses_json(const doctor_snapshot *s, const doctor_finding *f, hdi_json *j)
{
    hdi_json_key(j, "buses");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_subjects; i++) {
        const char *bus = doctor_report_bus_of(s, f->subjects[i].a);
        hdi_json_string(j, bus ? bus : "");
    }
    hdi_json_array_end(j);
}

/* Writes the result for each suspect, and the fact that excludes it. */
static void doctor_report_put_causes_json(const doctor_finding *f, hdi_json *j)
{
    static const char *const texts[] = {"excluded", "possible", "found"};
    hdi_json_key(j, "causes");
    hdi_json_array(j);
    for (doctor_cause cause = 0; cause < DOCTOR_CAUSES; cause++) {
        if (f->rule->suspects & DOCTOR_BIT(cause)) {
            hdi_json_object(j);
            doctor_report_put_string(j, "id", doctor_cause_id(cause));
            doctor_report_put_string(j, "state", texts[f->leaves[cause]]);
            if (f->leaves[cause] == DOCTOR_EXCLUDED && f->by[cause]) {
                doctor_report_put_string(j, "fact", f->by[cause]->key);
                doctor_report_put_string(j, "value", f->by[cause]->value);
            }
            hdi_json_object_end(j);
        }
    }
    hdi_json_array_end(j);
}

static void doctor_report_put_finding_json(const doctor_snapshot *s, const doctor_finding *f, hdi_json *j)
{
    char fix[FIX_BYTES];
    doctor_report_make_fix(s, f, fix);
    hdi_json_object(j);
    doctor_report_put_string(j, "id", f->rule->id);
    doctor_report_put_string(j, "severity", doctor_severity_text(f->rule->severity));
    doctor_report_put_string(j, "area", f->rule->area);
    doctor_report_put_string(j, "title", f->rule->title);
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
        doctor_report_put_buses_json(s, f, j);
    }
    hdi_json_key(j, "evidence");
    hdi_json_object(j);
    for (size_t i = 0; i < f->n_evidence; i++) {
        doctor_report_put_string(j, f->evidence[i]->key, f->evidence[i]->value);
    }
    hdi_json_object_end(j);
    doctor_report_put_string(j, "why", f->rule->why);
    if (f->rule->suspects) {
        doctor_report_put_causes_json(f, j);
    }
    doctor_report_put_string(j, "fix", fix);
    hdi_json_key(j, "fix_needs_root");
    hdi_json_bool(j, f->rule->fix_needs_root);
    hdi_json_object_end(j);
}

static void doctor_report_put_areas_json(const doctor_snapshot *s, const doctor_findings *f, hdi_json *j)
{
    hdi_json_key(j, "areas");
    hdi_json_object(j);
    for (int i = 0; i < AREAS; i++) {
        area a = doctor_report_area_of(f, areas[i].name);
        doctor_report_put_string(j, areas[i].name,
                                 doctor_report_has_finding(f, areas[i].name) ? "findings"
                                 : doctor_report_area_is_void(s, i) ? (a.open ? "not checked" : "nothing to check")
                                 : a.answered && a.partly           ? "nothing wrong, partly checked"
                                 : a.answered                       ? "nothing wrong"
                                 : a.open                           ? "not checked"
                                                                    : "nothing to check");
    }
    hdi_json_object_end(j);
}

/* Writes the rules that lack facts, once for each reason. */
static void doctor_report_put_gaps_json(const doctor_findings *f, hdi_json *j)
{
    hdi_json_key(j, "not_checked");
    hdi_json_array(j);
    for (size_t i = 0; i < f->n_gaps; i++) {
        const doctor_gap *g = &f->gaps[i];
        hdi_json_object(j);
        doctor_report_put_string(j, "id", g->rule->id);
        doctor_report_put_string(j, "area", g->rule->area);
        doctor_report_put_string(j, "fact", g->key);
        doctor_report_put_string(j, "reason", g->reason);
        hdi_json_key(j, "cases");
        hdi_json_integer(j, g->cases);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* Writes the rules that lack a fact which root can read. */
static void doctor_report_put_root_json(const doctor_findings *f, hdi_json *j)
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
        doctor_report_put_finding_json(s, &f->list[i], &j);
    }
    hdi_json_array_end(&j);
    doctor_report_put_areas_json(s, f, &j);
    hdi_json_key(&j, "missing");
    hdi_json_object(&j);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->list[i].value) {
            doctor_report_put_string(&j, s->list[i].key, s->list[i].reason);
        }
    }
    hdi_json_object_end(&j);
    doctor_report_put_gaps_json(f, &j);
    doctor_report_put_root_json(f, &j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
