/* parts.h - shared by the files that build a trace's model. Other files include model.h.
 *
 * Threads: one at a time. Locks: none.
 * Always: a function returns false only if memory runs out. The trace counts other faults of a
 * file.
 */
#ifndef CLI_TRACE_PARTS_H
#define CLI_TRACE_PARTS_H

#include <string.h>
#include "base/text.h"
#include "cli/trace/model.h"

/* A time more than 52 days from the trace's beginning is invalid. Differences and sums of a few
 * times stay far from the type's limits. */
#define TRACE_TIME_MOST (INT64_C(1) << 52)

/* Times of two threads may be out of order by this much, because each is within 200 ns of the
 * clock. */
#define TRACE_THREADS_NS 400

enum { TRACE_DEVICES = 32, TRACE_LANE_NUMBERS = TRACE_DEVICES * HDI_RECORD_LANES };

/* The range of each lane's rows in a table. Lanes follow each other, and each lane's rows keep
 * the file's order. */
typedef struct trace_places {
    /* end: behind the last row stored */
    uint32_t begin[TRACE_LANE_NUMBERS], end[TRACE_LANE_NUMBERS];
} trace_places;

typedef enum trace_row { TRACE_ROW_SUBMIT, TRACE_ROW_ISSUE, TRACE_ROW_SPAN, TRACE_ROW_DONE, TRACE_ROWS } trace_row;

/* The operations of a lane behind `before` up to `position`, from an ISSUE, SPAN or DONE record. */
typedef struct bench_trace_run {
    uint32_t lane;
    uint8_t kind, op;
    uint8_t by_clock; /* SPAN: HDI_RECORD_SPAN_*_BY_CLOCK; the other end is in device time */
    uint32_t way;     /* SPAN: ns from the call's return to the begin on an idle device */
    uint64_t before, position;
    int64_t time, began, ended; /* SPAN: device times */
    /* SPAN, in ns of the clock: it took at most this much longer than its ends show */
    int64_t off;
    /* SPAN: its ends come from two clocks, and their offset is too uncertain for so short a span */
    bool coarse;
} bench_trace_run;

typedef struct trace_clock {
    uint8_t device;
    uint64_t run;
    /* the period in which the device time counts from one zero, by runtime and last restart */
    uint64_t era;
    int64_t time, own, within;
} trace_clock;

typedef struct trace_restart {
    uint8_t device;
    int64_t time;
} trace_restart;

/* A NAME: the meaning of a number from a time on. */
typedef struct trace_naming {
    uint8_t kind;
    uint64_t number;
    /* the runtime that gave the number; 0 for a thread, whose number comes from the system */
    uint64_t run;
    int64_t time;
    size_t order;
    char *text; /* until the names are interned */
    int32_t name;
} trace_naming;

/* A file during reading. */
typedef struct trace_source {
    const uint8_t *bytes;
    size_t n; /* whole records */
    /* The file ran out of room. Records are missing between those from first_partial to
     * last_partial. The records in this range are not read, and the trace ends before it. */
    bool is_full;
    size_t first_partial, last_partial;
    trace *t;
    int64_t begin;                    /* the trace's beginning, in hdi_clock_ns */
    uint64_t run;                     /* runtime of the current records, counted from 0 */
    uint32_t run_process, run_number; /* of that runtime, from its TRACE record */
    size_t count[HDI_RECORD_TYPES];
    trace_places *places; /* for each trace_row */
    uint32_t *waits_at,
        /* indices of WAIT and TRACE records; of records that are neither WAIT nor a trace_row */
        *others;
    size_t n_waits_at, n_others;
    bench_trace_run *issues, *spans, *dones; /* sorted by lane and position */
    size_t n_issues, n_spans, n_dones;
    trace_clock *clocks;
    trace_restart *restarts;
    size_t n_clocks, n_restarts;
    trace_naming *namings;
    size_t n_namings;
    int64_t last; /* time of the last record */
    /* By device: reports of work that began before this time may be missing. INT64_MAX: operations
     * may be missing, too, at any time. */
    int64_t incomplete_until[TRACE_DEVICES];
} trace_source;

static inline hdi_record trace_record(const trace_source *s, size_t index)
{
    hdi_record r;
    memcpy(&r, s->bytes + index * HDI_RECORD_BYTES, sizeof r);
    return r;
}
/* Returns the text behind a record, without control characters for a terminal. */
void trace_text(const trace_source *s, size_t index, char *out, size_t room);
/* Converts a clock time to ns since the beginning. An invalid time becomes TRACE_UNSEEN, and counts
 * as ignored. */
int64_t trace_time(trace_source *s, int64_t clock);
/* Returns the device of a lane, or TRACE_NONE for an invalid number. */
int trace_lane_device(uint32_t lane);
uint64_t trace_position(const trace_source *s, uint64_t position);

/* Call it before each pass over the records. The pass then starts with the first runtime. */
void trace_first_run(trace_source *s);
/* True if a TRACE record starts another runtime's records; `run` then advances. */
bool trace_next_run(trace_source *s, const hdi_record *r);
/* Returns the runtime in a position. */
static inline uint64_t trace_run_of(uint64_t position)
{
    return position >> TRACE_POSITION_BITS;
}

/* records.c: names, and the tables without lanes. */
bool trace_read_names(trace_source *s);
/* Returns the meaning of a number in the current runtime. */
int32_t trace_lookup(const trace_source *s, uint8_t kind, uint64_t number, int64_t time);
bool trace_read_tables(trace_source *s);
int32_t trace_label_of(const trace_source *s, uint32_t label, int64_t time);

/* messages.c: reads RANK and MESSAGE, and adds up the time that was lost for each message. */
void trace_read_rank(trace_source *s, const hdi_record *r);
void trace_read_message(trace_source *s, const hdi_record *r);
void trace_order_messages(trace *t);
bool trace_blame_messages(trace *t);

/* memory.c: reads ALLOC, FREE and LABEL, and joins the rows of each buffer afterwards. */
void trace_read_memory(trace_source *s, const hdi_record *r);
bool trace_join_memory(trace *t);
bool trace_sum_memory(trace *t);

/* estimate.c: when an operation ran, estimated from other operations of its kind. */
typedef struct trace_estimate {
    /* began: TRACE_UNSEEN if there is no estimate; `ended` is then an upper bound */
    int64_t began, ended;
} trace_estimate;
/* Returns one estimate for each operation, which the caller frees. NULL: out of memory. The
 * function needs the issues, the ends that the host saw, and the spans. */
trace_estimate *trace_estimates(const trace_source *s);

/* times.c */
bool trace_place(trace_source *s);

/* activities.c: gives operations the times from CUPTI, and divides stretches whose operations
 * all have one. */
bool trace_match_activities(trace_source *s);
/* True for a fill so short that the engine may have made it to see the end of work. */
bool trace_is_signal(const trace_activity *a);

bool trace_split(trace *t);
/* True if work of that kind moves bytes: copies, and kernels in copy lanes. Everything else
 * computes. Fills compute in any lane, because a stretch may mix them with launches. */
bool trace_moves(const trace *t, uint32_t lane, uint8_t kind);
bool trace_path(trace *t);
bool trace_launches(trace *t);
bool trace_figures(trace *t, const trace_peaks *peaks, char error[512]);
bool trace_find(trace *t);

/* "12.9 ms": rounded to a tenth of the unit, as on the page of `heddle report`. */
const char *trace_time_text(int64_t ns, char out[HDI_AMOUNT_BYTES]);
const char *trace_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES]);
#define TRACE_NS(ns) trace_time_text(ns, (char[HDI_AMOUNT_BYTES]){0})
#define TRACE_BYTES(bytes) trace_bytes_text(bytes, (char[HDI_AMOUNT_BYTES]){0})

/* Returns the index of a finding's id, from 0, or TRACE_NONE. */
enum { TRACE_FINDING_IDS = 21 };
int trace_finding_number(const char *id);

/* Describes a device's `in_use_rest`. */
#define TRACE_REST_TEXT "older than the trace, unified, the library's own, or freed and kept for the next buffers"

/* calloc of at least one item; NULL: out of memory. */
void *trace_table(size_t n, size_t item);

/* Works like qsort, but is stable, and fast for a table of a few sorted runs. */
void trace_sort(void *items, size_t n, size_t item, int (*compare)(const void *a, const void *b));
/* `spare` has room for n times. */
void trace_sort_times(int64_t *times, size_t n, int64_t *spare);
/* Returns the smallest of the sorted times that is at least as long as a share of them; 0 for no
 * times. */
int64_t trace_quantile(const int64_t *times, size_t n, double share);

/* The first operation of the device, or of a later one. Operations are sorted by device. */
size_t trace_first_op(const trace *t, int device);

/* The first operation of a lane that ends behind a position, or the end of the lane's
 * operations. */
size_t trace_op_behind(const trace *t, const trace_lane *lane, uint64_t position);

static inline int64_t trace_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t trace_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the end, but not a time before `begin`: times of one thread may be slightly out of
 * order. */
static inline int64_t trace_end_of(int64_t begin, int64_t end)
{
    return end < begin && end >= begin - TRACE_THREADS_NS ? begin : end;
}

/* Adds without overflow. */
static inline void trace_add(int64_t *sum, int64_t ns)
{
    if (__builtin_add_overflow(*sum, ns, sum)) {
        *sum = INT64_MAX;
    }
}

static inline void trace_count(uint64_t *sum, uint64_t amount)
{
    if (__builtin_add_overflow(*sum, amount, sum)) {
        *sum = UINT64_MAX;
    }
}

/* True if the operation keeps the device busy. */
static inline bool trace_is_work(uint8_t kind)
{
    return kind != HDI_RECORD_OP_MARK && kind != HDI_RECORD_OP_CLAIM;
}

static inline bool trace_is_copy_lane(uint8_t kind)
{
    return kind >= HDI_RECORD_LANE_IN && kind <= HDI_RECORD_LANE_PEER;
}

#endif
