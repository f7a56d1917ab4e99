/* state.c - the host provider's state of the process: settings, the host lock, releases of
 * resources after it, handles, and the table.
 *
 * Threads: any. Locks: the host lock, which is defined here. Blocking: none.
 * Always: settings change only while no primary context is live. So the settings do not change
 * during the life of an object. If a process forks after the start of the driver, the child never
 * touches the lock, since a thread of the parent may hold it. In the child, hdi_host_lock and
 * hdi_host_unlock do nothing, and entry points return before they read any state.
 * A handle is generation << 32 | slot << 8 | kind. A slot's generation grows when its object ends.
 * So a look-up refuses a stale handle until 2^32 objects used the slot. No handle is a small
 * number, since the driver uses 0, 1 and 2 for its own streams.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/text.h"
#include "simulator/host.h"

enum { VERSION = 13000 }; /* cuDriverGetVersion */

/* ---- settings and the lock ---- */

hdi_host_state hdi_host = {.device_count = 4, .memory = (uint64_t)1 << 30};

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_STATE);
static hdi_host_garbage *garbage_list;
static _Thread_local bool in_function;

void hdi_host_lock(void)
{
    if (!hdi_driver_was_forked()) {
        hdi_mutex_lock(&lock);
    }
}

void hdi_host_unlock(void)
{
    if (hdi_driver_was_forked()) {
        return;
    }
    hdi_host_garbage *g = garbage_list;
    garbage_list = NULL;
    hdi_mutex_unlock(&lock);
    while (g) {
        hdi_host_garbage *next = g->next;
        if (g->map) {
            munmap(g->map, g->map_bytes);
        }
        hdi_host_piece_clear(&g->piece);
        if (g->library) {
            dlclose(g->library);
        }
        if (g->descriptor >= 0) {
            close(g->descriptor);
        }
        free(g->self);
        g = next;
    }
}

hdcu_result hdi_host_leave(hdcu_result result)
{
    hdi_host_unlock();
    return result;
}

void hdi_host_wait(pthread_cond_t *condition)
{
    hdi_mutex_wait(&lock, condition);
}

void hdi_host_discard(hdi_host_garbage *garbage)
{
    garbage->next = garbage_list;
    garbage_list = garbage;
}

void hdi_host_set_in_function(bool inside)
{
    in_function = inside;
}

hdcu_result hdi_host_enter(void)
{
    hdi_host_lock();
    if (hdi_driver_was_forked() || !hdi_host.initialised) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    return in_function ? HDCU_ERROR_NOT_PERMITTED : HDCU_SUCCESS;
}

hdcu_result hdi_host_enter_context(hdi_host_context **context)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_current(context);
    }
    if (r == HDCU_SUCCESS) {
        r = (*context)->error;
    }
    return r;
}

bool hdi_host_device_valid(hdcu_device device)
{
    return device >= 0 && device < hdi_host.device_count;
}

hd_status hdi_host_configure(const hdi_options *options)
{
    uint8_t corrupt[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX];
    hd_status status = hdi_host_corrupt_parse(options->host_corrupt, (int)options->host_devices, corrupt);
    if (status != HD_OK) {
        return status;
    }
    hdi_host_lock();
    bool same = hdi_host.device_count == options->host_devices && hdi_host.memory == (uint64_t)options->host_memory &&
                hdi_host.peers == options->host_peers && memcmp(hdi_host.corrupt, corrupt, sizeof corrupt) == 0 &&
                hdi_host.schedule == (uint64_t)options->host_schedule;
    bool busy = hdi_host.contexts > 0;
    int devices = hdi_host.device_count;
    uint64_t memory = hdi_host.memory;
    if (!busy) {
        /* Releases memory that programs made without a context and did not release. */
        hdi_host_virtual_release(-1, true);
        hdi_host_graphs_release();
        hdi_host.device_count = (int)options->host_devices;
        hdi_host.memory = (uint64_t)options->host_memory;
        hdi_host.peers = options->host_peers;
        memcpy(hdi_host.corrupt, corrupt, sizeof corrupt);
        hdi_host.schedule = (uint64_t)options->host_schedule;
        hdi_host.streams_made = 0;
    }
    hdi_host_unlock();
    if (busy && !same) {
        return hdi_fail(HD_ERROR_OPTION,
                        "options host_*: the host devices are in use with other settings (%d devices of %s); "
                        "close the other runtimes, or use the same settings",
                        devices, HDI_BYTES(memory));
    }
    return HD_OK;
}

static hdcu_result cuInit(unsigned flags)
{
    if (hdi_driver_was_forked()) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    if (flags != 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    hdi_host_lock();
    hdi_host.initialised = true;
    hdi_host_unlock();
    return HDCU_SUCCESS;
}

static hdcu_result cuDriverGetVersion(int *version)
{
    if (!version) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    *version = VERSION;
    return HDCU_SUCCESS;
}

/* ---- handles ---- */

typedef struct slot {
    void *object; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* index + 1; 0: none */
    hdi_host_kind kind;
} slot;

enum { SLOTS_MAX = 1 << 24 };

static slot *slots;
static uint32_t slot_count, slot_capacity, first_free;

uint64_t hdi_host_handle_make(hdi_host_kind kind, void *object)
{
    uint32_t i;
    if (first_free != 0) {
        i = first_free - 1;
        first_free = slots[i].next_free;
    } else {
        if (slot_count == slot_capacity) {
            uint32_t capacity = slot_capacity ? slot_capacity * 2 : 64;
            slot *grown = capacity > SLOTS_MAX ? NULL : realloc(slots, capacity * sizeof *slots);
            if (!grown) {
                return 0;
            }
            slots = grown;
            slot_capacity = capacity;
        }
        i = slot_count++;
        slots[i].generation = 1;
    }
    slots[i].object = object;
    slots[i].kind = kind;
    slots[i].next_free = 0;
    return (uint64_t)slots[i].generation << 32 | (uint64_t)i << 8 | (uint64_t)kind;
}

static slot *host_handle_slot_of(uint64_t handle)
{
    uint32_t i = (uint32_t)handle >> 8;
    if (i >= slot_count || !slots[i].object || slots[i].generation != handle >> 32 ||
        slots[i].kind != (handle & 0xff)) {
        return NULL;
    }
    return &slots[i];
}

void *hdi_host_handle_find(hdi_host_kind kind, uint64_t handle)
{
    slot *s = host_handle_slot_of(handle);
    return s && s->kind == kind ? s->object : NULL;
}

void hdi_host_handle_drop(uint64_t handle)
{
    slot *s = host_handle_slot_of(handle);
    if (s) {
        s->object = NULL;
        s->generation++;
        if (s->generation == 0) {
            s->generation = 1;
        }
        s->next_free = first_free;
        first_free = (uint32_t)(s - slots) + 1;
    }
}

void *hdi_host_handle_next(hdi_host_kind kind, uint32_t *position)
{
    while (*position < slot_count) {
        slot *s = &slots[(*position)++];
        if (s->object && s->kind == kind) {
            return s->object;
        }
    }
    return NULL;
}

/* ---- the table ---- */

static const hdi_driver state_entries = {
    .cuInit = cuInit,
    .cuDriverGetVersion = cuDriverGetVersion,
};

/* Implements hdi_provider.reason. */
static void host_driver_reason(int ordinal, int code, char *out)
{
    bool kernel = code == HDCU_ERROR_ASSERT || code == HDCU_ERROR_LAUNCH_FAILED;
    hdi_host_lock();
    snprintf(out, HDI_DRIVER_REASON_BYTES, "%s",
             kernel && ordinal < HDI_HOST_DEVICES_MAX ? hdi_host.devices[ordinal].reason : "");
    hdi_host_unlock();
}

const hdi_provider hdi_provider_host = {
    .name = "host",
    .is_host = true,
    .code = HDI_CODE_CPU,
    .chains_eager = true, /* on the CPU, chains take as much time as single launches */
    /* More bytes would show nothing new: a processor copies them in the same way. */
    .peer_test_bytes = ((uint64_t)2 << 20) + 64,
    /* A peer copy runs on one thread. Other work of the processor slows it down more than the two
     * threads that take turns in the comparison. */
    .peer_slow_margin = 8.0,
    .blas = HDI_BLAS_HOST,
    .dlpack_device = 1, /* kDLCPU */
    .dlpack_pinned = 1,
    .export_bytes = hdi_host_export_bytes,
    .reason = host_driver_reason,
    .open = hdi_driver_host,
};

static const hdi_driver *const parts[] = {
    &state_entries,           &hdi_host_device_entries, &hdi_host_memory_entries, &hdi_host_alloc_entries,
    &hdi_host_stream_entries, &hdi_host_graph_entries,  &hdi_host_module_entries, &hdi_host_run_entries,
};

static hdi_driver table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void host_driver_fill_table(void)
{
    table.provider = &hdi_provider_host;
    table.version = VERSION;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
#define TAKE_ENTRY(name, since, need, parameters, arguments) table.name = parts[i]->name ? parts[i]->name : table.name;
        HDI_DRIVER_ENTRIES(TAKE_ENTRY)
#undef TAKE_ENTRY
    }
}

hd_status hdi_driver_host(const hdi_driver **out)
{
    pthread_once(&table_once, host_driver_fill_table);
    *out = &table;
    return HD_OK;
}
