/* parts.h - what the files that make a trace's model share among themselves. model.h is what others see.
 *
 * Threads: one at a time. Locks: none.
 * Always: a function that returns false has found no memory; the rest of a file's trouble is counted in the trace.
 */
#ifndef CLI_TRACE_PARTS_H
#define CLI_TRACE_PARTS_H

#include <string.h>
#include "base/text.h"
#include "cli/trace/model.h"

/* Beyond this many ns from the trace's beginning a time is no time: 52 days. Differences and a few sums stay far from the type's limits. */
#define TRACE_TIME_MOST (INT64_C(1) << 52)

/* Two times of threads may be out of order by so much, since each is within 200 ns of the clock. */
#define TRACE_THREADS_NS 400

enum { TRACE_DEVICES = 32, TRACE_LANE_NUMBERS = TRACE_DEVICES * HDI_RECORD_LANES };

/* Where the rows of each lane are put in a table: lanes behind each other, each one's rows as they come. */
typedef struct trace_places {
    uint32_t begin[TRACE_LANE_NUMBERS], end[TRACE_LANE_NUMBERS]; /* end: of those that were put */
} trace_places;

typedef enum trace_row { TRACE_ROW_SUBMIT, TRACE_ROW_ISSUE, TRACE_ROW_SPAN, TRACE_ROW_DONE, TRACE_ROWS } trace_row;

/* Operations of a lane from behind `before` up to `position`, as ISSUE, SPAN and DONE have them. */
typedef struct trace_run {
    uint32_t lane;
    uint8_t kind, op;
    uint8_t by_clock; /* of SPAN: HDI_RECORD_SPAN_*_BY_CLOCK; the other end is in the device's own time */
    uint32_t way;     /* of SPAN: from the return of the call to the begin on a device at rest */
    uint64_t before, position;
    int64_t time, began, ended; /* of SPAN the device's own times */
    int64_t off; /* of SPAN, of the clock: it may have taken so much longer than its ends show, at most */
    bool coarse; /* of SPAN: its ends are of two clocks, whose comparison is too far off for its length */
} trace_run;

typedef struct trace_clock {
    uint8_t device;
    uint64_t run;
    uint64_t era; /* in which the device's own time has one zero point: of the run, and since its last restart */
    int64_t time, own, within;
} trace_clock;

typedef struct trace_restart {
    uint8_t device;
    int64_t time;
} trace_restart;

/* A NAME: what a number stands for from a time on. */
typedef struct trace_naming {
    uint8_t kind;
    uint64_t number;
    uint64_t run; /* numbers are a runtime's own; of a thread 0, since those are the system's */
    int64_t time;
    size_t order;
    char *text; /* until the names are interned */
    int32_t name;
} trace_naming;

/* A file while it is being read. */
typedef struct trace_source {
    const uint8_t *bytes;
    size_t n; /* whole records */
    /* The file had no room for all. Records from first_partial up to last_partial are of a time that others are missing of. They are not
     * read, and the trace is as long as the records before them. */
    bool is_full;
    size_t first_partial, last_partial;
    trace *t;
    int64_t begin;                    /* of hdi_clock_ns: the trace's beginning */
    uint64_t run;                     /* which runtime's records these are; counts from 0 */
    uint32_t run_process, run_number; /* of that runtime, as its TRACE has them */
    size_t count[HDI_RECORD_TYPES];
    trace_places *places; /* of each trace_row */
    uint32_t *waits_at,
        *others; /* indices of WAIT and TRACE records; of those that are neither WAIT nor of a trace_row */
    size_t n_waits_at, n_others;
    trace_run *issues, *spans, *dones; /* sorted by lane and position */
    size_t n_issues, n_spans, n_dones;
    trace_clock *clocks;
    trace_restart *restarts;
    size_t n_clocks, n_restarts;
    trace_naming *namings;
    size_t n_namings;
    int64_t last; /* the last record's time */
    /* Of each device: reports of work that began before may be missing. INT64_MAX: or operations, at any time */
    int64_t incomplete_until[TRACE_DEVICES];
} trace_source;

static inline hdi_record trace_record(const trace_source *s, size_t index)
{
    hdi_record r;
    memcpy(&r, s->bytes + index * HDI_RECORD_BYTES, sizeof r);
    return r;
}
/* The text behind a record, with nothing in it that a terminal could take for more than text. */
void trace_text(const trace_source *s, size_t index, char *out, size_t room);
/* A time of the clock, since the beginning; TRACE_UNSEEN, and counted as ignored: it is none. */
int64_t trace_time(trace_source *s, int64_t clock);
/* The device of a lane, TRACE_NONE: there can be none of that number. */
int trace_lane_device(uint32_t lane);
uint64_t trace_position(const trace_source *s, uint64_t position);

/* Before a pass over records: the first ones are of the first runtime. */
void trace_first_run(trace_source *s);
/* Whether it is a TRACE record that begins those of another runtime; then they are of the next run. */
bool trace_next_run(trace_source *s, const hdi_record *r);
/* The run of a position that has it. */
static inline uint64_t trace_run_of(uint64_t position)
{
    return position >> TRACE_POSITION_BITS;
}

/* records.c: names, and the tables that stand alone. */
bool trace_read_names(trace_source *s);
/* What a number stands for in the runtime whose records these are. */
int32_t trace_lookup(const trace_source *s, uint8_t kind, uint64_t number, int64_t time);
bool trace_read_tables(trace_source *s);
int32_t trace_label_of(const trace_source *s, uint32_t label, int64_t time);

/* memory.c: ALLOC, FREE and LABEL; afterwards each buffer's rows are joined. */
void trace_read_memory(trace_source *s, const hdi_record *r);
bool trace_join_memory(trace *t);
bool trace_sum_memory(trace *t);

/* estimate.c: when an operation ran, as far as its kind shows. */
typedef struct trace_estimate {
    int64_t began, ended; /* began TRACE_UNSEEN: there is no estimate, and `ended` is no later than the end was seen */
} trace_estimate;
/* Of each operation. Issues, ends that the host saw and spans are noted. NULL: no memory. The caller frees it. */
trace_estimate *trace_estimates(const trace_source *s);

/* times.c */
bool trace_place(trace_source *s);

/* activities.c: gives operations the times that CUPTI reported, and parts stretches where all of their operations have them. */
bool trace_match_activities(trace_source *s);
/* Whether it is so short a fill that the engine may have made it to see the end of work. */
bool trace_is_signal(const trace_activity *a);

bool trace_split(trace *t);
/* Whether work of that kind moves bytes: copies, and the kernels that do it in lanes for copies. Else it computes; fills do, wherever they
 * run, since a stretch may have them among launches. */
bool trace_moves(const trace *t, uint32_t lane, uint8_t kind);
bool trace_path(trace *t);
bool trace_launches(trace *t);
bool trace_figures(trace *t, const trace_peaks *peaks, char error[512]);
bool trace_find(trace *t);

/* "12.9 ms": rounded to tenths of its unit, as the page rounds. */
const char *trace_time_text(int64_t ns, char out[HDI_AMOUNT_BYTES]);
const char *trace_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES]);
#define TRACE_NS(ns) trace_time_text(ns, (char[HDI_AMOUNT_BYTES]){0})
#define TRACE_BYTES(bytes) trace_bytes_text(bytes, (char[HDI_AMOUNT_BYTES]){0})

/* The number of an id among those that findings have, TRACE_NONE. */
enum { TRACE_FINDING_IDS = 21 };
int trace_finding_number(const char *id);

/* What a device's `in_use_rest` is. */
#define TRACE_REST_TEXT "older than the trace, unified, the library's own, or freed and kept for the next buffers"

/* calloc of at least one item; NULL: no memory. */
void *trace_table(size_t n, size_t item);

/* As qsort. Items that are equal stay in their order, and a table of a few sorted rows takes little time. */
void trace_sort(void *items, size_t n, size_t item, int (*compare)(const void *a, const void *b));
/* `spare` has room for n times. */
void trace_sort_times(int64_t *times, size_t n, int64_t *spare);
/* The value at or below which a share of the sorted times lies; 0: there are none. */
int64_t trace_quantile(const int64_t *times, size_t n, double share);

/* A device's operations, from its first one on: those of devices follow each other. */
size_t trace_first_op(const trace *t, int device);

/* The first operation of a lane that ends behind a position; the end of the lane's operations where there is none. */
size_t trace_op_behind(const trace *t, const trace_lane *lane, uint64_t position);

static inline int64_t trace_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t trace_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Both are times of one thread, and the second one is no earlier but for what they are off. */
static inline int64_t trace_end_of(int64_t begin, int64_t end)
{
    return end < begin && end >= begin - TRACE_THREADS_NS ? begin : end;
}

/* Sums of many times may not fit. */
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

/* Whether the operation gives the device something to do. */
static inline bool trace_is_work(uint8_t kind)
{
    return kind != HDI_RECORD_OP_MARK && kind != HDI_RECORD_OP_CLAIM;
}

static inline bool trace_is_copy_lane(uint8_t kind)
{
    return kind >= HDI_RECORD_LANE_IN && kind <= HDI_RECORD_LANE_PEER;
}

#endif
