/* test_worker_spare.c - workers in reserve (option spare_workers): a restart takes one, another one
 * takes its place, and a useless one is no failure.
 *
 * Promise: A restart takes and replaces a worker in reserve; a useless one is no failure.
 *
 * The test recognises a spare by its process: a child that drives no device.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "workers.h"
#include "folder.h"

#include <sys/stat.h>

enum { DEVICES = 2, CHILDREN_MOST = 64 };

/* Lists the processes that this one started and that did not end. */
static int children(pid_t *out)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        char path[300], line[512], state = 'Z';
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        int parent = 0;
        if (file != NULL && fgets(line, sizeof line, file) != NULL && strrchr(line, ')') != NULL) {
            sscanf(strrchr(line, ')'), ") %c %d", &state, &parent);
        }
        if (file != NULL) {
            fclose(file);
        }
        if (parent == (int)getpid() && state != 'Z' && n < CHILDREN_MOST) {
            out[n++] = (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    closedir(proc);
    return n;
}

/* Lists those that drive no device. */
static int spares(hd_runtime *runtime, pid_t *out)
{
    pid_t all[CHILDREN_MOST];
    int n = 0;
    for (int i = 0, of = children(all); i < of; i++) {
        bool drives = false;
        for (int d = 0; d < hd_device_count(runtime); d++) {
            drives |= wk_info(runtime, d).worker_pid == all[i];
        }
        if (!drives) {
            out[n++] = all[i];
        }
    }
    return n;
}

/* Waits until `wanted` spares exist. Returns the first one. */
static pid_t await_spares(hd_runtime *runtime, int wanted)
{
    pid_t found[CHILDREN_MOST] = {0};
    while (spares(runtime, found) != wanted) {
        conf_sleep_ms(2);
    }
    return found[0];
}

static hd_runtime *open_with_spares(int n, const char *more)
{
    return conf_open_with("host_devices=%d spare_workers=%d %s", DEVICES, n, more);
}

/* Makes a worker program that runs `steps` if it is a spare, and then becomes the real one. Returns
 * the setting. */
static const char *with_script(const char *steps)
{
    static char setting[160];
    char path[128], text[1024];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL) {
        skip();
    }
    snprintf(path, sizeof path, "%s/worker", folder);
    snprintf(text, sizeof text, "#!/bin/sh\ncd %s || exit 3\nif [ \"$1\" = spare ]; then\n%s\nfi\nexec '%s' \"$@\"\n",
             folder, steps, worker);
    FILE *file = fopen(path, "w");
    CONF_TRUE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, 0755) == 0);
    snprintf(setting, sizeof setting, "worker=%s", path);
    return setting;
}

static void all_work(hd_runtime *runtime)
{
    for (int d = 0; d < hd_device_count(runtime); d++) {
        wk_works(runtime, d);
    }
}

static void lose_and_restart(hd_runtime *runtime, int device)
{
    wk_lose_now(runtime, device);
    CONF_OK(hd_device_restart(runtime, device));
    all_work(runtime);
}

static void a_restart_takes_the_spare(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with_spares(1, "");
    CONF_NEED_DEVICES(runtime, DEVICES);
    all_work(runtime);
    for (int round = 0; round < 4; round++) {
        pid_t spare = await_spares(runtime, 1);
        lose_and_restart(runtime, round % DEVICES);
        CONF_EQUAL(wk_info(runtime, round % DEVICES).worker_pid, spare);
        CONF_TRUE(await_spares(runtime, 1) != spare); /* and another one takes its place */
    }
    conf_close(runtime);
    CONF_EQUAL(conf_children(), 0);
}

static void several_for_several(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with_spares(2, "");
    CONF_NEED_DEVICES(runtime, DEVICES);
    pid_t both[CHILDREN_MOST];
    await_spares(runtime, 2);
    spares(runtime, both);
    for (int d = 0; d < DEVICES; d++) {
        wk_lose_now(runtime, d);
    }
    for (int d = 0; d < DEVICES; d++) {
        CONF_OK(hd_device_restart(runtime, d));
        pid_t now = wk_info(runtime, d).worker_pid;
        CONF_TRUE(d > 0 || now == both[0] || now == both[1]);
    }
    await_spares(runtime, 2);
    all_work(runtime);
    conf_close(runtime);
}

static void without_the_option_there_is_none(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with_spares(0, "");
    pid_t none[CHILDREN_MOST];
    lose_and_restart(runtime, 0);
    CONF_EQUAL(spares(runtime, none), 0);
    conf_close(runtime);
}

/* A spare that ends is replaced, a few times. A restart works without one; after it the library
 * tries spares again. */
static void one_that_dies_is_replaced(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with_spares(1, "");
    for (int i = 0; i < 3; i++) {
        pid_t spare = await_spares(runtime, 1);
        CONF_EQUAL(kill(spare, SIGKILL), 0);
        CONF_TRUE(wk_goes(spare, wk_gone_ms()));
    }
    await_spares(runtime, 0);
    lose_and_restart(runtime, 1);
    CONF_EQUAL(kill(await_spares(runtime, 1), SIGKILL), 0); /* at the very moment of a restart */
    lose_and_restart(runtime, 0);
    wk_no_loss(runtime); /* except those that were reported already */
    conf_close(runtime);
}

static void one_that_is_of_no_use_is_no_failure(void **state)
{
    (void)state;
    static const char *const steps[] = {"exit 7", "exec sleep 1000", "echo babble >&3; exec sleep 1000", "kill -9 $$"};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        char more[256];
        snprintf(more, sizeof more, "%s worker_timeout=%d", with_script(steps[i]), 2000 * CONF_SLOWNESS);
        hd_runtime *runtime = open_with_spares(1, more);
        bool stays = i == 1 || i == 2;
        pid_t spare = await_spares(runtime, stays);
        lose_and_restart(runtime, 0);
        CONF_TRUE(!stays || (wk_gone(spare) && wk_info(runtime, 0).worker_pid != spare));
        conf_close(runtime);
    }
    /* stopped, it is passed over */
    hd_runtime *runtime = open_with_spares(1, "");
    pid_t spare = await_spares(runtime, 1);
    CONF_EQUAL(kill(spare, SIGSTOP), 0);
    while (wk_state(spare) != 'T') {
        conf_sleep_ms(1);
    }
    lose_and_restart(runtime, 0);
    CONF_TRUE(wk_info(runtime, 0).worker_pid > 0);
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_spare");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(a_restart_takes_the_spare),           FOLDER_CASE(several_for_several),
        FOLDER_CASE(without_the_option_there_is_none),    FOLDER_CASE(one_that_dies_is_replaced),
        FOLDER_CASE(one_that_is_of_no_use_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
