/* current.h - makes a device's context current for a few driver calls, and restores the
 * application's own context.
 *
 * While the application captures a stream into a graph, the driver also refuses many calls of other
 * threads, and invalidates the capture. The driver does not do this to threads in the capture mode
 * "relaxed". The library's calls never concern streams that the application captures, so the
 * library makes all its calls in this mode.
 * Threads: the calling thread; each thread has its own current context and mode. Locks: none.
 * Blocking: as the driver's calls.
 * Always: hdi_current_leave restores the context and the mode that the thread had before
 * hdi_current_enter, as far as the driver allows.
 */
#ifndef HDI_DRIVER_CURRENT_H
#define HDI_DRIVER_CURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include "base/cancel.h"
#include "driver/driver.h"

typedef struct hdi_current {
    const hdi_driver *driver;
    hdcu_context context, before;
    bool pushed;
    /* the state for hdi_cancel_restore; the thread must not be cancelled, since the driver may wait
     * while the caller holds locks */
    int cancel;
    int mode; /* the earlier capture mode; HDI_MODE_UNKNOWN: the mode could not be changed */
} hdi_current;

#define HDI_MODE_UNKNOWN (-1)

/* Sets the calling thread's capture mode to "relaxed". Returns the earlier mode, for
 * hdi_captures_mind. */
static inline int hdi_captures_ignore(const hdi_driver *driver)
{
    int mode = HDCU_STREAM_CAPTURE_MODE_RELAXED;
    return driver->cuThreadExchangeStreamCaptureMode(&mode) == HDCU_SUCCESS ? mode : HDI_MODE_UNKNOWN;
}

/* Restores the mode that hdi_captures_ignore returned. */
static inline void hdi_captures_mind(const hdi_driver *driver, int before)
{
    if (before != HDI_MODE_UNKNOWN) {
        driver->cuThreadExchangeStreamCaptureMode(&before);
    }
}

/* Makes the device's context current. Returns the driver's code. After a failure the caller must
 * not call hdi_current_leave, and *entry_point names the call that failed. */
static inline hdcu_result hdi_current_enter(const hdi_driver *driver, hdcu_context context, hdi_current *current,
                                            const char **entry_point)
{
    *current = (hdi_current){.driver = driver, .context = context, .cancel = hdi_cancel_hold_off()};
    current->mode = hdi_captures_ignore(driver);
    *entry_point = "cuCtxGetCurrent";
    hdcu_result code = driver->cuCtxGetCurrent(&current->before);
    if (code == HDCU_SUCCESS && current->before != context) {
        *entry_point = "cuCtxPushCurrent";
        code = driver->cuCtxPushCurrent(context);
        current->pushed = code == HDCU_SUCCESS;
    }
    if (code != HDCU_SUCCESS) {
        hdi_captures_mind(driver, current->mode);
        hdi_cancel_restore(&current->cancel);
    }
    return code;
}

static inline void hdi_current_put_back(hdi_current *current)
{
    const hdi_driver *driver = current->driver;
    hdcu_context popped;
    if (!current->pushed || driver->cuCtxPopCurrent(&popped) == HDCU_SUCCESS) {
        return;
    }
    /* If a pop returns the failure of other work, it may have removed the context nevertheless. So
     * the current context decides whether to pop again. */
    hdcu_context now = current->before;
    if (driver->cuCtxGetCurrent(&now) != HDCU_SUCCESS || now == current->context) {
        if (now == current->context && driver->cuCtxPopCurrent(&popped) == HDCU_SUCCESS) {
            return;
        }
        driver->cuCtxSetCurrent(current->before);
    }
}

static inline void hdi_current_leave(hdi_current *current)
{
    hdi_current_put_back(current);
    hdi_captures_mind(current->driver, current->mode);
    hdi_cancel_restore(&current->cancel);
}

#endif
