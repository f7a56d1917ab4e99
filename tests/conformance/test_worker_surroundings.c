/* test_worker_surroundings.c - the surroundings of a program with workers: few descriptors or none
 * for a moment, another working directory, a changed environment.
 *
 * Promise: A passing lack of descriptors, another folder or environment leaves no lasting effect.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: after a case the surroundings are as before. The library keeps nothing of a passing
 * state.
 */
#include <limits.h>
#include "side.h"

/* ---- descriptors ---- */

/* An allocation took memory and gave it back, because it could not get pinned memory for its copy.
 * Earlier work still uses the memory: here work that waits for another device. */
static void memory_of_a_failed_allocation_stays_ordered(void **state)
{
    (void)state;
    enum { large = 16 << 20 };
    hd_runtime *runtime = conf_open_with("host_memory=64M");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    if (!conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels builtin = conf_builtins(runtime);
    hd_lane *far = NULL, *lane = NULL, *other = NULL;
    hd_buffer *x = NULL, *y = NULL, *z = NULL, *behind = NULL;
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_lane_create(runtime, 1, &far));
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_lane_create(runtime, 0, &other));
    hd_buffer *source = filled(far, 0, 1);
    CONF_OK(hd_alloc(lane, large, &x));
    CONF_OK(conf_copy(lane, builtin, x, 0, source, 0, words, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    wk_warm(runtime, 0, k);
    wk_warm(runtime, 1, k);
    for (int i = 0; i < 16 && hd_alloc(lane, 4 << 20, &behind) == HD_OK; i++) {
        /* fills all other places, and keeps freed memory from joining other memory */
    }
    uint64_t at = hd_buffer_address(x);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, far, k);
    CONF_OK(conf_fill(far, builtin, source, 0, words, 5, NULL));     /* behind the gate */
    CONF_OK(conf_copy(lane, builtin, x, 0, source, 0, words, NULL)); /* behind that */
    hd_free(x);
    struct rlimit before = take_descriptors();
    hd_status status = hd_alloc_with(other, large, &keep, &y);
    give_descriptors(before);
    CONF_TRUE(status != HD_OK && status != HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_alloc(other, large, &z));
    CONF_TRUE(conf_on_gpus || hd_buffer_address(z) == at); /* otherwise the case shows nothing */
    CONF_OK(conf_fill(other, builtin, z, 0, words, 9, NULL));
    conf_sleep_ms(100); /* time in which it could wrongly run */
    wk_gate_open(&gate);
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_FILLED(z, 0, 9, bytes);
    hd_unmap(gate.pinned);
    wk_no_loss(runtime);
    conf_close(runtime);
}

static void a_moment_without_descriptors_is_not_remembered(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_NEED_DEVICES(runtime, 2);
    int peer = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, peer, 0)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, peer);
    hd_buffer *x = filled(conf_default_lane(runtime, 0), 0, 1);
    struct rlimit before = take_descriptors();
    hd_status status = conf_fill(lane, k, x, 0, words, 2, NULL);
    give_descriptors(before);
    CONF_EQUAL(status, HD_ERROR_UNREACHABLE);
    CONF_OK(conf_fill(lane, k, x, 0, words, 3, NULL));
    CONF_FILLED(x, 0, 3, bytes);
    wk_no_loss(runtime);
    conf_close(runtime);
}

static void a_runtime_opens_with_few_descriptors(void **state)
{
    (void)state;
    struct rlimit before, few;
    CONF_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)wk_use().descriptors + 40;
    if (conf_on_gpus || few.rlim_cur >= 128 || few.rlim_cur > before.rlim_cur) {
        skip();
    }
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    hd_runtime *runtime = NULL;
    hd_status status = conf_try_open("host_devices=2", &runtime);
    if (status == HD_OK) {
        wk_works(runtime, 1);
        conf_close(runtime);
    }
    give_descriptors(before);
    CONF_OK(status);
}

/* ---- folder and environment ---- */

static void a_relative_worker_outlives_a_change_of_directory(void **state)
{
    (void)state;
    char path[PATH_MAX], folder[] = "/tmp/heddle-test-XXXXXX", link[64];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || realpath(worker, path) == NULL) {
        skip();
    }
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(link, sizeof link, "%s/worker", folder);
    CONF_EQUAL(symlink(path, link), 0);
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CONF_TRUE(here >= 0 && chdir(folder) == 0);
    hd_runtime *runtime = conf_open_with("host_devices=1 worker=./worker");
    CONF_EQUAL(chdir("/"), 0);
    int device = hd_device_count(runtime) - 1;
    wk_lose_now(runtime, device);
    hd_status status = hd_device_restart(runtime, device);
    CONF_TRUE(fchdir(here) == 0 && close(here) == 0 && unlink(link) == 0 && rmdir(folder) == 0);
    CONF_OK(status);
    wk_works(runtime, device);
    conf_close(runtime);
}

/* A path that no settings string can express, and a variable that became nonsense. Workers do not
 * read the environment again, so they still start. */
static void workers_do_not_read_the_environment_again(void **state)
{
    (void)state;
    char path[PATH_MAX], before[PATH_MAX], folder[] = "/tmp/heddle-test-XXXXXX", link[64];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || realpath(worker, path) == NULL || getenv("HEDDLE_SPIN_US") != NULL) {
        skip();
    }
    snprintf(before, sizeof before, "%s", worker);
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(link, sizeof link, "%s/a \"worker\"", folder);
    CONF_EQUAL(symlink(path, link), 0);
    CONF_EQUAL(setenv("HEDDLE_WORKER", link, 1), 0);
    hd_runtime *runtime = NULL;
    hd_status status = conf_try_open("host_devices=1", &runtime);
    CONF_EQUAL(setenv("HEDDLE_WORKER", before, 1), 0);
    if (status == HD_OK) {
        int device = hd_device_count(runtime) - 1;
        wk_lose_now(runtime, device);
        CONF_EQUAL(setenv("HEDDLE_SPIN_US", "nonsense", 1), 0);
        status = hd_device_restart(runtime, device);
        CONF_EQUAL(unsetenv("HEDDLE_SPIN_US"), 0);
        conf_close(runtime);
    }
    CONF_TRUE(unlink(link) == 0 && rmdir(folder) == 0);
    CONF_OK(status);
}

int main(void)
{
    wk_begin("test_worker_surroundings");
    const struct CMUnitTest tests[] = {
        CONF_CASE(memory_of_a_failed_allocation_stays_ordered),
        CONF_CASE(a_moment_without_descriptors_is_not_remembered),
        CONF_CASE(a_relative_worker_outlives_a_change_of_directory),
        CONF_CASE(workers_do_not_read_the_environment_again),
        CONF_CASE(a_runtime_opens_with_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
