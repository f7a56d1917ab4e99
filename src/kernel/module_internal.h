/* module_internal.h - what the files behind module.h share: the registry of modules and kernels.
 *
 * module.c: loading, unloading, what belongs to the runtime. loading.c: code on devices. lookup.c: kernels by name. params.c: their parameters.
 *
 * Threads, locks: see module.c.
 */
#ifndef HDI_KERNEL_MODULE_INTERNAL_H
#define HDI_KERNEL_MODULE_INTERNAL_H

#include "base/error.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "kernel/module.h"

#define HDI_PARAMS_CLASSES 13 /* room for 1, 2, 4, ... parameters, up to as many as an argument block has bytes */
_Static_assert(1 << (HDI_PARAMS_CLASSES - 1) >= HDI_ARGUMENT_BYTES_MAX, "room for all parameters");

/* Structures of kernels, each where a handle can lead. */
typedef struct hdi_kernel_place {
    _Alignas(HDI_SELF_ALIGN) struct hd_kernel kernel;
} hdi_kernel_place;

struct hdi_modules {
    hdi_mutex lock;
    hdi_mutex loading[HDI_DEVICES_MAX]; /* loading.c */
    struct hd_module *loaded;
    struct hd_module *unloaded; /* still in use by submitted work */
    struct hd_module *free_modules;
    struct hd_kernel *free_kernels;
    hdi_kernel_place *blocks[HDI_KERNEL_CHUNKS]; /* all structures, HDI_KERNEL_CHUNK at a time */
    hdi_lock params_lock;
    hdi_params *free_params[HDI_PARAMS_CLASSES]; /* by room */
    hdi_params *all_params;
    struct hd_module *builtin[HDI_BUILTINS]; /* NULL: not asked for yet */
};

/* For HDI_INSIDE, before anybody looks whether it is a module: only to be compared. */
static inline const void *hdi_module_runtime(const hd_module *handle)
{
    const struct hd_module *m = hdi_handle_object(handle);
    return m ? m->runtime : NULL;
}

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

/* loading.c. Whether devices get code before they use it. */
static inline bool hdi_modules_everywhere(const hd_runtime *rt)
{
    return rt->options.modules == HDI_MODULES_ALL;
}
/* Loads a module that nobody else knows yet, or with the device's `loading`. Errors: as hd_module_load. */
hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device, const char *who);
/* Looks a kernel up that nobody else knows yet, where it is to be known, and has the signature said by the driver if it is not described. A
 * device that is lost does not count. Errors: as hd_kernel_get. */
hd_status hdi_kernel_find(struct hd_module *m, struct hd_kernel *k, hdi_signature *signature);

/* params.c: what hd_launch goes by, of a kernel that is not handed out yet, or that was not described so far. `cold` is held. Errors: LIMIT,
 * HOST_MEMORY. */
hd_status hdi_params_set(struct hd_kernel *k, const hdi_signature *signature);
/* The kernel's handles are stale. */
void hdi_params_give(struct hd_kernel *k);
/* hd_close. */
void hdi_params_release(struct hdi_modules *modules);

#endif
