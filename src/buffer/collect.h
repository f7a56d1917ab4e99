/* collect.h - finds the dependencies of an operation: turns the use records of the operation's
 * buffers into waits for lanes, and into sources. A source is a result that the operation reads,
 * and that is not known to have succeeded.
 *
 * For the order, one wait per lane is enough: the wait for the last position in the lane that the
 * operation depends on. For failures, one position per lane is not enough: the operation must fail
 * if any of its sources fails. If a lane refuses work after a failure, its last result stands for
 * all its earlier results.
 *
 * Threads: any. Only submit_slow.c includes this file. Its hot path consists of these functions.
 * Locks: callers hold the order locks of the buffers and, unless `apart` is set, the order lock of
 * the lane. Callers of the functions for detached records hold no lock.
 * Always: a collector fails if a result that the operation reads already failed. A result that
 * may still fail becomes a source, so the operation fails if that result fails. Collecting drops
 * finished points from the records.
 */
#ifndef HDI_COLLECT_H
#define HDI_COLLECT_H

#include <stdlib.h>
#include "buffer/submit_fast.h"
#include "buffer/undo.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* ---- dependencies ---- */

#define SOURCES_FIRST 16

typedef enum collected {
    COLLECTED = 0,
    COLLECTED_FAILURE, /* a result that the operation reads failed; the message is set */
    COLLECTED_TOO_MUCH /* no memory: wait for some of `waits` first */
} collected;

typedef struct collector {
    hd_runtime *rt;
    hd_lane *lane; /* the operation's lane */
    hdi_waits *waits;
    /* the global number of the operation's lane. HDI_NO_LANE if the operation also needs waits for
     * earlier work in its own lane */
    uint32_t own;
    /* Set: also collect waits that the lane already made. The caller sets it if it does not hold
     * the lane's order lock, or if it needs all roots (parked.h). */
    bool apart;
} collector;

/* For two unfinished results of the same lane: true if a failure of `earlier` always makes `later`
 * fail. This is the case if the lane refuses work after a failure, and did not accept work again
 * between both results. */
static bool collect_speaks_for(hd_runtime *rt, uint32_t lane, uint64_t later, uint64_t earlier)
{
    const hd_lane *other = hdi_lane_at(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX);
    /* relaxed: `later` was noted under a lock, and taking that lock made an earlier resumption
     * visible */
    return later == earlier || (later > earlier && other->sticky_failure &&
                                earlier > atomic_load_explicit(&other->resumed, memory_order_relaxed));
}

static bool __attribute__((noinline)) collect_add_source(hdi_waits *w, hdi_point point)
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

static inline __attribute__((always_inline)) collected collect_add_wait(hd_runtime *rt, hdi_waits *w, hdi_point point,
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
    if (!source || (e->source && collect_speaks_for(rt, point.lane, e->source, point.position))) {
        return COLLECTED;
    }
    if (!e->source || collect_speaks_for(rt, point.lane, point.position, e->source)) {
        e->source = point.position;
        return COLLECTED;
    }
    return collect_add_source(w, point) ? COLLECTED : COLLECTED_TOO_MUCH;
}

static collected __attribute__((noinline)) collect_add_result(hd_runtime *rt, hdi_waits *w, hdi_point point)
{
    return collect_add_wait(rt, w, point, true);
}

/* True if the point belongs to a claim that the program ended with success, even if the engine did
 * not see that yet. */
static inline bool collect_claim_is_over(hd_runtime *rt, hdi_point point)
{
    const hd_lane *other = hdi_lane_at(hdi_lane_owner(rt, point.lane), point.lane % HDI_LANES_MAX);
    return other->claim && hdi_claim_is_over(other, point.position);
}

/* Collects a result that failed, so that the operation fails later. But if this failure may
 * leave the log, the engine may not find it. In that case the submission itself fails. */
static collected __attribute__((noinline)) collect_failed_result(const collector *g, hdi_point point)
{
    const hd_lane *other = hdi_lane_at(hdi_lane_owner(g->rt, point.lane), point.lane % HDI_LANES_MAX);
    if (point.position > atomic_load_explicit(&other->failures_leaving, memory_order_relaxed)) {
        return collect_add_result(g->rt, g->waits, point);
    }
    return hdi_position_status(g->rt, point.lane, point.position) ? COLLECTED_FAILURE : COLLECTED;
}

/* Collects one point, if the operation must wait for it. *over: the operation of the point is
 * finished. If `source` is set, that operation also succeeded. */
static inline __attribute__((always_inline)) collected collect_look_at(const collector *g, hdi_point point, bool source,
                                                                       bool ours, bool *over)
{
    hd_lane *lane = g->lane;
    bool own = point.lane == g->own;
    const hdi_lane_shared *other = own ? lane->shared : hdi_lane_shared_of(g->rt, point.lane);
    *over = false;
    if (own && lane->sticky_failure && !source) {
        return COLLECTED;
    }
    /* `done` is loaded before the failures: a failure is recorded before `done` passes it. */
    uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    if (source && __builtin_expect(atomic_load_explicit(&other->failure_changes, memory_order_acquire) != 0, 0)) {
        hdi_failure failure;
        if (ours && hdi_failure_find(g->rt, point.lane, point.position, &failure)) {
            return collect_failed_result(g, point);
        }
        if (!ours && hdi_position_status(g->rt, point.lane, point.position)) {
            return COLLECTED_FAILURE;
        }
    }
    if (done >= point.position || collect_claim_is_over(g->rt, point)) {
        *over = true;
        return COLLECTED;
    }
    /* Earlier work in the operation's own lane needs no wait. But if failures of this lane are not
     * sticky, the results that the operation reads are sources. */
    if (own && (lane->sticky_failure || !source)) {
        return COLLECTED;
    }
    /* A lane does not repeat a wait. If the operation reads the result, the earlier wait is enough
     * only if it also named the result as a source. */
    if (!own && !g->apart) {
        uint64_t seen = source ? lane->seen_source[point.lane] : lane->seen[point.lane];
        if (source ? seen && lane->sticky_failure && collect_speaks_for(g->rt, point.lane, seen, point.position)
                   : seen >= point.position) {
            return COLLECTED;
        }
    }
    return collect_add_wait(g->rt, g->waits, point, source);
}

/* Collects one earlier use. `source`: the operation reads the result of the earlier use. `ours`:
 * see hdi_linked. */
static collected collect_point(const collector *g, hdi_point point, bool source, bool ours)
{
    bool over;
    return point.position ? collect_look_at(g, point, source, ours, &over) : COLLECTED;
}

/* True if the point is an unfinished operation of the operation's own lane, and this lane refuses
 * work after a failure. */
static inline bool collector_speaks_for_lane(const collector *g, hdi_point point)
{
    const hd_lane *lane = g->lane;
    return point.lane == g->own && lane->sticky_failure &&
           point.position > atomic_load_explicit(&lane->resumed, memory_order_relaxed) &&
           point.position > atomic_load_explicit(&lane->shared->done, memory_order_acquire);
}

/* True if an unfinished operation of the lane read the segment since it was written. Then the lane
 * waited for the writer, and refuses work if the writer fails. */
static bool collector_has_read(const collector *g, hdi_segment *s)
{
    const hdi_point *point = hdi_segment_reader(s, g->own);
    return point && collector_speaks_for_lane(g, *point);
}

/* collector_has_read for all segments of a use. */
static bool collector_has_read_all(const collector *g, const hdi_use *use)
{
    const hdi_parts *parts = use->buffer->uses.parts;
    bool found = false;
    for (uint32_t i = 0; parts && i < parts->n_wide && !found; i++) {
        const hdi_wide_reader *w = &parts->wide[i];
        found = w->low <= use->low && w->high >= use->high && w->writes == parts->writes &&
                collector_speaks_for_lane(g, w->point);
    }
    return found;
}

/* ---- the segments of a use ---- */

/* Drops finished readers from the segment. If there are few readers, it does so at each use,
 * otherwise only now and then. */
static inline void collect_settle_readers(const collector *g, hdi_segment *s)
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

/* Collects the waits of a use in one segment, and drops finished points from the segment. */
static inline __attribute__((always_inline)) collected collect_segment(const collector *g, const hdi_use *use,
                                                                       hdi_segment *s, bool ours)
{
    collected result = COLLECTED;
    if (s->n_readers) {
        if (use->write) {
            result = collect_readers(g, s);
        } else {
            collect_settle_readers(g, s);
        }
    }
    bool look = s->writer.position && !(s->n_readers && !s->failed && collector_has_read(g, s));
    if (!result && look) {
        bool over;
        result = collect_look_at(g, s->writer, use->read, ours, &over);
        if (over && use->read) {
            s->writer = (hdi_point){0, 0};
        }
    }
    return result;
}

typedef struct collect_walk {
    const collector *g;
    const hdi_use *use;
    bool ours;
    bool over; /* nothing more to collect */
    bool room; /* each segment of the use has room for one more reader */
    collected result;
} collect_walk;

static void collect_visit(void *context, hdi_segment *s)
{
    collect_walk *w = context;
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

/* Collects the waits from the segments without changing the segments. */
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

/* Collects all waits of one use of a buffer.
 * Finished points leave the record as in hdi_uses_settle. A read waits for no reader. So if a
 * segment has many readers, a read drops the finished ones only now and then.
 * *room: the argument `room` of hdi_uses_prepare. */
static collected collect_use(const collector *g, const hdi_use *use, bool ours, bool *room)
{
    hdi_uses *u = &use->buffer->uses;
    *room = use->write;
    if (u->parts && use->write && use->low == 0 && use->high == hdi_parts_end(u->parts)) {
        return collect_all(g, use, ours); /* the write replaces all segments */
    }
    collect_walk w = {g, use, ours, false, true, COLLECTED};
    if (u->parts) {
        w.over = !use->write && collector_has_read_all(g, use);
        hdi_uses_visit(g->rt, u, use->low, use->high, collect_visit, &w);
    } else {
        collect_visit(&w, &u->whole);
    }
    *room |= w.room;
    return w.result ? w.result : collect_wide(g, use);
}

/* Collects all waits of one use of a buffer whose record is detached. The record has several
 * segments, and contains no finished uses any more. `g->apart` is set. */
static collected collect_apart(const collector *g, const hdi_use *use)
{
    return collect_all(g, use, false);
}

/* Collects the waits of all uses in one pass, and makes room for the uses in the records. Each use
 * must cover a whole buffer whose record is one segment. The buffer must be unchanged since its
 * handle was checked. If any of this is not true, *plain becomes false, and the caller must ignore
 * the collected waits. `ours`: as in hdi_linked. */
static collected collect_plain(const collector *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain)
{
    collected result = COLLECTED;
    bool good = true;
    for (const hdi_use *use = uses; use != uses + n_uses && good && !result; use++, ours >>= 1) {
        struct hd_buffer *b = use->buffer;
        hdi_uses *u = &b->uses;
        /* Read the record last: if another buffer uses the structure by now, another lock guards
         * the record. */
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

/* Under the lane's lock, collects again the waits in `apart`, which were collected without the
 * lock. */
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

#endif
