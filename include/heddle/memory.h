/* heddle/memory.h - limits, reclaim, statistics and safety of memory.
 *
 * Each device has a pool of memory, its arena. A block is the memory of one buffer. When a thread
 * frees a block of up to 1 MiB, it keeps the block in a magazine. A thread has one magazine for
 * each lane and size class (see below). For each lane, a thread also keeps one larger block. If one
 * of these blocks fits, an allocation of this thread takes it. The arena serves all other
 * allocations, and takes back the blocks that a thread does not keep.
 *
 * Heddle rounds the size of a block up. Up to 2 KiB, the size classes are the multiples of 256
 * bytes. From 2 KiB to 1 MiB, there are eight classes per doubling of the size. A block therefore
 * wastes at most 255 bytes or 12.5 %. The sizes of larger blocks are multiples of 256 bytes. The
 * driver provides physical memory in granules of 2 MiB, or of 4 MiB if the arena may hold at least
 * 32 GiB. Blocks can use a part of a granule.
 *
 * The option memory_limit bounds the physical memory that a runtime holds on each device. Its value
 * is a number of bytes ("12G") or a share of the device's memory ("80%"). The option pinned_limit
 * bounds pinned host memory. A runtime never exceeds these limits. After hd_device_restart, the
 * memory of the device from before the loss does not count, even while other devices still map it.
 *
 * Before an allocation fails with MEMORY, it tries these steps in this order:
 *   - the thread's own magazine
 *   - free memory that no unfinished work uses, or that the same lane freed
 *   - free memory that work of another lane still uses; the lane then waits for that work
 *   - the larger blocks that threads keep, and all magazines if these hold more than 1/128 of the
 *     mapped memory
 *   - idle granules, which Heddle moves to the place that needs them
 *   - more physical memory, up to the limit
 *   - the magazines of all threads
 *   - waiting for submitted work
 *   - the program's reclaim callback
 *   - waiting until other threads free memory
 *
 * If nothing was freed or finished for the time of the option memory_timeout, the allocation stops
 * waiting and fails. The steps "waiting for submitted work" and "waiting until other threads free
 * memory" together take at most 20 times memory_timeout. Time in the callback does not count.
 *
 * If an allocation wants more than the limit, it does not wait at all. If no work is unfinished and
 * no other thread uses the library, nothing can free memory, so the allocation does not wait
 * either. Work that waits for a claim (heddle/claim.h) is unfinished. An open claim itself does not
 * count as unfinished work, unless a thread of the library runs the program's function for it. If a
 * claim uses memory that the program freed, the message of the failure names the claim and the
 * number of bytes.
 *
 * The waiting allocations of one device form a line. The waiting allocations of pinned memory form
 * another line. Memory that becomes free is reserved for the first allocation in the line, which
 * takes the memory once enough is free. Later allocations may use only spare bytes. These are bytes
 * that were free when the first allocation began to wait, but were too few for it. Together, the
 * spare bytes and the bytes that the first allocation wants must not exceed the limit. So a thread
 * that needs a few bytes before it can free memory can get spare bytes. After the time of
 * memory_timeout, later allocations get no memory until the first one succeeds or fails. Therefore
 * threads that free and allocate in turns cannot keep memory away from a waiting thread.
 * Allocations of a reclaim callback wait in no line.
 *
 * In these rules, a thread uses the library from its first call with a runtime or a handle (hd_open
 * included) until the thread ends. If the first call of a thread will be hd_free, the thread does
 * not count before this call. Let such a thread make another call when it starts, for example
 * hd_lane_get_default. At pinned_limit, an allocation of pinned memory waits by the same rules. The
 * message of a failed allocation gives the reason and a remedy, and lists the labels of the buffers
 * that hold the most memory.
 *
 * Threads: any.
 * Blocking: hd_memory_trim waits for the driver or the worker process. hd_memory_on_reclaim and
 * hd_memory_on_finding wait for running callbacks. hd_memory_get_stats and hd_memory_report wait
 * while another thread maps memory. With the option memory_debug, hd_hold_destroy may wait for
 * work. hd_memory_report_of reads files of the system. All other calls return at once.
 */
#ifndef HEDDLE_MEMORY_H
#define HEDDLE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

#define HD_DEVICE_HOST (-1) /* stands for pinned host memory where a call takes a device */
/* size of a label in bytes, terminating zero included; Heddle cuts longer labels between two
 * characters */
#define HD_LABEL_BYTES 32

/* ---- reclaim --------------------------------------------------------------------------------- */

/* Why the callback of hd_memory_on_reclaim runs. */
typedef enum hd_reclaim_reason {
    /* Memory is getting scarce. If the callback frees nothing, no allocation fails yet. */
    HD_RECLAIM_EARLY = 1,
    HD_RECLAIM_LIMIT = 2 /* an allocation fails unless the callback frees memory */
} hd_reclaim_reason;

/* The facts that the callback of hd_memory_on_reclaim gets. */
typedef struct hd_reclaim {
    size_t size; /* sizeof(hd_reclaim) */
    int device;
    hd_reclaim_reason reason;
    unsigned attempt;        /* 0, 1, ...: counts the callbacks of this allocation */
    size_t wanted;           /* bytes that the allocation wants */
    uint64_t live_bytes;     /* bytes of the device in blocks that are not freed */
    uint64_t reserved_bytes; /* physical memory that the runtime holds on the device */
    uint64_t limit_bytes;    /* most for reserved_bytes now: the limit, or the device's memory */
} hd_reclaim;

/* The program's callback for hd_memory_on_reclaim. The callback frees memory that the program can
 * spare (hd_free), and returns true if it freed anything. If the callback returns true for
 * HD_RECLAIM_LIMIT, the allocation tries again.
 *   - The callback runs on a thread that allocates, or that is about to block in hd_wait or
 *     hd_lane_wait.
 *   - While the callback runs, the thread holds no lock that other calls wait for, except the lock
 *     of hd_memory_on_reclaim.
 *   - The callback may call everything except hd_memory_on_reclaim, hd_close and hd_device_restart.
 *   - Allocations in the callback cause no further callback on the same thread.
 *   - Several threads may run the callback at the same time.
 *   - If hd_wait or hd_lane_wait runs the callback, the wait returns only when the callback has
 *     returned, even if the time limit passed. */
typedef bool (*hd_reclaim_callback)(void *context, const hd_reclaim *reclaim);

/* Installs the runtime's callback; NULL removes it. The call returns when no thread runs the
 * previous callback any more.
 *
 * Heddle also calls the callback early, with HD_RECLAIM_EARLY, before memory runs out. The pressure
 * is live_bytes divided by limit_bytes. Early calls begin at a pressure of 0.75, or of 0.50 if the
 * thread is about to block anyway. The option memory_reclaim is the share of time that early calls
 * may take, in percent (0: no early calls). Each of these conditions doubles this share, up to 80
 * %:
 *   - the last call freed more than a tenth of the limit
 *   - the thread is about to block
 *   - the pressure is above 0.90
 *   - the pressure is above 0.95
 *
 * This rule comes from CUDA.jl (CUDACore/src/memory.jl, maybe_collect).
 * Errors: HANDLE, ARGUMENT (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_reclaim(hd_runtime *runtime, hd_reclaim_callback callback, void *context);

/* Returns unused physical memory to the driver until at most keep_bytes bytes of unused memory are
 * left. The call first empties the magazines of all threads. `device` may be HD_DEVICE_HOST for
 * pinned memory. *freed (may be NULL) is the number of bytes returned. The call waits for the
 * driver, but not for work: it does not return freed memory that work still uses. The driver of a
 * GPU unpins memory only when no kernel runs. So the call returns pinned memory only if the driver
 * need not wait long. That holds if all devices are idle, or if every lane with work kept finishing
 * operations during the last second. Otherwise pinned memory stays until a later call, or until
 * Heddle returns the memory by itself (option memory_idle). Errors: HANDLE, NO_DEVICE, DEVICE_LOST,
 * DRIVER. */
HD_API hd_status hd_memory_trim(hd_runtime *runtime, int device, size_t keep_bytes, size_t *freed);

/* ---- labels and holders ---------------------------------------------------------------------- */

/* Names a buffer in messages, reports and lists of leaks. The call copies the label. NULL removes
 * the label. Errors: HANDLE, DEVICE_LOST. */
HD_API hd_status hd_buffer_set_label(hd_buffer *buffer, const char *label);

/* One live buffer. */
typedef struct hd_memory_block {
    size_t size;                /* sizeof(hd_memory_block) */
    int device;                 /* HD_DEVICE_HOST: pinned */
    uint64_t bytes;             /* requested size */
    char label[HD_LABEL_BYTES]; /* "": none */
    const void *call_site;      /* address in the program's code that called hd_alloc... */
    bool unified;
    /* The program freed the buffer, but a hold keeps it, or memory_debug did not check its guards
     * yet. */
    bool held;
    bool lost;     /* the content was lost together with the device: free the buffer */
    bool imported; /* the memory is the program's own (heddle/import.h) */
} hd_memory_block;

/* Calls `visit` for every live or held buffer of the program, until `visit` returns false. The call
 * first copies the list of buffers, so `visit` may make any call except hd_close of this
 * runtime (HANDLE). Allocations of other threads wait during this copy.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_each(hd_runtime *runtime, bool (*visit)(void *context, const hd_memory_block *block),
                                void *context);

/* ---- keeping memory where it is -------------------------------------------------------------- */

/* A hold keeps the memory of its buffers at its address, until the program destroys the hold. Use a
 * hold if a CUDA graph of the program, or other work, uses an address for a long time. hd_free ends
 * the handle of a held buffer, but Heddle does not reuse, move or release the buffer's memory. */
typedef struct hd_hold hd_hold;

/* Makes an empty hold. The caller owns the hold, and destroys it with hd_hold_destroy. hd_close
 * destroys the holds that are left. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_hold_create(hd_runtime *runtime, hd_hold **out);

/* Adds the memory of a buffer to a hold. Adding a buffer twice is the same as adding it once.
 * Errors: HANDLE, DEVICE_LOST, HOST_MEMORY, UNSUPPORTED (a variable of a module). */
HD_API hd_status hd_hold_add(hd_hold *hold, hd_buffer *buffer);

/* Destroys a hold. If the program freed a buffer in the hold, the memory of that buffer becomes
 * free. Before the call, all work that uses the address of this memory must be finished. If `hold`
 * is NULL, nothing happens. The call blocks only with the option memory_debug, as hd_free does.
 * Errors: HANDLE (the hold was destroyed before). */
HD_API hd_status hd_hold_destroy(hd_hold *hold);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Figures of the memory of one device, or of pinned host memory. Counters count since hd_open. The
 * library reads the figures one after the other, so they may not match exactly. Figures that do not
 * apply (for example `waits` of pinned memory) stay 0. */
typedef struct hd_memory_stats {
    size_t size; /* set by the caller to sizeof(hd_memory_stats) */
    uint64_t limit_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* physical memory that the runtime holds */
    uint64_t live_bytes;                          /* requested bytes of live buffers */
    uint64_t live_count;
    /* bytes in live blocks (rounded up), in magazines, and in dedicated pieces until Heddle gives
     * them back */
    uint64_t taken_bytes, taken_peak_bytes;
    uint64_t cached_bytes;  /* in magazines of threads */
    uint64_t waiting_bytes; /* free, but work of some lane still uses it */
    /* Bytes that the program freed, but that a hold keeps, or whose guards memory_debug did not
     * check yet. */
    uint64_t held_bytes;
    uint64_t allocations, frees, failures;
    /* Allocations by the source of their memory, in the order of the fields:
     *   - a magazine
     *   - memory of the arena that the same lane freed
     *   - memory of the arena whose work is finished
     *   - memory of the arena that work of another lane still uses (the lane waits for that work)
     *   - memory that was never used before, or mapped for the allocation, such as a dedicated
     *     piece (HD_ALLOC_DEDICATED)
     *
     * Their sum is `allocations`. */
    uint64_t from_magazine, from_same_lane, from_finished, from_waited, from_fresh;
    uint64_t frees_elsewhere; /* frees by a thread that did not allocate the block */
    uint64_t driver_calls;    /* calls that map, move or return physical memory */
    /* Bytes of physical memory since hd_open: mapped, moved to another place (or divided in its
     * place, for a smaller block), and returned to the driver. Moved memory counts as mapped once
     * more, and memory that was lost with its device counts as returned. reserved_bytes is
     * mapped_bytes minus moved_bytes and returned_bytes. */
    uint64_t mapped_bytes, moved_bytes, returned_bytes;
    uint64_t ahead_bytes; /* part of mapped_bytes that was mapped before it was needed */
    /* `drains` counts how often allocations emptied all magazines. `waits` counts how often
     * allocations waited at the limit, and `wait_ns` is the sum of these waits. */
    uint64_t drains, waits, wait_ns;
    /* calls of the reclaim callback: early ones, and those at the limit */
    uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    uint64_t longest_pause_ns; /* time of the longest allocation, with all its steps */
    /* Option memory_debug: calls of hd_free on a handle that was freed before. If a new buffer took
     * the place of the freed buffer, the call counts for the device of the new buffer. */
    uint64_t double_frees;
    uint64_t overruns; /* option memory_debug: guard bytes found overwritten */
    /* Imported memory (heddle/import.h). reserved_bytes, mapped_bytes and returned_bytes
     * include the imported memory that hd_import_host pinned. No other figure includes imported
     * memory. */
    uint64_t imported_bytes, imported_count;
} hd_memory_stats;

/* Returns the figures of a device, or of pinned memory (HD_DEVICE_HOST). Errors: ARGUMENT, HANDLE,
 * NO_DEVICE. */
HD_API hd_status hd_memory_get_stats(hd_runtime *runtime, int device, hd_memory_stats *out);

/* Memory that magazines hold for one lane. */
typedef struct hd_lane_memory {
    int lane;              /* hd_lane_number */
    uint64_t cached_bytes; /* in magazines of all threads, for this lane */
    uint64_t cached_count;
} hd_lane_memory;

/* Lists the lanes of a device for which magazines hold memory, and the amount for each lane. For
 * HD_DEVICE_HOST the list is empty. The call writes at most `room` entries to `out`. *count is the
 * number of all entries.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_memory_get_lanes(hd_runtime *runtime, int device, hd_lane_memory *out, size_t room, size_t *count);

/* The format of a report: for people, or for programs. */
typedef enum hd_report_format { HD_REPORT_TEXT = 0, HD_REPORT_JSON = 1 } hd_report_format;

/* Writes a report on the memory of a runtime to `out`, as `heddle info --memory` prints it. The
 * report contains the figures of all devices and the labels whose buffers hold the most memory.
 * Buffers without a label are listed under the call that allocated them. The report also names the
 * open claims (heddle/claim.h). The call writes at most `room` bytes, terminating zero included.
 * *needed (may be NULL) is the size of the whole report, terminating zero included. With the option
 * stats, hd_close writes this report and a list of leaks. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_report(hd_runtime *runtime, hd_report_format format, char *out, size_t room, size_t *needed);

/* Writes a report as hd_memory_report does, but on the runtimes of another process. With pid 0, the
 * report covers all processes of this user. The figures are at most some hundred milliseconds old.
 * If there are many buffers, the labels may be some seconds old. If the other process uses
 * placement=inline, no thread renews its figures. The figures are then those of the moment when
 * that process last made an allocation for which no magazine contained a block. The other process
 * does nothing for the report, and may end during the call. With HD_REPORT_JSON, the report is an
 * object with an array "programs", whose elements are like the reports of hd_memory_report. Errors:
 * ARGUMENT, NOT_FOUND (there is no such process, or no runtime is open in it; not for pid 0),
 * SYSTEM (the process belongs to another user, or the calling process has no file descriptor left),
 * HOST_MEMORY. */
HD_API hd_status hd_memory_report_of(int pid, hd_report_format format, char *out, size_t room, size_t *needed);

/* ---- finding mistakes ------------------------------------------------------------------------ */

/* The option memory_debug=on looks for mistakes in how the program uses memory, at the cost of
 * speed:
 *   - Each device buffer lies between two guards of 256 bytes. Heddle fills a new buffer with
 *     0x7ff7fff7, a NaN in every floating-point format of 16 bits and more, and a freed buffer with
 *     0xdddddddd. hd_free waits (option transfer_timeout) for the work that uses the buffer, then
 *     checks the guards. Changed guard bytes are an overrun. If a buffer's size is no multiple of
 *     4, the first 1 to 3 bytes of the guard behind the buffer contain the pattern of new buffers.
 *     While a claim is open (heddle/claim.h), work may wait for the claim, so hd_free does not wait
 *     for work. In this case, and if the time limit passes, a thread of Heddle or hd_close checks
 *     the guards once nothing uses the buffer any more. Heddle keeps the memory until this check
 *     (held_bytes). If the program never ends a claim on the memory, Heddle does not check the
 *     guards. An operation on the device writes the guards and the pattern. Uses of the buffer wait
 *     for this operation. But a kernel that got only the address may run earlier, and then Heddle
 *     misses its overrun. So declare the buffer, or wait with hd_buffer_wait before you use its
 *     address.
 *   - A second hd_free of a handle is a double free. Without memory_debug, the second call only
 *     fails with HANDLE.
 *   - A call on a freed buffer fails with HANDLE, as always, and the message names the buffer.
 *   - Buffers that the program did not free before hd_close are leaks. After hd_close, hd_message()
 *     gives their number, and the report of hd_close lists them.
 *
 * Each such mistake is a finding. The finding becomes the hd_message() of the thread that finds the
 * mistake. hd_memory_stats counts overruns and double frees, and reports include them. The callback
 * of hd_memory_on_finding gets every finding. With memory_debug=report, Heddle also writes a line
 * for each of the first thousand findings, and a summary at hd_close. These lines go to stderr, or
 * to the file of the option memory_debug_file. Without memory_debug there are no findings. */

/* The kind of a mistake that memory_debug found. */
typedef enum hd_finding_kind {
    /* Bytes in front of a buffer or behind it were changed. Heddle finds the change at hd_free or
     * later. */
    HD_FINDING_OVERRUN = 1,
    HD_FINDING_DOUBLE_FREE = 2, /* hd_free of a buffer that was freed before */
    /* A call on a buffer that was freed before. The call failed with HANDLE. */
    HD_FINDING_USE_AFTER_FREE = 3,
    HD_FINDING_LEAK = 4 /* buffers of one label and call site, not freed before hd_close */
} hd_finding_kind;

/* A mistake that memory_debug found. Facts about a freed buffer are unknown once another buffer has
 * taken its place. Unknown facts are 0, NULL or "". */
typedef struct hd_finding {
    size_t size; /* sizeof(hd_finding) */
    hd_finding_kind kind;
    int device;      /* HD_DEVICE_HOST: pinned */
    uint64_t number; /* 1, 2, ...: numbers the findings of the runtime in order */
    /* requested size of the buffer; for a leak, the sum of all buffers of the finding */
    uint64_t bytes;
    uint64_t count;             /* number of buffers: 1, or more for a leak */
    char label[HD_LABEL_BYTES]; /* "": none */
    const void *call_site;      /* address in the program's code that called hd_alloc... */
    const void *found_at;       /* for a double free: the second call of hd_free */
    char message[512];          /* one line, with all known facts */
} hd_finding;

/* The program's callback for hd_memory_on_finding.
 *   - The callback runs on the thread whose call found the mistake, within that call. For leaks,
 *     the call is hd_close. For an overrun that Heddle finds after hd_free, the callback runs on a
 *     thread of Heddle or within hd_close.
 *   - While the callback runs, the thread holds no lock that other calls wait for, except the lock
 *     of hd_memory_on_finding.
 *   - The callback may call everything except hd_memory_on_finding, hd_close and hd_device_restart.
 *     Within hd_close, it must not call anything of the runtime that is being closed.
 *   - If calls in the callback lead to findings, Heddle counts and writes these findings, but does
 *     not call the callback for them. They do not change the thread's hd_message().
 *   - Several threads can run the callback at the same time, so numbers can arrive out of order.
 *     The findings of one thread arrive in order.
 *   - `finding` belongs to the library and is valid until the callback returns. */
typedef void (*hd_finding_callback)(void *context, const hd_finding *finding);

/* Installs the runtime's callback for findings; NULL removes it. The call returns when no thread
 * runs the previous callback any more. Without the option memory_debug Heddle never calls the
 * callback.
 * Errors: HANDLE, ARGUMENT (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_finding(hd_runtime *runtime, hd_finding_callback callback, void *context);

HD_END_DECLS
#endif
