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

/* ---- module.c ---- */

/* The runtime of a handle, for HDI_INSIDE, which runs before the handle is checked. Only compare
 * the result. */
const void *hdi_module_runtime(const hd_module *handle);

/* The module behind a handle. NULL: the handle is not good. */
struct hd_module *hdi_module_from_handle(const hd_module *handle);

/* Fails with HANDLE. */
hd_status hdi_module_refused(const hd_module *handle);

/* Loads a module on a device, unless it is loaded there. The caller holds the device's `loading`,
 * or no other thread can reach the module.
 * Errors: as hd_module_load. */
hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device);

/* Makes handles of the kernel good, or keeps them good. Sets the state of the kernel's head as the
 * module's `variables_asked` requires. The caller holds the registry's lock, or no other thread can
 * reach the kernel. */
void hdi_kernel_make_live(struct hd_kernel *k);

/* Unloads a module on all devices that loaded it, unless the driver is not usable. Puts the
 * structures of the module and its kernels into the free lists. No thread and no submitted work
 * uses the module any more. The caller holds `refilling`, or no other thread can reach the
 * runtime. */
void hdi_module_give(struct hd_module *m, bool driver_usable);

/* ---- unload.c ---- */

/* Unloads the modules that hd_module_unload left on devices, as far as no submitted launch needs
 * them any more. `waits`: unloads them even if the driver then waits for other work. The caller
 * holds `refilling`. Leaves the thread's message alone. False: no such module was left. */
bool hdi_modules_reap(hd_runtime *rt, bool waits);

/* ---- globals.c: for an unload, and for hd_close ---- */

/* Makes the handles of the module's variables stale. The kernels' handles are stale already. */
void hdi_globals_end(struct hd_module *m);

/* Called when the registry ends. Handles of variables that are still good end with the list of
 * buffers. */
void hdi_globals_forget(struct hd_module *m);

#endif
