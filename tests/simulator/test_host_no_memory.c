/* test_host_no_memory.c - host memory runs out, and stays out: a call that needs some is refused,
 * and accepted work ends. No device is lost by that.
 *
 * Promise: A lasting lack of host memory fails calls, but no accepted work, and loses no device.
 * Threads: the main one, and those of streams.
 */
#include "simulator/host_support.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include "base/wait.h"

enum { STREAMS = 6, THREADS = 1024, ROUNDS = 8, SECOND = 1000000000 };

#define SETTINGS "host_devices=2 host_memory=64M"

/* ---- memory that is out ---- */

static atomic_bool out; /* all calls for memory fail */

static void *refuse(void)
{
    errno = ENOMEM;
    return NULL;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return atomic_load(&out) ? refuse() : __real_malloc(bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return atomic_load(&out) ? refuse() : __real_calloc(n, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    return atomic_load(&out) ? refuse() : __real_realloc(old, bytes);
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return atomic_load(&out) ? refuse() : __real_aligned_alloc(alignment, bytes);
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return atomic_load(&out) ? (refuse(), MAP_FAILED) : __real_mmap(at, bytes, protection, flags, file, offset);
}

/* ---- cases ---- */

static atomic_int ended;
static atomic_bool released;

static void hold_up(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&released)) {
        hdi_sleep_for(100000);
    }
}

static void count(void *nothing)
{
    (void)nothing;
    atomic_fetch_add(&ended, 1);
}

static hdcu_result reverse(hdcu_module module, hdcu_stream stream, hdcu_deviceptr y)
{
    void *parameters[] = {&y};
    return d->cuLaunchKernel(kernel_of(module, "reverse"), 1, 1, 1, THREADS, 1, 1, THREADS * 4, stream, parameters,
                             NULL);
}

/* The first work of a stream, and the first large blocks, need memory. */
static void a_call_is_refused(void **state)
{
    (void)state;
    open_host(SETTINGS);
    use_device(0);
    hdcu_module module = load_kernels();
    hdcu_function add = kernel_of(module, "add"), large = kernel_of(module, "reverse");
    hdcu_deviceptr y = map_new(0, GRANULE);
    hdcu_stream stream;
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    void *parameters[] = {&y};
    for (int round = 0; round < 2; round++) {
        atomic_store(&out, true);
        if (round == 0) {
            assert_int_equal(launch_add(add, stream, y, 1, 64), HDCU_ERROR_OUT_OF_MEMORY);
        }
        assert_int_equal(d->cuLaunchKernel(large, 1, 1, 1, 512, 1, 1, THREADS * 4, stream, parameters, NULL),
                         HDCU_ERROR_OUT_OF_MEMORY);
        atomic_store(&out, false);
        OK(d->cuMemsetD32Async(y, 5, THREADS, stream));
        OK(launch_add(add, stream, y, 1, 64));
        OK(d->cuStreamSynchronize(stream));
        assert_int_equal(*(const uint32_t *)(uintptr_t)y, 6);
    }
    OK(d->cuStreamDestroy(stream));
    unmap(y, GRANULE);
    OK(d->cuModuleUnload(module));
    leave_device(0);
}

/* All blocks together need more fibers than exist. */
static void accepted_work_ends(void **state)
{
    (void)state;
    open_host(SETTINGS);
    use_device(0);
    hdcu_module module = load_kernels();
    hdcu_deviceptr y = map_new(0, GRANULE);
    hdcu_stream streams[STREAMS];
    uint32_t *words = (uint32_t *)(uintptr_t)y;
    for (uint32_t i = 0; i < STREAMS * THREADS; i++) {
        words[i] = i;
    }
    atomic_store(&ended, 0);
    for (int i = 0; i < STREAMS; i++) {
        OK(d->cuStreamCreate(&streams[i], HDCU_STREAM_NON_BLOCKING));
        OK(d->cuLaunchHostFunc(streams[i], hold_up, NULL));
        for (int k = 0; k < 2 * ROUNDS + 1; k++) {
            OK(reverse(module, streams[i], y + (hdcu_deviceptr)i * THREADS * 4));
        }
        OK(d->cuLaunchHostFunc(streams[i], count, NULL));
    }
    atomic_store(&out, true);
    atomic_store(&released, true);
    for (int64_t end = hdi_clock_ns() + (int64_t)60 * SECOND; atomic_load(&ended) < STREAMS && hdi_clock_ns() < end;) {
        hdi_sleep_for(1000000);
    }
    atomic_store(&out, false);
    assert_int_equal(atomic_load(&ended), STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        OK(d->cuStreamSynchronize(streams[i]));
        OK(d->cuStreamDestroy(streams[i]));
    }
    for (uint32_t i = 0; i < STREAMS * THREADS; i++) {
        assert_int_equal(words[i], i / THREADS * THREADS + (THREADS - 1 - i % THREADS));
    }
    unmap(y, GRANULE);
    OK(d->cuModuleUnload(module));
    leave_device(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_refused),
        cmocka_unit_test(accepted_work_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
