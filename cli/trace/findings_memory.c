/* findings_memory.c - findings on full memory and on moved memory. See findings.h.
 *
 * The pauses of threads give the reason, and the idle time within the pauses is the cost. A thread
 * may submit to several devices, so a pause for memory of one device may leave another device
 * without work.
 * `memory-pauses` excludes idle time that a finding here explains.
 *
 * Threads, Locks: see model.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cli/trace/findings.h"

typedef enum reason { FULL, MOVED, REASONS } reason;

/* Pauses and idle time of each reason, by the device whose memory was full or moved. */
typedef struct reasons {
    int64_t paused[TRACE_DEVICES][REASONS];
    int64_t gain[TRACE_DEVICES][REASONS]; /* largest idle time of one device within these pauses */
    trace_gap gap[TRACE_DEVICES][REASONS];
    bool stated[TRACE_DEVICES][REASONS];
} reasons;

#define PUT(into, ...) snprintf((into), sizeof(into), __VA_ARGS__)

/* Returns the reason of a pause; REASONS: the pause has neither reason. */
static reason trace_finding_memory_reason_of(const trace *t, const trace_pause *p)
{
    bool moves = p->kind == HDI_RECORD_PAUSE_MAP && p->detail == HDI_RECORD_MAP_MOVED;
    bool waits = p->kind == HDI_RECORD_PAUSE_MEMORY || p->kind == HDI_RECORD_PAUSE_CALLBACK;
    return p->device >= t->n_devices ? REASONS : moves ? MOVED : waits ? FULL : REASONS;
}

/* Idle time for memory within pauses of each reason. Overlapping pauses of threads count once. */
static void trace_finding_memory_measure(const trace *t, int device, const measure *m, reasons *r)
{
    int64_t idle[TRACE_DEVICES][REASONS] = {{0}}, until[TRACE_DEVICES][REASONS];
    for (int d = 0; d < t->n_devices; d++) {
        until[d][FULL] = until[d][MOVED] = INT64_MIN;
    }
    for (size_t i = 0; i < t->n_pauses; i++) { /* sorted by begin */
        const trace_pause *p = &t->pauses[i];
        reason why = trace_finding_memory_reason_of(t, p);
        if (why != REASONS) {
            int64_t *end = &until[p->device][why];
            trace_finding_longest(&r->gap[p->device][why], device, m, trace_most(p->begin, *end), p->end);
            trace_add(&idle[p->device][why], trace_finding_within(m, trace_most(p->begin, *end), p->end));
            *end = trace_most(*end, p->end);
        }
    }
    for (int d = 0; d < t->n_devices; d++) {
        for (int why = 0; why < REASONS; why++) {
            r->gain[d][why] = trace_most(r->gain[d][why], idle[d][why]);
        }
    }
}

static int64_t trace_finding_memory_explained_ns(const trace *t, const measure *m, const reasons *r)
{
    int64_t sum = 0, until = INT64_MIN;
    for (size_t i = 0; i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        reason why = trace_finding_memory_reason_of(t, p);
        if (why != REASONS && r->stated[p->device][why]) {
            sum += trace_finding_within(m, trace_most(p->begin, until), p->end);
            until = trace_most(until, p->end);
        }
    }
    return sum;
}

/* Also states the memory without a label, so that the sum adds up. */
static void trace_finding_memory_put_use(trace_finding *one, const trace_device *d, uint64_t most, uint64_t limit)
{
    bool rest = trace_has_rest(d);
    PUT(one->evidence, "buffers had up to %s%s%s%s%s%s", TRACE_BYTES(most), limit > 0 ? " of " : "",
        limit > 0 ? TRACE_BYTES(limit) : "", rest ? ", " : "", rest ? TRACE_BYTES(d->in_use_rest) : "",
        rest ? " of it " TRACE_REST_TEXT : "");
}

static void trace_finding_memory_put(finder *f, int d, reasons *r)
{
    const trace *t = f->t;
    uint64_t most = 0, limit = 0;
    char time[HDI_AMOUNT_BYTES];
    for (size_t i = 0; i < t->n_figures; i++) {
        if (t->figures[i].device == d && t->figures[i].in_use > most) {
            most = t->figures[i].in_use;
            limit = t->figures[i].limit;
        }
    }
    if (limit > 0 && (double)most > 0.95 * (double)limit && trace_finding_counts(f, r->gain[d][FULL], 3)) {
        trace_finding *one =
            trace_finding_add(f, "memory-near-limit", d, TRACE_NONE, trace_finding_bound(f, r->gain[d][FULL]));
        r->stated[d][FULL] = true;
        one->gap = r->gap[d][FULL];
        PUT(one->title, "memory of device %d was full: threads waited %s for it", d,
            trace_time_text(r->paused[d][FULL], time));
        trace_finding_memory_put_use(one, &t->devices[d], most, limit);
        PUT(one->remedy, "Free memory that the program no longer needs, install a callback with hd_memory_on_reclaim, "
                         "or raise memory_limit. `heddle trace --all` lists memory by label.");
    }
    if (trace_finding_counts(f, r->gain[d][MOVED], 3)) {
        trace_finding *one =
            trace_finding_add(f, "memory-fragmented", d, TRACE_NONE, trace_finding_bound(f, r->gain[d][MOVED]));
        r->stated[d][MOVED] = true;
        one->gap = r->gap[d][MOVED];
        PUT(one->title, "memory of device %d was moved for %s to make room in one piece", d,
            trace_time_text(r->paused[d][MOVED], time));
        trace_finding_memory_put_use(one, &t->devices[d], most, 0);
        PUT(one->remedy, "Allocate large and long-lived buffers first, and use few different sizes.");
    }
}

/* Orders pauses by device, reason and thread, then by begin. */
static int trace_finding_memory_compare_pauses(const void *a, const void *b)
{
    const trace_pause *x = a, *y = b;
    bool p = x->kind == HDI_RECORD_PAUSE_MAP, q = y->kind == HDI_RECORD_PAUSE_MAP;
    if (x->device != y->device || p != q) {
        return x->device != y->device ? x->device - y->device : p - q;
    }
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Sums up how long threads were held up within the window. A thread's pauses may nest, for example
 * if memory runs out and the thread asks the program. Nested time counts once. False: out of
 * memory. */
static bool trace_finding_memory_sum_pauses(const trace *t, reasons *r, bool *any)
{
    trace_pause *list = trace_table(t->n_pauses, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; list && i < t->n_pauses; i++) {
        if (trace_finding_memory_reason_of(t, &t->pauses[i]) != REASONS) {
            list[n++] = t->pauses[i];
        }
    }
    if (list) {
        trace_sort(list, n, sizeof *list, trace_finding_memory_compare_pauses);
    }
    int64_t until = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        const trace_pause *p = &list[i];
        reason why = trace_finding_memory_reason_of(t, p);
        bool goes_on = i > 0 && p->device == p[-1].device && p->thread == p[-1].thread &&
                       why == trace_finding_memory_reason_of(t, p - 1);
        int64_t from = trace_most(goes_on ? trace_most(p->begin, until) : p->begin, t->begin);
        trace_add(&r->paused[p->device][why], trace_most(0, trace_least(p->end, t->end) - from));
        until = goes_on ? trace_most(until, p->end) : p->end;
    }
    *any = n > 0;
    free(list);
    return list != NULL;
}

bool trace_finding_memory(finder *f)
{
    const trace *t = f->t;
    reasons r = {.paused = {{0}}};
    bool any = false, ok = trace_finding_memory_sum_pauses(t, &r, &any);
    /* first the findings, then the time that they explain */
    for (int pass = 0; any && ok && pass < 2; pass++) {
        for (int d = 0; ok && d < t->n_devices; d++) {
            measure m;
            ok = trace_finding_measure(&t->devices[d], TRACE_CAUSE_MEMORY, &m);
            if (ok && pass == 0) {
                trace_finding_memory_measure(t, d, &m, &r);
            } else if (ok) {
                f->memory[d] = trace_finding_memory_explained_ns(t, &m, &r);
            }
            free(m.before);
        }
        for (int d = 0; ok && pass == 0 && d < t->n_devices; d++) {
            trace_finding_memory_put(f, d, &r);
        }
    }
    return ok;
}
