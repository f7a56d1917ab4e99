/* pinned.h - pinned host memory: shared mappings that every device of the runtime can use directly.
 *
 * The memory is an anonymous file (base/shm.h), so that other processes can map it. The devices'
 * ports register the memory with their drivers, and the drivers pin its pages. A runtime has one
 * pool, which lists all live memory. After a restart of a device, the pool registers this memory
 * with the device again.
 *
 * Memory is registered in one of two ways. If all devices share the driver of this process, one
 * port registers the memory for all devices. If each device has a process of its own
 * (`everywhere`), each port registers the memory. Then all processes map the memory at the same
 * address, in a window (share.h).
 *
 * Threads: any; an hdi_pinned belongs to its owner.
 * Locks: one per pool, held during requests to ports and during calls of `port`. A thread takes
 * this lock before the locks of ports.
 * Blocking: alloc, release and repin wait for requests to ports, so a thread that submits work must
 * not call them.
 * Always: addresses that a driver may hold as registered are not used for anything else.
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
    int n_devices; /* number of the runtime's devices, at most HDI_PINNED_DEVICES_MAX */
    /* The device's current port; NULL: the device is lost. Must not call the pool. */
    hdi_port *(*port)(void *context, int device);
    void *context;
    bool everywhere; /* true: register with every device's port; false: with one port for all */
    /* with `everywhere`: the address of the window; 0: the pool takes the first free slot of
     * share.h */
    uint64_t window_at;
    uint64_t window_bytes; /* the size of the window; 0: as much as is free there */
    /* True: the system allocates the pages before drivers pin them. Set this if the drivers really
     * pin pages, since drivers pin allocated pages faster. */
    bool populate;
} hdi_pinned_config;

typedef struct hdi_pinned {
    hdi_shm shm;           /* base: the host address; bytes: the size in whole pages */
    hdcu_deviceptr device; /* the address of this memory on devices */
    struct hdi_pinned_record *record;
} hdi_pinned;

/* Makes a pool. With `everywhere`, this call reserves the addresses of the window.
 * Errors: ARGUMENT, HOST_MEMORY, SYSTEM (no room for a window). */
hd_status hdi_pinned_pool_create(const hdi_pinned_config *config, hdi_pinned_pool **out);

/* Drops all live memory without a request to a port, like hdi_pinned_release with `abandoned`.
 * After this call, owners must not release their memory. Ignores NULL. */
void hdi_pinned_pool_destroy(hdi_pinned_pool *pool);

/* True if some of these bytes are memory of the pool. Waits until a running request is done. */
bool hdi_pinned_pool_has(hdi_pinned_pool *pool, const void *base, uint64_t bytes);

/* The window; 0 bytes: none. */
void hdi_pinned_pool_window(const hdi_pinned_pool *pool, uint64_t *at, uint64_t *bytes);

/* Pins at least `bytes`, zeroed and aligned to the page size, for all devices that are not lost. If
 * a port reports that its device is lost, the pool skips this device. With `everywhere`, the pool
 * skips the device until hdi_pinned_repin succeeds, so the caller should treat this device as lost.
 * Blocks for requests to ports.
 * Errors: (nothing is kept, `out` is untouched) ARGUMENT (0 bytes), HOST_MEMORY (also: the window
 * is full), SYSTEM, DRIVER, UNSUPPORTED (with `everywhere`: a device sees the memory at another
 * address), DEVICE_LOST (no device is left). */
hd_status hdi_pinned_alloc(hdi_pinned_pool *pool, size_t bytes, hdi_pinned *out);

/* Unpins and unmaps memory, which no submitted work may use. `abandoned`: the call makes no request
 * to a port, since a device hangs. Ignores a zeroed hdi_pinned, and memory that was released
 * before. A driver may keep the memory registered after an abandoned release or a failure. Then the
 * memory goes back to the system, but its addresses stay reserved. Otherwise the driver could
 * mistake other memory at these addresses for the old memory.
 * Blocks for requests to ports.
 * Errors: DRIVER (unpinning failed; the memory is gone nevertheless). */
hd_status hdi_pinned_release(hdi_pinned *pinned, bool abandoned);

/* Registers all live memory with the fresh port of a device that was lost. Before the call, `port`
 * must already return the fresh port. The call also succeeds for memory that the fresh port has
 * already registered. Does nothing without `everywhere`. On failure no memory is registered with
 * this port, and the pool skips the device until hdi_pinned_repin succeeds.
 * Blocks for requests to the port.
 * Errors: HOST_MEMORY, DRIVER, UNSUPPORTED, DEVICE_LOST. */
hd_status hdi_pinned_repin(hdi_pinned_pool *pool, int device);

#endif
