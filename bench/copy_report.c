/* copy_report.c - the results of `heddle bench copy`: a table for people, JSON for records, and
 * goals.
 *
 * Threads: the conductor. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures.
 */
#include <math.h>
#include <string.h>
#include "bench/copy_parts.h"
#include "cli/common/machine.h"

enum { GOALS = 7 };

/* Bytes per nanosecond are gigabytes per second. */
static stats_spread speeds(const copy_row *row, const double *ns)
{
    double values[COPY_ROUNDS_MAX];
    for (int i = 0; i < row->rounds; i++) {
        values[i] = (double)row->bytes / ns[i];
    }
    return stats_spread_of(values, row->rounds);
}

static bool is_both(const copy_row *row)
{
    return strstr(row->id, "_both_") != NULL;
}

/* ---- rooflines ---- */

/* The speed of the link: the driver's copies of pinned memory in the same run. NAN: not
 * measured. */
static double link_speed(const copy_experiment *x, const char *id)
{
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        if (strncmp(row->id, id, strlen(id)) == 0 && row->rounds) {
            return speeds(row, row->driver_ns).median;
        }
    }
    return NAN;
}

/* The largest possible speed of a transfer other than plain link copies, in GB/s. NAN: unknown,
 * or given by the driver's copy beside it. */
static double roofline(const copy_experiment *x, const copy_row *row)
{
    double in = link_speed(x, "pinned_h2d_"), out = link_speed(x, "pinned_d2h_");
    if (strcmp(row->part, "pageable") == 0) {
        return strstr(row->id, "h2d") ? in : out;
    }
    /* out of one device, into the other */
    double slower = isnan(in) || isnan(out) ? NAN : in < out ? in : out;
    return strcmp(row->part, "staged") == 0 ? slower * (is_both(row) ? 2 : 1) : NAN;
}

/* ---- goals ---- */

/* The worst ratio of the rows with this id, followed by a size. */
static double worst(const copy_experiment *x, const char *id)
{
    double value = NAN;
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        size_t length = strlen(id);
        bool one_of_them = row->rounds != 0 && strncmp(row->id, id, length) == 0 && row->id[length] == '_' &&
                           row->id[length + 1] >= '0' && row->id[length + 1] <= '9';
        double ratio = one_of_them ? copy_ratio(row).median : NAN;
        bool worse = row->kind == COPY_SPEED ? ratio < value : ratio > value;
        value = !isnan(ratio) && (isnan(value) || worse) ? ratio : value;
    }
    return value;
}

static double gain(const copy_experiment *x, const char *part)
{
    for (int i = 0; i < x->n_rows; i++) {
        const copy_row *row = &x->rows[i];
        if (is_both(row) && strcmp(row->part, part) == 0 && row->rounds) {
            return stats_spread_of(row->heddle_gain, row->rounds).median;
        }
    }
    return NAN;
}

static void make_goals(const copy_experiment *x, report_goal out[GOALS])
{
    const report_goal goals[GOALS] = {
        {.id = "pageable_h2d",
         .text = "pageable memory to the device, speed vs. the driver",
         .limit = 4.7,
         .value = worst(x, "pageable_h2d"),
         .at_least = true,
         .unit = ""},
        {.id = "pageable_d2h",
         .text = "the device to pageable memory, speed vs. the driver",
         .limit = 2.5,
         .value = worst(x, "pageable_d2h"),
         .at_least = true,
         .unit = ""},
        {.id = "peer",
         .text = "device to device with peer access, speed vs. the driver",
         .limit = 0.99,
         .value = worst(x, "peer"),
         .at_least = true,
         .unit = ""},
        {.id = "peer_small",
         .text = "4 KiB from peer to peer + wait, time vs. the driver",
         .limit = 1.1,
         .value = worst(x, "peer_small"),
         .unit = ""},
        {.id = "staged",
         .text = "device to device without peer access, vs. the driver",
         .limit = 1.4,
         .value = worst(x, "staged"),
         .at_least = true,
         .unit = ""},
        {.id = "staged_both",
         .text = "both directions of these at once, over one alone",
         .limit = 1.8,
         .value = gain(x, "staged"),
         .at_least = true,
         .unit = ""},
        {.id = "submit_p99",
         .text = "a submit while transfers keep the threads busy, p99",
         .limit = 1000,
         .value = x->submits.measured ? stats_summarise(&x->submits.busy).p99_ns : NAN,
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

/* ---- table ---- */

static void print_row(const copy_experiment *x, const copy_row *row, FILE *out)
{
    char driver[REPORT_TEXT], heddle[REPORT_TEXT], share[REPORT_TEXT] = "";
    if (row->rounds == 0) {
        fprintf(out, "  %-56s left out: %s\n", row->name, row->note);
        return;
    }
    if (row->kind == COPY_SPEED) {
        snprintf(driver, sizeof(driver), "%.2f GB/s", speeds(row, row->driver_ns).median);
        snprintf(heddle, sizeof(heddle), "%.2f GB/s", speeds(row, row->heddle_ns).median);
    } else {
        report_duration(stats_spread_of(row->driver_ns, row->rounds).median, driver);
        report_duration(stats_spread_of(row->heddle_ns, row->rounds).median, heddle);
    }
    double most = row->kind == COPY_SPEED ? roofline(x, row) : NAN;
    if (!isnan(most)) {
        snprintf(share, sizeof(share), " %8.3f", speeds(row, row->heddle_ns).median / most);
    }
    fprintf(out, "  %-56s %12s %12s %7.3f%s\n", row->name, driver, heddle, copy_ratio(row).median, share);
    if (is_both(row)) {
        fprintf(out, "  %-56s %11.2fx %11.2fx\n", "    over one direction alone",
                stats_spread_of(row->driver_gain, row->rounds).median,
                stats_spread_of(row->heddle_gain, row->rounds).median);
    }
}

static void print_rows(const copy_experiment *x, copy_kind kind, const char *title, FILE *out)
{
    bool any = false;
    for (int i = 0; i < x->n_rows; i++) {
        if (x->rows[i].kind == kind) {
            if (!any) {
                fprintf(out, "  %-56s %12s %12s %7s%s\n", title, "driver", "Heddle", "ratio",
                        kind == COPY_SPEED ? "  of link" : "");
            }
            any = true;
            print_row(x, &x->rows[i], out);
        }
    }
    if (any) {
        fprintf(out, "\n");
    }
}

static void print_submits(const copy_experiment *x, FILE *out)
{
    const copy_submits *s = &x->submits;
    const stats_histogram *each[2] = {&s->quiet, &s->busy};
    static const char *const names[2] = {"alone", "beside transfers"};
    fprintf(out, "  %-56s %12s %12s %12s\n", "a launch, cost on the calling thread", "median", "p99", "max");
    for (int i = 0; i < 2; i++) {
        char median[REPORT_TEXT], p99[REPORT_TEXT], max[REPORT_TEXT];
        stats_calls c = stats_summarise(each[i]);
        fprintf(out, "  %-56s %12s %12s %12s\n", names[i], report_duration(c.median_ns, median),
                report_duration(c.p99_ns, p99), report_duration(c.max_ns, max));
    }
    fprintf(out, "  these moved %.1f GB/s between devices, %.1f GB/s of the program's memory\n\n", s->staged_gbs,
            s->pageable_gbs);
}

void copy_print_table(const void *experiment, FILE *out)
{
    const copy_experiment *x = experiment;
    char version[24], slice[REPORT_TEXT];
    machine_driver_version_text(x->info.driver_version, version);
    fprintf(out, "copy: %d x %s, driver %s %s, placement %s; %d round%s of %s a row and side\n\n", x->n,
            x->devices[0].name, x->info.driver, version, x->info.placement, x->rounds, x->rounds == 1 ? "" : "s",
            report_duration(x->slice_ns, slice));
    print_rows(x, COPY_SPEED, "speed", out);
    print_rows(x, COPY_TIME, "time of one, with its wait", out);
    if (x->submits.measured) {
        print_submits(x, out);
    }
    report_goal goals[GOALS];
    make_goals(x, goals);
    report_print_goals(goals, GOALS, "", !x->on_host, out);
    fprintf(out, "\nverified: %.0f MB compared with what was sent. Took %.0f s.\n", (double)x->verified * 1e-6,
            x->record.took_s);
}

/* ---- JSON ---- */

static void put_rounds(hdi_json *j, const char *key, stats_spread spread, const copy_row *row, const double *ns)
{
    report_put_spread_begin(j, key, spread);
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < row->rounds; i++) {
        hdi_json_number(j, row->kind == COPY_SPEED ? (double)row->bytes / ns[i] : ns[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void put_row(hdi_json *j, const copy_experiment *x, const copy_row *row)
{
    bool speed = row->kind == COPY_SPEED;
    hdi_json_object(j);
    report_put_string(j, "id", row->id);
    report_put_string(j, "part", row->part);
    report_put_string(j, "name", row->name);
    report_put_integer(j, "bytes", row->bytes);
    if (row->rounds == 0) {
        report_put_string(j, "left_out", row->note);
        hdi_json_object_end(j);
        return;
    }
    stats_spread heddle = speed ? speeds(row, row->heddle_ns) : stats_spread_of(row->heddle_ns, row->rounds);
    stats_spread driver = speed ? speeds(row, row->driver_ns) : stats_spread_of(row->driver_ns, row->rounds);
    put_rounds(j, speed ? "heddle_gb_per_s" : "heddle_ns", heddle, row, row->heddle_ns);
    put_rounds(j, speed ? "driver_gb_per_s" : "driver_ns", driver, row, row->driver_ns);
    report_put_spread(j, speed ? "speed_over_driver" : "time_over_driver", copy_ratio(row));
    double most = speed ? roofline(x, row) : NAN;
    if (!isnan(most)) {
        report_put_number(j, "roofline_gb_per_s", most);
    }
    if (is_both(row)) {
        report_put_spread(j, "heddle_over_one_direction", stats_spread_of(row->heddle_gain, row->rounds));
        report_put_spread(j, "driver_over_one_direction", stats_spread_of(row->driver_gain, row->rounds));
    }
    hdi_json_object_end(j);
}

static void put_submits(hdi_json *j, const copy_submits *s)
{
    hdi_json_key(j, "submit");
    hdi_json_object(j);
    report_put_calls(j, "alone", stats_summarise(&s->quiet));
    report_put_calls(j, "beside_transfers", stats_summarise(&s->busy));
    report_put_number(j, "staged_gb_per_s", s->staged_gbs);
    report_put_number(j, "pageable_gb_per_s", s->pageable_gbs);
    hdi_json_object_end(j);
}

void copy_print_json(const void *experiment, FILE *out)
{
    const copy_experiment *x = experiment;
    hdi_json j;
    report_begin(&j, out, "copy", &x->record, x->runtime);
    hdi_json_key(&j, "run");
    hdi_json_object(&j);
    report_put_integer(&j, "devices", (uint64_t)x->n);
    report_put_integer(&j, "rounds", (uint64_t)x->rounds);
    report_put_number(&j, "slice_s", x->slice_ns * 1e-9);
    report_put_clock(&j);
    hdi_json_object_end(&j);
    hdi_json_key(&j, "rows");
    hdi_json_array(&j);
    for (int i = 0; i < x->n_rows; i++) {
        put_row(&j, x, &x->rows[i]);
    }
    hdi_json_array_end(&j);
    if (x->submits.measured) {
        put_submits(&j, &x->submits);
    }
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    report_put_integer(&j, "bytes", x->verified);
    hdi_json_object_end(&j);
    report_goal goals[GOALS];
    make_goals(x, goals);
    report_put_goals(&j, goals, GOALS, !x->on_host);
    report_end(&j);
}
