/* host_pool.c - blocks of pinned host memory.
 *
 * A superblock is memory that is pinned at once. A space is a range of offsets for superblocks, in
 * the order in which they were pinned. A gap of one page precedes each superblock, so that blocks
 * of different superblocks never join. One allocator manages all offsets of a space. In a space, no
 * two superblocks ever get the same offset.
 *
 * A lost device may still write into pinned memory. So after such a loss a new space begins, and
 * the older spaces only take blocks back.
 *
 * Threads, locks, blocking: see host_pool.h.
 * Always: the superblocks of a space lie in its allocator in the order of the space's list. A gap
 * precedes each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/number.h"
#include "base/text.h"
#include "memory/host_pool.h"

#define SUPERBLOCK_LEAST ((size_t)2 << 20)
#define SUPERBLOCK_MOST ((size_t)32 << 20)
#define OWN_SUPERBLOCK_ABOVE ((size_t)16 << 20)
#define OWN_SUPERBLOCK_UNIT ((size_t)64 << 10)
/* Before an allocation waits, the pool pins up to 5/4 of the most bytes ever taken, plus this
 * much. */
#define SPARE ((uint64_t)64 << 20)
#define OFFSETS ((size_t)1 << 62)

typedef struct superblock {
    hdi_pinned pinned;
    size_t at;    /* the superblock's offset in its hdi_host_space */
    bool tainted; /* a device was lost while the superblock was in use, and may still write there */
} superblock;

typedef struct hdi_host_space {
    struct hdi_host_space *older;
    hdi_blocks *blocks;
    superblock *superblocks; /* by rising offset */
    size_t count, room;
} hdi_host_space;

struct hdi_host_pool {
    hdi_host_pool_config config; /* constant, like the next line */
    size_t page;
    hdi_mutex growing;
    hdi_mutex lock; /* protects all that follows, and the contents of the spaces */
    hdi_host_space *newest;
    hdi_host_space *open; /* the newest space; NULL: the next allocation makes a new space */
    uint64_t lost;        /* the latest result of config.lost */
    /* The figures kept current; `reserved_bytes` changes under both locks. */
    hdi_host_pool_info info;
};

static hd_status host_pool_fail_bookkeeping(void)
{
    return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: no host memory to note what is taken");
}

/* ---- spaces: the caller holds lock ----------------------------------------------------------- */

/* The superblock that contains the offset. */
static superblock *host_pool_superblock_of(const hdi_host_space *s, size_t offset)
{
    size_t first = 0, end = s->count;
    while (end - first > 1) {
        size_t middle = first + (end - first) / 2;
        if (s->superblocks[middle].at <= offset) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return &s->superblocks[first];
}

static bool host_pool_taint_if_live(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    (void)to;
    if (kind == HDI_BLOCK_LIVE) {
        host_pool_superblock_of(context, from)->tainted = true;
    }
    return true;
}

/* If a device was lost since the last call, closes the current space and returns true. From then on
 * the lost device may write live memory at any time. Free memory with unfinished points keeps those
 * points. */
static bool host_pool_notice_losses(hdi_host_pool *pool)
{
    uint64_t lost = pool->config.lost != NULL ? pool->config.lost(pool->config.context) : 0;
    if (lost == pool->lost) {
        return false;
    }
    for (hdi_host_space *s = pool->newest; s != NULL; s = s->older) {
        hdi_blocks_each(s->blocks, host_pool_taint_if_live, s);
    }
    pool->lost = lost;
    pool->open = NULL;
    return true;
}

/* The space to allocate from, made if none exists. NULL: no host memory. */
static hdi_host_space *host_pool_open_space(hdi_host_pool *pool)
{
    host_pool_notice_losses(pool);
    if (pool->open != NULL) {
        return pool->open;
    }
    hdi_blocks_config config = {
        .limit = OFFSETS, .finished = pool->config.finished, .finished_context = pool->config.context};
    hdi_host_space *s = calloc(1, sizeof *s);
    if (s == NULL || hdi_blocks_create(&config, &s->blocks) != HD_OK) {
        free(s);
        return NULL;
    }
    s->older = pool->newest;
    pool->newest = s;
    pool->open = s;
    return s;
}

/* Adds a superblock's memory to a space. False: no host memory. */
static bool host_pool_add_superblock(hdi_host_pool *pool, hdi_host_space *s, const hdi_pinned *pinned)
{
    if (s->count == s->room) {
        size_t room = s->room != 0 ? 2 * s->room : 16;
        superblock *more = realloc(s->superblocks, room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        s->superblocks = more;
        s->room = room;
    }
    if (hdi_blocks_grow_gap(s->blocks, pool->page) != HD_OK) {
        return false;
    }
    hdi_blocks_info info;
    hdi_blocks_get_info(s->blocks, &info);
    size_t at = info.managed_bytes;
    if (hdi_blocks_grow(s->blocks, pinned->shm.bytes) != HD_OK) {
        return false;
    }
    s->superblocks[s->count++] = (superblock){.pinned = *pinned, .at = at};
    return true;
}

/* ---- taking blocks: the caller holds lock ---------------------------------------------------- */

static void host_pool_count_taken(hdi_host_pool *pool, const hdi_host_block *block, hdi_origin origin)
{
    hdi_host_pool_info *info = &pool->info;
    info->taken_bytes += hdi_round_up(block->bytes, pool->page);
    info->taken_peak_bytes = hdi_larger(info->taken_peak_bytes, info->taken_bytes);
    if (block->own) {
        info->own_bytes += block->bytes;
        info->own_count++;
        return;
    }
    info->live_bytes += block->bytes;
    info->live_count++;
    info->allocations++;
    info->from_fresh += origin == HDI_ORIGIN_FRESH;
    info->from_waited += origin == HDI_ORIGIN_WAITED;
    info->from_finished += origin != HDI_ORIGIN_FRESH && origin != HDI_ORIGIN_WAITED;
}

/* Takes a block of memory that is already pinned. `wait`: work may still use the block. NOT_FOUND
 * and HOST_MEMORY record no message. *origin is WAITED if work still uses a block that fits. */
static hd_status host_pool_take_pinned(hdi_host_pool *pool, bool wait, hdi_host_block *out, hdi_points *inherited,
                                       hdi_origin *origin)
{
    for (;;) {
        hdi_host_space *s = host_pool_open_space(pool);
        if (s == NULL) {
            return HD_ERROR_HOST_MEMORY;
        }
        const hdi_blocks_request request = {
            .bytes = hdi_round_up(out->bytes, pool->page), .lane = HDI_NO_LANE, .no_wait = !wait};
        hdi_blocks_taken taken = {.origin = HDI_ORIGIN_NONE};
        hd_status status = hdi_blocks_take(s->blocks, &request, &taken);
        *origin = taken.origin;
        if (status != HD_OK) {
            return status;
        }
        if (host_pool_notice_losses(pool)) { /* the loss may have finished a point */
            hdi_blocks_free(s->blocks, taken.offset, hdi_points_data(&taken.inherited), taken.inherited.count);
            hdi_points_release(&taken.inherited);
            continue;
        }
        const superblock *in = host_pool_superblock_of(s, taken.offset);
        size_t offset = taken.offset - in->at;
        out->host = (unsigned char *)in->pinned.shm.base + offset;
        out->device = in->pinned.device + offset;
        out->space = s;
        out->offset = taken.offset;
        *inherited = taken.inherited;
        host_pool_count_taken(pool, out, taken.origin);
        return HD_OK;
    }
}

/* True if pinning `bytes` more is better than waiting for work. */
static bool host_pool_may_pin(const hdi_host_pool *pool, size_t bytes)
{
    const hdi_host_pool_info *info = &pool->info;
    uint64_t after = info->reserved_bytes + bytes;
    return after <= info->limit_bytes && after <= info->taken_peak_bytes / 4 * 5 + SPARE;
}

/* Takes a block for `out`, in which the size and `own` are set. NOT_FOUND: memory must be pinned
 * for the block. */
static hd_status host_pool_find(hdi_host_pool *pool, hdi_host_block *out, hdi_points *inherited)
{
    hdi_origin origin;
    hd_status status = host_pool_take_pinned(pool, false, out, inherited, &origin);
    if (status == HD_ERROR_NOT_FOUND && origin == HDI_ORIGIN_WAITED &&
        !host_pool_may_pin(pool, hdi_round_up(out->bytes, pool->page))) {
        status = host_pool_take_pinned(pool, true, out, inherited, &origin);
    }
    return status;
}

/* ---- pinning and unpinning: the caller holds growing ----------------------------------------- */

/* A search for idle superblocks of a space: the bytes to find, and the bytes found. */
typedef struct search {
    hdi_host_space *in;
    uint64_t most, found; /* bytes */
} search;

static hdi_choice host_pool_choose_idle(void *context, size_t *from, size_t *to)
{
    search *look = context;
    const superblock *k = host_pool_superblock_of(look->in, *from);
    if (k->tainted || k->at != *from || k->pinned.shm.bytes != *to - *from) {
        return HDI_CHOICE_SKIP;
    }
    if (look->found >= look->most) {
        return HDI_CHOICE_STOP;
    }
    look->found += k->pinned.shm.bytes;
    return HDI_CHOICE_TAKE;
}

static hdi_choice host_pool_count_idle(void *context, size_t *from, size_t *to)
{
    search *look = context;
    look->found +=
        host_pool_choose_idle(&(search){.in = look->in, .most = 1}, from, to) == HDI_CHOICE_TAKE ? *to - *from : 0;
    return HDI_CHOICE_SKIP;
}

/* The caller holds lock. */
static uint64_t host_pool_idle_bytes(const hdi_host_pool *pool)
{
    search look = {.found = 0};
    for (hdi_host_space *s = pool->newest; s != NULL; s = s->older) {
        hdi_block *none = NULL;
        look.in = s;
        hdi_blocks_prune(s->blocks); /* finished blocks join their neighbours */
        hdi_blocks_pledge_finished(s->blocks, pool->page, false, host_pool_count_idle, &look, &none);
    }
    return look.found;
}

/* Unpins the superblock of a pledge and gives the pledge back. Returns the next pledge. */
static hdi_block *host_pool_unpin_pledge(hdi_host_pool *pool, hdi_host_space *s, hdi_block *pledge, uint64_t *freed,
                                         hd_status *status)
{
    size_t from, to;
    hdi_blocks_pledged(pledge, &from, &to);
    hdi_mutex_lock(&pool->lock);
    hdi_pinned pinned = host_pool_superblock_of(s, from)->pinned;
    hdi_mutex_unlock(&pool->lock);
    hd_status released = hdi_pinned_release(&pinned, false);
    hdi_mutex_lock(&pool->lock);
    superblock *k = host_pool_superblock_of(s, from);
    size_t behind = (size_t)(s->superblocks + s->count - (k + 1));
    memmove(k, k + 1, behind * sizeof *k);
    s->count--;
    pool->info.driver_calls++;
    if (released == HD_OK) {
        pool->info.reserved_bytes -= to - from;
        pool->info.returned_bytes += to - from;
        *freed += to - from;
    } else {
        *status = released;
    }
    hdi_block *next = hdi_blocks_vacate(s->blocks, pledge, to);
    hdi_mutex_unlock(&pool->lock);
    return next;
}

/* Unpins idle superblocks of at least `bytes` in all, or all of them. Unpins none while this would
 * hold up work. `growing` is held. */
static hd_status host_pool_unpin_idle(hdi_host_pool *pool, uint64_t bytes, uint64_t *freed)
{
    hd_status status = HD_OK;
    uint64_t found = 0;
    if (pool->config.may_unpin != NULL && !pool->config.may_unpin(pool->config.context)) {
        return HD_OK;
    }
    hdi_mutex_lock(&pool->lock);
    host_pool_notice_losses(pool);
    hdi_host_space *s = pool->newest;
    hdi_mutex_unlock(&pool->lock);
    for (; s != NULL && found < bytes; s = s->older) {
        search look = {.in = s, .most = bytes - found};
        hdi_block *pledges = NULL;
        hdi_mutex_lock(&pool->lock);
        hdi_blocks_prune(s->blocks);
        hdi_blocks_pledge_finished(s->blocks, pool->page, false, host_pool_choose_idle, &look, &pledges);
        hdi_mutex_unlock(&pool->lock);
        found += look.found;
        while (pledges != NULL) {
            pledges = host_pool_unpin_pledge(pool, s, pledges, freed, &status);
        }
    }
    return status;
}

/* The number of bytes to pin for a block. */
static size_t host_pool_superblock_bytes(const hdi_host_pool *pool, size_t bytes)
{
    if (bytes > OWN_SUPERBLOCK_ABOVE) {
        return hdi_round_up(bytes, OWN_SUPERBLOCK_UNIT);
    }
    size_t size = SUPERBLOCK_LEAST;
    while (size < SUPERBLOCK_MOST && size <= pool->info.reserved_bytes / 8) {
        size *= 2;
    }
    return size < bytes ? hdi_round_up(bytes, OWN_SUPERBLOCK_UNIT) : size;
}

/* Fails; the caller adds a remedy to the message. */
static hd_status host_pool_fail_limit(hdi_host_pool *pool, const hdi_host_block *block)
{
    hdi_host_pool_info i;
    hdi_host_pool_get_info(pool, &i);
    if (!hdi_host_pool_allows(pool, block->bytes)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: the size %s exceeds the limit", HDI_BYTES(block->bytes));
    }
    return hdi_fail(HD_ERROR_HOST_MEMORY,
                    "pinned memory: %s: %s of at most %s are held: live %s, pinned imports %s, for Heddle itself %s, "
                    "freed and still in use %s",
                    HDI_BYTES(block->bytes), HDI_BYTES(i.reserved_bytes), HDI_BYTES(i.limit_bytes),
                    HDI_BYTES(i.live_bytes), HDI_BYTES(i.outside_bytes), HDI_BYTES(i.own_bytes),
                    HDI_BYTES(i.waiting_bytes));
}

bool hdi_host_pool_allows(const hdi_host_pool *pool, uint64_t bytes)
{
    return bytes <= pool->info.limit_bytes && hdi_round_up(bytes, pool->page) <= pool->info.limit_bytes;
}

/* Counts `bytes` as pinned. False: the limit does not allow that. */
static bool host_pool_reserve(hdi_host_pool *pool, size_t bytes)
{
    hdi_host_pool_info *info = &pool->info;
    hdi_mutex_lock(&pool->lock);
    bool fits = bytes <= info->limit_bytes && info->reserved_bytes <= info->limit_bytes - bytes;
    if (fits) {
        info->reserved_bytes += bytes;
        info->reserved_peak_bytes = hdi_larger(info->reserved_peak_bytes, info->reserved_bytes);
    }
    hdi_mutex_unlock(&pool->lock);
    return fits;
}

static void host_pool_unreserve(hdi_host_pool *pool, size_t bytes)
{
    hdi_mutex_lock(&pool->lock);
    pool->info.reserved_bytes -= bytes;
    hdi_mutex_unlock(&pool->lock);
}

hd_status hdi_host_pool_count_pinned(hdi_host_pool *pool, uint64_t bytes)
{
    if (host_pool_reserve(pool, bytes)) {
        hdi_mutex_lock(&pool->lock);
        pool->info.outside_bytes += bytes;
        pool->info.outside_total += bytes;
        hdi_mutex_unlock(&pool->lock);
        return HD_OK;
    }
    const hdi_host_block block = {.bytes = bytes};
    return host_pool_fail_limit(pool, &block);
}

void hdi_host_pool_count_unpinned(hdi_host_pool *pool, uint64_t bytes)
{
    hdi_mutex_lock(&pool->lock);
    pool->info.outside_bytes -= bytes;
    pool->info.reserved_bytes -= bytes;
    hdi_mutex_unlock(&pool->lock);
}

static void host_pool_count_returned(hdi_host_pool *pool, size_t bytes)
{
    hdi_mutex_lock(&pool->lock);
    pool->info.returned_bytes += bytes;
    hdi_mutex_unlock(&pool->lock);
}

/* Pins a superblock, whose bytes host_pool_reserve counted. Then takes the block from it, or
 * from memory freed meanwhile. */
static hd_status host_pool_pin(hdi_host_pool *pool, size_t bytes, hdi_host_block *out, hdi_points *inherited)
{
    hdi_pinned pinned;
    hd_status status = hdi_pinned_alloc(pool->config.pinned, bytes, &pinned);
    if (status != HD_OK) {
        host_pool_unreserve(pool, bytes);
        return status;
    }
    hdi_mutex_lock(&pool->lock);
    pool->info.driver_calls++;
    pool->info.pinned_bytes += bytes;
    hdi_origin origin;
    hdi_host_space *s = host_pool_open_space(pool);
    bool added = s != NULL && host_pool_add_superblock(pool, s, &pinned);
    status = added ? host_pool_take_pinned(pool, false, out, inherited, &origin) : HD_ERROR_HOST_MEMORY;
    hdi_mutex_unlock(&pool->lock);
    if (!added && hdi_pinned_release(&pinned, false) == HD_OK) {
        host_pool_unreserve(pool, bytes);
        host_pool_count_returned(pool, bytes);
    }
    return status == HD_ERROR_HOST_MEMORY ? host_pool_fail_bookkeeping() : status;
}

/* Pins memory for a block and takes it. NOT_FOUND: a device was lost between pinning and taking;
 * the caller tries again. */
static hd_status host_pool_grow(hdi_host_pool *pool, hdi_host_block *out, hdi_points *inherited)
{
    size_t need = hdi_round_up(out->bytes, pool->page);
    hdi_mutex_lock(&pool->lock);
    uint64_t room = pool->info.limit_bytes - pool->info.reserved_bytes;
    size_t size = host_pool_superblock_bytes(pool, need);
    hdi_mutex_unlock(&pool->lock);
    if (size > room) {
        size = need < room ? (size_t)room : need;
    }
    uint64_t freed = 0;
    if (need > room) {
        host_pool_unpin_idle(pool, need - room, &freed);
    }
    if (!host_pool_reserve(pool, size)) {
        return host_pool_fail_limit(pool, out);
    }
    hd_status status = host_pool_pin(pool, size, out, inherited);
    /* The system's own limit is reached. So unpin idle superblocks, and pin only the bytes of this
     * block. */
    if (status == HD_ERROR_HOST_MEMORY) {
        host_pool_unpin_idle(pool, need, &freed);
        status = host_pool_reserve(pool, need) ? host_pool_pin(pool, need, out, inherited) : status;
    }
    return status;
}

/* ---- the pool -------------------------------------------------------------------------------- */

hd_status hdi_host_pool_create(const hdi_host_pool_config *config, hdi_host_pool **out)
{
    hdi_host_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: no host memory for the pool of blocks");
    }
    pool->config = *config;
    pool->page = (size_t)sysconf(_SC_PAGESIZE);
    pool->info.limit_bytes = config->limit_bytes / pool->page * pool->page;
    hdi_mutex_init(&pool->growing, HDI_RANK_HOST_POOL_GROWING);
    hdi_mutex_init(&pool->lock, HDI_RANK_HOST_POOL);
    *out = pool;
    return HD_OK;
}

void hdi_host_pool_destroy(hdi_host_pool *pool, bool abandoned)
{
    if (pool == NULL) {
        return;
    }
    for (hdi_host_space *s = pool->newest, *next; s != NULL; s = next) {
        next = s->older;
        for (size_t i = 0; i < s->count; i++) {
            hdi_pinned_release(&s->superblocks[i].pinned, abandoned);
        }
        hdi_blocks_destroy(s->blocks);
        free(s->superblocks);
        free(s);
    }
    hdi_mutex_destroy(&pool->lock);
    hdi_mutex_destroy(&pool->growing);
    free(pool);
}

/* Takes a block if host_pool_find() found none: pins memory, or as a last resort waits for work. */
static hd_status host_pool_find_or_grow(hdi_host_pool *pool, hdi_host_block *out, hdi_points *inherited)
{
    hd_status status;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&pool->growing);
    do {
        hdi_mutex_lock(&pool->lock);
        if (pool->open != NULL) {
            hdi_blocks_prune(pool->open->blocks); /* finished blocks join their neighbours */
        }
        /* Another thread may have pinned memory while this one waited. */
        status = host_pool_find(pool, out, inherited);
        hdi_mutex_unlock(&pool->lock);
        if (status == HD_ERROR_NOT_FOUND) {
            status = host_pool_grow(pool, out, inherited);
        }
    } while (status == HD_ERROR_NOT_FOUND);
    hdi_mutex_unlock(&pool->growing);
    if (status != HD_OK) { /* pinning failed: accept a block that work still uses */
        hdi_origin origin;
        hdi_mutex_lock(&pool->lock);
        hd_status waiting = host_pool_take_pinned(pool, true, out, inherited, &origin);
        hdi_mutex_unlock(&pool->lock);
        status = waiting == HD_OK ? waiting : status;
    }
    return hdi_attempt_result(&attempt, status);
}

hd_status hdi_host_pool_take(hdi_host_pool *pool, size_t bytes, bool own, hdi_host_block *out, hdi_points *inherited)
{
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "pinned memory: 0 bytes");
    }
    if (bytes > (size_t)PTRDIFF_MAX - OWN_SUPERBLOCK_UNIT) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: %s are more than a process can address",
                        HDI_BYTES(bytes));
    }
    hdi_host_block block = {.bytes = bytes, .own = own};
    if (!hdi_host_pool_allows(pool, bytes)) {
        return host_pool_fail_limit(pool, &block); /* idle memory stays pinned */
    }
    hdi_mutex_lock(&pool->lock);
    hd_status status = host_pool_find(pool, &block, inherited);
    hdi_mutex_unlock(&pool->lock);
    if (status == HD_ERROR_NOT_FOUND) {
        status = host_pool_find_or_grow(pool, &block, inherited);
    } else if (status != HD_OK) {
        status = host_pool_fail_bookkeeping();
    }
    if (status == HD_OK) {
        *out = block;
    }
    return status;
}

void hdi_host_pool_count_failure(hdi_host_pool *pool)
{
    hdi_mutex_lock(&pool->lock);
    pool->info.failures++;
    hdi_mutex_unlock(&pool->lock);
}

void hdi_host_pool_give(hdi_host_pool *pool, hdi_host_block *block, const hdi_point *points, size_t n_points)
{
    if (block->space == NULL) {
        return;
    }
    hdi_host_pool_info *info = &pool->info;
    hdi_mutex_lock(&pool->lock);
    /* this comes before the free, since only live memory gets tainted */
    host_pool_notice_losses(pool);
    hdi_blocks_free(block->space->blocks, block->offset, points, n_points);
    info->taken_bytes -= hdi_round_up(block->bytes, pool->page);
    if (block->own) {
        info->own_bytes -= block->bytes;
        info->own_count--;
    } else {
        info->live_bytes -= block->bytes;
        info->live_count--;
        info->frees++;
    }
    hdi_mutex_unlock(&pool->lock);
    *block = (hdi_host_block){0};
}

hd_status hdi_host_pool_trim(hdi_host_pool *pool, uint64_t keep_bytes, uint64_t *freed)
{
    uint64_t gone = 0;
    hd_status status = HD_OK;
    hdi_mutex_lock(&pool->growing);
    hdi_mutex_lock(&pool->lock);
    host_pool_notice_losses(pool);
    uint64_t idle = host_pool_idle_bytes(pool);
    hdi_mutex_unlock(&pool->lock);
    if (idle > keep_bytes) {
        status = host_pool_unpin_idle(pool, idle - keep_bytes, &gone);
    }
    hdi_mutex_unlock(&pool->growing);
    if (freed != NULL) {
        *freed = gone;
    }
    return status;
}

void hdi_host_pool_get_info(hdi_host_pool *pool, hdi_host_pool_info *out)
{
    hdi_mutex_lock(&pool->lock);
    *out = pool->info;
    for (hdi_host_space *s = pool->newest; s != NULL; s = s->older) {
        hdi_blocks_info info;
        hdi_blocks_prune(s->blocks);
        hdi_blocks_get_info(s->blocks, &info);
        out->waiting_bytes += info.waiting_bytes;
    }
    out->idle_bytes = host_pool_idle_bytes(pool);
    hdi_mutex_unlock(&pool->lock);
}

uint64_t hdi_host_pool_waiting_of(hdi_host_pool *pool, hdi_of_point of, void *context)
{
    uint64_t bytes = 0;
    hdi_mutex_lock(&pool->lock);
    for (const hdi_host_space *s = pool->newest; s != NULL; s = s->older) {
        bytes += hdi_blocks_waiting_of(s->blocks, of, context);
    }
    hdi_mutex_unlock(&pool->lock);
    return bytes;
}

/* ---- verification: changes nothing ----------------------------------------------------------- */

/* The expected place of a superblock in the allocator. */
typedef struct audit {
    const hdi_host_space *in;
    size_t next;    /* superblock */
    size_t covered; /* bytes of this superblock that the walk passed */
    bool good;
} audit;

static bool host_pool_audit_block(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    audit *w = context;
    const superblock *k = w->next < w->in->count ? &w->in->superblocks[w->next] : NULL;
    if (kind == HDI_BLOCK_GAP || kind == HDI_BLOCK_PLEDGED) {
        /* A pledge is a superblock that a thread is unpinning. */
        if (kind == HDI_BLOCK_PLEDGED && k != NULL && k->at == from && k->pinned.shm.bytes == to - from) {
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
        audit w = {.in = s, .good = true};
        hdi_blocks_info info;
        hdi_blocks_get_info(s->blocks, &info);
        taken += info.live_bytes;
        for (size_t i = 0; i < s->count; i++) {
            bytes += s->superblocks[i].pinned.shm.bytes;
        }
        good = hdi_blocks_check(s->blocks, why, why_bytes);
        if (good && (!hdi_blocks_each(s->blocks, host_pool_audit_block, &w) || w.covered != 0 || w.next != s->count)) {
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
