/* lanes_report.c - the results of `heddle bench lanes` as JSON, and goals.
 *
 * Threads: the conductor. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures.
 */
#include <string.h>
#include "bench/lanes_parts.h"

enum { GOALS = 7, SHOWN = 640 };

/* One column of a row over its rounds. */
static stats_spread bench_spread_over(const lanes_experiment *x, int row, size_t offset)
{
    double values[LANES_ROUNDS_MAX];
    for (int r = 0; r < x->rounds_done; r++) {
        memcpy(&values[r], (const char *)&x->rows[row].rounds[r] + offset, sizeof(double));
    }
    return cli_stats_spread_of(values, x->rounds_done);
}
#define SPREAD(x, row, field) bench_spread_over(x, row, offsetof(lanes_segment, field))

/* ---- goals ---- */

/* True if the row belongs to that placement. */
static bool bench_row_belongs(const lanes_row *r, bool process)
{
    return r->api == LANES_HEDDLE && (r->part != LANES_PART_WITHIN) == process;
}

/* The largest value of one figure in the Heddle rows of this placement and disturbance. */
static double bench_worst_submit(const lanes_experiment *x, bool process, lanes_disturber disturber, bool p99)
{
    double worst = 0;
    for (int i = 0; i < LANES_ROWS; i++) {
        if (bench_row_belongs(&lanes_rows[i], process) && lanes_rows[i].disturber == disturber) {
            stats_calls calls = cli_stats_summarise(&x->rows[i].submit);
            double value = p99 ? calls.p99_ns : calls.median_ns;
            worst = value > worst ? value : worst;
        }
    }
    return worst;
}

static double bench_share_of(const lanes_experiment *x, bool process, lanes_shape shape)
{
    for (int i = 0; i < LANES_ROWS; i++) {
        const lanes_row *r = &lanes_rows[i];
        if (bench_row_belongs(r, process) && r->shape == shape && r->disturber == LANES_QUIET) {
            return SPREAD(x, i, share).median;
        }
    }
    return 0;
}

/* The goals of one placement. In JSON the names for placement process begin with "process_". */
static void bench_make_goals(const lanes_experiment *x, bool process, report_goal out[GOALS])
{
    const lanes_tiny *t = &x->tiny[process ? LANES_PART_PROCESS : LANES_PART_WITHIN];
    const report_goal goals[GOALS] = {
        {.id = "process_submit_median",
         .text = "a submit, median (worst Heddle row)",
         .limit = 50,
         .value = bench_worst_submit(x, process, LANES_QUIET, false),
         .unit = "ns"},
        {.id = "process_sustained",
         .text = "tiny launches of one lane, time vs. the driver",
         .limit = 1.05,
         .value = cli_stats_spread_of(t->launch_ratio, t->rounds).median,
         .unit = ""},
        {.id = "process_round_trip",
         .text = "launch + wait, time vs. the driver",
         .limit = 1.05,
         .value = cli_stats_spread_of(t->trip_ratio, t->rounds).median,
         .unit = ""},
        {.id = "process_threads_share",
         .text = "a thread per device, share of the processes' throughput",
         .limit = 0.98,
         .value = bench_share_of(x, process, LANES_THREADS),
         .at_least = true,
         .unit = ""},
        {.id = "process_one_thread_share",
         .text = "one thread, share of the processes' throughput",
         .limit = 0.98,
         .value = bench_share_of(x, process, LANES_ONE),
         .at_least = true,
         .unit = ""},
        {.id = "process_disturbed_p99",
         .text = "a submit while Heddle calls disturb, p99 (worst row)",
         .limit = 1000,
         .value = bench_worst_submit(x, process, LANES_BY_OWN, true),
         .unit = "ns"},
        {.id = "process_disturbed_by_driver_p99",
         .text = "a submit while plain driver calls disturb, p99",
         .limit = 1000,
         .value = bench_worst_submit(x, process, LANES_BY_DRIVER, true),
         .unit = "ns"},
    };
    for (int i = 0; i < GOALS; i++) {
        out[i] = goals[i];
        out[i].id += process ? 0 : strlen("process_");
        out[i].of = process                            ? "placement process"
                    : strcmp(x->within, "inline") == 0 ? "placement inline"
                                                       : "placement thread";
    }
}

/* ---- JSON ---- */

static void bench_put_row(hdi_json *j, const lanes_experiment *x, int row)
{
    static const char *const shapes[] = {"alone", "threads", "processes", "one_thread"};
    static const char *const disturbers[] = {"none", "own", "driver"};
    const lanes_row *r = &lanes_rows[row];
    char part[64];
    snprintf(part, sizeof(part), "placement %s%s", r->part == LANES_PART_WITHIN ? x->within : "process",
             r->disturber == LANES_QUIET ? "" : ", disturbed");
    hdi_json_object(j);
    cli_report_put_string(j, "id", r->id);
    cli_report_put_string(j, "name", r->name);
    cli_report_put_string(j, "api", r->api == LANES_HEDDLE ? "heddle" : "driver");
    cli_report_put_string(j, "part", part);
    cli_report_put_string(j, "placement", r->part == LANES_PART_WITHIN ? x->within : "process");
    cli_report_put_string(j, "shape", shapes[r->shape]);
    cli_report_put_string(j, "disturbed_by", disturbers[r->disturber]);
    cli_report_put_integer(j, "devices", (uint64_t)(r->shape == LANES_ALONE ? 1 : x->n));
    cli_report_put_spread(j, "us_per_kernel", SPREAD(x, row, us_per_kernel));
    cli_report_put_spread(j, "share", SPREAD(x, row, share));
    cli_report_put_spread(j, "kernels_per_s", SPREAD(x, row, kernels_per_s));
    cli_report_put_spread(j, "disturb_cycles_per_s", SPREAD(x, row, cycles_per_s));
    cli_report_put_calls(j, "submit", cli_stats_summarise(&x->rows[row].submit));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < x->rounds_done; i++) {
        const lanes_segment *s = &x->rows[row].rounds[i];
        hdi_json_object(j);
        cli_report_put_number(j, "us_per_kernel", s->us_per_kernel);
        cli_report_put_number(j, "share", s->share);
        cli_report_put_number(j, "kernels_per_s", s->kernels_per_s);
        cli_report_put_calls(j, "submit", s->submit);
        cli_report_put_number(j, "disturb_cycles_per_s", s->cycles_per_s);
        cli_report_put_integer(j, "ring_full_stalls", s->stalls);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

/* Writes the keys for the tiny launches of one placement. */
static void bench_put_tiny(hdi_json *j, const lanes_tiny *t, const char *flow, const char *trip)
{
    hdi_json_key(j, flow);
    hdi_json_object(j);
    cli_report_put_integer(j, "launches_per_round", t->launches);
    cli_report_put_values(j, "driver_us", t->driver_launch_us, t->rounds);
    cli_report_put_values(j, "heddle_us", t->heddle_launch_us, t->rounds);
    cli_report_put_values(j, "ratio", t->launch_ratio, t->rounds);
    hdi_json_object_end(j);
    hdi_json_key(j, trip);
    hdi_json_object(j);
    cli_report_put_integer(j, "trips_per_round", t->trips);
    cli_report_put_values(j, "driver_us", t->driver_trip_us, t->rounds);
    cli_report_put_values(j, "heddle_us", t->heddle_trip_us, t->rounds);
    cli_report_put_values(j, "ratio", t->trip_ratio, t->rounds);
    hdi_json_object_end(j);
}

static void bench_put_run(hdi_json *j, const lanes_experiment *x)
{
    hdi_json_key(j, "run");
    hdi_json_object(j);
    hdi_json_key(j, "placements");
    hdi_json_array(j);
    for (int p = 0; p < LANES_PARTS; p++) {
        if (x->measured[p] && p != LANES_PART_BESIDE) {
            hdi_json_string(j, p == LANES_PART_WITHIN ? x->within : "process");
        }
    }
    hdi_json_array_end(j);
    cli_report_put_integer(j, "devices", (uint64_t)x->n);
    char work[64];
    snprintf(work, sizeof(work), "products %d x %d by %d x %d of floats", LANES_M, LANES_K, LANES_K, LANES_N);
    cli_report_put_string(j, "work", work);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds_done);
    cli_report_put_number(j, "segment_s", (double)x->segment_ns * 1e-9);
    cli_report_put_integer(j, "batch", (uint64_t)x->batch);
    cli_report_put_integer(j, "batches_in_flight", 2);
    cli_report_put_integer(j, "disturb_device_bytes", x->disturb_size.device_bytes);
    cli_report_put_integer(j, "disturb_pinned_bytes_low", x->disturb_size.pinned_low);
    cli_report_put_integer(j, "disturb_pinned_bytes_high", x->disturb_size.pinned_high);
    cli_report_put_clock(j);
    hdi_json_object_end(j);
}

/* Explains the limits of a run on host devices. */
static void bench_put_shown(hdi_json *j, const lanes_experiment *x)
{
    bool within = x->measured[LANES_PART_WITHIN], process = x->measured[LANES_PART_PROCESS];
    char text[SHOWN];
    snprintf(text, sizeof(text),
             "one program drove %d host device%s, which stand in for GPUs on the CPU, in placement %s%s%s. One thread "
             "launched, then a thread for each device, while memory was allocated and modules were loaded; every "
             "result was right. On a machine with GPUs, the same command compares the cost of a launch and the use of "
             "the devices with those of the driver.",
             x->n, x->n == 1 ? "" : "s", within ? x->within : "", within && process ? " and " : "",
             process ? "process" : "");
    cli_report_put_string(j, "shown", text);
}

void bench_lanes_print_json(const void *experiment, FILE *out)
{
    const lanes_experiment *x = experiment;
    hdi_json j;
    cli_report_begin(&j, out, "lanes", &x->record, x->runtime);
    bench_put_run(&j, x);
    hdi_json_key(&j, "rows");
    hdi_json_array(&j);
    for (int i = 0; i < LANES_ROWS; i++) {
        if (x->measured[lanes_rows[i].part]) {
            bench_put_row(&j, x, i);
        }
    }
    hdi_json_array_end(&j);
    report_goal goals[2 * GOALS];
    int n_goals = 0;
    if (x->measured[LANES_PART_WITHIN]) {
        bench_put_tiny(&j, &x->tiny[LANES_PART_WITHIN], "sustained", "round_trip");
        bench_make_goals(x, false, goals);
        n_goals = GOALS;
    }
    if (x->measured[LANES_PART_PROCESS]) {
        bench_put_tiny(&j, &x->tiny[LANES_PART_PROCESS], "process_sustained", "process_round_trip");
        bench_make_goals(x, true, goals + n_goals);
        n_goals += GOALS;
    }
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    cli_report_put_integer(&j, "results", x->checked);
    cli_report_put_number(&j, "worst_error_of_bound", x->worst_error);
    hdi_json_object_end(&j);
    cli_report_put_goals(&j, goals, n_goals, !x->on_host);
    if (x->on_host) {
        bench_put_shown(&j, x);
    }
    cli_report_end(&j);
}
