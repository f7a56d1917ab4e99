/* parts.c - sorted segments in leaves. What it does, threads, locks: see parts.h. */
#include "buffer/parts.h"

#include <stdlib.h>
#include <string.h>

#define SPARES_MOST 8      /* of a group; each has two kilobytes */
#define SPARE_WIDE_MOST 16 /* wide readers that one has room for */

static void free_leaf(hdi_leaf *leaf)
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
        free_leaf(list);
        list = next;
    }
}

static void enter_ring(hdi_parts *parts, hdi_parts_group *group)
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

/* With one leaf. */
static hdi_parts *allocate(void)
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

hdi_parts *hdi_parts_make(const hdi_segment *only, hdi_parts_group *group)
{
    hdi_parts *parts = group->spare;
    if (parts) {
        group->spare = parts->behind;
        group->n_spare--;
        parts->next_to_prune = 0;
        parts->writes = 0;
    } else {
        parts = allocate();
        if (!parts) {
            return NULL;
        }
    }
    parts->first[0]->count = 1;
    parts->first[0]->segments[0] = *only;
    enter_ring(parts, group);
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
        free_leaf(parts->leaves[i]);
    }
    if (parts->leaves != parts->first) {
        free(parts->leaves);
    }
    free(parts->wide);
    free(parts);
}

/* ---- finding ---- */

hdi_segment_place hdi_parts_find(const hdi_parts *parts, uint64_t at)
{
    uint32_t first = 0, end = parts->n_leaves;
    if (at < parts->leaves[0]->segments[0].high) {
        return (hdi_segment_place){0, 0}; /* where most uses begin */
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
    hdi_segment_place from = hdi_parts_find(parts, low);
    hdi_segment_place to = hdi_parts_find(parts, high - 1);
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

/* An empty leaf behind `leaf`. */
static bool add_leaf(hdi_parts *parts, uint32_t leaf)
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

/* Room for one more segment in the leaf of `place`, which is moved along. */
static bool make_room(hdi_parts *parts, hdi_segment_place *place)
{
    hdi_leaf *leaf = parts->leaves[place->leaf];
    if (leaf->count < HDI_LEAF_SEGMENTS) {
        return true;
    }
    if (!add_leaf(parts, place->leaf)) {
        return false;
    }
    /* Parts are usually used by rising address: then a new leaf is for what comes. */
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

bool hdi_parts_split(hdi_parts *parts, uint64_t at)
{
    hdi_segment_place place = hdi_parts_find(parts, at);
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
    if (!make_room(parts, &place)) {
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

/* The leaves [from, to) leave the directory. */
static void drop_leaves(hdi_parts *parts, uint32_t from, uint32_t to)
{
    memmove(&parts->leaves[from], &parts->leaves[to], (parts->n_leaves - to) * sizeof(hdi_leaf *));
    parts->n_leaves -= to - from;
}

void hdi_parts_replace(hdi_parts *parts, hdi_segment_place first, hdi_segment_place end, const hdi_segment *to,
                       hdi_leaf **garbage)
{
    hdi_segment *s = hdi_parts_at(parts, first);
    hdi_leaf *leaf = parts->leaves[first.leaf];
    hdi_segment *after = hdi_parts_at(parts, end);
    uint64_t low = s->low;
    uint64_t high =
        after ? after->low
              : parts->leaves[parts->n_leaves - 1]->segments[parts->leaves[parts->n_leaves - 1]->count - 1].high;
    uint32_t last = end.leaf == first.leaf ? end.index : leaf->count; /* of this leaf, behind those that go */
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
    drop_leaves(parts, first.leaf + 1, end.leaf);
}

/* ---- joining ---- */

static bool say_the_same(const hdi_segment *a, const hdi_segment *b)
{
    return a->writer.position == b->writer.position && a->writer.lane == b->writer.lane &&
           (a->n_readers | b->n_readers) == 0 && a->failed == b->failed;
}

/* Moves the segments of a leaf that has few into the one before. */
static bool merge_leaf(hdi_leaf *before, hdi_leaf *leaf)
{
    if (before->count + leaf->count > HDI_LEAF_SEGMENTS / 2) {
        return false;
    }
    memcpy(&before->segments[before->count], leaf->segments, leaf->count * sizeof(hdi_segment));
    before->count += leaf->count;
    leaf->count = 0;
    return true;
}

void hdi_parts_join(hdi_parts *parts, uint32_t from, uint32_t to, hdi_segment_visit *visit, void *context)
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
            if (last && say_the_same(last, s)) {
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
        if (kept == 0 || (before && merge_leaf(before, leaf))) {
            last = before ? &before->segments[before->count - 1] : NULL;
            free(leaf);
        } else {
            parts->leaves[kept_leaves++] = leaf;
        }
    }
    drop_leaves(parts, kept_leaves, to + 1);
}

/* ---- checking ---- */

bool hdi_segment_check(const hdi_segment *s)
{
    const hdi_point *readers = s->room ? s->readers.many : s->readers.few;
    bool good = s->low < s->high && s->n_readers <= (s->room ? s->room : HDI_READERS_FEW);
    for (uint32_t i = 0; good && i < s->n_readers; i++) {
        good = readers[i].position != 0 && (i == 0 || readers[i - 1].lane < readers[i].lane);
    }
    return good;
}

bool hdi_parts_check(const hdi_parts *parts, uint64_t bytes)
{
    uint64_t at = 0;
    bool good = parts->n_leaves > 0 && parts->n_leaves <= parts->leaves_room && parts->n_wide <= parts->wide_room;
    for (uint32_t l = 0; good && l < parts->n_leaves; l++) {
        const hdi_leaf *leaf = parts->leaves[l];
        good = leaf->count > 0 && leaf->count <= HDI_LEAF_SEGMENTS;
        for (uint32_t i = 0; good && i < leaf->count; i++) {
            good = leaf->segments[i].low == at && hdi_segment_check(&leaf->segments[i]);
            at = leaf->segments[i].high;
        }
    }
    return good && at == bytes;
}
