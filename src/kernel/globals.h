/* globals.h - the uses of a module's variables, which a launch must add (globals.c).
 *
 * Threads: any. Locks: as globals.c describes. Blocking: none.
 */
#ifndef HDI_KERNEL_GLOBALS_H
#define HDI_KERNEL_GLOBALS_H

#include "kernel/module.h"

/* The most handles of a module's variables on one device that can exist at one time. The uses of
 * these variables take at most half of the room for the uses of a launch. */
#define HDI_GLOBALS_MAX (HDI_USES_OF_ONE / 2)

/* If a program requested variables of a module, the state of the kernels' heads counts these
 * requests. After HDI_CAREFUL_COUNTS requests, the count begins again from 1. */
#define HDI_CAREFUL_COUNTS 0x3fffu

static inline int hdi_careful_state(uint32_t count)
{
    return (int)(HDI_HANDLE_CAREFUL | count << 2);
}

/* Writes the uses of variables by a launch of the kernel on the device into `uses`, at most `room`
 * of them. Returns their number. `word`: the word of the kernel's head. If the head contains
 * another word by now, the function returns 0, and the submission notices the change. */
size_t hdi_globals_uses(const struct hd_kernel *kernel, uint64_t word, const hdi_device *device, hdi_use *uses,
                        size_t room);

#endif
