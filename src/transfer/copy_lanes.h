/* copy_lanes.h - the choice of a device's lane for a copy.
 *
 * Use records alone order copies. So the choice of a lane only decides what a copy queues behind.
 * Each direction has several lanes for quick copies, and several for large ones.
 * Each ordered pair of devices that copy through pinned memory has a lane at either end.
 * A thread's copies stay in one lane while it has work in it, since order within a lane costs nothing.
 * Threads that copy at the same time get different lanes where there are enough.
 *
 * Threads: any.
 * Locks: a mutex per device while a lane is made.
 * Blocking: only while a lane is made, for a driver call or a worker's answer.
 * Always: the lanes that hd_open makes (lane_in, lane_out, lane_on of the device) are the first choice for quick copies. Where no lane can be
 * made, an existing one is used.
 */
#ifndef HDI_TRANSFER_COPY_LANES_H
#define HDI_TRANSFER_COPY_LANES_H

#include "transfer/route.h"
#include "engine/engine.h"

typedef enum hdi_way {
    HDI_WAY_IN,  /* from pinned memory to the device */
    HDI_WAY_OUT, /* from the device to pinned memory */
    HDI_WAY_ON,  /* within the device */
    HDI_WAY_PEER /* to and from peers. Only copy engines work there: kernels and fills in the same lane would delay copies */
} hdi_way;
#define HDI_WAYS 4

/* hd_open: lane_in, lane_out and lane_on of the device. Errors: as hdi_lane_make. */
hd_status hdi_copy_lanes_create(hdi_device *device);
void hdi_copy_lanes_release(hdi_device *device);

/* A lane for a copy of this thread. `lanes`: QUICK or BULK. */
hd_lane *hdi_copy_lane(hdi_device *device, hdi_way way, hdi_route_lanes lanes);

/* The lane for the parts of large transfers between the program's memory and the device. It is always the same one, without small copies.
 * Where it could not be made, it is a lane of large copies. */
hd_lane *hdi_program_lane(hdi_device *device, hdi_way way);

/* The lanes for large copies through pinned memory: of the pair's source, and of its destination. */
hd_lane *hdi_pair_lane_out(hd_runtime *rt, int src, int dst);
hd_lane *hdi_pair_lane_in(hd_runtime *rt, int src, int dst);

#endif
