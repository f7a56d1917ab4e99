/* piece.h - buffers that are one piece of physical memory (HD_ALLOC_DEDICATED, hd_buffer_export,
 * hd_import_descriptor).
 *
 * Threads: any. Locks: during a request to a port, no lock is held except `linking` for a peer.
 * Blocking: calls wait for requests to ports.
 */
#ifndef HDI_BUFFER_PIECE_H
#define HDI_BUFFER_PIECE_H

#include "buffer/buffer.h"

/* Does the work of hd_alloc_with for HD_ALLOC_DEDICATED. Errors: as hd_alloc_with. */
hd_status hdi_piece_alloc(hd_lane *handle, size_t bytes, unsigned flags, const char *label, const void *call_site,
                          hd_buffer **out);

#endif
