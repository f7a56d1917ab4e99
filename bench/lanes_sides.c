/* lanes_sides.c - both sides of the experiment: launch loops and disturbance, by plain driver calls
 * and through Heddle.
 *
 * Both sides use the same matrices. Their products are compared with a product in double precision.
 *
 * Threads: any thread uses the matrices. A driver loop runs on the thread (or in the process) that
 * drives one device, after bench_lanes_driver_warm there. A Heddle loop runs on the thread that
 * drives one device or all of them, after bench_lanes_heddle_warm there. A disturber has its own
 * thread. Locks: none.
 * Always:
 *   - A device number gives the same matrices in every process and every run. The bound is rigorous
 *     for any order of summation, with or without fused multiply-add. So a result above it is
 *     wrong.
 *   - At most two batches a device are in flight, and all are finished when a loop returns.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/lanes_parts.h"

/* ---- problem ---- */

/* splitmix64 */
static uint64_t bench_next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniformly distributed in [-1, 1), exact in a float. */
static void bench_fill_random(uint64_t *state, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)((int32_t)(bench_next_random(state) >> 40) - (1 << 23)) / (float)(1 << 23);
    }
}

/* reference = a b, and bound = (k + 1) 2^-24 |a| |b| (1 + a little). */
static void bench_multiply(lanes_problem *p)
{
    static const double unit = 1.0 / (1 << 24);
    double sum[LANES_N], magnitude[LANES_N];
    for (int i = 0; i < LANES_M; i++) {
        memset(sum, 0, sizeof(sum));
        memset(magnitude, 0, sizeof(magnitude));
        for (int l = 0; l < LANES_K; l++) {
            double a = p->a[i * LANES_K + l];
            const float *b = p->b + (size_t)l * LANES_N;
            for (int j = 0; j < LANES_N; j++) {
                double product = a * b[j];
                sum[j] += product;
                magnitude[j] += fabs(product);
            }
        }
        for (int j = 0; j < LANES_N; j++) {
            p->reference[i * LANES_N + j] = sum[j];
            p->bound[i * LANES_N + j] = (float)((LANES_K + 1) * unit * magnitude[j] * 1.001);
        }
    }
}

bool bench_lanes_problem_make(int device, bool with_reference, lanes_problem *out, char *error)
{
    lanes_problem p = {0};
    p.a = malloc(sizeof(float) * LANES_M * LANES_K);
    p.b = malloc(sizeof(float) * LANES_K * LANES_N);
    if (with_reference) {
        p.reference = malloc(sizeof(double) * LANES_M * LANES_N);
        p.bound = malloc(sizeof(float) * LANES_M * LANES_N);
    }
    if (!p.a || !p.b || (with_reference && (!p.reference || !p.bound))) {
        bench_lanes_problem_release(&p);
        snprintf(error, PLAIN_ERROR, "out of memory for the matrices");
        return false;
    }
    uint64_t state = 0x6865646c65u + (uint64_t)device;
    bench_fill_random(&state, p.a, LANES_M * LANES_K);
    bench_fill_random(&state, p.b, LANES_K * LANES_N);
    if (with_reference) {
        bench_multiply(&p);
    }
    *out = p;
    return true;
}

void bench_lanes_problem_release(lanes_problem *p)
{
    free(p->a);
    free(p->b);
    free(p->reference);
    free(p->bound);
    memset(p, 0, sizeof(*p));
}

double bench_lanes_problem_error(const lanes_problem *p, const float *c)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)LANES_M * LANES_N; i++) {
        double error = fabs((double)c[i] - p->reference[i]);
        if (!(error <= worst * p->bound[i])) {
            if (!isfinite(error)) {
                return INFINITY;
            }
            worst = p->bound[i] > 0 ? error / p->bound[i] : INFINITY;
        }
    }
    return worst;
}

/* ---- plain driver ---- */

bool bench_lanes_driver_warm(const plain_driver *d, plain_device *device, int launches, char *error)
{
    if (!PLAIN_TRY(d, error, cuCtxSetCurrent, (device->context))) {
        return false;
    }
    for (int i = 0; i < launches; i++) {
        if (!cli_plain_check(d, cli_plain_launch_matmul(d, device), "cuLaunchKernel", error)) {
            return false;
        }
    }
    return PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream));
}

bool bench_lanes_driver_loop(const plain_driver *d, plain_device *device, const lanes_when *when, lanes_result *out,
                             char *error)
{
    bench_lanes_sleep_until(when->begin);
    uint64_t begin = cli_stats_monotonic(), batches = 0;
    do {
        for (int i = 0; i < when->batch; i++) {
            uint64_t tick = cli_stats_tick_begin();
            hdcu_result result = cli_plain_launch_matmul(d, device);
            cli_stats_record(&out->submit, cli_stats_tick_end() - tick);
            if (result != HDCU_SUCCESS) {
                return cli_plain_check(d, result, "cuLaunchKernel", error);
            }
        }
        if (!PLAIN_TRY(d, error, cuEventRecord, (device->event[batches & 1], device->stream))) {
            return false;
        }
        batches++;
        if (batches > 1 && !PLAIN_TRY(d, error, cuEventSynchronize, (device->event[batches & 1]))) {
            return false;
        }
    } while (cli_stats_monotonic() < when->end);
    if (!PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream))) {
        return false;
    }
    out->elapsed_ns = cli_stats_monotonic() - begin;
    out->kernels = batches * (uint64_t)when->batch;
    return true;
}

bool bench_lanes_driver_flow(const plain_driver *d, plain_device *device, uint64_t launches, double *us, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    for (uint64_t i = 0; i < launches; i++) {
        hdcu_result result = cli_plain_launch_fill(d, device);
        if (result != HDCU_SUCCESS) {
            return cli_plain_check(d, result, "cuLaunchKernel", error);
        }
    }
    if (!PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream))) {
        return false;
    }
    *us = (double)(cli_stats_monotonic() - begin) / (double)launches * 1e-3;
    return true;
}

bool bench_lanes_driver_trips(const plain_driver *d, plain_device *device, uint64_t trips, double *us, char *error)
{
    static stats_histogram h; /* not reentrant */
    memset(&h, 0, sizeof(h));
    for (uint64_t i = 0; i < trips; i++) {
        uint64_t tick = cli_stats_tick_begin();
        hdcu_result launched = cli_plain_launch_fill(d, device), waited = d->cuStreamSynchronize(device->stream);
        cli_stats_record(&h, cli_stats_tick_end() - tick);
        if (launched != HDCU_SUCCESS || waited != HDCU_SUCCESS) {
            return cli_plain_check(d, launched ? launched : waited, "launch + wait", error);
        }
    }
    *us = cli_stats_summarise(&h).median_ns * 1e-3;
    return true;
}

static bool bench_disturb_driver_once(const plain_driver *d, plain_device *device, const plain_image *image,
                                      size_t device_bytes, size_t pinned_bytes, char *error)
{
    hdcu_deviceptr memory;
    void *pinned;
    hdcu_module module;
    return PLAIN_TRY(d, error, cuCtxSetCurrent, (device->context)) &&
           PLAIN_TRY(d, error, cuMemAlloc, (&memory, device_bytes)) && PLAIN_TRY(d, error, cuMemFree, (memory)) &&
           PLAIN_TRY(d, error, cuMemHostAlloc,
                     (&pinned, pinned_bytes, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP)) &&
           PLAIN_TRY(d, error, cuMemFreeHost, (pinned)) &&
           PLAIN_TRY(d, error, cuModuleLoadDataEx, (&module, image->driver, 0, NULL, NULL)) &&
           PLAIN_TRY(d, error, cuModuleUnload, (module));
}

bool bench_lanes_driver_disturb(const plain_driver *d, plain_device *devices, int count, const plain_image *image,
                                const lanes_disturb_size *size, _Atomic uint32_t *stop, lanes_disturbance *out,
                                char *error)
{
    uint64_t begin = cli_stats_monotonic();
    size_t pinned = size->pinned_low;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_acquire); i = (i + 1) % count) {
        if (!bench_disturb_driver_once(d, &devices[i], image, size->device_bytes, pinned, error)) {
            return false;
        }
        pinned = pinned < size->pinned_high ? pinned * 2 : size->pinned_low;
        out->cycles++;
    }
    out->elapsed_ns = cli_stats_monotonic() - begin;
    return true;
}

/* ---- Heddle ---- */

static const hd_dims matmul_grid = {(LANES_N + 31) / 32, (LANES_M + 31) / 32, 1}, matmul_block = {32, 32, 1};
static const hd_dims one_block = {1, 1, 1}, one_warp = {32, 1, 1};

bool bench_lanes_heddle_open(hd_runtime *runtime, int device, const lanes_problem *problem, lanes_heddle *out,
                             char *error)
{
    size_t a_bytes = sizeof(float) * LANES_M * LANES_K, b_bytes = sizeof(float) * LANES_K * LANES_N;
    hd_module *module;
    memset(out, 0, sizeof(*out));
    out->runtime = runtime;
    out->device = device;
    hd_lane *lane = NULL;
    if (!cli_report_check(hd_lane_get_default(runtime, device, &lane), "hd_lane_get_default", error) ||
        !cli_report_check(hd_module_get_builtin(runtime, &module), "hd_module_get_builtin", error) ||
        !cli_report_check(hd_kernel_get(module, "hd_matmul_f32", &out->matmul), "hd_kernel_get", error) ||
        !cli_report_check(hd_kernel_get(module, "hd_fill_u32", &out->fill), "hd_kernel_get", error) ||
        !cli_report_check(hd_alloc(lane, a_bytes, &out->a), "hd_alloc", error) ||
        !cli_report_check(hd_alloc(lane, b_bytes, &out->b), "hd_alloc", error) ||
        !cli_report_check(hd_alloc(lane, sizeof(float) * LANES_M * LANES_N, &out->c), "hd_alloc", error) ||
        !cli_report_check(hd_alloc(lane, 256, &out->word), "hd_alloc", error) ||
        !cli_report_check(hd_write(out->a, 0, problem->a, a_bytes), "hd_write", error) ||
        !cli_report_check(hd_write(out->b, 0, problem->b, b_bytes), "hd_write", error)) {
        bench_lanes_heddle_close(out);
        return false;
    }
    out->matmul_args[0] = hd_out(out->c);
    out->matmul_args[1] = hd_in(out->a);
    out->matmul_args[2] = hd_in(out->b);
    out->matmul_args[3] = hd_u32(LANES_M);
    out->matmul_args[4] = hd_u32(LANES_N);
    out->matmul_args[5] = hd_u32(LANES_K);
    out->fill_args[0] = hd_out(out->word);
    out->fill_args[1] = hd_u64(1);
    out->fill_args[2] = hd_u32(1);
    return true;
}

void bench_lanes_heddle_close(lanes_heddle *h)
{
    hd_free(h->a);
    hd_free(h->b);
    hd_free(h->c);
    hd_free(h->word);
    memset(h, 0, sizeof(*h));
}

bool bench_lanes_heddle_poison(lanes_heddle *h, char *error)
{
    hd_ticket ticket;
    return cli_report_check(hd_fill(h->c, 0, 0xffffffffu, hd_buffer_size(h->c), &ticket), "hd_fill", error) &&
           cli_report_check(hd_wait(ticket, LANES_TIMEOUT_NS), "hd_wait", error);
}

bool bench_lanes_heddle_result(lanes_heddle *h, float *c, char *error)
{
    return cli_report_check(hd_read(h->c, 0, c, hd_buffer_size(h->c)), "hd_read", error);
}

static bool bench_find_lanes(lanes_heddle *devices, int count, hd_lane **lanes, char *error)
{
    for (int i = 0; i < count; i++) {
        if (!cli_report_check(hd_lane_get_default(devices[i].runtime, devices[i].device, &lanes[i]),
                              "hd_lane_get_default", error)) {
            return false;
        }
    }
    return true;
}

static inline hd_status bench_launch_matmul(hd_lane *lane, lanes_heddle *h, hd_ticket *out)
{
    return hd_launch(lane, h->matmul, matmul_grid, matmul_block, 0, h->matmul_args, 6, out);
}

bool bench_lanes_heddle_warm(lanes_heddle *devices, int count, int launches, char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    if (!bench_find_lanes(devices, count, lanes, error)) {
        return false;
    }
    for (int i = 0; i < launches * count; i++) {
        if (!cli_report_check(bench_launch_matmul(lanes[i % count], &devices[i % count], NULL), "hd_launch", error)) {
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        if (!cli_report_check(hd_lane_wait(lanes[i], LANES_TIMEOUT_NS), "hd_lane_wait", error)) {
            return false;
        }
    }
    return true;
}

static bool bench_wait_all(const hd_ticket *tickets, int count, char *error)
{
    for (int i = 0; i < count; i++) {
        if (!cli_report_check(hd_wait(tickets[i], LANES_TIMEOUT_NS), "hd_wait", error)) {
            return false;
        }
    }
    return true;
}

bool bench_lanes_heddle_loop(lanes_heddle *devices, int count, const lanes_when *when, lanes_result *out, char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    hd_ticket tickets[2][LANES_DEVICES_MAX] = {{{NULL, 0}}};
    if (!bench_find_lanes(devices, count, lanes, error)) {
        return false;
    }
    bench_lanes_sleep_until(when->begin);
    uint64_t begin = cli_stats_monotonic(), batches = 0;
    do {
        for (int i = 0; i < when->batch; i++) {
            for (int j = 0; j < count; j++) {
                uint64_t tick = cli_stats_tick_begin();
                hd_status status = bench_launch_matmul(lanes[j], &devices[j], &tickets[batches & 1][j]);
                cli_stats_record(&out->submit, cli_stats_tick_end() - tick);
                if (status != HD_OK) {
                    return cli_report_check(status, "hd_launch", error);
                }
            }
        }
        batches++;
        if (batches > 1 && !bench_wait_all(tickets[batches & 1], count, error)) {
            return false;
        }
    } while (cli_stats_monotonic() < when->end);
    if (!bench_wait_all(tickets[(batches - 1) & 1], count, error)) {
        return false;
    }
    out->elapsed_ns = cli_stats_monotonic() - begin;
    out->kernels = batches * (uint64_t)when->batch * (uint64_t)count;
    return true;
}

bool bench_lanes_heddle_flow(lanes_heddle *h, uint64_t launches, double *us, char *error)
{
    hd_lane *lane = NULL;
    if (!bench_find_lanes(h, 1, &lane, error)) {
        return false;
    }
    hd_ticket ticket = {NULL, 0};
    uint64_t begin = cli_stats_monotonic();
    for (uint64_t i = 0; i < launches; i++) {
        hd_status status = hd_launch(lane, h->fill, one_block, one_warp, 0, h->fill_args, 3, &ticket);
        if (status != HD_OK) {
            return cli_report_check(status, "hd_launch", error);
        }
    }
    if (!cli_report_check(hd_wait(ticket, LANES_TIMEOUT_NS), "hd_wait", error)) {
        return false;
    }
    *us = (double)(cli_stats_monotonic() - begin) / (double)launches * 1e-3;
    return true;
}

bool bench_lanes_heddle_trips(lanes_heddle *h, uint64_t trips, double *us, char *error)
{
    static stats_histogram calls; /* not reentrant */
    memset(&calls, 0, sizeof(calls));
    hd_lane *lane = NULL;
    if (!bench_find_lanes(h, 1, &lane, error)) {
        return false;
    }
    for (uint64_t i = 0; i < trips; i++) {
        hd_ticket ticket = {NULL, 0};
        uint64_t tick = cli_stats_tick_begin();
        hd_status status = hd_launch(lane, h->fill, one_block, one_warp, 0, h->fill_args, 3, &ticket);
        status = status == HD_OK ? hd_wait(ticket, LANES_TIMEOUT_NS) : status;
        cli_stats_record(&calls, cli_stats_tick_end() - tick);
        if (status != HD_OK) {
            return cli_report_check(status, "launch + wait", error);
        }
    }
    *us = cli_stats_summarise(&calls).median_ns * 1e-3;
    return true;
}

lanes_disturb_size bench_lanes_disturb_usual(bool on_host)
{
    size_t megabyte = (size_t)1 << 20;
    return (lanes_disturb_size){.device_bytes = (on_host ? 8 : 64) * megabyte,
                                .pinned_low = megabyte,
                                .pinned_high = (on_host ? 4 : 16) * megabyte};
}

static bool bench_disturb_heddle_once(lanes_heddle *h, hd_lane *lane, const plain_image *image, size_t device_bytes,
                                      size_t pinned_bytes, char *error)
{
    hd_buffer *memory, *pinned;
    hd_module *module;
    if (!cli_report_check(hd_alloc(lane, device_bytes, &memory), "hd_alloc", error)) {
        return false;
    }
    hd_free(memory);
    if (!cli_report_check(hd_alloc_host(h->runtime, pinned_bytes, &pinned), "hd_alloc_host", error)) {
        return false;
    }
    hd_free(pinned);
    if (!cli_report_check(hd_module_load(h->runtime, image->file, image->file_bytes, &module), "hd_module_load",
                          error)) {
        return false;
    }
    hd_module_unload(module);
    return true;
}

bool bench_lanes_heddle_disturb(lanes_heddle *devices, int count, const plain_image *image,
                                const lanes_disturb_size *size, _Atomic uint32_t *stop, lanes_disturbance *out,
                                char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    if (!bench_find_lanes(devices, count, lanes, error)) {
        return false;
    }
    uint64_t begin = cli_stats_monotonic();
    size_t pinned = size->pinned_low;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_acquire); i = (i + 1) % count) {
        if (!bench_disturb_heddle_once(&devices[i], lanes[i], image, size->device_bytes, pinned, error)) {
            return false;
        }
        pinned = pinned < size->pinned_high ? pinned * 2 : size->pinned_low;
        out->cycles++;
        if (size->every_ns) {
            /* returns at once if the time is over */
            bench_lanes_sleep_until(begin + out->cycles * size->every_ns);
        }
    }
    out->elapsed_ns = cli_stats_monotonic() - begin;
    return true;
}
