/* findings_memory.c - findings on memory that is full, and on memory that is moved. See findings.h.
 *
 * Pauses of threads have the reason, and idle time within them is what it costs. A pause for memory of one device may leave another one
 * without work, since a thread may feed several. The idle time that a finding here explains is left out of `memory-pauses`.
 *
 * Threads, Locks: see model.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cli/trace/findings.h"

typedef enum reason { FULL, MOVED, REASONS } reason;

/* By the device whose memory it is. */
typedef struct reasons {
    int64_t paused[TRACE_DEVICES][REASONS];
    int64_t gain[TRACE_DEVICES][REASONS]; /* the most idle time that one device had within these pauses */
    bool stated[TRACE_DEVICES][REASONS];
} reasons;

#define PUT(into, ...) snprintf((into), sizeof(into), __VA_ARGS__)

/* REASONS: it has none of them. */
static reason reason_of(const trace *t, const trace_pause *p)
{
    bool moves = p->kind == HDI_RECORD_PAUSE_MAP && p->detail == HDI_RECORD_MAP_MOVED;
    bool waits = p->kind == HDI_RECORD_PAUSE_MEMORY || p->kind == HDI_RECORD_PAUSE_CALLBACK;
    return p->device >= t->n_devices ? REASONS : moves ? MOVED : waits ? FULL : REASONS;
}

/* Idle time for memory within pauses of each reason. What several threads were held up by at once counts once. */
static void measure_device(const trace *t, const measure *m, reasons *r)
{
    int64_t idle[TRACE_DEVICES][REASONS] = {{0}}, until[TRACE_DEVICES][REASONS];
    for (int d = 0; d < t->n_devices; d++) {
        until[d][FULL] = until[d][MOVED] = INT64_MIN;
    }
    for (size_t i = 0; i < t->n_pauses; i++) { /* sorted by begin */
        const trace_pause *p = &t->pauses[i];
        reason why = reason_of(t, p);
        if (why != REASONS) {
            int64_t *end = &until[p->device][why];
            trace_add(&idle[p->device][why], finding_within(m, trace_most(p->begin, *end), p->end));
            *end = trace_most(*end, p->end);
        }
    }
    for (int d = 0; d < t->n_devices; d++) {
        for (int why = 0; why < REASONS; why++) {
            r->gain[d][why] = trace_most(r->gain[d][why], idle[d][why]);
        }
    }
}

static int64_t explained(const trace *t, const measure *m, const reasons *r)
{
    int64_t sum = 0, until = INT64_MIN;
    for (size_t i = 0; i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        reason why = reason_of(t, p);
        if (why != REASONS && r->stated[p->device][why]) {
            sum += finding_within(m, trace_most(p->begin, until), p->end);
            until = trace_most(until, p->end);
        }
    }
    return sum;
}

static void state(finder *f, int d, reasons *r)
{
    const trace *t = f->t;
    uint64_t most = 0, limit = 0;
    char time[HDI_AMOUNT_BYTES], a[HDI_AMOUNT_BYTES], b[HDI_AMOUNT_BYTES];
    for (size_t i = 0; i < t->n_figures; i++) {
        if (t->figures[i].device == d && t->figures[i].in_use > most) {
            most = t->figures[i].in_use;
            limit = t->figures[i].limit;
        }
    }
    if (limit > 0 && (double)most > 0.95 * (double)limit && finding_counts(f, r->gain[d][FULL], 3)) {
        trace_finding *one = finding_add(f, "memory-near-limit", d, TRACE_NONE, finding_bound(f, r->gain[d][FULL]));
        r->stated[d][FULL] = true;
        PUT(one->title, "memory of device %d was full: threads waited %s for it", d,
            finding_time(r->paused[d][FULL], time));
        PUT(one->evidence, "buffers had up to %s of %s", hdi_bytes_text(most, a), hdi_bytes_text(limit, b));
        PUT(one->remedy, "Free what is not needed, give a callback with hd_memory_on_reclaim, or raise memory_limit. "
                         "`heddle trace --all` has the holders by label.");
    }
    if (finding_counts(f, r->gain[d][MOVED], 3)) {
        trace_finding *one = finding_add(f, "memory-fragmented", d, TRACE_NONE, finding_bound(f, r->gain[d][MOVED]));
        r->stated[d][MOVED] = true;
        PUT(one->title, "memory of device %d was moved for %s to make room in one piece", d,
            finding_time(r->paused[d][MOVED], time));
        PUT(one->evidence, "buffers had up to %s", hdi_bytes_text(most, a));
        PUT(one->remedy, "Allocate the large and lasting buffers first, and keep sizes alike.");
    }
}

bool finding_memory(finder *f)
{
    const trace *t = f->t;
    reasons r = {.paused = {{0}}};
    bool any = false, ok = true;
    for (size_t i = 0; i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        reason why = reason_of(t, p);
        if (why != REASONS) {
            trace_add(&r.paused[p->device][why], p->end - p->begin);
            any = true;
        }
    }
    for (int pass = 0; any && ok && pass < 2; pass++) { /* first what counts, then what that explains */
        for (int d = 0; ok && d < t->n_devices; d++) {
            measure m;
            ok = finding_measure(&t->devices[d], TRACE_CAUSE_MEMORY, &m);
            if (ok && pass == 0) {
                measure_device(t, &m, &r);
            } else if (ok) {
                f->memory[d] = explained(t, &m, &r);
            }
            free(m.before);
        }
        for (int d = 0; ok && pass == 0 && d < t->n_devices; d++) {
            state(f, d, &r);
        }
    }
    return ok;
}
