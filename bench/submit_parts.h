/* submit_parts.h - what the files behind `heddle bench submit` share.
 *
 *    submit.c         the conductor: rows in rounds, both sides in turns; the table, the goals, JSON
 *    submit_rows.c    one sample: threads that submit, and one beside them that launches and waits; what a cache line
 *                     needs from one processor to another
 *
 * Threads: the conductor owns a submit_experiment; the threads of a sample read it, and each writes what is its own.
 * Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes.
 */
#ifndef BENCH_SUBMIT_PARTS_H
#define BENCH_SUBMIT_PARTS_H

#include <heddle.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"

enum {
    SUBMIT_BURST = 256,
    SUBMIT_VARIANTS = 7, /* of the arguments */
    SUBMIT_COLD_LANES = 16,
    SUBMIT_LANES_MAX = 64,
    SUBMIT_THREADS_MAX = 16,
    SUBMIT_DEVICES_MAX = 64
};

/* No wait of the benchmark is longer: what takes this long hangs. */
#define SUBMIT_TIMEOUT_NS ((int64_t)120 * 1000000000)

typedef enum submit_api { SUBMIT_DRIVER, SUBMIT_HEDDLE, SUBMIT_APIS } submit_api;

typedef struct submit_row {
    const char *id, *part, *text;
    int threads;      /* that submit bursts */
    bool all_devices; /* thread i on device i modulo their number, one thread on all of them; else all on the first */
    bool cold;        /* nothing of a lane is in the caches when it gets a launch */
    bool written;     /* what kernels count in was written from the program's memory, not filled */
    bool same;        /* every launch is that before it again; else their arguments change */
    bool bystander;   /* one more thread on the first device launches and waits; its round trips are what is measured */
} submit_row;

enum { SUBMIT_ROWS = 15 };
extern const submit_row submit_rows[SUBMIT_ROWS];

/* What one side did in one sample. Calls: submits, or the bystander's round trips. */
typedef struct submit_sample {
    double launches_per_s; /* of all threads that submit */
    stats_histogram calls;
} submit_sample;

/* Of one round. */
typedef struct submit_figure {
    double launches_per_s;
    stats_calls calls;
} submit_figure;

typedef struct submit_data {
    int rounds; /* 0: not measured */
    submit_figure figures[SUBMIT_APIS][SUBMIT_ROUNDS_MAX];
    stats_histogram calls[SUBMIT_APIS]; /* of all rounds */
} submit_data;

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
    hd_kernel *kernel; /* y += a * x, of which a count is made */
    plain_driver driver;
    plain_image image;
    hdcu_device ordinal[SUBMIT_DEVICES_MAX];
    hdcu_context context[SUBMIT_DEVICES_MAX]; /* NULL: not opened */
    hdcu_module module[SUBMIT_DEVICES_MAX];
    hdcu_function function[SUBMIT_DEVICES_MAX];
    submit_sample sample; /* the last one */
    submit_data rows[SUBMIT_ROWS];
    double one_way_ns; /* of a cache line from one processor to another; not a number: there is one processor */
    double one_way_least_ns, one_way_most_ns;
    int one_way_pairs;
    uint64_t launches; /* all, and every one was counted by a kernel */
} submit_experiment;

/* ---- samples ---- */

/* One side of a row, into x->sample; every launch is waited for and counted. */
bool submit_row_run(submit_experiment *x, const submit_row *row, submit_api api, char *error);

/* ---- processors ---- */

/* Measures x->one_way_*. */
void submit_cores_measure(submit_experiment *x);

#endif
