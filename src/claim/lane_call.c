/* lane_call.c - hd_lane_run_native, which runs a function of the program in a lane, and
 * hd_lane_add_dependency, by which a lane waits for a ticket.
 *
 * Threads: any. Locks: none in this file; a submission takes order locks. Blocking: a call waits
 * while the lane is full.
 * Always: nothing is submitted until every check passes.
 */
#include "base/error.h"
#include "claim/claim.h"
#include "engine/engine.h"

hd_status hd_lane_run_native(hd_lane *handle, hd_lane_function function, void *context, const hd_arg *args,
                             size_t n_args, hd_ticket *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (!function) {
        return hdi_fail(HD_ERROR_ARGUMENT, "function is null");
    }
    hdi_use uses[HDI_USES_OF_ONE];
    hd_status status = hdi_uses_from(lane->runtime, lane->device->index, args, n_args, uses);
    if (status) {
        return status;
    }
    if (lane->runtime->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process the driver is in another process, and the function here; "
                        "open the runtime with placement=thread");
    }
    hdi_command command = {.op = HDI_OP_CALL, .slots = 1};
    command.call.function = (uint64_t)(uintptr_t)function;
    command.call.context = (uint64_t)(uintptr_t)context;
    const hdi_same same = {.lane = hdi_lane_word(handle)};
    hdi_runtime_note_calls(lane->runtime);
    return hdi_submit_linked(lane, uses, n_args, &command, (hdi_linked){.same = &same}, out);
}

/* Makes the MARK inherit this failure. */
static void lane_call_inherit(hdi_command *mark, const hdi_failure *f)
{
    mark->mark.position = f->position;
    mark->mark.lane = f->lane;
    mark->mark.driver_code = f->driver_code;
    mark->mark.kernel = f->kernel;
    mark->mark.op = f->op;
    mark->mark.lost = f->lost;
    mark->mark.waited = f->waited;
    mark->mark.inherits = 1;
}

/* True if the failure of this ticket may leave the log, so that the engine may not find it
 * there. */
static bool lane_call_is_leaving(const hd_lane *lane, hd_ticket ticket)
{
    return lane && ticket.sequence <= atomic_load_explicit(&lane->failures_leaving, memory_order_relaxed);
}

hd_status hd_lane_add_dependency(hd_lane *handle, hd_ticket ticket, hd_ticket *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    const hd_lane *other = hdi_lane_any(ticket.lane);
    if (!other && ticket.lane) {
        return hdi_handle_refused(ticket.lane, "ticket", "its runtime was closed");
    }
    if (other && other->runtime != lane->runtime) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "the ticket is of another runtime, and lanes wait for their own; use hd_wait");
    }
    if (!other && ticket.sequence) {
        return hdi_ticket_refused(ticket);
    }
    if (other && ticket.sequence > atomic_load_explicit(&other->submitted, memory_order_acquire)) {
        return hdi_ticket_refused(ticket);
    }
    const hdi_same same = {.lane = hdi_lane_word(handle)};
    const hdi_point after = hdi_ticket_point(ticket);
    for (;;) {
        hdi_command command = {.op = HDI_OP_MARK, .slots = 1};
        hdi_failure failure;
        bool old = lane_call_is_leaving(other, ticket) &&
                   hdi_failure_find(lane->runtime, after.lane, after.position, &failure);
        if (old && failure.driver_code == HDI_FAILURE_FORGOTTEN) {
            return hdi_ticket_status(lane->runtime, after.lane, after.position);
        }
        if (old) {
            lane_call_inherit(&command, &failure);
        }
        const hdi_linked link = {.after = old ? (hdi_point){0, 0} : after, .same = &same};
        hd_status status = hdi_submit_linked(lane, NULL, 0, &command, link, out);
        if (status != HD_ERROR_FAILED || old || !lane_call_is_leaving(other, ticket)) {
            return status;
        }
        /* Meanwhile the failure began to leave the log. */
    }
}
