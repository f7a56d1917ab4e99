/* arena.h - one device's memory: an address range, physical memory mapped into it as it is needed, and blocks of it
 * for owners.
 *
 * The range is reserved at once and as large as the device's memory; physical memory is mapped in at its end, in
 * granules, and stays mapped until the arena is destroyed. So an address is valid from the first mapping on, and
 * neighbouring blocks join across the places where the arena grew. What the device is asked goes through its port.
 *
 * Threads: any, at the same time, except for create and destroy.
 * Locks: two. `growing` is held across requests to the port and taken only to grow, to grant and revoke, to restart, or to
 * look at what is mapped; `blocks_lock` is short, is never held across a request, and is the only one that a free, or
 * an allocation that fits in what is mapped, takes. Order: growing, then blocks_lock.
 * Always: mapped bytes never exceed the limit, nor the reserved range. A block is handed out only after every granted peer
 * has been given the memory that it lies in.
 */
#ifndef HDI_MEMORY_ARENA_H
#define HDI_MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "driver/driver.h"
#include "engine/mark.h"
#include "engine/port.h"
#include "memory/blocks.h"

typedef struct hdi_arena hdi_arena;

typedef struct hdi_arena_config {
    hdi_port *port;                /* the device's; valid as long as the arena */
    int index;                     /* of the device in the runtime */
    size_t limit_bytes;            /* of physical memory, rounded down to granules; 0: none but the device's memory */
    uint64_t total_bytes, granule; /* as in hdi_facts, where they are known; else 0: the port is asked */
    uint64_t address;              /* where the range should lie, a multiple of the granule; 0: anywhere */
    bool fixed;                    /* a range that lies elsewhere than at an address that is not 0 is a failure */

    /* Lets the device `peer` (number in the runtime) use one mapped chunk. NULL: by the port's `grant`. A peer that is lost
     * is no failure: it is revoked, and shared with again after its restart. Called under `growing`, so it must not call
     * the arena. */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    /* The chunk is to be unmapped after all, because growth failed: whatever `share` left with the peer must go, since other
     * memory will lie at the same address. NULL: unmapping takes it along. */
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;

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

/* Reserves the address range; maps nothing yet. Errors: ARGUMENT, HOST_MEMORY, MEMORY, UNSUPPORTED (also: the range is
 * fixed and cannot be had there), DEVICE_LOST, DRIVER. */
hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);

/* Gives everything back, whoever still has blocks: no submitted work may use them any more. Goes on past errors and
 * returns the first one; the arena is gone in any case. `abandoned`: the device is lost; its port is not asked for
 * anything, since on a dead device even giving memory back may hang, and what it held ends with its process.
 * NULL is ignored. Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned);

/* The device was lost with everything in it, and its port now leads to a fresh process: forgets all blocks, mappings and peers
 * without a request and reserves a range at `address` (0: anywhere). Frees of what was allocated before are ignored, as
 * long as the new range lies elsewhere. On failure the arena is empty and refuses allocations and grants with DEVICE_LOST until
 * a restart succeeds. Errors: as hdi_arena_create. */
hd_status hdi_arena_restart(hdi_arena *arena, uint64_t address);

/* Takes memory for an owner who will use it first in `lane`, aligned to 256 bytes. Asks the port only when
 * nothing mapped fits. `inherited`: what to wait for before the first use, see hdi_blocks_alloc; to be released by
 * the caller. Errors, with outputs untouched: ARGUMENT (0 bytes), MEMORY (the message has the figures),
 * HOST_MEMORY, DEVICE_LOST, DRIVER. The last two and MEMORY also where new memory could not be shared with a granted
 * peer. */
hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited);

/* Gives memory back at once; `marks` as for hdi_blocks_free. Makes no request, cannot fail. Pointers that are
 * not the start of a block of this arena are ignored. */
void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_mark *marks, size_t n_marks);

/* Lets another device (number in the runtime) use everything that is mapped now or later. Granted before, or the owner itself:
 * HD_OK at once. On failure the peer is not granted; chunks that it was given stay with it, and the next grant goes on
 * behind them. Errors: HOST_MEMORY, MEMORY, DEVICE_LOST, DRIVER. */
hd_status hdi_arena_grant(hdi_arena *arena, int peer);

/* Forgets that a peer was granted, or was given anything: it is lost, and its mappings with it. Makes no request. */
void hdi_arena_revoke(hdi_arena *arena, int peer);

/* Where the range lies; 0 after a restart that failed. */
uint64_t hdi_arena_base(hdi_arena *arena);

/* The figures at one moment. Waits while the arena grows. */
void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out);

/* Verifies every structure (for tests and debug builds); false with the first finding in `why`. */
bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes);

#endif
