/* findings.h - what memory_debug has found: kept for reports, told to the program's callback, and written as lines where the option
 * asks for that (memory_debug=report). See heddle/memory.h for what the program sees.
 *
 * Threads: any. Locks: a mutex for what is kept, not held while a finding is told or written; nothing here may be called with a lock of the
 * library's held. hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_DATA_FINDINGS_H
#define HDI_DATA_FINDINGS_H

#include "data/report.h"

/* hd_open and hd_close. NULL rt->findings is ignored by release. Errors: HOST_MEMORY, SYSTEM (option memory_debug_file). */
hd_status hdi_findings_create(hd_runtime *rt);
void hdi_findings_release(hd_runtime *rt);

/* A finding, whose message is the thread's last one. The callback's own failures leave that alone. */
void hdi_findings_note(hd_runtime *rt, const hd_finding *what);

/* hd_close: what leaked, and the summary. Leaves the thread's message alone. */
void hdi_findings_end(hd_runtime *rt, const hdi_leaks *leaks);

/* Into a report: the first ones, and how many there are. */
void hdi_findings_copy(hd_runtime *rt, hdi_report *report);

/* How many double frees of pinned memory were found. */
uint64_t hdi_findings_of_pinned(hd_runtime *rt);

#endif
