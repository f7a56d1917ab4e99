/* faults.h - `heddle bench faults`: what a lost device costs in placement process, and how fast it is back.
 *
 * The experiment: every device is kept busy with work whose results are checked exactly; then one device after the other
 * is made to fault: by a kernel that reads where nothing is, by killing its worker process, and by a kernel that never
 * ends. Measured are the time until the program notices, the time until the device works again, and what the other
 * devices did meanwhile.
 * Threads: faults_run is called on the program's first thread and makes the threads that it needs; when it returns, they
 * have ended. Locks: none that callers see.
 */
#ifndef BENCH_FAULTS_H
#define BENCH_FAULTS_H

#include <stdbool.h>
#include "bench/report.h"

typedef struct faults_options {
    int rounds; /* each has every kind of fault once; 0: by the number of devices */
    bool quick; /* 2 rounds */
    report_run run;
} faults_options;

/* Runs the experiment and prints it. 0: measured; 1: something could not be measured (one line on stderr says what).
 * Whether the goals are reached does not count. */
int faults_run(const faults_options *options);

/* What the experiment is, and how to read it: text for the help. */
extern const char faults_help[];

#endif
