/* close.c - hd_close: gives everything back within its limit, and reports what had to be left behind.
 *
 * Work in flight has the option close_timeout. Giving everything back means driver calls, joins and answers of workers,
 * each of which may never return. So a thread of the library does it, the closer. hd_close waits for the closer with a
 * limit of its own.
 *
 * Threads: hd_close on any. The closer ends with hd_close or, where hd_close gave up, when it is through.
 * Locks: none.
 * Always:
 * - What unended work may still use is neither freed nor unmapped.
 * - Nothing is freed while a call on the runtime is under way (presence.h).
 * - Of two calls that close a runtime one does it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/wait.h"
#include "base/error.h"
#include "base/thread.h"
#include "transfer/copy_pool.h"
#include "transfer/copy_lanes.h"
#include "kinds/findings.h"
#include "buffer/hold.h"
#include "buffer/maintenance.h"
#include "stats/page.h"
#include "buffer/reclaim.h"
#include "stats/report.h"
#include "transfer/peer_tester.h"
#include "transfer/staging.h"
#include "engine/providers.h"
#include "kernel/module.h"
#include "memory/pinned.h"
#include "memory/share.h"
#include "peer/peers.h"
#include "runtime/runtime_internal.h"
#include "tensor/matmul_library.h"
#include "worker/workers.h"

#define STOP_LEAST_NS 1000000000 /* an engine that is about to return from a driver call gets at least this long */
#define RELEASE_NS 5000000000    /* beyond close_timeout, for giving everything back */
#define LOOK_SLEEP_NS 1000000

static void release_kernels(hd_runtime *rt)
{
    for (int i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        free(atomic_load_explicit(&rt->kernels[i], memory_order_relaxed));
    }
}

/* ---- what is left behind ---- */

static const char *what_becomes(const hd_runtime *rt)
{
    return rt->is_process ? "its worker process was ended"
                          : "memory and devices are left as they are until the program ends";
}

/* Reports the first unfinished operation of a lane whose work did not end. */
static void tell_unfinished(hd_lane *lane, hd_error *left)
{
    hd_runtime *rt = lane->device->runtime;
    hd_error error = hdi_error_blank(HD_ERROR_TIMEOUT);
    uint64_t end = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    const hdi_command *c = hdi_lane_operation(&lane->device->channel, lane->number, end, lane->head, &end);
    char what[160];
    hdi_operation_text(rt, c ? c->op : 0, c && c->op == HDI_OP_LAUNCH ? c->kernel : 0, what, sizeof what);
    error.device = lane->device->index;
    error.lane = (int)lane->number;
    error.ticket = end;
    snprintf(error.message, sizeof error.message,
             "%s (device %d, lane %d, ticket %" PRIu64 ") did not end within close_timeout=%" PRId64 " ms; %s", what,
             error.device, error.lane, error.ticket, rt->options.close_timeout, what_becomes(rt));
    *left = error;
}

/* Reports a device that is lost, and works on. */
static void tell_running(hdi_device *device, hd_error *left)
{
    hd_runtime *rt = device->runtime;
    hdi_loss_fail(rt, device->index, "work did not end on the lost device");
    hdi_error_get(left);
    left->status = HD_ERROR_TIMEOUT;
    size_t length = strlen(left->message);
    snprintf(left->message + length, sizeof left->message - length, "; %s", what_becomes(rt));
}

static void tell_stuck(const char *what, int device, hd_error *left)
{
    *left = hdi_error_blank(HD_ERROR_TIMEOUT);
    left->device = device;
    snprintf(left->message, sizeof left->message,
             "%s does not return from the driver; what it may still use is left until it does", what);
}

/* ---- work in flight ---- */

/* Waits for the work of a device. True when all of it ended, or the device is lost and so its work has ended, too. */
static bool drain(hdi_device *device, int64_t deadline, hd_error *left)
{
    bool drained = true;
    bool has_engine = device->engine || device->runtime->workers;
    for (uint32_t i = 0; has_engine && i < HDI_LANES_MAX; i++) {
        hd_lane *lane = device->lanes[i];
        if (lane && !hdi_wait_position(device->runtime, lane->global, lane->head, deadline)) {
            if (drained && left && left->status == HD_OK) {
                tell_unfinished(lane, left);
            }
            drained = false;
        }
    }
    return drained;
}

/* Waits for work of a lost device in this process. It may go on, and the driver would wait for it without a limit.
 * True: it ended. */
static bool await_lost_work(hdi_device *device, int64_t deadline, hd_error *left)
{
    while (device->engine && hdi_device_lost(device) && hdi_engine_is_busy(device)) {
        if (hdi_clock_ns() >= deadline) {
            if (left && left->status == HD_OK) {
                tell_running(device, left);
            }
            return false;
        }
        hdi_sleep_for(LOOK_SLEEP_NS);
    }
    return true;
}

/* Waits for all work, then stops the engines. False: an engine is stuck in a driver call. *hung: some device has work
 * that did not end. */
static bool stop_engines(hd_runtime *rt, bool *hung, hd_error *left)
{
    int64_t deadline = hdi_option_deadline(rt->options.close_timeout);
    for (int i = 0; i < rt->n_devices; i++) {
        *hung |= rt->devices[i] && !drain(rt->devices[i], deadline, left);
    }
    bool stopped = true;
    int64_t least = hdi_deadline(STOP_LEAST_NS);
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i] && !hdi_engine_stop(rt->devices[i], deadline > least ? deadline : least)) {
            stopped = false;
            if (left) {
                tell_stuck("the engine", i, left);
            }
        }
    }
    for (int i = 0; stopped && i < rt->n_devices; i++) {
        *hung |= rt->devices[i] && !await_lost_work(rt->devices[i], deadline, left);
    }
    return stopped;
}

/* ---- giving everything back ---- */

static hd_status destroy(hdi_device *device, void *hung)
{
    hdi_device_destroy(device, *(bool *)hung);
    return HD_OK;
}

void hdi_runtime_tear_down(hd_runtime *rt, hd_error *left)
{
    bool hung = false;
    hd_error report = {.status = HD_OK};
    hdi_peer_tester_stop(rt);
    hdi_maintenance_stop(rt);
    hdi_copy_pool_release(rt);
    bool stopped = stop_engines(rt, &hung, left);
    if (left) {
        hdi_report_at_close(rt, &report);
        *left = left->status ? *left : report;
    }
    if (!stopped) {
        return; /* the stuck engine uses all of this if it ever returns */
    }
    /* With worker processes nothing hangs: what is theirs ends with them. */
    hdi_workers_release(rt);
    hung = hung && !rt->is_process;
    bool driver_usable = !hung && !rt->is_process;
    hdi_modules_release(rt, driver_usable);
    hdi_products_release(rt);
    hdi_holds_release(rt);
    hdi_holders_release(rt);
    hdi_buffers_release(rt);
    hdi_staging_release(rt);
    hdi_peer_tester_release(rt);
    hdi_peers_release(rt);
    hdi_thread_caches_destroy(rt);
    hdi_reclaim_release(rt);
    hdi_maintenance_release(rt);
    hdi_findings_release(rt);
    hdi_page_release(rt);
    if (!hung) { /* else it stays as it is: a kernel that goes on, and the program, may still use it */
        hdi_host_destroy(rt, driver_usable);
        hdi_pinned_pool_destroy(rt->pinned);
    }
    hdi_shares_release(rt);
    /* The devices come after all of this, since what belongs to one device may use what others own. */
    hdi_on_each(rt, destroy, &hung);
    release_kernels(rt);
    if (driver_usable) {
        hdi_driver_close(rt->driver);
    }
    hdi_losses_release(rt);
    hdi_mutex_destroy(&rt->restarting);
    hdi_mutex_destroy(&rt->cold);
    hdi_mutex_destroy(&rt->linking);
    hdi_options_release(&rt->options);
    hdi_stable_clear(rt->stable); /* with the runtime's own structure */
}

/* ---- handles ---- */

/* Ends all handles: from here on every call on anything of the runtime is refused. */
static void end_handles(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_lanes_close(rt->devices[i]);
    }
    hdi_modules_close(rt);
    hdi_holds_close(rt);
    hdi_buffers_close(rt);
}

/* ---- the closer ---- */

enum { RUNS, ENDED, ABANDONED };

typedef struct closer {
    hd_runtime *runtime;
    hd_error left;
    _Atomic uint32_t state; /* futex word */
} closer;

/* Waits until no other call is inside the runtime. False: a call does not return, and everything that it can reach must
 * stay. */
static bool empty(hd_runtime *rt, hd_error *left)
{
    end_handles(rt);
    atomic_store_explicit(&rt->closing, true, memory_order_seq_cst);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_wake_sleepers(rt->devices[i]);
    }
    hdi_peers_end(rt); /* threads that wait for a test return, too */
    bool out = hdi_presence_await(rt, hdi_option_deadline(rt->options.close_timeout));
    /* Waits for work in flight come after this, in the closing thread, and must not be cut short. */
    atomic_store_explicit(&rt->closing, false, memory_order_relaxed);
    if (!out) {
        *left = hdi_error_blank(HD_ERROR_TIMEOUT);
        snprintf(left->message, sizeof left->message,
                 "a call of another thread did not come back within close_timeout=%" PRId64
                 " ms; everything is left as it is",
                 rt->options.close_timeout);
    }
    return out;
}

static void *close_runtime(void *argument)
{
    closer *c = argument;
    hdi_call_continue("hd_close");
    if (c->runtime->driver) {
        hdi_captures_ignore(c->runtime->driver);
    }
    if (empty(c->runtime, &c->left)) {
        hdi_runtime_tear_down(c->runtime, &c->left);
    }
    /* pairs with the acquire of hd_close: `left` is complete. The last of the two frees it. */
    if (atomic_exchange_explicit(&c->state, ENDED, memory_order_acq_rel) == ABANDONED) {
        free(c);
    } else {
        hdi_futex_wake(&c->state, 1);
    }
    return NULL;
}

/* Waits for the closer, which is freed with its end. *left: what it has to report. */
static void await_closer(closer *c, pthread_t thread, int64_t deadline, hd_error *left)
{
    while (atomic_load_explicit(&c->state, memory_order_acquire) == RUNS) {
        uint32_t state = RUNS;
        if (!hdi_futex_wait(&c->state, RUNS, deadline) &&
            atomic_compare_exchange_strong_explicit(&c->state, &state, ABANDONED, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            pthread_detach(thread);
            tell_stuck("giving everything back", -1, left);
            return;
        }
    }
    pthread_join(thread, NULL);
    *left = c->left;
    free(c);
}

/* Closes on this thread, where no other one can be started. */
static void close_here(hd_runtime *rt, hd_error *left)
{
    const hdi_driver *driver = rt->driver;
    int captures = driver ? hdi_captures_ignore(driver) : HDI_MODE_UNKNOWN;
    if (empty(rt, left)) {
        hdi_runtime_tear_down(rt, left);
    }
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
}

hd_status hd_close(hd_runtime *rt)
{
    HDI_CALL();
    if (!rt) {
        return HD_OK;
    }
    if (hdi_presence_is_inside(rt)) {
        return hdi_fail(HD_ERROR_HANDLE, "this thread is inside a call on the runtime; close it outside of callbacks");
    }
    if (!hdi_runtime_remove(rt)) {
        return hdi_runtime_refused(rt);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_error left = {.status = HD_OK};
    int64_t deadline = hdi_deadline(rt->options.close_timeout * 1000000 + RELEASE_NS);
    closer *c = calloc(1, sizeof *c);
    pthread_t thread;
    if (c) {
        c->runtime = rt;
    }
    if (c && hdi_thread_start(&thread, close_runtime, c) == 0) {
        await_closer(c, thread, deadline, &left);
    } else {
        free(c);
        close_here(rt, &left);
    }
    hdi_attempt_end(&attempt);
    return left.status ? hdi_fail_error(&left) : HD_OK;
}
