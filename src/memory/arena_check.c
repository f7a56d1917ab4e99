/* arena_check.c - whether the arena is as it should be: for tests and debug builds.
 *
 * Threads, locks: see arena.h.
 * Always: nothing is changed here.
 */
#include "memory/arena_internal.h"

#include <stdio.h>

/* A walk over an allocator: where it has gaps and spans, and where it should. */
typedef struct audit {
    const hdi_arena *arena;
    size_t n_spans;
    char *why;
    size_t why_bytes;
} audit;

/* What is mapped has no gap in `large`, and every span is one live block there. */
static bool audit_large(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    audit *a = context;
    const hdi_arena *arena = a->arena;
    for (size_t g = from / arena->granule; g * arena->granule < to; g++) {
        bool mapped = arena->mappings.of[g].first != 0;
        bool span = arena->is_span[g] != 0;
        bool is_block = kind == HDI_BLOCK_LIVE && from == g * arena->granule && to == from + arena->granule;
        if (mapped == (kind == HDI_BLOCK_GAP) || kind == HDI_BLOCK_CLAIMED || (span && !is_block)) {
            snprintf(a->why, a->why_bytes, "granule %zu: mapped %d, span %d, in a block of kind %d from %zu to %zu", g,
                     mapped, span, (int)kind, from, to);
            return false;
        }
        a->n_spans += span;
    }
    return true;
}

/* `small` has gaps exactly where there are no spans. */
static bool audit_small(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    audit *a = context;
    for (size_t g = from / a->arena->granule; g * a->arena->granule < to; g++) {
        if ((a->arena->is_span[g] != 0) == (kind == HDI_BLOCK_GAP)) {
            snprintf(a->why, a->why_bytes, "granule %zu: small blocks of kind %d", g, (int)kind);
            return false;
        }
    }
    return true;
}

static bool check_empty(const hdi_arena *arena, char *why, size_t why_bytes)
{
    bool good = arena->base == 0 && arena->small == NULL && arena->mappings.mapped == 0 && arena->n_spans == 0;
    if (!good) {
        snprintf(why, why_bytes, "an arena without a range: base %llu, mapped %zu", (unsigned long long)arena->base,
                 arena->mappings.mapped);
    }
    return good;
}

/* Both locks are held. */
static bool check_all(hdi_arena *arena, char *why, size_t why_bytes)
{
    if (!hdi_mappings_check(&arena->mappings, why, why_bytes)) {
        return false;
    }
    if (arena->large == NULL) {
        return check_empty(arena, why, why_bytes);
    }
    audit a = {.arena = arena, .why = why, .why_bytes = why_bytes};
    if (!hdi_blocks_check(arena->large, why, why_bytes) || !hdi_blocks_check(arena->small, why, why_bytes) ||
        !hdi_blocks_each(arena->large, audit_large, &a) || !hdi_blocks_each(arena->small, audit_small, &a)) {
        return false;
    }
    size_t taken = hdi_arena_taken(arena), mapped = arena->mappings.mapped;
    if (a.n_spans != arena->n_spans || mapped > arena->limit || taken > mapped || taken > arena->taken_peak ||
        arena->mappings.base != arena->base) {
        snprintf(why, why_bytes, "spans %zu of %zu, mapped %zu of %zu, taken %zu of %zu", a.n_spans, arena->n_spans,
                 mapped, arena->limit, taken, arena->taken_peak);
        return false;
    }
    return true;
}

bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes)
{
    hdi_mutex_lock(&arena->growing);
    hdi_lock_take(&arena->blocks_lock);
    bool good = check_all(arena, why, why_bytes);
    hdi_lock_release(&arena->blocks_lock);
    hdi_mutex_unlock(&arena->growing);
    return good;
}
