/* test_option_names.c - unknown option names in settings and in the environment: the report, and
 * that it comes once.
 *
 * Promise: A name that is no option is reported once, with the option that it resembles.
 *
 * Threads: the main one. Locks: none.
 */
#include "support/check.h"

#include <fcntl.h>
#include <heddle.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/options.h"

static void settings_say_what_was_meant(void **unused)
{
    (void)unused;
    static const struct {
        const char *settings, *message;
    } bad[] = {
        {"plcement=thread", "there is no option \"plcement\"; did you mean \"placement\"?"},
        {"Placement=thread", "did you mean \"placement\"?"},
        {"memory-limit=1G", "did you mean \"memory_limit\"?"},
        {"HEDDLE_PLACEMENT=inline", "in settings it is called \"placement\""},
        {"heddle_host_devices=2", "in settings it is called \"host_devices\""},
        {"HEDDLE_XYZZY=1", "no option \"HEDDLE_XYZZY\"; `heddle info` and hd_option_get_info list all"},
        {"xyzzy=1", "no option \"xyzzy\"; `heddle info` and hd_option_get_info list all"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hdi_options o;
        assert_status(hdi_options_parse_settings(bad[i].settings, &o), HD_ERROR_OPTION);
        assert_message_has(bad[i].message);
    }
}

static const char *line_of(char **environment)
{
    static char line[1024];
    memset(line, 'x', sizeof line);
    size_t length = hdi_option_unknown_variables(environment, line, sizeof line);
    assert_true(length < sizeof line);
    assert_true(length == 0 || line[length - 1] == '\n');
    line[length] = '\0';
    return line;
}

static void variables_that_are_options_are_not_mentioned(void **unused)
{
    (void)unused;
    char *fine[400] = {"PATH=/bin",
                       "heddle=1",
                       "HEDDLE=1",
                       "XHEDDLE_LIMT=1",
                       "HEDDLE_MEMORY_LIMT=",
                       "HEDDLE_MEMORY_LIMT",
                       "HEDDLE_TEST_ANYTHING=1",
                       "HEDDLE_INCLUDE_DIR=/x",
                       "HEDDLE_TOOL=/x",
                       "HEDDLE_SEED=1"};
    static char variables[64][80];
    int n = 10;
    for (int i = 0; hdi_option_row_at(i) != NULL; i++, n++) {
        snprintf(variables[i], sizeof variables[i], "%s=1", hdi_option_row_at(i)->environment);
        fine[n] = variables[i];
    }
    assert_string_equal(line_of(fine), "");
    assert_string_equal(line_of(NULL), "");
}

static void variables_that_are_none_are_one_line(void **unused)
{
    (void)unused;
    char *one[] = {"A=1", "HEDDLE_MEMORY_LIMT=1G", NULL};
    assert_string_equal(line_of(one),
                        "heddle: there is no option HEDDLE_MEMORY_LIMT (did you mean HEDDLE_MEMORY_LIMIT?): "
                        "ignored. HEDDLE_ENVIRONMENT_CHECK=off hides this line.\n");
    char *more[] = {"HEDDLE_DRIVRE=host", "HEDDLE_DRIVER=host", "HEDDLE_XYZZY=1", "HEDDLE_a b\n\033[1m=2", NULL};
    assert_string_equal(line_of(more), "heddle: there is no option HEDDLE_DRIVRE (did you mean HEDDLE_DRIVER?), "
                                       "HEDDLE_XYZZY: ignored. HEDDLE_ENVIRONMENT_CHECK=off hides this line.\n");
    char *many[101] = {0};
    for (int i = 0; i < 100; i++) {
        many[i] = "HEDDLE_MEMORY_LIMT=1G";
    }
    const char *line = line_of(many);
    assert_non_null(strstr(line, " more: ignored. HEDDLE_ENVIRONMENT_CHECK=off"));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

/* Returns the text that two calls of hd_open print on stderr, in a process of their own. */
static const char *said(const char *settings)
{
    static char text[4096];
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        hd_options options = {.size = sizeof options, .settings = settings};
        dup2(ends[1], STDERR_FILENO);
        for (int i = 0; i < 2; i++) {
            hd_runtime *runtime = NULL;
            if (hd_open(&options, &runtime) != HD_OK) {
                _exit(1);
            }
            hd_close(runtime);
        }
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)n;
    }
    text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return text;
}

static void a_process_is_told_once(void **unused)
{
    (void)unused;
    const char *quiet = "driver=host host_devices=1 placement=inline environment_check=off";
    const char *open = "driver=host host_devices=1 placement=inline";
    assert_string_equal(said(open), "");
    setenv("HEDDLE_HOST_DEVISES", "2", 1);
    const char *text = said(open);
    assert_non_null(strstr(text, "no option HEDDLE_HOST_DEVISES (did you mean HEDDLE_HOST_DEVICES?)"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_string_equal(said(quiet), "");
    setenv("HEDDLE_ENVIRONMENT_CHECK", "off", 1);
    assert_string_equal(said(open), "");
    unsetenv("HEDDLE_ENVIRONMENT_CHECK");
    unsetenv("HEDDLE_HOST_DEVISES");
}

/* A stderr pipe that nobody reads, or that is full, does no harm to the program. */
static void nobody_has_to_listen(void **unused)
{
    (void)unused;
    setenv("HEDDLE_HOST_DEVISES", "2", 1);
    for (int full = 0; full < 2; full++) {
        int ends[2], status = 0;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            hd_options options = {.size = sizeof options, .settings = "driver=host host_devices=1 placement=inline"};
            hd_runtime *runtime = NULL;
            static char block[65536];
            fcntl(ends[1], F_SETFL, O_NONBLOCK);
            while (full && write(ends[1], block, sizeof block) > 0) {
            }
            fcntl(ends[1], F_SETFL, 0);
            if (!full) {
                close(ends[0]);
            }
            dup2(ends[1], STDERR_FILENO);
            _exit(hd_open(&options, &runtime) != HD_OK);
        }
        if (!full) {
            close(ends[0]);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        close(ends[1]);
        if (full) {
            close(ends[0]);
        }
    }
    unsetenv("HEDDLE_HOST_DEVISES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_say_what_was_meant),
        cmocka_unit_test(variables_that_are_options_are_not_mentioned),
        cmocka_unit_test(variables_that_are_none_are_one_line),
        cmocka_unit_test(a_process_is_told_once),
        cmocka_unit_test(nobody_has_to_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
