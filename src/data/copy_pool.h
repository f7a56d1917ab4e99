/* copy_pool.h - a few threads that share the work of copying between the program's memory and pinned memory.
 *
 * Threads: a transfer is shared by any thread, several at once; the workers are started by the first large ones (none with placement
 * inline or copy_threads=0), each near a memory node that devices are near, and sleep when there is nothing to do. Several transfers
 * at once get about as many workers each, near their device as far as possible. Locks: the pool's mutex, never held while work runs.
 * Always: a worker has let go of a transfer when hdi_copy_pool_share or hdi_copy_pool_run returns; everything is done by the calling thread
 * alone where no worker can be had.
 */
#ifndef HDI_DATA_COPY_POOL_H
#define HDI_DATA_COPY_POOL_H

#include "engine/runtime.h"

#define HDI_COPY_POOL_MOST 64 /* of the option copy_threads */
/* For a transfer, and near a node, at most where the option leaves it to us: more only get in each other's way at the memory. */
#define HDI_COPY_POOL_USUAL 11

/* hd_open and hd_close (no transfer is under way then). Errors: HOST_MEMORY. */
hd_status hdi_copy_pool_create(hd_runtime *rt);
void hdi_copy_pool_release(hd_runtime *rt);

/* How many workers a transfer can have at most. */
size_t hdi_copy_pool_count(const hd_runtime *rt);

/* Which of the places that workers stay at the next one is started for: the wanted one (none: any number that is not one) as long as that has not
 * its share of `limit`, else that with the fewest. Pure. */
size_t hdi_copy_pool_next_group(const size_t *workers, size_t groups, size_t wanted, size_t limit);

/* What became of one turn at a shared transfer. */
typedef enum hdi_turn {
    HDI_TURN_DID, /* something; there may be more */
    HDI_TURN_WAITS, /* nothing can be done before something else happens: workers go elsewhere until they are called again */
    HDI_TURN_OVER /* nobody needs to begin anything any more */
} hdi_turn;

/* Calls turn(context, true) on the calling thread until it says OVER, and turn(context, false) on up to `most` workers near `device` (-1:
 * anywhere). After WAITS the workers stay away until the calling thread's next DID. A worker's turn does not wait for long. */
void hdi_copy_pool_share(hd_runtime *rt, int device, size_t most, hdi_turn (*turn)(void *context, bool caller),
                         void *context);

/* Runs work(context, item) for every item in [0, items), on the calling thread and on workers near `device`; the calling thread's part is
 * done even where no worker can be had. Items run exactly once, in no order, and the last one has run when this returns. */
void hdi_copy_pool_run(hd_runtime *rt, int device, size_t items, void (*work)(void *context, size_t item),
                       void *context);

/* copy_through.c: memcpy for large blocks that this processor will not look at again soon. */
void hdi_copy_through(void *dst, const void *src, size_t bytes);

#endif
