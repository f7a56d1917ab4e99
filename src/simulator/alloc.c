/* alloc.c - plain device memory (cuMemAlloc) and pinned host memory (cuMemHostAlloc, cuMemHostRegister).
 *
 * Threads: any. Locks: the host lock.
 * Blocking: freeing waits for the work of the context, and of all contexts for pinned memory. The driver does so too:
 * queued work never uses memory that is gone.
 * Always: device memory is charged to its device in whole pages. Every block that is made here has an inaccessible page
 * behind it.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "simulator/host.h"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void hdi_host_block_release(hdi_host_mapping *m)
{
    if (m->device >= 0) {
        hdi_host.devices[m->device].used -= m->span.bytes;
    }
    hdi_host_set_remove(&hdi_host_mappings, &m->span);
    hdi_host_discard(&m->garbage);
}

void hdi_host_allocated_release(hdi_host_context *context)
{
    for (size_t i = hdi_host_mappings.count; i-- > 0;) {
        hdi_host_mapping *m = (hdi_host_mapping *)(void *)hdi_host_mappings.spans[i];
        if (m->context == context) {
            hdi_host_block_release(m);
        }
    }
}

hdcu_result hdi_host_block_make(hdi_host_context *context, hdi_host_memory_kind kind, size_t bytes,
                                hdi_host_mapping **out)
{
    size_t page = page_bytes();
    bool of_device = kind == HDI_HOST_ALLOCATED || kind == HDI_HOST_POOLED;
    if (bytes == 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (bytes > SIZE_MAX / 2) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    bytes = (bytes + page - 1) & ~(page - 1);
    if (of_device && bytes > hdi_host.memory - hdi_host.devices[context->device].used) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdi_host_mapping *m = calloc(1, sizeof *m);
    if (!m) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    char *base = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(m);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    mprotect(base + bytes, page, PROT_NONE);
    m->span = (hdi_host_span){(uintptr_t)base, bytes};
    m->garbage = (hdi_host_garbage){.map = base, .map_bytes = bytes + page, .descriptor = -1, .self = m};
    m->kind = kind;
    m->device = of_device ? context->device : -1;
    m->context = context;
    if (!hdi_host_set_insert(&hdi_host_mappings, &m->span)) {
        hdi_host_discard(&m->garbage);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (of_device) {
        hdi_host.devices[context->device].used += bytes;
    }
    *out = m;
    return HDCU_SUCCESS;
}

static hdi_host_mapping *block_at(uintptr_t address, hdi_host_memory_kind kind)
{
    hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, address);
    return m && m->span.start == address && m->kind == kind ? m : NULL;
}

/* Waits for the work that may use the block, then releases the block. */
static hdcu_result free_block(uintptr_t address, hdi_host_memory_kind kind, hdcu_result if_null, hdcu_result if_unknown)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && address == 0) {
        return hdi_host_leave(if_null);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_mapping *m = block_at(address, kind);
    if (!m && kind == HDI_HOST_ALLOCATED && hdi_host_pool_has(address)) {
        return hdi_host_leave(hdi_host_mempool_free(address));
    }
    if (m) {
        /* Every device may use pinned memory. A fault during the wait does not prevent the release. */
        bool pinned = kind != HDI_HOST_ALLOCATED;
        for (int i = 0; pinned && i < hdi_host.device_count; i++) {
            if (hdi_host.devices[i].context) {
                hdi_host_context_drain(hdi_host.devices[i].context);
            }
        }
        m = block_at(address, kind); /* the lock was released meanwhile */
        if (m && !pinned) {
            hdi_host_context_drain(m->context);
            m = block_at(address, kind);
        }
    }
    if (m) {
        hdi_host_block_release(m);
    }
    return hdi_host_leave(m ? HDCU_SUCCESS : if_unknown);
}

hdcu_result hdi_host_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!free_bytes || !total_bytes)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *total_bytes = hdi_host.memory;
        *free_bytes = hdi_host.memory - hdi_host.devices[context->device].used;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemAlloc(hdcu_deviceptr *pointer, size_t bytes)
{
    hdi_host_context *context;
    hdi_host_mapping *m;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && !pointer) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_block_make(context, HDI_HOST_ALLOCATED, bytes, &m);
    }
    if (r == HDCU_SUCCESS) {
        *pointer = m->span.start;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemFree(hdcu_deviceptr pointer)
{
    return free_block(pointer, HDI_HOST_ALLOCATED, HDCU_SUCCESS, HDCU_ERROR_INVALID_VALUE);
}

hdcu_result hdi_host_cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    hdi_host_context *context;
    hdi_host_mapping *m;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!pointer || flags > 7)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_block_make(context, HDI_HOST_PINNED, bytes, &m);
    }
    if (r == HDCU_SUCCESS) {
        *pointer = (void *)m->span.start;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemFreeHost(void *pointer)
{
    return free_block((uintptr_t)pointer, HDI_HOST_PINNED, HDCU_SUCCESS, HDCU_ERROR_INVALID_VALUE);
}

hdcu_result hdi_host_cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    uintptr_t address = (uintptr_t)pointer;
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!pointer || bytes == 0 || bytes > UINTPTR_MAX - address || flags > 15 ||
                              hdi_host_set_overlaps(&hdi_host_reservations, address, bytes))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS && hdi_host_set_overlaps(&hdi_host_mappings, address, bytes)) {
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)
                                        hdi_host_mappings.spans[hdi_host_set_seek(&hdi_host_mappings, address)];
        r = m->device < 0 ? HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED : HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_mapping *m = calloc(1, sizeof *m);
        if (m) {
            m->span = (hdi_host_span){address, bytes};
            m->garbage = (hdi_host_garbage){.descriptor = -1, .self = m};
            m->kind = HDI_HOST_REGISTERED;
            m->device = -1;
            m->context = context;
        }
        if (!m || !hdi_host_set_insert(&hdi_host_mappings, &m->span)) {
            free(m);
            r = HDCU_ERROR_OUT_OF_MEMORY;
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemHostUnregister(void *pointer)
{
    return free_block((uintptr_t)pointer, HDI_HOST_REGISTERED, HDCU_ERROR_INVALID_VALUE,
                      HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

hdcu_result hdi_host_cuMemHostGetDevicePointer(hdcu_deviceptr *device_pointer, void *pointer, unsigned flags)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, (uintptr_t)pointer);
        if (!device_pointer || flags != 0 || !m || m->device >= 0) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else {
            *device_pointer = (uintptr_t)pointer;
        }
    }
    return hdi_host_leave(r);
}
