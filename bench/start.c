/* start.c - `heddle bench start`: samples the ways to start in turns, each sample in a process of
 * its own, and reports.
 *
 * A sample (bench_start_sample) opens, runs a kernel, closes, and writes the durations. It is a
 * separate process, because a driver starts only once in a process.
 *
 * Threads: the conductor. In a sample, the process's first thread runs everything here. Locks:
 * none.
 * Always:
 *   - While a sample is taken no runtime is open here, so a driver starts anew each time. A sample
 *     that takes too long is killed.
 *   - In a sample, neither driver nor runtime existed before the clock started.
 */
#include <heddle.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"

enum { ROUNDS_GPU = 5, ROUNDS_HOST = 3, ROUNDS_QUICK = 2, SAMPLE_MS = 120000, GOALS = 3 };

const char start_help[] =
    "How long it takes until work can begin, and until it can go on: every sample is a process of its own, and all "
    "ways\n"
    "take turns.\n"
    "\n"
    "  bare       plain driver calls open one device and run one kernel: what the others are compared with\n"
    "  bares      one such program for each device, all at once: no way that opens all devices can be faster\n"
    "  thread     hd_open with every device, and a kernel on each; hd_close\n"
    "  process    the same with placement=process\n"
    "  restart    from hd_device_restart to the first finished kernel, after the worker was killed\n"
    "  spare      the same with spare_workers=1, some time after hd_open\n"
    "  copy       hd_copy of 1 MiB and its wait between two devices that were never tested: the first one, the median "
    "of\n"
    "             those behind it, and the slowest of them until long after the test (placement=thread)\n";

typedef enum start_way {
    START_BARE,    /* a program that opens one device and runs one kernel, by plain driver calls */
    START_BARES,   /* one such program for each device, all at once */
    START_THREAD,  /* Heddle with every device, and a kernel on each */
    START_PROCESS, /* the same with worker processes */
    START_RESTART, /* restart of a device whose worker was killed */
    START_SPARE,   /* the same with a spare worker */
    START_COPY,    /* the first copies between two devices that have never been tested */
    START_WAYS
} start_way;

/* Durations in nanoseconds. */
typedef enum start_figure {
    START_OPEN,       /* hd_open; bare program: until the driver starts */
    START_CONTEXT,    /* bare program: from the driver's start to its first finished kernel */
    START_FIRST,      /* from the start or restart to the first finished kernel (on every device) */
    START_CLOSE,      /* hd_close */
    START_COPY_FIRST, /* the first copy and its wait */
    START_COPY_LATER, /* median of the copies right after the first */
    START_COPY_WORST, /* the slowest copy after the first, until the pair's test is long over */
    START_FIGURES
} start_figure;

/* The bytes that a sample writes to its output. A missing figure is NaN. */
typedef struct start_result {
    double ns[START_FIGURES];
    bool ok; /* false: see error */
    char error[PLAIN_ERROR];
} start_result;

static const char *const start_ways[START_WAYS] = {
    [START_BARE] = "bare",       [START_BARES] = "bares", [START_THREAD] = "thread", [START_PROCESS] = "process",
    [START_RESTART] = "restart", [START_SPARE] = "spare", [START_COPY] = "copy",
};

enum { WORDS = 1024, LATER = 32, COPY_BYTES = 1 << 20, LOOK_NS = 200000 };

static const int64_t timeout_ns = (int64_t)60 * 1000000000;
/* longer than the test of a pair of devices takes */
static const uint64_t test_gpu_ns = (uint64_t)5 * 1000000000, test_host_ns = 1000000000;
/* longer than a spare worker takes to start its driver */
static const uint64_t spare_ns = (uint64_t)5 * 1000000000;

static double bench_since(uint64_t begin)
{
    return (double)(cli_stats_monotonic() - begin);
}

/* ---- plain driver ---- */

static bool bench_run_bare(int ordinal, start_result *r)
{
    const char *provider = secure_getenv("HEDDLE_DRIVER");
    uint64_t begin = cli_stats_monotonic();
    plain_driver d;
    plain_image image;
    bool host = provider && strcmp(provider, "host") == 0;
    bool opened = !host && cli_plain_open("nvidia", &d, r->error);
    if (!opened && !cli_plain_open("host", &d, r->error)) {
        return false;
    }
    r->ns[START_OPEN] = bench_since(begin);
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
    bool ok = cli_plain_builtin(d.provider, &image, error) && PLAIN_TRY(&d, error, cuDeviceGet, (&device, ordinal)) &&
              PLAIN_TRY(&d, error, cuDevicePrimaryCtxRetain, (&context, device)) &&
              PLAIN_TRY(&d, error, cuCtxSetCurrent, (context)) &&
              PLAIN_TRY(&d, error, cuStreamCreate, (&stream, HDCU_STREAM_NON_BLOCKING)) &&
              PLAIN_TRY(&d, error, cuModuleLoadDataEx, (&module, image.driver, 0, NULL, NULL)) &&
              PLAIN_TRY(&d, error, cuModuleGetFunction, (&fill, module, "hd_fill_u32")) &&
              PLAIN_TRY(&d, error, cuMemAlloc, (&y, WORDS * 4)) &&
              PLAIN_TRY(&d, error, cuLaunchKernel, (fill, WORDS / 128, 1, 1, 128, 1, 1, 0, stream, parameters, NULL)) &&
              PLAIN_TRY(&d, error, cuStreamSynchronize, (stream));
    r->ns[START_FIRST] = bench_since(begin);
    r->ns[START_CONTEXT] = r->ns[START_FIRST] - r->ns[START_OPEN];
    uint64_t closing = cli_stats_monotonic();
    ok = ok && PLAIN_TRY(&d, error, cuDevicePrimaryCtxRelease, (device));
    r->ns[START_CLOSE] = bench_since(closing);
    return ok;
}

_Static_assert(sizeof(start_result) <= PIPE_BUF, "results of several children do not mix");

/* A child writes its result into the pipe. */
static bool bench_be_bare(int ordinal, int pipe)
{
    start_result r = {.ok = false};
    r.ok = bench_run_bare(ordinal, &r);
    return write(pipe, &r, sizeof(r)) == (ssize_t)sizeof(r);
}

/* Runs bare programs on `count` devices at once. The slowest one counts, from the start of the
 * first program to its own first kernel. */
static bool bench_run_bares(int count, start_result *r)
{
    uint64_t begin = cli_stats_monotonic();
    int ends[2], started = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(r->error, sizeof(r->error), "pipe: %s", strerror(errno));
        return false;
    }
    for (pid_t pid = 1; started < count && pid > 0; started += pid > 0) {
        double late = bench_since(begin);
        pid = fork();
        if (pid == 0) {
            _exit(bench_be_bare(started, ends[1]) ? 0 : 1);
        }
        r->ns[START_OPEN] = late; /* until the last one started */
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

/* ---- Heddle ---- */

/* Allocates memory on one device, fills it with a kernel, and checks the result. */
static bool bench_first_kernel(hd_runtime *runtime, hd_kernel *fill, int device, char *error)
{
    hd_lane *lane = NULL;
    hd_buffer *y = NULL;
    hd_ticket ticket;
    uint32_t got = 0;
    if (!cli_report_check(hd_lane_get_default(runtime, device, &lane), "hd_lane_get_default", error) ||
        !cli_report_check(hd_alloc(lane, WORDS * 4, &y), "hd_alloc", error)) {
        return false;
    }
    hd_arg arguments[] = {hd_out(y), hd_u64(WORDS), hd_u32(7)};
    hd_status status =
        hd_launch(lane, fill, (hd_dims){WORDS / 128, 1, 1}, (hd_dims){128, 1, 1}, 0, arguments, 3, &ticket);
    bool ok = cli_report_check(status, "hd_launch", error) &&
              cli_report_check(hd_wait(ticket, timeout_ns), "hd_wait", error) &&
              cli_report_check(hd_read(y, (WORDS - 1) * 4, &got, 4), "hd_read", error);
    hd_free(y);
    if (ok && got != 7) {
        snprintf(error, PLAIN_ERROR, "device %d: the kernel wrote %u instead of 7", device, got);
    }
    return ok && got == 7;
}

static bool bench_open_all(const char *settings, hd_runtime **runtime, hd_kernel **fill, start_result *r)
{
    uint64_t begin = cli_stats_monotonic();
    hd_options options = {.size = sizeof(options), .settings = settings};
    hd_module *module;
    bool ok = cli_report_check(hd_open(&options, runtime), "hd_open", r->error);
    r->ns[START_OPEN] = bench_since(begin);
    ok = ok && cli_report_check(hd_module_get_builtin(*runtime, &module), "hd_module_get_builtin", r->error) &&
         cli_report_check(hd_kernel_get(module, "hd_fill_u32", fill), "hd_kernel_get", r->error);
    for (int i = 0; ok && i < hd_device_count(*runtime); i++) {
        ok = bench_first_kernel(*runtime, *fill, i, r->error);
    }
    r->ns[START_FIRST] = bench_since(begin);
    return ok;
}

static bool bench_run_open(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_kernel *fill = NULL;
    bool ok = bench_open_all(settings, &runtime, &fill, r);
    uint64_t begin = cli_stats_monotonic();
    hd_close(runtime);
    r->ns[START_CLOSE] = bench_since(begin);
    return ok;
}

static void bench_sleep_for(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

static bool bench_lose_first(hd_runtime *runtime, char *error)
{
    hd_device_info info = {.size = sizeof(info)};
    if (!cli_report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", error)) {
        return false;
    }
    kill(info.worker_pid, SIGKILL);
    while (!info.lost) {
        if (!cli_report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", error)) {
            return false;
        }
        bench_sleep_for(LOOK_NS);
    }
    return true;
}

static bool bench_run_restart(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_kernel *fill = NULL;
    bool ok = bench_open_all(settings, &runtime, &fill, r);
    bench_sleep_for(spare_ns); /* also without a spare worker, so that all else is equal */
    ok = ok && bench_lose_first(runtime, r->error);
    uint64_t begin = cli_stats_monotonic();
    ok = ok && cli_report_check(hd_device_restart(runtime, 0), "hd_device_restart", r->error) &&
         bench_first_kernel(runtime, fill, 0, r->error);
    for (int i = 0; i < START_FIGURES; i++) {
        r->ns[i] = NAN;
    }
    r->ns[START_FIRST] = bench_since(begin);
    hd_close(runtime);
    return ok;
}

/* ---- copies ---- */

static bool bench_copy_once(hd_buffer *const b[2], double *ns, char *error)
{
    hd_ticket ticket;
    uint64_t begin = cli_stats_monotonic();
    bool ok = cli_report_check(hd_copy(b[1], 0, b[0], 0, COPY_BYTES, &ticket), "hd_copy", error) &&
              cli_report_check(hd_wait(ticket, timeout_ns), "hd_wait", error);
    *ns = bench_since(begin);
    return ok;
}

static bool bench_run_copies(hd_runtime *runtime, start_result *r)
{
    hd_buffer *b[2] = {NULL, NULL};
    hd_device_info info = {.size = sizeof(info)};
    double later[LATER], ns = 0;
    bool ok = cli_report_check(hd_device_get_info(runtime, 0, &info), "hd_device_get_info", r->error);
    for (int i = 0; ok && i < 2; i++) {
        hd_lane *lane = NULL;
        ok = cli_report_check(hd_lane_get_default(runtime, i, &lane), "hd_lane_get_default", r->error) &&
             cli_report_check(hd_alloc(lane, COPY_BYTES, &b[i]), "hd_alloc", r->error) &&
             cli_report_check(hd_fill(b[i], 0, 5u + (uint32_t)i, COPY_BYTES, NULL), "hd_fill", r->error) &&
             cli_report_check(hd_buffer_wait(b[i], HD_READ_WRITE, timeout_ns), "hd_buffer_wait", r->error);
    }
    ok = ok && bench_copy_once(b, &r->ns[START_COPY_FIRST], r->error);
    uint64_t begin = cli_stats_monotonic();
    r->ns[START_COPY_WORST] = 0;
    for (int i = 0; ok && (i < LATER || cli_stats_monotonic() - begin < (info.is_host ? test_host_ns : test_gpu_ns));
         i++) {
        ok = bench_copy_once(b, &ns, r->error);
        r->ns[START_COPY_WORST] = ns > r->ns[START_COPY_WORST] ? ns : r->ns[START_COPY_WORST];
        if (i < LATER) {
            later[i] = ns;
        }
    }
    uint32_t got = 0;
    ok = ok && cli_report_check(hd_read(b[1], COPY_BYTES - 4, &got, 4), "hd_read", r->error);
    if (ok && got != 5) {
        snprintf(r->error, PLAIN_ERROR, "a copy wrote %u instead of 5", got);
        ok = false;
    }
    r->ns[START_COPY_LATER] = ok ? cli_stats_spread_of(later, LATER).median : NAN;
    return ok;
}

static bool bench_run_copy(const char *settings, start_result *r)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof(options), .settings = settings};
    bool ok = cli_report_check(hd_open(&options, &runtime), "hd_open", r->error);
    /* a single device gives no figure */
    ok = ok && (hd_device_count(runtime) < 2 || bench_run_copies(runtime, r));
    hd_close(runtime);
    return ok;
}

/* ---- the way ---- */

int bench_start_sample(int count, char *const *arguments)
{
    start_result r = {.ok = false};
    for (int i = 0; i < START_FIGURES; i++) {
        r.ns[i] = NAN;
    }
    const char *way = count > 0 ? arguments[0] : "";
    if (strcmp(way, "bare") == 0) {
        r.ok = bench_run_bare(0, &r);
    } else if (strcmp(way, "bares") == 0) {
        r.ok = bench_run_bares(count > 1 ? atoi(arguments[1]) : 1, &r);
    } else if (strcmp(way, "thread") == 0) {
        r.ok = bench_run_open("placement=thread", &r);
    } else if (strcmp(way, "process") == 0) {
        r.ok = bench_run_open("placement=process", &r);
    } else if (strcmp(way, "restart") == 0) {
        r.ok = bench_run_restart("placement=process spare_workers=0", &r);
    } else if (strcmp(way, "spare") == 0) {
        r.ok = bench_run_restart("placement=process spare_workers=1", &r);
    } else if (strcmp(way, "copy") == 0) {
        r.ok = bench_run_copy("placement=thread peers=verify cache=none", &r);
    } else {
        snprintf(r.error, sizeof(r.error), "no such sample: '%.40s'", way);
    }
    return write(STDOUT_FILENO, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1;
}

/* ---- conductor ---- */

typedef struct experiment {
    report_record record; /* first */
    const bench_options *options;
    hd_runtime *runtime; /* for the record, after the measurements */
    bool on_host;
    int devices, rounds;
    start_result results[START_WAYS][START_ROUNDS_MAX];
} experiment;

/* ---- a sample ---- */

/* Reads the result, or the part that arrives in time. */
static size_t bench_read_result(int pipe, start_result *out)
{
    size_t got = 0;
    uint64_t end = cli_stats_monotonic() + (uint64_t)SAMPLE_MS * 1000000;
    while (got < sizeof(*out)) {
        struct pollfd p = {.fd = pipe, .events = POLLIN};
        uint64_t now = cli_stats_monotonic();
        if (now >= end || poll(&p, 1, (int)((end - now) / 1000000) + 1) < 0) {
            break;
        }
        ssize_t n = p.revents ? read(pipe, (char *)out + got, sizeof(*out) - got) : 0;
        if (n <= 0 && p.revents) {
            break;
        }
        got += (size_t)n;
    }
    return got;
}

static bool bench_take_sample(start_way way, int devices, start_result *out, char *error)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(error, PLAIN_ERROR, "pipe: %s", strerror(errno));
        return false;
    }
    char program[] = "heddle-bench", start[] = "start", sample[] = START_SAMPLE, name[16], count[16];
    snprintf(name, sizeof(name), "%s", start_ways[way]);
    snprintf(count, sizeof(count), "%d", devices);
    char *arguments[] = {program, start, sample, name, count, NULL};
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int e = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t got = e ? 0 : bench_read_result(ends[0], out);
    close(ends[0]);
    if (e) {
        snprintf(error, PLAIN_ERROR, "%s: the sample cannot be started: %s", name, strerror(e));
        return false;
    }
    if (got < sizeof(*out)) {
        kill(pid, SIGKILL);
    }
    waitpid(pid, NULL, 0); /* the sample's end must not overlap the next sample */
    if (got < sizeof(*out) || !out->ok) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", name,
                 got < sizeof(*out) ? "the sample did not end well" : out->error);
        return false;
    }
    return true;
}

/* ---- figures ---- */

static stats_spread bench_spread_of(const experiment *x, start_way way, start_figure figure, int *count)
{
    double values[START_ROUNDS_MAX] = {0};
    int n = 0;
    for (int i = 0; i < x->rounds; i++) {
        if (!isnan(x->results[way][i].ns[figure])) {
            values[n++] = x->results[way][i].ns[figure];
        }
    }
    *count = n;
    return cli_stats_spread_of(values, n);
}

static double bench_median(const experiment *x, start_way way, start_figure figure)
{
    int n = 0;
    stats_spread s = bench_spread_of(x, way, figure, &n);
    return n ? s.median : NAN;
}

static void bench_make_goals(const experiment *x, report_goal out[GOALS])
{
    double bare = bench_median(x, START_BARE, START_FIRST);
    const report_goal goals[GOALS] = {
        {.id = "open",
         .text = "hd_open with workers to kernels, over the bare program",
         .limit = 1.3,
         .value = bench_median(x, START_PROCESS, START_FIRST) / bare,
         .unit = ""},
        {.id = "restart",
         .text = "restart with a spare worker, over the bare program",
         .limit = 0.5,
         .value = bench_median(x, START_SPARE, START_FIRST) / bare,
         .unit = ""},
        {.id = "first_copy",
         .text = "first copy between untested devices, more than a later one",
         .limit = 5e6,
         .value = bench_median(x, START_COPY, START_COPY_FIRST) - bench_median(x, START_COPY, START_COPY_LATER),
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

static const struct {
    start_way way;
    start_figure figure;
    const char *id, *text;
} rows[] = {
    {START_BARE, START_FIRST, "bare", "bare program: one device, one kernel"},
    {START_BARE, START_OPEN, "bare_driver", "  of which the start of the driver"},
    {START_BARE, START_CONTEXT, "bare_context", "  and from there, as behind a spare worker's start"},
    {START_BARE, START_CLOSE, "bare_close", "  and its context given back"},
    {START_BARES, START_FIRST, "bares", "one for each device, at once"},
    {START_BARES, START_CLOSE, "bares_close", "  and their contexts given back"},
    {START_THREAD, START_FIRST, "thread", "placement thread: all devices, a kernel on each"},
    {START_THREAD, START_OPEN, "thread_open", "  of which hd_open"},
    {START_THREAD, START_CLOSE, "thread_close", "  hd_close"},
    {START_PROCESS, START_FIRST, "process", "placement process: all devices, a kernel on each"},
    {START_PROCESS, START_OPEN, "process_open", "  of which hd_open"},
    {START_PROCESS, START_CLOSE, "process_close", "  hd_close"},
    {START_RESTART, START_FIRST, "restart", "hd_device_restart to the first kernel"},
    {START_SPARE, START_FIRST, "restart_spare", "  the same with a spare worker"},
    {START_COPY, START_COPY_FIRST, "first_copy", "first hd_copy of an untested pair, 1 MiB + wait"},
    {START_COPY, START_COPY_LATER, "later_copy", "  those behind it, median"},
    {START_COPY, START_COPY_WORST, "worst_copy", "  the slowest of them, past the end of the test"},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* A figure with its rounds; nothing if it was not measured. */
static void bench_put_figure(hdi_json *j, const experiment *x, int row)
{
    double values[START_ROUNDS_MAX] = {0};
    int n = 0;
    for (int r = 0; r < x->rounds; r++) {
        double value = x->results[rows[row].way][r].ns[rows[row].figure];
        if (!isnan(value)) {
            values[n++] = value;
        }
    }
    if (n == 0) {
        return;
    }
    stats_spread s = cli_stats_spread_of(values, n);
    cli_report_put_spread_begin(j, rows[row].id, s);
    cli_report_put_string(j, "name", rows[row].text);
    cli_report_put_string(j, "unit", "ns");
    cli_report_put_number(j, "over_bare", s.median / bench_median(x, START_BARE, START_FIRST));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_number(j, values[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void bench_print_json(const void *results, FILE *out)
{
    const experiment *x = results;
    hdi_json writer, *j = &writer;
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_begin(j, out, "start", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "devices", (uint64_t)x->devices);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    hdi_json_object_end(j);
    hdi_json_key(j, "figures");
    hdi_json_object(j);
    for (int i = 0; i < ROWS; i++) {
        bench_put_figure(j, x, i);
    }
    hdi_json_object_end(j);
    cli_report_put_goals(j, goals, GOALS, !x->on_host);
    cli_report_end(j);
}

/* ---- conductor ---- */

static bool bench_look(experiment *x, char *error)
{
    hd_device_info info = {.size = sizeof(info)};
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_device_get_info(x->runtime, 0, &info), "hd_device_get_info", error)) {
        return false;
    }
    x->devices = hd_device_count(x->runtime);
    x->on_host = info.is_host;
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    return true;
}

static bool bench_measure(void *results, char *error)
{
    experiment *x = results;
    if (!bench_look(x, error)) {
        return false;
    }
    hd_close(x->runtime);
    x->runtime = NULL;
    for (int i = 0; i < x->rounds; i++) {
        for (int w = 0; w < START_WAYS; w++) {
            char stage[64];
            snprintf(stage, sizeof(stage), "round %d of %d", i + 1, x->rounds);
            cli_report_progress(&x->options->run, stage, start_ways[w],
                                (double)(i * START_WAYS + w) / (x->rounds * START_WAYS));
            if (!bench_take_sample((start_way)w, x->devices, &x->results[w][i], error)) {
                return false;
            }
        }
    }
    return bench_look(x, error);
}

static void bench_close_all(void *results)
{
    hd_close(((experiment *)results)->runtime);
}

int bench_start_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench start", bench_measure, bench_close_all, bench_print_json};
    experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
