/* lanes_rows.c - the rows of the experiment, one segment of one row, and tiny launches in one lane.
 *
 * A segment, in this order:
 *   - The result matrices are poisoned.
 *   - The submitting threads start, warm up and wait at a gate, with the disturber if the row has
 *     one.
 *   - The gate gives all of them a common begin and end.
 *   - Every result is checked.
 *
 * Tiny launches run on device 0, by the driver and by Heddle in turns. They show how fast launches
 * flow, and the time of a launch and its wait.
 *
 * Threads: bench_lanes_segment_run and bench_lanes_tiny_run on the conductor's thread. A worker
 * process makes the driver's tiny launches if this process makes no driver calls. The submitting
 * threads and the disturber live for one segment, so no state of a thread reaches the next one.
 * Locks: the gate's lock, around its own fields.
 * Always:
 *   - A successful segment has computed the right product on each of its devices, at least once
 *     after the poison.
 *   - For tiny launches, both sides launch the same kernel with the same grid, equally often, from
 *     one thread. The flow waits only at the end, so a full queue of either side throttles its
 *     caller.
 */
#include "bench/lanes_parts.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    BEGIN_DELAY_NS = 2 * 1000 * 1000 /* from the opening of the gate to the common begin */
};

#define PROCESS LANES_PART_PROCESS
#define WITHIN LANES_PART_WITHIN
const lanes_row lanes_rows[LANES_ROWS] = {
    {"driver, process per device", "driver_processes_again", PROCESS, LANES_DRIVER, LANES_PROCESSES, LANES_QUIET},
    {"Heddle, process placement, one device alone", "heddle_process_alone", PROCESS, LANES_HEDDLE, LANES_ALONE,
     LANES_QUIET},
    {"Heddle, process placement, thread per device", "heddle_process_threads", PROCESS, LANES_HEDDLE, LANES_THREADS,
     LANES_QUIET},
    {"Heddle, process placement, one thread", "heddle_process_one", PROCESS, LANES_HEDDLE, LANES_ONE, LANES_QUIET},
    {"driver, process per device", "driver_processes_again_disturbed", PROCESS, LANES_DRIVER, LANES_PROCESSES,
     LANES_BY_OWN},
    {"Heddle, process placement, one device alone", "heddle_process_alone_disturbed", PROCESS, LANES_HEDDLE,
     LANES_ALONE, LANES_BY_OWN},
    {"Heddle, process placement, thread per device", "heddle_process_threads_disturbed", PROCESS, LANES_HEDDLE,
     LANES_THREADS, LANES_BY_OWN},
    {"Heddle, process placement, one thread", "heddle_process_one_disturbed", PROCESS, LANES_HEDDLE, LANES_ONE,
     LANES_BY_OWN},
    {"Heddle, process placement; plain calls disturb", "heddle_process_one_disturbed_by_driver", LANES_PART_BESIDE,
     LANES_HEDDLE, LANES_ONE, LANES_BY_DRIVER},
    {"driver, one device alone", "driver_alone", WITHIN, LANES_DRIVER, LANES_ALONE, LANES_QUIET},
    {"driver, thread per device", "driver_threads", WITHIN, LANES_DRIVER, LANES_THREADS, LANES_QUIET},
    {"driver, process per device", "driver_processes", WITHIN, LANES_DRIVER, LANES_PROCESSES, LANES_QUIET},
    {"Heddle, one device alone", "heddle_alone", WITHIN, LANES_HEDDLE, LANES_ALONE, LANES_QUIET},
    {"Heddle, thread per device", "heddle_threads", WITHIN, LANES_HEDDLE, LANES_THREADS, LANES_QUIET},
    {"Heddle, one thread", "heddle_one", WITHIN, LANES_HEDDLE, LANES_ONE, LANES_QUIET},
    {"driver, one device alone", "driver_alone_disturbed", WITHIN, LANES_DRIVER, LANES_ALONE, LANES_BY_OWN},
    {"driver, thread per device", "driver_threads_disturbed", WITHIN, LANES_DRIVER, LANES_THREADS, LANES_BY_OWN},
    {"driver, process per device", "driver_processes_disturbed", WITHIN, LANES_DRIVER, LANES_PROCESSES, LANES_BY_OWN},
    {"Heddle, one device alone", "heddle_alone_disturbed", WITHIN, LANES_HEDDLE, LANES_ALONE, LANES_BY_OWN},
    {"Heddle, thread per device", "heddle_threads_disturbed", WITHIN, LANES_HEDDLE, LANES_THREADS, LANES_BY_OWN},
    {"Heddle, one thread", "heddle_one_disturbed", WITHIN, LANES_HEDDLE, LANES_ONE, LANES_BY_OWN},
    {"Heddle, one thread; plain driver calls disturb", "heddle_one_disturbed_by_driver", WITHIN, LANES_HEDDLE,
     LANES_ONE, LANES_BY_DRIVER},
};
#undef PROCESS
#undef WITHIN

const lanes_part_rows lanes_parts[LANES_PARTS] = {
    [LANES_PART_PROCESS] = {.first = 0, .count = 8, .processes = 0, .processes_disturbed = 4},
    [LANES_PART_BESIDE] = {.first = 8, .count = 1, .processes = 0, .processes_disturbed = 4},
    [LANES_PART_WITHIN] = {.first = 9, .count = 13, .processes = 11, .processes_disturbed = 17},
};

void bench_lanes_sleep_until(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* The meeting point of a segment's threads. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    bool open, run; /* open: threads may pass; run: all arrived without a failure */
    lanes_when when;
} gate;

typedef struct job {
    lanes_experiment *x;
    gate *gate;
    const lanes_row *row;
    int first, count;     /* the devices of the thread; for the disturber, all devices in use */
    lanes_result *result; /* NULL: the disturber */
    lanes_disturbance disturbance;
    _Atomic uint32_t *stop;
    bool ok;
    char error[PLAIN_ERROR];
    pthread_t thread;
} job;

/* Marks this thread as ready, and waits for the others. False: do not run. */
static bool bench_gate_pass(gate *g, lanes_when *when)
{
    pthread_mutex_lock(&g->lock);
    g->arrived++;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    bool run = g->run;
    *when = g->when;
    pthread_mutex_unlock(&g->lock);
    return run;
}

static void *bench_submit_main(void *argument)
{
    job *j = argument;
    lanes_experiment *x = j->x;
    bool heddle = j->row->api == LANES_HEDDLE;
    j->ok = heddle ? bench_lanes_heddle_warm(x->heddle + j->first, j->count, x->warm, j->error)
                   : bench_lanes_driver_warm(&x->driver, x->plain + j->first, x->warm, j->error);
    lanes_when when;
    if (bench_gate_pass(j->gate, &when) && j->ok) {
        j->ok = heddle ? bench_lanes_heddle_loop(x->heddle + j->first, j->count, &when, j->result, j->error)
                       : bench_lanes_driver_loop(&x->driver, x->plain + j->first, &when, j->result, j->error);
    }
    return NULL;
}

static void *bench_disturb_main(void *argument)
{
    job *j = argument;
    lanes_experiment *x = j->x;
    lanes_when when;
    j->ok = true;
    if (bench_gate_pass(j->gate, &when)) {
        bool heddle = j->row->api == LANES_HEDDLE && j->row->disturber == LANES_BY_OWN;
        j->ok = heddle ? bench_lanes_heddle_disturb(x->heddle + j->first, j->count, &x->image, &x->disturb_size,
                                                    j->stop, &j->disturbance, j->error)
                       : bench_lanes_driver_disturb(&x->driver, x->plain + j->first, j->count, &x->image,
                                                    &x->disturb_size, j->stop, &j->disturbance, j->error);
    }
    return NULL;
}

/* Waits until `expected` threads arrive, then lets them pass. */
static void bench_gate_open(gate *g, int expected, bool run, uint64_t duration_ns, int batch)
{
    pthread_mutex_lock(&g->lock);
    while (g->arrived < expected) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    g->when.begin = cli_stats_monotonic() + BEGIN_DELAY_NS;
    g->when.end = g->when.begin + duration_ns;
    g->when.batch = batch;
    g->open = true;
    g->run = run;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Runs the threads of a row: one for each device, or one for all, and the disturber. */
static bool bench_run_threads(lanes_experiment *x, const lanes_row *row, int devices, lanes_disturbance *disturbance,
                              char *error)
{
    static job jobs[LANES_DEVICES_MAX + 1]; /* one segment at a time */
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    _Atomic uint32_t stop = 0;
    int submitters = row->shape == LANES_ONE ? 1 : devices, made = 0;
    int wanted = submitters + (row->disturber != LANES_QUIET);
    for (; made < wanted; made++) {
        bool submits = made < submitters;
        jobs[made] = (job){.x = x, .gate = &g, .row = row, .stop = &stop, .result = submits ? &x->results[made] : NULL};
        jobs[made].first = submits && row->shape != LANES_ONE ? made : 0;
        jobs[made].count = submits && row->shape != LANES_ONE ? 1 : devices;
        int failed =
            pthread_create(&jobs[made].thread, NULL, submits ? bench_submit_main : bench_disturb_main, &jobs[made]);
        if (failed) {
            snprintf(error, PLAIN_ERROR, "pthread_create: %s", strerror(failed));
            break;
        }
    }
    bench_gate_open(&g, made, made == wanted, x->segment_ns, x->batch);
    for (int i = 0; i < made; i++) {
        if (i == submitters) {
            atomic_store_explicit(&stop, 1, memory_order_release);
        }
        pthread_join(jobs[i].thread, NULL);
    }
    bool ok = made == wanted;
    for (int i = 0; i < made && ok; i++) {
        if (!jobs[i].ok) {
            snprintf(error, PLAIN_ERROR, "%s", jobs[i].error);
            ok = false;
        }
    }
    if (ok && wanted > submitters) {
        *disturbance = jobs[submitters].disturbance;
    }
    return ok;
}

static bool bench_poison(lanes_experiment *x, const lanes_row *row, int device, char *error)
{
    if (row->api == LANES_HEDDLE) {
        return bench_lanes_heddle_poison(&x->heddle[device], error);
    }
    return PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (x->plain[device].context)) &&
           cli_plain_poison(&x->driver, &x->plain[device], error);
}

static bool bench_fetch(lanes_experiment *x, const lanes_row *row, int device, char *error)
{
    if (row->api == LANES_HEDDLE) {
        return bench_lanes_heddle_result(&x->heddle[device], x->c, error);
    }
    return PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (x->plain[device].context)) &&
           cli_plain_result(&x->driver, &x->plain[device], x->c, error);
}

static bool bench_check(lanes_experiment *x, int device, const float *c, char *error)
{
    double worst = bench_lanes_problem_error(&x->problems[device], c);
    x->checked++;
    x->worst_error = worst > x->worst_error ? worst : x->worst_error;
    if (worst <= 1) {
        return true;
    }
    if (isinf(worst)) {
        snprintf(error, PLAIN_ERROR, "wrong result on device %d: elements were not computed", device);
    } else {
        snprintf(error, PLAIN_ERROR, "wrong result on device %d: its error is %.3g times what rounding can do", device,
                 worst);
    }
    return false;
}

static uint64_t bench_count_stalls(lanes_experiment *x)
{
    uint64_t stalls = 0;
    for (int i = 0; i < x->n; i++) {
        hd_device_stats stats = {.size = sizeof(stats)};
        stalls += hd_device_get_stats(x->runtime, i, &stats) == HD_OK ? stats.ring_full_stalls : 0;
    }
    return stalls;
}

static void bench_sum_up(lanes_experiment *x, int row, int round, int devices, const lanes_result *const *results,
                         const lanes_disturbance *disturbance)
{
    static stats_histogram all; /* one segment at a time */
    lanes_segment *s = &x->rows[row].rounds[round];
    memset(&all, 0, sizeof(all));
    s->kernels_per_s = 0;
    for (int i = 0; i < devices && results[i]; i++) {
        s->kernels_per_s += (double)results[i]->kernels / ((double)results[i]->elapsed_ns * 1e-9);
        cli_stats_merge(&all, &results[i]->submit);
    }
    s->us_per_kernel = devices / s->kernels_per_s * 1e6;
    s->submit = cli_stats_summarise(&all);
    s->cycles_per_s =
        disturbance->elapsed_ns ? (double)disturbance->cycles / ((double)disturbance->elapsed_ns * 1e-9) : 0;
    cli_stats_merge(&x->rows[row].submit, &all);
}

bool bench_lanes_segment_run(lanes_experiment *x, int row, int round, char *error)
{
    const lanes_row *r = &lanes_rows[row];
    int devices = r->shape == LANES_ALONE ? 1 : x->n;
    const lanes_result *results[LANES_DEVICES_MAX] = {NULL};
    const float *c[LANES_DEVICES_MAX] = {NULL};
    lanes_disturbance disturbance = {0, 0};
    uint64_t stalls = bench_count_stalls(x);
    if (r->shape == LANES_PROCESSES) {
        if (!bench_lanes_workers_segment(x->workers, x->segment_ns, x->batch, x->warm, r->disturber != LANES_QUIET,
                                         results, c, &disturbance, error)) {
            return false;
        }
    } else {
        memset(x->results, 0, sizeof(x->results));
        for (int i = 0; i < devices; i++) {
            if (!bench_poison(x, r, i, error)) {
                return false;
            }
        }
        if (!bench_run_threads(x, r, devices, &disturbance, error)) {
            return false;
        }
        for (int i = 0; i < (r->shape == LANES_ONE ? 1 : devices); i++) {
            results[i] = &x->results[i];
        }
    }
    for (int i = 0; i < devices; i++) {
        if (r->shape != LANES_PROCESSES && !bench_fetch(x, r, i, error)) {
            return false;
        }
        if (!bench_check(x, i, r->shape == LANES_PROCESSES ? c[i] : x->c, error)) {
            return false;
        }
    }
    bench_sum_up(x, row, round, devices, results, &disturbance);
    x->rows[row].rounds[round].stalls = r->api == LANES_HEDDLE ? bench_count_stalls(x) - stalls : 0;
    return true;
}

/* ---- one lane ---- */

enum {
    PROBE = 200, /* operations that show how many fit into a round */
    ROUNDS_MIN = 5,
    COUNT_MIN = 20,
    COUNT_MAX = 200000
};

/* Runs in this process if the plain device is open here, else in the worker of device 0. */
static bool bench_driver_flow(lanes_experiment *x, uint64_t launches, double *us, char *error)
{
    return x->plain[0].context ? bench_lanes_driver_flow(&x->driver, &x->plain[0], launches, us, error)
                               : bench_lanes_workers_tiny(x->workers, false, launches, us, error);
}

static bool bench_driver_trips(lanes_experiment *x, uint64_t trips, double *us, char *error)
{
    return x->plain[0].context ? bench_lanes_driver_trips(&x->driver, &x->plain[0], trips, us, error)
                               : bench_lanes_workers_tiny(x->workers, true, trips, us, error);
}

static bool bench_heddle_flow(lanes_experiment *x, uint64_t launches, double *us, char *error)
{
    return bench_lanes_heddle_flow(&x->heddle[0], launches, us, error);
}

static bool bench_heddle_trips(lanes_experiment *x, uint64_t trips, double *us, char *error)
{
    return bench_lanes_heddle_trips(&x->heddle[0], trips, us, error);
}

typedef bool (*measure)(lanes_experiment *x, uint64_t count, double *us, char *error);

/* Measures both sides once, the driver first in even rounds. */
static bool bench_measure_both(lanes_experiment *x, int round, measure driver, measure heddle, uint64_t count,
                               double *driver_us, double *heddle_us, char *error)
{
    if (round % 2 == 0) {
        return driver(x, count, driver_us, error) && heddle(x, count, heddle_us, error);
    }
    return heddle(x, count, heddle_us, error) && driver(x, count, driver_us, error);
}

/* Tries both sides and finds how many operations fit into `seconds`. The trial also warms them
 * up. */
static bool bench_size_up(lanes_experiment *x, measure driver, measure heddle, double seconds, uint64_t *count,
                          char *error)
{
    double driver_us = 0, heddle_us = 0;
    if (!bench_measure_both(x, 0, driver, heddle, PROBE, &driver_us, &heddle_us, error)) {
        return false;
    }
    double fit = seconds * 1e6 / (driver_us + heddle_us + 1e-3);
    *count = fit < COUNT_MIN ? COUNT_MIN : fit > COUNT_MAX ? COUNT_MAX : (uint64_t)fit;
    return true;
}

bool bench_lanes_tiny_run(lanes_experiment *x, lanes_part part, double seconds, char *error)
{
    lanes_tiny *t = &x->tiny[part];
    int rounds = x->rounds < ROUNDS_MIN ? ROUNDS_MIN : x->rounds;
    double each = seconds / (2 * rounds);
    if (x->plain[0].context && !PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (x->plain[0].context))) {
        return false;
    }
    if (!bench_size_up(x, bench_driver_flow, bench_heddle_flow, each, &t->launches, error) ||
        !bench_size_up(x, bench_driver_trips, bench_heddle_trips, each, &t->trips, error)) {
        return false;
    }
    for (int r = 0; r < rounds; r++) {
        if (!bench_measure_both(x, r, bench_driver_flow, bench_heddle_flow, t->launches, &t->driver_launch_us[r],
                                &t->heddle_launch_us[r], error) ||
            !bench_measure_both(x, r, bench_driver_trips, bench_heddle_trips, t->trips, &t->driver_trip_us[r],
                                &t->heddle_trip_us[r], error)) {
            return false;
        }
        t->launch_ratio[r] = t->heddle_launch_us[r] / t->driver_launch_us[r];
        t->trip_ratio[r] = t->heddle_trip_us[r] / t->driver_trip_us[r];
        t->rounds = r + 1;
    }
    return true;
}
