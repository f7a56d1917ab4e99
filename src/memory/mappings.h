/* mappings.h - the physical memory of one device: which granules of its range are mapped, by which request, and for
 * which peers.
 *
 * A mapping is what one map request of the port made: whole granules, given back by one unmap request. Every granted
 * peer gets every mapping when it is mapped, and loses it before it is unmapped. What lies in the memory is not known
 * here.
 *
 * Threads, locks: none of its own; the arena calls it under `growing`.
 * Always: mappings do not overlap; `mapped` counts a mapping from before it is asked for until after it is given back, so
 * it is never less than what the device has given. A mapping that the port could not unmap counts as gone: the port
 * keeps it in mind and clears it before it maps anything else.
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
    size_t limit; /* most that may ever be mapped */
    /* as in hdi_arena_config */
    hdi_answer (*share)(void *context, int peer, uint64_t at, uint64_t bytes);
    void (*unshare)(void *context, int peer, uint64_t at, uint64_t bytes);
    void *share_context;
} hdi_mappings_config;

/* What is known of a granule. */
typedef struct hdi_mapping {
    uint32_t first;  /* 1 + the first granule of the mapping that it belongs to; 0: not mapped */
    uint32_t count;  /* first granule: of granules in the mapping */
    uint64_t shared; /* first granule: bit per device that was given the mapping */
} hdi_mapping;

typedef struct hdi_mappings {
    hdi_mappings_config config;
    uint64_t base;         /* of the range */
    size_t granule, count; /* bytes, and granules in the range */
    hdi_mapping *of;       /* by granule */
    size_t end;            /* no granule from here on is mapped */
    _Atomic size_t mapped; /* bytes; this and mapped_total are read by anybody */
    size_t peak;
    size_t needed;    /* most that blocks ever took, as far as the arena says */
    uint64_t granted; /* bit per device */
    _Atomic uint64_t mapped_total;
    uint64_t calls, unmapped_total;
} hdi_mappings;

/* A request that failed. */
typedef struct hdi_trouble {
    hdi_answer answer;
    int peer; /* of a request that was to share memory with it; -1: of another one */
} hdi_trouble;

static inline bool hdi_is_trouble(hdi_trouble t)
{
    return !hdi_answered(t.answer);
}

/* Nothing is mapped. False: no host memory. */
bool hdi_mappings_init(hdi_mappings *p, const hdi_mappings_config *config, size_t granule, size_t count);
void hdi_mappings_release(hdi_mappings *p);

/* Nothing is mapped or granted any more, without a request; the range lies at `base`. */
void hdi_mappings_forget(hdi_mappings *p, uint64_t base);

/* Offsets from here on are those of the range, in bytes. */

size_t hdi_mappings_missing(const hdi_mappings *p, size_t from, size_t to); /* bytes that are not mapped */

/* Maps what is missing between two granules, by rising address, in mappings of `least` bytes or more where that much is missing in one place.
 * *mapped_to: everything below is mapped. On failure the mapping that failed is undone, those before stay. */
hdi_trouble hdi_mappings_map(hdi_mappings *p, size_t from, size_t to, size_t least, size_t *mapped_to);

/* Narrows an area to the whole mappings in it; false if there is none. */
bool hdi_mappings_within(const hdi_mappings *p, size_t *from, size_t *to);

/* Where the mapping begins that the byte in front of `to` lies in. */
size_t hdi_mappings_last(const hdi_mappings *p, size_t to);

/* Unmaps all mappings of an area of whole mappings, by rising address. Also a mapping that makes trouble is gone; the ones
 * behind it are not. *gone_to: everything below is unmapped. */
hdi_answer hdi_mappings_unmap(hdi_mappings *p, size_t from, size_t to, size_t *gone_to);

/* Gives a device all mappings that it has not, and all later ones. On failure it keeps what it was given, and is not
 * granted. */
hdi_answer hdi_mappings_grant(hdi_mappings *p, int device);
/* Forgets that the device was granted or given anything. */
void hdi_mappings_revoke(hdi_mappings *p, int device);

/* Verifies the table; false with the finding in `why`. */
bool hdi_mappings_check(const hdi_mappings *p, char *why, size_t why_bytes);

#endif
