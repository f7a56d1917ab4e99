/* reclaim.h - the program's reclaim callback: when it runs early, and how it is called. See heddle/memory.h for the rule.
 *
 * Threads: any.
 * Locks: the hook's, and one per device for its figures. None is held during a call. A caller holds no lock of the library.
 * Blocking: for the callback.
 * Always: the callback does not run on a thread that is inside of it, or for which it is forbidden.
 */
#ifndef HDI_BUFFER_RECLAIM_H
#define HDI_BUFFER_RECLAIM_H

#include <heddle/memory.h>
#include "engine/runtime.h"

hd_status hdi_reclaim_create(hd_runtime *rt);
void hdi_reclaim_release(hd_runtime *rt);

/* Whether there is a callback that this thread may run now, which is so unless it is inside of one. One load where there is none. */
bool hdi_reclaim_possible(hd_runtime *rt);

/* Forbids the callback on this thread, or allows it again: the thread holds what the callback's own calls may wait for. */
void hdi_reclaim_forbid(bool forbid);

/* Runs the callback if memory of the device is getting scarce and the share of time allows it. No lock is held. */
void hdi_reclaim_early_now(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block);
static inline void hdi_reclaim_early(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block)
{
    /* Set while a callback is installed. Relaxed: the callback itself is read under the hook's lock. */
    if (__builtin_expect(atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL, 0)) {
        hdi_reclaim_early_now(rt, device, wanted, about_to_block);
    }
}

/* Runs the callback because an allocation fails otherwise. False: there is none, or it has freed nothing. */
bool hdi_reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt);

/* The most physical memory that a device's pool can hold now: its limit, or what it holds and what the driver has free. The figure is the
 * maintenance thread's last one; the driver is never asked here. */
uint64_t hdi_reclaim_budget(hd_runtime *rt, hdi_device *device);

/* For the maintenance thread: the driver has so much free on the device, beside what its pool holds. */
void hdi_reclaim_set_free(hd_runtime *rt, hdi_device *device, uint64_t bytes);

#endif
