/* host_call.c - hd_launch_host and hd_claim_on_ready: library threads run a function of the program
 * once a claim is ready.
 *
 * A *watcher* for each device sleeps until some claim in a lane of that device is ready or over.
 * The watcher passes ready claims to the *callers*, which are threads that run the functions.
 * Threads start when they are first needed, and at most call_threads callers (an option) run
 * functions at one time. A call whose claim is not ready occupies no caller. A function that waits
 * inside Heddle may be waiting for another call. So its caller does not count as running, and
 * another caller may start in its place. If that leaves too many callers, one of them ends.
 *
 * Threads: any; watchers and callers are library threads.
 * Locks: one for the lists, held briefly; no lock is held while the program's functions run.
 * Blocking: hd_close waits until the submitted calls have run and their claims are ended (option
 * close_timeout).
 * Always:
 * - Before a watcher sleeps, it stores that it waits, and then looks at its claims once more. So
 *   the watcher misses no claim that becomes ready, or that ends.
 * - If no thread can be started for an accepted call, a watcher tries again until one starts.
 * - A function is called at most once. It is not called for a claim that was already ended.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "claim/claim.h"
#include "engine/engine.h"

#define STUCK_TEXT (HDI_SITE_BYTES + 64)

/* The most submitted calls that are not over. A further call waits until one of these calls is
 * over. So enough lanes are left for claims and for the program. */
#define CALLS_MOST 64
/* the maximum of the option call_threads, plus one caller that waits inside Heddle for each call */
#define CALLERS_MOST (256 + CALLS_MOST)
/* hd_close checks at this interval whether the program ended its claims */
#define SETTLE_NS 1000000
#define LACKS_NS 1000000 /* the time between two tries to start a thread after a failure */
/* placement inline: the time between two rounds in which the watcher runs the engines */
#define INLINE_SLEEP_NS 50000

typedef void (*ready_function)(struct hd_claim *claim, hd_claim *handle, void *context);

/* A claim that a function waits for. */
typedef struct waiting {
    struct waiting *next;
    struct hd_claim *claim;
    hd_claim *handle;
    hdi_point ready;
    bool own; /* the claim belongs to the library, so the program cannot end it */
    ready_function function;
    const void *of_program; /* the program's function, for messages */
    void *context;
} waiting;

typedef struct list {
    waiting *first, *last;
} list;

/* A request by hd_claim_on_ready. */
typedef struct asked_call {
    hd_claim_function function;
    void *context;
} asked_call;

typedef struct watcher {
    struct hdi_callers *all;
    hdi_device *device;
    pthread_t thread;
    bool runs;
    list pending; /* under the lock */
} watcher;

typedef struct caller {
    hdi_caller here; /* first: its address identifies the caller */
    struct hdi_callers *all;
    pthread_t thread;
    enum { NEVER, RUNS, OVER } state; /* both fields: under the lock */
    const waiting *calls;             /* the call under way; NULL: none */
} caller;

struct hdi_callers {
    hd_runtime *runtime;
    hdi_mutex lock;
    /* signalled when a call is due, when nothing is left, or when the threads must end */
    pthread_cond_t changed;
    bool stop;
    bool lacks; /* some thread that is needed could not be started, so watchers try again */
    /* when the time of close_timeout was up, hd_close woke a function that waited inside Heddle */
    bool woken;
    bool stuck; /* some function of the program did not return in time */
    /* hd_close found nothing to wait for, or its time is up. Only functions that the library calls
     * may add calls. */
    bool settled;
    list due;
    uint32_t n_due;
    /* The number of all callers, and how many of them are in which state. `starting`: not begun
     * yet. `idle`: nothing to do. `calling`: in a function of the program. `waits`: in such a
     * function, which waits inside Heddle. */
    uint32_t n_threads, starting, idle, calling, waits;
    /* the number of the library's claims whose call is pending, due or under way */
    uint32_t unfinished;
    caller callers[CALLERS_MOST];
    watcher watchers[HDI_DEVICES_MAX];
    char stuck_text[STUCK_TEXT];
};

/* ---- lists ---- */

static void waiting_calls_append(list *l, waiting *w)
{
    w->next = NULL;
    if (l->last) {
        l->last->next = w;
    } else {
        l->first = w;
    }
    l->last = w;
}

static waiting *waiting_calls_take_first(list *l)
{
    waiting *w = l->first;
    if (w) {
        l->first = w->next;
        l->last = l->first ? l->last : NULL;
    }
    return w;
}

/* ---- callers ---- */

static void *callers_run(void *argument);

/* Starts one more caller. The lock is held. Returns 0, or the error. */
static int callers_start_caller(struct hdi_callers *all)
{
    HDI_UNCANCELLED;
    caller *own = all->callers;
    while (own < all->callers + CALLERS_MOST && own->state == RUNS) {
        own++;
    }
    if (own == all->callers + CALLERS_MOST) {
        return EAGAIN;
    }
    if (own->state == OVER) {
        pthread_join(own->thread, NULL); /* the thread is about to end, and takes no more locks */
        own->state = NEVER;
    }
    own->all = all;
    int error = hdi_thread_start(&own->thread, callers_run, own);
    if (!error) {
        own->state = RUNS;
        all->n_threads++;
        all->starting++;
    }
    return error;
}

/* The number of further functions that may run now. The lock is held. */
static uint32_t callers_room(const struct hdi_callers *all)
{
    uint32_t runs = all->calling - all->waits, most = (uint32_t)all->runtime->options.call_threads;
    return runs < most ? most - runs : 0;
}

static void callers_wake_watcher(watcher *own)
{
    hdi_engine_shared *engine = own->device->channel.engine;
    atomic_fetch_add_explicit(&engine->bell, 1, memory_order_seq_cst);
    hdi_futex_wake(&engine->bell, 1);
}

/* Finds callers for the due calls: idle, starting or new callers. The lock is held. */
static void callers_want(struct hdi_callers *all)
{
    uint32_t may = callers_room(all), wanted = all->n_due < may ? all->n_due : may;
    bool lacked = all->lacks;
    all->lacks = false;
    while (!all->stop && !all->lacks && wanted > all->idle + all->starting) {
        all->lacks = callers_start_caller(all) != 0;
    }
    for (int i = 0; all->lacks && !lacked && i < HDI_DEVICES_MAX; i++) {
        if (all->watchers[i].runs) {
            callers_wake_watcher(&all->watchers[i]);
        }
    }
    pthread_cond_broadcast(&all->changed);
}

/* Notes that the function of a caller begins or ends a wait inside Heddle. After a wait ends, more
 * functions than call_threads may run, until one of them returns. */
static void callers_note_wait(hdi_caller *here, bool begins)
{
    struct hdi_callers *all = ((caller *)here)->all;
    hdi_mutex_lock(&all->lock);
    if (begins) {
        all->waits++;
        callers_want(all);
    } else {
        all->waits--;
    }
    hdi_mutex_unlock(&all->lock);
}

/* Makes one call. The lock is held, but not during the call. */
static void callers_call_one(caller *own, waiting *w)
{
    struct hdi_callers *all = own->all;
    all->n_due--;
    all->calling++;
    own->calls = w;
    callers_want(all); /* other due calls may need a caller in place of this one */
    hdi_mutex_unlock(&all->lock);
    if (w->own || hdi_claim_from_handle(w->handle) == w->claim) {
        w->function(w->claim, w->handle, w->context);
    } else {
        free(w->context);
    }
    hdi_mutex_lock(&all->lock);
    own->calls = NULL;
    all->calling--;
    all->unfinished -= w->own;
    free(w);
    callers_want(all);
}

static void *callers_run(void *argument)
{
    caller *own = argument;
    struct hdi_callers *all = own->all;
    own->here = (hdi_caller){all->runtime, callers_note_wait};
    hdi_calling_here = HDI_CALLS_HOST;
    hdi_thread_note_caller(&own->here);
    hdi_mutex_lock(&all->lock);
    all->starting--;
    while (!all->stop && all->n_threads - all->waits <= (uint32_t)all->runtime->options.call_threads) {
        waiting *w = callers_room(all) ? waiting_calls_take_first(&all->due) : NULL;
        if (w) {
            callers_call_one(own, w);
        } else {
            all->idle++;
            hdi_mutex_wait(&all->lock, &all->changed);
            all->idle--;
        }
    }
    all->n_threads--;
    own->state = OVER;
    hdi_mutex_unlock(&all->lock);
    return NULL;
}

/* ---- watchers ---- */

/* Makes ready claims due. The lock is held. */
static void callers_look(watcher *own)
{
    list rest = {NULL, NULL};
    bool any = false;
    for (waiting *w; (w = waiting_calls_take_first(&own->pending)) != NULL;) {
        bool ready = hdi_point_done(own->all->runtime, w->ready);
        waiting_calls_append(ready ? &own->all->due : &rest, w);
        own->all->n_due += ready;
        any |= ready;
    }
    own->pending = rest;
    if (any) {
        callers_want(own->all);
    }
}

static void *callers_run_watcher(void *argument)
{
    watcher *own = argument;
    struct hdi_callers *all = own->all;
    hd_runtime *rt = all->runtime;
    hdi_engine_shared *engine = own->device->channel.engine;
    for (;;) {
        uint32_t bell = atomic_load_explicit(&engine->bell, memory_order_seq_cst);
        hdi_mutex_lock(&all->lock);
        bool idle = own->pending.first == NULL, stop = all->stop;
        /* Sequentially consistent with hdi_claim_ring, which follows the store of `done`. */
        atomic_store_explicit(&engine->bell_wanted, !idle, memory_order_seq_cst);
        callers_look(own);
        if (all->lacks) {
            callers_want(all);
        }
        bool lacks = all->lacks;
        hdi_mutex_unlock(&all->lock);
        if (stop) {
            return NULL;
        }
        if (rt->is_inline && !idle) {
            for (int i = 0; i < rt->n_devices; i++) {
                hdi_engine_run_inline(rt->devices[i]);
            }
            hdi_sleep_for(INLINE_SLEEP_NS);
        } else {
            hdi_futex_wait(&engine->bell, bell, lacks ? hdi_clock_ns() + LACKS_NS : INT64_MAX);
        }
    }
}

/* Starts missing threads. The lock is held. Returns 0, or the error of a thread that cannot be
 * started. */
static int callers_start(struct hdi_callers *all, watcher *own, hdi_device *device)
{
    int error = 0;
    if (!own->runs) {
        own->all = all;
        own->device = device;
        error = hdi_thread_start(&own->thread, callers_run_watcher, own);
        own->runs = error == 0;
    }
    /* starts at least one caller, so that submitted calls can run */
    if (!error && all->n_threads == 0) {
        error = callers_start_caller(all);
    }
    return error;
}

/* Prepares a call of `wanted.function` on a library thread, once its claim is ready. Does
 * everything that can fail. The caller frees *out if it does not continue with waiting_call_begin.
 * Errors: HOST_MEMORY, SYSTEM. */
static hd_status waiting_call_prepare(const waiting *wanted, waiting **out)
{
    hdi_device *device = wanted->claim->lane->device;
    struct hdi_callers *all = hdi_claim_of(device->runtime)->callers;
    waiting *w = malloc(sizeof *w);
    if (!w) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a call");
    }
    *w = *wanted;
    hdi_mutex_lock(&all->lock);
    int error = callers_start(all, &all->watchers[device->index], device);
    hdi_mutex_unlock(&all->lock);
    if (error) {
        free(w);
        return hdi_fail(
            HD_ERROR_SYSTEM,
            "cannot start a thread for calls: %s; allow more threads (ulimit -u), or memory for them (ulimit -v)",
            strerror(error));
    }
    *out = w;
    return HD_OK;
}

/* Hands the call to the watcher. The call's claim has begun. */
static void waiting_call_begin(waiting *w)
{
    const struct hd_claim *c = w->claim;
    struct hdi_callers *all = hdi_claim_of(c->runtime)->callers;
    watcher *own = &all->watchers[c->lane->device->index];
    w->ready = (hdi_point){c->lane->global, c->at_once ? 0 : c->ready};
    atomic_store_explicit(&c->lane->claim_called, c->end, memory_order_relaxed);
    hdi_mutex_lock(&all->lock);
    waiting_calls_append(&own->pending, w);
    /* The watcher checks its claims after the wake-up below, so it need not see this store before
     * that. */
    atomic_store_explicit(&own->device->channel.engine->bell_wanted, 1, memory_order_seq_cst);
    hdi_mutex_unlock(&all->lock);
    callers_wake_watcher(own);
}

/* ---- hd_claim_on_ready ---- */

static void host_call_tell_program(struct hd_claim *c, hd_claim *handle, void *context)
{
    asked_call asked = *(asked_call *)context;
    free(context);
    asked.function(handle, hdi_claim_status(c), asked.context);
}

hd_status hd_claim_on_ready(hd_claim *handle, hd_claim_function function, void *context)
{
    HDI_INSIDE(hdi_claim_runtime(handle));
    struct hd_claim *c = hdi_claim_from_handle(handle);
    if (!c) {
        return hdi_claim_refused(handle);
    }
    if (!function) {
        return hdi_fail(HD_ERROR_ARGUMENT, "function is null");
    }
    asked_call *asked = malloc(sizeof *asked);
    if (!asked) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a call");
    }
    *asked = (asked_call){function, context};
    const waiting wanted = {.claim = c,
                            .handle = handle,
                            .function = host_call_tell_program,
                            .of_program = (const void *)(uintptr_t)function,
                            .context = asked};
    waiting *w = NULL;
    hd_status status = waiting_call_prepare(&wanted, &w);
    if (!status && !hdi_claim_ask(c)) {
        free(w);
        status = hdi_fail(HD_ERROR_ARGUMENT, "a call was already requested for this claim");
    }
    if (status) {
        free(asked);
        return status;
    }
    waiting_call_begin(w);
    return HD_OK;
}

/* ---- hd_launch_host ---- */

/* Counts one more call, once there is room. */
static hd_status host_call_enter(struct hdi_callers *all)
{
    hd_runtime *rt = all->runtime;
    int64_t deadline = hdi_option_deadline(rt->options.submit_timeout);
    bool in_time = true;
    hdi_mutex_lock(&all->lock);
    while (all->unfinished >= CALLS_MOST && in_time && !hdi_calling_here && !hdi_is_closing(rt)) {
        in_time = hdi_cond_wait(&all->changed, &all->lock, deadline);
    }
    bool late = all->settled && !hdi_calling_here, room = !late && all->unfinished < CALLS_MOST;
    all->unfinished += room;
    hdi_mutex_unlock(&all->lock);
    if (room) {
        return HD_OK;
    }
    if (late || hdi_is_closing(rt)) {
        return hdi_closed_meanwhile();
    }
    return hdi_calling_here
               ? hdi_fail(HD_ERROR_LIMIT,
                          "%d calls have not ended; a function that the library calls cannot wait for that", CALLS_MOST)
               : hdi_fail(HD_ERROR_TIMEOUT, "%d calls have not ended (option submit_timeout)", CALLS_MOST);
}

static void host_call_leave(struct hdi_callers *all)
{
    hdi_mutex_lock(&all->lock);
    all->unfinished--;
    pthread_cond_broadcast(&all->changed);
    hdi_mutex_unlock(&all->lock);
}

typedef struct host_call {
    hd_host_function function;
    void *context;
} host_call;

static void host_call_run(struct hd_claim *c, hd_claim *handle, void *context)
{
    (void)handle;
    host_call call = *(host_call *)context;
    free(context);
    hd_status status = hdi_claim_status(c);
    /* If the claim already failed, the function is not called. The claim's failure stays. */
    status = status ? HD_OK : call.function(c->pointers, call.context);
    hdi_claim_finish(c, status);
}

/* All steps that can fail come before the claim's begin, so a refused call changes nothing. */
static hd_status host_call_submit(hd_runtime *rt, host_call *call, const hd_arg *args, size_t n_args, const void *site,
                                  hd_ticket *out)
{
    hdi_use uses[HDI_USES_OF_ONE];
    struct hd_claim *c;
    hd_status status = hdi_claim_prepare(rt, args, n_args, uses, &c);
    if (status) {
        return status;
    }
    const waiting wanted = {.claim = c,
                            .own = true,
                            .function = host_call_run,
                            .of_program = (const void *)(uintptr_t)call->function,
                            .context = call};
    waiting *w = NULL;
    status = waiting_call_prepare(&wanted, &w);
    if (status) {
        hdi_claim_give(c);
        return status;
    }
    status = hdi_claim_submit(c, uses, n_args, &(hdi_claim_begun){.label = "host call", .site = site});
    if (status) {
        free(w);
        return status;
    }
    /* read the ticket before the call runs, since the call ends the claim */
    hd_ticket ticket = {hdi_lane_handle(c->lane), c->end};
    waiting_call_begin(w);
    if (out) {
        *out = ticket;
    }
    return HD_OK;
}

hd_status hd_launch_host(hd_runtime *rt, hd_host_function function, void *context, const hd_arg *uses, size_t n_uses,
                         hd_ticket *out)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (!function) {
        return hdi_fail(HD_ERROR_ARGUMENT, "function is null");
    }
    host_call *call = malloc(sizeof *call);
    if (!call) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a call");
    }
    *call = (host_call){function, context};
    hd_status status = host_call_enter(hdi_claim_of(rt)->callers);
    if (status) {
        free(call);
        return status;
    }
    status = host_call_submit(rt, call, uses, n_uses, __builtin_return_address(0), out);
    if (status) {
        free(call);
        host_call_leave(hdi_claim_of(rt)->callers);
    }
    return status;
}

/* ---- beginning and end ---- */

static hd_status callers_create(hd_runtime *rt)
{
    struct hdi_callers *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    all->runtime = rt;
    hdi_mutex_init(&all->lock, HDI_RANK_CALLERS);
    hdi_cond_init(&all->changed);
    hdi_claim_of(rt)->callers = all;
    return HD_OK;
}

static void waiting_calls_drop(list *l)
{
    for (waiting *w; (w = waiting_calls_take_first(l)) != NULL;) {
        free(w->context);
        free(w);
    }
}

/* True if the program has no claim left to end, and no call is left to run. The lock is held. */
static bool callers_are_settled(const struct hdi_callers *all)
{
    return !all->unfinished && !all->calling && !all->n_due && !hdi_claims_are_open(all->runtime);
}

/* The lock is held. */
static void callers_await_settled(struct hdi_callers *all, int64_t deadline)
{
    for (int64_t now; !callers_are_settled(all) && (now = hdi_clock_ns()) < deadline;) {
        int64_t look = now + SETTLE_NS; /* the end of a claim wakes no thread */
        hdi_cond_wait(&all->changed, &all->lock, look < deadline ? look : deadline);
    }
}

/* When hd_close began, some thread may have been inside a call that begins a claim or a host call.
 * So after the first wait, this function refuses what such calls still begin, and then waits for
 * what they had begun by then. */
void hdi_callers_settle(hd_runtime *rt, int64_t deadline)
{
    struct hdi_callers *all = hdi_claim_of(rt)->callers;
    hdi_mutex_lock(&all->lock);
    callers_await_settled(all, deadline);
    all->settled = true;
    hdi_mutex_unlock(&all->lock);
    atomic_store_explicit(&rt->claims_ended, true, memory_order_relaxed);
    hdi_biased_barrier(); /* pairs with hdi_claim_fence in hdi_claim_give_out */
    hdi_mutex_lock(&all->lock);
    callers_await_settled(all, deadline);
    all->woken = all->waits != 0;
    hdi_mutex_unlock(&all->lock);
}

/* The lock is held. */
static void callers_note_stuck(struct hdi_callers *all)
{
    const waiting *w = NULL;
    for (int i = 0; i < CALLERS_MOST && !w; i++) {
        w = all->callers[i].state == RUNS ? all->callers[i].calls : NULL;
    }
    all->stuck = w != NULL;
    if (w) {
        char where[HDI_SITE_BYTES];
        hdi_site_text(w->of_program, where);
        snprintf(all->stuck_text, sizeof all->stuck_text, "the function %s, of %s, does not return", where,
                 w->own ? "hd_launch_host" : "hd_claim_on_ready");
    }
}

/* Functions of the program already got the whole time of close_timeout (hdi_callers_settle). If
 * hd_close woke a function that waited inside Heddle, the function gets the usual time of a step to
 * return. Otherwise a tenth of close_timeout is enough, since only callers between two calls need
 * time. The lock is held. */
static int64_t callers_stop_deadline(const struct hdi_callers *all)
{
    int64_t usual = hdi_close_deadline(all->runtime);
    int64_t brief = hdi_deadline(all->runtime->options.close_timeout * (1000000 / 10));
    return all->woken || usual < brief ? usual : brief;
}

/* Calls that still ran when hdi_callers_settle returned may still end. The handles of the program's
 * claims are stale by now, so no thread can end these claims. */
static void callers_stop(hd_runtime *rt)
{
    struct hdi_callers *all = hdi_claim_of(rt)->callers;
    if (!all) {
        return;
    }
    hdi_mutex_lock(&all->lock);
    int64_t deadline = callers_stop_deadline(all);
    while ((all->unfinished || all->calling) && hdi_cond_wait(&all->changed, &all->lock, deadline)) {
    }
    all->stop = true;
    callers_note_stuck(all);
    pthread_cond_broadcast(&all->changed);
    hdi_mutex_unlock(&all->lock);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        if (all->watchers[i].runs) {
            callers_wake_watcher(&all->watchers[i]);
            pthread_join(all->watchers[i].thread, NULL);
        }
    }
    for (int i = 0; i < CALLERS_MOST; i++) { /* no more threads are started */
        hdi_mutex_lock(&all->lock);
        bool made = all->callers[i].state != NEVER;
        hdi_mutex_unlock(&all->lock);
        if (made && all->stuck) {
            pthread_detach(all->callers[i].thread);
        } else if (made) {
            pthread_join(all->callers[i].thread, NULL);
        }
    }
}

const char *hdi_callers_stuck(hd_runtime *rt)
{
    const struct hdi_callers *all = hdi_claim_of(rt)->callers;
    return all && all->stuck ? all->stuck_text : NULL;
}

static void callers_release(hd_runtime *rt)
{
    struct hdi_callers *all = hdi_claim_of(rt)->callers;
    if (all) {
        for (int i = 0; i < HDI_DEVICES_MAX; i++) {
            waiting_calls_drop(&all->watchers[i].pending);
        }
        waiting_calls_drop(&all->due);
        pthread_cond_destroy(&all->changed);
        hdi_mutex_destroy(&all->lock);
        free(all);
        hdi_claim_of(rt)->callers = NULL;
    }
}

const hdi_lifetime hdi_callers_lifetime = {.create = callers_create, .stop = callers_stop, .release = callers_release};
