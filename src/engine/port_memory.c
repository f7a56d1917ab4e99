/* port_memory.c - device memory of the port to a driver in this process: addresses, mappings,
 * access of peers, handles that leave the process.
 *
 * The table of mappings contains chains of entries, chosen by address. So a lookup takes no longer
 * if there are many mappings.
 *
 * Threads, locks, invariants: see port_local.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "engine/port_local.h"

#define GRANULE_LEAST ((size_t)2 << 20)

hdi_answer hdi_local_know_memory(hdi_local_port *p)
{
    if (p->prop.type != 0) {
        return hdi_local_good;
    }
    int32_t descriptors = 0;
    hdi_answer answer =
        hdi_local_attribute(p, HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &descriptors);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdcu_mem_prop prop = {
        .type = HDCU_MEM_ALLOCATION_TYPE_PINNED,
        .requested_handle_types = descriptors ? HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : HDCU_MEM_HANDLE_TYPE_NONE,
        .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, p->config.device},
    };
    size_t granule = 0;
    answer =
        hdi_local_answer(p->config.driver->cuMemGetAllocationGranularity(&granule, &prop, HDCU_MEM_GRANULARITY_MINIMUM),
                         "cuMemGetAllocationGranularity");
    if (hdi_answered(answer)) {
        p->granule = granule > GRANULE_LEAST ? granule : GRANULE_LEAST;
        p->prop = prop;
    }
    return answer;
}

/* ---- the table of mappings: lock held ---- */

static uint32_t *local_mapping_chain(const hdi_local_port *p, uint64_t at)
{
    return &p->chains[(size_t)((at / GRANULE_LEAST * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (p->mappings_room - 1)];
}

static void local_mapping_chain_in(hdi_local_port *p, hdi_local_mapping *m)
{
    uint32_t *first = local_mapping_chain(p, m->at);
    m->next = *first;
    *first = (uint32_t)(m - p->mappings) + 1;
}

static void local_mapping_chain_out(hdi_local_port *p, const hdi_local_mapping *m)
{
    uint32_t *link = local_mapping_chain(p, m->at);
    while (*link != (uint32_t)(m - p->mappings) + 1) {
        link = &p->mappings[*link - 1].next;
    }
    *link = m->next;
}

static bool local_mapping_make_room(hdi_local_port *p)
{
    size_t room = p->mappings_room == 0 ? 16 : p->mappings_room * 2;
    hdi_local_mapping *mappings = realloc(p->mappings, room * sizeof *mappings);
    p->mappings = mappings != NULL ? mappings : p->mappings;
    uint32_t *chains = calloc(room, sizeof *chains);
    if (mappings == NULL || chains == NULL) {
        free(chains);
        return false;
    }
    free(p->chains);
    p->chains = chains;
    p->mappings_room = room;
    for (size_t i = 0; i < p->n_mappings; i++) {
        local_mapping_chain_in(p, &mappings[i]);
    }
    return true;
}

/* A new entry; NULL: no host memory. */
static hdi_local_mapping *local_mapping_add(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    if (p->n_mappings == p->mappings_room && !local_mapping_make_room(p)) {
        return NULL;
    }
    hdi_local_mapping *m = &p->mappings[p->n_mappings++];
    *m = (hdi_local_mapping){.at = at, .bytes = bytes};
    local_mapping_chain_in(p, m);
    return m;
}

/* Drops an entry that has no handle and no mapping. The last entry of the table takes its place. */
static void local_mapping_drop(hdi_local_port *p, hdi_local_mapping *m)
{
    hdi_local_mapping *last = &p->mappings[p->n_mappings - 1];
    local_mapping_chain_out(p, m);
    if (m != last) {
        local_mapping_chain_out(p, last);
        *m = *last;
        local_mapping_chain_in(p, m);
    }
    p->n_mappings--;
}

/* Returns an entry at an address. Prefers an entry that is not doomed. */
static hdi_local_mapping *local_mapping_at(hdi_local_port *p, uint64_t at)
{
    hdi_local_mapping *found = NULL;
    for (uint32_t i = p->mappings_room != 0 ? *local_mapping_chain(p, at) : 0; i != 0; i = p->mappings[i - 1].next) {
        hdi_local_mapping *m = &p->mappings[i - 1];
        if (m->at == at && (found == NULL || !m->doomed)) {
            found = m;
        }
    }
    return found;
}

static hdi_local_mapping *local_mapping_find(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    hdi_local_mapping *m = local_mapping_at(p, at);
    return m != NULL && m->bytes == bytes ? m : NULL;
}

/* The number of entries that make up a range. 0: the range contains gaps, or cuts an entry. */
static size_t local_mappings_in(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    size_t n = 0;
    uint64_t from = at;
    while (from - at < bytes) {
        const hdi_local_mapping *m = local_mapping_at(p, from);
        if (m == NULL || m->bytes > bytes - (from - at)) {
            return 0;
        }
        from += m->bytes;
        n++;
    }
    return n;
}

/* Unmaps and releases an entry as far as the driver allows. If something is left, the entry is
 * doomed; otherwise the last entry takes its place. */
static hdi_answer local_mapping_clear(hdi_local_port *p, hdi_local_mapping *m)
{
    const hdi_driver *driver = p->config.driver;
    hdi_answer first = hdi_local_good;
    if (m->mapped) {
        first = hdi_local_answer(driver->cuMemUnmap(m->at, m->bytes), "cuMemUnmap");
        m->mapped = !hdi_answered(first);
    }
    if (m->held) {
        /* The handle is released even if unmapping failed: the mapping keeps the memory until the
         * mapping ends. */
        /* Whatever the driver returns, the handle is not released again. The release may have
         * worked, and the driver may have given the handle out again. */
        first = hdi_local_first(first, hdi_local_answer(driver->cuMemRelease(m->handle), "cuMemRelease"));
        m->held = false;
    }
    p->n_doomed += m->mapped - m->doomed;
    m->doomed = m->mapped;
    if (!m->doomed) {
        local_mapping_drop(p, m);
    }
    return first;
}

/* Dooms all mappings of a range. */
static void local_mappings_doom(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        hdi_local_mapping *m = local_mapping_at(p, at + done);
        p->n_doomed += !m->doomed;
        m->doomed = true;
        done += m->bytes;
    }
}

/* Clears all doomed mappings. The loop runs from the last entry to the first. So if an entry moves
 * into the place of a cleared one, the loop already handled it. */
static hdi_answer local_mappings_clear_doomed(hdi_local_port *p)
{
    hdi_answer first = hdi_local_good;
    for (size_t i = p->n_mappings; i-- > 0 && p->n_doomed != 0;) {
        if (p->mappings[i].doomed) {
            first = hdi_local_first(first, local_mapping_clear(p, &p->mappings[i]));
        }
    }
    return first;
}

/* Unmaps a range of several whole mappings by one call. If that fails, local_mapping_clear unmaps
 * them one by one. */
static void local_mappings_unmap(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    if (bytes != 0 && local_mapping_find(p, at, bytes) == NULL &&
        p->config.driver->cuMemUnmap(at, bytes) == HDCU_SUCCESS) {
        for (uint64_t from = at; from - at < bytes;) {
            hdi_local_mapping *m = local_mapping_at(p, from);
            m->mapped = false;
            from += m->bytes;
        }
    }
}

/* Ends all mappings of a range, one after the other. */
static hdi_answer local_mappings_clear(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    hdi_answer first = hdi_local_good;
    for (uint64_t from = at; from - at < bytes;) {
        hdi_local_mapping *m = local_mapping_at(p, from);
        from += m->bytes;
        first = hdi_local_first(first, local_mapping_clear(p, m));
    }
    return first;
}

/* ---- device memory ---- */

static hdi_answer local_mapping_set_access(const hdi_local_port *p, hdcu_device device, uint64_t at, uint64_t bytes)
{
    hdcu_mem_access_desc desc = {{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, HDCU_MEM_ACCESS_READWRITE};
    return hdi_local_answer(p->config.driver->cuMemSetAccess(at, bytes, &desc, 1), "cuMemSetAccess");
}

/* Maps the memory of an entry that holds a handle, with access for this device. After a failure the
 * memory is unmapped. */
static hdi_answer local_mapping_map(hdi_local_port *p, hdi_local_mapping *m)
{
    hdi_answer answer = hdi_local_answer(p->config.driver->cuMemMap(m->at, m->bytes, 0, m->handle, 0), "cuMemMap");
    if (hdi_answered(answer)) {
        m->mapped = true;
        answer = local_mapping_set_access(p, p->config.device, m->at, m->bytes);
    }
    if (!hdi_answered(answer)) {
        local_mapping_clear(p, m);
    }
    return answer;
}

/* Call this after the driver call that makes the memory of a new entry. `answer`: the result of
 * that call. On success, maps the memory. Otherwise drops the entry, which is the last one. */
static hdi_answer local_mapping_got(hdi_local_port *p, hdi_local_mapping *m, hdi_answer answer)
{
    if (!hdi_answered(answer)) {
        local_mapping_drop(p, m);
        return answer;
    }
    m->held = true;
    return local_mapping_map(p, m);
}

/* Takes the lock and makes the context current. Clears mappings that could not be undone before. */
static hdi_answer local_mapping_begin(hdi_local_port *p, hdi_current *current)
{
    hdi_mutex_lock(&p->lock);
    hdi_answer answer = hdi_local_enter(p, current);
    if (hdi_answered(answer)) {
        answer = local_mappings_clear_doomed(p);
        if (!hdi_answered(answer)) {
            hdi_current_leave(current);
        }
    }
    if (!hdi_answered(answer)) {
        hdi_mutex_unlock(&p->lock);
    }
    return answer;
}

static hdi_answer local_mapping_end(hdi_local_port *p, hdi_current *current, hdi_answer answer)
{
    hdi_current_leave(current);
    hdi_mutex_unlock(&p->lock);
    return answer;
}

hdi_answer hdi_local_reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_mutex_lock(&p->lock);
    answer = hdi_local_know_memory(p);
    size_t alignment = p->granule;
    hdi_mutex_unlock(&p->lock);
    if (hdi_answered(answer)) {
        hdcu_deviceptr at = 0;
        answer = hdi_local_answer(p->config.driver->cuMemAddressReserve(&at, bytes, alignment, wanted, 0),
                                  "cuMemAddressReserve");
        if (hdi_answered(answer)) {
            *out = at;
        }
    }
    hdi_current_leave(&current);
    return answer;
}

hdi_answer hdi_local_unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer first = hdi_local_enter(p, &current);
    bool entered = hdi_answered(first);
    /* These calls go on without the context: they name addresses and handles, which belong to the
     * process. */
    for (size_t i = p->n_mappings; i-- > 0;) {
        hdi_local_mapping *m = &p->mappings[i];
        if (m->at >= at && m->at - at < bytes) {
            first = hdi_local_first(first, local_mapping_clear(p, m));
        }
    }
    first = hdi_local_first(first, hdi_local_answer(p->config.driver->cuMemAddressFree(at, bytes), "cuMemAddressFree"));
    if (entered) {
        hdi_current_leave(&current);
    }
    hdi_mutex_unlock(&p->lock);
    return first;
}

typedef hdi_answer (*memory_create)(hdi_local_port *p, uint64_t bytes, hdcu_memhandle *handle);

static hdi_answer local_create_memory(hdi_local_port *p, uint64_t bytes, hdcu_memhandle *handle)
{
    return hdi_local_answer(p->config.driver->cuMemCreate(handle, bytes, &p->prop, 0), "cuMemCreate");
}

/* Makes the memory of a piece. Without permission for handles that name memory in other machines,
 * makes a piece without such handles. */
static hdi_answer local_create_piece(hdi_local_port *p, uint64_t bytes, hdcu_memhandle *handle)
{
    hdcu_mem_prop prop = p->prop;
    int32_t rdma = 0, fabric = 0;
    /* If an older driver does not know an attribute, the device counts as one without the
     * feature. */
    if (!hdi_answered(hdi_local_attribute(p, HDCU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &rdma))) {
        rdma = 0;
    }
    if (!hdi_answered(hdi_local_attribute(p, HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, &fabric))) {
        fabric = 0;
    }
    prop.alloc_flags.gpu_direct_rdma_capable = rdma != 0;
    prop.requested_handle_types |= fabric ? HDCU_MEM_HANDLE_TYPE_FABRIC : 0;
    hdcu_result r = p->config.driver->cuMemCreate(handle, bytes, &prop, 0);
    if (r != HDCU_SUCCESS && r != HDCU_ERROR_OUT_OF_MEMORY && !hdi_driver_code_is_fatal(r) && fabric) {
        prop.requested_handle_types = p->prop.requested_handle_types;
        r = p->config.driver->cuMemCreate(handle, bytes, &prop, 0);
    }
    return hdi_local_answer(r, "cuMemCreate");
}

/* Maps memory that `create` makes. */
static hdi_answer local_map_created(hdi_port *port, uint64_t at, uint64_t bytes, memory_create create)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_mapping_begin(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = hdi_local_know_memory(p);
    if (!hdi_answered(answer)) {
        return local_mapping_end(p, &current, answer);
    }
    hdi_local_mapping *m = local_mapping_add(p, at, bytes);
    if (m == NULL) {
        return local_mapping_end(p, &current, hdi_local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc"));
    }
    answer = create(p, bytes, &m->handle);
    return local_mapping_end(p, &current, local_mapping_got(p, m, answer));
}

hdi_answer hdi_local_map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return local_map_created(port, at, bytes, local_create_memory);
}

hdi_answer hdi_local_map_piece(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return local_map_created(port, at, bytes, local_create_piece);
}

/* Makes one of several mappings, without access. */
static hdi_answer local_mapping_make_one(hdi_local_port *p, uint64_t at, uint64_t bytes)
{
    const hdi_driver *driver = p->config.driver;
    hdi_local_mapping *m = local_mapping_add(p, at, bytes);
    if (m == NULL) {
        return hdi_local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc");
    }
    hdi_answer answer = local_create_memory(p, bytes, &m->handle);
    if (!hdi_answered(answer)) {
        local_mapping_drop(p, m);
        return answer;
    }
    m->held = true;
    answer = hdi_local_answer(driver->cuMemMap(at, bytes, 0, m->handle, 0), "cuMemMap");
    m->mapped = hdi_answered(answer);
    if (!m->mapped) {
        local_mapping_clear(p, m);
    }
    return answer;
}

hdi_answer hdi_local_map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    if (each == 0 || bytes % each != 0) {
        return hdi_local_answer(HDCU_ERROR_INVALID_VALUE, "cuMemMap");
    }
    hdi_answer answer = local_mapping_begin(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = hdi_local_know_memory(p);
    uint64_t done = 0;
    for (; hdi_answered(answer) && done < bytes; done += hdi_answered(answer) ? each : 0) {
        answer = local_mapping_make_one(p, at + done, each);
    }
    if (hdi_answered(answer)) {
        answer = local_mapping_set_access(p, p->config.device, at, bytes);
    }
    if (!hdi_answered(answer) && done != 0) {
        local_mappings_clear(p, at, done);
    }
    return local_mapping_end(p, &current, answer);
}

/* Maps memory at its new place. The memory is unmapped, but the port still holds its handles. */
static hdi_answer local_mappings_map_again(hdi_local_port *p, uint64_t from, uint64_t to, uint64_t bytes)
{
    hdi_answer answer = hdi_local_good;
    uint64_t done = 0;
    while (done < bytes) {
        hdi_local_mapping *m = local_mapping_at(p, from + done);
        answer = hdi_local_answer(p->config.driver->cuMemMap(to + done, m->bytes, 0, m->handle, 0), "cuMemMap");
        if (!hdi_answered(answer)) {
            break;
        }
        local_mapping_chain_out(p, m);
        m->at = to + done;
        m->mapped = true;
        local_mapping_chain_in(p, m);
        done += m->bytes;
    }
    if (hdi_answered(answer)) {
        answer = local_mapping_set_access(p, p->config.device, to, bytes);
    }
    if (!hdi_answered(answer)) {
        local_mappings_clear(p, to, done);
        local_mappings_clear(p, from + done, bytes - done);
    }
    return answer;
}

hdi_answer hdi_local_move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_mutex_lock(&p->lock);
    hdi_answer answer = hdi_local_enter(p, &current);
    size_t n = local_mappings_in(p, from, bytes);
    if (!hdi_answered(answer)) {
        local_mappings_doom(p, from, n != 0 ? bytes : 0);
        hdi_mutex_unlock(&p->lock);
        return answer;
    }
    if (n == 0) {
        return local_mapping_end(p, &current, hdi_local_answer(HDCU_ERROR_NOT_MAPPED, "cuMemUnmap"));
    }
    local_mappings_unmap(p, from, bytes);
    for (uint64_t done = 0; hdi_answered(answer) && done < bytes;) {
        hdi_local_mapping *m = local_mapping_at(p, from + done);
        answer =
            m->mapped ? hdi_local_answer(p->config.driver->cuMemUnmap(m->at, m->bytes), "cuMemUnmap") : hdi_local_good;
        m->mapped = !hdi_answered(answer);
        done += m->bytes;
    }
    if (hdi_answered(answer)) {
        answer = local_mappings_clear_doomed(p);
    }
    if (hdi_answered(answer)) {
        answer = local_mappings_map_again(p, from, to, bytes);
    } else {
        local_mappings_clear(p, from, bytes);
    }
    return local_mapping_end(p, &current, answer);
}

hdi_answer hdi_local_unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    size_t n = local_mappings_in(p, at, bytes);
    if (hdi_answered(answer)) {
        local_mappings_unmap(p, at, n != 0 ? bytes : 0);
        answer = n != 0 ? local_mappings_clear(p, at, bytes) : hdi_local_answer(HDCU_ERROR_NOT_MAPPED, "cuMemUnmap");
        hdi_current_leave(&current);
    } else if (n != 0) {
        local_mappings_doom(p, at, bytes);
    }
    hdi_mutex_unlock(&p->lock);
    return answer;
}

hdi_answer hdi_local_grant(hdi_port *owner, int peer, uint64_t at, uint64_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(owner);
    if (p->config.devices == NULL || peer < 0 || peer >= p->config.n_devices) {
        return hdi_local_answer(HDCU_ERROR_INVALID_DEVICE, "cuMemSetAccess");
    }
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (hdi_answered(answer)) {
        answer = local_mapping_set_access(p, p->config.devices[peer], at, bytes);
        hdi_current_leave(&current);
    }
    return answer;
}

/* Exports the memory of one mapping as `type`. *shareable is of that type. */
static hdi_answer local_export_as(hdi_port *owner, uint64_t at, uint64_t bytes, int type, void *shareable)
{
    hdi_local_port *p = hdi_local_port_of(owner);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        hdi_mutex_unlock(&p->lock);
        return answer;
    }
    const hdi_local_mapping *m = local_mapping_find(p, at, bytes);
    if (m == NULL || m->doomed) {
        answer.code = HDCU_ERROR_NOT_MAPPED;
    } else {
        answer.code = p->config.driver->cuMemExportToShareableHandle(shareable, m->handle, type, 0);
    }
    answer.call = "cuMemExportToShareableHandle";
    return local_mapping_end(p, &current, answer);
}

hdi_answer hdi_local_export_memory(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor)
{
    int file = -1;
    bool held = hdi_descriptors_hold();
    hdi_answer answer = local_export_as(owner, at, bytes, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &file);
    hdi_descriptors_release(held);
    if (hdi_answered(answer)) {
        /* so no program that another thread starts inherits the descriptor */
        fcntl(file, F_SETFD, FD_CLOEXEC);
        *descriptor = file;
    }
    return answer;
}

hdi_answer hdi_local_export_fabric(hdi_port *owner, uint64_t at, uint64_t bytes, unsigned char out[HDI_FABRIC_BYTES])
{
    return local_export_as(owner, at, bytes, HDCU_MEM_HANDLE_TYPE_FABRIC, out);
}

static hdi_answer local_import_as(hdi_port *port, int type, void *shareable, uint64_t at, uint64_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_mapping_begin(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_local_mapping *m = local_mapping_add(p, at, bytes);
    if (m == NULL) {
        return local_mapping_end(p, &current, hdi_local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc"));
    }
    answer = hdi_local_answer(p->config.driver->cuMemImportFromShareableHandle(&m->handle, shareable, type),
                              "cuMemImportFromShareableHandle");
    return local_mapping_end(p, &current, local_mapping_got(p, m, answer));
}

hdi_answer hdi_local_import_memory(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes)
{
    return local_import_as(port, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, (void *)(intptr_t)descriptor, at, bytes);
}

hdi_answer hdi_local_import_fabric(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                   uint64_t bytes)
{
    unsigned char shareable[HDI_FABRIC_BYTES];
    int32_t fabric = 0;
    hdi_answer answer =
        hdi_local_attribute(hdi_local_port_of(port), HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, &fabric);
    if (hdi_driver_code_is_fatal(answer.code)) {
        return answer;
    }
    /* A driver that lacks the attribute has no such handles. */
    if (!hdi_answered(answer) || !fabric) {
        return hdi_local_answer(HDCU_ERROR_NOT_SUPPORTED, "cuMemImportFromShareableHandle");
    }
    memcpy(shareable, handle, sizeof shareable);
    return local_import_as(port, HDCU_MEM_HANDLE_TYPE_FABRIC, shareable, at, bytes);
}
