/* heddle/mpi/operation.h - part of heddle/mpi.h: the structures, small helpers, and the order in
 * which operations are posted.
 *
 * An operation moves in pieces. A piece of a send is first copied to a slot of pinned memory, and
 * then posted. A piece of a receive is first posted, and then copied from its slot. Memory that the
 * CPU can use needs no slot.
 *
 * Threads: any.
 * Locks: hd_mpi.lock guards all structures. Every call of MPI runs under it, and under the
 * program's lock if MPI provides only MPI_THREAD_SERIALIZED.
 * Always: names that begin with hdmpi_ belong to the header.
 */
#ifndef HEDDLE_MPI_OPERATION_H
#define HEDDLE_MPI_OPERATION_H

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

HD_BEGIN_DECLS

#define HDMPI_WINDOW 4            /* the most pieces of an operation at the same time */
#define HDMPI_PIECE_BYTES 1048576 /* the default of hd_mpi_options.piece_bytes */
#define HDMPI_PIECE_LEAST 4096
#define HDMPI_SLOT_SMALL 65536 /* bytes of a slot for a short message */
/* slots of each size that stay allocated while they are free */
#define HDMPI_SLOTS_KEPT 32
#define HDMPI_SMALL_SLOTS_KEPT 128
#define HDMPI_LABEL_BYTES 96
#define HDMPI_DEVICES 64 /* the most devices of a runtime */
/* A call asks MPI for completed messages if no more than this number are under way. Asking costs
 * time for each of them, and a wait asks for all at once. */
#define HDMPI_POLLED_BY_CALLS 4

enum hdmpi_kind {
    HDMPI_SEND,
    HDMPI_RECEIVE,
    HDMPI_BCAST,
    HDMPI_REDUCE,
    HDMPI_ALLREDUCE,
    HDMPI_ALLGATHER,
    HDMPI_ALLTOALL,
    HDMPI_BARRIER
};

/* Pinned memory for a piece. */
typedef struct hdmpi_slot {
    struct hdmpi_slot *next;
    hd_buffer *buffer;
    unsigned char *host;
    size_t bytes;
} hdmpi_slot;

/* Slots have a few sizes, so that short messages hold little pinned memory while they wait
 * (slot.h). */
typedef struct hdmpi_slots {
    hdmpi_slot *first; /* free ones */
    size_t free, kept; /* how many are free, and at most stay so */
    size_t bytes;      /* of each */
    size_t all;        /* how many there are */
    size_t held;       /* by pieces that MPI has, or that wait for it */
    size_t asked;      /* pieces that asked in vain since the last round */
    size_t wanted;     /* that the thread will make */
    hd_status failure; /* of the thread, for the next piece that asks; `why` is its message */
    char *why;
} hdmpi_slots;

#define HDMPI_SLOT_SIZES 3

enum hdmpi_step {
    HDMPI_FREE,
    HDMPI_FILLING, /* a copy to the slot is under way */
    HDMPI_FILLED,  /* ready to be posted */
    HDMPI_POSTED,  /* MPI uses the memory */
    HDMPI_DRAINING /* copies from the slot are under way */
};

typedef struct hdmpi_piece {
    int step; /* hdmpi_step */
    /* place and size: in the bytes of the operation, or in the bytes of each rank */
    size_t at, bytes;
    hdmpi_slot *in, *out;                 /* NULL: MPI uses the program's memory */
    hd_ticket copied;                     /* the last copy */
    int holds;                            /* counted in hdmpi_slots.held */
    int several;                          /* further copies are under way besides `copied` */
    int request;                          /* POSTED: the index in hd_mpi.requests */
    MPI_Datatype send_type, receive_type; /* of this piece alone; MPI_DATATYPE_NULL: none */
} hdmpi_piece;

/* One side of an operation. */
typedef struct hdmpi_side {
    int present;  /* 0: on this rank, the operation lacks this side */
    size_t use;   /* the number of the claim's use */
    size_t bytes; /* all bytes */
    /* Memory that MPI uses. NULL: device memory, whose bytes pass through slots. Known once the
     * claim is ready */
    unsigned char *host;
    uint64_t direct; /* not 0: the address of device memory that MPI uses itself */
    int device;      /* of this memory */
} hdmpi_side;

/* Facts for the trace about an operation (trace.h). */
typedef struct hdmpi_traced {
    int on;
    uint32_t order; /* counts the messages of the link */
    hd_ticket ticket;
    int64_t ready, posted; /* when its bytes were ready, and when its first message was posted */
    struct hdmpi_traced_comm *comm;
} hdmpi_traced;

typedef struct hdmpi_operation {
    struct hdmpi_operation *next;
    hd_mpi *mpi;
    int kind; /* hdmpi_kind */
    MPI_Comm comm;
    int peer, tag; /* of a message; peer is the root of a collective operation */
    int ranks;     /* of the communicator, for a collective operation */
    int is_root;
    MPI_Datatype type; /* of the elements of a reduction */
    MPI_Op op;
    size_t element;
    MPI_Status *status; /* of the program; NULL: the message must be as long as the receive */
    size_t *received;
    hd_claim *claim;
    hdmpi_side in, out;
    int ready;     /* the claim is ready */
    size_t each;   /* the bytes of a piece */
    size_t pieces; /* how many there are; of a receive: at most */
    size_t begun, posted, ended;
    int copying;    /* pieces with copies under way */
    size_t arrived; /* bytes of a receive */
    hdmpi_piece piece[HDMPI_WINDOW];
    int uses_cpu_slot; /* MPI must not use the program's host memory for the bytes that it sends */
    int failed;        /* the data of this rank is not valid */
    int stopped;       /* no further pieces are posted */
    int is_counted;    /* in hd_mpi.unposted */
    hd_status outcome;
    char *why;     /* the reason of a failure, or NULL */
    int64_t moved; /* when the last piece made progress */
    int cancelled; /* receives were cancelled */
    /* a receive without a slot only asks MPI for its message, and may have found it */
    int is_asking, has_message;
    MPI_Message message;
    hdmpi_traced traced;
} hdmpi_operation;

/* Temporary memory for the elements of a tensor. The library frees it after its last use, and not
 * earlier: Heddle would give freed memory to the next buffer at once. A receive into that buffer
 * would then wait for the message that still uses the memory, which may wait for that receive. */
typedef struct hdmpi_temporary {
    struct hdmpi_temporary *next;
    hd_buffer *buffer;
    hd_ticket last; /* the last use */
} hdmpi_temporary;

/* Progress threads sleep here. A waker exists until the process ends: Heddle may call
 * hdmpi_claim_ready while the link is being closed. Each source file of the program has a waker,
 * and a link uses that of the file which opened it. */
typedef struct hdmpi_waker {
    pthread_once_t once; /* makes `wake` */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* with the monotonic clock */
    uint64_t events;     /* rises with each hdmpi_wake */
    int sleepers;
} hdmpi_waker;

struct hd_mpi {
    hd_runtime *runtime;
    hdmpi_waker *waker;
    pthread_mutex_t lock; /* guards everything below, and all calls of MPI */
    pthread_mutex_t *of_program;
    int64_t timeout_ns;
    int64_t asked; /* when hdmpi_progress ran last, with a time limit */
    size_t piece_bytes;
    int is_inline;   /* placement=inline: looking at tickets does not run the engines */
    int keyval;      /* of an attribute of MPI_COMM_SELF (link.h) */
    int finalized;   /* MPI was finalized; atomic */
    int removed;     /* the link leaves the list of links */
    uint32_t number; /* of this link in the process; not 0 */
    int tag_most;
    /* direct.h: the attribute with a communicator's table, and whether there is a table */
    int direct_keyval, uses_direct;
    /* the driver's calls that make a device current, and the devices; NULL: none is needed */
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    void *context[HDMPI_DEVICES];
    hdmpi_operation *first, **last;
    size_t operations;
    size_t unposted; /* operations that wait to be posted, or whose next piece waits */
    hdmpi_temporary *temporaries;
    hd_ticket copy; /* a copy under way, after hdmpi_advance_all; lane NULL: none */
    hdmpi_slots slots[HDMPI_SLOT_SIZES];
    uint64_t held_bytes, held_most; /* of slots that waiting receives hold, and the most */
    uint64_t slot_bytes_most;       /* of all slots */
    /* a thread makes slots; the link is closed, and that thread frees the structure */
    int makes_slots, is_left;
    /* requests under way, and their pieces */
    int requests, room;
    MPI_Request *request;
    hdmpi_operation **of_request;
    hdmpi_piece **piece_of_request;
    int *indices;
    MPI_Status *statuses;
    pthread_t thread;
    /* the last hdmpi_waker.events that the thread saw; only the thread uses it */
    uint64_t seen;
    int ending, waiters; /* under the waker's lock */
    /* threads in hd_mpi_wait complete the operations; the thread looks again soon without a
     * wake-up */
    int by_waiter, looks_soon;
    int must_look; /* Heddle could not promise to call hdmpi_claim_ready for an operation */
    /* NULL: no traced operation was posted */
    struct hdmpi_tracer *tracer;
};

/* ---- failures ---- */

static inline hd_status hdmpi_fail(hd_status status, const char *call, const char *text, long long value)
{
    char message[256];
    snprintf(message, sizeof message, "%s: ", call);
    const size_t length = strlen(message);
    snprintf(message + length, sizeof message - length, text, value);
    return hd_error_set(status, message);
}

static inline hd_status hdmpi_fail_limit(const char *call, int64_t timeout_ns)
{
    return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the time limit is %lld ns; pass 0 or more, or HD_FOREVER", timeout_ns);
}

/* The text of MPI for an error. */
static inline void hdmpi_error_text(int code, char text[MPI_MAX_ERROR_STRING])
{
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
    }
}

static inline hd_status hdmpi_fail_mpi(const char *call, const char *entry, int code)
{
    char text[MPI_MAX_ERROR_STRING], message[MPI_MAX_ERROR_STRING + 128];
    hdmpi_error_text(code, text);
    snprintf(message, sizeof message, "%s: %s failed (%s)", call, entry, text);
    return hd_error_set(HD_ERROR_SYSTEM, message);
}

/* ---- time and locks ---- */

static inline int64_t hdmpi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Notes that the operation made progress. Without a time limit, no code reads this time. */
static inline void hdmpi_operation_touch(hdmpi_operation *o)
{
    o->moved = o->mpi->timeout_ns ? hdmpi_now() : 0;
}

/* Takes the lock of the object, then that of the program. */
static inline void hdmpi_lock(hd_mpi *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->of_program) {
        pthread_mutex_lock(m->of_program);
    }
}

static inline int hdmpi_try_lock(hd_mpi *m)
{
    if (pthread_mutex_trylock(&m->lock)) {
        return 0;
    }
    if (m->of_program && pthread_mutex_trylock(m->of_program)) {
        pthread_mutex_unlock(&m->lock);
        return 0;
    }
    return 1;
}

static inline void hdmpi_unlock(hd_mpi *m)
{
    if (m->of_program) {
        pthread_mutex_unlock(m->of_program);
    }
    pthread_mutex_unlock(&m->lock);
}

/* True if MPI was finalized: no call of MPI may follow. */
static inline int hdmpi_link_is_finalized(const hd_mpi *m)
{
    return __atomic_load_n(&m->finalized, __ATOMIC_ACQUIRE); /* pairs with hdmpi_link_finalize */
}

/* ---- contexts ---- */

/* Makes a device current, since MPI may need that to use its memory. True: hdmpi_context_pop must
 * follow. */
static inline int hdmpi_context_push(hd_mpi *m, int device)
{
    return m->context_push && device >= 0 && device < HDMPI_DEVICES && m->context[device] &&
           m->context_push(m->context[device]) == 0;
}

static inline void hdmpi_context_pop(hd_mpi *m, int pushed)
{
    void *context = NULL;
    if (pushed) {
        m->context_pop(&context);
    }
}

/* ---- labels ---- */

/* Appends text to a label, which has room for HDMPI_LABEL_BYTES. Returns the new length. Each
 * operation needs a label, and snprintf would take longer than the rest of a call. */
static inline size_t hdmpi_label_text(char *label, size_t length, const char *text)
{
    const size_t n = strlen(text);
    memcpy(label + length, text, n + 1);
    return length + n;
}

static inline size_t hdmpi_label_number(char *label, size_t length, long long value)
{
    char digits[24], *at = digits + sizeof digits - 1;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    *at = 0;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0) {
        *--at = '-';
    }
    return hdmpi_label_text(label, length, at);
}

/* ---- order ---- */

static inline int hdmpi_is_collective(const hdmpi_operation *o)
{
    return o->kind >= HDMPI_BCAST;
}

/* True if MPI could match a message of `later` with the peer's message for `earlier`. */
static inline int hdmpi_operations_meet(const hdmpi_operation *earlier, const hdmpi_operation *later)
{
    if (earlier->comm != later->comm || hdmpi_is_collective(earlier) != hdmpi_is_collective(later)) {
        return 0;
    }
    if (hdmpi_is_collective(earlier)) {
        return 1;
    }
    if (earlier->kind != later->kind) {
        return 0;
    }
    if (earlier->kind == HDMPI_SEND) {
        return earlier->peer == later->peer && earlier->tag == later->tag;
    }
    return (earlier->peer == later->peer || earlier->peer == MPI_ANY_SOURCE || later->peer == MPI_ANY_SOURCE) &&
           (earlier->tag == later->tag || earlier->tag == MPI_ANY_TAG || later->tag == MPI_ANY_TAG);
}

/* True if all messages of the operation are posted. For a receive of several pieces, the last piece
 * is known only when it arrives. */
static inline int hdmpi_operation_is_posted(const hdmpi_operation *o)
{
    return o->stopped || o->posted == o->pieces;
}

/* True if no earlier operation must be posted before. */
static inline int hdmpi_operation_has_turn(const hdmpi_operation *o)
{
    const hdmpi_operation *e = o->mpi->unposted > 1 ? o->mpi->first : o;
    for (; e != o; e = e->next) {
        if (!hdmpi_operation_is_posted(e) && hdmpi_operations_meet(e, o)) {
            return 0;
        }
    }
    return 1;
}

HD_END_DECLS
#endif
