/* submit_slow.c - the slow path of operations that may wait: for other lanes, for room in a ring,
 * or for a detached record.
 *
 * The dependencies of an operation are earlier uses of its bytes that are not done. collect.h finds
 * them.
 *
 * If a use overlaps very many segments of a record, the submission detaches the record, and walks
 * it without the order locks. Then it takes the locks, and checks the collected points again. If an
 * operation may not stand in its library lane (parked.h), it moves to a parking lane. Then its
 * dependencies are collected again for that lane. Submissions to a full lane stand in a queue, and
 * wait there for room without locks. A later submission stands behind them, even if it needs fewer
 * slots.
 *
 * Threads: any.
 * Locks: order locks, released during every wait. A detached record needs no lock.
 * Blocking: a submission waits for dependencies and records, and for room (option submit_timeout).
 * Always: a submission detaches either all its long records at once, or none. It gives these
 * records back before it waits for anything else, so no two submissions wait for each other. A
 * submission takes room only if no other submission waits in front of it. If host memory for
 * dependencies runs out, the dependencies that were collected so far stay valid, and the submission
 * first waits for some of them.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/collect.h"
#include "buffer/parked.h"
#include "buffer/submit_fast.h"
#include "buffer/submit_waits.h"
#include "buffer/undo.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* ---- the submission ---- */

/* the most moves of an operation between lanes; its dependencies may change between two moves */
#define MOVES_MOST 8
/* If a submission archives more often than this, the log is corrupted. In a sound log, each
 * archiving moves a failure, or waits for work. */
#define ARCHIVINGS_MOST 1000
/* sleep about as long as another thread needs to walk over thousands of segments */
#define DETACHED_SLEEP_NS 10000

typedef struct submission {
    hd_runtime *rt;
    hd_lane *lane;
    const hdi_use *uses;
    size_t n_uses;
    /* NULL: the submission only looks for roots, and ends with NOT_FOUND */
    const hdi_command *command;
    hdi_linked link;
    uint64_t locks;
    bool parked;      /* the operation has roots, and enters its library lane with them */
    unsigned moves;   /* how often the operation moved to a parking lane */
    bool cannot_move; /* no more parking lanes can be made */
    int64_t deadline; /* the deadline of the wait for room; 0: no wait yet */
    /* the point to wait for, instead of room in the lane; position 0: none */
    hdi_point awaited;
    int archivings; /* how often the log of failures needed room */
    bool archived;  /* archived as many of the lane's failures as possible at once */
    /* all uses are of whole buffers, and the records of these buffers are one segment each. If set,
     * the next two members are not valid. */
    bool plain;
    bool in_parts;           /* some record is in several segments */
    bool detached_by_others; /* another thread detached the record of some use */
    bool queued;             /* `turn` is in the lane's queue for room */
    hdi_room_waiter turn;
    /* `detached` and `apart` are set; this submission detached the records of these uses */
    bool detaches;
    bool detached[HDI_USES_OF_ONE];
    hdi_waits apart; /* waits of these uses */
} submission;

/* ---- the queue for room ---- */

/* Makes `done_seen` show a full ring while a submission waits for room, so that no other submission
 * takes the fast path. Locks held. */
static void submission_keep_others_out(hd_lane *lane)
{
    if (lane->room_first) {
        lane->done_seen = lane->head > lane->mask + 1 ? lane->head - (lane->mask + 1) : 0;
    }
}

static void submission_queue_up(submission *s)
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

/* Removes the submission from the queue, even if it is not the first there. Locks held. */
static void submission_leave_queue(submission *s)
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
        /* The waiter may return as soon as it sees the store. Then this thread wakes a futex
         * without a waiter, which does no harm. */
        _Atomic uint32_t *word = &lane->room_first->first;
        atomic_store_explicit(word, 1, memory_order_release);
        hdi_futex_wake(word, 1);
    }
}

static bool submission_has_room(hd_lane *lane, uint64_t need)
{
    uint64_t slots = lane->mask + 1;
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    if (__builtin_expect(done > lane->head, 0)) {
        hdi_device_give_up(lane->device);
        return false;
    }
    /* A faulty worker process may report a lower position than before; such a position makes no
     * room. */
    lane->done_seen = done > lane->done_seen ? done : lane->done_seen;
    return lane->head + need - lane->done_seen <= slots;
}

/* Waits, without locks, for this submission's turn and for room in the ring. If the operation has
 * more waits than fit into the ring, waits until the first of these waits is done. *until: the
 * position at which the lane has enough room; 0: the thread waits for something else. False: the
 * deadline passed. */
static bool submission_wait_for_room(submission *s, uint64_t need, uint64_t *until)
{
    hd_lane *lane = s->lane;
    uint64_t slots = lane->mask + 1;
    *until = 0;
    if (need > slots) {
        hdi_wait_entry first = lane->waits.entries[0];
        s->awaited = (hdi_point){first.lane, first.position};
        hdi_submit_unlock(s->lane->device, s->locks);
        return hdi_wait_position_unrecorded(s->rt, first.lane, first.position, s->deadline);
    }
    s->awaited = (hdi_point){0, 0};
    if (!s->queued) {
        submission_queue_up(s);
    }
    submission_keep_others_out(lane);
    bool first = lane->room_first == &s->turn;
    /* *until becomes 0 if the whole ring is free. In that case only an impossible position of the
     * worker caused the wait. */
    *until = lane->head + need > slots ? lane->head + need - slots : 0;
    hdi_submit_unlock(s->lane->device, s->locks);
    atomic_fetch_add_explicit(&lane->device->ring_stalls, 1, memory_order_relaxed);
    if (first) {
        return hdi_wait_position_unrecorded(s->rt, lane->global, *until, s->deadline);
    }
    HDI_CALLER_WAITS();
    /* pairs with the release store in submission_leave_queue */
    while (!atomic_load_explicit(&s->turn.first, memory_order_acquire)) {
        if (!hdi_futex_wait(&s->turn.first, 0, s->deadline)) {
            return false;
        }
    }
    return true;
}

/* ---- detached records ---- */

static bool submission_wants_to_detach(const submission *s, size_t i)
{
    const hdi_use *use = &s->uses[i];
    return !(s->link.ours >> (i < 32 ? i : 31) & 1) && hdi_uses_is_long(&use->buffer->uses, use->low, use->high);
}

static void submission_attach_again(submission *s)
{
    if (!s->detaches) {
        return;
    }
    for (size_t i = 0; i < s->n_uses; i++) {
        hdi_parts *parts = s->uses[i].buffer->uses.parts;
        if (s->detached[i] && parts) {
            parts->detached = false;
        }
    }
    s->detaches = false;
    hdi_waits_release(&s->apart);
}

/* Waits until no record of the uses is detached. The locks are held, and released during the wait.
 * True: it waited. */
static bool submission_wait_for_detached(submission *s)
{
    bool waited = false;
    for (size_t i = 0; !s->detaches && i < s->n_uses; i++) {
        while (hdi_use_is_same(&s->uses[i]) && hdi_uses_detached(&s->uses[i].buffer->uses)) {
            hdi_submit_unlock(s->lane->device, s->locks);
            hdi_sleep_for(DETACHED_SLEEP_NS);
            hdi_submit_lock(s->lane->device, s->locks);
            waited = true;
        }
    }
    return waited;
}

/* Detaches the long records, all at once. False: there are no long records. */
static bool submission_detach(submission *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_uses; i++) {
        s->detached[i] = submission_wants_to_detach(s, i);
        any |= s->detached[i];
    }
    if (any) {
        for (size_t i = 0; i < s->n_uses; i++) {
            if (s->detached[i]) {
                s->uses[i].buffer->uses.parts->detached = true;
            }
        }
        s->apart = (hdi_waits){0};
    }
    s->detaches = any;
    return any;
}

/* Returns the global number of the operation's lane: within its own lane an operation needs no
 * waits. If the lane is a library lane with roots, returns HDI_NO_LANE. Then the operation also
 * collects waits for the work in its own lane, so that the roots of that work are found. */
static inline uint32_t submission_own_lane(const hd_lane *lane)
{
    return hdi_parked_any(lane) ? HDI_NO_LANE : lane->global;
}

/* Walks over the detached records, without the locks. */
static collected submission_collect_detached(submission *s)
{
    collected result = COLLECTED;
    const collector g = {s->rt, s->lane, &s->apart, submission_own_lane(s->lane), true};
    hdi_submit_unlock(s->lane->device, s->locks);
    if (!hdi_waits_make(&s->apart, (size_t)s->rt->n_devices * HDI_LANES_MAX)) {
        result = COLLECTED_TOO_MUCH;
    }
    for (size_t i = 0; i < s->n_uses && !result; i++) {
        const hdi_use *use = &s->uses[i];
        if (s->detached[i]) {
            hdi_uses_settle_detached(s->rt, &use->buffer->uses, use->low, use->high);
            result = collect_apart(&g, use);
        }
    }
    hdi_submit_lock(s->lane->device, s->locks);
    return result;
}

/* ---- the steps ---- */

/* Undoes everything that the submission set up. Releases the locks that it holds. */
static void submission_give_up(submission *s)
{
    submission_attach_again(s);
    if (s->queued) {
        submission_leave_queue(s);
        submission_keep_others_out(s->lane);
    }
    hdi_submit_unlock(s->lane->device, s->locks);
}

/* The status of the failure that this thread reported last. */
static hd_status submission_last_status(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status;
}

/* True if the lane refuses work: it failed, and no command on its way resumes it. The order lock is
 * held. */
static bool submission_lane_refuses(const hd_lane *lane)
{
    const hdi_lane_shared *shared = lane->shared;
    /* Load `failed` again, since the engine clears it before `issued` passes the command. */
    return atomic_load_explicit(&shared->failed, memory_order_acquire) &&
           atomic_load_explicit(&lane->resumed, memory_order_relaxed) <=
               atomic_load_explicit(&shared->issued, memory_order_acquire) &&
           atomic_load_explicit(&shared->failed, memory_order_acquire);
}

/* Fails because hd_close, or a call of the program, ended an object. */
static hd_status submission_fail_ended(const hd_runtime *rt, const char *what)
{
    /* relaxed: hd_close sets it before it ends handles, and the caller saw the end of one */
    return atomic_load_explicit(&rt->ended, memory_order_relaxed) ? hdi_closed_meanwhile()
                                                                  : hdi_fail(HD_ERROR_HANDLE, "%s", what);
}

/* Checks the lane and the kernel again, since they may have changed after the call's first checks.
 * If they did, gives the submission up. */
static hd_status submission_look_at_lane(submission *s)
{
    const hdi_same *same = s->link.same;
    if (__builtin_expect(hdi_lane_is_past(s->lane) || (same && same->lane && !hdi_lane_is_same(s->lane, same)), 0)) {
        submission_give_up(s);
        return submission_fail_ended(s->rt, "the lane was destroyed meanwhile");
    }
    if (__builtin_expect(submission_lane_refuses(s->lane) || hdi_device_lost(s->lane->device), 0)) {
        submission_give_up(s);
        return hdi_lane_refuses(s->lane);
    }
    if (__builtin_expect(same && same->kernel && !hdi_kernel_is_same(same), 0)) {
        submission_give_up(s);
        return hdi_kernel_is_changed(same) ? HD_ERROR_NOT_FOUND
                                           : submission_fail_ended(s->rt, "the kernel's module was unloaded meanwhile");
    }
    return HD_OK;
}

/* Checks whether a buffer was freed or lost after its handle was checked. Also notes whether
 * records are in several segments. */
static hd_status submission_look_at_buffers(submission *s)
{
    s->in_parts = s->detached_by_others = false;
    for (size_t i = 0; i < s->n_uses; i++) {
        const hdi_use *use = &s->uses[i];
        /* see hd_free */
        uint64_t word = atomic_load_explicit(&use->buffer->self.word, memory_order_seq_cst);
        if (use->word && (word & ~HDI_SELF_LOST) != use->word) {
            submission_give_up(s);
            return submission_fail_ended(s->rt, "a buffer was freed meanwhile");
        }
        if ((use->word && word != use->word) || hdi_buffer_losses(use->buffer) != use->losses) {
            int owner = use->buffer->owner;
            submission_give_up(s);
            return hdi_loss_fail(s->rt, owner, "a buffer's content was lost meanwhile");
        }
        /* read the record last: if another buffer uses the structure by now, another lock guards
         * the record */
        const hdi_parts *parts = use->buffer->uses.parts;
        if (parts) {
            s->in_parts = true;
            s->detached_by_others |= parts->detached;
        }
    }
    return HD_OK;
}

/* Splits segments and makes room in all records, so that noting the uses cannot fail. Join segments
 * before this call, since a later join could undo a split. */
static bool submission_prepare(const submission *s, bool room)
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

static inline bool submission_is_ours(const submission *s, size_t i)
{
    return i < 32 && (s->link.ours >> i & 1);
}

/* `outside`: the lane is treated like any other lane, see submission_own_lane. */
static inline __attribute__((always_inline)) collector submission_begin_to_collect(const submission *s, bool outside)
{
    s->lane->waits.n = s->lane->waits.n_sources = 0;
    return (collector){s->rt, s->lane, &s->lane->waits, outside ? HDI_NO_LANE : s->lane->global, outside};
}

/* Collects the waits of all uses. Also drops finished points from the records. *room: the records
 * can take all readers. */
static inline __attribute__((always_inline)) collected submission_collect(const submission *s, bool outside, bool *room)
{
    const collector g = submission_begin_to_collect(s, outside);
    collected result = collect_point(&g, s->link.after, true, true);
    for (size_t i = 0; i < s->n_uses && !result; i++) {
        struct hd_buffer *b = s->uses[i].buffer;
        bool has_room = true;
        if (s->detaches && s->detached[i]) {
            has_room = false;
        } else if (!hdi_uses_is_blank(&b->uses)) {
            result = collect_use(&g, &s->uses[i], submission_is_ours(s, i), &has_room);
        }
        *room &= has_room;
        /* a use that may add segments also prunes some segments */
        if (!s->detaches && (i == 0 || !s->uses[i].whole)) {
            hdi_uses_prune(s->rt, &b->uses, b->order);
        }
    }
    return result || !s->detaches ? result : collect_again(&g, &s->apart);
}

/* Like submission_collect, but collects all waits to find their roots, even waits that the lane
 * made before. */
static collected __attribute__((noinline)) submission_collect_with_roots(const submission *s, bool *room)
{
    return submission_collect(s, true, room);
}

/* Like submission_collect, but in one pass, see collect_plain. */
static inline collected submission_collect_in_one_pass(submission *s)
{
    const collector g = submission_begin_to_collect(s, false);
    hdi_point after = s->link.after;
    collected result = after.position ? collect_point(&g, after, true, true) : COLLECTED;
    s->plain = true;
    return result ? result : collect_plain(&g, s->uses, s->n_uses, s->link.ours, &s->plain);
}

/* Called when the lane accepts an operation. In spite of earlier failures, operations in the lane
 * may take the fast path again: the failed operations have lower positions than all later
 * operations. */
static void submission_note_failures(hd_lane *lane)
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
static void submission_write_all(submission *s, uint64_t gap, hdi_leaf **garbage)
{
    hd_lane *lane = s->lane;
    submission_note_failures(lane);
    if (lane->waits.n) {
        hdi_waits_write(s->rt, lane);
    }
    hdi_submit_write(lane, s->command, gap);
    hdi_point point = {lane->global, lane->head};
    if (hdi_records(&s->rt->recorder)) {
        hdi_buffer_record_waits(lane, s->uses, s->n_uses, lane->head);
    }
    if (__builtin_expect(s->parked, 0)) {
        hdi_parked_note(lane, point.position);
    }
    const hdi_use *end = s->uses + s->n_uses;
    if (s->plain) {
        for (const hdi_use *use = s->uses; use != end; use++) {
            hdi_uses_commit_whole(&use->buffer->uses, use->write, point);
        }
    } else {
        for (const hdi_use *use = s->uses; use != end; use++) {
            hdi_uses_commit(&use->buffer->uses, use->low, use->high, use->write, point, garbage);
        }
        submission_attach_again(s);
    }
    if (s->queued) {
        submission_leave_queue(s);
    }
    submission_keep_others_out(lane);
}

static hd_status submission_not_in_time(submission *s, const char *what)
{
    hdi_point held_up = s->awaited;
    /* the lane's first unfinished operation holds the submission up */
    if (!held_up.position) {
        held_up.lane = s->lane->global;
        held_up.position = atomic_load_explicit(&s->lane->shared->done, memory_order_acquire) + 1;
    }
    submission_give_up(s);
    return hdi_not_done(s->rt, held_up.lane, held_up.position, "lane %u of device %d %s (option submit_timeout)",
                        s->lane->number, s->lane->device->index, what);
}

static void submission_begin_waiting(submission *s)
{
    s->deadline = s->deadline ? s->deadline : hdi_option_deadline(s->rt->options.submit_timeout);
}

/* Makes room in the log of the lane's failures. This begins when the log contains many failures,
 * before it is full. *again: the function released the locks for a while. */
static hd_status submission_archive_failures(submission *s, bool *again)
{
    if (atomic_load_explicit(&s->lane->shared->failure_changes, memory_order_relaxed) == 0) {
        return HD_OK; /* nothing ever failed in this lane */
    }
    bool needed = !hdi_failures_have_room(s->lane);
    if (needed && ++s->archivings > ARCHIVINGS_MOST) {
        /* the log is corrupted: the caller tries again until the device is lost or the deadline
         * passes */
        hdi_device_give_up(s->lane->device);
    }
    *again = needed || (!s->archived && hdi_failures_are_many(s->lane));
    if (!*again) {
        return HD_OK;
    }
    s->archived = true;
    submission_begin_waiting(s);
    uint32_t lane;
    uint64_t position;
    hdi_submit_unlock(s->lane->device, s->locks);
    hdi_archived archived = hdi_failures_archive(s->lane, &lane, &position);
    uint64_t forgotten = hdi_failures_to_forget(s->lane);
    if (forgotten && hdi_buffers_settle(s->rt)) {
        hdi_failures_forget(s->lane, forgotten);
    }
    bool behind = needed && archived == HDI_ARCHIVED_BEHIND;
    bool in_time = behind ? hdi_wait_position(s->rt, lane, position, s->deadline)
                          : s->archivings <= ARCHIVINGS_MOST || hdi_clock_ns() < s->deadline;
    hdi_submit_lock(s->lane->device, s->locks);
    if (needed && archived == HDI_ARCHIVED_NO_MEMORY) {
        submission_give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the failures of lane %u of device %d", s->lane->number,
                        s->lane->device->index);
    }
    return in_time ? HD_OK
                   : submission_not_in_time(s, "has recorded too many failures, which unfinished work still needs");
}

/* For long records: detaches them, collects the waits, and makes room in the records. On failure it
 * gives the submission up. */
static hd_status submission_collect_parts(submission *s, collected *result)
{
    *result = s->in_parts && !s->detaches && submission_detach(s) ? submission_collect_detached(s) : COLLECTED;
    if (!*result && s->detaches) {
        hd_status status = submission_look_at_lane(s); /* the locks were released during the walk */
        status = status ? status : submission_look_at_buffers(s);
        if (status) {
            return status;
        }
    }
    bool room = true;
    if (!*result) {
        *result =
            hdi_parked_any(s->lane) ? submission_collect_with_roots(s, &room) : submission_collect(s, false, &room);
    }
    if (!*result && !submission_prepare(s, room)) {
        submission_give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
    }
    return HD_OK;
}

/* ---- parked operations ---- */

/* Leaves the lane's queue for room, and gives detached records back. */
static void submission_start_afresh(submission *s)
{
    submission_attach_again(s);
    if (s->queued) {
        submission_leave_queue(s);
        submission_keep_others_out(s->lane);
    }
}

/* Called if no lane can take the operation: waits for one of its roots. */
static hd_status submission_wait_for_root(submission *s)
{
    hdi_point root = s->lane->device->roots.at[0];
    submission_start_afresh(s);
    submission_begin_waiting(s);
    s->awaited = root;
    s->cannot_move = false; /* a lane may be free now */
    hdi_submit_unlock(s->lane->device, s->locks);
    bool in_time = hdi_wait_position(s->rt, root.lane, root.position, s->deadline);
    hdi_submit_lock(s->lane->device, s->locks);
    return in_time ? HD_OK
                   : submission_not_in_time(s, "and all others contain work that this operation must not wait for");
}

/* Moves the operation to a parking lane. After success, the caller tries the operation again: the
 * operation moved, a parking lane was made, or a root is over. */
static hd_status submission_move(submission *s)
{
    hdi_device *device = s->lane->device;
    hd_lane *to = hdi_parking_choose(device, s->cannot_move);
    if (!to && s->cannot_move) {
        return submission_wait_for_root(s);
    }
    submission_start_afresh(s);
    if (to) {
        s->lane = to;
        s->moves++;
    } else {
        hdi_submit_unlock(device, s->locks);
        s->cannot_move = !hdi_parking_make(device);
        hdi_submit_lock(device, s->locks);
    }
    return HD_OK;
}

/* Finds the roots of an operation in a library lane, and decides whether it may stand there.
 * *again: the caller tries the submission again. */
static hd_status __attribute__((noinline)) submission_look_at_roots(submission *s, bool *again)
{
    hd_lane *lane = s->lane;
    hdi_parked_find(lane);
    if (!hdi_parked_reserve(lane)) {
        submission_give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of the work that it waits for");
    }
    s->parked = lane->device->roots.n != 0;
    if (s->parked && s->link.parked) {
        hdi_parked_answer(lane, s->link.parked);
        submission_give_up(s);
        return HD_ERROR_NOT_FOUND;
    }
    if (!s->command || hdi_parked_fits(lane) || s->moves == MOVES_MOST) {
        return HD_OK;
    }
    *again = true;
    return submission_move(s);
}

/* Puts the operation into the ring, or waits until there may be room. */
static hd_status submission_enter(submission *s, collected result, hdi_leaf **garbage, bool *done)
{
    hd_lane *lane = s->lane;
    uint64_t gap = 0;
    uint64_t need = UINT64_MAX;
    if (!result) {
        /* without waits there are no sources */
        uint32_t wait_slots = lane->waits.n ? hdi_waits_slots(&lane->waits) : 0;
        need = hdi_submit_slots(lane, wait_slots, s->command->slots, &gap);
        bool first = !lane->room_first || lane->room_first == &s->turn;
        if (first && submission_has_room(lane, need)) {
            hdi_undo *undo = hdi_linked_undo(&s->link);
            if (__builtin_expect(undo != NULL, 0) && !hdi_undo_note(s->rt, undo, s->uses, s->n_uses)) {
                submission_give_up(s);
                return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a copy of the use records");
            }
            submission_write_all(s, gap, garbage);
            *done = true;
            return HD_OK;
        }
    } else if (lane->waits.n == 0) {
        submission_give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of the work that it waits for");
    }
    submission_attach_again(s);
    submission_begin_waiting(s);
    int64_t began = hdi_record_began(&s->rt->recorder);
    uint64_t until;
    bool in_time = submission_wait_for_room(s, need, &until);
    hdi_pause_end(&s->rt->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_ROOM,
                              .device = (uint8_t)lane->device->index,
                              .lane = lane->global,
                              .position = until});
    hdi_submit_lock(s->lane->device, s->locks);
    return in_time ? HD_OK : submission_not_in_time(s, "is full");
}

/* Tries once to submit the operation. *done: the operation is in the ring. If the operation is not
 * in the ring, and the call did not fail, the caller tries again. The caller holds the locks, and
 * still holds them after the call unless the call failed. */
static hd_status submission_try(submission *s, hdi_leaf **garbage, bool *done)
{
    hd_status status = submission_look_at_lane(s);
    bool again = false;
    status = status ? status : submission_archive_failures(s, &again);
    if (status || again) {
        return status;
    }
    collected result = COLLECTED;
    s->plain = false;
    if (__builtin_expect(!hdi_parked_any(s->lane), 1)) {
        result = submission_collect_in_one_pass(s);
    }
    if (!s->plain) {
        status = submission_look_at_buffers(s);
        if (status || (s->detached_by_others && submission_wait_for_detached(s))) {
            return status;
        }
        status = submission_collect_parts(s, &result);
        if (status) {
            return status;
        }
    }
    if (result == COLLECTED_FAILURE) {
        submission_give_up(s);
        return submission_last_status();
    }
    if (result || !(s->lane->waits.n || hdi_parked_any(s->lane)) || !hdi_parked_may_be_in(s->lane)) {
        s->parked = false;
    } else {
        status = submission_look_at_roots(s, &again);
        if (status || again) {
            return status;
        }
    }
    if (__builtin_expect(!s->command, 0)) {
        submission_give_up(s);
        return HD_ERROR_NOT_FOUND; /* no roots */
    }
    return submission_enter(s, result, garbage, done);
}

hd_status hdi_submit_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          hdi_linked link, uint64_t locks, hd_ticket *out)
{
    /* this call may wait for room, and hd_close must then wait for this call */
    HDI_INSIDE_STILL(lane->runtime);
    submission s; /* set member by member: most members matter only for waits */
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
    s.moves = 0;
    s.parked = s.cannot_move = false;
    s.archived = s.queued = s.in_parts = s.detaches = false;
    hdi_leaf *garbage = NULL; /* freed when the locks are released */
    hd_status status = HD_OK;
    for (bool done = false; !status && !done;) {
        status = submission_try(&s, &garbage, &done);
    }
    if (!status) {
        hdi_submit_publish(s.lane, uses, n_uses, command, locks, s.lane->waits.n ? NULL : hdi_linked_quiet(&link), out);
    }
    if (garbage) {
        hdi_leaves_free(garbage);
    }
    return status;
}
