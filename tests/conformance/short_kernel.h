/* short_kernel.h - tests whether an engine knows that a kernel is short. Then it chains launches,
 * and a test can count chains.
 *
 * Threads: any. Locks: none.
 * Always: each launch between two signals measures the kernel anew. On a busy machine a short
 * kernel may seem long, so tests launch it until it seems short.
 */
#ifndef CONFORMANCE_SHORT_KERNEL_H
#define CONFORMANCE_SHORT_KERNEL_H

#include "engine/engine.h"
#include "engine/stream.h"
#include "kernel/module.h"

/* Also true if the engine runs in another process, since this one cannot see it. */
static inline bool conf_is_short(const hd_lane *lane, const hd_kernel *kernel)
{
    const hdi_engine *engine = hdi_lane_any(lane)->device->engine;
    return !engine || !hdi_chain_is_apart(engine, hdi_kernel_from_handle(kernel)->number);
}

#endif
