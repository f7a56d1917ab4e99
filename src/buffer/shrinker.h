/* shrinker.h - parts of the library that keep pinned memory for later register how it is freed when such memory is short.
 *
 * Threads: any; they are registered while hd_open runs, before other threads have the runtime. Locks: none of its own.
 * Blocking: a shrinker frees what is idle, and waits for nothing.
 */
#ifndef HDI_BUFFER_SHRINKER_H
#define HDI_BUFFER_SHRINKER_H

#include "engine/runtime.h"

typedef struct hdi_shrinker {
    bool (*shrink)(hd_runtime *rt); /* frees what is idle. False: there was none */
    bool (*in_use)(
        const hd_runtime *rt); /* whether it still has pinned memory, which it gives back without the program's help */
    struct hdi_shrinker *next;
} hdi_shrinker;

/* hd_open. The structure stays where it is until hd_close. */
static inline void hdi_shrinker_register(hd_runtime *rt, hdi_shrinker *shrinker)
{
    shrinker->next = rt->shrinkers;
    rt->shrinkers = shrinker;
}

/* Frees what is idle of all. False: there was none. */
static inline bool hdi_shrink(hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = rt->shrinkers; s; s = s->next) {
        any |= s->shrink(rt);
    }
    return any;
}

/* Whether memory is in use that comes back by itself. After hdi_shrink. */
static inline bool hdi_shrinkers_in_use(const hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = rt->shrinkers; s; s = s->next) {
        any |= s->in_use(rt);
    }
    return any;
}

#endif
