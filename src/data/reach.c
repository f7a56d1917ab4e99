/* reach.c - which devices can use which devices' memory.
 *
 * Threads: any; the first question about a pair asks the driver and maps memory, on the asking thread. Locks: `cold`, for
 * the first question only. Always: a yes changes only when one of the two devices was lost and restarted.
 */
#include "base/error.h"
#include "data/buffer.h"
#include "engine/engine.h"
#include "memory/arena.h"

static bool offered(hd_runtime *rt, int from, int owner)
{
    return rt->devices[from]->facts.peers >> owner & 1;
}

/* Codes with which a driver says that it will never be possible; after all others the next use asks again. */
static bool is_final(int code)
{
    return code == HDCU_ERROR_PEER_ACCESS_UNSUPPORTED || code == HDCU_ERROR_INVALID_DEVICE ||
           code == HDCU_ERROR_NOT_SUPPORTED || code == HDCU_ERROR_TOO_MANY_PEERS || code == HDCU_ERROR_MAP_FAILED;
}

/* With `cold`, which a restart takes before it makes a device forget its peers. */
static uint8_t ask(hd_runtime *rt, int from, int owner)
{
    if (!offered(rt, from, owner)) {
        return HDI_PEERS_NO;
    }
    if (hdi_device_lost(rt->devices[from]) || hdi_device_lost(rt->devices[owner])) {
        return HDI_PEERS_UNKNOWN;
    }
    hd_error before, failure = {.size = sizeof failure};
    hdi_error_save(&before);
    hd_status status = hdi_arena_grant(rt->devices[owner]->arena, from);
    hd_last_error(&failure);
    hdi_error_restore(&before);
    if (!status) {
        return HDI_PEERS_YES;
    }
    return is_final(failure.driver_code) ? HDI_PEERS_NO : HDI_PEERS_UNKNOWN;
}

bool hdi_reach(hd_runtime *rt, int from, int owner)
{
    if (owner < 0 || owner == from) {
        return true;
    }
    _Atomic uint8_t *known = &rt->devices[from]->reach[owner];
    /* pairs with the release store below: the mapping is in place before the answer is seen */
    uint8_t answer = atomic_load_explicit(known, memory_order_acquire);
    if (answer == HDI_PEERS_UNKNOWN) {
        pthread_mutex_lock(&rt->cold);
        answer = atomic_load_explicit(known, memory_order_acquire);
        if (answer == HDI_PEERS_UNKNOWN) {
            answer = ask(rt, from, owner);
            atomic_store_explicit(known, answer, memory_order_release);
        }
        pthread_mutex_unlock(&rt->cold);
    }
    return answer == HDI_PEERS_YES;
}

hd_status hdi_reach_failed(hd_runtime *rt, int from, int owner, const char *who)
{
    if (hdi_device_lost(rt->devices[from])) {
        return hdi_loss_fail(rt, from, who, "the lane's device does no work");
    }
    const char *why = offered(rt, from, owner) ? "the driver offers peer access but could not map the memory"
                                               : "the driver says that there is no peer access between them";
    return hdi_fail_driver(
        HD_ERROR_UNREACHABLE, -1, "", from,
        "%s: device %d cannot reach a buffer of device %d: %s; run the kernel on device %d, or hd_copy "
        "the buffer to device %d first",
        who, from, owner, why, owner, from);
}

void hdi_reach_forget(hd_runtime *rt, int device)
{
    pthread_mutex_lock(&rt->cold);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_arena_revoke(rt->devices[i]->arena, device);
        atomic_store_explicit(&rt->devices[i]->reach[device], HDI_PEERS_UNKNOWN, memory_order_release);
        atomic_store_explicit(&rt->devices[device]->reach[i], HDI_PEERS_UNKNOWN, memory_order_release);
    }
    pthread_mutex_unlock(&rt->cold);
}
