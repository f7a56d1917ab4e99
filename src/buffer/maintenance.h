/* maintenance.h - the maintenance thread looks after memory ahead of need: grows, gives back, publishes figures. */
#ifndef HDI_BUFFER_MAINTENANCE_H
#define HDI_BUFFER_MAINTENANCE_H

#include "engine/runtime.h"
#include "memory/arena.h"

hd_status hdi_maintenance_create(hd_runtime *rt);
/* Ends the thread. It makes no request afterwards. */
void hdi_maintenance_stop(hd_runtime *rt);
void hdi_maintenance_release(hd_runtime *rt);

/* Wakes the thread, which is started when it is first needed. */
void hdi_maintenance_wake(hd_runtime *rt, hdi_device *device);

/* How much free memory a growing device should have at hand: a hundredth of what is mapped, 4 to 256 MiB. */
static inline size_t hdi_maintenance_headroom(size_t mapped)
{
    size_t least = (size_t)4 << 20, most = (size_t)256 << 20;
    size_t part = mapped / 100;
    return part < least ? least : part < most ? part : most;
}

#define HDI_MAINTENANCE_FROM ((size_t)32 << 20) /* with less mapped than this a program is not what grows */

/* Something was allocated from the arena, or given back to it. */
static inline void hdi_maintenance_look(hd_runtime *rt, hdi_device *device)
{
    size_t mapped = hdi_arena_mapped_bytes(device->arena);
    bool scarce = hdi_arena_free_bytes(device->arena) < hdi_maintenance_headroom(mapped) / 2 &&
                  mapped >= HDI_MAINTENANCE_FROM && mapped < hdi_arena_limit(device->arena) &&
                  atomic_load_explicit(&device->ahead_again, memory_order_relaxed) == 0;
    /* Asleep, it has seen everything that there was; a wish that crosses with its going to sleep is there at the next look. */
    if (scarce || __builtin_expect(atomic_load_explicit(&rt->maintenance_asleep, memory_order_relaxed), 0)) {
        hdi_maintenance_wake(rt, device);
    }
}

#endif
