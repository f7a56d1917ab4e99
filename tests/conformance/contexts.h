/* contexts.h - keeps the primary contexts of GPUs for as long as a test program runs, so that each of its many runtimes opens in milliseconds.
 * Without it opening GPUs, a second each, takes most of a suite's time.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: where there is no driver, nothing happens. Workers have contexts of their own: nothing is gained in placement process.
 */
#ifndef CONFORMANCE_CONTEXTS_H
#define CONFORMANCE_CONTEXTS_H

#include <dlfcn.h>

/* Of the first `devices` GPUs; until the program ends. */
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
