/* buffer.c - looking at buffers, waiting for them.
 *
 * Threads: any. Locks: the order lock of a buffer, for its use record.
 */
#include "data/buffer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "data/guard.h"
#include "engine/engine.h"

hd_status hdi_buffer_refused(const hd_buffer *handle, const char *who)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    if (b) {
        return hdi_loss_fail(b->runtime, b->owner, who, "the buffer's content was lost (hd_free it)");
    }
    hd_status status = handle ? hdi_guard_refused(handle, who) : HD_OK;
    if (status) {
        return status;
    }
    return hdi_fail(HD_ERROR_HANDLE, "%s: %s", who,
                    handle ? "the buffer was freed, or is not a buffer" : "the buffer is null");
}

bool hdi_buffer_is_gone(const struct hd_buffer *b, const hd_buffer *handle)
{
    /* Behind all that was looked at; whoever frees the buffer takes its handle away before anything else changes. */
    atomic_thread_fence(memory_order_acquire);
    return hdi_buffer_from_handle(handle) != b;
}

hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, const char *who,
                           struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle, who);
    }
    if (offset > b->bytes || bytes > b->bytes - offset) {
        if (hdi_buffer_is_gone(b, handle)) {
            return hdi_buffer_refused(handle, who);
        }
        return hdi_fail(HD_ERROR_RANGE, "%s: %zu bytes at offset %zu of a buffer of %llu bytes", who, bytes, offset,
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

#define CLAIM_NAP_NS 10000

void hdi_record_lock(struct hd_buffer *b)
{
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order);
    while (__builtin_expect(hdi_uses_claimed(&b->uses), 0)) {
        hdi_lock_release(order);
        hdi_nap(CLAIM_NAP_NS);
        hdi_lock_take(order);
    }
}

void hdi_record_release(struct hd_buffer *b)
{
    hdi_parts *parts = b->uses.parts;
    if (parts) {
        hdi_record_lock(b);
        hdi_parts_leave(parts);
        b->uses.parts = NULL;
        hdi_record_unlock(b);
        hdi_parts_free(parts);
    } else {
        hdi_uses_release(&b->uses);
    }
}

#define WAITED_AT_ONCE 64

/* Marks of [low, high) that are not done, at most one per lane and WAITED_AT_ONCE; if there are none, a writer that failed there. */
static size_t look_for_pending(struct hd_buffer *b, uint64_t low, uint64_t high, bool write, hdi_mark *out,
                               hdi_mark *failed)
{
    hd_runtime *rt = b->runtime;
    hdi_record_lock(b);
    bool claimed = hdi_uses_is_long(&b->uses, low, high);
    if (claimed) { /* looked at without the lock */
        b->uses.parts->claimed = true;
        hdi_record_unlock(b);
        hdi_uses_settle_claimed(rt, &b->uses, low, high);
    } else {
        hdi_uses_settle(rt, &b->uses, low, high);
    }
    size_t n = hdi_uses_pending(rt, &b->uses, low, high, write, out, WAITED_AT_ONCE);
    *failed = n ? (hdi_mark){0, 0} : hdi_uses_failed_writer(rt, &b->uses, low, high);
    if (claimed) {
        hdi_lock_take(hdi_order_lock(rt, b->order));
        b->uses.parts->claimed = false;
    }
    hdi_record_unlock(b);
    return n < WAITED_AT_ONCE ? n : WAITED_AT_ONCE;
}

hd_status hdi_buffer_settle(struct hd_buffer *b, uint64_t low, uint64_t high, unsigned access, int64_t deadline,
                            const char *who)
{
    bool write = (access & HD_WRITE) != 0;
    hdi_mark marks[WAITED_AT_ONCE];
    hdi_mark failed = {0, 0};
    for (size_t n; (n = look_for_pending(b, low, high, write, marks, &failed)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            if (!hdi_wait_position(b->runtime, marks[i].lane, marks[i].position, deadline)) {
                return hdi_fail(HD_ERROR_TIMEOUT, "%s: work on the buffer is not done", who);
            }
        }
    }
    bool bad = failed.position && (access & HD_READ);
    return bad ? hdi_position_status(b->runtime, failed.lane, failed.position, who) : HD_OK;
}

hd_status hdi_buffer_settle_host(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                                 unsigned access, int64_t deadline, const char *who, unsigned char **out)
{
    hd_status status = hdi_buffer_settle(b, low, high, access, deadline, who);
    unsigned char *host = b->host;
    if (!status && hdi_buffer_is_gone(b, handle)) {
        status = hdi_fail(HD_ERROR_HANDLE, "%s: the buffer was freed meanwhile", who);
    }
    *out = status ? NULL : host + low;
    return status;
}

unsigned hdi_buffer_state(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_record_lock(b);
    unsigned state = hdi_uses_state(b->runtime, &b->uses, low, high);
    hdi_record_unlock(b);
    return state;
}

void hdi_buffer_host_wrote(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_leaf *garbage = NULL;
    hdi_record_lock(b);
    /* Without memory for the split the record stays as careful as it was. */
    if (hdi_uses_prepare(b->runtime, &b->uses, b->order, low, high)) {
        hdi_uses_commit(&b->uses, low, high, true, (hdi_mark){0, 0}, &garbage);
    }
    hdi_record_unlock(b);
    hdi_leaves_free(garbage);
}

hd_status hdi_access_check(hd_access access, const char *who)
{
    if (access != HD_READ && access != HD_WRITE && access != HD_READ_WRITE) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s: access is %d, not HD_READ, HD_WRITE or HD_READ_WRITE", who,
                        (int)access);
    }
    return HD_OK;
}

hd_status hd_buffer_wait(hd_buffer *handle, hd_access access, int64_t timeout_ns)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, "hd_buffer_wait", &b);
    status = status ? status : hdi_access_check(access, "hd_buffer_wait");
    return status ? status : hdi_buffer_settle(b, 0, b->bytes, access, hdi_deadline(timeout_ns), "hd_buffer_wait");
}
