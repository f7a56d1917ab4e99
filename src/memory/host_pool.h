/* host_pool.h - blocks of pinned host memory.
 *
 * Pinning costs some 0.3 ms per MiB and holds up launches meanwhile, so memory is pinned in superblocks (2 MiB, more
 * where much is held; a block above 16 MiB gets one of its size), which are kept when they are free. A block lies in
 * one superblock: a copy must not cross from one registration into another.
 *
 * A block may be freed while work still uses it. Its next owner is given the points of that work to wait for; blocks
 * that nobody uses any more are preferred, and as long as little is held, so is pinning more.
 *
 * In this process a lost device may go on writing although its work counts as finished. What was in use then is neither
 * handed out again nor unpinned before the end: see hdi_host_pool_config.lost.
 *
 * Threads: any, except for create and destroy. Locks: `growing` is held while memory is pinned and unpinned, `lock` is
 * short and the only one that a free, or an allocation that finds room, takes. Order: growing, lock; below growing the
 * pinned pool's.
 * Always: what is pinned never exceeds the limit.
 */
#ifndef HDI_MEMORY_HOST_POOL_H
#define HDI_MEMORY_HOST_POOL_H

#include "memory/blocks.h"
#include "memory/pinned.h"

typedef struct hdi_host_pool hdi_host_pool;

typedef struct hdi_host_pool_config {
    hdi_pinned_pool *pinned; /* must outlive the pool */
    uint64_t limit_bytes;    /* of pinned memory, rounded down to pages */
    /* The next two are called under `lock`. As in hdi_blocks_config; false for good where a device was lost that may go
     * on. */
    bool (*finished)(void *context, hdi_point point);
    /* Bit per device that was lost and may go on writing. Set before any point is finished by that. NULL: there is none
     * ever. */
    uint64_t (*lost)(void *context);
    void *context;
} hdi_host_pool_config;

typedef struct hdi_host_block {
    unsigned char *host;
    uint64_t device;              /* the same memory as devices address it */
    struct hdi_host_space *space; /* NULL: there is no block */
    size_t offset, bytes;
    bool own;
} hdi_host_block;

typedef struct hdi_host_pool_info {
    uint64_t limit_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* pinned */
    uint64_t live_bytes, live_count;        /* in blocks that are not freed, as asked for; without the library's own */
    uint64_t own_bytes, own_count;          /* the library's own */
    uint64_t taken_bytes, taken_peak_bytes; /* all of these, rounded up */
    uint64_t waiting_bytes;                 /* free, but work still uses it */
    uint64_t idle_bytes;                    /* in superblocks that could be unpinned now */
    /* Counters. */
    uint64_t allocations, frees, failures; /* without the library's own */
    uint64_t from_finished, from_waited, from_fresh;
    uint64_t driver_calls; /* superblocks pinned and unpinned */
    uint64_t pinned_bytes, returned_bytes;
} hdi_host_pool_info;

/* Pins nothing yet. Errors: HOST_MEMORY. */
hd_status hdi_host_pool_create(const hdi_host_pool_config *config, hdi_host_pool **out);

/* Gives everything back, whoever still has blocks: no submitted work may use them any more. `abandoned` as for
 * hdi_pinned_release. NULL is ignored. */
void hdi_host_pool_destroy(hdi_host_pool *pool, bool abandoned);

/* Takes a block of whole pages. `own`: for the library itself. `inherited`: work to wait for before the first use; to
 * be released by the caller. Errors, with outputs untouched: ARGUMENT (0 bytes), HOST_MEMORY (the limit, too), and
 * those of hdi_pinned_alloc. */
hd_status hdi_host_pool_take(hdi_host_pool *pool, size_t bytes, bool own, hdi_host_block *out, hdi_points *inherited);

/* The program was refused memory; how often it was tried before is the caller's business. */
void hdi_host_pool_count_failure(hdi_host_pool *pool);

/* Gives a block back at once; `points` as for hdi_blocks_free. Cannot fail. No block, or one given back before:
 * ignored. */
void hdi_host_pool_give(hdi_host_pool *pool, hdi_host_block *block, const hdi_point *points, size_t n_points);

/* Unpins superblocks that nobody uses until no more than keep_bytes of them are left. *freed (may be NULL): how much
 * that was. Errors: DRIVER (the driver did not let go; the rest is unpinned all the same, and what it keeps counts as
 * pinned). */
hd_status hdi_host_pool_trim(hdi_host_pool *pool, uint64_t keep_bytes, uint64_t *freed);

void hdi_host_pool_get_info(hdi_host_pool *pool, hdi_host_pool_info *out);

/* Verifies every structure (for tests and debug builds); false with the first finding in `why`. */
bool hdi_host_pool_check(hdi_host_pool *pool, char *why, size_t why_bytes);

#endif
