/* blocks.h - an allocator over a range of offsets [0, limit). Each free block records the work that
 * may still use the block.
 *
 * The allocator hands out offsets, and never touches the memory there. An owner may free a block
 * while the owner's work still runs. Then the block carries the points of that work: a point is a
 * lane and a position in it. The next owner inherits the unfinished points, and waits for them
 * before its first use of the block. Sizes and offsets are multiples of HDI_BLOCKS_GRANULE.
 *
 * A gap is a part of the range without memory behind it. Nothing is allocated from a gap. A run is
 * an unbroken sequence of free blocks and gaps. A window is a part of a run. The caller can pledge
 * a window, so that nothing else is allocated there. Then the caller maps memory for the window's
 * gaps, and turns the window into one live block.
 *
 * Threads: any. The caller, an arena or a pool, makes one call at a time.
 * Locks: the caller holds a lock of its own during each call. Blocking: never.
 * Always:
 * - Free, live and pledged blocks and gaps cover the range without overlaps.
 * - No two gaps are neighbours.
 * - Two free blocks are neighbours only at a wall (hdi_blocks_config), or if they wait for
 *   different lanes, or shortly after such a wait.
 * - Each free block carries a set of points, at most one per lane. The set covers the unfinished
 *   former uses of all bytes of the block.
 */
#ifndef HDI_MEMORY_BLOCKS_H
#define HDI_MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "engine/channel.h"

#define HDI_BLOCKS_GRANULE ((size_t)256)

/* A set of points, at most one per lane, by rising lane. A zero-initialised set is empty. The
 * struct itself stores HDI_POINTS_FEW points, so a block that one or two lanes used needs no host
 * allocation. Read it with hdi_points_data. */
#define HDI_POINTS_FEW 2
typedef struct hdi_points {
    size_t count;
    size_t room; /* room in `many`; 0: the points are in `few` */
    union {
        hdi_point few[HDI_POINTS_FEW];
        hdi_point *many;
    } at;
} hdi_points;

static inline const hdi_point *hdi_points_data(const hdi_points *points)
{
    return points->room != 0 ? points->at.many : points->at.few;
}

/* Frees the memory of a set, and leaves the set empty. The set may be empty already. */
void hdi_points_release(hdi_points *points);

typedef struct hdi_blocks hdi_blocks;

typedef struct hdi_block hdi_block;

typedef enum hdi_block_kind {
    HDI_BLOCK_FREE,
    HDI_BLOCK_LIVE,
    HDI_BLOCK_RETIRED, /* see hdi_blocks_free */
    HDI_BLOCK_GAP,
    HDI_BLOCK_PLEDGED /* a free block or a gap that is reserved for its pledge */
} hdi_block_kind;

/* The state of a block when it was taken. */
typedef enum hdi_origin {
    HDI_ORIGIN_NONE,
    HDI_ORIGIN_FRESH,     /* never handed out before */
    HDI_ORIGIN_FINISHED,  /* all uses are finished */
    HDI_ORIGIN_SAME_LANE, /* only the new owner's lane still uses it */
    HDI_ORIGIN_WAITED     /* other lanes still use it */
} hdi_origin;

typedef struct hdi_blocks_config {
    size_t limit; /* the most bytes of the range; rounded down to the granule */
    /* The distance between walls, a multiple of the granule. Free blocks do not join across a
     * multiple of this distance. 0: free blocks join everywhere. */
    size_t wall;

    /* True if the work of a point is finished. All functions that change or read sets call this
     * function. It must be cheap, must not fail and must not call the allocator. Once the function
     * returned true for a point, it must always return true for this point. */
    bool (*finished)(void *context, hdi_point point);
    void *finished_context;

    /* Gets the bounds of the mapping that contains the byte at `offset`, which lies in no gap.
     * Memory is given back in whole mappings. False: the mapping is one unit of memory. The rules
     * for `finished` apply here, too. NULL: no mappings exist. See hdi_blocks_request for mappings
     * that are entirely free. */
    bool (*mapping)(void *context, size_t offset, size_t *from, size_t *to);
    void *mapping_context;

    void *(*allocate)(size_t bytes); /* host memory, for free(); NULL: malloc. Tests make it fail */
} hdi_blocks_config;

typedef struct hdi_blocks_info {
    size_t managed_bytes; /* the range covered so far */
    size_t live_bytes, free_bytes, gap_bytes, pledged_bytes;
    size_t waiting_bytes; /* in free blocks with a point that the last check found unfinished */
    size_t retired_bytes; /* bytes lost because host memory ran out, see hdi_blocks_free */
    size_t largest_free;
    size_t live_blocks, free_blocks, retired_blocks;
    size_t pending_points; /* number of points in all sets of free blocks */
} hdi_blocks_info;

/* Makes an empty range; hdi_blocks_grow adds bytes.
 * Errors: ARGUMENT, HOST_MEMORY. */
hd_status hdi_blocks_create(const hdi_blocks_config *config, hdi_blocks **out);
void hdi_blocks_destroy(hdi_blocks *b); /* ignores NULL; blocks may still be live */

/* Adds `bytes` (a multiple of the granule, not 0) of memory at the end of the range. If the last
 * block is free, the new memory joins it. Nothing changes on failure.
 * Errors: ARGUMENT (not a multiple, or past the limit), HOST_MEMORY. */
hd_status hdi_blocks_grow(hdi_blocks *b, size_t bytes);

/* Adds a gap at the end of the range; otherwise as hdi_blocks_grow. */
hd_status hdi_blocks_grow_gap(hdi_blocks *b, size_t bytes);

/* Takes a block of at least `bytes` for an owner that first uses it in `lane`.
 * Compares a bounded number of blocks that fit, and takes the smallest one that no lane other than
 * `lane` still uses. If other lanes still use all these blocks, takes the smallest of them.
 * `inherited` is overwritten with the points to wait for before the first use; the owner calls
 * hdi_points_release. Points of `lane` are included, since the owner may use the block in another
 * lane first.
 * Returns HD_ERROR_NOT_FOUND, without a message, if no free block is large enough. The caller then
 * finds memory elsewhere.
 * Errors (blocks and outputs unchanged): ARGUMENT (0 bytes), HOST_MEMORY. */
hd_status hdi_blocks_alloc(hdi_blocks *b, size_t bytes, uint32_t lane, size_t *offset, hdi_points *inherited);

typedef struct hdi_blocks_request {
    size_t bytes;     /* not 0 */
    size_t alignment; /* the alignment of the offset, a multiple of the granule; 0: the granule */
    uint32_t lane;
    bool no_wait; /* take only a block that no other lane still uses */
    /* If a mapping is entirely free and unused, a block takes no part of it, since the arena could
     * give the whole mapping back. If work still uses a free mapping, the mapping's size decides. A
     * block may take a part of a mapping that is at most as large as the request. With `divide`,
     * the mapping may be larger than the request. */
    bool divide;
} hdi_blocks_request;

typedef struct hdi_blocks_taken {
    size_t offset;
    hdi_points inherited;
    /* If no block was taken, the origin gives the reason. WAITED: without `no_wait`, a block would
     * fit. NONE: no block fits, or the call failed. */
    hdi_origin origin;
} hdi_blocks_taken;

/* Like hdi_blocks_alloc, for a request with all its members. Records no message. NOT_FOUND and
 * HOST_MEMORY write only out->origin. */
hd_status hdi_blocks_take(hdi_blocks *b, const hdi_blocks_request *request, hdi_blocks_taken *out);

/* Gives back the block at `offset`.
 * `points`: the work that must finish before another owner may use the bytes. These points are the
 * owner's own uses, and the inherited points that no use of the owner waited for. The points come
 * in any order, and several may belong to one lane. Returns false, and does nothing, if no live
 * block starts at `offset`.
 *
 * Cannot fail. hdi_blocks_alloc reserves room for one point per live block and some hundreds more,
 * or fails. So a free usually finds room for its points even if host memory ran out. If a free
 * finds no room, it drops the finished points of all blocks. If it then still finds no room, it
 * retires the block. A retired block is never handed out again, since its last uses are not
 * recorded. Its bytes count in `retired_bytes`. */
bool hdi_blocks_free(hdi_blocks *b, size_t offset, const hdi_point *points, size_t n_points);

/* ---- gaps ------------------------------------------------------------------------------------ */

/* Turns the bytes [from, from + bytes) of a gap into a free block with these points. `fresh`: the
 * memory was never handed out.
 * Errors: HOST_MEMORY, without a message. */
hd_status hdi_blocks_fill(hdi_blocks *b, size_t from, size_t bytes, bool fresh, const hdi_point *points,
                          size_t n_points);

/* Turns the live block at `offset` into a gap. Cannot fail. */
void hdi_blocks_drop(hdi_blocks *b, size_t offset);

/* A window of a run. */
typedef struct hdi_run {
    /* Offsets. If the window ends in a gap, `to` is rounded up to the end of a unit of memory. So
     * the block may end before `to`. */
    size_t from, to;
    size_t lacks; /* bytes of gaps in the window */
    /* The block or gap that contains `from`; NULL: unknown. Valid until the next change. */
    hdi_block *at;
} hdi_run;

/* Finds the window that lacks the fewest bytes, and among equal windows the one at the lowest
 * offset. False if no window exists.
 * - A window may contain a part of a mapping that is free and unused. The caller first divides this
 *   mapping, see hdi_blocks_divided.
 * - Gaps are filled in units of `unit` bytes. They begin and end at multiples of `unit`.
 * - With `no_wait`, a free block counts only if no lane other than the request's lane still uses
 *   it.
 * - `as_gaps`: a list of pledges that count as gaps; may be NULL.
 * - The time grows with the number of gaps, and with the number of free blocks next to gaps or to
 *   each other. */
bool hdi_blocks_find_run(hdi_blocks *b, const hdi_blocks_request *request, size_t unit, hdi_block *as_gaps,
                         hdi_run *out);

/* Finds the window in a free block that hdi_blocks_take would take if it divided unused mappings.
 * False if none exists. */
bool hdi_blocks_find_free(hdi_blocks *b, const hdi_blocks_request *request, hdi_run *out);

/* True if a block of `bytes` in a window would take only a part of a mapping that is free and
 * unused. Gets the bounds of the first such mapping. */
bool hdi_blocks_divided(hdi_blocks *b, const hdi_run *run, size_t bytes, size_t *from, size_t *to);

/* Finds the gap at the end of the range if this gap is at least `bytes` long, else the longest gap.
 * False if the range has no gaps. */
bool hdi_blocks_find_gap(const hdi_blocks *b, size_t bytes, hdi_run *out);

/* Pledges a window, so that nothing else is allocated there. `inherited` as for hdi_blocks_alloc.
 * The pledge is valid until it is finished or settled.
 * Errors (nothing changed): HOST_MEMORY, without a message. */
hd_status hdi_blocks_pledge_run(hdi_blocks *b, const hdi_run *run, hdi_points *inherited, hdi_block **pledge);

/* Ends a pledge whose gaps all got memory: its first `bytes` become a live block, and the rest
 * becomes a free block. `to`: the end of the pledged window. Cannot fail. */
void hdi_blocks_finish(hdi_blocks *b, hdi_block *pledge, size_t to, size_t bytes);

/* Gives a pledge back: its free blocks get their former sets. Its gaps become free below the offset
 * `filled_to`, and stay gaps from there on. `to`: the end of the pledged window. Cannot fail. */
void hdi_blocks_settle(hdi_blocks *b, hdi_block *pledge, size_t to, size_t filled_to);

/* The answer of a callback to a free block without unfinished uses: leave the block, pledge a part
 * of it, or end the search. For TAKE, the callback narrowed [*from, *to) to this part. */
typedef enum hdi_choice { HDI_CHOICE_SKIP, HDI_CHOICE_TAKE, HDI_CHOICE_STOP } hdi_choice;
typedef hdi_choice (*hdi_choose)(void *context, size_t *from, size_t *to);

/* Offers each free block of at least `bytes` without unfinished uses to `choose`, and pledges the
 * part that `choose` takes. `highest_first`: the blocks at high offsets come first, else the small
 * ones. Each pledge is put in front of *list. Errors: HOST_MEMORY, without a message. The list
 * keeps the pledges made so far. */
hd_status hdi_blocks_pledge_finished(hdi_blocks *b, size_t bytes, bool highest_first, hdi_choose choose, void *context,
                                     hdi_block **list);

/* Gets the range of a pledge in the list of hdi_blocks_pledge_finished. Returns the next pledge. */
hdi_block *hdi_blocks_pledged(const hdi_block *pledge, size_t *from, size_t *to);

/* Gives the first pledge of a list back. Its part below the offset `gone_to` becomes a gap, and the
 * rest becomes free. Returns the next pledge. Cannot fail. */
hdi_block *hdi_blocks_vacate(hdi_blocks *b, hdi_block *pledge, size_t gone_to);

/* ---- figures --------------------------------------------------------------------------------- */

/* Figures that are always current, in granules. */
typedef struct hdi_blocks_sums {
    size_t end; /* granules of the range so far */
    size_t live, retired, gap, pledged;
    size_t waiting; /* in free blocks with a point that the last check found unfinished */
} hdi_blocks_sums;

/* The allocator's own figures. The pointer is valid as long as the allocator. */
const hdi_blocks_sums *hdi_blocks_get_sums(const hdi_blocks *b);

static inline size_t hdi_blocks_live_bytes(const hdi_blocks_sums *s)
{
    return s->live * HDI_BLOCKS_GRANULE;
}

/* Free bytes without an unfinished use, as far as checks found uses finished. */
static inline size_t hdi_blocks_ready_bytes(const hdi_blocks_sums *s)
{
    return (s->end - s->live - s->retired - s->gap - s->pledged - s->waiting) * HDI_BLOCKS_GRANULE;
}

/* The number of free blocks that reach exactly from one wall to the next. */
size_t hdi_blocks_whole(const hdi_blocks *b);

/* Joins all blocks between two neighbouring walls if all of them are free, even if different lanes
 * still use them. */
void hdi_blocks_join_whole(hdi_blocks *b);

/* Drops the finished points of all sets, and joins the free blocks that these points kept apart. */
void hdi_blocks_prune(hdi_blocks *b);

/* Fills in the figures. The time grows with the number of blocks in the largest size class, which
 * is searched for the largest free block. */
void hdi_blocks_get_info(const hdi_blocks *b, hdi_blocks_info *out);

/* Calls `visit` for every block by rising offset. It stops and returns false when `visit` returns
 * false. */
bool hdi_blocks_each(const hdi_blocks *b, bool (*visit)(void *context, size_t from, size_t to, hdi_block_kind kind),
                     void *context);

/* The bytes of free blocks with an unfinished point for which `of` returns true. `of` may be called
 * for several points of one block. The time grows with the number of blocks. */
typedef bool (*hdi_of_point)(void *context, hdi_point point);
size_t hdi_blocks_waiting_of(const hdi_blocks *b, hdi_of_point of, void *context);

/* Verifies every structure. False: `why` gets the first finding. The time grows with the number of
 * blocks. */
bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes);

#endif
