/* findings.h - what memory_debug has found: kept for reports, passed to the program's callback, and written as lines with memory_debug=report.
 * See heddle/memory.h for what the program sees.
 *
 * Threads: any.
 * Locks: a mutex for what is kept, which is not held during the callback and while a line is written. A caller must hold no lock of the library.
 * Blocking: for the program's callback, and up to one second for a pipe that accepts nothing.
 * Always: hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_KINDS_FINDINGS_H
#define HDI_KINDS_FINDINGS_H

#include <heddle/memory.h>
#include "engine/runtime.h"

#define HDI_REPORT_FINDINGS 64 /* the first ones are kept */
#define HDI_FINDING_BYTES 320

typedef struct hdi_finding {
    int32_t kind;   /* hd_finding_kind */
    int32_t device; /* HD_DEVICE_HOST: of pinned memory */
    char text[HDI_FINDING_BYTES];
} hdi_finding;

/* For hd_open and hd_close. Release ignores rt->findings that is NULL. Errors: HOST_MEMORY, SYSTEM (option memory_debug_file). */
hd_status hdi_findings_create(hd_runtime *rt);
void hdi_findings_release(hd_runtime *rt);

/* Notes a finding whose message is the thread's last one. The callback's own failures do not change that message. */
void hdi_findings_note(hd_runtime *rt, const hd_finding *what);

/* For hd_close: reports one of the leaks, with its device, label, call site, count and bytes; `index` counts them from 0. The second reports
 * the summary, with what all leaks together are. The thread's message stays as it was. */
void hdi_findings_leak(hd_runtime *rt, const hd_finding *leak, size_t index);
void hdi_findings_end(hd_runtime *rt, uint64_t leaked_buffers, uint64_t leaked_bytes);

/* Copies the first findings. Returns how many these are; *count: all findings so far. */
uint32_t hdi_findings_copy(hd_runtime *rt, hdi_finding out[HDI_REPORT_FINDINGS], uint64_t *count);

/* The number of double frees of pinned memory. */
uint64_t hdi_findings_of_pinned(hd_runtime *rt);

#endif
