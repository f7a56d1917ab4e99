/* loading.c - code on devices: a module or kernel gets to a device at its first use there.
 *
 * hd_module_load loads on one device, to check the image. hd_kernel_get looks the kernel up on one device. Every other
 * device gets both at the first launch there, on the launching thread. With the option modules=all every device gets
 * them at once. A restarted device gets all that it had.
 *
 * Threads: any.
 * Locks: `loading` of a device protects the numbers of modules and the facts of kernels on that device. It is held
 * while the driver is called. The order is `restarting`, `cold`, `loading`, the registry's lock.
 * Blocking: while the driver loads code or waits for work on the device.
 * Always: a kernel's facts on a device are complete when its max_threads there is not 0, since that is stored last.
 */
#include <stdlib.h>
#include "base/lock.h"
#include "kernel/module_internal.h"

hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device)
{
    char log[HDI_CODE_LOG_BYTES] = "";
    hdi_answer answer = device->port->calls->load(device->port, &m->code, &m->loaded[device->index], log);
    if (hdi_answered(answer)) {
        return HD_OK;
    }
    m->loaded[device->index] = 0;
    log[sizeof log - 1] = 0;
    switch (answer.code) {
    case HDCU_ERROR_INVALID_IMAGE:
    case HDCU_ERROR_NO_BINARY_FOR_GPU:
    case HDCU_ERROR_INVALID_PTX:
    case HDCU_ERROR_INVALID_SOURCE:
    case HDCU_ERROR_INVALID_VALUE:
    case HDCU_ERROR_JIT_COMPILER_NOT_FOUND:
    case HDCU_ERROR_UNSUPPORTED_PTX_VERSION: /* newer than the driver accepts */
        return hdi_fail_driver(HD_ERROR_IMAGE, answer.code, answer.call, device->index,
                               "device %d cannot load the image: %s%s%.300s", device->index,
                               hdi_driver_code_name(answer.code), log[0] ? ": " : "", log);
    default:
        return hdi_answer_failed(device, answer);
    }
}

static hd_status driver_said_no(struct hd_module *m, hdi_device *device, hdi_answer answer, const char *name)
{
    if (answer.code == HDCU_ERROR_NOT_FOUND) {
        char names[256] = "";
        hdi_image_kernel_names(&m->image, names, sizeof names);
        return hdi_fail_driver(HD_ERROR_NOT_FOUND, answer.code, answer.call, device->index,
                               "the module has no kernel '%.100s'%s%s", name, names[0] ? "; it has " : "", names);
    }
    return hdi_answer_failed(device, answer);
}

/* Looks a kernel up on a device that has its module. Asks the driver for the signature if the image does not describe
 * it. */
static hd_status look_up(struct hd_module *m, struct hd_kernel *k, hdi_device *device, hdi_signature *signature)
{
    int d = device->index;
    hdi_kernel_facts *facts = malloc(sizeof *facts);
    if (!facts) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = HD_OK;
    hdi_answer answer = device->port->calls->kernel(device->port, m->loaded[d], k->name, k->number, facts);
    if (!hdi_answered(answer)) {
        status = driver_said_no(m, device, answer, k->name);
    } else if (!signature->described) {
        status = hdi_image_describe_by_driver(facts, k->name, signature);
    }
    if (!status) {
        uint32_t most = device->limits.threads_per_block;
        atomic_store_explicit(&k->static_shared[d], facts->static_shared, memory_order_relaxed);
        uint64_t usual = device->limits.shared_default;
        uint32_t dynamic = usual > facts->static_shared ? (uint32_t)(usual - facts->static_shared) : 0;
        atomic_store_explicit(&k->dynamic_shared[d], dynamic, memory_order_release);
        /* Stored last. Pairs with the acquire loads in launch.c: after them the other facts are complete. */
        atomic_store_explicit(&k->max_threads[d], facts->max_threads < most ? facts->max_threads : most,
                              memory_order_release);
    }
    free(facts);
    return status;
}

/* `loading` of the device is held by the caller. */
static hd_status load_and_look_up(struct hd_module *m, struct hd_kernel *k, hdi_device *device,
                                  hdi_signature *signature)
{
    hd_status status = m->loaded[device->index] ? HD_OK : hdi_module_load_on(m, device);
    return status ? status : look_up(m, k, device, signature);
}

/* Looks a kernel up on a device, where it is possible. `load`: also where the module is not loaded so far.
 * True: the kernel's facts are known there. False with *status unchanged or OK: the device is lost, or has not got the
 * module. False with another *status: an error. */
static bool try_on(struct hd_module *m, struct hd_kernel *k, hdi_device *device, bool load, hdi_signature *signature,
                   hd_status *status)
{
    hd_runtime *rt = m->runtime;
    bool known = false;
    hdi_mutex_lock(&rt->modules->loading[device->index]);
    if (!hdi_device_lost(device) && (load || m->loaded[device->index])) {
        *status = load_and_look_up(m, k, device, signature);
        known = *status == HD_OK;
        if (*status == HD_ERROR_DEVICE_LOST && rt->is_process) {
            *status = HD_OK; /* a launch after the restart looks it up */
        }
    }
    hdi_mutex_unlock(&rt->modules->loading[device->index]);
    return known;
}

hd_status hdi_kernel_find(struct hd_module *m, struct hd_kernel *k, hdi_signature *signature)
{
    hd_runtime *rt = m->runtime;
    bool all = hdi_modules_everywhere(rt), known = false;
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices; i++) {
        atomic_store_explicit(&k->max_threads[i], 0, memory_order_relaxed); /* not a former kernel's */
    }
    /* First on devices that have the module, then on those that can load it. */
    for (int load = 0; load < 2 && !known && !status; load++) {
        for (int i = 0; i < rt->n_devices && !status && (all || !known); i++) {
            known |= try_on(m, k, rt->devices[i], load, signature, &status);
        }
    }
    return status;
}

hd_status hdi_kernel_prepare(struct hd_kernel *k, uint64_t word, hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    HDI_INSIDE_STILL(rt); /* it may wait for work that runs there, and hd_close waits for it */
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hdi_mutex *loading = &rt->modules->loading[device->index];
    hd_status status = HD_OK;
    hdi_mutex_lock(loading); /* hd_module_unload waits for this lock */
    bool there = word == 0 || atomic_load_explicit(&k->head.word, memory_order_acquire) == word;
    if (!there) {
        status = hdi_kernel_refused();
    } else if (hdi_device_lost(device)) {
        status = hdi_driver_failed(device, HDI_GONE_CLOSED, ""); /* a restart looks up kernels again */
    } else if (atomic_load_explicit(&k->max_threads[device->index], memory_order_relaxed) == 0) {
        hdi_signature signature = {.described = true}; /* so that the driver is not asked for it again */
        status = load_and_look_up(k->module, k, device, &signature);
    }
    hdi_mutex_unlock(loading);
    return status;
}

/* ---- a device that comes back ---- */

/* Gives a restarted device the code of a module that it had. Also looks up kernels whose parameters no device could
 * report so far. */
static hd_status restart_module(struct hd_module *m, hdi_device *device)
{
    int d = device->index;
    bool was_loaded = m->loaded[d] != 0;
    m->loaded[d] = 0;
    hd_status status = was_loaded ? hdi_module_load_on(m, device) : HD_OK;
    for (struct hd_kernel *k = m->kernels; k && !status; k = k->next) {
        hdi_signature signature = {.described = hdi_kernel_params(k)->described};
        bool was = signature.described;
        if (was && atomic_load_explicit(&k->max_threads[d], memory_order_relaxed) == 0) {
            continue;
        }
        status = load_and_look_up(m, k, device, &signature);
        if (!status && !was && signature.described) {
            status = hdi_params_set(k, &signature);
        }
        free(signature.params);
    }
    return status;
}

hd_status hdi_modules_restart(hd_runtime *rt, hdi_device *device)
{
    struct hdi_modules *reg = rt->modules;
    hd_status status = HD_OK;
    /* `cold` keeps kernels from being looked up. `lock` keeps modules from being unloaded. Both are for rare calls, so
     * holding them for long does no harm. */
    hdi_mutex_lock(&rt->cold);
    hdi_mutex_lock(&reg->loading[device->index]);
    hdi_mutex_lock(&reg->lock);
    for (struct hd_module *m = reg->unloaded; m; m = m->next) {
        m->loaded[device->index] = 0; /* none of its kernels runs there any more */
    }
    for (struct hd_module *m = reg->loaded; m && !status; m = m->next) {
        status = restart_module(m, device);
    }
    hdi_mutex_unlock(&reg->lock);
    hdi_mutex_unlock(&reg->loading[device->index]);
    hdi_mutex_unlock(&rt->cold);
    return status;
}
