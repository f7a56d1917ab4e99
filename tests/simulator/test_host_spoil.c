/* test_host_spoil.c - peers that lose writes on purpose, and the limit of eight peers.
 *
 * Promise: Faults of links happen exactly as a setting asks, and only between the devices named.
 * Threads: the main one and the host provider's own; one case forks.
 */
#include "host_support.h"

#define BYTES ((size_t)2 << 20)

static hdcu_context contexts[2];
/* memory of device 0, and memory of device 1 that device 0 may access */
static hdcu_deviceptr own, other;
static hdcu_stream stream; /* stream of device 0, whose context is current */
static hdcu_module module;

static void allow(hdcu_deviceptr p, int device)
{
    const hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, HDCU_MEM_ACCESS_READWRITE};
    OK(d->cuMemSetAccess(p, BYTES, &access, 1));
}

static uint32_t *words(hdcu_deviceptr at)
{
    return (uint32_t *)(uintptr_t)at;
}

static void begin(const char *corrupt)
{
    char settings[128];
    snprintf(settings, sizeof settings, "host_devices=3 host_memory=16M host_corrupt=\"%s\"", corrupt);
    open_host(settings);
    contexts[1] = use_device(1);
    other = map_new(1, BYTES);
    contexts[0] = use_device(0);
    own = map_new(0, BYTES);
    allow(other, 0);
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    module = load_kernels();
    words(own)[0] = 5;
    words(other)[0] = 7;
    words(other)[1] = 8;
}

static void end(void)
{
    for (int i = 0; i < 2; i++) {
        OK(d->cuDevicePrimaryCtxRelease(i));
    }
    OK(d->cuCtxSetCurrent(NULL));
    hdi_providers_close_driver(d);
}

static hdcu_result copy(hdcu_deviceptr dst, hdcu_deviceptr src, hdcu_stream s)
{
    hdcu_result r = d->cuMemcpyDtoDAsync(dst, src, 4, s);
    return r ? r : d->cuStreamSynchronize(s);
}

static hdcu_result add(hdcu_deviceptr y, uint32_t value)
{
    hdcu_result r = launch_add(kernel_of(module, "add"), stream, y, value, 1);
    return r ? r : d->cuStreamSynchronize(stream);
}

static void expect_option_error(const char *text, const char *part)
{
    const hdi_driver *unused;
    char settings[128];
    snprintf(settings, sizeof settings, "host_devices=3 host_corrupt=\"%s\"", text);
    assert_int_equal(open_with(settings, &unused), HD_ERROR_OPTION);
    assert_non_null(strstr(hd_message(), "host_corrupt"));
    assert_non_null(strstr(hd_message(), part));
}

static void the_option_is_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"0",        "0>",    ">1",  "0-1",   "0>1:",  "0>1:slower",
                                      "0>1:LOST", "0>1 x", "a>b", "0>1>2", "0 > 1", "-1>0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        expect_option_error(bad[i], "expected pairs");
    }
    static const char *const nobody[] = {"0>3", "3>0", "1>1", "0>99999999999999999999", "0>64"};
    for (size_t i = 0; i < sizeof nobody / sizeof nobody[0]; i++) {
        expect_option_error(nobody[i], "two of the 3 host devices");
    }
    static const char *const good[] = {"", "  ", "0>1", "0>1 1>0,2>0;0>2:slow", "0>1:lost", ",0>1:hang,"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        begin(good[i]);
        end();
    }
    /* like other settings, they are the same for all concurrent users of the host devices */
    begin("0>1:slow");
    const hdi_driver *unused;
    assert_int_equal(open_with("host_devices=3 host_memory=16M host_corrupt=0>2:slow", &unused), HD_ERROR_OPTION);
    assert_int_equal(open_with("host_devices=3 host_memory=16M host_corrupt=0>1:slow", &unused), HD_OK);
    end();
}

static void writes_are_lost_one_way(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        uint32_t after_copy, after_add; /* expected words in other[0] */
    } kinds[] = {
        {"", 5, 8},           {"0>1", 7, 7},         {"0>1:lost", 7, 7}, {"0>1:copies", 7, 10},
        {"0>1:stores", 5, 5}, {"0>1:atomics", 5, 5}, {"1>0 2>1", 5, 8},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        begin(kinds[i].option);
        OK(copy(other, own, stream));
        assert_int_equal(words(other)[0], kinds[i].after_copy);
        OK(add(other, 3));
        assert_int_equal(words(other)[0], kinds[i].after_add);
        assert_int_equal(words(other)[1], 8);
        /* its own memory is right, also after reads from there */
        OK(add(own, 100));
        assert_int_equal(words(own)[0], 105);
        words(other)[0] = 77;
        OK(copy(own, other, stream));
        assert_int_equal(words(own)[0], 77);
        /* writes of the owner are right, too */
        hdcu_stream owners;
        OK(d->cuCtxSetCurrent(contexts[1]));
        OK(d->cuStreamCreate(&owners, HDCU_STREAM_NON_BLOCKING));
        words(own)[0] = 78;
        OK(copy(other, own, owners));
        assert_int_equal(words(other)[0], 78);
        OK(d->cuMemsetD32Async(other, 79, 1, owners));
        OK(d->cuStreamSynchronize(owners));
        assert_int_equal(words(other)[0], 79);
        OK(d->cuCtxSetCurrent(contexts[0]));
        end();
    }
}

/* Fills of another device's memory are writes, too. */
static void fills_are_lost(void **state)
{
    (void)state;
    begin("0>1");
    OK(d->cuMemsetD32Async(other, 9, 1, stream));
    OK(d->cuMemsetD32Async(own, 9, 1, stream));
    OK(d->cuStreamSynchronize(stream));
    assert_int_equal(words(other)[0], 7);
    assert_int_equal(words(own)[0], 9);
    end();
}

static void slow_copies_arrive(void **state)
{
    (void)state;
    begin("0>1:slow");
    OK(copy(other, own, stream));
    assert_int_equal(words(other)[0], 5);
    OK(add(other, 3));
    assert_int_equal(words(other)[0], 8);
    end();
}

static void writers_may_fault(void **state)
{
    (void)state;
    for (int by_kernel = 0; by_kernel < 2; by_kernel++) {
        begin("0>1:fault");
        OK(add(own, 1));
        assert_int_equal(by_kernel ? add(other, 1) : copy(other, own, stream), HDCU_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(words(other)[0], 7);
        end();
    }
}

/* Writers hang until their device is given up. */
static void writers_may_hang(void **state)
{
    (void)state;
    for (int by_kernel = 0; by_kernel < 2; by_kernel++) {
        begin("0>1:hang");
        hdcu_stream second;
        OK(d->cuStreamCreate(&second, HDCU_STREAM_NON_BLOCKING));
        if (by_kernel) {
            OK(launch_add(kernel_of(module, "add"), stream, other, 1, 1));
        } else {
            OK(d->cuMemcpyDtoDAsync(other, own, 4, stream));
        }
        /* other streams continue */
        OK(d->cuMemsetD32Async(own, 4, 1, second));
        OK(d->cuStreamSynchronize(second));
        assert_int_equal(d->cuStreamQuery(stream), HDCU_ERROR_NOT_READY);
        assert_int_equal(words(other)[0], 7);
        end();
    }
}

static void processes_may_crash(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork(); /* nothing is open yet */
    assert_true(child >= 0);
    if (child == 0) {
        begin("0>1:crash");
        copy(other, own, stream);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Memory of eight other devices, counting mappings and contexts together. */
static void eight_peers_are_the_limit(void **state)
{
    (void)state;
    open_host("host_devices=11 host_memory=16M");
    hdcu_deviceptr p[11];
    hdcu_context c[11];
    for (int i = 0; i < 11; i++) {
        c[i] = use_device(i);
        p[i] = map_new(i, BYTES);
    }
    OK(d->cuCtxSetCurrent(c[0]));
    const hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 0}, HDCU_MEM_ACCESS_READWRITE};
    const hdcu_mem_access_desc none = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 0}, HDCU_MEM_ACCESS_NONE};
    for (int i = 1; i <= 4; i++) {
        OK(d->cuMemSetAccess(p[i], BYTES, &access, 1));
        OK(d->cuCtxEnablePeerAccess(c[i + 4], 0));
    }
    assert_int_equal(d->cuMemSetAccess(p[9], BYTES, &access, 1), HDCU_ERROR_TOO_MANY_PEERS);
    assert_int_equal(d->cuCtxEnablePeerAccess(c[9], 0), HDCU_ERROR_TOO_MANY_PEERS);
    unsigned long long flags = 9;
    OK(d->cuMemGetAccess(&flags, &access.location, p[9]));
    assert_int_equal(flags, HDCU_MEM_ACCESS_NONE);
    /* more memory of the same peers, or of its own, is allowed; other devices may get access,
     * too */
    OK(d->cuMemSetAccess(p[5], BYTES, &access, 1));
    OK(d->cuMemSetAccess(p[0], BYTES, &access, 1));
    const hdcu_mem_access_desc ninth = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 9}, HDCU_MEM_ACCESS_READWRITE};
    OK(d->cuMemSetAccess(p[0], BYTES, &ninth, 1));
    /* one peer less makes room */
    OK(d->cuMemSetAccess(p[1], BYTES, &none, 1));
    OK(d->cuMemSetAccess(p[9], BYTES, &access, 1));
    assert_int_equal(d->cuMemSetAccess(p[10], BYTES, &access, 1), HDCU_ERROR_TOO_MANY_PEERS);
    OK(d->cuCtxDisablePeerAccess(c[6]));
    OK(d->cuCtxEnablePeerAccess(c[10], 0));
    for (int i = 0; i < 11; i++) {
        OK(d->cuDevicePrimaryCtxRelease(i));
    }
    OK(d->cuCtxSetCurrent(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_may_crash), /* must be the first, since it forks */
        cmocka_unit_test(the_option_is_checked),
        cmocka_unit_test(writes_are_lost_one_way),
        cmocka_unit_test(fills_are_lost),
        cmocka_unit_test(slow_copies_arrive),
        cmocka_unit_test(writers_may_fault),
        cmocka_unit_test(writers_may_hang),
        cmocka_unit_test(eight_peers_are_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
