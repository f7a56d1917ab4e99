/* cpu_warp.c - the warps of a block: their allocation, the arrival of a lane at a meeting, and the
 * end of a meeting.
 *
 * Threads: as cpu_warp.h. Locks: none.
 */
#include "simulator/cpu_warp.h"

#include <stdlib.h>
#include <string.h>

bool hdi_warps_make(hdi_warps *warps, uint32_t n_threads)
{
    uint32_t count = (n_threads + 31) / 32;
    if (count > warps->capacity) {
        hdi_warp *more = malloc(count * sizeof *more);
        if (more == NULL) {
            return false;
        }
        free(warps->of);
        warps->of = more;
        warps->capacity = count;
    }
    warps->count = count;
    for (uint32_t i = 0; i < warps->count; i++) {
        warps->of[i].alive = warps->of[i].arrived = warps->of[i].turn = 0;
    }
    return true;
}

void hdi_warps_destroy(hdi_warps *warps)
{
    free(warps->of);
}

uint32_t hdi_thread_number(const hd_kernel_thread *t)
{
    return t->thread.x + t->block_dim.x * (t->thread.y + t->block_dim.y * t->thread.z);
}

HDI_FIBER_CODE hd_warp_values *hdi_warp_arrive(hdi_warp *warp, uint32_t lane, uint32_t what, uint64_t value,
                                               hdi_fiber *fiber)
{
    hd_warp_values *values = &warp->values[warp->turn % 2];
    warp->what = what;
    warp->arrived |= (uint32_t)1 << lane;
    warp->waiting[lane] = fiber;
    values->of[lane] = value;
    return values;
}

HDI_FIBER_CODE uint32_t hdi_warp_end_meeting(hdi_warp *warp)
{
    uint32_t lanes = warp->arrived;
    warp->values[warp->turn % 2].present = lanes;
    warp->arrived = 0;
    warp->turn++;
    return lanes;
}
