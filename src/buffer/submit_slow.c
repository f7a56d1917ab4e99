/* submit_slow.c - an operation that may have to wait: for other lanes, for room in its ring, for a record that another thread works on.
 *
 * What it waits for are its dependencies: earlier uses of the same bytes that are not done.
 * For the order, one wait per lane is enough: for the last position that matters.
 * For what is read, each result that may still fail is a source. Where a lane refuses work after a failure, its last result stands for all before
 * it.
 *
 * A use that overlaps very many segments is not walked under the order locks.
 * Its record is detached and walked without them, and the points that were found are checked again under them.
 * What would be parked in a copy lane (parked.h) goes on in a parking lane: what it waits for is collected again for that one.
 * Submissions wait for room in a full lane in turn, without locks. A later one waits behind them, however few slots it needs.
 *
 * Threads: any.
 * Locks: order locks, released while anything is waited for. A detached record needs no lock.
 * Blocking: until waits, room and records are there (option submit_timeout for room).
 * Always: records are detached all at once or not at all. They are given back before anything else is waited for, so no two submissions wait for each other.
 * A submission takes room only when no other one waits in front of it.
 * It fails with a failure that is recorded now. A result that may still fail is waited for as a source, so that the operation fails with it.
 * Without memory for dependencies, those collected so far stay good, and some of them are waited for first.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/parked.h"
#include "buffer/submit_fast.h"
#include "buffer/submit_waits.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* ---- dependencies ---- */

#define SOURCES_FIRST 16

typedef enum collected {
    COLLECTED = 0,
    COLLECTED_FAILURE, /* an earlier operation whose result is read has failed; the message is set */
    COLLECTED_TOO_MUCH /* no memory: some of `waits` has to be waited for first */
} collected;

typedef struct collector {
    hd_runtime *rt;
    hd_lane *lane; /* the lane of the operation */
    hdi_waits *waits;
    bool apart; /* without the order lock of the lane: its earlier waits are ignored */
} collector;

/* Whether of two unfinished results of a lane `later` fails wherever `earlier` does. So it is where the lane refuses work after a failure, and
 * was not made to accept work again in between. */
static bool speaks_for(hd_runtime *rt, uint32_t lane, uint64_t later, uint64_t earlier)
{
    const hd_lane *other = hdi_lane_at(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX);
    /* relaxed: the lock under which `later` was noted makes a resumption before it visible */
    return later == earlier || (later > earlier && other->sticky_failure &&
                                earlier > atomic_load_explicit(&other->resumed, memory_order_relaxed));
}

static bool __attribute__((noinline)) add_source(hdi_waits *w, hdi_point point)
{
    if (w->n_sources == w->sources_room) {
        uint32_t room = w->sources_room ? 2 * w->sources_room : SOURCES_FIRST;
        hdi_point *more = realloc(w->sources, room * sizeof *more);
        if (!more) {
            return false;
        }
        w->sources = more;
        w->sources_room = room;
    }
    w->sources[w->n_sources++] = point;
    return true;
}

static inline __attribute__((always_inline)) collected add_wait(hd_runtime *rt, hdi_waits *w, hdi_point point,
                                                                bool source)
{
    uint32_t i = w->index[point.lane];
    if (i >= w->n || w->entries[i].lane != point.lane) {
        i = w->n++;
        w->index[point.lane] = i;
        w->entries[i] = (hdi_wait_entry){point.lane, point.position, 0};
    }
    hdi_wait_entry *e = &w->entries[i];
    e->position = e->position > point.position ? e->position : point.position;
    if (!source || (e->source && speaks_for(rt, point.lane, e->source, point.position))) {
        return COLLECTED;
    }
    if (!e->source || speaks_for(rt, point.lane, point.position, e->source)) {
        e->source = point.position;
        return COLLECTED;
    }
    return add_source(w, point) ? COLLECTED : COLLECTED_TOO_MUCH;
}

static collected __attribute__((noinline)) add_result(hd_runtime *rt, hdi_waits *w, hdi_point point)
{
    return add_wait(rt, w, point, true);
}

/* Whether the point is of a claim that the program has ended well: its engine may not have seen that yet. */
static inline bool is_claim_over(hd_runtime *rt, hdi_point point)
{
    const hd_lane *other = hdi_lane_at(hdi_lane_owner(rt, point.lane), point.lane % HDI_LANES_MAX);
    return other->claim && hdi_claim_is_over(other, point.position);
}

/* *over: the operation of the point is finished and, for a source, has not failed. */
static inline __attribute__((always_inline)) collected look_at(const collector *g, hdi_point point, bool source,
                                                               bool ours, bool *over)
{
    hd_lane *lane = g->lane;
    bool own = point.lane == lane->global;
    const hdi_lane_shared *other = own ? lane->shared : hdi_lane_shared_of(g->rt, point.lane);
    *over = false;
    if (own && lane->sticky_failure && !source) {
        return COLLECTED;
    }
    /* `done` before the failures: a failure is recorded before `done` passes it. */
    uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    if (source && __builtin_expect(atomic_load_explicit(&other->failure_changes, memory_order_acquire) != 0, 0)) {
        hdi_failure failure;
        if (ours && hdi_failure_find(g->rt, point.lane, point.position, &failure)) {
            return add_result(g->rt, g->waits, point);
        }
        if (!ours && hdi_position_status(g->rt, point.lane, point.position)) {
            return COLLECTED_FAILURE;
        }
    }
    if (done >= point.position || is_claim_over(g->rt, point)) {
        *over = true;
        return COLLECTED;
    }
    if (own && (lane->sticky_failure || !source)) {
        return COLLECTED; /* the lane's order needs no wait; but where failures are not sticky, its own results are sources */
    }
    /* A wait is not repeated. But a result that may still fail has to be waited for as a source, once. */
    if (!own && !g->apart) {
        uint64_t seen = source ? lane->seen_source[point.lane] : lane->seen[point.lane];
        if (source ? seen && lane->sticky_failure && speaks_for(g->rt, point.lane, seen, point.position)
                   : seen >= point.position) {
            return COLLECTED;
        }
    }
    return add_wait(g->rt, g->waits, point, source);
}

/* Collects one earlier use. `source`: the operation reads what that use wrote. `ours`: see hdi_linked. */
static collected collect_point(const collector *g, hdi_point point, bool source, bool ours)
{
    bool over;
    return point.position ? look_at(g, point, source, ours, &over) : COLLECTED;
}

/* Whether the point is of an unfinished operation of the lane after whose failure the lane refuses work. */
static inline bool speaks_for_lane(const hd_lane *lane, hdi_point point)
{
    return point.lane == lane->global && lane->sticky_failure &&
           point.position > atomic_load_explicit(&lane->resumed, memory_order_relaxed) &&
           point.position > atomic_load_explicit(&lane->shared->done, memory_order_acquire);
}

/* Whether an unfinished operation of the lane has read the segment since it was written. Then the lane has waited for the writer, and refuses
 * work if the writer fails. */
static bool lane_has_read(const hd_lane *lane, hdi_segment *s)
{
    const hdi_point *point = hdi_segment_reader(s, lane->global);
    return point && speaks_for_lane(lane, *point);
}

/* The same for all segments of a use. */
static bool lane_has_read_all(const hd_lane *lane, const hdi_use *use)
{
    const hdi_parts *parts = use->buffer->uses.parts;
    bool found = false;
    for (uint32_t i = 0; parts && i < parts->n_wide && !found; i++) {
        const hdi_wide_reader *w = &parts->wide[i];
        found =
            w->low <= use->low && w->high >= use->high && w->writes == parts->writes && speaks_for_lane(lane, w->point);
    }
    return found;
}

/* ---- the segments of a use ---- */

/* Drops finished readers from the segment: at each use where they are few, else now and then. */
static inline void settle_readers(const collector *g, hdi_segment *s)
{
    if (s->room != 0) {
        if (++s->looks >= s->n_readers) {
            hdi_segment_settle(g->rt, s);
        }
        return;
    }
    hdi_point *few = s->readers.few;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_readers; i++) {
        if (!hdi_point_done(g->rt, few[i])) {
            if (kept != i) {
                few[kept] = few[i];
            }
            kept++;
        }
    }
    s->n_readers = kept;
}

static collected collect_readers(const collector *g, hdi_segment *s)
{
    collected result = COLLECTED;
    const hdi_point *readers = hdi_segment_readers(s);
    for (uint32_t i = 0; i < s->n_readers && !result; i++) {
        result = collect_point(g, readers[i], false, false);
    }
    return result;
}

/* Collects what the use waits for in one segment, and drops what is finished from the segment. */
static inline __attribute__((always_inline)) collected collect_segment(const collector *g, const hdi_use *use,
                                                                       hdi_segment *s, bool ours)
{
    collected result = COLLECTED;
    if (s->n_readers) {
        if (use->write) {
            result = collect_readers(g, s);
        } else {
            settle_readers(g, s);
        }
    }
    bool look = s->writer.position && !(s->n_readers && !s->failed && lane_has_read(g->lane, s));
    if (!result && look) {
        bool over;
        result = look_at(g, s->writer, use->read, ours, &over);
        if (over && use->read) {
            s->writer = (hdi_point){0, 0};
        }
    }
    return result;
}

typedef struct walk {
    const collector *g;
    const hdi_use *use;
    bool ours;
    bool over; /* nothing more has to be collected */
    bool room; /* all segments of the use have room for one more reader */
    collected result;
} walk;

static void visit(void *context, hdi_segment *s)
{
    walk *w = context;
    if (w->over || s->low >= w->use->high || s->high <= w->use->low) {
        hdi_segment_settle(w->g->rt, s);
    } else {
        w->result = collect_segment(w->g, w->use, s, w->ours);
        w->over = w->result != COLLECTED;
    }
    if (s->n_readers >= HDI_READERS_FEW && s->n_readers >= s->room) {
        w->room = false;
    }
}

/* Collects the wide readers, which a write waits for. */
static collected collect_wide(const collector *g, const hdi_use *use)
{
    collected result = COLLECTED;
    uint32_t n;
    const hdi_wide_reader *wide = hdi_uses_wide(&use->buffer->uses, &n);
    for (uint32_t i = 0; use->write && i < n && !result; i++) {
        if (wide[i].low < use->high && wide[i].high > use->low) {
            result = collect_point(g, wide[i].point, false, false);
        }
    }
    return result;
}

/* Collects from the segments without a change of them. */
static collected collect_all(const collector *g, const hdi_use *use, bool ours)
{
    collected result = COLLECTED;
    hdi_uses *u = &use->buffer->uses;
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, use->low, &place);
    for (; s && s->low < use->high && !result; s = hdi_uses_next(u, &place)) {
        result = collect_point(g, s->writer, use->read, ours);
        result = result || !use->write ? result : collect_readers(g, s);
    }
    return result ? result : collect_wide(g, use);
}

/* Collects all that one use of a buffer has to wait for.
 * Finished points leave the record as by hdi_uses_settle. A read waits for no reader, so it drops finished readers of many lanes only now and
 * then.
 * *room: the argument `room` of hdi_uses_prepare. */
static collected collect_use(const collector *g, const hdi_use *use, bool ours, bool *room)
{
    hdi_uses *u = &use->buffer->uses;
    *room = use->write;
    if (u->parts && use->write && use->low == 0 && use->high == hdi_parts_end(u->parts)) {
        return collect_all(g, use, ours); /* the write replaces all segments */
    }
    walk w = {g, use, ours, false, true, COLLECTED};
    if (u->parts) {
        w.over = !use->write && lane_has_read_all(g->lane, use);
        hdi_uses_visit(g->rt, u, use->low, use->high, visit, &w);
    } else {
        visit(&w, &u->whole);
    }
    *room |= w.room;
    return w.result ? w.result : collect_wide(g, use);
}

/* The same for a use whose record has several segments, and is detached and settled. `g` is apart. */
static collected collect_apart(const collector *g, const hdi_use *use)
{
    return collect_all(g, use, false);
}

/* Collects all that the uses wait for, in one pass, and makes room for them in the records. Each use has to be of a whole buffer, with a record
 * of one segment. The buffer has to be as it was when its handle was checked. Else *plain is false, and what was collected does not count.
 * `ours`: as in hdi_linked. */
static collected collect_plain(const collector *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain)
{
    collected result = COLLECTED;
    bool good = true;
    for (const hdi_use *use = uses; use != uses + n_uses && good && !result; use++, ours >>= 1) {
        struct hd_buffer *b = use->buffer;
        hdi_uses *u = &b->uses;
        /* The record is read last: if the structure is another buffer's by now, the record has another lock. */
        good = (use->whole & hdi_use_is_same(use) & (hdi_buffer_losses(b) == use->losses)) && u->parts == NULL;
        if (good) {
            hdi_uses_prune(g->rt, u, b->order);
            if (!hdi_uses_is_blank(u)) {
                result = collect_segment(g, use, &u->whole, ours & 1);
                good =
                    hdi_uses_has_room(u) || hdi_uses_prepare_parts(g->rt, u, b->order, use->low, use->high, use->write);
            }
        }
    }
    *plain = good;
    return result;
}

/* Collects once more, with the lane's lock, what was collected apart. */
static collected collect_again(const collector *g, const hdi_waits *apart)
{
    collected result = COLLECTED;
    for (uint32_t i = 0; i < apart->n && !result; i++) {
        const hdi_wait_entry *e = &apart->entries[i];
        result = collect_point(g, (hdi_point){e->lane, e->position}, false, false);
        if (!result && e->source) {
            result = collect_point(g, (hdi_point){e->lane, e->source}, true, false);
        }
    }
    for (uint32_t i = 0; i < apart->n_sources && !result; i++) {
        result = collect_point(g, apart->sources[i], true, false);
    }
    return result;
}

/* ---- the submission ---- */

#define ARCHIVINGS_MOST 1000    /* in a log that is not corrupted, each moves something or waits for something */
#define DETACHED_SLEEP_NS 10000 /* about as long as another thread's walk over thousands of segments takes */

typedef struct submission {
    hd_runtime *rt;
    hd_lane *lane;
    const hdi_use *uses;
    size_t n_uses;
    const hdi_command *command; /* NULL: it only looks whether it would be parked, and ends with NOT_FOUND */
    hdi_linked link;
    uint64_t locks;
    uint32_t parked;         /* the claims found that it waits for, behind the list of its lane */
    bool moved, cannot_move; /* to a parking lane; no more of them can be made */
    int64_t deadline;        /* for room; 0: it has not waited yet */
    hdi_point awaited;       /* what it waits for in place of room in the lane; position 0: nothing */
    int archivings;          /* how often the log of failures needed room */
    bool archived;           /* failures of the lane were archived, as far as that was possible at once */
    bool plain;              /* whole buffers, whose records have one segment: the next two members do not matter */
    bool in_parts;           /* a record has several segments */
    bool detached_by_others; /* such a record is detached */
    bool queued;             /* `turn` is set, and is in the lane's queue for room */
    hdi_room_waiter turn;
    bool detaches; /* `detached` and `apart` are set; this submission has the records of the uses in `detached` */
    bool detached[HDI_USES_OF_ONE];
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
 * the first of them is done. *until: up to where the lane has to be done for that; 0: it is not what is waited for. False: not in time. */
static bool wait_for_room(submission *s, uint64_t need, uint64_t *until)
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
        queue_up(s);
    }
    keep_others_out(lane);
    bool first = lane->room_first == &s->turn;
    /* 0 where the ring has room, but the worker has reported an impossible position. */
    *until = lane->head + need > slots ? lane->head + need - slots : 0;
    hdi_submit_unlock(s->lane->device, s->locks);
    atomic_fetch_add_explicit(&lane->device->ring_stalls, 1, memory_order_relaxed);
    if (first) {
        return hdi_wait_position_unrecorded(s->rt, lane->global, *until, s->deadline);
    }
    HDI_CALLER_WAITS();
    /* pairs with the release store in leave_queue */
    while (!atomic_load_explicit(&s->turn.first, memory_order_acquire)) {
        if (!hdi_futex_wait(&s->turn.first, 0, s->deadline)) {
            return false;
        }
    }
    return true;
}

/* ---- detached records ---- */

static bool wants_to_detach(const submission *s, size_t i)
{
    const hdi_use *use = &s->uses[i];
    return !(s->link.ours >> (i < 32 ? i : 31) & 1) && hdi_uses_is_long(&use->buffer->uses, use->low, use->high);
}

static void attach_again(submission *s)
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

/* Waits until no record of the uses is detached. The locks are held, and released meanwhile. True: it has waited. */
static bool wait_for_detached(submission *s)
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

/* Detaches the long records, all at once. False: there are none. */
static bool detach(submission *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_uses; i++) {
        s->detached[i] = wants_to_detach(s, i);
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

/* Walks over the detached records, without the locks. */
static collected work_on_detached(submission *s)
{
    collected result = COLLECTED;
    hdi_submit_unlock(s->lane->device, s->locks);
    if (!hdi_waits_make(&s->apart, (size_t)s->rt->n_devices * HDI_LANES_MAX)) {
        result = COLLECTED_TOO_MUCH;
    }
    const collector g = {s->rt, s->lane, &s->apart, true};
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

/* Undoes all that the submission has set up. The locks are held, and released here. */
static void give_up(submission *s)
{
    attach_again(s);
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
        return hdi_kernel_is_changed(same) ? HD_ERROR_NOT_FOUND
                                           : hdi_fail(HD_ERROR_HANDLE, "the kernel's module was unloaded meanwhile");
    }
    return HD_OK;
}

/* The same for the buffers. Also notes whether records have several segments. */
static hd_status look_at_buffers(submission *s)
{
    s->in_parts = s->detached_by_others = false;
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
            s->detached_by_others |= parts->detached;
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
static collected collect(const submission *s, bool *room)
{
    const collector g = {s->rt, s->lane, &s->lane->waits, false};
    s->lane->waits.n = s->lane->waits.n_sources = 0;
    collected result = collect_point(&g, s->link.after, true, true);
    for (size_t i = 0; i < s->n_uses && !result; i++) {
        struct hd_buffer *b = s->uses[i].buffer;
        bool has_room = true;
        if (s->detaches && s->detached[i]) {
            has_room = false;
        } else if (!hdi_uses_is_blank(&b->uses)) {
            result = collect_use(&g, &s->uses[i], is_ours(s, i), &has_room);
        }
        *room &= has_room;
        if (!s->detaches && (i == 0 || !s->uses[i].whole)) { /* a use that may add segments removes some */
            hdi_uses_prune(s->rt, &b->uses, b->order);
        }
    }
    return result || !s->detaches ? result : collect_again(&g, &s->apart);
}

/* The same in one pass, see collect_plain. */
static inline collected collect_in_one_pass(submission *s)
{
    const collector g = {s->rt, s->lane, &s->lane->waits, false};
    s->lane->waits.n = s->lane->waits.n_sources = 0;
    hdi_point after = s->link.after;
    collected result = after.position ? collect_point(&g, after, true, true) : COLLECTED;
    s->plain = true;
    return result ? result : collect_plain(&g, s->uses, s->n_uses, s->link.ours, &s->plain);
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
    if (hdi_records(&s->rt->recorder)) {
        hdi_record_waits(lane, s->uses, s->n_uses, lane->head);
    }
    if (s->parked) {
        hdi_parked_note(lane, s->parked, point.position);
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
        attach_again(s);
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

/* Detaches, collects, and makes room in the records. After a failure it has given up. */
static hd_status collect_parts(submission *s, collected *result)
{
    *result = s->in_parts && !s->detaches && detach(s) ? work_on_detached(s) : COLLECTED;
    if (!*result && s->detaches) {
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

/* ---- parked operations ---- */

/* Leaves the lane's queue for room, and gives detached records back. */
static void start_afresh(submission *s)
{
    attach_again(s);
    if (s->queued) {
        leave_queue(s);
        keep_others_out(s->lane);
    }
}

/* What is parked goes on in a parking lane. *again: it has moved, or there may be such a lane now. Where there can be none it stays. */
static void move(submission *s, bool *again)
{
    hdi_device *device = s->lane->device;
    hd_lane *to = hdi_parking_choose(s->lane, s->parked, s->cannot_move);
    *again = to || !s->cannot_move;
    if (*again) {
        start_afresh(s);
    }
    if (to) {
        s->lane = to;
        s->moved = true;
    } else if (*again) {
        hdi_submit_unlock(device, s->locks);
        s->cannot_move = !hdi_parking_make(device);
        hdi_submit_lock(device, s->locks);
    }
}

/* Whether one of the waits that were collected may be for a claim, or for an operation that is parked. */
static inline bool may_be_parked(hd_runtime *rt, const hd_lane *lane)
{
    bool any = false;
    for (uint32_t i = 0; i < lane->waits.n && !any; i++) {
        uint32_t other = lane->waits.entries[i].lane;
        any = hdi_parked_may_be(hdi_lane_at(hdi_lane_owner(rt, other), other % HDI_LANES_MAX));
    }
    return any;
}

/* Finds the open claims that the operation waits for. */
static hd_status __attribute__((noinline)) look_at_claims(submission *s, bool *again)
{
    hd_lane *lane = s->lane;
    s->parked = hdi_parked_find(lane);
    if (!s->parked) {
        return HD_OK;
    }
    if (s->parked == HDI_PARKED_NO_MEMORY) {
        give_up(s);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for what it has to wait for");
    }
    if (s->moved || !hdi_parked_moves(lane)) {
        return HD_OK;
    }
    if (s->link.parked) {
        *s->link.parked = lane->parked.at[atomic_load_explicit(&lane->parked.n, memory_order_relaxed)].claim;
        give_up(s);
        return HD_ERROR_NOT_FOUND;
    }
    move(s, again);
    return HD_OK;
}

/* Puts the operation into the ring, or waits until there may be room. */
static hd_status enter(submission *s, collected result, hdi_leaf **garbage, bool *done)
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
    attach_again(s);
    begin_waiting(s);
    int64_t began = hdi_record_began(&s->rt->recorder);
    uint64_t until;
    bool in_time = wait_for_room(s, need, &until);
    hdi_pause_end(&s->rt->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_ROOM,
                              .device = (uint8_t)lane->device->index,
                              .lane = lane->global,
                              .position = until});
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
    collected result = collect_in_one_pass(s);
    if (!s->plain) {
        status = look_at_buffers(s);
        if (status || (s->detached_by_others && wait_for_detached(s))) {
            return status;
        }
        status = collect_parts(s, &result);
        if (status) {
            return status;
        }
    }
    if (result == COLLECTED_FAILURE) {
        give_up(s);
        return said();
    }
    s->parked = 0;
    if (__builtin_expect(may_be_parked(s->rt, s->lane), 0) && !result) {
        status = look_at_claims(s, &again);
        if (status || again) {
            return status;
        }
    }
    if (__builtin_expect(!s->command, 0)) {
        give_up(s);
        return HD_ERROR_NOT_FOUND; /* there is no claim that it would wait for */
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
    s.moved = s.cannot_move = false;
    s.archived = s.queued = s.in_parts = s.detaches = false;
    hdi_leaf *garbage = NULL; /* freed when the locks are released */
    hd_status status = HD_OK;
    for (bool done = false; !status && !done;) {
        status = try(&s, &garbage, &done);
    }
    if (!status) {
        hdi_submit_publish(s.lane, uses, n_uses, command, locks, s.lane->waits.n ? NULL : link.quiet, out);
    }
    if (garbage) {
        hdi_leaves_free(garbage);
    }
    return status;
}
