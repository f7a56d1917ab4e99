/* start_sample.c - one sample of `heddle bench start`: opens, runs a kernel, closes, and writes what that took.
 *
 * Threads: the process's only one of ours. Locks: none.
 * Always: nothing of the driver or of a runtime was there before the clock started.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/start_parts.h"

enum { WORDS = 1024, LATER = 32, COPY_BYTES = 1 << 20, LOOK_NS = 200000 };

static const int64_t timeout_ns = (int64_t)60 * 1000000000;
static const uint64_t test_gpu_ns = (uint64_t)5 * 1000000000, test_host_ns = 1000000000; /* longer than a test */
static const uint64_t spare_ns =
    (uint64_t)5 * 1000000000; /* as long as a spare worker takes to have the driver, and more */

static double since(uint64_t begin)
{
    return (double)(stats_monotonic() - begin);
}

/* ------------------------------------------------------------------------------------------------- plain driver -- */

static bool run_bare(int ordinal, start_result *r)
{
    const char *provider = secure_getenv("HEDDLE_DRIVER");
    uint64_t begin = stats_monotonic();
    plain_driver d;
    plain_image image;
    bool host = provider && strcmp(provider, "host") == 0;
    bool opened = !host && plain_open("nvidia", &d, r->error);
    if (!opened && !plain_open("host", &d, r->error)) {
        return false;
    }
    r->ns[START_OPEN] = since(begin);
    hdcu_device device;
    hdcu_context context;
    hdcu_stream stream;
    hdcu_module module;
    hdcu_function fill;
    hdcu_deviceptr y;
    uint64_t n = WORDS;
    uint32_t value = 7;
    void *parameters[] = {&y, &n, &value};
    char *error = r->error;
    bool ok = plain_builtin(d.provider, &image, error) && PLAIN_TRY(&d, error, cuDeviceGet, (&device, ordinal)) &&
              PLAIN_TRY(&d, error, cuDevicePrimaryCtxRetain, (&context, device)) &&
              PLAIN_TRY(&d, error, cuCtxSetCurrent, (context)) &&
              PLAIN_TRY(&d, error, cuStreamCreate, (&stream, HDCU_STREAM_NON_BLOCKING)) &&
              PLAIN_TRY(&d, error, cuModuleLoadDataEx, (&module, image.driver, 0, NULL, NULL)) &&
              PLAIN_TRY(&d, error, cuModuleGetFunction, (&fill, module, "hd_fill_u32")) &&
              PLAIN_TRY(&d, error, cuMemAlloc, (&y, WORDS * 4)) &&
              PLAIN_TRY(&d, error, cuLaunchKernel, (fill, WORDS / 128, 1, 1, 128, 1, 1, 0, stream, parameters, NULL)) &&
              PLAIN_TRY(&d, error, cuStreamSynchronize, (stream));
    r->ns[START_FIRST] = since(begin);
    r->ns[START_CONTEXT] = r->ns[START_FIRST] - r->ns[START_OPEN];
    uint64_t closing = stats_monotonic();
    ok = ok && PLAIN_TRY(&d, error, cuDevicePrimaryCtxRelease, (device));
    r->ns[START_CLOSE] = since(closing);
    return ok;
}

_Static_assert(sizeof(start_result) <= PIPE_BUF, "results of several children do not mix");

/* What a child writes into the pipe. */
static bool be_bare(int ordinal, int pipe)
{
    start_result r = {.ok = false};
    r.ok = run_bare(ordinal, &r);
    return write(pipe, &r, sizeof(r)) == (ssize_t)sizeof(r);
}

/* The slowest of all counts, from the beginning of the first. */
static bool run_bares(int count, start_result *r)
{
    uint64_t begin = stats_monotonic();
    int ends[2], started = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(r->error, sizeof(r->error), "pipe: %s", strerror(errno));
        return false;
    }
    for (pid_t pid = 1; started < count && pid > 0; started += pid > 0) {
        double late = since(begin);
        pid = fork();
        if (pid == 0) {
            _exit(be_bare(started, ends[1]) ? 0 : 1);
        }
        r->ns[START_OPEN] = late; /* until the last one had begun */
    }
    close(ends[1]);
    bool ok = started == count;
    r->ns[START_FIRST] = r->ns[START_CLOSE] = 0;
    for (int i = 0; i < started; i++) {
        start_result one = {.ok = false};
        ssize_t got = read(ends[0], &one, sizeof(one));
        if (got != (ssize_t)sizeof(one) || !one.ok) {
            snprintf(r->error, sizeof(r->error), "%.400s",
                     got == (ssize_t)sizeof(one) ? one.error : "it did not end well");
            ok = false;
        }
        double first = r->ns[START_OPEN] + one.ns[START_FIRST];
        r->ns[START_FIRST] = first > r->ns[START_FIRST] ? first : r->ns[START_FIRST];
        r->ns[START_CLOSE] = one.ns[START_CLOSE] > r->ns[START_CLOSE] ? one.ns[START_CLOSE] : r->ns[START_CLOSE];
    }
    close(ends[0]);
    while (wait(NULL) > 0) {
    }
    r->ns[START_OPEN] = NAN;
    return ok;
}

/* ------------------------------------------------------------------------------------------------------- Heddle -- */

/* Memory, a kernel that fills it, and the look whether it did, on one device. */
static bool first_kernel(hd_runtime *runtime, hd_kernel *fill, int device, char *error)
{
    hd_lane *lane = NULL;
    hd_buffer *y = NULL;
    hd_ticket ticket;
    uint32_t got = 0;
    if (!report_check(hd_lane_get_default(runtime, device, &lane), "hd_lane_get_default", error) ||
        !report_check(hd_alloc(lane, WORDS * 4, &y), "hd_alloc", error)) {
        return false;
    }
    hd_arg arguments[] = {hd_out(y), hd_u64(WORDS), hd_u32(7)};
    hd_status status =
        hd_launch(lane, fill, (hd_dims){WORDS / 128, 1, 1}, (hd_dims){128, 1, 1}, 0, arguments, 3, &ticket);
    bool ok = report_check(status, "hd_launch", error) && report_check(hd_wait(ticket, timeout_ns), "hd_wait", error) &&
              report_check(hd_read(y, (WORDS - 1) * 4, &got, 4), "hd_read", error);
    hd_free(y);
    if (ok && got != 7) {
        snprintf(error, PLAIN_ERROR, "device %d: the kernel wrote %u instead of 7", device, got);
    }
    return ok && got == 7;
}

static bool open_all(const char *settings, hd_runtime **runtime, hd_kernel **fill, start_result *r)
{
    uint64_t begin = stats_monotonic();
    hd_options options = {.size = sizeof(options), .settings = settings};
    hd_module *module;
    bool ok = report_check(hd_open(&options, runtime), "hd_open", r->error);
    r->ns[START_OPEN] = since(begin);
    ok = ok && report_check(hd_module_get_builtin(*runtime, &module), "hd_module_get_builtin", r->error) &&
         report_check(hd_kernel_get(module, "hd_fill_u32", fill), "hd_kernel_get", r->error);
    for (int i = 0; ok && i < hd_device_count(*runtime); i++) {
        ok = first_kernel(*runtime, *fill, i, r->error);
    }
    r->ns[START_FIRST] = since(begin);
    return ok;
}

static bool run_open(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_kernel *fill = NULL;
    bool ok = open_all(settings, &runtime, &fill, r);
    uint64_t begin = stats_monotonic();
    hd_close(runtime);
    r->ns[START_CLOSE] = since(begin);
    return ok;
}

static void sleep_for(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

static bool lose_first(hd_runtime *runtime, char *error)
{
    hd_device_info info = {.size = sizeof(info)};
    if (!report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", error)) {
        return false;
    }
    kill(info.worker_pid, SIGKILL);
    while (!info.lost) {
        if (!report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", error)) {
            return false;
        }
        sleep_for(LOOK_NS);
    }
    return true;
}

static bool run_restart(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_kernel *fill = NULL;
    bool ok = open_all(settings, &runtime, &fill, r);
    sleep_for(spare_ns); /* also where there is none, so that all else is alike */
    ok = ok && lose_first(runtime, r->error);
    uint64_t begin = stats_monotonic();
    ok = ok && report_check(hd_device_restart(runtime, 0), "hd_device_restart", r->error) &&
         first_kernel(runtime, fill, 0, r->error);
    for (int i = 0; i < START_FIGURES; i++) {
        r->ns[i] = NAN;
    }
    r->ns[START_FIRST] = since(begin);
    hd_close(runtime);
    return ok;
}

/* ------------------------------------------------------------------------------------------------------- copies -- */

static bool copy_once(hd_buffer *const b[2], double *ns, char *error)
{
    hd_ticket ticket;
    uint64_t begin = stats_monotonic();
    bool ok = report_check(hd_copy(b[1], 0, b[0], 0, COPY_BYTES, &ticket), "hd_copy", error) &&
              report_check(hd_wait(ticket, timeout_ns), "hd_wait", error);
    *ns = since(begin);
    return ok;
}

static bool run_copies(hd_runtime *runtime, start_result *r)
{
    hd_buffer *b[2] = {NULL, NULL};
    hd_device_info info = {.size = sizeof(info)};
    double later[LATER], ns = 0;
    bool ok = report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", r->error);
    for (int i = 0; ok && i < 2; i++) {
        hd_lane *lane = NULL;
        ok = report_check(hd_lane_get_default(runtime, i, &lane), "hd_lane_get_default", r->error) &&
             report_check(hd_alloc(lane, COPY_BYTES, &b[i]), "hd_alloc", r->error) &&
             report_check(hd_fill(b[i], 0, 5u + (uint32_t)i, COPY_BYTES, NULL), "hd_fill", r->error) &&
             report_check(hd_buffer_wait(b[i], HD_READ_WRITE, timeout_ns), "hd_buffer_wait", r->error);
    }
    ok = ok && copy_once(b, &r->ns[START_COPY_FIRST], r->error);
    uint64_t begin = stats_monotonic();
    r->ns[START_COPY_WORST] = 0;
    for (int i = 0; ok && (i < LATER || stats_monotonic() - begin < (info.is_host ? test_host_ns : test_gpu_ns)); i++) {
        ok = copy_once(b, &ns, r->error);
        r->ns[START_COPY_WORST] = ns > r->ns[START_COPY_WORST] ? ns : r->ns[START_COPY_WORST];
        if (i < LATER) {
            later[i] = ns;
        }
    }
    uint32_t got = 0;
    ok = ok && report_check(hd_read(b[1], COPY_BYTES - 4, &got, 4), "hd_read", r->error);
    if (ok && got != 5) {
        snprintf(r->error, PLAIN_ERROR, "a copy wrote %u instead of 5", got);
        ok = false;
    }
    r->ns[START_COPY_LATER] = ok ? stats_spread_of(later, LATER).median : NAN;
    return ok;
}

static bool run_copy(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof(options), .settings = settings};
    bool ok = report_check(hd_open(&options, &runtime), "hd_open", r->error);
    ok = ok && (hd_device_count(runtime) < 2 || run_copies(runtime, r)); /* with one device there is no figure */
    hd_close(runtime);
    return ok;
}

/* ------------------------------------------------------------------------------------------------------ the way -- */

const char *const start_ways[START_WAYS] = {
    [START_BARE] = "bare",       [START_BARES] = "bares", [START_THREAD] = "thread", [START_PROCESS] = "process",
    [START_RESTART] = "restart", [START_SPARE] = "spare", [START_COPY] = "copy",
};

int start_sample(int count, char *const *arguments)
{
    start_result r = {.ok = false};
    for (int i = 0; i < START_FIGURES; i++) {
        r.ns[i] = NAN;
    }
    const char *way = count > 0 ? arguments[0] : "";
    if (strcmp(way, "bare") == 0) {
        r.ok = run_bare(0, &r);
    } else if (strcmp(way, "bares") == 0) {
        r.ok = run_bares(count > 1 ? atoi(arguments[1]) : 1, &r);
    } else if (strcmp(way, "thread") == 0) {
        r.ok = run_open("placement=thread", &r);
    } else if (strcmp(way, "process") == 0) {
        r.ok = run_open("placement=process", &r);
    } else if (strcmp(way, "restart") == 0) {
        r.ok = run_restart("placement=process spare_workers=0", &r);
    } else if (strcmp(way, "spare") == 0) {
        r.ok = run_restart("placement=process spare_workers=1", &r);
    } else if (strcmp(way, "copy") == 0) {
        r.ok = run_copy("placement=thread peers=verify cache=none", &r);
    } else {
        snprintf(r.error, sizeof(r.error), "no such sample: '%.40s'", way);
    }
    return write(STDOUT_FILENO, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1;
}
