/* stream.c - claims on streams of the program's own: hd_claim_begin_stream, and how such a claim ends.
 *
 * The waits go into the program's stream, as events of the driver, one for each lane that the claim has to wait for.
 * The lane's engine has recorded such an event, or the calling thread records one behind all that the lane was given. That may be more than is needed,
 * and is never less. It is not behind a cut (src/engine/event.c): where no event is left in front of that, the calling thread waits for the device.
 * A position that the engine has not given to the driver yet has no place for an event. There the calling thread waits for the engine, not for the
 * device.
 * For a claim on the same stream nothing is put there, since the stream has that in order. For one on another stream it is the event at its end.
 * The claim's own lane waits for the same, as that of any claim. At the end its stream waits for an event of the program's stream.
 *
 * Threads: any. Locks: one for each device's pool of events, shortly.
 * Blocking: for an engine that is behind (option submit_timeout). hd_claim_end waits for the device where the stream is gone.
 * Always:
 * - The device's context is current while the driver is called, and the program's context is current again afterwards.
 * - No stream that is being captured gets an event or a wait, so no capture is spoilt.
 * - An event that was waited for may be recorded again: a wait is for what was recorded when it was made.
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

/* ---- the program's stream ---- */

static hd_status driver_failed(hdi_device *device, hdcu_result r, const char *call)
{
    return hdi_driver_failed(device, r, call);
}

/* Fails where a capture is under way that work in the stream would be part of, or would spoil. The context is current. */
static hd_status check_capture(hdi_device *device, hdcu_stream stream)
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
    return r == HDCU_SUCCESS ? HD_OK : driver_failed(device, r, "cuStreamIsCapturing");
}

/* The stream's number, which no other stream ever has; 0 where the driver has none. The context is current. */
static hd_status id_of(hdi_device *device, hdcu_stream stream, uint64_t *out)
{
    const hdi_driver *driver = device->runtime->driver;
    unsigned long long id = 0;
    hdcu_result r = driver->cuStreamGetId ? driver->cuStreamGetId(stream, &id) : HDCU_SUCCESS;
    *out = id;
    return r == HDCU_SUCCESS ? HD_OK : driver_failed(device, r, "cuStreamGetId");
}

static hd_status check_stream(hdi_device *device, hdcu_stream stream, uint64_t *id)
{
    hdcu_context context = NULL;
    hd_status status = check_capture(device, stream);
    status = status ? status : id_of(device, stream, id);
    if (status || hdi_claim_stream_is_checked(device, *id)) {
        return status;
    }
    hdcu_result r = device->runtime->driver->cuStreamGetCtx(stream, &context);
    if (r != HDCU_SUCCESS || context != device->context) {
        return hdi_driver_code_is_fatal(r)
                   ? driver_failed(device, r, "cuStreamGetCtx")
                   : hdi_fail(HD_ERROR_ARGUMENT,
                              "stream %p is of another device, or not of the primary context of device %d",
                              (void *)stream, device->index);
    }
    hdi_claim_stream_set_checked(device, *id);
    return HD_OK;
}

/* ---- waits in it ---- */

/* Records an event of the owner's behind all that a lane of it was given. The owner's context is current. */
static hdcu_result record_now(hd_runtime *rt, hdi_device *owner, hdcu_stream lane_stream, hdcu_event *event)
{
    *event = hdi_claim_event_take(rt, owner->index);
    hdcu_result r = *event ? HDCU_SUCCESS : rt->driver->cuEventCreate(event, HDCU_EVENT_DISABLE_TIMING);
    return r == HDCU_SUCCESS ? rt->driver->cuEventRecord(*event, lane_stream) : r;
}

/* Makes the program's stream wait for an event of its own, behind all that the lane was given. *late: the lane was cut meanwhile, so the event may
 * stand behind too much, and nothing was put into the stream. */
static hd_status wait_for_all(hdi_device *owner, hdi_stream *other, uint64_t position, hdi_device *device,
                              hdcu_stream stream, bool *late)
{
    hd_runtime *rt = device->runtime;
    hdcu_event event = NULL;
    hdcu_result r;
    if (owner == device) {
        r = record_now(rt, owner, other->handle, &event);
    } else {
        hdi_scope scope;
        hd_status status = hdi_scope_enter(owner, &scope);
        if (status) {
            return status;
        }
        r = record_now(rt, owner, other->handle, &event);
        hdi_scope_leave(&scope);
    }
    *late = hdi_stream_is_cut_behind(other, position);
    r = r == HDCU_SUCCESS && !*late ? rt->driver->cuStreamWaitEvent(stream, event, 0) : r;
    if (event) {
        hdi_claim_event_give(rt, owner->index, event);
    }
    return r == HDCU_SUCCESS ? HD_OK : driver_failed(device, r, "cuStreamWaitEvent");
}

/* Makes the program's stream wait for a position of a lane, which the engine has given to the driver. The context of `device`, whose stream it is, is
 * current: default streams are those of the current context. *late: as above. */
static hd_status wait_for_lane(hdi_device *owner, hdi_stream *other, uint64_t position, hdi_device *device,
                               hdcu_stream stream, bool *late)
{
    int held;
    hdcu_event event = hdi_stream_hold_event(other, position, &held);
    if (event) {
        hdcu_result r = device->runtime->driver->cuStreamWaitEvent(stream, event, 0);
        hdi_stream_release_event(other, held);
        return r == HDCU_SUCCESS ? HD_OK : driver_failed(device, r, "cuStreamWaitEvent");
    }
    *late = hdi_stream_is_cut_behind(other, position);
    return *late ? HD_OK : wait_for_all(owner, other, position, device, stream, late);
}

/* Waits until the engine has given the driver what the lane has up to a position. False: the deadline passed. */
static bool await_issue(hd_runtime *rt, hdi_device *owner, uint32_t number, uint64_t position)
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
        /* pairs with the engine's store: what it has given to the driver comes before what this thread gives */
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

static hd_status wait_for(struct hd_claim *c, const hdi_wait_entry *e, hdcu_stream stream)
{
    hd_runtime *rt = c->runtime;
    hdi_device *owner = hdi_lane_owner(rt, e->lane);
    uint32_t number = e->lane % HDI_LANES_MAX;
    bool in_order = c->stream_id && hdi_claim_is_on_stream(hdi_lane_at(owner, number), e->position, c->stream_id);
    if (in_order || hdi_point_done(rt, (hdi_point){e->lane, e->position})) {
        return HD_OK;
    }
    hdcu_event event = hdi_claim_end_event(hdi_lane_at(owner, number), e->position);
    if (event) { /* of another stream of the program's: nothing has to come from the engine */
        hdcu_result r = rt->driver->cuStreamWaitEvent(stream, event, 0);
        return r == HDCU_SUCCESS ? HD_OK : driver_failed(c->lane->device, r, "cuStreamWaitEvent");
    }
    if (!await_issue(rt, owner, number, e->position)) {
        return hdi_not_done(rt, e->lane, e->position,
                            "what the stream has to wait for was not begun (option submit_timeout)");
    }
    bool late = false;
    hd_status status =
        wait_for_lane(owner, &owner->engine->streams[number], e->position, c->lane->device, stream, &late);
    if (late && !hdi_wait_position(rt, e->lane, e->position, hdi_option_deadline(rt->options.submit_timeout))) {
        return hdi_not_done(rt, e->lane, e->position,
                            "what the stream has to wait for is not done (option submit_timeout)");
    }
    return status;
}

/* Puts what the claim waits for into the stream. Its lane has collected that, and no other thread submits there. */
static hd_status put_waits(struct hd_claim *c, hdcu_stream stream)
{
    const hdi_waits *waits = &c->lane->waits;
    hd_status status = HD_OK;
    if (c->at_once) {
        return HD_OK; /* there is nothing */
    }
    for (uint32_t i = 0; i < waits->n && !status; i++) {
        status = wait_for(c, &waits->entries[i], stream);
    }
    return status;
}

/* ---- begin ---- */

/* The context of the device is current. */
static hd_status begin(hdi_device *device, hdcu_stream stream, const hdi_use *uses, size_t n_uses, const char *label,
                       const void *site, struct hd_claim **out)
{
    hd_runtime *rt = device->runtime;
    uint64_t id = 0;
    struct hd_claim *c;
    hd_status status = check_stream(device, stream, &id);
    status = status ? status : hdi_claim_take(rt, device->index, &c);
    if (status) {
        return status;
    }
    atomic_store_explicit(&c->lane->claim_on_stream, true, memory_order_relaxed);
    hdi_runtime_note_calls(rt);
    status = hdi_claim_submit(c, uses, n_uses, HDI_CLAIM_ON_STREAM, label, site);
    if (status) {
        return status;
    }
    c->on_stream = true;
    c->stream = stream;
    c->stream_id = id;
    status = put_waits(c, stream);
    if (status) {
        c->on_stream = false; /* nothing of the program's is in the stream */
        hdi_claim_finish(c, status);
        return status;
    }
    hdi_claim_note_stream(c->lane, c->end, id); /* from here on the stream has in order what the claim waits for */
    *out = c;
    return HD_OK;
}

static hd_status refuse_in_process(void)
{
    return hdi_fail(HD_ERROR_UNSUPPORTED,
                    "with placement=process the driver is in another process, and the stream here; "
                    "open the runtime with placement=thread");
}

hd_status hdi_claim_check_stream(hd_runtime *rt, int device, void *stream)
{
    uint64_t id = 0;
    hdi_scope scope;
    hd_status status = rt->is_process ? refuse_in_process() : hdi_scope_enter(rt->devices[device], &scope);
    if (status) {
        return status;
    }
    status = check_stream(rt->devices[device], stream, &id);
    hdi_scope_leave(&scope);
    return status;
}

hd_status hdi_claim_begin_stream(hd_runtime *rt, int device, void *stream, const hd_arg *args, size_t n_args,
                                 const hd_claim_options *options, const void *site, struct hd_claim **out)
{
    if (device < 0 || device >= rt->n_devices) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "device %d of %d", device, rt->n_devices);
    }
    hdi_use uses[HDI_USES_OF_ONE];
    hd_status status = options ? HDI_SIZED_CHECK(hd_claim_options, options) : HD_OK;
    status = status ? status : hdi_uses_from(rt, device, args, n_args, uses);
    if (!status && rt->is_process) {
        return refuse_in_process();
    }
    hdi_scope scope;
    status = status ? status : hdi_scope_enter(rt->devices[device], &scope);
    if (status) {
        return status;
    }
    status = begin(rt->devices[device], stream, uses, n_args, options ? options->label : NULL, site, out);
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
    struct hd_claim *c;
    hd_status status =
        hdi_claim_begin_stream(rt, device, stream, args, n_args, options, __builtin_return_address(0), &c);
    return status ? status : hdi_claim_give_out(c, out);
}

/* ---- end ---- */

hd_status hdi_claim_check_end(struct hd_claim *c, hdi_scope *scope)
{
    hdi_device *device = c->lane->device;
    hd_status status = hdi_device_lost(device) ? HD_OK : hdi_scope_enter(device, scope);
    if (status || !scope->entered) {
        return status;
    }
    uint64_t id = c->stream_id;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    status = check_capture(device, c->stream);
    c->stream_gone = status != HD_OK && status != HD_ERROR_UNSUPPORTED;
    if (!status) {
        c->stream_gone = id_of(device, c->stream, &id) != HD_OK || (id != c->stream_id && (uintptr_t)c->stream != 2);
    }
    bool other_thread = !status && !c->stream_gone && id != c->stream_id;
    status = hdi_attempt_result(&attempt, status == HD_ERROR_UNSUPPORTED ? status : HD_OK);
    status = other_thread
                 ? hdi_fail(HD_ERROR_ARGUMENT, "the claim is on the default stream of another thread; end it there")
                 : status;
    if (status) {
        hdi_scope_leave(scope);
    }
    return status;
}

hd_status hdi_claim_end_behind_all(struct hd_claim *c)
{
    hdi_device *device = c->lane->device;
    uint64_t id = 0;
    hdi_scope scope;
    hd_status status = hdi_scope_enter(device, &scope);
    if (status) {
        return status;
    }
    status = id_of(device, LEGACY_STREAM, &id);
    hdi_scope_leave(&scope);
    if (!status) {
        c->stream = LEGACY_STREAM;
        c->stream_id = id;
    }
    return status;
}

/* The device's context is current. */
static hd_status record(struct hd_claim *c, hdcu_event *event)
{
    hdi_device *device = c->lane->device;
    const hdi_driver *driver = c->runtime->driver;
    if (c->stream_gone) {
        hdcu_result r = driver->cuCtxSynchronize(); /* what was put into the stream may still run */
        return r == HDCU_SUCCESS || !hdi_driver_code_is_fatal(r)
                   ? hdi_fail(HD_ERROR_HANDLE, "stream %p was destroyed before the claim was ended", c->stream)
                   : driver_failed(device, r, "cuCtxSynchronize");
    }
    hdcu_result r = c->event ? HDCU_SUCCESS : driver->cuEventCreate(&c->event, HDCU_EVENT_DISABLE_TIMING);
    r = r == HDCU_SUCCESS ? driver->cuEventRecord(c->event, c->stream) : r;
    if (r != HDCU_SUCCESS) {
        hd_status status = driver_failed(device, r, "cuEventRecord");
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        driver->cuCtxSynchronize();
        hdi_attempt_end(&attempt);
        return status;
    }
    *event = c->event;
    return HD_OK;
}

hd_status hdi_claim_record_end(struct hd_claim *c, hdi_scope *scope, hdcu_event *event)
{
    hdi_device *device = c->lane->device;
    hd_status status = HD_OK;
    bool lost = hdi_device_lost(device); /* then the claim has failed with it */
    if (!lost && !scope->entered) {
        status = hdi_scope_enter(device, scope);
    }
    if (!lost && !status) {
        status = record(c, event);
    }
    hdi_scope_leave(scope);
    return status;
}
