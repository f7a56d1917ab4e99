/* run.c - does the work of one operation: copies, fills, kernels, host functions, products, graphs.
 *
 * Threads: stream threads. Locks: the host lock is held at the call, and released for the work itself. Blocking: as long as
 * the work takes.
 * Always: our memory is looked up again when the work starts. Copies, fills and kernels touch memory under the fault guard,
 * so freed or unmapped memory is a device fault and not a crash.
 */
#include <stdlib.h>
#include <string.h>
#include <heddle/kernel.h>
#include <heddle/module.h>
#include "simulator/cpu_run.h"
#include "simulator/host.h"

static void copy_bytes(void *data)
{
    const hdi_host_op *op = data;
    const void *src = op->u.copy.src_is_data ? hdi_host_op_data_of(op) : (const void *)op->u.copy.src;
    for (size_t i = 0; i < op->u.copy.rows; i++) {
        memmove((char *)op->u.copy.dst + i * op->u.copy.dst_pitch, (const char *)src + i * op->u.copy.src_pitch,
                op->u.copy.bytes);
    }
}

static void fill_bytes(void *data)
{
    const hdi_host_op *op = data;
    if (op->u.fill.width == 1) {
        memset((void *)op->u.fill.dst, (int)op->u.fill.value, op->u.fill.bytes);
    } else if (op->u.fill.bytes == 4) {
        /* One word may be a signal to a thread that polls it. It is stored whole, and after everything that the stream
         * did before, as a GPU's store is. Pairs with that thread's acquire load. */
        __atomic_store_n((uint32_t *)op->u.fill.dst, op->u.fill.value, __ATOMIC_RELEASE);
    } else {
        uint32_t *words = (uint32_t *)op->u.fill.dst;
        for (size_t i = 0; i < op->u.fill.bytes / 4; i++) {
            words[i] = op->u.fill.value;
        }
    }
}

static bool reaches(int device, uintptr_t address, size_t bytes)
{
    return hdi_host_reach_of(device, address, bytes) == HDI_HOST_REACHABLE;
}

static hdcu_result guarded(void (*work)(void *), const hdi_host_op *op)
{
    hdi_host_unlock();
    hdcu_result r = hdi_cpu_guarded(work, (void *)(uintptr_t)op, NULL);
    hdi_host_lock();
    return r;
}

static hdcu_result copy(int device, const hdi_host_op *op)
{
    size_t more = op->u.copy.rows - 1;
    if ((op->u.copy.dst_is_known && !reaches(-1, op->u.copy.dst, more * op->u.copy.dst_pitch + op->u.copy.bytes)) ||
        (op->u.copy.src_is_known && !reaches(-1, op->u.copy.src, more * op->u.copy.src_pitch + op->u.copy.bytes))) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    bool lost = false;
    hdcu_result r = hdi_host_corrupt_copy(device, op->u.copy.dst, op->u.copy.bytes, &lost);
    return r != HDCU_SUCCESS || lost ? r : guarded(copy_bytes, op);
}

static hdcu_result fill(int device, const hdi_host_op *op)
{
    if (!reaches(device, op->u.fill.dst, op->u.fill.bytes)) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    bool lost = false;
    hdcu_result r = hdi_host_corrupt_copy(device, op->u.fill.dst, op->u.fill.bytes, &lost);
    return r != HDCU_SUCCESS || lost ? r : guarded(fill_bytes, op);
}

/* A kernel may be given any number as an address. Our memory that this device may not access is a fault, as it would be
 * on a GPU. */
static bool arguments_are_reachable(int device, const hd_cpu_kernel *kernel, const char *arguments)
{
    bool yes = true;
    for (uint32_t i = 0; i < kernel->n_params && yes; i++) {
        const hd_cpu_param *p = &kernel->params[i];
        uint64_t address;
        if (p->kind == HD_ARG_BUFFER && p->size == sizeof address) {
            memcpy(&address, arguments + p->offset, sizeof address);
            yes = hdi_host_reach_of(device, (uintptr_t)address, 1) != HDI_HOST_UNREACHABLE;
        }
    }
    return yes;
}

static hdcu_result kernel(int device, uint64_t random, const hdi_host_op *op)
{
    const void *arguments = hdi_host_op_data_of(op);
    if (!arguments_are_reachable(device, op->u.kernel.kernel, arguments)) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    hdi_cpu_launch launch = {.kernel = op->u.kernel.kernel,
                             .storage = &op->u.kernel.module->storage,
                             .arguments = arguments,
                             .dynamic_shared_bytes = op->u.kernel.dynamic_shared_bytes,
                             .schedule = random,
                             .cancel = &hdi_host.devices[device].cancel};
    memcpy(launch.grid, op->u.kernel.grid, sizeof launch.grid);
    memcpy(launch.block, op->u.kernel.block, sizeof launch.block);
    hdi_host_snapshot *snapshot = NULL;
    hdcu_result r = hdi_host_corrupt_kernel(device, op->u.kernel.kernel, arguments, &snapshot);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    hdi_host_unlock();
    r = hdi_cpu_run(&launch, NULL);
    hdi_host_lock();
    hdi_host_snapshot_restore(snapshot);
    /* a lack of host memory comes too late for a refusal: the launch is lost, so the code must be a sticky one */
    return r == HDCU_SUCCESS || hdi_driver_code_is_fatal(r) ? r : HDCU_ERROR_LAUNCH_FAILED;
}

static void call(const hdi_host_op *op)
{
    hdi_host_unlock();
    hdi_host_set_in_function(true);
    op->u.call.function(op->u.call.user_data);
    hdi_host_set_in_function(false);
    hdi_host_lock();
}

void hdi_host_run(uint64_t context_handle, int device, uint64_t random, const hdi_host_op *op)
{
    hdcu_result r = HDCU_SUCCESS;
    switch (op->kind) {
    case HDI_HOST_OP_COPY:
        r = copy(device, op);
        break;
    case HDI_HOST_OP_FILL:
        r = fill(device, op);
        break;
    case HDI_HOST_OP_KERNEL:
        r = kernel(device, random, op);
        break;
    case HDI_HOST_OP_CALL:
        call(op);
        break;
    case HDI_HOST_OP_PRODUCT:
        r = op->u.product.run(device, op);
        break;
    case HDI_HOST_OP_GRAPH:
        hdi_host_graph_run(random, op->u.graph);
        break;
    case HDI_HOST_OP_FREE:
    case HDI_HOST_OP_RECORD:
    case HDI_HOST_OP_WAIT:
        break; /* the stream handles these itself */
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_context_fault(context_handle, r);
    }
}
