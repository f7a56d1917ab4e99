/* bench.h - the benchmarks of `heddle bench`: the experiment of each, and its options.
 *
 * Threads: each is called on the program's first thread and makes the threads and worker processes that it needs; when it returns, they
 * have ended. Locks: none that callers see.
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
    TRACE_ROUNDS_MAX = 50
};

/* Each benchmark looks at those that it takes. */
typedef struct bench_options {
    int devices;      /* the first so many; 0: all */
    int device;       /* this one alone; -1: the first one that the environment allows */
    double seconds;   /* measuring time in all; 0: by the kind of device */
    int rounds;       /* 0: by the kind of device and how many there are */
    bool quick;       /* fewer rounds and cases, less time for each */
    bool variants;    /* `tensor`: instead of all else every kernel that could move a layout, in every order of tiles */
    const char *only; /* names of parts, separated by commas; NULL: all */
    const char *replays[ALLOC_REPLAYS_MAX]; /* recorded programs for `alloc`; none: those that come with Heddle */
    int n_replays;
    report_run run;
} bench_options;

/* Each runs its experiment and prints it. Returns:
 *   - 0: measured and verified; whether the goals are reached does not count
 *   - 1: something failed, or a result was wrong; one line on stderr has the reason
 *
 * The texts are for the help: what the experiment is and how to read it. The parts are names for `only`, separated by commas. */

/* One program drives every GPU, compared with plain driver calls from threads and processes. The work is the product of a
 * 320 x 320 and a 320 x 640 matrix of floats on every device at once. It is checked against a reference in double precision on
 * random data. Every way to drive the devices is one row. All rows are measured in one run, interleaved in rounds. They have
 * the same discipline: batches of launches, at most two in flight. Heddle is measured in placement process and in placement
 * thread, one after the other, each beside the same rivals. */
int lanes_run(const bench_options *options);
extern const char lanes_help[];

/* A worker process's side: its command line is "heddle-bench lanes", this word, and `arguments`. */
#define LANES_WORKER "--worker"
int lanes_worker(int count, char *const *arguments);

/* What a lost device costs in placement process, and how fast it is back. Every device is kept busy with work whose results are
 * checked exactly. Then one device after the other is made to fault:
 *   - by a kernel that reads where nothing is
 *   - by killing its worker process
 *   - by a kernel that never ends
 *
 * Measured are the time until the program has notice of it, the time until the device works again, and what the other devices did
 * meanwhile. */
int faults_run(const bench_options *options);
extern const char faults_help[];

/* Heddle's memory against the driver's, by one thread and by up to sixteen. Recorded sequences of allocations and frees run on
 * Heddle, and in turns on cuMemAllocAsync/cuMemFreeAsync and on cuMemAlloc/cuMemFree of the same driver. The sequences are random
 * ones, holes, many live blocks, and programs recorded elsewhere. It also measures what allocating costs the work that runs
 * beside it. A block that was wrong and a limit that was exceeded fail. */
int alloc_run(const bench_options *options);
extern const char alloc_help[], alloc_parts[];

/* Heddle's transfers against the driver's own calls, each beside the driver's call for the same, in turns:
 *   - memory of the program to a device and back
 *   - pinned memory
 *   - copies on a device
 *   - from device to device with peer access and without, in one direction and in both
 *   - small transfers with their wait
 * Also what a submit costs while the threads that copy are busy. */
int copy_run(const bench_options *options);
extern const char copy_help[], copy_parts[];

/* Moving tensors between layouts, and matrix products. Transposes, permutes, slices and broadcasts are made by hd_tensor_copy. In
 * turns with it runs the driver's device copy of as many bytes, which is the roofline. So does a kernel that moves one element with
 * each thread. Products are made by hd_tensor_matmul, in turns with cuBLAS called directly and with the built-in kernel. Also what a
 * call costs the thread that makes it, and what PyTorch and CuPy make of the same. */
int tensor_run(const bench_options *options);
extern const char tensor_help[], tensor_parts[];

/* How long beginning takes, beside a bare program that opens one device and runs one kernel:
 *   - hd_open with all devices to the first kernels, and hd_close, in the placements thread and process
 *   - a restart, with and without a spare worker
 *   - the first copy between two devices */
int start_run(const bench_options *options);
extern const char start_help[];

/* What submitting costs, in turns with plain driver calls from as many threads:
 *   - one to sixteen threads on one device and on all of them
 *   - lanes that are warm and cold
 *   - memory that was filled or written
 *   - a thread that launches and waits beside others that flood its device */
int submit_run(const bench_options *options);
extern const char submit_help[], submit_parts[];

/* What claims cost the thread that makes them, in turns with the same by hand:
 *   - claims that find nothing pending, beside the query of an event
 *   - claims on a stream of the program's own, beside a wait for an event and an event of one's own */
int claim_run(const bench_options *options);
extern const char claim_help[];

/* What a trace costs, in turns with the same work without one, in one runtime:
 *   - tiny launches, and a launch with its wait
 *   - the products of lanes, also disturbed */
int trace_run(const bench_options *options);
extern const char trace_help[];

/* A sample's side, in a process of its own: its command line is "heddle-bench start", this word, and `arguments`. */
#define START_SAMPLE "--sample"
int start_sample(int count, char *const *arguments);

#endif
