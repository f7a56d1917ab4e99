/* test_worker_start.c - starting workers.
 *
 * Promise: Workers start in applications of any state, or hd_open fails and names the program.
 *
 * - the place of the program, and programs that are no worker
 * - applications in odd states: closed standard descriptors, an empty environment, blocked signals,
 *   few descriptors, a deleted folder
 *
 * Threads: the main one.
 * Locks: none.
 * Processes: the odd applications are this program again.
 * Always: if a worker cannot start, hd_open names in time the program that it tried, and leaves
 * nothing behind.
 */
#include "workers.h"

#include <dlfcn.h>
#include <sys/resource.h>

enum { words = 5000, bytes = words * 4 };

static void all_work(hd_runtime *runtime)
{
    wk_others_work(runtime, -1);
}

/* ---- programs that are no worker ---- */

static char folder[64];

static void make_file(const char *name, const char *content, mode_t mode, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s/%s", folder, name);
    int file = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CONF_TRUE(file >= 0 && write(file, content, strlen(content)) == (ssize_t)strlen(content));
    CONF_EQUAL(fchmod(file, mode), 0);
    close(file);
}

static void programs_that_are_no_worker(void **state)
{
    (void)state;
    static const struct {
        const char *name, *content; /* content NULL: the name is a path */
        mode_t mode;
    } programs[] = {
        {"/nonexistent/heddle-worker", NULL, 0},
        {"/bin/false", NULL, 0},
        {"/bin/true", NULL, 0},
        {"/bin/cat", NULL, 0},
        {"/tmp", NULL, 0},
        {"sleeps", "#!/bin/sh\nexec sleep 1000\n", 0700},
        {"sleeps-in-a-child", "#!/bin/sh\ntrap '' TERM\nsleep 3\n", 0700},
        {"kills-itself", "#!/bin/sh\nkill -9 $$\n", 0700},
        {"babbles", "#!/bin/sh\nfor fd in 0 1 3 4 5 6 7 8 9\ndo echo babble babble babble >&$fd; done 2>/dev/null\n",
         0700},
        {"not-executable", "#!/bin/sh\nexit 0\n", 0600},
        {"empty", "", 0700},
        {"no-such-interpreter", "#!/nonexistent/sh\n", 0700},
    };
    snprintf(folder, sizeof folder, "/tmp/heddle-test-XXXXXX");
    CONF_TRUE(mkdtemp(folder) != NULL);
    wk_usage before = wk_use();
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char path[128], settings[256];
        snprintf(path, sizeof path, "%s", programs[i].name);
        if (programs[i].content != NULL) {
            make_file(programs[i].name, programs[i].content, programs[i].mode, path, sizeof path);
        }
        snprintf(settings, sizeof settings, "worker=%s worker_timeout=1000", path);
        hd_runtime *const untouched = (hd_runtime *)(uintptr_t)0x1234;
        hd_runtime *runtime = untouched;
        conf_watch(settings, 60);
        conf_fails_at(conf_try_open(settings, &runtime), HD_ERROR_SYSTEM, path, settings, __FILE__, __LINE__);
        CONF_TRUE(runtime == untouched);
        wk_usage after = wk_use();
        if (after.children != before.children || after.descriptors != before.descriptors) {
            conf_fail_at(__FILE__, __LINE__, "%s: %d children, %d descriptors are left over", path,
                         after.children - before.children, after.descriptors - before.descriptors);
        }
        if (programs[i].content != NULL) {
            unlink(path);
        }
    }
    CONF_EQUAL(rmdir(folder), 0);
    hd_runtime *runtime = conf_open(NULL); /* and nothing blocks a right one */
    all_work(runtime);
    conf_close(runtime);
}

/* ---- the place of the program ---- */

/* Beside the shared library, without any option. */
static void found_beside_the_library(void **state)
{
    (void)state;
    const char *library = getenv("HEDDLE_SHARED_LIBRARY");
    if (library == NULL) {
        skip();
    }
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CONF_TRUE(handle != NULL);
    hd_status (*open_it)(const hd_options *, hd_runtime **) = NULL;
    hd_status (*info_of)(hd_runtime *, int, hd_device_info *) = NULL;
    void (*close_it)(hd_runtime *) = NULL;
    const char *(*message)(void) = NULL;
    *(void **)&open_it = dlsym(handle, "hd_open");
    *(void **)&info_of = dlsym(handle, "hd_device_get_info");
    *(void **)&close_it = dlsym(handle, "hd_close");
    *(void **)&message = dlsym(handle, "hd_message");
    char *kept = getenv("HEDDLE_WORKER") == NULL ? NULL : strdup(getenv("HEDDLE_WORKER"));
    unsetenv("HEDDLE_WORKER");
    hd_runtime *runtime = NULL;
    hd_status status = open_it(NULL, &runtime);
    if (kept != NULL) {
        setenv("HEDDLE_WORKER", kept, 1);
        free(kept);
    }
    if (status != HD_OK) {
        conf_fail_at(__FILE__, __LINE__, "hd_open of %s: %s", library, message());
    }
    hd_device_info info = {.size = sizeof info};
    CONF_EQUAL(info_of(runtime, 0, &info), HD_OK);
    CONF_TRUE(info.worker_pid > 0);
    close_it(runtime);
    CONF_TRUE(wk_goes(info.worker_pid, wk_gone_ms()));
}

/* A path with blanks, a link, a relative path. */
static void found_by_option(void **state)
{
    (void)state;
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || worker[0] != '/') {
        skip();
    }
    snprintf(folder, sizeof folder, "/tmp/heddle test-XXXXXX");
    CONF_TRUE(mkdtemp(folder) != NULL);
    char path[128], settings[256], before[4096];
    snprintf(path, sizeof path, "%s/a worker", folder);
    CONF_EQUAL(symlink(worker, path), 0);
    snprintf(settings, sizeof settings, "worker=\"%s\"", path);
    hd_runtime *runtime = conf_open(settings);
    all_work(runtime);
    conf_close(runtime);
    CONF_TRUE(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    runtime = conf_open("worker=\"./a worker\"");
    CONF_EQUAL(chdir(before), 0);
    all_work(runtime);
    conf_close(runtime);
    unlink(path);
    CONF_EQUAL(rmdir(folder), 0);
}

/* ---- odd applications ---- */

static char all_settings[4096]; /* without any help of the environment */

static int opens_and_works(const char *what)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof options, .settings = all_settings};
    conf_failure_ends_program = true;
    conf_watch(what, 60);
    CONF_OK(hd_open(&options, &runtime));
    all_work(runtime);
    hd_close(runtime);
    return conf_children_become(0) ? 0 : 2;
}

static int odd_application(const char *what)
{
    const char *driver = getenv("HEDDLE_DRIVER"), *worker = getenv("HEDDLE_WORKER");
    snprintf(all_settings, sizeof all_settings, "placement=process driver=%s worker=\"%s\"",
             driver == NULL ? "auto" : driver, worker == NULL ? "" : worker);
    if (strcmp(what, "closed") == 0) {
        close(0);
        close(1);
        close(2);
    } else if (strcmp(what, "closed-in") == 0) {
        close(0);
    } else if (strcmp(what, "environment") == 0) {
        clearenv();
    } else if (strcmp(what, "signals") == 0) {
        sigset_t all;
        sigfillset(&all);
        sigdelset(&all, SIGALRM);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    } else if (strcmp(what, "ignored") == 0) {
        for (int i = 1; i < 32; i++) {
            if (i != SIGALRM && i != SIGSEGV && i != SIGBUS && i != SIGFPE && i != SIGILL) {
                signal(i, SIG_IGN); /* SIGCHLD too: no wait can return how a worker ended */
            }
        }
    } else if (strcmp(what, "folder") == 0) {
        char gone[] = "/tmp/heddle-test-XXXXXX";
        CONF_TRUE(mkdtemp(gone) != NULL && chdir(gone) == 0 && rmdir(gone) == 0);
    } else if (strcmp(what, "umask") == 0) {
        umask(0777);
    } else if (strcmp(what, "descriptors") == 0) {
        bool gpus = driver != NULL && strcmp(driver, "nvidia") == 0; /* which start slowly */
        /* too few, up to enough: refused cleanly, or works */
        for (int i = 0; i < 60; i += gpus ? 12 : 1) {
            struct rlimit limit = {(rlim_t)(wk_entries("/proc/self/fd") + i), 4096};
            hd_runtime *runtime = NULL;
            hd_options options = {.size = sizeof options, .settings = all_settings};
            conf_watch(what, 60);
            CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
            hd_status status = hd_open(&options, &runtime);
            limit.rlim_cur = 1024;
            CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
            if (status == HD_OK) {
                hd_close(runtime);
            } else if (status != HD_ERROR_SYSTEM && status != HD_ERROR_HOST_MEMORY) {
                fprintf(stderr, "with %d descriptors: %s: %s\n", i, hd_status_name(status), hd_message());
                return 3;
            }
            if (!conf_children_become(0)) {
                fprintf(stderr, "with %d descriptors: %s, and a child is left\n", i, hd_status_name(status));
                return 4;
            }
        }
    }
    return opens_and_works(what);
}

/* Runs this program again, as that application. */
static int runs_as(const char *what)
{
    char program[] = "/proc/self/exe", option[] = "--odd", name[32];
    snprintf(name, sizeof name, "%s", what);
    char *arguments[] = {program, option, name, NULL};
    pid_t child = 0;
    int status = -1;
    CONF_EQUAL(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    CONF_TRUE(waitpid(child, &status, 0) == child);
    return status;
}

static void odd_applications(void **state)
{
    (void)state;
    static const char *const all[] = {"plain",   "closed", "closed-in", "environment", "signals",
                                      "ignored", "folder", "umask",     "descriptors"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int status = runs_as(all[i]);
        if (status != 0) {
            conf_fail_at(__FILE__, __LINE__, "an application with odd %s ends with status %x", all[i], status);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--odd") == 0) {
        return odd_application(argv[2]);
    }
    wk_begin("test_worker_start");
    const struct CMUnitTest tests[] = {
        CONF_CASE(programs_that_are_no_worker),
        CONF_CASE(found_beside_the_library),
        CONF_CASE(found_by_option),
        CONF_CASE(odd_applications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
