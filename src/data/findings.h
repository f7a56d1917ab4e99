/* findings.h - what memory_debug has found: kept for reports, passed to the program's callback, and written as lines with memory_debug=report.
 * See heddle/memory.h for what the program sees.
 *
 * Threads: any.
 * Locks: a mutex for what is kept, which is not held during the callback and while a line is written. A caller must hold no lock of the library.
 * Blocking: for the program's callback, and up to one second for a pipe that accepts nothing.
 * Always: hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_DATA_FINDINGS_H
#define HDI_DATA_FINDINGS_H

#include "data/report.h"

/* For hd_open and hd_close. Release ignores rt->findings that is NULL. Errors: HOST_MEMORY, SYSTEM (option memory_debug_file). */
hd_status hdi_findings_create(hd_runtime *rt);
void hdi_findings_release(hd_runtime *rt);

/* Notes a finding whose message is the thread's last one. The callback's own failures do not change that message. */
void hdi_findings_note(hd_runtime *rt, const hd_finding *what);

/* For hd_close: reports the leaks, and the summary. The thread's message stays as it was. */
void hdi_findings_end(hd_runtime *rt, const hdi_leaks *leaks);

/* Copies the first findings, and their number, into a report. */
void hdi_findings_copy(hd_runtime *rt, hdi_report *report);

/* The number of double frees of pinned memory. */
uint64_t hdi_findings_of_pinned(hd_runtime *rt);

#endif
