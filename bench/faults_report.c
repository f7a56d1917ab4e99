/* faults_report.c - the results of `heddle bench faults` as JSON, and goals.
 *
 * Threads: the conductor, after all others ended. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. A missing
 * figure is NaN, and left out of sums.
 */
#include <math.h>
#include <string.h>
#include "bench/faults_parts.h"

enum { GOALS = 5 };

static const char *const kind_ids[FAULTS_KINDS] = {"illegal_address", "killed_worker", "endless_kernel"};
static const char *const kind_names[FAULTS_KINDS] = {"a kernel reads an illegal address",
                                                     "the worker process is killed", "a kernel does not end"};

/* ---- figures ---- */

typedef double (*figure)(const faults_strike *s);

static double bench_between(uint64_t begin, uint64_t end)
{
    return begin && end >= begin ? (double)(end - begin) : NAN;
}

static double bench_wait_fails(const faults_strike *s)
{
    return bench_between(s->fault_at, s->noticed_at);
}

static double bench_loss_is_told(const faults_strike *s)
{
    return bench_between(s->fault_at, s->told_at);
}

static double bench_restart_call(const faults_strike *s)
{
    return bench_between(s->restart_at, s->restarted_at);
}

static double bench_after_restart(const faults_strike *s)
{
    return bench_between(s->restarted_at, s->finished_at);
}

static double bench_first_kernel(const faults_strike *s)
{
    return bench_between(s->restart_at, s->finished_at);
}

static double bench_others_share(const faults_strike *s)
{
    return s->others_before > 0 ? s->others_during / s->others_before : NAN;
}

static const struct {
    const char *id;
    figure of;
} figures[] = {
    {"notice_wait_ns", bench_wait_fails},    {"notice_told_ns", bench_loss_is_told},
    {"restart_call_ns", bench_restart_call}, {"after_restart_ns", bench_after_restart},
    {"first_kernel_ns", bench_first_kernel}, {"others_share", bench_others_share},
};

enum { FIGURES = sizeof(figures) / sizeof(figures[0]) };

/* One figure over the faults of one kind. *count is the number of faults that have it. */
static stats_spread bench_spread_of(const faults_experiment *x, faults_kind kind, figure of, int *count)
{
    double values[FAULTS_ROUNDS_MAX];
    int n = 0;
    for (int i = 0; i < x->n_strikes; i++) {
        double value = x->strikes[i].kind == kind ? of(&x->strikes[i]) : NAN;
        if (!isnan(value)) {
            values[n++] = value;
        }
    }
    *count = n;
    return cli_stats_spread_of(values, n);
}

static double bench_longest(const faults_experiment *x, faults_kind kind, figure of)
{
    int count = 0;
    stats_spread s = bench_spread_of(x, kind, of, &count);
    return count ? s.max : NAN;
}

/* The other devices' work from the faults to the first kernels, as a share of their work at the
 * rate before the faults. */
static double bench_others_altogether(const faults_experiment *x)
{
    double done = 0, expected = 0;
    for (int i = 0; i < x->n_strikes; i++) {
        const faults_strike *s = &x->strikes[i];
        double seconds = (double)(s->finished_at - s->fault_at) * 1e-9;
        done += s->others_during * seconds;
        expected += s->others_before * seconds;
    }
    return expected > 0 ? done / expected : NAN;
}

typedef struct sums {
    uint64_t steps, batches, lost, wrong, kept_wrong;
} sums;

static sums bench_sum_up(const faults_experiment *x)
{
    sums s = {0, 0, 0, 0, 0};
    for (int i = 0; i < x->n; i++) {
        const faults_load *l = x->loads[i];
        s.steps += l->steps_done;
        s.batches += l->checked;
        s.lost += l->steps_lost;
        s.wrong += l->elements_wrong;
        s.kept_wrong += l->kept_wrong;
    }
    return s;
}

/* NaN in `b` does not count. */
static double bench_larger(double a, double b)
{
    return b > a ? b : a;
}

static void bench_make_goals(const faults_experiment *x, report_goal out[GOALS])
{
    double notice = 0, restart = 0;
    for (int k = 0; k < FAULTS_KINDS; k++) {
        double noticed =
            bench_longest(x, (faults_kind)k, bench_wait_fails) - (k == FAULTS_ENDLESS ? FAULTS_WATCHDOG_MS * 1e6 : 0);
        notice = bench_larger(notice, noticed);
        restart = bench_larger(restart, bench_longest(x, (faults_kind)k, bench_first_kernel));
    }
    sums s = bench_sum_up(x);
    const report_goal goals[GOALS] = {
        {.id = "notice",
         .text = "fault to notice, longest, without the watchdog's time",
         .limit = 300e6,
         .value = notice,
         .unit = "ns"},
        {.id = "restart_to_first_kernel",
         .text = "restart to first finished kernel, longest",
         .limit = 300e6,
         .value = restart,
         .unit = "ns"},
        {.id = "work_lost",
         .text = "work lost on the other devices: operations, elements",
         .limit = 0,
         .value = x->n > 1 ? (double)(s.lost + s.wrong + x->bystanders_lost) : NAN,
         .unit = ""},
        {.id = "others_share",
         .text = "the others' throughput meanwhile, share of before",
         .limit = 0.98,
         .value = bench_others_altogether(x),
         .at_least = true,
         .unit = ""},
        {.id = "kept_wrong",
         .text = "restarts after which a checkpoint was not as saved",
         .limit = 0,
         .value = (double)s.kept_wrong,
         .unit = ""},
    };
    memcpy(out, goals, sizeof(goals));
}

/* ---- JSON ---- */

static const char *bench_cause_text(hd_loss_cause cause)
{
    switch (cause) {
    case HD_LOSS_DRIVER:
        return "driver";
    case HD_LOSS_WATCHDOG:
        return "watchdog";
    case HD_LOSS_WORKER_ENDED:
        return "worker_ended";
    case HD_LOSS_WORKER_STUCK:
        return "worker_stuck";
    }
    return "not told";
}

static void bench_put_strike(hdi_json *j, const faults_strike *s)
{
    hdi_json_object(j);
    cli_report_put_integer(j, "round", (uint64_t)s->round);
    cli_report_put_integer(j, "device", (uint64_t)s->device);
    cli_report_put_string(j, "kind", kind_ids[s->kind]);
    for (int f = 0; f < FIGURES; f++) {
        cli_report_put_number(j, figures[f].id, figures[f].of(s));
    }
    cli_report_put_number(j, "others_steps_per_s_before", s->others_before);
    cli_report_put_number(j, "others_steps_per_s_during", s->others_during);
    cli_report_put_string(j, "cause", bench_cause_text(s->loss.cause));
    hdi_json_key(j, "driver_code");
    hdi_json_integer(j, s->loss.driver_code);
    hdi_json_key(j, "signal");
    hdi_json_integer(j, s->loss.signal);
    cli_report_put_string(j, "message", s->loss.message);
    hdi_json_object_end(j);
}

/* The faults of a kind: their number, and the report to the program at the first. */
static void bench_put_told(hdi_json *j, const faults_experiment *x, faults_kind kind)
{
    uint64_t times = 0;
    const faults_strike *first = NULL;
    for (int i = 0; i < x->n_strikes; i++) {
        const faults_strike *s = &x->strikes[i];
        times += s->kind == kind;
        first = first || s->kind != kind ? first : s;
    }
    cli_report_put_integer(j, "times", times);
    if (first) {
        cli_report_put_string(j, "told", first->told_at ? first->loss.message : "nothing");
    }
}

static void bench_put_kinds(hdi_json *j, const faults_experiment *x)
{
    hdi_json_key(j, "kinds");
    hdi_json_array(j);
    for (int k = 0; k < FAULTS_KINDS; k++) {
        hdi_json_object(j);
        cli_report_put_string(j, "id", kind_ids[k]);
        cli_report_put_string(j, "name", kind_names[k]);
        bench_put_told(j, x, (faults_kind)k);
        for (int f = 0; f < FIGURES; f++) {
            int count = 0;
            stats_spread s = bench_spread_of(x, (faults_kind)k, figures[f].of, &count);
            if (count) {
                cli_report_put_spread(j, figures[f].id, s);
            }
        }
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void bench_faults_print_json(const void *experiment, FILE *out)
{
    const faults_experiment *x = experiment;
    hdi_json writer, *j = &writer;
    sums s = bench_sum_up(x);
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_begin(j, out, "faults", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    char work[96];
    snprintf(work, sizeof(work), "products %u x %u by %u x %u; their sums are checked exactly", x->problem.m,
             x->problem.k, x->problem.k, x->problem.n);
    cli_report_put_integer(j, "devices", (uint64_t)x->n);
    cli_report_put_string(j, "work", work);
    cli_report_put_integer(j, "batch", (uint64_t)x->loads[0]->steps);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    cli_report_put_integer(j, "watchdog_ms", FAULTS_WATCHDOG_MS);
    cli_report_put_number(j, "before_s", (double)x->before_ns * 1e-9);
    cli_report_put_clock(j);
    hdi_json_object_end(j);
    if (x->n == 1) {
        cli_report_put_string(j, "note", "There is one device: what a fault costs the others could not be measured.");
    }
    bench_put_kinds(j, x);
    hdi_json_key(j, "faults");
    hdi_json_array(j);
    for (int i = 0; i < x->n_strikes; i++) {
        bench_put_strike(j, &x->strikes[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    cli_report_put_integer(j, "batches", s.batches);
    cli_report_put_integer(j, "products", s.steps);
    cli_report_put_integer(j, "products_lost", s.lost);
    cli_report_put_integer(j, "elements_wrong", s.wrong);
    cli_report_put_integer(j, "other_devices_lost", x->bystanders_lost);
    cli_report_put_integer(j, "kept_wrong", s.kept_wrong);
    hdi_json_object_end(j);
    cli_report_put_goals(j, goals, GOALS, !x->on_host);
    cli_report_end(j);
}
