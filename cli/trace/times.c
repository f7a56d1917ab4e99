/* times.c - converts a trace to one clock, by CLOCK records of devices, and finds when each
 * operation was issued, began and ended.
 *
 * A device's own times are interpolated between neighbouring CLOCK records, and extrapolated with
 * the nearest slope. After a restart or in another runtime, a device counts from another zero. So
 * each RESTART and each runtime starts a new era of CLOCK records. An era is divided into rows
 * within which both clocks run alike. A span belongs to the era and the row in which the engine
 * wrote it. The first CLOCK of an era may be later than its first spans.
 *
 * An idle lane passes the event before a span at once, even if the driver does not yet have the
 * span's first operation. So no span begins before the call for that operation. On an idle lane a
 * span begins when the operation reaches the device. The engine measured the delay from the call's
 * return until then. The same holds for a lane that becomes idle during the call.
 *
 * An operation without a DONE may still have ended. A loss ends all operations that the device had
 * not done. If an engine dropped the DONE, the lane's next DONE covers the operation. If the file
 * ran out of room, unfinished work counts as running until the trace ends.
 *
 * A device's clock is only known up to an error. A span can seem to end after the engine saw the
 * span's last operation done. It can also seem to begin after the engine saw the span's first
 * operation done. In both cases the device's clock is off by the difference, and both times are
 * shifted back.
 *
 * An end by the engine's clock is slightly late. If it is later than the event before the lane's
 * next span, the span ended at that event.
 *
 * Threads, Locks: see model.h.
 * Always: in a lane stretches begin in the order of their positions. Spans of a lane do not
 * overlap. No operation ends before it begins, or after the host saw it done.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* ---- clocks ---- */

enum { CLOCK_WITHIN_MOST = 1000000000, SLOW_CALL_NS = 100000 };

/* Lengths count as exact if the clocks match more closely than this. */
enum { COARSE_NS = 50000 };

static int trace_times_compare_clocks(const void *a, const void *b)
{
    const trace_clock *x = a, *y = b;
    if (x->device != y->device) {
        return x->device - y->device;
    }
    if (x->era != y->era) {
        return x->era < y->era ? -1 : 1;
    }
    return (x->time > y->time) - (x->time < y->time);
}

static int trace_times_compare_restarts(const void *a, const void *b)
{
    const trace_restart *x = a, *y = b;
    return x->device != y->device ? x->device - y->device : (x->time > y->time) - (x->time < y->time);
}

/* The era of a time on a device: the runtime, and the number of restarts before. Restarts are
 * sorted. */
static uint64_t trace_times_era_of(const trace_source *s, int device, uint64_t run, int64_t time)
{
    size_t low = 0, high = s->n_restarts;
    /* the first restart after (device, time); restarts of devices before this device only raise the
     * number */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const trace_restart *r = &s->restarts[middle];
        if (r->device < device || (r->device == device && r->time <= time)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return run << 32 | low;
}

static bool trace_times_same_era(const trace_clock *a, const trace_clock *b)
{
    return a->device == b->device && a->era == b->era;
}

/* True if the device's own time advanced like the clock from a to b. */
static bool trace_times_clock_goes_on(const trace_clock *a, const trace_clock *b)
{
    __int128 clock = (__int128)b->time - a->time, own = (__int128)b->own - a->own;
    __int128 off = own > clock ? own - clock : clock - own;
    return off <= clock / 10 + 10 * ((__int128)a->within + b->within) + 1000;
}

/* Keeps those CLOCK records of each device that are far enough apart for a slope exact to a
 * thousandth. Of the records between two of them, keeps the closest comparison. */
static void trace_times_thin_clocks(trace_source *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_clocks; i++) {
        trace_clock c = s->clocks[i];
        c.within = c.within < 0 ? 0 : trace_least(c.within, CLOCK_WITHIN_MOST);
        trace_clock *before = n > 0 && trace_times_same_era(&s->clocks[n - 1], &c) ? &s->clocks[n - 1] : NULL;
        bool apart = !before || !trace_times_clock_goes_on(before, &c) ||
                     (c.own > before->own && c.time - before->time > 1000 * (c.within + before->within));
        if (apart) {
            s->clocks[n++] = c;
        } else if (c.within < before->within) {
            /* `c` is also farther from the clock in front of `before` */
            *before = c;
        }
    }
    s->n_clocks = n;
    for (size_t i = 0; i < n; i++) {
        trace_device *d = &s->t->devices[s->clocks[i].device];
        d->clock_within = trace_most(d->clock_within, s->clocks[i].within);
    }
}

/* Finds the last clock before `time` in the era of the device, else the era's first one. False:
 * the era has none. */
static bool trace_times_find_clock(const trace_source *s, int device, uint64_t run, int64_t time, size_t *out)
{
    const trace_clock wanted = {
        .device = (uint8_t)device, .era = trace_times_era_of(s, device, run, time), .time = time};
    size_t low = 0, high = s->n_clocks;
    while (low < high) { /* find the first clock after `time` */
        size_t middle = low + (high - low) / 2;
        if (trace_times_compare_clocks(&s->clocks[middle], &wanted) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t at = low > 0 && trace_times_same_era(&s->clocks[low - 1], &wanted) ? low - 1 : low;
    if (at >= s->n_clocks || !trace_times_same_era(&s->clocks[at], &wanted)) {
        return false;
    }
    *out = at;
    return true;
}

/* The ends of rows, found once: first[i] is the first clock of i's row, and last[first[i]] the
 * last one. */
typedef struct clock_rows {
    size_t *first, *last;
} clock_rows;

static bool trace_times_make_rows(const trace_source *s, clock_rows *out)
{
    out->first = trace_table(s->n_clocks, sizeof(size_t));
    out->last = trace_table(s->n_clocks, sizeof(size_t));
    for (size_t i = 0; out->first && out->last && i < s->n_clocks; i++) {
        bool same = i > 0 && trace_times_same_era(&s->clocks[i - 1], &s->clocks[i]) &&
                    s->clocks[i].own > s->clocks[i - 1].own && s->clocks[i].time > s->clocks[i - 1].time &&
                    trace_times_clock_goes_on(&s->clocks[i - 1], &s->clocks[i]);
        out->first[i] = same ? out->first[i - 1] : i;
        out->last[out->first[i]] = i;
    }
    return out->first && out->last;
}

static int64_t trace_times_convert_own(const trace_source *s, const clock_rows *rows, size_t at, int64_t own)
{
    size_t first = rows->first[at], last = rows->last[first], low = first, high = last + 1;
    while (low < high) { /* the first clock after `own` */
        size_t middle = low + (high - low) / 2;
        if (s->clocks[middle].own <= own) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t a = low > first ? low - 1 : first;
    a = a == last && a > first ? a - 1 : a;
    const trace_clock *from = &s->clocks[a];
    __int128 since = (__int128)own - from->own;
    if (a < last) {
        const trace_clock *to = &s->clocks[a + 1];
        since = since * (to->time - from->time) / ((__int128)to->own - from->own);
    }
    __int128 time = since + from->time;
    return time > TRACE_TIME_MOST || time < -TRACE_TIME_MOST ? TRACE_UNSEEN : (int64_t)time;
}

/* The ISSUE of a span's first operation. NULL: it is missing, or the driver refused it. Both
 * tables are sorted; `next` only grows. */
static const bench_trace_run *trace_times_find_issue(const trace_source *s, const bench_trace_run *span, size_t *next)
{
    const bench_trace_run *issues = s->issues;
    while (*next < s->n_issues && (issues[*next].lane < span->lane ||
                                   (issues[*next].lane == span->lane && issues[*next].position <= span->before))) {
        ++*next;
    }
    const bench_trace_run *is = *next < s->n_issues ? &issues[*next] : NULL;
    return is && is->lane == span->lane && is->before <= span->before && is->kind == 0 ? is : NULL;
}

/* When the host saw a span's first and last operation done; TRACE_TIME_MOST: it did not.
 * `within`: how closely the device's clock matched the host's clock then. */
typedef struct seen {
    int64_t first, last, within;
} seen;

typedef struct seen_at {
    size_t first, last;
} seen_at;

/* The time of the lane's first DONE that reaches a position: operations of a lane finish in
 * order. `next` only grows. */
static int64_t trace_times_find_done(const trace_source *s, uint32_t lane, uint64_t position, size_t *next)
{
    const bench_trace_run *dones = s->dones;
    while (*next < s->n_dones &&
           (dones[*next].lane < lane || (dones[*next].lane == lane && dones[*next].position < position))) {
        ++*next;
    }
    return *next < s->n_dones && dones[*next].lane == lane ? dones[*next].time : TRACE_TIME_MOST;
}

/* Both tables are sorted; `at` only grows. */
static seen trace_times_find_seen(const trace_source *s, const bench_trace_run *span, seen_at *at)
{
    return (seen){.first = trace_times_find_done(s, span->lane, span->before + 1, &at->first),
                  .last = trace_times_find_done(s, span->lane, span->position, &at->last)};
}

/* Shifts a span's device times back if they are later than the host saw the work done. Times of
 * the host's clock stay. Returns true if the device's clock was off. */
static bool trace_times_hold_end(bench_trace_run *span, const seen *done)
{
    bool own_begin = !(span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK);
    bool own_end = !(span->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK);
    int64_t late = own_end ? trace_most(0, span->ended - done->last) : 0;
    late = own_begin ? trace_most(late, span->began - done->first) : late;
    span->began -= own_begin ? late : 0;
    span->ended -= own_end ? late : 0;
    span->began = trace_least(span->began, done->first);
    span->ended = trace_least(span->ended, done->last);
    return late > 0;
}

/* If a device's clock is off at a span, the span before it in the lane must end by the span's
 * begin. */
static void trace_times_hold_ends(trace_source *s, const seen *done)
{
    bool off = false; /* the device's clock was off at the next span */
    for (size_t i = s->n_spans; i-- > 0;) {
        bench_trace_run *span = &s->spans[i];
        const bench_trace_run *behind = i + 1 < s->n_spans && span[1].lane == span->lane ? &span[1] : NULL;
        seen limit = done[i];
        if (behind && off && !(behind->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK)) {
            limit.last = trace_least(limit.last, behind->began);
        }
        off = trace_times_hold_end(span, &limit);
    }
}

/* True if the lane was idle when the device got a span's first operation. A launch reaches the
 * device when its call returns. The same holds for a long call, because it loads code first. Other
 * calls may pass several commands one by one. */
static bool trace_times_is_at_rest(const bench_trace_run *span, const bench_trace_run *issue,
                                   const bench_trace_run *before)
{
    bool at_return = span->way || issue->ended - issue->time > SLOW_CALL_NS;
    return !before || before->ended <= issue->time || (at_return && before->ended < issue->ended);
}

/* `before`: the previous span in the lane, or NULL. `done`: when the first operation was done. */
static void trace_times_hold_begin(bench_trace_run *span, const bench_trace_run *issue, const bench_trace_run *before,
                                   int64_t done)
{
    int64_t least = before ? before->began : -TRACE_TIME_MOST;
    if (issue) {
        least = trace_most(least, issue->time);
        int64_t returned = trace_least(trace_least(issue->ended + span->way, done), span->ended);
        least = trace_times_is_at_rest(span, issue, before) ? trace_most(least, returned) : least;
        /* the delay from the call's return to the device is an estimate */
        if (span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) {
            span->began = trace_least(span->began, trace_most(issue->ended, span->ended));
        }
    }
    span->began = trace_most(span->began, least);
    span->ended = trace_most(span->ended, span->began);
}

/* A lane runs one span after another. */
static void trace_times_part_spans(bench_trace_run *before, bench_trace_run *span)
{
    if (before->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) {
        before->ended = trace_most(before->began, trace_least(before->ended, span->began));
    }
    span->began = trace_most(span->began, before->ended);
    span->ended = trace_most(span->ended, span->began);
}

/* Computes the error bound of a span's length. `by_call`: its begin comes from the call for its
 * first operation, made at `from`. `within`: how closely the clocks match. `within` does not matter
 * if both ends come from one clock. */
static void trace_times_judge_length(bench_trace_run *span, int64_t from, bool by_call, int64_t within)
{
    bool ended_by_clock = span->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK;
    bool mixed = by_call != ended_by_clock;
    int64_t length = span->ended - span->began;
    span->off = (by_call ? trace_most(0, span->began - from) : 0) + (mixed ? within : 0);
    span->coarse = mixed && within > COARSE_NS && within > length / 4;
}

static void trace_times_sort_clocks(trace_source *s)
{
    trace_sort(s->restarts, s->n_restarts, sizeof s->restarts[0], trace_times_compare_restarts);
    for (size_t i = 0; i < s->n_clocks; i++) {
        trace_clock *c = &s->clocks[i];
        c->era = trace_times_era_of(s, c->device, c->run, c->time);
    }
    trace_sort(s->clocks, s->n_clocks, sizeof s->clocks[0], trace_times_compare_clocks);
    trace_times_thin_clocks(s);
}

/* Converts the spans to clock times. Drops those without a clock or with invalid times. `done` gets
 * an entry for each remaining span. */
static void trace_times_convert_spans(trace_source *s, const clock_rows *rows, seen *done)
{
    seen_at at = {0, 0};
    size_t n = 0, clock = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        bench_trace_run r = s->spans[i];
        bool has =
            trace_times_find_clock(s, trace_lane_device(r.lane), r.position >> TRACE_POSITION_BITS, r.time, &clock);
        if (!(r.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK)) {
            r.began = has ? trace_times_convert_own(s, rows, clock, r.began) : TRACE_UNSEEN;
        }
        if (!(r.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK)) {
            r.ended = has ? trace_times_convert_own(s, rows, clock, r.ended) : TRACE_UNSEEN;
        }
        if (r.began == TRACE_UNSEEN || r.ended == TRACE_UNSEEN) {
            s->t->ignored++;
            continue;
        }
        s->t->spans_by_clock += (r.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) != 0;
        done[n] = trace_times_find_seen(s, &r, &at);
        done[n].within = has ? s->clocks[clock].within : 0;
        s->spans[n++] = r;
    }
    s->n_spans = n;
}

/* Places the spans by the times of device and host, sorted by lane and position. */
static bool trace_times_place_spans(trace_source *s)
{
    trace_times_sort_clocks(s);
    clock_rows rows;
    seen *done = trace_table(s->n_spans, sizeof *done);
    bool ok = trace_times_make_rows(s, &rows) && done;
    if (ok) {
        trace_times_convert_spans(s, &rows, done);
        trace_times_hold_ends(s, done);
    }
    for (size_t i = 0, issue = 0; ok && i < s->n_spans; i++) {
        bench_trace_run *span = &s->spans[i], *before = i > 0 && span[-1].lane == span->lane ? &span[-1] : NULL;
        const bench_trace_run *call = trace_times_find_issue(s, span, &issue);
        int64_t began = span->began;
        trace_times_hold_begin(span, call, before, done[i].first);
        bool by_call = (span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) || span->began > began;
        if (before) {
            trace_times_part_spans(before, span);
        }
        trace_times_judge_length(span, call ? call->time : span->began, by_call, done[i].within);
        s->t->spans_coarse += span->coarse;
    }
    free(rows.first);
    free(rows.last);
    free(done);
    return ok;
}

/* ---- issue and done, by the host ---- */

static void trace_times_note_run(trace_op *op, const bench_trace_run *r, bool is_issue)
{
    if (is_issue) {
        op->returned = op->issued == TRACE_UNSEEN ? r->ended : op->returned;
        op->issued = op->issued == TRACE_UNSEEN ? r->time : op->issued;
        op->failed = op->failed || r->kind == 1;
    } else {
        op->done = op->done == TRACE_UNSEEN ? r->time : op->done;
    }
}

/* Each operation gets the first run that covers it. */
static void trace_times_note_runs(trace *t, const bench_trace_run *runs, size_t n, bool is_issue)
{
    size_t next = 0;
    const trace_lane *lane = NULL;
    for (size_t i = 0; i < n; i++) {
        const bench_trace_run *r = &runs[i];
        if (!lane || lane->lane != r->lane) {
            lane = trace_find_lane(t, r->lane);
            next = lane ? (size_t)lane->first_op : 0;
        }
        if (!lane) {
            continue;
        }
        size_t end = (size_t)lane->first_op + (size_t)lane->n_ops;
        while (next < end && t->ops[next].position <= r->before) {
            next++;
        }
        for (; next < end && t->ops[next].position <= r->position; next++) {
            trace_times_note_run(&t->ops[next], r, is_issue);
        }
        trace_op *claim = next < end && !is_issue && t->ops[next].kind == HDI_RECORD_OP_CLAIM ? &t->ops[next] : NULL;
        if (claim && claim->position - 1 == r->position && claim->began == TRACE_UNSEEN) {
            claim->began = r->time; /* from here on, the program may use the claim's bytes */
        }
    }
}

/* A DONE means that its lane is done up to a position. So if DONE records were dropped, the next
 * one shows that the earlier operations had ended. */
static void trace_times_note_missed(const trace_source *s)
{
    const trace *t = s->t;
    for (size_t l = 0; l < t->n_lanes; l++) {
        const trace_lane *lane = &t->lanes[l];
        int64_t done = TRACE_UNSEEN;
        uint64_t run = UINT64_MAX;
        if (!t->devices[trace_lane_device(lane->lane)].incomplete) {
            continue;
        }
        for (int32_t i = lane->first_op + lane->n_ops; i-- > lane->first_op;) {
            trace_op *op = &t->ops[i];
            done = trace_run_of(op->position) == run ? done : TRACE_UNSEEN;
            run = trace_run_of(op->position);
            op->done = op->done == TRACE_UNSEEN && !op->lost ? done : op->done;
            done = op->done;
        }
    }
}

/* A loss, and the time until which submitted work is lost with it. Sorted by device, runtime and
 * time. */
typedef struct lost_time {
    uint8_t device;
    uint64_t run;
    int64_t time, until;
} lost_time;

static int trace_times_compare_lost(const void *a, const void *b)
{
    const lost_time *x = a, *y = b;
    if (x->device != y->device) {
        return x->device - y->device;
    }
    if (x->run != y->run) {
        return x->run < y->run ? -1 : 1;
    }
    return (x->time > y->time) - (x->time < y->time);
}

/* The first loss that can have ended an operation, or NULL. */
static const lost_time *trace_times_find_lost(const lost_time *table, size_t n, const trace_op *op)
{
    lost_time key = {.device = (uint8_t)trace_lane_device(op->lane), .run = trace_run_of(op->position)};
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const lost_time *x = &table[middle];
        key.time = x->time; /* the table is compared by the end of the loss */
        int is = trace_times_compare_lost(x, &key);
        if (is < 0 || (is == 0 && x->until <= op->submitted)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const lost_time *x = low < n ? &table[low] : NULL;
    return x && x->device == key.device && x->run == key.run ? x : NULL;
}

/* NULL: out of memory. A loss without a return ends at the next loss. */
static lost_time *trace_times_list_lost(const trace *t)
{
    lost_time *table = trace_table(t->n_losses, sizeof *table);
    for (size_t i = 0; table && i < t->n_losses; i++) {
        const trace_loss *l = &t->losses[i];
        table[i] = (lost_time){l->device, l->run, l->time, l->ended == TRACE_UNSEEN ? INT64_MAX : l->ended};
    }
    if (table) {
        trace_sort(table, t->n_losses, sizeof *table, trace_times_compare_lost);
    }
    for (size_t i = 0; table && i + 1 < t->n_losses; i++) {
        bool same = table[i].device == table[i + 1].device && table[i].run == table[i + 1].run;
        table[i].until = same ? trace_least(table[i].until, table[i + 1].time) : table[i].until;
    }
    return table;
}

/* True if the loss interrupted the operation: the driver had it, and its predecessor in the lane
 * was done. */
static bool trace_times_was_running(const trace *t, const trace_op *op, int64_t lost)
{
    const trace_op *before = op->before != TRACE_NONE ? &t->ops[op->before] : NULL;
    bool first = !before || (before->done != TRACE_UNSEEN && !(before->lost && before->done >= lost));
    return first && op->issued != TRACE_UNSEEN && op->issued < lost;
}

/* Ends all operations that a device had not done when it was lost. */
static bool trace_times_end_lost(trace *t)
{
    lost_time *table = trace_times_list_lost(t);
    for (size_t i = 0; table && t->n_losses > 0 && i < t->n_ops; i++) {
        trace_op *op = &t->ops[i];
        const lost_time *x = trace_is_work(op->kind) && op->done == TRACE_UNSEEN && !op->failed
                                 ? trace_times_find_lost(table, t->n_losses, op)
                                 : NULL;
        if (x) {
            op->lost = true;
            op->failed = !trace_times_was_running(t, op, x->time);
            op->done = trace_most(x->time, op->submitted);
        }
    }
    free(table);
    return table != NULL;
}

/* ---- stretches ---- */

typedef struct maker {
    trace_source *s;
    const trace_estimate *estimates; /* by operation */
    const trace_lane *lane;
    size_t first; /* the lane's first stretch */
    int64_t next; /* begin of the lane's next span */
    /* how many operations without a span remain of the last stretch, and of the group that the host
     * saw done together */
    size_t in_stretch, together;
} maker;

/* The end of the lane's work so far. */
static int64_t trace_times_lane_end(const maker *m)
{
    const trace *t = m->s->t;
    return t->n_stretches > m->first ? t->stretches[t->n_stretches - 1].ended : -TRACE_TIME_MOST;
}

static trace_stretch *trace_times_add_stretch(maker *m, int64_t began, int64_t ended, uint8_t op)
{
    trace *t = m->s->t;
    if (t->n_stretches > m->first) {
        began = trace_most(began, t->stretches[t->n_stretches - 1].began);
    }
    t->stretches[t->n_stretches] = (trace_stretch){.lane = m->lane->lane,
                                                   .began = began,
                                                   .ended = trace_most(began, ended),
                                                   .first_op = TRACE_NONE,
                                                   .last_op = TRACE_NONE,
                                                   .op = op};
    return &t->stretches[t->n_stretches++];
}

static void trace_times_put_op(maker *m, size_t index, trace_stretch *stretch)
{
    trace *t = m->s->t;
    trace_op *op = &t->ops[index];
    stretch->first_op = stretch->first_op == TRACE_NONE ? (int32_t)index : stretch->first_op;
    stretch->last_op = (int32_t)index;
    op->stretch = (int32_t)(stretch - t->stretches);
    op->began = stretch->began;
    op->ended = stretch->ended;
    if (!stretch->one && op->done != TRACE_UNSEEN && op->done >= op->began) {
        /* the operation is in the middle of a stretch */
        op->ended = trace_least(op->ended, op->done);
    }
}

/* The latest end among an operation's waits, as the host saw it; TRACE_UNSEEN: one of these waits
 * did not end. */
static int64_t trace_times_host_ready(const trace *t, const trace_op *op)
{
    int64_t ready = -TRACE_TIME_MOST;
    for (uint32_t i = 0; i < op->n_waits; i++) {
        int32_t other = t->waits[op->first_wait + i].other;
        if (other == TRACE_NONE) {
            continue;
        }
        if (t->ops[other].done == TRACE_UNSEEN) {
            return TRACE_UNSEEN;
        }
        ready = trace_most(ready, t->ops[other].done);
    }
    return ready;
}

static int64_t trace_times_issue_of(const trace_op *op)
{
    return op->issued != TRACE_UNSEEN ? op->issued : op->submitted;
}

/* The next operation that the host saw done together with `index`; `until` if there is none. */
static size_t trace_times_next_together(const trace *t, size_t index, size_t until)
{
    for (size_t i = index + 1; i < until; i++) {
        if (trace_is_work(t->ops[i].kind)) {
            return !t->ops[i].failed && t->ops[i].done == t->ops[index].done ? i : until;
        }
    }
    return until;
}

/* The end of a stretch without a span that starts at `index`. Operations that the host saw done
 * together ran one after another, each for an equal share. The lane had work until the next
 * operation was issued. */
static int64_t trace_times_end_share(maker *m, size_t index, size_t until, int64_t began)
{
    const trace *t = m->s->t;
    const trace_op *first = &t->ops[index];
    int64_t end = trace_least(first->done, m->next);
    if (m->together == 0) {
        size_t i = index;
        do {
            m->together++;
            i = trace_times_next_together(t, i, until);
        } while (i < until);
    }
    size_t all = m->together, n = 1, next = trace_times_next_together(t, index, until);
    for (; next < until && t->ops[next].kind == first->kind && t->ops[next].n_waits == 0; n++) {
        next = trace_times_next_together(t, next, until);
    }
    m->together -= n;
    m->in_stretch = n - 1;
    if (next == until) {
        return end;
    }
    int64_t share = (end - began) / (int64_t)all * (int64_t)n;
    return trace_least(end, trace_most(began + share, trace_times_issue_of(&t->ops[next])));
}

/* Places an operation without a span by the estimate from its kind. Without an estimate it ran from
 * its issue, or the end of its waits, until the host saw it done. It never reaches into the lane's
 * next span. If the driver had the operation and it is not done, it runs until the trace ends. In
 * an earlier runtime such an operation has no end. `until` is behind the last such operation. */
static void trace_times_put_approximate(maker *m, size_t index, size_t until)
{
    trace *t = m->s->t;
    trace_op *op = &t->ops[index];
    int64_t ready = trace_times_host_ready(t, op), end = op->done;
    if (end == TRACE_UNSEEN && op->issued != TRACE_UNSEEN && ready != TRACE_UNSEEN) {
        bool first = op->before == TRACE_NONE || t->ops[op->before].done != TRACE_UNSEEN;
        bool goes_on = (!t->ended || t->ended_early) && trace_run_of(op->position) + 1 == (uint64_t)t->runs;
        end = first && goes_on ? m->s->last : TRACE_UNSEEN;
    }
    if (!trace_is_work(op->kind) || op->failed || end == TRACE_UNSEEN) {
        t->unplaced += trace_is_work(op->kind) && !op->failed;
        return;
    }
    t->unplaced++;
    const trace_estimate *estimate = &m->estimates[index];
    bool estimated = op->done != TRACE_UNSEEN && estimate->began != TRACE_UNSEEN;
    if (m->in_stretch > 0) {
        m->in_stretch--;
        trace_times_put_op(m, index, &t->stretches[t->n_stretches - 1]);
        return;
    }
    int64_t began = trace_most(trace_times_issue_of(op), trace_times_lane_end(m));
    if (estimated) {
        began = trace_most(estimate->began, trace_times_lane_end(m));
        end = estimate->ended;
        m->together -= m->together > 0;
    } else {
        began = ready != TRACE_UNSEEN ? trace_most(began, ready) : began;
        began = trace_least(began, m->next);
        began = op->done == TRACE_UNSEEN ? began : trace_most(trace_least(began, op->done), trace_times_lane_end(m));
        end = op->done == TRACE_UNSEEN ? trace_least(end, m->next) : trace_times_end_share(m, index, until, began);
    }
    trace_stretch *last = trace_times_add_stretch(m, began, end, op->kind);
    last->approximate = true;
    trace_times_put_op(m, index, last);
}

/* Places all operations up to a position, none of which is in a span. `next`: begin of the
 * lane's next span. Returns the first operation behind them. */
static size_t trace_times_put_all_approximate(maker *m, size_t op, size_t end, uint64_t position, int64_t next)
{
    size_t until = op;
    m->next = next;
    while (until < end && m->s->t->ops[until].position <= position) {
        until++;
    }
    for (; op < until; op++) {
        trace_times_put_approximate(m, op, until);
    }
    return until;
}

static void trace_times_make_lane(maker *m, size_t *span)
{
    trace *t = m->s->t;
    size_t op = (size_t)m->lane->first_op, end = op + (size_t)m->lane->n_ops;
    for (; *span < m->s->n_spans && m->s->spans[*span].lane == m->lane->lane; ++*span) {
        const bench_trace_run *r = &m->s->spans[*span];
        op = trace_times_put_all_approximate(m, op, end, r->before, r->began);
        bool work = trace_is_work(r->op);
        trace_stretch *stretch = work ? trace_times_add_stretch(m, r->began, r->ended, r->op) : NULL;
        bool single = r->kind == HDI_RECORD_SPAN_ONE;
        if (work) {
            stretch->one = single;
            stretch->off = r->off;
            stretch->coarse = r->coarse;
        }
        for (; op < end && t->ops[op].position <= r->position; op++) {
            if (work && trace_is_work(t->ops[op].kind) && !t->ops[op].failed) {
                trace_times_put_op(m, op, stretch);
                t->ops[op].measured = single && !r->coarse;
            }
        }
    }
    trace_times_put_all_approximate(m, op, end, UINT64_MAX, TRACE_TIME_MOST);
}

static bool trace_times_make_stretches(trace_source *s)
{
    trace *t = s->t;
    t->stretches = trace_table(s->n_spans + t->n_ops, sizeof t->stretches[0]);
    trace_estimate *estimates = trace_estimates(s);
    size_t span = 0;
    for (size_t i = 0; t->stretches && estimates && i < t->n_lanes; i++) {
        maker m = {.s = s, .estimates = estimates, .lane = &t->lanes[i], .first = t->n_stretches};
        trace_times_make_lane(&m, &span);
    }
    bool ok = t->stretches && estimates;
    free(estimates);
    return ok;
}

/* ---- holders of operations ---- */

/* Keeps `other` as the holder if it ended later than the current one. An operation that never
 * ended counts as the last. */
static void trace_times_consider_holder(const trace *t, trace_op *op, int32_t other, int32_t wait)
{
    if (other == TRACE_NONE) {
        return;
    }
    int64_t ended = t->ops[other].ended;
    bool never = ended == TRACE_UNSEEN;
    if (never && (t->ops[other].failed || op->began != TRACE_UNSEEN)) {
        return;
    }
    bool later = op->holder == TRACE_NONE || (op->ready != TRACE_UNSEEN && (never || ended > op->ready));
    if (later) {
        op->holder = other;
        op->held_by = wait;
        op->ready = ended;
    }
}

static void trace_times_hold_op(const trace *t, trace_op *op)
{
    for (uint32_t i = 0; i < op->n_waits; i++) {
        trace_times_consider_holder(t, op, t->waits[op->first_wait + i].other, (int32_t)(op->first_wait + i));
    }
    trace_times_consider_holder(t, op, op->before, TRACE_NONE);
}

/* Marks and claims take no device time. A mark ends with the work before it, a claim when the
 * program ends it. */
static void trace_times_end_without_work(trace_op *op)
{
    if (op->kind == HDI_RECORD_OP_CLAIM) {
        int64_t ready = op->holder != TRACE_NONE && op->ready != TRACE_UNSEEN ? op->ready : op->submitted;
        op->ended = op->done;
        /* a claim that ended had begun, even if nobody saw it begin */
        if (op->ended != TRACE_UNSEEN) {
            op->began = trace_least(op->began != TRACE_UNSEEN ? op->began : ready, op->ended);
        }
        return;
    }
    op->ended = op->holder != TRACE_NONE ? op->ready : op->done;
    op->ended = op->ended != TRACE_UNSEEN && op->done != TRACE_UNSEEN ? trace_least(op->ended, op->done) : op->ended;
    op->began = op->ended;
}

/* Finds the ends of operations whose end depends on their waits. */
typedef struct holder {
    trace *t;
    uint8_t *state; /* by operation */
    int32_t *stack;
    size_t n;
} holder;

enum { NEW, OPEN, HELD };

/* Only for operations without work: other ends are already known. */
static void trace_times_push_mark(holder *h, int32_t op)
{
    if (op != TRACE_NONE && h->state[op] == NEW && !trace_is_work(h->t->ops[op].kind)) {
        h->stack[h->n++] = op;
    }
}

/* Completes the top operation once its waits are complete. No recorder writes a cycle of waits. If
 * a file contains a cycle, it is broken at one of its operations. */
static void trace_times_hold_top(holder *h)
{
    int32_t at = h->stack[h->n - 1];
    trace_op *op = &h->t->ops[at];
    if (h->state[at] == NEW) {
        h->state[at] = OPEN;
        for (uint32_t i = 0; i < op->n_waits; i++) {
            trace_times_push_mark(h, h->t->waits[op->first_wait + i].other);
        }
        trace_times_push_mark(h, op->before);
        return;
    }
    h->n--;
    if (h->state[at] == HELD) {
        return; /* the operation was pushed twice */
    }
    h->state[at] = HELD;
    trace_times_hold_op(h->t, op);
    if (!trace_is_work(op->kind)) {
        trace_times_end_without_work(op);
    }
    if (op->began != TRACE_UNSEEN && op->ready > op->began && op->holder != TRACE_NONE) {
        op->ready = op->began; /* neighbours in one stretch, or clock differences */
    }
}

/* Finds the holders of all operations. The order of submits does not suffice for this. With several
 * threads, or an event further back in the lane, a dependency may be submitted later than its
 * operation. */
static bool trace_times_hold_all(trace *t)
{
    holder h = {.t = t,
                .state = trace_table(t->n_ops, sizeof h.state[0]),
                .stack = trace_table(2 * t->n_ops + t->n_waits, sizeof h.stack[0])};
    bool ok = h.state && h.stack;
    for (size_t i = 0; ok && i < t->n_ops; i++) {
        if (h.state[i] == NEW) {
            h.stack[h.n++] = (int32_t)i;
        }
        while (h.n > 0) {
            trace_times_hold_top(&h);
        }
    }
    free(h.state);
    free(h.stack);
    return ok;
}

/* ---- window ---- */

static void trace_times_count_failed(trace *t)
{
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        t->lost += op->lost;
        t->failed += op->failed && !op->lost && trace_is_work(op->kind);
    }
}

static void trace_times_make_window(trace_source *s)
{
    trace *t = s->t;
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        if (trace_is_work(op->kind)) {
            bool open = op->ended == TRACE_UNSEEN && !op->failed;
            begin = trace_least(begin, op->submitted);
            end = trace_most(end, open ? s->last : op->failed ? op->submitted : op->ended);
        }
    }
    for (size_t i = 0; i < t->n_stretches; i++) {
        begin = trace_least(begin, t->stretches[i].began);
        end = trace_most(end, t->stretches[i].ended);
    }
    t->begin = begin == INT64_MAX ? 0 : begin;
    t->end = begin == INT64_MAX ? s->last : trace_most(begin, end);
}

bool trace_place(trace_source *s)
{
    trace *t = s->t;
    trace_times_note_runs(t, s->issues, s->n_issues, true);
    trace_times_note_runs(t, s->dones, s->n_dones, false);
    if (!trace_times_end_lost(t)) {
        return false;
    }
    trace_times_note_missed(s);
    if (!trace_times_place_spans(s) || !trace_times_make_stretches(s) || !trace_match_activities(s) ||
        !trace_times_hold_all(t)) {
        return false;
    }
    trace_times_count_failed(t);
    trace_times_make_window(s);
    return true;
}
