/* channel.h - the shared mapping of one device: everything that both the application's side and the engine touch.
 *
 * It holds no pointers and no process-local handles, so that an engine in another process can map it and run the same
 * code. Its areas, in order:
 * - engine: what concerns the device as a whole
 * - lanes: the state of each lane
 * - flags: one cache line per lane, which the device itself writes
 * - requests, rings, logs of failures (failures.h), times of operations (times.h), and the engine's records of a trace
 *
 * A position counts slots of a lane's command ring since the lane was made and never goes back. The slot's number is the
 * position modulo the ring's size. A ticket is the position behind its command. Long argument blocks continue in the
 * following slots. A command never wraps around the ring's end: a SKIP fills the gap.
 *
 * Areas are whole pages, and a worker process maps those that it does not write for
 * reading only.
 *
 * A worker process may write anything anywhere in the channel, and die at any moment. So the application keeps in
 * memory of its own (hd_lane, hdi_device) what it owns. This is how far lanes are filled, how much of a log is
 * archived, and the device's state. The application compares the engine's reports with that (ticket.c). A
 * worker that reports something impossible is killed.
 *
 * Threads: each field's comment names the side that writes it. Submitters write commands, the engine reads them.
 * Locks: the device's order lock while commands are written; none else, except where a field's comment names one.
 * Always:
 * - A field has one writing side. The application never reads from here what it owns.
 * - A ring holds no pointers of the application, so it means the same to an engine in another process. A kernel is a
 *   number in the runtime's table, memory is a device address, a lane is a number. Only a CALL has pointers, since it is for
 *   engines in the application's process.
 */
#ifndef HDI_ENGINE_CHANNEL_H
#define HDI_ENGINE_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/shm.h"
#include "driver/provider.h"
#include "record/ring.h"

/* ---- positions and commands ---- */

/* A position in a lane of this runtime. The work that it names is finished once the lane's `done` has reached it. */
typedef struct hdi_point {
    uint32_t lane;     /* global number of the lane in the runtime */
    uint64_t position; /* its sequence number there */
} hdi_point;

#define HDI_SLOT_BYTES 64
#define HDI_ARGUMENT_BYTES_MAX 4096
#define HDI_SOURCES_MOST 13 /* in one command */
#define HDI_COMMAND_SLOTS_MAX (1 + HDI_ARGUMENT_BYTES_MAX / HDI_SLOT_BYTES)

/* The one table of operations, which a ticket of the application can stand for: X(op, call, name, entries, rank).
 * - call: its name in issue.c, which has the driver call of each
 * - name: its name in messages
 * - entries: how many entries of the driver's queue it takes
 * - rank: its rank among the suspects of a loss, the likeliest first; HDI_RANK_INNOCENT: none
 *
 * COPY_BOX copies rows at equal distances. MATMUL is a call of a library, which is few kernels. Its command is a
 * hdi_product (blas/blas.h), whose first bytes are those of a command.
 * CALL is a function of the program, which gives the driver work of its own. No worker process is ever given one.
 * MARK is no work: it ends with what is in front of it.
 * CLAIM has two slots. Its first one ends when the program may use the bytes. The second one, CLAIMED, ends when the program
 * has ended the claim. Only its end is an operation's. */
#define HDI_RANK_INNOCENT 3
#define HDI_OP_MAP(X)                                                                                                  \
    X(LAUNCH, launch, "launch", 1, 0)                                                                                  \
    X(COPY, copy, "copy", 1, 2)                                                                                        \
    X(FILL, fill, "fill", 1, 2)                                                                                        \
    X(COPY_BOX, copy_box, "copy", 4, 2)                                                                                \
    X(MATMUL, matmul, "matrix product", 8, 1)                                                                          \
    X(CALL, call, "call", 16, 1)                                                                                       \
    X(MARK, nothing, "wait", 0, 3)                                                                                     \
    X(CLAIM, nothing, "claim", 0, 3)                                                                                   \
    X(CLAIMED, nothing, "claim", 0, 3)

enum {
    HDI_OP_NONE, /* no command has it */
#define HDI_OP_OF_MAP(op, call, name, entries, rank) HDI_OP_##op,
    HDI_OP_MAP(HDI_OP_OF_MAP)
#undef HDI_OP_OF_MAP
        HDI_OPS,           /* what follows is between a lane and its engine, and is no operation */
    HDI_OP_SKIP = HDI_OPS, /* nothing; fills the ring up to its end */
    HDI_OP_WAIT,           /* the lane goes on when another lane has finished a position */
    HDI_OP_RESUME,         /* a failed lane accepts work again */
    HDI_OP_SOURCES         /* the next operation reads results of another lane; a WAIT before it gives the order */
};

enum {
    HDI_COPY_TO_DEVICE = 1, /* from host memory */
    HDI_COPY_TO_HOST,
    HDI_COPY_ON_DEVICE, /* both sides reachable by the lane's device */
    HDI_COPY_PEER,      /* likewise, and one of them another device's */
    HDI_COPY_HOST,      /* host to host */
    HDI_COPY_KIND = 255,
    /* A flag beside the kind: other lanes are going to wait for exactly this operation. The engine marks its end at
     * once, so that they need not wait for the end of a later one. */
    HDI_COPY_AWAITED = 256
};

/* A launch is packed so that a kernel of three buffers and three or four numbers needs one slot. */
typedef union hdi_command {
    /* The same first bytes in all. */
    struct {
        uint8_t op;
        uint8_t slots; /* of the whole command */
        union {
            uint16_t kernel; /* LAUNCH: number in the runtime's table */
            uint16_t kind;   /* COPY, COPY_BOX: HDI_COPY_*, with flags */
        };
    };
    struct {
        uint32_t first;
        uint32_t grid_x;
        uint16_t grid_y, grid_z;
        uint32_t block; /* hdi_block_pack */
        uint16_t argument_bytes;
        uint16_t shared_units; /* dynamic shared memory, in units of HDI_SHARED_UNIT */
        uint32_t reserved;
        unsigned char arguments[40]; /* goes on in the following slots */
    } launch;
    struct {
        uint32_t first;
        /* Not 0: a completion write follows it at once, since a thread will check how far the lane is. */
        uint32_t signalled;
        uint64_t dst, src, bytes;
    } copy;
    struct {
        uint32_t first, reserved;
        uint64_t dst, src;
        uint64_t dst_pitch, src_pitch; /* bytes from one row to the next */
        uint64_t row, rows;            /* bytes of a row, number of rows */
    } box;
    struct {
        uint32_t first;
        uint32_t pattern;
        uint64_t dst, words;
    } fill;
    struct {
        uint32_t first, reserved;
        uint64_t function, context; /* of the program's, hence only where the engine is in its process */
    } call;
    struct {
        uint32_t first;
        uint32_t lane;     /* global number */
        uint64_t position; /* of that lane */
        uint64_t source;   /* position whose result is read: if it failed, this lane's command fails; 0: none */
    } wait;
    struct {
        uint32_t first;
        uint32_t lane;                         /* global number */
        uint64_t position;                     /* position whose result is read; the others are so much behind it: */
        uint32_t behind[HDI_SOURCES_MOST - 1]; /* 0: no further one */
    } sources;
    unsigned char bytes[HDI_SLOT_BYTES];
} hdi_command;

#define HDI_MATMUL_SLOTS 2
#define HDI_CLAIM_ON_STREAM 1 /* kind of a CLAIM: no thread needs to see at once that it is ready */
#define HDI_CLAIM_SLOTS 2

/* Whether it is an operation of the table. */
static inline bool hdi_op_is_work(unsigned op)
{
    return op - 1 < HDI_OPS - 1;
}

#define HDI_SHARED_UNIT 16

/* x and y up to 2047, z up to 1023, which is more than any device allows. */
static inline uint32_t hdi_block_pack(uint32_t x, uint32_t y, uint32_t z)
{
    return x | y << 11 | z << 22;
}
static inline uint32_t hdi_block_x(uint32_t block)
{
    return block & 2047;
}
static inline uint32_t hdi_block_y(uint32_t block)
{
    return block >> 11 & 2047;
}
static inline uint32_t hdi_block_z(uint32_t block)
{
    return block >> 22;
}

_Static_assert(sizeof(hdi_command) == HDI_SLOT_BYTES, "a command's first part is one slot");

/* ---- what is shared ---- */

#define HDI_LANES_MAX 256       /* per device */
#define HDI_FAILURES_LEAST 4096 /* records of a lane's log; or twice a ring's slots where that is more */
#define HDI_LINE 64

/* Operations at positions from..to failed. */
typedef struct hdi_failure {
    uint64_t from, to;
    uint64_t position; /* of the operation that is to blame, in lane `lane` */
    uint32_t lane;     /* global number */
    int32_t driver_code;
    uint32_t kernel;   /* for a launch: number in the runtime's table; for a claim or a call: how it ended (claims.h) */
    uint8_t op;        /* HDI_OP_* to blame; 0: unknown */
    uint8_t lost;      /* the device was lost */
    uint8_t inherited; /* this lane's operation read the result of the one to blame */
    uint8_t waited;    /* of a lost device: the one to blame is in another lane, which this one waited for */
    uint64_t loss;     /* likewise: number of the loss, see hdi_loss_suspects; 0: not recorded */
    uint64_t begun;    /* likewise: what is behind this position of this lane had not begun */
} hdi_failure;

#define HDI_FAILURE_WORDS (sizeof(hdi_failure) / sizeof(uint64_t))
_Static_assert(sizeof(hdi_failure) % sizeof(uint64_t) == 0, "records are copied word by word");

/* Which side fences between its store and its load. A submitter stores `head`, and then loads whether its lane is
 * active and the engine awake. An engine that is about to sleep, or to take a lane off, stores that and then loads
 * `head`. One of them has to see the other's store. Submitters do this far more often. */
enum {
    HDI_FENCES_SUBMITTER = 0, /* submitters fence */
    /* Submitters fence. A worker's engine may take it over, since the application has joined (hdi_biased_join). */
    HDI_FENCES_EITHER = 1,
    HDI_FENCES_ENGINE = 2, /* the engine fences for submitters, on their processors (engine_see_heads) */
};

/* The state of the engine that others see. */
typedef struct hdi_engine_shared {
    /* Bit per lane: has commands, or work in flight. Set by submitters, cleared by the engine. */
    _Alignas(HDI_LINE) _Atomic uint64_t active[HDI_LANES_MAX / 64];
    _Atomic uint32_t asleep; /* the engine sleeps, or is about to: ring the doorbell */
    _Atomic uint32_t fences; /* HDI_FENCES_*: which side fences */
    /* Bit per lane: a thread waits for it, or did. Set by threads that wait, cleared by the engine. */
    _Alignas(HDI_LINE) _Atomic uint64_t awaited[HDI_LANES_MAX / 64];
    /* Application: whether a thread of it waits for claims (src/claim). Engine: the futex word of that thread, which moves with each claim
     * that is ready or over. */
    _Alignas(HDI_LINE) _Atomic uint32_t bell_wanted;
    _Atomic uint32_t bell;
    _Alignas(HDI_LINE) _Atomic uint32_t doorbell;  /* futex word */
    _Alignas(HDI_LINE) _Atomic uint64_t heartbeat; /* engine: rises with every pass, so that others see that it runs */
    _Atomic int32_t
        lost_by; /* worker process: the code for which it ends itself; it may be wrong, see cause_of_end in workers.c */
    /* Worker process, before `lost_by`: what the kernel reported, of the same code; it may be wrong, too (hdi_provider.reason). */
    char reason[HDI_DRIVER_REASON_BYTES];
    _Atomic uint32_t recording; /* application: HDI_RECORD_DETAIL_*, 0: nothing is recorded */
    _Atomic uint32_t recorded;  /* engine: the same, once it does so. 0: all that it had to record is in `records` */
    _Atomic uint32_t overdue;   /* watchdog: 1 + the lane whose first operation took too long; 0: none */
    _Atomic uint64_t operations, waits, events, signals, sleeps;
} hdi_engine_shared;

typedef struct hdi_lane_shared {
    /* Submitters, under the device's order lock. */
    _Alignas(HDI_LINE) _Atomic uint64_t head; /* slots written */

    /* Engine: changes with every command. */
    _Alignas(HDI_LINE) _Atomic uint64_t issued; /* slots given to the driver */
    /* No work behind this had begun. Exact once the engine has lost the device. 0: not recorded. */
    _Atomic uint64_t begun;
    /* Clock of the engine's pass that saw `done` move, or that issued work to the idle lane. 0: none. */
    _Atomic int64_t moved;

    /* Engine: changes when work is seen finished. Application: for claims that the engine never saw (claims.h). */
    _Alignas(HDI_LINE) _Atomic uint64_t done; /* slots finished; what tickets are compared with */
    _Atomic uint32_t wake;                    /* futex word: rises when `done` reaches what a thread sleeps for */
    _Atomic uint32_t sleepers;                /* waiters: threads asleep on `wake` */
    /* Set by waiters, cleared by the thread that wakes them: bits (hdi_awaited_bit) of what they sleep for. */
    _Atomic uint32_t awaited;

    /* Any thread or engine. Only ever raised. */
    _Alignas(HDI_LINE) _Atomic uint64_t wanted_host; /* a thread waits for this position: publish it without delay */
    _Atomic uint64_t wanted_event; /* another lane waits for this position: record an event behind it */
    /* Another lane stands at a wait for this position, which was issued: record an event at once. */
    _Atomic uint64_t wanted_now;
    _Atomic uint32_t watchers; /* bit per device whose engine, in another process, sleeps until `done` moves */
    /* Application: the claim up to the second one was ended without success, as the first one states (claims.h). Written before `ended`. */
    _Atomic uint32_t failed_as;
    _Atomic uint64_t failed_at;
    _Atomic uint64_t ended; /* application: the last claim up to this position was ended */

    /* Engine: changes only on failure. Submitters read `failed` on each submission, so its cache line changes
     * rarely. */
    _Alignas(HDI_LINE) _Atomic uint32_t failed; /* the lane refuses work */
    _Atomic uint64_t failure_changes;           /* odd while the log is being written; 0: nothing ever failed */
    _Atomic uint64_t failures_end;              /* records ever written to the log */
    _Atomic uint64_t failures_first;            /* application: how many of them have left the log; see failures.h */
    _Atomic uint32_t keeps_times;               /* application: operations get times; see times.h */
    _Atomic uint64_t times_after;               /* engine: only behind this position, times are those of this engine */
} hdi_lane_shared;

/* When the operation that ends in a slot ended (times.h). */
typedef struct hdi_time {
    _Atomic uint64_t position; /* 0: none */
    _Atomic int64_t ns;
} hdi_time;

/* The device writes the low 32 bits of a finished position here, by a 4-byte memset behind the work. So the engine sees
 * completion with a load instead of a driver call. */
typedef struct hdi_completion_flag {
    _Alignas(HDI_LINE) _Atomic uint32_t position;
} hdi_completion_flag;

typedef struct hdi_channel {
    hdi_shm memory;
    hdi_engine_shared *engine;
    hdi_lane_shared *lanes;     /* HDI_LANES_MAX */
    hdi_completion_flag *flags; /* HDI_LANES_MAX, page-aligned */
    size_t flags_bytes;
    /* Two bits (HDI_REQUEST_*) per slot: what is requested right behind the command that ends there. A wish
     * (`wanted_*`) has only the latest position. So it is of little use to a thread that waits for an early position
     * while others wait for late ones. */
    _Atomic uint64_t *requests;
    hdi_command *rings;         /* HDI_LANES_MAX rings of `slots` commands */
    uint32_t slots;             /* a power of two */
    uint32_t failures_room;     /* records of a lane's log, a power of two */
    _Atomic uint64_t *failures; /* HDI_LANES_MAX logs of failures_room records of HDI_FAILURE_WORDS words */
    hdi_time *times;            /* HDI_LANES_MAX tables with one for each slot */
    hdi_record_ring *records;   /* engine: writes, application: reads */
} hdi_channel;

#define HDI_REQUEST_EVENT 1
#define HDI_REQUEST_FLAG 2
#define HDI_REQUESTS_PER_WORD 32

/* Sleepers are distinguished by the low bits of what they sleep for. */
static inline uint32_t hdi_awaited_bit(uint64_t position)
{
    return (uint32_t)1 << (position % 32);
}

/* The bits of all positions behind `from` up to `to`. */
static inline uint32_t hdi_awaited_bits(uint64_t from, uint64_t to)
{
    if (to - from >= 32) {
        return UINT32_MAX;
    }
    uint64_t bits = (((uint64_t)1 << (to - from)) - 1) << ((from + 1) % 32);
    return (uint32_t)(bits | bits >> 32);
}

/* Where the requests for a position are. */
static inline _Atomic uint64_t *hdi_requests_at(const hdi_channel *channel, uint32_t lane, uint64_t position,
                                                unsigned *shift)
{
    uint64_t slot = (uint64_t)lane * channel->slots + ((position - 1) & (channel->slots - 1));
    *shift = (unsigned)(slot % HDI_REQUESTS_PER_WORD) * 2;
    return &channel->requests[slot / HDI_REQUESTS_PER_WORD];
}

/* Requests completion behind a position. Any thread. The caller also raises the wish, which works where the engine has
 * passed the position already. */
static inline void hdi_request_completion(const hdi_channel *channel, uint32_t lane, uint64_t position, unsigned what)
{
    unsigned shift;
    _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    /* relaxed: a request that comes too late is found by the next command in that slot, and costs it something */
    atomic_fetch_or_explicit(requests, (uint64_t)what << shift, memory_order_relaxed);
}

/* Engine: whether anything is requested behind a position. */
static inline bool hdi_is_requested(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    unsigned shift;
    const _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    return (atomic_load_explicit(requests, memory_order_relaxed) >> shift & 3) != 0;
}

/* Engine: takes what is requested behind a position, so that it is returned once. */
static inline unsigned hdi_take_requests(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    unsigned shift;
    _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    unsigned what = (unsigned)(atomic_load_explicit(requests, memory_order_relaxed) >> shift) & 3;
    if (__builtin_expect(what != 0, 0)) {
        atomic_fetch_and_explicit(requests, ~((uint64_t)3 << shift), memory_order_relaxed);
    }
    return what;
}

/* Makes the channel. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_channel_create(uint32_t slots, hdi_channel *out);
/* Maps the channel that another process made. Takes the descriptor over, also on failure. This side cannot write what
 * it never writes: the rings. Where the device is a `peer`, which another process drives, it can write the engine's and
 * the lanes' state only.
 * Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out);
void hdi_channel_release(hdi_channel *channel);

/* The command at a position of a lane. */
static inline hdi_command *hdi_command_at(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    return &channel->rings[(size_t)lane * channel->slots + (position & (channel->slots - 1))];
}

/* The time of the operation that ends at a position of a lane. */
static inline hdi_time *hdi_time_at(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    return &channel->times[(size_t)lane * channel->slots + ((position - 1) & (channel->slots - 1))];
}

#endif
