/* reach.c - which devices can use which devices' memory.
 *
 * Threads: any; the first question about a pair asks the driver and maps memory, on the asking thread. Locks: `cold`, not held by
 * anything that submits. Always: an answer never changes while the runtime is open.
 */
#include "base/error.h"
#include "data/buffer.h"
#include "engine/engine.h"
#include "memory/arena.h"

static uint8_t ask(hd_runtime *rt, int from, int owner)
{
    int can = 0;
    hdcu_result r = rt->driver->cuDeviceCanAccessPeer(&can, rt->devices[from]->handle, rt->devices[owner]->handle);
    if (r != HDCU_SUCCESS || !can) {
        return HDI_PEERS_NO;
    }
    hd_error before;
    hdi_error_save(&before);
    hd_status status = hdi_arena_grant(rt->devices[owner]->arena, rt->devices[from]->handle);
    hdi_error_restore(&before);
    return status ? HDI_PEERS_NO : HDI_PEERS_YES;
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
    int can = 0;
    hdcu_result r = rt->driver->cuDeviceCanAccessPeer(&can, rt->devices[from]->handle, rt->devices[owner]->handle);
    const char *why = r != HDCU_SUCCESS ? hdi_driver_code_name(r)
                      : can             ? "the driver offers peer access but could not map the memory"
                                        : "the driver says that there is no peer access between them";
    return hdi_fail_driver(
        HD_ERROR_UNREACHABLE, r, "cuDeviceCanAccessPeer", from,
        "%s: device %d cannot reach a buffer of device %d: %s; run the kernel on device %d, or hd_copy "
        "the buffer to device %d first",
        who, from, owner, why, owner, from);
}
