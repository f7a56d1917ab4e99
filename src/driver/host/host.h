/* host.h - what the files of the host provider share: its one lock, its objects, and what they ask of each other.
 *
 * The host provider implements the driver's entry points on the CPU as asynchronous devices: every stream is an
 * in-order queue with a thread of its own, started at its first work; memory has an owner and a table of who may
 * access it; a fault is sticky.
 *
 * Locks: one, the host lock (hdi_host_lock). It guards everything declared here unless a comment says otherwise; it
 * is held for table look-ups and queue operations, and released around the work itself (copies, kernels, host
 * functions), thread joins, dlopen and the return of memory to the system (hdi_host_discard). It ranks below nothing
 * else: no other lock of the library is taken under it, and it is not recursive.
 * Always: a handle given out is a number that is looked up, never an address that is followed. Process-wide state is
 * made on first use; nothing is printed.
 */
#ifndef HDI_DRIVER_HOST_HOST_H
#define HDI_DRIVER_HOST_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "driver/abi.h"
#include "driver/driver.h"
#include "driver/entries.h"
#include "driver/host/cpu_run.h"

#define HDI_HOST_DEVICES_MAX 64
#define HDI_HOST_GRANULE ((size_t)2 << 20)
#define HDI_HOST_PITCH_MAX INT32_MAX /* bytes from row to row of a copy */

/* So many other devices' memory a device may access at a time, as with GPUs that no switch connects. */
#define HDI_HOST_PEERS_MAX 8

typedef struct hdi_host_context hdi_host_context;
typedef struct hdi_host_stream hdi_host_stream;
typedef struct hdi_host_capture hdi_host_capture;
typedef struct hdi_host_graph hdi_host_graph;

/* ------------------------------------------------------------------------------------------------- state.c: process
 * -- */

/* Things whose release is a system call, done after the lock is released. Embedded in the object that owns them;
 * `self` is freed last. */
typedef struct hdi_host_garbage {
    struct hdi_host_garbage *next;
    void *map;
    size_t map_bytes;
    int descriptor;       /* closed; -1: none */
    int64_t punch_offset; /* pages of the common memory file to give back */
    size_t punch_bytes;
    void *library;
    void *self;
} hdi_host_garbage;

typedef struct hdi_host_device {
    uint64_t used;             /* physical bytes */
    hdi_host_context *context; /* the primary context; NULL when not retained */
    /* Non-zero: running kernels stop early. Written under the lock, read by hdi_cpu_run without. */
    volatile int cancel;
} hdi_host_device;

typedef struct hdi_host_state {
    bool initialised;
    int device_count;
    uint64_t memory;                                             /* bytes of each device */
    int peers;                                                   /* HDI_HOST_PEERS_* of the option */
    uint8_t corrupt[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX]; /* hdi_host_corrupt, by writer and owner */
    uint64_t schedule;
    int contexts; /* live primary contexts */
    uint64_t streams_made;
    hdi_host_device devices[HDI_HOST_DEVICES_MAX];
} hdi_host_state;

extern hdi_host_state hdi_host;

/* In a forked child (hdi_driver_was_forked) these do nothing. */
void hdi_host_lock(void);
/* Releases the lock, then whatever was discarded under it. */
void hdi_host_unlock(void);
/* As hdi_host_unlock, returning `result`: the end of every entry point. */
hdcu_result hdi_host_leave(hdcu_result result);
/* The lock is held when these return, also on failure. Failures: NOT_INITIALIZED (also in a forked child, at once),
 * NOT_PERMITTED (inside a host function). */
hdcu_result hdi_host_enter(void);
/* ... and INVALID_CONTEXT, CONTEXT_IS_DESTROYED, or the code of the current context's fault. */
hdcu_result hdi_host_enter_context(hdi_host_context **context);
void hdi_host_wait(pthread_cond_t *condition);
void hdi_host_discard(hdi_host_garbage *garbage);
bool hdi_host_peer_possible(int device, int peer);
/* Whether `device` may be given memory of one more `owner`, or has some already. */
bool hdi_host_peer_fits(int device, int owner);
bool hdi_host_device_valid(hdcu_device device);
/* Set while this thread runs a host function; entry points refuse then. Thread-local. */
void hdi_host_set_in_function(bool inside);

/* ------------------------------------------------------------------------------------------------ handles.c: handles
 * -- */

typedef enum hdi_host_kind {
    HDI_HOST_CONTEXT = 1,
    HDI_HOST_STREAM,
    HDI_HOST_EVENT,
    HDI_HOST_MODULE,
    HDI_HOST_FUNCTION,
    HDI_HOST_GRAPH,
    HDI_HOST_GRAPHNODE,
    HDI_HOST_GRAPHEXEC,
    HDI_HOST_PHYSICAL
} hdi_host_kind;

/* 0 when there is no memory for it. */
uint64_t hdi_host_handle_make(hdi_host_kind kind, void *object);
/* NULL for a handle that is unknown, stale, or of another kind. */
void *hdi_host_handle_find(hdi_host_kind kind, uint64_t handle);
void hdi_host_handle_drop(uint64_t handle);
/* The next live object of this kind at or after *position, which is moved past it; NULL at the end. Start with 0. */
void *hdi_host_handle_next(hdi_host_kind kind, uint32_t *position);

/* ------------------------------------------------------------------------------------------ context.c: primary
 * contexts -- */

struct hdi_host_context {
    uint64_t handle;
    int device;
    unsigned retained;
    hdcu_result error; /* the first fault; sticky */
    uint64_t peers;    /* bit j: memory of device j allocated by cuMemAlloc is accessible */
    hdi_host_stream *null_stream;
    hdi_host_stream *streams;  /* all whose thread may still run, destroyed ones included */
    hdi_host_stream *finished; /* destroyed, their threads at their end: to be joined */
};

hdcu_result hdi_host_context_find(hdcu_context handle, hdi_host_context **context);
/* The current context whatever its state; for calls that release. */
hdcu_result hdi_host_context_current(hdi_host_context **context);
/* A device fault: the context takes `code` for good, its pending work is dropped. A handle that is stale is ignored. */
void hdi_host_context_fault(uint64_t handle, hdcu_result code);

/* -------------------------------------------------------------------------------------- ranges.c: who may access
 * what -- */

typedef enum hdi_host_memory_kind {
    HDI_HOST_VIRTUAL,   /* cuMemMap */
    HDI_HOST_ALLOCATED, /* cuMemAlloc */
    HDI_HOST_POOLED,    /* a segment of the device's pool: cuMemAllocAsync */
    HDI_HOST_PINNED,    /* cuMemHostAlloc */
    HDI_HOST_REGISTERED /* cuMemHostRegister */
} hdi_host_memory_kind;

typedef struct hdi_host_physical hdi_host_physical;
typedef struct hdi_host_segment hdi_host_segment;

typedef struct hdi_host_span {
    uintptr_t start;
    size_t bytes;
} hdi_host_span;

typedef struct hdi_host_mapping {
    hdi_host_span span; /* first: sets hold pointers to it */
    hdi_host_garbage garbage;
    hdi_host_memory_kind kind;
    int device;      /* owner; -1 for host memory */
    uint64_t access; /* VIRTUAL: bit j: device j may */
    hdi_host_physical *physical;
    size_t physical_offset;
    hdi_host_context *context; /* the one that frees it at its end; NULL for VIRTUAL */
    hdi_host_segment *segment; /* POOLED */
} hdi_host_mapping;

typedef struct hdi_host_reservation {
    hdi_host_span span;
    hdi_host_garbage garbage;
} hdi_host_reservation;

/* Spans that do not overlap, in the order of their addresses. */
typedef struct hdi_host_set {
    hdi_host_span **spans;
    size_t count, capacity;
} hdi_host_set;

extern hdi_host_set hdi_host_mappings, hdi_host_reservations;

/* Index of the first span that ends after `address`. */
size_t hdi_host_set_seek(const hdi_host_set *set, uintptr_t address);
void *hdi_host_set_find(const hdi_host_set *set, uintptr_t address);
bool hdi_host_set_overlaps(const hdi_host_set *set, uintptr_t address, size_t bytes);
bool hdi_host_set_insert(hdi_host_set *set, hdi_host_span *span); /* false: no memory */
void hdi_host_set_remove(hdi_host_set *set, hdi_host_span *span);

typedef enum hdi_host_reach {
    HDI_HOST_REACHABLE,
    HDI_HOST_UNKNOWN,    /* no memory of ours */
    HDI_HOST_UNMAPPED,   /* ours, but not mapped from end to end, or accessible to nobody */
    HDI_HOST_UNREACHABLE /* ours, but this device may not */
} hdi_host_reach;

/* What `device` may do with these bytes; device -1: any device will do (copies, which the driver stages). */
hdi_host_reach hdi_host_reach_of(int device, uintptr_t address, size_t bytes);

/* Whether `device` may access the mapping. */
bool hdi_host_may_access(const hdi_host_mapping *m, int device);
/* The device that owns the memory at an address; -1: none does. */
int hdi_host_owner_of(uintptr_t address);

/* The descriptor of the memory file that physical memory without a file of its own lies in; -1 before its first use. */
int hdi_host_memory_file(void);

/* memory.c, alloc.c: everything a context that ends leaves behind; `all`: no context is left, imports and reservations
 * go too. */
void hdi_host_virtual_release(int device, bool all);
void hdi_host_allocated_release(hdi_host_context *context);

/* alloc.c: a block of fresh pages, its size rounded up to whole ones; charged to its device. Failures: INVALID_VALUE
 * (no bytes), OUT_OF_MEMORY. */
hdcu_result hdi_host_block_make(hdi_host_context *context, hdi_host_memory_kind kind, size_t bytes,
                                hdi_host_mapping **out);
void hdi_host_block_release(hdi_host_mapping *block);

/* ------------------------------------------------------------------------------------- pool.c: stream-ordered memory
 * -- */

typedef struct hdi_host_slot hdi_host_slot;

/* A cuMemFreeAsync was passed by its stream, or dropped. */
void hdi_host_slot_passed(hdi_host_slot *slot);
/* Whether this is memory of cuMemAllocAsync that is not freed; and frees it, once the context's work is done. */
bool hdi_host_pool_has(uintptr_t address);
hdcu_result hdi_host_mempool_free(uintptr_t address);
/* The program has waited for work of the context: what the pool holds beyond its threshold goes back. */
void hdi_host_pool_settle(const hdi_host_context *context);
/* Everything goes, settings too; no stream of the context is left. */
void hdi_host_pool_release(const hdi_host_context *context);

/* ------------------------------------------------------------------------------------------- module.c: modules -- */

struct hd_cpu_kernel;

typedef struct hdi_host_function {
    uint64_t handle;
    struct hdi_host_module *module;
    const struct hd_cpu_kernel *kernel;
    int dynamic_shared_max;
} hdi_host_function;

/* Lives until its handle is gone and nothing queued names it. */
typedef struct hdi_host_module {
    hdi_host_garbage garbage;
    uint64_t handle;
    unsigned references;
    hdi_host_context *context;
    unsigned function_count;
    hdi_host_function *functions;
    hdi_cpu_storage storage;
} hdi_host_module;

void hdi_host_module_release(hdi_host_module *module);
void hdi_host_modules_release(hdi_host_context *context);

/* ------------------------------------------------------------------------------------- stream.c: streams and
 * operations -- */

/* A moment in one stream or several: done when every operation that records it has run, or was dropped. */
typedef struct hdi_host_point {
    unsigned references, pending;
    hdcu_result error; /* of the context that dropped it */
    int64_t time_ns;
    pthread_cond_t changed;
} hdi_host_point;

typedef enum hdi_host_op_kind {
    HDI_HOST_OP_COPY,
    HDI_HOST_OP_FILL,
    HDI_HOST_OP_KERNEL,
    HDI_HOST_OP_CALL,
    HDI_HOST_OP_PRODUCT,
    HDI_HOST_OP_FREE,
    HDI_HOST_OP_RECORD,
    HDI_HOST_OP_WAIT,
    HDI_HOST_OP_GRAPH
} hdi_host_op_kind;

#define HDI_HOST_OP_INLINE_BYTES 128

/* One thing to do. `data` holds kernel arguments, a hdi_product or a snapshot of pageable source bytes: up to
 * HDI_HOST_OP_INLINE_BYTES here, else on the heap. Moved by plain copying; released once. */
typedef struct hdi_host_op {
    hdi_host_op_kind kind;
    union {
        struct {
            uintptr_t dst, src;
            size_t bytes; /* of a row */
            size_t rows;
            size_t dst_pitch, src_pitch;     /* of several rows */
            bool dst_is_known, src_is_known; /* memory of ours, checked again when it runs */
            bool src_is_data;
        } copy;
        struct {
            uintptr_t dst;
            uint32_t value;
            unsigned width; /* 1 or 4 */
            size_t bytes;
        } fill;
        struct {
            hdi_host_module *module;
            const struct hd_cpu_kernel *kernel;
            uint32_t grid[3], block[3];
            size_t dynamic_shared_bytes;
        } kernel;
        struct {
            hdcu_host_fn function;
            void *user_data;
        } call;
        const struct hdi_host_blas *library; /* of a product, which is the data */
        hdi_host_slot *slot;
        hdi_host_point *point;
        hdi_host_graph *graph;
    } u;
    size_t data_bytes;
    void *data_heap;
    _Alignas(16) unsigned char data_inline[HDI_HOST_OP_INLINE_BYTES];
} hdi_host_op;

typedef struct hdi_host_item {
    struct hdi_host_item *next;
    hdi_host_op op;
} hdi_host_item;

struct hdi_host_stream {
    uint64_t handle;
    hdi_host_stream *next; /* in its context's list */
    hdi_host_context *context;
    bool non_blocking, started, closing;
    pthread_t thread;
    pthread_cond_t work;
    hdi_host_item *first, *last;
    uint64_t submitted, completed; /* items */
    unsigned queued;               /* of them unfinished, without points and waits */
    uint64_t operations;           /* submitted by entry points, without the points and waits that order streams */
    uint64_t joined;               /* `operations` when the NULL stream last waited for this one */
    uint64_t null_seen;            /* the NULL stream's `operations` when this one last waited for it */
    hdi_host_point *waiting;       /* that its thread waits for; NULL: none */
    uint64_t random;
    hdi_host_capture *capture; /* NULL: not capturing */
    size_t *tails;             /* nodes that the next captured operation depends on */
    size_t tail_count;
};

/* Room for `bytes` of data in the operation; NULL: no memory. */
void *hdi_host_op_data(hdi_host_op *op, size_t bytes);
const void *hdi_host_op_data_of(const hdi_host_op *op);
void hdi_host_op_release(hdi_host_op *op, hdcu_result error);

/* The stream of a handle; NULL (0), legacy (1) and per-thread (2) mean the NULL stream of the current context. Checks
 * for the context's fault. */
hdcu_result hdi_host_stream_find(hdcu_stream handle, hdi_host_stream **stream);
/* hdi_host_enter, and the same. */
hdcu_result hdi_host_enter_stream(hdcu_stream handle, hdi_host_stream **stream);
/* The same for a call that brings work: waits, without the lock, until the stream has room for it. */
hdcu_result hdi_host_enter_work(hdcu_stream handle, hdi_host_stream **stream);
/* Appends to the stream's queue, or to the graph that it is capturing. Takes the operation over in any case. */
hdcu_result hdi_host_submit(hdi_host_stream *stream, hdi_host_op *op);
/* Host waits for everything submitted to the stream so far. Releases the lock while it waits. */
hdcu_result hdi_host_stream_drain(hdi_host_stream *stream);
hdcu_result hdi_host_context_drain(hdi_host_context *context);
hdcu_result hdi_host_stream_make(hdi_host_context *context, bool non_blocking, hdi_host_stream **out);
/* Drops what is queued in all streams of the context; their points end with `error`. */
void hdi_host_streams_drop(hdi_host_context *context, hdcu_result error);
/* Ends all streams and joins their threads; releases the lock meanwhile. */
void hdi_host_streams_end(hdi_host_context *context);
/* Joins threads of streams that were destroyed and have finished. */
void hdi_host_streams_reap(hdi_host_context *context);

/* launch.c: a kernel in a context as an operation. Failures: INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, OUT_OF_MEMORY; then nothing is
 * to be released. */
hdcu_result hdi_host_kernel_op(const hdcu_kernel_node_params *p, const hdi_host_context *context, hdi_host_op *op);

/* run.c: does one operation now, on the calling thread. The lock is held at the call and on return, and released
 * meanwhile. Faults go to the context. */
void hdi_host_run(uint64_t context_handle, int device, uint64_t random, const hdi_host_op *op);
uint64_t hdi_host_random(uint64_t *state);
/* stream.c: perturbs when the next item or node starts, against what runs in other streams. The lock is released meanwhile. */
void hdi_host_perturb(uint64_t random);

/* ------------------------------------------------------------------- corrupt.c: peers that do not deliver, on purpose -- */

/* What becomes of the writes of one device to the memory of another. */
typedef enum hdi_host_corrupt {
    HDI_HOST_CORRUPT_NONE,
    HDI_HOST_CORRUPT_LOST,    /* they are lost */
    HDI_HOST_CORRUPT_COPIES,  /* only those of copies are */
    HDI_HOST_CORRUPT_STORES,  /* only those of kernels are */
    HDI_HOST_CORRUPT_ATOMICS, /* only those of kernels to what they also read are */
    HDI_HOST_CORRUPT_HANG,    /* they never end */
    HDI_HOST_CORRUPT_FAULT,   /* the writing device faults */
    HDI_HOST_CORRUPT_CRASH,   /* the process that runs the writing device is killed */
    HDI_HOST_CORRUPT_SLOW     /* copies take long */
} hdi_host_corrupt;

/* The option host_corrupt as a table. Errors: OPTION. */
hd_status hdi_host_corrupt_parse(const char *text, int devices,
                                 uint8_t out[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX]);
/* A copy or a fill by `device` to memory at `dst` is about to run; the lock is released meanwhile. *lost: it is not to be done. */
hdcu_result hdi_host_corrupt_copy(int device, uintptr_t dst, size_t bytes, bool *lost);

/* What a kernel of `device` is not to change: made before it runs, and written back, and freed, after. NULL: nothing. */
typedef struct hdi_host_snapshot hdi_host_snapshot;
hdcu_result hdi_host_corrupt_kernel(int device, const struct hd_cpu_kernel *kernel, const char *arguments,
                                    hdi_host_snapshot **out);
void hdi_host_snapshot_restore(hdi_host_snapshot *snapshot);

/* blas.c: the same for a product; returns the fault. */
hdcu_result hdi_host_blas_run(int device, const hdi_host_op *op);

/* ----------------------------------------------------------------------------------------------- event.c: points,
 * events -- */

hdi_host_point *hdi_host_point_make(void); /* one reference; NULL: no memory */
void hdi_host_point_release(hdi_host_point *point);
void hdi_host_point_record(hdi_host_point *point, hdcu_result error);
hdcu_result hdi_host_point_wait(hdi_host_point *point); /* on a host thread */
void hdi_host_events_release(hdi_host_context *context);

/* ----------------------------------------------------------------------------------- capture.c, graph.c: recorded
 * work -- */

typedef struct hdi_host_node {
    hdi_host_op op;
    uint64_t context;
    int device;
    size_t *before; /* nodes that this one waits for; all have smaller numbers */
    size_t before_count;
    uint64_t
        handle; /* of a node that was added to the graph by itself; 0: captured, or the graph is an executable's own */
} hdi_host_node;

/* Nodes in the order of capture or of addition, which is an order of their dependencies. It does not change while anything but its handle refers to
 * it. */
struct hdi_host_graph {
    uint64_t handle; /* 0: destroyed, still being captured, or an executable's own */
    unsigned references;
    hdi_host_node *nodes;
    size_t count, capacity;
};

struct hdi_host_capture {
    hdi_host_capture *next; /* all that have begun and not ended */
    uint64_t id;
    hdi_host_stream *origin;
    int mode;
    pthread_t thread;
    bool invalid;
    hdi_host_graph *graph;
};

/* What an event that was recorded during a capture stands for. */
typedef struct hdi_host_captured {
    uint64_t capture; /* id; 0: not captured */
    size_t *nodes;
    size_t count;
} hdi_host_captured;

hdcu_result hdi_host_capture_add(hdi_host_stream *stream, hdi_host_op *op);
hdcu_result hdi_host_capture_record(hdi_host_stream *stream, hdi_host_captured *captured);
hdcu_result hdi_host_capture_wait(hdi_host_stream *stream, const hdi_host_captured *captured);
void hdi_host_captured_clear(hdi_host_captured *captured);
/* The stream is being destroyed: its capture, if any, can no longer end well. */
void hdi_host_capture_abandon(hdi_host_stream *stream);
void hdi_host_capture_invalidate(hdi_host_capture *capture);
/* For calls that must not be made while this thread, or any in global mode, captures: STREAM_CAPTURE_UNSUPPORTED. */
hdcu_result hdi_host_capture_forbids(void);
/* For calls that wait for this context's streams. */
hdcu_result hdi_host_capture_forbids_drain(hdi_host_context *context);
/* For work in the NULL stream. */
hdcu_result hdi_host_capture_forbids_null(hdi_host_context *context);
void hdi_host_graph_release(hdi_host_graph *graph);
void hdi_host_graphs_release(void);
void hdi_host_graph_run(uint64_t random, const hdi_host_graph *graph);

/* ---------------------------------------------------------------- the entry points, gathered by table.c -- */

#define HDI_HOST_DECLARE(name, version, need, parameters, arguments) hdcu_result hdi_host_##name parameters;
HDI_DRIVER_ENTRIES(HDI_HOST_DECLARE)
#undef HDI_HOST_DECLARE

#endif
