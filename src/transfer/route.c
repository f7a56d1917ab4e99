/* route.c - how bytes travel: the plan, the copy lanes, and which buffers a device can use.
 *
 * Threads, locks, blocking, and guarantees: see route.h.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <heddle/peer.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/number.h"
#include "buffer/buffer.h"
#include "buffer/parked.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "peer/access.h"
#include "transfer/part.h"
#include "transfer/route.h"

enum { REACH_TEXT = HD_PEER_REASON_BYTES + 64 };
#define LOST_TEXT "the buffer's content was lost (hd_free it)"

/* ---- the plan ---- */

/* Plans the chunks and parts of a copy between devices that goes through pinned memory. */
static hdi_route route_plan_staged(const hdi_route_facts *f)
{
    hdi_route route = {.kind = HDI_ROUTE_STAGED, .device = f->src, .second = f->dst, .lanes = HDI_LANES_QUICK};
    if (f->bytes <= HDI_STAGED_SMALL) {
        route.piece = route.chunk = HDI_STAGED_SMALL;
    } else if (f->bytes <= HDI_STAGED_MEDIUM) {
        route.piece = route.chunk = HDI_STAGED_MEDIUM;
    } else {
        uint64_t part = (f->bytes - 1) / HDI_STAGED_PARTS / HDI_STAGED_STEP * HDI_STAGED_STEP + HDI_STAGED_STEP;
        route.lanes = HDI_LANES_PAIR;
        route.piece = part < HDI_STAGED_MEDIUM ? HDI_STAGED_MEDIUM : hdi_smaller(part, HDI_STAGED_LARGE);
        route.chunk = HDI_STAGED_LARGE;
    }
    return route;
}

static hdi_route route_plan_straight(hdi_route_kind kind, int device, uint64_t bytes, uint64_t quick, uint64_t piece)
{
    return (hdi_route){
        .kind = kind, .device = device, .lanes = bytes <= quick ? HDI_LANES_QUICK : HDI_LANES_BULK, .piece = piece};
}

hdi_route hdi_route_plan(const hdi_route_facts *f)
{
    if (f->src < 0 && f->dst < 0) {
        return route_plan_straight(HDI_ROUTE_HOST, 0, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->src < 0) {
        return route_plan_straight(HDI_ROUTE_TO_DEVICE, f->dst, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->dst < 0) {
        return route_plan_straight(HDI_ROUTE_TO_HOST, f->src, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->src == f->dst) {
        return route_plan_straight(HDI_ROUTE_ON_DEVICE, f->src, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    /* A read from a peer waits for an answer over the link. A write waits for no answer. So the
     * source's device makes the copy if it can. */
    if (f->src_to_dst == HDI_LINK_GOOD) {
        return route_plan_straight(HDI_ROUTE_PEER, f->src, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    if (f->dst_to_src == HDI_LINK_GOOD) {
        return route_plan_straight(HDI_ROUTE_PEER, f->dst, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    return route_plan_staged(f);
}

/* ---- copy lanes ---- */

#define QUICK_LANES 4
#define BULK_LANES 2

typedef struct choice {
    _Atomic(hd_lane *) lane; /* NULL: not made */
    _Atomic uintptr_t user;  /* the thread that chose it last */
} choice;

struct hdi_copy_lanes {
    hdi_mutex lock;
    /* the lanes of an array are made in order of their indices, when they are needed */
    choice quick[HDI_WAYS][QUICK_LANES];
    choice bulk[HDI_WAYS][BULK_LANES];
    choice program[HDI_WAYS];
    choice pair_out[HDI_DEVICES_MAX], pair_in[HDI_DEVICES_MAX]; /* indexed by the other device */
};

/* The address of this variable identifies the thread. After the thread ends, a new thread may get
 * the same address. */
static _Thread_local char myself;

static hd_status copy_lanes_make_lane(hdi_device *device, choice *c, hd_lane **out)
{
    hd_status status = hdi_lane_make(device, true, false, out);
    if (!status) {
        (*out)->is_copy = true;
        /* Pairs with the acquire loads: a thread that sees the lane also sees its content. */
        atomic_store_explicit(&c->lane, *out, memory_order_release);
    }
    return status;
}

/* Makes the lane of this slot, unless another thread already made it. NULL: the lane cannot be made
 * now. Does not change the thread's error message. */
static hd_lane *copy_lanes_make_once(hdi_device *device, choice *c)
{
    struct hdi_copy_lanes *lanes = device->copy_lanes;
    assert(lanes != NULL);
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&lanes->lock);
    hd_lane *lane = atomic_load_explicit(&c->lane, memory_order_acquire);
    if (!lane && copy_lanes_make_lane(device, c, &lane)) {
        lane = NULL;
    }
    hdi_mutex_unlock(&lanes->lock);
    hdi_attempt_end(&attempt);
    return lane;
}

static bool copy_lanes_is_busy(const hd_lane *lane)
{
    /* Relaxed: with a stale value, the thread may only choose a busier lane. */
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_relaxed);
    return done != atomic_load_explicit(&lane->submitted, memory_order_relaxed);
}

/* Chooses a lane. First choice: a busy lane whose last user is this thread. Then: an idle lane, a
 * new lane, any lane. */
static hd_lane *copy_lanes_choose(hdi_device *device, choice *choices, int n)
{
    uintptr_t me = (uintptr_t)&myself;
    choice *free_one = NULL;
    int made = 0;
    for (hd_lane *lane; made < n && (lane = atomic_load_explicit(&choices[made].lane, memory_order_acquire)); made++) {
        if (!copy_lanes_is_busy(lane)) {
            free_one = free_one ? free_one : &choices[made];
        } else if (atomic_load_explicit(&choices[made].user, memory_order_relaxed) == me) {
            return lane;
        }
    }
    choice *best = free_one;
    if (!best && made < n && copy_lanes_make_once(device, &choices[made])) {
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
    hd_lane *lane = lanes == HDI_LANES_QUICK ? NULL : copy_lanes_choose(device, all->bulk[way], BULK_LANES);
    lane = lane ? lane : copy_lanes_choose(device, all->quick[way], QUICK_LANES);
    /* If no lane for peers can be made, takes a lane for quick copies. Such a lane always exists,
     * since hd_open made the first one. */
    return lane ? lane : copy_lanes_choose(device, all->quick[HDI_WAY_ON], QUICK_LANES);
}

static hd_lane *copy_lanes_own(hdi_device *device, choice *c, hdi_way way)
{
    hd_lane *lane = atomic_load_explicit(&c->lane, memory_order_acquire);
    lane = lane ? lane : copy_lanes_make_once(device, c);
    return lane ? lane : hdi_copy_lane(device, way, HDI_LANES_BULK);
}

hd_lane *hdi_program_lane(hdi_device *device, hdi_way way)
{
    return copy_lanes_own(device, &device->copy_lanes->program[way], way);
}

hd_lane *hdi_pair_lane_out(hd_runtime *rt, int src, int dst)
{
    hdi_device *device = rt->devices[src];
    return copy_lanes_own(device, &device->copy_lanes->pair_out[dst], HDI_WAY_OUT);
}

hd_lane *hdi_pair_lane_in(hd_runtime *rt, int src, int dst)
{
    hdi_device *device = rt->devices[dst];
    return copy_lanes_own(device, &device->copy_lanes->pair_in[src], HDI_WAY_IN);
}

static hd_status copy_lanes_create(hdi_device *device)
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
        status = copy_lanes_make_lane(device, &lanes->quick[way][0], first[way]);
    }
    return status ? status : hdi_parking_open(device);
}

const hdi_lifetime hdi_copy_lanes_lifetime = {.create_in = copy_lanes_create};

void hdi_copy_lanes_release(hdi_device *device)
{
    hdi_parking_release(device);
    if (device->copy_lanes) {
        hdi_mutex_destroy(&device->copy_lanes->lock);
        free(device->copy_lanes);
        device->copy_lanes = NULL;
    }
}

/* ---- peer access of buffers ---- */

bool hdi_buffer_apart_is_reached(struct hd_buffer *b, int owner, int from)
{
    return hdi_buffer_is_imported(b) && hdi_peer_access(b->runtime, from, owner) && hdi_region_is_reached(b, from);
}

int hdi_buffers_access_between(struct hd_buffer *from, int src, struct hd_buffer *to, int dst)
{
    if (hdi_buffer_is_borrowed(from) || hdi_buffer_is_borrowed(to)) {
        return -1;
    }
    int by = hdi_peer_access_between(from->runtime, src, dst);
    if (by < 0) {
        return by;
    }
    struct hd_buffer *other = by == src ? to : from;
    return !hdi_buffer_is_imported(other) || hdi_region_is_reached(other, by) ? by : -1;
}

/* Fails if the device was lost since its count of losses was `losses`. HD_OK: it was not lost. */
static hd_status buffer_reach_find_loss(hdi_device *device, uint64_t losses, const char *what)
{
    uint64_t unused = 0;
    hdi_answer answer = {HDCU_SUCCESS, ""};
    if (!hdi_device_lost_since(device, losses)) {
        answer = device->port->calls->memory_free(device->port, &unused);
    }
    if (hdi_driver_code_is_fatal(answer.code)) {
        return hdi_fail_about(hdi_answer_failed(device, answer), "%s", what);
    }
    return hdi_device_lost_since(device, losses) ? hdi_loss_fail(device->runtime, device->index, what) : HD_OK;
}

/* Writes the reason why a device cannot access a buffer, and the driver's code if there is one.
 * Fails if a loss is the reason. HD_OK with an empty `why`: the device can access the buffer by
 * now. If the buffer is a region, the function first asks the driver for access once more. It also
 * tries again if no reason is known. */
static hd_status buffer_reach_find_reason(struct hd_buffer *b, int owner, int from, char why[REACH_TEXT], int *code)
{
    hd_runtime *rt = b->runtime;
    hdi_device *user = rt->devices[from], *holder = rt->devices[owner];
    uint64_t losses = atomic_load_explicit(&holder->losses, memory_order_acquire);
    uint64_t losses_of_user = atomic_load_explicit(&user->losses, memory_order_acquire);
    uint64_t own = hdi_buffer_losses(b); /* the device's count when the memory was taken */
    bool region = hdi_buffer_is_imported(b) && hdi_peer_access(rt, from, owner);
    hdi_answer answer = region ? hdi_region_reach_now(b, from) : (hdi_answer){HDCU_SUCCESS, ""};
    why[0] = 0;
    *code = region ? answer.code : hdi_peer_access_explain_refusal(rt, from, owner, why, REACH_TEXT);
    if (region ? hdi_answered(answer) : !why[0] && hdi_buffer_is_reached(b, owner, from)) {
        return HD_OK;
    }
    hd_status status = buffer_reach_find_loss(user, losses_of_user, "the lane's device does no work");
    status = status ? status : buffer_reach_find_loss(holder, losses, LOST_TEXT);
    if (!status && own != losses && b->owner == owner) {
        return hdi_loss_fail(rt, owner, LOST_TEXT);
    }
    if (region) {
        snprintf(why, REACH_TEXT, "the driver does not let it use that memory (%s: %s)",
                 answer.call[0] ? answer.call : "its context", hdi_driver_code_name(answer.code));
    } else if (!why[0]) {
        snprintf(why, REACH_TEXT, "the memory could not be mapped, which the next use tries again");
    }
    return status;
}

hd_status hdi_buffer_reach_again(struct hd_buffer *b, int owner, int from)
{
    hd_runtime *rt = b->runtime;
    HDI_INSIDE_STILL(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (hdi_device_lost(rt->devices[from])) {
        return hdi_loss_fail(rt, from, "the lane's device does no work");
    }
    if (hdi_buffer_is_borrowed(b)) {
        return hdi_fail_driver(HD_ERROR_UNREACHABLE, -1, "", from,
                               "device %d cannot reach a variable of a module on device %d; run the kernel there, or "
                               "hd_copy the variable to device %d first",
                               from, owner, from);
    }
    char why[REACH_TEXT];
    int code;
    hd_status status = buffer_reach_find_reason(b, owner, from, why, &code);
    if (status || !why[0]) {
        return status;
    }
    /* Another attempt may succeed after the program freed memory. */
    status = code == HDCU_ERROR_OUT_OF_MEMORY ? HD_ERROR_MEMORY : HD_ERROR_UNREACHABLE;
    return hdi_fail_driver(status, -1, "", from,
                           "device %d cannot reach a buffer of device %d: %s; run the kernel on device %d, or hd_copy "
                           "the buffer to device %d first",
                           from, owner, why, owner, from);
}
