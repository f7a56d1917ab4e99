/* checker.c - checks the guards of freed buffers with unfinished work, on a thread called the
 * checker.
 *
 * hd_free must not wait for a claim, since the thread that calls hd_free may be the thread that has
 * to end the claim. So if work on a freed buffer is unfinished, the library puts the buffer into a
 * hold. Once no work uses the buffer, the checker ends the hold and checks the guards, as hd_free
 * would (guard.c). The checker's operations run in a lane of their own on each device. No operation
 * in that lane waits for work of the program, so no claim delays the lane.
 *
 * Threads: any. The checker starts when it is first needed.
 * Locks: the list's lock. Under it, the checker takes the lock of a buffer's record.
 * Blocking: the stop of the checker waits for work in flight (option close_timeout). It does not
 * wait for claims that the program left open.
 * Always: each freed buffer whose guards are still to be checked is in the checker's list, or one
 * thread owns it. hd_close waits while the checker is inside a call of the runtime.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/service.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "engine/claims.h"
#include "engine/engine.h"
#include "kinds/kinds.h"
#include "kinds/part.h"
/* while the list contains buffers, the checker looks at all of them at least this often */

#define LOOK_NS INT64_C(10000000)

struct hdi_checker {
    hd_runtime *runtime;
    hdi_mutex lock;
    hdi_service thread;
    struct hd_buffer *first, *last; /* the freed buffers, each in a hold of the checker */
    hd_lane *lanes[HDI_DEVICES_MAX];
};

static struct hdi_checker *guard_checker_of(hd_runtime *rt)
{
    return hdi_kinds_of(rt)->checker;
}

hd_lane *hdi_guard_checker_lane(const hdi_device *device)
{
    return guard_checker_of(device->runtime)->lanes[device->index];
}

/* ---- the list: the lock is held ---- */

static void guard_checker_append(struct hdi_checker *all, struct hd_buffer *b)
{
    b->next = NULL;
    if (all->last) {
        all->last->next = b;
    } else {
        all->first = b;
    }
    all->last = b;
}

static struct hd_buffer *guard_checker_take_all(struct hdi_checker *all)
{
    struct hd_buffer *first = all->first;
    all->first = NULL;
    all->last = NULL;
    return first;
}

static void guard_checker_add(struct hdi_checker *all, struct hd_buffer *b)
{
    hdi_mutex_lock(&all->lock);
    guard_checker_append(all, b);
    hdi_mutex_unlock(&all->lock);
}

/* ---- the end of a buffer ---- */

/* Ends a buffer that nothing uses any more, and that this thread owns. If the buffer's guards
 * cannot be read now, the buffer returns to the list. */
static void guard_checker_finish(struct hd_buffer *b)
{
    hdi_device *device = b->runtime->devices[b->owner];
    hdi_hold_end(b);
    hdi_memory_left(device);
}

/* Looks at all buffers in the list. Returns a point of work that one of these buffers waits for;
 * position 0: no buffer waits. */
static hdi_point guard_checker_look(struct hdi_checker *all)
{
    hdi_point wait = {0, 0};
    hdi_mutex_lock(&all->lock);
    struct hd_buffer *next, *b = guard_checker_take_all(all);
    hdi_mutex_unlock(&all->lock);
    for (; b; b = next) {
        next = b->next;
        hdi_point point = hdi_buffer_awaited(b);
        if (point.position) {
            wait = point;
            guard_checker_add(all, b);
        } else {
            /* a finding calls the program, which may call the library */
            HDI_INSIDE_STILL(all->runtime);
            guard_checker_finish(b);
        }
    }
    return wait;
}

static int64_t guard_checker_run(void *context)
{
    struct hdi_checker *all = context;
    hd_runtime *rt = all->runtime;
    hdi_call_continue("hd_free"); /* findings name hd_free as the call */
    hdi_mutex_lock(&all->lock);
    bool empty = !all->first;
    hdi_mutex_unlock(&all->lock);
    /* A closing runtime refuses some requests, so the checker does nothing. guard_checker_stop
     * checks the buffers that are left. */
    if (empty || hdi_is_closing(rt)) {
        return INT64_MAX;
    }
    hdi_point wait = guard_checker_look(all);
    if (wait.position) {
        hdi_wait_position_unrecorded(rt, wait.lane, wait.position, hdi_deadline(LOOK_NS));
        return 0;
    }
    return hdi_deadline(LOOK_NS);
}

bool hdi_guard_checker_keep(struct hd_buffer *b)
{
    struct hdi_checker *all = guard_checker_of(b->runtime);
    /* after the checker's stop this call also succeeds, and hd_close then ends the buffers in the
     * list */
    bool kept = hdi_service_start(&all->thread);
    if (kept) {
        hdi_memory_leaves(b->runtime->devices[b->owner]);
        /* no handle leads to the buffer, so no other thread can change it, and hdi_hold_begin
         * cannot fail */
        hdi_hold_begin(b, 0);
        hdi_hold_keeps(b);
        guard_checker_add(all, b);
        hdi_service_wake(&all->thread);
    }
    return kept;
}

int64_t hdi_guard_checker_deadline(hd_runtime *rt)
{
    struct hdi_checker *all = guard_checker_of(rt);
    return hdi_service_is_stopped(&all->thread) ? hdi_close_deadline(rt)
                                                : hdi_option_deadline(rt->options.transfer_timeout);
}

/* ---- beginning and end ---- */

static hd_status guard_checker_create(hd_runtime *rt)
{
    if (rt->options.memory_debug == HDI_MEMORY_DEBUG_OFF) {
        return HD_OK;
    }
    struct hdi_checker *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    all->runtime = rt;
    hdi_mutex_init(&all->lock, HDI_RANK_CHECKER);
    hdi_service_init(&all->thread, guard_checker_run, all);
    hdi_kinds_of(rt)->checker = all;
    return HD_OK;
}

static hd_status guard_checker_create_in(hdi_device *device)
{
    struct hdi_checker *all = guard_checker_of(device->runtime);
    hd_status status = all ? hdi_lane_make(device, true, false, &all->lanes[device->index]) : HD_OK;
    if (all && !status) {
        all->lanes[device->index]->is_copy = true;
    }
    return status;
}

/* False: the deadline passed. */
static bool guard_checker_await(struct hd_buffer *b, int64_t deadline)
{
    for (hdi_point point; (point = hdi_buffer_awaited(b)).position != 0;) {
        if (!hdi_wait_position(b->runtime, point.lane, point.position, deadline)) {
            return false;
        }
    }
    return true;
}

/* Ends the checker's thread, and finishes its work. If the program never ended a claim, buffers
 * that the claim uses stay in the list. */
static void guard_checker_stop(hd_runtime *rt)
{
    struct hdi_checker *all = guard_checker_of(rt);
    if (!all) {
        return;
    }
    hdi_service_stop(&all->thread);
    hdi_mutex_lock(&all->lock);
    struct hd_buffer *next, *b = guard_checker_take_all(all);
    hdi_mutex_unlock(&all->lock);
    int64_t deadline = b && !hdi_claims_are_open(rt) ? hdi_close_deadline(rt) : 0;
    for (; b; b = next) {
        next = b->next;
        if (guard_checker_await(b, deadline)) {
            guard_checker_finish(b);
        } else {
            guard_checker_add(all, b);
        }
    }
}

/* Frees only the checker. The list of all buffers drops the buffers that are left. */
static void guard_checker_release(hd_runtime *rt)
{
    struct hdi_checker *all = guard_checker_of(rt);
    if (all) {
        hdi_service_destroy(&all->thread);
        hdi_mutex_destroy(&all->lock);
        free(all);
        hdi_kinds_of(rt)->checker = NULL;
    }
}

const hdi_lifetime hdi_guard_checker_lifetime = {.create = guard_checker_create,
                                                 .create_in = guard_checker_create_in,
                                                 .stop = guard_checker_stop,
                                                 .release = guard_checker_release};
