/* uses.c - use records: keeps segments, notes uses, drops finished uses, and finds pending uses.
 *
 * Threads: any.
 * Locks: none in this file. The caller holds the order lock of the buffer's owner, or detached the
 * record.
 * Blocking: never.
 * Always: see uses.h.
 */
#include "buffer/part.h"
#include "buffer/uses.h"

#include <stdlib.h>
#include <string.h>

/* ---- segments in leaves: making and freeing ---- */

#define SPARES_MOST 8      /* spare records of a group; each takes two kilobytes */
#define SPARE_WIDE_MOST 16 /* the most wide readers that a spare record has room for */

static void parts_free_leaf(hdi_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->count; i++) {
        hdi_segment_release(&leaf->segments[i]);
    }
    free(leaf);
}

void hdi_leaves_free(hdi_leaf *list)
{
    while (list) {
        hdi_leaf *next = list->next;
        parts_free_leaf(list);
        list = next;
    }
}

static void parts_enter_ring(hdi_parts *parts, hdi_parts_group *group)
{
    parts->group = group;
    if (group->ring) {
        parts->behind = group->ring;
        parts->before = group->ring->before;
        parts->before->behind = parts;
        parts->behind->before = parts;
    } else {
        parts->before = parts->behind = parts;
        group->ring = parts;
    }
}

hdi_parts *hdi_parts_leave(hdi_parts *parts)
{
    hdi_parts_group *group = parts->group;
    parts->before->behind = parts->behind;
    parts->behind->before = parts->before;
    if (group->ring == parts) {
        group->ring = parts->behind == parts ? NULL : parts->behind;
    }
    if (group->n_spare == SPARES_MOST || parts->n_leaves != 1 || parts->leaves != parts->first ||
        parts->wide_room > SPARE_WIDE_MOST) {
        return parts;
    }
    hdi_leaf *leaf = parts->first[0];
    for (uint32_t i = 0; i < leaf->count; i++) {
        hdi_segment_release(&leaf->segments[i]);
    }
    leaf->count = 0;
    parts->n_wide = 0;
    parts->behind = group->spare;
    group->spare = parts;
    group->n_spare++;
    return NULL;
}

/* Allocates parts with one leaf. */
static hdi_parts *parts_allocate(void)
{
    hdi_parts *parts = calloc(1, sizeof *parts);
    hdi_leaf *leaf = malloc(sizeof *leaf);
    if (!parts || !leaf) {
        free(parts);
        free(leaf);
        return NULL;
    }
    parts->first[0] = leaf;
    parts->leaves = parts->first;
    parts->leaves_room = HDI_LEAVES_FIRST;
    parts->n_leaves = 1;
    return parts;
}

/* Makes the parts of a record that was one segment. NULL: no memory. The group's order lock is
 * held. */
static hdi_parts *parts_make(const hdi_segment *only, hdi_parts_group *group)
{
    hdi_parts *parts = group->spare;
    if (parts) {
        group->spare = parts->behind;
        group->n_spare--;
        parts->next_to_prune = 0;
        parts->writes = 0;
    } else {
        parts = parts_allocate();
        if (!parts) {
            return NULL;
        }
    }
    parts->first[0]->count = 1;
    parts->first[0]->segments[0] = *only;
    parts_enter_ring(parts, group);
    return parts;
}

void hdi_parts_group_release(hdi_parts_group *group)
{
    while (group->spare) {
        hdi_parts *next = group->spare->behind;
        hdi_parts_free(group->spare);
        group->spare = next;
    }
    group->n_spare = 0;
}

void hdi_parts_free(hdi_parts *parts)
{
    if (!parts) {
        return;
    }
    for (uint32_t i = 0; i < parts->n_leaves; i++) {
        parts_free_leaf(parts->leaves[i]);
    }
    if (parts->leaves != parts->first) {
        free(parts->leaves);
    }
    free(parts->wide);
    free(parts);
}

/* ---- finding ---- */

/* The segment with byte `at`. */
static hdi_segment_place parts_find(const hdi_parts *parts, uint64_t at)
{
    uint32_t first = 0, end = parts->n_leaves;
    if (at < parts->leaves[0]->segments[0].high) {
        return (hdi_segment_place){0, 0}; /* most uses begin here */
    }
    while (end - first > 1) {
        uint32_t middle = first + (end - first) / 2;
        if (parts->leaves[middle]->segments[0].low <= at) {
            first = middle;
        } else {
            end = middle;
        }
    }
    const hdi_leaf *leaf = parts->leaves[first];
    uint32_t index = 0;
    for (end = leaf->count; end - index > 1;) {
        uint32_t middle = index + (end - index) / 2;
        if (leaf->segments[middle].low <= at) {
            index = middle;
        } else {
            end = middle;
        }
    }
    return (hdi_segment_place){first, index};
}

uint32_t hdi_parts_overlapping(const hdi_parts *parts, uint64_t low, uint64_t high, uint32_t most)
{
    hdi_segment_place from = parts_find(parts, low);
    hdi_segment_place to = parts_find(parts, high - 1);
    if (from.leaf == to.leaf) {
        return to.index - from.index + 1;
    }
    uint32_t n = parts->leaves[from.leaf]->count - from.index + to.index + 1;
    for (uint32_t i = from.leaf + 1; i < to.leaf && n <= most; i++) {
        n += parts->leaves[i]->count;
    }
    return n;
}

/* ---- splitting ---- */

/* Adds an empty leaf after `leaf`. */
static bool parts_add_leaf(hdi_parts *parts, uint32_t leaf)
{
    if (parts->n_leaves == parts->leaves_room) {
        bool few = parts->leaves == parts->first;
        hdi_leaf **more = realloc(few ? NULL : parts->leaves, 2 * (size_t)parts->leaves_room * sizeof(hdi_leaf *));
        if (!more) {
            return false;
        }
        if (few) {
            memcpy(more, parts->first, sizeof parts->first);
        }
        parts->leaves = more;
        parts->leaves_room *= 2;
    }
    hdi_leaf *fresh = malloc(sizeof *fresh);
    if (!fresh) {
        return false;
    }
    fresh->count = 0;
    memmove(&parts->leaves[leaf + 2], &parts->leaves[leaf + 1], (parts->n_leaves - leaf - 1) * sizeof(hdi_leaf *));
    parts->leaves[leaf + 1] = fresh;
    parts->n_leaves++;
    return true;
}

/* Makes room for one more segment in the leaf of `place`. Afterwards *place still names the same
 * segment. */
static bool parts_make_room(hdi_parts *parts, hdi_segment_place *place)
{
    hdi_leaf *leaf = parts->leaves[place->leaf];
    if (leaf->count < HDI_LEAF_SEGMENTS) {
        return true;
    }
    if (!parts_add_leaf(parts, place->leaf)) {
        return false;
    }
    /* Programs usually use the parts of a buffer by rising address. In this case the old leaf stays
     * full, and the new leaf gets the segments that come later. */
    bool rising = place->leaf + 2 == parts->n_leaves && place->index + 1 == leaf->count;
    uint32_t kept = rising ? HDI_LEAF_SEGMENTS - 1 : HDI_LEAF_SEGMENTS / 2;
    hdi_leaf *fresh = parts->leaves[place->leaf + 1];
    fresh->count = leaf->count - kept;
    memcpy(fresh->segments, &leaf->segments[kept], fresh->count * sizeof(hdi_segment));
    leaf->count = kept;
    if (place->index >= kept) {
        *place = (hdi_segment_place){place->leaf + 1, place->index - kept};
    }
    return true;
}

/* Makes `at` the border of two segments. False: no memory, and nothing changed. */
static bool parts_split(hdi_parts *parts, uint64_t at)
{
    hdi_segment_place place = parts_find(parts, at);
    hdi_segment *s = hdi_parts_at(parts, place);
    if (s->low == at || s->high <= at) {
        return true;
    }
    hdi_point *copy = NULL;
    if (s->room) {
        copy = malloc(s->room * sizeof *copy);
        if (!copy) {
            return false;
        }
        memcpy(copy, s->readers.many, s->n_readers * sizeof *copy);
    }
    if (!parts_make_room(parts, &place)) {
        free(copy);
        return false;
    }
    hdi_leaf *leaf = parts->leaves[place.leaf];
    s = &leaf->segments[place.index];
    memmove(s + 2, s + 1, (leaf->count - place.index - 1) * sizeof *s);
    s[1] = s[0];
    if (copy) {
        s[1].readers.many = copy;
    }
    s[0].high = at;
    s[1].low = at;
    leaf->count++;
    return true;
}

/* ---- taking out ---- */

/* Removes the leaves [from, to) from the directory. */
static void parts_drop_leaves(hdi_parts *parts, uint32_t from, uint32_t to)
{
    memmove(&parts->leaves[from], &parts->leaves[to], (parts->n_leaves - to) * sizeof(hdi_leaf *));
    parts->n_leaves -= to - from;
}

/* Replaces the segments from `first` up to, but not including, `end` by one segment with the points
 * of `to`. `end` is a place after `first`, perhaps after the last segment. Adds freed leaves to the
 * front of *garbage. */
static void parts_replace(hdi_parts *parts, hdi_segment_place first, hdi_segment_place end, const hdi_segment *to,
                          hdi_leaf **garbage)
{
    hdi_segment *s = hdi_parts_at(parts, first);
    hdi_leaf *leaf = parts->leaves[first.leaf];
    hdi_segment *after = hdi_parts_at(parts, end);
    uint64_t low = s->low;
    uint64_t high =
        after ? after->low
              : parts->leaves[parts->n_leaves - 1]->segments[parts->leaves[parts->n_leaves - 1]->count - 1].high;
    /* the index, in this leaf, of the first segment behind the removed ones */
    uint32_t last = end.leaf == first.leaf ? end.index : leaf->count;
    for (uint32_t i = first.index; i < last; i++) {
        hdi_segment_release(&leaf->segments[i]);
    }
    *s = *to;
    s->low = low;
    s->high = high;
    memmove(s + 1, &leaf->segments[last], (leaf->count - last) * sizeof *s);
    leaf->count -= last - first.index - 1;
    if (end.leaf == first.leaf) {
        return;
    }
    for (uint32_t i = first.leaf + 1; i < end.leaf; i++) {
        parts->leaves[i]->next = *garbage;
        *garbage = parts->leaves[i];
    }
    if (after) {
        leaf = parts->leaves[end.leaf];
        for (uint32_t i = 0; i < end.index; i++) {
            hdi_segment_release(&leaf->segments[i]);
        }
        memmove(leaf->segments, &leaf->segments[end.index], (leaf->count - end.index) * sizeof *s);
        leaf->count -= end.index;
    }
    parts_drop_leaves(parts, first.leaf + 1, end.leaf);
}

/* ---- joining ---- */

static bool segments_say_the_same(const hdi_segment *a, const hdi_segment *b)
{
    return a->writer.position == b->writer.position && a->writer.lane == b->writer.lane &&
           (a->n_readers | b->n_readers) == 0 && a->failed == b->failed;
}

/* Moves the segments of a leaf into the leaf before it, if the two have few segments together. */
static bool parts_merge_leaf(hdi_leaf *before, hdi_leaf *leaf)
{
    if (before->count + leaf->count > HDI_LEAF_SEGMENTS / 2) {
        return false;
    }
    memcpy(&before->segments[before->count], leaf->segments, leaf->count * sizeof(hdi_segment));
    before->count += leaf->count;
    leaf->count = 0;
    return true;
}

static void parts_join(hdi_parts *parts, uint32_t from, uint32_t to, hdi_segment_visit *visit, void *context)
{
    uint32_t kept_leaves = from;
    hdi_segment *last = NULL;
    if (from > 0) {
        const hdi_leaf *before = parts->leaves[from - 1];
        last = &parts->leaves[from - 1]->segments[before->count - 1];
    }
    for (uint32_t l = from; l <= to; l++) {
        hdi_leaf *leaf = parts->leaves[l];
        hdi_segment *behind = leaf->segments, *end = leaf->segments + leaf->count;
        for (hdi_segment *s = leaf->segments; s != end; s++) {
            visit(context, s);
            if (last && segments_say_the_same(last, s)) {
                last->high = s->high;
                hdi_segment_release(s);
            } else {
                last = behind++;
                if (last != s) {
                    *last = *s;
                }
            }
        }
        uint32_t kept = (uint32_t)(behind - leaf->segments);
        leaf->count = kept;
        hdi_leaf *before = kept_leaves > 0 ? parts->leaves[kept_leaves - 1] : NULL;
        if (kept == 0 || (before && parts_merge_leaf(before, leaf))) {
            last = before ? &before->segments[before->count - 1] : NULL;
            free(leaf);
        } else {
            parts->leaves[kept_leaves++] = leaf;
        }
    }
    parts_drop_leaves(parts, kept_leaves, to + 1);
}

/* ---- checking ---- */

static bool segment_check(const hdi_segment *s)
{
    const hdi_point *readers = s->room ? s->readers.many : s->readers.few;
    bool good = s->low < s->high && s->n_readers <= (s->room ? s->room : HDI_READERS_FEW);
    for (uint32_t i = 0; good && i < s->n_readers; i++) {
        good = readers[i].position != 0 && (i == 0 || readers[i - 1].lane < readers[i].lane);
    }
    return good;
}

/* True if the record keeps all guarantees (`Always:`) in the head of uses.h. The time grows with
 * the number of segments. */
static bool parts_check(const hdi_parts *parts, uint64_t bytes)
{
    uint64_t at = 0;
    bool good = parts->n_leaves > 0 && parts->n_leaves <= parts->leaves_room && parts->n_wide <= parts->wide_room;
    for (uint32_t l = 0; good && l < parts->n_leaves; l++) {
        const hdi_leaf *leaf = parts->leaves[l];
        good = leaf->count > 0 && leaf->count <= HDI_LEAF_SEGMENTS;
        for (uint32_t i = 0; good && i < leaf->count; i++) {
            good = leaf->segments[i].low == at && segment_check(&leaf->segments[i]);
            at = leaf->segments[i].high;
        }
    }
    return good && at == bytes;
}

/* if a reader reads more segments than this, it is noted only once (hdi_wide_reader) */
#define WIDE_ABOVE 32
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
    *place = parts_find(u->parts, low);
    return hdi_parts_at(u->parts, *place);
}

/* ---- finished uses ---- */

static bool uses_point_has_failed(hd_runtime *rt, hdi_point point)
{
    hdi_failure failure;
    return hdi_failure_find(rt, point.lane, point.position, &failure);
}

/* If all points and one more fit into `few`, moves the points back into `few`. Only if the points
 * of a record are in `few` can its uses take the fast path (hdi_uses_only_in). */
static void segment_give_room_back(hdi_segment *s)
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
    /* reads `done` before the failures: a failure is recorded before `done` passes it */
    if (s->writer.position && !s->failed && hdi_point_done(rt, s->writer)) {
        s->failed = uses_point_has_failed(rt, s->writer);
        if (!s->failed) {
            s->writer = (hdi_point){0, 0};
        }
    }
    segment_give_room_back(s);
}

static void parts_settle_wide(hd_runtime *rt, hdi_parts *parts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < parts->n_wide; i++) {
        if (!hdi_point_done(rt, parts->wide[i].point)) {
            parts->wide[kept++] = parts->wide[i];
        }
    }
    parts->n_wide = kept;
}

/* If only one segment is left, makes the record one segment again. */
static void uses_collapse(hdi_uses *u)
{
    hdi_parts *parts = u->parts;
    if (parts->n_leaves == 1 && parts->leaves[0]->count == 1 && parts->n_wide == 0) {
        u->whole = parts->leaves[0]->segments[0];
        parts->leaves[0]->count = 0; /* `whole` owns its readers' memory now */
        u->parts = NULL;
        hdi_parts_free(hdi_parts_leave(parts));
        segment_give_room_back(&u->whole);
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

static void parts_visit(hd_runtime *rt, hdi_parts *parts, uint64_t low, uint64_t high, hdi_segment_visit *visit,
                        void *context)
{
    parts_settle_wide(rt, parts);
    uint32_t from = parts_find(parts, low).leaf;
    uint32_t to = parts->n_leaves == 1 ? 0 : parts_find(parts, high - 1).leaf;
    parts_join(parts, from, to, visit, context);
}

void hdi_uses_settle_detached(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    parts_visit(rt, u->parts, low, high, hdi_segment_settle, rt);
}

void hdi_uses_visit(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_segment_visit *visit, void *context)
{
    parts_visit(rt, u->parts, low, high, visit, context);
    uses_collapse(u);
}

static void parts_prune_leaf(hd_runtime *rt, hdi_parts *parts)
{
    parts_settle_wide(rt, parts);
    parts->next_to_prune = parts->next_to_prune < parts->n_leaves ? parts->next_to_prune : 0;
    uint32_t before = parts->n_leaves;
    parts_join(parts, parts->next_to_prune, parts->next_to_prune, hdi_segment_settle, rt);
    parts->next_to_prune += before == parts->n_leaves;
}

void hdi_uses_prune_parts(hd_runtime *rt, hdi_uses *u, unsigned order)
{
    hdi_parts *other = hdi_buffer_of(rt)->parts[order].ring;
    hdi_buffer_of(rt)->parts[order].ring = other->behind;
    if (other != u->parts && !other->detached) {
        parts_prune_leaf(rt, other);
    }
    /* a single leaf needs no pruning here, since callers settle it anyway */
    if (u->parts && u->parts->n_leaves > 1) {
        parts_prune_leaf(rt, u->parts);
        uses_collapse(u);
    }
}

/* ---- noting uses ---- */

static bool segment_room_for_reader(hd_runtime *rt, hdi_segment *s)
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

static bool parts_room_for_wide(hdi_parts *parts)
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
static bool parts_split_ends(hdi_parts *parts, uint64_t low, uint64_t high)
{
    return (low == 0 || parts_split(parts, low)) && (high == hdi_parts_end(parts) || parts_split(parts, high));
}

bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room)
{
    if (!u->parts && (low != u->whole.low || high != u->whole.high)) {
        u->parts = parts_make(&u->whole, &hdi_buffer_of(rt)->parts[order]);
        if (u->parts) {
            u->whole = (hdi_segment){0}; /* the points of `whole` are in the parts now */
        }
    }
    if (!u->parts) {
        return low == u->whole.low && high == u->whole.high && segment_room_for_reader(rt, &u->whole);
    }
    if (!parts_room_for_wide(u->parts) || !parts_split_ends(u->parts, low, high)) {
        return false;
    }
    if (room) {
        return true;
    }
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, low, &place);
    for (uint32_t n = 0; s && s->low < high && n <= WIDE_ABOVE; n++) {
        if (s->n_readers >= (s->room ? s->room : HDI_READERS_FEW) && !segment_room_for_reader(rt, s)) {
            return false;
        }
        s = hdi_uses_next(u, &place);
    }
    return true;
}

static bool uses_is_point(hdi_point a, hdi_point b)
{
    return a.lane == b.lane && a.position == b.position;
}

/* uses_commit_read and uses_commit_write do the work of hdi_uses_commit for records of several
 * segments. */
static void uses_commit_read(hdi_uses *u, uint64_t low, uint64_t high, hdi_point point)
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
        if (!uses_is_point(s->writer, point)) { /* an operation does not count as a reader of its
                                                 * own write */
            hdi_segment_add_reader(s, point);
        }
    }
}

/* The ends of the range are borders of segments. There is one exception: an earlier argument of the
 * same operation may write a range around it. */
static void uses_commit_write(hdi_uses *u, uint64_t low, uint64_t high, hdi_point point, hdi_leaf **garbage)
{
    hdi_parts *parts = u->parts;
    const hdi_segment to = {.writer = point};
    parts->writes++;
    hdi_segment_place first = parts_find(parts, low);
    hdi_segment_place end = parts_find(parts, high - 1);
    if (hdi_parts_at(parts, end)->high <= high) {
        hdi_parts_next(parts, &end);
    }
    if (hdi_parts_at(parts, first)->low < low) {
        hdi_parts_next(parts, &first);
    }
    if (first.leaf < end.leaf || (first.leaf == end.leaf && first.index < end.index)) {
        parts_replace(parts, first, end, &to, garbage);
    }
    uint32_t kept = 0;
    /* the new writer waits for these readers, so a wait for the writer is enough */
    for (uint32_t i = 0; i < parts->n_wide; i++) {
        if (parts->wide[i].low < low || parts->wide[i].high > high) {
            parts->wide[kept++] = parts->wide[i];
        }
    }
    parts->n_wide = kept;
    uses_collapse(u);
}

void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_point point, hdi_leaf **garbage)
{
    if (!u->parts) {
        hdi_uses_commit_whole(u, write, point);
    } else if (write) {
        uses_commit_write(u, low, high, point, garbage);
    } else {
        uses_commit_read(u, low, high, point);
    }
}

/* ---- uses that may be withdrawn ---- */

#define DISPLACED_FIRST 4

/* Makes room for a total of `n` readers. False: no memory. */
static bool segment_room_for_readers(hdi_segment *s, uint32_t n)
{
    if (n <= (s->room ? s->room : HDI_READERS_FEW)) {
        return true;
    }
    hdi_point *many = malloc(2 * (size_t)n * sizeof *many);
    if (!many) {
        return false;
    }
    memcpy(many, hdi_segment_readers(s), s->n_readers * sizeof *many);
    if (s->room) {
        free(s->readers.many);
    }
    s->readers.many = many;
    s->room = 2 * n;
    return true;
}

/* Adds the unfinished readers of one segment to another one. */
static bool segment_add_readers(hd_runtime *rt, hdi_segment *to, const hdi_point *readers, uint32_t n)
{
    if (!segment_room_for_readers(to, to->n_readers + n)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!hdi_point_done(rt, readers[i])) {
            hdi_segment_add_reader(to, readers[i]);
        }
    }
    return true;
}

static bool segment_displace(hd_runtime *rt, hdi_uses *u, hdi_segment *s, uint64_t low, uint64_t high,
                             hdi_displaced *out)
{
    if (out->n == out->room) {
        uint32_t room = out->room ? 2 * out->room : DISPLACED_FIRST;
        hdi_segment *more = realloc(out->segments, room * sizeof *more);
        if (!more) {
            return false;
        }
        out->segments = more;
        out->room = room;
    }
    hdi_segment *copy = &out->segments[out->n++];
    *copy = (hdi_segment){.low = s->low > low ? s->low : low,
                          .high = s->high < high ? s->high : high,
                          .writer = s->writer,
                          .failed = s->failed};
    bool room = segment_add_readers(rt, copy, hdi_segment_readers(s), s->n_readers);
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; i < n_wide && room; i++) {
        if (wide[i].low < copy->high && wide[i].high > copy->low) {
            room = segment_add_readers(rt, copy, &wide[i].point, 1);
        }
    }
    return room;
}

bool hdi_uses_displace(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_displaced *out)
{
    hdi_segment_place place;
    bool room = true;
    if (hdi_uses_is_blank(u)) {
        return true;
    }
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high && room; s = hdi_uses_next(u, &place)) {
        room = segment_displace(rt, u, s, low, high, out);
    }
    return room;
}

void hdi_displaced_release(hdi_displaced *displaced)
{
    for (uint32_t i = 0; i < displaced->n; i++) {
        hdi_segment_release(&displaced->segments[i]);
    }
    free(displaced->segments);
    *displaced = (hdi_displaced){NULL, 0, 0};
}

/* Takes the point out of the readers of a segment. */
static void segment_drop_reader(hdi_segment *s, hdi_point point)
{
    hdi_point *reader = hdi_segment_reader(s, point.lane);
    if (reader && reader->position == point.position) {
        hdi_point *end = hdi_segment_readers(s) + s->n_readers--;
        memmove(reader, reader + 1, (size_t)(end - reader - 1) * sizeof *reader);
        segment_give_room_back(s);
    }
}

/* Restores the earlier segment `before` at its bytes, if the point is still their writer. The
 * present segments there may be larger than these bytes. */
static bool uses_put_back(hd_runtime *rt, hdi_uses *u, unsigned order, const hdi_segment *before, hdi_point point)
{
    uint64_t low = before->low;
    while (low < before->high) {
        hdi_segment_place place;
        const hdi_segment *s = hdi_uses_first(u, low, &place);
        uint64_t high = s->high < before->high ? s->high : before->high;
        if (uses_is_point(s->writer, point)) {
            if (!hdi_uses_prepare(rt, u, order, low, high, true)) {
                return false;
            }
            hdi_segment *own = hdi_uses_first(u, low, &place);
            if (!segment_add_readers(rt, own, hdi_segment_readers((hdi_segment *)before), before->n_readers)) {
                return false;
            }
            own->writer = before->writer;
            own->failed = before->failed;
        }
        low = high;
    }
    return true;
}

bool hdi_uses_withdraw(hd_runtime *rt, hdi_uses *u, unsigned order, const hdi_noted_use *noted)
{
    bool room = true;
    for (uint32_t i = 0; i < noted->n && room; i++) {
        room = uses_put_back(rt, u, order, &noted->displaced[i], noted->point);
    }
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, noted->low, &place); s && s->low < noted->high;
         s = hdi_uses_next(u, &place)) {
        segment_drop_reader(s, noted->point);
        if (room && noted->write && uses_is_point(s->writer, noted->point)) {
            s->writer = (hdi_point){0, 0}; /* the withdrawn use was the first one of these bytes */
            s->failed = false;
        }
    }
    hdi_parts *parts = u->parts;
    if (!parts) {
        return room;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < parts->n_wide; i++) {
        if (!uses_is_point(parts->wide[i].point, noted->point)) {
            parts->wide[kept++] = parts->wide[i];
        }
    }
    parts->n_wide = kept;
    /* so the wide readers that were noted so far count as readers of earlier content */
    parts->writes++;
    uses_collapse(u);
    return room;
}

bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_point point)
{
    if (!segment_room_for_reader(rt, &u->whole)) {
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

/* ---- pending uses ---- */

static size_t uses_add_pending(hd_runtime *rt, hdi_point point, hdi_point *points, size_t room, size_t n)
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
        n = uses_add_pending(rt, s->writer, points, room, n);
        const hdi_point *of = hdi_segment_readers(s);
        for (uint32_t r = 0; readers && r < s->n_readers; r++) {
            n = uses_add_pending(rt, of[r], points, room, n);
        }
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; readers && i < n_wide; i++) {
        if (wide[i].low < high && wide[i].high > low) {
            n = uses_add_pending(rt, wide[i].point, points, room, n);
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

static bool segment_writer_failed(hd_runtime *rt, const hdi_segment *s)
{
    return s->failed || (s->writer.position && hdi_point_done(rt, s->writer) && uses_point_has_failed(rt, s->writer));
}

unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    unsigned state = 0;
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        /* the failure of an operation is recorded before the operation is done */
        if (s->writer.position) {
            state |= !hdi_point_done(rt, s->writer) ? HDI_USES_WRITTEN : 0;
            state |= s->failed || uses_point_has_failed(rt, s->writer) ? HDI_USES_FAILED : 0;
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

uint64_t hdi_uses_alike_until(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    hdi_point first = {0, 0};
    uint64_t end = low;
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        hdi_point writer = hdi_point_done(rt, s->writer) ? (hdi_point){0, 0} : s->writer;
        if (end != low && (writer.lane != first.lane || writer.position != first.position)) {
            return end;
        }
        first = writer;
        end = s->high < high ? s->high : high;
    }
    return end;
}

hdi_point hdi_uses_failed_writer(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    hdi_segment_place place;
    for (hdi_segment *s = hdi_uses_first(u, low, &place); s && s->low < high; s = hdi_uses_next(u, &place)) {
        if (segment_writer_failed(rt, s)) {
            return s->writer;
        }
    }
    return (hdi_point){0, 0};
}

bool hdi_uses_check(const hdi_uses *u, uint64_t bytes)
{
    if (u->parts) {
        return parts_check(u->parts, bytes);
    }
    return u->whole.low == 0 && u->whole.high == bytes && segment_check(&u->whole);
}
