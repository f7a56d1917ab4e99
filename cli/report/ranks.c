/* ranks.c - the traces of several ranks as JSON for the page: their places on one clock, the waits,
 * and the messages with the longest waits.
 *
 * Threads: the tool's first. Locks: none.
 * Always: if the traces are no ranks of one run, the page compares them instead, and the JSON tells
 * why.
 */
#include <stdlib.h>
#include "base/json.h"
#include "cli/common/report.h"
#include "cli/process.h"
#include "cli/report/parts.h"
#include "cli/trace/ranks.h"

enum { MESSAGES_MOST = 2000 };

static void report_page_ranks_put(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, value);
}

/* `files` are those of the page, whose ids contain their places. */
static void report_page_ranks_put_traces(hdi_json *j, const trace_ranks *r, const page_file *files, int n)
{
    hdi_json_key(j, "traces");
    hdi_json_array(j);
    for (int f = 0; f < r->n; f++) {
        int at = 0;
        while (at < n && files[at].traced != r->files[f]) {
            at++;
        }
        char *id = cli_format("file%d", at);
        hdi_json_object(j);
        cli_report_put_string(j, "id", id);
        report_page_ranks_put(j, "rank", r->files[f]->rank);
        report_page_ranks_put(j, "begin", trace_ranks_time(r, f, 0));
        report_page_ranks_put(j, "end", trace_ranks_time(r, f, r->files[f]->length));
        hdi_json_object_end(j);
        free(id);
    }
    hdi_json_array_end(j);
}

static int64_t report_page_ranks_wait_of(const trace_met *met)
{
    return met->received.ended - met->received.posted;
}

static int report_page_ranks_compare(const void *a, const void *b)
{
    int64_t x = report_page_ranks_wait_of(*(const trace_met *const *)a),
            y = report_page_ranks_wait_of(*(const trace_met *const *)b);
    return (x < y) - (x > y);
}

static bool report_page_ranks_put_messages(hdi_json *j, const trace_ranks *r)
{
    const trace_met **longest = malloc((r->n_met > 0 ? r->n_met : 1) * sizeof(*longest));
    if (!longest) {
        return false;
    }
    for (size_t i = 0; i < r->n_met; i++) {
        longest[i] = &r->met[i];
    }
    qsort(longest, r->n_met, sizeof(*longest), report_page_ranks_compare);
    report_page_ranks_put(j, "all_messages", (int64_t)r->n_met);
    hdi_json_key(j, "messages");
    hdi_json_array(j);
    for (size_t i = 0; i < r->n_met && i < MESSAGES_MOST; i++) {
        const trace_side *s = &longest[i]->sent, *d = &longest[i]->received;
        const trace_message *m = &r->files[d->file]->messages[d->message];
        hdi_json_object(j);
        report_page_ranks_put(j, "from", s->file);
        report_page_ranks_put(j, "to", d->file);
        report_page_ranks_put(j, "tag", m->tag);
        cli_report_put_integer(j, "bytes", m->bytes);
        report_page_ranks_put(j, "sent", s->posted);
        report_page_ranks_put(j, "received", d->ended);
        report_page_ranks_put(j, "wait", report_page_ranks_wait_of(longest[i]));
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    free(longest);
    return true;
}

/* Writes the traces of all ranks; `error` not NULL: why they are none. */
static bool report_page_ranks_write(FILE *out, const trace_ranks *r, const char *error, const page_file *files, int n)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return false;
    }
    hdi_json j;
    bool ok = true;
    hdi_json_begin(&j, memory);
    hdi_json_object(&j);
    cli_report_put_string(&j, "error", error);
    if (!error) {
        trace_ranks_put_json_members(r, &j);
        report_page_ranks_put_traces(&j, r, files, n);
        ok = report_page_ranks_put_messages(&j, r);
    }
    hdi_json_object_end(&j);
    hdi_json_end(&j);
    ok = fclose(memory) == 0 && ok;
    if (ok) {
        report_page_put_json(out, "together", text, bytes);
    }
    free(text);
    return ok;
}

bool report_page_put_ranks(FILE *out, const page_file *files, int n)
{
    trace *traces[PAGE_FILES];
    char error[512] = "";
    trace_ranks ranks;
    int n_traces = 0, of_ranks = 0;
    for (int i = 0; i < n; i++) {
        if (files[i].traced) {
            of_ranks += files[i].traced->rank != TRACE_NONE;
            traces[n_traces++] = files[i].traced;
        }
    }
    if (n_traces < 2 || of_ranks < n_traces) {
        return true;
    }
    if (!trace_ranks_make(traces, n_traces, &ranks, error)) {
        return report_page_ranks_write(out, NULL, error, files, n);
    }
    bool ok = report_page_ranks_write(out, &ranks, NULL, files, n);
    trace_ranks_release(&ranks);
    return ok;
}
