/* closer.c - hd_close, and the thread that gives a runtime back.
 *
 * hd_close returns within a time limit, and reports everything that it did not give back. The
 * option close_timeout limits the wait for work in flight. To give everything back takes driver
 * calls, joins of threads, and answers of workers. Each of these may never return. So a thread of
 * the library, the closer, does this work. hd_close waits for the closer for RELEASE_NS more.
 *
 * When NVIDIA's driver unpins memory or unloads code, it waits for all kernels of the process.
 * Meanwhile it holds up all other driver calls of the process. So the closer first waits for a time
 * at which the driver need not wait for work of other runtimes (engine/rest.h). If this wait is
 * longer than LINGER_NS, the closer gives back the memory of the devices, and hd_close returns. The
 * closer then goes on waiting, and later gives back everything else. If hd_close closes the last
 * open runtime of the process, it waits for such closers.
 *
 * Threads: hd_close runs on any thread. The closer ends when it gave everything back, before
 * or after hd_close returns.
 * Locks: none.
 * Always: if two threads close the same runtime at the same time, only one of the two calls closes
 * it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/region.h"
#include "claim/claim.h"
#include "engine/rest.h"
#include "memory/arena.h"
#include "runtime/runtime_internal.h"

/* hd_close waits for the closer for close_timeout, and then for this time */
#define RELEASE_NS 5000000000
#define LOOK_SLEEP_NS 1000000
/* The longest time that the closer waits for other runtimes before hd_close may return. It is long
 * enough to see which lanes make progress (engine/rest.h). */
#define LINGER_NS 2000000000

/* ---- giving back beside other runtimes ---- */

/* Gives the memory of the devices back. To do this, the driver does not wait for kernels. */
static void closer_give_device_memory(hd_runtime *rt)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_arena_give_back(rt->devices[i] ? rt->devices[i]->arena : NULL);
    }
    hdi_attempt_end(&attempt);
}

static bool closer_run_inline(hd_runtime *rt, uint32_t place, void *unused)
{
    (void)place;
    (void)unused;
    /* with placement inline, no other thread may notice finished work */
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]);
    }
    return true;
}

/* Waits for a time at which the driver would not wait for kernels of other runtimes, and would not
 * hold up their calls. False: the deadline passed. */
static bool closer_await_rest_beside(hd_runtime *rt, hdi_rest *rest, int64_t deadline)
{
    bool calls = rt->driver && !rt->is_process && !rt->hung;
    bool near = !calls || hdi_rest_is_near_beside(rest, rt);
    while (!near && hdi_clock_ns() < deadline) {
        hdi_sleep_for(LOOK_SLEEP_NS);
        hdi_runtimes_all_beside(rt, closer_run_inline, NULL);
        near = hdi_rest_is_near_beside(rest, rt);
    }
    return near;
}

typedef struct closer {
    hd_runtime *runtime;
    hd_error left;
    _Atomic uint32_t state; /* futex word */
} closer;

/* The closer sets RUNS, LINGERS and ENDED. hd_close sets ABANDONED.
 * - RUNS: the closer works, and hd_close waits
 * - LINGERS: the closer works, and hd_close may return
 * - ENDED: everything is given back
 * - ABANDONED: hd_close returned, so the closer frees its record */
enum { RUNS, LINGERS, ENDED, ABANDONED };

/* Reports imported memory that stays pinned for now. An import with a function `released` does not
 * count, since this function tells the program when the memory is unpinned. */
static void closer_report_pinned(closer *c)
{
    uint64_t bytes = hdi_buffer_of(c->runtime)->regions ? hdi_regions_untold_bytes(c->runtime) : 0;
    if (bytes && c->left.status == HD_OK) {
        c->left = hdi_error_blank(HD_ERROR_TIMEOUT);
        snprintf(c->left.message, sizeof c->left.message,
                 "%s of imported memory stay pinned until work of another runtime ends; keep them until then, or give "
                 "hd_import_host a function `released`",
                 HDI_BYTES(bytes));
    }
}

/* Tells hd_close that it may return. */
static void closer_let_go(closer *c)
{
    uint32_t state = RUNS;
    /* release: `left` is complete */
    if (atomic_compare_exchange_strong_explicit(&c->state, &state, LINGERS, memory_order_release,
                                                memory_order_relaxed)) {
        hdi_futex_wake(&c->state, 1);
    }
}

/* Gives the runtime back at a time when this holds up no other runtime. */
static void closer_give_back(closer *c)
{
    hd_runtime *rt = c->runtime;
    hdi_rest rest = {.beside = NULL};
    bool lingers = !closer_await_rest_beside(rt, &rest, hdi_deadline(LINGER_NS));
    if (lingers) {
        closer_give_device_memory(rt);
        hdi_runtimes_count_lingering(1);
        closer_report_pinned(c);
        closer_let_go(c);
        closer_await_rest_beside(rt, &rest, INT64_MAX);
    }
    hdi_rest_end(&rest);
    hdi_runtime_give_back(rt);
    if (lingers) {
        hdi_runtimes_count_lingering(-1);
    }
}

/* Notes that the closer is done. Pairs with the acquire load of hd_close: `left` is complete. If
 * hd_close already returned, frees the record. Otherwise hd_close frees it. */
static void closer_end(closer *c)
{
    if (atomic_exchange_explicit(&c->state, ENDED, memory_order_acq_rel) == ABANDONED) {
        free(c);
    } else {
        hdi_futex_wake(&c->state, 1);
    }
}

static void *closer_run_half_made(void *argument)
{
    closer *c = argument;
    hdi_call_continue("hd_open");
    hdi_captures_ignore(c->runtime->driver);
    closer_give_back(c);
    closer_end(c);
    hdi_runtimes_count_lingering(-1);
    return NULL;
}

void hdi_runtime_give_back_half_made(hd_runtime *rt)
{
    hdi_rest rest = {.beside = NULL};
    bool near = closer_await_rest_beside(rt, &rest, 0);
    hdi_rest_end(&rest);
    closer *c = near ? NULL : calloc(1, sizeof *c);
    pthread_t thread;
    if (c) {
        c->runtime = rt;
        atomic_init(&c->state, ABANDONED);
        hdi_runtimes_count_lingering(1);
    }
    if (c && hdi_thread_start(&thread, closer_run_half_made, c) == 0) {
        pthread_detach(thread);
    } else {
        hdi_runtimes_count_lingering(c ? -1 : 0);
        free(c);
        hdi_runtime_give_back(rt);
    }
}

/* ---- hd_close: the closer ---- */

static void *closer_run(void *argument)
{
    closer *c = argument;
    hdi_call_continue("hd_close");
    if (c->runtime->driver) {
        hdi_captures_ignore(c->runtime->driver);
    }
    if (hdi_runtime_await_calls(c->runtime, &c->left) && hdi_runtime_stop(c->runtime, &c->left)) {
        closer_give_back(c);
    }
    closer_end(c);
    return NULL;
}

/* Waits for the closer until it ends, lingers, or the deadline passes. If it ended, frees its
 * record. *left: the closer's report. */
static void closer_await(closer *c, pthread_t thread, int64_t deadline, hd_error *left)
{
    uint32_t state;
    while ((state = atomic_load_explicit(&c->state, memory_order_acquire)) != ENDED) {
        bool lingers = state == LINGERS;
        hd_error report = {.status = HD_OK};
        if (lingers) {
            report = c->left;
        } else if (hdi_futex_wait(&c->state, RUNS, deadline)) {
            continue;
        }
        if (atomic_compare_exchange_strong_explicit(&c->state, &state, ABANDONED, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            pthread_detach(thread);
            if (lingers) {
                *left = report;
            } else {
                hdi_runtime_report_stuck("giving everything back does not return from the driver, which may wait for "
                                         "kernels of the program that Heddle did not launch",
                                         -1, left);
            }
            return;
        }
    }
    pthread_join(thread, NULL);
    *left = c->left;
    free(c);
}

/* Closes the runtime on this thread. Called if no closer can be started. */
static void closer_close_here(hd_runtime *rt, hd_error *left)
{
    const hdi_driver *driver = rt->driver;
    int captures = driver ? hdi_captures_ignore(driver) : HDI_MODE_UNKNOWN;
    hdi_rest rest = {.beside = NULL};
    if (!hdi_runtime_await_calls(rt, left) || !hdi_runtime_stop(rt, left)) {
        /* everything stays */
    } else if (closer_await_rest_beside(rt, &rest, hdi_deadline(LINGER_NS))) {
        hdi_runtime_give_back(rt);
    } else {
        hdi_runtime_report_stuck(
            "another runtime of the process has work, for which the driver would wait, and no thread "
            "can be started to give pinned memory back later",
            -1, left);
    }
    hdi_rest_end(&rest);
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
}

hd_status hd_close(hd_runtime *rt)
{
    HDI_UNCANCELLED;
    HDI_CALL();
    if (!rt) {
        return HD_OK;
    }
    HDI_REFUSE_IN_LANE(__func__)
    if (hdi_presence_is_inside(rt) || (hdi_thread_caller() && hdi_thread_caller()->runtime == rt)) {
        return hdi_fail(HD_ERROR_HANDLE,
                        "this thread is inside a call on the runtime, or in a function that the runtime "
                        "called; close it outside of callbacks");
    }
    if (!hdi_runtime_begin_close(rt)) {
        return hdi_runtime_refused(rt);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_error left = {.status = HD_OK};
    int64_t deadline = hdi_deadline(rt->options.close_timeout * 1000000 + RELEASE_NS);
    rt->close_by = hdi_option_deadline(rt->options.close_timeout);
    closer *c = calloc(1, sizeof *c);
    pthread_t thread;
    if (c) {
        c->runtime = rt;
    }
    if (c && hdi_thread_start(&thread, closer_run, c) == 0) {
        closer_await(c, thread, deadline, &left);
    } else {
        free(c);
        closer_close_here(rt, &left);
    }
    if (left.status != HD_ERROR_TIMEOUT && !hdi_runtimes_are_open_beside(NULL)) {
        hdi_runtimes_await_lingering(deadline);
    }
    hdi_attempt_end(&attempt);
    return left.status ? hdi_fail_error(&left) : HD_OK;
}
