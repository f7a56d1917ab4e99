/* record/format.h - the records of a trace: what the library writes into a file, and what `heddle trace` and `heddle report` read.
 *
 * A trace file is a row of records of 64 bytes, of the machine's own byte order. The first one is TRACE. A reader takes all
 * whole records that are there, so the file is good at any moment, also after the program was killed.
 * Records of one source are in order of time: a thread, an engine, the writer. Those of several sources are not.
 * Times of threads are within 200 ns of the clock.
 *
 * Times are of hdi_clock_ns, in nanoseconds, unless a comment names the device's own time. Each device's own time has a zero point
 * of its own; CLOCK records relate it to the clock. A lane is its global number: device * HDI_RECORD_LANES + number on the device.
 * Positions are those of tickets: an operation ends at its position. An operation is known by its lane and its position.
 *
 * A text stands in records of its own right behind the record that it belongs to: TEXT, 56 bytes each, as many as `texts` states.
 *
 * Threads: any; these are values. Locks: none.
 * Always: a reader ignores records of a type that it does not have. A field without a meaning for a record is 0.
 */
#ifndef HDI_RECORD_FORMAT_H
#define HDI_RECORD_FORMAT_H

#include <stdint.h>

#define HDI_RECORD_BYTES 64
#define HDI_RECORD_MAGIC UINT64_C(0x4543415254444848) /* "HHDTRACE" in memory */
#define HDI_RECORD_VERSION 1
#define HDI_RECORD_LANES 256     /* lane numbers per device */
#define HDI_RECORD_TEXT_BYTES 56 /* of a text in one TEXT record */
#define HDI_RECORD_NO_DEVICE 255 /* as a device: the host's memory, or none */

enum {
    HDI_RECORD_NONE,
    HDI_RECORD_TRACE, /* the first record, and one for each start of a trace in the same file; what follows is of its runtime */
    HDI_RECORD_TEXT,     /* goes on with the text of the record before */
    HDI_RECORD_DEVICE,   /* a device; text: its name */
    HDI_RECORD_LANE,     /* a lane that records name, before or soon after them */
    HDI_RECORD_NAME,     /* what a number stands for; text: the name */
    HDI_RECORD_SUBMIT,   /* an operation was submitted */
    HDI_RECORD_WAIT,     /* what an operation waits for; before its SUBMIT */
    HDI_RECORD_ISSUE,    /* operations were given to the driver in one call */
    HDI_RECORD_SPAN,     /* the device ran operations */
    HDI_RECORD_DONE,     /* the engine has seen that operations are done */
    HDI_RECORD_CLOCK,    /* a device's own time and the clock */
    HDI_RECORD_TRANSFER, /* a call of the program's that moves bytes has submitted them */
    HDI_RECORD_ALLOC,
    HDI_RECORD_FREE,
    HDI_RECORD_MEMORY,   /* a device's figures: at the begin, at the end, and where they have changed */
    HDI_RECORD_PAUSE,    /* a thread was held up */
    HDI_RECORD_LOSS,     /* a device was lost; text: the message */
    HDI_RECORD_RESTART,  /* a device came back */
    HDI_RECORD_PUSH,     /* a range of the program's begins */
    HDI_RECORD_POP,      /* the innermost one of the thread ends */
    HDI_RECORD_DROPPED,  /* records that had no room */
    HDI_RECORD_ACTIVITY, /* what CUPTI reports of a device; text: the name, on the first of each name */
    HDI_RECORD_END,      /* the trace was stopped */
    HDI_RECORD_LABEL,    /* a buffer has another label from here on */
    HDI_RECORD_BEHIND,   /* an engine lets a lane wait for more than a WAIT states, since the next event stands there */
    HDI_RECORD_INTERVAL, /* a range that may begin in one thread and end in another; written when it ends */
    HDI_RECORD_TYPES
};

/* NAME: what the number is one of. */
enum {
    HDI_RECORD_NAME_KERNEL = 1, /* the kernel's number; the same number may have another name later */
    HDI_RECORD_NAME_LABEL,      /* the label of a buffer */
    HDI_RECORD_NAME_RANGE,      /* the name of a range */
    HDI_RECORD_NAME_ACTIVITY,   /* a kernel's name by CUPTI */
    HDI_RECORD_NAME_THREAD,     /* a thread of the program, by its number in the system */
    HDI_RECORD_NAME_OPTION      /* an option in force: "name=value"; the numbers count */
};

/* LANE: what it is for. */
enum {
    HDI_RECORD_LANE_PROGRAM = 1, /* the program's, by default or made by it */
    HDI_RECORD_LANE_IN,          /* copies to the device */
    HDI_RECORD_LANE_OUT,         /* copies to the host */
    HDI_RECORD_LANE_ON,          /* copies on the device */
    HDI_RECORD_LANE_PEER,        /* copies to and from peers */
    HDI_RECORD_LANE_CLAIM,       /* claims */
    HDI_RECORD_LANE_OTHER        /* the library's, for anything else */
};

/* SUBMIT: the operation. */
enum {
    HDI_RECORD_OP_LAUNCH = 1,
    HDI_RECORD_OP_COPY,
    HDI_RECORD_OP_FILL,
    HDI_RECORD_OP_MATMUL,
    HDI_RECORD_OP_CALL,  /* a function of the program that gives the driver work */
    HDI_RECORD_OP_MARK,  /* no work: it ends with what is in front of it */
    HDI_RECORD_OP_CLAIM, /* bytes are the program's from `claimed` (see DONE) to its end */
    HDI_RECORD_OPS
};

/* COPY operations and TRANSFER: the way of the bytes. */
enum {
    HDI_RECORD_WAY_TO_DEVICE = 1, /* from pinned memory */
    HDI_RECORD_WAY_TO_HOST,       /* to pinned memory */
    HDI_RECORD_WAY_ON_DEVICE,
    HDI_RECORD_WAY_PEER,   /* between two devices, by one that reaches the other's memory */
    HDI_RECORD_WAY_HOST,   /* between pinned buffers */
    HDI_RECORD_WAY_STAGED, /* TRANSFER only: between two devices through pinned chunks */
    HDI_RECORD_WAY_WRITE,  /* TRANSFER only: from the program's memory, through pinned chunks or by the host */
    HDI_RECORD_WAY_READ,   /* TRANSFER only: to the program's memory */
    HDI_RECORD_WAYS
};

/* PAUSE: why the thread was held up. */
enum {
    HDI_RECORD_PAUSE_ROOM = 1, /* the lane's ring was full, until `position` of `lane`; 0: unknown */
    HDI_RECORD_PAUSE_WAIT,     /* a call waited for `position` of `lane`: hd_wait, hd_read, hd_map and others */
    HDI_RECORD_PAUSE_MEMORY,   /* an allocation waited for memory; device */
    HDI_RECORD_PAUSE_MAP, /* memory of a device was mapped, moved or unmapped; device, bytes, `detail` HDI_RECORD_MAP_* */
    HDI_RECORD_PAUSE_CODE, /* a module's code was loaded onto a device, or a library for products opened there; device, bytes of the module */
    /* A transfer for a device waited for a chunk of pinned memory, until `position` of `lane`; 0: until another thread gave it. */
    HDI_RECORD_PAUSE_CHUNK,
    HDI_RECORD_PAUSE_CALLBACK, /* the program's function to reclaim memory ran; device */
    HDI_RECORD_PAUSES
};

enum { HDI_RECORD_MAP_MORE = 1, HDI_RECORD_MAP_MOVED, HDI_RECORD_MAP_LESS };

/* ALLOC: which steps an allocation took beyond its thread's own store, bits of `rungs`. */
enum {
    HDI_RECORD_RUNG_ARENA = 1,     /* a free block of the device's memory */
    HDI_RECORD_RUNG_GREW = 2,      /* memory was mapped */
    HDI_RECORD_RUNG_CACHES = 4,    /* all threads' stores were emptied */
    HDI_RECORD_RUNG_WAITED = 8,    /* it waited for work in flight */
    HDI_RECORD_RUNG_CALLBACK = 16, /* the program was asked to free */
    HDI_RECORD_RUNG_FAILED = 32    /* there was none: hd_alloc failed */
};

/* ACTIVITY: what it was. */
enum { HDI_RECORD_ACTIVITY_KERNEL = 1, HDI_RECORD_ACTIVITY_COPY, HDI_RECORD_ACTIVITY_FILL };

/* SPAN: how it was measured. */
enum {
    HDI_RECORD_SPAN_EDGES = 1, /* several operations, whose first one began and last one ended then */
    HDI_RECORD_SPAN_ONE        /* a single one */
};
enum {
    HDI_RECORD_SPAN_BEGAN_BY_CLOCK = 1, /* when the first one had come to an idle lane: soon after its call returned */
    HDI_RECORD_SPAN_ENDED_BY_CLOCK = 2  /* when the engine saw that the last one had ended */
};

typedef union hdi_record {
    /* The same first bytes in all. */
    struct {
        uint8_t type;    /* HDI_RECORD_* */
        uint8_t kind;    /* what the comments below state */
        uint8_t device;  /* in the runtime, where the record is one device's */
        uint8_t texts;   /* so many TEXT records follow */
        uint32_t thread; /* the system's number of the thread that wrote it; 0: an engine or the writer */
        int64_t time;
    };
    struct { /* TRACE; kind: HDI_RECORD_DETAIL_*, device: how many devices there are */
        uint32_t first, thread;
        int64_t time;
        uint64_t magic;
        uint32_t version, process;
        int64_t since_1970; /* ns, at `time` */
        uint32_t placement; /* 0 inline, 1 thread, 2 process */
        uint32_t run;       /* of several runtimes in one process: which one; counts from 1 */
        uint64_t reserved[2];
    } trace;
    struct { /* TEXT; kind: bytes of it in this record */
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
        uint32_t lane, slots; /* slots: of its ring */
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
        int64_t time; /* before the engine could see it */
        uint32_t lane;
        uint32_t kernel;   /* LAUNCH: its number; COPY: HDI_RECORD_WAY_* */
        uint64_t position; /* where it ends */
        uint64_t before;   /* where the lane's operation before it ended, or the waits of this one begin */
        uint64_t bytes;    /* COPY, FILL */
        uint32_t
            blocks; /* LAUNCH: of the grid, at most 2^32 - 1; COPY: 1 where one side is a pinned chunk of the library */
        uint32_t threads; /* LAUNCH: of a block */
        uint32_t ring;    /* slots of the lane's ring that unfinished work took, this operation included */
        uint8_t src, dst; /* COPY: devices, HDI_RECORD_NO_DEVICE for pinned memory; 254: unknown */
        uint16_t waits;   /* WAIT records in front of it, also those that had no room; at most 65,535 */
    } submit;
    struct { /* WAIT; kind: 1 where the operation reads what the other one writes, 0 for the order alone */
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, other_lane; /* of the operation, and of what it waits for */
        uint64_t position;         /* of the operation: the same as its SUBMIT has */
        uint64_t other_position;   /* of what it waits for, or of what is in front of that in its lane */
        uint64_t buffer;           /* as ALLOC has it */
        uint32_t label;            /* NAME of the buffer's label; 0: none */
        uint32_t low_unit;         /* the range that it uses: in units of `unit` bytes, as */
        uint32_t high_unit, unit;
    } wait;
    struct { /* BEHIND */
        uint32_t first, thread;
        int64_t time;
        uint32_t lane, other_lane;
        uint64_t before;         /* of the operation that waits: the first one of the lane that ends behind it */
        uint64_t other_position; /* of what it waits for */
        uint64_t reserved[3];
    } behind;
    struct { /* ISSUE; kind: 1 where the driver or the function of a CALL refused it, or it was passed over */
        uint32_t first, thread;
        int64_t time;              /* before the call */
        uint32_t lane, count;      /* count: operations */
        uint64_t before, position; /* from behind `before` up to here */
        int64_t returned;
        uint64_t reserved[2];
    } issue;
    struct { /* SPAN; kind: HDI_RECORD_SPAN_* */
        uint32_t first, thread;
        int64_t time; /* of the engine, when it had the times */
        /* way: ns from the return of the first operation's call to its begin on a device at rest; 0: not known */
        uint32_t lane, way;
        uint64_t before, position; /* operations from behind `before` up to here */
        int64_t began, ended;      /* in the device's own time; what the events themselves take is taken off */
        uint32_t op;       /* HDI_RECORD_OP_* of all of them; LAUNCH also for fills, products and calls among them */
        uint32_t by_clock; /* HDI_RECORD_SPAN_*_BY_CLOCK, together: those are of hdi_clock_ns */
    } span;
    /* DONE. A claim's bytes are the program's at the position before its end; where no DONE has that, they were so at once. The thread
     * that ends such a claim may write its end. */
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
        int64_t within; /* both are that close, in ns */
        uint64_t reserved[4];
    } clock;
    struct { /* TRANSFER; kind: HDI_RECORD_WAY_* */
        uint32_t first, thread;
        int64_t time;     /* when the call began */
        uint32_t lane;    /* of its last operation */
        uint8_t src, dst; /* devices, HDI_RECORD_NO_DEVICE */
        uint16_t reserved;
        uint64_t position; /* of its last operation; 0: the host did it within the call */
        uint64_t bytes;
        int64_t returned; /* when the call returned */
        uint32_t src_label, dst_label;
        uint64_t rest;
    } transfer;
    struct { /* ALLOC, FREE, LABEL; kind: 0 of a device, 1 pinned, 2 unified */
        uint32_t first, thread;
        int64_t time;    /* ALLOC: when it returned */
        uint64_t buffer; /* a number that no other buffer has while it lives */
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
        uint64_t in_use, held, limit; /* bytes: of buffers, mapped, the most (0: no limit) */
        uint64_t pinned;              /* bytes of pinned memory, of all devices */
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
        int64_t ended; /* RESTART: when it was up */
        int64_t code;  /* LOSS: the driver's, or one of the library's below 0 */
        uint32_t lane; /* LOSS: of the first operation to blame */
        uint32_t kernel;
        uint64_t position;
        uint64_t reserved[2];
    } loss;
    struct { /* PUSH, POP; kind: 1 for a range of NVTX. A POP may come behind later records of its thread */
        uint32_t first, thread;
        int64_t time;
        uint64_t name; /* NAME of it */
        uint64_t reserved[5];
    } range;
    struct { /* INTERVAL; kind: 1 for a range of NVTX. `thread` ended it */
        uint32_t first, thread;
        int64_t time; /* when it began */
        int64_t ended;
        uint64_t name;     /* NAME of it, as a range has */
        uint32_t began_by; /* the system's number of the thread that began it */
        uint32_t rest;
        uint64_t reserved[3];
    } interval;
    struct { /* DROPPED; kind: 0 of a thread, 1 of an engine, 2 of the file */
        uint32_t first, thread;
        int64_t time;
        uint64_t count; /* records, since the last DROPPED of the same source */
        uint64_t
            partial; /* of the file: so many records in front of this one are of a time that others are missing of */
        uint64_t reserved[4];
    } dropped;
    struct { /* ACTIVITY; kind: HDI_RECORD_ACTIVITY_* */
        uint32_t first, thread;
        int64_t time; /* when it began */
        int64_t ended;
        uint64_t name; /* NAME of it */
        uint32_t stream, correlation;
        uint64_t bytes;    /* COPY, FILL */
        uint32_t src, dst; /* likewise: devices, HDI_RECORD_NO_DEVICE for the host's memory, or another device */
        uint64_t reserved;
    } activity;
    uint64_t words[HDI_RECORD_BYTES / 8];
} hdi_record;

_Static_assert(sizeof(hdi_record) == HDI_RECORD_BYTES, "a record has 64 bytes");

/* TRACE: how much is recorded. */
enum {
    HDI_RECORD_DETAIL_EDGES = 1, /* device times at the edges of busy stretches */
    HDI_RECORD_DETAIL_FULL,      /* of each operation */
    HDI_RECORD_DETAIL_CUPTI      /* as edges, and CUPTI's own */
};

#endif
