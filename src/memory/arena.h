/* arena.h - one device's memory: an address range, physical memory mapped into it where it is needed, and blocks of
 * it for owners.
 *
 * The range is several times as large as the device's memory, so addresses are never what runs out. Physical memory
 * is mapped in mappings of whole granules (2 MiB): small ones where little is needed, up to 64 MiB where much is, since
 * each costs the driver the same some 25 us. Blocks above HDI_SMALL_BYTES lie anywhere in the range, also across
 * mappings that were mapped at different times; smaller ones share granules of their own, so that few small blocks
 * cannot hold large areas. A mapping in which nothing is live and nothing unfinished is idle: it can be unmapped where
 * it is and mapped where a large block lacks just that much (it moves), or be given back. What the device is asked
 * goes through its port.
 *
 * How an allocation that no free block fits is served, and in which order, see hdi_arena_alloc.
 *
 * Threads: any, at the same time, except for create and destroy.
 * Locks: two. `growing` is held across requests to the port and taken only to map, unmap, grant, revoke, restart, or
 * to look at what is mapped; `blocks_lock` is short, is never held across a request, and is the only one that a free,
 * or an allocation that fits in what is mapped, takes. Order: growing, then blocks_lock.
 * Always: mapped bytes never exceed the limit, also not for the time of a move: it unmaps first. A block is handed
 * out only after every granted peer has been given the memory that it lies in. Memory is unmapped only when all points
 * of its former uses are finished.
 */
#ifndef HDI_MEMORY_ARENA_H
#define HDI_MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "driver/driver.h"
#include "engine/point.h"
#include "engine/port.h"
#include "memory/blocks.h"

/* Up to here blocks lie in granules of their own. */
#define HDI_SMALL_BYTES ((size_t)1 << 20)

typedef struct hdi_arena hdi_arena;

typedef struct hdi_arena_config {
    hdi_port *port;                /* the device's; valid as long as the arena */
    int index;                     /* of the device in the runtime */
    size_t limit_bytes;            /* of physical memory, rounded down to granules; 0: none but the device's memory */
    uint64_t total_bytes, granule; /* as in hdi_facts, where they are known; else 0: the port is asked */
    uint64_t range_bytes; /* of addresses; 0: four times the device's memory. Less where there are not that many
                                      and the range is not fixed, but no less than the limit */
    uint64_t address;     /* where the range should lie, a multiple of the granule; 0: anywhere */
    bool fixed;           /* a range that lies elsewhere than at an address that is not 0 is a failure */

    /* Lets the device `peer` (number in the runtime) use one mapped chunk. NULL: by the port's `grant`. A peer that
     * is lost is no failure: it is revoked, and shared with again after its restart. Called under `growing`, so it
     * must not call the arena. */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    /* The chunk, exactly as it was shared, is to be unmapped: whatever `share` left with the peer must go before,
     * since other memory will lie at the same address. NULL: unmapping takes it along. Called under `growing`, too. */
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;

    /* Nothing that is mapped fits: gives blocks back that are only kept for their next owner; false: there are none.
     * May be NULL. Called without locks. */
    bool (*relieve)(void *context);
    void *relieve_context;

    /* As in hdi_blocks_config. Called under blocks_lock, so it must not call the arena. */
    bool (*finished)(void *context, hdi_point point);
    void *finished_context;
} hdi_arena_config;

typedef struct hdi_arena_info {
    size_t granule;                         /* bytes; what is mapped is a multiple */
    size_t reserved_bytes;                  /* the address range */
    size_t limit_bytes;                     /* most that may ever be mapped */
    size_t mapped_bytes, mapped_peak_bytes; /* physical memory held */
    size_t taken_bytes, taken_peak_bytes;   /* in blocks that are handed out */
    size_t taken_blocks;
    size_t waiting_bytes; /* in free blocks with unfinished points */
    size_t idle_bytes;    /* in mappings that could be unmapped now; counted by walking when asked */
    size_t largest_free;
    size_t retired_bytes;
    /* counters: how allocations were served, see hd_memory_stats */
    uint64_t from_same_lane, from_finished, from_waited, from_fresh;
    uint64_t driver_calls; /* map and unmap requests */
    uint64_t mapped_total, moved_bytes, returned_bytes, ahead_bytes;
} hdi_arena_info;

/* Reserves the address range; maps nothing yet. Errors: ARGUMENT, HOST_MEMORY, MEMORY, UNSUPPORTED (also: the range is
 * fixed and cannot be had there), DEVICE_LOST, DRIVER. */
hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);

/* Gives everything back, whoever still has blocks: no submitted work may use them any more. Goes on past errors and
 * returns the first one; the arena is gone in any case. `abandoned`: the device is lost; its port is not asked for
 * anything, since on a dead device even giving memory back may hang, and what it held ends with its process.
 * NULL is ignored. Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned);

/* The device was lost with everything in it, and its port now leads to a fresh process: forgets all blocks, mappings
 * and peers without a request and reserves a range at `address` (0: anywhere). Frees of what was allocated before are
 * ignored, as long as the new range lies elsewhere. On failure the arena is empty and refuses allocations and grants
 * with DEVICE_LOST until a restart succeeds. Errors: as hdi_arena_create. */
hd_status hdi_arena_restart(hdi_arena *arena, uint64_t address);

/* Takes memory for an owner who will use it first in `lane`, aligned to 256 bytes. `inherited`: what to wait for
 * before the first use, see hdi_blocks_alloc; to be released by the caller. Tried in this order:
 *   1. a free block that nobody uses any more, or only `lane` does;
 *   2. where one that another lane still uses would do: more physical memory, unless more than 5/4 of what was ever
 *      taken plus 256 MiB were then mapped; else that block, whose owner will wait in its lane;
 *   3. the place in the range that lacks the fewest granules, if possible one that no other lane still uses a part of
 *      (under the same bound as in 2). They come from fresh physical memory while no more than 1.0125 of the most that
 *      was ever taken, this block included, (or 64 MiB in all) is mapped then, else from idle mappings first, and then
 *      fresh. Where the limit leaves no other way, the place is looked for as if everything idle had been unmapped;
 *      For a small block several granules are mapped, a thirty-second of what small blocks have, where that moves nothing;
 *   4. a small block: a place between large ones.
 * Where the device has less than the limit says, the same is tried with what it has. Errors, with outputs untouched:
 * ARGUMENT (0 bytes), MEMORY (the message has the figures), HOST_MEMORY, DEVICE_LOST, DRIVER. The last two and MEMORY
 * also where new memory could not be shared with a granted peer. */
hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited);

/* Up to `count` more blocks of the same size, under one lock, from what rung 1 finds; returns how many. Never asks
 * the port, never fails. */
size_t hdi_arena_alloc_more(hdi_arena *arena, uint32_t lane, size_t bytes, size_t count, hdcu_deviceptr *out,
                            hdi_points *inherited);

/* Gives memory back at once; `points` as for hdi_blocks_free. Makes no request, cannot fail. Pointers that are
 * not the start of a block of this arena are ignored. */
void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_point *points, size_t n_points);

/* Changes with every free and every mapping that is given back: a waiter looks whether trying again makes sense. One
 * load. */
uint64_t hdi_arena_freed(const hdi_arena *arena);

/* Mapped bytes that are neither handed out nor waiting. One load; a little behind while others allocate. */
size_t hdi_arena_free_bytes(const hdi_arena *arena);

/* The limit, what is mapped, what was ever mapped, and what is taken. One load each; a little behind while others
 * allocate. */
size_t hdi_arena_limit(const hdi_arena *arena);
size_t hdi_arena_mapped_bytes(const hdi_arena *arena);
uint64_t hdi_arena_mapped_total(const hdi_arena *arena);
size_t hdi_arena_taken_bytes(const hdi_arena *arena);

/* Maps `bytes`, rounded up to granules, of fresh physical memory ahead of need, or as much as the limit allows:
 * behind the last mapped byte, or in the longest gap. *grown (may be NULL): how much, also on failure. Errors: as
 * hdi_arena_alloc. */
hd_status hdi_arena_grow_ahead(hdi_arena *arena, size_t bytes, size_t *grown);

/* Unmaps idle mappings, those at the highest addresses first, until no more than keep_bytes are idle or `most_bytes`
 * were given back; up to a mapping more than that. *returned (may be NULL): how much was, also on failure. Errors:
 * DEVICE_LOST, DRIVER. */
hd_status hdi_arena_trim(hdi_arena *arena, size_t keep_bytes, size_t most_bytes, size_t *returned);

/* Lets another device (number in the runtime) use everything that is mapped now or later. Granted before, or the
 * owner itself: HD_OK at once. On failure the peer is not granted; mappings that it was given stay with it until they
 * are unmapped, and the next grant gives it the others. Errors: ARGUMENT, MEMORY, DEVICE_LOST, DRIVER. */
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
