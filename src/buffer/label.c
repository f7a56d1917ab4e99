/* label.c - names of buffers, and the list of all of them.
 *
 * Threads: any. Locks: the list's, for the labels, and while the list is copied; below it, for a label, the buffer's order lock.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/kind.h"
#include "buffer/list.h"
#include "buffer/maintenance.h"
#include "engine/engine.h"

hd_status hd_buffer_set_label(hd_buffer *handle, const char *label)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle);
    }
    char text[HD_LABEL_BYTES] = "";
    if (label) {
        memcpy(text, label, strnlen(label, sizeof text - 1));
    }
    hdi_buffers_lock(b->runtime);
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order); /* for which hd_free waits: else the label might be the next owner's */
    bool there = atomic_load_explicit(&b->self.word, memory_order_seq_cst) == hdi_self_word(handle);
    if (there) {
        memcpy(b->label, text, sizeof b->label);
    }
    hdi_lock_release(order);
    hdi_buffers_unlock(b->runtime);
    if (!there) {
        return hdi_buffer_refused(handle);
    }
    if (b->owner != HDI_OWNER_HOST) {
        hdi_maintenance_look(b->runtime, b->runtime->devices[b->owner]); /* which publishes it */
    }
    return HD_OK;
}

typedef struct copy {
    hd_memory_block *blocks; /* NULL: only counts */
    size_t count, room;
} copy;

static bool add_block(void *context, struct hd_buffer *b)
{
    copy *c = context;
    if (c->blocks && c->count < c->room) {
        uint64_t word = hdi_self_get(&b->self);
        hd_memory_block *block = &c->blocks[c->count];
        *block = (hd_memory_block){
            .size = sizeof *block,
            .device = b->owner == HDI_OWNER_HOST ? HD_DEVICE_HOST : b->owner,
            .bytes = b->bytes,
            .call_site = b->call_site,
            .unified = b->kind && b->kind->unified,
            .held = (word & HDI_SELF_DEAD) != 0,
            .lost = (word & HDI_SELF_LOST) != 0,
        };
        memcpy(block->label, b->label, sizeof block->label);
    }
    c->count++;
    return true;
}

hd_status hd_memory_each(hd_runtime *rt, bool (*visit)(void *context, const hd_memory_block *block), void *context)
{
    HDI_INSIDE(rt);
    if (!visit) {
        return hdi_fail(HD_ERROR_ARGUMENT, "visit is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    copy c = {0};
    hdi_buffers_each(rt, add_block, &c);
    /* More may come while there is no lock: then once more, with more room. */
    for (size_t need = c.count; need > c.room; need = c.count) {
        size_t room = need + need / 8 + 16;
        hd_memory_block *more = realloc(c.blocks, room * sizeof *more);
        if (!more) {
            free(c.blocks);
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of %zu buffers", need);
        }
        c = (copy){.blocks = more, .room = room};
        hdi_buffers_each(rt, add_block, &c);
    }
    bool more_wanted = true;
    hdi_apart apart = hdi_presence_apart();
    for (size_t i = 0; i < c.count && more_wanted; i++) {
        HDI_SIZED_TOLD(hd_memory_block) told = {.known = c.blocks[i]};
        more_wanted = visit(context, &told.known);
    }
    hdi_presence_together(apart);
    free(c.blocks);
    return HD_OK;
}
