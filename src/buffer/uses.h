/* uses.h - use records: for each range of a buffer's bytes, the last writer and the readers since
 * that write.
 *
 * A segment is a range of bytes with the same uses. While every use is of the whole buffer, the
 * record is one segment. Uses of parts split the record into several segments. Functions that visit
 * a range drop the uses that ended with success, and join neighbouring segments with equal points.
 * So there are about as many segments as unfinished uses of parts. After a write of the whole
 * buffer, or once all uses left the record, the record is one segment again.
 *
 * Several segments form a list sorted by address, in leaves of a few segments each. Finding a
 * segment takes two binary searches.
 * A change of segments touches only the leaves of these segments and the directory of leaves, even
 * if there are very many segments. All records of several segments under one order lock form a
 * ring. Each change of a record can also prune a little of the next record in the ring. So finished
 * uses also leave the records of buffers that no operation uses any more.
 *
 * Threads: the threads that submit work or look at a buffer.
 * Locks: call the functions below under the order lock of the buffer's owner. A thread that must
 * visit very many segments first detaches the record (submit_slow.c), and then works on it without
 * the lock. Other threads wait until the record is no longer detached (hdi_uses_detached).
 * Always: the point of a reader leaves a record only once its operation finished, or a later write
 * replaced it. The point of a writer leaves only once its operation succeeded, or a later write
 * replaced it. Segments cover the buffer without gaps or overlaps. No leaf is empty. A segment
 * holds at most one reader point per lane.
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
    hdi_point writer;   /* position 0: the bytes were never written, or the writer succeeded */
    bool failed;        /* the writer finished, and failed */
    /* the number of readers since the last write: one point per lane, sorted by lane */
    uint32_t n_readers;
    uint32_t room; /* the room in `many`; 0: the points are in `few` */
    /* the number of uses since the last search for finished readers; counted only if there are many
     * readers */
    uint32_t looks;
    union {
        hdi_point few[HDI_READERS_FEW];
        hdi_point *many;
    } readers;
} hdi_segment;

static inline hdi_point *hdi_segment_readers(hdi_segment *s)
{
    return s->room ? s->readers.many : s->readers.few;
}

/* The index of a lane's point among the readers. If the lane has no point there, the index that its
 * point would get. */
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

/* The point of a lane among the readers. NULL: the lane did not read the segment since the last
 * write, or its reads are finished. */
static inline hdi_point *hdi_segment_reader(hdi_segment *s, uint32_t lane)
{
    hdi_point *readers = hdi_segment_readers(s);
    uint32_t at = hdi_segment_reader_place(readers, s->n_readers, lane);
    return at < s->n_readers && readers[at].lane == lane ? &readers[at] : NULL;
}

/* Adds a reader. The caller made sure that there is room. */
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

/* Drops the segment's readers, and frees their memory. */
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
    struct hdi_leaf *next; /* the next leaf in a list of leaves to free */
    hdi_segment segments[HDI_LEAF_SEGMENTS];
} hdi_leaf;

/* A reader of many segments, which is noted only once, instead of in each segment. An operation
 * that writes any byte of its range waits for this reader. */
typedef struct hdi_wide_reader {
    uint64_t low, high;
    hdi_point point;
    /* the record's `writes` when the reader was noted; if the record's number is still the same,
     * the reader read the current content */
    uint64_t writes;
} hdi_wide_reader;

#define HDI_LEAVES_FIRST 4

typedef struct hdi_parts {
    hdi_leaf **leaves; /* points to `first` while the leaves are few */
    hdi_leaf *first[HDI_LEAVES_FIRST];
    uint32_t n_leaves, leaves_room;
    uint32_t next_to_prune; /* leaf */
    /* a thread works on the record without the order lock, and all others wait */
    bool detached;
    uint32_t n_wide, wide_room;
    hdi_wide_reader *wide;
    uint64_t writes; /* the number of uses that wrote */
    hdi_parts_group *group;
    struct hdi_parts *before, *behind; /* the neighbours in the group's ring */
} hdi_parts;

/* The place of a segment. It is valid until the next change of the record. */
typedef struct hdi_segment_place {
    uint32_t leaf, index;
} hdi_segment_place;

/* Takes a record's parts out of their group, under the group's order lock. The group may keep the
 * memory for the next such record, which then needs no allocation. Returns memory that the caller
 * frees after it released the lock; NULL: none. */
hdi_parts *hdi_parts_leave(hdi_parts *parts);
void hdi_parts_free(hdi_parts *parts); /* NULL is ignored */
/* Frees the kept memory of a group without records. */
void hdi_parts_group_release(hdi_parts_group *group);
void hdi_leaves_free(hdi_leaf *list);

static inline hdi_segment *hdi_parts_at(const hdi_parts *parts, hdi_segment_place place)
{
    return place.leaf < parts->n_leaves ? &parts->leaves[place.leaf]->segments[place.index] : NULL;
}

/* The end of the last segment, which is the size of the buffer. */
static inline uint64_t hdi_parts_end(const hdi_parts *parts)
{
    const hdi_leaf *last = parts->leaves[parts->n_leaves - 1];
    return last->segments[last->count - 1].high;
}

/* Moves *place to the next segment, and returns that segment. NULL: the segment at *place was the
 * last one. */
static inline hdi_segment *hdi_parts_next(const hdi_parts *parts, hdi_segment_place *place)
{
    hdi_leaf *leaf = parts->leaves[place->leaf];
    if (++place->index < leaf->count) {
        return &leaf->segments[place->index];
    }
    *place = (hdi_segment_place){place->leaf + 1, 0};
    return hdi_parts_at(parts, *place);
}

/* The number of segments that overlap [low, high). If more than `most` segments overlap, the result
 * is any number greater than `most`. */
uint32_t hdi_parts_overlapping(const hdi_parts *parts, uint64_t low, uint64_t high, uint32_t most);

/* True if more than `most` segments overlap [low, high). */
static inline bool hdi_parts_are_more(const hdi_parts *parts, uint64_t low, uint64_t high, uint32_t most)
{
    return parts->n_leaves * HDI_LEAF_SEGMENTS > most && hdi_parts_overlapping(parts, low, high, most) > most;
}

/* Called for each segment of a range; may drop points. Neighbours that are equal afterwards are
 * joined. */
typedef void hdi_segment_visit(void *context, hdi_segment *s);

/* ---- records ---- */

typedef struct hdi_uses {
    hdi_segment whole; /* the only segment if `parts` is NULL */
    hdi_parts *parts;
} hdi_uses;

/* The most segments that a thread visits under one hold of an order lock. */
#define HDI_USES_WALK_MOST 256

void hdi_uses_init(hdi_uses *u, uint64_t bytes);
/* Drops all uses. If the record consists of several segments, the order lock is held, since such
 * records are in a ring. */
void hdi_uses_release(hdi_uses *u);

static inline bool hdi_uses_detached(const hdi_uses *u)
{
    return u->parts && u->parts->detached;
}

/* True if a use of [low, high) overlaps more segments than a thread should visit under the lock. */
static inline bool hdi_uses_is_long(const hdi_uses *u, uint64_t low, uint64_t high)
{
    return u->parts && hdi_parts_are_more(u->parts, low, high, HDI_USES_WALK_MOST);
}

/* The first segment that ends after `low`, and the segment after *place; NULL: none. */
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

/* True if no use of any part of the buffer can be unfinished or failed. */
static inline bool hdi_uses_is_blank(const hdi_uses *u)
{
    const hdi_segment *s = &u->whole;
    return (u->parts == NULL) & (s->writer.position == 0) & ((s->n_readers | s->room) == 0);
}

/* Drops finished uses from the segments of [low, high), and joins segments that are equal
 * afterwards. Keeps a writer that failed, since reads of its bytes must fail. */
void hdi_uses_settle(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Drops finished uses from one segment; `context` is the runtime. */
hdi_segment_visit hdi_segment_settle;

/* For a record of several segments: calls `visit` for all segments of [low, high), and perhaps for
 * neighbours. Joins segments that are equal afterwards. Drops wide readers that are finished. */
void hdi_uses_visit(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_segment_visit *visit, void *context);

/* hdi_uses_settle without the lock, for a detached record of several segments. */
void hdi_uses_settle_detached(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Prunes one leaf of this record, and one of some record of several segments under the order lock
 * with the number `order`. So finished uses also leave records that no operation uses any more, and
 * a single call looks at only two leaves. */
void hdi_uses_prune_parts(hd_runtime *rt, hdi_uses *u, unsigned order);
static inline void hdi_uses_prune(hd_runtime *rt, hdi_uses *u, unsigned order)
{
    if (hdi_buffer_of(rt)->parts[order].ring) {
        hdi_uses_prune_parts(rt, u, order);
    }
}

/* True if a record of one segment can take one more reader. */
static inline bool hdi_uses_has_room(const hdi_uses *u)
{
    return u->whole.n_readers < (u->whole.room ? u->whole.room : HDI_READERS_FEW);
}

/* The slow part of hdi_uses_prepare. `room`: the caller knows that each segment can take one more
 * reader, or that the use adds no reader. */
bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room);

/* Makes sure that hdi_uses_commit of the same range cannot fail. `order`: number of the order lock.
 * False: no memory, and the record is unchanged. */
static inline bool hdi_uses_prepare(hd_runtime *rt, hdi_uses *u, unsigned order, uint64_t low, uint64_t high, bool room)
{
    if (!u->parts && low == u->whole.low && high == u->whole.high && u->whole.room == 0 &&
        u->whole.n_readers < HDI_READERS_FEW) {
        return true;
    }
    return hdi_uses_prepare_parts(rt, u, order, low, high, room);
}

/* Notes that `point` reads or writes [low, high), which was prepared. Adds leaves that are no
 * longer needed to the front of *garbage, for hdi_leaves_free after the lock is released. */
void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_point point, hdi_leaf **garbage);

/* hdi_uses_commit for a use of the whole buffer whose record consists of one segment. */
static inline void hdi_uses_commit_whole(hdi_uses *u, bool write, hdi_point point)
{
    hdi_segment *s = &u->whole;
    if (write) {
        hdi_segment_release(s);
        s->writer = point;
        s->failed = false;
        /* an operation does not count as a reader of its own write */
    } else if (s->writer.lane != point.lane || s->writer.position != point.position) {
        hdi_segment_add_reader(s, point);
    }
}

/* ---- uses that may be withdrawn ---- */

/* Segments that a writing use takes out of a record, with their earlier writers and readers. All
 * zeros: none. */
typedef struct hdi_displaced {
    hdi_segment *segments;
    uint32_t n, room;
} hdi_displaced;

/* Adds the record's segments of [low, high), before the use is noted. False: no memory; earlier
 * additions stay. */
bool hdi_uses_displace(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, hdi_displaced *out);

/* A noted use, and the segments that it displaced: `n` from `displaced` on; none if it only
 * reads. */
typedef struct hdi_noted_use {
    uint64_t low, high;
    bool write;
    hdi_point point;
    const hdi_segment *displaced;
    uint32_t n;
} hdi_noted_use;

/* Takes a use out of the record again. If the use is still the last writer of some bytes, the
 * displaced segments come back for these bytes. `order`: number of the order lock. The record must
 * not be detached. False: no memory, and the use is still the writer of some bytes. */
bool hdi_uses_withdraw(hd_runtime *rt, hdi_uses *u, unsigned order, const hdi_noted_use *noted);

void hdi_displaced_release(hdi_displaced *displaced);

/* True for the usual record: all its points belong to `lane`, and there is room for one more
 * reader. If there is a last writer, its position is greater than `failed_to`. Up to that position
 * some operations of the lane failed. */
static inline bool hdi_uses_only_in(const hdi_uses *u, uint32_t lane, uint64_t failed_to)
{
    const hdi_segment *s = &u->whole;
    /* The operators are bitwise, so that this is one branch: it runs for every buffer of every
     * launch. */
    return (u->parts == NULL) & (s->room == 0) &
           (((s->writer.lane == lane) & (s->writer.position > failed_to)) | (s->writer.position == 0)) &
           ((s->n_readers == 0) | ((s->n_readers == 1) & (s->readers.few[0].lane == lane)));
}

/* hdi_uses_commit for a use of the whole buffer, if hdi_uses_only_in is true. */
static inline void hdi_uses_commit_only_in(hdi_uses *u, bool write, hdi_point point)
{
    hdi_segment *s = &u->whole;
    if (write) {
        s->writer = point;
    }
    s->readers.few[0] = point;
    s->n_readers = !write;
}

/* The unfinished and failed uses of [low, high). */
enum {
    HDI_USES_WRITTEN = 1, /* a writer is not finished */
    HDI_USES_READ = 2,    /* a reader is not finished */
    HDI_USES_FAILED = 4   /* the last writer of some bytes failed; perhaps it is not finished yet */
};
unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Returns the end of the longest range that begins at `low`, and whose bytes all have the same
 * unfinished writer, or no unfinished writer. The end is at most `high`. */
uint64_t hdi_uses_alike_until(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Finds a failed operation that is the last writer of some bytes of [low, high); position 0: there
 * is none. */
hdi_point hdi_uses_failed_writer(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* True if the record keeps the promises in this file's head. The time grows with its size: for
 * debug builds and tests. */
bool hdi_uses_check(const hdi_uses *u, uint64_t bytes);

/* Adds a reader of the whole buffer. A fresh buffer gets such readers for earlier uses of its
 * memory. False: no memory. */
bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_point point);

/* Resets the record to `bytes` bytes that were never written. `point` becomes its only reader
 * (position 0: none). Locks as in hdi_uses_release. */
void hdi_uses_renew(hdi_uses *u, uint64_t bytes, hdi_point point);

/* Writes the unfinished points of [low, high) into points[0..room), the last one per lane.
 * `readers`: also writes the points of readers; otherwise only those of writers. Returns the number
 * of all such points, which may exceed `room`. */
size_t hdi_uses_pending(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, bool readers, hdi_point *points,
                        size_t room);

/* True if all points of the record, finished or not, belong to `lane`. *last: the last of these
 * points; position 0: none. Does not check whether the points are finished. */
bool hdi_uses_of_lane(hdi_uses *u, uint32_t lane, hdi_point *last);

#endif
