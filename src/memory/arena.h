/* arena.h - one device's memory: an address range, physical memory mapped into it as it is needed, and blocks of it
 * for owners.
 *
 * The range is reserved at once and as large as the device's memory; physical memory is mapped in at its end, in
 * granules, and stays mapped until the arena is destroyed. So an address is valid from the first mapping on, and
 * neighbouring blocks join across the places where the arena grew.
 *
 * Threads: any, at the same time, except for create and destroy.
 * Locks: two. `growing` is held across driver calls and taken only to grow, to grant, or to look at what is mapped;
 * `blocks_lock` is short, is never held across a driver call, and is the only one that a free, or an allocation that
 * fits in what is mapped, takes. Order: growing, then blocks_lock.
 * Always: mapped bytes never exceed the limit, nor the reserved range.
 */
#ifndef HDI_MEMORY_ARENA_H
#define HDI_MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "driver/driver.h"
#include "engine/mark.h"
#include "memory/blocks.h"

typedef struct hdi_arena hdi_arena;

typedef struct hdi_arena_config {
    const hdi_driver *driver;
    hdcu_device device;
    hdcu_context context; /* the device's; need not be current anywhere */
    int index;            /* of the device in the runtime, for messages */
    size_t limit_bytes;   /* of physical memory, rounded down to granules; 0: none but the device's memory */

    /* As in hdi_blocks_config. Called under blocks_lock, so it must not call the arena. */
    bool (*finished)(void *context, hdi_mark mark);
    void *finished_context;
} hdi_arena_config;

typedef struct hdi_arena_info {
    size_t granule;        /* bytes; what is mapped is a multiple */
    size_t reserved_bytes; /* the address range */
    size_t limit_bytes;    /* most that may ever be mapped */
    size_t mapped_bytes;   /* physical memory held */
    hdi_blocks_info blocks;
} hdi_arena_info;

/* Reserves the address range; maps nothing yet. Errors: ARGUMENT, HOST_MEMORY, MEMORY, UNSUPPORTED, DEVICE_LOST,
 * DRIVER. */
hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);

/* Unmaps and releases everything, whoever still has blocks: no submitted work may use them any more. Goes on past
 * errors and returns the first one; the arena is gone in any case. `abandoned`: the device is lost; no driver call
 * is made at all, since on a dead device even giving memory back may hang, and what it held ends with the process.
 * NULL is ignored. Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned);

/* Takes memory for an owner who will use it first in `lane`, aligned to 256 bytes. Calls the driver only when
 * nothing mapped fits. `inherited`: what to wait for before the first use, see hdi_blocks_alloc; to be released by
 * the caller. Errors, with outputs untouched: ARGUMENT (0 bytes), MEMORY (the message has the figures),
 * HOST_MEMORY, DEVICE_LOST, DRIVER. */
hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited);

/* Gives memory back at once; `marks` as for hdi_blocks_free. Never calls the driver, cannot fail. Pointers that are
 * not the start of a block of this arena are ignored. */
void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_mark *marks, size_t n_marks);

/* Lets another device read and write everything that is mapped now or later. Granted before: HD_OK at once. On
 * failure the peer has what it had before. Errors: HOST_MEMORY, MEMORY, DEVICE_LOST, DRIVER. */
hd_status hdi_arena_grant(hdi_arena *arena, hdcu_device peer);

/* The figures at one moment. Waits while the arena grows. */
void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out);

/* Verifies every structure (for tests and debug builds); false with the first finding in `why`. */
bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes);

#endif
