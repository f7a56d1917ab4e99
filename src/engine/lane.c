/* lane.c - lanes as the application sees them: making, giving out, giving back, waiting for a whole
 * lane.
 *
 * Threads: any.
 * Locks: the device's lanes_lock guards making lanes and giving them out. The device's order lock
 * guards data that submitters read.
 * Always:
 * - An hd_lane, its stream and its ring live from their first use until hd_close. Positions never
 *   go back. So tickets stay valid when a lane is given out again.
 * - When a lane is made, the application and the engine both note whether the lane's failures are
 *   sticky. This property never changes.
 * - If work that a former owner left in a lane fails, the next owner's work does not fail because
 *   of it.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/archive.h"
#include "engine/engine.h"

#define DOUBT_SLEEP_NS 1000000

bool hdi_waits_make(hdi_waits *waits, size_t n_lanes)
{
    *waits = (hdi_waits){0};
    waits->entries = malloc(n_lanes * sizeof *waits->entries);
    waits->index = calloc(n_lanes, sizeof *waits->index);
    return waits->entries && waits->index;
}

void hdi_waits_release(hdi_waits *waits)
{
    free(waits->entries);
    free(waits->index);
    free(waits->sources);
    *waits = (hdi_waits){0};
}

/* Makes a lane that was never used, with its memory and its stream. lanes_lock held. */
static hd_status lane_new(hdi_device *device, uint32_t number, bool sticky_failure, hd_lane **out)
{
    hd_runtime *rt = device->runtime;
    size_t n_lanes = (size_t)rt->n_devices * HDI_LANES_MAX;
    uint64_t *seen = calloc(2 * n_lanes, sizeof *seen);
    hdi_archive *archive = hdi_archive_make();
    hdi_waits waits;
    bool room = hdi_waits_make(&waits, n_lanes) && seen && archive;
    hdi_answer answer = {.call = ""};
    if (room) {
        answer = device->port->calls->lane(device->port, number, sticky_failure);
    }
    hd_status status = room && !hdi_answered(answer) ? hdi_answer_failed(device, answer) : HD_OK;
    /* This memory is never given back, so it is taken only after all other steps succeeded. */
    hd_lane *lane = room && !status ? hdi_stable_take(rt->stable, sizeof *lane) : NULL;
    if (!status && !lane) {
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for lane %u of device %d", number, device->index);
    }
    if (status) {
        free(seen);
        hdi_archive_free(archive);
        hdi_waits_release(&waits);
        return status;
    }
    *lane = (hd_lane){
        .number = number,
        .global = (uint32_t)device->index * HDI_LANES_MAX + number,
        .sticky_failure = sticky_failure,
        .runtime = rt,
        .device = device,
        .shared = &device->channel.lanes[number],
        .ring = &device->channel.rings[(size_t)number * device->channel.slots],
        .mask = device->channel.slots - 1,
        .seen = seen,
        .seen_source = seen + n_lanes,
        .waits = waits,
        .archive = archive,
        .failures_known = rt->on_launched ? HDI_FAILURES_UNKNOWN : 0,
    };
    hdi_lock_init(&lane->parked.lock, HDI_RANKED(HDI_RANK_PARKED, 0));
    hdi_handle_set(&lane->handle, HDI_LANE_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
    /* The thread that ends the lanes of a lost device walks them under this lock. */
    hdi_lock_take(&device->order);
    /* Threads also load the pointer without the lock. */
    __atomic_store_n(&device->lanes[number], lane, __ATOMIC_RELEASE);
    hdi_lock_release(&device->order);
    atomic_store_explicit(&device->lanes_made, number + 1, memory_order_release);
    *out = lane;
    return HD_OK;
}

void hdi_lane_push(hd_lane *lane, const hdi_command *command)
{
    lane->ring[lane->head & lane->mask] = *command;
    lane->head += 1;
    if (command->op == HDI_OP_RESUME) {
        atomic_store_explicit(&lane->resumed, lane->head, memory_order_relaxed);
        /* At the RESUME, the engine forgets which results that the lane read have failed. So new
         * operations wait for such results again. */
        memset(lane->seen_source, 0, (size_t)lane->runtime->n_devices * HDI_LANES_MAX * sizeof *lane->seen_source);
    }
    /* The order of these stores is that of hdi_submit_publish. */
    atomic_store_explicit(&lane->submitted, lane->head, memory_order_release);
    atomic_store_explicit(&lane->shared->head, lane->head, memory_order_seq_cst);
}

static bool lane_is_drained(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->shared->done, memory_order_acquire) == lane->head;
}

static bool lane_has_failed(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->shared->failed, memory_order_acquire) != 0;
}

/* True if the lane can take the command that makes it accept work again. Order lock held. */
static bool lane_can_resume(const hd_lane *lane)
{
    return lane->head - atomic_load_explicit(&lane->shared->done, memory_order_acquire) <= lane->mask;
}

/* Moves the lane to another structure, since the old structure used up its handles. Tickets that
 * name the old structure stay valid. Submissions through the old structure are refused
 * (hdi_lane_is_past).
 * False: no memory. Order lock held. */
static bool lane_renew(hd_lane **slot)
{
    hd_lane *old = *slot;
    hd_lane *lane = hdi_stable_take(old->device->runtime->stable, sizeof *lane);
    if (!lane) {
        return false;
    }
    *lane = *old;
    lane->before = old;
    hdi_handle_set(&lane->handle, HDI_LANE_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
    old->failures_known = HDI_FAILURES_UNKNOWN;     /* so that no submission takes the fast path */
    __atomic_store_n(slot, lane, __ATOMIC_RELEASE); /* threads also load it without the lock */
    return true;
}

/* Finds a lane to give out, or makes a new one. *out: NULL if all are in use. lanes_lock held. */
static hd_status lane_find(hdi_device *device, bool sticky_failure, hd_lane **out)
{
    hd_lane *lane = NULL;
    /* A lane that was given back, but whose work still runs. Such a lane is the second choice,
     * since the next owner's work would wait behind the work that still runs. */
    hd_lane *busy = NULL;
    for (uint32_t i = 0; i < HDI_LANES_MAX && !lane; i++) {
        hd_lane *candidate = device->lanes[i];
        if (!candidate && device->lanes_of_program == HDI_LANES_OF_PROGRAM) {
            break;
        }
        if (!candidate) {
            hd_status status = lane_new(device, i, sticky_failure, out);
            device->lanes_of_program += status == HD_OK;
            return status;
        }
        hdi_lock_take(&device->order);
        bool is_for_claims = candidate->claim != NULL;
        bool exhausted = hdi_handle_head_generation(&candidate->handle) == 0;
        if (exhausted && !is_for_claims && lane_renew(&device->lanes[i])) {
            candidate = device->lanes[i];
            exhausted = false;
        }
        if (!exhausted && !is_for_claims && !hdi_handle_head_live(&candidate->handle) &&
            candidate->sticky_failure == sticky_failure) {
            if (lane_is_drained(candidate)) {
                lane = candidate;
            } else if (!busy && lane_can_resume(candidate)) {
                busy = candidate;
            }
        }
        hdi_lock_release(&device->order);
    }
    *out = lane ? lane : busy;
    return HD_OK;
}

/* Gives a lane out. *resumed: the lane failed or still contains work, so this function also submits
 * a RESUME. Behind the RESUME the lane accepts new work. Order lock held. */
static void lane_give_out(hd_lane *lane, bool is_default, bool *resumed)
{
    lane->is_default = is_default;
    lane->owners = 1;
    /* relaxed, as in hd_lane_keep_times */
    atomic_store_explicit(&lane->shared->keeps_times, 0, memory_order_relaxed);
    *resumed = lane->sticky_failure && (lane_has_failed(lane) || !lane_is_drained(lane));
    if (*resumed) {
        hdi_lane_push(lane, &(hdi_command){.op = HDI_OP_RESUME, .slots = 1});
    }
    hdi_handle_begin(lane->runtime, &lane->handle, HDI_LANE_MAGIC);
}

/* Makes a parking lane, which is never given back. *out: NULL if no more are allowed. lanes_lock
 * held. */
static hd_status lane_new_parking(hdi_device *device, hd_lane **out)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_relaxed);
    return made - device->lanes_of_program < HDI_PARKING_LANES ? lane_new(device, made, false, out) : HD_OK;
}

static hd_status lane_make_as(hdi_device *device, bool is_default, bool sticky_failure, bool parks, hd_lane **out)
{
    int lost = hdi_device_lost_by(device);
    if (lost) {
        return hdi_fail_pass(hdi_loss_fail_call(device, lost, ""));
    }
    hd_lane *lane = NULL;
    bool resumed = false;
    hdi_mutex_lock(&device->lanes_lock);
    hd_status status = parks ? lane_new_parking(device, &lane) : lane_find(device, sticky_failure, &lane);
    if (!status && !lane) {
        status = hdi_fail(HD_ERROR_LIMIT, "all %d lanes of device %d are in use; destroy some", HDI_LANES_OF_PROGRAM,
                          device->index);
    }
    if (!status) {
        hdi_lock_take(&device->order);
        /* This check is under the order lock, under which lanes of a lost device are ended. After
         * their end, nothing happens in these lanes any more. */
        int lost_by = hdi_device_lost_by(device);
        if (!lost_by) {
            lane_give_out(lane, is_default, &resumed);
        }
        hdi_lock_release(&device->order);
        status = lost_by ? hdi_driver_failed(device, lost_by, "") : HD_OK;
    }
    hdi_mutex_unlock(&device->lanes_lock);
    if (!status) {
        *out = lane;
    }
    if (resumed) {
        hdi_engine_notify(device->channel.engine, lane->number);
    }
    return status;
}

hd_status hdi_lane_make(hdi_device *device, bool is_default, bool sticky_failure, hd_lane **out)
{
    return lane_make_as(device, is_default, sticky_failure, false, out);
}

hd_status hdi_lane_make_parking(hdi_device *device, hd_lane **out)
{
    return lane_make_as(device, true, false, true, out);
}

/* Chooses the default lane with the fewest threads, and adds one owner to it. NULL: the device has
 * no default lane. */
static hd_lane *lane_share_default(hdi_device *device)
{
    hd_lane *best = NULL;
    hdi_mutex_lock(&device->lanes_lock);
    hdi_lock_take(&device->order);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hd_lane *lane = device->lanes[i];
        if (lane && hdi_handle_head_live(&lane->handle) && lane->is_default && lane->sticky_failure &&
            (!best || lane->owners < best->owners)) {
            best = lane;
        }
    }
    if (best) {
        best->owners++;
    }
    hdi_lock_release(&device->order);
    hdi_mutex_unlock(&device->lanes_lock);
    return best;
}

/* Takes one owner from a lane. If no owner is left, the lane goes back to the runtime. The lane's
 * work goes on. `is_default`: the caller gives back a default lane. If the lane is of the other
 * kind, the call fails. */
static hd_status lane_give_back(const hd_lane *handle, bool is_default)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    hdi_lock_take(&lane->device->order);
    /* Checked again: if two threads give the same lane back, one succeeds. */
    bool there = hdi_lane_from_handle(handle) == lane, ours = there && lane->is_default == is_default;
    if (ours && --lane->owners == 0) {
        hdi_handle_end(&lane->handle, HDI_LANE_MAGIC);
    }
    hdi_lock_release(&lane->device->order);
    if (!there) {
        return hdi_lane_refused(handle);
    }
    return ours ? HD_OK : hdi_fail(HD_ERROR_ARGUMENT, "the lane is a thread's default lane; it ends with its thread");
}

void hdi_lanes_close(hdi_device *device)
{
    hdi_lock_take(&device->order);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        for (hd_lane *lane = device->lanes[i]; lane; lane = lane->before) {
            hdi_handle_close(&lane->handle);
        }
    }
    hdi_lock_release(&device->order);
}

void hdi_lane_release_all(hdi_device *device)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hd_lane *lane = device->lanes[i];
        if (lane) {
            free(lane->seen);
            hdi_waits_release(&lane->waits);
            free(lane->parked.at);
            free(lane->parked.last);
            hdi_archive_free(lane->archive);
            device->lanes[i] = NULL;
        }
    }
}

/* ---- the calling thread's lanes ---- */

typedef struct thread_lanes {
    struct thread_lanes *next;
    uint64_t runtime_id;
    hd_lane *lane[HDI_DEVICES_MAX]; /* handles */
} thread_lanes;

static _Thread_local thread_lanes *own_lanes;
static pthread_key_t own_lanes_key;
static pthread_once_t own_lanes_once = PTHREAD_ONCE_INIT;
static int own_lanes_error;

static void thread_lanes_give_back(hd_runtime *rt, void *context)
{
    thread_lanes *lanes = context;
    atomic_fetch_sub_explicit(&rt->threads, 1, memory_order_relaxed);
    for (int i = 0; i < rt->n_devices; i++) {
        if (lanes->lane[i]) {
            lane_give_back(lanes->lane[i], true);
        }
    }
}

static void thread_lanes_end(void *list)
{
    for (thread_lanes *lanes = list, *next; lanes; lanes = next) {
        next = lanes->next;
        hdi_runtime_with(lanes->runtime_id, thread_lanes_give_back, lanes);
        free(lanes);
    }
    own_lanes = NULL;
}

static void thread_lanes_make_key(void)
{
    own_lanes_error = hdi_thread_key(&own_lanes_key, thread_lanes_end);
}

static void thread_lanes_do_nothing(hd_runtime *rt, void *context)
{
    (void)rt;
    (void)context;
}

/* Returns this thread's entry for a runtime, and makes the entry if it is missing. Also drops
 * entries of closed runtimes. */
static thread_lanes *thread_lanes_of(hd_runtime *rt)
{
    pthread_once(&own_lanes_once, thread_lanes_make_key);
    for (thread_lanes **link = &own_lanes; *link;) {
        thread_lanes *lanes = *link;
        if (lanes->runtime_id == rt->id) {
            return lanes;
        }
        if (hdi_runtime_with(lanes->runtime_id, thread_lanes_do_nothing, NULL)) {
            link = &lanes->next;
        } else {
            *link = lanes->next;
            free(lanes);
            pthread_setspecific(own_lanes_key, own_lanes);
        }
    }
    thread_lanes *lanes = own_lanes_error ? NULL : calloc(1, sizeof *lanes);
    if (!lanes) {
        hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
        return NULL;
    }
    atomic_fetch_add_explicit(&rt->threads, 1, memory_order_relaxed);
    lanes->runtime_id = rt->id;
    lanes->next = own_lanes;
    own_lanes = lanes;
    pthread_setspecific(own_lanes_key, lanes);
    return lanes;
}

static hd_status lane_make_default(hdi_device *device, hd_lane **out)
{
    hd_lane *lane = NULL;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_lane_make(device, true, true, &lane);
    if (status == HD_ERROR_LIMIT && (lane = lane_share_default(device))) {
        status = HD_OK;
    }
    hdi_attempt_result(&attempt, status);
    if (!status) {
        *out = hdi_lane_handle(lane);
    }
    return status;
}

hd_status hd_lane_get_default(hd_runtime *rt, int device, hd_lane **out)
{
    HDI_INSIDE_BRIEFLY(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    /* After hd_close began, functions that the library calls may still make this call. */
    bool known = rt && hdi_handle_object(rt) == rt && hdi_handle_head_is(&rt->head, HDI_RUNTIME_MAGIC);
    if (!rt || (!known && !hdi_runtime_is_open(rt))) {
        return hdi_runtime_refused(rt);
    }
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    thread_lanes *lanes = own_lanes && own_lanes->runtime_id == rt->id ? own_lanes : thread_lanes_of(rt);
    if (!lanes) {
        return HD_ERROR_HOST_MEMORY;
    }
    hd_status status = lanes->lane[device] ? HD_OK : lane_make_default(rt->devices[device], &lanes->lane[device]);
    if (!status) {
        *out = lanes->lane[device];
    }
    return status;
}

/* ---- the public calls ---- */

hd_status hd_lane_create(hd_runtime *rt, int device, hd_lane **out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    hd_lane *lane;
    hd_status status = hdi_lane_make(rt->devices[device], false, true, &lane);
    if (!status) {
        *out = hdi_lane_handle(lane);
    }
    return status;
}

hd_status hd_lane_destroy(hd_lane *handle)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    return handle ? lane_give_back(handle, false) : HD_OK;
}

int hd_lane_device(const hd_lane *handle)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    /* Computed from the number, since the device may be gone with its runtime. */
    return lane ? (int)(lane->global / HDI_LANES_MAX) : -1;
}

int hd_lane_number(const hd_lane *handle)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    return lane ? (int)lane->number : -1;
}

hd_status hd_lane_get_ticket(hd_lane *handle, hd_ticket *out)
{
    HDI_CALL();
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    out->lane = handle;
    out->sequence = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    return HD_OK;
}

hd_status hd_lane_wait(hd_lane *handle, int64_t timeout_ns)
{
    HDI_INSIDE_OFTEN(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    hd_runtime *rt = lane->device->runtime;
    uint64_t head = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    if (!hdi_wait_position_at_leisure(rt, lane->global, head, hdi_limit_deadline(timeout_ns))) {
        if (timeout_ns < HD_FOREVER) {
            return hdi_limit_refused(timeout_ns);
        }
        return hdi_not_done(rt, lane->global, timeout_ns ? head : 0,
                            "lane %u on device %d is not drained after %lld ns", lane->number, lane->device->index,
                            (long long)timeout_ns);
    }
    hd_status status = hdi_position_status(rt, lane->global, head);
    if (!status && hdi_device_lost(lane->device)) {
        status = hdi_lane_refuses(lane);
    }
    return status;
}

/* True if the last submitted command is a RESUME that ends at `head`, and the lane still reports a
 * failure after it. No correct engine reports that. */
static bool lane_is_stuck(const hd_lane *lane, uint64_t head)
{
    return atomic_load_explicit(&lane->shared->failed, memory_order_acquire) &&
           head == atomic_load_explicit(&lane->resumed, memory_order_relaxed) &&
           head == atomic_load_explicit(&lane->submitted, memory_order_acquire);
}

hd_status hd_lane_reset(hd_lane *handle, int64_t timeout_ns)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (timeout_ns < HD_FOREVER) {
        return hdi_limit_refused(timeout_ns);
    }
    hd_runtime *rt = lane->device->runtime;
    int64_t deadline = hdi_deadline(timeout_ns);
    uint64_t head = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    bool in_time = hdi_wait_position(rt, lane->global, head, deadline);
    while (in_time && atomic_load_explicit(&lane->shared->failed, memory_order_acquire)) {
        /* If the lane is not drained, another thread submitted before it saw the failure. In that
         * case the loop waits for that thread's commands, and then checks again. */
        hdi_lock_take(&lane->device->order);
        bool lost = hdi_device_lost(lane->device); /* under the lock, as in hdi_lane_make */
        if (hdi_lane_is_past(lane)) {
            hdi_lock_release(&lane->device->order);
            return hdi_lane_refused(handle);
        }
        if (!lost && lane_is_drained(lane)) {
            hdi_lane_push(lane, &(hdi_command){.op = HDI_OP_RESUME, .slots = 1});
        }
        head = lane->head;
        hdi_lock_release(&lane->device->order);
        if (lost) {
            return hdi_lane_refuses(lane);
        }
        hdi_engine_notify(lane->device->channel.engine, lane->number);
        in_time = hdi_wait_position(rt, lane->global, head, deadline);
        if (in_time && lane_is_stuck(lane, head)) {
            hdi_device_give_up(lane->device);
            hdi_sleep_for(DOUBT_SLEEP_NS);
            in_time = hdi_clock_ns() < deadline;
        }
    }
    if (!in_time) {
        return hdi_not_done(rt, lane->global, timeout_ns ? head : 0,
                            "lane %u on device %d is not drained after %lld ns", lane->number, lane->device->index,
                            (long long)timeout_ns);
    }
    return HD_OK;
}
