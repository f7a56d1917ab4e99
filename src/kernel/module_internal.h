/* module_internal.h - declarations that the files about modules share: the registry, and steps of
 * module.c that globals.c and unload.c need.
 *
 * Threads: any. Locks: module.c lists them, with their order. Blocking: as module.c describes.
 */
#ifndef HDI_KERNEL_MODULE_INTERNAL_H
#define HDI_KERNEL_MODULE_INTERNAL_H

#include "base/lock.h"
#include "engine/engine.h"
#include "kernel/module.h"
#include "kernel/part.h"

/* Room for 1, 2, 4, ... parameters, up to one for each byte of an argument block. */
#define HDI_PARAMS_CLASSES 13

struct hdi_modules {
    hdi_mutex lock;
    hdi_mutex loading[HDI_DEVICES_MAX]; /* one per device */
    struct hd_module *loaded;
    struct hd_module *unloaded; /* still loaded in the driver, see unload.c */
    struct hd_module *free_modules;
    struct hd_kernel *free_kernels;
    /* All structures, in blocks of HDI_KERNEL_CHUNK. */
    struct hdi_kernel_place *blocks[HDI_KERNEL_CHUNKS];
    hdi_lock params_lock;
    hdi_params *free_params[HDI_PARAMS_CLASSES]; /* by class */
    hdi_params *all_params;
    hdi_lock globals_lock;
    struct hd_module *builtin[HDI_BUILTINS]; /* NULL: not requested so far */
};

/* ---- module.c ---- */

/* For HDI_INSIDE, before the handle is checked. The result may be stale; only compare it. */
const void *hdi_module_runtime(const hd_module *handle);

/* NULL: the handle is not good. */
struct hd_module *hdi_module_from_handle(const hd_module *handle);

/* Fails with HANDLE. */
hd_status hdi_module_refused(const hd_module *handle);

/* Loads a module on a device, unless that was done. The caller holds the device's `loading`, or no
 * other thread can reach the module.
 * Errors: as hd_module_load. */
hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device);

/* From now on, handles of the kernel are good, as the module's `variables_asked` requires. They may
 * have been good before. The caller holds the registry's lock, or no other thread can reach the
 * kernel. */
void hdi_kernel_make_live(struct hd_kernel *k);

/* Unloads a module on all devices that have it, unless their driver is not usable. Puts its
 * structures into the free lists. No thread and no submitted work uses it any more. The caller
 * holds `refilling`, or no other thread can reach the runtime. */
void hdi_module_give(struct hd_module *m, bool driver_usable);

/* ---- unload.c ---- */

/* Unloads the modules that hd_module_unload left on devices, and that no submitted launch needs any
 * more. `waits`: unload them even if the driver then waits for other work. The caller holds
 * `refilling`. The thread's message stays. False: none were left. */
bool hdi_modules_reap(hd_runtime *rt, bool waits);

/* ---- globals.c: for an unload, and for hd_close ---- */

/* Makes the handles of the module's variables stale. The kernels' handles are stale already. */
void hdi_globals_end(struct hd_module *m);

/* Called when the registry ends. Remaining handles end with the list of buffers. */
void hdi_globals_forget(struct hd_module *m);

#endif
