/* json.c - a trace's analysis as JSON: what text.c prints, and the longest gaps.
 *
 * Threads, Locks: see model.h.
 * Always: times are integers of nanoseconds since the trace's beginning. What the trace does not have is null.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

enum { GAPS_MOST = 100 };

static void put_integer(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, value);
}

static void put_count(hdi_json *j, const char *key, uint64_t value)
{
    put_integer(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void put_text(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

static void put_bool(hdi_json *j, const char *key, bool value)
{
    hdi_json_key(j, key);
    hdi_json_bool(j, value);
}

static void put_number(hdi_json *j, const char *key, double value)
{
    hdi_json_key(j, key);
    hdi_json_number(j, value);
}

/* A number that may be none. */
static void put_index(hdi_json *j, const char *key, int64_t value, bool has)
{
    hdi_json_key(j, key);
    if (has) {
        hdi_json_integer(j, value);
    } else {
        hdi_json_string(j, NULL);
    }
}

static void put_name(hdi_json *j, const char *key, const trace *t, int32_t name)
{
    put_text(j, key, name == TRACE_NONE ? NULL : trace_name(t, name));
}

static void put_op(hdi_json *j, const char *key, const trace *t, int32_t op)
{
    char text[TRACE_TEXT];
    put_text(j, key, op == TRACE_NONE ? NULL : trace_op_name(t, op, text));
}

static void put_device_number(hdi_json *j, const char *key, int device)
{
    put_index(j, key, device, device >= 0 && device < TRACE_DEVICES);
}

/* -------------------------------------------------------------------------------------------------------- head -- */

static void put_head(hdi_json *j, const trace *t)
{
    put_text(j, "trace", t->file);
    put_integer(j, "process", t->process);
    put_text(j, "placement", t->placement == 0 ? "inline" : t->placement == 1 ? "thread" : "process");
    put_text(j, "detail",
             t->detail == HDI_RECORD_DETAIL_FULL    ? "full"
             : t->detail == HDI_RECORD_DETAIL_CUPTI ? "cupti"
                                                    : "edges");
    put_integer(j, "since_1970_ns", t->since_1970);
    put_integer(j, "length_ns", t->length);
    put_integer(j, "begin_ns", t->begin);
    put_integer(j, "end_ns", t->end);
    put_count(j, "operations", t->n_ops);
    put_count(j, "failed_operations", t->failed);
    put_count(j, "lost_operations", t->lost);
    put_integer(j, "runtimes", t->runs);
    put_count(j, "reported_by_cupti", t->n_activities);
    put_count(j, "reported_of_operations", t->n_reported);
    put_count(j, "spans_by_clock", t->spans_by_clock);
    put_count(j, "spans_coarse", t->spans_coarse);
    hdi_json_key(j, "missing");
    hdi_json_object(j);
    put_count(j, "dropped", t->dropped);
    put_count(j, "ignored", t->ignored);
    put_count(j, "waits", t->lost_waits);
    put_count(j, "operations_with_unknown_waits", t->unknown_ops);
    put_count(j, "without_device_time", t->unplaced);
    put_bool(j, "full", t->ended_early);
    put_bool(j, "stopped", t->ended);
    put_bool(j, "cut", t->cut);
    hdi_json_object_end(j);
}

/* ------------------------------------------------------------------------------------------------------ devices -- */

static int compare_pieces(const void *a, const void *b)
{
    const trace_piece *x = *(const trace_piece *const *)a, *y = *(const trace_piece *const *)b;
    int64_t p = x->end - x->begin, q = y->end - y->begin;
    return p != q ? (p > q ? -1 : 1) : (x->begin > y->begin) - (x->begin < y->begin);
}

static void put_gaps(hdi_json *j, const trace *t, const trace_device *d)
{
    const trace_piece **gaps = trace_table(d->n_pieces, sizeof *gaps);
    size_t n = 0;
    for (size_t i = 0; gaps && i < d->n_pieces; i++) {
        if (d->pieces[i].state == TRACE_IDLE) {
            gaps[n++] = &d->pieces[i];
        }
    }
    if (gaps) {
        trace_sort(gaps, n, sizeof *gaps, compare_pieces);
    }
    hdi_json_key(j, "longest_gaps");
    hdi_json_array(j);
    for (size_t i = 0; i < n && i < GAPS_MOST; i++) {
        const trace_piece *p = gaps[i];
        hdi_json_object(j);
        put_integer(j, "begin_ns", p->begin);
        put_integer(j, "end_ns", p->end);
        put_text(j, "cause", trace_cause_id((trace_cause)p->cause));
        put_device_number(j, "other", p->other);
        put_op(j, "operation", t, p->op);
        put_op(j, "held_up_by", t, p->holder);
        put_name(j, "buffer", t, p->wait != TRACE_NONE ? t->waits[p->wait].label : TRACE_NONE);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    free(gaps);
}

static void put_delays(hdi_json *j, const trace_delays *d)
{
    put_index(j, "submit_to_issue_p50_ns", d->issue_p50, d->issued > 0);
    put_index(j, "submit_to_issue_p99_ns", d->issue_p99, d->issued > 0);
    put_index(j, "issue_to_begin_p50_ns", d->begin_p50, d->begun > 0);
    put_index(j, "issue_to_begin_p99_ns", d->begin_p99, d->begun > 0);
}

static void put_devices(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (int i = 0; i < t->n_devices; i++) {
        const trace_device *d = &t->devices[i];
        hdi_json_object(j);
        put_integer(j, "device", i);
        put_text(j, "name", d->name);
        put_text(j, "bus", d->bus);
        put_bool(j, "is_host", d->is_host);
        put_integer(j, "window_ns", d->end - d->begin);
        put_integer(j, "compute_ns", d->compute);
        put_integer(j, "transfer_ns", d->transfer);
        put_integer(j, "idle_ns", d->idle);
        put_integer(j, "overlap_ns", d->overlap);
        put_integer(j, "clock_within_ns", d->clock_within);
        put_delays(j, &d->delays);
        put_number(j, "queue_mean", d->queue_mean);
        put_count(j, "queue_most", d->queue_most);
        put_count(j, "in_use_most_bytes", d->in_use_most);
        put_count(j, "in_use_without_allocation_bytes", d->in_use_rest);
        hdi_json_key(j, "idle_by_cause_ns");
        hdi_json_object(j);
        for (int c = 0; c < TRACE_CAUSES; c++) {
            put_integer(j, trace_cause_id((trace_cause)c), d->cause[c]);
        }
        hdi_json_object_end(j);
        hdi_json_key(j, "idle_for_device_ns");
        hdi_json_array(j);
        for (int e = 0; e < t->n_devices; e++) {
            hdi_json_integer(j, d->for_device[e]);
        }
        hdi_json_array_end(j);
        put_gaps(j, t, d);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_path(hdi_json *j, const trace *t)
{
    static const char *const keys[TRACE_ALONG] = {"compute_ns",    "transfer_ns", "claim_ns",
                                                  "on_the_way_ns", "host_ns",     "unknown_ns"};
    hdi_json_key(j, "critical_path");
    hdi_json_object(j);
    for (int a = 0; a < TRACE_ALONG; a++) {
        put_integer(j, keys[a], t->along[a]);
    }
    put_count(j, "operations", t->n_critical);
    hdi_json_object_end(j);
}

/* Of the findings of one id the first has the devices of all, each once, and the others their own. */
static void put_alike(hdi_json *j, const trace *t, int32_t index)
{
    uint32_t seen = 0;
    const trace_finding *f = &t->findings[index];
    put_integer(j, "first", f->first);
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

static void put_findings(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "findings");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_findings; i++) {
        const trace_finding *f = &t->findings[i];
        hdi_json_object(j);
        put_text(j, "id", f->id);
        put_device_number(j, "device", f->device);
        put_device_number(j, "other", f->other);
        put_alike(j, t, (int32_t)i);
        put_integer(j, "gain_ns", f->gain);
        put_text(j, "title", f->title);
        put_text(j, "evidence", f->evidence);
        put_text(j, "remedy", f->remedy);
        put_op(j, "operation", t, f->op);
        put_name(j, "buffer", t, f->label);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* ------------------------------------------------------------------------------------------------------- tables -- */

static void put_launches(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "kernels");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_launches; i++) {
        const trace_launch *l = &t->launches[i];
        bool has = l->measured > 0;
        hdi_json_object(j);
        put_name(j, "name", t, l->kernel);
        put_count(j, "launches", l->count);
        put_count(j, "failed", l->failed);
        put_count(j, "measured", l->measured);
        put_index(j, "total_ns", l->total, has);
        put_index(j, "least_ns", l->least, has);
        put_index(j, "median_ns", l->median, has);
        put_index(j, "p99_ns", l->p99, has);
        put_index(j, "most_ns", l->most, has);
        put_integer(j, "in_stretches_ns", l->shared);
        put_bool(j, "in_stretches_with_others", l->mixed);
        put_integer(j, "submit_to_begin_p50_ns", l->submit_to_begin_p50);
        put_integer(j, "submit_to_begin_p99_ns", l->submit_to_begin_p99);
        put_delays(j, &l->delays);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_links(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "transfers");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_links; i++) {
        const trace_link *l = &t->links[i];
        hdi_json_object(j);
        put_text(j, "way", trace_way_text(l->way));
        put_device_number(j, "from", l->src);
        put_device_number(j, "to", l->dst);
        put_count(j, "count", l->count);
        put_count(j, "bytes", l->bytes);
        put_integer(j, "busy_ns", l->busy);
        put_number(j, "bytes_per_s", l->rate);
        put_number(j, "best_bytes_per_s", l->best);
        put_number(j, "peak_bytes_per_s", l->peak);
        put_integer(j, "submit_to_end_p50_ns", l->p50);
        put_integer(j, "submit_to_end_p99_ns", l->p99);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_labels(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "memory");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_labels; i++) {
        const trace_label *l = &t->labels[i];
        hdi_json_object(j);
        put_text(j, "kind", l->kind == 0 ? "device" : l->kind == 1 ? "pinned" : "unified");
        put_device_number(j, "device", l->kind == 0 ? l->device : TRACE_NONE);
        put_name(j, "label", t, l->label);
        put_count(j, "most_bytes", l->peak);
        put_count(j, "bytes_at_peak", l->at_peak);
        put_count(j, "left_bytes", l->left);
        put_count(j, "allocations", l->allocs);
        put_count(j, "frees", l->frees);
        put_count(j, "labelled_later", l->named);
        put_count(j, "longer_ways", l->beyond);
        put_integer(j, "longer_ways_ns", l->paused);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_intervals(hdi_json *j, const trace *t)
{
    hdi_json_key(j, "intervals");
    hdi_json_array(j);
    for (size_t i = 0; i < t->n_intervals; i++) {
        const trace_interval *x = &t->intervals[i];
        hdi_json_object(j);
        put_name(j, "name", t, x->name);
        put_integer(j, "begin_ns", x->begin);
        put_integer(j, "end_ns", x->end);
        put_integer(j, "began_by", x->began_by);
        put_integer(j, "ended_by", x->ended_by);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void trace_put_json(const trace *t, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    put_head(&j, t);
    put_devices(&j, t);
    put_path(&j, t);
    put_findings(&j, t);
    put_launches(&j, t);
    put_links(&j, t);
    put_labels(&j, t);
    put_intervals(&j, t);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
