/* share.h - device memory in several worker processes: which worker has whose memory mapped, and until when.
 *
 * Memory travels as a descriptor from its owner's worker to a peer's, which maps it at the owner's address. When the owner is
 * lost, the peers keep the old mapping until their own work that may use it is finished: unmapping it earlier would fault a
 * device that has nothing to do with the loss.
 *
 * Threads: any. Locks: the table's mutex, never held across a request.
 * Always: a peer's range is reserved before anything is mapped in it, and given back only when nothing uses it.
 */
#ifndef HDI_MEMORY_SHARE_H
#define HDI_MEMORY_SHARE_H

#include "engine/runtime.h"

hd_status hdi_shares_create(hd_runtime *rt);
void hdi_shares_release(hd_runtime *rt);

/* For hdi_arena_config: `context` is the owner's hdi_device. */
hdi_answer hdi_share(void *context, int peer, uint64_t at, uint64_t bytes);
void hdi_unshare(void *context, int peer, uint64_t at, uint64_t bytes);

/* A device was lost, and its worker is gone: what it had mapped is forgotten, and what others have of it goes once their work of
 * now is finished. */
void hdi_shares_retire(hd_runtime *rt, int device);

/* Unmaps what was retired and is not used any more. True: something was. */
bool hdi_shares_reap(hd_runtime *rt);

#endif
