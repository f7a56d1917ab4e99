/* trace.c - `heddle bench trace`: the cost of a trace. Traced and untraced work take turns in one
 * runtime.
 *
 * Threads: the conductor, and a disturber during a segment. Locks: none.
 * Always:
 *   - Each round measures every row once with each detail. The first detail changes from round to
 *     round.
 *   - One runtime and its threads serve all sides. Two runtimes would have threads on different
 *     processors, which differ by more than the cost of a trace.
 *   - The work of starting a trace is over when a segment begins. The file is removed afterwards.
 */
#include <heddle/trace.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/lanes_parts.h"

/* The disturber's period is the same on all sides. Without a limit, the disturber would do more
 * when the other work leaves more processor time. */
enum { DISTURB_EVERY_NS = 10000000 };
enum { ROUNDS_GPU = 9, ROUNDS_HOST = 3, ROUNDS_QUICK = 2, PATH_BYTES = 512, GOALS = 5 };

const char trace_help[] =
    "One thread works without a trace, and with one of either detail, in turns.\n"
    "\n"
    "  flow       tiny launches in one lane, nothing is waited for until the end: time for each\n"
    "  trip       a tiny launch and its wait: median\n"
    "  matmul     the products of heddle bench lanes, in batches, two in flight, on all devices: time for each\n"
    "  disturbed  the same while another thread allocates, pins memory and loads a module, 100 times a second\n"
    "\n"
    "Sides: without a trace (none), with one of the detail edges, and with one of the detail full. Their ratios "
    "are\n"
    "medians of rounds. A submit is what hd_launch costs the calling thread in the products, the median of all calls.\n"
    "With the detail full each launch goes to the driver alone, so rows in which launches are joined cost more.\n"
    "Every result of the products is checked.\n";

typedef enum trace_row { FLOW, TRIP, MATMUL, DISTURBED, ROWS } trace_row;
typedef enum trace_side { NONE, EDGES, FULL, SIDES } trace_side;

static const char *const row_names[ROWS] = {"flow", "trip", "matmul", "disturbed"};
static const char *const row_texts[ROWS] = {"a launch of many", "launch and wait", "a product", "  disturbed"};
static const char *const side_names[SIDES] = {"none", "edges", "full"};

typedef struct trace_data {
    double us[SIDES][TRACE_ROUNDS_MAX];
    double submit_ns[SIDES][TRACE_ROUNDS_MAX]; /* products only */
    double cycles_per_s[SIDES][TRACE_ROUNDS_MAX];
} trace_data;

typedef struct trace_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime;
    hd_runtime_info info;
    bool on_host;
    int rounds, rounds_done;
    uint64_t launches, trips, segment_ns;
    int batch;
    int n; /* devices */
    lanes_problem problems[LANES_DEVICES_MAX];
    lanes_heddle devices[LANES_DEVICES_MAX];
    plain_image image;
    lanes_disturb_size disturb_size;
    float *c;
    lanes_result result;
    char file[PATH_BYTES];
    uint64_t records, dropped; /* in all traces */
    trace_data rows[ROWS];
} trace_experiment;

/* ---- one segment ---- */

typedef struct disturber {
    trace_experiment *x;
    _Atomic uint32_t stop;
    lanes_disturbance done;
    bool ok;
    char error[PLAIN_ERROR];
    pthread_t thread;
} disturber;

static void *bench_disturb(void *argument)
{
    disturber *d = argument;
    trace_experiment *x = d->x;
    d->ok = bench_lanes_heddle_disturb(x->devices, x->n, &x->image, &x->disturb_size, &d->stop, &d->done, d->error);
    return NULL;
}

static bool bench_poison_all(trace_experiment *x, char *error)
{
    bool ok = true;
    for (int i = 0; i < x->n && ok; i++) {
        ok = bench_lanes_heddle_poison(&x->devices[i], error);
    }
    return ok;
}

static bool bench_check_all(trace_experiment *x, char *error)
{
    for (int i = 0; i < x->n; i++) {
        if (!bench_lanes_heddle_result(&x->devices[i], x->c, error)) {
            return false;
        }
        double worst = bench_lanes_problem_error(&x->problems[i], x->c);
        if (!(worst <= 1)) {
            snprintf(error, PLAIN_ERROR, "wrong result on device %d: its error is %.3g times what rounding can do", i,
                     worst);
            return false;
        }
    }
    return true;
}

static bool bench_run_products(trace_experiment *x, char *error)
{
    uint64_t now = cli_stats_monotonic();
    lanes_when when = {.begin = now, .end = now + x->segment_ns, .batch = x->batch};
    memset(&x->result, 0, sizeof(x->result));
    return bench_poison_all(x, error) && bench_lanes_heddle_loop(x->devices, x->n, &when, &x->result, error) &&
           bench_check_all(x, error);
}

static bool bench_run_disturbed(trace_experiment *x, double *cycles_per_s, char *error)
{
    disturber d = {.x = x};
    if (pthread_create(&d.thread, NULL, bench_disturb, &d) != 0) {
        snprintf(error, PLAIN_ERROR, "cannot start a thread");
        return false;
    }
    bool ok = bench_run_products(x, error);
    atomic_store_explicit(&d.stop, 1, memory_order_release);
    pthread_join(d.thread, NULL);
    *cycles_per_s = d.done.elapsed_ns ? (double)d.done.cycles / ((double)d.done.elapsed_ns * 1e-9) : 0;
    if (ok && !d.ok) {
        memcpy(error, d.error, PLAIN_ERROR);
    }
    return ok && d.ok;
}

static bool bench_run_row(trace_experiment *x, trace_row row, trace_side side, int round, char *error)
{
    trace_data *data = &x->rows[row];
    double *us = &data->us[side][round], warm;
    switch (row) {
    case FLOW:
        return bench_lanes_heddle_flow(x->devices, x->launches / 4, &warm, error) &&
               bench_lanes_heddle_flow(x->devices, x->launches, us, error);
    case TRIP:
        return bench_lanes_heddle_trips(x->devices, x->trips / 4, &warm, error) &&
               bench_lanes_heddle_trips(x->devices, x->trips, us, error);
    default:
        if (!bench_lanes_heddle_warm(x->devices, x->n, x->batch, error) ||
            !(row == MATMUL ? bench_run_products(x, error)
                            : bench_run_disturbed(x, &data->cycles_per_s[side][round], error))) {
            return false;
        }
        *us = (double)x->result.elapsed_ns * 1e-3 * x->n / (double)x->result.kernels;
        data->submit_ns[side][round] = cli_stats_summarise(&x->result.submit).median_ns;
        return true;
    }
}

static bool bench_run_side(trace_experiment *x, trace_row row, trace_side side, int round, char *error)
{
    hd_trace_options options = {.size = sizeof(options), .detail = side == FULL ? HD_TRACE_FULL : HD_TRACE_EDGES};
    hd_trace_info came_to = {.size = sizeof(came_to)};
    if (side != NONE && !cli_report_check(hd_trace_start(x->runtime, x->file, &options), "hd_trace_start", error)) {
        return false;
    }
    bool ok = bench_run_row(x, row, side, round, error);
    if (side != NONE) {
        bool stopped =
            cli_report_check(hd_trace_stop(x->runtime, &came_to), "hd_trace_stop", ok ? error : (char[PLAIN_ERROR]){0});
        unlink(x->file);
        ok = ok && stopped;
        x->records += came_to.records;
        x->dropped += came_to.dropped;
    }
    return ok;
}

/* ---- goals ---- */

static double bench_ratio_of(const trace_experiment *x, trace_row row, trace_side side)
{
    double ratios[TRACE_ROUNDS_MAX];
    for (int r = 0; r < x->rounds_done; r++) {
        ratios[r] = x->rows[row].us[side][r] / x->rows[row].us[NONE][r];
    }
    return cli_stats_spread_of(ratios, x->rounds_done).median;
}

/* The extra cost of a submit, by rounds. */
static double bench_submit_more(const trace_experiment *x, trace_side side)
{
    double more[TRACE_ROUNDS_MAX];
    for (int r = 0; r < x->rounds_done; r++) {
        more[r] = x->rows[MATMUL].submit_ns[side][r] - x->rows[MATMUL].submit_ns[NONE][r];
    }
    return cli_stats_spread_of(more, x->rounds_done).median;
}

static void bench_make_goals(const trace_experiment *x, report_goal out[GOALS])
{
    out[0] = (report_goal){.id = "submit",
                           .text = "a submit, more with a trace",
                           .limit = 60,
                           .value = bench_submit_more(x, EDGES),
                           .unit = "ns"};
    for (int row = 0; row < ROWS; row++) {
        out[1 + row] = (report_goal){.id = row_names[row],
                                     .text = row_texts[row],
                                     .limit = 1.02,
                                     .value = bench_ratio_of(x, (trace_row)row, EDGES),
                                     .unit = ""};
    }
}

/* ---- output ---- */

static void bench_put_row(hdi_json *j, const trace_experiment *x, int row)
{
    const trace_data *data = &x->rows[row];
    hdi_json_object(j);
    cli_report_put_string(j, "id", row_names[row]);
    cli_report_put_string(j, "name", row_texts[row]);
    for (int side = 0; side < SIDES; side++) {
        hdi_json_key(j, side_names[side]);
        hdi_json_object(j);
        cli_report_put_values(j, "us", data->us[side], x->rounds_done);
        if (row >= MATMUL) {
            cli_report_put_values(j, "submit_ns", data->submit_ns[side], x->rounds_done);
        }
        if (row == DISTURBED) {
            cli_report_put_values(j, "disturb_cycles_per_s", data->cycles_per_s[side], x->rounds_done);
        }
        if (side != NONE) {
            cli_report_put_number(j, "ratio", bench_ratio_of(x, (trace_row)row, (trace_side)side));
        }
        if (side != NONE && row == MATMUL) {
            cli_report_put_number(j, "submit_more_ns", bench_submit_more(x, (trace_side)side));
        }
        hdi_json_object_end(j);
    }
    hdi_json_object_end(j);
}

static void bench_print_json(const void *results, FILE *out)
{
    const trace_experiment *x = results;
    hdi_json writer, *j = &writer;
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_begin(j, out, "trace", &x->record, x->runtime);
    cli_report_put_clock(j);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds_done);
    cli_report_put_integer(j, "devices", (uint64_t)x->n);
    cli_report_put_integer(j, "launches", x->launches);
    cli_report_put_integer(j, "trips", x->trips);
    cli_report_put_integer(j, "segment_ns", x->segment_ns);
    cli_report_put_integer(j, "records", x->records);
    cli_report_put_integer(j, "dropped", x->dropped);
    hdi_json_object_end(j);
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int row = 0; row < ROWS; row++) {
        bench_put_row(j, x, row);
    }
    hdi_json_array_end(j);
    cli_report_put_goals(j, goals, GOALS, !x->on_host);
    cli_report_end(j);
}

/* ---- conductor ---- */

static bool bench_open_file(trace_experiment *x, char *error)
{
    const char *folder = secure_getenv("TMPDIR");
    int n = snprintf(x->file, sizeof(x->file), "%s/heddle-bench-XXXXXX", folder && folder[0] ? folder : "/tmp");
    int file = n > 0 && n < (int)sizeof(x->file) ? mkstemp(x->file) : -1;
    if (file < 0) {
        snprintf(error, PLAIN_ERROR, "no file can be made in the folder for temporary ones; set TMPDIR to another one");
        x->file[0] = 0;
        return false;
    }
    close(file);
    return true;
}

static void bench_size_run(trace_experiment *x)
{
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    x->launches = x->on_host ? 400 : o->quick ? 20000 : 50000;
    x->trips = x->on_host ? 200 : o->quick ? 4000 : 10000;
    x->segment_ns = (uint64_t)(x->on_host || o->quick ? 100 : 300) * 1000000;
    x->batch = x->on_host ? 1 : LANES_BATCH_MAX;
    x->disturb_size = bench_lanes_disturb_usual(x->on_host);
    x->disturb_size.every_ns = DISTURB_EVERY_NS;
}

static bool bench_open_devices(trace_experiment *x, char *error)
{
    int n = hd_device_count(x->runtime);
    x->n = n < LANES_DEVICES_MAX ? n : LANES_DEVICES_MAX;
    for (int i = 0; i < x->n; i++) {
        hd_device_info device = {.size = sizeof(device)};
        if (!cli_report_check(hd_device_get_info(x->runtime, i, &device), "hd_device_get_info", error) ||
            !bench_lanes_problem_make(i, true, &x->problems[i], error) ||
            !bench_lanes_heddle_open(x->runtime, i, &x->problems[i], &x->devices[i], error)) {
            return false;
        }
        x->on_host = device.is_host;
    }
    return true;
}

static bool bench_open_all(trace_experiment *x, char *error)
{
    x->info.size = sizeof(x->info);
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error) ||
        !cli_plain_builtin(x->info.driver, &x->image, error) || !bench_open_devices(x, error) ||
        !bench_open_file(x, error)) {
        return false;
    }
    x->c = malloc(sizeof(float) * LANES_M * LANES_N);
    if (!x->c) {
        snprintf(error, PLAIN_ERROR, "out of memory");
    }
    return x->c != NULL;
}

static bool bench_measure_all(void *results, char *error)
{
    trace_experiment *x = results;
    if (!bench_open_all(x, error)) {
        return false;
    }
    bench_size_run(x);
    cli_stats_clock_start();
    for (int round = -1; round < x->rounds; round++) { /* the first one warms up */
        char stage[64];
        snprintf(stage, sizeof(stage), round < 0 ? "warming up" : "round %d of %d", round + 1, x->rounds);
        for (int i = 0; i < ROWS * SIDES; i++) {
            trace_row row = (trace_row)(i / SIDES);
            trace_side side = (trace_side)((i + round + 1) % SIDES);
            cli_report_progress(&x->options->run, stage, row_names[row],
                                (double)((round + 1) * ROWS * SIDES + i) / ((x->rounds + 1) * ROWS * SIDES));
            if (!bench_run_side(x, row, side, round < 0 ? 0 : round, error)) {
                return false;
            }
        }
        x->rounds_done = round + 1;
    }
    return true;
}

static void bench_close_all(void *results)
{
    trace_experiment *x = results;
    for (int i = 0; i < x->n; i++) {
        if (x->devices[i].runtime) {
            bench_lanes_heddle_close(&x->devices[i]);
        }
        bench_lanes_problem_release(&x->problems[i]);
    }
    hd_close(x->runtime);
    free(x->c);
    if (x->file[0]) {
        unlink(x->file);
    }
}

int bench_trace_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench trace", bench_measure_all, bench_close_all, bench_print_json};
    trace_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
