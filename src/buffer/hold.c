/* hold.c - holds, which keep memory in place after hd_free.
 *
 * Recordings, captured graphs, calls that use memory in several steps, and consumers outside of the
 * library need holds. They use memory by its address for longer than one operation.
 *
 * Threads: any.
 * Locks: the lock of the buffer list guards a buffer's count of holds; a mutex guards the holds. A
 * thread takes the mutex first.
 * Blocking: if hd_hold_destroy ends the last hold of a guarded buffer, it waits for the work on the
 * buffer (guard.c).
 * Always: a structure with holds is in no magazine and no free list. If a buffer is in no hold,
 * hd_free gives the memory back. Otherwise the thread that ends the last hold gives the memory
 * back. The lock of the list guards this choice.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "buffer/buffer.h"
#include "buffer/part.h"
#include "engine/engine.h"

enum { NAMED_MOST = 3 }; /* how many exports the message of hd_close names at most */

struct hd_hold {
    hdi_handle_head head;
    hd_runtime *runtime;
    struct hd_hold *next, *next_free;
    struct hd_buffer **buffers;
    size_t count, room;
    /* a consumer outside of the library uses the memory; under the mutex for the holds */
    bool outside;
    char label[HD_LABEL_BYTES];
};

static void holds_init(hd_runtime *rt)
{
    hdi_mutex_init(&hdi_buffer_of(rt)->holds.lock, HDI_RANK_HOLDS);
}

static void holds_release(hd_runtime *rt)
{
    hdi_holds *holds = &hdi_buffer_of(rt)->holds;
    for (struct hd_hold *h = holds->all, *next; h; h = next) {
        next = h->next;
        free(h->buffers);
    }
    hdi_mutex_destroy(&holds->lock);
}

static void holds_close(hd_runtime *rt)
{
    hdi_mutex_lock(&hdi_buffer_of(rt)->holds.lock);
    for (struct hd_hold *h = hdi_buffer_of(rt)->holds.all; h; h = h->next) {
        hdi_handle_close(&h->head);
    }
    hdi_mutex_unlock(&hdi_buffer_of(rt)->holds.lock);
}

const hdi_lifetime hdi_holds_lifetime = {.init = holds_init, .close = holds_close, .release = holds_release};

/* For HDI_INSIDE, which runs before the handle is checked. Only compare the result. */
static const void *hold_runtime(const hd_hold *handle)
{
    const struct hd_hold *h = hdi_handle_object(handle);
    return h ? h->runtime : NULL;
}

static struct hd_hold *hold_from_handle(const hd_hold *handle)
{
    struct hd_hold *h = hdi_handle_object(handle);
    return h && hdi_handle_fits(handle, &h->head, HDI_HOLD_MAGIC) ? h : NULL;
}

static void hold_set_dead(struct hd_hold *h, uint16_t generation)
{
    hdi_handle_set(&h->head, HDI_HOLD_MAGIC, generation, HDI_HANDLE_DEAD);
}

/* `label`: the name of a hold for a consumer outside of the library; NULL: the hold is not for such
 * a consumer. */
static hd_status hold_make(hd_runtime *rt, const char *label, hd_hold **out)
{
    hdi_holds *holds = &hdi_buffer_of(rt)->holds;
    hdi_mutex_lock(&holds->lock);
    struct hd_hold *h = holds->free_list;
    if (h) {
        holds->free_list = h->next_free;
    } else {
        h = hdi_stable_take(rt->stable, sizeof *h);
        if (h) {
            hold_set_dead(h, HDI_HANDLE_FIRST);
            /* never changes: a thread with an earlier handle of this structure may read it */
            h->runtime = rt;
            h->next = holds->all;
            holds->all = h;
        }
    }
    if (h) {
        h->count = 0;
        h->outside = label != NULL;
        hdi_utf8_copy(h->label, sizeof h->label, label ? label : "");
        hdi_handle_begin(rt, &h->head, HDI_HOLD_MAGIC);
        *out = hdi_handle_make(h, hdi_handle_head_generation(&h->head));
    }
    hdi_mutex_unlock(&holds->lock);
    return h ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}

hd_status hd_hold_create(hd_runtime *rt, hd_hold **out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    return hdi_runtime_is_open(rt) ? hold_make(rt, NULL, out) : hdi_runtime_refused(rt);
}

hd_status hdi_hold_create_outside(hd_runtime *rt, const char *label, hd_hold **out)
{
    HDI_INSIDE(rt);
    return hdi_runtime_is_open(rt) ? hold_make(rt, label, out) : hdi_runtime_refused(rt);
}

/* Writes the message about exports that are still out, whose labels are `names`. If hd_close
 * already left something else, adds the message to that report. */
static void holds_tell(const char *names, uint32_t count, uint32_t named, hd_error *left)
{
    char more[32] = "";
    if (left->status == HD_OK) {
        *left = hdi_error_blank(HD_ERROR_TIMEOUT);
    }
    if (count > named) {
        snprintf(more, sizeof more, " and %u more", (unsigned)(count - named));
    }
    size_t length = strlen(left->message);
    snprintf(left->message + length, sizeof left->message - length,
             "%sexport%s %s%s of DLPack without order %s still out: %s not called; %s memory is left as it is until "
             "the program ends",
             length ? "; " : "", count > 1 ? "s" : "", names, more, count > 1 ? "are" : "is",
             count > 1 ? "their deleters were" : "its deleter was", count > 1 ? "their" : "its");
}

bool hdi_holds_abandon(hd_runtime *rt, hd_error *left)
{
    char names[NAMED_MOST * (HD_LABEL_BYTES + 4)] = "";
    size_t length = 0;
    uint32_t count = 0;
    hdi_holds *holds = &hdi_buffer_of(rt)->holds;
    hdi_mutex_lock(&holds->lock);
    for (const struct hd_hold *h = holds->all; h; h = h->next) {
        if (!h->outside || h->count == 0) {
            continue;
        }
        if (count < NAMED_MOST) {
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%s'", count ? ", " : "", h->label);
        }
        count++;
    }
    hdi_mutex_unlock(&holds->lock);
    if (count && left && (left->status == HD_OK || left->status == HD_ERROR_TIMEOUT)) {
        holds_tell(names, count, count < NAMED_MOST ? count : NAMED_MOST, left);
    }
    return count != 0;
}

static bool hold_has_word(const struct hd_buffer *b, uint64_t word, uint64_t aside)
{
    return word == 0 || (atomic_load_explicit(&b->self.word, memory_order_seq_cst) & ~aside) == word;
}

/* Adds one hold. The list's lock is held. False: the handle whose word is `word` is stale. `aside`:
 * bits of the word to ignore. */
static bool hold_add_one(struct hd_buffer *b, uint64_t word, uint64_t aside)
{
    bool good = hold_has_word(b, word, aside);
    if (good && !(b->special & HDI_BUFFER_HELD)) {
        /* hd_free first makes the handle stale, and then checks HELD. This thread first sets HELD,
         * and then checks the handle. So either hd_free sees HELD and calls hdi_hold_keeps, or this
         * thread sees the stale handle. */
        b->special |= HDI_BUFFER_HELD;
        good = hold_has_word(b, word, aside);
    }
    b->holds += good;
    return good;
}

/* Makes room for one more buffer. The mutex for the holds is held. */
static bool hold_make_room(struct hd_hold *h)
{
    if (h->count < h->room) {
        return true;
    }
    size_t room = h->room ? h->room * 2 : 16;
    struct hd_buffer **buffers = realloc(h->buffers, room * sizeof(struct hd_buffer *));
    if (buffers) {
        h->buffers = buffers;
        h->room = room;
    }
    return buffers != NULL;
}

static hd_status hold_fail_stale(const hd_hold *handle)
{
    return hdi_handle_refused(handle, "hold", "it was destroyed, or its runtime closed");
}

hd_status hd_hold_add(hd_hold *handle, hd_buffer *buffer)
{
    HDI_INSIDE(hold_runtime(handle));
    struct hd_hold *h = hold_from_handle(handle);
    if (!h) {
        return hold_fail_stale(handle);
    }
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(buffer, 0, 0, &b);
    if (status) {
        return status;
    }
    if (b->runtime != h->runtime) {
        return hdi_fail(HD_ERROR_HANDLE, "the buffer is of another runtime than the hold");
    }
    if (hdi_buffer_is_borrowed(b)) {
        return hdi_buffer_is_gone(b, buffer)
                   ? hdi_buffer_refused(buffer)
                   : hdi_fail(HD_ERROR_UNSUPPORTED,
                              "the buffer is a variable of a module, which keeps its address until hd_module_unload; "
                              "it takes no hold");
    }
    hdi_holds *holds = &hdi_buffer_of(h->runtime)->holds;
    hdi_mutex_lock(&holds->lock);
    if (!hold_from_handle(handle)) {
        hdi_mutex_unlock(&holds->lock);
        return hdi_fail(HD_ERROR_HANDLE, "the hold was destroyed meanwhile");
    }
    bool again = h->count != 0 && h->buffers[h->count - 1] == b && hdi_buffer_from_handle(buffer) == b;
    bool room = again || hold_make_room(h);
    bool stale = false;
    /* a program may add the same buffer for each launch of a recording; only the first addition
     * needs room */
    if (room && !again) {
        hdi_buffers_lock(h->runtime);
        stale = !hold_add_one(b, hdi_self_word(buffer), 0);
        if (!stale) {
            h->buffers[h->count++] = b;
        }
        hdi_buffers_unlock(h->runtime);
    }
    hdi_mutex_unlock(&holds->lock);
    if (stale) {
        return hdi_buffer_refused(buffer);
    }
    return room ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}

/* Adds to the count of the device's held bytes. The list's lock is held. Buffers lost with their
 * device do not count (buffers_lose). */
static void hold_count_bytes(const struct hd_buffer *b, uint64_t more)
{
    if (hdi_buffer_is_of_arena(b) && hdi_buffer_losses(b) != HDI_LOST) {
        hdi_counts_add(&b->runtime->devices[b->owner]->memory->held_bytes, more);
    }
}

bool hdi_hold_keeps(struct hd_buffer *b)
{
    if (!(b->special & HDI_BUFFER_HELD)) {
        return false;
    }
    hdi_buffers_lock(b->runtime);
    bool keeps = b->holds != 0;
    if (keeps) {
        b->handed = true;
        hold_count_bytes(b, b->bytes);
    }
    hdi_buffers_unlock(b->runtime);
    return keeps;
}

/* Removes one hold. True: the caller gives the memory back now. HDI_BUFFER_HELD stays set, so an
 * hd_free under way on another thread always calls hdi_hold_keeps. */
static bool hold_let_go(struct hd_buffer *b)
{
    hdi_buffers_lock(b->runtime);
    bool ours = --b->holds == 0 && b->handed;
    if (ours) {
        hold_count_bytes(b, -b->bytes);
        b->handed = false;
    }
    hdi_buffers_unlock(b->runtime);
    return ours;
}

bool hdi_hold_begin(struct hd_buffer *b, uint64_t word)
{
    hdi_buffers_lock(b->runtime);
    bool good = hold_add_one(b, word, HDI_SELF_LOST);
    hdi_buffers_unlock(b->runtime);
    return good;
}

void hdi_hold_end(struct hd_buffer *b)
{
    if (hold_let_go(b)) {
        hdi_buffer_end(b);
    }
}

hd_status hd_hold_destroy(hd_hold *handle)
{
    HDI_INSIDE(hold_runtime(handle));
    struct hd_hold *h = hold_from_handle(handle);
    if (!h) {
        return handle ? hold_fail_stale(handle) : HD_OK;
    }
    hdi_holds *holds = &hdi_buffer_of(h->runtime)->holds;
    hdi_mutex_lock(&holds->lock);
    bool ours = hold_from_handle(handle) != NULL;
    if (ours) {
        hold_set_dead(h, (uint16_t)(hdi_handle_generation(handle) + 1));
        h->outside = false;
    }
    hdi_mutex_unlock(&holds->lock);
    if (!ours) {
        return hold_fail_stale(handle);
    }
    for (size_t i = 0; i < h->count; i++) {
        hdi_hold_end(h->buffers[i]);
    }
    hdi_mutex_lock(&holds->lock);
    /* generation 0: every handle of this structure was given out once */
    if (hdi_handle_head_generation(&h->head) != 0) {
        h->next_free = holds->free_list;
        holds->free_list = h;
    }
    hdi_mutex_unlock(&holds->lock);
    return HD_OK;
}
