/* record/format.h - the records of a trace: the library writes them into a file, and `heddle trace`
 * and `heddle report` read them.
 *
 * A trace file is a row of records of 64 bytes, in the machine's byte order. The first record is
 * TRACE. A reader takes all whole records, so the file is valid at any moment, even after the
 * program was killed. Records of one source (a thread, an engine, the writer) are in order of time.
 * Records of different sources are not. Times of threads are within 200 ns of the clock.
 *
 * Times are those of hdi_clock_ns, in nanoseconds, unless a comment names the device's own time.
 * Each device's own time starts at its own zero point; CLOCK records relate it to the clock. A lane
 * is its global number: device * HDI_RECORD_LANES + number on the device. Positions are those of
 * tickets: an operation ends at its position. Lane and position together identify an operation.
 *
 * A text is in separate records right behind its record: TEXT, 56 bytes each, as many as `texts`
 * states.
 *
 * Threads: any; these are values. Locks: none.
 * Always: a reader ignores records of an unknown type. A field without a meaning for a record is 0.
 */
#ifndef HDI_RECORD_FORMAT_H
#define HDI_RECORD_FORMAT_H

#include <stdint.h>

#define HDI_RECORD_BYTES 64
#define HDI_RECORD_MAGIC UINT64_C(0x4543415254444848) /* "HHDTRACE" in memory */
#define HDI_RECORD_VERSION 2
#define HDI_RECORD_LANES 512     /* lane numbers per device */
#define HDI_RECORD_TEXT_BYTES 56 /* the bytes of a text in one TEXT record */
/* in place of a device's number: the host's memory, or no device */
#define HDI_RECORD_NO_DEVICE 255

enum {
    HDI_RECORD_NONE,
    /* The first record. If a file contains several traces, each begins with a TRACE. The records
     * behind a TRACE are about its runtime. */
    HDI_RECORD_TRACE,
    HDI_RECORD_TEXT,   /* continues the text of the record before */
    HDI_RECORD_DEVICE, /* a device; text: its name */
    /* a lane; this record comes before or soon after the records that name the lane */
    HDI_RECORD_LANE,
    HDI_RECORD_NAME,   /* the meaning of a number; text: the name */
    HDI_RECORD_SUBMIT, /* an operation was submitted */
    /* a dependency of an operation; comes before its SUBMIT */
    HDI_RECORD_WAIT,
    HDI_RECORD_ISSUE,    /* one call gave operations to the driver */
    HDI_RECORD_SPAN,     /* the device ran operations */
    HDI_RECORD_DONE,     /* the engine saw operations done */
    HDI_RECORD_CLOCK,    /* a device's own time and the clock */
    HDI_RECORD_TRANSFER, /* a call of the program submitted a transfer of bytes */
    HDI_RECORD_ALLOC,
    HDI_RECORD_FREE,
    HDI_RECORD_MEMORY,  /* a device's figures: at the begin, at the end, and when they change */
    HDI_RECORD_PAUSE,   /* a thread was held up */
    HDI_RECORD_LOSS,    /* a device was lost; text: the message */
    HDI_RECORD_RESTART, /* a device came back */
    HDI_RECORD_PUSH,    /* a range of the program begins */
    HDI_RECORD_POP,     /* the innermost range of the thread ends */
    HDI_RECORD_DROPPED, /* records were dropped because they had no room */
    /* A report of CUPTI about a device; text: the name, in the first record with that name. */
    HDI_RECORD_ACTIVITY,
    HDI_RECORD_END,   /* the trace was stopped */
    HDI_RECORD_LABEL, /* a buffer gets another label */
    /* A lane waits for more work of another lane than its WAIT names, because the next event there
     * stands behind more work. */
    HDI_RECORD_BEHIND,
    /* A range that may begin in one thread and end in another; written at its end. */
    HDI_RECORD_INTERVAL,
    HDI_RECORD_RANK,    /* the place of the runtime among the ranks of its program, and its clock */
    HDI_RECORD_MESSAGE, /* a message between ranks, written at its end */
    HDI_RECORD_TYPES
};

/* NAME: the meaning of the number. */
enum {
    HDI_RECORD_NAME_KERNEL = 1, /* the kernel's number; it may get another name later */
    HDI_RECORD_NAME_LABEL,      /* the label of a buffer */
    HDI_RECORD_NAME_RANGE,      /* the name of a range */
    HDI_RECORD_NAME_ACTIVITY,   /* CUPTI's name of a kernel */
    HDI_RECORD_NAME_THREAD,     /* a thread of the program, by its system number */
    /* an option in force: "name=value"; the numbers only count these records */
    HDI_RECORD_NAME_OPTION
};

/* LANE: its purpose. */
enum {
    /* a lane of the program: a default lane, or one that the program made */
    HDI_RECORD_LANE_PROGRAM = 1,
    HDI_RECORD_LANE_IN,    /* copies to the device */
    HDI_RECORD_LANE_OUT,   /* copies to the host */
    HDI_RECORD_LANE_ON,    /* copies on the device */
    HDI_RECORD_LANE_PEER,  /* copies to and from peers */
    HDI_RECORD_LANE_CLAIM, /* claims */
    HDI_RECORD_LANE_OTHER  /* the library's lane for anything else */
};

/* SUBMIT: the operation. */
enum {
    HDI_RECORD_OP_LAUNCH = 1,
    HDI_RECORD_OP_COPY,
    HDI_RECORD_OP_FILL,
    HDI_RECORD_OP_MATMUL,
    HDI_RECORD_OP_CALL, /* a function of the program that gives the driver work */
    HDI_RECORD_OP_MARK, /* no work: it ends with the work in front of it */
    /* the program may use the bytes from `claimed` (see DONE) until the operation's end */
    HDI_RECORD_OP_CLAIM,
    HDI_RECORD_OPS
};

/* COPY operations and TRANSFER: the route of the bytes. */
enum {
    HDI_RECORD_WAY_TO_DEVICE = 1, /* from pinned memory */
    HDI_RECORD_WAY_TO_HOST,       /* to pinned memory */
    HDI_RECORD_WAY_ON_DEVICE,
    /* between two devices, by a device that reaches the memory of the other */
    HDI_RECORD_WAY_PEER,
    HDI_RECORD_WAY_HOST,   /* between pinned buffers */
    HDI_RECORD_WAY_STAGED, /* TRANSFER only: between two devices through pinned chunks */
    /* TRANSFER only: from the program's memory, through pinned chunks or by the host. */
    HDI_RECORD_WAY_WRITE,
    HDI_RECORD_WAY_READ, /* TRANSFER only: to the program's memory */
    HDI_RECORD_WAYS
};

/* PAUSE: the reason. */
enum {
    /* The lane's ring was full, until `position` of `lane`; 0: unknown. */
    HDI_RECORD_PAUSE_ROOM = 1,
    /* A call waited for `position` of `lane`: hd_wait, hd_read, hd_map and others. */
    HDI_RECORD_PAUSE_WAIT,
    HDI_RECORD_PAUSE_MEMORY, /* an allocation waited for memory; device */
    /* Memory of a device was mapped, moved or unmapped; with device, bytes, and `detail`
     * HDI_RECORD_MAP_*. */
    HDI_RECORD_PAUSE_MAP,
    /* A device loaded a module's code or opened a library for products; device, bytes of the
     * module. */
    HDI_RECORD_PAUSE_CODE,
    /* A transfer for a device waited for a chunk of pinned memory, until `position` of `lane`; 0:
     * until another thread gave the chunk back. */
    HDI_RECORD_PAUSE_CHUNK,
    HDI_RECORD_PAUSE_CALLBACK, /* the program's function to reclaim memory ran; device */
    HDI_RECORD_PAUSES
};

enum { HDI_RECORD_MAP_MORE = 1, HDI_RECORD_MAP_MOVED, HDI_RECORD_MAP_LESS };

/* ALLOC: the steps of an allocation that its thread cache could not serve, bits of `rungs`. */
enum {
    HDI_RECORD_RUNG_ARENA = 1,     /* a free block of the device's memory */
    HDI_RECORD_RUNG_GREW = 2,      /* memory was mapped */
    HDI_RECORD_RUNG_CACHES = 4,    /* the thread caches of all threads were emptied */
    HDI_RECORD_RUNG_WAITED = 8,    /* the allocation waited for work in flight */
    HDI_RECORD_RUNG_CALLBACK = 16, /* the program was asked to free */
    HDI_RECORD_RUNG_FAILED = 32    /* no memory: hd_alloc failed */
};

/* ACTIVITY: its kind. */
enum { HDI_RECORD_ACTIVITY_KERNEL = 1, HDI_RECORD_ACTIVITY_COPY, HDI_RECORD_ACTIVITY_FILL };

/* MESSAGE: its kind, with the numbers of hd_trace_message_kind. */
enum {
    HDI_RECORD_MESSAGE_SEND = 1,
    HDI_RECORD_MESSAGE_RECEIVE,
    HDI_RECORD_MESSAGE_BCAST, /* from here on, collective operations */
    HDI_RECORD_MESSAGE_REDUCE,
    HDI_RECORD_MESSAGE_ALLREDUCE,
    HDI_RECORD_MESSAGE_ALLGATHER,
    HDI_RECORD_MESSAGE_ALLTOALL,
    HDI_RECORD_MESSAGE_BARRIER,
    HDI_RECORD_MESSAGES,
    HDI_RECORD_MESSAGE_FAILED = 128 /* added to the kind of a message that failed */
};
/* MESSAGE: the bits of `op` that contain the position. The bits above contain the lane. */
#define HDI_RECORD_MESSAGE_POSITION_BITS 48

/* SPAN: how it was measured. */
enum {
    /* The times are the begin of the first operation and the end of the last one. */
    HDI_RECORD_SPAN_EDGES = 1,
    HDI_RECORD_SPAN_ONE /* the times of a single operation */
};
enum {
    /* The lane was idle, so the begin is when the first operation reached the device: soon after
     * the driver's call returned. */
    HDI_RECORD_SPAN_BEGAN_BY_CLOCK = 1,
    HDI_RECORD_SPAN_ENDED_BY_CLOCK = 2 /* the end is when the engine saw the last operation end */
};

typedef union hdi_record {
    /* All records share these first bytes. */
    struct {
        uint8_t type; /* HDI_RECORD_* */
        uint8_t kind; /* see the comments below */
        /* the number of the device in the runtime, if the record is about one device */
        uint8_t device;
        uint8_t texts; /* this many TEXT records follow */
        /* The system's number of the thread that wrote it; 0: an engine or the writer. */
        uint32_t thread;
        int64_t time;
    };
    struct { /* TRACE; kind: HDI_RECORD_DETAIL_*, device: number of devices */
        uint32_t first, thread;
        int64_t time;
        uint64_t magic;
        uint32_t version, process;
        int64_t since_1970; /* ns, at `time` */
        uint32_t placement; /* 0 inline, 1 thread, 2 process */
        uint32_t run;       /* the number of the runtime in its process, from 1 */
        uint64_t reserved[2];
    } trace;
    struct { /* TEXT; kind: how many bytes of the text are in this record */
        uint8_t type, bytes;
        uint8_t reserved[6];
        char text[HDI_RECORD_TEXT_BYTES];
    } text;
    struct { /* DEVICE; kind: 1 for a host device */
        uint32_t first, thread;
        int64_t time;
        uint64_t memory; /* bytes */
        uint8_t uuid[16];
        char bus[16]; /* "0000:1b:00.0"; "" for none */
    } a_device;
    struct { /* LANE; kind: HDI_RECORD_LANE_* */
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, slots; /* `slots`: the slots of the lane's ring */
        uint64_t reserved[5];
    } a_lane;
    struct { /* NAME; kind: HDI_RECORD_NAME_* */
        uint32_t first, thread;
        int64_t time;
        uint64_t number;
        uint64_t reserved[5];
    } name;
    struct { /* SUBMIT; kind: HDI_RECORD_OP_* */
        uint32_t first, thread;
        int64_t time; /* a time before the engine could see the operation */
        uint32_t lane;
        uint32_t kernel;   /* LAUNCH: the kernel's number; COPY: HDI_RECORD_WAY_* */
        uint64_t position; /* where the operation ends */
        /* The end of the lane's previous operation, or the begin of this operation's waits. */
        uint64_t before;
        uint64_t bytes; /* COPY, FILL */
        /* LAUNCH: the blocks of the grid, at most 2^32 - 1. COPY: 1 if one side is a pinned chunk
         * of the library. */
        uint32_t blocks;
        uint32_t threads; /* LAUNCH: the threads of a block */
        /* Slots of the lane's ring that unfinished work took, including this operation. */
        uint32_t ring;
        uint8_t src, dst; /* COPY: devices, HDI_RECORD_NO_DEVICE for pinned memory; 254: unknown */
        /* the number of the operation's WAIT records, including dropped ones; at most 65,535 */
        uint16_t waits;
    } submit;
    /* WAIT; kind: 1 if the operation reads bytes that the other operation writes, 0 if only the
     * order matters. */
    struct {
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, other_lane; /* the lanes of the operation and of the other operation */
        uint64_t position;         /* the position of the operation, as in its SUBMIT */
        /* the position of the other operation, or of earlier work in its lane */
        uint64_t other_position;
        uint64_t buffer;   /* as in ALLOC */
        uint32_t label;    /* NAME of the buffer's label; 0: none */
        uint32_t low_unit; /* the range that the operation uses, in units of `unit` bytes */
        uint32_t high_unit, unit;
    } wait;
    struct { /* BEHIND */
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, other_lane;
        /* The operation that waits is the first one in the lane that ends behind this position. */
        uint64_t before;
        uint64_t other_position; /* the position of the awaited operation */
        uint64_t reserved[3];
    } behind;
    /* ISSUE; kind: 1 if the driver or the function of a CALL refused the work, or the engine
     * skipped it. */
    struct {
        uint32_t first, thread;
        int64_t time;              /* before the call */
        uint32_t lane, count;      /* count: operations */
        uint64_t before, position; /* the operations from behind `before` up to `position` */
        int64_t returned;
        uint64_t reserved[2];
    } issue;
    struct { /* SPAN; kind: HDI_RECORD_SPAN_* */
        uint32_t first, thread;
        int64_t time; /* when the engine knew the times */
        /* way: ns from the return of the first operation's call to the begin of this operation on
         * an idle device; 0: unknown */
        uint32_t lane, way;
        uint64_t before, position; /* the operations from behind `before` up to `position` */
        /* in the device's own time, corrected by the time that events take */
        int64_t began, ended;
        /* HDI_RECORD_OP_* of all operations; LAUNCH also stands for fills, products and calls among
         * them. */
        uint32_t op;
        /* the HDI_RECORD_SPAN_*_BY_CLOCK, combined: these ends are times of hdi_clock_ns */
        uint32_t by_clock;
    } span;
    /* DONE. One position before a claim's end, the program may use the claim's bytes. If no DONE
     * shows that position, the program could use them at once. The thread that ends such a claim
     * may write the DONE of its end. */
    struct {
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, reserved;
        uint64_t before, position;
        uint64_t rest[3];
    } done;
    struct { /* CLOCK */
        uint32_t first, thread;
        int64_t time;
        int64_t own;    /* the device's own time at `time` */
        int64_t within; /* the largest error of the comparison, in ns */
        uint64_t reserved[4];
    } clock;
    struct { /* TRANSFER; kind: HDI_RECORD_WAY_* */
        uint32_t first, thread;
        int64_t time;     /* when the call began */
        uint32_t lane;    /* the lane of its last operation */
        uint8_t src, dst; /* devices, HDI_RECORD_NO_DEVICE */
        uint16_t reserved;
        /* the position of its last operation; 0: the host moved the bytes within the call */
        uint64_t position;
        uint64_t bytes;
        int64_t returned; /* when the call returned */
        uint32_t src_label, dst_label;
        uint64_t rest;
    } transfer;
    struct { /* ALLOC, FREE, LABEL; kind: 0 of a device, 1 pinned, 2 unified */
        uint32_t first, thread;
        int64_t time;    /* ALLOC: when it returned */
        uint64_t buffer; /* a number that no other living buffer uses */
        uint64_t bytes;
        uint32_t label;
        uint32_t rungs; /* ALLOC: HDI_RECORD_RUNG_* */
        int64_t took;   /* ALLOC: ns from the call */
        uint64_t address;
        uint64_t reserved;
    } alloc;
    struct { /* MEMORY */
        uint32_t first, thread;
        int64_t time;
        /* bytes in buffers, bytes mapped, and the limit in bytes (0: none) */
        uint64_t in_use, held, limit;
        uint64_t pinned; /* bytes of pinned memory, of all devices */
        uint64_t reserved[2];
    } memory;
    struct { /* PAUSE; kind: HDI_RECORD_PAUSE_* */
        uint32_t first, thread;
        int64_t time; /* when it began */
        int64_t ended;
        uint32_t lane, detail;
        uint64_t position;
        uint64_t bytes;
        uint64_t reserved[2];
    } pause;
    struct { /* LOSS, RESTART */
        uint32_t first, thread;
        int64_t time;
        int64_t ended; /* RESTART: when the device was up again */
        int64_t code;  /* LOSS: the driver's code, or a code of the library below 0 */
        uint32_t lane; /* LOSS: the lane of the first operation to blame */
        uint32_t kernel;
        uint64_t position;
        uint64_t reserved[2];
    } loss;
    /* PUSH, POP; kind: 1 for a range of NVTX. A POP may come behind later records of its thread. */
    struct {
        uint32_t first, thread;
        int64_t time;
        uint64_t name; /* its NAME record */
        uint64_t reserved[5];
    } range;
    struct { /* INTERVAL; kind: 1 for a range of NVTX. `thread` ended it */
        uint32_t first, thread;
        int64_t time; /* when it began */
        int64_t ended;
        uint64_t name;     /* NAME of the interval, as in a range */
        uint32_t began_by; /* the system's number of the thread that began it */
        uint32_t rest;
        uint64_t reserved[3];
    } interval;
    struct { /* DROPPED; kind: 0 of a thread, 1 of an engine, 2 of the file */
        uint32_t first, thread;
        int64_t time;
        /* how many records were dropped since the last DROPPED of the same source */
        uint64_t count;
        /* For the file: how many records in front of this record give a partial view, because other
         * records of their time are missing. */
        uint64_t partial;
        uint64_t reserved[4];
    } dropped;
    struct { /* ACTIVITY; kind: HDI_RECORD_ACTIVITY_* */
        uint32_t first, thread;
        int64_t time; /* when it began */
        int64_t ended;
        uint64_t name; /* its NAME record */
        uint32_t stream, correlation;
        uint64_t bytes; /* COPY, FILL */
        /* The devices of source and destination; HDI_RECORD_NO_DEVICE: the host's memory, or
         * another device. */
        uint32_t src, dst;
        uint64_t reserved;
    } activity;
    /* RANK. A time of rank 0's clock is a time of this trace plus `offset`. If a trace contains
     * several of these records, the offset changes between them at a constant rate. */
    struct {
        uint32_t first, thread;
        int64_t time;
        uint64_t run; /* the same on all ranks of a run */
        int64_t offset;
        int64_t within; /* the largest error of the offset, in ns */
        uint32_t rank, ranks;
        uint64_t reserved[2];
    } rank;
    struct { /* MESSAGE; kind: HDI_RECORD_MESSAGE_* */
        uint32_t first, thread;
        int64_t time; /* when it was posted */
        /* position | lane << HDI_RECORD_MESSAGE_POSITION_BITS of its claim; 0: it has none */
        uint64_t op;
        int32_t peer; /* the rank at the other end, or the root; -1: none */
        int32_t tag;
        uint32_t communicator; /* the same number on all its ranks */
        uint32_t order;        /* counts the runtime's messages in the order of posting, from 1 */
        uint64_t bytes;
        int64_t ready, ended; /* when its bytes were ready, and when it ended */
    } message;
    uint64_t words[HDI_RECORD_BYTES / 8];
} hdi_record;

_Static_assert(sizeof(hdi_record) == HDI_RECORD_BYTES, "a record has 64 bytes");

/* TRACE: how much the trace records. */
enum {
    HDI_RECORD_DETAIL_EDGES = 1, /* device times at the edges of busy stretches */
    HDI_RECORD_DETAIL_FULL,      /* device times of each operation */
    HDI_RECORD_DETAIL_CUPTI      /* like EDGES, and the times that CUPTI reports */
};

#endif
