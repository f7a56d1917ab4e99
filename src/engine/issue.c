/* issue.c - the driver call that an operation's command stands for.
 *
 * Threads: whoever runs the device's engine; the device's context is current. Locks: none.
 * Always: one driver call (or library call) per command, which does not wait for the device.
 */
#include "engine/engine.h"

#include <string.h>
#include "driver/blas.h"

static hdcu_result issue_launch(const hdi_engine *engine, const hdi_feed *feed, const hdi_command *c)
{
    hdi_device *device = engine->device;
    uint32_t number = c->kernel;
    if (!hdi_kernel_exists(device->runtime, number)) {
        return HDCU_ERROR_INVALID_HANDLE; /* somebody wrote over the command */
    }
    /* pairs with the release store of the port, which in a worker process is on another thread */
    hdcu_function function =
        atomic_load_explicit(&hdi_kernel_at(device->runtime, number)->function[device->index], memory_order_acquire);
    size_t bytes = c->launch.argument_bytes;
    void *extra[] = {HDCU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)c->launch.arguments,
                     HDCU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HDCU_LAUNCH_PARAM_END};
    return device->runtime->driver->cuLaunchKernel(
        function, c->launch.grid_x, c->launch.grid_y, c->launch.grid_z, hdi_block_x(c->launch.block),
        hdi_block_y(c->launch.block), hdi_block_z(c->launch.block), c->launch.shared_units * HDI_SHARED_UNIT,
        feed->stream, NULL, bytes ? extra : NULL);
}

static hdcu_result issue_copy(const hdi_engine *engine, const hdi_feed *feed, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr dst = c->copy.dst;
    hdcu_deviceptr src = c->copy.src;
    switch (c->kind & HDI_COPY_KIND) {
    case HDI_COPY_TO_DEVICE:
        return driver->cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, c->copy.bytes, feed->stream);
    case HDI_COPY_TO_HOST:
        return driver->cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, c->copy.bytes, feed->stream);
    case HDI_COPY_ON_DEVICE:
    case HDI_COPY_PEER:
        return driver->cuMemcpyDtoDAsync(dst, src, c->copy.bytes, feed->stream);
    default:
        return driver->cuMemcpyAsync(dst, src, c->copy.bytes, feed->stream);
    }
}

static hdcu_result issue_box(const hdi_engine *engine, const hdi_feed *feed, const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    bool from_host = kind == HDI_COPY_TO_DEVICE || kind == HDI_COPY_HOST;
    bool to_host = kind == HDI_COPY_TO_HOST || kind == HDI_COPY_HOST;
    /* On a device either side may be a peer's, which the driver finds out by the address. */
    int device = kind == HDI_COPY_ON_DEVICE || kind == HDI_COPY_PEER ? HDCU_MEMORYTYPE_UNIFIED : HDCU_MEMORYTYPE_DEVICE;
    const hdcu_memcpy2d rows = {
        .src_type = from_host ? HDCU_MEMORYTYPE_HOST : device,
        .src_host = from_host ? (const void *)(uintptr_t)c->box.src : NULL,
        .src_device = from_host ? 0 : c->box.src,
        .src_pitch = c->box.src_pitch,
        .dst_type = to_host ? HDCU_MEMORYTYPE_HOST : device,
        .dst_host = to_host ? (void *)(uintptr_t)c->box.dst : NULL,
        .dst_device = to_host ? 0 : c->box.dst,
        .dst_pitch = c->box.dst_pitch,
        .row_bytes = c->box.row,
        .rows = c->box.rows,
    };
    return engine->device->runtime->driver->cuMemcpy2DAsync(&rows, feed->stream);
}

_Static_assert(sizeof(hdi_product) == HDI_MATMUL_SLOTS * HDI_SLOT_BYTES, "the command is the product");

static hdcu_result issue_matmul(const hdi_feed *feed, const hdi_command *c)
{
    /* pairs with the release store of the port. NULL where the device came back after the operation had been checked. */
    hdi_blas *blas = atomic_load_explicit(&feed->blas, memory_order_acquire);
    if (!blas) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    hdi_product product;
    memcpy(&product, c, sizeof product);
    return hdi_blas_product(blas, &product);
}

hdcu_result hdi_issue(hdi_engine *engine, const hdi_feed *feed, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    switch (c->op) {
    case HDI_OP_LAUNCH:
        return issue_launch(engine, feed, c);
    case HDI_OP_COPY:
        return issue_copy(engine, feed, c);
    case HDI_OP_COPY_BOX:
        return issue_box(engine, feed, c);
    case HDI_OP_FILL:
        return driver->cuMemsetD32Async(c->fill.dst, c->fill.pattern, c->fill.words, feed->stream);
    case HDI_OP_MATMUL:
        return issue_matmul(feed, c);
    default:
        return HDCU_ERROR_NOT_SUPPORTED;
    }
}
