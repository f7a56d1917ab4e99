/* copy_pool.h - a few threads that share the work of copying between the program's memory and
 * pinned memory.
 *
 * The first large transfers start the workers, each near a memory node that is near some device.
 * With placement inline or copy_threads=0 there are no workers. Transfers that run at the same time
 * get about equally many workers, near the transfers' devices if possible. Idle workers sleep.
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
/* The most workers for one transfer, and near one node, unless the option sets another number. More
 * workers do not copy faster, since memory is the limit. */
#define HDI_COPY_POOL_USUAL 11

/* No transfer may be running when `release` is called. Errors: HOST_MEMORY. */
extern const hdi_lifetime hdi_copy_pool_lifetime;

/* The most workers that a transfer can get. */
size_t hdi_copy_pool_count(const hd_runtime *rt);

/* The number of the group for the next worker. It is `wanted` if that group has less than its share
 * of `limit`. Otherwise it is the group with the fewest workers. If `wanted` is at least `groups`,
 * no group is wanted. The function is pure. */
size_t hdi_copy_pool_next_group(const size_t *workers, size_t groups, size_t wanted, size_t limit);

/* The result of one turn at a shared transfer. */
typedef enum hdi_turn {
    HDI_TURN_DID, /* the turn did some work, and more work may follow */
    /* No work can be done now: workers leave until they are called again. */
    HDI_TURN_WAITS,
    HDI_TURN_OVER /* no work is left to begin */
} hdi_turn;

/* Calls turn(context, true) on the calling thread until it returns OVER. Calls turn(context, false)
 * on up to `most` workers near `device` (-1: anywhere). After WAITS the workers stay away until the
 * calling thread's next DID. A worker's turn must not wait for long. */
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
