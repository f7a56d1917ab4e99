/* alloc.h - `heddle bench alloc`: Heddle's memory against the driver's, in one run.
 *
 * The experiment: recorded sequences of allocations and frees (random ones, holes, many live blocks, programs recorded
 * elsewhere), by one thread and by up to sixteen, on Heddle, on cuMemAllocAsync/cuMemFreeAsync and on
 * cuMemAlloc/cuMemFree of the same driver, in turns; and what allocating costs the work that runs beside it.
 * Threads: alloc_run is called on the program's first thread and makes the threads that it needs; when it returns, they
 * have ended. Locks: none that callers see.
 */
#ifndef BENCH_ALLOC_H
#define BENCH_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include "bench/report.h"

enum { ALLOC_ROUNDS_MAX = 20, ALLOC_REPLAYS_MAX = 32 };

typedef struct alloc_options {
    int device;                             /* -1: the first one that the environment allows */
    int rounds;                             /* 0: by the kind of device */
    bool quick;                             /* fewer rounds and cases, little time for each */
    const char *only;                       /* names of parts, separated by commas; NULL: all */
    const char *replays[ALLOC_REPLAYS_MAX]; /* recorded programs to replay; none: those that come with Heddle */
    int n_replays;
    report_run run;
} alloc_options;

/* Runs the experiment and prints it. 0: measured and verified; 1: something failed, a block was wrong, or a limit was
 * exceeded (one line on stderr says what). Whether the goals are reached does not count. */
int alloc_run(const alloc_options *options);

/* Whether the benchmark has a part of this name. */
bool alloc_has_part(const char *name, size_t length);

/* What the experiment is, and how to read it: text for the help. */
extern const char alloc_help[];

#endif
