/* copy.c - hd_claim_read and hd_claim_write, which copy the bytes of a claim while the claim is
 * open.
 *
 * The use record of a buffer contains the claim. So an ordinary copy of claimed bytes would wait
 * for the claim. A claim with copies therefore has aliases. An alias is a buffer of the library
 * over the device memory of one use, with a use record of its own. Copies of an alias wait for each
 * other, but not for the claim. The claim ends after the last copy of its aliases, so later work on
 * the bytes comes after these copies.
 *
 * Threads: any.
 * Locks: the order lock of an alias, held for a moment.
 * Blocking: a copy waits as hd_copy does. Aliases end when the claim ends. Only if another thread
 * submits a copy at that moment, the end waits for this copy.
 * Always: the loss of a device ends its aliases, as it ends all buffers of that device. A copy that
 * found the claim before it ended, but is submitted after that, fails with HANDLE.
 */
#include <stdlib.h>
#include <heddle/claim.h>
#include "base/error.h"
#include "claim/claim.h"
#include "transfer/transfer.h"

/* Both fields are atomic, since two threads may end a claim. The slower one, or a copy that comes
 * too late, may still read them when the next claim in the lane begins. */
struct hdi_claim_alias {
    _Atomic(hd_buffer *) buffer; /* NULL: no device memory */
    _Atomic bool writes;
};

static hd_buffer *claim_alias_at(const struct hd_claim *c, uint32_t i)
{
    return atomic_load_explicit(&c->aliases[i].buffer, memory_order_relaxed);
}

/* Makes the alias of one use of device memory. */
static hd_status claim_alias_make(struct hd_claim *c, const hdi_use *use, struct hdi_claim_alias *alias)
{
    hd_runtime *rt = c->runtime;
    hdi_device *device = rt->devices[use->buffer->owner];
    struct hd_buffer *b = hdi_buffer_take(rt);
    hd_status status = b ? hdi_buffer_borrow(b, device, use->buffer->address + use->low, use->high - use->low,
                                             use->losses, HDI_BUFFER_BORROWED | HDI_BUFFER_OWN)
                         : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a claim with copies");
    if (status) {
        if (b) {
            hdi_buffer_give(rt, b);
        }
        return status;
    }
    hdi_buffer_make_live(b);
    atomic_store_explicit(&alias->buffer, hdi_buffer_handle(b), memory_order_relaxed);
    return HD_OK;
}

hd_status hdi_claim_aliases_make(struct hd_claim *c, const hdi_use *uses, size_t n_uses)
{
    if (!c->aliases) {
        c->aliases = calloc(HDI_USES_OF_ONE, sizeof *c->aliases);
    }
    if (!c->aliases) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a claim with copies");
    }
    hd_status status = HD_OK;
    uint32_t n = 0;
    while (n < n_uses && !status) {
        const hdi_use *use = &uses[n];
        bool on_device = use->buffer->owner != HDI_OWNER_HOST && !use->buffer->host;
        atomic_store_explicit(&c->aliases[n].writes, use->write, memory_order_relaxed);
        atomic_store_explicit(&c->aliases[n].buffer, NULL, memory_order_relaxed);
        status = on_device ? claim_alias_make(c, use, &c->aliases[n]) : HD_OK;
        n++;
    }
    atomic_store_explicit(&c->n_aliases, n, memory_order_release);
    if (status) {
        hdi_claim_aliases_end(c);
    }
    return status;
}

void hdi_claim_aliases_end(struct hd_claim *c)
{
    uint32_t n = atomic_load_explicit(&c->n_aliases, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        hd_buffer *alias = claim_alias_at(c, i);
        if (alias) {
            hdi_buffer_end_borrowed(alias);
        }
    }
    atomic_store_explicit(&c->n_aliases, 0, memory_order_relaxed);
}

/* An unfinished copy of use `i`; position 0: there is none. */
static hdi_point claim_alias_awaited(const struct hd_claim *c, uint32_t i)
{
    hdi_point point = {0, 0};
    hd_buffer *alias = claim_alias_at(c, i);
    struct hd_buffer *b = alias ? hdi_buffer_of_own_handle(alias) : NULL;
    if (b && hdi_buffer_uses_lock_of(b, alias)) {
        size_t n = hdi_uses_pending(b->runtime, &b->uses, 0, b->bytes, true, &point, 1);
        point = n ? point : (hdi_point){0, 0};
        hdi_buffer_uses_unlock(b);
    }
    return point;
}

hd_status hdi_claim_aliases_await(struct hd_claim *c, const hd_claim *handle)
{
    hd_runtime *rt = c->runtime;
    int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
    uint32_t i = 0;
    while (i < atomic_load_explicit(&c->n_aliases, memory_order_acquire) && hdi_claim_from_handle(handle) == c) {
        hdi_point copy = claim_alias_awaited(c, i);
        if (copy.position == 0) {
            i++;
        } else if (!hdi_wait_position(rt, copy.lane, copy.position, deadline)) {
            return hdi_not_done(rt, copy.lane, copy.position,
                                "a copy of use %u is unfinished, so the claim stays open (option transfer_timeout)",
                                (unsigned)i);
        }
    }
    return HD_OK;
}

/* ---- the program's calls ---- */

/* Fails unless use `index` of the claim may be copied now. */
static hd_status claim_copy_check(struct hd_claim *c, size_t index, bool writes)
{
    hd_status status = hdi_claim_await(c, 0);
    if (status) {
        return status;
    }
    uint32_t n = atomic_load_explicit(&c->n_aliases, memory_order_acquire);
    if (n == 0 && c->n_uses != 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the claim has no copies; begin it with hd_claim_options.copies");
    }
    if (index >= n) {
        return hdi_fail(HD_ERROR_RANGE, "use %zu of a claim of %u", index, (unsigned)n);
    }
    if (!claim_alias_at(c, (uint32_t)index)) {
        return hdi_fail(HD_ERROR_ACCESS, "use %zu is memory that the CPU can use; hd_claim_get_pointer has its address",
                        index);
    }
    if (writes && !atomic_load_explicit(&c->aliases[index].writes, memory_order_relaxed)) {
        return hdi_fail(HD_ERROR_ACCESS, "the claim only reads use %zu; pass hd_out or hd_inout when it begins", index);
    }
    return HD_OK;
}

/* Copies between the alias of a use and another buffer. */
static hd_status claim_copy(hd_claim *handle, size_t index, size_t offset, hd_buffer *other, size_t other_offset,
                            size_t bytes, bool writes, hd_ticket *out)
{
    struct hd_claim *c = hdi_claim_from_handle(handle);
    struct hd_buffer *alias = NULL, *b = NULL;
    if (!c) {
        return hdi_claim_refused(handle);
    }
    hd_status status = claim_copy_check(c, index, writes);
    if (status) {
        return hdi_claim_from_handle(handle) == c ? status : hdi_claim_refused(handle);
    }
    hd_buffer *of_use = claim_alias_at(c, (uint32_t)index);
    status = hdi_buffer_check(of_use, offset, bytes, &alias);
    if (status) {
        return hdi_claim_from_handle(handle) == c ? hdi_fail_about(status, "use %zu", index)
                                                  : hdi_claim_refused(handle);
    }
    status = hdi_buffer_check(other, other_offset, bytes, &b);
    if (!status && b->runtime != c->runtime) {
        status = hdi_fail(HD_ERROR_HANDLE, "the buffer belongs to another runtime");
    }
    if (status) {
        return hdi_fail_about(status, writes ? "src" : "dst");
    }
    hdi_box box = hdi_box_of_bytes(bytes);
    const hdi_place claimed = hdi_place_of_handle(alias, of_use), place = hdi_place_of_handle(b, other);
    hdi_transfer t = {.box = &box,
                      .to = writes ? claimed : place,
                      .from = writes ? place : claimed,
                      .dst_offset = writes ? offset : other_offset,
                      .src_offset = writes ? other_offset : offset};
    hd_ticket ticket = {NULL, 0};
    status = bytes ? hdi_transfer_run(&t, &ticket) : HD_OK;
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_claim_read(hd_claim *handle, size_t index, size_t offset, hd_buffer *dst, size_t dst_offset, size_t bytes,
                        hd_ticket *out)
{
    HDI_INSIDE(hdi_claim_runtime(handle));
    return claim_copy(handle, index, offset, dst, dst_offset, bytes, false, out);
}

hd_status hd_claim_write(hd_claim *handle, size_t index, size_t offset, hd_buffer *src, size_t src_offset, size_t bytes,
                         hd_ticket *out)
{
    HDI_INSIDE(hdi_claim_runtime(handle));
    return claim_copy(handle, index, offset, src, src_offset, bytes, true, out);
}
