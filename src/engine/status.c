/* status.c - the status of a finished position, and of a lane that refuses work.
 *
 * Threads: any.
 * Locks: the archive's mutex and the mutex of the losses, held briefly. The caller may hold order
 * locks.
 * Blocking: while a worker process leaves its log half written (hdi_failure_find).
 * Always: the message and the fields of an error first name the same operation.
 */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* Stands for a position if a failure refused a call, which is no operation. Positions begin with
 * 1. */
#define NO_OPERATION 0

/* The effect of a loss on the operation at `position` of a lane, which is not the one to blame. */
static const char *status_loss_effect(const hdi_failure *f, uint32_t lane, uint64_t position)
{
    if (position == NO_OPERATION) {
        return "";
    }
    if (f->inherited) {
        return "; this operation depends on what was lost with it";
    }
    if (!f->op || !f->begun || (lane == f->lane && position <= f->position)) {
        return "";
    }
    if (position > f->begun) {
        return "; this operation was never started";
    }
    return f->waited         ? "; this operation waited for it"
           : lane == f->lane ? "; this operation came behind it"
                             : "; this operation was under way, too";
}

static void status_describe_lost(hd_runtime *rt, const hdi_failure *f, uint32_t lane, uint64_t position, hd_error *out)
{
    hdi_suspects suspects;
    bool known = f->loss && hdi_loss_suspects(rt, (int)(f->lane / HDI_LANES_MAX), &suspects) == f->loss;
    hdi_loss_describe(rt, f, known ? &suspects : NULL, out);
    size_t length = strlen(out->message);
    snprintf(out->message + length, sizeof out->message - length, "%s", status_loss_effect(f, lane, position));
}

/* The error of a failed operation, for its fields and text. Returns its status. */
static hd_status status_describe_failure(hd_runtime *rt, const hdi_failure *f, uint32_t lane, uint64_t position,
                                         hd_error *out)
{
    if (f->lost) {
        status_describe_lost(rt, f, lane, position, out);
        return out->status;
    }
    char what[HDI_CLAIM_TEXT], outcome[HDI_OUTCOME_TEXT];
    hd_error error = hdi_failure_error(rt, f);
    const char *why = outcome;
    if ((f->op == HDI_OP_CLAIM || f->op == HDI_OP_CALL) && f->kernel) {
        hdi_outcome_text(rt, f->kernel, what, outcome);
    } else {
        hdi_operation_text(rt, f->op, f->kernel, what, sizeof what);
        why = hdi_driver_code_name(f->driver_code);
    }
    /* A dependent operation reads the other one's bytes, or waits for it. */
    snprintf(error.message, sizeof error.message, "%s (device %d, lane %d, ticket %llu) failed: %s%s", what,
             error.device, error.lane, (unsigned long long)error.ticket, why,
             !f->inherited              ? ""
             : position == NO_OPERATION ? "; an operation in the lane depends on that one"
                                        : "; this operation depends on that one");
    *out = error;
    return error.status;
}

hd_status hdi_position_status(hd_runtime *rt, uint32_t lane, uint64_t position)
{
    hdi_failure failure;
    if (__builtin_expect(hdi_failure_find(rt, lane, position, &failure), 0)) {
        hd_error error;
        status_describe_failure(rt, &failure, lane, position, &error);
        return hdi_fail_error(&error);
    }
    return HD_OK;
}

hd_status hdi_lane_refuses(hd_lane *lane)
{
    hd_runtime *rt = lane->device->runtime;
    int lost = hdi_device_lost_by(lane->device);
    uint64_t head = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    hdi_failure failure;
    /* A loss is recorded for each lane as a failure without an end, shortly before or after the
     * device counts as lost. A failure of the lane alone has an end, and is not the loss. */
    bool found = (hdi_failure_find(rt, lane->global, head + 1, &failure) && failure.lost) ||
                 (!lost && (hdi_failure_find(rt, lane->global, issued, &failure) ||
                            hdi_failure_find(rt, lane->global, head, &failure) ||
                            hdi_failure_find(rt, lane->global, head + 1, &failure)));
    if (found) {
        hd_error error;
        if (status_describe_failure(rt, &failure, lane->global, NO_OPERATION, &error) == HD_ERROR_DEVICE_LOST) {
            return hdi_fail_error(&error);
        }
        char cause[sizeof error.message];
        memcpy(cause, error.message, sizeof cause);
        error.status = HD_ERROR_LANE_FAILED;
        snprintf(error.message, sizeof error.message, "lane %u of device %d refuses work (hd_lane_reset): %.300s",
                 lane->number, lane->device->index, cause);
        return hdi_fail_error(&error);
    }
    if (lost) {
        return hdi_fail_driver(HD_ERROR_DEVICE_LOST, lost, "", lane->device->index, "device %d is lost: %s",
                               lane->device->index, hdi_driver_code_name(lost));
    }
    return hdi_fail(HD_ERROR_LANE_FAILED,
                    "lane %u of device %d refuses work since an operation in it failed; call hd_lane_reset",
                    lane->number, lane->device->index);
}
