/* presence.c - see presence.h for threads, locks and what always holds. */
#include <pthread.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/presence.h"
#include "base/thread.h"
#include "base/wait.h"

#define SLEEP_NS 100000

_Thread_local hdi_presence_thread hdi_presence_here;
static _Thread_local hdi_presence *fenced_own; /* the same, also where owners fence */
static _Thread_local bool covered;             /* in a callback without a record of its own */

static hdi_mutex lock = HDI_MUTEX_INIT(PRESENCE);
static hdi_presence *all;
static hdi_presence nobodys;   /* in no list */
static _Atomic bool some_lack; /* a record: there was no memory for it */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

static void give(hdi_presence *p)
{
    hdi_mutex_lock(&lock);
    p->taken = false;
    hdi_mutex_unlock(&lock);
}

static void thread_ends(void *value)
{
    hdi_presence *own = value;
    hdi_presence_here.own = fenced_own = NULL;
    give(own);
}

static void before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void in_parent(void)
{
    hdi_mutex_unlock(&lock);
}

/* Of the threads only this one is here. */
static void in_child(void)
{
    for (hdi_presence *p = all; p; p = p->next) {
        atomic_store_explicit(&p->inside, NULL, memory_order_relaxed);
        p->taken = false;
    }
    for (hdi_presence *p = fenced_own; p; p = p->outer) {
        p->taken = true;
    }
    hdi_mutex_unlock(&lock);
}

static void begin(void)
{
    key_error = hdi_thread_key(&key, thread_ends);
    pthread_atfork(before_fork, in_parent, in_child);
}

static hdi_presence *take(void)
{
    hdi_presence *p;
    hdi_mutex_lock(&lock);
    for (p = all; p && p->taken; p = p->next) {
    }
    if (!p && (p = calloc(1, sizeof *p)) != NULL) {
        p->next = all;
        all = p;
    }
    if (p) {
        p->taken = true;
        p->outer = NULL;
        p->records = NULL; /* the thread before had another number */
        p->library = hdi_thread_is_own();
    }
    hdi_mutex_unlock(&lock);
    return p;
}

static hdi_presence *make(void)
{
    pthread_once(&once, begin);
    hdi_presence *own = take();
    if (own && !key_error && pthread_setspecific(key, own) != 0) {
        thread_ends(own); /* it would never be given back */
        own = NULL;
    }
    if (!own) {
        atomic_store(&some_lack, true);
    }
    return own ? own : &nobodys;
}

bool hdi_presence_refuses(void)
{
    return hdi_calling_here == HDI_CALLS_LANE;
}

hdi_inside hdi_presence_enter_slow(const void *runtime)
{
    if (!fenced_own) {
        fenced_own = make();
    }
    if (covered) {
        return (hdi_inside){&nobodys, NULL};
    }
    if (!hdi_biased_fenced() && !hdi_presence_refuses()) {
        hdi_presence_here.own = fenced_own;
    }
    hdi_inside inside = {fenced_own, atomic_load_explicit(&fenced_own->inside, memory_order_relaxed)};
    if (!inside.before) {
        /* seq_cst with the barrier in hdi_presence_await: either that sees this, or this thread sees that the handle is stale */
        atomic_exchange_explicit(&fenced_own->inside, runtime, memory_order_seq_cst);
    }
    return inside;
}

hd_status __attribute__((cold)) hdi_presence_refused(const char *call)
{
    hdi_presence_here.call = call;
    return hdi_fail(HD_ERROR_HANDLE,
                    "a function of hd_lane_call must not make this call, since the engine waits for it; "
                    "call it behind hd_lane_call, or from a function of hd_host_call");
}

hdi_apart hdi_presence_apart(void)
{
    hdi_apart apart = {fenced_own, hdi_presence_here.own != NULL, covered, hdi_calling_here, hdi_presence_here.call};
    hdi_presence *within = take();
    if (within) {
        within->outer = fenced_own;
        fenced_own = within;
    } else { /* no memory: what made the callback is inside for all of it */
        covered = true;
    }
    hdi_presence_here.own = within && apart.was_fast ? within : NULL;
    return apart;
}

hdi_apart hdi_presence_apart_in_lane(void)
{
    hdi_apart apart = hdi_presence_apart();
    hdi_calling_here = HDI_CALLS_LANE;
    hdi_presence_here.own = NULL;
    return apart;
}

void hdi_presence_together(hdi_apart apart)
{
    hdi_calling_here = apart.calling;
    if (fenced_own != apart.own) {
        give(fenced_own);
    }
    fenced_own = apart.own;
    hdi_presence_here.own = apart.was_fast ? apart.own : NULL;
    covered = apart.was_covered;
    hdi_presence_here.call = apart.call;
}

/* The calling thread's own records are those from fenced_own outwards. */
static bool is_own(const hdi_presence *p)
{
    const hdi_presence *own = fenced_own;
    while (own && own != p) {
        own = own->outer;
    }
    return own != NULL;
}

bool hdi_presence_has_others(void)
{
    bool found = atomic_load(&some_lack); /* of those it is not known whether they live */
    hdi_mutex_lock(&lock);
    for (const hdi_presence *p = all; p && !found; p = p->next) {
        found = p->taken && !p->library && !is_own(p);
    }
    hdi_mutex_unlock(&lock);
    return found;
}

bool hdi_presence_is_inside(const void *runtime)
{
    bool found = false;
    for (const hdi_presence *p = fenced_own; p && !found; p = p->outer) {
        found = p != &nobodys && atomic_load_explicit(&p->inside, memory_order_relaxed) == runtime;
    }
    return found;
}

static bool is_somebody_inside(const void *runtime)
{
    bool found = false;
    hdi_mutex_lock(&lock);
    for (hdi_presence *p = all; p && !found; p = p->next) {
        found = atomic_load_explicit(&p->inside, memory_order_acquire) == runtime && !is_own(p);
    }
    hdi_mutex_unlock(&lock);
    return found;
}

bool hdi_presence_await(const void *runtime, int64_t deadline)
{
    hdi_biased_barrier();
    while (is_somebody_inside(runtime)) {
        if (hdi_clock_ns() >= deadline) {
            return false;
        }
        hdi_sleep_for(SLEEP_NS);
    }
    return true;
}
