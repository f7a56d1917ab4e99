/* arena_kept.c - finds the blocks of an arena that keep memory without using it.
 *
 * An arena moves and gives back only whole mappings. So a live block also keeps the free memory in
 * the mappings that it touches. A mapping is usually one granule.
 *
 * Threads: any. Locks: a walk over the blocks holds the arena's locks.
 * Blocking: a call waits while another thread maps or unmaps.
 */
#include <stdlib.h>
#include <string.h>
#include "memory/arena_internal.h"

typedef struct walk {
    const hdi_arena *arena;
    hdi_arena_kept *out;
    size_t *free;    /* by first granule of a mapping: bytes in it without a live block */
    uint32_t *lives; /* by first granule of a mapping: the number of live blocks that touch it */
} walk;

static void kept_count_block(const walk *w, size_t from, size_t to)
{
    const hdi_mappings *p = &w->arena->mappings;
    for (size_t at = from; at < to;) {
        size_t first, end;
        hdi_mappings_at(p, at, &first, &end);
        size_t in = (to < end ? to : end) - at;
        w->free[first / p->granule] -= in;
        w->lives[first / p->granule]++;
        at += in;
    }
}

static bool kept_count_large(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    const walk *w = context;
    if (kind == HDI_BLOCK_LIVE && !w->arena->is_span[from / w->arena->granule]) {
        kept_count_block(w, from, to);
    }
    return true;
}

static bool kept_count_small(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    if (kind == HDI_BLOCK_LIVE) {
        kept_count_block(context, from, to);
    }
    return true;
}

/* The caller holds `growing`. */
static bool kept_walk_blocks(hdi_arena *arena, walk *w)
{
    const hdi_mappings *p = &arena->mappings;
    hdi_arena_kept *out = w->out;
    for (size_t g = 0; g < out->count; g++) {
        out->first[g] = p->of[g].first;
        w->free[g] = p->of[g].first == g + 1 ? p->of[g].count * p->granule : 0;
    }
    hdi_lock_take(&arena->blocks_lock);
    if (arena->large != NULL) {
        hdi_blocks_each(arena->large, kept_count_large, w);
        hdi_blocks_each(arena->small, kept_count_small, w);
    }
    hdi_lock_release(&arena->blocks_lock);
    for (size_t g = 0; g < out->count; g++) {
        out->share[g] = w->lives[g] != 0 ? w->free[g] / w->lives[g] : 0;
        out->bytes += w->lives[g] != 0 ? w->free[g] : 0;
    }
    return true;
}

bool hdi_arena_kept_make(hdi_arena *arena, hdi_arena_kept *out)
{
    hdi_mutex_lock(&arena->growing);
    size_t count = arena->mappings.end;
    *out = (hdi_arena_kept){.base = arena->base, .granule = arena->granule, .count = count};
    walk w = {.arena = arena, .out = out};
    out->first = calloc(count + 1, sizeof *out->first);
    out->share = calloc(count + 1, sizeof *out->share);
    w.free = calloc(count + 1, sizeof *w.free);
    w.lives = calloc(count + 1, sizeof *w.lives);
    bool good =
        out->first != NULL && out->share != NULL && w.free != NULL && w.lives != NULL && kept_walk_blocks(arena, &w);
    hdi_mutex_unlock(&arena->growing);
    free(w.free);
    free(w.lives);
    if (!good) {
        hdi_arena_kept_free_report(out);
    }
    return good;
}

void hdi_arena_kept_free_report(hdi_arena_kept *kept)
{
    free(kept->first);
    free(kept->share);
    *kept = (hdi_arena_kept){.count = 0};
}

uint64_t hdi_arena_kept_by(const hdi_arena_kept *kept, uint64_t at, uint64_t bytes)
{
    uint64_t sum = 0;
    if (kept->count == 0 || bytes == 0 || at < kept->base) {
        return 0;
    }
    size_t from = (size_t)((at - kept->base) / kept->granule),
           to = (size_t)((at + bytes - 1 - kept->base) / kept->granule);
    for (size_t g = from; g <= to && g < kept->count; g++) {
        bool begins = g == from || kept->first[g] != kept->first[g - 1];
        sum += begins && kept->first[g] != 0 ? kept->share[kept->first[g] - 1] : 0;
    }
    return sum;
}
