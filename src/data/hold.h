/* hold.h - memory that stays where it is beyond hd_free. See heddle/memory.h. */
#ifndef HDI_DATA_HOLD_H
#define HDI_DATA_HOLD_H

#include "data/buffer.h"

hd_status hdi_holds_create(hd_runtime *rt);
/* Forgets all holds; their buffers go with the list. */
void hdi_holds_release(hd_runtime *rt);

/* Whether a hold keeps the memory of a buffer that was freed just now: then the structure stays as it is. */
bool hdi_hold_keeps(struct hd_buffer *b);

#endif
