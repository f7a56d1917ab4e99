/* presence.h - the calls in progress. Each thread records the runtime on which it makes a call, and
 * hd_close waits until no thread is in a call on the closing runtime.
 *
 * A thread enters with a plain store, before it reads a handle. The closing thread makes the
 * handles stale, and makes every processor that runs this process see this (hdi_biased_barrier).
 * Then it watches each thread until it saw that thread outside once. From there on the thread
 * finds the handle stale, however often it calls.
 *
 * There are two ways in. HDI_INSIDE may be nested. HDI_INSIDE_BRIEFLY is for calls that programs
 * make by the million, and costs two plain stores. It may contain HDI_INSIDE, but must not be
 * nested in anything. Calls that a callback makes count separately (hdi_presence_apart).
 *
 * A call within a call on the same runtime changes nothing. The handles of the inner call may be
 * stale by then, and a stale handle leads to no runtime.
 *
 * In a function of hd_lane_run_native, the thread may hold the engine's lock, and the engine waits
 * for the function. So in such a function, HDI_INSIDE and HDI_INSIDE_BRIEFLY return HANDLE from the
 * call. The thread's own record is hidden then, so each call takes the slow way in, which makes
 * this check.
 *
 * Both ways note the call's name for the texts of failures (error.h). HDI_CALL notes the name
 * alone. A call within a call keeps the name of the outer call.
 *
 * Threads: any; only a thread itself writes its record.
 * Locks: one for the list of records. A thread takes it at its first call, at its end and around a
 * callback; the closing thread takes it, too.
 * Always: records are never freed; after the end of its thread, a record serves another thread.
 */
#ifndef HDI_BASE_PRESENCE_H
#define HDI_BASE_PRESENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <heddle/status.h>
#include "base/cancel.h"
#include "base/lock.h"

#if HDI_DEBUG
#include <assert.h>
#endif

typedef struct hdi_presence {
    /* the runtime on which the thread makes a call, only for comparison; NULL: none */
    _Atomic(const void *) inside;
    struct hdi_presence *next;
    struct hdi_presence *outer; /* for a callback: the record of the call that made it */
    bool taken;                 /* a thread uses this record; under the lock, like the next field */
    bool library;               /* the thread belongs to the library */
    /* The thread's ring of records (record/record.h), which it checks before it uses it; NULL:
     * none. */
    struct hdi_record_thread *records;
} hdi_presence;

/* The data that presence.c keeps for a thread. */
typedef struct hdi_presence_thread {
    /* NULL: there is no record yet, or this process lacks membarrier, so that a call must fence */
    hdi_presence *own;
    const char *call; /* the name of the current or last public call; NULL: none yet */
} hdi_presence_thread;
extern _Thread_local hdi_presence_thread hdi_presence_here;

typedef struct hdi_inside {
    hdi_presence *own;
    const void *before;
} hdi_inside;

/* The slow way in, if hdi_presence_here.own is NULL. Without memory for a record, it returns a
 * record that all such threads share, and for which no thread waits. */
hdi_inside hdi_presence_enter_slow(const void *runtime);

/* True if the thread is in a function of hd_lane_run_native. Then its hdi_presence_here.own is
 * NULL. */
bool __attribute__((pure, cold)) hdi_presence_refuses(void);
/* Fails with HANDLE: such a function must not make this call. */
hd_status hdi_presence_refused(const char *call);

/* Returns HANDLE, or `value`, if the call is refused. Brief calls check this only behind the slow
 * way in, so the usual way pays nothing. */
#define HDI_REFUSE_IN_LANE(name)                                                                                       \
    if (__builtin_expect(!hdi_presence_here.own, 0) && hdi_presence_refuses()) {                                       \
        return hdi_presence_refused(name);                                                                             \
    }
#define HDI_REFUSE_IN_LANE_AS(name, value)                                                                             \
    if (__builtin_expect(!hdi_presence_here.own, 0) && hdi_presence_refuses()) {                                       \
        hdi_presence_refused(name);                                                                                    \
        return value;                                                                                                  \
    }

/* Notes that the thread is inside a call on a runtime from here on. */
static inline hdi_inside hdi_presence_enter(const void *runtime, const char *call)
{
    hdi_presence *own = hdi_presence_here.own;
    hdi_inside inside;
    if (__builtin_expect(!own, 0)) {
        inside = hdi_presence_enter_slow(runtime);
    } else {
        inside = (hdi_inside){own, atomic_load_explicit(&own->inside, memory_order_relaxed)};
        atomic_store_explicit(&own->inside, inside.before ? inside.before : runtime, memory_order_relaxed);
        /* the compiler must keep this order; the barrier of the closing thread makes the processor
         * keep it */
        atomic_signal_fence(memory_order_seq_cst);
    }
    if (call && !inside.before) {
        hdi_presence_here.call = call;
    }
    return inside;
}

static inline void hdi_presence_leave(const hdi_inside *inside)
{
    /* pairs with the acquire load in hdi_presence_await: the effects of the call are visible */
    atomic_store_explicit(&inside->own->inside, inside->before, memory_order_release);
}

#define HDI_IS_INSIDE(runtime, name)                                                                                   \
    const hdi_inside hdi_is_inside __attribute__((cleanup(hdi_presence_leave), unused)) =                              \
        hdi_presence_enter(runtime, name)

/* For the rest of the block the thread is inside a call on this runtime. If a function of
 * hd_lane_run_native makes the call, the call returns HANDLE. */
#define HDI_INSIDE(runtime) HDI_INSIDE_AS(runtime, __func__)
#define HDI_INSIDE_AS(runtime, name)                                                                                   \
    HDI_REFUSE_IN_LANE(name)                                                                                           \
    HDI_UNCANCELLED;                                                                                                   \
    HDI_IS_INSIDE(runtime, name)

/* HDI_INSIDE for frequent calls, which do not hold off cancellation as a whole (cancel.h). */
#define HDI_INSIDE_OFTEN(runtime)                                                                                      \
    HDI_REFUSE_IN_LANE(__func__)                                                                                       \
    HDI_IS_INSIDE(runtime, __func__)

/* HDI_INSIDE for functions of the library that calls use, and for its threads. Keeps the name of
 * the call, and refuses nothing. */
#define HDI_INSIDE_STILL(runtime) HDI_IS_INSIDE(runtime, NULL)

/* hdi_presence_enter for a call that no other public call contains, so there is no outer call.
 * *slow: the thread took the slow way in, which is the only way that refuses calls. */
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
    atomic_signal_fence(memory_order_seq_cst); /* as in hdi_presence_enter */
    return own;
}

static inline void hdi_presence_leave_briefly(hdi_presence *const *own)
{
    /* as in hdi_presence_leave */
    atomic_store_explicit(&(*own)->inside, NULL, memory_order_release);
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

/* Calls that cannot fail on their usual path need no name. */
#define HDI_INSIDE_BRIEFLY_UNNAMED(runtime) HDI_INSIDE_BRIEFLY_AS(runtime, NULL)

/* For a query that waits for nothing and takes no lock, so that a function of hd_lane_run_native
 * may make it. */
#define HDI_INSIDE_QUERY(runtime) HDI_IS_INSIDE_BRIEFLY(runtime, NULL)

/* For a call on no runtime, and for a call that notes its name only before it may fail. The library
 * itself makes no such call. */
#define HDI_CALL() ((void)(hdi_presence_here.call = __func__))

/* Call it before a callback of the program, so that calls in the callback do not end the
 * announcement of the outer call. After the callback, pass the result to hdi_presence_together. */
typedef struct hdi_apart {
    hdi_presence *own;
    bool was_fast, was_covered;
    uint8_t calling;
    int cancel; /* the state for hdi_cancel_restore: the program's function runs within a call */
    const char *call;
} hdi_apart;
hdi_apart hdi_presence_apart(void);
/* hdi_presence_apart for a function of hd_lane_run_native (HDI_CALLS_LANE, thread.h): its calls are
 * refused. */
hdi_apart hdi_presence_apart_in_lane(void);
void hdi_presence_together(hdi_apart apart);

/* Waits until each other thread was outside of calls on the runtime, whose handles are already
 * stale. False: some thread was never seen outside until the deadline. */
bool hdi_presence_await(const void *runtime, int64_t deadline);

/* True if another thread of the program still lives and ever made a call on any runtime. Takes the
 * lock. */
bool hdi_presence_has_others(void);

/* True if the calling thread is inside a call on the runtime. */
bool hdi_presence_is_inside(const void *runtime);

#endif
