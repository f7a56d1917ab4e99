/* presence.c - threads, locks and invariants: see presence.h. */
#include <pthread.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/presence.h"
#include "base/thread.h"
#include "base/wait.h"

#define SLEEP_NS 100000
#define LOOKS 256 /* the number of looks at a record between two sleeps */

_Thread_local hdi_presence_thread hdi_presence_here;
static _Thread_local hdi_presence *fenced_own; /* the thread's record, even if owners fence */
/* the thread is in a callback without a record of its own */
static _Thread_local bool covered;

static hdi_mutex lock = HDI_MUTEX_INIT(PRESENCE);
static hdi_presence *all;
static hdi_presence nobodys;   /* in no list */
static _Atomic bool some_lack; /* some thread lacks a record, because there was no memory */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

static void presence_give(hdi_presence *p)
{
    hdi_mutex_lock(&lock);
    p->taken = false;
    hdi_mutex_unlock(&lock);
}

static void presence_thread_ends(void *value)
{
    hdi_presence *own = value;
    hdi_presence_here.own = fenced_own = NULL;
    presence_give(own);
}

static void presence_before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void presence_in_parent(void)
{
    hdi_mutex_unlock(&lock);
}

/* In the child only this thread exists, so all other records are free. */
static void presence_in_child(void)
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

static void presence_prepare(void)
{
    key_error = hdi_thread_key(&key, presence_thread_ends);
    pthread_atfork(presence_before_fork, presence_in_parent, presence_in_child);
}

static hdi_presence *presence_take(void)
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
        p->records = NULL; /* the former thread of this record had another number */
        p->library = hdi_thread_is_own();
    }
    hdi_mutex_unlock(&lock);
    return p;
}

static hdi_presence *presence_make(void)
{
    pthread_once(&once, presence_prepare);
    hdi_presence *own = presence_take();
    if (own && !key_error && pthread_setspecific(key, own) != 0) {
        presence_thread_ends(own); /* without a key, the record would never be given back */
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
        fenced_own = presence_make();
    }
    if (covered) {
        return (hdi_inside){&nobodys, NULL};
    }
    if (!hdi_biased_fenced() && !hdi_presence_refuses()) {
        hdi_presence_here.own = fenced_own;
    }
    hdi_inside inside = {fenced_own, atomic_load_explicit(&fenced_own->inside, memory_order_relaxed)};
    if (!inside.before) {
        /* seq_cst with the barrier in hdi_presence_await: either the closing thread sees this
         * store, or this thread sees the stale handle */
        atomic_exchange_explicit(&fenced_own->inside, runtime, memory_order_seq_cst);
    }
    return inside;
}

hd_status __attribute__((cold)) hdi_presence_refused(const char *call)
{
    hdi_presence_here.call = call;
    return hdi_fail(HD_ERROR_HANDLE,
                    "a function of hd_lane_run_native must not make this call, since the engine waits for it; "
                    "call it behind hd_lane_run_native, or from a function of hd_launch_host");
}

hdi_apart hdi_presence_apart(void)
{
    hdi_apart apart = {.own = fenced_own,
                       .was_fast = hdi_presence_here.own != NULL,
                       .was_covered = covered,
                       .calling = hdi_calling_here,
                       .cancel = hdi_cancel_hold_off(),
                       .call = hdi_presence_here.call};
    hdi_presence *within = presence_take();
    if (within) {
        within->outer = fenced_own;
        fenced_own = within;
    } else { /* without memory, the outer call counts as inside during the whole callback */
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
        presence_give(fenced_own);
    }
    fenced_own = apart.own;
    hdi_presence_here.own = apart.was_fast ? apart.own : NULL;
    covered = apart.was_covered;
    hdi_presence_here.call = apart.call;
    hdi_cancel_restore(&apart.cancel);
}

/* True if the calling thread owns a record: it owns fenced_own and all outer records. */
static bool presence_is_own(const hdi_presence *p)
{
    const hdi_presence *own = fenced_own;
    while (own && own != p) {
        own = own->outer;
    }
    return own != NULL;
}

bool hdi_presence_has_others(void)
{
    bool found = atomic_load(&some_lack); /* a thread without a record may still live */
    hdi_mutex_lock(&lock);
    for (const hdi_presence *p = all; p && !found; p = p->next) {
        found = p->taken && !p->library && !presence_is_own(p);
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

/* True once the thread was seen outside. A thread that makes call after call is outside only for
 * moments, so this function looks many times. */
static bool presence_is_seen_outside(const hdi_presence *p, const void *runtime)
{
    bool outside = false;
    for (int i = 0; i < LOOKS && !outside; i++) {
        outside = atomic_load_explicit(&p->inside, memory_order_acquire) != runtime;
    }
    return outside;
}

bool hdi_presence_await(const void *runtime, int64_t deadline)
{
    hdi_biased_barrier();
    /* A thread without a record finds the handle stale. The same is true of a thread that was
     * outside once since the barrier. So the loop waits for one record after the other. Records are
     * never freed, and new records come in front. */
    hdi_mutex_lock(&lock);
    const hdi_presence *p = all;
    hdi_mutex_unlock(&lock);
    while (p) {
        if (presence_is_own(p) || presence_is_seen_outside(p, runtime)) {
            p = p->next;
        } else if (hdi_clock_ns() >= deadline) {
            return false;
        } else {
            hdi_sleep_for(SLEEP_NS);
        }
    }
    return true;
}
