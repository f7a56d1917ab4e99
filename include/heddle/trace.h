/* heddle/trace.h - traces: each submitted operation, its waits and its times, and the causes of
 * delays.
 *
 * A trace is a file about one runtime with all its devices, threads and lanes. `heddle trace FILE`
 * analyses it, `heddle report FILE` draws it. The option `trace` (HEDDLE_TRACE=FILE) begins one
 * with hd_open, and hd_close ends it. A program may also begin and end traces itself, any number of
 * times, one at a time. Several runtimes, of one process or of several, may each write one, but
 * never to the same file.
 *
 * A thread of the library writes the file, some hundred times a second. If the program is killed,
 * the file is good up to the last moments. If the file cannot be written, as on a full disk, the
 * library counts the missing records. The end of the trace then fails with SYSTEM. If the program
 * ends by exit() without hd_close, exit() waits until all is in the file, at most for a second.
 * Each thread and each device uses a buffer of 2 MiB for unwritten records. Records without room
 * there are dropped, and counted.
 *
 * The option `trace_detail`, or the argument of hd_trace_start, selects how exact device times are:
 *
 *   - edges   when each busy stretch of a lane began and ended. Launches go to the driver as
 *             without a trace. Events take at most 0.5 % of an engine's time. Beyond that a
 *             stretch ends when the engine saw its end, a little late. If a lane at work turns to
 *             another kind of work, or waits for another lane, the limit is 10 %. Beyond that
 *             `heddle trace` estimates.
 *   - full    when each operation began and ended. Launches go to the driver one by one, which
 *             costs short kernels some throughput.
 *   - cupti   as edges, and CUPTI's reports of each kernel, copy and fill on the devices, also of
 *             other libraries in the process that drives them. CUPTI is a library of the CUDA
 *             toolkit with one client in a process; the option `cupti` names it.
 *
 * A trace contains operations that are under way when it begins or ends as far as it sees them. For
 * a complete one wait for the work before hd_trace_stop.
 *
 * Threads: any.
 * Blocking: hd_trace_start and hd_trace_stop, as their comments say. hd_range_push and hd_range_pop
 * return at once.
 */
#ifndef HEDDLE_TRACE_H
#define HEDDLE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* How exact the device times of a trace are; see above. */
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
    /* Most bytes of the file, its beginning and end aside; 0: as the option trace_limit sets it.
     * Later records are dropped, and counted. */
    uint64_t file_limit;
} hd_trace_options;

/* The size of a trace. */
typedef struct hd_trace_info {
    size_t size;      /* sizeof(hd_trace_info), set by the caller */
    uint64_t records; /* in the file */
    uint64_t dropped; /* records without room, in buffers or in the file */
    uint64_t bytes;   /* of the file */
} hd_trace_info;

/* Begins a trace in a file, which is made or overwritten, or in a pipe with a reader. `options` may
 * be NULL. Blocks for some milliseconds.
 * Errors: HANDLE, ARGUMENT (file is null or empty, bad options, a trace is being written already),
 * HOST_MEMORY, SYSTEM (the file cannot be made, another trace is written to it, it is a pipe that
 * nothing reads, or no thread can be started), UNSUPPORTED (HD_TRACE_CUPTI, and CUPTI does not
 * work: the message lists the attempts and why they failed; nothing is traced). */
HD_API hd_status hd_trace_start(hd_runtime *runtime, const char *file, const hd_trace_options *options);

/* Ends the trace. *out (may be NULL) is its size. Blocks until engines give their records, at most
 * for a second, and the file is written. A pipe that takes nothing for 5 seconds is given up.
 * Errors: HANDLE, ARGUMENT (bad size), NOT_FOUND (none is being written), SYSTEM (writing the file
 * failed; what is there is good). */
HD_API hd_status hd_trace_stop(hd_runtime *runtime, hd_trace_info *out);

/* A range of the calling thread, which a trace and its pictures name: "step", "load". Ranges of a
 * thread are nested. The name is copied, and cut at 448 bytes. Without a trace both only check the
 * handle. hd_range_pop ends the innermost range.
 * Errors: HANDLE, ARGUMENT (name is null). Neither counts ranges: an extra pop does nothing. */
HD_API hd_status hd_range_push(hd_runtime *runtime, const char *name);
HD_API hd_status hd_range_pop(hd_runtime *runtime);

HD_END_DECLS
#endif
