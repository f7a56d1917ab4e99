/* rest.c - times at which a driver call that waits for all kernels does not wait long.
 *
 * When NVIDIA's driver unpins memory, it waits until no kernel runs. Meanwhile it holds up all
 * other driver calls of the process. If a running kernel depends on one of these calls, then the
 * kernel, the call and the unpinning never end. So the library prefers to unpin memory at a time
 * when no device has work. A busy device may never have such a time. Therefore a second condition
 * is enough: for a second, each check of the lanes found work, and each lane with work is moving.
 * Such a check is called a look. A lane is moving if it finished some work in the last eighth of
 * the time since the first look. Then no kernel can have run since the first look. An open claim
 * stops its lane, and a program may keep a claim for hours. So after ten seconds, a lane that
 * stands at an open claim counts as moving. The driver waits for kernels of the whole process, so a
 * look visits all open runtimes.
 *
 * Threads: only one thread at a time may use an hdi_rest. Engines finish work meanwhile.
 * Locks: that of the registry, while a look goes from one runtime to the next.
 * Always: a look waits for no device and no kernel.
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
    /* clock time of the last look that found the lane without work, or its `done` changed */
    int64_t moved;
};

static bool rest_of_runtime_is_reached(const hd_runtime *rt)
{
    bool reached = true;
    for (int d = 0; d < rt->n_devices && reached; d++) {
        reached = hdi_device_is_drained(rt->devices[d]);
    }
    return reached;
}

/* True if driver calls for `rt` wait for kernels of `other`: both use the same driver in this
 * process. */
static bool rest_is_shared(const hd_runtime *rt, const hd_runtime *other)
{
    return !other->is_process && other->driver == rt->driver;
}

static bool rest_is_reached_beside(hd_runtime *other, uint32_t place, void *context)
{
    (void)place;
    return !rest_is_shared(context, other) || rest_of_runtime_is_reached(other);
}

bool hdi_rest_is_reached_beside(const hd_runtime *rt)
{
    return rt->is_process || hdi_runtimes_all_beside(rt, rest_is_reached_beside, (void *)(uintptr_t)rt);
}

bool hdi_rest_is_reached(const hd_runtime *rt)
{
    return rest_of_runtime_is_reached(rt) && hdi_rest_is_reached_beside(rt);
}

/* True if the lane has no work, or finished some work after the time `least`. Without
 * `claims_count`, a lane with an open claim also returns true. */
static bool rest_lane_moves(const hdi_device *device, uint32_t number, struct hdi_rest_lane *seen, int64_t now,
                            int64_t least, bool claims_count)
{
    uint64_t done = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    if (done >= hdi_lane_submitted(device, number) || done != seen->done) {
        *seen = (struct hdi_rest_lane){done, now};
    }
    return seen->moved >= least || (!claims_count && hdi_claim_has_open(hdi_lane_at(device, number)));
}

/* Looks at each lane that was made. True: all lanes are moving, and PATIENCE_NS passed since the
 * first look. */
static bool rest_lanes_move(hdi_rest_look *rest, const hd_runtime *rt, int64_t now)
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

/* Looks at one runtime. True: the runtime has no work, or all its work is moving. While looks find
 * work and follow each other within PATIENCE_NS, `rest->since` stays the time of the first one. */
static bool rest_of_runtime_is_near(hdi_rest_look *rest, const hd_runtime *rt)
{
    if (rest_of_runtime_is_reached(rt)) {
        rest->since = 0;
        return true;
    }
    if (!rest->lanes) {
        rest->lanes = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *rest->lanes);
    }
    if (!rest->lanes) {
        return false;
    }
    int64_t now = hdi_clock_ns();
    /* if two looks are far apart, the times between them show nothing: a lane may have stood still
     * in between */
    bool is_first = rest->since == 0 || now - rest->looked > PATIENCE_NS;
    rest->since = is_first ? now : rest->since;
    rest->looked = now;
    return rest_lanes_move(rest, rt, now);
}

typedef struct looking {
    hdi_rest *rest;
    const hd_runtime *runtime;
    bool near;
} looking;

/* Looks at another runtime. Returns true even if the other runtime has work that is not moving, so
 * that the walk continues. So the waiting times of all runtimes pass at the same time, not one
 * after the other. */
static bool rest_look_beside(hd_runtime *other, uint32_t place, void *context)
{
    looking *l = context;
    hdi_rest *rest = l->rest;
    if (!rest_is_shared(l->runtime, other)) {
        return true;
    }
    if (!rest->beside) {
        rest->beside = calloc(HDI_RUNTIMES_MAX, sizeof *rest->beside);
    }
    if (!rest->beside) {
        l->near = false;
        return false;
    }
    hdi_rest_look *look = &rest->beside[place];
    if (look->id != other->id) {
        free(look->lanes);
        *look = (hdi_rest_look){.id = other->id};
    }
    l->near &= rest_of_runtime_is_near(look, other);
    return true;
}

bool hdi_rest_is_near_beside(hdi_rest *rest, const hd_runtime *rt)
{
    looking l = {rest, rt, true};
    if (!rt->is_process) {
        hdi_runtimes_all_beside(rt, rest_look_beside, &l);
    }
    return l.near;
}

bool hdi_rest_is_near(hdi_rest *rest, const hd_runtime *rt)
{
    bool near = rest_of_runtime_is_near(&rest->own, rt);
    near = hdi_rest_is_near_beside(rest, rt) && near;
    if (near) {
        rest->own.since = 0;
    }
    for (uint32_t i = 0; near && rest->beside && i < HDI_RUNTIMES_MAX; i++) {
        rest->beside[i].since = 0;
    }
    return near;
}

void hdi_rest_end(hdi_rest *rest)
{
    for (uint32_t i = 0; rest->beside && i < HDI_RUNTIMES_MAX; i++) {
        free(rest->beside[i].lanes);
    }
    free(rest->beside);
    free(rest->own.lanes);
    *rest = (hdi_rest){.beside = NULL};
}
