/* test_shared_memory.c - static shared memory of kernels on host devices. Each running block uses
 * its own. A launch without memory for it fails, which ends the device, not the process. Every case
 * runs twice: the loader keeps such memory, or the system does.
 *
 * Promise: Each running block owns its static shared memory; lack of it fails only its device.
 * Threads: the main one, two with a module each in one case, and those that run kernels.
 */
#include "simulator/host_support.h"
#include <sys/resource.h>
#include "shared_kernels.h"

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

/* Everything except the shared memory is allocated already. */
static int short_of_memory(const char *file)
{
    alarm(ROLE_SECONDS);
    kernels_file = file;
    open_host(SETTINGS);
    use_device(0);
    hdcu_module module = load_kernels();
    hdcu_deviceptr y = map_new(0, GRANULE);
    uint32_t value = 1;
    void *parameters[] = {&y, &value};
    OK(d->cuMemsetD32Async(y, 0, GRANULE / 4, NULL));
    OK(d->cuCtxSynchronize());
    const struct rlimit nothing_more = {1, 1};
    assert_int_equal(setrlimit(RLIMIT_AS, &nothing_more), 0);
    hdcu_result r = d->cuLaunchKernel(kernel_of(module, "ends"), 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL);
    r = r == HDCU_SUCCESS ? d->cuCtxSynchronize() : HDCU_ERROR_UNKNOWN;
    return r == HDCU_ERROR_LAUNCH_FAILED ? 0 : 1;
}

static void without_memory_the_launch_fails(void **state)
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
        cmocka_unit_test(without_memory_the_launch_fails),
    };
    int failed = cmocka_run_group_tests_name("kept by the loader", tests, NULL, NULL);
    kernels_file = HD_TEST_KERNELS_BY_SYSTEM;
    return failed + cmocka_run_group_tests_name("kept by the system", tests, NULL, NULL);
}
