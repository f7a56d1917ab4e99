/* test_host_misuse.c - wrong calls and device faults on the host provider: the driver's codes, no
 * crash, no leak.
 *
 * Promise: Wrong calls on host devices return the driver's codes, without a crash or a leak.
 * Threads: the main one, another one in one case, and the host provider's own.
 */
#include <heddle/kernel.h>
#include "host_support.h"
#include <pthread.h>

#define FAILS(call, code) assert_int_equal((call), HDCU_ERROR_##code)

static void *call_without_context(void *unused)
{
    hdcu_deviceptr p;
    hdcu_stream s;
    size_t n;
    hdcu_context c;
    (void)unused;
    bool good =
        d->cuMemAlloc(&p, 16) == HDCU_ERROR_INVALID_CONTEXT && d->cuStreamCreate(&s, 0) == HDCU_ERROR_INVALID_CONTEXT &&
        d->cuMemGetInfo(&n, &n) == HDCU_ERROR_INVALID_CONTEXT && d->cuCtxSynchronize() == HDCU_ERROR_INVALID_CONTEXT &&
        d->cuStreamSynchronize(NULL) == HDCU_ERROR_INVALID_CONTEXT &&
        d->cuCtxPopCurrent(&c) == HDCU_ERROR_INVALID_CONTEXT && d->cuCtxGetCurrent(&c) == HDCU_SUCCESS && !c;
    return (void *)(intptr_t)good;
}

static void contexts_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=16M");
    pthread_t thread;
    void *good;
    hdcu_context c0, c1, c;
    assert_int_equal(pthread_create(&thread, NULL, call_without_context, NULL), 0);
    pthread_join(thread, &good);
    assert_non_null(good);
    FAILS(d->cuDevicePrimaryCtxRelease(0), INVALID_CONTEXT);
    FAILS(d->cuDevicePrimaryCtxRetain(&c, 2), INVALID_DEVICE);
    FAILS(d->cuInit(1), INVALID_VALUE);
    OK(d->cuDevicePrimaryCtxRetain(&c0, 0));
    OK(d->cuDevicePrimaryCtxRetain(&c, 0));
    assert_ptr_equal(c0, c);
    OK(d->cuDevicePrimaryCtxRetain(&c1, 1));
    OK(d->cuCtxPushCurrent(c0));
    OK(d->cuCtxPushCurrent(c1));
    OK(d->cuCtxPopCurrent(&c));
    assert_ptr_equal(c, c1);
    OK(d->cuCtxGetCurrent(&c));
    assert_ptr_equal(c, c0);
    OK(d->cuDevicePrimaryCtxRelease(0));
    OK(d->cuCtxSynchronize()); /* the context was retained twice */
    OK(d->cuDevicePrimaryCtxRelease(0));
    FAILS(d->cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
    FAILS(d->cuCtxSetCurrent(c0), INVALID_CONTEXT);
    OK(d->cuDevicePrimaryCtxRelease(1));
    OK(d->cuCtxSetCurrent(NULL));
    hdi_providers_close_driver(d);
}

static void every_entry_point_is_there(void **state)
{
    (void)state;
    open_host("host_devices=1");
#define IS_THERE(name, version, need, parameters, arguments) assert_non_null(d->name);
    HDI_DRIVER_ENTRIES(IS_THERE)
#undef IS_THERE
    hdi_providers_close_driver(d);
}

static void handles_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=16M");
    hdcu_context c1 = use_device(1);
    hdcu_stream other;
    OK(d->cuStreamCreate(&other, 0));
    use_device(0);
    hdcu_stream s, stale;
    hdcu_event e, stale_event;
    hdcu_module m = load_kernels();
    hdcu_function add = kernel_of(m, "add"), f;
    OK(d->cuStreamCreate(&stale, 0));
    OK(d->cuStreamDestroy(stale));
    OK(d->cuStreamCreate(&s, 0)); /* reuses the place of the stale one */
    OK(d->cuEventCreate(&stale_event, 0));
    OK(d->cuEventDestroy(stale_event));
    OK(d->cuEventCreate(&e, 0));
    FAILS(d->cuStreamSynchronize(stale), INVALID_HANDLE);
    FAILS(d->cuStreamDestroy(stale), INVALID_HANDLE);
    FAILS(d->cuStreamDestroy((hdcu_stream)(uintptr_t)0xdeadbeefcafe), INVALID_HANDLE);
    FAILS(d->cuStreamDestroy(NULL), INVALID_HANDLE);
    FAILS(d->cuEventRecord(stale_event, s), INVALID_HANDLE);
    FAILS(d->cuEventRecord(e, other), INVALID_HANDLE);     /* a stream of another context */
    FAILS(d->cuEventQuery((hdcu_event)s), INVALID_HANDLE); /* a handle of another kind */
    FAILS(d->cuEventDestroy(stale_event), INVALID_HANDLE);
    FAILS(d->cuStreamWaitEvent(s, stale_event, 0), INVALID_HANDLE);
    FAILS(d->cuEventCreate(&e, HDCU_EVENT_INTERPROCESS | HDCU_EVENT_DISABLE_TIMING), INVALID_VALUE);
    FAILS(d->cuStreamCreate(&s, 5), INVALID_VALUE);
    FAILS(d->cuModuleGetFunction(&f, m, "no such kernel"), NOT_FOUND);
    hdcu_deviceptr total = 5;
    size_t total_bytes = 5;
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, m, "hidden"), NOT_FOUND);
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, m, "add"), NOT_FOUND);
    /* a symbol of another object */
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, m, "stdout"), NOT_FOUND);
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, m, NULL), INVALID_VALUE);
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, NULL, "total"), INVALID_HANDLE);
    assert_true(total == 5 && total_bytes == 5);
    OK(d->cuModuleGetGlobal(&total, &total_bytes, m, "total"));
    OK(d->cuModuleGetGlobal(NULL, NULL, m, "total"));
    assert_int_equal(total_bytes, 16);
    uint32_t words[4] = {0};
    OK(d->cuMemcpyDtoH(words, total, 16));
    assert_int_equal(words[3], 44);
    FAILS(d->cuMemcpyDtoH(words, total + 1, 16), INVALID_VALUE);
    FAILS(d->cuMemFree(total), INVALID_VALUE);
    OK(d->cuModuleUnload(m));
    FAILS(d->cuMemcpyDtoH(words, total, 16), INVALID_VALUE);
    FAILS(d->cuModuleGetGlobal(&total, &total_bytes, m, "total"), INVALID_HANDLE);
    FAILS(d->cuModuleUnload(m), INVALID_HANDLE);
    FAILS(d->cuModuleGetFunction(&f, m, "add"), INVALID_HANDLE);
    FAILS(launch_add(add, s, 0, 1, 1), INVALID_HANDLE);
    FAILS(d->cuGraphDestroy((hdcu_graph)12345), INVALID_VALUE);
    FAILS(d->cuGraphInstantiateWithFlags((hdcu_graphexec *)&f, (hdcu_graph)12345, 0), INVALID_VALUE);
    leave_device(0);
    OK(d->cuCtxSetCurrent(c1));
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void memory_calls_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=16M");
    use_device(0);
    hdcu_mem_prop prop = {.type = HDCU_MEM_ALLOCATION_TYPE_PINNED, .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, 0}},
                  bad = prop;
    hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 0}, HDCU_MEM_ACCESS_READWRITE}, odd = access;
    hdcu_deviceptr v, p;
    hdcu_memhandle h;
    uint32_t word = 0;
    FAILS(d->cuMemAddressReserve(&v, 12345, 0, 0, 0), INVALID_VALUE);
    FAILS(d->cuMemAddressReserve(&v, GRANULE, 3 * GRANULE, 0, 0), INVALID_VALUE);
    OK(d->cuMemAddressReserve(&v, 4 * GRANULE, 8 * GRANULE, 0, 0));
    assert_int_equal(v % (8 * GRANULE), 0);
    FAILS(d->cuMemCreate(&h, 4096, &prop, 0), INVALID_VALUE);
    FAILS(d->cuMemCreate(&h, 0, &prop, 0), INVALID_VALUE);
    FAILS(d->cuMemCreate(&h, GRANULE, NULL, 0), INVALID_VALUE);
    bad.location.id = 9;
    FAILS(d->cuMemCreate(&h, GRANULE, &bad, 0), INVALID_DEVICE);
    FAILS(d->cuMemCreate(&h, (size_t)1 << 40, &prop, 0), OUT_OF_MEMORY);
    OK(d->cuMemCreate(&h, 2 * GRANULE, &prop, 0));
    FAILS(d->cuMemMap(v, GRANULE, 0, 12345, 0), INVALID_VALUE);
    FAILS(d->cuMemMap(v + 4096, GRANULE, 0, h, 0), INVALID_VALUE);
    FAILS(d->cuMemMap(v, 4 * GRANULE, 0, h, 0), INVALID_VALUE);
    FAILS(d->cuMemMap(v + 3 * GRANULE, 2 * GRANULE, 0, h, 0), INVALID_VALUE);
    FAILS(d->cuMemMap(v + 64 * GRANULE, GRANULE, 0, h, 0), INVALID_VALUE);
    FAILS(d->cuMemUnmap(v, 2 * GRANULE), INVALID_VALUE);
    FAILS(d->cuMemSetAccess(v, 2 * GRANULE, &access, 1), INVALID_VALUE);
    OK(d->cuMemMap(v, 2 * GRANULE, 0, h, 0));
    FAILS(d->cuMemMap(v + GRANULE, 2 * GRANULE, 0, h, 0), INVALID_VALUE); /* mapped already */
    FAILS(d->cuMemSetAccess(v, GRANULE, &access, 1), INVALID_VALUE);
    FAILS(d->cuMemSetAccess(v, 2 * GRANULE, &access, 0), INVALID_VALUE);
    odd.flags = 2;
    FAILS(d->cuMemSetAccess(v, 2 * GRANULE, &odd, 1), INVALID_VALUE);
    OK(d->cuMemSetAccess(v, 2 * GRANULE, &access, 1));
    FAILS(d->cuMemUnmap(v, GRANULE), INVALID_VALUE); /* part of a mapping */
    OK(d->cuMemUnmap(v, 2 * GRANULE));
    OK(d->cuMemRelease(h));
    FAILS(d->cuMemRelease(h), INVALID_VALUE);
    FAILS(d->cuMemAddressFree(v, GRANULE), INVALID_VALUE);
    OK(d->cuMemAddressFree(v, 4 * GRANULE));
    FAILS(d->cuMemAddressFree(v, 4 * GRANULE), INVALID_VALUE);
    FAILS(d->cuMemAlloc(&p, 0), INVALID_VALUE);
    FAILS(d->cuMemAlloc(NULL, 16), INVALID_VALUE);
    FAILS(d->cuMemAlloc(&p, SIZE_MAX - 5), OUT_OF_MEMORY);
    OK(d->cuMemFree(0));
    OK(d->cuMemAlloc(&p, 100));
    FAILS(d->cuMemFree(p + 16), INVALID_VALUE);
    FAILS(d->cuMemcpyHtoD(p + 4000, &word, 1000), INVALID_VALUE); /* past the end */
    FAILS(d->cuMemsetD32Async(p + 2, 0, 1, NULL), INVALID_VALUE);
    OK(d->cuMemFree(p));
    FAILS(d->cuMemFree(p), INVALID_VALUE);
    FAILS(d->cuMemcpyDtoH(&word, p, 4), INVALID_VALUE);
    FAILS(d->cuMemcpyHtoD((uintptr_t)&word, &word, 4), INVALID_VALUE);
    FAILS(d->cuMemHostAlloc((void **)&p, 0, 0), INVALID_VALUE);
    FAILS(d->cuMemHostRegister(NULL, 10, 0), INVALID_VALUE);
    /* no memory there */
    FAILS(d->cuMemHostRegister((void *)(uintptr_t)4096, 4096, 0), INVALID_VALUE);
    FAILS(d->cuMemHostUnregister(&word), HOST_MEMORY_NOT_REGISTERED);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void launches_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=16M");
    use_device(1);
    hdcu_stream other;
    OK(d->cuStreamCreate(&other, 0));
    use_device(0);
    hdcu_module m = load_kernels();
    hdcu_function nothing = kernel_of(m, "nothing"), bounded = kernel_of(m, "bounded"), add = kernel_of(m, "add");
    void *none[1] = {NULL};
    FAILS(d->cuLaunchKernel(nothing, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 1, 1, 64, 64, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 48 * 1024 + 1, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuFuncSetAttribute(nothing, HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 96 * 1024 + 1),
          INVALID_VALUE);
    FAILS(d->cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL), INVALID_HANDLE);
    FAILS(d->cuLaunchKernel(bounded, 1, 1, 1, 33, 1, 1, 0, NULL, none, NULL), LAUNCH_OUT_OF_RESOURCES);
    FAILS(d->cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(bounded, 1, 1, 1, 1, 1, 1, 0, NULL, none, NULL), INVALID_VALUE);
    FAILS(d->cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
    FAILS(d->cuLaunchHostFunc(NULL, NULL, NULL), INVALID_VALUE);
    OK(d->cuLaunchKernel(nothing, 3, 2, 1, 32, 2, 1, 0, NULL, NULL, NULL));
    OK(d->cuCtxSynchronize());
    leave_device(0);
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void images_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=16M");
    use_device(0);
    hdcu_module m;
    char log[200] = "";
    int options[] = {HDCU_JIT_ERROR_LOG_BUFFER, HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    FAILS(d->cuModuleLoadDataEx(&m, "// a comment\n.version 8.0\n.target sm_90\n", 2, options, values),
          NO_BINARY_FOR_GPU);
    assert_non_null(strstr(log, "kernel file"));
    assert_int_equal((uintptr_t)values[1], strlen(log));
    FAILS(d->cuModuleLoadDataEx(&m, "\x50\xed\x55\xba fat", 0, NULL, NULL), NO_BINARY_FOR_GPU);
    FAILS(d->cuModuleLoadDataEx(&m, "", 0, NULL, NULL), INVALID_IMAGE);
    FAILS(d->cuModuleLoadDataEx(&m, "just text", 0, NULL, NULL), INVALID_IMAGE);
    FAILS(d->cuModuleLoadDataEx(&m, NULL, 0, NULL, NULL), INVALID_VALUE);
    size_t bytes;
    char *image = kernels_image(&bytes), *copy = malloc(bytes);
    memcpy(copy, image, bytes);
    copy[18] = (char)190; /* e_machine: a cubin */
    copy[19] = 0;
    FAILS(d->cuModuleLoadDataEx(&m, copy, 0, NULL, NULL), NO_BINARY_FOR_GPU);
    memcpy(copy, image, bytes);
    memset(copy + 64, 0, 56 * 4); /* program headers */
    values[1] = (void *)(uintptr_t)sizeof log;
    FAILS(d->cuModuleLoadDataEx(&m, copy, 2, options, values), INVALID_IMAGE);
    assert_true(strlen(log) > 0);
    for (int i = 0; i < 20; i++) { /* loading twice makes two copies */
        hdcu_module n;
        OK(d->cuModuleLoadDataEx(&m, image, 0, NULL, NULL));
        OK(d->cuModuleLoadDataEx(&n, image, 0, NULL, NULL));
        assert_ptr_not_equal(kernel_of(m, "add"), kernel_of(n, "add"));
        OK(d->cuModuleUnload(m));
        kernel_of(n, "add");
        OK(d->cuModuleUnload(n));
    }
    free(image);
    free(copy);
    leave_device(0);
    hdi_providers_close_driver(d);
}

/* Kernel files of older releases load. A file of a newer release is refused, and the log states the
 * remedy. */
static void versions_of_kernels_are_checked(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=16M");
    use_device(0);
    size_t bytes, at = 0;
    char *image = kernels_image(&bytes), log[200] = "";
    const uint32_t table[2] = {HD_CPU_MODULE_MAGIC, HD_CPU_MODULE_VERSION};
    while (at + sizeof table < bytes && memcmp(image + at, table, sizeof table) != 0) {
        at += 4;
    }
    for (uint32_t version = 0; version <= HD_CPU_MODULE_VERSION + 1; version++) {
        hdcu_module m;
        int options[] = {HDCU_JIT_ERROR_LOG_BUFFER, HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)(uintptr_t)sizeof log};
        memcpy(image + at + 4, &version, sizeof version);
        if (version == 0 || version > HD_CPU_MODULE_VERSION) {
            FAILS(d->cuModuleLoadDataEx(&m, image, 2, options, values), INVALID_IMAGE);
        } else {
            OK(d->cuModuleLoadDataEx(&m, image, 0, NULL, NULL));
            OK(d->cuModuleUnload(m));
        }
    }
    assert_non_null(strstr(log, "a newer version of Heddle; compile it with the `heddle cc` of this version"));
    free(image);
    leave_device(0);
    hdi_providers_close_driver(d);
}

/* After a fault on device 0, every use of its context returns the code; device 1 works, and
 * resources can be released. */
static void expect_lost(hdcu_context c1, hdcu_stream s, hdcu_event pending, hdcu_result code)
{
    hdcu_stream made;
    hdcu_deviceptr p;
    assert_int_equal(d->cuStreamSynchronize(s), code);
    assert_int_equal(d->cuStreamQuery(s), code);
    assert_int_equal(d->cuEventQuery(pending), code);
    assert_int_equal(d->cuEventSynchronize(pending), code);
    assert_int_equal(d->cuCtxSynchronize(), code);
    assert_int_equal(d->cuMemAlloc(&p, 100), code);
    assert_int_equal(d->cuStreamCreate(&made, 0), code);
    assert_int_equal(d->cuStreamWaitEvent(s, pending, 0), code);
    OK(d->cuEventDestroy(pending));
    OK(d->cuStreamDestroy(s));
    OK(d->cuCtxSetCurrent(c1));
    p = map_new(1, GRANULE);
    OK(d->cuMemsetD8Async(p, 1, GRANULE, NULL));
    OK(d->cuCtxSynchronize());
    unmap(p, GRANULE);
    OK(d->cuDevicePrimaryCtxRelease(0));
    use_device(0); /* a new context works */
    OK(d->cuMemAlloc(&p, 100));
    OK(d->cuMemFree(p));
    leave_device(0);
    OK(d->cuDevicePrimaryCtxRelease(1));
    hdi_providers_close_driver(d);
}

static hdcu_context begin_fault(const char *settings, hdcu_stream *s, hdcu_event *e, hdcu_module *m)
{
    open_host(settings);
    hdcu_context c1 = use_device(1);
    use_device(0);
    OK(d->cuStreamCreate(s, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(e, HDCU_EVENT_DISABLE_TIMING));
    *m = load_kernels();
    return c1;
}

static void writes_outside_a_mapping_are_faults(void **state)
{
    (void)state;
    hdcu_stream s;
    hdcu_event e;
    hdcu_module m;
    hdcu_context c1 = begin_fault("host_devices=2 host_memory=16M", &s, &e, &m);
    hdcu_deviceptr p = map_new(0, GRANULE);
    uint64_t index = GRANULE / 4;
    void *parameters[] = {&p, &index};
    OK(d->cuLaunchKernel(kernel_of(m, "set_far"), 1, 1, 1, 1, 1, 1, 0, s, parameters, NULL));
    d->cuEventRecord(e, s); /* refused if the fault came first */
    assert_int_equal(d->cuStreamSynchronize(s), HDCU_ERROR_ILLEGAL_ADDRESS);
    unmap(p, GRANULE);
    OK(d->cuModuleUnload(m));
    expect_lost(c1, s, e, HDCU_ERROR_ILLEGAL_ADDRESS);
}

static void unreachable_arguments_are_faults(void **state)
{
    (void)state;
    hdcu_stream s;
    hdcu_event e;
    hdcu_module m;
    gate g = {0};
    hdcu_context c1 = begin_fault("host_devices=2 host_memory=16M host_peers=none", &s, &e, &m);
    hdcu_deviceptr p = map_new(1, GRANULE);
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(launch_add(kernel_of(m, "add"), s, p, 1, 1));
    FAILS(d->cuMemsetD8Async(p, 1, 1, NULL), INVALID_VALUE);
    OK(d->cuEventRecord(e, s));
    atomic_store(&g.open, 1);
    expect_lost(c1, s, e, HDCU_ERROR_ILLEGAL_ADDRESS);
}

static void copies_of_memory_that_went_are_faults(void **state)
{
    (void)state;
    hdcu_stream s;
    hdcu_event e;
    hdcu_module m;
    gate g = {0};
    hdcu_context c1 = begin_fault("host_devices=2 host_memory=16M", &s, &e, &m);
    hdcu_deviceptr p = map_new(0, GRANULE), q = map_new(0, GRANULE);
    hdcu_stream waiting;
    OK(d->cuStreamCreate(&waiting, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(d->cuMemcpyDtoDAsync(q, p, 16, s));
    OK(d->cuEventRecord(e, s));
    OK(d->cuStreamWaitEvent(waiting, e, 0));
    OK(d->cuMemsetD8Async(q, 1, 1, waiting));
    unmap(p, GRANULE);
    atomic_store(&g.open, 1);
    assert_int_equal(d->cuStreamSynchronize(waiting), HDCU_ERROR_ILLEGAL_ADDRESS);
    expect_lost(c1, s, e, HDCU_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_point_is_there),
        cmocka_unit_test(contexts_are_checked),
        cmocka_unit_test(handles_are_checked),
        cmocka_unit_test(memory_calls_are_checked),
        cmocka_unit_test(launches_are_checked),
        cmocka_unit_test(images_are_checked),
        cmocka_unit_test(versions_of_kernels_are_checked),
        cmocka_unit_test(writes_outside_a_mapping_are_faults),
        cmocka_unit_test(unreachable_arguments_are_faults),
        cmocka_unit_test(copies_of_memory_that_went_are_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
