/* status.c - the status of a finished position, and of a lane that refuses work.
 *
 * Threads: any.
 * Locks: the archive's mutex and the mutex of the losses, held briefly. The caller may hold order
 * locks.
 * Blocking: while a worker process leaves its log half written (hdi_failure_find).
 * Always: the operation that a message names first is also the one in the error's fields.
 */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* Pass this position if a failure made the library refuse a call, since a refused call is no
 * operation. Positions begin with 1. */
#define NO_OPERATION 0

/* The position that the lane reaches when the operation that ends at `position` begins. A claim is
 * under way from its first slot on (suspect_is_next). */
static uint64_t status_begin_of(hd_runtime *rt, uint32_t lane, uint64_t position)
{
    const hd_lane *of = hdi_lane_at(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX);
    return of && of->claim ? position - (HDI_CLAIM_SLOTS - 1) : position;
}

/* Describes the effect of a loss on the operation at `position` of a lane. This operation is not to
 * blame for the loss. */
static const char *status_loss_effect(hd_runtime *rt, const hdi_failure *f, uint32_t lane, uint64_t position)
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
    if (status_begin_of(rt, lane, position) > f->begun) {
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
    snprintf(out->message + length, sizeof out->message - length, "%s", status_loss_effect(rt, f, lane, position));
}

/* Makes the error of a failed operation, with its fields and its text. Returns the status of the
 * error. */
static hd_status status_describe_failure(hd_runtime *rt, const hdi_failure *f, uint32_t lane, uint64_t position,
                                         hd_error *out)
{
    if (f->driver_code == HDI_FAILURE_FORGOTTEN) {
        hd_error error = hdi_failure_error(rt, f);
        snprintf(error.message, sizeof error.message,
                 "an operation (device %d, lane %d, ticket %llu) failed, and its cause is forgotten, since many "
                 "others failed later",
                 error.device, error.lane, (unsigned long long)error.ticket);
        *out = error;
        return error.status;
    }
    if (f->lost) {
        status_describe_lost(rt, f, lane, position, out);
        return out->status;
    }
    char what[HDI_CLAIM_TEXT], outcome[HDI_OUTCOME_TEXT];
    hd_error error = hdi_failure_error(rt, f);
    const char *why = outcome, *advice = "";
    if ((f->op == HDI_OP_CLAIM || f->op == HDI_OP_CALL) && f->kernel) {
        hdi_outcome_text(rt, f->kernel, what, outcome);
    } else {
        hdi_operation_text(rt, f->op, f->kernel, what, sizeof what);
        why = hdi_driver_code_name(f->driver_code);
        advice = hdi_driver_code_advice(f->driver_code);
    }
    /* The dependent operation reads bytes of the failed operation, or waits for that operation. */
    snprintf(error.message, sizeof error.message, "%.199s (device %d, lane %d, ticket %llu) failed: %.200s%s%s", what,
             error.device, error.lane, (unsigned long long)error.ticket, why, advice,
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

hd_status hdi_ticket_status(hd_runtime *rt, uint32_t lane, uint64_t position)
{
    hdi_failure failure;
    if (__builtin_expect(hdi_failure_find(rt, lane, position, &failure), 0)) {
        if (failure.driver_code == HDI_FAILURE_FORGOTTEN) {
            return hdi_fail(HD_ERROR_NOT_FOUND,
                            "the outcome of ticket %llu of lane %u on device %d is forgotten, since many operations "
                            "of the lane failed later; wait for tickets sooner",
                            (unsigned long long)position, lane % HDI_LANES_MAX, (int)(lane / HDI_LANES_MAX));
        }
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
