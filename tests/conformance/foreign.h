/* foreign.h - work that a test puts into its own streams through the driver's entry points: fills,
 * and functions that hold a stream up.
 *
 * Threads: any; the device's context is current if a function requires it.
 * Locks: none.
 * Always: with placement=process this process loads no driver, and no test uses this file.
 */
#ifndef CONFORMANCE_FOREIGN_H
#define CONFORMANCE_FOREIGN_H

#include <stdatomic.h>
#include "conformance.h"

typedef struct foreign {
    int (*cuDeviceGet)(int *, int);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuDevicePrimaryCtxRelease)(int);
    int (*cuCtxPushCurrent)(void *);
    int (*cuCtxPopCurrent)(void **);
    int (*cuStreamCreate)(void **, unsigned);
    int (*cuStreamDestroy)(void *);
    int (*cuStreamSynchronize)(void *);
    int (*cuStreamBeginCapture)(void *, int);
    int (*cuStreamEndCapture)(void *, void **);
    int (*cuGraphDestroy)(void *);
    int (*cuMemsetD32Async)(unsigned long long, unsigned, size_t, void *);
    int (*cuMemcpyDtoDAsync)(unsigned long long, unsigned long long, size_t, void *);
    int (*cuLaunchHostFunc)(void *, void (*)(void *), void *);
    int (*cuMemAlloc)(unsigned long long *, size_t);
    int (*cuMemFree)(unsigned long long);
    int (*cuMemHostAlloc)(void **, size_t, unsigned);
    int (*cuMemFreeHost)(void *);
    int (*cuMemHostRegister)(void *, size_t, unsigned);
    int (*cuMemHostUnregister)(void *);
    int devices;
    int device[16];
    void *context[16];
} foreign;

static void *foreign_entry(const char *provider, const char *name)
{
    void (*function)(void) = NULL;
    CONF_OK(hd_driver_entry(provider, name, &function));
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

CONF_UNUSED static void foreign_begin(foreign *f, hd_runtime *runtime)
{
    const char *provider = conf_is_host(runtime) ? "host" : "nvidia";
#define ENTRY(name) *(void **)&f->name = foreign_entry(provider, #name)
    ENTRY(cuDeviceGet), ENTRY(cuDevicePrimaryCtxRetain), ENTRY(cuDevicePrimaryCtxRelease), ENTRY(cuCtxPushCurrent);
    ENTRY(cuCtxPopCurrent), ENTRY(cuStreamCreate), ENTRY(cuStreamDestroy), ENTRY(cuStreamSynchronize);
    ENTRY(cuStreamBeginCapture), ENTRY(cuStreamEndCapture), ENTRY(cuGraphDestroy), ENTRY(cuMemsetD32Async);
    ENTRY(cuMemcpyDtoDAsync), ENTRY(cuLaunchHostFunc), ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuMemHostAlloc);
    ENTRY(cuMemFreeHost), ENTRY(cuMemHostRegister), ENTRY(cuMemHostUnregister);
#undef ENTRY
    f->devices = hd_device_count(runtime) < 16 ? hd_device_count(runtime) : 16;
    for (int i = 0; i < f->devices; i++) {
        CONF_EQUAL(f->cuDeviceGet(&f->device[i], i), 0);
        CONF_EQUAL(f->cuDevicePrimaryCtxRetain(&f->context[i], f->device[i]), 0);
    }
}

CONF_UNUSED static void foreign_end(foreign *f)
{
    for (int i = 0; i < f->devices; i++) {
        CONF_EQUAL(f->cuDevicePrimaryCtxRelease(f->device[i]), 0);
    }
}

/* The device's context is current between these two calls. */
CONF_UNUSED static void foreign_enter(const foreign *f, int device)
{
    CONF_EQUAL(f->cuCtxPushCurrent(f->context[device]), 0);
}

CONF_UNUSED static void foreign_leave(const foreign *f)
{
    void *context;
    CONF_EQUAL(f->cuCtxPopCurrent(&context), 0);
}

CONF_UNUSED static void *foreign_stream(const foreign *f, int device)
{
    void *stream = NULL;
    foreign_enter(f, device);
    CONF_EQUAL(f->cuStreamCreate(&stream, 1), 0);
    foreign_leave(f);
    return stream;
}

CONF_UNUSED static uint64_t foreign_alloc(const foreign *f, int device, size_t size)
{
    unsigned long long address = 0;
    foreign_enter(f, device);
    CONF_EQUAL(f->cuMemAlloc(&address, size), 0);
    foreign_leave(f);
    return address;
}

CONF_UNUSED static void foreign_free(const foreign *f, int device, uint64_t address)
{
    foreign_enter(f, device);
    CONF_EQUAL(f->cuMemFree(address), 0);
    foreign_leave(f);
}

/* Holds a stream up until it is opened. */
typedef struct gate {
    atomic_bool reached, open;
} gate;

CONF_UNUSED static void gate_stand(void *argument)
{
    gate *g = argument;
    atomic_store(&g->reached, true);
    while (!atomic_load(&g->open)) {
        conf_sleep_ms(1);
    }
}

#endif
