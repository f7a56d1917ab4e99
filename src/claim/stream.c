/* stream.c - claims on streams of the program: hd_claim_begin_stream, and the end of such a claim.
 *
 * The program's stream gets waits for driver events, one for each lane that the claim waits for.
 * Usually the lane's engine already recorded such an event. Otherwise the calling thread records an
 * event behind all work that the driver got for the lane. That event may cover more work than the
 * claim waits for, but never less. A wait must not use an event behind a cut (src/engine/event.c).
 * If no event in front of the cut is left, the calling thread waits for the device. No event can
 * mark work that the engine did not give to the driver yet. For such work, the calling thread waits
 * until the engine gives it to the driver. It does not wait for the device. An earlier claim on the
 * same stream needs no wait, since the stream keeps its order. An earlier claim on another stream
 * records an event when it ends. The claim's own lane waits for the same lanes as the program's
 * stream. At the end of the claim, the CUDA stream of the claim's lane waits for an event of the
 * program's stream.
 *
 * Threads: any. Locks: one for each device's pool of events, held briefly.
 * Blocking: hd_claim_begin_stream waits for an engine that is behind (option submit_timeout).
 * hd_claim_end waits for the device if the stream is gone.
 * Always:
 * - The device's context is current during driver calls, and the program's context is current again
 *   afterwards.
 * - A stream under capture gets no event and no wait, so no capture breaks.
 * - A thread may record an event again after a stream got a wait for the event. The wait is still
 *   for the earlier recording.
 * - If hd_claim_begin_stream is refused after its submission, it withdraws the claim. The program's
 *   stream may keep some waits, which change no bytes.
 * - hd_claim_end always ends the claim. If the claim's stream is under capture, the engine
 *   completes the end after the capture (src/engine/program.c).
 */
#include <inttypes.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/sized.h"
#include "base/wait.h"
#include "claim/claim.h"
#include "engine/engine.h"
#include "engine/stream.h"

#define LOOK_SLEEP_NS 20000
#define LEGACY_STREAM ((hdcu_stream)1)
#define THREAD_STREAM ((hdcu_stream)2) /* the default stream of the calling thread */

/* ---- the program's stream ---- */

static hd_status claim_stream_driver_failed(hdi_device *device, hdcu_result r, const char *call)
{
    return hdi_driver_failed(device, r, call);
}

/* Fails if work in the stream would join a capture, or break one. The context is current. */
static hd_status claim_stream_check_capture(hdi_device *device, hdcu_stream stream)
{
    int capturing = HDCU_STREAM_CAPTURE_STATUS_NONE;
    hdcu_result r = device->runtime->driver->cuStreamIsCapturing(stream, &capturing);
    if (hdi_driver_code_is_capture(r) || (r == HDCU_SUCCESS && capturing != HDCU_STREAM_CAPTURE_STATUS_NONE)) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "stream %p is being captured into a graph; begin and end claims outside of captures",
                        (void *)stream);
    }
    if (r == HDCU_ERROR_INVALID_HANDLE || r == HDCU_ERROR_INVALID_VALUE) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%p is no stream of device %d", (void *)stream, device->index);
    }
    return r == HDCU_SUCCESS ? HD_OK : claim_stream_driver_failed(device, r, "cuStreamIsCapturing");
}

/* The stream's number, which no other stream ever gets; 0 if the driver provides none. The context
 * is current. */
static hd_status claim_stream_id_of(hdi_device *device, hdcu_stream stream, uint64_t *out)
{
    const hdi_driver *driver = device->runtime->driver;
    unsigned long long id = 0;
    hdcu_result r = driver->cuStreamGetId ? driver->cuStreamGetId(stream, &id) : HDCU_SUCCESS;
    *out = id;
    return r == HDCU_SUCCESS ? HD_OK : claim_stream_driver_failed(device, r, "cuStreamGetId");
}

static hd_status claim_stream_check(hdi_device *device, hdcu_stream stream, uint64_t *id)
{
    hdcu_context context = NULL;
    hd_status status = claim_stream_check_capture(device, stream);
    status = status ? status : claim_stream_id_of(device, stream, id);
    if (status || hdi_claim_stream_is_checked(device, *id)) {
        return status;
    }
    hdcu_result r = device->runtime->driver->cuStreamGetCtx(stream, &context);
    if (r != HDCU_SUCCESS || context != device->context) {
        return hdi_driver_code_is_fatal(r)
                   ? claim_stream_driver_failed(device, r, "cuStreamGetCtx")
                   : hdi_fail(HD_ERROR_ARGUMENT,
                              "stream %p is of another device, or not of the primary context of device %d",
                              (void *)stream, device->index);
    }
    hdi_claim_stream_set_checked(device, *id);
    return HD_OK;
}

/* ---- waits in the stream ---- */

/* Records an event of `owner` behind all work that the driver got for one of its lanes. The owner's
 * context is current. */
static hdcu_result claim_stream_record_now(hd_runtime *rt, hdi_device *owner, hdcu_stream lane_stream,
                                           hdcu_event *event)
{
    *event = hdi_claim_event_take(rt, owner->index);
    hdcu_result r = *event ? HDCU_SUCCESS : rt->driver->cuEventCreate(event, HDCU_EVENT_DISABLE_TIMING);
    return r == HDCU_SUCCESS ? rt->driver->cuEventRecord(*event, lane_stream) : r;
}

/* Makes the program's stream wait for a new event behind all work that the driver got for the lane.
 * *late: a cut was made during this call. So the event may lie behind the cut, and the stream got
 * no wait. */
static hd_status claim_stream_wait_for_all(hdi_device *owner, hdi_stream *other, uint64_t position, hdi_device *device,
                                           hdcu_stream stream, bool *late)
{
    hd_runtime *rt = device->runtime;
    hdcu_event event = NULL;
    hdcu_result r;
    if (owner == device) {
        r = claim_stream_record_now(rt, owner, other->handle, &event);
    } else {
        hdi_scope scope;
        hd_status status = hdi_scope_enter(owner, &scope);
        if (status) {
            return status;
        }
        r = claim_stream_record_now(rt, owner, other->handle, &event);
        hdi_scope_leave(&scope);
    }
    *late = hdi_stream_is_cut_behind(other, position);
    r = r == HDCU_SUCCESS && !*late ? rt->driver->cuStreamWaitEvent(stream, event, 0) : r;
    if (event) {
        hdi_claim_event_give(rt, owner->index, event);
    }
    return r == HDCU_SUCCESS ? HD_OK : claim_stream_driver_failed(device, r, "cuStreamWaitEvent");
}

/* Makes the program's stream, a stream of `device`, wait for a lane position that the engine gave
 * to the driver. The context of `device` is current, since default streams belong to the current
 * context. *late: as for claim_stream_wait_for_all. */
static hd_status claim_stream_wait_for_lane(hdi_device *owner, hdi_stream *other, uint64_t position, hdi_device *device,
                                            hdcu_stream stream, bool *late)
{
    int held;
    hdcu_event event = hdi_stream_hold_event(other, position, &held);
    if (event) {
        hdcu_result r = device->runtime->driver->cuStreamWaitEvent(stream, event, 0);
        hdi_stream_release_event(other, held);
        return r == HDCU_SUCCESS ? HD_OK : claim_stream_driver_failed(device, r, "cuStreamWaitEvent");
    }
    *late = hdi_stream_is_cut_behind(other, position);
    return *late ? HD_OK : claim_stream_wait_for_all(owner, other, position, device, stream, late);
}

/* Waits until the engine gave the driver all work in the lane up to a position. False: the deadline
 * passed. */
static bool claim_stream_await_issue(hd_runtime *rt, hdi_device *owner, uint32_t number, uint64_t position)
{
    const hdi_lane_shared *shared = &owner->channel.lanes[number];
    int64_t deadline = hdi_option_deadline(rt->options.submit_timeout), start = hdi_clock_ns();
    hdi_engine_notify(owner->channel.engine, number);
    HDI_CALLER_WAITS();
    for (;;) {
        if (rt->is_inline) {
            for (int i = 0; i < rt->n_devices; i++) {
                hdi_engine_run_inline(rt->devices[i]);
            }
        }
        /* pairs with the engine's store, so that the engine's calls to the driver precede those of
         * this thread */
        if (atomic_load_explicit(&shared->issued, memory_order_acquire) >= position) {
            return true;
        }
        int64_t now = hdi_clock_ns();
        if (now >= deadline || hdi_is_closing(rt)) {
            return false;
        }
        if (now - start > rt->spin_ns) {
            hdi_sleep_for(LOOK_SLEEP_NS);
        } else {
            hdi_spin_turn();
        }
    }
}

static hd_status claim_stream_wait_for(struct hd_claim *c, const hdi_wait_entry *e, hdcu_stream stream)
{
    hd_runtime *rt = c->runtime;
    hdi_device *owner = hdi_lane_owner(rt, e->lane);
    uint32_t number = e->lane % HDI_LANES_MAX;
    bool in_order = c->stream_id && hdi_claim_is_on_stream(hdi_lane_at(owner, number), e->position, c->stream_id);
    if (in_order || hdi_point_done(rt, (hdi_point){e->lane, e->position})) {
        return HD_OK;
    }
    hdcu_event event = hdi_claim_end_event(hdi_lane_at(owner, number), e->position);
    /* a claim on another stream of the program ends with this event; no event of the engine marks
     * its end */
    if (event) {
        hdcu_result r = rt->driver->cuStreamWaitEvent(stream, event, 0);
        return r == HDCU_SUCCESS ? HD_OK : claim_stream_driver_failed(c->lane->device, r, "cuStreamWaitEvent");
    }
    if (!claim_stream_await_issue(rt, owner, number, e->position)) {
        return hdi_not_done(rt, e->lane, e->position,
                            "the work that the stream has to wait for did not begin (option submit_timeout)");
    }
    bool late = false;
    hd_status status =
        claim_stream_wait_for_lane(owner, &owner->engine->streams[number], e->position, c->lane->device, stream, &late);
    if (late && !hdi_wait_position(rt, e->lane, e->position, hdi_option_deadline(rt->options.submit_timeout))) {
        return hdi_not_done(rt, e->lane, e->position,
                            "the work that the stream has to wait for is not done (option submit_timeout)");
    }
    return status;
}

/* Puts the claim's waits into the stream. The claim's lane collected them, and no other thread
 * submits there. */
static hd_status claim_stream_put_waits(struct hd_claim *c, hdcu_stream stream)
{
    const hdi_waits *waits = &c->lane->waits;
    hd_status status = HD_OK;
    if (c->at_once) {
        return HD_OK; /* a claim that got the bytes at once waits for nothing */
    }
    for (uint32_t i = 0; i < waits->n && !status; i++) {
        status = claim_stream_wait_for(c, &waits->entries[i], stream);
    }
    return status;
}

/* ---- begin ---- */

/* The context of the device is current. */
static hd_status claim_stream_begin(hdi_device *device, hdcu_stream stream, const hdi_use *uses, size_t n_uses,
                                    const char *label, const void *site, struct hd_claim **out)
{
    hd_runtime *rt = device->runtime;
    uint64_t id = 0;
    struct hd_claim *c = NULL;
    hd_status status = claim_stream_check(device, stream, &id);
    status = status ? status : hdi_claim_take(rt, device->index, &c);
    if (status) {
        return status;
    }
    hdi_undo undo = {.n_uses = 0};
    hdi_runtime_note_calls(rt);
    status = hdi_claim_submit(c, uses, n_uses,
                              &(hdi_claim_begun){.label = label, .site = site, .undo = &undo, .on_stream = true});
    if (status) {
        return status;
    }
    c->stream = stream;
    c->stream_id = id;
    status = claim_stream_put_waits(c, stream);
    if (status) {
        hdi_claim_withdraw(c, &undo);
        return status;
    }
    hdi_undo_drop(&undo);
    c->on_stream = true;
    /* later claims on this stream do not wait for this claim, since the stream keeps its order */
    hdi_claim_note_stream(c->lane, c->end, id);
    *out = c;
    return HD_OK;
}

static hd_status claim_stream_refuse_process(void)
{
    return hdi_fail(HD_ERROR_UNSUPPORTED,
                    "with placement=process the driver is in another process, and the stream here; "
                    "open the runtime with placement=thread");
}

hd_status hdi_claim_check_stream(hd_runtime *rt, int device, void *stream)
{
    uint64_t id = 0;
    hdi_scope scope;
    hd_status status = rt->is_process ? claim_stream_refuse_process() : hdi_scope_enter(rt->devices[device], &scope);
    if (status) {
        return status;
    }
    status = claim_stream_check(rt->devices[device], stream, &id);
    hdi_scope_leave(&scope);
    return status;
}

hd_status hdi_claim_begin_stream(hd_runtime *rt, int device, void *stream, const hd_arg *args, size_t n_args,
                                 const hd_claim_options *options, const void *site, struct hd_claim **out)
{
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    hdi_use uses[HDI_USES_OF_ONE];
    hd_claim_options room;
    if (options && !(options = HDI_SIZED_IN(hd_claim_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    hd_status status = options && options->copies
                           ? hdi_fail(HD_ERROR_ARGUMENT, "a claim on a stream has no copies; put them into the stream")
                           : HD_OK;
    status = status ? status : hdi_uses_from(rt, device, args, n_args, uses);
    if (!status && rt->is_process) {
        return claim_stream_refuse_process();
    }
    hdi_scope scope;
    status = status ? status : hdi_scope_enter(rt->devices[device], &scope);
    if (status) {
        return status;
    }
    status = claim_stream_begin(rt->devices[device], stream, uses, n_args, options ? options->label : NULL, site, out);
    hdi_scope_leave(&scope);
    return status;
}

hd_status hd_claim_begin_stream(hd_runtime *rt, int device, void *stream, const hd_arg *args, size_t n_args,
                                const hd_claim_options *options, hd_claim **out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    struct hd_claim *c = NULL;
    hd_status status =
        hdi_claim_begin_stream(rt, device, stream, args, n_args, options, __builtin_return_address(0), &c);
    return status ? status : hdi_claim_give_out(c, out);
}

/* ---- end ---- */

/* Finds a stream in which an event comes behind the claim's work. Usually this is the claim's own
 * stream. If the claim's stream is the default stream of another thread, this thread cannot use it.
 * Then it uses the legacy default stream, whose work runs after earlier work in the default streams
 * of all threads. *gone: the stream was destroyed. The context is current. Errors: UNSUPPORTED (a
 * capture), DRIVER, DEVICE_LOST. */
static hd_status claim_stream_look_at_end(const struct hd_claim *c, hdcu_stream *stream, bool *gone)
{
    hdi_device *device = c->lane->device;
    uint64_t id = c->stream_id;
    *stream = c->stream ? c->stream : LEGACY_STREAM;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = claim_stream_check_capture(device, c->stream);
    bool captured = status == HD_ERROR_UNSUPPORTED;
    *gone = status && !captured;
    if (!status) {
        *gone =
            claim_stream_id_of(device, c->stream, &id) != HD_OK || (id != c->stream_id && c->stream != THREAD_STREAM);
    }
    if (c->stream == THREAD_STREAM && (captured || id != c->stream_id)) {
        *stream = LEGACY_STREAM;
        status = captured ? status : claim_stream_check_capture(device, LEGACY_STREAM);
    }
    return hdi_attempt_result(&attempt, status == HD_ERROR_UNSUPPORTED ? status : HD_OK);
}

/* The device's context is current. */
static hd_status claim_stream_record(struct hd_claim *c, hdcu_event *event, hdcu_stream *late)
{
    hdi_device *device = c->lane->device;
    const hdi_driver *driver = c->runtime->driver;
    hdcu_stream stream;
    bool gone;
    hd_status status = claim_stream_look_at_end(c, &stream, &gone);
    if (gone) {
        /* the stream is gone, but its work may still run */
        hdcu_result r = driver->cuCtxSynchronize();
        return r == HDCU_SUCCESS || !hdi_driver_code_is_fatal(r)
                   ? hdi_fail(HD_ERROR_HANDLE, "stream %p was destroyed before the claim was ended", c->stream)
                   : claim_stream_driver_failed(device, r, "cuCtxSynchronize");
    }
    hdcu_result r = c->event ? HDCU_SUCCESS : driver->cuEventCreate(&c->event, HDCU_EVENT_DISABLE_TIMING);
    if (status) {
        *late = stream;
        *event = r == HDCU_SUCCESS ? c->event : NULL;
        return status;
    }
    r = r == HDCU_SUCCESS ? driver->cuEventRecord(c->event, stream) : r;
    if (r != HDCU_SUCCESS) {
        status = claim_stream_driver_failed(device, r, "cuEventRecord");
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        driver->cuCtxSynchronize();
        hdi_attempt_end(&attempt);
        return status;
    }
    *event = c->event;
    return HD_OK;
}

hd_status hdi_claim_record_end(struct hd_claim *c, hdcu_event *event, hdcu_stream *late)
{
    hdi_device *device = c->lane->device;
    hdi_scope scope;
    if (hdi_device_lost(device)) {
        return HD_OK; /* the loss of the device already made the claim fail */
    }
    hd_status status = hdi_scope_enter(device, &scope);
    if (!status) {
        status = claim_stream_record(c, event, late);
    }
    hdi_scope_leave(&scope);
    return status;
}
