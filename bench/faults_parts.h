/* faults_parts.h - shared by the files of `heddle bench faults`.
 *
 *    faults.c          the conductor: opens the runtime, strikes one device after another, collects
 *    faults_load.c     keeps a device busy and checks every result; makes it fault, and times its
 *                      recovery
 *    faults_report.c   the goals, JSON
 *
 * Threads: a load belongs to its own thread, except for its atomics and the fields under its lock.
 * The conductor owns the rest of a faults_experiment.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef BENCH_FAULTS_PARTS_H
#define BENCH_FAULTS_PARTS_H

#include <heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"

enum {
    FAULTS_DEVICES_MAX = 32,
    FAULTS_LOG = 1 << 14, /* finished batches in the log, which suffice for minutes */
    FAULTS_WATCHDOG_MS = 1000
};

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define FAULTS_TIMEOUT_NS ((int64_t)120 * 1000000000)

/* ---- the work ---- */

/* Matrices of small whole numbers: their product, and sums of it, are exact in float, in any
 * order of summation. */
typedef struct faults_problem {
    uint32_t m, n, k;
    size_t a_bytes, b_bytes, c_bytes;
    float *a, *b, *product;
} faults_problem;

bool bench_faults_problem_make(bool on_host, faults_problem *out, char *error);
void bench_faults_problem_release(faults_problem *p);

typedef enum faults_kind { FAULTS_ADDRESS, FAULTS_KILL, FAULTS_ENDLESS, FAULTS_KINDS } faults_kind;

/* A device that was made to fault. Times are nanoseconds of CLOCK_MONOTONIC; 0: the strike did not
 * get that far. */
typedef struct faults_strike {
    int device, round;
    faults_kind kind;
    uint64_t fault_at;     /* just before the faulting launch or signal */
    uint64_t noticed_at;   /* the wait for the work returned the failure */
    uint64_t told_at;      /* the loss descriptor became readable */
    uint64_t restart_at;   /* hd_device_restart was called */
    uint64_t restarted_at; /* it returned */
    uint64_t finished_at;  /* the first kernel finished */
    hd_device_loss loss;   /* what hd_loss_next returned */
    /* Steps a second of all other devices together, before the fault and from the fault to the
     * device's first kernel. */
    double others_before, others_during;
} faults_strike;

/* The state of a load's thread, and the orders to it. */
typedef enum faults_state { FAULTS_OPENING, FAULTS_WORKING, FAULTS_STRIKING, FAULTS_ENDED } faults_state;
typedef enum faults_order { FAULTS_WORK, FAULTS_STRIKE, FAULTS_STOP } faults_order;

/* The work of one device: batches of steps. Each step adds the product of a and b to a sum,
 * which is finally in y. A batch starts with zeroes in y and ends with a comparison of every
 * element. So a lost, repeated or wrong step shows. Two batches are in flight, each with its own
 * y. */
typedef struct faults_load {
    hd_runtime *runtime;
    int device;
    const faults_problem *problem;
    pthread_t thread;
    /* faults_order; the conductor's release pairs with the thread's acquire, and publishes
     * `strike` */
    _Atomic int order;
    /* faults_state; the thread's release pairs with the conductor's acquire, and publishes its
     * results */
    _Atomic int state;
    faults_strike *strike;

    hd_lane *lane;
    hd_kernel *matmul, *axpy, *sum;
    hd_buffer *a, *b; /* with checkpoints */
    hd_buffer *c, *y[2];
    hd_ticket ticket[2]; /* the last launch of the batch in y[i] */
    bool in_flight[2];
    int steps;     /* steps per batch */
    int slot;      /* the next one */
    float *result; /* a y during the check */

    pthread_mutex_t lock; /* protects the log */
    uint64_t logged;      /* batches so far; entry i is at i % FAULTS_LOG */
    struct {
        uint64_t at, steps; /* when the batch finished, and the number of steps so far */
    } log[FAULTS_LOG];

    /* totals, which the conductor reads after the thread ended */
    uint64_t checked, steps_done;
    uint64_t steps_lost;     /* by unintended failures */
    uint64_t elements_wrong; /* in results */
    uint64_t kept_wrong;     /* restarts that did not restore a checkpoint as saved */
    bool failed;             /* the thread ended because of the error in: */
    char error[PLAIN_ERROR];
} faults_load;

/* The thread of a load: it opens the device's work, works, and strikes when it is told to. It ends
 * when it is told to, or if it cannot continue. */
void *bench_faults_load_main(void *load);

/* Steps finished until `at`, interpolated between two batches. */
double bench_faults_load_steps(faults_load *l, uint64_t at);

/* When the last batch finished; 0: none did. */
uint64_t bench_faults_load_latest(faults_load *l);

/* ---- the experiment ---- */

/* The thread that reads the loss descriptor. */
typedef struct faults_watch {
    hd_runtime *runtime;
    int descriptor;
    pthread_t thread;
    _Atomic uint32_t stop; /* publishes nothing else */
    pthread_mutex_t lock;  /* protects the rest */
    /* number of reports, and time of the last one */
    uint64_t told[FAULTS_DEVICES_MAX], at[FAULTS_DEVICES_MAX];
    hd_device_loss loss[FAULTS_DEVICES_MAX];
} faults_watch;

typedef struct faults_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime;
    hd_runtime_info info;
    hd_device_info device; /* facts of the first device */
    int n;
    bool on_host;
    faults_problem problem;
    faults_watch watch;
    faults_load *loads[FAULTS_DEVICES_MAX];
    int rounds, n_strikes;
    faults_strike strikes[FAULTS_ROUNDS_MAX * FAULTS_KINDS];
    /* time before a fault in which the other devices' normal rate is measured */
    uint64_t before_ns;
    uint64_t bystanders_lost; /* losses of devices that were not made to fault */
} faults_experiment;

/* ---- output; both take a const faults_experiment ---- */

void bench_faults_print_json(const void *experiment, FILE *out);

#endif
