/* registry.c - the list of open runtimes. Calls search the list to refuse a null or closed runtime.
 * A thread that ends finds the runtimes of its lanes in the list.
 *
 * Threads: any. A thread that asks whether a runtime is open is inside a call on it (presence.h),
 * so hd_close waits for the thread.
 * Locks: one mutex per process, held to walk a short list, and across fork(). It is never held
 * during a visit of a runtime. Asking whether a runtime is open takes no lock.
 * Always: in a child made by fork() no runtime of its parent is open. A runtime is removed after
 * its last visitor left.
 */
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/engine.h"

static hdi_mutex lock = HDI_MUTEX_INIT(REGISTRY);
/* Signalled when a runtime that is being removed loses its last visitor. */
static pthread_cond_t last_left = PTHREAD_COND_INITIALIZER;
/* The fields of a place are written under the mutex, and some are also read without it. After its
 * runtime is removed, a place keeps its other fields until another runtime gets the place. */
static struct {
    _Atomic(hd_runtime *) runtime; /* NULL: free */
    uint32_t visitors;             /* under the mutex */
    /* hd_close waits for functions of the program that the library calls. Only calls from these
     * functions still find the runtime. */
    atomic_bool closing;
    atomic_bool leaving; /* no call finds the runtime */
} places[HDI_RUNTIMES_MAX];
static uint64_t next_id = 1;
/* Closed runtimes that a thread still gives back; a futex word. */
static _Atomic uint32_t lingering;

static hd_runtime *registry_runtime_at(int i)
{
    /* pairs with the release store in hdi_runtime_add: the other fields of the place belong to this
     * runtime */
    return atomic_load_explicit(&places[i].runtime, memory_order_acquire);
}

/* Keeps other threads from changing the list during the fork. In the child, no runtime is open. */
static void registry_before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void registry_in_parent(void)
{
    hdi_mutex_unlock(&lock);
}

static void registry_in_child(void)
{
    for (int i = 0; i < HDI_RUNTIMES_MAX; i++) {
        hd_runtime *rt = registry_runtime_at(i);
        if (rt) {
            hdi_handle_close(&rt->head);
        }
        atomic_store(&places[i].runtime, NULL);
        places[i].visitors = 0; /* visitors are threads of the parent, which do not exist here */
    }
    atomic_store(&lingering, 0);
    hdi_mutex_unlock(&lock);
}

static void registry_guard_forks(void)
{
    pthread_atfork(registry_before_fork, registry_in_parent, registry_in_child);
}

/* The place of a runtime; -1: it is not open. */
static int registry_place_of(const hd_runtime *rt)
{
    for (int i = 0; rt && i < HDI_RUNTIMES_MAX; i++) {
        if (registry_runtime_at(i) == rt && !atomic_load(&places[i].leaving)) {
            return i;
        }
    }
    return -1;
}

bool hdi_runtime_is_open(const hd_runtime *rt)
{
    /* seq_cst with the barrier of the closing thread: either this sees the runtime leave, or
     * hd_close sees this thread inside a call */
    int place = registry_place_of(rt);
    return place >= 0 && (!atomic_load(&places[place].closing) || hdi_calling_here != HDI_CALLS_NONE);
}

hd_status hdi_device_refused(const hd_runtime *rt, int device)
{
    return rt->n_devices == 1
               ? hdi_fail(HD_ERROR_NO_DEVICE, "the runtime has no device %d; it has only device 0", device)
               : hdi_fail(HD_ERROR_NO_DEVICE, "the runtime has no device %d; its devices are 0 to %d", device,
                          rt->n_devices - 1);
}

hd_status hdi_runtime_add(hd_runtime *rt)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, registry_guard_forks);
    hd_status status = HD_ERROR_LIMIT;
    hdi_mutex_lock(&lock);
    for (int i = 0; status && i < HDI_RUNTIMES_MAX; i++) {
        if (!registry_runtime_at(i)) {
            rt->id = next_id++;
            hdi_handle_set(&rt->head, HDI_RUNTIME_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_LIVE);
            atomic_store(&places[i].closing, false);
            atomic_store(&places[i].leaving, false);
            /* Pairs with the load in registry_runtime_at. */
            atomic_store_explicit(&places[i].runtime, rt, memory_order_release);
            status = HD_OK;
        }
    }
    hdi_mutex_unlock(&lock);
    return status ? hdi_fail(status, "%d runtimes are open already; close one", HDI_RUNTIMES_MAX) : HD_OK;
}

bool hdi_runtimes_are_open_beside(const hd_runtime *rt)
{
    bool any = false;
    for (int i = 0; i < HDI_RUNTIMES_MAX && !any; i++) {
        const hd_runtime *open = registry_runtime_at(i);
        any = open != NULL && open != rt;
    }
    return any;
}

bool hdi_runtime_begin_close(hd_runtime *rt)
{
    hdi_mutex_lock(&lock);
    int place = registry_place_of(rt);
    bool first = place >= 0 && !atomic_exchange(&places[place].closing, true);
    if (first) {
        /* calls that only look at the word now ask hdi_runtime_is_open */
        hdi_handle_close(&rt->head);
    }
    hdi_mutex_unlock(&lock);
    return first;
}

bool hdi_runtime_remove(hd_runtime *rt)
{
    hdi_mutex_lock(&lock);
    int place = registry_place_of(rt);
    if (place >= 0) {
        atomic_store(&places[place].leaving, true);
        while (places[place].visitors != 0) {
            hdi_mutex_wait(&lock, &last_left);
        }
        atomic_store(&places[place].runtime, NULL);
    }
    hdi_mutex_unlock(&lock);
    return place >= 0;
}

/* Ends a visit. The mutex is held. */
static void registry_leave(int place)
{
    if (--places[place].visitors == 0 && atomic_load(&places[place].leaving)) {
        pthread_cond_broadcast(&last_left);
    }
}

bool hdi_runtimes_all_beside(const hd_runtime *rt, bool (*visit)(hd_runtime *, uint32_t place, void *), void *context)
{
    bool all = true;
    for (int i = 0; i < HDI_RUNTIMES_MAX && all; i++) {
        if (!registry_runtime_at(i) || registry_runtime_at(i) == rt) {
            continue;
        }
        hdi_mutex_lock(&lock);
        hd_runtime *open = registry_runtime_at(i);
        if (open && open != rt && !atomic_load(&places[i].leaving)) {
            places[i].visitors++;
            hdi_mutex_unlock(&lock);
            all = visit(open, (uint32_t)i, context);
            hdi_mutex_lock(&lock);
            registry_leave(i);
        }
        hdi_mutex_unlock(&lock);
    }
    return all;
}

void hdi_runtimes_count_lingering(int more)
{
    /* Release: a thread that sees the new count also sees that the runtime was given back. */
    atomic_fetch_add_explicit(&lingering, (uint32_t)more, memory_order_release);
    hdi_futex_wake(&lingering, INT32_MAX);
}

void hdi_runtimes_await_lingering(int64_t deadline)
{
    /* Acquire: pairs with hdi_runtimes_count_lingering. */
    for (uint32_t n; (n = atomic_load_explicit(&lingering, memory_order_acquire)) != 0;) {
        if (!hdi_futex_wait(&lingering, n, deadline)) {
            break;
        }
    }
}

/* The mutex is held. */
static int registry_place_with_id(uint64_t id)
{
    for (int i = 0; i < HDI_RUNTIMES_MAX; i++) {
        const hd_runtime *rt = registry_runtime_at(i);
        if (rt && !atomic_load(&places[i].leaving) && rt->id == id) {
            return i;
        }
    }
    return -1;
}

bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context)
{
    hdi_mutex_lock(&lock);
    int place = registry_place_with_id(id);
    if (place >= 0) {
        hd_runtime *rt = registry_runtime_at(place);
        places[place].visitors++;
        hdi_mutex_unlock(&lock);
        visit(rt, context);
        hdi_mutex_lock(&lock);
        registry_leave(place);
    }
    hdi_mutex_unlock(&lock);
    return place >= 0;
}
