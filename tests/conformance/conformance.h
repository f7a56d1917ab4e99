/* conformance.h - what the conformance programs share: checks, opening a runtime, data patterns, and work that takes
 * long.
 *
 * The programs use the public API only and run on every provider and placement, which they take from the environment:
 *     HEDDLE_DRIVER=host HEDDLE_PLACEMENT=thread ./test_order
 *     HEDDLE_DRIVER=nvidia HEDDLE_PLACEMENT=inline ./test_order         on a machine with GPUs, one or more
 *     HEDDLE_DRIVER=host HEDDLE_PLACEMENT=process HEDDLE_WORKER=.../heddle-worker ./test_order
 * or all of them with ctest under the same environment. A program exits with 77 (skipped) where the driver or a device
 * is missing; cases that need two devices are skipped where there is one. Other variables:
 *     HEDDLE_TEST_FILTER=PATTERN    only the cases whose name matches ("*" and "?")
 *     HEDDLE_TEST_FAULTS=1          on nvidia, also the cases that make a GPU fault for good (on host devices and with
 *                                   workers: always)
 *     HEDDLE_TOOL=PATH              the `heddle` tool, to make kernel files; without it those cases are skipped
 *     HEDDLE_GRAPHS=N HEDDLE_SEED=N number and seed of the random work graphs
 *     HEDDLE_ONLY_GRAPH=N           only the graph of that number, as a failure printed it
 *     HEDDLE_STRESS_SECONDS=N       how long the threads of the stress test work
 *     HEDDLE_TEST_ABORT=1           the watchdog aborts, for a core or a debugger
 *     HEDDLE_SWEEP_SECONDS=N        time for the sweep of failing driver calls; calls are left out to keep to it
 *     HEDDLE_FAULT_ROUNDS=N         how often in a row a device is lost and brought back
 *
 * Threads: the checks work in every thread; in the main thread a failed check ends the case, in another the program.
 * Locks: none.
 * Always: no check looks at how long something took, only at what was finished before what; a case that hangs is ended
 * by a watchdog, which says which one it was.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <heddle.h>

#if defined(__SANITIZE_THREAD__)
#define CONF_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CONF_TSAN 1
#endif
#endif
#ifndef CONF_TSAN
#define CONF_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define CONF_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONF_ASAN 1
#endif
#endif
#ifndef CONF_ASAN
#define CONF_ASAN 0
#endif

#define CONF_SLOWNESS (CONF_TSAN ? 10 : CONF_ASAN ? 4 : 1) /* how much slower than without sanitizers, about */
#define CONF_SECOND INT64_C(1000000000)
#define CONF_MILLISECOND INT64_C(1000000)
#define CONF_UNUSED __attribute__((unused))

/* ------------------------------------------------------------------------------------------------------- checks -- */

static inline bool conf_on_main(void)
{
    return (long)getpid() == syscall(SYS_gettid);
}

/* Set where a failed check must end the program, because locks or threads would be left behind. */
CONF_UNUSED static bool conf_failure_ends_program;

CONF_UNUSED __attribute__((format(printf, 3, 4))) static void conf_fail_at(const char *file, int line,
                                                                           const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (conf_on_main() && !conf_failure_ends_program) {
        print_error("%s\n", text);
        _fail(file, line);
    }
    fprintf(stderr, "%s:%d: failed, which ends the program: %s\n", file, line, text);
    _Exit(1);
}

CONF_UNUSED static void conf_ok_at(hd_status status, const char *what, const char *file, int line)
{
    if (status != HD_OK) {
        conf_fail_at(file, line, "%s: %s: %s", what, hd_status_name(status), hd_message());
    }
}

/* A failure leaves one line of text and the same facts in fields. `word` (may be NULL) must be in the text. */
CONF_UNUSED static void conf_fails_at(hd_status status, hd_status expected, const char *word, const char *what,
                                      const char *file, int line)
{
    if (status != expected) {
        conf_fail_at(file, line, "%s: %s, not %s; message: %s", what, hd_status_name(status), hd_status_name(expected),
                     hd_message());
    }
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    const char *message = hd_message();
    if (error.status != expected) {
        conf_fail_at(file, line, "%s: hd_last_error has %s, not %s", what, hd_status_name(error.status),
                     hd_status_name(expected));
    }
    if (message == NULL || message[0] == '\0' || strchr(message, '\n') != NULL) {
        conf_fail_at(file, line, "%s: the message is not one line: '%s'", what, message == NULL ? "(null)" : message);
    }
    if (strcmp(message, error.message) != 0) {
        conf_fail_at(file, line, "%s: hd_message '%s', hd_last_error '%s'", what, message, error.message);
    }
    if (word != NULL && strstr(message, word) == NULL) {
        conf_fail_at(file, line, "%s: '%s' is not in the message '%s'", what, word, message);
    }
}

#define CONF_OK(call) conf_ok_at((call), #call, __FILE__, __LINE__)
#define CONF_FAILS(call, status) conf_fails_at((call), (status), NULL, #call, __FILE__, __LINE__)
#define CONF_FAILS_WITH(call, status, word) conf_fails_at((call), (status), (word), #call, __FILE__, __LINE__)
#define CONF_TRUE(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            conf_fail_at(__FILE__, __LINE__, "not true: %s; last message: %s", #condition, hd_message());              \
        }                                                                                                              \
    } while (0)
#define CONF_EQUAL(a, b)                                                                                               \
    do {                                                                                                               \
        long long conf_a_ = (long long)(a), conf_b_ = (long long)(b);                                                  \
        if (conf_a_ != conf_b_) {                                                                                      \
            conf_fail_at(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #a, conf_a_, #b, conf_b_);                   \
        }                                                                                                              \
    } while (0)

/* ----------------------------------------------------------------------------------------------------- watchdog -- */

static char conf_watched[256];

CONF_UNUSED static void conf_watchdog_barks(int number)
{
    (void)number;
    static const char before[] = "watchdog: took too long, probably hangs: ";
    ssize_t ignored = write(2, before, sizeof before - 1);
    ignored += write(2, conf_watched, strlen(conf_watched));
    ignored += write(2, "\n", 1);
    (void)ignored;
    if (getenv("HEDDLE_TEST_ABORT") != NULL) {
        abort(); /* a core, or a stop in a debugger */
    }
    _Exit(98);
}

/* Ends the program when `what` takes more than `seconds` (many more under a sanitizer); 0 seconds: off. */
CONF_UNUSED static void conf_watch(const char *what, unsigned seconds)
{
    snprintf(conf_watched, sizeof conf_watched, "%s", what);
    signal(SIGALRM, conf_watchdog_barks);
    alarm(seconds * CONF_SLOWNESS);
}

CONF_UNUSED static int conf_case_begins(void **state)
{
    (void)state;
    conf_watch("a case (the last one named above, and after it)", 120);
    return 0;
}

/* What is open, so that a case that fails leaves nothing behind for the next. */
static hd_runtime *conf_opened[64];
static pthread_mutex_t conf_opened_lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts `now` where `before` is in the list of what is open (NULL: a free place). */
CONF_UNUSED static void conf_track(hd_runtime *before, hd_runtime *now)
{
    pthread_mutex_lock(&conf_opened_lock);
    for (int i = 0; i < 64; i++) {
        if (conf_opened[i] == before) {
            conf_opened[i] = now;
            break;
        }
    }
    pthread_mutex_unlock(&conf_opened_lock);
}

CONF_UNUSED static void conf_close(hd_runtime *runtime)
{
    if (runtime != NULL) {
        conf_track(runtime, NULL);
    }
    hd_close(runtime);
}

static inline int64_t conf_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * CONF_SECOND + t.tv_nsec;
}

static inline void conf_nap_ms(int milliseconds)
{
    struct timespec t = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

/* Child processes of this one, zombies included. */
CONF_UNUSED static int conf_children(void)
{
    DIR *proc = opendir("/proc");
    int n = 0;
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        char path[300], line[512];
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (file == NULL) {
            continue;
        }
        size_t got = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        line[got] = '\0';
        const char *rest = strrchr(line, ')'); /* "pid (name) state parent ..." */
        int parent = 0;
        n += rest != NULL && sscanf(rest, ") %*c %d", &parent) == 1 && parent == (int)getpid();
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return n;
}

/* Whether there are no child processes: one whose end nobody asks for may be there for a moment more. */
CONF_UNUSED static bool conf_childless(void)
{
    for (int i = 0; i < 1000 * CONF_SLOWNESS; i++) {
        if (conf_children() == 0) {
            return true;
        }
        conf_nap_ms(5);
    }
    return false;
}

CONF_UNUSED static int conf_case_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++) {
        if (conf_opened[i] != NULL) {
            conf_watch("closing what a failed case has left", 60);
            conf_close(conf_opened[i]);
        }
    }
    if (!conf_childless()) { /* hd_close leaves no worker behind */
        print_error("%d child processes are left when everything is closed\n", conf_children());
        return -1;
    }
    alarm(0);
    return 0;
}

#define CONF_CASE(function) cmocka_unit_test_setup_teardown(function, conf_case_begins, conf_case_ends)

/* ------------------------------------------------------------------------------------------------------ runtime -- */

CONF_UNUSED static hd_status conf_try_open(const char *settings, hd_runtime **out)
{
    hd_options options = {.size = sizeof options, .settings = settings};
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

/* The same with formatted settings. */
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

/* Whether a device that is lost takes no other one with it: a GPU without a worker takes the driver of the process. */
CONF_UNUSED static bool conf_isolates(hd_runtime *runtime)
{
    return conf_is_host(runtime) || conf_is_process(runtime);
}

/* Whether kernels on `device` reach the memory of `owner`, as the driver says. */
CONF_UNUSED static bool conf_reaches(hd_runtime *runtime, int device, int owner)
{
    if (device == owner || owner < 0) {
        return true;
    }
    hd_device_info_t info = {.size = sizeof info};
    CONF_OK(hd_device_info(runtime, device, &info));
    return (info.peers >> owner & 1) != 0;
}

/* Skips the case (closing the runtime) where there are fewer devices. */
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

CONF_UNUSED static bool conf_on_gpus; /* what conf_begin has found */

/* Called first in main: exits with 77 where there is nothing to run on. */
CONF_UNUSED static void conf_begin(const char *program)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *filter = getenv("HEDDLE_TEST_FILTER");
    if (filter != NULL && filter[0] != '\0') {
        cmocka_set_test_filter(filter);
    }
    conf_watch(program, 120);
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
    }
    hd_close(runtime);
    alarm(0);
}

/* ---------------------------------------------------------------------------------------------- numbers and data -- */

/* A small generator with its own state: the same seed gives the same numbers everywhere. */
typedef struct conf_random {
    uint64_t state;
} conf_random;

static inline uint64_t conf_next(conf_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0 ... below - 1 */
static inline uint64_t conf_below(conf_random *r, uint64_t below)
{
    return below == 0 ? 0 : conf_next(r) % below;
}

static inline bool conf_chance(conf_random *r, unsigned percent)
{
    return conf_below(r, 100) < percent;
}

CONF_UNUSED static void conf_pattern(void *data, size_t bytes, uint64_t seed)
{
    conf_random r = {seed};
    uint8_t *p = data;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t v = conf_next(&r);
        memcpy(p, &v, 8);
    }
    if (bytes > 0) {
        uint64_t v = conf_next(&r);
        memcpy(p, &v, bytes);
    }
}

/* The first byte that differs; `bytes` when none does. */
CONF_UNUSED static size_t conf_difference(const void *a, const void *b, size_t bytes)
{
    const uint8_t *x = a, *y = b;
    if (memcmp(x, y, bytes) == 0) {
        return bytes;
    }
    size_t i = 0;
    while (i < bytes && x[i] == y[i]) {
        i++;
    }
    return i;
}

CONF_UNUSED static void conf_same_at(const void *got, const void *wanted, size_t bytes, const char *what,
                                     const char *file, int line)
{
    size_t i = conf_difference(got, wanted, bytes);
    if (i < bytes) {
        conf_fail_at(file, line, "%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, ((const uint8_t *)got)[i],
                     ((const uint8_t *)wanted)[i]);
    }
}
#define CONF_SAME(got, wanted, bytes) conf_same_at((got), (wanted), (bytes), #got, __FILE__, __LINE__)

CONF_UNUSED static void *conf_memory(size_t bytes)
{
    void *p = malloc(bytes == 0 ? 1 : bytes);
    if (p == NULL) {
        conf_fail_at(__FILE__, __LINE__, "no memory for %zu bytes", bytes);
        abort();
    }
    return p;
}

/* The content of a buffer's range is `wanted`. */
CONF_UNUSED static void conf_holds_at(hd_buffer *buffer, size_t offset, const void *wanted, size_t bytes,
                                      const char *what, const char *file, int line)
{
    void *got = conf_memory(bytes);
    memset(got, 0xee, bytes);
    conf_ok_at(hd_read(buffer, offset, got, bytes), what, file, line);
    conf_same_at(got, wanted, bytes, what, file, line);
    free(got);
}
#define CONF_HOLDS(buffer, offset, wanted, bytes)                                                                      \
    conf_holds_at((buffer), (offset), (wanted), (bytes), "content of " #buffer, __FILE__, __LINE__)

/* Every 32-bit word of a buffer's range is `word`. */
CONF_UNUSED static void conf_filled_at(hd_buffer *buffer, size_t offset, uint32_t word, size_t bytes, const char *what,
                                       const char *file, int line)
{
    uint32_t *got = conf_memory(bytes);
    memset(got, 0xee, bytes);
    conf_ok_at(hd_read(buffer, offset, got, bytes), what, file, line);
    for (size_t i = 0; i < bytes / 4; i++) {
        if (got[i] != word) {
            uint32_t bad = got[i];
            free(got);
            conf_fail_at(file, line, "%s: word %zu is %08x, not %08x", what, i, bad, word);
            return;
        }
    }
    free(got);
}
#define CONF_FILLED(buffer, offset, word, bytes)                                                                       \
    conf_filled_at((buffer), (offset), (word), (bytes), "content of " #buffer, __FILE__, __LINE__)

/* ------------------------------------------------------------------------------------------------------- kernels -- */

static inline hd_dims conf_dims(uint32_t x, uint32_t y, uint32_t z)
{
    hd_dims d = {x, y, z};
    return d;
}

CONF_UNUSED static hd_kernel *conf_kernel(hd_runtime *runtime, const char *name)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    CONF_OK(hd_builtin_module(runtime, &module));
    CONF_OK(hd_kernel_get(module, name, &kernel));
    return kernel;
}

typedef struct conf_kernels {
    hd_kernel *fill, *copy, *axpy, *matmul, *sum;
} conf_kernels;

CONF_UNUSED static conf_kernels conf_builtins(hd_runtime *runtime)
{
    conf_kernels k = {conf_kernel(runtime, "hd_fill_u32"), conf_kernel(runtime, "hd_copy_u32"),
                      conf_kernel(runtime, "hd_axpy_f32"), conf_kernel(runtime, "hd_matmul_f32"),
                      conf_kernel(runtime, "hd_sum_f32")};
    return k;
}

static inline hd_dims conf_grid(uint64_t n, uint32_t block)
{
    return conf_dims((uint32_t)((n + block - 1) / block), 1, 1);
}

/* y[0..n) = value, from the byte `offset` of the buffer on */
CONF_UNUSED static hd_status conf_fill(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t offset, uint64_t n,
                                       uint32_t value, hd_ticket *out)
{
    hd_arg args[] = {hd_out_range(y, offset, n * 4), hd_u64(n), hd_u32(value)};
    return hd_launch(lane, k.fill, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, out);
}

/* y[0..n) = x[0..n) */
CONF_UNUSED static hd_status conf_copy(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t y_offset, hd_buffer *x,
                                       size_t x_offset, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {hd_out_range(y, y_offset, n * 4), hd_in_range(x, x_offset, n * 4), hd_u64(n)};
    return hd_launch(lane, k.copy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, out);
}

/* y[0..n) += a x[0..n) */
CONF_UNUSED static hd_status conf_axpy(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t y_offset, hd_buffer *x,
                                       size_t x_offset, float a, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(y, y_offset, n * 4), hd_in_range(x, x_offset, n * 4), hd_f32(a), hd_u64(n)};
    return hd_launch(lane, k.axpy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 4, out);
}

/* total += sum of x[0..n), by `blocks` blocks of 256 threads: with one block it takes long on every device */
CONF_UNUSED static hd_status conf_sum(hd_lane *lane, conf_kernels k, hd_buffer *total, size_t total_offset,
                                      hd_buffer *x, size_t x_offset, uint64_t n, uint32_t blocks, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(total, total_offset, 4), hd_in_range(x, x_offset, n * 4), hd_u64(n)};
    return hd_launch(lane, k.sum, conf_dims(blocks, 1, 1), conf_dims(256, 1, 1), 0, args, 3, out);
}

static inline uint32_t conf_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

extern char **environ;

/* Runs `heddle cc`; for host devices alone where there is no compiler for GPUs. False: it did not make the file. */
CONF_UNUSED static bool conf_run_cc(const char *tool, const char *in, const char *out, bool host_only)
{
    char program[4096], command[] = "cc", option[] = "-o", no_gpu[] = "--no-gpu", from[64], to[64];
    snprintf(program, sizeof program, "%s", tool);
    snprintf(from, sizeof from, "%s", in);
    snprintf(to, sizeof to, "%s", out);
    char *arguments[] = {program, command, from, option, to, host_only ? no_gpu : NULL, NULL};
    pid_t child = 0;
    int status = -1;
    CONF_EQUAL(posix_spawn(&child, tool, NULL, NULL, arguments, environ), 0);
    CONF_TRUE(waitpid(child, &status, 0) == child);
    return status == 0;
}

/* Makes a kernel file from C source with the tool. NULL where HEDDLE_TOOL names none, and on GPUs where it finds no compiler
 * for them. The caller frees it. */
CONF_UNUSED static uint8_t *conf_kernel_file(const char *source, size_t *out_size)
{
    const char *tool = getenv("HEDDLE_TOOL");
    if (tool == NULL || tool[0] == '\0') {
        return NULL;
    }
    char folder[] = "/tmp/heddle-test-XXXXXX", in[64], out[64];
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(in, sizeof in, "%s/kernels.c", folder);
    snprintf(out, sizeof out, "%s/kernels.hk", folder);
    FILE *file = fopen(in, "w");
    CONF_TRUE(file != NULL && fputs(source, file) >= 0 && fclose(file) == 0);
    const char *driver = getenv("HEDDLE_DRIVER");
    bool host = driver != NULL && strcmp(driver, "host") == 0;
    if (!conf_run_cc(tool, in, out, false) && !(host && conf_run_cc(tool, in, out, true))) {
        CONF_TRUE(!host); /* a C compiler is enough for host devices */
        unlink(in);
        rmdir(folder);
        return NULL;
    }
    file = fopen(out, "r");
    struct stat about;
    CONF_TRUE(file != NULL && fstat(fileno(file), &about) == 0 && about.st_size > 0);
    *out_size = (size_t)about.st_size;
    uint8_t *image = conf_memory(*out_size);
    CONF_EQUAL(fread(image, 1, *out_size, file), *out_size);
    fclose(file);
    unlink(in);
    unlink(out);
    rmdir(folder);
    return image;
}

/* ------------------------------------------------------------------------------------------ work that takes long -- */

/* Adds the sum of many zeros, with one block: as long as is asked for, and the total keeps its value (which must be a
 * number). Made for one device; the zeros are read by all that is submitted. */
typedef struct conf_slow {
    conf_kernels kernels;
    hd_buffer *zeros, *sink;
    uint64_t n;
    double ms; /* of one launch, as measured */
} conf_slow;

CONF_UNUSED static void conf_slow_make(conf_slow *slow, hd_runtime *runtime, int device)
{
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, device, &lane));
    slow->kernels = conf_builtins(runtime);
    slow->n = CONF_TSAN ? 1 << 17 : 1 << 20;
    CONF_OK(hd_alloc(lane, slow->n * 4, &slow->zeros));
    CONF_OK(hd_alloc(lane, 4096, &slow->sink));
    CONF_OK(hd_fill(slow->zeros, 0, 0, slow->n * 4, NULL));
    CONF_OK(hd_fill(slow->sink, 0, 0, 4096, NULL));
    slow->ms = 1e9;
    for (int i = 0; i < 12; i++) {
        hd_ticket ticket;
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        int64_t start = conf_now();
        CONF_OK(conf_sum(lane, slow->kernels, slow->sink, 0, slow->zeros, 0, slow->n, 1, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        double ms = (double)(conf_now() - start) / 1e6;
        slow->ms = ms < slow->ms ? ms : slow->ms; /* the least: what is asked for is then never cut short by noise */
    }
    slow->ms = slow->ms < 0.02 ? 0.02 : slow->ms;
    hd_lane_destroy(lane);
}

/* Submits about `ms` milliseconds of work to a lane of that device: it reads and writes the 4 bytes at `offset` (below
 * 4096) of `total` (NULL: a buffer of its own; different offsets there keep lanes independent of each other). *out
 * (may be NULL) is the ticket of the last launch. */
CONF_UNUSED static void conf_slow_run(const conf_slow *slow, hd_lane *lane, hd_buffer *total, size_t offset, double ms,
                                      hd_ticket *out)
{
    int launches = (int)(ms / slow->ms) + 1;
    launches = launches > 4000 ? 4000 : launches;
    for (int i = 0; i < launches; i++) {
        CONF_OK(
            conf_sum(lane, slow->kernels, total == NULL ? slow->sink : total, offset, slow->zeros, 0, slow->n, 1, out));
    }
}

CONF_UNUSED static void conf_slow_free(conf_slow *slow)
{
    hd_free(slow->zeros);
    hd_free(slow->sink);
}

#endif
