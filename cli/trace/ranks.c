/* ranks.c - see ranks.h for threads, locks and invariants. */
#include "cli/trace/ranks.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/process.h"
#include "cli/trace/parts.h"

/* Clocks and offsets beyond this make no sense: it is 73 years. */
#define CLOCK_MOST (INT64_C(1) << 61)

const char *trace_message_text(uint8_t kind)
{
    static const char *const texts[HDI_RECORD_MESSAGES] = {"",          "send",      "receive",  "broadcast", "reduce",
                                                           "allreduce", "allgather", "alltoall", "barrier"};
    return kind < HDI_RECORD_MESSAGES ? texts[kind] : "";
}

/* ---- one clock ---- */

/* The offset of a trace's clock at a time. Between two measurements it changes at a constant
 * rate. */
static int64_t trace_ranks_offset(const trace *t, int64_t time)
{
    size_t at = 0, high = t->n_offsets;
    while (at < high) { /* the first measurement behind the time */
        size_t middle = at + (high - at) / 2;
        if (t->offsets[middle].time <= time) {
            at = middle + 1;
        } else {
            high = middle;
        }
    }
    if (at == 0 || at == t->n_offsets) {
        return t->offsets[at == 0 ? 0 : at - 1].offset;
    }
    const trace_offset *x = &t->offsets[at - 1], *y = &t->offsets[at];
    double share = (double)(time - x->time) / (double)(y->time - x->time);
    return x->offset + (int64_t)((double)(y->offset - x->offset) * share);
}

int64_t trace_ranks_time(const trace_ranks *r, int file, int64_t time)
{
    const trace *t = r->files[file];
    return t->clock + time + trace_ranks_offset(t, time) - r->zero;
}

static bool trace_ranks_clock_has_sense(const trace *t)
{
    bool sense = t->clock > -CLOCK_MOST && t->clock < CLOCK_MOST;
    for (size_t i = 0; sense && i < t->n_offsets; i++) {
        int64_t offset = t->offsets[i].offset;
        sense = offset > -CLOCK_MOST && offset < CLOCK_MOST &&
                (i == 0 || (offset - t->offsets[i - 1].offset < TRACE_TIME_MOST &&
                            t->offsets[i - 1].offset - offset < TRACE_TIME_MOST));
    }
    return sense;
}

/* Finds the time 0. False: the traces are too far apart to belong together. */
static bool trace_ranks_set_zero(trace_ranks *r, char *error)
{
    for (int f = 0; f < r->n; f++) {
        const trace *t = r->files[f];
        if (!trace_ranks_clock_has_sense(t)) {
            snprintf(error, 512, "%s: its clock makes no sense; the file is damaged", t->file);
            return false;
        }
        int64_t begin = t->clock + trace_ranks_offset(t, 0);
        r->zero = f == 0 || begin < r->zero ? begin : r->zero;
        for (size_t i = 0; i < t->n_offsets; i++) {
            r->within = trace_most(r->within, t->offsets[i].within);
        }
    }
    for (int f = 0; f < r->n; f++) {
        if (r->files[f]->clock + trace_ranks_offset(r->files[f], 0) - r->zero > TRACE_TIME_MOST) {
            snprintf(error, 512, "%s begins more than 52 days after another trace; give files of one run",
                     r->files[f]->file);
            return false;
        }
        r->length = trace_most(r->length, trace_ranks_time(r, f, r->files[f]->length));
    }
    return true;
}

static int trace_ranks_compare_files(const void *a, const void *b)
{
    const trace *x = *(trace *const *)a, *y = *(trace *const *)b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Checks that the files are different ranks of one run. */
static bool trace_ranks_check(trace *const *files, int n, char *error)
{
    for (int i = 1; i < n; i++) {
        const trace *first = files[0], *before = files[i - 1], *t = files[i];
        if (t->rank_run != first->rank_run || t->ranks != first->ranks) {
            snprintf(error, 512, "%.150s and %.150s are of different runs; give the files of one run", first->file,
                     t->file);
            return false;
        }
        if (t->rank == before->rank) {
            snprintf(error, 512, "%.150s and %.150s are both of rank %" PRId32 "; give one file for each rank",
                     before->file, t->file, t->rank);
            return false;
        }
    }
    return true;
}

/* ---- both sides of a message ---- */

/* A message, by the stream to which it belongs. `number`: of a collective operation, its number in
 * the communicator. */
typedef struct entry {
    uint32_t communicator;
    int32_t from, to, tag;
    size_t number;
    uint8_t kind;
    int32_t file, message;
} entry;

static int trace_ranks_compare_streams(const entry *x, const entry *y)
{
    int order = (x->communicator > y->communicator) - (x->communicator < y->communicator);
    order = order ? order : (x->from > y->from) - (x->from < y->from);
    order = order ? order : (x->to > y->to) - (x->to < y->to);
    return order ? order : (x->tag > y->tag) - (x->tag < y->tag);
}

/* Streams follow each other. In each, the sends come first, in the order of posting. */
static int trace_ranks_compare_messages(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = trace_ranks_compare_streams(x, y);
    order = order ? order : (x->kind > y->kind) - (x->kind < y->kind);
    return order ? order : (x->message > y->message) - (x->message < y->message);
}

/* Operations of one communicator with one number follow each other. */
static int trace_ranks_compare_collectives(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = (x->communicator > y->communicator) - (x->communicator < y->communicator);
    order = order ? order : (x->number > y->number) - (x->number < y->number);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

static trace_side trace_ranks_side(const trace_ranks *r, const entry *e)
{
    const trace_message *m = &r->files[e->file]->messages[e->message];
    trace_side s = {.file = e->file, .message = e->message};
    s.called = trace_ranks_time(r, e->file, m->called);
    s.ready = trace_ranks_time(r, e->file, m->ready);
    s.posted = trace_ranks_time(r, e->file, m->posted);
    s.ended = trace_ranks_time(r, e->file, m->ended);
    return s;
}

static bool trace_ranks_has_rank(const trace_ranks *r, int32_t rank)
{
    for (int f = 0; f < r->n; f++) {
        if (r->files[f]->rank == rank) {
            return true;
        }
    }
    return false;
}

/* Pairs the sends and receives of one stream. */
static void trace_ranks_pair(trace_ranks *r, const entry *stream, size_t n)
{
    size_t sends = 0;
    while (sends < n && stream[sends].kind == HDI_RECORD_MESSAGE_SEND) {
        sends++;
    }
    size_t receives = n - sends, pairs = sends < receives ? sends : receives;
    for (size_t i = 0; i < pairs; i++) {
        trace_met met = {.sent = trace_ranks_side(r, &stream[i]), .received = trace_ranks_side(r, &stream[sends + i])};
        met.way = trace_most(0, met.received.ended - trace_most(met.sent.posted, met.received.posted));
        if (met.received.ended + 2 * r->within < met.sent.posted) {
            r->senseless++;
        } else {
            r->met[r->n_met++] = met;
        }
    }
    r->lone_sends += trace_ranks_has_rank(r, stream[0].to) ? sends - pairs : 0;
    r->lone_receives += trace_ranks_has_rank(r, stream[0].from) ? receives - pairs : 0;
}

static int trace_ranks_compare_met(const void *a, const void *b)
{
    const trace_met *x = a, *y = b;
    return (x->received.ended > y->received.ended) - (x->received.ended < y->received.ended);
}

/* ---- waits ---- */

/* A rank waited for another one. */
typedef struct wait {
    trace_waited key; /* only the fields that distinguish waits */
    int64_t begin, end;
    int64_t called, ready, posted; /* the times of the other side */
    uint64_t bytes;
    int64_t idle, blocked;
} wait;

static int trace_ranks_compare_keys(const trace_waited *x, const trace_waited *y)
{
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    order = order ? order : (x->other > y->other) - (x->other < y->other);
    order = order ? order : (x->kind > y->kind) - (x->kind < y->kind);
    order = order ? order : (x->communicator > y->communicator) - (x->communicator < y->communicator);
    return order ? order : (x->tag > y->tag) - (x->tag < y->tag);
}

static int trace_ranks_compare_waits(const void *a, const void *b)
{
    const wait *x = a, *y = b;
    int order = trace_ranks_compare_keys(&x->key, &y->key);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

static int trace_ranks_compare_waited(const void *a, const void *b)
{
    const trace_waited *x = a, *y = b;
    return x->wait != y->wait ? (x->wait > y->wait ? -1 : 1) : trace_ranks_compare_keys(x, y);
}

static wait trace_ranks_wait(const trace_ranks *r, const trace_side *own, const trace_side *other, int64_t end)
{
    const trace_message *m = &r->files[own->file]->messages[own->message];
    return (wait){.key = {.rank = r->files[own->file]->rank,
                          .other = r->files[other->file]->rank,
                          .kind = m->kind,
                          .communicator = m->communicator,
                          .tag = m->kind <= HDI_RECORD_MESSAGE_RECEIVE ? m->tag : 0},
                  .begin = own->posted,
                  .end = trace_most(own->posted, end),
                  .called = other->called,
                  .ready = other->ready,
                  .posted = other->posted,
                  .bytes = m->bytes,
                  .idle = m->kind == HDI_RECORD_MESSAGE_RECEIVE ? m->idle : 0,
                  .blocked = m->kind == HDI_RECORD_MESSAGE_RECEIVE ? m->blocked : 0};
}

/* Adds the part of a wait that lies behind `from`. */
static void trace_ranks_add_wait(trace_waited *row, const wait *w, int64_t from)
{
    int64_t begin = trace_most(w->begin, from), end = trace_most(w->end, begin);
    const int64_t steps[TRACE_LAGS] = {w->called, w->ready, w->posted, end};
    int64_t at = begin;
    for (int lag = 0; lag < TRACE_LAGS; lag++) {
        int64_t until = trace_most(at, trace_least(steps[lag], end));
        trace_add(&row->lag[lag], until - at);
        at = until;
    }
    if (end - begin > row->longest) {
        row->longest = end - begin;
        row->longest_at = begin;
    }
    trace_add(&row->wait, end - begin);
    trace_add(&row->idle, w->idle);
    trace_add(&row->blocked, w->blocked);
    trace_count(&row->bytes, w->bytes);
    row->count++;
}

static bool trace_ranks_fold(trace_ranks *r, wait *waits, size_t n)
{
    r->waited = trace_table(n, sizeof r->waited[0]);
    if (!r->waited) {
        return false;
    }
    trace_sort(waits, n, sizeof *waits, trace_ranks_compare_waits);
    int64_t until = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || trace_ranks_compare_keys(&waits[i - 1].key, &waits[i].key) != 0) {
            r->waited[r->n_waited++] = waits[i].key;
            until = INT64_MIN;
        }
        trace_ranks_add_wait(&r->waited[r->n_waited - 1], &waits[i], until);
        until = trace_most(until, waits[i].end);
    }
    trace_sort(r->waited, r->n_waited, sizeof r->waited[0], trace_ranks_compare_waited);
    return true;
}

/* The waits of one collective operation: all entries have one communicator and number. Returns how
 * many there are. */
static size_t trace_ranks_wait_together(trace_ranks *r, const entry *e, size_t n, wait *out)
{
    size_t waits = 0, last = 0;
    bool rooted = e[0].kind == HDI_RECORD_MESSAGE_BCAST || e[0].kind == HDI_RECORD_MESSAGE_REDUCE;
    int32_t root = r->files[e[0].file]->messages[e[0].message].peer;
    trace_side late = trace_ranks_side(r, &e[0]);
    for (size_t i = 0; i < n; i++) {
        trace_side s = trace_ranks_side(r, &e[i]);
        if (e[i].kind != e[0].kind) {
            r->senseless++;
            return 0;
        }
        if (e[i].kind == HDI_RECORD_MESSAGE_BCAST ? r->files[s.file]->rank == root : s.posted > late.posted) {
            late = s;
            last = i;
        }
    }
    r->lone_collectives += n == 1 && r->ranks > 1;
    for (size_t i = 0; i < n; i++) {
        trace_side s = trace_ranks_side(r, &e[i]);
        bool waits_here = !rooted || (e[0].kind == HDI_RECORD_MESSAGE_BCAST ? r->files[late.file]->rank == root
                                                                            : r->files[s.file]->rank == root);
        if (i != last && waits_here) {
            out[waits++] = trace_ranks_wait(r, &s, &late, trace_least(s.ended, late.posted));
        }
    }
    return waits;
}

static bool trace_ranks_find_waits(trace_ranks *r, const entry *together, size_t n)
{
    wait *waits = trace_table(2 * r->n_met + n, sizeof *waits);
    size_t n_waits = 0;
    if (!waits) {
        return false;
    }
    for (size_t i = 0; i < r->n_met; i++) {
        const trace_side *s = &r->met[i].sent, *d = &r->met[i].received;
        waits[n_waits++] = trace_ranks_wait(r, d, s, d->ended);
        if (d->posted > s->posted) {
            waits[n_waits++] = trace_ranks_wait(r, s, d, trace_least(s->ended, d->posted));
        }
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && together[end].communicator == together[i].communicator &&
                      together[end].number == together[i].number;
             end++) {
        }
        n_waits += trace_ranks_wait_together(r, together + i, end - i, waits + n_waits);
    }
    bool ok = trace_ranks_fold(r, waits, n_waits);
    free(waits);
    return ok;
}

/* ---- all messages ---- */

static int trace_ranks_compare_numbers(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

size_t trace_ranks_communicator(const trace_ranks *r, uint32_t number)
{
    const uint32_t *found =
        bsearch(&number, r->communicators, r->n_communicators, sizeof number, trace_ranks_compare_numbers);
    return found ? (size_t)(found - r->communicators) + 1 : 0;
}

/* Lists the communicators. `messages`: of all traces together. */
static bool trace_ranks_list_communicators(trace_ranks *r, size_t messages)
{
    uint32_t *all = trace_table(messages, sizeof *all);
    size_t n = 0;
    if (!all) {
        return false;
    }
    for (int f = 0; f < r->n; f++) {
        for (size_t i = 0; i < r->files[f]->n_messages; i++) {
            all[n++] = r->files[f]->messages[i].communicator;
        }
    }
    trace_sort(all, n, sizeof *all, trace_ranks_compare_numbers);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || all[i] != all[i - 1]) {
            all[r->n_communicators++] = all[i];
        }
    }
    r->communicators = all;
    return true;
}

/* Counts the messages that a trace lacks between those that it has. With several links, the numbers
 * of their messages repeat, and the function counts none. */
static uint64_t trace_ranks_missing(const trace *t)
{
    uint64_t most = 0, least = UINT64_MAX, n = 0;
    for (size_t i = 0; i < t->n_messages; i++) {
        uint64_t order = t->messages[i].order;
        n += order > 0;
        most = order > most ? order : most;
        least = order > 0 && order < least ? order : least;
    }
    return n > 0 && most - least + 1 > n ? most - least + 1 - n : 0;
}

/* Fills the tables of messages and of collective operations. *numbers: for each communicator, room
 * for a count. */
static void trace_ranks_list(trace_ranks *r, entry *messages, size_t *n, entry *together, size_t *n_together,
                             size_t *numbers)
{
    for (int f = 0; f < r->n; f++) {
        const trace *t = r->files[f];
        memset(numbers, 0, r->n_communicators * sizeof *numbers);
        r->missing += trace_ranks_missing(t);
        for (size_t i = 0; i < t->n_messages; i++) {
            const trace_message *m = &t->messages[i];
            entry e = {.communicator = m->communicator, .kind = m->kind, .file = f, .message = (int32_t)i};
            bool sends = m->kind == HDI_RECORD_MESSAGE_SEND;
            if (m->kind >= HDI_RECORD_MESSAGE_BCAST) {
                e.number = numbers[trace_ranks_communicator(r, m->communicator) - 1]++;
                together[(*n_together)++] = e;
            } else if (m->order > 0 && m->peer != TRACE_NONE) {
                e.from = sends ? t->rank : m->peer;
                e.to = sends ? m->peer : t->rank;
                e.tag = m->tag;
                messages[(*n)++] = e;
            }
        }
    }
    trace_sort(messages, *n, sizeof *messages, trace_ranks_compare_messages);
    trace_sort(together, *n_together, sizeof *together, trace_ranks_compare_collectives);
}

static bool trace_ranks_match(trace_ranks *r)
{
    size_t most = 0, n = 0, n_together = 0;
    for (int f = 0; f < r->n; f++) {
        most += r->files[f]->n_messages;
    }
    entry *messages = trace_table(most, sizeof *messages), *together = trace_table(most, sizeof *together);
    r->met = trace_table(most / 2, sizeof r->met[0]);
    bool ok = messages && together && r->met && trace_ranks_list_communicators(r, most);
    size_t *numbers = ok ? trace_table(r->n_communicators, sizeof *numbers) : NULL;
    if (numbers) {
        trace_ranks_list(r, messages, &n, together, &n_together, numbers);
        for (size_t i = 0, end; i < n; i = end) {
            for (end = i; end < n && trace_ranks_compare_streams(&messages[end], &messages[i]) == 0; end++) {
            }
            trace_ranks_pair(r, messages + i, end - i);
        }
        trace_sort(r->met, r->n_met, sizeof r->met[0], trace_ranks_compare_met);
    }
    ok = numbers && trace_ranks_find_waits(r, together, n_together);
    free(numbers);
    free(messages);
    free(together);
    return ok;
}

bool trace_ranks_make(trace **files, int n, trace_ranks *out, char error[512])
{
    trace_sort(files, (size_t)n, sizeof *files, trace_ranks_compare_files);
    *out = (trace_ranks){.files = files, .n = n, .ranks = files[0]->ranks};
    if (!trace_ranks_check(files, n, error) || !trace_ranks_set_zero(out, error)) {
        return false;
    }
    if (!trace_ranks_match(out)) {
        snprintf(error, 512, "there is no memory for the messages of %d traces", n);
        trace_ranks_release(out);
        return false;
    }
    return true;
}

void trace_ranks_release(trace_ranks *r)
{
    free(r->met);
    free(r->waited);
    free(r->communicators);
    *r = (trace_ranks){.n = 0};
}
