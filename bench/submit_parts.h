/* submit_parts.h - shared by the files of `heddle bench submit`.
 *
 *    submit.c         the conductor: rows in rounds, both sides in turns; the goals, JSON
 *    submit_rows.c    one sample: threads that submit, and one that launches and waits beside them;
 *                     the travel time of a cache line between processors
 *    submit_blocked.c transfers beside others that wait for a kernel, and alone
 *
 * Threads: the conductor owns a submit_experiment; the threads of a sample read it, and each writes
 * its own fields.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef BENCH_SUBMIT_PARTS_H
#define BENCH_SUBMIT_PARTS_H

#include <heddle.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/report.h"
#include "cli/common/stats.h"

enum {
    SUBMIT_BURST = 256,
    SUBMIT_VARIANTS = 7, /* variants of the arguments */
    SUBMIT_COLD_LANES = 16,
    SUBMIT_LANES_MAX = 64,
    SUBMIT_THREADS_MAX = 16,
    SUBMIT_DEVICES_MAX = 64
};

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define SUBMIT_TIMEOUT_NS ((int64_t)120 * 1000000000)

typedef enum submit_api { SUBMIT_DRIVER, SUBMIT_HEDDLE, SUBMIT_APIS } submit_api;

typedef struct submit_row {
    const char *id, *part, *text;
    int threads; /* number of threads that submit bursts */
    /* thread i uses device i modulo the number of devices, and a single thread uses all; else all
     * threads use the first */
    bool all_devices;
    bool cold;    /* no data of a lane is in the caches when it gets a launch */
    bool written; /* the counters of the kernels were written from program memory, not filled */
    bool same;    /* every launch repeats the one before; else the arguments change */
    /* another thread on the first device launches and waits; the row measures its round trips */
    bool bystander;
} submit_row;

enum { SUBMIT_ROWS = 15 };
extern const submit_row submit_rows[SUBMIT_ROWS];

/* Results of one side in one sample. Calls: submits, or the bystander's round trips. */
typedef struct submit_sample {
    double launches_per_s; /* the launches of all threads that submit */
    stats_histogram calls;
} submit_sample;

/* The figures of one round. */
typedef struct submit_figure {
    double launches_per_s;
    stats_calls calls;
} submit_figure;

typedef struct submit_data {
    int rounds; /* 0: not measured */
    submit_figure figures[SUBMIT_APIS][SUBMIT_ROUNDS_MAX];
    stats_histogram calls[SUBMIT_APIS]; /* of all rounds */
} submit_data;

/* A small transfer, and the thread whose work waits for a kernel meanwhile: none, another one, or
 * the same one. */
typedef enum submit_transfer { SUBMIT_READ, SUBMIT_WRITE, SUBMIT_COPY, SUBMIT_FILL } submit_transfer;
typedef enum submit_beside { SUBMIT_ALONE, SUBMIT_OTHER, SUBMIT_OWN, SUBMIT_BESIDES } submit_beside;

typedef struct submit_blocked_row {
    const char *id;
    submit_transfer kind;
    const char *text;
} submit_blocked_row;

enum { SUBMIT_BLOCKED_ROWS = 4 };
extern const submit_blocked_row submit_blocked_rows[SUBMIT_BLOCKED_ROWS];

typedef struct submit_blocked_data {
    stats_calls calls[SUBMIT_BESIDES][SUBMIT_ROUNDS_MAX];
} submit_blocked_data;

typedef struct submit_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime;
    hd_runtime_info info;
    int n; /* devices */
    bool on_host;
    int rounds;
    uint64_t sample_ns;
    hd_device_info devices[SUBMIT_DEVICES_MAX];
    hd_kernel *kernel; /* y += a * x, used as a counter */
    plain_driver driver;
    plain_image image;
    hdcu_device ordinal[SUBMIT_DEVICES_MAX];
    hdcu_context context[SUBMIT_DEVICES_MAX]; /* NULL: not opened */
    hdcu_module module[SUBMIT_DEVICES_MAX];
    hdcu_function function[SUBMIT_DEVICES_MAX];
    submit_sample sample; /* the last one */
    submit_data rows[SUBMIT_ROWS];
    submit_blocked_data blocked[SUBMIT_BLOCKED_ROWS];
    int blocked_rounds; /* 0: not measured */
    /* travel time of a cache line between two processors; NaN: there is one processor */
    double one_way_ns;
    double one_way_least_ns, one_way_most_ns;
    int one_way_pairs;
    uint64_t launches; /* all launches, each counted by a kernel */
} submit_experiment;

/* ---- samples ---- */

/* Runs one side of a row, into x->sample. Every launch is waited for and counted. */
bool bench_submit_row_run(submit_experiment *x, const submit_row *row, submit_api api, char *error);

/* ---- transfers ---- */

/* Measures all transfer rows in one round. */
bool bench_submit_blocked_measure(submit_experiment *x, int round, char *error);
/* The largest ratio; NaN if none was measured. */
double bench_submit_blocked_worst(const submit_experiment *x);
void bench_submit_blocked_put(hdi_json *j, const submit_experiment *x);

/* ---- processors ---- */

/* Measures x->one_way_*. */
void bench_submit_cores_measure(submit_experiment *x);

#endif
