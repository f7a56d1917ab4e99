/* copy_lanes.h - which of a device's lanes a copy goes in.
 *
 * Copies are ordered by use records alone, so which lane one takes is a matter of what it had better not queue up behind: each direction has lanes
 * for quick copies and lanes for large ones, several of each, and each ordered pair of devices that copy through pinned memory has one at
 * either end. A thread's copies stay in one lane as long as that has work of its own, where order costs nothing; threads that copy at the
 * same time find different ones.
 *
 * Threads: any. Locks: a mutex per device while a lane is made. Blocking: only then, for a driver call or a worker's answer. Always: the lanes of
 * quick copies that hd_open makes (lane_in, lane_out, lane_on of the device) are first choice; where no lane can be made, those there
 * are do.
 */
#ifndef HDI_DATA_COPY_LANES_H
#define HDI_DATA_COPY_LANES_H

#include "data/route.h"
#include "engine/engine.h"

typedef enum hdi_way {
    HDI_WAY_IN,  /* from pinned memory to the device */
    HDI_WAY_OUT, /* from it to pinned memory */
    HDI_WAY_ON,  /* on it */
    HDI_WAY_PEER /* to and from peers: by copy engines alone, which kernels and fills in the same lane would hold up */
} hdi_way;
#define HDI_WAYS 4

/* hd_open: lane_in, lane_out and lane_on of the device. Errors: as hdi_lane_make. */
hd_status hdi_copy_lanes_create(hdi_device *device);
void hdi_copy_lanes_release(hdi_device *device);

/* For a copy of this thread; `lanes`: QUICK or BULK. */
hd_lane *hdi_copy_lane(hdi_device *device, hdi_way way, hdi_route_lanes lanes);

/* For the parts of large transfers between the program's memory and the device: always the same one, which small copies are not in, unless it
 * could not be made. */
hd_lane *hdi_program_lane(hdi_device *device, hdi_way way);

/* For copies through pinned memory: the lane of the pair's source, or of its destination. */
hd_lane *hdi_pair_lane_out(hd_runtime *rt, int src, int dst);
hd_lane *hdi_pair_lane_in(hd_runtime *rt, int src, int dst);

/* Whether a lane, by its global number, is one of the device's for copies. */
bool hdi_is_copy_lane(const hdi_device *device, uint32_t lane);

#endif
