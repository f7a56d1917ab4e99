/* submit_slow.c - an operation that may have to wait: for other lanes, for room in its ring, for a record that another thread works on.
 *
 * A use that overlaps very many segments is not walked under the order locks.
 * Its record is claimed and walked without them, and the points that were found are checked again under them.
 * Submissions wait for room in a full lane in turn, without locks. A later one waits behind them, however few slots it needs.
 *
 * Threads: any.
 * Locks: order locks, released while anything is waited for.
 * Blocking: until waits, room and records are there (option submit_timeout for room).
 * Always: records are claimed all at once or not at all. They are given back before anything else is waited for, so claims cannot deadlock.
 * A submission takes room only when no other one waits in front of it.
 */
#include "buffer/submit_slow.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/wait.h"
#include "buffer/dependencies.h"
#include "engine/engine.h"

#define ARCHIVINGS_MOST 1000 /* in a log that is not corrupted, each moves something or waits for something */
#define CLAIM_SLEEP_NS 10000 /* about as long as another thread's walk over thousands of segments takes */

typedef struct submission {
    hd_runtime *rt;
    hd_lane *lane;
    const hdi_use *uses;
    size_t n_uses;
    const hdi_command *command;
    hdi_linked link;
    uint64_t locks;
    int64_t deadline;  /* for room; 0: it has not waited yet */
    hdi_point awaited; /* what it waits for in place of room in the lane; position 0: nothing */
    int archivings;    /* how often the log of failures needed room */
    bool archived;     /* failures of the lane were archived, as far as that was possible at once */
    bool plain; /* whole buffers, whose records have one segment: the members up to `claimed_by_others` do not matter */
    bool in_parts;          /* a record has several segments */
    bool claimed_by_others; /* such a record is claimed */
    bool queued;            /* `turn` is set, and is in the lane's queue for room */
    hdi_room_waiter turn;
    bool claims; /* `claimed` and `apart` are set; this submission has the records of the uses in `claimed` */
    bool claimed[HDI_USES_OF_ONE];
    hdi_waits apart; /* what these uses wait for */
} submission;

/* ---- the queue for room ---- */

/* The fast path uses `done_seen`. While a submission waits for room, it shows a full ring. Locks held. */
static void keep_others_out(hd_lane *lane)
{
    if (lane->room_first) {
        lane->done_seen = lane->head > lane->mask + 1 ? lane->head - (lane->mask + 1) : 0;
    }
}

static void queue_up(submission *s)
{
    hd_lane *lane = s->lane;
    s->queued = true;
    s->turn.next = NULL;
    atomic_init(&s->turn.first, lane->room_first == NULL);
    if (lane->room_last) {
        lane->room_last->next = &s->turn;
    } else {
        lane->room_first = &s->turn;
    }
    lane->room_last = &s->turn;
}

/* Also for a submission that gives up and is not the first. Locks held. */
static void leave_queue(submission *s)
{
    hd_lane *lane = s->lane;
    hdi_room_waiter **link = &lane->room_first, *before = NULL;
    while (*link != &s->turn) {
        before = *link;
        link = &before->next;
    }
    *link = s->turn.next;
    lane->room_last = s->turn.next ? lane->room_last : before;
    s->queued = false;
    if (lane->room_first && !atomic_load_explicit(&lane->room_first->first, memory_order_relaxed)) {
        /* The waiter may return as soon as it sees the store. A wake of a futex without a waiter does no harm. */
        _Atomic uint32_t *word = &lane->room_first->first;
        atomic_store_explicit(word, 1, memory_order_release);
        hdi_futex_wake(word, 1);
    }
}

static bool has_room(hd_lane *lane, uint64_t need)
{
    uint64_t slots = lane->mask + 1;
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    if (__builtin_expect(done > lane->head, 0)) {
        hdi_device_give_up(lane->device);
        return false;
    }
    /* A worker process may also report less than before, which makes no room. */
    lane->done_seen = done > lane->done_seen ? done : lane->done_seen;
    return lane->head + need - lane->done_seen <= slots;
}

/* Waits, without locks, until it is this submission's turn and the ring has room. Where there are more waits than a ring holds, it waits until
 * the first of them is done. False: not in time. */
static bool wait_for_room(submission *s, uint64_t need)
{
    hd_lane *lane = s->lane;
    uint64_t slots = lane->mask + 1;
    if (need > slots) {
        hdi_wait_entry first = lane->waits.entries[0];
        s->awaited = (hdi_point){first.lane, first.position};
        hdi_submit_unlock(s->lane->device, s->locks);
        return hdi_wait_position(s->rt, first.lane, first.position, s->deadline);
    }
    s->awaited = (hdi_point){0, 0};
    if (!s->queued) {
        queue_up(s);
    }
    keep_others_out(lane);
    bool first = lane->room_first == &s->turn;
    /* 0 where the ring has room, but the worker has reported an impossible position. */
    uint64_t until = lane->head + need > slots ? lane->head + need - slots : 0;
    hdi_submit_unlock(s->lane->device, s->locks);
    atomic_fetch_add_explicit(&lane->device->ring_stalls, 1, memory_order_relaxed);
    if (first) {
        return hdi_wait_position(s->rt, lane->global, until, s->deadline);
    }
    /* pairs with the release store in leave_queue */
    while (!atomic_load_explicit(&s->turn.first, memory_order_acquire)) {
        if (!hdi_futex_wait(&s->turn.first, 0, s->deadline)) {
            return false;
        }
    }
    return true;
}

/* ---- claims ---- */

static bool wants_claim(const submission *s, size_t i)
{
    const hdi_use *use = &s->uses[i];
    return !(s->link.ours >> (i < 32 ? i : 31) & 1) && hdi_uses_is_long(&use->buffer->uses, use->low, use->high);
}

static void give_claims_back(submission *s)
{
    if (!s->claims) {
        return;
    }
    for (size_t i = 0; i < s->n_uses; i++) {
        hdi_parts *parts = s->uses[i].buffer->uses.parts;
        if (s->claimed[i] && parts) {
            parts->claimed = false;
        }
    }
    s->claims = false;
    hdi_waits_release(&s->apart);
}

/* Waits until no record of the uses is claimed. The locks are held, and released meanwhile. True: it has waited. */
static bool wait_for_claims(submission *s)
{
    bool waited = false;
    for (size_t i = 0; !s->claims && i < s->n_uses; i++) {
        while (hdi_use_is_same(&s->uses[i]) && hdi_uses_claimed(&s->uses[i].buffer->uses)) {
            hdi_submit_unlock(s->lane->device, s->locks);
            hdi_sleep_for(CLAIM_SLEEP_NS);
            hdi_submit_lock(s->lane->device, s->locks);
            waited = true;
        }
    }
    return waited;
}

/* Claims the long records, all at once. False: there are none. */
static bool claim(submission *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_uses; i++) {
        s->claimed[i] = wants_claim(s, i);
        any |= s->claimed[i];
    }
    if (any) {
        for (size_t i = 0; i < s->n_uses; i++) {
            if (s->claimed[i]) {
                s->uses[i].buffer->uses.parts->claimed = true;
            }
        }
        s->apart = (hdi_waits){0};
    }
    s->claims = any;
    return any;
}

/* Walks over the claimed records, without the locks. */
static hdi_collected work_on_claims(submission *s)
{
    hdi_collected result = HDI_COLLECTED;
    hdi_submit_unlock(s->lane->device, s->locks);
    if (!hdi_waits_make(&s->apart, (size_t)s->rt->n_devices * HDI_LANES_MAX)) {
        result = HDI_COLLECTED_TOO_MUCH;
    }
    const hdi_collector g = {s->rt, s->lane, &s->apart, true};
    for (size_t i = 0; i < s->n_uses && !result; i++) {
        const hdi_use *use = &s->uses[i];
        if (s->claimed[i]) {
            hdi_uses_settle_claimed(s->rt, &use->buffer->uses, use->low, use->high);
            result = hdi_collect_apart(&g, use);
        }
    }
    hdi_submit_lock(s->lane->device, s->locks);
    return result;
}

/* ---- the steps ---- */

/* Undoes all that the submission has set up. The locks are held, and released here. */
static void give_up(submission *s)
{
    give_claims_back(s);
    if (s->queued) {
        leave_queue(s);
        keep_others_out(s->lane);
    }
    hdi_submit_unlock(s->lane->device, s->locks);
}

/* The status of the failure that another function has just reported. */
static hd_status said(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status;
}

/* Whether the lane refuses work: it failed, and no command that makes it accept work again is on its way. The order lock is held. */
static bool refuses(const hd_lane *lane)
{
    const hdi_lane_shared *shared = lane->shared;
    /* `failed` is loaded again, since the engine clears it before `issued` passes the command. */
    return atomic_load_explicit(&shared->failed, memory_order_acquire) &&
           atomic_load_explicit(&lane->resumed, memory_order_relaxed) <=
               atomic_load_explicit(&shared->issued, memory_order_acquire) &&
           atomic_load_explicit(&shared->failed, memory_order_acquire);
}

/* Checks the lane and the kernel, which may have changed since the operation was checked. Gives up where they have. */
static hd_status look_at_lane(submission *s)
{
    const hdi_same *same = s->link.same;
    if (__builtin_expect(hdi_lane_is_past(s->lane) || (same && same->lane && !hdi_lane_is_same(s->lane, same)), 0)) {
        give_up(s);
        return hdi_fail(HD_ERROR_HANDLE, "the lane was destroyed meanwhile");
    }
    if (__builtin_expect(refuses(s->lane) || hdi_device_lost(s->lane->device), 0)) {
        give_up(s);
        return hdi_lane_refuses(s->lane);
    }
    if (__builtin_expect(same && same->kernel && !hdi_kernel_is_same(same), 0)) {
        give_up(s);
        return hdi_fail(HD_ERROR_HANDLE, "the kernel's module was unloaded meanwhile");
    }
    return HD_OK;
}

/* The same for the buffers. Also notes whether records have several segments. */
static hd_status look_at_buffers(submission *s)
{
    s->in_parts = s->claimed_by_others = false;
    for (size_t i = 0; i < s->n_uses; i++) {
        const hdi_use *use = &s->uses[i];
        uint64_t word = atomic_load_explicit(&use->buffer->self.word, memory_order_seq_cst); /* see hd_free */
        if (use->word && (word & ~HDI_SELF_LOST) != use->word) {
            give_up(s);
            return hdi_fail(HD_ERROR_HANDLE, "a buffer was freed meanwhile");
        }
        if ((use->word && word != use->word) || hdi_buffer_losses(use->buffer) != use->losses) {
            int owner = use->buffer->owner;
            give_up(s);
            return hdi_loss_fail(s->rt, owner, "a buffer's content was lost meanwhile");
        }
        const hdi_parts *parts = use->buffer->uses.parts; /* read last: another buffer's record has another lock */
        if (parts) {
            s->in_parts = true;
            s->claimed_by_others |= parts->claimed;
        }
    }
    return HD_OK;
}

/* Splits segments and makes room in all records, so that noting the uses cannot fail. Segments have to be joined before, since a join could
 * undo the split for an earlier use. */
static bool prepare(const submission *s, bool room)
{
    for (size_t i = 0; i < s->n_uses; i++) {
        const hdi_use *use = &s->uses[i];
        hdi_uses *u = &use->buffer->uses;
        if (!hdi_uses_prepare(s->rt, u, use->buffer->order, use->low, use->high, room || use->write)) {
            return false;
        }
    }
    return true;
}

static inline bool is_ours(const submission *s, size_t i)
{
    return i < 32 && (s->link.ours >> i & 1);
}

/* Collects what all uses wait for. Also drops what is finished from the records. *room: they have room for all readers. */
static hdi_collected collect(const submission *s, bool *room)
{
    const hdi_collector g = {s->rt, s->lane, &s->lane->waits, false};
    s->lane->waits.n = s->lane->waits.n_sources = 0;
    hdi_collected result = hdi_collect_point(&g, s->link.after, true, true);
    for (size_t i = 0; i < s->n_uses && !result; i++) {
        struct hd_buffer *b = s->uses[i].buffer;
        bool has_room = true;
        if (s->claims && s->claimed[i]) {
            has_room = false;
        } else if (!hdi_uses_is_blank(&b->uses)) {
            result = hdi_collect_use(&g, &s->uses[i], is_ours(s, i), &has_room);
        }
        *room &= has_room;
        if (!s->claims && (i == 0 || !s->uses[i].whole)) { /* a use that may add segments removes some */
            hdi_uses_prune(s->rt, &b->uses, b->order);
        }
    }
    return result || !s->claims ? result : hdi_collect_again(&g, &s->apart);
}

/* The same in one pass, see hdi_collect_plain. */
static inline hdi_collected collect_plain(submission *s)
{
    const hdi_collector g = {s->rt, s->lane, &s->lane->waits, false};
    s->lane->waits.n = s->lane->waits.n_sources = 0;
    hdi_point after = s->link.after;
    hdi_collected result = after.position ? hdi_collect_point(&g, after, true, true) : HDI_COLLECTED;
    s->plain = true;
    return result ? result : hdi_collect_plain(&g, s->uses, s->n_uses, s->link.ours, &s->plain);
}

/* After failures the lane takes the fast path again once it accepts work: no recorded failure covers a later position. */
static void note_failures(hd_lane *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    if (__builtin_expect(changes != lane->failures_known, 0)) {
        uint64_t end;
        if (hdi_failure_end(lane, &end) && end <= lane->head && lane->failures_known != HDI_FAILURES_UNKNOWN) {
            lane->failed_to = end;
            lane->failures_known = changes;
        }
    }
}

/* Submits the operation. Nothing can fail any more. */
static void write_all(submission *s, uint64_t gap, hdi_leaf **garbage)
{
    hd_lane *lane = s->lane;
    note_failures(lane);
    if (lane->waits.n) {
        hdi_waits_write(s->rt, lane);
    }
    hdi_submit_write(lane, s->command, gap);
    hdi_point point = {lane->global, lane->head};
    const hdi_use *end = s->uses + s->n_uses;
    if (s->plain) {
        for (const hdi_use *use = s->uses; use != end; use++) {
            hdi_uses_commit_whole(&use->buffer->uses, use->write, point);
        }
    } else {
        for (const hdi_use *use = s->uses; use != end; use++) {
            hdi_uses_commit(&use->buffer->uses, use->low, use->high, use->write, point, garbage);
        }
        give_claims_back(s);
    }
    if (s->queued) {
        leave_queue(s);
    }
    keep_others_out(lane);
}

static hd_status not_in_time(submission *s, const char *what)
{
    hdi_point held_up = s->awaited;
    if (!held_up.position) { /* by the first operation of the lane that is not done */
        held_up.lane = s->lane->global;
        held_up.position = atomic_load_explicit(&s->lane->shared->done, memory_order_acquire) + 1;
    }
    give_up(s);
    return hdi_not_done(s->rt, held_up.lane, held_up.position, "lane %u of device %d %s (option submit_timeout)",
                        s->lane->number, s->lane->device->index, what);
}

static void begin_waiting(submission *s)
{
    s->deadline = s->deadline ? s->deadline : hdi_option_deadline(s->rt->options.submit_timeout);
}

/* Makes room in the log of the lane's failures. It also does so when there are many, before room is needed. *again: the locks were released
 * meanwhile. */
static hd_status archive_failures(submission *s, bool *again)
{
    if (atomic_load_explicit(&s->lane->shared->failure_changes, memory_order_relaxed) == 0) {
        return HD_OK; /* nothing has ever failed in this lane */
    }
    bool needed = !hdi_failures_have_room(s->lane);
    if (needed && ++s->archivings > ARCHIVINGS_MOST) {
        hdi_device_give_up(s->lane->device); /* tries again until the device is lost or the deadline passes */
    }
    *again = needed || (!s->archived && hdi_failures_are_many(s->lane));
    if (!*again) {
        return HD_OK;
    }
    s->archived = true;
    begin_waiting(s);
    uint32_t lane;
    uint64_t position;
    hdi_submit_unlock(s->lane->device, s->locks);
    hdi_archived archived = hdi_failures_archive(s->lane, &lane, &position);
    bool behind = needed && archived == HDI_ARCHIVED_BEHIND;
    bool in_time = behind ? hdi_wait_position(s->rt, lane, position, s->deadline)
                          : s->archivings <= ARCHIVINGS_MOST || hdi_clock_ns() < s->deadline;
    hdi_submit_lock(s->lane->device, s->locks);
    if (needed && archived == HDI_ARCHIVED_NO_MEMORY) {
        give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the failures of lane %u of device %d", s->lane->number,
                        s->lane->device->index);
    }
    return in_time ? HD_OK : not_in_time(s, "has seen too many failures for what else is under way");
}

/* Claims, collects, and makes room in the records. After a failure it has given up. */
static hd_status collect_parts(submission *s, hdi_collected *result)
{
    *result = s->in_parts && !s->claims && claim(s) ? work_on_claims(s) : HDI_COLLECTED;
    if (!*result && s->claims) {
        hd_status status = look_at_lane(s); /* the locks were released meanwhile */
        status = status ? status : look_at_buffers(s);
        if (status) {
            return status;
        }
    }
    bool room = true;
    *result = *result ? *result : collect(s, &room);
    if (!*result && !prepare(s, room)) {
        give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
    }
    return HD_OK;
}

/* Puts the operation into the ring, or waits until there may be room. */
static hd_status enter(submission *s, hdi_collected result, hdi_leaf **garbage, bool *done)
{
    hd_lane *lane = s->lane;
    uint64_t gap = 0;
    uint64_t need = UINT64_MAX;
    if (!result) {
        uint32_t wait_slots = lane->waits.n ? hdi_waits_slots(&lane->waits) : 0; /* each source has a wait, too */
        need = hdi_submit_slots(lane, wait_slots, s->command->slots, &gap);
        bool first = !lane->room_first || lane->room_first == &s->turn;
        if (first && has_room(lane, need)) {
            write_all(s, gap, garbage);
            *done = true;
            return HD_OK;
        }
    } else if (lane->waits.n == 0) {
        give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for what it has to wait for");
    }
    give_claims_back(s);
    begin_waiting(s);
    bool in_time = wait_for_room(s, need);
    hdi_submit_lock(s->lane->device, s->locks);
    return in_time ? HD_OK : not_in_time(s, "is full");
}

/* One try. *done: the operation is in the ring. Else it has to be tried again, unless this fails. The locks are held before, and afterwards
 * where it has not failed. */
static hd_status try(submission *s, hdi_leaf **garbage, bool *done)
{
    hd_status status = look_at_lane(s);
    bool again = false;
    status = status ? status : archive_failures(s, &again);
    if (status || again) {
        return status;
    }
    hdi_collected result = collect_plain(s);
    if (!s->plain) {
        status = look_at_buffers(s);
        if (status || (s->claimed_by_others && wait_for_claims(s))) {
            return status;
        }
        status = collect_parts(s, &result);
        if (status) {
            return status;
        }
    }
    if (result == HDI_COLLECTED_FAILURE) {
        give_up(s);
        return said();
    }
    return enter(s, result, garbage, done);
}

hd_status hdi_submit_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          hdi_linked link, uint64_t locks, hd_ticket *out)
{
    HDI_INSIDE_STILL(lane->runtime); /* it may wait for room, and hd_close then waits for it */
    submission s;                    /* set member by member: most of them matter only for waits */
    s.rt = lane->device->runtime;
    s.lane = lane;
    s.uses = uses;
    s.n_uses = n_uses;
    s.command = command;
    s.link = link;
    s.locks = locks;
    s.deadline = 0;
    s.awaited = (hdi_point){0, 0};
    s.archivings = 0;
    s.archived = s.queued = s.in_parts = s.claims = false;
    hdi_leaf *garbage = NULL; /* freed when the locks are released */
    hd_status status = HD_OK;
    for (bool done = false; !status && !done;) {
        status = try(&s, &garbage, &done);
    }
    if (!status) {
        hdi_submit_publish(lane, uses, n_uses, locks, out);
    }
    if (garbage) {
        hdi_leaves_free(garbage);
    }
    return status;
}
