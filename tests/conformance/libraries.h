/* libraries.h - for the tests of matrix products: the code that makes the products.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: on host devices the tests are the same with and without a BLAS on the machine.
 */
#ifndef CONFORMANCE_LIBRARIES_H
#define CONFORMANCE_LIBRARIES_H

#include "conformance.h"

/* The ways to make products. `auto` uses a library if the machine has one. The last one is the
 * library of the tests, which host devices can use on every machine. */
CONF_UNUSED static const char *const ways[] = {"blas=builtin", "blas=auto", "blas=" HD_TEST_KERNELS};
enum { BUILT_IN, AUTO, OWN, WAYS };

/* NULL: the device is a GPU, which cannot use the library of the tests. */
CONF_UNUSED static hd_runtime *open_way(int way, const char *more)
{
    if (way == OWN && conf_on_gpus) {
        return NULL;
    }
    hd_runtime *runtime = conf_open_with("%s %s", ways[way], more);
    char name[64] = "", why[512] = "";
    hd_lane *lane = conf_default_lane(runtime, 0);
    CONF_OK(conf_matmul_library(lane, name, sizeof name, why, sizeof why));
    CONF_TRUE(name[0] != '\0');
    if (way == AUTO && strcmp(name, "built-in") == 0 && !conf_on_gpus) {
        test_without("an optimized BLAS");
    }
    if (way != AUTO) {
        CONF_EQUAL(strcmp(name, "built-in") == 0, way == BUILT_IN);
    }
    return runtime;
}

/* Returns a way in which a library makes products; -1 if there is none, as on a GPU without
 * cuBLAS. */
CONF_UNUSED static int library_way(void)
{
    char name[64] = "";
    if (!conf_on_gpus) {
        return OWN;
    }
    hd_runtime *runtime = open_way(AUTO, "");
    CONF_OK(conf_matmul_library(conf_default_lane(runtime, 0), name, sizeof name, NULL, 0));
    conf_close(runtime);
    return strcmp(name, "built-in") == 0 ? -1 : AUTO;
}

#endif
