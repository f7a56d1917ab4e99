/* arena.h - one device's memory: its address range, the physical memory that is mapped into this
 * range as needed, and the blocks that owners take.
 *
 * The range is several times as large as the device's memory, so memory runs out before addresses
 * do. A mapping is physical memory of one or several granules of 2 or 4 MiB. The driver takes some
 * 35 us to make a mapping, whatever its size. So a large block gets mappings of up to 64 MiB each,
 * and a small block gets small mappings.
 *
 * The arena can only move or give back a whole mapping. So a mapping of several granules serves one
 * block at a time, and blocks share only mappings of one granule. If a block would take only a part
 * of an idle mapping, the arena first divides this mapping at the edges of the block. So a live
 * block usually keeps only the granules that it touches. The arena cannot divide a free mapping
 * while work still uses it. A block that takes a part of such a mapping keeps the whole mapping
 * (hdi_blocks_request).
 *
 * Blocks above HDI_SMALL_BYTES lie anywhere in the range, and may cross mappings. Smaller blocks
 * lie in granules that contain only small blocks. If small blocks lay between large ones, a few
 * small blocks would keep large areas mapped.
 *
 * A mapping is idle while it has no live block and no unfinished use. To move an idle mapping, the
 * arena unmaps it, and maps the same number of bytes where a new block lacks memory. The arena can
 * also give the memory of an idle mapping back to the device. All requests to the device go through
 * its port.
 *
 * hdi_arena_alloc describes how the arena serves an allocation that fits in no free block.
 *
 * Threads: any, at the same time, except for create and destroy.
 * Locks: a thread that needs both locks takes `growing` before `blocks_lock`.
 * - A thread holds `growing` while it maps, unmaps, grants, revokes, restarts or reads the
 *   mappings. The thread keeps the lock during its requests to the port.
 * - A thread holds `blocks_lock` briefly, and never during a request. hdi_arena_free takes only
 *   this lock. The same is true of hdi_arena_alloc if it finds a free block that no other lane
 *   still uses.
 * Blocking: a thread that takes `growing` waits while another thread holds this lock, usually for
 * requests to the port. hdi_arena_alloc takes `growing` only if way 1 below finds no block.
 * Always:
 * - Mapped bytes never exceed the limit. A move keeps to the limit, since it unmaps memory before
 *   it maps memory.
 * - Every peer that was granted access can use a block's memory before the block's owner gets the
 *   block.
 * - The arena unmaps memory only when all work that used the memory is finished.
 */
#ifndef HDI_MEMORY_ARENA_H
#define HDI_MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "driver/driver.h"
#include "engine/channel.h"
#include "engine/port.h"
#include "memory/blocks.h"

/* Blocks up to this size lie in granules of their own. */
#define HDI_SMALL_BYTES ((size_t)1 << 20)

#define HDI_PEERS_MAX 64 /* devices that one arena can be shared with */

typedef struct hdi_arena hdi_arena;

typedef struct hdi_arena_config {
    hdi_port *port; /* the device's port; valid as long as the arena */
    int index;      /* the device's number in the runtime */
    /* The most bytes of physical memory to map, rounded down to granules. 0: all memory of the
     * device. */
    size_t limit_bytes;
    uint64_t total_bytes, granule; /* as in hdi_facts; 0: not known, so the arena asks the port */
    /* The size of the address range; 0: sixteen times the device's memory. If too few addresses are
     * free and `fixed` is false, the range becomes smaller, but not smaller than the limit. */
    uint64_t range_bytes;
    uint64_t address; /* address of the range, a multiple of the granule; 0: any */
    /* true: creation and restart fail unless the range lies at `address`, if `address` is not 0 */
    bool fixed;

    /* Lets the device `peer` (its number in the runtime) use one mapping. NULL: the arena calls
     * `grant` of the port. For a lost peer the function returns success, since the peer loses its
     * grant, and gets the mapping again after its restart. The arena holds `growing`, so this
     * function must not call the arena. */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    /* Called before the arena unmaps a mapping, with the bounds that `share` got. It must remove
     * the peer's mapping that `share` made, since other memory will lie at that address. NULL:
     * unmapping also ends the peer's access. The arena holds `growing`, so this function must not
     * call the arena. */
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;

    /* Called without locks when way 1 of hdi_arena_alloc finds no block. The function gives the
     * large blocks in thread caches back to the arena. False: no cache contained a large block.
     * NULL: thread caches do not exist. */
    bool (*relieve)(void *context);
    void *relieve_context;

    /* As in hdi_blocks_config. Called under blocks_lock, so it must not call the arena. */
    bool (*finished)(void *context, hdi_point point);
    void *finished_context;
} hdi_arena_config;

typedef struct hdi_arena_info {
    size_t granule;                         /* the unit of mapped memory, in bytes */
    size_t reserved_bytes;                  /* the address range */
    size_t limit_bytes;                     /* the most bytes that may be mapped */
    size_t mapped_bytes, mapped_peak_bytes; /* physical memory held */
    size_t pieces_bytes;                    /* part of mapped_bytes: pieces outside of the range */
    size_t taken_bytes, taken_peak_bytes;   /* in blocks now handed out */
    size_t held_peak_bytes;                 /* the peak of taken_bytes and pieces_bytes together */
    size_t taken_blocks;
    size_t waiting_bytes; /* in free blocks with unfinished points */
    size_t idle_bytes;    /* in mappings that could be unmapped now */
    size_t largest_free;
    size_t retired_bytes;
    /* Counters: how allocations were served, see hd_memory_stats. */
    uint64_t from_same_lane, from_finished, from_waited, from_fresh;
    uint64_t driver_calls; /* requests: map, move and unmap */
    uint64_t mapped_total, moved_bytes, returned_bytes, ahead_bytes;
} hdi_arena_info;

/* Reserves the address range and maps nothing.
 * Blocks for requests to the port.
 * Errors: ARGUMENT, HOST_MEMORY, MEMORY, UNSUPPORTED (also: the fixed address is not free),
 * DEVICE_LOST, DRIVER. */
hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);

/* Gives all memory back to the driver, before hdi_arena_destroy. Between the two calls, blocks may
 * be freed, but no memory may be used or allocated. Ignores NULL.
 * Blocks for requests to the port.
 * Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_arena_give_back(hdi_arena *arena);

/* Gives all memory back, including blocks that still have owners. No submitted work may use these
 * blocks. Ignores NULL. `abandoned`: the device is lost. Then the arena makes no request to the
 * device's port, since a request to a dead device may hang. The system takes the memory back when
 * the device's process ends. Returns the first error, but goes on past errors. The arena is gone in
 * any case.
 * Blocks for requests to the port.
 * Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned);

/* Restarts the arena after a loss of the device, when the port leads to a fresh process. Drops all
 * blocks, mappings and peers without a request, and reserves a range at `address` (0: anywhere).
 * hdi_arena_free ignores blocks of the former range if the new range lies elsewhere. On failure the
 * arena is empty. Until a restart succeeds, the arena refuses allocations and grants with
 * DEVICE_LOST. Blocks for requests to the port.
 * Errors: as hdi_arena_create. */
hd_status hdi_arena_restart(hdi_arena *arena, uint64_t address);

/* Takes memory for an owner that first uses it in `lane`, aligned to 256 bytes. `inherited`: the
 * points to wait for before the first use, see hdi_blocks_alloc; the caller releases them.
 * The arena tries these ways in order:
 * 1. A free block of mapped memory that no lane other than `lane` still uses.
 * 2. If other lanes still use all blocks that fit: more physical memory, as long as the mapped
 *    bytes stay below a bound. The bound is 5/4 of the most bytes that were ever taken, plus 256
 *    MiB. Above the bound, the owner gets a block that other lanes still use, and the owner's lane
 *    waits for them.
 * 3. The place in the range that lacks the fewest granules. Places that no other lane still uses
 *    come first, up to the bound of way 2.
 * 4. A part of a free mapping that work still uses, and that is larger than the block.
 * 5. For a small block, a place between large ones.
 *
 * In way 3, the missing granules get fresh physical memory as long as the mapped bytes stay below a
 * second bound. This bound is 1.025 times the most bytes that were ever taken, this block included,
 * but at least 64 MiB. It rises while memory moves often. Above this bound, the arena first moves
 * idle mappings to the place, and then maps fresh memory for the granules that are still missing.
 * If the arena's limit allows no such place, the arena chooses a place as if all idle mappings were
 * unmapped. For a small block, way 3 maps several granules at once if no mapping must move for
 * them. Together these granules are at most a thirty-second of the memory of small blocks. If the
 * device runs out of memory below the arena's limit, the bytes mapped at that moment replace the
 * limit for this call. Blocks for requests to the port, and while other threads map or unmap.
 * Errors (outputs untouched): ARGUMENT (0 bytes), MEMORY (the message gives the figures),
 * HOST_MEMORY, DEVICE_LOST, DRIVER. MEMORY, DEVICE_LOST and DRIVER are also returned if new memory
 * could not be shared with a granted peer. */
hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited);

/* Takes up to `count` more blocks of the same size by way 1 of hdi_arena_alloc, under one lock.
 * Makes no request and cannot fail.
 * Returns the number of blocks taken. */
size_t hdi_arena_alloc_more(hdi_arena *arena, uint32_t lane, size_t bytes, size_t count, hdcu_deviceptr *out,
                            hdi_points *inherited);

/* Gives memory back at once; `points`: as for hdi_blocks_free. Makes no request and cannot fail.
 * Ignores a pointer that is not the start of a block of this arena. */
void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_point *points, size_t n_points);

/* A counter that changes when a block is freed or a mapping is given back. After a change, an
 * allocation that waits should try again. Costs one load. */
uint64_t hdi_arena_freed(const hdi_arena *arena);

/* Mapped bytes without an owner and without unfinished uses. Costs one load; may be a little old
 * while other threads allocate. */
size_t hdi_arena_free_bytes(const hdi_arena *arena);

/* The limit, the bytes now mapped, the bytes ever mapped, and the bytes taken. Each costs one load,
 * and may be a little old while other threads allocate. */
size_t hdi_arena_limit(const hdi_arena *arena);
size_t hdi_arena_mapped_bytes(const hdi_arena *arena);
uint64_t hdi_arena_mapped_total(const hdi_arena *arena);
size_t hdi_arena_taken_bytes(const hdi_arena *arena);

/* Maps `bytes` of fresh physical memory before they are needed, rounded up to granules, or as many
 * bytes as the limit allows. The memory goes behind the last mapped byte, or into the longest gap.
 * *grown (may be NULL): the bytes mapped, even on failure. Blocks for requests to the port.
 * Errors: as hdi_arena_alloc. */
hd_status hdi_arena_grow_ahead(hdi_arena *arena, size_t bytes, size_t *grown);

/* Unmaps idle mappings, those at the highest addresses first. Ends when at most `keep_bytes` are
 * idle, or when `most_bytes` were given back; the last mapping may exceed `most_bytes`. *returned
 * (may be NULL): the bytes given back, even on failure.
 * Blocks for requests to the port.
 * Errors: DEVICE_LOST, DRIVER. */
hd_status hdi_arena_trim(hdi_arena *arena, size_t keep_bytes, size_t most_bytes, size_t *returned);

/* Counts the memory of a piece, in whole granules, as mapped. A piece is memory of the device
 * outside of the range. If the limit leaves no room for the piece, unmaps idle mappings.
 * hdi_arena_uncount_piece stops counting the piece; `used`: the piece existed, so memory was freed.
 * After a restart no piece counts.
 * Blocks for requests to the port.
 * Errors: MEMORY (the message gives the figures), DEVICE_LOST, DRIVER. */
hd_status hdi_arena_count_piece(hdi_arena *arena, size_t bytes);
void hdi_arena_uncount_piece(hdi_arena *arena, size_t bytes, bool used);

/* Lets another device, `peer` (its number in the runtime), use all memory that is mapped now or
 * later. Returns HD_OK at once for a peer that is already granted, and for the owner itself. On
 * failure the peer is not granted. The peer keeps the mappings that it got until they are unmapped;
 * the next grant gives it the others.
 * Blocks for requests to the port.
 * Errors: ARGUMENT, MEMORY, DEVICE_LOST, DRIVER. */
hd_status hdi_arena_grant(hdi_arena *arena, int peer);

/* Removes a lost peer that was granted or got any mapping. The peer's own mappings ended when its
 * process ended. Makes no request. */
void hdi_arena_revoke(hdi_arena *arena, int peer);

/* The address of the range; 0 after a restart that failed. */
uint64_t hdi_arena_base(hdi_arena *arena);

/* True if some of these bytes are in the range. */
bool hdi_arena_overlaps(hdi_arena *arena, uint64_t at, uint64_t bytes);

/* The figures of one moment. Blocks while another thread maps or unmaps. */
void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out);

/* As hdi_blocks_waiting_of, under blocks_lock: `of` must not call the arena. */
size_t hdi_arena_waiting_of(hdi_arena *arena, hdi_of_point of, void *context);

/* The unused bytes that live blocks keep, since the arena can only move or give back whole
 * mappings. */
typedef struct hdi_arena_kept {
    uint64_t base;
    size_t granule, count; /* `count`: the granules in `first` and `share` */
    uint64_t bytes;        /* kept by all blocks together */
    uint32_t *first;       /* by granule: 1 + the first granule of its mapping; 0: none */
    /* by first granule of a mapping: the bytes that each block in it keeps */
    size_t *share;
} hdi_arena_kept;

/* Looks at all blocks. False: host memory ran out; *out is empty. Blocks while another thread maps
 * or unmaps. */
bool hdi_arena_kept_make(hdi_arena *arena, hdi_arena_kept *out);
void hdi_arena_kept_free_report(hdi_arena_kept *kept);
/* The bytes that one block keeps. */
uint64_t hdi_arena_kept_by(const hdi_arena_kept *kept, uint64_t at, uint64_t bytes);

/* Verifies every structure, for tests and debug builds. False: `why` gets the first finding. */
bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes);

#endif
