/* event.c - points, each a moment in one stream or several, and the events made of them.
 *
 * Threads: any. Locks: the host lock. Blocking: hdi_host_point_wait and cuEventSynchronize.
 * Always: an event refers to the point of its most recent record, and a wait takes that point at the call. Recording again
 * makes a new point, so earlier waits keep their moment.
 */
#include <stdlib.h>
#include "base/wait.h"
#include "simulator/host.h"

typedef struct event {
    uint64_t handle;
    hdi_host_context *context;
    unsigned flags;
    hdi_host_point *point; /* NULL: never recorded outside a capture */
    hdi_host_captured captured;
} event;

hdi_host_point *hdi_host_point_make(void)
{
    hdi_host_point *point = calloc(1, sizeof *point);
    if (point) {
        point->references = 1;
        pthread_cond_init(&point->changed, NULL);
    }
    return point;
}

void hdi_host_point_release(hdi_host_point *point)
{
    if (point && --point->references == 0) {
        pthread_cond_destroy(&point->changed);
        free(point);
    }
}

void hdi_host_point_record(hdi_host_point *point, hdcu_result error)
{
    if (point->error == HDCU_SUCCESS) {
        point->error = error;
    }
    if (--point->pending == 0) {
        point->time_ns = hdi_clock_ns();
        pthread_cond_broadcast(&point->changed);
    }
}

hdcu_result hdi_host_point_wait(hdi_host_point *point)
{
    point->references++;
    while (point->pending > 0) {
        hdi_host_wait(&point->changed);
    }
    hdcu_result r = point->error;
    hdi_host_point_release(point);
    return r;
}

static void release(event *e)
{
    hdi_host_handle_drop(e->handle);
    hdi_host_point_release(e->point);
    hdi_host_captured_clear(&e->captured);
    free(e);
}

void hdi_host_events_release(hdi_host_context *context)
{
    uint32_t position = 0;
    event *e;
    while ((e = hdi_host_handle_next(HDI_HOST_EVENT, &position))) {
        if (e->context == context) {
            release(e);
        }
    }
}

static event *find(hdcu_event handle)
{
    return hdi_host_handle_find(HDI_HOST_EVENT, (uint64_t)(uintptr_t)handle);
}

hdcu_result hdi_host_cuEventCreate(hdcu_event *out, unsigned flags)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!out || flags > 3)) { /* interprocess events are not supported */
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        event *e = calloc(1, sizeof *e);
        uint64_t handle = e ? hdi_host_handle_make(HDI_HOST_EVENT, e) : 0;
        if (handle == 0) {
            free(e);
            r = HDCU_ERROR_OUT_OF_MEMORY;
        } else {
            e->handle = handle;
            e->context = context;
            e->flags = flags;
            *out = (hdcu_event)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuEventDestroy(hdcu_event handle)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        event *e = find(handle);
        if (e) {
            release(e);
        } else {
            r = HDCU_ERROR_INVALID_HANDLE;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result record(event *e, hdi_host_stream *stream)
{
    if (stream->capture) {
        return hdi_host_capture_record(stream, &e->captured);
    }
    hdi_host_point *point = hdi_host_point_make();
    if (!point) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_RECORD, .u.point = point};
    point->pending = 1;
    point->references++; /* the operation's reference */
    hdcu_result r = hdi_host_submit(stream, &op);
    if (r != HDCU_SUCCESS) {
        hdi_host_point_release(point);
        return r;
    }
    hdi_host_point_release(e->point);
    hdi_host_captured_clear(&e->captured);
    e->point = point;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuEventRecord(hdcu_event handle, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_stream(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        event *e = find(handle);
        r = e && e->context == stream->context ? record(e, stream) : HDCU_ERROR_INVALID_HANDLE;
    }
    return hdi_host_leave(r);
}

static hdcu_result wait(hdi_host_stream *stream, event *e)
{
    if (e->captured.capture != 0) {
        return hdi_host_capture_wait(stream, &e->captured);
    }
    if (!e->point) {
        return HDCU_SUCCESS;
    }
    if (stream->capture) {
        hdi_host_capture_invalidate(stream->capture);
        return HDCU_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (e->point->pending == 0) {
        return HDCU_SUCCESS;
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_WAIT, .u.point = e->point};
    e->point->references++;
    return hdi_host_submit(stream, &op);
}

hdcu_result hdi_host_cuStreamWaitEvent(hdcu_stream stream_handle, hdcu_event handle, unsigned flags)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && flags > 1) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(stream_handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        event *e = find(handle);
        r = e ? wait(stream, e) : HDCU_ERROR_INVALID_HANDLE;
    }
    return hdi_host_leave(r);
}

/* Finds an event for a call that reads it. Its context must have no fault, and its last record must be outside a
 * capture. */
static hdcu_result find_to_read(hdcu_event handle, event **out)
{
    *out = find(handle);
    if (!*out) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    if ((*out)->context->error != HDCU_SUCCESS) {
        return (*out)->context->error;
    }
    return (*out)->captured.capture != 0 ? HDCU_ERROR_CAPTURED_EVENT : HDCU_SUCCESS;
}

/* Takes the host lock, then as find_to_read. Fails also while a capture forbids queries. */
static hdcu_result enter_to_read(hdcu_event handle, event **out)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = find_to_read(handle, out);
    }
    return r == HDCU_SUCCESS ? hdi_host_capture_forbids() : r;
}

hdcu_result hdi_host_cuEventQuery(hdcu_event handle)
{
    event *e;
    hdcu_result r = enter_to_read(handle, &e);
    if (r == HDCU_SUCCESS && e->point) {
        r = e->point->pending > 0 ? HDCU_ERROR_NOT_READY : e->point->error;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuEventSynchronize(hdcu_event handle)
{
    event *e;
    hdcu_result r = enter_to_read(handle, &e);
    if (r == HDCU_SUCCESS && e->point) {
        r = hdi_host_point_wait(e->point);
    }
    if (r == HDCU_SUCCESS && find_to_read(handle, &e) == HDCU_SUCCESS) { /* the lock was released meanwhile */
        hdi_host_pool_settle(e->context);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuEventElapsedTime(float *milliseconds, hdcu_event start, hdcu_event end)
{
    event *from, *to;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !milliseconds) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = find_to_read(start, &from);
    }
    if (r == HDCU_SUCCESS) {
        r = find_to_read(end, &to);
    }
    if (r == HDCU_SUCCESS) {
        if (!from->point || !to->point || ((from->flags | to->flags) & HDCU_EVENT_DISABLE_TIMING)) {
            r = HDCU_ERROR_INVALID_HANDLE;
        } else if (from->point->pending > 0 || to->point->pending > 0) {
            r = HDCU_ERROR_NOT_READY;
        } else {
            *milliseconds = (float)((double)(to->point->time_ns - from->point->time_ns) / 1e6);
        }
    }
    return hdi_host_leave(r);
}
