/* uses.h - use records: for each range of a buffer's bytes, the last writer and the readers since.
 *
 * A record is one segment while only the whole buffer is used. It has several segments where uses name parts of the buffer.
 * Looking at a range of a record drops the uses that are finished and went well, and joins neighbours with equal content.
 * So a record has about as many segments as there are unfinished uses of parts.
 * It has one segment again once the whole buffer has been written or everything is finished.
 *
 * Several segments are a list sorted by address, in leaves of a few segments each. Finding a segment is two binary searches.
 * Splitting one, joining some or taking some out touches their leaves, and the leaves' directory, however many segments there are.
 * All records with segments under one order lock are in a ring, so that each change can also prune a little of another record.
 * So finished uses go even from buffers that are not used any more.
 *
 * Threads: those that submit work or look at a buffer.
 * Locks: the calls below are made under the order lock of the buffer's owner.
 * A thread that has to look at very many segments detaches the record first (submit_slow.c), and works on it without the lock.
 * Every other thread waits until the record is free (hdi_uses_detached).
 * Always: a point goes only when its operation has finished; a writer's point only when that went well, too.
 * Segments cover the buffer without gaps or overlaps. No leaf is empty. A segment has at most one reader point per lane.
 */
#ifndef HDI_BUFFER_USES_H
#define HDI_BUFFER_USES_H

#include <stdlib.h>
#include "buffer/part.h"
#include "engine/runtime.h"

/* ---- segments ---- */

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
    bool detached;          /* a thread works on the record without the order lock; every other thread waits */
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

/* Out of the group, under its order lock. The group may keep the memory for the next record. So a buffer that is used in parts and freed again and
 * again costs no call of the allocator. Returns what is left to be freed, without the lock; NULL: nothing. */
hdi_parts *hdi_parts_leave(hdi_parts *parts);
void hdi_parts_free(hdi_parts *parts); /* NULL is ignored */
/* The kept memory of a group that has no records. */
void hdi_parts_group_release(hdi_parts_group *group);
void hdi_leaves_free(hdi_leaf *list);

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

/* Looks at the leaves `from` to `to`: calls `visit` for each of their segments, which may drop points. Then joins neighbours that are
 * equal. */
typedef void hdi_segment_visit(void *context, hdi_segment *s);

/* ---- records ---- */

typedef struct hdi_uses {
    hdi_segment whole; /* the only one, where `parts` is NULL */
    hdi_parts *parts;
} hdi_uses;

/* Segments that are looked at in one go under an order lock. */
#define HDI_USES_WALK_MOST 256

void hdi_uses_init(hdi_uses *u, uint64_t bytes);
/* With several segments under the order lock, since records are neighbours. */
void hdi_uses_release(hdi_uses *u);

static inline bool hdi_uses_detached(const hdi_uses *u)
{
    return u->parts && u->parts->detached;
}

/* Whether a use of [low, high) has more segments to look at than is done under the lock. */
static inline bool hdi_uses_is_long(const hdi_uses *u, uint64_t low, uint64_t high)
{
    return u->parts && hdi_parts_are_more(u->parts, low, high, HDI_USES_WALK_MOST);
}

/* The first segment that has bytes behind `low`, and the one behind that; NULL: there is none. */
hdi_segment *hdi_uses_first(hdi_uses *u, uint64_t low, hdi_segment_place *place);
static inline hdi_segment *hdi_uses_next(hdi_uses *u, hdi_segment_place *place)
{
    return u->parts ? hdi_parts_next(u->parts, place) : NULL;
}

/* The wide readers, which are in no segment. */
static inline const hdi_wide_reader *hdi_uses_wide(const hdi_uses *u, uint32_t *n)
{
    *n = u->parts ? u->parts->n_wide : 0;
    return u->parts ? u->parts->wide : NULL;
}

/* Whether the record has no use of any part of the buffer that may be unfinished, and none that has failed. */
static inline bool hdi_uses_is_blank(const hdi_uses *u)
{
    const hdi_segment *s = &u->whole;
    return (u->parts == NULL) & (s->writer.position == 0) & ((s->n_readers | s->room) == 0);
}

/* Drops what is finished from the segments of [low, high), and joins those that are then equal. A writer that failed is kept: the content is
 * not good. */
void hdi_uses_settle(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* The same for one segment; `rt`: the runtime. */
hdi_segment_visit hdi_segment_settle;

/* For a record of several segments: calls `visit` for those of [low, high) and for neighbours, and joins those that are then equal. Wide readers
 * that are finished go. */
void hdi_uses_visit(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_segment_visit *visit, void *context);

/* As hdi_uses_settle for a record of several segments that the caller has detached, without the lock. */
void hdi_uses_settle_detached(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Where records under the order lock with the number `order` have several segments, looks at one leaf of one of them.
 * Looks at one more leaf of this record. So finished uses of records that are not used any more go, too, and no change looks at many. */
void hdi_uses_prune_parts(hd_runtime *rt, hdi_uses *u, unsigned order);
static inline void hdi_uses_prune(hd_runtime *rt, hdi_uses *u, unsigned order)
{
    if (hdi_buffer_of(rt)->parts[order].ring) {
        hdi_uses_prune_parts(rt, u, order);
    }
}

/* Whether a record of one segment has room for a reader more. */
static inline bool hdi_uses_has_room(const hdi_uses *u)
{
    return u->whole.n_readers < (u->whole.room ? u->whole.room : HDI_READERS_FEW);
}

/* The slow part of hdi_uses_prepare. `room`: all segments are known to have room for a reader more, or will have none. */
bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room);

/* Makes sure that hdi_uses_commit of the same range cannot fail. `order`: number of the order lock. False: no memory, and the record is
 * unchanged. */
static inline bool hdi_uses_prepare(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room)
{
    if (!u->parts && low == u->whole.low && high == u->whole.high && u->whole.room == 0 &&
        u->whole.n_readers < HDI_READERS_FEW) {
        return true;
    }
    return hdi_uses_prepare_parts(rt, u, order, low, high, room);
}

/* Notes that `point` reads or writes [low, high), prepared before. What becomes superfluous is put in front of *garbage, for
 * hdi_leaves_free once the lock is released. */
void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_point point, hdi_leaf **garbage);

/* The same for a use of the whole buffer whose record has one segment. */
static inline void hdi_uses_commit_whole(hdi_uses *u, bool write, hdi_point point)
{
    hdi_segment *s = &u->whole;
    if (write) {
        hdi_segment_release(s);
        s->writer = point;
        s->failed = false;
    } else if (s->writer.lane != point.lane ||
               s->writer.position != point.position) { /* what the operation itself writes */
        hdi_segment_add_reader(s, point);
    }
}

/* Whether the record is the usual one: its unfinished uses are all of `lane`, and it has room for one more reader.
 * Its last writer is not among the operations up to `failed_to`, some of which failed. */
static inline bool hdi_uses_only_in(const hdi_uses *u, uint32_t lane, uint64_t failed_to)
{
    const hdi_segment *s = &u->whole;
    /* Bitwise, to be one branch: this runs for every buffer of every launch. */
    return (u->parts == NULL) & (s->room == 0) &
           (((s->writer.lane == lane) & (s->writer.position > failed_to)) | (s->writer.position == 0)) &
           ((s->n_readers == 0) | ((s->n_readers == 1) & (s->readers.few[0].lane == lane)));
}

/* hdi_uses_commit for a record for which hdi_uses_only_in is true, and a use of the whole buffer. */
static inline void hdi_uses_commit_only_in(hdi_uses *u, bool write, hdi_point point)
{
    hdi_segment *s = &u->whole;
    if (write) {
        s->writer = point;
    }
    s->readers.few[0] = point;
    s->n_readers = !write;
}

/* What unfinished and failed uses [low, high) has. */
enum {
    HDI_USES_WRITTEN = 1, /* a writer is not finished */
    HDI_USES_READ = 2,    /* a reader is not finished */
    HDI_USES_FAILED = 4   /* the last writer of some bytes has failed */
};
unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* The last writer of some bytes of [low, high) that has failed; position 0: there is none. */
hdi_point hdi_uses_failed_writer(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Whether the record is as uses.c promises. Time grows with its size: for debug builds and tests. */
bool hdi_uses_check(const hdi_uses *u, uint64_t bytes);

/* Adds a reader of everything, as a fresh buffer needs it for the former uses of its memory. False: no memory. */
bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_point point);

/* Makes the record one of `bytes` bytes that were never written, and that `point` alone reads (position 0: no reader). As hdi_uses_release. */
void hdi_uses_renew(hdi_uses *u, uint64_t bytes, hdi_point point);

/* Writes the unfinished points of [low, high) into points[0..room), the last one per lane: those of writers, or also of readers.
 * Returns how many there are (may be more than room). */
size_t hdi_uses_pending(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, bool readers, hdi_point *points,
                        size_t room);

/* Whether all points are of one lane, finished or not; the last of them is that at *last, position 0: there is none. Looks at no lane. */
bool hdi_uses_of_lane(hdi_uses *u, uint32_t lane, hdi_point *last);

#endif
