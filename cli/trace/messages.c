/* messages.c - the messages between ranks, and the waits that they explain. See model.h.
 *
 * A message is a claim. A device stood still for a message if its split names this claim. A call of
 * a thread waited for a message if the chain behind the awaited operation contains this claim.
 *
 * Threads, Locks: see model.h.
 * Always: as in read.c.
 */
#include <stdlib.h>
#include "cli/trace/parts.h"

enum { CHAIN_MOST = 64 }; /* operations of a chain that are searched for a message */

void trace_read_rank(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int64_t time = trace_time(s, r->time);
    bool sense = r->rank.ranks <= INT32_MAX && r->rank.rank < r->rank.ranks && r->rank.within >= 0 &&
                 r->rank.within <= TRACE_TIME_MOST;
    if (time == TRACE_UNSEEN || !sense) {
        t->ignored += time != TRACE_UNSEEN;
        return;
    }
    if (t->n_offsets == 0) {
        t->rank = (int32_t)r->rank.rank;
        t->ranks = (int32_t)r->rank.ranks;
        t->rank_run = r->rank.run;
    }
    t->offsets[t->n_offsets++] = (trace_offset){time, r->rank.offset, r->rank.within};
}

void trace_read_message(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    uint8_t kind = r->kind & (uint8_t)~HDI_RECORD_MESSAGE_FAILED;
    int64_t posted = trace_time(s, r->time), ready = trace_time(s, r->message.ready),
            ended = trace_time(s, r->message.ended);
    bool times = posted != TRACE_UNSEEN && ready != TRACE_UNSEEN && ended != TRACE_UNSEEN;
    if (!times || kind == 0 || kind >= HDI_RECORD_MESSAGES || ready > posted || posted > ended ||
        r->message.peer < TRACE_NONE) {
        t->ignored += times;
        return;
    }
    uint64_t position = r->message.op & ((UINT64_C(1) << HDI_RECORD_MESSAGE_POSITION_BITS) - 1);
    uint32_t lane = (uint32_t)(r->message.op >> HDI_RECORD_MESSAGE_POSITION_BITS);
    int32_t op = position ? trace_find_op(t, lane, trace_position(s, position)) : TRACE_NONE;
    bool called = op != TRACE_NONE && t->ops[op].submitted <= ready;
    t->messages[t->n_messages++] = (trace_message){.kind = kind,
                                                   .failed = (r->kind & HDI_RECORD_MESSAGE_FAILED) != 0,
                                                   .peer = r->message.peer,
                                                   .tag = r->message.tag,
                                                   .communicator = r->message.communicator,
                                                   .order = r->message.order,
                                                   .bytes = r->message.bytes,
                                                   .op = op,
                                                   .called = called ? t->ops[op].submitted : ready,
                                                   .ready = ready,
                                                   .posted = posted,
                                                   .ended = ended};
}

static int trace_messages_compare(const void *a, const void *b)
{
    const trace_message *x = a, *y = b;
    int order = (x->posted > y->posted) - (x->posted < y->posted);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int trace_messages_compare_offsets(const void *a, const void *b)
{
    const trace_offset *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

void trace_order_messages(trace *t)
{
    trace_sort(t->messages, t->n_messages, sizeof t->messages[0], trace_messages_compare);
    trace_sort(t->offsets, t->n_offsets, sizeof t->offsets[0], trace_messages_compare_offsets);
}

/* ---- waits ---- */

/* The message behind an awaited operation, or NULL. `of`: for each operation, its message. */
static trace_message *trace_messages_behind(trace *t, const int32_t *of, int32_t op)
{
    int32_t chain[CHAIN_MOST];
    size_t n = trace_chain(t, op, chain, CHAIN_MOST);
    for (size_t i = 0; i < n; i++) {
        if (of[chain[i]] != TRACE_NONE) {
            return &t->messages[of[chain[i]]];
        }
    }
    return NULL;
}

/* The part of a period in which the message was posted and had not ended. */
static int64_t trace_messages_overlap(const trace_message *m, int64_t begin, int64_t end)
{
    return trace_most(0, trace_least(end, m->ended) - trace_most(begin, m->posted));
}

static void trace_messages_blame_pieces(trace *t, const int32_t *of)
{
    for (int d = 0; d < t->n_devices; d++) {
        for (size_t i = 0; i < t->devices[d].n_pieces; i++) {
            const trace_piece *p = &t->devices[d].pieces[i];
            int32_t m = p->state == TRACE_IDLE && p->holder != TRACE_NONE ? of[p->holder] : TRACE_NONE;
            if (m != TRACE_NONE) {
                trace_add(&t->messages[m].idle, trace_messages_overlap(&t->messages[m], p->begin, p->end));
            }
        }
    }
}

bool trace_blame_messages(trace *t)
{
    if (t->n_messages == 0) {
        return true;
    }
    int32_t *of = malloc((t->n_ops > 0 ? t->n_ops : 1) * sizeof *of);
    if (!of) {
        return false;
    }
    for (size_t i = 0; i < t->n_ops; i++) {
        of[i] = TRACE_NONE;
    }
    for (size_t i = 0; i < t->n_messages; i++) {
        if (t->messages[i].op != TRACE_NONE) {
            of[t->messages[i].op] = (int32_t)i;
        }
    }
    trace_messages_blame_pieces(t, of);
    for (size_t i = 0; i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        int32_t op = p->kind == HDI_RECORD_PAUSE_WAIT ? trace_find_op(t, p->lane, p->position) : TRACE_NONE;
        trace_message *m = op != TRACE_NONE ? trace_messages_behind(t, of, op) : NULL;
        if (m) {
            trace_add(&m->blocked, trace_messages_overlap(m, p->begin, p->end));
        }
    }
    free(of);
    return true;
}
