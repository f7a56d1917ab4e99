/* memory.c - virtual memory management: reserved addresses, physical memory, mappings and their access.
 *
 * Threads: any. Locks: the host lock. Blocking: none.
 * Always: physical memory is pages of a memory file. It is charged to its device from creation until its handles are
 * released and nothing maps it. A reservation is inaccessible to the processor too, except where some device has access. So
 * a stray kernel or copy faults as it would on a GPU.
 *
 * Files: memory that may be exported has a file of its own, whose name has the device's number. All else lies in one common
 * file, so that many small pieces do not need many descriptors. Its offsets are never used twice: freed pages are given
 * back, and the file is sparse. A file of its own is open here as long as a handle lives, since only a handle can be mapped
 * or exported. The mappings hold the pages by themselves.
 *
 * Imports: memory that the host provider of another process made, or that this one made and has released. It belongs to the
 * device that its file names, and is charged where it was made. It needs no context of that device here. It goes when it is
 * released and unmapped, or with the last context of this process, whichever comes first. The pages live as long as any
 * process has them, also after the end of the process that made them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "simulator/host.h"

#define OWN_FILE_NAME "heddle-host-memory:"

struct hdi_host_physical {
    hdi_host_garbage garbage;
    uint64_t handle; /* 0: released */
    unsigned handles, mappings;
    int device;
    size_t bytes, charged;
    bool own_file; /* its file is `file` of `file_system`; else it lies in the common file, at `offset` */
    bool imported;
    int descriptor; /* of its own file; -1: no handle lives */
    off_t offset;
    dev_t file_system;
    ino_t file;
};

static int common_file = -1;
static off_t common_bytes, common_used;

int hdi_host_memory_file(void)
{
    return common_file;
}

static void physical_release_if_unused(hdi_host_physical *p)
{
    if (p->handles > 0 || p->mappings > 0) {
        return;
    }
    hdi_host.devices[p->device].used -= p->charged;
    p->garbage.descriptor = p->descriptor;
    if (!p->own_file) {
        p->garbage.punch_offset = p->offset;
        p->garbage.punch_bytes = p->bytes;
    }
    p->garbage.self = p;
    hdi_host_discard(&p->garbage);
}

static void drop_handles(hdi_host_physical *p)
{
    hdi_host_handle_drop(p->handle);
    p->handle = 0;
    p->handles = 0;
    if (p->descriptor >= 0 && p->mappings > 0) {
        close(p->descriptor); /* its pages stay, since they are mapped */
        p->descriptor = -1;
    }
    physical_release_if_unused(p);
}

/* Removes a mapping. Inaccessible addresses take its place, so that nothing else can be placed there. */
static void unmap(hdi_host_mapping *m)
{
    mmap((void *)m->span.start, m->span.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    hdi_host_set_remove(&hdi_host_mappings, &m->span);
    m->physical->mappings--;
    physical_release_if_unused(m->physical);
    free(m);
}

static hdi_host_mapping *mapping_at(size_t index)
{
    return (hdi_host_mapping *)(void *)hdi_host_mappings.spans[index];
}

void hdi_host_virtual_release(int device, bool all)
{
    for (size_t i = hdi_host_mappings.count; i-- > 0;) {
        hdi_host_mapping *m = mapping_at(i);
        if (m->kind == HDI_HOST_VIRTUAL && (all || (m->physical->device == device && !m->physical->imported))) {
            unmap(m);
        }
    }
    uint32_t position = 0;
    hdi_host_physical *p;
    while ((p = hdi_host_handle_next(HDI_HOST_PHYSICAL, &position))) {
        if (all || (p->device == device && !p->imported)) {
            drop_handles(p);
        }
    }
    while (all && hdi_host_reservations.count > 0) {
        hdi_host_reservation *r =
            (hdi_host_reservation *)(void *)hdi_host_reservations.spans[hdi_host_reservations.count - 1];
        hdi_host_set_remove(&hdi_host_reservations, &r->span);
        hdi_host_discard(&r->garbage);
    }
}

/* -------------------------------------------------------------------------------------------------------- addresses -- */

/* Reserves inaccessible addresses for `bytes`, with a gap behind them, so that an access past the end faults. False: out
 * of memory.
 * They are at `wanted` where that is aligned and all of it is free in this process, else anywhere. */
static bool take_addresses(hdi_host_reservation *v, uintptr_t wanted, size_t bytes, size_t alignment)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t total = bytes + HDI_HOST_GRANULE;
    char *base = MAP_FAILED;
    if (wanted != 0 && wanted % alignment == 0) {
        /* The address is only a hint here too, and the system never replaces a mapping. MAP_FIXED_NOREPLACE would do no
         * more. Thread sanitizer turns that flag into an attempt at address 0 where it rejects the address. */
        base = mmap((void *)wanted, total, PROT_NONE, flags, -1, 0);
        if (base == MAP_FAILED) {
            return false; /* no memory: addresses in use would have given others */
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

hdcu_result hdi_host_cuMemAddressReserve(hdcu_deviceptr *pointer, size_t bytes, size_t alignment,
                                         hdcu_deviceptr address, unsigned long long flags)
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
    hdi_host_reservation *v = fits ? calloc(1, sizeof *v) : NULL;
    if (!v || !take_addresses(v, address, bytes, alignment)) {
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

hdcu_result hdi_host_cuMemAddressFree(hdcu_deviceptr pointer, size_t bytes)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_reservation *v = hdi_host_set_find(&hdi_host_reservations, pointer);
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

/* -------------------------------------------------------------------------------------------------- physical memory -- */

static hdcu_result check_prop(const hdcu_mem_prop *prop)
{
    if (!prop || prop->type != HDCU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != HDCU_MEM_LOCATION_TYPE_DEVICE ||
        (prop->requested_handle_types & ~HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_device_valid(prop->location.id) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_DEVICE;
}

hdcu_result hdi_host_cuMemGetAllocationGranularity(size_t *granularity, const hdcu_mem_prop *prop, int option)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = check_prop(prop);
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

static bool own_file(hdi_host_physical *p)
{
    char name[64];
    struct stat facts;
    snprintf(name, sizeof name, OWN_FILE_NAME "%d", p->device);
    p->descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (p->descriptor < 0) {
        return false;
    }
    if (hdi_quiet_resize(p->descriptor, (off_t)p->bytes) != 0 ||
        fcntl(p->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 || fstat(p->descriptor, &facts) != 0) {
        close(p->descriptor);
        return false;
    }
    p->own_file = true;
    p->file_system = facts.st_dev;
    p->file = facts.st_ino;
    return true;
}

/* The file is as large as the system permits for a sparse file, since its offsets are used once. */
static bool make_common_file(void)
{
    int f = memfd_create("heddle-host-memory", MFD_CLOEXEC);
    if (f < 0) {
        return false;
    }
    for (int bits = 60; bits >= 40; bits -= 4) {
        if (hdi_quiet_resize(f, (off_t)1 << bits) == 0) {
            common_file = f;
            common_bytes = (off_t)1 << bits;
            return true;
        }
    }
    close(f);
    return false;
}

static bool common_part(hdi_host_physical *p)
{
    if (common_file < 0 && !make_common_file()) {
        return false;
    }
    if ((off_t)p->bytes > common_bytes - common_used) {
        return false;
    }
    p->descriptor = -1;
    p->offset = common_used;
    common_used += (off_t)p->bytes;
    return true;
}

hdcu_result hdi_host_cuMemCreate(hdcu_memhandle *handle, size_t bytes, const hdcu_mem_prop *prop,
                                 unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = check_prop(prop);
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
    p->bytes = p->charged = bytes;
    bool exportable = (prop->requested_handle_types & HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    /* A limit on the size of files may prevent the common file. Then all memory has files of its own. */
    if (!(exportable ? own_file(p) : common_part(p) || own_file(p))) {
        free(p);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    device->used += bytes;
    p->handle = hdi_host_handle_make(HDI_HOST_PHYSICAL, p);
    if (p->handle == 0) {
        physical_release_if_unused(p);
        return hdi_host_leave(HDCU_ERROR_OUT_OF_MEMORY);
    }
    p->handles = 1;
    *handle = p->handle;
    return hdi_host_leave(HDCU_SUCCESS);
}

hdcu_result hdi_host_cuMemRelease(hdcu_memhandle handle)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
        if (!p) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else if (--p->handles == 0) {
            drop_handles(p);
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemExportToShareableHandle(void *shareable, hdcu_memhandle handle, int handle_type,
                                                  unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
        if (!p || !shareable || !p->own_file || handle_type != HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            flags != 0) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else {
            int copy = fcntl(p->descriptor, F_DUPFD_CLOEXEC, 0);
            if (copy < 0) {
                r = HDCU_ERROR_OPERATING_SYSTEM;
            } else {
                memcpy(shareable, &copy, sizeof copy);
            }
        }
    }
    return hdi_host_leave(r);
}

/* The device of the descriptor's memory, where a host provider made that memory; else -1. */
static int imported_device(int descriptor)
{
    char path[64], name[128];
    int device = -1;
    int seals = fcntl(descriptor, F_GET_SEALS);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    ssize_t n = seals < 0 || !(seals & F_SEAL_SHRINK) ? -1 : readlink(path, name, sizeof name - 1);
    if (n <= 0) {
        return -1;
    }
    name[n] = 0;
    return sscanf(name, "/memfd:" OWN_FILE_NAME "%d", &device) == 1 ? device : -1;
}

static bool is_file(const hdi_host_physical *p, const struct stat *facts)
{
    return p && p->own_file && p->file == facts->st_ino && p->file_system == facts->st_dev;
}

/* The live physical memory of this file. NULL: it is new to this process, or is released and unmapped here. */
static hdi_host_physical *physical_of_file(const struct stat *facts)
{
    uint32_t position = 0;
    hdi_host_physical *p;
    while ((p = hdi_host_handle_next(HDI_HOST_PHYSICAL, &position))) {
        if (is_file(p, facts)) {
            return p;
        }
    }
    for (size_t i = 0; i < hdi_host_mappings.count; i++) {
        p = mapping_at(i)->physical;
        if (is_file(p, facts)) {
            return p;
        }
    }
    return NULL;
}

/* Gives a handle to memory that has none, and keeps its file open with it. */
static hdcu_result give_handle(hdi_host_physical *p, int descriptor)
{
    p->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (p->descriptor < 0) {
        return HDCU_ERROR_OPERATING_SYSTEM;
    }
    p->handle = hdi_host_handle_make(HDI_HOST_PHYSICAL, p);
    if (p->handle == 0) {
        close(p->descriptor);
        p->descriptor = -1;
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    return HDCU_SUCCESS;
}

static hdcu_result import(int descriptor, hdcu_memhandle *handle)
{
    struct stat facts;
    int device = imported_device(descriptor);
    if (device < 0 || fstat(descriptor, &facts) != 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (!hdi_host_device_valid(device)) {
        return HDCU_ERROR_NOT_SUPPORTED; /* made by a process with more devices */
    }
    hdi_host_physical *p = physical_of_file(&facts);
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) {
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
        p->device = device;
        p->bytes = (size_t)facts.st_size; /* charged where it was made */
        p->own_file = p->imported = true;
        p->descriptor = -1;
        p->file = facts.st_ino;
        p->file_system = facts.st_dev;
    }
    if (p->handles == 0) {
        hdcu_result r = give_handle(p, descriptor);
        if (r != HDCU_SUCCESS) {
            physical_release_if_unused(p);
            return r;
        }
    }
    p->handles++;
    *handle = p->handle;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuMemImportFromShareableHandle(hdcu_memhandle *handle, void *shareable, int handle_type)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!handle || handle_type != HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = import((int)(intptr_t)shareable, handle);
    }
    return hdi_host_leave(r);
}

/* --------------------------------------------------------------------------------------------------------- mappings -- */

hdcu_result hdi_host_cuMemMap(hdcu_deviceptr pointer, size_t bytes, size_t offset, hdcu_memhandle handle,
                              unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_physical *p = hdi_host_handle_find(HDI_HOST_PHYSICAL, handle);
    hdi_host_reservation *v = hdi_host_set_find(&hdi_host_reservations, pointer);
    /* the driver accepts no offset but 0 */
    if (!p || !v || bytes == 0 || bytes % HDI_HOST_GRANULE != 0 || pointer % HDI_HOST_GRANULE != 0 || offset != 0 ||
        bytes > p->bytes || flags != 0 || bytes > v->span.start + v->span.bytes - pointer ||
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
             p->own_file ? p->descriptor : common_file, p->offset) == MAP_FAILED) {
        r = errno == ENOMEM ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_OPERATING_SYSTEM;
        unmap(m);
    }
    return hdi_host_leave(r);
}

/* True when [address, +bytes) consists of whole mappings of cuMemMap without a gap. *first is the index of the first
 * one. */
static bool whole_mappings(uintptr_t address, size_t bytes, size_t *first)
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
        const hdi_host_mapping *m = mapping_at(i++);
        if (m->span.start != at || m->kind != HDI_HOST_VIRTUAL) {
            return false;
        }
        at += m->span.bytes;
    }
    return at == address + bytes;
}

hdcu_result hdi_host_cuMemUnmap(hdcu_deviceptr pointer, size_t bytes)
{
    size_t first;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !whole_mappings(pointer, bytes, &first)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        while (first < hdi_host_mappings.count && mapping_at(first)->span.start < pointer + bytes) {
            unmap(mapping_at(first));
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result check_access(size_t first, uintptr_t end, const hdcu_mem_access_desc *desc)
{
    int device = desc->location.id;
    if (desc->location.type != HDCU_MEM_LOCATION_TYPE_DEVICE ||
        (desc->flags != HDCU_MEM_ACCESS_NONE && desc->flags != HDCU_MEM_ACCESS_READWRITE)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (!hdi_host_device_valid(device)) {
        return HDCU_ERROR_INVALID_DEVICE;
    }
    for (size_t i = first; i < hdi_host_mappings.count && mapping_at(i)->span.start < end; i++) {
        int owner = mapping_at(i)->device;
        if (desc->flags != HDCU_MEM_ACCESS_NONE && owner != device) {
            if (!hdi_host_peer_possible(device, owner)) {
                return HDCU_ERROR_INVALID_DEVICE;
            }
            if (!hdi_host_peer_fits(device, owner)) {
                return HDCU_ERROR_TOO_MANY_PEERS;
            }
        }
    }
    return HDCU_SUCCESS;
}

static hdcu_result set_access(hdi_host_mapping *m, const hdcu_mem_access_desc *desc, size_t count)
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

hdcu_result hdi_host_cuMemSetAccess(hdcu_deviceptr pointer, size_t bytes, const hdcu_mem_access_desc *desc,
                                    size_t count)
{
    size_t first = 0;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!desc || count == 0 || !whole_mappings(pointer, bytes, &first))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    for (size_t d = 0; r == HDCU_SUCCESS && d < count; d++) {
        r = check_access(first, pointer + bytes, &desc[d]);
    }
    for (size_t i = first;
         r == HDCU_SUCCESS && i < hdi_host_mappings.count && mapping_at(i)->span.start < pointer + bytes; i++) {
        r = set_access(mapping_at(i), desc, count);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemGetAccess(unsigned long long *flags, const hdcu_mem_location *location,
                                    hdcu_deviceptr pointer)
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
