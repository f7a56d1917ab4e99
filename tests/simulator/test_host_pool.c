/* test_host_pool.c - stream-ordered memory of the host provider: when it is reused, and how much
 * the pool holds.
 *
 * Promise: Stream-ordered memory of host devices is reused no earlier than its streams allow.
 * Threads: the main one, several workers in one case, and the host provider's own.
 */
#include "host_support.h"
#include <pthread.h>

static hdcu_mempool pool;

static uint64_t attribute(int which)
{
    uint64_t value = 0;
    OK(d->cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void set_threshold(uint64_t bytes)
{
    OK(d->cuMemPoolSetAttribute(pool, HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static hdcu_stream open_all(const char *settings)
{
    hdcu_stream stream;
    open_host(settings);
    use_device(0);
    OK(d->cuDeviceGetDefaultMemPool(&pool, 0));
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    return stream;
}

static void close_all(void)
{
    leave_device(0);
    hdi_providers_close_driver(d);
}

static hdcu_deviceptr take(size_t bytes, hdcu_stream stream)
{
    hdcu_deviceptr p = 0;
    OK(d->cuMemAllocAsync(&p, bytes, stream));
    assert_int_not_equal(p, 0);
    return p;
}

static void the_device_says_that_it_has_pools(void **state)
{
    (void)state;
    int value = 0;
    hdcu_mempool other;
    open_all("host_devices=2 host_memory=64M");
    OK(d->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    assert_int_equal(value, 1);
    OK(d->cuDeviceGetDefaultMemPool(&other, 1));
    assert_ptr_not_equal(other, pool);
    assert_int_equal(d->cuDeviceGetDefaultMemPool(&other, 2), HDCU_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuDeviceGetDefaultMemPool(NULL, 0), HDCU_ERROR_INVALID_VALUE);
    close_all();
}

static void the_same_stream_has_it_again_at_once_another_one_later(void **state)
{
    (void)state;
    gate g = {0};
    hdcu_stream a = open_all("host_devices=1 host_memory=64M"), b;
    OK(d->cuStreamCreate(&b, HDCU_STREAM_NON_BLOCKING));
    set_threshold(UINT64_MAX);
    hdcu_deviceptr p = take(1 << 20, a);
    OK(d->cuLaunchHostFunc(a, gate_wait, &g));
    gate_await_entered(&g);
    OK(d->cuMemFreeAsync(p, a));
    hdcu_deviceptr other = take(1 << 20, b); /* stream a has not reached the free */
    assert_int_not_equal(other, p);
    hdcu_deviceptr again = take(1 << 20, a);
    assert_int_equal(again, p);
    OK(d->cuMemFreeAsync(again, a));
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(a));
    assert_int_equal(take(1 << 20, b), p);
    close_all();
}

static void what_is_freed_can_be_used_until_the_stream_is_there(void **state)
{
    (void)state;
    gate g = {0};
    uint32_t word = 0;
    hdcu_stream a = open_all("host_devices=1 host_memory=64M");
    void *pinned;
    OK(d->cuMemHostAlloc(&pinned, 4, HDCU_MEMHOSTALLOC_PORTABLE));
    OK(d->cuLaunchHostFunc(a, gate_wait, &g));
    hdcu_deviceptr p = take(4096, a);
    OK(d->cuMemsetD32Async(p, 0x12345678, 1024, a));
    OK(d->cuMemcpyDtoHAsync(pinned, p + 4092, 4, a));
    OK(d->cuMemFreeAsync(p, a));
    hdcu_deviceptr q = take(4096, a); /* the same bytes, later in the stream */
    assert_int_equal(q, p);
    OK(d->cuMemsetD32Async(q, 7, 1024, a));
    atomic_store(&g.open, 1);
    OK(d->cuStreamSynchronize(a));
    memcpy(&word, pinned, sizeof word);
    assert_int_equal(word, 0x12345678);
    OK(d->cuMemcpyDtoH(&word, q, 4));
    assert_int_equal(word, 7);
    close_all();
}

static void the_threshold_says_what_stays(void **state)
{
    (void)state;
    hdcu_stream a = open_all("host_devices=1 host_memory=64M");
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    hdcu_deviceptr p = take(10 << 20, a), q = take(100, a);
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 12 << 20);
    assert_int_equal(free_memory(), 52 << 20);
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT), (10 << 20) + 512);
    OK(d->cuMemFreeAsync(p, a));
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT), 512);
    OK(d->cuStreamSynchronize(a)); /* above the threshold, so it is freed */
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 << 20);
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 12 << 20);
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_HIGH), (10 << 20) + 512);

    set_threshold(UINT64_MAX);
    p = take(10 << 20, a);
    OK(d->cuMemFreeAsync(p, a));
    OK(d->cuMemFreeAsync(q, a));
    OK(d->cuCtxSynchronize());
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 12 << 20);
    uint64_t zero = 0, one = 1;
    OK(d->cuMemPoolTrimTo(pool, 10 << 20));
    assert_in_range(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 << 20, 10 << 20);
    OK(d->cuMemPoolTrimTo(pool, 0));
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(free_memory(), 64 << 20);
    OK(d->cuMemPoolSetAttribute(pool, HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    OK(d->cuMemPoolSetAttribute(pool, HDCU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    assert_int_equal(d->cuMemPoolSetAttribute(pool, HDCU_MEMPOOL_ATTR_USED_MEM_HIGH, &one), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemPoolSetAttribute(pool, HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero),
                     HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemPoolGetAttribute(pool, 99, &one), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemPoolTrimTo(NULL, 0), HDCU_ERROR_INVALID_VALUE);
    close_all();
}

static void idle_memory_of_other_sizes_makes_room(void **state)
{
    (void)state;
    gate g = {0};
    hdcu_stream a = open_all("host_devices=1 host_memory=8M"), b;
    hdcu_deviceptr p;
    OK(d->cuStreamCreate(&b, HDCU_STREAM_NON_BLOCKING));
    set_threshold(UINT64_MAX);
    assert_int_equal(d->cuMemAllocAsync(&p, 9 << 20, a), HDCU_ERROR_OUT_OF_MEMORY);
    OK(d->cuMemFreeAsync(take(6 << 20, a), a));
    OK(d->cuStreamSynchronize(a));
    p = take(8 << 20, a); /* the 6 MiB had to be freed */
    assert_int_equal(d->cuMemAllocAsync(&p, 1, b), HDCU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(d->cuMemAlloc(&p, 1), HDCU_ERROR_OUT_OF_MEMORY);
    OK(d->cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_memory(), 0); /* still in use */
    close_all();

    /* waits for a stream that has not reached its free */
    a = open_all("host_devices=1 host_memory=8M");
    OK(d->cuStreamCreate(&b, HDCU_STREAM_NON_BLOCKING));
    p = take(8 << 20, a);
    atomic_store(&g.open, 1);
    OK(d->cuLaunchHostFunc(a, gate_wait, &g));
    OK(d->cuMemFreeAsync(p, a));
    take(4 << 20, b);
    close_all();
}

static void many_small_blocks_share_segments(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static hdcu_deviceptr p[COUNT];
    hdcu_stream a = open_all("host_devices=1 host_memory=64M");
    set_threshold(UINT64_MAX);
    for (int i = 0; i < COUNT; i++) {
        p[i] = take(1000, a);
        OK(d->cuMemsetD32Async(p[i], (unsigned)i, 1000 / 4, a));
    }
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 << 20); /* 1 KiB each */
    OK(d->cuStreamSynchronize(a));
    for (int i = 0; i < COUNT; i += 97) {
        uint32_t word;
        OK(d->cuMemcpyDtoH(&word, p[i] + 996, 4));
        assert_int_equal(word, i);
    }
    for (int i = 0; i < COUNT; i++) {
        OK(d->cuMemFreeAsync(p[i], a));
    }
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    OK(d->cuStreamSynchronize(a));
    OK(d->cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_memory(), 64 << 20);
    close_all();
}

static void misuse_is_refused(void **state)
{
    (void)state;
    hdcu_deviceptr p, plain;
    hdcu_stream a = open_all("host_devices=2 host_memory=64M"), far;
    assert_int_equal(d->cuMemAllocAsync(&p, 0, a), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemAllocAsync(NULL, 1, a), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemAllocAsync(&p, SIZE_MAX, a), HDCU_ERROR_OUT_OF_MEMORY);
    p = take(4096, a);
    OK(d->cuMemAlloc(&plain, 4096));
    assert_int_equal(d->cuMemFreeAsync(plain, a), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemFreeAsync(p + 8, a), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemFreeAsync(0, a), HDCU_ERROR_INVALID_VALUE);
    hdcu_context near;
    OK(d->cuCtxGetCurrent(&near));
    use_device(1);
    OK(d->cuStreamCreate(&far, HDCU_STREAM_NON_BLOCKING));
    assert_int_equal(d->cuMemFreeAsync(p, far), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuCtxEnablePeerAccess(near, 0)); /* only for cuMemAlloc's memory */
    OK(d->cuMemsetD8Async(plain, 1, 1, far));
    assert_int_equal(d->cuMemsetD8Async(p, 1, 1, far), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuCtxSynchronize());
    OK(d->cuCtxSetCurrent(near));
    OK(d->cuMemFreeAsync(p, a));
    assert_int_equal(d->cuMemFreeAsync(p, a), HDCU_ERROR_INVALID_VALUE);

    hdcu_graph graph;
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(d->cuMemAllocAsync(&p, 4096, a), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(d->cuStreamEndCapture(a, &graph), HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
    leave_device(1);
    close_all();
}

static void plain_free_takes_it_too(void **state)
{
    (void)state;
    hdcu_stream a = open_all("host_devices=1 host_memory=64M");
    hdcu_deviceptr p = take(4096, a);
    OK(d->cuMemsetD8Async(p, 1, 4096, a));
    OK(d->cuMemFree(p));
    assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(d->cuMemFree(p), HDCU_ERROR_INVALID_VALUE);
    close_all();
}

static void the_context_takes_the_pool_with_it(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        hdcu_stream a = open_all("host_devices=1 host_memory=64M");
        assert_int_equal(free_memory(), 64 << 20);
        assert_int_equal(attribute(HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
        set_threshold(UINT64_MAX);
        hdcu_deviceptr p = take(1 << 20, a);
        take(5 << 20, a);
        OK(d->cuMemsetD8Async(p, 1, 1 << 20, a));
        OK(d->cuMemFreeAsync(p, a)); /* the context may end before the stream reaches this free */
        close_all();
    }
}

typedef struct worker {
    hdcu_context context;
    hdcu_stream stream;
    uint32_t number;
    bool ok;
} worker;

/* Writes its number into all its memory, and checks that it stays. */
static void *work(void *argument)
{
    worker *w = argument;
    w->ok = d->cuCtxSetCurrent(w->context) == HDCU_SUCCESS;
    for (int i = 0; i < 300 && w->ok; i++) {
        size_t words = (size_t)1 << (i % 16);
        hdcu_deviceptr p = 0;
        uint32_t first = 0, last = 0;
        w->ok = d->cuMemAllocAsync(&p, words * 4, w->stream) == HDCU_SUCCESS &&
                d->cuMemsetD32Async(p, w->number, words, w->stream) == HDCU_SUCCESS &&
                d->cuMemcpyDtoHAsync(&first, p, 4, w->stream) == HDCU_SUCCESS &&
                d->cuMemcpyDtoHAsync(&last, p + words * 4 - 4, 4, w->stream) == HDCU_SUCCESS &&
                d->cuMemFreeAsync(p, w->stream) == HDCU_SUCCESS && d->cuStreamSynchronize(w->stream) == HDCU_SUCCESS &&
                first == w->number && last == w->number;
    }
    return NULL;
}

static void threads_share_the_pool(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    worker workers[THREADS];
    pthread_t threads[THREADS];
    open_all("host_devices=1 host_memory=64M");
    hdcu_context context = NULL;
    OK(d->cuCtxGetCurrent(&context));
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.context = context, .number = i + 1};
        OK(d->cuStreamCreate(&workers[i].stream, HDCU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].ok);
    }
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_that_it_has_pools),
        cmocka_unit_test(the_same_stream_has_it_again_at_once_another_one_later),
        cmocka_unit_test(what_is_freed_can_be_used_until_the_stream_is_there),
        cmocka_unit_test(the_threshold_says_what_stays),
        cmocka_unit_test(idle_memory_of_other_sizes_makes_room),
        cmocka_unit_test(many_small_blocks_share_segments),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(plain_free_takes_it_too),
        cmocka_unit_test(the_context_takes_the_pool_with_it),
        cmocka_unit_test(threads_share_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
