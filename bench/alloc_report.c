/* alloc_report.c - the results of `heddle bench alloc`: derived figures, goals, JSON.
 *
 * Threads: the conductor, after all measurements. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. A missing
 * figure is NaN.
 */
#include <math.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum { ALLOC_GOALS = 10, ALLOC_RUN_FIGURES = 8 };

typedef enum alloc_pace_figure {
    PACE_SHARE,
    PACE_GAP_ALONE,
    PACE_GAP,
    PACE_SUBMIT_ALONE,
    PACE_SUBMIT
} alloc_pace_figure;

typedef double (*alloc_run_figure)(const alloc_reclaim_run *r);

typedef struct alloc_run_row {
    const char *id;
    alloc_run_figure of;
} alloc_run_row;

/* in bytes; a smaller peak says little, because a granule is a large part of it */
static const double peak_matters_from = 64.0 * 1024 * 1024;

/* ---- figures ---- */

static double bench_alloc_median(const alloc_result *r)
{
    return r->measured && r->n_rounds ? cli_stats_spread_of(r->rounds, r->n_rounds).median : NAN;
}

static double bench_alloc_median_of(const double *values, int n)
{
    return n > 0 ? cli_stats_spread_of(values, n).median : NAN;
}

/* Heddle's time over that of another allocator, round by round. */
static stats_spread bench_alloc_ratio(const alloc_case *c, alloc_kind kind)
{
    const alloc_result *h = &c->sides[ALLOC_HEDDLE], *r = &c->sides[kind];
    int n = h->n_rounds < r->n_rounds ? h->n_rounds : r->n_rounds;
    double ratios[ALLOC_ROUNDS_MAX];
    for (int i = 0; i < n; i++) {
        ratios[i] = r->rounds[i] > 0 ? h->rounds[i] / r->rounds[i] : NAN;
    }
    return h->measured && r->measured && n ? cli_stats_spread_of(ratios, n) : (stats_spread){NAN, NAN, NAN};
}

/* The peak of reserved memory divided by the peak of live memory. */
static double bench_alloc_peak_ratio(const alloc_result *r)
{
    bool known = r->measured && r->reserved_peak && r->live_peak;
    return known ? (double)r->reserved_peak / (double)r->live_peak : NAN;
}

/* The larger one; NaN does not count. */
static double bench_larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

static const alloc_case *bench_find_case(const alloc_experiment *x, const char *id)
{
    for (int i = 0; i < x->n_cases; i++) {
        if (strcmp(x->cases[i].id, id) == 0) {
            return &x->cases[i];
        }
    }
    return NULL;
}

/* ---- goals ---- */

static double bench_worst_pair(const alloc_experiment *x)
{
    double worst = NAN;
    for (int i = 0; i < x->n_cases; i++) {
        const alloc_case *c = &x->cases[i];
        if (strcmp(c->group, "pair") == 0 && c->bytes <= ALLOC_MIB) {
            worst = bench_larger(worst, bench_alloc_median(&c->sides[ALLOC_HEDDLE]));
        }
    }
    return worst;
}

static double bench_flatness(const alloc_experiment *x)
{
    const alloc_case *one = bench_find_case(x, "threads_pair_1"), *eight = bench_find_case(x, "threads_pair_8");
    bool known = one && eight && x->processors >= eight->threads;
    return known ? bench_alloc_median(&eight->sides[ALLOC_HEDDLE]) / bench_alloc_median(&one->sides[ALLOC_HEDDLE])
                 : NAN;
}

static double bench_busy_free(const alloc_busy *b, alloc_kind kind)
{
    int n = b->measured[kind] ? b->rounds : 0;
    return bench_larger(bench_alloc_median_of(b->used[kind], n), bench_alloc_median_of(b->unused[kind], n));
}

/* The largest peak ratio of the recorded programs that matter. `against_torch`: as a share of
 * PyTorch's ratio. */
static double bench_worst_replay(const alloc_experiment *x, bool against_torch)
{
    double worst = NAN;
    for (int i = 0; i < x->n_cases; i++) {
        const alloc_case *c = &x->cases[i];
        const alloc_result *h = &c->sides[ALLOC_HEDDLE];
        if (!c->log || (double)h->live_peak < peak_matters_from) {
            continue;
        }
        double ratio = bench_alloc_peak_ratio(h);
        if (!against_torch) {
            worst = bench_larger(worst, ratio);
        } else if (c->log->torch_ratio > 0) {
            worst = bench_larger(worst, ratio / c->log->torch_ratio);
        }
    }
    return worst;
}

static double bench_share_of_pace(const alloc_beside *b, alloc_kind kind, int round)
{
    return b->beside[kind][round].kernels_per_s / b->alone[kind][round].kernels_per_s;
}

static double bench_alloc_pace_of(const alloc_beside *b, alloc_kind kind, alloc_pace_figure figure)
{
    double values[ALLOC_ROUNDS_MAX];
    int n = b->measured[kind] ? b->rounds : 0;
    for (int i = 0; i < n; i++) {
        const alloc_pace *alone = &b->alone[kind][i], *beside = &b->beside[kind][i];
        values[i] = figure == PACE_SHARE          ? bench_share_of_pace(b, kind, i)
                    : figure == PACE_GAP_ALONE    ? alone->longest_gap_ns
                    : figure == PACE_GAP          ? beside->longest_gap_ns
                    : figure == PACE_SUBMIT_ALONE ? alone->submit_p99_ns
                                                  : beside->submit_p99_ns;
    }
    return bench_alloc_median_of(values, n);
}

/* The median ratio of collection at the limit to early collection, of the total time or
 * (`pause`) of the longest allocation. */
static double bench_alloc_reclaim_gain(const alloc_reclaim *r, bool pause)
{
    double values[ALLOC_ROUNDS_MAX];
    for (int i = 0; i < r->rounds; i++) {
        const alloc_reclaim_run *e = &r->early[i], *l = &r->at_limit[i];
        values[i] = pause ? l->longest_alloc_ms / e->longest_alloc_ms : l->total_s / e->total_s;
    }
    return bench_alloc_median_of(values, r->rounds);
}

static void bench_alloc_goals(const alloc_experiment *x, report_goal out[ALLOC_GOALS])
{
    const alloc_limit *l = &x->limit;
    double over = l->reserved_peak > l->limit ? (double)(l->reserved_peak - l->limit) : 0;
    const alloc_beside *growth = &x->beside[ALLOC_BESIDE_GROWTH];
    double torch = bench_worst_replay(x, true);
    const report_goal goals[ALLOC_GOALS] = {
        {.id = "pair",
         .text = "a pair, one thread, up to 1 MiB (worst size)",
         .limit = 40,
         .value = bench_worst_pair(x),
         .unit = "ns"},
        {.id = "flat", .text = "a pair, 8 threads over 1 thread", .limit = 1.5, .value = bench_flatness(x), .unit = ""},
        {.id = "free_busy",
         .text = "a free while a kernel runs (the block it uses, another)",
         .limit = 1000,
         .value = bench_busy_free(&x->busy, ALLOC_HEDDLE),
         .unit = "ns"},
        {.id = "replay_peak",
         .text = "recorded programs, reserved over live peak (worst)",
         .limit = 1.05,
         .value = bench_worst_replay(x, false),
         .unit = ""},
        {.id = "replay_torch",
         .text = "PyTorch's reserved peak over Heddle's (worst program)",
         .limit = 1,
         .value = isnan(torch) ? NAN : 1 / torch,
         .at_least = true,
         .unit = ""},
        {.id = "limit",
         .text = "bytes held beyond the limit in a storm of 16 threads",
         .limit = 0,
         .value = l->measured ? over : NAN,
         .unit = ""},
        {.id = "reclaim_total",
         .text = "early reclaim: how much faster than at the limit only",
         .limit = 1,
         .value = bench_alloc_reclaim_gain(&x->reclaim, false),
         .at_least = true,
         .unit = ""},
        {.id = "reclaim_pause",
         .text = "early reclaim: how much shorter the longest pause is",
         .limit = 1,
         .value = bench_alloc_reclaim_gain(&x->reclaim, true),
         .at_least = true,
         .unit = ""},
        {.id = "growth_pace",
         .text = "kernels beside growth, share of their pace alone",
         .limit = 0.95,
         .value = bench_alloc_pace_of(growth, ALLOC_HEDDLE, PACE_SHARE),
         .at_least = true,
         .unit = ""},
        {.id = "growth_submit_p99",
         .text = "a submit beside growth, p99",
         .limit = 1000,
         .value = bench_alloc_pace_of(growth, ALLOC_HEDDLE, PACE_SUBMIT),
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

/* ---- a training loop ---- */

static double bench_total_ns(const alloc_reclaim_run *r)
{
    return r->total_s * 1e9;
}

static double bench_alloc_ns(const alloc_reclaim_run *r)
{
    return r->longest_alloc_ms * 1e6;
}

static double bench_step_ns(const alloc_reclaim_run *r)
{
    return r->longest_step_ms * 1e6;
}

static double bench_collect_ns(const alloc_reclaim_run *r)
{
    return r->collect_s * 1e9;
}

static double bench_mark_ns(const alloc_reclaim_run *r)
{
    return r->mark_ms * 1e6;
}

static double bench_reserved_mib(const alloc_reclaim_run *r)
{
    return (double)r->reserved_peak / (double)ALLOC_MIB;
}

static double bench_early_count(const alloc_reclaim_run *r)
{
    return (double)r->early;
}

static double bench_limit_count(const alloc_reclaim_run *r)
{
    return (double)r->at_limit;
}

static const alloc_run_row alloc_run_figures[ALLOC_RUN_FIGURES] = {
    {"total_ns", bench_total_ns},
    {"longest_alloc_ns", bench_alloc_ns},
    {"longest_step_ns", bench_step_ns},
    {"collect_ns", bench_collect_ns},
    {"mark_ns", bench_mark_ns},
    {"reserved_peak_mib", bench_reserved_mib},
    {"collections_early", bench_early_count},
    {"collections_at_limit", bench_limit_count},
};

/* ---- JSON ---- */

/* Explains how a side differs from its columns. */
static void bench_put_side_note(hdi_json *j, const alloc_result *r)
{
    char part[64] = "", refused[64] = "", note[130];
    if (r->part < 1) {
        snprintf(part, sizeof(part), "the first %.2g %% of it, for want of time", 100 * r->part);
    }
    if (r->refused) {
        snprintf(refused, sizeof(refused), "out of memory %llu times", (unsigned long long)r->refused);
    }
    snprintf(note, sizeof(note), "%s%s%s", part, part[0] && refused[0] ? "; " : "", refused);
    cli_report_put_string(j, "note", note);
}

static void bench_put_side(hdi_json *j, const alloc_case *c, alloc_kind kind)
{
    const alloc_result *r = &c->sides[kind];
    hdi_json_key(j, alloc_kind_ids[kind]);
    hdi_json_object(j);
    if (!r->measured) {
        cli_report_put_string(j, "not_measured", r->note);
        hdi_json_object_end(j);
        return;
    }
    cli_report_put_values(j, "ns", r->rounds, r->n_rounds);
    cli_report_put_values(j, "mean_ns", r->means, r->n_rounds);
    cli_report_put_calls(j, "single", r->calls);
    cli_report_put_integer(j, "operations", r->operations);
    cli_report_put_integer(j, "refused", r->refused);
    cli_report_put_integer(j, "driver_calls", r->driver_calls);
    cli_report_put_number(j, "part", r->part);
    bench_put_side_note(j, r);
    if (r->reserved_peak && r->live_peak) {
        cli_report_put_integer(j, "reserved_peak_bytes", r->reserved_peak);
        cli_report_put_integer(j, "live_peak_bytes", r->live_peak);
        cli_report_put_number(j, "reserved_over_live", bench_alloc_peak_ratio(r));
    }
    if (kind != ALLOC_HEDDLE) {
        cli_report_put_spread(j, "heddle_over_this", bench_alloc_ratio(c, kind));
    }
    hdi_json_object_end(j);
}

static void bench_put_case(hdi_json *j, const alloc_experiment *x, const alloc_case *c)
{
    hdi_json_object(j);
    cli_report_put_string(j, "id", c->id);
    cli_report_put_string(j, "part", c->group);
    cli_report_put_string(j, "name", c->name);
    cli_report_put_string(j, "time_of", c->unit);
    cli_report_put_integer(j, "threads", (uint64_t)c->threads);
    if (c->bytes) {
        cli_report_put_integer(j, "bytes", c->bytes);
    }
    if (c->log) {
        cli_report_put_integer(j, "log_operations", c->log->count);
        cli_report_put_integer(j, "log_peak_live_bytes", c->log->peak_live);
        cli_report_put_integer(j, "log_streams", c->log->lanes);
        cli_report_put_integer(j, "sizes_divided_by", c->log->divisor);
        if (c->log->divisor > 1) {
            char note[64];
            snprintf(note, sizeof(note), "all sizes divided by %u, to fit the device", c->log->divisor);
            cli_report_put_string(j, "note", note);
        }
        if (c->log->torch_ratio > 0) {
            cli_report_put_number(j, "torch_reserved_over_live", c->log->torch_ratio);
        }
        if (c->log->torch_expandable_ratio > 0) {
            cli_report_put_number(j, "torch_expandable_reserved_over_live", c->log->torch_expandable_ratio);
        }
    }
    for (int kind = 0; kind < ALLOC_KINDS; kind++) {
        if (kind != ALLOC_LIBC || x->on_host) {
            bench_put_side(j, c, (alloc_kind)kind);
        }
    }
    hdi_json_object_end(j);
}

static void bench_put_busy(hdi_json *j, const alloc_busy *b)
{
    hdi_json_key(j, "free_busy");
    hdi_json_object(j);
    cli_report_put_number(j, "kernel_ms", b->kernel_ms);
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        if (b->measured[kind]) {
            hdi_json_key(j, alloc_kind_ids[kind]);
            hdi_json_object(j);
            cli_report_put_values(j, "used_ns", b->used[kind], b->rounds);
            cli_report_put_values(j, "unused_ns", b->unused[kind], b->rounds);
            hdi_json_object_end(j);
        }
    }
    hdi_json_object_end(j);
}

static void bench_put_pace(hdi_json *j, const char *key, const alloc_pace *paces, int n)
{
    hdi_json_key(j, key);
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_object(j);
        cli_report_put_number(j, "kernels_per_s", paces[i].kernels_per_s);
        cli_report_put_number(j, "longest_gap_ns", paces[i].longest_gap_ns);
        cli_report_put_number(j, "submit_p99_ns", paces[i].submit_p99_ns);
        cli_report_put_number(j, "submit_max_ns", paces[i].submit_max_ns);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* Writes a figure of the kernels alone, and the same figure beside the other thread. */
static void bench_put_alone_beside(hdi_json *j, const char *key, const alloc_beside *b, alloc_kind kind, int alone)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    cli_report_put_number(j, "alone", bench_alloc_pace_of(b, kind, (alloc_pace_figure)alone));
    cli_report_put_number(j, "beside", bench_alloc_pace_of(b, kind, (alloc_pace_figure)(alone + 1)));
    hdi_json_object_end(j);
}

static void bench_put_beside(hdi_json *j, const char *key, const alloc_beside *b)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        if (!b->measured[kind]) {
            continue;
        }
        hdi_json_key(j, alloc_kind_ids[kind]);
        hdi_json_object(j);
        cli_report_put_number(j, "share", bench_alloc_pace_of(b, (alloc_kind)kind, PACE_SHARE));
        bench_put_alone_beside(j, "longest_gap_ns", b, (alloc_kind)kind, PACE_GAP_ALONE);
        bench_put_alone_beside(j, "submit_p99_ns", b, (alloc_kind)kind, PACE_SUBMIT_ALONE);
        bench_put_pace(j, "alone", b->alone[kind], b->rounds);
        bench_put_pace(j, "beside", b->beside[kind], b->rounds);
        cli_report_put_values(j, "cycles_per_s", b->cycles_per_s[kind], b->rounds);
        hdi_json_object_end(j);
    }
    hdi_json_object_end(j);
}

static void bench_put_limit(hdi_json *j, const alloc_limit *l)
{
    hdi_json_key(j, "limit");
    hdi_json_object(j);
    cli_report_put_integer(j, "threads", (uint64_t)l->threads);
    cli_report_put_integer(j, "limit_bytes", l->limit);
    cli_report_put_integer(j, "reserved_peak_bytes", l->reserved_peak);
    cli_report_put_integer(j, "driver_peak_bytes", l->driver_peak);
    cli_report_put_integer(j, "asked_bytes", l->asked);
    cli_report_put_integer(j, "allocations", l->allocations);
    cli_report_put_integer(j, "refused", l->refused);
    cli_report_put_integer(j, "waits", l->waits);
    cli_report_put_integer(j, "drains", l->drains);
    cli_report_put_number(j, "seconds", l->seconds);
    hdi_json_object_end(j);
}

static void bench_put_reclaim(hdi_json *j, const alloc_reclaim *r)
{
    hdi_json_key(j, "reclaim");
    hdi_json_object(j);
    cli_report_put_integer(j, "steps", (uint64_t)r->steps);
    cli_report_put_integer(j, "limit_bytes", r->limit);
    cli_report_put_integer(j, "garbage_per_step_bytes", r->garbage_per_step);
    cli_report_put_integer(j, "objects", r->objects);
    for (int early = 1; early >= 0; early--) {
        hdi_json_key(j, early ? "early" : "at_limit");
        hdi_json_object(j);
        for (int i = 0; i < ALLOC_RUN_FIGURES; i++) {
            double values[ALLOC_ROUNDS_MAX];
            for (int k = 0; k < r->rounds; k++) {
                values[k] = alloc_run_figures[i].of(early ? &r->early[k] : &r->at_limit[k]);
            }
            cli_report_put_values(j, alloc_run_figures[i].id, values, r->rounds);
        }
        hdi_json_object_end(j);
    }
    cli_report_put_number(j, "total_gain", bench_alloc_reclaim_gain(r, false));
    cli_report_put_number(j, "pause_gain", bench_alloc_reclaim_gain(r, true));
    hdi_json_object_end(j);
}

static void bench_put_access(hdi_json *j, const alloc_experiment *x)
{
    const alloc_unified *u = &x->unified;
    const alloc_pinned *p = &x->pinned;
    if (u->measured) {
        hdi_json_key(j, "unified");
        hdi_json_object(j);
        cli_report_put_values(j, "element_ns", u->element_ns, u->rounds);
        cli_report_put_values(j, "load_ns", u->load_ns, u->rounds);
        cli_report_put_values(j, "copy_ns", u->copy_ns, u->rounds);
        cli_report_put_number(j, "first_read_us", u->first_us);
        hdi_json_object_end(j);
    }
    if (p->measured) {
        hdi_json_key(j, "pinned");
        hdi_json_object(j);
        cli_report_put_integer(j, "bytes", p->bytes);
        cli_report_put_number(j, "first_ns", p->first_ns);
        cli_report_put_values(j, "heddle_ns", p->heddle_ns, p->rounds);
        cli_report_put_values(j, "driver_ns", p->driver_ns, p->rounds);
        hdi_json_object_end(j);
    }
}

void bench_alloc_print_json(const void *experiment, FILE *out)
{
    const alloc_experiment *x = experiment;
    hdi_json writer, *j = &writer;
    report_goal goals[ALLOC_GOALS];
    bench_alloc_goals(x, goals);
    cli_report_begin(j, out, "alloc", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    cli_report_put_integer(j, "room_bytes", x->room);
    cli_report_put_clock(j);
    hdi_json_object_end(j);
    if (x->on_host) {
        cli_report_put_string(
            j, "note",
            "the driver is the host devices' own: figures of cuMemAlloc and cuMemAllocAsync do not apply to a GPU");
    }
    hdi_json_key(j, "cases");
    hdi_json_array(j);
    for (int i = 0; i < x->n_cases; i++) {
        bench_put_case(j, x, &x->cases[i]);
    }
    hdi_json_array_end(j);
    if (x->busy.rounds) {
        bench_put_busy(j, &x->busy);
    }
    if (x->beside[ALLOC_BESIDE_GROWTH].rounds) {
        bench_put_beside(j, "beside_growth", &x->beside[ALLOC_BESIDE_GROWTH]);
    }
    if (x->beside[ALLOC_BESIDE_RANDOM].rounds) {
        bench_put_beside(j, "beside_random", &x->beside[ALLOC_BESIDE_RANDOM]);
    }
    if (x->limit.measured) {
        bench_put_limit(j, &x->limit);
    }
    if (x->reclaim.rounds) {
        bench_put_reclaim(j, &x->reclaim);
    }
    bench_put_access(j, x);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    cli_report_put_integer(j, "blocks", x->checked);
    cli_report_put_integer(j, "blocks_with_bytes", x->tagged);
    cli_report_put_integer(j, "kernel_results", x->results);
    hdi_json_object_end(j);
    cli_report_put_goals(j, goals, ALLOC_GOALS, !x->on_host);
    cli_report_end(j);
}
