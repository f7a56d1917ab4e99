/* copy_submit.c - the cost of a submit for its thread while transfers keep the copying threads
 * busy. These are staged copies between devices, and copies of program memory to a device and back.
 *
 * Threads: the conductor, which measures, and up to two that transfer. Locks: none.
 * Always: the transferring threads have ended when bench_copy_run_submit returns. Their first
 * failure fails the run.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "bench/copy_parts.h"

enum { BATCH = 32, SLICES = 2 };

typedef struct load {
    copy_experiment *x;
    hd_runtime *runtime;
    bool staged;
    size_t bytes;
    _Atomic bool *stop;
    _Atomic uint64_t moved; /* bytes */
    _Atomic bool ended;
    bool failed;
    char error[PLAIN_ERROR];
} load;

static bool bench_allocate(const load *l, int device, hd_buffer **out, char *error)
{
    hd_lane *lane = NULL;
    return cli_report_check(hd_lane_get_default(l->runtime, device, &lane), "hd_lane_get_default", error) &&
           cli_report_check(hd_alloc(lane, l->bytes, out), "hd_alloc", error);
}

/* Copies from device 0 to device 1, two copies in flight. */
static bool bench_stage(load *l, char *error)
{
    hd_buffer *from = NULL, *to = NULL;
    hd_ticket tickets[2] = {{NULL, 0}};
    bool ok = bench_allocate(l, 0, &from, error) && bench_allocate(l, 1, &to, error) &&
              cli_report_check(hd_fill(from, 0, 1, l->bytes, NULL), "hd_fill", error);
    for (uint64_t i = 0; ok && !atomic_load_explicit(l->stop, memory_order_relaxed); i++) {
        ok = cli_report_check(hd_wait(tickets[i % 2], COPY_TIMEOUT_NS), "hd_wait", error) &&
             cli_report_check(hd_copy(to, 0, from, 0, l->bytes, &tickets[i % 2]), "hd_copy", error);
        atomic_fetch_add_explicit(&l->moved, l->bytes, memory_order_relaxed);
    }
    for (int i = 0; i < 2; i++) {
        hd_wait(tickets[i], COPY_TIMEOUT_NS);
    }
    hd_free(from);
    hd_free(to);
    return ok;
}

static bool bench_write_and_read(load *l, char *error)
{
    hd_buffer *buffer = NULL;
    void *memory = malloc(l->bytes);
    if (!memory) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    memset(memory, 1, l->bytes);
    bool ok = bench_allocate(l, 0, &buffer, error);
    while (ok && !atomic_load_explicit(l->stop, memory_order_relaxed)) {
        ok = cli_report_check(hd_write(buffer, 0, memory, l->bytes), "hd_write", error) &&
             cli_report_check(hd_read(buffer, 0, memory, l->bytes), "hd_read", error);
        atomic_fetch_add_explicit(&l->moved, 2 * l->bytes, memory_order_relaxed);
    }
    hd_free(buffer);
    free(memory);
    return ok;
}

static void *bench_run_load(void *argument)
{
    load *l = argument;
    l->failed = !(l->staged ? bench_stage(l, l->error) : bench_write_and_read(l, l->error));
    atomic_store_explicit(&l->ended, true, memory_order_relaxed);
    return NULL;
}

/* A kernel that writes one word, in a lane of device 0. */
typedef struct probe {
    hd_lane *lane;
    hd_kernel *fill;
    hd_buffer *word;
    hd_arg args[3];
} probe;

static bool bench_open_probe(hd_runtime *runtime, probe *p, char *error)
{
    hd_module *module = NULL;
    bool ok = cli_report_check(hd_lane_create(runtime, 0, &p->lane), "hd_lane_create", error) &&
              cli_report_check(hd_alloc(p->lane, 256, &p->word), "hd_alloc", error) &&
              cli_report_check(hd_module_get_builtin(runtime, &module), "hd_module_get_builtin", error) &&
              cli_report_check(hd_kernel_get(module, "hd_fill_u32", &p->fill), "hd_kernel_get", error);
    p->args[0] = hd_out(p->word);
    p->args[1] = hd_u64(1);
    p->args[2] = hd_u32(1);
    return ok;
}

static bool bench_measure(copy_experiment *x, probe *p, stats_histogram *out, char *error)
{
    uint64_t end = cli_stats_monotonic() + (uint64_t)(SLICES * x->slice_ns);
    do {
        hd_ticket ticket = {NULL, 0};
        for (int i = 0; i < BATCH; i++) {
            uint64_t tick = cli_stats_tick_begin();
            hd_status status =
                hd_launch(p->lane, p->fill, (hd_dims){1, 1, 1}, (hd_dims){32, 1, 1}, 0, p->args, 3, &ticket);
            cli_stats_record(out, cli_stats_tick_end() - tick);
            if (status != HD_OK) {
                return cli_report_check(status, "hd_launch", error);
            }
        }
        if (!cli_report_check(hd_wait(ticket, COPY_TIMEOUT_NS), "hd_wait", error)) {
            return false;
        }
    } while (cli_stats_monotonic() < end);
    return true;
}

/* One round beside the transfers. */
static bool bench_measure_busy(copy_experiment *x, hd_runtime *runtime, probe *p, char *error)
{
    _Atomic bool stop = false;
    load loads[2];
    pthread_t threads[2];
    int n = 0;
    bool ok = true;
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < x->n && ok; i++) {
        loads[i] = (load){.x = x, .runtime = runtime, .staged = i == 1, .bytes = x->large / 4, .stop = &stop};
        ok = pthread_create(&threads[i], NULL, bench_run_load, &loads[i]) == 0;
        n += ok;
    }
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "no thread can be started");
    }
    for (int i = 0; i < n && ok; i++) { /* without transfers there is nothing to measure */
        while (atomic_load_explicit(&loads[i].moved, memory_order_relaxed) == 0 &&
               !atomic_load_explicit(&loads[i].ended, memory_order_relaxed)) {
            hdi_sleep_for(100000);
        }
    }
    ok = ok && bench_measure(x, p, &x->submits.busy, error);
    double ns = (double)(cli_stats_monotonic() - begin);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        double gbs = (double)atomic_load_explicit(&loads[i].moved, memory_order_relaxed) / ns / x->rounds;
        pthread_join(threads[i], NULL);
        *(loads[i].staged ? &x->submits.staged_gbs : &x->submits.pageable_gbs) += gbs;
        if (ok && loads[i].failed) {
            snprintf(error, PLAIN_ERROR, "beside the submits: %.400s", loads[i].error);
            ok = false;
        }
    }
    return ok;
}

bool bench_copy_run_submit(copy_experiment *x, char *error)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof(options), .settings = "peers=off"};
    probe p = {NULL};
    stats_histogram *warm = calloc(1, sizeof(*warm));
    bool ok = warm && cli_report_check(hd_open(&options, &runtime), "hd_open", error) &&
              bench_open_probe(runtime, &p, error) && bench_measure(x, &p, warm, error);
    for (int round = 0; round < x->rounds && ok; round++) {
        ok = bench_measure(x, &p, &x->submits.quiet, error) && bench_measure_busy(x, runtime, &p, error);
    }
    x->submits.measured = ok;
    hd_free(p.word);
    hd_close(runtime);
    free(warm);
    return ok;
}
