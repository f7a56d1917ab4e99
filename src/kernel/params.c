/* params.c - memory for the parameters of kernels.
 *
 * hd_launch reads a kernel's parameters without a lock. It checks the kernel's handle again when it holds the order
 * lock. Until then the parameters may have become another kernel's. So this memory passes from kernel to kernel, by
 * room, and serves nothing else before hd_close.
 *
 * Threads: any.
 * Locks: `params_lock` protects the lists. No other lock is taken while it is held.
 * Blocking: none.
 * Always:
 * - The room of a piece never changes.
 * - Each parameter in a piece lies inside an argument block, field by field. So a mixture of two kernels' parameters is
 *   wrong, but leads nowhere outside.
 * - A launch that read such a mixture is refused, since its kernel's handle is stale.
 */
#include "kernel/module_internal.h"

#include <stdlib.h>
#include <string.h>

static unsigned class_of(uint32_t n)
{
    unsigned class = 0;
    while ((uint32_t)1 << class < n) {
        class ++;
    }
    return class;
}

/* Takes a piece for n parameters. n is at most HDI_ARGUMENT_BYTES_MAX, since each parameter has a byte. */
static hdi_params *take(struct hdi_modules *reg, uint32_t n)
{
    unsigned class = class_of(n);
    hdi_lock_take(&reg->params_lock);
    hdi_params *p = reg->free_params[class];
    if (p) {
        reg->free_params[class] = p->next;
    } else {
        p = calloc(1, sizeof *p + (sizeof p->of[0] << class));
        if (p) {
            p->class = (uint8_t) class;
            p->made = reg->all_params;
            reg->all_params = p;
        }
    }
    hdi_lock_release(&reg->params_lock);
    return p;
}

static uint32_t usual_of(const hdi_param *p)
{
    if (p->kind == HD_ARG_BUFFER) {
        return p->access ? HDI_PARAM_BUFFER : HDI_PARAM_ODD;
    }
    if (p->kind == HD_ARG_NONE || p->kind == HD_ARG_BYTES || p->access) {
        return HDI_PARAM_ODD;
    }
    return p->size == 4 ? HDI_PARAM_4 : p->size == 8 ? HDI_PARAM_8 : HDI_PARAM_ODD;
}

hd_status hdi_params_set(struct hd_kernel *k, const hdi_signature *signature)
{
    if (signature->argument_bytes > HDI_ARGUMENT_BYTES_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s' takes %u bytes of arguments, at most %d are supported", k->name,
                        signature->argument_bytes, HDI_ARGUMENT_BYTES_MAX);
    }
    hdi_params *p = take(k->runtime->modules, signature->n_params);
    if (!p) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the parameters");
    }
    p->n = signature->n_params;
    p->argument_bytes = signature->argument_bytes;
    p->described = signature->described;
    if (signature->n_params) {
        memcpy(p->of, signature->params, signature->n_params * sizeof p->of[0]);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        p->of[i].usual = usual_of(&p->of[i]);
    }
    hdi_params_give(k); /* the former ones, of a kernel that was not described */
    k->has_params = true;
    /* pairs with the acquire load in hdi_kernel_params: the parameters are complete */
    atomic_store_explicit(&k->params, p, memory_order_release);
    return HD_OK;
}

void hdi_params_give(struct hd_kernel *k)
{
    struct hdi_modules *reg = k->runtime->modules;
    if (k->has_params) {
        k->has_params = false;
        hdi_params *p = atomic_load_explicit(&k->params, memory_order_relaxed);
        hdi_lock_take(&reg->params_lock);
        p->next = reg->free_params[p->class];
        reg->free_params[p->class] = p;
        hdi_lock_release(&reg->params_lock);
    }
}

void hdi_params_release(struct hdi_modules *reg)
{
    while (reg->all_params) {
        hdi_params *p = reg->all_params;
        reg->all_params = p->made;
        free(p);
    }
}
