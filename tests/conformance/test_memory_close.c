/* test_memory_close.c - the option stats: the report on memory at hd_close, its destination, and no
 * output otherwise.
 *
 * Promise: With the option stats hd_close writes a report to the place named, else nothing.
 *
 * Threads: the main one, and those of the library.
 * Locks: none.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include "conformance.h"
#include "support/json.h"

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    size_t room = 1 << 20;
    char *text = conf_memory(room);
    size_t n = fread(text, 1, room - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

/* Opens with settings, allocates, closes; returns the output on stdout and stderr, for the caller
 * to free. *message: as hd_close left it. */
static char *printed_by(const char *settings, char message[512])
{
    int saved[2] = {dup(1), dup(2)}, file = memfd_create("printed", MFD_CLOEXEC);
    CONF_TRUE(saved[0] >= 0 && saved[1] >= 0 && file >= 0);
    fflush(stdout);
    fflush(stderr);
    dup2(file, 1);
    dup2(file, 2);
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof options, .settings = settings};
    hd_status status = hd_open(&options, &runtime);
    hd_buffer *b[12] = {NULL};
    if (status == HD_OK) {
        for (int i = 0; i < 12; i++) {
            hd_alloc(conf_default_lane(runtime, 0), 5000, &b[i]);
            hd_buffer_set_label(b[i], "left");
        }
        hd_close(runtime);
    }
    snprintf(message, 512, "%s", hd_message());
    fflush(stdout);
    fflush(stderr);
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    close(saved[0]);
    close(saved[1]);
    CONF_EQUAL(status, HD_OK);
    off_t size = lseek(file, 0, SEEK_END);
    char *text = conf_memory((size_t)size + 1);
    CONF_EQUAL(pread(file, text, (size_t)size, 0), size);
    text[size] = '\0';
    close(file);
    return text;
}

/* Sets a message that hd_close leaves alone if it reports nothing. */
static void leave_message(void)
{
    CONF_FAILS(hd_memory_report(NULL, HD_REPORT_TEXT, NULL, 0, NULL), HD_ERROR_HANDLE);
}

static void nothing_is_printed_unless_asked_for(void **state)
{
    (void)state;
    char message[512];
    leave_message();
    char *text = printed_by("stats=0", message);
    CONF_TRUE(text[0] == '\0');
    CONF_TRUE(strstr(message, "hd_memory_report") != NULL);
    free(text);
    text = printed_by("stats=0 memory_debug=on", message);
    CONF_TRUE(text[0] == '\0');
    CONF_TRUE(strstr(message, "12 buffers of 58.5 KiB") != NULL);
    free(text);
    text = printed_by("stats=0 memory_debug=report", message);
    CONF_TRUE(strstr(text, "heddle: memory_debug: hd_close: 12 buffers of 58.5 KiB were not freed: 'left', ") == text);
    CONF_TRUE(strstr(text, "\nheddle: memory_debug: until hd_close: 12 buffers of 58.5 KiB not freed\n") != NULL);
    free(text);
}

static void the_report_goes_to_stderr(void **state)
{
    (void)state;
    char message[512];
    leave_message();
    char *text = printed_by("stats=1", message);
    CONF_TRUE(strncmp(text, "memory ", 7) == 0 && strstr(text, "'left'") != NULL && strstr(text, "device 0") != NULL);
    CONF_TRUE(strstr(text, "leaks") == NULL);
    CONF_TRUE(strstr(message, "hd_memory_report") != NULL); /* nothing went wrong */
    free(text);
}

static void the_report_is_appended_to_a_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/heddle-test-XXXXXX", path[64], settings[128], message[512];
    CONF_TRUE(mkdtemp(folder) != NULL);
    for (int json = 0; json < 2; json++) {
        snprintf(path, sizeof path, "%s/report.%s", folder, json ? "json" : "txt");
        snprintf(settings, sizeof settings, "stats=%s", path);
        for (int i = 0; i < 2; i++) {
            char *printed = printed_by(settings, message);
            CONF_TRUE(printed[0] == '\0');
            free(printed);
        }
        char *text = read_text(path);
        CONF_TRUE(text != NULL);
        if (json) {
            char *second = strchr(text, '\n');
            CONF_TRUE(second != NULL);
            *second++ = '\0';
            char *end = strchr(second, '\n');
            CONF_TRUE(end != NULL && end[1] == '\0');
            CONF_TRUE(json_is_document(text) && json_is_document(second));
            CONF_EQUAL(json_integer_at(second, "devices.0.live_bytes"), 60000);
            CONF_TRUE(json_text_is(second, "devices.0.holders.0.label", "left"));
        } else {
            char *second = strstr(text + 1, "\nmemory ");
            CONF_TRUE(second != NULL && strstr(second, "'left'") != NULL);
        }
        free(text);
        CONF_EQUAL(unlink(path), 0);
    }
    CONF_EQUAL(rmdir(folder), 0);
}

static void a_file_that_cannot_be_written_is_said(void **state)
{
    (void)state;
    char folder[] = "/tmp/heddle-test-XXXXXX", path[64], settings[128], message[512];
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/pipe", folder);
    CONF_EQUAL(mkfifo(path, 0600), 0); /* no process reads it */
    const char *const bad[] = {folder, "/nowhere/at/all.json", path, "/dev/full"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(settings, sizeof settings, "stats=%s close_timeout=2000", bad[i]);
        leave_message();
        char *text = printed_by(settings, message);
        CONF_TRUE(text[0] == '\0');
        CONF_TRUE(strstr(message, "was not written") != NULL && strstr(message, bad[i]) != NULL);
        free(text);
    }
    CONF_EQUAL(unlink(path), 0);
    CONF_EQUAL(rmdir(folder), 0);
}

static void a_broken_pipe_is_survived(void **state)
{
    (void)state;
    int ends[2], saved = dup(2);
    CONF_TRUE(saved >= 0 && pipe2(ends, O_CLOEXEC) == 0);
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    hd_runtime *runtime = conf_open("stats=1");
    leave_message();
    dup2(ends[1], 2);
    conf_close(runtime);
    dup2(saved, 2);
    close(ends[1]);
    close(saved);
    CONF_TRUE(strstr(hd_message(), "was not written") != NULL);
}

int main(void)
{
    conf_begin("test_memory_close");
    const struct CMUnitTest tests[] = {
        CONF_CASE(nothing_is_printed_unless_asked_for), CONF_CASE(the_report_goes_to_stderr),
        CONF_CASE(the_report_is_appended_to_a_file),    CONF_CASE(a_file_that_cannot_be_written_is_said),
        CONF_CASE(a_broken_pipe_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
