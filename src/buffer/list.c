/* list.c - the structures behind buffers: slabs, free list, and what happens to all buffers when a device is lost or the runtime is closed.
 *
 * Threads: any.
 * Locks: the list's mutex; below it, for a loss and for labels, order locks.
 * Blocking: only for these locks and those of the thread caches.
 * Always: structures are in slabs of the runtime's stable memory, so a stale handle can be recognised. Without a good handle, one is in the
 * free list, in a magazine (thread_cache.h), in a hold, or with one thread that works on it.
 */
#include <stdlib.h>
#include <string.h>
#include "buffer/list.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/lock.h"
#include "buffer/counts.h"
#include "buffer/kind.h"
#include "engine/engine.h"

#define SLAB_BUFFERS 64
#define SLABS_AT_ONCE 16 /* walked before other threads may take the lock */

typedef struct slab {
    _Alignas(HDI_SELF_ALIGN) struct {
        _Alignas(HDI_SELF_ALIGN) struct hd_buffer buffer;
    } places[SLAB_BUFFERS];
    struct slab *next;
} slab;

struct hdi_buffers {
    hdi_mutex lock;
    slab *slabs;
    struct hd_buffer *free_list;
    uint32_t made; /* spreads pinned buffers over the order locks */
};

hd_status hdi_buffers_create(hd_runtime *rt)
{
    rt->buffers = calloc(1, sizeof *rt->buffers);
    if (!rt->buffers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&rt->buffers->lock, HDI_RANK_BUFFERS);
    return HD_OK;
}

static void add_slab(hd_runtime *rt, struct hdi_buffers *list)
{
    slab *s = hdi_stable_take(rt->stable, sizeof *s);
    if (!s) {
        return;
    }
    s->next = list->slabs;
    list->slabs = s;
    for (int i = SLAB_BUFFERS - 1; i >= 0; i--) {
        struct hd_buffer *b = &s->places[i].buffer;
        b->runtime = rt;
        hdi_self_set(&b->self, hdi_self_word(hdi_self_make(b, 1)) | HDI_SELF_DEAD);
        b->next = list->free_list;
        list->free_list = b;
    }
}

struct hd_buffer *hdi_buffer_take(hd_runtime *rt)
{
    struct hdi_buffers *list = rt->buffers;
    hdi_mutex_lock(&list->lock);
    if (!list->free_list) {
        add_slab(rt, list);
    }
    struct hd_buffer *b = list->free_list;
    if (b) {
        list->free_list = b->next;
        b->next = NULL;
        b->making = true;
        HDI_HANDOVER_BEGIN();
        b->order = (uint8_t)(HDI_DEVICES_MAX + list->made++ % HDI_HOST_LOCKS);
        b->locks = (uint64_t)1 << b->order;
        b->special = 0;
        b->host = NULL;
        b->chunk_shift = HDI_CHUNK_SHIFT_ONE;
        b->kind = NULL;
        b->of_kind = NULL;
        HDI_HANDOVER_END();
        b->call_site = NULL;
        b->label[0] = 0;
        b->item = (hdi_item){.class = HDI_CLASS_LARGE};
        b->maker = 0;
        b->holds = 0;
        b->handed = false;
        atomic_store_explicit(&b->readable, 0, memory_order_relaxed);
        atomic_store_explicit(&b->writable, 0, memory_order_relaxed);
        memset(&b->pinned, 0, sizeof b->pinned);
    }
    hdi_mutex_unlock(&list->lock);
    return b;
}

void hdi_buffer_give(hd_runtime *rt, struct hd_buffer *b)
{
    /* After its last generation a structure is not used again, so that no old handle can ever fit. */
    if (hdi_self_generation(hdi_self_get(&b->self)) == 0) {
        return;
    }
    hdi_mutex_lock(&rt->buffers->lock);
    b->next = rt->buffers->free_list;
    rt->buffers->free_list = b;
    hdi_mutex_unlock(&rt->buffers->lock);
}

bool hdi_buffer_of_now(const struct hd_buffer *b)
{
    const hdi_device *device = b->runtime->devices[b->owner];
    return atomic_load_explicit(&device->losses, memory_order_acquire) == hdi_buffer_losses(b);
}

void hdi_buffer_make_live(struct hd_buffer *b)
{
    hdi_mutex_lock(&b->runtime->buffers->lock);
    /* Either this sees that the device is lost, or hdi_buffers_lose sees the buffer. */
    bool lost = b->owner != HDI_OWNER_HOST && (hdi_device_lost(b->runtime->devices[b->owner]) || !hdi_buffer_of_now(b));
    uint64_t word = hdi_self_get(&b->self) & ~(HDI_SELF_DEAD | HDI_SELF_LOST);
    hdi_self_set(&b->self, lost ? word | HDI_SELF_LOST : word);
    b->making = false;
    hdi_mutex_unlock(&b->runtime->buffers->lock);
}

hdi_taken hdi_buffer_take_lost_handle(struct hd_buffer *b, const hd_buffer *handle)
{
    struct hdi_buffers *list = b->runtime->buffers;
    uint64_t word = hdi_self_word(handle);
    hdi_taken taken = HDI_TAKEN_STALE;
    hdi_mutex_lock(&list->lock);
    if (b->restoring) {
        taken = HDI_TAKEN_NOT_NOW;
    } else if (hdi_self_change(&b->self, word | HDI_SELF_LOST, hdi_self_after(b, word))) {
        taken = HDI_TAKEN;
    }
    hdi_mutex_unlock(&list->lock);
    return taken;
}

static bool has_memory(const struct hd_buffer *b)
{
    return b->handed || !(hdi_self_get(&b->self) & HDI_SELF_DEAD);
}

void hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context)
{
    struct hdi_buffers *list = rt->buffers;
    bool more = true;
    hdi_thread_caches_freeze(rt); /* a buffer that leaves a magazine or enters one does not take the list's lock */
    hdi_mutex_lock(&list->lock);
    int slabs = 0;
    /* Slabs are only added in front, and stay. */
    for (slab *s = list->slabs; s && more; s = s->next) {
        if (++slabs % SLABS_AT_ONCE == 0) {
            hdi_mutex_unlock(&list->lock);
            hdi_thread_caches_thaw(rt);
            hdi_thread_caches_freeze(rt);
            hdi_mutex_lock(&list->lock);
        }
        for (int i = 0; i < SLAB_BUFFERS && more; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            if (has_memory(b) && !(b->special & HDI_BUFFER_OWN)) {
                more = visit(context, b);
            }
        }
    }
    hdi_mutex_unlock(&list->lock);
    hdi_thread_caches_thaw(rt);
}

void hdi_buffers_lock(hd_runtime *rt)
{
    hdi_mutex_lock(&rt->buffers->lock);
}

void hdi_buffers_unlock(hd_runtime *rt)
{
    hdi_mutex_unlock(&rt->buffers->lock);
}

void hdi_buffers_lose(hd_runtime *rt, hdi_device *device)
{
    struct hdi_buffers *list = rt->buffers;
    if (!list) {
        return;
    }
    /* From here on no buffer of the device comes out of a magazine. One that came out before is live, and found below. */
    hdi_thread_caches_drain(rt, device->index);
    hdi_mutex_lock(&list->lock);
    hdi_lock_take(&device->order); /* so no operation of the device sees only a part of the loss */
    for (slab *s = list->slabs; s; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            uint64_t word = hdi_self_get(&b->self);
            if (!(word & (HDI_SELF_DEAD | HDI_SELF_LOST)) && b->owner == device->index &&
                hdi_self_change(&b->self, word, word | HDI_SELF_LOST)) {
                atomic_store_explicit(&b->losses, HDI_LOST, memory_order_release);
            } else if (b->handed && b->owner == device->index && hdi_buffer_losses(b) != HDI_LOST) {
                atomic_fetch_sub_explicit(&device->memory->held_bytes, b->bytes, memory_order_relaxed);
                atomic_store_explicit(&b->losses, HDI_LOST, memory_order_release);
            }
        }
    }
    hdi_lock_release(&device->order);
    hdi_mutex_unlock(&list->lock);
}

/* Whether the buffer was lost with its device, and may get its content back. The lock is held. */
static bool is_to_restore(struct hd_buffer *b, int device)
{
    uint64_t word = hdi_self_get(&b->self);
    return (word & HDI_SELF_LOST) && !(word & HDI_SELF_DEAD) && b->owner == device && b->kind && b->kind->content;
}

struct hd_buffer *hdi_buffers_next_to_restore(hd_runtime *rt, int device, const struct hd_buffer *after)
{
    struct hdi_buffers *list = rt->buffers;
    struct hd_buffer *found = NULL;
    bool behind = after == NULL;
    hdi_mutex_lock(&list->lock);
    for (slab *s = list->slabs; s && !found; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS && !found; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            if (behind && is_to_restore(b, device)) {
                b->restoring = true;
                found = b;
            }
            behind |= b == after;
        }
    }
    hdi_mutex_unlock(&list->lock);
    return found;
}

void hdi_buffers_restored(hd_runtime *rt, struct hd_buffer *b)
{
    hdi_mutex_lock(&rt->buffers->lock);
    b->restoring = false;
    hdi_mutex_unlock(&rt->buffers->lock);
}

void hdi_buffers_close(hd_runtime *rt)
{
    hdi_mutex_lock(&rt->buffers->lock);
    for (slab *s = rt->buffers->slabs; s; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            hdi_self_close(&s->places[i].buffer.self);
        }
    }
    hdi_mutex_unlock(&rt->buffers->lock);
}

void hdi_buffers_release(hd_runtime *rt)
{
    struct hdi_buffers *list = rt->buffers;
    if (!list) {
        return;
    }
    for (slab *s = list->slabs, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            hdi_uses_release(&b->uses); /* also of buffers in magazines */
            if (has_memory(b) && b->kind && b->kind->forget) {
                b->kind->forget(b); /* its pinned buffers are in this list, too */
            }
        }
    }
    for (size_t i = 0; i < sizeof rt->parts / sizeof rt->parts[0]; i++) {
        hdi_parts_group_release(&rt->parts[i]);
    }
    hdi_mutex_destroy(&list->lock);
    free(list);
    rt->buffers = NULL;
}
