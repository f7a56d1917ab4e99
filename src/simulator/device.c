/* device.c - the host devices: their properties, primary contexts, each thread's stack of contexts,
 * and device faults.
 *
 * Threads: any. Locks: the host lock.
 * Blocking: the last release of a context waits for the context's running work. A retain waits
 * while the context is taken down (retained == 0).
 * Always: a device has at most one context object. The stacks contain handles of contexts, so a
 * look-up notices a context that is gone. A thread uses one stack, from its first context to the
 * thread's end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread.h"
#include "base/wait.h"
#include "simulator/cpu_run.h"
#include "simulator/host.h"

/* ---- properties ---- */

static hdcu_result cuGetErrorName(hdcu_result error, const char **name)
{
    if (!name) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    switch (error) {
#define NAME_CASE(code, value)                                                                                         \
    case value:                                                                                                        \
        *name = value == 0 ? "CUDA_SUCCESS" : "CUDA_" #code;                                                           \
        return HDCU_SUCCESS;
        HDCU_RESULT_MAP(NAME_CASE)
#undef NAME_CASE
    default:
        *name = NULL;
        return HDCU_ERROR_INVALID_VALUE;
    }
}

static hdcu_result cuGetErrorString(hdcu_result error, const char **text)
{
    return cuGetErrorName(error, text);
}

static hdcu_result cuDeviceGetCount(int *count)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = count ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *count = hdi_host.device_count;
    }
    return hdi_host_leave(r);
}

/* As hdi_host_enter, but also checks the arguments. The lock is held on return, even after a
 * failure. */
static hdcu_result host_device_enter(const void *output, hdcu_device device)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !output) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && !hdi_host_device_valid(device)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    return r;
}

static hdcu_result cuDeviceGet(hdcu_device *device, int ordinal)
{
    hdcu_result r = host_device_enter(device, ordinal);
    if (r == HDCU_SUCCESS) {
        *device = ordinal;
    }
    return hdi_host_leave(r);
}

static hdcu_result host_device_give_text(char *out, int length, const char *text, bool truncate)
{
    size_t need = strlen(text) + 1;
    if (length <= 0 || (!truncate && need > (size_t)length)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    snprintf(out, (size_t)length, "%s", text);
    return HDCU_SUCCESS;
}

static hdcu_result cuDeviceGetName(char *name, int length, hdcu_device device)
{
    hdcu_result r = host_device_enter(name, device);
    if (r == HDCU_SUCCESS) {
        char text[64];
        snprintf(text, sizeof text, "Heddle host device %d", device);
        r = host_device_give_text(name, length, text, true);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuDeviceGetPCIBusId(char *bus_id, int length, hdcu_device device)
{
    hdcu_result r = host_device_enter(bus_id, device);
    if (r == HDCU_SUCCESS) {
        char text[32];
        snprintf(text, sizeof text, "host:%d", device);
        r = host_device_give_text(bus_id, length, text, false);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuDeviceGetUuid(hdcu_uuid *uuid, hdcu_device device)
{
    hdcu_result r = host_device_enter(uuid, device);
    if (r == HDCU_SUCCESS) {
        memset(uuid->bytes, 0, sizeof uuid->bytes);
        memcpy(uuid->bytes, "heddle-host-dev", 15);
        uuid->bytes[15] = (char)device;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuDeviceTotalMem(size_t *bytes, hdcu_device device)
{
    hdcu_result r = host_device_enter(bytes, device);
    if (r == HDCU_SUCCESS) {
        *bytes = hdi_host.memory;
    }
    return hdi_host_leave(r);
}

static bool host_device_attribute(int attribute, hdcu_device device, int *value)
{
    switch (attribute) {
    case HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *value = 1024;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *value = 64;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        *value = 2147483647;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        *value = 65535;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *value = HDI_CPU_SHARED_BYTES_DEFAULT;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = HDI_CPU_SHARED_BYTES_MAX;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_PITCH:
        *value = HDI_HOST_PITCH_MAX;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = hdi_cpu_count();
        return true;
    case HDCU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    case HDCU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    case HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = device;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case HDCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = 1;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        *value = 0;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = -1;
        return true;
    default:
        return false;
    }
}

static hdcu_result cuDeviceGetAttribute(int *value, int attribute, hdcu_device device)
{
    hdcu_result r = host_device_enter(value, device);
    if (r == HDCU_SUCCESS && !host_device_attribute(attribute, device, value)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}

/* ---- contexts ---- */

enum { STACK_MAX = 64 };

typedef struct stack {
    unsigned depth;
    uint64_t contexts[STACK_MAX];
} stack;

static _Thread_local stack *own_stack; /* NULL: empty */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static int own_error;
static pthread_cond_t taken_down = PTHREAD_COND_INITIALIZER;

hdcu_result hdi_host_context_find(hdcu_context handle, hdi_host_context **context)
{
    *context = hdi_host_handle_find(HDI_HOST_CONTEXT, (uint64_t)(uintptr_t)handle);
    return *context ? HDCU_SUCCESS : HDCU_ERROR_INVALID_CONTEXT;
}

static void host_context_thread_ends(void *value)
{
    own_stack = NULL;
    free(value);
}

static void host_context_make_key(void)
{
    own_error = hdi_thread_key(&own_key, host_context_thread_ends);
}

/* Makes this thread's stack if it is missing. Called without the lock. False: out of memory. */
static bool host_context_have_stack(void)
{
    if (own_stack) {
        return true;
    }
    pthread_once(&own_once, host_context_make_key);
    stack *s = own_error ? NULL : calloc(1, sizeof *s);
    if (s && pthread_setspecific(own_key, s) != 0) {
        free(s);
        s = NULL;
    }
    own_stack = s;
    return s != NULL;
}

static uint64_t host_context_current_handle(void)
{
    return own_stack && own_stack->depth > 0 ? own_stack->contexts[own_stack->depth - 1] : 0;
}

hdcu_result hdi_host_context_current(hdi_host_context **context)
{
    uint64_t handle = host_context_current_handle();
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

static hdcu_result host_context_make(int device, hdi_host_context **out)
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

static hdcu_result cuDevicePrimaryCtxRetain(hdcu_context *context, hdcu_device device)
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
            r = host_context_make(device, &c);
        }
        if (r == HDCU_SUCCESS) {
            c->retained++;
            *context = (hdcu_context)(uintptr_t)c->handle;
        }
    }
    return hdi_host_leave(r);
}

/* Takes a context down: stops running kernels early, drops work that did not start, and releases
 * all objects of the context. */
static void host_context_take_down(hdi_host_context *context)
{
    hdi_host_device *device = &hdi_host.devices[context->device];
    if (context->error == HDCU_SUCCESS) {
        context->error = HDCU_ERROR_CONTEXT_IS_DESTROYED;
    }
    hdi_host_handle_drop(context->handle);
    __atomic_store_n(&device->cancel, 1, __ATOMIC_RELAXED);
    hdi_host_streams_drop(context, context->error);
    hdi_host_streams_end(context);
    hdi_host_modules_release(context);
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

static hdcu_result cuDevicePrimaryCtxRelease(hdcu_device device)
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
            host_context_take_down(c);
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuCtxSetCurrent(hdcu_context context)
{
    hdi_host_context *c;
    bool has_stack = context && host_context_have_stack();
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && context) {
        r = hdi_host_context_find(context, &c);
    }
    if (r == HDCU_SUCCESS && context && !has_stack) {
        r = HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (r == HDCU_SUCCESS && context) {
        if (own_stack->depth == 0) {
            own_stack->depth = 1;
        }
        own_stack->contexts[own_stack->depth - 1] = c->handle;
    } else if (r == HDCU_SUCCESS && own_stack && own_stack->depth > 0) {
        own_stack->depth--;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuCtxGetCurrent(hdcu_context *context)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !context) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *context = (hdcu_context)(uintptr_t)host_context_current_handle();
    }
    return hdi_host_leave(r);
}

static hdcu_result cuCtxPushCurrent(hdcu_context context)
{
    hdi_host_context *c;
    bool has_stack = host_context_have_stack();
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(context, &c);
    }
    if (r == HDCU_SUCCESS && (!has_stack || own_stack->depth == STACK_MAX)) {
        r = HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (r == HDCU_SUCCESS) {
        own_stack->contexts[own_stack->depth++] = c->handle;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuCtxPopCurrent(hdcu_context *context)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!own_stack || own_stack->depth == 0)) {
        r = HDCU_ERROR_INVALID_CONTEXT;
    }
    if (r == HDCU_SUCCESS) {
        own_stack->depth--;
        if (context) {
            *context = (hdcu_context)(uintptr_t)own_stack->contexts[own_stack->depth];
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuCtxSynchronize(void)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids_drain(context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_drain(context);
    }
    /* The lock was released meanwhile. */
    if (r == HDCU_SUCCESS && hdi_host_context_current(&context) == HDCU_SUCCESS) {
        hdi_host_pool_settle(context);
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_device_entries = {
    .cuGetErrorName = cuGetErrorName,
    .cuGetErrorString = cuGetErrorString,
    .cuDeviceGetCount = cuDeviceGetCount,
    .cuDeviceGet = cuDeviceGet,
    .cuDeviceGetName = cuDeviceGetName,
    .cuDeviceGetPCIBusId = cuDeviceGetPCIBusId,
    .cuDeviceGetUuid = cuDeviceGetUuid,
    .cuDeviceTotalMem = cuDeviceTotalMem,
    .cuDeviceGetAttribute = cuDeviceGetAttribute,
    .cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain,
    .cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease,
    .cuCtxSetCurrent = cuCtxSetCurrent,
    .cuCtxGetCurrent = cuCtxGetCurrent,
    .cuCtxPushCurrent = cuCtxPushCurrent,
    .cuCtxPopCurrent = cuCtxPopCurrent,
    .cuCtxSynchronize = cuCtxSynchronize,
};
