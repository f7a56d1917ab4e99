/* info.c - facts about a runtime and its devices, current options, counters, and the driver's entry
 * points by name.
 *
 * Threads: any.
 * Locks: none of its own.
 * Always: structures are filled in on success only.
 */
#include <heddle/driver.h>
#include <heddle/runtime.h>
#include <stdio.h>
#include <string.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/providers.h"
#include "memory/arena.h"
#include "memory/thread_cache.h"
#include "peer/peers.h"
#include "simulator/simulator.h"
#include "worker/workers.h"

static hd_status info_check_device(const hd_runtime *rt, int device, const void *out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    return HD_OK;
}

int hd_device_count(const hd_runtime *rt)
{
    HDI_INSIDE_STILL(rt); /* refuses no caller, since the call cannot fail */
    return hdi_runtime_is_open(rt) ? rt->n_devices : 0;
}

hd_status hd_runtime_get_info(const hd_runtime *rt, hd_runtime_info *out)
{
    HDI_INSIDE(rt);
    hd_status status = info_check_device(rt, 0, out);
    status = status ? status : HDI_SIZED_CHECK(hd_runtime_info, out);
    if (status) {
        return status;
    }
    hd_runtime_info info = {
        .size = sizeof info,
        .driver = rt->provider->name,
        .placement = rt->is_inline    ? "inline"
                     : rt->is_process ? "process"
                                      : "thread",
        .driver_version = rt->driver_version,
        .device_count = rt->n_devices,
    };
    HDI_SIZED_OUT(hd_runtime_info, out, &info);
    return HD_OK;
}

hd_status hd_device_get_info(hd_runtime *rt, int index, hd_device_info *out)
{
    HDI_INSIDE(rt);
    hd_status status = info_check_device(rt, index, out);
    status = status ? status : HDI_SIZED_CHECK(hd_device_info, out);
    if (status) {
        return status;
    }
    hdi_device *device = rt->devices[index];
    const hdi_facts *facts = &device->facts;
    hd_device_info info = {.size = sizeof info};
    memcpy(info.name, facts->name, sizeof info.name);
    memcpy(info.bus_id, facts->bus_id, sizeof info.bus_id);
    memcpy(info.uuid, facts->uuid, sizeof info.uuid);
    info.is_host = rt->provider->is_host;
    info.compute_major = facts->compute_major;
    info.compute_minor = facts->compute_minor;
    info.multiprocessors = facts->multiprocessors;
    info.max_threads_per_block = (int)device->limits.threads_per_block;
    memcpy(info.max_block, device->limits.block, sizeof info.max_block);
    memcpy(info.max_grid, device->limits.grid, sizeof info.max_grid);
    info.shared_bytes_per_block = device->limits.shared_default;
    info.shared_bytes_max = device->limits.shared_max;
    info.memory_bytes = facts->memory_bytes;
    info.peers = facts->peers;
    info.numa_node = hdi_numa_node(info.bus_id);
    info.lost = hdi_device_lost(device);
    info.worker_pid = rt->is_process && !info.lost ? hdi_worker_pid(rt, index) : 0;
    info.losses = atomic_load_explicit(&device->losses, memory_order_relaxed);
    info.restarts = atomic_load_explicit(&device->restarts, memory_order_relaxed);
    uint64_t free_bytes = 0;
    hdi_answer answer = {0, ""};
    if (!info.lost) {
        answer = device->port->calls->memory_free(device->port, &free_bytes);
    }
    if (hdi_driver_code_is_fatal(answer.code)) {
        hdi_device_await_loss(device, answer.code);
        info.lost = true; /* lost just now */
        info.worker_pid = 0;
    } else if (!hdi_answered(answer)) {
        return hdi_answer_failed(device, answer);
    }
    info.memory_free_bytes = free_bytes;
    hdi_arena_info arena;
    hdi_arena_get_info(device->arena, &arena);
    info.memory_mapped_bytes = arena.mapped_bytes;
    HDI_SIZED_OUT(hd_device_info, out, &info);
    return HD_OK;
}

hd_status hd_device_get_stats(hd_runtime *rt, int index, hd_device_stats *out)
{
    HDI_INSIDE(rt);
    hd_status status = info_check_device(rt, index, out);
    status = status ? status : HDI_SIZED_CHECK(hd_device_stats, out);
    if (status) {
        return status;
    }
    hdi_device *device = rt->devices[index];
    hdi_engine_shared *engine = device->channel.engine;
    hdi_thread_cache_sums memory;
    hdi_thread_caches_sum(rt, index, &memory);
    hd_device_stats stats = {
        .size = sizeof stats,
        .operations = atomic_load_explicit(&engine->operations, memory_order_relaxed),
        .waits_inserted = atomic_load_explicit(&engine->waits, memory_order_relaxed),
        .events_recorded = atomic_load_explicit(&engine->events, memory_order_relaxed),
        .publishes = atomic_load_explicit(&engine->signals, memory_order_relaxed),
        .ring_full_stalls = atomic_load_explicit(&device->ring_stalls, memory_order_relaxed),
        .engine_sleeps = atomic_load_explicit(&engine->sleeps, memory_order_relaxed),
        .buffers_live = memory.allocations - memory.frees,
        .bytes_live = memory.allocated_bytes - memory.freed_bytes,
    };
    HDI_SIZED_OUT(hd_device_stats, out, &stats);
    return HD_OK;
}

/* The current value of an option. If the option names a program and is unset, the value is the path
 * at which the runtime found the program. */
static const char *info_value_in_force(const hd_runtime *rt, int index, const char *name)
{
    const char *text = rt->options.text[index];
    if (text[0] == 0 && strcmp(name, "probe") == 0) {
        return hdi_peers_program(rt);
    }
    return text[0] == 0 && strcmp(name, "worker") == 0 ? hdi_worker_program(rt) : text;
}

hd_status hd_option_get_info(const hd_runtime *rt, int index, hd_option_info *out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_option_info, out);
    if (status) {
        return status;
    }
    if (rt && !hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    const hdi_option_row *row = index < 0 ? NULL : hdi_option_row_at(index);
    if (!row) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "there is no option number %d", index);
    }
    hd_option_info info = {
        .size = sizeof info,
        .name = row->name,
        .environment = row->environment,
        .value = rt ? info_value_in_force(rt, index, row->name) : row->default_text,
        .help = row->help,
        .is_default = !rt || rt->options.is_default[index],
        .source = rt ? rt->options.source[index] : HD_OPTION_FROM_DEFAULT,
    };
    HDI_SIZED_OUT(hd_option_info, out, &info);
    return HD_OK;
}

/* ---- entry points of the driver ---- */

static hd_status info_provider_table(const char *name, const hdi_driver **out)
{
    /* without a name: nvidia if it works, else host */
    const hdi_provider *provider = name ? hdi_provider_named(name) : NULL;
    if (name && !provider) {
        return hdi_fail(HD_ERROR_ARGUMENT, "driver '%s' is neither nvidia nor host", name);
    }
    if (provider && !provider->is_host) {
        return provider->open(out);
    }
    if (!provider) {
        hdi_attempt attempt; /* a missing GPU is no failure here */
        hdi_attempt_begin(&attempt);
        hd_status status = hdi_driver_nvidia(out);
        hdi_attempt_end(&attempt);
        int count = 0;
        if (!status && (*out)->cuInit(0) == HDCU_SUCCESS && (*out)->cuDeviceGetCount(&count) == HDCU_SUCCESS &&
            count > 0) {
            return HD_OK;
        }
    }
    hd_status status = hdi_driver_host(out);
    if (!status) {
        hdi_options options;
        status = hdi_options_parse(NULL, &options);
        if (!status) {
            /* If a runtime with other settings is open, the driver refuses these settings, and
             * keeps the other ones. */
            hdi_attempt attempt;
            hdi_attempt_begin(&attempt);
            hdi_host_configure(&options);
            hdi_attempt_end(&attempt);
            hdi_options_release(&options);
        }
    }
    return status;
}

hd_status hd_driver_entry(const char *provider, const char *symbol, void (**out)(void))
{
    HDI_UNCANCELLED;
    HDI_CALL();
    if (!symbol || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", symbol ? "out" : "symbol");
    }
    const hdi_driver *table;
    /* the call below may start the driver, which opens descriptors */
    bool held = hdi_descriptors_hold();
    hd_status status = info_provider_table(provider, &table);
    hdi_descriptors_release(held);
    if (status) {
        return status;
    }
#define ENTRY_BY_NAME(name, version, need, parameters, arguments)                                                      \
    if (strcmp(symbol, #name) == 0 && table->name) {                                                                   \
        *out = (void (*)(void))table->name;                                                                            \
        return HD_OK;                                                                                                  \
    }
    HDI_DRIVER_ENTRIES(ENTRY_BY_NAME)
#undef ENTRY_BY_NAME
    return hdi_fail(HD_ERROR_NOT_FOUND, "'%s' is not among the entry points that Heddle uses", symbol);
}
