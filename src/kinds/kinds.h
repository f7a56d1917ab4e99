/* kinds.h - buffers of special kinds, for the runtime and its reports.
 *
 * A checkpointed buffer keeps copies in pinned memory, which restore the buffer after a loss of its
 * device (checkpoint.c). With the option memory_debug, device buffers get guard bytes, and patterns
 * fill fresh and freed content. A changed guard or pattern is a finding (guard.c). If guards cannot
 * be checked when a buffer is freed, a thread called the checker does it later (checker.c). Reports
 * contain the findings, and the program's callback gets each finding. With memory_debug=report,
 * Heddle also writes findings as lines. heddle/memory.h describes the program's view.
 *
 * Threads: any.
 * Locks: one mutex per checkpointed buffer, the order lock of a guarded buffer's device, and a
 * mutex for the findings. The mutex for findings is not held during the callback or while a line is
 * written. A caller holds no lock of the library.
 * Blocking: calls wait for saves and restores (checkpoint.c). A thread that gives back the memory
 * of a guarded buffer waits for the work on the buffer. A thread with a finding waits for the
 * program's callback, and up to one second for a full pipe.
 * Always: the good copy of a checkpointed buffer stays until a newer copy is known to be good.
 * hdi_kinds_part.findings is NULL if the option memory_debug is off.
 */
#ifndef HDI_KINDS_KINDS_H
#define HDI_KINDS_KINDS_H

#include <heddle/memory.h>
#include "buffer/kind.h"
#include "kinds/part.h"

/* ---- checkpoint.c ---- */

/* The kind of buffers with HD_ALLOC_KEEP. */
extern const hdi_lifetime hdi_checkpoint_lifetime;

/* For a device that works again: restores the content of its checkpointed buffers. Errors: MEMORY,
 * HOST_MEMORY, DEVICE_LOST, DRIVER, FAILED, TIMEOUT. */
hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device);

/* ---- guard.c ---- */

#define HDI_REPORT_FINDINGS 64 /* the texts of this many findings are kept */
#define HDI_FINDING_BYTES 320

typedef struct hdi_finding {
    int32_t kind;   /* hd_finding_kind */
    int32_t device; /* HD_DEVICE_HOST: pinned memory */
    char text[HDI_FINDING_BYTES];
} hdi_finding;

/* If the option memory_debug is on: makes the list of findings, and gives guards to all device
 * memory. Errors: HOST_MEMORY, SYSTEM (option memory_debug_file). */
extern const hdi_lifetime hdi_findings_lifetime;

/* For hd_close. hdi_findings_leak reports one leak, with its device, label, call site, count and
 * bytes; `index` counts leaks from 0. The second function reports the summary, with the totals of
 * all leaks. Both leave the thread's message alone. */
void hdi_findings_leak(hd_runtime *rt, const hd_finding *leak, size_t index);
void hdi_findings_end(hd_runtime *rt, uint64_t leaked_buffers, uint64_t leaked_bytes);

/* Copies the findings that are kept, and returns their number. *count: the number of all findings
 * so far. */
uint32_t hdi_findings_copy(hd_runtime *rt, hdi_finding out[HDI_REPORT_FINDINGS], uint64_t *count);

/* The number of double frees of pinned memory. */
uint64_t hdi_findings_of_pinned(hd_runtime *rt);

/* ---- checker.c ---- */

/* With the option memory_debug: makes the checker, and the lanes for guards. Errors: HOST_MEMORY,
 * and those of hdi_lane_make. */
extern const hdi_lifetime hdi_guard_checker_lifetime;

/* The lane for guards of a device's buffers. */
hd_lane *hdi_guard_checker_lane(const hdi_device *device);

/* Keeps the memory of a freed buffer. Once no work uses it, the checker calls hdi_buffer_end again.
 * No handle leads to the buffer, and no hold keeps it. False: no thread can be started. */
bool hdi_guard_checker_keep(struct hd_buffer *b);

/* The deadline for the waits of a check. The option transfer_timeout sets it. During hd_close, the
 * time limit of hd_close sets it. */
int64_t hdi_guard_checker_deadline(hd_runtime *rt);

#endif
