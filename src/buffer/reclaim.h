/* reclaim.h - what is done when memory is scarce, and ahead of that: waits, callbacks of the program, shrinkers, the out-of-memory fallback, and the
 * maintenance thread. See heddle/memory.h for the rule of the program's reclaim callback.
 *
 * Threads: any. One thread per wait. Shrinkers are registered while hd_open runs, before other threads have the runtime.
 * Locks: a hook's, one per device for the figures of its callback, and one for what the maintenance thread is to do. None is held during a
 * call. A caller of the reclaim callback holds no lock of the library.
 * Blocking: for the callback, and in hdi_memory_wait_sleep. hdi_hook_install, until no call of the callback before is under way. A shrinker
 * waits for nothing.
 * Always: the reclaim callback does not run on a thread that is inside of it, or for which it is forbidden. After hdi_hook_install has
 * returned, what the callback before needs may go.
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

/* ---- how long an allocation at a limit waits for others to free something (option memory_timeout) ---- */

/* The wait ends when nothing has moved for the time of the option. It takes at most HDI_MEMORY_WAIT_TIMES that time in all.
 * So an allocation fails in the end even where other threads take the freed memory each time.
 * The wait ends earlier where nothing can be freed any more. Then nothing is unfinished, and no other live thread of the program has made a call.
 * The caller decides what counts as moving (hdi_memory_wait_moved). */
#define HDI_MEMORY_WAIT_TIMES 20 /* so many times the option memory_timeout is waited in all, whatever moves */

typedef enum hdi_memory_wait_end {
    HDI_MEMORY_WAIT_NONE,  /* it was not waited */
    HDI_MEMORY_WAIT_STILL, /* nothing has moved */
    HDI_MEMORY_WAIT_LONG,  /* something has, again and again */
    HDI_MEMORY_WAIT_ALONE, /* nothing is unfinished, and no other thread could free anything */
    HDI_MEMORY_WAIT_CLOSED /* the runtime is being closed */
} hdi_memory_wait_end;

typedef struct hdi_memory_wait {
    hd_runtime *runtime;
    int64_t allowed; /* ns without anything that moves */
    int64_t begin, moved, asked;
    hdi_memory_wait_end end;
} hdi_memory_wait;

/* Begins to wait. */
hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt);

/* Something has been freed or finished. */
void hdi_memory_wait_moved(hdi_memory_wait *p);

/* Whether it is time to give up, and why (p->end). `quiet`: nothing is unfinished whose end could free anything. */
bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet);

/* Sleeps until it makes sense to look again: a small part of the time without anything that moves. */
void hdi_memory_wait_sleep(const hdi_memory_wait *p);

/* Why it was given up, for a message: "nothing was freed or finished for 5 s (option memory_timeout)". "" where it was not waited. */
#define HDI_MEMORY_WAIT_TEXT 160
const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT]);

/* ---- a callback of the program's that can be replaced while other threads call it ---- */

typedef void (*hdi_hooked)(void); /* cast to what it is */

typedef struct hdi_installed {
    hdi_hooked function;
    void *context;
    int calls; /* under way */
} hdi_installed;

typedef struct hdi_hook {
    hdi_mutex lock;
    pthread_cond_t ended;                     /* the last call of a callback that was replaced */
    hdi_installed *current;                   /* NULL: none */
    void (*changed)(void *owner, bool there); /* under the lock; may be NULL */
    void *owner;
} hdi_hook;

void hdi_hook_init(hdi_hook *hook, void (*changed)(void *owner, bool there), void *owner);
void hdi_hook_destroy(hdi_hook *hook);

/* NULL: none from here on. False: no host memory, nothing has changed. */
bool hdi_hook_install(hdi_hook *hook, hdi_hooked function, void *context);

/* What to call, NULL: nothing. To be ended with hdi_hook_leave. */
hdi_installed *hdi_hook_enter(hdi_hook *hook);
void hdi_hook_leave(hdi_hook *hook, hdi_installed *called);

/* ---- the program's reclaim callback: when it runs early, and how it is called ---- */

extern const hdi_lifetime hdi_reclaim_lifetime;

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

/* ---- parts of the library that keep pinned memory for later register how it is freed when such memory is short ---- */

typedef struct hdi_shrinker {
    bool (*shrink)(hd_runtime *rt); /* frees what is idle. False: there was none */
    bool (*in_use)(
        const hd_runtime *rt); /* whether it still has pinned memory, which it gives back without the program's help */
    struct hdi_shrinker *next;
} hdi_shrinker;

/* hd_open. The structure stays where it is until hd_close. */
static inline void hdi_shrinker_register(hd_runtime *rt, hdi_shrinker *shrinker)
{
    shrinker->next = hdi_buffer_of(rt)->shrinkers;
    hdi_buffer_of(rt)->shrinkers = shrinker;
}

/* Frees what is idle of all. False: there was none. */
static inline bool hdi_shrink(hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = hdi_buffer_of(rt)->shrinkers; s; s = s->next) {
        any |= s->shrink(rt);
    }
    return any;
}

/* Whether memory is in use that comes back by itself. After hdi_shrink. */
static inline bool hdi_shrinkers_in_use(const hd_runtime *rt)
{
    bool any = false;
    for (const hdi_shrinker *s = hdi_buffer_of(rt)->shrinkers; s; s = s->next) {
        any |= s->in_use(rt);
    }
    return any;
}

/* ---- what is tried before an allocation of device memory fails ---- */

/* One try to get `bytes` of the device's memory. MEMORY: there is none, and its message has the figures. */
typedef hd_status (*hdi_take)(hdi_device *device, size_t bytes, void *context);

/* After a try has returned MEMORY. It is called again after each step, until it does not. */
hd_status hdi_fallback(hdi_device *device, size_t bytes, hdi_take take, void *context);

/* ---- the maintenance thread looks after memory ahead of need: grows, gives back, publishes figures ---- */

/* Stop ends the thread. It makes no request afterwards. */
extern const hdi_lifetime hdi_maintenance_lifetime;

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
    if (scarce ||
        __builtin_expect(atomic_load_explicit(&hdi_buffer_of(rt)->maintenance_asleep, memory_order_relaxed), 0)) {
        hdi_maintenance_wake(rt, device);
    }
}

#endif
