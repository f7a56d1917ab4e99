/* model.h - a trace as what was measured means: operations, stretches, gaps with causes, transfers, memory, findings.
 *
 *    read.c       the file's records, checked, in tables (records.c: the tables that stand alone)
 *    times.c      all on one clock: devices' own times, by CLOCK records; when operations began and ended
 *    estimate.c   when operations without a device time ran, by those of their kind
 *    activities.c CUPTI's own times, for the operations that they are of
 *    split.c      each device's window into compute, transfer and idle, and idle into causes
 *    path.c       the chain of waits behind an operation; the critical path
 *    launches.c   launches by kernel, their way to the device, how much was queued
 *    memory.c     allocations and frees of each buffer, its labels, memory by label
 *    figures.c    transfers
 *    findings.c   what is worth a person's time, ranked
 *
 * Threads: one at a time. Locks: none.
 * Always: times are nanoseconds since the trace's beginning. Every number from a file is checked before it is used as one. Tables are
 * sorted as their comments state. A device's split adds up to its window, and causes to the gaps, to the nanosecond.
 */
#ifndef CLI_TRACE_MODEL_H
#define CLI_TRACE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "record/format.h"

enum { TRACE_NONE = -1 };

typedef enum trace_state { TRACE_COMPUTE, TRACE_TRANSFER, TRACE_IDLE } trace_state;

/* Why a device stood still. Each is asked in this order but RING and UNKNOWN, and the first that holds counts. */
typedef enum trace_cause {
    TRACE_CAUSE_LOSS,     /* the device was lost, or coming back */
    TRACE_CAUSE_DEVICE,   /* its work waited for another device's */
    TRACE_CAUSE_COPY,     /* its work waited for a transfer */
    TRACE_CAUSE_CLAIM,    /* its work waited for bytes that the program claimed, or for its own stream */
    TRACE_CAUSE_RING,     /* asked behind OVERHEAD: a thread waited for room in a lane of it */
    TRACE_CAUSE_MEMORY,   /* a thread allocated, mapped or reclaimed memory of it */
    TRACE_CAUSE_OVERHEAD, /* work was submitted and could go: the way to the device */
    TRACE_CAUSE_NOTHING,  /* nothing was submitted */
    TRACE_CAUSE_UNKNOWN,  /* asked before OVERHEAD: it may have waited for what the trace does not have */
    TRACE_CAUSES
} trace_cause;

typedef struct trace_op {
    uint32_t lane; /* global */
    uint8_t kind;  /* HDI_RECORD_OP_* */
    uint8_t way;   /* of a COPY: HDI_RECORD_WAY_* */
    uint8_t src, dst;
    bool
        measured; /* began and ended are the device's own times of this very operation; else of the stretch, or as the host saw it */
    bool failed; /* the device did not get it, or was lost before it began */
    bool lost;   /* its device was lost before it was done, which is `done` then */
    bool chunk;  /* of a COPY: to or from a pinned chunk of the library */
    bool leg;    /* of a COPY: one half of a staged copy */
    uint32_t
        unknown_waits; /* waits whose records are missing, or that are for operations which the trace does not have */
    uint64_t position;
    int32_t kernel; /* index of names, TRACE_NONE */
    uint32_t thread, blocks, threads, ring;
    uint64_t bytes;
    /* TRACE_UNSEEN where the trace does not have it. */
    int64_t submitted, issued, began, ended, done;
    int64_t returned;             /* when the driver's call for it returned, or of a CALL the program's function */
    uint32_t first_wait, n_waits; /* of `waits` */
    int32_t before;               /* index of the operation before it in its lane, of the same runtime; TRACE_NONE */
    int32_t stretch;              /* index of stretches, TRACE_NONE */
    int32_t holder;               /* of what it waits for and the operation before it, what ended last; TRACE_NONE */
    int32_t held_by;              /* index of waits: the one that names the holder; TRACE_NONE: the lane's order */
    int64_t ready;                /* when the holder had ended; TRACE_UNSEEN: there is none, or it never did */
} trace_op;

#define TRACE_UNSEEN INT64_MIN
/* A position as the program has it. Above that many bits the model counts runtimes that wrote into one file. */
enum { TRACE_POSITION_BITS = 48 };

typedef struct trace_wait {
    int32_t op, other; /* indices of ops; other TRACE_NONE: it is not in the trace */
    bool reads;
    bool behind;   /* `other` is further than the bytes need: the lane's next event stands there */
    uint32_t lane; /* of what it waits for, global */
    uint64_t buffer;
    int32_t label;      /* index of names, TRACE_NONE */
    uint64_t low, high; /* bytes of the buffer */
} trace_wait;

/* A device's time without overlaps: sorted, they follow each other without a gap from window.begin to window.end. */
typedef struct trace_piece {
    int64_t begin, end;
    uint8_t state;  /* trace_state */
    uint8_t cause;  /* trace_cause, of IDLE */
    int16_t other;  /* DEVICE: the device that was waited for. COPY: the device at its other end; else TRACE_NONE */
    int32_t op;     /* IDLE: the operation that was held up, TRACE_NONE. Else one that ran */
    int32_t holder; /* IDLE: the operation that it was held up by */
    int32_t wait;   /* IDLE: index of waits, TRACE_NONE: has the buffer */
} trace_piece;

/* How long launches take to the device. Issue is from the submit on, of those whose issue was seen. Begin is from the issue on, of those
 * with a begin of their own. The first of a stretch has that of its stretch. What a launch waited for is in these times. */
typedef struct trace_delays {
    uint64_t issued, begun; /* how many */
    int64_t issue_p50, issue_p99, begin_p50, begin_p99;
} trace_delays;

typedef struct trace_device {
    char name[64], bus[16];
    bool is_host;
    bool incomplete; /* records of its engine had no room while the trace went on */
    uint64_t memory;
    int64_t begin, end; /* its window, the same for all: first submit or work of any to the last end of work */
    int64_t compute, transfer, idle, overlap; /* overlap: part of compute in which a transfer ran, too */
    int64_t cause[TRACE_CAUSES];
    int64_t for_device[32]; /* CAUSE_DEVICE by the device waited for */
    trace_piece *pieces;
    size_t n_pieces;
    trace_delays delays; /* of its launches */
    double queue_mean;   /* operations that were submitted and had not ended, over the window */
    uint64_t queue_most;
    uint64_t in_use_most,
        in_use_rest;      /* what buffers took at most, as far as it is known; what of that no allocation here is of */
    int64_t clock_within; /* how close its own times and the clock are */
} trace_device;

typedef struct trace_lane {
    uint32_t lane;
    uint8_t kind; /* HDI_RECORD_LANE_* */
    uint32_t slots;
    int32_t first_op, n_ops; /* of ops, which are sorted by lane and position */
} trace_lane;

/* A stretch in which a lane's work ran on the device; sorted by lane and begin. */
typedef struct trace_stretch {
    uint32_t lane;
    int64_t began, ended;
    int32_t first_op, last_op;
    uint8_t op;
    bool one, approximate; /* approximate: no device time; by others of its kind, or as the host saw it */
    bool coarse; /* its ends are of the host's clock and the device's, whose comparison is too far off for its length */
    int64_t
        off; /* it may have taken so much longer than its ends show, at most; of approximate ones nothing is known */
} trace_stretch;

typedef struct trace_transfer {
    uint8_t way, src, dst;
    uint32_t thread, lane;
    int32_t op; /* its last operation */
    uint64_t bytes;
    int64_t called, returned, began, ended; /* began, ended: of its work; TRACE_UNSEEN */
    int32_t src_label, dst_label;
} trace_transfer;

/* Memory of one kind; sorted by time. */
typedef struct trace_memory {
    int64_t time, took, since; /* since: when the buffer came, if the trace has that */
    bool is_alloc;
    bool renames; /* a buffer has another label: no ALLOC or FREE, but the end of one label or the begin of the next */
    bool counts;  /* changes what is held: an allocation did not fail, and the buffer's ALLOC is in the trace */
    uint32_t run; /* whose buffer it is: runtimes number theirs alike */
    uint8_t kind, device; /* kind: 0 of a device, 1 pinned, 2 unified */
    uint32_t rungs, thread;
    uint64_t buffer, bytes, address;
    int32_t label, other; /* other: of an ALLOC the index of its FREE, and the other way round; TRACE_NONE */
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

/* What CUPTI reported, sorted by device and begin. */
typedef struct trace_activity {
    int64_t begin, end;
    uint8_t kind, device; /* kind: 1 a kernel, 2 a copy, 3 a fill */
    int32_t name;
    uint32_t run, stream; /* run: whose stream it is */
    int32_t op; /* the operation that it is of, which has its times; TRACE_NONE: of another library, or not found */
    uint64_t bytes;
} trace_activity;

typedef struct trace_thread {
    uint32_t thread;
    int32_t name;     /* index of names, TRACE_NONE */
    uint32_t devices; /* bits: it submits to them */
} trace_thread;

/* Memory of one label on one device (kind 0), or of the host (1, 2). */
typedef struct trace_label {
    uint8_t kind, device;
    int32_t label;                 /* index of names, TRACE_NONE */
    uint64_t peak, at_peak, left;  /* bytes: the most of it, when its device had most, when the trace ended */
    uint64_t allocs, frees, named; /* named: buffers that got the label later */
    uint64_t beyond;               /* beyond: allocations that took a rung above the arena's */
    int64_t paused;                /* ns that these took */
} trace_label;

typedef struct trace_loss {
    int64_t time, ended; /* ended: the device was up again; TRACE_UNSEEN */
    uint8_t device;
    uint32_t run; /* whose device */
    int64_t code;
    int32_t op; /* the first one to blame */
    char message[512];
} trace_loss;

typedef struct trace_range {
    int64_t begin, end;
    uint32_t thread;
    int32_t name;
    uint16_t depth;
    bool nvtx;
} trace_range;

/* A range that may begin in one thread and end in another; sorted by begin. They may overlap. */
typedef struct trace_interval {
    int64_t begin, end;
    uint32_t began_by, ended_by; /* threads */
    int32_t name;
    bool nvtx;
} trace_interval;

/* A piece of a device by which a finding can be seen: an idle one, or copies that ran alone. */
typedef struct trace_gap {
    int64_t begin, end;
    int64_t part; /* how much of it the finding is about; 0: there is no such piece */
    int16_t device;
} trace_gap;

typedef struct trace_finding {
    const char *id;        /* "idle-for-device" */
    int16_t device, other; /* TRACE_NONE: none */
    int64_t gain;          /* ns that the window may be shorter by, at most; 0: not a matter of time */
    int32_t op, wait, label;
    trace_gap gap;       /* the longest one that it is about */
    int32_t first, next; /* of findings of the same id, which a list shows as one: indices of the first, and of the one
                            behind this, TRACE_NONE. A finding with its own index as `first` stands for all of them */
    char title[160], evidence[400], remedy[400];
} trace_finding;

/* Of one path: way, source and destination. */
typedef struct trace_link {
    uint8_t way, src, dst;
    uint64_t count, bytes;
    int64_t busy;                  /* ns in which it moved bytes */
    double rate, best;             /* bytes a second: over `busy`; of the best large transfer */
    double peak;                   /* as `heddle p2p` measured it; 0: not given */
    int64_t p50, p99;              /* of submit to end */
    uint64_t own_count, own_bytes; /* without the pieces of copies that pass through the library's chunks */
    int64_t own_busy;
} trace_link;

typedef struct trace_launch {
    int32_t kernel; /* index of names */
    uint64_t count;
    uint64_t measured;                       /* how many of them were measured by themselves */
    uint64_t failed;                         /* how many never ran: they failed, or their device was lost */
    int64_t total, least, median, p99, most; /* ns on the device, of those; 0: there are none */
    int64_t shared;                          /* ns of stretches of several operations, divided by their number */
    bool mixed; /* stretches had other operations, too: shared is a guess; else it is exact */
    int64_t submit_to_begin_p50, submit_to_begin_p99;
    trace_delays delays;
} trace_launch;

/* What the critical path goes through. */
typedef enum trace_along {
    TRACE_ALONG_COMPUTE,
    TRACE_ALONG_TRANSFER,
    TRACE_ALONG_CLAIM,
    TRACE_ALONG_WAY,     /* work that could go, on its way to the device */
    TRACE_ALONG_HOST,    /* the program had not submitted it */
    TRACE_ALONG_UNKNOWN, /* in place of WAY where waits are unknown */
    TRACE_ALONG
} trace_along;

typedef struct trace {
    char file[256];
    int detail, placement;
    uint32_t process;
    int64_t since_1970, length;           /* length: ns from the first to the last record */
    bool ended, cut;                      /* the trace was stopped in order; the file ends within a record */
    bool ended_early;                     /* the file had no room for all: the trace is what it has of before */
    uint64_t dropped, n_records, ignored; /* ignored: records that make no sense */
    uint64_t lost_waits;                  /* waits that submits announce and the file does not have */
    uint64_t n_reported;                  /* activities of operations, whose times are CUPTI's */
    uint64_t unknown_ops;                 /* operations with unknown_waits */
    uint64_t unplaced;                    /* operations without a time on their device */
    uint64_t failed, lost;                /* work that the driver did not get or take; that a loss ended */
    uint64_t spans_by_clock;              /* spans that end when the engine saw the end */
    uint64_t spans_coarse;                /* spans with `coarse` */
    int runs;                             /* runtimes that wrote into the file, one after the other */
    int64_t begin, end;                   /* the window of all devices */
    int n_devices;
    trace_device devices[32];
    char **names;
    size_t n_names;
    trace_lane *lanes;
    uint16_t lane_at[32 * HDI_RECORD_LANES]; /* of each lane number: its index in lanes + 1; 0: there is none */
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
    int64_t along[TRACE_ALONG]; /* of the critical path, ns; they add up to the window */
} trace;

/* What `heddle p2p --json` wrote, with which transfers are compared. */
typedef struct trace_peaks {
    const char *file; /* for messages */
    const char *text;
    size_t bytes;
} trace_peaks;

/* Reads and analyses a file. False: `error` has one line. `peaks`: a file of `heddle p2p --json`, or NULL. Each is opened once. */
bool trace_read(const char *file, const char *peaks, trace *out, char error[512]);
/* The same of a file that was read. `peaks` may be NULL. */
bool trace_read_content(const char *file, const void *bytes, size_t n, const trace_peaks *peaks, trace *out,
                        char error[512]);
/* The same of bytes in memory that are of no file. */
bool trace_read_bytes(const void *bytes, size_t n, trace *out, char error[512]);
void trace_release(trace *t);

/* What an operation waited for, from it back to where nothing was waited for: indices of ops, `most` at most. Returns how many. */
size_t trace_chain(const trace *t, int32_t op, int32_t *out, size_t most);

/* The operation of a lane that ends at a position, TRACE_NONE. */
int32_t trace_find_op(const trace *t, uint32_t lane, uint64_t position);

/* The lane of that number, NULL. */
const trace_lane *trace_find_lane(const trace *t, uint32_t lane);

/* Whether buffers take much that the rows of memory do not have: beyond how sizes are rounded up, and small ones of the library. */
static inline bool trace_has_rest(const trace_device *d)
{
    return d->in_use_rest > d->in_use_most / 100 && d->in_use_rest >= UINT64_C(65536);
}

const char *trace_name(const trace *t, int32_t name); /* "" for TRACE_NONE */
const char *trace_op_text(uint8_t kind);
/* "1.0:4711 axpy": device, lane and position, and what it is. */
enum { TRACE_TEXT = 160 };
const char *trace_op_name(const trace *t, int32_t op, char out[TRACE_TEXT]);

const char *trace_cause_id(trace_cause cause); /* "device": one word, for JSON and rules */
const char *trace_along_text(trace_along along);
const char *trace_cause_text(trace_cause cause);
const char *trace_way_text(uint8_t way);

#endif
