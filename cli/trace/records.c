/* records.c - names, and the tables that are not grouped by lane: transfers, memory, pauses,
 * losses, ranges, threads. See model.h.
 *
 * Threads, Locks: see model.h.
 * Always: as in read.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

/* ---- names ---- */

static int trace_records_compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int trace_records_compare_namings(const void *a, const void *b)
{
    const trace_naming *x = a, *y = b;
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    if (x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    if (x->run != y->run) {
        return x->run < y->run ? -1 : 1;
    }
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : (x->order > y->order) - (x->order < y->order);
}

/* Keeps each text once, owned by the trace. */
static bool trace_records_intern_texts(trace_source *s)
{
    trace *t = s->t;
    char **texts = trace_table(s->n_namings, sizeof *texts);
    if (!texts) {
        return false;
    }
    for (size_t i = 0; i < s->n_namings; i++) {
        texts[i] = s->namings[i].text;
        s->namings[i].text = NULL;
    }
    trace_sort(texts, s->n_namings, sizeof *texts, trace_records_compare_texts);
    t->names = texts;
    for (size_t i = 0; i < s->n_namings; i++) {
        if (t->n_names > 0 && strcmp(texts[t->n_names - 1], texts[i]) == 0) {
            free(texts[i]);
        } else {
            texts[t->n_names++] = texts[i];
        }
    }
    return true;
}

static int32_t trace_records_find_text(const trace *t, const char *text)
{
    char **found = bsearch(&text, t->names, t->n_names, sizeof *t->names, trace_records_compare_texts);
    return found ? (int32_t)(found - t->names) : TRACE_NONE;
}

static uint64_t trace_records_naming_run(const trace_source *s, uint8_t kind)
{
    return kind == HDI_RECORD_NAME_THREAD ? 0 : s->run;
}

static bool trace_records_read_namings(trace_source *s)
{
    char *text = malloc(256 * HDI_RECORD_TEXT_BYTES);
    bool ok = text != NULL;
    trace_first_run(s);
    for (size_t k = 0; ok && k < s->n_others; k++) {
        size_t i = s->others[k];
        hdi_record r = trace_record(s, i);
        trace_next_run(s, &r);
        if (r.type != HDI_RECORD_NAME) {
            continue;
        }
        trace_text(s, i, text, 256 * HDI_RECORD_TEXT_BYTES);
        int64_t time = trace_time(s, r.time);
        trace_naming *n = &s->namings[s->n_namings++];
        *n = (trace_naming){.kind = r.kind, .number = r.name.number, .run = trace_records_naming_run(s, r.kind)};
        n->time = time, n->order = i, n->text = strdup(text);
        ok = n->text != NULL;
    }
    free(text);
    return ok;
}

/* A naming owns its text until all are interned. The second pass finds the text again by the
 * record. */
static bool trace_records_resolve_namings(trace_source *s)
{
    char *text = malloc(256 * HDI_RECORD_TEXT_BYTES);
    for (size_t i = 0; text && i < s->n_namings; i++) {
        trace_text(s, s->namings[i].order, text, 256 * HDI_RECORD_TEXT_BYTES);
        s->namings[i].name = trace_records_find_text(s->t, text);
    }
    free(text);
    trace_sort(s->namings, s->n_namings, sizeof s->namings[0], trace_records_compare_namings);
    return text != NULL;
}

bool trace_read_names(trace_source *s)
{
    s->namings = trace_table(s->count[HDI_RECORD_NAME], sizeof s->namings[0]);
    return s->namings && trace_records_read_namings(s) && trace_records_intern_texts(s) &&
           trace_records_resolve_namings(s);
}

static bool trace_records_naming_is_of(const trace_naming *n, const trace_naming *wanted)
{
    return n->kind == wanted->kind && n->number == wanted->number && n->run == wanted->run;
}

int32_t trace_lookup(const trace_source *s, uint8_t kind, uint64_t number, int64_t time)
{
    /* the first naming behind (kind, number, run, time) */
    size_t low = 0, high = s->n_namings;
    trace_naming wanted = {
        .kind = kind, .number = number, .run = trace_records_naming_run(s, kind), .time = time, .order = SIZE_MAX};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace_records_compare_namings(&s->namings[middle], &wanted) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const trace_naming *before = low > 0 ? &s->namings[low - 1] : NULL;
    const trace_naming *behind = low < s->n_namings ? &s->namings[low] : NULL;
    if (before && trace_records_naming_is_of(before, &wanted)) {
        return before->name;
    }
    return behind && trace_records_naming_is_of(behind, &wanted) ? behind->name : TRACE_NONE;
}

int32_t trace_label_of(const trace_source *s, uint32_t label, int64_t time)
{
    return label ? trace_lookup(s, HDI_RECORD_NAME_LABEL, label, time) : TRACE_NONE;
}

/* ---- records ---- */

static void trace_records_read_transfer(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int64_t called = trace_time(s, r->time), returned = trace_end_of(called, trace_time(s, r->transfer.returned));
    if (called == TRACE_UNSEEN || returned < called || r->kind == 0 || r->kind >= HDI_RECORD_WAYS ||
        r->transfer.position >> TRACE_POSITION_BITS != 0) {
        t->ignored++;
        return;
    }
    uint64_t position = r->transfer.position;
    t->transfers[t->n_transfers++] = (trace_transfer){
        .way = r->kind,
        .src = r->transfer.src,
        .dst = r->transfer.dst,
        .thread = r->thread,
        .lane = r->transfer.lane,
        .op = position ? trace_find_op(t, r->transfer.lane, trace_position(s, position)) : TRACE_NONE,
        .bytes = r->transfer.bytes,
        .called = called,
        .returned = returned,
        .began = position ? TRACE_UNSEEN : called,
        .ended = position ? TRACE_UNSEEN : returned,
        .src_label = trace_label_of(s, r->transfer.src_label, called),
        .dst_label = trace_label_of(s, r->transfer.dst_label, called),
    };
}

static void trace_records_read_pause(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int64_t begin = trace_time(s, r->time), end = trace_end_of(begin, trace_time(s, r->pause.ended));
    if (begin == TRACE_UNSEEN || end < begin || r->kind == 0 || r->kind >= HDI_RECORD_PAUSES ||
        r->pause.position >> TRACE_POSITION_BITS != 0) {
        t->ignored++;
        return;
    }
    t->pauses[t->n_pauses++] = (trace_pause){
        .begin = begin,
        .end = end,
        .kind = r->kind,
        .device = r->device,
        .thread = r->thread,
        .lane = r->pause.lane,
        .detail = r->pause.detail,
        .position = trace_position(s, r->pause.position),
        .bytes = r->pause.bytes,
    };
}

/* A RESTART, before it ends a loss. */
typedef struct comeback {
    uint8_t device;
    uint32_t run;
    int64_t time, ended;
} comeback;

static int trace_records_compare_losses(const void *a, const void *b)
{
    const trace_loss *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

static int trace_records_compare_comebacks(const void *a, const void *b)
{
    const comeback *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

static void trace_records_read_loss(trace_source *s, size_t index, const hdi_record *r)
{
    trace *t = s->t;
    int64_t time = trace_time(s, r->time);
    if (time == TRACE_UNSEEN || r->device >= TRACE_DEVICES) {
        t->ignored += time != TRACE_UNSEEN;
        return;
    }
    trace_loss *loss = &t->losses[t->n_losses++];
    *loss = (trace_loss){.time = time, .ended = TRACE_UNSEEN, .device = r->device};
    loss->run = (uint32_t)s->run, loss->code = r->loss.code;
    loss->op = r->loss.position >> TRACE_POSITION_BITS
                   ? TRACE_NONE
                   : trace_find_op(t, r->loss.lane, trace_position(s, r->loss.position));
    trace_text(s, index, loss->message, sizeof loss->message);
}

/* Each return ends the last earlier loss of the same device and runtime. Both tables are sorted. */
static void trace_records_join_losses(trace *t, const comeback *returns, size_t n)
{
    trace_loss *last[TRACE_DEVICES] = {NULL};
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        for (; at < t->n_losses && t->losses[at].time <= returns[i].time + TRACE_THREADS_NS; at++) {
            last[t->losses[at].device] = &t->losses[at];
        }
        trace_loss *loss = last[returns[i].device];
        if (loss && loss->run == returns[i].run && loss->ended == TRACE_UNSEEN && returns[i].ended >= loss->time) {
            loss->ended = returns[i].ended;
        }
    }
}

/* The LOSS of a dead worker process has an earlier time than the RESTART, but a later place in
 * the file. */
static bool trace_records_read_losses(trace_source *s)
{
    trace *t = s->t;
    comeback *returns = trace_table(s->count[HDI_RECORD_RESTART], sizeof *returns);
    size_t n = 0;
    trace_first_run(s);
    for (size_t k = 0; returns && k < s->n_others; k++) {
        size_t i = s->others[k];
        hdi_record r = trace_record(s, i);
        trace_next_run(s, &r);
        if (r.type == HDI_RECORD_LOSS) {
            trace_records_read_loss(s, i, &r);
        } else if (r.type == HDI_RECORD_RESTART) {
            int64_t time = trace_time(s, r.time), ended = trace_time(s, r.loss.ended);
            bool sense = time != TRACE_UNSEEN && ended != TRACE_UNSEEN && r.device < TRACE_DEVICES;
            t->ignored += time != TRACE_UNSEEN && r.device >= TRACE_DEVICES;
            returns[n] = (comeback){r.device, (uint32_t)s->run, time, ended};
            n += sense;
        }
    }
    if (returns) {
        trace_sort(t->losses, t->n_losses, sizeof t->losses[0], trace_records_compare_losses);
        trace_sort(returns, n, sizeof *returns, trace_records_compare_comebacks);
        trace_records_join_losses(t, returns, n);
    }
    free(returns);
    return returns != NULL;
}

static void trace_records_read_figure(trace_source *s, const hdi_record *r)
{
    int64_t time = trace_time(s, r->time);
    if (time == TRACE_UNSEEN || r->device >= TRACE_DEVICES) {
        s->t->ignored += time != TRACE_UNSEEN;
        return;
    }
    s->t->figures[s->t->n_figures++] = (trace_figure){.time = time,
                                                      .device = r->device,
                                                      .in_use = r->memory.in_use,
                                                      .held = r->memory.held,
                                                      .limit = r->memory.limit,
                                                      .pinned = r->memory.pinned};
}

static void trace_records_read_activity(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int64_t begin = trace_time(s, r->time), end = trace_time(s, r->activity.ended);
    if (begin == TRACE_UNSEEN || end < begin || r->device >= TRACE_DEVICES) {
        t->ignored++;
        return;
    }
    t->activities[t->n_activities++] =
        (trace_activity){.begin = begin,
                         .end = end,
                         .kind = r->kind,
                         .device = r->device,
                         .name = trace_lookup(s, HDI_RECORD_NAME_ACTIVITY, r->activity.name, begin),
                         .run = (uint32_t)s->run,
                         .stream = r->activity.stream,
                         .op = TRACE_NONE,
                         .bytes = r->activity.bytes};
}

/* ---- ranges ---- */

/* A PUSH or POP, before they are paired. */
typedef struct edge {
    uint32_t thread;
    int64_t time;
    size_t order;
    bool push, nvtx;
    int32_t name;
} edge;

static int trace_records_compare_edges(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    return x->thread != y->thread ? (x->thread < y->thread ? -1 : 1) : (x->order > y->order) - (x->order < y->order);
}

static int trace_records_compare_ranges(const void *a, const void *b)
{
    const trace_range *x = a, *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->depth > y->depth) - (x->depth < y->depth);
}

/* Joins the edges of one thread in one runtime, in order. A time out of order becomes slightly
 * wrong. `open` has room for all edges. A range without an end ends at `last`. */
static void trace_records_join_ranges(trace *t, edge *edges, size_t n, size_t *open, int64_t last)
{
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        edge *e = &edges[i];
        e->time = i > 0 ? trace_most(e->time, edges[i - 1].time) : e->time;
        if (!e->push) {
            if (depth > 0) { /* otherwise the range began before the trace */
                trace_range *range = &t->ranges[open[--depth]];
                range->end = trace_most(range->begin, e->time);
            }
            continue;
        }
        open[depth] = t->n_ranges;
        t->ranges[t->n_ranges++] = (trace_range){.begin = e->time,
                                                 .end = trace_most(e->time, last),
                                                 .thread = e->thread,
                                                 .name = e->name,
                                                 .depth = (uint16_t)(depth < UINT16_MAX ? depth : UINT16_MAX),
                                                 .nvtx = e->nvtx};
        depth++;
    }
}

/* Joins the edges of one runtime, which ended by `last`. */
static void trace_records_join_threads(trace *t, edge *edges, size_t n, size_t *open, int64_t last)
{
    trace_sort(edges, n, sizeof *edges, trace_records_compare_edges);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && edges[end].thread == edges[i].thread; end++) {
        }
        trace_records_join_ranges(t, edges + i, end - i, open, last);
    }
}

static bool trace_records_read_ranges(trace_source *s)
{
    trace *t = s->t;
    size_t most = s->count[HDI_RECORD_PUSH] + s->count[HDI_RECORD_POP], n = 0;
    edge *edges = trace_table(most, sizeof *edges);
    size_t *open = trace_table(most, sizeof *open);
    trace_first_run(s);
    for (size_t k = 0; edges && open && most > 0 && k < s->n_others; k++) {
        size_t i = s->others[k];
        hdi_record r = trace_record(s, i);
        int64_t time;
        if (trace_next_run(s, &r)) { /* ranges end with their runtime */
            time = trace_time(s, r.time);
            trace_records_join_threads(t, edges, n, open, time != TRACE_UNSEEN ? time : s->last);
            n = 0;
        }
        if ((r.type == HDI_RECORD_PUSH || r.type == HDI_RECORD_POP) && (time = trace_time(s, r.time)) != TRACE_UNSEEN) {
            int32_t name = trace_lookup(s, HDI_RECORD_NAME_RANGE, r.range.name, time);
            edges[n++] = (edge){r.thread, time, i, r.type == HDI_RECORD_PUSH, r.kind == 1, name};
        }
    }
    if (edges && open) {
        trace_records_join_threads(t, edges, n, open, s->last);
        trace_sort(t->ranges, t->n_ranges, sizeof t->ranges[0], trace_records_compare_ranges);
    }
    free(open);
    free(edges);
    return edges && open;
}

/* ---- order of tables ---- */

static int trace_records_compare_transfers(const void *a, const void *b)
{
    const trace_transfer *x = a, *y = b;
    return (x->called > y->called) - (x->called < y->called);
}

static int trace_records_compare_figures(const void *a, const void *b)
{
    const trace_figure *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

static int trace_records_compare_pauses(const void *a, const void *b)
{
    const trace_pause *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int trace_records_compare_activities(const void *a, const void *b)
{
    const trace_activity *x = a, *y = b;
    return x->device != y->device ? x->device - y->device : (x->begin > y->begin) - (x->begin < y->begin);
}

static int trace_records_compare_threads(const void *a, const void *b)
{
    const trace_thread *x = a, *y = b;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

enum { THREADS_NEAR = 16 };

/* Lists the threads that submitted operations, with their devices. */
static bool trace_records_read_threads(trace_source *s)
{
    trace *t = s->t;
    t->threads = trace_table(t->n_ops, sizeof t->threads[0]);
    if (!t->threads) {
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < t->n_ops; i++) { /* neighbours mostly come from a few threads */
        trace_thread one = {t->ops[i].thread, TRACE_NONE, 1u << trace_lane_device(t->ops[i].lane)};
        size_t at = n;
        while (at > 0 && n - at < THREADS_NEAR && t->threads[at - 1].thread != one.thread) {
            at--;
        }
        if (at > 0 && t->threads[at - 1].thread == one.thread) {
            t->threads[at - 1].devices |= one.devices;
        } else {
            t->threads[n++] = one;
        }
    }
    trace_sort(t->threads, n, sizeof t->threads[0], trace_records_compare_threads);
    for (size_t i = 0; i < n; i++) {
        if (t->n_threads > 0 && t->threads[t->n_threads - 1].thread == t->threads[i].thread) {
            t->threads[t->n_threads - 1].devices |= t->threads[i].devices;
        } else {
            t->threads[t->n_threads++] = t->threads[i];
        }
    }
    for (size_t i = 0; i < t->n_threads; i++) {
        t->threads[i].name = trace_lookup(s, HDI_RECORD_NAME_THREAD, t->threads[i].thread, INT64_MAX);
    }
    return true;
}

static int trace_records_compare_intervals(const void *a, const void *b)
{
    const trace_interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void trace_records_read_interval(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int64_t begin = trace_time(s, r->time), end = trace_end_of(begin, trace_time(s, r->interval.ended));
    if (begin == TRACE_UNSEEN || end < begin) {
        t->ignored++;
        return;
    }
    t->intervals[t->n_intervals++] =
        (trace_interval){.begin = begin,
                         .end = end,
                         .began_by = r->interval.began_by,
                         .ended_by = r->thread,
                         .name = trace_lookup(s, HDI_RECORD_NAME_RANGE, r->interval.name, begin),
                         .nvtx = r->kind == 1};
}

static void trace_records_read_options(trace_source *s)
{
    for (size_t i = 0; i < s->n_namings; i++) {
        if (s->namings[i].kind == HDI_RECORD_NAME_OPTION) {
            s->t->options[s->t->n_options++] = s->namings[i].name;
        }
    }
}

static void trace_records_read_all(trace_source *s)
{
    trace_first_run(s);
    for (size_t k = 0; k < s->n_others; k++) {
        hdi_record r = trace_record(s, s->others[k]);
        switch (r.type) {
        case HDI_RECORD_TRACE:
            trace_next_run(s, &r);
            break;
        case HDI_RECORD_TRANSFER:
            trace_records_read_transfer(s, &r);
            break;
        case HDI_RECORD_ALLOC:
        case HDI_RECORD_FREE:
        case HDI_RECORD_LABEL:
            trace_read_memory(s, &r);
            break;
        case HDI_RECORD_PAUSE:
            trace_records_read_pause(s, &r);
            break;
        case HDI_RECORD_INTERVAL:
            trace_records_read_interval(s, &r);
            break;
        case HDI_RECORD_MEMORY:
            trace_records_read_figure(s, &r);
            break;
        case HDI_RECORD_ACTIVITY:
            trace_records_read_activity(s, &r);
            break;
        case HDI_RECORD_RANK:
            trace_read_rank(s, &r);
            break;
        case HDI_RECORD_MESSAGE:
            trace_read_message(s, &r);
            break;
        default:
            break;
        }
    }
}

bool trace_read_tables(trace_source *s)
{
    trace *t = s->t;
    t->transfers = trace_table(s->count[HDI_RECORD_TRANSFER], sizeof t->transfers[0]);
    size_t memory = s->count[HDI_RECORD_ALLOC] + s->count[HDI_RECORD_FREE] + 2 * s->count[HDI_RECORD_LABEL];
    t->memory = trace_table(memory, sizeof t->memory[0]);
    t->pauses = trace_table(s->count[HDI_RECORD_PAUSE], sizeof t->pauses[0]);
    t->losses = trace_table(s->count[HDI_RECORD_LOSS], sizeof t->losses[0]);
    t->figures = trace_table(s->count[HDI_RECORD_MEMORY], sizeof t->figures[0]);
    t->activities = trace_table(s->count[HDI_RECORD_ACTIVITY], sizeof t->activities[0]);
    t->ranges = trace_table(s->count[HDI_RECORD_PUSH], sizeof t->ranges[0]);
    t->intervals = trace_table(s->count[HDI_RECORD_INTERVAL], sizeof t->intervals[0]);
    t->options = trace_table(s->n_namings, sizeof t->options[0]);
    t->offsets = trace_table(s->count[HDI_RECORD_RANK], sizeof t->offsets[0]);
    t->messages = trace_table(s->count[HDI_RECORD_MESSAGE], sizeof t->messages[0]);
    if (!t->transfers || !t->memory || !t->pauses || !t->losses || !t->figures || !t->activities || !t->ranges ||
        !t->intervals || !t->options || !t->offsets || !t->messages) {
        return false;
    }
    trace_records_read_all(s);
    trace_records_read_options(s);
    trace_order_messages(t);
    trace_sort(t->transfers, t->n_transfers, sizeof t->transfers[0], trace_records_compare_transfers);
    trace_sort(t->pauses, t->n_pauses, sizeof t->pauses[0], trace_records_compare_pauses);
    trace_sort(t->intervals, t->n_intervals, sizeof t->intervals[0], trace_records_compare_intervals);
    trace_sort(t->figures, t->n_figures, sizeof t->figures[0], trace_records_compare_figures);
    trace_sort(t->activities, t->n_activities, sizeof t->activities[0], trace_records_compare_activities);
    return trace_join_memory(t) && trace_records_read_losses(s) && trace_records_read_threads(s) &&
           trace_records_read_ranges(s);
}
