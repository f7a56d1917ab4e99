/* matmul_library.c - opens a library once for each lane, and keeps its facts. matmul.h describes
 * threads, locks, blocking and guarantees.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "buffer/buffer.h"
#include "engine/engine.h"
#include "tensor/matmul.h"
#include "tensor/part.h"

#define TYPES 16 /* more than the number of types */

/* A library that the engine of a lane opened. After the library is open, only `workspace` changes.
 * After a restart, a newer record is put in front of this one. */
typedef struct opened {
    hdi_blas_facts facts;
    uint64_t restarts;    /* the number of restarts of the device before the library was opened */
    hd_buffer *workspace; /* NULL: none */
    struct opened *before;
} opened;

struct hdi_products {
    hdi_mutex opening[HDI_DEVICES_MAX];
    _Atomic(opened *) lanes[HDI_DEVICES_MAX * HDI_LANES_MAX];
    _Atomic(struct hd_kernel *) kernels[TYPES]; /* NULL: not requested so far */
};

static hd_status products_create(hd_runtime *rt)
{
    hdi_tensor_of(rt)->products = calloc(1, sizeof *hdi_tensor_of(rt)->products);
    if (!hdi_tensor_of(rt)->products) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&hdi_tensor_of(rt)->products->opening[i], HDI_RANK_MATMUL_LIBRARY);
    }
    return HD_OK;
}

static void products_release(hd_runtime *rt)
{
    struct hdi_products *p = hdi_tensor_of(rt)->products;
    if (!p) {
        return;
    }
    for (size_t i = 0; i < sizeof p->lanes / sizeof p->lanes[0]; i++) {
        for (opened *o = atomic_load_explicit(&p->lanes[i], memory_order_relaxed), *before; o; o = before) {
            before = o->before;
            free(o); /* the workspace ends when all buffers end */
        }
    }
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_destroy(&p->opening[i]);
    }
    free(p);
    hdi_tensor_of(rt)->products = NULL;
}

const hdi_lifetime hdi_products_lifetime = {.create = products_create, .release = products_release};

/* ---- opening ---- */

/* Allocates the memory that the library uses between the steps of a product. Only this lane's
 * products use it. */
static hd_status products_take_workspace(hd_lane *lane, hd_buffer **out, uint64_t *address, uint64_t *bytes)
{
    hdi_device *device = lane->device;
    *out = NULL;
    *address = 0;
    *bytes = hdi_blas_workspace(device->runtime->provider, device->facts.compute_major);
    if (*bytes == 0) {
        return HD_OK;
    }
    hd_status status = hdi_alloc_with(hdi_lane_handle(lane), *bytes, NULL, __builtin_return_address(0), out);
    if (status) {
        return hdi_fail_about(status, "memory for the library's own use");
    }
    struct hd_buffer *b = hdi_buffer_of_own_handle(*out);
    b->special |= HDI_BUFFER_OWN;
    *address = b->address;
    return HD_OK;
}

/* Fails for a library that the option names, but that does not open or makes no products. */
static hd_status products_refuse(const hdi_blas_facts *facts, const char *option)
{
    return hdi_fail(HD_ERROR_OPTION, "option blas=%.100s: %.300s", option, facts->why);
}

/* Prepares the record of a lane's library and its workspace. The caller does not hold the lock: the
 * allocation may call a reclaim callback, which may make products. */
static hd_status products_prepare(hd_lane *lane, opened **out, uint64_t *address, uint64_t *bytes)
{
    opened *o = calloc(1, sizeof *o);
    if (!o) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    /* Read before any request. If the device restarts during this call, the record counts as older
     * than the restart. */
    o->restarts = atomic_load_explicit(&lane->device->restarts, memory_order_acquire);
    hd_status status = products_take_workspace(lane, &o->workspace, address, bytes);
    if (status) {
        free(o);
        return status;
    }
    *out = o;
    return HD_OK;
}

static void products_discard(opened *o)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_free(o->workspace);
    hdi_attempt_end(&attempt);
    free(o);
}

/* The caller holds the device's lock. */
static hd_status products_open_with(hd_lane *lane, opened *o, uint64_t address, uint64_t bytes)
{
    hdi_device *device = lane->device;
    const char *option = device->runtime->options.blas;
    bool by_name = strcmp(option, "auto") != 0 && strcmp(option, "builtin") != 0;
    int64_t began = hdi_record_began(&device->runtime->recorder);
    hdi_answer answer = device->port->calls->blas(device->port, lane->number, address, bytes, &o->facts);
    hdi_pause_end(&device->runtime->recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_CODE, .device = (uint8_t)device->index});
    if (!hdi_answered(answer)) {
        return hdi_answer_failed(device, answer);
    }
    return by_name && o->facts.types == 0 ? products_refuse(&o->facts, option) : HD_OK;
}

static bool products_is_current(const hdi_device *device, const opened *o)
{
    return o && o->restarts == atomic_load_explicit(&device->restarts, memory_order_acquire);
}

/* Opens the lane's library. Does nothing if another thread opened the library, or if the device was
 * restarted since the record was prepared. So the caller checks again. */
static hd_status products_open_for(hd_lane *lane, _Atomic(opened *) *place)
{
    hdi_device *device = lane->device;
    hdi_mutex *lock = &hdi_tensor_of(device->runtime)->products->opening[device->index];
    opened *o = NULL;
    uint64_t address = 0, bytes = 0;
    hd_status status = products_prepare(lane, &o, &address, &bytes);
    if (status) {
        return status;
    }
    hdi_mutex_lock(lock);
    opened *before = atomic_load_explicit(place, memory_order_relaxed);
    if (!products_is_current(device, before) && products_is_current(device, o)) {
        status = products_open_with(lane, o, address, bytes);
        if (!status) {
            if (before && before->workspace) {
                hdi_free(before->workspace); /* the workspace was lost with the former worker */
                before->workspace = NULL;
            }
            if (o->facts.types == 0) {
                hdi_free(o->workspace); /* if no library was opened, nothing uses the workspace */
                o->workspace = NULL;
            }
            o->before = before;
            /* Pairs with the acquire load below, so that the record is complete. */
            atomic_store_explicit(place, o, memory_order_release);
            o = NULL;
        }
    }
    hdi_mutex_unlock(lock);
    if (o) {
        products_discard(o);
    }
    return status;
}

hd_status hdi_products_library(hd_lane *lane, const hdi_blas_facts **out)
{
    hdi_device *device = lane->device;
    _Atomic(opened *) *place = &hdi_tensor_of(device->runtime)->products->lanes[lane->global];
    hd_status status = HD_OK;
    while (!status) {
        const opened *o = atomic_load_explicit(place, memory_order_acquire);
        if (__builtin_expect(hdi_device_lost(device), 0)) {
            return hdi_lane_refuses(lane);
        }
        if (__builtin_expect(products_is_current(device, o), 1)) {
            *out = &o->facts;
            return HD_OK;
        }
        status = products_open_for(lane, place);
    }
    return status;
}

void hdi_products_hold(hd_runtime *rt, int device)
{
    hdi_mutex_lock(&hdi_tensor_of(rt)->products->opening[device]);
}

void hdi_products_resume(hd_runtime *rt, int device)
{
    hdi_mutex_unlock(&hdi_tensor_of(rt)->products->opening[device]);
}

/* ---- built-in kernels ---- */

hd_status hdi_products_kernel(hd_runtime *rt, hd_type type, struct hd_kernel **out)
{
    static const char *const names[TYPES] = {
        [HD_TYPE_F16] = "hd_product_f16", [HD_TYPE_BF16] = "hd_product_bf16", [HD_TYPE_F32] = "hd_product_f32",
        [HD_TYPE_F64] = "hd_product_f64", [HD_TYPE_C64] = "hd_product_c64",   [HD_TYPE_C128] = "hd_product_c128",
    };
    _Atomic(struct hd_kernel *) *place = &hdi_tensor_of(rt)->products->kernels[type];
    /* Pairs with the release store below, so that the kernel's structure is complete. Threads that
     * ask at the same time get the same kernel. */
    struct hd_kernel *k = atomic_load_explicit(place, memory_order_acquire);
    hd_status status = HD_OK;
    if (!k) {
        hd_module *module = NULL;
        hd_kernel *handle = NULL;
        status = hdi_builtin_get(rt, HDI_BUILTIN_MATMUL, &module);
        status = status ? status : hd_kernel_get(module, names[type], &handle);
        if (!status) {
            k = hdi_kernel_of_builtin(handle);
            atomic_store_explicit(place, k, memory_order_release);
        }
    }
    if (!status) {
        *out = k;
    }
    return status;
}
