/* ranks_json.c - prints the traces of several ranks as JSON: clocks, waits, messages, each trace.
 *
 * Threads, Locks: see ranks.h.
 * Always: times are integers of nanoseconds on the common clock. Within the object of one trace,
 * they are as in its own JSON.
 */
#include "base/json.h"
#include "cli/trace/output.h"
#include "cli/trace/ranks.h"

static void trace_ranks_json_put(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, value);
}

static void trace_ranks_json_put_count(hdi_json *j, const char *key, uint64_t value)
{
    trace_ranks_json_put(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void trace_ranks_json_put_waits(hdi_json *j, const trace_ranks *r)
{
    hdi_json_key(j, "waits");
    hdi_json_array(j);
    for (size_t i = 0; i < r->n_waited; i++) {
        const trace_waited *w = &r->waited[i];
        hdi_json_object(j);
        trace_ranks_json_put(j, "rank", w->rank);
        trace_ranks_json_put(j, "for_rank", w->other);
        hdi_json_key(j, "kind");
        hdi_json_string(j, trace_message_text(w->kind));
        trace_ranks_json_put(j, "tag", w->tag);
        trace_ranks_json_put_count(j, "communicator", trace_ranks_communicator(r, w->communicator));
        trace_ranks_json_put_count(j, "count", w->count);
        trace_ranks_json_put_count(j, "bytes", w->bytes);
        trace_ranks_json_put(j, "wait_ns", w->wait);
        for (int lag = 0; lag < TRACE_LAGS; lag++) {
            static const char *const keys[TRACE_LAGS] = {"until_call_ns", "until_ready_ns", "until_posted_ns",
                                                         "on_the_way_ns"};
            trace_ranks_json_put(j, keys[lag], w->lag[lag]);
        }
        trace_ranks_json_put(j, "devices_idle_ns", w->idle);
        trace_ranks_json_put(j, "threads_blocked_ns", w->blocked);
        trace_ranks_json_put(j, "longest_ns", w->longest);
        trace_ranks_json_put(j, "longest_begin_ns", w->longest_at);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_ranks_json_put_side(hdi_json *j, const trace_ranks *r, const char *key, const trace_side *s)
{
    const trace *t = r->files[s->file];
    const trace_message *m = &t->messages[s->message];
    hdi_json_key(j, key);
    hdi_json_object(j);
    trace_ranks_json_put(j, "rank", t->rank);
    trace_ranks_json_put_count(j, "bytes", m->bytes);
    hdi_json_key(j, "failed");
    hdi_json_bool(j, m->failed);
    trace_ranks_json_put(j, "called_ns", s->called);
    trace_ranks_json_put(j, "ready_ns", s->ready);
    trace_ranks_json_put(j, "posted_ns", s->posted);
    trace_ranks_json_put(j, "ended_ns", s->ended);
    hdi_json_object_end(j);
}

static void trace_ranks_json_put_messages(hdi_json *j, const trace_ranks *r)
{
    hdi_json_key(j, "messages");
    hdi_json_array(j);
    for (size_t i = 0; i < r->n_met; i++) {
        const trace_met *met = &r->met[i];
        const trace_message *m = &r->files[met->received.file]->messages[met->received.message];
        hdi_json_object(j);
        trace_ranks_json_put(j, "tag", m->tag);
        trace_ranks_json_put_count(j, "communicator", trace_ranks_communicator(r, m->communicator));
        trace_ranks_json_put_side(j, r, "send", &met->sent);
        trace_ranks_json_put_side(j, r, "receive", &met->received);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void trace_ranks_json_put_traces(hdi_json *j, const trace_ranks *r)
{
    hdi_json_key(j, "traces");
    hdi_json_array(j);
    for (int f = 0; f < r->n; f++) {
        const trace *t = r->files[f];
        hdi_json_object(j);
        trace_ranks_json_put(j, "rank", t->rank);
        trace_ranks_json_put(j, "begins_at_ns", trace_ranks_time(r, f, 0));
        trace_ranks_json_put(j, "clock_ns", t->clock); /* the clock of this rank at that time */
        trace_put_json_members(t, j);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void trace_ranks_put_json_members(const trace_ranks *r, struct hdi_json *j)
{
    trace_ranks_json_put(j, "ranks", r->ranks);
    trace_ranks_json_put(j, "length_ns", r->length);
    trace_ranks_json_put(j, "clocks_within_ns", r->within);
    trace_ranks_json_put_count(j, "messages_missing", r->missing);
    trace_ranks_json_put_count(j, "sends_without_receive", r->lone_sends);
    trace_ranks_json_put_count(j, "receives_without_send", r->lone_receives);
    trace_ranks_json_put_count(j, "collectives_alone", r->lone_collectives);
    trace_ranks_json_put_count(j, "messages_without_sense", r->senseless);
    trace_ranks_json_put_waits(j, r);
}

void trace_ranks_put_json(const trace_ranks *r, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    trace_ranks_put_json_members(r, &j);
    trace_ranks_json_put_messages(&j, r);
    trace_ranks_json_put_traces(&j, r);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
