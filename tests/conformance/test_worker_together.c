/* test_worker_together.c - the workers of all devices start at the same time, and one that fails
 * leaves nothing behind.
 *
 * Promise: Workers of all devices start at the same time, and one that fails leaves no trace.
 *
 * A script in front of the real worker makes a file once it started, and waits for the others'
 * files.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "workers.h"
#include "folder.h"

#include <sys/stat.h>

/* Makes a worker program that runs `steps`, with the device's number in $n, and becomes the real
 * one. */
static void make_script(const char *steps)
{
    char path[128], text[2048];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL) {
        skip();
    }
    snprintf(path, sizeof path, "%s/worker", folder);
    snprintf(text, sizeof text, "#!/bin/sh\ncd %s || exit 3\nn=${1#device=}\n%s\nexec '%s' \"$@\"\n", folder, steps,
             worker);
    FILE *file = fopen(path, "w");
    CONF_TRUE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, 0755) == 0);
}

static hd_status open_with_script(const char *more, hd_runtime **out)
{
    char settings[256];
    snprintf(settings, sizeof settings, "worker=%s/worker %s", folder, more);
    return conf_try_open(settings, out);
}

static bool on_host(void)
{
    hd_runtime *runtime = conf_open(NULL);
    bool host = conf_is_host(runtime);
    conf_close(runtime);
    return host;
}

/* No worker begins before all were started. */
static void all_are_started_before_any_answers(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script(": >started$n\nwhile [ ! -e started0 -o ! -e started1 -o ! -e started2 ]\ndo sleep 0.02; done");
    hd_runtime *runtime = NULL;
    CONF_OK(open_with_script("host_devices=3", &runtime));
    CONF_EQUAL(hd_device_count(runtime), 3);
    wk_others_work(runtime, -1);
    conf_close(runtime);
    char command[128];
    snprintf(command, sizeof command, "rm %s/started*", folder);
    CONF_EQUAL(system(command), 0);
    /* no more than the option devices lists */
    make_script(": >started$n\nwhile [ ! -e started0 -o ! -e started1 ]\ndo sleep 0.02; done");
    CONF_OK(open_with_script("host_devices=3 devices=2:0", &runtime));
    CONF_EQUAL(hd_device_count(runtime), 2);
    wk_others_work(runtime, -1);
    CONF_TRUE(conf_children_become(2));
    char path[128];
    snprintf(path, sizeof path, "%s/started2", folder);
    CONF_TRUE(access(path, F_OK) != 0);
    conf_close(runtime);
}

/* One worker fails, before or after it loads the driver, while others work, start, or hang. Nothing
 * is left, and the message names it. */
static void one_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    static const struct {
        const char *steps, *word;
    } cases[] = {
        {"[ $n != 2 ] || exit 7", "device 2"},
        {"[ $n != 1 ] || kill -9 $$", "device 1"},
        {"[ $n != 0 ] || exit 7; [ $n != 2 ] || exec sleep 1000", "device 0"},
        {"[ $n != 1 ] || exit 7; [ $n != 2 ] || exec sleep 1000", "device 1"},
        {"[ $n != 2 ] || exec sleep 1000", "device 2"},
        {"[ $n = 0 ] || exec sleep 1000", "device 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wk_usage before = wk_use();
        make_script(cases[i].steps);
        hd_runtime *runtime = NULL;
        conf_watch(cases[i].steps, 100);
        CONF_FAILS_WITH(open_with_script(i < 4 ? "host_devices=3" : "host_devices=3 worker_timeout=1500", &runtime),
                        HD_ERROR_SYSTEM, cases[i].word);
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        wk_usage after = wk_use();
        CONF_EQUAL(after.children, before.children);
        CONF_EQUAL(after.descriptors, before.descriptors);
    }
    hd_runtime *runtime = NULL;
    CONF_FAILS(open_with_script("host_devices=3 devices=0:9", &runtime), HD_ERROR_NO_DEVICE);
    CONF_TRUE(conf_children_become(0));
}

int main(void)
{
    wk_begin("test_worker_together");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(all_are_started_before_any_answers),
        FOLDER_CASE(one_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
