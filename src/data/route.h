/* route.h - which way bytes go, and in what pieces: a pure function of facts, tested as a table. Any thread, no locks.
 *
 * Everything that may have to be tuned about copies between buffers is here.
 */
#ifndef HDI_DATA_ROUTE_H
#define HDI_DATA_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy up to QUICK bytes goes in the lanes of quick copies, so that it does not queue up behind large ones; what is larger goes in lanes of
 * its own kind, in operations of at most PIECE bytes. LINK: to and from pinned memory; MEMORY: on a device, or from device to device. */
#define HDI_QUICK_LINK ((uint64_t)4 << 20)
#define HDI_QUICK_MEMORY ((uint64_t)32 << 20)
#define HDI_MAPPING_LINK ((uint64_t)64 << 20)
#define HDI_MAPPING_MEMORY ((uint64_t)256 << 20)

/* Chunks of pinned memory for copies between two devices; each ordered pair of devices has so many of each kind at most. What fits into a small
 * or a medium one goes through it at once. More goes through large ones, in about HDI_STAGED_PARTS parts, so that the two halves overlap
 * also where there are few bytes. The large ones of both directions should find room in the processor's cache: with more of them the devices
 * go by the memory, and two directions at once are slower than that. */
#define HDI_STAGED_SMALL ((uint64_t)64 << 10)
#define HDI_STAGED_MEDIUM ((uint64_t)1 << 20)
#define HDI_STAGED_LARGE ((uint64_t)7 << 20)
#define HDI_STAGED_SMALL_CHUNKS 8
#define HDI_STAGED_MEDIUM_CHUNKS 4
#define HDI_STAGED_LARGE_CHUNKS 3
#define HDI_STAGED_PARTS 8
#define HDI_STAGED_STEP ((uint64_t)256 << 10) /* parts are multiples of it */

/* Rows of boxes that are shorter than this are fetched from a device together with what lies between them, where that is no more than the rows
 * themselves: a copy engine goes row by row. */
#define HDI_TINY_ROW 256

typedef enum hdi_route_kind {
    HDI_ROUTE_TO_DEVICE, /* pinned memory to a device */
    HDI_ROUTE_TO_HOST,   /* a device to pinned memory */
    HDI_ROUTE_ON_DEVICE, /* inside a device */
    HDI_ROUTE_PEER,      /* from device to device; the one named reaches the other's memory */
    HDI_ROUTE_STAGED,    /* from device to device through pinned chunks: out of the one, then into the other */
    HDI_ROUTE_HOST       /* between pinned buffers */
} hdi_route_kind;

typedef enum hdi_route_lanes {
    HDI_LANES_QUICK, /* the device's for quick copies in that direction; of STAGED the source's outward and the destination's inward one */
    HDI_LANES_BULK, /* likewise for large copies */
    HDI_LANES_PAIR  /* STAGED: one on each of the two devices for this ordered pair alone */
} hdi_route_lanes;

typedef struct hdi_route {
    hdi_route_kind kind;
    int device; /* whose lane does the work */
    int second; /* STAGED: whose lane does the second half, the destination's */
    hdi_route_lanes lanes;
    uint64_t piece;  /* bytes of one operation at most */
    uint64_t chunk;  /* STAGED: bytes of a chunk */
    unsigned chunks; /* STAGED: so many are used in turn */
} hdi_route;

/* Whether a device's copies use another one's memory. */
typedef enum hdi_link {
    HDI_LINK_NONE, /* they cannot, or must not, or are faster through pinned memory */
    HDI_LINK_GOOD
} hdi_link;

typedef struct hdi_route_facts {
    int src, dst;        /* owning device, or -1 for pinned host memory */
    hdi_link src_to_dst; /* of two devices: the source's device writing the destination's memory */
    hdi_link dst_to_src; /* the destination's device reading the source's memory */
    uint64_t bytes;
} hdi_route_facts;

hdi_route hdi_route_plan(const hdi_route_facts *facts);

#endif
