/* copy_pool.h - a few threads that share the work of copying between the program's memory and
 * pinned memory.
 *
 * The first large transfers start the threads, called workers. Each worker stays near a memory node
 * that is near some device. With placement inline or copy_threads=0 there are no workers. Transfers
 * that run at the same time get about the same number of workers each. If possible, these workers
 * are near the transfer's device. Idle workers sleep.
 *
 * Threads: any. Several threads may share transfers at the same time.
 * Locks: the pool's mutex, never held while work runs.
 * Blocking: a call waits until the last worker leaves the transfer.
 * Always: no worker touches a transfer after hdi_copy_pool_share or hdi_copy_pool_run returns.
 * Without workers the calling thread copies everything.
 */
#ifndef HDI_TRANSFER_COPY_POOL_H
#define HDI_TRANSFER_COPY_POOL_H

#include "engine/runtime.h"

#define HDI_COPY_POOL_MOST 64 /* the most that the option copy_threads allows */
/* Unless the option copy_threads sets the number, one transfer gets at most this many workers. The
 * pool has at most this many for each node. More workers do not copy faster, since the memory's
 * bandwidth is the limit. */
#define HDI_COPY_POOL_USUAL 11

/* No transfer may be running when `release` is called. Errors: HOST_MEMORY. */
extern const hdi_lifetime hdi_copy_pool_lifetime;

/* The most workers that a transfer can get. */
size_t hdi_copy_pool_count(hd_runtime *rt);

/* Returns the index of the group for the next worker. This is `wanted` if that group has less than
 * its share of `limit` workers. Otherwise it is the group with the fewest workers. If `wanted` is
 * not below `groups`, no group is preferred. The function is pure. */
size_t hdi_copy_pool_next_group(const size_t *workers, size_t groups, size_t wanted, size_t limit);

/* The result of one turn at a shared transfer. */
typedef enum hdi_turn {
    HDI_TURN_DID, /* the turn did some work, and more work may follow */
    /* No work can be done now: the workers leave the transfer until the calling thread wants them
     * again. */
    HDI_TURN_WAITS,
    HDI_TURN_OVER /* no work is left to begin */
} hdi_turn;

/* Calls turn(context, true) on the calling thread until `turn` returns OVER. Also calls
 * turn(context, false) on up to `most` workers near `device` (-1: anywhere). If a turn returns
 * WAITS, workers leave the transfer until a turn of the calling thread returns DID. A worker's turn
 * must not wait for long. */
void hdi_copy_pool_share(hd_runtime *rt, int device, size_t most, hdi_turn (*turn)(void *context, bool caller),
                         void *context);

/* Runs work(context, item) for every item in [0, n_items), on the calling thread and on workers
 * near `device`. Without workers the calling thread runs all items. Each item runs exactly once, in
 * any order. All items are complete when the call returns. */
void hdi_copy_pool_run(hd_runtime *rt, int device, size_t n_items, void (*work)(void *context, size_t item),
                       void *context);

/* A memcpy for large blocks that this processor will not use again soon. A thread that sees a
 * release store made after the call also sees the bytes. */
void hdi_copy_through(void *dst, const void *src, size_t bytes);

#endif
