/* uses.c - use records: what is finished, noting uses, what is pending.
 *
 * Threads: any.
 * Locks: none of its own. The caller holds the order lock of the buffer's owner, or has claimed the record.
 * Blocking: never.
 * Always: what parts.h states of segments. A point goes only when its operation has finished; a writer's point only when that went well, too.
 */
#include "buffer/uses.h"

#include <stdlib.h>
#include <string.h>

#define WIDE_ABOVE 32 /* a reader of more segments than this is noted once, instead of in each */
#define WIDE_FIRST 4

void hdi_uses_init(hdi_uses *u, uint64_t bytes)
{
    memset(u, 0, sizeof *u);
    u->whole.high = bytes;
}

void hdi_uses_release(hdi_uses *u)
{
    if (u->parts) {
        hdi_parts_free(hdi_parts_leave(u->parts));
    } else {
        hdi_segment_release(&u->whole);
    }
    memset(u, 0, sizeof *u);
}

hdi_segment *hdi_uses_first(hdi_uses *u, uint64_t low, hdi_segment_place *place)
{
    if (!u->parts) {
        *place = (hdi_segment_place){0, 0};
        return &u->whole;
    }
    *place = hdi_parts_find(u->parts, low);
    return hdi_parts_at(u->parts, *place);
}

/* ---- what is finished ---- */

static bool has_failed(hd_runtime *rt, hdi_point point)
{
    hdi_failure failure;
    return hdi_failure_find(rt, point.lane, point.position, &failure);
}

/* Moves the points back into the segment where they are few, with room for one more. A record whose points are elsewhere does not take the
 * fast path (hdi_uses_only_in). */
static void give_room_back(hdi_segment *s)
{
    if (s->room != 0 && s->n_readers < HDI_READERS_FEW) {
        hdi_point *many = s->readers.many;
        memcpy(s->readers.few, many, s->n_readers * sizeof *many);
        s->room = 0;
        free(many);
    }
}

void hdi_segment_settle(void *rt, hdi_segment *s)
{
    hdi_point *readers = hdi_segment_readers(s);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_readers; i++) {
        if (!hdi_point_done(rt, readers[i])) {
            readers[kept++] = readers[i];
        }
    }
    s->n_readers = kept;
    s->looks = 0;
    /* `done` before the failures: a failure is recorded before `done` passes it */
    if (s->writer.position && !s->failed && hdi_point_done(rt, s->writer)) {
        s->failed = has_failed(rt, s->writer);
        if (!s->failed) {
            s->writer = (hdi_point){0, 0};
        }
    }
    give_room_back(s);
}

static void settle_wide(hd_runtime *rt, hdi_parts *parts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < parts->n_wide; i++) {
        if (!hdi_point_done(rt, parts->wide[i].point)) {
            parts->wide[kept++] = parts->wide[i];
        }
    }
    parts->n_wide = kept;
}

/* Makes the record one segment again where that is enough. */
static void collapse(hdi_uses *u)
{
    hdi_parts *parts = u->parts;
    if (parts->n_leaves == 1 && parts->leaves[0]->count == 1 && parts->n_wide == 0) {
        u->whole = parts->leaves[0]->segments[0];
        parts->leaves[0]->count = 0; /* `whole` has its readers' memory now */
        u->parts = NULL;
        hdi_parts_free(hdi_parts_leave(parts));
        give_room_back(&u->whole);
    }
}

void hdi_uses_settle(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    if (!u->parts) {
        if (!hdi_uses_is_blank(u)) {
            hdi_segment_settle(rt, &u->whole);
        }
        return;
    }
    hdi_uses_visit(rt, u, low, high, hdi_segment_settle, rt);
}

static void visit_parts(hd_runtime *rt, hdi_parts *parts, uint64_t low, uint64_t high, hdi_segment_visit *visit,
                        void *context)
{
    settle_wide(rt, parts);
    uint32_t from = hdi_parts_find(parts, low).leaf;
    uint32_t to = parts->n_leaves == 1 ? 0 : hdi_parts_find(parts, high - 1).leaf;
    hdi_parts_join(parts, from, to, visit, context);
}

void hdi_uses_settle_claimed(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    visit_parts(rt, u->parts, low, high, hdi_segment_settle, rt);
}

void hdi_uses_visit(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_segment_visit *visit, void *context)
{
    visit_parts(rt, u->parts, low, high, visit, context);
    collapse(u);
}

static void prune_leaf(hd_runtime *rt, hdi_parts *parts)
{
    settle_wide(rt, parts);
    parts->next_to_prune = parts->next_to_prune < parts->n_leaves ? parts->next_to_prune : 0;
    uint32_t before = parts->n_leaves;
    hdi_parts_join(parts, parts->next_to_prune, parts->next_to_prune, hdi_segment_settle, rt);
    parts->next_to_prune += before == parts->n_leaves;
}

void hdi_uses_prune_parts(hd_runtime *rt, hdi_uses *u, unsigned order)
{
    hdi_parts *other = rt->parts[order].ring;
    rt->parts[order].ring = other->behind;
    if (other != u->parts && !other->claimed) {
        prune_leaf(rt, other);
    }
    if (u->parts && u->parts->n_leaves > 1) { /* a single leaf has been settled already */
        prune_leaf(rt, u->parts);
        collapse(u);
    }
}

/* ---- noting uses ---- */

static bool room_for_reader(hd_runtime *rt, hdi_segment *s)
{
    uint32_t room = s->room ? s->room : HDI_READERS_FEW;
    if (s->n_readers < room) {
        return true;
    }
    hdi_segment_settle(rt, s);
    room = s->room ? s->room : HDI_READERS_FEW;
    if (s->n_readers < room) {
        return true;
    }
    hdi_point *many = malloc(2 * (size_t)room * sizeof *many);
    if (!many) {
        return false;
    }
    memcpy(many, hdi_segment_readers(s), s->n_readers * sizeof *many);
    if (s->room) {
        free(s->readers.many);
    }
    s->readers.many = many;
    s->room = 2 * room;
    s->looks = 0;
    return true;
}

static bool room_for_wide(hdi_parts *parts)
{
    if (parts->n_wide < parts->wide_room) {
        return true;
    }
    uint32_t room = parts->wide_room ? 2 * parts->wide_room : WIDE_FIRST;
    hdi_wide_reader *more = realloc(parts->wide, room * sizeof *more);
    if (!more) {
        return false;
    }
    parts->wide = more;
    parts->wide_room = room;
    return true;
}

/* The ends of the buffer are always borders of segments. */
static bool split(hdi_parts *parts, uint64_t low, uint64_t high)
{
    return (low == 0 || hdi_parts_split(parts, low)) && (high == hdi_parts_end(parts) || hdi_parts_split(parts, high));
}

bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room)
{
    if (!u->parts && (low != u->whole.low || high != u->whole.high)) {
        u->parts = hdi_parts_make(&u->whole, &rt->parts[order]);
        if (u->parts) {
            u->whole = (hdi_segment){0}; /* its points are in the parts now */
        }
    }
    if (!u->parts) {
        return low == u->whole.low && high == u->whole.high && room_for_reader(rt, &u->whole);
    }
    if (!room_for_wide(u->parts) || !split(u->parts, low, high)) {
        return false;
    }
    if (room) {
        return true;
    }
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, low, &place);
    for (uint32_t n = 0; s && s->low < high && n <= WIDE_ABOVE; n++) {
        if (s->n_readers >= (s->room ? s->room : HDI_READERS_FEW) && !room_for_reader(rt, s)) {
            return false;
        }
        s = hdi_uses_next(u, &place);
    }
    return true;
}

static bool is_point(hdi_point a, hdi_point b)
{
    return a.lane == b.lane && a.position == b.position;
}

/* commit_read and commit_write are for records of several segments. */
static void commit_read(hdi_uses *u, uint64_t low, uint64_t high, hdi_point point)
{
    hdi_parts *parts = u->parts;
    if (hdi_parts_are_more(parts, low, high, WIDE_ABOVE)) {
        for (uint32_t i = 0; i < parts->n_wide; i++) {
            hdi_wide_reader *w = &parts->wide[i];
            if (w->point.lane == point.lane && w->low == low && w->high == high) {
                w->point = point;
                w->writes = parts->writes;
                return;
            }
        }
        parts->wide[parts->n_wide++] = (hdi_wide_reader){low, high, point, parts->writes};
        return;
    }
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        if (!is_point(s->writer, point)) { /* it may be what the operation itself writes */
            hdi_segment_add_reader(s, point);
        }
    }
}

/* The ends of the range are borders of segments, except inside of what an earlier argument of the same operation has written. */
static void commit_write(hdi_uses *u, uint64_t low, uint64_t high, hdi_point point, hdi_leaf **garbage)
{
    hdi_parts *parts = u->parts;
    const hdi_segment to = {.writer = point};
    parts->writes++;
    hdi_segment_place first = hdi_parts_find(parts, low);
    hdi_segment_place end = hdi_parts_find(parts, high - 1);
    if (hdi_parts_at(parts, end)->high <= high) {
        hdi_parts_next(parts, &end);
    }
    if (hdi_parts_at(parts, first)->low < low) {
        hdi_parts_next(parts, &first);
    }
    if (first.leaf < end.leaf || (first.leaf == end.leaf && first.index < end.index)) {
        hdi_parts_replace(parts, first, end, &to, garbage);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < parts->n_wide; i++) { /* a wait for the writer includes a wait for these */
        if (parts->wide[i].low < low || parts->wide[i].high > high) {
            parts->wide[kept++] = parts->wide[i];
        }
    }
    parts->n_wide = kept;
    collapse(u);
}

void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_point point, hdi_leaf **garbage)
{
    if (!u->parts) {
        hdi_uses_commit_whole(u, write, point);
    } else if (write) {
        commit_write(u, low, high, point, garbage);
    } else {
        commit_read(u, low, high, point);
    }
}

bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_point point)
{
    if (!room_for_reader(rt, &u->whole)) {
        return false;
    }
    hdi_segment_add_reader(&u->whole, point);
    return true;
}

void hdi_uses_renew(hdi_uses *u, uint64_t bytes, hdi_point point)
{
    hdi_uses_release(u);
    u->whole = (hdi_segment){.high = bytes, .n_readers = point.position != 0, .readers.few = {point}};
}

/* ---- what is pending ---- */

static size_t add_pending(hd_runtime *rt, hdi_point point, hdi_point *points, size_t room, size_t n)
{
    if (!point.position || hdi_point_done(rt, point)) {
        return n;
    }
    for (size_t i = 0; i < n && i < room; i++) {
        if (points[i].lane == point.lane) {
            if (points[i].position < point.position) {
                points[i].position = point.position;
            }
            return n;
        }
    }
    if (n < room) {
        points[n] = point;
    }
    return n + 1;
}

size_t hdi_uses_pending(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, bool readers, hdi_point *points,
                        size_t room)
{
    size_t n = 0;
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        n = add_pending(rt, s->writer, points, room, n);
        const hdi_point *of = hdi_segment_readers(s);
        for (uint32_t r = 0; readers && r < s->n_readers; r++) {
            n = add_pending(rt, of[r], points, room, n);
        }
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; readers && i < n_wide; i++) {
        if (wide[i].low < high && wide[i].high > low) {
            n = add_pending(rt, wide[i].point, points, room, n);
        }
    }
    return n;
}

bool hdi_uses_of_lane(hdi_uses *u, uint32_t lane, hdi_point *last)
{
    uint64_t position = 0;
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, 0, &place); s; s = hdi_uses_next(u, &place)) {
        const hdi_point *of = s->n_readers == 0 ? &s->writer : hdi_segment_readers(s);
        if (s->n_readers > 1 || (s->n_readers && of->lane != lane) || (s->writer.position && s->writer.lane != lane)) {
            return false;
        }
        position = s->writer.position > position ? s->writer.position : position;
        position = of->position > position ? of->position : position;
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; i < n_wide; i++) {
        if (wide[i].point.lane != lane) {
            return false;
        }
        position = wide[i].point.position > position ? wide[i].point.position : position;
    }
    *last = (hdi_point){lane, position};
    return true;
}

static bool writer_failed(hd_runtime *rt, const hdi_segment *s)
{
    return s->failed || (s->writer.position && hdi_point_done(rt, s->writer) && has_failed(rt, s->writer));
}

unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    unsigned state = 0;
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        if (s->writer.position) {
            state |= !hdi_point_done(rt, s->writer) ? HDI_USES_WRITTEN : writer_failed(rt, s) ? HDI_USES_FAILED : 0;
        }
        const hdi_point *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; i < s->n_readers && !(state & HDI_USES_READ); i++) {
            state |= hdi_point_done(rt, readers[i]) ? 0 : HDI_USES_READ;
        }
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; i < n_wide && !(state & HDI_USES_READ); i++) {
        bool there = wide[i].low < high && wide[i].high > low;
        state |= there && !hdi_point_done(rt, wide[i].point) ? HDI_USES_READ : 0;
    }
    return state;
}

hdi_point hdi_uses_failed_writer(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        if (writer_failed(rt, s)) {
            return s->writer;
        }
    }
    return (hdi_point){0, 0};
}

bool hdi_uses_check(const hdi_uses *u, uint64_t bytes)
{
    if (u->parts) {
        return hdi_parts_check(u->parts, bytes);
    }
    return u->whole.low == 0 && u->whole.high == bytes && hdi_segment_check(&u->whole);
}
