/* map.c - access by the host: hd_map, hd_unmap, hd_element.
 *
 * hd_element is a few loads where `readable` or `writable` of the buffer shows that nothing is pending (buffer.h).
 * Else it waits for the work, and then sets them.
 *
 * Threads: any.
 * Locks: the order lock of a pinned buffer, the mirror's of a unified one; none where nothing is pending.
 * Blocking: hd_map and hd_element, until work on the bytes is done (option transfer_timeout).
 * Always: hd_element takes no lock while nothing is pending.
 */
#include <heddle/unified.h>

#include "base/error.h"
#include "buffer/hold.h"
#include "buffer/kind.h"
#include "engine/engine.h"

static hd_status fail_device_memory(const struct hd_buffer *b, const hd_buffer *handle)
{
    int owner = b->owner;
    if (hdi_buffer_is_gone(b, handle)) {
        return hdi_buffer_refused(handle);
    }
    return hdi_fail(HD_ERROR_ACCESS,
                    "this is memory of device %d, which the CPU cannot use: hd_read and hd_write copy it; memory of "
                    "hd_alloc_unified both can use",
                    owner);
}

/* Bytes that are only written are replaced. */
static unsigned for_host(hd_access access)
{
    return access == HD_WRITE ? HD_WRITE | HDI_ACCESS_REPLACES : (unsigned)access;
}

static int64_t deadline_of(const struct hd_buffer *b)
{
    return hdi_option_deadline(b->runtime->options.transfer_timeout);
}

/* ---- mapping ---- */

static hd_status map_pinned(struct hd_buffer *b, hd_access access, int64_t deadline)
{
    return hdi_buffer_settle(b, NULL, 0, b->bytes, for_host(access), deadline);
}

hd_status hd_map(hd_buffer *handle, hd_access access, void **out)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, &b);
    status = status ? status : hdi_access_check(access);
    if (status) {
        return status;
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    const hdi_buffer_ops *kind = b->kind;
    if (!kind || !kind->map) {
        return fail_device_memory(b, handle);
    }
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    status = kind->map(b, access, deadline_of(b));
    if (!status) {
        *out = b->host;
    }
    hdi_hold_end(b);
    return status;
}

hd_status hd_unmap(hd_buffer *handle)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle);
    }
    const hdi_buffer_ops *kind = b->kind;
    if (kind && kind->unmap && hdi_hold_begin(b, hdi_self_word(handle))) {
        kind->unmap(b);
        hdi_hold_end(b);
    }
    return HD_OK;
}

/* ---- elements ---- */

/* Notes what the program may do with all of a pinned buffer, if nothing is pending anywhere in it. */
static void note_pinned(struct hd_buffer *b, const hd_buffer *handle)
{
    if (!hdi_record_lock_of(b, handle)) {
        return;
    }
    /* A record of several segments is not walked for every element. Each call prunes a part of it, so it has one segment again when all is
     * done. */
    hdi_uses_prune(b->runtime, &b->uses, b->order);
    unsigned state = b->uses.parts ? HDI_USES_WRITTEN : hdi_uses_state(b->runtime, &b->uses, 0, b->bytes);
    /* these pair with the acquire loads of hd_element: it sees what the work wrote */
    if (!(state & (HDI_USES_WRITTEN | HDI_USES_FAILED))) {
        atomic_store_explicit(&b->readable, 1, memory_order_release);
        atomic_store_explicit(&b->writable, !(state & HDI_USES_READ), memory_order_release);
    }
    hdi_record_unlock(b);
}

static hd_status bring_pinned(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                              hd_access access, int64_t deadline)
{
    hd_status status = hdi_buffer_settle(b, handle, low, high, for_host(access), deadline);
    if (!status) {
        note_pinned(b, handle);
    }
    return status;
}

const hdi_buffer_ops hdi_pinned_ops = {.map = map_pinned, .bring = bring_pinned};

static hd_status bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, hd_access access)
{
    const hdi_buffer_ops *kind = b->kind;
    if (!kind || !kind->bring) {
        return fail_device_memory(b, handle);
    }
    return kind->bring(b, handle, low, high, access, deadline_of(b));
}

/* Whether all chunks of [low, high) are in the mask. */
static bool has_all(const struct hd_buffer *b, uint64_t ready, uint64_t low, uint64_t high)
{
    uint64_t first = low >> b->chunk_shift, last = (high - 1) >> b->chunk_shift;
    uint64_t wanted = (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
    return (ready & wanted) == wanted;
}

static void *__attribute__((noinline)) element_slow(hd_buffer *handle, size_t offset, size_t bytes, hd_access access)
{
    HDI_INSIDE_AS(hdi_buffer_runtime(handle), "hd_element");
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, &b);
    status = status ? status : hdi_access_check(access);
    if (!status && bytes == 0) {
        status = hdi_fail(HD_ERROR_ARGUMENT, "bytes is 0");
    }
    if (status) {
        return NULL;
    }
    uint64_t ready = atomic_load_explicit(access & HD_WRITE ? &b->writable : &b->readable, memory_order_acquire);
    if (!has_all(b, ready, offset, offset + bytes) && bring(b, handle, offset, offset + bytes, access)) {
        return NULL;
    }
    unsigned char *host = b->host;
    if (hdi_buffer_is_gone(b, handle)) {
        hdi_buffer_refused(handle);
        return NULL;
    }
    return host + offset;
}

void *hd_element(hd_buffer *handle, size_t offset, size_t bytes, hd_access access)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (__builtin_expect(b && (offset < b->bytes) & (bytes - 1 < b->bytes - offset) & ((unsigned)access - 1 < 3), 1)) {
        uint64_t first = offset >> b->chunk_shift, last = (offset + bytes - 1) >> b->chunk_shift;
        /* pairs with the release store that notes that nothing is pending */
        uint64_t ready = atomic_load_explicit(access & HD_WRITE ? &b->writable : &b->readable, memory_order_acquire);
        if (__builtin_expect((first == last) & (ready >> first & 1), 1)) {
            return b->host + offset;
        }
    }
    return element_slow(handle, offset, bytes, access);
}
