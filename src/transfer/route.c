/* route.c - how bytes travel: the plan, the copy lanes, and which devices may use each other's
 * memory.
 *
 * When two devices first meet, this file looks for a result (src/peer), which may take a test of
 * about a second, and then maps memory. A launch waits for the answer. A copy does not wait if a
 * peer_tester runs: it goes through pinned memory until that thread has an answer.
 *
 * Threads: any. The submitting thread settles a pair for a kernel, the peer_tester's thread for
 * copies.
 * Locks: as route.h states; `linking` while memory is mapped, none during a test. A restart holds
 * it while it drops the answers of a device. An established answer takes one load, and no lock.
 * Blocking: see route.h.
 * Always: a positive answer changes only if one of the devices was lost and restarted, or if a
 * requested test gives another verdict. Memory mapped for a peer stays mapped, since work in
 * flight may use it.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/number.h"
#include "base/thread.h"
#include "buffer/buffer.h"
#include "buffer/parked.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "peer/part.h"
#include "peer/peers.h"
#include "transfer/part.h"
#include "transfer/route.h"

/* ---- the plan ---- */

/* Chunks and parts of a copy between devices that goes through pinned memory. */
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
    /* Writes to a peer are posted and reads are not, so the source copies if it can. */
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
    choice quick[HDI_WAYS][QUICK_LANES]; /* made one after the other, like those of `bulk` */
    choice bulk[HDI_WAYS][BULK_LANES];
    choice program[HDI_WAYS];
    choice pair_out[HDI_DEVICES_MAX], pair_in[HDI_DEVICES_MAX]; /* indexed by the other device */
};

/* Its address is the thread's number, which a later thread may get again. */
static _Thread_local char myself;

static hd_status copy_lanes_make_lane(hdi_device *device, choice *c, hd_lane **out)
{
    hd_status status = hdi_lane_make(device, true, false, out);
    if (!status) {
        (*out)->is_copy = true;
        /* Pairs with the acquire loads: the lane is made before it is seen. */
        atomic_store_explicit(&c->lane, *out, memory_order_release);
    }
    return status;
}

/* Makes the lane of this slot, unless another thread was first. NULL: it cannot be made now. Does
 * not change the thread's error message. */
static hd_lane *copy_lanes_make_once(hdi_device *device, choice *c)
{
    struct hdi_copy_lanes *lanes = device->copy_lanes;
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
    /* Relaxed: a stale value only makes the choice less good. */
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_relaxed);
    return done != atomic_load_explicit(&lane->submitted, memory_order_relaxed);
}

/* Chooses a lane, in this order: a busy one that this thread chose last, an idle one, a new one,
 * any. */
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
    /* If no lane for peers can be made, the device's first lane exists at least. */
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

/* ---- the peer_tester ---- */

/* Finds out about a pair of devices, and maps memory for it. */
static void peer_access_settle(hd_runtime *rt, int from, int owner);

struct hdi_peer_tester {
    hdi_mutex lock;
    pthread_cond_t wish;
    bool started, stop;
    pthread_t thread;
    bool wanted[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* by device and owner */
};

static hd_status peer_tester_create(hd_runtime *rt)
{
    hdi_transfer_of(rt)->peer_tester = calloc(1, sizeof *hdi_transfer_of(rt)->peer_tester);
    if (!hdi_transfer_of(rt)->peer_tester) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&hdi_transfer_of(rt)->peer_tester->lock, HDI_RANK_PEER_TESTER);
    pthread_cond_init(&hdi_transfer_of(rt)->peer_tester->wish, NULL);
    return HD_OK;
}

static void peer_tester_stop(hd_runtime *rt)
{
    struct hdi_peer_tester *s = hdi_transfer_of(rt)->peer_tester;
    if (!s) {
        return;
    }
    hdi_peers_end(rt);
    hdi_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wish);
    bool join = s->started;
    s->started = false;
    hdi_mutex_unlock(&s->lock);
    if (join) {
        pthread_join(s->thread, NULL);
    }
}

static void peer_tester_release(hd_runtime *rt)
{
    if (hdi_transfer_of(rt)->peer_tester) {
        pthread_cond_destroy(&hdi_transfer_of(rt)->peer_tester->wish);
        hdi_mutex_destroy(&hdi_transfer_of(rt)->peer_tester->lock);
        free(hdi_transfer_of(rt)->peer_tester);
        hdi_transfer_of(rt)->peer_tester = NULL;
    }
}

const hdi_lifetime hdi_peer_tester_lifetime = {
    .create = peer_tester_create, .stop = peer_tester_stop, .release = peer_tester_release};

/* Takes a pair out of the list. False: the list is empty. The caller holds the lock. */
static bool peer_tester_take_pair(struct hdi_peer_tester *s, int n, int *from, int *owner)
{
    for (int i = 0; i < n * n; i++) {
        if (s->wanted[i / n][i % n]) {
            *from = i / n;
            *owner = i % n;
            s->wanted[*from][*owner] = false;
            return true;
        }
    }
    return false;
}

static void *peer_tester_test_pairs(void *context)
{
    hd_runtime *rt = context;
    struct hdi_peer_tester *s = hdi_transfer_of(rt)->peer_tester;
    hdi_mutex_lock(&s->lock);
    while (!s->stop) {
        int from, owner;
        if (peer_tester_take_pair(s, rt->n_devices, &from, &owner)) {
            hdi_mutex_unlock(&s->lock);
            peer_access_settle(rt, from, owner);
            hdi_mutex_lock(&s->lock);
        } else {
            hdi_mutex_wait(&s->lock, &s->wish);
        }
    }
    hdi_mutex_unlock(&s->lock);
    return NULL;
}

/* Asks the peer_tester to test the pair. False: no such thread exists, as with placement inline. */
static bool peer_tester_ask(hd_runtime *rt, int from, int owner)
{
    struct hdi_peer_tester *s = hdi_transfer_of(rt)->peer_tester;
    if (rt->is_inline) {
        return false; /* no thread may be started */
    }
    hdi_mutex_lock(&s->lock);
    if (!s->started && !s->stop) {
        s->started = hdi_thread_start(&s->thread, peer_tester_test_pairs, rt) == 0;
    }
    bool asked = s->started;
    if (asked) {
        s->wanted[from][owner] = true;
        pthread_cond_signal(&s->wish);
    }
    hdi_mutex_unlock(&s->lock);
    return asked;
}

/* ---- peer access ---- */

/* True if the driver's code means that peer access will never be possible. After all other codes
 * the next use tries again. */
static bool peer_access_is_final(int code)
{
    return code == HDCU_ERROR_PEER_ACCESS_UNSUPPORTED || code == HDCU_ERROR_INVALID_DEVICE ||
           code == HDCU_ERROR_NOT_SUPPORTED || code == HDCU_ERROR_TOO_MANY_PEERS || code == HDCU_ERROR_MAP_FAILED;
}

static bool peer_access_any_lost(const hd_runtime *rt, int a, int b)
{
    return hdi_device_lost(rt->devices[a]) || hdi_device_lost(rt->devices[b]);
}

/* Maps the owner's memory for the peer. Returns `yes` on success. The caller holds `linking`. */
static uint8_t peer_access_grant(hd_runtime *rt, int from, int owner, uint8_t yes)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_arena_grant(rt->devices[owner]->arena, from);
    hdi_attempt_end(&attempt);
    if (!status) {
        return yes;
    }
    const hd_error failure = attempt.error;
    bool for_good = peer_access_is_final(failure.driver_code);
    hdi_peers_refuse(rt, from, owner, failure.driver_code, failure.operation, for_good);
    return for_good ? HDI_PEERS_NO : HDI_PEERS_UNKNOWN;
}

/* Decides the answer for the pair, and maps memory if it is positive. The caller holds
 * `linking`. */
static uint8_t peer_access_decide(hd_runtime *rt, int from, int owner, bool for_copies)
{
    if (peer_access_any_lost(rt, from, owner)) {
        return HDI_PEERS_UNKNOWN;
    }
    hd_peer_info info = {.verdict = HD_PEER_USABLE};
    /* Reads the result under the lock, since a test may have been requested again meanwhile. */
    if (rt->options.peers == HDI_PEERS_VERIFY && !hdi_peers_known(rt, from, owner, &info)) {
        return HDI_PEERS_UNKNOWN; /* no result: the test may be under way on this thread */
    }
    switch (info.verdict) {
    case HD_PEER_USABLE:
        return peer_access_grant(rt, from, owner, HDI_PEERS_YES);
    case HD_PEER_SLOW:
        return for_copies ? HDI_PEERS_SLOW_ASK : peer_access_grant(rt, from, owner, HDI_PEERS_SLOW);
    default:
        return HDI_PEERS_NO;
    }
}

static bool peer_access_is_open(uint8_t answer, bool for_copies)
{
    return answer == HDI_PEERS_UNKNOWN || (!for_copies && (answer == HDI_PEERS_SLOW_ASK || answer == HDI_PEERS_SOUGHT));
}

/* Leaves the pair to the peer_tester. False: a result exists already, or there is no
 * peer_tester. */
static bool peer_tester_leave_pair(hd_runtime *rt, int from, int owner)
{
    hd_peer_info info;
    uint8_t before = HDI_PEERS_UNKNOWN;
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    if (hdi_peers_known(rt, from, owner, &info)) {
        return false;
    }
    /* Relaxed: it publishes no memory. It is set before the request, so that the peer_tester finds
     * it. */
    bool ours = atomic_compare_exchange_strong_explicit(known, &before, HDI_PEERS_SOUGHT, memory_order_relaxed,
                                                        memory_order_relaxed);
    if (!ours || peer_tester_ask(rt, from, owner)) {
        return true;
    }
    before = HDI_PEERS_SOUGHT;
    atomic_compare_exchange_strong_explicit(known, &before, HDI_PEERS_UNKNOWN, memory_order_relaxed,
                                            memory_order_relaxed);
    return false;
}

/* Finds the answer at the first use of a pair. */
static uint8_t peer_access_find_out(hd_runtime *rt, int from, int owner, bool for_copies)
{
    HDI_INSIDE_STILL(rt); /* This call may wait for a test; hd_close then waits for this call. */
    if (!hdi_runtime_is_open(rt)) {
        return HDI_PEERS_NO;
    }
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    bool verify = rt->options.peers == HDI_PEERS_VERIFY, off = rt->options.peers == HDI_PEERS_OFF;
    if (off || !hdi_peers_offered(rt, from, owner)) {
        atomic_store_explicit(known, HDI_PEERS_NO, memory_order_release);
        return HDI_PEERS_NO;
    }
    if (peer_access_any_lost(rt, from, owner)) {
        return HDI_PEERS_UNKNOWN;
    }
    if (verify && for_copies && peer_tester_leave_pair(rt, from, owner)) {
        return HDI_PEERS_SOUGHT;
    }
    if (verify) {
        hd_peer_info info;
        hdi_peers_ask(rt, from, owner, false, &info);
    }
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    uint8_t answer = atomic_load_explicit(known, memory_order_acquire);
    if (peer_access_is_open(answer, for_copies)) {
        answer = peer_access_decide(rt, from, owner, for_copies);
        atomic_store_explicit(known, answer, memory_order_release);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
    return answer;
}

static void peer_access_settle(hd_runtime *rt, int from, int owner)
{
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    if (!peer_access_any_lost(rt, from, owner)) {
        hd_peer_info info;
        hdi_peers_ask(rt, from, owner, true, &info);
    }
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    /* If it is no longer SOUGHT, a launch has already settled it, or a device was lost. */
    if (atomic_load_explicit(known, memory_order_acquire) == HDI_PEERS_SOUGHT) {
        atomic_store_explicit(known, peer_access_decide(rt, from, owner, true), memory_order_release);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
}

bool hdi_peer_access(hd_runtime *rt, int from, int owner)
{
    if (owner < 0 || owner == from) {
        return true;
    }
    /* Pairs with the release store of the answer: the mapping is in place before the answer is
     * seen. */
    uint8_t answer = atomic_load_explicit(&rt->devices[from]->peer_access[owner], memory_order_acquire);
    if (__builtin_expect(peer_access_is_open(answer, false), 0)) {
        answer = peer_access_find_out(rt, from, owner, false);
    }
    return answer == HDI_PEERS_YES || answer == HDI_PEERS_SLOW;
}

static uint8_t peer_access_for_copies(hd_runtime *rt, int from, int owner)
{
    /* Acquire: as in hdi_peer_access. */
    uint8_t answer = atomic_load_explicit(&rt->devices[from]->peer_access[owner], memory_order_acquire);
    if (__builtin_expect(peer_access_is_open(answer, true), 0)) {
        answer = peer_access_find_out(rt, from, owner, true);
    }
    return answer;
}

int hdi_peer_access_between(hd_runtime *rt, int src, int dst)
{
    /* Writes to peers are posted and reads are not, so the source copies if it can. The other way
     * is requested only if it is needed: it takes one of the few places for peers. */
    uint8_t answer = peer_access_for_copies(rt, src, dst);
    if (answer == HDI_PEERS_YES || answer == HDI_PEERS_SOUGHT) {
        return answer == HDI_PEERS_YES ? src : -1;
    }
    return peer_access_for_copies(rt, dst, src) == HDI_PEERS_YES ? dst : -1;
}

/* Writes the reason of a negative answer, in words that follow a colon. */
static void peer_access_explain_refusal(hd_runtime *rt, int from, int owner, char *out, size_t bytes)
{
    hd_peer_info info;
    hdi_peers_known(rt, from, owner, &info);
    if (rt->options.peers == HDI_PEERS_OFF) {
        snprintf(out, bytes, "the option peers=off rules peer access out");
    } else if (info.verdict == HD_PEER_CORRUPT) {
        snprintf(out, bytes, "a test found peer access corrupt: %s", info.reason);
    } else if (info.verdict == HD_PEER_INCONCLUSIVE) {
        snprintf(out, bytes, "peer access could not be tested: %s", info.reason);
    } else if (info.verdict == HD_PEER_REFUSED) {
        snprintf(out, bytes, "%s", info.reason);
    } else if (info.verdict == HD_PEER_UNKNOWN && rt->options.peers == HDI_PEERS_VERIFY) {
        snprintf(out, bytes, "peer access between them is being tested, and this call comes from the test's progress");
    } else {
        char why[HD_PEER_REASON_BYTES];
        hdi_peers_obstacle(rt, from, owner, why);
        snprintf(out, bytes, "%s", why[0] ? why : "the memory could not be mapped, which the next use tries again");
    }
}

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

hd_status hdi_buffer_reach_failed(struct hd_buffer *b, int owner, int from)
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
    char why[HD_PEER_REASON_BYTES + 64];
    bool asks = hdi_buffer_is_imported(b) && hdi_peer_access(rt, from, owner);
    hdi_answer answer = asks ? hdi_region_reach_now(b, from) : (hdi_answer){HDCU_SUCCESS, ""};
    if (!hdi_answered(answer)) {
        snprintf(why, sizeof why, "the driver does not let it use that memory (%s: %s)",
                 answer.call[0] ? answer.call : "its context", hdi_driver_code_name(answer.code));
    } else {
        peer_access_explain_refusal(rt, from, owner, why, sizeof why);
    }
    return hdi_fail_driver(HD_ERROR_UNREACHABLE, -1, "", from,
                           "device %d cannot reach a buffer of device %d: %s; run the kernel on device %d, or hd_copy "
                           "the buffer to device %d first",
                           from, owner, why, owner, from);
}

void hdi_peer_access_forget(hd_runtime *rt, int device)
{
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    hdi_peers_forget(rt, device);
    hdi_regions_forget_peer(rt, device);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_arena_revoke(rt->devices[i]->arena, device);
        atomic_store_explicit(&rt->devices[i]->peer_access[device], HDI_PEERS_UNKNOWN, memory_order_release);
        atomic_store_explicit(&rt->devices[device]->peer_access[i], HDI_PEERS_UNKNOWN, memory_order_release);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
}
