/* lanes_driver.c - the launch loop with plain driver calls, tiny launches of one stream, and what disturbs.
 *
 * Threads: the loop on the thread (or in the process) that drives one device, after lanes_driver_warm there. The
 * disturber has a thread of its own. Locks: none.
 * Always: at most two batches are in flight, and both are finished when the loop returns.
 */
#include "bench/lanes_parts.h"

#include <string.h>

bool lanes_driver_warm(const plain_driver *d, plain_device *device, int launches, char *error)
{
    if (!PLAIN_TRY(d, error, cuCtxSetCurrent, (device->context))) {
        return false;
    }
    for (int i = 0; i < launches; i++) {
        if (!plain_check(d, plain_launch_matmul(d, device), "cuLaunchKernel", error)) {
            return false;
        }
    }
    return PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream));
}

bool lanes_driver_loop(const plain_driver *d, plain_device *device, const lanes_when *when, lanes_result *out,
                       char *error)
{
    lanes_sleep_until(when->begin);
    uint64_t begin = stats_monotonic(), batches = 0;
    do {
        for (int i = 0; i < when->batch; i++) {
            uint64_t tick = stats_tick_begin();
            hdcu_result result = plain_launch_matmul(d, device);
            stats_record(&out->submit, stats_tick_end() - tick);
            if (result != HDCU_SUCCESS) {
                return plain_check(d, result, "cuLaunchKernel", error);
            }
        }
        if (!PLAIN_TRY(d, error, cuEventRecord, (device->event[batches & 1], device->stream))) {
            return false;
        }
        batches++;
        if (batches > 1 && !PLAIN_TRY(d, error, cuEventSynchronize, (device->event[batches & 1]))) {
            return false;
        }
    } while (stats_monotonic() < when->end);
    if (!PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream))) {
        return false;
    }
    out->elapsed_ns = stats_monotonic() - begin;
    out->kernels = batches * (uint64_t)when->batch;
    return true;
}

bool lanes_driver_flow(const plain_driver *d, plain_device *device, uint64_t launches, double *us, char *error)
{
    uint64_t begin = stats_monotonic();
    for (uint64_t i = 0; i < launches; i++) {
        hdcu_result result = plain_launch_fill(d, device);
        if (result != HDCU_SUCCESS) {
            return plain_check(d, result, "cuLaunchKernel", error);
        }
    }
    if (!PLAIN_TRY(d, error, cuStreamSynchronize, (device->stream))) {
        return false;
    }
    *us = (double)(stats_monotonic() - begin) / (double)launches * 1e-3;
    return true;
}

bool lanes_driver_trips(const plain_driver *d, plain_device *device, uint64_t trips, double *us, char *error)
{
    static stats_histogram h; /* one call at a time */
    memset(&h, 0, sizeof(h));
    for (uint64_t i = 0; i < trips; i++) {
        uint64_t tick = stats_tick_begin();
        hdcu_result launched = plain_launch_fill(d, device), waited = d->cuStreamSynchronize(device->stream);
        stats_record(&h, stats_tick_end() - tick);
        if (launched != HDCU_SUCCESS || waited != HDCU_SUCCESS) {
            return plain_check(d, launched ? launched : waited, "launch + wait", error);
        }
    }
    *us = stats_summarise(&h).median_ns * 1e-3;
    return true;
}

static bool disturb_once(const plain_driver *d, plain_device *device, const plain_image *image, size_t device_bytes,
                         size_t pinned_bytes, char *error)
{
    hdcu_deviceptr memory;
    void *pinned;
    hdcu_module module;
    return PLAIN_TRY(d, error, cuCtxSetCurrent, (device->context)) &&
           PLAIN_TRY(d, error, cuMemAlloc, (&memory, device_bytes)) && PLAIN_TRY(d, error, cuMemFree, (memory)) &&
           PLAIN_TRY(d, error, cuMemHostAlloc,
                     (&pinned, pinned_bytes, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP)) &&
           PLAIN_TRY(d, error, cuMemFreeHost, (pinned)) &&
           PLAIN_TRY(d, error, cuModuleLoadDataEx, (&module, image->driver, 0, NULL, NULL)) &&
           PLAIN_TRY(d, error, cuModuleUnload, (module));
}

bool lanes_driver_disturb(const plain_driver *d, plain_device *devices, int count, const plain_image *image,
                          const lanes_disturb_size *size, _Atomic uint32_t *stop, lanes_disturbance *out, char *error)
{
    uint64_t begin = stats_monotonic();
    size_t pinned = size->pinned_low;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_acquire); i = (i + 1) % count) {
        if (!disturb_once(d, &devices[i], image, size->device_bytes, pinned, error)) {
            return false;
        }
        pinned = pinned < size->pinned_high ? pinned * 2 : size->pinned_low;
        out->cycles++;
    }
    out->elapsed_ns = stats_monotonic() - begin;
    return true;
}
