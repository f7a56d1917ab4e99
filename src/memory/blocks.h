/* blocks.h - an allocator over a range of offsets [0, limit), whose free blocks remember who may still be using them.
 *
 * It hands out numbers and never touches the memory behind them. A block may be freed while work of its owner is
 * still running: it then carries the marks of that work, and the next owner is given those that are not finished,
 * to wait for before its own first use. Sizes and offsets are multiples of HDI_BLOCKS_GRANULE.
 *
 * Threads: none of its own and no locks; the owner serialises all calls (the arena does, with its short lock).
 * Always: the blocks, free and live, cover the range without gaps or overlaps; no two free blocks are neighbours; a
 * free block's set has at most one mark per lane, and every byte's unfinished former uses are covered by the set of
 * its block.
 */
#ifndef HDI_MEMORY_BLOCKS_H
#define HDI_MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "engine/mark.h"

#define HDI_BLOCKS_GRANULE ((size_t)256)

/* A set of marks, at most one per lane, by rising lane. Zero-initialised is empty. A few have room in the struct
 * itself, so that the usual block, used in a lane or two, needs no host allocation. Read it with hdi_marks_data. */
#define HDI_MARKS_FEW 2
typedef struct hdi_marks {
    size_t count;
    size_t room; /* of `many`; 0: the marks are in `few` */
    union {
        hdi_mark few[HDI_MARKS_FEW];
        hdi_mark *many;
    } at;
} hdi_marks;

static inline const hdi_mark *hdi_marks_data(const hdi_marks *marks)
{
    return marks->room != 0 ? marks->at.many : marks->at.few;
}

/* Gives the memory of a set back and leaves it empty. Empty sets and sets released before are fine. */
void hdi_marks_release(hdi_marks *marks);

typedef struct hdi_blocks hdi_blocks;

typedef struct hdi_blocks_config {
    size_t limit; /* the range never grows past this; rounded down to the granule */

    /* Whether the work of a mark is finished. Called from every function that touches sets: it must be cheap, must
     * not fail and must not call back into the allocator. Once true for a mark it stays true. */
    bool (*finished)(void *context, hdi_mark mark);
    void *finished_context;

    void *(*allocate)(size_t bytes); /* host memory, given back with free(); NULL: malloc. Tests make it fail */
} hdi_blocks_config;

typedef struct hdi_blocks_info {
    size_t managed_bytes; /* the range covered so far */
    size_t live_bytes, free_bytes;
    size_t retired_bytes; /* lost to a lack of host memory, see hdi_blocks_free */
    size_t largest_free;
    size_t live_blocks, free_blocks, retired_blocks;
    size_t pending_marks; /* in all sets of free blocks */
} hdi_blocks_info;

/* An empty range; hdi_blocks_grow gives it bytes. Errors: ARGUMENT, HOST_MEMORY. */
hd_status hdi_blocks_create(const hdi_blocks_config *config, hdi_blocks **out);
void hdi_blocks_destroy(hdi_blocks *b); /* NULL is ignored; live blocks are forgotten */

/* Adds `bytes` (a multiple of the granule, not 0) at the end of the range; merges with a free last block.
 * Nothing is changed on failure. Errors: ARGUMENT (not a multiple, or past the limit), HOST_MEMORY. */
hd_status hdi_blocks_grow(hdi_blocks *b, size_t bytes);

/* Takes a block of at least `bytes` for an owner who will use it first in `lane`. Looks at a bounded number of
 * blocks that fit: the smallest of those that nobody uses any more or only `lane` does; if all looked at are still
 * in use by other lanes, the smallest. `inherited` is overwritten with what the owner must wait for before its
 * first use, marks of `lane` itself included (the owner may end up using the block in another lane first); the
 * owner gives it back with hdi_marks_release.
 *
 * HD_ERROR_NOT_FOUND when no free block is large enough: an answer and not a failure, so no message is recorded.
 * Errors, with the blocks as they were and outputs untouched: ARGUMENT (0 bytes), HOST_MEMORY. */
hd_status hdi_blocks_alloc(hdi_blocks *b, size_t bytes, uint32_t lane, size_t *offset, hdi_marks *inherited);

/* Gives back the block at `offset`. `marks`: everything that must be finished before another owner may use the bytes,
 * which is the owner's own uses, and those inherited marks that none of its uses has waited for. In any order, also
 * several of a lane. An offset that is not that of a live block is ignored.
 *
 * Cannot fail. Room for one mark per live block and some hundreds more is kept ready by hdi_blocks_alloc (which
 * fails instead when it cannot be had), so marks can be kept even where host memory has run out. Should a free
 * still find no room for its marks, after finished marks have been dropped everywhere, the block is retired: it is
 * never handed out again, since nobody could say when that would be safe, and is counted in `retired_bytes`. */
void hdi_blocks_free(hdi_blocks *b, size_t offset, const hdi_mark *marks, size_t n_marks);

/* Size of the live block at `offset` (as handed out, so rounded up); 0 if there is none. */
size_t hdi_blocks_size(const hdi_blocks *b, size_t offset);

/* Bytes of the free block at the end of the range, which growth would extend; 0 if the last block is not free. */
size_t hdi_blocks_tail(const hdi_blocks *b);

/* Counts. The largest free block is searched for in one size class, everything else is kept. */
void hdi_blocks_get_info(const hdi_blocks *b, hdi_blocks_info *out);

/* Walks and verifies every structure: time grows with the number of blocks. False with the first finding in `why`. */
bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes);

#endif
