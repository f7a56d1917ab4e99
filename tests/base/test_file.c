/* test_file.c - replacing whole files: content, mode, failures, remains of a kill, and their
 * removal.
 *
 * Promise: A replaced file is always whole: the old content or the new, also after a kill.
 * Threads: one, and a child process that is killed.
 */
#include "support/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/heddle-file-XXXXXX");
    char *made = mkdtemp(folder);
    snprintf(path, sizeof path, "%s/a file", folder);
    return made != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return rmdir(folder);
}

static int count_files(void)
{
    DIR *d = opendir(folder);
    int n = -2;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static bool holds(const char *text)
{
    char got[64] = "";
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, got, sizeof got - 1);
    close(fd);
    return n == (ssize_t)strlen(text) && memcmp(got, text, (size_t)n) == 0;
}

static void content_and_mode_are_replaced(void **state)
{
    (void)state;
    struct stat facts;
    mode_t before = umask(0077);
    assert_true(hdi_file_replace(path, "first", 5, 0644));
    assert_true(holds("first"));
    assert_true(hdi_file_replace(path, "", 0, 0600));
    assert_true(holds(""));
    assert_true(hdi_file_replace(path, "second", 6, 0640));
    assert_true(holds("second"));
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0640);
    assert_int_equal(count_files(), 1);
    umask(before);

    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    assert_true(hdi_file_replace("a file", "third", 5, 0600));
    assert_true(holds("third"));
    assert_int_equal(chdir(here), 0);
    assert_int_equal(count_files(), 1);
}

static void a_failure_changes_nothing(void **state)
{
    (void)state;
    assert_true(hdi_file_replace(path, "before", 6, 0600));
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool replaced = hdi_file_replace(path, "behind", 6, 0600);
    int code = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(replaced);
    assert_int_equal(code, EFBIG);
    assert_true(holds("before"));
    assert_int_equal(count_files(), 1);

    assert_false(hdi_file_replace("/nonexistent/folder/file", "x", 1, 0600));
    assert_int_equal(errno, ENOENT);
    assert_false(hdi_file_replace(folder, "x", 1, 0600)); /* a folder */
    assert_int_equal(count_files(), 1);
}

/* Kills a program while it writes a large file. Afterwards the folder contains the old file or the
 * new one, and nothing else. */
static void a_kill_leaves_nothing(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    int tmpfile = open(folder, O_TMPFILE | O_WRONLY, 0600);
    if (tmpfile < 0) {
        skip(); /* the file system does not support O_TMPFILE */
    }
    close(tmpfile);
    char *large = malloc(BYTES);
    memset(large, 'x', BYTES);
    assert_true(hdi_file_replace(path, "before", 6, 0600));
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {BYTES / 2, BYTES};
        setrlimit(RLIMIT_FSIZE, &limit); /* so that no write of the child completes */
        ssize_t n = write(ready[1], "", 1);
        for (; n == 1;) {
            hdi_file_replace(path, large, BYTES, 0600);
        }
        _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct stat facts;
    char of_child[64];
    snprintf(of_child, sizeof of_child, "/proc/%d/io", (int)child);
    for (bool writing = false; !writing;) { /* until it has written a quarter */
        char text[512] = "";
        int fd = open(of_child, O_RDONLY);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        close(fd);
        const char *at = n > 0 ? strstr(text, "wchar: ") : NULL;
        /* without /proc/PID/io, any moment will do */
        writing = n <= 0 || (at != NULL && atoll(at + 7) > BYTES / 4);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(count_files(), 1);
    assert_true(holds("before"));
    assert_int_equal(stat(path, &facts), 0);
    free(large);
}

static void put(const char *name, bool is_old)
{
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    char at[200];
    snprintf(at, sizeof at, "%s/%s", folder, name);
    int fd = open(at, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_true(!is_old || utimensat(AT_FDCWD, at, long_ago, 0) == 0);
}

static void what_was_left_is_swept_away(void **state)
{
    (void)state;
    put("a file", true);
    put(".a file.abcdef", true);
    put(".a file.012345", true);
    put(".a file.fedcba", false); /* recent: another program may still write it */
    put(".a file.abcdefg", true);
    put(".a filelabcdef", true);
    put(".another.abcdef", true);
    put("a file.abcdef", true);
    assert_int_equal(count_files(), 8);
    hdi_file_sweep(path);
    assert_int_equal(count_files(), 6);
    char at[200];
    snprintf(at, sizeof at, "%s/.a file.fedcba", folder);
    assert_int_equal(access(at, F_OK), 0);
    hdi_file_sweep("/nonexistent/file");
}

static void a_path_that_is_too_long_is_left_alone(void **state)
{
    (void)state;
    char longest[PATH_MAX + 8];
    memset(longest, '/', sizeof longest);
    longest[sizeof longest - 1] = 0;
    errno = 0;
    assert_false(hdi_file_replace(longest, "", 0, 0600));
    assert_int_equal(errno, ENAMETOOLONG);
    hdi_file_sweep(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content_and_mode_are_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_kill_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_left_is_swept_away, set_up, tear_down),
        cmocka_unit_test(a_path_that_is_too_long_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
