/* lanes_parts.h - shared by the files of `heddle bench lanes`.
 *
 *    lanes.c          the conductor: sizes the run, interleaves the rows, collects
 *    lanes_rows.c     one segment of one row: threads, gate, disturber, poison, check; tiny
 *                     launches
 *    lanes_sides.c    the matrices and the check; launch loop and disturbance, by plain calls and
 *                     by Heddle
 *    lanes_workers.c  the process-per-device row: spawning, commands, and the worker itself
 *    lanes_report.c   the goals, JSON
 *
 * Threads: the conductor owns a lanes_experiment; the threads of a segment read it, and each writes
 * its own lanes_result.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef BENCH_LANES_PARTS_H
#define BENCH_LANES_PARTS_H

#include <heddle.h>
#include <stdatomic.h>
#include <sys/types.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"

enum {
    LANES_M = 320, /* a is m x k, b is k x n, c is m x n */
    LANES_N = 640,
    LANES_K = 320,
    LANES_DEVICES_MAX = 64,
    LANES_BATCH_MAX = 200
};

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define LANES_TIMEOUT_NS ((int64_t)120 * 1000000000)

/* ---- the problem ---- */

typedef struct lanes_problem {
    float *a, *b;
    double *reference; /* NULL if made without one */
    /* by element: the largest error of a correct float result, in any order of summation */
    float *bound;
} lanes_problem;

/* Makes the random matrices of device `device`: the same in every process. */
bool bench_lanes_problem_make(int device, bool with_reference, lanes_problem *out, char *error);
void bench_lanes_problem_release(lanes_problem *p);

/* The largest |c - reference| / bound; at most 1 for a correct result. Infinite if an element is
 * not a number. */
double bench_lanes_problem_error(const lanes_problem *p, const float *c);

/* ---- one segment ---- */

/* The time of a segment in nanoseconds of CLOCK_MONOTONIC, and the launches in a batch. */
typedef struct lanes_when {
    uint64_t begin, end;
    int batch;
} lanes_when;

/* Results of one submitting thread in one segment. */
typedef struct lanes_result {
    uint64_t kernels;
    uint64_t elapsed_ns; /* from the first submit to the end of the last kernel */
    stats_histogram submit;
} lanes_result;

/* The disturber's cycles in one segment: alloc + free, pin + unpin, load + unload. */
typedef struct lanes_disturbance {
    uint64_t cycles;
    uint64_t elapsed_ns;
} lanes_disturbance;

/* The amounts of memory that a disturber uses. */
typedef struct lanes_disturb_size {
    size_t device_bytes;
    size_t pinned_low, pinned_high; /* the size doubles from low to high, then starts again */
    /* shortest time between two cycles of Heddle's disturber; 0: no limit */
    uint64_t every_ns;
} lanes_disturb_size;

/* Returns the usual amounts, with as many cycles as possible. */
lanes_disturb_size bench_lanes_disturb_usual(bool on_host);

/* Sleeps until a time of CLOCK_MONOTONIC. */
void bench_lanes_sleep_until(uint64_t ns);

/* Plain driver calls. The loop drives one device; bench_lanes_driver_warm makes the context current
 * on the calling thread and runs `launches` launches. */
bool bench_lanes_driver_warm(const plain_driver *d, plain_device *device, int launches, char *error);
bool bench_lanes_driver_loop(const plain_driver *d, plain_device *device, const lanes_when *when, lanes_result *out,
                             char *error);
/* Both make launches that fill one word, on a device whose context is current. The first function
 * waits only at the end, and measures microseconds per launch. The second one measures the median
 * time of a launch and its wait. */
bool bench_lanes_driver_flow(const plain_driver *d, plain_device *device, uint64_t launches, double *us, char *error);
bool bench_lanes_driver_trips(const plain_driver *d, plain_device *device, uint64_t trips, double *us, char *error);
bool bench_lanes_driver_disturb(const plain_driver *d, plain_device *devices, int count, const plain_image *image,
                                const lanes_disturb_size *size, _Atomic uint32_t *stop, lanes_disturbance *out,
                                char *error);

/* Heddle. The loop drives `count` devices round robin, from the calling thread, in its default
 * lanes. */
typedef struct lanes_heddle {
    hd_runtime *runtime;
    int device;
    hd_kernel *matmul, *fill;
    hd_buffer *a, *b, *c, *word;
    hd_arg matmul_args[6], fill_args[3];
} lanes_heddle;

bool bench_lanes_heddle_open(hd_runtime *runtime, int device, const lanes_problem *problem, lanes_heddle *out,
                             char *error);
void bench_lanes_heddle_close(lanes_heddle *h); /* a zeroed one is ignored */
bool bench_lanes_heddle_poison(lanes_heddle *h, char *error);
bool bench_lanes_heddle_result(lanes_heddle *h, float *c, char *error);
bool bench_lanes_heddle_warm(lanes_heddle *devices, int count, int launches, char *error);
bool bench_lanes_heddle_loop(lanes_heddle *devices, int count, const lanes_when *when, lanes_result *out, char *error);
/* Like bench_lanes_driver_flow and bench_lanes_driver_trips. */
bool bench_lanes_heddle_flow(lanes_heddle *h, uint64_t launches, double *us, char *error);
/* not reentrant */
bool bench_lanes_heddle_trips(lanes_heddle *h, uint64_t trips, double *us, char *error);
bool bench_lanes_heddle_disturb(lanes_heddle *devices, int count, const plain_image *image,
                                const lanes_disturb_size *size, _Atomic uint32_t *stop, lanes_disturbance *out,
                                char *error);

/* ---- worker processes: one per device, and one more that disturbs ---- */

typedef struct lanes_workers lanes_workers;

/* Spawns the workers and waits until all are ready. They sleep until a segment begins. */
bool bench_lanes_workers_start(const char *provider, const hd_device_info *devices, int count,
                               const lanes_disturb_size *size, lanes_workers **out, char *error);

/* Poisons, warms up, and runs for `duration_ns` once all workers are ready. Worker i's results
 * are results[i], and its final matrix is *c[i]. Both belong to the workers and stay valid until
 * the next segment. If `disturbed`, the extra process disturbs them meanwhile. */
bool bench_lanes_workers_segment(lanes_workers *w, uint64_t duration_ns, int batch, int warm, bool disturbed,
                                 const lanes_result **results, const float **c, lanes_disturbance *disturbance,
                                 char *error);

/* Runs bench_lanes_driver_flow, or bench_lanes_driver_trips, in the worker of device 0. */
bool bench_lanes_workers_tiny(lanes_workers *w, bool trips, uint64_t count, double *us, char *error);

/* Ends and reaps them. NULL is ignored. */
void bench_lanes_workers_stop(lanes_workers *w);

/* ---- rows ---- */

/* The parts of a run, in this order:
 *   - PROCESS: this program makes no driver call. Heddle's engines and the plain calls beside them
 *     are in separate processes.
 *   - BESIDE: plain driver calls in this process disturb Heddle's workers. They start the driver
 *     here, so this part follows the first.
 *   - WITHIN: everything that is measured in this process, after the workers ended. */
typedef enum lanes_part { LANES_PART_PROCESS, LANES_PART_BESIDE, LANES_PART_WITHIN, LANES_PARTS } lanes_part;

typedef enum lanes_shape {
    LANES_ALONE,     /* one device */
    LANES_THREADS,   /* a thread per device */
    LANES_PROCESSES, /* a process per device */
    LANES_ONE        /* one thread for all devices */
} lanes_shape;

typedef enum lanes_api { LANES_DRIVER, LANES_HEDDLE } lanes_api;

typedef enum lanes_disturber { LANES_QUIET, LANES_BY_OWN, LANES_BY_DRIVER } lanes_disturber;

typedef struct lanes_row {
    const char *name;
    const char *id; /* for JSON */
    lanes_part part;
    lanes_api api;
    lanes_shape shape;
    lanes_disturber disturber;
} lanes_row;

/* Results of a row in one round. */
typedef struct lanes_segment {
    double kernels_per_s; /* of all devices together */
    double us_per_kernel; /* for one device: the number of devices divided by kernels_per_s */
    /* share of the throughput that a device has in the process-per-device row of this round and
     * disturbance */
    double share;
    stats_calls submit;
    double cycles_per_s; /* of the disturber */
    uint64_t stalls;     /* submits that found the ring full (Heddle) */
} lanes_segment;

enum { LANES_ROWS = 22 };

extern const lanes_row lanes_rows[LANES_ROWS]; /* the rows of a part are adjacent */

/* The rows of a part, and the reference rows of their shares. */
typedef struct lanes_part_rows {
    int first, count;
    int processes, processes_disturbed; /* row numbers */
} lanes_part_rows;

extern const lanes_part_rows lanes_parts[LANES_PARTS];

typedef struct lanes_row_data {
    lanes_segment rounds[LANES_ROUNDS_MAX];
    stats_histogram submit; /* of all rounds */
} lanes_row_data;

/* Launches in one lane of device 0, by the driver and by Heddle in turns. For placement process a
 * worker runs the driver's side. */
typedef struct lanes_tiny {
    int rounds; /* 0: not measured */
    double driver_launch_us[LANES_ROUNDS_MAX], heddle_launch_us[LANES_ROUNDS_MAX], launch_ratio[LANES_ROUNDS_MAX];
    double driver_trip_us[LANES_ROUNDS_MAX], heddle_trip_us[LANES_ROUNDS_MAX], trip_ratio[LANES_ROUNDS_MAX];
    uint64_t launches, trips; /* per round and side */
} lanes_tiny;

typedef struct lanes_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    bool measured[LANES_PARTS];
    const char *within;  /* placement of LANES_PART_WITHIN */
    hd_runtime *runtime; /* the runtime of the current part */
    hd_runtime_info info;
    int n;        /* devices in use */
    bool on_host; /* the devices are host devices */
    hd_device_info devices[LANES_DEVICES_MAX];
    lanes_problem problems[LANES_DEVICES_MAX];
    plain_driver driver;
    plain_image image;
    plain_device plain[LANES_DEVICES_MAX];
    lanes_heddle heddle[LANES_DEVICES_MAX];
    lanes_workers *workers;
    lanes_disturb_size disturb_size;
    float *c; /* the result under check */
    lanes_result results[LANES_DEVICES_MAX];
    int rounds, rounds_done, batch, warm;
    uint64_t segment_ns;
    double kernel_us; /* duration of a kernel with all devices busy, measured first */
    lanes_row_data rows[LANES_ROWS];
    lanes_tiny tiny[LANES_PARTS]; /* for LANES_PART_PROCESS and LANES_PART_WITHIN */
    uint64_t checked;             /* results compared with the reference */
    double worst_error;           /* the largest error, as a share of the bound */
} lanes_experiment;

/* Runs one row for one segment, and checks its results. */
bool bench_lanes_segment_run(lanes_experiment *x, int row, int round, char *error);

/* Measures x->tiny[part] within about `seconds`. */
bool bench_lanes_tiny_run(lanes_experiment *x, lanes_part part, double seconds, char *error);

/* ---- output ---- */

/* Both take a const lanes_experiment. */
void bench_lanes_print_json(const void *experiment, FILE *out);

#endif
