/* test_shared_memory.c - static shared memory of kernels on host devices. Each running block uses
 * its own. A launch without memory for it waits, which harms neither the device nor the process.
 * Every case runs twice: the loader keeps such memory, or the system does.
 *
 * Promise: Each running block owns its static shared memory; a launch waits while there is none.
 * Threads: the main one, two with a module each in one case, and those that run kernels.
 */
#include "simulator/host_support.h"
#include <sys/resource.h>
#include "shared_kernels.h"
#include "simulator/cpu_run.h"

#define SETTINGS "host_devices=1 host_memory=16M"
#define BLOCKS 50u

static void *ends(void *context)
{
    hdcu_context of_device = context;
    hdcu_stream stream;
    OK(d->cuCtxSetCurrent(of_device));
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    hdcu_module module = load_kernels();
    hdcu_deviceptr y = map_new(0, GRANULE);
    uint32_t *found = malloc(BLOCKS * 64 * sizeof *found);
    for (uint32_t value = 1; value < 200; value += 60) {
        void *parameters[] = {&y, &value};
        OK(d->cuLaunchKernel(kernel_of(module, "ends"), BLOCKS, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
        OK(d->cuStreamSynchronize(stream));
        memcpy(found, (const void *)(uintptr_t)y, BLOCKS * 64 * sizeof *found);
        for (uint32_t i = 0; i < BLOCKS * 64; i++) {
            assert_int_equal(found[i], (value + i / 64 + 63 - i % 64) + i / 64 + value);
        }
    }
    free(found);
    unmap(y, GRANULE);
    OK(d->cuModuleUnload(module));
    OK(d->cuStreamDestroy(stream));
    return NULL;
}

/* Two threads with a module each, on streams of one device. */
static void every_block_has_its_own(void **state)
{
    (void)state;
    open_host(SETTINGS);
    hdcu_context context = use_device(0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ends, context), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    leave_device(0);
}

static void it_begins_as_the_code_says(void **state)
{
    (void)state;
    open_host(SETTINGS);
    use_device(0);
    hdcu_module module = load_kernels();
    hdcu_deviceptr y = map_new(0, GRANULE);
    void *parameters[] = {&y};
    OK(d->cuLaunchKernel(kernel_of(module, "first_value"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    OK(d->cuCtxSynchronize());
    uint64_t found[2];
    memcpy(found, (const void *)(uintptr_t)y, sizeof found);
    assert_int_equal(found[0], BEGINS);
    assert_int_equal(found[1], 0);
    unmap(y, GRANULE);
    OK(d->cuModuleUnload(module));
    leave_device(0);
}

/* Everything except the shared memory is allocated already. The launch runs when there is memory
 * again. Other work of the device goes on meanwhile. */
static int short_of_memory(const char *file)
{
    enum { OTHER = GRANULE / 2 };
    alarm(ROLE_SECONDS);
    kernels_file = file;
    open_host(SETTINGS);
    use_device(0);
    hdcu_module module = load_kernels();
    hdcu_deviceptr y = map_new(0, GRANULE);
    hdcu_stream stream;
    uint32_t value = 1;
    volatile uint32_t *words = (volatile uint32_t *)(uintptr_t)y;
    void *parameters[] = {&y, &value};
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuMemsetD32Async(y, 0, GRANULE / 4, stream));
    OK(d->cuCtxSynchronize());
    OK(d->cuMemsetD32Async(y, 0, GRANULE / 4, NULL));
    OK(d->cuCtxSynchronize());
    assert_true(hdi_cpu_reserve(64, NULL));
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit nothing_more = {1, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &nothing_more), 0);
    OK(d->cuLaunchKernel(kernel_of(module, "ends"), 1, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
    OK(d->cuMemsetD32Async(y + OTHER, 7, 1, NULL));
    OK(d->cuStreamSynchronize(NULL));
    usleep(300000);
    bool waits = d->cuStreamQuery(stream) == HDCU_ERROR_NOT_READY && words[OTHER / 4] == 7;
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    OK(d->cuStreamSynchronize(stream));
    return waits && words[0] == value + 63 + value ? 0 : 1;
}

static void without_memory_the_launch_waits(void **state)
{
    (void)state;
    if (TEST_ASAN || TEST_TSAN) {
        skip(); /* sanitizers need all addresses */
    }
    role_process p = role_start("short", kernels_file);
    int status = role_end(&p, false);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "short") == 0) {
        return short_of_memory(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_its_own),
        cmocka_unit_test(it_begins_as_the_code_says),
        cmocka_unit_test(without_memory_the_launch_waits),
    };
    int failed = cmocka_run_group_tests_name("kept by the loader", tests, NULL, NULL);
    kernels_file = HD_TEST_KERNELS_BY_SYSTEM;
    return failed + cmocka_run_group_tests_name("kept by the system", tests, NULL, NULL);
}
