/* faults_strike.c - how a device is made to fault, and the times until it works again.
 *
 * All three faults are made of what is on every machine: the built-in kernels and a signal. So the benchmark needs no
 * compiler, and the same faults work on GPUs and on host devices.
 *   - an illegal address: hd_sum_f32 of far more elements than there are. It only reads on its way, in strides of 64 MiB,
 *     until it comes to where nothing is mapped. So it changes no memory of this device, nor of another one whose memory
 *     is mapped behind it.
 *   - a killed worker: SIGKILL, with a batch in flight.
 *   - an endless kernel: hd_matmul_f32 of matrices with no rows and no columns, but 2^32 - 1 terms an element. Every block
 *     goes through all its terms without touching memory, and there are 4 billion blocks.
 *
 * Threads: the load's thread of the device that is struck. Locks: none.
 * Always: the benchmark has nothing in flight on the device before the first and the third fault. So the times are those
 * of the fault alone.
 */
#include "bench/faults_parts.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static bool lost(hd_status status)
{
    return status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED || status == HD_ERROR_LANE_FAILED;
}

static hd_status launch_stray(faults_load *l, hd_ticket *out)
{
    const hd_dims grid = {1 << 16, 1, 1}, block = {256, 1, 1};
    const hd_arg arguments[3] = {hd_inout(l->y[0]), hd_in(l->a), hd_u64(UINT64_C(1) << 46)};
    return hd_launch(l->lane, l->sum, grid, block, 0, arguments, 3, out);
}

static hd_status launch_endless(faults_load *l, hd_ticket *out)
{
    const hd_dims grid = {65535, 65535, 1}, block = {32, 32, 1};
    const hd_arg arguments[6] = {hd_out(l->c), hd_in(l->a), hd_in(l->b), hd_u32(0), hd_u32(0), hd_u32(UINT32_MAX)};
    return hd_launch(l->lane, l->matmul, grid, block, 0, arguments, 6, out);
}

/* Launches a kernel that fails the device, and waits for its failure. */
static bool strike_by_kernel(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_ticket ticket;
    if (!faults_load_drain(l, error)) {
        return false;
    }
    s->fault_at = stats_monotonic();
    hd_status status = s->kind == FAULTS_ADDRESS ? launch_stray(l, &ticket) : launch_endless(l, &ticket);
    if (status != HD_OK) {
        return report_check(status, "hd_launch of a kernel that faults", error);
    }
    status = hd_wait(ticket, FAULTS_TIMEOUT_NS);
    s->noticed_at = stats_monotonic();
    if (!lost(status)) {
        snprintf(error, PLAIN_ERROR, "device %d: the wait for a kernel that faults returned %s", l->device,
                 hd_status_name(status));
    }
    return lost(status);
}

/* Kills the worker while a batch is in flight, and goes on until a call fails. */
static bool strike_by_signal(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_device_info info = {.size = sizeof(info)};
    char expected[PLAIN_ERROR];
    if (!report_check(hd_device_get_info(l->runtime, l->device, &info), "hd_device_get_info", error) ||
        !faults_load_turn(l, error)) {
        return false;
    }
    if (info.worker_pid <= 1) {
        snprintf(error, PLAIN_ERROR, "device %d has no worker process", l->device);
        return false;
    }
    s->fault_at = stats_monotonic();
    if (kill(info.worker_pid, SIGKILL) != 0) {
        snprintf(error, PLAIN_ERROR, "killing the worker process of device %d: %s", l->device, strerror(errno));
        return false;
    }
    while (faults_load_turn(l, expected)) {
        if (stats_monotonic() - s->fault_at > (uint64_t)FAULTS_TIMEOUT_NS) {
            snprintf(error, PLAIN_ERROR, "device %d works on without its worker process", l->device);
            return false;
        }
    }
    s->noticed_at = stats_monotonic();
    return true;
}

bool faults_strike_run(faults_load *l, char *error)
{
    faults_strike *s = l->strike;
    hd_ticket first;
    if (!(s->kind == FAULTS_KILL ? strike_by_signal : strike_by_kernel)(l, error)) {
        return false;
    }
    s->restart_at = stats_monotonic();
    if (!report_check(hd_device_restart(l->runtime, l->device), "hd_device_restart", error)) {
        return false;
    }
    s->restarted_at = stats_monotonic();
    if (!faults_load_remake_c(l, error) || !faults_load_multiply(l, &first, error) ||
        !report_check(hd_wait(first, FAULTS_TIMEOUT_NS), "the first kernel after a restart", error)) {
        return false;
    }
    s->finished_at = stats_monotonic();
    if (!report_check(hd_read(l->c, 0, l->result, l->problem->c_bytes), "hd_read", error)) {
        return false;
    }
    l->elements_wrong += faults_load_wrong(l, 1);
    return faults_load_rebuild(l, error);
}
