/* pinned.h - pinned host memory: a shared mapping that every device of the runtime can use directly.
 *
 * The memory is an anonymous file (base/shm.h), so that it can be given to another process, registered with the
 * driver, which faults its pages in and pins them.
 *
 * Threads: any; a hdi_pinned belongs to its owner. Locks: none.
 * Always: addresses that the driver holds as registered are not given to anything else.
 */
#ifndef HDI_MEMORY_PINNED_H
#define HDI_MEMORY_PINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <heddle/status.h>
#include "base/shm.h"
#include "driver/driver.h"

typedef struct hdi_pinned {
    hdi_shm shm;           /* base: the host address; bytes: the size in whole pages */
    hdcu_deviceptr device; /* the same memory as devices address it */
    const hdi_driver *driver;
    hdcu_context context;
} hdi_pinned;

/* Pins at least `bytes`, zeroed and aligned to the page size. `context`: any of the runtime's; the memory is for
 * all of them. Errors, with nothing kept and `out` untouched: ARGUMENT (0 bytes), HOST_MEMORY, SYSTEM, DRIVER,
 * DEVICE_LOST. */
hd_status hdi_pinned_alloc(const hdi_driver *driver, hdcu_context context, size_t bytes, hdi_pinned *out);

/* Unpins and unmaps; no submitted work may use the memory any more. `abandoned`: the device is lost, so the driver
 * is not called. Where the driver keeps the memory registered (abandoned, or it failed), the memory is given back
 * to the system but its addresses stay taken: the driver would mistake whatever came to lie there for the old
 * memory. Zeroed or released before: ignored. Errors: DRIVER (unpinning failed; the memory is gone all the same). */
hd_status hdi_pinned_release(hdi_pinned *pinned, bool abandoned);

#endif
