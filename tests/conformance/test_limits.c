/* test_limits.c - programs under a limit of file size (ulimit -f), which covers memory files, too.
 *
 * Promise: Under a limit of file size the runtime works or fails with a message, without a signal.
 *
 * If the runtime meets the limit, it works, or fails with a status and a message that names the
 * limit. No signal ends the program.
 *
 * Threads: the main one.
 * Locks: none.
 * Processes: each limit gets its own process, this program again, since the runtime's files stay
 * until a process ends.
 */
#include "conformance.h"

#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { REFUSED = 10, WORKS = 11, STOPPED_LATER = 12 };

static int failed_with(hd_status status, const char *what)
{
    bool expected = status == HD_ERROR_SYSTEM || status == HD_ERROR_MEMORY || status == HD_ERROR_HOST_MEMORY ||
                    status == HD_ERROR_IMAGE || status == HD_ERROR_DRIVER;
    if (!expected) {
        fprintf(stderr, "%s: %s: %s\n", what, hd_status_name(status), hd_message());
    }
    return expected ? STOPPED_LATER : 1;
}

/* Uses everything that needs files: rings, device memory mapped now, pinned memory, code, the
 * report at the end. */
static int work(hd_runtime *runtime)
{
    enum { BYTES = 6 << 20 };
    hd_buffer *device, *pinned;
    hd_module *module;
    hd_kernel *kernel;
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint32_t *words = malloc(BYTES);
    hd_status status = lane && words ? HD_OK : HD_ERROR_HOST_MEMORY;
    status = status ? status : hd_alloc(lane, BYTES, &device);
    status = status ? status : hd_alloc_host(runtime, BYTES, &pinned);
    status = status ? status : hd_module_get_builtin(runtime, &module);
    status = status ? status : hd_kernel_get(module, "hd_fill_u32", &kernel);
    if (status == HD_OK) {
        const hd_arg args[] = {hd_out(device), hd_u64(BYTES / 4), hd_u32(77)};
        status = hd_launch(lane, kernel, (hd_dims){BYTES / 4 / 256, 1, 1}, (hd_dims){256, 1, 1}, 0, args, 3, NULL);
    }
    status = status ? status : hd_copy(pinned, 0, device, 0, BYTES, NULL);
    status = status ? status : hd_read(pinned, 0, words, BYTES);
    int result = status ? failed_with(status, "work") : WORKS;
    if (!status && (words[0] != 77 || words[BYTES / 4 - 1] != 77)) {
        fprintf(stderr, "the result is wrong\n");
        result = 1;
    }
    free(words);
    return result;
}

static int with_limit(const char *bytes)
{
    struct rlimit limit;
    conf_watch("a program with a limit on files", 60);
    CONF_EQUAL(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = (rlim_t)strtoull(bytes, NULL, 10);
    CONF_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    hd_runtime *runtime = NULL;
    hd_status status = hd_open(NULL, &runtime);
    if (status != HD_OK) {
        bool named = strstr(hd_message(), "ulimit -f") != NULL;
        if (!named) {
            fprintf(stderr, "hd_open: %s\n", hd_message());
        }
        return status == HD_ERROR_SYSTEM && named ? REFUSED : 1;
    }
    int result = work(runtime);
    hd_close(runtime);
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) ? 2 : result;
}

static void limits_on_files_are_failures(void **state)
{
    (void)state;
    static const char *const limits[] = {"0", "4096", "1000000", "50000000", "120000000", "3000000000"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char program[] = "/proc/self/exe", option[] = "--limit", bytes[24];
        snprintf(bytes, sizeof bytes, "%s", limits[i]);
        char *arguments[] = {program, option, bytes, NULL};
        pid_t child = 0;
        int status = -1;
        CONF_EQUAL(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
        CONF_TRUE(waitpid(child, &status, 0) == child);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (code != REFUSED && code != WORKS && code != STOPPED_LATER) {
            conf_fail_at(__FILE__, __LINE__, "a program whose files may have %s bytes ends with status %x", limits[i],
                         status);
        }
        CONF_TRUE(i > 0 || code == REFUSED);
        CONF_TRUE(i + 1 < sizeof limits / sizeof *limits || code == WORKS);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--limit") == 0) {
        conf_failure_ends_program = true;
        return with_limit(argv[2]);
    }
    conf_begin("test_limits");
    const struct CMUnitTest tests[] = {
        CONF_CASE(limits_on_files_are_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
