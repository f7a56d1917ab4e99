/* reclaim.h - steps against scarce memory: callbacks, shrinkers, and the maintenance thread.
 * limit.h describes the out-of-memory fallback. heddle/memory.h describes when Heddle calls the
 * program's reclaim callback.
 *
 * Threads: any. Shrinkers are registered while hd_open runs, before other threads use the runtime.
 * A shrinker is a function of the library that frees idle pinned memory.
 * Locks: one per hook (a callback's entry), one per device for the figures of the callback, and one
 * for the tasks of the maintenance thread. No lock is held during a callback. A caller of the
 * reclaim callback holds no lock of the library.
 * Blocking: a caller waits for the callback. hdi_hook_install waits until no call of the earlier
 * callback is under way. A shrinker never waits.
 * Always: the reclaim callback does not run on a thread that is already inside it, or that must not
 * call it. Once hdi_hook_install returns, the program may free everything that the earlier callback
 * needs.
 */
#ifndef HDI_BUFFER_RECLAIM_H
#define HDI_BUFFER_RECLAIM_H

#include <heddle/memory.h>
#include <pthread.h>
#include <stdbool.h>
#include "base/lock.h"
#include "buffer/part.h"
#include "engine/runtime.h"
#include "memory/arena.h"

/* ---- a callback of the program that can be replaced while other threads call it ---- */

typedef void (*hdi_hooked)(void); /* is cast to its true type */

typedef struct hdi_installed {
    hdi_hooked function;
    void *context;
    int calls; /* under way */
} hdi_installed;

typedef struct hdi_hook {
    hdi_mutex lock;
    /* signalled when the last call of a replaced callback ends */
    pthread_cond_t ended;
    hdi_installed *current;                   /* NULL: none */
    void (*changed)(void *owner, bool there); /* under the lock; may be NULL */
    void *owner;
} hdi_hook;

void hdi_hook_init(hdi_hook *hook, void (*changed)(void *owner, bool there), void *owner);
void hdi_hook_destroy(hdi_hook *hook);

/* Replaces the callback by `function`; NULL: by no callback. False: no host memory, and nothing
 * changed. */
bool hdi_hook_install(hdi_hook *hook, hdi_hooked function, void *context);

/* Returns the function to call; NULL: none. End the call with hdi_hook_leave. */
hdi_installed *hdi_hook_enter(hdi_hook *hook);
void hdi_hook_leave(hdi_hook *hook, hdi_installed *called);

/* ---- the program's reclaim callback: when it runs early, and how it is called ---- */

extern const hdi_lifetime hdi_reclaim_lifetime;

/* Forbids the callback on this thread, or allows it again. A thread forbids the callback while it
 * holds something for which calls inside the callback could wait. */
void hdi_reclaim_forbid(bool forbid);

/* True if the callback must not run on this thread now: the thread is inside the callback, or the
 * callback is forbidden. */
bool hdi_reclaim_is_inside(void);

/* Runs the callback because an allocation would fail. False: there is no callback, or it freed
 * nothing. */
bool hdi_reclaim_at_limit(hd_runtime *rt, hdi_device *device, size_t wanted, unsigned attempt);

/* Runs the callback if the device's memory is getting scarce and the callback's share of time
 * allows the call. No lock is held. */
void hdi_reclaim_early_now(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block);
static inline void hdi_reclaim_early(hd_runtime *rt, hdi_device *device, size_t wanted, bool about_to_block)
{
    /* Set while a callback is installed. Relaxed: the hook's lock guards the callback itself. */
    if (__builtin_expect(atomic_load_explicit(&rt->on_block, memory_order_relaxed) != NULL, 0)) {
        hdi_reclaim_early_now(rt, device, wanted, about_to_block);
    }
}

/* ---- shrinkers free pinned memory that parts of the library keep for later ---- */

typedef struct hdi_shrinker {
    bool (*shrink)(hd_runtime *rt); /* frees idle memory. False: there was none */
    /* True if this part of the library uses pinned memory now that it will give back without an
     * action of the program. */
    bool (*in_use)(hd_runtime *rt);
    struct hdi_shrinker *next;
} hdi_shrinker;

/* For hd_open. The structure must stay in place until hd_close. */
static inline void hdi_shrinker_register(hd_runtime *rt, hdi_shrinker *shrinker)
{
    shrinker->next = hdi_buffer_of(rt)->shrinkers;
    hdi_buffer_of(rt)->shrinkers = shrinker;
}

/* Frees all idle memory. False: there was none. */
static inline bool hdi_shrink(hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = hdi_buffer_of(rt)->shrinkers; s; s = s->next) {
        any |= s->shrink(rt);
    }
    return any;
}

/* True if memory of a shrinker is in use, and becomes free without an action of the program. Call
 * hdi_shrink first. */
static inline bool hdi_shrinkers_in_use(hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = hdi_buffer_of(rt)->shrinkers; s; s = s->next) {
        any |= s->in_use(rt);
    }
    return any;
}

/* ---- the maintenance thread manages memory ahead of need: grows, gives back, publishes figures
 * ---- */

/* `stop` ends the thread. Afterwards the thread makes no request. */
extern const hdi_lifetime hdi_maintenance_lifetime;

/* Wakes the thread, or starts it if needed. */
void hdi_maintenance_wake(hd_runtime *rt, hdi_device *device);

/* Call it after an allocation of pinned memory. Starts or wakes the thread. Some time after the
 * memory is freed, the thread unpins it. */
void hdi_maintenance_look_at_pinned(hd_runtime *rt);

/* The free memory that a growing device should keep ready: a hundredth of the mapped memory, but at
 * least 4 MiB and at most 256 MiB. */
static inline size_t hdi_maintenance_headroom(size_t mapped)
{
    size_t least = (size_t)4 << 20, most = (size_t)256 << 20;
    size_t part = mapped / 100;
    return part < least ? least : part < most ? part : most;
}
/* a device with less mapped memory does not count as growing */

#define HDI_MAINTENANCE_FROM ((size_t)32 << 20)

/* Call after memory was allocated from the arena, or given back to it. */
static inline void hdi_maintenance_look(hd_runtime *rt, hdi_device *device)
{
    size_t mapped = hdi_arena_mapped_bytes(device->arena);
    bool scarce = hdi_arena_free_bytes(device->arena) < hdi_maintenance_headroom(mapped) / 2 &&
                  mapped >= HDI_MAINTENANCE_FROM && mapped < hdi_arena_limit(device->arena) &&
                  atomic_load_explicit(&device->ahead_again, memory_order_relaxed) == 0;
    /* The thread reads all requests before it sleeps. If a request comes just as the thread falls
     * asleep, the thread reads it at its next look. */
    if (scarce ||
        __builtin_expect(atomic_load_explicit(&hdi_buffer_of(rt)->maintenance_asleep, memory_order_relaxed), 0)) {
        hdi_maintenance_wake(rt, device);
    }
}

#endif
