/* test_descriptors.c - programs that closed some of the standard descriptors, as services do.
 *
 * Promise: The library never uses descriptors 0 to 2, and all output goes to the right one.
 *
 * Output of the program and of kernels goes nowhere else. Each case starts this program again with
 * some of the three closed and the others on files. A thread of that program watches the three all
 * the time. A path that nobody can read or write may occupy a closed one for a moment.
 *
 * Threads: the main one; in the started program also the one that watches, and one that opens files
 * of its own.
 * Locks: none. The threads share only atomic data.
 */
#include "conformance.h"
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>

enum { LAUNCHES = 40, BLOCK = 8, LINES = 400, BYTES = 1 << 20, OPENS = 1 };

static const char kernel_source[] = "#include <heddle/kernel.h>\n"
                                    "#include <stdio.h>\n"
                                    "HD_KERNEL(say, HD_INOUT(uint32_t, y))\n"
                                    "{\n"
                                    "    printf(\"kernel\\n\");\n"
                                    "    y[hd_thread_x()] += 1;\n"
                                    "}\n";

/* ---- the started program ---- */

static FILE *report;
static atomic_bool over;
static char was[3][256]; /* the three paths; "": closed */
static _Atomic(const char *) met;

#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(report, "line %d: %s: %s\n", __LINE__, #condition, hd_message());                                  \
            fflush(report);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void look_at(int number, char out[256])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    ssize_t n = readlink(path, out, 255);
    out[n > 0 ? n : 0] = 0;
}

static void *look(void *unused)
{
    (void)unused;
    static char bad[300];
    while (!atomic_load(&over)) {
        for (int n = 0; n < 3; n++) {
            char now[256];
            look_at(n, now);
            bool occupied = was[n][0] == 0 && strcmp(now, "/") == 0;
            bool of_driver = was[n][0] == 0 && strncmp(now, "/dev/nvidia", 11) == 0;
            /* malloc reads it at times */
            bool of_malloc = was[n][0] == 0 && strcmp(now, "/sys/devices/system/cpu/online") == 0;
            if (strcmp(now, was[n]) != 0 && !occupied && !of_driver && !of_malloc && atomic_load(&met) == NULL) {
                snprintf(bad, sizeof bad, "descriptor %d is %s", n, now);
                atomic_store(&met, bad);
            }
        }
        sched_yield();
    }
    return NULL;
}

/* Prints whole lines in front of the kernels' output that is still buffered: each line is one
 * write. */
static void print_lines(void)
{
    for (int i = 0; i < LINES; i++) {
        (void)!write(STDOUT_FILENO, "program\n", 8);
        (void)!write(STDERR_FILENO, "complaint\n", 10);
    }
}

static void work_once(hd_runtime *runtime, const char *image)
{
    static uint8_t content[BYTES];
    uint32_t counts[BLOCK];
    hd_lane *lane = NULL;
    hd_buffer *far = NULL, *pinned = NULL, *counted = NULL;
    hd_module *module = NULL;
    hd_kernel *say = NULL;
    void *mapped = NULL;
    NEED(hd_lane_get_default(runtime, hd_device_count(runtime) - 1, &lane) == HD_OK);
    NEED(hd_alloc(lane, BYTES, &far) == HD_OK && hd_alloc_host(runtime, BYTES, &pinned) == HD_OK);
    NEED(hd_alloc(lane, sizeof counts, &counted) == HD_OK && hd_fill(counted, 0, 0, sizeof counts, NULL) == HD_OK);
    NEED(hd_fill(far, 0, 0, BYTES, NULL) == HD_OK && hd_fill(pinned, 0, 0, BYTES, NULL) == HD_OK);
    NEED(hd_map(pinned, HD_READ, &mapped) == HD_OK);
    print_lines();
    if (image[0] != 0) {
        NEED(hd_module_load_file(runtime, image, &module) == HD_OK && hd_kernel_get(module, "say", &say) == HD_OK);
        hd_arg argument = hd_inout(counted);
        for (int i = 0; i < LAUNCHES; i++) {
            NEED(hd_launch(lane, say, conf_dims(1, 1, 1), conf_dims(BLOCK, 1, 1), 0, &argument, 1, NULL) == HD_OK);
        }
        NEED(hd_read(counted, 0, counts, sizeof counts) == HD_OK);
        for (int i = 0; i < BLOCK; i++) {
            NEED(counts[i] == LAUNCHES);
        }
    }
    if (hd_device_count(runtime) > 1) {
        hd_peer_info info = {.size = sizeof info};
        NEED(hd_peer_check(runtime, 0, 1, &info) == HD_OK); /* starts a program */
    }
    memset(content, 0xee, BYTES);
    NEED(hd_read(far, 0, content, BYTES) == HD_OK);
    for (size_t i = 0; i < BYTES; i++) {
        NEED(content[i] == 0 && ((uint8_t *)mapped)[i] == 0);
    }
}

static int be_started(int closed, const char *where, const char *image)
{
    char path[128], settings[256];
    snprintf(path, sizeof path, "%s/report", where);
    int high = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), raised = fcntl(high, F_DUPFD_CLOEXEC, 3);
    report = raised >= 0 ? fdopen(raised, "a") : NULL;
    if (report == NULL || close(high) != 0) {
        return 3;
    }
    for (int n = 0; n < 3; n++) {
        look_at(n, was[n]);
        NEED((was[n][0] == 0) == ((closed >> n & 1) != 0));
    }
    conf_watch("a program without standard descriptors", 120);
    pthread_t looks;
    NEED(pthread_create(&looks, NULL, look, NULL) == 0);
    for (int i = 0; i < OPENS; i++) {
        snprintf(settings, sizeof settings, "host_devices=2 stats=1 trace=%s/trace%d cache=none", where, i);
        hd_runtime *runtime = NULL;
        hd_options options = {.size = sizeof options, .settings = settings};
        NEED(hd_open(&options, &runtime) == HD_OK);
        work_once(runtime, image);
        hd_status status = hd_close(runtime); /* SYSTEM: the report of `stats` cannot be written */
        NEED(status == HD_OK || (status == HD_ERROR_SYSTEM && was[2][0] == 0));
    }
    atomic_store(&over, true);
    pthread_join(looks, NULL);
    if (atomic_load(&met) != NULL) {
        fprintf(report, "%s\n", atomic_load(&met));
    }
    fclose(report);
    return atomic_load(&met) != NULL;
}

/* ---- the cases ---- */

static char folder[] = "/tmp/heddle-test-XXXXXX", kernels[64];

static void file_of(int number, char out[64])
{
    snprintf(out, 64, "%s/%d", folder, number);
}

/* Counts the lines of the file that equal `line`; all lines if it is NULL. */
static int lines_of(const char *path, const char *line)
{
    char text[1024];
    int n = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(text, sizeof text, file) != NULL) {
        n += line == NULL || strcmp(text, line) == 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

static void say_report(int closed)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "%s/report", folder);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(text, sizeof text, file) != NULL) {
        fprintf(stderr, "closed %d: %s", closed, text);
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int start_with(int closed)
{
    char program[] = "/proc/self/exe", option[] = "--closed", bits[12], path[64];
    char *arguments[] = {program, option, bits, folder, kernels, NULL};
    snprintf(bits, sizeof bits, "%d", closed);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int n = 0; n < 3; n++) {
        file_of(n, path);
        unlink(path);
        if (closed >> n & 1) {
            posix_spawn_file_actions_addclose(&actions, n);
        } else {
            posix_spawn_file_actions_addopen(&actions, n, path, O_RDWR | O_CREAT | O_APPEND, 0600);
        }
    }
    pid_t child = 0;
    int status = -1;
    CONF_EQUAL(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    CONF_TRUE(waitpid(child, &status, 0) == child);
    return status;
}

static void any_of_the_standard_descriptors_may_be_closed(void **state)
{
    (void)state;
    bool host = !conf_on_gpus, prints = kernels[0] != 0;
    for (int closed = 0; closed < 8; closed++) {
        char path[64];
        int status = start_with(closed);
        say_report(closed);
        CONF_EQUAL(status, 0);
        file_of(0, path);
        CONF_EQUAL(lines_of(path, NULL), 0);
        file_of(1, path);
        bool has_output = !(closed & 2);
        CONF_EQUAL(lines_of(path, "program\n"), has_output ? OPENS * LINES : 0);
        if (host) {
            CONF_EQUAL(lines_of(path, "kernel\n"), has_output && prints ? OPENS * LAUNCHES * BLOCK : 0);
            CONF_EQUAL(lines_of(path, NULL), has_output ? OPENS * (LINES + (prints ? LAUNCHES * BLOCK : 0)) : 0);
        }
        file_of(2, path);
        CONF_EQUAL(lines_of(path, "complaint\n"), closed & 4 ? 0 : OPENS * LINES);
        CONF_EQUAL(lines_of(path, "kernel\n") + lines_of(path, "program\n"), 0);
    }
}

static void clear(void)
{
    static const char *const names[] = {"0", "1", "2", "report", "trace0", "trace1", "say.hdk"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_kernels(void)
{
    size_t bytes = 0;
    uint8_t *image = conf_kernel_file(kernel_source, &bytes);
    if (image != NULL) {
        snprintf(kernels, sizeof kernels, "%s/say.hdk", folder);
        FILE *file = fopen(kernels, "we");
        CONF_TRUE(file != NULL && fwrite(image, 1, bytes, file) == bytes && fclose(file) == 0);
        free(image);
    }
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--closed") == 0) {
        return be_started(atoi(argv[2]), argv[3], argv[4]);
    }
    conf_begin("test_descriptors");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    make_kernels();
    const struct CMUnitTest tests[] = {
        CONF_CASE(any_of_the_standard_descriptors_may_be_closed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear();
    return failed;
}
