/* heddle/trace.h - traces: each submitted operation, its waits and its times, and the causes of
 * delays.
 *
 * A trace is a file about one runtime with all its devices, threads and lanes. `heddle trace FILE`
 * analyses a trace, and `heddle report FILE` draws it. With the option `trace` (HEDDLE_TRACE=FILE),
 * hd_open begins a trace and hd_close ends it. A program may also begin and end traces itself, one
 * after the other. Each runtime, in any process, may write a trace of its own. Two traces must not
 * write to the same file.
 *
 * A thread of the library writes the file, some hundred times a second. If the program is killed,
 * the file lacks only the last moments. If the library cannot write the file, for example on a full
 * disk, it counts the missing records. The end of the trace then fails with SYSTEM. If the program
 * ends by exit() without hd_close, exit() waits until the file is complete, at most one second.
 *
 * The library keeps unwritten records in a buffer of 2 MiB for each device and each thread of the
 * program. The option trace_memory limits the memory of the threads' buffers. Threads beyond this
 * limit share one buffer. The library drops records that find no room in their buffer, and counts
 * them.
 *
 * The option `trace_detail`, or the argument of hd_trace_start, selects how exact device times are:
 *
 *   - edges   the trace contains the beginning and the end of each busy stretch of a lane. Launches
 *             go to the driver as without a trace. The driver's events for these times may take
 *             0.5 % of an engine's time. When this share is used up, the time of an end is the time
 *             at which the engine saw it, a little later. A busy lane may also turn to another kind
 *             of work, or wait for another lane. For the times of such changes, the share is 10 %.
 *             When it is used up, `heddle trace` estimates the times. With placement=inline there
 *             are no such shares.
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
 * Threads: any.
 * Blocking: hd_trace_start and hd_trace_stop wait as their comments say. hd_range_push and
 * hd_range_pop return at once.
 */
#ifndef HEDDLE_TRACE_H
#define HEDDLE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* How exact the device times of a trace are. The head of this header describes each. */
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

/* Ends the runtime's trace. *out (may be NULL) is its size. The call blocks until the engines have
 * delivered their records, at most one second, and until the file is written. If a pipe takes no
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

HD_END_DECLS
#endif
