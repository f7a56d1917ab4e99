/* text.c - prints a trace as text: each device's time, findings, kernels, paths, memory; the chain
 * behind an operation.
 *
 * Threads, Locks: see model.h.
 * Always: the text lists the data that the file lacks before the figures.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

enum { DEVICES_SHOWN = 8, FINDINGS_SHOWN = 4, ROWS_SHOWN = 3, LABELS_SHOWN = 3, CHAIN_SHOWN = 40, QUEUES_SHOWN = 2 };

/* A percentage, such as 12.3. */
static double trace_text_percent_of(int64_t part, int64_t of)
{
    return of > 0 ? (double)part * 100 / (double)of : 0;
}

static size_t trace_text_shown_lines(size_t n, size_t most, bool all)
{
    return all || n <= most ? n : most;
}

static void trace_text_put_more(size_t n, size_t most, bool all, FILE *out)
{
    if (n > trace_text_shown_lines(n, most, all)) {
        fprintf(out, "  and %zu more\n", n - trace_text_shown_lines(n, most, all));
    }
}

/* ---- head ---- */

static const char *trace_text_detail_text(int detail)
{
    return detail == HDI_RECORD_DETAIL_FULL    ? "times of every operation"
           : detail == HDI_RECORD_DETAIL_CUPTI ? "times of stretches and of CUPTI"
                                               : "times of stretches";
}

/* Names the device whose times differ most from the host's times. A few microseconds are normal. */
static void trace_text_put_clock_note(const trace *t, FILE *out)
{
    enum { FAR_NS = 50000 };
    int worst = TRACE_NONE;
    for (int d = 0; d < t->n_devices; d++) {
        const trace_device *x = &t->devices[d];
        bool far = x->compute + x->transfer > 0 && x->clock_within > FAR_NS;
        worst = far && (worst == TRACE_NONE || x->clock_within > t->devices[worst].clock_within) ? d : worst;
    }
    if (worst != TRACE_NONE) {
        fprintf(out, "note: times of device %d are up to %s off those of the host and of other devices", worst,
                TRACE_NS(t->devices[worst].clock_within));
        if (t->spans_coarse > 0) {
            fprintf(out, "; %" PRIu64 " short stretch%s between the two %s not count as measured", t->spans_coarse,
                    t->spans_coarse == 1 ? "" : "es", t->spans_coarse == 1 ? "does" : "do");
        }
        fprintf(out, "\n");
    }
}

/* Lists the data that the file lacks. Without it the figures are less certain. */
static void trace_text_put_notes(const trace *t, FILE *out)
{
    if (t->dropped > 0) {
        fprintf(out,
                "note: %" PRIu64 " records had no room and are missing%s; raise the size of the trace or record less\n",
                t->dropped, t->ended_early ? ", and the window ends where the file was full" : "");
    }
    if (t->ignored > 0) {
        fprintf(out, "note: %" PRIu64 " records make no sense, or belong to missing ones; they are left out\n",
                t->ignored);
    }
    if (t->unknown_ops > 0) {
        fprintf(out,
                "note: %" PRIu64 " waits are missing, and %" PRIu64
                " operations waited for more than the trace contains; idle time that this may explain is 'unknown'\n",
                t->lost_waits, t->unknown_ops);
    }
    if (t->unplaced > 0) {
        fprintf(out,
                "note: %" PRIu64 " operations have no times of their device; other operations of their kind, or the "
                "host, give their times\n",
                t->unplaced);
    }
    trace_text_put_clock_note(t, out);
    if (!t->ended) {
        fprintf(out, "note: the trace was not stopped in order%s; it is complete up to its last records\n",
                t->cut ? ", and ends within a record" : "");
    }
}

static void trace_text_put_reported(const trace *t, FILE *out)
{
    if (t->n_activities > 0) {
        fprintf(out,
                "CUPTI reported %zu kernels, copies and fills, %" PRIu64
                " of which match operations and give their times\n",
                t->n_activities, t->n_reported);
    }
}

static void trace_text_put_head(const trace *t, bool all, FILE *out)
{
    char time[HDI_AMOUNT_BYTES], window[HDI_AMOUNT_BYTES + 4];
    snprintf(window, sizeof window, "%s of", trace_time_text(t->end - t->begin, time));
    fprintf(out, "%s%s%s work on %d device%s, %zu operations, %s%s\n", t->file, t->file[0] ? ": " : "",
            t->n_ops > 0 ? window : "no", t->n_devices, t->n_devices == 1 ? "" : "s", t->n_ops,
            trace_text_detail_text(t->detail), t->runs > 1 ? ", of several runtimes one after the other" : "");
    trace_text_put_reported(t, out);
    if (all && t->spans_by_clock > 0) {
        fprintf(out, "%" PRIu64 " stretches end when the engine saw the end, a little late\n", t->spans_by_clock);
    }
    trace_text_put_notes(t, out);
}

/* ---- devices ---- */

static void trace_text_put_device(const trace *t, int d, FILE *out)
{
    const trace_device *x = &t->devices[d];
    int64_t window = x->end - x->begin;
    fprintf(out, "%6d %8.1f %% %7.1f %% %7.1f %%  ", d, trace_text_percent_of(x->compute, window),
            trace_text_percent_of(x->transfer, window), trace_text_percent_of(x->idle, window));
    for (int c = 0; c < TRACE_CAUSES; c++) {
        if (x->cause[c] > 0) {
            fprintf(out, " %s %.1f %%", trace_cause_id((trace_cause)c), trace_text_percent_of(x->cause[c], window));
        }
        for (int e = 0; c == TRACE_CAUSE_DEVICE && e < t->n_devices && x->cause[c] > 0; e++) {
            if (x->for_device[e] > 0) {
                fprintf(out, " (%d: %.1f %%)", e, trace_text_percent_of(x->for_device[e], window));
            }
        }
    }
    fprintf(out, "\n");
}

static void trace_text_put_delays(const trace_delays *d, FILE *out)
{
    if (d->issued > 0) {
        fprintf(out, "given to the driver %s after the submit (99 %%: %s)", TRACE_NS(d->issue_p50),
                TRACE_NS(d->issue_p99));
    }
    if (d->begun > 0) {
        fprintf(out, ", begun %s after that (99 %%: %s)", TRACE_NS(d->begin_p50), TRACE_NS(d->begin_p99));
    }
}

/* Prints the queue if the way to the device takes part of the window, or if `all` is set. */
static void trace_text_put_queue(const trace *t, int d, bool all, FILE *out)
{
    const trace_device *x = &t->devices[d];
    bool tells = trace_text_percent_of(x->cause[TRACE_CAUSE_OVERHEAD], x->end - x->begin) >= 3;
    if ((!all && !tells) || x->queue_most == 0) {
        return;
    }
    fprintf(out, "queue of device %d: %.1f operations on average, %" PRIu64 " at most", d, x->queue_mean,
            x->queue_most);
    if (x->delays.issued > 0) {
        fprintf(out, "; launches are ");
        trace_text_put_delays(&x->delays, out);
    }
    fprintf(out, "\n");
}

static void trace_text_put_devices(const trace *t, bool all, FILE *out)
{
    fprintf(out, "device   compute  transfer      idle   and why\n");
    for (size_t d = 0; d < trace_text_shown_lines((size_t)t->n_devices, DEVICES_SHOWN, all); d++) {
        trace_text_put_device(t, (int)d, out);
    }
    trace_text_put_more((size_t)t->n_devices, DEVICES_SHOWN, all, out);
    for (size_t d = 0; d < trace_text_shown_lines((size_t)t->n_devices, QUEUES_SHOWN, all); d++) {
        trace_text_put_queue(t, (int)d, all, out);
    }
    fprintf(out, "critical path:");
    const char *comma = "";
    for (int a = 0; a < TRACE_ALONG; a++) {
        if (t->along[a] > 0) {
            fprintf(out, "%s %s %s (%.0f %%)", comma, trace_along_text((trace_along)a), TRACE_NS(t->along[a]),
                    trace_text_percent_of(t->along[a], t->end - t->begin));
            comma = ",";
        }
    }
    fprintf(out, "\n");
}

/* Prints the other devices of a kind of finding. */
static void trace_text_put_again(const trace *t, const trace_finding *first, FILE *out)
{
    const char *comma = "   also";
    size_t n = 0;
    for (int32_t i = first->next; i != TRACE_NONE; i = t->findings[i].next) {
        if (n++ < DEVICES_SHOWN) {
            int64_t gain = t->findings[i].gain;
            fprintf(out, "%s device %d", comma, t->findings[i].device);
            if (gain > 0) {
                fprintf(out, " (%s)", TRACE_NS(gain));
            }
            comma = ",";
        }
    }
    fprintf(out, "%s%s", n > DEVICES_SHOWN ? " and more" : "", n > 0 ? "\n" : "");
}

static void trace_text_put_findings(const trace *t, bool all, FILE *out)
{
    if (t->n_findings == 0) {
        fprintf(out, "findings: none\n");
        return;
    }
    size_t kinds = 0;
    fprintf(out, "findings, largest possible gain first:\n");
    for (size_t i = 0; i < t->n_findings; i++) {
        const trace_finding *f = &t->findings[i];
        bool again = !all && f->first != (int32_t)i;
        kinds += !again;
        if (again || kinds > trace_text_shown_lines(kinds, FINDINGS_SHOWN, all)) {
            continue;
        }
        fprintf(out, "%zu. %s: %s%s%s\n   %s\n   > %s\n", kinds, f->id, f->title, f->gain > 0 ? "; up to " : "",
                f->gain > 0 ? TRACE_NS(f->gain) : "", f->evidence, f->remedy);
        if (!all) {
            trace_text_put_again(t, f, out);
        }
    }
    trace_text_put_more(kinds, FINDINGS_SHOWN, all, out);
}

/* ---- tables ---- */

static void trace_text_put_launches(const trace *t, bool all, FILE *out)
{
    if (t->n_launches == 0) {
        return;
    }
    fprintf(out, "kernels:\n");
    for (size_t i = 0; i < trace_text_shown_lines(t->n_launches, ROWS_SHOWN, all); i++) {
        const trace_launch *l = &t->launches[i];
        const char *name = trace_name(t, l->kernel);
        fprintf(out, "  %.60s: %" PRIu64 " launches", name[0] ? name : "(no name)", l->count);
        if (l->failed > 0) {
            fprintf(out, ", %" PRIu64 " of which never ran", l->failed);
        }
        if (l->measured > 0) {
            fprintf(out, ", %s; median %s, 99 %% %s", TRACE_NS(l->total), TRACE_NS(l->median), TRACE_NS(l->p99));
        }
        if (l->shared > 0) {
            fprintf(out, ", %s in stretches%s", TRACE_NS(l->shared), l->mixed ? " with other kernels, by number" : "");
        }
        if (all && l->delays.issued > 0) {
            fprintf(out, "; ");
            trace_text_put_delays(&l->delays, out);
            fprintf(out, "\n");
        } else {
            fprintf(out, "; begins %s after its submit (99 %%: %s)\n", TRACE_NS(l->submit_to_begin_p50),
                    TRACE_NS(l->submit_to_begin_p99));
        }
    }
    trace_text_put_more(t->n_launches, ROWS_SHOWN, all, out);
}

static void trace_text_put_end(uint8_t device, FILE *out)
{
    if (device < TRACE_DEVICES) {
        fprintf(out, "%d", device);
    } else {
        fprintf(out, "host");
    }
}

static void trace_text_put_links(const trace *t, bool all, FILE *out)
{
    if (t->n_links == 0) {
        return;
    }
    fprintf(out, "transfers:\n");
    for (size_t i = 0; i < trace_text_shown_lines(t->n_links, ROWS_SHOWN, all); i++) {
        const trace_link *l = &t->links[i];
        fprintf(out, "  %s, ", trace_way_text(l->way));
        trace_text_put_end(l->src, out);
        fprintf(out, " -> ");
        trace_text_put_end(l->dst, out);
        fprintf(out, ": %" PRIu64 " of %s in all, busy %s, %.1f GB/s", l->count, TRACE_BYTES(l->bytes),
                TRACE_NS(l->busy), l->rate / 1e9);
        if (l->peak > 0) {
            fprintf(out, ", %.0f %% of the measured peak", l->rate * 100 / l->peak);
        } else if (l->best > 0) {
            fprintf(out, ", %.0f %% of the best large copy here", l->rate * 100 / l->best);
        }
        fprintf(out, "\n");
    }
    trace_text_put_more(t->n_links, ROWS_SHOWN, all, out);
}

static void trace_text_put_labels(const trace *t, bool all, FILE *out)
{
    if (t->n_labels == 0) {
        return;
    }
    fprintf(out, "memory, by label:\n");
    for (size_t i = 0; i < trace_text_shown_lines(t->n_labels, LABELS_SHOWN, all); i++) {
        const trace_label *l = &t->labels[i];
        const char *name = trace_name(t, l->label);
        if (l->kind == 0) {
            fprintf(out, "  device %d, ", l->device);
        } else {
            fprintf(out, "  %s, ", l->kind == 1 ? "pinned" : "unified");
        }
        fprintf(out, "%.60s: at most %s, %s when all had most, %" PRIu64 " allocations", name[0] ? name : "(no label)",
                TRACE_BYTES(l->peak), TRACE_BYTES(l->at_peak), l->allocs);
        if (l->named > 0) {
            fprintf(out, ", and %" PRIu64 " that got the label later", l->named);
        }
        if (l->beyond > 0) {
            fprintf(out, ", %" PRIu64 " of them took longer ways: %s", l->beyond, TRACE_NS(l->paused));
        }
        fprintf(out, "\n");
    }
    trace_text_put_more(t->n_labels, LABELS_SHOWN, all, out);
    for (size_t d = 0; d < trace_text_shown_lines((size_t)t->n_devices, DEVICES_SHOWN, all); d++) {
        if (trace_has_rest(&t->devices[d])) {
            fprintf(out, "  device %zu, the rest: %s of %s at most, " TRACE_REST_TEXT "\n", d,
                    TRACE_BYTES(t->devices[d].in_use_rest), TRACE_BYTES(t->devices[d].in_use_most));
        }
    }
}

static void trace_text_put_all(const trace *t, bool all, FILE *out)
{
    trace_text_put_head(t, all, out);
    trace_text_put_devices(t, all, out);
    trace_text_put_findings(t, all, out);
    trace_text_put_launches(t, all, out);
    trace_text_put_links(t, all, out);
    trace_text_put_labels(t, all, out);
}

void trace_put_text(const trace *t, bool all, FILE *out)
{
    hdi_text text;
    char *bytes = NULL;
    size_t length = 0;
    if (all || !hdi_text_open(&text)) {
        trace_text_put_all(t, all, out);
        return;
    }
    trace_text_put_all(t, false, text.file);
    if (!hdi_text_close(&text, &bytes, &length)) {
        trace_text_put_all(t, false, out);
        return;
    }
    size_t lines = 0;
    const char *at = bytes;
    for (const char *end; (end = strchr(at, '\n')) != NULL && lines < TRACE_LINES - 1; lines++) {
        at = end + 1;
    }
    fwrite(bytes, 1, (size_t)(at - bytes), out);
    if (*at) {
        fprintf(out, "--all prints the rest\n");
    }
    free(bytes);
}

/* ---- chain ---- */

int32_t trace_range_at(const trace *t, uint32_t thread, int64_t time)
{
    size_t low = 0, high = t->n_ranges;
    while (low < high) { /* the first range behind (thread, time) */
        size_t middle = low + (high - low) / 2;
        const trace_range *r = &t->ranges[middle];
        if (r->thread < thread || (r->thread == thread && r->begin <= time)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low > 0 && t->ranges[low - 1].thread == thread; low--) {
        if (t->ranges[low - 1].end >= time) {
            return (int32_t)low - 1;
        }
        if (t->ranges[low - 1].depth == 0) {
            break; /* all earlier ranges ended before this one began */
        }
    }
    return TRACE_NONE;
}

static void trace_text_put_when(const char *what, int64_t time, FILE *out)
{
    if (time != TRACE_UNSEEN) {
        fprintf(out, ", %s %" PRId64 ".%03" PRId64 " us", what, time / 1000, (time < 0 ? -time : time) % 1000);
    }
}

static void trace_text_put_link(const trace *t, int32_t index, bool first, FILE *out)
{
    char name[TRACE_TEXT];
    const trace_op *op = &t->ops[index];
    fprintf(out, "%s%s", first ? "" : "waited for ", trace_op_name(t, index, name));
    trace_text_put_when("submitted", op->submitted, out);
    trace_text_put_when("ready", op->ready, out);
    trace_text_put_when(op->measured ? "began" : "began with its stretch", op->began, out);
    trace_text_put_when("ended", op->ended, out);
    if (op->unknown_waits > 0) {
        fprintf(out, ", with %" PRIu32 " more waits that the trace does not have", op->unknown_waits);
    }
    int32_t range = trace_range_at(t, op->thread, op->submitted);
    fprintf(out, "%s%.80s%s\n", range != TRACE_NONE ? "; in the range '" : "",
            range != TRACE_NONE ? trace_name(t, t->ranges[range].name) : "", range != TRACE_NONE ? "'" : "");
}

static void trace_text_put_reason(const trace *t, int32_t op, FILE *out)
{
    int32_t wait = t->ops[op].held_by;
    if (wait == TRACE_NONE) {
        fprintf(out, "  the one before it in its lane:\n");
        return;
    }
    const trace_wait *w = &t->waits[wait];
    const char *label = trace_name(t, w->label);
    fprintf(out, "  %s bytes %" PRIu64 " to %" PRIu64 " of %s%.80s%s%s:\n", w->reads ? "it reads" : "it overwrites",
            w->low, w->high, label[0] ? "the buffer '" : "a buffer without a label", label, label[0] ? "'" : "",
            w->behind ? "; the next event in that lane comes only after this operation" : "");
}

bool trace_put_why(const trace *t, const char *where, FILE *out, char error[512])
{
    unsigned device = 0, lane = 0;
    unsigned long long position = 0;
    int end = 0;
    bool sense = sscanf(where, "%2u.%3u:%18llu%n", &device, &lane, &position, &end) == 3 && where[end] == 0 &&
                 lane < HDI_RECORD_LANES;
    int32_t op = sense ? trace_find_op(t, device * HDI_RECORD_LANES + lane, position) : TRACE_NONE;
    if (op == TRACE_NONE) {
        snprintf(error, 512,
                 sense ? "the trace has no operation that ends at %.60s"
                       : "'%.60s' is no operation; write DEVICE.LANE:POSITION, such as 0.1:4711",
                 where);
        return false;
    }
    int32_t chain[CHAIN_SHOWN];
    size_t n = trace_chain(t, op, chain, CHAIN_SHOWN);
    for (size_t i = 0; i < n; i++) {
        trace_text_put_link(t, chain[i], i == 0, out);
        if (i + 1 < n) {
            trace_text_put_reason(t, chain[i], out);
        }
    }
    fprintf(out,
            n == CHAIN_SHOWN ? "the chain goes on\n" : "that operation waited for nothing that the trace contains\n");
    return true;
}
