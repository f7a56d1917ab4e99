/* access.c - which devices use each other's memory: the answers, and the peer tester's thread.
 *
 * At the first use of a pair of devices, this file gets a result (peers.c), and then maps memory.
 * To get a result may take a test of about a second. A launch waits for the answer. A copy does not
 * wait if there is a peer tester: until that thread has an answer, copies go through pinned memory.
 *
 * Threads: any. For a kernel, the thread that submits it finds the answer for a pair. For copies,
 * the peer tester's thread does.
 * Locks: `linking` while memory is mapped, none during a test. A restart holds `linking` while it
 * drops the answers of a device. An established answer takes one load, and no lock.
 * Blocking: see access.h.
 * Always: a positive answer changes only for two reasons: one of the devices was lost and
 * restarted, or a requested test gave another verdict. Memory mapped for a peer stays mapped, since
 * work in
 * flight may use it.
 */
#include <stdio.h>
#include "base/error.h"
#include "base/lock.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "peer/access.h"
#include "peer/part.h"
#include "peer/peers.h"

/* ---- the peer tester ---- */

/* Finds out about a pair of devices, and maps memory for it. */
static void peer_access_settle(hd_runtime *rt, int from, int owner);

/* Takes a pair out of the list. False: the list is empty. The caller holds the lock. */
static bool peer_tester_take_pair(hdi_peer_tester *s, int n, int *from, int *owner)
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

static int64_t peer_tester_test_pair(void *context)
{
    hd_runtime *rt = context;
    hdi_peer_tester *s = &hdi_peer_of(rt)->tester;
    int from, owner;
    hdi_mutex_lock(&s->lock);
    bool any = peer_tester_take_pair(s, rt->n_devices, &from, &owner);
    hdi_mutex_unlock(&s->lock);
    if (any) {
        peer_access_settle(rt, from, owner);
    }
    return any ? 0 : INT64_MAX;
}

/* Asks the peer tester to test the pair. False: no such thread exists, as with placement inline. */
static bool peer_tester_ask(hd_runtime *rt, int from, int owner)
{
    hdi_peer_tester *s = &hdi_peer_of(rt)->tester;
    /* with placement inline no thread may be started; after the stop of the peer tester, there is
     * none */
    if (rt->is_inline || !hdi_service_start(&s->thread) || hdi_service_is_stopped(&s->thread)) {
        return false;
    }
    hdi_mutex_lock(&s->lock);
    s->wanted[from][owner] = true;
    hdi_mutex_unlock(&s->lock);
    hdi_service_wake(&s->thread);
    return true;
}

static void peer_tester_init(hd_runtime *rt)
{
    hdi_mutex_init(&hdi_peer_of(rt)->tester.lock, HDI_RANK_PEER_TESTER);
    hdi_service_init(&hdi_peer_of(rt)->tester.thread, peer_tester_test_pair, rt);
}

static void peer_tester_stop(hd_runtime *rt)
{
    if (hdi_peer_of(rt)->peers) {
        hdi_peers_end(rt);
    }
    hdi_service_stop(&hdi_peer_of(rt)->tester.thread);
}

static void peer_tester_release(hd_runtime *rt)
{
    hdi_service_destroy(&hdi_peer_of(rt)->tester.thread);
    hdi_mutex_destroy(&hdi_peer_of(rt)->tester.lock);
}

const hdi_lifetime hdi_peer_tester_lifetime = {
    .init = peer_tester_init, .stop = peer_tester_stop, .release = peer_tester_release};

/* ---- peer access ---- */

/* True if the driver's code means that peer access will never be possible. After any other code,
 * the next use of the pair tries again. */
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

/* Decides the answer for the pair. If it is positive, maps the memory. The caller holds
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

/* Leaves the pair to the peer tester. False: a result exists already, or there is no
 * peer tester. */
static bool peer_tester_leave_pair(hd_runtime *rt, int from, int owner)
{
    hd_peer_info info;
    uint8_t before = HDI_PEERS_UNKNOWN;
    _Atomic uint8_t *known = &rt->devices[from]->peer_access[owner];
    if (hdi_peers_known(rt, from, owner, &info)) {
        return false;
    }
    /* Relaxed: this exchange publishes no memory. The exchange comes before the request, so that
     * the peer tester finds SOUGHT. */
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
    /* If the answer is no longer SOUGHT, a launch already settled the pair, or a device was
     * lost. */
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
    /* A write to a peer does not wait for an answer over the link, and a read does. So the source
     * copies if it can. The destination is asked only if the source cannot copy, since each
     * positive answer takes one of a device's few places for peers. */
    uint8_t answer = peer_access_for_copies(rt, src, dst);
    if (answer == HDI_PEERS_YES || answer == HDI_PEERS_SOUGHT) {
        return answer == HDI_PEERS_YES ? src : -1;
    }
    return peer_access_for_copies(rt, dst, src) == HDI_PEERS_YES ? dst : -1;
}

int hdi_peer_access_explain_refusal(hd_runtime *rt, int from, int owner, char *out, size_t bytes)
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
        int code = hdi_peers_obstacle(rt, from, owner, why);
        snprintf(out, bytes, "%s", why);
        return code;
    }
    return info.driver_code;
}

void hdi_peer_access_forget(hd_runtime *rt, int device)
{
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    hdi_peers_forget(rt, device);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_arena_revoke(rt->devices[i]->arena, device);
        atomic_store_explicit(&rt->devices[i]->peer_access[device], HDI_PEERS_UNKNOWN, memory_order_release);
        atomic_store_explicit(&rt->devices[device]->peer_access[i], HDI_PEERS_UNKNOWN, memory_order_release);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
}
