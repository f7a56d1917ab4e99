/* heddle/memory.h - limits, reclaim, statistics and safety of memory.
 *
 * Device memory comes from a pool per device. Blocks up to 1 MiB come from magazines of the calling
 * thread, and return there. A thread keeps one magazine for each lane and size class. The device's
 * arena handles larger blocks, and blocks for which a magazine has no room. Size classes are
 * multiples of 256 bytes up to 2 KiB, and eight per doubling up to 1 MiB. A block therefore wastes
 * at most 255 bytes or 12.5 %. Larger blocks are exact to 256 bytes. In addition, a granule of 2
 * MiB may be partly used.
 *
 * Limits. The option memory_limit (HEDDLE_MEMORY_LIMIT) bounds the physical memory that a runtime
 * holds on each device. It is given in bytes or as a share of the device ("12G", "80%"). The option
 * pinned_limit bounds pinned host memory. Neither is ever exceeded. After hd_device_restart, memory
 * of the lost device that other devices still map does not count.
 *
 * An allocation fails with MEMORY only after it has tried, in this order:
 *   - the thread's own magazine
 *   - memory whose work is finished, or that the same lane freed
 *   - memory that another lane still uses, with a wait in the lane
 *   - idle granules, moved to the place that needs them
 *   - more physical memory, up to the limit
 *   - the magazines of all threads
 *   - waiting for the work in flight
 *   - the program's reclaim callback
 *   - waiting for other threads, as long as one of them frees something, or work finishes, within
 *     the option memory_timeout (no longer than 20 times that in all)
 *
 * It does not wait in vain: not for more than the limit, and not if neither work nor another thread
 * can free memory. That is the case if nothing is unfinished and no other thread uses the library.
 * A thread uses the library from its first call with a runtime or a handle (hd_open included) until
 * it ends. A thread whose first call would be hd_free does not count before that call. Let such a
 * thread make a call when it starts, for example hd_lane_get_default. An allocation of pinned
 * memory at its limit waits in the same way. The message gives the reason and the remedy, and lists
 * the largest holders by label.
 *
 * Threads: any.
 * Blocking: hd_memory_trim, for the driver or the worker process. hd_memory_on_reclaim and
 * hd_memory_on_finding, for running callbacks. hd_memory_get_stats and hd_memory_report, while
 * another thread maps memory. hd_hold_destroy, with memory_debug. All other calls return at once;
 * hd_memory_report_of reads files of the system.
 */
#ifndef HEDDLE_MEMORY_H
#define HEDDLE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

#define HD_DEVICE_HOST (-1) /* in place of a device: pinned host memory */
/* bytes of a label, its end included; longer ones are cut, between characters */
#define HD_LABEL_BYTES 32

/* ---- reclaim --------------------------------------------------------------------------------- */

/* Why the callback of hd_memory_on_reclaim runs. */
typedef enum hd_reclaim_reason {
    /* Memory is getting scarce: a good moment to free some. Nothing fails if nothing is freed. */
    HD_RECLAIM_EARLY = 1,
    HD_RECLAIM_LIMIT = 2 /* an allocation fails unless something is freed */
} hd_reclaim_reason;

/* The facts that the callback of hd_memory_on_reclaim gets. */
typedef struct hd_reclaim {
    size_t size; /* sizeof(hd_reclaim) */
    int device;
    hd_reclaim_reason reason;
    unsigned attempt;        /* 0, 1, ...: counts the callbacks of this allocation */
    size_t wanted;           /* bytes that the allocation wants */
    uint64_t live_bytes;     /* bytes of the device in blocks that are not freed */
    uint64_t reserved_bytes; /* physical memory held */
    uint64_t limit_bytes;    /* most that may be held now: the limit, or the device's memory */
} hd_reclaim;

/* Frees memory that the program can spare (hd_free) and returns true if it freed anything. For
 * HD_RECLAIM_LIMIT true means: try again.
 *   - Runs on the thread that allocates, or that is about to block in hd_wait or hd_lane_wait.
 *   - The thread holds no lock that other calls wait for, except that of hd_memory_on_reclaim.
 *   - It may call everything except hd_memory_on_reclaim, hd_close and hd_device_restart.
 *   - Its own allocations cause no further callback on the same thread.
 *   - Several threads may call it at the same time.
 *   - A wait with a time limit ends no earlier than a callback that it has called. */
typedef bool (*hd_reclaim_callback)(void *context, const hd_reclaim *reclaim);

/* Installs the runtime's callback; NULL removes it. Returns once no call of the previous callback
 * is under way.
 *
 * Early reclaim (option memory_reclaim, a share of time in percent, 0: off): the callback runs with
 * HD_RECLAIM_EARLY at a pressure of 0.75 or more. If the thread is about to block anyway, it runs
 * at 0.50 or more. Pressure is live bytes divided by the most that may be held. Calls may take the
 * share of time memory_reclaim. Each of these conditions doubles the share:
 *   - the last call freed more than a tenth of the limit
 *   - the thread is about to block
 *   - the pressure is above 0.90
 *   - the pressure is above 0.95
 *
 * The rule is that of CUDA.jl (CUDACore/src/memory.jl, maybe_collect).
 * Errors: HANDLE, ARGUMENT (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_reclaim(hd_runtime *runtime, hd_reclaim_callback callback, void *context);

/* Returns unused physical memory to the driver, threads' magazines first, until at most keep_bytes
 * are held idle. Calls the driver; does not wait for work: freed memory that is still in use stays.
 * device: HD_DEVICE_HOST for pinned memory. For pinned memory the driver of a GPU waits until all
 * work that runs there has ended. *freed (may be NULL): bytes returned. Errors: HANDLE, NO_DEVICE,
 * DEVICE_LOST, DRIVER. */
HD_API hd_status hd_memory_trim(hd_runtime *runtime, int device, size_t keep_bytes, size_t *freed);

/* ---- labels and holders ---------------------------------------------------------------------- */

/* Names a buffer in messages, reports and leak lists. The label is copied; NULL removes it. Errors:
 * HANDLE, DEVICE_LOST. */
HD_API hd_status hd_buffer_set_label(hd_buffer *buffer, const char *label);

/* One live buffer. */
typedef struct hd_memory_block {
    size_t size;                /* sizeof(hd_memory_block) */
    int device;                 /* HD_DEVICE_HOST: pinned */
    uint64_t bytes;             /* as requested */
    char label[HD_LABEL_BYTES]; /* "" without */
    const void *call_site;      /* the call of hd_alloc...: an address in the program's code */
    bool unified;
    /* Freed, but kept by an hd_hold, or until memory_debug has checked its guards. */
    bool held;
    bool lost;     /* lost with its device: its memory is gone, hd_free it */
    bool imported; /* the memory is the program's own (heddle/import.h) */
} hd_memory_block;

/* Calls `visit` for every buffer of the program that is not freed, or is held, until it returns
 * false. The list is a copy made at the start, so `visit` may call anything. Allocations of other
 * threads wait while the copy is made.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_each(hd_runtime *runtime, bool (*visit)(void *context, const hd_memory_block *block),
                                void *context);

/* ---- keeping memory where it is -------------------------------------------------------------- */

/* A graph that the program captured itself with hd_buffer_address uses memory by its address,
 * longer than a handle lives. A hold keeps that memory until the hold is destroyed. hd_free makes
 * the handle stale as ever, but the memory is not allocated again, not moved and not released. */
typedef struct hd_hold hd_hold;

/* Makes an empty hold, owned by the caller: hd_hold_destroy, or hd_close. Errors: ARGUMENT, HANDLE,
 * HOST_MEMORY. */
HD_API hd_status hd_hold_create(hd_runtime *runtime, hd_hold **out);

/* Adds the memory of a buffer. Adding it twice is the same as adding it once. Errors: HANDLE,
 * DEVICE_LOST, HOST_MEMORY, UNSUPPORTED (a variable of a module). */
HD_API hd_status hd_hold_add(hd_hold *hold, hd_buffer *buffer);

/* Destroys a hold. Memory whose buffer was freed meanwhile becomes free now: no work that uses it
 * by address may be under way. NULL: nothing happens. Does not block, except with the option
 * memory_debug, as hd_free. Errors: HANDLE (it was destroyed before). */
HD_API hd_status hd_hold_destroy(hd_hold *hold);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Memory of one device, or pinned host memory. Figures are in bytes unless noted otherwise.
 * Counters count since hd_open. They are read one by one, not as a snapshot. Figures that do not
 * apply (for example `waits` of pinned memory) stay 0. */
typedef struct hd_memory_stats {
    size_t size; /* set by the caller to sizeof(hd_memory_stats) */
    uint64_t limit_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* physical memory held */
    uint64_t live_bytes;                          /* in buffers that are not freed, as requested */
    uint64_t live_count;
    /* taken from the arena: live, rounded up, and in magazines */
    uint64_t taken_bytes, taken_peak_bytes;
    uint64_t cached_bytes;  /* in magazines of threads */
    uint64_t waiting_bytes; /* free, but work of some lane still uses it */
    /* Freed, but in a hold, or with guards that memory_debug has yet to check. */
    uint64_t held_bytes;
    uint64_t allocations, frees, failures;
    /* Allocations by source, in the order of the fields:
     *   - a magazine
     *   - the arena, memory that the same lane freed
     *   - the arena, memory whose work is finished
     *   - the arena, memory that another lane still uses (with a wait in the lane)
     *   - the arena, memory never used before or mapped for the allocation
     *
     * Sum: allocations. */
    uint64_t from_magazine, from_same_lane, from_finished, from_waited, from_fresh;
    uint64_t frees_elsewhere; /* frees by another thread than the one that allocated */
    /* Physical memory: driver calls, and bytes mapped in all. Of these, bytes moved from another
     * place, and bytes returned. ahead_bytes counts the mapped bytes that were mapped ahead of
     * need. */
    uint64_t driver_calls;
    /* reserved_bytes: mapped less moved less returned */
    uint64_t mapped_bytes, moved_bytes, returned_bytes;
    uint64_t ahead_bytes;
    /* Fallback steps before MEMORY: magazines of all threads drained, waits for work in flight,
     * callbacks. */
    uint64_t drains, waits, wait_ns;
    uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    uint64_t longest_pause_ns; /* the longest allocation, all its steps included */
    /* Option memory_debug: calls of hd_free on a handle freed before. If another buffer took its
     * place, they count for the device of that buffer. */
    uint64_t double_frees;
    uint64_t overruns; /* option memory_debug: guard bytes found overwritten */
    /* The program's own memory that is imported (heddle/import.h). It counts in no other figure,
     * but reserved_bytes includes memory that hd_import_host pins. */
    uint64_t imported_bytes, imported_count;
} hd_memory_stats;

/* Returns the figures of a device; HD_DEVICE_HOST: of pinned memory. Errors: ARGUMENT, HANDLE,
 * NO_DEVICE. */
HD_API hd_status hd_memory_get_stats(hd_runtime *runtime, int device, hd_memory_stats *out);

/* Memory that magazines hold for one lane. */
typedef struct hd_lane_memory {
    int lane;              /* hd_lane_number */
    uint64_t cached_bytes; /* in magazines of all threads, for this lane */
    uint64_t cached_count;
} hd_lane_memory;

/* Lists the memory that magazines hold, for each lane of a device with such memory (none for
 * HD_DEVICE_HOST). Writes at most `room` entries. *count is how many there are. Errors: ARGUMENT,
 * HANDLE, NO_DEVICE. */
HD_API hd_status hd_memory_get_lanes(hd_runtime *runtime, int device, hd_lane_memory *out, size_t room, size_t *count);

/* The format of a report: for people, or for programs. */
typedef enum hd_report_format { HD_REPORT_TEXT = 0, HD_REPORT_JSON = 1 } hd_report_format;

/* Writes the figures of all devices, with the largest holders by label (unlabelled ones by call
 * site), as `heddle info --memory` prints them. Also names the claims that are not ended
 * (heddle/claim.h). Writes at most `room` bytes, with a zero at the end; *needed (may be NULL) is
 * the whole size, that zero included. If the option `stats` asks for it, hd_close writes the same
 * report, with leaks. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_report(hd_runtime *runtime, hd_report_format format, char *out, size_t room, size_t *needed);

/* Writes such a report of the runtimes that another process has open; pid 0: all processes of this
 * user. The figures are at most some hundred milliseconds old. With many buffers, the holders are
 * at most some seconds old. With placement=inline no thread renews the figures. Then they are as
 * old as the program's last allocation that no magazine served. The other process does nothing for
 * the report, and may end meanwhile. HD_REPORT_JSON writes one object with an array "programs",
 * whose elements are those of hd_memory_report.
 * Errors: ARGUMENT, NOT_FOUND (there is no such process, or it has no runtime open; not for pid 0),
 * SYSTEM (the process is another user's, or this one has no descriptor left to look),
 * HOST_MEMORY. */
HD_API hd_status hd_memory_report_of(int pid, hd_report_format format, char *out, size_t room, size_t *needed);

/* ---- finding mistakes ------------------------------------------------------------------------ */

/* The option memory_debug=on looks for mistakes in how the program uses memory, at the cost of
 * speed:
 *   - Device buffers lie between 256 guard bytes on each side. A fresh buffer is filled with
 *     0x7ff7fff7, which is not a number in any floating format, a freed one with 0xdddddddd.
 *     hd_free waits (option transfer_timeout) for the work that uses the buffer and checks the
 *     guards: bytes that changed are an overrun. (Behind a size that is no multiple of 4, up to 3
 *     bytes of the guard look like fresh content.) While a claim is open (heddle/claim.h), hd_free
 *     does not wait for unfinished work, which may be behind it. Then a thread of Heddle (also with
 *     placement=inline) or hd_close checks the guards once nothing uses the buffer any more. The
 *     same happens if the time limit passes. Until then the memory is held (held_bytes). If a claim
 *     on the memory is never ended, its guards are not checked.
 *   - hd_free of a handle that was freed before, which otherwise does nothing, is a double free.
 *   - A call on a freed buffer, which fails with HANDLE always, names that buffer.
 *   - Buffers that are not freed at hd_close are leaks. Afterwards hd_message() gives their number,
 *     and the report at hd_close lists them.
 *
 * Each finding becomes the hd_message() of the thread that finds it, counts in hd_memory_stats, and
 * stands in reports. The callback of hd_memory_on_finding gets each of them. memory_debug=report
 * also writes a line for each (the first thousand), and a summary at hd_close. They go to stderr or
 * to the file of the option memory_debug_file. Without memory_debug there are no findings. */

/* The kind of a mistake that memory_debug found. */
typedef enum hd_finding_kind {
    /* Bytes in front of a buffer or behind it were changed; found at its hd_free, or later. */
    HD_FINDING_OVERRUN = 1,
    HD_FINDING_DOUBLE_FREE = 2, /* hd_free of a buffer that was freed before */
    /* A call on a buffer that was freed before; the call failed with HANDLE. */
    HD_FINDING_USE_AFTER_FREE = 3,
    HD_FINDING_LEAK = 4 /* buffers of one label and call site that hd_close found not freed */
} hd_finding_kind;

/* A mistake that memory_debug found. Facts of the buffer that are lost, since another buffer took
 * its place, are 0, NULL or "". */
typedef struct hd_finding {
    size_t size; /* sizeof(hd_finding) */
    hd_finding_kind kind;
    int device;                 /* HD_DEVICE_HOST: pinned */
    uint64_t number;            /* 1, 2, ...: numbers the findings of the runtime in order */
    uint64_t bytes;             /* as requested; of a leak: of all these buffers */
    uint64_t count;             /* buffers: 1, or how many leaked */
    char label[HD_LABEL_BYTES]; /* "" without */
    const void *call_site;      /* the call of hd_alloc...: an address in the program's code */
    const void *found_at;       /* of a double free: the call of hd_free */
    char message[512];          /* one line, with all known facts */
} hd_finding;

/* Receives a finding.
 *   - Runs on the thread whose call found it, within that call. For leaks that call is hd_close.
 *     For an overrun that is found after hd_free, it runs on a thread of Heddle.
 *   - The thread holds no lock that other calls wait for, except that of hd_memory_on_finding.
 *   - It may call everything except hd_memory_on_finding, hd_close and hd_device_restart. Within
 *     hd_close it may call nothing of that runtime.
 *   - Findings of its own calls are kept and written, but cause no callback. They do not change the
 *     thread's hd_message().
 *   - Several threads may call it at the same time, so numbers may arrive out of order. Those of
 *     one thread arrive in order.
 *   - `finding` belongs to the library and is valid until the callback returns. */
typedef void (*hd_finding_callback)(void *context, const hd_finding *finding);

/* Installs the runtime's callback; NULL removes it. Returns once no call of the previous callback
 * is under way. Without the option memory_debug it is never called. Errors: HANDLE, ARGUMENT
 * (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_finding(hd_runtime *runtime, hd_finding_callback callback, void *context);

HD_END_DECLS
#endif
