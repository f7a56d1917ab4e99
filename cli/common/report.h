/* report.h - the parts of benchmarks that do not measure: their order of steps, progress, durations
 * as text, goals, and the JSON record.
 *
 * Threads: the thread that runs the benchmark (its conductor). Locks: none.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef CLI_COMMON_REPORT_H
#define CLI_COMMON_REPORT_H

#include <heddle.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/json.h"
#include "cli/common/stats.h"

/* How a benchmark is run, apart from its own options. */
typedef struct report_run {
    bool json_on_output;   /* write JSON to `output` instead of the table */
    const char *json_file; /* also write JSON into this file; NULL: no file */
    FILE *output;
    char *const *command; /* the command line, for the record */
    int command_count;
    /* Called before each step; may be NULL. `stage` is a phrase that seldom changes, `item` is the
     * current measurement, and `done` goes from 0 to 1. A NULL stage means that the measurements
     * are over; the output comes next. */
    void (*progress)(void *context, const char *stage, const char *item, double done);
    void *context;
} report_run;

/* The first members of every benchmark's experiment. */
typedef struct report_record {
    const report_run *run;
    double started, took_s; /* started: in seconds since 1970; took_s: the whole duration */
} report_record;

void cli_report_progress(const report_run *run, const char *stage, const char *item, double done);

/* Returns true for HD_OK. Otherwise returns false, and puts hd_message into `error`. Puts `what`
 * and ": " in front of the message, unless the message already begins with this name. */
bool cli_report_check(hd_status status, const char *what, char *error);

/* True if the JSON file can be written. Call it before the run. Does not change the file's
 * content. */
bool cli_report_try_json(const report_run *run, char *error);

typedef void (*report_printer)(const void *results, FILE *out);
/* Writes all results into a file. False: the file is incomplete. */
bool cli_report_write_file(const char *path, report_printer printer, const void *results, char *error);
/* Writes the results with the printers that the options select. */
bool cli_report_write(const report_run *run, report_printer table, report_printer json, const void *results,
                      char *error);

/* The functions with which a benchmark runs its experiment. The experiment is a zeroed structure
 * that begins with a report_record. */
typedef struct report_benchmark {
    const char *command; /* "bench lanes" */
    bool (*measure)(void *experiment, char *error);
    void (*close)(void *experiment); /* also after a partial or failed measurement */
    report_printer json;
} report_benchmark;

/* Runs a whole benchmark: measures, writes the results, and closes and frees the experiment (NULL:
 * out of memory). The results are JSON, and the tables are made from this JSON (table.h). Prints a
 * failure as one line on stderr. Returns the exit status. */
int cli_report_conduct(const report_benchmark *benchmark, void *experiment, const report_run *run);

/* True if the comma-separated list contains `name`. */
bool cli_report_has_name(const char *list, const char *name, size_t length);

/* True if --only selects this part. NULL selects all. */
bool cli_report_is_wanted(const char *only, const char *part);

/* Seconds since 1970. */
double cli_report_wall_clock(void);

/* "31 ns", "2.90 us", "1.93 ms" */
enum { REPORT_TEXT = 32 };
const char *cli_report_duration(double ns, char out[REPORT_TEXT]);

/* A figure and its goal. */
typedef struct report_goal {
    const char *id, *text;
    double limit, value; /* NaN: the value could not be measured here */
    /* true: the value must not be below the limit; false: the value must not be above it */
    bool at_least;
    const char *unit; /* "ns", or "" for a share or a number */
    /* the subject of the goals, such as "placement thread"; NULL: none */
    const char *of;
    /* if the value is the median of several rounds: their number and their extremes; 0: unknown */
    int rounds;
    double min, max;
} report_goal;

/* For each subject, prints "goals" with the subject, then a line for each goal. On host devices
 * goals do not apply, and the function prints only the values. */
void cli_report_print_goals(const report_goal *goals, int count, bool apply, FILE *out);

/* Writes the key "goals": an array of all goals, and whether they apply to this machine. */
void cli_report_put_goals(hdi_json *j, const report_goal *goals, int count, bool apply);

/* Writes a key and its value. */
void cli_report_put_string(hdi_json *j, const char *key, const char *value);
void cli_report_put_integer(hdi_json *j, const char *key, uint64_t value);
void cli_report_put_number(hdi_json *j, const char *key, double value);
void cli_report_put_bool(hdi_json *j, const char *key, bool value);
void cli_report_put_calls(hdi_json *j, const char *key, stats_calls c);
void cli_report_put_spread(hdi_json *j, const char *key, stats_spread s);
/* the object stays open */
void cli_report_put_spread_begin(hdi_json *j, const char *key, stats_spread s);
void cli_report_put_values(hdi_json *j, const char *key, const double *values,
                           int n); /* values of the rounds, and their spread */

/* Starts a record and writes the keys common to all: benchmark, version, date, command line,
 * machine, runtime, options. */
void cli_report_begin(hdi_json *j, FILE *out, const char *benchmark, const report_record *record, hd_runtime *runtime);
void cli_report_end(hdi_json *j);

/* Writes the keys of the clock. */
void cli_report_put_clock(hdi_json *j);

#endif
