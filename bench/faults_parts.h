/* faults_parts.h - what the files behind `heddle bench faults` share.
 *
 *    faults.c          the conductor: opens the runtime, strikes one device after the other, collects
 *    faults_load.c     what keeps a device busy, with every result checked; how it is made to fault, and the times until
 *                      it works again
 *    faults_report.c   the table, the goals, JSON
 *
 * Threads: a load belongs to its own thread, but for what is under its lock and its atomics. The conductor owns the rest
 * of a faults_experiment.
 * Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes.
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
    FAULTS_LOG = 1 << 14, /* finished batches that are remembered; minutes of them */
    FAULTS_WATCHDOG_MS = 1000
};

/* No wait of the benchmark is longer: what takes this long hangs. */
#define FAULTS_TIMEOUT_NS ((int64_t)120 * 1000000000)

/* ---- the work ---- */

/* Matrices of small whole numbers: their product, and sums of it, are exact in float, in any order of summation. */
typedef struct faults_problem {
    uint32_t m, n, k;
    size_t a_bytes, b_bytes, c_bytes;
    float *a, *b, *product;
} faults_problem;

bool faults_problem_make(bool on_host, faults_problem *out, char *error);
void faults_problem_release(faults_problem *p);

typedef enum faults_kind { FAULTS_ADDRESS, FAULTS_KILL, FAULTS_ENDLESS, FAULTS_KINDS } faults_kind;

/* One device that was made to fault. Times are nanoseconds of CLOCK_MONOTONIC; 0: it did not come to that. */
typedef struct faults_strike {
    int device, round;
    faults_kind kind;
    uint64_t fault_at;     /* just before the faulting launch, or the signal */
    uint64_t noticed_at;   /* the wait for the work returned its failure */
    uint64_t told_at;      /* the loss descriptor was readable */
    uint64_t restart_at;   /* hd_device_restart was called */
    uint64_t restarted_at; /* it returned */
    uint64_t finished_at;  /* the first kernel was finished */
    hd_device_loss loss;   /* what hd_loss_next returned */
    /* Steps a second of the other devices together, before the fault and from the fault to the first kernel. */
    double others_before, others_during;
} faults_strike;

/* What a load's thread does, and its orders. */
typedef enum faults_state { FAULTS_OPENING, FAULTS_WORKING, FAULTS_STRIKING, FAULTS_ENDED } faults_state;
typedef enum faults_order { FAULTS_WORK, FAULTS_STRIKE, FAULTS_STOP } faults_order;

/* One device's work: batches of steps. Each step adds the product of a and b to a sum, which is y in the end. A batch
 * begins with a y of zeroes and ends with a comparison of every element. So a step that was lost, done twice or wrong
 * shows. Two batches are in flight, each with a y of its own. */
typedef struct faults_load {
    hd_runtime *runtime;
    int device;
    const faults_problem *problem;
    pthread_t thread;
    _Atomic int
        order; /* faults_order; the conductor's release pairs with the thread's acquire, with `strike` before it */
    _Atomic int
        state; /* faults_state; the thread's release pairs with the conductor's acquire, with its results before */
    faults_strike *strike;

    hd_lane *lane;
    hd_kernel *matmul, *axpy, *sum;
    hd_buffer *a, *b; /* keep a copy */
    hd_buffer *c, *y[2];
    hd_ticket ticket[2]; /* the last launch of the batch in y[i] */
    bool in_flight[2];
    int steps;     /* in a batch */
    int slot;      /* whose turn it is */
    float *result; /* a y that is checked */

    pthread_mutex_t lock; /* around the log */
    uint64_t logged;      /* batches so far; entry i is at i % FAULTS_LOG */
    struct {
        uint64_t at, steps; /* when the batch was finished, and all steps up to there */
    } log[FAULTS_LOG];

    /* sums; the conductor reads them when the thread has ended */
    uint64_t checked, steps_done;
    uint64_t steps_lost;     /* by failures that were not made on purpose */
    uint64_t elements_wrong; /* in results */
    uint64_t kept_wrong;     /* restarts after which a checkpoint was not what was saved */
    bool failed;             /* the thread ended for this reason: */
    char error[PLAIN_ERROR];
} faults_load;

/* The thread: opens the device's work, works, and strikes by order. It ends by order or when it cannot go on. */
void *faults_load_main(void *load);

/* Steps finished until `at`, between two batches in proportion to the time. */
double faults_load_steps(faults_load *l, uint64_t at);

/* When the last batch was finished; 0: none was. */
uint64_t faults_load_latest(faults_load *l);

/* ---- the experiment ---- */

/* The thread that reads the loss descriptor. */
typedef struct faults_watch {
    hd_runtime *runtime;
    int descriptor;
    pthread_t thread;
    _Atomic uint32_t stop;                                     /* nothing else is passed with it */
    pthread_mutex_t lock;                                      /* around the rest */
    uint64_t told[FAULTS_DEVICES_MAX], at[FAULTS_DEVICES_MAX]; /* how often, and when last */
    hd_device_loss loss[FAULTS_DEVICES_MAX];
} faults_watch;

typedef struct faults_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime;
    hd_runtime_info info;
    hd_device_info device; /* the first one's facts */
    int n;
    bool on_host;
    faults_problem problem;
    faults_watch watch;
    faults_load *loads[FAULTS_DEVICES_MAX];
    int rounds, n_strikes;
    faults_strike strikes[FAULTS_ROUNDS_MAX * FAULTS_KINDS];
    uint64_t before_ns;       /* the time before a fault that the other devices' work is compared with */
    uint64_t bystanders_lost; /* losses of devices that were not made to fault */
} faults_experiment;

/* ---- output; both take a const faults_experiment ---- */

void faults_print_table(const void *experiment, FILE *out);
void faults_print_json(const void *experiment, FILE *out);

#endif
