/* route.h - which way bytes go, and in what pieces: a pure function of facts, tested as a table.
 *
 * All that may have to be tuned for copies between buffers is here.
 *
 * Threads: any. Locks: none. Blocking: never.
 */
#ifndef HDI_TRANSFER_ROUTE_H
#define HDI_TRANSFER_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy up to QUICK bytes goes in the lanes of quick copies, so that it does not queue behind large ones. A larger copy goes in the lanes of
 * large copies, in operations of at most MAPPING bytes.
 * LINK: to and from pinned memory. MEMORY: on a device, or from device to device. */
#define HDI_QUICK_LINK ((uint64_t)4 << 20)
#define HDI_QUICK_MEMORY ((uint64_t)32 << 20)
#define HDI_MAPPING_LINK ((uint64_t)64 << 20)
#define HDI_MAPPING_MEMORY ((uint64_t)256 << 20)

/* Chunks of pinned memory for copies between two devices: at most so many of each kind for each ordered pair of devices.
 * A copy that fits into a small or a medium chunk goes through it in one piece.
 * A larger copy goes through large chunks, in about HDI_STAGED_PARTS parts, so that its two halves overlap also where there are few bytes.
 * The large chunks of both directions should fit into the processor's cache. With more of them the devices go to memory, and two directions at
 * once are slower than that. */
#define HDI_STAGED_SMALL ((uint64_t)64 << 10)
#define HDI_STAGED_MEDIUM ((uint64_t)1 << 20)
#define HDI_STAGED_LARGE ((uint64_t)7 << 20)
#define HDI_STAGED_SMALL_CHUNKS 8
#define HDI_STAGED_MEDIUM_CHUNKS 4
#define HDI_STAGED_LARGE_CHUNKS 3
#define HDI_STAGED_PARTS 8
#define HDI_STAGED_STEP ((uint64_t)256 << 10) /* parts are multiples of it */

/* Shorter rows of boxes are fetched from a device together with the bytes between them, where these are no more than the rows. A copy engine
 * takes its time for each row. */
#define HDI_TINY_ROW 256

typedef enum hdi_route_kind {
    HDI_ROUTE_TO_DEVICE, /* pinned memory to a device */
    HDI_ROUTE_TO_HOST,   /* a device to pinned memory */
    HDI_ROUTE_ON_DEVICE, /* inside a device */
    HDI_ROUTE_PEER,      /* from device to device, by the device named, which reaches the other's memory */
    HDI_ROUTE_STAGED,    /* from device to device through pinned chunks: out of one device, then into the other */
    HDI_ROUTE_HOST       /* between pinned buffers */
} hdi_route_kind;

typedef enum hdi_route_lanes {
    HDI_LANES_QUICK, /* for quick copies in that direction; STAGED: the source's outward one and the destination's inward one */
    HDI_LANES_BULK, /* the same for large copies */
    HDI_LANES_PAIR  /* STAGED: one on each of the two devices, for this ordered pair alone */
} hdi_route_lanes;

typedef struct hdi_route {
    hdi_route_kind kind;
    int device; /* the device whose lane does the work */
    int second; /* STAGED: the destination, whose lane does the second half */
    hdi_route_lanes lanes;
    uint64_t piece; /* the most bytes of one operation */
    uint64_t chunk; /* STAGED: bytes of a chunk */
} hdi_route;

/* Whether a device's copies use another one's memory. */
typedef enum hdi_link {
    HDI_LINK_NONE, /* they cannot, must not, or are slower than through pinned memory */
    HDI_LINK_GOOD
} hdi_link;

typedef struct hdi_route_facts {
    int src, dst;        /* owning device, or -1 for pinned host memory */
    hdi_link src_to_dst; /* two devices: the source's device writes the destination's memory */
    hdi_link dst_to_src; /* the destination's device reads the source's memory */
    uint64_t bytes;
} hdi_route_facts;

hdi_route hdi_route_plan(const hdi_route_facts *facts);

#endif
