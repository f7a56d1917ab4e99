/* runtime.h - the structures behind hd_runtime, hd_lane and a device.
 *
 *    hd_runtime    options, the driver's table, the devices, the table of kernels
 *    hdi_device    one device: context, limits, the shared channel, the order lock, its lanes and its engine
 *    hd_lane       the application's side of a lane: where the next command goes, what has been waited for
 *    hdi_engine    feeds one device (stream.h); in the worker in the placement process
 *    hdi_port      what is requested of a device beside its lanes (port.h)
 *
 * Threads: any.
 * Locks: fields of hd_lane are under the device's order lock. The comments of hdi_lane_shared name the side that writes
 * each field.
 *
 * base/rank.h has the order of all locks.
 *
 * Always: an hd_lane and an hd_runtime are stable memory, whose addresses are never used for anything else.
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
/* hdi_device.peer_access: whether a device uses another one's memory, and whether it was granted. */
#define HDI_PEERS_UNKNOWN 0 /* not asked yet, or the answer may be another one next time */
#define HDI_PEERS_YES 1
#define HDI_PEERS_NO 2
#define HDI_PEERS_SLOW 3     /* kernels only: copies are faster through pinned memory */
#define HDI_PEERS_SLOW_ASK 4 /* the same, and not granted yet */
#define HDI_PEERS_SOUGHT 5   /* unknown; a thread tests it for the copies, which go through pinned memory meanwhile */

typedef struct hdi_device hdi_device;

#define HDI_PARKING_LANES 32 /* of a device at most: more lanes are left to the program */
#define HDI_CLAIM_LABEL_WORDS 4
#define HDI_FAILURES_UNKNOWN UINT64_MAX /* hd_lane.failures_known: no operation takes the short way any more */

/* One dependency on another lane, collected while a command is being ordered. */
typedef struct hdi_wait_entry {
    uint32_t lane;
    uint64_t position;
    uint64_t source; /* 0, or the last position whose result is read */
} hdi_wait_entry;

/* What a submission has to wait for (src/buffer/submit_slow.c). */
typedef struct hdi_waits {
    hdi_wait_entry *entries; /* at most one per lane of the runtime */
    uint32_t *index;         /* per lane: the number of its entry; valid only where that entry names the lane */
    uint32_t n;
    uint32_t recorded;    /* in a trace, WAIT records of the operation that ends */
    uint64_t recorded_of; /* here */
    uint32_t n_sources, sources_room;
    hdi_point *sources; /* results that are read beside those of the entries */
} hdi_waits;

/* A claim that work of a lane waits for, and the first position of the lane that does. */
typedef struct hdi_parked_at {
    hdi_point claim;
    uint64_t position;
} hdi_parked_at;

/* The claims that unfinished work of a lane waits for (src/buffer/parked.h). */
typedef struct hdi_parked {
    _Atomic uint32_t n; /* some of them may have ended */
    uint32_t room;
    hdi_parked_at *at;
} hdi_parked;

/* A submission that waits for room in a full lane. */
typedef struct hdi_room_waiter {
    struct hdi_room_waiter *next;
    _Atomic uint32_t first; /* futex word: it is its turn */
} hdi_room_waiter;

struct hd_lane {
    hdi_handle_head handle; /* not live: given back, its slot can be given out again */
    uint32_t number;        /* on its device */
    uint32_t global;        /* in the runtime: device * HDI_LANES_MAX + number */
    /* After a failure the lane refuses work (lanes of the application). Otherwise only what depends on it fails. */
    bool sticky_failure;
    bool is_default;
    bool is_copy; /* a copy lane (src/transfer/route.h), in which no program submits work; set before it is used */
    _Atomic bool claims; /* it is for claims, or its list `parked` is not empty */
    uint32_t owners;     /* threads that have it as their default lane; 1 of any other one that is given out */
    hd_runtime *runtime;
    hdi_device *device;
    hdi_lane_shared *shared;
    hdi_command *ring;
    uint64_t mask;                           /* slots - 1 */
    uint64_t head;                           /* where the next command goes */
    _Atomic uint64_t submitted;              /* `head` as published: any thread may look at it */
    _Atomic uint64_t done_least;             /* the lane was seen done that far, in a report that was possible */
    _Atomic uint64_t changes_least;          /* likewise the lane's `failure_changes` */
    int64_t unsettled_since;                 /* watcher: clock when changes_least was last seen even, or to move */
    int unsettled_looks;                     /* watcher: looks at it since then */
    _Atomic uint64_t failures_first;         /* how many records have left the log; see failures.h */
    _Atomic uint64_t failures_archived;      /* the last position that those cover */
    uint64_t done_seen;                      /* `done` as last loaded, for the space check */
    uint64_t failed_to;                      /* no failure recorded so far covers a position behind this one */
    uint64_t failures_known;                 /* the lane's `failure_changes` when that was so */
    uint64_t *seen;                          /* per lane of the runtime: the position that this lane has waited for */
    uint64_t *seen_source;                   /* likewise: the last position whose result it has waited for */
    hdi_waits waits;                         /* scratch of the submission under way */
    hdi_room_waiter *room_first, *room_last; /* submissions that wait for room, in their order */
    hdi_archive *archive;                    /* failures that have left the log */
    /* Of the lane's last claim (claims.h): what messages name, and where it ends once the program has ended it. `claim_held`: where it ends
     * if it was the program's at once. `claim_begun`: where it ends, for reports. While it is submitted that is some position before. */
    _Atomic uint64_t claim_label[HDI_CLAIM_LABEL_WORDS];
    _Atomic(const void *) claim_site;
    _Atomic uint64_t claim_ended, claim_held;
    _Atomic uint64_t claim_begun;     /* where it ends, or before that: behind `claim_ended` while it is open */
    _Atomic bool claim_abandoned;     /* hd_close ended it */
    _Atomic bool claim_on_stream;     /* it is on a stream of the program's, for messages */
    bool parks;                       /* a parking lane of its device (src/buffer/parked.h) */
    _Atomic uint64_t claim_over;      /* up to here claims have ended well, and nothing in front is unfinished */
    _Atomic uint64_t claim_in_stream; /* the claim that ends here ends with `claim_event`; before `claim_ended` */
    _Atomic(hdcu_event) claim_event;  /* the same one for all claims of the lane */
    _Atomic uint64_t claim_stream_id, claim_stream_end; /* hdi_claim_note_stream */
    _Atomic(struct hd_claim *) claim; /* the one that is or was in the lane; NULL: it is not for claims */
    hd_lane *before;                  /* the structure that the lane was in until its handles ran out; NULL: none */
    _Atomic uint64_t resumed;         /* position of the last command that made the lane accept work again; 0: none */
    hdi_parked parked;                /* under a lock of its own; changed under the order lock, too */
};

typedef struct hdi_engine hdi_engine; /* stream.h */

struct hdi_arena;

struct hdi_device {
    hd_runtime *runtime;
    int index;          /* in the runtime */
    int ordinal;        /* in the driver */
    hdcu_device handle; /* these two where the driver is in this process */
    hdcu_context context;
    hdi_port *port;
    hdi_facts facts;
    hdi_limits limits;  /* as in `facts`, cut to what a command can hold */
    uint32_t depths[2]; /* limits.grid[2] and limits.block[2], which a launch compares at once */
    hdi_channel channel;
    _Atomic uint32_t state;       /* hdi_device_state; device_state.h has what changes it, and all questions about it */
    _Atomic int32_t lost_by;      /* the code of the latest loss; 0: none. See hdi_device_lost_by */
    hdcu_deviceptr flags_address; /* the channel's flags as the device sees them */
    bool flags_registered;
    _Alignas(HDI_LINE) hdi_lock order;       /* lanes of this device, and the use records of buffers that it owns */
    _Alignas(HDI_LINE) hdi_mutex lanes_lock; /* held while lanes are made and given out */
    hd_lane *lanes[HDI_LANES_MAX];           /* NULL: never made */
    _Atomic uint32_t lanes_made;             /* so many, from number 0 on */
    _Atomic uint8_t peer_access[HDI_DEVICES_MAX]; /* HDI_PEERS_*: does this device use memory of device j? */
    hd_lane *lane_in, *lane_out, *lane_on;        /* copies: to the device, from it, on it and to peers */
    struct hdi_copy_lanes *copy_lanes;            /* src/transfer: these and more of them */
    hd_lane *parking[HDI_PARKING_LANES];          /* src/buffer/parked.h; under the order lock */
    uint32_t n_parking, parking_begun, parking_turn;
    struct hdi_arena *arena;
    /* Clock: before it no memory is mapped ahead of need, since the driver had none. 0: at any time. */
    _Atomic int64_t ahead_again;
    uint64_t range_at, range_bytes; /* placement process: its address range, the same in every process */
    _Atomic uint64_t ring_stalls;
    struct hdi_memory_counts *memory; /* src/buffer: counters of its memory that threads share */
    hdi_engine *engine;               /* NULL: it is in a worker process */
    _Atomic uint64_t losses, restarts;
};

/* What an engine needs to launch a kernel. */
typedef struct hdi_kernel_code {
    /* Its name, for messages about failures. It is copied word by word, since the number may be given to another kernel
     * while an old failure is being described. */
    _Atomic uint64_t name[HDI_KERNEL_NAME_BYTES / sizeof(uint64_t)];
    _Atomic(hdcu_function) function[HDI_DEVICES_MAX];
    _Atomic uint64_t module[HDI_DEVICES_MAX]; /* the driver's, that the function is of; 0: none */
} hdi_kernel_code;

#define HDI_KERNEL_CHUNK 256
#define HDI_KERNEL_CHUNKS 256

struct hd_runtime {
    hdi_handle_head head; /* a runtime's handle is its address: it has one generation */
    _Atomic bool closing; /* calls that wait return */
    _Atomic bool ended;   /* hd_close ends all handles, or has: what a call under way still makes gets none (below) */
    hdi_stable *stable;   /* this structure, and all others that handles lead to */
    uint64_t id;          /* never used again in this process */
    hdi_options options;
    const hdi_driver *driver; /* NULL: it is in the worker processes */
    const hdi_provider *provider;
    int driver_version;
    int captures_before; /* of the thread that opens it (driver/current.h) */
    bool is_inline, is_process;
    hdi_recorder recorder; /* of a trace; in a worker process all zeros */
    int64_t spin_ns;
    int n_devices;
    _Atomic int threads; /* that have lanes of their own here */
    hdi_device *devices[HDI_DEVICES_MAX];
    hdi_mutex cold;                                        /* for kernels, modules, staging: everything rare */
    _Atomic(hdi_kernel_code *) kernels[HDI_KERNEL_CHUNKS]; /* chunks of HDI_KERNEL_CHUNK; read by engines */
    uint32_t n_kernels;
    /* Called where a thread is about to block for work in flight: a good moment to reclaim. NULL: nothing to do. */
    void (*_Atomic on_block)(hd_runtime *rt);
    hdi_mutex restarting; /* one device at a time comes back */
    hdi_lock outcomes_lock;
    struct hdi_outcomes *outcomes; /* how claims ended, without success (claims.h); NULL: all did well */
    struct hdi_losses *losses;
    hdcu_device handles[HDI_DEVICES_MAX]; /* of the driver, where it is in this process */
    /* In a worker process: ends the process, instead of recording the loss of the device. Does not return. */
    void (*end_process)(hdi_device *device, int code);
    /* Called after each hd_launch that was submitted, with its command. Returns the status of hd_launch. NULL: the
     * option launch_wait is off. */
    hd_status (*on_launched)(hd_lane *lane, const hdi_command *command, uint64_t position);
    /* Called after a device was lost, by the thread that noticed it. Marks the device's buffers. */
    void (*on_loss)(hd_runtime *rt, hdi_device *device);
    /* Called when hd_close begins to wait for calls. Wakes those that wait for something else than a lane, so that they
     * see `closing`. */
    void (*on_closing)(hd_runtime *rt);
    /* Work of the program's own may be in lanes or behind waits: calls of its functions, claims on its streams. Never false again. */
    _Atomic bool has_calls;
    int64_t close_by; /* hd_close: when its time for what the program has under way ends */
    bool claimed;     /* hd_close: a claim or an export was not ended, so memory stays */
    bool quiet; /* hd_close: no work is under way, so streams and events can be given back although it is `hung` */
    bool hung;  /* hd_close: work never ended, so what it may use is neither freed nor unmapped */
};

/* The point in time at which an option in milliseconds (-1: never) passes. */
static inline int64_t hdi_option_deadline(int64_t milliseconds)
{
    return hdi_deadline(milliseconds < 0 ? -1 : milliseconds * 1000000);
}

/* The limit of a step of hd_close that begins now: the option close_timeout. Where earlier steps have used that up, what is left: a second. */
static inline int64_t hdi_close_deadline(const hd_runtime *rt)
{
    int64_t own = hdi_option_deadline(rt->options.close_timeout), least = hdi_deadline(1000000000);
    if (rt->close_by == 0) {
        return own; /* hd_open failed */
    }
    least = rt->close_by > least ? rt->close_by : least;
    return own < least ? own : least;
}

/* Whether hd_close waits for this call to return. */
static inline bool hdi_is_closing(hd_runtime *rt)
{
    return atomic_load_explicit(&rt->closing, memory_order_relaxed);
}

/* Whether hd_close has begun to end handles. It sets this before it goes through the lists of objects, under their locks. A call under way
 * may still add an object to a list. It looks at this under the same lock. So either hd_close finds the object, or the call sees this, and
 * makes the object with a handle that is stale from its first moment. Without that another thread could begin a call with the new handle, and
 * hd_close would not wait for it. */
static inline bool hdi_handles_ended(const hd_runtime *rt)
{
    return atomic_load_explicit(&rt->ended, memory_order_relaxed);
}

/* Makes handles of the head's generation good, unless hd_close ends all handles. The lock of the object's list is held. */
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
    /* pairs with the release store where the chunk is made */
    hdi_kernel_code *chunk = atomic_load_explicit(&rt->kernels[number / HDI_KERNEL_CHUNK], memory_order_acquire);
    return &chunk[number % HDI_KERNEL_CHUNK];
}

/* Whether the table has an entry for a number, which may be invalid. */
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

/* The lane of a number that was made: another structure each time that the handles of the last one have run out. */
static inline hd_lane *hdi_lane_at(const hdi_device *device, uint32_t number)
{
    return __atomic_load_n(&device->lanes[number], __ATOMIC_ACQUIRE); /* pairs with the store in lane.c */
}

/* How far a lane is filled; 0 where it was never made. In the application's process. Any thread. */
static inline uint64_t hdi_lane_submitted(const hdi_device *device, uint32_t number)
{
    /* pairs with the release stores where a lane is made, and where its commands are published */
    return number < atomic_load_explicit(&device->lanes_made, memory_order_acquire)
               ? atomic_load_explicit(&hdi_lane_at(device, number)->submitted, memory_order_acquire)
               : 0;
}

/* Whether everything up to a point is finished. One load. */
static inline bool hdi_point_done(hd_runtime *rt, hdi_point point)
{
    /* pairs with the engine's store of `done`: what the work wrote is visible behind it */
    return atomic_load_explicit(&hdi_lane_shared_of(rt, point.lane)->done, memory_order_acquire) >= point.position;
}

/* What hd_open and hd_close call of a part of a runtime. NULL: nothing. `stop` and `release` are also called where hd_open
 * fails before the part's `create`, or in it. */
typedef struct hdi_lifetime {
    hd_status (*create)(hd_runtime *rt);
    hd_status (*create_in)(hdi_device *device); /* of each device, all at the same time */
    hd_status (*ready)(hd_runtime *rt);         /* all devices work */
    void (*close)(hd_runtime *rt);              /* ends handles */
    void (*stop)(hd_runtime *rt);               /* ends threads of the library that submit work or copy */
    void (*release)(hd_runtime *rt);            /* no work is under way, or `hung` */
} hdi_lifetime;

/* Whether hd_close may call the driver in this process. */
static inline bool hdi_driver_is_usable(const hd_runtime *rt)
{
    return !rt->hung && !rt->is_process;
}

#endif
