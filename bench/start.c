/* start.c - `heddle bench start`: has every way to begin sampled in a process of its own, in turns, and reports.
 *
 * Threads: the conductor's. Locks: none.
 * Always: while a sample is taken no runtime is open here, so a driver is started anew each time. A sample that takes
 * too long is ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench/start_parts.h"

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

extern char **environ;

typedef struct experiment {
    report_record record; /* first */
    const bench_options *options;
    hd_runtime *runtime; /* for the record, when all is measured */
    bool on_host;
    int devices, rounds;
    start_result results[START_WAYS][START_ROUNDS_MAX];
} experiment;

/* ----------------------------------------------------------------------------------------------------- a sample -- */

/* All of the result, or as much as comes in time. */
static size_t read_result(int pipe, start_result *out)
{
    size_t got = 0;
    uint64_t end = stats_monotonic() + (uint64_t)SAMPLE_MS * 1000000;
    while (got < sizeof(*out)) {
        struct pollfd p = {.fd = pipe, .events = POLLIN};
        uint64_t now = stats_monotonic();
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

static bool take_sample(start_way way, int devices, start_result *out, char *error)
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
    size_t got = e ? 0 : read_result(ends[0], out);
    close(ends[0]);
    if (e) {
        snprintf(error, PLAIN_ERROR, "%s: the sample cannot be started: %s", name, strerror(e));
        return false;
    }
    if (got < sizeof(*out)) {
        kill(pid, SIGKILL);
    }
    waitpid(pid, NULL, 0); /* its end, too, is none of the next one's */
    if (got < sizeof(*out) || !out->ok) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", name,
                 got < sizeof(*out) ? "the sample did not end well" : out->error);
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------ figures -- */

static stats_spread spread_of(const experiment *x, start_way way, start_figure figure, int *count)
{
    double values[START_ROUNDS_MAX] = {0};
    int n = 0;
    for (int i = 0; i < x->rounds; i++) {
        if (!isnan(x->results[way][i].ns[figure])) {
            values[n++] = x->results[way][i].ns[figure];
        }
    }
    *count = n;
    return stats_spread_of(values, n);
}

static double median(const experiment *x, start_way way, start_figure figure)
{
    int n = 0;
    stats_spread s = spread_of(x, way, figure, &n);
    return n ? s.median : NAN;
}

static void make_goals(const experiment *x, report_goal out[GOALS])
{
    double bare = median(x, START_BARE, START_FIRST);
    const report_goal goals[GOALS] = {
        {.id = "open",
         .text = "hd_open with workers to the first kernels, over the bare program",
         .limit = 1.3,
         .value = median(x, START_PROCESS, START_FIRST) / bare,
         .unit = ""},
        {.id = "restart",
         .text = "restart to the first kernel with a spare worker, over the bare program",
         .limit = 0.5,
         .value = median(x, START_SPARE, START_FIRST) / bare,
         .unit = ""},
        {.id = "first_copy",
         .text = "first copy between untested devices, more than a later one",
         .limit = 5e6,
         .value = median(x, START_COPY, START_COPY_FIRST) - median(x, START_COPY, START_COPY_LATER),
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

static void print_table(const void *results, FILE *out)
{
    const experiment *x = results;
    double bare = median(x, START_BARE, START_FIRST);
    fprintf(out, "start: %d device%s, %d rounds\n\n%-52s %10s %10s %10s %8s\n", x->devices, x->devices == 1 ? "" : "s",
            x->rounds, "", "median", "min", "max", "of bare");
    for (int i = 0; i < ROWS; i++) {
        int n = 0;
        stats_spread s = spread_of(x, rows[i].way, rows[i].figure, &n);
        char value[3][REPORT_TEXT] = {"-", "-", "-"}, share[REPORT_TEXT] = "-";
        if (n) {
            report_duration(s.median, value[0]);
            report_duration(s.min, value[1]);
            report_duration(s.max, value[2]);
            snprintf(share, sizeof(share), "%.2f", s.median / bare);
        }
        fprintf(out, "%-52s %10s %10s %10s %8s\n", rows[i].text, value[0], value[1], value[2], share);
    }
    fprintf(out, "\n");
    report_goal goals[GOALS];
    make_goals(x, goals);
    report_print_goals(goals, GOALS, "", !x->on_host, out);
    fprintf(out, "\nEvery kernel's and copy's result was looked at. Took %.0f s.\n", x->record.took_s);
}

static void print_json(const void *results, FILE *out)
{
    const experiment *x = results;
    hdi_json writer, *j = &writer;
    report_goal goals[GOALS];
    make_goals(x, goals);
    report_begin(j, out, "start", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    report_put_integer(j, "devices", (uint64_t)x->devices);
    report_put_integer(j, "rounds", (uint64_t)x->rounds);
    hdi_json_object_end(j);
    hdi_json_key(j, "figures");
    hdi_json_object(j);
    for (int i = 0; i < ROWS; i++) {
        double values[START_ROUNDS_MAX] = {0};
        int n = 0;
        for (int r = 0; r < x->rounds; r++) {
            double value = x->results[rows[i].way][r].ns[rows[i].figure];
            if (!isnan(value)) {
                values[n++] = value;
            }
        }
        if (n) {
            report_put_values(j, rows[i].id, values, n);
        }
    }
    hdi_json_object_end(j);
    report_put_goals(j, goals, GOALS, !x->on_host);
    report_end(j);
}

/* ---------------------------------------------------------------------------------------------------- conductor -- */

static bool look(experiment *x, char *error)
{
    hd_device_info info = {.size = sizeof(info)};
    if (!report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !report_check(hd_device_get_info(x->runtime, 0, &info), "hd_device_get_info", error)) {
        return false;
    }
    x->devices = hd_device_count(x->runtime);
    x->on_host = info.is_host;
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    return true;
}

static bool measure(void *results, char *error)
{
    experiment *x = results;
    if (!look(x, error)) {
        return false;
    }
    hd_close(x->runtime);
    x->runtime = NULL;
    for (int i = 0; i < x->rounds; i++) {
        for (int w = 0; w < START_WAYS; w++) {
            char stage[64];
            snprintf(stage, sizeof(stage), "round %d of %d", i + 1, x->rounds);
            report_progress(&x->options->run, stage, start_ways[w],
                            (double)(i * START_WAYS + w) / (x->rounds * START_WAYS));
            if (!take_sample((start_way)w, x->devices, &x->results[w][i], error)) {
                return false;
            }
        }
    }
    return look(x, error);
}

static void close_all(void *results)
{
    hd_close(((experiment *)results)->runtime);
}

int start_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench start", measure, close_all, print_table, print_json};
    experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return report_conduct(&benchmark, x, &options->run);
}
