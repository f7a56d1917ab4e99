/* start_parts.h - what the files behind `heddle bench start` share.
 *
 *    start.c          the conductor: has samples taken, in turns, and reports
 *    start_sample.c   one sample, in a process of its own: a driver is started once in a process
 *
 * Threads: each file has one. Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes.
 */
#ifndef BENCH_START_PARTS_H
#define BENCH_START_PARTS_H

#include <heddle.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"

typedef enum start_way {
    START_BARE,    /* a program that opens one device and runs one kernel, by plain driver calls */
    START_BARES,   /* as many of them at once as there are devices, each with its own */
    START_THREAD,  /* every device, and a kernel on each, by Heddle */
    START_PROCESS, /* the same with workers */
    START_RESTART, /* a device whose worker was killed comes back */
    START_SPARE,   /* the same with a spare worker */
    START_COPY,    /* the first copies between two devices of which nothing is known */
    START_WAYS
} start_way;

/* Durations in nanoseconds. */
typedef enum start_figure {
    START_OPEN,       /* hd_open; of a bare program: until the driver has started */
    START_CONTEXT,    /* of a bare program: from there to its first finished kernel */
    START_FIRST,      /* from the beginning, or the restart, to the first finished kernel (of every device) */
    START_CLOSE,      /* hd_close */
    START_COPY_FIRST, /* the first copy and its wait */
    START_COPY_LATER, /* median of those that follow at once */
    START_COPY_WORST, /* the slowest but the first, until the pair has long been tested */
    START_FIGURES
} start_figure;

/* What a sample writes to its output, as it is. A figure that it does not have is not a number. */
typedef struct start_result {
    double ns[START_FIGURES];
    bool ok; /* else the error has the reason */
    char error[PLAIN_ERROR];
} start_result;

extern const char *const start_ways[START_WAYS];

#endif
