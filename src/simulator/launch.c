/* launch.c - launches of kernels and of host functions.
 *
 * Any thread. Takes the host lock. Always: argument values are copied during the call; a queued launch keeps its
 * module loaded.
 */
#include <string.h>
#include <heddle/kernel.h>
#include "simulator/cpu_run.h"
#include "simulator/host.h"

static hdcu_result check_shape(const hdi_host_function *f, const uint32_t grid[3], const uint32_t block[3],
                               unsigned shared_bytes)
{
    static const uint32_t grid_max[3] = {2147483647, 65535, 65535}, block_max[3] = {1024, 1024, 64};
    for (int d = 0; d < 3; d++) {
        if (grid[d] == 0 || grid[d] > grid_max[d] || block[d] == 0 || block[d] > block_max[d]) {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads > 1024 || shared_bytes > (unsigned)f->dynamic_shared_max) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    return f->kernel->max_threads > 0 && threads > f->kernel->max_threads ? HDCU_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                                          : HDCU_SUCCESS;
}

static hdcu_result from_extra(char *block, size_t block_bytes, void **extra)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; *extra != HDCU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HDCU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == HDCU_LAUNCH_PARAM_BUFFER_SIZE && extra[1]) {
            bytes = *(const size_t *)extra[1];
        } else {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    if ((!buffer && block_bytes > 0) || bytes < block_bytes) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (block_bytes > 0) {
        memcpy(block, buffer, block_bytes);
    }
    return HDCU_SUCCESS;
}

static hdcu_result copy_arguments(hdi_host_op *op, const hd_cpu_kernel *kernel, void **parameters, void **extra)
{
    if ((parameters && extra) || (!parameters && !extra && kernel->n_params > 0)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    size_t bytes = kernel->argument_bytes;
    char *block = hdi_host_op_data(op, bytes ? bytes : 1);
    if (!block) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    memset(block, 0, bytes);
    if (extra) {
        return from_extra(block, bytes, extra);
    }
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        if (!parameters[i]) {
            return HDCU_ERROR_INVALID_VALUE;
        }
        memcpy(block + kernel->params[i].offset, parameters[i], kernel->params[i].size);
    }
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_kernel_op(const hdcu_kernel_node_params *p, const hdi_host_context *context, hdi_host_op *op)
{
    hdi_host_function *f = hdi_host_handle_find(HDI_HOST_FUNCTION, (uintptr_t)p->function);
    if (!f || f->module->context != context) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    uint32_t grid[3] = {p->grid_x, p->grid_y, p->grid_z}, block[3] = {p->block_x, p->block_y, p->block_z};
    hdcu_result r = check_shape(f, grid, block, p->shared_bytes);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    *op = (hdi_host_op){.kind = HDI_HOST_OP_KERNEL};
    memcpy(op->u.kernel.grid, grid, sizeof grid);
    memcpy(op->u.kernel.block, block, sizeof block);
    op->u.kernel.module = f->module;
    op->u.kernel.kernel = f->kernel;
    op->u.kernel.dynamic_shared_bytes = p->shared_bytes;
    f->module->references++;
    r = copy_arguments(op, f->kernel, p->parameters, p->extra);
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(op, r);
    }
    return r;
}

hdcu_result hdi_host_cuLaunchKernel(hdcu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                    hdcu_stream stream_handle, void **parameters, void **extra)
{
    hdi_host_stream *stream;
    hdi_host_op op;
    const hdcu_kernel_node_params p = {
        .function = function,
        .grid_x = grid_x,
        .grid_y = grid_y,
        .grid_z = grid_z,
        .block_x = block_x,
        .block_y = block_y,
        .block_z = block_z,
        .shared_bytes = shared_bytes,
        .parameters = parameters,
        .extra = extra,
    };
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_kernel_op(&p, stream->context, &op);
    }
    return hdi_host_leave(r == HDCU_SUCCESS ? hdi_host_submit(stream, &op) : r);
}

hdcu_result hdi_host_cuLaunchHostFunc(hdcu_stream stream_handle, hdcu_host_fn function, void *user_data)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS && !function) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_op op = {.kind = HDI_HOST_OP_CALL, .u.call = {function, user_data}};
        r = hdi_host_submit(stream, &op);
    }
    return hdi_host_leave(r);
}
