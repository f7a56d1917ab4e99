/* copy_parts.h - what the files behind `heddle bench copy` share.
 *
 *    copy.c         the conductor: opens devices, goes through the parts
 *    copy_sides.c   one operation of either side, and the loop that compares the two
 *    copy_one.c     parts of one device: pageable and pinned memory, copies on the device, rows, small transfers
 *    copy_pairs.c   parts of two devices: peers, staged copies
 *    copy_submit.c  what a submit costs while transfers keep the copying threads busy
 *    copy_report.c  the table, the goals, JSON
 *
 * Threads: the conductor owns the copy_experiment; the threads of copy_submit.c have their own structures.
 * Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes.
 */
#ifndef BENCH_COPY_PARTS_H
#define BENCH_COPY_PARTS_H

#include <heddle.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"
#include "driver/driver.h"

enum { COPY_ROWS_MAX = 64, COPY_NOTE = 160, COPY_DEVICES = 2 };

/* No wait of the benchmark is longer: what takes this long hangs. */
#define COPY_TIMEOUT_NS ((int64_t)120 * 1000000000)

#define COPY_KIB ((size_t)1 << 10)
#define COPY_MIB ((size_t)1 << 20)

typedef struct copy_experiment copy_experiment;

/* ---- results ---- */

typedef enum copy_kind { COPY_SPEED, COPY_TIME } copy_kind;

/* One thing that both sides do. Times are of one repetition. */
typedef struct copy_row {
    const char *part;
    char id[48], name[80], note[COPY_NOTE]; /* note: why it was not measured */
    copy_kind kind; /* what is looked at: large amounts, several in flight; or one at a time, with its wait */
    size_t bytes;   /* that one repetition moves */
    int rounds;     /* 0: not measured */
    double heddle_ns[COPY_ROUNDS_MAX], driver_ns[COPY_ROUNDS_MAX];
    /* Rows of both directions: speed over that of one direction in the same round; else 0. */
    double heddle_gain[COPY_ROUNDS_MAX], driver_gain[COPY_ROUNDS_MAX];
} copy_row;

/* Heddle's speed over the driver's, or for COPY_TIME its time over the driver's; over the rounds. */
stats_spread copy_ratio(const copy_row *row);

typedef struct copy_submits {
    bool measured;
    stats_histogram quiet, busy;
    double staged_gbs, pageable_gbs; /* what the transfers beside it moved; staged 0: there was one device */
} copy_submits;

/* ---- sides ---- */

typedef struct copy_plain {
    hdcu_device ordinal;
    hdcu_context context; /* the device's primary one, retained */
    hdcu_stream stream;
} copy_plain;

typedef enum copy_op {
    COPY_WRITE, /* the program's memory to a device */
    COPY_READ,
    COPY_IN, /* pinned memory to a device */
    COPY_OUT,
    COPY_ON,  /* on a device */
    COPY_PEER /* from device to device */
} copy_op;

/* The same work for both sides. */
typedef struct copy_work {
    copy_experiment *x;
    copy_op op;
    size_t bytes;
    size_t row, pitch;                 /* not 0: IN and ON gather rows that begin `pitch` bytes apart */
    void *memory;                      /* the program's, for WRITE and READ */
    hd_buffer *to, *from;              /* Heddle's */
    hdcu_deviceptr dst, src;           /* the driver's; pinned memory by its address here */
    const copy_plain *at;              /* whose stream does it */
    const copy_plain *dst_at, *src_at; /* PEER */
    hd_ticket ticket;
} copy_work;

/* Begins the work, and waits until everything that was begun is done. */
bool copy_begin_heddle(copy_work *w, char *error);
bool copy_end_heddle(copy_work *w, char *error);
bool copy_begin_driver(copy_work *w, char *error);
bool copy_end_driver(copy_work *w, char *error);

/* Fills a row in, in rounds, with the order of the sides changing. */
bool copy_compare(copy_experiment *x, copy_row *row, copy_work *work, char *error);

/* The same for both directions at once, each round beside one direction alone (the first). */
bool copy_compare_both(copy_experiment *x, copy_row *row, copy_work work[2], char *error);

/* ---- verification ---- */

/* Words of a sequence that `seed` makes. */
void copy_pattern(void *memory, size_t bytes, uint32_t seed);

/* Counts the bytes as verified; false where they are others. */
bool copy_verify(copy_experiment *x, const void *memory, size_t bytes, uint32_t seed, const char *what, char *error);

/* The same for rows that were gathered. */
bool copy_verify_rows(copy_experiment *x, const void *memory, const copy_work *w, uint32_t seed, const char *what,
                      char *error);

/* The same of a Heddle buffer and of the driver's device memory, through the memory `x->to`. */
bool copy_verify_buffer(copy_experiment *x, hd_buffer *buffer, size_t bytes, uint32_t seed, const char *what,
                        char *error);
bool copy_verify_plain(copy_experiment *x, hdcu_deviceptr at, size_t bytes, uint32_t seed, const char *what,
                       char *error);

/* ---- the run ---- */

struct copy_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime; /* with the environment's settings */
    hd_runtime_info info;
    hd_device_info devices[COPY_DEVICES];
    int n; /* devices that are used: 1 or 2 */
    bool on_host;
    const hdi_driver *driver; /* the same one that Heddle's engines use */
    copy_plain plain[COPY_DEVICES];
    void *from, *to; /* the program's memory, touched before: `most` bytes each */
    size_t large, most;
    int rounds;
    double budget_s, slice_ns; /* of one side in one round */
    copy_row rows[COPY_ROWS_MAX];
    int n_rows;
    copy_submits submits;
    uint64_t verified; /* bytes */
};

/* A fresh row; the format makes its id, with blanks in place of which it has underscores, and its name. */
copy_row *copy_row_add(copy_experiment *x, const char *part, copy_kind kind, size_t bytes, const char *id,
                       const char *name);

/* "256 MiB", "4 B" */
const char *copy_size_text(size_t bytes, char out[REPORT_TEXT]);

/* The parts of each file. */
bool copy_run_pageable(copy_experiment *x, char *error);
bool copy_run_pinned(copy_experiment *x, char *error);
bool copy_run_device(copy_experiment *x, char *error);
bool copy_run_box(copy_experiment *x, char *error);
bool copy_run_small(copy_experiment *x, char *error);
bool copy_run_staged(copy_experiment *x, char *error);
bool copy_run_peer(copy_experiment *x, char *error);
bool copy_run_submit(copy_experiment *x, char *error);

/* Both take a const copy_experiment. */
void copy_print_table(const void *experiment, FILE *out);
void copy_print_json(const void *experiment, FILE *out);

#endif
