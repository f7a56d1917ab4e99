/* model.h - a trace, analysed: operations, stretches, gaps with causes, transfers, memory,
 * findings.
 *
 *    read.c       reads the file's records and checks them (records.c: the tables without lanes)
 *    times.c      converts all times to one clock; finds when operations began and ended
 *    estimate.c   estimates when operations without a device time ran, from others of their kind
 *    activities.c matches CUPTI's times to operations
 *    split.c      splits each device's window into compute, transfer and idle, and idle into causes
 *    path.c       the chain of waits behind an operation; the critical path
 *    launches.c   launches by kernel, their way to the device, the length of the queue
 *    memory.c     allocations and frees of each buffer, its labels, memory by label
 *    figures.c    transfers
 *    messages.c   messages between ranks, and which waits they explain (ranks.h: several ranks)
 *    findings.c   the problems that are worth a person's time, ranked
 *
 * Threads: one at a time. Locks: none.
 * Always: times are nanoseconds since the trace's beginning. Every number from a file is checked
 * before use. Tables are sorted as their comments state. A device's split adds up to its window,
 * and causes to the gaps, to the nanosecond.
 */
#ifndef CLI_TRACE_MODEL_H
#define CLI_TRACE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "record/format.h"

enum { TRACE_NONE = -1 };

typedef enum trace_state { TRACE_COMPUTE, TRACE_TRANSFER, TRACE_IDLE } trace_state;

/* Why a device stood still. The first cause that holds counts. They are tested in this order,
 * except for RING and UNKNOWN. */
typedef enum trace_cause {
    TRACE_CAUSE_LOSS,   /* the device was lost, or coming back */
    TRACE_CAUSE_DEVICE, /* its work waited for work of another device */
    TRACE_CAUSE_COPY,   /* its work waited for a transfer */
    /* its work waited for bytes that the program claimed, or for a stream of the program */
    TRACE_CAUSE_CLAIM,
    /* a thread waited for room in one of the device's lanes; tested after OVERHEAD */
    TRACE_CAUSE_RING,
    TRACE_CAUSE_MEMORY,   /* a thread allocated, mapped or reclaimed the device's memory */
    TRACE_CAUSE_OVERHEAD, /* submitted work was ready to run, and on its way to the device */
    TRACE_CAUSE_NOTHING,  /* nothing was submitted */
    /* its work may have waited for operations that are missing from the trace; tested before
     * OVERHEAD */
    TRACE_CAUSE_UNKNOWN,
    TRACE_CAUSES
} trace_cause;

typedef struct trace_op {
    uint32_t lane; /* global lane number */
    uint8_t kind;  /* HDI_RECORD_OP_* */
    uint8_t way;   /* COPY: HDI_RECORD_WAY_* */
    uint8_t src, dst;
    /* `began` and `ended` are device times of this operation alone; else those of its stretch, or
     * of the host */
    bool measured;
    bool failed; /* refused, skipped after a failure, or lost before it began */
    bool lost;   /* its device was lost before it ended; `done` is then the time of the loss */
    bool chunk;  /* COPY: to or from a pinned chunk of the library */
    bool leg;    /* COPY: one half of a staged copy */
    /* waits whose records, or whose awaited operations, are missing */
    uint32_t unknown_waits;
    uint64_t position;
    int32_t kernel; /* index of names, or TRACE_NONE */
    uint32_t thread, blocks, threads, ring;
    uint64_t bytes;
    /* TRACE_UNSEEN: not in the trace. */
    int64_t submitted, issued, began, ended, done;
    /* when the driver call for the operation returned; CALL: when the program's function
     * returned */
    int64_t returned;
    uint32_t first_wait, n_waits; /* range in `waits` */
    /* index of the operation before it in its lane, of the same runtime, or TRACE_NONE */
    int32_t before;
    int32_t stretch; /* index of stretches, or TRACE_NONE */
    /* of the operations for which it waits and the operation before it in its lane, the one that
     * ended last; TRACE_NONE: none */
    int32_t holder;
    /* index of the wait that names the holder; TRACE_NONE: the lane's order made it wait */
    int32_t held_by;
    /* when the holder ended; TRACE_UNSEEN: no holder, or it never ended */
    int64_t ready;
} trace_op;

#define TRACE_UNSEEN INT64_MIN
/* The bits of a position in the program. In the tables, the bits above contain the number of the
 * runtime that wrote the record. */
enum { TRACE_POSITION_BITS = 48 };

typedef struct trace_wait {
    int32_t op, other; /* indices of ops; other: TRACE_NONE if it is missing from the trace */
    bool reads;
    /* the bytes need an earlier operation, but the lane's next event comes behind `other` */
    bool behind;
    uint32_t lane; /* global number of the lane that it waits for */
    uint64_t buffer;
    int32_t label;      /* index of names, or TRACE_NONE */
    uint64_t low, high; /* bytes in the buffer */
} trace_wait;

/* A period of a device. Pieces are sorted, do not overlap, and cover the window without gaps. */
typedef struct trace_piece {
    int64_t begin, end;
    uint8_t state; /* trace_state */
    uint8_t cause; /* IDLE: trace_cause */
    /* DEVICE: the device that it waited for. COPY: the device at the other end. Else TRACE_NONE */
    int16_t other;
    /* IDLE: the operation that was held up, or TRACE_NONE. Else an operation that ran */
    int32_t op;
    int32_t holder; /* IDLE: the operation that held it up */
    int32_t wait;   /* IDLE: index of the wait that names the buffer, or TRACE_NONE */
} trace_piece;

/* How long launches take to reach the device. `issue` counts from the submit, for launches whose
 * issue was recorded. `begin` counts from the issue, for launches with a begin of their own. The
 * first launch of a stretch begins with the stretch. Both times include waiting for other work. */
typedef struct trace_delays {
    uint64_t issued, begun; /* number of launches */
    int64_t issue_p50, issue_p99, begin_p50, begin_p99;
} trace_delays;

typedef struct trace_device {
    char name[64], bus[16];
    bool is_host;
    bool incomplete; /* its engine dropped records during the trace */
    uint64_t memory;
    /* its window, the same for all devices: from the first submit or work of any device to the last
     * end */
    int64_t begin, end;
    /* overlap: part of compute during which a transfer also ran */
    int64_t compute, transfer, idle, overlap;
    int64_t cause[TRACE_CAUSES];
    int64_t for_device[32]; /* the part of CAUSE_DEVICE for each other device */
    trace_piece *pieces;
    size_t n_pieces;
    trace_delays delays; /* delays of its launches */
    /* mean number of submitted operations that had not ended, over the window */
    double queue_mean;
    uint64_t queue_most;
    uint64_t in_use_most,
        /* the most bytes that buffers took, as far as known, and the part of them whose allocations
         * are not in the trace */
        in_use_rest;
    int64_t clock_within; /* how closely the device's own times match the clock */
} trace_device;

typedef struct trace_lane {
    uint32_t lane;
    uint8_t kind; /* HDI_RECORD_LANE_* */
    uint32_t slots;
    int32_t first_op, n_ops; /* range in ops, which are sorted by lane and position */
} trace_lane;

/* A stretch of a lane's work on the device; sorted by lane and begin. */
typedef struct trace_stretch {
    uint32_t lane;
    int64_t began, ended;
    int32_t first_op, last_op;
    uint8_t op;
    /* approximate: it has no device time. Its time is an estimate from other work of its kind, or
     * the time that the host saw */
    bool one, approximate;
    /* its ends come from two clocks, and their offset is too uncertain for so short a stretch */
    bool coarse;
    int64_t off; /* it took at most this much longer than its ends show; unknown if approximate */
} trace_stretch;

typedef struct trace_transfer {
    uint8_t way, src, dst;
    uint32_t thread, lane;
    int32_t op; /* its last operation */
    uint64_t bytes;
    int64_t called, returned, began, ended; /* began, ended: times of its work, or TRACE_UNSEEN */
    int32_t src_label, dst_label;
} trace_transfer;

/* Memory of one kind; sorted by time. */
typedef struct trace_memory {
    int64_t time, took, since; /* since: when the buffer was allocated, if the trace shows it */
    bool is_alloc;
    /* no ALLOC or FREE, but a buffer's change of label: the end of one label or the begin of the
     * next */
    bool renames;
    /* the row changes the bytes held: the allocation succeeded, and the buffer's ALLOC is in the
     * trace */
    bool counts;
    /* the buffer's runtime, because each runtime counts buffers from the same number */
    uint32_t run;
    uint8_t kind, device; /* kind: 0 of a device, 1 pinned, 2 unified */
    uint32_t rungs, thread;
    uint64_t buffer, bytes, address;
    /* other: for an ALLOC the index of its FREE, for a FREE that of its ALLOC; or TRACE_NONE */
    int32_t label, other;
} trace_memory;

typedef struct trace_figure {
    int64_t time;
    uint8_t device;
    uint64_t in_use, held, limit, pinned;
} trace_figure;

typedef struct trace_pause {
    int64_t begin, end;
    uint8_t kind, device;
    uint32_t thread, lane, detail;
    uint64_t position, bytes;
} trace_pause;

/* Work that CUPTI reported; sorted by device and begin. */
typedef struct trace_activity {
    int64_t begin, end;
    uint8_t kind, device; /* kind: 1 a kernel, 2 a copy, 3 a fill */
    int32_t name;
    uint32_t run, stream; /* run: the runtime of the stream */
    /* the operation that takes the activity's times; TRACE_NONE: another library's work, or no
     * match */
    int32_t op;
    uint64_t bytes;
} trace_activity;

typedef struct trace_thread {
    uint32_t thread;
    int32_t name;     /* index of names, or TRACE_NONE */
    uint32_t devices; /* bits of the devices to which it submits */
} trace_thread;

/* Memory with one label on one device (kind 0) or on the host (1, 2). */
typedef struct trace_label {
    uint8_t kind, device;
    int32_t label; /* index of names, or TRACE_NONE */
    /* bytes: its own peak, at the device's peak, at the end of the trace */
    uint64_t peak, at_peak, left;
    uint64_t allocs, frees, named; /* named: buffers that got the label later */
    uint64_t beyond;               /* allocations that the arena could not serve */
    int64_t paused;                /* ns that the allocations beyond the arena took */
} trace_label;

typedef struct trace_loss {
    int64_t time, ended; /* ended: when the device was up again, or TRACE_UNSEEN */
    uint8_t device;
    uint32_t run; /* the device's runtime */
    int64_t code;
    int32_t op; /* the first suspect */
    char message[512];
} trace_loss;

typedef struct trace_range {
    int64_t begin, end;
    uint32_t thread;
    int32_t name;
    uint16_t depth;
    bool nvtx;
} trace_range;

/* A range that may begin in one thread and end in another. Sorted by begin; intervals may
 * overlap. */
typedef struct trace_interval {
    int64_t begin, end;
    uint32_t began_by, ended_by; /* threads */
    int32_t name;
    bool nvtx;
} trace_interval;

/* A message between ranks, or the rank's part in a collective operation. Sorted by the time of
 * posting. */
typedef struct trace_message {
    uint8_t kind; /* HDI_RECORD_MESSAGE_* */
    bool failed;
    int32_t peer; /* the rank at the other end, or the root; TRACE_NONE: none */
    int32_t tag;
    uint32_t communicator;
    uint32_t order; /* 0: no message of the other side belongs to it */
    uint64_t bytes;
    int32_t op; /* its claim; TRACE_NONE: not in the trace */
    /* the program's call, the bytes were ready, it was posted, it ended */
    int64_t called, ready, posted, ended;
    int64_t idle;    /* ns during which devices stood still for it, of all devices together */
    int64_t blocked; /* ns during which calls of threads waited for it, of all threads together */
} trace_message;

/* A time of rank 0's clock is a time of this trace's clock plus the offset. Sorted by time. */
typedef struct trace_offset {
    int64_t time, offset, within;
} trace_offset;

/* A piece of a device that shows a finding: idle time, or copies that ran alone. */
typedef struct trace_gap {
    int64_t begin, end;
    int64_t part; /* ns of the piece that the finding concerns; 0: there is no such piece */
    int16_t device;
} trace_gap;

typedef struct trace_finding {
    const char *id;        /* "idle-for-device" */
    int16_t device, other; /* TRACE_NONE: none */
    /* most ns by which the window may shrink; 0: the finding is not about time */
    int64_t gain;
    int32_t op, wait, label;
    trace_gap gap; /* the longest piece that the finding concerns */
    /* link the findings of one id, which a list shows as one: the indices of the first and the next
     * finding, TRACE_NONE at the end. A finding that is its own `first` stands for all of them */
    int32_t first, next;
    char title[160], evidence[400], remedy[400];
} trace_finding;

/* A path: way, source and destination. */
typedef struct trace_link {
    uint8_t way, src, dst;
    uint64_t count, bytes;
    int64_t busy; /* ns during which the path moved bytes */
    /* bytes a second: the mean over `busy`, and that of the best large transfer */
    double rate, best;
    double peak;                   /* measured by `heddle p2p`; 0: not given */
    int64_t p50, p99;              /* from submit to end */
    uint64_t own_count, own_bytes; /* without copies that pass through the library's chunks */
    int64_t own_busy;
} trace_link;

typedef struct trace_launch {
    int32_t kernel; /* index of names */
    uint64_t count;
    uint64_t measured; /* launches with a time of their own */
    /* launches that never ran: they failed, or their device was lost */
    uint64_t failed;
    /* ns on the device, of the measured launches; 0: there are none */
    int64_t total, least, median, p99, most;
    /* its share of stretches of several operations, in ns: their time divided by their launches */
    int64_t shared;
    /* the shared stretches also ran other operations, so `shared` is a guess; else it is exact */
    bool mixed;
    int64_t submit_to_begin_p50, submit_to_begin_p99;
    trace_delays delays;
} trace_launch;

/* The kinds of time along the critical path. */
typedef enum trace_along {
    TRACE_ALONG_COMPUTE,
    TRACE_ALONG_TRANSFER,
    TRACE_ALONG_CLAIM,
    TRACE_ALONG_WAY,     /* work that was ready, on its way to the device */
    TRACE_ALONG_HOST,    /* the program had not yet submitted it */
    TRACE_ALONG_UNKNOWN, /* replaces WAY if waits are unknown */
    TRACE_ALONG
} trace_along;

typedef struct trace {
    char file[256];
    int detail, placement;
    uint32_t process;
    int64_t since_1970, length; /* length: ns from the first to the last record */
    int64_t clock;              /* hdi_clock_ns at the trace's beginning */
    int32_t rank, ranks;        /* the place of the runtime; TRACE_NONE: the trace tells none */
    uint64_t rank_run;          /* the run of all ranks */
    trace_offset *offsets;
    trace_message *messages;
    size_t n_offsets, n_messages;
    /* the trace was stopped properly; the file ends within a record */
    bool ended, cut;
    /* the file ran out of room: the trace covers the time before that */
    bool ended_early;
    uint64_t dropped, n_records, ignored; /* ignored: records that make no sense */
    uint64_t lost_waits;                  /* waits that submits announce but the file lacks */
    /* activities matched to operations, which take CUPTI's times */
    uint64_t n_reported;
    uint64_t unknown_ops; /* operations with unknown_waits */
    uint64_t unplaced;    /* operations without a time on their device */
    /* operations that never ran because of a failure; operations that a loss ended */
    uint64_t failed, lost;
    /* spans whose end is the time at which the engine saw the end */
    uint64_t spans_by_clock;
    uint64_t spans_coarse; /* spans with `coarse` */
    int runs;              /* runtimes that wrote into the file, one after another */
    int64_t begin, end;    /* the window of all devices */
    int n_devices;
    trace_device devices[32];
    char **names;
    size_t n_names;
    trace_lane *lanes;
    /* by lane number: its index in lanes + 1; 0: no such lane */
    uint16_t lane_at[32 * HDI_RECORD_LANES];
    trace_op *ops;
    trace_wait *waits;
    trace_stretch *stretches;
    trace_transfer *transfers;
    trace_memory *memory;
    trace_figure *figures;
    trace_pause *pauses;
    trace_loss *losses;
    trace_range *ranges;
    trace_interval *intervals;
    trace_link *links;
    trace_launch *launches;
    trace_finding *findings;
    trace_activity *activities;
    trace_thread *threads; /* sorted */
    trace_label *labels;   /* sorted by device and peak, largest first */
    int32_t *options;      /* indices of names: "name=value" */
    size_t n_activities, n_threads, n_labels, n_options;
    size_t n_lanes, n_ops, n_waits, n_stretches, n_transfers, n_memory, n_figures, n_pauses, n_losses, n_ranges,
        n_intervals, n_links, n_launches, n_findings;
    int32_t *critical; /* indices of ops, from the first to the last */
    size_t n_critical;
    int64_t along[TRACE_ALONG]; /* ns along the critical path; they add up to the window */
} trace;

/* Output of `heddle p2p --json`, for a comparison with transfers. */
typedef struct trace_peaks {
    const char *file; /* for messages */
    const char *text;
    size_t bytes;
} trace_peaks;

/* Reads and analyses a file. False: `error` is one line. `peaks`: a file of `heddle p2p --json`,
 * or NULL. Each file is opened once. */
bool trace_read(const char *file, const char *peaks, trace *out, char error[512]);
/* Works like trace_read, for a file's content. `peaks` may be NULL. */
bool trace_read_content(const char *file, const void *bytes, size_t n, const trace_peaks *peaks, trace *out,
                        char error[512]);
/* Works like trace_read, for bytes that belong to no file. */
bool trace_read_bytes(const void *bytes, size_t n, trace *out, char error[512]);
void trace_release(trace *t);

/* Writes the chain of waits from an operation back to an operation that waited for nothing: at most
 * `most` indices of ops. Returns their number. */
size_t trace_chain(const trace *t, int32_t op, int32_t *out, size_t most);

/* Returns the operation of the lane that ends at the position, or TRACE_NONE. */
int32_t trace_find_op(const trace *t, uint32_t lane, uint64_t position);

/* Returns the lane with this number, or NULL. */
const trace_lane *trace_find_lane(const trace *t, uint32_t lane);

/* True if `in_use_rest` is worth a line. A small rest can come from rounded sizes and small buffers
 * of the library. */
static inline bool trace_has_rest(const trace_device *d)
{
    return d->in_use_rest > d->in_use_most / 100 && d->in_use_rest >= UINT64_C(65536);
}

const char *trace_name(const trace *t, int32_t name); /* "" for TRACE_NONE */
const char *trace_op_text(uint8_t kind);
/* "1.0:4711 axpy": device, lane, position and name. */
enum { TRACE_TEXT = 160 };
const char *trace_op_name(const trace *t, int32_t op, char out[TRACE_TEXT]);

const char *trace_cause_id(trace_cause cause); /* "device": one word for JSON and rules */
const char *trace_along_text(trace_along along);
const char *trace_cause_text(trace_cause cause);
const char *trace_way_text(uint8_t way);

#endif
