/* hold.h - memory that stays where it is beyond hd_free: in holds of the program (heddle/memory.h), and for calls that use a buffer in several
 * steps. */
#ifndef HDI_DATA_HOLD_H
#define HDI_DATA_HOLD_H

#include "data/buffer.h"

hd_status hdi_holds_create(hd_runtime *rt);
/* hd_close: no handle fits any more. */
void hdi_holds_close(hd_runtime *rt);
/* Forgets all holds; their buffers go with the list. */
void hdi_holds_release(hd_runtime *rt);

/* Whether a hold keeps the memory of a buffer that was freed just now: then the structure stays as it is. */
bool hdi_hold_keeps(struct hd_buffer *b);

/* Around what a call does with a buffer in several steps, of which an hd_free by another thread must not take anything away: neither memory nor
 * mirror, checkpoints or use record. `word`: of the handle that led to it a moment ago (hdi_self_word), 0 where nobody frees it. False: it is not
 * that buffer any more; nothing is held. A buffer that was lost with its device still is. hdi_hold_end by whoever is last ends a buffer that was
 * freed meanwhile, so no lock may be held that this takes. Only for buffers that are in no magazine (hd_buffer.special): others would not go
 * there any more. */
bool hdi_hold_begin(struct hd_buffer *b, uint64_t word);
void hdi_hold_end(struct hd_buffer *b);

#endif
