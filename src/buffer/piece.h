/* piece.h - buffers that are one piece of physical memory: HD_ALLOC_ONE_PIECE, hd_buffer_export, hd_import_descriptor.
 *
 * Threads: any. Locks: none while a port is asked, but `linking` for a peer. Blocking: for requests to ports.
 */
#ifndef HDI_BUFFER_PIECE_H
#define HDI_BUFFER_PIECE_H

#include "buffer/buffer.h"

/* hd_alloc_with with that flag. Errors: theirs. */
hd_status hdi_piece_alloc(hd_lane *handle, size_t bytes, unsigned flags, const char *label, const void *call_site,
                          hd_buffer **out);

#endif
