/* list.h - the part of the list of buffers that only this layer uses. buffer.h has the rest.
 *
 * Threads: any.
 * Locks: the list's mutex; hdi_buffers_lock leaves it to the caller.
 * Blocking: never but for that mutex.
 * Always: see list.c.
 */
#ifndef HDI_BUFFER_LIST_H
#define HDI_BUFFER_LIST_H

#include "buffer/buffer.h"

/* The word for a structure whose handle with `word` becomes stale: the next generation, and not good. */
static inline uint64_t hdi_self_after(struct hd_buffer *b, uint64_t word)
{
    uint32_t generation = (hdi_self_generation(word) + 1) % HDI_SELF_GENERATIONS;
    return hdi_self_word(hdi_self_make(b, generation)) | HDI_SELF_DEAD;
}

typedef enum hdi_taken {
    HDI_TAKEN,        /* the handle was good, and is stale now */
    HDI_TAKEN_STALE,  /* it was not good */
    HDI_TAKEN_NOT_NOW /* the buffer is being restored */
} hdi_taken;

/* Makes the handle of a lost buffer stale. */
hdi_taken hdi_buffer_take_lost_handle(struct hd_buffer *b, const hd_buffer *handle);

/* Around all that a comment places under the list's lock. */
void hdi_buffers_lock(hd_runtime *rt);
void hdi_buffers_unlock(hd_runtime *rt);

/* The next lost buffer of the device whose kind restores content, behind `after` (NULL: the first). It is marked as being restored. NULL: there is none. */
struct hd_buffer *hdi_buffers_next_to_restore(hd_runtime *rt, int device, const struct hd_buffer *after);
void hdi_buffers_restored(hd_runtime *rt, struct hd_buffer *b);

#endif
