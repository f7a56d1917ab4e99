/* memory.c - joins the allocations, frees and labels of each buffer, and sums memory up by label.
 * See model.h.
 *
 * A buffer's number can be reused as soon as the buffer is gone, and times of two threads may be
 * out of order. So each thread's rows keep the order of its records. If a number seems to be reused
 * before its free, the allocation is moved a little later. Runtimes in one file use the same
 * numbers, so number and runtime together identify a buffer. A new label adds two rows: one
 * subtracts the bytes from the old label, and the other one adds them to the new label.
 *
 * Threads, Locks: see model.h.
 * Always: among a buffer's rows with `counts`, the first row adds bytes, the next row removes them,
 * and so on.
 */
#include <stdlib.h>
#include "cli/trace/parts.h"

static bool trace_memory_has_failed(const trace_memory *m)
{
    return m->is_alloc && (m->rungs & HDI_RECORD_RUNG_FAILED) != 0;
}

static trace_memory *trace_memory_add_row(trace *t, const trace_memory *row)
{
    t->memory[t->n_memory] = *row;
    return &t->memory[t->n_memory++];
}

void trace_read_memory(trace_source *s, const hdi_record *r)
{
    int64_t time = trace_time(s, r->time);
    bool is_alloc = r->type == HDI_RECORD_ALLOC;
    int64_t took = is_alloc ? trace_end_of(0, r->alloc.took) : 0;
    if (time == TRACE_UNSEEN || took < 0 || took > TRACE_TIME_MOST || r->kind > 2) {
        s->t->ignored++;
        return;
    }
    const trace_memory row = {
        .time = time,
        .since = time,
        .took = took,
        .is_alloc = is_alloc,
        .renames = r->type == HDI_RECORD_LABEL,
        .run = (uint32_t)s->run,
        .kind = r->kind,
        .device = r->device,
        .rungs = is_alloc ? r->alloc.rungs : 0,
        .thread = r->thread,
        .buffer = r->alloc.buffer,
        .bytes = r->alloc.bytes,
        .address = r->alloc.address,
        .label = trace_label_of(s, r->alloc.label, time),
        .other = TRACE_NONE,
    };
    trace_memory_add_row(s->t, &row);
    if (row.renames) {
        trace_memory_add_row(s->t, &row)->is_alloc = true;
    }
}

/* ---- joined ---- */

/* A row, with its thread or its buffer as key. */
typedef struct reference {
    uint64_t key;
    uint32_t run; /* of the buffer */
    int64_t time;
    int32_t index;
} reference;

static int trace_memory_compare_places(const void *a, const void *b)
{
    const reference *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

static int trace_memory_compare_references(const void *a, const void *b)
{
    const reference *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    if (x->run != y->run) {
        return x->run < y->run ? -1 : 1;
    }
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

static int trace_memory_compare_rows(const void *a, const void *b)
{
    const trace_memory *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

/* Corrects the times of each thread's rows that are a little out of the file's order. */
static void trace_memory_straighten_threads(trace *t, reference *list)
{
    for (size_t i = 0; i < t->n_memory; i++) {
        list[i] = (reference){t->memory[i].thread, 0, 0, (int32_t)i};
    }
    trace_sort(list, t->n_memory, sizeof *list, trace_memory_compare_places);
    for (size_t i = 1; i < t->n_memory; i++) {
        int64_t *time = &t->memory[list[i].index].time, before = t->memory[list[i - 1].index].time;
        if (list[i].key == list[i - 1].key) {
            *time = trace_end_of(before, *time);
        }
    }
}

static bool trace_memory_is_same_buffer(const reference *a, const reference *b)
{
    return a->key == b->key && a->run == b->run;
}

static void trace_memory_sort_by_buffer(const trace *t, reference *list)
{
    for (size_t i = 0; i < t->n_memory; i++) {
        list[i] = (reference){t->memory[i].buffer, t->memory[i].run, t->memory[i].time, (int32_t)i};
    }
    trace_sort(list, t->n_memory, sizeof *list, trace_memory_compare_references);
}

/* If one thread gets a buffer number before another thread freed the buffer of this number, moves
 * the new allocation behind the free. */
static void trace_memory_straighten_buffers(trace *t, reference *list)
{
    bool live = false;
    trace_memory_sort_by_buffer(t, list);
    for (size_t i = 0; i < t->n_memory; i++) {
        trace_memory *m = &t->memory[list[i].index];
        trace_memory *next = i + 1 < t->n_memory && trace_memory_is_same_buffer(&list[i + 1], &list[i])
                                 ? &t->memory[list[i + 1].index]
                                 : NULL;
        live = live && i > 0 && trace_memory_is_same_buffer(&list[i - 1], &list[i]);
        if (live && m->is_alloc && !m->renames && next && !next->is_alloc && !next->renames &&
            next->time <= m->time + TRACE_THREADS_NS) {
            m->time = next->time + 1;
            reference other = list[i];
            list[i] = list[i + 1];
            list[i + 1] = other;
            m = next;
        }
        live = m->is_alloc;
    }
}

/* Joins an ALLOC with the next row of its buffer. */
static void trace_memory_join_row(trace *t, int32_t alloc, int32_t end)
{
    trace_memory *a = &t->memory[alloc], *e = &t->memory[end];
    int32_t label = e->label;
    a->other = end;
    e->other = alloc;
    e->counts = a->counts;
    e->kind = a->kind, e->device = a->device, e->since = a->since;
    e->bytes = a->bytes, e->address = a->address;
    if (a->label == TRACE_NONE && !a->renames && !e->renames) {
        a->label = label; /* only the end names the label */
    }
    e->label = a->label;
}

/* Copies the old label's row to the new label's row. */
static void trace_memory_rename_row(trace *t, int32_t old, int32_t renamed)
{
    const trace_memory *from = &t->memory[old];
    trace_memory *to = &t->memory[renamed];
    to->counts = from->counts;
    to->kind = from->kind, to->device = from->device, to->since = from->since;
    to->bytes = from->bytes, to->address = from->address;
    to->rungs = from->counts ? t->memory[from->other].rungs : 0;
    to->thread = from->counts ? t->memory[from->other].thread : to->thread;
}

/* A failed allocation has no buffer. If a buffer's ALLOC is missing, its bytes were never added, so
 * its rows do not count. */
static void trace_memory_join_buffers(trace *t, reference *list)
{
    trace_memory_sort_by_buffer(t, list);
    for (size_t i = 0; i < t->n_memory; i++) {
        trace_memory *m = &t->memory[list[i].index];
        bool follows = i > 0 && trace_memory_is_same_buffer(&list[i - 1], &list[i]) && list[i].key != 0;
        const trace_memory *before = follows ? &t->memory[list[i - 1].index] : NULL;
        m->counts = m->is_alloc && !m->renames && !trace_memory_has_failed(m);
        if (before && before->is_alloc && !m->is_alloc) {
            trace_memory_join_row(t, list[i - 1].index, list[i].index);
        } else if (before && m->is_alloc && m->renames) {
            trace_memory_rename_row(t, list[i - 1].index, list[i].index);
        }
    }
}

bool trace_join_memory(trace *t)
{
    reference *list = trace_table(t->n_memory, sizeof *list);
    if (list) {
        trace_memory_straighten_threads(t, list);
        trace_memory_straighten_buffers(t, list);
        trace_sort(t->memory, t->n_memory, sizeof t->memory[0], trace_memory_compare_rows);
        trace_memory_join_buffers(t, list);
    }
    free(list);
    return list != NULL;
}

/* ---- labels ---- */

static int trace_memory_compare_keys(const trace_label *x, const trace_label *y)
{
    int64_t p = (int64_t)x->kind << 8 | x->device, q = (int64_t)y->kind << 8 | y->device;
    return p != q ? (p < q ? -1 : 1) : (x->label > y->label) - (x->label < y->label);
}

static int trace_memory_compare_labels(const void *a, const void *b)
{
    return trace_memory_compare_keys(a, b);
}

static int trace_memory_compare_peaks(const void *a, const void *b)
{
    const trace_label *x = a, *y = b;
    int64_t p = (int64_t)x->kind << 8 | x->device, q = (int64_t)y->kind << 8 | y->device;
    if (p != q) {
        return p < q ? -1 : 1;
    }
    return x->peak != y->peak ? (x->peak > y->peak ? -1 : 1) : (x->label > y->label) - (x->label < y->label);
}

static trace_label trace_memory_key_of(const trace_memory *m)
{
    return (trace_label){.kind = m->kind, .device = m->kind == 0 ? m->device : HDI_RECORD_NO_DEVICE, .label = m->label};
}

static void trace_memory_note_memory(trace_label *l, const trace_memory *m)
{
    if (!m->is_alloc) {
        l->frees += !m->renames;
        l->left = l->left > m->bytes ? l->left - m->bytes : 0;
        return;
    }
    l->allocs += !m->renames;
    l->named += m->renames;
    trace_count(&l->left, m->bytes);
    l->peak = l->left > l->peak ? l->left : l->peak;
}

/* Computes each label's bytes at the time of its device's peak. */
static void trace_memory_note_peak(trace_label *labels, size_t n, const trace *t, uint8_t kind, uint8_t device)
{
    uint64_t held = 0, most = 0;
    size_t when = 0;
    for (size_t i = 0; i < t->n_memory; i++) {
        trace_label key = trace_memory_key_of(&t->memory[i]);
        if (key.kind != kind || key.device != device || !t->memory[i].counts) {
            continue;
        }
        if (t->memory[i].is_alloc) {
            trace_count(&held, t->memory[i].bytes);
        } else {
            held = held > t->memory[i].bytes ? held - t->memory[i].bytes : 0;
        }
        /* if a buffer gets a label at the peak, that label counts */
        if (held > most || (held == most && t->memory[i].renames && t->memory[i].is_alloc)) {
            most = held;
            when = i + 1;
        }
    }
    for (size_t i = 0; i < when; i++) {
        trace_label key = trace_memory_key_of(&t->memory[i]);
        trace_label *l = key.kind == kind && key.device == device && t->memory[i].counts
                             ? bsearch(&key, labels, n, sizeof key, trace_memory_compare_labels)
                             : NULL;
        if (l && t->memory[i].is_alloc) {
            trace_count(&l->at_peak, t->memory[i].bytes);
        } else if (l) {
            l->at_peak = l->at_peak > t->memory[i].bytes ? l->at_peak - t->memory[i].bytes : 0;
        }
    }
}

static bool trace_memory_sum_labels(trace *t)
{
    t->labels = trace_table(t->n_memory, sizeof t->labels[0]);
    if (!t->labels) {
        return false;
    }
    size_t rows = 0;
    for (size_t i = 0; i < t->n_memory; i++) {
        if (t->memory[i].counts || trace_memory_has_failed(&t->memory[i])) {
            t->labels[rows++] = trace_memory_key_of(&t->memory[i]);
        }
    }
    trace_sort(t->labels, rows, sizeof t->labels[0], trace_memory_compare_labels);
    for (size_t i = 0; i < rows; i++) {
        if (t->n_labels == 0 || trace_memory_compare_keys(&t->labels[t->n_labels - 1], &t->labels[i]) != 0) {
            t->labels[t->n_labels++] = t->labels[i];
        }
    }
    for (size_t i = 0; i < t->n_memory; i++) {
        const trace_memory *m = &t->memory[i];
        trace_label key = trace_memory_key_of(m);
        trace_label *l = bsearch(&key, t->labels, t->n_labels, sizeof key, trace_memory_compare_labels);
        if (m->counts) {
            trace_memory_note_memory(l, m);
        }
        if (m->is_alloc && !m->renames && m->rungs > HDI_RECORD_RUNG_ARENA) {
            l->beyond++;
            trace_add(&l->paused, m->took);
        }
    }
    for (size_t i = 0; i < t->n_labels; i++) { /* once for each device; there are few labels */
        if (i == 0 || t->labels[i].kind != t->labels[i - 1].kind || t->labels[i].device != t->labels[i - 1].device) {
            trace_memory_note_peak(t->labels, t->n_labels, t, t->labels[i].kind, t->labels[i].device);
        }
    }
    trace_sort(t->labels, t->n_labels, sizeof t->labels[0], trace_memory_compare_peaks);
    return true;
}

/* The bytes in buffers of a device, row by row. */
typedef struct use {
    uint64_t seen, rest; /* seen: the bytes of rows that count; rest: all other bytes */
} use;

/* Freeing a buffer that is older than the trace reduces the rest. */
static void trace_memory_take_row(use *u, const trace_memory *m)
{
    bool older = !m->is_alloc && !m->renames && !m->counts;
    if (m->counts && m->is_alloc) {
        trace_count(&u->seen, m->bytes);
    } else if (m->counts) {
        u->seen = u->seen > m->bytes ? u->seen - m->bytes : 0;
    } else if (older) {
        u->rest = u->rest > m->bytes ? u->rest - m->bytes : 0;
    }
}

/* Takes the next row or figure, whichever is earlier. Both tables are sorted. A figure counts until
 * the next figure. */
static void trace_memory_take_next(const trace *t, int device, size_t *figure, size_t *row, use *u)
{
    bool is_row = *figure == t->n_figures || (*row < t->n_memory && t->memory[*row].time <= t->figures[*figure].time);
    if (is_row && t->memory[*row].kind == 0 && t->memory[*row].device == device) {
        trace_memory_take_row(u, &t->memory[*row]);
    } else if (!is_row && t->figures[*figure].device == device) {
        uint64_t in_use = t->figures[*figure].in_use;
        u->rest = in_use > u->seen ? in_use - u->seen : 0;
    }
    *row += is_row;
    *figure += !is_row;
}

/* Computes the peak of a device's buffers by figures and rows, and the part of it that no row
 * explains. Among times near the peak it takes the one with the smallest such part. */
static void trace_memory_sum_rest(trace *t, int device)
{
    trace_device *d = &t->devices[device];
    for (size_t i = 0; i < t->n_figures; i++) {
        bool more = t->figures[i].device == device && t->figures[i].in_use > d->in_use_most;
        d->in_use_most = more ? t->figures[i].in_use : d->in_use_most;
    }
    use u = {0, 0};
    for (size_t f = 0, m = 0; f < t->n_figures || m < t->n_memory;) {
        trace_memory_take_next(t, device, &f, &m, &u);
        d->in_use_most = u.seen > d->in_use_most ? u.seen : d->in_use_most;
    }
    d->in_use_rest = d->in_use_most;
    u = (use){0, 0};
    for (size_t f = 0, m = 0; f < t->n_figures || m < t->n_memory;) {
        trace_memory_take_next(t, device, &f, &m, &u);
        uint64_t sum = u.seen;
        trace_count(&sum, u.rest);
        uint64_t lacks = d->in_use_most - u.seen < u.rest ? d->in_use_most - u.seen : u.rest;
        bool most = sum >= d->in_use_most - d->in_use_most / 100;
        d->in_use_rest = most && lacks < d->in_use_rest ? lacks : d->in_use_rest;
    }
}

bool trace_sum_memory(trace *t)
{
    for (int d = 0; d < t->n_devices; d++) {
        trace_memory_sum_rest(t, d);
    }
    return trace_memory_sum_labels(t);
}
