/* share.h - device memory in several worker processes: which worker has which device's memory mapped, and until when.
 *
 * A mapping goes as a descriptor from its owner's worker to a peer's worker, which maps it at the owner's address. When
 * the owner is lost, peers keep the old mapping until their own work that may use it is finished. Unmapping it earlier
 * would fault a device that the loss does not concern.
 *
 * Threads: any. Locks: the table's mutex, never held across a request.
 * Blocking: hdi_share, hdi_unshare and hdi_shares_reap block for requests to ports.
 * Always: a peer's range is reserved before anything is mapped in it, and given back only when no work uses it.
 */
#ifndef HDI_MEMORY_SHARE_H
#define HDI_MEMORY_SHARE_H

#include "engine/runtime.h"

hd_status hdi_shares_create(hd_runtime *rt);
void hdi_shares_release(hd_runtime *rt);

/* Callbacks for hdi_arena_config. `context` is the owner's hdi_device. */
hdi_answer hdi_share(void *context, int peer, uint64_t at, uint64_t bytes);
void hdi_unshare(void *context, int peer, uint64_t at, uint64_t bytes);

/* Called after a device was lost and its worker ended. Drops what that worker had mapped. The other workers' mappings
 * of its memory go when their work submitted so far is finished. */
void hdi_shares_retire(hd_runtime *rt, int device);

/* Unmaps what was retired and has no unfinished use. True: there was something. */
bool hdi_shares_reap(hd_runtime *rt);

#endif
