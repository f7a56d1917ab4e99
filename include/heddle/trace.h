/* heddle/trace.h - traces: each submitted operation, its waits and its times, and the causes of
 * delays.
 *
 * A trace is a file about one runtime with all its devices, threads and lanes. `heddle trace FILE`
 * analyses a trace, and `heddle report FILE` makes a page that shows the trace in a browser. With
 * the option `trace` (HEDDLE_TRACE=FILE), hd_open begins a trace and hd_close ends it. A program
 * may also begin and end traces itself, one after the other. Each runtime, in any process, may
 * write a trace of its own. Two traces must not write to the same file.
 *
 * A thread of the library writes the file, some hundred times a second. If the program is killed,
 * the file lacks only the last moments. If the library cannot write to the file, for example on a
 * full disk, it counts the missing records. The call that ends the trace then fails with SYSTEM. If
 * the program ends by exit() without hd_close, exit() waits until the file is complete, at most one
 * second.
 *
 * The library keeps unwritten records in a buffer of 2 MiB for each device and each thread of the
 * program. From the 128th thread on, all threads share one buffer. The library drops records that
 * find no room in their buffer, and counts them.
 *
 * The option `trace_detail`, or the argument of hd_trace_start, selects how exact device times are:
 *
 *   - edges   the trace contains the beginning and the end of each busy stretch of a lane. Launches
 *             go to the driver as without a trace. The driver's events for these times may take
 *             0.5 % of an engine's time. Once events have taken this share, the library no longer
 *             records the end of a stretch. In its place, it records the slightly later time at
 *             which the engine noticed this end. A stretch may also end because a busy lane turns
 *             to another kind of work, or waits for another lane. For these ends, the share is
 *             10 %. Once events have taken this share, `heddle trace` estimates the times. With
 *             placement=inline, these shares do not apply.
 *   - full    the trace contains the beginning and the end of each operation. Launches go to the
 *             driver one by one, which lowers the throughput of short kernels.
 *   - cupti   the trace contains the times of `edges`, and CUPTI's times of each kernel, copy and
 *             fill on the devices. CUPTI's times include the work of other libraries in the process
 *             that drives the devices. CUPTI is a library of the CUDA toolkit (option `cupti`),
 *             which serves only one client in a process.
 *
 * If an operation is under way when the trace begins or ends, the file contains only the
 * operation's part within the trace. For a complete trace, wait for the work before hd_trace_stop.
 *
 * A program may consist of several processes, called ranks, which exchange messages. Each rank
 * writes a trace of its own. With the option `trace_rank`, the file's name contains the number of
 * the rank. A layer for messages tells the trace the place of the rank and each message. Then
 * `heddle trace` puts the files of all ranks on one clock. heddle/mpi.h does all of this.
 *
 * Threads: any.
 * Blocking: hd_trace_start and hd_trace_stop wait as their comments say. hd_trace_set_rank waits
 * for them. All other calls return at once.
 */
#ifndef HEDDLE_TRACE_H
#define HEDDLE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/lane.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* How exact the device times of a trace are. The comment at the top of this header describes each
 * value. */
typedef enum hd_trace_detail {
    HD_TRACE_DEFAULT = 0, /* as the option trace_detail sets it */
    HD_TRACE_EDGES = 1,
    HD_TRACE_FULL = 2,
    HD_TRACE_CUPTI = 3
} hd_trace_detail;

/* Options of hd_trace_start. */
typedef struct hd_trace_options {
    size_t size; /* sizeof(hd_trace_options) */
    hd_trace_detail detail;
    /* Largest size of the file in bytes, without its beginning and end; 0: the option trace_limit.
     * The library drops later records, and counts them. */
    uint64_t file_limit;
} hd_trace_options;

/* The size of a trace. */
typedef struct hd_trace_info {
    size_t size;      /* sizeof(hd_trace_info), set by the caller */
    uint64_t records; /* records in the file */
    uint64_t dropped; /* records that found no room in a buffer or in the file */
    uint64_t bytes;   /* size of the file */
} hd_trace_info;

/* Begins a trace in `file`, which is a new file, a file that the call overwrites, or a pipe with a
 * reader. `options` may be NULL. The call blocks for some milliseconds.
 * Errors: HANDLE, ARGUMENT (`file` is null or empty, bad options, the runtime is writing a trace
 * already), HOST_MEMORY, SYSTEM (the file cannot be made, another trace writes to the file, nothing
 * reads the pipe, or no thread can be started), UNSUPPORTED (HD_TRACE_CUPTI, and CUPTI does not
 * work: the message lists the attempts and why they failed; no trace begins). */
HD_API hd_status hd_trace_start(hd_runtime *runtime, const char *file, const hd_trace_options *options);

/* Ends the runtime's trace. *out (may be NULL) is its size. The call blocks until the engines
 * deliver their records, at most one second, and until the file is written. If a pipe takes no
 * bytes for 5 seconds, the call gives up the pipe.
 * Errors: HANDLE, ARGUMENT (bad size), NOT_FOUND (the runtime writes no trace), SYSTEM (writing the
 * file failed; its earlier part is good). */
HD_API hd_status hd_trace_stop(hd_runtime *runtime, hd_trace_info *out);

/* Begin and end a named range of the calling thread, such as "step" or "load". A trace and its
 * pictures show the range. Ranges of a thread are nested: hd_range_pop ends the innermost one. The
 * library copies the name, and cuts it at 448 bytes. If the runtime writes no trace, both calls
 * only check the handle.
 * Errors: HANDLE, ARGUMENT (name is null). An hd_range_pop without a range does nothing, and is no
 * error. */
HD_API hd_status hd_range_push(hd_runtime *runtime, const char *name);
HD_API hd_status hd_range_pop(hd_runtime *runtime);

/* True while the runtime writes a trace; false for a bad handle. The call costs as much as
 * hd_done. */
HD_API bool hd_trace_active(const hd_runtime *runtime);

/* The place of a runtime among the ranks of a program, and its clock. Clocks are CLOCK_MONOTONIC in
 * nanoseconds. */
typedef struct hd_trace_rank {
    size_t size; /* sizeof(hd_trace_rank) */
    int rank, ranks;
    uint64_t run;      /* the same number on all ranks of a run; other runs use other numbers */
    int64_t offset_ns; /* a time of this clock plus this offset is the time of rank 0's clock */
    int64_t within_ns; /* the largest error of the offset */
} hd_trace_rank;

/* Tells the place of a runtime, for its current trace and for all later ones. A program may call it
 * again with a new offset. `heddle trace` then assumes that the offset changed at a constant rate.
 * Errors: HANDLE, ARGUMENT (null, bad size, `rank` is not between 0 and ranks - 1, or within_ns is
 * negative). */
HD_API hd_status hd_trace_set_rank(hd_runtime *runtime, const hd_trace_rank *rank);

/* Kinds of messages. From HD_TRACE_BCAST on, they are collective operations. */
typedef enum hd_trace_message_kind {
    HD_TRACE_SEND = 1,
    HD_TRACE_RECV = 2,
    HD_TRACE_BCAST = 3,
    HD_TRACE_REDUCE = 4,
    HD_TRACE_ALLREDUCE = 5,
    HD_TRACE_ALLGATHER = 6,
    HD_TRACE_ALLTOALL = 7,
    HD_TRACE_BARRIER = 8
} hd_trace_message_kind;

/* A message, or a rank's part in a collective operation, that ended. */
typedef struct hd_trace_message {
    size_t size; /* sizeof(hd_trace_message) */
    hd_trace_message_kind kind;
    bool failed;
    hd_ticket ticket; /* of the claim that stands for the message; {NULL, 0}: none */
    int peer;         /* the rank at the other end, or the root; -1: none */
    int tag;
    uint32_t communicator; /* the same number on all ranks of the communicator */
    /* counts the messages of this runtime in the order in which they were posted, from 1 */
    uint32_t order;
    uint64_t bytes;
    /* When its bytes were ready, when it was posted, and when it ended. Both sides count the
     * messages with the same communicator, peers and tag in the order of posting. So they find the
     * other side of each message. */
    int64_t ready_ns, posted_ns, ended_ns;
} hd_trace_message;

/* Adds a message to the runtime's trace. Without a trace, nothing happens.
 * Errors: HANDLE, ARGUMENT (null, bad size or kind, or times out of order). */
HD_API hd_status hd_trace_add_message(hd_runtime *runtime, const hd_trace_message *message);

HD_END_DECLS
#endif
