/* figures.c - figures of transfers for the tables of `heddle trace`. See model.h. launches.c and
 * memory.c compute the other tables.
 *
 * A path is a way (HDI_RECORD_WAY_*) together with a source and a destination. Copies that an
 * engine gave to the driver are operations in the trace. Bytes that passed through chunks, or that
 * the host copied within the call, appear as the program's calls.
 *
 * Threads, Locks: see model.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_read.h"
#include "cli/process.h"
#include "cli/trace/parts.h"

/* Minimum size of a transfer whose rate can count as its path's best. */
#define LARGE_BYTES (UINT64_C(1) << 20)

/* ---- transfers ---- */

/* Bytes that moved on a path within a period. */
typedef struct move {
    uint8_t way, src, dst;
    int64_t asked, began, ended; /* or TRACE_UNSEEN */
    uint64_t bytes, count;
    /* the move took at most this much longer than `ended` - `began`; TRACE_UNSEEN: unknown */
    int64_t off;
    bool part; /* part of a copy through the library's chunks */
} move;

static int trace_figures_compare_moves(const void *a, const void *b)
{
    const move *x = a, *y = b;
    if (x->way != y->way || x->src != y->src || x->dst != y->dst) {
        int p = x->way << 16 | x->src << 8 | x->dst, q = y->way << 16 | y->src << 8 | y->dst;
        return p - q;
    }
    return (x->began > y->began) - (x->began < y->began);
}

static bool trace_figures_same_path(const move *a, const move *b)
{
    return a->way == b->way && a->src == b->src && a->dst == b->dst;
}

/* Joins copies of one path in one stretch, because only their sum was measured. The operations
 * are sorted by lane and position. */
static size_t trace_figures_moves_of_ops(const trace *t, move *out)
{
    size_t n = 0;
    int32_t stretch = TRACE_NONE;
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        if (op->kind != HDI_RECORD_OP_COPY) {
            stretch = TRACE_NONE;
            continue;
        }
        const trace_stretch *x = op->stretch != TRACE_NONE ? &t->stretches[op->stretch] : NULL;
        move one = {.way = op->way,
                    .src = op->src,
                    .dst = op->dst,
                    .asked = op->submitted,
                    .began = op->began,
                    .ended = op->ended,
                    .off = !x || x->approximate ? TRACE_UNSEEN : x->off,
                    .bytes = op->bytes,
                    .count = 1,
                    .part = op->leg || op->chunk};
        if (!op->measured && op->stretch != TRACE_NONE && op->stretch == stretch &&
            trace_figures_same_path(&out[n - 1], &one) && out[n - 1].part == one.part) {
            trace_count(&out[n - 1].bytes, op->bytes);
            out[n - 1].count++;
            out[n - 1].ended = trace_most(out[n - 1].ended, op->ended);
        } else {
            out[n++] = one;
        }
        stretch = op->stretch;
    }
    return n;
}

/* Adds the program's transfers through chunks, and transfers that the host copied within the
 * call. */
static size_t trace_figures_moves_of_transfers(const trace *t, move *out)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_transfers; i++) {
        const trace_transfer *x = &t->transfers[i];
        if (x->way > HDI_RECORD_WAY_HOST || (x->way == HDI_RECORD_WAY_HOST && x->op == TRACE_NONE)) {
            out[n++] = (move){.way = x->way,
                              .src = x->src,
                              .dst = x->dst,
                              .asked = x->called,
                              .began = x->began,
                              .ended = x->ended,
                              .bytes = x->bytes,
                              .count = 1};
        }
    }
    return n;
}

static trace_link trace_figures_sum_moves(const move *list, size_t n, int64_t *values, int64_t *spare)
{
    trace_link l = {.way = list[0].way, .src = list[0].src, .dst = list[0].dst};
    int64_t covered = INT64_MIN, own_covered = INT64_MIN;
    size_t seen = 0;
    uint64_t timed = 0; /* bytes */
    for (size_t i = 0; i < n; i++) {
        const move *m = &list[i];
        trace_count(&l.count, m->count);
        trace_count(&l.bytes, m->bytes);
        if (m->began == TRACE_UNSEEN || m->ended == TRACE_UNSEEN) {
            continue;
        }
        trace_count(&timed, m->bytes);
        int64_t took = m->ended - m->began;
        trace_add(&l.busy, trace_most(0, m->ended - trace_most(m->began, covered)));
        covered = trace_most(covered, m->ended);
        if (!m->part) {
            trace_count(&l.own_count, m->count);
            trace_count(&l.own_bytes, m->bytes);
            trace_add(&l.own_busy, trace_most(0, m->ended - trace_most(m->began, own_covered)));
            own_covered = trace_most(own_covered, m->ended);
        }
        values[seen++] = trace_most(0, m->ended - m->asked);
        /* the path reached this rate */
        if (took > 0 && m->bytes >= LARGE_BYTES && m->off != TRACE_UNSEEN) {
            double rate = (double)m->bytes * 1e9 / ((double)took + (double)m->off);
            l.best = rate > l.best ? rate : l.best;
        }
    }
    l.rate = l.busy > 0 ? (double)timed * 1e9 / (double)l.busy : 0;
    l.best = l.best > 0 && l.best < l.rate ? l.rate : l.best;
    trace_sort_times(values, seen, spare);
    l.p50 = trace_quantile(values, seen, 0.5);
    l.p99 = trace_quantile(values, seen, 0.99);
    return l;
}

static bool trace_figures_sum_all_moves(trace *t)
{
    size_t most = t->n_ops + t->n_transfers, paths = 0;
    move *list = trace_table(most, sizeof *list);
    int64_t *values = trace_table(2 * most, sizeof *values);
    size_t n = list ? trace_figures_moves_of_ops(t, list) : 0;
    n += list ? trace_figures_moves_of_transfers(t, list + n) : 0;
    if (list) {
        trace_sort(list, n, sizeof *list, trace_figures_compare_moves);
    }
    for (size_t i = 0; i < n; i++) {
        paths += i == 0 || !trace_figures_same_path(&list[i - 1], &list[i]);
    }
    t->links = trace_table(paths, sizeof t->links[0]);
    bool ok = list && values && t->links;
    for (size_t i = 0, end; ok && i < n; i = end) {
        for (end = i; end < n && trace_figures_same_path(&list[end], &list[i]); end++) {
        }
        t->links[t->n_links++] = trace_figures_sum_moves(list + i, end - i, values, values + most);
    }
    free(list);
    free(values);
    return ok;
}

typedef struct one_copy {
    int64_t submitted;
    uint32_t thread;
    int32_t op;
} one_copy;

static int trace_figures_compare_copies(const void *a, const void *b)
{
    const one_copy *x = a, *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    return (x->submitted > y->submitted) - (x->submitted < y->submitted);
}

/* The copies of all threads, sorted. */
typedef struct copies {
    one_copy *list;
    size_t n;
    /* Only the entries of each thread's first copy are used. Such an entry is the index after the
     * last copy that the thread's earlier transfers took (trace_figures_time_transfer). */
    uint32_t *taken;
} copies;

/* The first copy of a thread at or after a time. */
static size_t trace_figures_copy_at(const copies *c, uint32_t thread, int64_t time)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const one_copy *copy = &c->list[middle];
        if (copy->thread < thread || (copy->thread == thread && copy->submitted < time)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A transfer of the program takes the copies that its thread submitted during the call, up to the
 * transfer's last copy. A thread's calls follow each other, so each copy is visited at most once.
 * The transfer began with the first copy. */
static void trace_figures_time_transfer(trace_transfer *x, trace *t, const copies *c)
{
    size_t first = trace_figures_copy_at(c, x->thread, INT64_MIN),
           at = trace_figures_copy_at(c, x->thread, x->called - TRACE_THREADS_NS);
    x->ended = t->ops[x->op].ended;
    x->began = t->ops[x->op].began;
    if (first == c->n) {
        return;
    }
    at = at > c->taken[first] ? at : c->taken[first];
    bool last = false;
    for (size_t n = 0; !last && at < c->n; n++, at++) {
        trace_op *op = &t->ops[c->list[at].op];
        if (c->list[at].thread != x->thread || c->list[at].submitted > x->returned + TRACE_THREADS_NS) {
            break;
        }
        if (n == 0 && op->began != TRACE_UNSEEN) {
            x->began = x->began == TRACE_UNSEEN ? op->began : trace_least(x->began, op->began);
        }
        op->leg = op->leg || x->way == HDI_RECORD_WAY_STAGED;
        last = c->list[at].op == x->op;
    }
    c->taken[first] = (uint32_t)at;
}

static bool trace_figures_time_transfers(trace *t)
{
    size_t most = t->n_transfers > 0 ? t->n_ops : 0;
    copies c = {.list = trace_table(most, sizeof c.list[0]), .taken = trace_table(most, sizeof c.taken[0])};
    bool ok = c.list && c.taken;
    for (size_t i = 0; ok && i < most; i++) {
        if (t->ops[i].kind == HDI_RECORD_OP_COPY) {
            c.list[c.n++] = (one_copy){t->ops[i].submitted, t->ops[i].thread, (int32_t)i};
        }
    }
    if (ok) {
        trace_sort(c.list, c.n, sizeof c.list[0], trace_figures_compare_copies);
    }
    for (size_t i = 0; ok && i < t->n_transfers; i++) {
        if (t->transfers[i].op != TRACE_NONE) {
            trace_figures_time_transfer(&t->transfers[i], t, &c);
        }
    }
    free(c.list);
    free(c.taken);
    return ok;
}

/* ---- peaks ---- */

/* A number in a matrix of `heddle p2p --json`, in GB/s; 0: missing. */
static double trace_figures_matrix_value(const hdi_json_value *values, int row, int column)
{
    const hdi_json_value *at = values && values->kind == HDI_JSON_ARRAY ? values->first : NULL;
    for (int i = 0; at && i < row; i++) {
        at = at->next;
    }
    if (column >= 0) {
        at = at && at->kind == HDI_JSON_ARRAY ? at->first : NULL;
        for (int i = 0; at && i < column; i++) {
            at = at->next;
        }
    }
    return at && at->kind == HDI_JSON_NUMBER && at->number > 0 ? at->number : 0;
}

static const hdi_json_value *trace_figures_find_figure(const hdi_json_value *root, const char *list, const char *id)
{
    const hdi_json_value *all = hdi_json_member(root, list);
    for (const hdi_json_value *f = all && all->kind == HDI_JSON_ARRAY ? all->first : NULL; f; f = f->next) {
        const hdi_json_value *name = hdi_json_member(f, "id");
        if (name && name->text && strcmp(name->text, id) == 0) {
            return hdi_json_member(f, "values");
        }
    }
    return NULL;
}

static double trace_figures_link_peak(const hdi_json_value *root, const trace_link *l)
{
    bool to_device = l->way == HDI_RECORD_WAY_TO_DEVICE || l->way == HDI_RECORD_WAY_WRITE;
    bool to_host = l->way == HDI_RECORD_WAY_TO_HOST || l->way == HDI_RECORD_WAY_READ;
    double best = 0;
    if (to_device && l->dst < TRACE_DEVICES) {
        best = trace_figures_matrix_value(trace_figures_find_figure(root, "links", "to_device_ce"), l->dst, -1);
    } else if (to_host && l->src < TRACE_DEVICES) {
        best = trace_figures_matrix_value(trace_figures_find_figure(root, "links", "to_host_ce"), l->src, -1);
    } else if (l->way == HDI_RECORD_WAY_ON_DEVICE && l->src < TRACE_DEVICES) {
        best = trace_figures_matrix_value(trace_figures_find_figure(root, "links", "local_ce"), l->src, -1);
    } else if (l->way == HDI_RECORD_WAY_STAGED && l->src < TRACE_DEVICES && l->dst < TRACE_DEVICES) {
        best = trace_figures_matrix_value(trace_figures_find_figure(root, "figures", "heddle_staged"), l->src, l->dst);
    } else if (l->way == HDI_RECORD_WAY_PEER && l->src < TRACE_DEVICES && l->dst < TRACE_DEVICES) {
        double write =
            trace_figures_matrix_value(trace_figures_find_figure(root, "figures", "ce_write"), l->src, l->dst);
        double read = trace_figures_matrix_value(trace_figures_find_figure(root, "figures", "ce_read"), l->dst, l->src);
        best = write > read ? write : read;
    }
    return best * 1e9;
}

static bool trace_figures_read_peaks(trace *t, const trace_peaks *peaks, char error[512])
{
    hdi_json_tree tree = {0};
    bool ok = hdi_json_read(peaks->text, peaks->bytes, &tree);
    if (!ok) {
        snprintf(error, 512, "--peaks %.200s: %s", peaks->file, tree.error);
        return false;
    }
    ok = hdi_json_member(tree.root, "links") && hdi_json_member(tree.root, "figures");
    if (!ok) {
        snprintf(error, 512, "--peaks %.200s: it is no output of `heddle p2p --json`; run that to make one",
                 peaks->file);
    }
    for (size_t i = 0; ok && i < t->n_links; i++) {
        t->links[i].peak = trace_figures_link_peak(tree.root, &t->links[i]);
    }
    hdi_json_release(&tree);
    return ok;
}

bool trace_figures(trace *t, const trace_peaks *peaks, char error[512])
{
    return trace_figures_time_transfers(t) && trace_figures_sum_all_moves(t) && trace_sum_memory(t) &&
           (!peaks || trace_figures_read_peaks(t, peaks, error));
}
