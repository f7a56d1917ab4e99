/* presence.h - which calls are under way: each thread notes the runtime that it is inside a call of, and hd_close waits until none is.
 *
 * A thread enters before it looks at a handle, with a plain store. The closing thread makes the handles stale and has every processor that
 * runs this process see that (hdi_biased_barrier). Then it looks at all threads. A thread that it does not see inside finds the handle stale.
 *
 * Two ways in. HDI_INSIDE may be nested. HDI_INSIDE_BRIEFLY is for calls that are made by the million. It costs two plain stores. It
 * may have HDI_INSIDE within, but is not within anything itself. What the program does in a callback counts apart (hdi_presence_apart).
 *
 * A call within a call is one on the same runtime, and changes nothing. Its handles may be stale by then, and stale handles have no runtime.
 *
 * In a function of hd_lane_call a thread may hold the engine's lock, and the engine waits for it. So there HDI_INSIDE and HDI_INSIDE_BRIEFLY
 * return HANDLE from the call. A thread has no record of its own there, so a call finds out where it has to take the slow way anyway.
 *
 * Either way notes the call's name, which goes in front of the texts of failures (error.h). HDI_CALL notes the name alone. A call within a
 * call keeps the name of the outer one.
 *
 * Threads: any; a thread's record is written by that thread alone. Locks: one for the list of records, taken at a thread's first call, at
 * its end, around a callback, and by the closing thread.
 * Always: records are never freed; one whose thread has ended serves another.
 */
#ifndef HDI_BASE_PRESENCE_H
#define HDI_BASE_PRESENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <heddle/status.h>
#include "base/lock.h"

#if HDI_DEBUG
#include <assert.h>
#endif

typedef struct hdi_presence {
    _Atomic(const void *) inside; /* a runtime, only to be compared; NULL: none */
    struct hdi_presence *next;
    struct hdi_presence *outer; /* of a callback: the record of the call that made it */
    bool taken;                 /* under the lock, like */
    bool library;               /* whether the thread is the library's own */
    /* The thread's ring of records (record/record.h), which it looks at before it uses it; NULL: none. */
    struct hdi_record_thread *records;
} hdi_presence;

/* What a thread has here. */
typedef struct hdi_presence_thread {
    hdi_presence *own; /* NULL: there is none yet, or this process has no membarrier: then a call pays for a fence */
    const char *call;  /* the name of the public call that it is in, or was in; NULL: none yet */
} hdi_presence_thread;
extern _Thread_local hdi_presence_thread hdi_presence_here;

typedef struct hdi_inside {
    hdi_presence *own;
    const void *before;
} hdi_inside;

/* Where hdi_presence_here.own is NULL. Without memory for a record it is one for all threads that have none, which no thread waits for. */
hdi_inside hdi_presence_enter_slow(const void *runtime);

/* Whether the thread is in a function of hd_lane_call. Then its hdi_presence_here.own is NULL. */
bool __attribute__((pure, cold)) hdi_presence_refuses(void);
/* Fails with HANDLE: such a function must not make this call. */
hd_status hdi_presence_refused(const char *call);

/* Returns HANDLE, or `value`, where the call is refused. Brief calls look at it behind the slow way in, where that costs the usual way nothing. */
#define HDI_REFUSE_IN_LANE(name)                                                                                       \
    if (__builtin_expect(!hdi_presence_here.own, 0) && hdi_presence_refuses()) {                                       \
        return hdi_presence_refused(name);                                                                             \
    }
#define HDI_REFUSE_IN_LANE_AS(name, value)                                                                             \
    if (__builtin_expect(!hdi_presence_here.own, 0) && hdi_presence_refuses()) {                                       \
        hdi_presence_refused(name);                                                                                    \
        return value;                                                                                                  \
    }

/* Inside a call on a runtime from here on. */
static inline hdi_inside hdi_presence_enter(const void *runtime, const char *call)
{
    hdi_presence *own = hdi_presence_here.own;
    hdi_inside inside;
    if (__builtin_expect(!own, 0)) {
        inside = hdi_presence_enter_slow(runtime);
    } else {
        inside = (hdi_inside){own, atomic_load_explicit(&own->inside, memory_order_relaxed)};
        atomic_store_explicit(&own->inside, inside.before ? inside.before : runtime, memory_order_relaxed);
        /* the compiler keeps the order, the closer's barrier makes the processor */
        atomic_signal_fence(memory_order_seq_cst);
    }
    if (call && !inside.before) {
        hdi_presence_here.call = call;
    }
    return inside;
}

static inline void hdi_presence_leave(const hdi_inside *inside)
{
    /* pairs with the acquire load in hdi_presence_await: what the call did is over */
    atomic_store_explicit(&inside->own->inside, inside->before, memory_order_release);
}

#define HDI_IS_INSIDE(runtime, name)                                                                                   \
    const hdi_inside hdi_is_inside __attribute__((cleanup(hdi_presence_leave), unused)) =                              \
        hdi_presence_enter(runtime, name)

/* For the rest of the block the thread is inside a call on this runtime. A function of hd_lane_call must not make it. */
#define HDI_INSIDE(runtime) HDI_INSIDE_AS(runtime, __func__)
#define HDI_INSIDE_AS(runtime, name)                                                                                   \
    HDI_REFUSE_IN_LANE(name)                                                                                           \
    HDI_IS_INSIDE(runtime, name)

/* In a function of the library that calls make, and threads of its own: the name stays. */
#define HDI_INSIDE_STILL(runtime) HDI_IS_INSIDE(runtime, NULL)

/* The same for a call that no other public call contains: what was before is nothing. *slow: it took the slow way, the only one that is refused. */
static inline hdi_presence *hdi_presence_enter_briefly(const void *runtime, const char *call, bool *slow)
{
    if (call) {
        hdi_presence_here.call = call;
    }
    hdi_presence *own = hdi_presence_here.own;
    *slow = !own;
    if (__builtin_expect(!own, 0)) {
        return hdi_presence_enter_slow(runtime).own;
    }
#if HDI_DEBUG
    assert(!atomic_load_explicit(&own->inside, memory_order_relaxed) && "a brief call within a call");
#endif
    atomic_store_explicit(&own->inside, runtime, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* as above */
    return own;
}

static inline void hdi_presence_leave_briefly(hdi_presence *const *own)
{
    atomic_store_explicit(&(*own)->inside, NULL, memory_order_release); /* as above */
}

#define HDI_IS_INSIDE_BRIEFLY(runtime, name)                                                                           \
    bool hdi_came_slowly __attribute__((unused));                                                                      \
    hdi_presence *const hdi_is_inside __attribute__((cleanup(hdi_presence_leave_briefly), unused)) =                   \
        hdi_presence_enter_briefly(runtime, name, &hdi_came_slowly)

#define HDI_INSIDE_BRIEFLY(runtime) HDI_INSIDE_BRIEFLY_AS(runtime, __func__)
#define HDI_INSIDE_BRIEFLY_AS(runtime, name)                                                                           \
    HDI_IS_INSIDE_BRIEFLY(runtime, name);                                                                              \
    if (__builtin_expect(hdi_came_slowly, 0) && hdi_presence_refuses()) {                                              \
        return hdi_presence_refused(__func__);                                                                         \
    }

/* What cannot fail on its usual way needs no name. */
#define HDI_INSIDE_BRIEFLY_UNNAMED(runtime) HDI_INSIDE_BRIEFLY_AS(runtime, NULL)

/* A question that waits for nothing and takes no lock: a function of hd_lane_call may ask it. */
#define HDI_INSIDE_QUERY(runtime) HDI_IS_INSIDE_BRIEFLY(runtime, NULL)

/* For a call on no runtime, and for one that notes its name only where it may fail. The library does not call such calls itself. */
#define HDI_CALL() ((void)(hdi_presence_here.call = __func__))

/* Around a callback of the program's, so that what it calls does not end the announcement of the call that made it. The result goes to
 * the end. */
typedef struct hdi_apart {
    hdi_presence *own;
    bool was_fast, was_covered;
    uint8_t calling;
    const char *call;
} hdi_apart;
hdi_apart hdi_presence_apart(void);
/* The same around a function of hd_lane_call (HDI_CALLS_LANE, thread.h): its calls are refused. */
hdi_apart hdi_presence_apart_in_lane(void);
void hdi_presence_together(hdi_apart apart);

/* Waits until no other thread is inside a call on the runtime, whose handles are stale by now. False: some are, at the deadline. */
bool hdi_presence_await(const void *runtime, int64_t deadline);

/* Whether a thread is alive, other than the calling one and the library's own, that has made a call on any runtime. Takes the lock. */
bool hdi_presence_has_others(void);

/* Whether the calling thread is inside a call on it. */
bool hdi_presence_is_inside(const void *runtime);

#endif
