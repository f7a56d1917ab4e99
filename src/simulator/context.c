/* context.c - primary contexts, each thread's stack of current contexts, and device faults.
 *
 * Threads: any. Locks: the host lock.
 * Blocking: the last release of a context waits for its running work; a retain waits while a context is taken down.
 * Always: a device has at most one context object. While that is taken down (retained == 0), a retain waits for the end.
 * The stacks hold handles, so a context that is gone is detected and not followed. A thread has one stack, from its first
 * context to its end.
 */
#include <stdlib.h>
#include "base/thread.h"
#include "simulator/host.h"

enum { STACK_MAX = 64 };

typedef struct stack {
    unsigned depth;
    uint64_t contexts[STACK_MAX];
} stack;

static _Thread_local stack *own; /* NULL: empty */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static int own_error;
static pthread_cond_t taken_down = PTHREAD_COND_INITIALIZER;

hdcu_result hdi_host_context_find(hdcu_context handle, hdi_host_context **context)
{
    *context = hdi_host_handle_find(HDI_HOST_CONTEXT, (uint64_t)(uintptr_t)handle);
    return *context ? HDCU_SUCCESS : HDCU_ERROR_INVALID_CONTEXT;
}

static void thread_ends(void *value)
{
    own = NULL;
    free(value);
}

static void make_key(void)
{
    own_error = hdi_thread_key(&own_key, thread_ends);
}

/* Makes this thread's stack where it is missing. Called without the lock. False: out of memory. */
static bool have_stack(void)
{
    if (own) {
        return true;
    }
    pthread_once(&own_once, make_key);
    stack *s = own_error ? NULL : calloc(1, sizeof *s);
    if (s && pthread_setspecific(own_key, s) != 0) {
        free(s);
        s = NULL;
    }
    own = s;
    return s != NULL;
}

static uint64_t top(void)
{
    return own && own->depth > 0 ? own->contexts[own->depth - 1] : 0;
}

hdcu_result hdi_host_context_current(hdi_host_context **context)
{
    uint64_t handle = top();
    if (handle == 0) {
        return HDCU_ERROR_INVALID_CONTEXT;
    }
    *context = hdi_host_handle_find(HDI_HOST_CONTEXT, handle);
    return *context ? HDCU_SUCCESS : HDCU_ERROR_CONTEXT_IS_DESTROYED;
}

void hdi_host_context_fault(uint64_t handle, hdcu_result code)
{
    hdi_host_context *context = hdi_host_handle_find(HDI_HOST_CONTEXT, handle);
    if (context && context->error == HDCU_SUCCESS) {
        context->error = code;
        __atomic_store_n(&hdi_host.devices[context->device].cancel, 1, __ATOMIC_RELAXED);
        hdi_host_streams_drop(context, code);
    }
}

static hdcu_result make(int device, hdi_host_context **out)
{
    hdi_host_context *context = calloc(1, sizeof *context);
    if (!context) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->handle = hdi_host_handle_make(HDI_HOST_CONTEXT, context);
    if (context->handle == 0) {
        free(context);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdcu_result r = hdi_host_stream_make(context, false, &context->null_stream);
    if (r != HDCU_SUCCESS) {
        hdi_host_handle_drop(context->handle);
        free(context);
        return r;
    }
    hdi_host.devices[device].context = context;
    __atomic_store_n(&hdi_host.devices[device].cancel, 0, __ATOMIC_RELAXED);
    hdi_host.contexts++;
    *out = context;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuDevicePrimaryCtxRetain(hdcu_context *context, hdcu_device device)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !context) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && !hdi_host_device_valid(device)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_context *c;
        while ((c = hdi_host.devices[device].context) && c->retained == 0) {
            hdi_host_wait(&taken_down);
        }
        if (!c) {
            r = make(device, &c);
        }
        if (r == HDCU_SUCCESS) {
            c->retained++;
            *context = (hdcu_context)(uintptr_t)c->handle;
        }
    }
    return hdi_host_leave(r);
}

/* Running kernels stop early, work that has not started is dropped, and everything made in the context is released. */
static void take_down(hdi_host_context *context)
{
    hdi_host_device *device = &hdi_host.devices[context->device];
    if (context->error == HDCU_SUCCESS) {
        context->error = HDCU_ERROR_CONTEXT_IS_DESTROYED;
    }
    hdi_host_handle_drop(context->handle);
    __atomic_store_n(&device->cancel, 1, __ATOMIC_RELAXED);
    hdi_host_streams_drop(context, context->error);
    hdi_host_streams_end(context);
    hdi_host_events_release(context);
    hdi_host_modules_release(context);
    hdi_host_pool_release(context);
    hdi_host_allocated_release(context);
    hdi_host.contexts--;
    hdi_host_virtual_release(context->device, hdi_host.contexts == 0);
    if (hdi_host.contexts == 0) {
        hdi_host_graphs_release();
    }
    for (int i = 0; i < HDI_HOST_DEVICES_MAX; i++) {
        if (hdi_host.devices[i].context) {
            hdi_host.devices[i].context->peers &= ~((uint64_t)1 << context->device);
        }
    }
    device->context = NULL;
    free(context);
    pthread_cond_broadcast(&taken_down);
}

hdcu_result hdi_host_cuDevicePrimaryCtxRelease(hdcu_device device)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !hdi_host_device_valid(device)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_context *c = hdi_host.devices[device].context;
        if (!c || c->retained == 0) {
            r = HDCU_ERROR_INVALID_CONTEXT;
        } else if (--c->retained == 0) {
            take_down(c);
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxSetCurrent(hdcu_context context)
{
    hdi_host_context *c;
    bool has_stack = context && have_stack();
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && context) {
        r = hdi_host_context_find(context, &c);
    }
    if (r == HDCU_SUCCESS && context && !has_stack) {
        r = HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (r == HDCU_SUCCESS && context) {
        if (own->depth == 0) {
            own->depth = 1;
        }
        own->contexts[own->depth - 1] = c->handle;
    } else if (r == HDCU_SUCCESS && own && own->depth > 0) {
        own->depth--;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxGetCurrent(hdcu_context *context)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !context) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *context = (hdcu_context)(uintptr_t)top();
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxPushCurrent(hdcu_context context)
{
    hdi_host_context *c;
    bool has_stack = have_stack();
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(context, &c);
    }
    if (r == HDCU_SUCCESS && (!has_stack || own->depth == STACK_MAX)) {
        r = HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (r == HDCU_SUCCESS) {
        own->contexts[own->depth++] = c->handle;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxPopCurrent(hdcu_context *context)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!own || own->depth == 0)) {
        r = HDCU_ERROR_INVALID_CONTEXT;
    }
    if (r == HDCU_SUCCESS) {
        own->depth--;
        if (context) {
            *context = (hdcu_context)(uintptr_t)own->contexts[own->depth];
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxSynchronize(void)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids_drain(context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_drain(context);
    }
    if (r == HDCU_SUCCESS && hdi_host_context_current(&context) == HDCU_SUCCESS) { /* the lock was released meanwhile */
        hdi_host_pool_settle(context);
    }
    return hdi_host_leave(r);
}
