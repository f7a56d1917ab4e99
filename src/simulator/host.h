/* host.h - declarations that the files of the host provider share: its one lock, its objects, and
 * the functions of one file that other files call.
 *
 * The host provider implements the driver's entry points on the CPU, as asynchronous devices. Every
 * stream is an in-order queue with a thread of its own, which starts with the stream's first work.
 * Memory has an owner, and a table of the devices that may access it. A fault is sticky.
 * Threads: entry points run on any thread, queued operations on the threads of streams.
 * Locks: one, the host lock (hdi_host_lock). The lock guards everything that this header declares,
 * unless a comment states otherwise. A thread holds it for table look-ups and queue operations. It
 * releases the lock for the work itself (copies, kernels, host functions), thread joins, dlopen and
 * the return of memory to the system (hdi_host_discard). A thread takes no other lock of the
 * library under this lock. The lock is not recursive.
 * Blocking: calls may wait for work, for room in a stream, or for the end of a context
 * (hdi_host_wait).
 * Always: a handle that the program gets is a number, which is looked up in a table; it is never
 * used as an address. State of the whole process is made on first use. No code here prints
 * anything.
 */
#ifndef HDI_SIMULATOR_HOST_H
#define HDI_SIMULATOR_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "driver/abi.h"
#include "driver/driver.h"
#include "driver/entries.h"
#include "simulator/cpu_run.h"
#include "simulator/simulator.h"

#define HDI_HOST_DEVICES_MAX 64
#define HDI_HOST_GRANULE ((size_t)2 << 20)
#define HDI_HOST_PITCH_MAX INT32_MAX /* bytes from row to row of a copy */

/* The most other devices whose memory a device may access at one time. The driver sets such a limit
 * for GPUs that no switch connects. */
#define HDI_HOST_PEERS_MAX 8

typedef struct hdi_host_context hdi_host_context;
typedef struct hdi_host_stream hdi_host_stream;
typedef struct hdi_host_item hdi_host_item;
typedef struct hdi_host_capture hdi_host_capture;
typedef struct hdi_host_graph hdi_host_graph;

/* ---- state.c: the process ---- */

typedef struct hdi_host_file hdi_host_file;

/* Physical memory: bytes of a memory file (file.c). */
typedef struct hdi_host_piece {
    hdi_host_file *file; /* NULL: none */
    int64_t offset;
    size_t bytes;
    bool shared; /* other processes may hold the piece */
    bool kept;   /* this process dropped the piece, but another process still holds it */
} hdi_host_piece;

/* Resources whose release takes system calls. A thread makes these calls after it released the host
 * lock. The structure is a part of the object that owns the resources; `self` is that object, which
 * is freed last. */
typedef struct hdi_host_garbage {
    struct hdi_host_garbage *next;
    void *map;
    size_t map_bytes;
    int descriptor;       /* closed; -1: none */
    hdi_host_piece piece; /* dropped; all zero: none */
    void *library;
    void *self;
} hdi_host_garbage;

typedef struct hdi_host_device {
    uint64_t used;             /* physical bytes */
    hdi_host_context *context; /* the primary context; NULL when not retained */
    /* Non-zero: running kernels stop early. Written under the lock. hdi_cpu_run reads it without
     * the lock, as a hint. */
    volatile int cancel;
    char reason[HDI_DRIVER_REASON_BYTES]; /* the report of the last kernel that failed, or empty */
} hdi_host_device;

typedef struct hdi_host_state {
    bool initialised;
    int device_count;
    uint64_t memory; /* bytes of each device */
    /* HDI_HOST_PEERS_* of the option */
    int peers;
    /* hdi_host_corrupt_parse, by writer and owner */
    uint8_t corrupt[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX];
    uint64_t schedule;
    int contexts; /* live primary contexts */
    uint64_t streams_made;
    hdi_host_device devices[HDI_HOST_DEVICES_MAX];
} hdi_host_state;

extern hdi_host_state hdi_host;

/* Takes the lock. In a forked child (hdi_driver_was_forked) hdi_host_lock and hdi_host_unlock do
 * nothing. */
void hdi_host_lock(void);
/* Releases the lock, and then all resources that were discarded under it. */
void hdi_host_unlock(void);
/* hdi_host_unlock, and returns `result`: the end of an entry point. */
hdcu_result hdi_host_leave(hdcu_result result);
/* The beginning of an entry point: takes the lock, which is held on return, even after a failure.
 * Errors: NOT_INITIALIZED (also in a forked child, at once), NOT_PERMITTED (inside a host
 * function). */
hdcu_result hdi_host_enter(void);
/* hdi_host_enter, and finds the current context.
 * Errors: those of hdi_host_enter, INVALID_CONTEXT, CONTEXT_IS_DESTROYED, the code of the context's
 * fault. */
hdcu_result hdi_host_enter_context(hdi_host_context **context);
/* Waits for the condition. The lock is released during the wait. */
void hdi_host_wait(pthread_cond_t *condition);
/* Releases the resources, and frees their owner, once the lock is released. */
void hdi_host_discard(hdi_host_garbage *garbage);
bool hdi_host_device_valid(hdcu_device device);
/* Marks that the calling thread runs a host function, or no longer does. During a host function,
 * entry points refuse calls of this thread. */
void hdi_host_set_in_function(bool inside);

typedef enum hdi_host_kind {
    HDI_HOST_CONTEXT = 1,
    HDI_HOST_STREAM,
    HDI_HOST_EVENT,
    HDI_HOST_MODULE,
    HDI_HOST_FUNCTION,
    HDI_HOST_GRAPH,
    HDI_HOST_GRAPHNODE,
    HDI_HOST_GRAPHEXEC,
    HDI_HOST_USER_OBJECT,
    HDI_HOST_PHYSICAL
} hdi_host_kind;

/* Makes a handle for the object. 0: out of memory. */
uint64_t hdi_host_handle_make(hdi_host_kind kind, void *object);
/* Returns the object of a handle. NULL: the handle is unknown, stale, or of another kind. */
void *hdi_host_handle_find(hdi_host_kind kind, uint64_t handle);
void hdi_host_handle_drop(uint64_t handle);
/* Returns the next live object of this kind at or after *position, and moves *position past it.
 * Begin with 0. NULL: no object is left. */
void *hdi_host_handle_next(hdi_host_kind kind, uint32_t *position);

/* ---- device.c: primary contexts ---- */

struct hdi_host_context {
    uint64_t handle;
    int device;
    unsigned retained;
    hdcu_result error; /* the first fault; sticky */
    /* bit j: this context may access memory of device j that cuMemAlloc allocated */
    uint64_t peers;
    hdi_host_stream *null_stream;
    hdi_host_stream *streams;  /* all streams whose threads may still run, even destroyed ones */
    hdi_host_stream *finished; /* destroyed streams whose threads are ending, and must be joined */
};

hdcu_result hdi_host_context_find(hdcu_context handle, hdi_host_context **context);
/* Gets the current context, even one with a fault, for calls that release. */
hdcu_result hdi_host_context_current(hdi_host_context **context);
/* Records a device fault. The context keeps its first code for good, and its pending work is
 * dropped. Ignores a stale handle. */
void hdi_host_context_fault(uint64_t handle, hdcu_result code);

/* ---- memory.c: memory and its access ---- */

typedef enum hdi_host_memory_kind {
    HDI_HOST_VIRTUAL,    /* cuMemMap */
    HDI_HOST_ALLOCATED,  /* cuMemAlloc */
    HDI_HOST_POOLED,     /* a segment of the device's pool: cuMemAllocAsync */
    HDI_HOST_PINNED,     /* cuMemHostAlloc */
    HDI_HOST_REGISTERED, /* cuMemHostRegister */
    HDI_HOST_VARIABLE    /* cuModuleGetGlobal: of a module, which owns the memory */
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
    uint64_t access; /* for VIRTUAL; bit j: device j may access the mapping */
    hdi_host_physical *physical;
    size_t physical_offset;
    /* The context with which the memory is released; NULL for VIRTUAL and VARIABLE. */
    hdi_host_context *context;
    hdi_host_segment *segment; /* of POOLED */
} hdi_host_mapping;

/* Spans that do not overlap, sorted by address. */
typedef struct hdi_host_set {
    hdi_host_span **spans;
    size_t count, capacity;
} hdi_host_set;

extern hdi_host_set hdi_host_mappings, hdi_host_reservations;

/* Returns the index of the first span that ends after `address`. */
size_t hdi_host_set_seek(const hdi_host_set *set, uintptr_t address);
/* Returns the object whose span contains `address`; NULL: none. */
void *hdi_host_set_find(const hdi_host_set *set, uintptr_t address);
bool hdi_host_set_overlaps(const hdi_host_set *set, uintptr_t address, size_t bytes);
bool hdi_host_set_insert(hdi_host_set *set, hdi_host_span *span); /* false: out of memory */
void hdi_host_set_remove(hdi_host_set *set, hdi_host_span *span);

typedef enum hdi_host_reach {
    HDI_HOST_REACHABLE,
    HDI_HOST_UNKNOWN, /* not our memory */
    /* memory of the provider, but some bytes are not mapped, or are accessible to no device */
    HDI_HOST_UNMAPPED,
    HDI_HOST_UNREACHABLE /* memory of the provider, but not accessible to this device */
} hdi_host_reach;

/* Returns how far `device` may access these bytes. Device -1: access by any device is enough, as
 * for copies, which the driver stages. */
hdi_host_reach hdi_host_reach_of(int device, uintptr_t address, size_t bytes);

/* True if `device` may access the mapping. */
bool hdi_host_may_access(const hdi_host_mapping *m, int device);
/* Returns the device that owns the memory at an address; -1: none. */
int hdi_host_owner_of(uintptr_t address);

/* Releases all virtual memory that a context leaves at its end. `all`: no context is left, so
 * imports and reservations also end. */
void hdi_host_virtual_release(int device, bool all);

/* ---- file.c: memory files ---- */

/* Makes a piece. False: out of memory or of descriptors. */
bool hdi_host_piece_make(int device, size_t bytes, hdi_host_piece *out);
/* Returns the descriptor with which to map the piece, at its offset. */
int hdi_host_piece_descriptor(const hdi_host_piece *piece);
/* Makes a descriptor that names the piece; -1: it failed. */
int hdi_host_piece_export(hdi_host_piece *piece);
/* Finds the piece that an exported descriptor names, and its device. Errors: INVALID_VALUE,
 * NOT_SUPPORTED, OPERATING_SYSTEM, OUT_OF_MEMORY. */
hdcu_result hdi_host_piece_import(int descriptor, int *device, hdi_host_piece *out);
/* Takes back an import of a piece that this process already holds. */
void hdi_host_piece_forget(hdi_host_piece *piece);
/* Returns the size of the piece that a descriptor names; 0: it names none. Call it without the host
 * lock. */
uint64_t hdi_host_export_bytes(int descriptor);
bool hdi_host_piece_same(const hdi_host_piece *a, const hdi_host_piece *b);
/* These two functions end a piece that is not mapped. Call hdi_host_piece_drop first, and then
 * hdi_host_piece_clear without the host lock. The second function gives the pages back if no
 * process holds them. */
void hdi_host_piece_drop(hdi_host_piece *piece);
void hdi_host_piece_clear(hdi_host_piece *piece);

/* ---- alloc.c: memory at addresses that the driver chooses ---- */

typedef struct hdi_host_slot hdi_host_slot;

/* Call this function when a stream passed or dropped a cuMemFreeAsync of the slot. */
void hdi_host_slot_passed(hdi_host_slot *slot);
/* Gets the span of the live cuMemAllocAsync slot that contains an address. False: none. */
bool hdi_host_slot_span(uintptr_t address, hdi_host_span *out);
/* Gives back the pool's memory beyond its threshold. Entry points in which the program waited for
 * work of the context call this function. */
void hdi_host_pool_settle(const hdi_host_context *context);
/* Releases all memory that a context leaves at its end. Call it only when no stream of the context
 * is left. */
void hdi_host_allocated_release(hdi_host_context *context);

/* ---- module.c: modules ---- */

struct hd_cpu_kernel;

typedef struct hdi_host_function {
    uint64_t handle;
    struct hdi_host_module *module;
    const struct hd_cpu_kernel *kernel;
    int dynamic_shared_max;
} hdi_host_function;

/* A variable whose address was requested. It is in the table of mappings until the module's handle
 * is gone. */
typedef struct hdi_host_variable {
    hdi_host_mapping mapping;
    struct hdi_host_variable *next; /* the next variable of the same module */
} hdi_host_variable;

/* A module. It lives until its handle is gone and no queued or recorded launch refers to it. */
typedef struct hdi_host_module {
    hdi_host_garbage garbage;
    uint64_t handle;
    unsigned references;
    hdi_host_context *context;
    unsigned function_count;
    hdi_host_function *functions;
    hdi_cpu_storage storage;
    hdi_host_variable *variables;
} hdi_host_module;

void hdi_host_module_release(hdi_host_module *module);
void hdi_host_modules_release(hdi_host_context *context);

/* ---- stream.c: points, operations and streams ---- */

/* A moment in one or several streams. The moment is reached when every operation that records it
 * ran or was dropped. */
typedef struct hdi_host_point {
    unsigned references, pending;
    hdcu_result error; /* the error of the context that dropped a record */
    int64_t time_ns;
    pthread_cond_t changed;
} hdi_host_point;

hdi_host_point *hdi_host_point_make(void); /* one reference; NULL: no memory */
void hdi_host_point_release(hdi_host_point *point);

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

typedef struct hdi_host_op hdi_host_op;

/* Performs a product, with the lock as in hdi_host_run. Returns SUCCESS, or the fault. The
 * submitter of the product provides the function (blas/host.c); it is no part of the simulator. */
typedef hdcu_result (*hdi_host_product_fn)(int device, const hdi_host_op *op);

/* One operation. `data` contains kernel arguments, a hdi_product or a copy of pageable source
 * bytes. Up to HDI_HOST_OP_INLINE_BYTES lie in this structure, and more lie on the heap. To move an
 * operation, copy the structure; it is released once. */
struct hdi_host_op {
    hdi_host_op_kind kind;
    union {
        struct {
            uintptr_t dst, src;
            size_t bytes; /* of a row */
            size_t rows;
            size_t dst_pitch, src_pitch; /* of several rows */
            /* this side is memory of the provider, so it is checked again when the operation
             * starts */
            bool dst_is_known, src_is_known;
            bool src_is_data; /* the source is the copy in `data` */
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
        struct {
            hdi_host_product_fn run;
            const void *library;
        } product; /* its arguments are in `data` */
        hdi_host_slot *slot;
        hdi_host_point *point;
        hdi_host_graph *graph;
    } u;
    size_t data_bytes;
    void *data_heap;
    _Alignas(16) unsigned char data_inline[HDI_HOST_OP_INLINE_BYTES];
};

struct hdi_host_stream {
    uint64_t handle;
    hdi_host_stream *next; /* in its context's list */
    hdi_host_context *context;
    bool non_blocking, started, closing;
    _Atomic uint32_t prepared; /* the thread is ready, or ended for lack of memory (stream.c) */
    pthread_t thread;
    pthread_cond_t work;
    hdi_host_item *first, *last;
    uint64_t submitted, completed; /* items */
    unsigned queued;               /* unfinished items, not counting records and waits */
    /* The number of operations that entry points submitted, without the records and waits that
     * order streams. */
    uint64_t operations;
    uint64_t joined; /* `operations` when the NULL stream last waited for this stream */
    /* The NULL stream's `operations` when this stream last waited for it. */
    uint64_t null_seen;
    hdi_host_point *waiting; /* the point that the stream's thread waits for; NULL: none */
    uint64_t random;
    hdi_host_capture *capture; /* NULL: not capturing */
    size_t *tails;             /* nodes that the next captured operation depends on */
    size_t tail_count;
};

/* Makes room for `bytes` of data in the operation. NULL: out of memory. */
void *hdi_host_op_data(hdi_host_op *op, size_t bytes);
const void *hdi_host_op_data_of(const hdi_host_op *op);
/* Releases everything that the operation owns. If the operation records a point, the point is
 * recorded with `error`. */
void hdi_host_op_release(hdi_host_op *op, hdcu_result error);

/* Finds the stream of a handle. NULL (0), legacy (1) and per-thread (2) mean the NULL stream of the
 * current context.
 * Errors: INVALID_HANDLE, INVALID_CONTEXT, CONTEXT_IS_DESTROYED, the code of the context's
 * fault. */
hdcu_result hdi_host_stream_find(hdcu_stream handle, hdi_host_stream **stream);
/* hdi_host_enter, then hdi_host_stream_find. */
hdcu_result hdi_host_enter_stream(hdcu_stream handle, hdi_host_stream **stream);
/* Finds the stream for a call that submits work, and waits until the stream has room. The lock is
 * released during the wait. */
hdcu_result hdi_host_enter_work(hdcu_stream handle, hdi_host_stream **stream);
/* Appends the operation to the stream's queue, or to the graph that the stream captures. Takes over
 * the operation, even if the call fails. */
hdcu_result hdi_host_submit(hdi_host_stream *stream, hdi_host_op *op);
/* These two functions wait for all work that was submitted so far to the stream, or to all streams
 * of the context. The lock is released during the wait. */
hdcu_result hdi_host_stream_drain(hdi_host_stream *stream);
hdcu_result hdi_host_context_drain(hdi_host_context *context);
hdcu_result hdi_host_stream_make(hdi_host_context *context, bool non_blocking, hdi_host_stream **out);
/* Drops all work queued in all streams of the context. Dropped points end with `error`. */
void hdi_host_streams_drop(hdi_host_context *context, hdcu_result error);
/* Ends all streams, joins their threads, and releases the events. The lock is released during the
 * joins. */
void hdi_host_streams_end(hdi_host_context *context);
/* Delays the next item or node by a random time, so that its order against work of other streams
 * changes. The lock is released during the delay. */
void hdi_host_perturb(uint64_t random);

/* ---- run.c: work ---- */

/* Makes an operation of a kernel launch in the context. After a failure the caller releases
 * nothing.
 * Errors: INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, OUT_OF_MEMORY. */
hdcu_result hdi_host_kernel_op(const hdcu_kernel_node_params *p, const hdi_host_context *context, hdi_host_op *op);

/* Performs one operation on the calling thread. The lock is held at the call and on return, and
 * released during the work. Records a fault in the context. */
void hdi_host_run(uint64_t context_handle, int device, uint64_t random, const hdi_host_op *op);

/* Parses the option host_corrupt into a table by writer and owner. 0: the writes arrive. Errors:
 * OPTION. */
hd_status hdi_host_corrupt_parse(const char *text, int devices,
                                 uint8_t out[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX]);

/* ---- graph.c: recorded work ---- */

/* The moment in a capture that an event refers to. */
typedef struct hdi_host_captured {
    uint64_t capture; /* id; 0: not captured */
    size_t *nodes;
    size_t count;
} hdi_host_captured;

hdcu_result hdi_host_capture_add(hdi_host_stream *stream, hdi_host_op *op);
hdcu_result hdi_host_capture_record(hdi_host_stream *stream, hdi_host_captured *captured);
hdcu_result hdi_host_capture_wait(hdi_host_stream *stream, const hdi_host_captured *captured);
void hdi_host_captured_clear(hdi_host_captured *captured);
/* Call this function when a stream is destroyed: if the stream captures, the capture ends or
 * becomes invalid. */
void hdi_host_capture_abandon(hdi_host_stream *stream);
void hdi_host_capture_invalidate(hdi_host_capture *capture);
/* For calls that are forbidden while this thread captures, or while any thread captures in global
 * mode. Invalidates such captures and returns STREAM_CAPTURE_UNSUPPORTED. */
hdcu_result hdi_host_capture_forbids(void);
/* hdi_host_capture_forbids for calls that wait for the streams of this context. */
hdcu_result hdi_host_capture_forbids_drain(hdi_host_context *context);
/* hdi_host_capture_forbids for work in the NULL stream of this context, for which blocking streams
 * wait: returns STREAM_CAPTURE_IMPLICIT. */
hdcu_result hdi_host_capture_forbids_null(hdi_host_context *context);
void hdi_host_graph_release(hdi_host_graph *graph);
void hdi_host_graphs_release(void);
void hdi_host_graph_run(uint64_t random, const hdi_host_graph *graph);

/* ---- the entry points ---- */

/* Each table contains the entry points of one file, and NULL for all others. state.c makes the
 * provider's table from these tables. */
extern const hdi_driver hdi_host_device_entries, hdi_host_memory_entries, hdi_host_alloc_entries,
    hdi_host_stream_entries, hdi_host_graph_entries, hdi_host_module_entries, hdi_host_run_entries;

#endif
