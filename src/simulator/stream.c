/* stream.c - streams and events: streams are in-order queues of operations, each with a thread of
 * its own; events refer to moments in streams.
 *
 * Threads: entry points run on any thread, and host_stream_main on each stream's own thread. That
 * thread starts with the stream's first work and sleeps while it has none.
 * Locks: the host lock; operations run without it.
 * Blocking: hdi_host_enter_work waits for room. Calls that drain, synchronize or end streams wait
 * for work, and so do host_point_wait and cuEventSynchronize.
 * Always: items of a stream finish in order, one at a time. A stream's structure lives until its
 * thread is joined. Each queued point ends: it is recorded or dropped. An event refers to the point
 * of its most recent record, and a call that submits a wait takes that point. A further record
 * makes a new point, so earlier waits still refer to the earlier moment.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "base/thread.h"
#include "base/wait.h"
#include "simulator/host.h"

struct hdi_host_item {
    hdi_host_item *next;
    hdi_host_op op;
};

static pthread_cond_t stream_finished = PTHREAD_COND_INITIALIZER;

/* The most operations that wait in a stream, like the limit of NVIDIA's driver. Records of points
 * and waits do not count. A thread that submits more operations waits until one ends. */
enum { QUEUE_MOST = 1021 };

static pthread_cond_t queue_has_room = PTHREAD_COND_INITIALIZER;
static unsigned queue_waiters;

/* ---- points ---- */

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

static void host_point_record(hdi_host_point *point, hdcu_result error)
{
    if (point->error == HDCU_SUCCESS) {
        point->error = error;
    }
    if (--point->pending == 0) {
        point->time_ns = hdi_clock_ns();
        pthread_cond_broadcast(&point->changed);
    }
}

/* Waits on the calling thread, which holds a reference. */
static hdcu_result host_point_wait(hdi_host_point *point)
{
    while (point->pending > 0) {
        hdi_host_wait(&point->changed);
    }
    return point->error;
}

/* ---- operations ---- */

void *hdi_host_op_data(hdi_host_op *op, size_t bytes)
{
    op->data_bytes = bytes;
    if (bytes <= sizeof op->data_inline) {
        return op->data_inline;
    }
    op->data_heap = aligned_alloc(16, (bytes + 15) & ~(size_t)15);
    return op->data_heap;
}

const void *hdi_host_op_data_of(const hdi_host_op *op)
{
    return op->data_heap ? op->data_heap : op->data_inline;
}

void hdi_host_op_release(hdi_host_op *op, hdcu_result error)
{
    switch (op->kind) {
    case HDI_HOST_OP_KERNEL:
        hdi_host_module_release(op->u.kernel.module);
        break;
    case HDI_HOST_OP_RECORD:
        host_point_record(op->u.point, error);
        hdi_host_point_release(op->u.point);
        break;
    case HDI_HOST_OP_WAIT:
        hdi_host_point_release(op->u.point);
        break;
    case HDI_HOST_OP_GRAPH:
        hdi_host_graph_release(op->u.graph);
        break;
    case HDI_HOST_OP_FREE:
        hdi_host_slot_passed(op->u.slot);
        break;
    case HDI_HOST_OP_COPY:
    case HDI_HOST_OP_FILL:
    case HDI_HOST_OP_CALL:
    case HDI_HOST_OP_PRODUCT:
        break;
    }
    free(op->data_heap);
    op->data_heap = NULL;
}

/* ---- the thread ---- */

void hdi_host_perturb(uint64_t random)
{
    hdi_host_unlock();
    unsigned choice = random & 63;
    if (choice == 0) {
        hdi_sleep_for(1000000);
    } else if (choice < 16) {
        hdi_sleep_for(1000 + (int64_t)(random >> 8) % 100000);
    } else if (choice < 32) {
        sched_yield();
    }
    hdi_host_lock();
}

/* The most items that are kept for reuse. Reuse is faster than the heap, since one thread makes the
 * items and another thread frees them. */
enum { SPARE_ITEMS_MAX = 1024 };

static hdi_host_item *spare_items;
static unsigned spare_count;

static hdi_host_item *host_item_take(void)
{
    hdi_host_item *item = spare_items;
    if (!item) {
        return malloc(sizeof *item);
    }
    spare_items = item->next;
    spare_count--;
    return item;
}

static void host_item_give(hdi_host_item *item)
{
    if (spare_count == SPARE_ITEMS_MAX) {
        free(item);
        return;
    }
    item->next = spare_items;
    spare_items = item;
    spare_count++;
}

static hdi_host_item *host_stream_pop(hdi_host_stream *s)
{
    hdi_host_item *item = s->first;
    s->first = item->next;
    if (!s->first) {
        s->last = NULL;
    }
    return item;
}

static bool host_op_takes_room(const hdi_host_op *op)
{
    return op->kind != HDI_HOST_OP_RECORD && op->kind != HDI_HOST_OP_WAIT;
}

/* Notes that an operation of the stream ended or was dropped. Wakes submitters that wait for
 * room. */
static void host_stream_make_room(hdi_host_stream *s, const hdi_host_op *op)
{
    s->completed++;
    if (host_op_takes_room(op) && s->queued-- >= QUEUE_MOST && queue_waiters > 0) {
        pthread_cond_broadcast(&queue_has_room);
    }
}

static void host_stream_wait_for_point(hdi_host_stream *s, hdi_host_point *point)
{
    s->waiting = point;
    /* hdi_host_streams_drop wakes this thread after a fault, and at the end of the context. */
    while (point->pending > 0 && s->context->error == HDCU_SUCCESS) {
        hdi_host_wait(&point->changed);
    }
    s->waiting = NULL;
}

static void host_stream_run_item(hdi_host_stream *s, hdi_host_item *item)
{
    uint64_t random = 0;
    if (hdi_host.schedule) {
        random = hdi_random(&s->random) | 1;
        hdi_host_perturb(random >> 1);
    }
    if (item->op.kind == HDI_HOST_OP_WAIT) {
        host_stream_wait_for_point(s, item->op.u.point);
    } else if (s->context->error == HDCU_SUCCESS) {
        hdi_host_run(s->context->handle, s->context->device, random, &item->op);
    }
}

static void host_stream_unlink(hdi_host_stream *s)
{
    hdi_host_stream **link = &s->context->streams;
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
}

/* hdi_host_stream.prepared */
enum { PREPARED_NOT_YET = 0, PREPARED, PREPARED_WITHOUT_MEMORY };

static void *host_stream_main(void *argument)
{
    hdi_host_stream *s = argument;
    prctl(PR_SET_NAME, "heddle-host"); /* a thread names itself: naming another thread takes a write
                                        * to a file */
    bool prepared = hdi_cpu_prepare_thread();
    /* pairs with the load in host_stream_start_thread */
    atomic_store_explicit(&s->prepared, prepared ? PREPARED : PREPARED_WITHOUT_MEMORY, memory_order_release);
    hdi_futex_wake(&s->prepared, 1);
    if (!prepared) {
        return NULL;
    }
    hdi_host_lock();
    for (;;) {
        while (!s->first && !s->closing) {
            hdi_host_wait(&s->work);
        }
        if (!s->first) {
            break;
        }
        hdi_host_item *item = host_stream_pop(s);
        host_stream_run_item(s, item);
        if (hdi_driver_was_forked()) {
            /* A host function forked: this is the only thread of the child, which ends here. */
            return NULL;
        }
        hdi_host_op_release(&item->op, s->context->error);
        host_stream_make_room(s, &item->op);
        host_item_give(item);
    }
    hdi_cpu_unprepare();
    host_stream_unlink(s);
    s->next = s->context->finished;
    s->context->finished = s;
    pthread_cond_broadcast(&stream_finished);
    hdi_host_unlock();
    return NULL;
}

/* Starts the thread, and waits until it has the memory that it needs to run anything. So a lack of
 * memory fails the call, and not the work. */
static hdcu_result host_stream_start_thread(hdi_host_stream *s)
{
    if (!hdi_cpu_prepare()) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    sigset_t blocked, before;
    sigfillset(&blocked);
    /* Kernels raise these signals, and the handlers make faults of them. */
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    atomic_store_explicit(&s->prepared, PREPARED_NOT_YET, memory_order_relaxed);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int refused = hdi_thread_create(&s->thread, NULL, host_stream_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    bool failed = refused != 0;
    while (!failed && atomic_load_explicit(&s->prepared, memory_order_acquire) == PREPARED_NOT_YET) {
        hdi_futex_wait(&s->prepared, PREPARED_NOT_YET, INT64_MAX);
    }
    if (!failed && atomic_load_explicit(&s->prepared, memory_order_relaxed) == PREPARED_WITHOUT_MEMORY) {
        pthread_join(s->thread, NULL);
        failed = true;
    }
    if (failed) {
        hdi_cpu_unprepare();
        return refused ? HDCU_ERROR_OPERATING_SYSTEM : HDCU_ERROR_OUT_OF_MEMORY;
    }
    s->started = true;
    return HDCU_SUCCESS;
}

/* ---- submission ---- */

static hdcu_result host_stream_push(hdi_host_stream *s, hdi_host_op *op)
{
    hdcu_result r = s->started ? HDCU_SUCCESS : host_stream_start_thread(s);
    hdi_host_item *item = r == HDCU_SUCCESS ? host_item_take() : NULL;
    if (!item) {
        r = r == HDCU_SUCCESS ? HDCU_ERROR_OUT_OF_MEMORY : r;
        hdi_host_op_release(op, r);
        return r;
    }
    item->next = NULL;
    item->op = *op;
    if (s->last) {
        s->last->next = item;
    } else {
        s->first = item;
        pthread_cond_signal(&s->work);
    }
    s->last = item;
    s->submitted++;
    s->queued += host_op_takes_room(op);
    return HDCU_SUCCESS;
}

static hdcu_result host_stream_push_record(hdi_host_stream *s, hdi_host_point *point)
{
    hdi_host_op op = {.kind = HDI_HOST_OP_RECORD, .u.point = point};
    point->pending++;
    point->references++;
    return host_stream_push(s, &op);
}

static hdcu_result host_stream_push_wait(hdi_host_stream *s, hdi_host_point *point)
{
    hdi_host_op op = {.kind = HDI_HOST_OP_WAIT, .u.point = point};
    point->references++;
    return host_stream_push(s, &op);
}

static bool host_stream_is_busy(const hdi_host_stream *s)
{
    return s->completed != s->submitted;
}

/* Makes work in the NULL stream wait for all blocking streams of its context, and work in a
 * blocking stream wait for the NULL stream. */
static hdcu_result host_stream_order_with_null(hdi_host_stream *stream)
{
    hdi_host_stream *null_stream = stream->context->null_stream;
    hdi_host_point *point = NULL;
    hdcu_result r = HDCU_SUCCESS;
    if (stream == null_stream) {
        for (hdi_host_stream *s = stream->context->streams; s && r == HDCU_SUCCESS; s = s->next) {
            if (s != stream && !s->non_blocking && host_stream_is_busy(s) && s->joined != s->operations) {
                point = point ? point : hdi_host_point_make();
                r = point ? host_stream_push_record(s, point) : HDCU_ERROR_OUT_OF_MEMORY;
                s->joined = s->operations;
            }
        }
    } else if (!stream->non_blocking && host_stream_is_busy(null_stream) &&
               stream->null_seen != null_stream->operations) {
        point = hdi_host_point_make();
        r = point ? host_stream_push_record(null_stream, point) : HDCU_ERROR_OUT_OF_MEMORY;
        stream->null_seen = null_stream->operations;
    }
    if (point && r == HDCU_SUCCESS) {
        r = host_stream_push_wait(stream, point);
    }
    hdi_host_point_release(point);
    return r;
}

hdcu_result hdi_host_submit(hdi_host_stream *stream, hdi_host_op *op)
{
    if (stream->capture) {
        return hdi_host_capture_add(stream, op);
    }
    hdcu_result r = stream->context->error;
    if (r == HDCU_SUCCESS && stream == stream->context->null_stream) {
        r = hdi_host_capture_forbids_null(stream->context);
    }
    if (r == HDCU_SUCCESS) {
        r = host_stream_order_with_null(stream);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(op, r);
        return r;
    }
    stream->operations++;
    return host_stream_push(stream, op);
}

hdcu_result hdi_host_stream_drain(hdi_host_stream *stream)
{
    if (stream->context->error != HDCU_SUCCESS || !host_stream_is_busy(stream)) {
        return stream->context->error;
    }
    hdi_host_point *point = hdi_host_point_make();
    hdcu_result r = point ? host_stream_push_record(stream, point) : HDCU_ERROR_OUT_OF_MEMORY;
    if (r == HDCU_SUCCESS) {
        r = host_point_wait(point);
    }
    hdi_host_point_release(point);
    return r;
}

hdcu_result hdi_host_context_drain(hdi_host_context *context)
{
    if (context->error != HDCU_SUCCESS) {
        return context->error;
    }
    hdi_host_point *point = hdi_host_point_make();
    hdcu_result r = point ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
    for (hdi_host_stream *s = context->streams; s && r == HDCU_SUCCESS; s = s->next) {
        if (host_stream_is_busy(s)) {
            r = host_stream_push_record(s, point);
        }
    }
    if (r == HDCU_SUCCESS) {
        r = host_point_wait(point);
    }
    hdi_host_point_release(point);
    return r;
}

/* ---- life ---- */

hdcu_result hdi_host_stream_make(hdi_host_context *context, bool non_blocking, hdi_host_stream **out)
{
    hdi_host_stream *s = calloc(1, sizeof *s);
    uint64_t handle = s ? hdi_host_handle_make(HDI_HOST_STREAM, s) : 0;
    if (handle == 0) {
        free(s);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    s->handle = handle;
    s->context = context;
    s->non_blocking = non_blocking;
    pthread_cond_init(&s->work, NULL);
    s->random = hdi_host.schedule * 0x2545f4914f6cdd1du + ++hdi_host.streams_made;
    s->next = context->streams;
    context->streams = s;
    *out = s;
    return HDCU_SUCCESS;
}

static void host_stream_free(hdi_host_stream *s)
{
    pthread_cond_destroy(&s->work);
    free(s->tails);
    free(s);
}

/* Closes the stream to new work. Queued work still runs. */
static void host_stream_close(hdi_host_stream *s)
{
    hdi_host_handle_drop(s->handle);
    hdi_host_capture_abandon(s);
    s->closing = true;
    if (s->started) {
        pthread_cond_signal(&s->work);
    } else {
        host_stream_unlink(s);
        host_stream_free(s);
    }
}

void hdi_host_streams_drop(hdi_host_context *context, hdcu_result error)
{
    for (hdi_host_stream *s = context->streams; s; s = s->next) {
        while (s->first) {
            hdi_host_item *item = host_stream_pop(s);
            hdi_host_op_release(&item->op, error);
            host_stream_make_room(s, &item->op);
            host_item_give(item);
        }
        if (s->waiting) {
            pthread_cond_broadcast(&s->waiting->changed);
        }
    }
}

/* Joins the threads of destroyed streams that finished. The lock is released during the joins. */
static void host_streams_reap(hdi_host_context *context)
{
    hdi_host_stream *list = context->finished;
    context->finished = NULL;
    if (!list) {
        return;
    }
    hdi_host_unlock();
    while (list) {
        hdi_host_stream *next = list->next;
        pthread_join(list->thread, NULL);
        host_stream_free(list);
        list = next;
    }
    hdi_host_lock();
}

typedef struct event {
    uint64_t handle;
    hdi_host_context *context;
    unsigned flags;
    hdi_host_point *point; /* NULL: never recorded outside a capture */
    hdi_host_captured captured;
} event;

static void host_event_free(event *e)
{
    hdi_host_handle_drop(e->handle);
    hdi_host_point_release(e->point);
    hdi_host_captured_clear(&e->captured);
    free(e);
}

static void host_events_release(hdi_host_context *context)
{
    uint32_t position = 0;
    event *e;
    while ((e = hdi_host_handle_next(HDI_HOST_EVENT, &position))) {
        if (e->context == context) {
            host_event_free(e);
        }
    }
}

void hdi_host_streams_end(hdi_host_context *context)
{
    hdi_host_stream *next;
    for (hdi_host_stream *s = context->streams; s; s = next) {
        next = s->next;
        if (!s->closing) {
            host_stream_close(s);
        }
    }
    for (;;) {
        host_streams_reap(context);
        if (context->finished) {
            continue;
        }
        if (!context->streams) {
            break;
        }
        hdi_host_wait(&stream_finished);
    }
    host_events_release(context);
}

hdcu_result hdi_host_stream_find(hdcu_stream handle, hdi_host_stream **stream)
{
    uintptr_t number = (uintptr_t)handle;
    if (number <= 2) {
        hdi_host_context *context;
        hdcu_result r = hdi_host_context_current(&context);
        if (r != HDCU_SUCCESS) {
            return r;
        }
        *stream = context->null_stream;
    } else {
        *stream = hdi_host_handle_find(HDI_HOST_STREAM, number);
        if (!*stream) {
            return HDCU_ERROR_INVALID_HANDLE;
        }
    }
    return (*stream)->context->error;
}

hdcu_result hdi_host_enter_stream(hdcu_stream handle, hdi_host_stream **stream)
{
    hdcu_result r = hdi_host_enter();
    return r == HDCU_SUCCESS ? hdi_host_stream_find(handle, stream) : r;
}

hdcu_result hdi_host_enter_work(hdcu_stream handle, hdi_host_stream **stream)
{
    hdcu_result r = hdi_host_enter_stream(handle, stream);
    while (r == HDCU_SUCCESS && !(*stream)->capture && (*stream)->queued >= QUEUE_MOST) {
        queue_waiters++;
        hdi_host_wait(&queue_has_room);
        queue_waiters--;
        r = hdi_host_stream_find(handle, stream); /* the lock was released meanwhile */
    }
    return r;
}

/* ---- streams: calls ---- */

static hdcu_result cuStreamCreate(hdcu_stream *stream, unsigned flags)
{
    hdi_host_context *context;
    hdi_host_stream *s;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!stream || flags > HDCU_STREAM_NON_BLOCKING)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_make(context, (flags & HDCU_STREAM_NON_BLOCKING) != 0, &s);
    }
    if (r == HDCU_SUCCESS) {
        *stream = (hdcu_stream)(uintptr_t)s->handle;
        host_streams_reap(context);
    }
    return hdi_host_leave(r);
}

/* True if the stream exists and its thread still runs. */
static bool host_stream_is_there(const hdi_host_context *context, uint64_t handle)
{
    const hdi_host_stream *s = context->streams;
    while (s && s->handle != handle) {
        s = s->next;
    }
    return s != NULL;
}

/* If the stream has no work, its thread ends at once, and this call joins the thread. The threads
 * of other streams are joined later. */
static hdcu_result cuStreamDestroy(hdcu_stream stream)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_stream *s = hdi_host_handle_find(HDI_HOST_STREAM, (uintptr_t)stream);
        if (!s || s == s->context->null_stream) {
            r = HDCU_ERROR_INVALID_HANDLE;
        } else {
            hdi_host_context *context = s->context;
            uint64_t handle = host_stream_is_busy(s) ? 0 : s->handle;
            host_stream_close(s);
            while (handle && host_stream_is_there(context, handle)) {
                hdi_host_wait(&stream_finished);
            }
            host_streams_reap(context);
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuStreamGetCtx(hdcu_stream handle, hdcu_context *out)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_stream(handle, &stream);
    if (r == HDCU_SUCCESS && !out) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *out = (hdcu_context)(uintptr_t)stream->context->handle;
    }
    return hdi_host_leave(r);
}

/* The driver's reference does not say that this call is permitted for a stream under capture. The
 * simulator refuses it, and invalidates the capture, so no caller can depend on it. */
static hdcu_result cuStreamGetId(hdcu_stream handle, unsigned long long *out)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_stream(handle, &stream);
    if (r == HDCU_SUCCESS && !out) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && stream->capture) {
        hdi_host_capture_invalidate(stream->capture);
        r = HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (r == HDCU_SUCCESS) {
        *out = stream->handle; /* no other stream ever gets this number */
    }
    return hdi_host_leave(r);
}

static hdcu_result host_stream_find_to_wait(hdcu_stream handle, hdi_host_stream **stream)
{
    hdcu_result r = hdi_host_stream_find(handle, stream);
    if (r == HDCU_SUCCESS && (*stream)->capture) {
        hdi_host_capture_invalidate((*stream)->capture);
        return HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (r == HDCU_SUCCESS && *stream == (*stream)->context->null_stream) {
        r = hdi_host_capture_forbids_null((*stream)->context);
    }
    return r == HDCU_SUCCESS ? hdi_host_capture_forbids() : r;
}

static hdcu_result cuStreamQuery(hdcu_stream stream)
{
    hdi_host_stream *s;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = host_stream_find_to_wait(stream, &s);
    }
    if (r == HDCU_SUCCESS) {
        r = host_stream_is_busy(s) ? HDCU_ERROR_NOT_READY : HDCU_SUCCESS;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuStreamSynchronize(hdcu_stream stream)
{
    hdi_host_stream *s;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = host_stream_find_to_wait(stream, &s);
    }
    if (r == HDCU_SUCCESS) {
        if (s == s->context->null_stream) {
            r = host_stream_order_with_null(s); /* the event ends after the work of the blocking
                                                 * streams */
        }
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_drain(s);
    }
    /* The lock was released meanwhile. */
    if (r == HDCU_SUCCESS && hdi_host_stream_find(stream, &s) == HDCU_SUCCESS) {
        hdi_host_pool_settle(s->context);
    }
    return hdi_host_leave(r);
}

/* ---- events ---- */

static event *host_event_find(hdcu_event handle)
{
    return hdi_host_handle_find(HDI_HOST_EVENT, (uint64_t)(uintptr_t)handle);
}

static hdcu_result cuEventCreate(hdcu_event *out, unsigned flags)
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

static hdcu_result cuEventDestroy(hdcu_event handle)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        event *e = host_event_find(handle);
        if (e) {
            host_event_free(e);
        } else {
            r = HDCU_ERROR_INVALID_HANDLE;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result host_event_record(event *e, hdi_host_stream *stream)
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

static hdcu_result cuEventRecord(hdcu_event handle, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_stream(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        event *e = host_event_find(handle);
        r = e && e->context == stream->context ? host_event_record(e, stream) : HDCU_ERROR_INVALID_HANDLE;
    }
    return hdi_host_leave(r);
}

static hdcu_result host_stream_wait_for_event(hdi_host_stream *stream, event *e)
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

static hdcu_result cuStreamWaitEvent(hdcu_stream stream_handle, hdcu_event handle, unsigned flags)
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
        event *e = host_event_find(handle);
        r = e ? host_stream_wait_for_event(stream, e) : HDCU_ERROR_INVALID_HANDLE;
    }
    return hdi_host_leave(r);
}

/* Finds an event for a call that reads it. Its context must be without a fault, and its last record
 * must be outside a capture. */
static hdcu_result host_event_find_to_read(hdcu_event handle, event **out)
{
    *out = host_event_find(handle);
    if (!*out) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    if ((*out)->context->error != HDCU_SUCCESS) {
        return (*out)->context->error;
    }
    return (*out)->captured.capture != 0 ? HDCU_ERROR_CAPTURED_EVENT : HDCU_SUCCESS;
}

/* Takes the host lock, then finds an event like host_event_find_to_read. Also fails while a capture
 * forbids queries. */
static hdcu_result host_event_enter_to_read(hdcu_event handle, event **out)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = host_event_find_to_read(handle, out);
    }
    return r == HDCU_SUCCESS ? hdi_host_capture_forbids() : r;
}

static hdcu_result cuEventQuery(hdcu_event handle)
{
    event *e;
    hdcu_result r = host_event_enter_to_read(handle, &e);
    if (r == HDCU_SUCCESS && e->point) {
        r = e->point->pending > 0 ? HDCU_ERROR_NOT_READY : e->point->error;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuEventSynchronize(hdcu_event handle)
{
    event *e;
    hdcu_result r = host_event_enter_to_read(handle, &e);
    if (r == HDCU_SUCCESS && e->point) {
        /* during the wait, the event may be recorded again, or end */
        hdi_host_point *point = e->point;
        point->references++;
        r = host_point_wait(point);
        hdi_host_point_release(point);
    }
    /* The lock was released meanwhile. */
    if (r == HDCU_SUCCESS && host_event_find_to_read(handle, &e) == HDCU_SUCCESS) {
        hdi_host_pool_settle(e->context);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuEventElapsedTime(float *milliseconds, hdcu_event start, hdcu_event end)
{
    event *from, *to;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !milliseconds) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = host_event_find_to_read(start, &from);
    }
    if (r == HDCU_SUCCESS) {
        r = host_event_find_to_read(end, &to);
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

/* ---- the entry points ---- */

const hdi_driver hdi_host_stream_entries = {
    .cuStreamCreate = cuStreamCreate,
    .cuStreamDestroy = cuStreamDestroy,
    .cuStreamQuery = cuStreamQuery,
    .cuStreamSynchronize = cuStreamSynchronize,
    .cuEventCreate = cuEventCreate,
    .cuEventDestroy = cuEventDestroy,
    .cuEventRecord = cuEventRecord,
    .cuStreamGetCtx = cuStreamGetCtx,
    .cuStreamGetId = cuStreamGetId,
    .cuStreamWaitEvent = cuStreamWaitEvent,
    .cuEventQuery = cuEventQuery,
    .cuEventSynchronize = cuEventSynchronize,
    .cuEventElapsedTime = cuEventElapsedTime,
};
