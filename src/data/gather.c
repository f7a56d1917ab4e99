/* gather.c - what an operation has to wait for. Threads, locks: see gather.h.
 *
 * Always: a failure that is known now is told now; one that may still come is waited for as a source, so that the operation fails with it.
 */
#include "data/gather.h"

#include <stdlib.h>
#include "base/error.h"
#include "data/submit_care.h"
#include "engine/engine.h"

#define SOURCES_FIRST 16

/* Whether the result at `later` fails wherever that at `earlier`, both unfinished, does: the lane refuses work after a failure, and was not
 * made to accept work again in between. */
static bool speaks_for(hd_runtime *rt, uint32_t lane, uint64_t later, uint64_t earlier)
{
    const hd_lane *other = hdi_lane_owner(rt, lane)->lanes[lane % HDI_LANES_MAX];
    /* relaxed: that it was resumed before `later` is seen by way of the lock under which `later` was noted */
    return later == earlier || (later > earlier && other->keeps_failure &&
                                earlier > atomic_load_explicit(&other->resumed, memory_order_relaxed));
}

static bool __attribute__((noinline)) add_source(hdi_waits *w, hdi_mark mark)
{
    if (w->n_sources == w->sources_room) {
        uint32_t room = w->sources_room ? 2 * w->sources_room : SOURCES_FIRST;
        hdi_mark *more = realloc(w->sources, room * sizeof *more);
        if (!more) {
            return false;
        }
        w->sources = more;
        w->sources_room = room;
    }
    w->sources[w->n_sources++] = mark;
    return true;
}

static inline __attribute__((always_inline)) hdi_gathered add_wait(hd_runtime *rt, hdi_waits *w, hdi_mark mark,
                                                                   bool source)
{
    uint32_t i = w->index[mark.lane];
    if (i >= w->n || w->entries[i].lane != mark.lane) {
        i = w->n++;
        w->index[mark.lane] = i;
        w->entries[i] = (hdi_wait_entry){mark.lane, mark.position, 0};
    }
    hdi_wait_entry *e = &w->entries[i];
    e->position = e->position > mark.position ? e->position : mark.position;
    if (!source || (e->source && speaks_for(rt, mark.lane, e->source, mark.position))) {
        return HDI_GATHERED;
    }
    if (!e->source || speaks_for(rt, mark.lane, mark.position, e->source)) {
        e->source = mark.position;
        return HDI_GATHERED;
    }
    return add_source(w, mark) ? HDI_GATHERED : HDI_GATHERED_TOO_MUCH;
}

static hdi_gathered __attribute__((noinline)) add_result(hd_runtime *rt, hdi_waits *w, hdi_mark mark)
{
    return add_wait(rt, w, mark, true);
}

/* *over: it is finished and, for a source, good. */
static inline __attribute__((always_inline)) hdi_gathered look_at(const hdi_gatherer *g, hdi_mark mark, bool source,
                                                                  bool ours, bool *over)
{
    hd_lane *lane = g->lane;
    bool own = mark.lane == lane->global;
    const hdi_lane_shared *other = own ? lane->shared : hdi_lane_shared_of(g->rt, mark.lane);
    *over = false;
    /* `done` before the failures: a failure is recorded before `done` passes it. */
    uint64_t done = atomic_load_explicit(&other->done, memory_order_acquire);
    if (source && __builtin_expect(atomic_load_explicit(&other->failure_changes, memory_order_acquire) != 0, 0)) {
        hdi_failure failure;
        if (ours && hdi_failure_find(g->rt, mark.lane, mark.position, &failure)) {
            return add_result(g->rt, g->waits, mark);
        }
        if (!ours && hdi_position_status(g->rt, mark.lane, mark.position, g->who)) {
            return HDI_GATHERED_FAILURE;
        }
    }
    if (done >= mark.position) {
        *over = true;
        return HDI_GATHERED;
    }
    if (own && (lane->keeps_failure || !source)) {
        return HDI_GATHERED; /* in the same lane order costs nothing; but one that does not keep its failures has to be told of its own results */
    }
    /* Not a second time. But a result that may still fail has to be waited for as a result, once. */
    if (!own && !g->apart) {
        uint64_t seen = source ? lane->seen_source[mark.lane] : lane->seen[mark.lane];
        if (source ? seen && lane->keeps_failure && speaks_for(g->rt, mark.lane, seen, mark.position)
                   : seen >= mark.position) {
            return HDI_GATHERED;
        }
    }
    return add_wait(g->rt, g->waits, mark, source);
}

hdi_gathered hdi_gather_mark(const hdi_gatherer *g, hdi_mark mark, bool source, bool ours)
{
    bool over;
    return mark.position ? look_at(g, mark, source, ours, &over) : HDI_GATHERED;
}

/* Whether a mark is of an operation of the lane that is not finished, and after whose failure it would refuse work. */
static inline bool speaks_for_lane(const hd_lane *lane, hdi_mark mark)
{
    return mark.lane == lane->global && lane->keeps_failure &&
           mark.position > atomic_load_explicit(&lane->resumed, memory_order_relaxed) &&
           mark.position > atomic_load_explicit(&lane->shared->done, memory_order_acquire);
}

/* Whether an unfinished operation of the lane has read the segment since it was written: then the lane has waited for the writer, and refuses work
 * if that fails. */
static bool lane_has_read(const hd_lane *lane, hdi_segment *s)
{
    const hdi_mark *mark = hdi_segment_reader(s, lane->global);
    return mark && speaks_for_lane(lane, *mark);
}

/* The same for all segments of a use. */
static bool lane_has_read_all(const hd_lane *lane, const hdi_use *use)
{
    const hdi_parts *parts = use->buffer->uses.parts;
    bool found = false;
    for (uint32_t i = 0; parts && i < parts->n_wide && !found; i++) {
        const hdi_wide_reader *w = &parts->wide[i];
        found =
            w->low <= use->low && w->high >= use->high && w->writes == parts->writes && speaks_for_lane(lane, w->mark);
    }
    return found;
}

static inline hdi_gathered gather_segment(const hdi_gatherer *g, hdi_segment *s, const hdi_use *use, bool ours)
{
    hdi_gathered result = HDI_GATHERED;
    if (s->writer.position && (s->failed || g->apart || !lane_has_read(g->lane, s))) {
        result = hdi_gather_mark(g, s->writer, use->read, ours);
    }
    if (use->write) {
        const hdi_mark *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; i < s->n_readers && !result; i++) {
            result = hdi_gather_mark(g, readers[i], false, false);
        }
    }
    return result;
}

static hdi_gathered gather_parts(const hdi_gatherer *g, const hdi_use *use, bool ours)
{
    hdi_gathered result = HDI_GATHERED;
    hdi_uses *u = &use->buffer->uses;
    if (!use->write && !g->apart && lane_has_read_all(g->lane, use)) {
        return HDI_GATHERED;
    }
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, use->low, &place);
    for (; s && s->low < use->high && !result; s = hdi_uses_next(u, &place)) {
        result = gather_segment(g, s, use, ours);
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; use->write && i < n_wide && !result; i++) {
        if (wide[i].low < use->high && wide[i].high > use->low) {
            result = hdi_gather_mark(g, wide[i].mark, false, false);
        }
    }
    return result;
}

hdi_gathered hdi_gather_use(const hdi_gatherer *g, const hdi_use *use, bool ours)
{
    hdi_uses *u = &use->buffer->uses;
    return u->parts ? gather_parts(g, use, ours) : gather_segment(g, &u->whole, use, ours);
}

/* ---- whole buffers ---- */

/* Other lanes' readers that are finished leave the record: of few now, of many now and then. */
static inline void settle_readers(const hdi_gatherer *g, const hdi_use *use, hdi_segment *s)
{
    if (s->room != 0) {
        if (++s->looks >= s->n_readers) {
            hdi_uses_settle(g->rt, &use->buffer->uses, use->low, use->high);
        }
        return;
    }
    hdi_mark *few = s->readers.few;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_readers; i++) {
        if (few[i].lane == g->lane->global || !hdi_mark_done(g->rt, few[i])) {
            if (kept != i) {
                few[kept] = few[i];
            }
            kept++;
        }
    }
    s->n_readers = kept;
}

/* A record of one segment that is not blank. */
static inline __attribute__((always_inline)) hdi_gathered gather_whole(const hdi_gatherer *g, const hdi_use *use,
                                                                       bool ours)
{
    hdi_segment *s = &use->buffer->uses.whole;
    hdi_gathered result = HDI_GATHERED;
    if (s->n_readers) {
        if (use->write) {
            const hdi_mark *readers = hdi_segment_readers(s);
            for (uint32_t i = 0; i < s->n_readers && !result; i++) {
                result = hdi_gather_mark(g, readers[i], false, false);
            }
        } else {
            settle_readers(g, use, s);
        }
    }
    bool look = s->writer.position && !(s->n_readers && !s->failed && lane_has_read(g->lane, s));
    if (!result && look) {
        bool over;
        result = look_at(g, s->writer, use->read, ours, &over);
        if (over && use->read) {
            s->writer = (hdi_mark){0, 0};
        }
    }
    return result;
}

hdi_gathered hdi_gather_plain(const hdi_gatherer *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain)
{
    hdi_gathered result = HDI_GATHERED;
    bool good = true;
    for (const hdi_use *use = uses; use != uses + n_uses && good && !result; use++, ours >>= 1) {
        struct hd_buffer *b = use->buffer;
        hdi_uses *u = &b->uses;
        /* The record comes last: another buffer's has another lock. */
        good = (use->whole & hdi_use_is_same(use) & (hdi_buffer_losses(b) == use->losses)) && u->parts == NULL;
        if (good) {
            hdi_uses_tidy(g->rt, u, b->order);
            if (!hdi_uses_is_blank(u)) {
                result = gather_whole(g, use, ours & 1);
                good = hdi_uses_has_room(u) || hdi_uses_prepare_parts(g->rt, u, b->order, use->low, use->high);
            }
        }
    }
    *plain = good;
    return result;
}

hdi_gathered hdi_gather_again(const hdi_gatherer *g, const hdi_waits *apart)
{
    hdi_gathered result = HDI_GATHERED;
    for (uint32_t i = 0; i < apart->n && !result; i++) {
        const hdi_wait_entry *e = &apart->entries[i];
        result = hdi_gather_mark(g, (hdi_mark){e->lane, e->position}, false, false);
        if (!result && e->source) {
            result = hdi_gather_mark(g, (hdi_mark){e->lane, e->source}, true, false);
        }
    }
    for (uint32_t i = 0; i < apart->n_sources && !result; i++) {
        result = hdi_gather_mark(g, apart->sources[i], true, false);
    }
    return result;
}

/* ---- commands ---- */

static int by_lane(const void *a, const void *b)
{
    const hdi_mark *x = a, *y = b;
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Rising, and none twice. They usually are. */
static bool are_sorted(const hdi_mark *sources, uint32_t n)
{
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++) {
        sorted = by_lane(&sources[i - 1], &sources[i]) < 0;
    }
    return sorted;
}

/* How many of the sources, which are sorted, fit into one command. */
static uint32_t fitting(const hdi_mark *sources, uint32_t n)
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
        qsort(waits->sources, waits->n_sources, sizeof(hdi_mark), by_lane);
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
    /* Events mean nothing to an engine in another process: it waits for `done`. */
    bool by_event = !rt->is_process || owner == lane->device;
    /* A result of another device counts as done there before it is here. */
    bool by_word = !by_event || (owner != lane->device && w->source);
    hdi_ask(&owner->channel, w->lane % HDI_LANES_MAX, w->position,
            (by_event ? HDI_ASK_EVENT : 0) | (by_word ? HDI_ASK_WORD : 0));
    hdi_want(by_event ? &other->wanted_event : &other->wanted_host, w->position);
    hdi_engine_notify(owner->channel.engine, w->lane % HDI_LANES_MAX);
}

static void write_sources(hd_lane *lane, const hdi_mark *sources, uint32_t n)
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
