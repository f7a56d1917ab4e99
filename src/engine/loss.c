/* loss.c - lost devices: the ends of their lanes, and the reports of losses.
 *
 * Threads:
 * - hdi_lane_lose and hdi_loss_note run on the thread that notices the loss. This thread runs the
 *   engine or, if a worker process is gone, watches the workers.
 * - The rest runs on any thread.
 * Locks:
 * - The device's order lock, while the lanes of a dead worker are ended, so that no submission
 *   comes in between.
 * - The mutex of the losses, while a loss is noted or lanes are drained. No lock is taken under it.
 * Always:
 * - A position fails before it is done. hd_loss_next reports a loss once.
 * - Numbers that an engine in another process wrote are checked before use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/engine.h"

#define NOTED_SLEEP_NS 20000

/* ---- the losses of a runtime ---- */

typedef struct loss {
    int code;       /* 0: nothing to report */
    uint64_t order; /* the order of this loss among several */
    uint64_t losses;
    /* These fields are set before the latest loss is visible: its number, the operations that may
     * be to blame, and its message. */
    uint64_t suspected;
    hdi_suspects suspects;
    hd_error error;
} loss;

struct hdi_losses {
    hdi_mutex lock;
    int descriptor; /* a descriptor that is readable while hd_loss_next can report something */
    uint64_t order;
    loss of[HDI_DEVICES_MAX];
};

hd_status hdi_losses_create(hd_runtime *rt)
{
    struct hdi_losses *losses = calloc(1, sizeof *losses);
    if (!losses) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    losses->descriptor = hdi_descriptor_event(EFD_NONBLOCK);
    if (losses->descriptor < 0) {
        free(losses);
        return hdi_fail(HD_ERROR_SYSTEM, "no file descriptor is left; close some, or raise their limit");
    }
    hdi_mutex_init(&losses->lock, HDI_RANK_LOSSES);
    rt->losses = losses;
    return HD_OK;
}

void hdi_losses_release(hd_runtime *rt)
{
    if (rt->losses) {
        close(rt->losses->descriptor);
        hdi_mutex_destroy(&rt->losses->lock);
        free(rt->losses);
        rt->losses = NULL;
    }
}

/* ---- lanes ---- */

/* True if the WAIT `c` is unmet: the lane that it names has not reached the target. */
static bool loss_lane_waits(const hdi_device *device, uint32_t number, const hdi_command *c)
{
    uint32_t own = (uint32_t)device->index * HDI_LANES_MAX + number;
    uint32_t lane = c->wait.lane;
    uint64_t position = c->wait.position;
    hd_runtime *rt = device->runtime;
    if (lane == own || lane >= (uint32_t)rt->n_devices * HDI_LANES_MAX) {
        return false;
    }
    /* A WAIT for a position that was never submitted means that the command was overwritten. Only
     * the application's process knows which positions were submitted. */
    bool known = rt->end_process || position <= hdi_lane_submitted(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX);
    return known && !hdi_point_done(rt, (hdi_point){lane, position});
}

bool hdi_lane_waits(const hdi_device *device, uint32_t number, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to;) {
        const hdi_command *c = hdi_command_at(&device->channel, number, at);
        uint8_t slots = c->slots;
        if (c->op == HDI_OP_WAIT) {
            if (loss_lane_waits(device, number, c)) {
                return true;
            }
        } else if (c->op == HDI_OP_CLAIMED) {
            return true; /* the program decides when its claim ends */
        } else if (c->op != HDI_OP_SKIP && c->op != HDI_OP_SOURCES) {
            return false;
        }
        if (slots == 0) {
            return false; /* the command was overwritten */
        }
        at += slots;
    }
    return false;
}

/* Replaces impossible positions of a lane by possible ones, since the engine's process ended and
 * may have written anything. If in doubt, it counts less work as done. Order lock held. */
static void loss_mend_positions(hdi_device *device, hd_lane *of)
{
    hdi_lane_shared *lane = of->shared;
    uint64_t head = of->head;
    uint64_t slots = device->channel.slots;
    uint64_t least = atomic_load_explicit(&of->done_least, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
    atomic_store_explicit(&lane->head, head, memory_order_release);
    if (done < least || done > head || head - done > slots) {
        uint64_t fits = head > slots ? head - slots : 0;
        done = fits > least ? fits : least;
        atomic_store_explicit(&lane->done, done, memory_order_release);
    }
    if (issued - done > head - done) {
        atomic_store_explicit(&lane->issued, head, memory_order_release);
    }
    atomic_store_explicit(&of->done_least, done, memory_order_relaxed);
}

/* Makes the suspect the operation that the failure blames. Without a suspect the failure stays
 * unchanged. */
static void loss_blame(hdi_failure *failure, const hdi_suspect *s)
{
    if (s->count) {
        failure->position = s->position;
        failure->lane = s->lane;
        failure->kernel = s->kernel;
        failure->op = s->op;
    }
}

void hdi_loss_suspect(hdi_device *device, int code)
{
    hd_runtime *rt = device->runtime;
    loss *l = &rt->losses->of[device->index];
    hdi_failure failure = {.lane = (uint32_t)device->index * HDI_LANES_MAX, .driver_code = code, .lost = 1};
    hdi_suspects suspects;
    hd_error error;
    hdi_suspects_collect(device, code, &suspects);
    loss_blame(&failure, &suspects.named[0]);
    hdi_loss_describe(rt, &failure, &suspects, &error);
    hdi_mutex_lock(&rt->losses->lock);
    l->suspected++;
    l->suspects = suspects;
    l->error = error;
    hdi_mutex_unlock(&rt->losses->lock);
}

uint64_t hdi_loss_suspects(hd_runtime *rt, int device, hdi_suspects *out)
{
    struct hdi_losses *losses = rt->losses;
    hdi_mutex_lock(&losses->lock);
    uint64_t number = losses->of[device].suspected;
    *out = losses->of[device].suspects;
    hdi_mutex_unlock(&losses->lock);
    return number;
}

/* Records that all unfinished work of a lane fails, and that all later work fails. Work from
 * position `from` on fails even if it counts as finished. */
static void loss_end_lane_from(hdi_device *device, uint32_t number, int code, uint64_t from)
{
    const hdi_channel *channel = &device->channel;
    hdi_lane_shared *lane = &channel->lanes[number];
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    hdi_failure failure;
    if (hdi_failure_logged(channel, number, UINT64_MAX, &failure) == HDI_LOGGED_YES) {
        return; /* recorded before */
    }
    hdi_suspects suspects;
    hdi_suspect own = {.count = 0};
    uint64_t loss_number = hdi_loss_suspects(device->runtime, device->index, &suspects);
    bool waited = hdi_suspects_of_lane(device, number, &suspects, &own);
    failure = (hdi_failure){
        .from = from <= done ? from : done + 1,
        .to = UINT64_MAX,
        .position = done,
        .lane = (uint32_t)device->index * HDI_LANES_MAX + number,
        .driver_code = code,
        .lost = 1,
        .loss = loss_number,
        .begun = hdi_suspects_begun(device, number),
    };
    failure.waited = waited && own.lane != failure.lane;
    loss_blame(&failure, &own);
    hdi_failure_add(channel, number, &failure);
    /* pairs with the load in the submit path */
    atomic_store_explicit(&lane->failed, 1, memory_order_release);
}

void hdi_lane_lose(hdi_device *device, uint32_t number, int code)
{
    loss_end_lane_from(device, number, code, UINT64_MAX);
}

uint64_t hdi_lane_reach(const hdi_device *device, uint32_t number, uint64_t from, uint64_t head)
{
    const hd_lane *lane = hdi_lane_at(device, number);
    if (lane && lane->claim) {
        hdi_biased_barrier(); /* after the device's state was stored; pairs with hdi_claim_fence */
    }
    while (from < head) {
        const hdi_command *c = hdi_command_at(&device->channel, number, from);
        if (c->slots == 0) {
            return head; /* a dead process left the command half written */
        }
        bool claims = c->op == HDI_OP_CLAIM || c->op == HDI_OP_CLAIMED;
        if ((c->op == HDI_OP_WAIT && loss_lane_waits(device, number, c)) ||
            (claims && hdi_claim_is_open(lane, c->op, from + c->slots))) {
            return from;
        }
        from += c->slots;
    }
    return head;
}

/* Drains a lane of a lost device: the lane's work ends without success, up to its first wait for
 * work that goes on. Draining stops at this wait, since later work relies on the end of all work in
 * front of it. True if the lane's `done` moved. */
static bool loss_drain_lane(hdi_device *device, uint32_t number)
{
    hdi_lane_shared *lane = &device->channel.lanes[number];
    hd_lane *of = hdi_lane_at(device, number);
    uint64_t head = hdi_lane_submitted(device, number);
    uint64_t done = atomic_load_explicit(&of->done_least, memory_order_relaxed);
    uint64_t reach = hdi_lane_reach(device, number, done, head);
    atomic_store_explicit(&lane->issued, head, memory_order_release);
    if (reach == done) {
        return false;
    }
    /* Stores `done` like stream_store_done. `done_least` comes first, since only the application
     * writes it: see hdi_wait_position. */
    atomic_store_explicit(&of->done_least, reach, memory_order_release);
    /* the program may end a claim at the same time (hdi_claim_end_lane) */
    hdi_raise(&lane->done, reach);
    atomic_fetch_add_explicit(&lane->wake, 1, memory_order_release);
    hdi_futex_wake(&lane->wake, INT32_MAX);
    hdi_lane_ring_watchers(device->runtime, lane);
    if (of->claim) {
        hdi_claim_ring(device->channel.engine);
    }
    return true;
}

bool hdi_device_is_drained(const hdi_device *device)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    bool lost = hdi_device_lost(device);
    for (uint32_t i = 0; i < made; i++) {
        /* If the engine is dead, only the application's own record of `done` counts. */
        uint64_t done = atomic_load_explicit(
            lost ? &hdi_lane_at(device, i)->done_least : &device->channel.lanes[i].done, memory_order_acquire);
        if (done < hdi_lane_submitted(device, i)) {
            return false;
        }
    }
    return true;
}

/* Drains all lanes of the device. The mutex of the losses is held, so one thread at a time
 * drains. */
static void loss_drain(hdi_device *device)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    /* lanes of lost devices may wait for each other, so the loop repeats until no lane moves */
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < made; i++) {
            moved |= loss_drain_lane(device, i);
        }
    }
    if (hdi_device_is_drained(device) && hdi_device_state_of(device) == HDI_DEVICE_DRAINING) {
        hdi_device_change(device, HDI_DEVICE_DRAINING, HDI_DEVICE_LOST);
    }
}

/* True if some work of the device is unfinished, and no restart took it over. A restart that fails
 * gives the work back. */
static bool loss_is_draining(const hdi_device *device)
{
    hdi_device_state state = hdi_device_state_of(device);
    return state == HDI_DEVICE_DRAINING || (state == HDI_DEVICE_LOST && !hdi_device_is_drained(device));
}

/* True once the loss is noted: see loss_note_in_turn. Draining begins after that. */
static bool loss_is_noted(const hdi_device *device)
{
    const loss *l = &device->runtime->losses->of[device->index];
    return l->losses == l->suspected;
}

bool hdi_device_drain(hdi_device *device)
{
    struct hdi_losses *losses = device->runtime->losses;
    hdi_mutex_lock(&losses->lock);
    bool draining = loss_is_draining(device);
    if (draining && loss_is_noted(device)) {
        loss_drain(device);
        draining = loss_is_draining(device);
    }
    hdi_mutex_unlock(&losses->lock);
    return draining;
}

void hdi_device_end_draining(hdi_device *device)
{
    struct hdi_losses *losses = device->runtime->losses;
    hdi_mutex_lock(&losses->lock);
    while (!loss_is_noted(device)) { /* the thread that notes the loss is about to do so */
        hdi_mutex_unlock(&losses->lock);
        hdi_sleep_for(NOTED_SLEEP_NS);
        hdi_mutex_lock(&losses->lock);
    }
    loss_drain(device);
    if (hdi_device_state_of(device) == HDI_DEVICE_DRAINING) {
        hdi_device_change(device, HDI_DEVICE_DRAINING, HDI_DEVICE_LOST);
    }
    hdi_device_change(device, HDI_DEVICE_LOST, HDI_DEVICE_STARTING);
    hdi_mutex_unlock(&losses->lock);
}

/* ---- reporting ---- */

/* Records the loss for a trace. */
static void loss_record(hdi_device *device, const loss *l)
{
    hdi_recorder *recorder = &device->runtime->recorder;
    if (!hdi_records(recorder)) {
        return;
    }
    hdi_suspects suspects = l->suspects;
    hdi_suspect first = suspects.n_named ? suspects.named[0] : (hdi_suspect){.count = 0};
    hdi_record r = {.loss = {.time = hdi_record_now(recorder),
                             .code = l->code,
                             .lane = first.lane,
                             .kernel = first.kernel,
                             .position = first.position}};
    r.type = HDI_RECORD_LOSS;
    r.device = (uint8_t)device->index;
    hdi_record_put_text(recorder, &r, l->error.message);
}

/* Notes a loss. With `drains`, also drains the device. This thread holds the mutex until the
 * draining ends. This guarantees two things:
 * - A thread that waited for a ticket finds the loss reported.
 * - A thread that read the loss finds all tickets done. */
static void loss_note_in_turn(hdi_device *device, int code, bool drains)
{
    hd_runtime *rt = device->runtime;
    struct hdi_losses *losses = rt->losses;
    uint64_t count = atomic_fetch_add_explicit(&device->losses, 1, memory_order_acq_rel) + 1;
    if (rt->on_loss) {
        rt->on_loss(rt, device);
    }
    HDI_UNCANCELLED;
    hdi_mutex_lock(&losses->lock);
    loss *l = &losses->of[device->index];
    l->code = code;
    l->order = ++losses->order;
    l->losses = count;
    loss_record(device, l);
    if (drains) {
        loss_drain(device);
    }
    uint64_t one = 1;
    ssize_t written = write(losses->descriptor, &one, sizeof one);
    (void)written; /* the write fails only if the descriptor is readable already */
    hdi_mutex_unlock(&losses->lock);
}

void hdi_loss_note(hdi_device *device, int code)
{
    loss_note_in_turn(device, code, false);
}

void hdi_device_lose(hdi_device *device, int code)
{
    hdi_engine_shared *engine = device->channel.engine;
    /* The logs are repaired before this thread takes the lock. A submitter that holds the lock may
     * be reading a record that a dead engine left half written. */
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    for (uint32_t i = 0; i < made; i++) {
        hdi_failure_repair(&device->channel, i);
    }
    /* No thread submits while this one holds the lock. Later submitters see the device lost. */
    hdi_lock_take(&device->order);
    bool first = !hdi_device_lost(device);
    if (first) {
        hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            if (device->lanes[i]) {
                loss_mend_positions(device, device->lanes[i]);
            }
        }
        hdi_loss_suspect(device, code);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            if (device->lanes[i]) {
                loss_end_lane_from(device, i, code, hdi_failure_mend(device->lanes[i]));
            }
        }
        atomic_store_explicit(&device->lost_by, code, memory_order_relaxed);
        hdi_device_change(device, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    }
    hdi_lock_release(&device->order);
    if (!first) {
        return;
    }
    /* The bits are cleared before the loss is noted. Once it is noted, a restart may prepare the
     * channel for a fresh engine. */
    for (int i = 0; i < HDI_LANES_MAX / 64; i++) {
        atomic_store_explicit(&engine->active[i], 0, memory_order_seq_cst);
    }
    loss_note_in_turn(device, code, true);
    /* Wakes threads even if nothing moved, since a dead engine may have moved `done` without waking
     * them. */
    for (uint32_t i = 0; i < made; i++) {
        hdi_lane_shared *lane = &device->channel.lanes[i];
        atomic_fetch_add_explicit(&lane->wake, 1, memory_order_release);
        hdi_futex_wake(&lane->wake, INT32_MAX);
    }
}

void hdi_device_reactivate(hdi_device *device)
{
    hdi_lock_take(&device->order);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        if (device->lanes[i]) {
            hdi_lane_shared *lane = &device->channel.lanes[i];
            hdi_failure_close(&device->channel, i, device->lanes[i]->head);
            atomic_store_explicit(&lane->failed, 0, memory_order_release);
            atomic_store_explicit(&lane->begun, 0, memory_order_relaxed);
            /* Lost work in the lane may still wait for other work. After this store, no later
             * result in the lane stands for a result of the lost work. */
            atomic_store_explicit(&device->lanes[i]->resumed, device->lanes[i]->head, memory_order_relaxed);
            /* The former engine never made the waits that are left in the lane's ring. So they do
             * not count as made. */
            size_t n_lanes = (size_t)device->runtime->n_devices * HDI_LANES_MAX;
            memset(device->lanes[i]->seen, 0, n_lanes * sizeof device->lanes[i]->seen[0]);
            memset(device->lanes[i]->seen_source, 0, n_lanes * sizeof device->lanes[i]->seen_source[0]);
        }
    }
    atomic_store_explicit(&device->channel.engine->overdue, 0, memory_order_relaxed);
    /* The count rises first, so that a thread that sees the device back also sees the new count. */
    atomic_fetch_add_explicit(&device->restarts, 1, memory_order_relaxed);
    hdi_device_change(device, HDI_DEVICE_RESTORING, HDI_DEVICE_UP);
    hdi_lock_release(&device->order);
}

/* The error of the device's latest loss. False: none. */
static bool loss_latest(hd_runtime *rt, int device, hd_error *out)
{
    struct hdi_losses *losses = rt->losses;
    hdi_mutex_lock(&losses->lock);
    bool known = device >= 0 && losses->of[device].suspected != 0;
    *out = known ? losses->of[device].error : hdi_error_blank(HD_ERROR_DEVICE_LOST);
    hdi_mutex_unlock(&losses->lock);
    return known;
}

/* "WHAT: device 0 is lost: ..." */
static hd_status loss_fail_as(hd_error *error, const char *what)
{
    char cause[sizeof error->message];
    memcpy(cause, error->message, sizeof cause);
    snprintf(error->message, sizeof error->message, "%s%s%.420s", what, what[0] && cause[0] ? ": " : "", cause);
    return hdi_fail_error(error);
}

hd_status hdi_loss_fail(hd_runtime *rt, int device, const char *what)
{
    hd_error error;
    loss_latest(rt, device, &error);
    error.device = device;
    return loss_fail_as(&error, what);
}

hd_status hdi_loss_refuse(hd_runtime *rt, int device, hd_status status, const char *what)
{
    hd_error error;
    if (!loss_latest(rt, device, &error)) {
        return hdi_fail(status, "%s", what);
    }
    error.status = status;
    return loss_fail_as(&error, what);
}

hd_status hdi_loss_fail_call(hdi_device *device, int code, const char *entry_point)
{
    hd_runtime *rt = device->runtime;
    hd_error error;
    if (rt->losses && hdi_device_lost(device) && loss_latest(rt, device->index, &error)) {
        return loss_fail_as(&error, "");
    }
    if (code < 0 || !rt->losses) {
        return hdi_fail_driver(HD_ERROR_DEVICE_LOST, code, entry_point, device->index, "device %d is lost: %s",
                               device->index, hdi_driver_code_name(code));
    }
    /* The engine did not notice the loss yet, so this thread looks for the suspects. */
    hdi_suspects suspects;
    hdi_lock_take(&device->order);
    hdi_suspects_collect(device, code, &suspects);
    hdi_lock_release(&device->order);
    hdi_failure failure = {.lane = (uint32_t)device->index * HDI_LANES_MAX, .driver_code = code, .lost = 1};
    loss_blame(&failure, &suspects.named[0]);
    hdi_loss_describe(rt, &failure, &suspects, &error);
    if (entry_point[0]) {
        char cause[sizeof error.message];
        memcpy(cause, error.message, sizeof cause);
        snprintf(error.message, sizeof error.message, "%.60s: %.420s", entry_point, cause);
    }
    if (!suspects.count) {
        snprintf(error.operation, sizeof error.operation, "%s", entry_point);
    }
    return hdi_fail_error(&error);
}

static hd_status loss_check_call(hd_runtime *rt, const void *out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    return hdi_runtime_is_open(rt) ? HD_OK : hdi_runtime_refused(rt);
}

hd_status hd_loss_descriptor(hd_runtime *rt, int *out)
{
    HDI_INSIDE(rt);
    hd_status status = loss_check_call(rt, out);
    if (!status) {
        *out = rt->losses->descriptor;
    }
    return status;
}

static hd_loss_cause loss_cause_of(int code)
{
    switch (code) {
    case HDI_GONE_WATCHDOG:
        return HD_LOSS_WATCHDOG;
    case HDI_GONE_STUCK:
    case HDI_GONE_UNANSWERED:
        return HD_LOSS_WORKER_STUCK;
    default:
        return code < 0 ? HD_LOSS_WORKER_ENDED : HD_LOSS_DRIVER;
    }
}

hd_status hd_loss_next(hd_runtime *rt, hd_device_loss *out)
{
    HDI_INSIDE(rt);
    hd_status status = loss_check_call(rt, out);
    if (status) {
        return status;
    }
    status = HDI_SIZED_CHECK(hd_device_loss, out);
    if (status) {
        return status;
    }
    struct hdi_losses *losses = rt->losses;
    loss *oldest = NULL;
    int waiting = 0;
    hd_device_loss told = {.size = sizeof told};
    hdi_mutex_lock(&losses->lock);
    for (int i = 0; i < rt->n_devices; i++) {
        loss *l = &losses->of[i];
        if (l->code) {
            waiting++;
            oldest = !oldest || l->order < oldest->order ? l : oldest;
        }
    }
    if (oldest) {
        told.device = (int)(oldest - losses->of);
        told.cause = loss_cause_of(oldest->code);
        told.driver_code = oldest->code > 0 ? oldest->code : 0;
        told.signal = oldest->code <= HDI_GONE_SIGNAL ? HDI_GONE_SIGNAL - oldest->code : 0;
        told.losses = oldest->losses;
        memcpy(told.message, oldest->error.message, sizeof told.message);
        oldest->code = 0;
    }
    if (waiting <= 1) {
        uint64_t count;
        ssize_t n = read(losses->descriptor, &count, sizeof count);
        (void)n; /* the read fails if there was nothing to read */
    }
    hdi_mutex_unlock(&losses->lock);
    if (!oldest) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "no device was lost since the last one that it returned");
    }
    HDI_SIZED_OUT(hd_device_loss, out, &told);
    return HD_OK;
}
