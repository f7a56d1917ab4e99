/* copy_parts.h - shared by the files of `heddle bench copy`.
 *
 *    copy.c         the conductor: opens devices, runs the parts
 *    copy_sides.c   one operation of either side, and the loop that compares the two
 *    copy_one.c     parts of one device: pageable and pinned memory, copies on the device, rows,
 *                   small transfers
 *    copy_pairs.c   parts of two devices: peers, staged copies
 *    copy_submit.c  the cost of a submit while transfers keep the copying threads busy
 *    copy_report.c  the goals, JSON
 *
 * Threads: the conductor owns the copy_experiment; the threads of copy_submit.c use their own
 * structures.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef BENCH_COPY_PARTS_H
#define BENCH_COPY_PARTS_H

#include <heddle.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"
#include "driver/driver.h"

enum { COPY_ROWS_MAX = 64, COPY_NOTE = 160, COPY_DEVICES = 2 };

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define COPY_TIMEOUT_NS ((int64_t)120 * 1000000000)

#define COPY_KIB ((size_t)1 << 10)
#define COPY_MIB ((size_t)1 << 20)

typedef struct copy_experiment copy_experiment;

/* ---- results ---- */

typedef enum copy_kind { COPY_SPEED, COPY_TIME } copy_kind;

/* An operation of both sides. Times are of one repetition. */
typedef struct copy_row {
    const char *part;
    char id[48], name[80], note[COPY_NOTE]; /* note: why it was not measured */
    /* large amounts with several in flight, or one at a time with its wait */
    copy_kind kind;
    size_t bytes; /* moved by one repetition */
    int rounds;   /* 0: not measured */
    double heddle_ns[COPY_ROUNDS_MAX], driver_ns[COPY_ROUNDS_MAX];
    /* In rows of both directions: the speed divided by that of one direction in the same round;
     * else 0. */
    double heddle_gain[COPY_ROUNDS_MAX], driver_gain[COPY_ROUNDS_MAX];
} copy_row;

/* Heddle's speed divided by that of the driver, or for COPY_TIME the times, over the rounds. */
stats_spread bench_copy_ratio(const copy_row *row);

typedef struct copy_submits {
    bool measured;
    stats_histogram quiet, busy;
    /* speed of the transfers beside the submits; staged 0: there was one device */
    double staged_gbs, pageable_gbs;
} copy_submits;

/* ---- sides ---- */

typedef struct copy_plain {
    hdcu_device ordinal;
    hdcu_context context; /* the device's primary context, retained */
    hdcu_stream stream;
} copy_plain;

typedef enum copy_op {
    COPY_WRITE, /* program memory to a device */
    COPY_READ,
    COPY_IN, /* pinned memory to a device */
    COPY_OUT,
    COPY_ON,  /* on a device */
    COPY_PEER /* from device to device */
} copy_op;

/* The same work on both sides. */
typedef struct copy_work {
    copy_experiment *x;
    copy_op op;
    size_t bytes;
    /* not 0: IN and ON gather rows that begin `pitch` bytes apart */
    size_t row, pitch;
    void *memory;                      /* memory of the program, for WRITE and READ */
    hd_buffer *to, *from;              /* for Heddle */
    hdcu_deviceptr dst, src;           /* for the driver; pinned memory has a device address, too */
    const copy_plain *at;              /* its stream runs the work */
    const copy_plain *dst_at, *src_at; /* PEER */
    hd_ticket ticket;
} copy_work;

/* Begins the work, or waits until all of it is done. */
bool bench_copy_begin_heddle(copy_work *w, char *error);
bool bench_copy_end_heddle(copy_work *w, char *error);
bool bench_copy_begin_driver(copy_work *w, char *error);
bool bench_copy_end_driver(copy_work *w, char *error);

/* Measures a row in rounds, in changing order of the sides. */
bool bench_copy_compare(copy_experiment *x, copy_row *row, copy_work *work, char *error);

/* Measures both directions at once in the same way. Each round also measures the first direction
 * alone. */
bool bench_copy_compare_both(copy_experiment *x, copy_row *row, copy_work work[2], char *error);

/* ---- verification ---- */

/* Fills memory with a sequence of words made from `seed`. */
void bench_copy_pattern(void *memory, size_t bytes, uint32_t seed);

/* Counts the bytes as verified; false if they differ. */
bool bench_copy_verify(copy_experiment *x, const void *memory, size_t bytes, uint32_t seed, const char *what,
                       char *error);

/* Like bench_copy_verify, for gathered rows. */
bool bench_copy_verify_rows(copy_experiment *x, const void *memory, const copy_work *w, uint32_t seed, const char *what,
                            char *error);

/* Like bench_copy_verify, for a Heddle buffer and for device memory of the driver, through the
 * memory at `x->to`. */
bool bench_copy_verify_buffer(copy_experiment *x, hd_buffer *buffer, size_t bytes, uint32_t seed, const char *what,
                              char *error);
bool bench_copy_verify_plain(copy_experiment *x, hdcu_deviceptr at, size_t bytes, uint32_t seed, const char *what,
                             char *error);

/* ---- the run ---- */

struct copy_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime; /* with the environment's options */
    hd_runtime_info info;
    hd_device_info devices[COPY_DEVICES];
    int n; /* devices in use: 1 or 2 */
    bool on_host;
    const hdi_driver *driver; /* shared with Heddle's engines */
    copy_plain plain[COPY_DEVICES];
    void *from, *to; /* memory of the program, touched before: `most` bytes each */
    size_t large, most;
    int rounds;
    /* budget_s: the whole time; slice_ns: the time of one side in one round */
    double budget_s, slice_ns;
    copy_row rows[COPY_ROWS_MAX];
    int n_rows;
    copy_submits submits;
    uint64_t verified; /* bytes */
};

/* A fresh row. The size is appended to its name, and to its id with an underscore in place of
 * the blank. */
copy_row *bench_copy_row_add(copy_experiment *x, const char *part, copy_kind kind, size_t bytes, const char *id,
                             const char *name);

/* "256 MiB", "4 B" */
const char *bench_copy_size_text(size_t bytes, char out[REPORT_TEXT]);

/* The parts. */
bool bench_copy_run_pageable(copy_experiment *x, char *error);
bool bench_copy_run_pinned(copy_experiment *x, char *error);
bool bench_copy_run_device(copy_experiment *x, char *error);
bool bench_copy_run_box(copy_experiment *x, char *error);
bool bench_copy_run_small(copy_experiment *x, char *error);
bool bench_copy_run_staged(copy_experiment *x, char *error);
bool bench_copy_run_peer(copy_experiment *x, char *error);
bool bench_copy_run_submit(copy_experiment *x, char *error);

/* Both take a const copy_experiment. */
void bench_copy_print_json(const void *experiment, FILE *out);

#endif
