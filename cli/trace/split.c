/* split.c - splits each device's window into compute, transfer and idle, and all idle time into
 * causes. See model.h.
 *
 * A gap is explained from the operations that were submitted on the device but had not begun. In
 * each lane only the first such operation counts, because a lane runs in order. A walk backwards in
 * time finds the operation that held this one up, its holder. Until an operation is ready, its
 * holder is the operation that ended last among those for which it waits. If the holder ran, it is
 * the cause. If the holder had not begun, the walk continues with the holder's own holder, and so
 * on to the far end. If nothing held an operation up, it was on its way to the device. If no
 * operation was submitted, the split looks at the threads. If an operation's waits are incomplete,
 * perhaps a missing wait held it up, so the cause is unknown. The cause is also unknown if the
 * engine dropped records and no record shows the operation's end, because perhaps the operation
 * ran.
 *
 * Threads, Locks: see model.h.
 * Always: pieces follow each other from the window's begin to its end. A walk takes a bounded
 * number of steps for any file.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* A period during which a cause holds. */
typedef struct cover {
    int64_t begin, end;
    int16_t other;
    int32_t op, holder, wait;
} cover;

typedef struct covers {
    cover *list;
    size_t n, room;
    size_t at; /* position of the sweep */
} covers;

typedef struct splitter {
    trace *t;
    int device;
    covers cause[TRACE_CAUSES]; /* in the current gap */
    /* for the whole window: LOSS, COPY, RING and MEMORY, from the activity of threads */
    covers threads[TRACE_CAUSES];
    /* for each lane of the device: its first operation that had not begun */
    size_t *next;
    const trace_lane *lanes;
    size_t n_lanes;
    trace_piece *pieces;
    size_t n, room;
    uint64_t steps; /* left for walks */
    bool failed;    /* out of memory */
} splitter;

/* ---- covers ---- */

static void trace_split_add_cover(splitter *s, covers *c, cover one)
{
    if (one.begin >= one.end || s->failed) {
        return;
    }
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 16;
        cover *list = realloc(c->list, room * sizeof *list);
        if (!list) {
            s->failed = true;
            return;
        }
        c->list = list;
        c->room = room;
    }
    c->list[c->n++] = one;
}

static int trace_split_compare_covers(const void *a, const void *b)
{
    const cover *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->end < y->end) - (x->end > y->end);
}

/* Sorts the covers, and removes overlaps with earlier covers. */
static void trace_split_part_covers(covers *c)
{
    size_t n = 0;
    if (c->n > 1) {
        trace_sort(c->list, c->n, sizeof *c->list, trace_split_compare_covers);
    }
    for (size_t i = 0; i < c->n; i++) {
        cover one = c->list[i];
        one.begin = n > 0 ? trace_most(one.begin, c->list[n - 1].end) : one.begin;
        if (one.begin < one.end) {
            c->list[n++] = one;
        }
    }
    c->n = n;
    c->at = 0;
}

/* The cover at a time. If there is none, returns NULL and lowers *next to the begin of the next
 * cover. Times must not decrease between calls. */
static const cover *trace_split_cover_at(covers *c, int64_t time, int64_t *next)
{
    while (c->at < c->n && c->list[c->at].end <= time) {
        c->at++;
    }
    if (c->at == c->n) {
        return NULL;
    }
    if (c->list[c->at].begin <= time) {
        return &c->list[c->at];
    }
    *next = trace_least(*next, c->list[c->at].begin);
    return NULL;
}

/* ---- pieces ---- */

static void trace_split_add_piece(splitter *s, trace_piece one)
{
    trace_piece *last = s->n > 0 ? &s->pieces[s->n - 1] : NULL;
    if (one.begin >= one.end || s->failed) {
        return;
    }
    if (last && last->state == one.state && last->state == TRACE_IDLE && last->cause == one.cause &&
        last->other == one.other && last->op == one.op && last->holder == one.holder && last->wait == one.wait) {
        last->end = one.end;
        return;
    }
    if (!s->pieces || s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        trace_piece *pieces = realloc(s->pieces, room * sizeof *pieces);
        if (!pieces) {
            s->failed = true;
            return;
        }
        s->pieces = pieces;
        s->room = room;
    }
    s->pieces[s->n++] = one;
}

/* ---- walks backwards ---- */

static int trace_split_device_of(const trace *t, int32_t op)
{
    return trace_lane_device(t->ops[op].lane);
}

/* The device at the other end of a copy. */
static int16_t trace_split_other_end(const trace_op *op, int device)
{
    uint8_t other = op->src == device ? op->dst : op->src;
    return other < TRACE_DEVICES && other != device ? other : TRACE_NONE;
}

/* Notes that `far` kept `head` from running between `begin` and `end`. `ran`: `far` ran or was a
 * claim; else it was on its way to its device. */
static void trace_split_blame_op(splitter *s, int32_t head, int32_t far, int32_t wait, int64_t begin, int64_t end,
                                 bool ran)
{
    const trace_op *op = &s->t->ops[far];
    int device = trace_split_device_of(s->t, far);
    cover one = {begin, end, TRACE_NONE, head, far, wait};
    trace_cause cause = TRACE_CAUSE_OVERHEAD;
    bool missed = op->began == TRACE_UNSEEN && op->done == TRACE_UNSEEN && s->t->devices[device].incomplete;
    if (!ran && (op->unknown_waits > 0 || missed)) {
        cause = TRACE_CAUSE_UNKNOWN;
    } else if (op->kind == HDI_RECORD_OP_CLAIM) {
        cause = TRACE_CAUSE_CLAIM;
    } else if (op->kind == HDI_RECORD_OP_COPY && (ran || device != s->device)) {
        cause = TRACE_CAUSE_COPY;
        one.other = trace_split_other_end(op, s->device);
    } else if (device != s->device) {
        cause = TRACE_CAUSE_DEVICE;
        one.other = (int16_t)device;
    }
    trace_split_add_cover(s, &s->cause[cause], one);
}

/* Finds why `head`, submitted but not begun, did not run from `begin` to `end`. */
static void trace_split_walk_waits(splitter *s, int32_t head, int64_t begin, int64_t end)
{
    const trace *t = s->t;
    int32_t at = head, wait = TRACE_NONE;
    while (begin < end) {
        const trace_op *op = &t->ops[at];
        /* while it ran */
        if (at != head) {
            int64_t ran = op->began == TRACE_UNSEEN ? INT64_MAX : trace_most(op->began, begin);
            if (op->kind == HDI_RECORD_OP_CLAIM && op->began == TRACE_UNSEEN && op->ready != TRACE_UNSEEN) {
                ran = trace_most(op->ready, begin); /* nobody saw the claim begin */
            }
            if (ran < end) {
                trace_split_blame_op(s, head, at, wait, ran, end, true);
                end = ran;
            }
        }
        /* from `ready` on, nothing held the operation up */
        int64_t ready = op->holder == TRACE_NONE ? begin : op->ready == TRACE_UNSEEN ? end : op->ready;
        ready = trace_most(ready, begin);
        /* before its submit, an operation's waits do not matter */
        ready = trace_most(ready, trace_least(op->submitted, end));
        if (ready < end) {
            trace_split_blame_op(s, head, at, wait, ready, end, false);
            end = ready;
        }
        if (op->holder == TRACE_NONE || s->steps == 0) {
            trace_split_blame_op(s, head, at, wait, begin, end, false);
            return;
        }
        s->steps--;
        bool crosses = trace_split_device_of(t, op->holder) != trace_split_device_of(t, at) || wait == TRACE_NONE;
        wait = op->held_by != TRACE_NONE && crosses ? op->held_by : wait;
        at = op->holder;
    }
}

/* ---- activity of threads ---- */

static uint32_t trace_split_devices_of_thread(const trace *t, uint32_t thread)
{
    size_t low = 0, high = t->n_threads;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->threads[middle].thread < thread) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < t->n_threads && t->threads[low].thread == thread ? t->threads[low].devices : 0;
}

static void trace_split_add_pause(splitter *s, const trace_pause *p)
{
    bool feeds = (trace_split_devices_of_thread(s->t, p->thread) >> s->device & 1) != 0;
    cover one = {p->begin, p->end, TRACE_NONE, TRACE_NONE, TRACE_NONE, TRACE_NONE};
    int device = p->device;
    trace_cause cause = TRACE_CAUSE_MEMORY;
    if (p->kind == HDI_RECORD_PAUSE_ROOM) {
        cause = TRACE_CAUSE_RING;
        device = trace_lane_device(p->lane);
    } else if (p->kind == HDI_RECORD_PAUSE_CHUNK) {
        cause = TRACE_CAUSE_COPY;
    } else if (p->kind == HDI_RECORD_PAUSE_WAIT || p->kind == HDI_RECORD_PAUSE_CODE) {
        return;
    }
    if (device == s->device || feeds) {
        one.other = (int16_t)(device != s->device && device >= 0 && device < s->t->n_devices ? device : TRACE_NONE);
        trace_split_add_cover(s, &s->threads[cause], one);
    }
}

/* A shorter allocation is normal. */
enum { LONG_ALLOC_NS = 20000 };

static void trace_split_add_memory(splitter *s, const trace_memory *m)
{
    bool feeds = (trace_split_devices_of_thread(s->t, m->thread) >> s->device & 1) != 0;
    bool here = m->kind == 0 && m->device == s->device;
    if (m->is_alloc && m->took >= LONG_ALLOC_NS && (here || feeds)) {
        cover one = {m->time - m->took, m->time, TRACE_NONE, TRACE_NONE, TRACE_NONE, TRACE_NONE};
        one.other = m->kind == 0 && !here && m->device < s->t->n_devices ? m->device : TRACE_NONE;
        trace_split_add_cover(s, &s->threads[TRACE_CAUSE_MEMORY], one);
    }
}

/* Calls that move the program's own memory, and staged copies, may block their thread. */
static void trace_split_add_transfer(splitter *s, const trace_transfer *x)
{
    bool own = x->way == HDI_RECORD_WAY_WRITE || x->way == HDI_RECORD_WAY_READ || x->way == HDI_RECORD_WAY_STAGED;
    bool feeds = (trace_split_devices_of_thread(s->t, x->thread) >> s->device & 1) != 0;
    bool here = x->src == s->device || x->dst == s->device;
    if (own && (here || feeds)) {
        uint8_t far = x->src < TRACE_DEVICES ? x->src : x->dst;
        cover one = {x->called, x->returned, TRACE_NONE, x->op, x->op, TRACE_NONE};
        one.other = far < s->t->n_devices && far != s->device ? far : TRACE_NONE;
        trace_split_add_cover(s, &s->threads[TRACE_CAUSE_COPY], one);
    }
}

/* A loss without a return ends at the device's next loss, because the device had come back by
 * then. */
static int64_t trace_split_loss_ends(const trace *t, size_t loss)
{
    for (size_t i = loss + 1; i < t->n_losses; i++) {
        if (t->losses[i].device == t->losses[loss].device) {
            return t->losses[i].time;
        }
    }
    return t->end;
}

static void trace_split_see_threads(splitter *s)
{
    const trace *t = s->t;
    for (size_t i = 0; i < t->n_losses; i++) {
        const trace_loss *l = &t->losses[i];
        if (l->device == s->device) {
            int64_t end = l->ended == TRACE_UNSEEN ? trace_most(trace_split_loss_ends(t, i), l->time) : l->ended;
            trace_split_add_cover(s, &s->threads[TRACE_CAUSE_LOSS],
                                  (cover){l->time, end, TRACE_NONE, l->op, TRACE_NONE, TRACE_NONE});
        }
    }
    for (size_t i = 0; i < t->n_pauses; i++) {
        trace_split_add_pause(s, &t->pauses[i]);
    }
    for (size_t i = 0; i < t->n_memory; i++) {
        trace_split_add_memory(s, &t->memory[i]);
    }
    for (size_t i = 0; i < t->n_transfers; i++) {
        trace_split_add_transfer(s, &t->transfers[i]);
    }
    for (int i = 0; i < TRACE_CAUSES; i++) {
        trace_split_part_covers(&s->threads[i]);
    }
}

/* ---- a gap ---- */

/* The first operation of a lane that had not begun at `begin`, the begin of the gap. The answer
 * holds for the whole gap, since no operation with a time of its own begins within a gap. */
static int32_t trace_split_find_head(splitter *s, size_t lane, int64_t begin)
{
    const trace_op *ops = s->t->ops;
    size_t end = (size_t)s->lanes[lane].first_op + (size_t)s->lanes[lane].n_ops;
    size_t *next = &s->next[lane];
    while (*next < end) {
        const trace_op *op = &ops[*next];
        bool over = !trace_is_work(op->kind) || op->failed || (op->began != TRACE_UNSEEN && op->began <= begin) ||
                    (op->began == TRACE_UNSEEN && op->done != TRACE_UNSEEN);
        if (!over) {
            return (int32_t)*next;
        }
        ++*next;
    }
    return TRACE_NONE;
}

/* Returns the cause at a time, and the earliest time at which it may change. */
static trace_cause trace_split_cause_at(splitter *s, int64_t time, int64_t *until, cover *out)
{
    /* a thread that waits for room is a cause only if no operation waits, because more room would
     * not start that operation */
    static const uint8_t asked[] = {TRACE_CAUSE_LOSS,   TRACE_CAUSE_DEVICE,  TRACE_CAUSE_COPY,     TRACE_CAUSE_CLAIM,
                                    TRACE_CAUSE_MEMORY, TRACE_CAUSE_UNKNOWN, TRACE_CAUSE_OVERHEAD, TRACE_CAUSE_RING};
    for (size_t i = 0; i < sizeof asked; i++) {
        trace_cause c = (trace_cause)asked[i];
        const cover *work = trace_split_cover_at(&s->cause[c], time, until);
        /* a call that moves bytes is a cause only if no operation is waiting */
        bool asks = c != TRACE_CAUSE_COPY;
        const cover *found = work ? work : asks ? trace_split_cover_at(&s->threads[c], time, until) : NULL;
        if (found) {
            *out = *found;
            *until = trace_least(*until, found->end);
            return c;
        }
    }
    const cover *call = trace_split_cover_at(&s->threads[TRACE_CAUSE_COPY], time, until);
    if (call) {
        *out = *call;
        *until = trace_least(*until, call->end);
        return TRACE_CAUSE_COPY;
    }
    *out = (cover){0, 0, TRACE_NONE, TRACE_NONE, TRACE_NONE, TRACE_NONE};
    return TRACE_CAUSE_NOTHING;
}

static void trace_split_gap(splitter *s, int64_t begin, int64_t end)
{
    for (int c = 0; c < TRACE_CAUSES; c++) {
        s->cause[c].n = s->cause[c].at = 0;
    }
    for (size_t i = 0; i < s->n_lanes; i++) {
        int32_t head = trace_split_find_head(s, i, begin);
        if (head != TRACE_NONE && s->t->ops[head].submitted < end) {
            trace_split_walk_waits(s, head, trace_most(begin, s->t->ops[head].submitted), end);
        }
    }
    for (int c = 0; c < TRACE_CAUSES; c++) {
        trace_split_part_covers(&s->cause[c]);
    }
    trace_device *d = &s->t->devices[s->device];
    while (begin < end && !s->failed) {
        int64_t until = end;
        cover why;
        trace_cause cause = trace_split_cause_at(s, begin, &until, &why);
        trace_split_add_piece(
            s, (trace_piece){begin, until, TRACE_IDLE, (uint8_t)cause, why.other, why.op, why.holder, why.wait});
        d->cause[cause] += until - begin;
        if (cause == TRACE_CAUSE_DEVICE && why.other >= 0 && why.other < TRACE_DEVICES) {
            d->for_device[why.other] += until - begin;
        }
        begin = until;
    }
}

/* ---- a device ---- */

/* The begin or end of work on the device. */
typedef struct event {
    int64_t time;
    int8_t compute, transfer; /* 1: begins, -1: ends */
    int32_t op;
} event;

static int trace_split_compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : (x->op > y->op) - (x->op < y->op);
}

/* The first stretch of the device, or of a later one: stretches are sorted by lane. */
static size_t trace_split_first_stretch(const trace *t, int device)
{
    size_t low = 0, high = t->n_stretches;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace_lane_device(t->stretches[middle].lane) < device) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A SPAN uses one kind for launches and fills, so this function looks at the operations. */
static bool trace_split_stretch_moves(const trace *t, const trace_stretch *x)
{
    return trace_moves(t, x->lane, x->first_op != TRACE_NONE ? t->ops[x->first_op].kind : x->op);
}

static event *trace_split_make_events(const splitter *s, size_t *n)
{
    const trace *t = s->t;
    size_t begin = trace_split_first_stretch(t, s->device), end = trace_split_first_stretch(t, s->device + 1);
    event *events = trace_table(2 * (end - begin + t->n_activities), sizeof *events);
    *n = 0;
    for (size_t i = begin; events && i < end; i++) {
        const trace_stretch *x = &t->stretches[i];
        if (x->began == x->ended) {
            continue;
        }
        bool moves = trace_split_stretch_moves(t, x);
        events[(*n)++] = (event){x->began, !moves, moves, x->first_op};
        events[(*n)++] = (event){x->ended, (int8_t) - !moves, (int8_t)-moves, x->first_op};
    }
    for (size_t i = 0; events && i < t->n_activities; i++) { /* work of other libraries */
        const trace_activity *a = &t->activities[i];
        int64_t from = trace_most(a->begin, t->begin), to = trace_least(a->end, t->end);
        if (a->device == s->device && a->op == TRACE_NONE && from < to && !trace_is_signal(a)) {
            bool moves = a->kind == HDI_RECORD_ACTIVITY_COPY;
            events[(*n)++] = (event){from, !moves, moves, TRACE_NONE};
            events[(*n)++] = (event){to, (int8_t) - !moves, (int8_t)-moves, TRACE_NONE};
        }
    }
    if (events) {
        trace_sort(events, *n, sizeof *events, trace_split_compare_events);
    }
    return events;
}

/* Adds the time between two events. */
static void trace_split_between(splitter *s, int64_t begin, int64_t end, int64_t computing, int64_t moving, int32_t op)
{
    trace_device *d = &s->t->devices[s->device];
    if (begin >= end) {
        return;
    }
    if (computing > 0 || moving > 0) {
        int64_t *sum = computing > 0 ? &d->compute : &d->transfer;
        *sum += end - begin;
        d->overlap += computing > 0 && moving > 0 ? end - begin : 0;
        trace_state state = computing > 0 ? TRACE_COMPUTE : TRACE_TRANSFER;
        trace_piece *last = s->n > 0 ? &s->pieces[s->n - 1] : NULL;
        if (last && last->state == state) {
            last->end = end;
        } else {
            trace_split_add_piece(
                s, (trace_piece){begin, end, (uint8_t)state, TRACE_CAUSES, TRACE_NONE, op, TRACE_NONE, TRACE_NONE});
        }
        return;
    }
    d->idle += end - begin;
    trace_split_gap(s, begin, end);
}

static void trace_split_sweep_events(splitter *s, const event *events, size_t n)
{
    int64_t at = s->t->begin, computing = 0, moving = 0;
    int32_t op = TRACE_NONE;
    for (size_t i = 0; i < n; i++) {
        trace_split_between(s, at, events[i].time, computing, moving, op);
        at = trace_most(at, events[i].time);
        computing += events[i].compute;
        moving += events[i].transfer;
        op = events[i].compute > 0 || events[i].transfer > 0 ? events[i].op : op;
    }
    trace_split_between(s, at, s->t->end, computing, moving, op);
}

/* Lanes are sorted, so the device's lanes are adjacent. */
static void trace_split_find_lanes(splitter *s)
{
    const trace *t = s->t;
    size_t first = 0;
    while (first < t->n_lanes && trace_lane_device(t->lanes[first].lane) != s->device) {
        first++;
    }
    s->lanes = t->lanes + first;
    while (first + s->n_lanes < t->n_lanes && trace_lane_device(t->lanes[first + s->n_lanes].lane) == s->device) {
        s->n_lanes++;
    }
}

static bool trace_split_device(trace *t, int device)
{
    splitter s = {.t = t, .device = device, .steps = 64 * (uint64_t)t->n_ops + 4096};
    size_t n_events = 0;
    t->devices[device].begin = t->begin;
    t->devices[device].end = t->end;
    trace_split_find_lanes(&s);
    s.next = trace_table(s.n_lanes, sizeof *s.next);
    event *events = trace_split_make_events(&s, &n_events);
    bool ok = events && s.next;
    if (ok) {
        for (size_t i = 0; i < s.n_lanes; i++) {
            s.next[i] = (size_t)s.lanes[i].first_op;
        }
        trace_split_see_threads(&s);
        trace_split_sweep_events(&s, events, n_events);
    }
    for (int i = 0; i < TRACE_CAUSES; i++) {
        free(s.cause[i].list);
        free(s.threads[i].list);
    }
    free(s.next);
    free(events);
    t->devices[device].pieces = s.pieces;
    t->devices[device].n_pieces = s.n;
    return ok && !s.failed;
}

bool trace_moves(const trace *t, uint32_t lane, uint8_t kind)
{
    const trace_lane *l = trace_find_lane(t, lane);
    return kind == HDI_RECORD_OP_COPY || (kind == HDI_RECORD_OP_LAUNCH && l && trace_is_copy_lane(l->kind));
}

bool trace_split(trace *t)
{
    bool ok = true;
    for (int d = 0; ok && d < t->n_devices; d++) {
        ok = trace_split_device(t, d);
    }
    return ok;
}
