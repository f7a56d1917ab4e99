/* unified.h - buffers with memory on a device and a mirror of it in pinned memory; see heddle/unified.h.
 *
 * Such a buffer's use record is that of its device memory.
 * The mirror's pinned buffer has a record of its own, for the copies between the two and for the accesses by the host alone.
 * The mirror records per chunk which side has the newer bytes.
 * Copies to the device are submitted with the operation that needs them.
 * Copies to the host are submitted when the host requests the bytes.
 * After a copy that fails, a chunk stays newer on the side that it was copied from.
 *
 * Threads: any.
 * Locks: one mutex per mirror, held while copies and an operation of the buffer are submitted, but not while one is waited for. Several are taken
 * by rising address. Below it: order locks.
 * Blocking: access by the host, until the copies to it are done. Operations: as hdi_submit.
 * Always: a chunk is newer on at most one side. `readable` and `writable` of the buffer (buffer.h) have only chunks whose bytes are on the
 * host and settled. `writable` has only chunks that count as newer on the host.
 */
#ifndef HDI_KINDS_UNIFIED_H
#define HDI_KINDS_UNIFIED_H

#include <heddle/unified.h>
#include "buffer/kind.h"

extern const hdi_buffer_ops hdi_unified_ops;

#endif
