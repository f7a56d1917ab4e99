/* arena_internal.h - what the files behind arena.h share.
 *
 * - arena.c: creating, restarting and destroying, allocation from what is mapped, free, peers, figures.
 * - arena_grow.c: everything that maps and unmaps.
 * - mappings.c records what is mapped, blocks.c what is free.
 *
 * Two allocators manage the same range. `large` has all of it: free and live blocks where memory is mapped, gaps where
 * it is not. `small` has the blocks up to HDI_SMALL_BYTES and gaps everywhere else. It gets memory from `large` in
 * spans of one granule, which are live blocks in `large`.
 *
 * Threads, locks, blocking: see arena.h.
 * Always:
 * - While `growing` is free, a granule is mapped exactly where `large` has no gap.
 * - While `growing` is free, is_span is set exactly for the granules where `small` has no gap.
 * - After a restart that failed there is no `large`, no `small` and nothing mapped.
 */
#ifndef HDI_MEMORY_ARENA_INTERNAL_H
#define HDI_MEMORY_ARENA_INTERNAL_H

#include <stdatomic.h>
#include "base/lock.h"
#include "memory/arena.h"
#include "memory/blocks.h"
#include "memory/mappings.h"

#define HDI_SPARE_SPANS 2 /* free spans that stay with `small` */

struct hdi_arena {
    hdi_arena_config config; /* constant, as the next line is */
    size_t granule, reserved, limit;

    hdi_mutex growing;
    hdi_mappings mappings; /* under `growing`, as all up to moved_since is */
    uint64_t moved_bytes, returned_bytes, ahead_bytes;
    uint64_t moved_lately; /* halved at intervals, see slack() in arena_grow.c */
    int64_t moved_since;   /* clock time of the last halving */

    hdi_lock blocks_lock;
    /* Under blocks_lock, as all up to n_from is. Both allocators, their sums and `base` change under both locks. */
    hdi_blocks *large, *small;
    const hdi_blocks_sums *large_sums, *small_sums;
    uint64_t base;
    uint8_t *is_span; /* by granule */
    size_t n_spans;
    size_t taken_peak;
    uint64_t n_from[HDI_ORIGIN_WAITED + 1]; /* blocks handed out, by origin */

    _Atomic uint64_t freed;
    _Atomic size_t ready; /* what hdi_arena_free_bytes returns */
    _Atomic size_t taken; /* what hdi_arena_taken_bytes returns */
};

/* ---- arena.c ---- */

static inline size_t hdi_arena_round_down(size_t bytes, size_t unit)
{
    return bytes - bytes % unit;
}

/* Rounds up, at most to the largest multiple that a size_t can hold. No range is that large, so such a request fails as
 * too large and does not wrap around. */
static inline size_t hdi_arena_round_up(size_t bytes, size_t unit)
{
    size_t over = bytes % unit;
    if (over == 0) {
        return bytes;
    }
    return bytes > SIZE_MAX - (unit - over) ? hdi_arena_round_down(SIZE_MAX, unit) : bytes + (unit - over);
}

hd_status hdi_arena_status_of(hdi_answer answer);
/* hdi_fail_driver for an answer. The message has the name of a code that is not the driver's. */
hd_status hdi_arena_fail_answer(const hdi_arena *arena, hd_status status, hdi_answer answer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
hd_status hdi_arena_fail_empty(const hdi_arena *arena);
hd_status hdi_arena_fail_host_memory(const hdi_arena *arena, size_t bytes);

/* For all of these the caller holds blocks_lock. */

/* Bytes that are handed out now. */
size_t hdi_arena_taken(const hdi_arena *arena);
/* Takes a block from what is mapped. NOT_FOUND and HOST_MEMORY record no message. */
hd_status hdi_arena_take(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out);
/* Turns a live block of `large` into a span of `small`, and releases `inherited`. On failure (HOST_MEMORY, no message)
 * the block is free again. */
hd_status hdi_arena_make_span(hdi_arena *arena, size_t offset, bool fresh, hdi_points *inherited);
/* Gives free spans back to `large`, until `keep` are left. */
void hdi_arena_return_spans(hdi_arena *arena, size_t keep);
/* Updates the peak and the figures that other threads read without a lock. Called after every change of them. */
void hdi_arena_note(hdi_arena *arena);

/* ---- arena_grow.c ---- */

/* Serves an allocation that no free mapped memory fits. The caller holds `growing`. */
hd_status hdi_arena_grow(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited);
/* Bytes of mappings that could be unmapped now. The caller holds both locks. */
size_t hdi_arena_idle(hdi_arena *arena);

#endif
