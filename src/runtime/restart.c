/* restart.c - hd_device_restart: a lost device comes back with a fresh worker process.
 *
 * Threads: any. One restart at a time per runtime (`restarting`). The call blocks while the worker
 * starts and loads everything again. The call waits for no work of the device, so it never waits
 * for a claim that only the program can end.
 * Locks: `restarting`, and the locks of the functions that it calls. `refilling`, while it refills
 * the worker: loads and unloads of modules wait meanwhile.
 * Always: the device counts as lost until its restart is complete, so that no thread submits to an
 * incomplete device. After a failure the device stays lost and the new worker is ended, so that the
 * next try begins in the same state.
 */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "kernel/module.h"
#include "kinds/kinds.h"
#include "memory/arena.h"
#include "memory/part.h"
#include "memory/pinned.h"
#include "memory/share.h"
#include "peer/access.h"
#include "runtime/runtime_internal.h"
#include "tensor/matmul.h"
#include "trace/trace.h"
#include "worker/workers.h"

/* Clears the former worker's data in the channel. No other thread or process uses these fields now.
 * A lane whose work waits for others, such as claims that only the program can end, keeps its
 * position. The fresh engine goes on from there. It skips the lost work, but makes the waits in
 * front of it. */
static void restart_clean_channel(hdi_device *device)
{
    hdi_engine_shared *engine = device->channel.engine;
    for (int i = 0; i < HDI_LANES_MAX / 64; i++) {
        atomic_store_explicit(&engine->active[i], 0, memory_order_relaxed);
    }
    /* Lanes that were never made begin at 0. */
    hdi_mutex_lock(&device->lanes_lock);
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    memset(&device->channel.lanes[made], 0, (HDI_LANES_MAX - made) * sizeof device->channel.lanes[0]);
    for (uint32_t i = 0; i < made; i++) {
        hdi_lane_shared *lane = &device->channel.lanes[i];
        uint64_t head = hdi_lane_submitted(device, i);
        uint64_t done = atomic_load_explicit(&hdi_lane_at(device, i)->done_least, memory_order_acquire);
        atomic_store_explicit(&lane->head, head, memory_order_relaxed);
        atomic_store_explicit(&lane->issued, done, memory_order_relaxed);
        atomic_store_explicit(&lane->lost_to, head, memory_order_relaxed);
        atomic_store_explicit(&lane->done, done, memory_order_release);
        if (done != head) {
            atomic_fetch_or_explicit(&engine->active[i / 64], (uint64_t)1 << (i % 64), memory_order_relaxed);
        }
    }
    hdi_mutex_unlock(&device->lanes_lock);
    atomic_store_explicit(&engine->asleep, 0, memory_order_relaxed);
    hdi_engine_offer_fences(device);
    engine->reason[0] = 0;
    atomic_store_explicit(&engine->recorded, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->lost_by, 0, memory_order_release);
}

static hd_status restart_make_lanes(hdi_device *device)
{
    hd_status status = HD_OK;
    hdi_mutex_lock(&device->lanes_lock);
    for (uint32_t i = 0; i < HDI_LANES_MAX && !status; i++) {
        if (device->lanes[i]) {
            hdi_answer answer = device->port->calls->lane(device->port, i, device->lanes[i]->sticky_failure);
            status = hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
        }
    }
    hdi_mutex_unlock(&device->lanes_lock);
    return status;
}

/* Checks whether the new worker ended just before its device became UP. The watcher does not notice
 * such an end. */
static hd_status restart_check_alive(hdi_device *device)
{
    if (!hdi_worker_drives(device->runtime, device->index)) {
        hdi_device_lose(device, HDI_GONE_CLOSED);
        hdi_workers_drain(device->runtime);
        return hdi_driver_failed(device, HDI_GONE_CLOSED, "");
    }
    return HD_OK;
}

/* Gives the worker the lanes, modules and pinned memory of the former one. */
static hd_status restart_refill(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    hd_status status = hdi_arena_restart(device->arena, hdi_device_place_range(device));
    status = status ? status : restart_make_lanes(device);
    status = status ? status : hdi_modules_restart(rt, device);
    return status ? status : hdi_pinned_repin(hdi_memory_of(rt)->pinned, device->index);
}

/* Gets a process that drives the device: a spare worker, whose driver is already started, or a
 * fresh worker. */
static hd_status restart_start_worker(hd_runtime *rt, int index)
{
    hd_status status;
    if (hdi_spare_take(rt, index)) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        status = hdi_worker_handshake(rt, index);
        status = status ? status : hdi_worker_await(rt, index);
        if (status) {
            hdi_worker_shut_down(rt, index); /* the spare was unusable */
        }
        hdi_attempt_end(&attempt);
        if (!status) {
            return HD_OK;
        }
    }
    status = hdi_worker_spawn(rt, index);
    status = status ? status : hdi_worker_handshake(rt, index);
    return status ? status : hdi_worker_await(rt, index);
}

/* Ensures that the device is lost, even if it was UP for a moment. Ends the new worker before other
 * threads take over the waiting work. */
static void restart_keep_lost(hdi_device *device)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_worker_shut_down(device->runtime, device->index);
    hdi_attempt_end(&attempt);
    hdi_device_state state = hdi_device_state_of(device);
    if (state == HDI_DEVICE_STARTING || state == HDI_DEVICE_RESTORING) {
        hdi_device_change(device, state, HDI_DEVICE_LOST);
    }
    hdi_workers_drain(device->runtime);
}

/* Refills the worker, and makes the device UP. A load or unload of a module runs before both steps,
 * or after both. */
static hd_status restart_bring_up(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    hdi_mutex_lock(&rt->refilling);
    hdi_device_change(device, HDI_DEVICE_STARTING, HDI_DEVICE_RESTORING);
    hd_status status = restart_refill(device);
    hdi_trace_restarted(device);
    if (!status) {
        hdi_products_hold(rt, device->index);
        hdi_device_reactivate(device);
        hdi_products_resume(rt, device->index);
    } else {
        restart_keep_lost(device);
    }
    hdi_mutex_unlock(&rt->refilling);
    return status;
}

static hd_status restart_device(hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    int index = device->index;
    hdi_device_end_draining(device);
    restart_clean_channel(device);
    /* These calls come before the new worker starts, so that it inherits nothing from the former
     * worker. Until the device counts as working, no thread requests peer access to it. */
    hdi_regions_forget_peer(rt, index);
    hdi_peer_access_forget(rt, index);
    hdi_shares_retire(rt, index);
    hdi_shares_reap(rt);
    hd_status status = restart_start_worker(rt, index);
    if (status) {
        restart_keep_lost(device);
        return status;
    }
    status = restart_bring_up(device);
    if (status) {
        return status;
    }
    hdi_shares_reap(rt);
    status = restart_check_alive(device);
    status = status ? status : hdi_buffers_restore(rt, device);
    if (status) {
        restart_keep_lost(device);
    }
    return status;
}

/* True if the device is lost, even if that is not recorded yet. A caller may see that a request
 * failed before the watcher sees the reason. */
static bool restart_device_is_lost(hdi_device *device)
{
    if (!hdi_device_lost(device)) {
        uint64_t unused;
        hdi_answer answer = device->port->calls->memory_free(device->port, &unused);
        if (hdi_driver_code_is_fatal(answer.code)) {
            hdi_device_await_loss(device, answer.code);
        }
    }
    return hdi_device_lost(device);
}

/* Records the restart for a trace. */
static void restart_record(hdi_device *device, int64_t began)
{
    hdi_record r = {.loss = {.time = began, .ended = hdi_record_now(&device->runtime->recorder)}};
    r.type = HDI_RECORD_RESTART;
    r.device = (uint8_t)device->index;
    hdi_record_put(&device->runtime->recorder, &r);
}

hd_status hd_device_restart(hd_runtime *rt, int index)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (index < 0 || index >= rt->n_devices) {
        return hdi_device_refused(rt, index);
    }
    if (!rt->is_process) {
        char what[160];
        snprintf(what, sizeof what,
                 "placement=%s: the driver in this process cannot give a lost device back; open the runtime with "
                 "placement=process",
                 HDI_OPTION_TEXT(&rt->options, placement));
        return hdi_loss_refuse(rt, index, HD_ERROR_UNSUPPORTED, what);
    }
    hdi_mutex_lock(&rt->restarting);
    hd_status status = HD_OK;
    if (restart_device_is_lost(rt->devices[index])) {
        int64_t began = hdi_record_began(&rt->recorder);
        hdi_spares_hold(rt);
        status = restart_device(rt->devices[index]);
        hdi_spares_want(rt);
        if (began && !status) {
            restart_record(rt->devices[index], began);
        }
    }
    hdi_mutex_unlock(&rt->restarting);
    return status;
}
