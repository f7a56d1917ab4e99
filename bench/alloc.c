/* alloc.c - the conductor of `heddle bench alloc`: opens the device, plans the cases, runs them one
 * after another.
 *
 * Threads: all work is on the calling thread; cases make their own threads. Locks: none.
 * Always: one case runs at a time. Every case opens and closes its own runtimes. The length of a
 * slice depends on the remaining time, so the run ends in time even if the allocators are slow.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/alloc_parts.h"
#include "cli/common/machine.h"
#include "cli/common/place.h"

#ifndef HEDDLE_DATA_FROM_BENCH
#define HEDDLE_DATA_FROM_BENCH "../share"
#define HEDDLE_DATA_INSTALLED "/usr/local/share"
#endif

enum { PATH_BYTES = 1024, SIDES = 3 };

static const double slice_least_ns = 2e6;

const char alloc_help[] =
    "The cost of allocating and freeing device memory, and how much memory it takes: Heddle (hd_alloc, hd_free) "
    "against\n"
    "cuMemAllocAsync/cuMemFreeAsync, whose pool keeps all its memory, and cuMemAlloc/cuMemFree of the same "
    "driver,\n"
    "in turns. With host devices also against malloc and free with a header for the size and counters of what is "
    "live;\n"
    "the driver's calls are then those of the host devices.\n"
    "\n"
    "Parts (--only):\n"
    "  pair          one thread allocates and frees a block, over and over: 256 bytes, 4 KiB, 1 MiB, 64 MiB\n"
    "  random        2 n operations, 73 % of them allocations of up to so many MiB, of at most 16000 MiB in all; one\n"
    "                sequence, recorded first and replayed everywhere\n"
    "  holes         pairs of 1 KiB beside 4096 and 65536 free blocks of 512 bytes between live ones\n"
    "  live          100000 blocks of 256 bytes to 4 KiB, all allocated, then all freed\n"
    "  multi_stream  4 kernels of about half a millisecond in 1 to 4 streams, each with a buffer that is freed behind "
    "it;\n"
    "                cold (from nothing) and warm\n"
    "  threads       pairs of 4 KiB and random allocations by 1 to 16 threads, each with a lane of its own\n"
    "  hand_over     one thread allocates, another one frees\n"
    "  replay        programs that were recorded elsewhere (bench/logs/README.md shows how), or --replay FILE\n"
    "  free_busy     a free while a kernel of 100 ms runs: of the block that it uses, and of one that is not in use\n"
    "  beside        small kernels in one lane while another thread allocates, or makes the pool grow and shrink\n"
    "  limit         16 threads that want twice as much as HEDDLE_MEMORY_LIMIT allows\n"
    "  reclaim       a training loop with a garbage collector under a limit of 4 GiB: early reclaim, or at the limit "
    "only\n"
    "  unified       a unified buffer read by element, against a load and a copy of 4 bytes\n"
    "  pinned        pairs of pinned memory, against cuMemHostAlloc/cuMemFreeHost\n"
    "\n"
    "Columns:\n"
    "  heddle, async, plain, libc  the time of a pair (threads: of one thread), an operation or a run with this\n"
    "                              allocator (median, where it has a line of its own); the median of the rounds\n"
    "  p99                 99th percentile of single pairs, operations or runs, the cost of reading the clock "
    "subtracted\n"
    "  heddle over this    Heddle's time over this side's time, in the same round; the median of the rounds\n"
    "  reserved over live  the most physical memory held, over the most bytes live, as asked for\n"
    "  driver calls        calls of the driver for memory that were made\n"
    "\n"
    "Each allocator first does everything once with every block compared with all others that are live. A block that\n"
    "overlaps another one, has a wrong size or loses bytes, a kernel with a wrong result, and a limit that is "
    "exceeded\n"
    "end the run with exit status 1. Whether goals are reached does not change the exit status.\n";

/* ---- parts ---- */

const char alloc_parts[] =
    "pair,random,holes,live,multi_stream,threads,hand_over,replay,free_busy,beside,limit,reclaim,unified,pinned";

/* ---- recorded programs ---- */

static int bench_is_log(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".hdlog") == 0;
}

static bool bench_add_log(alloc_experiment *x, const char *path, char *error)
{
    return x->n_logs == ALLOC_REPLAYS_MAX || bench_alloc_log_read(path, &x->logs[x->n_logs++], error);
}

/* Adds all files of a directory, sorted by name. */
static bool bench_add_directory(alloc_experiment *x, const char *directory, char *error)
{
    struct dirent **entries;
    bool ok = true;
    int n = directory[0] ? scandir(directory, &entries, bench_is_log, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_BYTES];
        int length = snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        ok = ok && (length >= (int)sizeof(path) || bench_add_log(x, path, error));
        free(entries[i]);
    }
    if (n > 0) {
        free(entries);
    }
    return ok;
}

/* Finds the logs that the options name. If they name none, finds the logs beside the source, or
 * those installed with this program. */
static bool bench_find_logs(alloc_experiment *x, char *error)
{
    const bench_options *o = x->options;
    char folder[PATH_BYTES];
    bool ok = true;
    for (int i = 0; i < o->n_replays && ok; i++) {
        ok = bench_add_log(x, o->replays[i], error);
    }
    if (ok && x->n_logs == 0 &&
        cli_place_find("bench/logs", HEDDLE_DATA_FROM_BENCH[0] ? HEDDLE_DATA_FROM_BENCH "/heddle/logs" : NULL,
                       HEDDLE_DATA_INSTALLED "/heddle/logs", folder, sizeof(folder))) {
        ok = bench_add_directory(x, folder, error);
    }
    if (ok && x->n_logs == 0 && o->only && strcmp(o->only, "replay") == 0) {
        snprintf(error, PLAIN_ERROR, "no recorded programs were found; name one with --replay FILE");
        return false;
    }
    return ok;
}

/* ---- plan ---- */

static alloc_step *bench_add_step(alloc_experiment *x, const char *group,
                                  bool (*run)(alloc_experiment *, const alloc_step *, char *), uint64_t a, uint64_t b)
{
    static alloc_step left_out; /* receives the steps that the options do not select */
    bool wanted = x->n_steps < ALLOC_STEPS_MAX && cli_report_is_wanted(x->options->only, group);
    alloc_step *step = wanted ? &x->steps[x->n_steps++] : &left_out;
    *step = (alloc_step){.group = group, .run = run, .a = a, .b = b};
    return step;
}

#define NAME_STEP(step, id_format, name_format, ...)                                                                   \
    do {                                                                                                               \
        alloc_step *named = (step);                                                                                    \
        snprintf(named->id, sizeof(named->id), id_format, __VA_ARGS__);                                                \
        snprintf(named->name, sizeof(named->name), name_format, __VA_ARGS__);                                          \
    } while (0)

static void bench_size_text(uint64_t bytes, char out[REPORT_TEXT])
{
    bool mib = bytes >= ALLOC_MIB, kib = bytes >= 1024;
    snprintf(out, REPORT_TEXT, "%llu%s",
             (unsigned long long)(mib   ? bytes / ALLOC_MIB
                                  : kib ? bytes / 1024
                                        : bytes),
             mib   ? "MiB"
             : kib ? "KiB"
                   : "B");
}

static void bench_plan_one_thread(alloc_experiment *x)
{
    static const uint64_t sizes[] = {256, 4096, (uint64_t)1 << 20, (uint64_t)64 << 20};
    static const uint64_t counts[] = {1000, 10000, 100000}, largest[] = {1, 4, 64, 256, 1024, 4096};
    bool quick = x->options->quick;
    for (int i = 0; i < 4; i++) {
        char text[REPORT_TEXT];
        bench_size_text(sizes[i], text);
        NAME_STEP(bench_add_step(x, "pair", bench_alloc_run_pair, sizes[i], 0), "pair_%s", "pair, %s", text);
    }
    for (int n = 0; n < (quick ? 1 : 3); n++) {
        for (int i = 0; i < 6; i++) {
            if (!quick || i % 2 == 0) {
                NAME_STEP(bench_add_step(x, "random", bench_alloc_run_random, counts[n], largest[i]), "random_%d_%dMiB",
                          "n = %d, up to %d MiB", (int)counts[n], (int)largest[i]);
            }
        }
    }
    for (int i = 0; i < (quick ? 1 : 2); i++) {
        int holes = i ? 65536 : 4096;
        NAME_STEP(bench_add_step(x, "holes", bench_alloc_run_holes, (uint64_t)holes, 0), "holes_%d",
                  "pair of 1 KiB, %d holes", holes);
    }
    int live = quick ? 10000 : 100000;
    NAME_STEP(bench_add_step(x, "live", bench_alloc_run_live, (uint64_t)live, 0), "live_%d", "%d blocks live", live);
    for (int i = 0; i < x->n_logs; i++) {
        alloc_step *step = bench_add_step(x, "replay", bench_alloc_run_replay, 0, 0);
        alloc_log *log = &x->logs[i];
        bench_alloc_log_fit(log, x->room);
        step->log = log;
        snprintf(step->id, sizeof(step->id), "replay_%.50s", log->name);
        snprintf(step->name, sizeof(step->name), "%.40s%.*s", log->name, log->divisor > 1 ? 32 : 0, ", sizes divided");
    }
}

static void bench_plan_threads(alloc_experiment *x)
{
    bool quick = x->options->quick;
    for (int i = 0; i <= 4; i++) {
        int threads = 1 << i;
        if (!quick || threads == 1 || threads == 8) {
            NAME_STEP(bench_add_step(x, "threads", bench_alloc_run_thread_pairs, (uint64_t)threads, 4096),
                      "threads_pair_%d", "pair of 4 KiB, threads: %d", threads);
        }
    }
    for (int i = 0; i <= 4; i++) {
        int threads = 1 << i;
        if (!quick || threads == 4) {
            NAME_STEP(
                bench_add_step(x, "threads", bench_alloc_run_thread_random, (uint64_t)threads, quick ? 500 : 5000),
                "threads_random_%d", "random up to 1 MiB, threads: %d", threads);
        }
    }
    NAME_STEP(bench_add_step(x, "hand_over", bench_alloc_run_hand_over, 4096, 0), "hand_over_%dKiB",
              "pair of %d KiB, another thread frees", 4);
    for (int streams = 1; streams <= 4; streams++) {
        for (int cold = 1; cold >= 0; cold--) {
            if (!quick || streams == (cold ? 1 : 4)) {
                alloc_step *step =
                    bench_add_step(x, "multi_stream", bench_alloc_run_streams, (uint64_t)streams, (uint64_t)cold);
                snprintf(step->id, sizeof(step->id), "streams_%d_%s", streams, cold ? "cold" : "warm");
                snprintf(step->name, sizeof(step->name), "4 kernels, streams: %d, %s", streams, cold ? "cold" : "warm");
            }
        }
    }
}

static void bench_plan_rest(alloc_experiment *x)
{
    bool quick = x->options->quick, host = x->on_host;
    uint64_t limit = host ? 128 * ALLOC_MIB : 2048 * ALLOC_MIB;
    uint64_t loop_limit = !host ? 4096 * ALLOC_MIB : quick ? 8 * ALLOC_MIB : 32 * ALLOC_MIB;
    uint64_t kernel_ms = !host ? 100 : quick ? 15 : 30, run_ms = !host ? 2000 : quick ? 200 : 600;
    alloc_step *step = bench_add_step(x, "free_busy", bench_alloc_run_busy, kernel_ms, 0);
    snprintf(step->name, sizeof(step->name), "free while a kernel runs");
    step->fixed_s = (double)kernel_ms * 1e-3 * (2 * x->rounds + 6) * SIDES;
    step = bench_add_step(x, "beside", bench_alloc_run_beside, ALLOC_BESIDE_GROWTH, 0);
    snprintf(step->name, sizeof(step->name), "kernels beside growth");
    if (!quick) {
        step = bench_add_step(x, "beside", bench_alloc_run_beside, ALLOC_BESIDE_RANDOM, 0);
        snprintf(step->name, sizeof(step->name), "kernels beside random allocations");
    }
    step = bench_add_step(x, "limit", bench_alloc_run_limit, ALLOC_THREADS_MAX, limit < x->room ? limit : x->room);
    snprintf(step->name, sizeof(step->name), "storm under a limit");
    step->fixed_s = quick ? 0.4 : 2;
    step = bench_add_step(x, "reclaim", bench_alloc_run_reclaim, loop_limit < 2 * x->room ? loop_limit : 2 * x->room,
                          run_ms);
    snprintf(step->name, sizeof(step->name), "training loop under a limit");
    step->fixed_s = (double)run_ms * 1e-3 * 1.3 * 2 * x->rounds;
    step = bench_add_step(x, "unified", bench_alloc_run_unified, 0, 0);
    snprintf(step->name, sizeof(step->name), "unified memory by element");
    step = bench_add_step(x, "pinned", bench_alloc_run_pinned, (host ? 64 : 256) * ALLOC_MIB, 0);
    snprintf(step->name, sizeof(step->name), "pinned memory");
}

alloc_case *bench_alloc_case_add(alloc_experiment *x, const alloc_step *step)
{
    alloc_case *c = &x->cases[x->n_cases++]; /* at most one for each step */
    memset(c, 0, sizeof(*c));
    c->group = step->group;
    c->threads = 1;
    snprintf(c->id, sizeof(c->id), "%s", step->id);
    snprintf(c->name, sizeof(c->name), "%s", step->name);
    return c;
}

uint64_t bench_alloc_slice_end(const alloc_experiment *x, double slices)
{
    return cli_stats_monotonic() + (uint64_t)(slices * (double)x->slice_ns);
}

/* Divides the remaining time among the remaining steps. */
static void bench_set_slice(alloc_experiment *x, int step, double usual_ns)
{
    double left = x->budget_s - (double)(cli_stats_monotonic() - x->begun) * 1e-9;
    for (int i = step; i < x->n_steps; i++) {
        left -= x->steps[i].fixed_s;
    }
    double slice = left * 1e9 / (x->n_steps - step) / (SIDES * (x->rounds + 2));
    slice = slice < usual_ns ? slice : usual_ns;
    x->slice_ns = (uint64_t)(slice > slice_least_ns ? slice : slice_least_ns);
}

/* ---- open ---- */

static bool bench_open_runtime(alloc_experiment *x, const char *more, char *error)
{
    int device = cli_plain_device_number(x->options->device);
    snprintf(x->settings, sizeof(x->settings), "devices=%d memory_idle=0%s", device, more);
    hd_options options = {.size = sizeof(options), .settings = x->settings};
    x->info.size = sizeof(x->info);
    return cli_report_check(hd_open(&options, &x->runtime), "hd_open", error) &&
           cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error);
}

/* Host devices get as much memory as GPUs need here. Memory that nobody touches costs nothing. */
static bool bench_open_device(alloc_experiment *x, char *error)
{
    const char *memory = secure_getenv("HEDDLE_HOST_MEMORY");
    if (!bench_open_runtime(x, "", error)) {
        return false;
    }
    x->on_host = strcmp(x->info.driver, "host") == 0;
    if (x->on_host && (!memory || !memory[0])) {
        hd_close(x->runtime);
        x->runtime = NULL;
        if (!bench_open_runtime(x, " host_memory=16G", error)) {
            return false;
        }
    }
    hd_memory_stats stats = {.size = sizeof(stats)};
    x->device.size = sizeof(x->device);
    if (!cli_report_check(hd_device_get_info(x->runtime, 0, &x->device), "hd_device_get_info", error) ||
        !cli_report_check(hd_memory_get_stats(x->runtime, 0, &stats), "hd_memory_get_stats", error)) {
        return false;
    }
    uint64_t most = stats.limit_bytes < x->device.memory_free_bytes ? stats.limit_bytes : x->device.memory_free_bytes;
    x->room = most / 4 / ALLOC_MIB * ALLOC_MIB;
    if (x->room < 16 * ALLOC_MIB) {
        snprintf(error, PLAIN_ERROR, "the device has %llu MiB of memory to use; at least 64 are needed",
                 (unsigned long long)(most / ALLOC_MIB));
        return false;
    }
    return true;
}

/* Opens the rivals' device, context and pool. */
static bool bench_open_rivals(alloc_experiment *x, char *error)
{
    int pools = 0;
    if (!cli_plain_provider(x->on_host, x->settings, &x->driver, error) ||
        !cli_plain_find_device(x->driver, x->device.uuid, &x->ordinal, error) ||
        !DRIVER_TRY(x->driver, error, cuDevicePrimaryCtxRetain, (&x->context, x->ordinal)) ||
        !DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (x->context)) ||
        !cli_plain_builtin(x->info.driver, &x->image, error)) {
        return false;
    }
    const hdi_driver *d = x->driver;
    bool has_entries = d->cuMemAllocAsync && d->cuMemFreeAsync && d->cuDeviceGetDefaultMemPool &&
                       d->cuMemPoolGetAttribute && d->cuMemPoolSetAttribute && d->cuMemPoolTrimTo;
    if (has_entries &&
        d->cuDeviceGetAttribute(&pools, HDCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, x->ordinal) == HDCU_SUCCESS &&
        pools) {
        return DRIVER_TRY(d, error, cuDeviceGetDefaultMemPool, (&x->pool, x->ordinal));
    }
    return true;
}

static void bench_close_all(void *experiment)
{
    alloc_experiment *x = experiment;
    hd_close(x->runtime);
    if (x->context) {
        x->driver->cuCtxSetCurrent(NULL);
        x->driver->cuDevicePrimaryCtxRelease(x->ordinal);
    }
    for (int i = 0; i < x->n_logs; i++) {
        bench_alloc_log_release(&x->logs[i]);
    }
}

static bool bench_measure(void *experiment, char *error)
{
    alloc_experiment *x = experiment;
    const bench_options *o = x->options;
    cli_stats_clock_start();
    cli_report_progress(&o->run, "reading recorded programs", "", 0);
    if (cli_report_is_wanted(o->only, "replay") && !bench_find_logs(x, error)) {
        return false;
    }
    cli_report_progress(&o->run, "opening the device", "", 0);
    if (!bench_open_device(x, error) || !bench_open_rivals(x, error)) {
        return false;
    }
    machine_facts facts;
    cli_machine_read(&facts);
    x->processors = facts.processors;
    x->rounds = o->rounds ? o->rounds : o->quick ? 2 : x->on_host ? 3 : 5;
    x->budget_s = x->on_host ? (o->quick ? 9 : 100) : o->quick ? 30 : 115;
    double usual_ns = x->on_host ? (o->quick ? 15e6 : 40e6) : o->quick ? 25e6 : 100e6;
    bench_plan_one_thread(x);
    bench_plan_threads(x);
    bench_plan_rest(x);
    x->begun = cli_stats_monotonic();
    for (int i = 0; i < x->n_steps; i++) {
        const alloc_step *step = &x->steps[i];
        char why[PLAIN_ERROR] = "";
        cli_report_progress(&o->run, step->group, step->name, (double)i / x->n_steps);
        bench_set_slice(x, i, usual_ns);
        if (!step->run(x, step, why)) {
            snprintf(error, PLAIN_ERROR, "%s, %s: %.400s", step->group, step->name, why);
            return false;
        }
    }
    return true;
}

int bench_alloc_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench alloc", bench_measure, bench_close_all, bench_alloc_print_json};
    alloc_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
