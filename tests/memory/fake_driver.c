/* fake_driver.c - the books behind the fake driver. See fake_driver.h for threads and locks. */
#include "fake_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

fake_books fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char context_object;
const hdcu_context fake_context = (hdcu_context)(void *)&context_object;

static _Thread_local hdcu_context stack[16];
static _Thread_local int depth;

hdcu_context fake_top(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

int fake_depth(void)
{
    return depth;
}

void fake_set_stack(hdcu_context only)
{
    depth = only != NULL;
    stack[0] = only;
}

void fake_reset(size_t total)
{
    pthread_mutex_lock(&lock);
    memset(&fake, 0, sizeof fake);
    fake.total = total;
    fake.granularity = 2 * FAKE_MIB;
    fake.unreachable = -1;
    fake.most = SIZE_MAX;
    pthread_mutex_unlock(&lock);
    fake_set_stack(NULL);
}

void fake_fail(const char *only, long at, bool for_good, int code)
{
    pthread_mutex_lock(&lock);
    fake.calls = 0;
    fake.fail_only = only;
    fake.fail_at = at;
    fake.fail_for_good = for_good;
    fake.fail_code = code;
    pthread_mutex_unlock(&lock);
}

bool fake_is_clean(void)
{
    pthread_mutex_lock(&lock);
    bool clean = fake.base == 0 && fake.created == 0 && fake.n_registered == 0 && fake.misuses == 0;
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        clean = clean && !fake.chunks[i].held && fake.chunks[i].at == 0;
    }
    pthread_mutex_unlock(&lock);
    return clean;
}

bool fake_is_mapped(hdcu_deviceptr at, size_t bytes, int device)
{
    pthread_mutex_lock(&lock);
    size_t covered = 0;
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        const fake_chunk *c = &fake.chunks[i];
        if (c->at != 0 && c->flags[device] == HDCU_MEM_ACCESS_READWRITE) {
            hdcu_deviceptr from = at > c->at ? at : c->at;
            hdcu_deviceptr to = at + bytes < c->at + c->bytes ? at + bytes : c->at + c->bytes;
            covered += from < to ? (size_t)(to - from) : 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return covered == bytes;
}

int fake_chunks_mapped(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        n += fake.chunks[i].at != 0;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* Starts a call and returns with the lock held. The call must fail with the returned code unless it
 * is 0. */
static hdcu_result begin(const char *name)
{
    pthread_mutex_lock(&lock);
    if (fake.fail_only == NULL || strcmp(fake.fail_only, name) == 0) {
        fake.calls++;
        if (fake.fail_at != 0 && (fake.calls == fake.fail_at || (fake.fail_for_good && fake.calls > fake.fail_at))) {
            fake.failed = fake.failed != NULL ? fake.failed : name;
            return fake.fail_code;
        }
    }
    return HDCU_SUCCESS;
}

static hdcu_result end(hdcu_result code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

static hdcu_result misuse(void)
{
    fake.misuses++;
    return end(HDCU_ERROR_INVALID_VALUE);
}

/* Like begin, for calls that need the context. */
#define BEGIN(name)                                                                                                    \
    hdcu_result begun = begin(name);                                                                                   \
    if (begun != HDCU_SUCCESS) {                                                                                       \
        return end(begun);                                                                                             \
    }

static hdcu_result get_current(hdcu_context *context)
{
    BEGIN("cuCtxGetCurrent");
    *context = fake_top();
    return end(HDCU_SUCCESS);
}

static hdcu_result set_current(hdcu_context context)
{
    BEGIN("cuCtxSetCurrent");
    depth = depth > 0 ? depth - 1 : 0;
    if (context != NULL) {
        stack[depth++] = context;
    }
    return end(HDCU_SUCCESS);
}

static hdcu_result push_current(hdcu_context context)
{
    BEGIN("cuCtxPushCurrent");
    stack[depth++] = context;
    return end(HDCU_SUCCESS);
}

static hdcu_result pop_current(hdcu_context *context)
{
    BEGIN("cuCtxPopCurrent");
    if (depth == 0) {
        return misuse();
    }
    *context = stack[--depth];
    return end(HDCU_SUCCESS);
}

static hdcu_result total_mem(size_t *bytes, hdcu_device device)
{
    (void)device;
    BEGIN("cuDeviceTotalMem");
    *bytes = fake.total;
    return end(HDCU_SUCCESS);
}

static hdcu_result get_attribute(int *value, int attribute, hdcu_device device)
{
    (void)device;
    BEGIN("cuDeviceGetAttribute");
    switch (attribute) {
    case HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = !fake.no_virtual_memory;
        break;
    case HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = !fake.no_file_descriptors;
        break;
    default:
        *value = 1;
        break;
    }
    return end(HDCU_SUCCESS);
}

static hdcu_result get_name(char *name, int length, hdcu_device device)
{
    (void)device;
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)length, "fake");
    return end(HDCU_SUCCESS);
}

static hdcu_result get_bus_id(char *bus_id, int length, hdcu_device device)
{
    BEGIN("cuDeviceGetPCIBusId");
    snprintf(bus_id, (size_t)length, "fake:%d", device);
    return end(HDCU_SUCCESS);
}

static hdcu_result get_uuid(hdcu_uuid *uuid, hdcu_device device)
{
    BEGIN("cuDeviceGetUuid");
    memset(uuid->bytes, device, sizeof uuid->bytes);
    return end(HDCU_SUCCESS);
}

static hdcu_result can_access_peer(int *can, hdcu_device device, hdcu_device peer)
{
    BEGIN("cuDeviceCanAccessPeer");
    *can = device != peer;
    return end(HDCU_SUCCESS);
}

static hdcu_result pair_attribute(int *value, int attribute, hdcu_device device, hdcu_device peer)
{
    BEGIN("cuDeviceGetP2PAttribute");
    *value = attribute == HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED && device != peer;
    return end(HDCU_SUCCESS);
}

static hdcu_result get_granularity(size_t *granularity, const hdcu_mem_prop *prop, int option)
{
    (void)prop;
    (void)option;
    BEGIN("cuMemGetAllocationGranularity");
    *granularity = fake.granularity;
    return end(HDCU_SUCCESS);
}

static hdcu_result address_reserve(hdcu_deviceptr *pointer, size_t bytes, size_t alignment, hdcu_deviceptr address,
                                   unsigned long long flags)
{
    BEGIN("cuMemAddressReserve");
    if (fake.base != 0 || bytes == 0 || bytes % fake.granularity != 0 || alignment % fake.granularity != 0 ||
        address % fake.granularity != 0 || flags != 0 || fake_top() != fake_context) {
        return misuse();
    }
    if (fake.most_addresses != 0 && bytes > fake.most_addresses) {
        return end(HDCU_ERROR_OUT_OF_MEMORY);
    }
    *pointer = fake.base = address != 0 && !fake.elsewhere ? address : FAKE_BASE;
    fake.reserved = bytes;
    return end(HDCU_SUCCESS);
}

static hdcu_result address_free(hdcu_deviceptr pointer, size_t bytes)
{
    BEGIN("cuMemAddressFree");
    if (pointer != fake.base || bytes != fake.reserved) {
        return misuse();
    }
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        if (fake.chunks[i].at != 0) {
            return end(HDCU_ERROR_INVALID_VALUE);
        }
    }
    fake.base = 0;
    return end(HDCU_SUCCESS);
}

static hdcu_result create(hdcu_memhandle *handle, size_t bytes, const hdcu_mem_prop *prop, unsigned long long flags)
{
    if (atomic_load(&fake.slow_us) != 0) {
        atomic_fetch_add(&fake.calls_under_way, 1);
        usleep((useconds_t)atomic_load(&fake.slow_us));
        atomic_fetch_sub(&fake.calls_under_way, 1);
    }
    BEGIN("cuMemCreate");
    if (bytes == 0 || bytes % fake.granularity != 0 || prop->type != HDCU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 ||
        fake_top() != fake_context) {
        return misuse();
    }
    if (bytes > fake.total - fake.created) {
        return end(HDCU_ERROR_OUT_OF_MEMORY);
    }
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        fake_chunk *c = &fake.chunks[i];
        if (!c->held && c->at == 0) {
            memset(c, 0, sizeof *c);
            c->held = true;
            c->bytes = bytes;
            c->handle_types = prop->requested_handle_types;
            fake.created += bytes;
            fake.misuses += fake.created > fake.most;
            *handle = (hdcu_memhandle)i + 1;
            return end(HDCU_SUCCESS);
        }
    }
    return misuse();
}

/* A chunk's memory is gone once the chunk is neither held nor mapped. */
static void settle(const fake_chunk *c)
{
    if (!c->held && c->at == 0) {
        fake.created -= c->bytes;
    }
}

/* A release that must fail still releases, as with a driver that reports an earlier failure. */
static hdcu_result release(hdcu_memhandle handle)
{
    hdcu_result begun = begin("cuMemRelease");
    if (handle == 0 || handle > FAKE_CHUNKS || !fake.chunks[handle - 1].held) {
        return misuse();
    }
    fake.chunks[handle - 1].held = false;
    settle(&fake.chunks[handle - 1]);
    return end(begun);
}

static hdcu_result map(hdcu_deviceptr pointer, size_t bytes, size_t offset, hdcu_memhandle handle,
                       unsigned long long flags)
{
    BEGIN("cuMemMap");
    if (handle == 0 || handle > FAKE_CHUNKS || !fake.chunks[handle - 1].held || fake.chunks[handle - 1].at != 0 ||
        fake_top() != fake_context || fake.chunks[handle - 1].bytes != bytes || offset != 0 || flags != 0 ||
        fake.base == 0 || pointer < fake.base || pointer + bytes > fake.base + fake.reserved) {
        return misuse();
    }
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        const fake_chunk *c = &fake.chunks[i];
        if (c->at != 0 && pointer < c->at + c->bytes && c->at < pointer + bytes) {
            return misuse();
        }
    }
    fake.chunks[handle - 1].at = pointer;
    return end(HDCU_SUCCESS);
}

static fake_chunk *mapped_at(hdcu_deviceptr pointer)
{
    for (int i = 0; i < FAKE_CHUNKS; i++) {
        if (pointer != 0 && fake.chunks[i].at == pointer) {
            return &fake.chunks[i];
        }
    }
    return NULL;
}

/* True if the range consists of whole mappings. */
static bool is_whole(hdcu_deviceptr pointer, size_t bytes)
{
    size_t done = 0;
    for (const fake_chunk *c; done < bytes && (c = mapped_at(pointer + done)) != NULL;) {
        done += c->bytes;
    }
    return bytes != 0 && done == bytes;
}

static hdcu_result unmap(hdcu_deviceptr pointer, size_t bytes)
{
    BEGIN("cuMemUnmap");
    if (!is_whole(pointer, bytes)) {
        return misuse();
    }
    for (size_t done = 0; done < bytes;) {
        fake_chunk *c = mapped_at(pointer + done);
        done += c->bytes;
        c->at = 0;
        memset(c->flags, 0, sizeof c->flags);
        settle(c);
    }
    return end(HDCU_SUCCESS);
}

static hdcu_result set_access(hdcu_deviceptr pointer, size_t bytes, const hdcu_mem_access_desc *desc, size_t count)
{
    BEGIN("cuMemSetAccess");
    if (!is_whole(pointer, bytes) || count == 0 || fake_top() != fake_context) {
        return misuse();
    }
    for (size_t i = 0; i < count; i++) {
        int id = desc[i].location.id;
        if (desc[i].location.type != HDCU_MEM_LOCATION_TYPE_DEVICE || id < 0 || id >= FAKE_DEVICES) {
            return misuse();
        }
        if (id == fake.unreachable) {
            return end(HDCU_ERROR_INVALID_DEVICE);
        }
    }
    for (size_t done = 0; done < bytes;) {
        fake_chunk *c = mapped_at(pointer + done);
        done += c->bytes;
        for (size_t i = 0; i < count; i++) {
            c->flags[desc[i].location.id] = desc[i].flags;
        }
    }
    return end(HDCU_SUCCESS);
}

static hdcu_result host_register(void *pointer, size_t bytes, unsigned flags)
{
    BEGIN("cuMemHostRegister");
    if (pointer == NULL || bytes == 0 || fake_top() != fake_context ||
        flags != (HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP)) {
        return misuse();
    }
    for (int i = 0; i < FAKE_REGISTERED; i++) {
        if (fake.registered[i] == NULL) {
            fake.registered[i] = pointer;
            fake.n_registered++;
            return end(HDCU_SUCCESS);
        }
    }
    return misuse();
}

static hdcu_result host_unregister(void *pointer)
{
    BEGIN("cuMemHostUnregister");
    if (fake_top() != fake_context) {
        return misuse();
    }
    for (int i = 0; i < FAKE_REGISTERED; i++) {
        if (fake.registered[i] == pointer) {
            *(volatile char *)pointer = 1; /* faults unless still mapped */
            fake.registered[i] = NULL;
            fake.n_registered--;
            return end(HDCU_SUCCESS);
        }
    }
    fake.not_registered++;
    return end(HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static hdcu_result host_device_pointer(hdcu_deviceptr *device_pointer, void *pointer, unsigned flags)
{
    BEGIN("cuMemHostGetDevicePointer");
    if (flags != 0) {
        return misuse();
    }
    *device_pointer = (hdcu_deviceptr)(uintptr_t)pointer + FAKE_BASE;
    return end(HDCU_SUCCESS);
}

/* Not counted, since its failure changes nothing. */
static hdcu_result exchange_mode(int *mode)
{
    static _Thread_local int current;
    int before = current;
    current = *mode;
    *mode = before;
    return HDCU_SUCCESS;
}

const hdi_driver fake_driver = {
    .provider = &(const hdi_provider){.name = "fake"},
    .version = 12000,
    .cuThreadExchangeStreamCaptureMode = exchange_mode,
    .cuCtxGetCurrent = get_current,
    .cuCtxSetCurrent = set_current,
    .cuCtxPushCurrent = push_current,
    .cuCtxPopCurrent = pop_current,
    .cuDeviceTotalMem = total_mem,
    .cuDeviceGetAttribute = get_attribute,
    .cuDeviceGetName = get_name,
    .cuDeviceGetPCIBusId = get_bus_id,
    .cuDeviceGetUuid = get_uuid,
    .cuDeviceCanAccessPeer = can_access_peer,
    .cuDeviceGetP2PAttribute = pair_attribute,
    .cuMemGetAllocationGranularity = get_granularity,
    .cuMemAddressReserve = address_reserve,
    .cuMemAddressFree = address_free,
    .cuMemCreate = create,
    .cuMemRelease = release,
    .cuMemMap = map,
    .cuMemUnmap = unmap,
    .cuMemSetAccess = set_access,
    .cuMemHostRegister = host_register,
    .cuMemHostUnregister = host_unregister,
    .cuMemHostGetDevicePointer = host_device_pointer,
};
