/* driver_call.c - driver calls on threads that run no engine: the device's context, and the status
 * of a failed call.
 *
 * Threads: any.
 * Locks: hdi_loss_fail_call takes the device's order lock, and the mutex of the losses.
 * Blocking: hdi_device_await_loss blocks. A function in this file also blocks if it reports the
 * code of a lost device.
 * Always: a scope saves the thread's own current context, and restores it afterwards.
 */
#include "base/error.h"
#include "base/wait.h"
#include "engine/engine.h"

#define GONE_NS 1000000000
#define SLEEP_NS 1000000

hd_status hdi_scope_enter(hdi_device *device, hdi_scope *scope)
{
    const char *entry_point = "";
    hdcu_result r = hdi_current_enter(device->runtime->driver, device->context, &scope->current, &entry_point);
    scope->entered = r == HDCU_SUCCESS;
    return scope->entered ? HD_OK : hdi_driver_failed(device, r, entry_point);
}

void hdi_scope_leave(hdi_scope *scope)
{
    if (scope->entered) {
        hdi_current_leave(&scope->current);
        scope->entered = false;
    }
}

int hdi_device_await_loss(hdi_device *device, int code)
{
    bool watched = device->runtime->is_process;
    int64_t deadline = hdi_deadline(GONE_NS);
    while (watched && !hdi_device_lost(device) && hdi_clock_ns() < deadline) {
        hdi_sleep_for(SLEEP_NS);
    }
    int lost = hdi_device_lost_by(device);
    return lost ? lost : code;
}

hd_status hdi_driver_failed(hdi_device *device, int code, const char *entry_point)
{
    if (hdi_driver_code_is_fatal(code)) {
        return hdi_loss_fail_call(device, hdi_device_await_loss(device, code), entry_point);
    }
    hd_status status = code == HDCU_ERROR_OUT_OF_MEMORY ? HD_ERROR_MEMORY : HD_ERROR_DRIVER;
    return hdi_fail_driver(status, code, entry_point, device->index, "the driver failed: %s%s",
                           hdi_driver_code_name(code), hdi_driver_code_advice(code));
}

hd_status hdi_answer_failed(hdi_device *device, hdi_answer answer)
{
    return hdi_driver_failed(device, answer.code, answer.call);
}
