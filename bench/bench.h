/* bench.h - the benchmarks of `heddle bench`: the experiments and their options.
 *
 * Threads: each benchmark is called on the program's first thread. It makes its own threads and
 * worker processes, which have ended when it returns. Locks: none that callers see.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include "cli/common/report.h"

enum {
    LANES_ROUNDS_MAX = 100,
    FAULTS_ROUNDS_MAX = 100,
    ALLOC_ROUNDS_MAX = 20,
    ALLOC_REPLAYS_MAX = 32,
    COPY_ROUNDS_MAX = 50,
    TENSOR_ROUNDS_MAX = 20,
    START_ROUNDS_MAX = 50,
    SUBMIT_ROUNDS_MAX = 50,
    CLAIM_ROUNDS_MAX = 50,
    TRACE_ROUNDS_MAX = 50,
    MPI_ROUNDS_MAX = 50
};

/* Each benchmark reads the options that it supports. */
typedef struct bench_options {
    int devices;    /* use the first N; 0: all */
    int device;     /* use only this one; -1: the first that the environment allows */
    double seconds; /* total measuring time; 0: depends on the kind of device */
    int rounds;     /* 0: depends on the kind and number of devices */
    bool quick;     /* fewer rounds and cases, and less time for each */
    /* `tensor`: measures only every kernel that can move a layout, in every order of tiles */
    bool variants;
    const char *only; /* names of parts, separated by commas; NULL: all */
    /* recorded programs for `alloc`; none: those that come with Heddle */
    const char *replays[ALLOC_REPLAYS_MAX];
    int n_replays;
    /* `mpi`: the compiler and the launcher, each with options; NULL: those of the system */
    const char *mpicc, *mpiexec;
    int ranks; /* `mpi`; 0: the default */
    report_run run;
} bench_options;

/* Each runs its experiment and prints it. Returns:
 *   - 0: measured and verified, whether or not the goals are reached
 *   - 1: something failed, or a result was wrong; one line on stderr gives the reason
 *
 * The help prints the texts, which explain the experiment and how to read its results. The parts
 * are the names that `only` accepts, separated by commas. */

/* One program drives every GPU, compared with plain driver calls from threads and processes. The
 * work is the product of a 320 x 320 and a 320 x 640 matrix of floats on every device at once.
 * It is checked against a reference in double precision on random data. Every way to drive the
 * devices is one row. All rows are measured in one run, interleaved in rounds. They follow the
 * same discipline: batches of launches, at most two in flight. Heddle is measured in placement
 * process and then in placement thread, each beside the same rivals. */
int bench_lanes_run(const bench_options *options);
extern const char lanes_help[];

/* A worker process of lanes. Its command line is "heddle-bench lanes", this word, and
 * `arguments`. */
#define LANES_WORKER "--worker"
int bench_lanes_worker(int count, char *const *arguments);

/* The cost of a lost device in placement process, and the time until it works again. Every device
 * is kept busy with work whose results are checked exactly. Then one device after another is made
 * to fault:
 *   - by a kernel that reads unmapped memory
 *   - by killing its worker process
 *   - by a kernel that never ends
 *
 * It measures the time until the program is notified, the time until the device works again, and
 * the work of the other devices meanwhile. */
int bench_faults_run(const bench_options *options);
extern const char faults_help[];

/* Heddle's memory management against that of the driver, with one to sixteen threads. Recorded
 * sequences of allocations and frees run in turns on Heddle, on cuMemAllocAsync/cuMemFreeAsync
 * and on cuMemAlloc/cuMemFree of the same driver. The sequences are random ones, holes, many
 * live blocks, and recorded programs. It also measures how allocating slows work that runs
 * beside it. A wrong block or an exceeded limit is a failure. */
int bench_alloc_run(const bench_options *options);
extern const char alloc_help[], alloc_parts[];

/* Heddle's transfers in turns with the driver's own calls:
 *   - memory of the program to a device and back
 *   - pinned memory
 *   - copies on a device
 *   - from device to device with peer access and without, in one direction and in both
 *   - small transfers with their wait
 * It also measures the cost of a submit while the copying threads are busy. */
int bench_copy_run(const bench_options *options);
extern const char copy_help[], copy_parts[];

/* Measures moves of tensors between layouts, and matrix products. hd_tensor_copy makes transposes,
 * permutes, slices and broadcasts. Two rivals take turns with it: the driver's device copy of as
 * many bytes (the roofline), and a kernel with a thread for each element. hd_tensor_matmul makes
 * products, in turns with direct calls of cuBLAS and with the built-in kernel. It also measures
 * the cost of a call for the calling thread, and PyTorch and CuPy on the same work. */
int bench_tensor_run(const bench_options *options);
extern const char tensor_help[], tensor_parts[];

/* The time to start, beside a bare program that opens one device and runs one kernel:
 *   - hd_open with all devices to the first kernels, and hd_close, in the placements thread and
 *     process
 *   - a restart, with and without a spare worker
 *   - the first copy between two devices */
int bench_start_run(const bench_options *options);
extern const char start_help[];

/* The cost of submitting, in turns with plain driver calls from as many threads:
 *   - one to sixteen threads on one device and on all of them
 *   - warm and cold lanes
 *   - memory that was filled or written
 *   - a thread that launches and waits beside others that flood its device */
int bench_submit_run(const bench_options *options);
extern const char submit_help[], submit_parts[];

/* The cost of claims for the calling thread, in turns with the same work by the driver's events:
 *   - claims that find nothing pending, beside the query of an event
 *   - claims on a stream of the program, beside a wait for an event and an event of the program */
int bench_claim_run(const bench_options *options);
extern const char claim_help[];

/* The cost of a trace, in turns with the same work untraced, in one runtime:
 *   - tiny launches, and a launch with its wait
 *   - the products of lanes, also disturbed */
int bench_trace_run(const bench_options *options);
extern const char trace_help[];

/* Messages and reductions through heddle/mpi.h, in turns with plain MPI and with copies by hand.
 * The user's mpicc compiles the program that runs on the ranks, and mpiexec starts it. */
int bench_mpi_run(const bench_options *options);
extern const char mpi_help[], mpi_parts[];

/* A sample in a separate process. Its command line is "heddle-bench start", this word, and
 * `arguments`. */
#define START_SAMPLE "--sample"
int bench_start_sample(int count, char *const *arguments);

#endif
