/* hold.h - memory that keeps its address beyond hd_free: in the program's holds (heddle/memory.h), and for calls that use a buffer in several
 * steps.
 *
 * Threads: any.
 * Locks: the list's of buffers, and the holds' mutex.
 * Blocking: the end of a hold, where it gives the memory of a guarded buffer back (guard.h).
 * Always: memory is given back once, by hd_free or by the end of the last hold.
 */
#ifndef HDI_BUFFER_HOLD_H
#define HDI_BUFFER_HOLD_H

#include "buffer/buffer.h"

hd_status hdi_holds_create(hd_runtime *rt);
/* hd_close: no handle fits any more. */
void hdi_holds_close(hd_runtime *rt);
/* Drops all holds. Their buffers go with the list. */
void hdi_holds_release(hd_runtime *rt);

/* Whether a hold keeps the memory of a buffer that was just freed. Then the structure stays as it is. */
bool hdi_hold_keeps(struct hd_buffer *b);

/* Holds a buffer while a call uses it in several steps. An hd_free by another thread then leaves memory, mirror, checkpoints and use record.
 * `word`: of the handle that led to the buffer a moment ago (hdi_self_word); 0: no thread frees the buffer meanwhile.
 * False: it is not that buffer any more, and nothing is held. A buffer that was lost with its device still is that buffer.
 * The last hdi_hold_end gives back a buffer that was freed meanwhile. So a caller holds no lock that this takes.
 * Only for buffers that are in no magazine (hd_buffer.special): a hold keeps a buffer out of magazines for good. */
bool hdi_hold_begin(struct hd_buffer *b, uint64_t word);
void hdi_hold_end(struct hd_buffer *b);

#endif
