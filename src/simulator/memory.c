/* memory.c - virtual memory management: address ranges, physical memory, mappings, and which
 * devices may access them.
 *
 * Threads: any. Locks: entry points take the host lock, and all other functions run under it.
 * Blocking: none.
 * Always: spans of one set do not overlap and are sorted, so a look-up is a binary search. Every
 * mapping made by cuMemMap lies inside one reservation. Physical memory consists of pages of a
 * memory file. It counts towards its device from its creation until its handles are released and no
 * mapping uses it. The processor can access only the parts of a reservation that some device may
 * access. So a stray kernel or copy faults as it would on a GPU.
 *
 * Peers: a context's peer bits name only devices that the setting host_peers allows. These bits
 * give access to memory of cuMemAlloc; each mapping of cuMemMap has bits of its own. All these bits
 * together may give a device access to the memory of at most HDI_HOST_PEERS_MAX other devices.
 *
 * Files: a device's physical memory lies in one memory file (file.c), so that many small pieces do
 * not need many descriptors.
 *
 * Imports: another process made the memory, or this process made and released it. An import belongs
 * to the device that its file names, and counts only in the process that made the memory. It needs
 * no context of that device in this process. An import ends when it is released and unmapped, or
 * with the last context of this process, whichever comes first. The pages exist as long as any
 * process holds them, even after the end of the process that made them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "simulator/host.h"

/* ---- ranges and their access ---- */

typedef struct reservation {
    hdi_host_span span;
    hdi_host_garbage garbage;
} reservation;

hdi_host_set hdi_host_mappings, hdi_host_reservations;

size_t hdi_host_set_seek(const hdi_host_set *set, uintptr_t address)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const hdi_host_span *s = set->spans[middle];
        if (s->start + s->bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void *hdi_host_set_find(const hdi_host_set *set, uintptr_t address)
{
    size_t i = hdi_host_set_seek(set, address);
    return i < set->count && set->spans[i]->start <= address ? set->spans[i] : NULL;
}

bool hdi_host_set_overlaps(const hdi_host_set *set, uintptr_t address, size_t bytes)
{
    size_t i = hdi_host_set_seek(set, address);
    return i < set->count && set->spans[i]->start < address + bytes;
}

bool hdi_host_set_insert(hdi_host_set *set, hdi_host_span *span)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 64;
        hdi_host_span **grown = realloc(set->spans, capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        set->spans = grown;
        set->capacity = capacity;
    }
    size_t i = hdi_host_set_seek(set, span->start);
    memmove(&set->spans[i + 1], &set->spans[i], (set->count - i) * sizeof *set->spans);
    set->spans[i] = span;
    set->count++;
    return true;
}

void hdi_host_set_remove(hdi_host_set *set, hdi_host_span *span)
{
    size_t i = hdi_host_set_seek(set, span->start);
    if (i < set->count && set->spans[i] == span) {
        set->count--;
        memmove(&set->spans[i], &set->spans[i + 1], (set->count - i) * sizeof *set->spans);
    }
}

/* The devices that may access the mapping, as bits. For memory of cuMemAlloc, `device` is the only
 * peer that the result can contain. */
static uint64_t host_mapping_access_of(const hdi_host_mapping *m, int device)
{
    if (m->kind == HDI_HOST_VIRTUAL) {
        return m->access;
    }
    if (m->kind == HDI_HOST_ALLOCATED) {
        uint64_t owner = (uint64_t)1 << m->device;
        const hdi_host_context *c = device >= 0 ? hdi_host.devices[device].context : NULL;
        return c && (c->peers & owner) ? owner | (uint64_t)1 << device : owner;
    }
    if (m->kind == HDI_HOST_POOLED || m->kind == HDI_HOST_VARIABLE) {
        return (uint64_t)1 << m->device;
    }
    return UINT64_MAX;
}

bool hdi_host_may_access(const hdi_host_mapping *m, int device)
{
    return (host_mapping_access_of(m, device) >> device & 1) != 0;
}

int hdi_host_owner_of(uintptr_t address)
{
    const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, address);
    return m ? m->device : -1;
}

hdi_host_reach hdi_host_reach_of(int device, uintptr_t address, size_t bytes)
{
    size_t i = hdi_host_set_seek(&hdi_host_mappings, address);
    if (i == hdi_host_mappings.count || hdi_host_mappings.spans[i]->start > address) {
        return hdi_host_set_find(&hdi_host_reservations, address) ? HDI_HOST_UNMAPPED : HDI_HOST_UNKNOWN;
    }
    hdi_host_reach reach = HDI_HOST_REACHABLE;
    uintptr_t at = address;
    if (bytes > UINTPTR_MAX - address) {
        return HDI_HOST_UNMAPPED;
    }
    do {
        if (i == hdi_host_mappings.count || hdi_host_mappings.spans[i]->start > at) {
            return HDI_HOST_UNMAPPED;
        }
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)hdi_host_mappings.spans[i++];
        uint64_t access = host_mapping_access_of(m, device);
        if (access == 0) {
            return HDI_HOST_UNMAPPED;
        }
        if (device >= 0 && !(access >> device & 1)) {
            reach = HDI_HOST_UNREACHABLE;
        }
        at = m->span.start + m->span.bytes;
    } while (at < address + bytes);
    return reach;
}

/* ---- peers ---- */

/* True if the option host_peers lets `device` access memory of `peer`. */
static bool host_peer_is_possible(int device, int peer)
{
    int n = hdi_host.device_count;
    if (device == peer || hdi_host.peers == HDI_HOST_PEERS_NONE) {
        return false;
    }
    return hdi_host.peers == HDI_HOST_PEERS_ALL || (device + 1) % n == peer || (peer + 1) % n == device;
}

/* True if the driver states that `device` can access the mapping. Like driver 580, this function
 * returns true for memory of cuMemAlloc if the device could enable access to it, even if the device
 * did not. */
static bool host_mapping_states_access(const hdi_host_mapping *m, int device)
{
    return hdi_host_may_access(m, device) ||
           (m->kind == HDI_HOST_ALLOCATED && host_peer_is_possible(device, m->device));
}

static hdcu_result cuDeviceCanAccessPeer(int *can_access, hdcu_device device, hdcu_device peer)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !can_access) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && (!hdi_host_device_valid(device) || !hdi_host_device_valid(peer))) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        *can_access = host_peer_is_possible(device, peer);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuDeviceGetP2PAttribute(int *value, int attribute, hdcu_device source, hdcu_device destination)
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
            *value = host_peer_is_possible(source, destination);
            break;
        default:
            r = HDCU_ERROR_INVALID_VALUE;
            break;
        }
    }
    return hdi_host_leave(r);
}

/* True if `device` may get access to memory of `owner`: the device can already access it, or may
 * access the memory of one more device. */
static bool host_peer_fits(int device, int owner)
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

static hdcu_result cuCtxEnablePeerAccess(hdcu_context peer, unsigned flags)
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
    if (r == HDCU_SUCCESS && !host_peer_is_possible(context->device, other->device)) {
        r = HDCU_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (r == HDCU_SUCCESS && !host_peer_fits(context->device, other->device)) {
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

static hdcu_result cuCtxDisablePeerAccess(hdcu_context peer)
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

/* ---- the life of physical memory ---- */

struct hdi_host_physical {
    hdi_host_garbage garbage;
    uint64_t handle; /* 0: released */
    unsigned handles, mappings;
    int device;
    size_t charged;
    bool exportable, imported;
    hdi_host_piece piece;
};

static void host_physical_release_if_unused(hdi_host_physical *p)
{
    if (p->handles > 0 || p->mappings > 0) {
        return;
    }
    hdi_host.devices[p->device].used -= p->charged;
    hdi_host_piece_drop(&p->piece);
    p->garbage = (hdi_host_garbage){.descriptor = -1, .piece = p->piece, .self = p};
    hdi_host_discard(&p->garbage);
}

static void host_physical_drop_handles(hdi_host_physical *p)
{
    hdi_host_handle_drop(p->handle);
    p->handle = 0;
    p->handles = 0;
    host_physical_release_if_unused(p);
}

/* Removes a mapping. Inaccessible addresses take its place, so that nothing else can be placed
 * there. If the system refuses them, the old pages stay until the addresses are mapped again. */
static void host_mapping_remove(hdi_host_mapping *m)
{
    (void)mmap((void *)m->span.start, m->span.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
               -1, 0);
    hdi_host_set_remove(&hdi_host_mappings, &m->span);
    m->physical->mappings--;
    host_physical_release_if_unused(m->physical);
    free(m);
}

static hdi_host_mapping *host_mapping_at(size_t index)
{
    return (hdi_host_mapping *)(void *)hdi_host_mappings.spans[index];
}

void hdi_host_virtual_release(int device, bool all)
{
    for (size_t i = hdi_host_mappings.count; i-- > 0;) {
        hdi_host_mapping *m = host_mapping_at(i);
        if (m->kind == HDI_HOST_VIRTUAL && (all || (m->physical->device == device && !m->physical->imported))) {
            host_mapping_remove(m);
        }
    }
    uint32_t position = 0;
    hdi_host_physical *p;
    while ((p = hdi_host_handle_next(HDI_HOST_PHYSICAL, &position))) {
        if (all || (p->device == device && !p->imported)) {
            host_physical_drop_handles(p);
        }
    }
    while (all && hdi_host_reservations.count > 0) {
        reservation *r = (reservation *)(void *)hdi_host_reservations.spans[hdi_host_reservations.count - 1];
        hdi_host_set_remove(&hdi_host_reservations, &r->span);
        hdi_host_discard(&r->garbage);
    }
}

/* ---- addresses ---- */

/* Like driver 580, the simulator ignores a requested address that is no multiple of this step, and
 * a request for fewer bytes than a step. */
#define WISH_STEP ((size_t)32 << 20)

/* Reserves inaccessible addresses for `bytes`, with a gap behind them, so that an access past the
 * end faults. False: out of memory.
 * The addresses begin at `wanted` if that is aligned and all of them are free in this process.
 * Otherwise they lie anywhere. */
static bool host_reservation_take(reservation *v, uintptr_t wanted, size_t bytes, size_t alignment)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t total = bytes + HDI_HOST_GRANULE;
    char *base = MAP_FAILED;
    if (wanted != 0 && wanted % alignment == 0 && wanted % WISH_STEP == 0 && bytes >= WISH_STEP) {
        /* For mmap the address is also only a hint, and mmap without a flag never replaces a
         * mapping. MAP_FIXED_NOREPLACE would do no more, and thread sanitizer handles this flag
         * badly: if it rejects the address, it tries address 0. */
        base = mmap((void *)wanted, total, PROT_NONE, flags, -1, 0);
        if (base == MAP_FAILED) {
            /* the system lacks memory: for addresses in use, it would return other addresses */
            return false;
        }
        if ((uintptr_t)base != wanted) {
            munmap(base, total);
            base = MAP_FAILED;
        }
    }
    if (base == MAP_FAILED) {
        total += alignment;
        base = mmap(NULL, total, PROT_NONE, flags, -1, 0);
    }
    if (base == MAP_FAILED) {
        return false;
    }
    v->span.start = ((uintptr_t)base + alignment - 1) & ~(uintptr_t)(alignment - 1);
    v->span.bytes = bytes;
    v->garbage = (hdi_host_garbage){.map = base, .map_bytes = total, .descriptor = -1, .self = v};
    return true;
}

static hdcu_result cuMemAddressReserve(hdcu_deviceptr *pointer, size_t bytes, size_t alignment, hdcu_deviceptr address,
                                       unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    if (!pointer || bytes == 0 || bytes % HDI_HOST_GRANULE != 0 || flags != 0 || (alignment & (alignment - 1)) != 0) {
        return hdi_host_leave(HDCU_ERROR_INVALID_VALUE);
    }
    if (alignment < HDI_HOST_GRANULE) {
        alignment = HDI_HOST_GRANULE;
    }
    bool fits = bytes <= SIZE_MAX - HDI_HOST_GRANULE - alignment;
    reservation *v = fits ? calloc(1, sizeof *v) : NULL;
    if (!v || !host_reservation_take(v, address, bytes, alignment)) {
        free(v);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    if (!hdi_host_set_insert(&hdi_host_reservations, &v->span)) {
        hdi_host_discard(&v->garbage);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    *pointer = v->span.start;
    return hdi_host_leave(HDCU_SUCCESS);
}

static hdcu_result cuMemAddressFree(hdcu_deviceptr pointer, size_t bytes)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        reservation *v = hdi_host_set_find(&hdi_host_reservations, pointer);
        if (!v || v->span.start != pointer || v->span.bytes != bytes ||
            hdi_host_set_overlaps(&hdi_host_mappings, pointer, bytes)) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else {
            hdi_host_set_remove(&hdi_host_reservations, &v->span);
            hdi_host_discard(&v->garbage);
        }
    }
    return hdi_host_leave(r);
}

/* ---- physical memory ---- */

static hdcu_result host_physical_check_prop(const hdcu_mem_prop *prop)
{
    if (!prop || prop->type != HDCU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != HDCU_MEM_LOCATION_TYPE_DEVICE ||
        (prop->requested_handle_types & ~HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_device_valid(prop->location.id) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_DEVICE;
}

static hdcu_result cuMemGetAllocationGranularity(size_t *granularity, const hdcu_mem_prop *prop, int option)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = host_physical_check_prop(prop);
    }
    if (r == HDCU_SUCCESS &&
        (!granularity || (option != HDCU_MEM_GRANULARITY_MINIMUM && option != HDCU_MEM_GRANULARITY_RECOMMENDED))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *granularity = HDI_HOST_GRANULE;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemCreate(hdcu_memhandle *handle, size_t bytes, const hdcu_mem_prop *prop,
                               unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = host_physical_check_prop(prop);
    }
    if (r == HDCU_SUCCESS && (!handle || bytes == 0 || bytes % HDI_HOST_GRANULE != 0 || flags != 0)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_device *device = &hdi_host.devices[prop->location.id];
    hdi_host_physical *p = NULL;
    if (bytes <= hdi_host.memory - device->used) {
        p = calloc(1, sizeof *p);
    }
    if (!p) {
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    p->device = prop->location.id;
    p->charged = bytes;
    p->exportable = (prop->requested_handle_types & HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    if (!hdi_host_piece_make(p->device, bytes, &p->piece)) {
        free(p);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    device->used += bytes;
    p->handle = hdi_host_handle_make(HDI_HOST_PHYSICAL, p);
    if (p->handle == 0) {
        host_physical_release_if_unused(p);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    p->handles = 1;
    *handle = p->handle;
    return hdi_host_leave(HDCU_SUCCESS);
}

static hdcu_result cuMemRelease(hdcu_memhandle handle)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
        if (!p) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else if (--p->handles == 0) {
            host_physical_drop_handles(p);
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemExportToShareableHandle(void *shareable, hdcu_memhandle handle, int handle_type,
                                                unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
        if (!p || !shareable || !p->exportable || handle_type != HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            flags != 0) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else {
            int descriptor = hdi_host_piece_export(&p->piece);
            if (descriptor < 0) {
                r = HDCU_ERROR_OPERATING_SYSTEM;
            } else {
                memcpy(shareable, &descriptor, sizeof descriptor);
            }
        }
    }
    return hdi_host_leave(r);
}

/* Returns the live physical memory of this piece. NULL: the piece is new to this process, or this
 * process released and unmapped it. */
static hdi_host_physical *host_physical_of(const hdi_host_piece *piece)
{
    uint32_t position = 0;
    hdi_host_physical *p;
    while ((p = hdi_host_handle_next(HDI_HOST_PHYSICAL, &position))) {
        if (hdi_host_piece_same(&p->piece, piece)) {
            return p;
        }
    }
    for (size_t i = 0; i < hdi_host_mappings.count; i++) {
        p = host_mapping_at(i)->physical;
        if (p && hdi_host_piece_same(&p->piece, piece)) {
            return p;
        }
    }
    return NULL;
}

/* Returns the physical memory of an imported piece, or makes it. NULL: no memory. Takes over the
 * piece. */
static hdi_host_physical *host_physical_of_import(hdi_host_piece *piece, int device)
{
    hdi_host_physical *p = host_physical_of(piece);
    if (p) {
        hdi_host_piece_forget(piece);
        return p;
    }
    p = calloc(1, sizeof *p);
    if (p) {
        *p = (hdi_host_physical){.device = device, .exportable = true, .imported = true, .piece = *piece};
    } else {
        hdi_host_piece_drop(piece);
        hdi_host_piece_clear(piece);
    }
    return p; /* the process that made the memory counts it */
}

static hdcu_result host_physical_import(int descriptor, hdcu_memhandle *handle)
{
    int device;
    hdi_host_piece piece;
    hdcu_result r = hdi_host_piece_import(descriptor, &device, &piece);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    hdi_host_physical *p = host_physical_of_import(&piece, device);
    if (p && p->handles == 0) {
        p->handle = hdi_host_handle_make(HDI_HOST_PHYSICAL, p);
    }
    if (!p || p->handle == 0) {
        if (p) {
            host_physical_release_if_unused(p);
        }
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    p->handles++;
    *handle = p->handle;
    return HDCU_SUCCESS;
}

static hdcu_result cuMemImportFromShareableHandle(hdcu_memhandle *handle, void *shareable, int handle_type)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!handle || handle_type != HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = host_physical_import((int)(intptr_t)shareable, handle);
    }
    return hdi_host_leave(r);
}

/* ---- mappings ---- */

static hdcu_result cuMemMap(hdcu_deviceptr pointer, size_t bytes, size_t offset, hdcu_memhandle handle,
                            unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
    reservation *v = hdi_host_set_find(&hdi_host_reservations, pointer);
    /* NVIDIA's driver accepts no offset but 0. */
    if (!p || !v || bytes == 0 || bytes % HDI_HOST_GRANULE != 0 || pointer % HDI_HOST_GRANULE != 0 || offset != 0 ||
        bytes > p->piece.bytes || flags != 0 || bytes > v->span.start + v->span.bytes - pointer ||
        hdi_host_set_overlaps(&hdi_host_mappings, pointer, bytes)) {
        return hdi_host_leave(HDCU_ERROR_INVALID_VALUE);
    }
    hdi_host_mapping *m = calloc(1, sizeof *m);
    if (!m) {
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    m->span = (hdi_host_span){pointer, bytes};
    m->kind = HDI_HOST_VIRTUAL;
    m->device = p->device;
    m->physical = p;
    if (!hdi_host_set_insert(&hdi_host_mappings, &m->span)) {
        free(m);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    p->mappings++;
    if (mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             hdi_host_piece_descriptor(&p->piece), p->piece.offset) == MAP_FAILED) {
        r = errno == ENOMEM ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_OPERATING_SYSTEM;
        host_mapping_remove(m);
    }
    return hdi_host_leave(r);
}

/* True if [address, +bytes) consists of whole mappings of cuMemMap without a gap. *first is the
 * index of the first one. */
static bool host_mapping_find_whole(uintptr_t address, size_t bytes, size_t *first)
{
    if (bytes == 0 || bytes > UINTPTR_MAX - address) {
        return false;
    }
    size_t i = *first = hdi_host_set_seek(&hdi_host_mappings, address);
    uintptr_t at = address;
    while (at < address + bytes) {
        if (i == hdi_host_mappings.count) {
            return false;
        }
        const hdi_host_mapping *m = host_mapping_at(i++);
        if (m->span.start != at || m->kind != HDI_HOST_VIRTUAL) {
            return false;
        }
        at += m->span.bytes;
    }
    return at == address + bytes;
}

static hdcu_result cuMemUnmap(hdcu_deviceptr pointer, size_t bytes)
{
    size_t first;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !host_mapping_find_whole(pointer, bytes, &first)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        while (first < hdi_host_mappings.count && host_mapping_at(first)->span.start < pointer + bytes) {
            host_mapping_remove(host_mapping_at(first));
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result host_mapping_check_access(size_t first, uintptr_t end, const hdcu_mem_access_desc *desc)
{
    int device = desc->location.id;
    if (desc->location.type != HDCU_MEM_LOCATION_TYPE_DEVICE ||
        (desc->flags != HDCU_MEM_ACCESS_NONE && desc->flags != HDCU_MEM_ACCESS_READWRITE)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (!hdi_host_device_valid(device)) {
        return HDCU_ERROR_INVALID_DEVICE;
    }
    for (size_t i = first; i < hdi_host_mappings.count && host_mapping_at(i)->span.start < end; i++) {
        int owner = host_mapping_at(i)->device;
        if (desc->flags != HDCU_MEM_ACCESS_NONE && owner != device) {
            if (!host_peer_is_possible(device, owner)) {
                return HDCU_ERROR_INVALID_DEVICE;
            }
            if (!host_peer_fits(device, owner)) {
                return HDCU_ERROR_TOO_MANY_PEERS;
            }
        }
    }
    return HDCU_SUCCESS;
}

static hdcu_result host_mapping_set_access(hdi_host_mapping *m, const hdcu_mem_access_desc *desc, size_t count)
{
    uint64_t access = m->access;
    for (size_t d = 0; d < count; d++) {
        uint64_t bit = (uint64_t)1 << desc[d].location.id;
        access = desc[d].flags == HDCU_MEM_ACCESS_NONE ? access & ~bit : access | bit;
    }
    if ((access != 0) != (m->access != 0) &&
        mprotect((void *)m->span.start, m->span.bytes, access ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    m->access = access;
    return HDCU_SUCCESS;
}

static hdcu_result cuMemSetAccess(hdcu_deviceptr pointer, size_t bytes, const hdcu_mem_access_desc *desc, size_t count)
{
    size_t first = 0;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!desc || count == 0 || !host_mapping_find_whole(pointer, bytes, &first))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    for (size_t d = 0; r == HDCU_SUCCESS && d < count; d++) {
        r = host_mapping_check_access(first, pointer + bytes, &desc[d]);
    }
    for (size_t i = first;
         r == HDCU_SUCCESS && i < hdi_host_mappings.count && host_mapping_at(i)->span.start < pointer + bytes; i++) {
        r = host_mapping_set_access(host_mapping_at(i), desc, count);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemGetAccess(unsigned long long *flags, const hdcu_mem_location *location, hdcu_deviceptr pointer)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, pointer);
        if (!flags || !location || location->type != HDCU_MEM_LOCATION_TYPE_DEVICE || !m ||
            m->kind != HDI_HOST_VIRTUAL) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else if (!hdi_host_device_valid(location->id)) {
            r = HDCU_ERROR_INVALID_DEVICE;
        } else {
            *flags = m->access >> location->id & 1 ? HDCU_MEM_ACCESS_READWRITE : HDCU_MEM_ACCESS_NONE;
        }
    }
    return hdi_host_leave(r);
}

/* Describes the memory at an address: *range is the span that one call of the driver made, and
 * *mapping the span of one mapping. False: no memory is at the address, or the memory is not in
 * use. */
static bool host_mapping_describe(uintptr_t address, const hdi_host_mapping *m, hdi_host_span *range,
                                  hdi_host_span *mapping)
{
    *range = *mapping = m->span;
    if (m->kind == HDI_HOST_VIRTUAL) {
        *range = *(const hdi_host_span *)hdi_host_set_find(&hdi_host_reservations, address);
    }
    return m->kind != HDI_HOST_POOLED || hdi_host_slot_span(address, range);
}

static void host_pointer_set_int(void *out, int value)
{
    memcpy(out, &value, sizeof value);
}

static void host_pointer_set_word(void *out, uint64_t value)
{
    memcpy(out, &value, sizeof value);
}

static hdcu_result cuPointerGetAttribute(void *value, int attribute, hdcu_deviceptr pointer)
{
    hdcu_result r = hdi_host_enter();
    const hdi_host_mapping *m = NULL;
    hdi_host_span range, mapping;
    if (r == HDCU_SUCCESS) {
        m = hdi_host_set_find(&hdi_host_mappings, pointer);
        r = value && m && host_mapping_describe(pointer, m, &range, &mapping) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
    }
    hdi_host_context *context = NULL;
    if (r == HDCU_SUCCESS && (attribute == HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS || m->device < 0)) {
        r = hdi_host_context_current(&context);
    }
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    switch (attribute) {
    case HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        host_pointer_set_int(value, m->device < 0 ? HDCU_MEMORYTYPE_HOST : HDCU_MEMORYTYPE_DEVICE);
        break;
    case HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        host_pointer_set_int(value, m->device < 0 ? context->device : m->device);
        break;
    case HDCU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        host_pointer_set_word(value, range.start);
        break;
    case HDCU_POINTER_ATTRIBUTE_RANGE_SIZE:
        host_pointer_set_word(value, range.bytes);
        break;
    case HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        host_pointer_set_int(value, host_mapping_states_access(m, context->device) ? HDCU_MEM_ACCESS_READWRITE
                                                                                   : HDCU_MEM_ACCESS_NONE);
        break;
    case HDCU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        host_pointer_set_word(value, mapping.bytes);
        break;
    case HDCU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        host_pointer_set_word(value, mapping.start);
        break;
    default:
        r = HDCU_ERROR_INVALID_VALUE;
        break;
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_memory_entries = {
    .cuDeviceCanAccessPeer = cuDeviceCanAccessPeer,
    .cuDeviceGetP2PAttribute = cuDeviceGetP2PAttribute,
    .cuCtxEnablePeerAccess = cuCtxEnablePeerAccess,
    .cuCtxDisablePeerAccess = cuCtxDisablePeerAccess,
    .cuMemAddressReserve = cuMemAddressReserve,
    .cuMemAddressFree = cuMemAddressFree,
    .cuMemGetAllocationGranularity = cuMemGetAllocationGranularity,
    .cuMemCreate = cuMemCreate,
    .cuMemRelease = cuMemRelease,
    .cuMemExportToShareableHandle = cuMemExportToShareableHandle,
    .cuMemImportFromShareableHandle = cuMemImportFromShareableHandle,
    .cuMemMap = cuMemMap,
    .cuMemUnmap = cuMemUnmap,
    .cuMemSetAccess = cuMemSetAccess,
    .cuMemGetAccess = cuMemGetAccess,
    .cuPointerGetAttribute = cuPointerGetAttribute,
};
