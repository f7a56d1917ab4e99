/* counts.h - counters of a device's memory that are not per thread (thread_cache.h has those) and not the arena's.
 *
 * Threads: any; relaxed atomics, on paths that are rare. hdi_device.memory points to a device's.
 */
#ifndef HDI_BUFFER_COUNTS_H
#define HDI_BUFFER_COUNTS_H

#include "engine/runtime.h"

typedef struct hdi_memory_counts {
    _Atomic uint64_t failures, drains, waits, wait_ns;
    _Atomic uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    _Atomic uint64_t longest_pause_ns;
    _Atomic uint64_t double_frees, overruns, held_bytes;
} hdi_memory_counts;

static inline void hdi_counts_add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline void hdi_counts_raise(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (value > seen &&
           !atomic_compare_exchange_weak_explicit(peak, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

#endif
