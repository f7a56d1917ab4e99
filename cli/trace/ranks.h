/* ranks.h - the traces of several ranks on one clock: who waited for which message.
 *
 *    ranks.c        one clock, the two sides of each message, waits
 *    ranks_text.c   text
 *    ranks_json.c   JSON
 *
 * MPI matches messages with the same communicator, sender, receiver and tag in the order in which
 * both sides post them. So the k-th send meets the k-th receive. In the same way, the k-th
 * collective operation of a communicator on one rank meets the k-th of every other rank.
 *
 * Threads: one at a time. Locks: none.
 * Always: times are nanoseconds of rank 0's clock since the beginning of the earliest trace. The
 * parts of a wait add up to the wait.
 */
#ifndef CLI_TRACE_RANKS_H
#define CLI_TRACE_RANKS_H

#include <stdio.h>
#include "cli/trace/model.h"

/* The reasons why a receive waited: the steps that the sender had not done yet. For a send or a
 * collective operation: the steps of the other side. */
typedef enum trace_lag {
    TRACE_LAG_CALL,  /* the program had not made the call */
    TRACE_LAG_BYTES, /* the bytes were not ready, or not free */
    TRACE_LAG_TURN,  /* earlier messages, or the copy to pinned memory */
    TRACE_LAG_WAY,   /* nothing: the message was on its way */
    TRACE_LAGS
} trace_lag;

/* A message of one side, with its times on the common clock. */
typedef struct trace_side {
    int32_t file, message; /* the index of the trace and of its message */
    int64_t called, ready, posted, ended;
} trace_side;

typedef struct trace_met {
    trace_side sent, received;
    int64_t way; /* ns from the later one of both posts to the end of the receive */
} trace_met;

/* Waits with the same ranks, kind, communicator and tag. A rank that waits for two messages at the
 * same time waits once: the later one counts from the end of the earlier one. */
typedef struct trace_waited {
    int32_t rank, other; /* the rank that waited, and the rank for which it waited */
    uint8_t kind;        /* HDI_RECORD_MESSAGE_* of the rank that waited */
    int32_t tag;
    uint32_t communicator;
    uint64_t count, bytes;
    int64_t wait, lag[TRACE_LAGS];
    int64_t idle, blocked; /* only of receives: as in trace_message */
    int64_t longest, longest_at;
} trace_waited;

typedef struct trace_ranks {
    trace *const *files; /* sorted by rank */
    int n;
    int32_t ranks;
    int64_t zero;         /* time 0, on rank 0's clock */
    int64_t length;       /* from time 0 to the end of the last trace */
    trace_met *met;       /* sorted by the end of the receive */
    trace_waited *waited; /* sorted by wait, longest first */
    size_t n_met, n_waited;
    /* messages whose other side is not in the files; pairs that ended before they began */
    uint64_t lone_sends, lone_receives, lone_collectives, senseless;
    uint64_t missing;        /* messages for which the traces lack records */
    int64_t within;          /* the largest error of a clock */
    uint32_t *communicators; /* the numbers of all communicators, sorted */
    size_t n_communicators;
} trace_ranks;

/* Puts the traces on one clock. `out` keeps using `files`. False: `error` is one line. */
bool trace_ranks_make(trace **files, int n, trace_ranks *out, char error[512]);
void trace_ranks_release(trace_ranks *r);

/* Converts a time of a trace to the common clock. */
int64_t trace_ranks_time(const trace_ranks *r, int file, int64_t time);

const char *trace_message_text(uint8_t kind); /* "send" */
/* 1 for the first of the communicators, and so on. */
size_t trace_ranks_communicator(const trace_ranks *r, uint32_t number);

void trace_ranks_put_text(const trace_ranks *r, bool all, FILE *out);
void trace_ranks_put_json(const trace_ranks *r, FILE *out);
/* Chrome's JSON format, with the processes of all ranks. */
void trace_ranks_export_chrome(const trace_ranks *r, FILE *out);
/* The members of the object of trace_ranks_put_json about all ranks together, without the
 * messages. */
struct hdi_json;
void trace_ranks_put_json_members(const trace_ranks *r, struct hdi_json *j);

#endif
