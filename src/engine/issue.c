/* issue.c - the driver call of each operation in the table of command.h.
 *
 * Threads: the thread that runs the device's engine. The device's context is current.
 * Locks: none.
 * Always: a command is one driver call or library call, which does not wait for the device.
 */
#include "engine/engine.h"

#include <string.h>
#include "blas/blas.h"

bool hdi_launch_fill(hdi_device *device, const hdi_command *c, hdi_launch *out)
{
    uint32_t number = c->kernel;
    if (!hdi_kernel_exists(device->runtime, number)) {
        return false;
    }
    out->command = c;
    out->bytes = c->launch.argument_bytes;
    out->extra[0] = HDCU_LAUNCH_PARAM_BUFFER_POINTER;
    out->extra[1] = (void *)(uintptr_t)c->launch.arguments;
    out->extra[2] = HDCU_LAUNCH_PARAM_BUFFER_SIZE;
    out->extra[3] = &out->bytes;
    out->extra[4] = HDCU_LAUNCH_PARAM_END;
    out->params = (hdcu_kernel_node_params){
        /* pairs with the release store of the port, which in a worker process is on another thread */
        .function = atomic_load_explicit(&hdi_kernel_at(device->runtime, number)->function[device->index],
                                         memory_order_acquire),
        .grid_x = c->launch.grid_x,
        .grid_y = c->launch.grid_y,
        .grid_z = c->launch.grid_z,
        .block_x = hdi_block_x(c->launch.block),
        .block_y = hdi_block_y(c->launch.block),
        .block_z = hdi_block_z(c->launch.block),
        .shared_bytes = c->launch.shared_units * HDI_SHARED_UNIT,
        .extra = out->bytes ? out->extra : NULL,
    };
    return true;
}

static hdcu_result issue_launch(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    hdi_launch l;
    if (!hdi_launch_fill(engine->device, c, &l)) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    const hdcu_kernel_node_params *p = &l.params;
    return engine->device->runtime->driver->cuLaunchKernel(p->function, p->grid_x, p->grid_y, p->grid_z, p->block_x,
                                                           p->block_y, p->block_z, p->shared_bytes, stream->handle,
                                                           NULL, p->extra);
}

static hdcu_result issue_copy(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr dst = c->copy.dst;
    hdcu_deviceptr src = c->copy.src;
    switch (c->kind & HDI_COPY_KIND) {
    case HDI_COPY_TO_DEVICE:
        return driver->cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, c->copy.bytes, stream->handle);
    case HDI_COPY_TO_HOST:
        return driver->cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, c->copy.bytes, stream->handle);
    case HDI_COPY_ON_DEVICE:
    case HDI_COPY_PEER:
        return driver->cuMemcpyDtoDAsync(dst, src, c->copy.bytes, stream->handle);
    default:
        return driver->cuMemcpyAsync(dst, src, c->copy.bytes, stream->handle);
    }
}

static hdcu_result issue_copy_box(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    bool from_host = kind == HDI_COPY_TO_DEVICE || kind == HDI_COPY_HOST;
    bool to_host = kind == HDI_COPY_TO_HOST || kind == HDI_COPY_HOST;
    /* On a device either side may be a peer's. The driver detects that by the address. */
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
    return engine->device->runtime->driver->cuMemcpy2DAsync(&rows, stream->handle);
}

_Static_assert(sizeof(hdi_product) == HDI_MATMUL_SLOTS * HDI_SLOT_BYTES, "the command is the product");

static hdcu_result issue_matmul(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    (void)engine;
    /* pairs with the release store of the port. NULL where the device came back after the operation was checked */
    hdi_blas *blas = atomic_load_explicit(&stream->blas, memory_order_acquire);
    if (!blas) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    hdi_product product;
    memcpy(&product, c, sizeof product);
    return hdi_blas_product(blas, &product);
}

static hdcu_result issue_fill(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    return engine->device->runtime->driver->cuMemsetD32Async(c->fill.dst, c->fill.pattern, c->fill.words,
                                                             stream->handle);
}

hdcu_result hdi_issue(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    static hdcu_result (*const calls[HDI_OPS])(const hdi_engine *, const hdi_stream *, const hdi_command *) = {
#define CALL(op, call, name, entries, rank) [HDI_OP_##op] = issue_##call,
        HDI_OP_MAP(CALL)
#undef CALL
    };
    uint8_t op = *(const volatile uint8_t *)&c->op; /* another process may write over the ring */
    return hdi_op_is_work(op) ? calls[op](engine, stream, c) : HDCU_ERROR_NOT_SUPPORTED;
}
