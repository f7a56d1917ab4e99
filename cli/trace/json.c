/* json.c - prints a trace's analysis as JSON: the contents of text.c, and the longest gaps.
 *
 * Threads, Locks: see model.h.
 * Always: times are integers of nanoseconds since the trace's beginning. A value that is not in the
 * trace is null.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

enum { GAPS_MOST = 100 };

static void trace_json_put_integer(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, value);
}

static void trace_json_put_count(hdi_json *j, const char *key, uint64_t value)
{
    trace_json_put_integer(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void trace_json_put_text(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

static void trace_json_put_bool(hdi_json *j, const char *key, bool value)
{
    hdi_json_key(j, key);
    hdi_json_bool(j, value);
}

static void trace_json_put_number(hdi_json *j, const char *key, double value)
{
    hdi_json_key(j, key);
    hdi_json_number(j, value);
}

/* Writes a number, or null. */
static void trace_json_put_index(hdi_json *j, const char *key, int64_t value, bool has)
{
    hdi_json_key(j, key);
    if (has) {
        hdi_json_integer(j, value);
    } else {
        hdi_json_string(j, NULL);
    }
}

static void trace_json_put_name(hdi_json *j, const char *key, const trace *t, int32_t name)
{
    trace_json_put_text(j, key, name == TRACE_NONE ? NULL : trace_name(t, name));
}

static void trace_json_put_op(hdi_json *j, const char *key, const trace *t, int32_t op)
{
    char text[TRACE_TEXT];
    trace_json_put_text(j, key, op == TRACE_NONE ? NULL : trace_op_name(t, op, text));
}

static void trace_json_put_device_number(hdi_json *j, const char *key, int device)
{
    trace_json_put_index(j, key, device, device >= 0 && device < TRACE_DEVICES);
}

/* ---- head ---- */

static void trace_json_put_head(hdi_json *j, const trace *t)
{
    trace_json_put_text(j, "trace", t->file);
    trace_json_put_integer(j, "process", t->process);
    trace_json_put_text(j, "placement", t->placement == 0 ? "inline" : t->placement == 1 ? "thread" : "process");
    trace_json_put_text(j, "detail",
                        t->detail == HDI_RECORD_DETAIL_FULL    ? "full"
                        : t->detail == HDI_RECORD_DETAIL_CUPTI ? "cupti"
                                                               : "edges");
    trace_json_put_integer(j, "since_1970_ns", t->since_1970);
    trace_json_put_integer(j, "length_ns", t->length);
    trace_json_put_integer(j, "begin_ns", t->begin);
    trace_json_put_integer(j, "end_ns", t->end);
    trace_json_put_count(j, "operations", t->n_ops);
    trace_json_put_count(j, "failed_operations", t->failed);
    trace_json_put_count(j, "lost_operations", t->lost);
    trace_json_put_integer(j, "runtimes", t->runs);
    trace_json_put_count(j, "reported_by_cupti", t->n_activities);
    trace_json_put_count(j, "reported_of_operations", t->n_reported);
    trace_json_put_count(j, "spans_by_clock", t->spans_by_clock);
    trace_json_put_count(j, "spans_coarse", t->spans_coarse);
    hdi_json_key(j, "missing");
    hdi_json_object(j);
    trace_json_put_count(j, "dropped", t->dropped);
    trace_json_put_count(j, "ignored", t->ignored);
    trace_json_put_count(j, "waits", t->lost_waits);
    trace_json_put_count(j, "operations_with_unknown_waits", t->unknown_ops);
    trace_json_put_count(j, "without_device_time", t->unplaced);
    trace_json_put_bool(j, "full", t->ended_early);
    trace_json_put_bool(j, "stopped", t->ended);
    trace_json_put_bool(j, "cut", t->cut);
    hdi_json_object_end(j);
}

/* ---- devices ---- */

static int trace_json_compare_pieces(const void *a, const void *b)
{
    const trace_piece *x = *(const trace_piece *const *)a, *y = *(const trace_piece *const *)b;
    int64_t p = x->end - x->begin, q = y->end - y->begin;
    return p != q ? (p > q ? -1 : 1) : (x->begin > y->begin) - (x->begin < y->begin);
}

static void trace_json_put_gaps(hdi_json *j, const trace *t, const trace_device *d)
{
    const trace_piece **gaps = trace_table(d->n_pieces, sizeof *gaps);
    size_t n = 0;
    for (size_t i = 0; gaps && i < d->n_pieces; i++) {
        if (d->pieces[i].state == TRACE_IDLE) {
            gaps[n++] = &d->pieces[i];
        }
    }
    if (gaps) {
        trace_sort(gaps, n, sizeof *gaps, trace_json_compare_pieces);
    }
    hdi_json_key(j, "longest_gaps");
    hdi_json_array(j);
    for (size_t i = 0; i < n && i < GAPS_MOST; i++) {
        const trace_piece *p = gaps[i];
        hdi_json_object(j);
        trace_json_put_integer(j, "begin_ns", p->begin);
        trace_json_put_integer(j, "end_ns", p->end);
        trace_json_put_text(j, "cause", trace_cause_id((trace_cause)p->cause));
        trace_json_put_device_number(j, "other", p->other);
        trace_json_put_op(j, "operation", t, p->op);
        trace_json_put_op(j, "held_up_by", t, p->holder);
        trace_json_put_name(j, "buffer", t, p->wait != TRACE_NONE ? t->waits[p->wait].label : TRACE_NONE);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    free(gaps);
}

static void trace_json_put_delays(hdi_json *j, const trace_delays *d)
{
    trace_json_put_index(j, "submit_to_issue_p50_ns", d->issue_p50, d->issued > 0);
    trace_json_put_index(j, "submit_to_issue_p99_ns", d->issue_p99, d->issued > 0);
    trace_json_put_index(j, "issue_to_begin_p50_ns", d->begin_p50, d->begun > 0);
    trace_json_put_index(j, "issue_to_begin_p99_ns", d->begin_p99, d->begun > 0);
}

static void trace_json_put_devices(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (int i = 0; i < t->n_devices; i++) {
        const trace_device *d = &t->devices[i];
        hdi_json_object(j);
        trace_json_put_integer(j, "device", i);
        trace_json_put_text(j, "name", d->name);
        trace_json_put_text(j, "bus", d->bus);
        trace_json_put_bool(j, "is_host", d->is_host);
        trace_json_put_integer(j, "window_ns", d->end - d->begin);
        trace_json_put_integer(j, "compute_ns", d->compute);
        trace_json_put_integer(j, "transfer_ns", d->transfer);
        trace_json_put_integer(j, "idle_ns", d->idle);
        trace_json_put_integer(j, "overlap_ns", d->overlap);
        trace_json_put_integer(j, "clock_within_ns", d->clock_within);
        trace_json_put_delays(j, &d->delays);
        trace_json_put_number(j, "queue_mean", d->queue_mean);
        trace_json_put_count(j, "queue_most", d->queue_most);
        trace_json_put_count(j, "in_use_most_bytes", d->in_use_most);
        trace_json_put_count(j, "in_use_without_allocation_bytes", d->in_use_rest);
        hdi_json_key(j, "idle_by_cause_ns");
        hdi_json_object(j);
        for (int c = 0; c < TRACE_CAUSES; c++) {
            trace_json_put_integer(j, trace_cause_id((trace_cause)c), d->cause[c]);
        }
        hdi_json_object_end(j);
        hdi_json_key(j, "idle_for_device_ns");
        hdi_json_array(j);
        for (int e = 0; e < t->n_devices; e++) {
            hdi_json_integer(j, d->for_device[e]);
        }
        hdi_json_array_end(j);
        trace_json_put_gaps(j, t, d);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_json_put_path(hdi_json *j, const trace *t)
{
    static const char *const keys[TRACE_ALONG] = {"compute_ns",    "transfer_ns", "claim_ns",
                                                  "on_the_way_ns", "host_ns",     "unknown_ns"};
    hdi_json_key(j, "critical_path");
    hdi_json_object(j);
    for (int a = 0; a < TRACE_ALONG; a++) {
        trace_json_put_integer(j, keys[a], t->along[a]);
    }
    trace_json_put_count(j, "operations", t->n_critical);
    hdi_json_object_end(j);
}

/* The first finding of an id lists the devices of all findings of this id, each device once. Every
 * other finding lists its own devices. */
static void trace_json_put_alike(hdi_json *j, const trace *t, int32_t index)
{
    uint32_t seen = 0;
    const trace_finding *f = &t->findings[index];
    trace_json_put_integer(j, "first", f->first);
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (int32_t i = index; i != TRACE_NONE; i = f->first == index ? t->findings[i].next : TRACE_NONE) {
        int d = t->findings[i].device;
        if (d >= 0 && d < TRACE_DEVICES && (seen >> d & 1) == 0) {
            hdi_json_integer(j, d);
            seen |= UINT32_C(1) << d;
        }
    }
    hdi_json_array_end(j);
}

static void trace_json_put_findings(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "findings");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_findings; i++) {
        const trace_finding *f = &t->findings[i];
        hdi_json_object(j);
        trace_json_put_text(j, "id", f->id);
        trace_json_put_device_number(j, "device", f->device);
        trace_json_put_device_number(j, "other", f->other);
        trace_json_put_alike(j, t, (int32_t)i);
        trace_json_put_integer(j, "gain_ns", f->gain);
        trace_json_put_text(j, "title", f->title);
        trace_json_put_text(j, "evidence", f->evidence);
        trace_json_put_text(j, "remedy", f->remedy);
        trace_json_put_op(j, "operation", t, f->op);
        trace_json_put_name(j, "buffer", t, f->label);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* ---- tables ---- */

static void trace_json_put_launches(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "kernels");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_launches; i++) {
        const trace_launch *l = &t->launches[i];
        bool has = l->measured > 0;
        hdi_json_object(j);
        trace_json_put_name(j, "name", t, l->kernel);
        trace_json_put_count(j, "launches", l->count);
        trace_json_put_count(j, "failed", l->failed);
        trace_json_put_count(j, "measured", l->measured);
        trace_json_put_index(j, "total_ns", l->total, has);
        trace_json_put_index(j, "least_ns", l->least, has);
        trace_json_put_index(j, "median_ns", l->median, has);
        trace_json_put_index(j, "p99_ns", l->p99, has);
        trace_json_put_index(j, "most_ns", l->most, has);
        trace_json_put_integer(j, "in_stretches_ns", l->shared);
        trace_json_put_bool(j, "in_stretches_with_others", l->mixed);
        trace_json_put_integer(j, "submit_to_begin_p50_ns", l->submit_to_begin_p50);
        trace_json_put_integer(j, "submit_to_begin_p99_ns", l->submit_to_begin_p99);
        trace_json_put_delays(j, &l->delays);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_json_put_links(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "transfers");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_links; i++) {
        const trace_link *l = &t->links[i];
        hdi_json_object(j);
        trace_json_put_text(j, "way", trace_way_text(l->way));
        trace_json_put_device_number(j, "from", l->src);
        trace_json_put_device_number(j, "to", l->dst);
        trace_json_put_count(j, "count", l->count);
        trace_json_put_count(j, "bytes", l->bytes);
        trace_json_put_integer(j, "busy_ns", l->busy);
        trace_json_put_number(j, "bytes_per_s", l->rate);
        trace_json_put_number(j, "best_bytes_per_s", l->best);
        trace_json_put_number(j, "peak_bytes_per_s", l->peak);
        trace_json_put_integer(j, "submit_to_end_p50_ns", l->p50);
        trace_json_put_integer(j, "submit_to_end_p99_ns", l->p99);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_json_put_labels(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "memory");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_labels; i++) {
        const trace_label *l = &t->labels[i];
        hdi_json_object(j);
        trace_json_put_text(j, "kind", l->kind == 0 ? "device" : l->kind == 1 ? "pinned" : "unified");
        trace_json_put_device_number(j, "device", l->kind == 0 ? l->device : TRACE_NONE);
        trace_json_put_name(j, "label", t, l->label);
        trace_json_put_count(j, "most_bytes", l->peak);
        trace_json_put_count(j, "bytes_at_peak", l->at_peak);
        trace_json_put_count(j, "left_bytes", l->left);
        trace_json_put_count(j, "allocations", l->allocs);
        trace_json_put_count(j, "frees", l->frees);
        trace_json_put_count(j, "labelled_later", l->named);
        trace_json_put_count(j, "longer_ways", l->beyond);
        trace_json_put_integer(j, "longer_ways_ns", l->paused);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_json_put_intervals(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "intervals");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_intervals; i++) {
        const trace_interval *x = &t->intervals[i];
        hdi_json_object(j);
        trace_json_put_name(j, "name", t, x->name);
        trace_json_put_integer(j, "begin_ns", x->begin);
        trace_json_put_integer(j, "end_ns", x->end);
        trace_json_put_integer(j, "began_by", x->began_by);
        trace_json_put_integer(j, "ended_by", x->ended_by);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void trace_put_json_members(const trace *t, struct hdi_json *j)
{
    trace_json_put_head(j, t);
    trace_json_put_devices(j, t);
    trace_json_put_path(j, t);
    trace_json_put_findings(j, t);
    trace_json_put_launches(j, t);
    trace_json_put_links(j, t);
    trace_json_put_labels(j, t);
    trace_json_put_intervals(j, t);
}

void trace_put_json(const trace *t, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    trace_put_json_members(t, &j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
