/* alloc_figures.c - the figures behind the results of `heddle bench alloc`, and which goals were reached. See alloc_figures.h. */
#include "bench/alloc_figures.h"

#include <math.h>
#include <string.h>

static const double peak_matters_from = 64.0 * 1024 * 1024; /* bytes; below, a granule is a large part */

/* ----------------------------------------------------------------------------------------------------- figures -- */

double alloc_median(const alloc_result *r)
{
    return r->measured && r->n_rounds ? stats_spread_of(r->rounds, r->n_rounds).median : NAN;
}

double alloc_median_of(const double *values, int n)
{
    return n > 0 ? stats_spread_of(values, n).median : NAN;
}

double alloc_largest_of(const double *values, int n)
{
    return n > 0 ? stats_spread_of(values, n).max : NAN;
}

stats_spread alloc_ratio(const alloc_case *c, alloc_kind kind)
{
    const alloc_result *h = &c->sides[ALLOC_HEDDLE], *r = &c->sides[kind];
    int n = h->n_rounds < r->n_rounds ? h->n_rounds : r->n_rounds;
    double ratios[ALLOC_ROUNDS_MAX];
    for (int i = 0; i < n; i++) {
        ratios[i] = r->rounds[i] > 0 ? h->rounds[i] / r->rounds[i] : NAN;
    }
    return h->measured && r->measured && n ? stats_spread_of(ratios, n) : (stats_spread){NAN, NAN, NAN};
}

double alloc_peak_ratio(const alloc_result *r)
{
    bool known = r->measured && r->reserved_peak && r->live_peak;
    return known ? (double)r->reserved_peak / (double)r->live_peak : NAN;
}

/* The larger one; what is not a number does not count. */
static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

static const alloc_case *find_case(const alloc_experiment *x, const char *id)
{
    for (int i = 0; i < x->n_cases; i++) {
        if (strcmp(x->cases[i].id, id) == 0) {
            return &x->cases[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- goals -- */

static double worst_pair(const alloc_experiment *x)
{
    double worst = NAN;
    for (int i = 0; i < x->n_cases; i++) {
        const alloc_case *c = &x->cases[i];
        if (strcmp(c->group, "pair") == 0 && c->bytes <= ALLOC_MIB) {
            worst = larger(worst, alloc_median(&c->sides[ALLOC_HEDDLE]));
        }
    }
    return worst;
}

static double flatness(const alloc_experiment *x)
{
    const alloc_case *one = find_case(x, "threads_pair_1"), *eight = find_case(x, "threads_pair_8");
    bool known = one && eight && x->processors >= eight->threads;
    return known ? alloc_median(&eight->sides[ALLOC_HEDDLE]) / alloc_median(&one->sides[ALLOC_HEDDLE]) : NAN;
}

static double busy_free(const alloc_busy *b, alloc_kind kind)
{
    int n = b->measured[kind] ? b->rounds : 0;
    return larger(alloc_median_of(b->used[kind], n), alloc_median_of(b->unused[kind], n));
}

/* Over the recorded programs that matter; `against_torch`: as a share of PyTorch's ratio. */
static double worst_replay(const alloc_experiment *x, bool against_torch)
{
    double worst = NAN;
    for (int i = 0; i < x->n_cases; i++) {
        const alloc_case *c = &x->cases[i];
        const alloc_result *h = &c->sides[ALLOC_HEDDLE];
        if (!c->log || (double)h->live_peak < peak_matters_from) {
            continue;
        }
        double ratio = alloc_peak_ratio(h);
        if (!against_torch) {
            worst = larger(worst, ratio);
        } else if (c->log->torch_ratio > 0) {
            worst = larger(worst, ratio / c->log->torch_ratio);
        }
    }
    return worst;
}

static double share_of_pace(const alloc_beside *b, alloc_kind kind, int round)
{
    return b->beside[kind][round].kernels_per_s / b->alone[kind][round].kernels_per_s;
}

double alloc_pace_of(const alloc_beside *b, alloc_kind kind, alloc_pace_figure figure)
{
    double values[ALLOC_ROUNDS_MAX];
    int n = b->measured[kind] ? b->rounds : 0;
    for (int i = 0; i < n; i++) {
        const alloc_pace *alone = &b->alone[kind][i], *beside = &b->beside[kind][i];
        values[i] = figure == PACE_SHARE          ? share_of_pace(b, kind, i)
                    : figure == PACE_GAP_ALONE    ? alone->longest_gap_ns
                    : figure == PACE_GAP          ? beside->longest_gap_ns
                    : figure == PACE_SUBMIT_ALONE ? alone->submit_p99_ns
                                                  : beside->submit_p99_ns;
    }
    return alloc_median_of(values, n);
}

double alloc_reclaim_gain(const alloc_reclaim *r, bool pause)
{
    double values[ALLOC_ROUNDS_MAX];
    for (int i = 0; i < r->rounds; i++) {
        const alloc_reclaim_run *e = &r->early[i], *l = &r->at_limit[i];
        values[i] = pause ? l->longest_alloc_ms / e->longest_alloc_ms : l->total_s / e->total_s;
    }
    return alloc_median_of(values, r->rounds);
}

void alloc_goals(const alloc_experiment *x, report_goal out[ALLOC_GOALS])
{
    const alloc_limit *l = &x->limit;
    double over = l->reserved_peak > l->limit ? (double)(l->reserved_peak - l->limit) : 0;
    const alloc_beside *growth = &x->beside[ALLOC_BESIDE_GROWTH];
    double torch = worst_replay(x, true);
    const report_goal goals[ALLOC_GOALS] = {
        {.id = "pair",
         .text = "a pair, one thread, up to 1 MiB (worst size)",
         .limit = 40,
         .value = worst_pair(x),
         .unit = "ns"},
        {.id = "flat", .text = "a pair, 8 threads over 1 thread", .limit = 1.5, .value = flatness(x), .unit = ""},
        {.id = "free_busy",
         .text = "a free while a kernel runs (the block it uses, another)",
         .limit = 1000,
         .value = busy_free(&x->busy, ALLOC_HEDDLE),
         .unit = "ns"},
        {.id = "replay_peak",
         .text = "recorded programs, reserved over live peak (worst)",
         .limit = 1.05,
         .value = worst_replay(x, false),
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
         .value = alloc_reclaim_gain(&x->reclaim, false),
         .at_least = true,
         .unit = ""},
        {.id = "reclaim_pause",
         .text = "early reclaim: how much shorter the longest pause is",
         .limit = 1,
         .value = alloc_reclaim_gain(&x->reclaim, true),
         .at_least = true,
         .unit = ""},
        {.id = "growth_pace",
         .text = "kernels beside growth, share of their pace alone",
         .limit = 0.95,
         .value = alloc_pace_of(growth, ALLOC_HEDDLE, PACE_SHARE),
         .at_least = true,
         .unit = ""},
        {.id = "growth_submit_p99",
         .text = "a submit beside growth, p99",
         .limit = 1000,
         .value = alloc_pace_of(growth, ALLOC_HEDDLE, PACE_SUBMIT),
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

/* --------------------------------------------------------------------------------------------- a training loop -- */

static double total_ns(const alloc_reclaim_run *r)
{
    return r->total_s * 1e9;
}

static double alloc_ns(const alloc_reclaim_run *r)
{
    return r->longest_alloc_ms * 1e6;
}

static double step_ns(const alloc_reclaim_run *r)
{
    return r->longest_step_ms * 1e6;
}

static double collect_ns(const alloc_reclaim_run *r)
{
    return r->collect_s * 1e9;
}

static double mark_ns(const alloc_reclaim_run *r)
{
    return r->mark_ms * 1e6;
}

static double reserved_mib(const alloc_reclaim_run *r)
{
    return (double)r->reserved_peak / (double)ALLOC_MIB;
}

static double early_count(const alloc_reclaim_run *r)
{
    return (double)r->early;
}

static double limit_count(const alloc_reclaim_run *r)
{
    return (double)r->at_limit;
}

const alloc_run_row alloc_run_figures[ALLOC_RUN_FIGURES] = {
    {"total_ns", "total time", total_ns, true},
    {"longest_alloc_ns", "longest pause: one allocation", alloc_ns, true},
    {"longest_step_ns", "longest step", step_ns, true},
    {"collect_ns", "in the collector", collect_ns, true},
    {"mark_ns", "marking, each time", mark_ns, true},
    {"reserved_peak_mib", "most memory held, MiB", reserved_mib, false},
    {"collections_early", "collections, early", early_count, false},
    {"collections_at_limit", "collections, at the limit", limit_count, false},
};

stats_spread alloc_run_spread(const alloc_reclaim *r, bool early, alloc_run_figure of)
{
    double values[ALLOC_ROUNDS_MAX];
    for (int i = 0; i < r->rounds; i++) {
        values[i] = of(early ? &r->early[i] : &r->at_limit[i]);
    }
    return stats_spread_of(values, r->rounds);
}
