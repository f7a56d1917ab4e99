/* unified.h - buffers with memory on a device and a mirror of it in pinned memory; see heddle/unified.h.
 *
 * Such a buffer's use record is that of its device memory; the mirror's pinned buffer has its own, where only the
 * copies between the two are noted, and what the host does. Which side has the newer bytes is known per chunk. Copies
 * to the device are submitted with the operation that needs them (hdi_unified_submit, where hdi_submit ends up for such
 * buffers), copies to the host when the host asks for the bytes. A copy that fails leaves the chunk as newer as it was
 * where it came from.
 *
 * Threads: any. Locks: one mutex per mirror, held while copies and an operation of the buffer are submitted, not while
 * one is waited for; several in the order of their addresses. Below it: order locks.
 * Always: a chunk is newer on at most one side; `readable` and `writable` of the buffer (buffer.h) have only chunks
 * that are there and settled, `writable` only such that count as newer on the host.
 */
#ifndef HDI_DATA_UNIFIED_H
#define HDI_DATA_UNIFIED_H

#include <heddle/unified.h>
#include "data/submit.h"

/* Gives a buffer that has device memory and is not live its mirror. Errors: as hdi_buffer_make_host. */
hd_status hdi_unified_create(struct hd_buffer *b);
/* The buffer was freed: so is its mirror, with the work that still uses it. */
void hdi_unified_release(struct hd_buffer *b);
/* hd_close: without the pinned memory, which goes with all other. Buffers without a mirror are ignored. */
void hdi_unified_forget(struct hd_buffer *b);

/* hdi_submit_linked for operations that use such buffers, beside others. On failure copies may have been submitted, which
 * change nothing.
 * Errors: as hdi_submit, ACCESS (mapped), and those of the copies. */
hd_status hdi_unified_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                             hdi_linked link, const char *who, hd_ticket *out);

/* Makes the bytes [low, high) good for access by the host at b->host. Errors: ACCESS, FAILED, DEVICE_LOST, TIMEOUT, and
 * those of hdi_submit. */
hd_status hdi_unified_bring(struct hd_buffer *b, uint64_t low, uint64_t high, hd_access access, int64_t deadline,
                            const char *who);

/* Begins a mapping, and brings everything; ends one. */
hd_status hdi_unified_map(struct hd_buffer *b, hd_access access, int64_t deadline, const char *who);
void hdi_unified_unmap(struct hd_buffer *b);

#endif
