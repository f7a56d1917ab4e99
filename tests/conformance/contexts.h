/* contexts.h - keeps the primary contexts of GPUs while a test program runs, so that each of its
 * many runtimes opens in milliseconds. Otherwise opening GPUs, a second each, takes most of a
 * suite's time.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: without a driver, nothing happens. Workers use their own contexts, so placement process
 * gains nothing.
 */
#ifndef CONFORMANCE_CONTEXTS_H
#define CONFORMANCE_CONTEXTS_H

#include <dlfcn.h>

/* Keeps those of the first `devices` GPUs until the program ends. */
CONF_UNUSED static void conf_keep_contexts(int devices)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*get)(int *, int) = NULL, (*retain)(void **, int) = NULL;
    if (driver != NULL) {
        *(void **)&get = dlsym(driver, "cuDeviceGet");
        *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    }
    for (int i = 0; get != NULL && retain != NULL && i < devices; i++) {
        int device;
        void *context;
        CONF_EQUAL(get(&device, i), 0);
        CONF_EQUAL(retain(&context, device), 0);
    }
}

#endif
