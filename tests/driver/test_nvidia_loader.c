/* test_nvidia_loader.c - the loader of NVIDIA's driver: complete if libcuda exists, a clear failure
 * otherwise, and in a forked child.
 *
 * Promise: The loader finds every entry point of libcuda, or fails with a message.
 * Threads: one, and a forked child.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/options.h"
#include "driver/driver.h"
#include "engine/providers.h"
#include "support/without.h"

static bool have_libcuda;

static hd_status open_driver(const char *settings, const hdi_driver **out)
{
    hdi_options options;
    assert_int_equal(hdi_options_parse(settings, &options), HD_OK);
    hd_status status = hdi_providers_open_driver(&options, out);
    hdi_options_release(&options);
    return status;
}

/* The driver reads the variable when it starts, so it must be set by then. Heddle never replaces an
 * existing value, and does not set it if it has no effect. */
static void queues_are_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *before, *settings, *after;
    } cases[] = {
        {NULL, "driver=auto", NULL},
        {NULL, "driver=auto hw_queues=8", NULL},
        {NULL, "driver=host hw_queues=16", NULL},
        {NULL, "driver=auto hw_queues=16", "16"},
        {"4", "driver=auto hw_queues=16", "4"},
        {NULL, "driver=nvidia hw_queues=1", "1"},
    };
    static const char name[] = "CUDA_DEVICE_MAX_CONNECTIONS";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv(name);
        if (cases[i].before) {
            setenv(name, cases[i].before, 1);
        }
        const hdi_driver *d = NULL;
        if (open_driver(cases[i].settings, &d) == HD_OK) {
            hdi_providers_close_driver(d);
        }
        const char *now = getenv(name);
        assert_int_equal(now != NULL, cases[i].after != NULL);
        assert_true(!now || strcmp(now, cases[i].after) == 0);
    }
    unsetenv(name);
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    if (have_libcuda) {
        skip();
    }
    const hdi_driver *d = NULL;
    assert_int_equal(open_driver("driver=nvidia", &d), HD_ERROR_NO_DRIVER);
    assert_null(d);
    assert_non_null(strstr(hd_message(), "libcuda.so.1"));
    assert_int_equal(open_driver("driver=auto", &d), HD_OK);
    assert_string_equal(d->provider->name, "host");
    hdi_providers_close_driver(d);
}

static void the_table_is_complete(void **state)
{
    (void)state;
    if (!have_libcuda) {
        skip();
    }
    const hdi_driver *d = NULL, *again = NULL;
    assert_int_equal(hdi_driver_nvidia(&d), HD_OK);
    assert_int_equal(hdi_driver_nvidia(&again), HD_OK);
    assert_ptr_equal(d, again);
    assert_string_equal(d->provider->name, "nvidia");
    assert_true(d->version >= 11040);
    int version = 0;
    assert_int_equal(d->cuDriverGetVersion(&version), HDCU_SUCCESS);
    assert_int_equal(version, d->version);
    enum { OPTIONAL, REQUIRED };
#define CHECK_PRESENT(name, since, need, parameters, arguments)                                                        \
    if (need == REQUIRED || d->version >= since) {                                                                     \
        assert_true(d->name != NULL);                                                                                  \
    }
    HDI_DRIVER_ENTRIES(CHECK_PRESENT)
#undef CHECK_PRESENT
}

static void a_device_answers(void **state)
{
    (void)state;
    const hdi_driver *d = NULL;
    int count = 0;
    if (!have_libcuda || open_driver("driver=nvidia", &d) != HD_OK || d->cuDeviceGetCount(&count) != HDCU_SUCCESS ||
        count == 0) {
        hdi_providers_close_driver(d);
        skip();
    }
    char name[128];
    hdcu_context c;
    hdcu_stream s;
    hdcu_deviceptr p;
    uint32_t word = 0;
    assert_int_equal(d->cuDeviceGetName(name, sizeof name, 0), HDCU_SUCCESS);
    assert_int_equal(d->cuDevicePrimaryCtxRetain(&c, 0), HDCU_SUCCESS);
    assert_int_equal(d->cuCtxSetCurrent(c), HDCU_SUCCESS);
    assert_int_equal(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING), HDCU_SUCCESS);
    assert_int_equal(d->cuMemAlloc(&p, 4096), HDCU_SUCCESS);
    assert_int_equal(d->cuMemsetD32Async(p, 0x5a5a5a5a, 1024, s), HDCU_SUCCESS);
    assert_int_equal(d->cuStreamSynchronize(s), HDCU_SUCCESS);
    assert_int_equal(d->cuMemcpyDtoH(&word, p + 4092, 4), HDCU_SUCCESS);
    assert_int_equal(word, 0x5a5a5a5a);
    assert_int_equal(d->cuMemFree(p), HDCU_SUCCESS);
    assert_int_equal(d->cuStreamDestroy(s), HDCU_SUCCESS);
    assert_int_equal(d->cuDevicePrimaryCtxRelease(0), HDCU_SUCCESS);
    hdi_providers_close_driver(d);
}

/* Uses NVIDIA's driver if it starts, otherwise the host provider: the rule is the same. */
static void a_forked_child_is_refused(void **state)
{
    (void)state;
    const hdi_driver *d = NULL, *none = NULL;
    hdi_options nvidia;
    int status = -1;
    assert_int_equal(open_driver("driver=auto", &d), HD_OK);
    assert_int_equal(hdi_options_parse("driver=nvidia", &nvidia), HD_OK);
    assert_false(hdi_driver_was_forked());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        bool good = hdi_driver_was_forked() && hdi_providers_open_driver(&nvidia, &none) == HD_ERROR_UNSUPPORTED &&
                    !none && strstr(hd_message(), "does not survive fork");
        hdi_providers_close_driver(d);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(hdi_driver_was_forked());
    int count = 0;
    assert_int_equal(d->cuDeviceGetCount(&count), HDCU_SUCCESS);
    hdi_options_release(&nvidia);
    hdi_providers_close_driver(d);
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    have_libcuda = library != NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_are_asked_for),      cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(the_table_is_complete),     cmocka_unit_test(a_device_answers),
        cmocka_unit_test(a_forked_child_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!have_libcuda) {
        test_without("NVIDIA's driver");
    }
    return failed ? failed : have_libcuda ? 0 : 77;
}
