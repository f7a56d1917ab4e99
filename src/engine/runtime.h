/* runtime.h - the structures behind hd_runtime, hd_lane and a device.
 *
 *    hd_runtime    options, the driver's table, the devices, the table of kernels
 *    hdi_device    one device: context, limits, shared channel, order lock, lanes, engine
 *    hd_lane the application's side of a lane: place of the next command, past waits hdi_engine
 *    gives the commands of one device to the driver (stream.h)
 *    hdi_port      takes requests to a device beside its lanes (port.h)
 *
 * Threads: any.
 * Locks: the device's order lock protects the fields of hd_lane. The comments of hdi_lane_shared
 * name the side that writes each field.
 *
 * base/rank.h defines the order of all locks.
 *
 * Always: an hd_lane and an hd_runtime are stable memory, whose addresses are never used for
 * anything else.
 */
#ifndef HDI_ENGINE_RUNTIME_H
#define HDI_ENGINE_RUNTIME_H

#include <heddle/lane.h>
#include <heddle/runtime.h>
#include <pthread.h>
#include <string.h>
#include "base/handle.h"
#include "base/lock.h"
#include "base/options.h"
#include "base/text.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "engine/channel.h"
#include "engine/failures.h"
#include "engine/port.h"
#include "record/record.h"

#define HDI_DEVICES_MAX 32
/* hdi_device.peer_access: whether a device uses another device's memory, and whether the device was
 * granted access. */
#define HDI_PEERS_UNKNOWN 0 /* not asked yet, or the answer may change */
#define HDI_PEERS_YES 1
#define HDI_PEERS_NO 2
#define HDI_PEERS_SLOW 3     /* kernels only: copies are faster through pinned memory */
#define HDI_PEERS_SLOW_ASK 4 /* like SLOW, but access was not granted yet */
/* Not known yet. A thread tests the pair for copies. Until it has an answer, copies go through
 * pinned memory. */
#define HDI_PEERS_SOUGHT 5

typedef struct hdi_device hdi_device;

/* the most parking lanes of a device */
#define HDI_PARKING_LANES (HDI_LANES_MAX - HDI_LANES_OF_PROGRAM)
#define HDI_CLAIM_LABEL_WORDS 4
/* hd_lane.failures_known: no operation takes the fast path any more. */
#define HDI_FAILURES_UNKNOWN UINT64_MAX

/* One dependency on another lane, collected while a command is being ordered. */
typedef struct hdi_wait_entry {
    uint32_t lane;
    uint64_t position;
    uint64_t source; /* 0, or the last position whose result the command reads */
} hdi_wait_entry;

/* The dependencies of a submission (src/buffer/collect.h). */
typedef struct hdi_waits {
    hdi_wait_entry *entries; /* at most one per lane of the runtime */
    /* Per lane: the number of its entry; valid only if that entry names the lane. */
    uint32_t *index;
    uint32_t n;
    uint32_t recorded;    /* the number of WAIT records of one operation in a trace */
    uint64_t recorded_of; /* the position at which this operation ends */
    uint32_t n_sources, sources_room;
    hdi_point *sources; /* results that the command reads, in addition to those of the entries */
} hdi_waits;

/* Work of the program that operations of a lane wait for, and the position at which the first of
 * these operations ends. */
typedef struct hdi_root {
    hdi_point root;
    uint64_t position;
} hdi_root;

/* The roots of unfinished operations in a lane of the library (src/buffer/parked.h). */
typedef struct hdi_parked {
    /* The value of the lane's `failures_known`, kept here while the list is not empty. Meanwhile
     * the lane's own field is HDI_FAILURES_UNKNOWN, so no operation takes the fast path. */
    uint64_t failures_known;
    hdi_lock lock; /* protects the list for threads that read it without the order lock */
    hdi_root *at;  /* `n` roots from `first` on, sorted by position; some may be done */
    uint32_t first, n, room;
    uint32_t n_last, last_room;
    hdi_point *last; /* the furthest root in each lane of the program */
} hdi_parked;

/* The roots of the submission under way. */
typedef struct hdi_roots {
    hdi_point *at; /* at most one in each lane of the runtime */
    uint32_t n;
    /* Per lane: the number of its entry; valid only if that entry names the lane. */
    uint32_t *index;
} hdi_roots;

/* A submission that waits for room in a full lane. */
typedef struct hdi_room_waiter {
    struct hdi_room_waiter *next;
    _Atomic uint32_t first; /* futex word, set when it is the submission's turn */
} hdi_room_waiter;

struct hd_lane {
    /* if the handle is not live, the lane was given back and can be given out again */
    hdi_handle_head handle;
    uint32_t number; /* on its device */
    uint32_t global; /* in the runtime: device * HDI_LANES_MAX + number */
    /* True for lanes of the program: after a failure the lane refuses work. False: only operations
     * that depend on the failed operation fail. */
    bool sticky_failure;
    bool is_default;
    /* A copy lane (src/transfer/route.h), to which only the library submits work. Set before first
     * use. */
    bool is_copy;
    _Atomic bool has_roots; /* its list `parked` is not empty */
    /* The number of threads that use the lane as their default lane. For any other lane that is
     * given out, the number is 1. */
    uint32_t owners;
    hd_runtime *runtime;
    hdi_device *device;
    hdi_lane_shared *shared;
    hdi_command *ring;
    uint64_t mask;              /* slots - 1 */
    uint64_t head;              /* the place of the next command */
    _Atomic uint64_t submitted; /* `head` as published: any thread may read it */
    /* The highest `done` that the engine reported and that passed the check (ticket.c). */
    _Atomic uint64_t done_least;
    /* the lane's `failure_changes` in the last report that passed the check */
    _Atomic uint64_t changes_least;
    /* Watcher: clock when changes_least was last seen even, or seen to move. */
    int64_t unsettled_since;
    /* watcher: the number of its looks at changes_least since `unsettled_since` */
    int unsettled_looks;
    /* the number of records that left the lane's log; see failures.h */
    _Atomic uint64_t failures_first;
    /* the last position that any record in the archive covers */
    _Atomic uint64_t failures_archived;
    /* Records up to this position may leave the log at any time. So no submission may rely on
     * finding them in the log. */
    _Atomic uint64_t failures_leaving;
    uint64_t done_seen; /* `done` as last loaded, for the check for space */
    /* No failure recorded so far covers a position behind this one. */
    uint64_t failed_to;
    uint64_t failures_known; /* the lane's `failure_changes` when `failed_to` was found */
    /* Per lane of the runtime: the last position that this lane waited for. */
    uint64_t *seen;
    /* Per lane of the runtime: the last position whose result this lane waited for. */
    uint64_t *seen_source;
    hdi_waits waits;                         /* scratch of the submission under way */
    hdi_room_waiter *room_first, *room_last; /* submissions that wait for room, in their order */
    struct hdi_archive *archive;             /* failures that left the lane's log */
    /* The lane's last claim (claims.h): its name for messages, and the position of its end once the
     * program ended it. `claim_held`: the position of its end, if the program could use the bytes
     * at once. */
    _Atomic uint64_t claim_label[HDI_CLAIM_LABEL_WORDS];
    _Atomic(const void *) claim_site;
    _Atomic uint64_t claim_ended, claim_held;
    /* For reports: the end of the last claim, or an earlier position while that claim is being
     * submitted. While the claim is open, this position is greater than `claim_ended`. */
    _Atomic uint64_t claim_begun;
    /* The end of the last claim for which a library thread calls a function of the program. Threads
     * of the program end all other claims. */
    _Atomic uint64_t claim_called;
    _Atomic bool claim_abandoned; /* hd_close ended the claim */
    _Atomic bool claim_on_stream; /* the claim is on a stream of the program, for messages */
    bool parks;                   /* a parking lane of its device (src/buffer/parked.h) */
    /* All claims up to this position ended without failure, and all work in front of them is
     * finished. */
    _Atomic uint64_t claim_over;
    /* The claim that ends at this position ends with `claim_event`. Set before `claim_ended`. */
    _Atomic uint64_t claim_in_stream;
    /* All claims of the lane use the same event. */
    _Atomic(hdcu_event) claim_event;
    _Atomic uint64_t claim_stream_id, claim_stream_end; /* hdi_claim_note_stream */
    /* The program ended the claim that ends at this position while its stream, the next field, was
     * being captured. */
    _Atomic uint64_t claim_late_end;
    _Atomic(hdcu_stream) claim_late;
    /* The claim that is or was in the lane; NULL: not for claims. */
    _Atomic(struct hd_claim *) claim;
    /* The structure that the lane used before this one, until that structure's handles ran out;
     * NULL: none. */
    hd_lane *before;
    /* Position of the last command that made the lane accept work again; 0: none. */
    _Atomic uint64_t resumed;
    /* for a lane of the library; changed under the order lock and under the lock inside
     * hdi_parked */
    hdi_parked parked;
};

typedef struct hdi_engine hdi_engine; /* stream.h */

struct hdi_arena;

struct hdi_device {
    hd_runtime *runtime;
    int index;          /* in the runtime */
    int ordinal;        /* in the driver */
    hdcu_device handle; /* this field and the next one are set if the driver is in this process */
    hdcu_context context;
    hdi_port *port;
    hdi_facts facts;
    hdi_limits limits;  /* as in `facts`, but limited to what a command can hold */
    uint32_t depths[2]; /* limits.grid[2] and limits.block[2], which a launch compares at once */
    hdi_channel channel;
    /* hdi_device_state; device_state.h defines its changes and all questions about it. */
    _Atomic uint32_t state;
    _Atomic int32_t lost_by;      /* the code of the latest loss; 0: none. See hdi_device_lost_by */
    hdcu_deviceptr flags_address; /* the channel's flags as the device sees them */
    bool flags_registered;
    /* Lanes of this device, and use records of buffers that it owns. */
    _Alignas(HDI_LINE) hdi_lock order;
    _Alignas(HDI_LINE) hdi_mutex lanes_lock; /* held to make lanes and give them out */
    hd_lane *lanes[HDI_LANES_MAX];           /* NULL: never made */
    _Atomic uint32_t lanes_made;             /* the number of lanes made, from number 0 on */
    /* The number of lanes made, without the parking lanes; under lanes_lock. */
    uint32_t lanes_of_program;
    /* HDI_PEERS_*: does this device use device j's memory? */
    _Atomic uint8_t peer_access[HDI_DEVICES_MAX];
    hd_lane *lane_in, *lane_out, *lane_on; /* copies: to the device, from it, on it and to peers */
    struct hdi_copy_lanes *copy_lanes;     /* src/transfer: these three and all other copy lanes */
    hd_lane *parking[HDI_PARKING_LANES];   /* src/buffer/parked.h; under the order lock */
    uint32_t n_parking;
    hdi_roots roots; /* under the order lock, too */
    struct hdi_arena *arena;
    /* Clock time. The driver had no memory, so before this time no thread maps memory ahead of
     * need. 0: there is no such limit. */
    _Atomic int64_t ahead_again;
    /* Placement process: the device's address range, the same in every process. */
    uint64_t range_at, range_bytes;
    _Atomic uint64_t ring_stalls;
    struct hdi_memory_counts *memory; /* src/buffer: counters of its memory that threads share */
    hdi_engine *engine;               /* NULL: the engine is in a worker process */
    _Atomic uint64_t losses, restarts;
};

/* All that an engine needs to launch a kernel. */
typedef struct hdi_kernel_code {
    /* The kernel's name, for messages about failures. Threads copy the name word by word: while a
     * thread describes an old failure, the runtime may give the kernel's number to another
     * kernel. */
    _Atomic uint64_t name[HDI_KERNEL_NAME_BYTES / sizeof(uint64_t)];
    _Atomic(hdcu_function) function[HDI_DEVICES_MAX];
    _Atomic uint64_t module[HDI_DEVICES_MAX]; /* the driver's module of the function; 0: none */
} hdi_kernel_code;

#define HDI_KERNEL_CHUNK 256
#define HDI_KERNEL_CHUNKS 256

struct hd_runtime {
    /* A runtime's handle is its address, so there is only one generation. The word is 0 once
     * hd_close began (hdi_runtime_close_began). */
    hdi_handle_head head;
    _Atomic bool closing; /* hd_close began, so waits return */
    /* hd_close ends or ended all handles. If a call still makes an object, the object gets a stale
     * handle (hdi_handles_ended). */
    _Atomic bool ended;
    _Atomic bool claims_ended; /* threads of the program get no more claims (host_call.c) */
    /* the memory of this structure, and of all others that handles lead to */
    hdi_stable *stable;
    uint64_t id; /* never used again in this process */
    hdi_options options;
    const hdi_driver *driver; /* NULL: the driver is in the worker processes */
    const hdi_provider *provider;
    int driver_version;
    int captures_before; /* captures of the thread that opens the runtime (driver/current.h) */
    bool is_inline, is_process;
    hdi_recorder recorder; /* the recorder of a trace; all zeros in a worker process */
    int64_t spin_ns;
    int n_devices;
    _Atomic int threads; /* threads with default lanes in this runtime */
    hdi_device *devices[HDI_DEVICES_MAX];
    hdi_mutex cold; /* protects rare work: kernels, modules, staging */
    /* Chunks of HDI_KERNEL_CHUNK kernels, which engines read. */
    _Atomic(hdi_kernel_code *) kernels[HDI_KERNEL_CHUNKS];
    uint32_t n_kernels;
    /* Called when a thread is about to block for work in flight: a good time to reclaim memory.
     * NULL: nothing to do. */
    void (*_Atomic on_block)(hd_runtime *rt);
    hdi_mutex restarting; /* one device at a time restarts */
    /* Held by loads and unloads of modules, and by restarts. So a restart sees a load or unload
     * either complete or not begun. */
    hdi_mutex refilling;
    /* the memory of all archives of failures; relaxed, since it only counts */
    _Atomic int64_t archives_bytes;
    uint64_t archive_least; /* set by a test; 0: HDI_ARCHIVE_LEAST applies */
    hdi_lock outcomes_lock;
    /* How claims ended without success (claims.h); NULL: all succeeded. */
    struct hdi_outcomes *outcomes;
    struct hdi_losses *losses;
    /* the driver's handles, if the driver is in this process */
    hdcu_device handles[HDI_DEVICES_MAX];
    /* In a worker process: ends the process, instead of recording the loss of the device. Does not
     * return. */
    void (*end_process)(hdi_device *device, int code);
    /* Called after each hd_launch that was submitted, with its command. Returns the status of
     * hd_launch. NULL: the option launch_wait is off. */
    hd_status (*on_launched)(hd_lane *lane, const hdi_command *command, uint64_t position);
    /* Called after a device loss, by the thread that noticed it. Marks the device's buffers. */
    void (*on_loss)(hd_runtime *rt, hdi_device *device);
    /* Called when hd_close begins to wait for calls. Wakes threads that wait for something else
     * than a lane, so that they see `closing`. */
    void (*on_closing)(hd_runtime *rt);
    /* The program's own work may be in lanes or behind waits. Such work is calls of its functions,
     * and claims on its streams. Once true, this field stays true. */
    _Atomic bool has_calls;
    int64_t close_by; /* hd_close: the deadline for the program's work under way */
    /* hd_close: the program did not end some claim or export, so the memory of the runtime stays */
    bool claimed;
    /* hd_close: no work is under way. So hd_close can destroy streams and events even if `hung` is
     * set. */
    bool quiet;
    /* hd_close: work never ended, so memory that it may use is neither freed nor unmapped. */
    bool hung;
};

/* The time at which an option in milliseconds (-1: never) expires. */
static inline int64_t hdi_option_deadline(int64_t milliseconds)
{
    return hdi_deadline(milliseconds < 0 ? -1 : milliseconds * 1000000);
}

/* The deadline of a step of hd_close that begins now. It is `close_by`, or a second from now if
 * that is later. It is never later than close_timeout from now. */
static inline int64_t hdi_close_deadline(const hd_runtime *rt)
{
    int64_t own = hdi_option_deadline(rt->options.close_timeout), least = hdi_deadline(1000000000);
    if (rt->close_by == 0) {
        return own; /* hd_open failed */
    }
    least = rt->close_by > least ? rt->close_by : least;
    return own < least ? own : least;
}

/* True once hd_close began. `rt` is a runtime that was open when the call began. Then only
 * hdi_runtime_is_open tells whether this thread may still make the call. */
static inline bool hdi_runtime_close_began(const hd_runtime *rt)
{
    /* Relaxed: hd_close does not rely on this (hdi_callers_settle). */
    return atomic_load_explicit(&rt->head.word, memory_order_relaxed) == 0;
}

/* True if hd_close waits for this call to return. */
static inline bool hdi_is_closing(hd_runtime *rt)
{
    return atomic_load_explicit(&rt->closing, memory_order_relaxed);
}

/* True if hd_close began to end handles. hd_close sets `ended` before it walks the lists of
 * objects, under the locks of the lists. A call under way that adds an object to a list calls this
 * function under the same lock. So either hd_close finds the object, or the call gives it a stale
 * handle. Otherwise another thread could begin a call with the new handle, and hd_close would not
 * wait for it. */
static inline bool hdi_handles_ended(const hd_runtime *rt)
{
    return atomic_load_explicit(&rt->ended, memory_order_relaxed);
}

/* Makes handles of the head's generation valid, unless hd_close ends all handles. The lock of the
 * object's list is held. */
static inline void hdi_handle_begin(const hd_runtime *rt, hdi_handle_head *head, uint32_t magic)
{
    if (hdi_handles_ended(rt)) {
        hdi_handle_close(head);
    } else {
        hdi_handle_set(head, magic, hdi_handle_head_generation(head), HDI_HANDLE_LIVE);
    }
}

/* The entry of a kernel's number. */
static inline hdi_kernel_code *hdi_kernel_at(hd_runtime *rt, uint32_t number)
{
    /* pairs with the release store that makes the chunk */
    hdi_kernel_code *chunk = atomic_load_explicit(&rt->kernels[number / HDI_KERNEL_CHUNK], memory_order_acquire);
    return &chunk[number % HDI_KERNEL_CHUNK];
}

/* True if the table contains an entry for a number, which may be invalid. */
static inline bool hdi_kernel_exists(hd_runtime *rt, uint32_t number)
{
    uint32_t chunk = number / HDI_KERNEL_CHUNK;
    return chunk < HDI_KERNEL_CHUNKS && atomic_load_explicit(&rt->kernels[chunk], memory_order_acquire) != NULL;
}

/* Copies the name of a kernel into out[HDI_KERNEL_NAME_BYTES]. The number may be invalid. */
static inline void hdi_kernel_name(hd_runtime *rt, uint32_t number, char *out)
{
    uint64_t words[HDI_KERNEL_NAME_BYTES / sizeof(uint64_t)] = {'?'};
    if (hdi_kernel_exists(rt, number)) {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            words[i] = atomic_load_explicit(&hdi_kernel_at(rt, number)->name[i], memory_order_relaxed);
        }
    }
    memcpy(out, words, sizeof words);
    out[HDI_KERNEL_NAME_BYTES - 1] = 0;
}

static inline void hdi_kernel_set_name(hd_runtime *rt, uint32_t number, const char *name)
{
    uint64_t words[HDI_KERNEL_NAME_BYTES / sizeof(uint64_t)] = {0};
    hdi_utf8_copy((char *)words, sizeof words, name);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        atomic_store_explicit(&hdi_kernel_at(rt, number)->name[i], words[i], memory_order_relaxed);
    }
}

static inline hdi_device *hdi_lane_owner(hd_runtime *rt, uint32_t global)
{
    return rt->devices[global / HDI_LANES_MAX];
}

static inline hdi_lane_shared *hdi_lane_shared_of(hd_runtime *rt, uint32_t global)
{
    return &hdi_lane_owner(rt, global)->channel.lanes[global % HDI_LANES_MAX];
}

/* Returns the lane with a number. The lane must have been made. A lane changes to another structure
 * each time its handles run out. */
static inline hd_lane *hdi_lane_at(const hdi_device *device, uint32_t number)
{
    /* Pairs with the store in lane.c. */
    return __atomic_load_n(&device->lanes[number], __ATOMIC_ACQUIRE);
}

/* How far a lane is filled; 0 if the lane was never made. Call it in the application's process. Any
 * thread. */
static inline uint64_t hdi_lane_submitted(const hdi_device *device, uint32_t number)
{
    /* pairs with the release stores that make a lane, and that publish its commands */
    return number < atomic_load_explicit(&device->lanes_made, memory_order_acquire)
               ? atomic_load_explicit(&hdi_lane_at(device, number)->submitted, memory_order_acquire)
               : 0;
}

/* True if everything up to a point is finished. One load. */
static inline bool hdi_point_done(hd_runtime *rt, hdi_point point)
{
    /* pairs with the engine's store of `done`: data that the work wrote is visible behind it */
    return atomic_load_explicit(&hdi_lane_shared_of(rt, point.lane)->done, memory_order_acquire) >= point.position;
}

/* Functions that hd_open and hd_close call for one part of a runtime. NULL: there is no such
 * function. If hd_open fails, it calls `stop` and `release` of all parts, even if a part's `create`
 * was not called or failed. */
typedef struct hdi_lifetime {
    void (*init)(hd_runtime *rt); /* called first, for all parts; the options are set */
    hd_status (*create)(hd_runtime *rt);
    /* called for each device, for all devices at the same time */
    hd_status (*create_in)(hdi_device *device);
    hd_status (*ready)(hd_runtime *rt); /* all devices work */
    void (*close)(hd_runtime *rt);      /* ends handles */
    /* Ends threads of the library that submit work or copy. */
    void (*stop)(hd_runtime *rt);
    void (*release)(hd_runtime *rt); /* called when no work is under way, or `hung` */
} hdi_lifetime;

/* True if hd_close may call the driver in this process. */
static inline bool hdi_driver_is_usable(const hd_runtime *rt)
{
    return !rt->hung && !rt->is_process;
}

#endif
