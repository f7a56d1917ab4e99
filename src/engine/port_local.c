/* port_local.c - the port to a driver in this process: facts, memory, pinning, lanes, modules, kernels, libraries.
 *
 * Threads: any. The thread that looks a kernel up writes the entry of the kernel's number, before any launch of it.
 * Locks: `lock` of the port covers its table of mappings. It is held across the driver calls that change the table. The
 * rest takes no lock.
 * Always:
 * - Driver calls are made with the device's context current. Only `unreserve` and `unpin` go on where it cannot be
 *   entered, since they name addresses and handles, which belong to the process.
 * - The table has every mapping and every handle that this port got from the driver and has not given back. Those that
 *   it could not give back are `doomed`. They are cleared before the next `map` or `import`, or by another `unmap`.
 * - A module's number is the driver's handle for it. A chunk of the table of kernels, once made, stays.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "engine/activities.h"
#include "engine/port.h"
#include "engine/stream.h"

#define GRANULE_LEAST ((size_t)2 << 20)

/* Memory that this port mapped. An entry that should be gone, but could not be undone, is `doomed`. It is cleared
 * before anything more is mapped. */
typedef struct local_mapping {
    uint64_t at, bytes;
    hdcu_memhandle handle;
    bool held, mapped; /* the handle is ours; it is mapped */
    bool doomed;
} local_mapping;

typedef struct local_port {
    hdi_port port; /* first: an hdi_port of this kind is an local_port */
    hdi_local_port_config config;
    struct hdi_engine *engine;

    hdi_mutex lock;
    local_mapping *mappings; /* under `lock`, like all below; in no order */
    size_t n_mappings, mappings_room;
    hdcu_mem_prop prop; /* of physical memory; type 0: not asked for yet */
    size_t granule;
} local_port;

static local_port *local_port_of(hdi_port *port)
{
    return (local_port *)(void *)port;
}

static hdi_answer local_answer(hdcu_result code, const char *call)
{
    return (hdi_answer){code, call};
}

/* Makes the device's context current. Only after success is it to be left (hdi_current_leave). */
static hdi_answer local_enter(const local_port *p, hdi_current *current)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    answer.code = hdi_current_enter(p->config.driver, p->config.context, current, &answer.call);
    return answer;
}

static const hdi_answer good = {HDCU_SUCCESS, ""};

/* The first one of two answers that is a failure. */
static hdi_answer first_of(hdi_answer a, hdi_answer b)
{
    return hdi_answered(a) ? b : a;
}

/* ---- facts: the context is current ---- */

static hdi_answer attribute(const local_port *p, int which, int32_t *out)
{
    int value = 0;
    hdi_answer answer =
        local_answer(p->config.driver->cuDeviceGetAttribute(&value, which, p->config.device), "cuDeviceGetAttribute");
    if (hdi_answered(answer)) {
        *out = value;
    }
    return answer;
}

static hdi_answer ask_attributes(const local_port *p, hdi_facts *f)
{
    int32_t threads = 0, block[3] = {0}, grid[3] = {0}, shared = 0, shared_max = 0;
    const struct {
        int which;
        int32_t *value;
    } wanted[] = {
        {HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &block[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &block[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &block[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &grid[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &grid[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &grid[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &shared},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_max},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &f->compute_major},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &f->compute_minor},
        {HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &f->multiprocessors},
        {HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &f->virtual_memory},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        hdi_answer answer = attribute(p, wanted[i].which, wanted[i].value);
        if (!hdi_answered(answer)) {
            return answer;
        }
    }
    f->limits.threads_per_block = (uint32_t)threads;
    for (int i = 0; i < 3; i++) {
        f->limits.block[i] = (uint32_t)block[i];
        f->limits.grid[i] = (uint32_t)grid[i];
    }
    f->limits.shared_default = (uint64_t)shared;
    f->limits.shared_max = (uint64_t)(shared_max > shared ? shared_max : shared);
    return good;
}

static hdi_answer ask_identity(const local_port *p, hdi_facts *f)
{
    const hdi_driver *driver = p->config.driver;
    hdcu_device device = p->config.device;
    hdi_answer answer = local_answer(driver->cuDeviceGetName(f->name, sizeof f->name, device), "cuDeviceGetName");
    if (hdi_answered(answer)) {
        answer = local_answer(driver->cuDeviceGetPCIBusId(f->bus_id, sizeof f->bus_id, device), "cuDeviceGetPCIBusId");
    }
    hdcu_uuid uuid;
    if (hdi_answered(answer)) {
        answer = local_answer(driver->cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
    }
    if (hdi_answered(answer)) {
        memcpy(f->uuid, uuid.bytes, sizeof f->uuid);
        size_t bytes = 0;
        answer = local_answer(driver->cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
        f->memory_bytes = bytes;
    }
    return answer;
}

/* An attribute of a pair of devices; `otherwise` where the driver does not report it. */
static int pair_attribute(const local_port *p, int which, hdcu_device peer, int otherwise)
{
    int value = 0;
    hdcu_result r = p->config.driver->cuDeviceGetP2PAttribute(&value, which, p->config.device, peer);
    return r == HDCU_SUCCESS ? value : otherwise;
}

/* A pair that the driver does not report counts as not connected. */
static void ask_peers(const local_port *p, hdi_facts *f)
{
    for (int j = 0; p->config.devices != NULL && j < p->config.n_devices && j < 64; j++) {
        hdcu_device peer = p->config.devices[j];
        int can = 0;
        if (j == p->config.index ||
            p->config.driver->cuDeviceCanAccessPeer(&can, p->config.device, peer) != HDCU_SUCCESS || !can) {
            continue;
        }
        uint64_t bit = (uint64_t)1 << j;
        f->peers |= bit;
        if (!pair_attribute(p, HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, peer, 1)) {
            f->peers_denied |= bit;
        }
        if (pair_attribute(p, HDCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, peer, 0)) {
            f->peers_atomic |= bit;
        }
    }
}

/* Asks the driver once for the properties of physical memory. Lock held. */
static hdi_answer know_memory(local_port *p)
{
    if (p->prop.type != 0) {
        return good;
    }
    int32_t descriptors = 0;
    hdi_answer answer = attribute(p, HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &descriptors);
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
        local_answer(p->config.driver->cuMemGetAllocationGranularity(&granule, &prop, HDCU_MEM_GRANULARITY_MINIMUM),
                     "cuMemGetAllocationGranularity");
    if (hdi_answered(answer)) {
        p->granule = granule > GRANULE_LEAST ? granule : GRANULE_LEAST;
        p->prop = prop;
    }
    return answer;
}

static hdi_answer facts(hdi_port *port, hdi_facts *out)
{
    local_port *p = local_port_of(port);
    hdi_facts f;
    memset(&f, 0, sizeof f);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = ask_attributes(p, &f);
    if (hdi_answered(answer)) {
        answer = ask_identity(p, &f);
    }
    if (hdi_answered(answer) && f.virtual_memory) {
        hdi_mutex_lock(&p->lock);
        answer = know_memory(p);
        f.granule = p->granule;
        hdi_mutex_unlock(&p->lock);
    }
    if (hdi_answered(answer)) {
        ask_peers(p, &f);
        *out = f;
    }
    hdi_current_leave(&current);
    return answer;
}

static hdi_answer memory_free(hdi_port *port, uint64_t *out)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (hdi_answered(answer)) {
        size_t free_bytes = 0, total = 0;
        answer = local_answer(p->config.driver->cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
        hdi_current_leave(&current);
        if (hdi_answered(answer)) {
            *out = free_bytes;
        }
    }
    return answer;
}

/* ---- the table of mappings: lock held ---- */

/* A new entry; NULL: no host memory. */
static local_mapping *mapping_add(local_port *p, uint64_t at, uint64_t bytes)
{
    if (p->n_mappings == p->mappings_room) {
        size_t room = p->mappings_room == 0 ? 16 : p->mappings_room * 2;
        local_mapping *mappings = realloc(p->mappings, room * sizeof *mappings);
        if (mappings == NULL) {
            return NULL;
        }
        p->mappings = mappings;
        p->mappings_room = room;
    }
    local_mapping *m = &p->mappings[p->n_mappings++];
    *m = (local_mapping){.at = at, .bytes = bytes};
    return m;
}

static local_mapping *mapping_find(local_port *p, uint64_t at, uint64_t bytes)
{
    for (size_t i = 0; i < p->n_mappings; i++) {
        if (p->mappings[i].at == at && p->mappings[i].bytes == bytes) {
            return &p->mappings[i];
        }
    }
    return NULL;
}

/* Unmaps and releases as far as the driver allows. What is left dooms the entry. If nothing is left, the last entry
 * takes its place. */
static hdi_answer mapping_clear(local_port *p, local_mapping *m)
{
    const hdi_driver *driver = p->config.driver;
    hdi_answer first = good;
    if (m->mapped) {
        first = local_answer(driver->cuMemUnmap(m->at, m->bytes), "cuMemUnmap");
        m->mapped = !hdi_answered(first);
    }
    if (m->held) {
        /* Also where unmapping failed: the mapping keeps the memory until it ends itself. */
        /* Never twice, whatever the driver returns: the release may have worked, and the handle may have been given out
         * again. */
        first = first_of(first, local_answer(driver->cuMemRelease(m->handle), "cuMemRelease"));
        m->held = false;
    }
    m->doomed = m->mapped;
    if (!m->doomed) {
        *m = p->mappings[--p->n_mappings];
    }
    return first;
}

/* From the last to the first, so that the entry that replaces a cleared one has been handled before. */
static hdi_answer clear_doomed(local_port *p)
{
    hdi_answer first = good;
    for (size_t i = p->n_mappings; i-- > 0;) {
        if (p->mappings[i].doomed) {
            first = first_of(first, mapping_clear(p, &p->mappings[i]));
        }
    }
    return first;
}

/* ---- device memory ---- */

static hdi_answer set_access(const local_port *p, hdcu_device device, uint64_t at, uint64_t bytes)
{
    hdcu_mem_access_desc desc = {{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, HDCU_MEM_ACCESS_READWRITE};
    return local_answer(p->config.driver->cuMemSetAccess(at, bytes, &desc, 1), "cuMemSetAccess");
}

/* Maps the memory of an entry that holds a handle, with access for this device. Undone on failure. */
static hdi_answer mapping_map(local_port *p, local_mapping *m)
{
    hdi_answer answer = local_answer(p->config.driver->cuMemMap(m->at, m->bytes, 0, m->handle, 0), "cuMemMap");
    if (hdi_answered(answer)) {
        m->mapped = true;
        answer = set_access(p, p->config.device, m->at, m->bytes);
    }
    if (!hdi_answered(answer)) {
        mapping_clear(p, m);
    }
    return answer;
}

/* After the call that made a new mapping's memory: maps it or, if that call failed, drops the mapping, which is the
 * last one. */
static hdi_answer mapping_got(local_port *p, local_mapping *m, hdi_answer answer)
{
    if (!hdi_answered(answer)) {
        p->n_mappings--;
        return answer;
    }
    m->held = true;
    return mapping_map(p, m);
}

/* Takes the lock and makes the context current. Clears what could not be undone before. */
static hdi_answer begin_mapping(local_port *p, hdi_current *current)
{
    hdi_mutex_lock(&p->lock);
    hdi_answer answer = local_enter(p, current);
    if (hdi_answered(answer)) {
        answer = clear_doomed(p);
        if (!hdi_answered(answer)) {
            hdi_current_leave(current);
        }
    }
    if (!hdi_answered(answer)) {
        hdi_mutex_unlock(&p->lock);
    }
    return answer;
}

static hdi_answer end_mapping(local_port *p, hdi_current *current, hdi_answer answer)
{
    hdi_current_leave(current);
    hdi_mutex_unlock(&p->lock);
    return answer;
}

static hdi_answer reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_mutex_lock(&p->lock);
    answer = know_memory(p);
    size_t alignment = p->granule;
    hdi_mutex_unlock(&p->lock);
    if (hdi_answered(answer)) {
        hdcu_deviceptr at = 0;
        answer = local_answer(p->config.driver->cuMemAddressReserve(&at, bytes, alignment, wanted, 0),
                              "cuMemAddressReserve");
        if (hdi_answered(answer)) {
            *out = at;
        }
    }
    hdi_current_leave(&current);
    return answer;
}

static hdi_answer unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(port);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer first = local_enter(p, &current);
    bool entered = hdi_answered(first);
    /* Without the context the calls are made, too: they name addresses and handles, which belong to the process. */
    for (size_t i = p->n_mappings; i-- > 0;) {
        local_mapping *m = &p->mappings[i];
        if (m->at >= at && m->at - at < bytes) {
            first = first_of(first, mapping_clear(p, m));
        }
    }
    first = first_of(first, local_answer(p->config.driver->cuMemAddressFree(at, bytes), "cuMemAddressFree"));
    if (entered) {
        hdi_current_leave(&current);
    }
    hdi_mutex_unlock(&p->lock);
    return first;
}

static hdi_answer map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = begin_mapping(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = know_memory(p);
    if (!hdi_answered(answer)) {
        return end_mapping(p, &current, answer);
    }
    local_mapping *m = mapping_add(p, at, bytes);
    if (m == NULL) {
        return end_mapping(p, &current, local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc"));
    }
    answer = local_answer(p->config.driver->cuMemCreate(&m->handle, bytes, &p->prop, 0), "cuMemCreate");
    return end_mapping(p, &current, mapping_got(p, m, answer));
}

/* Asks for a piece. A handle type for other machines may need a permission that is missing, so it is left out where that fails. */
static hdi_answer create_piece(local_port *p, uint64_t bytes, hdcu_memhandle *handle)
{
    hdcu_mem_prop prop = p->prop;
    int32_t rdma = 0, fabric = 0;
    /* What an older driver does not have, the device cannot do. */
    if (!hdi_answered(attribute(p, HDCU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &rdma))) {
        rdma = 0;
    }
    if (!hdi_answered(attribute(p, HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, &fabric))) {
        fabric = 0;
    }
    prop.alloc_flags.gpu_direct_rdma_capable = rdma != 0;
    prop.requested_handle_types |= fabric ? HDCU_MEM_HANDLE_TYPE_FABRIC : 0;
    hdcu_result r = p->config.driver->cuMemCreate(handle, bytes, &prop, 0);
    if (r != HDCU_SUCCESS && r != HDCU_ERROR_OUT_OF_MEMORY && !hdi_driver_code_is_fatal(r) && fabric) {
        prop.requested_handle_types = p->prop.requested_handle_types;
        r = p->config.driver->cuMemCreate(handle, bytes, &prop, 0);
    }
    return local_answer(r, "cuMemCreate");
}

static hdi_answer map_piece(hdi_port *port, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = begin_mapping(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = know_memory(p);
    if (!hdi_answered(answer)) {
        return end_mapping(p, &current, answer);
    }
    local_mapping *m = mapping_add(p, at, bytes);
    if (m == NULL) {
        return end_mapping(p, &current, local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc"));
    }
    answer = create_piece(p, bytes, &m->handle);
    return end_mapping(p, &current, mapping_got(p, m, answer));
}

static hdi_answer unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(port);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    local_mapping *m = mapping_find(p, at, bytes);
    if (hdi_answered(answer)) {
        answer = m != NULL ? mapping_clear(p, m) : local_answer(HDCU_ERROR_NOT_MAPPED, "cuMemUnmap");
        hdi_current_leave(&current);
    } else if (m != NULL) {
        m->doomed = true;
    }
    hdi_mutex_unlock(&p->lock);
    return answer;
}

static hdi_answer grant(hdi_port *owner, int peer, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(owner);
    if (p->config.devices == NULL || peer < 0 || peer >= p->config.n_devices) {
        return local_answer(HDCU_ERROR_INVALID_DEVICE, "cuMemSetAccess");
    }
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (hdi_answered(answer)) {
        answer = set_access(p, p->config.devices[peer], at, bytes);
        hdi_current_leave(&current);
    }
    return answer;
}

/* Exports the memory of one mapping as `type`, whose form *shareable has. */
static hdi_answer export_as(hdi_port *owner, uint64_t at, uint64_t bytes, int type, void *shareable)
{
    local_port *p = local_port_of(owner);
    hdi_mutex_lock(&p->lock);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        hdi_mutex_unlock(&p->lock);
        return answer;
    }
    const local_mapping *m = mapping_find(p, at, bytes);
    if (m == NULL || m->doomed) {
        answer.code = HDCU_ERROR_NOT_MAPPED;
    } else {
        answer.code = p->config.driver->cuMemExportToShareableHandle(shareable, m->handle, type, 0);
    }
    answer.call = "cuMemExportToShareableHandle";
    return end_mapping(p, &current, answer);
}

static hdi_answer export_memory(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor)
{
    int file = -1;
    hdi_answer answer = export_as(owner, at, bytes, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &file);
    if (hdi_answered(answer)) {
        fcntl(file, F_SETFD, FD_CLOEXEC); /* no program that another thread starts inherits it */
        *descriptor = file;
    }
    return answer;
}

static hdi_answer export_fabric(hdi_port *owner, uint64_t at, uint64_t bytes, unsigned char out[HDI_FABRIC_BYTES])
{
    return export_as(owner, at, bytes, HDCU_MEM_HANDLE_TYPE_FABRIC, out);
}

static hdi_answer import_as(hdi_port *port, int type, void *shareable, uint64_t at, uint64_t bytes)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = begin_mapping(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    local_mapping *m = mapping_add(p, at, bytes);
    if (m == NULL) {
        return end_mapping(p, &current, local_answer(HDCU_ERROR_OUT_OF_MEMORY, "realloc"));
    }
    answer = local_answer(p->config.driver->cuMemImportFromShareableHandle(&m->handle, shareable, type),
                          "cuMemImportFromShareableHandle");
    return end_mapping(p, &current, mapping_got(p, m, answer));
}

static hdi_answer import_memory(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes)
{
    return import_as(port, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, (void *)(intptr_t)descriptor, at, bytes);
}

static hdi_answer import_fabric(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                uint64_t bytes)
{
    unsigned char shareable[HDI_FABRIC_BYTES];
    int32_t fabric = 0;
    hdi_answer answer = attribute(local_port_of(port), HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, &fabric);
    if (hdi_driver_code_is_fatal(answer.code)) {
        return answer;
    }
    if (!hdi_answered(answer) || !fabric) { /* a driver that lacks the question has no such handles */
        return local_answer(HDCU_ERROR_NOT_SUPPORTED, "cuMemImportFromShareableHandle");
    }
    memcpy(shareable, handle, sizeof shareable);
    return import_as(port, HDCU_MEM_HANDLE_TYPE_FABRIC, shareable, at, bytes);
}

/* ---- pinned memory ---- */

static hdi_answer pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    (void)descriptor;
    local_port *p = local_port_of(port);
    const hdi_driver *driver = p->config.driver;
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = local_answer(
        driver->cuMemHostRegister(base, bytes, HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
    if (hdi_answered(answer)) {
        hdcu_deviceptr seen = 0;
        answer = local_answer(driver->cuMemHostGetDevicePointer(&seen, base, 0), "cuMemHostGetDevicePointer");
        if (hdi_answered(answer)) {
            *address = seen;
        } else {
            /* If this fails, too, `unpin` still finds the registration. */
            driver->cuMemHostUnregister(base);
        }
    }
    hdi_current_leave(&current);
    return answer;
}

static hdi_answer unpin(hdi_port *port, void *base, uint64_t bytes)
{
    (void)bytes;
    local_port *p = local_port_of(port);
    hdi_current current;
    bool entered = hdi_answered(local_enter(p, &current));
    /* Tried without the context as well, since only this ensures that no device uses the memory any more. */
    hdi_answer answer = local_answer(p->config.driver->cuMemHostUnregister(base), "cuMemHostUnregister");
    if (entered) {
        hdi_current_leave(&current);
    }
    return answer;
}

/* ---- lanes ---- */

static hdi_answer local_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    return hdi_stream_make(local_port_of(port)->engine, number, sticky_failure);
}

/* ---- modules ---- */

static hdi_answer local_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    local_port *p = local_port_of(port);
    memset(log, 0, HDI_CODE_LOG_BYTES);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    int options[] = {HDCU_JIT_ERROR_LOG_BUFFER, HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)HDI_CODE_LOG_BYTES};
    hdcu_module module = NULL;
    answer = local_answer(p->config.driver->cuModuleLoadDataEx(&module, code->bytes, 2, options, values),
                          "cuModuleLoadDataEx");
    hdi_current_leave(&current);
    log[HDI_CODE_LOG_BYTES - 1] = '\0';
    if (hdi_answered(answer)) {
        *out = (uint64_t)(uintptr_t)module;
    }
    return answer;
}

/* Takes the module's kernels out of the table. Their bits are set in `kernels`. */
static void leave_table(local_port *p, uint64_t module, uint64_t kernels[HDI_KERNEL_WORDS])
{
    hd_runtime *rt = p->config.runtime;
    for (uint32_t number = 0; number < HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS; number++) {
        if (!hdi_kernel_exists(rt, number)) {
            number += HDI_KERNEL_CHUNK - 1; /* nor is there another one in its chunk */
            continue;
        }
        _Atomic uint64_t *at = &hdi_kernel_at(rt, number)->module[p->config.index];
        /* relaxed: no thread asks for kernels of a module that is being unloaded */
        if (atomic_load_explicit(at, memory_order_relaxed) == module) {
            atomic_store_explicit(at, 0, memory_order_relaxed);
            kernels[number / 64 % HDI_KERNEL_WORDS] |= (uint64_t)1 << number % 64;
        }
    }
}

static hdi_answer local_unload(hdi_port *port, uint64_t module)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (hdi_answered(answer)) {
        uint64_t kernels[HDI_KERNEL_WORDS] = {0};
        leave_table(p, module, kernels);
        if (p->engine) {
            hdi_chains_forget(p->engine, kernels);
        }
        answer = local_answer(p->config.driver->cuModuleUnload((hdcu_module)(uintptr_t)module), "cuModuleUnload");
        hdi_current_leave(&current);
    }
    return answer;
}

/* ---- kernels ---- */

bool hdi_kernel_table_reach(struct hd_runtime *rt, uint32_t number)
{
    if (number >= HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS) {
        return false;
    }
    _Atomic(hdi_kernel_code *) *slot = &rt->kernels[number / HDI_KERNEL_CHUNK];
    /* pairs with the release store by which a chunk is made */
    if (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
        return true;
    }
    hdi_kernel_code *chunk = calloc(HDI_KERNEL_CHUNK, sizeof *chunk);
    hdi_kernel_code *there = NULL;
    /* Release: pairs with the acquire load in hdi_kernel_at. Several ports share the table, so the first chunk
     * stays. */
    if (chunk != NULL &&
        !atomic_compare_exchange_strong_explicit(slot, &there, chunk, memory_order_release, memory_order_relaxed)) {
        free(chunk);
    }
    return chunk != NULL;
}

/* Finds where each parameter lies. The driver returns INVALID_VALUE behind the last one. */
static hdi_answer ask_params(const hdi_driver *driver, hdcu_function function, hdi_kernel_facts *out)
{
    hdi_answer answer = {HDCU_SUCCESS, "cuFuncGetParamInfo"};
    out->n_params = UINT32_MAX;
    if (driver->cuFuncGetParamInfo == NULL) {
        return answer;
    }
    uint32_t n = 0;
    while (n < HDI_FUNCTION_PARAMS_MAX) {
        size_t offset = 0, size = 0;
        answer.code = driver->cuFuncGetParamInfo(function, n, &offset, &size);
        if (!hdi_answered(answer)) {
            break;
        }
        out->params[n].offset = (uint16_t)offset;
        out->params[n++].size = (uint16_t)size;
    }
    if (hdi_driver_code_is_fatal(answer.code)) {
        return answer;
    }
    if (hdi_answered(answer) || answer.code == HDCU_ERROR_INVALID_VALUE) {
        out->n_params = n;
    }
    answer.code = HDCU_SUCCESS;
    return answer;
}

/* The context is current. */
static hdi_answer look_up(const hdi_driver *driver, hdcu_module module, const char *name, hdcu_function *function,
                          hdi_kernel_facts *out)
{
    int threads = 0, shared = 0;
    hdi_answer answer = local_answer(driver->cuModuleGetFunction(function, module, name), "cuModuleGetFunction");
    if (hdi_answered(answer)) {
        answer =
            local_answer(driver->cuFuncGetAttribute(&threads, HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function),
                         "cuFuncGetAttribute");
    }
    if (hdi_answered(answer)) {
        answer = local_answer(driver->cuFuncGetAttribute(&shared, HDCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *function),
                              "cuFuncGetAttribute");
    }
    if (hdi_answered(answer)) {
        answer = ask_params(driver, *function, out);
    }
    out->max_threads = (uint32_t)threads;
    out->static_shared = (uint32_t)shared;
    return answer;
}

static hdi_answer local_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number,
                               hdi_kernel_facts *out)
{
    local_port *p = local_port_of(port);
    if (!hdi_kernel_table_reach(p->config.runtime, number)) {
        return local_answer(HDCU_ERROR_OUT_OF_MEMORY, "calloc");
    }
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_kernel_facts kernel;
    memset(&kernel, 0, sizeof kernel);
    hdcu_function function = NULL;
    answer = look_up(p->config.driver, (hdcu_module)(uintptr_t)module, name, &function, &kernel);
    hdi_current_leave(&current);
    if (hdi_answered(answer)) {
        hdi_kernel_code *code = hdi_kernel_at(p->config.runtime, number);
        atomic_store_explicit(&code->module[p->config.index], module, memory_order_relaxed);
        /* pairs with the acquire load where the engine launches it */
        atomic_store_explicit(&code->function[p->config.index], function, memory_order_release);
        *out = kernel;
    }
    return answer;
}

static hdi_answer local_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
{
    local_port *p = local_port_of(port);
    if (!hdi_kernel_table_reach(p->config.runtime, number)) {
        return local_answer(HDCU_ERROR_OUT_OF_MEMORY, "calloc");
    }
    hdcu_function function = atomic_load_explicit(&hdi_kernel_at(p->config.runtime, number)->function[p->config.index],
                                                  memory_order_acquire);
    if (function == NULL || bytes > INT32_MAX) {
        return local_answer(function == NULL ? HDCU_ERROR_INVALID_HANDLE : HDCU_ERROR_INVALID_VALUE,
                            "cuFuncSetAttribute");
    }
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (hdi_answered(answer)) {
        answer = local_answer(p->config.driver->cuFuncSetAttribute(
                                  function, HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
                              "cuFuncSetAttribute");
        hdi_current_leave(&current);
    }
    return answer;
}

static hdi_answer local_global(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out)
{
    local_port *p = local_port_of(port);
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdcu_deviceptr address = 0;
    size_t bytes = 0;
    answer = local_answer(p->config.driver->cuModuleGetGlobal(&address, &bytes, (hdcu_module)(uintptr_t)module, name),
                          "cuModuleGetGlobal");
    hdi_current_leave(&current);
    if (hdi_answered(answer)) {
        *out = (hdi_global_place){.address = address, .bytes = bytes};
    }
    return answer;
}

/* ---- libraries ---- */

static hdi_answer local_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out)
{
    local_port *p = local_port_of(port);
    hdi_stream *stream = &p->engine->streams[number];
    /* pairs with the release store in hdi_stream_make */
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        return local_answer(HDCU_ERROR_INVALID_HANDLE, "blasOpen");
    }
    const hdi_blas *there = atomic_load_explicit(&stream->blas, memory_order_acquire);
    if (there != NULL) {
        *out = there->facts;
        return local_answer(HDCU_SUCCESS, "blasOpen");
    }
    hdi_current current;
    hdi_answer answer = local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_blas_config config = {.driver = p->config.driver,
                              .library = p->config.runtime->options.blas,
                              .stream = stream->handle,
                              .workspace = workspace,
                              .workspace_bytes = bytes,
                              .share = p->config.runtime->is_process ? p->config.runtime->n_devices : 0};
    hdi_blas *blas = NULL;
    answer.code = hdi_blas_open(&config, &blas, out, &answer.call);
    hdi_current_leave(&current);
    /* pairs with the acquire load where the engine makes a product */
    atomic_store_explicit(&stream->blas, blas, memory_order_release);
    return answer;
}

static hdi_answer local_activities(hdi_port *port, bool on, hdi_activities_facts *out)
{
    local_port *p = local_port_of(port);
    *out = (hdi_activities_facts){.works = 0};
    if (!p->engine) {
        return local_answer(HDCU_ERROR_INVALID_HANDLE, "");
    }
    if (on) {
        out->works = hdi_engine_activities_begin(p->engine, out->why);
    } else {
        hdi_engine_activities_end(p->engine);
        out->works = 1;
    }
    return good;
}

/* ---- the port ---- */

static const hdi_port_calls calls = {
    .facts = facts,
    .memory_free = memory_free,
    .lane = local_lane,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .map_piece = map_piece,
    .unmap = unmap,
    .grant = grant,
    .export = export_memory,
    .import = import_memory,
    .export_fabric = export_fabric,
    .import_fabric = import_fabric,
    .pin = pin,
    .unpin = unpin,
    .load = local_load,
    .unload = local_unload,
    .kernel = local_kernel,
    .kernel_shared = local_kernel_shared,
    .global = local_global,
    .blas = local_blas,
    .activities = local_activities,
};

hdi_port *hdi_local_port_create(const hdi_local_port_config *config)
{
    local_port *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->port.calls = &calls;
    p->config = *config;
    hdi_mutex_init(&p->lock, HDI_RANK_PORT);
    return &p->port;
}

void hdi_local_port_set_engine(hdi_port *port, struct hdi_engine *engine)
{
    local_port_of(port)->engine = engine;
}

void hdi_local_port_destroy(hdi_port *port)
{
    if (port != NULL) {
        local_port *p = local_port_of(port);
        hdi_mutex_destroy(&p->lock);
        free(p->mappings);
        free(p);
    }
}
