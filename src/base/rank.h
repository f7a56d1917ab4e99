/* rank.h - the order of locks, one rank for each lock of the library. A debug build asserts it.
 *
 * A thread takes a lock only if the lock that it took last is of a lower rank, or of equal rank and
 * lower key. So no two threads wait for each other's lock. An attempt that does not wait (a try)
 * may break the order.
 *
 * Threads: any. Locks: none. Always: without HDI_DEBUG nothing is recorded, and the functions are
 * empty.
 */
#ifndef HDI_BASE_RANK_H
#define HDI_BASE_RANK_H

#include <stdint.h>

/* HDI_RANK_MAP(ENTRY): ENTRY(name), outermost first. */
/* Comments end within 100 columns. */
/* clang-format off */
#define HDI_RANK_MAP(ENTRY)                                                                        \
    ENTRY(MIRROR)            /* a unified buffer */                                                \
    ENTRY(RESTARTING)        /* one device at a time comes back */                                 \
    ENTRY(REFILLING)         /* refilling a new worker; modules come and go */                     \
    ENTRY(CHECKPOINT)        /* the saves of a buffer */                                           \
    ENTRY(MATMUL_LIBRARY)    /* opening libraries of matrix products */                            \
    ENTRY(STATS_PAGE)        /* collecting figures */                                              \
    ENTRY(TRACER)            /* a trace that begins or ends */                                     \
    ENTRY(WRITERS)           /* threads that write traces */                                       \
    ENTRY(COLD)              /* rare work: kernels, modules, staging */                            \
    ENTRY(LOADING)           /* code on its way to a device */                                     \
    ENTRY(MODULES)           /* the lists of modules and kernels */                                \
    ENTRY(PARAMS)            /* tables of kernels' parameters */                                   \
    ENTRY(GLOBALS)           /* the lists of modules' variables */                                 \
    ENTRY(LINKING)           /* peer access between devices */                                     \
    ENTRY(PEERS)             /* verdicts on pairs of devices */                                    \
    ENTRY(REGIONS)           /* memory outside of arenas and pools */                              \
    ENTRY(PINS)              /* pinned memory of the program */                                    \
    ENTRY(HOLDS)             /* holds */                                                           \
    ENTRY(HOLDERS)           /* the table of largest holders */                                    \
    ENTRY(CHECKER)           /* freed buffers with unchecked guards */                             \
    ENTRY(COPY_LANES)        /* lanes for copies */                                                \
    ENTRY(LANES)             /* making lanes, giving them out */                                   \
    ENTRY(MEMORY_LINE)       /* allocations that wait at a limit */                                \
    ENTRY(HOST_POOL_GROWING) /* more pinned memory */                                              \
    ENTRY(PINNED_CHUNKS)     /* mappings of pinned memory */                                       \
    ENTRY(HOST_POOL)         /* blocks of pinned memory */                                         \
    ENTRY(ARENA_GROWING)     /* more memory of a device */                                         \
    ENTRY(SHARES)            /* workers that map others' memory */                                 \
    ENTRY(WORKERS)           /* worker processes */                                                \
    ENTRY(REMOTE)            /* requests to a worker */                                            \
    ENTRY(PORT)              /* requests to a device */                                            \
    ENTRY(ENGINE)            /* placement inline: running an engine; only tried */                 \
    ENTRY(CHAINS)            /* executables of launches */                                         \
    ENTRY(STREAM_POOL)       /* streams made ahead */                                              \
    ENTRY(CACHES)            /* the list of thread caches */                                       \
    ENTRY(THREAD_CACHE)      /* a thread cache; several under CACHES */                            \
    ENTRY(BUFFERS)           /* the list of buffers */                                             \
    ENTRY(ARCHIVES)          /* failures on their way out of the log */                            \
    ENTRY(ORDER)             /* use records, lanes; key: device, then pinned memory */             \
    ENTRY(LOSSES)            /* lost devices */                                                    \
    ENTRY(FAILURES)          /* failures that left the log */                                      \
    ENTRY(OUTCOMES)          /* ends of claims */                                                  \
    ENTRY(CLAIMS)            /* unused claims */                                                   \
    ENTRY(CALLERS)           /* claims that a callback waits for */                                \
    ENTRY(NVTX)              /* traces that record ranges of NVTX */                               \
    ENTRY(RECORD)            /* a thread's first record of a trace */                              \
    ENTRY(STABLE)            /* structures that are never freed */                                 \
    ENTRY(BLOCKS)            /* blocks of an arena */                                              \
    ENTRY(FINDINGS)          /* findings of memory_debug */                                        \
    ENTRY(PAGEABLE)          /* a transfer in parts */                                             \
    ENTRY(STAGING)           /* a pool of staging buffers */                                       \
    ENTRY(PARKED)            /* roots of a lane; one at a time */                                  \
    ENTRY(COPY_POOL)         /* threads that copy */                                               \
    ENTRY(HOOK)              /* the program's callbacks */                                         \
    ENTRY(PEER_TESTER)       /* requests to test pairs */                                          \
    ENTRY(SERVICE)           /* a background thread */                                             \
    ENTRY(LINGERING)         /* test programs that still run */                                    \
    ENTRY(PINNINGS)          /* a worker: pinned mappings */                                       \
    ENTRY(RECLAIM)           /* figures of reclaiming */                                           \
    ENTRY(PRESENCE)          /* threads inside calls */                                            \
    ENTRY(REGISTRY)          /* open runtimes */                                                   \
    ENTRY(CUPTI)             /* a session of CUPTI that begins or ends */                          \
    ENTRY(FAULTS)            /* injected faults of driver calls */                                 \
    ENTRY(NVIDIA)            /* loading the driver */                                              \
    ENTRY(HOST_BLAS)         /* host devices: opening a BLAS */                                    \
    ENTRY(HOST_PRODUCT)      /* ... its product */                                                 \
    ENTRY(HOST_STATE)        /* ... all objects of the driver */                                   \
    ENTRY(HOST_THREADS)      /* ... threads that run kernels */                                    \
    ENTRY(HOST_FIBERS)       /* ... stacks of blocks */                                            \
    ENTRY(HOST_FAULTS)       /* ... signal handlers */                                             \
    ENTRY(ACTIVITIES)        /* reports of CUPTI: also inside driver calls */                      \
    ENTRY(DESCRIPTORS)       /* occupied numbers of descriptors */

/* clang-format on */

typedef enum hdi_rank {
    HDI_RANK_NONE,
#define HDI_RANK_ENTRY(name) HDI_RANK_##name,
    HDI_RANK_MAP(HDI_RANK_ENTRY)
#undef HDI_RANK_ENTRY
} hdi_rank;

/* A rank and, among locks of one rank, a key from 0 to 255: locks of one rank are taken by rising
 * key. */
#define HDI_RANKED(rank, key) ((uint32_t)(rank) << 16 | (uint32_t)(key))

#ifdef HDI_DEBUG
/* Aborts with a message if this thread would break the order by taking the lock now. */
void hdi_rank_check(const void *lock, uint32_t rank);
void hdi_rank_taken(const void *lock, uint32_t rank);
void hdi_rank_released(const void *lock);
#else
static inline void hdi_rank_check(const void *lock, uint32_t rank)
{
    (void)lock;
    (void)rank;
}
static inline void hdi_rank_taken(const void *lock, uint32_t rank)
{
    (void)lock;
    (void)rank;
}
static inline void hdi_rank_released(const void *lock)
{
    (void)lock;
}
#endif

#endif
