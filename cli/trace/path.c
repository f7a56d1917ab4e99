/* path.c - the chain of waits behind an operation, and the critical path of the whole trace. See model.h.
 *
 * The critical path is walked backwards from the work that ended last. Before an operation stands what it waited for, or, where
 * that had ended before it was submitted, the thread that submitted it. Before the thread stands what it had waited for itself.
 *
 * Threads, Locks: see model.h.
 * Always: both walks go back in time, and take as many steps as there are operations at most.
 */
#include <stdlib.h>
#include "cli/trace/parts.h"

size_t trace_chain(const trace *t, int32_t op, int32_t *out, size_t most)
{
    size_t n = 0;
    while (n < most && op >= 0 && (size_t)op < t->n_ops) {
        const trace_op *o = &t->ops[op];
        out[n++] = op;
        bool waited = o->holder != TRACE_NONE && (o->ready == TRACE_UNSEEN || o->ready > o->submitted);
        op = waited && n < t->n_ops ? o->holder : TRACE_NONE;
    }
    return n;
}

/* Pauses in which a thread waited for the program, sorted by thread and end. */
static int compare_pauses(const void *a, const void *b)
{
    const trace_pause *x = a, *y = b;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

static trace_pause *sort_waits(const trace *t, size_t *n)
{
    trace_pause *waits = trace_table(t->n_pauses, sizeof *waits);
    *n = 0;
    for (size_t i = 0; waits && i < t->n_pauses; i++) {
        if (t->pauses[i].kind == HDI_RECORD_PAUSE_WAIT || t->pauses[i].kind == HDI_RECORD_PAUSE_ROOM) {
            waits[(*n)++] = t->pauses[i];
        }
    }
    if (waits) {
        trace_sort(waits, *n, sizeof *waits, compare_pauses);
    }
    return waits;
}

/* The last wait of a thread that ended before it submitted at `time`. */
static const trace_pause *last_wait(const trace_pause *waits, size_t n, uint32_t thread, int64_t time)
{
    size_t low = 0, high = n;
    time += TRACE_THREADS_NS;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (waits[middle].thread < thread || (waits[middle].thread == thread && waits[middle].end <= time)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && waits[low - 1].thread == thread ? &waits[low - 1] : NULL;
}

typedef struct walker {
    trace *t;
    const trace_pause *waits;
    size_t n_waits;
    int64_t now; /* all behind it is accounted for */
} walker;

/* What lies between `from` and now is of that kind. */
static void go_back(walker *w, int64_t from, trace_along along)
{
    from = trace_most(from, w->t->begin);
    if (from < w->now) {
        w->t->along[along] += w->now - from;
        w->now = from;
    }
}

static trace_along kind_of(const trace *t, const trace_op *op)
{
    return trace_moves(t, op->lane, op->kind) ? TRACE_ALONG_TRANSFER
           : op->kind == HDI_RECORD_OP_CLAIM  ? TRACE_ALONG_CLAIM
                                              : TRACE_ALONG_COMPUTE;
}

/* What the thread had waited for before it submitted, TRACE_NONE: nothing. */
static int32_t before_submit(const walker *w, const trace_op *op)
{
    const trace_pause *p = last_wait(w->waits, w->n_waits, op->thread, op->submitted);
    const trace_lane *lane = p ? trace_find_lane(w->t, p->lane) : NULL;
    size_t behind = lane ? trace_op_behind(w->t, lane, p->position) : 0;
    if (!lane || behind == (size_t)lane->first_op ||
        trace_run_of(w->t->ops[behind - 1].position) != trace_run_of(p->position)) {
        return TRACE_NONE;
    }
    int32_t other = (int32_t)behind - 1;
    int64_t ended = w->t->ops[other].ended;
    return ended != TRACE_UNSEEN && ended <= op->submitted + TRACE_THREADS_NS && ended >= p->begin - TRACE_THREADS_NS
               ? other
               : TRACE_NONE;
}

/* The operation before one on the path. */
static int32_t step(walker *w, int32_t at)
{
    const trace *t = w->t;
    const trace_op *op = &t->ops[at];
    go_back(w, op->began, kind_of(t, op));
    if (!op->measured && op->stretch != TRACE_NONE) { /* all of a stretch at once */
        int32_t first = t->stretches[op->stretch].first_op;
        op = first >= 0 && first < at ? &t->ops[first] : op;
    }
    trace_along way = op->unknown_waits > 0 ? TRACE_ALONG_UNKNOWN : TRACE_ALONG_WAY;
    if (op->holder != TRACE_NONE && op->ready != TRACE_UNSEEN && op->ready > op->submitted) {
        go_back(w, op->ready, way);
        return op->holder;
    }
    go_back(w, op->submitted, way);
    int32_t other = before_submit(w, op);
    go_back(w, other != TRACE_NONE ? t->ops[other].ended : t->begin, TRACE_ALONG_HOST);
    return other;
}

bool trace_path(trace *t)
{
    walker w = {.t = t, .now = t->end};
    w.waits = sort_waits(t, &w.n_waits);
    t->critical = trace_table(t->n_ops, sizeof t->critical[0]);
    if (!w.waits || !t->critical) {
        free((void *)w.waits);
        return false;
    }
    int32_t at = TRACE_NONE;
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        if (trace_is_work(op->kind) && op->ended != TRACE_UNSEEN &&
            (at == TRACE_NONE || op->ended > t->ops[at].ended)) {
            at = (int32_t)i;
        }
    }
    while (at != TRACE_NONE && t->n_critical < t->n_ops && w.now > t->begin) {
        if (t->ops[at].ended == TRACE_UNSEEN || t->ops[at].began == TRACE_UNSEEN) {
            break;
        }
        go_back(&w, t->ops[at].ended, TRACE_ALONG_HOST);
        t->critical[t->n_critical++] = at;
        at = step(&w, at);
    }
    go_back(&w, t->begin, TRACE_ALONG_HOST); /* what the trace does not have */
    for (size_t i = 0; i < t->n_critical / 2; i++) {
        int32_t other = t->critical[i];
        t->critical[i] = t->critical[t->n_critical - 1 - i];
        t->critical[t->n_critical - 1 - i] = other;
    }
    free((void *)w.waits);
    return true;
}
