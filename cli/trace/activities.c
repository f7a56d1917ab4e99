/* activities.c - what CUPTI reported, as the times of operations. See model.h.
 *
 * An ACTIVITY has a stream and no lane. A stream is of the lane in whose stretches most of its activities lie. Within a stretch its
 * activities are compared with its operations, in order: as many of the same kinds are each other's. Else kernels are found by their names
 * and copies by their bytes. A product or a call of the program then has all up to what comes behind it.
 * A stretch whose operations are all found becomes one stretch for each of them, so that the device's rests in between are seen.
 * What is left is of other libraries, and counts as work of the device.
 *
 * Threads, Locks: see model.h.
 * Always: activities of a device are sorted by begin, and stretches by lane and begin.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* So far may an activity lie in front of its stretch, since clocks are a little apart. A signal of the engine is no longer than that. */
enum { EARLY_NS = 20000, SIGNAL_BYTES = 8 };

/* An activity, by the lane of its stream. */
typedef struct seen {
    uint32_t lane;
    int32_t activity;
    int64_t begin;
} seen;

/* First one for each activity, then one for each stream and lane, with their number. */
typedef struct vote {
    uint64_t stream; /* with its runtime */
    uint32_t lane;
    uint32_t number; /* of the stream: counts from 0 */
    uint32_t n;
} vote;

typedef struct matcher {
    trace *t;
    const trace_stretch *old; /* sorted by lane and begin; those of the trace are made of them */
    size_t first, n;          /* the device's activities */
    vote *votes;
    seen *list; /* those whose lane is known, sorted by lane and begin */
    size_t n_votes, n_list;
    int32_t *found; /* of each operation of a stretch: its first activity, an index of list; TRACE_NONE */
    int32_t *last;
} matcher;

bool trace_is_signal(const trace_activity *a)
{
    return a->kind == HDI_RECORD_ACTIVITY_FILL && a->bytes <= SIGNAL_BYTES;
}

/* Whether an activity may be of an operation of that kind. */
static bool may_be(uint8_t op, uint8_t activity)
{
    bool copies = activity == HDI_RECORD_ACTIVITY_COPY;
    return op == HDI_RECORD_OP_COPY ? copies : op == HDI_RECORD_OP_CALL || !copies;
}

static bool is_flexible(const trace_op *op)
{
    return op->kind == HDI_RECORD_OP_MATMUL || op->kind == HDI_RECORD_OP_CALL;
}

/* The lane's first stretch that ends at a time or behind it; `begin`, `end`: its stretches. */
static size_t stretch_at(const trace_stretch *stretches, size_t begin, size_t end, int64_t time)
{
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (stretches[middle].ended < time) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

static uint64_t stream_of(const trace_activity *a)
{
    return (uint64_t)a->run << 32 | a->stream;
}

static int64_t middle_of(const trace_activity *a)
{
    return a->begin + (a->end - a->begin) / 2;
}

/* ------------------------------------------------------------------------------------------------ lanes of streams -- */

static int compare_votes(const void *a, const void *b)
{
    const vote *x = a, *y = b;
    return x->stream != y->stream ? (x->stream < y->stream ? -1 : 1) : (x->lane > y->lane) - (x->lane < y->lane);
}

static int compare_seen(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    return x->lane != y->lane ? (x->lane < y->lane ? -1 : 1) : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Each activity that lies in one of a lane's stretches votes for it; of very many each `step`th. */
static void vote_for(matcher *m, size_t begin, size_t end, size_t step)
{
    for (size_t i = m->first; i < m->first + m->n; i += step) {
        const trace_activity *a = &m->t->activities[i];
        int64_t time = middle_of(a);
        size_t at = stretch_at(m->old, begin, end, time);
        if (at < end && m->old[at].began - EARLY_NS <= time && !trace_is_signal(a) && may_be(m->old[at].op, a->kind)) {
            m->votes[m->n_votes++] = (vote){.stream = stream_of(a), .lane = m->old[at].lane, .n = 1};
        }
    }
}

static int compare_counts(const void *a, const void *b)
{
    const vote *x = a, *y = b;
    return (x->n < y->n) - (x->n > y->n);
}

/* Joins what is of one stream and one lane. Returns how many streams there are. */
static uint32_t join_votes(matcher *m)
{
    size_t kept = 0;
    uint32_t streams = 0;
    trace_sort(m->votes, m->n_votes, sizeof m->votes[0], compare_votes);
    for (size_t i = 0; i < m->n_votes; i++) {
        vote one = m->votes[i];
        if (kept > 0 && compare_votes(&m->votes[kept - 1], &one) == 0) {
            m->votes[kept - 1].n++;
            continue;
        }
        streams += kept == 0 || m->votes[kept - 1].stream != one.stream;
        one.number = streams - 1;
        m->votes[kept++] = one;
    }
    m->n_votes = kept;
    return streams;
}

/* Leaves one vote for each stream: the lane with the most that has so many operations left, since lanes run at the same time. False: no
 * memory. */
static bool choose_lanes(matcher *m)
{
    uint32_t streams = join_votes(m);
    vote *chosen = trace_table(streams, sizeof *chosen);
    int64_t *left = trace_table(m->t->n_lanes, sizeof *left);
    bool ok = chosen && left;
    for (size_t i = 0; ok && i < m->t->n_lanes; i++) {
        left[i] = m->t->lanes[i].n_ops;
    }
    trace_sort(m->votes, m->n_votes, sizeof m->votes[0], compare_counts);
    for (int pass = 0; ok && pass < 2; pass++) { /* the second one for what found no room */
        for (size_t i = 0; i < m->n_votes; i++) {
            const vote *one = &m->votes[i];
            int64_t *room = &left[m->t->lane_at[one->lane] - 1];
            if (chosen[one->number].n == 0 && (pass > 0 || *room > 0)) {
                chosen[one->number] = *one;
                *room -= one->n;
            }
        }
    }
    if (ok) {
        free(m->votes);
        m->votes = chosen;
        m->n_votes = streams;
    } else {
        free(chosen);
    }
    free(left);
    return ok;
}

static void list_activities(matcher *m)
{
    for (size_t i = m->first; i < m->first + m->n; i++) {
        const trace_activity *a = &m->t->activities[i];
        size_t low = 0, high = m->n_votes;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (m->votes[middle].stream < stream_of(a)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low < m->n_votes && m->votes[low].stream == stream_of(a) && !trace_is_signal(a)) {
            m->list[m->n_list++] = (seen){m->votes[low].lane, (int32_t)i, a->begin};
        }
    }
    trace_sort(m->list, m->n_list, sizeof m->list[0], compare_seen);
}

/* ------------------------------------------------------------------------------------------------------ a stretch -- */

static const trace_activity *activity_of(const matcher *m, size_t at)
{
    return &m->t->activities[m->list[at].activity];
}

/* Whether it is that very operation's, by name or bytes. */
static bool is_of(const matcher *m, const trace_op *op, size_t at)
{
    const trace_activity *a = activity_of(m, at);
    if (op->kind == HDI_RECORD_OP_LAUNCH) {
        return a->kind == HDI_RECORD_ACTIVITY_KERNEL && a->name != TRACE_NONE && a->name == op->kernel;
    }
    return may_be(op->kind, a->kind) && a->kind != HDI_RECORD_ACTIVITY_KERNEL && a->bytes == op->bytes;
}

/* As many activities as operations, of the same kinds. */
static bool match_all(const matcher *m, const int32_t *ops, size_t n, size_t begin, size_t end)
{
    bool fits = end - begin == n;
    for (size_t i = 0; fits && i < n; i++) {
        fits = may_be(m->t->ops[ops[i]].kind, activity_of(m, begin + i)->kind);
    }
    for (size_t i = 0; fits && i < n; i++) {
        m->found[i] = m->last[i] = (int32_t)(begin + i);
    }
    return fits;
}

/* One after the other. What has no name or bytes gets all between its neighbours, if both are found. */
static void match_some(const matcher *m, const int32_t *ops, size_t n, size_t begin, size_t end)
{
    size_t at = begin, open = SIZE_MAX; /* open: the flexible operation that stands in front */
    for (size_t i = 0; i <= n; i++) {
        const trace_op *op = i < n ? &m->t->ops[ops[i]] : NULL;
        if (i < n) {
            m->found[i] = m->last[i] = TRACE_NONE;
        }
        if (op && is_flexible(op)) {
            bool alone = i == 0 || (!is_flexible(&m->t->ops[ops[i - 1]]) && m->found[i - 1] != TRACE_NONE);
            open = alone ? i : SIZE_MAX;
            continue;
        }
        size_t next = op ? at : end;
        while (next < end && op && !is_of(m, op, next)) {
            next++;
        }
        if (op && next == end) {
            open = SIZE_MAX; /* it is missing: where the one in front ends is not known */
            continue;
        }
        if (open != SIZE_MAX && next > at) {
            m->found[open] = (int32_t)at, m->last[open] = (int32_t)next - 1;
        }
        open = SIZE_MAX;
        if (op) {
            m->found[i] = m->last[i] = (int32_t)next;
            at = next + 1;
        }
    }
}

/* Gives operations the times of their activities. True: all of them have some. */
static bool take_times(matcher *m, const int32_t *ops, size_t n, bool approximate)
{
    bool all = n > 0;
    for (size_t i = 0; i < n; i++) {
        if (m->found[i] == TRACE_NONE) {
            all = false;
            continue;
        }
        trace_op *op = &m->t->ops[ops[i]];
        op->began = INT64_MAX;
        for (int32_t k = m->found[i]; k <= m->last[i]; k++) {
            trace_activity *a = &m->t->activities[m->list[k].activity];
            a->op = ops[i];
            op->began = trace_least(op->began, a->begin);
            op->ended = k == m->found[i] ? a->end : trace_most(op->ended, a->end);
            m->t->n_reported++;
        }
        op->measured = true;
        m->t->unplaced -= approximate;
    }
    return all;
}

/* ----------------------------------------------------------------------------------------------------- all of them -- */

static void put_stretch(trace *t, size_t *n, trace_stretch one)
{
    trace_stretch *before = *n > 0 && t->stretches[*n - 1].lane == one.lane ? &t->stretches[*n - 1] : NULL;
    one.began = before ? trace_most(one.began, before->began) : one.began;
    one.ended = trace_most(one.began, one.ended);
    for (int32_t i = one.first_op; i != TRACE_NONE && i <= one.last_op; i++) {
        if (t->ops[i].stretch != TRACE_NONE) {
            t->ops[i].stretch = (int32_t)*n;
        }
    }
    t->stretches[(*n)++] = one;
}

/* A stretch, and what becomes of it. `ops` has room for all of its operations. */
static void match_stretch(matcher *m, trace_stretch one, size_t *next, int32_t *ops, size_t *n_out)
{
    trace *t = m->t;
    size_t n = 0, begin = *next;
    for (int32_t i = one.first_op; i != TRACE_NONE && i <= one.last_op; i++) {
        if (trace_is_work(t->ops[i].kind) && t->ops[i].stretch != TRACE_NONE) {
            ops[n++] = i;
        }
    }
    while (begin < m->n_list &&
           (m->list[begin].lane < one.lane ||
            (m->list[begin].lane == one.lane && middle_of(activity_of(m, begin)) < one.began - EARLY_NS))) {
        begin++;
    }
    size_t end = begin;
    while (end < m->n_list && m->list[end].lane == one.lane && middle_of(activity_of(m, end)) <= one.ended) {
        end++;
    }
    *next = end;
    if (!match_all(m, ops, n, begin, end)) {
        match_some(m, ops, n, begin, end);
    }
    if (!take_times(m, ops, n, one.approximate)) {
        put_stretch(t, n_out, one);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const trace_op *op = &t->ops[ops[i]];
        put_stretch(t, n_out,
                    (trace_stretch){.lane = one.lane,
                                    .began = op->began,
                                    .ended = op->ended,
                                    .first_op = ops[i],
                                    .last_op = ops[i],
                                    .op = op->kind == HDI_RECORD_OP_COPY ? HDI_RECORD_OP_COPY : one.op,
                                    .one = true});
    }
}

/* The device's activities; the lanes of its stretches from `begin` to `end` vote. False: no memory. */
static bool find_lanes(matcher *m, int device, size_t begin, size_t end)
{
    enum { VOTES_MOST = 1 << 22 };
    size_t lanes = 0;
    while (m->first < m->t->n_activities && m->t->activities[m->first].device < device) {
        m->first++;
    }
    while (m->first + m->n < m->t->n_activities && m->t->activities[m->first + m->n].device == device) {
        m->n++;
    }
    for (size_t i = begin; i < end; i++) {
        lanes += i == begin || m->old[i].lane != m->old[i - 1].lane;
    }
    size_t step = 1 + m->n * lanes / VOTES_MOST;
    m->votes = trace_table((m->n / step + 1) * lanes, sizeof m->votes[0]);
    m->list = trace_table(m->n, sizeof m->list[0]);
    if (!m->votes || !m->list) {
        return false;
    }
    for (size_t i = begin, next; i < end; i = next) {
        for (next = i; next < end && m->old[next].lane == m->old[i].lane; next++) {
        }
        vote_for(m, i, next, step);
    }
    if (!choose_lanes(m)) {
        return false;
    }
    list_activities(m);
    return true;
}

bool trace_match_activities(trace *t)
{
    size_t n_old = t->n_stretches, n = 0;
    if (t->n_activities == 0) {
        return true;
    }
    trace_stretch *old = t->stretches;
    t->stretches = trace_table(n_old + t->n_ops, sizeof t->stretches[0]);
    matcher m = {.t = t, .old = old};
    m.found = trace_table(t->n_ops, sizeof m.found[0]);
    m.last = trace_table(t->n_ops, sizeof m.last[0]);
    int32_t *ops = trace_table(t->n_ops, sizeof *ops);
    bool ok = t->stretches && m.found && m.last && ops;
    for (size_t begin = 0, end; ok && begin < n_old; begin = end) {
        int device = trace_lane_device(old[begin].lane);
        for (end = begin; end < n_old && trace_lane_device(old[end].lane) == device; end++) {
        }
        m.first = m.n = m.n_votes = m.n_list = 0;
        ok = find_lanes(&m, device, begin, end);
        size_t next = 0;
        for (size_t i = begin; ok && i < end; i++) {
            match_stretch(&m, old[i], &next, ops, &n);
        }
        free(m.votes);
        free(m.list);
    }
    t->n_stretches = n;
    free(m.found);
    free(m.last);
    free(ops);
    free(old);
    return ok;
}
