/* writer.h - the thread that empties the rings of a runtime into the file of a trace.
 *
 * The writer also writes the names that numbers in records stand for: kernels, lanes, labels,
 * ranges. It samples each device's memory: at the begin, at the end, and every 10 ms if it changed.
 *
 * Threads: start and stop are called under the tracer's mutex. The rest runs on the writer's own
 * thread, and on the thread that ends the program by exit().
 * Locks: a mutex per process, for the list of writers. Rings need none, since the writer is their
 * only reader.
 * Blocking: exit() waits until each writer wrote the contents of the rings, at most for a
 * second. exit() waits for no lock.
 * Always: the file contains complete records; the records of one ring are in their order. After an
 * error nothing more is written, and everything counts as dropped. A record of a worker process is
 * copied only if engines write records of its type.
 */
#ifndef HDI_TRACE_WRITER_H
#define HDI_TRACE_WRITER_H

#include <heddle/trace.h>
#include "engine/runtime.h"

typedef struct hdi_writer hdi_writer;

/* Makes the file with its first records, and starts the thread. `number`: as in hdi_output_open.
 * Errors: HOST_MEMORY, SYSTEM. */
hd_status hdi_writer_start(hd_runtime *rt, const char *file, _Atomic unsigned *number, uint32_t detail, uint64_t limit,
                           hdi_writer **out);
/* Called when all recording stopped. Writes the remaining records, ends the thread, closes the
 * file, and frees the writer. *info may be NULL. Errors: SYSTEM. */
hd_status hdi_writer_stop(hdi_writer *writer, hd_trace_info *info);
const char *hdi_writer_file(const hdi_writer *writer);

#endif
