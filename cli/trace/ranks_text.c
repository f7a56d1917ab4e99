/* ranks_text.c - prints the traces of several ranks as text: a line for each device, and the
 * longest waits for messages.
 *
 * Threads, Locks: see ranks.h.
 * Always: the text lists missing ranks and records in front of the figures.
 */
#include <inttypes.h>
#include <string.h>
#include "cli/trace/parts.h"
#include "cli/trace/ranks.h"

enum { LINES_SHOWN = 16, WAITS_SHOWN = 8 };

/* ---- head ---- */

/* Names the ranks without a file: "1, 2 and 5 more". */
static void trace_ranks_put_absent(const trace_ranks *r, FILE *out)
{
    enum { NAMED = 8 };
    int32_t absent = r->ranks - r->n, named = 0;
    if (absent <= 0) {
        return;
    }
    fprintf(out, "note: there is no file of rank");
    for (int32_t rank = 0, f = 0; rank < r->ranks && named < NAMED; rank++) {
        if (f < r->n && r->files[f]->rank == rank) {
            f++;
            continue;
        }
        fprintf(out, "%s %" PRId32, named > 0 ? "," : "", rank);
        named++;
    }
    if (absent > named) {
        fprintf(out, " and %" PRId32 " more", absent - named);
    }
    fprintf(out, "; waits for messages of these ranks are not in the list\n");
}

static void trace_ranks_put_notes(const trace_ranks *r, FILE *out)
{
    trace_ranks_put_absent(r, out);
    if (r->missing > 0) {
        fprintf(out,
                "note: the files lack %" PRIu64 " messages that had no room; later messages may meet the wrong ones\n",
                r->missing);
    }
    if (r->lone_sends + r->lone_receives + r->lone_collectives > 0) {
        fprintf(out,
                "note: the other side of %" PRIu64 " sends, %" PRIu64 " receives and %" PRIu64
                " collective operations is not in the files; it may be a call of MPI itself\n",
                r->lone_sends, r->lone_receives, r->lone_collectives);
    }
    if (r->senseless > 0) {
        fprintf(out,
                "note: %" PRIu64 " messages would have arrived before they were sent; begin the traces of all ranks "
                "before the first message\n",
                r->senseless);
    }
    for (int f = 0; f < r->n; f++) {
        const trace *t = r->files[f];
        if (t->dropped > 0 || t->ignored > 0 || !t->ended) {
            fprintf(out, "note: the trace of rank %" PRId32 " is not complete; `heddle trace %s` tells why\n", t->rank,
                    t->file);
        }
    }
}

/* ---- ranks ---- */

static double trace_ranks_percent(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part * 100 / (double)whole : 0;
}

static void trace_ranks_put_device(const trace *t, int d, FILE *out)
{
    const trace_device *x = &t->devices[d];
    int64_t window = x->end - x->begin;
    fprintf(out, "%6" PRId32 " %6d %8.1f %% %7.1f %% %7.1f %%", t->rank, d, trace_ranks_percent(x->compute, window),
            trace_ranks_percent(x->transfer, window), trace_ranks_percent(x->idle, window));
    if (x->cause[TRACE_CAUSE_CLAIM] > 0) {
        fprintf(out, "   claim %.1f %%", trace_ranks_percent(x->cause[TRACE_CAUSE_CLAIM], window));
    }
    fprintf(out, "\n");
}

static void trace_ranks_put_devices(const trace_ranks *r, bool all, FILE *out)
{
    size_t lines = 0, more = 0;
    fprintf(out, "  rank device   compute  transfer      idle\n");
    for (int f = 0; f < r->n; f++) {
        for (int d = 0; d < r->files[f]->n_devices; d++) {
            if (!all && lines == LINES_SHOWN) {
                more++;
                continue;
            }
            trace_ranks_put_device(r->files[f], d, out);
            lines++;
        }
    }
    if (more > 0) {
        fprintf(out, "  and %zu more\n", more);
    }
}

/* ---- waits ---- */

/* "40 messages of rank 1, tag 7" */
static void trace_ranks_put_what(const trace_ranks *r, const trace_waited *w, FILE *out)
{
    const char *plural = w->count == 1 ? "" : "s";
    if (w->kind == HDI_RECORD_MESSAGE_RECEIVE) {
        fprintf(out, "for %" PRIu64 " message%s of rank %" PRId32 ", tag %" PRId32, w->count, plural, w->other, w->tag);
    } else if (w->kind == HDI_RECORD_MESSAGE_SEND) {
        fprintf(out, "until rank %" PRId32 " took %" PRIu64 " message%s, tag %" PRId32, w->other, w->count, plural,
                w->tag);
    } else {
        fprintf(out, "for rank %" PRId32 " in %" PRIu64 " %s%s", w->other, w->count, trace_message_text(w->kind),
                plural);
    }
    if (r->n_communicators > 1) {
        fprintf(out, ", communicator %zu", trace_ranks_communicator(r, w->communicator));
    }
    if (w->bytes > 0) {
        fprintf(out, " (%s)", TRACE_BYTES(w->bytes));
    }
}

/* ": 8.1 ms until it made the call, 0.1 ms on the way" */
static void trace_ranks_put_lags(const trace_waited *w, FILE *out)
{
    static const char *const texts[TRACE_LAGS] = {"until its call", "until its bytes were ready", "until it was posted",
                                                  "on the way"};
    static const char *const receiver[TRACE_LAGS] = {"until its call", "until its memory was free",
                                                     "until it was posted", "on the way"};
    const char *comma = ":";
    for (int lag = 0; lag < TRACE_LAGS; lag++) {
        if (w->lag[lag] > 0) {
            fprintf(out, "%s %s %s", comma, TRACE_NS(w->lag[lag]),
                    (w->kind == HDI_RECORD_MESSAGE_SEND ? receiver : texts)[lag]);
            comma = ",";
        }
    }
    if (w->idle > 0) {
        fprintf(out, "; devices idle %s", TRACE_NS(w->idle));
    }
    if (w->blocked > 0) {
        fprintf(out, "; threads blocked %s", TRACE_NS(w->blocked));
    }
}

static void trace_ranks_put_waits(const trace_ranks *r, bool all, FILE *out)
{
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < r->n_waited; i++) {
        const trace_waited *w = &r->waited[i];
        if (w->wait == 0) {
            continue;
        }
        if (!all && shown == WAITS_SHOWN) {
            more++;
            continue;
        }
        if (shown++ == 0) {
            fprintf(out, "waits for messages, longest first:\n");
        }
        fprintf(out, "  rank %" PRId32 " waited %s ", w->rank, TRACE_NS(w->wait));
        trace_ranks_put_what(r, w, out);
        trace_ranks_put_lags(w, out);
        fprintf(out, "\n");
    }
    if (shown == 0) {
        fprintf(out, "waits for messages: none\n");
    }
    if (more > 0) {
        fprintf(out, "  and %zu more\n", more);
    }
}

void trace_ranks_put_text(const trace_ranks *r, bool all, FILE *out)
{
    fprintf(out, "%d of %" PRId32 " ranks on one clock, %s, %zu messages with both sides\n", r->n, r->ranks,
            TRACE_NS(r->length), r->n_met);
    if (r->within > 0) {
        fprintf(out, "clocks of ranks are at most %s off\n", TRACE_NS(r->within));
    }
    trace_ranks_put_notes(r, out);
    trace_ranks_put_devices(r, all, out);
    trace_ranks_put_waits(r, all, out);
}
