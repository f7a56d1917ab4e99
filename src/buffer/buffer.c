/* buffer.c - checks of buffers and their handles, and waits for the work on them.
 *
 * Threads: any.
 * Locks: the order lock of a buffer, for its use record.
 * Blocking: hdi_buffer_settle and hd_buffer_wait, until work on the buffer is done. Taking a record's lock waits while another thread has claimed
 * the record.
 * Always: a record is walked only while the handle that led to it is good, which is checked under that lock. hd_free makes the handle stale
 * first, and then waits for the thread that has the lock (alloc.c).
 */
#include "buffer/buffer.h"

#include "base/error.h"
#include "base/wait.h"
#include "buffer/kind.h"
#include "engine/engine.h"

struct hd_buffer *hdi_buffer_from_stale_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_self_object(handle);
    if (!b || ((uintptr_t)handle & (HDI_SELF_DEAD | HDI_SELF_LOST))) {
        return NULL;
    }
    /* The word of a buffer's structure leads to the structure itself in each of its states. */
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
    hd_status status = stale && stale->runtime->guarded ? stale->runtime->guarded->refuse(handle) : HD_OK;
    if (status) {
        return status;
    }
    return hdi_handle_refused(handle, "buffer", "it was freed, or its runtime closed");
}

bool hdi_buffer_is_gone(const struct hd_buffer *b, const hd_buffer *handle)
{
    /* Behind all loads of the buffer: hd_free makes the handle stale before anything else of the buffer changes. */
    atomic_thread_fence(memory_order_acquire);
    return hdi_buffer_from_handle(handle) != b;
}

hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle);
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

#define CLAIM_SLEEP_NS 10000

/* Whether the buffer is the one that the handle stands for, also when lost. The order lock is held. Seq_cst, as hd_free's change of the
 * handle. */
static bool is_still(const struct hd_buffer *b, const hd_buffer *handle)
{
    uint64_t word = atomic_load_explicit(&b->self.word, memory_order_seq_cst);
    return !handle || (word & ~HDI_SELF_LOST) == hdi_self_word(handle);
}

bool hdi_record_lock_of(struct hd_buffer *b, const hd_buffer *handle)
{
    /* Where the buffer is gone, this may be another buffer's lock. Where the handle is good under it, it is the right one. */
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order);
    bool still = is_still(b, handle);
    while (__builtin_expect(still && hdi_uses_claimed(&b->uses), 0)) {
        hdi_lock_release(order);
        hdi_sleep_for(CLAIM_SLEEP_NS);
        hdi_lock_take(order);
        still = is_still(b, handle);
    }
    if (!still) {
        hdi_lock_release(order);
    }
    return still;
}

void hdi_record_lock(struct hd_buffer *b)
{
    hdi_record_lock_of(b, NULL);
}

void hdi_record_release(struct hd_buffer *b)
{
    hdi_parts *parts = b->uses.parts;
    if (parts) {
        hdi_record_lock(b);
        parts = hdi_parts_leave(parts);
        b->uses.parts = NULL;
        hdi_record_unlock(b);
        hdi_parts_free(parts);
    } else {
        hdi_uses_release(&b->uses);
    }
}

#define WAITED_AT_ONCE 64

/* One look at the record of a buffer. */
typedef struct look {
    struct hd_buffer *b;
    const hd_buffer *handle;
    uint64_t low, high;
    unsigned access;
    hdi_point pending[WAITED_AT_ONCE]; /* not done, at most one per lane */
    size_t n;
    hdi_point failed; /* where nothing is pending: the writer of some of the bytes that has failed */
} look;

/* Nothing is pending, and the host replaces the bytes. So the record gets no writer for them. The lock is held. */
static void drop_failed(const look *l, hdi_leaf **garbage)
{
    struct hd_buffer *b = l->b;
    /* Without memory for the split the failed writer stays in the record, which is safe. */
    if (hdi_uses_prepare(b->runtime, &b->uses, b->order, l->low, l->high, true)) {
        hdi_uses_commit(&b->uses, l->low, l->high, true, (hdi_point){0, 0}, garbage);
    }
}

/* False: the handle is stale. */
static bool look_for_pending(look *l)
{
    struct hd_buffer *b = l->b;
    hd_runtime *rt = b->runtime;
    hdi_leaf *garbage = NULL;
    if (!hdi_record_lock_of(b, l->handle)) {
        return false;
    }
    bool claimed = hdi_uses_is_long(&b->uses, l->low, l->high);
    if (claimed) { /* looked at without the lock; hd_free waits while the record is claimed */
        b->uses.parts->claimed = true;
        hdi_record_unlock(b);
        hdi_uses_settle_claimed(rt, &b->uses, l->low, l->high);
    } else {
        hdi_uses_settle(rt, &b->uses, l->low, l->high);
    }
    size_t n = hdi_uses_pending(rt, &b->uses, l->low, l->high, (l->access & HD_WRITE) != 0, l->pending, WAITED_AT_ONCE);
    l->n = n < WAITED_AT_ONCE ? n : WAITED_AT_ONCE;
    l->failed = n ? (hdi_point){0, 0} : hdi_uses_failed_writer(rt, &b->uses, l->low, l->high);
    if (claimed) {
        hdi_lock_take(hdi_order_lock(rt, b->order));
        b->uses.parts->claimed = false;
    }
    if (n == 0 && (l->access & HDI_ACCESS_REPLACES)) {
        drop_failed(l, &garbage);
    }
    hdi_record_unlock(b);
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
        if (!look_for_pending(&l)) {
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
    hdi_record_lock(b);
    size_t n = hdi_uses_pending(b->runtime, &b->uses, 0, b->bytes, true, &point, 1);
    hdi_record_unlock(b);
    return n ? point : (hdi_point){0, 0};
}

unsigned hdi_buffer_state(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_record_lock(b);
    unsigned state = hdi_uses_state(b->runtime, &b->uses, low, high);
    hdi_record_unlock(b);
    return state;
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
    return status ? status
                  : hdi_buffer_settle(b, handle, 0, b->bytes, access, timeout_ns ? hdi_deadline(timeout_ns) : 0);
}
