/* channel.h - the shared mapping of one device: all state that both the application and the engine
 * touch.
 *
 * The mapping contains no pointers and no process-local handles, so an engine in another process
 * can map it and run the same code. Its areas, in order:
 * - engine: state of the device as a whole
 * - lanes: the state of each lane
 * - flags: one cache line per lane, which the device itself writes
 * - requests, rings, logs of failures (failures.h), times of operations (times.h), and the engine's
 *   records of a trace
 *
 * A position counts slots of a lane's command ring since the lane was made, and never goes back.
 * The slot's number is the position modulo the ring's size. A ticket is the position behind its
 * command. Long argument blocks continue in the following slots. A command never wraps around the
 * ring's end: a SKIP command fills the slots up to the end.
 *
 * Areas are whole pages. A worker process maps an area that it never writes as read-only.
 *
 * A worker process may write anything anywhere in the channel, and may die at any moment. So the
 * application keeps its own state in its own memory (hd_lane, hdi_device). The application's own
 * state records how far lanes are filled, how much of a log is archived, and whether the device is
 * lost. The application compares the engine's reports with its own state (ticket.c), and kills a
 * worker that reports something impossible.
 *
 * Threads: each field's comment names the side that writes it. Submitters write commands, the
 * engine reads them.
 * Locks: the device's order lock while commands are written; no other, unless a field's comment
 * names one.
 * Always:
 * - A field is written by one side, unless its comment names both sides. The application never
 *   reads its own state from the channel.
 * - A ring contains no pointers of the application, so it means the same to an engine in another
 *   process. A kernel is a number in the runtime's table, memory is a device address, a lane is a
 *   number. Only a CALL contains pointers. Therefore only engines in the application's process get
 *   a CALL.
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

/* A position in a lane of this runtime. The work of a point is finished once `done` of the lane
 * reaches the position. */
typedef struct hdi_point {
    uint32_t lane;     /* global number of the lane in the runtime */
    uint64_t position; /* sequence number in that lane */
} hdi_point;

#define HDI_SLOT_BYTES 64
#define HDI_ARGUMENT_BYTES_MAX 4096
#define HDI_SOURCES_MOST 13 /* the most results that one command SOURCES names */
#define HDI_COMMAND_SLOTS_MAX (1 + HDI_ARGUMENT_BYTES_MAX / HDI_SLOT_BYTES)

/* The table of all operations that tickets of the application can name: X(op, call, name, entries,
 * rank).
 * - call: the name in issue.c of the function that makes its driver call
 * - name: its name in messages
 * - entries: how many entries of the driver's queue it takes
 * - rank: the operation's rank among the suspects of a loss; 0 is the likeliest. HDI_RANK_INNOCENT:
 *   it is no suspect
 *
 * COPY_BOX copies rows at equal distances. MATMUL calls a library, which launches a few kernels.
 * Its command is an hdi_product (blas/blas.h), whose first bytes are those of every command. CALL
 * calls a function of the program, which gives its own work to the driver. A worker process never
 * gets a CALL. MARK does no work: it ends when the work in front of it ends. If a MARK depends on a
 * failure that the application knows, the MARK names this failure, since the lane's log may no
 * longer contain it. CLAIM takes two slots. The first one ends when the program may use the bytes.
 * The second one, CLAIMED, ends when the program ends the claim. Tickets name only the end of
 * CLAIMED. */
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
    HDI_OP_NONE, /* of no command */
#define HDI_OP_OF_MAP(op, call, name, entries, rank) HDI_OP_##op,
    HDI_OP_MAP(HDI_OP_OF_MAP)
#undef HDI_OP_OF_MAP
    /* the values below are no operations: such commands only control how the engine goes on */
    HDI_OPS,
    HDI_OP_SKIP = HDI_OPS, /* does nothing; fills the ring up to its end */
    HDI_OP_WAIT,           /* the lane goes on when another lane finishes a position */
    HDI_OP_RESUME,         /* a failed lane accepts work again */
    /* the next operation reads these results of another lane; an earlier WAIT provides the order */
    HDI_OP_SOURCES
};

/* Signals that a thread can request for the end of a command. A copy carries its own requests, and
 * other threads make requests with hdi_request_completion. */
#define HDI_REQUEST_EVENT 1 /* other lanes wait for exactly this command, not for a later end */
#define HDI_REQUEST_FLAG 2  /* a thread, or an engine in another process, waits for `done` */
#define HDI_REQUEST_BITS 2

enum {
    HDI_COPY_TO_DEVICE = 1, /* from host memory */
    HDI_COPY_TO_HOST,
    HDI_COPY_ON_DEVICE, /* the lane's device can access both sides */
    HDI_COPY_PEER,      /* the same, but one side belongs to another device */
    HDI_COPY_HOST,      /* host to host */
    HDI_COPY_KIND = 255,
    /* Flags beside the kind: the copy's own requests. The engine fulfils them right behind the
     * copy. */
    HDI_COPY_REQUESTS = 8, /* the place of the first flag */
    HDI_COPY_EVENT = HDI_REQUEST_EVENT << HDI_COPY_REQUESTS,
    HDI_COPY_FLAG = HDI_REQUEST_FLAG << HDI_COPY_REQUESTS
};

/* The fields of a launch are packed so that a kernel with three buffers and three or four numbers
 * needs one slot. */
typedef union hdi_command {
    /* All commands share these first bytes. */
    struct {
        uint8_t op;
        uint8_t slots; /* number of slots of the whole command */
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
        unsigned char arguments[40]; /* continue in the following slots */
    } launch;
    struct {
        uint32_t first, reserved;
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
        /* addresses in the program, so only an engine in its process gets them */
        uint64_t function, context;
    } call;
    /* MARK: the failure that the MARK inherits, in fields like those of hdi_failure. `inherits` 0:
     * it inherits none. */
    struct {
        uint32_t first;
        uint32_t lane;
        uint64_t position;
        uint32_t kernel;
        int32_t driver_code;
        uint8_t op, lost, waited, inherits;
    } mark;
    struct {
        uint32_t first;
        uint32_t lane;     /* global number */
        uint64_t position; /* of that lane */
        /* the position of a result that this lane reads: if the work at that position fails, this
         * lane's next operation fails; 0: none */
        uint64_t source;
    } wait;
    struct {
        uint32_t first;
        uint32_t lane; /* global number */
        /* the position of a result that this lane reads; `behind` lists further such positions, as
         * distances from this one */
        uint64_t position;
        uint32_t behind[HDI_SOURCES_MOST - 1]; /* 0: there is no further position */
    } sources;
    unsigned char bytes[HDI_SLOT_BYTES];
} hdi_command;

#define HDI_MATMUL_SLOTS 2
/* `kind` of a CLAIM: no thread needs to see at once that the claim is ready */
#define HDI_CLAIM_ON_STREAM 1
#define HDI_CLAIM_SLOTS 2

/* True if HDI_OP_MAP lists `op` as an operation. */
static inline bool hdi_op_is_work(unsigned op)
{
    return op - 1 < HDI_OPS - 1;
}

#define HDI_SHARED_UNIT 16

/* Packs x and y up to 2047 and z up to 1023, which is more than any device allows. */
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

/* ---- the shared state ---- */

#define HDI_LANES_MAX 512 /* per device */
/* The number of lanes for the program, transfers and claims. The other lanes are parking lanes
 * (parked.h). */
#define HDI_LANES_OF_PROGRAM 256
/* No lane of the runtime gets this number. */
#define HDI_NO_LANE UINT32_MAX
/* A lane's log has room for this many records. If twice the number of a ring's slots is larger, the
 * log has room for that many. */
#define HDI_FAILURES_LEAST 4096
#define HDI_LINE 64

/* Operations at positions from..to failed. */
typedef struct hdi_failure {
    uint64_t from, to;
    uint64_t position; /* position of the operation to blame, in lane `lane` */
    uint32_t lane;     /* global number */
    int32_t driver_code;
    /* For a launch: number in the runtime's table. For a claim or a call: the number of its outcome
     * (claims.h). */
    uint32_t kernel;
    uint8_t op;        /* the HDI_OP_* to blame; 0: unknown */
    uint8_t lost;      /* the device was lost */
    uint8_t inherited; /* this lane's operation read the result of the operation to blame */
    /* For a lost device: the operation to blame is in another lane, and this lane waited for it. */
    uint8_t waited;
    /* for a lost device: number of the loss, see hdi_loss_suspects; 0: not recorded */
    uint64_t loss;
    uint64_t begun; /* for a lost device: work behind this position of this lane had not begun */
} hdi_failure;

#define HDI_FAILURE_WORDS (sizeof(hdi_failure) / sizeof(uint64_t))
_Static_assert(sizeof(hdi_failure) % sizeof(uint64_t) == 0, "records are copied word by word");

/* The side that fences between its store and its load. A submitter first stores `head`, and then
 * loads `active` and `asleep`. An engine that is about to sleep first stores `asleep`, and then
 * loads `head`. An engine that removes a lane from `active` does the same with `active`. One of the
 * two must see the other's store. A fence on one side is enough. Submitters do this far more often
 * than engines, so a fence on the engine's side costs less in all. */
enum {
    HDI_FENCES_SUBMITTER = 0, /* submitters fence */
    /* Submitters fence, until a worker's engine begins to fence in their place. The application
     * called hdi_biased_join(), so the engine can do this. */
    HDI_FENCES_EITHER = 1,
    /* The engine fences for submitters, on their processors (engine_see_heads). */
    HDI_FENCES_ENGINE = 2,
};

/* The state of the engine that other threads and processes see. */
typedef struct hdi_engine_shared {
    /* The engine sleeps, or is about to: ring the doorbell. */
    _Alignas(HDI_LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t fences; /* HDI_FENCES_*: which side fences */
    /* One bit for each lane, set if the lane contains commands or work in flight. Submitters set
     * the bit, and the engine clears it. The bits of most lanes are in the cache line of
     * `asleep`. */
    _Atomic uint64_t active[HDI_LANES_MAX / 64];
    /* One bit for each lane, set if a thread waits or waited for the lane. Waiting threads set the
     * bit, and the engine clears it. */
    _Alignas(HDI_LINE) _Atomic uint64_t awaited[HDI_LANES_MAX / 64];
    /* Application: a thread waits for claims (src/claim). */
    _Alignas(HDI_LINE) _Atomic uint32_t bell_wanted;
    /* Both sides (hdi_claim_ring): the futex word of the thread that waits for claims. The word
     * changes when a claim is ready or over. */
    _Atomic uint32_t bell;
    _Alignas(HDI_LINE) _Atomic uint32_t doorbell; /* futex word */
    /* Engine: rises with every pass, so that other threads see that the engine runs. */
    _Alignas(HDI_LINE) _Atomic uint64_t heartbeat;
    /* Worker process: the driver's code for the loss because of which the process ends itself. The
     * code may be wrong, see child_cause_of_end in workers.c. */
    _Atomic int32_t lost_by;
    /* Worker process, written before `lost_by`: the operating system's report about the same error.
     * Like the code, this report may be wrong (hdi_provider.reason). */
    char reason[HDI_DRIVER_REASON_BYTES];
    _Atomic uint32_t recording; /* application: HDI_RECORD_DETAIL_*; 0: record nothing */
    /* Engine: the detail with which the engine records now. 0: the engine records nothing, and has
     * put all its records into `records`. */
    _Atomic uint32_t recorded;
    /* Engine's watchdog: 1 + the number of the lane whose first unfinished operation takes too
     * long; 0: none. */
    _Atomic uint32_t overdue;
    _Atomic uint64_t operations, waits, events, signals, sleeps;
} hdi_engine_shared;

typedef struct hdi_lane_shared {
    /* Submitters, under the device's order lock. */
    _Alignas(HDI_LINE) _Atomic uint64_t head; /* slots written */

    /* Engine: changes with every command. */
    _Alignas(HDI_LINE) _Atomic uint64_t issued; /* slots given to the driver */
    /* When the device was lost, no work behind this position had begun. The value is exact once the
     * engine lost the device. 0: not recorded. */
    _Atomic uint64_t begun;
    /* Clock time of the engine's last pass that moved `done`, or that issued work to this lane
     * while it was idle. 0: no such pass. */
    _Atomic int64_t moved;

    /* Engine: raises `done` when it sees that work finished. Application: raises `done` for claims
     * that the engine never saw (claims.h). */
    _Alignas(HDI_LINE) _Atomic uint64_t done; /* slots finished; calls compare tickets with it */
    /* Futex word: rises when `done` reaches a position that a thread sleeps for. */
    _Atomic uint32_t wake;
    _Atomic uint32_t sleepers; /* waiters: the number of threads that sleep on `wake` */
    /* Bits (hdi_awaited_bit) of the positions that waiters sleep for. Waiters set their bits, and
     * the thread that wakes the waiters clears these bits. */
    _Atomic uint32_t awaited;

    /* Any thread or engine raises this and the next two fields, and nobody lowers them.
     * `wanted_host`: a thread waits for this position, so the engine publishes the end without
     * delay. */
    _Alignas(HDI_LINE) _Atomic uint64_t wanted_host;
    /* Another lane waits for this position, so the engine records an event behind it. */
    _Atomic uint64_t wanted_event;
    /* Another lane stands at a wait for this position, whose command is already issued. So the
     * engine records an event at once. */
    _Atomic uint64_t wanted_now;
    /* One bit for each device. Set: the device's engine is in another process, and sleeps until
     * `done` moves. */
    _Atomic uint32_t watchers;
    /* Application: the program ended the claim that ends at `failed_at` without success, with the
     * outcome `failed_as` (claims.h). Written before `ended`. */
    _Atomic uint32_t failed_as;
    _Atomic uint64_t failed_at;
    /* Application: the program ended all claims up to this position. */
    _Atomic uint64_t ended;
    /* Application: the commands up to this position went to a former worker, and failed. Of these
     * commands, the new engine handles only waits and claims. */
    _Atomic uint64_t lost_to;

    /* Engine: changes only on failure. Submitters read `failed` on each submission, so its cache
     * line must change rarely. */
    _Alignas(HDI_LINE) _Atomic uint32_t failed; /* the lane refuses work */
    /* The engine raises this number before and after each change of the log, so it is odd while the
     * engine writes the log. 0: nothing ever failed. */
    _Atomic uint64_t failure_changes;
    _Atomic uint64_t failures_end; /* the number of records that were ever written to the log */
    /* application: the number of these records that left the log; see failures.h */
    _Atomic uint64_t failures_first;
    _Atomic uint32_t keeps_times; /* application: operations get times; see times.h */
    /* Engine: this engine stored the times behind this position. Earlier times are from a former
     * engine. */
    _Atomic uint64_t times_after;
} hdi_lane_shared;

/* The end time of the operation that ends in a slot (times.h). */
typedef struct hdi_time {
    _Atomic uint64_t position; /* 0: none */
    _Atomic int64_t ns;
} hdi_time;

/* Behind the work, the device writes the low 32 bits of the finished position here, by a 4-byte
 * write. So the engine sees the completion by a load instead of a driver call. */
typedef struct hdi_completion_flag {
    _Alignas(HDI_LINE) _Atomic uint32_t position;
} hdi_completion_flag;

typedef struct hdi_channel {
    hdi_shm memory;
    hdi_engine_shared *engine;
    hdi_lane_shared *lanes;     /* HDI_LANES_MAX */
    hdi_completion_flag *flags; /* HDI_LANES_MAX, page-aligned */
    size_t flags_bytes;
    /* Two bits (HDI_REQUEST_*) per slot: the requests for a signal right behind the command that
     * ends there. A wish (a field `wanted_*`) stores only the latest position. So a wish is not
     * enough for a thread that waits for an early position while others wait for later ones. */
    _Atomic uint64_t *requests;
    hdi_command *rings;     /* HDI_LANES_MAX rings of `slots` commands */
    uint32_t slots;         /* a power of two */
    uint32_t failures_room; /* records of a lane's log, a power of two */
    /* HDI_LANES_MAX logs of failures_room records of HDI_FAILURE_WORDS words. */
    _Atomic uint64_t *failures;
    /* HDI_LANES_MAX tables, with one time for each slot of the lane's ring */
    hdi_time *times;
    hdi_record_ring *records; /* engine: writes, application: reads */
} hdi_channel;

#define HDI_REQUESTS_PER_WORD 32

/* Raises a wish, or `done`, to at least `position`. */
static inline void hdi_raise(_Atomic uint64_t *word, uint64_t position)
{
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    while (now < position &&
           !atomic_compare_exchange_weak_explicit(word, &now, position, memory_order_seq_cst, memory_order_relaxed)) {
    }
}

/* Sleepers for different positions mostly use different bits: the low bits of the position choose
 * the bit. */
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

/* The word with the requests for a position, and the place of the requests in the word. */
static inline _Atomic uint64_t *hdi_requests_at(const hdi_channel *channel, uint32_t lane, uint64_t position,
                                                unsigned *shift)
{
    uint64_t slot = (uint64_t)lane * channel->slots + ((position - 1) & (channel->slots - 1));
    *shift = (unsigned)(slot % HDI_REQUESTS_PER_WORD) * HDI_REQUEST_BITS;
    return &channel->requests[slot / HDI_REQUESTS_PER_WORD];
}

/* Requests signals (`what`: HDI_REQUEST_*) behind a position. Any thread. The caller also raises
 * the matching wish, since the engine may have passed the position already. */
static inline void hdi_request_completion(const hdi_channel *channel, uint32_t lane, uint64_t position, unsigned what)
{
    unsigned shift;
    _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    /* relaxed: a request that comes too late only makes the next command in that slot slower */
    atomic_fetch_or_explicit(requests, (uint64_t)what << shift, memory_order_relaxed);
}

/* Engine: true if a thread requests anything behind a position. */
static inline bool hdi_is_requested(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    unsigned shift;
    const _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    return (atomic_load_explicit(requests, memory_order_relaxed) >> shift & 3) != 0;
}

/* Engine: returns the requests behind a position, and clears them. */
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
/* Maps the channel that another process made. Takes the descriptor over, even on failure. This
 * process cannot write the rings. `peer`: another process drives the device. Then this process can
 * write only the state of the engine and of the lanes.
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
