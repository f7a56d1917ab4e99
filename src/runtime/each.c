/* each.c - a step of hd_open or hd_close on all devices at the same time.
 *
 * The driver takes long there: making a context takes a hundred milliseconds, and giving it back takes tens. It does
 * much of that for several devices at once.
 *
 * Threads: the calling one handles the first device. Each other device has a thread for the length of the step. With
 * placement=inline, and where no thread can be started, the calling one handles them one after the other.
 * Locks: none.
 * Always: all steps have returned when hdi_on_each does.
 */
#include <stdlib.h>
#include "base/thread.h"
#include "runtime/runtime_internal.h"

typedef struct job {
    hdi_device *device;
    hdi_device_step step;
    void *context;
    const char *call;
    pthread_t thread;
    bool started;
    hd_status status;
    hd_error error; /* the error of the job's own thread */
} job;

static void *run(void *argument)
{
    job *j = argument;
    const hdi_driver *driver = j->device->runtime->driver;
    hdi_call_continue(j->call);
    if (driver) {
        hdi_captures_ignore(driver);
    }
    j->status = j->step(j->device, j->context);
    if (j->status) {
        hdi_error_get(&j->error);
    }
    return NULL;
}

static hd_status one_after_the_other(hd_runtime *rt, hdi_device_step step, void *context)
{
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = rt->devices[i] ? step(rt->devices[i], context) : HD_OK;
    }
    return status;
}

hd_status hdi_on_each(hd_runtime *rt, hdi_device_step step, void *context)
{
    int n = rt->n_devices;
    job *jobs = n > 1 && !rt->is_inline ? calloc((size_t)n, sizeof *jobs) : NULL;
    if (!jobs) {
        return one_after_the_other(rt, step, context);
    }
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        *j = (job){.device = rt->devices[i], .step = step, .context = context, .call = hdi_call_name()};
        j->started = j->device && hdi_thread_start(&j->thread, run, j) == 0;
    }
    hd_status status = rt->devices[0] ? step(rt->devices[0], context) : HD_OK;
    for (int i = 1; i < n; i++) {
        job *j = &jobs[i];
        if (j->started) {
            pthread_join(j->thread, NULL);
            if (j->status && !status) { /* the first device's failure is returned */
                status = j->status;
                hdi_fail_error(&j->error);
            }
        } else if (j->device && !status) {
            status = step(j->device, context);
        }
    }
    free(jobs);
    return status;
}
