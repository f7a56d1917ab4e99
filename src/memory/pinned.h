/* pinned.h - pinned host memory: shared mappings that every device of the runtime can use directly.
 *
 * The memory is an anonymous file (base/shm.h), so that it can be given to another process, registered through the devices'
 * ports with their drivers, which pin its pages. A runtime has one pool, which knows everything that is
 * alive, so that a device that is restarted gets it again.
 *
 * Placements: where all devices share this process's driver, one port registers memory for all. With a process per device,
 * `everywhere`, each port does, and all have the memory at the address that it has here: a window, see addresses.h.
 *
 * Threads: any; an hdi_pinned belongs to its owner. Locks: one per pool, held across requests to ports; whoever submits must
 * not come here. Order: it is taken before the locks of ports, and `port` is called under it.
 * Always: addresses that a driver may hold as registered are not given to anything else.
 */
#ifndef HDI_MEMORY_PINNED_H
#define HDI_MEMORY_PINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "base/shm.h"
#include "driver/driver.h"
#include "engine/port.h"

#define HDI_PINNED_DEVICES_MAX 64

typedef struct hdi_pinned_pool hdi_pinned_pool;

typedef struct hdi_pinned_config {
    int n_devices; /* of the runtime, at most HDI_PINNED_DEVICES_MAX */
    /* The device's port as it is now; NULL: the device is lost. Must not call the pool. */
    hdi_port *(*port)(void *context, int device);
    void *context;
    bool everywhere;       /* register with every device's port, else with one, whose driver serves all */
    uint64_t window_at;    /* everywhere: where the window lies; 0: in the first free slot of addresses.h */
    uint64_t window_bytes; /* 0: as much as can be had there */
    bool
        populate; /* have the system give out the pages before the drivers pin them: those drivers do pin (populate.h) */
} hdi_pinned_config;

typedef struct hdi_pinned {
    hdi_shm shm;           /* base: the host address; bytes: the size in whole pages */
    hdcu_deviceptr device; /* the same memory as devices address it */
    struct hdi_pinned_record *record;
} hdi_pinned;

/* Everywhere: takes the addresses of the window. Errors: ARGUMENT, HOST_MEMORY, SYSTEM (no window can be had). */
hd_status hdi_pinned_pool_create(const hdi_pinned_config *config, hdi_pinned_pool **out);

/* Forgets what is still alive, without asking a port, as an abandoned release does; the owners must not release it any
 * more. NULL is ignored. */
void hdi_pinned_pool_destroy(hdi_pinned_pool *pool);

/* The window; 0 bytes: there is none. */
void hdi_pinned_pool_window(const hdi_pinned_pool *pool, uint64_t *at, uint64_t *bytes);

/* Pins at least `bytes`, zeroed and aligned to the page size, for all devices that are not lost. A device whose port says that
 * it is lost is passed over (everywhere: from then on, until it is repinned), so it had better be treated as lost. Errors,
 * with nothing kept and `out` untouched: ARGUMENT (0 bytes), HOST_MEMORY (also: the window is full), SYSTEM, DRIVER,
 * UNSUPPORTED (everywhere: a device has it at another address), DEVICE_LOST (no device is left). */
hd_status hdi_pinned_alloc(hdi_pinned_pool *pool, size_t bytes, hdi_pinned *out);

/* Unpins and unmaps; no submitted work may use the memory any more. `abandoned`: no port is asked, since a device hangs.
 * Where a driver keeps the memory registered (abandoned, or it failed), the memory is given back to the system but its
 * addresses stay taken: the driver would mistake whatever came to lie there for the old memory. Zeroed or released before:
 * ignored. Errors: DRIVER (unpinning failed; the memory is gone all the same). */
hd_status hdi_pinned_release(hdi_pinned *pinned, bool abandoned);

/* The device was lost and its port now leads to a fresh process: registers everything that is alive there. From before the
 * call on `port` must name the fresh port; what was pinned through it meanwhile is found registered already. Nothing to do
 * unless `everywhere`. On failure nothing is registered there, and the device stays passed over until a repin succeeds.
 * Errors: HOST_MEMORY, DRIVER, UNSUPPORTED, DEVICE_LOST. */
hd_status hdi_pinned_repin(hdi_pinned_pool *pool, int device);

#endif
