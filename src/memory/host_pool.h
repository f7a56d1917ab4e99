/* host_pool.h - blocks of pinned host memory.
 *
 * Pinning takes some 0.3 ms per MiB, and launches wait during this time. So the pool pins memory in
 * superblocks of 2 MiB or more, and keeps free superblocks pinned. A larger pool uses larger
 * superblocks. A block above 16 MiB gets a superblock of about the block's own size. Each block
 * lies in one superblock, since a copy must not cross from one registration with the driver into
 * another.
 *
 * The owner may free a block while work still uses it. The next owner gets the points of that work
 * and waits for them. An allocation prefers blocks without unfinished uses. While the pool is
 * small, it pins more memory before it takes a block that it must wait for.
 *
 * If a device's engine runs in this process, the device may still write after its loss, although
 * its work counts as finished. So memory that was in use at the loss stays pinned until the pool
 * ends, and gets no new owner. See hdi_host_pool_config.lost.
 *
 * Threads: any, except for create and destroy.
 * Locks: a thread takes `growing` first, then `lock`, or the lock of the pool in pinned.h.
 * - A thread holds `growing` while it pins or unpins memory.
 * - A thread holds `lock` briefly. hdi_host_pool_give takes only this lock. The same is true of
 *   hdi_host_pool_take if it finds a free block.
 * Blocking: a thread that takes `growing` waits while memory is pinned or unpinned. All other calls
 * wait only for `lock`.
 * Always: pinned memory never exceeds the limit.
 */
#ifndef HDI_MEMORY_HOST_POOL_H
#define HDI_MEMORY_HOST_POOL_H

#include "memory/blocks.h"
#include "memory/pinned.h"

typedef struct hdi_host_pool hdi_host_pool;

typedef struct hdi_host_pool_config {
    hdi_pinned_pool *pinned; /* must outlive the pool */
    uint64_t limit_bytes;    /* limit of pinned memory, rounded down to pages */
    /* The pool calls the next two functions under `lock`. `finished` works as in hdi_blocks_config.
     * It stays false for the points of a lost device that may still write. */
    bool (*finished)(void *context, hdi_point point);
    /* One bit for each lost device that may still write. The bit is set before the loss finishes
     * any point. NULL: no device can be in this state. */
    uint64_t (*lost)(void *context);
    /* True if unpinning memory now holds up no work. One thread at a time calls this. */
    bool (*may_unpin)(void *context);
    void *context;
} hdi_host_pool_config;

typedef struct hdi_host_block {
    unsigned char *host;
    uint64_t device;              /* the address of this memory on devices */
    struct hdi_host_space *space; /* NULL: no block */
    size_t offset, bytes;
    bool own;
} hdi_host_block;

typedef struct hdi_host_pool_info {
    uint64_t limit_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* pinned */
    /* The program's live blocks: the requested bytes, and the number of blocks. */
    uint64_t live_bytes, live_count;
    uint64_t own_bytes, own_count; /* in blocks of the library */
    /* of hdi_host_pool_count_pinned: the bytes now, and all bytes ever counted */
    uint64_t outside_bytes, outside_total;
    uint64_t taken_bytes, taken_peak_bytes; /* bytes in all blocks with owners, rounded up */
    uint64_t waiting_bytes;                 /* bytes that are free, but that work still uses */
    uint64_t idle_bytes;                    /* in superblocks that could be unpinned now */
    /* Counters. */
    uint64_t allocations, frees, failures; /* of the program */
    uint64_t from_finished, from_waited, from_fresh;
    uint64_t driver_calls; /* how many superblocks were pinned and unpinned */
    uint64_t pinned_bytes, returned_bytes;
} hdi_host_pool_info;

/* Makes a pool and pins nothing.
 * Errors: HOST_MEMORY. */
hd_status hdi_host_pool_create(const hdi_host_pool_config *config, hdi_host_pool **out);

/* Gives everything back, including blocks that still have owners. No submitted work may use these
 * blocks. `abandoned`: as for hdi_pinned_release. Ignores NULL. */
void hdi_host_pool_destroy(hdi_host_pool *pool, bool abandoned);

/* Takes a block of whole pages. `own`: for the library itself. `inherited`: the points to wait for
 * before the first use; the caller releases them. If no block is free, blocks while memory is
 * pinned.
 * Errors (outputs untouched): ARGUMENT (0 bytes), HOST_MEMORY (also: the limit is reached), and the
 * errors of hdi_pinned_alloc. */
hd_status hdi_host_pool_take(hdi_host_pool *pool, size_t bytes, bool own, hdi_host_block *out, hdi_points *inherited);

/* True if the limit allows a block or an import of `bytes`, when nothing else is pinned. */
bool hdi_host_pool_allows(const hdi_host_pool *pool, uint64_t bytes);

/* Counts pinned memory outside of the pool; `bytes` is the size of its whole pages.
 * hdi_host_pool_count_unpinned stops counting these bytes.
 * Errors: HOST_MEMORY (the limit does not allow it). */
hd_status hdi_host_pool_count_pinned(hdi_host_pool *pool, uint64_t bytes);
void hdi_host_pool_count_unpinned(hdi_host_pool *pool, uint64_t bytes);

/* Counts an allocation of the program that failed. The caller counts an allocation of several
 * attempts once. */
void hdi_host_pool_count_failure(hdi_host_pool *pool);

/* Gives a block back at once; `points`: as for hdi_blocks_free. Cannot fail. Ignores an empty
 * block, and a block that was given back before. */
void hdi_host_pool_give(hdi_host_pool *pool, hdi_host_block *block, const hdi_point *points, size_t n_points);

/* Unpins idle superblocks until at most `keep_bytes` are idle. *freed (may be NULL): the bytes
 * unpinned. Blocks while memory is unpinned.
 * Errors: DRIVER (unpinning failed; the other superblocks are unpinned nevertheless, and the failed
 * ones count as pinned). */
hd_status hdi_host_pool_trim(hdi_host_pool *pool, uint64_t keep_bytes, uint64_t *freed);

void hdi_host_pool_get_info(hdi_host_pool *pool, hdi_host_pool_info *out);

/* As hdi_blocks_waiting_of, under `lock`: `of` must not call the pool. */
uint64_t hdi_host_pool_waiting_of(hdi_host_pool *pool, hdi_of_point of, void *context);

/* Verifies every structure, for tests and debug builds. False: `why` gets the first finding. */
bool hdi_host_pool_check(hdi_host_pool *pool, char *why, size_t why_bytes);

#endif
