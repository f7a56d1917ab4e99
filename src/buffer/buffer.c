/* buffer.c - the structures behind buffers: their list, handles and labels, and waits for work on
 * buffers.
 *
 * Threads: any.
 * Locks: the mutex of the list of buffers. Under it, losses and labels take order locks. A buffer's
 * order lock guards its use record. Operations on all buffers also take the locks of the thread
 * caches.
 * Blocking: hdi_buffer_settle and hd_buffer_wait wait until work on the buffer is done. If another
 * thread detached a record, a thread that takes the record's lock waits.
 * Always: structures live in slabs of the runtime's stable memory, so a stale handle can be
 * recognised. A structure without a good handle is in the free list, in a magazine
 * (thread_cache.h), in a hold, or in the hands of one thread. Before a thread reads a use record,
 * it takes the order lock and checks that the handle is good. hd_free first makes the handle stale,
 * and then waits for the thread that holds the order lock (alloc.c).
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "buffer/recorded.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"

/* ---- the list ---- */

#define SLAB_BUFFERS 64
#define SLABS_AT_ONCE 16 /* after this many slabs, a walk releases the lock for other threads */

typedef struct hdi_slab {
    _Alignas(HDI_SELF_ALIGN) struct {
        _Alignas(HDI_SELF_ALIGN) struct hd_buffer buffer;
    } places[SLAB_BUFFERS];
    struct hdi_slab *next;
} slab;

static void buffers_add_slab(hd_runtime *rt, hdi_buffers *list)
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
        if (hdi_handles_ended(rt)) {
            hdi_self_close(&b->self);
        }
        b->next = list->free_list;
        list->free_list = b;
    }
}

struct hd_buffer *hdi_buffer_take(hd_runtime *rt)
{
    hdi_buffers *list = &hdi_buffer_of(rt)->buffers;
    hdi_mutex_lock(&list->lock);
    if (!list->free_list) {
        buffers_add_slab(rt, list);
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
        atomic_store_explicit(&b->reach, 0, memory_order_relaxed);
        atomic_store_explicit(&b->readable, 0, memory_order_relaxed);
        atomic_store_explicit(&b->writable, 0, memory_order_relaxed);
        memset(&b->pinned, 0, sizeof b->pinned);
    }
    hdi_mutex_unlock(&list->lock);
    return b;
}

void hdi_buffer_give(hd_runtime *rt, struct hd_buffer *b)
{
    /* After its last generation a structure is not reused, so no old handle can ever match it. */
    if (hdi_self_generation(hdi_self_get(&b->self)) == 0) {
        return;
    }
    hdi_mutex_lock(&hdi_buffer_of(rt)->buffers.lock);
    b->next = hdi_buffer_of(rt)->buffers.free_list;
    hdi_buffer_of(rt)->buffers.free_list = b;
    hdi_mutex_unlock(&hdi_buffer_of(rt)->buffers.lock);
}

bool hdi_buffer_of_now(const struct hd_buffer *b)
{
    const hdi_device *device = b->runtime->devices[b->owner];
    return atomic_load_explicit(&device->losses, memory_order_acquire) == hdi_buffer_losses(b);
}

void hdi_buffer_make_live(struct hd_buffer *b)
{
    hdi_mutex_lock(&hdi_buffer_of(b->runtime)->buffers.lock);
    /* Either this function sees that the device is lost, or buffers_lose sees the buffer. */
    bool lost = b->owner != HDI_OWNER_HOST && (hdi_device_lost(b->runtime->devices[b->owner]) || !hdi_buffer_of_now(b));
    uint64_t word = hdi_self_get(&b->self) & ~(HDI_SELF_DEAD | HDI_SELF_LOST);
    hdi_self_set(&b->self, lost ? word | HDI_SELF_LOST : word);
    b->making = false;
    hdi_mutex_unlock(&hdi_buffer_of(b->runtime)->buffers.lock);
}

hdi_taken hdi_buffer_take_lost_handle(struct hd_buffer *b, const hd_buffer *handle)
{
    hdi_buffers *list = &hdi_buffer_of(b->runtime)->buffers;
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

static bool buffer_has_memory(const struct hd_buffer *b)
{
    return b->handed || !(hdi_self_get(&b->self) & HDI_SELF_DEAD);
}

/* Does the work of hdi_buffers_each. `own`: also visits the library's own buffers. */
static void buffers_visit(hd_runtime *rt, bool own, bool (*visit)(void *context, struct hd_buffer *b), void *context)
{
    hdi_buffers *list = &hdi_buffer_of(rt)->buffers;
    bool more = true;
    /* a buffer that enters or leaves a magazine does not take the list's lock */
    hdi_thread_caches_freeze(rt);
    hdi_mutex_lock(&list->lock);
    int slabs = 0;
    /* New slabs come in front of the others, and slabs are never removed. */
    for (slab *s = list->slabs; s && more; s = s->next) {
        if (++slabs % SLABS_AT_ONCE == 0) {
            hdi_mutex_unlock(&list->lock);
            hdi_thread_caches_thaw(rt);
            hdi_thread_caches_freeze(rt);
            hdi_mutex_lock(&list->lock);
        }
        for (int i = 0; i < SLAB_BUFFERS && more; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            if (buffer_has_memory(b) && (own || !(b->special & HDI_BUFFER_OWN))) {
                more = visit(context, b);
            }
        }
    }
    hdi_mutex_unlock(&list->lock);
    hdi_thread_caches_thaw(rt);
}

void hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context)
{
    buffers_visit(rt, false, visit, context);
}

/* The list's lock is held, so no buffer in a hold ends. If another thread frees any other buffer
 * now, that thread waits for the order lock, or this function sees that the handle changed. */
static bool buffer_settle_record(void *context, struct hd_buffer *b)
{
    bool *settled = context;
    uint64_t word = hdi_self_get(&b->self);
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order);
    bool same = atomic_load_explicit(&b->self.word, memory_order_seq_cst) == word;
    if (same && hdi_uses_detached(&b->uses)) {
        *settled = false;
    } else if (same && buffer_has_memory(b)) {
        hdi_uses_settle(b->runtime, &b->uses, 0, b->uses.parts ? hdi_parts_end(b->uses.parts) : b->bytes);
    }
    hdi_lock_release(order);
    return *settled;
}

bool hdi_buffers_settle(hd_runtime *rt)
{
    bool settled = true;
    buffers_visit(rt, true, buffer_settle_record, &settled);
    return settled;
}

void hdi_buffers_lock(hd_runtime *rt)
{
    hdi_mutex_lock(&hdi_buffer_of(rt)->buffers.lock);
}

void hdi_buffers_unlock(hd_runtime *rt)
{
    hdi_mutex_unlock(&hdi_buffer_of(rt)->buffers.lock);
}

/* Marks all buffers of a lost device as lost. Any thread may call it. */
static void buffers_lose(hd_runtime *rt, hdi_device *device)
{
    hdi_buffers *list = &hdi_buffer_of(rt)->buffers;
    /* From here on no buffer of the device leaves a magazine. A buffer that left a magazine before
     * is live, and the loop below finds it. */
    hdi_thread_caches_drain(rt, device->index);
    hdi_mutex_lock(&list->lock);
    /* under the lock, so that no submission sees a loss of which only some buffers are marked */
    hdi_lock_take(&device->order);
    for (slab *s = list->slabs; s; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            uint64_t word = hdi_self_get(&b->self);
            if (!(word & (HDI_SELF_DEAD | HDI_SELF_LOST)) && b->owner == device->index &&
                hdi_self_change(&b->self, word, word | HDI_SELF_LOST)) {
                atomic_store_explicit(&b->losses, HDI_LOST, memory_order_release);
            } else if (b->handed && b->owner == device->index && hdi_buffer_losses(b) != HDI_LOST) {
                uint64_t held = hdi_buffer_is_imported(b) ? 0 : b->bytes;
                atomic_fetch_sub_explicit(&device->memory->held_bytes, held, memory_order_relaxed);
                atomic_store_explicit(&b->losses, HDI_LOST, memory_order_release);
            }
        }
    }
    hdi_lock_release(&device->order);
    hdi_mutex_unlock(&list->lock);
}

/* True if the buffer was lost with its device and may get its content back. The lock is held. */
static bool buffer_is_to_restore(struct hd_buffer *b, int device)
{
    uint64_t word = hdi_self_get(&b->self);
    return (word & HDI_SELF_LOST) && !(word & HDI_SELF_DEAD) && b->owner == device && b->kind && b->kind->content;
}

struct hd_buffer *hdi_buffers_next_to_restore(hd_runtime *rt, int device, const struct hd_buffer *after)
{
    hdi_buffers *list = &hdi_buffer_of(rt)->buffers;
    struct hd_buffer *found = NULL;
    bool behind = after == NULL;
    hdi_mutex_lock(&list->lock);
    for (slab *s = list->slabs; s && !found; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS && !found; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            if (behind && buffer_is_to_restore(b, device)) {
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
    hdi_mutex_lock(&hdi_buffer_of(rt)->buffers.lock);
    b->restoring = false;
    hdi_mutex_unlock(&hdi_buffer_of(rt)->buffers.lock);
}

static void buffers_close(hd_runtime *rt)
{
    /* a buffer that leaves a magazine changes its word without the lock */
    hdi_thread_caches_freeze(rt);
    hdi_mutex_lock(&hdi_buffer_of(rt)->buffers.lock);
    for (slab *s = hdi_buffer_of(rt)->buffers.slabs; s; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            hdi_self_close(&s->places[i].buffer.self);
        }
    }
    hdi_mutex_unlock(&hdi_buffer_of(rt)->buffers.lock);
    hdi_thread_caches_thaw(rt);
}

static void buffers_init(hd_runtime *rt)
{
    hdi_mutex_init(&hdi_buffer_of(rt)->buffers.lock, HDI_RANK_BUFFERS);
    rt->on_loss = buffers_lose;
}

static void buffers_release(hd_runtime *rt)
{
    hdi_buffers *list = &hdi_buffer_of(rt)->buffers;
    for (slab *s = list->slabs, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->places[i].buffer;
            hdi_uses_release(&b->uses); /* also frees the records of buffers in magazines */
            if (buffer_has_memory(b) && b->kind && b->kind->forget) {
                /* `forget` does not end the pinned buffers of the kind, since this loop also visits
                 * those buffers */
                b->kind->forget(b);
            }
        }
    }
    for (size_t i = 0; i < sizeof hdi_buffer_of(rt)->parts / sizeof hdi_buffer_of(rt)->parts[0]; i++) {
        hdi_parts_group_release(&hdi_buffer_of(rt)->parts[i]);
    }
    hdi_mutex_destroy(&list->lock);
}

const hdi_lifetime hdi_buffers_lifetime = {.init = buffers_init, .close = buffers_close, .release = buffers_release};

/* ---- handles ---- */

struct hd_buffer *hdi_buffer_from_stale_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_self_object(handle);
    if (!b || ((uintptr_t)handle & (HDI_SELF_DEAD | HDI_SELF_LOST))) {
        return NULL;
    }
    /* Without its flags, the word of a structure leads to that structure in every state. */
    uint64_t plain = hdi_self_get(&b->self) & ~(HDI_SELF_DEAD | HDI_SELF_LOST);
    bool is_one = plain == hdi_self_word(hdi_self_make(b, hdi_self_generation(plain)));
    return is_one && b->runtime ? b : NULL;
}

hd_status hdi_buffer_refused(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    if (b) {
        return hdi_loss_fail(b->runtime, b->owner, "the buffer's content was lost (hd_free it)");
    }
    const struct hd_buffer *stale = hdi_buffer_from_stale_handle(handle);
    hd_status status = stale && hdi_buffer_of(stale->runtime)->guarded
                           ? hdi_buffer_of(stale->runtime)->guarded->refuse(handle)
                           : HD_OK;
    if (status) {
        return status;
    }
    return hdi_handle_refused(handle, "buffer", "it was freed, or its runtime closed");
}

bool hdi_buffer_is_gone(const struct hd_buffer *b, const hd_buffer *handle)
{
    /* The check comes after all loads from the buffer: hd_free makes the handle stale before it
     * changes anything else. */
    atomic_thread_fence(memory_order_acquire);
    return hdi_buffer_from_handle(handle) != b;
}

hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_fail_pass(hdi_buffer_refused(handle));
    }
    if (offset > b->bytes || bytes > b->bytes - offset) {
        if (hdi_buffer_is_gone(b, handle)) {
            return hdi_buffer_refused(handle);
        }
        return hdi_fail(HD_ERROR_RANGE, "%zu bytes at offset %zu of a buffer of %llu bytes", bytes, offset,
                        (unsigned long long)b->bytes);
    }
    *out = b;
    return HD_OK;
}

size_t hd_buffer_size(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    return b ? b->bytes : 0;
}

int hd_buffer_device(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    return b ? b->owner : -2;
}

uint64_t hd_buffer_address(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    return b ? b->address : 0;
}

#define DETACHED_SLEEP_NS 10000

/* True if the handle still leads to this buffer, even if the buffer was lost. The order lock is
 * held. Seq_cst, like hd_free's change of the handle. */
static bool buffer_is_still(const struct hd_buffer *b, const hd_buffer *handle)
{
    uint64_t word = atomic_load_explicit(&b->self.word, memory_order_seq_cst);
    return !handle || (word & ~HDI_SELF_LOST) == hdi_self_word(handle);
}

bool hdi_buffer_uses_lock_of(struct hd_buffer *b, const hd_buffer *handle)
{
    /* If another buffer uses the structure by now, `order` may name the wrong lock. If the handle
     * is still good after the thread took the lock, the lock is the right one. */
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order);
    bool still = buffer_is_still(b, handle);
    while (__builtin_expect(still && hdi_uses_detached(&b->uses), 0)) {
        hdi_lock_release(order);
        hdi_sleep_for(DETACHED_SLEEP_NS);
        hdi_lock_take(order);
        still = buffer_is_still(b, handle);
    }
    if (!still) {
        hdi_lock_release(order);
    }
    return still;
}

void hdi_buffer_uses_lock(struct hd_buffer *b)
{
    hdi_buffer_uses_lock_of(b, NULL);
}

void hdi_record_release(struct hd_buffer *b)
{
    hdi_parts *parts = b->uses.parts;
    if (parts) {
        hdi_buffer_uses_lock(b);
        parts = hdi_parts_leave(parts);
        b->uses.parts = NULL;
        hdi_buffer_uses_unlock(b);
        hdi_parts_free(parts);
    } else {
        hdi_uses_release(&b->uses);
    }
}

#define WAITED_AT_ONCE 64

/* The arguments and results of one check of a buffer's record. */
typedef struct look {
    struct hd_buffer *b;
    const hd_buffer *handle;
    uint64_t low, high;
    unsigned access;
    hdi_point pending[WAITED_AT_ONCE]; /* unfinished uses, at most one per lane */
    size_t n;
    hdi_point failed; /* a failed writer of some of the bytes; only if nothing is pending */
} look;

/* Called if nothing is pending, and the host replaces the bytes. Removes the failed writer of these
 * bytes from the record. The lock is held. */
static void buffer_drop_failed(const look *l, hdi_leaf **garbage)
{
    struct hd_buffer *b = l->b;
    /* If there is no memory to split the segment, the failed writer stays in the record. Later
     * reads then fail, which is safe. */
    if (hdi_uses_prepare(b->runtime, &b->uses, b->order, l->low, l->high, true)) {
        hdi_uses_commit(&b->uses, l->low, l->high, true, (hdi_point){0, 0}, garbage);
    }
}

/* False: the handle is stale. */
static bool buffer_look_for_pending(look *l)
{
    struct hd_buffer *b = l->b;
    hd_runtime *rt = b->runtime;
    hdi_leaf *garbage = NULL;
    if (!hdi_buffer_uses_lock_of(b, l->handle)) {
        return false;
    }
    bool detached = hdi_uses_is_long(&b->uses, l->low, l->high);
    if (detached) { /* the record was walked without the lock; hd_free waits while it is detached */
        b->uses.parts->detached = true;
        hdi_buffer_uses_unlock(b);
        hdi_uses_settle_detached(rt, &b->uses, l->low, l->high);
    } else {
        hdi_uses_settle(rt, &b->uses, l->low, l->high);
    }
    size_t n = hdi_uses_pending(rt, &b->uses, l->low, l->high, (l->access & HD_WRITE) != 0, l->pending, WAITED_AT_ONCE);
    l->n = n < WAITED_AT_ONCE ? n : WAITED_AT_ONCE;
    l->failed = n ? (hdi_point){0, 0} : hdi_uses_failed_writer(rt, &b->uses, l->low, l->high);
    if (detached) {
        hdi_lock_take(hdi_order_lock(rt, b->order));
        b->uses.parts->detached = false;
    }
    if (n == 0 && (l->access & HDI_ACCESS_REPLACES)) {
        buffer_drop_failed(l, &garbage);
    }
    hdi_buffer_uses_unlock(b);
    hdi_leaves_free(garbage);
    return true;
}

hd_status hdi_buffer_settle(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, unsigned access,
                            int64_t deadline)
{
    look l;
    l.b = b;
    l.handle = handle;
    l.low = low;
    l.high = high;
    l.access = access;
    for (;;) {
        if (!buffer_look_for_pending(&l)) {
            return hdi_buffer_refused(handle);
        }
        if (l.n == 0) {
            bool bad = l.failed.position && (access & HD_READ);
            return bad ? hdi_position_status(b->runtime, l.failed.lane, l.failed.position) : HD_OK;
        }
        for (size_t i = 0; i < l.n; i++) {
            if (!hdi_wait_position(b->runtime, l.pending[i].lane, l.pending[i].position, deadline)) {
                return hdi_not_done(b->runtime, l.pending[i].lane, deadline == 0 ? 0 : l.pending[i].position,
                                    "work on the buffer is not done");
            }
        }
    }
}

hdi_point hdi_buffer_awaited(struct hd_buffer *b)
{
    hdi_point point = {0, 0};
    hdi_buffer_uses_lock(b);
    size_t n = hdi_uses_pending(b->runtime, &b->uses, 0, b->bytes, true, &point, 1);
    hdi_buffer_uses_unlock(b);
    return n ? point : (hdi_point){0, 0};
}

unsigned hdi_buffer_state(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_buffer_uses_lock(b);
    unsigned state = hdi_uses_state(b->runtime, &b->uses, low, high);
    hdi_buffer_uses_unlock(b);
    return state;
}

uint64_t hdi_buffer_alike_until(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_buffer_uses_lock(b);
    uint64_t end = hdi_uses_alike_until(b->runtime, &b->uses, low, high);
    hdi_buffer_uses_unlock(b);
    return end;
}

hd_status hdi_access_check(hd_access access)
{
    if (access != HD_READ && access != HD_WRITE && access != HD_READ_WRITE) {
        return hdi_fail(HD_ERROR_ARGUMENT, "access is %d, not HD_READ, HD_WRITE or HD_READ_WRITE", (int)access);
    }
    return HD_OK;
}

hd_status hd_buffer_wait(hd_buffer *handle, hd_access access, int64_t timeout_ns)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, &b);
    status = status ? status : hdi_access_check(access);
    if (!status && timeout_ns < HD_FOREVER) {
        return hdi_limit_refused(timeout_ns);
    }
    return status ? status
                  : hdi_buffer_settle(b, handle, 0, b->bytes, access, timeout_ns ? hdi_deadline(timeout_ns) : 0);
}

/* ---- names, and the list for the program ---- */

hd_status hd_buffer_set_label(hd_buffer *handle, const char *label)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle);
    }
    char text[HD_LABEL_BYTES] = "";
    if (label) {
        hdi_utf8_copy(text, sizeof text, label);
    }
    hdi_buffers_lock(b->runtime);
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    /* hd_free waits for this lock; without the lock, this thread could set the label of the
     * structure's next owner */
    hdi_lock_take(order);
    bool there = atomic_load_explicit(&b->self.word, memory_order_seq_cst) == hdi_self_word(handle);
    if (there) {
        memcpy(b->label, text, sizeof b->label);
    }
    hdi_lock_release(order);
    if (there && hdi_records(&b->runtime->recorder)) {
        hdi_buffer_record_label(b);
    }
    hdi_buffers_unlock(b->runtime);
    if (!there) {
        return hdi_buffer_refused(handle);
    }
    if (b->owner != HDI_OWNER_HOST) {
        hdi_maintenance_look(b->runtime, b->runtime->devices[b->owner]); /* publishes the label */
    }
    return HD_OK;
}

typedef struct copy {
    hd_memory_block *blocks; /* NULL: the walk only counts the buffers */
    size_t count, room;
} copy;

static bool buffer_add_block(void *context, struct hd_buffer *b)
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
            .imported = hdi_buffer_is_imported(b) && !hdi_buffer_is_piece(b),
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
    hdi_buffers_each(rt, buffer_add_block, &c);
    /* More buffers may appear while no lock is held. In that case this function tries again with
     * more room. */
    for (size_t need = c.count; need > c.room; need = c.count) {
        size_t room = need + need / 8 + 16;
        hd_memory_block *more = realloc(c.blocks, room * sizeof *more);
        if (!more) {
            free(c.blocks);
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of %zu buffers", need);
        }
        c = (copy){.blocks = more, .room = room};
        hdi_buffers_each(rt, buffer_add_block, &c);
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
