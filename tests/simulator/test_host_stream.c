/* test_host_stream.c - streams and events of the host provider: order, overlap, the NULL stream,
 * kernels, host functions, life.
 *
 * Promise: Work in one stream of a host device runs in order, and events order streams.
 * Threads: the main one, several with streams of their own in one case, and the host provider's
 * own.
 */
#include "host_support.h"
#include <link.h>
#include <pthread.h>

static void work_in_a_stream_runs_in_order(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M host_schedule=7");
    use_device(0);
    hdcu_module m = load_kernels();
    hdcu_function add = kernel_of(m, "add");
    hdcu_stream s;
    uint32_t host[64];
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    hdcu_deviceptr p = map_new(0, GRANULE);
    for (int i = 0; i < 50; i++) {
        OK(d->cuMemsetD32Async(p, (unsigned)i, 64, s));
        OK(launch_add(add, s, p, 1000, 64));
        OK(d->cuMemcpyDtoDAsync(p + 4096, p, 256, s));
    }
    OK(d->cuMemcpyDtoHAsync(host, p + 4096, sizeof host, s));
    OK(d->cuStreamSynchronize(s));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(host[i], 1049);
    }
    OK(d->cuStreamDestroy(s));
    unmap(p, GRANULE);
    OK(d->cuModuleUnload(m));
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void written_values_follow_the_work_before_them(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_stream s;
    uint32_t word[2] = {1, 1};
    gate g = {0};
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    hdcu_deviceptr p = map_new(0, GRANULE);
    OK(d->cuMemsetD32Async(p, 5, 2, s));
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(d->cuStreamWriteValue32(s, p, 6, HDCU_STREAM_WRITE_VALUE_DEFAULT));
    gate_await_entered(&g);
    OK(d->cuMemcpyDtoH(word, p, sizeof word));
    assert_int_equal(word[0], 5);
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(s));
    OK(d->cuMemcpyDtoH(word, p, sizeof word));
    assert_int_equal(word[0], 6);
    assert_int_equal(word[1], 5);
    assert_int_equal(d->cuStreamWriteValue32(s, 0, 1, HDCU_STREAM_WRITE_VALUE_DEFAULT), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuStreamWriteValue32(s, p + 2, 1, HDCU_STREAM_WRITE_VALUE_DEFAULT), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuStreamWriteValue32(s, p, 1, 77), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuStreamDestroy(s));
    unmap(p, GRANULE);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void streams_overlap_and_events_order_them(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=64M");
    hdcu_context c1 = use_device(1), c0 = use_device(0);
    hdcu_stream a, b, other;
    hdcu_event e;
    gate g = {0};
    OK(d->cuStreamCreate(&a, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuStreamCreate(&b, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(&e, 0));
    OK(d->cuCtxSetCurrent(c1));
    OK(d->cuStreamCreate(&other, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuCtxSetCurrent(c0));
    hdcu_deviceptr p = map_new(0, GRANULE);
    OK(d->cuEventQuery(e)); /* never recorded, so done */
    OK(d->cuLaunchHostFunc(a, gate_wait, &g));
    OK(d->cuMemsetD32Async(p, 5, 1, a));
    OK(d->cuEventRecord(e, a));
    OK(d->cuStreamWaitEvent(b, e, 0));
    OK(d->cuMemcpyDtoDAsync(p + 64, p, 4, b));
    OK(d->cuStreamWaitEvent(other, e, 0));
    OK(d->cuMemcpyAsync(p + 128, p, 4, other));
    gate_await_entered(&g);
    assert_int_equal(d->cuEventQuery(e), HDCU_ERROR_NOT_READY);
    assert_int_equal(d->cuStreamQuery(b), HDCU_ERROR_NOT_READY);
    /* an independent stream is not delayed */
    hdcu_stream free_stream;
    OK(d->cuStreamCreate(&free_stream, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuMemsetD32Async(p + 256, 9, 1, free_stream));
    OK(d->cuStreamSynchronize(free_stream));
    /* recording again does not change earlier waits */
    OK(d->cuEventRecord(e, free_stream));
    OK(d->cuEventSynchronize(e));
    assert_int_equal(d->cuStreamQuery(b), HDCU_ERROR_NOT_READY);
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(b));
    OK(d->cuStreamSynchronize(other));
    uint32_t words[3] = {0};
    OK(d->cuMemcpyDtoH(&words[0], p + 64, 4));
    OK(d->cuMemcpyDtoH(&words[1], p + 128, 4));
    OK(d->cuMemcpyDtoH(&words[2], p + 256, 4));
    assert_int_equal(words[0], 5);
    assert_int_equal(words[1], 5);
    assert_int_equal(words[2], 9);
    OK(d->cuStreamDestroy(free_stream));
    OK(d->cuEventDestroy(e));
    leave_device(0);
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void null_stream_orders_blocking_streams(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_stream a, b, apart;
    gate g = {0}, h = {0};
    uint32_t word = 0;
    OK(d->cuStreamCreate(&a, 0));
    OK(d->cuStreamCreate(&b, 0));
    OK(d->cuStreamCreate(&apart, HDCU_STREAM_NON_BLOCKING));
    hdcu_deviceptr p = map_new(0, GRANULE);
    OK(d->cuLaunchHostFunc(a, gate_wait, &g));
    OK(d->cuMemsetD32Async(p, 1, 1, a));
    OK(d->cuMemcpyDtoDAsync(p + 4, p, 4, NULL));
    OK(d->cuMemcpyDtoDAsync(p + 8, p + 4, 4, b));
    gate_await_entered(&g);
    assert_int_equal(d->cuStreamQuery(b), HDCU_ERROR_NOT_READY);
    OK(d->cuMemsetD32Async(p + 64, 1, 1, apart));
    OK(d->cuStreamSynchronize(apart));
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(b));
    OK(d->cuMemcpyDtoH(&word, p + 8, 4));
    assert_int_equal(word, 1);
    /* a synchronous copy waits for the blocking streams */
    OK(d->cuLaunchHostFunc(b, gate_wait, &h));
    OK(d->cuMemsetD32Async(p + 8, 2, 1, b));
    atomic_store(&h.open, 1);
    OK(d->cuMemcpyDtoH(&word, p + 8, 4));
    assert_int_equal(word, 2);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void elapsed_time_is_that_between_the_records(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_stream s;
    hdcu_event from, to, timeless;
    gate g = {0};
    float ms = -1;
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(&from, 0));
    OK(d->cuEventCreate(&to, 0));
    OK(d->cuEventCreate(&timeless, HDCU_EVENT_DISABLE_TIMING));
    assert_int_equal(d->cuEventElapsedTime(&ms, from, to), HDCU_ERROR_INVALID_HANDLE);
    OK(d->cuEventRecord(from, s));
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(d->cuEventRecord(to, s));
    OK(d->cuEventRecord(timeless, s));
    assert_int_equal(d->cuEventElapsedTime(&ms, from, to), HDCU_ERROR_NOT_READY);
    hdi_sleep_for(3000000);
    atomic_store(&g.open, 1);
    OK(d->cuEventSynchronize(to));
    OK(d->cuEventElapsedTime(&ms, from, to));
    assert_true(ms > 0);
    OK(d->cuStreamSynchronize(s));
    assert_int_equal(d->cuEventElapsedTime(&ms, from, timeless), HDCU_ERROR_INVALID_HANDLE);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void destroyed_streams_finish_their_work(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_module m = load_kernels();
    hdcu_function add = kernel_of(m, "add");
    hdcu_deviceptr p = map_new(0, GRANULE);
    OK(d->cuMemsetD32Async(p, 0, 64, NULL));
    OK(d->cuCtxSynchronize());
    for (int i = 0; i < 20; i++) {
        hdcu_stream s;
        hdcu_event e;
        gate g = {0};
        OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
        OK(d->cuEventCreate(&e, 0));
        OK(d->cuLaunchHostFunc(s, gate_wait, &g));
        OK(launch_add(add, s, p, 1, 64));
        OK(d->cuEventRecord(e, s));
        OK(d->cuStreamDestroy(s));
        assert_int_equal(d->cuStreamSynchronize(s), HDCU_ERROR_INVALID_HANDLE);
        atomic_store(&g.open, 1);
        OK(d->cuEventSynchronize(e));
        OK(d->cuEventDestroy(e));
    }
    /* a module may be unloaded while its launches are queued */
    hdcu_stream s;
    gate g = {0};
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(launch_add(add, s, p, 1, 64));
    OK(d->cuModuleUnload(m));
    assert_int_equal(launch_add(add, s, p, 1, 64), HDCU_ERROR_INVALID_HANDLE);
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(s));
    uint32_t word = 0;
    OK(d->cuMemcpyDtoH(&word, p + 4 * 63, 4));
    assert_int_equal(word, 21);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void kernels_take_arguments_both_ways(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_module m = load_kernels();
    hdcu_function add = kernel_of(m, "add"), reverse = kernel_of(m, "reverse");
    hdcu_deviceptr p = map_new(0, GRANULE);
    uint32_t host[64];
    for (uint32_t i = 0; i < 64; i++) {
        host[i] = i;
    }
    OK(d->cuMemcpyHtoD(p, host, sizeof host));
    struct {
        uint64_t y;
        uint32_t value, n;
    } block = {p, 3, 64};
    size_t bytes = sizeof block;
    void *extra[] = {HDCU_LAUNCH_PARAM_BUFFER_POINTER, &block, HDCU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     HDCU_LAUNCH_PARAM_END};
    OK(d->cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
    void *parameters[] = {&p};
    OK(d->cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 256, NULL, parameters, NULL));
    OK(d->cuMemcpyDtoH(host, p, sizeof host));
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(host[i], 63 - i + 3);
    }
    unsigned count;
    size_t offset, size;
    const char *name;
    int value;
    OK(d->cuModuleGetFunctionCount(&count, m));
    assert_int_equal(count, 11);
    hdcu_function all[11];
    OK(d->cuModuleEnumerateFunctions(all, 11, m));
    OK(d->cuFuncGetName(&name, all[0]));
    OK(d->cuFuncGetParamInfo(add, 2, &offset, &size));
    assert_int_equal(offset, 12);
    assert_int_equal(size, 4);
    assert_int_equal(d->cuFuncGetParamInfo(add, 3, &offset, &size), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuFuncGetAttribute(&value, HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel_of(m, "bounded")));
    assert_int_equal(value, 32);
    OK(d->cuFuncSetAttribute(reverse, HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 96 * 1024));
    OK(d->cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 96 * 1024, NULL, parameters, NULL));
    OK(d->cuCtxSynchronize());
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void pageable_sources_may_be_reused(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    hdcu_stream s;
    gate g = {0};
    uint32_t word = 4;
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    hdcu_deviceptr p = map_new(0, GRANULE);
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    OK(d->cuMemcpyHtoDAsync(p, &word, 4, s));
    word = 5;
    atomic_store(&g.open, 1);
    OK(d->cuMemcpyDtoHAsync(&word, p, 4, s)); /* pageable memory: done on return */
    assert_int_equal(word, 4);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void forbidden_call(void *data)
{
    *(int *)data = d->cuStreamSynchronize((hdcu_stream)0);
}

static void host_functions_may_not_call_the_driver(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=64M");
    use_device(0);
    int result = 0;
    OK(d->cuLaunchHostFunc(NULL, forbidden_call, &result));
    OK(d->cuCtxSynchronize());
    assert_int_equal(result, HDCU_ERROR_NOT_PERMITTED);
    leave_device(0);
    hdi_providers_close_driver(d);
}

typedef struct worker {
    pthread_t thread;
    int device, failures;
} worker;

static void *chain_of_streams(void *data)
{
    worker *w = data;
    hdcu_context c;
    hdcu_stream s[3];
    hdcu_event e;
    uint32_t word = 0;
    w->failures += d->cuDevicePrimaryCtxRetain(&c, w->device) != 0;
    w->failures += d->cuCtxSetCurrent(c) != 0;
    hdcu_deviceptr p;
    w->failures += d->cuMemAlloc(&p, 4096) != 0;
    w->failures += d->cuEventCreate(&e, HDCU_EVENT_DISABLE_TIMING) != 0;
    for (int i = 0; i < 3; i++) {
        w->failures += d->cuStreamCreate(&s[i], HDCU_STREAM_NON_BLOCKING) != 0;
    }
    /* each step copies the word onward in another stream; only the events keep the order */
    w->failures += d->cuMemsetD32Async(p, 42, 1, s[0]) != 0;
    for (unsigned i = 0; i < 300; i++) {
        w->failures += d->cuEventRecord(e, s[i % 3]) != 0;
        w->failures += d->cuStreamWaitEvent(s[(i + 1) % 3], e, 0) != 0;
        w->failures += d->cuMemcpyDtoDAsync(p + 4 * (i + 1), p + 4 * i, 4, s[(i + 1) % 3]) != 0;
    }
    w->failures += d->cuStreamSynchronize(s[0]) != 0;
    w->failures += d->cuMemcpyDtoH(&word, p + 1200, 4) != 0;
    w->failures += word != 42;
    for (int i = 0; i < 3; i++) {
        w->failures += d->cuStreamDestroy(s[i]) != 0;
    }
    w->failures += d->cuEventDestroy(e) != 0;
    w->failures += d->cuMemFree(p) != 0;
    w->failures += d->cuDevicePrimaryCtxRelease(w->device) != 0;
    return NULL;
}

static void threads_and_devices_do_not_disturb_each_other(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        open_host(round == 0 ? "host_devices=2 host_memory=64M" : "host_devices=2 host_memory=64M host_schedule=99");
        worker w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = (worker){.device = i % 2};
            assert_int_equal(pthread_create(&w[i].thread, NULL, chain_of_streams, &w[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(w[i].thread, NULL);
            assert_int_equal(w[i].failures, 0);
        }
        hdi_providers_close_driver(d);
    }
}

static void releasing_a_busy_context_drops_its_work(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=64M");
    hdcu_context c1 = use_device(1);
    hdcu_stream other, s;
    hdcu_event e;
    OK(d->cuStreamCreate(&other, HDCU_STREAM_NON_BLOCKING));
    use_device(0);
    gate g = {0};
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(&e, 0));
    OK(d->cuLaunchHostFunc(s, gate_wait, &g));
    for (int i = 0; i < 100; i++) {
        OK(d->cuEventRecord(e, s));
        OK(d->cuStreamWaitEvent(other, e, 0));
    }
    gate_await_entered(&g);
    atomic_store(&g.open, 1);
    leave_device(0);
    OK(d->cuCtxSetCurrent(c1));
    OK(d->cuStreamSynchronize(other)); /* ended streams do not delay it */
    leave_device(1);
    hdi_providers_close_driver(d);
}

static int find_module(struct dl_phdr_info *info, size_t size, void *path)
{
    (void)size;
    if (strstr(info->dlpi_name, "/fd/") == NULL) {
        return 0;
    }
    snprintf(path, 64, "%s", info->dlpi_name);
    return 1;
}

/* A debugger or profiler finds the code of kernels in the list of loaded objects, also from another
 * process. */
static void another_process_can_open_the_code_of_kernels(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=16M");
    use_device(0);
    hdcu_module module = load_kernels();
    char path[64] = "", command[160];
    assert_int_equal(dl_iterate_phdr(find_module, path), 1);
    snprintf(command, sizeof command, "exec 9</dev/null && cmp -s '%s' '%s'", path, HD_TEST_KERNELS);
    assert_int_equal(system(command), 0);
    OK(d->cuModuleUnload(module));
    leave_device(0);
    hdi_providers_close_driver(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_in_a_stream_runs_in_order),
        cmocka_unit_test(written_values_follow_the_work_before_them),
        cmocka_unit_test(streams_overlap_and_events_order_them),
        cmocka_unit_test(null_stream_orders_blocking_streams),
        cmocka_unit_test(elapsed_time_is_that_between_the_records),
        cmocka_unit_test(destroyed_streams_finish_their_work),
        cmocka_unit_test(kernels_take_arguments_both_ways),
        cmocka_unit_test(pageable_sources_may_be_reused),
        cmocka_unit_test(host_functions_may_not_call_the_driver),
        cmocka_unit_test(threads_and_devices_do_not_disturb_each_other),
        cmocka_unit_test(releasing_a_busy_context_drops_its_work),
        cmocka_unit_test(another_process_can_open_the_code_of_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
