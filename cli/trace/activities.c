/* activities.c - turns the activities that CUPTI reported into the times of operations. See
 * model.h.
 *
 * A CUPTI activity names a stream but no lane. A stream belongs to the lane whose stretches contain
 * most of the stream's activities. Within a stretch, activities are compared with operations in
 * order. If numbers and kinds agree, they match one to one. Otherwise names identify kernels, and
 * sizes identify copies. If an activity then fits several operations, it stays unmatched. A product
 * or a call of the program may launch any number of kernels. A single product or call takes all
 * kernels between its neighbours. Neighbouring products or calls share the kernels only if each of
 * them gets the same kernels. CUPTI's correlation is of no use here, because it refers to a driver
 * call that no other record names. If all operations of a stretch match, each becomes a stretch of
 * its own, so that gaps between them show. Unmatched activities come from other libraries, and
 * count as work of the device.
 *
 * Threads, Locks: see model.h.
 * Always: activities of a device are sorted by begin, and stretches by lane and begin. A product
 * gets the times of all its kernels or of none.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* EARLY_NS: an activity may start this much before its stretch, because clocks differ a little.
 * SIGNAL_BYTES: the most bytes that a signal of the engine writes. */
enum { EARLY_NS = 20000, SIGNAL_BYTES = 8 };

/* An activity this far from an operation's times on the host does not belong to the operation,
 * because clocks never differ that much. */
enum { APART_NS = 100000 };

/* An activity and the lane of its stream. */
typedef struct seen {
    uint32_t lane;
    int32_t activity;
    int64_t begin;
} seen;

/* A vote of a stream for a lane. At first each vote comes from one activity. Then all votes of the
 * stream for the lane are joined into one vote with their count. */
typedef struct vote {
    uint64_t stream; /* includes its runtime */
    uint32_t lane;
    uint32_t number; /* of the stream, from 0 */
    uint32_t n;
} vote;

typedef struct matcher {
    trace *t;
    const trace_source *s;
    /* sorted by lane and begin; the trace's stretches are made from them */
    const trace_stretch *old;
    size_t first, n; /* the device's activities */
    vote *votes;
    seen *list; /* activities whose lane is known, sorted by lane and begin */
    size_t n_votes, n_list;
    int32_t *early,
        /* by index of list: the earliest and the latest operation of the stretch that the activity
         * can match */
        *late;
    uint8_t *names; /* by name: NAME_* */
    /* by operation of a stretch: its first activity, an index of list, or TRACE_NONE */
    int32_t *found;
    int32_t *last;
} matcher;

bool trace_is_signal(const trace_activity *a)
{
    return a->kind == HDI_RECORD_ACTIVITY_FILL && a->bytes <= SIGNAL_BYTES;
}

/* True if an activity may come from that kind of operation. */
static bool trace_activity_may_be_op(uint8_t op, uint8_t activity)
{
    bool copies = activity == HDI_RECORD_ACTIVITY_COPY;
    return op == HDI_RECORD_OP_COPY ? copies : op == HDI_RECORD_OP_CALL || !copies;
}

static bool trace_activity_op_is_flexible(const trace_op *op)
{
    return op->kind == HDI_RECORD_OP_MATMUL || op->kind == HDI_RECORD_OP_CALL;
}

/* The lane's first stretch that ends at or after a time, in [begin, end). */
static size_t trace_activity_stretch_at(const trace_stretch *stretches, size_t begin, size_t end, int64_t time)
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

static uint64_t trace_activity_stream_of(const trace_activity *a)
{
    return (uint64_t)a->run << 32 | a->stream;
}

static int64_t trace_activity_middle_of(const trace_activity *a)
{
    return a->begin + (a->end - a->begin) / 2;
}

/* ---- lanes of streams ---- */

static int trace_activity_compare_votes(const void *a, const void *b)
{
    const vote *x = a, *y = b;
    return x->stream != y->stream ? (x->stream < y->stream ? -1 : 1) : (x->lane > y->lane) - (x->lane < y->lane);
}

static int trace_activity_compare_seen(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    return x->lane != y->lane ? (x->lane < y->lane ? -1 : 1) : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Each activity inside one of a lane's stretches votes for that lane. If there are very many, only
 * each `step`th votes. */
static void trace_activity_vote_for(matcher *m, size_t begin, size_t end, size_t step)
{
    for (size_t i = m->first; i < m->first + m->n; i += step) {
        const trace_activity *a = &m->t->activities[i];
        int64_t time = trace_activity_middle_of(a);
        size_t at = trace_activity_stretch_at(m->old, begin, end, time);
        if (at < end && m->old[at].began - EARLY_NS <= time && !trace_is_signal(a) &&
            trace_activity_may_be_op(m->old[at].op, a->kind)) {
            m->votes[m->n_votes++] = (vote){.stream = trace_activity_stream_of(a), .lane = m->old[at].lane, .n = 1};
        }
    }
}

static int trace_activity_compare_counts(const void *a, const void *b)
{
    const vote *x = a, *y = b;
    return (x->n < y->n) - (x->n > y->n);
}

/* Joins votes of one stream for one lane. Returns the number of streams. */
static uint32_t trace_activity_join_votes(matcher *m)
{
    size_t kept = 0;
    uint32_t streams = 0;
    trace_sort(m->votes, m->n_votes, sizeof m->votes[0], trace_activity_compare_votes);
    for (size_t i = 0; i < m->n_votes; i++) {
        vote one = m->votes[i];
        if (kept > 0 && trace_activity_compare_votes(&m->votes[kept - 1], &one) == 0) {
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

/* Keeps one vote for each stream: for the lane with the most votes that still has operations left.
 * Lanes run at the same time, so a stream's activities may vote for several lanes.
 * False: out of memory. */
static bool trace_activity_choose_lanes(matcher *m)
{
    uint32_t streams = trace_activity_join_votes(m);
    vote *chosen = trace_table(streams, sizeof *chosen);
    int64_t *left = trace_table(m->t->n_lanes, sizeof *left);
    bool ok = chosen && left;
    for (size_t i = 0; ok && i < m->t->n_lanes; i++) {
        left[i] = m->t->lanes[i].n_ops;
    }
    trace_sort(m->votes, m->n_votes, sizeof m->votes[0], trace_activity_compare_counts);
    /* the second pass takes streams for which no lane had operations left */
    for (int pass = 0; ok && pass < 2; pass++) {
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

static void trace_activity_list_all(matcher *m)
{
    for (size_t i = m->first; i < m->first + m->n; i++) {
        const trace_activity *a = &m->t->activities[i];
        size_t low = 0, high = m->n_votes;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (m->votes[middle].stream < trace_activity_stream_of(a)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low < m->n_votes && m->votes[low].stream == trace_activity_stream_of(a) && !trace_is_signal(a)) {
            m->list[m->n_list++] = (seen){m->votes[low].lane, (int32_t)i, a->begin};
        }
    }
    trace_sort(m->list, m->n_list, sizeof m->list[0], trace_activity_compare_seen);
}

/* ---- a stretch ---- */

static const trace_activity *trace_activity_at(const matcher *m, size_t at)
{
    return &m->t->activities[m->list[at].activity];
}

/* Where a name occurs. A launch is matched by name only if CUPTI reports that name at all. */
enum { NAME_OF_LAUNCH = 1, NAME_OF_REPORT = 2 };

static bool trace_activity_is_named(const matcher *m, int32_t name, uint8_t what)
{
    return name != TRACE_NONE && (m->names[name] & what) != 0;
}

/* True if name or size fit the operation. */
static bool trace_activity_is_like_op(const matcher *m, const trace_op *op, const trace_activity *a)
{
    bool kernel = a->kind == HDI_RECORD_ACTIVITY_KERNEL,
         free_one = kernel && !trace_activity_is_named(m, a->name, NAME_OF_LAUNCH);
    if (op->kind == HDI_RECORD_OP_LAUNCH) {
        return trace_activity_is_named(m, op->kernel, NAME_OF_REPORT) ? kernel && a->name == op->kernel : free_one;
    }
    return trace_activity_may_be_op(op->kind, a->kind) &&
           (kernel ? free_one : trace_activity_op_is_flexible(op) || a->bytes == op->bytes);
}

/* True if the times fit, too: the operation was issued before the activity began, and not done
 * before it ended. */
static bool trace_activity_is_of_op(const matcher *m, const trace_op *op, size_t at)
{
    const trace_activity *a = trace_activity_at(m, at);
    return trace_activity_is_like_op(m, op, a) && (op->issued == TRACE_UNSEEN || a->begin >= op->issued - APART_NS) &&
           (op->done == TRACE_UNSEEN || a->end <= op->done + APART_NS);
}

/* Matches one to one if numbers and kinds agree. `complete`: no report is missing. */
static bool trace_activity_match_all(const matcher *m, const int32_t *ops, size_t n, size_t begin, size_t end,
                                     bool complete)
{
    size_t flexible = 0, calls = 0;
    bool fits = end - begin == n;
    for (size_t i = 0; fits && i < n; i++) {
        const trace_op *op = &m->t->ops[ops[i]];
        const trace_activity *a = trace_activity_at(m, begin + i);
        fits = op->kind == HDI_RECORD_OP_LAUNCH ? trace_activity_is_like_op(m, op, a)
                                                : trace_activity_may_be_op(op->kind, a->kind);
        flexible += trace_activity_op_is_flexible(op);
        calls += op->kind == HDI_RECORD_OP_CALL; /* may pass no command to the driver */
    }
    fits = fits && (flexible == 0 || (complete && (calls == 0 || flexible == 1)));
    for (size_t i = 0; fits && i < n; i++) {
        m->found[i] = m->last[i] = (int32_t)(begin + i);
    }
    return fits;
}

/* Gives each activity the first possible operation behind those of the earlier activities. `late`:
 * starts at the other end and gives the last possible operation. Products and calls take any number
 * of activities, and other operations take one. */
static void trace_activity_place_all(const matcher *m, const int32_t *ops, size_t n, size_t begin, size_t end,
                                     bool late)
{
    int32_t *put = late ? m->late : m->early;
    /* operations already used, counted from the end at which the loop starts */
    size_t steps = 64 * (n + end - begin) + 4096, used = 0;
    for (size_t k = 0; k < end - begin; k++) {
        size_t at = late ? end - 1 - k : begin + k, i = used;
        put[at] = TRACE_NONE;
        for (; i < n && steps > 0; i++, steps--) {
            const trace_op *op = &m->t->ops[ops[late ? n - 1 - i : i]];
            if (trace_activity_is_of_op(m, op, at)) {
                put[at] = (int32_t)(late ? n - 1 - i : i);
                used = trace_activity_op_is_flexible(op) ? i : i + 1;
                break;
            }
        }
    }
}

/* True if the sequence of activities repeats after `period` activities: products of one kind run
 * the same kernels in the same order. */
static bool trace_activity_is_periodic(const matcher *m, size_t begin, size_t end, size_t period)
{
    for (size_t i = begin + period; i < end; i++) {
        const trace_activity *a = trace_activity_at(m, i), *before = trace_activity_at(m, i - period);
        if (a->kind != before->kind || a->name != before->name) {
            return false;
        }
    }
    return true;
}

/* Shares the activities [begin, end) among the operations [i, j), each of which takes any
 * number. */
static void trace_activity_share_all(const matcher *m, const int32_t *ops, size_t i, size_t j, size_t begin, size_t end)
{
    size_t n = j - i, each = begin < end ? (end - begin) / n : 0;
    bool fits = each > 0 && each * n == end - begin && (n == 1 || trace_activity_is_periodic(m, begin, end, each));
    for (size_t k = begin; fits && k < end; k++) {
        fits = trace_activity_is_of_op(m, &m->t->ops[ops[i + (k - begin) / each]], k);
    }
    for (size_t k = i; fits && k < j; k++) {
        m->found[k] = (int32_t)(begin + (k - i) * each);
        m->last[k] = m->found[k] + (int32_t)each - 1;
    }
}

/* Matches activities that fit only one operation. The activities between two matched ones belong to
 * the products and calls between their two operations. */
static void trace_activity_match_some(const matcher *m, const int32_t *ops, size_t n, size_t begin, size_t end,
                                      bool complete)
{
    for (size_t i = 0; i < n; i++) {
        m->found[i] = m->last[i] = TRACE_NONE;
    }
    trace_activity_place_all(m, ops, n, begin, end, false);
    trace_activity_place_all(m, ops, n, begin, end, true);
    for (size_t k = begin; k < end; k++) {
        int32_t i = m->early[k] == m->late[k] ? m->early[k] : TRACE_NONE;
        if (i != TRACE_NONE && !trace_activity_op_is_flexible(&m->t->ops[ops[i]])) {
            m->found[i] = m->last[i] = (int32_t)k;
        }
    }
    for (size_t i = 0, j; complete && i < n; i = j) {
        for (j = i; j < n && trace_activity_op_is_flexible(&m->t->ops[ops[j]]); j++) {
        }
        bool both = j > i && (i == 0 || m->found[i - 1] != TRACE_NONE) && (j == n || m->found[j] != TRACE_NONE);
        if (both) {
            trace_activity_share_all(m, ops, i, j, i > 0 ? (size_t)m->last[i - 1] + 1 : begin,
                                     j < n ? (size_t)m->found[j] : end);
        }
        j = j > i ? j : i + 1;
    }
}

/* Gives operations the times of their activities. Returns true if every operation has one. */
static bool trace_activity_take_times(matcher *m, const int32_t *ops, size_t n, bool approximate)
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
        int64_t late =
            /* how far CUPTI's clock is off */
            op->done == TRACE_UNSEEN ? 0 : trace_most(0, op->ended - op->done);
        op->began -= late;
        op->ended -= late;
        op->measured = true;
        m->t->unplaced -= approximate;
    }
    return all;
}

/* ---- all of them ---- */

static void trace_activity_put_stretch(trace *t, size_t *n, trace_stretch one)
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

/* True if no report of a stretch is known to be missing. `next`: the place behind the stretch's
 * activities in the list. */
static bool trace_activity_is_complete(const matcher *m, const trace_stretch *x, size_t next)
{
    bool more = next < m->n_list && m->list[next].lane == x->lane;
    return x->began > m->s->incomplete_until[trace_lane_device(x->lane)] &&
           (more || (m->t->ended && !m->t->ended_early));
}

/* Matches a stretch, and adds it or the stretches that it becomes. `ops` has room for all
 * operations of the stretch. */
static void trace_activity_match_stretch(matcher *m, trace_stretch one, size_t *next, int32_t *ops, size_t *n_out)
{
    trace *t = m->t;
    size_t n = 0, begin = *next;
    for (int32_t i = one.first_op; i != TRACE_NONE && i <= one.last_op; i++) {
        if (trace_is_work(t->ops[i].kind) && t->ops[i].stretch != TRACE_NONE) {
            ops[n++] = i;
        }
    }
    while (begin < m->n_list && (m->list[begin].lane < one.lane ||
                                 (m->list[begin].lane == one.lane &&
                                  trace_activity_middle_of(trace_activity_at(m, begin)) < one.began - EARLY_NS))) {
        begin++;
    }
    size_t end = begin;
    while (end < m->n_list && m->list[end].lane == one.lane &&
           trace_activity_middle_of(trace_activity_at(m, end)) <= one.ended) {
        end++;
    }
    *next = end;
    bool complete = trace_activity_is_complete(m, &one, end);
    if (!trace_activity_match_all(m, ops, n, begin, end, complete)) {
        trace_activity_match_some(m, ops, n, begin, end, complete);
    }
    if (!trace_activity_take_times(m, ops, n, one.approximate)) {
        trace_activity_put_stretch(t, n_out, one);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const trace_op *op = &t->ops[ops[i]];
        trace_activity_put_stretch(t, n_out,
                                   (trace_stretch){.lane = one.lane,
                                                   .began = op->began,
                                                   .ended = op->ended,
                                                   .first_op = ops[i],
                                                   .last_op = ops[i],
                                                   .op = op->kind == HDI_RECORD_OP_COPY ? HDI_RECORD_OP_COPY : one.op,
                                                   .one = true});
    }
}

/* Finds the device's activities, and lets them vote for the lanes of the stretches in [begin, end).
 * False: out of memory. */
static bool trace_activity_find_lanes(matcher *m, int device, size_t begin, size_t end)
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
    m->early = trace_table(m->n, sizeof m->early[0]);
    m->late = trace_table(m->n, sizeof m->late[0]);
    if (!m->votes || !m->list || !m->early || !m->late) {
        return false;
    }
    for (size_t i = begin, next; i < end; i = next) {
        for (next = i; next < end && m->old[next].lane == m->old[i].lane; next++) {
        }
        trace_activity_vote_for(m, i, next, step);
    }
    if (!trace_activity_choose_lanes(m)) {
        return false;
    }
    trace_activity_list_all(m);
    return true;
}

/* Which names occur in launches and in reports. */
static uint8_t *trace_activity_read_names(const trace *t)
{
    uint8_t *names = trace_table(t->n_names, 1);
    for (size_t i = 0; names && i < t->n_ops; i++) {
        if (t->ops[i].kernel != TRACE_NONE) {
            names[t->ops[i].kernel] |= NAME_OF_LAUNCH;
        }
    }
    for (size_t i = 0; names && i < t->n_activities; i++) {
        if (t->activities[i].name != TRACE_NONE) {
            names[t->activities[i].name] |= NAME_OF_REPORT;
        }
    }
    return names;
}

bool trace_match_activities(trace_source *s)
{
    trace *t = s->t;
    size_t n_old = t->n_stretches, n = 0;
    if (t->n_activities == 0) {
        return true;
    }
    trace_stretch *old = t->stretches;
    t->stretches = trace_table(n_old + t->n_ops, sizeof t->stretches[0]);
    matcher m = {.t = t, .s = s, .old = old, .names = trace_activity_read_names(t)};
    m.found = trace_table(t->n_ops, sizeof m.found[0]);
    m.last = trace_table(t->n_ops, sizeof m.last[0]);
    int32_t *ops = trace_table(t->n_ops, sizeof *ops);
    bool ok = t->stretches && m.names && m.found && m.last && ops;
    for (size_t begin = 0, end; ok && begin < n_old; begin = end) {
        int device = trace_lane_device(old[begin].lane);
        for (end = begin; end < n_old && trace_lane_device(old[end].lane) == device; end++) {
        }
        m.first = m.n = m.n_votes = m.n_list = 0;
        m.votes = NULL, m.list = NULL, m.early = m.late = NULL;
        ok = trace_activity_find_lanes(&m, device, begin, end);
        size_t next = 0;
        for (size_t i = begin; ok && i < end; i++) {
            trace_activity_match_stretch(&m, old[i], &next, ops, &n);
        }
        free(m.votes);
        free(m.list);
        free(m.early);
        free(m.late);
    }
    t->n_stretches = n;
    free(m.names);
    free(m.found);
    free(m.last);
    free(ops);
    free(old);
    return ok;
}
