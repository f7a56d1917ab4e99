/* conformance.h - shared code of the conformance programs: checks (checks.h), work (work.h) and
 * opening a runtime.
 *
 * The programs use the public API only and run on every provider and placement. They take both from
 * the environment:
 *     HEDDLE_DRIVER=host HEDDLE_PLACEMENT=thread ./test_order
 *     HEDDLE_DRIVER=nvidia HEDDLE_PLACEMENT=inline ./test_order   on a machine with GPUs
 *     HEDDLE_DRIVER=host HEDDLE_PLACEMENT=process HEDDLE_WORKER=.../heddle-worker ./test_order
 * ctest runs all of them under the same environment.
 *
 * A program exits with 77 (skipped) if the driver or a device is missing. With one device it skips
 * cases that need two. Other variables:
 *     HEDDLE_TEST_FILTER=PATTERN    only the cases whose name matches ("*" and "?")
 *     HEDDLE_TEST_FAULTS=1          on nvidia, also the cases that make a GPU fault for good (host
 *                                   devices and workers always run them)
 *     HEDDLE_TEST_KEEP_CONTEXTS=1   on nvidia, runtimes open in milliseconds (contexts.h)
 *     HEDDLE_TOOL=PATH              the `heddle` tool, to make kernel files; without it the program
 *                                   skips those cases
 *     HEDDLE_GRAPHS=N HEDDLE_SEED=N number and seed of the random work graphs
 *     HEDDLE_ONLY_GRAPH=N           only the graph with the number that a failure printed
 *     HEDDLE_STRESS_SECONDS=N       how long the threads of the stress test work
 *     HEDDLE_TEST_ABORT=1           the watchdog aborts, for a core or a debugger
 *     HEDDLE_SWEEP_SECONDS=N        time limit of the sweep of failing driver calls, which leaves
 *                                   out calls to keep it
 *     HEDDLE_FAULT_ROUNDS=N         how often in a row a device is lost and brought back
 *
 * Threads: the helpers work in every thread, conf_begin in the main one.
 * Locks: none.
 * Always: no check measures time; checks look only at which operation finished before which.
 * Always: a watchdog ends a case that hangs, and prints which one it was.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include "checks.h"
#include "work.h"

#include "contexts.h"
#include "support/lanes.h"

CONF_UNUSED static hd_status conf_try_open(const char *settings, hd_runtime **out)
{
    char text[8192];
    hd_options options = {.size = sizeof options, .settings = settings};
    if (settings != NULL && strstr(settings, "cuLaunchKernel:") != NULL) {
        /* a test that counts launches by that call expects one call for each launch */
        snprintf(text, sizeof text, "%s chains=0", settings);
        options.settings = text;
    }
    hd_status status = hd_open(&options, out);
    if (status == HD_OK) {
        conf_track(NULL, *out);
    }
    return status;
}

CONF_UNUSED static hd_runtime *conf_open(const char *settings)
{
    hd_runtime *runtime = NULL;
    hd_status status = conf_try_open(settings, &runtime);
    if (status != HD_OK) {
        conf_fail_at(__FILE__, __LINE__, "hd_open(\"%s\"): %s: %s", settings == NULL ? "" : settings,
                     hd_status_name(status), hd_message());
    }
    return runtime;
}

/* Does the same with formatted settings. */
CONF_UNUSED __attribute__((format(printf, 1, 2))) static hd_runtime *conf_open_with(const char *format, ...)
{
    char settings[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(settings, sizeof settings, format, arguments);
    va_end(arguments);
    return conf_open(settings);
}

CONF_UNUSED static bool conf_is_host(hd_runtime *runtime)
{
    hd_runtime_info info = {.size = sizeof info};
    CONF_OK(hd_runtime_get_info(runtime, &info));
    return strcmp(info.driver, "host") == 0;
}

CONF_UNUSED static bool conf_is_inline(hd_runtime *runtime)
{
    hd_runtime_info info = {.size = sizeof info};
    CONF_OK(hd_runtime_get_info(runtime, &info));
    return strcmp(info.placement, "inline") == 0;
}

CONF_UNUSED static bool conf_is_process(hd_runtime *runtime)
{
    hd_runtime_info info = {.size = sizeof info};
    CONF_OK(hd_runtime_get_info(runtime, &info));
    return strcmp(info.placement, "process") == 0;
}

/* True if the loss of a device leaves the others alone. A GPU without a worker takes down the
 * driver of the process. */
CONF_UNUSED static bool conf_isolates(hd_runtime *runtime)
{
    return conf_is_host(runtime) || conf_is_process(runtime);
}

/* True if kernels on `device` reach the memory of `owner`, as the driver reports. */
CONF_UNUSED static bool conf_reaches(hd_runtime *runtime, int device, int owner)
{
    if (device == owner || owner < 0) {
        return true;
    }
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, device, &info));
    return (info.peers >> owner & 1) != 0;
}

/* Skips the case, and closes the runtime, if there are too few devices. */
#define CONF_NEED_DEVICES(runtime, count)                                                                              \
    do {                                                                                                               \
        if (hd_device_count(runtime) < (count)) {                                                                      \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

CONF_UNUSED static uint64_t conf_number_from(const char *environment, uint64_t otherwise)
{
    const char *text = getenv(environment);
    return text == NULL || text[0] == '\0' ? otherwise : strtoull(text, NULL, 0);
}

CONF_UNUSED static bool conf_on_gpus; /* set by conf_begin */

/* How long a sweep over failing calls may take, in seconds. With a sanitizer the limit is the same,
 * so the sweep tries fewer calls: the same calls fail without one in other placements. */
CONF_UNUSED static double conf_sweep_seconds(uint64_t otherwise)
{
    return (double)conf_number_from("HEDDLE_SWEEP_SECONDS", otherwise);
}

/* How often a case repeats a step that needs its own runtime. On GPUs a fifth of `rounds`, at least
 * 3: opening GPUs takes a second. */
CONF_UNUSED static int conf_rounds(int rounds)
{
    if (!conf_on_gpus || rounds < 3) {
        return rounds;
    }
    return rounds < 15 ? 3 : rounds / 5;
}

/* cmocka ends a program whose second thread crashes, and prints nothing. */
CONF_UNUSED static void conf_exits(void)
{
    if (gettid() != getpid()) {
        fprintf(stderr, "a thread beside the main one crashed, or called exit\n");
    }
}

/* Call it first in main. Exits with 77 if the driver or a device is missing. */
CONF_UNUSED static void conf_begin(const char *program)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *filter = getenv("HEDDLE_TEST_FILTER");
    if (filter != NULL && filter[0] != '\0') {
        cmocka_set_test_filter(filter);
    }
    conf_watch(program, 120);
    atexit(conf_exits);
    hd_runtime *runtime = NULL;
    hd_status status = hd_open(NULL, &runtime);
    if (status == HD_ERROR_NO_DRIVER || status == HD_ERROR_NO_DEVICE) {
        fprintf(stderr, "%s: skipped: %s\n", program, hd_message());
        exit(77);
    }
    if (status != HD_OK) {
        fprintf(stderr, "%s: hd_open: %s: %s\n", program, hd_status_name(status), hd_message());
        exit(1);
    }
    hd_runtime_info info = {.size = sizeof info};
    if (hd_runtime_get_info(runtime, &info) == HD_OK) {
        conf_on_gpus = strcmp(info.driver, "nvidia") == 0;
        fprintf(stderr, "%s: driver %s, placement %s, %d devices\n", program, info.driver, info.placement,
                info.device_count);
        if (conf_on_gpus && strcmp(info.placement, "process") != 0 &&
            conf_number_from("HEDDLE_TEST_KEEP_CONTEXTS", 0)) {
            conf_keep_contexts(info.device_count);
        }
    }
    hd_close(runtime);
    alarm(0);
}

#endif
