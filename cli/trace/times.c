/* times.c - all of a trace on one clock: devices' own times by CLOCK records, and when each operation was issued, began, ended.
 *
 * A device's own times are interpolated between neighbouring CLOCK records, and extrapolated with the nearest slope. A device that
 * came back counts from another zero, and so does that of another runtime. So CLOCK records are cut into eras at each RESTART and each
 * runtime, and these into rows within which both clocks go alike. A span is of the era and the row in which the engine wrote it.
 * The first CLOCK of an era may be later than its first spans.
 *
 * The event in front of a span is passed as soon as the lane is at rest. The driver may not have the span's first operation yet.
 * So no span begins before the call for that operation was made. On a lane at rest it begins when the operation has come to the device: the
 * engine measured the way from the call's return. It is so on one that comes to rest during the call, too.
 *
 * What has no DONE may be over nevertheless. A loss ends what its device had not done. Where an engine's records had no room, the next DONE
 * of the lane shows it. Where the file was full, what was under way goes on until the trace ends.
 *
 * A device's clock is known only so well. A span may seem to end after the engine saw its last operation done. Or it begins after its first
 * one was. Then the clock is off by as much, and both times are.
 *
 * An end that the engine saw, by the clock, is a little late. It may be later than the event in front of the lane's next span.
 * The lane had ended by then.
 *
 * Threads, Locks: see model.h.
 * Always: in a lane stretches begin in the order of their positions. Spans of a lane do not overlap. No operation has an end before its begin, or
 * after the host saw it done.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* ------------------------------------------------------------------------------------------------------- clocks -- */

enum { CLOCK_WITHIN_MOST = 1000000000, SLOW_CALL_NS = 100000 };

/* A comparison of the clocks that is closer than that leaves every time as exact as it can be. */
enum { COARSE_NS = 50000 };

static int compare_clocks(const void *a, const void *b)
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

static int compare_restarts(const void *a, const void *b)
{
    const trace_restart *x = a, *y = b;
    return x->device != y->device ? x->device - y->device : (x->time > y->time) - (x->time < y->time);
}

/* The era of a time on a device: how often it had come back, and the runtime. Restarts are sorted. */
static uint64_t era_of(const trace_source *s, int device, uint64_t run, int64_t time)
{
    size_t low = 0, high = s->n_restarts;
    while (low < high) { /* the first one behind (device, time); those of devices before it do no harm */
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

static bool same_era(const trace_clock *a, const trace_clock *b)
{
    return a->device == b->device && a->era == b->era;
}

/* Whether the device's own time went on as the clock did from a to b. */
static bool goes_on(const trace_clock *a, const trace_clock *b)
{
    __int128 clock = (__int128)b->time - a->time, own = (__int128)b->own - a->own;
    __int128 off = own > clock ? own - clock : clock - own;
    return off <= clock / 10 + 10 * ((__int128)a->within + b->within) + 1000;
}

/* Keeps of each device what gives a slope that is exact to a thousandth. In between the closest comparison is kept. */
static void thin_clocks(trace_source *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_clocks; i++) {
        trace_clock c = s->clocks[i];
        c.within = c.within < 0 ? 0 : trace_least(c.within, CLOCK_WITHIN_MOST);
        trace_clock *before = n > 0 && same_era(&s->clocks[n - 1], &c) ? &s->clocks[n - 1] : NULL;
        bool apart = !before || !goes_on(before, &c) ||
                     (c.own > before->own && c.time - before->time > 1000 * (c.within + before->within));
        if (apart) {
            s->clocks[n++] = c;
        } else if (c.within < before->within) { /* it is even farther apart from the one in front of that */
            *before = c;
        }
    }
    s->n_clocks = n;
    for (size_t i = 0; i < n; i++) {
        trace_device *d = &s->t->devices[s->clocks[i].device];
        d->clock_within = trace_most(d->clock_within, s->clocks[i].within);
    }
}

/* Of the era in which the engine of a device wrote at `time`: the last clock before that, else the first one. False: it has none. */
static bool find_clock(const trace_source *s, int device, uint64_t run, int64_t time, size_t *out)
{
    const trace_clock wanted = {.device = (uint8_t)device, .era = era_of(s, device, run, time), .time = time};
    size_t low = 0, high = s->n_clocks;
    while (low < high) { /* the first one behind it */
        size_t middle = low + (high - low) / 2;
        if (compare_clocks(&s->clocks[middle], &wanted) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t at = low > 0 && same_era(&s->clocks[low - 1], &wanted) ? low - 1 : low;
    if (at >= s->n_clocks || !same_era(&s->clocks[at], &wanted)) {
        return false;
    }
    *out = at;
    return true;
}

/* Rows' ends, found once: first[i] is the first clock of i's row, and last[first[i]] the last one. */
typedef struct clock_rows {
    size_t *first, *last;
} clock_rows;

static bool make_rows(const trace_source *s, clock_rows *out)
{
    out->first = trace_table(s->n_clocks, sizeof(size_t));
    out->last = trace_table(s->n_clocks, sizeof(size_t));
    for (size_t i = 0; out->first && out->last && i < s->n_clocks; i++) {
        bool same = i > 0 && same_era(&s->clocks[i - 1], &s->clocks[i]) && s->clocks[i].own > s->clocks[i - 1].own &&
                    s->clocks[i].time > s->clocks[i - 1].time && goes_on(&s->clocks[i - 1], &s->clocks[i]);
        out->first[i] = same ? out->first[i - 1] : i;
        out->last[out->first[i]] = i;
    }
    return out->first && out->last;
}

static int64_t convert(const trace_source *s, const clock_rows *rows, size_t at, int64_t own)
{
    size_t first = rows->first[at], last = rows->last[first], low = first, high = last + 1;
    while (low < high) { /* the first one behind `own` */
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

/* The ISSUE of a span's first operation, NULL: it is missing, or the driver did not get it. Both tables are sorted; `next` only grows. */
static const trace_run *find_issue(const trace_source *s, const trace_run *span, size_t *next)
{
    const trace_run *issues = s->issues;
    while (*next < s->n_issues && (issues[*next].lane < span->lane ||
                                   (issues[*next].lane == span->lane && issues[*next].position <= span->before))) {
        ++*next;
    }
    const trace_run *is = *next < s->n_issues ? &issues[*next] : NULL;
    return is && is->lane == span->lane && is->before <= span->before && is->kind == 0 ? is : NULL;
}

/* When the host saw the first operation of a span done, and the last one. TRACE_TIME_MOST: it did not. `within`: how close the device's clock
 * is to the host's there. */
typedef struct seen {
    int64_t first, last, within;
} seen;

typedef struct seen_at {
    size_t first, last;
} seen_at;

/* When the first DONE of a lane that ends at or behind a position was: a lane's operations are done in order. `next` only grows. */
static int64_t find_done(const trace_source *s, uint32_t lane, uint64_t position, size_t *next)
{
    const trace_run *dones = s->dones;
    while (*next < s->n_dones &&
           (dones[*next].lane < lane || (dones[*next].lane == lane && dones[*next].position < position))) {
        ++*next;
    }
    return *next < s->n_dones && dones[*next].lane == lane ? dones[*next].time : TRACE_TIME_MOST;
}

/* Both tables are sorted; `at` only grows. */
static seen find_seen(const trace_source *s, const trace_run *span, seen_at *at)
{
    return (seen){.first = find_done(s, span->lane, span->before + 1, &at->first),
                  .last = find_done(s, span->lane, span->position, &at->last)};
}

/* So much later than it can have been a span seems to be, by its device's clock. Times of the host's clock stay as they are. Returns whether
 * that clock was off. */
static bool hold_end(trace_run *span, const seen *done)
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

/* Where a clock is off, what is in front of a span in its lane had ended when that began. */
static void hold_ends(trace_source *s, const seen *done)
{
    bool off = false; /* of the span behind */
    for (size_t i = s->n_spans; i-- > 0;) {
        trace_run *span = &s->spans[i];
        const trace_run *behind = i + 1 < s->n_spans && span[1].lane == span->lane ? &span[1] : NULL;
        seen limit = done[i];
        if (behind && off && !(behind->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK)) {
            limit.last = trace_least(limit.last, behind->began);
        }
        off = hold_end(span, &limit);
    }
}

/* Whether the lane had nothing more when the device got a span's first operation. A launch comes there when its call returns. Other calls
 * may give it several things one after the other, but one that takes long loads code before that. */
static bool is_at_rest(const trace_run *span, const trace_run *issue, const trace_run *before)
{
    bool at_return = span->way || issue->ended - issue->time > SLOW_CALL_NS;
    return !before || before->ended <= issue->time || (at_return && before->ended < issue->ended);
}

/* `before`: the span in front of it in the lane, NULL. `done`: when its first operation was. */
static void hold_begin(trace_run *span, const trace_run *issue, const trace_run *before, int64_t done)
{
    int64_t least = before ? before->began : -TRACE_TIME_MOST;
    if (issue) {
        least = trace_most(least, issue->time);
        int64_t returned = trace_least(trace_least(issue->ended + span->way, done), span->ended);
        least = is_at_rest(span, issue, before) ? trace_most(least, returned) : least;
        if (span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) { /* the way from there to the device is an estimate */
            span->began = trace_least(span->began, trace_most(issue->ended, span->ended));
        }
    }
    span->began = trace_most(span->began, least);
    span->ended = trace_most(span->ended, span->began);
}

/* A lane runs one span after the other. */
static void part_spans(trace_run *before, trace_run *span)
{
    if (before->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) {
        before->ended = trace_most(before->began, trace_least(before->ended, span->began));
    }
    span->began = trace_most(span->began, before->ended);
    span->ended = trace_most(span->ended, span->began);
}

/* How far off the length of a span may be. `by_call`: its begin is taken from the call for its first operation, which was made at `from`.
 * `within`: how close both clocks are. The length of a span with both ends of one clock does not depend on that. */
static void judge_length(trace_run *span, int64_t from, bool by_call, int64_t within)
{
    bool ended_by_clock = span->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK;
    bool mixed = by_call != ended_by_clock;
    int64_t length = span->ended - span->began;
    span->off = (by_call ? trace_most(0, span->began - from) : 0) + (mixed ? within : 0);
    span->coarse = mixed && within > COARSE_NS && within > length / 4;
}

static void sort_clocks(trace_source *s)
{
    trace_sort(s->restarts, s->n_restarts, sizeof s->restarts[0], compare_restarts);
    for (size_t i = 0; i < s->n_clocks; i++) {
        trace_clock *c = &s->clocks[i];
        c->era = era_of(s, c->device, c->run, c->time);
    }
    trace_sort(s->clocks, s->n_clocks, sizeof s->clocks[0], compare_clocks);
    thin_clocks(s);
}

/* Spans get times of the clock. Those without a clock or sense go. `done`: of those that stay. */
static void convert_spans(trace_source *s, const clock_rows *rows, seen *done)
{
    seen_at at = {0, 0};
    size_t n = 0, clock = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        trace_run r = s->spans[i];
        bool has = find_clock(s, trace_lane_device(r.lane), r.position >> TRACE_POSITION_BITS, r.time, &clock);
        if (!(r.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK)) {
            r.began = has ? convert(s, rows, clock, r.began) : TRACE_UNSEEN;
        }
        if (!(r.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK)) {
            r.ended = has ? convert(s, rows, clock, r.ended) : TRACE_UNSEEN;
        }
        if (r.began == TRACE_UNSEEN || r.ended == TRACE_UNSEEN) {
            s->t->ignored++;
            continue;
        }
        s->t->spans_by_clock += (r.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) != 0;
        done[n] = find_seen(s, &r, &at);
        done[n].within = has ? s->clocks[clock].within : 0;
        s->spans[n++] = r;
    }
    s->n_spans = n;
}

/* Spans as devices and the host together show them, in order of lane and position. */
static bool place_spans(trace_source *s)
{
    sort_clocks(s);
    clock_rows rows;
    seen *done = trace_table(s->n_spans, sizeof *done);
    bool ok = make_rows(s, &rows) && done;
    if (ok) {
        convert_spans(s, &rows, done);
        hold_ends(s, done);
    }
    for (size_t i = 0, issue = 0; ok && i < s->n_spans; i++) {
        trace_run *span = &s->spans[i], *before = i > 0 && span[-1].lane == span->lane ? &span[-1] : NULL;
        const trace_run *call = find_issue(s, span, &issue);
        int64_t began = span->began;
        hold_begin(span, call, before, done[i].first);
        bool by_call = (span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) || span->began > began;
        if (before) {
            part_spans(before, span);
        }
        judge_length(span, call ? call->time : span->began, by_call, done[i].within);
        s->t->spans_coarse += span->coarse;
    }
    free(rows.first);
    free(rows.last);
    free(done);
    return ok;
}

/* --------------------------------------------------------------------------------------- issue and done, by the host -- */

static void note(trace_op *op, const trace_run *r, bool is_issue)
{
    if (is_issue) {
        op->returned = op->issued == TRACE_UNSEEN ? r->ended : op->returned;
        op->issued = op->issued == TRACE_UNSEEN ? r->time : op->issued;
        op->failed = op->failed || r->kind == 1;
    } else {
        op->done = op->done == TRACE_UNSEEN ? r->time : op->done;
    }
}

/* Each operation gets the first run that it is in. */
static void note_runs(trace *t, const trace_run *runs, size_t n, bool is_issue)
{
    size_t next = 0;
    const trace_lane *lane = NULL;
    for (size_t i = 0; i < n; i++) {
        const trace_run *r = &runs[i];
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
            note(&t->ops[next], r, is_issue);
        }
        trace_op *claim = next < end && !is_issue && t->ops[next].kind == HDI_RECORD_OP_CLAIM ? &t->ops[next] : NULL;
        if (claim && claim->position - 1 == r->position && claim->began == TRACE_UNSEEN) {
            claim->began = r->time; /* its bytes are the program's */
        }
    }
}

/* A lane is done up to the position of a DONE. So where DONE records had no room, the next one shows that what is before it had ended. */
static void note_missed(const trace_source *s)
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

/* A loss, and until when what is submitted on the device is lost with it. Sorted by device, runtime and time. */
typedef struct lost_time {
    uint8_t device;
    uint64_t run;
    int64_t time, until;
} lost_time;

static int compare_lost(const void *a, const void *b)
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

/* The first loss that can have taken an operation, NULL. */
static const lost_time *find_lost(const lost_time *table, size_t n, const trace_op *op)
{
    lost_time key = {.device = (uint8_t)trace_lane_device(op->lane), .run = trace_run_of(op->position)};
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const lost_time *x = &table[middle];
        key.time = x->time; /* what counts is when it was over */
        int is = compare_lost(x, &key);
        if (is < 0 || (is == 0 && x->until <= op->submitted)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const lost_time *x = low < n ? &table[low] : NULL;
    return x && x->device == key.device && x->run == key.run ? x : NULL;
}

/* NULL: no memory. A loss without a return ends with the next one. */
static lost_time *list_lost(const trace *t)
{
    lost_time *table = trace_table(t->n_losses, sizeof *table);
    for (size_t i = 0; table && i < t->n_losses; i++) {
        const trace_loss *l = &t->losses[i];
        table[i] = (lost_time){l->device, l->run, l->time, l->ended == TRACE_UNSEEN ? INT64_MAX : l->ended};
    }
    if (table) {
        trace_sort(table, t->n_losses, sizeof *table, compare_lost);
    }
    for (size_t i = 0; table && i + 1 < t->n_losses; i++) {
        bool same = table[i].device == table[i + 1].device && table[i].run == table[i + 1].run;
        table[i].until = same ? trace_least(table[i].until, table[i + 1].time) : table[i].until;
    }
    return table;
}

/* Whether an operation that a loss ended was under way: the driver had it, and what is before it in its lane was done. */
static bool was_running(const trace *t, const trace_op *op, int64_t lost)
{
    const trace_op *before = op->before != TRACE_NONE ? &t->ops[op->before] : NULL;
    bool first = !before || (before->done != TRACE_UNSEEN && !(before->lost && before->done >= lost));
    return first && op->issued != TRACE_UNSEEN && op->issued < lost;
}

/* What a device had not done when it was lost will never be. */
static bool end_lost(trace *t)
{
    lost_time *table = list_lost(t);
    for (size_t i = 0; table && t->n_losses > 0 && i < t->n_ops; i++) {
        trace_op *op = &t->ops[i];
        const lost_time *x = trace_is_work(op->kind) && op->done == TRACE_UNSEEN && !op->failed
                                 ? find_lost(table, t->n_losses, op)
                                 : NULL;
        if (x) {
            op->lost = true;
            op->failed = !was_running(t, op, x->time);
            op->done = trace_most(x->time, op->submitted);
        }
    }
    free(table);
    return table != NULL;
}

/* ---------------------------------------------------------------------------------------------------- stretches -- */

typedef struct maker {
    trace_source *s;
    const trace_estimate *estimates; /* of each operation */
    const trace_lane *lane;
    size_t first; /* of the lane's stretches */
    int64_t next; /* when the lane's next span begins */
    /* operations without a span, from the next one on: those of the last stretch, and those that the host saw done at the same time */
    size_t in_stretch, together;
} maker;

/* Until when the work of the lane so far took. */
static int64_t lane_end(const maker *m)
{
    const trace *t = m->s->t;
    return t->n_stretches > m->first ? t->stretches[t->n_stretches - 1].ended : -TRACE_TIME_MOST;
}

static trace_stretch *add_stretch(maker *m, int64_t began, int64_t ended, uint8_t op)
{
    trace *t = m->s->t;
    trace_stretch *last = t->n_stretches > m->first ? &t->stretches[t->n_stretches - 1] : NULL;
    began = last ? trace_most(began, last->began) : began;
    t->stretches[t->n_stretches] = (trace_stretch){.lane = m->lane->lane,
                                                   .began = began,
                                                   .ended = trace_most(began, ended),
                                                   .first_op = TRACE_NONE,
                                                   .last_op = TRACE_NONE,
                                                   .op = op};
    return &t->stretches[t->n_stretches++];
}

static void put_op(maker *m, size_t index, trace_stretch *stretch)
{
    trace *t = m->s->t;
    trace_op *op = &t->ops[index];
    stretch->first_op = stretch->first_op == TRACE_NONE ? (int32_t)index : stretch->first_op;
    stretch->last_op = (int32_t)index;
    op->stretch = (int32_t)(stretch - t->stretches);
    op->began = stretch->began;
    op->ended = stretch->ended;
    if (!stretch->one && op->done != TRACE_UNSEEN && op->done >= op->began) {
        op->ended = trace_least(op->ended, op->done); /* in the middle of a stretch */
    }
}

/* The latest end of what an operation waits for, as far as the host saw it; TRACE_UNSEEN: not all of it ended. */
static int64_t host_ready(const trace *t, const trace_op *op)
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

static int64_t issue_of(const trace_op *op)
{
    return op->issued != TRACE_UNSEEN ? op->issued : op->submitted;
}

/* The work behind `index` that the host saw done together with it. `until`: there is none. */
static size_t next_together(const trace *t, size_t index, size_t until)
{
    for (size_t i = index + 1; i < until; i++) {
        if (trace_is_work(t->ops[i].kind)) {
            return !t->ops[i].failed && t->ops[i].done == t->ops[index].done ? i : until;
        }
    }
    return until;
}

/* The end of a stretch without a span that begins with `index`. What the host saw done together ran one after the other, each for an equal
 * share. The lane had work until the next one was issued. */
static int64_t end_share(maker *m, size_t index, size_t until, int64_t began)
{
    const trace *t = m->s->t;
    const trace_op *first = &t->ops[index];
    int64_t end = trace_least(first->done, m->next);
    if (m->together == 0) {
        for (size_t i = index; i < until; i = next_together(t, i, until)) {
            m->together++;
        }
    }
    size_t all = m->together, n = 1, next = next_together(t, index, until);
    for (; next < until && t->ops[next].kind == first->kind && t->ops[next].n_waits == 0; n++) {
        next = next_together(t, next, until);
    }
    m->together -= n;
    m->in_stretch = n - 1;
    if (next == until) {
        return end;
    }
    int64_t share = (end - began) / (int64_t)all * (int64_t)n;
    return trace_least(end, trace_most(began + share, issue_of(&t->ops[next])));
}

/* An operation without a span ran when others of its kind show that it did. Without them it ran between its issue, or what it waited for,
 * and when the host saw it done. It leaves the lane's next span as it is. One that was given to the driver and is not done is taken to run
 * until the trace ends. If its runtime is not the last one, it has no end. No such operations are at or behind `until`. */
static void put_approximate(maker *m, size_t index, size_t until)
{
    trace *t = m->s->t;
    trace_op *op = &t->ops[index];
    int64_t ready = host_ready(t, op), end = op->done;
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
        put_op(m, index, &t->stretches[t->n_stretches - 1]);
        return;
    }
    int64_t began = trace_most(issue_of(op), lane_end(m));
    if (estimated) {
        began = trace_most(estimate->began, lane_end(m));
        end = estimate->ended;
        m->together -= m->together > 0;
    } else {
        began = ready != TRACE_UNSEEN ? trace_most(began, ready) : began;
        began = trace_least(began, m->next);
        began = op->done == TRACE_UNSEEN ? began : trace_most(trace_least(began, op->done), lane_end(m));
        end = op->done == TRACE_UNSEEN ? trace_least(end, m->next) : end_share(m, index, until, began);
    }
    trace_stretch *last = add_stretch(m, began, end, op->kind);
    last->approximate = true;
    put_op(m, index, last);
}

/* Those up to a position, none of which has a span. `next`: when the lane's next span begins. Returns the one behind them. */
static size_t put_all_approximate(maker *m, size_t op, size_t end, uint64_t position, int64_t next)
{
    size_t until = op;
    m->next = next;
    while (until < end && m->s->t->ops[until].position <= position) {
        until++;
    }
    for (; op < until; op++) {
        put_approximate(m, op, until);
    }
    return until;
}

static void make_lane(maker *m, size_t *span)
{
    trace *t = m->s->t;
    size_t op = (size_t)m->lane->first_op, end = op + (size_t)m->lane->n_ops;
    for (; *span < m->s->n_spans && m->s->spans[*span].lane == m->lane->lane; ++*span) {
        const trace_run *r = &m->s->spans[*span];
        op = put_all_approximate(m, op, end, r->before, r->began);
        bool work = trace_is_work(r->op);
        trace_stretch *stretch = work ? add_stretch(m, r->began, r->ended, r->op) : NULL;
        bool single = r->kind == HDI_RECORD_SPAN_ONE;
        if (work) {
            stretch->one = single;
            stretch->off = r->off;
            stretch->coarse = r->coarse;
        }
        for (; op < end && t->ops[op].position <= r->position; op++) {
            if (work && trace_is_work(t->ops[op].kind) && !t->ops[op].failed) {
                put_op(m, op, stretch);
                t->ops[op].measured = single && !r->coarse;
            }
        }
    }
    put_all_approximate(m, op, end, UINT64_MAX, TRACE_TIME_MOST);
}

static bool make_stretches(trace_source *s)
{
    trace *t = s->t;
    t->stretches = trace_table(s->n_spans + t->n_ops, sizeof t->stretches[0]);
    trace_estimate *estimates = trace_estimates(s);
    size_t span = 0;
    for (size_t i = 0; t->stretches && estimates && i < t->n_lanes; i++) {
        maker m = {.s = s, .estimates = estimates, .lane = &t->lanes[i], .first = t->n_stretches};
        make_lane(&m, &span);
    }
    bool ok = t->stretches && estimates;
    free(estimates);
    return ok;
}

/* ------------------------------------------------------------------------------------------- what held operations up -- */

/* Whether `other` ended later than what is known so far. What never ended counts as the last. */
static void consider(const trace *t, trace_op *op, int32_t other, int32_t wait)
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

static void hold(const trace *t, trace_op *op)
{
    for (uint32_t i = 0; i < op->n_waits; i++) {
        consider(t, op, t->waits[op->first_wait + i].other, (int32_t)(op->first_wait + i));
    }
    consider(t, op, op->before, TRACE_NONE);
}

/* Marks and claims have no time on the device. A mark ends with what is in front of it, a claim when the program ends it. */
static void end_without_work(trace_op *op)
{
    if (op->kind == HDI_RECORD_OP_CLAIM) {
        int64_t ready = op->holder != TRACE_NONE && op->ready != TRACE_UNSEEN ? op->ready : op->submitted;
        op->ended = op->done;
        if (op->ended != TRACE_UNSEEN) { /* one that ended had begun, seen or not */
            op->began = trace_least(op->began != TRACE_UNSEEN ? op->began : ready, op->ended);
        }
        return;
    }
    op->ended = op->holder != TRACE_NONE ? op->ready : op->done;
    op->ended = op->ended != TRACE_UNSEEN && op->done != TRACE_UNSEEN ? trace_least(op->ended, op->done) : op->ended;
    op->began = op->ended;
}

/* Operations whose ends come from what they wait for. */
typedef struct holder {
    trace *t;
    uint8_t *state; /* of each operation */
    int32_t *stack;
    size_t n;
} holder;

enum { NEW, OPEN, HELD };

/* Work has its end from elsewhere. */
static void push_mark(holder *h, int32_t op)
{
    if (op != TRACE_NONE && h->state[op] == NEW && !trace_is_work(h->t->ops[op].kind)) {
        h->stack[h->n++] = op;
    }
}

/* The operation on top is held once what it waits for is. In a circle, which no recorder writes, one of them comes first. */
static void hold_top(holder *h)
{
    int32_t at = h->stack[h->n - 1];
    trace_op *op = &h->t->ops[at];
    if (h->state[at] == NEW) {
        h->state[at] = OPEN;
        for (uint32_t i = 0; i < op->n_waits; i++) {
            push_mark(h, h->t->waits[op->first_wait + i].other);
        }
        push_mark(h, op->before);
        return;
    }
    h->n--;
    if (h->state[at] == HELD) {
        return; /* it was there twice */
    }
    h->state[at] = HELD;
    hold(h->t, op);
    if (!trace_is_work(op->kind)) {
        end_without_work(op);
    }
    if (op->began != TRACE_UNSEEN && op->ready > op->began && op->holder != TRACE_NONE) {
        op->ready = op->began; /* of neighbours in one stretch, or as far as clocks are apart */
    }
}

/* Submits are no order for that: those of several threads, and an event that stands further back, may be later than what waits. */
static bool hold_all(trace *t)
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
            hold_top(&h);
        }
    }
    free(h.state);
    free(h.stack);
    return ok;
}

/* ------------------------------------------------------------------------------------------------------- window -- */

static void count_failed(trace *t)
{
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        t->lost += op->lost;
        t->failed += op->failed && !op->lost && trace_is_work(op->kind);
    }
}

static void make_window(trace_source *s)
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
    note_runs(t, s->issues, s->n_issues, true);
    note_runs(t, s->dones, s->n_dones, false);
    if (!end_lost(t)) {
        return false;
    }
    note_missed(s);
    if (!place_spans(s) || !make_stretches(s) || !trace_match_activities(s) || !hold_all(t)) {
        return false;
    }
    count_failed(t);
    make_window(s);
    return true;
}
