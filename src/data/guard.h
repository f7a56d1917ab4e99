/* guard.h - option memory_debug: guard bytes around device buffers, content that shows what was never written or is freed, and what is
 * found by them (findings.h). See heddle/memory.h for what the program sees.
 *
 * Threads: any. Blocking: hdi_guard_check, as it says. hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_DATA_GUARD_H
#define HDI_DATA_GUARD_H

#include "data/buffer.h"
#include "data/report.h"

#define HDI_GUARD_BYTES 256
#define HDI_GUARD_WORD 0xfdfdfdfdu
#define HDI_FRESH_WORD 0x7ff7fff7u /* not a number as 16, 32 or 64 bits, and in the other 16-bit format */
#define HDI_FREED_WORD 0xddddddddu

/* hdi_buffer_place with room for guards, which are written, and the content, too. The buffer has HDI_BUFFER_GUARDED from then on, and never
 * lies in a magazine. Errors: as hdi_buffer_place, and those of hdi_submit. */
hd_status hdi_guard_place(struct hd_buffer *b, hd_lane *lane, size_t bytes);

/* A guarded buffer's memory is about to be given back; no handle leads to it and no hold keeps it. Waits (option transfer_timeout)
 * for the work that uses it, notes what has changed in the guards, and fills everything with HDI_FREED_WORD, behind all work. Nothing happens
 * where the device is lost. Leaves the thread's message alone unless something was found. */
void hdi_guard_check(struct hd_buffer *b);

/* A free of a handle that is not good: notes the second free, and fails with HANDLE and a message that names the buffer.
 * HD_OK: nothing is known of it; it never was a handle, or memory_debug is off. */
hd_status hdi_guard_double_free(struct hd_buffer *b, const hd_buffer *handle, const void *call_site);

/* The same for a call `who` on such a handle: fails with HANDLE and a message that says which buffer it was. HD_OK: nothing is known about it. */
hd_status hdi_guard_refused(const hd_buffer *handle, const char *who);

#endif
