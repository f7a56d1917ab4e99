/* lanes.c - the conductor of `heddle bench lanes`: opens everything, sizes the run by time, and
 * runs one part after another, each in rounds that interleave its rows.
 *
 * Threads: all work is on the calling thread. It must be the program's first, because the worker
 * processes end with it.
 * Locks: none.
 * Always: every row of a part runs once in every round of that part, in an order that rotates from
 * round to round. A part's first round is short, warms up, and does not count. With slow kernels
 * there is no such round. One runtime is open at a time, so that no idle engine uses a measured
 * GPU. Everything that was opened is closed on every path, in reverse order.
 */
#include <stdlib.h>
#include <string.h>
#include "bench/lanes_parts.h"

enum {
    KERNEL_TRIES = 3, /* launches on every device that show the duration of a kernel */
    /* rows by which the order rotates per round; coprime with the number of rows of a part */
    ROTATION = 5,
    BATCHES_PER_SEGMENT = 8,
    WARM_MAX = 20,
    /* with slower kernels there is no warm-up round, because it would change nothing */
    WARM_KERNEL_US = 10000
};

/* Measuring time for a row, by kind of device. */
static const double gpu_row_s = 4.2, host_row_s = 2.2;

const char lanes_help[] =
    "The product of a 320 x 320 and a 320 x 640 matrix of floats, on every device at once, driven in different ways:\n"
    "  driver   plain driver calls: one device alone, a thread per device, a process per device\n"
    "  Heddle   one device alone, a thread per device, one thread for all devices; in placement thread, and in\n"
    "           placement process, where a worker process for each device makes the driver calls\n"
    "and each again while another thread allocates and frees device memory, pins and unpins host memory, and loads\n"
    "and unloads a module, over and over, on one device after the other. The disturbance goes through the row's own\n"
    "interface. Beside the processes it is one further process, the strongest reference there is: nothing in it\n"
    "shares a lock with the ones that are measured. The last row of each placement has Heddle disturbed by plain\n"
    "driver calls in its own process, as another library would make them.\n"
    "\n"
    "All rows are measured in one run, interleaved in rounds, with the same discipline: launches in batches, at most\n"
    "two batches in flight, nothing waited for inside a batch. Placement process comes first, while this program "
    "makes\n"
    "no driver call of its own, beside the process-per-device row measured again in the same rounds.\n"
    "\n"
    "Columns:\n"
    "  per kernel      from one end of a kernel to the next on one device; median of the rounds\n"
    "  share           a device's throughput as a share of the throughput in the process-per-device row of the same\n"
    "                  round (the disturbed rows: of the disturbed one); median of the rounds\n"
    "  disturb cycles  times a second that the disturber allocated, pinned and loaded\n"
    "  submit          what a launch costs the calling thread: median and 99th percentile of all calls of all rounds,\n"
    "                  the cost of reading the clock subtracted\n"
    "\n"
    "Every result of every row is compared with a reference in double precision; a row that computes a wrong result,\n"
    "or nothing, ends the run with exit status 1. Whether goals are reached does not change the exit status.\n";

/* Takes the first `count` devices of the list, for example "0,1" of "0,1,2,3" or of "all". */
static void bench_first_devices(const char *list, int count, char *out, size_t bytes)
{
    size_t used = 0;
    bool all = strcmp(list, "all") == 0;
    out[0] = 0;
    for (int i = 0; i < count && used + 16 < bytes; i++) {
        size_t length = all ? 0 : strcspn(list, ", ");
        used += (size_t)(all ? snprintf(out + used, bytes - used, "%s%d", i ? "," : "", i)
                             : snprintf(out + used, bytes - used, "%s%.*s", i ? "," : "", (int)length, list));
        list += length + strspn(list + length, ", ");
    }
}

static bool bench_open_with(lanes_experiment *x, const char *placement, const char *devices, char *error)
{
    char settings[300];
    snprintf(settings, sizeof(settings), devices ? "placement=%s devices=\"%s\"" : "placement=%s", placement, devices);
    hd_options options = {.size = sizeof(options), .settings = settings};
    if (!cli_report_check(hd_open(&options, &x->runtime), "hd_open", error)) {
        return false;
    }
    x->n = hd_device_count(x->runtime);
    return true;
}

/* Opens the runtime on the devices that the options select. */
static bool bench_open_runtime(lanes_experiment *x, const char *placement, char *error)
{
    int wanted = x->options->devices;
    if (!bench_open_with(x, placement, NULL, error)) {
        return false;
    }
    if (wanted > x->n || x->n > LANES_DEVICES_MAX) {
        snprintf(error, PLAIN_ERROR, "%d devices were asked for; there are %d, and %d is the most", wanted, x->n,
                 LANES_DEVICES_MAX);
        return false;
    }
    if (wanted && wanted < x->n) {
        char list[256] = "";
        hd_option_info option = {.size = sizeof(option)};
        for (int i = 0; hd_option_get_info(x->runtime, i, &option) == HD_OK; i++) {
            if (strcmp(option.name, "devices") == 0) {
                bench_first_devices(option.value, wanted, list, sizeof(list));
            }
        }
        hd_close(x->runtime);
        x->runtime = NULL;
        if (!bench_open_with(x, placement, list, error)) {
            return false;
        }
    }
    x->info.size = sizeof(x->info);
    return cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error);
}

/* Opens Heddle's side of a part. */
static bool bench_open_heddle(lanes_experiment *x, const char *placement, char *error)
{
    if (!bench_open_runtime(x, placement, error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        x->devices[i].size = sizeof(x->devices[i]);
        if (!cli_report_check(hd_device_get_info(x->runtime, i, &x->devices[i]), "hd_device_get_info", error) ||
            (!x->problems[i].a && !bench_lanes_problem_make(i, true, &x->problems[i], error)) ||
            !bench_lanes_heddle_open(x->runtime, i, &x->problems[i], &x->heddle[i], error)) {
            return false;
        }
        x->on_host = x->devices[i].is_host;
    }
    return true;
}

static void bench_close_heddle(lanes_experiment *x)
{
    for (int i = 0; i < x->n && i < LANES_DEVICES_MAX; i++) {
        bench_lanes_heddle_close(&x->heddle[i]);
    }
    hd_close(x->runtime);
    x->runtime = NULL;
}

/* Opens the driver for plain calls in this process, which starts the driver here. */
static bool bench_open_plain(lanes_experiment *x, char *error)
{
    if (!cli_plain_open(x->info.driver, &x->driver, error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        if (!cli_plain_device_open(&x->driver, x->devices[i].uuid, &x->image, LANES_M, LANES_N, LANES_K,
                                   x->problems[i].a, x->problems[i].b, &x->plain[i], error)) {
            return false;
        }
    }
    return true;
}

/* Measures the duration of a kernel while all devices are busy. */
static bool bench_time_kernel(lanes_experiment *x, char *error)
{
    if (!bench_lanes_heddle_warm(x->heddle, x->n, 1, error)) {
        return false;
    }
    uint64_t begin = cli_stats_monotonic();
    if (!bench_lanes_heddle_warm(x->heddle, x->n, KERNEL_TRIES, error)) {
        return false;
    }
    x->kernel_us = (double)(cli_stats_monotonic() - begin) * 1e-3 / KERNEL_TRIES;
    return true;
}

static int bench_rows_measured(const lanes_experiment *x)
{
    int rows = 0;
    for (int p = 0; p < LANES_PARTS; p++) {
        rows += x->measured[p] ? lanes_parts[p].count : 0;
    }
    return rows;
}

/* Finds values that need a runtime and are the same for all parts. */
static bool bench_prepare(lanes_experiment *x, char *error)
{
    x->disturb_size = bench_lanes_disturb_usual(x->on_host);
    x->c = malloc(sizeof(float) * LANES_M * LANES_N);
    if (!x->c) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    return cli_plain_builtin(x->info.driver, &x->image, error) && bench_time_kernel(x, error);
}

/* The length of the warm-up round, as a part of a counted round. */
static double bench_warm_round(const lanes_experiment *x)
{
    return x->kernel_us < WARM_KERNEL_US ? 0.5 : 0;
}

/* Chooses rounds, segment length and batch size to fit the time. A segment also takes the time to
 * warm up, and to drain two batches. Slow kernels get fewer rounds, because shorter segments would
 * be meaningless. */
static void bench_size_run(lanes_experiment *x, double seconds)
{
    const bench_options *o = x->options;
    double kernel_ns = x->kernel_us * 1e3, segment;
    x->rounds = o->rounds ? o->rounds : o->quick ? 3 : x->on_host ? 3 : 7;
    for (;; x->rounds--) {
        segment = seconds * 1e9 / (bench_rows_measured(x) * (x->rounds + bench_warm_round(x)));
        double batch = segment / (BATCHES_PER_SEGMENT * kernel_ns);
        x->batch = batch < 1 ? 1 : batch > LANES_BATCH_MAX ? LANES_BATCH_MAX : (int)batch;
        x->warm = x->batch < WARM_MAX ? x->batch : WARM_MAX;
        segment -= (x->warm + 1.5 * x->batch) * kernel_ns;
        if (segment >= 2 * kernel_ns || o->rounds || x->rounds == 1) {
            break;
        }
    }
    x->segment_ns = (uint64_t)(segment > 2 * kernel_ns ? segment : 2 * kernel_ns);
}

/* Computes the shares in a round of a part, once all its rows are measured. */
static void bench_fill_shares(lanes_experiment *x, lanes_part part, int round)
{
    const lanes_part_rows *p = &lanes_parts[part];
    for (int i = p->first; i < p->first + p->count; i++) {
        int reference = lanes_rows[i].disturber == LANES_QUIET ? p->processes : p->processes_disturbed;
        x->rows[i].rounds[round].share =
            x->rows[reference].rounds[round].us_per_kernel / x->rows[i].rounds[round].us_per_kernel;
    }
}

static bool bench_run_round(lanes_experiment *x, lanes_part part, int round, const char *stage, double begin,
                            double end, char *error)
{
    const lanes_part_rows *p = &lanes_parts[part];
    for (int i = 0; i < p->count; i++) {
        int row = p->first + (i + round * ROTATION) % p->count;
        char item[128], why[PLAIN_ERROR];
        snprintf(item, sizeof(item), "%s%s", lanes_rows[row].name,
                 lanes_rows[row].disturber == LANES_BY_OWN ? ", disturbed" : "");
        cli_report_progress(&x->options->run, stage, item, begin + (end - begin) * i / p->count);
        /* names the phases in a trace of the run; without a trace or a runtime it does nothing */
        hd_range_push(x->runtime, stage);
        hd_range_push(x->runtime, item);
        bool well = bench_lanes_segment_run(x, row, round, why);
        hd_range_pop(x->runtime);
        hd_range_pop(x->runtime);
        if (!well) {
            snprintf(error, PLAIN_ERROR, "%s: %.380s", item, why);
            return false;
        }
    }
    bench_fill_shares(x, part, round);
    return true;
}

/* Runs the rounds of one part; `begin` and `end` are its share of the progress bar. */
static bool bench_run_rounds(lanes_experiment *x, lanes_part part, double begin, double end, char *error)
{
    const char *placement = part == LANES_PART_WITHIN ? x->within : "process";
    /* a round's share of the bar */
    double warm = bench_warm_round(x), each = (end - begin) / (x->rounds + warm);
    uint64_t segment_ns = x->segment_ns;
    char stage[96];
    snprintf(stage, sizeof(stage), "placement %s, warming up", placement);
    x->segment_ns = segment_ns / 4;
    bool warmed = warm <= 0 || bench_run_round(x, part, 0, stage, begin, begin + each * warm, error);
    x->segment_ns = segment_ns;
    if (!warmed) {
        return false;
    }
    /* discards the results of the warm-up round */
    memset(x->rows + lanes_parts[part].first, 0, sizeof(x->rows[0]) * (size_t)lanes_parts[part].count);
    for (int r = 0; r < x->rounds; r++) {
        double done = begin + each * (warm + r);
        snprintf(stage, sizeof(stage), "placement %s%s, round %d of %d", placement,
                 part == LANES_PART_BESIDE ? " beside driver calls" : "", r + 1, x->rounds);
        if (!bench_run_round(x, part, r, stage, done, done + each, error)) {
            return false;
        }
    }
    x->rounds_done = x->rounds;
    return true;
}

/* Selects all parts, or the one that HEDDLE_PLACEMENT names. */
static void bench_choose_parts(lanes_experiment *x)
{
    const char *placement = secure_getenv("HEDDLE_PLACEMENT");
    bool all = !placement || !placement[0], process = all || strcmp(placement, "process") == 0;
    x->within = all || process ? "thread" : placement;
    x->measured[LANES_PART_PROCESS] = x->measured[LANES_PART_BESIDE] = process;
    x->measured[LANES_PART_WITHIN] = all || !process;
}

/* The first part that opens sizes the run and starts the worker processes. */
static bool bench_start(lanes_experiment *x, double *seconds, char *error)
{
    const bench_options *o = x->options;
    if (!bench_prepare(x, error)) {
        return false;
    }
    double usual = bench_rows_measured(x) * (x->on_host ? host_row_s : gpu_row_s);
    *seconds = o->seconds > 0 ? o->seconds : o->quick ? usual / 4 : usual;
    bench_size_run(x, 0.9 * *seconds);
    cli_report_progress(&o->run, "starting worker processes", "", 0);
    return bench_lanes_workers_start(x->info.driver, x->devices, x->n, &x->disturb_size, &x->workers, error);
}

static bool bench_measure_process(lanes_experiment *x, double *seconds, double end, char *error)
{
    double tiny = x->measured[LANES_PART_WITHIN] ? 0.05 : 0.1;
    if (!bench_open_heddle(x, "process", error) || !bench_start(x, seconds, error) ||
        !bench_run_rounds(x, LANES_PART_PROCESS, 0, 0.75 * end, error)) {
        return false;
    }
    cli_report_progress(&x->options->run, "placement process, one lane", "", 0.75 * end);
    if (!bench_lanes_tiny_run(x, LANES_PART_PROCESS, tiny * *seconds, error) || !bench_open_plain(x, error)) {
        return false;
    }
    return bench_run_rounds(x, LANES_PART_BESIDE, 0.85 * end, end, error);
}

static bool bench_measure_within(lanes_experiment *x, double *seconds, double begin, char *error)
{
    bool first = !x->workers;
    if (!bench_open_heddle(x, x->within, error) || (first && !bench_start(x, seconds, error)) ||
        (first && !bench_open_plain(x, error)) || !bench_run_rounds(x, LANES_PART_WITHIN, begin, 0.95, error)) {
        return false;
    }
    char stage[96];
    snprintf(stage, sizeof(stage), "placement %s, one lane", x->within);
    cli_report_progress(&x->options->run, stage, "", 0.95);
    return bench_lanes_tiny_run(x, LANES_PART_WITHIN, (first ? 0.1 : 0.05) * *seconds, error);
}

static bool bench_measure(void *experiment, char *error)
{
    lanes_experiment *x = experiment;
    double seconds = 0, middle = 0;
    cli_stats_clock_start();
    bench_choose_parts(x);
    cli_report_progress(&x->options->run, "opening devices", "", 0);
    if (x->measured[LANES_PART_PROCESS]) {
        middle = x->measured[LANES_PART_WITHIN] ? 0.4 : 1;
        if (!bench_measure_process(x, &seconds, middle, error)) {
            return false;
        }
    }
    if (!x->measured[LANES_PART_WITHIN]) {
        return true;
    }
    if (x->runtime) {
        bench_close_heddle(x);
    }
    return bench_measure_within(x, &seconds, middle, error);
}

static void bench_close_all(void *experiment)
{
    lanes_experiment *x = experiment;
    bench_lanes_workers_stop(x->workers);
    bench_close_heddle(x);
    for (int i = 0; i < LANES_DEVICES_MAX; i++) {
        cli_plain_device_close(&x->driver, &x->plain[i]);
        bench_lanes_problem_release(&x->problems[i]);
    }
    free(x->c);
}

int bench_lanes_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench lanes", bench_measure, bench_close_all, bench_lanes_print_json};
    lanes_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
