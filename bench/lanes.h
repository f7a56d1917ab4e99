/* lanes.h - `heddle bench lanes`: one program drives every GPU, compared with plain driver calls from threads and
 * processes.
 *
 * The experiment: the product of a 320 x 320 and a 320 x 640 matrix of floats on every device at once, checked against
 * a reference in double precision on random data. Every way to drive the devices is one row; all rows are measured in
 * one run, interleaved in rounds, with the same discipline (batches of launches, at most two in flight). Heddle is
 * measured in placement process and in placement thread, one after the other, each beside the same rivals.
 * Threads: lanes_run is called on the program's first thread and makes the threads and worker processes that it needs;
 * when it returns, they have ended. Locks: none that callers see.
 */
#ifndef BENCH_LANES_H
#define BENCH_LANES_H

#include <stdbool.h>
#include "bench/report.h"

typedef struct lanes_options {
    int devices;    /* the first so many; 0: all */
    double seconds; /* measuring time of all rows together; 0: by the kind of device */
    int rounds;     /* 0: by the kind of device */
    bool quick;     /* fewer rounds, a quarter of the time */
    report_run run;
} lanes_options;

/* Runs the experiment and prints it. 0: measured and verified; 1: something failed or a result was wrong (one line on
 * stderr says what). Whether the goals are reached does not count. */
int lanes_run(const lanes_options *options);

/* What the experiment is, and how to read it: text for the help. */
extern const char lanes_help[];

/* A worker process's side: its command line is "heddle bench lanes", this word, and `arguments`. */
#define LANES_WORKER "--worker"
int lanes_worker(int count, char *const *arguments);

#endif
