/* copy_report.c - the results of `heddle bench copy` as JSON, and goals.
 *
 * Threads: the conductor. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures.
 */
#include <math.h>
#include <string.h>
#include "bench/copy_parts.h"

enum { GOALS = 7 };

/* Bytes per nanosecond are gigabytes per second. */
static stats_spread bench_speeds(const copy_row *row, const double *ns)
{
    double values[COPY_ROUNDS_MAX];
    for (int i = 0; i < row->rounds; i++) {
        values[i] = (double)row->bytes / ns[i];
    }
    return cli_stats_spread_of(values, row->rounds);
}

static bool bench_is_both(const copy_row *row)
{
    return strstr(row->id, "_both_") != NULL;
}

/* ---- rooflines ---- */

/* The speed of the link: the driver's copies of pinned memory in the same run. NAN: not
 * measured. */
static double bench_link_speed(const copy_experiment *x, const char *id)
{
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        if (strncmp(row->id, id, strlen(id)) == 0 && row->rounds) {
            return bench_speeds(row, row->driver_ns).median;
        }
    }
    return NAN;
}

/* The largest possible speed of a transfer other than plain link copies, in GB/s. NAN: unknown, or
 * shown by the driver's copy in the same row. */
static double bench_roofline(const copy_experiment *x, const copy_row *row)
{
    double in = bench_link_speed(x, "pinned_h2d_"), out = bench_link_speed(x, "pinned_d2h_");
    if (strcmp(row->part, "pageable") == 0) {
        return strstr(row->id, "h2d") ? in : out;
    }
    /* a copy leaves one device and enters the other */
    double slower = isnan(in) || isnan(out) ? NAN : in < out ? in : out;
    return strcmp(row->part, "staged") == 0 ? slower * (bench_is_both(row) ? 2 : 1) : NAN;
}

/* ---- goals ---- */

/* The worst ratio of the rows with this id, followed by a size. */
static double bench_worst(const copy_experiment *x, const char *id)
{
    double value = NAN;
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        size_t length = strlen(id);
        bool one_of_them = row->rounds != 0 && strncmp(row->id, id, length) == 0 && row->id[length] == '_' &&
                           row->id[length + 1] >= '0' && row->id[length + 1] <= '9';
        double ratio = one_of_them ? bench_copy_ratio(row).median : NAN;
        bool worse = row->kind == COPY_SPEED ? ratio < value : ratio > value;
        value = !isnan(ratio) && (isnan(value) || worse) ? ratio : value;
    }
    return value;
}

static double bench_gain(const copy_experiment *x, const char *part)
{
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        if (bench_is_both(row) && strcmp(row->part, part) == 0 && row->rounds) {
            return cli_stats_spread_of(row->heddle_gain, row->rounds).median;
        }
    }
    return NAN;
}

static void bench_make_goals(const copy_experiment *x, report_goal out[GOALS])
{
    const report_goal goals[GOALS] = {
        {.id = "pageable_h2d",
         .text = "pageable memory to the device, speed vs. the driver",
         .limit = 4.7,
         .value = bench_worst(x, "pageable_h2d"),
         .at_least = true,
         .unit = ""},
        {.id = "pageable_d2h",
         .text = "the device to pageable memory, speed vs. the driver",
         .limit = 2.5,
         .value = bench_worst(x, "pageable_d2h"),
         .at_least = true,
         .unit = ""},
        {.id = "peer",
         .text = "device to device with peer access, speed vs. the driver",
         .limit = 0.99,
         .value = bench_worst(x, "peer"),
         .at_least = true,
         .unit = ""},
        {.id = "peer_small",
         .text = "4 KiB from peer to peer + wait, time vs. the driver",
         .limit = 1.1,
         .value = bench_worst(x, "peer_small"),
         .unit = ""},
        {.id = "staged",
         .text = "device to device without peer access, vs. the driver",
         .limit = 1.4,
         .value = bench_worst(x, "staged"),
         .at_least = true,
         .unit = ""},
        {.id = "staged_both",
         .text = "both directions of these at once, over one alone",
         .limit = 1.8,
         .value = bench_gain(x, "staged"),
         .at_least = true,
         .unit = ""},
        {.id = "submit_p99",
         .text = "a submit while transfers keep the threads busy, p99",
         .limit = 1000,
         .value = x->submits.measured ? cli_stats_summarise(&x->submits.busy).p99_ns : NAN,
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

/* ---- JSON ---- */

static void bench_put_rounds(hdi_json *j, const char *key, stats_spread spread, const copy_row *row, const double *ns)
{
    cli_report_put_spread_begin(j, key, spread);
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < row->rounds; i++) {
        hdi_json_number(j, row->kind == COPY_SPEED ? (double)row->bytes / ns[i] : ns[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void bench_put_row(hdi_json *j, const copy_experiment *x, const copy_row *row)
{
    bool speed = row->kind == COPY_SPEED;
    hdi_json_object(j);
    cli_report_put_string(j, "id", row->id);
    cli_report_put_string(j, "part", row->part);
    cli_report_put_string(j, "name", row->name);
    cli_report_put_integer(j, "bytes", row->bytes);
    if (row->rounds == 0) {
        cli_report_put_string(j, "left_out", row->note);
        hdi_json_object_end(j);
        return;
    }
    stats_spread heddle = speed ? bench_speeds(row, row->heddle_ns) : cli_stats_spread_of(row->heddle_ns, row->rounds);
    stats_spread driver = speed ? bench_speeds(row, row->driver_ns) : cli_stats_spread_of(row->driver_ns, row->rounds);
    bench_put_rounds(j, speed ? "heddle_gb_per_s" : "heddle_ns", heddle, row, row->heddle_ns);
    bench_put_rounds(j, speed ? "driver_gb_per_s" : "driver_ns", driver, row, row->driver_ns);
    cli_report_put_spread(j, speed ? "speed_over_driver" : "time_over_driver", bench_copy_ratio(row));
    double most = speed ? bench_roofline(x, row) : NAN;
    if (!isnan(most)) {
        cli_report_put_number(j, "roofline_gb_per_s", most);
        cli_report_put_number(j, "heddle_over_roofline", heddle.median / most);
    }
    if (bench_is_both(row)) {
        cli_report_put_spread(j, "heddle_over_one_direction", cli_stats_spread_of(row->heddle_gain, row->rounds));
        cli_report_put_spread(j, "driver_over_one_direction", cli_stats_spread_of(row->driver_gain, row->rounds));
    }
    hdi_json_object_end(j);
}

static void bench_put_submits(hdi_json *j, const copy_submits *s)
{
    hdi_json_key(j, "submit");
    hdi_json_object(j);
    cli_report_put_calls(j, "alone", cli_stats_summarise(&s->quiet));
    cli_report_put_calls(j, "beside_transfers", cli_stats_summarise(&s->busy));
    cli_report_put_number(j, "staged_gb_per_s", s->staged_gbs);
    cli_report_put_number(j, "pageable_gb_per_s", s->pageable_gbs);
    hdi_json_object_end(j);
}

void bench_copy_print_json(const void *experiment, FILE *out)
{
    const copy_experiment *x = experiment;
    hdi_json j;
    cli_report_begin(&j, out, "copy", &x->record, x->runtime);
    hdi_json_key(&j, "run");
    hdi_json_object(&j);
    cli_report_put_integer(&j, "devices", (uint64_t)x->n);
    cli_report_put_integer(&j, "rounds", (uint64_t)x->rounds);
    cli_report_put_number(&j, "slice_s", x->slice_ns * 1e-9);
    cli_report_put_clock(&j);
    hdi_json_object_end(&j);
    hdi_json_key(&j, "rows");
    hdi_json_array(&j);
    for (int i = 0; i < x->n_rows; i++) {
        bench_put_row(&j, x, &x->rows[i]);
    }
    hdi_json_array_end(&j);
    if (x->submits.measured) {
        bench_put_submits(&j, &x->submits);
    }
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    cli_report_put_integer(&j, "bytes", x->verified);
    hdi_json_object_end(&j);
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_put_goals(&j, goals, GOALS, !x->on_host);
    cli_report_end(&j);
}
