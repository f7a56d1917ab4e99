/* route.h - how bytes travel: the pieces of a copy, the lane of each piece, and the buffers that a
 * device can use.
 *
 * The plan of a copy is a pure function of facts, so a test can check it by a table. All constants
 * for the speed of copies between buffers are here.
 *
 * Only the use records of the buffers decide the order of copies. The choice of a lane decides
 * which unrelated work stands in front of a copy. Each direction uses several lanes for quick
 * copies, and several for large ones.
 * Each ordered pair of devices that copy through pinned memory has a lane at either end.
 * The copies of a thread stay in one lane while the lane contains work of that thread. So these
 * copies need no waits for each other. Threads that copy at the same time get different lanes while
 * there are enough. A copy enters a lane only if it waits for all work of the program that the
 * copies in this lane wait for. Otherwise it moves to another lane (src/buffer/parked.h).
 *
 * Threads: any.
 * Locks: one mutex per device, held while a lane is made.
 * Blocking: a thread that makes a lane waits for a driver call or a worker's answer. The first
 * kernel that uses a pair of devices waits for a test of the pair.
 * Always: the lanes that hd_open makes (lane_in, lane_out, lane_on of the device) are the first
 * choice for quick copies. If no lane can be made, copies use an existing one.
 */
#ifndef HDI_TRANSFER_ROUTE_H
#define HDI_TRANSFER_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "buffer/buffer.h"
#include "engine/engine.h"
#include "peer/access.h"

/* ---- the plan ---- */

/* A copy of at most QUICK bytes goes into a lane for quick copies, so that it does not wait behind
 * large copies. A larger copy goes into a lane for large copies, in operations of at most MAPPING
 * bytes.
 * LINK: for copies to and from pinned memory. MEMORY: for copies on a device, or from device to
 * device. */
#define HDI_QUICK_LINK ((uint64_t)4 << 20)
#define HDI_QUICK_MEMORY ((uint64_t)32 << 20)
#define HDI_MAPPING_LINK ((uint64_t)64 << 20)
#define HDI_MAPPING_MEMORY ((uint64_t)256 << 20)

/* Chunks of pinned memory for copies between two devices: the sizes, and the most chunks of each
 * size for an ordered pair of devices.
 * A copy that fits into a small or a medium chunk goes through that chunk in one piece.
 * A larger copy goes through large chunks, in about HDI_STAGED_PARTS parts. So the destination's
 * device reads the first parts while the source's device still writes the next ones. The large
 * chunks of both directions should fit into the processor's cache. With more large chunks, the
 * devices would read and write main memory, which is slower than the links. */
#define HDI_STAGED_SMALL ((uint64_t)64 << 10)
#define HDI_STAGED_MEDIUM ((uint64_t)1 << 20)
#define HDI_STAGED_LARGE ((uint64_t)7 << 20)
#define HDI_STAGED_SMALL_CHUNKS 8
#define HDI_STAGED_MEDIUM_CHUNKS 4
#define HDI_STAGED_LARGE_CHUNKS 3
#define HDI_STAGED_PARTS 8
#define HDI_STAGED_STEP ((uint64_t)256 << 10) /* sizes of parts are multiples of it */

/* A copy engine takes some time for each row. So if rows are shorter than this, a copy from a
 * device also reads the bytes between them. It does so only if these bytes are no more than the
 * bytes of the rows. */
#define HDI_TINY_ROW 256

typedef enum hdi_route_kind {
    HDI_ROUTE_TO_DEVICE, /* pinned memory to a device */
    HDI_ROUTE_TO_HOST,   /* a device to pinned memory */
    HDI_ROUTE_ON_DEVICE, /* inside a device */
    /* From device to device. The device in `device` copies, and can access the other device's
     * memory. */
    HDI_ROUTE_PEER,
    /* From device to device through pinned chunks. */
    HDI_ROUTE_STAGED,
    HDI_ROUTE_HOST /* between pinned buffers */
} hdi_route_kind;

typedef enum hdi_route_lanes {
    /* The lanes for quick copies in the direction of the route. STAGED: the source's outward lane
     * and the destination's inward lane. */
    HDI_LANES_QUICK,
    HDI_LANES_BULK, /* the lanes for large copies in the direction of the route */
    HDI_LANES_PAIR  /* STAGED: a lane on each of the two devices, for this ordered pair alone */
} hdi_route_lanes;

typedef struct hdi_route {
    hdi_route_kind kind;
    int device; /* the device whose lane does the work */
    int second; /* STAGED: the destination, whose lane empties the chunks */
    hdi_route_lanes lanes;
    uint64_t piece; /* the most bytes of one operation */
    uint64_t chunk; /* STAGED: the size of a chunk */
} hdi_route;

/* How a device's copies may use another device's memory. */
typedef enum hdi_link {
    HDI_LINK_NONE, /* not at all: impossible, forbidden, or slower than through pinned memory */
    HDI_LINK_GOOD
} hdi_link;

typedef struct hdi_route_facts {
    int src, dst;        /* the device that owns the memory, or -1 for pinned memory */
    hdi_link src_to_dst; /* two devices: the source's device writes the destination's memory */
    hdi_link dst_to_src; /* the destination's device reads the source's memory */
    uint64_t bytes;
} hdi_route_facts;

hdi_route hdi_route_plan(const hdi_route_facts *facts);

/* ---- copy lanes ---- */

typedef enum hdi_way {
    HDI_WAY_IN,  /* from pinned memory to the device */
    HDI_WAY_OUT, /* from the device to pinned memory */
    HDI_WAY_ON,  /* within the device */
    /* To and from peers. These lanes contain only work of copy engines: kernels and fills would
     * delay the copies. */
    HDI_WAY_PEER
} hdi_way;
#define HDI_WAYS 4

/* Makes lane_in, lane_out and lane_on of each device. Errors: as hdi_lane_make. */
extern const hdi_lifetime hdi_copy_lanes_lifetime;
void hdi_copy_lanes_release(hdi_device *device);

/* Returns a lane for a copy of this thread. `lanes`: QUICK or BULK. */
hd_lane *hdi_copy_lane(hdi_device *device, hdi_way way, hdi_route_lanes lanes);

/* The lane for the parts of large transfers between the program's memory and the device. It is
 * always the same lane, and contains no small copies. If this lane could not be made, returns a
 * lane for large copies. */
hd_lane *hdi_program_lane(hdi_device *device, hdi_way way);

/* The lanes for large copies through pinned memory between a pair of devices: one on the source,
 * one on the destination. */
hd_lane *hdi_pair_lane_out(hd_runtime *rt, int src, int dst);
hd_lane *hdi_pair_lane_in(hd_runtime *rt, int src, int dst);

/* ---- peer access ---- */

/* Like hdi_peer_access_between, for the owners of two buffers. `src` and `dst` are these owners,
 * which the caller read only once. */
int hdi_buffers_access_between(struct hd_buffer *from, int src, struct hd_buffer *to, int dst);
/* Like hdi_peer_access, for a buffer whose memory is in no arena. */
bool hdi_buffer_apart_is_reached(struct hd_buffer *b, int owner, int from);

/* True if the device `from` can access the memory of a buffer. `owner`: the buffer's owner, which
 * the caller read only once. */
static inline bool hdi_buffer_is_reached(struct hd_buffer *b, int owner, int from)
{
    unsigned special = atomic_load_explicit(&b->special, memory_order_relaxed);
    if (owner < 0 || owner == from) {
        return true;
    }
    return special & (HDI_BUFFER_BORROWED | HDI_BUFFER_IMPORTED) ? hdi_buffer_apart_is_reached(b, owner, from)
                                                                 : hdi_peer_access(b->runtime, from, owner);
}

/* Call this if the device `from` could not access the buffer. For some buffers, such as imports,
 * asks once more for access.
 * HD_OK: the device can access the buffer now. Fails with DEVICE_LOST if one of the two devices is
 * lost. Fails with MEMORY if the driver lacks memory to map the buffer, else with UNREACHABLE. The
 * message gives the reason, and a remedy. May wait until the device of an ended worker counts as
 * lost. */
hd_status hdi_buffer_reach_again(struct hd_buffer *b, int owner, int from);

#endif
