/* test_memory_outside.c - a runtime's memory as other processes see it: hd_memory_report_of and
 * `heddle info --memory`.
 *
 * Promise: Another process sees a runtime's memory as that runtime reports it.
 *
 * Threads: the main one, and those of the library.
 * Locks: none.
 * Processes: the observed programs, which are this one again, with an argument.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include "conformance.h"
#include "support/json.h"

static const char *own_path;

typedef struct program {
    pid_t pid;
    int in, out; /* its stdin and stdout */
} program;

/* Starts this program again, which opens a runtime, allocates, and waits until its stdin ends. */
static program start_program(void)
{
    int in[2], out[2];
    program p = {0};
    char *arguments[] = {(char *)(uintptr_t)own_path, (char *)(uintptr_t) "hold memory", NULL};
    posix_spawn_file_actions_t actions;
    CONF_TRUE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    CONF_EQUAL(posix_spawn(&p.pid, own_path, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    p.in = in[1];
    p.out = out[0];
    char ready = 0;
    CONF_EQUAL(read(p.out, &ready, 1), 1);
    CONF_EQUAL(ready, 'r');
    return p;
}

static void end_program(program *p, bool killed)
{
    int status = 0;
    if (killed) {
        CONF_EQUAL(kill(p->pid, SIGKILL), 0);
    }
    close(p->in);
    CONF_EQUAL(waitpid(p->pid, &status, 0), p->pid);
    CONF_TRUE(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(p->out);
}

static int hold_memory(void)
{
    hd_runtime *runtime = NULL;
    hd_buffer *held = NULL, *large = NULL;
    if (hd_open(NULL, &runtime) != HD_OK) {
        return 1;
    }
    hd_alloc_options named = {.size = sizeof named, .label = "held outside"};
    for (int i = 0; i < 12; i++) {
        if (hd_alloc_with(conf_default_lane(runtime, 0), 10000, &named, &held) != HD_OK) {
            return 1;
        }
    }
    if (hd_alloc(conf_default_lane(runtime, 0), 3 << 20, &large) != HD_OK) {
        return 1;
    }
    char c = 'r';
    bool ok = write(1, &c, 1) == 1;
    struct pollfd end = {.fd = 0, .events = POLLIN};
    while (poll(&end, 1, 20) == 0) {
        /* in placement inline, a thread publishes the figures when it allocates memory that no
         * magazine provides */
        hd_buffer *b = NULL;
        ok &= hd_memory_trim(runtime, 0, 0, NULL) == HD_OK;
        ok &= hd_alloc(conf_default_lane(runtime, 0), 2 << 20, &b) == HD_OK;
        hd_free(b);
    }
    hd_close(runtime);
    return ok ? 0 : 1;
}

/* Returns the place of the holder of the memory made above, in the list of the first program's
 * first device. -1: not listed yet. */
static int find_held(const char *json)
{
    int n = json_count_at(json, "programs.0.devices.0.holders");
    for (int i = 0; i < n; i++) {
        char path[96];
        snprintf(path, sizeof path, "programs.0.devices.0.holders.%d.label", i);
        bool here = json_text_is(json, path, "held outside");
        snprintf(path, sizeof path, "programs.0.devices.0.holders.%d.count", i);
        if (here && json_integer_at(json, path) == 12) {
            snprintf(path, sizeof path, "programs.0.devices.0.holders.%d.bytes", i);
            CONF_EQUAL(json_integer_at(json, path), 12 * 10000);
            return i;
        }
    }
    return -1;
}

/* Returns the report of a process, for the caller to free; NULL if there is none. */
static char *outside(int pid, hd_report_format format)
{
    size_t room = 0, needed = 0;
    char *text = NULL;
    hd_status status = hd_memory_report_of(pid, format, NULL, 0, &needed);
    while (status == HD_OK && needed > room) {
        room = needed + 4096;
        text = realloc(text, room);
        CONF_TRUE(text != NULL);
        status = hd_memory_report_of(pid, format, text, room, &needed);
    }
    if (status != HD_OK) {
        CONF_FAILS(status, HD_ERROR_NOT_FOUND);
        free(text);
        return NULL;
    }
    return text;
}

/* Counts the programs with the pid in a report of several. */
static int count_programs(const char *json, int pid)
{
    int found = 0;
    for (int i = 0; i < json_count_at(json, "programs"); i++) {
        char path[64];
        snprintf(path, sizeof path, "programs.%d.pid", i);
        found += json_integer_at(json, path) == pid;
    }
    return found;
}

static void another_process_is_seen(void **state)
{
    (void)state;
    program p = start_program();
    char *json = outside(p.pid, HD_REPORT_JSON);
    /* it publishes some times a second */
    while (json != NULL && find_held(json) < 0) {
        CONF_TRUE(json_is_document(json));
        free(json);
        conf_sleep_ms(20);
        json = outside(p.pid, HD_REPORT_JSON);
    }
    CONF_TRUE(json != NULL && json_is_document(json));
    CONF_EQUAL(json_count_at(json, "programs"), 1);
    CONF_EQUAL(json_integer_at(json, "programs.0.pid"), p.pid);
    int64_t live = json_integer_at(json, "programs.0.devices.0.live_bytes");
    CONF_TRUE(live == 12 * 10000 + (3 << 20) || live == 12 * 10000 + (5 << 20));
    free(json);
    char *text = outside(p.pid, HD_REPORT_TEXT);
    CONF_TRUE(text != NULL && strstr(text, "'held outside'") != NULL);
    free(text);

    json = outside(0, HD_REPORT_JSON);
    CONF_TRUE(json != NULL && json_is_document(json));
    CONF_EQUAL(count_programs(json, p.pid), 1);
    CONF_EQUAL(count_programs(json, getpid()), 0);
    free(json);
    end_program(&p, false);
    CONF_TRUE(outside(p.pid, HD_REPORT_JSON) == NULL);
}

static void a_killed_process_is_gone(void **state)
{
    (void)state;
    program p = start_program();
    char *json = outside(p.pid, HD_REPORT_JSON);
    CONF_TRUE(json != NULL);
    free(json);
    CONF_EQUAL(kill(p.pid, SIGKILL), 0);
    siginfo_t info;
    CONF_EQUAL(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
    /* it ended, but is still in the list of processes */
    CONF_TRUE(outside(p.pid, HD_REPORT_JSON) == NULL);
    end_program(&p, true);
    CONF_TRUE(outside(p.pid, HD_REPORT_JSON) == NULL);
    json = outside(0, HD_REPORT_JSON);
    CONF_TRUE(json != NULL && json_is_document(json) && count_programs(json, p.pid) == 0);
    free(json);
}

static void a_process_may_end_while_it_is_looked_at(void **state)
{
    (void)state;
    for (int i = 0; i < (CONF_SLOWNESS > 1 ? 2 : 6); i++) {
        program p = start_program();
        CONF_EQUAL(kill(p.pid, SIGKILL), 0);
        for (int k = 0; k < 20; k++) {
            free(outside(p.pid, k % 2 ? HD_REPORT_JSON : HD_REPORT_TEXT));
        }
        end_program(&p, true);
    }
}

static void every_runtime_of_a_process_is_seen(void **state)
{
    (void)state;
    hd_runtime *runtimes[3];
    for (int i = 0; i < 3; i++) {
        runtimes[i] = conf_open(NULL);
        char *json = outside(getpid(), HD_REPORT_JSON);
        CONF_TRUE(json != NULL && json_is_document(json));
        CONF_EQUAL(json_count_at(json, "programs"), i + 1);
        free(json);
    }
    for (int i = 0; i < 3; i++) {
        conf_close(runtimes[i]);
    }
    CONF_TRUE(outside(getpid(), HD_REPORT_JSON) == NULL);
}

/* A child of fork() inherits its parent's descriptors, but not its runtime. */
static void a_forked_child_is_not_the_parent(void **state)
{
    (void)state;
    int ends[2];
    hd_runtime *runtime = conf_open(NULL);
    CONF_EQUAL(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    CONF_TRUE(child >= 0);
    if (child == 0) {
        char c;
        close(ends[1]);
        _Exit(read(ends[0], &c, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    CONF_TRUE(outside(child, HD_REPORT_JSON) == NULL);
    char *json = outside(0, HD_REPORT_JSON);
    CONF_TRUE(json != NULL && count_programs(json, child) == 0 && count_programs(json, getpid()) == 1);
    free(json);
    close(ends[1]);
    int status = 0;
    CONF_EQUAL(waitpid(child, &status, 0), child);
    CONF_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    conf_close(runtime);
}

/* A reader skips anything that is no page. */
static void garbage_is_no_page(void **state)
{
    (void)state;
    int files[8];
    hd_runtime *runtime = conf_open(NULL);
    for (int i = 0; i < 8; i++) {
        char noise[5000];
        conf_pattern(noise, sizeof noise, (uint64_t)i + 1);
        files[i] = memfd_create("heddle-memory", MFD_CLOEXEC);
        CONF_TRUE(files[i] >= 0);
        for (int k = 0; k < i * 20; k++) {
            CONF_EQUAL(write(files[i], noise, sizeof noise), (ssize_t)sizeof noise);
        }
    }
    char *json = outside(getpid(), HD_REPORT_JSON);
    CONF_TRUE(json != NULL && json_is_document(json));
    CONF_EQUAL(json_count_at(json, "programs"), 1);
    free(json);
    conf_close(runtime);
    CONF_TRUE(outside(getpid(), HD_REPORT_JSON) == NULL);
    for (int i = 0; i < 8; i++) {
        close(files[i]);
    }
}

/* ---- the tool ---- */

/* Runs `heddle info --memory ...`; returns the output, for the caller to free. */
static char *run_tool(const char *tool, const char *pid, bool json, int *exit_status)
{
    char info[] = "info", memory[] = "--memory", number[32], format[] = "--json";
    char *arguments[6] = {(char *)(uintptr_t)tool, info, memory, NULL, NULL, NULL};
    int n = 3, status = 0, file = memfd_create("output", MFD_CLOEXEC);
    snprintf(number, sizeof number, "%s", pid);
    if (pid[0]) {
        arguments[n++] = number;
    }
    if (json) {
        arguments[n++] = format;
    }
    pid_t child = 0;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file, 1);
    posix_spawn_file_actions_adddup2(&actions, file, 2);
    CONF_EQUAL(posix_spawn(&child, tool, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    CONF_EQUAL(waitpid(child, &status, 0), child);
    CONF_TRUE(WIFEXITED(status));
    *exit_status = WEXITSTATUS(status);
    off_t size = lseek(file, 0, SEEK_END);
    char *text = conf_memory((size_t)size + 1);
    CONF_EQUAL(pread(file, text, (size_t)size, 0), size);
    text[size] = '\0';
    close(file);
    return text;
}

static void the_tool_shows_a_running_program(void **state)
{
    (void)state;
    const char *tool = getenv("HEDDLE_TOOL");
    if (tool == NULL || tool[0] == '\0') {
        skip();
    }
    program p = start_program();
    char pid[32];
    int status = -1;
    snprintf(pid, sizeof pid, "%d", (int)p.pid);
    char *json = NULL;
    do {
        free(json);
        json = run_tool(tool, pid, true, &status);
        CONF_EQUAL(status, 0);
        CONF_TRUE(json_is_document(json));
    } while (find_held(json) < 0);
    free(json);
    char *text = run_tool(tool, pid, false, &status);
    CONF_TRUE(status == 0 && strstr(text, pid) != NULL && strstr(text, "'held outside'") != NULL);
    free(text);
    text = run_tool(tool, "", false, &status);
    CONF_TRUE(status == 0 && strstr(text, "'held outside'") != NULL);
    free(text);
    end_program(&p, true);
    text = run_tool(tool, pid, false, &status);
    CONF_TRUE(status == 1 && strstr(text, "there is no process") != NULL);
    free(text);
    json = run_tool(tool, "", true, &status);
    CONF_TRUE(status == 0 && json_is_document(json) && count_programs(json, p.pid) == 0);
    free(json);
    text = run_tool(tool, "12x", false, &status);
    CONF_TRUE(status == 2 && strstr(text, "12x") != NULL);
    free(text);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "hold memory") == 0) {
        return hold_memory();
    }
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    own_path = path;
    conf_begin("test_memory_outside");
    const struct CMUnitTest tests[] = {
        CONF_CASE(another_process_is_seen),
        CONF_CASE(a_killed_process_is_gone),
        CONF_CASE(a_process_may_end_while_it_is_looked_at),
        CONF_CASE(every_runtime_of_a_process_is_seen),
        CONF_CASE(a_forked_child_is_not_the_parent),
        CONF_CASE(garbage_is_no_page),
        CONF_CASE(the_tool_shows_a_running_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
