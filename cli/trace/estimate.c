/* estimate.c - estimates when operations without a device time ran, from measured operations of
 * their kind. See model.h.
 *
 * The host saw when such an operation was issued. It also saw the operation done, but often much
 * too late, and together with others. The estimate begins when the operation was issued and all its
 * waits had ended. It lasts the mean time of the operation's kind. A kind is the same work of about
 * the same size on a device. So operations of several lanes that the host saw done at once keep
 * their order, and concurrent operations still overlap.
 *
 * Threads, Locks: see model.h.
 * Always: an estimate ends no later than the host saw its operation done, and no later than the
 * lane's next span begins. A kind with fewer than MEASURED_LEAST measured operations gives no
 * estimate.
 */
#include <stdlib.h>
#include "cli/trace/parts.h"

/* The sum of the spans of a kind. */
typedef struct kind_time {
    uint64_t kind;
    int64_t sum;
    int64_t count;
} kind_time;

enum { NEW, OPEN, READY };
enum { MEASURED_LEAST = 8 }; /* the mean of fewer operations is too uncertain */

typedef struct estimator {
    const trace_source *s;
    trace_estimate *out; /* by operation */
    kind_time *kinds;    /* sorted */
    size_t n_kinds;
    uint8_t *state; /* by operation */
    int32_t *stack;
    size_t n;
} estimator;

static uint64_t trace_estimate_size_class(uint64_t size)
{
    return size > 0 ? 64 - (uint64_t)__builtin_clzll(size) : 0;
}

static uint64_t trace_estimate_kind_of(const trace_op *op)
{
    bool launch = op->kind == HDI_RECORD_OP_LAUNCH;
    uint64_t size = launch ? (uint64_t)op->blocks * op->threads : op->bytes;
    uint64_t which = (uint32_t)(launch ? op->kernel : op->way);
    return (uint64_t)trace_lane_device(op->lane) << 48 | (uint64_t)op->kind << 40 |
           trace_estimate_size_class(size) << 32 | which;
}

static int trace_estimate_compare_kinds(const void *a, const void *b)
{
    const kind_time *x = a, *y = b;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Sets the times of a span's operations. If all are of one kind, adds the span to that kind.
 * Returns the first operation behind the span. */
static size_t trace_estimate_note_span(estimator *e, const bench_trace_run *span, size_t op, size_t end)
{
    const trace *t = e->s->t;
    kind_time k = {.count = 0};
    bool one_kind = true;
    for (; op < end && t->ops[op].position <= span->position; op++) {
        if (trace_is_work(t->ops[op].kind)) {
            one_kind = one_kind && (k.count == 0 || k.kind == trace_estimate_kind_of(&t->ops[op]));
            k.kind = trace_estimate_kind_of(&t->ops[op]);
            k.count++;
            e->out[op] = (trace_estimate){span->began, span->ended};
            e->state[op] = READY;
        }
    }
    if (one_kind && k.count > 0 && !span->coarse) {
        k.sum = span->ended - span->began;
        e->kinds[e->n_kinds++] = k;
    }
    return op;
}

/* Reads all spans by lane. An operation without a span ends before it was seen done and before the
 * next span begins. */
static void trace_estimate_note_spans(estimator *e)
{
    const trace *t = e->s->t;
    size_t span = 0;
    for (size_t i = 0; i < t->n_lanes; i++) {
        const trace_lane *lane = &t->lanes[i];
        size_t op = (size_t)lane->first_op, end = op + (size_t)lane->n_ops;
        while (op < end) {
            bool has = span < e->s->n_spans && e->s->spans[span].lane == lane->lane;
            const bench_trace_run *r = has ? &e->s->spans[span++] : NULL;
            for (; op < end && (!r || t->ops[op].position <= r->before); op++) {
                int64_t done = t->ops[op].done;
                e->out[op] = (trace_estimate){TRACE_UNSEEN, done};
                if (r && done != TRACE_UNSEEN) {
                    e->out[op].ended = trace_least(done, r->began);
                }
            }
            op = r && trace_is_work(r->op) ? trace_estimate_note_span(e, r, op, end) : op;
        }
        while (span < e->s->n_spans && e->s->spans[span].lane == lane->lane) {
            span++;
        }
    }
}

/* Joins the rows of each kind. */
static void trace_estimate_sum_kinds(estimator *e)
{
    size_t n = 0;
    trace_sort(e->kinds, e->n_kinds, sizeof *e->kinds, trace_estimate_compare_kinds);
    for (size_t i = 0; i < e->n_kinds; i++) {
        if (n > 0 && e->kinds[n - 1].kind == e->kinds[i].kind) {
            trace_add(&e->kinds[n - 1].sum, e->kinds[i].sum);
            e->kinds[n - 1].count += e->kinds[i].count;
        } else {
            e->kinds[n++] = e->kinds[i];
        }
    }
    e->n_kinds = n;
}

/* Estimates an operation, all of whose waits have a time. A mark ends with its waits, and a claim
 * ends when the program ends it. */
static void trace_estimate_op(estimator *e, int32_t at)
{
    const trace_op *op = &e->s->t->ops[at];
    trace_estimate *out = &e->out[at];
    if (op->kind == HDI_RECORD_OP_CLAIM || out->ended == TRACE_UNSEEN || op->failed) {
        return;
    }
    /* TRACE_UNSEEN is less than any time */
    int64_t ready = op->issued != TRACE_UNSEEN ? op->issued : op->submitted;
    ready = op->before != TRACE_NONE ? trace_most(ready, e->out[op->before].ended) : ready;
    for (uint32_t i = 0; i < op->n_waits; i++) {
        int32_t other = e->s->t->waits[op->first_wait + i].other;
        ready = other != TRACE_NONE ? trace_most(ready, e->out[other].ended) : ready;
    }
    ready = trace_least(ready, out->ended);
    if (!trace_is_work(op->kind)) {
        out->ended = ready;
        return;
    }
    kind_time key = {.kind = trace_estimate_kind_of(op)};
    const kind_time *k = bsearch(&key, e->kinds, e->n_kinds, sizeof *e->kinds, trace_estimate_compare_kinds);
    if (k && k->count >= MEASURED_LEAST) {
        out->began = ready;
        out->ended = trace_least(out->ended, ready + k->sum / k->count);
    }
}

static void trace_estimate_push_op(estimator *e, int32_t op)
{
    if (op != TRACE_NONE && e->state[op] == NEW) {
        e->stack[e->n++] = op;
    }
}

/* Estimates the top operation once its waits are estimated. No recorder writes a cycle of waits. If
 * a file contains a cycle, it is broken at one of its operations. */
static void trace_estimate_top(estimator *e)
{
    int32_t at = e->stack[e->n - 1];
    const trace_op *op = &e->s->t->ops[at];
    if (e->state[at] == NEW) {
        e->state[at] = OPEN;
        for (uint32_t i = 0; i < op->n_waits; i++) {
            trace_estimate_push_op(e, e->s->t->waits[op->first_wait + i].other);
        }
        trace_estimate_push_op(e, op->before);
        return;
    }
    e->n--;
    if (e->state[at] == OPEN) {
        e->state[at] = READY;
        trace_estimate_op(e, at);
    }
}

trace_estimate *trace_estimates(const trace_source *s)
{
    const trace *t = s->t;
    estimator e = {.s = s,
                   .out = trace_table(t->n_ops, sizeof e.out[0]),
                   .kinds = trace_table(s->n_spans, sizeof e.kinds[0]),
                   .state = trace_table(t->n_ops, sizeof e.state[0]),
                   .stack = trace_table(2 * t->n_ops + t->n_waits, sizeof e.stack[0])};
    bool ok = e.out && e.kinds && e.state && e.stack;
    if (ok) {
        trace_estimate_note_spans(&e);
        trace_estimate_sum_kinds(&e);
    }
    for (size_t i = 0; ok && i < t->n_ops; i++) {
        trace_estimate_push_op(&e, (int32_t)i);
        while (e.n > 0) {
            trace_estimate_top(&e);
        }
    }
    free(e.kinds);
    free(e.state);
    free(e.stack);
    if (!ok) {
        free(e.out);
    }
    return ok ? e.out : NULL;
}
