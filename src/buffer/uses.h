/* uses.h - use records: for each range of a buffer's bytes, the last writer and the readers since.
 *
 * A record is one segment while only the whole buffer is used. It has several segments (parts.h) where uses name parts of the buffer.
 * Looking at a range of a record drops the uses that are finished and went well, and joins neighbours with equal content.
 * So a record has about as many segments as there are unfinished uses of parts.
 * It has one segment again once the whole buffer has been written or everything is finished.
 *
 * Threads: those that submit work or look at a buffer.
 * Locks: the calls below are made under the order lock of the buffer's owner.
 * A thread that has to look at very many segments claims the record first (submit.c), and works on it without the lock.
 * Every other thread waits until the record is free (hdi_uses_claimed).
 * Always: a point goes only when its operation has finished; a writer's point only when that went well, too.
 */
#ifndef HDI_BUFFER_USES_H
#define HDI_BUFFER_USES_H

#include "buffer/parts.h"

typedef struct hdi_uses {
    hdi_segment whole; /* the only one, where `parts` is NULL */
    hdi_parts *parts;
} hdi_uses;

/* Segments that are looked at in one go under an order lock. */
#define HDI_USES_WALK_MOST 256

void hdi_uses_init(hdi_uses *u, uint64_t bytes);
/* With several segments under the order lock, since records are neighbours (parts.h). */
void hdi_uses_release(hdi_uses *u);

static inline bool hdi_uses_claimed(const hdi_uses *u)
{
    return u->parts && u->parts->claimed;
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

/* As hdi_uses_settle for a record of several segments that the caller has claimed, without the lock. */
void hdi_uses_settle_claimed(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Where records under the order lock with the number `order` have several segments, looks at one leaf of one of them.
 * Looks at one more leaf of this record. So finished uses of records that are not used any more go, too, and no change looks at many. */
void hdi_uses_prune_parts(hd_runtime *rt, hdi_uses *u, unsigned order);
static inline void hdi_uses_prune(hd_runtime *rt, hdi_uses *u, unsigned order)
{
    if (rt->parts[order].ring) {
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
