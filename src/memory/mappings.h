/* mappings.h - the physical memory of one device: which granules of its range are mapped, by which request, and for
 * which peers.
 *
 * A mapping is what one map request of the port made: whole granules, given back by one unmap request. Every granted
 * peer gets every mapping when it is mapped, and loses it before it is unmapped. Blocks in the memory are not recorded
 * here.
 *
 * Threads: none of its own. Locks: none; the arena calls all functions under `growing`.
 * Blocking: map, unmap and grant block for requests to the port. All else makes no request.
 * Always:
 * - Mappings do not overlap.
 * - `mapped` counts a mapping from before its map request until after its unmap request. So it is never less than what
 *   the device has given.
 * - A mapping that the port could not unmap counts as gone. The port records it, and clears it before it maps anything
 *   else.
 */
#ifndef HDI_MEMORY_MAPPINGS_H
#define HDI_MEMORY_MAPPINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "engine/port.h"

#define HDI_MAPPING_MOST ((size_t)64 << 20)
#define HDI_PEERS_MAX 64

typedef struct hdi_mappings_config {
    hdi_port *port;
    int index;    /* of the device in the runtime */
    size_t limit; /* most that may be mapped */
    /* As in hdi_arena_config. */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;
} hdi_mappings_config;

/* A granule. */
typedef struct hdi_mapping {
    uint32_t first;  /* 1 + the first granule of its mapping; 0: not mapped */
    uint32_t count;  /* first granule only: how many granules the mapping has */
    uint64_t shared; /* first granule only: bit per device that was given the mapping */
} hdi_mapping;

typedef struct hdi_mappings {
    hdi_mappings_config config;
    uint64_t base;         /* of the range */
    size_t granule, count; /* bytes, and granules in the range */
    hdi_mapping *of;       /* by granule */
    size_t end;            /* no granule from here on is mapped */
    _Atomic size_t mapped; /* bytes; any thread may read this and mapped_total */
    size_t peak;
    size_t needed;    /* most that blocks ever took; the arena sets it */
    uint64_t granted; /* bit per device */
    _Atomic uint64_t mapped_total;
    uint64_t calls, unmapped_total;
} hdi_mappings;

/* A request that failed. */
typedef struct hdi_trouble {
    hdi_answer answer;
    int peer; /* the peer that a share request was for; -1: another request failed */
} hdi_trouble;

static inline bool hdi_is_trouble(hdi_trouble t)
{
    return !hdi_answered(t.answer);
}

/* Makes a table with nothing mapped. False: no host memory. */
bool hdi_mappings_init(hdi_mappings *p, const hdi_mappings_config *config, size_t granule, size_t count);
void hdi_mappings_release(hdi_mappings *p);

/* Drops all mappings and grants without a request. The range lies at `base` from then on. */
void hdi_mappings_forget(hdi_mappings *p, uint64_t base);

/* Offsets from here on are offsets in the range, in bytes. */

size_t hdi_mappings_missing(const hdi_mappings *p, size_t from, size_t to); /* bytes that are not mapped */

/* Maps what is missing between two granules, by rising address. A mapping has `least` bytes or more where so much is
 * missing in one place. *mapped_to: everything below is mapped. On failure the mapping that failed is undone, and those
 * before it stay. */
hdi_trouble hdi_mappings_map(hdi_mappings *p, size_t from, size_t to, size_t least, size_t *mapped_to);

/* Narrows an area to the whole mappings in it. False: there is none. */
bool hdi_mappings_within(const hdi_mappings *p, size_t *from, size_t *to);

/* The begin of the mapping with the byte in front of `to`. */
size_t hdi_mappings_last(const hdi_mappings *p, size_t to);

/* Unmaps all mappings of an area of whole mappings, by rising address, up to the first failure. The mapping that failed
 * counts as gone, too. *gone_to: everything below is unmapped. */
hdi_answer hdi_mappings_unmap(hdi_mappings *p, size_t from, size_t to, size_t *gone_to);

/* Gives a device all mappings that it lacks, and all later ones. On failure it keeps those that it was given, and is
 * not granted. */
hdi_answer hdi_mappings_grant(hdi_mappings *p, int device);
/* Drops a device's grant and all that it was given, without a request. */
void hdi_mappings_revoke(hdi_mappings *p, int device);

/* Verifies the table. False: `why` has the finding. */
bool hdi_mappings_check(const hdi_mappings *p, char *why, size_t why_bytes);

#endif
