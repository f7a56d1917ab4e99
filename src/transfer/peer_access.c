/* peer_access.c - which devices use which devices' memory.
 *
 * The first use of a pair looks for a result (src/peer), which may take a test of about a second, and then maps memory.
 * A kernel that needs the answer waits for it. A copy does not wait: it goes through pinned memory until the peer_tester has an answer.
 *
 * Threads: any. The submitting thread settles a pair for a kernel, the peer_tester's thread for copies.
 * Locks: `linking` while memory is mapped, none during a test. A restart takes it before the peers of a device are dropped. An established answer
 * takes one load, and no lock.
 * Blocking: a kernel's first use of a pair, for a test.
 * Always: a positive answer changes only where one of the devices was lost and restarted, or where a requested test finds the pair corrupt.
 * What is mapped for a peer stays mapped, since work in flight may use it.
 */
#include <stdio.h>
#include "base/error.h"
#include "buffer/buffer.h"
#include "transfer/peer_tester.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "peer/peers.h"

/* Whether the driver's code means that peer access will never be possible. After all other codes the next use tries again. */
static bool is_final(int code)
{
    return code == HDCU_ERROR_PEER_ACCESS_UNSUPPORTED || code == HDCU_ERROR_INVALID_DEVICE ||
           code == HDCU_ERROR_NOT_SUPPORTED || code == HDCU_ERROR_TOO_MANY_PEERS || code == HDCU_ERROR_MAP_FAILED;
}

static bool any_lost(const hd_runtime *rt, int a, int b)
{
    return hdi_device_lost(rt->devices[a]) || hdi_device_lost(rt->devices[b]);
}

/* Maps the owner's memory for the peer. Returns `yes` if that went well. `linking` is held. */
static uint8_t grant(hd_runtime *rt, int from, int owner, uint8_t yes)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_arena_grant(rt->devices[owner]->arena, from);
    hdi_attempt_end(&attempt);
    if (!status) {
        return yes;
    }
    const hd_error failure = attempt.error;
    bool for_good = is_final(failure.driver_code);
    hdi_peers_refuse(rt, from, owner, failure.driver_code, failure.operation, for_good);
    return for_good ? HDI_PEERS_NO : HDI_PEERS_UNKNOWN;
}

/* The answer that a result gives for the pair. `linking` is held. */
static uint8_t decide(hd_runtime *rt, int from, int owner, bool for_copies)
{
    if (any_lost(rt, from, owner)) {
        return HDI_PEERS_UNKNOWN;
    }
    hd_peer_info info = {.verdict = HD_PEER_USABLE};
    /* read here, since a test may have been requested again meanwhile */
    if (rt->options.peers == HDI_PEERS_VERIFY && !hdi_peers_known(rt, from, owner, &info)) {
        return HDI_PEERS_UNKNOWN; /* no result: the test may be under way on this thread */
    }
    switch (info.verdict) {
    case HD_PEER_USABLE:
        return grant(rt, from, owner, HDI_PEERS_YES);
    case HD_PEER_SLOW:
        return for_copies ? HDI_PEERS_SLOW_ASK : grant(rt, from, owner, HDI_PEERS_SLOW);
    default:
        return HDI_PEERS_NO;
    }
}

static bool is_open_question(uint8_t answer, bool for_copies)
{
    return answer == HDI_PEERS_UNKNOWN || (!for_copies && (answer == HDI_PEERS_SLOW_ASK || answer == HDI_PEERS_SOUGHT));
}

/* Leaves the pair to the peer_tester. False: there is a result already, or no peer_tester. */
static bool leave_it(hd_runtime *rt, int from, int owner)
{
    hd_peer_info info;
    uint8_t before = HDI_PEERS_UNKNOWN;
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    if (hdi_peers_known(rt, from, owner, &info)) {
        return false;
    }
    /* relaxed: it publishes no memory. It is set before the request, so that the peer_tester finds it */
    bool ours = atomic_compare_exchange_strong_explicit(known, &before, HDI_PEERS_SOUGHT, memory_order_relaxed,
                                                        memory_order_relaxed);
    if (!ours || hdi_peer_tester_ask(rt, from, owner)) {
        return true;
    }
    before = HDI_PEERS_SOUGHT;
    atomic_compare_exchange_strong_explicit(known, &before, HDI_PEERS_UNKNOWN, memory_order_relaxed,
                                            memory_order_relaxed);
    return false;
}

/* Finds the answer at the first use of a pair. */
static uint8_t find_out(hd_runtime *rt, int from, int owner, bool for_copies)
{
    HDI_INSIDE_STILL(rt); /* it may wait for a test, which hd_close then waits for */
    if (!hdi_runtime_is_open(rt)) {
        return HDI_PEERS_NO;
    }
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    bool verify = rt->options.peers == HDI_PEERS_VERIFY, off = rt->options.peers == HDI_PEERS_OFF;
    if (off || !hdi_peers_offered(rt, from, owner)) {
        atomic_store_explicit(known, HDI_PEERS_NO, memory_order_release);
        return HDI_PEERS_NO;
    }
    if (any_lost(rt, from, owner)) {
        return HDI_PEERS_UNKNOWN;
    }
    if (verify && for_copies && leave_it(rt, from, owner)) {
        return HDI_PEERS_SOUGHT;
    }
    if (verify) {
        hd_peer_info info;
        hdi_peers_ask(rt, from, owner, false, &info);
    }
    hdi_mutex_lock(&rt->linking);
    uint8_t answer = atomic_load_explicit(known, memory_order_acquire);
    if (is_open_question(answer, for_copies)) {
        answer = decide(rt, from, owner, for_copies);
        atomic_store_explicit(known, answer, memory_order_release);
    }
    hdi_mutex_unlock(&rt->linking);
    return answer;
}

void hdi_peer_access_settle(hd_runtime *rt, int from, int owner)
{
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    if (!any_lost(rt, from, owner)) {
        hd_peer_info info;
        hdi_peers_ask(rt, from, owner, true, &info);
    }
    hdi_mutex_lock(&rt->linking);
    /* Else a kernel needed the answer first, or a device was lost, after which the answer is not wanted any more. */
    if (atomic_load_explicit(known, memory_order_acquire) == HDI_PEERS_SOUGHT) {
        atomic_store_explicit(known, decide(rt, from, owner, true), memory_order_release);
    }
    hdi_mutex_unlock(&rt->linking);
}

bool hdi_peer_access(hd_runtime *rt, int from, int owner)
{
    if (owner < 0 || owner == from) {
        return true;
    }
    /* pairs with the release store of the answer: the mapping is in place before the answer is seen */
    uint8_t answer = atomic_load_explicit(&rt->devices[from]->peer_access[owner], memory_order_acquire);
    if (__builtin_expect(is_open_question(answer, false), 0)) {
        answer = find_out(rt, from, owner, false);
    }
    return answer == HDI_PEERS_YES || answer == HDI_PEERS_SLOW;
}

static uint8_t access_for_copies(hd_runtime *rt, int from, int owner)
{
    /* acquire: as in hdi_peer_access */
    uint8_t answer = atomic_load_explicit(&rt->devices[from]->peer_access[owner], memory_order_acquire);
    if (__builtin_expect(is_open_question(answer, true), 0)) {
        answer = find_out(rt, from, owner, true);
    }
    return answer;
}

int hdi_peer_access_between(hd_runtime *rt, int src, int dst)
{
    /* Writes to a peer are posted and reads are not, so the source copies where it can. The other way is requested only where it is needed: it
     * takes one of the few places for peers. */
    uint8_t answer = access_for_copies(rt, src, dst);
    if (answer == HDI_PEERS_YES || answer == HDI_PEERS_SOUGHT) {
        return answer == HDI_PEERS_YES ? src : -1;
    }
    return access_for_copies(rt, dst, src) == HDI_PEERS_YES ? dst : -1;
}

/* Writes the reason of a negative answer, in words that follow a colon. */
static void explain(hd_runtime *rt, int from, int owner, char *out, size_t bytes)
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

hd_status hdi_peer_access_failed(hd_runtime *rt, int from, int owner)
{
    HDI_INSIDE_STILL(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (hdi_device_lost(rt->devices[from])) {
        return hdi_loss_fail(rt, from, "the lane's device does no work");
    }
    char why[HD_PEER_REASON_BYTES + 64];
    explain(rt, from, owner, why, sizeof why);
    return hdi_fail_driver(HD_ERROR_UNREACHABLE, -1, "", from,
                           "device %d cannot reach a buffer of device %d: %s; run the kernel on device %d, or hd_copy "
                           "the buffer to device %d first",
                           from, owner, why, owner, from);
}

void hdi_peer_access_forget(hd_runtime *rt, int device)
{
    hdi_mutex_lock(&rt->linking);
    hdi_peers_forget(rt, device);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_arena_revoke(rt->devices[i]->arena, device);
        atomic_store_explicit(&rt->devices[i]->peer_access[device], HDI_PEERS_UNKNOWN, memory_order_release);
        atomic_store_explicit(&rt->devices[device]->peer_access[i], HDI_PEERS_UNKNOWN, memory_order_release);
    }
    hdi_mutex_unlock(&rt->linking);
}
