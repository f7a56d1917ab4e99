/* trace.h - traces of a runtime: beginning and ending them, for hd_open and hd_close, too.
 *
 * Threads: any; hdi_trace_close the one that closes. Locks: a mutex per runtime while one begins or ends.
 * Blocking: until the engines have given what they recorded, at most for a second.
 */
#ifndef HDI_TRACE_TRACE_H
#define HDI_TRACE_TRACE_H

#include "trace/part.h"

extern const hdi_lifetime hdi_trace_lifetime;

/* Ends the trace that is being written. Called by hd_close, when work has ended and engines still run. `left` gets the failure where the
 * file is not whole, unless it has one. It may be NULL. */
void hdi_trace_close(hd_runtime *rt, hd_error *left);

/* A device comes back, in another worker process: what CUPTI reports there is recorded from now on. */
void hdi_trace_restarted(hdi_device *device);

#endif
