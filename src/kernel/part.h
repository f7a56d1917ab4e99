/* part.h - the module layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_KERNEL_PART_H
#define HDI_KERNEL_PART_H

#include "kernel/module.h"
#include "stats/part.h"

/* Room for 1, 2, 4, ... parameters, up to one for each byte of an argument block. */
#define HDI_PARAMS_CLASSES 13

/* All modules and kernels (module.c). */
typedef struct hdi_modules {
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
} hdi_modules;

typedef struct hdi_kernel_part {
    hdi_stats_part below; /* first, since all parts share the runtime's address */
    hdi_modules modules;
} hdi_kernel_part;

static inline hdi_kernel_part *hdi_kernel_of(hd_runtime *rt)
{
    return (hdi_kernel_part *)rt;
}

#endif
