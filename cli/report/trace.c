/* trace.c - converts a trace to JSON and columns for the page.
 *
 * Small tables, such as devices and findings, become JSON. Tables with up to a million rows become
 * a column per field.
 * Threads: the tool's first. Locks: none.
 */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cli/common/report.h"
#include "cli/report/parts.h"

/* ---- columns ---- */

#define POSITION(number) ((int64_t)((number) & ((UINT64_C(1) << TRACE_POSITION_BITS) - 1)))

/* X(table, field, value of row i) */
#define OP_MAP(X)                                                                                                      \
    X(ops, lane, t->ops[i].lane)                                                                                       \
    X(ops, kind, t->ops[i].kind)                                                                                       \
    X(ops, way, t->ops[i].way)                                                                                         \
    X(ops, src, t->ops[i].src)                                                                                         \
    X(ops, dst, t->ops[i].dst)                                                                                         \
    X(ops, flags, (t->ops[i].measured ? 1 : 0) + (t->ops[i].failed ? 2 : 0))                                           \
    X(ops, position, POSITION(t->ops[i].position))                                                                     \
    X(ops, kernel, t->ops[i].kernel)                                                                                   \
    X(ops, thread, t->ops[i].thread)                                                                                   \
    X(ops, blocks, t->ops[i].blocks)                                                                                   \
    X(ops, threads, t->ops[i].threads)                                                                                 \
    X(ops, ring, t->ops[i].ring)                                                                                       \
    X(ops, bytes, (int64_t)t->ops[i].bytes)                                                                            \
    X(ops, submitted, t->ops[i].submitted)                                                                             \
    X(ops, issued, t->ops[i].issued)                                                                                   \
    X(ops, began, t->ops[i].began)                                                                                     \
    X(ops, ended, t->ops[i].ended)                                                                                     \
    X(ops, done, t->ops[i].done)                                                                                       \
    X(ops, first_wait, t->ops[i].first_wait)                                                                           \
    X(ops, n_waits, t->ops[i].n_waits)                                                                                 \
    X(ops, stretch, t->ops[i].stretch)                                                                                 \
    X(ops, holder, t->ops[i].holder)                                                                                   \
    X(ops, held_by, t->ops[i].held_by)                                                                                 \
    X(ops, ready, t->ops[i].ready)

#define WAIT_MAP(X)                                                                                                    \
    X(waits, other, t->waits[i].other)                                                                                 \
    X(waits, flags, (t->waits[i].reads ? 1 : 0) + (t->waits[i].behind ? 2 : 0))                                        \
    X(waits, label, t->waits[i].label)                                                                                 \
    X(waits, low, (int64_t)t->waits[i].low)                                                                            \
    X(waits, high, (int64_t)t->waits[i].high)

#define STRETCH_MAP(X)                                                                                                 \
    X(stretches, lane, t->stretches[i].lane)                                                                           \
    X(stretches, began, t->stretches[i].began)                                                                         \
    X(stretches, ended, t->stretches[i].ended)                                                                         \
    X(stretches, first_op, t->stretches[i].first_op)                                                                   \
    X(stretches, last_op, t->stretches[i].last_op)                                                                     \
    X(stretches, op, t->stretches[i].op)                                                                               \
    X(stretches, flags, (t->stretches[i].one ? 1 : 0) + (t->stretches[i].approximate ? 2 : 0))

#define TRANSFER_MAP(X)                                                                                                \
    X(transfers, way, t->transfers[i].way)                                                                             \
    X(transfers, src, t->transfers[i].src)                                                                             \
    X(transfers, dst, t->transfers[i].dst)                                                                             \
    X(transfers, thread, t->transfers[i].thread)                                                                       \
    X(transfers, op, t->transfers[i].op)                                                                               \
    X(transfers, bytes, (int64_t)t->transfers[i].bytes)                                                                \
    X(transfers, called, t->transfers[i].called)                                                                       \
    X(transfers, returned, t->transfers[i].returned)                                                                   \
    X(transfers, began, t->transfers[i].began)                                                                         \
    X(transfers, ended, t->transfers[i].ended)                                                                         \
    X(transfers, src_label, t->transfers[i].src_label)                                                                 \
    X(transfers, dst_label, t->transfers[i].dst_label)

#define MEMORY_MAP(X)                                                                                                  \
    X(memory, time, t->memory[i].time)                                                                                 \
    X(memory, is_alloc, t->memory[i].is_alloc)                                                                         \
    X(memory, flags, (t->memory[i].counts ? 1 : 0) + (t->memory[i].renames ? 2 : 0))                                   \
    X(memory, since, t->memory[i].since)                                                                               \
    X(memory, kind, t->memory[i].kind)                                                                                 \
    X(memory, device, t->memory[i].device)                                                                             \
    X(memory, rungs, t->memory[i].rungs)                                                                               \
    X(memory, thread, t->memory[i].thread)                                                                             \
    X(memory, bytes, (int64_t)t->memory[i].bytes)                                                                      \
    X(memory, label, t->memory[i].label)                                                                               \
    X(memory, other, t->memory[i].other)

#define FIGURE_MAP(X)                                                                                                  \
    X(figures, time, t->figures[i].time)                                                                               \
    X(figures, device, t->figures[i].device)                                                                           \
    X(figures, in_use, (int64_t)t->figures[i].in_use)                                                                  \
    X(figures, held, (int64_t)t->figures[i].held)                                                                      \
    X(figures, limit, (int64_t)t->figures[i].limit)

#define PAUSE_MAP(X)                                                                                                   \
    X(pauses, begin, t->pauses[i].begin)                                                                               \
    X(pauses, end, t->pauses[i].end)                                                                                   \
    X(pauses, kind, t->pauses[i].kind)                                                                                 \
    X(pauses, device, t->pauses[i].device)                                                                             \
    X(pauses, thread, t->pauses[i].thread)                                                                             \
    X(pauses, lane, t->pauses[i].lane)                                                                                 \
    X(pauses, detail, t->pauses[i].detail)                                                                             \
    X(pauses, bytes, (int64_t)t->pauses[i].bytes)

#define RANGE_MAP(X)                                                                                                   \
    X(ranges, begin, t->ranges[i].begin)                                                                               \
    X(ranges, end, t->ranges[i].end)                                                                                   \
    X(ranges, thread, t->ranges[i].thread)                                                                             \
    X(ranges, name, t->ranges[i].name)                                                                                 \
    X(ranges, depth, t->ranges[i].depth)                                                                               \
    X(ranges, nvtx, t->ranges[i].nvtx)

#define INTERVAL_MAP(X)                                                                                                \
    X(intervals, begin, t->intervals[i].begin)                                                                         \
    X(intervals, end, t->intervals[i].end)                                                                             \
    X(intervals, began_by, t->intervals[i].began_by)                                                                   \
    X(intervals, ended_by, t->intervals[i].ended_by)                                                                   \
    X(intervals, name, t->intervals[i].name)                                                                           \
    X(intervals, nvtx, t->intervals[i].nvtx)

#define ACTIVITY_MAP(X)                                                                                                \
    X(activities, begin, t->activities[i].begin)                                                                       \
    X(activities, end, t->activities[i].end)                                                                           \
    X(activities, kind, t->activities[i].kind)                                                                         \
    X(activities, device, t->activities[i].device)                                                                     \
    X(activities, name, t->activities[i].name)                                                                         \
    X(activities, op, t->activities[i].op)                                                                             \
    X(activities, stream, t->activities[i].stream)                                                                     \
    X(activities, bytes, (int64_t)t->activities[i].bytes)

#define CRITICAL_MAP(X) X(critical, op, t->critical[i])

#define ALL_MAPS(X)                                                                                                    \
    OP_MAP(X)                                                                                                          \
    WAIT_MAP(X)                                                                                                        \
    STRETCH_MAP(X)                                                                                                     \
    TRANSFER_MAP(X)                                                                                                    \
    MEMORY_MAP(X) FIGURE_MAP(X) PAUSE_MAP(X) RANGE_MAP(X) INTERVAL_MAP(X) ACTIVITY_MAP(X) CRITICAL_MAP(X)

#define GETTER(table, field, value)                                                                                    \
    static int64_t get_##table##_##field(const trace *t, size_t i)                                                     \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
ALL_MAPS(GETTER)

typedef struct column {
    const char *table, *field;
    size_t count; /* offset of the number of rows in trace */
    int64_t (*get)(const trace *t, size_t i);
} column;

#define ROW(table, field, value) {#table, #field, offsetof(trace, n_##table), get_##table##_##field},
static const column columns[] = {ALL_MAPS(ROW)};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static size_t report_page_trace_count_of(const trace *t, const column *c)
{
    size_t n;
    memcpy(&n, (const char *)t + c->count, sizeof(n));
    return n;
}

static void report_page_trace_begin_element(FILE *out, const char *id, const char *table, const char *field)
{
    fprintf(out, "<script type=\"application/octet-stream\" id=\"%s-%s_%s\">", id, table, field);
}

/* Each piece begins at the end of the piece before, so the begins describe the pieces. */
static const char *const piece_fields[] = {"begin", "state", "cause", "other", "op", "holder", "wait"};

static int64_t report_page_trace_piece_value(const trace_piece *p, int field)
{
    const int64_t values[] = {p->begin, p->state, p->cause, p->other, p->op, p->holder, p->wait};
    return values[field];
}

static void report_page_trace_put_pieces(FILE *out, const trace *t, const char *id)
{
    for (size_t f = 0; f < sizeof(piece_fields) / sizeof(piece_fields[0]); f++) {
        page_column c;
        report_page_trace_begin_element(out, id, "pieces", piece_fields[f]);
        report_page_column_begin(&c, out);
        for (int d = 0; d < t->n_devices; d++) {
            for (size_t i = 0; i < t->devices[d].n_pieces; i++) {
                report_page_column_add(&c, report_page_trace_piece_value(&t->devices[d].pieces[i], (int)f));
            }
        }
        report_page_column_end(&c);
        fputs("</script>\n", out);
    }
}

static void report_page_trace_put_columns(FILE *out, const trace *t, const char *id)
{
    for (int k = 0; k < COLUMNS; k++) {
        page_column c;
        size_t n = report_page_trace_count_of(t, &columns[k]);
        report_page_trace_begin_element(out, id, columns[k].table, columns[k].field);
        report_page_column_begin(&c, out);
        for (size_t i = 0; i < n; i++) {
            report_page_column_add(&c, columns[k].get(t, i));
        }
        report_page_column_end(&c);
        fputs("</script>\n", out);
    }
    report_page_trace_put_pieces(out, t, id);
}

/* ---- JSON ---- */

static void report_page_trace_put_signed(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    if (value == TRACE_UNSEEN) {
        hdi_json_string(j, NULL);
    } else {
        hdi_json_integer(j, value);
    }
}

static void report_page_trace_begin_list(hdi_json *j, const char *key)
{
    hdi_json_key(j, key);
    hdi_json_array(j);
}

static void report_page_trace_put_numbers(hdi_json *j, const char *key, const int64_t *values, int n)
{
    report_page_trace_begin_list(j, key);
    for (int i = 0; i < n; i++) {
        hdi_json_integer(j, values[i]);
    }
    hdi_json_array_end(j);
}

static void report_page_trace_put_tables(hdi_json *j, const trace *t)
{
    size_t pieces = 0;
    hdi_json_key(j, "tables");
    hdi_json_object(j);
    for (int k = 0; k < COLUMNS; k++) {
        if (k == 0 || strcmp(columns[k].table, columns[k - 1].table) != 0) {
            cli_report_put_integer(j, columns[k].table, report_page_trace_count_of(t, &columns[k]));
        }
    }
    for (int d = 0; d < t->n_devices; d++) {
        pieces += t->devices[d].n_pieces;
    }
    cli_report_put_integer(j, "pieces", pieces);
    hdi_json_object_end(j);
}

/* Writes the percentiles. A percentile is null if no launch contributed to it. */
static void report_page_trace_put_delays(hdi_json *j, const trace_delays *d)
{
    report_page_trace_put_signed(j, "issue_p50", d->issued > 0 ? d->issue_p50 : TRACE_UNSEEN);
    report_page_trace_put_signed(j, "issue_p99", d->issued > 0 ? d->issue_p99 : TRACE_UNSEEN);
    report_page_trace_put_signed(j, "run_p50", d->begun > 0 ? d->begin_p50 : TRACE_UNSEEN);
    report_page_trace_put_signed(j, "run_p99", d->begun > 0 ? d->begin_p99 : TRACE_UNSEEN);
}

static void report_page_trace_put_device(hdi_json *j, const trace *t, const trace_device *d)
{
    hdi_json_object(j);
    cli_report_put_string(j, "name", d->name);
    cli_report_put_string(j, "bus", d->bus);
    cli_report_put_bool(j, "is_host", d->is_host);
    cli_report_put_integer(j, "memory", d->memory);
    cli_report_put_integer(j, "in_use_most", d->in_use_most);
    cli_report_put_integer(j, "in_use_rest", trace_has_rest(d) ? d->in_use_rest : 0);
    report_page_trace_put_signed(j, "begin", d->begin);
    report_page_trace_put_signed(j, "end", d->end);
    report_page_trace_put_signed(j, "compute", d->compute);
    report_page_trace_put_signed(j, "transfer", d->transfer);
    report_page_trace_put_signed(j, "idle", d->idle);
    report_page_trace_put_signed(j, "overlap", d->overlap);
    report_page_trace_put_numbers(j, "cause", d->cause, TRACE_CAUSES);
    report_page_trace_put_numbers(j, "for_device", d->for_device, t->n_devices);
    cli_report_put_integer(j, "pieces", d->n_pieces);
    report_page_trace_put_signed(j, "clock_within", d->clock_within);
    report_page_trace_put_delays(j, &d->delays);
    cli_report_put_number(j, "queue_mean", d->queue_mean);
    cli_report_put_integer(j, "queue_most", d->queue_most);
    hdi_json_object_end(j);
}

static void report_page_trace_put_devices(hdi_json *j, const trace *t)
{
    cli_report_put_integer(j, "lane_numbers", HDI_RECORD_LANES); /* for each device */
    report_page_trace_begin_list(j, "devices");
    for (int i = 0; i < t->n_devices; i++) {
        report_page_trace_put_device(j, t, &t->devices[i]);
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "lanes");
    for (size_t i = 0; i < t->n_lanes; i++) {
        hdi_json_object(j);
        cli_report_put_integer(j, "lane", t->lanes[i].lane);
        cli_report_put_integer(j, "kind", t->lanes[i].kind);
        cli_report_put_integer(j, "slots", t->lanes[i].slots);
        report_page_trace_put_signed(j, "first_op", t->lanes[i].first_op);
        report_page_trace_put_signed(j, "n_ops", t->lanes[i].n_ops);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void report_page_trace_put_names(hdi_json *j, const trace *t)
{
    report_page_trace_begin_list(j, "names");
    for (size_t i = 0; i < t->n_names; i++) {
        hdi_json_string(j, t->names[i] ? t->names[i] : "");
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "options");
    for (size_t i = 0; i < t->n_options; i++) {
        hdi_json_integer(j, t->options[i]);
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "threads");
    for (size_t i = 0; i < t->n_threads; i++) {
        hdi_json_object(j);
        cli_report_put_integer(j, "thread", t->threads[i].thread);
        report_page_trace_put_signed(j, "name", t->threads[i].name);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void report_page_trace_put_finding(hdi_json *j, const trace_finding *f)
{
    hdi_json_object(j);
    cli_report_put_string(j, "id", f->id);
    report_page_trace_put_signed(j, "device", f->device);
    report_page_trace_put_signed(j, "other", f->other);
    report_page_trace_put_signed(j, "first", f->first);
    report_page_trace_put_signed(j, "gain", f->gain);
    report_page_trace_put_signed(j, "op", f->op);
    report_page_trace_put_signed(j, "wait", f->wait);
    if (f->gap.part > 0) {
        hdi_json_key(j, "gap");
        hdi_json_object(j);
        report_page_trace_put_signed(j, "device", f->gap.device);
        report_page_trace_put_signed(j, "begin", f->gap.begin);
        hdi_json_object_end(j);
    }
    cli_report_put_string(j, "title", f->title);
    cli_report_put_string(j, "evidence", f->evidence);
    cli_report_put_string(j, "remedy", f->remedy);
    hdi_json_object_end(j);
}

static void report_page_trace_put_link(hdi_json *j, const trace_link *l)
{
    hdi_json_object(j);
    cli_report_put_integer(j, "way", l->way);
    cli_report_put_integer(j, "src", l->src);
    cli_report_put_integer(j, "dst", l->dst);
    cli_report_put_integer(j, "count", l->count);
    cli_report_put_integer(j, "bytes", l->bytes);
    report_page_trace_put_signed(j, "busy", l->busy);
    cli_report_put_number(j, "rate", l->rate);
    cli_report_put_number(j, "best", l->best);
    cli_report_put_number(j, "peak", l->peak);
    report_page_trace_put_signed(j, "p50", l->p50);
    report_page_trace_put_signed(j, "p99", l->p99);
    hdi_json_object_end(j);
}

static void report_page_trace_put_launch(hdi_json *j, const trace_launch *l)
{
    hdi_json_object(j);
    report_page_trace_put_signed(j, "kernel", l->kernel);
    cli_report_put_integer(j, "count", l->count);
    cli_report_put_integer(j, "measured", l->measured);
    report_page_trace_put_signed(j, "total", l->total);
    report_page_trace_put_signed(j, "least", l->least);
    report_page_trace_put_signed(j, "median", l->median);
    report_page_trace_put_signed(j, "p99", l->p99);
    report_page_trace_put_signed(j, "most", l->most);
    report_page_trace_put_signed(j, "shared", l->shared);
    cli_report_put_bool(j, "mixed", l->mixed);
    report_page_trace_put_signed(j, "begin_p50", l->submit_to_begin_p50);
    report_page_trace_put_signed(j, "begin_p99", l->submit_to_begin_p99);
    report_page_trace_put_delays(j, &l->delays);
    hdi_json_object_end(j);
}

static void report_page_trace_put_loss(hdi_json *j, const trace_loss *l)
{
    hdi_json_object(j);
    report_page_trace_put_signed(j, "time", l->time);
    report_page_trace_put_signed(j, "ended", l->ended);
    cli_report_put_integer(j, "device", l->device);
    report_page_trace_put_signed(j, "code", l->code);
    report_page_trace_put_signed(j, "op", l->op);
    cli_report_put_string(j, "message", l->message);
    hdi_json_object_end(j);
}

static void report_page_trace_put_lists(hdi_json *j, const trace *t)
{
    report_page_trace_begin_list(j, "findings");
    for (size_t i = 0; i < t->n_findings; i++) {
        report_page_trace_put_finding(j, &t->findings[i]);
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "links");
    for (size_t i = 0; i < t->n_links; i++) {
        report_page_trace_put_link(j, &t->links[i]);
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "launches");
    for (size_t i = 0; i < t->n_launches; i++) {
        report_page_trace_put_launch(j, &t->launches[i]);
    }
    hdi_json_array_end(j);
    report_page_trace_begin_list(j, "losses");
    for (size_t i = 0; i < t->n_losses; i++) {
        report_page_trace_put_loss(j, &t->losses[i]);
    }
    hdi_json_array_end(j);
}

static void report_page_trace_put_head(hdi_json *j, const trace *t)
{
    cli_report_put_integer(j, "detail", (uint64_t)t->detail);
    cli_report_put_integer(j, "placement", (uint64_t)t->placement);
    cli_report_put_integer(j, "process", t->process);
    report_page_trace_put_signed(j, "seconds_since_1970", t->since_1970 / 1000000000);
    report_page_trace_put_signed(j, "length", t->length);
    report_page_trace_put_signed(j, "begin", t->begin);
    report_page_trace_put_signed(j, "end", t->end);
    report_page_trace_put_signed(j, "rank", t->rank == TRACE_NONE ? TRACE_UNSEEN : t->rank);
    cli_report_put_bool(j, "ended", t->ended);
    cli_report_put_bool(j, "cut", t->cut);
    cli_report_put_integer(j, "dropped", t->dropped);
    cli_report_put_integer(j, "records", t->n_records);
    cli_report_put_integer(j, "ignored", t->ignored);
    cli_report_put_integer(j, "lost_waits", t->lost_waits);
    cli_report_put_integer(j, "unknown_ops", t->unknown_ops);
    cli_report_put_integer(j, "unplaced", t->unplaced);
    cli_report_put_integer(j, "spans_by_clock", t->spans_by_clock);
    report_page_trace_put_numbers(j, "along", t->along, TRACE_ALONG);
    report_page_trace_put_tables(j, t);
}

bool report_page_put_trace(FILE *out, const trace *t, const char *id)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return false;
    }
    hdi_json j;
    hdi_json_begin(&j, memory);
    hdi_json_object(&j);
    report_page_trace_put_head(&j, t);
    report_page_trace_put_devices(&j, t);
    report_page_trace_put_names(&j, t);
    report_page_trace_put_lists(&j, t);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
    bool ok = fclose(memory) == 0;
    if (ok) {
        report_page_put_json(out, id, text, bytes);
        report_page_trace_put_columns(out, t, id);
    }
    free(text);
    return ok;
}
