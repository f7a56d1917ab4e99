/* lanes.c - the conductor of `heddle bench lanes`: opens everything, sizes the run by time, interleaves the rows in
 * rounds.
 *
 * Threads: all of it on the calling thread, which must be the program's first (the worker processes end with it).
 * Locks: none.
 * What always holds: every row runs once in every round, in an order that rotates from round to round; the first
 * round, a short one, warms up and is not counted (it is left out where kernels are slow); what was opened is closed on
 * every way out, in the reverse order.
 */
#include "bench/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bench/lanes_parts.h"

enum {
    KERNEL_TRIES = 3, /* launches on every device that tell how long a kernel takes */
    ROTATION = 5,     /* rows that the order moves on per round; has no common divisor with LANES_ROWS */
    BATCHES_PER_SEGMENT = 8,
    WARM_MAX = 20,
    WARM_KERNEL_US = 10000 /* kernels that are slower get no round to warm up: beside them nothing needs it */
};

const char lanes_help[] =
    "The product of a 320 x 320 and a 320 x 640 matrix of floats, on every device at once, driven in different ways:\n"
    "  driver   plain driver calls: one device alone; a thread per device; a process per device\n"
    "  Heddle   one device alone; a thread per device; one thread for all devices\n"
    "and each again while another thread allocates and frees device memory, pins and unpins host memory, and loads\n"
    "and unloads a module, over and over, on one device after the other. The disturbance goes through the row's own\n"
    "interface. Beside the processes it is one further process, the strongest reference there is: nothing in it\n"
    "shares a lock with the ones that are measured. The last row has Heddle disturbed by plain driver calls in its\n"
    "own process, as another library would make them.\n"
    "\n"
    "All rows are measured in one run, interleaved in rounds, with the same discipline: launches in batches, at most\n"
    "two batches in flight, nothing waited for inside a batch.\n"
    "\n"
    "Columns:\n"
    "  us/kernel   microseconds from one end of a kernel to the next on one device; median of the rounds\n"
    "  share       a device's throughput as a share of the throughput in the process-per-device row of the same\n"
    "              round (the disturbed rows: of the disturbed one); median of the rounds\n"
    "  submit      what a launch costs the calling thread: median, 99th percentile and largest of all calls of all\n"
    "              rounds, the cost of reading the clock subtracted\n"
    "  disturb/s   times a second that the disturber allocated, pinned and loaded\n"
    "\n"
    "Every result of every row is compared with a reference in double precision; a row that computes a wrong result,\n"
    "or nothing, ends the run with exit status 1. Whether goals are reached does not change the exit status.\n";

static void progress(const lanes_experiment *x, const char *stage, const char *item, double done)
{
    if (x->options->progress) {
        x->options->progress(x->options->context, stage, item, done);
    }
}

/* "0,1" out of "0,1,2,3", or out of "all". */
static void first_devices(const char *list, int count, char *out, size_t bytes)
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

/* Opens the runtime on the devices that the options ask for. */
static bool open_runtime(lanes_experiment *x, char *error)
{
    int wanted = x->options->devices;
    if (!lanes_heddle_check(hd_open(NULL, &x->runtime), "hd_open", error)) {
        return false;
    }
    x->n = hd_device_count(x->runtime);
    if (wanted > x->n || x->n > LANES_DEVICES_MAX) {
        snprintf(error, PLAIN_ERROR, "%d devices were asked for; there are %d, and %d is the most", wanted, x->n,
                 LANES_DEVICES_MAX);
        return false;
    }
    if (wanted && wanted < x->n) {
        char list[256] = "", settings[300];
        hd_option_info option = {.size = sizeof(option)};
        for (int i = 0; hd_option_get(x->runtime, i, &option) == HD_OK; i++) {
            if (strcmp(option.name, "devices") == 0) {
                first_devices(option.value, wanted, list, sizeof(list));
            }
        }
        hd_close(x->runtime);
        x->runtime = NULL;
        snprintf(settings, sizeof(settings), "devices=\"%s\"", list);
        hd_options options = {.size = sizeof(options), .settings = settings};
        if (!lanes_heddle_check(hd_open(&options, &x->runtime), "hd_open", error)) {
            return false;
        }
        x->n = hd_device_count(x->runtime);
    }
    x->info.size = sizeof(x->info);
    return lanes_heddle_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error);
}

static bool open_devices(lanes_experiment *x, char *error)
{
    if (!plain_open(x->info.driver, &x->driver, error) || !plain_builtin(x->info.driver, &x->image, error)) {
        return false;
    }
    x->c = malloc(sizeof(float) * LANES_M * LANES_N);
    if (!x->c) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        x->devices[i].size = sizeof(x->devices[i]);
        if (!lanes_heddle_check(hd_device_info(x->runtime, i, &x->devices[i]), "hd_device_info", error) ||
            !lanes_problem_make(i, true, &x->problems[i], error) ||
            !plain_device_open(&x->driver, x->devices[i].uuid, &x->image, LANES_M, LANES_N, LANES_K, x->problems[i].a,
                               x->problems[i].b, &x->plain[i], error) ||
            !lanes_heddle_open(x->runtime, i, &x->problems[i], &x->heddle[i], error)) {
            return false;
        }
        x->on_host = x->devices[i].is_host;
    }
    size_t megabyte = (size_t)1 << 20;
    x->disturb_size = (lanes_disturb_size){.device_bytes = (x->on_host ? 8 : 64) * megabyte,
                                           .pinned_low = megabyte,
                                           .pinned_high = (x->on_host ? 4 : 16) * megabyte};
    return true;
}

/* How long a kernel takes with all devices busy. */
static bool time_kernel(lanes_experiment *x, char *error)
{
    uint64_t begin = 0;
    for (int tries = 1; tries <= KERNEL_TRIES; tries += KERNEL_TRIES - 1) { /* once to warm up */
        begin = stats_monotonic();
        for (int i = 0; i < x->n * tries; i++) {
            plain_device *p = &x->plain[i % x->n];
            if (!PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (p->context)) ||
                !plain_check(&x->driver, plain_launch_matmul(&x->driver, p), "cuLaunchKernel", error)) {
                return false;
            }
        }
        for (int i = 0; i < x->n; i++) {
            if (!PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (x->plain[i].context)) ||
                !PLAIN_TRY(&x->driver, error, cuStreamSynchronize, (x->plain[i].stream))) {
                return false;
            }
        }
    }
    x->kernel_us = (double)(stats_monotonic() - begin) * 1e-3 / KERNEL_TRIES;
    return true;
}

/* The round that warms up, as a part of a round that is counted. */
static double warm_round(const lanes_experiment *x)
{
    return x->kernel_us < WARM_KERNEL_US ? 0.5 : 0;
}

/* Rounds, the length of a segment and the launches in a batch, from the time there is. A segment also costs its
 * warm-up and the draining of two batches. Slow kernels get fewer rounds rather than segments too short to mean
 * something. */
static void size_run(lanes_experiment *x, double seconds)
{
    const lanes_options *o = x->options;
    double kernel_ns = x->kernel_us * 1e3, segment;
    x->rounds = o->rounds ? o->rounds : o->quick ? 3 : x->on_host ? 3 : 7;
    for (;; x->rounds--) {
        segment = seconds * 1e9 / (LANES_ROWS * (x->rounds + warm_round(x)));
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

/* The shares of a round, once all its rows are there. */
static void fill_shares(lanes_experiment *x, int round)
{
    for (int i = 0; i < LANES_ROWS; i++) {
        int reference = lanes_rows[i].disturber == LANES_QUIET ? LANES_ROW_PROCESSES : LANES_ROW_PROCESSES_DISTURBED;
        x->rows[i].rounds[round].share =
            x->rows[reference].rounds[round].us_per_kernel / x->rows[i].rounds[round].us_per_kernel;
    }
}

static bool run_round(lanes_experiment *x, int round, const char *stage, double begin, double end, char *error)
{
    for (int i = 0; i < LANES_ROWS; i++) {
        int row = (i + round * ROTATION) % LANES_ROWS;
        char item[128], why[PLAIN_ERROR];
        snprintf(item, sizeof(item), "%s%s", lanes_rows[row].name,
                 lanes_rows[row].disturber == LANES_BY_OWN ? ", disturbed" : "");
        progress(x, stage, item, begin + (end - begin) * i / LANES_ROWS);
        if (!lanes_segment_run(x, row, round, why)) {
            snprintf(error, PLAIN_ERROR, "%s: %.380s", item, why);
            return false;
        }
    }
    fill_shares(x, round);
    return true;
}

static bool run_rounds(lanes_experiment *x, char *error)
{
    double warm = warm_round(x), part = 0.9 / (x->rounds + warm); /* of the bar, a round */
    uint64_t segment_ns = x->segment_ns;
    x->segment_ns = segment_ns / 4;
    if (warm > 0 && !run_round(x, 0, "warming up", 0, part * warm, error)) {
        return false;
    }
    x->segment_ns = segment_ns;
    memset(x->rows, 0, sizeof(x->rows));
    for (int r = 0; r < x->rounds; r++) {
        char stage[64];
        snprintf(stage, sizeof(stage), "round %d of %d", r + 1, x->rounds);
        if (!run_round(x, r, stage, part * (warm + r), part * (warm + r + 1), error)) {
            return false;
        }
        x->rounds_done = r + 1;
    }
    return true;
}

static bool measure(lanes_experiment *x, char *error)
{
    const lanes_options *o = x->options;
    stats_clock_start();
    progress(x, "opening devices", "", 0);
    if (!open_runtime(x, error) || !open_devices(x, error) || !time_kernel(x, error)) {
        return false;
    }
    double seconds = o->seconds > 0 ? o->seconds : x->on_host ? 36 : 70;
    seconds = o->quick && o->seconds <= 0 ? seconds / 4 : seconds;
    size_run(x, 0.9 * seconds);
    progress(x, "starting worker processes", "", 0);
    if (!lanes_workers_start(&x->driver, x->devices, x->n, &x->disturb_size, &x->workers, error) ||
        !run_rounds(x, error)) {
        return false;
    }
    progress(x, "one lane: tiny launches, launch + wait", "", 0.9);
    return lanes_tiny_run(x, 0.1 * seconds, error);
}

static void close_all(lanes_experiment *x)
{
    lanes_workers_stop(x->workers);
    for (int i = 0; i < x->n && i < LANES_DEVICES_MAX; i++) {
        lanes_heddle_close(&x->heddle[i]);
        plain_device_close(&x->driver, &x->plain[i]);
        lanes_problem_release(&x->problems[i]);
    }
    hd_close(x->runtime);
    free(x->c);
}

static double wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static FILE *open_json(const lanes_options *o, const char *mode, char *error)
{
    FILE *file = fopen(o->json_file, mode);
    if (!file) {
        snprintf(error, PLAIN_ERROR, "%.400s cannot be written: %s", o->json_file, strerror(errno));
    }
    return file;
}

/* Says before the run whether the file for JSON can be written; leaves its content alone. */
static bool try_json(const lanes_options *o, char *error)
{
    FILE *file = o->json_file ? open_json(o, "ae", error) : NULL;
    return !o->json_file || (file && fclose(file) == 0);
}

static bool write_results(const lanes_experiment *x, char *error)
{
    const lanes_options *o = x->options;
    if (o->json_on_output) {
        lanes_print_json(x, o->output);
    } else {
        lanes_print_table(x, o->output);
    }
    bool ok = fflush(o->output) == 0 && !ferror(o->output);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "the results could not be written");
    }
    if (o->json_file) {
        FILE *file = open_json(o, "we", error);
        if (!file) {
            return false;
        }
        lanes_print_json(x, file);
        if (fclose(file) != 0) {
            snprintf(error, PLAIN_ERROR, "%.400s was not written completely", o->json_file);
            ok = false;
        }
    }
    return ok;
}

int lanes_run(const lanes_options *options)
{
    lanes_experiment *x = calloc(1, sizeof(*x));
    char error[PLAIN_ERROR] = "out of memory";
    bool ok = false;
    if (x) {
        x->options = options;
        x->started = wall_clock();
        ok = try_json(options, error) && measure(x, error);
        x->took_s = wall_clock() - x->started;
        progress(x, NULL, "", 1);
        ok = ok && write_results(x, error);
        close_all(x);
        free(x);
    }
    if (!ok) {
        fprintf(stderr, "heddle bench lanes: %s\n", error);
    }
    return ok ? 0 : 1;
}
