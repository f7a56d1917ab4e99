/* launches.c - figures of launches: by kernel, their way to the device, and the queue of a device.
 * See model.h.
 *
 * Threads, Locks: see model.h.
 */
#include <stdlib.h>
#include "cli/trace/parts.h"

/* Tables for all sums. */
typedef struct summer {
    trace *t;
    uint32_t *launches, *places; /* indices of launches, grouped by kernel; the end of each group */
    struct stretch_count *counts;
    int64_t *times, *spare; /* room for one time for each operation */
} summer;

/* The number of operations in a stretch, and their kernel or kind. mixed: these differ. */
typedef struct stretch_count {
    uint32_t n;
    int32_t kernel;
    bool mixed;
} stretch_count;

static void trace_launches_count_stretches(const summer *s)
{
    for (size_t i = 0; i < s->t->n_ops; i++) {
        const trace_op *op = &s->t->ops[i];
        if (op->stretch != TRACE_NONE) {
            stretch_count *c = &s->counts[op->stretch];
            int32_t what = op->kind == HDI_RECORD_OP_LAUNCH ? op->kernel : -1 - op->kind;
            c->mixed = c->mixed || (c->n > 0 && c->kernel != what);
            c->kernel = what;
            c->n++;
        }
    }
}

/* True if the stretch's length does not come from the device. */
static bool trace_launches_stretch_is_guess(const trace_stretch *stretch)
{
    return stretch->approximate || stretch->coarse;
}

/* True if the operation has a begin of its own. */
static bool trace_launches_op_has_begin(const trace *t, int32_t index)
{
    const trace_op *op = &t->ops[index];
    const trace_stretch *stretch = op->stretch != TRACE_NONE ? &t->stretches[op->stretch] : NULL;
    return op->began != TRACE_UNSEEN &&
           (op->measured || (stretch && stretch->first_op == index && !trace_launches_stretch_is_guess(stretch)));
}

static trace_delays trace_launches_sum_delays(const summer *s, const uint32_t *list, size_t n)
{
    trace_delays d = {.issued = 0};
    for (size_t i = 0; i < n; i++) {
        const trace_op *op = &s->t->ops[list[i]];
        if (op->issued != TRACE_UNSEEN) {
            s->times[d.issued++] = trace_most(0, op->issued - op->submitted);
        }
    }
    trace_sort_times(s->times, d.issued, s->spare);
    d.issue_p50 = trace_quantile(s->times, d.issued, 0.5), d.issue_p99 = trace_quantile(s->times, d.issued, 0.99);
    for (size_t i = 0; i < n; i++) {
        const trace_op *op = &s->t->ops[list[i]];
        if (op->issued != TRACE_UNSEEN && trace_launches_op_has_begin(s->t, (int32_t)list[i])) {
            s->times[d.begun++] = trace_most(0, op->began - op->issued);
        }
    }
    trace_sort_times(s->times, d.begun, s->spare);
    d.begin_p50 = trace_quantile(s->times, d.begun, 0.5), d.begin_p99 = trace_quantile(s->times, d.begun, 0.99);
    return d;
}

static trace_launch trace_launches_sum_kernel(const summer *s, const uint32_t *list, size_t n)
{
    const trace *t = s->t;
    trace_launch l = {.kernel = t->ops[list[0]].kernel, .count = n};
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const trace_op *op = &t->ops[list[i]];
        l.failed += op->failed;
        if (op->stretch == TRACE_NONE) {
            continue;
        }
        const trace_stretch *stretch = &t->stretches[op->stretch];
        const stretch_count *c = &s->counts[op->stretch];
        if (op->measured || (c->n == 1 && !trace_launches_stretch_is_guess(stretch))) {
            s->times[l.measured++] = op->ended - op->began;
            trace_add(&l.total, op->ended - op->began);
        } else {
            trace_add(&l.shared, (stretch->ended - stretch->began) / c->n);
            l.mixed = l.mixed || c->mixed || trace_launches_stretch_is_guess(stretch);
        }
    }
    trace_sort_times(s->times, l.measured, s->spare);
    if (l.measured > 0) {
        l.least = s->times[0], l.most = s->times[l.measured - 1];
        l.median = trace_quantile(s->times, l.measured, 0.5), l.p99 = trace_quantile(s->times, l.measured, 0.99);
    }
    for (size_t i = 0; i < n; i++) { /* the first operation of a stretch begins with the stretch */
        const trace_op *op = &t->ops[list[i]];
        if (op->stretch != TRACE_NONE && t->stretches[op->stretch].first_op == (int32_t)list[i]) {
            s->times[seen++] = trace_most(0, op->began - op->submitted);
        }
    }
    trace_sort_times(s->times, seen, s->spare);
    l.submit_to_begin_p50 = trace_quantile(s->times, seen, 0.5);
    l.submit_to_begin_p99 = trace_quantile(s->times, seen, 0.99);
    l.delays = trace_launches_sum_delays(s, list, n);
    return l;
}

static int trace_launches_compare_sums(const void *a, const void *b)
{
    const trace_launch *x = a, *y = b;
    int64_t p = 0, q = 0;
    trace_add(&p, x->total), trace_add(&p, x->shared);
    trace_add(&q, y->total), trace_add(&q, y->shared);
    return p != q ? (p < q ? 1 : -1) : (x->kernel > y->kernel) - (x->kernel < y->kernel);
}

/* Groups launches by kernel, those without a name first. */
static bool trace_launches_sum_kernels(summer *s)
{
    trace *t = s->t;
    size_t kernels = 0, sum = 0;
    for (size_t i = 0; i < t->n_ops; i++) {
        s->places[t->ops[i].kernel + 1] += t->ops[i].kind == HDI_RECORD_OP_LAUNCH;
    }
    for (size_t k = 0; k <= t->n_names; k++) {
        size_t n = s->places[k];
        s->places[k] = (uint32_t)sum;
        kernels += n > 0;
        sum += n;
    }
    for (size_t i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind == HDI_RECORD_OP_LAUNCH) {
            s->launches[s->places[t->ops[i].kernel + 1]++] = (uint32_t)i;
        }
    }
    t->launches = trace_table(kernels, sizeof t->launches[0]);
    if (!t->launches) {
        return false;
    }
    for (size_t k = 0; k <= t->n_names; k++) {
        size_t begin = k > 0 ? s->places[k - 1] : 0;
        if (s->places[k] > begin) {
            t->launches[t->n_launches++] = trace_launches_sum_kernel(s, s->launches + begin, s->places[k] - begin);
        }
    }
    trace_sort(t->launches, t->n_launches, sizeof t->launches[0], trace_launches_compare_sums);
    return true;
}

/* ---- devices ---- */

/* Computes the mean and the largest length of a device's queue. */
static void trace_launches_sum_queue(const summer *s, trace_device *d, size_t first, size_t end)
{
    const trace *t = s->t;
    int64_t *ends = s->spare, *begins = s->times;
    size_t n = 0;
    double sum = 0;
    for (size_t i = first; i < end; i++) {
        const trace_op *op = &t->ops[i];
        int64_t ended = op->ended != TRACE_UNSEEN ? op->ended : op->done != TRACE_UNSEEN ? op->done : t->end;
        if (trace_is_work(op->kind)) {
            begins[n] = op->submitted;
            ends[n] = trace_most(ended, op->submitted);
            sum += (double)(trace_least(ends[n], t->end) - trace_most(trace_least(begins[n], t->end), t->begin));
            n++;
        }
    }
    trace_sort_times(begins, n, s->spare + t->n_ops);
    trace_sort_times(ends, n, s->spare + t->n_ops);
    /* an operation that ends at the time of a submit left the queue before this submit */
    for (size_t b = 0, e = 0; b < n; b++) {
        while (ends[e] <= begins[b] && e < b) {
            e++;
        }
        d->queue_most = d->queue_most > b + 1 - e ? d->queue_most : b + 1 - e;
    }
    d->queue_mean = t->end > t->begin ? sum / (double)(t->end - t->begin) : 0;
}

static void trace_launches_sum_devices(const summer *s)
{
    trace *t = s->t;
    for (int d = 0; d < t->n_devices; d++) {
        size_t first = trace_first_op(t, d), end = trace_first_op(t, d + 1), n = 0;
        for (size_t i = first; i < end; i++) {
            if (t->ops[i].kind == HDI_RECORD_OP_LAUNCH) {
                s->launches[n++] = (uint32_t)i;
            }
        }
        t->devices[d].delays = trace_launches_sum_delays(s, s->launches, n);
        trace_launches_sum_queue(s, &t->devices[d], first, end);
    }
}

bool trace_launches(trace *t)
{
    summer s = {
        .t = t,
        .launches = trace_table(t->n_ops, sizeof s.launches[0]),
        .places = trace_table(t->n_names + 1, sizeof s.places[0]),
        .counts = trace_table(t->n_stretches, sizeof s.counts[0]),
        .times = trace_table(t->n_ops, sizeof s.times[0]),
        .spare = trace_table(2 * t->n_ops, sizeof s.spare[0]),
    };
    bool ok = s.launches && s.places && s.counts && s.times && s.spare;
    if (ok) {
        trace_launches_count_stretches(&s);
        ok = trace_launches_sum_kernels(&s);
    }
    if (ok) {
        trace_launches_sum_devices(&s);
    }
    free(s.launches);
    free(s.places);
    free(s.counts);
    free(s.times);
    free(s.spare);
    return ok;
}
