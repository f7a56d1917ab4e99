/* module_internal.h - the registry of modules and kernels, which the files behind module.h share.
 *
 * - module.c: loads and unloads modules, and owns the built-in ones
 * - loading.c: gets code to devices
 * - lookup.c: finds kernels by name
 * - params.c: has memory for their parameters
 *
 * Threads: any.
 * Locks, blocking: see module.c.
 */
#ifndef HDI_KERNEL_MODULE_INTERNAL_H
#define HDI_KERNEL_MODULE_INTERNAL_H

#include "base/error.h"
#include "base/lock.h"
#include "engine/engine.h"
#include "kernel/module.h"

#define HDI_PARAMS_CLASSES 13 /* room for 1, 2, 4, ... parameters, up to one for each byte of an argument block */
_Static_assert(1 << (HDI_PARAMS_CLASSES - 1) >= HDI_ARGUMENT_BYTES_MAX, "room for all parameters");

/* The structure of a kernel, aligned so that a handle can have its address. */
typedef struct hdi_kernel_place {
    _Alignas(HDI_SELF_ALIGN) struct hd_kernel kernel;
} hdi_kernel_place;

struct hdi_modules {
    hdi_mutex lock;
    hdi_mutex loading[HDI_DEVICES_MAX]; /* one per device; see loading.c */
    struct hd_module *loaded;
    struct hd_module *unloaded; /* still used by submitted work */
    struct hd_module *free_modules;
    struct hd_kernel *free_kernels;
    hdi_kernel_place *blocks[HDI_KERNEL_CHUNKS]; /* all structures, in blocks of HDI_KERNEL_CHUNK */
    hdi_lock params_lock;
    hdi_params *free_params[HDI_PARAMS_CLASSES]; /* by class */
    hdi_params *all_params;
    struct hd_module *builtin[HDI_BUILTINS]; /* NULL: not requested so far */
};

/* For HDI_INSIDE, before the handle is checked. The result may be stale and is only to be compared. */
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

/* The caller holds the registry's lock, or no other thread can reach the structure. */
static inline void hdi_set_live(hdi_handle_head *head, uint32_t magic, int live)
{
    hdi_handle_set(head, magic, hdi_handle_head_generation(head), live);
}

/* Releases what a kernel owns and puts its structure into the free list. No thread uses the kernel any more. */
void hdi_kernel_give(hd_runtime *rt, struct hd_kernel *k);

/* loading.c: whether every device gets code before its first use there. */
static inline bool hdi_modules_everywhere(const hd_runtime *rt)
{
    return rt->options.modules == HDI_MODULES_ALL;
}
/* Loads a module on a device. The caller holds the device's `loading`, or no other thread can reach the module. Errors:
 * as hd_module_load. */
hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device);
/* Looks up a kernel that no other thread can reach: on one device, or on all with the option modules=all. Gets the
 * signature from the driver if the image does not describe it. Skips lost devices.
 * Errors: as hd_kernel_get. */
hd_status hdi_kernel_find(struct hd_module *m, struct hd_kernel *k, hdi_signature *signature);

/* params.c: sets the parameters that hd_launch uses. The kernel is not handed out yet, or was not described so far. The
 * caller holds `cold`.
 * Errors: LIMIT, HOST_MEMORY. */
hd_status hdi_params_set(struct hd_kernel *k, const hdi_signature *signature);
/* Frees a kernel's parameters for other kernels. The kernel's handles are stale, or it gets other parameters. */
void hdi_params_give(struct hd_kernel *k);
/* hd_close: frees the memory of all parameters. */
void hdi_params_release(struct hdi_modules *modules);

#endif
