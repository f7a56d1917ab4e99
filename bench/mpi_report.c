/* mpi_report.c - the results of `heddle bench mpi` as JSON, and goals.
 *
 * Threads: the conductor. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. Differences
 * and ratios are made within a round.
 */
#include <math.h>
#include <string.h>
#include "bench/mpi_parts.h"

enum { GOALS = 4 };

/* ---- figures of the rounds ---- */

typedef enum mpi_figure { TIME, SPEED, MORE, TIME_RATIO, SPEED_RATIO } mpi_figure;

/* One figure of each round, of a side alone or compared with another side. */
static void bench_mpi_figures(const mpi_experiment *x, int row, mpi_figure figure, int side, int other,
                              double out[MPI_ROUNDS_MAX])
{
    const mpi_row *r = &x->rows[row];
    const double bytes = (double)(bench_ranks_window(&ranks_rows[row]) * ranks_rows[row].bytes);
    for (int i = 0; i < r->rounds; i++) {
        const double a = r->ns[side][i], b = r->ns[other][i];
        out[i] = figure == TIME         ? a
                 : figure == SPEED      ? bytes / a
                 : figure == MORE       ? a - b
                 : figure == TIME_RATIO ? a / b
                                        : b / a;
    }
}

/* The part of the shorter of work and message that is hidden when both go on at once. */
static void bench_mpi_hidden(const mpi_experiment *x, int row, double out[MPI_ROUNDS_MAX])
{
    const mpi_row *r = &x->rows[row];
    for (int i = 0; i < r->rounds; i++) {
        const double work = r->ns[RANKS_WORK][i], message = r->ns[RANKS_MESSAGE][i];
        out[i] = (work + message - r->ns[RANKS_BOTH][i]) / (work < message ? work : message);
    }
}

/* ---- goals ---- */

/* The row of a goal; -1: it was not measured. */
static int bench_mpi_find_row(const mpi_experiment *x, ranks_part part, bool on_device, size_t bytes)
{
    for (int i = 0; i < RANKS_ROWS; i++) {
        const ranks_row *row = &ranks_rows[i];
        if (row->part == part && row->on_device == on_device && row->bytes == bytes && x->rows[i].rounds) {
            return i;
        }
    }
    return -1;
}

/* Sets the value of a goal: the median of the rounds of a row, and their extremes. */
static void bench_mpi_set_goal(report_goal *goal, const double *values, int rounds)
{
    const stats_spread spread = cli_stats_spread_of(values, rounds);
    goal->value = spread.median;
    goal->min = spread.min;
    goal->max = spread.max;
    goal->rounds = rounds;
}

/* Heddle against MPI alone. */
static void bench_mpi_set_against(const mpi_experiment *x, int row, mpi_figure figure, report_goal *goal)
{
    double values[MPI_ROUNDS_MAX];
    if (row >= 0) {
        bench_mpi_figures(x, row, figure, RANKS_HEDDLE, RANKS_PLAIN, values);
        bench_mpi_set_goal(goal, values, x->rows[row].rounds);
    }
}

static void bench_mpi_set_hidden(const mpi_experiment *x, report_goal *goal)
{
    double values[MPI_ROUNDS_MAX];
    int row = bench_mpi_find_row(x, RANKS_BESIDE, true, 64 * RANKS_MIB);
    row = row < 0 ? bench_mpi_find_row(x, RANKS_BESIDE, true, 4 * RANKS_MIB) : row;
    if (row >= 0) {
        bench_mpi_hidden(x, row, values);
        bench_mpi_set_goal(goal, values, x->rows[row].rounds);
    }
}

static void bench_mpi_make_goals(const mpi_experiment *x, report_goal out[GOALS])
{
    const int small = bench_mpi_find_row(x, RANKS_LATENCY, false, 4 * RANKS_KIB);
    const int large = bench_mpi_find_row(x, RANKS_BANDWIDTH, false, 4 * RANKS_MIB);
    const int device = x->on_host ? -1 : bench_mpi_find_row(x, RANKS_BANDWIDTH, true, 256 * RANKS_MIB);
    const report_goal goals[GOALS] = {
        {.id = "latency",
         .text = "a message of 4 KiB, time more than that of MPI alone",
         .limit = 2000,
         .value = NAN,
         .unit = "ns"},
        {.id = "bandwidth",
         .text = "messages of 4 MiB, speed vs. MPI alone",
         .limit = 0.9,
         .value = NAN,
         .at_least = true,
         .unit = ""},
        {.id = "device",
         .text = "256 MiB of a GPU's memory, speed vs. MPI on pinned memory",
         .limit = 0.9,
         .value = NAN,
         .at_least = true,
         .unit = ""},
        {.id = "hidden",
         .text = "a message beside work of the device, hidden part of the shorter one",
         .limit = 0.9,
         .value = NAN,
         .at_least = true,
         .unit = ""},
    };
    memcpy(out, goals, sizeof(goals));
    bench_mpi_set_against(x, small, MORE, &out[0]);
    bench_mpi_set_against(x, large, SPEED_RATIO, &out[1]);
    bench_mpi_set_against(x, device, SPEED_RATIO, &out[2]);
    bench_mpi_set_hidden(x, &out[3]);
}

/* ---- JSON ---- */

static void bench_mpi_put(hdi_json *j, const mpi_experiment *x, int row, const char *key, mpi_figure figure, int side,
                          int other)
{
    double values[MPI_ROUNDS_MAX];
    bench_mpi_figures(x, row, figure, side, other, values);
    cli_report_put_values(j, key, values, x->rows[row].rounds);
}

/* The figures of a row that was measured. */
static void bench_mpi_put_figures(hdi_json *j, const mpi_experiment *x, int row)
{
    double values[MPI_ROUNDS_MAX];
    const ranks_row *r = &ranks_rows[row];
    const bool speed = r->part == RANKS_BANDWIDTH;
    const mpi_figure figure = speed ? SPEED : TIME, ratio = speed ? SPEED_RATIO : TIME_RATIO;
    if (r->part == RANKS_BESIDE) {
        bench_mpi_put(j, x, row, "work_ns", TIME, RANKS_WORK, RANKS_WORK);
        bench_mpi_put(j, x, row, "message_ns", TIME, RANKS_MESSAGE, RANKS_MESSAGE);
        bench_mpi_put(j, x, row, "both_ns", TIME, RANKS_BOTH, RANKS_BOTH);
        bench_mpi_hidden(x, row, values);
        cli_report_put_values(j, "hidden_share", values, x->rows[row].rounds);
        return;
    }
    bench_mpi_put(j, x, row, speed ? "mpi_gb_per_s" : "mpi_ns", figure, RANKS_PLAIN, RANKS_PLAIN);
    if (r->on_device) {
        bench_mpi_put(j, x, row, speed ? "by_hand_gb_per_s" : "by_hand_ns", figure, RANKS_HAND, RANKS_HAND);
    }
    bench_mpi_put(j, x, row, speed ? "heddle_gb_per_s" : "heddle_ns", figure, RANKS_HEDDLE, RANKS_HEDDLE);
    if (!speed) {
        bench_mpi_put(j, x, row, "more_than_mpi_ns", MORE, RANKS_HEDDLE, RANKS_PLAIN);
    }
    bench_mpi_put(j, x, row, speed ? "speed_over_mpi" : "time_over_mpi", ratio, RANKS_HEDDLE, RANKS_PLAIN);
    if (r->on_device) {
        bench_mpi_put(j, x, row, speed ? "speed_over_hand" : "time_over_hand", ratio, RANKS_HEDDLE, RANKS_HAND);
    }
}

static void bench_mpi_put_row(hdi_json *j, const mpi_experiment *x, int row)
{
    char id[MPI_TEXT], name[MPI_TEXT];
    const ranks_row *r = &ranks_rows[row];
    bench_mpi_name(r, id, name);
    hdi_json_object(j);
    cli_report_put_string(j, "id", id);
    cli_report_put_string(j, "part", ranks_part_names[r->part]);
    cli_report_put_string(j, "name", name);
    cli_report_put_integer(j, "bytes", r->bytes);
    if (x->rows[row].note[0]) {
        cli_report_put_string(j, "left_out", x->rows[row].note);
    } else {
        cli_report_put_integer(j, "window", bench_ranks_window(r));
        bench_mpi_put_figures(j, x, row);
    }
    hdi_json_object_end(j);
}

void bench_mpi_print_json(const void *experiment, FILE *out)
{
    const mpi_experiment *x = experiment;
    report_goal goals[GOALS];
    hdi_json j;
    cli_report_begin(&j, out, "mpi", &x->record, x->runtime);
    hdi_json_key(&j, "run");
    hdi_json_object(&j);
    cli_report_put_string(&j, "mpi", x->library);
    cli_report_put_string(&j, "thread_level", x->level);
    cli_report_put_string(&j, "driver_of_ranks", x->driver);
    cli_report_put_integer(&j, "ranks", (uint64_t)x->ranks);
    cli_report_put_integer(&j, "rounds", (uint64_t)x->rounds);
    cli_report_put_integer(&j, "piece_bytes", (uint64_t)x->piece_bytes);
    cli_report_put_string(&j, "mpicc", x->mpicc);
    cli_report_put_string(&j, "mpiexec", x->mpiexec);
    hdi_json_object_end(&j);
    hdi_json_key(&j, "rows");
    hdi_json_array(&j);
    for (int i = 0; i < RANKS_ROWS; i++) {
        if (bench_mpi_is_wanted(x, &ranks_rows[i])) {
            bench_mpi_put_row(&j, x, i);
        }
    }
    hdi_json_array_end(&j);
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    cli_report_put_integer(&j, "bytes", x->verified);
    hdi_json_object_end(&j);
    bench_mpi_make_goals(x, goals);
    /* the goals hold on host devices, too; that of GPUs is missing there */
    cli_report_put_goals(&j, goals, GOALS, true);
    cli_report_end(&j);
}
