/* report.c - progress, texts, goals and JSON that the benchmarks share (report.h).
 *
 * Threads: the conductor. Locks: none.
 * Always: a goal whose figure could not be measured is neither reached nor missed.
 */
#include "cli/common/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json_read.h"
#include "base/text.h"
#include "cli/common/command.h"
#include "cli/common/machine.h"
#include "cli/common/output.h"
#include "cli/common/plain.h"
#include "cli/common/table.h"

void cli_report_progress(const report_run *run, const char *stage, const char *item, double done)
{
    if (run->progress) {
        run->progress(run->context, stage, item, done);
    }
}

bool cli_report_check(hd_status status, const char *what, char *error)
{
    if (status == HD_OK) {
        return true;
    }
    const char *message = hd_message();
    bool named = strncmp(message, what, strlen(what)) == 0;
    snprintf(error, PLAIN_ERROR, "%s%s%.400s", named ? "" : what, named ? "" : ": ", message);
    return false;
}

/* ---- files ---- */

static bool cli_report_write_refused(const char *path, char *error)
{
    snprintf(error, PLAIN_ERROR, "%.400s cannot be written: %s", path, strerror(errno));
    return false;
}

bool cli_report_try_json(const report_run *run, char *error)
{
    return !run->json_file || cli_output_may(run->json_file) || cli_report_write_refused(run->json_file, error);
}

/* Gets the text that the printer prints; the caller frees it. False: out of memory. */
static bool cli_report_text_of(report_printer printer, const void *results, char **content, size_t *bytes)
{
    hdi_text text;
    FILE *file = hdi_text_open(&text);
    if (file) {
        printer(results, file);
    }
    return hdi_text_close(&text, content, bytes);
}

bool cli_report_write_file(const char *path, report_printer printer, const void *results, char *error)
{
    char *content = NULL;
    size_t bytes = 0;
    if (!cli_report_text_of(printer, results, &content, &bytes)) {
        snprintf(error, PLAIN_ERROR, "%.400s cannot be written: out of memory", path);
        return false;
    }
    bool written = cli_output_write(path, content, bytes) || cli_report_write_refused(path, error);
    free(content);
    return written;
}

static bool cli_report_end_output(FILE *output, char *error)
{
    bool ok = fflush(output) == 0 && !ferror(output);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "the results could not be written");
    }
    return ok;
}

bool cli_report_write(const report_run *run, report_printer table, report_printer json, const void *results,
                      char *error)
{
    (run->json_on_output ? json : table)(results, run->output);
    bool ok = cli_report_end_output(run->output, error);
    return (!run->json_file || cli_report_write_file(run->json_file, json, results, error)) && ok;
}

/* ---- benchmarks ---- */

static bool cli_report_print_record(const char *content, size_t bytes, FILE *out, char *error)
{
    hdi_json_tree record;
    if (!hdi_json_read(content, bytes, &record)) {
        snprintf(error, PLAIN_ERROR, "the record cannot be read: %s", record.error);
        return false;
    }
    cli_table_print(record.root, out);
    hdi_json_release(&record);
    return true;
}

/* Writes the record of a benchmark: JSON or its tables to the output, and JSON into the file. */
static bool cli_report_write_record(const report_benchmark *benchmark, const report_run *run, const void *experiment,
                                    char *error)
{
    char *content = NULL;
    size_t bytes = 0;
    if (!cli_report_text_of(benchmark->json, experiment, &content, &bytes)) {
        snprintf(error, PLAIN_ERROR, "the results could not be written: out of memory");
        return false;
    }
    bool ok = true;
    if (run->json_on_output) {
        fwrite(content, 1, bytes, run->output);
    } else {
        ok = cli_report_print_record(content, bytes, run->output, error);
    }
    ok = cli_report_end_output(run->output, error) && ok;
    ok = (!run->json_file || cli_output_write(run->json_file, content, bytes) ||
          cli_report_write_refused(run->json_file, error)) &&
         ok;
    free(content);
    return ok;
}

int cli_report_conduct(const report_benchmark *benchmark, void *experiment, const report_run *run)
{
    char error[PLAIN_ERROR] = "out of memory";
    report_record *record = experiment;
    bool ok = false;
    if (record) {
        *record = (report_record){.run = run, .started = cli_report_wall_clock()};
        ok = cli_report_try_json(run, error) && benchmark->measure(experiment, error);
        record->took_s = cli_report_wall_clock() - record->started;
        cli_report_progress(run, NULL, "", 1);
        ok = ok && cli_report_write_record(benchmark, run, experiment, error);
        benchmark->close(experiment);
        free(experiment);
    }
    if (!ok) {
        cli_complain(benchmark->command, "%s", error);
    }
    return ok ? 0 : 1;
}

bool cli_report_has_name(const char *list, const char *name, size_t length)
{
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t here = strcspn(at, ",");
        if (here == length && memcmp(at, name, length) == 0) {
            return true;
        }
        at += here;
    }
    return false;
}

bool cli_report_is_wanted(const char *only, const char *part)
{
    return !only || cli_report_has_name(only, part, strlen(part));
}

double cli_report_wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *cli_report_duration(double ns, char out[REPORT_TEXT])
{
    double value = ns < 1e3 ? ns : ns < 1e6 ? ns / 1e3 : ns < 1e9 ? ns / 1e6 : ns / 1e9;
    const char *unit = ns < 1e3 ? "ns" : ns < 1e6 ? "us" : ns < 1e9 ? "ms" : "s";
    snprintf(out, REPORT_TEXT, "%.*f %s", ns < 1e3 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
    return out;
}

/* ---- goals ---- */

static bool cli_report_goal_reached(const report_goal *g)
{
    return g->at_least ? g->value >= g->limit : g->value <= g->limit;
}

static void cli_report_value_text(const report_goal *g, double value, int digits, char out[REPORT_TEXT])
{
    /* True for counts. A ratio is no count, even if its limit is a whole number. */
    bool whole = !isnan(g->value) && g->limit == (double)(int64_t)g->limit && g->value == (double)(int64_t)g->value &&
                 !g->at_least;
    if (isnan(value)) { /* not measured */
        snprintf(out, REPORT_TEXT, "-");
    } else if (g->unit[0]) {
        cli_report_duration(value, out);
    } else {
        snprintf(out, REPORT_TEXT, "%.*f", whole ? 0 : digits, value);
    }
}

/* A line with the extremes of the rounds, which tell how far to trust the verdict. */
static void cli_report_print_rounds(const report_goal *g, bool apply, FILE *out)
{
    char least[REPORT_TEXT], most[REPORT_TEXT];
    if (g->rounds && !isnan(g->value)) {
        cli_report_value_text(g, g->min, 3, least);
        cli_report_value_text(g, g->max, 3, most);
        fprintf(out, "  %*s%s to %s in %d round%s\n", apply ? 13 : 0, "", least, most, g->rounds,
                g->rounds == 1 ? "" : "s");
    }
}

void cli_report_print_goals(const report_goal *goals, int count, bool apply, FILE *out)
{
    for (int i = 0; i < count; i++) {
        const report_goal *g = &goals[i];
        char value[REPORT_TEXT], limit[REPORT_TEXT];
        const char *of = g->of ? g->of : "", *before = i > 0 && goals[i - 1].of ? goals[i - 1].of : "";
        if (i == 0 || strcmp(of, before) != 0) {
            fprintf(out, "\n%s%s%s\n", apply ? "goals" : "figures that have goals on GPUs", of[0] ? ": " : "", of);
        }
        if (isnan(g->value) && !apply) {
            continue;
        }
        cli_report_value_text(g, g->value, 3, value);
        cli_report_value_text(g, g->limit, 2, limit);
        const char *verdict = isnan(g->value) ? "not measured" : cli_report_goal_reached(g) ? "reached" : "not reached";
        fprintf(out, apply ? "  %-12s %-58s %9s  (%s %s)\n" : "  %.0s%-58s %9s\n", verdict, g->text, value,
                g->at_least ? "at least" : "at most", limit);
        cli_report_print_rounds(g, apply, out);
    }
}

void cli_report_put_goals(hdi_json *j, const report_goal *goals, int count, bool apply)
{
    hdi_json_key(j, "goals");
    hdi_json_array(j);
    for (int i = 0; i < count; i++) {
        hdi_json_object(j);
        cli_report_put_string(j, "id", goals[i].id);
        cli_report_put_string(j, "text", goals[i].text);
        if (goals[i].of) {
            cli_report_put_string(j, "of", goals[i].of);
        }
        cli_report_put_string(j, "relation", goals[i].at_least ? ">=" : "<=");
        cli_report_put_number(j, "limit", goals[i].limit);
        cli_report_put_number(j, "value", goals[i].value);
        cli_report_put_string(j, "unit", goals[i].unit);
        if (goals[i].rounds) {
            cli_report_put_integer(j, "rounds", (uint64_t)goals[i].rounds);
            cli_report_put_number(j, "min", goals[i].min);
            cli_report_put_number(j, "max", goals[i].max);
        }
        if (!isnan(goals[i].value)) {
            cli_report_put_bool(j, "reached", cli_report_goal_reached(&goals[i]));
        }
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    cli_report_put_bool(j, "goals_apply", apply);
}

/* ---- JSON ---- */

void cli_report_put_string(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

void cli_report_put_integer(hdi_json *j, const char *key, uint64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, (int64_t)value);
}

void cli_report_put_number(hdi_json *j, const char *key, double value)
{
    hdi_json_key(j, key);
    hdi_json_number(j, value);
}

void cli_report_put_bool(hdi_json *j, const char *key, bool value)
{
    hdi_json_key(j, key);
    hdi_json_bool(j, value);
}

void cli_report_put_spread_begin(hdi_json *j, const char *key, stats_spread s)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    cli_report_put_number(j, "median", s.median);
    cli_report_put_number(j, "min", s.min);
    cli_report_put_number(j, "max", s.max);
}

void cli_report_put_spread(hdi_json *j, const char *key, stats_spread s)
{
    cli_report_put_spread_begin(j, key, s);
    hdi_json_object_end(j);
}

void cli_report_put_values(hdi_json *j, const char *key, const double *values, int n)
{
    cli_report_put_spread_begin(j, key, cli_stats_spread_of(values, n));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_number(j, values[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

void cli_report_put_calls(hdi_json *j, const char *key, stats_calls c)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    cli_report_put_integer(j, "calls", c.count);
    cli_report_put_number(j, "median_ns", c.median_ns);
    cli_report_put_number(j, "p99_ns", c.p99_ns);
    cli_report_put_number(j, "max_ns", c.max_ns);
    hdi_json_object_end(j);
}

void cli_report_begin(hdi_json *j, FILE *out, const char *benchmark, const report_record *record, hd_runtime *runtime)
{
    const report_run *run = record->run;
    char date[32];
    cli_machine_date_text(record->started, date);
    hdi_json_begin(j, out);
    hdi_json_object(j);
    cli_report_put_string(j, "benchmark", benchmark);
    cli_report_put_string(j, "heddle", hd_version());
    cli_report_put_string(j, "date", date);
    cli_report_put_number(j, "took_s", record->took_s);
    hdi_json_key(j, "command");
    hdi_json_array(j);
    for (int i = 0; i < run->command_count; i++) {
        hdi_json_string(j, run->command[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "machine");
    cli_machine_json(j);
    hdi_json_key(j, "runtime");
    cli_machine_runtime_json(j, runtime);
    hdi_json_key(j, "options");
    cli_machine_options_json(j, runtime);
}

void cli_report_end(hdi_json *j)
{
    hdi_json_object_end(j);
    hdi_json_end(j);
}

void cli_report_put_clock(hdi_json *j)
{
    cli_report_put_string(j, "clock", stats_the_clock.tsc ? "tsc" : "monotonic");
    cli_report_put_number(j, "clock_ns_per_tick", stats_the_clock.ns_per_tick);
    cli_report_put_number(j, "clock_empty_pair_ns", stats_the_clock.empty_ns);
}
