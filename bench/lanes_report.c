/* lanes_report.c - the results of `heddle bench lanes`: a table for people, JSON for records, and which goals were
 * reached.
 *
 * The conductor's thread; no locks. Everything is computed from the finished experiment; nothing here measures.
 */
#include <string.h>
#include "bench/lanes_parts.h"
#include "bench/machine.h"

enum { TEXT = 32 };

/* One column of a row over its rounds. */
static stats_spread spread_over(const lanes_experiment *x, int row, size_t offset)
{
    double values[LANES_ROUNDS_MAX];
    for (int r = 0; r < x->rounds_done; r++) {
        memcpy(&values[r], (const char *)&x->rows[row].rounds[r] + offset, sizeof(double));
    }
    return stats_spread_of(values, x->rounds_done);
}
#define SPREAD(x, row, field) spread_over(x, row, offsetof(lanes_segment, field))

/* ------------------------------------------------------------------------------------------------------ goals -- */

typedef struct goal {
    const char *id, *text;
    double limit, value;
    bool at_least; /* else at most */
    const char *unit;
} goal;

enum { GOALS = 7 };

/* The largest of one figure over the Heddle rows with this disturber. */
static double worst_submit(const lanes_experiment *x, lanes_disturber disturber, bool p99)
{
    double worst = 0;
    for (int i = 0; i < LANES_ROWS; i++) {
        if (lanes_rows[i].api == LANES_HEDDLE && lanes_rows[i].disturber == disturber) {
            stats_calls calls = stats_summarise(&x->rows[i].submit);
            double value = p99 ? calls.p99_ns : calls.median_ns;
            worst = value > worst ? value : worst;
        }
    }
    return worst;
}

static double share_of(const lanes_experiment *x, lanes_shape shape)
{
    for (int i = 0; i < LANES_ROWS; i++) {
        const lanes_row *r = &lanes_rows[i];
        if (r->api == LANES_HEDDLE && r->shape == shape && r->disturber == LANES_QUIET) {
            return SPREAD(x, i, share).median;
        }
    }
    return 0;
}

static void at_most(goal *g, const char *id, const char *text, double limit, double value, const char *unit)
{
    *g = (goal){.id = id, .text = text, .limit = limit, .value = value, .at_least = false, .unit = unit};
}

static void at_least(goal *g, const char *id, const char *text, double limit, double value)
{
    *g = (goal){.id = id, .text = text, .limit = limit, .value = value, .at_least = true, .unit = ""};
}

static void make_goals(const lanes_experiment *x, goal out[GOALS])
{
    const lanes_tiny *t = &x->tiny;
    double flow = stats_spread_of(t->launch_ratio, t->rounds).median;
    double trip = stats_spread_of(t->trip_ratio, t->rounds).median;
    at_most(&out[0], "submit_median", "a submit, median (worst Heddle row)", 50, worst_submit(x, LANES_QUIET, false),
            "ns");
    at_most(&out[1], "sustained", "tiny launches of one lane, time over the driver's", 1.05, flow, "");
    at_most(&out[2], "round_trip", "launch + wait, time over the driver's", 1.05, trip, "");
    at_least(&out[3], "threads_share", "a thread per device, share of the processes' throughput", 0.98,
             share_of(x, LANES_THREADS));
    at_least(&out[4], "one_thread_share", "one thread, share of the processes' throughput", 0.98,
             share_of(x, LANES_ONE));
    at_most(&out[5], "disturbed_p99", "a submit while Heddle calls disturb, p99 (worst row)", 1000,
            worst_submit(x, LANES_BY_OWN, true), "ns");
    at_most(&out[6], "disturbed_by_driver_p99", "a submit while plain driver calls disturb, p99", 1000,
            worst_submit(x, LANES_BY_DRIVER, true), "ns");
}

static bool goal_reached(const goal *g)
{
    return g->at_least ? g->value >= g->limit : g->value <= g->limit;
}

/* ------------------------------------------------------------------------------------------------------ table -- */

/* "31 ns", "2.90 us", "1.93 ms" */
static const char *duration(double ns, char out[TEXT])
{
    double value = ns < 1e3 ? ns : ns < 1e6 ? ns / 1e3 : ns < 1e9 ? ns / 1e6 : ns / 1e9;
    const char *unit = ns < 1e3 ? "ns" : ns < 1e6 ? "us" : ns < 1e9 ? "ms" : "s";
    snprintf(out, TEXT, "%.*f %s", ns < 1e3 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
    return out;
}

static void print_row(const lanes_experiment *x, int row, FILE *out)
{
    char median[TEXT], p99[TEXT], max[TEXT], us[TEXT], disturb[TEXT] = "";
    stats_calls calls = stats_summarise(&x->rows[row].submit);
    double kernel = SPREAD(x, row, us_per_kernel).median;
    snprintf(us, sizeof(us), kernel < 1000 ? "%.2f" : "%.0f", kernel);
    if (lanes_rows[row].disturber != LANES_QUIET) {
        snprintf(disturb, sizeof(disturb), "%.0f", SPREAD(x, row, cycles_per_s).median);
    }
    fprintf(out, "  %-46s %10s %7.3f %9s %9s %9s %10s\n", lanes_rows[row].name, us, SPREAD(x, row, share).median,
            duration(calls.median_ns, median), duration(calls.p99_ns, p99), duration(calls.max_ns, max), disturb);
}

static void print_pair(const char *name, const double *driver, const double *heddle, const double *ratio, int n,
                       FILE *out)
{
    char d[TEXT], h[TEXT];
    fprintf(out, "  %-46s %10s %9s %7.3f\n", name, duration(stats_spread_of(driver, n).median * 1e3, d),
            duration(stats_spread_of(heddle, n).median * 1e3, h), stats_spread_of(ratio, n).median);
}

static void print_goals(const lanes_experiment *x, FILE *out)
{
    goal goals[GOALS];
    make_goals(x, goals);
    fprintf(out, "\ngoals%s\n", x->on_host ? " (set for GPUs; with host devices, only to look at)" : "");
    for (int i = 0; i < GOALS; i++) {
        const goal *g = &goals[i];
        bool time = g->unit[0] != 0;
        char value[TEXT], limit[TEXT];
        if (time) {
            duration(g->value, value);
            duration(g->limit, limit);
        } else {
            snprintf(value, sizeof(value), "%.3f", g->value);
            snprintf(limit, sizeof(limit), "%.2f", g->limit);
        }
        fprintf(out, "  %-11s  %-58s %9s  (%s %s)\n", goal_reached(g) ? "reached" : "not reached", g->text, value,
                g->at_least ? "at least" : "at most", limit);
    }
}

void lanes_print_table(const lanes_experiment *x, FILE *out)
{
    char version[24], text[TEXT], segment[TEXT];
    machine_driver_version_text(x->info.driver_version, version);
    fprintf(out, "lanes: %d x %s, driver %s %s, placement %s\n", x->n, x->devices[0].name, x->info.driver, version,
            x->info.placement);
    fprintf(out, "matmul %d x %d by %d x %d float; %d round%s of %s a row, batches of %d, two in flight\n\n", LANES_M,
            LANES_K, LANES_K, LANES_N, x->rounds_done, x->rounds_done == 1 ? "" : "s",
            duration((double)x->segment_ns, segment), x->batch);
    fprintf(out, "  %-46s %10s %7s %9s %9s %9s %10s\n", "", "us/kernel", "share", "submit", "p99", "max", "disturb/s");
    for (int i = 0; i < LANES_ROWS; i++) {
        if (lanes_rows[i].disturber != LANES_QUIET && lanes_rows[i - 1].disturber == LANES_QUIET) {
            fprintf(out, "while another thread (for the processes: another process) allocates, frees, pins memory and "
                         "loads modules there\n");
        }
        print_row(x, i, out);
    }
    fprintf(out, "\n  %-46s %10s %9s %7s\n", "one lane of device 0", "driver", "Heddle", "ratio");
    print_pair("tiny launches, sustained, each", x->tiny.driver_launch_us, x->tiny.heddle_launch_us,
               x->tiny.launch_ratio, x->tiny.rounds, out);
    print_pair("launch + wait, median", x->tiny.driver_trip_us, x->tiny.heddle_trip_us, x->tiny.trip_ratio,
               x->tiny.rounds, out);
    print_goals(x, out);
    fprintf(out,
            "\nverified: all %llu results against a reference in double precision; largest error %.2f of the "
            "rounding bound\n",
            (unsigned long long)x->checked, x->worst_error);
    fprintf(out, "clock: %s; reading it twice costs %s, which is subtracted. Took %.0f s.\n",
            stats_the_clock.tsc ? "time-stamp counter" : "CLOCK_MONOTONIC", duration(stats_the_clock.empty_ns, text),
            x->took_s);
}

/* ------------------------------------------------------------------------------------------------------- JSON -- */

static void put_string(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

static void put_integer(hdi_json *j, const char *key, uint64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, (int64_t)value);
}

static void put_number(hdi_json *j, const char *key, double value)
{
    hdi_json_key(j, key);
    hdi_json_number(j, value);
}

static void put_bool(hdi_json *j, const char *key, bool value)
{
    hdi_json_key(j, key);
    hdi_json_bool(j, value);
}

/* An object that is left open. */
static void put_spread_begin(hdi_json *j, const char *key, stats_spread s)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    put_number(j, "median", s.median);
    put_number(j, "min", s.min);
    put_number(j, "max", s.max);
}

static void put_spread(hdi_json *j, const char *key, stats_spread s)
{
    put_spread_begin(j, key, s);
    hdi_json_object_end(j);
}

static void put_calls(hdi_json *j, const char *key, stats_calls c)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    put_integer(j, "calls", c.count);
    put_number(j, "median_ns", c.median_ns);
    put_number(j, "p99_ns", c.p99_ns);
    put_number(j, "max_ns", c.max_ns);
    hdi_json_object_end(j);
}

static void put_row(hdi_json *j, const lanes_experiment *x, int row)
{
    static const char *const shapes[] = {"alone", "threads", "processes", "one_thread"};
    static const char *const disturbers[] = {"none", "own", "driver"};
    const lanes_row *r = &lanes_rows[row];
    hdi_json_object(j);
    put_string(j, "id", r->id);
    put_string(j, "name", r->name);
    put_string(j, "api", r->api == LANES_HEDDLE ? "heddle" : "driver");
    put_string(j, "shape", shapes[r->shape]);
    put_string(j, "disturbed_by", disturbers[r->disturber]);
    put_integer(j, "devices", (uint64_t)(r->shape == LANES_ALONE ? 1 : x->n));
    put_spread(j, "us_per_kernel", SPREAD(x, row, us_per_kernel));
    put_spread(j, "share", SPREAD(x, row, share));
    put_spread(j, "kernels_per_s", SPREAD(x, row, kernels_per_s));
    put_spread(j, "disturb_cycles_per_s", SPREAD(x, row, cycles_per_s));
    put_calls(j, "submit", stats_summarise(&x->rows[row].submit));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < x->rounds_done; i++) {
        const lanes_segment *s = &x->rows[row].rounds[i];
        hdi_json_object(j);
        put_number(j, "us_per_kernel", s->us_per_kernel);
        put_number(j, "share", s->share);
        put_number(j, "kernels_per_s", s->kernels_per_s);
        put_calls(j, "submit", s->submit);
        put_number(j, "disturb_cycles_per_s", s->cycles_per_s);
        put_integer(j, "ring_full_stalls", s->stalls);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void put_values(hdi_json *j, const char *key, const double *values, int n)
{
    put_spread_begin(j, key, stats_spread_of(values, n));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_number(j, values[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void put_tiny(hdi_json *j, const lanes_tiny *t)
{
    hdi_json_key(j, "sustained");
    hdi_json_object(j);
    put_integer(j, "launches_per_round", t->launches);
    put_values(j, "driver_us", t->driver_launch_us, t->rounds);
    put_values(j, "heddle_us", t->heddle_launch_us, t->rounds);
    put_values(j, "ratio", t->launch_ratio, t->rounds);
    hdi_json_object_end(j);
    hdi_json_key(j, "round_trip");
    hdi_json_object(j);
    put_integer(j, "trips_per_round", t->trips);
    put_values(j, "driver_us", t->driver_trip_us, t->rounds);
    put_values(j, "heddle_us", t->heddle_trip_us, t->rounds);
    put_values(j, "ratio", t->trip_ratio, t->rounds);
    hdi_json_object_end(j);
}

static void put_run(hdi_json *j, const lanes_experiment *x)
{
    char date[32];
    machine_date_text(x->started, date);
    put_string(j, "benchmark", "lanes");
    put_string(j, "heddle", hd_version());
    put_string(j, "date", date);
    put_number(j, "took_s", x->took_s);
    hdi_json_key(j, "command");
    hdi_json_array(j);
    for (int i = 0; i < x->options->command_count; i++) {
        hdi_json_string(j, x->options->command[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "machine");
    machine_json(j);
    hdi_json_key(j, "runtime");
    machine_runtime_json(j, x->runtime);
    hdi_json_key(j, "options");
    machine_options_json(j, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    put_integer(j, "devices", (uint64_t)x->n);
    put_integer(j, "rounds", (uint64_t)x->rounds_done);
    put_number(j, "segment_s", (double)x->segment_ns * 1e-9);
    put_integer(j, "batch", (uint64_t)x->batch);
    put_integer(j, "batches_in_flight", 2);
    put_integer(j, "disturb_device_bytes", x->disturb_size.device_bytes);
    put_integer(j, "disturb_pinned_bytes_low", x->disturb_size.pinned_low);
    put_integer(j, "disturb_pinned_bytes_high", x->disturb_size.pinned_high);
    put_string(j, "clock", stats_the_clock.tsc ? "tsc" : "monotonic");
    put_number(j, "clock_ns_per_tick", stats_the_clock.ns_per_tick);
    put_number(j, "clock_empty_pair_ns", stats_the_clock.empty_ns);
    hdi_json_object_end(j);
}

void lanes_print_json(const lanes_experiment *x, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    put_run(&j, x);
    hdi_json_key(&j, "rows");
    hdi_json_array(&j);
    for (int i = 0; i < LANES_ROWS; i++) {
        put_row(&j, x, i);
    }
    hdi_json_array_end(&j);
    put_tiny(&j, &x->tiny);
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    put_integer(&j, "results", x->checked);
    put_number(&j, "worst_error_of_bound", x->worst_error);
    hdi_json_object_end(&j);
    hdi_json_key(&j, "goals");
    hdi_json_array(&j);
    goal goals[GOALS];
    make_goals(x, goals);
    for (int i = 0; i < GOALS; i++) {
        hdi_json_object(&j);
        put_string(&j, "id", goals[i].id);
        put_string(&j, "text", goals[i].text);
        put_string(&j, "relation", goals[i].at_least ? ">=" : "<=");
        put_number(&j, "limit", goals[i].limit);
        put_number(&j, "value", goals[i].value);
        put_string(&j, "unit", goals[i].unit);
        put_bool(&j, "reached", goal_reached(&goals[i]));
        hdi_json_object_end(&j);
    }
    hdi_json_array_end(&j);
    put_bool(&j, "goals_apply", !x->on_host);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
