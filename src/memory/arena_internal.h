/* arena_internal.h - what the files behind arena.h share.
 *
 * arena.c: making and unmaking, allocation from what is mapped, free, peers, figures. arena_grow.c: everything that
 * maps and unmaps. mappings.c knows what is mapped, blocks.c what is free.
 *
 * There are two allocators over the same range. `large` has all of it: free blocks and live blocks where memory is
 * mapped, gaps where it is not. `small` has gaps where the blocks up to HDI_SMALL_BYTES do not live; it gets memory
 * from `large` in spans of one granule, which are live blocks there.
 *
 * Threads, locks: see arena.h.
 * Always: while `growing` is free, a granule is mapped exactly where `large` has no gap, and is_span says exactly
 * where `small` has none. Without `large`, after a restart that failed, there is nothing at all.
 */
#ifndef HDI_MEMORY_ARENA_INTERNAL_H
#define HDI_MEMORY_ARENA_INTERNAL_H

#include <stdatomic.h>
#include "base/lock.h"
#include "base/mutex.h"
#include "memory/arena.h"
#include "memory/blocks.h"
#include "memory/mappings.h"

#define HDI_SPARE_SPANS 2 /* free spans that `small` keeps */

struct hdi_arena {
    hdi_arena_config config; /* constant, like the next line */
    size_t granule, reserved, limit;

    hdi_mutex growing;
    hdi_mappings mappings; /* under growing, like the next line */
    uint64_t moved_bytes, returned_bytes, ahead_bytes;
    uint64_t moved_lately; /* halved every so often, the last time at */
    int64_t moved_since;   /* (clock) */

    hdi_lock blocks_lock;
    hdi_blocks *large,
        *small; /* under blocks_lock, like all up to `freed`; these two and base change under both locks */
    const hdi_blocks_sums *large_sums, *small_sums;
    uint64_t base;
    uint8_t *is_span; /* by granule */
    size_t n_spans;
    size_t taken_peak;
    uint64_t n_from[HDI_ORIGIN_WAITED + 1]; /* blocks handed out, by origin */

    _Atomic uint64_t freed;
    _Atomic size_t ready; /* what hdi_arena_free_bytes says */
    _Atomic size_t taken; /* what hdi_arena_taken_bytes says */
};

/* ---- arena.c ---- */

static inline size_t hdi_arena_round_down(size_t bytes, size_t unit)
{
    return bytes - bytes % unit;
}

/* Rounds up, but stops at the largest multiple that a size_t can hold: no range is that large, so the request fails
 * as too large instead of wrapping around. */
static inline size_t hdi_arena_round_up(size_t bytes, size_t unit)
{
    size_t over = bytes % unit;
    if (over == 0) {
        return bytes;
    }
    return bytes > SIZE_MAX - (unit - over) ? hdi_arena_round_down(SIZE_MAX, unit) : bytes + (unit - over);
}

hd_status hdi_arena_status_of(hdi_answer answer);
/* hdi_fail_driver for an answer; says in words what is not a driver's code. */
hd_status hdi_arena_fail_answer(const hdi_arena *arena, hd_status status, hdi_answer answer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
hd_status hdi_arena_fail_empty(const hdi_arena *arena, const char *who);
hd_status hdi_arena_fail_host_memory(const hdi_arena *arena, size_t bytes);

/* blocks_lock is held for all of these. */

/* What is handed out now. */
size_t hdi_arena_taken(const hdi_arena *arena);
/* From what is mapped. NOT_FOUND and HOST_MEMORY record no message. */
hd_status hdi_arena_take(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out);
/* Hands a live block of `large` to `small`. On failure (HOST_MEMORY, no message) it is free again. */
hd_status hdi_arena_make_span(hdi_arena *arena, size_t offset, bool fresh, hdi_points *inherited);
/* Gives free spans back to `large` until so many are left. */
void hdi_arena_return_spans(hdi_arena *arena, size_t keep);
/* Keeps peaks and what others may read without a lock. Behind everything that changes them. */
void hdi_arena_note(hdi_arena *arena);

/* ---- arena_grow.c ---- */

/* An allocation that nothing mapped has room for; `growing` is held. */
hd_status hdi_arena_grow(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited);
/* Bytes of mappings that could be unmapped now. Both locks are held. */
size_t hdi_arena_idle(hdi_arena *arena);

#endif
