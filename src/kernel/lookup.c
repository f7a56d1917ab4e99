/* lookup.c - kernels by name: their structures, and the shared memory that they are allowed.
 *
 * Threads: any.
 * Locks: as in module.c; `cold` is held while a kernel is looked up.
 * Blocking: while the driver is called.
 * Always:
 * - A kernel that was handed out is known on a device, unless all devices are lost (loading.c).
 * - A kernel's number is its place in the runtime's table.
 */
#include "kernel/module_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes another block of kernel structures, with their entries for the engines. The caller holds the registry's lock.
 * False: no memory, or the table is full. */
static bool add_kernels(hd_runtime *rt)
{
    struct hdi_modules *reg = rt->modules;
    uint32_t chunk = rt->n_kernels / HDI_KERNEL_CHUNK;
    if (chunk == HDI_KERNEL_CHUNKS) {
        return false;
    }
    hdi_kernel_code *entries = calloc(HDI_KERNEL_CHUNK, sizeof *entries);
    hdi_kernel_place *places = hdi_stable_take(rt->stable, HDI_KERNEL_CHUNK * sizeof *places);
    if (!entries || !places) {
        free(entries);
        return false;
    }
    for (int i = HDI_KERNEL_CHUNK - 1; i >= 0; i--) {
        struct hd_kernel *k = &places[i].kernel;
        hdi_handle_set(&k->head, HDI_KERNEL_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
        k->number = chunk * HDI_KERNEL_CHUNK + (uint32_t)i;
        k->runtime = rt;
        k->next = reg->free_kernels;
        reg->free_kernels = k;
    }
    reg->blocks[chunk] = places;
    rt->n_kernels += HDI_KERNEL_CHUNK;
    /* pairs with the acquire load in hdi_kernel_at: the entries are zeroed before they are reachable */
    atomic_store_explicit(&rt->kernels[chunk], entries, memory_order_release);
    return true;
}

static struct hd_kernel *take_kernel(hd_runtime *rt)
{
    struct hdi_modules *reg = rt->modules;
    hdi_mutex_lock(&reg->lock);
    struct hd_kernel *k = NULL;
    if (reg->free_kernels || add_kernels(rt)) {
        k = reg->free_kernels;
        reg->free_kernels = k->next;
        k->next = NULL;
    }
    hdi_mutex_unlock(&reg->lock);
    return k;
}

void hdi_kernel_give(hd_runtime *rt, struct hd_kernel *k)
{
    hdi_params_give(k);
    k->module = NULL;
    hdi_set_live(&k->head, HDI_KERNEL_MAGIC, 0);
    if (hdi_handle_head_generation(&k->head) == 0) {
        return; /* all generations are used up, so the structure is not used again */
    }
    hdi_mutex_lock(&rt->modules->lock);
    k->next = rt->modules->free_kernels;
    rt->modules->free_kernels = k;
    hdi_mutex_unlock(&rt->modules->lock);
}

/* Fills in the description, facts and parameters of a kernel whose structure was just taken. */
static hd_status fill_in(struct hd_module *m, struct hd_kernel *k, const char *name, hdi_signature *signature)
{
    hd_status status = hdi_image_describe(&m->image, name, signature);
    status = status ? status : hdi_kernel_find(m, k, signature);
    return status ? status : hdi_params_set(k, signature);
}

static hd_status make_kernel(struct hd_module *m, const char *name, struct hd_kernel **out)
{
    hd_runtime *rt = m->runtime;
    struct hd_kernel *k = take_kernel(rt);
    if (!k) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory, or more than %d kernels",
                        HDI_KERNEL_CHUNKS * HDI_KERNEL_CHUNK);
    }
    k->module = m;
    snprintf(k->name, sizeof k->name, "%s", name);
    hdi_kernel_set_name(rt, k->number, name);
    hdi_signature signature = {0};
    hd_status status = fill_in(m, k, name, &signature);
    free(signature.params);
    if (status) {
        hdi_kernel_give(rt, k);
        return status;
    }
    *out = k;
    return HD_OK;
}

static hd_status no_module(const hd_module *handle)
{
    return hdi_handle_refused(handle, "module", "it was unloaded, or its runtime closed");
}

hd_status hd_kernel_get(hd_module *handle, const char *name, hd_kernel **out)
{
    HDI_INSIDE(hdi_module_runtime(handle));
    if (!name || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", name ? "out" : "name");
    }
    struct hd_module *m = hdi_module_from_handle(handle);
    if (!m) {
        return no_module(handle);
    }
    hd_runtime *rt = m->runtime;
    if (strlen(name) >= HDI_KERNEL_NAME_BYTES) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "no kernel has a name of more than %d characters here",
                        HDI_KERNEL_NAME_BYTES - 1);
    }
    hd_status status = HD_OK;
    hdi_mutex_lock(&rt->restarting);
    hdi_mutex_lock(&rt->cold);
    struct hd_kernel *k = NULL;
    if (hdi_module_from_handle(handle)) { /* hd_module_unload holds `restarting` as well */
        for (k = m->kernels; k && strcmp(k->name, name) != 0;) {
            k = k->next;
        }
    } else {
        status = no_module(handle);
    }
    if (!k && !status) {
        status = make_kernel(m, name, &k);
        if (!status) {
            hdi_mutex_lock(&rt->modules->lock);
            hdi_set_live(&k->head, HDI_KERNEL_MAGIC, 1);
            k->next = m->kernels;
            m->kernels = k;
            hdi_mutex_unlock(&rt->modules->lock);
        }
    }
    if (!status) {
        *out = hdi_handle_make(k, hdi_handle_head_generation(&k->head));
    }
    hdi_mutex_unlock(&rt->cold);
    hdi_mutex_unlock(&rt->restarting);
    return status;
}

hd_status hdi_kernel_refused(void)
{
    return hdi_fail(HD_ERROR_HANDLE, "not a kernel of this runtime, or its module was unloaded");
}

/* The caller holds `cold` and has checked the kernel's handle. */
static hd_status allow_shared(struct hd_kernel *kernel, hdi_device *device, size_t bytes)
{
    int d = device->index;
    uint32_t own = atomic_load_explicit(&kernel->static_shared[d], memory_order_relaxed);
    size_t most = device->limits.shared_max - own;
    if (own > device->limits.shared_max || bytes > most) {
        return hdi_fail(HD_ERROR_LIMIT,
                        "kernel '%s' with %zu bytes of dynamic and %u of static shared memory: device %d has %zu",
                        kernel->name, bytes, own, d, device->limits.shared_max);
    }
    if (bytes > atomic_load_explicit(&kernel->dynamic_shared[d], memory_order_acquire)) {
        hdi_answer answer = device->port->calls->kernel_shared(device->port, kernel->number, (uint32_t)most);
        if (!hdi_answered(answer)) {
            return hdi_answer_failed(device, answer);
        }
        atomic_store_explicit(&kernel->dynamic_shared[d], (uint32_t)most, memory_order_release);
    }
    return HD_OK;
}

hd_status hdi_kernel_allow_shared(struct hd_kernel *kernel, uint64_t word, hdi_device *device, size_t bytes)
{
    hd_runtime *rt = device->runtime;
    hdi_mutex_lock(&rt->cold); /* hd_module_unload waits for this lock */
    bool there = word == 0 || atomic_load_explicit(&kernel->head.word, memory_order_acquire) == word;
    hd_status status = there ? allow_shared(kernel, device, bytes) : hdi_kernel_refused();
    hdi_mutex_unlock(&rt->cold);
    return status;
}
