/* trace.h - begins and ends traces of a runtime, also for hd_open and hd_close.
 *
 * Threads: any; hdi_trace_close runs on the thread that closes. Locks: a mutex per runtime while a
 * trace begins or ends.
 * Blocking: until the engines handed over their records, at most for a second.
 */
#ifndef HDI_TRACE_TRACE_H
#define HDI_TRACE_TRACE_H

#include "trace/part.h"

extern const hdi_lifetime hdi_trace_lifetime;

/* Ends the current trace. Called by hd_close, when work ended and engines still run. If the
 * file is not complete, `left` gets the failure, unless it contains one already. `left` may be
 * NULL. */
void hdi_trace_close(hd_runtime *rt, hd_error *left);

/* Call it when a device comes back in another worker process. From now on the trace gets CUPTI's
 * reports from the new process. */
void hdi_trace_restarted(hdi_device *device);

#endif
