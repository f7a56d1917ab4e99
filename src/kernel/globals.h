/* globals.h - the variables of a kernel's module, as a launch needs them (globals.c).
 *
 * Threads: any. Locks: as globals.c describes. Blocking: none.
 */
#ifndef HDI_KERNEL_GLOBALS_H
#define HDI_KERNEL_GLOBALS_H

#include "kernel/module.h"

/* The most variables of a module on a device that can have handles: at most half of the uses of a
 * launch. */
#define HDI_GLOBALS_MAX (HDI_USES_OF_ONE / 2)

/* If a module contains such variables, the state of its kernels' heads counts the requests for
 * variables, up to this number and then from 1. */
#define HDI_CAREFUL_COUNTS 0x3fffu

static inline int hdi_careful_state(uint32_t count)
{
    return (int)(HDI_HANDLE_CAREFUL | count << 2);
}

/* The uses of variables by a launch of the kernel on the device: up to `room` of them in `uses`.
 * Returns their number. `word`: the word of the kernel's head. If the head holds another word by
 * now, this returns 0 uses, and the submission detects the change. */
size_t hdi_globals_uses(const struct hd_kernel *kernel, uint64_t word, const hdi_device *device, hdi_use *uses,
                        size_t room);

#endif
