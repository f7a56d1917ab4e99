/* guard.h - option memory_debug: guard bytes around device buffers, fill patterns for fresh and freed content, and the findings about them.
 * See findings.h for the findings, and heddle/memory.h for what the program sees.
 *
 * Threads: any.
 * Locks: the order lock of the device. A caller holds no lock of the library.
 * Blocking: hdi_guard_check, for the work on the buffer.
 * Always: hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_DATA_GUARD_H
#define HDI_DATA_GUARD_H

#include "data/buffer.h"
#include "data/report.h"

#define HDI_GUARD_BYTES 256
#define HDI_GUARD_WORD 0xfdfdfdfdu
#define HDI_FRESH_WORD 0x7ff7fff7u /* a NaN as a float of 16, 32 or 64 bits, and as a bfloat16 */
#define HDI_FREED_WORD 0xddddddddu

/* As hdi_buffer_place, with room for guards. Fills the guards, and the content. The buffer has HDI_BUFFER_GUARDED from then on, and is never
 * in a magazine. Errors: as hdi_buffer_place, and those of hdi_submit. */
hd_status hdi_guard_place(struct hd_buffer *b, hd_lane *lane, size_t bytes);

/* For a guarded buffer whose memory is about to be given back. No handle leads to it, and no hold keeps it.
 * Waits (option transfer_timeout) for the work that uses it, and notes what has changed in the guards.
 * Fills everything with HDI_FREED_WORD, behind all work. Does nothing where the device is lost. Sets the thread's message only for a finding. */
void hdi_guard_check(struct hd_buffer *b);

/* For a free of a handle that is not good. Notes the second free, and fails with HANDLE and a message that names the buffer.
 * HD_OK: nothing is recorded about the handle. It never was one, or memory_debug is off. */
hd_status hdi_guard_double_free(struct hd_buffer *b, const hd_buffer *handle, const void *call_site);

/* The same for a call `who` on such a handle: fails with HANDLE and a message that names the buffer. HD_OK: nothing is recorded about the
 * handle. */
hd_status hdi_guard_refused(const hd_buffer *handle);

#endif
