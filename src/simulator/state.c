/* state.c - the host provider's process-wide state: settings, the host lock, releases after it, cuInit.
 *
 * Threads: any. Locks: the host lock, which is defined here. Blocking: none.
 * Always: settings change only while no primary context is live. So everything made under one configuration ends under it.
 * A process that was forked from one with the driver started never touches the lock. A thread that it does not have may
 * hold it. There, locking and unlocking do nothing, and entry points end before they read any state.
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
    int memory_file = g ? hdi_host_memory_file() : -1;
    hdi_mutex_unlock(&lock);
    while (g) {
        hdi_host_garbage *next = g->next;
        if (g->map) {
            munmap(g->map, g->map_bytes);
        }
        if (g->punch_bytes) {
            fallocate(memory_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, g->punch_offset, (off_t)g->punch_bytes);
        }
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

bool hdi_host_peer_possible(int device, int peer)
{
    int n = hdi_host.device_count;
    if (device == peer || hdi_host.peers == HDI_HOST_PEERS_NONE) {
        return false;
    }
    return hdi_host.peers == HDI_HOST_PEERS_ALL || (device + 1) % n == peer || (peer + 1) % n == device;
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
        /* Programs that made memory without a context, and released nothing, have left it behind. */
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

hdcu_result hdi_host_cuInit(unsigned flags)
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

hdcu_result hdi_host_cuDriverGetVersion(int *version)
{
    if (!version) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    const hdi_driver *table;
    hdi_driver_host(&table);
    *version = table->version;
    return HDCU_SUCCESS;
}
