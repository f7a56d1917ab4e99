/* cpu_warp.h - the warps of the block that a worker runs: their threads, and the values that the
 * threads bring to a meeting.
 *
 * These functions only count arrivals; cpu_core.c stops the threads and continues them.
 * Threads: warps are used by one thread at a time. Locks: none.
 * Always: a lane that arrived is alive. Between meetings no lane is marked as arrived.
 */
#ifndef HDI_SIMULATOR_CPU_WARP_H
#define HDI_SIMULATOR_CPU_WARP_H

#include "simulator/cpu_fiber.h"

typedef struct hdi_warp {
    uint32_t alive;   /* a bit for each lane whose thread still runs */
    uint32_t arrived; /* a bit for each lane that is at the meeting */
    uint32_t what;    /* HD_WARP_* of the meeting */
    uint32_t turn;
    hdi_fiber *waiting[32]; /* the fibers of the lanes that arrived */
    /* Meetings use the two elements in turn. Some lanes still read the results of a meeting while
     * other lanes already come to the next one. No lane leaves the next meeting before all lanes
     * are there. */
    hd_warp_values values[2];
} hdi_warp;

typedef struct hdi_warps {
    hdi_warp *of;
    uint32_t count, capacity;
} hdi_warps;

/* Makes the warps of a block, without threads. False: out of memory. */
bool hdi_warps_make(hdi_warps *warps, uint32_t n_threads);
void hdi_warps_destroy(hdi_warps *warps);

/* Returns the number of a thread in its block. */
uint32_t hdi_thread_number(const hd_kernel_thread *thread);

static inline void hdi_warps_add(hdi_warps *warps, uint32_t number)
{
    warps->of[number / 32].alive |= (uint32_t)1 << number % 32;
}

/* Notes that the lane came to the meeting. Returns the place of the results. */
hd_warp_values *hdi_warp_arrive(hdi_warp *warp, uint32_t lane, uint32_t what, uint64_t value, hdi_fiber *fiber);

/* True if all living lanes are there. */
static inline bool hdi_warp_is_complete(const hdi_warp *warp)
{
    return warp->arrived != 0 && warp->arrived == warp->alive;
}

/* Ends a meeting that is complete. Returns the lanes that were there. */
uint32_t hdi_warp_end_meeting(hdi_warp *warp);

#endif
