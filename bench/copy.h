/* copy.h - `heddle bench copy`: Heddle's transfers against the driver's own calls, in one run.
 *
 * The experiment: memory of the program to a device and back, pinned memory, copies on a device, from device to device with peer
 * access and without, in one direction and in both, small transfers with their wait; each beside the driver's call for the same, in
 * turns. And what a submit costs while the threads that copy are busy.
 * Threads: copy_run is called on the program's first thread and makes the threads that it needs; when it returns, they
 * have ended. Locks: none that callers see.
 */
#ifndef BENCH_COPY_H
#define BENCH_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include "bench/report.h"

enum { COPY_ROUNDS_MAX = 50 };

typedef struct copy_options {
    double seconds;   /* measuring time in all; 0: by the kind of device */
    int rounds;       /* 0: by the kind of device */
    bool quick;       /* fewer rounds, a quarter of the time */
    const char *only; /* names of parts, separated by commas; NULL: all */
    report_run run;
} copy_options;

/* Runs the experiment and prints it. 0: measured and verified; 1: something failed, or bytes were wrong (one line on stderr says what).
 * Whether the goals are reached does not count. */
int copy_run(const copy_options *options);

/* Whether the benchmark has a part of this name. */
bool copy_has_part(const char *name, size_t length);

/* What the experiment is, and how to read it: text for the help. */
extern const char copy_help[];

#endif
