/* module_internal.h - what the files behind module.h share: the registry of modules and kernels.
 *
 * module.c: loading, unloading, what belongs to the runtime, devices that come back. lookup.c: kernels by name.
 *
 * Threads, locks: see module.c.
 */
#ifndef HDI_KERNEL_MODULE_INTERNAL_H
#define HDI_KERNEL_MODULE_INTERNAL_H

#include "base/error.h"
#include "engine/engine.h"
#include "kernel/module.h"

struct hdi_modules {
    pthread_mutex_t lock;
    struct hd_module *loaded;
    struct hd_module *unloaded; /* still in use by submitted work */
    struct hd_module *free_modules;
    struct hd_kernel *free_kernels;
    struct hd_kernel *blocks[HDI_KERNEL_CHUNKS]; /* all structures, HDI_KERNEL_CHUNK at a time */
    struct hd_module *builtin[HDI_BUILTINS];     /* NULL: not asked for yet */
};

static inline struct hd_module *hdi_module_from_handle(const hd_module *handle)
{
    struct hd_module *m = hdi_handle_object(handle);
    return m && hdi_handle_fits(handle, &m->head, HDI_MODULE_MAGIC) ? m : NULL;
}

/* Both under the registry's lock, or before anybody else knows the structure. */
static inline void hdi_set_live(hdi_handle_head *head, uint32_t magic, int live)
{
    hdi_handle_set(head, magic, hdi_handle_head_generation(head), live);
}

/* Releases what a kernel holds and puts its structure back. Nobody uses it any more. */
void hdi_kernel_give(hd_runtime *rt, struct hd_kernel *k);

/* Looks a kernel up on a device that has its module. Errors: as hd_kernel_get. */
hd_status hdi_kernel_resolve(struct hd_module *m, struct hd_kernel *k, hdi_device *device, const char *name);

#endif
