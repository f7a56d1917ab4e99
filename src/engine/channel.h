/* channel.h - the shared mapping of one device: all state that both the application and the engine
 * touch.
 *
 * It contains no pointers and no process-local handles, so an engine in another process can map it
 * and run the same code. Its areas, in order:
 * - engine: state of the device as a whole
 * - lanes: the state of each lane
 * - flags: one cache line per lane, which the device itself writes
 * - requests, rings, logs of failures (failures.h), times of operations (times.h), and the engine's
 *   records of a trace
 *
 * A position counts slots of a lane's command ring since the lane was made, and never goes back.
 * The slot's number is the position modulo the ring's size. A ticket is the position behind its
 * command. Long argument blocks continue in the following slots. A command never wraps around the
 * ring's end: a SKIP fills the gap.
 *
 * Areas are whole pages. A worker process maps an area that it never writes as read-only.
 *
 * A worker process may write anything anywhere in the channel, and may die at any moment. So the
 * application keeps the state that it owns in its own memory (hd_lane, hdi_device). This state is
 * how far lanes are filled, how much of a log is archived, and the device's state. The application
 * compares the engine's reports with it (ticket.c), and kills a worker that reports something
 * impossible.
 *
 * Threads: each field's comment names the side that writes it. Submitters write commands, the
 * engine reads them.
 * Locks: the device's order lock while commands are written; no other, unless a field's comment
 * names one.
 * Always:
 * - A field is written by one side, unless its comment names both. The application never reads its
 *   own state from here.
 * - A ring contains no pointers of the application, so it means the same to an engine in another
 *   process. A kernel is a number in the runtime's table, memory is a device address, a lane is a
 *   number. Only a CALL contains pointers: it goes only to engines in the application's process.
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

/* A position in a lane of this runtime. The work that it names is finished once the lane's `done`
 * reaches it. */
typedef struct hdi_point {
    uint32_t lane;     /* global number of the lane in the runtime */
    uint64_t position; /* its sequence number there */
} hdi_point;

#define HDI_SLOT_BYTES 64
#define HDI_ARGUMENT_BYTES_MAX 4096
#define HDI_SOURCES_MOST 13 /* in one command */
#define HDI_COMMAND_SLOTS_MAX (1 + HDI_ARGUMENT_BYTES_MAX / HDI_SLOT_BYTES)

/* The one table of operations, which tickets of the application can name: X(op, call, name,
 * entries, rank).
 * - call: its name in issue.c, which makes its driver call
 * - name: its name in messages
 * - entries: how many entries of the driver's queue it takes
 * - rank: its rank among the suspects of a loss, the likeliest first; HDI_RANK_INNOCENT: none
 *
 * COPY_BOX copies rows at equal distances. MATMUL calls a library, which launches a few kernels.
 * Its command is an hdi_product (blas/blas.h), whose first bytes are those of every command. CALL
 * calls a function of the program, which gives its own work to the driver. A worker process never
 * gets a CALL. MARK does no work: it ends when the work in front of it ends.
 * CLAIM takes two slots. The first one ends when the program may use the bytes. The second one,
 * CLAIMED, ends when the program ends the claim. Tickets name only the end of CLAIMED. */
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
    /* the commands below pass between a lane and its engine, and are no operations */
    HDI_OPS,
    HDI_OP_SKIP = HDI_OPS, /* does nothing; fills the ring up to its end */
    HDI_OP_WAIT,           /* the lane goes on when another lane finishes a position */
    HDI_OP_RESUME,         /* a failed lane accepts work again */
    /* the next operation reads results of another lane; a WAIT before it provides the order */
    HDI_OP_SOURCES
};

/* Requests for the end of a command. A copy requests them itself, and other threads request them
 * with hdi_request_completion. */
#define HDI_REQUEST_EVENT 1 /* other lanes wait for exactly this command, not for a later end */
#define HDI_REQUEST_FLAG 2  /* a thread, or an engine in another process, waits for `done` */
#define HDI_REQUEST_BITS 2

enum {
    HDI_COPY_TO_DEVICE = 1, /* from host memory */
    HDI_COPY_TO_HOST,
    HDI_COPY_ON_DEVICE, /* the lane's device reaches both sides */
    HDI_COPY_PEER,      /* the same, but one side belongs to another device */
    HDI_COPY_HOST,      /* host to host */
    HDI_COPY_KIND = 255,
    /* Flags beside the kind: the copy's own requests. The engine meets them at once. */
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
    struct {
        uint32_t first;
        uint32_t lane;     /* global number */
        uint64_t position; /* of that lane */
        /* position whose result the lane reads: if it failed, this lane's command fails; 0: none */
        uint64_t source;
    } wait;
    struct {
        uint32_t first;
        uint32_t lane; /* global number */
        /* position whose result the lane reads; `behind` lists further such positions, as distances
         * behind it */
        uint64_t position;
        uint32_t behind[HDI_SOURCES_MOST - 1]; /* 0: there is no further position */
    } sources;
    unsigned char bytes[HDI_SLOT_BYTES];
} hdi_command;

#define HDI_MATMUL_SLOTS 2
#define HDI_CLAIM_ON_STREAM 1 /* kind of a CLAIM: no thread needs to see at once that it is ready */
#define HDI_CLAIM_SLOTS 2

/* True if the table lists it as an operation. */
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
/* This many lanes serve the program, transfers and claims. The others are parking lanes
 * (parked.h). */
#define HDI_LANES_OF_PROGRAM 256
/* No lane of the runtime gets this number. */
#define HDI_NO_LANE UINT32_MAX
/* Records of a lane's log; twice a ring's slots if that is more. */
#define HDI_FAILURES_LEAST 4096
#define HDI_LINE 64

/* Operations at positions from..to failed. */
typedef struct hdi_failure {
    uint64_t from, to;
    uint64_t position; /* position of the operation to blame, in lane `lane` */
    uint32_t lane;     /* global number */
    int32_t driver_code;
    /* For a launch: number in the runtime's table. For a claim or a call: how it ended
     * (claims.h). */
    uint32_t kernel;
    uint8_t op;        /* the HDI_OP_* to blame; 0: unknown */
    uint8_t lost;      /* the device was lost */
    uint8_t inherited; /* this lane's operation read the result of the operation to blame */
    /* For a lost device: this lane waited for the operation to blame, which is in another lane. */
    uint8_t waited;
    /* for a lost device: number of the loss, see hdi_loss_suspects; 0: not recorded */
    uint64_t loss;
    uint64_t begun; /* for a lost device: work behind this position of this lane had not begun */
} hdi_failure;

#define HDI_FAILURE_WORDS (sizeof(hdi_failure) / sizeof(uint64_t))
_Static_assert(sizeof(hdi_failure) % sizeof(uint64_t) == 0, "records are copied word by word");

/* The side that fences between its store and its load. A submitter stores `head`, then loads
 * whether its lane is active and the engine awake. An engine that is about to sleep, or to remove a
 * lane from `active`, stores that and then loads `head`. One of the two must see the other's store.
 * A fence on one side is enough. Submitters do this far more often than engines. */
enum {
    HDI_FENCES_SUBMITTER = 0, /* submitters fence */
    /* Submitters fence, until a worker's engine takes this over. The engine can do so, since the
     * application called hdi_biased_join(). */
    HDI_FENCES_EITHER = 1,
    /* The engine fences for submitters, on their processors (engine_see_heads). */
    HDI_FENCES_ENGINE = 2,
};

/* The engine's state that others see. */
typedef struct hdi_engine_shared {
    /* The engine sleeps, or is about to: ring the doorbell. */
    _Alignas(HDI_LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t fences; /* HDI_FENCES_*: which side fences */
    /* One bit for each lane, set if the lane holds commands or work in flight. Submitters set it,
     * and the engine clears it. The bits of most lanes are in the cache line of `asleep`. */
    _Atomic uint64_t active[HDI_LANES_MAX / 64];
    /* One bit for each lane, set if a thread waits or waited for the lane. Waiting threads set it,
     * and the engine clears it. */
    _Alignas(HDI_LINE) _Atomic uint64_t awaited[HDI_LANES_MAX / 64];
    /* Application: a thread waits for claims (src/claim). */
    _Alignas(HDI_LINE) _Atomic uint32_t bell_wanted;
    /* Both sides (hdi_claim_ring): the futex word of that thread. It moves when a claim is ready or
     * over. */
    _Atomic uint32_t bell;
    _Alignas(HDI_LINE) _Atomic uint32_t doorbell; /* futex word */
    /* Engine: rises with every pass, so that other threads see that the engine runs. */
    _Alignas(HDI_LINE) _Atomic uint64_t heartbeat;
    /* Worker process: the code for which it ends itself. It may be wrong, see child_cause_of_end in
     * workers.c. */
    _Atomic int32_t lost_by;
    /* Worker process, before `lost_by`: the operating system's report about the same error. It may
     * be wrong, too (hdi_provider.reason). */
    char reason[HDI_DRIVER_REASON_BYTES];
    _Atomic uint32_t recording; /* application: HDI_RECORD_DETAIL_*; 0: record nothing */
    /* Engine: the detail with which it records now. 0: it records nothing, and all its records are
     * in `records`. */
    _Atomic uint32_t recorded;
    /* Watchdog: 1 + the lane whose first operation took too long; 0: none. */
    _Atomic uint32_t overdue;
    _Atomic uint64_t operations, waits, events, signals, sleeps;
} hdi_engine_shared;

typedef struct hdi_lane_shared {
    /* Submitters, under the device's order lock. */
    _Alignas(HDI_LINE) _Atomic uint64_t head; /* slots written */

    /* Engine: changes with every command. */
    _Alignas(HDI_LINE) _Atomic uint64_t issued; /* slots given to the driver */
    /* No work behind this position had begun. Exact once the engine loses the device. 0: not
     * recorded. */
    _Atomic uint64_t begun;
    /* Clock of the engine's pass that saw `done` move, or that issued work to the idle lane.
     * 0: none. */
    _Atomic int64_t moved;

    /* Engine: changes when it sees work finished. Application: for claims that the engine never saw
     * (claims.h). */
    _Alignas(HDI_LINE) _Atomic uint64_t done; /* slots finished; calls compare tickets with it */
    /* Futex word: rises when `done` reaches a position that a thread sleeps for. */
    _Atomic uint32_t wake;
    _Atomic uint32_t sleepers; /* waiters: threads asleep on `wake` */
    /* Bits (hdi_awaited_bit) of the positions that waiters sleep for. Waiters set them, the thread
     * that wakes them clears them. */
    _Atomic uint32_t awaited;

    /* Any thread or engine raises this and the next two fields, and nobody lowers them. A thread
     * waits for this position, so the engine publishes it without delay. */
    _Alignas(HDI_LINE) _Atomic uint64_t wanted_host;
    /* Another lane waits for this position, so the engine records an event behind it. */
    _Atomic uint64_t wanted_event;
    /* Another lane stands at a wait for this position, which is already issued. So the engine
     * records an event at once. */
    _Atomic uint64_t wanted_now;
    /* One bit for each device, set if its engine, in another process, sleeps until `done` moves. */
    _Atomic uint32_t watchers;
    /* Application: the program ended the claim up to `failed_at` without success, with the outcome
     * `failed_as` (claims.h). Written before `ended`. */
    _Atomic uint32_t failed_as;
    _Atomic uint64_t failed_at;
    /* Application: the program ended the last claim up to this position. */
    _Atomic uint64_t ended;
    /* Application: commands up to here went to a former worker. They failed, and only their waits
     * count. */
    _Atomic uint64_t lost_to;

    /* Engine: changes only on failure. Submitters read `failed` on each submission, so its cache
     * line must change rarely. */
    _Alignas(HDI_LINE) _Atomic uint32_t failed; /* the lane refuses work */
    /* Rises with each change of the log, and is odd while the engine writes it; 0: nothing ever
     * failed. */
    _Atomic uint64_t failure_changes;
    _Atomic uint64_t failures_end; /* records ever written to the log */
    /* application: how many of these records left the log; see failures.h */
    _Atomic uint64_t failures_first;
    _Atomic uint32_t keeps_times; /* application: operations get times; see times.h */
    /* Engine: this engine stored only the times behind this position. */
    _Atomic uint64_t times_after;
} hdi_lane_shared;

/* The end time of the operation that ends in a slot (times.h). */
typedef struct hdi_time {
    _Atomic uint64_t position; /* 0: none */
    _Atomic int64_t ns;
} hdi_time;

/* The device writes the low 32 bits of a finished position here, with a 4-byte write behind the
 * work. So the engine sees completion with a load instead of a driver call. */
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
     * ends there. A wish (`wanted_*`) stores only the latest position. So it does not serve a
     * thread that waits for an early position while others wait for late ones. */
    _Atomic uint64_t *requests;
    hdi_command *rings;     /* HDI_LANES_MAX rings of `slots` commands */
    uint32_t slots;         /* a power of two */
    uint32_t failures_room; /* records of a lane's log, a power of two */
    /* HDI_LANES_MAX logs of failures_room records of HDI_FAILURE_WORDS words. */
    _Atomic uint64_t *failures;
    hdi_time *times;          /* HDI_LANES_MAX tables with one for each slot */
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

/* Requests completion behind a position. Any thread. The caller also raises the wish, since the
 * engine may have passed the position already. */
static inline void hdi_request_completion(const hdi_channel *channel, uint32_t lane, uint64_t position, unsigned what)
{
    unsigned shift;
    _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    /* relaxed: a request that comes too late only makes the next command in that slot cost more */
    atomic_fetch_or_explicit(requests, (uint64_t)what << shift, memory_order_relaxed);
}

/* Engine: true if a thread requests anything behind a position. */
static inline bool hdi_is_requested(const hdi_channel *channel, uint32_t lane, uint64_t position)
{
    unsigned shift;
    const _Atomic uint64_t *requests = hdi_requests_at(channel, lane, position, &shift);
    return (atomic_load_explicit(requests, memory_order_relaxed) >> shift & 3) != 0;
}

/* Engine: takes the requests behind a position, so that it returns them once. */
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
/* Maps the channel that another process made. Takes the descriptor over, also on failure. This
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
