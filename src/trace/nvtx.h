/* nvtx.h - ranges that libraries of the program name through NVTX, in the traces of all runtimes
 * that record.
 *
 * At a program's first call, NVTX loads the library that NVTX_INJECTION64_PATH names, and calls
 * InitializeInjectionNvtx2 there. Each library that contains NVTX does this by itself.
 *
 * Threads: any. Locks: a mutex per process, for the list of active recorders; it is not held across
 * calls of NVTX.
 * Always: without a trace a call of NVTX costs a load and a branch. Ranges nest per thread and
 * domain. If domains cross, inner ranges are ended and begun again. Ranges that are started and
 * ended do not nest: the thread that ends such a range records it then. A range that is open when a
 * trace ends is not in that trace. A child made by fork() records nothing.
 */
#ifndef HDI_TRACE_NVTX_H
#define HDI_TRACE_NVTX_H

#include "record/record.h"

/* Records ranges in the recorder from now on, until hdi_nvtx_leave. Call it once per recorder.
 * False: no memory, or too many recorders. */
bool hdi_nvtx_listen(hdi_recorder *recorder);
void hdi_nvtx_leave(hdi_recorder *recorder);

/* Makes NVTX load this library, if it is a shared object and the variable is unset. */
void hdi_nvtx_offer(void);

/* Called by NVTX. `table_of` returns NVTX's tables by their numbers. Returns 1, which means
 * success. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t table));

#endif
