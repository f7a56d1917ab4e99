/* arena_internal.h - declarations shared by the files behind arena.h.
 *
 * - arena.c: the address range, its mappings, peers, figures and verification.
 * - arena_alloc.c: memory for owners. This file decides which memory to map and unmap.
 *
 * A mapping consists of whole granules, and the driver knows it by one handle. The arena moves a
 * mapping, or gives it back, as a whole. One request can make, move or end several neighbouring
 * mappings. Every granted peer gets access to a new mapping, and loses this access before the arena
 * unmaps the mapping.
 *
 * Two allocators manage the same range. In `large`, mapped memory consists of free and live blocks,
 * and the rest of the range consists of gaps. In `small`, some granules consist of blocks up to
 * HDI_SMALL_BYTES, and the rest of the range consists of gaps. `small` gets its memory from `large`
 * in spans: a span is one granule, and a live block of `large`.
 *
 * Threads, locks, blocking: see arena.h.
 * Always:
 * - While no thread holds `growing`, the mapped granules are exactly the granules outside gaps of
 *   `large`.
 * - While no thread holds `growing`, is_span is set exactly for the granules outside gaps of
 *   `small`.
 * - Mappings do not overlap.
 * - A mapping of several granules is made for one block.
 * - `mapped` counts a mapping from a moment before its map request to a moment after its unmap
 *   request. So `mapped` is at least the memory that the device gave.
 * - A mapping that the port could not unmap counts as gone. The port records this mapping, and
 *   unmaps it before it maps anything else.
 * - After a failed restart, `large` and `small` are NULL, and nothing is mapped.
 */
#ifndef HDI_MEMORY_ARENA_INTERNAL_H
#define HDI_MEMORY_ARENA_INTERNAL_H

#include <stdatomic.h>
#include "base/lock.h"
#include "engine/port.h"
#include "memory/arena.h"
#include "memory/blocks.h"

#define HDI_SPARE_SPANS 2 /* free spans that stay with `small` */
#define HDI_MAPPING_MOST ((size_t)64 << 20)

typedef struct hdi_mappings_config {
    hdi_port *port;
    int index;    /* the device's number in the runtime */
    size_t limit; /* the most bytes that may be mapped */
    /* As in hdi_arena_config. */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;
} hdi_mappings_config;

/* A granule. */
typedef struct hdi_mapping {
    uint32_t first;  /* 1 + the first granule of its mapping; 0: not mapped */
    uint32_t count;  /* first granule only: the number of granules in the mapping */
    uint64_t shared; /* first granule only: one bit for each device that got the mapping */
} hdi_mapping;

typedef struct hdi_mappings {
    hdi_mappings_config config;
    uint64_t base;         /* of the range */
    bool given_back;       /* the driver has all memory again (hdi_arena_give_back) */
    size_t granule, count; /* bytes, and granules in the range */
    hdi_mapping *of;       /* by granule */
    size_t end;            /* no granule from here on is mapped */
    _Atomic size_t mapped; /* bytes; any thread may read this and mapped_total */
    /* bytes of pieces outside of the range, which count against the limit; changes under both
     * locks */
    size_t pieces;
    size_t peak;      /* of mapped and pieces together */
    uint64_t granted; /* one bit for each device */
    _Atomic uint64_t mapped_total;
    uint64_t calls, unmapped_total;
} hdi_mappings;

/* A request that failed. */
typedef struct hdi_trouble {
    hdi_answer answer;
    int peer; /* the peer that a share request was for; -1: another request failed */
} hdi_trouble;

static inline bool hdi_is_trouble(hdi_trouble t)
{
    return !hdi_answered(t.answer);
}

struct hdi_arena {
    hdi_arena_config config; /* constant, like the next line */
    size_t granule, reserved, limit;

    hdi_mutex growing;
    hdi_mappings mappings; /* under `growing`, as are all members up to moved_since */
    uint64_t pieces_total; /* bytes of all pieces ever made */
    /* `moved_bytes`: bytes that left their place for a new block; mappings.unmapped_total also
     * contains bytes of mappings that were divided */
    uint64_t moved_bytes, returned_bytes, ahead_bytes;
    /* bytes moved, halved at intervals (arena_slack_bytes in arena_alloc.c) */
    uint64_t moved_lately;
    int64_t moved_since; /* clock time of the last halving */

    hdi_lock blocks_lock;
    /* Under blocks_lock, as are all members up to n_from. Both allocators, their sums and `base`
     * change only while both locks are held. */
    hdi_blocks *large, *small;
    const hdi_blocks_sums *large_sums, *small_sums;
    uint64_t base;
    bool given_back;  /* the driver has all memory again (hdi_arena_give_back) */
    uint8_t *is_span; /* by granule */
    size_t n_spans;
    size_t taken_peak, held_peak;           /* held: taken bytes and pieces */
    uint64_t n_from[HDI_ORIGIN_WAITED + 1]; /* blocks handed out, by origin */

    _Atomic uint64_t freed;
    _Atomic size_t ready; /* returned by hdi_arena_free_bytes */
    _Atomic size_t taken; /* returned by hdi_arena_taken_bytes */
};

/* ---- arena.c ---- */

static inline size_t hdi_arena_round_down(size_t bytes, size_t unit)
{
    return bytes - bytes % unit;
}

/* Rounds up, at most to the largest multiple that a size_t can hold. No range is that large, so the
 * arena then refuses the request as too large. Without this bound, the size would wrap around to a
 * small one. */
static inline size_t hdi_arena_round_up(size_t bytes, size_t unit)
{
    size_t over = bytes % unit;
    if (over == 0) {
        return bytes;
    }
    return bytes > SIZE_MAX - (unit - over) ? hdi_arena_round_down(SIZE_MAX, unit) : bytes + (unit - over);
}

hd_status hdi_arena_status_of(hdi_answer answer);
/* As hdi_fail_driver, for an answer of the port. If the answer's code does not come from the
 * driver, the message names this code. */
hd_status hdi_arena_fail_answer(const hdi_arena *arena, hd_status status, hdi_answer answer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
hd_status hdi_arena_fail_empty(const hdi_arena *arena);

/* Offsets are offsets in the range, in bytes. The caller holds `growing`. */

size_t hdi_mappings_missing(const hdi_mappings *p, size_t from, size_t to); /* bytes not mapped */

/* Maps the unmapped granules of an area, by rising address. The part of the area below `whole_to`
 * is for one block, so a mapping there may span several granules. From `whole_to` on, each granule
 * gets a mapping of its own. *mapped_to: the area below this offset is mapped. On failure the
 * failed mapping is undone, and the mappings before it stay. */
hdi_trouble hdi_mappings_map(hdi_mappings *p, size_t from, size_t to, size_t whole_to, size_t *mapped_to);

/* Maps an unmapped area as one mapping. */
hdi_trouble hdi_mappings_map_one(hdi_mappings *p, size_t from, size_t to);

/* Gets the bounds of the mapping that contains the mapped byte at `offset`. False: the mapping is
 * one granule. */
bool hdi_mappings_at(const hdi_mappings *p, size_t offset, size_t *from, size_t *to);

/* Narrows an area to the whole mappings that it contains. False if it contains none. */
bool hdi_mappings_within(const hdi_mappings *p, size_t *from, size_t *to);

/* The start of the mapping that contains the byte in front of `to`. */
size_t hdi_mappings_last(const hdi_mappings *p, size_t to);

/* Unmaps an area that consists of whole mappings. Even after a failure, all these mappings count as
 * gone, so *gone_to becomes `to`. */
hdi_answer hdi_mappings_unmap(hdi_mappings *p, size_t from, size_t to, size_t *gone_to);

/* The place to which mappings move. Its part below `whole_to` is for one block. */
typedef struct hdi_target {
    size_t to, whole_to;
} hdi_target;

/* Like hdi_mappings_unmap, but moves mappings to the unmapped parts of a place, from *mapped_to on.
 * Mappings of one granule move up to into->to, and large mappings move if they fit below
 * into->whole_to. *mapped_to: the place below this offset is mapped. On failure the mappings of the
 * failed request are gone, and the mappings from *gone_to on stay where they are. */
hdi_trouble hdi_mappings_move(hdi_mappings *p, size_t from, size_t to, size_t *gone_to, const hdi_target *into,
                              size_t *mapped_to);

/* ---- arena_alloc.c: the caller holds blocks_lock ---- */

/* Bytes now handed out. */
static inline size_t hdi_arena_taken(const hdi_arena *arena)
{
    return hdi_blocks_live_bytes(arena->large_sums) - arena->n_spans * arena->granule +
           hdi_blocks_live_bytes(arena->small_sums);
}

/* Updates the peak, and the figures that other threads read without a lock. Call it after every
 * change of taken or free bytes. */
void hdi_arena_note(hdi_arena *arena);
/* Bytes of mappings that could be unmapped now. The caller holds both locks. */
size_t hdi_arena_idle(hdi_arena *arena);

#endif
