/* dependencies.c - what an operation has to wait for. Threads, locks: see dependencies.h.
 *
 * Always: a submission fails with a failure that is recorded now. A result that may still fail is waited for as a source, so that the
 * operation fails with it.
 */
#include "buffer/dependencies.h"

#include <stdlib.h>
#include "base/error.h"
#include "buffer/submit_slow.h"
#include "engine/engine.h"

#define SOURCES_FIRST 16

/* Whether of two unfinished results of a lane `later` fails wherever `earlier` does. So it is where the lane refuses work after a failure, and
 * was not made to accept work again in between. */
static bool speaks_for(hd_runtime *rt, uint32_t lane, uint64_t later, uint64_t earlier)
{
    const hd_lane *other = hdi_lane_owner(rt, lane)->lanes[lane % HDI_LANES_MAX];
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

static inline __attribute__((always_inline)) hdi_collected add_wait(hd_runtime *rt, hdi_waits *w, hdi_point point,
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
        return HDI_COLLECTED;
    }
    if (!e->source || speaks_for(rt, point.lane, point.position, e->source)) {
        e->source = point.position;
        return HDI_COLLECTED;
    }
    return add_source(w, point) ? HDI_COLLECTED : HDI_COLLECTED_TOO_MUCH;
}

static hdi_collected __attribute__((noinline)) add_result(hd_runtime *rt, hdi_waits *w, hdi_point point)
{
    return add_wait(rt, w, point, true);
}

/* *over: the operation of the point is finished and, for a source, has not failed. */
static inline __attribute__((always_inline)) hdi_collected look_at(const hdi_collector *g, hdi_point point, bool source,
                                                                   bool ours, bool *over)
{
    hd_lane *lane = g->lane;
    bool own = point.lane == lane->global;
    const hdi_lane_shared *other = own ? lane->shared : hdi_lane_shared_of(g->rt, point.lane);
    *over = false;
    if (own && lane->sticky_failure && !source) {
        return HDI_COLLECTED;
    }
    /* `done` before the failures: a failure is recorded before `done` passes it. */
    uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    if (source && __builtin_expect(atomic_load_explicit(&other->failure_changes, memory_order_acquire) != 0, 0)) {
        hdi_failure failure;
        if (ours && hdi_failure_find(g->rt, point.lane, point.position, &failure)) {
            return add_result(g->rt, g->waits, point);
        }
        if (!ours && hdi_position_status(g->rt, point.lane, point.position)) {
            return HDI_COLLECTED_FAILURE;
        }
    }
    if (done >= point.position) {
        *over = true;
        return HDI_COLLECTED;
    }
    if (own && (lane->sticky_failure || !source)) {
        return HDI_COLLECTED; /* the lane's order needs no wait; but where failures are not sticky, its own results are sources */
    }
    /* A wait is not repeated. But a result that may still fail has to be waited for as a source, once. */
    if (!own && !g->apart) {
        uint64_t seen = source ? lane->seen_source[point.lane] : lane->seen[point.lane];
        if (source ? seen && lane->sticky_failure && speaks_for(g->rt, point.lane, seen, point.position)
                   : seen >= point.position) {
            return HDI_COLLECTED;
        }
    }
    return add_wait(g->rt, g->waits, point, source);
}

hdi_collected hdi_collect_point(const hdi_collector *g, hdi_point point, bool source, bool ours)
{
    bool over;
    return point.position ? look_at(g, point, source, ours, &over) : HDI_COLLECTED;
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
static inline void settle_readers(const hdi_collector *g, hdi_segment *s)
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

static hdi_collected collect_readers(const hdi_collector *g, hdi_segment *s)
{
    hdi_collected result = HDI_COLLECTED;
    const hdi_point *readers = hdi_segment_readers(s);
    for (uint32_t i = 0; i < s->n_readers && !result; i++) {
        result = hdi_collect_point(g, readers[i], false, false);
    }
    return result;
}

/* Collects what the use waits for in one segment, and drops what is finished from the segment. */
static inline __attribute__((always_inline)) hdi_collected collect_segment(const hdi_collector *g, const hdi_use *use,
                                                                           hdi_segment *s, bool ours)
{
    hdi_collected result = HDI_COLLECTED;
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
    const hdi_collector *g;
    const hdi_use *use;
    bool ours;
    bool over; /* nothing more has to be collected */
    bool room; /* all segments of the use have room for one more reader */
    hdi_collected result;
} walk;

static void visit(void *context, hdi_segment *s)
{
    walk *w = context;
    if (w->over || s->low >= w->use->high || s->high <= w->use->low) {
        hdi_segment_settle(w->g->rt, s);
    } else {
        w->result = collect_segment(w->g, w->use, s, w->ours);
        w->over = w->result != HDI_COLLECTED;
    }
    if (s->n_readers >= HDI_READERS_FEW && s->n_readers >= s->room) {
        w->room = false;
    }
}

/* Collects the wide readers, which a write waits for. */
static hdi_collected collect_wide(const hdi_collector *g, const hdi_use *use)
{
    hdi_collected result = HDI_COLLECTED;
    uint32_t n;
    const hdi_wide_reader *wide = hdi_uses_wide(&use->buffer->uses, &n);
    for (uint32_t i = 0; use->write && i < n && !result; i++) {
        if (wide[i].low < use->high && wide[i].high > use->low) {
            result = hdi_collect_point(g, wide[i].point, false, false);
        }
    }
    return result;
}

/* Collects from the segments without a change of them. */
static hdi_collected collect_all(const hdi_collector *g, const hdi_use *use, bool ours)
{
    hdi_collected result = HDI_COLLECTED;
    hdi_uses *u = &use->buffer->uses;
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, use->low, &place);
    for (; s && s->low < use->high && !result; s = hdi_uses_next(u, &place)) {
        result = hdi_collect_point(g, s->writer, use->read, ours);
        result = result || !use->write ? result : collect_readers(g, s);
    }
    return result ? result : collect_wide(g, use);
}

hdi_collected hdi_collect_use(const hdi_collector *g, const hdi_use *use, bool ours, bool *room)
{
    hdi_uses *u = &use->buffer->uses;
    *room = use->write;
    if (u->parts && use->write && use->low == 0 && use->high == hdi_parts_end(u->parts)) {
        return collect_all(g, use, ours); /* the write replaces all segments */
    }
    walk w = {g, use, ours, false, true, HDI_COLLECTED};
    if (u->parts) {
        w.over = !use->write && lane_has_read_all(g->lane, use);
        hdi_uses_visit(g->rt, u, use->low, use->high, visit, &w);
    } else {
        visit(&w, &u->whole);
    }
    *room |= w.room;
    return w.result ? w.result : collect_wide(g, use);
}

hdi_collected hdi_collect_apart(const hdi_collector *g, const hdi_use *use)
{
    return collect_all(g, use, false);
}

hdi_collected hdi_collect_plain(const hdi_collector *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain)
{
    hdi_collected result = HDI_COLLECTED;
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

hdi_collected hdi_collect_again(const hdi_collector *g, const hdi_waits *apart)
{
    hdi_collected result = HDI_COLLECTED;
    for (uint32_t i = 0; i < apart->n && !result; i++) {
        const hdi_wait_entry *e = &apart->entries[i];
        result = hdi_collect_point(g, (hdi_point){e->lane, e->position}, false, false);
        if (!result && e->source) {
            result = hdi_collect_point(g, (hdi_point){e->lane, e->source}, true, false);
        }
    }
    for (uint32_t i = 0; i < apart->n_sources && !result; i++) {
        result = hdi_collect_point(g, apart->sources[i], true, false);
    }
    return result;
}

/* ---- commands ---- */

static int by_lane(const void *a, const void *b)
{
    const hdi_point *x = a, *y = b;
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Whether the sources rise without repetition, which is the usual case. */
static bool are_sorted(const hdi_point *sources, uint32_t n)
{
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++) {
        sorted = by_lane(&sources[i - 1], &sources[i]) < 0;
    }
    return sorted;
}

/* How many of the sorted sources fit into one command. */
static uint32_t fitting(const hdi_point *sources, uint32_t n)
{
    uint32_t count = 1;
    while (count < n && count < HDI_SOURCES_MOST && sources[count].lane == sources[0].lane &&
           sources[count].position - sources[0].position <= UINT32_MAX) {
        count++;
    }
    return count;
}

uint32_t hdi_waits_slots(hdi_waits *waits)
{
    uint32_t slots = waits->n;
    if (!are_sorted(waits->sources, waits->n_sources)) {
        qsort(waits->sources, waits->n_sources, sizeof(hdi_point), by_lane);
        uint32_t kept = 1;
        for (uint32_t i = 1; i < waits->n_sources; i++) {
            if (by_lane(&waits->sources[kept - 1], &waits->sources[i]) != 0) {
                waits->sources[kept++] = waits->sources[i];
            }
        }
        waits->n_sources = kept;
    }
    for (uint32_t i = 0; i < waits->n_sources; i += fitting(&waits->sources[i], waits->n_sources - i)) {
        slots++;
    }
    return slots;
}

static void write_wait(hd_runtime *rt, hd_lane *lane, const hdi_wait_entry *w)
{
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    c->op = HDI_OP_WAIT;
    c->slots = 1;
    c->kind = 0;
    c->wait.lane = w->lane;
    c->wait.position = w->position;
    c->wait.source = w->source;
    lane->head++;
    if (w->lane == lane->global) {
        return;
    }
    hdi_device *owner = hdi_lane_owner(rt, w->lane);
    hdi_lane_shared *other = &owner->channel.lanes[w->lane % HDI_LANES_MAX];
    lane->seen[w->lane] = lane->seen[w->lane] > w->position ? lane->seen[w->lane] : w->position;
    lane->seen_source[w->lane] = w->source ? w->source : lane->seen_source[w->lane];
    /* An engine in another process cannot use the event: it waits for `done`. */
    bool by_event = !rt->is_process || owner == lane->device;
    /* A dependency on another device's result is settled when `done` there passes it, so the flag is needed beside the event. */
    bool by_word = !by_event || (owner != lane->device && w->source);
    hdi_request_completion(&owner->channel, w->lane % HDI_LANES_MAX, w->position,
                           (by_event ? HDI_REQUEST_EVENT : 0) | (by_word ? HDI_REQUEST_FLAG : 0));
    hdi_want(by_event ? &other->wanted_event : &other->wanted_host, w->position);
    hdi_engine_notify(owner->channel.engine, w->lane % HDI_LANES_MAX);
}

static void write_sources(hd_lane *lane, const hdi_point *sources, uint32_t n)
{
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    c->op = HDI_OP_SOURCES;
    c->slots = 1;
    c->kind = 0;
    c->sources.lane = sources[0].lane;
    c->sources.position = sources[0].position;
    for (uint32_t i = 1; i < HDI_SOURCES_MOST; i++) {
        c->sources.behind[i - 1] = i < n ? (uint32_t)(sources[i].position - sources[0].position) : 0;
    }
    lane->head++;
}

void hdi_waits_write(hd_runtime *rt, hd_lane *lane)
{
    const hdi_waits *waits = &lane->waits;
    for (uint32_t i = 0; i < waits->n; i++) {
        write_wait(rt, lane, &waits->entries[i]);
    }
    for (uint32_t i = 0, n; i < waits->n_sources; i += n) {
        n = fitting(&waits->sources[i], waits->n_sources - i);
        write_sources(lane, &waits->sources[i], n);
    }
}
