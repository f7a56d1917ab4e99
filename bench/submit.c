/* submit.c - `heddle bench submit`: the cost of submitting, by number of threads, and how long
 * submits hold up other threads. For comparison, equally many threads make plain driver calls.
 *
 * Threads: the conductor; the threads of a sample have ended before the next sample begins. Locks:
 * none.
 * Always: every round measures every row once on each side, the driver first in even rounds. A
 * kernel counts every launch, and the counts are compared.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/submit_parts.h"

enum { ROUNDS_GPU = 5, ROUNDS_HOST = 3, ROUNDS_QUICK = 2, GOALS = 10 };

static const uint64_t sample_gpu_ns = 60000000, sample_host_ns = 100000000, sample_quick_ns = 20000000;

const char submit_parts[] = "one,all,ways,beside,blocked";

const char submit_help[] =
    "Launches of one block that adds one to a count. No work is smaller, so what is left is the way to the device.\n"
    "A thread has a lane, or a stream of the driver, of its own. It launches 256 times, waits, and begins again.\n"
    "\n"
    "  one      1, 4, 8 and 16 threads on one device\n"
    "  all      as many threads on all devices; one thread drives all of them (more than one device)\n"
    "  ways     one thread: its memory was written from program memory, not filled; 8 threads whose every launch is "
    "the\n"
    "           one before again, while all others change an argument; and lanes that are cold: each of 16 gets one\n"
    "           launch, after 32 MiB of other memory went through the caches\n"
    "  beside   0, 1, 4 and 8 threads do so on one device, and one thread more launches and waits there\n"
    "  blocked  a read, a write, a copy and a fill of 4 KiB, beside copies that wait for a kernel which runs for\n"
    "           milliseconds: those of another thread, and its own\n"
    "\n"
    "Columns: launches a second of all threads together, on both sides, and what a call costs the thread that makes\n"
    "it, median and 99th percentile (of the round trip in the part `beside`). Then the ratios of all three.\n"
    "Ratios are medians of the rounds.\n"
    "Beside it stands what a cache line needs from one processor to another, since a command has to cross.\n";

const submit_row submit_rows[SUBMIT_ROWS] = {
    {.id = "one_1", .part = "one", .text = "1 thread, one device", .threads = 1},
    {.id = "one_4", .part = "one", .text = "4 threads, one device", .threads = 4},
    {.id = "one_8", .part = "one", .text = "8 threads, one device", .threads = 8},
    {.id = "one_16", .part = "one", .text = "16 threads, one device", .threads = 16},
    {.id = "all_1", .part = "all", .text = "1 thread, all devices", .threads = 1, .all_devices = true},
    {.id = "all_4", .part = "all", .text = "4 threads, all devices", .threads = 4, .all_devices = true},
    {.id = "all_8", .part = "all", .text = "8 threads, all devices", .threads = 8, .all_devices = true},
    {.id = "all_16", .part = "all", .text = "16 threads, all devices", .threads = 16, .all_devices = true},
    {.id = "written", .part = "ways", .text = "1 thread, memory written", .threads = 1, .written = true},
    {.id = "same", .part = "ways", .text = "8 threads, the same again", .threads = 8, .same = true},
    {.id = "cold", .part = "ways", .text = "1 thread, 16 cold lanes", .threads = 1, .cold = true},
    {.id = "beside_0", .part = "beside", .text = "launch + wait, alone", .threads = 0, .bystander = true},
    {.id = "beside_1", .part = "beside", .text = "  beside 1 thread", .threads = 1, .bystander = true},
    {.id = "beside_4", .part = "beside", .text = "  beside 4 threads", .threads = 4, .bystander = true},
    {.id = "beside_8", .part = "beside", .text = "  beside 8 threads", .threads = 8, .bystander = true},
};

enum { FIRST_ONE = 0, LAST_ONE = 3 }; /* the rows of the part `one` */

static const submit_row *bench_row_named(const char *id)
{
    const submit_row *row = submit_rows;
    while (strcmp(row->id, id) != 0) {
        row++;
    }
    return row;
}

/* ---- figures ---- */

typedef enum measure { RATE, MEDIAN, P99, MEASURES } measure;

static double bench_value_of(const submit_figure *f, measure m)
{
    return m == RATE ? f->launches_per_s : m == MEDIAN ? f->calls.median_ns : f->calls.p99_ns;
}

/* Computes one value for each round. */
static int bench_values_of(const submit_experiment *x, const submit_row *row, submit_api api, measure m,
                           double out[SUBMIT_ROUNDS_MAX])
{
    const submit_data *d = &x->rows[row - submit_rows];
    for (int i = 0; i < d->rounds; i++) {
        out[i] = bench_value_of(&d->figures[api][i], m);
    }
    return d->rounds;
}

static double bench_median_of(const submit_experiment *x, const submit_row *row, submit_api api, measure m)
{
    double values[SUBMIT_ROUNDS_MAX];
    int n = bench_values_of(x, row, api, m, values);
    return n ? cli_stats_spread_of(values, n).median : NAN;
}

/* Heddle's value over the driver's value, for each round. */
static int bench_ratios_of(const submit_experiment *x, const submit_row *row, measure m, double out[SUBMIT_ROUNDS_MAX])
{
    double driver[SUBMIT_ROUNDS_MAX];
    int n = bench_values_of(x, row, SUBMIT_DRIVER, m, driver);
    bench_values_of(x, row, SUBMIT_HEDDLE, m, out);
    for (int i = 0; i < n; i++) {
        out[i] /= driver[i];
    }
    return n;
}

static double bench_ratio_of(const submit_experiment *x, const submit_row *row, measure m)
{
    double values[SUBMIT_ROUNDS_MAX];
    int n = bench_ratios_of(x, row, m, values);
    return n ? cli_stats_spread_of(values, n).median : NAN;
}

static double bench_worse(double a, double b, bool at_least)
{
    return isnan(a) || isnan(b) ? NAN : (a < b) == at_least ? a : b;
}

static void bench_make_goals(const submit_experiment *x, report_goal out[GOALS])
{
    double half_way = x->one_way_ns / 2, least = bench_ratio_of(x, &submit_rows[FIRST_ONE], RATE);
    for (int i = FIRST_ONE + 1; i <= LAST_ONE; i++) {
        least = bench_worse(least, bench_ratio_of(x, &submit_rows[i], RATE), true);
    }
    double submit = bench_worse(bench_median_of(x, bench_row_named("one_1"), SUBMIT_HEDDLE, MEDIAN),
                                bench_median_of(x, bench_row_named("written"), SUBMIT_HEDDLE, MEDIAN), false);
    const report_goal goals[GOALS] = {
        {.id = "submit",
         .text = "a submit, median: 50 ns, or half of one way",
         .limit = half_way > 50 ? half_way : 50,
         .value = submit,
         .unit = "ns"},
        {.id = "threads_8",
         .text = "8 threads on one device, launches a second vs. the driver",
         .limit = 2.5,
         .value = bench_ratio_of(x, bench_row_named("one_8"), RATE),
         .at_least = true,
         .unit = ""},
        {.id = "threads_any",
         .text = "  any number of threads",
         .limit = 1,
         .value = least,
         .at_least = true,
         .unit = ""},
        {.id = "alone",
         .text = "launch + wait, vs. the driver",
         .limit = 0.78,
         .value = bench_ratio_of(x, bench_row_named("beside_0"), MEDIAN),
         .unit = ""},
        {.id = "beside_1",
         .text = "  beside 1 thread that floods the device",
         .limit = 2,
         .value = bench_ratio_of(x, bench_row_named("beside_1"), MEDIAN),
         .unit = ""},
        {.id = "beside_4",
         .text = "  beside 4",
         .limit = 2,
         .value = bench_ratio_of(x, bench_row_named("beside_4"), MEDIAN),
         .unit = ""},
        {.id = "beside_4_p99",
         .text = "  beside 4, 99th percentile",
         .limit = 2,
         .value = bench_ratio_of(x, bench_row_named("beside_4"), P99),
         .unit = ""},
        {.id = "beside_8",
         .text = "  beside 8",
         .limit = 2,
         .value = bench_ratio_of(x, bench_row_named("beside_8"), MEDIAN),
         .unit = ""},
        {.id = "beside_8_p99",
         .text = "  beside 8, 99th percentile",
         .limit = 2,
         .value = bench_ratio_of(x, bench_row_named("beside_8"), P99),
         .unit = ""},
        {.id = "blocked",
         .text = "4 KiB beside copies that wait, over the same alone (worst)",
         .limit = 2,
         .value = bench_submit_blocked_worst(x),
         .unit = ""},
    };
    memcpy(out, goals, sizeof(goals));
}

/* ---- JSON ---- */

static void bench_put_row(hdi_json *j, const submit_experiment *x, const submit_row *row)
{
    static const char *const sides[SUBMIT_APIS] = {"driver", "heddle"};
    static const char *const keys[MEASURES] = {"launches_per_s", "call_median_ns", "call_p99_ns"};
    static const char *const ratios[MEASURES] = {"rate_ratio", "median_ratio", "p99_ratio"};
    const submit_data *d = &x->rows[row - submit_rows];
    double values[SUBMIT_ROUNDS_MAX];
    hdi_json_object(j);
    cli_report_put_string(j, "id", row->id);
    cli_report_put_string(j, "name", row->text);
    cli_report_put_integer(j, "threads", (uint64_t)row->threads);
    cli_report_put_bool(j, "all_devices", row->all_devices);
    cli_report_put_bool(j, "cold", row->cold);
    cli_report_put_bool(j, "written", row->written);
    cli_report_put_bool(j, "same", row->same);
    cli_report_put_bool(j, "bystander", row->bystander);
    for (int api = 0; api < SUBMIT_APIS; api++) {
        hdi_json_key(j, sides[api]);
        hdi_json_object(j);
        for (int m = row->threads && !row->cold ? RATE : MEDIAN; m < MEASURES; m++) {
            int n = bench_values_of(x, row, (submit_api)api, (measure)m, values);
            cli_report_put_values(j, keys[m], values, n);
        }
        cli_report_put_calls(j, "calls", cli_stats_summarise(&d->calls[api]));
        hdi_json_object_end(j);
    }
    for (int m = row->threads && !row->cold ? RATE : MEDIAN; m < MEASURES; m++) {
        int n = bench_ratios_of(x, row, (measure)m, values);
        cli_report_put_values(j, ratios[m], values, n);
    }
    hdi_json_object_end(j);
}

static void bench_print_json(const void *results, FILE *out)
{
    const submit_experiment *x = results;
    hdi_json writer, *j = &writer;
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_begin(j, out, "submit", &x->record, x->runtime);
    cli_report_put_clock(j);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "devices", (uint64_t)x->n);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    cli_report_put_integer(j, "sample_ns", x->sample_ns);
    cli_report_put_integer(j, "burst", SUBMIT_BURST);
    cli_report_put_integer(j, "launches", x->launches);
    hdi_json_object_end(j);
    if (x->one_way_pairs) {
        hdi_json_key(j, "one_way_ns");
        hdi_json_object(j);
        cli_report_put_number(j, "median", x->one_way_ns);
        cli_report_put_number(j, "min", x->one_way_least_ns);
        cli_report_put_number(j, "max", x->one_way_most_ns);
        cli_report_put_integer(j, "pairs", (uint64_t)x->one_way_pairs);
        hdi_json_object_end(j);
    }
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < SUBMIT_ROWS; i++) {
        if (x->rows[i].rounds) {
            bench_put_row(j, x, &submit_rows[i]);
        }
    }
    hdi_json_array_end(j);
    bench_submit_blocked_put(j, x);
    cli_report_put_goals(j, goals, GOALS, !x->on_host);
    cli_report_end(j);
}

/* ---- conductor ---- */

static bool bench_open_heddle(submit_experiment *x, char *error)
{
    hd_module *module;
    x->info.size = sizeof(x->info);
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error) ||
        !cli_report_check(hd_module_get_builtin(x->runtime, &module), "hd_module_get_builtin", error) ||
        !cli_report_check(hd_kernel_get(module, "hd_axpy_f32", &x->kernel), "hd_kernel_get", error)) {
        return false;
    }
    x->n = hd_device_count(x->runtime);
    if (x->n > SUBMIT_DEVICES_MAX) {
        snprintf(error, PLAIN_ERROR, "there are %d devices, and %d is the most", x->n, SUBMIT_DEVICES_MAX);
        return false;
    }
    return true;
}

static bool bench_open_driver(submit_experiment *x, int i, char *error)
{
    const plain_driver *d = &x->driver;
    hd_device_info info = {.size = sizeof(info)};
    hdcu_context context;
    if (!cli_report_check(hd_device_get_info(x->runtime, i, &info), "hd_device_get_info", error)) {
        return false;
    }
    x->on_host = info.is_host;
    if (!cli_plain_find_ordinal(d, info.uuid, &x->ordinal[i], error) ||
        !PLAIN_TRY(d, error, cuDevicePrimaryCtxRetain, (&context, x->ordinal[i]))) {
        return false;
    }
    x->context[i] = context;
    return PLAIN_TRY(d, error, cuCtxSetCurrent, (context)) &&
           PLAIN_TRY(d, error, cuModuleLoadDataEx, (&x->module[i], x->image.driver, 0, NULL, NULL)) &&
           PLAIN_TRY(d, error, cuModuleGetFunction, (&x->function[i], x->module[i], "hd_axpy_f32"));
}

static bool bench_open_all(submit_experiment *x, char *error)
{
    if (!bench_open_heddle(x, error) || !cli_plain_open(x->info.driver, &x->driver, error) ||
        !cli_plain_builtin(x->info.driver, &x->image, error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        if (!bench_open_driver(x, i, error)) {
            return false;
        }
    }
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    x->sample_ns = o->quick ? sample_quick_ns : x->on_host ? sample_host_ns : sample_gpu_ns;
    return true;
}

static bool bench_is_wanted(const submit_experiment *x, const submit_row *row)
{
    return cli_report_is_wanted(x->options->only, row->part) && !(row->all_devices && x->n == 1);
}

/* Runs one side of a row, in one round. */
static bool bench_measure_side(submit_experiment *x, int row, int round, submit_api api, char *error)
{
    submit_data *d = &x->rows[row];
    if (!bench_submit_row_run(x, &submit_rows[row], api, error)) {
        return false;
    }
    d->figures[api][round] =
        (submit_figure){.launches_per_s = x->sample.launches_per_s, .calls = cli_stats_summarise(&x->sample.calls)};
    cli_stats_merge(&d->calls[api], &x->sample.calls);
    return true;
}

static bool bench_measure_all(void *results, char *error)
{
    submit_experiment *x = results;
    if (!bench_open_all(x, error)) {
        return false;
    }
    cli_stats_clock_start();
    bench_submit_cores_measure(x);
    for (int round = 0; round < x->rounds; round++) {
        char stage[64];
        snprintf(stage, sizeof(stage), "round %d of %d", round + 1, x->rounds);
        for (int i = 0; i < SUBMIT_ROWS; i++) {
            if (!bench_is_wanted(x, &submit_rows[i])) {
                continue;
            }
            cli_report_progress(&x->options->run, stage, submit_rows[i].text,
                                (double)(round * SUBMIT_ROWS + i) / (x->rounds * SUBMIT_ROWS));
            submit_api first = round % 2 ? SUBMIT_HEDDLE : SUBMIT_DRIVER;
            submit_api second = round % 2 ? SUBMIT_DRIVER : SUBMIT_HEDDLE;
            if (!bench_measure_side(x, i, round, first, error) || !bench_measure_side(x, i, round, second, error)) {
                return false;
            }
            x->rows[i].rounds = round + 1;
        }
        if (cli_report_is_wanted(x->options->only, "blocked")) {
            cli_report_progress(&x->options->run, stage, "transfers beside copies that wait",
                                (double)(round + 1) / x->rounds);
            if (!bench_submit_blocked_measure(x, round, error)) {
                return false;
            }
        }
    }
    return true;
}

static void bench_close_all(void *results)
{
    submit_experiment *x = results;
    for (int i = 0; i < x->n && i < SUBMIT_DEVICES_MAX; i++) {
        if (x->context[i]) {
            x->driver.cuCtxSetCurrent(x->context[i]);
            if (x->module[i]) {
                x->driver.cuModuleUnload(x->module[i]);
            }
            x->driver.cuCtxSetCurrent(NULL);
            x->driver.cuDevicePrimaryCtxRelease(x->ordinal[i]);
        }
    }
    hd_close(x->runtime);
}

int bench_submit_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench submit", bench_measure_all, bench_close_all, bench_print_json};
    submit_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
