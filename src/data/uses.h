/* uses.h - use records: who wrote which bytes of a buffer last, and who has read them since.
 *
 * A record is a list of segments that cover the buffer; it starts as one and is split where uses name parts. The calls below are
 * made under the order lock of the buffer's owner.
 */
#ifndef HDI_DATA_USES_H
#define HDI_DATA_USES_H

#include "engine/runtime.h"

#define HDI_READERS_FEW 3

typedef struct hdi_segment {
    uint64_t low, high; /* bytes [low, high) */
    hdi_mark writer;    /* position 0: never written */
    uint32_t n_readers; /* since the last write, one mark per lane */
    uint32_t room;      /* of `many`; 0: the marks are in `few` */
    union {
        hdi_mark few[HDI_READERS_FEW];
        hdi_mark *many;
    } readers;
} hdi_segment;

typedef struct hdi_uses {
    uint32_t count, room;
    hdi_segment *more; /* all segments by rising address, when there are several */
    hdi_segment whole; /* the only one otherwise */
} hdi_uses;

static inline hdi_mark *hdi_segment_readers(hdi_segment *s)
{
    return s->room ? s->readers.many : s->readers.few;
}

static inline hdi_segment *hdi_uses_segments(hdi_uses *u)
{
    return u->count == 1 ? &u->whole : u->more;
}

void hdi_uses_init(hdi_uses *u, uint64_t bytes);
void hdi_uses_release(hdi_uses *u);

/* Joins segments that say the same where there are many. */
void hdi_uses_tidy(hd_runtime *rt, hdi_uses *u);

/* The slow part of hdi_uses_prepare. */
bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Splits segments so that some of them cover exactly [low, high), and makes room for one more reader in each, so that
 * hdi_uses_commit cannot fail. False: no memory; the record says the same as before. */
static inline bool hdi_uses_prepare(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    if (u->count == 1 && low == u->whole.low && high == u->whole.high && u->whole.room == 0 &&
        u->whole.n_readers < HDI_READERS_FEW) {
        return true;
    }
    return hdi_uses_prepare_parts(rt, u, low, high);
}

/* Forgets the readers of a segment that are finished. */
void hdi_segment_forget_readers(hd_runtime *rt, hdi_segment *s);

/* Forgets the writer of a segment if it is finished and did not fail. */
void hdi_segment_forget_writer(hd_runtime *rt, hdi_segment *s);

/* The first segment that reaches behind `low`. */
hdi_segment *hdi_uses_find(hdi_uses *u, uint64_t low);

/* Notes that `mark` reads or writes [low, high), prepared before. */
void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_mark mark);

/* The usual record: nobody but `lane` has unfinished business with any part of the buffer as far as the record says, it has room
 * for one more reader, and its last writer is not among the operations up to `failed_to`, some of which failed. */
static inline bool hdi_uses_only_in(const hdi_uses *u, uint32_t lane, uint64_t failed_to)
{
    const hdi_segment *s = &u->whole;
    /* Bitwise, to be one branch: this runs for every buffer of every launch. */
    return (u->count == 1) & (s->room == 0) &
           (((s->writer.lane == lane) & (s->writer.position > failed_to)) | (s->writer.position == 0)) &
           ((s->n_readers == 0) | ((s->n_readers == 1) & (s->readers.few[0].lane == lane)));
}

/* hdi_uses_commit for a record that hdi_uses_only_in said yes to, and a use of the whole buffer. */
static inline void hdi_uses_commit_only_in(hdi_uses *u, bool write, hdi_mark mark)
{
    hdi_segment *s = &u->whole;
    if (write) {
        s->writer = mark;
    }
    s->readers.few[0] = mark;
    s->n_readers = !write;
}

/* What unfinished and failed uses [low, high) has. */
enum {
    HDI_USES_WRITTEN = 1, /* a writer is not finished */
    HDI_USES_READ = 2,    /* a reader is not finished */
    HDI_USES_FAILED = 4   /* the last writer of some bytes has failed */
};
unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high);

/* Whether the record is what uses.c says it always is. Time grows with its size: for debug builds and tests. */
bool hdi_uses_check(const hdi_uses *u, uint64_t bytes);

/* Adds a reader of everything, as a fresh buffer needs it for the former uses of its memory. False: no memory. */
bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_mark mark);

/* Makes the record one of `bytes` bytes that were never written, and that `mark` alone reads (position 0: nobody). Keeps its memory. */
void hdi_uses_renew(hdi_uses *u, uint64_t bytes, hdi_mark mark);

/* All marks that are not finished, once per lane, into marks[0..room); returns how many there are (may be more than room). */
size_t hdi_uses_pending(hd_runtime *rt, hdi_uses *u, hdi_mark *marks, size_t room);

#endif
