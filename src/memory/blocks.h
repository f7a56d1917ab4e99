/* blocks.h - an allocator over a range of offsets [0, limit), whose free blocks remember who may still be using them.
 *
 * It hands out numbers and never touches the memory behind them. A block may be freed while work of its owner is
 * still running: it then carries the points of that work, and the next owner is given those that are not finished, to
 * wait for before its own first use. Sizes and offsets are multiples of HDI_BLOCKS_GRANULE.
 *
 * Parts of the range may have no memory behind them: gaps. Nothing is allocated from a gap. A run is a sequence of
 * free blocks and gaps without anything else in between; the owner can claim a mapping of a run, put memory behind its
 * gaps while nobody else can have it, and finish it as one live block.
 *
 * Threads: none of its own and no locks; the owner serialises all calls (the arena does, with its short lock).
 * Always: the blocks of all kinds cover the range without overlaps; no two gaps are neighbours, nor two free blocks,
 * except at a wall, or while they wait for different lanes (or did so a moment ago); a free block's set has at most
 * one point per lane, and every byte's unfinished former uses are covered by the set of its block.
 */
#ifndef HDI_MEMORY_BLOCKS_H
#define HDI_MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "engine/point.h"

#define HDI_BLOCKS_GRANULE ((size_t)256)

/* A set of points, at most one per lane, by rising lane. Zero-initialised is empty. A few have room in the struct
 * itself, so that the usual block, used in a lane or two, needs no host allocation. Read it with hdi_points_data. */
#define HDI_POINTS_FEW 2
typedef struct hdi_points {
    size_t count;
    size_t room; /* of `many`; 0: the points are in `few` */
    union {
        hdi_point few[HDI_POINTS_FEW];
        hdi_point *many;
    } at;
} hdi_points;

static inline const hdi_point *hdi_points_data(const hdi_points *points)
{
    return points->room != 0 ? points->at.many : points->at.few;
}

/* Gives the memory of a set back and leaves it empty. Empty sets and sets released before are fine. */
void hdi_points_release(hdi_points *points);

typedef struct hdi_blocks hdi_blocks;

typedef struct hdi_block hdi_block;

typedef enum hdi_block_kind {
    HDI_BLOCK_FREE,
    HDI_BLOCK_LIVE,
    HDI_BLOCK_RETIRED, /* see hdi_blocks_free */
    HDI_BLOCK_GAP,
    HDI_BLOCK_CLAIMED /* a free block or a gap that nobody else can have */
} hdi_block_kind;

/* How a block came to be free. */
typedef enum hdi_origin {
    HDI_ORIGIN_NONE,
    HDI_ORIGIN_FRESH,     /* never handed out before */
    HDI_ORIGIN_FINISHED,  /* all uses are finished */
    HDI_ORIGIN_SAME_LANE, /* only the taker's lane still uses it */
    HDI_ORIGIN_WAITED     /* other lanes do, too */
} hdi_origin;

typedef struct hdi_blocks_config {
    size_t limit; /* the range never grows past this; rounded down to the granule */
    size_t wall; /* free blocks do not join across multiples of this, itself a multiple of the granule; 0: everywhere */

    /* Whether the work of a point is finished. Called from every function that touches sets: it must be cheap, must
     * not fail and must not call back into the allocator. Once true for a point it stays true. */
    bool (*finished)(void *context, hdi_point point);
    void *finished_context;

    void *(*allocate)(size_t bytes); /* host memory, given back with free(); NULL: malloc. Tests make it fail */
} hdi_blocks_config;

typedef struct hdi_blocks_info {
    size_t managed_bytes; /* the range covered so far */
    size_t live_bytes, free_bytes, gap_bytes, claimed_bytes;
    size_t waiting_bytes; /* in free blocks with points that have not been seen finished */
    size_t retired_bytes; /* lost to a lack of host memory, see hdi_blocks_free */
    size_t largest_free;
    size_t live_blocks, free_blocks, retired_blocks;
    size_t pending_points; /* in all sets of free blocks */
} hdi_blocks_info;

/* An empty range; hdi_blocks_grow gives it bytes. Errors: ARGUMENT, HOST_MEMORY. */
hd_status hdi_blocks_create(const hdi_blocks_config *config, hdi_blocks **out);
void hdi_blocks_destroy(hdi_blocks *b); /* NULL is ignored; live blocks are forgotten */

/* Adds `bytes` (a multiple of the granule, not 0) at the end of the range; merges with a free last block.
 * Nothing is changed on failure. Errors: ARGUMENT (not a multiple, or past the limit), HOST_MEMORY. */
hd_status hdi_blocks_grow(hdi_blocks *b, size_t bytes);

/* The same with a gap in place of memory. */
hd_status hdi_blocks_grow_gap(hdi_blocks *b, size_t bytes);

/* Takes a block of at least `bytes` for an owner who will use it first in `lane`. Looks at a bounded number of
 * blocks that fit: the smallest of those that nobody uses any more or only `lane` does; if all looked at are still
 * in use by other lanes, the smallest. `inherited` is overwritten with what the owner must wait for before its
 * first use, points of `lane` itself included (the owner may end up using the block in another lane first); the
 * owner gives it back with hdi_points_release.
 *
 * HD_ERROR_NOT_FOUND when no free block is large enough: an answer and not a failure, so no message is recorded.
 * Errors, with the blocks as they were and outputs untouched: ARGUMENT (0 bytes), HOST_MEMORY. */
hd_status hdi_blocks_alloc(hdi_blocks *b, size_t bytes, uint32_t lane, size_t *offset, hdi_points *inherited);

typedef struct hdi_blocks_request {
    size_t bytes;     /* not 0 */
    size_t alignment; /* of the offset, a multiple of the granule; 0: the granule */
    uint32_t lane;
    bool no_wait; /* nothing that another lane still uses */
} hdi_blocks_request;

typedef struct hdi_blocks_taken {
    size_t offset;
    hdi_points inherited;
    hdi_origin origin; /* also where nothing was taken: WAITED if only `no_wait` stood in the way, else NONE */
} hdi_blocks_taken;

/* hdi_blocks_alloc in full. Records no message. NOT_FOUND, HOST_MEMORY: only out->origin is written. */
hd_status hdi_blocks_take(hdi_blocks *b, const hdi_blocks_request *request, hdi_blocks_taken *out);

/* Gives back the block at `offset`. `points`: everything that must be finished before another owner may use the bytes,
 * which is the owner's own uses, and those inherited points that none of its uses has waited for. In any order, also
 * several of a lane. An offset that is not that of a live block is ignored, and false.
 *
 * Cannot fail. Room for one point per live block and some hundreds more is kept ready by hdi_blocks_alloc (which
 * fails instead when it cannot be had), so points can be kept even where host memory has run out. Should a free
 * still find no room for its points, after finished points have been dropped everywhere, the block is retired: it is
 * never handed out again, since nobody could say when that would be safe, and is counted in `retired_bytes`. */
bool hdi_blocks_free(hdi_blocks *b, size_t offset, const hdi_point *points, size_t n_points);

/* Size of the live block at `offset` (as handed out, so rounded up); 0 if there is none. */
size_t hdi_blocks_size(const hdi_blocks *b, size_t offset);

/* ---- gaps ------------------------------------------------------------------------------------------------------- */

/* Bytes [from, from + bytes) of a gap become a free block with these points. Errors: HOST_MEMORY, without a message. */
hd_status hdi_blocks_fill(hdi_blocks *b, size_t from, size_t bytes, bool fresh, const hdi_point *points,
                          size_t n_points);

/* The live block at `offset` becomes a gap. Cannot fail. */
void hdi_blocks_drop(hdi_blocks *b, size_t offset);

/* A mapping of a run. */
typedef struct hdi_run {
    size_t from, to; /* offsets; what lies between a block's end and `to` is the rest of a unit of memory */
    size_t lacks;    /* bytes of gaps in it */
    hdi_block *at;   /* what `from` lies in; NULL: unknown. Good until the next call that changes anything */
} hdi_run;

/* The place for a block which lacks the fewest bytes, of these the lowest. Gaps are filled in units of `unit` bytes,
 * at multiples of which they begin and end. `no_wait`: no free blocks that other lanes than the request's still use.
 * `as_gaps`: list of claims, which count as lacking; may be NULL. False: there is none. Time grows with the number of
 * gaps and of the free blocks next to them or to each other. */
bool hdi_blocks_find_run(hdi_blocks *b, const hdi_blocks_request *request, size_t unit, hdi_block *as_gaps,
                         hdi_run *out);

/* The gap at the end of the range if it has that many bytes, else the longest one. False: there are no gaps. */
bool hdi_blocks_find_gap(const hdi_blocks *b, size_t bytes, hdi_run *out);

/* Takes a run out of everybody's reach. `inherited` as for hdi_blocks_alloc. The claim is good until it is finished
 * or settled. Errors, with nothing changed: HOST_MEMORY, without a message. */
hd_status hdi_blocks_claim_run(hdi_blocks *b, const hdi_run *run, hdi_points *inherited, hdi_block **claim);

/* There is memory behind all of the claim: its first `bytes` become a live block, the rest free. Cannot fail. */
void hdi_blocks_finish(hdi_blocks *b, hdi_block *claim, size_t to, size_t bytes);

/* Gives a claim back: free blocks with the sets that they had, gaps free below the offset `filled_to`, gaps above.
 * Cannot fail. */
void hdi_blocks_settle(hdi_blocks *b, hdi_block *claim, size_t to, size_t filled_to);

/* What to do with a free block that nobody uses any more. TAKE: after narrowing [*from, *to). */
typedef enum hdi_choice { HDI_CHOICE_SKIP, HDI_CHOICE_TAKE, HDI_CHOICE_STOP } hdi_choice;
typedef hdi_choice (*hdi_choose)(void *context, size_t *from, size_t *to);

/* Claims parts of free blocks of at least `bytes`, small ones first, or those at high offsets first. What it takes is
 * put in front of *list. Errors: HOST_MEMORY without a message; what was taken before is in the list. */
hd_status hdi_blocks_claim_finished(hdi_blocks *b, size_t bytes, bool highest_first, hdi_choose choose, void *context,
                                    hdi_block **list);

/* Where a claim of such a list lies; returns the next one. */
hdi_block *hdi_blocks_claimed(const hdi_block *claim, size_t *from, size_t *to);

/* Gives the first claim of a list back: a gap below the offset `gone_to`, free from there on. Returns the next one.
 * Cannot fail. */
hdi_block *hdi_blocks_vacate(hdi_blocks *b, hdi_block *claim, size_t gone_to);

/* ---- figures ---------------------------------------------------------------------------------------------------- */

/* Figures that are always kept, in granules. */
typedef struct hdi_blocks_sums {
    size_t end; /* of the range covered so far */
    size_t live, retired, gap, claimed;
    size_t waiting; /* in free blocks with points that have not been seen finished */
} hdi_blocks_sums;

/* The blocks' own, to be read as often as anybody likes. */
const hdi_blocks_sums *hdi_blocks_get_sums(const hdi_blocks *b);

static inline size_t hdi_blocks_live_bytes(const hdi_blocks_sums *s)
{
    return s->live * HDI_BLOCKS_GRANULE;
}

/* Free, and nobody uses it any more as far as is known. */
static inline size_t hdi_blocks_ready_bytes(const hdi_blocks_sums *s)
{
    return (s->end - s->live - s->retired - s->gap - s->claimed - s->waiting) * HDI_BLOCKS_GRANULE;
}

/* Free blocks of exactly a wall's width. */
size_t hdi_blocks_whole(const hdi_blocks *b);

/* Joins everything between two walls where all of it is free, whoever uses it. */
void hdi_blocks_join_whole(hdi_blocks *b);

/* Drops the finished points of all sets, and joins what they kept apart. */
void hdi_blocks_prune(hdi_blocks *b);

/* Counts. The largest free block is searched for in one size class, everything else is kept. */
void hdi_blocks_get_info(const hdi_blocks *b, hdi_blocks_info *out);

/* Every block by rising offset, until `visit` returns false; then false. */
bool hdi_blocks_each(const hdi_blocks *b, bool (*visit)(void *context, size_t from, size_t to, hdi_block_kind kind),
                     void *context);

/* Walks and verifies every structure: time grows with the number of blocks. False with the first finding in `why`. */
bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes);

#endif
