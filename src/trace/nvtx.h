/* nvtx.h - ranges that libraries of the program name by NVTX, in the traces of all runtimes that record.
 *
 * NVTX loads the library that NVTX_INJECTION64_PATH names at a program's first call, and calls InitializeInjectionNvtx2 there. This happens for
 * each library that has NVTX in it.
 *
 * Threads: any. Locks: a mutex per process, for the list of recorders that record; not across calls of NVTX.
 * Always: without a trace a call of NVTX costs a load and a branch. Ranges are nested per thread and domain; where domains cross, those that
 * stand within are ended and begun again. Ranges that are started and ended are no nest: each is recorded when it ends, by the thread that ends
 * it. One that is open when a trace ends is not in that trace. In a child made by fork() nothing is recorded.
 */
#ifndef HDI_TRACE_NVTX_H
#define HDI_TRACE_NVTX_H

#include "record/record.h"

/* From now on ranges are recorded there, until hdi_nvtx_leave. Once per recorder. False: there is no memory, or too many record. */
bool hdi_nvtx_listen(hdi_recorder *recorder);
void hdi_nvtx_leave(hdi_recorder *recorder);

/* Has NVTX load this library, where it is a shared object and the variable has no value. */
void hdi_nvtx_offer(void);

/* What NVTX calls. `table_of` gives its tables by number. Returns 1: it works. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t table));

#endif
