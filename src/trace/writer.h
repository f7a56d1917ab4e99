/* writer.h - the thread that empties the rings of a runtime into the file of a trace.
 *
 * It names what records have only by number: kernels, lanes, labels, ranges. It samples each device's memory: at the begin, at the end, and
 * every 10 ms where it has changed.
 *
 * Threads: start and stop under the tracer's mutex. The writer's own. The one that ends the program by exit().
 * Locks: a mutex per process, for the list of writers; it reads rings as their one reader.
 * Blocking: exit() waits until each writer has written what the rings had, at most for a second. It waits for no lock.
 * Always: the file has whole records, those of a ring in their order. After an error nothing more is written, and everything counts as
 * dropped. What a worker process recorded is copied only where its type is an engine's.
 */
#ifndef HDI_TRACE_WRITER_H
#define HDI_TRACE_WRITER_H

#include <heddle/trace.h>
#include "engine/runtime.h"

typedef struct hdi_writer hdi_writer;

/* Makes the file with its first records, and starts the thread. `number`: as hdi_output_open has it. Errors: HOST_MEMORY, SYSTEM. */
hd_status hdi_writer_start(hd_runtime *rt, const char *file, _Atomic unsigned *number, uint32_t detail, uint64_t limit,
                           hdi_writer **out);
/* Nothing is recorded any more: writes the rest, ends the thread, closes the file, and frees it. *info may be NULL. Errors: SYSTEM. */
hd_status hdi_writer_stop(hdi_writer *writer, hd_trace_info *info);
const char *hdi_writer_file(const hdi_writer *writer);

#endif
