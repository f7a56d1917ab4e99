/* rest.c - times at which a driver call that waits for all kernels does not wait long.
 *
 * To unpin memory, NVIDIA's driver waits until no kernel runs, and holds up the other calls of the
 * process. If a kernel waits for such a call, none of them ends. So the library unpins memory when
 * no device has work. Busy devices may always have some. So after a second of looks that found
 * work, it suffices that each lane with work is moving. A lane is moving if it finished something
 * in the last eighth of the time since the first look. Then no kernel ran all the time. After ten
 * seconds, an open claim no longer counts, since a program may keep it for hours.
 *
 * Threads: one at a time uses a record. Engines finish work meanwhile.
 * Locks: none.
 * Always: a look waits for nothing.
 */
#include "engine/rest.h"
#include <stdlib.h>
#include "base/wait.h"
#include "engine/claims.h"

#define PATIENCE_NS INT64_C(1000000000)
#define PATIENCE_FOR_CLAIMS_NS INT64_C(10000000000)
#define MOVING_PART 8

struct hdi_rest_lane {
    uint64_t done;
    int64_t moved; /* clock time of the look that found `done` */
};

bool hdi_rest_is_reached(const hd_runtime *rt)
{
    bool reached = true;
    for (int d = 0; d < rt->n_devices && reached; d++) {
        reached = hdi_device_is_drained(rt->devices[d]);
    }
    return reached;
}

/* True if the lane has no work, finished some after `least`, or stands at an open claim that does
 * not count. */
static bool rest_lane_moves(const hdi_device *device, uint32_t number, struct hdi_rest_lane *seen, int64_t now,
                            int64_t least, bool claims_count)
{
    uint64_t done = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    if (done >= hdi_lane_submitted(device, number) || done != seen->done) {
        *seen = (struct hdi_rest_lane){done, now};
    }
    return seen->moved >= least || (!claims_count && hdi_claim_has_open(hdi_lane_at(device, number)));
}

/* Looks at each lane that was made. */
static bool rest_lanes_move(hdi_rest *rest, const hd_runtime *rt, int64_t now)
{
    int64_t waited = now - rest->since, least = now - waited / MOVING_PART;
    bool all = true;
    for (int d = 0; d < rt->n_devices; d++) {
        const hdi_device *device = rt->devices[d];
        uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < made; i++) {
            struct hdi_rest_lane *seen = &rest->lanes[(size_t)d * HDI_LANES_MAX + i];
            all &= rest_lane_moves(device, i, seen, now, least, waited < PATIENCE_FOR_CLAIMS_NS);
        }
    }
    return all && waited >= PATIENCE_NS;
}

bool hdi_rest_is_near(hdi_rest *rest, const hd_runtime *rt)
{
    bool near = hdi_rest_is_reached(rt);
    if (!near && !rest->lanes) {
        rest->lanes = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *rest->lanes);
    }
    if (!near && rest->lanes) {
        int64_t now = hdi_clock_ns();
        /* between looks that are far apart, a lane may have finished something and then stood */
        bool is_first = rest->since == 0 || now - rest->looked > PATIENCE_NS;
        rest->since = is_first ? now : rest->since;
        rest->looked = now;
        near = rest_lanes_move(rest, rt, now);
    }
    if (near) {
        rest->since = 0;
    }
    return near;
}

void hdi_rest_end(hdi_rest *rest)
{
    free(rest->lanes);
    *rest = (hdi_rest){0};
}
