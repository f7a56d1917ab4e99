/* test_unified_trouble.c - failures with buffers that the CPU and the GPU both use, and with elements of pinned memory.
 *
 * Promise: A failure damages no bytes of a unified buffer that are still somewhere.
 *
 * A copy in one direction fails, a lane has failed before, any call of the driver fails, or the device is lost.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: failures damage nothing that is still somewhere.
 */
#include <signal.h>
#include "unified.h"

/* A copy to the host that fails has to be made again, no more. */
static void a_failed_copy_to_the_host(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:2=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n);
    put_word(x, n - 1, 3);
    CONF_OK(conf_fill(lane, k, x, 0, n - 1, 5, NULL));
    CONF_EQUAL(word_of(x, 0), 5);
    NO_ELEMENT(hd_element(x, 4 * (n - 1), 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    CONF_EQUAL(word_of(x, n - 1), 3);
    CONF_EQUAL(word_of(x, n - 2), 5);
    put_word(x, 0, 6);
    CONF_EQUAL(word_of(x, 0), 6);
    conf_close(runtime);
}

/* A copy to the device that fails takes the operation with it, but not the bytes. */
static void a_failed_copy_to_the_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyHtoDAsync:1=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n), *y = make(lane, 4 * n);
    for (size_t i = 0; i < n; i++) {
        put_word(x, i, (uint32_t)i);
    }
    hd_ticket ticket = {NULL, 0};
    hd_status status = conf_copy(lane, k, y, 0, x, 0, n, &ticket);
    status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status;
    CONF_TRUE(status == HD_ERROR_FAILED || status == HD_ERROR_LANE_FAILED);
    CONF_EQUAL(word_of(x, 7), 7);
    CONF_TRUE(status == HD_ERROR_LANE_FAILED || !hd_put_u32(y, 0, 0)); /* what should have come there did not */
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    for (size_t i = 0; i < n; i += 501) {
        CONF_EQUAL(word_of(y, i), i);
        CONF_EQUAL(word_of(x, i), i);
    }
    conf_close(runtime);
}

/* Copies to the device that a failed lane passed over are made again by the next operation. */
static void a_lane_that_failed_before(void **state)
{
    (void)state;
    /* the launch that fails is late, so that the others are submitted behind it */
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1=1 delay=cuLaunchKernel:1=100000");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n), *y = make(lane, 4 * n), *z = make(lane, 4 * n);
    put_word(x, 0, 11);
    put_word(x, n - 1, 12);
    CONF_OK(conf_fill(lane, k, z, 0, n, 1, NULL)); /* fails */
    hd_status status = conf_copy(lane, k, y, 0, x, 0, n, NULL);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_LANE_FAILED);
    hd_lane_wait(lane, 60 * CONF_SECOND);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_EQUAL(word_of(x, 0), 11);
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    CONF_EQUAL(word_of(y, 0), 11);
    CONF_EQUAL(word_of(y, n - 1), 12);
    /* and what the failed operation should have written is bad until something writes it */
    void *p = NULL;
    NO_ELEMENT(hd_element(z, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_fill_u32");
    NO_ELEMENT(hd_element(z, 0, 4, HD_WRITE), HD_ERROR_FAILED, "hd_fill_u32");
    CONF_FAILS(hd_map(z, HD_READ, &p), HD_ERROR_FAILED);
    CONF_FAILS(hd_map(z, HD_WRITE, &p), HD_ERROR_FAILED);
    CONF_OK(hd_fill(z, 0, 4, 4 * n, NULL));
    CONF_EQUAL(word_of(z, n - 1), 4);
    conf_close(runtime);
}

/* Elements of pinned memory whose last write failed can be written, and read after that. */
static void elements_of_failed_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:1=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *pinned = NULL, *x = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_fill(x, 0, 5, 4096, NULL));
    CONF_OK(hd_copy(pinned, 0, x, 0, 4096, NULL));
    NO_ELEMENT(hd_element(pinned, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    uint32_t *at = hd_element(pinned, 8, 4, HD_WRITE);
    CONF_TRUE(at != NULL);
    *at = 3;
    CONF_EQUAL(word_of(pinned, 2), 3);
    NO_ELEMENT(hd_element(pinned, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    CONF_TRUE(hd_element(pinned, 0, 4096, HD_WRITE) != NULL);
    CONF_EQUAL(word_of(pinned, 2), 3);
    CONF_TRUE(hd_element(pinned, 0, 4, HD_READ) != NULL);
    conf_close(runtime);
}

/* Makes one round of everything. What succeeds must have the right bytes. Returns how many calls failed. */
static int round_of_everything(hd_runtime *runtime)
{
    enum { n = 20000 };
    int failed = 0;
    hd_module *module = NULL;
    hd_kernel *copy = NULL;
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *y = NULL, *pinned = NULL;
    uint32_t *p = NULL, got = 0;
    hd_status status = hd_module_get_builtin(runtime, &module);
    status = status ? status : hd_kernel_get(module, "hd_copy_u32", &copy);
    status = status ? status : hd_lane_create(runtime, 0, &lane);
    status = status ? status : hd_alloc_unified(lane, 4 * n, &x);
    status = status ? status : hd_alloc_unified(lane, 4 * n, &y);
    status = status ? status : hd_alloc_host(runtime, 4 * n, &pinned);
    failed += status != HD_OK;
    for (uint32_t i = 1; i <= 3 && status == HD_OK; i++) {
        bool good = hd_map(x, HD_READ_WRITE, (void **)&p) == HD_OK;
        if (good) {
            p[0] = p[n - 1] = i;
            hd_unmap(x);
            hd_arg args[] = {hd_out(y), hd_in(x), hd_u64(n)};
            good = hd_launch(lane, copy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, NULL) == HD_OK;
            good = hd_copy(pinned, 0, x, 4 * (n - 1), 4, NULL) == HD_OK && good;
            if (hd_get_u32(x, n - 1, &got)) {
                CONF_EQUAL(got, i);
            }
            if (good && hd_get_u32(y, n - 1, &got)) {
                CONF_EQUAL(got, i);
            } else {
                good = false;
            }
            if (good && hd_get_u32(pinned, 0, &got)) {
                CONF_EQUAL(got, i);
            }
            good = hd_put_u32(x, 0, 100 * i) && good;
            if (hd_read(x, 0, &got, 4) == HD_OK) {
                CONF_TRUE(!good || got == 100 * i);
            }
        }
        failed += !good;
        hd_lane_reset(lane, 60 * CONF_SECOND);
    }
    hd_free(x);
    hd_free(y);
    hd_free(pinned);
    return failed;
}

static void calls_of_the_driver_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemHostRegister", "cuMemHostUnregister", "cuMemcpyHtoDAsync",
                                        "cuMemcpyDtoHAsync", "cuMemcpyAsync",       "cuLaunchKernel",
                                        "cuMemCreate",       "cuStreamWaitEvent",   "cuEventRecord"};
    int opened = 0, hit = 0;
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (int from = 1; from <= 4; from++) {
            for (int onward = 0; onward < 2; onward++) {
                char settings[128];
                snprintf(settings, sizeof settings, "fault=%s:%d%s=1 host_devices=1 memory_timeout=1", calls[c], from,
                         onward ? "+" : "");
                hd_runtime *runtime = NULL;
                if (conf_try_open(settings, &runtime) != HD_OK) {
                    continue;
                }
                opened++;
                hit += round_of_everything(runtime) != 0;
                conf_close(runtime);
            }
        }
    }
    CONF_TRUE(opened > 40);
    CONF_TRUE(hit > 10 && hit < opened);
}

static void its_device_is_lost(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = make(lane, MIB), *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    put_word(x, 0, 1);
    put_word(pinned, 5, 50);
    CONF_OK(conf_fill(lane, k, x, 0, 1000, 7, NULL));
    CONF_EQUAL(word_of(x, 999), 7);
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, 0, &info));
    CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
    hd_device_loss loss = {.size = sizeof loss};
    while (hd_loss_next(runtime, &loss) != HD_OK) {
        conf_sleep_ms(1);
    }
    void *p = NULL;
    NO_ELEMENT(hd_element(x, 0, 4, HD_READ), HD_ERROR_DEVICE_LOST, "hd_element");
    NO_ELEMENT(hd_element(x, 0, 4, HD_WRITE), HD_ERROR_DEVICE_LOST, "hd_element");
    CONF_FAILS(hd_map(x, HD_READ, &p), HD_ERROR_DEVICE_LOST);
    hd_unmap(x);
    CONF_EQUAL(word_of(pinned, 5), 50);
    CONF_FAILS(hd_alloc_unified(lane, 4, &x), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_device_restart(runtime, 0));
    NO_ELEMENT(hd_element(x, 0, 4, HD_READ), HD_ERROR_DEVICE_LOST, "hd_element");
    hd_free(x);
    x = make(lane, MIB);
    put_word(x, 3, 4);
    CONF_OK(conf_copy(lane, k, pinned, 20, x, 12, 1, NULL));
    CONF_EQUAL(word_of(pinned, 5), 4);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_unified_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_copy_to_the_host), CONF_CASE(a_failed_copy_to_the_device),
        CONF_CASE(a_lane_that_failed_before), CONF_CASE(elements_of_failed_pinned_memory),
        CONF_CASE(calls_of_the_driver_fail),  CONF_CASE(its_device_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
