/* alloc_figures.h - what the table and the JSON of `heddle bench alloc` share: medians, ratios, goals, figures of a training loop.
 *
 * Threads: the conductor's, after everything was measured. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. A figure that could not be had is
 * not a number.
 */
#ifndef BENCH_ALLOC_FIGURES_H
#define BENCH_ALLOC_FIGURES_H

#include "bench/alloc_parts.h"

enum { ALLOC_GOALS = 10, ALLOC_RUN_FIGURES = 8 };

double alloc_median(const alloc_result *r);
double alloc_median_of(const double *values, int n);
double alloc_largest_of(const double *values, int n);

/* Heddle's time over another one's, round by round. */
stats_spread alloc_ratio(const alloc_case *c, alloc_kind kind);

/* The most reserved over the most live. */
double alloc_peak_ratio(const alloc_result *r);

typedef enum alloc_pace_figure {
    PACE_SHARE,
    PACE_GAP_ALONE,
    PACE_GAP,
    PACE_SUBMIT_ALONE,
    PACE_SUBMIT
} alloc_pace_figure;

double alloc_pace_of(const alloc_beside *b, alloc_kind kind, alloc_pace_figure figure);

/* How many times as long it takes at the limit only; the median of the rounds. */
double alloc_reclaim_gain(const alloc_reclaim *r, bool pause);

typedef double (*alloc_run_figure)(const alloc_reclaim_run *r);

typedef struct alloc_run_row {
    const char *id, *text;
    alloc_run_figure of;
    bool is_time;
} alloc_run_row;

extern const alloc_run_row alloc_run_figures[ALLOC_RUN_FIGURES];

stats_spread alloc_run_spread(const alloc_reclaim *r, bool early, alloc_run_figure of);

void alloc_goals(const alloc_experiment *x, report_goal out[ALLOC_GOALS]);

#endif
