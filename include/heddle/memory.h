/* heddle/memory.h - limits, reclaim, statistics and safety of memory.
 *
 * Device memory comes from a pool per device. Blocks up to 1 MiB come from magazines of the calling thread, and go back there.
 * There is one for each lane and size class. The device's arena serves larger blocks, and those that a magazine has no room for.
 * Size classes are multiples of 256 bytes up to 2 KiB, and eight per doubling up to 1 MiB. So a block wastes at most 255 bytes
 * or 12.5 %. Larger blocks are exact to 256 bytes. Beside that, a granule of 2 MiB may be partly used.
 *
 * Limits. The option memory_limit (HEDDLE_MEMORY_LIMIT) bounds the physical memory that a runtime holds on each device. It is
 * given in bytes or as a share of the device ("12G", "80%"). The option pinned_limit bounds pinned host memory. Neither is ever exceeded.
 * After hd_device_restart, what other devices still have mapped of the lost device's memory is not counted.
 *
 * An allocation fails with MEMORY only after it has tried, in this order:
 *   - the thread's own magazine
 *   - memory whose work is finished, or that the same lane freed
 *   - memory that another lane is still using, with a wait in the lane
 *   - idle granules, moved to where they are needed
 *   - more physical memory, up to the limit
 *   - the magazines of all threads
 *   - waiting for the work in flight
 *   - the program's reclaim callback
 *   - waiting for other threads, as long as one of them frees something, or work is finished, within the option memory_timeout
 *     (in all no longer than 20 times that)
 * It does not wait in vain: for more than the limit, or where neither work nor another thread can free memory.
 * The latter is so where nothing is unfinished and no other thread uses the library.
 * A thread uses the library from its first call with a runtime or a handle, hd_open among them, until it ends.
 * A thread whose first call would be hd_free does not count before that call. Let such a thread make a call when it starts, for example
 * hd_lane_get_default. An allocation of pinned memory at its limit waits in the same way. The message gives the reason and what can be
 * done, and lists the largest holders by label.
 */
#ifndef HEDDLE_MEMORY_H
#define HEDDLE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

#define HD_DEVICE_HOST (-1) /* in place of a device: pinned host memory */
#define HD_LABEL_BYTES 32   /* a label's room, its end included; longer ones are cut, between characters */

/* ---- reclaim ---------------------------------------------------------------------------------------------------- */

typedef enum hd_reclaim_reason {
    HD_RECLAIM_EARLY = 1, /* memory is getting scarce: a good moment, and nothing fails if nothing is done */
    HD_RECLAIM_LIMIT = 2  /* an allocation fails unless something is freed */
} hd_reclaim_reason;

typedef struct hd_reclaim {
    size_t size; /* sizeof(hd_reclaim) */
    int device;
    hd_reclaim_reason reason;
    unsigned attempt;        /* 0, 1, ...: of this allocation */
    size_t wanted;           /* bytes of the allocation that asks */
    uint64_t live_bytes;     /* of the device's memory, in blocks that are not freed */
    uint64_t reserved_bytes; /* physical memory held */
    uint64_t limit_bytes;    /* most that may be held now: the limit, or what the device has */
} hd_reclaim;

/* Frees what the program can spare (hd_free) and returns whether it freed anything. For HD_RECLAIM_LIMIT true means: try again.
 *   - Runs on the thread that allocates, or that is about to block in hd_wait or hd_lane_wait.
 *   - The thread holds no lock that other calls wait for, except that of hd_memory_on_reclaim.
 *   - It may call everything except hd_memory_on_reclaim, hd_close and hd_device_restart.
 *   - What it allocates itself does not lead to another call on the same thread.
 *   - Several threads may call it at the same time.
 *   - A wait with a time limit ends no earlier than a callback that it has called. */
typedef bool (*hd_reclaim_callback)(void *context, const hd_reclaim *reclaim);

/* Installs the runtime's callback; NULL removes it. Returns when no call of the callback before is under way any more.
 *
 * Early reclaim (option memory_reclaim, a share of time in percent, 0: off): the callback runs with HD_RECLAIM_EARLY from a
 * pressure of 0.75 on. Where the thread is about to block anyway, it runs from 0.50 on. Pressure is live bytes over the most that
 * may be held. Calls may take the share of time memory_reclaim. The share is doubled for each of these conditions:
 *   - the last call freed more than a tenth of the limit
 *   - the thread is about to block
 *   - the pressure is above 0.90
 *   - the pressure is above 0.95
 * The rule is that of CUDA.jl (CUDACore/src/memory.jl, maybe_collect).
 * Errors: HANDLE, ARGUMENT (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_reclaim(hd_runtime *runtime, hd_reclaim_callback callback, void *context);

/* Gives physical memory that nothing uses back to the driver, threads' magazines first, until at most keep_bytes are held idle.
 * Asks the driver; does not wait for work: what is freed but still in use stays. device: HD_DEVICE_HOST for pinned memory.
 * *freed (may be NULL): bytes given back. Errors: HANDLE, NO_DEVICE, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_memory_trim(hd_runtime *runtime, int device, size_t keep_bytes, size_t *freed);

/* ---- labels and holders ----------------------------------------------------------------------------------------- */

/* Names a buffer in messages, reports and leak lists. The label is copied; NULL removes it. Errors: HANDLE, DEVICE_LOST. */
HD_API hd_status hd_buffer_set_label(hd_buffer *buffer, const char *label);

/* One live buffer. */
typedef struct hd_memory_block {
    size_t size;                /* sizeof(hd_memory_block) */
    int device;                 /* HD_DEVICE_HOST: pinned */
    uint64_t bytes;             /* as asked for */
    char label[HD_LABEL_BYTES]; /* "" without */
    const void *call_site;      /* where hd_alloc... was called: an address in the program's code */
    bool unified;
    bool held;     /* freed, but kept: by an hd_hold, or until memory_debug has looked at its guards */
    bool lost;     /* with its device: there is nothing behind it any more, hd_free it */
    bool imported; /* the memory is the program's own (heddle/import.h) */
} hd_memory_block;

/* Calls `visit` for every buffer of the program that is not freed, or is held, until it returns false. The list is a copy made at the
 * start, so `visit` may call anything. Other threads' allocations wait while it is made.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_each(hd_runtime *runtime, bool (*visit)(void *context, const hd_memory_block *block),
                                void *context);

/* ---- keeping memory where it is --------------------------------------------------------------------------------- */

/* A graph that the program captured itself with hd_buffer_address uses memory by its address, longer than a handle lives. A
 * hold keeps that memory until the hold is destroyed. After hd_free the handle is stale as ever. But the memory is not allocated
 * again, not moved and not given back. */
typedef struct hd_hold hd_hold;

/* An empty hold, owned by the caller: hd_hold_destroy, or hd_close. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_hold_create(hd_runtime *runtime, hd_hold **out);

/* Adds the memory of a buffer; twice is as good as once. Errors: HANDLE, DEVICE_LOST, HOST_MEMORY. */
HD_API hd_status hd_hold_add(hd_hold *hold, hd_buffer *buffer);

/* Lets go. Memory whose buffer was freed meanwhile is free now: no work that uses it by address may be under way. NULL:
 * nothing happens. Does not block. Errors: HANDLE (it was destroyed before). */
HD_API hd_status hd_hold_destroy(hd_hold *hold);

/* ---- statistics ------------------------------------------------------------------------------------------------- */

/* Memory of one device, or pinned host memory. Figures are in bytes unless noted otherwise. Counters count since hd_open. They are
 * read one by one, not as a whole. What is 0 by its nature (for example peers of pinned memory) stays 0. */
typedef struct hd_memory_stats {
    size_t size; /* set by the caller to sizeof(hd_memory_stats) */
    uint64_t limit_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* physical memory held */
    uint64_t live_bytes;                          /* in buffers that are not freed, as asked for */
    uint64_t live_count;
    uint64_t taken_bytes, taken_peak_bytes; /* taken from the arena: live, rounded up, and in magazines */
    uint64_t cached_bytes;                  /* in magazines of threads */
    uint64_t waiting_bytes;                 /* free, but work of some lane still uses it */
    uint64_t held_bytes;                    /* freed, but in a hold, or with guards that memory_debug still looks at */
    uint64_t allocations, frees, failures;
    /* Where allocations came from, in the order of the fields:
     *   - a magazine
     *   - the arena, freed by the same lane
     *   - the arena, finished
     *   - the arena, still in use by another lane (with a wait in the lane)
     *   - the arena, never used before or mapped for it
     * Sum: allocations. */
    uint64_t from_magazine, from_same_lane, from_finished, from_waited, from_fresh;
    uint64_t frees_elsewhere; /* by another thread than the one that allocated */
    /* Physical memory: requests to the driver, then bytes mapped in all. Of these, bytes moved from another place, and bytes given
     * back. What is held is mapped - moved - returned. The last is how much of what was mapped came ahead of need. */
    uint64_t driver_calls;
    uint64_t mapped_bytes, moved_bytes, returned_bytes; /* mapped less moved less returned is reserved */
    uint64_t ahead_bytes;
    /* The rungs before MEMORY: magazines of all threads drained, waits for work in flight, callbacks. */
    uint64_t drains, waits, wait_ns;
    uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    uint64_t longest_pause_ns; /* of one allocation, all that it did included */
    uint64_t
        double_frees; /* option memory_debug: hd_free of a handle freed before (where its place was taken meanwhile: by what) */
    uint64_t overruns; /* option memory_debug: guard bytes found overwritten */
    /* Memory of the program's own that is imported (heddle/import.h). It counts in no other figure, but what hd_import_host
     * pins is in reserved_bytes. */
    uint64_t imported_bytes, imported_count;
} hd_memory_stats;

/* device: HD_DEVICE_HOST for pinned memory. Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_memory_get_stats(hd_runtime *runtime, int device, hd_memory_stats *out);

typedef struct hd_lane_memory {
    int lane;              /* hd_lane_number */
    uint64_t cached_bytes; /* in magazines of all threads, for this lane */
    uint64_t cached_count;
} hd_lane_memory;

/* What magazines hold, for each lane of a device that they hold anything for (none for HD_DEVICE_HOST). Writes at most `room` entries.
 * *count is how many there are. Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_memory_get_lanes(hd_runtime *runtime, int device, hd_lane_memory *out, size_t room, size_t *count);

typedef enum hd_report_format { HD_REPORT_TEXT = 0, HD_REPORT_JSON = 1 } hd_report_format;

/* All of the above for all devices, with the largest holders by label (without: by call site), as `heddle info --memory` prints it.
 * It names the claims that are not ended (heddle/claim.h), too.
 * Writes at most `room` bytes, with a zero at the end; *needed (may be NULL) is the whole size, that zero included. The same is written
 * when the runtime is closed, with what leaked, where the option `stats` asks for it. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_memory_report(hd_runtime *runtime, hd_report_format format, char *out, size_t room, size_t *needed);

/* The same of the runtimes that another process has open; pid 0: all processes of this user. Their figures are at most some hundred
 * milliseconds old. With many buffers, the holders are at most some seconds old. With placement=inline no thread renews the figures.
 * Then they are as old as the program's last allocation that no magazine served. The other process does nothing for it, and may end
 * meanwhile. With HD_REPORT_JSON one object with an array "programs", whose elements are what hd_memory_report writes.
 * Errors: ARGUMENT, NOT_FOUND (there is no such process, or it has no runtime open; not for pid 0), SYSTEM (the process is another
 * user's, or this one has no descriptor left to look), HOST_MEMORY. */
HD_API hd_status hd_memory_report_of(int pid, hd_report_format format, char *out, size_t room, size_t *needed);

/* ---- finding mistakes ------------------------------------------------------------------------------------------- */

/* The option memory_debug=on looks for mistakes in how the program uses memory, at the cost of speed:
 *   - Device buffers lie between 256 guard bytes on each side. A fresh one is full of 0x7ff7fff7, which is not a number in any
 *     floating format, a freed one of 0xdddddddd. hd_free waits (option transfer_timeout) for the work that uses the buffer and
 *     looks at the guards: bytes that changed are an overrun. (At the back of a size that is no multiple of 4, up to 3 bytes
 *     of the guard look like fresh content.)
 *     While a claim is open (heddle/claim.h), hd_free does not wait for unfinished work, which may be behind it. Then the guards
 *     are looked at once nothing uses the buffer any more, by a thread of Heddle's (also with placement=inline), or by hd_close.
 *     That is also so where the time limit passes. Until then the memory is held (held_bytes). What a claim uses that is never
 *     ended is not looked at.
 *   - hd_free of a handle that was freed before, which otherwise does nothing, is a double free.
 *   - A call on a freed buffer, which fails with HANDLE always, names that buffer.
 *   - Buffers that are not freed at hd_close are leaks. hd_message() has their number after it, and the report at hd_close lists them.
 * Findings become the hd_message() of the thread that looks, are counted in hd_memory_stats, and stand in reports. The callback of
 * hd_memory_on_finding gets each of them. memory_debug=report also writes a line for each (the first thousand), and a summary at
 * hd_close. They go to stderr or to the file of the option memory_debug_file. Without memory_debug there are no findings. */

typedef enum hd_finding_kind {
    HD_FINDING_OVERRUN = 1, /* bytes in front of a buffer or behind it were changed; found at its hd_free, or later */
    HD_FINDING_DOUBLE_FREE = 2,    /* hd_free of a buffer that was freed before */
    HD_FINDING_USE_AFTER_FREE = 3, /* a call on a buffer that was freed before; the call failed with HANDLE */
    HD_FINDING_LEAK = 4            /* buffers of one label and call site that hd_close found not freed */
} hd_finding_kind;

/* What of the buffer is not known any more, since its place was taken by another one, is 0, NULL or "". */
typedef struct hd_finding {
    size_t size; /* sizeof(hd_finding) */
    hd_finding_kind kind;
    int device;                 /* HD_DEVICE_HOST: pinned */
    uint64_t number;            /* 1, 2, ...: of the runtime, as they were found */
    uint64_t bytes;             /* as asked for; of a leak: of all these buffers */
    uint64_t count;             /* buffers: 1, or how many leaked */
    char label[HD_LABEL_BYTES]; /* "" without */
    const void *call_site;      /* where hd_alloc... was called: an address in the program's code */
    const void *found_at;       /* of a double free: where hd_free was called */
    char message[512];          /* one line, with all that is known */
} hd_finding;

/* Gets a finding.
 *   - Runs on the thread whose call found it, within that call. For leaks that call is hd_close. An overrun that is found after
 *     hd_free is told on a thread of Heddle's.
 *   - The thread holds no lock that other calls wait for, except that of hd_memory_on_finding.
 *   - It may call everything except hd_memory_on_finding, hd_close and hd_device_restart. Within hd_close it may call nothing of
 *     that runtime.
 *   - What its own calls find is kept and written, but leads to no callback. They leave the thread's hd_message() alone.
 *   - Several threads may call it at the same time, so numbers may arrive out of order. Those of one thread arrive in order.
 *   - `finding` belongs to the library and is good until the callback returns. */
typedef void (*hd_finding_callback)(void *context, const hd_finding *finding);

/* Installs the runtime's callback; NULL removes it. Returns when no call of the callback before is under way any more. Without the option
 * memory_debug nothing is ever found, and so it is never called. Errors: HANDLE, ARGUMENT (called from a callback), HOST_MEMORY. */
HD_API hd_status hd_memory_on_finding(hd_runtime *runtime, hd_finding_callback callback, void *context);

HD_END_DECLS
#endif
