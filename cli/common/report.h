/* report.h - what every benchmark does besides measuring: its course, progress, durations as text, goals, the record as JSON.
 *
 * Threads: the conductor's of a benchmark. Locks: none. Nothing here measures.
 * Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes.
 */
#ifndef CLI_COMMON_REPORT_H
#define CLI_COMMON_REPORT_H

#include <heddle.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/json.h"
#include "cli/common/stats.h"

/* What a benchmark is run with, apart from its own options. */
typedef struct report_run {
    bool json_on_output;   /* JSON to `output` instead of the table */
    const char *json_file; /* JSON into this file as well; NULL: no file */
    FILE *output;
    char *const *command; /* the command line, for the record */
    int command_count;
    /* Called before each step. `stage` is in words and changes seldom, `item` is what is measured now, `done` goes from
     * 0 to 1; stage NULL: nothing more comes, the output follows. May be NULL. */
    void (*progress)(void *context, const char *stage, const char *item, double done);
    void *context;
} report_run;

/* What every record of an experiment begins with. */
typedef struct report_record {
    const report_run *run;
    double started, took_s; /* seconds since 1970, and the whole duration */
} report_record;

void report_progress(const report_run *run, const char *stage, const char *item, double done);

/* True for HD_OK. Else false, with hd_message in `error`, behind "WHAT: " where it does not begin with that itself. */
bool report_check(hd_status status, const char *what, char *error);

/* Whether the file for JSON can be written, for use before the run. Leaves the file's content alone. */
bool report_try_json(const report_run *run, char *error);

typedef void (*report_printer)(const void *results, FILE *out);
/* All of the results into a file; false where not all of them are there. */
bool report_write_file(const char *path, report_printer printer, const void *results, char *error);
/* Writes the results, as the options select, with the benchmark's own printers. */
bool report_write(const report_run *run, report_printer table, report_printer json, const void *results, char *error);

/* What a benchmark does with its experiment, a zeroed structure that begins with a report_record. */
typedef struct report_benchmark {
    const char *command; /* "bench lanes" */
    bool (*measure)(void *experiment, char *error);
    void (*close)(void *experiment); /* also what was measured in part, or not at all */
    report_printer table, json;
} report_benchmark;

/* Measures, writes the results, closes, and frees the experiment (NULL: there was no memory for it). What failed is one line on stderr.
 * The exit status. */
int report_conduct(const report_benchmark *benchmark, void *experiment, const report_run *run);

/* Whether `name` is one of the names in a list, which are separated by commas. */
bool report_has_name(const char *list, const char *name, size_t length);

/* Whether --only leaves this part in; NULL leaves all of them in. */
bool report_is_wanted(const char *only, const char *part);

/* Seconds since 1970. */
double report_wall_clock(void);

/* "31 ns", "2.90 us", "1.93 ms" */
enum { REPORT_TEXT = 32 };
const char *report_duration(double ns, char out[REPORT_TEXT]);

/* A figure and what it should be. */
typedef struct report_goal {
    const char *id, *text;
    double limit, value; /* a value that is not a number: it could not be measured here */
    bool at_least;       /* else at most */
    const char *unit;    /* "ns", or "" for a share or a number */
} report_goal;

/* "goals" with their subject (`of`: "", or for example ", placement thread"), a line each. Where they do not apply, on
 * host devices, the values alone. */
void report_print_goals(const report_goal *goals, int count, const char *of, bool apply, FILE *out);

/* The key "goals" with an array of all, and whether they are meant for this machine. */
void report_put_goals(hdi_json *j, const report_goal *goals, int count, bool apply);

/* A key and its value. */
void report_put_string(hdi_json *j, const char *key, const char *value);
void report_put_integer(hdi_json *j, const char *key, uint64_t value);
void report_put_number(hdi_json *j, const char *key, double value);
void report_put_bool(hdi_json *j, const char *key, bool value);
void report_put_calls(hdi_json *j, const char *key, stats_calls c);
void report_put_spread(hdi_json *j, const char *key, stats_spread s);
void report_put_spread_begin(hdi_json *j, const char *key, stats_spread s); /* an object that is left open */
void report_put_values(hdi_json *j, const char *key, const double *values,
                       int n); /* one of each round, with their spread */

/* A record from its first byte, with the keys that every one has: benchmark, version, date, command line, machine, runtime, options. */
void report_begin(hdi_json *j, FILE *out, const char *benchmark, const report_record *record, hd_runtime *runtime);
void report_end(hdi_json *j);

/* The keys of the clock. */
void report_put_clock(hdi_json *j);

#endif
