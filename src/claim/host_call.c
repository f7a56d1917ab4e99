/* host_call.c - functions of the program that run on threads of the library once a claim is ready: hd_host_call and hd_claim_on_ready.
 *
 * A *watcher* of each device sleeps until some claim in a lane of that device is ready or over.
 * It gives ready claims to the *callers*. There are as many of these as are needed, up to the option call_threads.
 * So a call that is not ready keeps no thread from one that is. Threads are started at the first need.
 * A caller that waits inside of Heddle may wait for another call, so it does not count, and others are started. A caller that is one too many
 * afterwards ends.
 *
 * Threads: any; watchers and callers are the library's own.
 * Locks: one for the lists, shortly; none while the program's functions run.
 * Blocking: hd_close, until calls that were submitted have run and claims were ended (option close_timeout).
 * Always:
 * - A watcher looks at its claims once more after it has stored that it waits. So no bell is missed.
 * - A function is called at most once. It is not called for a claim that has been ended by then.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "claim/claim.h"
#include "engine/engine.h"

#define STUCK_TEXT (HDI_SITE_BYTES + 64)

/* Calls that were submitted and have not ended. A further one waits, so that calls leave lanes for claims and for the program. */
#define CALLS_MOST 64
#define CALLERS_MOST (256 + CALLS_MOST) /* the most of call_threads, and as many that wait as there can be calls */
#define SETTLE_NS 1000000               /* hd_close: between two looks at claims that the program has to end */
#define INLINE_SLEEP_NS 50000           /* placement inline: between two rounds in which the watcher runs the engines */

typedef void (*ready_function)(struct hd_claim *claim, hd_claim *handle, void *context);

/* A claim that a function waits for. */
typedef struct waiting {
    struct waiting *next;
    struct hd_claim *claim;
    hd_claim *handle;
    hdi_point ready;
    bool own; /* a claim of the library's: no program can end it */
    ready_function function;
    const void *of_program; /* the program's own function, for messages */
    void *context;
} waiting;

typedef struct list {
    waiting *first, *last;
} list;

/* What hd_claim_on_ready asks for. */
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
    hdi_caller here; /* first: it is known by its address */
    struct hdi_callers *all;
    pthread_t thread;
    enum { NEVER, RUNS, OVER } state; /* under the lock, like */
    const waiting *calls;             /* what it calls now; NULL: nothing */
} caller;

struct hdi_callers {
    hd_runtime *runtime;
    hdi_mutex lock;
    pthread_cond_t changed; /* something is to be called, or nothing is left, or it ends */
    bool stop;
    bool stuck; /* some function of the program has not returned in time */
    list due;
    uint32_t n_due;
    /* Callers, and which of them have not begun, wait for a call, are in a function of the program, and wait inside of Heddle there. */
    uint32_t n_threads, starting, idle, calling, waits;
    uint32_t unfinished; /* the library's own claims that are pending, due or being called */
    caller callers[CALLERS_MOST];
    watcher watchers[HDI_DEVICES_MAX];
    char stuck_text[STUCK_TEXT];
};

/* ---- lists ---- */

static void append(list *l, waiting *w)
{
    w->next = NULL;
    if (l->last) {
        l->last->next = w;
    } else {
        l->first = w;
    }
    l->last = w;
}

static waiting *take_first(list *l)
{
    waiting *w = l->first;
    if (w) {
        l->first = w->next;
        l->last = l->first ? l->last : NULL;
    }
    return w;
}

/* ---- callers ---- */

static void *call(void *argument);

/* Starts one more. The lock is held. Returns 0, or why it cannot be started. */
static int start_caller(struct hdi_callers *all)
{
    caller *own = all->callers;
    while (own < all->callers + CALLERS_MOST && own->state == RUNS) {
        own++;
    }
    if (own == all->callers + CALLERS_MOST) {
        return EAGAIN;
    }
    if (own->state == OVER) {
        pthread_join(own->thread, NULL); /* it takes no lock any more */
        own->state = NEVER;
    }
    own->all = all;
    int error = hdi_thread_start(&own->thread, call, own);
    if (!error) {
        own->state = RUNS;
        all->n_threads++;
        all->starting++;
    }
    return error;
}

/* How many more functions may run now. The lock is held. */
static uint32_t room(const struct hdi_callers *all)
{
    uint32_t runs = all->calling - all->waits, most = (uint32_t)all->runtime->options.call_threads;
    return runs < most ? most - runs : 0;
}

/* Sees that what is due is called: by callers that wait, or have not begun, and by more of them. The lock is held. */
static void want_callers(struct hdi_callers *all)
{
    uint32_t may = room(all), wanted = all->n_due < may ? all->n_due : may;
    while (!all->stop && wanted > all->idle + all->starting && start_caller(all) == 0) {
    }
    pthread_cond_broadcast(&all->changed);
}

/* The calling caller begins to wait inside of Heddle, or goes on. Then there may be more that run than call_threads, until one ends its call. */
static void caller_waits(hdi_caller *here, bool begins)
{
    struct hdi_callers *all = ((caller *)here)->all;
    hdi_mutex_lock(&all->lock);
    if (begins) {
        all->waits++;
        want_callers(all);
    } else {
        all->waits--;
    }
    hdi_mutex_unlock(&all->lock);
}

/* Makes one call. The lock is held, and not meanwhile. */
static void call_one(caller *own, waiting *w)
{
    struct hdi_callers *all = own->all;
    all->n_due--;
    all->calling++;
    own->calls = w;
    want_callers(all); /* what else is due may have counted on this one */
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
    want_callers(all);
}

static void *call(void *argument)
{
    caller *own = argument;
    struct hdi_callers *all = own->all;
    own->here = (hdi_caller){all->runtime, caller_waits};
    hdi_calling_here = HDI_CALLS_HOST;
    hdi_caller_note(&own->here);
    hdi_mutex_lock(&all->lock);
    all->starting--;
    while (!all->stop && all->n_threads - all->waits <= (uint32_t)all->runtime->options.call_threads) {
        waiting *w = room(all) ? take_first(&all->due) : NULL;
        if (w) {
            call_one(own, w);
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
static void look(watcher *own)
{
    list rest = {NULL, NULL};
    bool any = false;
    for (waiting *w; (w = take_first(&own->pending)) != NULL;) {
        bool ready = hdi_point_done(own->all->runtime, w->ready);
        append(ready ? &own->all->due : &rest, w);
        own->all->n_due += ready;
        any |= ready;
    }
    own->pending = rest;
    if (any) {
        want_callers(own->all);
    }
}

static void *watch(void *argument)
{
    watcher *own = argument;
    struct hdi_callers *all = own->all;
    hd_runtime *rt = all->runtime;
    hdi_engine_shared *engine = own->device->channel.engine;
    for (;;) {
        uint32_t bell = atomic_load_explicit(&engine->bell, memory_order_seq_cst);
        hdi_mutex_lock(&all->lock);
        bool idle = own->pending.first == NULL, stop = all->stop;
        /* Sequentially consistent with hdi_claim_ring, behind the store of `done`. */
        atomic_store_explicit(&engine->bell_wanted, !idle, memory_order_seq_cst);
        look(own);
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
            hdi_futex_wait(&engine->bell, bell, INT64_MAX);
        }
    }
}

static void wake(watcher *own)
{
    hdi_engine_shared *engine = own->device->channel.engine;
    atomic_fetch_add_explicit(&engine->bell, 1, memory_order_seq_cst);
    hdi_futex_wake(&engine->bell, 1);
}

/* Starts what is missing. The lock is held. Returns 0, or why a thread cannot be started. */
static int start(struct hdi_callers *all, watcher *own, hdi_device *device)
{
    int error = 0;
    if (!own->runs) {
        own->all = all;
        own->device = device;
        error = hdi_thread_start(&own->thread, watch, own);
        own->runs = error == 0;
    }
    if (!error && all->n_threads == 0) { /* so that what is submitted can be called */
        error = start_caller(all);
    }
    return error;
}

/* Calls `function` when the claim is ready, on a thread of the library. `of_program`: its function, for messages. `handle`: NULL for a claim that no program can end; else it is not called where the
 * claim has been ended before. `context` is freed where it never is. Errors: HOST_MEMORY, SYSTEM. */
static hd_status call_when_ready(struct hd_claim *c, hd_claim *handle, ready_function function, const void *of_program,
                                 void *context)
{
    struct hdi_callers *all = hdi_claim_of(c->runtime)->callers;
    watcher *own = &all->watchers[c->lane->device->index];
    waiting *w = malloc(sizeof *w);
    if (!w) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a call");
    }
    *w = (waiting){
        .claim = c,
        .handle = handle,
        .own = handle == NULL,
        .ready = {c->lane->global, c->at_once ? 0 : c->ready},
        .function = function,
        .of_program = of_program,
        .context = context,
    };
    hdi_mutex_lock(&all->lock);
    int error = start(all, own, c->lane->device);
    if (!error) {
        append(&own->pending, w);
        /* The watcher looks at the claims that it has when it is woken: after this. */
        atomic_store_explicit(&own->device->channel.engine->bell_wanted, 1, memory_order_seq_cst);
    }
    hdi_mutex_unlock(&all->lock);
    if (error) {
        free(w);
        return hdi_fail(HD_ERROR_SYSTEM, "cannot start a thread for calls: error %d", error);
    }
    wake(own);
    return HD_OK;
}

/* ---- hd_claim_on_ready ---- */

static void tell_program(struct hd_claim *c, hd_claim *handle, void *context)
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
    if (!hdi_claim_ask(c)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "a call was asked for before");
    }
    asked_call *asked = malloc(sizeof *asked);
    if (!asked) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a call");
    }
    *asked = (asked_call){function, context};
    hd_status status = call_when_ready(c, handle, tell_program, (const void *)(uintptr_t)function, asked);
    if (status) {
        free(asked);
    }
    return status;
}

/* ---- hd_host_call ---- */

/* Counts one call more, once there is room. */
static hd_status enter(struct hdi_callers *all)
{
    hd_runtime *rt = all->runtime;
    int64_t deadline = hdi_option_deadline(rt->options.submit_timeout);
    bool in_time = true;
    hdi_mutex_lock(&all->lock);
    while (all->unfinished >= CALLS_MOST && in_time && !hdi_calling_here && !hdi_is_closing(rt)) {
        in_time = hdi_cond_wait(&all->changed, &all->lock, deadline);
    }
    bool room = all->unfinished < CALLS_MOST;
    all->unfinished += room;
    hdi_mutex_unlock(&all->lock);
    if (room) {
        return HD_OK;
    }
    if (hdi_is_closing(rt)) {
        return hdi_closed_meanwhile();
    }
    return hdi_calling_here
               ? hdi_fail(HD_ERROR_LIMIT,
                          "%d calls have not ended; a function that the library calls cannot wait for that", CALLS_MOST)
               : hdi_fail(HD_ERROR_TIMEOUT, "%d calls have not ended (option submit_timeout)", CALLS_MOST);
}

static void leave(struct hdi_callers *all)
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

static void run(struct hd_claim *c, hd_claim *handle, void *context)
{
    (void)handle;
    host_call call = *(host_call *)context;
    free(context);
    hd_status status = hdi_claim_status(c);
    /* A claim that has failed already keeps that failure. */
    status = status ? HD_OK : call.function(c->pointers, call.context);
    hdi_claim_finish(c, status);
}

hd_status hd_host_call(hd_runtime *rt, hd_host_function function, void *context, const hd_arg *uses, size_t n_uses,
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
    struct hd_claim *c;
    hd_status status = enter(hdi_claim_of(rt)->callers);
    if (status) {
        free(call);
        return status;
    }
    status =
        hdi_claim_begin(rt, uses, n_uses, &(hd_claim_options){.label = "host call"}, __builtin_return_address(0), &c);
    if (!status) {
        hd_ticket ticket = {hdi_lane_handle(c->lane), c->end}; /* before the call, with which the claim ends */
        status = call_when_ready(c, NULL, run, (const void *)(uintptr_t)function, call);
        if (status) {
            hdi_claim_finish(c, status);
        } else if (out) {
            *out = ticket;
        }
    }
    if (status) {
        free(call);
        leave(hdi_claim_of(rt)->callers);
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

static void drop(list *l)
{
    for (waiting *w; (w = take_first(l)) != NULL;) {
        free(w->context);
        free(w);
    }
}

/* Whether the program has nothing to end or to run any more. The lock is held. */
static bool is_settled(const struct hdi_callers *all)
{
    return !all->unfinished && !all->calling && !all->n_due && !hdi_claims_are_open(all->runtime);
}

void hdi_callers_settle(hd_runtime *rt, int64_t deadline)
{
    struct hdi_callers *all = hdi_claim_of(rt)->callers;
    hdi_mutex_lock(&all->lock);
    for (int64_t now; !is_settled(all) && (now = hdi_clock_ns()) < deadline;) {
        int64_t look = now + SETTLE_NS; /* the end of a claim wakes no thread */
        hdi_cond_wait(&all->changed, &all->lock, look < deadline ? look : deadline);
    }
    hdi_mutex_unlock(&all->lock);
}

/* The lock is held. */
static void note_stuck(struct hdi_callers *all)
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
                 w->own ? "hd_host_call" : "hd_claim_on_ready");
    }
}

/* What hdi_callers_settle has not seen end may still do so. Claims of the program's own have stale handles by now, so no thread can end them. */
static void callers_stop(hd_runtime *rt)
{
    struct hdi_callers *all = hdi_claim_of(rt)->callers;
    if (!all) {
        return;
    }
    int64_t deadline = hdi_close_deadline(rt);
    hdi_mutex_lock(&all->lock);
    while ((all->unfinished || all->calling) && hdi_cond_wait(&all->changed, &all->lock, deadline)) {
    }
    all->stop = true;
    note_stuck(all);
    pthread_cond_broadcast(&all->changed);
    hdi_mutex_unlock(&all->lock);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        if (all->watchers[i].runs) {
            wake(&all->watchers[i]);
            pthread_join(all->watchers[i].thread, NULL);
        }
    }
    for (int i = 0; i < CALLERS_MOST; i++) { /* none is started any more */
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
            drop(&all->watchers[i].pending);
        }
        drop(&all->due);
        pthread_cond_destroy(&all->changed);
        hdi_mutex_destroy(&all->lock);
        free(all);
        hdi_claim_of(rt)->callers = NULL;
    }
}

const hdi_lifetime hdi_callers_lifetime = {.create = callers_create, .stop = callers_stop, .release = callers_release};
