/* current.h - a device's context made current for a few driver calls, and the application's own put back.
 *
 * Threads: the calling one; what is current is per thread. Locks: none.
 * Always: after hdi_current_leave the thread's current context is what it was before hdi_current_enter, as far as the
 * driver lets us.
 */
#ifndef HDI_DRIVER_CURRENT_H
#define HDI_DRIVER_CURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include "driver/driver.h"

typedef struct hdi_current {
    const hdi_driver *driver;
    hdcu_context context, before;
    bool pushed;
} hdi_current;

/* Returns the driver's code; unless it is 0, nothing is to be left. `*entry_point` names the call that failed. */
static inline hdcu_result hdi_current_enter(const hdi_driver *driver, hdcu_context context, hdi_current *current,
                                            const char **entry_point)
{
    *current = (hdi_current){.driver = driver, .context = context};
    hdcu_result code = driver->cuCtxGetCurrent(&current->before);
    if (code != HDCU_SUCCESS) {
        *entry_point = "cuCtxGetCurrent";
        return code;
    }
    if (current->before != context) {
        code = driver->cuCtxPushCurrent(context);
        *entry_point = "cuCtxPushCurrent";
        current->pushed = code == HDCU_SUCCESS;
    }
    return code;
}

static inline void hdi_current_leave(hdi_current *current)
{
    const hdi_driver *driver = current->driver;
    hdcu_context popped;
    if (!current->pushed || driver->cuCtxPopCurrent(&popped) == HDCU_SUCCESS) {
        return;
    }
    /* A pop may report the failure of other work and have popped all the same, so look before trying again. */
    hdcu_context now = current->before;
    if (driver->cuCtxGetCurrent(&now) != HDCU_SUCCESS || now == current->context) {
        if (now == current->context && driver->cuCtxPopCurrent(&popped) == HDCU_SUCCESS) {
            return;
        }
        driver->cuCtxSetCurrent(current->before);
    }
}

#endif
