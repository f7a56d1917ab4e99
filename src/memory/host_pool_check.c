/* host_pool_check.c - whether a pool of pinned memory is as it should be: for tests and debug builds.
 *
 * Threads, locks: see host_pool.h.
 * Always: nothing is changed here.
 */
#include "memory/host_pool_internal.h"

#include <stdio.h>

/* What a superblock's place in the allocator must look like. */
typedef struct walk {
    const hdi_host_space *in;
    size_t next;    /* hdi_superblock */
    size_t covered; /* bytes of it */
    bool good;
} walk;

static bool check_block(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    walk *w = context;
    const hdi_superblock *k = w->next < w->in->count ? &w->in->superblocks[w->next] : NULL;
    if (kind == HDI_BLOCK_GAP || kind == HDI_BLOCK_CLAIMED) {
        /* a claim is a superblock that is being unpinned */
        if (kind == HDI_BLOCK_CLAIMED && k != NULL && k->at == from && k->pinned.shm.bytes == to - from) {
            w->next++;
        }
        w->good = w->covered == 0;
        return w->good;
    }
    w->good = k != NULL && from == k->at + w->covered && to <= k->at + k->pinned.shm.bytes;
    w->covered += to - from;
    if (w->good && w->covered == k->pinned.shm.bytes) {
        w->covered = 0;
        w->next++;
    }
    return w->good;
}

bool hdi_host_pool_check(hdi_host_pool *pool, char *why, size_t why_bytes)
{
    bool good = true;
    uint64_t bytes = 0, taken = 0;
    hdi_mutex_lock(&pool->lock);
    for (hdi_host_space *s = pool->newest; s != NULL && good; s = s->older) {
        walk w = {.in = s, .good = true};
        hdi_blocks_info info;
        hdi_blocks_get_info(s->blocks, &info);
        taken += info.live_bytes;
        for (size_t i = 0; i < s->count; i++) {
            bytes += s->superblocks[i].pinned.shm.bytes;
        }
        good = hdi_blocks_check(s->blocks, why, why_bytes);
        if (good && (!hdi_blocks_each(s->blocks, check_block, &w) || w.covered != 0 || w.next != s->count)) {
            snprintf(why, why_bytes, "blocks and superblocks do not fit together at superblock %zu", w.next);
            good = false;
        }
    }
    if (good && (bytes > pool->info.reserved_bytes || pool->info.reserved_peak_bytes > pool->info.limit_bytes ||
                 taken != pool->info.taken_bytes)) {
        snprintf(why, why_bytes, "pinned %llu of %llu counted, peak %llu; taken %llu, counted %llu",
                 (unsigned long long)bytes, (unsigned long long)pool->info.reserved_bytes,
                 (unsigned long long)pool->info.reserved_peak_bytes, (unsigned long long)taken,
                 (unsigned long long)pool->info.taken_bytes);
        good = false;
    }
    hdi_mutex_unlock(&pool->lock);
    return good;
}
