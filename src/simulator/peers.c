/* peers.c - access from one host device to another's memory.
 *
 * Any thread. Takes the host lock. Always: a context's peer bits name only devices that the setting host_peers
 * allows. They open memory of cuMemAlloc; mappings of cuMemMap have access tables of their own. A device has access to
 * the memory of HDI_HOST_PEERS_MAX others at most, by both together.
 */
#include "simulator/host.h"

hdcu_result hdi_host_cuDeviceCanAccessPeer(int *can_access, hdcu_device device, hdcu_device peer)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !can_access) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && (!hdi_host_device_valid(device) || !hdi_host_device_valid(peer))) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        *can_access = hdi_host_peer_possible(device, peer);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuDeviceGetP2PAttribute(int *value, int attribute, hdcu_device source, hdcu_device destination)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !value) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS &&
        (!hdi_host_device_valid(source) || !hdi_host_device_valid(destination) || source == destination)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        switch (attribute) {
        case HDCU_P2P_ATTRIBUTE_PERFORMANCE_RANK:
            *value = 0;
            break;
        case HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        case HDCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
            *value = hdi_host_peer_possible(source, destination);
            break;
        default:
            r = HDCU_ERROR_INVALID_VALUE;
            break;
        }
    }
    return hdi_host_leave(r);
}

bool hdi_host_peer_fits(int device, int owner)
{
    if (hdi_host.device_count <= HDI_HOST_PEERS_MAX + 1) {
        return true;
    }
    const hdi_host_context *context = hdi_host.devices[device].context;
    uint64_t owners = context ? context->peers : 0;
    for (size_t i = 0; i < hdi_host_mappings.count; i++) {
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)hdi_host_mappings.spans[i];
        if (m->kind == HDI_HOST_VIRTUAL && m->device != device && hdi_host_may_access(m, device)) {
            owners |= (uint64_t)1 << m->device;
        }
    }
    return (owners >> owner & 1) || __builtin_popcountll(owners) < HDI_HOST_PEERS_MAX;
}

hdcu_result hdi_host_cuCtxEnablePeerAccess(hdcu_context peer, unsigned flags)
{
    hdi_host_context *context, *other;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(peer, &other);
    }
    if (r == HDCU_SUCCESS && flags != 0) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && other == context) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS && !hdi_host_peer_possible(context->device, other->device)) {
        r = HDCU_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (r == HDCU_SUCCESS && !hdi_host_peer_fits(context->device, other->device)) {
        r = HDCU_ERROR_TOO_MANY_PEERS;
    }
    if (r == HDCU_SUCCESS) {
        uint64_t bit = (uint64_t)1 << other->device;
        if (context->peers & bit) {
            r = HDCU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        }
        context->peers |= bit;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuCtxDisablePeerAccess(hdcu_context peer)
{
    hdi_host_context *context, *other;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(peer, &other);
    }
    if (r == HDCU_SUCCESS) {
        uint64_t bit = (uint64_t)1 << other->device;
        if (!(context->peers & bit)) {
            r = HDCU_ERROR_PEER_ACCESS_NOT_ENABLED;
        }
        context->peers &= ~bit;
    }
    return hdi_host_leave(r);
}
