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
    if (other && ticket.sequence > atomic_load_explicit(&other->submitted, memory_order_acquire)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "ticket %llu was never given out by lane %u of device %d",
                        (unsigned long long)ticket.sequence, other->number, other->device->index);
    }
    const hdi_command command = {.op = HDI_OP_MARK, .slots = 1};
    const hdi_same same = {.lane = hdi_lane_word(handle)};
    const hdi_linked link = {.after = hdi_ticket_point(ticket), .same = &same};
    return hdi_submit_linked(lane, NULL, 0, &command, link, out);
}
