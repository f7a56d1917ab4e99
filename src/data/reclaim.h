/* reclaim.h - the program's reclaim callback: when it runs early, and how it is called. See heddle/memory.h for the rule. */
#ifndef HDI_DATA_RECLAIM_H
#define HDI_DATA_RECLAIM_H

#include <heddle/memory.h>
#include "engine/runtime.h"

hd_status hdi_reclaim_create(hd_runtime *rt);
void hdi_reclaim_release(hd_runtime *rt);

/* Whether there is a callback that this thread may run now (it is not inside one). One load where there is none. */
bool hdi_reclaim_possible(hd_runtime *rt);

/* No callback on this thread until it is allowed again: it holds what the callback's own calls may wait for. */
void hdi_reclaim_forbid(bool forbid);

/* Runs the callback if memory of the device is getting scarce and the share of time allows it. Without locks. */
void hdi_reclaim_early_now(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block);
static inline void hdi_reclaim_early(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block)
{
    /* Set while a callback is installed; what it says is not needed here, so nothing pairs with it. */
    if (__builtin_expect(atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL, 0)) {
        hdi_reclaim_early_now(rt, device, wanted, about_to_block);
    }
}

/* Runs the callback because an allocation fails otherwise; false: there is none, or it has freed nothing. */
bool hdi_reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt);

/* Most physical memory that a device's pool can hold now: its limit, or what it holds and what the driver says is free. As the maintenance thread
 * last found it; never asks the driver. */
uint64_t hdi_reclaim_budget(hd_runtime *rt, hdi_device *device);

/* The maintenance thread: the driver says that so much is free on the device, over and above what its pool holds. */
void hdi_reclaim_set_free(hd_runtime *rt, hdi_device *device, uint64_t bytes);

#endif
