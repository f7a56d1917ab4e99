/* parameter.c - hd_kernel_get_parameter: describes a parameter of a kernel to the program.
 *
 * Threads: any; no state.
 * Locks: the runtime's `cold`.
 * Blocking: a call waits while another thread loads code.
 * Always: an unload of the kernel's module waits for `cold`. So the parameters belong to the kernel
 * as long as the call reads them.
 */
#include <stdio.h>
#include "base/error.h"
#include "base/sized.h"
#include "engine/engine.h"
#include "kernel/module.h"

static const void *parameter_runtime(const hd_kernel *handle)
{
    const struct hd_kernel *k = hdi_kernel_of_builtin(handle);
    return k ? k->runtime : NULL;
}

/* NULL: no kernel, or its module was unloaded. A kernel whose module has requested variables is
 * good, too. */
static struct hd_kernel *parameter_kernel(const hd_kernel *handle)
{
    struct hd_kernel *k = hdi_handle_object(handle);
    /* pairs with hdi_handle_set */
    uint64_t word = k ? atomic_load_explicit(&k->head.word, memory_order_acquire) : 0;
    return k && hdi_handle_word_is_good(word, hdi_kernel_word(handle)) ? k : NULL;
}

/* The caller holds `cold`. */
static hd_status parameter_describe(const hd_kernel *handle, int index, hd_parameter_info *info)
{
    const struct hd_kernel *k = parameter_kernel(handle);
    if (!k) {
        return hdi_handle_refused(handle, "kernel", "its module was unloaded, or its runtime closed");
    }
    const hdi_params *params = hdi_kernel_params(k);
    if (!params->described) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "kernel '%s': its parameters are unknown; load PTX or a kernel file",
                        k->name);
    }
    if (index < 0 || (uint32_t)index >= params->n) {
        return hdi_fail(index < 0 ? HD_ERROR_ARGUMENT : HD_ERROR_NOT_FOUND, "kernel '%s' takes %u arguments, not %d",
                        k->name, params->n, index);
    }
    const hdi_param *p = &params->of[index];
    *info =
        (hd_parameter_info){.size = sizeof *info, .kind = p->kind, .access = p->access | p->element, .bytes = p->size};
    snprintf(info->name, sizeof info->name, "%s", p->name);
    return HD_OK;
}

hd_status hd_kernel_get_parameter(hd_kernel *handle, int index, hd_parameter_info *out)
{
    HDI_INSIDE(parameter_runtime(handle));
    struct hd_kernel *k = parameter_kernel(handle);
    if (!k) {
        return hdi_handle_refused(handle, "kernel", "its module was unloaded, or its runtime closed");
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_parameter_info, out);
    if (status) {
        return status;
    }
    hd_runtime *rt = k->runtime;
    hd_parameter_info info;
    hdi_mutex_lock(&rt->cold);
    status = parameter_describe(handle, index, &info);
    hdi_mutex_unlock(&rt->cold);
    if (!status) {
        HDI_SIZED_OUT(hd_parameter_info, out, &info);
    }
    return status;
}
