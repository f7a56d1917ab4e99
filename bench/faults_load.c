/* faults_load.c - keeps a device busy and checks every result; makes the device fault, and times
 * its recovery.
 *
 * All three faults use only parts that every machine provides: built-in kernels and a signal. So
 * the benchmark needs no compiler, and makes the same faults on GPUs and on host devices.
 *   - an illegal address: hd_sum_f32 of far more elements than exist. It only reads, in strides of
 *     64 MiB, until it reaches unmapped memory. So it changes no memory of this device, nor of
 *     another one whose memory is mapped behind it.
 *   - a killed worker: SIGKILL, with a batch in flight.
 *   - an endless kernel: hd_matmul_f32 of matrices with no rows and no columns, but 2^32 - 1 terms
 *     an element. Every block goes through all its terms without touching memory, and there are 4
 *     billion blocks.
 *
 * Threads: everything here runs on the load's own thread, except bench_faults_load_steps and
 * bench_faults_load_latest, which the conductor calls. Locks: the load's lock, around its log only.
 * Always:
 *   - At most two batches are in flight. A batch counts as done after its wait, and as checked
 *     after every element of its result was compared. Every number is whole and below 2^24, so
 *     comparisons are exact.
 *   - The benchmark has nothing in flight on the device before the first and the third fault. So
 *     the measured times are those of the fault alone.
 */
#include "bench/faults_parts.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 50, /* two batches of two launches a step fit into a lane's ring */
    TRIES = 3       /* steps that show the time of one */
};

static const hd_dims matmul_block = {32, 32, 1}, axpy_block = {256, 1, 1};

/* ---- problem ---- */

/* 1, 2 or 3: no element of the product is zero, and 50 products of k = 320 stay far below 2^24. */
static void bench_fill_small(float *values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(1 + (seed >> 16) % 3);
    }
}

bool bench_faults_problem_make(bool on_host, faults_problem *out, char *error)
{
    /* on a GPU a product takes about 20 us, as in `heddle bench lanes`; on the CPU it is small */
    faults_problem p = {.m = on_host ? 64 : 320, .n = on_host ? 64 : 640, .k = on_host ? 64 : 320};
    size_t a_count = (size_t)p.m * p.k, b_count = (size_t)p.k * p.n, c_count = (size_t)p.m * p.n;
    p.a_bytes = sizeof(float) * a_count, p.b_bytes = sizeof(float) * b_count, p.c_bytes = sizeof(float) * c_count;
    p.a = malloc(p.a_bytes);
    p.b = malloc(p.b_bytes);
    p.product = calloc(c_count, sizeof(float));
    if (!p.a || !p.b || !p.product) {
        bench_faults_problem_release(&p);
        snprintf(error, PLAIN_ERROR, "out of memory for the matrices");
        return false;
    }
    bench_fill_small(p.a, a_count, 1);
    bench_fill_small(p.b, b_count, 2);
    for (uint32_t i = 0; i < p.m; i++) {
        for (uint32_t l = 0; l < p.k; l++) {
            for (uint32_t j = 0; j < p.n; j++) {
                p.product[(size_t)i * p.n + j] += p.a[(size_t)i * p.k + l] * p.b[(size_t)l * p.n + j];
            }
        }
    }
    *out = p;
    return true;
}

void bench_faults_problem_release(faults_problem *p)
{
    free(p->a);
    free(p->b);
    free(p->product);
    memset(p, 0, sizeof(*p));
}

/* ---- log ---- */

static void bench_log_batch(faults_load *l, uint64_t at)
{
    pthread_mutex_lock(&l->lock);
    l->steps_done += (uint64_t)l->steps;
    l->log[l->logged % FAULTS_LOG].at = at;
    l->log[l->logged % FAULTS_LOG].steps = l->steps_done;
    l->logged++;
    pthread_mutex_unlock(&l->lock);
}

uint64_t bench_faults_load_latest(faults_load *l)
{
    pthread_mutex_lock(&l->lock);
    uint64_t at = l->logged ? l->log[(l->logged - 1) % FAULTS_LOG].at : 0;
    pthread_mutex_unlock(&l->lock);
    return at;
}

double bench_faults_load_steps(faults_load *l, uint64_t at)
{
    double steps = 0;
    pthread_mutex_lock(&l->lock);
    uint64_t oldest = l->logged > FAULTS_LOG ? l->logged - FAULTS_LOG : 0;
    for (uint64_t i = l->logged; i > oldest; i--) {
        uint64_t e = (i - 1) % FAULTS_LOG, next = i % FAULTS_LOG;
        if (l->log[e].at > at) {
            continue;
        }
        steps = (double)l->log[e].steps;
        if (i < l->logged) { /* a batch finished after `at` */
            steps += (double)(l->log[next].steps - l->log[e].steps) * (double)(at - l->log[e].at) /
                     (double)(l->log[next].at - l->log[e].at);
        }
        break;
    }
    pthread_mutex_unlock(&l->lock);
    return steps;
}

/* ---- batches ---- */

static bool bench_faults_load_multiply(faults_load *l, hd_ticket *out, char *error)
{
    const faults_problem *p = l->problem;
    const hd_dims grid = {(p->n + 31) / 32, (p->m + 31) / 32, 1};
    const hd_arg arguments[6] = {hd_out(l->c), hd_in(l->a), hd_in(l->b), hd_u32(p->m), hd_u32(p->n), hd_u32(p->k)};
    return cli_report_check(hd_launch(l->lane, l->matmul, grid, matmul_block, 0, arguments, 6, out), "hd_launch",
                            error);
}

static bool bench_submit_batch(faults_load *l, int slot, char *error)
{
    uint64_t count = (uint64_t)l->problem->m * l->problem->n;
    const hd_dims grid = {(uint32_t)((count + 255) / 256), 1, 1};
    const hd_arg arguments[4] = {hd_inout(l->y[slot]), hd_in(l->c), hd_f32(1), hd_u64(count)};
    l->in_flight[slot] = true;
    if (!cli_report_check(hd_fill(l->y[slot], 0, 0, l->problem->c_bytes, &l->ticket[slot]), "hd_fill", error)) {
        return false;
    }
    for (int i = 0; i < l->steps; i++) {
        if (!bench_faults_load_multiply(l, NULL, error) ||
            !cli_report_check(hd_launch(l->lane, l->axpy, grid, axpy_block, 0, arguments, 4, &l->ticket[slot]),
                              "hd_launch", error)) {
            return false;
        }
    }
    return true;
}

/* The number of elements of l->result that differ from `times` times the product. */
static uint64_t bench_faults_load_wrong(const faults_load *l, float times)
{
    uint64_t wrong = 0;
    size_t count = (size_t)l->problem->m * l->problem->n;
    for (size_t i = 0; i < count; i++) {
        wrong += l->result[i] != times * l->problem->product[i];
    }
    return wrong;
}

static bool bench_finish_batch(faults_load *l, int slot, char *error)
{
    if (!l->in_flight[slot]) {
        return true;
    }
    if (!cli_report_check(hd_wait(l->ticket[slot], FAULTS_TIMEOUT_NS), "hd_wait", error)) {
        return false;
    }
    bench_log_batch(l, cli_stats_monotonic());
    l->in_flight[slot] = false;
    if (!cli_report_check(hd_read(l->y[slot], 0, l->result, l->problem->c_bytes), "hd_read", error)) {
        return false;
    }
    l->elements_wrong += bench_faults_load_wrong(l, (float)l->steps);
    l->checked++;
    return true;
}

/* Runs one more batch. False: something failed, and the state of the batches in flight is
 * unknown. The load's thread calls this. */
static bool bench_faults_load_turn(faults_load *l, char *error)
{
    int slot = l->slot;
    l->slot ^= 1;
    return bench_submit_batch(l, slot, error) && bench_finish_batch(l, l->slot, error);
}

/* Finishes the batches in flight. */
static bool bench_faults_load_drain(faults_load *l, char *error)
{
    return bench_finish_batch(l, l->slot, error) && bench_finish_batch(l, l->slot ^ 1, error);
}

/* ---- buffers ---- */

/* Makes a new c, and computes the product into it behind everything in the lane. */
static bool bench_faults_load_remake_c(faults_load *l, char *error)
{
    hd_free(l->c);
    l->c = NULL;
    return cli_report_check(hd_alloc(l->lane, l->problem->c_bytes, &l->c), "hd_alloc", error);
}

static bool bench_make_sums(faults_load *l, char *error)
{
    for (int i = 0; i < 2; i++) {
        hd_free(l->y[i]);
        l->y[i] = NULL;
        l->in_flight[i] = false;
        if (!cli_report_check(hd_alloc(l->lane, l->problem->c_bytes, &l->y[i]), "hd_alloc", error)) {
            return false;
        }
    }
    return true;
}

static bool bench_as_saved(hd_buffer *buffer, const float *content, size_t bytes, bool *same, char *error)
{
    float *found = malloc(bytes);
    if (!found) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    bool ok = cli_report_check(hd_read(buffer, 0, found, bytes), "hd_read of a checkpoint", error);
    *same = *same && ok && memcmp(found, content, bytes) == 0;
    free(found);
    return ok;
}

/* After a restart: drops the batches in flight, and compares the checkpoints with the saved
 * bytes. Then makes the other buffers again (c may exist already). */
static bool bench_faults_load_rebuild(faults_load *l, char *error)
{
    const faults_problem *p = l->problem;
    bool same = true;
    if (!bench_as_saved(l->a, p->a, p->a_bytes, &same, error) ||
        !bench_as_saved(l->b, p->b, p->b_bytes, &same, error)) {
        return false;
    }
    l->kept_wrong += !same;
    return bench_make_sums(l, error) && (l->c || bench_faults_load_remake_c(l, error));
}

/* A buffer with a checkpoint, filled and saved. */
static bool bench_make_kept(faults_load *l, const float *content, size_t bytes, hd_buffer **out, char *error)
{
    const hd_alloc_options keep = {.size = sizeof(keep), .flags = HD_ALLOC_KEEP};
    hd_ticket saved;
    return cli_report_check(hd_alloc_with(l->lane, bytes, &keep, out), "hd_alloc_with", error) &&
           cli_report_check(hd_write(*out, 0, content, bytes), "hd_write", error) &&
           cli_report_check(hd_buffer_save(*out, &saved), "hd_buffer_save", error) &&
           cli_report_check(hd_wait(saved, FAULTS_TIMEOUT_NS), "hd_wait of a save", error);
}

static bool bench_open_load(faults_load *l, char *error)
{
    const faults_problem *p = l->problem;
    hd_module *module;
    l->result = malloc(p->c_bytes);
    if (!l->result) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    return cli_report_check(hd_lane_get_default(l->runtime, l->device, &l->lane), "hd_lane_get_default", error) &&
           cli_report_check(hd_module_get_builtin(l->runtime, &module), "hd_module_get_builtin", error) &&
           cli_report_check(hd_kernel_get(module, "hd_matmul_f32", &l->matmul), "hd_kernel_get", error) &&
           cli_report_check(hd_kernel_get(module, "hd_axpy_f32", &l->axpy), "hd_kernel_get", error) &&
           cli_report_check(hd_kernel_get(module, "hd_sum_f32", &l->sum), "hd_kernel_get", error) &&
           bench_make_kept(l, p->a, p->a_bytes, &l->a, error) && bench_make_kept(l, p->b, p->b_bytes, &l->b, error) &&
           bench_faults_load_remake_c(l, error) && bench_make_sums(l, error);
}

/* Finds how many steps make a batch of a few milliseconds. */
static bool bench_size_batches(faults_load *l, char *error)
{
    hd_ticket ticket;
    double target_ns = l->problem->m < 320 ? 10e6 : 1.5e6;
    uint64_t begin = 0;
    for (int tries = 1; tries <= TRIES; tries += TRIES - 1) { /* first one step to warm up */
        begin = cli_stats_monotonic();
        for (int i = 0; i < tries; i++) {
            if (!bench_faults_load_multiply(l, &ticket, error)) {
                return false;
            }
        }
        if (!cli_report_check(hd_wait(ticket, FAULTS_TIMEOUT_NS), "hd_wait", error)) {
            return false;
        }
    }
    double fit = target_ns * TRIES / (double)(cli_stats_monotonic() - begin + 1);
    l->steps = fit < 1 ? 1 : fit > STEPS_MAX ? STEPS_MAX : (int)fit;
    return true;
}

/* ---- fault ---- */

static bool bench_lost(hd_status status)
{
    return status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED || status == HD_ERROR_LANE_FAILED;
}

static hd_status bench_launch_stray(faults_load *l, hd_ticket *out)
{
    const hd_dims grid = {1 << 16, 1, 1}, block = {256, 1, 1};
    const hd_arg arguments[3] = {hd_inout(l->y[0]), hd_in(l->a), hd_u64(UINT64_C(1) << 46)};
    return hd_launch(l->lane, l->sum, grid, block, 0, arguments, 3, out);
}

static hd_status bench_launch_endless(faults_load *l, hd_ticket *out)
{
    const hd_dims grid = {65535, 65535, 1}, block = {32, 32, 1};
    const hd_arg arguments[6] = {hd_out(l->c), hd_in(l->a), hd_in(l->b), hd_u32(0), hd_u32(0), hd_u32(UINT32_MAX)};
    return hd_launch(l->lane, l->matmul, grid, block, 0, arguments, 6, out);
}

/* Launches a kernel that fails the device, and waits for its failure. */
static bool bench_strike_by_kernel(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_ticket ticket;
    if (!bench_faults_load_drain(l, error)) {
        return false;
    }
    s->fault_at = cli_stats_monotonic();
    hd_status status = s->kind == FAULTS_ADDRESS ? bench_launch_stray(l, &ticket) : bench_launch_endless(l, &ticket);
    if (status != HD_OK) {
        return cli_report_check(status, "hd_launch of a kernel that faults", error);
    }
    status = hd_wait(ticket, FAULTS_TIMEOUT_NS);
    s->noticed_at = cli_stats_monotonic();
    if (!bench_lost(status)) {
        snprintf(error, PLAIN_ERROR, "device %d: the wait for a kernel that faults returned %s", l->device,
                 hd_status_name(status));
    }
    return bench_lost(status);
}

/* Kills the worker while a batch is in flight, and continues until a call fails. */
static bool bench_strike_by_signal(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_device_info info = {.size = sizeof(info)};
    char expected[PLAIN_ERROR];
    if (!cli_report_check(hd_device_get_info(l->runtime, l->device, &info), "hd_device_get_info", error) ||
        !bench_faults_load_turn(l, error)) {
        return false;
    }
    if (info.worker_pid <= 1) {
        snprintf(error, PLAIN_ERROR, "device %d has no worker process", l->device);
        return false;
    }
    s->fault_at = cli_stats_monotonic();
    if (kill(info.worker_pid, SIGKILL) != 0) {
        snprintf(error, PLAIN_ERROR, "killing the worker process of device %d: %s", l->device, strerror(errno));
        return false;
    }
    while (bench_faults_load_turn(l, expected)) {
        if (cli_stats_monotonic() - s->fault_at > (uint64_t)FAULTS_TIMEOUT_NS) {
            snprintf(error, PLAIN_ERROR, "device %d works on without its worker process", l->device);
            return false;
        }
    }
    s->noticed_at = cli_stats_monotonic();
    return true;
}

/* Called by the device's load: makes the device fault by l->strike, notes the times, and
 * restarts it. */
static bool bench_faults_strike_run(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_ticket first;
    if (!(s->kind == FAULTS_KILL ? bench_strike_by_signal : bench_strike_by_kernel)(l, error)) {
        return false;
    }
    s->restart_at = cli_stats_monotonic();
    if (!cli_report_check(hd_device_restart(l->runtime, l->device), "hd_device_restart", error)) {
        return false;
    }
    s->restarted_at = cli_stats_monotonic();
    if (!bench_faults_load_remake_c(l, error) || !bench_faults_load_multiply(l, &first, error) ||
        !cli_report_check(hd_wait(first, FAULTS_TIMEOUT_NS), "the first kernel after a restart", error)) {
        return false;
    }
    s->finished_at = cli_stats_monotonic();
    if (!cli_report_check(hd_read(l->c, 0, l->result, l->problem->c_bytes), "hd_read", error)) {
        return false;
    }
    l->elements_wrong += bench_faults_load_wrong(l, 1);
    return bench_faults_load_rebuild(l, error);
}

/* ---- the thread ---- */

/* Continues after an unintended failure, if the device can. The batches in flight are lost. */
static bool bench_recover(faults_load *l, char *error)
{
    for (int i = 0; i < 2; i++) {
        l->steps_lost += l->in_flight[i] ? (uint64_t)l->steps : 0;
    }
    return cli_report_check(hd_device_restart(l->runtime, l->device), "hd_device_restart", error) &&
           cli_report_check(hd_lane_reset(l->lane, FAULTS_TIMEOUT_NS), "hd_lane_reset", error) &&
           bench_faults_load_remake_c(l, error) && bench_faults_load_rebuild(l, error);
}

static bool bench_work(faults_load *l)
{
    for (;;) {
        /* pairs with the conductor's release */
        int order = atomic_load_explicit(&l->order, memory_order_acquire);
        if (order == FAULTS_STOP) {
            return bench_faults_load_drain(l, l->error) || bench_recover(l, l->error);
        }
        if (order == FAULTS_STRIKE) {
            if (!bench_faults_strike_run(l, l->error)) {
                return false;
            }
            /* leaves a stop order that came meanwhile; the state publishes all else to the
             * conductor */
            atomic_compare_exchange_strong_explicit(&l->order, &order, FAULTS_WORK, memory_order_relaxed,
                                                    memory_order_relaxed);
            atomic_store_explicit(&l->state, FAULTS_WORKING,
                                  memory_order_release); /* pairs with the conductor's acquire */
        }
        if (!bench_faults_load_turn(l, l->error) && !bench_recover(l, l->error)) {
            return false;
        }
    }
}

void *bench_faults_load_main(void *load)
{
    faults_load *l = load;
    bool ok = bench_open_load(l, l->error) && bench_size_batches(l, l->error);
    if (ok) {
        /* pairs with the conductor's acquire */
        atomic_store_explicit(&l->state, FAULTS_WORKING, memory_order_release);
        ok = bench_work(l);
    }
    l->failed = !ok;
    free(l->result);
    /* pairs with the conductor's acquire */
    atomic_store_explicit(&l->state, FAULTS_ENDED, memory_order_release);
    return NULL;
}
