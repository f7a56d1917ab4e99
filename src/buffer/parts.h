/* parts.h - the segments of a use record that has several: a list sorted by address, in leaves of a few segments each.
 *
 * Finding a segment is two binary searches. Splitting one, joining some or taking some out touches their leaves, and the leaves'
 * directory, however many segments there are. All records with segments under one order lock are in a
 * ring, so that each change can also prune a little of another record. So finished uses go even from buffers that are not used any more.
 *
 * Threads: any, under the order lock of the buffer's owner, or with the record claimed (uses.h). Locks: none of its own.
 * Always: segments cover the buffer without gaps or overlaps. No leaf is empty. A segment has at most one reader point per lane.
 */
#ifndef HDI_BUFFER_PARTS_H
#define HDI_BUFFER_PARTS_H

#include <stdlib.h>
#include "engine/runtime.h"

#define HDI_READERS_FEW 3

typedef struct hdi_segment {
    uint64_t low, high; /* bytes [low, high) */
    hdi_point writer;   /* position 0: never written, or by an operation that has finished well */
    bool failed;        /* the writer has finished, and failed */
    uint32_t n_readers; /* since the last write, one point per lane, by rising lane */
    uint32_t room;      /* of `many`; 0: the points are in `few` */
    uint32_t looks;     /* of many readers: uses since it was looked which of them are finished */
    union {
        hdi_point few[HDI_READERS_FEW];
        hdi_point *many;
    } readers;
} hdi_segment;

static inline hdi_point *hdi_segment_readers(hdi_segment *s)
{
    return s->room ? s->readers.many : s->readers.few;
}

/* Where the point of a lane is among the readers, or would be. */
static inline uint32_t hdi_segment_reader_place(const hdi_point *readers, uint32_t n, uint32_t lane)
{
    uint32_t first = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        bool behind = readers[first + half].lane < lane;
        first = behind ? first + half + 1 : first;
        n = behind ? n - half - 1 : half;
    }
    return first;
}

/* NULL: the lane has not read it since the last write, or that is finished. */
static inline hdi_point *hdi_segment_reader(hdi_segment *s, uint32_t lane)
{
    hdi_point *readers = hdi_segment_readers(s);
    uint32_t at = hdi_segment_reader_place(readers, s->n_readers, lane);
    return at < s->n_readers && readers[at].lane == lane ? &readers[at] : NULL;
}

/* There is room for it. */
static inline void hdi_segment_add_reader(hdi_segment *s, hdi_point point)
{
    hdi_point *readers = hdi_segment_readers(s);
    if (s->n_readers == 0) {
        readers[0] = point;
        s->n_readers = 1;
        return;
    }
    uint32_t at = hdi_segment_reader_place(readers, s->n_readers, point.lane);
    if (at < s->n_readers && readers[at].lane == point.lane) {
        readers[at].position = readers[at].position > point.position ? readers[at].position : point.position;
        return;
    }
    for (uint32_t i = s->n_readers++; i > at; i--) {
        readers[i] = readers[i - 1];
    }
    readers[at] = point;
}

/* Its readers, and their memory. */
static inline void hdi_segment_release(hdi_segment *s)
{
    if (s->room) {
        free(s->readers.many);
        s->room = 0;
    }
    s->n_readers = 0;
}

#define HDI_LEAF_SEGMENTS 16

typedef struct hdi_leaf {
    uint32_t count;
    struct hdi_leaf *next; /* of leaves that are to be freed */
    hdi_segment segments[HDI_LEAF_SEGMENTS];
} hdi_leaf;

/* A reader of many segments, noted once instead of in each of them. An operation that writes any of these bytes waits for it. */
typedef struct hdi_wide_reader {
    uint64_t low, high;
    hdi_point point;
    uint64_t writes; /* of the record when it was noted: as long as that is so, all that it read is what is there */
} hdi_wide_reader;

#define HDI_LEAVES_FIRST 4

typedef struct hdi_parts {
    hdi_leaf **leaves; /* `first` while they are few */
    hdi_leaf *first[HDI_LEAVES_FIRST];
    uint32_t n_leaves, leaves_room;
    uint32_t next_to_prune; /* leaf */
    bool claimed;           /* a thread works on the record without the order lock; every other thread waits */
    uint32_t n_wide, wide_room;
    hdi_wide_reader *wide;
    uint64_t writes; /* uses that wrote, counted */
    hdi_parts_group *group;
    struct hdi_parts *before, *behind; /* in the group's ring */
} hdi_parts;

/* Where a segment is. Good until the next change. */
typedef struct hdi_segment_place {
    uint32_t leaf, index;
} hdi_segment_place;

/* The segments of a record that had one. NULL: no memory. Under the order lock of the group. */
hdi_parts *hdi_parts_make(const hdi_segment *only, hdi_parts_group *group);
/* Out of the group, under its order lock. The group may keep the memory for the next record. So a buffer that is used in parts and freed again and
 * again costs no call of the allocator. Returns what is left to be freed, without the lock; NULL: nothing. */
hdi_parts *hdi_parts_leave(hdi_parts *parts);
void hdi_parts_free(hdi_parts *parts); /* NULL is ignored */
/* The kept memory of a group that has no records. */
void hdi_parts_group_release(hdi_parts_group *group);
void hdi_leaves_free(hdi_leaf *list);

/* The segment with byte `at`. */
hdi_segment_place hdi_parts_find(const hdi_parts *parts, uint64_t at);

static inline hdi_segment *hdi_parts_at(const hdi_parts *parts, hdi_segment_place place)
{
    return place.leaf < parts->n_leaves ? &parts->leaves[place.leaf]->segments[place.index] : NULL;
}

/* Behind the last byte. */
static inline uint64_t hdi_parts_end(const hdi_parts *parts)
{
    const hdi_leaf *last = parts->leaves[parts->n_leaves - 1];
    return last->segments[last->count - 1].high;
}

/* NULL: there is none behind it. */
static inline hdi_segment *hdi_parts_next(const hdi_parts *parts, hdi_segment_place *place)
{
    hdi_leaf *leaf = parts->leaves[place->leaf];
    if (++place->index < leaf->count) {
        return &leaf->segments[place->index];
    }
    *place = (hdi_segment_place){place->leaf + 1, 0};
    return hdi_parts_at(parts, *place);
}

/* Number of segments that have bytes of [low, high), or, where that is more than `most`, some number above it. */
uint32_t hdi_parts_overlapping(const hdi_parts *parts, uint64_t low, uint64_t high, uint32_t most);

/* Whether that is more than `most`. */
static inline bool hdi_parts_are_more(const hdi_parts *parts, uint64_t low, uint64_t high, uint32_t most)
{
    return parts->n_leaves * HDI_LEAF_SEGMENTS > most && hdi_parts_overlapping(parts, low, high, most) > most;
}

/* Makes `at` the border of two segments. False: no memory; nothing has changed. */
bool hdi_parts_split(hdi_parts *parts, uint64_t at);

/* Makes one segment out of all from `first` to before `end`, with `to` in place of their points.
 * `end` is a place behind `first`, perhaps behind the last segment.
 * Leaves that become free are put in front of *garbage. */
void hdi_parts_replace(hdi_parts *parts, hdi_segment_place first, hdi_segment_place end, const hdi_segment *to,
                       hdi_leaf **garbage);

/* Looks at the leaves `from` to `to`: calls `visit` for each of their segments, which may drop points. Then joins neighbours that are
 * equal. */
typedef void hdi_segment_visit(void *context, hdi_segment *s);
void hdi_parts_join(hdi_parts *parts, uint32_t from, uint32_t to, hdi_segment_visit *visit, void *context);

bool hdi_segment_check(const hdi_segment *s);
/* Whether all that this file's head promises holds. Time grows with the number of segments. */
bool hdi_parts_check(const hdi_parts *parts, uint64_t bytes);

#endif
