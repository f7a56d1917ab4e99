/* copy_lanes.c - choice and making of copy lanes. Threads, locks, blocking and guarantees: see copy_lanes.h. */
#include "transfer/copy_lanes.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"

#define QUICK_LANES 4
#define BULK_LANES 2

typedef struct choice {
    _Atomic(hd_lane *) lane; /* NULL: not made */
    _Atomic uintptr_t user;  /* the thread that chose it last */
} choice;

struct hdi_copy_lanes {
    hdi_mutex lock;
    choice quick[HDI_WAYS][QUICK_LANES]; /* made one after the other, as those of `bulk` */
    choice bulk[HDI_WAYS][BULK_LANES];
    choice program[HDI_WAYS];
    choice pair_out[HDI_DEVICES_MAX], pair_in[HDI_DEVICES_MAX]; /* indexed by the other device */
};

static _Thread_local char myself; /* its address is the thread's number, which a later thread may have again */

static hd_status make_lane(hdi_device *device, choice *c, hd_lane **out)
{
    hd_status status = hdi_lane_make(device, true, false, out);
    if (!status) {
        (*out)->is_copy = true;
        /* pairs with the acquire loads: the lane is made before it is seen */
        atomic_store_explicit(&c->lane, *out, memory_order_release);
    }
    return status;
}

/* Makes the choice's lane unless another thread has made it. NULL: it cannot be made now. The thread's message stays as it was. */
static hd_lane *make(hdi_device *device, choice *c)
{
    struct hdi_copy_lanes *lanes = device->copy_lanes;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&lanes->lock);
    hd_lane *lane = atomic_load_explicit(&c->lane, memory_order_acquire);
    if (!lane && make_lane(device, c, &lane)) {
        lane = NULL;
    }
    hdi_mutex_unlock(&lanes->lock);
    hdi_attempt_end(&attempt);
    return lane;
}

static bool is_busy(const hd_lane *lane)
{
    /* `done` is loaded first: it never passes `submitted`. Relaxed: a stale value only makes the choice less good. */
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_relaxed);
    return done != atomic_load_explicit(&lane->submitted, memory_order_relaxed);
}

/* Chooses the lane in which this thread has work. Else it is the first lane without work, else a lane made for this thread, else any lane. */
static hd_lane *choose(hdi_device *device, choice *choices, int n)
{
    uintptr_t me = (uintptr_t)&myself;
    choice *free_one = NULL;
    int made = 0;
    for (hd_lane *lane; made < n && (lane = atomic_load_explicit(&choices[made].lane, memory_order_acquire)); made++) {
        if (!is_busy(lane)) {
            free_one = free_one ? free_one : &choices[made];
        } else if (atomic_load_explicit(&choices[made].user, memory_order_relaxed) == me) {
            return lane;
        }
    }
    choice *best = free_one;
    if (!best && made < n && make(device, &choices[made])) {
        best = &choices[made];
    }
    if (!best && made) {
        best = &choices[(me * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (unsigned)made];
    }
    if (!best) {
        return NULL;
    }
    atomic_store_explicit(&best->user, me, memory_order_relaxed);
    return atomic_load_explicit(&best->lane, memory_order_acquire);
}

hd_lane *hdi_copy_lane(hdi_device *device, hdi_way way, hdi_route_lanes lanes)
{
    struct hdi_copy_lanes *all = device->copy_lanes;
    hd_lane *lane = lanes == HDI_LANES_QUICK ? NULL : choose(device, all->bulk[way], BULK_LANES);
    lane = lane ? lane : choose(device, all->quick[way], QUICK_LANES);
    return lane ? lane : choose(device, all->quick[HDI_WAY_ON], QUICK_LANES); /* none could be made for peers */
}

static hd_lane *own_lane(hdi_device *device, choice *c, hdi_way way)
{
    hd_lane *lane = atomic_load_explicit(&c->lane, memory_order_acquire);
    lane = lane ? lane : make(device, c);
    return lane ? lane : hdi_copy_lane(device, way, HDI_LANES_BULK);
}

hd_lane *hdi_program_lane(hdi_device *device, hdi_way way)
{
    return own_lane(device, &device->copy_lanes->program[way], way);
}

hd_lane *hdi_pair_lane_out(hd_runtime *rt, int src, int dst)
{
    hdi_device *device = rt->devices[src];
    return own_lane(device, &device->copy_lanes->pair_out[dst], HDI_WAY_OUT);
}

hd_lane *hdi_pair_lane_in(hd_runtime *rt, int src, int dst)
{
    hdi_device *device = rt->devices[dst];
    return own_lane(device, &device->copy_lanes->pair_in[src], HDI_WAY_IN);
}

hd_status hdi_copy_lanes_create(hdi_device *device)
{
    struct hdi_copy_lanes *lanes = calloc(1, sizeof *lanes);
    if (!lanes) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&lanes->lock, HDI_RANK_COPY_LANES);
    device->copy_lanes = lanes;
    hd_lane **first[HDI_WAY_PEER] = {&device->lane_in, &device->lane_out, &device->lane_on};
    hd_status status = HD_OK;
    for (int way = 0; way < HDI_WAY_PEER && !status; way++) {
        status = make_lane(device, &lanes->quick[way][0], first[way]);
    }
    return status;
}

void hdi_copy_lanes_release(hdi_device *device)
{
    if (device->copy_lanes) {
        hdi_mutex_destroy(&device->copy_lanes->lock);
        free(device->copy_lanes);
        device->copy_lanes = NULL;
    }
}
