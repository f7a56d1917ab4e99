/* unified.h - buffers with memory on a device and a mirror of it in pinned memory; see heddle/unified.h.
 *
 * Such a buffer's use record is that of its device memory.
 * The mirror's pinned buffer has a record of its own, for the copies between the two and for the accesses by the host alone.
 * The mirror records per chunk which side has the newer bytes.
 * Copies to the device are submitted with the operation that needs them. hdi_submit calls hdi_unified_submit for that.
 * Copies to the host are submitted when the host requests the bytes.
 * After a copy that fails, a chunk stays newer on the side that it was copied from.
 *
 * Threads: any.
 * Locks: one mutex per mirror, held while copies and an operation of the buffer are submitted, but not while one is waited for. Several are taken
 * by rising address. Below it: order locks.
 * Blocking: hdi_unified_bring and hdi_unified_map, until the copies to the host are done. hdi_unified_submit: as hdi_submit.
 * Always: a chunk is newer on at most one side. `readable` and `writable` of the buffer (buffer.h) have only chunks whose bytes are on the
 * host and settled. `writable` has only chunks that count as newer on the host.
 */
#ifndef HDI_DATA_UNIFIED_H
#define HDI_DATA_UNIFIED_H

#include <heddle/unified.h>
#include "data/submit.h"

/* Gives a buffer that has device memory and is not live its mirror. Errors: as hdi_buffer_make_host. */
hd_status hdi_unified_create(struct hd_buffer *b);
/* For a buffer that was freed: frees the mirror. Work may still use it. */
void hdi_unified_release(struct hd_buffer *b);
/* For hd_close: drops the mirror without its pinned memory, which goes with all other. Buffers without a mirror are ignored. */
void hdi_unified_forget(struct hd_buffer *b);

/* hdi_submit_linked for operations that use such buffers, beside others. On failure copies may have been submitted, which change nothing.
 * Errors: as hdi_submit, ACCESS (mapped), and those of the copies. */
hd_status hdi_unified_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                             hdi_linked link, hd_ticket *out);

/* Makes the bytes [low, high) good for access by the host at b->host. Errors: ACCESS, FAILED, DEVICE_LOST, TIMEOUT, and
 * those of hdi_submit. */
hd_status hdi_unified_bring(struct hd_buffer *b, uint64_t low, uint64_t high, hd_access access, int64_t deadline);

/* The first begins a mapping, and brings all bytes; the second ends one. Errors: as hdi_unified_bring. */
hd_status hdi_unified_map(struct hd_buffer *b, hd_access access, int64_t deadline);
void hdi_unified_unmap(struct hd_buffer *b);

#endif
