/* path.c - the chain of waits behind an operation, and the critical path of the whole trace. See
 * model.h.
 *
 * The critical path goes backwards from the work that ended last. An operation's predecessor is the
 * one for which it waited. If the predecessor had ended before the operation was submitted, the
 * path continues in the submitting thread. There it goes on to the operation for which that thread
 * had waited. Calls wait for operations, which their pauses name. A read ends with its last copy. A
 * wait for memory of a device counts as a wait for the device's operation that ended last.
 *
 * Threads, Locks: see model.h.
 * Always: both walks go back in time, and take at most as many steps as there are operations.
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

/* A thread's call that waited for an operation. */
typedef struct stay {
    uint32_t thread;
    int64_t begin, end;
    int32_t op;
} stay;

static int trace_path_compare_stays(const void *a, const void *b)
{
    const stay *x = a, *y = b;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

/* Returns the last operation of a lane up to a position, of the same runtime, or TRACE_NONE. */
static int32_t trace_path_op_up_to(const trace *t, uint32_t number, uint64_t position)
{
    const trace_lane *lane = trace_find_lane(t, number);
    size_t behind = lane ? trace_op_behind(t, lane, position) : 0;
    bool has =
        lane && behind > (size_t)lane->first_op && trace_run_of(t->ops[behind - 1].position) == trace_run_of(position);
    return has ? (int32_t)behind - 1 : TRACE_NONE;
}

/* Work by device and end; copies to the host are separate. */
typedef struct ending {
    int device;
    bool to_host;
    int64_t ended;
    int32_t op;
} ending;

static int trace_path_compare_endings(const void *a, const void *b)
{
    const ending *x = a, *y = b;
    if (x->device != y->device || x->to_host != y->to_host) {
        return x->device != y->device ? x->device - y->device : x->to_host - y->to_host;
    }
    return (x->ended > y->ended) - (x->ended < y->ended);
}

static ending *trace_path_sort_endings(const trace *t, size_t *n)
{
    ending *all = trace_table(t->n_ops, sizeof *all);
    *n = 0;
    for (size_t i = 0; all && i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        if (trace_is_work(op->kind) && op->ended != TRACE_UNSEEN) {
            bool to_host = op->kind == HDI_RECORD_OP_COPY && op->way == HDI_RECORD_WAY_TO_HOST;
            all[(*n)++] = (ending){trace_lane_device(op->lane), to_host, op->ended, (int32_t)i};
        }
    }
    if (all) {
        trace_sort(all, *n, sizeof *all, trace_path_compare_endings);
    }
    return all;
}

/* Returns the work of a device that ended last before a time, or NULL. */
static const ending *trace_path_ended_last(const ending *all, size_t n, int device, bool to_host, int64_t time)
{
    const ending wanted = {.device = device, .to_host = to_host, .ended = time + TRACE_THREADS_NS};
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace_path_compare_endings(&all[middle], &wanted) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const ending *last = low > 0 ? &all[low - 1] : NULL;
    return last && last->device == device && last->to_host == to_host ? last : NULL;
}

/* Like trace_path_ended_last, for both groups. */
static int32_t trace_path_ended_last_of_all(const ending *all, size_t n, int device, int64_t time)
{
    const ending *copy = trace_path_ended_last(all, n, device, true, time),
                 *other = trace_path_ended_last(all, n, device, false, time);
    const ending *last = !copy || (other && other->ended > copy->ended) ? other : copy;
    return last ? last->op : TRACE_NONE;
}

static int32_t trace_path_awaited_by(const trace *t, const trace_pause *p, const ending *endings, size_t n)
{
    switch (p->kind) {
    case HDI_RECORD_PAUSE_WAIT:
    case HDI_RECORD_PAUSE_ROOM:
    case HDI_RECORD_PAUSE_CHUNK:
        return trace_path_op_up_to(t, p->lane, p->position);
    case HDI_RECORD_PAUSE_MEMORY:
        return trace_path_ended_last_of_all(endings, n, p->device, p->end);
    default:
        return TRACE_NONE;
    }
}

/* All waits for operations, sorted by thread and end. */
static stay *trace_path_sort_waits(const trace *t, size_t *n)
{
    size_t n_endings;
    ending *endings = trace_path_sort_endings(t, &n_endings);
    stay *waits = trace_table(t->n_pauses + t->n_transfers, sizeof *waits);
    *n = 0;
    for (size_t i = 0; endings && waits && i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        waits[*n] = (stay){p->thread, p->begin, p->end, trace_path_awaited_by(t, p, endings, n_endings)};
        *n += waits[*n].op != TRACE_NONE;
    }
    for (size_t i = 0; waits && i < t->n_transfers; i++) {
        const trace_transfer *x = &t->transfers[i];
        const ending *last = endings && x->way == HDI_RECORD_WAY_READ
                                 ? trace_path_ended_last(endings, n_endings, x->src, true, x->returned)
                                 : NULL;
        if (last) { /* several threads may submit a read's copies and wait for the copies */
            waits[(*n)++] = (stay){x->thread, x->called, x->returned, last->op};
        }
    }
    if (waits) {
        trace_sort(waits, *n, sizeof *waits, trace_path_compare_stays);
    }
    if (!endings) {
        free(waits);
        waits = NULL;
    }
    free(endings);
    return waits;
}

/* The index behind the thread's last wait that ended before its submit at `time`. */
static size_t trace_path_waits_before(const stay *waits, size_t n, uint32_t thread, int64_t time)
{
    const stay wanted = {.thread = thread, .end = time + TRACE_THREADS_NS};
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace_path_compare_stays(&waits[middle], &wanted) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

typedef struct walker {
    trace *t;
    const stay *waits;
    size_t n_waits;
    size_t looks; /* how many more irrelevant waits it may visit */
    int64_t now;  /* all time after this is accounted for */
} walker;

/* Counts the time from `from` to `now` as the given kind. */
static void trace_path_count_back(walker *w, int64_t from, trace_along along)
{
    from = trace_most(from, w->t->begin);
    if (from < w->now) {
        w->t->along[along] += w->now - from;
        w->now = from;
    }
}

static trace_along trace_path_kind_of(const trace *t, const trace_op *op)
{
    return trace_moves(t, op->lane, op->kind) ? TRACE_ALONG_TRANSFER
           : op->kind == HDI_RECORD_OP_CLAIM  ? TRACE_ALONG_CLAIM
                                              : TRACE_ALONG_COMPUTE;
}

/* Returns the operation for which the thread waited before it submitted, or TRACE_NONE. An
 * operation that ended before the thread began to wait did not hold the thread up. */
static int32_t trace_path_before_submit(walker *w, const trace_op *op)
{
    size_t i = trace_path_waits_before(w->waits, w->n_waits, op->thread, op->submitted);
    for (; i > 0 && w->waits[i - 1].thread == op->thread; i--) {
        const stay *p = &w->waits[i - 1];
        int64_t ended = w->t->ops[p->op].ended;
        if (ended != TRACE_UNSEEN && ended <= op->submitted + TRACE_THREADS_NS &&
            ended >= p->begin - TRACE_THREADS_NS) {
            return p->op;
        }
        if (w->looks == 0) {
            break; /* no recorder writes so many waits */
        }
        w->looks--;
    }
    return TRACE_NONE;
}

/* The previous operation on the path. */
static int32_t trace_path_step_back(walker *w, int32_t at)
{
    const trace *t = w->t;
    const trace_op *op = &t->ops[at];
    trace_path_count_back(w, op->began, trace_path_kind_of(t, op));
    if (!op->measured && op->stretch != TRACE_NONE) { /* a whole stretch at once */
        int32_t first = t->stretches[op->stretch].first_op;
        op = first >= 0 && first < at ? &t->ops[first] : op;
    }
    trace_along way = op->unknown_waits > 0 ? TRACE_ALONG_UNKNOWN : TRACE_ALONG_WAY;
    if (op->holder != TRACE_NONE && op->ready != TRACE_UNSEEN && op->ready > op->submitted) {
        trace_path_count_back(w, op->ready, way);
        return op->holder;
    }
    trace_path_count_back(w, op->submitted, way);
    int32_t other = trace_path_before_submit(w, op);
    trace_path_count_back(w, other != TRACE_NONE ? t->ops[other].ended : t->begin, TRACE_ALONG_HOST);
    return other;
}

bool trace_path(trace *t)
{
    walker w = {.t = t, .now = t->end};
    w.waits = trace_path_sort_waits(t, &w.n_waits);
    w.looks = w.n_waits + t->n_ops;
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
        trace_path_count_back(&w, t->ops[at].ended, TRACE_ALONG_HOST);
        t->critical[t->n_critical++] = at;
        at = trace_path_step_back(&w, at);
    }
    trace_path_count_back(&w, t->begin, TRACE_ALONG_HOST); /* time without records */
    for (size_t i = 0; i < t->n_critical / 2; i++) {
        int32_t other = t->critical[i];
        t->critical[i] = t->critical[t->n_critical - 1 - i];
        t->critical[t->n_critical - 1 - i] = other;
    }
    free((void *)w.waits);
    return true;
}
