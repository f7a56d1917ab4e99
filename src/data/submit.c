/* submit.c - the path that every operation takes: order, command, ring.
 *
 *   1. take the order locks that the operation needs
 *   2. gather what has to be waited for: earlier uses of the same bytes in other lanes that are not done and
 *      that this lane has not waited for before
 *   3. write the waits and the command into the ring, note the uses, publish `head`
 *
 * Threads: any. Locks: order locks by rising number; all are held until the operation is published, so that two operations that
 * share several buffers are ordered the same way at all of them.
 * Always: nothing is changed before everything that can fail has succeeded.
 */
#include "data/submit.h"

#include <assert.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "data/unified.h"
#include "engine/engine.h"

#define PREFETCH_SLOTS 4

static void lock_all(hd_runtime *rt, uint64_t locks)
{
    for (uint64_t left = locks & HDI_ORDER_BITS; left; left &= left - 1) {
        hdi_lock_take(hdi_order_lock(rt, (unsigned)__builtin_ctzll(left)));
    }
}

static void unlock_all(hd_runtime *rt, uint64_t locks)
{
    for (uint64_t left = locks & HDI_ORDER_BITS; left; left &= left - 1) {
        hdi_lock_release(hdi_order_lock(rt, (unsigned)__builtin_ctzll(left)));
    }
}

/* False: more distinct results are read than there is room for. */
static bool add_wait(hd_lane *lane, uint32_t *n, hdi_mark mark, bool source)
{
    uint64_t source_position = source ? mark.position : 0;
    for (uint32_t i = 0; i < *n; i++) {
        hdi_wait_entry *w = &lane->waits[i];
        if (w->lane == mark.lane && (!source || !w->source || w->source == source_position)) {
            w->position = w->position > mark.position ? w->position : mark.position;
            w->source = source ? source_position : w->source;
            return true;
        }
    }
    if (*n == lane->waits_room) {
        return false;
    }
    lane->waits[(*n)++] = (hdi_wait_entry){mark.lane, mark.position, source_position};
    return true;
}

typedef enum gathered {
    GATHERED = 0,
    GATHERED_FAILURE, /* an earlier operation whose result is read has failed; said */
    GATHERED_TOO_MANY /* some of what is in `waits` has to be waited for first */
} gathered;

/* What one earlier use means for the operation. `source`: the operation reads what that use wrote; `ours`: see hdi_among. */
static gathered gather_mark(hd_runtime *rt, hd_lane *lane, hdi_mark mark, bool source, bool ours, uint32_t *n,
                            const char *who)
{
    if (!mark.position) {
        return GATHERED;
    }
    bool own = mark.lane == lane->global;
    const hdi_lane_shared *other = own ? lane->shared : hdi_lane_shared_of(rt, mark.lane);
    /* `done` before the failures: a failure is recorded before `done` passes it. */
    uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    if (source && __builtin_expect(atomic_load_explicit(&other->failures, memory_order_acquire) != 0, 0)) {
        hdi_failure failure;
        if (ours && hdi_failure_find(other, mark.position, &failure)) {
            return add_wait(lane, n, mark, true) ? GATHERED : GATHERED_TOO_MANY;
        }
        if (!ours && hdi_position_status(rt, mark.lane, mark.position, who)) {
            return GATHERED_FAILURE;
        }
    }
    if (done >= mark.position) {
        lane->seen[mark.lane] = done;
        return GATHERED;
    }
    /* In the same lane order costs nothing, and elsewhere not a second time. But a result that may still fail has to be
     * waited for as a result, once; a lane that does not keep its failures has to be told of its own results, too. */
    if (own      ? lane->keeps_failure || !source
        : source ? lane->seen_source[mark.lane] == mark.position && lane->keeps_failure
                 : lane->seen[mark.lane] >= mark.position) {
        return GATHERED;
    }
    return add_wait(lane, n, mark, source) ? GATHERED : GATHERED_TOO_MANY;
}

static gathered gather_segment(hd_runtime *rt, hd_lane *lane, hdi_segment *s, const hdi_use *use, bool ours,
                               uint32_t *n, const char *who)
{
    gathered result = gather_mark(rt, lane, s->writer, use->read, ours, n, who);
    if (!result && use->write) {
        const hdi_mark *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; i < s->n_readers && !result; i++) {
            result = gather_mark(rt, lane, readers[i], false, false, n, who);
        }
    }
    /* What is finished and went well says nothing any more; without it the next submission may take the short way. */
    if (!result) {
        hdi_segment_forget_writer(rt, s);
        if (s->n_readers) {
            hdi_segment_forget_readers(rt, s);
        }
    }
    return result;
}

static gathered gather(hd_runtime *rt, hd_lane *lane, const hdi_use *uses, size_t n_uses, hdi_among among, uint32_t *n,
                       const char *who)
{
    gathered result = gather_mark(rt, lane, among.after, true, true, n, who);
    for (size_t i = 0; i < n_uses && !result; i++) {
        hdi_uses *u = &uses[i].buffer->uses;
        hdi_segment *end = hdi_uses_segments(u) + u->count;
        for (hdi_segment *s = hdi_uses_find(u, uses[i].low); !result && s < end && s->low < uses[i].high; s++) {
            result = gather_segment(rt, lane, s, &uses[i], among.ours >> i & 1, n, who);
        }
    }
    return result;
}

/* Whether a buffer is the one that it was when its handle was checked: another thread may have freed it since. Under its order lock;
 * seq_cst, see hd_free. */
static inline bool is_same(const hdi_use *use)
{
    return (use->word == 0) | (atomic_load_explicit(&use->buffer->self.word, memory_order_seq_cst) == use->word);
}

/* The first buffer whose memory is not that of when the operation was checked: its device was lost since. NULL: all is well. */
static struct hd_buffer *find_lost(const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        if (hdi_buffer_losses(uses[i].buffer) != uses[i].losses) {
            return uses[i].buffer;
        }
    }
    return NULL;
}

/* Splits and makes room in all records, so that noting the uses cannot fail. Joining comes first for all of them, since it
 * could undo the split of a use before. */
static bool prepare(hd_runtime *rt, const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        hdi_uses_tidy(rt, &uses[i].buffer->uses);
    }
    for (size_t i = 0; i < n_uses; i++) {
        if (!hdi_uses_prepare(rt, &uses[i].buffer->uses, uses[i].low, uses[i].high)) {
            return false;
        }
    }
    return true;
}

/* Slots that the waits and the command take from `head` on, the gap at the ring's end included. */
static inline uint64_t slots_needed(const hd_lane *lane, uint32_t n_waits, uint32_t slots, uint64_t *gap)
{
    uint64_t at = (lane->head + n_waits) & lane->mask;
    *gap = at + slots > lane->mask + 1 ? lane->mask + 1 - at : 0;
    return n_waits + *gap + slots;
}

static inline bool has_room(hd_lane *lane, uint64_t need)
{
    uint64_t slots = lane->mask + 1;
    if (lane->head + need - lane->done_seen <= slots) {
        return true;
    }
    lane->done_seen = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    return lane->head + need - lane->done_seen <= slots;
}

/* Waits, without locks, until the ring has room, or, where there are more waits than a ring or the list of them holds, until the
 * first of them is done. */
static hd_status make_room(hd_lane *lane, uint64_t locks, uint32_t n_waits, uint64_t need, int64_t deadline,
                           const char *who)
{
    hd_runtime *rt = lane->device->runtime;
    uint64_t slots = lane->mask + 1;
    uint64_t until = need > slots ? 0 : lane->head + need - slots;
    hdi_wait_entry first = n_waits ? lane->waits[0] : (hdi_wait_entry){0};
    unlock_all(rt, locks);
    bool in_time;
    if (need > slots) {
        in_time = hdi_wait_position(rt, first.lane, first.position, deadline);
    } else {
        atomic_fetch_add_explicit(&lane->device->ring_stalls, 1, memory_order_relaxed);
        in_time = hdi_wait_position(rt, lane->global, until, deadline);
    }
    if (!in_time) {
        return hdi_fail(HD_ERROR_TIMEOUT, "%s: lane %u of device %d is full (option submit_timeout)", who, lane->number,
                        lane->device->index);
    }
    lock_all(rt, locks);
    return HD_OK;
}

/* Asks the other lanes for events, or for being finished without delay, and puts the waits into the ring. */
static void write_waits(hd_runtime *rt, hd_lane *lane, uint32_t n_waits)
{
    for (uint32_t i = 0; i < n_waits; i++) {
        const hdi_wait_entry *w = &lane->waits[i];
        hdi_command *c = &lane->ring[lane->head & lane->mask];
        c->op = HDI_OP_WAIT;
        c->slots = 1;
        c->kind = 0;
        c->wait.lane = w->lane;
        c->wait.position = w->position;
        c->wait.source = w->source;
        lane->head++;
        hdi_device *owner = hdi_lane_owner(rt, w->lane);
        if (w->lane != lane->global) {
            hdi_lane_shared *other = &owner->channel.lanes[w->lane % HDI_LANES_MAX];
            lane->seen[w->lane] = lane->seen[w->lane] > w->position ? lane->seen[w->lane] : w->position;
            lane->seen_source[w->lane] = w->source ? w->source : lane->seen_source[w->lane];
            /* Events mean nothing to an engine in another process: it waits for `done`. */
            bool by_event = !rt->is_process || owner == lane->device;
            /* A result of another device counts as done there before it is here. */
            bool by_word = !by_event || (owner != lane->device && w->source);
            hdi_ask(&owner->channel, w->lane % HDI_LANES_MAX, w->position,
                    (by_event ? HDI_ASK_EVENT : 0) | (by_word ? HDI_ASK_WORD : 0));
            hdi_want(by_event ? &other->wanted_event : &other->wanted_host, w->position);
            hdi_engine_notify(owner->channel.engine, w->lane % HDI_LANES_MAX);
        }
    }
}

static inline void write_command(hd_lane *lane, const hdi_command *command, uint64_t gap)
{
    if (gap) {
        hdi_command *skip = &lane->ring[lane->head & lane->mask];
        skip->op = HDI_OP_SKIP;
        skip->slots = (uint8_t)gap;
        lane->head += gap;
    }
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    if (command->slots == 1) {
        *c = *command;
    } else {
        memcpy(c, command, (size_t)command->slots * HDI_SLOT_BYTES);
    }
    lane->head += command->slots;
    /* The engine has read the slots ahead of us before; taking their lines back early keeps the next submission from waiting. */
    __builtin_prefetch(&lane->ring[(lane->head + PREFETCH_SLOTS) & lane->mask], 1);
}

/* The usual operation: it uses whole buffers that only this lane has used since they were settled, so there is nothing to wait for and
 * nothing that could have failed unseen; and the ring has room. Then this does all that submit_with_care would do. */
static inline bool submit_alone(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command)
{
    bool alone = lane->keeps_failure &
                 (atomic_load_explicit(&lane->shared->failures, memory_order_acquire) == lane->failures_known);
    for (size_t i = 0; i < n_uses; i++) {
        alone &= uses[i].whole & is_same(&uses[i]) & (hdi_buffer_losses(uses[i].buffer) == uses[i].losses) &&
                 hdi_uses_only_in(&uses[i].buffer->uses, lane->global, lane->failed_to);
    }
    if (!alone || lane->head + 2 * (uint64_t)command->slots - lane->done_seen > lane->mask + 1) {
        return false;
    }
    uint64_t gap;
    slots_needed(lane, 0, command->slots, &gap);
    write_command(lane, command, gap);
    hdi_mark mark = {lane->global, lane->head};
    for (size_t i = 0; i < n_uses; i++) {
        hdi_uses_commit_only_in(&uses[i].buffer->uses, uses[i].write, mark);
    }
    return true;
}

/* A lane that accepts work again after failures takes the short way again, too: nothing behind them is affected. */
static void note_failures(hd_lane *lane)
{
    uint32_t failures = atomic_load_explicit(&lane->shared->failures, memory_order_acquire);
    if (__builtin_expect(failures != lane->failures_known, 0)) {
        uint64_t end = hdi_failure_end(lane->shared);
        if (end <= lane->head) {
            lane->failed_to = end;
            lane->failures_known = failures;
        }
    }
}

/* Everything else. Locks held; on failure they are released. */
static hd_status submit_with_care(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  hdi_among among, uint64_t locks, const char *who)
{
    hd_runtime *rt = lane->device->runtime;
    int64_t deadline = 0;
    uint32_t n_waits;
    uint64_t gap;
    for (;;) {
        if (atomic_load_explicit(&lane->shared->failed, memory_order_acquire) || hdi_device_lost(lane->device)) {
            unlock_all(rt, locks);
            return hdi_lane_refuses(lane, who);
        }
        struct hd_buffer *lost = find_lost(uses, n_uses);
        if (lost) {
            int owner = lost->owner;
            unlock_all(rt, locks);
            return hdi_loss_fail(rt, owner, who, "a buffer's content was lost meanwhile");
        }
        for (size_t i = 0; i < n_uses; i++) {
            if (!is_same(&uses[i])) {
                unlock_all(rt, locks);
                return hdi_fail(HD_ERROR_HANDLE, "%s: a buffer was freed meanwhile", who);
            }
        }
        if (!prepare(rt, uses, n_uses)) {
            unlock_all(rt, locks);
            return hdi_fail(HD_ERROR_HOST_MEMORY, "%s: no memory for use records", who);
        }
        n_waits = 0;
        gathered result = gather(rt, lane, uses, n_uses, among, &n_waits, who);
        if (result == GATHERED_FAILURE) {
            unlock_all(rt, locks);
            hd_error error = {.size = sizeof error};
            hd_last_error(&error);
            return error.status;
        }
        uint64_t need = slots_needed(lane, n_waits, command->slots, &gap);
        if (result == GATHERED_TOO_MANY) {
            need = UINT64_MAX;
        } else if (has_room(lane, need)) {
            break;
        }
        if (!deadline) {
            deadline = hdi_option_deadline(rt->options.submit_timeout);
        }
        hd_status status = make_room(lane, locks, n_waits, need, deadline, who);
        if (status) {
            return status;
        }
    }
    note_failures(lane);
    write_waits(rt, lane, n_waits);
    write_command(lane, command, gap);
    for (size_t i = 0; i < n_uses; i++) {
        hdi_uses_commit(&uses[i].buffer->uses, uses[i].low, uses[i].high, uses[i].write,
                        (hdi_mark){lane->global, lane->head});
    }
    return HD_OK;
}

#ifdef HDI_DEBUG
/* What always holds of a lane and of the records of a submission, just before it is published. Locks held. */
static void check_structures(hd_lane *lane, const hdi_use *uses, size_t n_uses)
{
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    assert(done <= issued && issued <= lane->head);
    assert(lane->done_seen <= lane->head && lane->head - lane->done_seen <= lane->mask + 1);
    for (size_t i = 0; i < n_uses; i++) {
        assert(uses[i].low < uses[i].high && uses[i].high <= uses[i].buffer->bytes);
        assert(hdi_uses_check(&uses[i].buffer->uses, uses[i].buffer->bytes));
    }
}
#endif

/* The program's own looks at pinned memory have to be careful again. Locks held. */
static void end_direct_access(const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        struct hd_buffer *b = uses[i].buffer;
        if (b->locks & HDI_DIRECT_BIT) {
            atomic_store_explicit(&b->writable, 0, memory_order_relaxed);
            if (uses[i].write) {
                atomic_store_explicit(&b->readable, 0, memory_order_relaxed);
            }
        }
    }
}

/* What the locks and buffers of an operation say in `hd_buffer.locks`, together. */
static inline uint64_t gather_locks(const hd_lane *lane, const hdi_use *uses, size_t n_uses)
{
    uint64_t locks = (uint64_t)1 << lane->device->index;
    for (size_t i = 0; i < n_uses; i++) {
        locks |= uses[i].buffer->locks;
    }
    return locks;
}

static inline __attribute__((always_inline)) hd_status submit(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                              const hdi_command *command, hdi_among among,
                                                              uint64_t locks, const char *who, hd_ticket *out)
{
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
    if (__builtin_expect(command->slots > lane->mask / 2, 0)) {
        return hdi_fail(HD_ERROR_LIMIT, "%s: the arguments need %u slots of the lane's %u (option lane_slots)", who,
                        command->slots, (unsigned)lane->mask + 1);
    }
    lock_all(rt, locks);
    if (__builtin_expect(hdi_device_lost(device) != 0, 0) || among.after.position || among.ours ||
        __builtin_expect(!submit_alone(lane, uses, n_uses, command), 0)) {
        hd_status status = submit_with_care(lane, uses, n_uses, command, among, locks, who);
        if (status) {
            return status;
        }
    }
#ifdef HDI_DEBUG
    check_structures(lane, uses, n_uses);
#endif
    if (__builtin_expect((locks & HDI_DIRECT_BIT) != 0, 0)) {
        end_direct_access(uses, n_uses);
    }
    uint64_t position = lane->head;
    /* Publishes the slots (pairs with the engine's acquire load), and is sequentially consistent with the looks of
     * hdi_engine_notify behind it. */
    atomic_store_explicit(&lane->shared->head, position, memory_order_seq_cst);
    unlock_all(rt, locks);
    hdi_engine_notify(device->channel.engine, lane->number);
    if (out) {
        out->lane = hdi_lane_handle(lane);
        out->sequence = position;
    }
    if (__builtin_expect(rt->is_inline, 0)) {
        hdi_engine_run_inline(device);
    }
    return HD_OK;
}

hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, const char *who,
                     hd_ticket *out)
{
    uint64_t locks = gather_locks(lane, uses, n_uses);
    const hdi_among none = {{0, 0}, 0};
    if (__builtin_expect((locks & HDI_UNIFIED_BIT) != 0, 0)) {
        return hdi_unified_submit(lane, uses, n_uses, command, none, who, out);
    }
    return submit(lane, uses, n_uses, command, none, locks, who, out);
}

hd_status hdi_submit_among(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_among among, const char *who, hd_ticket *out)
{
    uint64_t locks = gather_locks(lane, uses, n_uses);
    return locks & HDI_UNIFIED_BIT ? hdi_unified_submit(lane, uses, n_uses, command, among, who, out)
                                   : submit(lane, uses, n_uses, command, among, locks, who, out);
}

hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_among among, const char *who, hd_ticket *out)
{
    return submit(lane, uses, n_uses, command, among, gather_locks(lane, uses, n_uses), who, out);
}
