/* test_faults.c - the wrapper that fails and delays driver calls: grammar, counts, several users, a
 * sweep without leaks; codes.
 *
 * Promise: The wrapper fails and delays exactly the driver calls that its setting names.
 * Threads: one. Locks: none.
 */
#include "simulator/host_support.h"
#include <heddle/status.h>
#include "base/wait.h"

static hdi_driver const *open_fault(const char *settings)
{
    char all[200];
    const hdi_driver *t = NULL;
    snprintf(all, sizeof all, "host_devices=2 host_memory=16M %s", settings);
    assert_int_equal(open_with(all, &t), HD_OK);
    return t;
}

static void the_nth_call_fails(void **state)
{
    (void)state;
    int count;
    d = open_fault("fault=3"); /* cuInit is the first call */
    OK(d->cuDeviceGetCount(&count));
    assert_int_equal(d->cuDeviceGetCount(&count), HDCU_ERROR_OUT_OF_MEMORY);
    OK(d->cuDeviceGetCount(&count));
    hdi_providers_close_driver(d);

    d = open_fault("fault=2");
    const char *name;
    OK(d->cuGetErrorName(2, &name)); /* not counted */
    assert_int_equal(d->cuDeviceGetCount(&count), HDCU_ERROR_OUT_OF_MEMORY);
    hdi_providers_close_driver(d);

    d = open_fault("fault=cuDeviceGetCount:2+=700");
    hdcu_device device;
    OK(d->cuDeviceGet(&device, 0));
    OK(d->cuDeviceGetCount(&count));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(d->cuDeviceGetCount(&count), HDCU_ERROR_ILLEGAL_ADDRESS);
        OK(d->cuDeviceGet(&device, 0));
    }
    hdi_providers_close_driver(d);
}

static void a_failed_start_is_told(void **state)
{
    (void)state;
    const hdi_driver *t = NULL;
    assert_int_equal(open_with("host_devices=2 host_memory=16M fault=1=100", &t), HD_ERROR_NO_DRIVER);
    assert_null(t);
    assert_non_null(strstr(hd_message(), "CUDA_ERROR_NO_DEVICE"));
    hdi_providers_close_driver(open_fault("fault=2")); /* nothing of the first wrapper is left */
    hdi_providers_close_driver(NULL);
}

static void calls_are_delayed(void **state)
{
    (void)state;
    int count;
    d = open_fault("delay=cuDeviceGetCount:2=20000");
    int64_t start = hdi_clock_ns();
    OK(d->cuDeviceGetCount(&count));
    OK(d->cuDeviceGetCount(&count));
    assert_true(hdi_clock_ns() - start >= 19000000);
    hdi_providers_close_driver(d);
}

static void bad_settings_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"fault=0",
                                      "fault=~0",
                                      "fault=~",
                                      "fault=~5+",
                                      "fault=x",
                                      "fault=cuNothing:1",
                                      "fault=1=",
                                      "fault=1++",
                                      "fault=cuInit:",
                                      "fault=1=2x",
                                      "fault=1=0",
                                      "fault=-1",
                                      "fault=cuGetErrorName:1",
                                      "fault=99999999999999999999",
                                      "delay=1",
                                      "delay=1=-5",
                                      "delay=1=99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const hdi_driver *t;
        assert_int_equal(open_with(bad[i], &t), HD_ERROR_OPTION);
    }
}

static void several_users_share_one_wrapper(void **state)
{
    (void)state;
    int count;
    const hdi_driver *other = NULL;
    d = open_fault("fault=cuDeviceGetCount:1");
    const hdi_driver *same = open_fault("fault=cuDeviceGetCount:1");
    assert_int_equal(open_with("host_devices=2 host_memory=16M fault=2", &other), HD_ERROR_OPTION);
    const hdi_driver *plain = open_fault("");
    assert_int_equal(d->cuDeviceGetCount(&count), HDCU_ERROR_OUT_OF_MEMORY);
    OK(same->cuDeviceGetCount(&count));
    OK(plain->cuDeviceGetCount(&count));
    hdi_providers_close_driver(d);
    assert_int_equal(open_with("host_devices=2 host_memory=16M fault=2", &other), HD_ERROR_OPTION);
    hdi_providers_close_driver(same);
    hdi_providers_close_driver(plain);
    hdi_providers_close_driver(open_fault("fault=2"));
}

enum { CALLS = 14 }; /* calls of the scenario without the last one */

/* Runs a scenario as far as it gets, and releases everything. Returns the number of failed calls;
 * the last call does not count. */
static int scenario(void)
{
    int failed = 0;
    hdcu_context c = NULL;
    hdcu_stream s = NULL;
    hdcu_event e = NULL;
    hdcu_deviceptr p = 0;
    uint32_t word = 0;
    if (d->cuDevicePrimaryCtxRetain(&c, 0) != HDCU_SUCCESS) {
        return 1;
    }
    failed += d->cuCtxSetCurrent(c) != HDCU_SUCCESS;
    failed += d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING) != HDCU_SUCCESS;
    failed += d->cuEventCreate(&e, 0) != HDCU_SUCCESS;
    failed += d->cuMemAlloc(&p, 4096) != HDCU_SUCCESS;
    if (p) {
        failed += d->cuMemsetD32Async(p, 1, 1024, s) != HDCU_SUCCESS;
        failed += d->cuMemcpyDtoHAsync(&word, p, 4, s) != HDCU_SUCCESS;
    }
    if (e) {
        failed += d->cuEventRecord(e, s) != HDCU_SUCCESS;
        failed += d->cuEventSynchronize(e) != HDCU_SUCCESS;
        failed += d->cuEventDestroy(e) != HDCU_SUCCESS;
    }
    failed += d->cuStreamSynchronize(s) != HDCU_SUCCESS;
    if (p) {
        failed += d->cuMemFree(p) != HDCU_SUCCESS;
    }
    if (s) {
        failed += d->cuStreamDestroy(s) != HDCU_SUCCESS;
    }
    failed += d->cuDevicePrimaryCtxRelease(0) != HDCU_SUCCESS;
    d->cuCtxSetCurrent(NULL);
    return failed;
}

static void every_call_of_a_scenario_can_fail(void **state)
{
    (void)state;
    for (int sweep = 0; sweep < 3; sweep++) {
        int n = 2; /* the first call is cuInit */
        for (int failed = 1; failed > 0; n++) {
            char settings[100];
            snprintf(settings, sizeof settings, "fault=%d%s=%d", n, sweep == 1 ? "+" : "", sweep == 2 ? 700 : 2);
            d = open_fault(settings);
            failed = scenario();
            hdi_providers_close_driver(d);
            assert_true(n < 100);
        }
        assert_true(n > CALLS);
        /* no context survived: other settings are accepted */
        d = NULL;
        assert_int_equal(
            open_with(sweep == 0 ? "host_devices=1 host_memory=16M" : "host_devices=3 host_memory=16M", &d), HD_OK);
        hdi_providers_close_driver(d);
    }
}

static void codes_have_names(void **state)
{
    (void)state;
    assert_string_equal(hdi_driver_code_name(0), "CUDA_SUCCESS");
    assert_string_equal(hdi_driver_code_name(700), "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_string_equal(hdi_driver_code_name(4711), "CUDA_ERROR_4711");
    assert_true(hdi_driver_code_is_fatal(700));
    assert_true(hdi_driver_code_is_fatal(719));
    assert_true(hdi_driver_code_is_fatal(214));
    assert_false(hdi_driver_code_is_fatal(0));
    assert_false(hdi_driver_code_is_fatal(2));
    assert_false(hdi_driver_code_is_fatal(600));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_call_fails),
        cmocka_unit_test(a_failed_start_is_told),
        cmocka_unit_test(calls_are_delayed),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(several_users_share_one_wrapper),
        cmocka_unit_test(every_call_of_a_scenario_can_fail),
        cmocka_unit_test(codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
