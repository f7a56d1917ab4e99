/* host_pool_internal.h - what the files behind host_pool.h share: the pool, its spaces and their superblocks.
 *
 * host_pool.c: everything that a pool does. host_pool_check.c: verification.
 *
 * Threads, locks: see host_pool.h.
 * Always: a space's superblocks lie in its allocator as they are listed here, each behind a gap.
 */
#ifndef HDI_MEMORY_HOST_POOL_INTERNAL_H
#define HDI_MEMORY_HOST_POOL_INTERNAL_H

#include "base/lock.h"
#include "memory/host_pool.h"

typedef struct hdi_superblock {
    hdi_pinned pinned;
    size_t at;    /* in the offsets of its hdi_host_space */
    bool tainted; /* in use when a device was lost that may go on writing */
} hdi_superblock;

typedef struct hdi_host_space {
    struct hdi_host_space *older;
    hdi_blocks *blocks;
    hdi_superblock *superblocks; /* by rising offset */
    size_t count, room;
} hdi_host_space;

struct hdi_host_pool {
    hdi_host_pool_config config; /* constant, like the next line */
    size_t page;
    hdi_mutex growing;
    hdi_mutex lock; /* covers all that follows, what spaces have included */
    hdi_host_space *newest;
    hdi_host_space *open;    /* the newest one, or NULL: it is not allocated from */
    uint64_t lost;           /* devices, as last noticed */
    hdi_host_pool_info info; /* what is counted all the time; `reserved_bytes` changes under both locks */
};

#endif
