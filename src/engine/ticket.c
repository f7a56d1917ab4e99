/* ticket.c - waiting for positions in lanes, and saying how the work there went.
 *
 * Threads: any. Locks: none. Blocking: only hdi_wait_position, which spins for the option spin_us and then sleeps on the lane's
 * futex word (placement thread), or runs the engines itself (placement inline).
 */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#define INLINE_NAP_NS 20000

void hdi_want(_Atomic uint64_t *wish, uint64_t position)
{
    uint64_t now = atomic_load_explicit(wish, memory_order_relaxed);
    while (now < position &&
           !atomic_compare_exchange_weak_explicit(wish, &now, position, memory_order_seq_cst, memory_order_relaxed)) {
    }
}

static bool is_done(const hdi_lane_shared *shared, uint64_t position)
{
    /* pairs with store_done in feed.c */
    return atomic_load_explicit(&shared->done, memory_order_acquire) >= position;
}

static bool wait_inline(hd_runtime *rt, const hdi_lane_shared *shared, uint64_t position, int64_t deadline)
{
    int64_t start = hdi_clock_ns();
    for (;;) {
        for (int i = 0; i < rt->n_devices; i++) {
            hdi_engine_run_inline(rt->devices[i]);
        }
        if (is_done(shared, position)) {
            return true;
        }
        int64_t now = hdi_clock_ns();
        if (now >= deadline) {
            return false;
        }
        if (now - start > rt->spin_ns) {
            hdi_nap(deadline - now < INLINE_NAP_NS ? deadline - now : INLINE_NAP_NS);
        } else {
            hdi_spin_turn();
        }
    }
}

static bool wait_asleep(hdi_lane_shared *shared, uint64_t position, int64_t deadline)
{
    uint32_t bit = hdi_awaited_bit(position);
    bool in_time = true;
    /* Sequentially consistent with the engine's store of `done` followed by its load of `sleepers`. */
    atomic_fetch_add_explicit(&shared->sleepers, 1, memory_order_seq_cst);
    for (;;) {
        /* In this order: whoever clears the bit moves `wake` behind that. */
        uint32_t wake = atomic_load_explicit(&shared->wake, memory_order_acquire);
        atomic_fetch_or_explicit(&shared->awaited, bit, memory_order_seq_cst);
        if (atomic_load_explicit(&shared->done, memory_order_seq_cst) >= position) {
            break;
        }
        if (!in_time) {
            break;
        }
        in_time = hdi_futex_wait_bits(&shared->wake, wake, bit, deadline);
    }
    atomic_fetch_sub_explicit(&shared->sleepers, 1, memory_order_seq_cst);
    return is_done(shared, position);
}

bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    hdi_lane_shared *shared = hdi_lane_shared_of(rt, lane);
    if (is_done(shared, position)) {
        return true;
    }
    hdi_want(&shared->wanted_host, position);
    if (rt->is_inline) {
        return wait_inline(rt, shared, position, deadline);
    }
    hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    int64_t start = hdi_clock_ns();
    int64_t spin_end = start + rt->spin_ns < deadline ? start + rt->spin_ns : deadline;
    for (int64_t now = start; now < spin_end; now = hdi_clock_ns()) {
        for (int i = 0; i < 8; i++) {
            if (is_done(shared, position)) {
                return true;
            }
            hdi_spin_turn();
        }
    }
    return wait_asleep(shared, position, deadline);
}

bool hdi_wait_position_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    void (*on_block)(hd_runtime *) = atomic_load_explicit(&rt->on_block, memory_order_relaxed);
    if (on_block && !is_done(hdi_lane_shared_of(rt, lane), position)) {
        int64_t spin_end = hdi_clock_ns() + rt->spin_ns;
        if (hdi_wait_position(rt, lane, position, spin_end < deadline ? spin_end : deadline)) {
            return true;
        }
        if (spin_end < deadline) {
            on_block(rt);
        }
    }
    return hdi_wait_position(rt, lane, position, deadline);
}

static const char *operation_name(uint8_t op)
{
    switch (op) {
    case HDI_OP_LAUNCH:
        return "launch";
    case HDI_OP_COPY:
    case HDI_OP_COPY_BOX:
        return "copy";
    case HDI_OP_MATMUL:
        return "matrix product";
    case HDI_OP_FILL:
        return "fill";
    default:
        return "";
    }
}

/* "the launch of kernel 'x'", "a copy" */
static void name_operation(hd_runtime *rt, uint8_t op, uint32_t kernel, char *out, size_t bytes)
{
    if (op == HDI_OP_LAUNCH) {
        char name[HDI_KERNEL_NAME_BYTES];
        hdi_kernel_name(rt, kernel, name);
        snprintf(out, bytes, "the launch of kernel '%.100s'", name);
    } else if (op) {
        snprintf(out, bytes, "a %s", operation_name(op));
    } else {
        snprintf(out, bytes, "an operation");
    }
}

/* The fields that say which operation is to blame. */
static hd_error blamed(hd_runtime *rt, const hdi_failure *f)
{
    hd_error error = hdi_error_blank(f->lost ? HD_ERROR_DEVICE_LOST : HD_ERROR_FAILED);
    error.driver_code = f->driver_code > 0 ? f->driver_code : 0;
    error.device = (int)(f->lane / HDI_LANES_MAX);
    error.lane = (int)(f->lane % HDI_LANES_MAX);
    error.ticket = f->position;
    snprintf(error.operation, sizeof error.operation, "%s", operation_name(f->op));
    if (f->op == HDI_OP_LAUNCH) {
        char name[HDI_KERNEL_NAME_BYTES];
        hdi_kernel_name(rt, f->kernel, name);
        snprintf(error.kernel, sizeof error.kernel, "%s", name);
    }
    return error;
}

void hdi_loss_describe(hd_runtime *rt, const hdi_failure *f, const char *who, hd_error *out)
{
    hd_error error = blamed(rt, f);
    char first[160], last[160], operations[400];
    name_operation(rt, f->op, f->kernel, first, sizeof first);
    name_operation(rt, f->last_op, f->last_kernel, last, sizeof last);
    if (!f->op) {
        snprintf(operations, sizeof operations, "nothing was unfinished in lane %d", error.lane);
    } else if (!f->last_op || f->last_position == f->position) {
        snprintf(operations, sizeof operations, "%s: %s (lane %d, ticket %llu)",
                 f->last_op ? "last and only unfinished there" : "first unfinished there", first, error.lane,
                 (unsigned long long)f->position);
    } else {
        snprintf(operations, sizeof operations, "unfinished in lane %d: from %s (ticket %llu) to %s (ticket %llu)",
                 error.lane, first, (unsigned long long)f->position, last, (unsigned long long)f->last_position);
    }
    bool takes_others = !rt->is_process && rt->n_devices > 1 && strcmp(rt->provider, "nvidia") == 0;
    snprintf(error.message, sizeof error.message, "%s: device %d is lost: %s; %s%s%s", who, error.device,
             hdi_driver_code_name(f->driver_code), operations,
             f->inherited && f->op ? "; this operation reads its result" : "",
             takes_others ? "; the driver takes a process's other GPUs down with it" : "");
    *out = error;
}

static hd_status failure_status(hd_runtime *rt, const hdi_failure *f, const char *who)
{
    hd_error error;
    if (f->lost) {
        hdi_loss_describe(rt, f, who, &error);
        return hdi_fail_error(&error);
    }
    char what[160];
    error = blamed(rt, f);
    name_operation(rt, f->op, f->kernel, what, sizeof what);
    snprintf(error.message, sizeof error.message, "%s: %s (device %d, lane %d, ticket %llu) failed: %s%s", who, what,
             error.device, error.lane, (unsigned long long)error.ticket, hdi_driver_code_name(f->driver_code),
             f->inherited ? "; this operation reads what that one should have written" : "");
    return hdi_fail_error(&error);
}

hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position, const char *who)
{
    hdi_failure failure;
    if (__builtin_expect(hdi_failure_find(rt, lane, position, &failure), 0)) {
        return failure_status(rt, &failure, who);
    }
    return HD_OK;
}

hd_status hdi_lane_refuses(hd_lane *lane, const char *who)
{
    hd_runtime *rt = lane->device->runtime;
    int lost = hdi_device_lost(lane->device);
    uint64_t head = atomic_load_explicit(&lane->shared->head, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    hdi_failure failure;
    /* A lost device's records have no end; without one it is the lane's own failure that counts. */
    bool found = (lost && hdi_failure_find(rt, lane->global, head + 1, &failure)) ||
                 hdi_failure_find(rt, lane->global, issued, &failure) ||
                 hdi_failure_find(rt, lane->global, head, &failure) ||
                 hdi_failure_find(rt, lane->global, head + 1, &failure);
    if (found) {
        hd_status status = failure_status(rt, &failure, who);
        if (status == HD_ERROR_DEVICE_LOST) {
            return status;
        }
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        char cause[sizeof error.message];
        memcpy(cause, error.message + strlen(who), sizeof cause - strlen(who));
        error.status = HD_ERROR_LANE_FAILED;
        snprintf(error.message, sizeof error.message, "%s: lane %u of device %d refuses work (hd_lane_reset)%.300s",
                 who, lane->number, lane->device->index, cause);
        return hdi_fail_error(&error);
    }
    if (lost) {
        return hdi_fail_driver(HD_ERROR_DEVICE_LOST, lost, "", lane->device->index, "%s: device %d is lost: %s", who,
                               lane->device->index, hdi_driver_code_name(lost));
    }
    return hdi_fail(HD_ERROR_LANE_FAILED, "%s: lane %u of device %d refuses work since an operation in it failed", who,
                    lane->number, lane->device->index);
}

bool hd_done(hd_ticket ticket)
{
    hd_lane *lane = hdi_lane_any(ticket.lane);
    return !lane || is_done(lane->shared, ticket.sequence);
}

hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns)
{
    hd_lane *lane = hdi_lane_any(ticket.lane);
    if (!lane) {
        return ticket.lane ? hdi_fail(HD_ERROR_HANDLE, "hd_wait: not a ticket") : HD_OK;
    }
    hd_runtime *rt = lane->device->runtime;
    if (!is_done(lane->shared, ticket.sequence) &&
        !hdi_wait_position_at_leisure(rt, lane->global, ticket.sequence, hdi_deadline(timeout_ns))) {
        return hdi_fail(HD_ERROR_TIMEOUT, "hd_wait: ticket %llu of lane %u on device %d is not done after %lld ns",
                        (unsigned long long)ticket.sequence, lane->number, lane->device->index, (long long)timeout_ns);
    }
    return hdi_position_status(rt, lane->global, ticket.sequence, "hd_wait");
}
